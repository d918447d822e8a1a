// Definitions of TuningCache, and its file.
//
// The file is JSON, with one entry on each line:
//
//   {"opkit": "tuning cache", "schema": 1, "machines": [
//   {"machine": "AMD EPYC …", "entries": [
//   {"time": "KEY", "median_ns": 1.5, …, "check": "0123456789abcdef"},
//   {"plan": "KEY", "selection": "…", …, "check": "0123456789abcdef"}
//   ]}
//   ]}
//
// A program that reads JSON reads the file. The cache itself reads only lines that it wrote: each
// is whole or not, so that damage costs the entries on the damaged lines and no others. "check" is
// a hash of the machine and of the line before it; it changes with any single byte.
#ifndef OPKIT_GRAPH_TUNE_IMPL_TUNING_CACHE_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_TUNING_CACHE_IPP_

#include <algorithm>
#include <type_traits>
#include <utility>

#include "opkit/base/cache/cache_folder.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/tune/tuning_cache.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline constexpr int64_t kTuningSchema = 1;
inline constexpr std::string_view kTuningStart = "{\"opkit\": \"tuning cache\", \"schema\": ";

// A hash in the way of FNV-1a (Fowler, Noll, Vo), of 8 bytes at a time. Each step is invertible, so
// texts of one length that differ in one byte have different hashes.
inline uint64_t TextCheck(std::string_view text, uint64_t start = 0xcbf29ce484222325) {
  const auto add = [&](uint64_t bytes) {
    start = (start ^ bytes) * 0x9e3779b97f4a7c15;
    start ^= start >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < 8; ++i)  // one load
      bytes |= uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
    add(bytes);
  }
  for (; at < text.size(); ++at) add(static_cast<unsigned char>(text[at]));
  return start;
}
// Returns the start of the checks of a machine's entries. An entry of another schema has another.
inline uint64_t MachineCheck(std::string_view machine) {
  return TextCheck(StrCat(kTuningSchema, " ", machine));
}
inline std::string CheckText(uint64_t check) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[(check >> shift) & 15];
  return text;
}

inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

inline bool IsMeasured(const MeasuredTime& time) {
  return time.low_ns >= 0 && time.median_ns >= time.low_ns && time.high_ns >= time.median_ns &&
         __builtin_isfinite(time.high_ns) && time.samples >= 0 && time.bytes >= 0 &&
         time.unix_ms >= 0;
}
inline bool IsMeasured(const TunedPlan& plan) {
  return plan.tuned_ns >= 0 && plan.default_ns >= 0 && __builtin_isfinite(plan.tuned_ns) &&
         __builtin_isfinite(plan.default_ns) && plan.unix_ms >= 0;
}

template <class T>
bool ReadMember(JsonLineReader& line, std::string_view name, T* value) {
  if (!line.Skip(", \"") || !line.Skip(name) || !line.Skip("\": ")) return false;
  if constexpr (std::is_same_v<T, double>)
    return line.ReadNumber(value);
  else if constexpr (std::is_same_v<T, int64_t>)
    return line.ReadInteger(value);
  else
    return line.ReadString(value);
}
// Calls member(name, value) for each member after the key, in the order of the line, and stops at
// the first call that returns false. T may be const.
template <class T, class Member>
bool VisitMembers(T& value, Member&& member) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, MeasuredTime>)
    return member("median_ns", value.median_ns) && member("low_ns", value.low_ns) &&
           member("high_ns", value.high_ns) && member("samples", value.samples) &&
           member("bytes", value.bytes) && member("unix_ms", value.unix_ms);
  else
    return member("selection", value.selection) && member("tuned_ns", value.tuned_ns) &&
           member("default_ns", value.default_ns) && member("unix_ms", value.unix_ms);
}
inline TextMap<MeasuredTime>& EntriesOf(TuningEntries& entries, const MeasuredTime&) {
  return entries.times;
}
inline TextMap<TunedPlan>& EntriesOf(TuningEntries& entries, const TunedPlan&) {
  return entries.plans;
}

// Adds an entry unless there is one of the same key that is as new. Returns true if it did.
template <class T>
bool AddNewer(TextMap<T>& entries, std::string key, T&& value) {
  const auto [entry, is_new] = entries.try_emplace(std::move(key), std::move(value));
  if (is_new) return true;
  if (entry->second.unix_ms >= value.unix_ms) return false;
  entry->second = std::move(value);
  return true;
}
// The same for what this process has measured. Without a time it is newer than any entry, though
// the clock may have been set back.
template <class T>
bool AddMeasured(TextMap<T>& entries, std::string_view key, T&& value) {
  const auto found = entries.find(key);
  const int64_t before = found == entries.end() ? 0 : found->second.unix_ms;
  if (value.unix_ms == 0) value.unix_ms = (std::max)(UnixMs(), before + 1);
  return AddNewer(entries, std::string(key), std::move(value));
}
// Adds the entries that are newer; returns their number.
template <class T>
size_t AddAllNewer(TextMap<T>& entries, TextMap<T>&& others) {
  if (entries.empty()) {
    entries = std::move(others);
    return entries.size();
  }
  size_t added = 0;
  for (auto& [key, value] : others) added += AddNewer(entries, key, std::move(value));
  return added;
}

// The contents of a file.
struct TuningFile {
  // kEmpty also for a file that was cut off in its first line.
  enum Kind { kCache, kEmpty, kForeign, kOtherSchema };
  Kind kind = kForeign;
  int64_t schema = 0;
  TuningMachines machines;
  size_t damaged = 0;  // lines
};

class TuningFileReader {
 public:
  TuningFile Read(std::string_view bytes) && {
    JsonLineReader start(bytes);
    if (!start.Skip(kTuningStart)) {
      if (kTuningStart.starts_with(bytes)) file_.kind = TuningFile::kEmpty;
      file_.damaged = bytes.empty() ? 0 : 1;
      return std::move(file_);
    }
    const bool has_schema = start.ReadInteger(&file_.schema);
    const size_t begin = bytes.find('\n');
    if (begin == bytes.npos) {
      file_.kind = TuningFile::kEmpty;
      file_.damaged = 1;
      return std::move(file_);
    }
    file_.kind = TuningFile::kCache;
    if (has_schema && file_.schema != kTuningSchema) {
      file_.kind = TuningFile::kOtherSchema;
      return std::move(file_);
    }
    if (!has_schema || !start.Skip(", \"machines\": [\n")) ++file_.damaged;
    std::string_view rest = bytes.substr(begin + 1);
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
      ReadLine(line.ends_with(',') ? line.substr(0, line.size() - 1) : line);
    }
    if (!is_ended_ && file_.damaged == 0) file_.damaged = 1;
    return std::move(file_);
  }

 private:
  void ReadLine(std::string_view text) {
    JsonLineReader line(text);
    if (line.Skip("{\"machine\": ")) {
      has_machine_ = line.ReadString(&machine_) && line.rest() == ", \"entries\": [";
      entries_ = nullptr;
      start_ = MachineCheck(machine_);
      if (!has_machine_) ++file_.damaged;
    } else if (line.Skip("{\"time\": ")) {
      ReadEntry(text, line, MeasuredTime());
    } else if (line.Skip("{\"plan\": ")) {
      ReadEntry(text, line, TunedPlan());
    } else if (text != "]}") {
      ++file_.damaged;
    } else if (has_machine_) {
      has_machine_ = false;
    } else {
      is_ended_ = true;
    }
  }
  template <class T>
  void ReadEntry(std::string_view text, JsonLineReader line, T value) {
    const bool is_read = has_machine_ && line.ReadString(&key_) &&
                         VisitMembers(value, [&](std::string_view name, auto& member) {
                           return ReadMember(line, name, &member);
                         });
    const uint64_t check = TextCheck(text.substr(0, text.size() - line.rest().size()), start_);
    if (!is_read || !line.Skip(", \"check\": \"") || !line.Skip(CheckText(check)) ||
        line.rest() != "\"}" || !IsMeasured(value)) {
      ++file_.damaged;
      return;
    }
    if (!entries_) entries_ = &file_.machines[machine_];
    AddNewer(EntriesOf(*entries_, value), std::move(key_), std::move(value));
  }

  TuningFile file_;
  std::string machine_, key_;
  bool has_machine_ = false;          // a line has named the machine of the next entries
  bool is_ended_ = false;             // the last line is there
  TuningEntries* entries_ = nullptr;  // its entries, from the first one on
  uint64_t start_ = 0;                // the check of its name
};

class TuningFileWriter {
 public:
  // The bytes of a file with the entries of one machine, or of all if it is null.
  std::string Write(const TuningMachines& machines, const std::string* only) {
    text_ = StrCat(kTuningStart, kTuningSchema, ", \"machines\": [");
    bool is_first = true;
    for (const auto& [machine, entries] : machines) {
      if (entries.size() == 0 || (only && *only != machine)) continue;
      if (!IsUtf8(machine)) {
        omitted_ += entries.size();
        continue;
      }
      start_ = MachineCheck(machine);
      text_ += is_first ? "\n{\"machine\": " : ",\n{\"machine\": ";
      is_first = false;
      AppendJsonString(text_, machine);
      text_ += ", \"entries\": [";
      JsonWriter json(text_);
      WriteEntries(json, "time", entries.times);
      WriteEntries(json, "plan", entries.plans);
      text_ += "\n]}";
    }
    text_ += "\n]}\n";
    return std::move(text_);
  }
  // The number of entries that JSON cannot have: their text is not UTF-8.
  size_t omitted() const { return omitted_; }

 private:
  // In the order of the keys, so that equal entries give equal files.
  template <class T>
  void WriteEntries(JsonWriter& json, const char* kind, const TextMap<T>& entries) {
    std::vector<const typename TextMap<T>::value_type*> sorted;
    for (const auto& entry : entries) sorted.push_back(&entry);
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* const entry : sorted) {
      bool is_text = IsUtf8(entry->first);
      VisitMembers(entry->second, [&](std::string_view, const auto& member) {
        if constexpr (std::is_convertible_v<decltype(member), std::string_view>)
          is_text = is_text && IsUtf8(member);
        return true;
      });
      if (!is_text) {
        ++omitted_;
        continue;
      }
      json.NewLine().BeginObject();
      const size_t begin = text_.size() - 1;
      json.Member(kind, entry->first);
      VisitMembers(entry->second, [&](std::string_view name, const auto& member) {
        json.Member(name, member);
        return true;
      });
      const uint64_t check = TextCheck(std::string_view(text_).substr(begin), start_);
      json.Member("check", CheckText(check)).EndObject();
    }
  }

  std::string text_;
  uint64_t start_ = 0;
  size_t omitted_ = 0;
};

// Says why nothing of the file is used; empty for a file that is.
inline std::string WhyUnused(const TuningFile& file, const std::string& path) {
  if (file.kind == TuningFile::kForeign) return StrCat("'", path, "' is no tuning cache");
  if (file.kind == TuningFile::kOtherSchema)
    return StrCat("'", path, "' is a tuning cache of schema ", file.schema,
                  file.schema > kTuningSchema ? ", of a newer opkit" : ", of an older opkit",
                  "; this one has schema ", kTuningSchema);
  return {};
}
inline std::string DamageOf(const TuningFile& file, const std::string& path) {
  return StrCat("'", path, "' is damaged: ", file.damaged,
                file.damaged == 1 ? " line is not used" : " lines are not used");
}

}  // namespace detail

OPKIT_INLINE TuningCache::TuningCache(std::string path, std::string machine)
    : path_(std::move(path)), machine_(std::move(machine)), mine_(machines_[machine_]) {
  if (path_.empty()) return;
  try {
    detail::TuningFile file = detail::TuningFileReader().Read(detail::ReadFileIfPresent(path_));
    if (std::string why = detail::WhyUnused(file, path_); !why.empty())
      Warn(std::move(why));
    else if (file.damaged > 0)
      Warn(detail::DamageOf(file, path_));
    Merge(std::move(file.machines));
  } catch (const Error& error) {
    Warn(error.message());
  }
}

OPKIT_INLINE std::string TuningCache::DefaultPath() {
  if (std::string file = detail::VariableOf("OPKIT_TUNING_CACHE"); !file.empty()) return file;
  const std::string folder = detail::UserCacheFolder();
  return folder.empty() ? folder : folder + "/tuning.json";
}

OPKIT_INLINE size_t TuningCache::size() const {
  const detail::MutexLock lock(mutex_);
  return mine_.size();
}

OPKIT_INLINE std::optional<MeasuredTime> TuningCache::FindTime(std::string_view key) const {
  const detail::MutexLock lock(mutex_);
  const auto found = mine_.times.find(key);
  return found == mine_.times.end() ? std::nullopt : std::optional(found->second);
}
OPKIT_INLINE std::optional<TunedPlan> TuningCache::FindPlan(std::string_view key) const {
  const detail::MutexLock lock(mutex_);
  const auto found = mine_.plans.find(key);
  return found == mine_.plans.end() ? std::nullopt : std::optional(found->second);
}

OPKIT_INLINE void TuningCache::AddTime(std::string_view key, MeasuredTime time) {
  if (!detail::IsMeasured(time))
    Throw(ErrorCode::kInvalidArgument,
          "a measured time has 0 <= low <= median <= high, all finite, "
          "and no negative count; found low ",
          time.low_ns, ", median ", time.median_ns, ", high ", time.high_ns, " ns, ", time.samples,
          " samples, ", time.bytes, " bytes, at ", time.unix_ms, " ms, for '", key, "'");
  const detail::MutexLock lock(mutex_);
  changes_ += detail::AddMeasured(mine_.times, key, std::move(time));
}
OPKIT_INLINE void TuningCache::AddPlan(std::string_view key, TunedPlan plan) {
  if (!detail::IsMeasured(plan))
    Throw(ErrorCode::kInvalidArgument,
          "the times of a tuned plan are finite and not negative; found ", plan.tuned_ns,
          " ns tuned, ", plan.default_ns, " ns by default, at ", plan.unix_ms, " ms, for '", key,
          "'");
  const detail::MutexLock lock(mutex_);
  changes_ += detail::AddMeasured(mine_.plans, key, std::move(plan));
}

OPKIT_INLINE bool TuningCache::Save() {
  {
    const detail::MutexLock lock(mutex_);
    if (path_.empty() || changes_ == saved_) return true;
  }
  std::string failure;
  int64_t written = 0;
  try {
    // Reading and writing the file takes milliseconds, during which other threads can use the
    // cache.
    detail::UpdateFile(path_, [&](std::string_view bytes) {
      detail::TuningFile file = detail::TuningFileReader().Read(bytes);
      const std::string why = detail::WhyUnused(file, path_);
      // Entries of an older opkit are of no use to this one.
      if (!why.empty() &&
          !(file.kind == detail::TuningFile::kOtherSchema && file.schema < detail::kTuningSchema))
        Throw(ErrorCode::kInvalidArgument, why, "; nothing is written to it");
      const detail::MutexLock lock(mutex_);
      if (why.empty() && file.damaged > 0) Warn(detail::DamageOf(file, path_));
      Merge(std::move(file.machines));
      written = changes_;
      detail::TuningFileWriter writer;
      std::string text = writer.Write(machines_, nullptr);
      if (writer.omitted() > 0)
        Warn(StrCat("'", path_, "' lacks ", writer.omitted(), " entries: their text is not UTF-8"));
      return text;
    });
  } catch (const Error& error) {
    failure = error.message();
  }
  const detail::MutexLock lock(mutex_);
  if (!failure.empty()) {
    Warn(std::move(failure));
    return false;
  }
  saved_ = (std::max)(saved_, written);
  return true;
}

OPKIT_INLINE size_t TuningCache::MergeFrom(const std::string& path) {
  detail::TuningFile file = detail::TuningFileReader().Read(detail::ReadFileIfPresent(path));
  if (file.kind == detail::TuningFile::kEmpty)
    Throw(ErrorCode::kInvalidArgument, "'", path, "' is missing or empty, expected a tuning cache");
  if (const std::string why = detail::WhyUnused(file, path); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why);
  const detail::MutexLock lock(mutex_);
  if (file.damaged > 0) Warn(detail::DamageOf(file, path));
  const size_t added = Merge(std::move(file.machines));
  changes_ += static_cast<int64_t>(added);
  return added;
}
OPKIT_INLINE void TuningCache::Export(const std::string& path, bool machine_only) const {
  detail::TuningMachines machines;
  {
    const detail::MutexLock lock(mutex_);
    machines = machines_;
  }
  SaveFile(path, detail::TuningFileWriter().Write(machines, machine_only ? &machine_ : nullptr));
}

OPKIT_INLINE std::vector<std::string> TuningCache::warnings() const {
  const detail::MutexLock lock(mutex_);
  return warnings_;
}
OPKIT_INLINE void TuningCache::Warn(std::string warning) {
  if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end())
    warnings_.push_back(std::move(warning));
}
OPKIT_INLINE size_t TuningCache::Merge(detail::TuningMachines machines) {
  size_t added = 0;
  for (auto& [machine, entries] : machines) {
    detail::TuningEntries& known = machines_[machine];
    added += detail::AddAllNewer(known.times, std::move(entries.times));
    added += detail::AddAllNewer(known.plans, std::move(entries.plans));
  }
  return added;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_TUNE_IMPL_TUNING_CACHE_IPP_

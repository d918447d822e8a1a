// Definitions of the trace of all processes: ping-pong, profiles as bytes, and messages.
#ifndef OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_
#define OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/cluster/cluster_trace.hpp"
#include "opkit/cluster/record_bytes.hpp"
#include "opkit/profile/recording/recorder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Sends or receives a number, and waits for it.
inline int64_t PassNumber(Communicator& communicator, CommunicationKind kind, int process,
                          int64_t number) {
  CommunicationPlan plan;
  plan.kind = kind;
  plan.process = process;
  plan.channel = 0;
  // The communication owns the memory: it may outlive this call if the communicator breaks.
  const Tensor memory = Tensor::From<int64_t>({1}, {number});
  const auto message = MakeIntrusive<Communication>(plan, "the measurement of clocks");
  message->dtype = DType::kInt64;
  message->count = 1;
  if (kind == CommunicationKind::kSend)
    message->input = memory.raw_data();
  else
    message->output = memory.raw_mutable_data();
  message->Keep(memory);
  Event event;
  event.SetScheduled();
  message->Begin(event.state());
  try {
    communicator.Start(message);
  } catch (...) {
    message->Finish(std::current_exception());
  }
  event.Finish();
  return *memory.data<int64_t>();
}

constexpr std::string_view kClockMark = "clock of process ";
constexpr int kClockMarks = 8;
inline std::string ClockMark(int process, int64_t ns, int64_t offset) {
  return StrCat(kClockMark, process, ": ", ns, " ns, offset ", offset);
}

// Writes the records of a profile as bytes, with names as text, or reads them.
class ProfileBytes {
 public:
  static std::string Write(Profile profile) {
    ProfileBytes bytes{RecordBytes()};
    bytes.Pass(profile);
    return bytes.bytes_.bytes();
  }
  static Profile Read(const RecordBytes& from) {
    ProfileBytes bytes{from};
    Profile profile;
    bytes.Pass(profile);
    return profile;
  }

 private:
  explicit ProfileBytes(RecordBytes bytes) : bytes_(std::move(bytes)) {}
  template <class T>
  void Number(T& value) {
    bytes_.Number(value);
  }
  // A name is written as text where it comes first, and as its place among the names afterwards.
  void Name(uint32_t& name) {
    uint32_t place = 0;
    if (!bytes_.is_reading())
      place = places_.try_emplace(name, static_cast<uint32_t>(places_.size())).first->second;
    Number(place);
    if (place == names_.size()) {
      std::string text = bytes_.is_reading() || name == 0 ? "" : InternedName(name);
      bool is_none = name == 0;
      Number(is_none);
      bytes_.Text(text);
      names_.push_back(is_none ? 0 : InternName(text));
    }
    name = names_[place];
  }
  void Pass(Profile& profile) {
    bytes_.ForEach(profile.threads, [&](ProfileThread& thread) {
      Number(thread.id);
      bytes_.Text(thread.name);
    });
    bytes_.ForEach(profile.spans, [&](ProfileSpan& span) {
      for (uint64_t* id : {&span.id, &span.parent}) Number(*id);
      for (int64_t* time : {&span.begin, &span.end, &span.completed, &span.device_begin,
                            &span.device_end, &span.pushed})
        Number(*time);
      for (int* thread : {&span.thread, &span.pusher}) Number(*thread);
      Number(span.kind);
      Number(span.device);
      for (uint32_t* name :
           {&span.name, &span.node, &span.custom, &span.work.shapes, &span.work.backend})
        Name(*name);
      ProfileMessage& message = span.message;
      for (int* process : {&message.from, &message.to}) Number(*process);
      for (int64_t* number : {&message.plan, &message.channel, &message.number}) Number(*number);
      for (uint64_t* count : {&span.work.flops, &span.work.bytes}) Number(*count);
      for (bool* flag : {&span.adopted, &span.open}) Number(*flag);
    });
    bytes_.ForEach(profile.counters, [&](ProfileCounter& counter) {
      Number(counter.time);
      Name(counter.name);
      Number(counter.value);
    });
    bytes_.ForEach(profile.markers, [&](ProfileMarker& marker) {
      Number(marker.time);
      Name(marker.name);
      Number(marker.thread);
      Number(marker.frame);
    });
    Number(profile.dropped);
  }

  RecordBytes bytes_;
  std::map<uint32_t, uint32_t> places_;  // of written names
  std::vector<uint32_t> names_;          // by place
};

inline void RecordMessage(uint64_t invocation, const ProfileMessage& message) {
  if (Recorder::Global().is_running()) Recorder::Global().Communicated(invocation, message);
}
OPKIT_IMAGE_LOCAL inline const bool kFillsRecordMessage = g_record_message.Fill(&RecordMessage);

OPKIT_INLINE int64_t SessionBegin(const Profile& profile, int process) {
  std::optional<int64_t> begin;
  int64_t last = 0;  // the last offset that was measured
  for (const ProfileMarker& marker : profile.markers) {
    const std::string text = InternedName(marker.name);
    JsonLineReader reader(text);
    int64_t number = -1, ns = 0, offset = 0;
    if (!reader.Skip(kClockMark) || !reader.ReadInteger(&number) || !reader.Skip(": ") ||
        !reader.ReadInteger(&ns) || !reader.Skip(" ns, offset ") || !reader.ReadInteger(&offset) ||
        number != process)
      continue;
    // The mark has the time after `ns`, so that the difference is never too high.
    const int64_t found = ns - marker.time;
    begin = begin && offset == last ? (std::max)(*begin, found) : found;
    last = offset;
  }
  if (!begin)
    Throw(ErrorCode::kFailedPrecondition, "the profile of process ", process,
          " cannot be aligned; call AlignClocks on all processes in the profiler's session");
  return *begin;
}
// In a LocalCluster: true for the spans below those of the process's own thread.
class SpansOfProcess {
 public:
  SpansOfProcess(const Profile& profile, std::string name)
      : name_(std::move(name)), profile_(profile) {
    for (const ProfileSpan& span : profile.spans)
      if (!span.adopted) by_id_.emplace(span.id, &span);
  }
  bool operator()(const ProfileSpan& span) const {
    const ProfileSpan* root = &span;
    for (auto found = by_id_.find(span.parent); found != by_id_.end();
         found = by_id_.find(root->parent))
      root = found->second;
    if (root->adopted)
      if (const auto whole = by_id_.find(root->id); whole != by_id_.end()) root = whole->second;
    return IsOwn(root->thread);
  }
  bool IsOwn(int thread) const { return profile_.threads[Index(thread)].name == name_; }

 private:
  const std::string name_;
  const Profile& profile_;
  std::map<uint64_t, const ProfileSpan*> by_id_;
};

OPKIT_INLINE Profile OwnPart(const Profile& profile, const Communicator& communicator) {
  std::optional<SpansOfProcess> own;
  if (communicator.backend() == "local")
    own.emplace(profile, StrCat("process ", communicator.process()));
  Profile part;
  part.duration = profile.duration;
  for (const ProfileSpan& span : profile.spans)
    if (!own || (*own)(span)) part.spans.push_back(span);
  for (const ProfileMarker& marker : profile.markers)
    if ((!own || own->IsOwn(marker.thread)) && !InternedName(marker.name).starts_with(kClockMark))
      part.markers.push_back(marker);
  if (!own || communicator.process() == 0) {
    part.counters = profile.counters;
    part.dropped = profile.dropped;
  }
  std::vector<int*> threads;
  for (ProfileSpan& span : part.spans) {
    threads.push_back(&span.thread);
    if (span.pusher >= 0) threads.push_back(&span.pusher);
  }
  for (ProfileMarker& marker : part.markers) threads.push_back(&marker.thread);
  std::vector<int> place(profile.threads.size(), -1);
  for (const int* thread : threads) place[Index(*thread)] = 0;
  for (size_t i = 0; i < place.size(); ++i)
    if (place[i] == 0) {
      place[i] = static_cast<int>(part.threads.size());
      part.threads.push_back(profile.threads[i]);
    }
  for (int* thread : threads) *thread = place[Index(*thread)];
  return part;
}

inline void Shift(Profile& profile, int64_t ns, int process) {
  // The ids of all processes differ then. Ids count from 1 on each process.
  const uint64_t first_id = static_cast<uint64_t>(process) << 40;
  for (ProfileSpan& span : profile.spans) {
    span.begin += ns;
    span.end += ns;
    for (int64_t* time : {&span.completed, &span.device_begin, &span.device_end, &span.pushed})
      if (*time >= 0) *time += ns;
    span.id += first_id;
    if (span.parent != 0) span.parent += first_id;
    profile.duration = (std::max)({profile.duration, span.end, span.completed});
  }
  for (ProfileCounter& counter : profile.counters) counter.time += ns;
  for (ProfileMarker& marker : profile.markers) marker.time += ns;
}

}  // namespace detail

OPKIT_INLINE std::vector<ClockOffset> MeasureClocks(Communicator& communicator,
                                                    FunctionRef<int64_t()> now, int rounds) {
  using Kind = CommunicationKind;
  if (rounds < 1) Throw(ErrorCode::kInvalidArgument, "MeasureClocks: ", rounds, " rounds");
  const CommunicatorPtr own = communicator.Duplicate();
  std::string text;
  if (own->process() == 0) {
    for (int process = 1; process < own->processes(); ++process) {
      int64_t least = (std::numeric_limits<int64_t>::max)(), offset = 0;
      for (int round = 0; round < rounds; ++round) {
        const int64_t begin = now();
        detail::PassNumber(*own, Kind::kSend, process, 0);
        const int64_t there = detail::PassNumber(*own, Kind::kReceive, process, 0);
        const int64_t end = now();
        if (end - begin >= least) continue;
        least = end - begin;
        offset = there - (begin + least / 2);
      }
      text += StrCat(" ", offset, " ", least / 2 + 1);
    }
  } else {
    for (int round = 0; round < rounds; ++round) {
      detail::PassNumber(*own, Kind::kReceive, 0, 0);
      detail::PassNumber(*own, Kind::kSend, 0, now());
    }
  }
  const std::vector<std::string> texts = own->Exchange(text);
  detail::JsonLineReader reader(texts[0]);
  std::vector<ClockOffset> offsets(1);
  for (ClockOffset each; reader.Skip(" ") && reader.ReadInteger(&each.offset) && reader.Skip(" ") &&
                         reader.ReadInteger(&each.error);)
    offsets.push_back(each);
  return offsets;
}

OPKIT_INLINE std::vector<ClockOffset> AlignClocks(Communicator& communicator) {
  const auto now = [] { return detail::MonotonicNs(); };
  std::vector<ClockOffset> offsets = MeasureClocks(communicator, now);
  // Processes of one machine have the same clock, unless a time namespace moves it.
  std::string machine = "local";
  if (communicator.backend() != "local") {
    machine.resize(64);
    machine.resize(
        detail::ReadStartOfFile("/proc/sys/kernel/random/boot_id", machine.data(), machine.size()));
  }
  const std::vector<std::string> machines = communicator.Exchange(machine);
  for (size_t i = 1; i < machines.size(); ++i)
    if (!machines[i].empty() && machines[i] == machines[0] &&
        std::abs(offsets[i].offset) <= offsets[i].error)
      offsets[i] = {};
  const int process = communicator.process();
  const int64_t offset = offsets[detail::Index(process)].offset;
  // The thread may lose its core between the two readings of the time.
  for (int i = 0; i < detail::kClockMarks; ++i)
    ProfileMark(detail::ClockMark(process, now() - offset, offset));
  return offsets;
}

OPKIT_INLINE std::vector<Profile> GatherProfiles(Communicator& communicator,
                                                 const Profile& profile) {
  const int own = communicator.process();
  // An Error goes to all processes, which wait for this one.
  std::string error;
  int64_t begin = 0;
  try {
    begin = detail::SessionBegin(profile, own);
  } catch (const Error& failed) {
    error = failed.message();
  }
  detail::RecordBytes head;
  head.Text(error);
  head.Number(begin);
  const std::vector<std::string> texts = communicator.Exchange(
      head.bytes() +
      (error.empty() ? detail::ProfileBytes::Write(detail::OwnPart(profile, communicator)) : ""));
  std::vector<Profile> profiles;
  std::vector<int64_t> begins;
  for (const std::string& text : texts) {
    detail::RecordBytes bytes(text);
    bytes.Text(error);
    if (!error.empty()) throw Error(ErrorCode::kFailedPrecondition, error);
    bytes.Number(begins.emplace_back());
    if (own == 0) profiles.push_back(detail::ProfileBytes::Read(bytes));
  }
  if (own != 0) return {};
  const int64_t first = *std::min_element(begins.begin(), begins.end());
  for (size_t process = 0; process < profiles.size(); ++process)
    detail::Shift(profiles[process], begins[process] - first, static_cast<int>(process));
  return profiles;
}

OPKIT_INLINE std::vector<MessageTime> MessagesOf(const std::vector<Profile>& profiles) {
  // The spans of Send and Recv by what identifies their message. A process may have another number
  // among the profiles than among the processes of its plan.
  std::map<std::tuple<int64_t, int64_t, int64_t, int, int>, MessageTime> all;
  const uint32_t send = InternName("opkit.cluster.Send");
  for (size_t process = 0; process < profiles.size(); ++process)
    for (const ProfileSpan& span : profiles[process].spans) {
      const ProfileMessage& sent = span.message;
      if (sent.from < 0) continue;
      MessageTime& message = all[{sent.plan, sent.channel, sent.number, sent.from, sent.to}];
      const bool is_send = span.name == send;
      (is_send ? message.send : message.receive) = &span;
      (is_send ? message.from : message.to) = static_cast<int>(process);
    }
  std::vector<MessageTime> messages;
  for (auto& [key, message] : all) {
    if (!message.send || !message.receive) continue;
    const std::string node = InternedName(message.send->node);
    message.value = node.substr(0, node.rfind(StrCat(" to process ", message.send->message.to)));
    if (node.empty()) message.value = StrCat("channel ", message.send->message.channel);
    messages.push_back(std::move(message));
  }
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.from, a.send->begin) < std::pair(b.from, b.send->begin);
  });
  return messages;
}

OPKIT_INLINE Profile MergedProfile(const std::vector<Profile>& profiles) {
  Profile merged;
  for (size_t process = 0; process < profiles.size(); ++process) {
    const Profile& one = profiles[process];
    const int first = static_cast<int>(merged.threads.size());
    const auto name = [&](std::string_view own) { return StrCat("process ", process, ": ", own); };
    for (const ProfileThread& thread : one.threads)
      merged.threads.push_back({thread.id, name(thread.name)});
    for (ProfileSpan span : one.spans) {
      span.thread += first;
      if (span.pusher >= 0) span.pusher += first;
      merged.spans.push_back(span);
    }
    for (const ProfileCounter& counter : one.counters)
      merged.counters.push_back(
          {counter.time, InternName(name(InternedName(counter.name))), counter.value});
    for (ProfileMarker marker : one.markers) {
      marker.thread += first;
      merged.markers.push_back(marker);
    }
    merged.duration = (std::max)(merged.duration, one.duration);
    merged.dropped += one.dropped;
  }
  const auto by_time = [](const auto& a, const auto& b) { return a.time < b.time; };
  std::stable_sort(merged.counters.begin(), merged.counters.end(), by_time);
  std::stable_sort(merged.markers.begin(), merged.markers.end(), by_time);
  return merged;
}

OPKIT_INLINE void SaveClusterTrace(const std::vector<Profile>& profiles, const std::string& path) {
  std::vector<TraceProcess> processes;
  for (size_t i = 0; i < profiles.size(); ++i)
    processes.push_back({StrCat("process ", i), &profiles[i]});
  std::vector<TraceArrow> arrows;
  for (const MessageTime& message : MessagesOf(profiles))
    arrows.push_back({message.send->id,
                      message.value,
                      {detail::Index(message.from), message.send->thread, message.send->begin},
                      {detail::Index(message.to), message.receive->thread,
                       (std::max)(message.receive->end, message.receive->completed)}});
  SaveChromeTrace(processes, arrows, path);
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_

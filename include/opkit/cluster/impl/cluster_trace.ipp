// Definitions of the trace of all processes: ping-pong, profiles as bytes, and messages.
#ifndef OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_
#define OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_

#include <algorithm>
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
inline std::string ClockMark(int process, int64_t ns) {
  return StrCat(kClockMark, process, ": ", ns, " ns");
}

// Writes the records of a profile as bytes, with names as text, or reads them.
class ProfileBytes {
 public:
  // Returns the bytes of the threads, spans, counters and markers that `keeps` accepts.
  template <class Keeps>
  static std::string Write(const Profile& profile, Keeps keeps) {
    ProfileBytes bytes;
    Profile part;
    part.threads = profile.threads;
    part.dropped = profile.dropped;
    for (const ProfileSpan& span : profile.spans)
      if (keeps(span)) part.spans.push_back(span);
    part.counters = profile.counters;
    part.markers = profile.markers;
    bytes.Pass(part);
    return std::move(bytes.out_);
  }
  static Profile Read(std::string_view text) {
    ProfileBytes bytes;
    bytes.in_ = text;
    bytes.is_reading_ = true;
    Profile profile;
    bytes.Pass(profile);
    return profile;
  }

 private:
  template <class T>
  void Number(T& value) {
    if (is_reading_) {
      OPKIT_ASSERT(in_.size() >= sizeof value);
      std::memcpy(&value, in_.data(), sizeof value);
      in_.remove_prefix(sizeof value);
    } else {
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  void Text(std::string& text) {
    uint64_t size = text.size();
    Number(size);
    if (!is_reading_) {
      out_ += text;
      return;
    }
    OPKIT_ASSERT(in_.size() >= size);
    text = in_.substr(0, size);
    in_.remove_prefix(size);
  }
  // A name is written as text where it comes first, and as its place among the names afterwards.
  void Name(uint32_t& name) {
    uint32_t place = 0;
    if (!is_reading_)
      place = places_.try_emplace(name, static_cast<uint32_t>(places_.size())).first->second;
    const size_t known = is_reading_ ? names_.size() : num_written_;
    Number(place);
    if (place == known) {
      std::string text = is_reading_ || name == 0 ? "" : InternedName(name);
      bool is_none = name == 0;
      Number(is_none);
      Text(text);
      ++num_written_;
      if (is_reading_) names_.push_back(is_none ? 0 : InternName(text));
    }
    if (is_reading_) name = names_[place];
  }
  template <class List, class F>
  void ForEach(List& list, F pass) {
    uint64_t size = list.size();
    Number(size);
    list.resize(size);
    for (auto& each : list) pass(each);
  }
  void Pass(Profile& profile) {
    ForEach(profile.threads, [&](ProfileThread& thread) {
      Number(thread.id);
      Text(thread.name);
    });
    ForEach(profile.spans, [&](ProfileSpan& span) {
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
      for (uint64_t* count : {&span.work.flops, &span.work.bytes}) Number(*count);
      for (bool* flag : {&span.adopted, &span.open}) Number(*flag);
    });
    ForEach(profile.counters, [&](ProfileCounter& counter) {
      Number(counter.time);
      Name(counter.name);
      Number(counter.value);
    });
    ForEach(profile.markers, [&](ProfileMarker& marker) {
      Number(marker.time);
      Name(marker.name);
      Number(marker.thread);
      Number(marker.frame);
    });
    Number(profile.dropped);
  }

  bool is_reading_ = false;
  std::string out_;
  std::string_view in_;
  std::map<uint32_t, uint32_t> places_;
  uint32_t num_written_ = 0;
  std::vector<uint32_t> names_;
};

// Returns the time of process 0 at the begin of the session, which AlignClocks has marked.
inline std::optional<int64_t> SessionBegin(const Profile& profile, int process) {
  std::optional<int64_t> begin;
  for (const ProfileMarker& marker : profile.markers) {
    const std::string text = InternedName(marker.name);
    JsonLineReader reader(text);
    int64_t number = -1, ns = 0;
    if (reader.Skip(kClockMark) && reader.ReadInteger(&number) && reader.Skip(": ") &&
        reader.ReadInteger(&ns) && number == process)
      begin = ns - marker.time;
  }
  return begin;
}
// In a LocalCluster: true for the spans below those of the process's own thread.
class SpansOfProcess {
 public:
  SpansOfProcess(const Profile& profile, const Communicator& communicator)
      : is_local_(communicator.backend() == "local"),
        name_(StrCat("process ", communicator.process())),
        profile_(profile) {
    for (const ProfileSpan& span : profile.spans)
      if (!span.adopted) by_id_.emplace(span.id, &span);
  }
  bool operator()(const ProfileSpan& span) const {
    if (!is_local_) return true;
    const ProfileSpan* root = &span;
    for (auto found = by_id_.find(span.parent); found != by_id_.end();
         found = by_id_.find(root->parent))
      root = found->second;
    if (root->adopted)
      if (const auto whole = by_id_.find(root->id); whole != by_id_.end()) root = whole->second;
    return profile_.threads[Index(root->thread)].name == name_;
  }

 private:
  const bool is_local_;
  const std::string name_;
  const Profile& profile_;
  std::map<uint64_t, const ProfileSpan*> by_id_;
};

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
  const int process = communicator.process();
  ProfileMark(detail::ClockMark(process, now() - offsets[detail::Index(process)].offset));
  return offsets;
}

OPKIT_INLINE std::vector<Profile> GatherProfiles(Communicator& communicator,
                                                 const Profile& profile) {
  const int own = communicator.process();
  std::string text;
  if (const auto begin = detail::SessionBegin(profile, own)) {
    text.assign(reinterpret_cast<const char*>(&*begin), sizeof *begin);
    text += detail::ProfileBytes::Write(profile, detail::SpansOfProcess(profile, communicator));
  }
  const std::vector<std::string> texts = communicator.Exchange(text);
  for (size_t process = 0; process < texts.size(); ++process)
    if (texts[process].empty())
      Throw(ErrorCode::kFailedPrecondition, "the profile of process ", process,
            " cannot be aligned; call AlignClocks on all processes in the profiler's session");
  if (own != 0) return {};
  std::vector<Profile> profiles;
  std::vector<int64_t> begins;
  for (const std::string& each : texts) {
    std::memcpy(&begins.emplace_back(), each.data(), sizeof(int64_t));
    profiles.push_back(detail::ProfileBytes::Read(std::string_view(each).substr(sizeof(int64_t))));
  }
  const int64_t first = *std::min_element(begins.begin(), begins.end());
  for (size_t process = 0; process < profiles.size(); ++process)
    detail::Shift(profiles[process], begins[process] - first, static_cast<int>(process));
  return profiles;
}

OPKIT_INLINE std::vector<MessageTime> MessagesOf(const std::vector<Profile>& profiles) {
  constexpr std::string_view kTo = " to process ", kFrom = " from process ";
  // By sender, receiver and value: the runs of Send, or Recv, in the order of time.
  std::map<std::tuple<int, int, std::string>, std::vector<const ProfileSpan*>> sends, receives;
  const uint32_t send = InternName("opkit.cluster.Send"),
                 receive = InternName("opkit.cluster.Recv");
  for (size_t i = 0; i < profiles.size(); ++i)
    for (const ProfileSpan& span : profiles[i].spans) {
      if (span.adopted || (span.name != send && span.name != receive)) continue;
      const bool is_send = span.name == send;
      const std::string node = InternedName(span.node);
      const size_t at = node.rfind(is_send ? kTo : kFrom);
      if (at == node.npos) continue;  // a message of the graph's author, without such a name
      const int here = static_cast<int>(i);
      detail::JsonLineReader number(
          std::string_view(node).substr(at + (is_send ? kTo : kFrom).size()));
      int64_t there = -1;
      if (!number.ReadInteger(&there)) continue;
      const int other = static_cast<int>(there);
      (is_send ? sends
               : receives)[{is_send ? here : other, is_send ? other : here, node.substr(0, at)}]
          .push_back(&span);
    }
  const auto sort = [](std::vector<const ProfileSpan*>& spans) {
    std::sort(spans.begin(), spans.end(),
              [](const ProfileSpan* a, const ProfileSpan* b) { return a->begin < b->begin; });
  };
  std::vector<MessageTime> messages;
  for (auto& [way, runs] : sends) {
    std::vector<const ProfileSpan*>& arrivals = receives[way];
    sort(runs);
    sort(arrivals);
    for (size_t i = 0; i < (std::min)(runs.size(), arrivals.size()); ++i)
      messages.push_back(
          {std::get<2>(way), std::get<0>(way), std::get<1>(way), runs[i], arrivals[i]});
  }
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.from, a.send->begin) < std::pair(b.from, b.send->begin);
  });
  return messages;
}

OPKIT_INLINE void SaveClusterTrace(const std::vector<Profile>& profiles, const std::string& path) {
  std::vector<TraceProcess> processes;
  for (size_t i = 0; i < profiles.size(); ++i)
    processes.push_back({StrCat("process ", i), &profiles[i]});
  std::vector<TraceArrow> arrows;
  for (const MessageTime& message : MessagesOf(profiles))
    arrows.push_back(
        {message.value,
         {detail::Index(message.from), message.send->thread, message.send->begin},
         {detail::Index(message.to), message.receive->thread, message.receive->begin}});
  SaveChromeTrace(processes, arrows, path);
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_CLUSTER_TRACE_IPP_

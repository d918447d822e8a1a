// ProfileDecoder: makes a Profile of the records of a profiler session.
#ifndef OPKIT_PROFILE_RECORDING_DECODER_HPP_
#define OPKIT_PROFILE_RECORDING_DECODER_HPP_

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "opkit/base/algorithm.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/recording/record.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Takes the records of all threads, one thread after the other, and the records of a thread in
// their order. Has one function for each type of record. Records that add a fact to a span are kept
// until Finish, since the span may be on a thread that comes later.
class ProfileDecoder {
 public:
  // Begin of the session on both clocks, and its end, or the current time if it still runs.
  struct Clock {
    uint64_t start_ticks;
    int64_t start_ns;
    uint64_t end_ticks;
    double ns_per_tick;
    // Returns the ns since the session began.
    int64_t Time(uint64_t ticks) const {
      return static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - start_ticks)) *
                                  ns_per_tick);
    }
  };

  explicit ProfileDecoder(const Clock& clock) : clock_(clock) {}

  void BeginThread(const ProfileThread& thread) {
    profile_.threads.push_back(thread);
    last_ = clock_.end_ticks;
  }
  void Add(std::span<const ProfileRecord> records) {
    for (const ProfileRecord& record : records) Decode(record);
  }
  // Ends the thread's open spans at its last record, or at the end of the session.
  void EndThread() {
    for (const size_t place : std::exchange(open_, {})) {
      profile_.spans[place].end = clock_.Time(last_);
      profile_.spans[place].open = true;
    }
  }
  // Adds what the kept records say about spans to those spans, and sorts the profile's lists.
  Profile Finish() {
    profile_.duration = clock_.Time(clock_.end_ticks);
    ApplyFacts();
    NameAdopted();
    AddMemoryCounters();
    for (const auto& [id, sum] : counts_) profile_.counts.push_back(sum);
    Sort();
    return std::move(profile_);
  }

 private:
  // A record about the invocation `id`, and the index of the thread that wrote it.
  struct Fact {
    uint64_t id;
    ProfileRecord record;
    int thread;
  };

  void Decode(const ProfileRecord& record) {
    switch (record.type()) {
      case RecordType::kSpan:
      case RecordType::kAdopted:
        return Decode(record.span);
      case RecordType::kCompleted:
        return AddFact(record.completed.id, record);
      case RecordType::kOnDevice:
        return AddFact(record.on_device.id, record);
      case RecordType::kPushed:
        AddFact(record.pushed.id, record);
        facts_.back().record.pushed.name = NameOf(record.pushed.name);
        return;
      case RecordType::kWork:
        return AddFact(record.work.id, record);
      case RecordType::kMessage:
        return AddFact(record.message.id, record);
      case RecordType::kCounter:
        return Decode(record.counter);
      case RecordType::kMarker:
        return Decode(record.marker);
      case RecordType::kMemory:
        return Decode(record.memory);
      case RecordType::kCounts:
        return Decode(record.counts);
      case RecordType::kText:
        return Decode(record.text);
    }
  }
  void Decode(const SpanRecord& record) {
    const uint64_t end = record.EndOrZero();
    if (end == 0) open_.push_back(profile_.spans.size());
    last_ = (std::max)({last_, record.begin, end});
    ProfileSpan& span = profile_.spans.emplace_back();
    span.id = record.id;
    span.parent = record.parent;
    span.begin = clock_.Time(record.begin);
    span.end = clock_.Time(end);
    span.thread = Thread();
    span.kind = record.kind;
    span.device = {static_cast<DeviceType>(record.device_type), record.device_index};
    span.name = NameOf(record.name);
    span.node = record.node;
    span.custom = record.custom;
    span.adopted = record.type == RecordType::kAdopted;
  }
  void Decode(const CounterRecord& record) {
    profile_.counters.push_back({clock_.Time(record.time), NameOf(record.name), record.value});
  }
  void Decode(const MarkerRecord& record) {
    profile_.markers.push_back(
        {clock_.Time(record.time), NameOf(record.name), Thread(), record.frame});
  }
  void Decode(const MemoryRecord& record) {
    profile_.allocations.push_back({clock_.Time(record.time), record.id, record.bytes, record.live,
                                    record.allocator, Thread()});
  }
  void Decode(const CountsRecord& record) {
    ProfileCounts& sum = counts_[record.id];
    sum.invocation = record.id;
    for (size_t i = 0; i < 3; ++i) sum.values[record.first + i] += record.values[i];
  }
  void Decode(const TextRecord& record) {
    text_.append(record.text, strnlen(record.text, TextRecord::kBytes));
  }
  void AddFact(uint64_t id, const ProfileRecord& record) {
    facts_.push_back({id, record, Thread()});
  }

  // Each AddTo adds the fact of one type of record to a span of its invocation.
  void AddTo(ProfileSpan& span, const CompletedRecord& record) const {
    const int64_t time = clock_.Time(record.time);
    if (!span.adopted && time > span.end) span.completed = time;
  }
  void AddTo(ProfileSpan& span, const OnDeviceRecord& record) const {
    if (span.adopted) return;
    // Clamped to the session's begin, because the comparison of the two clocks has some error.
    span.device_begin = (std::max)(record.begin - clock_.start_ns, int64_t{0});
    span.device_end = span.device_begin + (record.end - record.begin);
  }
  void AddTo(ProfileSpan& span, const PushedRecord& record, int pusher) const {
    if (span.name == 0) span.name = record.name;
    span.pushed = clock_.Time(record.time);
    span.pusher = pusher;
  }
  void AddTo(ProfileSpan& span, const WorkRecord& record) const {
    if (!span.adopted && record.shapes != 0)
      span.work = {record.shapes, record.flops, record.bytes, record.backend};
  }
  void AddTo(ProfileSpan& span, const MessageRecord& record) const {
    if (!span.adopted)
      span.message = {record.from, record.to, record.plan, record.channel, record.number};
  }

  // Adds a fact to the span of its invocation.
  void Apply(const Fact& fact, ProfileSpan& span) const {
    switch (fact.record.type()) {
      case RecordType::kCompleted:
        return AddTo(span, fact.record.completed);
      case RecordType::kOnDevice:
        return AddTo(span, fact.record.on_device);
      case RecordType::kPushed:
        return AddTo(span, fact.record.pushed, fact.thread);
      case RecordType::kWork:
        return AddTo(span, fact.record.work);
      case RecordType::kMessage:
        return AddTo(span, fact.record.message);
      default:
        return;
    }
  }
  void ApplyFacts() {
    if (facts_.empty()) return;
    std::sort(facts_.begin(), facts_.end(),
              [](const Fact& a, const Fact& b) { return a.id < b.id; });
    for (ProfileSpan& span : profile_.spans)
      for (const Fact& fact : std::ranges::equal_range(facts_, span.id, {}, &Fact::id))
        Apply(fact, span);
  }
  // Gives a nameless part of an invocation the names of the invocation's own span.
  void NameAdopted() {
    const auto is_nameless = [](const ProfileSpan& span) { return span.adopted && span.name == 0; };
    std::map<uint64_t, SpanNames> names;  // by invocation
    for (const ProfileSpan& span : profile_.spans)
      if (is_nameless(span)) names.try_emplace(span.id);
    if (names.empty()) return;
    for (const ProfileSpan& span : profile_.spans)
      if (const auto found = names.find(span.id); found != names.end() && !span.adopted)
        found->second = {span.name, span.node};
    for (ProfileSpan& span : profile_.spans)
      if (is_nameless(span)) {
        span.name = names[span.id].name;
        span.node = names[span.id].node;
      }
  }
  void AddMemoryCounters() {
    std::map<uint32_t, uint32_t> counters;  // counter's name by allocator's name
    for (const ProfileAllocation& one : profile_.allocations) {
      uint32_t& counter = counters[one.allocator];
      if (counter == 0) counter = InternName("memory of " + InternedName(one.allocator));
      profile_.counters.push_back({one.time, counter, static_cast<double>(one.live)});
    }
  }
  void Sort() {
    std::sort(profile_.spans.begin(), profile_.spans.end(),
              [](const ProfileSpan& a, const ProfileSpan& b) {
                if (a.thread != b.thread) return a.thread < b.thread;
                if (a.begin != b.begin) return a.begin < b.begin;
                if (a.end != b.end) return a.end > b.end;
                return a.id < b.id;
              });
    const auto by_time = [](const auto& a, const auto& b) { return a.time < b.time; };
    StableSort(profile_.counters, by_time);
    StableSort(profile_.markers, by_time);
    StableSort(profile_.allocations, by_time);
  }

  int Thread() const { return static_cast<int>(profile_.threads.size()) - 1; }
  // Returns the interned name of a record: `name`, or the texts that came before it.
  uint32_t NameOf(uint32_t name) {
    return text_.empty() ? name : InternName(std::exchange(text_, {}));
  }

  const Clock clock_;
  Profile profile_;
  uint64_t last_ = 0;         // ticks of the thread's last record
  std::vector<size_t> open_;  // indices in profile_.spans of the thread's open spans
  std::string text_;          // name of the next record
  std::vector<Fact> facts_;
  std::map<uint64_t, ProfileCounts> counts_;  // by invocation
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_DECODER_HPP_

// Decodes records: one function for each of their types.
#ifndef OPKIT_PROFILE_RECORDING_IMPL_DECODER_IPP_
#define OPKIT_PROFILE_RECORDING_IMPL_DECODER_IPP_

#include <algorithm>
#include <cstring>
#include <utility>

#include "opkit/base/algorithm.hpp"
#include "opkit/profile/recording/decoder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ProfileDecoder::BeginThread(const ProfileThread& thread) {
  profile_.threads.push_back(thread);
  last_ = clock_.end_ticks;
}

OPKIT_INLINE void ProfileDecoder::EndThread() {
  for (const size_t place : std::exchange(open_, {})) {
    profile_.spans[place].end = clock_.Time(last_);
    profile_.spans[place].open = true;
  }
}

OPKIT_INLINE void ProfileDecoder::Add(std::span<const ProfileRecord> records) {
  for (const ProfileRecord& record : records) Decode(record);
}

OPKIT_INLINE void ProfileDecoder::Decode(const ProfileRecord& record) {
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

OPKIT_INLINE void ProfileDecoder::Decode(const SpanRecord& record) {
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
OPKIT_INLINE void ProfileDecoder::Decode(const CounterRecord& record) {
  profile_.counters.push_back({clock_.Time(record.time), NameOf(record.name), record.value});
}
OPKIT_INLINE void ProfileDecoder::Decode(const MarkerRecord& record) {
  profile_.markers.push_back(
      {clock_.Time(record.time), NameOf(record.name), Thread(), record.frame});
}
OPKIT_INLINE void ProfileDecoder::Decode(const MemoryRecord& record) {
  profile_.allocations.push_back(
      {clock_.Time(record.time), record.id, record.bytes, record.live, record.allocator, Thread()});
}
OPKIT_INLINE void ProfileDecoder::Decode(const CountsRecord& record) {
  ProfileCounts& sum = counts_[record.id];
  sum.invocation = record.id;
  for (size_t i = 0; i < 3; ++i) sum.values[record.first + i] += record.values[i];
}
OPKIT_INLINE void ProfileDecoder::Decode(const TextRecord& record) {
  text_.append(record.text, strnlen(record.text, TextRecord::kBytes));
}

OPKIT_INLINE uint32_t ProfileDecoder::NameOf(uint32_t name) {
  return text_.empty() ? name : InternName(std::exchange(text_, {}));
}

// Each AddTo adds the fact of one type of record to a span of its invocation.
inline void AddTo(ProfileSpan& span, const CompletedRecord& record,
                  const ProfileDecoder::Clock& clock) {
  const int64_t time = clock.Time(record.time);
  if (!span.adopted && time > span.end) span.completed = time;
}
inline void AddTo(ProfileSpan& span, const OnDeviceRecord& record,
                  const ProfileDecoder::Clock& clock) {
  if (span.adopted) return;
  // Clamped to the session's begin, because the comparison of the two clocks has some error.
  span.device_begin = (std::max)(record.begin - clock.start_ns, int64_t{0});
  span.device_end = span.device_begin + (record.end - record.begin);
}
inline void AddTo(ProfileSpan& span, const PushedRecord& record, int pusher,
                  const ProfileDecoder::Clock& clock) {
  if (span.name == 0) span.name = record.name;
  span.pushed = clock.Time(record.time);
  span.pusher = pusher;
}
inline void AddTo(ProfileSpan& span, const WorkRecord& record) {
  if (!span.adopted && record.shapes != 0)
    span.work = {record.shapes, record.flops, record.bytes, record.backend};
}

OPKIT_INLINE void ProfileDecoder::Apply(const Fact& fact, ProfileSpan& span) const {
  switch (fact.record.type()) {
    case RecordType::kCompleted:
      return AddTo(span, fact.record.completed, clock_);
    case RecordType::kOnDevice:
      return AddTo(span, fact.record.on_device, clock_);
    case RecordType::kPushed:
      return AddTo(span, fact.record.pushed, fact.thread, clock_);
    case RecordType::kWork:
      return AddTo(span, fact.record.work);
    default:
      return;
  }
}

OPKIT_INLINE void ProfileDecoder::ApplyFacts() {
  if (facts_.empty()) return;
  std::sort(facts_.begin(), facts_.end(), [](const Fact& a, const Fact& b) { return a.id < b.id; });
  for (ProfileSpan& span : profile_.spans)
    for (const Fact& fact : std::ranges::equal_range(facts_, span.id, {}, &Fact::id))
      Apply(fact, span);
}

OPKIT_INLINE void ProfileDecoder::NameAdopted() {
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

OPKIT_INLINE void ProfileDecoder::AddMemoryCounters() {
  std::map<uint32_t, uint32_t> counters;  // counter's name by allocator's name
  for (const ProfileAllocation& one : profile_.allocations) {
    uint32_t& counter = counters[one.allocator];
    if (counter == 0) counter = InternName("memory of " + InternedName(one.allocator));
    profile_.counters.push_back({one.time, counter, static_cast<double>(one.live)});
  }
}

OPKIT_INLINE void ProfileDecoder::Sort() {
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

OPKIT_INLINE Profile ProfileDecoder::Finish() {
  profile_.duration = clock_.Time(clock_.end_ticks);
  ApplyFacts();
  NameAdopted();
  AddMemoryCounters();
  for (const auto& [id, sum] : counts_) profile_.counts.push_back(sum);
  Sort();
  return std::move(profile_);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PROFILE_RECORDING_IMPL_DECODER_IPP_

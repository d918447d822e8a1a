// ProfileRecord: the record that a thread writes for one fact while a profiler session runs. A
// record has a fixed size and a type, which says which struct of the union holds its fields.
// Recorder (recorder.hpp) writes records, ProfileDecoder (decoder.hpp) reads them.
#ifndef OPKIT_PROFILE_RECORDING_RECORD_HPP_
#define OPKIT_PROFILE_RECORDING_RECORD_HPP_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

enum class RecordType : uint8_t {
  kSpan,
  kAdopted,  // a span that is a part of an invocation begun elsewhere
  kCompleted,
  kOnDevice,
  kPushed,
  kCounter,
  kMarker,
  kWork,
  kMemory,
  kCounts,
  kMessage,
  kText
};

// The structs below are the records. `id` and `parent` are ids of invocations, `time`, `begin` and
// `end` raw ticks of the clock, `name` and `node` interned names.
struct SpanRecord {
  RecordType type = RecordType::kSpan;
  Invocation::Kind kind = Invocation::Kind::kNone;
  int8_t device_type = 0, device_index = 0;
  uint32_t name = 0, node = 0, custom = 0;
  uint64_t id = 0, parent = 0;
  uint64_t begin = 0, end = 0;  // `end` is 0 while the span is open

  // Both relaxed: a reader sees the span open or ended, and either was true a moment ago.
  void End(uint64_t now) { std::atomic_ref(end).store(now, std::memory_order_relaxed); }
  uint64_t EndOrZero() const {
    return std::atomic_ref(const_cast<uint64_t&>(end)).load(std::memory_order_relaxed);
  }
};

// The event of the run `id` became terminal.
struct CompletedRecord {
  RecordType type = RecordType::kCompleted;
  uint64_t id = 0, time = 0;
};

// The work of the run `id` was on its device from `begin` to `end`: ns of MonotonicNs, not ticks.
struct OnDeviceRecord {
  RecordType type = RecordType::kOnDevice;
  uint64_t id = 0;
  int64_t begin = 0, end = 0;
};

// The thread pushed the task `id` to an engine.
struct PushedRecord {
  RecordType type = RecordType::kPushed;
  uint32_t name = 0;
  uint64_t id = 0, time = 0;
};

struct CounterRecord {
  RecordType type = RecordType::kCounter;
  uint32_t name = 0;
  uint64_t time = 0;
  double value = 0;
};

struct MarkerRecord {
  RecordType type = RecordType::kMarker;
  bool frame = false;
  uint32_t name = 0;
  uint64_t time = 0;
};

// The work of the run `id`; shapes and backend are interned names.
struct WorkRecord {
  RecordType type = RecordType::kWork;
  uint32_t shapes = 0, backend = 0;
  uint64_t id = 0, flops = 0, bytes = 0;
};

// Memory was allocated, or released if `bytes` is negative, while the invocation `id` ran. The
// allocator then has `live` bytes in use.
struct MemoryRecord {
  RecordType type = RecordType::kMemory;
  uint32_t allocator = 0;
  uint64_t id = 0, time = 0;
  int64_t bytes = 0, live = 0;
};

// Three of the session's counts, from number `first` on, of one span of the invocation `id`.
struct CountsRecord {
  RecordType type = RecordType::kCounts;
  uint8_t first = 0;
  uint64_t id = 0;
  uint64_t values[3] = {};
};

// The run `id` sent or received a message: see ProfileMessage.
struct MessageRecord {
  RecordType type = RecordType::kMessage;
  int32_t from = 0, to = 0;
  uint64_t id = 0;
  int64_t plan = 0, channel = 0, number = 0;
};

// A part of a name without an interned number. The parts stand before the record that has the name.
struct TextRecord {
  static constexpr size_t kBytes = 44;
  RecordType type = RecordType::kText;
  char text[kBytes] = {};  // padded with zeros
};

union ProfileRecord {
  SpanRecord span = {};
  CompletedRecord completed;
  OnDeviceRecord on_device;
  PushedRecord pushed;
  CounterRecord counter;
  MarkerRecord marker;
  WorkRecord work;
  MemoryRecord memory;
  CountsRecord counts;
  MessageRecord message;
  TextRecord text;

  // Every struct begins with the type, so that any of them can read it.
  RecordType type() const { return span.type; }
};
static_assert(sizeof(ProfileRecord) == 48 && std::is_trivially_copyable_v<ProfileRecord>);

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_RECORD_HPP_

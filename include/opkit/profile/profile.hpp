// Profile: what was recorded while a profiler ran, decoded. Traces, tables and reports are made of
// it.
#ifndef OPKIT_PROFILE_PROFILE_HPP_
#define OPKIT_PROFILE_PROFILE_HPP_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "opkit/core/device.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit::inline OPKIT_ABI {

// A time on one thread that belongs to an invocation. All times are ns since the session began.
struct ProfileSpan {
  uint64_t id = 0;      // of the invocation
  uint64_t parent = 0;  // 0 for none
  int64_t begin = 0;
  int64_t end = 0;
  int64_t completed = -1;  // when the event of its run ended, where that was after `end`
  // From when to when its work was on the device, by the device's clock; -1 where that is not
  // known. `completed` is when the host learnt of the end.
  int64_t device_begin = -1;
  int64_t device_end = -1;
  int64_t pushed = -1;  // when a task was handed to its engine
  int thread = 0;       // index in Profile::threads
  int pusher = -1;      // the thread that pushed the task
  InvocationKind kind = InvocationKind::kNone;
  Device device;
  // Interned names: of the operator's type, task or scope; of the node; Invocation::custom.
  uint32_t name = 0;
  uint32_t node = 0;
  uint32_t custom = 0;
  bool adopted = false;  // a part, on this thread, of an invocation that began elsewhere
  bool open = false;     // it had not ended when the profile was read: `end` is that time
  SpanWork work;         // with ProfileOptions::shapes; shapes 0: not known
};

// An allocation, or a release, of tensors' memory.
struct ProfileAllocation {
  int64_t time = 0;
  uint64_t invocation = 0;  // that it happened in; 0 for none
  int64_t bytes = 0;        // negative for a release
  int64_t live = 0;         // bytes of the allocator afterwards
  uint32_t allocator = 0;   // its interned name
  int thread = 0;
};

// What was counted while an invocation ran, on all of its threads; the spans inside it included.
struct ProfileCounts {
  static constexpr int kMost = 6;
  uint64_t invocation = 0;
  uint64_t values[kMost] = {};  // of Profile::counted
};

struct ProfileCounter {
  int64_t time = 0;
  uint32_t name = 0;
  double value = 0;
};

struct ProfileMarker {
  int64_t time = 0;
  uint32_t name = 0;
  int thread = 0;
  bool frame = false;  // a frame of the program begins
};

struct ProfileThread {
  int64_t id = 0;  // the system's
  std::string name;
};

struct Profile {
  std::vector<ProfileThread> threads;
  // By thread, then by begin; a span that encloses others comes before them.
  std::vector<ProfileSpan> spans;
  // By time; the live bytes of an allocator are a counter "memory of cpu".
  std::vector<ProfileCounter> counters;
  std::vector<ProfileMarker> markers;          // by time
  std::vector<ProfileAllocation> allocations;  // by time, with ProfileOptions::memory
  std::vector<ProfileCounts> counts;           // by invocation, with ProfileOptions::counters
  std::vector<std::string> counted;            // the names of their values
  std::vector<std::string> absent_counters;    // those that are 0 everywhere: "cycles: why"
  int64_t duration = 0;                        // ns from Start to Stop, or to now
  int64_t dropped = 0;  // records that found no room, or gave theirs to later ones
  int64_t cost = 0;  // ns that recording took of all threads: of each record as much as of a span
};

// ns that its run took: on the device where that is known, else until it and its event had ended.
inline int64_t RunTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return span.device_end - span.device_begin;
  return (span.completed > span.end ? span.completed : span.end) - span.begin;
}
// What a span is called: "MyOp", "MyOp::Add" for an operator that the custom operator MyOp invokes,
// "MyOp::scope" for a scope of its author's.
std::string DisplayName(const ProfileSpan& span);
// "Custom Operators" for these and what runs inside them; else "operator", "user", "converter",
// "copy", "run", "task", "phase" or "engine".
const char* DomainOf(const ProfileSpan& span);

namespace detail {
// From when to when what a span has issued went on: on its device where that is known, else from
// its begin until its event had ended. {-1, -1} where nothing went on after it.
inline std::pair<int64_t, int64_t> AsynchronousTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return {span.device_begin, span.device_end};
  return {span.completed >= 0 ? span.begin : -1, span.completed};
}
// Whether the times of the span in which none of its children runs are its author's code.
inline bool HasUserCode(const ProfileSpan& span) {
  return span.kind == InvocationKind::kCustomOperator && !span.adopted;
}
std::string UserCodeName(const ProfileSpan& span);
}  // namespace detail

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_HPP_

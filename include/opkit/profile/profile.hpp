// Profile: the decoded recording of a profiler, from which traces, tables and reports are written.
#ifndef OPKIT_PROFILE_PROFILE_HPP_
#define OPKIT_PROFILE_PROFILE_HPP_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "opkit/core/device.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The identity of a message between processes, the same on its sender and on its receiver. The span
// of a run of several processes has the plan and the number of the run, without a message.
struct ProfileMessage {
  int from = -1, to = -1;  // processes of the plan; -1 for no message
  int64_t plan = 0;        // the same on the processes that run a plan together, and on no others
  int64_t channel = 0;     // among the messages from one process to the other
  int64_t number = 0;      // the run of the plan
};

// A period on one thread that belongs to an invocation. Times are ns since the session began.
struct ProfileSpan {
  uint64_t id = 0;      // the invocation's id
  uint64_t parent = 0;  // 0 for none
  int64_t begin = 0;
  int64_t end = 0;
  int64_t completed = -1;  // time when the run's event completed, if after `end`; else -1
  // Begin and end of the work on the device, by the device's clock; -1 if unknown. `completed` is
  // the time when the host learned of the end.
  int64_t device_begin = -1;
  int64_t device_end = -1;
  int64_t pushed = -1;  // time at which a task was pushed to its engine; -1 for no task
  int thread = 0;       // index in Profile::threads
  int pusher = -1;      // index of the thread that pushed the task; -1 for no task
  Invocation::Kind kind = Invocation::Kind::kNone;
  Device device;
  // Interned names: the operator's type, the task or scope; the node; Invocation::custom.
  uint32_t name = 0;
  uint32_t node = 0;
  uint32_t custom = 0;
  bool adopted = false;    // true for a part of an invocation that began elsewhere
  bool open = false;       // true if the span had not ended; `end` is then the time of Stop or Read
  detail::SpanWork work;   // set with ProfileOptions::shapes; its `shapes` is 0 if unknown
  ProfileMessage message;  // that the span sent or received, with success
};

// An allocation, or a release, of tensors' memory.
struct ProfileAllocation {
  int64_t time = 0;
  uint64_t invocation = 0;  // the running invocation; 0 for none
  int64_t bytes = 0;        // negative for a release
  int64_t live = 0;         // bytes of the allocator in use afterwards
  uint32_t allocator = 0;   // interned name of the allocator
  int thread = 0;
};

// Counts during an invocation: the sum over all of its threads, including the spans inside it.
struct ProfileCounts {
  static constexpr int kMost = 6;
  uint64_t invocation = 0;
  uint64_t values[kMost] = {};  // in the order of Profile::counted
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
  bool frame = false;  // true if a frame of the program begins here
};

struct ProfileThread {
  int64_t id = 0;  // the system's thread id
  std::string name;
};

struct Profile {
  std::vector<ProfileThread> threads;
  // Sorted by thread, then by begin; a span that encloses others comes before them.
  std::vector<ProfileSpan> spans;
  // Sorted by time. Includes the bytes in use of each allocator, as in "memory of cpu".
  std::vector<ProfileCounter> counters;
  std::vector<ProfileMarker> markers;          // sorted by time
  std::vector<ProfileAllocation> allocations;  // sorted by time, with ProfileOptions::memory
  std::vector<ProfileCounts> counts;  // sorted by invocation, with ProfileOptions::counters
  std::vector<std::string> counted;   // names of the values in `counts`
  // Counters that read 0 everywhere, with the reason: "cycles: why".
  std::vector<std::string> absent_counters;
  int64_t duration = 0;  // ns from Start to Stop, or to now
  int64_t dropped = 0;   // records that found no room, or that later records replaced
  // Estimated ns that all threads spent on recording. Each record counts as much as a span.
  int64_t cost = 0;
};

// Returns the ns of a run: the time on the device if known, else the time until the span and its
// event had ended.
inline int64_t RunTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return span.device_end - span.device_begin;
  return (span.completed > span.end ? span.completed : span.end) - span.begin;
}
// Returns the name that tables and traces display: "MyOp", "MyOp::Add" for an operator that the
// custom operator MyOp invokes, "MyOp::scope" for a scope that its author opened.
std::string DisplayName(const ProfileSpan& span);
// Returns the domain of a span: "engine" for engine spans, "Custom Operators" for custom operators
// and spans inside them, else "operator", "user", "converter", "copy", "run", "task" or "phase".
const char* DomainOf(const ProfileSpan& span);

namespace detail {
// Returns begin and end of the work that a span issued: on its device if known, else from the
// span's begin to the end of its event. {-1, -1} if no work continued after the span.
inline std::pair<int64_t, int64_t> AsynchronousTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return {span.device_begin, span.device_end};
  return {span.completed >= 0 ? span.begin : -1, span.completed};
}
// True if a custom operator's own code runs in the span while none of its children runs.
inline bool HasUserCode(const ProfileSpan& span) {
  return span.kind == Invocation::Kind::kCustomOperator && !span.adopted;
}
std::string UserCodeName(const ProfileSpan& span);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_HPP_

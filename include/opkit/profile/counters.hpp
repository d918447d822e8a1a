// What the processor and the system count on a thread: cycles, cache misses, page faults. A profile
// tells how many of them a span took (ProfileOptions::counters).
#ifndef OPKIT_PROFILE_COUNTERS_HPP_
#define OPKIT_PROFILE_COUNTERS_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// The counters of one thread, from their opening on.
class ThreadCounters {
 public:
  virtual ~ThreadCounters() = default;
  // What was counted until now, by the thread that opened them: a number for each name.
  virtual void Read(uint64_t* values) noexcept = 0;
};

// Where counters come from. Lasts as long as the process.
class CounterSource {
 public:
  // Begins to count on the calling thread. A counter that is not to be had is 0 and is added to
  // `absent` with the reason, where that is given. Error (kInvalidArgument) for an unknown name.
  virtual std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                               std::vector<std::string>* absent) = 0;

 protected:
  ~CounterSource() = default;
};

// Those of Linux (perf_event_open(2)): "cycles", "instructions", "cache_references",
// "cache_misses", "branches", "branch_misses", "page_faults", "context_switches", "cpu_migrations"
// and "task_clock" (ns), without the kernel's part where the system allows no other. A processor
// that has fewer counters than are asked for counts them in turns: the numbers are scaled.
CounterSource& PerfCounters();

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/counters.ipp"
#endif

#endif  // OPKIT_PROFILE_COUNTERS_HPP_

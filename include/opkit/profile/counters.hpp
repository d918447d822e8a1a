// Counts what the processor and the system do on a thread: cycles, cache misses, page faults. The
// profiler records these counts for each span (ProfileOptions::counters), CompareKernels for each
// kernel.
#ifndef OPKIT_PROFILE_COUNTERS_HPP_
#define OPKIT_PROFILE_COUNTERS_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Counters of one thread, which count from CounterSource::Open on.
class ThreadCounters {
 public:
  virtual ~ThreadCounters() = default;
  // Writes the counts so far of the threads that count: a number for each name given to Open, in
  // their order.
  virtual void Read(uint64_t* values) noexcept = 0;
};

// A provider of counters. Lives as long as the process.
class CounterSource {
 public:
  // The threads that count.
  enum class Threads : uint8_t {
    kThis,        // the thread that calls Open
    kThisAndNew,  // also the threads that it starts from then on, and those that they start
  };
  // Begins to count on the calling thread. A counter that is not available reads as 0; its name and
  // the reason are appended to `absent` unless that is null. Throws kInvalidArgument for an unknown
  // name.
  virtual std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                               std::vector<std::string>* absent,
                                               Threads threads = Threads::kThis) = 0;

 protected:
  ~CounterSource() = default;
};

// Returns the counters of Linux (perf_event_open(2)): "cycles", "instructions", "cache_references",
// "cache_misses", "branches", "branch_misses", "page_faults", "context_switches", "cpu_migrations"
// and "task_clock" (ns). They leave out the kernel's part if the system forbids to count it;
// "context_switches" and "cpu_migrations" happen in the kernel alone, and are then absent. With
// kThisAndNew the counters of the hardware count the program's part only, on every machine. A
// processor with fewer counters than requested counts them in turns; the numbers are then scaled.
CounterSource& PerfCounters();

namespace detail {
// Returns the reason for an error of perf_event_open.
std::string WhyNotCounted(int error);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/counters.ipp"
#endif

#endif  // OPKIT_PROFILE_COUNTERS_HPP_

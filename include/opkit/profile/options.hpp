// ProfileOptions: what a profiler records, and how much of it is kept.
#ifndef OPKIT_PROFILE_OPTIONS_HPP_
#define OPKIT_PROFILE_OPTIONS_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/profile/counters.hpp"

namespace opkit::inline OPKIT_ABI {

struct ProfileOptions {
  // Of records, 48 bytes each. What comes when they are used up is dropped and counted, or takes
  // the place of the oldest of its thread where `ring`.
  int64_t max_bytes = int64_t{1} << 30;
  bool ring = false;
  // Dtypes and shapes of operators' inputs, and the operations and bytes that their schemas count.
  // They are found when the operator's span has ended: what is around it grows by a microsecond.
  bool shapes = false;
  // Each allocation and release of tensors' memory, with the operator that it happened in.
  bool memory = false;
  // What the threads of pools do besides: spans "park" of workers that sleep, "wait" of threads
  // that sleep until something has ended, "drain" of Engine::WaitForAll; markers "steal" of tasks
  // that another worker had queued.
  bool engine = false;
  // What is counted during each span, at most six names of PerfCounters(): {"cycles",
  // "cache_misses"}. The span takes some 0.3 us more for each. Profile::absent_counters says which
  // are not to be had.
  std::vector<std::string> counters = {};
  CounterSource* counter_source = nullptr;  // null: PerfCounters()
  // Where a fatal signal, SIGINT, SIGTERM or SIGHUP ends the process while the session runs, what
  // was recorded until then is written there: a Chrome trace, or what ".pftrace" and ".html" at the
  // end of the name ask for. Empty for nowhere. It takes signal handlers, and a stack for them on
  // each thread that records.
  std::string crash_trace = {};
};

}  // namespace opkit

#endif  // OPKIT_PROFILE_OPTIONS_HPP_

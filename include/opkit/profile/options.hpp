// ProfileOptions: the facts that a profiler records, and the memory that it may use for them.
#ifndef OPKIT_PROFILE_OPTIONS_HPP_
#define OPKIT_PROFILE_OPTIONS_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "opkit/profile/counters.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct ProfileOptions {
  // Bound on the memory of records, 48 bytes each. Records beyond it are dropped and counted. With
  // `ring` they replace the oldest records: those of an ended thread or, if there is none, those of
  // the recording thread.
  int64_t max_bytes = int64_t{1} << 30;
  bool ring = false;
  // Records dtypes and shapes of operators' inputs, and the operations and bytes that their schemas
  // count. Computed after the operator's span ends; the enclosing span grows by about 1 us.
  bool shapes = false;
  // Records each allocation and release of tensors' memory, with the operator that was running.
  bool memory = false;
  // Records what pool threads do outside of tasks: spans "park" of workers that sleep, "wait" of
  // threads that sleep until something has ended, "drain" of Engine::WaitForAll; markers "steal" of
  // tasks from another worker's queue.
  bool engine = false;
  // Names of the events to count during each span, at most six; for PerfCounters() for example
  // {"cycles", "cache_misses"}. Each makes a span longer by about 0.3 us. Profile::absent_counters
  // lists the names that are not available.
  std::vector<std::string> counters = {};
  CounterSource* counter_source = nullptr;  // null for PerfCounters()
  // File for the profile if a fault, SIGINT, SIGTERM or another fatal signal ends the process while
  // the session runs; empty for none. The file is a Chrome trace, or a Perfetto trace or a report
  // if its name ends in ".pftrace" or ".html". Installs signal handlers, and a stack for them on
  // each thread that records.
  std::string crash_trace = {};
};

}}  // namespace opkit

#endif  // OPKIT_PROFILE_OPTIONS_HPP_

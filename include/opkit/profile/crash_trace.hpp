// CrashTrace: the trace of a process that a fatal signal ends.
#ifndef OPKIT_PROFILE_CRASH_TRACE_HPP_
#define OPKIT_PROFILE_CRASH_TRACE_HPP_

#include <string>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// From Arm to Disarm, SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT write what the profiler has
// recorded to `path`, and then do what they did before. A signal handler must not allocate memory:
// a thread that waits from the first Arm on writes, and the handler waits for it, at most ten
// seconds, should the thread that has crashed hold a lock which writing needs. For one caller at a
// time. Error (kUnsupported) where the thread cannot be started.
class CrashTrace {
 public:
  static void Arm(const std::string& path);
  static void Disarm();
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/crash_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_CRASH_TRACE_HPP_

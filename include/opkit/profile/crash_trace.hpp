// CrashTrace: the trace of a process that a fatal signal ends.
#ifndef OPKIT_PROFILE_CRASH_TRACE_HPP_
#define OPKIT_PROFILE_CRASH_TRACE_HPP_

#include <string>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// From Arm to Disarm, a signal that ends the process first writes what the profiler has recorded to
// `path` (as WriteProfileFile), and then does what it did before, with the same siginfo_t: a fault
// (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS) whoever handles it; SIGINT, SIGTERM,
// SIGHUP, SIGQUIT, SIGPIPE, SIGALRM and SIGXCPU where nobody handles or ignores them. Threads that
// crash meanwhile wait for the trace. A signal handler must not allocate memory: a thread that
// waits from Arm on writes, and the handlers wait for it, at most ten seconds, should a thread that
// has crashed hold a lock which writing needs. One trace for each Arm, and none of a forked child.
// For one caller at a time. Error (kUnsupported) where the thread cannot be started.
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

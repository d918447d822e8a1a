// CrashTrace: writes the profile of a process that a fatal signal ends. Profiler::Start arms it if
// ProfileOptions::crash_trace names a file.
#ifndef OPKIT_PROFILE_CRASH_TRACE_HPP_
#define OPKIT_PROFILE_CRASH_TRACE_HPP_

#include <string>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// From Arm to Disarm, a signal that ends the process first writes the profile recorded so far to
// `path` (see SaveProfileFile). Then the signal's earlier action follows, with the same siginfo_t.
// Faults (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS) are caught even if the program
// handles them. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM and SIGXCPU are caught only if
// the program neither handles nor ignores them. Threads that crash meanwhile wait for the trace.
// A signal handler must not allocate memory. Therefore a separate thread, which waits from Arm on,
// writes the trace. The handlers wait for it, but at most ten seconds: the crashed thread may hold
// a lock that writing needs. Each Arm leads to at most one trace; a forked child writes none. Arm
// and Disarm must not run at the same time. Throws kUnsupported if the thread cannot be started.
class CrashTrace {
 public:
  static void Arm(const std::string& path);
  static void Disarm();
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/crash_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_CRASH_TRACE_HPP_

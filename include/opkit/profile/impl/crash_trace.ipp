// The handler of fatal signals and the thread that writes for it.
#ifndef OPKIT_PROFILE_IMPL_CRASH_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_CRASH_TRACE_IPP_

#include <csignal>
#include <cstdio>
#include <cstring>

#include "opkit/base/platform.hpp"
#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/crash_trace.hpp"
#include "opkit/profile/recorder.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

struct CrashState {
  std::string path;
  Parker crashed, written;
  struct sigaction before[std::size(kFatalSignals)] = {};
  pid_t process = 0;                 // that has the writing thread
  std::atomic<bool> armed{false};    // relaxed: signal handlers read none of it
  std::atomic<bool> crashes{false};  // relaxed: which of two threads comes first does not matter
};
inline CrashState& Crash() {
  static auto* state = new CrashState;
  return *state;
}

inline void* WriteCrashTrace(void*) {
  SetCurrentThreadName("opkit-crash");
  CrashState& state = Crash();
  state.crashed.Wait();
  try {
    Recorder::Get().Stop();
    WriteChromeTrace(Recorder::Get().Read(), state.path);
    std::fprintf(stderr, "opkit: the profile until the crash is in %s\n", state.path.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "opkit: no profile of the crash: %s\n", failure.what());
  }
  Parker::Wake(state.written.Set());
  return nullptr;
}

// Calls nothing but what a signal handler may.
inline void HandleCrash(int signal) {
  constexpr int64_t kLongestNs = 10'000'000'000;
  CrashState& state = Crash();
  if (state.process == getpid() && !state.crashes.exchange(true, std::memory_order_relaxed)) {
    Parker::Wake(state.crashed.Set());
    state.written.Wait(MonotonicNs() + kLongestNs);
  }
  for (size_t i = 0; i < std::size(kFatalSignals); ++i)
    if (kFatalSignals[i] == signal) sigaction(signal, &state.before[i], nullptr);
  raise(signal);  // comes when the handler has returned
}

OPKIT_INLINE void CrashTrace::Arm(const std::string& path) {
  CrashState& state = Crash();
  if (state.process != getpid()) {
    pthread_t thread;
    if (const int error = pthread_create(&thread, nullptr, &WriteCrashTrace, nullptr))
      Throw(ErrorCode::kUnsupported,
            "ProfileOptions::crash_trace needs a thread: ", std::strerror(error));
    pthread_detach(thread);
    state.process = getpid();
  }
  state.path = path;
  struct sigaction action = {};
  action.sa_handler = &HandleCrash;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kFatalSignals); ++i)
    sigaction(kFatalSignals[i], &action, &state.before[i]);
  state.armed.store(true, std::memory_order_relaxed);
}

OPKIT_INLINE void CrashTrace::Disarm() {
  CrashState& state = Crash();
  if (!state.armed.exchange(false, std::memory_order_relaxed)) return;
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    struct sigaction now = {};
    sigaction(kFatalSignals[i], nullptr, &now);
    if (now.sa_handler == &HandleCrash) sigaction(kFatalSignals[i], &state.before[i], nullptr);
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_CRASH_TRACE_IPP_

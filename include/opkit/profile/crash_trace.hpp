// CrashTrace: writes the profile of a process that a fatal signal ends. Profiler::Start arms it if
// ProfileOptions::crash_trace names a file.
#ifndef OPKIT_PROFILE_CRASH_TRACE_HPP_
#define OPKIT_PROFILE_CRASH_TRACE_HPP_

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/profile_file.hpp"
#include "opkit/profile/recording/recorder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct FatalSignal {
  int number;
  bool is_fault;  // true for a fault of the program, false for a request to end
};
inline constexpr FatalSignal kFatalSignals[] = {
    {SIGSEGV, true},  {SIGBUS, true},   {SIGILL, true},   {SIGFPE, true},   {SIGABRT, true},
    {SIGTRAP, true},  {SIGSYS, true},   {SIGINT, false},  {SIGTERM, false}, {SIGHUP, false},
    {SIGQUIT, false}, {SIGPIPE, false}, {SIGALRM, false}, {SIGXCPU, false}};

// State that the handler shares with one writing thread. Never destroyed: handlers may still wait
// in it.
struct CrashWriter {
  std::string path;
  const pid_t process = getpid();
  Parker crashed, written;
  std::atomic<int64_t> thread{0};    // relaxed: only that thread finds its own id in it
  std::atomic<bool> crashes{false};  // relaxed: which of two threads comes first does not matter
};
// The current writer, and the signals' actions from before Arm.
struct CrashState {
  // Release store and acquire load: a handler sees the complete object.
  std::atomic<CrashWriter*> writer{nullptr};
  struct sigaction before[std::size(kFatalSignals)] = {};
  bool armed = false;
};
inline CrashState& Crash() {
  static auto* state = new CrashState;
  return *state;
}

inline void* WriteCrashTrace(void* argument) {
  CrashWriter& writer = *static_cast<CrashWriter*>(argument);
  SetCurrentThreadName("opkit-crash");
  writer.thread.store(CurrentThreadId(), std::memory_order_relaxed);
  writer.crashed.Wait();
  try {
    Recorder& recorder = Recorder::Global();
    const bool records = recorder.is_running();
    recorder.Pause();  // so that other threads add nothing to the trace
    const std::string path = SaveProfileFile(recorder.Read(), writer.path);
    if (records) recorder.Resume();  // the program's own handler may let the process continue
    std::fprintf(stderr, "opkit: the profile until the crash is in %s\n", path.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "opkit: no profile of the crash: %s\n", failure.what());
  }
  Parker::Wake(writer.written.Set());
  return nullptr;
}

// Handles a fatal signal. Calls only functions that a signal handler may call.
inline void HandleCrash(int signal, siginfo_t* info, void*) {
  constexpr int64_t kLongestNs = 10'000'000'000;
  const int error = errno;
  CrashState& state = Crash();
  CrashWriter* const writer = state.writer.load(std::memory_order_acquire);
  if (writer && writer->process == getpid() &&
      writer->thread.load(std::memory_order_relaxed) != CurrentThreadId()) {
    if (!writer->crashes.exchange(true, std::memory_order_relaxed))
      Parker::Wake(writer->crashed.Set());
    if (writer->written.Wait(MonotonicNs() + kLongestNs))
      Parker::Wake(writer->written.Set());  // wakes the next thread that waits here
  }
  for (size_t i = 0; i < std::size(kFatalSignals); ++i)
    if (kFatalSignals[i].number == signal) sigaction(signal, &state.before[i], nullptr);
  // Sends the same signal again; it arrives when this handler has returned.
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), CurrentThreadId(), signal, info) != 0) raise(signal);
  errno = error;
}

inline bool IsOfCrashTrace(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &HandleCrash;
}

// Returns a writer whose thread has not written yet, and starts one if needed.
inline CrashWriter& WaitingCrashWriter() {
  CrashState& state = Crash();
  // Relaxed: this thread has stored the pointer.
  if (CrashWriter* const made = state.writer.load(std::memory_order_relaxed);
      made && made->process == getpid() && !made->crashes.load(std::memory_order_relaxed))
    return *made;
  auto writer = std::make_unique<CrashWriter>();
  // Block all signals in the new thread: it must not run the handler, which waits for it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, &WriteCrashTrace, writer.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error)
    Throw(ErrorCode::kUnsupported,
          "ProfileOptions::crash_trace needs a thread: ", std::strerror(error));
  pthread_detach(thread);
  state.writer.store(writer.get(), std::memory_order_release);
  return *writer.release();
}

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
  static void Arm(const std::string& path) {
    CrashState& state = Crash();
    WaitingCrashWriter().path = path;
    MakeSignalStack();
    struct sigaction action = {};
    action.sa_sigaction = &HandleCrash;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
      struct sigaction now = {};
      sigaction(kFatalSignals[i].number, nullptr, &now);
      if (IsOfCrashTrace(now)) continue;  // inherited by the child of an armed process
      state.before[i] = now;
      if (!kFatalSignals[i].is_fault && ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL))
        continue;
      sigaction(kFatalSignals[i].number, &action, nullptr);
    }
    state.armed = true;
  }
  static void Disarm() {
    CrashState& state = Crash();
    if (!std::exchange(state.armed, false)) return;
    for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
      struct sigaction now = {};
      sigaction(kFatalSignals[i].number, nullptr, &now);
      if (IsOfCrashTrace(now)) sigaction(kFatalSignals[i].number, &state.before[i], nullptr);
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_CRASH_TRACE_HPP_

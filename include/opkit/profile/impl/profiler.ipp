// Forwards the profiler's functions to the recorder and the writers, and runs the session of
// OPKIT_PROFILE.
#ifndef OPKIT_PROFILE_IMPL_PROFILER_IPP_
#define OPKIT_PROFILE_IMPL_PROFILER_IPP_

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "opkit/base/platform.hpp"
#include "opkit/profile/crash_trace.hpp"
#include "opkit/profile/profile_file.hpp"
#include "opkit/profile/profiler.hpp"
#include "opkit/profile/recording/recorder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The session of the environment variable OPKIT_PROFILE: from the start of the process to its end,
// or until the program begins a session of its own.
class EnvironmentSession {
 public:
  static EnvironmentSession& Global() {
    // In static memory: on the heap, the object of a library would leak when the library is
    // unmapped. Never destroyed.
    alignas(EnvironmentSession) static char room[sizeof(EnvironmentSession)];
    static auto* session = new (room) EnvironmentSession;
    return *session;
  }
  // Starts the session if the environment variable names a file; at most once.
  bool Begin() {
    const char* const asked = std::getenv("OPKIT_PROFILE");
    if (!asked || !*asked) return false;
    if (std::exchange(begun_, true)) return started_;
    path_ = asked;
    for (size_t at = 0; (at = path_.find("%p", at)) != std::string::npos;)
      path_.replace(at, 2, StrCat(process_));
    try {
      Profiler::Start({.crash_trace = path_});
    } catch (const std::exception& error) {  // a static initialiser has begun a session
      std::fprintf(stderr, "opkit: OPKIT_PROFILE: %s\n", error.what());
      return false;
    }
    started_ = unwritten_ = true;
    std::atexit([] { Global().End(); });
    return true;
  }
  // Ends the session and writes its trace, unless that is done. Returns the written file's name, or
  // an empty string if nothing was written. A forked child does not write the file of its parent.
  std::string End() noexcept {
    if (!unwritten_.exchange(false) || process_ != getpid()) return {};
    Profiler::Stop();
    try {
      std::string written = SaveProfileFile(Profiler::Read(), path_);
      if (written != path_)
        std::fprintf(stderr,
                     "opkit: OPKIT_PROFILE: no file of the program includes "
                     "opkit/report/report.hpp: the profile is the trace %s\n",
                     written.c_str());
      return written;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "opkit: OPKIT_PROFILE: %s\n", error.what());
      return {};
    }
  }

 private:
  std::string path_;
  const pid_t process_ = getpid();
  bool begun_ = false, started_ = false;
  std::atomic<bool> unwritten_{false};
};

}  // namespace detail

OPKIT_INLINE void Profiler::Start(const ProfileOptions& options) {
  if (const std::string written = detail::EnvironmentSession::Global().End(); !written.empty())
    std::fprintf(stderr,
                 "opkit: OPKIT_PROFILE: the program begins a profile of its own: %s ends there\n",
                 written.c_str());
  detail::Recorder::Global().Start(options);
  if (options.crash_trace.empty()) return;
  try {
    detail::CrashTrace::Arm(options.crash_trace);
  } catch (...) {
    Stop();
    throw;
  }
}
OPKIT_INLINE void Profiler::Stop() {
  detail::CrashTrace::Disarm();
  detail::Recorder::Global().Stop();
}
OPKIT_INLINE void Profiler::Pause() { detail::Recorder::Global().Pause(); }
OPKIT_INLINE void Profiler::Resume() { detail::Recorder::Global().Resume(); }
OPKIT_INLINE bool Profiler::IsRunning() { return detail::Recorder::Global().is_running(); }
OPKIT_INLINE Profile Profiler::Read() { return detail::Recorder::Global().Read(); }

OPKIT_INLINE void ProfileCount(std::string_view counter, double value) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Count(detail::SpanNames::OfText(counter), value);
}
OPKIT_INLINE void ProfileMark(std::string_view name) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Mark(detail::SpanNames::OfText(name), /*frame=*/false);
}
OPKIT_INLINE void ProfileFrame(std::string_view name) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Mark(detail::SpanNames::OfText(name), /*frame=*/true);
}

OPKIT_INLINE bool detail::ProfileByEnvironment() { return EnvironmentSession::Global().Begin(); }

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILER_IPP_

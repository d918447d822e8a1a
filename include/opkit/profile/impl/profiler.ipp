// The profiler's functions, which the recorder and the writers do.
#ifndef OPKIT_PROFILE_IMPL_PROFILER_IPP_
#define OPKIT_PROFILE_IMPL_PROFILER_IPP_

#include <cstdio>
#include <cstdlib>

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/crash_trace.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/profile/profiler.hpp"
#include "opkit/profile/recorder.hpp"
#include "opkit/profile/report.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE void Profiler::Start(const ProfileOptions& options) {
  detail::Recorder::Get().Start(options);
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
  detail::Recorder::Get().Stop();
}
OPKIT_INLINE void Profiler::Pause() { detail::Recorder::Get().Pause(); }
OPKIT_INLINE void Profiler::Resume() { detail::Recorder::Get().Resume(); }
OPKIT_INLINE bool Profiler::IsRunning() { return detail::Recorder::Get().is_running(); }
OPKIT_INLINE Profile Profiler::Read() { return detail::Recorder::Get().Read(); }
OPKIT_INLINE ProfileTable Profiler::Table(const ProfileTableOptions& options) {
  return MakeProfileTable(Read(), options);
}
OPKIT_INLINE void Profiler::WriteChromeTrace(const std::string& path) {
  ::opkit::WriteChromeTrace(Read(), path);
}
OPKIT_INLINE void Profiler::WritePerfettoTrace(const std::string& path) {
  ::opkit::WritePerfettoTrace(Read(), path);
}
OPKIT_INLINE void Profiler::WriteReport(const std::string& path, const ProfileTableOptions& table,
                                        const RunReport& run) {
  ::opkit::WriteReport(Read(), path, table, run);
}

namespace detail {
inline void Note(ProfileRecord::Type type, std::string_view name, double value = 0) {
  if (CurrentSpanSink()) Recorder::Get().Note(type, InternName(name), value);
}
}  // namespace detail
OPKIT_INLINE void ProfileCount(std::string_view counter, double value) {
  detail::Note(detail::ProfileRecord::Type::kCounter, counter, value);
}
OPKIT_INLINE void ProfileMark(std::string_view name) {
  detail::Note(detail::ProfileRecord::Type::kMarker, name);
}
OPKIT_INLINE void ProfileFrame(std::string_view name) {
  detail::Note(detail::ProfileRecord::Type::kFrame, name);
}

OPKIT_INLINE bool detail::ProfileByEnvironment() {
  static const char* const path = std::getenv("OPKIT_PROFILE");
  if (!path || !*path) return false;
  if (static bool begun = false; std::exchange(begun, true)) return true;
  Profiler::Start({.crash_trace = path});
  std::atexit([] {
    Profiler::Stop();
    try {
      Profiler::WriteChromeTrace(path);
    } catch (const Error& error) {
      std::fprintf(stderr, "opkit: OPKIT_PROFILE: %s\n", error.what());
    }
  });
  return true;
}

}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILER_IPP_

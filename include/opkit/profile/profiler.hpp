// Profiler: records where time goes, inside custom operators too, and writes it as a trace or a
// table. ProfileScope and the functions beside it add the program's own parts.
//
//   Profiler::Start();
//   executor.Run();
//   Profiler::Stop();
//   std::puts(ToString(MakeProfileTable(Profiler::Read())).c_str());
//   SaveChromeTrace(Profiler::Read(), "trace.json");   // for https://ui.perfetto.dev
#ifndef OPKIT_PROFILE_PROFILER_HPP_
#define OPKIT_PROFILE_PROFILER_HPP_

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/environment.hpp"
#include "opkit/profile/options.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/profile_table.hpp"
#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The profiler of the process. It records all threads, also those started later. Every function may
// be called from any thread at any time, also while operators run.
class Profiler {
 public:
  // Begins a session and discards the previous recording. Throws kFailedPrecondition while a
  // session runs, kInvalidArgument for wrong options, kUnsupported if the thread of a crash trace
  // cannot be started.
  static void Start(const ProfileOptions& options = {});
  // Ends the session, if one runs. A span that is still open when Read is called ends at the time
  // of Stop.
  static void Stop();
  // Interrupts recording until Resume, which throws kFailedPrecondition without a session.
  static void Pause();
  static void Resume();
  static bool IsRunning();

  // Returns and keeps the session's recording so far, of all threads, with spans that are still
  // open. Pass it to MakeProfileTable, SaveChromeTrace, SavePerfettoTrace or SaveReport.
  static Profile Read();
};

// Records a part of the program's own code, as a child of the current invocation. A scope must end
// on the thread on which it began, after the scopes that began inside it.
class ProfileScope {
 public:
  // Copies `name` if a profile is being recorded.
  explicit ProfileScope(std::string_view name)
      : scope_(Invocation::Kind::kUserCode, [&] { return detail::SpanNames::OfText(name); }) {}

 private:
  InvocationScope scope_;
};

// Records the value that a counter has from now on.
void ProfileCount(std::string_view counter, double value);
// Records a named point in time on the calling thread.
void ProfileMark(std::string_view name);
// Records that a frame (an iteration, a request) of the program begins.
void ProfileFrame(std::string_view name = "frame");

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profiler.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILER_HPP_

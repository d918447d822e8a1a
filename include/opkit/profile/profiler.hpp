// Profiler: records where time goes, inside custom operators too, and writes it as a trace or a
// table. ProfileScope and the functions beside it add the program's own parts.
//
//   Profiler::Start();
//   executor.Run();
//   Profiler::Stop();
//   std::puts(ToString(Profiler::Table()).c_str());
//   Profiler::WriteChromeTrace("trace.json");   // for https://ui.perfetto.dev
#ifndef OPKIT_PROFILE_PROFILER_HPP_
#define OPKIT_PROFILE_PROFILER_HPP_

#include "opkit/profile/environment.hpp"
#include "opkit/profile/options.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/profile_table.hpp"
#include "opkit/profile/report.hpp"

namespace opkit::inline OPKIT_ABI {

// The profiler of the process: of all its threads, also those born later. Every function may be
// called from any thread at any time, also while operators run.
class Profiler {
 public:
  // Begins a session and forgets the one before. Errors: kFailedPrecondition while one runs;
  // kInvalidArgument.
  static void Start(const ProfileOptions& options = {});
  // Ends the session. Spans that are open then last until the Stop in what is read before they end.
  // Nothing where none runs.
  static void Stop();
  // Nothing is recorded from Pause to Resume. Resume: Error (kFailedPrecondition) without a
  // session.
  static void Pause();
  static void Resume();
  static bool IsRunning();

  // What the session has recorded until now, with the spans that are open, of all threads.
  static Profile Read();
  static ProfileTable Table(const ProfileTableOptions& options = {});
  // Errors: kFailedPrecondition where the file cannot be written; nothing that was recorded is
  // lost.
  static void WriteChromeTrace(const std::string& path);
  static void WritePerfettoTrace(const std::string& path);
  // A page for a browser. Also kUnsupported, without opkit/report/report.hpp in the program.
  static void WriteReport(const std::string& path, const ProfileTableOptions& table = {},
                          const RunReport& run = {});
};

// A part of the program's own code, under the invocation that is current: its child. It ends on the
// thread that it began on, after the scopes that began inside it.
class ProfileScope {
 public:
  // `name` is copied while a profile is recorded.
  explicit ProfileScope(std::string_view name)
      : scope_(InvocationKind::kUserCode, [&] { return SpanNames::OfText(name); }) {}

 private:
  InvocationScope scope_;
};

// The value of a counter from now on.
void ProfileCount(std::string_view counter, double value);
// A point in time with a name.
void ProfileMark(std::string_view name);
// A frame (an iteration, a request) of the program begins.
void ProfileFrame(std::string_view name = "frame");

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profiler.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILER_HPP_

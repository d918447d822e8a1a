// Writes a profile as a Chrome trace: JSON that Perfetto (https://ui.perfetto.dev) and
// chrome://tracing show. Also the default format of SaveProfileFile.
#ifndef OPKIT_PROFILE_CHROME_TRACE_HPP_
#define OPKIT_PROFILE_CHROME_TRACE_HPP_

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Writes the JSON object form of the trace event format. Spans are complete events (X) on the track
// of their thread. Each time in which a custom operator's own code runs is a slice
// "MyOp::user_code" inside its span. Work that continues after its span is an async pair (b, e).
// The pair ends with the operator's event or, if the device has a clock, with the work on the
// device. Arrows (bind_id) lead from the push of a task, a complete event without duration, to its
// run. Times are microseconds with three decimals. Bytes of a name that are not UTF-8 become
// U+FFFD. Counter values that are not finite are left out. Throws kIo if the file
// cannot be written.
void SaveChromeTrace(const Profile& profile, const std::string& path);

// A process of a trace of several. All profiles count time from the same moment.
struct TraceProcess {
  std::string name;
  const Profile* profile = nullptr;
};
// An arrow from one process to another. A complete event without duration, with the arrow's name,
// marks each end.
struct TraceArrow {
  struct End {
    size_t process = 0;  // index of the TraceProcess
    int thread = 0;      // index in Profile::threads
    int64_t time = 0;
  };
  uint64_t id = 0;  // differs from those of other arrows and of tasks
  std::string name;
  End from, to;
};
// Writes several profiles as one Chrome trace, with a track for each process. The ids of their
// invocations must differ. Throws kIo if the file cannot be written.
void SaveChromeTrace(const std::vector<TraceProcess>& processes,
                     const std::vector<TraceArrow>& arrows, const std::string& path);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/chrome_trace.ipp"
#endif

#endif  // OPKIT_PROFILE_CHROME_TRACE_HPP_

// SaveProfileFile: writes a profile in the format that the file's name selects. Crash traces and
// OPKIT_PROFILE use it.
#ifndef OPKIT_PROFILE_PROFILE_FILE_HPP_
#define OPKIT_PROFILE_PROFILE_FILE_HPP_

#include <string>

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Writes a report to "x.html", a Perfetto trace to "x.pftrace" and "x.perfetto-trace", and a Chrome
// trace to every other name. Returns the name of the written file: "x.html.json", a Chrome trace,
// if the program has no writer of reports. Throws kIo if the file cannot be
// written.
inline std::string SaveProfileFile(const Profile& profile, const std::string& path) {
  std::string written = path;
  if (path.ends_with(".pftrace") || path.ends_with(".perfetto-trace")) {
    SavePerfettoTrace(profile, path);
  } else if (path.ends_with(".html") && g_report_writer) {
    SaveReport(profile, path);
  } else {
    if (path.ends_with(".html")) written += ".json";
    SaveChromeTrace(profile, written);
  }
  return written;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_PROFILE_FILE_HPP_

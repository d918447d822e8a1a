// Chooses the writer of a profile by the file's name.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_FILE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_FILE_IPP_

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/profile/profile_file.hpp"
#include "opkit/profile/save_report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE std::string SaveProfileFile(const Profile& profile, const std::string& path) {
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

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_FILE_IPP_

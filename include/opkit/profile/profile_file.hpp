// WriteProfileFile: a profile in the format that the file's name asks for.
#ifndef OPKIT_PROFILE_PROFILE_FILE_HPP_
#define OPKIT_PROFILE_PROFILE_FILE_HPP_

#include <string>

#include "opkit/profile/profile.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// "x.html" becomes a report, "x.pftrace" and "x.perfetto-trace" a Perfetto trace, every other name
// a Chrome trace. Returns the file's name, which is "x.html.json", a Chrome trace, where the
// program has no writer of reports. Error (kFailedPrecondition) where the file cannot be written.
std::string WriteProfileFile(const Profile& profile, const std::string& path);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_file.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_FILE_HPP_

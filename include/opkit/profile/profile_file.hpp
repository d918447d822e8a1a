// SaveProfileFile: writes a profile in the format that the file's name selects. Crash traces and
// OPKIT_PROFILE use it.
#ifndef OPKIT_PROFILE_PROFILE_FILE_HPP_
#define OPKIT_PROFILE_PROFILE_FILE_HPP_

#include <string>

#include "opkit/profile/profile.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Writes a report to "x.html", a Perfetto trace to "x.pftrace" and "x.perfetto-trace", and a Chrome
// trace to every other name. Returns the name of the written file: "x.html.json", a Chrome trace,
// if the program has no writer of reports. Throws kIo if the file cannot be
// written.
std::string SaveProfileFile(const Profile& profile, const std::string& path);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/profile_file.ipp"
#endif

#endif  // OPKIT_PROFILE_PROFILE_FILE_HPP_

// Profiles a program without a change to its source: OPKIT_PROFILE=trace.json in the environment.
#ifndef OPKIT_PROFILE_ENVIRONMENT_HPP_
#define OPKIT_PROFILE_ENVIRONMENT_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Starts a session, at most once, if the environment variable OPKIT_PROFILE names a file. The
// session lasts to the end of the process, or until the program calls Profiler::Start.
// SaveProfileFile then writes the file, with the process id for each "%p" in its name. Returns
// true if a session was started, by this call or an earlier one.
bool ProfileByEnvironment();

}  // namespace detail

#ifdef OPKIT_DEFINITIONS
// Starts the session before main. The compiled runtime does so in op/impl/operator_base.ipp.
[[maybe_unused]] inline const bool kProfileByEnvironment = detail::ProfileByEnvironment();
#endif

}}  // namespace opkit

#endif  // OPKIT_PROFILE_ENVIRONMENT_HPP_

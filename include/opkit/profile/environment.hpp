// OPKIT_PROFILE=trace.json in the environment profiles a program that says nothing of it.
#ifndef OPKIT_PROFILE_ENVIRONMENT_HPP_
#define OPKIT_PROFILE_ENVIRONMENT_HPP_

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Records from now to the end of the process, or until the program calls Profiler::Start, where the
// environment's OPKIT_PROFILE names a file; once. The file is one of WriteProfileFile, with the
// number of the process for each "%p" in its name. Returns whether it does.
bool ProfileByEnvironment();

}  // namespace detail

#ifdef OPKIT_DEFINITIONS
// The compiled runtime has one in op/impl/operator_base.ipp.
[[maybe_unused]] inline const bool kProfileByEnvironment = detail::ProfileByEnvironment();
#endif

}  // namespace opkit

#endif  // OPKIT_PROFILE_ENVIRONMENT_HPP_

// Umbrella for the profiler: Profiler, its tables and traces, and the comparison of two profiles.
// Brings opkit/opkit.hpp too. A header-only program that includes it writes a trace when its
// environment has OPKIT_PROFILE=trace.json. The HTML page of a profile is in
// opkit/report/report.hpp.
#ifndef OPKIT_PROFILE_HPP_
#define OPKIT_PROFILE_HPP_

#include "opkit/opkit.hpp"

#include "opkit/profile/profile_diff.hpp"
#include "opkit/profile/profiler.hpp"

#endif  // OPKIT_PROFILE_HPP_

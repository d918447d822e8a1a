// The profiler: Profiler, its tables and traces, and the comparison of two of them. Brings
// opkit/opkit.hpp too. Including it is enough for OPKIT_PROFILE=trace.json in the environment of a
// header-only program. The page of a profile is opkit/report/report.hpp.
#ifndef OPKIT_PROFILE_HPP_
#define OPKIT_PROFILE_HPP_

#include "opkit/opkit.hpp"

#include "opkit/profile/profile_diff.hpp"
#include "opkit/profile/profiler.hpp"

#endif  // OPKIT_PROFILE_HPP_

// Recordings of the profiler for opkit.profile.
#ifndef OPKIT_PYTHON_PROFILES_HPP_
#define OPKIT_PYTHON_PROFILES_HPP_

#include <nanobind/nanobind.h>

namespace opkit_python {

void BindProfiles(nanobind::module_& m);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_PROFILES_HPP_

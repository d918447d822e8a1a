// Operators written in Python: opkit.op.
#ifndef OPKIT_PYTHON_CUSTOM_OPERATORS_HPP_
#define OPKIT_PYTHON_CUSTOM_OPERATORS_HPP_

#include <nanobind/nanobind.h>

namespace opkit_python {

void BindCustomOperators(nanobind::module_& m);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_CUSTOM_OPERATORS_HPP_

// The functions of opkit.ops: one Python function for an operator, with operators that stay ready
// between calls.
#ifndef OPKIT_PYTHON_OPERATORS_HPP_
#define OPKIT_PYTHON_OPERATORS_HPP_

#include <nanobind/nanobind.h>

namespace opkit_python {

namespace nb = nanobind;

// Drops every operator that is kept ready. Libraries can be unloaded afterwards. The functions stay
// valid: their next call looks the operator up again.
void DropReadyOperators();

void BindOperators(nb::module_& m);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_OPERATORS_HPP_

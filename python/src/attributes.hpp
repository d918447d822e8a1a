// Python's values as attributes of operators, and back.
#ifndef OPKIT_PYTHON_ATTRIBUTES_HPP_
#define OPKIT_PYTHON_ATTRIBUTES_HPP_

#include <nanobind/nanobind.h>

#include "opkit/export/core.hpp"

namespace opkit_python {

namespace nb = nanobind;

// Returns an int, float, bool, str, array, or a list or tuple of these as an attribute. Numbers of
// NumPy count as Python's. A list of integers and floats is a list of floats. `name` names the
// attribute in messages. Throws kTypeMismatch for any other value.
opkit::Attribute ToAttribute(const char* name, nb::handle value);
// Returns the attribute for an operator whose schema declares its type: True as 1 for an int, 1 as
// True for a bool, and the same in lists.
opkit::Attribute ToAttribute(const opkit::OpSchema* schema, const char* name, nb::handle value);
// Returns the value of an attribute; tensors become NumPy arrays.
nb::object FromAttribute(const opkit::Attribute& attribute);

// Appends bytes to `key` that equal those of another value only if both make the same attribute.
// Returns false for a value that has no such bytes, such as an array.
bool AddToKey(PyObject* value, opkit::detail::CallKey* key);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_ATTRIBUTES_HPP_

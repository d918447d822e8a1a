// Values of operators and graphs: arrays, and lists of arrays and None, which are sequences and
// optional values.
#ifndef OPKIT_PYTHON_VALUES_HPP_
#define OPKIT_PYTHON_VALUES_HPP_

#include "arrays.hpp"
#include "opkit/op/inference.hpp"

namespace opkit_python {

// Returns the tensor of an array, or the sequence of a list or tuple of arrays, as FromArray does.
opkit::Tensor FromValue(PyObject* value, const ArrayName& what);
// The same for an input that is declared. None is an absent optional value.
opkit::Tensor FromValue(PyObject* value, const ArrayName& what, const opkit::TensorInfo& declared);

// Returns an array as ToArrayLike does, a list of copies for a sequence, and for an optional value
// None or a copy of what it holds.
nb::object ToValueLike(const opkit::Tensor& value, PyObject* like);

// Returns the array by which results are made: `value`, or an element of it. Returns null if all of
// them are NumPy's.
PyObject* LikeOf(PyObject* value);

// Converts the type of a value that has this shape: what DTypeOf takes, or "sequence<float32>",
// "optional<float32>" or "optional<float32[]>", which holds a sequence.
opkit::TensorInfo InfoOf(nb::handle dtype, opkit::SymbolicShape shape);
std::string TypeText(const opkit::TensorInfo& info);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_VALUES_HPP_

// Arrays and tensors without a copy: NumPy's arrays by its C interface, which takes about 20 ns,
// all other arrays (PyTorch, JAX, CuPy) by DLPack.
#ifndef OPKIT_PYTHON_ARRAYS_HPP_
#define OPKIT_PYTHON_ARRAYS_HPP_

#include <nanobind/nanobind.h>

#include "opkit/core/tensor.hpp"

namespace opkit_python {

namespace nb = nanobind;

enum class Access : uint8_t { kRead, kWrite };

// The name of an array in messages: `name`, or "input 2 of NAME".
struct ArrayName {
  ArrayName(const char* text, int input_index = -1) : name(text), input(input_index) {}
  friend std::string ToString(const ArrayName& array) {
    return array.input < 0 ? std::string(array.name)
                           : opkit::StrCat("input ", array.input, " of ", array.name);
  }

  const char* name;
  int input;
};

// Returns a view of an array, which keeps the array alive. A
// NumPy array that a Tensor cannot view (another byte order, negative strides, an unaligned
// address, strings) is copied for kRead, and is an Error for kWrite. An array of strings is one of
// str, bytes or objects that are str or bytes. Throws kTypeMismatch for an object that
// is no array or has a dtype that opkit lacks; kInvalidArgument for a read-only array and kWrite.
opkit::Tensor FromArray(PyObject* array, const ArrayName& what, Access access = Access::kRead);

// Returns a NumPy array of the tensor's memory, which keeps the tensor alive, or for strings a new
// array of str objects. The tensor is on the host. Throws kUnsupported for bfloat16 without the
// package ml_dtypes.
nb::object ToNumPy(const opkit::Tensor& tensor, Access access = Access::kWrite);

// Returns an array of the kind of `like`: NumPy for null, None or a NumPy array, and for strings;
// otherwise what the library of `like` makes by DLPack.
nb::object ToArrayLike(const opkit::Tensor& tensor, PyObject* like);
// True for an array of NumPy itself, or a NumPy scalar.
bool IsNumPy(PyObject* object);

// Returns the DType of a dtype's name or of what numpy.dtype accepts.
opkit::DType DTypeOf(nb::handle dtype);

void BindArrays(nb::module_& m);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_ARRAYS_HPP_

// ReadNpy, SaveNpy: NumPy's .npy files, each with one tensor. Format: NumPy Enhancement Proposal 1
// and numpy/lib/format.py, versions 1.0 to 3.0.
#ifndef OPKIT_TOOLS_OPKIT_NPY_HPP_
#define OPKIT_TOOLS_OPKIT_NPY_HPP_

#include "opkit/core/tensor.hpp"

namespace cli {

// Returns the tensor in the bytes of a .npy file, in row-major order even if the file is in Fortran
// order. Strings come back in UTF-8, or as the file's bytes if its elements are '|S'. Ignores bytes
// behind the elements. Throws kInvalidArgument for bytes that are no such file or end early,
// kUnsupported for records, objects and other elements without a DType.
opkit::Tensor ParseNpy(std::string_view bytes);

// Reads a file. Throws the errors of ParseNpy, beginning with the path, and kIo for a file
// that cannot be opened.
//   Tensor x = ReadNpy("x.npy");
opkit::Tensor ReadNpy(const std::string& path);

// Writes the tensor in row-major order, strings as '<U' with room for the longest. Throws
// kUnsupported for types that NumPy lacks (bfloat16, sequences), for strings that are not UTF-8 or
// end with a zero, and for a tensor that the host cannot reach. Throws kUninitialized for a tensor
// without data, and kIo, with the path, if the file cannot be written.
void SaveNpy(const std::string& path, const opkit::Tensor& tensor);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_NPY_HPP_

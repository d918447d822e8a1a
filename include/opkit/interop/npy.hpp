// NumPy's .npy files: ReadNpy and WriteNpy, one tensor a file. Format: NumPy Enhancement Proposal 1
// and numpy/lib/format.py, versions 1.0 to 3.0.
#ifndef OPKIT_INTEROP_NPY_HPP_
#define OPKIT_INTEROP_NPY_HPP_

#include "opkit/core/tensor.hpp"

namespace opkit::inline OPKIT_ABI {

// The tensor in the bytes of a .npy file, in row-major order even if the file's is Fortran's. Bytes
// behind the elements are ignored. Errors: kInvalidArgument for bytes that are no such file or end
// early, kUnsupported for records, objects, strings and other elements without a DType.
Tensor ParseNpy(std::string_view bytes);

// Errors as ParseNpy's, beginning with the path; kNotFound for a file that cannot be opened.
//   Tensor x = ReadNpy("x.npy");
Tensor ReadNpy(const std::string& path);

// Writes the tensor in row-major order. Errors: kUnsupported for bfloat16, which NumPy lacks, and
// for a tensor that the host cannot reach; kUninitialized for one without data;
// kFailedPrecondition, naming the path, when the file cannot be written.
void WriteNpy(const std::string& path, const Tensor& tensor);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/npy.ipp"
#endif

#endif  // OPKIT_INTEROP_NPY_HPP_

// OpTensor as text, and the error of reading it as another type.
#ifndef OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_
#define OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_

#include "opkit/op/abi/op_tensor.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE std::string ToString(const OpTensor& tensor) {
  if (!tensor.has_value()) return "(none)";
  const opkit_tensor& view = tensor.view_;
  return StrCat(tensor.dtype(), std::vector<int64_t>(view.shape, view.shape + view.rank), " on ",
                tensor.device());
}
OPKIT_INLINE void OpTensor::WrongType(DType wanted) const {
  if (!has_value())
    Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
          "; ask has_value() first");
  Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_

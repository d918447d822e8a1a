// The definition of ThrowNoElement.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_

#include "opkit/op/typed/typed_kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowNoElement(double value, DType dtype) {
  Throw(ErrorCode::kOutOfRange, value, ", which is no value of the inputs' dtype ", dtype);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_KERNEL_IPP_

// The definition of TypedExtents.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_VALUES_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_VALUES_IPP_

#include "opkit/op/typed/typed_values.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE void TypedExtents::SetShape(const Shape& shape) {
  size_ = shape.numel();
  rank_ = shape.rank();
  if (rank_ > kMaxRank)
    Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
          ", found shape ", shape, "; merge axes with View first");
  for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
}

}  // namespace detail

}  // namespace opkit

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_VALUES_IPP_

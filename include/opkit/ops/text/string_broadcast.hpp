// ForEachPair: walks two tensors of strings that are broadcast together. StringConcat and Equal use
// it.
#ifndef OPKIT_OPS_TEXT_STRING_BROADCAST_HPP_
#define OPKIT_OPS_TEXT_STRING_BROADCAST_HPP_

#include <string>

#include "opkit/core/tensor.hpp"
#include "opkit/ops/support/broadcast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls f(i, a, b) for each element i of a dense tensor of shape `all`, with the strings of two
// dense tensors that are broadcast to this shape.
template <class F>
void ForEachPair(const Tensor& a, const Tensor& b, const Shape& all, F&& f) {
  const Dims steps_a = BroadcastStrides(a.shape(), all), steps_b = BroadcastStrides(b.shape(), all);
  const auto *in_a = a.data<std::string>(), *in_b = b.data<std::string>();
  Dims index(std::vector<int64_t>(static_cast<size_t>(all.rank()), 0));
  for (int64_t i = 0; i < all.numel(); ++i) {
    int64_t at_a = 0, at_b = 0;
    for (int axis = 0; axis < all.rank(); ++axis) {
      at_a += index[axis] * steps_a[axis];
      at_b += index[axis] * steps_b[axis];
    }
    f(i, in_a[at_a], in_b[at_b]);
    for (int axis = all.rank() - 1; axis >= 0 && ++index[axis] == all[axis]; --axis)
      index[axis] = 0;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_TEXT_STRING_BROADCAST_HPP_

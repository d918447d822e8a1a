// BroadcastIndex: where the elements of broadcast inputs lie for an element of a dense output, in a
// form that a kernel's launch copies to the device.
#ifndef OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/support/broadcast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Axes are merged where every input is contiguous along them. Trivially copyable.
struct BroadcastIndex {
  static constexpr int kMaxInputs = 3, kMaxAxes = 8;

  int64_t size = 0;  // elements of the output
  int axes = 0;
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxInputs][kMaxAxes] = {};

  // Strides in elements, one for each axis of `out`, for each input. Throws kUnsupported if more
  // than kMaxAxes axes remain.
  static BroadcastIndex Of(const Shape& out, std::initializer_list<Dims> inputs) {
    BroadcastIndex index;
    index.size = out.numel();
    for (int axis = 0; axis < out.rank() && index.size > 0; ++axis) {
      if (out[axis] == 1) continue;
      bool merges = index.axes > 0;
      for (int i = 0; const Dims& input : inputs) {
        if (!merges) break;
        merges = index.strides[i++][index.axes - 1] == input[axis] * out[axis];
      }
      if (!merges && ++index.axes > kMaxAxes)
        Throw(ErrorCode::kUnsupported, "a kernel on CUDA visits at most ", kMaxAxes,
              " axes that cannot be merged, and ", ToString(out), " has more");
      const int last = index.axes - 1;
      index.extents[last] = out[axis] * (merges ? index.extents[last] : 1);
      for (int i = 0; const Dims& input : inputs) index.strides[i++][last] = input[axis];
    }
    return index;
  }

  // Sets from[i] to the number of the element of input i for element `at` of the output.
  template <int kInputs>
  OPKIT_HOST_DEVICE void Find(int64_t at, int64_t* from) const {
    for (int i = 0; i < kInputs; ++i) from[i] = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      int64_t step = at;
      if (axis > 0) {
        // A division of 64 bits takes several times as long.
        const bool is_short = at <= 0xffffffff && extents[axis] <= 0xffffffff;
        const int64_t next = is_short
                                 ? static_cast<uint32_t>(at) / static_cast<uint32_t>(extents[axis])
                                 : at / extents[axis];
        step = at - next * extents[axis];
        at = next;
      }
      for (int i = 0; i < kInputs; ++i) from[i] += step * strides[i][axis];
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_

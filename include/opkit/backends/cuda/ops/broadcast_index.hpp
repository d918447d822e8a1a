// BroadcastIndex: where the elements of broadcast inputs lie for an element of a dense output, in a
// form that a kernel's launch copies to the device.
#ifndef OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/support/broadcast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Divides numbers below 2^31 by a number from 1 to 2^31, by a multiplication and a shift. Source:
// Granlund, Montgomery, "Division by invariant integers using multiplication", 1994.
class IndexDivisor {
 public:
  IndexDivisor() = default;
  explicit IndexDivisor(uint32_t divisor) {
    while ((uint64_t{1} << shift_) < divisor) ++shift_;
    factor_ = static_cast<uint32_t>((((uint64_t{1} << shift_) - divisor) << 32) / divisor + 1);
  }
  OPKIT_HOST_DEVICE uint32_t Quotient(uint32_t number) const {
    return (static_cast<uint32_t>((static_cast<uint64_t>(number) * factor_) >> 32) + number) >>
           shift_;
  }

 private:
  uint32_t factor_ = 1;
  int shift_ = 0;
};

// Axes are merged where every input is contiguous along them. Trivially copyable.
struct BroadcastIndex {
  static constexpr int kMaxInputs = 6, kMaxAxes = 8;
  static constexpr int64_t kLong = int64_t{1}
                                   << 31;  // sizes from here on need divisions of 64 bits

  int64_t size = 0;  // elements of the output
  int axes = 0;
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxInputs][kMaxAxes] = {};
  IndexDivisor divisors[kMaxAxes] = {};  // of the extents, if size is below kLong

  // Strides in elements, one for each axis of `out`, for each input. Throws kUnsupported if more
  // than kMaxAxes axes remain.
  static BroadcastIndex Of(const Shape& out, std::initializer_list<Dims> inputs) {
    return Of(out, inputs.begin(), static_cast<int>(inputs.size()));
  }
  static BroadcastIndex Of(const Shape& out, const Dims* inputs, int count) {
    BroadcastIndex index;
    index.size = out.numel();
    for (int axis = 0; axis < out.rank() && index.size > 0; ++axis) {
      if (out[axis] == 1) continue;
      bool merges = index.axes > 0;
      for (int i = 0; i < count && merges; ++i)
        merges = index.strides[i][index.axes - 1] == inputs[i][axis] * out[axis];
      if (!merges && ++index.axes > kMaxAxes)
        Throw(ErrorCode::kUnsupported, "a kernel on CUDA visits at most ", kMaxAxes,
              " axes that cannot be merged, and ", ToString(out), " has more");
      const int last = index.axes - 1;
      index.extents[last] = out[axis] * (merges ? index.extents[last] : 1);
      for (int i = 0; i < count; ++i) index.strides[i][last] = inputs[i][axis];
    }
    index.SetDivisors();
    return index;
  }
  // Shortens an axis. `size` becomes the number of elements that remain.
  void SetExtent(int axis, int64_t extent) {
    size = size / extents[axis] * extent;
    extents[axis] = extent;
    SetDivisors();
  }

  // Sets from[i] to the number of the element of input i for element `at` of the output.
  template <int kInputs>
  OPKIT_HOST_DEVICE void Find(int64_t at, int64_t* from) const {
    if (size < kLong) return FindShort<kInputs>(static_cast<uint32_t>(at), from);
    for (int i = 0; i < kInputs; ++i) from[i] = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t next = axis > 0 ? at / extents[axis] : 0, step = at - next * extents[axis];
      at = next;
      for (int i = 0; i < kInputs; ++i) from[i] += step * strides[i][axis];
    }
  }
  // The same for a size below kLong, without a division.
  template <int kInputs>
  OPKIT_HOST_DEVICE void FindShort(uint32_t at, int64_t* from) const {
    for (int i = 0; i < kInputs; ++i) from[i] = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const uint32_t next = axis > 0 ? divisors[axis].Quotient(at) : 0;
      const uint32_t step = at - next * static_cast<uint32_t>(extents[axis]);
      at = next;
      for (int i = 0; i < kInputs; ++i) from[i] += step * strides[i][axis];
    }
  }
  // Returns the number of the element of one input, for a size below kLong.
  OPKIT_HOST_DEVICE int64_t FindInput(uint32_t at, int input) const {
    int64_t from = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const uint32_t next = axis > 0 ? divisors[axis].Quotient(at) : 0;
      from += (at - next * static_cast<uint32_t>(extents[axis])) * strides[input][axis];
      at = next;
    }
    return from;
  }

 private:
  void SetDivisors() {
    for (int axis = 0; axis < axes && size < kLong; ++axis)
      divisors[axis] = IndexDivisor(static_cast<uint32_t>(extents[axis]));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_BROADCAST_INDEX_HPP_

// StackedOutput: an output of Loop or Scan that collects one slice of each iteration.
#ifndef OPKIT_OPS_LOOPS_STACKED_OUTPUT_HPP_
#define OPKIT_OPS_LOOPS_STACKED_OUTPUT_HPP_

#include <algorithm>
#include <optional>

#include "opkit/op/operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the shape with one more axis before the others.
inline Shape WithFirst(int64_t extent, const Shape& shape) {
  std::vector<int64_t> dims{extent};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return Shape(dims);
}

// An output that collects one slice of each iteration along a new first axis.
class StackedOutput {
 public:
  // `slice` is the type of a slice as it is known before the run, and `expected` the largest number
  // of slices. Reserves no more than kMostReserved bytes beforehand.
  void Begin(const TensorInfo& slice, int64_t expected) {
    slice_ = &slice;
    expected_ = expected;
    count_ = 0;
    stack_ = Tensor();
  }
  // Collects the slices in `memory`, whose first extent is the expected number. Call it after
  // Begin.
  void UseMemory(const Tensor& memory) {
    stack_ = memory;
    stack_.raw_mutable_data();
    shape_ = slice_->shape.ToShape();
  }
  // Returns the shape of all expected slices if it is known and not too large to reserve.
  std::optional<Shape> WholeShape() const {
    if (!slice_->shape.is_known() || slice_->dtype == DType::kUndefined) return {};
    const Shape slice = slice_->shape.ToShape();
    const int64_t bytes = BytesOfSlice(slice, slice_->dtype);
    if (expected_ < 1 || expected_ > kMostReserved / bytes) return {};
    return WithFirst(expected_, slice);
  }
  // Returns the memory of slice `at`, for the body to write to. Returns a tensor without dtype if
  // the slice's shape is not known beforehand.
  Tensor Place(int64_t at) {
    if (!slice_->shape.is_known() || slice_->dtype == DType::kUndefined) return {};
    Reserve(slice_->shape.ToShape(), slice_->dtype, at);
    return SliceOf(at);
  }
  // Adds a slice. Copies it unless it lies in its place. Throws kInvalidArgument if its shape is
  // not that of the slices before.
  void Add(int64_t at, const Tensor& slice, int output) {
    if (count_ > 0 && (slice.shape() != shape_ || slice.dtype() != stack_.dtype()))
      Throw(ErrorCode::kInvalidArgument, "output ", output, " of the body is ", slice,
            ", but the iterations before made a value of shape ", shape_, " and dtype ",
            stack_.dtype(), "; all are stacked, so that they must be equal");
    Reserve(slice.shape(), slice.dtype(), at);
    Tensor place = SliceOf(at);
    if (slice.raw_data() != place.raw_data() || !slice.is_dense()) place.CopyFrom(slice);
    ++count_;
  }
  // Returns the slices; without an iteration, an empty tensor, in which unknown extents are 0.
  Tensor Take() {
    if (count_ == 0) {
      std::vector<int64_t> dims{0};
      for (int axis = 0; slice_->shape.has_rank() && axis < slice_->shape.rank(); ++axis)
        dims.push_back(slice_->shape[axis].is_known() ? slice_->shape[axis].value() : 0);
      if (slice_->dtype == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument,
              "no iteration ran, and the dtype of a stacked output is not known without one");
      return Tensor(Shape(dims), slice_->dtype);
    }
    Tensor result = std::exchange(stack_, Tensor());
    return count_ == result.dim(0) ? result : result.Slice(0, 0, count_).Contiguous();
  }

 private:
  static constexpr int64_t kMostReserved = int64_t{64} << 20;

  // Returns the bytes of a slice without the characters of its strings, at least 1. Throws
  // kTypeMismatch for a value that is no tensor.
  static int64_t BytesOfSlice(const Shape& slice, DType dtype) {
    if (dtype == DType::kSequence || dtype == DType::kOptional)
      Throw(ErrorCode::kTypeMismatch, "a stacked output of the body is a value of type ", dtype,
            ", but only tensors are stacked; carry it from one iteration to the next");
    const int64_t bytes = dtype == DType::kString
                              ? slice.numel() * static_cast<int64_t>(sizeof(std::string))
                              : BytesOf(slice.numel(), dtype);
    return (std::max)(bytes, int64_t{1});
  }
  void Reserve(const Shape& slice, DType dtype, int64_t at) {
    if (stack_.dtype() != DType::kUndefined && at < stack_.dim(0)) return;
    shape_ = slice;
    const int64_t bytes = BytesOfSlice(slice, dtype);
    int64_t extent = (std::min)(expected_, (std::max)(kMostReserved / bytes, int64_t{1}));
    if (stack_.dtype() != DType::kUndefined) extent = (std::min)(expected_, stack_.dim(0) * 2);
    extent = (std::max)(extent, at + 1);
    Tensor larger(WithFirst(extent, slice), dtype);
    larger.raw_mutable_data();
    if (count_ > 0) larger.Slice(0, 0, stack_.dim(0)).CopyFrom(stack_);
    stack_ = std::move(larger);
  }
  Tensor SliceOf(int64_t at) const { return stack_.Slice(0, at, at + 1).View(Dims(shape_)); }

  const TensorInfo* slice_ = nullptr;
  int64_t expected_ = 0, count_ = 0;
  Shape shape_;
  Tensor stack_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_LOOPS_STACKED_OUTPUT_HPP_

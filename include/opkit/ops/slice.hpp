// Slice: copies a part of a tensor, with a step along each axis.
#ifndef OPKIT_OPS_SLICE_HPP_
#define OPKIT_OPS_SLICE_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The `count` indices first, first + step, … of an axis.
struct AxisSlice {
  int64_t first = 0, step = 1, count = 0;
};

// Returns the indices that start, end and step select on an axis of `extent`. Negative numbers
// count from the end. Start and end are clamped to the axis. Throws kInvalidArgument for a step of
// 0.
inline AxisSlice SliceAxis(int64_t extent, int64_t start, int64_t end, int64_t step) {
  if (step == 0) Throw(ErrorCode::kInvalidArgument, "Slice: a step is 0, expected another number");
  const auto place = [extent](int64_t at, int64_t low, int64_t high) {
    if (at < 0) at += extent;
    return at < low ? low : at > high ? high : at;
  };
  AxisSlice slice{0, step, 0};
  if (extent == 0) return slice;
  if (step > 0) {
    slice.first = place(start, 0, extent);
    const int64_t last = place(end, 0, extent);
    if (last > slice.first) slice.count = (last - slice.first - 1) / step + 1;
  } else {
    slice.first = place(start, 0, extent - 1);
    const int64_t last = place(end, -1, extent - 1);
    const uint64_t stride = uint64_t{0} - static_cast<uint64_t>(step);
    if (last < slice.first)
      slice.count =
          static_cast<int64_t>(static_cast<uint64_t>(slice.first - last - 1) / stride) + 1;
  }
  if (slice.count <= 1) slice.step = 1;
  return slice;
}

// The inputs of Slice as lists of equal length. `axes` are in [0, rank), by default the first axes;
// `steps` are 1 by default.
struct SliceLists {
  Dims starts, ends, axes, steps;
};

// Checks the lists and sets the defaults. Throws kInvalidArgument for wrong lengths and repeated
// axes, kOutOfRange for an axis outside the rank.
inline void CheckSliceLists(SliceLists& lists, bool has_axes, bool has_steps, int rank) {
  const int count = lists.starts.size();
  auto expect_count = [&](const Dims& list, const char* name) {
    if (list.size() != count)
      Throw(ErrorCode::kInvalidArgument, "Slice: '", name, "' has ", list.size(),
            " elements, expected as many as 'starts', ", count);
  };
  expect_count(lists.ends, "ends");
  if (has_axes) expect_count(lists.axes, "axes");
  if (has_steps) expect_count(lists.steps, "steps");
  if (count > rank)
    Throw(ErrorCode::kInvalidArgument, "Slice: 'starts' has ", count,
          " elements, but the input has rank ", rank);
  if (!has_axes) lists.axes = lists.starts;
  if (!has_steps) lists.steps = lists.starts;
  for (int i = 0; i < count; ++i) {
    if (!has_steps) lists.steps[i] = 1;
    lists.axes[i] = has_axes ? NormalizeAxis(lists.axes[i], rank, "Slice") : i;
    for (int k = 0; k < i; ++k)
      if (lists.axes[k] == lists.axes[i])
        Throw(ErrorCode::kInvalidArgument, "Slice: axis ", lists.axes[i], " is named twice");
  }
}

// Returns the extent of a slice of an axis with an unknown extent: the axis's own extent if the
// slice takes the whole axis, forwards or backwards, else a bound.
inline Dim SliceOfOpenAxis(const Dim& extent, int64_t start, int64_t end, int64_t step) {
  // Exporters write an `end` of kFar or more for "to the end of the axis".
  constexpr int64_t kFar = (int64_t{1} << 31) - 1;
  const bool all = step == 1 ? start == 0 && end >= kFar
                             : step == -1 && (start == -1 || start >= kFar) && end <= -kFar;
  if (all) return extent;
  const Dim most = Dim::AtMost(extent);
  if (start < 0 || end < 0 || end >= kFar || step < 1) return most;
  const int64_t count = end <= start ? 0 : (end - start - 1) / step + 1;
  return *Dim::Merge(most, Dim::AtMost(count));
}

inline void InferSlice(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  if (!input.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  SymbolicShape shape = input;
  const auto starts = KnownIntegerList(c, 1, "starts"), ends = KnownIntegerList(c, 2, "ends");
  const auto axes = KnownIntegerList(c, 3, "axes"), steps = KnownIntegerList(c, 4, "steps");
  const bool axes_known = axes || !c.HasInput(3);
  if (starts && ends && axes_known && (steps || !c.HasInput(4))) {
    SliceLists lists{*starts, *ends, axes.value_or(Dims()), steps.value_or(Dims())};
    CheckSliceLists(lists, c.HasInput(3), c.HasInput(4), input.rank());
    for (int i = 0; i < lists.starts.size(); ++i) {
      Dim& dim = shape[static_cast<int>(lists.axes[i])];
      dim = dim.is_known()
                ? Dim(SliceAxis(dim.value(), lists.starts[i], lists.ends[i], lists.steps[i]).count)
                : SliceOfOpenAxis(dim, lists.starts[i], lists.ends[i], lists.steps[i]);
    }
  } else if (axes) {
    for (const int64_t axis : *axes) {
      Dim& dim = shape[NormalizeAxis(axis, input.rank(), "Slice")];
      dim = Dim::AtMost(dim);
    }
  } else {
    const Dim count = c.HasInput(3) ? Dim() : IntegerListSize(c, 1, "starts");
    for (int i = 0; i < input.rank(); ++i)
      if (!count.is_known() || i < count.value()) shape[i] = Dim::AtMost(shape[i]);
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

}  // namespace detail

// The base of Slice and its gradient: computes where the slice's elements lie in the sliced tensor.
template <class Context>
class SliceBase : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // Calls add(axis, count, stride) for every axis of a slice. The sliced tensor has shape `large`
  // and the given strides; `stride` is the slice's stride in that tensor. Returns the offset of the
  // slice's first element. Inputs `first` to first + 3 are starts, ends, axes and steps, in the
  // host's memory.
  template <class AddAxis>
  int64_t ForAxes(int first, const Shape& large, const Dims& strides, AddAxis add) {
    const auto list = [&](int i, const char* name) {
      return this->HasInput(i) ? IntegerList(this->Input(i, DeviceType::kCPU), name) : Dims();
    };
    detail::SliceLists lists{list(first, "starts"), list(first + 1, "ends"),
                             list(first + 2, "axes"), list(first + 3, "steps")};
    detail::CheckSliceLists(lists, this->HasInput(first + 2), this->HasInput(first + 3),
                            large.rank());
    int64_t offset = 0;
    for (int i = 0; i < large.rank(); ++i) {
      detail::AxisSlice slice{0, 1, large[i]};
      for (int k = 0; k < lists.axes.size(); ++k)
        if (lists.axes[k] == i)
          slice = detail::SliceAxis(large[i], lists.starts[k], lists.ends[k], lists.steps[k]);
      add(i, slice.count, strides[i] * slice.step);
      offset += slice.first * strides[i];
    }
    return offset;
  }
  // Describes the copy of Slice. Returns the address of its first element in x.
  const void* AddAxes(const Tensor& x, const Tensor& y) {
    const int64_t item = ItemSize(x.dtype());
    const Dims to = y.shape().DenseStrides();
    copy_.Start(item);
    const int64_t offset = ForAxes(
        1, x.shape(), x.strides(),
        [&](int axis, int64_t count, int64_t stride) { copy_.Axis(count, stride, to[axis]); });
    return static_cast<const char*>(x.raw_data()) + offset * item;
  }
  StridedCopy copy_;
};

class SliceOp : public SliceBase<CPUContext> {
 public:
  using SliceBase::SliceBase;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const void* const first = AddAxes(x, *y);
    copy_.Run(first, y->raw_mutable_data());
    return true;
  }
};

// The gradient of Slice: a tensor of zeros into which the slice's gradient is copied. Inputs:
// gradient of the slice, shape of the sliced tensor, starts, ends, axes, steps.
class SliceGradientOp final : public SliceBase<CPUContext> {
 public:
  using SliceBase::SliceBase;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    std::memset(y->raw_mutable_data(), 0, static_cast<size_t>(y->nbytes()));
    if (x.numel() == 0) return true;
    const int64_t item = ItemSize(x.dtype());
    const Dims from = x.strides();
    copy_.Start(item);
    const int64_t offset = ForAxes(
        2, y->shape(), y->shape().DenseStrides(),
        [&](int axis, int64_t count, int64_t stride) { copy_.Axis(count, from[axis], stride); });
    copy_.Run(x.raw_data(), static_cast<char*>(y->raw_mutable_data()) + offset * item);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Slice, kMaker, MovingStrings<SliceOp>)
    .TakesStrings()
    .NumInputs(3, 5)
    .InputsOnHost({1, 2, 3, 4})
    .Input(0, "data", "any tensor")
    .Input(1, "starts", "first index on each axis; negative ones count from the end",
           IndexTypes::DTypes())
    .Input(2, "ends", "the index behind the last, which is not taken; clamped like `starts`",
           IndexTypes::DTypes())
    .Input(3, "axes", "that are sliced; by default the first ones", IndexTypes::DTypes())
    .Input(4, "steps", "from one index to the next, by default 1; negative ones go backwards",
           IndexTypes::DTypes())
    .Output(0, "output", "the elements at those indices")
    .Infer(detail::InferSlice)
    .Doc("A part of a tensor: the indices from `starts` to before `ends` on each of `axes`.");
OPKIT_NODE_GRADIENT(Slice) {
  std::vector<std::string> inputs = Def().inputs();  // starts, ends, axes, steps at index 1 to 4
  inputs[0] = Node("Shape", {I(0)});
  inputs.insert(inputs.begin(), GO(0));
  Give(0, "SliceGradient", inputs);
}

OPKIT_NODE_GRADIENT(SliceGradient) {
  std::vector<std::string> inputs(Def().inputs().begin() + 1, Def().inputs().end());
  inputs[0] = GO(0);
  Give(0, "Slice", inputs);
}

OPKIT_STANDARD_OPERATOR(SliceGradient, kMaker, SliceGradientOp)
    .NumInputs(4, 6)
    .InputsOnHost({1, 2, 3, 4, 5})
    .Private()
    .Infer([](InferenceContext& c) {
      SymbolicShape shape;
      if (c.input_shape(0).has_rank()) shape = SymbolicShape::OfRank(c.input_shape(0).rank());
      if (const auto known = KnownIntegerList(c, 1, "shape")) shape = Shape(*known);
      c.SetOutput(0, c.input_dtype(0), shape);
    })
    .Doc("The gradient of Slice: zeros of a shape, but for a part.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SLICE_HPP_

// Expand and Tile: repeat a tensor along its axes.
#ifndef OPKIT_OPS_EXPAND_HPP_
#define OPKIT_OPS_EXPAND_HPP_

#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferExpand(InferenceContext& c) {
  const SymbolicShape wanted = ShapeInInput(c, 1, "shape");
  c.SetOutput(0, c.input_dtype(0), BroadcastShape(c.input_shape(0), wanted));
}

inline void InferTile(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  if (!input.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  SymbolicShape shape = SymbolicShape::OfRank(input.rank());
  const Dim size = IntegerListSize(c, 1, "repeats");
  if (size.is_known() && size.value() != input.rank())
    Throw(ErrorCode::kInvalidArgument, "Tile: 'repeats' has ", size.value(),
          " elements, expected one for each axis of ", ToString(input));
  if (const auto repeats = KnownIntegerList(c, 1, "repeats"))
    for (int i = 0; i < input.rank(); ++i) {
      int64_t extent = 0;
      if ((*repeats)[i] < 0)
        Throw(ErrorCode::kInvalidArgument, "Tile: 'repeats' is ", *repeats,
              ", expected numbers of at least 0");
      if ((*repeats)[i] == 1) shape[i] = input[i];
      if ((*repeats)[i] == 0) shape[i] = 0;
      if (!input[i].is_known()) {
        if ((*repeats)[i] > 1) shape[i] = input[i] * (*repeats)[i];
        continue;
      }
      if (__builtin_mul_overflow(input[i].value(), (*repeats)[i], &extent))
        Throw(ErrorCode::kOutOfRange, "Tile: ", ToString(input), " repeated ", *repeats,
              " times has more elements than a 64-bit count can hold");
      shape[i] = extent;
    }
  c.SetOutput(0, c.input_dtype(0), shape);
}

}  // namespace detail

class ExpandOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    copy_.Copy(y->shape(), ItemSize(x.dtype()), x.raw_data(),
               BroadcastStrides(x.shape(), y->shape()), y->raw_mutable_data(),
               y->shape().DenseStrides());
    return true;
  }

 private:
  StridedCopy copy_;
};

namespace detail {

// Describes to `copy` how Tile copies x to the dense y, which is not empty.
inline void AddTileAxes(StridedCopy& copy, const Tensor& x, const Tensor& y) {
  const Dims from = x.strides(), to = y.shape().DenseStrides();
  copy.Start(ItemSize(x.dtype()));
  for (int i = 0; i < x.rank(); ++i) {
    copy.Axis(y.dim(i) / x.dim(i), 0, to[i] * x.dim(i));
    copy.Axis(x.dim(i), from[i], to[i]);
  }
}

}  // namespace detail

class TileOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    detail::AddTileAxes(copy_, x, *y);
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  StridedCopy copy_;
};

OPKIT_NODE_GRADIENT(Expand) { GiveSummed(0, GO(0)); }
// Splits each axis of the gradient into the repeats and the extent, and sums over the repeats.
OPKIT_NODE_GRADIENT(Tile) {
  const auto column = [&](const std::string& list) {
    return Node("Unsqueeze", {list, Integers({1})});
  };
  const std::string pairs =
      Node("Concat", {column(I(1)), column(Node("Shape", {I(0)}))}, {{"axis", 1}});
  const std::string split =
      Node("Reshape", {GO(0), Node("Reshape", {pairs, Integers({-1})})}, {{"allowzero", 1}});
  const std::string axes = Node("Range", {Integer(0), Node("Size", {pairs}), Integer(2)});
  Give(0, "ReduceSum", {split, axes}, {{"keepdims", 0}, {"noop_with_empty_axes", 1}});
}

OPKIT_STANDARD_OPERATOR(Expand, kMaker, MovingStrings<ExpandOp>)
    .TakesStrings()
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "input", "any tensor")
    .Input(1, "shape", "that is broadcast with that of `input`", {DType::kInt64})
    .Output(0, "output", "`input`, with extents of 1 repeated")
    .Infer(detail::InferExpand)
    .Doc("Broadcasts a tensor with a shape.");

OPKIT_STANDARD_OPERATOR(Tile, kMaker, MovingStrings<TileOp>)
    .TakesStrings()
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "input", "any tensor")
    .Input(1, "repeats", "how often, along each axis", {DType::kInt64})
    .Output(0, "output", "`input` laid side by side")
    .Infer(detail::InferTile)
    .Doc("Repeats a tensor along its axes.");

}}  // namespace opkit

#endif  // OPKIT_OPS_EXPAND_HPP_

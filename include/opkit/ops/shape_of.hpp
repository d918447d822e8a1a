// Shape and Size: return the extents of a tensor as data. If the extents are known before the graph
// runs, inference knows the data, too, and can compute nodes that read the data.
#ifndef OPKIT_OPS_SHAPE_OF_HPP_
#define OPKIT_OPS_SHAPE_OF_HPP_

#include <algorithm>

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the axes [begin, end) that the attributes `start` and `end` of Shape select, clamped to
// the rank.
inline std::pair<int, int> ShapeRange(const Arguments& args, int rank) {
  auto clamp = [rank](int64_t axis) {
    if (axis < 0) axis += rank;
    return static_cast<int>((std::max)(int64_t{0}, (std::min)(axis, int64_t{rank})));
  };
  const int begin = clamp(args.Get<int64_t>("start", 0));
  const int end = clamp(args.Get<int64_t>("end", rank));
  return {begin, (std::max)(begin, end)};
}

inline void InferShape(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  if (!input.has_rank()) return c.SetOutput(0, DType::kInt64, SymbolicShape::OfRank(1));
  const auto [begin, end] = ShapeRange(c.args(), input.rank());
  std::vector<int64_t> extents;
  for (int i = begin; i < end; ++i)
    if (input[i].is_known()) extents.push_back(input[i].value());
  const Shape shape{end - begin};
  c.SetOutput(0, DType::kInt64, shape);
  if (static_cast<int>(extents.size()) == end - begin)
    c.SetOutputData(0, Tensor::From<int64_t>(shape, extents));
}

inline void InferSize(InferenceContext& c) {
  c.SetOutput(0, DType::kInt64, Shape{});
  if (c.input_shape(0).is_known())
    c.SetOutputData(0, Tensor::Scalar(c.input_shape(0).ToShape().numel()));
}

}  // namespace detail

class ShapeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Shape& shape = InputBlob(0).Get<Tensor>().shape();
    int64_t* out = InferredOutput(0)->mutable_data<int64_t>();
    const auto [begin, end] = detail::ShapeRange(def().args(), shape.rank());
    for (int i = begin; i < end; ++i) out[i - begin] = shape[i];
    return true;
  }
};

class SizeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    *InferredOutput(0)->mutable_data<int64_t>() = InputBlob(0).Get<Tensor>().numel();
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Shape, kNone, ShapeOp)
    .TakesStrings()
    .InputsCanCrossDevices()
    .Input(0, "data", "any tensor")
    .Output(0, "shape", "its extents", {DType::kInt64})
    .Arg<int64_t>("start", "the first axis; negative ones count from the end, all are clamped", 0)
    .Arg<int64_t>("end", "the axis behind the last; by default the rank")
    .Infer(detail::InferShape)
    .Cost([](auto&...) { return OpCost(); })
    .Doc("The extents of a tensor.");

OPKIT_STANDARD_OPERATOR(Size, kNone, SizeOp)
    .TakesStrings()
    .InputsCanCrossDevices()
    .Input(0, "data", "any tensor")
    .Output(0, "size", "its element count, a scalar", {DType::kInt64})
    .Infer(detail::InferSize)
    .Cost([](auto&...) { return OpCost(); })
    .Doc("The number of elements of a tensor.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SHAPE_OF_HPP_

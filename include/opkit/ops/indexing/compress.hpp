// Compress: keeps the slices of a tensor for which a list of bools is true. The output's shape
// depends on the data. Source: https://onnx.ai/onnx/operators/onnx__Compress.html, opset 11.
#ifndef OPKIT_OPS_INDEXING_COMPRESS_HPP_
#define OPKIT_OPS_INDEXING_COMPRESS_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/table_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferCompress(InferenceContext& c) {
  const SymbolicShape &input = c.input_shape(0), &condition = c.input_shape(1);
  if (condition.has_rank() && condition.rank() != 1)
    Throw(ErrorCode::kInvalidArgument, "Compress: the condition has shape ", ToString(condition),
          ", expected rank 1");
  SymbolicShape shape = SymbolicShape::OfRank(1);
  if (c.args().Has("axis")) {
    shape = input;
    if (input.has_rank())
      shape[NormalizeAxis(c.Arg<int64_t>("axis"), input.rank(), "Compress")] = Dim();
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

// Compress is a Gather of the indices at which the condition is true.
OPKIT_NODE_GRADIENT(Compress) {
  const std::string list = Node("Constant", {}, {{"value_ints", {-1}}});
  const std::string indices = Node("Reshape", {Node("NonZero", {I(1)}), list});
  if (Def().args().Has("axis")) {
    Give(0, "GatherGradient", {GO(0), indices, I(0)}, Def().args());
  } else {
    const std::string flat = Node("Reshape", {I(0), list});
    Give(0, "Reshape", {Node("GatherGradient", {GO(0), indices, flat}), Node("Shape", {I(0)})},
         {{"allowzero", 1}});
  }
}

}  // namespace detail

class CompressOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor &x = DenseInput(0), &condition = DenseInput(1);
    const bool flat = !HasArgument("axis");
    const int axis =
        flat ? 0 : NormalizeAxis(GetSingleArgument<int64_t>("axis", 0), x.rank(), type());
    const int64_t extent = flat ? x.numel() : x.dim(axis);
    const auto* kept = static_cast<const uint8_t*>(condition.raw_data());
    copy_.Start(ItemSize(x.dtype()));
    if (!flat) copy_.Keep(x.shape().NumelBetween(0, axis));
    std::vector<int64_t>& table = copy_.Axis(extent);
    table.clear();
    for (int64_t i = 0; i < condition.numel(); ++i) {
      if (!kept[i]) continue;
      if (i >= extent)
        Throw(ErrorCode::kOutOfRange, "Compress: the condition is true at index ", i,
              ", outside an axis of extent ", extent);
      table.push_back(i);
    }
    Dims dims(std::vector<int64_t>(flat ? 1 : static_cast<size_t>(x.rank()), 0));
    for (int i = 0; i < x.rank() && !flat; ++i) dims[i] = x.dim(i);
    dims[axis] = static_cast<int64_t>(table.size());
    if (!flat) copy_.Keep(x.shape().NumelBetween(axis + 1, x.rank()));
    Tensor* y = Output(0, Shape(dims), x.dtype());
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  TableCopy copy_;
};

OPKIT_STANDARD_OPERATOR(Compress, kMaker, MovingStrings<CompressOp>)
    .TakesStrings()
    .NumInputs(2)
    .Input(0, "input", "any tensor of rank 1 or more")
    .Input(1, "condition",
           "for each slice, whether it is kept; slices beyond the end of the list are not",
           {DType::kBool})
    .Output(0, "output", "the slices that are kept; of rank 1 without `axis`")
    .Arg<int64_t>("axis",
                  "along which the slices lie, negative ones count from the end; left out: the "
                  "input is taken as a list of its elements")
    .Infer(detail::InferCompress)
    .Doc("The slices of a tensor for which a condition is true.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_COMPRESS_HPP_

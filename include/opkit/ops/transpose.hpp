// Transpose: the axes of a tensor in another order.
#ifndef OPKIT_OPS_TRANSPOSE_HPP_
#define OPKIT_OPS_TRANSPOSE_HPP_

#include "opkit/ops/axes.hpp"
#include "opkit/ops/standard_operator.hpp"
#include "opkit/ops/strided_copy.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Axis i of the output is axis order[i] of the input. Error (kInvalidArgument) for a `perm` that
// does not name every axis once.
inline Dims TransposeOrder(const Arguments& args, int rank) {
  auto order = args.Get<std::vector<int64_t>>("perm", {});
  if (!args.Has("perm"))
    for (int i = 0; i < rank; ++i) order.push_back(rank - 1 - i);
  if (order.size() != static_cast<size_t>(rank))
    Throw(ErrorCode::kInvalidArgument, "Transpose: perm ", order, " must name each axis once, and ",
          "the input has rank ", rank);
  static_cast<void>(AxisMask(order, rank, "Transpose"));
  for (int64_t& axis : order) axis = NormalizeAxis(axis, rank, "Transpose");
  return order;
}

inline void InferTranspose(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  SymbolicShape shape;
  if (input.has_rank()) {
    std::vector<Dim> dims;
    for (const int64_t axis : TransposeOrder(c.args(), input.rank()))
      dims.push_back(input[static_cast<int>(axis)]);
    shape = SymbolicShape(std::move(dims));
  } else if (c.args().Has("perm")) {
    const auto order = c.Arg<std::vector<int64_t>>("perm", {});
    shape = SymbolicShape::OfRank(static_cast<int>(order.size()));
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

class TransposeGradient final : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  bool CopyArguments() const override { return false; }
  std::vector<OperatorDef> GetGradientDefs() override {
    OperatorDef back("Transpose", {GO(0)}, {GI(0)});
    if (Def().args().Has("perm")) {
      const int rank = static_cast<int>(Def().args().Get<std::vector<int64_t>>("perm").size());
      const Dims order = TransposeOrder(Def().args(), rank);
      std::vector<int64_t> inverse(static_cast<size_t>(rank));
      for (int i = 0; i < rank; ++i) inverse[static_cast<size_t>(order[i])] = i;
      back.Arg("perm", inverse);
    }
    return {back};
  }
};

}  // namespace detail

class TransposeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (order_.size() != x.rank()) order_ = detail::TransposeOrder(def().args(), x.rank());
    const Dims from = x.strides(), to = y->shape().DenseStrides();
    copy_.Start(ItemSize(x.dtype()));
    for (int i = 0; i < x.rank(); ++i)
      copy_.Axis(y->dim(i), from[static_cast<int>(order_[i])], to[i]);
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  Dims order_;
  StridedCopy copy_;
};

OPKIT_OPERATOR_SCHEMA(Transpose)
    .NumInputs(1)
    .NumOutputs(1)
    .Input(0, "data", "any tensor")
    .Output(0, "transposed", "axis i is axis perm[i] of `data`")
    .Arg<std::vector<int64_t>>("perm", "every axis of `data` once; by default the reverse order")
    .TensorInferenceFunction(detail::InferTranspose)
    .PointwiseCost(0)
    .SetDoc("Puts the axes of a tensor in another order.");
OPKIT_REGISTER_CPU_OPERATOR(Transpose, TransposeOp);
OPKIT_REGISTER_GRADIENT(Transpose, detail::TransposeGradient);

}  // namespace opkit

#endif  // OPKIT_OPS_TRANSPOSE_HPP_

// GatherND: copies slices of a tensor whose first indices another tensor gives. Source:
// https://onnx.ai/onnx/operators/onnx__GatherND.html, opset 13.
#ifndef OPKIT_OPS_INDEXING_GATHER_ND_HPP_
#define OPKIT_OPS_INDEXING_GATHER_ND_HPP_

#include <cstring>

#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferGatherND(InferenceContext& c) {
  const SymbolicShape &data = c.input_shape(0), &indices = c.input_shape(1);
  const auto batch = c.Arg<int64_t>("batch_dims");
  auto fail = [&](const char* expected) {
    Throw(ErrorCode::kInvalidArgument, "GatherND: data ", ToString(data), ", indices ",
          ToString(indices), ", batch_dims ", batch, ": expected ", expected);
  };
  if (batch < 0) fail("batch_dims of 0 or more");
  if (indices.has_rank() && batch >= indices.rank()) fail("indices of a rank above batch_dims");
  SymbolicShape shape;
  if (data.has_rank() && indices.has_rank()) {
    if (batch >= data.rank()) fail("data of a rank above batch_dims");
    for (int i = 0; i < batch; ++i)
      if (data[i].is_known() && indices[i].is_known() && data[i].value() != indices[i].value())
        fail("the same first extents in both");
    if (indices[-1].is_known()) {
      const int64_t depth = indices[-1].value();
      if (depth > data.rank() - batch) fail("indices no longer than the other axes of data");
      std::vector<Dim> dims(indices.dims().begin(), indices.dims().end() - 1);
      dims.insert(dims.end(), data.dims().begin() + batch + depth, data.dims().end());
      shape = SymbolicShape(std::move(dims));
    }
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

OPKIT_NODE_GRADIENT(GatherND) {
  if (Def().args().Get<int64_t>("batch_dims", 0) != 0)
    Throw(ErrorCode::kUnsupported, "GatherND has a gradient only without batch_dims");
  Give(0, "ScatterND", {Node("ZerosLike", {I(0)}), I(1), GO(0)}, {{"reduction", "add"}});
}

}  // namespace detail

class GatherNDOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &indices = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const auto batch = static_cast<int>(batch_);
    const int depth = static_cast<int>(indices.dim(-1));
    const int64_t batches = x.shape().NumelBetween(0, batch);
    const int64_t count = indices.shape().NumelBetween(0, indices.rank() - 1);
    const int64_t bytes = x.shape().NumelBetween(batch + depth, x.rank()) * ItemSize(x.dtype());
    const int64_t* index = indices.data<int64_t>();
    const auto* from = static_cast<const char*>(x.raw_data());
    auto* to = static_cast<char*>(y->raw_mutable_data());
    for (int64_t i = 0; i < count; ++i, to += bytes) {
      int64_t slice = i / (count / batches);
      for (int axis = batch; axis < batch + depth; ++axis, ++index) {
        const int64_t extent = x.dim(axis), at = *index < 0 ? *index + extent : *index;
        if (at < 0 || at >= extent)
          Throw(ErrorCode::kOutOfRange, "GatherND: index ", *index, " is outside axis ", axis,
                " of extent ", extent);
        slice = slice * extent + at;
      }
      std::memcpy(to, from + slice * bytes, static_cast<size_t>(bytes));
    }
    return true;
  }

 private:
  const int64_t batch_ = GetSingleArgument<int64_t>("batch_dims");
};

OPKIT_STANDARD_OPERATOR(GatherND, kMaker, MovingStrings<GatherNDOp>)
    .TakesStrings()
    .NumInputs(2)
    .Input(0, "data", "any tensor of rank 1 or more")
    .Input(1, "indices",
           "the last axis holds indices into `data`, of the axes after the first `batch_dims`; "
           "negative ones count from the end",
           {DType::kInt64})
    .Output(0, "output",
            "the shape of `indices` without its last axis, and with the axes of `data` that have "
            "no index")
    .Arg<int64_t>("batch_dims", "the number of first axes that `data` and `indices` share", 0)
    .Infer(detail::InferGatherND)
    .Doc("Slices of a tensor, by their first indices. It has a gradient without batch_dims.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_GATHER_ND_HPP_

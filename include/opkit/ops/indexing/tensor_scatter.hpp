// TensorScatter: writes new steps into a cache of keys or values. Source:
// https://onnx.ai/onnx/operators/onnx__TensorScatter.html, opset 24.
#ifndef OPKIT_OPS_INDEXING_TENSOR_SCATTER_HPP_
#define OPKIT_OPS_INDEXING_TENSOR_SCATTER_HPP_

#include <cstring>

#include "opkit/ops/support/axes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferTensorScatter(InferenceContext& c) {
  const SymbolicShape &cache = c.input_shape(0), &update = c.input_shape(1);
  auto fail = [&](const char* expected) {
    Throw(ErrorCode::kInvalidArgument, "TensorScatter: past_cache ", ToString(cache), ", update ",
          ToString(update), ": expected ", expected);
  };
  if (cache.has_rank()) {
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), cache.rank(), "TensorScatter");
    if (axis == 0) fail("another axis than 0, the batch");
    if (update.has_rank()) {
      if (update.rank() != cache.rank()) fail("one rank");
      for (int i = 0; i < cache.rank(); ++i) {
        if (i != axis && !Dim::Compatible(cache[i], update[i]))
          fail("equal extents but along the axis");
        if (i == axis && cache[i].is_known() && update[i].is_known() &&
            update[i].value() > cache[i].value())
          fail("no more new steps than the cache has");
      }
    }
    if (c.HasInput(2)) c.SetInput(2, DType::kInt64, {cache[0]});
  }
  c.SetInput(1, c.input_dtype(0), update);
  c.SetOutput(0, c.input_dtype(0), cache);
}

}  // namespace detail

class TensorScatterOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &cache = DenseInput(0), &update = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const int axis = NormalizeAxis(GetSingleArgument<int64_t>("axis"), cache.rank(), type());
    const int64_t most = cache.dim(axis), steps = update.dim(axis), batches = cache.dim(0);
    const int64_t* starts = HasInput(2) ? DenseInput(2).data<int64_t>() : nullptr;
    for (int64_t i = 0; i < batches && starts; ++i)
      if (starts[i] < 0 || (!circular_ && starts[i] > most - steps))
        Throw(ErrorCode::kOutOfRange, "TensorScatter: write index ", starts[i], " and ", steps,
              " steps do not fit a cache of ", most, " steps; mode=circular would wrap around");
    const int64_t bytes =
        cache.shape().NumelBetween(axis + 1, cache.rank()) * ItemSize(cache.dtype());
    const int64_t rows = cache.shape().NumelBetween(0, axis);
    auto* to = static_cast<char*>(y->raw_mutable_data());
    const auto* from = static_cast<const char*>(update.raw_data());
    if (y->nbytes() == 0) return true;
    std::memcpy(to, cache.raw_data(), static_cast<size_t>(cache.nbytes()));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = starts ? starts[row / (rows / batches)] : 0;
      for (int64_t step = 0; step < steps; ++step)
        std::memcpy(to + (row * most + (start % most + step) % most) * bytes,
                    from + (row * steps + step) * bytes, static_cast<size_t>(bytes));
    }
    return true;
  }

 private:
  const bool circular_ = GetSingleArgument<std::string>("mode", "linear") == "circular";
};

OPKIT_STANDARD_OPERATOR(TensorScatter, kNotImplemented, TensorScatterOp)
    .NumInputs(2, 3)
    .Input(0, "past_cache", "[batch, …, most steps, …]")
    .Input(1, "update", "[batch, …, new steps, …], of the type of `past_cache`")
    .Input(2, "write_indices", "[batch]: where the new steps begin; 0 without it", {DType::kInt64})
    .Output(0, "present_cache", "of the type and shape of `past_cache`")
    .Arg<int64_t>("axis", "of the steps; negative ones count from the end", -2)
    .Arg("mode", "circular: steps behind the end are written at the begin", {"linear", "circular"})
    .Infer(detail::InferTensorScatter)
    .Doc("A cache of keys or values with new steps.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_TENSOR_SCATTER_HPP_

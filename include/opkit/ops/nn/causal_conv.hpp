// CausalConvWithState: a convolution of each channel with its own kernel over the past steps, which
// carries the last steps to the next call. Source:
// https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html, opset 27.
#ifndef OPKIT_OPS_NN_CAUSAL_CONV_HPP_
#define OPKIT_OPS_NN_CAUSAL_CONV_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferCausalConv(InferenceContext& c) {
  ExpectSameDType(c);
  const SymbolicShape &x = c.input_shape(0), &weight = c.input_shape(1);
  auto expect = [&](int i, const char* name, const SymbolicShape& expected) {
    if (!c.HasInput(i) || !c.input_shape(i).has_rank()) return;
    const SymbolicShape& found = c.input_shape(i);
    bool fits = found.rank() == expected.rank();
    for (int axis = 0; fits && axis < found.rank(); ++axis)
      fits = Dim::Compatible(found[axis], expected[axis]);
    if (!fits)
      Throw(ErrorCode::kInvalidArgument, "CausalConvWithState: ", name, " has shape ",
            ToString(found), ", expected ", ToString(expected));
  };
  Dim batch, channels, past;
  expect(0, "input", SymbolicShape::OfRank(3));
  if (x.has_rank()) batch = x[0], channels = x[1];
  expect(1, "weight", {channels, 1, Dim()});
  if (weight.has_rank()) {
    if (!channels.is_known()) channels = weight[0];
    if (weight[2].is_known()) {
      if (weight[2].value() < 1)
        Throw(ErrorCode::kInvalidArgument, "CausalConvWithState: weight has shape ",
              ToString(weight), ", expected a kernel of 1 or more");
      past = weight[2].value() - 1;
    }
  }
  expect(2, "bias", {channels});
  expect(3, "past_state", {batch, channels, past});
  c.SetOutput(0, c.input_dtype(0), x);
  if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(0), {batch, channels, past});
}

}  // namespace detail

// Computes in double. Each thread computes whole channels.
class CausalConvOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    Tensor* present = HasOutput(1) ? InferredOutput(1) : nullptr;
    const Tensor &x = DenseInput(0), &weight = DenseInput(1);
    const Tensor* bias = HasInput(2) ? &DenseInput(2) : nullptr;
    const Tensor* past = HasInput(3) ? &DenseInput(3) : nullptr;
    const int64_t channels = x.dim(1), steps = x.dim(2), size = weight.dim(2), before = size - 1;
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(x.dim(0) * channels, [&](int64_t row) {
        const int64_t channel = row % channels;
        // The steps of the past, and then those of the input.
        std::vector<T> line(detail::Index(before + steps), T(0.f));
        const auto copy = [&](const T* from, int64_t count, int64_t at) {
          std::copy(from, from + count, line.begin() + at);
        };
        if (past) copy(past->data<T>() + row * before, before, 0);
        copy(x.data<T>() + row * steps, steps, before);
        const T* factors = weight.data<T>() + channel * size;
        const double start = bias ? static_cast<double>(bias->data<T>()[channel]) : 0;
        T* out = y->mutable_data<T>() + row * steps;
        for (int64_t step = 0; step < steps; ++step) {
          double sum = start;
          for (int64_t i = 0; i < size; ++i)
            sum += static_cast<double>(factors[i]) *
                   static_cast<double>(line[detail::Index(step + i)]);
          out[step] = ConvertElement<T>(silu_ ? sum / (1 + std::exp(-sum)) : sum);
        }
        if (present)
          std::copy(line.end() - before, line.end(), present->mutable_data<T>() + row * before);
      });
    });
  }

 private:
  const bool silu_ = GetSingleArgument<std::string>("activation", "none") != "none";
};

OPKIT_STANDARD_OPERATOR(CausalConvWithState, kNotImplemented, CausalConvOp)
    .NumInputs(2, 4)
    .NumOutputs(1, 2)
    .Input(0, "input", "[batch, channels, steps]", FloatTypes::DTypes())
    .Input(1, "weight", "[channels, 1, k]: a kernel for each channel", FloatTypes::DTypes())
    .Input(2, "bias", "[channels]", FloatTypes::DTypes())
    .Input(3, "past_state", "[batch, channels, k - 1]: the steps before the input; by default 0",
           FloatTypes::DTypes())
    .Output(0, "output", "of the shape of the input", FloatTypes::DTypes())
    .Output(1, "present_state", "[batch, channels, k - 1]: the last steps", FloatTypes::DTypes())
    .Arg("activation", "silu and swish: x * sigmoid(x) of the result", {"none", "silu", "swish"})
    .Flops([](auto& c) {
      const Shape weight = c.input(1).shape.ToShape();
      return weight.rank() < 3
                 ? 0
                 : 2 * OpSchema::Elements(c.input(0)) * static_cast<uint64_t>(weight.dim(2));
    })
    .Infer(detail::InferCausalConv)
    .Doc(
        "The convolution of each channel with its own kernel, whose last element meets the current "
        "step.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_CAUSAL_CONV_HPP_

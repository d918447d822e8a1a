// CausalConvWithState: a convolution of each channel with its own kernel over the past steps, which
// carries the last steps to the next call. Source:
// https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html, opset 27.
#ifndef OPKIT_OPS_NN_CAUSAL_CONV_HPP_
#define OPKIT_OPS_NN_CAUSAL_CONV_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

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

// The operator CausalConvGradient computes the gradients of all inputs together.
OPKIT_NODE_GRADIENT(CausalConvWithState) {
  GiveTogether("CausalConvGradient", 4, {0, 1, 2, 3}, Def().args());
}

}  // namespace detail

// The base of CausalConvWithState and of its gradient. Computes in double.
class CausalConvOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Returns the steps of the past, and behind them those of the input, of one channel of one
  // sequence.
  template <class T>
  std::vector<T> Line(int64_t row) const {
    const int64_t steps = Input(0).dim(2), before = Input(1).dim(2) - 1;
    std::vector<T> line(detail::Index(before + steps), T(0.f));
    const auto copy = [&](const T* from, int64_t count, int64_t at) {
      std::copy(from, from + count, line.begin() + at);
    };
    if (past_) copy(past_->data<T>() + row * before, before, 0);
    copy(x_->data<T>() + row * steps, steps, before);
    return line;
  }
  // Returns the result of one step, before the activation.
  template <class T>
  double Sum(const std::vector<T>& line, int64_t channel, int64_t step) const {
    const int64_t size = weight_->dim(2);
    const T* factors = weight_->data<T>() + channel * size;
    double sum = bias_ ? static_cast<double>(bias_->data<T>()[channel]) : 0;
    for (int64_t i = 0; i < size; ++i)
      sum += static_cast<double>(factors[i]) * static_cast<double>(line[detail::Index(step + i)]);
    return sum;
  }
  void ReadInputs() {
    x_ = &DenseInput(0);
    weight_ = &DenseInput(1);
    bias_ = HasInput(2) ? &DenseInput(2) : nullptr;
    past_ = HasInput(3) ? &DenseInput(3) : nullptr;
  }

  const Tensor *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr, *past_ = nullptr;
  const bool silu_ = GetSingleArgument<std::string>("activation", "none") != "none";
};

// Each thread computes whole channels.
class CausalConvOp final : public CausalConvOpBase {
 public:
  using CausalConvOpBase::CausalConvOpBase;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    Tensor* present = HasOutput(1) ? InferredOutput(1) : nullptr;
    ReadInputs();
    const int64_t channels = x_->dim(1), steps = x_->dim(2), before = weight_->dim(2) - 1;
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(x_->dim(0) * channels, [&](int64_t row) {
        const std::vector<T> line = Line<T>(row);
        T* out = y->mutable_data<T>() + row * steps;
        for (int64_t step = 0; step < steps; ++step) {
          const double sum = Sum(line, row % channels, step);
          out[step] = ConvertElement<T>(silu_ ? sum / (1 + std::exp(-sum)) : sum);
        }
        if (present)
          std::copy(line.end() - before, line.end(), present->mutable_data<T>() + row * before);
      });
    });
  }
};

// Computes the gradients of the input, the weight, the bias and the past state. Each thread
// computes whole channels, with all their sequences, which share a kernel.
class CausalConvGradientOp final : public CausalConvOpBase {
 public:
  using CausalConvOpBase::CausalConvOpBase;
  bool RunOnDevice() override {
    Infer();
    ReadInputs();
    const Tensor* dy = HasInput(4) ? &DenseInput(4) : nullptr;
    const Tensor* dpresent = InputSize() > 5 && HasInput(5) ? &DenseInput(5) : nullptr;
    Tensor* to[4] = {};
    for (int o = 0; o < OutputSize(); ++o) to[o] = HasOutput(o) ? InferredOutput(o) : nullptr;
    const int64_t channels = x_->dim(1), steps = x_->dim(2), size = weight_->dim(2);
    const int64_t before = size - 1;
    return Visit<FloatTypes>([&]<class T>() {
      const auto store = [](Tensor* tensor, int64_t at, const double* from, int64_t count) {
        for (int64_t i = 0; tensor && i < count; ++i)
          tensor->mutable_data<T>()[at + i] = ConvertElement<T>(from[i]);
      };
      ParallelFor(channels, [&](int64_t channel) {
        const T* factors = weight_->data<T>() + channel * size;
        std::vector<double> to_weight(static_cast<size_t>(size));
        double to_bias = 0;
        for (int64_t n = 0; n < x_->dim(0); ++n) {
          const int64_t row = n * channels + channel;
          const std::vector<T> line = Line<T>(row);
          std::vector<double> to_line(line.size());
          for (int64_t step = 0; dy && step < steps; ++step) {
            double slope = static_cast<double>(dy->data<T>()[row * steps + step]);
            if (silu_) {
              const double sum = Sum(line, channel, step), sigmoid = 1 / (1 + std::exp(-sum));
              slope *= sigmoid * (1 + sum * (1 - sigmoid));
            }
            to_bias += slope;
            for (int64_t i = 0; i < size; ++i) {
              to_weight[detail::Index(i)] +=
                  slope * static_cast<double>(line[detail::Index(step + i)]);
              to_line[detail::Index(step + i)] += slope * static_cast<double>(factors[i]);
            }
          }
          for (int64_t i = 0; dpresent && i < before; ++i)
            to_line[detail::Index(steps + i)] +=
                static_cast<double>(dpresent->data<T>()[row * before + i]);
          store(to[0], row * steps, to_line.data() + before, steps);
          store(to[3], row * before, to_line.data(), before);
        }
        store(to[1], channel * size, to_weight.data(), size);
        store(to[2], channel, &to_bias, 1);
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(CausalConvWithState, kMaker, CausalConvOp)
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

OPKIT_STANDARD_OPERATOR(CausalConvGradient, kNotImplemented, CausalConvGradientOp)
    .Private()
    .NumInputs(5, 6)
    .NumOutputs(1, 4)
    .Input(0, "input", "of CausalConvWithState", FloatTypes::DTypes())
    .Input(1, "weight", "of CausalConvWithState", FloatTypes::DTypes())
    .Input(2, "bias", "of CausalConvWithState", FloatTypes::DTypes())
    .Input(3, "past_state", "of CausalConvWithState", FloatTypes::DTypes())
    .Input(4, "doutput", "of the first output; optional: 0", FloatTypes::DTypes())
    .Input(5, "dpresent_state", "of the second output; optional: 0", FloatTypes::DTypes())
    .Output(0, "dinput", "as the input")
    .Output(1, "dweight", "as the weight")
    .Output(2, "dbias", "as the bias, optional")
    .Output(3, "dpast_state", "as the past state, optional")
    .Arg("activation", "of CausalConvWithState", {"none", "silu", "swish"})
    .PointwiseCost(20)
    .Infer([](InferenceContext& c) {
      for (int o = 0; o < c.num_outputs(); ++o) c.SetOutput(o, c.input_dtype(0), c.input_shape(o));
    })
    .Doc("The gradients of a CausalConvWithState, from those of its outputs.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_CAUSAL_CONV_HPP_

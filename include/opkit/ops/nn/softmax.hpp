// Softmax and LogSoftmax along one axis. Sources:
// https://onnx.ai/onnx/operators/onnx__Softmax.html,
// https://onnx.ai/onnx/operators/onnx__LogSoftmax.html.
#ifndef OPKIT_OPS_NN_SOFTMAX_HPP_
#define OPKIT_OPS_NN_SOFTMAX_HPP_

#include <cmath>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

template <bool kLog>
class SoftmaxOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;

  // Computes in double, after subtracting the largest element, so that nothing overflows.
  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* out = InferredOutput(0);
      if (out->numel() == 0) return;
      const Tensor& in = DenseInput(0);
      const AxisSplit split(in.shape(), Axis(in.rank()));
      const T* input = in.data<T>();
      T* output = out->mutable_data<T>();
      ParallelFor(split.rows(), [&](int64_t row) {
        const T* x = input + split.Begin(row);
        T* y = output + split.Begin(row);
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t i = 0; i < split.extent; ++i) {
          const auto value = static_cast<double>(x[i * split.inner]);
          if (value > largest || std::isnan(value)) largest = value;
        }
        for (int64_t i = 0; i < split.extent; ++i)
          sum += std::exp(static_cast<double>(x[i * split.inner]) - largest);
        for (int64_t i = 0; i < split.extent; ++i) {
          const double shifted = static_cast<double>(x[i * split.inner]) - largest;
          y[i * split.inner] =
              detail::ElementOfSum<T>(kLog ? shifted - std::log(sum) : std::exp(shifted) / sum);
        }
      });
    });
  }
};

namespace detail {

inline void InferSoftmax(InferenceContext& c) {
  if (c.input_shape(0).has_rank())
    NormalizeAxis(c.Arg<int64_t>("axis"), c.input_shape(0).rank(), c.def().type());
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
  c.SetInput(0, c.output(0).dtype, c.output(0).shape);
}

inline void FillSoftmaxSchema(OpSchema& schema) {
  schema.Input(0, "input", "a tensor", FloatTypes::DTypes())
      .Output(0, "output", "as the input")
      .Arg<int64_t>("axis", "the axis to sum along; negative: from the last", -1)
      .Inplace({{0, 0}})
      .PointwiseCost(4)
      .Infer(&InferSoftmax);
}

// The gradient dX of X from the gradient dY of the output Y. Softmax: dX = Y * (dY - sum(dY * Y)).
// LogSoftmax: dX = dY - exp(Y) * sum(dY).
template <bool kLog>
class SoftmaxGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override {
    const int64_t axis = Def().args().template Get<int64_t>("axis", -1);
    const std::string axes = Node("Constant", {}, {{"value_ints", std::vector<int64_t>{axis}}});
    const std::string sum = Node("ReduceSum", {kLog ? GO(0) : Node("Mul", {GO(0), O(0)}), axes});
    kLog ? Give(0, "Sub", {GO(0), Node("Mul", {Node("Exp", {O(0)}), sum})})
         : Give(0, "Mul", {O(0), Node("Sub", {GO(0), sum})});
  }
};

}  // namespace detail

OPKIT_STANDARD_OPERATOR(Softmax, kMaker, SoftmaxOp<false>)
    .Doc("exp(x) divided by the sum of it along one axis: numbers above 0 that add up to 1.")
    .FillUsing(detail::FillSoftmaxSchema);
OPKIT_REGISTER_GRADIENT(Softmax, detail::SoftmaxGradient<false>);

OPKIT_STANDARD_OPERATOR(LogSoftmax, kMaker, SoftmaxOp<true>)
    .Doc("The logarithm of Softmax, without the loss that taking one after the other has.")
    .FillUsing(detail::FillSoftmaxSchema);
OPKIT_REGISTER_GRADIENT(LogSoftmax, detail::SoftmaxGradient<true>);

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_SOFTMAX_HPP_

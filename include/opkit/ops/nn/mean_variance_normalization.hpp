// MeanVarianceNormalization: gives the elements along some axes the mean 0 and the variance 1.
// Source: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html, opset 13.
#ifndef OPKIT_OPS_NN_MEAN_VARIANCE_NORMALIZATION_HPP_
#define OPKIT_OPS_NN_MEAN_VARIANCE_NORMALIZATION_HPP_

#include <cmath>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Computes in double, on one thread.
class MeanVarianceNormalizationOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const std::vector<char> mask = AxisMask(axes_, x.rank(), type());
    Dims kept = x.shape();
    for (int i = 0; i < kept.size(); ++i)
      if (mask[detail::Index(i)]) kept[i] = 1;
    const Shape groups(kept);
    if (x.numel() == 0) return true;
    const BroadcastLoop loop(x.shape(), {&groups});
    const auto size = static_cast<double>(x.numel() / groups.numel());
    std::vector<double> means(static_cast<size_t>(groups.numel()), 0), variances = means;
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      auto for_each = [&](auto f) {  // f(index of an element, index of its group)
        loop.Walk(0, loop.size(), [&](int64_t at, int64_t n, const int64_t* place) {
          for (int64_t i = 0; i < n; ++i) f(at + i, detail::Index(place[0] + i * loop.step(0)));
        });
      };
      for_each([&](int64_t i, size_t group) { means[group] += static_cast<double>(from[i]); });
      for (double& mean : means) mean /= size;
      for_each([&](int64_t i, size_t group) {
        const double distance = static_cast<double>(from[i]) - means[group];
        variances[group] += distance * distance / size;
      });
      for_each([&](int64_t i, size_t group) {
        const double distance = static_cast<double>(from[i]) - means[group];
        to[i] = ConvertElement<T>(distance / (std::sqrt(variances[group]) + 1e-9));
      });
    });
  }

 private:
  const std::vector<int64_t> axes_ = GetRepeatedArgument<int64_t>("axes", {0, 2, 3});
};

namespace detail {

// With s the standard deviation: (g - mean(g) - y mean(g y)) / s. The node of the forward direction
// gives y.
OPKIT_NODE_GRADIENT(MeanVarianceNormalization) {
  const std::vector<int64_t> axes = Def().args().Get<std::vector<int64_t>>("axes", {0, 2, 3});
  const std::string list = Node("Constant", {}, {{"value_ints", axes}});
  auto mean = [&](const std::string& of) { return Node("ReduceMean", {of, list}); };
  const std::string distance = Node("Sub", {I(0), mean(I(0))});
  const std::string deviation = Node("Sqrt", {mean(Node("Mul", {distance, distance}))});
  const std::string centered = Node("Sub", {GO(0), mean(GO(0))});
  const std::string along = Node("Mul", {O(0), mean(Node("Mul", {GO(0), O(0)}))});
  Give(0, "Div", {Node("Sub", {centered, along}), deviation});
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(MeanVarianceNormalization, kMaker, MeanVarianceNormalizationOp)
    .Input(0, "X", "any tensor that has the axes", FloatTypes::DTypes())
    .Output(0, "Y", "of the type and shape of X", FloatTypes::DTypes())
    .Arg<std::vector<int64_t>>(
        "axes", "whose elements are normalized together; 0, 2 and 3 where it is left out")
    .PointwiseCost(6)
    .Infer([](InferenceContext& c) {
      const SymbolicShape& x = c.input_shape(0);
      if (x.has_rank())
        AxisMask(c.args().Get<std::vector<int64_t>>("axes", {0, 2, 3}), x.rank(),
                 "MeanVarianceNormalization");
      c.SetOutput(0, c.input_dtype(0), x);
    })
    .Doc("Elements with the mean 0 and the variance 1 along some axes.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_MEAN_VARIANCE_NORMALIZATION_HPP_

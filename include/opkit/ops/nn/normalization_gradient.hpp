// NormalizationGradient: the base of the gradients of BatchNormalization, GroupNormalization,
// InstanceNormalization and LayerNormalization.
#ifndef OPKIT_OPS_NN_NORMALIZATION_GRADIENT_HPP_
#define OPKIT_OPS_NN_NORMALIZATION_GRADIENT_HPP_

#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class NormalizationGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 protected:
  std::string Mean(const std::string& x, const std::string& axes) {
    return Node("ReduceMean", {x, axes}, {{"noop_with_empty_axes", 1}});
  }
  // A tensor with the mean 0 and the variance 1 along some axes.
  struct Normalized {
    std::string value, rate;  // rate: 1 / sqrt(variance + epsilon)
    std::string axes;
  };
  Normalized Normalize(const std::string& x, const std::string& axes) {
    const std::string distance = Node("Sub", {x, Mean(x, axes)});
    const std::string variance = Mean(Node("Mul", {distance, distance}), axes);
    const std::string rate = RateOf(variance);
    return {Node("Mul", {distance, rate}), rate, axes};
  }
  // Returns the name of 1 / sqrt(variance + epsilon).
  std::string RateOf(const std::string& variance) {
    const std::string epsilon = Number(Def().args().Get<float>("epsilon", 1e-5f), variance);
    return Node("Reciprocal", {Node("Sqrt", {Node("Add", {variance, epsilon})})});
  }
  // Returns the name of the gradient of x, where `slope` is the gradient of the normalized value.
  std::string ThroughNormalize(const Normalized& x, const std::string& slope) {
    const std::string along = Mean(Node("Mul", {slope, x.value}), x.axes);
    const std::string centered = Node("Sub", {slope, Mean(slope, x.axes)});
    return Node("Mul", {Node("Sub", {centered, Node("Mul", {x.value, along})}), x.rate});
  }
  // Returns the name of input i, which has an element for each channel, as a tensor that is
  // broadcast along axis 1 of input 0, and has the type of input 0.
  std::string PerChannel(int i) {
    const std::string rest =
        Node("Range", {Integer(1), Node("Sub", {RankOf(I(0)), Integer(1)}), Integer(1)});
    return Node("CastLike", {Node("Unsqueeze", {I(i), rest}), I(0)});
  }
  // Sets the gradient of input i, where `gradient` has the shape of input 0 and `like` is the input
  // as it is broadcast.
  void GivePerChannel(int i, const std::string& gradient, const std::string& like) {
    const std::string sum = Node("SumToShape", {gradient, like});
    Give(i, "Reshape", {Node("CastLike", {sum, I(i)}), Node("Shape", {I(i)})});
  }
  // Returns the name of the gradient of x, where `slope` is the gradient of its mean or variance:
  // divides each element by the number of elements of x for which there is one.
  std::string Average(const std::string& slope, const std::string& axes) {
    return Node("ReduceGradient", {I(0), axes, slope}, {{"mean", 1}, {"noop_with_empty_axes", 1}});
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_NN_NORMALIZATION_GRADIENT_HPP_

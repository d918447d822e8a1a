// GroupNormalization: gives groups of channels the mean 0 and the variance 1. Sources:
// https://onnx.ai/onnx/operators/onnx__GroupNormalization.html, opset 21; Wu and He, "Group
// Normalization", 2018 (https://arxiv.org/abs/1803.08494).
#ifndef OPKIT_OPS_NN_GROUP_NORMALIZATION_HPP_
#define OPKIT_OPS_NN_GROUP_NORMALIZATION_HPP_

#include <cmath>

#include "opkit/ops/nn/normalization_gradient.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The mean and the variance of `count` numbers, in double.
struct GroupMoments {
  double mean = 0, variance = 0;

  template <class At>
  static GroupMoments Of(int64_t count, At at) {
    GroupMoments moments;
    const auto n = static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) moments.mean += at(i);
    moments.mean /= n;
    for (int64_t i = 0; i < count; ++i) {
      const double distance = at(i) - moments.mean;
      moments.variance += distance * distance;
    }
    moments.variance /= n;
    return moments;
  }
};

inline void InferGroupNormalization(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  const auto groups = c.Arg<int64_t>("num_groups");
  auto fail = [&](const char* expected) {
    Throw(ErrorCode::kInvalidArgument, "GroupNormalization: X ", ToString(x), ", num_groups ",
          groups, ": expected ", expected);
  };
  if (groups < 1) fail("one group or more");
  if (x.has_rank()) {
    if (x.rank() < 2) fail("a batch and channels");
    if (x[1].is_known() && x[1].value() % groups != 0)
      fail("channels that the groups share evenly");
    for (int i = 1; i < 3; ++i) c.SetInput(i, c.input_dtype(0), {x[1]});
  }
  c.SetOutput(0, c.input_dtype(0), x);
}

class GroupNormalizationGradient final : public NormalizationGradient {
 public:
  using NormalizationGradient::NormalizationGradient;

 private:
  void Make() override {
    const auto groups = Def().args().Get<int64_t>("num_groups");
    const auto grouped = [&](const std::string& data) {
      return Node("Reshape", {data, Integers({0, groups, -1})});
    };
    const std::string shape = Node("Shape", {I(0)});
    const Normalized x = Normalize(grouped(I(0)), Integers({2}));
    const std::string scale = PerChannel(1);
    const std::string slope = grouped(Node("Mul", {GO(0), scale}));
    Give(0, "Reshape", {ThroughNormalize(x, slope), shape});
    const std::string normal = Node("Reshape", {x.value, shape});
    GivePerChannel(1, Node("Mul", {GO(0), normal}), scale);
    GivePerChannel(2, GO(0), scale);
  }
};
OPKIT_REGISTER_GRADIENT(GroupNormalization, GroupNormalizationGradient);

}  // namespace detail

class GroupNormalizationOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor& x = DenseInput(0);
    const std::vector<double> scale = detail::NumbersOf<double>(DenseInput(1));
    const std::vector<double> bias = detail::NumbersOf<double>(DenseInput(2));
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
    const int64_t size = channels / groups_ * pixels;  // of a group
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelFor(x.dim(0) * groups_, [&](int64_t group) {
        const T* in = from + group * size;
        const auto moments =
            detail::GroupMoments::Of(size, [&](int64_t i) { return static_cast<double>(in[i]); });
        const double factor = 1 / std::sqrt(moments.variance + epsilon_);
        for (int64_t i = 0; i < size; i += pixels) {
          const size_t channel = detail::Index((group * size + i) / pixels % channels);
          for (int64_t pixel = i; pixel < i + pixels; ++pixel) {
            const double normal = (static_cast<double>(in[pixel]) - moments.mean) * factor;
            to[group * size + pixel] = ConvertElement<T>(normal * scale[channel] + bias[channel]);
          }
        }
      });
    });
  }

 private:
  const int64_t groups_ = GetSingleArgument<int64_t>("num_groups");
  const double epsilon_ = static_cast<double>(GetSingleArgument<float>("epsilon"));
};

OPKIT_STANDARD_OPERATOR(GroupNormalization, kMaker, GroupNormalizationOp)
    .NumInputs(3)
    .Input(0, "X", "[N, C, ...]", FloatTypes::DTypes())
    .Input(1, "scale", "[C]: a factor of each channel", FloatTypes::DTypes())
    .Input(2, "bias", "[C]: added to each channel", FloatTypes::DTypes())
    .Output(0, "Y", "of the type and shape of X", FloatTypes::DTypes())
    .Arg<float>("epsilon", "added to the variance", 1e-5f)
    .RequiredArg<int64_t>("num_groups", "the number of groups of neighbouring channels")
    .Arg<int64_t>("stash_type",
                  "ONNX's number of the type to compute in; opkit computes in double anyway", 1)
    .PointwiseCost(6)
    .Infer(detail::InferGroupNormalization)
    .Doc("Groups of channels with the mean 0 and the variance 1, times a scale, plus a bias.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_GROUP_NORMALIZATION_HPP_

// BatchNormalization, InstanceNormalization and LRN: scale channels by statistics of the batch, of
// each image, or of neighbouring channels. Sources:
// https://onnx.ai/onnx/operators/onnx__BatchNormalization.html (https://arxiv.org/abs/1502.03167),
// onnx__InstanceNormalization.html, onnx__LRN.html.
#ifndef OPKIT_OPS_NN_NORMALIZATION_HPP_
#define OPKIT_OPS_NN_NORMALIZATION_HPP_

#include <cmath>

#include "opkit/graph/passes/batch_normalization.hpp"
#include "opkit/ops/nn/normalization_gradient.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of channels, the extent of axis 1. A tensor of rank 1 has one channel. Throws
// kInvalidArgument for a rank below `least_rank`.
inline Dim NormalizedChannels(InferenceContext& c, int least_rank) {
  const SymbolicShape& x = c.input_shape(0);
  if (!x.has_rank()) return {};
  if (x.rank() < least_rank)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": X is ", ToString(x),
          ", expected a rank of at least ", least_rank);
  return x.rank() == 1 ? Dim(1) : x[1];
}

// Returns the shape of the statistics: [C], or the shape of one sample if the attribute `spatial`
// is 0.
inline SymbolicShape BatchStatisticsShape(InferenceContext& c) {
  const bool spatial = c.Arg<int64_t>("spatial") != 0;
  const Dim channels = NormalizedChannels(c, spatial ? 1 : 2);
  if (spatial) return {channels};
  if (!c.input_shape(0).has_rank()) return {};
  const std::vector<Dim>& x = c.input_shape(0).dims();
  return SymbolicShape(std::vector<Dim>(x.begin() + 1, x.end()));
}
inline void InferBatchNormalization(InferenceContext& c) {
  const SymbolicShape statistics = BatchStatisticsShape(c);
  for (int i = 1; i < 5; ++i) c.SetInput(i, DType::kUndefined, statistics);
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
  const bool training = c.Arg<int64_t>("training_mode") != 0;
  for (int o = 1; o < c.num_outputs(); ++o) {
    if (!training && !c.def().outputs()[Index(o)].empty())
      Throw(ErrorCode::kInvalidArgument, "BatchNormalization: output ", o,
            " exists with training_mode 1 only");
    c.SetOutput(o, c.input_dtype(o + 2), c.input_shape(o + 2));
  }
}
inline void InferInstanceNormalization(InferenceContext& c) {
  const Dim channels = NormalizedChannels(c, 3);
  for (int i = 1; i < 3; ++i) c.SetInput(i, c.input_dtype(0), {channels});
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
}
inline void InferLrn(InferenceContext& c) {
  NormalizedChannels(c, 2);
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
}

// Mean and variance of `count` values, computed in two passes, which avoids cancellation.
// `for_each(f)` must call f with every value.
struct Moments {
  double mean = 0, variance = 0;

  template <class ForEach>
  static Moments Of(int64_t count, ForEach for_each) {
    Moments out;
    if (count == 0) return out;
    for_each([&](double value) { out.mean += value; });
    out.mean /= static_cast<double>(count);
    for_each([&](double value) { out.variance += (value - out.mean) * (value - out.mean); });
    out.variance /= static_cast<double>(count);
    return out;
  }
};

class BatchNormalizationGradient final : public NormalizationGradient {
 public:
  using NormalizationGradient::NormalizationGradient;

 private:
  void Make() override {
    if (Def().args().Get<int64_t>("training_mode", 0) != 0)
      MakeTraining();
    else
      MakeInference();
  }
  void MakeInference() {
    const std::string scale = Statistic(1), rate = RateOf(Statistic(4));
    const std::string normal = Node("Mul", {Node("Sub", {I(0), Statistic(3)}), rate});
    const std::string to_x = Node("Mul", {Node("Mul", {GO(0), scale}), rate});
    SetDense(0, to_x);
    GiveScaleAndBias(normal, scale);
    GivePerChannel(3, Node("Neg", {to_x}), scale);
    const std::string to_variance = Node("Mul", {Node("Mul", {to_x, normal}), rate});
    GivePerChannel(4, Node("Mul", {to_variance, Number(-0.5f, I(0))}), scale);
  }
  // The running statistics depend on those of the batch, too.
  void MakeTraining() {
    const float momentum = Def().args().Get<float>("momentum", 0.9f);
    const Normalized x = Normalize(I(0), spatial_ ? AxesBesideChannels(I(0)) : Integers({0}));
    std::vector<std::string> terms;
    if (HasGO(0)) {
      const std::string scale = Statistic(1);
      terms.push_back(ThroughNormalize(x, Node("Mul", {GO(0), scale})));
      GiveScaleAndBias(x.value, scale);
    }
    for (int o = 1; o < 3; ++o) {
      if (!HasGO(o)) continue;
      Give(o + 2, "Mul", {GO(o), Number(momentum, GO(o))});
      const std::string slope = Node("CastLike", {GO(o), I(0)});
      const float factor = o == 1 ? 1 - momentum : 2 * (1 - momentum);
      const std::string spread = Average(Node("Mul", {slope, Number(factor, I(0))}), x.axes);
      terms.push_back(o == 1 ? spread : Node("Mul", {spread, Node("Div", {x.value, x.rate})}));
    }
    Give(0, "Sum", terms);
  }
  // Returns the name of input i, of the type of X, as it is broadcast to X.
  std::string Statistic(int i) { return spatial_ ? PerChannel(i) : Node("CastLike", {I(i), I(0)}); }
  void GiveScaleAndBias(const std::string& normal, const std::string& scale) {
    GivePerChannel(1, Node("Mul", {GO(0), normal}), scale);
    GivePerChannel(2, GO(0), scale);
  }

  const bool spatial_ = Def().args().Get<int64_t>("spatial", 1) != 0;
};
OPKIT_REGISTER_GRADIENT(BatchNormalization, BatchNormalizationGradient);

class InstanceNormalizationGradient final : public NormalizationGradient {
 public:
  using NormalizationGradient::NormalizationGradient;

 private:
  void Make() override {
    const Normalized x = Normalize(I(0), AxesFrom(2, I(0)));
    const std::string scale = PerChannel(1);
    SetDense(0, ThroughNormalize(x, Node("Mul", {GO(0), scale})));
    GivePerChannel(1, Node("Mul", {GO(0), x.value}), scale);
    GivePerChannel(2, GO(0), scale);
  }
};
OPKIT_REGISTER_GRADIENT(InstanceNormalization, InstanceNormalizationGradient);

class LrnGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override { Give(0, "LRNGradient", {I(0), GO(0)}, Def().args()); }
};
OPKIT_REGISTER_GRADIENT(LRN, LrnGradient);

inline void FillLrnSchema(OpSchema& schema) {
  schema.Arg<float>("alpha", "scale of the squares", 1e-4f)
      .Arg<float>("beta", "exponent", 0.75f)
      .Arg<float>("bias", "added to the squares", 1.f)
      .RequiredArg<int64_t>("size", "channels that are summed over")
      .Cost([](const OperatorDef& def, auto& inputs, auto& outputs) {
        const auto size = static_cast<uint64_t>(def.args().Get<int64_t>("size", 1));
        return TrafficCost((2 * size + 4) * OpSchema::Elements(inputs[0]), inputs, outputs);
      });
}

}  // namespace detail

// The base of the kernels of BatchNormalization. BatchNormalizationOpBase is the base on the CPU.
template <class Context>
class BatchNormalizationOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // X viewed as [batch, channels, pixels]. If the attribute `spatial` is 0, each activation is a
  // channel of one pixel.
  struct Sizes {
    int64_t batch, channels, pixels;
  };
  Sizes SizesOf(const Shape& x) const {
    if (!spatial_) return {x[0], x.NumelBetween(1, x.rank()), 1};
    if (x.rank() == 1) return {x[0], 1, 1};
    return {x[0], x[1], x.NumelBetween(2, x.rank())};
  }

  const double epsilon_ = this->template GetSingleArgument<double>("epsilon");
  const double momentum_ = this->template GetSingleArgument<double>("momentum");
  const bool training_ = this->template GetSingleArgument<int64_t>("training_mode") != 0;
  const bool spatial_ = this->template GetSingleArgument<int64_t>("spatial") != 0;
};
using BatchNormalizationOpBase = BatchNormalizationOn<CPUContext>;

class BatchNormalizationOp final : public BatchNormalizationOpBase {
 public:
  using BatchNormalizationOpBase::BatchNormalizationOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      std::vector<std::vector<double>> given;  // scale, bias, mean, variance
      for (int i = 1; i < 5; ++i) given.push_back(detail::NumbersOf<double>(Input(i)));
      Tensor* y = InferredOutput(0);
      const Sizes sizes = SizesOf(x.shape());
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(sizes.channels, [&](int64_t channel) {
        auto for_each = [&](auto f) {
          for (int64_t n = 0; sizes.pixels > 0 && n < sizes.batch; ++n) {
            const int64_t begin = (n * sizes.channels + channel) * sizes.pixels;
            for (int64_t i = begin; i < begin + sizes.pixels; ++i) f(i);
          }
        };
        const auto c = static_cast<size_t>(channel);
        double mean = given[2][c], variance = given[3][c];
        if (training_) {
          const auto found = detail::Moments::Of(sizes.batch * sizes.pixels, [&](auto take) {
            for_each([&](int64_t i) { take(static_cast<double>(in[i])); });
          });
          given[2][c] = mean * momentum_ + found.mean * (1 - momentum_);
          given[3][c] = variance * momentum_ + found.variance * (1 - momentum_);
          mean = found.mean;
          variance = found.variance;
        }
        const double scale = given[0][c] / std::sqrt(variance + epsilon_);
        for_each([&](int64_t i) {
          out[i] = static_cast<T>((static_cast<double>(in[i]) - mean) * scale + given[1][c]);
        });
      });
      for (int o = 1; o < 3; ++o)
        if (HasOutput(o)) WriteStatistics(o, given[detail::Index(o) + 1]);
    });
  }

 private:
  void WriteStatistics(int o, const std::vector<double>& values) {
    Tensor* out = InferredOutput(o);
    FloatTypes::Visit(out->dtype(), [&]<class T>() {
      T* elements = out->mutable_data<T>();
      for (const double value : values) *elements++ = static_cast<T>(value);
    });
  }
};

// The reference kernel: computes one channel of one image after another, in double.
class InstanceNormalizationOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor &x = DenseInput(0), &scales = DenseInput(1), &biases = DenseInput(2);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
      const T *in = x.data<T>(), *scale = scales.data<T>(), *bias = biases.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(x.dim(0) * channels, [=, this](int64_t plane) {
        const int64_t begin = plane * pixels, end = begin + pixels, c = plane % channels;
        const auto found = detail::Moments::Of(pixels, [=](auto take) {
          for (int64_t i = begin; i < end; ++i) take(static_cast<double>(in[i]));
        });
        const double factor = static_cast<double>(scale[c]) / std::sqrt(found.variance + epsilon_);
        for (int64_t i = begin; i < end; ++i)
          out[i] = static_cast<T>((static_cast<double>(in[i]) - found.mean) * factor +
                                  static_cast<double>(bias[c]));
      });
    });
  }

 private:
  const double epsilon_ = GetSingleArgument<double>("epsilon");
};

// The base of the kernels of LRN.
class LrnOpBase : public StandardOperator {
 public:
  LrnOpBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    if (size_ < 1)
      Throw(ErrorCode::kInvalidArgument, "LRN: size is ", size_, ", expected at least 1");
  }

 protected:
  // For channel c, the squares of channels [FirstChannel(c), EndChannel(c)) are summed.
  int64_t FirstChannel(int64_t c) const { return (std::max)(c - (size_ - 1) / 2, int64_t{0}); }
  int64_t EndChannel(int64_t c, int64_t channels) const {
    const int64_t after = size_ / 2;  // (size - 1) / 2 rounded up
    return channels - c - 1 <= after ? channels : c + after + 1;
  }

  const double alpha_ = GetSingleArgument<double>("alpha");
  const double beta_ = GetSingleArgument<double>("beta");
  const double bias_ = GetSingleArgument<double>("bias");
  const int64_t size_ = GetSingleArgument<int64_t>("size");
};

class LrnOp final : public LrnOpBase {
 public:
  using LrnOpBase::LrnOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor& x = DenseInput(0);
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
      const T* in = x.data<T>();
      T* out = y->mutable_data<T>();
      ParallelFor(x.dim(0) * channels, [=, this](int64_t plane) {
        const int64_t image = plane / channels * channels, c = plane % channels;
        for (int64_t i = 0; i < pixels; ++i) {
          double squares = 0;
          for (int64_t k = FirstChannel(c); k < EndChannel(c, channels); ++k) {
            const auto value = static_cast<double>(in[(image + k) * pixels + i]);
            squares += value * value;
          }
          const double divisor =
              std::pow(bias_ + alpha_ / static_cast<double>(size_) * squares, beta_);
          const int64_t at = plane * pixels + i;
          out[at] = static_cast<T>(static_cast<double>(in[at]) / divisor);
        }
      });
    });
  }
};

// Computes the gradient of LRN: with d the divisor's base and t = dY X d^(-beta - 1) it is
// dY d^-beta - 2 alpha beta / size X sum(t), summed over the channels whose base depends on X.
class LrnGradientOp final : public LrnOpBase {
 public:
  using LrnOpBase::LrnOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      const Tensor &x = DenseInput(0), &dy = DenseInput(1);
      Tensor* dx = InferredOutput(0);
      if (dx->numel() == 0) return;
      const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
      const T *in = x.data<T>(), *slope = dy.data<T>();
      T* out = dx->mutable_data<T>();
      const double rate = alpha_ / static_cast<double>(size_);
      ParallelForRange(x.dim(0) * pixels, kAutoGrain, [&](int64_t begin, int64_t end) {
        std::vector<double> sums(static_cast<size_t>(channels)), bases = sums;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i / pixels * channels * pixels + i % pixels;
          const auto at = [&](const T* data, int64_t c) {
            return static_cast<double>(data[first + c * pixels]);
          };
          sums.assign(sums.size(), 0);
          for (int64_t c = 0; c < channels; ++c) {
            double squares = 0;
            for (int64_t k = FirstChannel(c); k < EndChannel(c, channels); ++k)
              squares += at(in, k) * at(in, k);
            const double base = bases[detail::Index(c)] = bias_ + rate * squares;
            const double t = at(slope, c) * at(in, c) * std::pow(base, -beta_ - 1);
            for (int64_t k = FirstChannel(c); k < EndChannel(c, channels); ++k)
              sums[detail::Index(k)] += t;
          }
          for (int64_t c = 0; c < channels; ++c)
            out[first + c * pixels] =
                static_cast<T>(at(slope, c) * std::pow(bases[detail::Index(c)], -beta_) -
                               2 * rate * beta_ * at(in, c) * sums[detail::Index(c)]);
        }
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(BatchNormalization, kMaker, BatchNormalizationOp)
    .Doc(
        "(X - mean) / sqrt(variance + epsilon) * scale + B, channel by channel; with training_mode "
        "1 by the mean and variance of this batch, which also update the running ones. With "
        "spatial 0, of ONNX before opset 9, activation by activation: where [C] stands below, the "
        "shape is [C, D1, ..., Dn].")
    .NumInputs(5)
    .NumOutputs(1, 3)
    .Input(0, "X", "[N, C, D1, ..., Dn], or [N], which is one channel", FloatTypes::DTypes())
    .Input(1, "scale", "[C]")
    .Input(2, "B", "[C]")
    .Input(3, "input_mean", "[C]: of the training data, or running")
    .Input(4, "input_var", "[C]: as input_mean")
    .Output(0, "Y", "as X")
    .Output(1, "running_mean",
            "with training_mode 1: input_mean * momentum + mean * (1 - momentum)")
    .Output(2, "running_var",
            "with training_mode 1: input_var * momentum + (population) variance * (1 - momentum)")
    .Arg<float>("epsilon", "added to the variance", 1e-5f)
    .Arg<float>("momentum", "how much of the running statistics stays", 0.9f)
    .Arg<int64_t>("training_mode", "1: by the statistics of this batch", 0)
    .Arg<int64_t>("spatial", "0: each activation has statistics, not each channel", 1)
    .Inplace({{0, 0}})
    .Infer(&detail::InferBatchNormalization)
    .PointwiseCost(2);

OPKIT_STANDARD_OPERATOR(InstanceNormalization, kMaker, InstanceNormalizationOp)
    .Doc(
        "(input - mean) / sqrt(variance + epsilon) * scale + B by the mean and variance of each "
        "image's channel.")
    .NumInputs(3)
    .Input(0, "input", "[N, C, D1, ..., Dn], n at least 1", FloatTypes::DTypes())
    .Input(1, "scale", "[C]")
    .Input(2, "B", "[C]")
    .Output(0, "output", "as input")
    .Arg<float>("epsilon", "added to the variance", 1e-5f)
    .Inplace({{0, 0}})
    .Infer(&detail::InferInstanceNormalization)
    .PointwiseCost(6);

OPKIT_STANDARD_OPERATOR(LRN, kMaker, LrnOp)
    .Doc(
        "Local response normalization: X / (bias + alpha / size * sum)^beta, where sum is of the "
        "squares of the same pixel in `size` neighbouring channels.")
    .Input(0, "X", "[N, C, D1, ..., Dn]", FloatTypes::DTypes())
    .Output(0, "Y", "as X")
    .FillUsing(detail::FillLrnSchema)
    .Infer(&detail::InferLrn);

OPKIT_STANDARD_OPERATOR(LRNGradient, kNotImplemented, LrnGradientOp)
    .Private()
    .Doc("The gradient of LRN, from that of the result.")
    .NumInputs(2)
    .Input(0, "X", "of LRN", FloatTypes::DTypes())
    .Input(1, "dY", "of the type and shape of X")
    .Output(0, "dX", "as X")
    .FillUsing(detail::FillLrnSchema)
    .Infer([](InferenceContext& c) {
      detail::InferLrn(c);
      c.SetInput(1, c.input_dtype(0), c.input_shape(0));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_NORMALIZATION_HPP_

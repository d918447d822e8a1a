// BatchNormalization (except in training), InstanceNormalization and LRN of float32 for the "eigen"
// backend, with Eigen's array expressions.
#ifndef OPKIT_BACKENDS_EIGEN_NORMALIZATION_HPP_
#define OPKIT_BACKENDS_EIGEN_NORMALIZATION_HPP_

#include "opkit/backends/eigen/backend.hpp"
#include "opkit/backends/eigen/support/block_sum.hpp"
#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/nn/normalization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of channels of a chunk for one thread, about 5 us of work.
inline int64_t NormalizationGrain(int64_t pixels) {
  constexpr int64_t kChunk = 32 * 1024;
  return kChunk / (std::max)(pixels, int64_t{1}) + 1;
}

}  // namespace detail

class BatchNormalizationEigenOp final : public BatchNormalizationOpBase {
 public:
  using BatchNormalizationOpBase::BatchNormalizationOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    for (size_t i = 0; i < query.inputs.size(); ++i) RequireDTypes(query, i, {DType::kFloat32});
    if (query.def.args().Get<int64_t>("training_mode", 0) != 0)
      throw UnsupportedOperatorFeature("it does not train");
    KernelConfig config;
    config.inplace = {{0, 0}};
    if (const SymbolicShape& scale = query.inputs[1].shape; scale.is_known())
      config.scratch_bytes = scale.ToShape().numel() * int64_t{sizeof(float)};
    return {config};
  }

  bool RunOnDevice() override {
    RequireFloat32(*this);
    if (training_)
      throw UnsupportedOperatorFeature(
          "the kernel of BatchNormalization for \"eigen\" does not train");
    const Tensor& x = DenseInput(0);
    const float *scale = DenseInput(1).data<float>(), *bias = DenseInput(2).data<float>();
    const float *mean = DenseInput(3).data<float>(), *variance = DenseInput(4).data<float>();
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const Sizes sizes = SizesOf(x.shape());
    auto* factor = static_cast<float*>(Scratch(sizes.channels * int64_t{sizeof(float)}));
    const auto epsilon = static_cast<float>(epsilon_);
    using detail::ConstFloatArray;
    using detail::FloatArray;
    FloatArray(factor, sizes.channels) =
        ConstFloatArray(scale, sizes.channels) /
        (ConstFloatArray(variance, sizes.channels) + epsilon).sqrt();
    // Eigen's square root of infinity is a NaN.
    for (int64_t c = 0; c < sizes.channels; ++c)
      if (variance[c] == INFINITY) factor[c] = scale[c] / variance[c];
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    if (sizes.pixels == 1) {
      const ConstFloatArray means(mean, sizes.channels), factors(factor, sizes.channels),
          biases(bias, sizes.channels);
      ParallelForRange(
          sizes.batch, detail::NormalizationGrain(sizes.channels), [&](int64_t begin, int64_t end) {
            for (int64_t n = begin; n < end; ++n)
              FloatArray(out + n * sizes.channels, sizes.channels) =
                  (ConstFloatArray(in + n * sizes.channels, sizes.channels) - means) * factors +
                  biases;
          });
      return true;
    }
    ParallelForRange(sizes.batch * sizes.channels, detail::NormalizationGrain(sizes.pixels),
                     [=](int64_t begin, int64_t end) {
                       for (int64_t plane = begin; plane < end; ++plane) {
                         const int64_t c = plane % sizes.channels;
                         const ConstFloatArray from(in + plane * sizes.pixels, sizes.pixels);
                         FloatArray(out + plane * sizes.pixels, sizes.pixels) =
                             (from - mean[c]) * factor[c] + bias[c];
                       }
                     });
    return true;
  }
};

class InstanceNormalizationEigenOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static constexpr auto& Propose = ProposeInplaceFloat32;

  bool RunOnDevice() override {
    RequireFloat32(*this);
    const Tensor& x = DenseInput(0);
    const float *scale = DenseInput(1).data<float>(), *bias = DenseInput(2).data<float>();
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    ParallelForRange(
        x.dim(0) * channels, detail::NormalizationGrain(pixels),
        [=, this](int64_t begin, int64_t end) {
          for (int64_t plane = begin; plane < end; ++plane) {
            const int64_t c = plane % channels;
            const detail::ConstFloatArray from(in + plane * pixels, pixels);
            const auto all = static_cast<double>(pixels);
            const auto mean = static_cast<float>(detail::SumInBlocks(from.data(), pixels) / all);
            const double variance =
                detail::SumInBlocks(from.data(), pixels,
                                    [mean](const auto& block) { return (block - mean).square(); }) /
                all;
            const auto factor =
                static_cast<float>(static_cast<double>(scale[c]) /
                                   std::sqrt(variance + static_cast<double>(epsilon_)));
            detail::FloatArray(out + plane * pixels, pixels) = (from - mean) * factor + bias[c];
          }
        });
    return true;
  }

 private:
  const float epsilon_ = GetSingleArgument<float>("epsilon");
};

class LrnEigenOp final : public LrnOpBase {
 public:
  using LrnOpBase::LrnOpBase;

  static constexpr auto& Propose = ProposeFloat32;

  bool RunOnDevice() override {
    constexpr int64_t kBlock = 1024;  // number of pixels whose sums fit in the L1 cache
    RequireFloat32(*this);
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int64_t channels = x.dim(1), pixels = x.shape().NumelBetween(2, x.rank());
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    const auto alpha = static_cast<float>(alpha_ / static_cast<double>(size_));
    const auto bias = static_cast<float>(bias_), beta = static_cast<float>(beta_);
    ParallelForRange(
        x.dim(0) * channels, detail::NormalizationGrain(4 * pixels),
        [=, this](int64_t begin, int64_t end) {
          Eigen::Array<float, Eigen::Dynamic, 1, 0, kBlock, 1> sums;
          for (int64_t plane = begin; plane < end; ++plane) {
            const int64_t image = plane / channels * channels, c = plane % channels;
            for (int64_t first = 0; first < pixels; first += kBlock) {
              const int64_t count = (std::min)(kBlock, pixels - first);
              sums.setZero(count);
              for (int64_t k = FirstChannel(c); k < EndChannel(c, channels); ++k)
                sums += detail::ConstFloatArray(in + (image + k) * pixels + first, count).square();
              sums = sums * alpha + bias;
              const int64_t at = plane * pixels + first;
              const detail::ConstFloatArray from(in + at, count);
              detail::FloatArray to(out + at, count);
              if (!std::isfinite(sums.sum()))
                Exactly(in + image * pixels + first, c, channels, pixels, count, out + at);
              else if (beta == 0.75f)
                to = from / (sums.sqrt() * sums.sqrt().sqrt());
              else
                to = from / sums.pow(beta);
            }
          }
        });
    return true;
  }

 private:
  // Computes `count` pixels of channel c in double, for squares that overflow float. `image` points
  // to the first pixel, in channel 0.
  void Exactly(const float* image, int64_t c, int64_t channels, int64_t pixels, int64_t count,
               float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      double squares = 0;
      for (int64_t k = FirstChannel(c); k < EndChannel(c, channels); ++k) {
        const auto value = static_cast<double>(image[k * pixels + i]);
        squares += value * value;
      }
      const double sum = bias_ + alpha_ / static_cast<double>(size_) * squares;
      out[i] =
          static_cast<float>(static_cast<double>(image[c * pixels + i]) / std::pow(sum, beta_));
    }
  }
};

OPKIT_EIGEN_OPERATOR(BatchNormalization, BatchNormalizationEigenOp);
OPKIT_EIGEN_OPERATOR(InstanceNormalization, InstanceNormalizationEigenOp);
OPKIT_EIGEN_OPERATOR(LRN, LrnEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_NORMALIZATION_HPP_

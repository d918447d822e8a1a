// LayerNormalization of float32 for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_LAYER_NORMALIZATION_HPP_
#define OPKIT_BACKENDS_EIGEN_LAYER_NORMALIZATION_HPP_

#include "opkit/backends/eigen/support/block_sum.hpp"
#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/nn/layer_normalization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Computes row by row, in two passes over each row: first its mean, then the squared differences
// from the mean.
class LayerNormalizationEigenOp final : public LayerNormalizationOpBase {
 public:
  using LayerNormalizationOpBase::LayerNormalizationOpBase;

  static constexpr auto& Propose = ProposeInplaceFloat32;

  bool RunOnDevice() override {
    RequireFloat32(*this);
    Tensor* y = InferredOutput(0);
    Tensor* mean = HasOutput(1) ? InferredOutput(1) : nullptr;
    Tensor* inv_std_dev = HasOutput(2) ? InferredOutput(2) : nullptr;
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    const Tensor* bias = HasInput(2) ? &DenseInput(2) : nullptr;
    const Sizes sizes = SizesOf(x.shape());
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    const int64_t columns = sizes.columns;
    // If scale or bias does not have the shape of a row, both are broadcast and applied afterwards.
    const bool whole = IsRow(scale.shape(), x.shape(), columns) &&
                       (!bias || IsRow(bias->shape(), x.shape(), columns));
    const float* scales = whole ? scale.data<float>() : nullptr;
    const float* biases = whole && bias ? bias->data<float>() : nullptr;
    constexpr int64_t kGrain = 16384;  // elements for one thread
    ParallelForRange(sizes.rows, kGrain / (columns + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto [center, factor] =
            Row(columns, in + row * columns, scales, biases, out + row * columns);
        if (mean) Store(*mean, row, static_cast<double>(center));
        if (inv_std_dev) Store(*inv_std_dev, row, static_cast<double>(factor));
      }
    });
    if (!whole) ApplyBroadcast(scale, bias, *y);
    return true;
  }

 private:
  struct Statistics {
    float center, factor;
  };

  // Normalizes one row; `scales` and `biases` may be null.
  Statistics Row(int64_t count, const float* x, const float* scales, const float* biases,
                 float* y) const {
    const detail::ConstFloatArray in(x, count);
    detail::FloatArray out(y, count);
    const auto all = static_cast<double>(count);
    const auto center = static_cast<float>(detail::SumInBlocks(x, count) / all);
    const double squares = detail::SumInBlocks(
        x, count, [center](const auto& block) { return (block - center).square(); });
    const auto factor =
        static_cast<float>(1 / std::sqrt(squares / all + static_cast<double>(epsilon_)));
    if (!scales) {
      out = (in - center) * factor;
      return {center, factor};
    }
    const detail::ConstFloatArray scale(scales, count);
    if (biases)
      out = (in - center) * factor * scale + detail::ConstFloatArray(biases, count);
    else
      out = (in - center) * factor * scale;
    return {center, factor};
  }
  // Multiplies y by the scale and adds the bias, both broadcast.
  static void ApplyBroadcast(const Tensor& scale, const Tensor* bias, Tensor& y) {
    const Shape& bias_shape = bias ? bias->shape() : scale.shape();
    const BroadcastLoop loop(y.shape(), {&scale.shape(), &bias_shape});
    const float *scales = scale.data<float>(), *biases = bias ? bias->data<float>() : nullptr;
    float* out = y.mutable_data<float>();
    loop.Run(BroadcastLoop::kGrain, [&](int64_t at, int64_t n, const int64_t* from) {
      for (int64_t i = 0; i < n; ++i) {
        out[at + i] *= scales[from[0] + i * loop.step(0)];
        if (biases) out[at + i] += biases[from[1] + i * loop.step(1)];
      }
    });
  }
};

OPKIT_EIGEN_OPERATOR(LayerNormalization, LayerNormalizationEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_LAYER_NORMALIZATION_HPP_

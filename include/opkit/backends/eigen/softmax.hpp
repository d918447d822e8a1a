// Softmax and LogSoftmax of float32 for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SOFTMAX_HPP_
#define OPKIT_BACKENDS_EIGEN_SOFTMAX_HPP_

#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/backends/eigen/support/softmax_exp.hpp"
#include "opkit/ops/nn/softmax.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Along the last axis, computes row by row in vectors. Along another axis, computes blocks of
// columns, each as one vector, so that memory is always read in order.
template <bool kLog>
class SoftmaxEigenOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;

  static constexpr auto& Propose = ProposeInplaceFloat32;

  bool RunOnDevice() override {
    RequireFloat32(*this);
    Tensor* out = InferredOutput(0);
    const Tensor& in = DenseInput(0);
    const AxisSplit split(in.shape(), Axis(in.rank()));
    if (in.numel() == 0) return true;
    const float* x = in.data<float>();
    float* y = out->mutable_data<float>();
    constexpr int64_t kGrain = 8192;  // elements for one thread
    if (split.inner == 1) {
      ParallelForRange(split.outer, kGrain / split.extent + 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          Row(split.extent, x + row * split.extent, y + row * split.extent);
      });
      return true;
    }
    const int64_t blocks = (split.inner - 1) / kBlock + 1;
    const int64_t work = split.extent * (std::min)(split.inner, kBlock);
    ParallelForRange(split.outer * blocks, kGrain / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % blocks * kBlock;
        const int64_t at = i / blocks * split.extent * split.inner + column;
        Columns((std::min)(kBlock, split.inner - column), split, x + at, y + at);
      }
    });
    return true;
  }

 private:
  static constexpr int64_t kBlock = 256;
  using Few = Eigen::Array<float, Eigen::Dynamic, 1, 0, kBlock, 1>;

  static auto Exp(const auto& x) { return x.unaryExpr(detail::SoftmaxExp()); }
  static void Row(int64_t count, const float* x, float* y) {
    const detail::ConstFloatArray in(x, count);
    detail::FloatArray out(y, count);
    const float largest = in.maxCoeff();
    if constexpr (kLog) {
      out = (in - largest) - std::log(Exp(in - largest).sum());
    } else {
      out = Exp(in - largest);
      out *= 1 / out.sum();
    }
  }
  static void Columns(int64_t count, const AxisSplit& split, const float* x, float* y) {
    auto in = [&](int64_t i) { return detail::ConstFloatArray(x + i * split.inner, count); };
    auto out = [&](int64_t i) { return detail::FloatArray(y + i * split.inner, count); };
    Few largest = in(0), sum = Few::Zero(count);
    for (int64_t i = 1; i < split.extent; ++i) largest = largest.max(in(i));
    auto shifted = [&](int64_t i) { return in(i)-largest; };
    if constexpr (kLog) {
      for (int64_t i = 0; i < split.extent; ++i) sum += Exp(shifted(i));
      sum = sum.log();
      for (int64_t i = 0; i < split.extent; ++i) out(i) = shifted(i) - sum;
    } else {
      for (int64_t i = 0; i < split.extent; ++i) {
        out(i) = Exp(shifted(i));
        sum += out(i);
      }
      sum = 1 / sum;
      for (int64_t i = 0; i < split.extent; ++i) out(i) *= sum;
    }
  }
};

OPKIT_EIGEN_OPERATOR(Softmax, SoftmaxEigenOp<false>);
OPKIT_EIGEN_OPERATOR(LogSoftmax, SoftmaxEigenOp<true>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_SOFTMAX_HPP_

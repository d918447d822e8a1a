// Operators on CUDA that normalize rows along an axis: Softmax, LogSoftmax and LpNormalization.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_ROWS_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_ROWS_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "opkit/ops/nn/row_normalization.hpp"
#include "opkit/ops/nn/softmax.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <bool kLog, class T>
struct CUDASoftmaxLoop {
  using Real = CUDASumType<T>;
  using Fold = ReduceAsLogSumExp<Real, Real>;
  const T* x;
  T* y;
  AxisSplit split;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t first = split.Begin(row), inner = split.inner;
    auto all = Fold::Start();
    team.Each(split.extent,
              [&](int64_t i) { Fold::Add(all, static_cast<Real>(x[first + i * inner])); });
    all = team.Combine(all, MergedBy<Fold>());
    // The difference is 0, or NaN if the largest element is infinite: then the row is NaN.
    const Real sum = all.sum + (all.largest - all.largest), log = std::log(sum);
    team.Each(split.extent, [&](int64_t i) {
      const Real shifted = static_cast<Real>(x[first + i * inner]) - all.largest;
      y[first + i * inner] = ElementOfSum<T>(kLog ? shifted - log : std::exp(shifted) / sum);
    });
  }
};

template <class T>
struct CUDALpNormalizationLoop {
  using Real = CUDASumType<T>;
  const T* x;
  T* y;
  AxisSplit split;
  bool squares;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const int64_t first = split.Begin(row), inner = split.inner;
    Real norm = 0;
    team.Each(split.extent, [&](int64_t i) {
      const auto value = static_cast<Real>(x[first + i * inner]);
      norm += squares ? value * value : std::fabs(value);
    });
    norm = team.Sum(norm);
    if (squares) norm = std::sqrt(norm);
    team.Each(split.extent, [&](int64_t i) {
      const auto value = static_cast<Real>(x[first + i * inner]);
      y[first + i * inner] = ElementOfSum<T>(norm == 0 ? Real{0} : value / norm);
    });
  }
};

}  // namespace detail

// Softmax (kLog false) and LogSoftmax.
template <bool kLog>
class CUDASoftmaxOperator final : public AxisOperatorOn<CUDAContext> {
 public:
  using AxisOperatorOn<CUDAContext>::AxisOperatorOn;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const AxisSplit split(x.shape(), Axis(x.rank()));
    return Visit<FloatTypes>([&]<class T>() {
      ParallelForRows(context_, split.rows(), split.extent, split.inner,
                      detail::CUDASoftmaxLoop<kLog, T>{x.data<T>(), y->mutable_data<T>(), split});
    });
  }
};

class CUDALpNormalizationOperator final : public LpNormalizationOn<CUDAContext> {
 public:
  using LpNormalizationOn<CUDAContext>::LpNormalizationOn;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    if (y->numel() == 0) return true;
    const AxisSplit split(x.shape(), Axis(x.rank()));
    return Visit<FloatTypes>([&]<class T>() {
      ParallelForRows(
          context_, split.rows(), split.extent, split.inner,
          detail::CUDALpNormalizationLoop<T>{x.data<T>(), y->mutable_data<T>(), split, p_ == 2});
    });
  }
};

OPKIT_CUDA_OPERATOR(Softmax, CUDASoftmaxOperator<false>);
OPKIT_CUDA_OPERATOR(LogSoftmax, CUDASoftmaxOperator<true>);
OPKIT_CUDA_OPERATOR(LpNormalization, CUDALpNormalizationOperator);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_ROWS_HPP_

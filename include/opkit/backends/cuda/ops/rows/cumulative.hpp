// CumSum and CumProd on CUDA.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_CUMULATIVE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_CUMULATIVE_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "opkit/ops/math/cumulative.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Sums or multiplies all elements up to each one.
template <bool kSum, class T>
struct CUDACumulativeLoop {
  using C = ComputeType<T>;
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, C>;  // integers wrap around
  const T* x;
  T* y;
  AxisSplit split;
  bool exclusive, reverse;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const auto combine = [](Wide a, Wide b) { return kSum ? a + b : a * b; };
    const int64_t first = split.Begin(row);
    Wide total = kSum ? Wide{0} : Wide{1};
    // Each thread takes one element of a tile.
    for (int64_t tile = 0; tile < split.extent; tile += Team::size()) {
      const int64_t i = tile + team.thread();
      const int64_t at = first + (reverse ? split.extent - 1 - i : i) * split.inner;
      const bool is_in = i < split.extent;
      Wide next = kSum ? Wide{0} : Wide{1};
      if (is_in) next = static_cast<Wide>(static_cast<C>(x[at]));
      const Wide before = team.CombineBefore(next, total, combine);
      const Wide with = combine(before, next);
      if (is_in) y[at] = static_cast<T>(static_cast<C>(exclusive ? before : with));
      total = combine(total, team.Combine(next, combine));
    }
  }
};

}  // namespace detail

// CumSum (kSum) and CumProd.
template <bool kSum, class Types>
class CUDACumulativeOperator final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const AxisSplit split(x.shape(),
                          detail::AxisInTensor(Input(1, DeviceType::kCPU), x.rank(), type()));
    Tensor* y = InferredOutput(0);
    return Visit<Types>([&]<class T>() {
      ParallelForRows(context_, split.rows(), split.extent, split.inner,
                      detail::CUDACumulativeLoop<kSum, T>{x.data<T>(), y->mutable_data<T>(), split,
                                                          exclusive_, reverse_});
    });
  }

 private:
  const bool exclusive_ = GetSingleArgument<int64_t>("exclusive") != 0;
  const bool reverse_ = GetSingleArgument<int64_t>("reverse") != 0;
};

OPKIT_CUDA_OPERATOR(
    CumSum,
    CUDACumulativeOperator<true, ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>>);
OPKIT_CUDA_OPERATOR(CumProd, CUDACumulativeOperator<false, FloatTypes>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_CUMULATIVE_HPP_

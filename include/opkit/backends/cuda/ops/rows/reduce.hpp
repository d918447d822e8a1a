// ReduceSum, ReduceMean, ReduceMax and ReduceMin on CUDA, and the gradients that sum or spread:
// ReduceGradient and SumToShape. The reductions of elements are those of the CPU's kernels.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_HPP_

#include "opkit/backends/cuda/ops/rows/reduction.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y[i] = the gradient of the output to which element i was reduced, times a factor.
template <class T>
struct CUDASpreadLoop {
  const T* gradient;
  T* y;
  BroadcastIndex index;
  CUDASumType<T> factor;
  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t from = 0;
    index.Find<1>(i, &from);
    y[i] = ElementOfSum<T>(static_cast<CUDASumType<T>>(gradient[from]) * factor);
  }
};

}  // namespace detail

class CUDAReduceGradientOperator final : public ReduceOperatorOn<CUDAContext> {
 public:
  using ReduceOperatorOn<CUDAContext>::ReduceOperatorOn;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const ReducePlan& plan = Plan();
    const Tensor& gradient = DenseInput(2);
    detail::CheckReducedGradient(plan, gradient);
    if (y->numel() == 0) return true;
    const detail::BroadcastIndex index = SpreadIndex(plan);
    return Visit<FloatTypes>([&]<class T>() {
      using Real = detail::CUDASumType<T>;
      ParallelFor(context_, y->numel(),
                  detail::CUDASpreadLoop<T>{gradient.data<T>(), y->mutable_data<T>(), index,
                                            mean_ ? 1 / static_cast<Real>(plan.count) : Real{1}});
    });
  }

 private:
  // Returns where the gradient of each element of the data lies.
  static detail::BroadcastIndex SpreadIndex(const ReducePlan& plan) {
    // The axes of the plan alternate. Each begins where the steps of the next one end.
    std::vector<int64_t> extents, steps;
    int64_t kept_step = plan.outputs;
    size_t kept = 0, reduced = 0;
    while (kept < plan.kept.size() || reduced < plan.reduced.size()) {
      const bool is_kept =
          reduced == plan.reduced.size() ||
          (kept < plan.kept.size() && plan.kept[kept].step > plan.reduced[reduced].step);
      const ReducePlan::Axis& axis = is_kept ? plan.kept[kept++] : plan.reduced[reduced++];
      extents.push_back(axis.extent);
      if (is_kept) kept_step /= axis.extent;
      steps.push_back(is_kept ? kept_step : 0);
    }
    return detail::BroadcastIndex::Of(Shape(Dims(extents)), {Dims(steps)});
  }

  const bool mean_ = GetSingleArgument<int64_t>("mean") != 0;
};

class CUDASumToShapeOperator final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    KernelConfig config = detail::ReductionConfig(query);
    const SymbolicShape &x = query.inputs[0].shape, &like = query.inputs[1].shape;
    if (x.is_known() && like.is_known() && x.ToShape() == like.ToShape())
      config.inplace.emplace_back(0, 0);
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    std::vector<char> mask(static_cast<size_t>(x.rank()), 1);
    for (int back = 1; back <= y->rank(); ++back)
      if (y->dim(-back) == x.dim(-back)) mask[detail::Index(x.rank() - back)] = 0;
    const ReducePlan plan(x.shape(), mask);
    return Visit<FloatTypes>([&]<class T>() {
      detail::IssueReduction<detail::ReduceAsSum, T>(
          context_, plan, x, y, factor_, [this](int64_t bytes) { return Scratch(bytes); });
    });
  }

 private:
  const float factor_ = GetSingleArgument<float>("factor");
};

OPKIT_CUDA_REDUCTION(ReduceSum, ReduceAsSum,
                     ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>);
OPKIT_CUDA_REDUCTION(ReduceMean, ReduceAsMean, FloatTypes);
using CUDAReduceOrderTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, bool>;
OPKIT_CUDA_REDUCTION(ReduceMax, ReduceAsExtreme<true>::Of, CUDAReduceOrderTypes);
OPKIT_CUDA_REDUCTION(ReduceMin, ReduceAsExtreme<false>::Of, CUDAReduceOrderTypes);

OPKIT_CUDA_OPERATOR(ReduceGradient, CUDAReduceGradientOperator);
OPKIT_CUDA_OPERATOR(SumToShape, CUDASumToShapeOperator);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCE_HPP_

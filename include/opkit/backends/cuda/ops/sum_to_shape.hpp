// SumToShape on CUDA: the gradient of a broadcast input, for example of a bias.
#ifndef OPKIT_BACKENDS_CUDA_OPS_SUM_TO_SHAPE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_SUM_TO_SHAPE_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// How sums over the axes of x that y lacks are divided among threads. The terms of a sum are
// divided into parts; a second loop adds the parts.
struct SumToShapePlan {
  BroadcastIndex sums, terms;   // where the first term of a sum, and a term beside the first, lie
  bool by_teams = false;        // the terms of a sum are neighbours, so a team reads them together
  int64_t parts = 1, part = 0;  // number of parts of a sum; terms of a part

  SumToShapePlan() = default;
  SumToShapePlan(const Shape& x, const Shape& y) {
    const Dims dense = x.DenseStrides(), of_y = BroadcastStrides(y, x);
    std::vector<int64_t> kept, summed, kept_strides, summed_strides;
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (x[axis] == 1) continue;
      by_teams = of_y[axis] == 0;  // decided by the last axis
      (by_teams ? summed : kept).push_back(x[axis]);
      (by_teams ? summed_strides : kept_strides).push_back(dense[axis]);
    }
    sums = BroadcastIndex::Of(Shape(kept), {Dims(kept_strides)});
    terms = BroadcastIndex::Of(Shape(summed), {Dims(summed_strides)});
    const int64_t most = by_teams ? terms.size / 8192 : terms.size / 64;
    const int64_t wanted = 65536 / (sums.size > 0 ? sums.size : 1);
    parts = (std::max)(int64_t{1}, (std::min)(most, wanted));
    part = (terms.size + parts - 1) / parts;
  }
  int64_t scratch_numbers() const { return parts > 1 ? sums.size * parts : 0; }
};

// A part of a sum. With one part it is the result.
template <class T>
struct SumPartLoop {
  using Sum = ComputeType<T>;
  const T* x;
  T* y;
  Sum* parts;
  Sum factor;
  SumToShapePlan plan;

  OPKIT_DEVICE Sum Term(int64_t first, int64_t term) const {
    int64_t at = 0;
    plan.terms.Find<1>(term, &at);
    return LoadOnDevice<T>(x[first + at]);
  }
  OPKIT_DEVICE int64_t First(int64_t i) const {
    int64_t first = 0;
    plan.sums.Find<1>(i % plan.sums.size, &first);
    return first;
  }
  OPKIT_DEVICE int64_t begin(int64_t i) const { return i / plan.sums.size * plan.part; }
  OPKIT_DEVICE int64_t count(int64_t i) const {
    const int64_t left = plan.terms.size - begin(i);
    return left < 0 ? 0 : left < plan.part ? left : plan.part;
  }
  OPKIT_DEVICE void Store(int64_t i, Sum sum) const {
    if (plan.parts > 1)
      parts[i % plan.sums.size * plan.parts + i / plan.sums.size] = sum;
    else
      y[i] = StoredOnDevice<T>(factor * sum);
  }
  // By one thread: neighbouring threads sum neighbouring elements.
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t first = First(i), from = begin(i), n = count(i);
    Sum sum = 0;
    for (int64_t term = 0; term < n; ++term) sum += Term(first, from + term);
    Store(i, sum);
  }
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t i, const Team& team) const {
    const int64_t first = First(i), from = begin(i);
    Sum sum = 0;
    team.Each(count(i), [&](int64_t term) { sum += Term(first, from + term); });
    sum = team.Sum(sum);
    if (team.is_first()) Store(i, sum);
  }
};
// Adds the parts of a sum.
template <class T>
struct AddPartsLoop {
  using Sum = ComputeType<T>;
  const Sum* parts;
  T* y;
  Sum factor;
  int64_t count;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t i, const Team& team) const {
    Sum sum = 0;
    team.Each(count, [&](int64_t part) { sum += parts[i * count + part]; });
    sum = team.Sum(sum);
    if (team.is_first()) y[i] = StoredOnDevice<T>(factor * sum);
  }
};
struct MultiplyElement {
  float factor;
  template <class C>
  OPKIT_DEVICE C operator()(C x) const {
    return C(factor) * x;
  }
};

}  // namespace detail

class SumToShapeCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;

  // The output can be in place only if nothing is summed.
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    const SymbolicShape &x = query.inputs[0].shape, &y = query.outputs[0].shape;
    if (!x.has_rank() || x.rank() > detail::BroadcastIndex::kMaxAxes)
      throw UnsupportedOperatorFeature(StrCat("it sums over at most ",
                                              detail::BroadcastIndex::kMaxAxes,
                                              " axes, and input 0 is ", ToString(x)));
    KernelConfig config;
    if (!x.is_known() || !y.is_known()) return {config};
    if (x.ToShape() == y.ToShape())
      config.inplace = {{0, 0}};
    else
      config.scratch_bytes =
          ScratchBytes(detail::SumToShapePlan(x.ToShape(), y.ToShape()), query.inputs[0].dtype);
    return {config};
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (x.shape() == y->shape() && factor_ == 1) return Copy(x, y), true;
    return Visit<FloatTypes>([&]<class T>() {
      if (x.numel() == y->numel())
        Issue<T, T>(detail::MultiplyElement{factor_}, y, {&x});
      else
        Sum<T>(x, y);
    });
  }

 private:
  static int64_t ScratchBytes(const detail::SumToShapePlan& plan, DType dtype) {
    return plan.scratch_numbers() * (dtype == DType::kFloat64 ? 8 : 4);
  }
  template <class T>
  void Sum(const Tensor& x, Tensor* y) {
    using C = detail::ComputeType<T>;
    if (planned_for_ != inference().version()) {
      plan_ = detail::SumToShapePlan(x.shape(), y->shape());
      planned_for_ = inference().version();
    }
    auto* parts = static_cast<C*>(Scratch(ScratchBytes(plan_, x.dtype())));
    auto* to = static_cast<T*>(y->raw_mutable_data());
    const detail::SumPartLoop<T> loop = {static_cast<const T*>(x.raw_data()), to, parts, C(factor_),
                                         plan_};
    if (plan_.by_teams)
      ParallelForTeams(context_, plan_.sums.size * plan_.parts, plan_.part, loop);
    else
      ParallelFor(context_, plan_.sums.size * plan_.parts, loop);
    if (plan_.parts > 1)
      ParallelForTeams(context_, plan_.sums.size, plan_.parts,
                       detail::AddPartsLoop<T>{parts, to, C(factor_), plan_.parts});
  }

  const float factor_ = GetSingleArgument<float>("factor");
  detail::SumToShapePlan plan_;
  uint64_t planned_for_ = 0;
};
OPKIT_CUDA_OPERATOR(SumToShape, SumToShapeCUDAOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_SUM_TO_SHAPE_HPP_

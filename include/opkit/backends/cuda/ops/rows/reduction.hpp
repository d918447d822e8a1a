// CUDAReduceOperator: a reduction of axes on CUDA. The reductions of elements are those of the
// CPU's kernels.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCTION_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCTION_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/support/elementwise.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// How a reduction is shared out. The elements of an output are cut into pieces, if there are so few
// outputs that the device would be idle; a second loop merges the results of the pieces.
struct ReduceShares {
  static constexpr int64_t kTeams = 1024, kElementsOfTeam = 4096;
  static constexpr int64_t kThreads = 1 << 16, kElementsOfThread = 64;

  bool by_teams = false;  // a team for each piece of an output, else a thread
  int64_t pieces = 1;

  static ReduceShares Of(int64_t outputs, int64_t count, bool by_teams) {
    ReduceShares shares;
    shares.by_teams = by_teams;
    if (outputs == 0) return shares;
    const int64_t most = (by_teams ? kTeams : kThreads) / outputs;
    const int64_t full = count / (by_teams ? kElementsOfTeam : kElementsOfThread);
    shares.pieces = (std::max)((std::min)(most, full), int64_t{1});
    return shares;
  }
  // If the innermost axis is reduced, the threads of a team read neighbouring elements; if it is
  // kept, the threads of neighbouring outputs do.
  static ReduceShares Of(const ReducePlan& plan) {
    constexpr int64_t kFew = 4;
    return Of(plan.outputs, plan.count, plan.reduces_last && plan.count > kFew);
  }
  int64_t partials(int64_t outputs) const { return pieces > 1 ? pieces * outputs : 0; }
};

// Returns the positions of a plan's axes in a dense tensor.
inline BroadcastIndex IndexOf(const std::vector<ReducePlan::Axis>& axes) {
  std::vector<int64_t> extents, steps;
  for (const ReducePlan::Axis& axis : axes) {
    extents.push_back(axis.extent);
    steps.push_back(axis.step);
  }
  return BroadcastIndex::Of(Shape(Dims(extents)), {Dims(steps)});
}

// Combines the values of two threads.
template <class Fold>
struct MergedBy {
  OPKIT_DEVICE typename Fold::Sum operator()(typename Fold::Sum a, typename Fold::Sum b) const {
    Fold::Merge(a, b);
    return a;
  }
};
// Writes the result of a reduction of elements of type T, times a factor if it is not an integer.
template <class Fold, class T>
struct CUDAReduceResult {
  StoredType<T>* y;
  int64_t count;
  float factor;
  OPKIT_DEVICE void Write(int64_t output, typename Fold::Sum sum) const {
    auto result = Fold::Finish(sum, count);
    if constexpr (std::is_floating_point_v<decltype(result)>) result *= factor;
    y[output] = ElementOfSum<T>(result);
  }
};
// Reduces piece i / outputs of output i % outputs.
template <class Fold, class T>
struct CUDAReduceLoop {
  const StoredType<T>* x;
  typename Fold::Sum* partials;  // null if there is one piece
  CUDAReduceResult<Fold, T> result;
  BroadcastIndex kept, reduced;
  int64_t outputs, pieces;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t i, const Team& team) const {
    const int64_t output = i % outputs, piece = i / outputs;
    const int64_t count = result.count, length = (count + pieces - 1) / pieces;
    const int64_t begin = piece * length, end = begin + length < count ? begin + length : count;
    int64_t first = 0;
    kept.Find<1>(output, &first);
    auto sum = Fold::Start();
    team.Each(end - begin, [&](int64_t element) {
      int64_t at = 0;
      reduced.Find<1>(begin + element, &at);
      Fold::Add(sum, LoadElement<T>(x[first + at]));
    });
    sum = team.Combine(sum, MergedBy<Fold>());
    if (!team.is_first()) return;
    if (partials)
      partials[i] = sum;
    else
      result.Write(output, sum);
  }
};
// Merges the pieces of an output.
template <class Fold, class T>
struct CUDAReduceMerge {
  const typename Fold::Sum* partials;
  CUDAReduceResult<Fold, T> result;
  int64_t outputs, pieces;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t output, const Team& team) const {
    auto sum = Fold::Start();
    team.Each(pieces, [&](int64_t piece) { Fold::Merge(sum, partials[piece * outputs + output]); });
    sum = team.Combine(sum, MergedBy<Fold>());
    if (team.is_first()) result.Write(output, sum);
  }
};

// Issues a reduction of elements of type T. Kind is a reduction of ops/math/reduce.hpp.
// `scratch(bytes)` returns memory of the device.
template <template <class, class> class Kind, class T, class Scratch>
void IssueReduction(CUDAContext& context, const ReducePlan& plan, const Tensor& x, Tensor* y,
                    float factor, Scratch scratch) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Fold = Kind<ComputeType<T>, Real>;
  Fold::CheckCount(plan.count);
  const ReduceShares shares = ReduceShares::Of(plan);
  const int64_t sums = shares.partials(plan.outputs);
  using Sum = typename Fold::Sum;
  auto* partials =
      sums > 0 ? static_cast<Sum*>(scratch(sums * static_cast<int64_t>(sizeof(Sum)))) : nullptr;
  const CUDAReduceResult<Fold, T> result{static_cast<StoredType<T>*>(y->raw_mutable_data()),
                                         plan.count, factor};
  const CUDAReduceLoop<Fold, T> loop{static_cast<const StoredType<T>*>(x.raw_data()),
                                     partials,
                                     result,
                                     IndexOf(plan.kept),
                                     IndexOf(plan.reduced),
                                     plan.outputs,
                                     shares.pieces};
  const int64_t teams = plan.outputs * shares.pieces;
  if (shares.by_teams)
    ParallelForTeams(context, teams, plan.count / shares.pieces, loop);
  else
    ParallelForTeamsOf<1>(context, teams, loop);
  if (partials)
    ParallelForTeamsOf<32>(context, plan.outputs,
                           CUDAReduceMerge<Fold, T>{partials, result, plan.outputs, shares.pieces});
}

// Returns the configuration of a reduction, with enough scratch memory whatever the axes are.
inline KernelConfig ReductionConfig(const KernelQuery& query) {
  KernelConfig config;
  if (!query.inputs[0].shape.is_known() || !query.outputs[0].shape.is_known()) return config;
  const int64_t outputs = query.outputs[0].shape.ToShape().numel();
  if (outputs == 0) return config;
  const int64_t count = query.inputs[0].shape.ToShape().numel() / outputs;
  constexpr int64_t kLargestSum = 16;  // bytes
  for (const bool by_teams : {false, true})
    config.scratch_bytes =
        (std::max)(config.scratch_bytes,
                   ReduceShares::Of(outputs, count, by_teams).partials(outputs) * kLargestSum);
  return config;
}

}  // namespace detail

template <template <class, class> class Kind, class Types>
class CUDAReduceOperator final : public ReduceOperatorOn<CUDAContext> {
 public:
  using ReduceOperatorOn<CUDAContext>::ReduceOperatorOn;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<Types>(query);
    return {detail::ReductionConfig(query)};
  }

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const ReducePlan& plan = Plan();
    const Tensor& x = DenseInput(0);
    return Visit<Types>([&]<class T>() {
      detail::IssueReduction<Kind, T>(context_, plan, x, y, 1,
                                      [this](int64_t bytes) { return Scratch(bytes); });
    });
  }
};

}}  // namespace opkit

// Registers a reduction of ops/math/reduce.hpp, and the types of its elements.
#define OPKIT_CUDA_REDUCTION(name, Kind, ...) \
  OPKIT_CUDA_OPERATOR(name, CUDAReduceOperator<detail::Kind, __VA_ARGS__>)

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_REDUCTION_HPP_

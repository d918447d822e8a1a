// PlanMemory: buffers with lifetimes in, offsets in one arena out, so that no two that are live
// together overlap. A portfolio of greedy orders first, then a search within a budget.
#ifndef OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_
#define OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_

#include <limits>

#include "opkit/graph/memory/search/max_weight_antichain.hpp"
#include "opkit/graph/memory/search/search.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Below this, conflicts are listed and placing fills gaps.
inline constexpr int64_t kMostListedPairs = 8'000'000;

template <class Problem>
MemoryPlan FinishPlan(const Problem& problem, size_t buffers, const Placing& best,
                      int64_t began_ns) {
  MemoryPlan plan;
  plan.offsets.assign(buffers, 0);
  plan.lower_bound_bytes =
      problem.spans_decide || problem.bound * problem.unit < problem.bound_bytes
          ? problem.bound_bytes
          : problem.bound * problem.unit;
  plan.naive_bytes = problem.naive_bytes;
  for (size_t i = 0; i < best.offsets.size(); ++i)
    plan.offsets[static_cast<size_t>(problem.buffer[i])] = best.offsets[i] * problem.unit;
  plan.arena_bytes = int64_t{best.height} * problem.unit;
  if (best.method) plan.method = best.method;
  plan.seconds = static_cast<double>(MonotonicNs() - began_ns) * 1e-9;
  return plan;
}

template <class Problem>
int EnoughUnits(const Problem& problem, const MemoryPlanOptions& options) {
  const int64_t units = options.enough_bytes / problem.unit;
  return units > problem.bound ? static_cast<int>(units) : problem.bound;
}

template <class Problem>
int64_t StepLimit(const Problem& problem, const MemoryPlanOptions& options) {
  if (options.max_steps >= 0) return options.max_steps;
  if (!options.time_budget.is_forever()) return (std::numeric_limits<int64_t>::max)();
  constexpr int64_t kDefault = MemoryPlanOptions::kDefaultSteps;
  constexpr int64_t kPerSquare = MemoryPlanOptions::kStepsPerSquare;
  const int64_t square = int64_t{problem.count} * problem.count;
  return problem.spans_decide || square > kDefault / kPerSquare ? kDefault : kPerSquare * square;
}

template <class Interval, class Conflicts, class Problem = MemoryProblem>
MemoryPlan PlanMemory(const std::vector<Interval>& buffers, const Conflicts& conflicts,
                      const MemoryPlanOptions& options) {
  const int64_t began_ns = MonotonicNs();
  Problem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  if (!conflicts.empty())
    TakeConflicts(conflicts, buffers.size(), &problem);
  else if (problem.pairs <= kMostListedPairs)
    ListConflicts(&problem);
  Placing best;
  SearchBudget budget;
  const int64_t most_steps = budget.steps = StepLimit(problem, options);
  if (problem.count > 0) {
    TryPortfolio(problem, EnoughUnits(problem, options), &best);
    if (best.height > problem.bound) RaiseBoundByFlow(&problem);
    budget.deadline_ns = options.time_budget.DeadlineNs();
    budget.seed = options.seed;
    budget.enough = EnoughUnits(problem, options);
    SearchPlacing(problem, &budget, &best);
  }
  MemoryPlan plan = FinishPlan(problem, buffers.size(), best, began_ns);
  plan.steps = most_steps - budget.steps;
  return plan;
}

}  // namespace detail

// Offsets for buffers that conflict where their spans of time overlap.
//
//   MemoryPlan plan = PlanMemory({{0, 2, 1024}, {1, 3, 512}, {2, 4, 1024}});
//   plan.arena_bytes;  // 1536
//
// Errors (kInvalidArgument, kOutOfRange) name the buffer: lower not below upper, a negative size,
// an alignment that is no power of two, sizes that add up to more than an int64 holds. 100,000
// buffers take less than a second by the portfolio alone.
template <class Interval = MemoryInterval, class Conflicts = MemoryConflicts>
MemoryPlan PlanMemory(const std::vector<Interval>& intervals,
                      const MemoryPlanOptions& options = {}) {
  return detail::PlanMemory(intervals, Conflicts(), options);
}

// Offsets for buffers that conflict as `conflicts` says, for those whose order in time is partial.
// The spans are those of one legal order: where two overlap, the conflict must be listed too.
template <class Interval = MemoryInterval, class Conflicts = MemoryConflicts>
MemoryPlan PlanMemory(const std::vector<Interval>& buffers,
                      const std::type_identity_t<Conflicts>& conflicts,
                      const MemoryPlanOptions& options = {}) {
  return detail::PlanMemory(buffers, conflicts, options);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_PLAN_MEMORY_HPP_

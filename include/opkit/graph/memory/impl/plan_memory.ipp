// Definitions of PlanMemory: makes the problem, places it greedily, raises the bound, searches.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_PLAN_MEMORY_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_PLAN_MEMORY_IPP_

#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/search/greedy.hpp"
#include "opkit/graph/memory/search/max_weight_antichain.hpp"
#include "opkit/graph/memory/search/search.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The most pairs of buffers for which conflicts are listed, so that placing can fill gaps.
inline constexpr int64_t kMostListedPairs = 8'000'000;

inline MemoryPlan FinishPlan(const MemoryProblem& problem, size_t buffers, const Placing& best) {
  MemoryPlan plan;
  plan.offsets.assign(buffers, 0);
  plan.lower_bound_bytes = problem.bound_bytes;
  if (!problem.spans_decide)
    plan.lower_bound_bytes = (std::max)(problem.bound_bytes, problem.bound * problem.unit);
  plan.naive_bytes = problem.naive_bytes;
  for (size_t i = 0; i < best.offsets.size(); ++i)
    plan.offsets[problem.buffer[i]] = best.offsets[i] * problem.unit;
  plan.arena_bytes = best.height * problem.unit;
  if (best.method) plan.method = best.method;
  return plan;
}

inline int64_t StepLimit(const MemoryProblem& problem, const MemorySearchOptions& options) {
  if (options.max_steps >= 0) return options.max_steps;
  if (!options.time_budget.is_forever()) return (std::numeric_limits<int64_t>::max)();
  constexpr int64_t kDefault = MemorySearchOptions::kDefaultSteps;
  constexpr int64_t kPerSquare = MemorySearchOptions::kStepsPerSquare;
  const int64_t square = int64_t{problem.count} * problem.count;
  return problem.spans_decide || square > kDefault / kPerSquare ? kDefault : kPerSquare * square;
}

}  // namespace detail

OPKIT_INLINE MemoryPlan PlanMemory(const std::vector<MemoryInterval>& intervals,
                                   const MemorySearchOptions& options) {
  return PlanMemory(intervals, MemoryConflicts(), options);
}

OPKIT_INLINE MemoryPlan PlanMemory(const std::vector<MemoryInterval>& buffers,
                                   const MemoryConflicts& conflicts,
                                   const MemorySearchOptions& options) {
  const int64_t began_ns = detail::MonotonicNs();
  detail::CheckSearchName(options.name);
  detail::MemoryProblem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  if (!conflicts.empty())
    TakeConflicts(conflicts, buffers.size(), &problem);
  else if (problem.pairs <= detail::kMostListedPairs)
    ListConflicts(&problem);
  detail::Placing best;
  detail::SearchBudget budget;
  const int64_t most_steps = budget.steps = StepLimit(problem, options);
  if (problem.count > 0) {
    const auto enough_units = [&] {
      return static_cast<int>(
          (std::max)(options.enough_bytes / problem.unit, int64_t{problem.bound}));
    };
    TryPortfolio(problem, enough_units(), &best);
    if (best.height > problem.bound) RaiseBoundByFlow(&problem);
    budget.deadline_ns = options.time_budget.DeadlineNs();
    budget.seed = options.seed;
    budget.enough = enough_units();
    detail::SearchPlacing(options.name, problem, &budget, &best);
  }
  MemoryPlan plan = FinishPlan(problem, buffers.size(), best);
  plan.steps = most_steps - budget.steps;
  plan.seconds = static_cast<double>(detail::MonotonicNs() - began_ns) * 1e-9;
  return plan;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_IMPL_PLAN_MEMORY_IPP_

// The search that follows the greedy portfolio, until time or steps run out: by restarts under
// ceilings between the lower bound and the best arena known, or by annealing.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_

#include "opkit/graph/memory/search/anneal.hpp"
#include "opkit/graph/memory/search/skyline_search.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Which buffers a restart prefers: long, large or crowded ones, in proportions drawn at random.
template <class Problem>
std::vector<int> DrawRanks(const Problem& problem, const std::vector<int64_t>& length,
                           const std::vector<int64_t>& peak, RandomGenerator& random) {
  const auto n = static_cast<size_t>(problem.count);
  const auto log = [](int64_t x) { return __builtin_log(static_cast<double>(x)); };
  const double by_length = 2 * random.uniform() - 0.2, by_size = 2 * random.uniform() - 0.2;
  const double by_peak = random.uniform() < 0.5 ? 20 * random.uniform() : 0;
  const double noise = random.uniform() < 0.5 ? 0.5 * random.uniform() : 0;
  std::vector<int64_t> keys(n);
  std::vector<int> order(n), rank(n);
  for (size_t i = 0; i < n; ++i) {
    order[i] = static_cast<int>(i);
    keys[i] = static_cast<int64_t>(-1e6 * (by_length * log(length[i]) +
                                           by_size * log(problem.size[i]) + by_peak * log(peak[i]) +
                                           (noise > 0 ? noise * random.normal() : 0)));
  }
  SortIndices(order, keys);
  for (size_t i = 0; i < n; ++i) rank[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return rank;
}

// Luby, Sinclair, Zuckerman 1993: 1 1 2 1 1 2 4 …, from 1.
inline int64_t Luby(int64_t i) {
  for (;;) {
    int64_t size = 1;
    while (size < i) size = 2 * size + 1;
    if (size == i) return (size + 1) / 2;
    i -= size / 2;
  }
}

// Every other restart tries the lowest ceiling that is not known to be impossible; the others halve
// the way to it, and back up towards the best height after a failure.
template <class Problem>
void SearchValleys(const Problem& problem, SearchBudget* budget, Placing* best) {
  const auto n = static_cast<size_t>(problem.count);
  constexpr int64_t kNodes = 250;
  RandomGenerator random(budget->seed);
  std::vector<int64_t> length(n), peak(n, 1);
  for (size_t i = 0; i < n; ++i) {
    length[i] = problem.upper[i] - problem.lower[i];
    for (int s = problem.lower[i]; s < problem.upper[i]; ++s) {
      const int64_t total = problem.total[static_cast<size_t>(s)];
      peak[i] = total > peak[i] ? total : peak[i];
    }
  }
  ValleySearch search(problem);
  int lowest = problem.bound, middle = 0;
  for (int64_t round = 0; best->height > budget->enough && best->height > lowest; ++round) {
    if (budget->steps <= 0 || (budget->deadline_ns >= 0 && MonotonicNs() >= budget->deadline_ns))
      return;
    const bool boldly = round % 2 == 0;
    if (middle < lowest || middle >= best->height) middle = lowest + (best->height - lowest) / 2;
    const int goal = budget->enough > lowest ? budget->enough : lowest;
    const int ceiling = boldly || middle < goal ? goal : middle;
    const std::vector<int> rank = DrawRanks(problem, length, peak, random);
    const int64_t nodes = n + kNodes * Luby(round / 2 + 1);
    const int64_t affordable = budget->steps / problem.count + 1;
    const SearchEnd end =
        search.Run(ceiling, rank, nodes < affordable ? nodes : affordable, budget->deadline_ns);
    budget->steps -= (search.nodes() + 1) * problem.count;
    search.Forget();
    if (end == SearchEnd::kFound) {
      KeepIfLower(search.offsets(), search.height(), "search", best);
      middle = lowest + (best->height - lowest) / 2;
    } else if (end == SearchEnd::kImpossible) {
      lowest = ceiling + 1;
    } else if (!boldly) {
      middle = ceiling + (best->height - ceiling + 1) / 2;
    }
  }
}

// Takes its steps off the budget.
template <class Problem>
void SearchPlacing(const Problem& problem, SearchBudget* budget, Placing* best) {
  if (problem.starts.empty() || best->height <= budget->enough) return;
  if (problem.spans_decide)
    SearchValleys(problem, budget, best);
  else
    AnnealOrder(problem, budget, best);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_

// The greedy portfolio of the memory planner. No single order of placing is the best for all
// problems, so several are tried.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_

#include <limits>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/search/fit.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the buffers by descending key; equal keys by descending size.
inline std::vector<int> OrderBy(const MemoryProblem& problem, const IndexedVector<int64_t>& keys) {
  return SortedOrder(keys.size(), [&](int a, int b) {
    return keys[a] != keys[b] ? keys[a] > keys[b] : problem.size[a] > problem.size[b];
  });
}

// The work that the portfolio may do, in conflicts that it looks at; about 20 ns each.
inline constexpr int64_t kPortfolioWork = 15'000'000;

// Tries several orders and keeps the best; stops at `enough` units.
inline void TryPortfolio(const MemoryProblem& problem, int enough, Placing* best) {
  const size_t n = Index(problem.count);
  const IndexedVector<int64_t> size(problem.size.begin(), problem.size.end());
  const IndexedVector<int64_t> alignment(problem.alignment.begin(), problem.alignment.end());
  const IndexedVector<int64_t> length = Lengths(problem);
  IndexedVector<int64_t> area(n), start(n), peak(n), crowd(n);
  const bool listed = !problem.conflicts.empty();
  for (size_t i = 0; i < n; ++i) {
    area[i] = size[i] * length[i];
    start[i] = -problem.lower[i];
    if (!listed) continue;
    for (int other : problem.conflicts.of(i)) crowd[i] += size[other];
  }
  IndexedVector<int> offsets;
  int64_t work = 0;
  if (problem.spans_decide && problem.pairs <= 25 * kPortfolioWork) {
    const int height = PlaceInTime(problem, OrderBy(problem, start), &offsets);
    best->KeepLower(offsets, height, "greedy in time");
    work += problem.pairs / 2;
  }
  if (problem.spans_decide && problem.pairs <= 2 * kPortfolioWork) peak = Peaks(problem);
  // A matrix of all pairs is faster if the lists hold more than a sixteenth of the pairs.
  const int64_t all_pairs = int64_t{problem.count} * problem.count / 2;
  const bool dense = listed && problem.count <= kMostInMatrix && problem.pairs > all_pairs / 16;
  LowestFit fit(problem);
  MatrixFit matrix_fit(problem, dense);
  const struct {
    const char* name;
    const IndexedVector<int64_t>& keys;
  } kOrders[] = {
      {"greedy by size", size},
      {"greedy by lifetime", length},
      {"greedy by area", area},
      {"greedy by crowd", crowd},
      {"greedy by peak", peak},
      {"greedy by start", start},
      // Padding is least if the buffers with the coarsest alignments lie lowest.
      {"greedy by alignment", alignment},
  };
  for (const auto& [name, keys] : kOrders) {
    if ((best->method && best->height <= enough) || work > kPortfolioWork) return;
    const std::vector<int> order = OrderBy(problem, keys);
    int height = 0;
    if (dense) {
      offsets.assign(n, 0);
      height = matrix_fit.Place(order, 0, (std::numeric_limits<int>::max)(), &offsets);
      work += all_pairs / 16;
    } else if (listed) {
      height = fit.Place(order, &offsets);
      work += 2 * problem.pairs + 10 * problem.count;
    } else {
      height = PlaceOnSkyline(problem, order, &offsets);
      work += 20 * problem.count;
    }
    best->KeepLower(offsets, height, name);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_

// The greedy portfolio of the memory planner. No one order of placing wins everywhere, so several
// are tried.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_

#include <limits>

#include "opkit/graph/memory/search/fit.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// By descending key; equal ones by descending size.
template <class Problem>
std::vector<int> OrderBy(const Problem& problem, const std::vector<int64_t>& keys) {
  std::vector<int> order;
  std::vector<int64_t> descending;
  for (int i = 0; i < problem.count; ++i) {
    order.push_back(i);
    descending.push_back(-int64_t{problem.size[static_cast<size_t>(i)]});
  }
  SortIndices(order, descending);
  for (size_t i = 0; i < keys.size(); ++i) descending[i] = -keys[i];
  SortIndices(order, descending);
  return order;
}

// Work that the portfolio may do, in conflicts looked at; about 20 ns each.
inline constexpr int64_t kPortfolioWork = 15'000'000;

// Several orders, the best kept; stops at the lower bound.
template <class Problem>
void TryPortfolio(const Problem& problem, int enough, Placing* best) {
  const auto n = static_cast<size_t>(problem.count);
  std::vector<int64_t> length(n), area(n), size(n), start(n), peak(n), crowd(n);
  for (size_t i = 0; i < n; ++i) {
    size[i] = problem.size[i];
    length[i] = problem.upper[i] - problem.lower[i];
    area[i] = size[i] * length[i];
    start[i] = -problem.lower[i];
  }
  std::vector<int> offsets;
  int64_t work = 0;
  const auto done = [&] { return best->method && best->height <= enough; };
  if (problem.spans_decide && problem.pairs <= 25 * kPortfolioWork) {
    const int height = PlaceInTime(problem, OrderBy(problem, start), &offsets);
    KeepIfLower(offsets, height, "greedy in time", best);
    work += problem.pairs / 2;
  }
  const bool listed = !problem.starts.empty();
  if (listed) {
    for (size_t i = 0; i < n; ++i)
      for (int64_t at = problem.starts[i]; at < problem.starts[i + 1]; ++at)
        crowd[i] += problem.size[static_cast<size_t>(problem.others[static_cast<size_t>(at)])];
  }
  if (problem.spans_decide && problem.pairs <= 2 * kPortfolioWork) {
    for (size_t i = 0; i < n; ++i)
      for (int s = problem.lower[i]; s < problem.upper[i]; ++s) {
        const int64_t total = problem.total[static_cast<size_t>(s)];
        peak[i] = total > peak[i] ? total : peak[i];
      }
  }
  // A matrix of all pairs beats lists that name a sixteenth of them.
  const int64_t all_pairs = int64_t{problem.count} * problem.count / 2;
  const bool dense = listed && problem.count <= kMostInMatrix && problem.pairs > all_pairs / 16;
  LowestFit fit(problem);
  MatrixFit matrix_fit(problem, dense);
  const auto attempt = [&](const char* name, const std::vector<int64_t>& keys) {
    if (done() || work > kPortfolioWork) return;
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
    KeepIfLower(offsets, height, name, best);
  };
  attempt("greedy by size", size);
  attempt("greedy by lifetime", length);
  attempt("greedy by area", area);
  attempt("greedy by crowd", crowd);
  attempt("greedy by peak", peak);
  attempt("greedy by start", start);
  // Padding is least where the coarsest alignments lie lowest.
  std::vector<int64_t> alignment(problem.alignment.begin(), problem.alignment.end());
  attempt("greedy by alignment", alignment);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_GREEDY_HPP_

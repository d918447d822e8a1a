// Restarts of SkylineSearch under ceilings between the lower bound and the best height known.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_RESTARTS_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_RESTARTS_HPP_

#include <cmath>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/search/skyline_search.hpp"
#include "opkit/op/random.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Draws the order in which a restart prefers buffers: long, large or crowded ones first, in random
// proportions.
inline IndexedVector<int> DrawRanks(const MemoryProblem& problem,
                                    const IndexedVector<int64_t>& length,
                                    const IndexedVector<int64_t>& peak, RandomGenerator& random) {
  const size_t n = length.size();
  const auto log = [](int64_t x) { return std::log(static_cast<double>(x)); };
  const double by_length = 2 * random.uniform() - 0.2, by_size = 2 * random.uniform() - 0.2;
  const double by_peak = random.uniform() < 0.5 ? 20 * random.uniform() : 0;
  const double noise = random.uniform() < 0.5 ? 0.5 * random.uniform() : 0;
  IndexedVector<int64_t> keys(n);
  for (size_t i = 0; i < n; ++i)
    keys[i] = static_cast<int64_t>(-1e6 * (by_length * log(length[i]) +
                                           by_size * log(problem.size[i]) + by_peak * log(peak[i]) +
                                           (noise > 0 ? noise * random.normal() : 0)));
  const std::vector<int> order = SortedBy(keys);
  IndexedVector<int> rank(n);
  for (size_t i = 0; i < n; ++i) rank[order[i]] = static_cast<int>(i);
  return rank;
}

// Returns number i, from 1, of the sequence 1 1 2 1 1 2 4 … (Luby, Sinclair, Zuckerman 1993).
inline int64_t Luby(int64_t i) {
  for (;;) {
    int64_t size = 1;
    while (size < i) size = 2 * size + 1;
    if (size == i) return (size + 1) / 2;
    i -= size / 2;
  }
}

// Restarts the search until its budget is spent or the best placing is low enough. Every other
// restart tries the lowest ceiling that is not known to be impossible. The others try a ceiling
// half way between that ceiling and the best height, and a higher ceiling after each failure.
inline void RestartSkyline(const MemoryProblem& problem, SearchBudget* budget, Placing* best) {
  constexpr int64_t kNodes = 250;
  RandomGenerator random(budget->seed);
  const IndexedVector<int64_t> length = Lengths(problem), peak = Peaks(problem);
  SkylineSearch search(problem);
  int lowest = problem.bound, middle = 0;
  for (int64_t round = 0; best->height > budget->enough && best->height > lowest; ++round) {
    if (budget->steps <= 0 || budget->is_late()) return;
    const bool boldly = round % 2 == 0;
    if (middle < lowest || middle >= best->height) middle = lowest + (best->height - lowest) / 2;
    const int goal = (std::max)(budget->enough, lowest);
    const int ceiling = boldly || middle < goal ? goal : middle;
    const IndexedVector<int> rank = DrawRanks(problem, length, peak, random);
    const int64_t nodes = problem.count + kNodes * Luby(round / 2 + 1);
    const int64_t affordable = budget->steps / problem.count + 1;
    const SearchEnd end =
        search.Run(ceiling, rank, (std::min)(nodes, affordable), budget->deadline_ns);
    budget->steps -= (search.nodes() + 1) * problem.count;
    search.Forget();
    if (end == SearchEnd::kFound) {
      best->KeepLower(search.offsets(), search.height(), "search");
      middle = lowest + (best->height - lowest) / 2;
    } else if (end == SearchEnd::kImpossible) {
      lowest = ceiling + 1;
    } else if (!boldly) {
      middle = ceiling + (best->height - ceiling + 1) / 2;
    }
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_SKYLINE_RESTARTS_HPP_

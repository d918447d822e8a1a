// Simulated annealing over the order in which buffers are placed, each at the lowest free offset.
// The search for problems whose conflicts are more than overlapping spans of time.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_

#include <cmath>

#include "opkit/graph/memory/search/fit.hpp"
#include "opkit/op/random.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Searches for a lower placing by moves in the order. A move takes a buffer that reaches the
// height, or a buffer placed before it that conflicts with it, and places the buffer earlier. Of
// the neighbourhoods tried (insert anywhere, swap, move a block, several inserts, the topmost
// buffers alone) this one came lowest in equal time. If there are few buffers and their bound
// cannot be reached, all orders have soon been tried: the search gives up after many moves without
// a lower placing. For at most kMostInMatrix buffers.
inline void AnnealOrder(const MemoryProblem& problem, SearchBudget* budget, Placing* best) {
  // Temperature at the start, as a share of the bound; falls to 0 as the budget is used up.
  constexpr double kHeat = 0.003;
  const int64_t patience = int64_t{2000} * problem.count;  // moves
  RandomGenerator random(budget->seed);
  const auto below = [&](size_t m) { return Index(random() % m); };
  MatrixFit placer(problem);
  IndexedVector<int> offsets = best->offsets, place(offsets.size()), trial;
  std::vector<int> order = SortedBy(offsets), candidate, earlier;
  int height = placer.Place(order, 0, 1 << 30, &offsets);
  best->KeepLower(offsets, height, "annealing");
  const int64_t began_ns = MonotonicNs(), all_steps = budget->steps;
  for (int64_t idle = 0; best->height > budget->enough && budget->steps > 0 && idle < patience;
       ++idle) {
    budget->steps -= int64_t{problem.count} * (problem.count / 8 + 1);
    double left = static_cast<double>(budget->steps) / static_cast<double>(all_steps);
    if (budget->deadline_ns >= 0) {
      const int64_t now_ns = MonotonicNs();
      if (now_ns >= budget->deadline_ns) return;
      left = (std::min)(left, static_cast<double>(budget->deadline_ns - now_ns) /
                                  static_cast<double>(budget->deadline_ns - began_ns));
    }
    earlier.clear();
    for (int i = 0; i < problem.count; ++i) {
      place[order[Index(i)]] = i;
      if (offsets[i] + problem.size[i] == height) earlier.push_back(i);
    }
    int moved = earlier[below(earlier.size())];
    if (below(2) == 0) {
      earlier.clear();
      for (int other : problem.conflicts.of(moved))
        if (place[other] < place[moved]) earlier.push_back(other);
      if (!earlier.empty()) moved = earlier[below(earlier.size())];
    }
    const int from = place[moved];
    if (from == 0) continue;
    const size_t to = below(Index(from));
    candidate = order;
    std::rotate(candidate.begin() + static_cast<std::ptrdiff_t>(to), candidate.begin() + from,
                candidate.begin() + from + 1);
    const double heat = kHeat * left * problem.bound;
    const int limit = height + static_cast<int>(-heat * std::log(1 - random.uniform()));
    trial = offsets;
    const int reached = placer.Place(candidate, to, limit, &trial);
    if (reached < 0) continue;
    height = reached;
    order.swap(candidate);
    offsets.swap(trial);
    if (height < best->height) idle = 0;
    best->KeepLower(offsets, height, "annealing");
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_

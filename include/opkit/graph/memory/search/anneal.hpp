// The search where conflicts are more than spans of time say: annealing over the order in which
// buffers are placed, each at the lowest offset that is free.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_

#include "opkit/graph/memory/search/greedy.hpp"
#include "opkit/op/random.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A move takes a buffer that makes the height, or one below it that conflicts with it, and places
// it earlier. Of the neighbourhoods tried (insert anywhere, swap, move a block, several inserts,
// the topmost buffers alone) it came lowest in equal time. A few buffers whose bound cannot be
// reached have soon been in every order: it gives up when many moves have found nothing lower.
template <class Problem>
void AnnealOrder(const Problem& problem, SearchBudget* budget, Placing* best) {
  if (problem.count > kMostInMatrix) return;
  const auto n = static_cast<size_t>(problem.count);
  constexpr double kHeat = 0.003;  // of the bound, falling to 0 with the budget
  const int64_t patience = int64_t{2000} * problem.count;  // moves
  RandomGenerator random(budget->seed);
  const auto below = [&](size_t m) { return static_cast<size_t>(random() % m); };
  MatrixFit placer(problem);
  std::vector<int> order(n), place(n), candidate, earlier, offsets = best->offsets, trial;
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
  SortIndices(order, offsets);
  int height = placer.Place(order, 0, 1 << 30, &offsets);
  KeepIfLower(offsets, height, "annealing", best);
  const int64_t began_ns = MonotonicNs(), all_steps = budget->steps;
  for (int64_t idle = 0; best->height > budget->enough && budget->steps > 0 && idle < patience;
       ++idle) {
    budget->steps -= int64_t{problem.count} * (problem.count / 8 + 1);
    double left = static_cast<double>(budget->steps) / static_cast<double>(all_steps);
    if (budget->deadline_ns >= 0) {
      const int64_t now_ns = MonotonicNs();
      if (now_ns >= budget->deadline_ns) return;
      const double time_left = static_cast<double>(budget->deadline_ns - now_ns) /
                               static_cast<double>(budget->deadline_ns - began_ns);
      left = time_left < left ? time_left : left;
    }
    earlier.clear();
    for (size_t i = 0; i < n; ++i) {
      place[static_cast<size_t>(order[i])] = static_cast<int>(i);
      if (offsets[i] + problem.size[i] == height) earlier.push_back(static_cast<int>(i));
    }
    auto moved = static_cast<size_t>(earlier[below(earlier.size())]);
    if (below(2) == 0) {
      earlier.clear();
      for (int64_t at = problem.starts[moved]; at < problem.starts[moved + 1]; ++at) {
        const int other = problem.others[static_cast<size_t>(at)];
        if (place[static_cast<size_t>(other)] < place[moved]) earlier.push_back(other);
      }
      if (!earlier.empty()) moved = static_cast<size_t>(earlier[below(earlier.size())]);
    }
    const auto from = static_cast<size_t>(place[moved]);
    if (from == 0) continue;
    const size_t to = below(from);
    candidate = order;
    for (size_t i = from; i > to; --i) candidate[i] = candidate[i - 1];
    candidate[to] = static_cast<int>(moved);
    const double heat = kHeat * left * problem.bound;
    const int limit = height + static_cast<int>(-heat * __builtin_log(1 - random.uniform()));
    trial = offsets;
    const int reached = placer.Place(candidate, to, limit, &trial);
    if (reached < 0) continue;
    height = reached;
    order.swap(candidate);
    offsets.swap(trial);
    if (height < best->height) idle = 0;
    KeepIfLower(offsets, height, "annealing", best);
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_ANNEAL_HPP_

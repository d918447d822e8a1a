// Random acyclic graphs for the tests of schedules and replays.
#ifndef OPKIT_TESTS_ENGINE_RANDOM_GRAPH_HPP_
#define OPKIT_TESTS_ENGINE_RANDOM_GRAPH_HPP_

#include <random>
#include <vector>

#include "opkit/engine/schedule/schedule.hpp"

struct RandomGraph {
  int nodes = 0;
  std::vector<opkit::ScheduleEdge> edges;
};

// Numbers are in no topological order when `shuffled`.
inline RandomGraph MakeRandomGraph(std::mt19937& random, int nodes, double edges_per_node,
                                   double early_share = 0, bool shuffled = false) {
  RandomGraph graph{nodes, {}};
  std::vector<int> number(static_cast<size_t>(nodes));
  for (int i = 0; i < nodes; ++i) number[static_cast<size_t>(i)] = i;
  if (shuffled)
    for (int i = nodes - 1; i > 0; --i)
      std::swap(number[static_cast<size_t>(i)], number[random() % static_cast<unsigned>(i + 1)]);
  if (nodes < 2) return graph;
  for (int e = 0; e < static_cast<int>(nodes * edges_per_node); ++e) {
    const int to = 1 + static_cast<int>(random() % static_cast<unsigned>(nodes - 1));
    // Mostly near, so that graphs have some depth.
    const unsigned reach = random() % 4 == 0 ? static_cast<unsigned>(to) : (to < 8 ? to : 8u);
    const int from = to - 1 - static_cast<int>(random() % reach);
    graph.edges.push_back({number[static_cast<size_t>(from)], number[static_cast<size_t>(to)],
                           random() % 1000 < early_share * 1000});
  }
  return graph;
}

#endif  // OPKIT_TESTS_ENGINE_RANDOM_GRAPH_HPP_

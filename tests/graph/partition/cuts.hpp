// Support for the tests of cuts: problems made by hand and at random, and a checker that is
// independent of the cut's algorithm.
#ifndef OPKIT_TESTS_GRAPH_PARTITION_CUTS_HPP_
#define OPKIT_TESTS_GRAPH_PARTITION_CUTS_HPP_

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "opkit/graph/partition/cut.hpp"
#include "opkit/op/check/check_data.hpp"

namespace cuts {
using namespace opkit;

// A problem of `n` nodes in the order of their numbers, none of them taken; every edge joins.
inline CutProblem Problem(int n, std::vector<GraphView::Edge> edges) {
  CutProblem problem;
  problem.order.resize(static_cast<size_t>(n));
  std::iota(problem.order.begin(), problem.order.end(), 0);
  problem.joins = edges;
  problem.edges = std::move(edges);
  problem.kinds.assign(static_cast<size_t>(n), kNotTaken);
  return problem;
}
inline CutProblem Taking(CutProblem problem, std::initializer_list<int> nodes,
                         int kind = kAnySubgraph) {
  for (const int node : nodes) problem.kinds[static_cast<size_t>(node)] = kind;
  return problem;
}

// True if the graph in which every group is one node has no cycle. Removes nodes without
// predecessors until no node is left or none can be removed.
inline bool IsAcyclic(const CutProblem& problem, const std::vector<int>& group) {
  const size_t n = problem.order.size();
  std::vector<size_t> unit(n);
  for (size_t i = 0; i < n; ++i) unit[i] = group[i] < 0 ? n + i : static_cast<size_t>(group[i]);
  std::vector<std::vector<size_t>> after(2 * n);
  std::vector<int> waits(2 * n, 0);
  for (const auto& edge : problem.edges) {
    const size_t a = unit[static_cast<size_t>(edge.from)], b = unit[static_cast<size_t>(edge.to)];
    if (a == b) continue;
    after[a].push_back(b);
    ++waits[b];
  }
  std::vector<size_t> ready;
  for (size_t u = 0; u < 2 * n; ++u)
    if (waits[u] == 0) ready.push_back(u);
  size_t done = 0;
  while (!ready.empty()) {
    const size_t u = ready.back();
    ready.pop_back();
    ++done;
    for (const size_t next : after[u])
      if (--waits[next] == 0) ready.push_back(next);
  }
  return done == 2 * n;
}

// Every group is connected by joins, holds only taken nodes that may be together, and every taken
// node has a group.
inline void CheckCut(const CutProblem& problem, const CutResult& cut) {
  const size_t n = problem.order.size();
  REQUIRE(cut.group.size() == n);
  CHECK(IsAcyclic(problem, cut.group));
  std::vector<int> size(static_cast<size_t>(cut.num_groups), 0), kind(size.size(), kAnySubgraph);
  for (size_t i = 0; i < n; ++i) {
    if ((problem.kinds[i] == kNotTaken) != (cut.group[i] < 0))
      FAIL_CHECK("node " << i << " is of kind " << problem.kinds[i] << " and in group "
                         << cut.group[i]);
    if (cut.group[i] < 0) continue;
    const auto g = static_cast<size_t>(cut.group[i]);
    REQUIRE(g < size.size());
    ++size[g];
    if (problem.kinds[i] >= 0 && kind[g] >= 0 && kind[g] != problem.kinds[i])
      FAIL_CHECK("group " << g << " has two kinds");
    kind[g] = std::max(kind[g], problem.kinds[i]);
  }
  std::vector<size_t> parent(n);
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto find = [&](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  std::vector<int> parts = size;  // connected parts of each group
  for (const auto& join : problem.joins) {
    const auto a = static_cast<size_t>(join.from), b = static_cast<size_t>(join.to);
    if (cut.group[a] < 0 || cut.group[a] != cut.group[b] || find(a) == find(b)) continue;
    parent[find(a)] = find(b);
    --parts[static_cast<size_t>(cut.group[a])];
  }
  for (size_t g = 0; g < parts.size(); ++g) {
    if (parts[g] != 1) FAIL_CHECK("group " << g << " is in " << parts[g] << " parts");
    if (problem.max_size > 0) CHECK(size[g] <= problem.max_size);
  }
}

// Each node reads up to `reads` of the `window` nodes before it, and is taken with the probability.
inline CutProblem RandomProblem(uint64_t seed, int n, int reads, int window, double taken,
                                int kinds = 0) {
  detail::CheckRandom random(seed);
  std::vector<GraphView::Edge> edges;
  for (int to = 1; to < n; ++to) {
    const int count = static_cast<int>(random.Next() % static_cast<uint64_t>(reads + 1));
    for (int i = 0; i < count; ++i) {
      const int reach = std::min(to, window);
      const int from = to - 1 - static_cast<int>(random.Next() % static_cast<uint64_t>(reach));
      edges.push_back({from, to});
    }
  }
  CutProblem problem = Problem(n, std::move(edges));
  for (int& kind : problem.kinds)
    if (random.Uniform() < taken)
      kind = kinds == 0 ? kAnySubgraph
                        : static_cast<int>(random.Next() % static_cast<uint64_t>(kinds));
  return problem;
}

}  // namespace cuts

#endif  // OPKIT_TESTS_GRAPH_PARTITION_CUTS_HPP_

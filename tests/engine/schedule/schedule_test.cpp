#include "opkit/engine/schedule/schedule.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "engine/random_graph.hpp"
#include "support/error_of.hpp"

namespace schedule_test { namespace {

using opkit::ErrorCode;
using opkit::Schedule;
using opkit::ScheduleEdge;
using opkit::ScheduleOrder;

struct Kept {
  int from, to;
  bool early;
  friend auto operator<=>(const Kept&, const Kept&) = default;
};

// By the numbers of the graph as given.
std::set<Kept> KeptEdges(const Schedule& schedule) {
  std::set<Kept> kept;
  for (int node = 0; node < schedule.size(); ++node) {
    const auto begin = schedule.entry_begin()[static_cast<size_t>(node)];
    const auto end = schedule.entry_begin()[static_cast<size_t>(node) + 1];
    for (int e = begin; e < end; ++e) {
      const int entry = schedule.entries()[static_cast<size_t>(e)];
      kept.insert({schedule.original_of(node), schedule.original_of(Schedule::TargetOf(entry)),
                   Schedule::IsEarly(entry)});
    }
  }
  return kept;
}

// The guarantees of an edge set: strength[u][v] is 2 if v starts after u has completed, 1 if after
// it was issued, 0 if there is no guarantee. From the definition: "u issued" precedes "u
// completed", and an edge joins one of them to "v issued".
std::vector<std::vector<int>> Promises(int nodes, const std::vector<Kept>& edges) {
  const int events = 2 * nodes;  // u issued: 2u, u completed: 2u + 1
  std::vector<std::vector<bool>> before(static_cast<size_t>(events),
                                        std::vector<bool>(static_cast<size_t>(events)));
  const auto at = [&](int a, int b) {
    return before[static_cast<size_t>(a)][static_cast<size_t>(b)];
  };
  const auto set = [&](int a, int b) {
    before[static_cast<size_t>(a)][static_cast<size_t>(b)] = true;
  };
  for (int u = 0; u < nodes; ++u) set(2 * u, 2 * u + 1);
  for (const Kept& edge : edges) set(edge.early ? 2 * edge.from : 2 * edge.from + 1, 2 * edge.to);
  for (int k = 0; k < events; ++k) {
    for (int a = 0; a < events; ++a) {
      if (!at(a, k)) continue;
      for (int b = 0; b < events; ++b)
        if (at(k, b)) set(a, b);
    }
  }
  std::vector<std::vector<int>> strength(static_cast<size_t>(nodes),
                                         std::vector<int>(static_cast<size_t>(nodes)));
  for (int u = 0; u < nodes; ++u) {
    for (int v = 0; v < nodes; ++v) {
      strength[static_cast<size_t>(u)][static_cast<size_t>(v)] = u == v                 ? 0
                                                                 : at(2 * u + 1, 2 * v) ? 2
                                                                 : at(2 * u, 2 * v)     ? 1
                                                                                        : 0;
    }
  }
  return strength;
}

void CheckOrderAndLevels(const Schedule& schedule, const RandomGraph& graph) {
  std::vector<int> seen(static_cast<size_t>(graph.nodes));
  for (int node = 0; node < graph.nodes; ++node) {
    const int original = schedule.original_of(node);
    ++seen[static_cast<size_t>(original)];
    CHECK(schedule.node_of(original) == node);
  }
  CHECK(std::count(seen.begin(), seen.end(), 1) == graph.nodes);
  // The level of a node is the length of the longest path to it.
  std::vector<int> level(static_cast<size_t>(graph.nodes), -1);
  for (int l = 0; l < schedule.levels(); ++l) {
    const int begin = schedule.level_begin()[static_cast<size_t>(l)];
    const int end = schedule.level_begin()[static_cast<size_t>(l) + 1];
    CHECK(begin < end);
    for (int i = begin; i < end; ++i)
      level[static_cast<size_t>(schedule.original_of(schedule.level_node(i)))] = l;
  }
  std::vector<int> longest(static_cast<size_t>(graph.nodes));
  for (bool changed = true; changed;) {
    changed = false;
    for (const ScheduleEdge& edge : graph.edges) {
      int& to = longest[static_cast<size_t>(edge.to)];
      const int from = longest[static_cast<size_t>(edge.from)];
      if (to <= from) {
        to = from + 1;
        changed = true;
      }
    }
  }
  CHECK(level == longest);
  for (const ScheduleEdge& edge : graph.edges)
    CHECK(schedule.node_of(edge.from) < schedule.node_of(edge.to));
}

void CheckEntries(const Schedule& schedule) {
  std::vector<int> degree(static_cast<size_t>(schedule.size()));
  for (const Kept& edge : KeptEdges(schedule))
    ++degree[static_cast<size_t>(schedule.node_of(edge.to))];
  CHECK(degree == schedule.in_degrees());
  for (int node = 0; node < schedule.size(); ++node) {
    bool late = false;
    for (int e = schedule.entry_begin()[static_cast<size_t>(node)];
         e < schedule.entry_begin()[static_cast<size_t>(node) + 1]; ++e) {
      const int entry = schedule.entries()[static_cast<size_t>(e)];
      CHECK(Schedule::IsOnly(entry) == (schedule.in_degree(Schedule::TargetOf(entry)) == 1));
      CHECK_FALSE((late && Schedule::IsEarly(entry)));
      late = !Schedule::IsEarly(entry);
    }
  }
}

TEST_CASE("random graphs: order, levels, and removal exactly as by the definition") {
  for (unsigned seed = 1; seed <= Rounds(150u); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const double early = seed % 3 == 0 ? 0.0 : 0.4;
    const RandomGraph graph = MakeRandomGraph(random, 1 + static_cast<int>(random() % 24),
                                              0.5 + (random() % 40) / 10.0, early, seed % 2 == 0);
    std::vector<Kept> given;
    for (const ScheduleEdge& edge : graph.edges) given.push_back({edge.from, edge.to, edge.early});
    const auto promised = Promises(graph.nodes, given);
    for (const ScheduleOrder order : {ScheduleOrder::kStable, ScheduleOrder::kLevels}) {
      const Schedule schedule(graph.nodes, graph.edges, {.order = order});
      CheckOrderAndLevels(schedule, graph);
      CheckEntries(schedule);
      if (order == ScheduleOrder::kLevels) CHECK(schedule.level_order().empty());
      const std::set<Kept> kept = KeptEdges(schedule);
      const std::vector<Kept> kept_list(kept.begin(), kept.end());
      CHECK(Promises(graph.nodes, kept_list) == promised);
      // No edge can be spared.
      for (size_t i = 0; i < kept_list.size(); ++i) {
        std::vector<Kept> fewer = kept_list;
        fewer.erase(fewer.begin() + static_cast<int>(i));
        CHECK(Promises(graph.nodes, fewer) != promised);
      }
      CHECK(schedule.exactly_reduced());
      CHECK(schedule.edges_given() == static_cast<int64_t>(graph.edges.size()));
    }
  }
}

TEST_CASE("a graph in topological order keeps its numbers; another moves only nodes that must") {
  const Schedule same(4, {{0, 2}, {1, 2}, {0, 3}});
  for (int i = 0; i < 4; ++i) CHECK(same.original_of(i) == i);
  // 2 is needed by 1, and 4 by 2.
  const Schedule moved(5, {{2, 1}, {4, 2}, {0, 3}});
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) order.push_back(moved.original_of(i));
  CHECK(order == std::vector<int>{0, 4, 2, 1, 3});
}

TEST_CASE("a large graph drops edges that two others imply, and keeps its guarantees") {
  const int n = Schedule::kExactNodes + 10;
  std::vector<ScheduleEdge> edges;
  for (int i = 1; i < n; ++i) edges.push_back({i - 1, i});
  for (int i = 2; i < n; ++i) edges.push_back({i - 2, i, i % 2 == 0});
  const Schedule schedule(n, edges);
  CHECK_FALSE(schedule.exactly_reduced());
  CHECK(schedule.edges_kept() == n - 1);
  CHECK(schedule.levels() == n);
}

TEST_CASE("a large graph of many small ones keeps the guarantees of each") {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    constexpr int kNodes = 16;
    const int copies = Schedule::kExactNodes / kNodes + 1;
    std::vector<RandomGraph> parts;
    std::vector<ScheduleEdge> edges;
    for (int copy = 0; copy < copies; ++copy) {
      parts.push_back(MakeRandomGraph(random, kNodes, 2.5, 0.4, seed % 2 == 0));
      for (const ScheduleEdge& edge : parts.back().edges)
        edges.push_back({copy * kNodes + edge.from, copy * kNodes + edge.to, edge.early});
    }
    const Schedule schedule(copies * kNodes, edges);
    CHECK_FALSE(schedule.exactly_reduced());
    CHECK(schedule.edges_kept() < schedule.edges_given() * 3 / 4);
    CheckEntries(schedule);
    std::vector<std::vector<Kept>> kept(static_cast<size_t>(copies));
    for (const Kept& edge : KeptEdges(schedule)) {
      kept[static_cast<size_t>(edge.from / kNodes)].push_back(
          {edge.from % kNodes, edge.to % kNodes, edge.early});
    }
    for (int copy = 0; copy < copies; ++copy) {
      std::vector<Kept> given;
      for (const ScheduleEdge& edge : parts[static_cast<size_t>(copy)].edges)
        given.push_back({edge.from, edge.to, edge.early});
      CHECK(Promises(kNodes, given) == Promises(kNodes, kept[static_cast<size_t>(copy)]));
    }
  }
}

TEST_CASE("an early edge implies no late one; a late one implies both") {
  // 0 -early-> 1 -> 2: whether 0 has completed when 2 starts is open.
  CHECK(KeptEdges(Schedule(3, {{0, 1, true}, {1, 2}, {0, 2}})).size() == 3);
  CHECK(KeptEdges(Schedule(3, {{0, 1, true}, {1, 2}, {0, 2, true}})).size() == 2);
  CHECK(KeptEdges(Schedule(3, {{0, 1}, {1, 2, true}, {0, 2}})).size() == 2);
  // Given twice, the stronger counts, in either order.
  CHECK(KeptEdges(Schedule(2, {{0, 1, true}, {0, 1}})) == std::set<Kept>{{0, 1, false}});
  CHECK(KeptEdges(Schedule(2, {{0, 1}, {0, 1, true}})) == std::set<Kept>{{0, 1, false}});
}

TEST_CASE("edges given several times count once, among few or many predecessors") {
  CHECK(Schedule(3, {{0, 2}, {1, 2}, {0, 2}}).edges_kept() == 2);
  for (const int n : {20, Schedule::kExactNodes + 1}) {
    std::vector<ScheduleEdge> edges;
    for (int round = 0; round < 3; ++round)
      for (int i = 0; i < n - 1; ++i) edges.push_back({i, n - 1, round != 1});
    const Schedule schedule(n, edges);
    CHECK(schedule.edges_kept() == n - 1);
    CHECK(schedule.in_degree(n - 1) == n - 1);
    CHECK(std::none_of(schedule.entries().begin(), schedule.entries().end(), Schedule::IsEarly));
  }
}

TEST_CASE("in_order joins each node to the next") {
  const Schedule schedule(4, {{0, 3}, {1, 2}}, {.in_order = true});
  CHECK(KeptEdges(schedule) ==
        std::set<Kept>{{0, 1, true}, {0, 3, false}, {1, 2, false}, {2, 3, true}});
}

TEST_CASE("widths are counted by powers of two") {
  // Levels of 1, 3 and 1.
  const Schedule schedule(5, {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 4}});
  CHECK(schedule.levels() == 3);
  CHECK(schedule.max_width() == 3);
  CHECK(schedule.roots() == 1);
  CHECK(schedule.levels_of_width(0) == 2);
  CHECK(schedule.nodes_of_width(0) == 2);
  CHECK(schedule.levels_of_width(1) == 1);
  CHECK(schedule.nodes_of_width(1) == 3);
  const Schedule empty(0, std::vector<ScheduleEdge>{});
  CHECK(empty.levels() == 0);
  CHECK(empty.roots() == 0);
}

TEST_CASE("a cycle is shown as a path, with names where there are some") {
  auto error = ErrorOf([] { Schedule(5, {{0, 1}, {1, 3}, {3, 4}, {4, 1}, {2, 3}}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "expected a graph without cycles, found 1 -> 3 -> 4 -> 1; remove one of these edges");
  CHECK(Contains(ErrorOf([] { Schedule(2, {{1, 1}}); }).message(), "found 1 -> 1;"));
  const auto name = [](int node) { return "op" + std::to_string(node); };
  const opkit::FunctionRef<std::string(int)> ref = name;
  error = ErrorOf([&] { Schedule(2, {{0, 1}, {1, 0}}, {.name = &ref}); });
  CHECK(Contains(error.message(), "found op0 -> op1 -> op0;"));
  std::vector<ScheduleEdge> ring;
  for (int i = 0; i < 1000; ++i) ring.push_back({i, (i + 1) % 1000});
  CHECK(Contains(ErrorOf([&] { Schedule(1000, ring); }).message(),
                 "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 8 -> 9 -> 10 -> 11 -> 12 -> 13 -> 14 -> "
                 "15 -> (984 more) -> 0;"));
}

TEST_CASE("every edge of a cycle's message exists") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    RandomGraph graph = MakeRandomGraph(random, 12, 2, 0, true);
    for (int i = 0; i < 3; ++i) {
      const ScheduleEdge& edge = graph.edges[random() % graph.edges.size()];
      graph.edges.push_back({edge.to, edge.from});
    }
    std::vector<int> path;
    const auto name = [&](int node) {
      path.push_back(node);
      return std::string();
    };
    const opkit::FunctionRef<std::string(int)> ref = name;
    CHECK(ErrorOf([&] { Schedule(12, graph.edges, {.name = &ref}); }).code() ==
          ErrorCode::kInvalidArgument);
    REQUIRE(path.size() >= 2);
    CHECK(path.front() == path.back());
    for (size_t i = 1; i < path.size(); ++i) {
      CHECK(std::any_of(graph.edges.begin(), graph.edges.end(), [&](const ScheduleEdge& edge) {
        return edge.from == path[i - 1] && edge.to == path[i];
      }));
    }
  }
}

TEST_CASE("an edge outside the graph is an error that names it") {
  auto error = ErrorOf([] { Schedule(3, {{0, 1}, {1, 3}}); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() == "expected edge 1 to join two of the 3 nodes from 0 to 2, found 1 -> 3");
  CHECK(ErrorOf([] { Schedule(3, {{-1, 1}}); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] { Schedule(-1, nullptr, 0); }).code() == ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace schedule_test

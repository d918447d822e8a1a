// Cuts against exhaustive search, against known graphs, and at sizes that quadratic time would
// show.
#include "opkit/graph/partition/cut.hpp"

#include "graph/partition/cuts.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"

namespace cut_test {
using namespace cuts;

namespace {

// The fewest groups that any legal cut has, by trying all: each taken node joins a group that there
// is, or begins one. `best` is known to be possible.
class FewestGroups {
 public:
  FewestGroups(const CutProblem& problem, int best)
      : problem_(problem), best_(best), group_(problem.order.size(), -1) {
    for (const int node : problem.order)
      if (problem.kinds[static_cast<size_t>(node)] != kNotTaken) taken_.push_back(node);
  }
  int Find() {
    Try(0, 0);
    return best_;
  }

 private:
  void Try(size_t next, int groups) {
    if (groups >= best_) return;
    if (next == taken_.size()) {
      if (IsAcyclic(problem_, group_) && Connected(groups)) best_ = groups;
      return;
    }
    const auto node = static_cast<size_t>(taken_[next]);
    for (int g = 0; g <= groups; ++g) {
      group_[node] = g;
      if (Fits(g)) Try(next + 1, std::max(groups, g + 1));
    }
    group_[node] = -1;
  }
  bool Fits(int g) const {
    int kind = kAnySubgraph;
    for (const int node : taken_) {
      const auto i = static_cast<size_t>(node);
      if (group_[i] != g || problem_.kinds[i] < 0) continue;
      if (kind >= 0 && kind != problem_.kinds[i]) return false;
      kind = problem_.kinds[i];
    }
    return true;
  }
  bool Connected(int groups) const {
    int parts = static_cast<int>(taken_.size());
    std::vector<size_t> parent(group_.size());
    std::iota(parent.begin(), parent.end(), size_t{0});
    const auto find = [&](size_t i) {
      while (parent[i] != i) i = parent[i] = parent[parent[i]];
      return i;
    };
    for (const auto& join : problem_.joins) {
      const auto a = static_cast<size_t>(join.from), b = static_cast<size_t>(join.to);
      if (group_[a] < 0 || group_[a] != group_[b] || find(a) == find(b)) continue;
      parent[find(a)] = find(b);
      --parts;
    }
    return parts == groups;
  }

  const CutProblem& problem_;
  int best_;
  std::vector<int> taken_, group_;
};

std::vector<int> Cut(const CutProblem& problem) {
  const CutResult cut = CutSubgraphs(problem);
  CheckCut(problem, cut);
  return cut.group;
}

}  // namespace

TEST_CASE("a set that a path leaves and comes back to is split where it must be") {
  // 0 - 1 - 3, and 0 - 2 - 3 with 2 outside.
  const CutProblem diamond = Taking(Problem(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}), {0, 1, 3});
  CHECK(CutSubgraphs(diamond).num_groups == 2);
  CheckCut(diamond, CutSubgraphs(diamond));
  CHECK(PathThroughOutside(diamond, {1, 1, 0, 1}) == std::vector<int>{0, 2, 3});
  CHECK(PathThroughOutside(diamond, {1, 1, 0, 0}).empty());
  CHECK(PathThroughOutside(diamond, {1, 1, 1, 1}).empty());
  CHECK(PathThroughOutside(diamond, {0, 1, 1, 0}).empty());
  // On a longer way round, the path lists every node.
  const CutProblem round = Problem(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {0, 5}});
  CHECK(PathThroughOutside(round, {1, 0, 0, 0, 0, 1}) == std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(PathThroughOutside(round, {1, 1, 0, 0, 1, 1}) == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("a node that waits for more than its subgraph does not split it") {
  // 2 reads 0, which is inside, and 1, which is not.
  CHECK(Cut(Taking(Problem(3, {{0, 2}, {1, 2}}), {0, 2})) == std::vector<int>{0, -1, 0});
  // All of a chain whose nodes each read something from outside.
  CHECK(Cut(Taking(Problem(6, {{0, 2}, {1, 2}, {2, 4}, {3, 4}, {4, 5}}), {0, 2, 4, 5})) ==
        std::vector<int>{0, -1, 0, -1, 0, 0});
}

TEST_CASE("two subgraphs that need each other are seen") {
  // ANCESTORS: 0 = {a1, a2}, 1 = {x, b1, b2}, edges a1-b1, b2-a2, a1-a2, x-b1, x-b2: each is legal
  // by itself, and together they wait for each other.
  enum { a1, x, b1, b2, a2 };
  CutProblem both = Problem(5, {{a1, b1}, {x, b1}, {x, b2}, {b2, a2}, {a1, a2}});
  both = Taking(Taking(both, {a1, a2}, 0), {x, b1, b2}, 1);
  CHECK(PathThroughOutside(both, {1, 0, 0, 0, 1}).empty());
  CHECK(PathThroughOutside(both, {0, 1, 1, 1, 0}).empty());
  CHECK_FALSE(IsAcyclic(both, {0, 1, 1, 1, 0}));
  CHECK(CutSubgraphs(both).num_groups == 3);
  CheckCut(both, CutSubgraphs(both));
}

TEST_CASE("a diamond ladder of any length is one subgraph") {
  // The rungs double the paths: 2^7 for 22 nodes, 2^1000 for the other.
  for (const int diamonds : {7, 1000}) {
    std::vector<GraphView::Edge> edges;
    const int n = 3 * diamonds + 1;
    for (int i = 0; i + 3 < n; i += 3)
      for (const auto& edge : {GraphView::Edge{i, i + 1}, GraphView::Edge{i, i + 2},
                               GraphView::Edge{i + 1, i + 3}, GraphView::Edge{i + 2, i + 3}})
        edges.push_back(edge);
    CutProblem ladder = Problem(n, edges);
    for (int& kind : ladder.kinds) kind = kAnySubgraph;
    CHECK(CutSubgraphs(ladder).num_groups == 1);
    ladder.kinds[2] = kNotTaken;  // node 1 may go to one side of the hole alone
    CHECK(CutSubgraphs(ladder).num_groups == 2);
    CheckCut(ladder, CutSubgraphs(ladder));
  }
}

TEST_CASE("kinds, classes and sizes keep nodes apart, and any subgraph goes with any kind") {
  const CutProblem chain = Problem(4, {{0, 1}, {1, 2}, {2, 3}});
  CHECK(Cut(Taking(Taking(chain, {0, 1}, 0), {2, 3}, 1)) == std::vector<int>{0, 0, 1, 1});
  CHECK(Cut(Taking(Taking(chain, {0, 3}, 0), {1, 2})) == std::vector<int>{0, 0, 0, 0});
  CutProblem classes = Taking(chain, {0, 1, 2, 3});
  classes.classes = {0, 1, 1, 1};
  CHECK(Cut(classes) == std::vector<int>{0, 1, 1, 1});
  CutProblem small = Taking(chain, {0, 1, 2, 3});
  small.max_size = 3;
  CHECK(Cut(small) == std::vector<int>{0, 0, 0, 1});
  CHECK(CutSubgraphs(Problem(0, {})).num_groups == 0);
}

TEST_CASE("an edge that joins nothing orders all the same") {
  CutProblem problem = Taking(Problem(3, {{0, 1}}), {0, 1});
  problem.edges = {{0, 1}, {0, 2}, {2, 1}};  // 2 stands between them
  problem.order = {0, 2, 1};
  CHECK(CutSubgraphs(problem).num_groups == 2);
  CheckCut(problem, CutSubgraphs(problem));
}

TEST_CASE("an invalid cut problem is refused") {
  CutProblem problem = Problem(2, {{0, 1}});
  problem.order = {1, 0};
  CHECK(Contains(ErrorOf([&] { CutSubgraphs(problem); }).what(),
                 "the order of a cut contradicts the edge from 0 to 1"));
  problem.order = {0, 0};
  CHECK(ErrorOf([&] { CutSubgraphs(problem); }).code() == ErrorCode::kInvalidArgument);
  problem = Problem(2, {{0, 1}});
  problem.kinds = {-3, 0};
  CHECK(ErrorOf([&] { CutSubgraphs(problem); }).code() == ErrorCode::kOutOfRange);
  problem.kinds = {0};
  CHECK(ErrorOf([&] { CutSubgraphs(problem); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { PathThroughOutside(problem, {1}); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("random graphs of 12 nodes are cut into as few as exhaustive search finds") {
  int graphs = 0, fewest = 0, split = 0;
  for (uint64_t seed = 1; seed <= Rounds(300u); ++seed) {
    CAPTURE(seed);
    const double taken = 0.5 + 0.1 * static_cast<double>(seed % 5);
    const CutProblem problem =
        RandomProblem(seed, 12, 2 + static_cast<int>(seed % 2), 12, taken, seed % 4 == 0 ? 2 : 0);
    const CutResult cut = CutSubgraphs(problem);
    CheckCut(problem, cut);
    const int best = FewestGroups(problem, cut.num_groups).Find();
    ++graphs;
    fewest += best == cut.num_groups;
    split += best > 1;
  }
  CAPTURE(fewest);
  CHECK(fewest * 100 >= graphs * 95);
  CHECK(split * 2 >= graphs);  // most of them have something to decide
}

TEST_CASE("large graphs of any form are cut legally") {
  const int n = Rounds(20000);
  for (const double taken : {0.3, 0.6, 0.95}) {
    for (const int window : {4, 1000000}) {
      CAPTURE(taken);
      CAPTURE(window);
      const CutProblem problem = RandomProblem(7, n, 2, window, taken);
      CheckCut(problem, CutSubgraphs(problem));
    }
  }
}

}  // namespace cut_test

// CutSubgraphs' definition: contracts joins and maintains a topological order of the groups.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_CUT_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_CUT_IPP_

#include <algorithm>
#include <numeric>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/partition/cut.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A graph whose nodes are groups of nodes of the problem; it never has a cycle. The groups form a
// linked list in topological order.
class GroupGraph {
 public:
  explicit GroupGraph(const CutProblem& problem)
      : max_size_(problem.max_size), kind_(problem.kinds), class_(problem.classes) {
    const size_t n = problem.order.size();
    parent_.resize(n);
    std::iota(parent_.begin(), parent_.end(), 0);
    size_.assign(n, 1);
    out_.resize(n);
    in_.resize(n);
    for (const GraphView::Edge& edge : problem.edges) {
      out_[edge.from].push_back(edge.to);
      in_[edge.to].push_back(edge.from);
    }
    label_.resize(n);
    before_.assign(n, -1);
    after_.assign(n, -1);
    for (size_t i = 0; i + 1 < n; ++i) {
      after_[problem.order[i]] = problem.order[i + 1];
      before_[problem.order[i + 1]] = problem.order[i];
    }
    first_ = n > 0 ? problem.order[0] : -1;
    Relabel();
    stamp_.assign(n, 0);
    // The limit is so large that graphs of a few thousand nodes never reach it.
    bank_ = static_cast<int64_t>(64 * (n + problem.edges.size())) + (int64_t{1} << 20);
  }

  // Returns the node that represents the group of `node`.
  int Find(int node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }
  // Joins the groups of u and v, between which there must be an edge from u to v. Returns false if
  // they are the same group or must stay apart.
  bool Join(int u, int v) {
    const int a = Find(u), b = Find(v);
    if (a == b || !Fit(a, b) || !Search(a, b)) return false;
    Contract(a, b);
    return true;
  }

 private:
  static constexpr int64_t kEnd = int64_t{1} << 62;

  // A depth-first search that examines one edge in each step.
  struct Walk {
    std::vector<std::pair<int, size_t>> path;  // a group, and how many of its edges are done
    std::vector<int> met;                      // the visited groups
    void Begin(int from) {
      path.assign(1, {from, 0});
      met.clear();
    }
    bool done() const { return path.empty(); }
  };
  enum class Step : uint8_t { kOn, kMeets };

  // True if kinds, classes and sizes allow one group of a and b.
  bool Fit(int a, int b) const {
    const int x = kind_[a], y = kind_[b];
    if (x == kNotTaken || y == kNotTaken) return false;
    if (x != y && x != kAnySubgraph && y != kAnySubgraph) return false;
    if (!class_.empty() && class_[a] != class_[b]) return false;
    return max_size_ <= 0 || int64_t{size_[a]} + size_[b] <= max_size_;
  }

  // Searches for a path from a to b other than their edge: alternates between a search forwards
  // from a and a search backwards from b, both between the places of a and b in the order. Returns
  // false if they meet, or at the limit of edges. Else one search has finished: moves the groups
  // that it visited so that a and b can be adjacent, and returns true.
  bool Search(int a, int b) {
    forward_.Begin(a);
    backward_.Begin(b);
    const int mark = next_stamp_ += 2;
    int64_t limit = (std::max)(int64_t{64}, bank_ / 16);
    for (;;) {
      if (Advance(forward_, out_, a, b, mark, mark + 1) == Step::kMeets) return false;
      if (forward_.done()) break;
      if (Advance(backward_, in_, b, a, mark + 1, mark) == Step::kMeets) return false;
      if (backward_.done()) break;
      bank_ -= 2;
      if (--limit < 0) return false;
    }
    at_front_ = !forward_.done();
    Walk& walk = at_front_ ? backward_ : forward_;
    std::sort(walk.met.begin(), walk.met.end(),
              [this](int x, int y) { return label_[x] < label_[y]; });
    Move(walk.met, at_front_ ? a : b, at_front_);
    return true;
  }
  // Examines the next edge of a search. `mine` and `theirs` are the stamps of both searches.
  Step Advance(Walk& walk, IndexedVector<std::vector<int>>& edges, int from, int to, int mine,
               int theirs) {
    auto& [group, done] = walk.path.back();
    std::vector<int>& list = edges[group];
    if (done == list.size()) {
      walk.path.pop_back();
      return Step::kOn;
    }
    const int next = Find(list[done]);
    if (next == group) {  // a contraction has put both ends of the edge into this group
      list[done] = list.back();
      list.pop_back();
      return Step::kOn;
    }
    list[done++] = next;
    if (next == to) return group == from ? Step::kOn : Step::kMeets;
    const int64_t at = label_[next];
    if (at < (std::min)(label_[from], label_[to]) || at > (std::max)(label_[from], label_[to]))
      return Step::kOn;
    int& stamp = stamp_[next];
    if (stamp == theirs) return Step::kMeets;
    if (stamp == mine) return Step::kOn;
    stamp = mine;
    walk.met.push_back(next);
    walk.path.push_back({next, 0});
    return Step::kOn;
  }

  // Makes a and b one group. The group takes the place of a in the order if the backward search
  // finished (at_front_), else the place of b.
  void Contract(int a, int b) {
    const int place = at_front_ ? a : b, other = at_front_ ? b : a;
    Unlink(other);
    const auto edges_of = [this](int g) { return out_[g].size() + in_[g].size(); };
    const int root = edges_of(a) >= edges_of(b) ? a : b, child = root == a ? b : a;
    parent_[child] = root;
    size_[root] += size_[child];
    kind_[root] = (std::max)(kind_[root], kind_[child]);
    for (auto* edges : {&out_, &in_}) {
      std::vector<int>&to = (*edges)[root], &from = (*edges)[child];
      to.insert(to.end(), from.begin(), from.end());
      from = {};
    }
    if (root != place) TakePlace(root, place);
  }

  // Removes a group from the list.
  void Unlink(int g) {
    const int left = before_[g], right = after_[g];
    (left < 0 ? first_ : after_[left]) = right;
    if (right >= 0) before_[right] = left;
  }
  // Puts group g at the position and label of group `place`, which leaves the list.
  void TakePlace(int g, int place) {
    label_[g] = label_[place];
    LinkBetween(before_[place], g, after_[place]);
  }

  void LinkBetween(int left, int g, int right) {
    before_[g] = left;
    after_[g] = right;
    (left < 0 ? first_ : after_[left]) = g;
    if (right >= 0) before_[right] = g;
  }

  // Moves groups, in their order, directly before group `place` or directly after it. Assigns
  // labels close to that of the neighbour there, which keeps the gap at `place` for later moves.
  void Move(const std::vector<int>& groups, int place, bool before) {
    if (groups.empty()) return;
    for (const int g : groups) Unlink(g);
    int left = before ? before_[place] : place;
    const int right = before ? place : after_[place];
    const int64_t low = left < 0 ? 0 : label_[left], high = right < 0 ? kEnd : label_[right];
    const int64_t step = StepOf(high - low, groups.size());
    int64_t label = before ? low + step : high - step * static_cast<int64_t>(groups.size());
    for (const int g : groups) {
      LinkBetween(left, g, right);
      label_[g] = label;
      label += step;
      left = g;
    }
    if (step == 0) Relabel();
  }

  // Returns the distance of `count` new labels in a gap; 0 if the gap is too small.
  static int64_t StepOf(int64_t gap, size_t count) {
    const auto needed = static_cast<int64_t>(count) + 1;
    return gap < needed ? 0 : (std::max)(int64_t{1}, gap / (needed * 64));
  }
  // Gives all groups labels at equal distances.
  void Relabel() {
    const int64_t step = kEnd / (static_cast<int64_t>(label_.size()) + 1);
    int64_t label = 0;
    for (int g = first_; g >= 0; g = after_[g]) label_[g] = label += step;
  }

  const int max_size_;
  // All vectors are by node; the data of a group is at the node that represents it.
  IndexedVector<int> parent_, size_, kind_;
  const IndexedVector<int>& class_;
  IndexedVector<std::vector<int>> out_, in_;
  IndexedVector<int64_t> label_;       // increases along the list
  IndexedVector<int> before_, after_;  // neighbours in the list
  int first_ = -1;
  IndexedVector<int> stamp_;  // the last search that visited the group
  int next_stamp_ = 0;
  Walk forward_, backward_;
  bool at_front_ = false;
  int64_t bank_;  // edges that searches may still examine
};

// Does the work of one call of CutSubgraphs: tries several orders of the joins and keeps the best
// result.
class SubgraphCutter {
 public:
  explicit SubgraphCutter(const CutProblem& problem)
      : problem_(problem), place_(problem.order.size(), -1) {
    Check();
    for (const GraphView::Edge& edge : problem.joins)
      if (problem.kinds[edge.from] != kNotTaken && problem.kinds[edge.to] != kNotTaken)
        joins_.push_back(edge);
    for (const int kind : problem.kinds) taken_ += kind != kNotTaken;
  }

  CutResult Cut() {
    const auto later = [this](int a, int b) { return place_[a] > place_[b]; };
    // Sort by the reader; of its producers, the nearest in the order comes first.
    std::sort(joins_.begin(), joins_.end(), [&](const auto& a, const auto& b) {
      return a.to != b.to ? later(b.to, a.to) : later(a.from, b.from);
    });
    CutResult best = Try(joins_);
    constexpr size_t kSmall = 2048;
    if (problem_.order.size() > kSmall) return best;
    const int fewest = Components();
    std::vector<GraphView::Edge> joins(joins_.rbegin(), joins_.rend());
    uint64_t random = 1;
    const int tries = problem_.order.size() <= 64 ? 24 : 2;
    for (int i = 0; i < tries && best.num_groups > fewest; ++i) {
      CutResult other = Try(joins);
      if (other.num_groups < best.num_groups) best = std::move(other);
      for (size_t k = joins.size(); k > 1; --k) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        std::swap(joins[k - 1], joins[(random >> 33) % k]);
      }
    }
    return best;
  }

 private:
  void Check() {
    const size_t n = problem_.order.size();
    if (problem_.kinds.size() != n || (!problem_.classes.empty() && problem_.classes.size() != n))
      Throw(ErrorCode::kInvalidArgument, "a cut of ", n, " nodes needs a kind for each, found ",
            problem_.kinds.size());
    for (const int kind : problem_.kinds)
      if (kind < kNotTaken)
        Throw(ErrorCode::kOutOfRange, "a node has the kind ", kind,
              "; it is -2 for a node that is not taken, -1 for any subgraph, or a kind from 0 on");
    int place = 0;
    for (const int node : problem_.order) {
      if (node < 0 || Index(node) >= n || place_[node] >= 0)
        Throw(ErrorCode::kInvalidArgument, "the order of a cut lists node ", node,
              ", which it lists twice or which does not exist");
      place_[node] = place++;
    }
    for (const auto* edges : {&problem_.edges, &problem_.joins})
      for (const GraphView::Edge& edge : *edges)
        if (edge.from < 0 || edge.to < 0 || Index(edge.from) >= n || Index(edge.to) >= n ||
            place_[edge.from] >= place_[edge.to])
          Throw(ErrorCode::kInvalidArgument, "the order of a cut contradicts the edge from ",
                edge.from, " to ", edge.to);
  }
  CutResult Try(const std::vector<GraphView::Edge>& joins) {
    GroupGraph groups(problem_);
    constexpr int kMaxRounds = 4;  // a contraction may remove a path that prevented a join
    bool joined = true;
    for (int round = 0; joined && round < kMaxRounds; ++round) {
      joined = false;
      for (const GraphView::Edge& edge : joins) joined |= groups.Join(edge.from, edge.to);
    }
    CutResult result;
    result.group.assign(problem_.order.size(), -1);
    IndexedVector<int> number(problem_.order.size(), -1);
    for (const int node : problem_.order) {
      if (problem_.kinds[node] == kNotTaken) continue;
      int& known = number[groups.Find(node)];
      if (known < 0) known = result.num_groups++;
      result.group[node] = known;
    }
    return result;
  }
  // Returns the number of connected components of the taken nodes: no cut has fewer subgraphs.
  int Components() {
    IndexedVector<int> parent(problem_.order.size());
    std::iota(parent.begin(), parent.end(), 0);
    const auto find = [&](int node) {
      while (parent[node] != node) node = parent[node] = parent[parent[node]];
      return node;
    };
    int count = taken_;
    for (const GraphView::Edge& edge : joins_) {
      const int a = find(edge.from), b = find(edge.to);
      if (a == b) continue;
      parent[a] = b;
      --count;
    }
    return count;
  }

  const CutProblem& problem_;
  IndexedVector<int> place_;  // by node: its position in the order
  std::vector<GraphView::Edge> joins_;
  int taken_ = 0;
};

// True if the operator is registered and the node has an effect: such nodes keep their order. Nodes
// of unregistered operators count as nodes without an effect.
inline bool OrdersByEffect(const OperatorDef& def) {
  return OpRegistry::Global().FindSchema(def.type()) && HasEffect(def);
}

}  // namespace detail

OPKIT_INLINE CutProblem CutProblemOf(const GraphView& view) {
  CutProblem problem;
  problem.order = view.order();
  problem.edges = view.edges();
  int last = -1;
  for (const int node : view.order()) {
    if (!detail::OrdersByEffect(view.graph().node(node))) continue;
    if (last >= 0) problem.edges.push_back({last, node});
    last = node;
  }
  for (int node = 0; node < view.num_nodes(); ++node)
    for (const int value : view.inputs(node))
      if (value >= 0 && view.producer(value) >= 0 && view.producer(value) != node)
        problem.joins.push_back({view.producer(value), node});
  for (const GraphView::Rewrite& rewrite : view.rewrites())
    for (const int reader : view.consumers(rewrite.value))
      if (reader > rewrite.node) problem.joins.push_back({rewrite.node, reader});
  problem.kinds.assign(detail::Index(view.num_nodes()), kNotTaken);
  return problem;
}

OPKIT_INLINE CutResult CutSubgraphs(const CutProblem& problem) {
  return detail::SubgraphCutter(problem).Cut();
}

OPKIT_INLINE std::vector<int> PathThroughOutside(const CutProblem& problem,
                                                 const detail::IndexedVector<char>& inside) {
  using detail::Index;
  const size_t n = problem.order.size();
  if (inside.size() != n)
    Throw(ErrorCode::kInvalidArgument, "PathThroughOutside needs a flag for each of ", n,
          " nodes, found ", inside.size());
  const detail::FlatLists targets(n, [&](auto add) {
    for (auto edge = problem.edges.rbegin(); edge != problem.edges.rend(); ++edge)
      add(edge->from, edge->to);
  });
  // For each node outside that a path from the set reaches: the node before it on that path.
  detail::IndexedVector<int> from(n, -1);
  for (const int node : problem.order) {
    if (!inside[node] && from[node] < 0) continue;
    for (const int to : targets.of(node)) {
      if (!inside[to]) {
        if (from[to] < 0) from[to] = node;
      } else if (!inside[node]) {
        std::vector<int> path{to, node};
        while (!inside[path.back()]) path.push_back(from[path.back()]);
        return {path.rbegin(), path.rend()};
      }
    }
  }
  return {};
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_CUT_IPP_

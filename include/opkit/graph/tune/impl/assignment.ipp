// Definitions of SolveAssignment: exact reductions, then branch and bound.
#ifndef OPKIT_GRAPH_TUNE_IMPL_ASSIGNMENT_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_ASSIGNMENT_IPP_

#include <algorithm>
#include <array>
#include <limits>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/tune/assignment.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr double kNotAllowed = std::numeric_limits<double>::infinity();

// A problem in which nodes are eliminated one after the other. It is copied at each branch of the
// search: what is left is small then.
class AssignmentCore {
 public:
  explicit AssignmentCore(const AssignmentProblem& problem)
      : costs_(problem.costs), edges_of_(problem.costs.size()) {
    for (const AssignmentProblem::Edge& edge : problem.edges)
      Join(edge.from, edge.to,
           [&](size_t i, size_t j) { return edge.costs[i * costs_[edge.to].size() + j]; });
  }

  bool is_alive(int node) const { return !costs_[node].empty(); }
  int num_nodes() const { return static_cast<int>(costs_.size()); }
  size_t num_edges(int node) const { return edges_of_[node].size(); }
  size_t num_choices(int node) const { return costs_[node].size(); }
  double cost(int node, size_t choice) const { return costs_[node][choice]; }
  // The cost that every assignment has, by the eliminations and the bound so far.
  double base() const { return base_; }
  // Additions of costs so far.
  int64_t effort() const { return effort_; }
  // Forgets what was eliminated: a copy that is searched further completes its own choices alone.
  void Forget() {
    eliminations_.clear();
    effort_ = 0;
  }

  // Eliminates every node with at most two neighbours.
  void Reduce() {
    std::vector<int> queue;
    for (int node = 0; node < num_nodes(); ++node) queue.push_back(node);
    while (!queue.empty()) {
      const int node = queue.back();
      queue.pop_back();
      if (!is_alive(node) || num_edges(node) > 2) continue;
      for (const int edge : edges_of_[node]) queue.push_back(edges_[edge].Other(node));
      Eliminate(node);
    }
  }

  // Takes a choice of a node and removes the node.
  void Fix(int node, size_t choice) {
    base_ += costs_[node][choice];
    for (const int e : edges_of_[node]) {
      const Edge& edge = edges_[e];
      std::vector<double>& other = costs_[edge.Other(node)];
      for (size_t j = 0; j < other.size(); ++j) other[j] += edge.at(node, choice, j);
    }
    eliminations_.push_back({node, {-1, -1}, 0, {static_cast<int>(choice)}});
    Remove(node);
  }

  // Moves costs between edges and nodes, which changes the cost of no assignment, so that base()
  // rises to a good lower bound.
  void RaiseBound(int sweeps) {
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const double before = base_;
      for (int node = 0; node < num_nodes(); ++node)
        if (is_alive(node)) Diffuse(node);
      if (!(base_ > before + 1e-9 * before)) break;
    }
  }
  // Forbids the choices that cannot be part of an assignment of less than `limit`, and fixes the
  // nodes that have one choice left. Returns false if a node has none.
  bool Prune(double limit) {
    for (int node = 0; node < num_nodes(); ++node) {
      if (!is_alive(node)) continue;
      size_t allowed = 0, last = 0;
      for (size_t i = 0; i < costs_[node].size(); ++i) {
        double& cost = costs_[node][i];
        if (!(base_ + cost < limit)) cost = kNotAllowed;
        if (cost < kNotAllowed) ++allowed, last = i;
      }
      if (allowed == 0) return false;
      if (allowed == 1) Fix(node, last);
    }
    return true;
  }

  // Completes an assignment of the nodes that are alive by the choices of the eliminated ones.
  void Complete(IndexedVector<int>& choices) const {
    for (auto one = eliminations_.rbegin(); one != eliminations_.rend(); ++one) {
      const auto choice = [&](int node) { return node < 0 ? size_t{0} : Index(choices[node]); };
      choices[one->node] =
          one->best[choice(one->neighbors[0]) * one->stride + choice(one->neighbors[1])];
    }
  }

  // Returns the connected parts as lists of nodes that are alive.
  std::vector<std::vector<int>> Parts() const {
    std::vector<std::vector<int>> parts;
    IndexedVector<char> seen(costs_.size(), 0);
    for (int first = 0; first < num_nodes(); ++first) {
      if (!is_alive(first) || seen[first]) continue;
      std::vector<int> part{first};
      seen[first] = 1;
      for (size_t i = 0; i < part.size(); ++i)
        for (const int e : edges_of_[part[i]])
          if (const int other = edges_[e].Other(part[i]); !seen[other]) {
            seen[other] = 1;
            part.push_back(other);
          }
      parts.push_back(std::move(part));
    }
    return parts;
  }
  // Returns the part alone, with a base of 0 and nothing eliminated.
  AssignmentCore Part(const std::vector<int>& nodes) const {
    AssignmentCore part;
    part.costs_.resize(costs_.size());
    part.edges_of_.resize(costs_.size());
    for (const int node : nodes) {
      part.costs_[node] = costs_[node];
      for (const int e : edges_of_[node]) {
        const Edge& edge = edges_[e];
        if (edge.nodes[0] != node) continue;
        for (const int end : edge.nodes)
          part.edges_of_[end].push_back(static_cast<int>(part.edges_.size()));
        part.edges_.push_back(edge);
      }
    }
    return part;
  }

 private:
  struct Edge {
    std::array<int, 2> nodes;
    size_t stride;              // number of choices of nodes[1]
    std::vector<double> costs;  // [choice of nodes[0] * stride + choice of nodes[1]]

    int Other(int node) const { return nodes[nodes[0] == node ? 1 : 0]; }
    const double& at(int node, size_t choice, size_t other) const {
      return costs[nodes[0] == node ? choice * stride + other : other * stride + choice];
    }
    double& at(int node, size_t choice, size_t other) {
      return const_cast<double&>(std::as_const(*this).at(node, choice, other));
    }
  };
  // The best choice of an eliminated node for each pair of choices of its neighbours.
  struct Elimination {
    int node;
    std::array<int, 2> neighbors;  // -1: none
    size_t stride;
    std::vector<int> best;
  };

  AssignmentCore() = default;

  // Adds costs to the edge between two nodes, which it makes if there is none.
  template <class Cost>
  void Join(int from, int to, const Cost& cost) {
    const auto is_between = [&](int e) { return edges_[e].Other(from) == to; };
    const auto found = std::ranges::find_if(edges_of_[from], is_between);
    const int e = found == edges_of_[from].end() ? static_cast<int>(edges_.size()) : *found;
    const size_t rows = num_choices(from), columns = num_choices(to);
    if (e == static_cast<int>(edges_.size())) {
      edges_.push_back({{from, to}, columns, std::vector<double>(rows * columns, 0)});
      for (const int node : {from, to}) edges_of_[node].push_back(e);
    }
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) edges_[e].at(from, i, j) += cost(i, j);
    effort_ += static_cast<int64_t>(rows * columns);
  }

  void Remove(int node) {
    for (const int e : edges_of_[node]) {
      std::erase(edges_of_[edges_[e].Other(node)], e);
      edges_[e].costs = {};
    }
    edges_of_[node].clear();
    costs_[node].clear();
  }

  // Removes a node with at most two neighbours: for each choice of theirs its best choice is known.
  void Eliminate(int node) {
    const std::vector<int> edges = edges_of_[node];
    const std::vector<double> costs = costs_[node];
    Elimination out{node, {-1, -1}, 0, {}};
    std::array<size_t, 2> counts = {1, 1};
    for (size_t n = 0; n < edges.size(); ++n) {
      out.neighbors[n] = edges_[edges[n]].Other(node);
      counts[n] = num_choices(out.neighbors[n]);
    }
    out.stride = counts[1];
    std::vector<double> least;
    for (size_t j = 0; j < counts[0]; ++j)
      for (size_t k = 0; k < counts[1]; ++k) {
        least.push_back(kNotAllowed);
        out.best.push_back(0);
        for (size_t i = 0; i < costs.size(); ++i) {
          double cost = costs[i];
          if (edges.size() > 0) cost += edges_[edges[0]].at(node, i, j);
          if (edges.size() > 1) cost += edges_[edges[1]].at(node, i, k);
          if (!(cost < least.back())) continue;
          least.back() = cost;
          out.best.back() = static_cast<int>(i);
        }
      }
    effort_ += static_cast<int64_t>(counts[0] * counts[1] * costs.size());
    Remove(node);
    const auto [first, second] = out.neighbors;
    if (first < 0) base_ += least[0];
    if (first >= 0 && second < 0)
      for (size_t j = 0; j < counts[0]; ++j) costs_[first][j] += least[j];
    if (second >= 0)
      Join(first, second, [&](size_t j, size_t k) { return least[j * out.stride + k]; });
    eliminations_.push_back(std::move(out));
  }

  // Takes from a node's edges what each choice costs at least there, raises the base by the node's
  // cheapest choice, and gives the rest back to the edges in equal parts.
  void Diffuse(int node) {
    std::vector<double>& costs = costs_[node];
    for (const int e : edges_of_[node]) {
      Edge& edge = edges_[e];
      const size_t others = num_choices(edge.Other(node));
      for (size_t i = 0; i < costs.size(); ++i) {
        double least = kNotAllowed;
        for (size_t j = 0; j < others; ++j) least = (std::min)(least, edge.at(node, i, j));
        costs[i] += least;
        if (least == 0 || costs[i] == kNotAllowed) continue;
        for (size_t j = 0; j < others; ++j) edge.at(node, i, j) -= least;
      }
      effort_ += static_cast<int64_t>(2 * costs.size() * others);
    }
    const double least = *std::ranges::min_element(costs);
    base_ += least;
    if (least == kNotAllowed) return;
    const double parts = static_cast<double>(edges_of_[node].size()) + 1;
    for (size_t i = 0; i < costs.size(); ++i) {
      if (costs[i] == kNotAllowed) continue;
      costs[i] -= least;
      const double part = costs[i] / parts;
      if (part == 0) continue;
      for (const int e : edges_of_[node]) {
        Edge& edge = edges_[e];
        for (size_t j = 0; j < num_choices(edge.Other(node)); ++j) edge.at(node, i, j) += part;
        costs[i] -= part;
      }
    }
  }

  IndexedVector<std::vector<double>> costs_;  // by node; empty: eliminated
  IndexedVector<Edge> edges_;
  IndexedVector<std::vector<int>> edges_of_;  // by node
  std::vector<Elimination> eliminations_;
  double base_ = 0;
  int64_t effort_ = 0;
};

class AssignmentSearch {
 public:
  explicit AssignmentSearch(int64_t effort) : left_(effort) {}

  // The best assignment of less than the limit.
  struct Found {
    double cost = kNotAllowed;  // infinity: there is none
    double bound = 0;           // of all assignments
  };
  // Assigns every node that is alive or was eliminated in the core.
  Found Search(AssignmentCore core, double limit, int sweeps, IndexedVector<int>& choices) {
    core.Reduce();
    core.RaiseBound(sweeps);
    const double bound = core.base();
    left_ -= core.effort();
    if (!(bound < limit) || !core.Prune(limit)) return {kNotAllowed, limit};
    core.Reduce();
    const std::vector<std::vector<int>> parts = core.Parts();
    Found found = parts.size() == 1 ? Branch(core, parts[0], limit, choices)
                                    : SearchParts(core, parts, limit, choices);
    if (found.cost < kNotAllowed) core.Complete(choices);
    found.bound = (std::max)(found.bound, bound);
    return found;
  }

 private:
  static constexpr int kSweeps = 4;

  // Searches each connected part alone, within what the others leave.
  Found SearchParts(const AssignmentCore& core, const std::vector<std::vector<int>>& parts,
                    double limit, IndexedVector<int>& choices) {
    Found sum{core.base(), core.base()};
    for (const std::vector<int>& part : parts) {
      const Found found = Search(core.Part(part), limit - sum.cost, kSweeps, choices);
      sum.cost += found.cost;
      sum.bound += found.bound;
      if (!(sum.cost < limit)) return {kNotAllowed, (std::min)(sum.bound, limit)};
    }
    return sum;
  }

  // Tries each choice of the node with the most neighbours, the cheapest first.
  Found Branch(const AssignmentCore& core, const std::vector<int>& nodes, double limit,
               IndexedVector<int>& choices) {
    const int node =
        *std::ranges::max_element(nodes, {}, [&](int one) { return core.num_edges(one); });
    std::vector<size_t> order;
    for (size_t i = 0; i < core.num_choices(node); ++i)
      if (core.cost(node, i) < kNotAllowed) order.push_back(i);
    std::ranges::sort(order, {}, [&](size_t i) { return core.cost(node, i); });
    Found best{kNotAllowed, limit};
    for (const size_t choice : order) {
      // Without an assignment at all, the search goes on for a while.
      if (left_ < 0 && (best.cost < kNotAllowed || limit < kNotAllowed || left_ < -kPatience)) {
        best.bound = 0;
        break;
      }
      AssignmentCore child = core;
      child.Forget();
      child.Fix(node, choice);
      IndexedVector<int> tried = choices;
      const Found found = Search(std::move(child), limit, kSweeps, tried);
      best.bound = (std::min)(best.bound, found.bound);
      if (!(found.cost < limit)) continue;
      limit = best.cost = found.cost;
      choices = std::move(tried);
    }
    return best;
  }

  static constexpr int64_t kPatience = 100'000'000;
  int64_t left_;
};

OPKIT_COLD OPKIT_INLINE Assignment SolveAssignment(const AssignmentProblem& problem,
                                                   int64_t effort) {
  const auto is_cost = [](double cost) { return cost >= 0; };  // false for NaN
  const size_t count = problem.costs.size();
  for (size_t node = 0; node < count; ++node)
    if (problem.costs[node].empty() || !std::ranges::all_of(problem.costs[node], is_cost))
      Throw(ErrorCode::kInvalidArgument, "node ", node,
            " of an assignment needs at least one choice, and no cost that is negative or NaN");
  for (const AssignmentProblem::Edge& edge : problem.edges) {
    const auto is_node = [&](int node) { return node >= 0 && Index(node) < count; };
    if (!is_node(edge.from) || !is_node(edge.to) || edge.from == edge.to ||
        edge.costs.size() !=
            problem.costs[Index(edge.from)].size() * problem.costs[Index(edge.to)].size() ||
        !std::ranges::all_of(edge.costs, is_cost))
      Throw(ErrorCode::kInvalidArgument, "an edge of an assignment from node ", edge.from, " to ",
            edge.to, " needs two of the ", count,
            " nodes, and a cost that is not negative or NaN for each pair of choices");
  }
  constexpr int kFirstSweeps = 30;
  IndexedVector<int> choices(count, 0);
  const AssignmentSearch::Found found =
      AssignmentSearch(effort).Search(AssignmentCore(problem), kNotAllowed, kFirstSweeps, choices);
  Assignment out;
  // Summed anew from the problem: the search has rounded.
  for (size_t node = 0; node < count; ++node) out.cost += problem.costs[node][Index(choices[node])];
  for (const AssignmentProblem::Edge& edge : problem.edges)
    out.cost += edge.costs[Index(choices[edge.from]) * problem.costs[Index(edge.to)].size() +
                           Index(choices[edge.to])];
  if (found.cost == kNotAllowed) out.cost = kNotAllowed;
  out.lower_bound = found.bound + 1e-9 * out.cost >= out.cost ? out.cost : found.bound;
  out.choices = std::move(choices);
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_IMPL_ASSIGNMENT_IPP_

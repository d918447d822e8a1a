// AssignmentProblem: one choice for each node of a graph, so that the costs of the choices and of
// the pairs of choices along the edges are least. Tuning chooses kernels by it: a node's choices
// are its kernels' configurations, and an edge's costs are the conversions between layouts.
#ifndef OPKIT_GRAPH_TUNE_ASSIGNMENT_HPP_
#define OPKIT_GRAPH_TUNE_ASSIGNMENT_HPP_

#include <cstdint>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A partitioned boolean quadratic problem (Scholz and Eckstein, LCTES 2002). Costs may be infinite:
// that choice, or that pair of choices, is not allowed. They must not be negative or NaN.
struct AssignmentProblem {
  struct Edge {
    int from, to;               // two different nodes, in any order; several edges may join them
    std::vector<double> costs;  // [choice of `from` * number of choices of `to` + choice of `to`]
  };
  std::vector<std::vector<double>> costs;  // [node][choice]; each node has a choice
  std::vector<Edge> edges;
};

struct Assignment {
  std::vector<int> choices;  // by node
  double cost = 0;           // infinity if every assignment has a pair that is not allowed
  double lower_bound = 0;    // no assignment costs less; equal to `cost` if the search ended
};

// Solves the problem. Nodes with at most two neighbours are eliminated exactly (the reductions R0,
// R1 and R2). What remains is searched by branch and bound (Anderson and Gregg, CGO 2018), each of
// its connected parts alone, and its bounds come from moving costs from edges to nodes (min-sum
// diffusion). The search ends after about `effort` additions of costs with the best assignment so
// far, which a tree or a series-parallel graph never meets. Throws kInvalidArgument for a problem
// that does not say what AssignmentProblem asks for.
OPKIT_IMAGE_LOCAL Assignment SolveAssignment(const AssignmentProblem& problem,
                                             int64_t effort = 20'000'000);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/assignment.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_ASSIGNMENT_HPP_

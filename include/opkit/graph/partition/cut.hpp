// CutSubgraphs: joins the nodes that a partitioner takes into few subgraphs that can run as one
// node each, and LeavingPath: why a set of nodes cannot. Both work on numbers alone.
#ifndef OPKIT_GRAPH_PARTITION_CUT_HPP_
#define OPKIT_GRAPH_PARTITION_CUT_HPP_

#include "opkit/graph/graph_view.hpp"

namespace opkit::inline OPKIT_ABI {

// What a partitioner says of a node; numbers from 0 on are its own kinds of subgraph.
inline constexpr int kNotTaken = -2, kAnySubgraph = -1;

// Nodes, the order that they must keep, and which of them may be in one subgraph.
struct CutProblem {
  std::vector<int> order;              // every node after those it waits for
  std::vector<GraphView::Edge> edges;  // `from` runs before `to`: data, rewrites, control, effects
  std::vector<GraphView::Edge> joins;  // `to` reads what `from` makes: they may be one subgraph
  std::vector<int> kinds;              // by node: kNotTaken, kAnySubgraph or a kind
  std::vector<int> classes;            // by node: only equal ones join; empty: all are equal
  int max_size = 0;                    // nodes of a subgraph; 0: any number
};

// The nodes of a graph with all that orders them: GraphView::edges(), and a chain through the nodes
// whose operators have effects. Nothing is taken yet.
CutProblem CutProblemOf(const GraphView& view);

struct CutResult {
  std::vector<int> group;  // by node: the number of its subgraph; -1: none
  int num_groups = 0;      // numbered by their first nodes in the problem's order
};

// Subgraphs connected by joins, kAnySubgraph with any one kind, so that running each as one node
// leaves a graph without a cycle. Contracts join after join where no other path connects the two
// sides, found by a search from both ends in a maintained topological order (after Pearce and
// Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006). Few subgraphs,
// not always the fewest: that is NP-hard. Small problems are tried in several orders. Time is near
// O(n log n) for n nodes and edges; where one search would take more than its share of that, the
// join is left out. Error (kInvalidArgument) for vectors of other lengths, numbers out of range and
// an order that the edges contradict.
CutResult CutSubgraphs(const CutProblem& problem);

// The nodes of a path that leaves the set and comes back to it, the first and the last inside;
// empty where there is none: the set is legal. `inside` has an element for each node. O(nodes +
// edges).
std::vector<int> LeavingPath(const CutProblem& problem, const std::vector<char>& inside);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/cut.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_CUT_HPP_

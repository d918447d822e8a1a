// CutSubgraphs: joins the nodes that a partitioner takes into few subgraphs, each of which can run
// as one node. PathThroughOutside: shows why a set of nodes cannot. Both work only on numbers.
#ifndef OPKIT_GRAPH_PARTITION_CUT_HPP_
#define OPKIT_GRAPH_PARTITION_CUT_HPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kind of a node, which a partitioner chooses. Numbers from 0 on are the partitioner's own
// kinds of subgraph.
inline constexpr int kNotTaken = -2, kAnySubgraph = -1;

// The input of CutSubgraphs: nodes, the order between them, and the pairs that may be joined.
struct CutProblem {
  std::vector<int> order;              // a topological order of the nodes
  std::vector<GraphView::Edge> edges;  // `from` runs before `to`: data, rewrites, control, effects
  std::vector<GraphView::Edge> joins;  // `to` reads an output of `from`: they may be one subgraph
  detail::IndexedVector<int> kinds;    // by node: kNotTaken, kAnySubgraph or a kind
  detail::IndexedVector<int> classes;  // by node: only equal classes join; empty: all are equal
  int max_size = 0;                    // most nodes of a subgraph; 0: any number
};

// Returns the nodes of a graph, all kNotTaken, with the order between them: GraphView::edges(), and
// a chain through the nodes whose operators have effects.
CutProblem CutProblemOf(const GraphView& view);

// The subgraph of each node.
struct CutResult {
  detail::IndexedVector<int> group;  // by node: the number of its subgraph; -1: none
  int num_groups = 0;  // subgraphs are numbered by their first nodes in the problem's order
};

// Groups the taken nodes into subgraphs that are connected by joins. Nodes of kind kAnySubgraph may
// join any one kind. If each subgraph becomes one node, the resulting graph has no cycle.
//
// Contracts a join if no other path connects its two nodes. Searches for such a path from both ends
// in a maintained topological order (after Pearce and Kelly, "A dynamic topological sort algorithm
// for directed acyclic graphs", 2006). Finds few subgraphs, but not always the fewest, which is
// NP-hard. Tries small problems in several orders. Takes near O(n log n) time for n nodes and
// edges: a join whose search would exceed its share of the time is left out.
//
// Throws kInvalidArgument for vectors of wrong lengths, numbers out of range and an order that
// contradicts the edges, and kOutOfRange for a kind below kNotTaken.
CutResult CutSubgraphs(const CutProblem& problem);

// Returns the nodes of a path that leaves the set and comes back to it: the first and last node are
// inside. Empty if there is no such path; the set can then run as one node. `inside` has an element
// for each node. Takes O(nodes + edges). Throws kInvalidArgument if `inside` has a wrong length.
std::vector<int> PathThroughOutside(const CutProblem& problem,
                                    const detail::IndexedVector<char>& inside);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/cut.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_CUT_HPP_

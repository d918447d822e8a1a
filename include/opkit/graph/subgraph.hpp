// Graphs inside nodes (the branches of If, the body of Loop), and equality of graphs to the bit,
// by which nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_SUBGRAPH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Whether two nodes compute the same, regardless of their names, inputs and outputs.
bool SameOperation(const OperatorDef& a, const OperatorDef& b);

}  // namespace detail

// The same inputs, constants, nodes and outputs, by the same names in the same order, attributes
// and tensors to the bit.
bool SameGraph(const Graph& a, const Graph& b);

// A subgraph sees nothing of the graph around it: its node reads every value that it needs and
// hands it in as an input of the subgraph, in the way that the operator documents.
//
//   OperatorDef("If").Input("condition").Input("X").Output("Y")
//       .Subgraph("then_branch", MakeSubgraph(then_branch))
//       .Subgraph("else_branch", MakeSubgraph(else_branch))
detail::IntrusivePtr<const SubgraphBase> MakeSubgraph(Graph graph);

// The graph inside a carried subgraph; null when it is something else than a Graph.
const Graph* GraphOf(const SubgraphBase& subgraph);
// Null when the node has no subgraph of that name.
const Graph* SubgraphOf(const OperatorDef& def, std::string_view name);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/subgraph.ipp"
#endif

#endif  // OPKIT_GRAPH_SUBGRAPH_HPP_

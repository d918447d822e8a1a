// MakeSubgraph: puts a graph inside a node (the branches of If, the body of Subgraph).
#ifndef OPKIT_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_SUBGRAPH_HPP_

#include "opkit/graph/carried_graph.hpp"

namespace opkit::inline OPKIT_ABI {

// A subgraph sees nothing of the graph around it: its node reads every value that it needs and
// hands it in as an input of the subgraph, in the way that the operator documents.
//
//   OperatorDef("If").Input("condition").Input("X").Output("Y")
//       .Subgraph("then_branch", MakeSubgraph(then_branch))
//       .Subgraph("else_branch", MakeSubgraph(else_branch))
detail::IntrusivePtr<const SubgraphBase> MakeSubgraph(Graph graph);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/subgraph.ipp"
#endif

#endif  // OPKIT_GRAPH_SUBGRAPH_HPP_

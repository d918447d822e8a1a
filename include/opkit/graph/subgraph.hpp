// MakeSubgraph: puts a graph inside a node (the branches of If, the body of Subgraph).
#ifndef OPKIT_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_SUBGRAPH_HPP_

#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Makes a subgraph for OperatorDef::Subgraph. A subgraph sees no values of the graph around it: the
// node reads every value that the subgraph needs, and passes it as an input of the subgraph. The
// operator documents which node input becomes which subgraph input.
//
//   OperatorDef("If").Input("condition").Input("X").Output("Y")
//       .Subgraph("then_branch", MakeSubgraph(then_branch))
//       .Subgraph("else_branch", MakeSubgraph(else_branch))
detail::IntrusivePtr<const detail::SubgraphBase> MakeSubgraph(Graph graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/subgraph.ipp"
#endif

#endif  // OPKIT_GRAPH_SUBGRAPH_HPP_

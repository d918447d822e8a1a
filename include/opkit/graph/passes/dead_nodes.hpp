// RemoveDeadNodes: drops the nodes and constants that contribute neither to an output of a run nor
// to an effect.
#ifndef OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_
#define OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Keeps the nodes that make outputs of the graph, nodes with an effect (no outputs, stateful
// operators), nodes that rewrite an input of the graph, and all nodes that these depend on, by
// control inputs too. Removes constants that no remaining node reads, except outputs. Inputs and
// outputs of the graph stay unchanged.
Graph RemoveDeadNodes(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/dead_nodes.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

// RemoveDeadNodes: drops the nodes and constants that do not contribute to anything that a run
// leaves behind.
#ifndef OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_
#define OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// These nodes stay: those that an output of the graph needs; those with an effect (no outputs,
// stateful operators) and those that rewrite an input of the graph; and those that these need,
// control inputs included. Constants that nothing reads go. Inputs and outputs of the graph stay as
// they are.
Graph RemoveDeadNodes(const Graph& graph);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/dead_nodes.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

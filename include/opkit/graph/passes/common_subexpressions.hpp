// MergeCommonSubexpressions: keeps one of several nodes that compute the same from the same values.
#ifndef OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_
#define OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// Nodes are the same by operator, inputs, attributes to the bit, subgraphs, device, engine and
// control inputs; constants by dtype, shape, device and bytes. These duplicates stay: nodes with an
// effect (stateful operators, no outputs), those that read, write or make a value that is
// rewritten, and those that others wait for by name.
Graph MergeCommonSubexpressions(const Graph& graph);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/common_subexpressions.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_

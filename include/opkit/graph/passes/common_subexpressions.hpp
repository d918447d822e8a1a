// MergeCommonSubexpressions: keeps one of several nodes that compute the same from the same values.
#ifndef OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_
#define OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Two nodes are equal if their operators, inputs, attributes (bit by bit), subgraphs, devices,
// engines and control inputs are equal; two constants, if dtype, shape, device and bytes are equal.
// Keeps duplicate nodes with an effect (stateful operators, no outputs); nodes that read, write or
// make a value that is rewritten; and nodes that are control inputs of others.
Graph MergeCommonSubexpressions(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/common_subexpressions.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_COMMON_SUBEXPRESSIONS_HPP_

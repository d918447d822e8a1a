// ExtractSubgraph: copies a set of nodes of a graph to a new graph. ReplaceNodes: replaces such
// sets by one node each.
#ifndef OPKIT_GRAPH_PARTITION_EXTRACT_HPP_
#define OPKIT_GRAPH_PARTITION_EXTRACT_HPP_

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/partition/extracted_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Copies the nodes, in the order in which they were added, and the constants that they read, which
// share their storage with the graph's constants. Inputs of the body have the dtypes and shapes of
// `types`, if given. Throws kOutOfRange for a node that does not exist. Throws kInvalidArgument for
// an empty set, a node named twice, a node that rewrites a value made outside of the set, and a
// path that leaves the set and comes back (the message shows it).
ExtractedSubgraph ExtractSubgraph(const GraphView& view, const std::vector<int>& nodes,
                                  const GraphTypes* types = nullptr);

// Returns a graph with each replacement instead of its nodes; the other nodes are unchanged. Nodes
// are in topological order. Removes constants that only replaced nodes read. Control inputs that
// name a replaced node name its replacement. Throws kOutOfRange for a node that does not exist.
// Throws kInvalidArgument for an empty set, for a node in two sets, and if the replacements would
// wait for each other in a cycle (the message shows it). Throws the errors of GraphView for the
// result.
Graph ReplaceNodes(const GraphView& view, const std::vector<NodeReplacement>& replacements);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/extract.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_EXTRACT_HPP_

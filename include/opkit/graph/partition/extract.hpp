// ExtractSubgraph: nodes of a graph as a graph of their own, and ReplaceNodes: one node in the
// place of each such set.
#ifndef OPKIT_GRAPH_PARTITION_EXTRACT_HPP_
#define OPKIT_GRAPH_PARTITION_EXTRACT_HPP_

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/partition/extracted_subgraph.hpp"

namespace opkit::inline OPKIT_ABI {

// The nodes, in the order in which they were added. Constants that they read come along and share
// their storage with the graph's. Inputs of the body have the dtypes and shapes of `types`, if
// given. Errors: kOutOfRange for a node that there is not, kInvalidArgument for no node, a node
// named twice, a set that a path leaves and comes back to (it is shown), and a node that rewrites a
// value that is made outside.
ExtractedSubgraph ExtractSubgraph(const GraphView& view, const std::vector<int>& nodes,
                                  const GraphTypes* types = nullptr);

// A graph with each replacement in the place of its nodes, and the rest as it was, in an order in
// which nodes can run; constants that only replaced nodes read are gone. Control inputs that name a
// replaced node name its replacement. Errors: kInvalidArgument where a node is in two sets, where
// the replacements would wait for each other in a cycle, which is shown, or where the graph would
// not be right (GraphView).
Graph ReplaceNodes(const GraphView& view, const std::vector<NodeReplacement>& replacements);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/extract.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_EXTRACT_HPP_

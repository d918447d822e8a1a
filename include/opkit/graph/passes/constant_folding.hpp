// FoldConstants: runs the nodes that read only constants, and replaces them by constants.
#ifndef OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_
#define OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct FoldOptions {
  // The limit for the bytes of all outputs of a node. A node with larger outputs stays. The pass
  // runs such a node only if its schema cannot infer the size.
  int64_t max_bytes = int64_t{512} << 20;
};

// Also removes constants that only folded nodes read. Keeps nodes with an effect (stateful
// operators, no outputs), nodes that rewrite an input or whose output is rewritten, nodes with
// control edges, and nodes on devices whose memory the host cannot access. Keeps nodes that fail:
// they report the error when the graph runs.
Graph FoldConstants(const Graph& graph, const FoldOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/constant_folding.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

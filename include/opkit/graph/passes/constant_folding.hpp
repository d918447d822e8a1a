// FoldConstants: runs the nodes that read nothing but constants, and replaces them by constants.
#ifndef OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_
#define OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

struct FoldOptions {
  // Limit for all outputs of a node together; a node that makes more stays. Where the schema tells
  // the size, such a node is not run.
  int64_t max_bytes = int64_t{512} << 20;
};

// Constants that only folded nodes read go with them. These nodes stay: those with an effect
// (stateful operators, no outputs), those that rewrite an input or whose output is rewritten, those
// that wait for others or are waited for by name, and those that fail: the error shows when the
// graph runs. Operators run on the device of their node, if the host can reach its memory.
Graph FoldConstants(const Graph& graph, const FoldOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/constant_folding.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

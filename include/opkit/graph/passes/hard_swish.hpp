// MergeHardSwish: finds nodes that together compute the activation HardSwish, as models exported
// for opset 13 and older contain them, and replaces them by one HardSwish.
#ifndef OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_
#define OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Replaces x * Clip(x + 3, 0, 6) / 6, also with a product by 1/6 as the last step, and
// x * HardSigmoid(x) with alpha 1/6 and beta 1/2. The numbers must be float32 constants of the
// graph. Results differ only by rounding. Keeps the nodes if a value between them has another
// reader, is an output of the graph or is rewritten; if a node has control edges; and if their
// devices or backends differ.
Graph MergeHardSwish(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/hard_swish.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_

// MergeHardSwish: finds the activation HardSwish where a model spells it in several nodes, as those
// exported for opset 13 and older do.
#ifndef OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_
#define OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// Makes one HardSwish of x * Clip(x + 3, 0, 6) / 6, the division by 6 or a product by 1/6, and of
// x * HardSigmoid(x) with alpha 1/6 and beta 1/2. Results differ by rounding alone. For float32,
// with the numbers as constants of the graph. Nodes stay where a value between them is read by
// something else, or the graph returns it, or a node rewrites it, or a node waits for others or is
// waited for by name, or is for another device or backend than the others.
Graph MergeHardSwish(const Graph& graph);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/hard_swish.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_HARD_SWISH_HPP_

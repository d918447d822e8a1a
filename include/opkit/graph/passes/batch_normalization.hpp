// FoldBatchNormalization: puts what scales and shifts the channels of a convolution into its
// weights, so that it takes no time in a run.
#ifndef OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_
#define OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {

// BatchNormalization by given statistics, and Mul, Div, Add and Sub by a number or one number a
// channel, go into the Conv before them, or into the BatchNormalization where no Conv is: chains of
// them at once, computed in double. For float32; weights and numbers are constants of the graph.
// Results differ by rounding alone. These stay: nodes whose input something else reads, or the
// graph returns, or a node rewrites; nodes that wait for others or are waited for by name; those
// for another device or backend than the Conv; those whose factors are not finite.
Graph FoldBatchNormalization(const Graph& graph);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/batch_normalization.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_

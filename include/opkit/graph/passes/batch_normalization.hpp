// FoldBatchNormalization: merges nodes that scale and shift the channels of a convolution into the
// convolution's weights, so that they take no time in a run.
#ifndef OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_
#define OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Merges BatchNormalization with constant statistics, and Mul, Div, Add and Sub by one number or
// one number per channel, into the Conv before them. Without a Conv, merges them into the
// BatchNormalization before them. Folds whole chains, in double. All weights and numbers must be
// float32 constants of the graph. Results differ only by rounding.
//
// Keeps a node if its input has another reader, is an output of the graph or is rewritten; if the
// node has control edges, or another device or backend than the Conv; and if its factors are not
// finite or float32 cannot hold the new weights.
Graph FoldBatchNormalization(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/batch_normalization.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_BATCH_NORMALIZATION_HPP_

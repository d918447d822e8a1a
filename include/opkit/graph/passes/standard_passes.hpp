// The passes of DefaultPasses that rewrite standard operators. Each header of ops/ that registers
// one of these operators includes its pass: a header-only program without them does not compile it.
#ifndef OPKIT_GRAPH_PASSES_STANDARD_PASSES_HPP_
#define OPKIT_GRAPH_PASSES_STANDARD_PASSES_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/graph/fwd.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Hooks that half_precision.hpp, hard_swish.hpp, batch_normalization.hpp and quantized_nodes.hpp
// fill.
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&)> g_compute_half_in_float32{
    "ComputeHalfInFloat32", "opkit/graph/passes/half_precision.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&)> g_merge_hard_swish{
    "MergeHardSwish", "opkit/graph/passes/hard_swish.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&)> g_fold_batch_normalization{
    "FoldBatchNormalization", "opkit/graph/passes/batch_normalization.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<Graph(const Graph&)> g_merge_quantized_nodes{
    "MergeQuantizedNodes", "opkit/graph/passes/quantized_nodes.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PASSES_STANDARD_PASSES_HPP_

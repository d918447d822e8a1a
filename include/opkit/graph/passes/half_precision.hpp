// ComputeHalfInFloat32: lets the fast kernels, which are written for float32, compute the float16
// and bfloat16 nodes of a graph. A plan of a float16 model then runs at the speed of its float32
// twin, with every kernel, layout and fusion that the twin has.
#ifndef OPKIT_GRAPH_PASSES_HALF_PRECISION_HPP_
#define OPKIT_GRAPH_PASSES_HALF_PRECISION_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The name of a kernel's variant that computes one node of a half type in float32 and converts its
// values for it. For the pass, such a kernel is none for the half type.
inline constexpr const char* kInFloat32 = "in float32";

// True for float16 and bfloat16.
constexpr bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

}  // namespace detail

// Widens the values between such nodes to float32, and converts where the region ends: at inputs
// and outputs of the graph and at all other nodes. Constants are widened once, here. An output of a
// single node is the exact float32 result, rounded once. A value between two widened nodes is not
// rounded, so a chain is more exact than its nodes alone, and an overflow of float16 inside of it
// is not an infinity.
//
// Widens a node if its operator is a standard one whose inference gives float32 where the node has
// a half type, if its first output is a floating-point number (a comparison or an ArgMax reads
// rounded values), and if a backend other than the plain one has a kernel for float32 but none for
// the half type. Also widens the standard nodes between two such nodes. Keeps nodes
// with control edges, with subgraphs, or that use rewritten values; operators with kernels of other
// devices; graphs without a half type or without the types of their inputs; and graphs of which a
// kernel multiplies matrices in the half type, as "onednn" does for bfloat16 on a CPU that has
// instructions for it. Widens graphs with convolutions even then: their light nodes, and the blocks
// of channels, have fast kernels for float32 alone.
Graph ComputeHalfInFloat32(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/half_precision.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_HALF_PRECISION_HPP_

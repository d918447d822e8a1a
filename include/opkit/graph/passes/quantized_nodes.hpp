// MergeQuantizedNodes: finds the operators of quantised models that are written as several
// nodes, for example between DequantizeLinear and QuantizeLinear, and replaces each by one operator
// on 8-bit integers.
#ifndef OPKIT_GRAPH_PASSES_QUANTIZED_NODES_HPP_
#define OPKIT_GRAPH_PASSES_QUANTIZED_NODES_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Replaces, where D is a DequantizeLinear of 8-bit integers and Q a QuantizeLinear to them:
//   Q(Conv(D, D)), also with a constant bias, by QLinearConv
//   Q(MatMul(D, D)) by QLinearMatMul, and MatMul(D, D) by com.microsoft.MatMulIntegerToFloat
//   Gemm(D, D), also with a constant bias, by com.microsoft.MatMulIntegerToFloat
//   Cast(MatMulInteger) * (scale * scale), also with a constant bias behind it, by the same
//   Q(D + D) and Q(D * D) by com.microsoft.QLinearAdd and com.microsoft.QLinearMul
//   Q(f(D)) by f on integers, if D and Q have the same scale and zero point and f only moves
//   elements or takes maxima: Transpose, Reshape, MaxPool and the like
//   Q(f(D)) by opkit.MapBytes, which looks bytes up in a table of 256, if f computes each element
//   from one element: Sigmoid, HardSwish, the product with a constant and the like, several of
//   them, or none, also behind a node that moves elements, which MaxPool is not here
//   Q(Concat(D, ...)) by Concat on integers; parts with another scale are looked up first
// Q may follow a Relu or Clip that its saturation repeats. Runs a Q of constants at once. The
// pass must run before FoldConstants, which makes floats of quantised weights.
//
// Scales must be float32 constants: one number, but for weights also one for each output channel or
// column. A bias is rounded to steps of the product of both scales, unless this would change the
// result by more than 1/16 of Q's scale. Results are at most one unit of Q's type apart. Keeps the
// nodes if a value between them has another reader, is an output of the graph or is rewritten; if
// an integer operator is not registered; if a node has control edges or requires a backend; and if
// devices or backends differ.
Graph MergeQuantizedNodes(const Graph& graph);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/passes/impl/quantized_nodes.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_QUANTIZED_NODES_HPP_

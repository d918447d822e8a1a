// Unary arithmetic: Abs, Ceil, Cos, Erf, Exp, Floor, Log, Neg, Not, Reciprocal, Round, Sign, Sin,
// Sqrt. Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_UNARY_HPP_
#define OPKIT_OPS_MATH_UNARY_HPP_

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Makes test inputs above 0, for Log and Sqrt.
inline std::vector<Tensor> PositiveTestInputs(DType dtype, uint64_t seed) {
  return MakeTestInputs({BroadcastTestShapes(seed)[0]}, dtype, seed, 0.25, 4);
}

OPKIT_NODE_GRADIENT(Abs) { Give(0, "Mul", {GO(0), Node("Sign", {I(0)})}); }
OPKIT_NODE_GRADIENT(Cos) { Give(0, "Neg", {Node("Mul", {GO(0), Node("Sin", {I(0)})})}); }
OPKIT_REGISTER_GRADIENT(Erf, DerivativeGradient);
OPKIT_NODE_GRADIENT(Exp) { Give(0, "Mul", {GO(0), O(0)}); }
OPKIT_NODE_GRADIENT(Log) { Give(0, "Div", {GO(0), I(0)}); }
OPKIT_NODE_GRADIENT(Neg) { Give(0, "Neg", {GO(0)}); }
OPKIT_NODE_GRADIENT(Reciprocal) {
  Give(0, "Neg", {Node("Mul", {GO(0), Node("Mul", {O(0), O(0)})})});
}
OPKIT_NODE_GRADIENT(Sin) { Give(0, "Mul", {GO(0), Node("Cos", {I(0)})}); }
OPKIT_NODE_GRADIENT(Sqrt) { Give(0, "Div", {GO(0), Node("Add", {O(0), O(0)})}); }

}  // namespace detail

// kNone is for piecewise constant functions, whose gradient is 0 and of no use.
OPKIT_UNARY_OPERATOR(Abs, kMaker, NumericTypes, 1,
                     "Y = |X|. The smallest signed integer gives itself.");
OPKIT_UNARY_OPERATOR(Ceil, kNone, FloatTypes, 1,
                     "Y is the smallest whole number that is not below X.");
OPKIT_UNARY_OPERATOR(Cos, kMaker, FloatTypes, 20, "Y = cos(X), X in radians.");
OPKIT_UNARY_OPERATOR(
    Erf, kMaker, FloatTypes, 20,
    "The error function, Y = 2 / sqrt(pi) * integral of exp(-t * t) over t from 0 to X.");
OPKIT_UNARY_OPERATOR(Exp, kMaker, FloatTypes, 10, "Y = e to the power of X.");
OPKIT_UNARY_OPERATOR(Floor, kNone, FloatTypes, 1,
                     "Y is the largest whole number that is not above X.");
OPKIT_UNARY_OPERATOR(Log, kMaker, FloatTypes, 10,
                     "The natural logarithm: -inf of 0, NaN of numbers below.")
    .TestInputs(detail::PositiveTestInputs);
OPKIT_UNARY_OPERATOR(Neg, kMaker, SignedTypes, 1, "Y = -X. The smallest integer gives itself.");
OPKIT_UNARY_OPERATOR(Not, kNone, ElementTypes<bool>, 1, "Y is true where X is false.");
OPKIT_UNARY_OPERATOR(Reciprocal, kMaker, FloatTypes, 1, "Y = 1 / X.");
OPKIT_UNARY_OPERATOR(Round, kNone, FloatTypes, 1,
                     "Y is the whole number nearest to X, of two the even one.");
OPKIT_UNARY_OPERATOR(Sign, kNone, NumericTypes, 1,
                     "Y is 1 where X is above 0, -1 where it is below, else X: 0 or NaN.");
OPKIT_UNARY_OPERATOR(Sin, kMaker, FloatTypes, 20, "Y = sin(X), X in radians.");
OPKIT_UNARY_OPERATOR(Sqrt, kMaker, FloatTypes, 1, "The square root, NaN of numbers below 0.")
    .TestInputs(detail::PositiveTestInputs);

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_UNARY_HPP_

// Unary arithmetic: Abs, Ceil, Cos, Erf, Exp, Floor, Log, Neg, Not, Reciprocal, Round, Sign, Sin,
// Sqrt. Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_UNARY_HPP_
#define OPKIT_OPS_MATH_UNARY_HPP_

#include <cmath>

#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Integers are negated without a sign, so that the smallest one gives itself.
struct NegFunction {
  template <class C>
  static C Apply(C x, const float*) {
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(-static_cast<uint64_t>(x));
    } else {
      return -x;
    }
  }
};
struct AbsFunction {
  template <class C>
  static C Apply(C x, const float* none) {
    if constexpr (std::is_floating_point_v<C>) {
      return std::fabs(x);
    } else {
      return x < 0 ? NegFunction::Apply(x, none) : x;
    }
  }
};
struct SignFunction {
  template <class C>
  static C Apply(C x, const float*) {
    if constexpr (std::is_floating_point_v<C>)
      if (std::isnan(x)) return x;
    return static_cast<C>((C{0} < x) - (x < C{0}));
  }
};
struct NotFunction {
  static bool Apply(bool x, const float*) { return !x; }
};
struct ReciprocalFunction {
  template <class C>
  static C Apply(C x, const float*) {
    return C{1} / x;
  }
};
// Halves to the even neighbour, as the rounding mode is unless a program changes it.
struct RoundFunction {
  template <class C>
  static C Apply(C x, const float*) {
    return std::nearbyint(x);
  }
};

#define OPKIT_UNARY_FUNCTION(name, function) \
  struct name {                              \
    template <class C>                       \
    static C Apply(C x, const float*) {      \
      return std::function(x);               \
    }                                        \
  }
OPKIT_UNARY_FUNCTION(CeilFunction, ceil);
OPKIT_UNARY_FUNCTION(CosFunction, cos);
OPKIT_UNARY_FUNCTION(ErfFunction, erf);
OPKIT_UNARY_FUNCTION(ExpFunction, exp);
OPKIT_UNARY_FUNCTION(FloorFunction, floor);
OPKIT_UNARY_FUNCTION(LogFunction, log);
OPKIT_UNARY_FUNCTION(SinFunction, sin);
OPKIT_UNARY_FUNCTION(SqrtFunction, sqrt);
#undef OPKIT_UNARY_FUNCTION

// Numbers that have a logarithm and a square root.
inline std::vector<Tensor> PositiveTestInputs(DType dtype, uint64_t seed) {
  return MakeTestInputs({BroadcastTestShapes(seed)[0]}, dtype, seed, 0.25, 4);
}

}  // namespace detail

using AbsOp = detail::UnaryOperator<detail::AbsFunction, NumericTypes>;
using CeilOp = detail::UnaryOperator<detail::CeilFunction, FloatTypes>;
using CosOp = detail::UnaryOperator<detail::CosFunction, FloatTypes>;
using ErfOp = detail::UnaryOperator<detail::ErfFunction, FloatTypes>;
using ExpOp = detail::UnaryOperator<detail::ExpFunction, FloatTypes>;
using FloorOp = detail::UnaryOperator<detail::FloorFunction, FloatTypes>;
using LogOp = detail::UnaryOperator<detail::LogFunction, FloatTypes>;
using NegOp = detail::UnaryOperator<detail::NegFunction, SignedTypes>;
using NotOp = detail::UnaryOperator<detail::NotFunction, ElementTypes<bool>>;
using ReciprocalOp = detail::UnaryOperator<detail::ReciprocalFunction, FloatTypes>;
using RoundOp = detail::UnaryOperator<detail::RoundFunction, FloatTypes>;
using SignOp = detail::UnaryOperator<detail::SignFunction, NumericTypes>;
using SinOp = detail::UnaryOperator<detail::SinFunction, FloatTypes>;
using SqrtOp = detail::UnaryOperator<detail::SqrtFunction, FloatTypes>;

OPKIT_OPERATOR_SCHEMA(Abs).FillUsing(detail::UnarySchema(
    "Y = |X|. The smallest signed integer gives itself.", NumericTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Ceil).FillUsing(detail::UnarySchema(
    "Y is the smallest whole number that is not below X.", FloatTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Cos).FillUsing(detail::UnarySchema("Y = cos(X), X in radians.",
                                                         FloatTypes::DTypes(), 20));
OPKIT_OPERATOR_SCHEMA(Erf).FillUsing(detail::UnarySchema(
    "The error function, Y = 2 / sqrt(pi) * integral of exp(-t * t) over t from 0 to X.",
    FloatTypes::DTypes(), 20));
OPKIT_OPERATOR_SCHEMA(Exp).FillUsing(detail::UnarySchema("Y = e to the power of X.",
                                                         FloatTypes::DTypes(), 10));
OPKIT_OPERATOR_SCHEMA(Floor).FillUsing(detail::UnarySchema(
    "Y is the largest whole number that is not above X.", FloatTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Log)
    .FillUsing(detail::UnarySchema("The natural logarithm: -inf of 0, NaN of numbers below.",
                                   FloatTypes::DTypes(), 10))
    .TestInputs(detail::PositiveTestInputs);
OPKIT_OPERATOR_SCHEMA(Neg).FillUsing(
    detail::UnarySchema("Y = -X. The smallest integer gives itself.", SignedTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Not).FillUsing(detail::UnarySchema("Y is true where X is false.",
                                                         {DType::kBool}, 1));
OPKIT_OPERATOR_SCHEMA(Reciprocal)
    .FillUsing(detail::UnarySchema("Y = 1 / X.", FloatTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Round).FillUsing(detail::UnarySchema(
    "Y is the whole number nearest to X, of two the even one.", FloatTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Sign).FillUsing(
    detail::UnarySchema("Y is 1 where X is above 0, -1 where it is below, else X: 0 or NaN.",
                        NumericTypes::DTypes(), 1));
OPKIT_OPERATOR_SCHEMA(Sin).FillUsing(detail::UnarySchema("Y = sin(X), X in radians.",
                                                         FloatTypes::DTypes(), 20));
OPKIT_OPERATOR_SCHEMA(Sqrt)
    .FillUsing(detail::UnarySchema("The square root, NaN of numbers below 0.", FloatTypes::DTypes(),
                                   1))
    .TestInputs(detail::PositiveTestInputs);

OPKIT_REGISTER_CPU_OPERATOR(Abs, AbsOp);
OPKIT_REGISTER_CPU_OPERATOR(Ceil, CeilOp);
OPKIT_REGISTER_CPU_OPERATOR(Cos, CosOp);
OPKIT_REGISTER_CPU_OPERATOR(Erf, ErfOp);
OPKIT_REGISTER_CPU_OPERATOR(Exp, ExpOp);
OPKIT_REGISTER_CPU_OPERATOR(Floor, FloorOp);
OPKIT_REGISTER_CPU_OPERATOR(Log, LogOp);
OPKIT_REGISTER_CPU_OPERATOR(Neg, NegOp);
OPKIT_REGISTER_CPU_OPERATOR(Not, NotOp);
OPKIT_REGISTER_CPU_OPERATOR(Reciprocal, ReciprocalOp);
OPKIT_REGISTER_CPU_OPERATOR(Round, RoundOp);
OPKIT_REGISTER_CPU_OPERATOR(Sign, SignOp);
OPKIT_REGISTER_CPU_OPERATOR(Sin, SinOp);
OPKIT_REGISTER_CPU_OPERATOR(Sqrt, SqrtOp);

namespace detail {

class AbsGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Mul", {GO(0), Node("Sign", {I(0)})}); }
};
class CosGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Neg", {Node("Mul", {GO(0), Node("Sin", {I(0)})})}); }
};
class ExpGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Mul", {GO(0), O(0)}); }
};
class LogGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Div", {GO(0), I(0)}); }
};
class NegGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Neg", {GO(0)}); }
};
class ReciprocalGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Neg", {Node("Mul", {GO(0), Node("Mul", {O(0), O(0)})})}); }
};
class SinGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Mul", {GO(0), Node("Cos", {I(0)})}); }
};
class SqrtGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Div", {GO(0), Node("Add", {O(0), O(0)})}); }
};

}  // namespace detail

OPKIT_REGISTER_GRADIENT(Abs, detail::AbsGradient);
OPKIT_REGISTER_GRADIENT(Cos, detail::CosGradient);
OPKIT_REGISTER_GRADIENT(Exp, detail::ExpGradient);
OPKIT_REGISTER_GRADIENT(Log, detail::LogGradient);
OPKIT_REGISTER_GRADIENT(Neg, detail::NegGradient);
OPKIT_REGISTER_GRADIENT(Reciprocal, detail::ReciprocalGradient);
OPKIT_REGISTER_GRADIENT(Sin, detail::SinGradient);
OPKIT_REGISTER_GRADIENT(Sqrt, detail::SqrtGradient);
OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(Erf);
// Flat wherever they have a slope at all.
OPKIT_NO_GRADIENT(Ceil);
OPKIT_NO_GRADIENT(Floor);
OPKIT_NO_GRADIENT(Not);
OPKIT_NO_GRADIENT(Round);
OPKIT_NO_GRADIENT(Sign);

}  // namespace opkit

#endif  // OPKIT_OPS_MATH_UNARY_HPP_

// Unary functions that are not computed often: the trigonometric and hyperbolic functions that
// unary.hpp lacks, and activations. One class computes all of them, in double and by a pointer to
// the function, so that a function adds a row of a table and no kernel. Source: the ONNX operator
// pages (https://onnx.ai/onnx/operators), opset 24.
#ifndef OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_
#define OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_

#include <cmath>
#include <limits>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Computes one element. `a` has the operator's attributes that are numbers, in the schema's order.
using ScalarFunction = double (*)(double x, const double* a);
struct ScalarFunctionRow {
  std::string_view op;
  ScalarFunction function;
};

inline double SoftplusOf(double x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x))); }
inline double GeluOf(double x, const double*) { return x / 2 * std::erfc(-x * std::sqrt(0.5)); }
inline double GeluByTanh(double x, const double*) {
  constexpr double kRootOf2ByPi = 0.79788456080286535588;
  return x / 2 * (1 + std::tanh(kRootOf2ByPi * (x + 0.044715 * x * x * x)));
}

inline constexpr ScalarFunctionRow kScalarFunctions[] = {
    {"Acos", [](double x, const double*) { return std::acos(x); }},
    {"Acosh", [](double x, const double*) { return std::acosh(x); }},
    {"Asin", [](double x, const double*) { return std::asin(x); }},
    {"Asinh", [](double x, const double*) { return std::asinh(x); }},
    {"Atan", [](double x, const double*) { return std::atan(x); }},
    {"Atanh", [](double x, const double*) { return std::atanh(x); }},
    {"Celu", [](double x, const double* a) { return x < 0 ? a[0] * std::expm1(x / a[0]) : x; }},
    {"Cosh", [](double x, const double*) { return std::cosh(x); }},
    {"Gelu", GeluOf},
    {"Mish", [](double x, const double*) { return x * std::tanh(SoftplusOf(x)); }},
    {"Selu", [](double x, const double* a) { return a[1] * (x > 0 ? x : a[0] * std::expm1(x)); }},
    // Shrink has the attributes bias and lambd. Its result for a NaN is 0: no comparison is true.
    {"Shrink",
     [](double x, const double* a) { return x < -a[1]  ? x + a[0]
                                            : x > a[1] ? x - a[0]
                                                       : 0; }},
    {"Sinh", [](double x, const double*) { return std::sinh(x); }},
    {"Softsign", [](double x, const double*) { return x / (1 + std::fabs(x)); }},
    {"Swish", [](double x, const double* a) { return x / (1 + std::exp(-a[0] * x)); }},
    {"Tan", [](double x, const double*) { return std::tan(x); }},
    {"ThresholdedRelu", [](double x, const double* a) { return x > a[0] ? x : 0; }},
};

}  // namespace detail

// Computes its function in the table for each element, rounded once to the type of the input.
class ScalarFunctionOp : public StandardOperator {
 public:
  ScalarFunctionOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    for (const detail::ScalarFunctionRow& row : detail::kScalarFunctions)
      if (row.op == type()) function_ = row.function;
    if (type() == "Gelu" &&
        EnumeratorOf<GeluKind>("Gelu", def.args(), "approximate") == GeluKind::kTanh)
      function_ = detail::GeluByTanh;
    for (int i = 0; const detail::AttributeSchema& attribute : schema().attributes())
      if (attribute.name != "approximate") attributes_[i++] = Arg<float>(attribute.name);
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<NumericTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelForRange(x.numel(), kGrain, [=, this](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          to[i] = ConvertElement<T>(function_(static_cast<double>(from[i]), attributes_));
      });
    });
  }

 private:
  enum class GeluKind : uint8_t { kNone, kTanh };
  static constexpr int64_t kGrain = 2048;  // elements for one thread: some 20 microseconds of work

  detail::ScalarFunction function_ = nullptr;
  double attributes_[2] = {};
};

namespace detail {

// Makes test inputs between `low` and `high`.
inline auto TestInputsBetween(double low, double high) {
  return [=](DType dtype, uint64_t seed) {
    return MakeTestInputs({BroadcastTestShapes(seed)[0]}, dtype, seed, low, high);
  };
}

// The base of the gradients of functions whose derivative contains the number 1.
class ScalarFunctionGradient : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 protected:
  // Returns the name of a scalar 1 of the type of X.
  std::string One() {
    return Node("CastLike", {Node("Constant", {}, {{"value_float", 1.f}}), I(0)});
  }
  // Returns the name of the square of X.
  std::string Square() { return Node("Mul", {I(0), I(0)}); }
};
#define OPKIT_SCALAR_GRADIENT(op)                            \
  class op##Gradient final : public ScalarFunctionGradient { \
    using ScalarFunctionGradient::ScalarFunctionGradient;    \
    void Make() override;                                    \
  };                                                         \
  OPKIT_REGISTER_GRADIENT(op, op##Gradient);                 \
  inline void op##Gradient::Make()

OPKIT_SCALAR_GRADIENT(Acos) {
  const std::string root = Node("Sqrt", {Node("Sub", {One(), Square()})});
  Give(0, "Neg", {Node("Div", {GO(0), root})});
}
OPKIT_SCALAR_GRADIENT(Acosh) {
  Give(0, "Div", {GO(0), Node("Sqrt", {Node("Sub", {Square(), One()})})});
}
OPKIT_SCALAR_GRADIENT(Asin) {
  Give(0, "Div", {GO(0), Node("Sqrt", {Node("Sub", {One(), Square()})})});
}
OPKIT_SCALAR_GRADIENT(Asinh) {
  Give(0, "Div", {GO(0), Node("Sqrt", {Node("Add", {Square(), One()})})});
}
OPKIT_SCALAR_GRADIENT(Atan) { Give(0, "Div", {GO(0), Node("Add", {Square(), One()})}); }
OPKIT_SCALAR_GRADIENT(Atanh) { Give(0, "Div", {GO(0), Node("Sub", {One(), Square()})}); }
OPKIT_SCALAR_GRADIENT(Cosh) { Give(0, "Mul", {GO(0), Node("Sinh", {I(0)})}); }
OPKIT_SCALAR_GRADIENT(Sinh) { Give(0, "Mul", {GO(0), Node("Cosh", {I(0)})}); }
OPKIT_SCALAR_GRADIENT(Softsign) {
  const std::string root = Node("Add", {Node("Abs", {I(0)}), One()});
  Give(0, "Div", {GO(0), Node("Mul", {root, root})});
}
OPKIT_SCALAR_GRADIENT(Tan) {
  Give(0, "Add", {GO(0), Node("Mul", {GO(0), Node("Mul", {O(0), O(0)})})});
}
#undef OPKIT_SCALAR_GRADIENT

}  // namespace detail

#define OPKIT_SCALAR_FUNCTION(name, gradient, Types, doc)   \
  OPKIT_STANDARD_OPERATOR(name, gradient, ScalarFunctionOp) \
      .FillUsing(::opkit::detail::UnarySchema(doc, Types::DTypes(), 30))

OPKIT_SCALAR_FUNCTION(Acos, kMaker, FloatTypes,
                      "The angle in radians, from 0 to pi, whose cosine is X.")
    .TestInputs(detail::TestInputsBetween(-0.75, 0.75));
OPKIT_SCALAR_FUNCTION(Acosh, kMaker, FloatTypes,
                      "The number from 0 on whose hyperbolic cosine is X.")
    .TestInputs(detail::TestInputsBetween(1.5, 4));
OPKIT_SCALAR_FUNCTION(Asin, kMaker, FloatTypes,
                      "The angle in radians, from -pi/2 to pi/2, whose sine is X.")
    .TestInputs(detail::TestInputsBetween(-0.75, 0.75));
OPKIT_SCALAR_FUNCTION(Asinh, kMaker, FloatTypes, "The number whose hyperbolic sine is X.");
OPKIT_SCALAR_FUNCTION(Atan, kMaker, FloatTypes,
                      "The angle in radians, from -pi/2 to pi/2, whose tangent is X.");
OPKIT_SCALAR_FUNCTION(Atanh, kMaker, FloatTypes, "The number whose hyperbolic tangent is X.")
    .TestInputs(detail::TestInputsBetween(-0.75, 0.75));
OPKIT_SCALAR_FUNCTION(Celu, kNotImplemented, FloatTypes,
                      "Y = alpha * (e^(X / alpha) - 1) where X is below 0, else X.")
    .Arg<float>("alpha", "how far below 0 it goes", 1.f);
OPKIT_SCALAR_FUNCTION(Cosh, kMaker, FloatTypes, "The hyperbolic cosine.");
OPKIT_SCALAR_FUNCTION(Gelu, kNotImplemented, FloatTypes,
                      "Y = X / 2 * (1 + Erf(X / sqrt(2))). With approximate=tanh: X / 2 * (1 + "
                      "tanh(sqrt(2 / pi) * (X + 0.044715 * X^3))).")
    .Arg("approximate", "how the error function is computed", {"none", "tanh"});
OPKIT_SCALAR_FUNCTION(Mish, kNotImplemented, FloatTypes, "Y = X * tanh(log(1 + e^X)).");
OPKIT_SCALAR_FUNCTION(Selu, kNotImplemented, FloatTypes,
                      "Y = gamma * X where X is above 0, else gamma * alpha * (e^X - 1).")
    .Arg<float>("alpha", "how far below 0 it goes, before gamma", 1.67326319217681884765625f)
    .Arg<float>("gamma", "the factor of all results", 1.05070102214813232421875f);
OPKIT_SCALAR_FUNCTION(Shrink, kNotImplemented, NumericTypes,
                      "Y = X + bias where X is below -lambd, X - bias where it is above lambd, "
                      "else 0. Integers are computed in double and rounded towards 0.")
    .Arg<float>("bias", "by how much X is moved towards 0", 0.f)
    .Arg<float>("lambd", "the largest magnitude that becomes 0", 0.5f);
OPKIT_SCALAR_FUNCTION(Sinh, kMaker, FloatTypes, "The hyperbolic sine.");
OPKIT_SCALAR_FUNCTION(Softsign, kMaker, FloatTypes, "Y = X / (1 + |X|).");
OPKIT_SCALAR_FUNCTION(Swish, kNotImplemented, FloatTypes, "Y = X / (1 + e^(-alpha * X)).")
    .Arg<float>("alpha", "the factor of the exponent", 1.f);
OPKIT_SCALAR_FUNCTION(Tan, kMaker, FloatTypes, "Y = tan(X), X in radians.")
    .TestInputs(detail::TestInputsBetween(-1, 1));
OPKIT_SCALAR_FUNCTION(ThresholdedRelu, kNotImplemented, FloatTypes,
                      "Y = X where X is above alpha, else 0.")
    .Arg<float>("alpha", "the threshold", 1.f);
#undef OPKIT_SCALAR_FUNCTION

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_

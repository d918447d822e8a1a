// Unary functions that are not computed often: the trigonometric and hyperbolic functions that
// unary.hpp lacks, and activations. One class computes all of them, in double and by a pointer to
// the function, so that a function adds a row of a table and no kernel. Source: the ONNX operator
// pages (https://onnx.ai/onnx/operators), opset 24.
#ifndef OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_
#define OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_

#include <cmath>

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Computes one element. `a` has the operator's attributes that are numbers, in the schema's order.
using ScalarFunction = double (*)(double x, const double* a);
struct ScalarFunctionRow {
  std::string_view op;
  ScalarFunction function;              // null: another header has the operator's kernel
  ScalarFunction derivative = nullptr;  // null: the gradient is made of other operators
};

// Returns F of a double, for the table.
template <class F>
double InDouble(double x, const double* a) {
  return F::Apply(x, a);
}
#define OPKIT_SCALAR_ROW(name) \
  { #name, InDouble<name##Function> }
#define OPKIT_SCALAR_ROW_WITH_DERIVATIVE(name) \
  { #name, InDouble<name##Function>, InDouble<name##Derivative> }
#define OPKIT_DERIVATIVE_ROW(name) \
  { #name, nullptr, InDouble<name##Derivative> }
inline constexpr ScalarFunctionRow kScalarFunctions[] = {
    OPKIT_SCALAR_ROW(Acos),
    OPKIT_SCALAR_ROW(Acosh),
    OPKIT_SCALAR_ROW(Asin),
    OPKIT_SCALAR_ROW(Asinh),
    OPKIT_SCALAR_ROW(Atan),
    OPKIT_SCALAR_ROW(Atanh),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Celu),
    OPKIT_SCALAR_ROW(Cosh),
    OPKIT_DERIVATIVE_ROW(Elu),
    OPKIT_DERIVATIVE_ROW(Erf),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Gelu),
    OPKIT_DERIVATIVE_ROW(HardSigmoid),
    OPKIT_DERIVATIVE_ROW(HardSwish),
    OPKIT_DERIVATIVE_ROW(LeakyRelu),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Mish),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Selu),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Shrink),
    OPKIT_SCALAR_ROW(Sinh),
    OPKIT_SCALAR_ROW(Softsign),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(Swish),
    OPKIT_SCALAR_ROW(Tan),
    OPKIT_SCALAR_ROW_WITH_DERIVATIVE(ThresholdedRelu),
};
#undef OPKIT_SCALAR_ROW
#undef OPKIT_SCALAR_ROW_WITH_DERIVATIVE
#undef OPKIT_DERIVATIVE_ROW
inline constexpr ScalarFunctionRow kGeluByTanh = {"Gelu", InDouble<GeluByTanhFunction>,
                                                  InDouble<GeluByTanhDerivative>};

enum class GeluKind : uint8_t { kNone, kTanh };

// The function of a node of type `op`, with the values of its attributes that are numbers.
class BoundScalarFunction {
 public:
  BoundScalarFunction(std::string_view op, const Arguments& args) {
    for (const ScalarFunctionRow& row : kScalarFunctions)
      if (row.op == op) row_ = &row;
    if (op == "Gelu" && EnumeratorOf<GeluKind>(op, args, "approximate") == GeluKind::kTanh)
      row_ = &kGeluByTanh;
    const OpSchema& schema = OpRegistry::Global().GetSchema(op);
    for (int i = 0; const AttributeSchema& attribute : schema.attributes())
      if (attribute.name != "approximate")
        attributes_[i++] = static_cast<double>(
            args.Get<float>(attribute.name, attribute.default_value->Get<float>()));
  }
  double At(double x) const { return row_->function(x, attributes_); }
  double DerivativeAt(double x) const { return row_->derivative(x, attributes_); }

 private:
  const ScalarFunctionRow* row_ = nullptr;
  double attributes_[2] = {};
};

}  // namespace detail

// The base of ScalarFunctionOp and of the gradient of its functions.
class ScalarFunctionOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  static constexpr int64_t kGrain = 2048;  // elements for one thread: some 20 microseconds of work
};

// Computes its function in the table for each element, rounded once to the type of the input.
class ScalarFunctionOp : public ScalarFunctionOperator {
 public:
  using ScalarFunctionOperator::ScalarFunctionOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<NumericTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelForRange(x.numel(), kGrain, [=, this](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          to[i] = ConvertElement<T>(function_.At(static_cast<double>(from[i])));
      });
    });
  }

 private:
  const detail::BoundScalarFunction function_{type(), def().args()};
};

// Multiplies the gradient of the output by the derivative of the function that the attribute
// `function` names.
class ScalarFunctionGradientOp final : public ScalarFunctionOperator {
 public:
  using ScalarFunctionOperator::ScalarFunctionOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(1);
    Tensor* dx = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() {
      const T *at = x.data<T>(), *from = dy.data<T>();
      T* to = dx->mutable_data<T>();
      ParallelForRange(x.numel(), kGrain, [=, this](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          to[i] = ConvertElement<T>(static_cast<double>(from[i]) *
                                    function_.DerivativeAt(static_cast<double>(at[i])));
      });
    });
  }

 private:
  const detail::BoundScalarFunction function_{GetSingleArgument<std::string>("function"),
                                              def().args()};
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
  std::string One() { return Number(1, I(0)); }
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

OPKIT_REGISTER_GRADIENT(Celu, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(Gelu, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(Mish, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(Selu, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(Shrink, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(Swish, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(ThresholdedRelu, DerivativeGradient);

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
OPKIT_SCALAR_FUNCTION(Celu, kMaker, FloatTypes,
                      "Y = alpha * (e^(X / alpha) - 1) where X is below 0, else X.")
    .Arg<float>("alpha", "how far below 0 it goes", 1.f);
OPKIT_SCALAR_FUNCTION(Cosh, kMaker, FloatTypes, "The hyperbolic cosine.");
OPKIT_SCALAR_FUNCTION(Gelu, kMaker, FloatTypes,
                      "Y = X / 2 * (1 + Erf(X / sqrt(2))). With approximate=tanh: X / 2 * (1 + "
                      "tanh(sqrt(2 / pi) * (X + 0.044715 * X^3))).")
    .Arg("approximate", "how the error function is computed", {"none", "tanh"});
OPKIT_SCALAR_FUNCTION(Mish, kMaker, FloatTypes, "Y = X * tanh(log(1 + e^X)).");
OPKIT_SCALAR_FUNCTION(Selu, kMaker, FloatTypes,
                      "Y = gamma * X where X is above 0, else gamma * alpha * (e^X - 1).")
    .Arg<float>("alpha", "how far below 0 it goes, before gamma", 1.67326319217681884765625f)
    .Arg<float>("gamma", "the factor of all results", 1.05070102214813232421875f);
OPKIT_SCALAR_FUNCTION(Shrink, kMaker, NumericTypes,
                      "Y = X + bias where X is below -lambd, X - bias where it is above lambd, "
                      "else 0. Integers are computed in double and rounded towards 0.")
    .Arg<float>("bias", "by how much X is moved towards 0", 0.f)
    .Arg<float>("lambd", "the largest magnitude that becomes 0", 0.5f);
OPKIT_SCALAR_FUNCTION(Sinh, kMaker, FloatTypes, "The hyperbolic sine.");
OPKIT_SCALAR_FUNCTION(Softsign, kMaker, FloatTypes, "Y = X / (1 + |X|).");
OPKIT_SCALAR_FUNCTION(Swish, kMaker, FloatTypes, "Y = X / (1 + e^(-alpha * X)).")
    .Arg<float>("alpha", "the factor of the exponent", 1.f);
OPKIT_SCALAR_FUNCTION(Tan, kMaker, FloatTypes, "Y = tan(X), X in radians.")
    .TestInputs(detail::TestInputsBetween(-1, 1));
OPKIT_SCALAR_FUNCTION(ThresholdedRelu, kMaker, FloatTypes, "Y = X where X is above alpha, else 0.")
    .Arg<float>("alpha", "the threshold", 1.f);
#undef OPKIT_SCALAR_FUNCTION

OPKIT_STANDARD_OPERATOR(ScalarFunctionGradient, kNotImplemented, ScalarFunctionGradientOp)
    .Private()
    .NumInputs(2)
    .Input(0, "X", "of the function", FloatTypes::DTypes())
    .Input(1, "dY", "of the shape of X", FloatTypes::DTypes())
    .Output(0, "dX", "of the shape of X", FloatTypes::DTypes())
    .Arg("function", "the type of the operator",
         {"Celu", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Selu",
          "Shrink", "Swish", "ThresholdedRelu"})
    .Arg<float>("alpha", "of the operator")
    .Arg<float>("beta", "of the operator")
    .Arg<float>("gamma", "of the operator")
    .Arg<float>("bias", "of the operator")
    .Arg<float>("lambd", "of the operator")
    .Arg<std::string>("approximate", "of the operator")
    .PointwiseCost(30)
    .Infer([](InferenceContext& c) {
      c.SetInput(1, c.input_dtype(0), c.input_shape(0));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Doc("The gradient of a function of one element.");

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_SCALAR_FUNCTION_HPP_

// Activation functions: Clip, Elu, HardSigmoid, HardSwish, LeakyRelu, PRelu, Relu, Sigmoid,
// Softplus, SwiGLU, Tanh. A NaN stays a NaN. Source: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opset 28.
#ifndef OPKIT_OPS_NN_ACTIVATION_HPP_
#define OPKIT_OPS_NN_ACTIVATION_HPP_

#include <cmath>
#include <limits>

#include "opkit/graph/passes/hard_swish.hpp"
#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class T>
void RunClip(const ElementRun& run) {
  const T* x = static_cast<const T*>(run.in[0]);
  const T low = *static_cast<const T*>(run.in[1]), high = *static_cast<const T*>(run.in[2]);
  T* y = static_cast<T*>(run.out);
  for (int64_t i = 0; i < run.n; ++i) y[i] = Clamp<ComputeType<T>>(x[i], low, high);
}

template <class T>
void RunSwiGlu(const ElementRun& run) {
  using C = ComputeType<T>;
  const T *gate = static_cast<const T*>(run.in[0]), *value = static_cast<const T*>(run.in[1]);
  T* y = static_cast<T*>(run.out);
  const auto alpha = static_cast<C>(run.attributes[0]);
  for (int64_t i = 0; i < run.n; ++i) {
    const auto x = static_cast<C>(gate[i]);
    y[i] = static_cast<T>(x / (1 + std::exp(-alpha * x)) * static_cast<C>(value[i]));
  }
}

// Only the slope is broadcast: the output has the shape of X.
inline void InferPRelu(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  const SymbolicShape &x = c.input_shape(0), &slope = c.input_shape(1);
  if (x.has_rank() && slope.has_rank() && !MayBroadcastTo(slope, x))
    Throw(ErrorCode::kInvalidArgument, "PRelu: the slope of shape ", ToString(slope),
          " cannot be broadcast to the input's shape ", ToString(x));
  c.SetOutput(0, dtype, x);
}
inline void InferClip(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  ExpectScalarsAfterFirst(c);
  c.SetOutput(0, dtype, c.input_shape(0));
}

// X gets the gradient where it is not clipped, else the bound that is the output. Where `min` is
// above `max`, `max` is the output.
OPKIT_NODE_GRADIENT(Clip) {
  Give(0, "Where", {Node("Equal", {I(0), O(0)}), GO(0), Number(0, GO(0))});
  if (HasI(1)) {
    std::string below = Node("Less", {I(0), I(1)});
    if (HasI(2)) below = Node("And", {below, Node("LessOrEqual", {I(1), I(2)})});
    GiveSummed(1, Masked(below, GO(0)));
  }
  if (HasI(2)) {
    const std::string raised = HasI(1) ? Node("Max", {I(0), I(1)}) : I(0);
    GiveSummed(2, Masked(Node("Greater", {raised, I(2)}), GO(0)));
  }
}
OPKIT_REGISTER_GRADIENT(Elu, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(HardSigmoid, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(HardSwish, DerivativeGradient);
OPKIT_REGISTER_GRADIENT(LeakyRelu, DerivativeGradient);
OPKIT_NODE_GRADIENT(PRelu) {
  const std::string below = Node("Less", {I(0), Number(0, I(0))});
  Give(0, "Where", {below, Node("Mul", {GO(0), I(1)}), GO(0)});
  GiveSummed(1, Masked(below, Node("Mul", {GO(0), I(0)})));
}
// Uses Sign(Y), because Y is above 0 exactly where X is.
OPKIT_NODE_GRADIENT(Relu) { Give(0, "Mul", {GO(0), Node("Sign", {O(0)})}); }
OPKIT_NODE_GRADIENT(Sigmoid) {
  Give(0, "Mul", {GO(0), Node("Sub", {O(0), Node("Mul", {O(0), O(0)})})});
}
OPKIT_NODE_GRADIENT(Softplus) { Give(0, "Mul", {GO(0), Node("Sigmoid", {I(0)})}); }
OPKIT_NODE_GRADIENT(SwiGLU) {
  const Arguments alpha = {{"alpha", Def().args().Get<float>("alpha", 1)}};
  Arguments swish = alpha;
  swish.Set("function", "Swish");
  Give(0, "ScalarFunctionGradient", {I(0), Node("Mul", {GO(0), I(1)})}, std::move(swish));
  Give(1, "Mul", {GO(0), Node("Swish", {I(0)}, alpha)});
}
OPKIT_NODE_GRADIENT(Tanh) {
  Give(0, "Sub", {GO(0), Node("Mul", {GO(0), Node("Mul", {O(0), O(0)})})});
}

}  // namespace detail

class ClipOp : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override {
    return NumericTypes::Find<ElementKernel>(Input(0).dtype(),
                                             []<class T>() { return &detail::RunClip<T>; });
  }
  const void* LeftOut(int i) const override {
    const void* bound = nullptr;
    NumericTypes::Visit(Input(0).dtype(), [&]<class T>() {
      using Limits = std::numeric_limits<detail::ComputeType<T>>;
      static const T low(Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
      static const T high(Limits::has_infinity ? Limits::infinity() : (Limits::max)());
      bound = i == 1 ? &low : &high;
    });
    return bound;
  }
};
class SwiGLUOp : public ElementwiseOperator {
 public:
  SwiGLUOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : ElementwiseOperator(def, ws, config) {
    SetAttribute(0, GetSingleArgument<float>("alpha"));
  }

 protected:
  ElementKernel FindKernel() const override {
    return FloatTypes::Find<ElementKernel>(Input(0).dtype(),
                                           []<class T>() { return &detail::RunSwiGlu<T>; });
  }
};
using PReluOp = detail::BinaryOperator<detail::PReluFunction, NumericTypes>;

OPKIT_STANDARD_OPERATOR(Clip, kMaker, ClipOp)
    .Doc(
        "Y is X where that lies in [min, max], else the nearer of the two; max where min is "
        "above max.")
    .NumInputs(1, 3)
    .Input(0, "input", "a tensor of any shape", NumericTypes::DTypes())
    .Input(1, "min", "a scalar of the input's type; left out: no limit", NumericTypes::DTypes())
    .Input(2, "max", "a scalar of the input's type; left out: no limit", NumericTypes::DTypes())
    .Output(0, "output", "of the type and shape of the input", NumericTypes::DTypes())
    .Inplace({{0, 0}})
    .PointwiseCost(2)
    .TestInputs([](DType dtype, uint64_t seed) {
      return detail::MakeTestInputs({Shape{3, 5}, Shape{}, Shape{}}, dtype, seed, 1, 5);
    })
    .Infer(&detail::InferClip);
OPKIT_UNARY_OPERATOR(Elu, kMaker, FloatTypes, 10,
                     "Y = alpha * (e^X - 1) where X is below 0, else X.")
    .Arg<float>("alpha", "how far below 0 it goes", 1.f);
OPKIT_UNARY_OPERATOR(HardSigmoid, kMaker, FloatTypes, 4,
                     "Y = alpha * X + beta, but at least 0 and at most 1.")
    .Arg<float>("alpha", "the slope", 0.2f)
    .Arg<float>("beta", "the value at 0", 0.5f);
OPKIT_UNARY_OPERATOR(HardSwish, kMaker, FloatTypes, 5,
                     "Y = X * HardSigmoid(X) with alpha 1/6 and beta 0.5.");
OPKIT_UNARY_OPERATOR(LeakyRelu, kMaker, FloatTypes, 2, "Y = alpha * X where X is below 0, else X.")
    .Arg<float>("alpha", "the slope below 0", 0.01f);
OPKIT_STANDARD_OPERATOR(PRelu, kMaker, PReluOp)
    .Doc("Y = slope * X where X is below 0, else X.")
    .NumInputs(2)
    .Input(0, "X", "a tensor of any shape", NumericTypes::DTypes())
    .Input(1, "slope", "of the type of X, of a shape that can be broadcast to that of X",
           NumericTypes::DTypes())
    .Output(0, "Y", "of the type and shape of X", NumericTypes::DTypes())
    .Inplace({{0, 0}, {1, 0}})
    .PointwiseCost(2)
    .TestInputs([](DType dtype, uint64_t seed) {
      return detail::MakeTestInputs({Shape{2, 3, 4}, seed % 2 ? Shape{3, 1} : Shape{}}, dtype, seed,
                                    IsInteger(dtype) ? 0 : -2, 5);
    })
    .Infer(&detail::InferPRelu);
OPKIT_UNARY_OPERATOR(Relu, kMaker, SignedTypes, 1, "Y = X where X is above 0, else 0.");
OPKIT_UNARY_OPERATOR(Sigmoid, kMaker, FloatTypes, 12, "Y = 1 / (1 + e^-X).");
OPKIT_UNARY_OPERATOR(Softplus, kMaker, FloatTypes, 22, "Y = log(1 + e^X).");
OPKIT_STANDARD_OPERATOR(SwiGLU, kMaker, SwiGLUOp)
    .Doc("Y = A / (1 + e^(-alpha * A)) * B: Swish of the gate A, times B. Nothing is broadcast.")
    .NumInputs(2)
    .Input(0, "A", "the gate, of any shape", FloatTypes::DTypes())
    .Input(1, "B", "of the type and shape of A", FloatTypes::DTypes())
    .Output(0, "Y", "of the type and shape of A", FloatTypes::DTypes())
    .Arg<float>("alpha", "the factor of the exponent", 1.f)
    .Inplace({{0, 0}, {1, 0}})
    .PointwiseCost(13)
    .Infer([](InferenceContext& c) {
      c.SetInput(1, c.input_dtype(0), c.input_shape(0));
      c.SetInput(0, c.input_dtype(1), c.input_shape(1));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    });
OPKIT_UNARY_OPERATOR(Tanh, kMaker, FloatTypes, 12, "The hyperbolic tangent.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_ACTIVATION_HPP_

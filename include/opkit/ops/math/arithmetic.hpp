// Arithmetic of two tensors: Add, Sub, Mul, Div, Mod, Pow. Integers wrap around; an integer divided
// by zero throws kInvalidArgument. Source: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opset 28.
#ifndef OPKIT_OPS_MATH_ARITHMETIC_HPP_
#define OPKIT_OPS_MATH_ARITHMETIC_HPP_

#include <cmath>

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class T, class E>
void RunPow(const ElementRun& run) {
  const T* base = static_cast<const T*>(run.in[0]);
  const E* exponent = static_cast<const E*>(run.in[1]);
  T* y = static_cast<T*>(run.out);
  for (int64_t i = 0; i < run.n; ++i) {
    const T x = base[i * run.step[0]];
    const E e = exponent[i * run.step[1]];
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
      y[i] =
          static_cast<T>(IntegerPower(static_cast<uint64_t>(x), static_cast<uint64_t>(e), e < 0));
    } else {
      y[i] = ConvertElement<T>(std::pow(static_cast<double>(x), static_cast<double>(e)));
    }
  }
}

inline auto BinarySchema(const char* doc, uint64_t flops) {
  return [=](OpSchema& schema) { DescribeBinary(schema, doc, NumericTypes::DTypes(), flops); };
}

OPKIT_NODE_GRADIENT(Add) {
  GiveSummed(0, GO(0));
  GiveSummed(1, GO(0));
}
OPKIT_NODE_GRADIENT(Sub) {
  GiveSummed(0, GO(0));
  GiveSummed(1, Node("Neg", {GO(0)}));
}
OPKIT_NODE_GRADIENT(Mul) {
  GiveSummed(0, Node("Mul", {GO(0), I(1)}));
  GiveSummed(1, Node("Mul", {GO(0), I(0)}));
}
OPKIT_NODE_GRADIENT(Div) {
  const std::string to_a = Node("Div", {GO(0), I(1)});
  GiveSummed(0, to_a);
  GiveSummed(1, Node("Neg", {Node("Mul", {to_a, O(0)})}));
}

// A is the remainder plus B times a whole number, which is minus the derivative with respect to B.
OPKIT_NODE_GRADIENT(Mod) {
  GiveSummed(0, GO(0));
  GiveSummed(1, Node("Mul", {GO(0), Node("Div", {Node("Sub", {O(0), I(0)}), I(1)})}));
}
// The derivative is 0 where the exponent is 0, and with respect to the exponent where the base is
// 0, where the formulas have a NaN.
OPKIT_NODE_GRADIENT(Pow) {
  const std::string lower = Node("Pow", {I(0), Node("Sub", {I(1), Number(1, I(1))})});
  const std::string to_base =
      Node("Mul", {GO(0), Node("Mul", {Node("CastLike", {I(1), I(0)}), lower})});
  const std::string constant = Node("Equal", {I(1), Number(0, I(1))});
  GiveSummed(0, Masked(Node("Not", {constant}), to_base));
  const std::string to_exponent = Node("Mul", {GO(0), Node("Mul", {O(0), Node("Log", {I(0)})})});
  const std::string zero = Node("Equal", {I(0), Number(0, I(0))});
  const std::string sum = Node("SumToShape", {Masked(Node("Not", {zero}), to_exponent), I(1)});
  Give(1, "CastLike", {sum, I(1)});
}

// The base of Div and Mod. For integers, throws kInvalidArgument if a divisor is zero, before any
// element is written.
template <class Function>
class DivisionOperator : public BinaryOperator<Function, NumericTypes> {
 public:
  using BinaryOperator<Function, NumericTypes>::BinaryOperator;

  bool RunOnDevice() override {
    if (IsInteger(this->Input(1).dtype()) && this->Input(0).numel() > 0) CheckDivisors();
    return ElementwiseOperator::RunOnDevice();
  }

 private:
  void CheckDivisors() {
    const Tensor& divisors = this->DenseInput(1);
    NumericTypes::Visit(divisors.dtype(), [&]<class T>() {
      const T* b = divisors.data<T>();
      for (int64_t i = 0; i < divisors.numel(); ++i)
        if (b[i] == T(0))
          Throw(ErrorCode::kInvalidArgument, this->type(), ": element ", i, " of the divisor ",
                ToString(divisors), " is 0; an integer cannot be divided by it");
    });
  }
};

}  // namespace detail

using AddOp = detail::BinaryOperator<detail::AddFunction, NumericTypes>;
using SubOp = detail::BinaryOperator<detail::SubFunction, NumericTypes>;
using MulOp = detail::BinaryOperator<detail::MulFunction, NumericTypes>;

using DivOp = detail::DivisionOperator<detail::DivFunction>;

class ModOp : public detail::DivisionOperator<detail::FmodFunction> {
 public:
  ModOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : DivisionOperator(def, ws, config), fmod_(GetSingleArgument<int64_t>("fmod")) {
    if (fmod_ != 0 && fmod_ != 1)
      Throw(ErrorCode::kInvalidArgument, "Mod: fmod is ", fmod_, ", expected 0 or 1");
  }

 protected:
  ElementKernel FindKernel() const override {
    if (fmod_ == 1) return DivisionOperator::FindKernel();
    return NumericTypes::Find<ElementKernel>(
        Input(0).dtype(), []<class T>() { return &detail::RunBinary<detail::ModFunction, T>; });
  }

 private:
  const int64_t fmod_;
};

class PowOp : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;
  using BaseTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>;

 protected:
  ElementKernel FindKernel() const override {
    return BaseTypes::Find<ElementKernel>(Input(0).dtype(), [&]<class T>() {
      return NumericTypes::Find<ElementKernel>(Input(1).dtype(),
                                               []<class E>() { return &detail::RunPow<T, E>; });
    });
  }
};

OPKIT_STANDARD_OPERATOR(Add, kMaker, AddOp).FillUsing(detail::BinarySchema("C = A + B.", 1));
OPKIT_STANDARD_OPERATOR(Sub, kMaker, SubOp).FillUsing(detail::BinarySchema("C = A - B.", 1));
OPKIT_STANDARD_OPERATOR(Mul, kMaker, MulOp).FillUsing(detail::BinarySchema("C = A * B.", 1));
OPKIT_STANDARD_OPERATOR(Div, kMaker, DivOp)
    .FillUsing(detail::BinarySchema(
        "C = A / B, of integers the part before the point. An integer divided by 0 is an Error.",
        1));
OPKIT_STANDARD_OPERATOR(Mod, kMaker, ModOp)
    .FillUsing(detail::BinarySchema("The remainder of A / B. An integer divided by 0 is an Error.",
                                    10))
    .Arg<int64_t>("fmod", "0: the remainder has the sign of B, as in Python; 1: of A, as C's fmod",
                  0)
    .TestInputs({});
OPKIT_STANDARD_OPERATOR(Pow, kMaker, PowOp)
    .Doc(
        "Z is X to the power of Y, of the type of X. Integers wrap around; one to a negative "
        "power is 0 unless it is 1 or -1. Inputs are broadcast as in NumPy.")
    .NumInputs(2)
    .Input(0, "X", "base", PowOp::BaseTypes::DTypes())
    .Input(1, "Y", "exponent, of a type of its own", NumericTypes::DTypes())
    .Output(0, "Z", "of the type of X, of the shape that X and Y are broadcast to",
            PowOp::BaseTypes::DTypes())
    .Inplace({{0, 0}})
    .PointwiseCost(20)
    .TestInputs([](DType dtype, uint64_t seed) {
      const std::vector<Shape> shapes = detail::BroadcastTestShapes(seed);
      const bool is_base = PowOp::BaseTypes::Has(dtype);
      return std::vector<Tensor>{
          detail::MakeTestInputs({shapes[0]}, is_base ? dtype : DType::kFloat32, seed, 1, 3)[0],
          detail::MakeTestInputs({shapes[1]}, dtype, seed + 1, 1, 3)[0]};
    })
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), detail::BroadcastInputs(c, 2));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_ARITHMETIC_HPP_

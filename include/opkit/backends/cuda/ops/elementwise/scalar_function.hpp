// The functions of ops/math/scalar_function.hpp on CUDA, and ScalarFunctionGradient. The 16-bit
// types and float32 are computed in float32. Trigonometric and hyperbolic functions have no kernels
// for the 16-bit types.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_SCALAR_FUNCTION_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_SCALAR_FUNCTION_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/math/element_functions.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Functions that models seldom have.
using WideFloatTypes = ElementTypes<float, double>;
OPKIT_CUDA_UNARY(Acos, WideFloatTypes);
OPKIT_CUDA_UNARY(Acosh, WideFloatTypes);
OPKIT_CUDA_UNARY(Asin, WideFloatTypes);
OPKIT_CUDA_UNARY(Asinh, WideFloatTypes);
OPKIT_CUDA_UNARY(Atan, WideFloatTypes);
OPKIT_CUDA_UNARY(Atanh, WideFloatTypes);
OPKIT_CUDA_UNARY(Cosh, WideFloatTypes);
OPKIT_CUDA_UNARY(Sinh, WideFloatTypes);
OPKIT_CUDA_UNARY(Tan, WideFloatTypes);

OPKIT_CUDA_UNARY(Celu, FloatTypes);
OPKIT_CUDA_UNARY(Mish, FloatTypes);
OPKIT_CUDA_UNARY(Selu, FloatTypes);
OPKIT_CUDA_UNARY(Shrink, FloatTypes);
OPKIT_CUDA_UNARY(Softsign, FloatTypes);
OPKIT_CUDA_UNARY(Swish, FloatTypes);
OPKIT_CUDA_UNARY(ThresholdedRelu, FloatTypes);

namespace detail {

// True if a node of Gelu, or of its gradient, has the attribute approximate=tanh.
inline bool UsesTanh(const Arguments& args) {
  return args.Get<std::string>("approximate", "none") == "tanh";
}

// dx = dy * F(x), for the derivative F of a function.
template <class F>
struct DerivativeElement {
  ElementAttributes attributes;
  template <class C>
  OPKIT_DEVICE C operator()(C x, C dy) const {
    return dy * F::Apply(x, attributes.numbers);
  }
};

}  // namespace detail

class GeluCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;
  static constexpr auto& Fuse = detail::FuseElementwise;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() {
      if (uses_tanh_)
        Issue<T, T>(detail::UnaryElement<detail::GeluByTanhFunction>(), y, {&x});
      else
        Issue<T, T>(detail::UnaryElement<detail::GeluFunction>(), y, {&x});
    });
  }

 private:
  const bool uses_tanh_ = detail::UsesTanh(def().args());
};
OPKIT_CUDA_OPERATOR(Gelu, GeluCUDAOp);

class ScalarFunctionGradientCUDAOp final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    if (function_ == "Gelu")
      return detail::UsesTanh(def().args()) ? Multiply<detail::GeluByTanhDerivative>()
                                            : Multiply<detail::GeluDerivative>();
#define OPKIT_MULTIPLY_BY_DERIVATIVE(name) \
  if (function_ == #name) return Multiply<detail::name##Derivative>()
    OPKIT_MULTIPLY_BY_DERIVATIVE(Celu);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Elu);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Erf);
    OPKIT_MULTIPLY_BY_DERIVATIVE(HardSigmoid);
    OPKIT_MULTIPLY_BY_DERIVATIVE(HardSwish);
    OPKIT_MULTIPLY_BY_DERIVATIVE(LeakyRelu);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Mish);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Selu);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Shrink);
    OPKIT_MULTIPLY_BY_DERIVATIVE(Swish);
    OPKIT_MULTIPLY_BY_DERIVATIVE(ThresholdedRelu);
#undef OPKIT_MULTIPLY_BY_DERIVATIVE
    Throw(ErrorCode::kUnsupported, "ScalarFunctionGradient has no derivative of ", function_);
  }

 private:
  template <class F>
  bool Multiply() {
    const Tensor &x = DenseInput(0), &dy = DenseInput(1);
    Tensor* dx = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() {
      Issue<T, T, T>(detail::DerivativeElement<F>{attributes_}, dx, {&x, &dy});
    });
  }

  const std::string function_ = GetSingleArgument<std::string>("function");
  const detail::ElementAttributes attributes_ =
      detail::ElementAttributes::Of(function_, def().args());
};
OPKIT_CUDA_OPERATOR(ScalarFunctionGradient, ScalarFunctionGradientCUDAOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_SCALAR_FUNCTION_HPP_

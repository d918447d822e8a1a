// Unary arithmetic and activations on CUDA.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_UNARY_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_UNARY_HPP_

#include "opkit/backends/cuda/ops/elementwise/loop.hpp"
#include "opkit/ops/math/element_functions.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_CUDA_UNARY(Abs, CUDANumericTypes);
OPKIT_CUDA_UNARY(Ceil, FloatTypes);
OPKIT_CUDA_UNARY(Cos, FloatTypes);
OPKIT_CUDA_UNARY(Erf, FloatTypes);
OPKIT_CUDA_UNARY(Exp, FloatTypes);
OPKIT_CUDA_UNARY(Floor, FloatTypes);
OPKIT_CUDA_UNARY(Log, FloatTypes);
OPKIT_CUDA_UNARY(Neg, CUDANumericTypes);
OPKIT_CUDA_UNARY(Not, ElementTypes<bool>);
OPKIT_CUDA_UNARY(Reciprocal, FloatTypes);
OPKIT_CUDA_UNARY(Round, FloatTypes);
OPKIT_CUDA_UNARY(Sign, CUDANumericTypes);
OPKIT_CUDA_UNARY(Sin, FloatTypes);
OPKIT_CUDA_UNARY(Sqrt, FloatTypes);

OPKIT_CUDA_UNARY(Elu, FloatTypes);
OPKIT_CUDA_UNARY(HardSigmoid, FloatTypes);
OPKIT_CUDA_UNARY(HardSwish, FloatTypes);
OPKIT_CUDA_UNARY(LeakyRelu, FloatTypes);
OPKIT_CUDA_UNARY(Relu, CUDANumericTypes);
OPKIT_CUDA_UNARY(Sigmoid, FloatTypes);
OPKIT_CUDA_UNARY(Softplus, FloatTypes);
OPKIT_CUDA_UNARY(Tanh, FloatTypes);

OPKIT_CUDA_UNARY(IsInf, FloatTypes, bool);
OPKIT_CUDA_UNARY(IsNaN, FloatTypes, bool);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_UNARY_HPP_

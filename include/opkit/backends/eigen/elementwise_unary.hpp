// Kernels of the "eigen" backend for unary arithmetic on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/ops/math/unary.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_EIGEN_PACKETS(Abs, EigenUnary);
OPKIT_EIGEN_PACKETS(Ceil, EigenUnary);
OPKIT_EIGEN_PACKETS(Cos, EigenMath);
OPKIT_EIGEN_PACKETS(Erf, EigenMath);
OPKIT_EIGEN_PACKETS(Exp, EigenMath);
OPKIT_EIGEN_PACKETS(Floor, EigenUnary);
OPKIT_EIGEN_PACKETS(Log, EigenMath);
OPKIT_EIGEN_PACKETS(Neg, EigenUnary);
OPKIT_EIGEN_PACKETS(Reciprocal, EigenUnary);
OPKIT_EIGEN_PACKETS(Round, EigenUnary);
OPKIT_EIGEN_PACKETS(Sign, EigenUnary);
OPKIT_EIGEN_PACKETS(Sin, EigenMath);
OPKIT_EIGEN_PACKETS(Sqrt, EigenUnary);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

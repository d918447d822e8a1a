// Kernels of the "eigen" backend for unary arithmetic on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/ops/math/unary.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_REGISTER_EIGEN_OPERATOR(Abs, detail::EigenUnary<AbsOp, detail::AbsPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Ceil, detail::EigenUnary<CeilOp, detail::CeilPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Cos, detail::EigenMath<CosOp, detail::CosPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Erf, detail::EigenMath<ErfOp, detail::ErfPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Exp, detail::EigenMath<ExpOp, detail::ExpPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Floor, detail::EigenUnary<FloorOp, detail::FloorPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Log, detail::EigenMath<LogOp, detail::LogPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Neg, detail::EigenUnary<NegOp, detail::NegPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Reciprocal,
                              detail::EigenUnary<ReciprocalOp, detail::ReciprocalPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Round, detail::EigenUnary<RoundOp, detail::RoundPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Sign, detail::EigenUnary<SignOp, detail::SignPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Sin, detail::EigenMath<SinOp, detail::SinPacket>);
OPKIT_REGISTER_EIGEN_OPERATOR(Sqrt, detail::EigenUnary<SqrtOp, detail::SqrtPacket>);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

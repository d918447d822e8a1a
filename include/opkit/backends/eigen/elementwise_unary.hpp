// Kernels of the "eigen" backend for unary arithmetic on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/ops/math/unary.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Abs, eigen, detail::EigenUnary<AbsOp, detail::AbsPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Ceil, eigen,
                                        detail::EigenUnary<CeilOp, detail::CeilPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Cos, eigen, detail::EigenMath<CosOp, detail::CosPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Erf, eigen, detail::EigenMath<ErfOp, detail::ErfPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Exp, eigen, detail::EigenMath<ExpOp, detail::ExpPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Floor, eigen,
                                        detail::EigenUnary<FloorOp, detail::FloorPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Log, eigen, detail::EigenMath<LogOp, detail::LogPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Neg, eigen, detail::EigenUnary<NegOp, detail::NegPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Reciprocal, eigen,
                                        detail::EigenUnary<ReciprocalOp, detail::ReciprocalPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Round, eigen,
                                        detail::EigenUnary<RoundOp, detail::RoundPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sign, eigen,
                                        detail::EigenUnary<SignOp, detail::SignPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sin, eigen, detail::EigenMath<SinOp, detail::SinPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sqrt, eigen,
                                        detail::EigenUnary<SqrtOp, detail::SqrtPacket>);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_UNARY_HPP_

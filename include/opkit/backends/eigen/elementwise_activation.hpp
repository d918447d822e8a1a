// Kernels of the "eigen" backend for activation functions on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/ops/nn/activation.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct ClipPacket {
  Packet operator()(Packet x) const { return Least(Most(x, low), high); }
  Packet low, high;
};
inline void RunClipPackets(const ElementRun& run) {
  const ClipPacket clip{Splat(*static_cast<const float*>(run.in[1])),
                        Splat(*static_cast<const float*>(run.in[2]))};
  RunPackets(clip, static_cast<float*>(run.out), run.n,
             PacketOperand<false>(static_cast<const float*>(run.in[0])));
}

}  // namespace detail

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(
    Clip, eigen, detail::EigenElementwise<ClipOp, &detail::RunClipPackets, detail::kCheapGrain>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Elu, eigen, detail::EigenMath<EluOp, detail::EluPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(
    HardSigmoid, eigen, detail::EigenUnary<HardSigmoidOp, detail::HardSigmoidPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(HardSwish, eigen,
                                        detail::EigenUnary<HardSwishOp, detail::HardSwishPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(LeakyRelu, eigen,
                                        detail::EigenUnary<LeakyReluOp, detail::LeakyReluPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(PRelu, eigen,
                                        detail::EigenBinary<PReluOp, detail::PReluPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Relu, eigen,
                                        detail::EigenUnary<ReluOp, detail::ReluPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Sigmoid, eigen,
                                        detail::EigenMath<SigmoidOp, detail::SigmoidPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Softplus, eigen,
                                        detail::EigenMath<SoftplusOp, detail::SoftplusPacket>);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Tanh, eigen, detail::EigenMath<TanhOp, detail::TanhPacket>);

}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_

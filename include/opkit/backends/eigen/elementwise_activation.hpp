// Kernels of the "eigen" backend for activation functions on float32.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/nn/activation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Clip of a packet: `high` wins if `low` is above `high`. A NaN stays a NaN.
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

OPKIT_EIGEN_OPERATOR(
    Clip, detail::EigenElementwise<ClipOp, &detail::RunClipPackets, detail::kCheapGrain>);
OPKIT_EIGEN_PACKETS(Elu, EigenMath);
OPKIT_EIGEN_PACKETS(HardSigmoid, EigenUnary);
OPKIT_EIGEN_PACKETS(HardSwish, EigenUnary);
OPKIT_EIGEN_PACKETS(LeakyRelu, EigenUnary);
OPKIT_EIGEN_PACKETS(PRelu, EigenBinary);
OPKIT_EIGEN_PACKETS(Relu, EigenUnary);
OPKIT_EIGEN_PACKETS(Sigmoid, EigenMath);
OPKIT_EIGEN_PACKETS(Softplus, EigenMath);
OPKIT_EIGEN_PACKETS(Tanh, EigenMath);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ACTIVATION_HPP_

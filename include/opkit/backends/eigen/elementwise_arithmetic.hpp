// Kernels of the "eigen" backend for two or more tensors of float32: Add, Div, Mul, Pow, Sub; Max,
// Mean, Min, Sum.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ARITHMETIC_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ARITHMETIC_HPP_

#include "opkit/backends/eigen/support/elementwise_kernel.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/variadic.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Computes x^0.5 like std::pow: infinity for -infinity, and 0 for -0.
struct RootPacket {
  Packet operator()(Packet x) const {
    const Packet infinity = Splat(INFINITY);
    const Packet root = packet::psqrt(packet::padd(x, Splat(0)));
    return packet::pselect(packet::pcmp_eq(packet::pabs(x), infinity), infinity, root);
  }
};
struct SquarePacket {
  Packet operator()(Packet x) const { return packet::pmul(x, x); }
};
struct CubePacket {
  Packet operator()(Packet x) const { return packet::pmul(x, packet::pmul(x, x)); }
};
// Pow of float32. The exponents 2, 3, 0.5 and -1, which are frequent in models, have their own
// loops if one exponent serves all elements.
inline void RunPowPackets(const ElementRun& run) {
  const auto* base = static_cast<const float*>(run.in[0]);
  const auto* exponent = static_cast<const float*>(run.in[1]);
  auto* out = static_cast<float*>(run.out);
  const bool one_exponent = run.step[1] == 0 || run.n == 1;
  const PacketOperand<false> x(base);
  if (run.step[0] != 0 && one_exponent && *exponent == 2)
    RunPackets(SquarePacket(), out, run.n, x);
  else if (run.step[0] != 0 && one_exponent && *exponent == 3)
    RunPackets(CubePacket(), out, run.n, x);
  else if (run.step[0] != 0 && one_exponent && *exponent == 0.5f)
    RunPackets(RootPacket(), out, run.n, x);
  else if (run.step[0] != 0 && one_exponent && *exponent == -1)
    RunPackets(ReciprocalPacket(nullptr), out, run.n, x);
  else
    for (int64_t i = 0; i < run.n; ++i)
      out[i] = std::pow(base[i * run.step[0]], exponent[i * run.step[1]]);
}

class EigenPowOp final : public PowOp {
 public:
  using PowOp::PowOp;
  static constexpr auto& Propose = ProposeForFloat;

 protected:
  ElementKernel FindKernel() const override {
    const bool floats = Input(0).dtype() == DType::kFloat32 && Input(1).dtype() == DType::kFloat32;
    return floats ? &RunPowPackets : PowOp::FindKernel();
  }
};

// --- Max, Mean, Min, Sum

// The reference operator Op, but with Packets to fold float32.
template <class Op, class Packets>
class EigenFold final : public Op {
 public:
  using Op::Op;
  static constexpr auto& Propose = ProposeForFloat;

 protected:
  typename Op::Kernels FindKernels() const override {
    typename Op::Kernels kernels = Op::FindKernels();
    if (this->Input(0).dtype() != DType::kFloat32) return kernels;
    kernels.fold = &RunBinaryPackets<Packets>;
    if (kernels.finish) kernels.finish = &RunUnaryPackets<DivideByCountPacket>;
    return kernels;
  }
};

}  // namespace detail

OPKIT_EIGEN_PACKETS(Add, EigenBinary);
OPKIT_EIGEN_PACKETS(Div, EigenBinary);
OPKIT_EIGEN_PACKETS(Mul, EigenBinary);
OPKIT_EIGEN_OPERATOR(Pow, detail::EigenPowOp);
OPKIT_EIGEN_PACKETS(Sub, EigenBinary);

OPKIT_EIGEN_PACKETS(Max, EigenFold);
OPKIT_EIGEN_OPERATOR(Mean, detail::EigenFold<MeanOp, detail::AddPacket>);
OPKIT_EIGEN_PACKETS(Min, EigenFold);
OPKIT_EIGEN_OPERATOR(Sum, detail::EigenFold<SumOp, detail::AddPacket>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_ARITHMETIC_HPP_

// Builds kernels of ElementwiseOperator from packet functions, and operators with these kernels. If
// the first input is not float32, such an operator runs its reference kernel.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_KERNEL_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_KERNEL_HPP_

#include "opkit/backends/eigen/support/elementwise_math.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/support/elementwise.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operand of a run, read packet by packet. kRepeated: one element serves the whole run.
template <bool kRepeated>
class PacketOperand {
 public:
  explicit PacketOperand(const float* data) : data_(data) {
    if constexpr (kRepeated) value_ = Splat(*data);
  }
  Packet At(int64_t i) const {
    if constexpr (kRepeated)
      return value_;
    else
      return packet::ploadu<Packet>(data_ + i);
  }
  // Returns the first n < kPacket elements; the other elements of the packet are unspecified.
  Packet First(int64_t n) const {
    if constexpr (kRepeated) {
      return value_;
    } else {
      float padded[kPacket] = {};
      for (int64_t i = 0; i < n; ++i) padded[i] = data_[i];
      return packet::ploadu<Packet>(padded);
    }
  }

 private:
  const float* data_;
  Packet value_ = Splat(0);
};

// Computes out[i] = f(element i of each operand). The last packet overlaps the one before. It is
// computed before the first write, because the output may be an operand. So every element is
// computed in a packet, and its result does not depend on where a run begins.
template <class F, class... Operands>
void RunPackets(const F& f, float* out, int64_t n, const Operands&... operands) {
  if (n < kPacket) {
    float padded[kPacket];
    packet::pstoreu(padded, f(operands.First(n)...));
    for (int64_t i = 0; i < n; ++i) out[i] = padded[i];
    return;
  }
  const Packet rest = f(operands.At(n - kPacket)...);
  int64_t i = 0;
  for (; i + kPacket < n; i += kPacket) packet::pstoreu(out + i, f(operands.At(i)...));
  packet::pstoreu(out + n - kPacket, rest);
}

template <class F>
void RunUnaryPackets(const ElementRun& run) {
  RunPackets(F(run.attributes), static_cast<float*>(run.out), run.n,
             PacketOperand<false>(static_cast<const float*>(run.in[0])));
}
template <class F>
void RunBinaryPackets(const ElementRun& run) {
  const auto* a = static_cast<const float*>(run.in[0]);
  const auto* b = static_cast<const float*>(run.in[1]);
  auto* out = static_cast<float*>(run.out);
  if (run.step[0] != 0 && run.step[1] != 0)
    RunPackets(F(), out, run.n, PacketOperand<false>(a), PacketOperand<false>(b));
  else if (run.step[0] != 0)
    RunPackets(F(), out, run.n, PacketOperand<false>(a), PacketOperand<true>(b));
  else if (run.step[1] != 0)
    RunPackets(F(), out, run.n, PacketOperand<true>(a), PacketOperand<false>(b));
  else
    RunPackets(F(), out, run.n, PacketOperand<true>(a), PacketOperand<true>(b));
}

// Returns a configuration with all in-place pairs that the schema allows.
inline KernelConfig InplaceBySchema(const KernelQuery& query) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(query.def.type());
  KernelConfig config;
  for (int i = 0; i < static_cast<int>(query.inputs.size()); ++i)
    if (schema.CanInplace(i, 0)) config.inplace.emplace_back(i, 0);
  return config;
}
// Proposes a kernel for float32 inputs. Throws UnsupportedOperatorFeature for other types.
inline std::vector<KernelConfig> ProposeForFloat(const KernelQuery& query) {
  for (size_t i = 0; i < query.inputs.size(); ++i)
    if (!query.def.inputs()[i].empty()) RequireDTypes(query, i, {DType::kFloat32});
  return {InplaceBySchema(query)};
}

// The reference operator Op, with the kernel `kKernel` if its first input is float32.
template <class Op, ElementKernel kKernel, int64_t kGrainOf = BroadcastLoop::kGrain>
class EigenElementwise final : public Op {
 public:
  EigenElementwise(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Op(def, ws, config) {
    this->SetGrain(kGrainOf);
  }
  static constexpr auto& Propose = ProposeForFloat;

 protected:
  ElementKernel FindKernel() const override {
    return this->Input(0).dtype() == DType::kFloat32 ? kKernel : Op::FindKernel();
  }
};

// Elements for one thread. The speed of cheap functions is limited by memory.
inline constexpr int64_t kCheapGrain = 32768, kMathGrain = 8192;

template <class Op, class Packets>
using EigenUnary = EigenElementwise<Op, &RunUnaryPackets<Packets>, kCheapGrain>;
template <class Op, class Packets>
using EigenMath = EigenElementwise<Op, &RunUnaryPackets<Packets>, kMathGrain>;
template <class Op, class Packets>
using EigenBinary = EigenElementwise<Op, &RunBinaryPackets<Packets>, kCheapGrain>;

}}}  // namespace opkit::detail

// Registers the kernel of operator `name` built from detail::<name>Packet.
#define OPKIT_EIGEN_PACKETS(name, Kernel) \
  OPKIT_EIGEN_OPERATOR(name, detail::Kernel<name##Op, detail::name##Packet>)

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_KERNEL_HPP_

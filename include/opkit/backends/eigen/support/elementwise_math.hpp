// Functions of packets (as many floats as a register holds) in Eigen's packet arithmetic. A
// function is an object: a kernel constructs it once for a run of elements and calls it for every
// packet.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_MATH_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_MATH_HPP_

#include <cmath>
#include <limits>

#include "opkit/backends/eigen/support/eigen.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

namespace packet = Eigen::internal;
using Packet = packet::packet_traits<float>::type;
inline constexpr int64_t kPacket = packet::packet_traits<float>::size;

inline Packet Splat(float value) { return packet::pset1<Packet>(value); }
// Least and Most return the first operand if it is a NaN, like std::min and std::max.
inline Packet Least(Packet x, Packet limit) { return packet::pmin(x, limit); }
inline Packet Most(Packet x, Packet limit) { return packet::pmax(x, limit); }
inline Packet Clamp01(Packet x) { return Least(Most(x, Splat(0)), Splat(1)); }
inline Packet IfNegative(Packet x, Packet then, Packet otherwise) {
  return packet::pselect(packet::pcmp_lt(x, Splat(0)), then, otherwise);
}
// Computes e^x for x up to 88. Sets the result to 0 below -104, where Eigen's pexp stays a little
// above 0 without AVX-512.
inline Packet Exp(Packet x) {
  return packet::pandnot(packet::pexp(x), packet::pcmp_lt(x, Splat(-104)));
}
// Computes e^x for any x. Eigen's pexp is infinite from 88.377 on, although a float can hold e^x up
// to 88.723.
inline Packet ExpOfAny(Packet x) {
  const Packet large = packet::pcmp_lt(Splat(88), x);
  const Packet less = Exp(packet::psub(x, packet::pand(large, Splat(0.5f))));
  return packet::pselect(large, packet::pmul(less, Splat(1.648721271f)), less);
}
// The logarithm of 1 + x, for finite x above -1. Eigen has none for packets of ARM64. A quotient
// corrects the rounding error of 1 + x (Kahan).
inline Packet Log1p(Packet x) {
  const Packet sum = packet::padd(Splat(1), x);
  const Packet added = packet::psub(sum, Splat(1));
  const Packet log = packet::pmul(x, packet::pdiv(packet::plog(sum), added));
  return packet::pselect(packet::pcmp_eq(added, Splat(0)), x, log);
}
// Returns 1 with the sign of x.
inline Packet SignedOne(Packet x) { return packet::por(Splat(1), packet::pand(x, Splat(-0.f))); }
inline Packet Polynomial(Packet, float last) { return Splat(last); }
// Computes lowest + x * (next + x * (…)).
template <class... Floats>
Packet Polynomial(Packet x, float lowest, Floats... higher) {
  return packet::pmadd(Polynomial(x, higher...), x, Splat(lowest));
}

// --- Functions of one operand

#define OPKIT_PACKET_FUNCTION(name, ...)                      \
  struct name {                                               \
    explicit name(const float*) {}                            \
    Packet operator()(Packet x) const { return __VA_ARGS__; } \
  }
OPKIT_PACKET_FUNCTION(AbsPacket, packet::pabs(x));
OPKIT_PACKET_FUNCTION(CeilPacket, packet::pceil(x));
OPKIT_PACKET_FUNCTION(CosPacket, packet::pcos(x));
OPKIT_PACKET_FUNCTION(FloorPacket, packet::pfloor(x));
OPKIT_PACKET_FUNCTION(NegPacket, packet::pxor(x, Splat(-0.f)));  // pnegate takes 0 to 0, not -0
OPKIT_PACKET_FUNCTION(ReciprocalPacket, packet::pdiv(Splat(1), x));
OPKIT_PACKET_FUNCTION(ReluPacket, Most(x, Splat(0)));
OPKIT_PACKET_FUNCTION(RoundPacket, packet::print(x));  // p + rint
OPKIT_PACKET_FUNCTION(SinPacket, packet::psin(x));
OPKIT_PACKET_FUNCTION(SigmoidPacket,
                      packet::pdiv(Splat(1),
                                   packet::padd(Splat(1), packet::pexp(packet::pnegate(x)))));
OPKIT_PACKET_FUNCTION(SignPacket,
                      IfNegative(x, Splat(-1),
                                 IfNegative(packet::pnegate(x), Splat(1),
                                            packet::padd(x, Splat(0)))));  // -0 becomes 0
OPKIT_PACKET_FUNCTION(ExpPacket, ExpOfAny(x));
OPKIT_PACKET_FUNCTION(HardSwishPacket,
                      packet::pmul(x, Clamp01(packet::pmadd(x, Splat(1.f / 6), Splat(0.5f)))));
OPKIT_PACKET_FUNCTION(SoftplusPacket, packet::padd(Most(x, Splat(0)),
                                                   Log1p(Exp(packet::pnegate(packet::pabs(x))))));
#undef OPKIT_PACKET_FUNCTION

// Returns exactly 1 or -1 if |x| is at least 9.02, because tanh rounds to 1 in float from 13 ln 2
// (about 9.01) on. There Eigen's ptanh returns 1 on x86-64, but 0.9999998 on ARM64, so other
// processors than x86-64 select the result. The selection would make x86-64 slower by a quarter.
struct TanhPacket {
  explicit TanhPacket(const float*) {}
  Packet operator()(Packet x) const {
#ifdef __x86_64__
    return packet::ptanh(x);
#else
    const Packet is_one = packet::pcmp_le(Splat(9.02f), packet::pabs(x));
    return packet::pselect(is_one, SignedOne(x), packet::ptanh(x));
#endif
  }
};
// True for subnormal, negative and zero elements. Eigen's logarithm and square root treat subnormal
// numbers as the smallest normal number or as 0. LogPacket and SqrtPacket scale them up by a power
// of two and correct the result.
inline Packet IsBelowNormal(Packet x) {
  return packet::pcmp_lt(x, Splat((std::numeric_limits<float>::min)()));
}
struct LogPacket {
  explicit LogPacket(const float*) {}
  Packet operator()(Packet x) const {
    const Packet tiny = IsBelowNormal(x);
    const Packet scaled = packet::pselect(tiny, packet::pmul(x, Splat(0x1p24f)), x);
    return packet::psub(packet::plog(scaled), packet::pand(tiny, Splat(16.63553233f)));
  }
};
// Returns infinity for infinity, where Eigen's square root is a NaN, and -0 for -0, where it is 0.
struct SqrtPacket {
  explicit SqrtPacket(const float*) {}
  Packet operator()(Packet x) const {
    const Packet tiny = IsBelowNormal(x);
    const Packet root = packet::psqrt(packet::pselect(tiny, packet::pmul(x, Splat(0x1p24f)), x));
    const Packet finite = packet::pselect(tiny, packet::pmul(root, Splat(0x1p-12f)), root);
    const Packet signed_root = packet::por(finite, packet::pand(x, Splat(-0.f)));
    return packet::pselect(packet::pcmp_eq(x, Splat(INFINITY)), x, signed_root);
  }
};
// erf(x) as x * P(x^2) / Q(x^2), fitted to erf(x) / x on [0, 3.92]. Beyond 3.92 erf is 1 in float;
// the result is exactly 1, so that 1 + erf(-x) is 0. The largest relative error is 2e-8, and 4e-7
// with float's rounding.
struct ErfPacket {
  explicit ErfPacket(const float*) {}
  Packet operator()(Packet x) const {
    const Packet limit = Splat(3.92f);
    const Packet inside = Most(Least(x, limit), packet::pnegate(limit));
    const Packet square = packet::pmul(inside, inside);
    const Packet above = Polynomial(square, 1.128379146e+00f, 1.903938320e-01f, 5.274685749e-02f,
                                    3.765026823e-03f, 2.848615899e-04f, 2.050078948e-06f);
    const Packet below = Polynomial(square, 1.f, 5.020648843e-01f, 1.141037149e-01f,
                                    1.496803404e-02f, 1.162378125e-03f, 3.809052816e-05f);
    const Packet erf = packet::pdiv(packet::pmul(inside, above), below);
    return packet::pselect(packet::pcmp_le(limit, packet::pabs(x)), SignedOne(x),
                           Most(Least(erf, Splat(1)), Splat(-1)));
  }
};
struct EluPacket {
  explicit EluPacket(const float* attributes) : alpha(Splat(attributes[0])) {}
  Packet operator()(Packet x) const {
    // exp(x) - 1 loses precision near 0: use the series there.
    const Packet series = packet::pmul(
        x, Polynomial(x, 1.f, 1.f / 2, 1.f / 6, 1.f / 24, 1.f / 120, 1.f / 720, 1.f / 5040));
    const Packet power = packet::psub(packet::pexp(x), Splat(1));
    const Packet less_one = packet::pselect(packet::pcmp_lt(x, Splat(-0.35f)), power, series);
    return IfNegative(x, packet::pmul(alpha, less_one), x);
  }
  Packet alpha;
};
struct HardSigmoidPacket {
  explicit HardSigmoidPacket(const float* attributes)
      : alpha(Splat(attributes[0])), beta(Splat(attributes[1])) {}
  Packet operator()(Packet x) const { return Clamp01(packet::pmadd(alpha, x, beta)); }
  Packet alpha, beta;
};
struct LeakyReluPacket {
  explicit LeakyReluPacket(const float* attributes) : alpha(Splat(attributes[0])) {}
  Packet operator()(Packet x) const { return IfNegative(x, packet::pmul(alpha, x), x); }
  Packet alpha;
};
// Divides by the number of inputs, attributes[0].
struct DivideByCountPacket {
  explicit DivideByCountPacket(const float* attributes) : count(Splat(attributes[0])) {}
  Packet operator()(Packet x) const { return packet::pdiv(x, count); }
  Packet count;
};

// --- Functions of two operands

#define OPKIT_PACKET_FUNCTION(name, ...)                                \
  struct name {                                                         \
    Packet operator()(Packet a, Packet b) const { return __VA_ARGS__; } \
  }
OPKIT_PACKET_FUNCTION(AddPacket, packet::padd(a, b));
OPKIT_PACKET_FUNCTION(SubPacket, packet::psub(a, b));
OPKIT_PACKET_FUNCTION(MulPacket, packet::pmul(a, b));
OPKIT_PACKET_FUNCTION(DivPacket, packet::pdiv(a, b));
OPKIT_PACKET_FUNCTION(MaxPacket, packet::pmax<Eigen::PropagateNaN>(a, b));
OPKIT_PACKET_FUNCTION(MinPacket, packet::pmin<Eigen::PropagateNaN>(a, b));
OPKIT_PACKET_FUNCTION(PReluPacket, IfNegative(a, packet::pmul(a, b), a));
#undef OPKIT_PACKET_FUNCTION

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_ELEMENTWISE_MATH_HPP_

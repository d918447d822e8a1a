// The functions of one element, or of two, that elementwise operators compute, without the
// operators. The kernels of the CPU and of CUDA compute the same functions.
#ifndef OPKIT_OPS_MATH_ELEMENT_FUNCTIONS_HPP_
#define OPKIT_OPS_MATH_ELEMENT_FUNCTIONS_HPP_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "opkit/ops/support/extremes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Defines a function by an expression of one element x of type C. The expression may read the
// numbers `attributes`, which are the operator's attributes in the order of its schema.
#define OPKIT_UNARY_FUNCTION(name, ...)                                           \
  struct name {                                                                   \
    template <class C, class A>                                                   \
    OPKIT_HOST_DEVICE static C Apply(C x, [[maybe_unused]] const A* attributes) { \
      return __VA_ARGS__;                                                         \
    }                                                                             \
  }
// Defines a function of two elements a and b by an expression.
#define OPKIT_BINARY_FUNCTION(name, ...)         \
  struct name {                                  \
    template <class C>                           \
    OPKIT_HOST_DEVICE static C Apply(C a, C b) { \
      return __VA_ARGS__;                        \
    }                                            \
  }
// Defines a function of two elements by an operator of C++. Integers are computed as uint64,
// because its overflow is defined, and then truncated.
#define OPKIT_WRAPPING_FUNCTION(name, op)                                            \
  struct name {                                                                      \
    template <class C>                                                               \
    OPKIT_HOST_DEVICE static C Apply(C a, C b) {                                     \
      if constexpr (std::is_integral_v<C>)                                           \
        return static_cast<C>(static_cast<uint64_t>(a) op static_cast<uint64_t>(b)); \
      else                                                                           \
        return a op b;                                                               \
    }                                                                                \
  }
// Defines a comparison of two elements by an operator of C++.
#define OPKIT_PREDICATE_FUNCTION(name, op)          \
  struct name {                                     \
    template <class C>                              \
    OPKIT_HOST_DEVICE static bool Apply(C a, C b) { \
      return a op b;                                \
    }                                               \
  }

// Negates. Integers are negated as unsigned numbers. So the smallest integer gives itself.
struct NegFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C x, const float*) {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(-static_cast<uint64_t>(x));
    else
      return -x;
  }
};
struct AbsFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C x, const float* none) {
    if constexpr (std::is_floating_point_v<C>)
      return std::fabs(x);
    else
      return x < 0 ? NegFunction::Apply(x, none) : x;
  }
};
struct SignFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C x, const float*) {
    if constexpr (std::is_floating_point_v<C>)
      if (std::isnan(x)) return x;
    return static_cast<C>((C{0} < x) - (x < C{0}));
  }
};
struct NotFunction {
  OPKIT_HOST_DEVICE static bool Apply(bool x, const float*) { return !x; }
};
OPKIT_UNARY_FUNCTION(ReciprocalFunction, C{1} / x);
// In the default rounding mode nearbyint rounds halves to the even neighbour.
OPKIT_UNARY_FUNCTION(RoundFunction, std::nearbyint(x));
OPKIT_UNARY_FUNCTION(CeilFunction, std::ceil(x));
OPKIT_UNARY_FUNCTION(CosFunction, std::cos(x));
OPKIT_UNARY_FUNCTION(ErfFunction, std::erf(x));
OPKIT_UNARY_FUNCTION(ExpFunction, std::exp(x));
OPKIT_UNARY_FUNCTION(FloorFunction, std::floor(x));
OPKIT_UNARY_FUNCTION(LogFunction, std::log(x));
OPKIT_UNARY_FUNCTION(SinFunction, std::sin(x));
OPKIT_UNARY_FUNCTION(SqrtFunction, std::sqrt(x));

// Tests of a floating-point number. The attributes of IsInf are detect_negative and
// detect_positive.
struct IsNaNFunction {
  template <class C>
  OPKIT_HOST_DEVICE static bool Apply(C x, const float*) {
    return std::isnan(x);
  }
};
struct IsInfFunction {
  template <class C>
  OPKIT_HOST_DEVICE static bool Apply(C x, const float* detect) {
    return std::isinf(x) && detect[x > 0] != 0;
  }
};

// Returns min(max(x, low), high), hence `high` if `low` is above `high`.
template <class C>
OPKIT_HOST_DEVICE C Clamp(C x, C low, C high) {
  const C above = x < low ? low : x;
  return above > high ? high : above;
}

// Activations. A NaN stays a NaN, except in Shrink and ThresholdedRelu.
OPKIT_UNARY_FUNCTION(EluFunction, x < 0 ? C(attributes[0]) * std::expm1(x) : x);
OPKIT_UNARY_FUNCTION(HardSigmoidFunction, Clamp<C>(C(attributes[0]) * x + C(attributes[1]), 0, 1));
OPKIT_UNARY_FUNCTION(HardSwishFunction, Clamp<C>(x / 6 + C(0.5), 0, 1) * x);
OPKIT_UNARY_FUNCTION(LeakyReluFunction, x < 0 ? C(attributes[0]) * x : x);
// Computes PRelu of one element with its slope. Integers wrap around.
struct PReluFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C x, C slope) {
    if constexpr (std::is_integral_v<C>)
      return x < 0 ? static_cast<C>(static_cast<uint64_t>(x) * static_cast<uint64_t>(slope)) : x;
    else
      return x < 0 ? slope * x : x;
  }
};
OPKIT_UNARY_FUNCTION(ReluFunction, x < 0 ? C{0} : x);
OPKIT_UNARY_FUNCTION(SigmoidFunction, 1 / (1 + std::exp(-x)));
// Computes log(1 + e^x) without overflow for large x.
OPKIT_UNARY_FUNCTION(SoftplusFunction, (x < 0 ? C{0} : x) + std::log1p(std::exp(-std::fabs(x))));
OPKIT_UNARY_FUNCTION(TanhFunction, std::tanh(x));
OPKIT_UNARY_FUNCTION(SwishFunction, x / (1 + std::exp(-C(attributes[0]) * x)));
OPKIT_UNARY_FUNCTION(SoftsignFunction, x / (1 + std::fabs(x)));
OPKIT_UNARY_FUNCTION(CeluFunction, x < 0 ? C(attributes[0]) * std::expm1(x / C(attributes[0])) : x);
OPKIT_UNARY_FUNCTION(SeluFunction,
                     C(attributes[1]) * (x > 0 ? x : C(attributes[0]) * std::expm1(x)));
// The attributes are bias and lambd. The result for a NaN is 0: no comparison is true.
OPKIT_UNARY_FUNCTION(ShrinkFunction,
                     x<-C(attributes[1]) ? x + C(attributes[0]) : x> C(attributes[1])
                         ? x - C(attributes[0])
                         : 0);
OPKIT_UNARY_FUNCTION(ThresholdedReluFunction, x > C(attributes[0]) ? x : 0);
OPKIT_UNARY_FUNCTION(MishFunction, x* std::tanh(SoftplusFunction::Apply(x, attributes)));

template <class C>
inline constexpr C kRootOfHalf = C(0.70710678118654752440);
template <class C>
inline constexpr C kRootOf2ByPi = C(0.79788456080286535588);
// The argument of the hyperbolic tangent that approximates Gelu.
OPKIT_UNARY_FUNCTION(GeluTanhArgument, kRootOf2ByPi<C>*(x + C(0.044715) * x * x * x));
OPKIT_UNARY_FUNCTION(GeluFunction, x / 2 * std::erfc(-x * kRootOfHalf<C>));
OPKIT_UNARY_FUNCTION(GeluByTanhFunction,
                     x / 2 * (1 + std::tanh(GeluTanhArgument::Apply(x, attributes))));

// Trigonometric and hyperbolic functions.
OPKIT_UNARY_FUNCTION(AcosFunction, std::acos(x));
OPKIT_UNARY_FUNCTION(AcoshFunction, std::acosh(x));
OPKIT_UNARY_FUNCTION(AsinFunction, std::asin(x));
OPKIT_UNARY_FUNCTION(AsinhFunction, std::asinh(x));
OPKIT_UNARY_FUNCTION(AtanFunction, std::atan(x));
OPKIT_UNARY_FUNCTION(AtanhFunction, std::atanh(x));
OPKIT_UNARY_FUNCTION(CoshFunction, std::cosh(x));
OPKIT_UNARY_FUNCTION(SinhFunction, std::sinh(x));
OPKIT_UNARY_FUNCTION(TanFunction, std::tan(x));

// Derivatives of the functions above, with the same attributes.
OPKIT_UNARY_FUNCTION(CeluDerivative, x < 0 ? std::exp(x / C(attributes[0])) : 1);
OPKIT_UNARY_FUNCTION(EluDerivative, x < 0 ? C(attributes[0]) * std::exp(x) : 1);
OPKIT_UNARY_FUNCTION(ErfDerivative, 2 * kRootOfHalf<C> * kRootOf2ByPi<C> * std::exp(-x * x));
OPKIT_UNARY_FUNCTION(GeluDerivative, std::erfc(-x* kRootOfHalf<C>) / 2 +
                                         x * kRootOf2ByPi<C> / 2 * std::exp(-x * x / 2));
OPKIT_UNARY_FUNCTION(HardSwishDerivative, x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + C(0.5));
OPKIT_UNARY_FUNCTION(LeakyReluDerivative, x < 0 ? C(attributes[0]) : 1);
OPKIT_UNARY_FUNCTION(SeluDerivative,
                     C(attributes[1]) * (x > 0 ? 1 : C(attributes[0]) * std::exp(x)));
OPKIT_UNARY_FUNCTION(ShrinkDerivative, x<-C(attributes[1]) || x> C(attributes[1]) ? C{1} : C{0});
OPKIT_UNARY_FUNCTION(ThresholdedReluDerivative, x > C(attributes[0]) ? C{1} : C{0});
struct GeluByTanhDerivative {
  template <class C, class A>
  OPKIT_HOST_DEVICE static C Apply(C x, const A* attributes) {
    const C tanh = std::tanh(GeluTanhArgument::Apply(x, attributes));
    const C slope = 1 - tanh * tanh;
    if (slope == 0) return (1 + tanh) / 2;
    return (1 + tanh) / 2 + x / 2 * slope * kRootOf2ByPi<C> * (1 + 3 * C(0.044715) * x * x);
  }
};
struct HardSigmoidDerivative {
  template <class C, class A>
  OPKIT_HOST_DEVICE static C Apply(C x, const A* attributes) {
    const C y = C(attributes[0]) * x + C(attributes[1]);
    return y > 0 && y < 1 ? C(attributes[0]) : 0;
  }
};
struct MishDerivative {
  template <class C, class A>
  OPKIT_HOST_DEVICE static C Apply(C x, const A* attributes) {
    const C tanh = std::tanh(SoftplusFunction::Apply(x, attributes)), slope = 1 - tanh * tanh;
    return slope == 0 ? tanh : tanh + x * slope / (1 + std::exp(-x));
  }
};
struct SwishDerivative {
  template <class C, class A>
  OPKIT_HOST_DEVICE static C Apply(C x, const A* attributes) {
    const C alpha = C(attributes[0]), sigmoid = 1 / (1 + std::exp(-alpha * x));
    return sigmoid * (1 + alpha * x * (1 - sigmoid));
  }
};

// Arithmetic.
OPKIT_WRAPPING_FUNCTION(AddFunction, +);
OPKIT_WRAPPING_FUNCTION(SubFunction, -);
OPKIT_WRAPPING_FUNCTION(MulFunction, *);
// Divides. For integers b must not be 0. The smallest integer divided by -1 gives itself.
struct DivFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C a, C b) {
    if constexpr (std::is_integral_v<C> && std::is_signed_v<C>)
      if (b == -1) return static_cast<C>(-static_cast<uint64_t>(a));
    return static_cast<C>(a / b);
  }
};
// Returns a remainder with the sign of a, as in C. For integers b must not be 0.
struct FmodFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C a, C b) {
    if constexpr (std::is_integral_v<C>) {
      if constexpr (std::is_signed_v<C>)
        if (b == -1) return 0;
      return static_cast<C>(a % b);
    } else {
      return std::fmod(a, b);
    }
  }
};
// Returns a remainder with the sign of b, as in Python, also for a remainder of 0. For integers b
// must not be 0.
struct ModFunction {
  template <class C>
  OPKIT_HOST_DEVICE static C Apply(C a, C b) {
    const C remainder = FmodFunction::Apply(a, b);
    if constexpr (std::is_floating_point_v<C>)
      if (remainder == 0) return std::copysign(remainder, b);
    if constexpr (std::is_signed_v<C>)
      if (remainder != 0 && (remainder < 0) != (b < 0)) return static_cast<C>(remainder + b);
    return remainder;
  }
};
// Computes a power modulo 2^64 by squaring. A result with a magnitude between 0 and 1 becomes 0; 0
// to a negative power is 0, too.
OPKIT_HOST_DEVICE inline uint64_t IntegerPower(uint64_t base, uint64_t exponent,
                                               bool negative_exponent) {
  if (negative_exponent)
    return base == 1 ? 1 : base == ~uint64_t{0} ? (exponent & 1 ? base : 1) : 0;
  uint64_t power = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) power *= base;
  return power;
}

// The functions of operators on any number of tensors, which fold with them.
OPKIT_BINARY_FUNCTION(SumFunction, a + b);
OPKIT_BINARY_FUNCTION(MaxFunction, LargerOf(a, b));
OPKIT_BINARY_FUNCTION(MinFunction, SmallerOf(a, b));
// Divides by the number of inputs, attributes[0].
OPKIT_UNARY_FUNCTION(DivideByCountFunction, x / C(attributes[0]));

// Comparisons and logic.
OPKIT_PREDICATE_FUNCTION(AndFunction, &&);
OPKIT_PREDICATE_FUNCTION(EqualFunction, ==);
OPKIT_PREDICATE_FUNCTION(GreaterFunction, >);
OPKIT_PREDICATE_FUNCTION(GreaterOrEqualFunction, >=);
OPKIT_PREDICATE_FUNCTION(LessFunction, <);
OPKIT_PREDICATE_FUNCTION(LessOrEqualFunction, <=);
OPKIT_PREDICATE_FUNCTION(OrFunction, ||);
OPKIT_PREDICATE_FUNCTION(XorFunction, !=);

// Bits.
OPKIT_BINARY_FUNCTION(BitwiseAndFunction, static_cast<C>((a) & (b)));
OPKIT_BINARY_FUNCTION(BitwiseOrFunction, static_cast<C>(a | b));
OPKIT_BINARY_FUNCTION(BitwiseXorFunction, static_cast<C>(a ^ b));
OPKIT_UNARY_FUNCTION(BitwiseNotFunction, static_cast<C>(~x));
// C++ does not define shifts by a negative number, or by the width or more; here they leave no bit
// but the sign of a number that is shifted to the right.
template <class C>
OPKIT_HOST_DEVICE bool IsShift(C places) {
  return static_cast<std::make_unsigned_t<C>>(places) < sizeof(C) * 8;
}
OPKIT_BINARY_FUNCTION(ShiftLeftFunction,
                      IsShift(b) ? static_cast<C>(static_cast<uint64_t>(a) << b) : C{0});
OPKIT_BINARY_FUNCTION(ShiftRightFunction, static_cast<C>(IsShift(b) ? a >> b : a < 0 ? -1 : 0));

#undef OPKIT_UNARY_FUNCTION
#undef OPKIT_BINARY_FUNCTION
#undef OPKIT_WRAPPING_FUNCTION
#undef OPKIT_PREDICATE_FUNCTION

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_MATH_ELEMENT_FUNCTIONS_HPP_

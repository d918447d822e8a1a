// ConvertElement: converts a number to another element type, without undefined behaviour for any
// value. Cast applies it to each element and gets the target type from OnnxDType.
#ifndef OPKIT_OPS_SUPPORT_CONVERT_HPP_
#define OPKIT_OPS_SUPPORT_CONVERT_HPP_

#include <limits>

#include "opkit/core/dtype.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the DType for a number of ONNX's enumeration TensorProto.DataType, or kUndefined for
// types without a DType.
inline DType OnnxDType(int64_t type) {
  constexpr DType kTypes[] = {DType::kUndefined,      DType::kFloat32,    DType::kUInt8,
                              DType::kInt8,           DType::kUInt16,     DType::kInt16,
                              DType::kInt32,          DType::kInt64,      DType::kString,
                              DType::kBool,           DType::kFloat16,    DType::kFloat64,
                              DType::kUInt32,         DType::kUInt64,     DType::kComplex64,
                              DType::kComplex128,     DType::kBFloat16,   DType::kFloat8E4M3FN,
                              DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ,
                              DType::kUInt4,          DType::kInt4,       DType::kFloat4E2M1,
                              DType::kFloat8E8M0,     DType::kUInt2,      DType::kInt2};
  return type >= 0 && type < static_cast<int64_t>(std::size(kTypes)) ? kTypes[type]
                                                                     : DType::kUndefined;
}
// Returns the number of a DType in TensorProto.DataType; 0 for kUndefined.
inline int64_t OnnxNumberOf(DType dtype) {
  constexpr int64_t kLast = 26;
  for (int64_t number = 1; dtype != DType::kUndefined && number <= kLast; ++number)
    if (OnnxDType(number) == dtype) return number;
  return 0;
}

namespace detail {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

// Returns x if a float can represent it; else, of the two neighbouring floats, the one whose last
// bit is 1. Rounding this float to a shorter type gives the same as rounding x directly (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
// odd", 2008).
OPKIT_HOST_DEVICE inline float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  const bool away_from_zero = x < 0 ? back < x : back > x;
  if (away_from_zero) --bits;
  return std::bit_cast<float>(bits | 1);
}
OPKIT_HOST_DEVICE inline float RoundToOdd(uint64_t x) {
  if (x >> 53 == 0) return RoundToOdd(static_cast<double>(x));
  const uint64_t odd =
      (x & 0x7ff) != 0 ? 0x800 : 0;  // a sticky bit for the low bits, which a double cannot hold
  return RoundToOdd(static_cast<double>((x & ~uint64_t{0x7ff}) | odd));
}
OPKIT_HOST_DEVICE inline float RoundToOdd(int64_t x) {
  return x < 0 ? -RoundToOdd(-static_cast<uint64_t>(x)) : RoundToOdd(static_cast<uint64_t>(x));
}

}  // namespace detail

// Converts x to type To. To bool: x != 0. From an integer to an integer: the low bits. From a
// floating-point number to an integer: rounds towards zero, clamps to the range of To; a NaN
// becomes 0. To a floating-point type: the nearest number, ties to even, infinity beyond the
// largest.
template <class To, class From>
OPKIT_HOST_DEVICE To ConvertElement(From x) {
  if constexpr (detail::kIsHalf<From>) {
    if constexpr (std::is_same_v<To, From>)
      return x;
    else
      return ConvertElement<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (detail::kIsHalf<To>) {
    if constexpr (std::is_same_v<From, float> || sizeof(From) < 4) {
      return To(static_cast<float>(x));
    } else if constexpr (std::is_integral_v<From>) {
      using Wide = std::conditional_t<std::is_signed_v<From>, int64_t, uint64_t>;
      return To(detail::RoundToOdd(static_cast<Wide>(x)));
    } else {
      return To(detail::RoundToOdd(x));
    }
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (x != x) return 0;
    if (x <= static_cast<From>(Limits::lowest())) return Limits::lowest();
    if (x >= static_cast<From>((Limits::max)())) return (Limits::max)();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_CONVERT_HPP_

// The floating-point types of eight bits: float8_e4m3fn, float8_e4m3fnuz, float8_e5m2,
// float8_e5m2fnuz and float8_e8m0fnu, with their conversions; and those of float4_e2m1fn, of which
// a byte holds two. The name says the bits of exponent and mantissa; fn: no infinity, uz: no
// negative zero. Sources: https://onnx.ai/onnx/technical/float8.html and float4.html, the table of
// https://onnx.ai/onnx/operators/onnx__Cast.html, and the OCP Microscaling Formats (MX)
// Specification 1.0.
#ifndef OPKIT_CORE_FLOAT8_HPP_
#define OPKIT_CORE_FLOAT8_HPP_

#include "opkit/core/dtype.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Says what becomes of a number beyond the largest one of its new type: the largest one, or
// infinity, or NaN in a type without infinity. An infinity is beyond.
enum class Overflow : uint8_t { kSaturates, kIsInfinite };

namespace detail {

// A floating-point type of at most eight bits. `kNaN` is the code of NaN without the sign; a type
// without NaN and infinity has kNaN 0 and saturates always. The sign is the bit above the exponent.
template <int kExponentBits, int kMantissaBits, int kBias, int kLargest, int kNaN,
          bool kHasInfinity, bool kHasNegativeZero>
struct SmallFloatFormat {
  static constexpr int kSignBit = kExponentBits + kMantissaBits;
  static constexpr uint32_t kSign = 1u << kSignBit;

  // Rounds to nearest, ties to even.
  static constexpr uint8_t Encode(float value, Overflow overflow) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 31 << kSignBit;
    const uint32_t magnitude = bits & 0x7fffffff;
    constexpr int kShift = 23 - kMantissaBits;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
    uint32_t code = 0;
    if (magnitude > 0x7f800000) {
      if constexpr (kNaN == 0) return 0;  // the type has no NaN
      return static_cast<uint8_t>(kHasNegativeZero ? sign | kNaN : kNaN);
    }
    if (magnitude == 0x7f800000) {
      code = kLargest + 1;
    } else if (magnitude < kSmallestNormal) {
      // The sum's last bit counts multiples of the smallest number, so the addition rounds.
      constexpr uint32_t kAligner = static_cast<uint32_t>(128 - kBias + kShift) << 23;
      const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner);
      code = std::bit_cast<uint32_t>(aligned) - kAligner;
    } else {
      const uint32_t odd = (magnitude >> kShift) & 1;
      code = ((magnitude + (1u << (kShift - 1)) - 1 + odd) >> kShift) -
             (static_cast<uint32_t>(127 - kBias) << kMantissaBits);
    }
    if (code > kLargest) {
      if (overflow == Overflow::kSaturates || kNaN == 0)
        code = kLargest;
      else if (!kHasNegativeZero)
        return static_cast<uint8_t>(kNaN);
      else
        code = kHasInfinity ? kLargest + 1 : kNaN;
    }
    if (code == 0 && !kHasNegativeZero) return 0;
    return static_cast<uint8_t>(sign | code);
  }
  static constexpr float Decode(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>((code & kSign) != 0) << 31;
    const uint32_t magnitude = code & (kSign - 1);
    if constexpr (kNaN != 0) {
      const bool is_nan = kHasNegativeZero ? magnitude > kLargest + (kHasInfinity ? 1 : 0)
                                           : code == static_cast<uint8_t>(kNaN);
      if (is_nan) return std::bit_cast<float>(sign | 0x7fc00000);
      if (kHasInfinity && magnitude == kLargest + 1) return std::bit_cast<float>(sign | 0x7f800000);
    }
    const uint32_t exponent = magnitude >> kMantissaBits;
    if (exponent == 0) {
      constexpr uint32_t kSmallest = static_cast<uint32_t>(128 - kBias - kMantissaBits) << 23;
      const float value = static_cast<float>(magnitude) * std::bit_cast<float>(kSmallest);
      return sign ? -value : value;
    }
    return std::bit_cast<float>(
        sign | ((magnitude << (23 - kMantissaBits)) + (static_cast<uint32_t>(127 - kBias) << 23)));
  }
};

// The members of a type of one byte. A conversion from float rounds to nearest, ties to even;
// Encode also takes what becomes of a number that is too large, which by default is the largest
// one.
template <DType kDType, class Format>
struct Float8 {
  static constexpr DType kElementDType = kDType;
  uint8_t bits = 0;

  Float8() = default;
  constexpr Float8(float value) : bits(Format::Encode(value, Overflow::kSaturates)) {}
  constexpr operator float() const { return Format::Decode(bits); }
  static constexpr uint8_t Encode(float value, Overflow overflow = Overflow::kSaturates) {
    return Format::Encode(value, overflow);
  }
};

// The bits of float4_e2m1fn: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. It has neither
// infinity nor NaN: NaN becomes 0.
using Float4E2M1Format = SmallFloatFormat<2, 1, 1, 0x7, 0, false, true>;

}  // namespace detail

// Largest 448; NaN is 0x7f and 0xff.
using float8_e4m3fn = detail::Float8<DType::kFloat8E4M3FN,
                                     detail::SmallFloatFormat<4, 3, 7, 0x7e, 0x7f, false, true>>;
// Largest 240; NaN is 0x80.
using float8_e4m3fnuz = detail::Float8<DType::kFloat8E4M3FNUZ,
                                       detail::SmallFloatFormat<4, 3, 8, 0x7f, 0x80, false, false>>;
// Largest 57344; the only one with infinities, 0x7c and 0xfc. A NaN is written as 0x7e or 0xfe.
using float8_e5m2 =
    detail::Float8<DType::kFloat8E5M2, detail::SmallFloatFormat<5, 2, 15, 0x7b, 0x7e, true, true>>;
// Largest 57344; NaN is 0x80.
using float8_e5m2fnuz =
    detail::Float8<DType::kFloat8E5M2FNUZ,
                   detail::SmallFloatFormat<5, 2, 16, 0x7f, 0x80, false, false>>;

// How a number between two powers of two becomes a float8_e8m0fnu. kNearest: a tie goes up.
enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

// A power of two from 2^-127 to 2^127, or NaN (0xff): the type of the scales of blocks. It has no
// zero and no sign. A conversion from float rounds up and saturates: 0 becomes 2^-127. A negative
// number becomes NaN.
struct float8_e8m0fnu {
  static constexpr DType kElementDType = DType::kFloat8E8M0;
  uint8_t bits = 127;

  float8_e8m0fnu() = default;
  constexpr float8_e8m0fnu(float value) : bits(Encode(value)) {}
  constexpr operator float() const { return Decode(bits); }

  static constexpr uint8_t Encode(float value, Overflow overflow = Overflow::kSaturates,
                                  PowerRounding rounding = PowerRounding::kUp) {
    constexpr uint8_t kNaN = 0xff, kLargest = 0xfe;
    const bool saturates = overflow == Overflow::kSaturates;
    if (value != value || value < 0) return kNaN;
    // A double holds the smallest floats as normal numbers.
    const auto bits = std::bit_cast<uint64_t>(static_cast<double>(value));
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023 + 127;
    if (exponent < 0) return saturates ? uint8_t{0} : kNaN;
    if (exponent > kLargest) return saturates ? kLargest : kNaN;  // infinity
    constexpr uint64_t kHalf = uint64_t{1} << 51;
    const uint64_t rest = bits & ((kHalf << 1) - 1);
    const bool up = rounding == PowerRounding::kUp        ? rest > 0
                    : rounding == PowerRounding::kNearest ? rest >= kHalf
                                                          : false;
    if (up && exponent == kLargest) return saturates ? kLargest : kNaN;
    return static_cast<uint8_t>(exponent + (up ? 1 : 0));
  }
  static constexpr float Decode(uint8_t code) {
    if (code == 0xff) return std::bit_cast<float>(0x7fc00000u);
    // 2^-127 is not a normal float.
    return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
  }
};

}}  // namespace opkit

#endif  // OPKIT_CORE_FLOAT8_HPP_

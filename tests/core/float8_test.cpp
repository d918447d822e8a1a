#include "opkit/core/float8.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace {

using namespace opkit;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A format as the specification of ONNX describes it.
struct Format {
  const char* name;
  int mantissa_bits, bias, sign_bit;
  double largest;
  bool has_infinity, has_negative_zero, has_nan;
  uint8_t (*encode)(float, Overflow);
  float (*decode)(uint8_t);

  // The value of a code by the formula of the specification; NaN for a code without one.
  double Value(int code) const {
    const int magnitude = code & ((1 << sign_bit) - 1), sign = code >> sign_bit;
    const int exponent = magnitude >> mantissa_bits, mantissa = magnitude % (1 << mantissa_bits);
    if (!has_negative_zero && magnitude == 0 && sign) return kNaN;
    double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : std::ldexp((1 << mantissa_bits) + mantissa,
                                              exponent - bias - mantissa_bits);
    if (value > largest) {
      const bool is_first = std::ldexp(1, exponent - bias) > largest && mantissa == 0;
      value = has_infinity && is_first ? kInfinity : kNaN;
    }
    return sign ? -value : value;
  }
  // The result for a number beyond the largest if it does not saturate.
  double Beyond() const { return has_infinity ? kInfinity : has_nan ? kNaN : largest; }
};
template <class T>
float Decode(uint8_t code) {
  return std::bit_cast<T>(code);
}
const Format kFormats[] = {
    {"e4m3fn", 3, 7, 7, 448, false, true, true, &float8_e4m3fn::Encode, &Decode<float8_e4m3fn>},
    {"e4m3fnuz", 3, 8, 7, 240, false, false, true, &float8_e4m3fnuz::Encode,
     &Decode<float8_e4m3fnuz>},
    {"e5m2", 2, 15, 7, 57344, true, true, true, &float8_e5m2::Encode, &Decode<float8_e5m2>},
    {"e5m2fnuz", 2, 16, 7, 57344, false, false, true, &float8_e5m2fnuz::Encode,
     &Decode<float8_e5m2fnuz>},
    {"e2m1fn", 1, 1, 3, 6, false, true, false, &detail::Float4E2M1Format::Encode,
     &detail::Float4E2M1Format::Decode}};

bool Same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST_CASE("every code of a float8 and of float4 has the value that ONNX gives it") {
  for (const Format& f : kFormats) {
    CAPTURE(f.name);
    int wrong = 0, nans = 0;
    for (int code = 0; code < 2 << f.sign_bit; ++code) {
      const float value = f.decode(static_cast<uint8_t>(code));
      wrong += !Same(value, f.Value(code));
      nans += std::isnan(value);
      if (std::isnan(value)) {
        wrong += !std::isnan(f.decode(f.encode(value, Overflow::kSaturates)));
      } else if (!std::isinf(value)) {
        wrong += f.encode(value, Overflow::kSaturates) != code;
        wrong += f.encode(value, Overflow::kIsInfinite) != code;
      }
    }
    CHECK(wrong == 0);
    CHECK(nans == (!f.has_nan ? 0 : !f.has_negative_zero ? 1 : f.has_infinity ? 6 : 2));
  }
}

// Between two neighbours the rounded value changes at their middle only, so the middle, the floats
// beside it and the neighbours stand for all floats there.
TEST_CASE("a float rounds to the nearest float8, a tie to the even code") {
  for (const Format& f : kFormats) {
    CAPTURE(f.name);
    int wrong = 0;
    for (int code = 0; f.Value(code) < f.largest; ++code)
      for (const double sign : {1., -1.}) {
        const double low = f.Value(code), high = f.Value(code + 1);
        const auto middle = static_cast<float>((low + high) / 2);
        const auto check = [&](float x, double expected) {
          if (expected == 0 && sign < 0 && !f.has_negative_zero) expected = -0.;
          const double found =
              f.decode(f.encode(static_cast<float>(sign) * x, Overflow::kIsInfinite));
          wrong += found != sign * expected;
        };
        check(middle, code % 2 == 0 ? low : high);
        check(std::nextafter(middle, 0.f), low);
        check(std::nextafter(middle, kInfinity), high);
        check(static_cast<float>(low), low);
        check(std::nextafter(static_cast<float>(high), 0.f), high);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a float beyond the largest float8 saturates, or becomes infinity or NaN") {
  for (const Format& f : kFormats) {
    CAPTURE(f.name);
    const auto largest = static_cast<float>(f.largest);
    // The middle between the largest number and the next one, if there were one.
    const int code = f.encode(largest, Overflow::kSaturates);
    const double step = f.largest - f.Value(code - 1);
    const auto middle = static_cast<float>(f.largest + step / 2);
    const bool is_even = code % 2 == 0;
    for (const float sign : {1.f, -1.f}) {
      const auto with = [&](float x, Overflow overflow) {
        return static_cast<double>(f.decode(f.encode(sign * x, overflow)));
      };
      for (const float x : {largest, middle, 1e9f, kInfinity})
        CHECK(with(x, Overflow::kSaturates) == sign * f.largest);
      CHECK(with(std::nextafter(middle, 0.f), Overflow::kIsInfinite) == sign * f.largest);
      const double at_middle = is_even ? f.largest : f.Beyond();
      CHECK((Same(with(middle, Overflow::kIsInfinite), sign * at_middle) || std::isnan(at_middle)));
      for (const float x : {std::nextafter(middle, kInfinity), 1e9f, kInfinity}) {
        const double found = with(x, Overflow::kIsInfinite);
        CHECK(std::isnan(found) == std::isnan(f.Beyond()));
        if (!std::isnan(found)) CHECK(found == sign * f.Beyond());
      }
    }
    CHECK(std::signbit(f.decode(f.encode(-0.f, Overflow::kSaturates))) == f.has_negative_zero);
    for (const Overflow overflow : {Overflow::kSaturates, Overflow::kIsInfinite})
      if (f.has_nan)
        CHECK(std::isnan(f.decode(f.encode(kNaN, overflow))));
      else
        CHECK(f.encode(kNaN, overflow) == 0);
  }
}

TEST_CASE("float8_e8m0fnu holds powers of two") {
  for (int code = 0; code < 255; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float value = std::bit_cast<float8_e8m0fnu>(bits);
    CHECK(static_cast<double>(value) == std::ldexp(1., code - 127));
    for (const auto rounding : {PowerRounding::kUp, PowerRounding::kDown, PowerRounding::kNearest})
      CHECK(float8_e8m0fnu::Encode(value, Overflow::kIsInfinite, rounding) == bits);
    if (code == 254) continue;
    const auto round = [&](float factor, PowerRounding rounding) {
      return float8_e8m0fnu::Encode(static_cast<float>(std::ldexp(factor, code - 127)),
                                    Overflow::kIsInfinite, rounding) -
             code;
    };
    for (const float factor : {1.25f, 1.5f, 1.75f}) {
      CHECK(round(factor, PowerRounding::kUp) == 1);
      CHECK(round(factor, PowerRounding::kDown) == 0);
      CHECK(round(factor, PowerRounding::kNearest) == (factor >= 1.5f));
    }
  }
  CHECK(std::isnan(static_cast<float>(std::bit_cast<float8_e8m0fnu>(uint8_t{255}))));
  const auto encode = [](float x, Overflow overflow, PowerRounding rounding) {
    return int{float8_e8m0fnu::Encode(x, overflow, rounding)};
  };
  constexpr auto kSaturates = Overflow::kSaturates, kIsInfinite = Overflow::kIsInfinite;
  constexpr auto kUp = PowerRounding::kUp, kDown = PowerRounding::kDown;
  for (const float x : {0.f, 0x1p-149f, 0x1p-128f}) {
    CHECK(encode(x, kSaturates, kUp) == 0);
    CHECK(encode(x, kIsInfinite, kUp) == 255);
  }
  for (const float x : {0x1.8p127f, kInfinity}) {
    CHECK(encode(x, kSaturates, kUp) == 254);
    CHECK(encode(x, kIsInfinite, kUp) == 255);
  }
  CHECK(encode(0x1.8p127f, kIsInfinite, kDown) == 254);
  for (const float x : {kNaN, -1.f, -kInfinity}) CHECK(encode(x, kSaturates, kUp) == 255);
  CHECK(float8_e8m0fnu(3.f).bits == 129);
  CHECK(float8_e8m0fnu().bits == 127);
}

TEST_CASE("each float8 type has its dtype, and saturates when a float is assigned") {
  static_assert(kDTypeOf<float8_e4m3fn> == DType::kFloat8E4M3FN);
  static_assert(kDTypeOf<float8_e4m3fnuz> == DType::kFloat8E4M3FNUZ);
  static_assert(kDTypeOf<float8_e5m2> == DType::kFloat8E5M2);
  static_assert(kDTypeOf<float8_e5m2fnuz> == DType::kFloat8E5M2FNUZ);
  static_assert(kDTypeOf<float8_e8m0fnu> == DType::kFloat8E8M0);
  static_assert(sizeof(float8_e4m3fn) == 1 && sizeof(float8_e8m0fnu) == 1);
  static_assert(static_cast<float>(float8_e4m3fn(1000.f)) == 448);
  static_assert(static_cast<float>(float8_e5m2(-kInfinity)) == -57344);
}

}  // namespace

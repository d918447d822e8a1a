#include "opkit/core/dtype.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "support/error_of.hpp"

namespace dtype_test { namespace {

using opkit::bfloat16;
using opkit::DispatchDType;
using opkit::DType;
using opkit::Element;
using opkit::ErrorCode;
using opkit::float16;
using opkit::kDTypeOf;
using opkit::kNumDTypes;
using opkit::kNumPlainDTypes;

template <class... Ts>
struct List {};
using AllTypes =
    List<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float16,
         bfloat16, float, double, std::complex<float>, std::complex<double>>;

TEST_CASE("every dtype has its C++ type, size and name, and the name leads back") {
  int index = 1;
  [&]<class... Ts>(List<Ts...>) {
    static_assert(sizeof...(Ts) == kNumPlainDTypes - 1);
    (
        [&] {
          const auto dtype = static_cast<DType>(index++);
          CHECK(kDTypeOf<Ts> == dtype);
          CHECK(kDTypeOf<const Ts> == dtype);
          CHECK(ItemSize(dtype) == sizeof(Ts));
          CHECK(opkit::DTypeFromName(ToString(dtype)) == dtype);
        }(),
        ...);
  }(AllTypes{});
  CHECK(ItemSize(DType::kUndefined) == 0);
  CHECK(std::string(ToString(DType::kBFloat16)) == "bfloat16");
  CHECK(std::string(ToString(DType::kUndefined)) == "undefined");
  CHECK(opkit::DTypeFromName("undefined") == DType::kUndefined);
  CHECK(opkit::DTypeFromName("float") == DType::kUndefined);
}

TEST_CASE("other integer types of the same size are the same dtype; other types have none") {
  static_assert(kDTypeOf<long> == kDTypeOf<long long>);
  static_assert(kDTypeOf<unsigned long> == DType::kUInt64);
  static_assert(kDTypeOf<signed char> == DType::kInt8);
  static_assert(!Element<wchar_t> && !Element<char16_t> && !Element<char32_t>);
  static_assert(!Element<void> && !Element<int*> && !Element<long double> && !Element<std::string>);
  static_assert(!Element<std::complex<long double>>);
  __extension__ typedef __int128 Wide;
  static_assert(!Element<Wide>);
}

TEST_CASE("a dtype has the kind of its name") {
  for (int i = 0; i < kNumPlainDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name = ToString(dtype);
    CHECK(IsFloatingPoint(dtype) == Contains(name, "float"));
    CHECK(IsInteger(dtype) == Contains(name, "int"));
    CHECK(IsComplex(dtype) == Contains(name, "complex"));
  }
}

TEST_CASE("a dtype that is not plain has bits, a name and no kind") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CAPTURE(dtype);
    const std::string name = ToString(dtype);
    CHECK(opkit::DTypeFromName(name) == dtype);
    CHECK(IsPlain(dtype) == (i >= 1 && i < kNumPlainDTypes));
    CHECK(IsPacked(dtype) == (name == "int2" || name == "uint2" || Contains(name, "int4") ||
                              Contains(name, "float4")));
    CHECK(IsFloat8(dtype) == Contains(name, "float8_"));
    if (IsPlain(dtype)) CHECK(BitSize(dtype) == 8 * ItemSize(dtype));
    if (i < kNumPlainDTypes) continue;
    CHECK_FALSE(IsFloatingPoint(dtype));
    CHECK_FALSE(IsInteger(dtype));
    CHECK_FALSE(IsComplex(dtype));
    CHECK(BitSize(dtype) == (IsFloat8(dtype)        ? 8
                             : Contains(name, "t2") ? 2
                             : IsPacked(dtype)      ? 4
                                                    : 0));
    if (IsFloat8(dtype))
      CHECK(ItemSize(dtype) == 1);
    else
      CHECK(ErrorOf([&] { ItemSize(dtype); }).code() == ErrorCode::kUnsupported);
  }
  CHECK(std::string(ErrorOf([&] { ItemSize(DType::kInt4); }).message()) ==
        "elements of int4 are not whole bytes; cast them to a type of 8 bits or more");
  CHECK(BitSize(static_cast<DType>(200)) == 0);
}

// Rounds in double, which holds every value involved exactly: `digits` of precision, ties to even.
double Rounded(float value, int digits, int min_exponent, int max_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = std::ilogb(value);
  if (exponent < min_exponent) exponent = min_exponent;
  const double unit = std::ldexp(1.0, exponent - (digits - 1));
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) >= std::ldexp(1.0, max_exponent + 1)) return std::copysign(INFINITY, value);
  return rounded;
}
double ReferenceHalf(float value) { return Rounded(value, 11, -14, 15); }
double ReferenceBFloat(float value) { return Rounded(value, 8, -126, 127); }

// One check for each float would take minutes: it counts, and remembers the first that differs.
struct Mismatches {
  int64_t count = 0;
  uint32_t first = 0;
  void Add(float value) {
    if (count++ == 0) first = std::bit_cast<uint32_t>(value);
  }
};
template <class Half>
bool SameAs(Half half, double expected) {
  const double found = static_cast<float>(half);
  if (std::isnan(expected)) return std::isnan(found);
  return found == expected && std::signbit(found) == std::signbit(expected);
}

template <class Half>
Half FromBits(uint32_t bits) {
  Half half;
  half.bits = static_cast<uint16_t>(bits);
  return half;
}

TEST_CASE_TEMPLATE("all 65,536 bit patterns go to float and back", Half, float16, bfloat16) {
  int wrong = 0, nans = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = FromBits<Half>(bits);
    const Half back(value);
    if (std::isnan(value)) {
      ++nans;
      wrong += !std::isnan(static_cast<float>(back)) || (back.bits >> 15) != (bits >> 15);
    } else {
      wrong += back.bits != bits;
    }
  }
  CHECK(wrong == 0);
  CHECK(nans == (std::is_same_v<Half, float16> ? 2 * 1023 : 2 * 127));
}

TEST_CASE("every float16 has the value that IEEE 754 gives its bits") {
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) continue;
    double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (bits >> 15) value = -value;
    wrong += !SameAs(FromBits<float16>(static_cast<uint32_t>(bits)), value);
  }
  CHECK(wrong == 0);
}

// Between two halves the rounded value changes at one float only, so that float, its neighbours and
// both ends stand for all floats there.
template <class Half, class F>
void AtEveryBoundary(F&& check) {
  const uint32_t infinity = std::is_same_v<Half, float16> ? 0x7c00 : 0x7f80;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = static_cast<float>(FromBits<Half>(bits));
    const double high = bits + 1 == infinity ? (std::is_same_v<Half, float16> ? 65536.0 : 0x1p128)
                                             : static_cast<float>(FromBits<Half>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    for (const float value : {static_cast<float>(low), middle}) {
      for (const float sign : {1.f, -1.f}) {
        check(sign * value);
        check(sign * std::nextafter(value, 0.f));
        check(sign * std::nextafter(value, INFINITY));
      }
    }
  }
}
// A million floats spread over all bit patterns.
template <class F>
void OverAllFloats(F&& check) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099)
    check(std::bit_cast<float>(static_cast<uint32_t>(bits)));
}

TEST_CASE("floats round to the nearest float16, ties to even") {
  Mismatches wrong;
  auto check = [&](float value) {
    if (!SameAs(float16(value), ReferenceHalf(value))) wrong.Add(value);
  };
  AtEveryBoundary<float16>(check);
  OverAllFloats(check);
  INFO("bits of the first: " << wrong.first);
  CHECK(wrong.count == 0);
}

TEST_CASE("floats round to the nearest bfloat16, ties to even") {
  Mismatches wrong;
  auto check = [&](float value) {
    if (!SameAs(bfloat16(value), ReferenceBFloat(value))) wrong.Add(value);
  };
  AtEveryBoundary<bfloat16>(check);
  OverAllFloats(check);
  INFO("bits of the first: " << wrong.first);
  CHECK(wrong.count == 0);
}

#if defined(__FLT16_MAX__) || defined(__ARM_FP16_FORMAT_IEEE)
TEST_CASE("float16 converts as the compiler's own half type does") {
#ifdef __ARM_FP16_FORMAT_IEEE  // where g++ 12 has no _Float16
  typedef __fp16 Native;
#else
  __extension__ typedef _Float16 Native;
#endif
  Mismatches wrong;
  auto check = [&](float value) {
    if (!SameAs(float16(value), static_cast<float>(static_cast<Native>(value)))) wrong.Add(value);
  };
  AtEveryBoundary<float16>(check);
  OverAllFloats(check);
  CHECK(wrong.count == 0);
  int differing = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto native = static_cast<float>(std::bit_cast<Native>(static_cast<uint16_t>(bits)));
    differing += !SameAs(FromBits<float16>(bits), native);
  }
  CHECK(differing == 0);
}
#endif

TEST_CASE("float16 rounds to even, overflows to infinity and keeps NaN") {
  CHECK(float16(65504.f).bits == 0x7bff);
  CHECK(float16(65519.996f).bits == 0x7bff);
  CHECK(float16(65520.f).bits == 0x7c00);  // a tie, to the even that is infinity
  CHECK(float16(-FLT_MAX).bits == 0xfc00);
  CHECK(float16(INFINITY).bits == 0x7c00);
  CHECK(float16(0x1p-14f).bits == 0x0400);
  CHECK(float16(0x1p-24f).bits == 0x0001);
  CHECK(float16(0x1p-25f).bits == 0x0000);  // a tie, to the even that is zero
  CHECK(float16(0x1.000002p-25f).bits == 0x0001);
  CHECK(float16(-0.f).bits == 0x8000);
  CHECK(float16(1.f + 0x1p-11f).bits == 0x3c00);  // ties to even below ...
  CHECK(float16(1.f + 0x3p-11f).bits == 0x3c02);  // ... and above
  CHECK(float16(std::numeric_limits<float>::quiet_NaN()).bits == 0x7e00);
  static_assert(float16(1.f).bits == 0x3c00 && static_cast<float>(float16(-2.f)) == -2.f);
}

TEST_CASE("bfloat16 rounds to even, overflows to infinity and keeps NaN") {
  CHECK(bfloat16(FLT_MAX).bits == 0x7f80);
  CHECK(bfloat16(-INFINITY).bits == 0xff80);
  CHECK(bfloat16(1.f + 0x1p-8f).bits == 0x3f80);
  CHECK(bfloat16(1.f + 0x3p-8f).bits == 0x3f82);
  CHECK(bfloat16(FLT_TRUE_MIN).bits == 0x0000);
  // A NaN whose payload is all in the lower half must not become infinity.
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0xffffffffu)))));
  static_assert(bfloat16(1.f).bits == 0x3f80);
}

TEST_CASE("half types compute as floats do") {
  const float16 a = 1.5f, b = 2.25f;
  CHECK(a + b == 3.75f);
  CHECK(a < b);
  float16 sum = a;
  sum = sum * b;
  CHECK(sum == 3.375f);
}

TEST_CASE("DispatchDType calls with the type of the dtype and returns the call's result") {
  auto size = [](DType dtype) {
    return DispatchDType<float, double, int8_t, std::complex<double>>(
        dtype, []<class T>() { return sizeof(T); });
  };
  CHECK(size(DType::kFloat32) == 4);
  CHECK(size(DType::kFloat64) == 8);
  CHECK(size(DType::kInt8) == 1);
  CHECK(size(DType::kComplex128) == 16);

  int calls = 0;
  auto tagged = [&](auto tag) {
    ++calls;
    return kDTypeOf<decltype(tag)>;
  };
  CHECK(DispatchDType<bool, float16>(DType::kFloat16, tagged) == DType::kFloat16);
  CHECK(DispatchDType<bool, float16>(DType::kBool, tagged) == DType::kBool);
  CHECK(calls == 2);
  DispatchDType<float>(DType::kFloat32, [&]<class T>() { calls += sizeof(T); });
  CHECK(calls == 6);
}

TEST_CASE("DispatchDType may return a reference, and passes exceptions on") {
  int value = 0;
  int& same = DispatchDType<int, float>(DType::kInt32, [&]<class T>() -> int& { return value; });
  CHECK(&same == &value);
  CHECK_THROWS_AS(DispatchDType<int>(DType::kInt32, []<class T>() { throw 1; }), int);
}

TEST_CASE("DispatchDType of another dtype is an error that lists the supported dtypes") {
  int calls = 0;
  const auto error =
      ErrorOf([&] { DispatchDType<float, double>(DType::kInt32, [&]<class T>() { ++calls; }); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() == "dtype int32 is not supported here; expected one of [float32, float64]");
  CHECK(calls == 0);
}

}  // namespace
}  // namespace dtype_test

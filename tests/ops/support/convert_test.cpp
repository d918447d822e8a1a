// ConvertElement: the nearest number of the other type, for every value.
#include "opkit/ops/support/convert.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace convert_test {
using namespace opkit;

namespace {

TEST_CASE("floating point to integers is cut off, and stays in range") {
  CHECK(ConvertElement<int32_t>(2.9f) == 2);
  CHECK(ConvertElement<int32_t>(-2.9f) == -2);
  CHECK(ConvertElement<int32_t>(std::nanf("")) == 0);
  CHECK(ConvertElement<int32_t>(1e20f) == 2147483647);
  CHECK(ConvertElement<int32_t>(-INFINITY) == -2147483647 - 1);
  CHECK(ConvertElement<int64_t>(9223372036854775807.) == INT64_MAX);
  CHECK(ConvertElement<int64_t>(9223372036854774784.) == 9223372036854774784);
  CHECK(ConvertElement<uint64_t>(18446744073709551616.) == UINT64_MAX);
  CHECK(ConvertElement<uint64_t>(-1.5) == 0);
  CHECK(ConvertElement<uint8_t>(255.9f) == 255);
  CHECK(ConvertElement<uint8_t>(300.f) == 255);
  CHECK(ConvertElement<int8_t>(-128.9) == -128);
  CHECK(ConvertElement<int8_t>(float16(-7.75f)) == -7);
  CHECK(ConvertElement<uint16_t>(bfloat16(INFINITY)) == 65535);
}

TEST_CASE("integers to integers keep the low bits") {
  CHECK(ConvertElement<int8_t>(int32_t{200}) == -56);
  CHECK(ConvertElement<uint8_t>(int64_t{-1}) == 255);
  CHECK(ConvertElement<int64_t>(uint64_t{UINT64_MAX}) == -1);
  CHECK(ConvertElement<uint64_t>(int8_t{-2}) == UINT64_MAX - 1);
}

TEST_CASE("to bool: whether it is not zero") {
  CHECK(ConvertElement<bool>(0.1f));
  CHECK(ConvertElement<bool>(std::nan("")));
  CHECK(ConvertElement<bool>(float16(-0.5f)));
  CHECK_FALSE(ConvertElement<bool>(-0.f));
  CHECK_FALSE(ConvertElement<bool>(uint16_t{0}));
  CHECK(ConvertElement<float>(true) == 1);
  CHECK(static_cast<float>(ConvertElement<float16>(true)) == 1);
}

TEST_CASE("to 16 bits it is rounded once, to the nearest, of two the even one") {
  // Between 2048 and 2050 lies 2049: the tie goes to the even 2048, what is above it to 2050.
  CHECK(static_cast<float>(ConvertElement<float16>(2049.)) == 2048);
  CHECK(static_cast<float>(ConvertElement<float16>(2049.0000001)) == 2050);
  CHECK(static_cast<float>(ConvertElement<float16>(2050.9999999)) == 2050);
  CHECK(static_cast<float>(ConvertElement<float16>(-2049.0000001)) == -2050);
  CHECK(static_cast<float>(ConvertElement<float16>(1e300)) == INFINITY);
  CHECK(static_cast<float>(ConvertElement<float16>(65519.999999999)) == 65504);
  CHECK(static_cast<float>(ConvertElement<float16>(65520.)) == INFINITY);
  CHECK(static_cast<float>(ConvertElement<float16>(0x1p-25)) == 0);
  CHECK(static_cast<float>(ConvertElement<float16>(0x1.0000001p-25)) == 0x1p-24f);
  CHECK(std::isnan(static_cast<float>(ConvertElement<float16>(std::nan("")))));
  // bfloat16 has 8 bits: 257 lies between 256 and 258.
  CHECK(static_cast<float>(ConvertElement<bfloat16>(int32_t{257})) == 256);
  CHECK(static_cast<float>(ConvertElement<bfloat16>(int32_t{259})) == 260);
  CHECK(static_cast<float>(ConvertElement<bfloat16>((int64_t{257} << 54) + 1)) == 0x1.02p62f);
  CHECK(static_cast<float>(ConvertElement<bfloat16>(-(int64_t{257} << 54) - 1)) == -0x1.02p62f);
  CHECK(static_cast<float>(ConvertElement<bfloat16>(int64_t{257} << 54)) == 0x1p62f);
  CHECK(static_cast<float>(ConvertElement<bfloat16>(INT64_MIN)) == -0x1p63f);
  CHECK(static_cast<float>(ConvertElement<float16>(bfloat16(3.f))) == 3);
}

TEST_CASE("a double to float16 and back is the nearest of all 65536") {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    float16 low, high;
    low.bits = static_cast<uint16_t>(bits);
    high.bits = static_cast<uint16_t>(bits + 1);
    const double a = static_cast<float>(low), b = static_cast<float>(high), middle = (a + b) / 2;
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    if (ConvertElement<float16>(middle).bits != even ||
        ConvertElement<float16>(std::nextafter(middle, 0)).bits != bits ||
        ConvertElement<float16>(std::nextafter(middle, 1e9)).bits != bits + 1)
      FAIL_CHECK("between " << a << " and " << b);
  }
}

}  // namespace
}  // namespace convert_test

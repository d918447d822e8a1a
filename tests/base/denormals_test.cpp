// The floating-point unit of a thread flushes denormal numbers, and computes with them again.
#include "opkit/base/denormals.hpp"

#include <doctest/doctest.h>

namespace denormals_test {
using namespace opkit;
using namespace opkit::detail;

namespace {

uint64_t Bits() { return ReadFloatControl() & kFlushDenormalBits; }
// The compiler cannot compute the product.
float Product(float a, float b) {
  volatile float x = a, y = b;
  return x * y;
}

}  // namespace

TEST_CASE("Denormal numbers are zeros between the two calls, and the other bits stay") {
  const uint64_t others = ReadFloatControl() & ~kFlushDenormalBits & ~uint64_t{0x3f};  // no flags
  CHECK(Product(1e-39f, 2) > 0);
  SetFlushDenormals(true);
  const float operand = Product(1e-39f, 1e10f), result = Product(1e-30f, 1e-9f);
  const uint64_t during = ReadFloatControl();
  SetFlushDenormals(false);
  CHECK(Bits() == 0);
  CHECK((during & ~kFlushDenormalBits & ~uint64_t{0x3f}) == others);
  CHECK(Product(1e-39f, 2) > 0);
  if (kFlushDenormalBits != 0) {
    CHECK((during & kFlushDenormalBits) == kFlushDenormalBits);
    CHECK(operand == 0);
    CHECK(result == 0);
  }
}

TEST_CASE("The bits that a program has set itself are put back") {
  const uint64_t before = ReadFloatControl();
  const uint64_t own = kFlushDenormalBits & (~kFlushDenormalBits + 1);  // the lowest of them
  WriteFloatControl(before | own);
  SetFlushDenormals(true);
  SetFlushDenormals(false);
  CHECK(Bits() == own);
  WriteFloatControl(before);
}

}  // namespace denormals_test

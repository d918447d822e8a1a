#include "opkit/ops/support/element_sum.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace element_sum_test { namespace {

using opkit::detail::ElementOfSum;
using opkit::detail::SumType;

TEST_CASE("floating-point numbers are summed in double and rounded once") {
  SumType<float> sum = 0;
  for (int i = 0; i < 10; ++i) sum += SumType<float>(1e8f);
  sum += SumType<float>(1.f);
  sum -= 1e9;
  CHECK(ElementOfSum<float>(sum) == 1);
  CHECK(static_cast<float>(ElementOfSum<opkit::float16>(2.5)) == 2.5f);
}

TEST_CASE("sums of integers wrap around") {
  const SumType<int32_t> sum = SumType<int32_t>(INT32_MAX) + SumType<int32_t>(1);
  CHECK(ElementOfSum<int32_t>(sum) == INT32_MIN);
  const auto small = static_cast<SumType<int8_t>>(SumType<int8_t>(127) + SumType<int8_t>(1));
  CHECK(ElementOfSum<int8_t>(small) == -128);
}

TEST_CASE("a real number becomes the integer towards 0, and the nearest one where it is outside") {
  CHECK(ElementOfSum<int32_t>(2.9) == 2);
  CHECK(ElementOfSum<int32_t>(-2.9) == -2);
  CHECK(ElementOfSum<int32_t>(1e10) == INT32_MAX);
  CHECK(ElementOfSum<int32_t>(-1e10) == INT32_MIN);
  CHECK(ElementOfSum<int64_t>(1e19) == INT64_MAX);
  CHECK(ElementOfSum<uint8_t>(-1.0) == 0);
  CHECK(ElementOfSum<int16_t>(std::nan("")) == INT16_MIN);
}

}  // namespace
}  // namespace element_sum_test

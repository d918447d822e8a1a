// LargerOf and SmallerOf.
#include "opkit/ops/support/extremes.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace extremes_test {
using namespace opkit::detail;

TEST_CASE("the larger and the smaller of a NaN and anything are NaN") {
  CHECK(LargerOf(2.f, 3.f) == 3);
  CHECK(SmallerOf(2.f, 3.f) == 2);
  for (const double other : {1., -HUGE_VAL, HUGE_VAL, std::nan("")}) {
    CHECK(std::isnan(LargerOf(other, std::nan(""))));
    CHECK(std::isnan(LargerOf(std::nan(""), other)));
    CHECK(std::isnan(SmallerOf(other, std::nan(""))));
    CHECK(std::isnan(SmallerOf(std::nan(""), other)));
  }
}

}  // namespace extremes_test

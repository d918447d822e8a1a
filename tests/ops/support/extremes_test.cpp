// LargerOf and SmallerOf.
#include "opkit/ops/support/extremes.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace extremes_test {
using namespace opkit::detail;

TEST_CASE("the larger and the smaller of a NaN and anything are NaN") {
  CHECK(LargerOf(2.f, 3.f) == 3);
  CHECK(SmallerOf(2.f, 3.f) == 2);
  for (const double other : {1., -INFINITY, INFINITY, std::nan("")}) {
    CHECK(std::isnan(LargerOf(other, std::nan(""))));
    CHECK(std::isnan(LargerOf(std::nan(""), other)));
    CHECK(std::isnan(SmallerOf(other, std::nan(""))));
    CHECK(std::isnan(SmallerOf(std::nan(""), other)));
  }
}

}  // namespace extremes_test

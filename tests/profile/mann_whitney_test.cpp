#include "opkit/profile/mann_whitney.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/base/error.hpp"

namespace mann_whitney_test {
namespace {

using namespace opkit;

std::vector<double> Steps(int count, double from) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(from + i);
  return out;
}

}  // namespace

// The figures are those of scipy.stats.mannwhitneyu 1.16, methods "exact" and "asymptotic".
TEST_CASE("U and its probability, exact for few numbers") {
  MannWhitney test = MannWhitneyTest(Steps(5, 1), Steps(5, 6));
  CHECK(test.u == 25);
  CHECK(test.p == doctest::Approx(0.007936507936507936).epsilon(1e-12));
  CHECK(test.p == SmallestMannWhitneyP(5, 5));
  CHECK(MannWhitneyTest(Steps(5, 6), Steps(5, 1)).p == test.p);
  test = MannWhitneyTest({1.1, 2.2, 3.3, 10.5}, {4.4, 5.5, 0.5, 7.5, 8.5});
  CHECK(test.u == 12);
  CHECK(test.p == doctest::Approx(0.7301587301587302).epsilon(1e-12));
  test = MannWhitneyTest(Steps(25, 0), Steps(25, 6.5));
  CHECK(test.u == 454);
  CHECK(test.p == doctest::Approx(0.00549521438434097).epsilon(1e-9));
}

TEST_CASE("U and its probability, approximate with equal numbers and for many") {
  MannWhitney test = MannWhitneyTest({1, 2, 2, 3, 5, 5, 8, 9, 9, 9}, {2, 3, 5, 7, 9, 10, 11, 12});
  CHECK(test.u == 55);
  CHECK(test.p == doctest::Approx(0.19319732321411676).epsilon(1e-9));
  test = MannWhitneyTest(Steps(40, 0), Steps(40, 7.5));
  CHECK(test.u == 1072);
  CHECK(test.p == doctest::Approx(0.008988007122138847).epsilon(1e-9));
}

TEST_CASE("samples without evidence give p = 1") {
  CHECK(MannWhitneyTest({}, {1, 2}).p == 1);
  CHECK(MannWhitneyTest({1, 2}, {}).p == 1);
  CHECK(MannWhitneyTest({3, 3, 3}, {3, 3}).p == 1);
  CHECK(MannWhitneyTest({1, 3}, {2}).p == 1);
  CHECK_THROWS_WITH_AS(MannWhitneyTest({1, std::nan("")}, {2}), doctest::Contains("NaN"), Error);
  CHECK(MannWhitneyTest({1, INFINITY}, {2}).u == 1);
  CHECK(SmallestMannWhitneyP(1, 1) == 1);
  CHECK(SmallestMannWhitneyP(0, 9) == 1);
  CHECK(SmallestMannWhitneyP(3, 2) == doctest::Approx(0.2));
}

}  // namespace mann_whitney_test

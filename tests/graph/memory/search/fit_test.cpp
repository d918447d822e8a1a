// The ways to place buffers one after the other.
#include "opkit/graph/memory/search/fit.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "graph/memory/memory_problem.hpp"
#include "opkit/op/random.hpp"

namespace fit_test { namespace {

using opkit::MemoryInterval;
using opkit::RandomGenerator;
using opkit::detail::Index;
using opkit::detail::LowestFit;
using opkit::detail::MatrixFit;
using opkit::detail::MemoryProblem;
using opkit::detail::Skyline;

using Numbers = opkit::detail::IndexedVector<int>;

Numbers RandomOrder(RandomGenerator& random, int count) {
  Numbers order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// 0 and 1 are live together, then 1 and 2, then 2 and 3 and 0 again is not: 3 fits below 2.
const std::vector<MemoryInterval> kSteps = {{0, 2, 4}, {1, 3, 2}, {2, 5, 3}, {3, 5, 4}};

TEST_CASE("the lowest fit fills a gap that is large enough, between placed conflicts") {
  const MemoryProblem problem = MakeProblem(kSteps);
  Numbers offsets;
  // 1 lies on 0, 2 below 1 in the gap that 0 left, 3 on 2.
  CHECK(LowestFit(problem).Place({0, 1, 2, 3}, &offsets) == 7);
  CHECK(offsets == Numbers{0, 4, 0, 3});
}

TEST_CASE("the skyline stacks a buffer on all that was placed in its span") {
  const MemoryProblem problem = MakeProblem(kSteps);
  Numbers offsets;
  CHECK(PlaceOnSkyline(problem, {0, 1, 2, 3}, &offsets) == 13);
  CHECK(offsets == Numbers{0, 4, 6, 9});
}

TEST_CASE("in time, a buffer takes the smallest gap of the buffers that are live") {
  // When 3 and 4 begin, gaps of 5 (below 1) and of 2 (between 1 and 2) are free.
  const MemoryProblem problem =
      MakeProblem({{0, 1, 5}, {0, 9, 1}, {0, 1, 2}, {0, 9, 1}, {2, 9, 2}, {3, 9, 4}});
  Numbers offsets;
  CHECK(PlaceInTime(problem, {0, 1, 2, 3, 4, 5}, &offsets) == 9);
  CHECK(offsets == Numbers{0, 5, 6, 8, 6, 0});
}

TEST_CASE("Skyline knows the highest point of any span") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    const int sections = 1 + below(40);
    Skyline skyline(sections);
    Numbers heights(static_cast<size_t>(sections), 0);
    for (int round = 0; round < 60; ++round) {
      const int lower = below(sections), upper = lower + 1 + below(sections - lower);
      const int highest = *std::max_element(heights.begin() + lower, heights.begin() + upper);
      REQUIRE(skyline.Highest(lower, upper) == highest);
      skyline.Raise(lower, upper, highest + below(5));
      std::fill(heights.begin() + lower, heights.begin() + upper, skyline.Highest(lower, upper));
    }
  }
}

TEST_CASE(
    "every way of placing gives sound offsets; the ways with a matrix give the lowest fit's "
    "offsets") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const MemoryProblem problem = RandomProblem(random, 2 + static_cast<int>(seed));
    const Numbers order = RandomOrder(random, problem.count);
    Numbers lowest, stacked, in_time, by_matrix(order.size(), 0);
    const int height = LowestFit(problem).Place(order, &lowest);
    CHECK(PlacingFault(problem, lowest, height) == "");
    CHECK(PlacingFault(problem, stacked, PlaceOnSkyline(problem, order, &stacked)) == "");
    const Numbers by_lower = opkit::detail::SortedBy(problem.lower);
    CHECK(PlacingFault(problem, in_time, PlaceInTime(problem, by_lower, &in_time)) == "");
    MatrixFit fit(problem);
    CHECK(fit.Place(order, 0, height, &by_matrix) == height);
    CHECK(by_matrix == lowest);
  }
}

TEST_CASE("a matrix places the tail of an order on its head, and gives up above a limit") {
  RandomGenerator random(3);
  const MemoryProblem problem = RandomProblem(random, 40);
  const Numbers order = RandomOrder(random, problem.count);
  MatrixFit fit(problem);
  Numbers whole(order.size(), 0);
  const int height = fit.Place(order, 0, 1 << 30, &whole);
  Numbers tail = whole;
  for (size_t i = 25; i < order.size(); ++i) tail[Index(order[i])] = -1;
  CHECK(fit.Place(order, 25, height, &tail) == height);
  CHECK(tail == whole);
  CHECK(fit.Place(order, 0, height - 1, &whole) == -1);
}

}  // namespace
}  // namespace fit_test

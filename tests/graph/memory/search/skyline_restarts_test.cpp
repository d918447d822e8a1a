// Restarts of the skyline search.
#include "opkit/graph/memory/search/skyline_restarts.hpp"

#include <doctest/doctest.h>

#include "graph/memory/rectangle.hpp"
#include "support/lists.hpp"

namespace skyline_restarts_test { namespace {

using opkit::RandomGenerator;
using opkit::detail::DrawRanks;
using opkit::detail::Luby;
using opkit::detail::MemoryProblem;
using opkit::detail::Placing;
using opkit::detail::RestartSkyline;
using opkit::detail::SearchBudget;

TEST_CASE("restarts grow by Luby's sequence") {
  Ints found;
  for (int64_t i = 1; i <= 15; ++i) found.push_back(Luby(i));
  CHECK(found == Ints{1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8});
}

TEST_CASE("ranks are drawn anew: long or large buffers come first, small short ones last") {
  const MemoryProblem problem = MakeProblem({{0, 1, 1}, {0, 20, 2}, {2, 4, 30}});
  RandomGenerator random(1);
  int long_first = 0, large_first = 0, small_last = 0;
  for (int draw = 0; draw < 100; ++draw) {
    std::vector<int> rank = DrawRanks(problem, Lengths(problem), Peaks(problem), random);
    small_last += rank[0] == 2;
    long_first += rank[1] == 0;
    large_first += rank[2] == 0;
    std::sort(rank.begin(), rank.end());
    CHECK(rank == std::vector<int>{0, 1, 2});
  }
  CHECK(long_first > 10);
  CHECK(large_first > 10);
  CHECK(small_last > 80);
}

TEST_CASE("restarts pack a rectangle without a gap, and spend no step after that") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    Rectangle rectangle(seed);
    SearchBudget budget{.steps = 1'000'000, .seed = seed};
    RestartSkyline(rectangle.problem, &budget, &rectangle.best);
    CHECK(rectangle.best.height == rectangle.problem.bound);
    CHECK(PlacingFault(rectangle.problem, rectangle.best.offsets, rectangle.best.height) == "");
    CHECK(budget.steps > 0);
  }
}

TEST_CASE("restarts end where nothing lower is possible, and at a height that is enough") {
  // At a multiple of 4 each of the first two: 5 is the lowest, above the bound of 3.
  const MemoryProblem problem = MakeProblem({{0, 1, 1, 4}, {0, 1, 1, 4}, {0, 1, 1}});
  REQUIRE(problem.bound == 3);
  Placing best = Stacked(problem);
  best.height = 9;
  SearchBudget budget{.steps = 100'000};
  SUBCASE("the lowest") {
    RestartSkyline(problem, &budget, &best);
    CHECK(best.height == 5);
    CHECK(PlacingFault(problem, best.offsets, 5) == "");
    CHECK(budget.steps > 0);
  }
  SUBCASE("enough") {
    budget.enough = 9;
    RestartSkyline(problem, &budget, &best);
    CHECK(best.height == 9);
    CHECK(budget.steps == 100'000);
  }
}

TEST_CASE("restarts end when it is late") {
  Rectangle rectangle(3, 200);
  const int before = rectangle.best.height;
  SearchBudget budget{.deadline_ns = 0, .steps = 1'000'000};
  RestartSkyline(rectangle.problem, &budget, &rectangle.best);
  CHECK(rectangle.best.height == before);
  CHECK(budget.steps == 1'000'000);
}

}  // namespace
}  // namespace skyline_restarts_test

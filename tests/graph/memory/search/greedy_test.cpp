// The portfolio of greedy orders.
#include "opkit/graph/memory/search/greedy.hpp"

#include <doctest/doctest.h>

#include <set>

#include "graph/memory/memory_problem.hpp"

namespace greedy_test { namespace {

using opkit::RandomGenerator;
using opkit::detail::LowestFit;
using opkit::detail::MemoryProblem;
using opkit::detail::OrderBy;
using opkit::detail::Placing;
using opkit::detail::TryPortfolio;

using Numbers = opkit::detail::IndexedVector<int>;

TEST_CASE("an order is by descending key, equal ones by size, and otherwise as they are") {
  const MemoryProblem problem = MakeProblem({{0, 1, 3}, {0, 1, 5}, {0, 1, 3}, {0, 1, 4}});
  CHECK(OrderBy(problem, {1, 1, 1, 2}) == Numbers{3, 1, 0, 2});
}

TEST_CASE("the portfolio keeps the lowest of its orders and names it") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    RandomGenerator random(seed);
    const MemoryProblem problem = RandomProblem(random, 60);
    Placing best;
    TryPortfolio(problem, 0, &best);
    REQUIRE(best.method);
    CHECK(std::string(best.method).substr(0, 7) == "greedy ");
    CHECK(PlacingFault(problem, best.offsets, best.height) == "");
    Numbers offsets;
    const opkit::detail::IndexedVector<int64_t> size(problem.size.begin(), problem.size.end());
    CHECK(best.height <= LowestFit(problem).Place(OrderBy(problem, size), &offsets));
    CHECK(best.height <= LowestFit(problem).Place(OrderBy(problem, Lengths(problem)), &offsets));
  }
}

TEST_CASE("the portfolio stops at a placing that is low enough") {
  RandomGenerator random(5);
  const MemoryProblem problem = RandomProblem(random, 60);
  Placing best;
  TryPortfolio(problem, 1 << 20, &best);
  CHECK(best.method == std::string("greedy in time"));
}

TEST_CASE("each order of the portfolio is the lowest one of some buffers") {
  std::set<std::string> methods;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    RandomGenerator random(seed);
    const MemoryProblem problem = RandomProblem(random, 30);
    Placing best;
    TryPortfolio(problem, problem.bound, &best);
    methods.insert(best.method);
  }
  CHECK(methods == std::set<std::string>{"greedy by alignment", "greedy by area", "greedy by crowd",
                                         "greedy by lifetime", "greedy by peak", "greedy by size",
                                         "greedy by start", "greedy in time"});
}

TEST_CASE("buffers whose conflicts are too many to list are stacked, and soundly") {
  RandomGenerator random(1);
  const MemoryProblem listed = RandomProblem(random, 60);
  MemoryProblem problem = listed;
  problem.conflicts = {};
  problem.spans_decide = false;
  Placing best;
  TryPortfolio(problem, 0, &best);
  REQUIRE(best.method);
  CHECK(PlacingFault(listed, best.offsets, best.height) == "");
}

}  // namespace
}  // namespace greedy_test

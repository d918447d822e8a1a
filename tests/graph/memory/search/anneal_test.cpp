// Annealing over orders of placing.
#include "opkit/graph/memory/search/anneal.hpp"

#include <doctest/doctest.h>

#include "graph/memory/rectangle.hpp"

namespace anneal_test { namespace {

using opkit::detail::AnnealOrder;
using opkit::detail::MemoryProblem;
using opkit::detail::Placing;
using opkit::detail::SearchBudget;

// Five buffers of 1, each in conflict with the next, the last with the first: a clique has 2 of
// them, and no placing is lower than 3.
MemoryProblem Ring() {
  std::vector<opkit::MemoryInterval> buffers;
  opkit::MemoryConflicts conflicts;
  conflicts.starts.push_back(0);
  for (int i = 0; i < 5; ++i) {
    buffers.push_back({2 * i, 2 * i + 1, 1});
    for (const int step : {1, 4}) conflicts.others.push_back((i + step) % 5);
    conflicts.starts.push_back(2 * (i + 1));
  }
  MemoryProblem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  TakeConflicts(conflicts, buffers.size(), &problem);
  return problem;
}

TEST_CASE("another order packs a small rectangle without a gap, and no step is spent after that") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    Rectangle rectangle(seed, 14);
    const int bound = rectangle.problem.bound;
    SearchBudget budget{.steps = 300'000, .seed = seed, .enough = bound};
    AnnealOrder(rectangle.problem, &budget, &rectangle.best);
    CHECK(rectangle.best.height == bound);
    CHECK(PlacingFault(rectangle.problem, rectangle.best.offsets, bound) == "");
    CHECK(budget.steps > 0);
  }
}

TEST_CASE("conflicts beyond the spans are kept, and a bound out of reach ends the search soon") {
  const MemoryProblem problem = Ring();
  REQUIRE(problem.bound == 2);
  Placing best = Stacked(problem);
  SearchBudget budget{.steps = 100'000'000, .enough = problem.bound};
  AnnealOrder(problem, &budget, &best);
  CHECK(best.height == 3);
  CHECK(PlacingFault(problem, best.offsets, 3) == "");
  CHECK(budget.steps > 90'000'000);
}

TEST_CASE("a move costs its steps, and a deadline that has passed allows one") {
  Rectangle rectangle(1, 16);
  SearchBudget budget{.steps = 1};
  SUBCASE("one step is left") {}
  SUBCASE("it is late") { budget = {.deadline_ns = 0, .steps = 1}, budget.steps = 1'000'000; }
  const int64_t before = budget.steps;
  AnnealOrder(rectangle.problem, &budget, &rectangle.best);
  CHECK(before - budget.steps == 16 * (16 / 8 + 1));
  CHECK(rectangle.best.height > rectangle.problem.bound);
}

}  // namespace
}  // namespace anneal_test

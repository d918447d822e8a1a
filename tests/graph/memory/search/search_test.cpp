// The searches that follow the portfolio: each lowers a placing within its budget.
#include "opkit/graph/memory/search/search.hpp"

#include <doctest/doctest.h>

#include "graph/memory/rectangle.hpp"
#include "support/error_of.hpp"

namespace search_test { namespace {

using opkit::detail::CheckSearchName;
using opkit::detail::kPlannerSearches;
using opkit::detail::SearchBudget;
using opkit::detail::SearchPlacing;

TEST_CASE("every search lowers a placing, keeps it sound and stays within its steps") {
  for (const auto& search : kPlannerSearches) {
    CAPTURE(search.name);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(seed);
      Rectangle rectangle(seed);
      const int before = rectangle.best.height;
      SearchBudget budget{.steps = 300'000, .seed = seed};
      SearchPlacing(search.name, rectangle.problem, &budget, &rectangle.best);
      CHECK(PlacingFault(rectangle.problem, rectangle.best.offsets, rectangle.best.height) == "");
      CHECK(rectangle.best.height < before / 2);
      CHECK(rectangle.best.height >= rectangle.problem.bound);
      CHECK(budget.steps < 300'000);
    }
  }
}

TEST_CASE("the same budget and seed give the same placing") {
  for (const auto& search : kPlannerSearches) {
    CAPTURE(search.name);
    std::vector<int> offsets;
    for (int run = 0; run < 2; ++run) {
      Rectangle rectangle(7, 40);
      SearchBudget budget{.steps = 100'000, .seed = 1};
      SearchPlacing(search.name, rectangle.problem, &budget, &rectangle.best);
      if (run == 1) CHECK(rectangle.best.offsets == offsets);
      offsets = rectangle.best.offsets;
    }
  }
}

TEST_CASE("a search that is not needed, or has no steps, leaves the placing as it is") {
  for (const int64_t steps : {0, 1000}) {
    CAPTURE(steps);
    Rectangle rectangle(2);
    const int before = rectangle.best.height;
    SearchBudget budget{.steps = steps, .enough = steps == 0 ? 0 : before};
    SearchPlacing("", rectangle.problem, &budget, &rectangle.best);
    CHECK(rectangle.best.height == before);
    CHECK(rectangle.best.method == std::string("stacked"));
  }
}

TEST_CASE("without a name the skyline is searched where spans decide, else orders are annealed") {
  for (const bool spans_decide : {true, false}) {
    CAPTURE(spans_decide);
    Rectangle rectangle(4);
    rectangle.problem.spans_decide = spans_decide;
    SearchBudget budget{.steps = 300'000};
    SearchPlacing("", rectangle.problem, &budget, &rectangle.best);
    CHECK(rectangle.best.method == std::string(spans_decide ? "search" : "annealing"));
  }
}

TEST_CASE("a search that does not exist is refused with the nearest name") {
  CHECK_NOTHROW(CheckSearchName(""));
  CHECK_NOTHROW(CheckSearchName("annealing"));
  const opkit::Error error = ErrorOf([] { CheckSearchName("skylin"); });
  CHECK(error.code() == opkit::ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "did you mean 'skyline'?"));
}

}  // namespace
}  // namespace search_test

#include "opkit/graph/memory/recompute.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "opkit/op/random.hpp"
#include "support/check_fails.hpp"
#include "support/sanitizers.hpp"

namespace recompute_test {
namespace {

using namespace opkit;
using Step = RecomputeProblem::Step;

RecomputeProblem Problem(std::vector<Step> steps, std::vector<int64_t> bytes) {
  RecomputeProblem problem{std::move(steps), std::move(bytes), {}};
  problem.kept.assign(problem.bytes.size(), 0);
  return problem;
}

// `count` layers forward and back: step i makes value i of the one before it; step count + i, for
// the last layer first, reads that layer's value and the gradient of the step before.
RecomputeProblem Training(int count) {
  RecomputeProblem problem;
  for (int i = 0; i < count; ++i) {
    problem.steps.push_back({{}, {i}});
    if (i > 0) problem.steps.back().inputs = {i - 1};
  }
  for (int i = count; i-- > 0;) {
    problem.steps.push_back({{i}, {2 * count - 1 - i}});
    problem.steps.back().repeatable = false;
    if (i + 1 < count) problem.steps.back().inputs.push_back(2 * count - 2 - i);
  }
  problem.bytes.assign(static_cast<size_t>(2 * count), 100);
  problem.bytes.back() = 0;
  problem.kept.assign(problem.bytes.size(), 0);
  problem.kept.back() = 1;
  return problem;
}

bool Makes(const Step& step, int value) {
  return std::find(step.outputs.begin(), step.outputs.end(), value) != step.outputs.end();
}

// Counts anew what is live at each place of a run of steps that share no bytes. Requires that the
// run is one of the problem's.
int64_t PeakOf(const RecomputeProblem& problem, const RecomputedRun& run) {
  const size_t places = run.steps.size();
  std::vector<int64_t> live(places, 0);
  std::vector<int> times(problem.steps.size(), 0);
  double added = 0;
  int last_fixed = -1;
  for (size_t at = 0; at < places; ++at) {
    const RecomputedRun::Step& one = run.steps[at];
    const Step& step = problem.steps[static_cast<size_t>(one.step)];
    REQUIRE(one.makers.size() == step.inputs.size());
    REQUIRE(one.again == (times[static_cast<size_t>(one.step)]++ > 0));
    if (one.again) added += step.cost;
    if (!step.repeatable) {
      REQUIRE(one.step > last_fixed);
      last_fixed = one.step;
    }
    live[at] += step.scratch_bytes;
    for (const int value : step.outputs) {
      size_t end = problem.kept[static_cast<size_t>(value)] && !one.again ? places : at + 1;
      for (size_t reader = at + 1; reader < places; ++reader) {
        const Step& reading = problem.steps[static_cast<size_t>(run.steps[reader].step)];
        for (size_t i = 0; i < reading.inputs.size(); ++i)
          if (run.steps[reader].makers[i] == static_cast<int>(at) && reading.inputs[i] == value)
            end = (std::max)(end, reader + 1);
      }
      for (size_t p = at; p < end; ++p) live[p] += problem.bytes[static_cast<size_t>(value)];
    }
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int value = step.inputs[i], maker = one.makers[i];
      bool is_made = false;
      for (const Step& other : problem.steps) is_made |= Makes(other, value);
      REQUIRE((maker >= 0) == is_made);
      REQUIRE(maker < static_cast<int>(at));
      if (maker < 0) continue;
      const int made_by = run.steps[static_cast<size_t>(maker)].step;
      REQUIRE(Makes(problem.steps[static_cast<size_t>(made_by)], value));
    }
  }
  for (const int count : times) REQUIRE(count > 0);
  CHECK(added == doctest::Approx(run.added_cost));
  return *std::max_element(live.begin(), live.end());
}

// "0 1 2 0! 3": the steps in their order, those that run again with a mark.
std::string OrderOf(const RecomputedRun& run) {
  std::string text;
  for (const RecomputedRun::Step& step : run.steps)
    text += StrCat(text.empty() ? "" : " ", step.step, step.again ? "!" : "");
  return text;
}

// Steps of one to three outputs, each reading up to three earlier values.
RecomputeProblem RandomSteps(uint64_t seed, int count) {
  RandomGenerator random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  RecomputeProblem problem;
  problem.bytes.assign(2, 50);  // there from the start
  for (int s = 0; s < count; ++s) {
    Step step;
    step.cost = below(10);
    step.repeatable = below(4) > 0;
    if (below(5) == 0) step.scratch_bytes = below(40);
    const int made = static_cast<int>(problem.bytes.size());
    for (int i = below(3); i >= 0; --i) {
      const int value = below(2) == 0 ? made - 1 - below((std::min)(made, 6)) : below(made);
      if (std::find(step.inputs.begin(), step.inputs.end(), value) == step.inputs.end())
        step.inputs.push_back(value);
    }
    for (int o = below(6) == 0 ? 2 : 0; o >= 0; --o) {
      step.outputs.push_back(static_cast<int>(problem.bytes.size()));
      problem.bytes.push_back(below(8) == 0 ? 0 : 1 + below(100));
    }
    problem.steps.push_back(std::move(step));
  }
  for (size_t v = 0; v < problem.bytes.size(); ++v) problem.kept.push_back(below(12) == 0);
  return problem;
}

}  // namespace

TEST_CASE("a run that fits stays as it is") {
  const RecomputedRun run = Recompute(Training(3), 400);
  CHECK(OrderOf(run) == "0 1 2 3 4 5");
  CHECK(run.peak_bytes == 400);
  CHECK(run.added_cost == 0);
  CHECK(run.given_cost == 6);
}

TEST_CASE("the cheapest of equal values runs again, and the largest of equal cost") {
  // Values 0, 1 and 2 are made first and read last, across the large value 3.
  RecomputeProblem problem =
      Problem({{{}, {0}}, {{}, {1}}, {{}, {2}}, {{0, 1, 2}, {3}}, {{3}, {4}}, {{0, 1, 2, 4}, {}}},
              {100, 100, 100, 500, 10});
  for (Step& step : problem.steps) step.repeatable = step.inputs.empty();
  problem.steps[0].cost = 3;
  problem.steps[2].cost = 2;
  // Step 3 has all four live, which nothing changes; step 4 need not have.
  problem.steps[4].scratch_bytes = 200;
  const RecomputedRun run = Recompute(problem, 910);
  CHECK(run.given_bytes == 1010);
  CHECK(OrderOf(run) == "0 1 2 3 4 1! 5");
  CHECK(run.peak_bytes == 910);
  CHECK(PeakOf(problem, run) == 910);
  problem.steps[0].cost = problem.steps[1].cost = problem.steps[2].cost = 1;
  problem.bytes[2] = 101;
  CHECK(OrderOf(Recompute(problem, 910)) == "0 1 2 3 4 2! 5");
}

TEST_CASE("a value that is only read late is made late, which costs nothing") {
  RecomputeProblem problem =
      Problem({{{}, {0}}, {{}, {1}}, {{1}, {2}}, {{0, 2}, {}}}, {100, 300, 50});
  problem.steps[3].repeatable = false;
  const RecomputedRun run = Recompute(problem, 350);
  CHECK(OrderOf(run) == "1 2 0 3");
  CHECK(run.added_cost == 0);
  CHECK(run.steps[2].moved);
  CHECK(PeakOf(problem, run) == 350);
}

TEST_CASE("inputs of a repeated step are recomputed too if they are gone") {
  // Value 1, of value 0, is read by steps 2 and 4; value 0 is dead after step 1.
  RecomputeProblem problem =
      Problem({{{}, {0}}, {{0}, {1}}, {{1}, {2}}, {{2}, {3}}, {{1, 3}, {}}}, {100, 100, 200, 100});
  problem.steps[3].repeatable = problem.steps[4].repeatable = false;
  const RecomputedRun run = Recompute(problem, 300);
  CHECK(OrderOf(run) == "0 1 2 3 0! 1! 4");
  CHECK(PeakOf(problem, run) == 300);
  // A small one is kept instead.
  problem.bytes[0] = 5;
  problem.steps[2].scratch_bytes = 0;
  CHECK(OrderOf(Recompute(problem, 305)) == "0 1 2 3 1! 4");
}

TEST_CASE("a recomputation that a later choice makes needless is dropped") {
  // Value 0 saves half of what must go for the least cost by its bytes; value 1 saves all of it.
  RecomputeProblem problem =
      Problem({{{}, {0}}, {{}, {1}}, {{0, 1}, {}}, {{}, {}}, {{0, 1}, {}}}, {50, 100});
  problem.steps[1].cost = 3;
  problem.steps[3].scratch_bytes = 200;
  for (size_t s : {2, 3, 4}) problem.steps[s].repeatable = false;
  const RecomputedRun run = Recompute(problem, 250);
  CHECK(OrderOf(run) == "0 1 2 3 1! 4");
  CHECK(run.added_cost == 3);
}

TEST_CASE("values that raise no other peak come before cheaper ones that do") {
  // Step 3 is the peak. To make value 0 again before step 6, beside values 1 and 2, takes scratch.
  RecomputeProblem problem = Problem({{{}, {0}, {}, 1, 200},
                                      {{}, {1}, {}, 2.5},
                                      {{0, 1}, {}, {}, 1, 0, false},
                                      {{}, {}, {}, 1, 300, false},
                                      {{}, {2}, {}, 2},
                                      {{2}, {}, {}, 1, 0, false},
                                      {{0}, {}, {}, 1, 0, false},
                                      {{1, 2}, {}, {}, 1, 0, false}},
                                     {100, 100, 50});
  const RecomputedRun run = Recompute(problem, 400);
  CHECK(run.given_bytes == 500);
  CHECK(OrderOf(run) == "0 1 2 3 4 5 6 1! 7");
  CHECK(run.added_cost == 2.5);
}

TEST_CASE("an output takes the bytes of an input that dies") {
  RecomputeProblem problem = Problem({{{}, {0}}, {{0}, {1}}, {{1}, {2}}}, {100, 100, 100});
  CHECK(Recompute(problem, 1000).given_bytes == 200);
  for (size_t s : {1, 2}) problem.steps[s].in_place = {{0, 0}};
  CHECK(Recompute(problem, 1000).given_bytes == 100);
  CHECK(Recompute(problem, 1000).least_bytes == 100);
  problem.kept[0] = 1;
  CHECK(Recompute(problem, 1000).given_bytes == 200);
}

TEST_CASE("a chain forward and back fits half and a quarter with each layer run at most twice") {
  for (const int layers : {8, 64, 200}) {
    CAPTURE(layers);
    const RecomputeProblem problem = Training(layers);
    // At the peak one gradient is live beside the layers' values, so many of which must go.
    const RecomputedRun half = Recompute(problem, 100 * layers / 2);
    CHECK(half.given_bytes == 100 * (layers + 1));
    CHECK(half.peak_bytes <= 100 * layers / 2);
    CHECK(PeakOf(problem, half) == half.peak_bytes);
    if (layers == 8) continue;
    CHECK(half.added_cost == layers / 2 + 1);
    const RecomputedRun quarter = Recompute(problem, 100 * layers / 4);
    CHECK(PeakOf(problem, quarter) == quarter.peak_bytes);
    CHECK(quarter.peak_bytes <= 100 * layers / 4);
    CHECK(quarter.added_cost == 3 * layers / 4 + 1);
  }
}

TEST_CASE("segments within segments: a chain fits less than the root of its length allows") {
  const RecomputeProblem problem = Training(64);
  const RecomputedRun run = Recompute(problem, 800);
  CHECK(PeakOf(problem, run) == run.peak_bytes);
  CHECK(run.peak_bytes <= 800);
  CHECK(run.added_cost < 128);
}

TEST_CASE("random runs stay complete, reach the reported bytes, and repeat only permitted steps") {
  int fit = 0, lowered = 0;
  for (uint64_t seed = 1; seed <= Rounds(300u); ++seed)
    for (const int percent : {90, 70, 50}) {
      CAPTURE(seed);
      CAPTURE(percent);
      const RecomputeProblem problem = RandomSteps(seed, 5 + static_cast<int>(seed % 40));
      const int64_t given = Recompute(problem, 1 << 20).given_bytes;
      const RecomputedRun run = Recompute(problem, given * percent / 100);
      REQUIRE(run.given_bytes == given);
      REQUIRE(PeakOf(problem, run) == run.peak_bytes);
      REQUIRE(run.peak_bytes <= given);
      REQUIRE(run.peak_bytes >= run.least_bytes);
      fit += run.peak_bytes <= given * percent / 100;
      lowered += run.peak_bytes < given;
    }
  CHECK(fit > Rounds(50));
  CHECK(lowered > Rounds(100));
}

TEST_CASE("an invalid problem is refused") {
  const auto fails = [](RecomputeProblem problem, const char* message) {
    CheckFails([&] { Recompute(problem, 1); }, message);
  };
  fails({{{{0}, {}}}, {1}, {}}, "expected `kept` for each of 1 values, found 0");
  fails(Problem({{{1}, {}}}, {1}), "step 0 reads value 1: expected one of the 1 values");
  fails(Problem({{{}, {-1}}}, {1}), "step 0 makes value -1: expected one of the 1 values");
  fails(Problem({{{}, {0}}, {{}, {0}}}, {1}), "value 0 is made by step 0 and by step 1");
  fails(Problem({{{0}, {}}, {{}, {0}}}, {1}), "step 0 reads value 0, which only step 1 makes");
  fails(Problem({{{}, {0}, {{0, 0}}}}, {1}), "step 0 has the in-place pair 0, 0");
  fails(Problem({{{}, {0}}}, {-1}), "value 0 has -1 bytes");
  fails(Problem({{{}, {0}, {}, -1}}, {1}), "step 0 has the cost -1");
}

}  // namespace recompute_test

#include "opkit/profile/timing/interleaved_times.hpp"

#include <doctest/doctest.h>

#include "opkit/base/error.hpp"

namespace interleaved_times_test {
namespace {

using namespace opkit;

// A machine whose time passes only when a call says so.
struct PlantedClock final : TimingClock {
  int64_t now = 0, preemptions = 0, spin = 1000;
  int64_t Now() override { return now; }
  int64_t Preemptions() override { return preemptions; }
  int64_t Spin() override { return now += spin, spin; }
};

}  // namespace

TEST_CASE("calls are timed in turns, and short ones are repeated in a sample") {
  PlantedClock clock;
  std::vector<int> order;
  std::vector<TimedCall> calls(2);
  calls[0].run = [&] { clock.now += 100'000, order.push_back(0); };
  calls[1].run = [&] { clock.now += 1'000, order.push_back(1); };
  const auto times = TimeInterleaved(calls, {.least_rounds = 9, .most_rounds = 9}, &clock);
  REQUIRE(times.size() == 2);
  CHECK(times[0].median == 100'000);
  CHECK(times[0].low == 100'000);
  CHECK(times[0].high == 100'000);
  CHECK(times[1].median == 1'000);
  CHECK(times[0].runs_per_sample == 1);
  CHECK(times[1].runs_per_sample == 21);  // 20 us
  CHECK(times[0].ns.size() == 9);
  // Two runs of each before, then each round has one sample of both.
  REQUIRE(order.size() == 4 + 9 * 22);
  int firsts = 0;
  for (size_t round = 0; round < 9; ++round) {
    const auto begin = order.begin() + 4 + static_cast<long>(22 * round);
    CHECK(std::count(begin, begin + 22, 0) == 1);
    firsts += *begin == 0;
  }
  CHECK(firsts > 0);
  CHECK(firsts < 9);
}

TEST_CASE("samples of a preempted thread or a slow processor are left out, and counted") {
  PlantedClock clock;
  int runs = 0;
  std::vector<TimedCall> calls(1);
  calls[0].run = [&] {
    clock.now += 50'000;
    ++runs;
    if (runs % 5 == 0) clock.now += 700'000, ++clock.preemptions;
    clock.spin = runs % 5 == 1 ? 2000 : 1000;  // the spin before the next sample
    if (runs % 5 == 2) clock.now += 300'000;   // that sample
  };
  const auto times = TimeInterleaved(calls, {.least_rounds = 20, .most_rounds = 20}, &clock)[0];
  CHECK(times.preempted == 4);
  CHECK(times.throttled == 4);
  CHECK_FALSE(times.disturbed);
  CHECK(times.ns == std::vector<double>(12, 50'000));
}

TEST_CASE("if most samples are disturbed, all of them count and the result says so") {
  PlantedClock clock;
  std::vector<TimedCall> calls(1);
  calls[0].run = [&] { clock.now += 50'000, ++clock.preemptions; };
  const auto times = TimeInterleaved(calls, {.least_rounds = 8, .most_rounds = 8}, &clock)[0];
  CHECK(times.disturbed);
  CHECK(times.preempted == 8);
  CHECK(times.ns.size() == 8);
}

TEST_CASE("timing ends when the interval is narrow, or the budget is spent") {
  PlantedClock clock;
  int64_t extra = 0;
  std::vector<TimedCall> calls(1);
  calls[0].run = [&] { clock.now += 50'000 + extra; };
  CHECK(TimeInterleaved(calls, {.seconds = 100}, &clock)[0].ns.size() == 7);
  // Every other sample takes twice as long: the interval never becomes narrow.
  int runs = 0;
  calls[0].run = [&] { clock.now += ++runs % 2 ? 50'000 : 100'000; };
  const auto times = TimeInterleaved(calls, {.seconds = 0.01}, &clock)[0];
  CHECK(times.ns.size() > 100);
  CHECK(times.ns.size() < 140);
  CHECK(times.low == 50'000);
  CHECK(times.high == 100'000);
}

TEST_CASE("a call with a preparation is run once in a sample, and the preparation is not timed") {
  PlantedClock clock;
  int prepared = 0, runs = 0;
  std::vector<TimedCall> calls(1);
  calls[0].run = [&] { clock.now += 100, ++runs; };
  calls[0].prepare = [&] { clock.now += 1'000'000, ++prepared; };
  const auto times = TimeInterleaved(calls, {}, &clock)[0];
  CHECK(times.median == 100);
  CHECK(times.runs_per_sample == 1);
  CHECK(prepared == runs);
}

TEST_CASE("the median and its interval are order statistics") {
  CallTimes times;
  for (int i = 100; i > 0; --i) times.ns.push_back(i);
  Summarize(times);
  CHECK(times.median == 50.5);
  CHECK(times.low == 41);  // the binomial's 2.5 % lies between ranks 40 and 61
  CHECK(times.high == 61);
  times.ns = {3};
  Summarize(times);
  CHECK(times.median == 3);
  CHECK(times.low == 3);
  CHECK(times.high == 3);
}

TEST_CASE("errors of a call are passed on, and bad options are refused") {
  std::vector<TimedCall> calls(1);
  calls[0].run = [] { Throw(ErrorCode::kUnsupported, "not here"); };
  CHECK_THROWS_WITH_AS(TimeInterleaved(calls), doctest::Contains("not here"), Error);
  CHECK_THROWS_AS(TimeInterleaved(calls, {.seconds = 0}), Error);
  CHECK_THROWS_AS(TimeInterleaved(calls, {.least_rounds = 9, .most_rounds = 8}), Error);
  CHECK(TimeInterleaved({}).empty());
}

TEST_CASE("the machine's clock moves, and its loop takes time") {
  TimingClock clock;
  const int64_t before = clock.Now();
  CHECK(clock.Spin() > 0);
  CHECK(clock.Now() > before);
  CHECK(clock.Preemptions() >= 0);
}

}  // namespace interleaved_times_test

#include "opkit/engine/schedule/replay_mode.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "opkit/engine/schedule/schedule.hpp"
#include "support/text.hpp"

namespace replay_mode_test { namespace {

using opkit::ReplayMode;
using opkit::Schedule;
using opkit::ScheduleEdge;

TEST_CASE("the mode is chosen by shape and time") {
  std::vector<ScheduleEdge> edges;
  for (int i = 1; i < 1000; ++i) edges.push_back({i - 1, i});
  const Schedule chain(1000, edges), few(100, nullptr, 0), many(100'000, nullptr, 0);
  std::vector<ScheduleEdge> chains;  // 4 of them
  for (int i = 4; i < 4000; ++i) chains.push_back({i - 4, i});
  const Schedule narrow(4000, chains);
  CHECK(ChooseMode(chain, 1e6, 8) == ReplayMode::kWalk);
  CHECK(ChooseMode(few, 3, 2) == ReplayMode::kWalk);
  CHECK(ChooseMode(many, 3, 1) == ReplayMode::kWalk);
  CHECK(ChooseMode(many, 3, 2) == ReplayMode::kLevels);
  CHECK(ChooseMode(narrow, 3, 2) == ReplayMode::kWalk);
  CHECK(ChooseMode(narrow, 300, 2) == ReplayMode::kCounters);
  CHECK(ChooseMode(many, 3, 2, /*may_pend=*/true) == ReplayMode::kCounters);
  CHECK(Contains(ExplainMode(many, 3, 2), "levels: with 3 ns a node, 2 threads and levels 100000"));
  CHECK(ExplainMode(chain, 3, 2) == "walk: the graph is a chain");
}

using opkit::detail::ReplayTuner;

// Nanoseconds of a run by mode.
struct Machine {
  int64_t walk, levels, counters;
  int64_t of(ReplayMode mode) const {
    return mode == ReplayMode::kWalk ? walk : mode == ReplayMode::kLevels ? levels : counters;
  }
};
constexpr Machine kFree{1'000'000, 550'000, 600'000};
// Another process holds a core: a parallel run waits for a thread that is not running.
constexpr Machine kBusy{1'000'000, 20'000'000, 15'000'000};

// The time of `runs` runs, in the tuner's modes, each timed where the tuner asks for it.
int64_t Run(ReplayTuner& tuner, const Machine& machine, int runs) {
  int64_t total = 0;
  for (int run = 0; run < runs; ++run) {
    const bool timed = tuner.NextIsTimed();
    const int64_t ns = machine.of(tuner.mode());
    if (timed) tuner.Record(ns);
    total += ns;
  }
  return total;
}

TEST_CASE("the tuner keeps a parallel mode only when it was faster than the walk") {
  const Schedule many(100'000, nullptr, 0);
  const auto settle = [&](const Machine& machine) {
    ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
    for (int run = 0; !tuner.settled(); ++run) {
      REQUIRE(run < 300);
      Run(tuner, machine, 1);
    }
    CHECK(tuner.decisions() == 1);
    return tuner.mode();
  };
  CHECK(settle({1'000'000, 600'000, 900'000}) == ReplayMode::kLevels);
  CHECK(settle({1'000'000, 990'000, 990'000}) == ReplayMode::kWalk);
  CHECK(settle({30'000'000, 25'000'000, 16'000'000}) == ReplayMode::kCounters);
  // Known from the start: nothing to measure, now or later.
  for (const auto& [ns, threads] : {std::pair(3., 2), std::pair(0., 1)}) {
    ReplayTuner known(many, ReplayMode::kAuto, ns, threads, false);
    CHECK(known.settled());
    CHECK_FALSE(known.NextIsTimed());
  }
}

TEST_CASE("a core that other work takes and gives back changes the mode within 100 runs") {
  const Schedule many(100'000, nullptr, 0);
  ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
  Run(tuner, kBusy, 100);
  CHECK(tuner.mode() == ReplayMode::kWalk);
  for (int change = 0; change < 3; ++change) {
    Run(tuner, kFree, 100);
    CHECK(Run(tuner, kFree, 1000) <= 1.5 * 1000 * kFree.levels);
    Run(tuner, kBusy, 100);
    CHECK(Run(tuner, kBusy, 1000) <= 1.5 * 1000 * kBusy.walk);
  }
}

TEST_CASE("a walk that became twice as fast or as slow is measured anew") {
  const Schedule many(100'000, nullptr, 0);
  ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
  Run(tuner, {1'000'000, 1'000'000, 1'000'000}, 64);
  CHECK(tuner.mode() == ReplayMode::kWalk);
  CHECK(Contains(tuner.Explain(), "1000 us by walk"));
  Run(tuner, {2'000'000, 2'000'000, 2'000'000}, 100);
  CHECK(Contains(tuner.Explain(), "2000 us by walk"));
  Run(tuner, {500'000, 500'000, 500'000}, 100);
  CHECK(Contains(tuner.Explain(), "500 us by walk"));
}

TEST_CASE("a parallel mode that other work slows down is left at once, and the plan explains why") {
  const Schedule many(100'000, nullptr, 0);
  ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
  Run(tuner, kFree, 100);
  CHECK(tuner.mode() == ReplayMode::kLevels);
  Run(tuner, kBusy, 1);
  CHECK(tuner.mode() == ReplayMode::kWalk);
  CHECK(tuner.settled());
  CHECK(Contains(tuner.Explain(), "550 us by levels"));
  CHECK(Contains(tuner.Explain(), "but other work has taken the cores since"));
}

TEST_CASE("a settled walk reads the clock in one run of 16") {
  const Schedule many(100'000, nullptr, 0);
  ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
  Run(tuner, {1'000'000, 990'000, 990'000}, 100);
  REQUIRE(tuner.mode() == ReplayMode::kWalk);
  REQUIRE(tuner.settled());
  int timed = 0;
  for (int run = 0; run < 32; ++run) timed += tuner.NextIsTimed();
  CHECK(timed == 2);
}

}  // namespace
}  // namespace replay_mode_test

#include "opkit/engine/schedule/replay_mode.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "opkit/engine/schedule/schedule.hpp"
#include "support/text.hpp"

namespace replay_mode_test {
namespace {

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

TEST_CASE("the tuner keeps a parallel mode only when it was faster than the walk") {
  using opkit::detail::ReplayTuner;
  const Schedule many(100'000, nullptr, 0);
  const auto settle = [&](int64_t walk, int64_t levels, int64_t counters) {
    ReplayTuner tuner(many, ReplayMode::kAuto, 0, 2, false);
    for (int run = 0; !tuner.settled(); ++run) {
      REQUIRE(run < 300);
      tuner.Record(tuner.mode() == ReplayMode::kWalk     ? walk
                   : tuner.mode() == ReplayMode::kLevels ? levels
                                                         : counters);
    }
    return tuner.mode();
  };
  CHECK(settle(1'000'000, 600'000, 900'000) == ReplayMode::kLevels);
  CHECK(settle(1'000'000, 990'000, 990'000) == ReplayMode::kWalk);
  CHECK(settle(30'000'000, 25'000'000, 16'000'000) == ReplayMode::kCounters);
  // Known from the start: nothing to measure.
  CHECK(ReplayTuner(many, ReplayMode::kAuto, 3, 2, false).settled());
  CHECK(ReplayTuner(many, ReplayMode::kAuto, 0, 1, false).settled());
}

}  // namespace
}  // namespace replay_mode_test

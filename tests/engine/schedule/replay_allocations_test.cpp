// Counts for every test of the program; see support/allocations.hpp.
#include "opkit/engine/schedule/replay.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/random_graph.hpp"
#include "opkit/engine/task_graph.hpp"
#include "support/count_allocations.hpp"
#include "support/watchdog.hpp"

namespace replay_allocations_test { namespace {

using opkit::NodeState;
using opkit::Replay;
using opkit::ReplayMode;
using opkit::Schedule;
using opkit::ThreadPool;

TEST_CASE("a run allocates nothing, in any mode, with or without a deadline or callback") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::mt19937 random(4);
    const RandomGraph graph = MakeRandomGraph(random, 2000, 1);
    const Schedule schedule(graph.nodes, graph.edges);
    for (const ReplayMode mode :
         {ReplayMode::kAuto, ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
      CAPTURE(threads);
      CAPTURE(ToString(mode));
      std::atomic<int64_t> ran{0};
      Replay replay(
          schedule, [&](int) { ran.fetch_add(1, std::memory_order_relaxed); },
          {.mode = mode, .ns_per_node = mode == ReplayMode::kAuto ? 0.0 : 2000.0}, pool);
      int64_t all_runs = 0;
      const auto run_all = [&] {
        ++all_runs;
        for (int run = 0; run < 30; ++run) replay.Run();
        replay.Run(std::chrono::hours(1));
        opkit::detail::Latch over(1);
        replay.RunAsync([&](std::exception_ptr) { over.CountDown(); });
        pool.Wait(over);
      };
      WarmUp(run_all, 5);
      CHECK(AllocationsOf(run_all, 1) == 0);
      CHECK(ran == all_runs * 32 * 2000);
    }
  }
}

TEST_CASE("asynchronous completions allocate nothing") {
  Watchdog watchdog;
  ThreadPool pool(2);
  std::mt19937 random(4);
  const RandomGraph graph = MakeRandomGraph(random, 60, 1, 0.3);
  const Schedule schedule(graph.nodes, graph.edges);
  struct Body {
    std::atomic<int>* mailbox;  // the node to complete, or -1
    NodeState operator()(int node) const {
      if (node % 3 != 0) return NodeState::kDone;
      int empty = -1;
      while (!mailbox->compare_exchange_weak(empty, node)) empty = -1;
      return NodeState::kPending;
    }
  };
  std::atomic<int> mailbox{-1};
  std::atomic<bool> stopping{false};
  Replay<Body> replay(schedule, {&mailbox}, {}, pool);
  std::thread completer([&] {
    while (!stopping) {
      const int node = mailbox.exchange(-1);
      if (node >= 0) replay.Complete(node);
      std::this_thread::yield();
    }
  });
  const auto run = [&] { replay.Run(); };
  WarmUp(run);
  CHECK(AllocationsOf(run, 5) == 0);
  stopping = true;
  completer.join();
}

}  // namespace
}  // namespace replay_allocations_test

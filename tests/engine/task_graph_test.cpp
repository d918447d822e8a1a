#include "opkit/engine/task_graph.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "random_graph.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace task_graph_test { namespace {

using opkit::ErrorCode;
using opkit::FrozenTaskGraph;
using opkit::ReplayMode;
using opkit::TaskGraph;
using opkit::TaskId;
using opkit::ThreadPool;

size_t At(int i) { return static_cast<size_t>(i); }

int g_plain_calls = 0;
void PlainTask() { ++g_plain_calls; }

TEST_CASE("tasks run in the order of their dependencies, each run anew") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    TaskGraph graph;
    std::vector<int> log;
    const TaskId c = graph.Add([&] { log.push_back(3); });
    const TaskId a = graph.Add([&] { log.push_back(1); });
    const TaskId b = graph.Add([&] { log.push_back(2); });
    graph.Precede(a, b);
    graph.Precede(b, c);
    graph.Precede(a, c);
    FrozenTaskGraph frozen = graph.Freeze({.threads = threads});
    for (int run = 0; run < 20; ++run) {
      log.clear();
      frozen.Run();
      CHECK(log == std::vector<int>{1, 2, 3});
    }
    CHECK(frozen.size() == 3);
    CHECK(frozen.schedule().edges_kept() == 2);
  }
}

TEST_CASE("any callable is a task: plain functions, large, move-only and over-aligned ones") {
  TaskGraph graph;
  g_plain_calls = 0;
  int small = 0, large = 0, moved = 0, aligned = 0;
  graph.Add(&PlainTask);
  graph.Add(PlainTask);
  graph.Add([&small] { ++small; });
  std::array<int, 100> payload{};
  payload[99] = 5;
  graph.Add([payload, &large] { large += payload[99]; });
  graph.Add([owned = std::make_unique<int>(7), &moved] { moved += *owned; });
  struct alignas(256) Wide {
    int* hits;
    char data[256];
    void operator()() const { *hits += reinterpret_cast<uintptr_t>(this) % 256 == 0; }
  };
  graph.Add(Wide{&aligned, {}});
  int counted = 0;
  graph.Add([&counted, state = 0]() mutable { counted = ++state; });
  FrozenTaskGraph frozen = graph.Freeze({.threads = 1});
  for (int run = 0; run < 3; ++run) frozen.Run();
  CHECK(g_plain_calls == 6);
  CHECK(small == 3);
  CHECK(large == 15);
  CHECK(moved == 21);
  CHECK(aligned == 3);
  CHECK(counted == 3);
}

TEST_CASE("a frozen graph outlives its graph, which may be frozen again and grow") {
  auto token = std::make_shared<int>(0);
  {
    auto graph = std::make_unique<TaskGraph>();
    graph->Add([token] { ++*token; });
    FrozenTaskGraph first = graph->Freeze({.threads = 1});
    graph->Add([token] { *token += 10; });
    FrozenTaskGraph second = graph->Freeze({.threads = 1});
    graph.reset();
    CHECK(token.use_count() == 3);
    first.Run();
    CHECK(*token == 1);
    second.Run();
    CHECK(*token == 12);
    FrozenTaskGraph moved = std::move(first);
    moved.Run();
    CHECK(*token == 13);
  }
  CHECK(token.use_count() == 1);
}

TEST_CASE("an empty graph runs") {
  for (const int threads : {1, 2}) {
    for (const ReplayMode mode : {ReplayMode::kAuto, ReplayMode::kLevels, ReplayMode::kCounters}) {
      FrozenTaskGraph frozen = TaskGraph().Freeze({.threads = threads, .mode = mode});
      CHECK_NOTHROW(frozen.Run());
      opkit::detail::Latch over(1);
      frozen.RunAsync([&](std::exception_ptr) { over.CountDown(); });
      ThreadPool::Global().Wait(over);
    }
  }
}

TEST_CASE("wide random graphs of many tasks run right whichever mode is settled on") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      CAPTURE(threads);
      CAPTURE(seed);
      std::mt19937 random(seed);
      const RandomGraph shape = MakeRandomGraph(random, 20'000, seed == 1 ? 0.05 : 1, 0, true);
      std::vector<int> done(At(shape.nodes));
      std::vector<std::vector<int>> preds(At(shape.nodes));
      for (const auto& edge : shape.edges) preds[At(edge.to)].push_back(edge.from);
      std::atomic<int> wrong{0};
      TaskGraph graph;
      std::vector<TaskId> ids;
      for (int i = 0; i < shape.nodes; ++i) {
        ids.push_back(graph.Add([&, i] {
          for (const int pred : preds[At(i)]) wrong += done[At(pred)] != done[At(i)] + 1;
          ++done[At(i)];
        }));
      }
      for (const auto& edge : shape.edges) graph.Precede(ids[At(edge.from)], ids[At(edge.to)]);
      FrozenTaskGraph frozen = graph.Freeze({.threads = threads});
      int runs = 0;
      while (!frozen.settled() || runs < 3) {
        frozen.Run();
        ++runs;
      }
      CHECK(runs <= 300);
      CHECK(wrong == 0);
      CHECK(std::vector<int>(At(shape.nodes), runs) == done);
    }
  }
}

TEST_CASE("in_order runs one task after the other, as added where the edges allow") {
  Watchdog watchdog;
  TaskGraph graph;
  std::vector<int> log;
  std::vector<TaskId> ids;
  for (int i = 0; i < 2000; ++i) ids.push_back(graph.Add([&log, i] { log.push_back(i); }));
  graph.Precede(ids[10], ids[4]);
  FrozenTaskGraph frozen = graph.Freeze({.threads = 2, .in_order = true});
  for (int run = 0; run < 3; ++run) {
    log.clear();
    frozen.Run();
    REQUIRE(log.size() == 2000);
    CHECK(std::vector<int>(log.begin(), log.begin() + 12) ==
          std::vector<int>{0, 1, 2, 3, 10, 4, 5, 6, 7, 8, 9, 11});
  }
}

TEST_CASE("errors, Cancel and deadlines reach the caller of Run") {
  Watchdog watchdog;
  for (const int threads : {1, 2}) {
    TaskGraph graph;
    bool fails = true;
    int after = 0;
    const TaskId first = graph.Add([&] {
      if (fails) throw std::runtime_error("as thrown");
    });
    graph.Precede(first, graph.Add([&] { ++after; }));
    FrozenTaskGraph frozen = graph.Freeze({.threads = threads});
    CHECK_THROWS_WITH_AS(frozen.Run(), "as thrown", std::runtime_error);
    CHECK(after == 0);
    fails = false;
    frozen.Run(std::chrono::seconds(60));
    CHECK(after == 1);
    CHECK(ErrorOf([&] { frozen.Run(std::chrono::nanoseconds(-1)); }).code() ==
          ErrorCode::kDeadlineExceeded);
    CHECK(after == 1);
  }
}

TEST_CASE("wrong tasks and cycles are errors that name them") {
  TaskGraph graph;
  const TaskId a = graph.Add([] {}), b = graph.Add([] {});
  auto error = ErrorOf([&] { graph.Precede(a, TaskId{2}); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() ==
        "expected two tasks of this graph, which has 2, found tasks 0 and 2; "
        "use what Add returned");
  CHECK(ErrorOf([&] { graph.Precede(TaskId{}, b); }).code() == ErrorCode::kOutOfRange);
  graph.Precede(a, b);
  graph.Precede(b, a);
  error = ErrorOf([&] { graph.Freeze({.threads = 1}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "0 -> 1 -> 0"));
}

TEST_CASE("Describe names the frozen graph, the mode and its reason") {
  TaskGraph graph;
  const TaskId a = graph.Add([] {}), b = graph.Add([] {}), c = graph.Add([] {});
  graph.Precede(a, b);
  graph.Precede(b, c);
  graph.Precede(a, c);
  CHECK(ToString(graph.Freeze({.threads = 2})) ==
        "3 tasks, 2 edges (1 more implied by these), 3 levels of at most 1 tasks\n"
        "on 2 threads by walk: the graph is a chain");
  TaskGraph wide;
  for (int i = 0; i < 1000; ++i) wide.Add([] {});
  CHECK(Contains(ToString(wide.Freeze({.threads = 2, .ns_per_task = 1000})),
                 "by levels: with 1000 ns a node, 2 threads and levels 1000 wide at most"));
  CHECK(Contains(ToString(wide.Freeze({.threads = 2, .mode = ReplayMode::kCounters})),
                 "by counters: asked for"));
  FrozenTaskGraph measured = wide.Freeze({.threads = 2});
  CHECK(Contains(ToString(measured), "walk: the first runs measure"));
}

TEST_CASE("a million runs leave memory as it was") {
  Watchdog watchdog;
  for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kCounters}) {
    TaskGraph graph;
    int count = 0;
    TaskId last = graph.Add([&] { ++count; });
    for (int i = 0; i < 4; ++i) {
      const TaskId next = graph.Add([&] { ++count; });
      graph.Precede(last, next);
      last = next;
    }
    FrozenTaskGraph frozen = graph.Freeze({.threads = 2, .mode = mode});
    for (int run = 0; run < 1000; ++run) frozen.Run();
#ifdef __GLIBC__
    const auto before = mallinfo2().uordblks;
#endif
    for (int run = 1000; run < Rounds(1'000'000); ++run) frozen.Run();
#ifdef __GLIBC__
    CHECK(mallinfo2().uordblks == before);
#endif
    CHECK(count == Rounds(5'000'000));
  }
}

}  // namespace
}  // namespace task_graph_test

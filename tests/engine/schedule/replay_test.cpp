#include "opkit/engine/schedule/replay.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "completer.hpp"
#include "engine/child_process.hpp"
#include "engine/random_graph.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace replay_test { namespace {

using opkit::Error;
using opkit::ErrorCode;
using opkit::NodeState;
using opkit::Replay;
using opkit::ReplayMode;
using opkit::Schedule;
using opkit::ScheduleEdge;
using opkit::ThreadPool;

constexpr ReplayMode kModes[] = {ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters,
                                 ReplayMode::kAuto};
constexpr ReplayMode kFixedModes[] = {ReplayMode::kWalk, ReplayMode::kLevels,
                                      ReplayMode::kCounters};

size_t At(int i) { return static_cast<size_t>(i); }

// Each node writes a number in plain memory: a node that starts before a predecessor's writes are
// visible finds an old number, and ThreadSanitizer sees the race.
class Ledger {
 public:
  explicit Ledger(const RandomGraph& graph) : preds_(At(graph.nodes)), done_(At(graph.nodes)) {
    for (const ScheduleEdge& edge : graph.edges)
      if (!edge.early) preds_[At(edge.to)].push_back(edge.from);
  }
  void Start(int node) {
    for (const int pred : preds_[At(node)])
      if (done_[At(pred)] != done_[At(node)] + 1) wrong_.fetch_add(1);
  }
  void Finish(int node) { ++done_[At(node)]; }
  bool AllDone(int runs) const {
    for (const int done : done_)
      if (done != runs) return false;
    return wrong_.load() == 0;
  }

 private:
  std::vector<std::vector<int>> preds_;
  std::vector<int> done_;
  std::atomic<int> wrong_{0};
};

TEST_CASE("every node runs once a run, after its predecessors") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (unsigned seed = 1; seed <= 12; ++seed) {
      std::mt19937 random(seed);
      const int nodes = seed == 1 ? 0 : 1 + static_cast<int>(random() % 600);
      const RandomGraph graph =
          MakeRandomGraph(random, nodes, seed % 4 == 0 ? 0.3 : 2, 0, seed % 2 == 0);
      for (const opkit::ScheduleOrder order :
           {opkit::ScheduleOrder::kStable, opkit::ScheduleOrder::kLevels}) {
        const Schedule schedule(graph.nodes, graph.edges, {.order = order});
        for (const ReplayMode mode : kModes) {
          CAPTURE(threads);
          CAPTURE(seed);
          CAPTURE(ToString(mode));
          Ledger ledger(graph);
          Replay replay(
              schedule,
              [&](int node) {
                ledger.Start(schedule.original_of(node));
                ledger.Finish(schedule.original_of(node));
              },
              {.mode = mode, .ns_per_node = mode == ReplayMode::kAuto ? 0.0 : 2000.0}, pool);
          int runs = 0;
          for (; runs < 15 || !replay.settled(); ++runs) replay.Run();
          CHECK(ledger.AllDone(runs));
          CHECK(runs <= 300);
        }
      }
    }
  }
}

TEST_CASE("ready nodes do not wait behind a long one while a thread is idle") {
  Watchdog watchdog;
  for (const int threads : {2, 8}) {
    ThreadPool pool(threads);
    std::vector<ScheduleEdge> edges;
    for (int i = 1; i < 10; ++i) edges.push_back({0, i});
    const Schedule schedule(10, edges);
    // The first one to begin of 1 to 9 ends when all of the others have.
    std::atomic<int> begun{0}, ended{0};
    Replay replay(
        schedule,
        [&](int node) {
          if (node == 0) return;
          if (begun++ == 0)
            while (ended < 8) std::this_thread::yield();
          ++ended;
        },
        {.mode = ReplayMode::kCounters, .ns_per_node = 1e6}, pool);
    for (int run = 0; run < 20; ++run) {
      begun = ended = 0;
      replay.Run();
      CHECK(ended == 9);
    }
  }
}

TEST_CASE("nodes may complete later, on other threads, in any order") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (unsigned seed = 1; seed <= 8; ++seed) {
      CAPTURE(threads);
      CAPTURE(seed);
      std::mt19937 random(seed);
      const RandomGraph graph =
          MakeRandomGraph(random, 1 + static_cast<int>(random() % 200), 2, 0.3, seed % 2 == 0);
      const Schedule schedule(graph.nodes, graph.edges, {.in_order = seed % 3 == 0});
      Ledger ledger(graph);
      std::vector<int> issued(At(graph.nodes));
      std::vector<int> kind(At(graph.nodes));
      for (int& k : kind) k = static_cast<int>(random() % 3);
      Completer completer(seed);
      struct Body {
        const RandomGraph& graph;
        const Schedule& schedule;
        Ledger& ledger;
        std::vector<int>&issued, &kind;
        Completer& completer;
        void* replay = nullptr;
        NodeState operator()(int node) {
          const int original = schedule.original_of(node);
          ledger.Start(original);
          ++issued[At(original)];
          auto complete = [this, node, original] {
            ledger.Finish(original);
            static_cast<Replay<Body>*>(replay)->Complete(node);
          };
          if (kind[At(original)] == 0) {
            ledger.Finish(original);
            return NodeState::kDone;
          }
          if (kind[At(original)] == 1)
            complete();  // before the body has returned
          else
            completer.Push(complete);
          return NodeState::kPending;
        }
      };
      Replay<Body> replay(schedule, {graph, schedule, ledger, issued, kind, completer}, {}, pool);
      replay.body().replay = &replay;
      for (int run = 0; run < 20; ++run) replay.Run();
      CHECK(ledger.AllDone(20));
      CHECK(replay.pending() == 0);
    }
  }
}

TEST_CASE("an early edge is released when the body has returned, others at completion") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    // 0 pends until 1 (early) has run; 2 must see 0 completed.
    const Schedule schedule(3, {{0, 1, true}, {0, 2}});
    std::vector<int> order;
    Replay<opkit::UniqueFunction<NodeState(int)>>* self = nullptr;
    bool completed = false;
    Replay<opkit::UniqueFunction<NodeState(int)>> replay(
        schedule,
        [&](int node) {
          if (node == 0) return NodeState::kPending;
          if (node == 1) {
            completed = true;
            self->Complete(0);
          } else {
            CHECK(completed);
          }
          return NodeState::kDone;
        },
        {}, pool);
    self = &replay;
    for (int run = 0; run < 200; ++run) {
      completed = false;
      replay.Run();
      CHECK(completed);
    }
  }
}

TEST_CASE("the first error is rethrown, dependent nodes are skipped, and a next run works") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (unsigned seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      const RandomGraph graph = MakeRandomGraph(random, 150, 2, 0, true);
      const Schedule schedule(graph.nodes, graph.edges);
      for (const ReplayMode mode : kFixedModes) {
        CAPTURE(threads);
        CAPTURE(seed);
        CAPTURE(ToString(mode));
        const int failing = static_cast<int>(random() % 150);
        Ledger ledger(graph);
        bool fails = true;
        std::vector<int> ran(150);
        Replay replay(
            schedule,
            [&](int node) {
              const int original = schedule.original_of(node);
              ++ran[At(original)];
              if (!fails) {
                ledger.Start(original);
                ledger.Finish(original);
              } else if (original == failing) {
                throw std::runtime_error("node " + std::to_string(original));
              }
            },
            {.mode = mode, .ns_per_node = 2000}, pool);
        CHECK_THROWS_WITH_AS(replay.Run(), ("node " + std::to_string(failing)).c_str(),
                             std::runtime_error);
        CHECK(ran[At(failing)] == 1);
        for (const ScheduleEdge& edge : graph.edges)
          if (edge.from == failing) CHECK(ran[At(edge.to)] == 0);
        fails = false;
        CHECK_NOTHROW(replay.Run());
        CHECK(ledger.AllDone(1));
      }
    }
  }
}

TEST_CASE("after an error, pending nodes are waited for") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    const Schedule schedule(3, {{0, 2}, {1, 2}}, {.in_order = true});
    std::thread other;
    bool written = false;
    int late = 0;
    Replay<opkit::UniqueFunction<NodeState(int)>>* self = nullptr;
    Replay<opkit::UniqueFunction<NodeState(int)>> replay(
        schedule,
        [&](int node) {
          if (node == 1) throw std::logic_error("first");
          if (node == 2) ++late;
          other = std::thread([&] {
            written = true;
            self->Complete(0);
          });
          return NodeState::kPending;
        },
        {}, pool);
    self = &replay;
    CHECK_THROWS_WITH_AS(replay.Run(), "first", std::logic_error);
    CHECK(written);
    CHECK(late == 0);
    other.join();
  }
}

TEST_CASE("the error of a completion is rethrown") {
  Watchdog watchdog;
  ThreadPool pool(2);
  const Schedule schedule(2, {{0, 1}});
  int ran = 0;
  Replay<opkit::UniqueFunction<NodeState(int)>>* self = nullptr;
  Replay<opkit::UniqueFunction<NodeState(int)>> replay(
      schedule,
      [&](int node) {
        ++ran;
        self->Complete(node, std::make_exception_ptr(7));
        return NodeState::kPending;
      },
      {}, pool);
  self = &replay;
  CHECK_THROWS_AS(replay.Run(), int);
  CHECK(ran == 1);
}

TEST_CASE("RunAsync returns at once and calls back, from inside a task of the pool too") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::mt19937 random(5);
    const RandomGraph graph = MakeRandomGraph(random, 200, 2);
    const Schedule schedule(graph.nodes, graph.edges);
    for (const ReplayMode mode : kModes) {
      CAPTURE(threads);
      CAPTURE(ToString(mode));
      Ledger ledger(graph);
      Replay replay(
          schedule,
          [&](int node) {
            ledger.Start(node);
            ledger.Finish(node);
          },
          {.mode = mode}, pool);
      for (int run = 0; run < 50; ++run) {
        opkit::detail::Latch over(1);
        std::exception_ptr error = std::make_exception_ptr(1);
        const auto start = [&] {
          replay.RunAsync([&](std::exception_ptr e) {
            error = e;
            over.CountDown();
          });
        };
        if (run % 2 == 0)
          start();
        else
          pool.Submit(start);
        pool.Wait(over);
        CHECK(error == nullptr);
      }
      CHECK(ledger.AllDone(50));
    }
  }
}

TEST_CASE("where no thread can be started, runs are done by the thread that starts them") {
  std::mt19937 random(5);
  const RandomGraph graph = MakeRandomGraph(random, 200, 2);
  const Schedule schedule(graph.nodes, graph.edges);
  for (const ReplayMode mode : kModes) {
    CAPTURE(ToString(mode));
    CHECK(ExitStatusOfChild([&] {
            RefuseThreads();
            ThreadPool pool(4);
            Ledger ledger(graph);
            Replay replay(
                schedule,
                [&](int node) {
                  ledger.Start(node);
                  ledger.Finish(node);
                },
                {.mode = mode}, pool);
            int over = 0;
            for (int run = 0; run < 10; ++run) {
              replay.Run();
              replay.RunAsync([&](std::exception_ptr error) { over += error == nullptr; });
              if (over != run + 1) return 1;
            }
            return ledger.AllDone(20) ? 0 : 2;
          }) == 0);
  }
}

TEST_CASE("where no thread can be started, a completion runs the dependent nodes itself") {
  CHECK(ExitStatusOfChild([&] {
          RefuseThreads();
          ThreadPool pool(4);
          const std::vector<ScheduleEdge> edges = {{0, 1}, {1, 2}};
          const Schedule schedule(3, edges);
          int ran = 0;
          Replay replay(
              schedule,
              [&](int node) {
                ++ran;
                return node == 1 ? NodeState::kPending : NodeState::kDone;
              },
              {.mode = ReplayMode::kCounters}, pool);
          bool over = false;
          replay.RunAsync([&](std::exception_ptr error) { over = error == nullptr; });
          if (over || ran != 2) return 1;
          replay.Complete(1);
          return over && ran == 3 ? 0 : 2;
        }) == 0);
}

TEST_CASE("the callback of RunAsync may start the next run, or destroy the replay") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    const Schedule schedule(20, {{0, 10}, {3, 11}});
    std::atomic<int> ran{0};
    auto body = [&](int) { ++ran; };
    auto replay = std::make_unique<Replay<decltype(body)>>(
        schedule, body, opkit::ReplayOptions{.mode = ReplayMode::kCounters}, pool);
    opkit::detail::Latch over(1);
    int runs = 0;
    struct Again {
      std::unique_ptr<Replay<decltype(body)>>& replay;
      int& runs;
      opkit::detail::Latch& over;
      void operator()(std::exception_ptr) {
        if (++runs < 100) {
          replay->RunAsync(Again{*this});
        } else {
          replay.reset();
          over.CountDown();
        }
      }
    };
    replay->RunAsync(Again{replay, runs, over});
    pool.Wait(over);
    CHECK(ran == 2000);
  }
}

TEST_CASE("the destructor waits for an asynchronous run") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    for (const ReplayMode mode : kFixedModes) {
      CAPTURE(threads);
      ThreadPool pool(threads);
      const Schedule schedule(50, nullptr, 0);
      std::atomic<int> ran{0};
      for (int i = 0; i < 50; ++i) {
        Replay replay(
            schedule, [&](int) { ++ran; }, {.mode = mode}, pool);
        replay.RunAsync([](std::exception_ptr) {});
      }
      CHECK(ran == 2500);
    }
  }
}

TEST_CASE("replays of one schedule run at once, nested in tasks and with loops in their bodies") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::mt19937 random(9);
    const RandomGraph graph = MakeRandomGraph(random, 60, 1.5);
    const Schedule schedule(graph.nodes, graph.edges);
    for (const ReplayMode mode : kFixedModes) {
      CAPTURE(threads);
      CAPTURE(ToString(mode));
      std::vector<std::thread> outside;
      std::atomic<int> right{0};
      for (int t = 0; t < 3; ++t) {
        outside.emplace_back([&] {
          Ledger ledger(graph);
          std::vector<int> sums(At(graph.nodes));
          Replay replay(
              schedule,
              [&](int node) {
                ledger.Start(node);
                std::atomic<int> sum{0};
                opkit::ParallelFor(
                    20, [&](int64_t i) { sum += static_cast<int>(i); }, 1);
                sums[At(node)] = sum;
                ledger.Finish(node);
              },
              {.mode = mode, .ns_per_node = 2000}, pool);
          for (int run = 0; run < 10; ++run) replay.Run();
          bool ok = ledger.AllDone(10);
          for (const int sum : sums) ok = ok && sum == 190;
          right += ok;
        });
      }
      for (std::thread& thread : outside) thread.join();
      CHECK(right == 3);
      // From tasks of the pool.
      Ledger ledger(graph);
      Replay replay(
          schedule,
          [&](int node) {
            ledger.Start(node);
            ledger.Finish(node);
          },
          {.mode = mode, .ns_per_node = 2000}, pool);
      opkit::detail::Latch over(1);
      pool.Submit([&] {
        replay.Run();
        over.CountDown();
      });
      pool.Wait(over);
      CHECK(ledger.AllDone(1));
    }
  }
}

TEST_CASE("bodies run on several threads under the invocation of the caller") {
  Watchdog watchdog;
  ThreadPool pool(2);
  const Schedule schedule(500, nullptr, 0);
  for (const ReplayMode mode : kFixedModes) {
    CAPTURE(ToString(mode));
    std::atomic<int> wrong{0}, threads{0};
    static std::atomic<int> current_run{0};
    opkit::Invocation expected;
    Replay replay(
        schedule,
        [&](int) {
          thread_local int seen_run = 0;
          if (std::exchange(seen_run, current_run.load()) != current_run) ++threads;
          while (mode != ReplayMode::kWalk && threads < 2) std::this_thread::yield();
          wrong += opkit::CurrentInvocation() != expected;
        },
        {.mode = mode, .ns_per_node = 2000}, pool);
    for (int run = 0; run < 20; ++run) {
      opkit::InvocationScope scope(opkit::Invocation::Kind::kUserCode);
      expected = opkit::CurrentInvocation();
      ++current_run;
      threads = 0;
      if (run % 2 == 0) {
        replay.Run();
      } else {
        opkit::detail::Latch over(1);
        replay.RunAsync([&](std::exception_ptr) { over.CountDown(); });
        pool.Wait(over);
      }
      CHECK(threads == (mode == ReplayMode::kWalk ? 1 : 2));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a run while another is in progress is an error that changes nothing") {
  Watchdog watchdog;
  ThreadPool pool(2);
  const Schedule schedule(3, nullptr, 0);
  for (const ReplayMode mode : kFixedModes) {
    opkit::UniqueFunction<void()> again;
    int refused = 0, ran = 0;
    Replay replay(
        schedule,
        [&](int node) {
          if (node != 0) return;
          ++ran;
          again();
        },
        {.mode = mode}, pool);
    again = [&] {
      const Error error = ErrorOf([&] { replay.Run(); });
      refused += error.code() == ErrorCode::kFailedPrecondition;
      refused += ErrorOf([&] { replay.RunAsync([](std::exception_ptr) {}); }).code() ==
                 ErrorCode::kFailedPrecondition;
    };
    CHECK_NOTHROW(replay.Run());
    CHECK(refused == 2);
    CHECK(ran == 1);
  }
}

TEST_CASE("modes that cannot have it are refused") {
  ThreadPool pool(2);
  const Schedule schedule(3, {{0, 1}});
  const auto pending = [](int) { return NodeState::kDone; };
  for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kLevels}) {
    const Error error = ErrorOf([&] { Replay(schedule, pending, {.mode = mode}, pool); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "set may_pend to false"));
    CHECK_NOTHROW(Replay(schedule, pending, {.mode = mode, .may_pend = false}, pool).Run());
  }
  const Schedule in_order(3, {{0, 1}}, {.in_order = true});
  const auto body = [](int) {};
  CHECK(Contains(
      ErrorOf([&] { Replay(in_order, body, {.mode = ReplayMode::kLevels}, pool); }).message(),
      "in_order"));
}

TEST_CASE("an in_order schedule calls bodies in the stored order in every mode it allows") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::mt19937 random(3);
    const RandomGraph graph = MakeRandomGraph(random, 200, 1, 0.3);
    const Schedule schedule(graph.nodes, graph.edges, {.in_order = true});
    for (const ReplayMode mode : {ReplayMode::kAuto, ReplayMode::kWalk, ReplayMode::kCounters}) {
      std::vector<int> order;
      Replay replay(
          schedule, [&](int node) { order.push_back(node); }, {.mode = mode}, pool);
      for (int run = 0; run < 5; ++run) {
        order.clear();
        replay.Run();
        REQUIRE(order.size() == 200);
        for (int i = 0; i < 200; ++i) CHECK(order[At(i)] == i);
      }
    }
  }
}

}  // namespace
}  // namespace replay_test

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

#include "engine/child_process.hpp"
#include "engine/random_graph.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace replay_test {
namespace {

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

// What nodes write, in plain memory: a node that starts before a predecessor's writes are visible
// finds an old number, and ThreadSanitizer sees the race.
class Ledger {
 public:
  explicit Ledger(const RandomGraph& graph) : preds_(At(graph.nodes)), done_(At(graph.nodes)) {
    for (const ScheduleEdge& edge : graph.edges) {
      if (!edge.early) preds_[At(edge.to)].push_back(edge.from);
    }
  }
  void Start(int node) {
    for (const int pred : preds_[At(node)]) {
      if (done_[At(pred)] != done_[At(node)] + 1) wrong_.fetch_add(1);
    }
  }
  void Finish(int node) { ++done_[At(node)]; }
  bool AllDone(int runs) const {
    for (const int done : done_) {
      if (done != runs) return false;
    }
    return wrong_.load() == 0;
  }

 private:
  std::vector<std::vector<int>> preds_;
  std::vector<int> done_;
  std::atomic<int> wrong_{0};
};

TEST_CASE("every node runs once a run, after what it depends on") {
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

// Completes nodes from threads of its own, in random order.
class Completer {
 public:
  explicit Completer(unsigned seed) : random_(seed) {
    for (int t = 0; t < 2; ++t) {
      threads_.emplace_back([this] { Main(); });
    }
  }
  ~Completer() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Push(opkit::UniqueFunction<void()> complete) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(complete));
    }
    wake_.notify_one();
  }

 private:
  void Main() {
    for (;;) {
      opkit::UniqueFunction<void()> complete;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        std::swap(queue_[random_() % queue_.size()], queue_.back());
        complete = std::move(queue_.back());
        queue_.pop_back();
      }
      complete();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937 random_;
  bool stopping_ = false;
  std::vector<opkit::UniqueFunction<void()>> queue_;
  std::vector<std::thread> threads_;
};

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
          if (begun++ == 0) {
            while (ended < 8) std::this_thread::yield();
          }
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
          if (kind[At(original)] == 1) {
            complete();  // before the body has returned
          } else {
            completer.Push(complete);
          }
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

TEST_CASE(
    "the first error is rethrown as it was; what depends on the node is skipped; runs again") {
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
        for (const ScheduleEdge& edge : graph.edges) {
          if (edge.from == failing) CHECK(ran[At(edge.to)] == 0);
        }
        fails = false;
        CHECK_NOTHROW(replay.Run());
        CHECK(ledger.AllDone(1));
      }
    }
  }
}

TEST_CASE("after an error, what is pending is waited for") {
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

TEST_CASE("Cancel from any thread ends the run with kCancelled and calls no further body") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (unsigned seed = 1; seed <= 20; ++seed) {
      std::mt19937 random(seed);
      const RandomGraph graph = MakeRandomGraph(random, 300, seed % 2 == 0 ? 2 : 0);
      const Schedule schedule(graph.nodes, graph.edges);
      for (const ReplayMode mode : kFixedModes) {
        CAPTURE(threads);
        CAPTURE(seed);
        CAPTURE(ToString(mode));
        std::atomic<int> ran{0};
        const int at = static_cast<int>(random() % 300);
        std::atomic<bool> reached{false}, cancelled{false};
        bool cancels = true;
        Replay replay(
            schedule,
            [&](int) {
              if (ran.fetch_add(1) != at || !cancels) return;
              reached = true;
              while (!cancelled) std::this_thread::yield();
            },
            {.mode = mode, .ns_per_node = 2000}, pool);
        std::thread other([&] {
          while (!reached) std::this_thread::yield();
          replay.Cancel();
          cancelled = true;
        });
        const Error error = ErrorOf([&] { replay.Run(); });
        other.join();
        CHECK(error.code() == ErrorCode::kCancelled);
        CHECK(Contains(error.message(), "a graph of 300 nodes was cancelled"));
        // Each other thread may have been in a body.
        CHECK(ran <= 300);
        cancels = false;
        ran = 0;
        replay.Cancel();  // of no run
        CHECK_NOTHROW(replay.Run());
        CHECK(ran == 300);
      }
    }
  }
}

TEST_CASE("a run cancelled while nodes are pending can be run again once they have completed") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (unsigned seed = 1; seed <= 6; ++seed) {
      CAPTURE(threads);
      CAPTURE(seed);
      std::mt19937 random(seed);
      const RandomGraph graph = MakeRandomGraph(random, 100, 2, 0.3);
      const Schedule schedule(graph.nodes, graph.edges);
      std::atomic<int> called{0}, cancel_at{0};
      opkit::UniqueFunction<void(int)> complete;
      opkit::UniqueFunction<void()> cancel;
      Replay replay(
          schedule,
          [&](int node) {
            if (called.fetch_add(1) == cancel_at) cancel();
            if (node % 3 == 0) return NodeState::kDone;
            complete(node);
            return NodeState::kPending;
          },
          {}, pool);
      Completer completer(seed);
      complete = [&](int node) { completer.Push([&replay, node] { replay.Complete(node); }); };
      cancel = [&] { replay.Cancel(); };
      for (int run = 0; run < 20; ++run) {
        cancel_at = run % 2 == 0 ? static_cast<int>(random() % 100) : -1;
        Error error = ErrorOf([&] {
          called = 0;
          replay.Run();
        });
        while (error.code() == ErrorCode::kFailedPrecondition) {
          std::this_thread::yield();
          error = ErrorOf([&] {
            called = 0;
            replay.Run();
          });
        }
        if (run % 2 == 0) {
          CHECK(error.code() == ErrorCode::kCancelled);
        } else {
          CHECK(error.message() == "no Error was thrown");
          CHECK(called == 100);
        }
      }
      // The completions owed by the last run are all in.
      CHECK(replay.pending() == 0);
    }
  }
}

TEST_CASE("on one thread no body is called after Cancel") {
  ThreadPool pool(1);
  const Schedule schedule(100, nullptr, 0);
  for (const ReplayMode mode : kFixedModes) {
    CAPTURE(ToString(mode));
    int ran = 0;
    opkit::UniqueFunction<void()> cancel;
    Replay replay(
        schedule,
        [&](int) {
          if (++ran == 10) cancel();
        },
        {.mode = mode}, pool);
    cancel = [&] { replay.Cancel(); };
    CHECK(ErrorOf([&] { replay.Run(); }).code() == ErrorCode::kCancelled);
    CHECK(ran == 10);
  }
}

TEST_CASE("a deadline ends a run between two nodes, in every mode") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    const Schedule schedule(1000, nullptr, 0);
    for (const ReplayMode mode : kFixedModes) {
      CAPTURE(threads);
      CAPTURE(ToString(mode));
      std::atomic<int> ran{0};
      bool waits = true;
      // A body begins after the deadline was set, so it ends after it.
      Replay replay(
          schedule,
          [&](int) {
            ++ran;
            const int64_t end = opkit::detail::MonotonicNs() + 10'000'000;
            while (waits && opkit::detail::MonotonicNs() < end) std::this_thread::yield();
          },
          {.mode = mode, .ns_per_node = 2000}, pool);
      const Error error = ErrorOf([&] { replay.Run(std::chrono::milliseconds(10)); });
      CHECK(error.code() == ErrorCode::kDeadlineExceeded);
      CHECK(ran <= threads);
      ran = 0;
      waits = false;
      CHECK_NOTHROW(replay.Run(std::chrono::hours(1)));
      CHECK(ran == 1000);
    }
  }
}

TEST_CASE("a run with a deadline returns though a node never completes; its nodes are still owed") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    const Schedule schedule(4, {{0, 1}, {2, 3}});
    std::atomic<int> ran{0};
    std::atomic<bool> issued[4] = {};
    bool pends = true;
    Replay<opkit::UniqueFunction<NodeState(int)>> replay(
        schedule,
        [&](int node) {
          ++ran;
          issued[node] = true;
          return node % 2 == 0 && pends ? NodeState::kPending : NodeState::kDone;
        },
        {}, pool);
    Error error = ErrorOf([&] { replay.Run(std::chrono::milliseconds(5)); });
    for (int ms = 10; ran < 2; ms *= 2) {  // it passed before both had begun
      for (const int node : {0, 2}) {
        if (issued[node].exchange(false)) replay.Complete(node);
      }
      ran = 0;
      error = ErrorOf([&] { replay.Run(std::chrono::milliseconds(ms)); });
    }
    CHECK(error.code() == ErrorCode::kDeadlineExceeded);
    CHECK(Contains(error.message(), "a graph of 4 nodes"));
    CHECK(Contains(error.message(), "nodes pending"));
    CHECK(ran == 2);
    CHECK(replay.pending() == 2);
    error = ErrorOf([&] { replay.Run(); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.message(), "2 are still pending"));
    replay.Complete(2, std::make_exception_ptr(1));  // too late to be anybody's error
    CHECK(ErrorOf([&] { replay.Run(); }).code() == ErrorCode::kFailedPrecondition);
    replay.Complete(0);
    pends = false;
    // What depends on them is drained by the pool's threads.
    for (error = ErrorOf([&] { replay.Run(); }); error.code() == ErrorCode::kFailedPrecondition;) {
      std::this_thread::yield();
      error = ErrorOf([&] { replay.Run(); });
    }
    CHECK(error.message() == "no Error was thrown");
    CHECK(ran == 6);
  }
}

TEST_CASE("Cancel ends a run whose node never completes; the replay may then be destroyed") {
  Watchdog watchdog;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    for (const bool async : {false, true}) {
      auto schedule = std::make_unique<Schedule>(2, std::vector<ScheduleEdge>{{0, 1}});
      std::atomic<bool> issued{false};
      auto body = [&](int) {
        issued = true;
        return NodeState::kPending;
      };
      auto replay =
          std::make_unique<Replay<decltype(body)>>(*schedule, body, opkit::ReplayOptions{}, pool);
      std::thread other([&] {
        while (!issued) std::this_thread::yield();
        replay->Cancel();
      });
      if (async) {
        opkit::Latch over(1);
        ErrorCode code{};
        replay->RunAsync([&](std::exception_ptr error) {
          code = ErrorOf([&] { std::rethrow_exception(error); }).code();
          over.CountDown();
        });
        pool.Wait(over);
        CHECK(code == ErrorCode::kCancelled);
      } else {
        CHECK(ErrorOf([&] { replay->Run(); }).code() == ErrorCode::kCancelled);
      }
      other.join();
      replay.reset();
      schedule.reset();
    }
  }
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
        opkit::Latch over(1);
        std::exception_ptr error = std::make_exception_ptr(1);
        const auto start = [&] {
          replay.RunAsync([&](std::exception_ptr e) {
            error = e;
            over.CountDown();
          });
        };
        if (run % 2 == 0) {
          start();
        } else {
          pool.Submit(start);
        }
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

TEST_CASE("where no thread can be started, a completion goes on with what depends on it") {
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
    opkit::Latch over(1);
    int runs = 0;
    struct Again {
      std::unique_ptr<Replay<decltype(body)>>& replay;
      int& runs;
      opkit::Latch& over;
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
      opkit::Latch over(1);
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
      opkit::InvocationScope scope(opkit::InvocationKind::kUserCode);
      expected = opkit::CurrentInvocation();
      ++current_run;
      threads = 0;
      if (run % 2 == 0) {
        replay.Run();
      } else {
        opkit::Latch over(1);
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
}  // namespace replay_test

// Runs that end before their graph does: cancelled, or at a deadline.
#include "opkit/engine/schedule/replay.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "completer.hpp"
#include "engine/random_graph.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace replay_cancel_test { namespace {

using opkit::Error;
using opkit::ErrorCode;
using opkit::NodeState;
using opkit::Replay;
using opkit::ReplayMode;
using opkit::Schedule;
using opkit::ScheduleEdge;
using opkit::ThreadPool;
constexpr ReplayMode kFixedModes[] = {ReplayMode::kWalk, ReplayMode::kLevels,
                                      ReplayMode::kCounters};

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
      for (const int node : {0, 2})
        if (issued[node].exchange(false)) replay.Complete(node);
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
    // The pool's threads drain the nodes that depend on them.
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
        opkit::detail::Latch over(1);
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

}  // namespace
}  // namespace replay_cancel_test

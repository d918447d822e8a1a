#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_kinds.hpp"
#include "support/error_of.hpp"

namespace engine_async_test { namespace {

using opkit::Completion;
using opkit::Engine;
using opkit::Error;
using opkit::ErrorCode;
using opkit::Var;
using std::chrono::milliseconds;

TEST_CASE("an asynchronous operation is done when its handle completes it, and no earlier") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    Handles handles;
    std::atomic<bool> ran{false};
    engine.PushAsync(handles.Keep(), {}, {v});
    engine.Push([&] { ran = true; }, {v}, {});
    Completion handle = handles.Await();
    CHECK(ErrorOf([&] { engine.WaitForVar(v, milliseconds(2)); }).code() ==
          ErrorCode::kDeadlineExceeded);
    CHECK_FALSE(ran);
    CHECK(engine.Version(v) == 0);
    CHECK(handle.SetFinished());
    CHECK_FALSE(handle);
    engine.WaitForAll();
    CHECK(ran);
    CHECK(engine.Version(v) == 1);
    CHECK(ErrorOf([&] { handle.SetFinished(); }).code() == ErrorCode::kFailedPrecondition);
  });
}

TEST_CASE(
    "an operation may complete inside its closure, or on another thread before the closure "
    "returns") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    const auto token = std::make_shared<int>(0);
    int order = 0, seen = 0;
    engine.PushAsync([](Completion done) { done.SetFinished(); }, {}, {v});
    engine.PushAsync(
        [&, token](Completion done) {
          std::thread([moved = std::move(done)]() mutable { moved.SetFinished(); }).join();
          order = 1;  // dependants wait for the closure, too
        },
        {}, {v});
    engine.Push([&] { seen = order; }, {v}, {});
    engine.WaitForAll();
    CHECK(seen == 1);
    CHECK(token.use_count() == 1);
    CHECK(engine.Version(v) == 2);
  });
}

TEST_CASE("asynchronous operations fail like other operations") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar(), w = engine.NewVar();
    bool ran = false;
    Handles handles;
    engine.PushAsync(handles.Keep(), {}, {v});
    engine.Push([&] { ran = true; }, {v}, {w});
    CHECK(handles.Await().SetFinishedWithException(
        std::make_exception_ptr(std::runtime_error("late"))));
    CHECK_THROWS_WITH_AS(engine.WaitForVar(w), "late", std::runtime_error);
    CHECK_FALSE(ran);
    engine.WaitForAll();
    // Thrown by the closure: not hidden by the handle that is dropped on the way.
    engine.PushAsync([](Completion) { throw std::runtime_error("at once"); }, {}, {v});
    CHECK_THROWS_WITH_AS(engine.WaitForAll(), "at once", std::runtime_error);
    engine.WaitForAll();
    engine.PushAsync(
        [&](Completion done) {
          handles.Keep()(std::move(done));
          throw std::runtime_error("with the handle kept");
        },
        {}, {v});
    CHECK_THROWS_WITH_AS(engine.WaitForVar(v), "with the handle kept", std::runtime_error);
    CHECK_FALSE(handles.Await().SetFinished());
    engine.WaitForAll();
  });
}

TEST_CASE("a handle that is dropped, or overwritten by another, fails its operation") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar(), w = engine.NewVar();
    engine.PushAsync([](Completion) {}, {}, {v});
    const Error dropped = ErrorOf([&] { engine.WaitForVar(v); });
    CHECK(dropped.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(dropped.message(), "found its Completion dropped"));
    Handles handles;
    engine.PushAsync(handles.Keep(), {}, {v});
    engine.WaitForVar(w);
    Completion kept = handles.Await();
    engine.PushAsync(handles.Keep(), {}, {w});
    kept = handles.Await();
    CHECK(Contains(ErrorOf([&] { engine.WaitForVar(v); }).message(), "dropped"));
    kept.SetFinished();
    engine.WaitForAll();
  });
}

TEST_CASE("a wait with a timeout ends when it has passed, and loses nothing") {
  OnThreads([](Engine& engine) {
    const Var v = engine.NewVar(), other = engine.NewVar();
    Handles handles;
    int count = 0;
    engine.PushAsync(handles.Keep(), {}, {v});
    engine.Push([&] { ++count; }, {v}, {});
    engine.Push([&] { ++count; }, {}, {v});
    for (int i = 0; i < 3; ++i) {
      const Error one = ErrorOf([&] { engine.WaitForVar(v, milliseconds(1)); });
      CHECK(one.code() == ErrorCode::kDeadlineExceeded);
      CHECK(one.message() ==
            "writes of the Var are still pending after 1000 us; they go on, and the wait can be "
            "repeated");
      const Error all = ErrorOf([&] { engine.WaitForAll(milliseconds(1)); });
      CHECK(all.code() == ErrorCode::kDeadlineExceeded);
      CHECK(Contains(all.message(), "operations are still pending after 1000 us"));
      engine.Push([&] { ++count; }, {}, {v});
      engine.WaitForVar(other, milliseconds(0));  // nothing to wait for
    }
    handles.Await().SetFinished();
    engine.WaitForAll(std::chrono::minutes(2));
    CHECK(count == 5);
  });
}

TEST_CASE("WaitForAll waits for pending operations, even if earlier waits ended or were given up") {
  OnThreads([](Engine& engine) {
    const Var v = engine.NewVar(), other = engine.NewVar();
    Handles handles;
    std::atomic<int> count{0};
    for (int round = 1; round <= 20; ++round) {
      engine.PushAsync(handles.Keep(), {}, {v});
      for (int i = 0; i < 50; ++i) engine.Push([&] { ++count; }, {}, {other});
      engine.WaitForVar(other);
      if (round % 2 == 0) {
        const Error all = ErrorOf([&] { engine.WaitForAll(std::chrono::microseconds(10)); });
        CHECK(all.code() == ErrorCode::kDeadlineExceeded);
      }
      for (int i = 0; i < 50; ++i) engine.Push([&] { ++count; }, {}, {other});
      std::atomic<bool> completed{false}, seen{false};
      std::thread waiter([&] {
        engine.WaitForAll();
        seen = completed.load();
      });
      for (int i = 0; i < 50; ++i)
        engine.Push([&] { engine.Push([&] { ++count; }, {v}, {}); }, {}, {other});
      engine.WaitForVar(other);
      completed = true;
      handles.Await().SetFinished();
      engine.WaitForAll();
      CHECK(count == 150 * round);
      waiter.join();
      CHECK(seen);
    }
  });
}

TEST_CASE("waits that time out and waits that do not, at once, amid completions") {
  OnThreads([](Engine& engine) {
    const Var v = engine.NewVar();
    std::atomic<bool> stop{false};
    std::vector<std::thread> waiters;
    for (int t = 0; t < 3; ++t) {
      waiters.emplace_back([&, t] {
        while (!stop) {
          try {
            engine.WaitForVar(v, std::chrono::microseconds(t * 20));
          } catch (const Error& error) {
            if (error.code() != ErrorCode::kDeadlineExceeded) throw;
          }
        }
      });
    }
    int value = 0;
    Handles handles;
    for (int i = 0; i < 300; ++i) {
      engine.PushAsync(handles.Keep(), {}, {v});
      engine.Push([&] { ++value; }, {}, {v});
      engine.Push([] {}, {v}, {});
      handles.Await().SetFinished();
    }
    engine.WaitForVar(v);
    stop = true;
    for (std::thread& waiter : waiters) waiter.join();
    CHECK(value == 300);
  });
}

TEST_CASE("Cancel fails operations that wait or that are never completed; running ones go on") {
  OnThreads([](Engine& engine) {
    const Var busy = engine.NewVar(), never = engine.NewVar(), after = engine.NewVar();
    std::atomic<bool> started{false}, open{false};
    bool finished = false, ran = false;
    Handles handles;
    engine.PushAsync(handles.Keep(), {}, {never}, {.name = "never"});
    Completion handle = handles.Await();
    engine.Push(
        [&] {
          started = true;
          while (!open) std::this_thread::yield();
          finished = true;
        },
        {}, {busy});
    engine.Push([&] { ran = true; }, {busy}, {after}, {.name = "after"});
    while (!started) std::this_thread::yield();
    engine.Cancel();
    const Error cancelled = ErrorOf([&] { engine.WaitForVar(never); });
    CHECK(cancelled.code() == ErrorCode::kCancelled);
    CHECK(cancelled.message() == "the operation \"never\" was cancelled");
    open = true;
    engine.WaitForVar(busy);
    CHECK(finished);
    CHECK(ErrorOf([&] { engine.WaitForVar(after); }).message() ==
          "the operation \"after\" was cancelled");
    CHECK_FALSE(ran);
    CHECK_FALSE(handle.SetFinished());                           // late: ignored
    engine.Push([&] { ran = true; }, {busy, never, after}, {});  // the engine goes on
    engine.WaitForAll();
    CHECK(ran);
  });
}

TEST_CASE("Cancel in a naive engine fails a handle, and the operations that wait for it") {
  Watchdog watchdog;
  Engine engine({.naive = true});
  const Var v = engine.NewVar();
  bool ran = false;
  Handles handles;
  engine.PushAsync(handles.Keep(), {}, {v});
  engine.Push([&] { ran = true; }, {}, {v});
  engine.Cancel();
  CHECK(ErrorOf([&] { engine.WaitForAll(); }).code() == ErrorCode::kCancelled);
  CHECK_FALSE(ran);
  CHECK_FALSE(handles.Await().SetFinished());
}

TEST_CASE("an operation that is never completed does not hang the engine's end") {
  for (int threads : {0, 1, 2, 8}) {  // 0: naive
    CAPTURE(threads);
    Watchdog watchdog;
    Handles handles;
    int skipped = 0, overwritten = 0;
    {
      Engine engine({.threads = threads, .naive = threads == 0});
      const Var v = engine.NewVar(), w = engine.NewVar();
      for (int i = 0; i < 10; ++i) {
        engine.PushAsync(handles.Keep(), {v}, {w});
        engine.Push([&] { ++skipped; }, {w}, {});
        engine.Push([&] { ++overwritten; }, {}, {w});
      }
    }
    CHECK(skipped == 0);
    CHECK(overwritten == 10);
    for (int i = 0; i < 10; ++i) CHECK_FALSE(handles.Await().SetFinished());  // long gone
  }
}

TEST_CASE("late completions of records that are used again complete nothing") {
  OnEveryEngine([](Engine& engine) {
    constexpr int kOps = 300;  // more than there are records to begin with
    Handles handles;
    std::vector<Completion> old, good;
    for (int i = 0; i < kOps; ++i) engine.PushAsync(handles.Keep(), {}, {});
    for (int i = 0; i < kOps; ++i) old.push_back(handles.Await());
    engine.Cancel();
    CHECK(ErrorOf([&] { engine.WaitForAll(); }).code() == ErrorCode::kCancelled);
    for (int i = 0; i < kOps; ++i) engine.PushAsync(handles.Keep(), {}, {});
    for (int i = 0; i < kOps; ++i) good.push_back(handles.Await());
    int late = 0, finished = 0;
    for (Completion& handle : old) late += handle.SetFinished();
    for (Completion& handle : good) finished += handle.SetFinished();
    CHECK(late == 0);
    CHECK(finished == kOps);
    engine.WaitForAll();
  });
}

TEST_CASE("cancel, completion and pushes race, and every operation ends once") {
  OnThreads([](Engine& engine) {
    std::mt19937 random(7);
    for (int round = 0; round < 100; ++round) {
      const Var v = engine.NewVar();
      Handles handles;
      constexpr int kOps = 8;
      for (int i = 0; i < kOps; ++i) engine.PushAsync(handles.Keep(), {v}, {});
      std::vector<Completion> kept;
      for (int i = 0; i < kOps; ++i) kept.push_back(handles.Await());
      engine.Push([] {}, {}, {v});
      std::thread canceller([&] { engine.Cancel(); });
      for (Completion& handle : kept) handle.SetFinished();
      canceller.join();
      try {
        engine.WaitForAll();
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kCancelled);
      }
      CHECK(engine.Version(v) == 1);
      engine.DeleteVar(v);
    }
  });
}

TEST_CASE("random operations, one in three completed elsewhere, equal serial execution") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    OnEveryEngine([&](Engine& engine) {
      std::mt19937 random(seed);
      constexpr size_t kVars = 20;
      std::vector<Var> vars;
      for (size_t i = 0; i < kVars; ++i) vars.push_back(engine.NewVar());
      std::vector<uint64_t> serial(kVars, 1), parallel(kVars, 1);
      Handles handles;
      std::atomic<int> left{1000};
      std::thread completer([&] {
        while (left-- > 0) handles.Await().SetFinished();
      });
      for (uint64_t op = 0; op < 3000; ++op) {
        const size_t r = random() % kVars;
        const size_t w = (r + 1 + random() % (kVars - 1)) % kVars;
        serial[w] = serial[w] * 31 + serial[r] + op;
        const auto body = [&parallel, op, r, w] {
          parallel[w] = parallel[w] * 31 + parallel[r] + op;
        };
        if (op % 3 != 0) {
          engine.Push(body, {vars[r]}, {vars[w]});
        } else {
          engine.PushAsync(
              [body, &handles](Completion done) {
                body();
                handles.Keep()(std::move(done));
              },
              {vars[r]}, {vars[w]});
        }
      }
      engine.WaitForAll();
      completer.join();
      CHECK(parallel == serial);
    });
  }
}

}  // namespace
}  // namespace engine_async_test

#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_kinds.hpp"
#include "support/error_of.hpp"

namespace engine_error_test { namespace {

using opkit::Engine;
using opkit::Var;

// The message of the exception that a wait throws; "" if it throws none.
template <class F>
std::string Thrown(F&& wait) {
  try {
    wait();
  } catch (const std::exception& error) {
    return error.what();
  } catch (int number) {
    return "int " + std::to_string(number);
  }
  return "";
}
std::string WaitForVar(Engine& engine, Var var) {
  return Thrown([&] { engine.WaitForVar(var); });
}
std::string WaitForAll(Engine& engine) {
  return Thrown([&] { engine.WaitForAll(); });
}
void PushFailing(Engine& engine, const char* text, opkit::VarList reads, opkit::VarList writes) {
  engine.Push([text] { throw std::runtime_error(text); }, reads, writes);
}

TEST_CASE("the wait for a Var rethrows an operation's exception, once") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    PushFailing(engine, "broken", {}, {v});
    CHECK(WaitForVar(engine, v) == "broken");
    CHECK(WaitForVar(engine, v) == "");
    CHECK(WaitForAll(engine) == "");
    PushFailing(engine, "again", {}, {v});
    CHECK(WaitForVar(engine, v) == "again");
    CHECK(engine.Version(v) == 2);
  });
}

TEST_CASE("exceptions of any type are kept") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    engine.Push([] { throw 42; }, {}, {v});
    CHECK(WaitForVar(engine, v) == "int 42");
  });
}

TEST_CASE("an Error names the operation in which it happened") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    engine.Push([] { opkit::Throw(opkit::ErrorCode::kNotFound, "no sugar"); }, {}, {v},
                {.name = "bake"});
    CHECK(WaitForVar(engine, v) == "no sugar\n  in the operation \"bake\" of an engine");
    engine.Push([] { opkit::Throw(opkit::ErrorCode::kNotFound, "no salt"); }, {}, {v});
    CHECK(WaitForVar(engine, v) == "no salt");
    engine.Push([] { throw std::runtime_error("no egg"); }, {}, {v}, {.name = "boil"});
    CHECK(WaitForVar(engine, v) == "no egg");
  });
}

TEST_CASE("operations behind a failed Var are skipped, and one wait reports the failure") {
  OnEveryEngine([](Engine& engine) {
    const Var a = engine.NewVar(), b = engine.NewVar(), c = engine.NewVar(), d = engine.NewVar();
    std::atomic<int> ran{0};
    PushFailing(engine, "first", {}, {a});
    engine.Push([&] { ++ran; }, {a}, {b});
    engine.Push([&] { ++ran; }, {b, d}, {c});
    engine.Push([&] { ++ran; }, {c}, {});
    engine.Push([&] { ++ran; }, {}, {d});
    CHECK(WaitForVar(engine, d) == "");
    CHECK(WaitForVar(engine, c) == "first");
    // Every Var that shares it is as if nothing had happened.
    CHECK(WaitForVar(engine, a) == "");
    CHECK(WaitForVar(engine, b) == "");
    CHECK(WaitForAll(engine) == "");
    CHECK(ran == 1);
    engine.Push([&] { ++ran; }, {a, b, c}, {});
    CHECK(WaitForAll(engine) == "");
    CHECK(ran == 2);
    CHECK(engine.Version(c) == 1);  // a skipped write has ended, too
  });
}

TEST_CASE("operations pushed before the wait that reports a failure are skipped") {
  OnThreads([](Engine& engine) {
    const Var a = engine.NewVar(), gate = engine.NewVar(), b = engine.NewVar();
    Handles handles;
    engine.PushAsync(handles.Keep(), {}, {gate});
    PushFailing(engine, "broken", {}, {a});
    bool ran = false, after = false;
    engine.Push([&] { ran = true; }, {a, gate}, {b});
    CHECK(WaitForVar(engine, a) == "broken");
    engine.Push([&] { after = true; }, {a, b}, {});
    handles.Await().SetFinished();
    CHECK(WaitForAll(engine) == "");
    CHECK_FALSE(ran);
    CHECK(after);
  });
}

TEST_CASE("a later write that succeeds makes the Var valid again") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar(), w = engine.NewVar();
    int value = 0;
    PushFailing(engine, "broken", {}, {v});
    engine.Push([&] { value = 3; }, {}, {v});
    engine.Push([&] { value *= 2; }, {v}, {w});
    CHECK(WaitForVar(engine, w) == "");
    CHECK(WaitForVar(engine, v) == "");
    CHECK(WaitForAll(engine) == "");
    CHECK(value == 6);
    // As long as another Var holds the error, a wait for that Var still reports it.
    PushFailing(engine, "both", {}, {v, w});
    engine.Push([] {}, {}, {v});
    CHECK(WaitForVar(engine, v) == "");
    CHECK(WaitForAll(engine) == "both");
  });
}

TEST_CASE("a write that reads the Var, too, is skipped where that has failed") {
  OnEveryEngine([](Engine& engine) {
    const Var sum = engine.NewVar();
    bool ran = false;
    PushFailing(engine, "broken", {}, {sum});
    engine.Push([&] { ran = true; }, {}, {sum}, {.update = true});
    CHECK(WaitForVar(engine, sum) == "broken");
    CHECK_FALSE(ran);
    engine.Push([&] { ran = true; }, {}, {sum}, {.update = true});
    CHECK(WaitForVar(engine, sum) == "");
    CHECK(ran);
  });
}

TEST_CASE("WaitForAll throws the failure that was pushed first, and forgets the others") {
  OnEveryEngine([](Engine& engine) {
    for (int round = 0; round < 20; ++round) {
      const Var a = engine.NewVar(), b = engine.NewVar(), c = engine.NewVar();
      std::atomic<bool> later_failed{engine.naive()};
      engine.Push(
          [&] {
            // Where there is a thread for it, the later one has failed by now.
            for (int i = 0; i < 100 && !later_failed; ++i) std::this_thread::yield();
            throw std::runtime_error("first");
          },
          {}, {a});
      engine.Push(
          [&] {
            later_failed = true;
            throw std::runtime_error("second");
          },
          {}, {b});
      PushFailing(engine, "third", {}, {c});
      PushFailing(engine, "fourth", {}, {});
      CHECK(WaitForAll(engine) == "first");
      CHECK(WaitForAll(engine) == "");
      CHECK(WaitForVar(engine, b) == "");
      CHECK(WaitForVar(engine, c) == "");
    }
  });
}

TEST_CASE("a failure that concerns no Var, or a deleted one, comes out of WaitForAll") {
  OnEveryEngine([](Engine& engine) {
    PushFailing(engine, "of nobody", {}, {});
    CHECK(WaitForAll(engine) == "of nobody");
    const Var v = engine.NewVar();
    PushFailing(engine, "of the deleted", {}, {v});
    engine.DeleteVar(v);
    CHECK(WaitForAll(engine) == "of the deleted");
    const Var next = engine.NewVar();
    CHECK(WaitForVar(engine, next) == "");
  });
}

TEST_CASE("of several threads that wait for a failed Var, one gets the exception") {
  OnEveryEngine([](Engine& engine) {
    for (int round = 0; round < 50; ++round) {
      const Var v = engine.NewVar();
      std::atomic<int> told{0};
      std::vector<std::thread> waiters;
      PushFailing(engine, "broken", {}, {v});
      for (int t = 0; t < 4; ++t)
        waiters.emplace_back([&] { told += WaitForVar(engine, v) == "broken"; });
      for (std::thread& waiter : waiters) waiter.join();
      CHECK(told == 1);
    }
  });
}

TEST_CASE("an unreported failure is no reason to stop: the engine still ends") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    for (int i = 0; i < 1000; ++i) PushFailing(engine, "dropped", {v}, {});
    PushFailing(engine, "dropped", {}, {v});
  });
}

// A serial model predicts which operations run and which error every Var holds in the end.
TEST_CASE("random operations of which some fail follow the rules, on every engine") {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    OnEveryEngine([&](Engine& engine) {
      std::mt19937 random(seed);
      constexpr size_t kVars = 20;
      std::vector<Var> vars;
      for (size_t i = 0; i < kVars; ++i) vars.push_back(engine.NewVar());
      std::vector<int> failed(kVars, -1);  // the operation whose failure the Var holds
      std::vector<char> expected, ran(3000);
      for (int op = 0; op < 3000; ++op) {
        const size_t r = random() % kVars;
        const size_t w = (r + 1 + random() % (kVars - 1)) % kVars;
        const bool fails = random() % 40 == 0;
        const int reason = failed[r];
        expected.push_back(reason < 0);
        failed[w] = reason >= 0 ? reason : fails ? op : -1;
        engine.Push(
            [&ran, op, fails] {
              ran[static_cast<size_t>(op)] = 1;
              if (fails) throw op;
            },
            {vars[r]}, {vars[w]});
      }
      std::vector<int> told;
      for (size_t i = 0; i < kVars; ++i) {
        if (failed[i] >= 0 && std::count(told.begin(), told.end(), failed[i]) == 0) {
          CHECK(WaitForVar(engine, vars[i]) == "int " + std::to_string(failed[i]));
          told.push_back(failed[i]);
        } else {
          CHECK(WaitForVar(engine, vars[i]) == "");
        }
      }
      CHECK(WaitForAll(engine) == "");
      CHECK(ran == expected);
    });
  }
}

}  // namespace
}  // namespace engine_error_test

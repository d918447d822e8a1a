#include "opkit/engine/engine.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "child_process.hpp"
#include "engine_kinds.hpp"
#include "opkit/core/tensor.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "support/error_of.hpp"

namespace engine_test { namespace {

using opkit::Engine;
using opkit::Error;
using opkit::ErrorCode;
using opkit::Var;

// Lives until the program ends, as does the tensor that its operations write; either may go first.
struct UsesEngineAtExit {
  opkit::Tensor tensor = opkit::Tensor({4}, opkit::DType::kFloat32);
  Engine engine{{.threads = 2}};
  opkit::Tensor after = opkit::Tensor({4}, opkit::DType::kFloat32);
  Var var = engine.NewVar();
  ~UsesEngineAtExit() {
    for (int i = 0; i < 100; ++i)
      engine.Push([this] { tensor.mutable_data<float>()[0] += 1; }, {}, {var});
    engine.PushAsync([](opkit::Completion) {}, {}, {var});
  }
};
UsesEngineAtExit& AtExit() {
  static UsesEngineAtExit engine;
  return engine;
}

TEST_CASE("operations that share a Var run in push order") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    std::vector<int> order;
    for (int i = 0; i < 1000; ++i) engine.Push([&order, i] { order.push_back(i); }, {}, {v});
    engine.WaitForVar(v);
    REQUIRE(order.size() == 1000);
    for (int i = 0; i < 1000; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
  });
}

TEST_CASE("the version of a Var counts its writes, not its reads") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    CHECK(engine.Version(v) == 0);
    for (int i = 0; i < 10; ++i) engine.Push([] {}, {v}, {});
    engine.WaitForAll();
    CHECK(engine.Version(v) == 0);
    for (int i = 0; i < 10; ++i) engine.Push([] {}, {}, {v});
    engine.WaitForAll();
    CHECK(engine.Version(v) == 10);
  });
}

// By versions, not by clocks: every operation must find its Vars as the pushes before left them.
TEST_CASE("read after write, write after read and write after write keep their order") {
  OnEveryEngine([](Engine& engine) {
    const Var x = engine.NewVar();
    const Var y = engine.NewVar();
    std::atomic<int> wrong{0};
    uint64_t writes = 0;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t expected = writes;
      const auto check = [&, expected] { wrong += engine.Version(x) != expected; };
      switch (i % 5) {
        case 0:
        case 1:
          engine.Push(check, {}, {x});
          ++writes;
          break;
        case 2:
          engine.Push(check, {x}, {});
          break;
        default:
          engine.Push(check, {x}, {y});
      }
    }
    engine.WaitForAll();
    CHECK(wrong == 0);
    CHECK(engine.Version(x) == writes);
  });
}

TEST_CASE("reads of one Var overlap") {
  for (int threads : {2, 8}) {
    CAPTURE(threads);
    Watchdog watchdog;
    Engine engine({.threads = threads});
    const Var v = engine.NewVar();
    std::atomic<int> arrived{0};
    engine.Push([] {}, {}, {v});
    for (int i = 0; i < threads; ++i) {  // the thread that waits is one of them
      engine.Push(
          [&, threads] {
            ++arrived;
            while (arrived < threads) std::this_thread::yield();
          },
          {v}, {});
    }
    engine.WaitForAll();
    CHECK(arrived == threads);
  }
}

// A model of the Vars: each operation changes its values so that another order gives other values.
struct Machine {
  explicit Machine(size_t vars) : values(vars, 1) {}
  void Run(uint64_t op, const std::vector<size_t>& reads, const std::vector<size_t>& writes) {
    uint64_t sum = op;
    for (size_t r : reads) sum = sum * 31 + values[r];
    for (size_t w : writes) values[w] = values[w] * 1'000'003 + sum;
  }
  std::vector<uint64_t> values;
};

TEST_CASE("10,000 random operations over 100 Vars equal serial execution, to the bit") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    OnEveryEngine([&](Engine& engine) {
      std::mt19937_64 random(seed);
      std::vector<Var> vars;
      for (int i = 0; i < 100; ++i) vars.push_back(engine.NewVar());
      Machine serial(100);
      Machine parallel(100);
      for (uint64_t op = 0; op < 10'000; ++op) {
        std::vector<size_t> ids(100);
        for (size_t i = 0; i < 100; ++i) ids[i] = i;
        std::vector<size_t> reads, writes;
        std::vector<Var> read_vars, write_vars;
        const uint64_t n_reads = random() % 4;
        const uint64_t n_writes = random() % 50 == 0 ? 12 : random() % 3;
        for (uint64_t i = 0; i < n_reads + n_writes; ++i) {
          std::swap(ids[i], ids[i + random() % (100 - i)]);
          (i < n_reads ? reads : writes).push_back(ids[i]);
          (i < n_reads ? read_vars : write_vars).push_back(vars[ids[i]]);
        }
        serial.Run(op, reads, writes);
        engine.Push([&parallel, op, reads, writes] { parallel.Run(op, reads, writes); }, read_vars,
                    write_vars, {.priority = static_cast<int>(random() % 3) - 1});
      }
      engine.WaitForAll();
      CHECK(parallel.values == serial.values);
    });
  }
}

TEST_CASE("several threads push at once, over the same Vars in any order") {
  OnEveryEngine([](Engine& engine) {
    constexpr int kPushers = 4;
    constexpr int kOps = 2000;
    std::vector<Var> vars;
    for (int i = 0; i < 6; ++i) vars.push_back(engine.NewVar());
    std::vector<int> counts(6);  // not atomic: TSan sees an overlap
    std::vector<int> last(kPushers, -1);
    std::vector<Var> own;
    for (int p = 0; p < kPushers; ++p) own.push_back(engine.NewVar());
    std::atomic<int> disordered{0};
    std::vector<std::thread> pushers;
    for (int p = 0; p < kPushers; ++p) {
      pushers.emplace_back([&, p] {
        std::mt19937 random(static_cast<unsigned>(p));
        for (int i = 0; i < kOps; ++i) {
          const size_t a = random() % 6;
          const size_t b = (a + 1 + random() % 5) % 6;
          engine.Push(
              [&, a, b, p, i] {
                ++counts[a];
                ++counts[b];
                disordered += last[static_cast<size_t>(p)] != i - 1;
                last[static_cast<size_t>(p)] = i;
              },
              {}, {vars[a], vars[b], own[static_cast<size_t>(p)]});
        }
      });
    }
    for (std::thread& pusher : pushers) pusher.join();
    engine.WaitForAll();
    int sum = 0;
    for (int count : counts) sum += count;
    CHECK(sum == 2 * kPushers * kOps);
    CHECK(disordered == 0);
  });
}

TEST_CASE("operations push operations, which WaitForAll waits for") {
  OnEveryEngine([](Engine& engine) {
    struct Step {
      Engine& engine;
      Var v;
      int& count;
      int left;
      void operator()() {
        ++count;
        if (left > 0) engine.Push(Step{engine, v, count, left - 1}, {}, {v});
      }
    };
    int count = 0;
    const Var v = engine.NewVar();
    engine.Push(Step{engine, v, count, 20'000}, {}, {v});
    engine.WaitForAll();
    CHECK(count == 20'001);
  });
}

TEST_CASE("an operation may wait for one that it pushed") {
  OnEveryEngine([](Engine& engine) {
    const Var outer = engine.NewVar();
    int result = 0;
    engine.Push(
        [&] {
          int sum = 0;
          const Var inner = engine.NewVar();
          for (int i = 1; i <= 10; ++i) engine.Push([&, i] { sum += i; }, {}, {inner});
          engine.WaitForVar(inner);
          engine.DeleteVar(inner);
          result = sum;
        },
        {}, {outer});
    engine.WaitForVar(outer);
    CHECK(result == 55);
  });
}

TEST_CASE("an operation that would wait for its own end gets an error") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    Error writer(ErrorCode::kNotFound, ""), all(ErrorCode::kNotFound, "");
    engine.Push(
        [&] {
          writer = ErrorOf([&] { engine.WaitForVar(v); });
          all = ErrorOf([&] { engine.WaitForAll(); });
        },
        {}, {v}, {.name = "me"});
    engine.WaitForAll();
    CHECK(writer.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(writer.message(), "inside an operation that writes the Var itself"));
    CHECK(all.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(all.message(), "inside \"me\""));
    bool read = false;
    engine.Push(
        [&] {
          engine.WaitForVar(v);  // nothing is to be written
          read = true;
        },
        {v}, {});
    engine.WaitForAll();
    CHECK(read);
  });
}

TEST_CASE("closures may be move-only and of any size, and end when they have run") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    int sum = 0;
    const auto token = std::make_shared<int>(0);
    engine.Push([&sum, p = std::make_unique<int>(5)] { sum += *p; }, {}, {v});
    struct {
      int values[64];
    } big{};
    big.values[63] = 7;
    engine.Push([&sum, big, p = std::make_unique<int>(1), token] { sum += big.values[63] + *p; },
                {}, {v});
    engine.Push([&sum, token] { ++sum; }, {}, {v});
    struct {
      int values[10];
    } middling{};
    middling.values[9] = 30;
    engine.Push([&sum, middling, token] { sum += middling.values[9]; }, {}, {v});
    engine.WaitForVar(v);
    CHECK(sum == 44);
    CHECK(token.use_count() == 1);
  });
}

TEST_CASE("of the operations that are ready, the highest priority starts first, on every queue") {
  Watchdog watchdog;
  Engine engine({.threads = 1});
  std::atomic<bool> running{false}, open{false};
  std::vector<int> order;
  engine.Push(
      [&] {
        running = true;
        while (!open) std::this_thread::yield();
      },
      {}, {});
  while (!running) std::this_thread::yield();  // else those of a higher priority come before it
  const Var gate = engine.NewVar();
  engine.Push([] {}, {}, {gate});
  for (int priority : {0, -3, 5, 1, 0, 5, -1}) {
    engine.Push([&order, priority] { order.push_back(priority); }, {}, {}, {.priority = priority});
    // The operations become ready all at once, when the write before them is done.
    engine.Push([&order, priority] { order.push_back(priority); }, {gate}, {},
                {.priority = priority});
  }
  open = true;
  engine.WaitForAll();
  REQUIRE(order.size() == 14);
  // The write of `gate` has priority 0: only those that waited for it may come after 0.
  CHECK(std::vector<int>(order.begin(), order.begin() + 3) == std::vector<int>{5, 5, 1});
  CHECK(std::vector<int>(order.end() - 4, order.end()) == std::vector<int>{-1, -1, -3, -3});
  CHECK(std::count(order.begin(), order.end(), 5) == 4);
}

TEST_CASE("a long chain of operations starves no other") {
  Watchdog watchdog;
  Engine engine({.threads = 1});
  const Var chain = engine.NewVar();
  std::atomic<bool> stop{false};
  bool served = false;
  struct Link {
    Engine& engine;
    Var chain;
    std::atomic<bool>& stop;
    void operator()() {
      if (!stop) engine.Push(Link{engine, chain, stop}, {}, {chain});
    }
  };
  engine.Push(Link{engine, chain, stop}, {}, {chain});
  engine.Push(
      [&] {
        served = true;
        stop = true;
      },
      {}, {});
  engine.WaitForAll();
  CHECK(served);
}

TEST_CASE("a Var twice among the reads or among the writes counts once") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar(), w = engine.NewVar();
    int ran = 0;
    engine.Push([&] { ++ran; }, {v, v}, {w, w, w});
    engine.Push([&] { ++ran; }, {w, v, w}, {});
    engine.WaitForAll();
    CHECK(ran == 2);
    CHECK(engine.Version(w) == 1);
  });
}

TEST_CASE("an impossible push is an error with the reason, and changes nothing") {
  OnEveryEngine([](Engine& engine) {
    Engine other({.threads = 1});
    const Var v = engine.NewVar(), w = engine.NewVar(), foreign = other.NewVar();
    const Var deleted = engine.NewVar();
    engine.DeleteVar(deleted);
    bool ran = false;
    const auto token = std::make_shared<int>(0);
    const auto fn = [&ran, token] { ran = true; };
    const auto expect = [&](auto&& push, ErrorCode code, const char* part) {
      const Error error = ErrorOf(push);
      CHECK(error.code() == code);
      CAPTURE(error.message());
      CHECK(Contains(error.message(), part));
    };
    expect(
        [&] {
          engine.Push(fn, {w, v}, {v}, {.name = "x"});
        },
        ErrorCode::kInvalidArgument,
        "expected each Var in reads or in writes of \"x\", found one in both");
    expect([&] { engine.Push(fn, {v}, {foreign}); }, ErrorCode::kInvalidArgument,
           "one of another engine");
    expect([&] { engine.Push(fn, {Var()}, {v}); }, ErrorCode::kInvalidArgument, "an empty Var");
    expect(
        [&] {
          engine.Push(fn, {v, deleted}, {w});
        },
        ErrorCode::kFailedPrecondition, "found one after DeleteVar");
    expect([&] { engine.WaitForVar(deleted); }, ErrorCode::kFailedPrecondition, "DeleteVar");
    expect([&] { engine.DeleteVar(deleted); }, ErrorCode::kFailedPrecondition, "DeleteVar");
    expect([&] { static_cast<void>(engine.Version(foreign)); }, ErrorCode::kInvalidArgument,
           "of this engine");
    engine.WaitForAll();
    CHECK_FALSE(ran);
    CHECK(token.use_count() == 2);
    CHECK(engine.Version(v) == 0);
    engine.Push(fn, {v}, {w});  // nothing was left behind in the Vars
    engine.WaitForAll();
    CHECK(ran);
  });
}

TEST_CASE("a Var is deleted while operations still use it; the next one starts afresh") {
  OnEveryEngine([](Engine& engine) {
    std::atomic<int> count{0};
    for (int i = 0; i < 1000; ++i) {
      const Var v = engine.NewVar();
      CHECK(engine.Version(v) == 0);
      engine.Push([&] { ++count; }, {}, {v});
      engine.Push([&] { ++count; }, {v}, {});
      engine.DeleteVar(v);
      if (i % 10 == 0) engine.WaitForAll();
    }
    engine.WaitForAll();
    CHECK(count == 2000);
  });
}

TEST_CASE("an operation has an invocation of its own, inside the one that pushed it") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    opkit::Invocation seen, outside{1, 2, opkit::Invocation::Kind::kCopy};
    opkit::Invocation pushed;
    {
      opkit::InvocationScope scope(opkit::Invocation::Kind::kOperator);
      pushed = opkit::CurrentInvocation();
      engine.Push([&] { seen = opkit::CurrentInvocation(); }, {}, {v});
    }
    engine.Push([&] { outside = opkit::CurrentInvocation(); }, {}, {v});
    engine.WaitForVar(v);
    CHECK(seen.parent == pushed.id);
    CHECK(seen.kind == opkit::Invocation::Kind::kTask);
    CHECK(outside.parent == 0);
    CHECK(outside.id != 0);
    CHECK(outside.id != seen.id);
  });
}

TEST_CASE("operations use the engine's own pool for their loops") {
  OnThreads([](Engine& engine) {
    const Var v = engine.NewVar();
    std::atomic<int> count{0};
    for (int i = 0; i < 50; ++i) {
      engine.Push(
          [&] {
            opkit::ParallelFor(
                100, [&](int64_t) { ++count; }, 1);
          },
          {}, {});
    }
    engine.Push([] {}, {}, {v});
    engine.WaitForAll();
    CHECK(count == 5000);
  });
}

TEST_CASE("engines start and stop, unused and with work queued") {
  Watchdog watchdog;
  for (int round = 0; round < 100; ++round) {
    Engine unused({.threads = 2});
    std::atomic<int> count{0};
    {
      Engine own({.threads = 1 + round % 3}), shared, naive({.naive = true});
      for (Engine* engine : {&own, &shared, &naive}) {
        const Var v = engine->NewVar();
        for (int i = 0; i < 20; ++i) engine->Push([&] { ++count; }, {}, {v});
      }
    }
    CHECK(count == 60);
  }
}

TEST_CASE("a forked child may destroy its parent's engine, whose operations stay with the parent") {
  Watchdog watchdog;
  auto engine = std::make_unique<Engine>(opkit::EngineOptions{.threads = 2});
  std::atomic<bool> open{false};
  int count = 0;
  const Var v = engine->NewVar();
  engine->Push(
      [&] {
        while (!open) std::this_thread::yield();
      },
      {}, {v});
  for (int i = 0; i < 10; ++i) engine->Push([&] { ++count; }, {}, {v});
  CHECK(ExitStatusOfChild([&] {
          engine.reset();
          return count == 0 ? 0 : 1;
        }) == 0);
  open = true;
  engine->WaitForAll();
  CHECK(count == 10);
}

TEST_CASE("where no thread can be started, operations run on the one that pushes") {
  CHECK(ExitStatusOfChild([] {
          RefuseThreads();
          Engine engine({.threads = 4});
          const Var v = engine.NewVar();
          int count = 0;
          for (int i = 0; i < 100; ++i) {
            engine.Push(
                [&] {
                  ++count;
                  engine.Push([&] { ++count; }, {}, {v});
                },
                {}, {v});
          }
          engine.WaitForAll();
          return count == 200 ? 0 : 3;
        }) == 0);
}

TEST_CASE("an engine may be destroyed after main, with its tensors alive or gone") {
  UsesEngineAtExit& at_exit = AtExit();
  at_exit.engine.Push([&] { at_exit.tensor.mutable_data<float>()[0] = 1; }, {}, {at_exit.var});
  at_exit.engine.WaitForAll();
  CHECK(at_exit.tensor.data<float>()[0] == 1);
}

TEST_CASE("several threads wait for one Var and for all") {
  OnEveryEngine([](Engine& engine) {
    const Var v = engine.NewVar();
    for (int round = 0; round < 50; ++round) {
      int value = 0;  // not atomic: a wait that returns too early is a race
      for (int i = 0; i < 20; ++i) engine.Push([&] { ++value; }, {}, {v});
      std::atomic<int> right{0};
      std::vector<std::thread> waiters;
      for (int t = 0; t < 4; ++t) {
        waiters.emplace_back([&, t] {
          t == 0 ? engine.WaitForAll() : engine.WaitForVar(v);
          right += value == 20;
        });
      }
      for (std::thread& waiter : waiters) waiter.join();
      CHECK(right == 4);
    }
  });
}

}  // namespace
}  // namespace engine_test

#include "opkit/engine/engine.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/allocations.hpp"
#include "support/watchdog.hpp"

namespace engine_allocations_test { namespace {

using opkit::Completion;
using opkit::Engine;
using opkit::Var;

TEST_CASE("once it is warm an engine allocates nothing for a push, a wait or a completion") {
  for (const int threads : {0, 1, 2, 8}) {  // 0: naive
    CAPTURE(threads);
    Watchdog watchdog;
    Engine engine({.threads = threads, .naive = threads == 0});
    std::vector<Var> vars;
    for (int i = 0; i < 100; ++i) vars.push_back(engine.NewVar());
    int64_t sum = 0, rounds = 0;
    const auto round = [&] {
      ++rounds;
      for (size_t i = 0; i < 1000; ++i) {
        const Var a = vars[i % 100], b = vars[(i + 7) % 100], c = vars[(i + 31) % 100];
        engine.Push([] {}, {}, {a});
        engine.Push([] {}, {a, b}, {c}, {.priority = static_cast<int>(i % 3)});
        const int64_t captured[7] = {1};  // with the reference, 64 bytes
        engine.Push([&sum, captured] { sum += captured[0]; }, {}, {vars[0]});
        engine.PushAsync([](Completion done) { done.SetFinished(); }, {b}, {a});
        const Var temporary = engine.NewVar();
        engine.Push([] {}, {}, {temporary});
        engine.DeleteVar(temporary);
      }
      engine.WaitForVar(vars[0]);
      engine.WaitForAll();
    };
    WarmUp(round, 5);
    // Five rounds are 25,000 operations: one allocation for each of a kind would be 5,000.
    CHECK(AllocationsOf(round, 5) == 0);
    CHECK(sum == 1000 * rounds);
  }
}

}  // namespace
}  // namespace engine_allocations_test

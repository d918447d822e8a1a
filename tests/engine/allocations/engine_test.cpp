#include "opkit/engine/engine.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "../../allocations.hpp"
#include "../watchdog.hpp"

namespace {

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
    int64_t sum = 0;
    const auto round = [&] {
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
    for (int64_t before = -1; before != Allocations();) {
      before = Allocations();
      for (int i = 0; i < 5; ++i) round();
    }
    sum = 0;
    const int64_t before = Allocations();
    for (int i = 0; i < 10; ++i) round();
    // 50,000 operations. A thread that starts only now, and what runs on it, are made once.
    CHECK(Allocations() - before <= 3 * threads);
    CHECK(sum == 10'000);
  }
}

}  // namespace

#include "opkit/graph/plan/shared_arenas.hpp"

#include <doctest/doctest.h>

#include "graph/nodes.hpp"
#include "opkit/graph/executor.hpp"
#include "support/layouts.hpp"
#include "support/test_allocator.hpp"

namespace shared_arenas_test {

using namespace opkit;

TEST_CASE("each device has one arena, as large as the largest request") {
  detail::SharedArenas arenas;
  const Device cpu;
  CHECK_FALSE(arenas.Take(cpu, 0));
  const void* const first = arenas.Take(cpu, 1000).get();
  CHECK(arenas.Take(cpu, 1000).get() == first);
  CHECK(arenas.Take(cpu, 10).get() == first);
  CHECK(arenas.MustGrow(cpu, 5000));
  CHECK_FALSE(arenas.MustGrow(cpu, 1000));
  const Storage kept = arenas.Take(cpu, 1000);
  const Storage larger = arenas.Take(cpu, 5000);
  CHECK(larger->nbytes() >= 5000);
  CHECK(larger != kept);
  CHECK(arenas.Take(cpu, 1000) == larger);
  arenas.Abandon();
  CHECK(arenas.Take(cpu, 1000) != larger);
}

TEST_CASE("the shapes of an executor share its arena, and hold no results of the others") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  for (const auto& [from, to] : {std::pair("X", "P"), {"P", "Q"}, {"Q", "R"}, {"R", "Y"}})
    graph.AddNode(OperatorDef("InLayouts", {from}, {to}));
  graph.AddOutput("Y");
  Executor executor(Compile(graph, {.threads = 1}));
  Allocator& allocator = GetAllocator(DeviceType::kCPU);
  const auto run = [&](int64_t n) {
    const Tensor x = Tensor::From<float>({n}, std::vector<float>(static_cast<size_t>(n), 1.f));
    const NamedTensors out = executor.Run({{"X", x}});
    for (const float y : out.Get("Y").ToVector<float>()) CHECK(y == 16);
  };
  const int64_t before = allocator.live_bytes();
  run(1000);  // grows twice
  run(50'000);
  run(100'000);
  const int64_t largest = allocator.live_bytes() - before;
  CHECK(largest >= 3 * 400'000);  // two values between nodes, and the result
  CHECK(largest < 3 * 400'000 + 10'000);
  for (const int64_t n : {90'000, 1000, 80'000, 70'000, 50'000, 60'000, 100'000, 1}) run(n);
  CHECK(allocator.live_bytes() - before <= largest);
}

}  // namespace shared_arenas_test

// A bound run allocates nothing, and memory stays flat however often it runs.
#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/op/registration.hpp"
#include "random_graph.hpp"
#include "support/count_allocations.hpp"
#include "support/sanitizers.hpp"

namespace executor_allocations_test {
using namespace opkit;

namespace {

Graph OfRandomOperators(DeviceType device) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {4, 4});
  for (int i = 0; i < 40; ++i) {
    const char* const kTypes[] = {"Add", "Mul", "Relu", "Scale"};
    const std::string a = i == 0 ? "x" : StrCat("v", i - 1);
    const std::string b = i < 3 ? "x" : StrCat("v", (i * 7) % (i - 1));
    OperatorDef def(kTypes[i % 4]);
    def.Input(a).Output(StrCat("v", i)).Device(device);
    if (i % 4 < 2) def.Input(b);
    g.AddNode(std::move(def));
  }
  g.AddOutput("v39");
  return g;
}

}  // namespace

TEST_CASE("a bound run allocates nothing, in any mode") {
  for (int threads : {1, 2, 8})
    for (ReplayMode mode :
         {ReplayMode::kAuto, ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
      INFO("threads ", threads, " mode ", std::string(ToString(mode)));
      Executor exec(Compile(OfRandomOperators(DeviceType::kCPU),
                            {.threads = threads, .schedule = {.mode = mode}}));
      exec.Bind("x", Tensor::From<float>({4, 4}, std::vector<float>(16, 0.5f)));
      exec.Bind("v39", Tensor({4, 4}, DType::kFloat32));
      WarmUp([&] { exec.Run(); });
      CHECK(AllocationsOf([&] { exec.Run(); }) == 0);
    }
}

TEST_CASE("a bound run that returns its outputs by a handle allocates nothing either") {
  Executor exec(Compile(OfRandomOperators(DeviceType::kCPU), {.threads = 2}));
  exec.Bind("x", Tensor::From<float>({4, 4}, std::vector<float>(16, 0.5f)));
  WarmUp([&] { exec.Run(); });
  int64_t elements = 0;
  CHECK(AllocationsOf([&] {
          exec.Run();
          elements += exec.output("v39").numel();
        }) == 0);
  CHECK(elements > 0);
}

TEST_CASE("asynchronous runs of one graph come to use the same memory again") {
  Executor exec(Compile(OfRandomOperators(DeviceType::kCPU), {.threads = 2}));
  exec.Bind("x", Tensor::From<float>({4, 4}, std::vector<float>(16, 0.5f)));
  WarmUp([&] { exec.RunAsync().Finish(); });
  CHECK(AllocationsOf([&] { exec.RunAsync().Finish(); }) == 0);
}

TEST_CASE("a million runs leave the memory as it was") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Scale").Input("X").Output("A").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Relu").Input("A").Output("Y"));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 1}));
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  exec.Bind("X", x);
  exec.Run();
  const Allocator& allocator = GetAllocator(DeviceType::kCPU);
  const int64_t live = allocator.live_bytes();
  const int64_t before = Allocations();
  for (int run = 0; run < Rounds(1'000'000); ++run) exec.Run();
  CHECK(Allocations() - before < 1000);                       // of other threads, if any
  for (int run = 0; run < 1000; ++run) exec.Run({{"X", x}});  // results that are dropped
  CHECK(allocator.live_bytes() == live);
  CHECK(exec.output("Y").ToVector<float>() == std::vector<float>{2, 4});
}

}  // namespace executor_allocations_test

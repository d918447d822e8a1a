#include <doctest/doctest.h>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/random.hpp"
#include "support/backends.hpp"

namespace random_test {
using namespace opkit;

namespace {

// The output of two runs of a node without inputs on a device.
std::vector<std::vector<float>> TwoRuns(const OperatorDef& def, Device device) {
  Graph graph;
  graph.AddNode(OperatorDef(def).Device(device));
  graph.AddOutput("y");
  Executor executor(Compile(graph));
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    executor.Run();
    runs.push_back(OnHost(executor.output("y")).ToVector<float>());
  }
  return runs;
}

}  // namespace

TEST_CASE("random numbers on the device are those of the CPU, by seed and by run") {
  constexpr Device kCuda{DeviceType::kCUDA, 0};
  for (const char* op : {"RandomUniform", "RandomNormal"})
    for (const bool has_seed : {true, false}) {
      OperatorDef def(op, {}, {"y"}, {{"shape", std::vector<int64_t>{3, 5}}});
      if (has_seed) def.Arg("seed", 7.f);
      SetSeed(1);
      const auto expected = TwoRuns(def, Device());
      SetSeed(1);
      const auto found = TwoRuns(def, kCuda);
      CHECK(found == expected);
      CHECK((found[0] == found[1]) == has_seed);
    }
}

}  // namespace random_test

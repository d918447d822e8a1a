// The nine graphs of the onnx package whose weights are left out: nine known networks, with the
// package's own equal weights and outputs, with weights made by rule, and their memory plans.
#include <doctest/doctest.h>

#include <map>

#include "expected.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/interop/onnx.hpp"
#include "support/backends.hpp"
#include "support/sanitizers.hpp"

using namespace opkit;

namespace {

#ifdef OPKIT_CUDA_EMULATION  // on one thread of the host, the others take minutes
const char* const kNetworks[] = {"shufflenet", "squeezenet"};
#else
const char* const kNetworks[] = {"bvlc_alexnet", "densenet121", "inception_v1",
                                 "inception_v2", "resnet50",    "shufflenet",
                                 "squeezenet",   "vgg19",       "zfnet512"};
#endif

std::string PathOf(const std::string& network, const std::string& end) {
  return DataFolder() + "/onnx-1.22.0/onnx/backend/test/data/light/light_" + network + end;
}

NamedTensors RunOnRamp(const Graph& graph, const PlanOptions& options = {}) {
  REQUIRE(graph.inputs().size() == 1);
  Executor executor(Compile(graph, options));
  return executor.Run({{graph.inputs()[0].name, Ramp()}});
}

// Memory intervals of a plan without in-place outputs: each float tensor that depends on the input,
// from its producer to its last reader.
[[maybe_unused]] std::vector<MemoryInterval> Intervals(const Plan& plan) {
  const Graph& graph = plan.graph();
  std::map<std::string, size_t> buffers;
  std::vector<MemoryInterval> out;
  const auto make = [&](const std::string& name, int64_t step) {
    const TensorInfo info = plan.type(name);
    if (info.dtype != DType::kFloat32) return;
    const int64_t bytes = 4 * info.shape.ToShape().numel();
    buffers[name] = out.size();
    out.push_back({.lower = step, .upper = step + 1, .size = bytes});
  };
  make(graph.inputs()[0].name, 0);
  int64_t step = 0;
  for (const OperatorDef& def : graph.nodes()) {
    bool of_input = false;
    for (const std::string& name : def.inputs())
      if (const auto found = buffers.find(name); found != buffers.end()) {
        out[found->second].upper = step + 1;
        of_input = true;
      }
    if (!of_input) continue;
    for (const std::string& name : def.outputs())
      if (!name.empty()) make(name, step);
    ++step;
  }
  return out;
}

}  // namespace

// Weights that are all equal make a thousand equal sums in squeezenet, so large that its softmax
// turns the rounding of another order of summation into another answer: it runs by the plain
// kernels.
TEST_CASE("light models give the corpus's outputs") {
  for (const std::string network : kNetworks) {
    CAPTURE(network);
    const bool sensitive = network == "squeezenet";
    if (sensitive) OpRegistry::Global().SetPreference(DeviceType::kCPU, {kReferenceBackend});
    struct Restore {
      ~Restore() { OpRegistry::Global().SetPreference(DeviceType::kCPU, {}); }
    } restore;
    const NamedTensors outputs = RunOnRamp(LoadOnnx(PathOf(network, ".onnx")));
    REQUIRE(outputs.size() == 1);
    const Tensor expected = ReadOnnxTensor(ReadAll(PathOf(network, "_output_0.pb")));
    CHECK(Difference(outputs.begin()->tensor, expected) == "");
  }
}

TEST_CASE("light models with weights give ONNX Runtime's results") {
  for (const std::string network : kNetworks) {
    CAPTURE(network);
    const Graph graph = WithWeights(BeforeSquashing(LoadOnnx(PathOf(network, ".onnx"))));
    const NamedTensors outputs = RunOnRamp(graph, OptionsOfModels());
    const ExpectedOutput& expected = ExpectedOutputs().at("light_" + network)[0];
    CHECK(outputs.begin()->name == expected.name);
    CHECK(ModelDifference(OnHost(outputs.begin()->tensor), expected) == "");
  }
}

TEST_CASE("light models run on reference") {
  OpRegistry::Global().SetPreference(DeviceType::kCPU, {kReferenceBackend});
  for (const std::string network : {"shufflenet", "squeezenet"}) {
    CAPTURE(network);
    const Graph graph = WithWeights(BeforeSquashing(LoadOnnx(PathOf(network, ".onnx"))));
    const NamedTensors outputs = RunOnRamp(graph, {.threads = 1});
    CHECK(ModelDifference(outputs.begin()->tensor, ExpectedOutputs().at("light_" + network)[0]) ==
          "");
  }
  OpRegistry::Global().SetPreference(DeviceType::kCPU, {});
}

#ifndef OPKIT_TESTS_ADDRESS_SANITIZER  // sizes of plans are the same; graph_test runs the planner
TEST_CASE("memory plans of light models are as small as they can be") {
  for (const std::string network : kNetworks) {
    CAPTURE(network);
    const Graph graph = LoadOnnx(PathOf(network, ".onnx"));
    const Plan plan = Compile(graph, {.threads = 1});
    const double most = network == "densenet121" ? 8.2 / 8.039 : 1;
    CHECK(plan.memory().ratio() <= most);
    CHECK(Compile(graph, {.threads = 2}).memory().ratio() <= most);
    const MemoryPlan floats = PlanMemory(Intervals(plan));
    if (network == "densenet121") {
      CHECK(floats.lower_bound_bytes == 8'429'568);  // 8.039 MiB
      CHECK(floats.arena_bytes <= 8'598'323);        // 8.2 MiB
    } else {
      CHECK(floats.arena_bytes == floats.lower_bound_bytes);
    }
  }
}
#endif

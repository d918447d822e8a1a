// Plans for CUDA and the CPU: shapes stay on the host, and large tensors on the device.
#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/shape_of.hpp"

namespace shapes_test {
using namespace opkit;

namespace {

constexpr Device kCuda{DeviceType::kCUDA, 0};

// Returns "cpu to cuda" for each copy of the plan, and "T on cuda" for each other node, in the
// order in which they run.
std::string Places(const Plan& plan) {
  std::vector<std::string> places;
  for (const Explanation::Node& node : plan.Explain().nodes) {
    if (node.is_converter()) {
      places.push_back(StrCat(node.from, " to ", node.to));
      continue;
    }
    const std::string& device = node.candidates[static_cast<size_t>(node.chosen)].device;
    places.push_back(StrCat(node.name, " on ", device.empty() ? "cpu" : device));
  }
  return StrCat(places);
}

}  // namespace

TEST_CASE("a reshape to a computed shape copies no large tensor to the host") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 6});
  graph.AddConstant("rest", Tensor::From<int64_t>({1}, {-1}));
  graph.AddNode(OperatorDef("Transpose", {"X"}, {"T"}));
  graph.AddNode(OperatorDef("Shape", {"T"}, {"S"}).Arg("start", int64_t{1}));
  graph.AddNode(OperatorDef("Concat", {"S", "rest"}, {"L"}).Arg("axis", int64_t{0}));
  graph.AddNode(OperatorDef("Reshape", {"T", "L"}, {"R"}));
  graph.AddNode(OperatorDef("Transpose", {"R"}, {"Y"}));
  graph.AddOutput("Y");
  const PassList no_passes;  // they would compute the shape beforehand
  const Plan plan = Compile(graph, {.threads = 1, .passes = &no_passes, .devices = {kCuda, {}}});
  Executor executor(plan);
  std::vector<float> x(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Tensor input = Tensor::From<float>({4, 6}, x);
  Tensor y;
  Copy(executor.Run({{"X", input}}).Get("Y"), &y);
  const Tensor t = Invoke("Transpose", {input})[0].View({4, 6});
  CHECK(y.ToVector<float>() == Invoke("Transpose", {t})[0].ToVector<float>());
  CHECK(Places(executor.plan()) ==
        "[cpu to cuda, T on cuda, S on cpu, L on cpu, R on cuda, Y on cuda]");
}

TEST_CASE("a node whose output has a shape that only a run decides stays on the host, if it may") {
  const auto run = [](const char* output, const std::vector<Device>& devices) {
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {6});
    graph.AddInput("S", DType::kInt64, {2});
    graph.AddNode(OperatorDef("Transpose", {"X"}, {"T"}));
    graph.AddNode(OperatorDef("Reshape", {"T", "S"}, {"R"}));
    if (output != std::string("R")) graph.AddNode(OperatorDef("Transpose", {"R"}, {output}));
    graph.AddOutput(output);
    Executor executor(Compile(graph, {.threads = 1, .devices = devices}));
    Tensor found;
    Copy(executor
             .Run({{"X", Tensor::From<float>({6}, {1, 2, 3, 4, 5, 6})},
                   {"S", Tensor::From<int64_t>({2}, {3, -1})}})
             .Get(output),
         &found);
    CHECK(found.numel() == 6);
    return Places(executor.plan());
  };
  CHECK(run("Y", {kCuda, {}}) == "[cpu to cuda, T on cuda, cuda to cpu, R on cpu, Y on cpu]");
  CHECK(run("R", {kCuda, {}}) == "[cpu to cuda, T on cuda, R on cuda]");  // no node reads it
  CHECK(run("Y", {kCuda}) == "[cpu to cuda, T on cuda, R on cuda, Y on cuda]");
}

}  // namespace shapes_test

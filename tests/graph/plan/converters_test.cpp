#include "opkit/graph/plan/converters.hpp"

#include <doctest/doctest.h>

#include "graph/plan/steps_of.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/run_profile.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/sim_device.hpp"
#include "support/tensors.hpp"

namespace converters_test {
namespace {

using namespace opkit;
using sim_device::AddOneOp;
using sim_device::kSim;

const Device kOnSim{kSim, 0};

OPERATOR_SCHEMA(AddOneThere).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(AddOneThere, AddOneOp<CPUContext>);
OPKIT_REGISTER_DEVICE_OPERATOR(kSim, AddOneThere, AddOneOp<sim_device::SimContext>);
OPERATOR_SCHEMA(AddOneHere).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(AddOneHere, AddOneOp<CPUContext>);

OPERATOR_SCHEMA(AddOneOnlyThere).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_DEVICE_OPERATOR(kSim, AddOneOnlyThere, AddOneOp<sim_device::SimContext>);

Graph Chain(std::initializer_list<OperatorDef> nodes) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {3});
  std::string last = "X";
  int count = 0;
  for (OperatorDef node : nodes) {
    const std::string next = ++count == static_cast<int>(nodes.size()) ? "Y" : StrCat("V", count);
    graph.AddNode(node.Input(std::exchange(last, next)).Output(next));
  }
  graph.AddOutput("Y");
  return graph;
}
using Steps = std::vector<std::string>;

Floats Run(const Plan& plan) {
  Executor executor(plan);
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  executor.Run({{"X", x}});
  Tensor host;
  Copy(executor.Run({{"X", x}}).Get("Y"), &host);
  return host.ToVector<float>();
}
const OperatorDef kThere("AddOneThere"), kHere("AddOneHere");

}  // namespace

TEST_CASE("values are copied where neighbours are on other devices, once to each") {
  const sim_device::SimDevice device;
  const Plan plan = Compile(
      Chain({kHere, OperatorDef(kThere).Device(kOnSim), OperatorDef(kThere).Device(kOnSim), kHere}),
      {.threads = 1});
  CHECK(StepsOf(plan) == Steps{"V1", "cpu to sim of V1", "V2", "V3", "sim to cpu of V3", "Y"});
  CHECK(Run(plan) == Floats{5, 6, 7});
  CHECK(plan.type("V2").device == kOnSim);
  CHECK(plan.type("Y").device == Device{});
  const Explanation explanation = plan.Explain();
  CHECK(explanation.nodes[1].from == "cpu");
  CHECK(explanation.nodes[1].to == "sim");
  CHECK(explanation.nodes[1].bytes == 24);
  CHECK(explanation.nodes[1].ns > 0);
  CHECK(explanation.copies == 2);
  CHECK(explanation.copied_bytes == 48);
  CHECK(explanation.converters == 0);
  CHECK(explanation.nodes[2].candidates[0].device == "sim");

  Profiler::Start();
  Run(plan);
  Profiler::Stop();
  CHECK(ProfileOfRun(plan, Profiler::Read()).nodes.size() == StepsOf(plan).size());

  Graph fan = Chain({OperatorDef(kThere).Device(kOnSim)});
  fan.AddNode(OperatorDef("AddOneThere", {"X"}, {"Z"}).Device(kOnSim));
  fan.AddOutput("Z");
  CHECK(StepsOf(Compile(fan, {.threads = 1})).size() == 3);
}

// The transpose of its input, as a view.
class TurnHereOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return SetOutputTensor(0, Input(0).Permute({1, 0})), true; }
};
OPERATOR_SCHEMA(TurnHere).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(0)[1], c.input_shape(0)[0]});
});
REGISTER_CPU_OPERATOR(TurnHere, TurnHereOp);

TEST_CASE("a view with strides that an operator has made is copied to a device") {
  const sim_device::SimDevice device;
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2, 2});
  graph.AddNode(OperatorDef("TurnHere", {"X"}, {"V"}));
  graph.AddNode(OperatorDef("AddOneThere", {"V"}, {"Y"}).Device(kOnSim));
  graph.AddOutput("Y").AddOutput("V");  // which has no place in the arena
  Executor executor(Compile(graph, {.threads = 1}));
  for (int run = 0; run < 2; ++run) {
    Tensor y;
    Copy(executor.Run({{"X", Tensor::From<float>({2, 2}, {1, 2, 3, 4})}}).Get("Y"), &y);
    CHECK(y.ToVector<float>() == Floats{2, 4, 3, 5});
  }
}

TEST_CASE("nodes that name no device are placed on the first that has them, and back") {
  const sim_device::SimDevice device;
  PlanOptions options{.threads = 1};
  options.devices = {kOnSim, Device{}};
  const Plan plan = Compile(Chain({kThere, kHere, kThere}), options);
  CHECK(StepsOf(plan) ==
        Steps{"cpu to sim of X", "V1", "sim to cpu of V1", "V2", "cpu to sim of V2", "Y"});
  CHECK(plan.choice(0).device == kOnSim);
  CHECK(plan.choice(1).device == Device{});
  CHECK(Contains(plan.choice(1).passed_over, "backend sim: the operator has no kernel for sim"));
  CHECK(Run(plan) == Floats{4, 5, 6});
  CHECK(plan.memory().arena_bytes > 0);

  // The plan's selection, forced in a plan that prefers another device, gives the same devices.
  Graph either = Chain({kThere});
  PlanOptions host_first{.threads = 1};
  host_first.devices = {Device{}, kOnSim};
  host_first.selection.forced = Compile(either, options).selection();
  CHECK(host_first.selection.forced.nodes[0].device == "sim");
  CHECK(Compile(either, host_first).choice(0).device == kOnSim);
  host_first.selection.forced = {};
  CHECK(Compile(either, host_first).choice(0).device == Device{});

  sim_device::is_there = false;
  const Plan without = Compile(Chain({kThere, kHere, kThere}), options);
  CHECK(StepsOf(without) == Steps{"V1", "V2", "Y"});
  CHECK(Contains(without.choice(0).passed_over, "backend sim: the card is not in this machine"));
  CHECK(Run(without) == Floats{4, 5, 6});
}

TEST_CASE("a graph whose shapes are open runs on the devices that it is given") {
  const sim_device::SimDevice device;
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  graph.AddNode(OperatorDef("AddOneOnlyThere", {"X"}, {"Y"}));
  graph.AddOutput("Y");
  PlanOptions options{.threads = 1};
  options.devices = {Device{}, kOnSim};
  CHECK(Run(Compile(graph, options)) == Floats{2, 3, 4});
  CheckFails([&] { Compile(graph, {.threads = 1}); }, "AddOneOnlyThere");
}

TEST_CASE("a graph that no device can run is one Error with every reason") {
  const sim_device::SimDevice device;
  sim_device::is_there = false;
  PlanOptions options{.threads = 1};
  options.devices = {kOnSim};
  const Error error = ErrorOf([&] { Compile(Chain({kHere}), options); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "no kernel of operator AddOneHere (X) -> (Y) on sim accepts"));
  CHECK(Contains(error.message(), "backend sim: the card is not in this machine"));
}

TEST_CASE(
    "a constant is copied when the plan is built; a copy and a conversion follow each other") {
  const sim_device::SimDevice device;
  Graph graph = Chain({OperatorDef(kThere).Device(kOnSim)});
  graph.AddConstant("W", Tensor::From<float>({3}, {7, 8, 9}));
  graph.AddNode(OperatorDef("AddOneThere", {"W"}, {"Z"}).Device(kOnSim));
  graph.AddNode(OperatorDef("InLayouts", {"Z"}, {"ZA"}).Arg("a", "A"));
  graph.AddOutput("ZA");
  const PassList no_passes;  // which would compute it beforehand
  const Plan plan = Compile(graph, {.threads = 1, .passes = &no_passes});
  Executor executor(plan);
  const NamedTensors out = executor.Run({{"X", Tensor::From<float>({3}, {1, 2, 3})}});
  CHECK(out.Get("ZA").ToVector<float>() == Floats{16, 18, 20});
  CHECK(plan.Explain().converted_constants == 1);
}

TEST_CASE("a node of the program's own copies to the device that it names") {
  const sim_device::SimDevice device;
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {3});
  graph.AddNode(CopyToDevice("X", "P", kOnSim));
  graph.AddNode(OperatorDef("AddOneThere", {"P"}, {"Q"}).Device(kOnSim));
  graph.AddNode(CopyToDevice("Q", "Y", Device{}));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph, {.threads = 1});
  CHECK(StepsOf(plan) == Steps{"P", "Q", "Y"});
  CHECK(Run(plan) == Floats{2, 3, 4});
  CHECK(sim_device::copies == 4);
}

}  // namespace converters_test

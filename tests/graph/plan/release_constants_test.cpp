#include <doctest/doctest.h>

#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/simple_net.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/subgraph.hpp"
#include "support/check_fails.hpp"
#include "support/layouts.hpp"
#include "support/sim_device.hpp"
#include "support/tensors.hpp"

namespace release_constants_test {
namespace {

using namespace opkit;

constexpr int64_t kSize = 1000;
constexpr int64_t kBytes = 4 * kSize;  // of W, and of W in layout A; in B it takes twice these

Floats Counting(float first) {
  Floats values;
  for (int i = 0; i < kSize; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}
const Tensor kX = Tensor::From<float>({kSize}, Counting(1));

// to = 2 * from + w, with the weights in a layout.
OperatorDef AddWeights(const char* from, const char* to, const char* layout, const char* w = "W") {
  return OperatorDef("InLayouts", {from, w}, {to}).Arg("b", layout);
}
Graph WithWeights(std::initializer_list<OperatorDef> nodes) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {kSize});
  graph.AddConstant("W", Tensor::From<float>({kSize}, Counting(0.5f)));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("Y");
  return graph;
}

// A plan alone, without the graph that it was made of.
struct Held {
  template <class F>
  Held(F make_graph, PlanOptions options)
      : before(GetAllocator(DeviceType::kCPU).live_bytes()),
        plan(Compile(make_graph(), options)),
        bytes(GetAllocator(DeviceType::kCPU).live_bytes() - before) {}
  bool has_original() const { return plan.graph().FindConstant("W")->initialized(); }

  const int64_t before;
  const Plan plan;
  const int64_t bytes;
};
const PlanOptions kReleased{.memory = {.release_constants = true}};

// The result of two executors, the second with operators of its own.
Floats Run(const Plan& plan) {
  Executor first(plan), second(plan);
  const Tensor a = first.Run({{"X", kX}}).Get("Y"), b = second.Run({{"X", kX}}).Get("Y");
  CHECK(a.ToVector<float>() == b.ToVector<float>());
  return b.ToVector<float>();
}
// Checks that a plan holds so many bytes of constants with the release and without it, and gives
// the same.
template <class F>
void CheckHeld(F make_graph, int64_t without, int64_t with) {
  const Held keeping(make_graph, {}), releasing(make_graph, kReleased);
  CHECK(keeping.bytes == without);
  CHECK(releasing.bytes == with);
  CHECK(keeping.has_original());
  CHECK(releasing.has_original() == (with == without));
  CHECK(Run(keeping.plan) == Run(releasing.plan));
}

// Says by its weights' first element what it costs, where they are known, and reads them in A.
class ReadsWeightsOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (!query.inputs[1].constant) throw UnsupportedOperatorFeature("its weights are not known");
    KernelConfig config;
    config.input_layouts = {{}, test_layouts::Named("A")};
    config.cost_ns = query.inputs[1].constant->data<float>()[0];
    return {config};
  }
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
class CopiesOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(ReadsWeights).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(ReadsWeights, CopiesOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(ReadsWeights, layouts, ReadsWeightsOp);

// y = x + w on the simulated device.
class AddThereOp final : public Operator<sim_device::SimContext> {
 public:
  using Operator<sim_device::SimContext>::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &w = Input(1);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      static_cast<float*>(y->raw_mutable_data())[i] =
          static_cast<const float*>(x.raw_data())[i] + static_cast<const float*>(w.raw_data())[i];
    return true;
  }
};
OPERATOR_SCHEMA(AddThere).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
OPKIT_REGISTER_DEVICE_OPERATOR(sim_device::kSim, AddThere, AddThereOp);

}  // namespace

TEST_CASE("a plan gives the memory of a constant back that is read converted alone") {
  CheckHeld([] { return WithWeights({AddWeights("X", "Y", "A")}); }, 2 * kBytes, kBytes);
}

TEST_CASE("one that is read in two other layouts goes, and both of these stay") {
  CheckHeld(
      [] {
        return WithWeights({AddWeights("X", "P", "A"), AddWeights("P", "Y", "B")});
      },
      4 * kBytes, 3 * kBytes);
}

TEST_CASE("constants stay if a node reads them unconverted or the graph returns them") {
  CheckHeld(
      [] {
        return WithWeights({AddWeights("X", "P", "A"), AddWeights("P", "Y", "standard")});
      },
      2 * kBytes, 2 * kBytes);
  CheckHeld([] { return WithWeights({AddWeights("X", "Y", "A")}).AddOutput("W"); }, 2 * kBytes,
            2 * kBytes);
  CheckHeld([] { return WithWeights({AddWeights("X", "Y", "standard")}); }, kBytes, kBytes);
}

TEST_CASE("constants that a body captures, and constants of the body, stay") {
  const auto add_body = [](Graph& graph, Graph body, std::initializer_list<const char*> inputs) {
    OperatorDef node("Subgraph");
    for (const char* input : inputs) {
      body.AddInput(input, DType::kUndefined, {});
      node.Input(input);
    }
    graph.AddNode(node.Output("Y").Subgraph("body", MakeSubgraph(body.AddOutput("Y"))));
  };
  CheckHeld(
      [&] {
        Graph graph = WithWeights({AddWeights("X", "P", "A")}), body;
        body.AddNode(AddWeights("P", "Y", "standard"));
        add_body(graph, body, {"P", "W"});
        return graph;
      },
      2 * kBytes, 2 * kBytes);
  // The body's converted constant and its original, and that of the graph.
  CheckHeld(
      [&] {
        Graph graph = WithWeights({AddWeights("X", "P", "A")}), body;
        body.AddConstant("V", Tensor::From<float>({kSize}, Counting(7)));
        body.AddNode(AddWeights("P", "Y", "A", "V"));
        add_body(graph, body, {"P"});
        return graph;
      },
      4 * kBytes, 3 * kBytes);
}

TEST_CASE("one that a device alone reads goes from the host") {
  const sim_device::SimDevice sim;
  const auto make = [] { return WithWeights({OperatorDef("AddThere", {"X", "W"}, {"Y"})}); };
  const Held held(
      make, {.devices = {Device{sim_device::kSim, 0}}, .memory = {.release_constants = true}});
  CHECK(held.bytes == 0);
  CHECK_FALSE(held.has_original());
  Executor executor(held.plan);
  Tensor host;
  Copy(executor.Run({{"X", kX}}).Get("Y"), &host);
  CHECK(host.data<float>()[9] == 10 + 9.5f);
}

TEST_CASE("the caller's own tensors and graph keep their elements") {
  const Graph graph = WithWeights({AddWeights("X", "Y", "A")});
  const Plan plan = Compile(graph, kReleased);
  CHECK_FALSE(plan.graph().FindConstant("W")->initialized());
  CHECK(graph.FindConstant("W")->ToVector<float>() == Counting(0.5f));
  CHECK(Run(Compile(graph)) == Run(plan));
}

TEST_CASE("a plan says the same of itself after the release, whatever kernels read of constants") {
  const auto make = [] {
    return WithWeights({OperatorDef("ReadsWeights", {"X", "W"}, {"P"}), AddWeights("P", "Y", "B")});
  };
  const Held keeping(make, {.threads = 1});
  const Held releasing(make, {.threads = 1, .memory = {.release_constants = true}});
  REQUIRE_FALSE(releasing.has_original());
  for (int runs = 0; runs < 2; ++runs) {
    const Plan &a = keeping.plan, &b = releasing.plan;
    CHECK(Contains(ToString(b.Explain()), "A"));
    CHECK(ToString(a.Explain()) == ToString(b.Explain()));
    CHECK(ToString(a) == ToString(b));
    CHECK(ToString(a, {{"X", {kSize}}}) == ToString(b, {{"X", {kSize}}}));
    CHECK(ToDot(a) == ToDot(b));
    CHECK(ToString(a.selection()) == ToString(b.selection()));
    CHECK(ToString(a.type("W")) == ToString(b.type("W")));
    CHECK(a.memory().arena_bytes == b.memory().arena_bytes);
    CHECK(Run(a) == Run(b));
  }
  CheckFails([&] { ToString(releasing.plan, {{"X", {kSize + 1}}}); }, "[1001]");
}

TEST_CASE("a released constant is not read: it has no data, and graphs with it do not run") {
  const Plan plan = Compile(WithWeights({AddWeights("X", "Y", "A")}), kReleased);
  const Graph& graph = plan.graph();
  CHECK(ToString(*graph.FindConstant("W")) == "float32[1000] on cpu (uninitialized)");
  CheckFails([&] { graph.FindConstant("W")->data<float>(); }, "is read before anything");
  CHECK(plan.type("W").constant == nullptr);
  CHECK(InferGraph(plan.view()).Get("W").constant == nullptr);
  CheckFails([&] { Compile(graph); }, "constant 'W' has no data any more: ");
  CheckFails([&] { Graph().AddConstant("V", *graph.FindConstant("W")); }, "'V' has no data");
  Workspace ws;
  *ws.CreateTensor("X") = kX;
  CHECK(ErrorOf([&] { SimpleNet(graph, &ws); }).code() == ErrorCode::kUninitialized);
}

TEST_CASE("the release needs all shapes, and fails before any pass runs if one is open") {
  bool has_run = false;
  PassList passes;
  passes.Add("notes", [&](const Graph& graph) {
    has_run = true;
    return graph;
  });
  for (const bool shape_is_known : {false, true}) {
    Graph graph = WithWeights({AddWeights("X", "Y", "A")});
    graph.AddInput("Z", shape_is_known ? DType::kUndefined : DType::kFloat32,
                   shape_is_known ? SymbolicShape{2} : SymbolicShape{Sym("N"), 3});
    const Error error = ErrorOf(
        [&] { Compile(graph, {.passes = &passes, .memory = {.release_constants = true}}); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(),
                   "release_constants needs the dtype and the shape of every input"));
    CHECK(Contains(error.message(), shape_is_known ? "'Z' is ?[2]" : "'Z' is float32[N, 3]"));
  }
  CHECK_FALSE(has_run);
}

}  // namespace release_constants_test

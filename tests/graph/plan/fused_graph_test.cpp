#include "opkit/graph/plan/fused_graph.hpp"

#include <doctest/doctest.h>

#include "graph/nodes.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/op/registration.hpp"
#include "support/layouts.hpp"
#include "support/lists.hpp"
#include "support/text.hpp"

namespace fused_graph_test {
namespace {

using namespace opkit;
using namespace graph_nodes;

// y = factor * x, with the factors of the Tripling nodes and of the additions behind it: those of
// the backend "fusing" take these in.
class TriplingOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;

  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {{}}; }
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    OperatorDef def = query.node.def;
    if (query.next.def.type() == "Tripling")
      def.Arg("times", def.args().Get<int64_t>("times", 1) + 1);
    else if (query.next.def.type() == "Add" && def.inputs().size() == 1)
      def.Input(query.next.def.inputs()[1 - query.read]);
    else
      return {};
    def.mutable_outputs() = query.next.def.outputs();
    return FusedNode{def, {}};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i) {
      float value = x.data<float>()[i];
      for (int64_t k = GetSingleArgument<int64_t>("times", 1); k > 0; --k) value *= 3;
      if (InputSize() > 1) value += Input(1).data<float>()[i];
      y->mutable_data<float>()[i] = value;
    }
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Tripling)
    .NumInputs(1, 2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<int64_t>("times", "", 1);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Tripling, fusing, TriplingOp);

OperatorDef Tripling(const char* in, const char* out) {
  return OperatorDef("Tripling", {in}, {out});
}
Graph Begin(std::initializer_list<OperatorDef> nodes,
            std::initializer_list<const char*> outputs = {"Y"}) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {3});
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  for (const char* output : outputs) graph.AddOutput(output);
  return graph;
}
// The outputs of the nodes that run.
std::string StepsOf(const Plan& plan) {
  const auto found = plan.state()->GetLatest();
  std::string steps;
  for (int step = 0; step < found->schedule().size(); ++step)
    steps += found->view().graph().node(found->schedule().original_of(step)).outputs()[0] + " ";
  return steps;
}
Floats Run(const Plan& plan) {
  Executor executor(plan);
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  executor.Run({{"X", x}});
  return executor.Run({{"X", x}}).Get("Y").ToVector<float>();
}

}  // namespace

TEST_CASE("a chain runs as one node, whose parts can be listed") {
  const Graph graph = Begin({Tripling("X", "A"), Scale("X", "S", 2), Tripling("A", "B"),
                             Add("S", "B", "C"), Relu("C", "Y")});
  const Plan plan = Compile(graph, {.threads = 1, .memory = {.verify = true}});
  CHECK(StepsOf(plan) == "S C Y ");
  CHECK(Run(plan) == Floats{11, 22, 33});
  CHECK(plan.choice(0).kernel->backend == "fusing");  // by node of the plan's graph
  CHECK(plan.choice(3).kernel->op == "Add");
  CHECK(plan.choice(0).computed_by == -1);
  CHECK(plan.choice(3).computed_by == 0);
  Executor executor(plan);
  CHECK(&executor.op(3) == &executor.op(0));
  CHECK(executor.op(4).type() == "Relu");
  CHECK(plan.type("A").shape.ToShape() == Shape{3});
  const Selection selection = plan.selection();
  CHECK(selection.nodes.size() == 3);
  CHECK(StepsOf(Compile(graph, {.threads = 1, .selection = {.forced = selection}})) == "S C Y ");
  const Explanation explanation = plan.Explain();
  REQUIRE(explanation.nodes.size() == 3);
  CHECK(explanation.nodes[0].parts.empty());
  const Explanation::Node& fused = explanation.nodes[1];
  REQUIRE(fused.parts.size() == 3);
  CHECK(fused.parts[0] == ToString(graph.node(0)));
  CHECK(fused.parts[2] == ToString(graph.node(3)));
  CHECK(Contains(ToString(explanation), "    is " + ToString(graph.node(2))));
  CHECK(Contains(ToJson(explanation), "\"parts\": [\"Tripling"));
  CHECK(Contains(ToDot(plan), "Tripling"));
  CHECK(Contains(ToString(plan), "Tripling"));
}

TEST_CASE("a node with another reader, or with a forced kernel, is not fused") {
  const auto steps = [](const Graph& graph, PlanOptions options = {}) {
    options.threads = 1;
    const Plan plan = Compile(graph, options);
    CHECK(Run(plan) == Floats{9, 18, 27});
    return StepsOf(plan);
  };
  CHECK(steps(Begin({Tripling("X", "A"), Tripling("A", "Y")})) == "Y ");
  CHECK(steps(Begin({Tripling("X", "A"), Tripling("A", "Y")}, {"Y", "A"})) == "A Y ");
  CHECK(steps(Begin({Tripling("X", "A"), Tripling("A", "Y"), Scale("A", "Z", 2)}, {"Y", "Z"})) ==
        "A Y Z ");
  CHECK(steps(Begin({Tripling("X", "A").Name("first"), Tripling("A", "Y"),
                     Scale("X", "Z", 2).ControlInput("first")},
                    {"Y", "Z"})) == "A Y Z ");
  CHECK(steps(Begin({Tripling("X", "A"), Tripling("A", "Y")}),
              {.selection = {.forced = {{{"Y", "fusing"}}}}}) == "Y ");
  CHECK(steps(Begin({Tripling("X", "A"), Tripling("A", "Y").Backends("fusing", kRequired)})) ==
        "Y ");
  const Graph sum = Begin({Tripling("X", "A"), Scale("X", "S", 6), Add("S", "A", "Y")});
  CHECK(steps(sum) == "S Y ");
  CHECK(steps(sum, {.selection = {.forced = {{{"Y", "reference"}}}}}) == "A S Y ");
  // A later node rewrites an input of Add before Add runs.
  CHECK(steps(Begin({Tripling("X", "A"), Scale("X", "T", 5), Accumulate("T", "X"),
                     Add("T", "A", "Y")})) == "A T T Y ");
}

TEST_CASE("the first of a chain may wait for a node by name, and a node for the last") {
  const Plan plan =
      Compile(Begin({Scale("X", "S", 1).Name("before"), Tripling("X", "A").ControlInput("before"),
                     Tripling("A", "Y").Name("last"), Relu("S", "Z").ControlInput("last")},
                    {"Y", "Z"}),
              {.threads = 1});
  CHECK(StepsOf(plan) == "S Y Z ");
  const Graph& fused = plan.state()->GetLatest()->view().graph();
  CHECK(fused.node(1).control_inputs() == std::vector<std::string>{"before"});
  CHECK(fused.node(1).name() == "last");
  CHECK(Run(plan) == Floats{9, 18, 27});
  CHECK(StepsOf(Compile(Begin({Scale("X", "S", 1).Name("before"), Tripling("X", "A"),
                               Tripling("A", "Y").ControlInput("before")},
                              {"Y", "S"}),
                        {.threads = 1})) == "S A Y ");
}

TEST_CASE("a constant that is read converted alone is released where nodes were fused, too") {
  const Allocator& allocator = GetAllocator(DeviceType::kCPU);
  const int64_t before = allocator.live_bytes();
  const auto compile = [] {
    Graph graph = Begin({Tripling("X", "A"), Tripling("A", "B"),
                         OperatorDef("InLayouts", {"B", "W"}, {"Y"}).Arg("b", "A")});
    graph.AddConstant("W", Tensor::From<float>({3}, {100, 200, 300}));
    return Compile(graph, {.threads = 1, .memory = {.release_constants = true}});
  };
  const Plan plan = compile();
  CHECK(allocator.live_bytes() - before == 12);
  CHECK(StepsOf(plan) == "B Y ");
  CHECK(Run(plan) == Floats{118, 236, 354});
}

TEST_CASE("where no kernel fuses, the plan's graph runs as it is") {
  const Plan plan = Compile(Begin({Scale("X", "A", 2), Scale("A", "Y", 2)}));
  CHECK(&plan.state()->GetLatest()->view() == &plan.view());
}

}  // namespace fused_graph_test

// Subgraph, and what an operator that carries a graph gets from it.
#include "opkit/ops/subgraph.hpp"

#include "data_movement.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "support/sim_device.hpp"

namespace subgraph_test {
using namespace opkit_tests;

namespace {

// s = a * b, d = -s.
Graph ProductBody(SymbolicShape shape = {}, DType dtype = DType::kUndefined) {
  Graph g;
  g.AddInput("a", dtype, shape).AddInput("b", dtype, shape);
  g.AddNode(OperatorDef("Mul", {"a", "b"}, {"s"}));
  g.AddNode(OperatorDef("Neg", {"s"}, {"d"}));
  g.AddOutput("s").AddOutput("d");
  return g;
}
OperatorDef Product(const std::string& type, Graph body = ProductBody()) {
  return OperatorDef(type, {"x", "y"}, {"p", "n"})
      .Name("product")
      .Subgraph("body", MakeSubgraph(std::move(body)));
}
Graph Around(OperatorDef node, SymbolicShape shape = {2}) {
  Graph g;
  g.AddInput("x", DType::kFloat32, shape).AddInput("y", DType::kFloat32, shape);
  g.AddNode(std::move(node));
  g.AddNode(OperatorDef("Add", {"p", "n"}, {"zero"}));
  g.AddOutput("p").AddOutput("n").AddOutput("zero");
  return g;
}
std::string InferredAll(const Graph& g) {
  const GraphView view(g);
  const GraphTypes types = InferGraph(view);
  return StrCat(ToString(types.Get("x")), " ", ToString(types.Get("p")), " ",
                ToString(types.Get("n")));
}

// Runs nothing: a partitioner's operator as its author may write it.
REGISTER_OP(carries_body)
    .setForward([](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
      return SUCCESS;
    })
    .setIsSubgraphOp();

// The same with a state, which has no Backward.
int MakeNothing(const AttrMap&, std::unique_ptr<StatefulOp>* state) {
  class Nothing final : public StatefulOp {
   public:
    Status Forward(std::span<const OpTensor>, std::span<OpTensor>, OpResource&) override {
      return SUCCESS;
    }
  };
  *state = std::make_unique<Nothing>();
  return SUCCESS;
}
REGISTER_OP(carries_body_and_state).setIsSubgraphOp().setCreateOpState(MakeNothing);
REGISTER_OP(carries_state_and_body).setCreateOpState(MakeNothing).setIsSubgraphOp();
// Says how many inputs it has, but not how many outputs.
REGISTER_OP(carries_three)
    .setForward([](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
      return SUCCESS;
    })
    .setIsSubgraphOp()
    .setParseAttrs([](const AttrMap&, int* num_in, int*) { *num_in = 3; })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
      out[0] = out[1] = in[0];
    });

OPERATOR_SCHEMA(AddOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(AddOne, sim_device::AddOneOp<CPUContext>);
OPKIT_REGISTER_DEVICE_OPERATOR(sim_device::kSim, AddOne,
                               sim_device::AddOneOp<sim_device::SimContext>);

// Over its input.
OPERATOR_SCHEMA(AddOneOver)
    .NumInputs(1)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(AddOneOver, sim_device::AddOneOp<CPUContext>);
OPKIT_REGISTER_DEVICE_OPERATOR(sim_device::kSim, AddOneOver,
                               sim_device::AddOneOp<sim_device::SimContext>);

class DoubleLaterOp final : public Operator<CPUStreamContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUStreamContext);
  using Operator<CPUStreamContext>::Operator;
  bool RunOnDevice() override {
    const float* x = Input(0).data<float>();
    float* y = Output(0, Input(0).shape(), DType::kFloat32)->mutable_data<float>();
    ParallelFor(context_, Input(0).numel(), [=](int64_t i) { y[i] = 2 * x[i]; });
    return true;
  }
};
OPERATOR_SCHEMA(DoubleLater).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_STREAM_OPERATOR(DoubleLater, DoubleLaterOp);
OperatorDef DoubleLater(const char* x, const char* y) {
  return OperatorDef("DoubleLater", {x}, {y}).Device(DeviceType::kCPUStream);
}

OPERATOR_SCHEMA(CarriesBody).NumInputs(0, 9).NumOutputs(0, 9).NeedsSubgraph();

TEST_CASE("a node's graph runs, inputs and outputs by position") {
  Executor exec(Compile(Around(Product("Subgraph"))));
  for (float f : {1.f, 2.f, 3.f}) {
    const auto out = exec.Run(
        {{"x", Tensor::From<float>({2}, {f, 2})}, {"y", Tensor::From<float>({2}, {3, -4})}});
    CHECK(FloatsOf(out.Get("p")) == Floats{3 * f, -8});
    CHECK(FloatsOf(out.Get("n")) == Floats{-3 * f, 8});
    CHECK(FloatsOf(out.Get("zero")) == Floats{0, 0});
  }
}

TEST_CASE("types and shapes come from the body, for every operator that carries one") {
  for (const char* type : {"Subgraph", "carries_body", "CarriesBody"}) {
    CAPTURE(type);
    CHECK(InferredAll(Around(Product(type), {Sym("N"), 3})) ==
          "float32[N, 3] float32[N, 3] float32[N, 3]");
    // Facts that the body infers of its inputs reach the node's inputs.
    CHECK(InferredAll(Around(Product(type, ProductBody({4, Dim()}, DType::kFloat32)),
                             {Dim(), Sym("M")})) == "float32[4, M] float32[4, M] float32[4, M]");
  }
}

TEST_CASE("a body for another runtime may have unregistered operators") {
  Graph body;
  body.AddInput("a", DType::kFloat32, {Sym("N")});
  body.AddNode(OperatorDef("OnlyTheirs", {"a"}, {"s"}));
  body.AddNode(OperatorDef("Neg", {"a"}, {"d"}));
  body.AddOutput("s").AddOutput("d");
  const auto around = [&](const char* type) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(OperatorDef(type, {"x"}, {"p", "n"}).Subgraph("body", MakeSubgraph(body)));
    return graph.AddOutput("p").AddOutput("n");
  };
  for (const char* type : {"carries_body", "CarriesBody"}) {
    const Graph graph = around(type);
    const GraphView view(graph);
    const GraphTypes types = InferGraph(view);
    CHECK(types.Get("p").dtype == DType::kUndefined);
    CHECK(ToString(types.Get("n")) == "float32[2]");
  }
  const Graph here = around("Subgraph");  // the program runs that one
  const GraphView view(here);
  CHECK(ErrorOf([&] { InferGraph(view); }).code() == ErrorCode::kNotFound);
}

TEST_CASE("a body's output comes from the device on which the body makes it") {
  const sim_device::SimDevice device;
  const Device on_sim{sim_device::kSim, 0};
  const auto body = [](const char* last, Device there) {
    Graph made;
    made.AddInput("v", DType::kFloat32, {3});
    made.AddNode(OperatorDef("AddOne", {"v"}, {"w"}));
    made.AddNode(OperatorDef(last, {"w"}, {"z"}).Device(there));
    made.AddOutput("z");
    return made;
  };
  const auto run = [](OperatorDef node, const char* after, PlanOptions options) {
    Graph g;
    g.AddInput("x", DType::kFloat32, {3});
    g.AddNode(std::move(node));
    g.AddNode(OperatorDef(after, {"p"}, {"y"}));
    g.AddOutput("y");
    Tensor out;
    Executor exec(Compile(g, options));
    for (int i = 0; i < 2; ++i)
      Copy(exec.Run({{"x", Tensor::From<float>({3}, {1, 2, 3})}}).Get("y"), &out);
    return FloatsOf(out);
  };
  PlanOptions devices{.threads = 1};
  devices.devices = {on_sim, Device{}};
  const OperatorDef node("Subgraph", {"x"}, {"p"});
  const auto carrying = [&](const char* last, Device there = {}) {
    return OperatorDef(node).Subgraph("body", MakeSubgraph(body(last, there)));
  };
  CHECK(run(carrying("AddOne"), "Neg", devices) == Floats{-3, -4, -5});
  CHECK(run(carrying("AddOne"), "AddOne", devices) == Floats{4, 5, 6});
  CHECK(run(carrying("Neg"), "AddOne", devices) == Floats{-1, -2, -3});
  CHECK(run(carrying("AddOne", on_sim), "Neg", {.threads = 1}) == Floats{-3, -4, -5});
  Graph rewriting = body("AddOne", {});
  rewriting.AddNode(OperatorDef("AddOneOver", {"z"}, {"z"}));
  rewriting.AddNode(OperatorDef("AddOneOver", {"z"}, {"z"}));
  CHECK(run(OperatorDef(node).Subgraph("body", MakeSubgraph(rewriting)), "Neg", devices) ==
        Floats{-5, -6, -7});
  Graph later = body("AddOne", on_sim);  // which its node runs by itself
  later.AddNode(DoubleLater("v", "unread"));
  later.AddOutput("unread");
  OperatorDef alone = OperatorDef(node).Output("rest").Subgraph("body", MakeSubgraph(later));
  CHECK(run(alone, "Neg", {.threads = 1}) == Floats{-3, -4, -5});
  CHECK(sim_device::copies > 0);
}

TEST_CASE("a body goes on after it has returned, and its forwarded output is a value of its own") {
  Graph body;
  body.AddInput("v", DType::kFloat32, {2});
  body.AddConstant("seven", Tensor::From<float>({2}, {7, 7}));
  body.AddNode(DoubleLater("v", "d"));
  body.AddOutput("d").AddOutput("v").AddOutput("seven");
  Graph g;
  g.AddInput("x", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Subgraph", {"x"}, {"p", "q", "r"}).Subgraph("body", MakeSubgraph(body)));
  for (const char* output : {"p", "q", "r"}) {
    g.AddNode(OperatorDef("AddOneOver", {output}, {output}));
    g.AddOutput(output);
  }
  for (const int threads : {1, 2}) {
    Executor exec(Compile(g, {.threads = threads}));
    const Tensor x = Tensor::From<float>({2}, {1, 2});
    for (int run = 0; run < 3; ++run) {
      const auto out = exec.Run({{"x", x}});
      CHECK(FloatsOf(out.Get("p")) == Floats{3, 5});
      CHECK(FloatsOf(out.Get("q")) == Floats{2, 3});
      CHECK(FloatsOf(out.Get("r")) == Floats{8, 8});
      CHECK(FloatsOf(x) == Floats{1, 2});
    }
  }
}

TEST_CASE("a symbol of the body is not one of the graph around it") {
  Graph body;
  body.AddInput("a", DType::kFloat32, {Sym("N")});
  body.AddNode(OperatorDef("Neg", {"a"}, {"s"}));
  body.AddNode(OperatorDef("Neg", {"a"}, {"d"}));
  body.AddOutput("s").AddOutput("d");
  Graph g;
  g.AddInput("x", DType::kFloat32, {5}).AddInput("z", DType::kFloat32, {Sym("N")});
  g.AddNode(OperatorDef("Subgraph", {"x"}, {"p", "n"}).Subgraph("body", MakeSubgraph(body)));
  g.AddNode(OperatorDef("Neg", {"z"}, {"w"}));
  g.AddOutput("p").AddOutput("w");
  const GraphView view(g);
  const GraphTypes types = InferGraph(view);
  CHECK(ToString(types.Get("p")) == "float32[5]");
  CHECK(ToString(types.Get("w")) == "float32[N]");
}

TEST_CASE("a node without a body, or one that does not fit it, is refused") {
  const auto refused = [](const OperatorDef& def) {
    return ErrorOf([&] { Compile(Around(def)); }).message();
  };
  CHECK(Contains(refused(OperatorDef("carries_body", {"x", "y"}, {"p", "n"})),
                 "carries_body runs a graph that its node carries, and this node carries none"));
  CHECK(Contains(refused(OperatorDef("Subgraph", {"x", "y"}, {"p", "n"})), "carries none"));
  OperatorDef misnamed = OperatorDef("Subgraph", {"x", "y"}, {"p", "n"});
  misnamed.Subgraph("inner", MakeSubgraph(ProductBody()));
  CHECK(Contains(refused(misnamed), "Subgraph needs the graph 'body'"));
  OperatorDef more = Product("Subgraph");
  more.Input("x");
  CHECK(Contains(refused(more),
                 "the node has 3 inputs and 2 outputs, but its graph 'body' has 2 and 2"));
}

TEST_CASE("an operator of functions has the values of its body where it says no number itself") {
  const auto refused = [](const char* type, int inputs, int outputs) {
    OperatorDef def = Product(type);
    for (; inputs > 2; --inputs) def.Input("x");
    for (; outputs > 2; --outputs) def.Output(StrCat("more", outputs));
    return ErrorOf([&] { Compile(Around(def)); }).message();
  };
  CHECK(Contains(refused("carries_body", 3, 2),
                 "carries_body has 3 inputs and 2 outputs, but the graph 'body' that it carries "
                 "has 2 and 2"));
  CHECK(Contains(refused("carries_body", 2, 3), "has 2 inputs and 3 outputs, but the graph"));
  CHECK(Contains(refused("carries_three", 2, 2), "carries_three has 2 inputs, expected 3"));
  CHECK(Contains(refused("carries_three", 3, 3), "has 3 inputs and 3 outputs, but the graph"));
  Compile(Around(Product("carries_three").Input("x")));  // its own inference, of the outputs too
}

TEST_CASE("the gradient of a node comes from its body") {
  const auto gradients = [](const std::string& type) {
    Graph g;
    g.AddInput("x", DType::kFloat32, {2}).AddInput("y", DType::kFloat32, {2});
    if (type.empty()) {
      g.AddNode(OperatorDef("Mul", {"x", "y"}, {"p"}));
      g.AddNode(OperatorDef("Neg", {"p"}, {"n"}));
    } else {
      g.AddNode(Product(type));
    }
    g.AddNode(OperatorDef("Mul", {"p", "n"}, {"loss"}));
    const GradientMap d = AddGradients(g, "loss", {"x", "y"});
    g.AddOutput(d.at("x").dense).AddOutput(d.at("y").dense);
    Executor exec(Compile(g));
    const auto out = exec.Run(
        {{"x", Tensor::From<float>({2}, {1, 2})}, {"y", Tensor::From<float>({2}, {3, -4})}});
    return std::pair(FloatsOf(out[0]), FloatsOf(out[1]));
  };
  const auto flat = gradients("");
  CHECK(flat.first == Floats{-2 * 1 * 9, -2 * 2 * 16});
  CHECK(gradients("Subgraph") == flat);
  // The forward of these runs nothing, so that their backward's form is what is asked.
  for (const char* type : {"carries_body", "carries_body_and_state", "carries_state_and_body"}) {
    CAPTURE(type);
    Graph g;
    g.AddInput("x", DType::kFloat32, {2}).AddInput("y", DType::kFloat32, {2});
    g.AddNode(Product(type));
    const GradientMap d = AddGradients(g, "n", {"x"});
    const OperatorDef& backward = g.node(g.Producer(d.at("x").dense));
    CHECK(backward.type() == "Subgraph");
    CHECK(backward.outputs().size() == 2);
    CHECK(backward.is_gradient_op());
  }
}

TEST_CASE("CheckNode finds nothing wrong with a Subgraph") {
  CheckNode(Product("Subgraph"),
            {Tensor::From<float>({2}, {1, 2}), Tensor::From<float>({2}, {3, 4})});
}

}  // namespace
}  // namespace subgraph_test

// The backward graph: against central differences on random graphs, against gradients worked out by
// hand, and what is refused. The operators here work in float64.
#include "opkit/graph/gradient/gradients.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/op/check/check_data.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/operator.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/pointwise_op.hpp"

namespace gradients_test {
using namespace opkit;

namespace {

using Defs = std::vector<OperatorDef>;
using Maker = GradientMakerBase;

constexpr auto kAdd = [](double a, double b, double, int) { return a + b; };
constexpr auto kMul = [](double a, double b, double k, int) { return k * a * b; };
constexpr auto kScale = [](double a, double, double k, int) { return k * a; };
constexpr auto kTanh = [](double a, double, double, int) { return std::tanh(a); };
constexpr auto kTanhGradient = [](double y, double dy, double, int) { return dy * (1 - y * y); };
constexpr auto kSinCos = [](double a, double, double, int o) {
  return o == 0 ? std::sin(a) : std::cos(a);
};

class AddGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    for (size_t i = 0; i < Def().inputs().size(); ++i) SetDense(static_cast<int>(i), GO(0));
    return {};
  }
};
OPERATOR_SCHEMA(DAdd).NumInputs(2).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DAdd, PointwiseOp<kAdd>);
REGISTER_GRADIENT(DAdd, AddGradient);

class MulGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    return {OperatorDef("DMul", {GO(0), I(1)}, {GI(0)}),
            OperatorDef("DMul", {GO(0), I(0)}, {GI(1)})};
  }
};
OPERATOR_SCHEMA(DMul).NumInputs(2).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DMul, PointwiseOp<kMul>);
REGISTER_GRADIENT(DMul, MulGradient);

class ScaleGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override { return SingleGradientDef("DScale", "", {GO(0)}, {GI(0)}); }
};
OPERATOR_SCHEMA(DScale)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("k", "")
    .Inplace({{0, 0}})
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DScale, PointwiseOp<kScale>);
REGISTER_GRADIENT(DScale, ScaleGradient);

// The same, but its gradient is computed in place.
class InplaceGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    SetDense(0, GO(0));
    return SingleGradientDef("DScale", "", {GO(0)}, {GO(0)});
  }
};
OPERATOR_SCHEMA(DScaleInplace).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DScaleInplace, PointwiseOp<kScale>);
REGISTER_GRADIENT(DScaleInplace, InplaceGradient);

class TanhGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    return SingleGradientDef("DTanhGradient", "", {O(0), GO(0)}, {GI(0)});
  }
};
OPERATOR_SCHEMA(DTanh).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DTanh, PointwiseOp<kTanh>);
OPERATOR_SCHEMA(DTanhGradient).NumInputs(2).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DTanhGradient, PointwiseOp<kTanhGradient>);
REGISTER_GRADIENT(DTanh, TanhGradient);

// Two outputs, of which either or both may have a gradient.
class SinCosGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    const bool both = !GradOut(0).IsEmpty() && !GradOut(1).IsEmpty();
    const std::string of_sin = both ? Temporary("sin") : GI(0);
    const std::string of_cos = both ? Temporary("cos") : GI(0);
    Defs defs;
    if (!GradOut(0).IsEmpty()) defs.push_back(OperatorDef("DMul", {GO(0), O(1)}, {of_sin}));
    if (!GradOut(1).IsEmpty())
      defs.push_back(OperatorDef("DMul", {GO(1), O(0)}, {of_cos}, {{"k", -1.0}}));
    if (both) defs.push_back(OperatorDef("DAdd", {of_sin, of_cos}, {GI(0)}));
    return defs;
  }
};
OPERATOR_SCHEMA(DSinCos).NumInputs(1).NumOutputs(2).Arg("k", "").Infer([](InferenceContext& c) {
  for (int o = 0; o < 2; ++o) c.SetOutput(o, c.input_dtype(0), c.input_shape(0));
});
REGISTER_CPU_OPERATOR(DSinCos, PointwiseOp<kSinCos>);
REGISTER_GRADIENT(DSinCos, SinCosGradient);

// Square matrices, either transposed.
class DMatMulOp final : public Operator<CPUContext> {
 public:
  DMatMulOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws),
        ta_(GetSingleArgument<bool>("ta", false)),
        tb_(GetSingleArgument<bool>("tb", false)) {}
  bool RunOnDevice() override {
    const int64_t n = Input(0).dim(0);
    const double *a = Input(0).data<double>(), *b = Input(1).data<double>();
    double* c = Output(0, Shape{n, n}, DType::kFloat64)->mutable_data<double>();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < n; ++k)
          sum += (ta_ ? a[k * n + i] : a[i * n + k]) * (tb_ ? b[j * n + k] : b[k * n + j]);
        c[i * n + j] = sum;
      }
    return true;
  }

 private:
  const bool ta_, tb_;
};
class MatMulGradient : public Maker {
 public:
  using Maker::Maker;
  bool CopyArguments() const override { return false; }
  Defs GetGradientDefs() override {
    return {OperatorDef("DMatMul", {GO(0), I(1)}, {GI(0)}, {{"tb", true}}),
            OperatorDef("DMatMul", {I(0), GO(0)}, {GI(1)}, {{"ta", true}})};
  }
};
OPERATOR_SCHEMA(DMatMul)
    .NumInputs(2)
    .NumOutputs(1)
    .Arg("ta", "")
    .Arg("tb", "")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DMatMul, DMatMulOp);
REGISTER_GRADIENT(DMatMul, MatMulGradient);

class DSumOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    double* y = Output(0, Input(0).shape(), DType::kFloat64)->mutable_data<double>();
    for (int64_t k = 0; k < Input(0).numel(); ++k) {
      y[k] = 0;
      for (int i = 0; i < InputSize(); ++i) y[k] += Input(i).data<double>()[k];
    }
    return true;
  }
};
OPERATOR_SCHEMA(DSum).NumInputs(1, 4).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DSum, DSumOp);
REGISTER_GRADIENT(DSum, AddGradient);

// Rows of a table: its gradient is sparse. Never run.
class LookupGradient : public Maker {
 public:
  using Maker::Maker;
  Defs GetGradientDefs() override {
    SetSparse(0, I(1), GO(0));
    return {};
  }
};
OPERATOR_SCHEMA(DLookup).NumInputs(2).NumOutputs(1).Arg("k", "").Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(1)[0], c.input_shape(0)[1]});
});
REGISTER_CPU_OPERATOR(DLookup, PointwiseOp<kScale>);
REGISTER_GRADIENT(DLookup, LookupGradient);

// Operators that are never run: only the structure is asked of.
OPERATOR_SCHEMA(DStop).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DStop, PointwiseOp<kScale>);
NO_GRADIENT(DStop);
OPERATOR_SCHEMA(DMetric).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DMetric, PointwiseOp<kScale>);
SHOULD_NOT_DO_GRADIENT(DMetric);
OPERATOR_SCHEMA(DNotYet).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DNotYet, PointwiseOp<kScale>);
GRADIENT_NOT_IMPLEMENTED_YET(DNotYet);
OPERATOR_SCHEMA(DNothingSaid).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DNothingSaid, PointwiseOp<kScale>);
OPERATOR_SCHEMA(DRound).NumInputs(1).NumOutputs(1).Arg("k", "").Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kInt64, c.input_shape(0));
});
REGISTER_CPU_OPERATOR(DRound, PointwiseOp<kScale>);
OPERATOR_SCHEMA(DUnknownShape).NumInputs(1).NumOutputs(1).Arg("k", "");
REGISTER_CPU_OPERATOR(DUnknownShape, PointwiseOp<kScale>);
REGISTER_GRADIENT(DUnknownShape, ScaleGradient);
OPERATOR_SCHEMA(DEffect).NumInputs(1).NumOutputs(1).Arg("k", "").IdenticalTypeAndShape().Stateful();
REGISTER_CPU_OPERATOR(DEffect, PointwiseOp<kScale>);
OPERATOR_SCHEMA(DTouch)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("k", "")
    .IdenticalTypeAndShape()
    .MutatesInputs({0});
REGISTER_CPU_OPERATOR(DTouch, PointwiseOp<kScale>);
OPERATOR_SCHEMA(DStore)
    .NumInputs(2)
    .NumOutputs(1)
    .Arg("k", "")
    .IdenticalTypeAndShape()
    .MutatesInputs({1});
REGISTER_CPU_OPERATOR(DStore, PointwiseOp<kScale>);

OPERATOR_SCHEMA(DFlat).NumInputs(1).NumOutputs(1).Arg("k", "").NeedsAllInputShapes().Infer(
    [](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), {c.input_shape(0).ToShape().numel()});
    });
REGISTER_CPU_OPERATOR(DFlat, PointwiseOp<kScale>);
OPERATOR_SCHEMA(DToFloat).NumInputs(1).NumOutputs(1).Arg("k", "").Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, c.input_shape(0));
});
REGISTER_CPU_OPERATOR(DToFloat, PointwiseOp<kScale>);

// A gradient maker that does what the operator's argument names; most of it is a mistake.
class MistakeGradient : public Maker {
 public:
  using Maker::Maker;
  bool CopyArguments() const override { return false; }
  Defs GetGradientDefs() override {
    const auto mistake = Def().args().Get<std::string>("mistake", "");
    if (mistake == "gives none") return {};
    if (mistake == "makes nothing") return static_cast<void>(GI(0)), Defs();
    if (mistake == "unknown operator") return SingleGradientDef("DScael", "", {GO(0)}, {GI(0)});
    if (mistake == "other shape") return SingleGradientDef("DFlat", "", {GO(0)}, {GI(0)});
    if (mistake == "other dtype") return SingleGradientDef("DToFloat", "", {GO(0)}, {GI(0)});
    if (mistake == "arity") return SingleGradientDef("DAdd", "", {GO(0)}, {GI(0)});
    if (mistake == "reads nothing")
      return SingleGradientDef("DMul", "", {GO(0), "nobody"}, {GI(0)});
    if (mistake == "twice")
      return {OperatorDef("DScale", {GO(0)}, {GI(0)}), OperatorDef("DScale", {GO(0)}, {GI(0)})};
    if (mistake == "effect")
      return {OperatorDef("DScale", {GO(0)}, {GI(0)}),
              OperatorDef("DScale", {GO(0)}, {Temporary("unused")}),
              OperatorDef("DEffect", {GO(0)}, {Temporary("seen")})};
    if (mistake == "works in place")
      return {OperatorDef("DScale", {GO(0)}, {GI(0)}, {{"k", 5.0}}),
              OperatorDef("DScale", {GI(0)}, {GI(0)}, {{"k", 7.0}})};
    return SingleGradientDef("DTouch", "", {GO(0)}, {GI(0)});
  }
};
OPERATOR_SCHEMA(DMistake)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("mistake", "")
    .Arg("k", "")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DMistake, PointwiseOp<kScale>);
REGISTER_GRADIENT(DMistake, MistakeGradient);

const GradientOptions kDSum{.sum_operator = "DSum"};

Graph WithInputs(const Strings& names, SymbolicShape shape = {2, 2}) {
  Graph g;
  for (const std::string& name : names) g.AddInput(name, DType::kFloat64, shape);
  return g;
}

// The nodes behind the first `from`, as text.
Strings NodesFrom(const Graph& g, int from) {
  Strings nodes;
  for (int i = from; i < g.num_nodes(); ++i) nodes.push_back(ToString(g.node(i)));
  return nodes;
}

// Every value after running the graph in order. `changed` gets `step` added to one element as soon
// as it is there.
struct Run {
  const Graph& graph;
  std::vector<Tensor> inputs;

  std::unique_ptr<Workspace> operator()(const std::string& changed = "", int64_t element = 0,
                                        double step = 0) const {
    auto ws = std::make_unique<Workspace>();
    auto change = [&](const std::string& name) {
      if (name == changed) ws->GetTensor(name)->mutable_data<double>()[element] += step;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      ws->CreateTensor(graph.inputs()[i].name)->CopyFrom(inputs[i]);
      change(graph.inputs()[i].name);
    }
    for (const Graph::Constant& constant : graph.constants()) {
      ws->CreateTensor(constant.name)->CopyFrom(constant.value);
      change(constant.name);
    }
    const GraphView view(graph);
    for (int node : view.order()) {
      CreateOperator(graph.node(node), ws.get())->Run();
      for (const std::string& output : graph.node(node).outputs()) change(output);
    }
    return ws;
  }
};

std::vector<double> Elements(const Workspace& ws, const std::string& name) {
  return ws.GetTensor(name)->ToVector<double>();
}

// The error of AddGradients; checks that the refused call leaves the graph unchanged.
Error Refused(const Graph& graph, const std::string& loss, const Strings& wrt,
              const GradientOptions& options = kDSum) {
  Graph g = graph;
  const Error error = ErrorOf([&] { AddGradients(g, loss, wrt, options); });
  CHECK(g.nodes() == graph.nodes());
  CHECK(g.constants().size() == graph.constants().size());
  CHECK(g.inputs().size() == graph.inputs().size());
  CHECK(g.outputs() == graph.outputs());
  return error;
}

}  // namespace

TEST_CASE("a chain is differentiated backwards, from ones of the loss's shape") {
  Graph g = WithInputs({"x"}, {3});
  g.AddNode(OperatorDef("DScale").Input("x").Output("a").Arg("k", 3.0));
  g.AddNode(OperatorDef("DTanh").Input("a").Output("loss"));
  g.AddOutput("loss");
  const GradientMap d = AddGradients(g, "loss", {"x", "a"});
  CHECK(NodesFrom(g, 2) ==
        Strings{"DTanhGradient (loss, loss_grad) -> (a_grad)", "DScale (a_grad) -> (x_grad)"});
  CHECK(d.at("x") == GradientValue("x_grad"));
  CHECK(d.at("a") == GradientValue("a_grad"));
  CHECK(g.node(3).is_gradient_op());
  CHECK(g.outputs() == Strings{"loss"});  // gradients are no outputs by themselves
  CHECK(g.FindConstant("loss_grad")->ToVector<double>() == std::vector<double>{1, 1, 1});
  const auto ws = Run{g, {Tensor::From<double>({3}, {0, 0.5, -1})}}();
  for (int i = 0; i < 3; ++i) {
    const double t = std::tanh(3 * Elements(*ws, "x")[static_cast<size_t>(i)]);
    CHECK(Elements(*ws, "x_grad")[static_cast<size_t>(i)] == doctest::Approx(3 * (1 - t * t)));
  }
}

TEST_CASE("the seed may be a value of the graph") {
  Graph g = WithInputs({"x", "weights"}, {Sym("N")});
  g.AddNode(OperatorDef("DScale").Input("x").Output("loss").Arg("k", 3.0));
  AddGradients(g, "loss", {"x"}, {.seed = "weights"});
  CHECK(NodesFrom(g, 1) == Strings{"DScale (weights) -> (x_grad)"});
  CHECK(g.constants().empty());
  const Tensor weights = Tensor::From<double>({2}, {10, -1});
  CHECK(Elements(*Run{g, {weights, weights}}(), "x_grad") == std::vector<double>{30, -3});
}

TEST_CASE("the loss itself, and a value that is the loss's summand, share its gradient") {
  Graph g = WithInputs({"x", "y"});
  g.AddNode(OperatorDef("DAdd").Input("x").Input("y").Output("loss"));
  const GradientMap d = AddGradients(g, "loss", {"x", "loss"});
  CHECK(d.at("x").dense == "loss_grad");
  CHECK(d.at("loss").dense == "loss_grad");
  CHECK(g.num_nodes() == 1);
}

TEST_CASE("only the nodes that the wanted gradients need are added") {
  Graph g = WithInputs({"x", "w", "z"});
  g.AddNode(OperatorDef("DMul").Input("x").Input("w").Output("a"));
  g.AddNode(OperatorDef("DMul").Input("z").Input("w").Output("b"));  // not from x
  g.AddNode(OperatorDef("DMetric").Input("a").Output("metric"));     // not to the loss
  g.AddNode(OperatorDef("DMul").Input("a").Input("b").Output("loss"));
  AddGradients(g, "loss", {"x"});
  CHECK(NodesFrom(g, 4) ==
        Strings{"DMul (loss_grad, b) -> (a_grad)", "DMul (a_grad, w) -> (x_grad)"});
}

TEST_CASE("nodes may have been added in any order") {
  Graph g;
  g.AddNode(OperatorDef("DTanh").Input("a").Output("loss"));
  g.AddNode(OperatorDef("DScale").Input("x").Output("a"));
  g.AddInput("x", DType::kFloat64, {2});
  AddGradients(g, "loss", {"x"});
  CHECK(NodesFrom(g, 2) ==
        Strings{"DTanhGradient (loss, loss_grad) -> (a_grad)", "DScale (a_grad) -> (x_grad)"});
}

TEST_CASE("gradients of a value that is used more than once are added up") {
  Graph g = WithInputs({"x"}, {1});
  g.AddNode(OperatorDef("DScale").Input("x").Output("a").Arg("k", 2.0));
  g.AddNode(OperatorDef("DScale").Input("x").Output("b").Arg("k", 3.0));
  g.AddNode(OperatorDef("DMul").Input("a").Input("b").Output("c"));     // 6 x^2
  g.AddNode(OperatorDef("DMul").Input("c").Input("x").Output("loss"));  // 6 x^3
  const Graph before = g;
  const GradientMap d = AddGradients(g, "loss", {"x"}, kDSum);
  CHECK(d.at("x").dense == "x_grad_sum");
  CHECK(NodesFrom(g, 10) == Strings{"DSum (x_grad, x_grad_1, x_grad_2) -> (x_grad_sum)"});
  const Tensor x = Tensor::From<double>({1}, {2});
  CHECK(Elements(*Run{g, {x}}(), "x_grad_sum") == std::vector<double>{72});

  Graph pairs = before;  // by an operator of two inputs
  const std::string sum =
      AddGradients(pairs, "loss", {"x"}, {.sum_operator = "DAdd"}).at("x").dense;
  CHECK(NodesFrom(pairs, 10) == Strings{"DAdd (x_grad, x_grad_1) -> (x_grad_sum)",
                                        "DAdd (x_grad_sum, x_grad_2) -> (x_grad_sum_1)"});
  CHECK(Elements(*Run{pairs, {x}}(), sum) == std::vector<double>{72});

  const Error unknown = Refused(before, "loss", {"x"}, {.sum_operator = "DNobody"});
  CHECK(unknown.code() == ErrorCode::kNotFound);
  CHECK(Contains(unknown.what(),
                 "value 'x' is used 3 times, and its gradients are added up by operator 'DNobody', "
                 "which is not registered; include opkit/ops/all.hpp, link opkit::ops, or name "
                 "another in GradientOptions::sum_operator"));
  CHECK(Contains(Refused(before, "loss", {"x"}, {.sum_operator = "DScale"}).what(),
                 "operator 'DScale' cannot add up the gradients of 'x': DScale has 2 inputs"));
}

TEST_CASE("a value that one node reads twice has two gradients") {
  Graph g = WithInputs({"x"}, {1});
  g.AddNode(OperatorDef("DMul").Input("x").Input("x").Output("a"));
  g.AddNode(OperatorDef("DAdd").Input("a").Input("a").Output("loss"));
  const GradientMap d = AddGradients(g, "loss", {"x"}, kDSum);
  CHECK(NodesFrom(g, 2) ==
        Strings{"DSum (loss_grad, loss_grad) -> (a_grad_sum)", "DMul (a_grad_sum, x) -> (x_grad)",
                "DMul (a_grad_sum, x) -> (x_grad_1)", "DSum (x_grad, x_grad_1) -> (x_grad_sum)"});
  CHECK(Elements(*Run{g, {Tensor::From<double>({1}, {5})}}(), d.at("x").dense) ==
        std::vector<double>{20});
}

TEST_CASE("outputs without a gradient are handed to the maker as empty") {
  for (const bool cosine : {false, true}) {
    Graph g = WithInputs({"x"}, {1});
    g.AddNode(OperatorDef("DSinCos").Input("x").Output("s").Output("c"));
    g.AddNode(OperatorDef("DScale").Input(cosine ? "c" : "s").Output("loss"));
    AddGradients(g, "loss", {"x"});
    CHECK(NodesFrom(g, 3) ==
          Strings{cosine ? "DMul (c_grad, s) -> (x_grad)" : "DMul (s_grad, c) -> (x_grad)"});
  }
  Graph both = WithInputs({"x"}, {1});  // sin x cos x
  both.AddNode(OperatorDef("DSinCos").Input("x").Output("s").Output("c"));
  both.AddNode(OperatorDef("DMul").Input("s").Input("c").Output("loss"));
  AddGradients(both, "loss", {"x"});
  CHECK(Elements(*Run{both, {Tensor::From<double>({1}, {0.3})}}(), "x_grad")[0] ==
        doctest::Approx(std::cos(0.6)));
}

TEST_CASE("a gradient that is computed in place does not spoil one that shares it") {
  Graph g = WithInputs({"x", "y"}, {1});
  g.AddNode(OperatorDef("DScaleInplace").Input("x").Output("a").Arg("k", 3.0));
  g.AddNode(OperatorDef("DAdd").Input("a").Input("y").Output("loss"));
  const GradientMap d = AddGradients(g, "loss", {"x", "y"});
  const Tensor one = Tensor::From<double>({1}, {1});
  const auto ws = Run{g, {one, one}}();
  CHECK(Elements(*ws, d.at("x").dense) == std::vector<double>{3});
  CHECK(Elements(*ws, d.at("y").dense) == std::vector<double>{1});
}

TEST_CASE("a maker may work in place on its own values") {
  Graph g = WithInputs({"x"}, {1});
  g.AddNode(OperatorDef("DMistake").Input("x").Output("a").Arg("mistake", "works in place"));
  g.AddNode(OperatorDef("DScale").Input("x").Output("z").Arg("k", 2.0));
  g.AddNode(OperatorDef("DAdd").Input("a").Input("z").Output("loss"));
  AddGradients(g, "loss", {"x"}, kDSum);
  CHECK(NodesFrom(g, 3) ==
        Strings{"DScale (loss_grad) -> (x_grad)", "DScale (loss_grad) -> (x_grad_1)",
                "DScale (x_grad_1) -> (x_grad_1)", "DSum (x_grad, x_grad_1) -> (x_grad_sum)"});
}

TEST_CASE("a gradient node with an effect stays though nothing needs its result") {
  Graph g = WithInputs({"x"});
  g.AddNode(OperatorDef("DMistake").Input("x").Output("loss").Arg("mistake", "effect"));
  AddGradients(g, "loss", {"x"});
  CHECK(NodesFrom(g, 1) ==
        Strings{"DScale (loss_grad) -> (x_grad)", "DEffect (loss_grad) -> (loss_grad_seen)"});
}

TEST_CASE("no gradient gets the name of a value") {
  Graph g = WithInputs({"x", "x_grad", "loss_grad"}, {1});
  g.AddNode(OperatorDef("DMul").Input("x").Input("x_grad").Output("a"));
  g.AddNode(OperatorDef("DMul").Input("a").Input("loss_grad").Output("loss"));
  const GradientMap d = AddGradients(g, "loss", {"x", "x_grad"});
  CHECK(d.at("x").dense == "x_grad_1");
  CHECK(d.at("x_grad").dense == "x_grad_grad");
  CHECK(g.IsConstant("loss_grad_1"));
}

TEST_CASE("derivatives of a polynomial, to the third") {
  Graph g = WithInputs({"x"}, {3});  // 2 x^3 + 5 x
  g.AddNode(OperatorDef("DMul").Input("x").Input("x").Output("x2"));
  g.AddNode(OperatorDef("DMul").Input("x2").Input("x").Output("x3").Arg("k", 2.0));
  g.AddNode(OperatorDef("DScale").Input("x").Output("5x").Arg("k", 5.0));
  g.AddNode(OperatorDef("DAdd").Input("x3").Input("5x").Output("y"));
  const std::string first = AddGradients(g, "y", {"x"}, kDSum).at("x").dense;
  const std::string second = AddGradients(g, first, {"x"}, kDSum).at("x").dense;
  const std::string third = AddGradients(g, second, {"x"}, kDSum).at("x").dense;
  const auto ws = Run{g, {Tensor::From<double>({3}, {0, 2, -3})}}();
  CHECK(Elements(*ws, first) == std::vector<double>{5, 29, 59});    // 6 x^2 + 5
  CHECK(Elements(*ws, second) == std::vector<double>{0, 24, -36});  // 12 x
  CHECK(Elements(*ws, third) == std::vector<double>{12, 12, 12});
  CHECK(Contains(Refused(g, third, {"x"}).what(), "no path of nodes leads from it to the loss"));
}

TEST_CASE("a sparse gradient is named by its indices and values, and is not added up") {
  Graph g = WithInputs({"table"}, {10, 4});
  g.AddInput("rows", DType::kInt64, {3}).AddInput("more", DType::kInt64, {3});
  g.AddNode(OperatorDef("DLookup").Input("table").Input("rows").Output("a"));
  Graph once = g;
  once.AddNode(OperatorDef("DScale").Input("a").Output("loss"));
  CHECK(AddGradients(once, "loss", {"table"}).at("table") ==
        GradientValue::Sparse("rows", "a_grad"));

  g.AddNode(OperatorDef("DLookup").Input("table").Input("more").Output("b"));
  g.AddNode(OperatorDef("DMul").Input("a").Input("b").Output("loss"));
  const Error two = Refused(g, "loss", {"table"});
  CHECK(two.code() == ErrorCode::kUnsupported);
  CHECK(Contains(two.what(), "value 'table' has 2 gradients, of which {more, b_grad} is sparse"));
}

TEST_CASE("NO_GRADIENT and values that are no real numbers stop the gradient") {
  Graph g = WithInputs({"x"});
  g.AddNode(OperatorDef("DStop").Input("x").Output("a"));
  g.AddNode(OperatorDef("DMetric").Input("a").Output("b"));  // never asked
  g.AddNode(OperatorDef("DMul").Input("b").Input("x").Output("loss"));
  AddGradients(g, "loss", {"x"});
  CHECK(NodesFrom(g, 3) == Strings{"DMul (loss_grad, b) -> (x_grad)"});

  Graph rounded = WithInputs({"x"});
  rounded.AddNode(OperatorDef("DRound").Input("x").Output("i"));  // never asked
  rounded.AddNode(OperatorDef("DUnknownShape").Input("i").Output("u"));
  rounded.AddNode(OperatorDef("DMul").Input("x").Input("u").Output("loss"));
  AddGradients(rounded, "loss", {"x"});
  CHECK(NodesFrom(rounded, 3) == Strings{"DMul (loss_grad, u) -> (x_grad)"});
}

TEST_CASE("a value that no gradient flows to is an error, or gets an empty gradient") {
  Graph g = WithInputs({"x", "y", "z"});
  g.AddNode(OperatorDef("DStop").Name("wall").Input("y").Output("a"));
  g.AddNode(OperatorDef("DMul").Input("a").Input("x").Output("b"));
  g.AddNode(OperatorDef("DStop").Input("z").Output("elsewhere"));
  g.AddNode(OperatorDef("DScale").Input("b").Output("loss"));
  const Error stopped = Refused(g, "loss", {"x", "y"});
  CHECK(stopped.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(stopped.what(),
                 "no gradient of 'loss' flows to 'y': NO_GRADIENT(DStop) stops it at node DStop "
                 "'wall' (y) -> (a); leave it out, or set GradientOptions::allow_none"));
  CHECK(Contains(Refused(g, "loss", {"z"}).what(),
                 "no gradient of 'loss' flows to 'z': no path of nodes leads from it to the loss"));
  Graph none = WithInputs({"x"});
  none.AddNode(OperatorDef("DMistake").Input("x").Output("loss").Arg("mistake", "gives none"));
  CHECK(Contains(Refused(none, "loss", {"x"}).what(), "the operators on the way give it none"));

  const Graph before = g;
  const GradientMap d = AddGradients(g, "loss", {"x", "y", "z"}, {.allow_none = true});
  CHECK(d.at("x").IsDense());
  CHECK(d.at("y").IsEmpty());
  CHECK(d.at("z").IsEmpty());
  g = before;
  CHECK(AddGradients(g, "loss", {"z"}, {.allow_none = true}).at("z").IsEmpty());
  CHECK(g.nodes() == before.nodes());
  CHECK(g.constants().empty());  // nor is the seed left behind
}

TEST_CASE("operators that cannot be differentiated are named with the path") {
  const auto error = [](const char* op) {
    Graph g = WithInputs({"x"});
    g.AddNode(OperatorDef("DScale").Input("x").Output("a"));
    g.AddNode(OperatorDef(op).Name("here").Input("a").Output("b"));
    g.AddNode(OperatorDef("DMul").Input("b").Input("x").Output("loss"));
    return Refused(g, "loss", {"x"});
  };
  const std::string path = "' -> 'loss'";
  CHECK(error("DMetric").code() == ErrorCode::kUnsupported);
  CHECK(Contains(error("DMetric").what(), "DMetric 'here' (a) -> (b) must not be differentiated"));
  CHECK(Contains(error("DMetric").what(),
                 "in the gradient of node DMetric 'here' (a) -> (b), on the path 'x' -> 'a' -> 'b' "
                 "-> 'loss'"));
  CHECK(error("DNotYet").code() == ErrorCode::kUnsupported);
  CHECK(Contains(error("DNotYet").what(), "is not implemented yet"));
  CHECK(error("DNothingSaid").code() == ErrorCode::kNotFound);
  CHECK(Contains(error("DNothingSaid").what(), "operator DNothingSaid has no gradient: write"));
  CHECK(Contains(error("DNothingSaid").what(), "on the path 'x' -> 'a' -> 'b' -> 'loss'"));

  Graph deep = WithInputs({"v0"});
  for (int i = 0; i < 1000; ++i)
    deep.AddNode(OperatorDef(i == 500 ? "DMetric" : "DScale")
                     .Input(StrCat("v", i))
                     .Output(StrCat("v", i + 1)));
  CHECK(Contains(Refused(deep, "v1000", {"v0"}).what(),
                 "on the path 'v0' -> 'v1' -> 'v2' -> 'v3' -> 'v4' -> ... -> 'v996' -> 'v997' -> "
                 "'v998' -> 'v999' -> 'v1000'"));
}

TEST_CASE("values that are rewritten on the way are refused") {
  Graph g = WithInputs({"x", "y"});
  g.AddNode(OperatorDef("DScale").Input("x").Output("a"));
  Graph inplace = g;
  inplace.AddNode(OperatorDef("DScale").Name("again").Input("a").Output("a"));
  inplace.AddNode(OperatorDef("DTanh").Input("a").Output("loss"));
  const Error error = Refused(inplace, "loss", {"x"});
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.what(),
                 "node DScale 'again' (a) -> (a) rewrites 'a', and the gradient of 'loss' "
                 "would flow through that value"));
  Graph mutated = g;  // as a schema says
  mutated.AddNode(OperatorDef("DTouch").Input("a").Output("b"));
  mutated.AddNode(OperatorDef("DTanh").Input("a").Output("loss"));
  CHECK(Contains(Refused(mutated, "loss", {"x"}).what(), "node DTouch (a) -> (b) rewrites 'a'"));
  Graph stored = g;  // the loss depends on x through what a node leaves in y
  stored.AddNode(OperatorDef("DStore").Input("a").Input("y").Output("b"));
  stored.AddNode(OperatorDef("DTanh").Input("y").Output("loss"));
  CHECK(Contains(Refused(stored, "loss", {"x"}).what(), "node DStore (a, y) -> (b) rewrites 'y'"));

  // Not on the way, but read by a gradient after it has changed.
  g.AddNode(OperatorDef("DScale").Input("y").Output("t"));
  Graph later = g, before = g;
  later.AddNode(OperatorDef("DMul").Input("a").Input("t").Output("loss"));
  later.AddNode(OperatorDef("DScale").Input("t").Output("t"));
  CHECK(
      Contains(Refused(later, "loss", {"x"}).what(),
               "gradient node DMul (loss_grad, t) -> (a_grad) needs the 't' that node DMul (a, t) "
               "-> (loss) read, but node DScale (t) -> (t) rewrites it later"));
  before.AddNode(OperatorDef("DScale").Input("t").Output("t"));
  before.AddNode(OperatorDef("DMul").Input("a").Input("t").Output("loss"));
  CHECK(AddGradients(before, "loss", {"x"}).at("x").dense == "x_grad");

  Graph seed = g;
  seed.AddNode(OperatorDef("DScale").Input("t").Output("t"));
  CHECK(Contains(Refused(seed, "a", {"x"}, {.seed = "t"}).what(),
                 "the seed 't' is rewritten by a node of the graph"));
}

TEST_CASE("wrong names, dtypes and shapes are refused") {
  Graph g = WithInputs({"x"}, {Sym("N"), 2});
  g.AddInput("ids", DType::kInt64, {2});
  g.AddConstant("flat", Tensor::From<double>({2}, {1, 1}));
  g.AddConstant("single", Tensor::From<float>({1, 2}, {1, 1}));
  g.AddNode(OperatorDef("DRound").Input("x").Output("round"));
  g.AddNode(OperatorDef("DUnknownShape").Input("x").Output("unknown"));
  g.AddNode(OperatorDef("DScale").Input("x").Output("loss"));
  const auto refused = [&](const Error& error, ErrorCode code, const std::string& text) {
    CHECK(error.code() == code);
    CHECK_MESSAGE(Contains(error.what(), text), error.what());
  };
  refused(Refused(g, "los", {"x"}), ErrorCode::kNotFound,
          "the graph has no value 'los' (the loss) (did you mean 'loss'?");
  refused(Refused(g, "loss", {"X1"}), ErrorCode::kNotFound,
          "the graph has no value 'X1' (to differentiate by)");
  refused(Refused(g, "loss", {}), ErrorCode::kInvalidArgument,
          "needs the name of at least one value");
  refused(Refused(g, "loss", {"ids"}), ErrorCode::kTypeMismatch,
          "cannot differentiate by 'ids', which is int64[2]");
  refused(Refused(g, "round", {"x"}), ErrorCode::kTypeMismatch,
          "the loss 'round' is int64[N, 2]; expected a floating-point value");
  refused(Refused(g, "loss", {"x"}), ErrorCode::kFailedPrecondition,
          "the loss 'loss' is float64[N, 2], and its gradient starts from a tensor of ones, which "
          "has no "
          "shape yet; name a value that holds these ones in GradientOptions::seed");
  refused(Refused(g, "unknown", {"x"}), ErrorCode::kFailedPrecondition, "has no dtype yet");
  refused(Refused(g, "loss", {"x"}, {.seed = "sede"}), ErrorCode::kNotFound,
          "the graph has no value 'sede' (GradientOptions::seed)");
  refused(Refused(g, "loss", {"x"}, {.seed = "flat"}), ErrorCode::kInvalidArgument,
          "the seed 'flat' is float64[2], but the loss 'loss' is float64[N, 2]");
  refused(Refused(g, "loss", {"x"}, {.seed = "single"}), ErrorCode::kInvalidArgument,
          "the seed 'single' is float32[1, 2]");
  g.AddNode(OperatorDef("DScale").Input("nobody").Output("broken"));
  refused(Refused(g, "loss", {"x"}), ErrorCode::kNotFound, "reads 'nobody'");
}

TEST_CASE("mistakes of gradient makers are found before the graph changes") {
  const auto error = [](const char* mistake) {
    Graph g = WithInputs({"x", "y"});
    g.AddNode(OperatorDef("DScale").Input("x").Output("z"));
    g.AddNode(OperatorDef("DMistake").Input("x").Output("a").Arg("mistake", mistake));
    g.AddNode(OperatorDef("DMul").Input("z").Input("a").Output("loss"));
    return std::string(Refused(g, "loss", {"x"}).what());
  };
  CHECK(Contains(error("makes nothing"),
                 "its gradient maker names 'x_grad' as the gradient of 'x', but makes no such"));
  CHECK(Contains(error("makes nothing"),
                 "in the gradient of node DMistake (x) -> (a), on the path "
                 "'x' -> 'a' -> 'loss'"));
  CHECK(Contains(error("unknown operator"), "no operator 'DScael' is registered"));
  CHECK(Contains(error("unknown operator"), "did you mean 'DScale'?"));
  CHECK(Contains(error("arity"), "DAdd has 1 inputs, expected 2; in gradient node DAdd (a_grad)"));
  CHECK(Contains(error("reads nothing"), "reads 'nobody', which no input, constant or node makes"));
  CHECK(Contains(error("twice"), "value 'x_grad' is made by node DScale (a_grad) -> (x_grad)"));
  CHECK(Contains(error("touches"),
                 "gradient node DTouch (a_grad) -> (x_grad) writes to 'a_grad', which others may "
                 "read"));
}

TEST_CASE("a gradient of another shape or dtype than its value is refused, where both are known") {
  const auto graph = [](const char* mistake, SymbolicShape shape) {
    Graph g = WithInputs({"x", "dy"}, shape);
    g.AddNode(OperatorDef("DMistake").Input("x").Output("a").Arg("mistake", mistake));
    g.AddNode(OperatorDef("DScale").Input("a").Output("loss"));
    return g;
  };
  GradientOptions seeded;
  seeded.seed = "dy";
  const Error error = Refused(graph("other shape", {2, 3}), "loss", {"x"}, seeded);
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "the gradient of 'x' is 'x_grad', which is float64[6], but 'x' is float64[2, 3]; both must "
        "have the same dtype and shape: see the gradient maker of DMistake, for node DMistake (x) "
        "-> (a)");
  CHECK(Contains(Refused(graph("other dtype", {2, 3}), "loss", {"x"}, seeded).message(),
                 "which is float32[2, 3], but 'x' is float64[2, 3]"));
  // Where the shapes are open nothing contradicts.
  for (Graph open : {graph("other shape", SymbolicShape()), graph("works in place", {2, 3})})
    CHECK(AddGradients(open, "loss", {"x"}, seeded).at("x").IsDense());
}

TEST_CASE("gradients of random graphs are the numeric ones") {
  constexpr uint64_t kLargest = 200, kGraphs = Rounds(kLargest);
  int64_t checked = 0, zero = 0;
  for (uint64_t round = 1; round <= kGraphs; ++round) {
    const uint64_t seed = round * kLargest / kGraphs;  // graphs grow: the first to fail is small
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    auto below = [&](size_t count) { return static_cast<size_t>(random.Next() % count); };
    Graph g = WithInputs({"x0", "x1", "seed"});
    g.AddConstant("w", opkit::RandomTensor({2, 2}, DType::kFloat64, seed + 7));
    Strings values{"x0", "x1", "w"};
    std::vector<double> bounds{1.25, 1.25, 1.25};  // of the elements, so that nothing grows wild
    const size_t nodes = 2 + seed / 12;
    for (size_t i = 0; i < nodes; ++i) {
      // One is of the last two values, so that the loss depends on most nodes.
      const size_t a = values.size() - 1 - below(2), b = below(values.size());
      const double products[] = {bounds[a] * bounds[b], 2 * bounds[a] * bounds[b]};
      const std::string out = StrCat("v", i);
      size_t kind = below(8);
      if (kind < 2 && products[kind] > 3) kind = 3;
      OperatorDef def(Strings{"DMul", "DMatMul", "DAdd", "DTanh", "DSinCos", "DScale",
                              "DScaleInplace", "DSum"}[kind]);
      def.Input(values[a]).Output(out);
      if (kind <= 2 || kind == 7) def.Input(values[b]);
      if (kind == 7) def.Input(values[a]);
      if (kind == 5 || kind == 6) def.Arg("k", -0.75);
      values.push_back(out);
      bounds.push_back(kind < 2   ? products[kind]
                       : kind < 3 ? bounds[a] + bounds[b]
                       : kind < 5 ? 1
                       : kind < 7 ? bounds[a]
                                  : 2 * bounds[a] + bounds[b]);
      if (kind == 4) {
        def.Output(out + "c");
        values.push_back(out + "c");
        bounds.push_back(1);
      }
      g.AddNode(std::move(def));
    }
    const std::string loss = g.nodes().back().outputs()[0];
    const Strings wrt{"x0", "x1", "w", values[below(values.size())], values[below(values.size())]};
    std::vector<Tensor> inputs;
    for (uint64_t i = 0; i < 3; ++i)
      inputs.push_back(opkit::RandomTensor({2, 2}, DType::kFloat64, 3 * seed + i));

    Graph with = g;
    const GradientMap d = AddGradients(
        with, loss, wrt,
        {.seed = "seed", .sum_operator = round % 2 ? "DSum" : "DAdd", .allow_none = true});
    const auto ws = Run{with, inputs}();
    const Run forward{g, inputs};
    for (const std::string& value : wrt)
      for (int64_t element = 0; element < 4; ++element) {
        CAPTURE(value);
        CAPTURE(element);
        constexpr double kStep = 1e-5;
        const auto above = forward(value, element, kStep), under = forward(value, element, -kStep);
        double numeric = 0;
        for (size_t i = 0; i < 4; ++i)
          numeric += Elements(*ws, "seed")[i] *
                     (Elements(*above, loss)[i] - Elements(*under, loss)[i]) / (2 * kStep);
        const double analytic =
            d.at(value).IsEmpty() ? 0
                                  : Elements(*ws, d.at(value).dense)[static_cast<size_t>(element)];
        CHECK(detail::RelativeError(analytic, numeric) < 1e-6);
        ++checked;
        zero += analytic == 0;
      }
  }
  CHECK(checked == static_cast<int64_t>(kGraphs) * 20);
  CHECK(zero < checked / 2);  // most values matter
}

TEST_CASE("a deep graph with many uses is differentiated in time") {
  Graph g = WithInputs({"v0", "w"}, {1});
  constexpr int kNodes = Rounds(20000);
  for (int i = 0; i < kNodes; ++i)
    g.AddNode(OperatorDef("DMul").Input(StrCat("v", i)).Input("w").Output(StrCat("v", i + 1)));
  const GradientMap d = AddGradients(g, StrCat("v", kNodes), {"v0", "w"}, {.sum_operator = "DAdd"});
  CHECK(g.num_nodes() == kNodes + 2 * kNodes + kNodes - 1);
  CHECK(d.at("w").IsDense());
}

}  // namespace gradients_test

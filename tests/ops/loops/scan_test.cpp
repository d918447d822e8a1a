// Scan.
#include "opkit/ops/loops/scan.hpp"

#include "../data_movement.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/op/gradient/gradient_check.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/reduce.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/nn/activation.hpp"

namespace scan_test {
using namespace opkit_tests;

namespace {

// next = state + slice; stacks -next.
Graph SumBody() {
  Graph g;
  g.AddInput("state", DType::kFloat32, {});
  g.AddInput("slice", DType::kFloat32, {});
  g.AddNode(OperatorDef("Add", {"state", "slice"}, {"next"}));
  g.AddNode(OperatorDef("Neg", {"next"}, {"s"}));
  g.AddOutput("next");
  g.AddOutput("s");
  return g;
}
OperatorDef SumNode() {
  OperatorDef scan("Scan", {"state", "x"}, {"final", "stack"});
  scan.Arg("num_scan_inputs", int64_t{1});
  return scan.Subgraph("body", MakeSubgraph(SumBody()));
}
Graph Around(OperatorDef scan, SymbolicShape x, SymbolicShape state = {2}) {
  Graph g;
  g.AddInput("state", DType::kFloat32, std::move(state));
  g.AddInput("x", DType::kFloat32, std::move(x));
  for (const std::string& name : scan.outputs()) g.AddOutput(name);
  g.AddNode(std::move(scan));
  return g;
}
const Tensor kZero = Tensor::From<float>({2}, {0, 0});
// Rows {1, 2}, {3, 4}, {5, 6}.
const Tensor kRows = Tensor::From<float>({3, 2}, {1, 2, 3, 4, 5, 6});
const Tensor kColumns = Tensor::From<float>({2, 3}, {1, 3, 5, 2, 4, 6});

TEST_CASE("slices of strings are read and stacked along every axis") {
  Graph body;
  body.AddInput("slice", DType::kString, {});
  body.AddNode(OperatorDef("Identity", {"slice"}, {"s"}));
  body.AddOutput("s");
  const Tensor x = Tensor::From<std::string>({3, 2}, {"a", "b", "c", "d", "e", "f"});
  for (const int64_t axis : {0, 1}) {
    OperatorDef scan("Scan", {"x"}, {"stack"});
    scan.Arg("num_scan_inputs", int64_t{1});
    scan.Arg("scan_output_axes", std::vector<int64_t>{axis});
    Graph g;
    g.AddInput("x", DType::kString, {3, 2});
    g.AddNode(scan.Subgraph("body", MakeSubgraph(body)));
    g.AddOutput("stack");
    const Tensor stack = Executor(Compile(g)).Run({{"x", x}}).Get("stack");
    CHECK(stack.shape() == (axis == 0 ? Shape{3, 2} : Shape{2, 3}));
    CHECK(stack.ToVector<std::string>() ==
          (axis == 0 ? std::vector<std::string>{"a", "b", "c", "d", "e", "f"}
                     : std::vector<std::string>{"a", "c", "e", "b", "d", "f"}));
  }
}

TEST_CASE("the state sums the slices, forward and backward, run after run") {
  for (const bool backward : {false, true}) {
    OperatorDef scan = SumNode();
    if (backward) scan.Arg("scan_input_directions", std::vector<int64_t>{1});
    for (const bool known : {true, false}) {
      Executor exec(
          Compile(Around(scan, known ? SymbolicShape{3, 2} : SymbolicShape{Sym("t"), Sym("n")},
                         known ? SymbolicShape{2} : SymbolicShape{Sym("n")})));
      for (int run = 0; run < 3; ++run) {
        const NamedTensors out = exec.Run({{"state", kZero}, {"x", kRows}});
        CHECK(FloatsOf(out.Get("final")) == Floats{9, 12});
        CHECK(out.Get("stack").shape() == Shape{3, 2});
        CHECK(FloatsOf(out.Get("stack")) ==
              (backward ? Floats{-5, -6, -8, -10, -9, -12} : Floats{-1, -2, -4, -6, -9, -12}));
      }
      if (known) continue;
      const NamedTensors none = exec.Run(
          {{"state", Tensor::From<float>({2}, {7, 8})}, {"x", Tensor({0, 2}, DType::kFloat32)}});
      CHECK(FloatsOf(none.Get("final")) == Floats{7, 8});
      CHECK(none.Get("stack").shape() == Shape{0, 2});
    }
  }
  CHECK(FloatsOf(kZero) == Floats{0, 0});
}

TEST_CASE("slices may lie on another axis, and the stacked output may have its axis elsewhere") {
  for (const int64_t axis : {int64_t{1}, int64_t{-1}}) {
    OperatorDef scan = SumNode();
    scan.Arg("scan_input_axes", std::vector<int64_t>{axis})
        .Arg("scan_output_axes", std::vector<int64_t>{axis})
        .Arg("scan_output_directions", std::vector<int64_t>{1});
    const Graph graph = Around(scan, {Sym("n"), Sym("t")}, {Sym("n")});
    const GraphView view(graph);
    CHECK(InferGraph(view, {}).Get("stack").shape == SymbolicShape{Sym("n"), Sym("t")});
    Executor exec(Compile(graph));
    const NamedTensors out = exec.Run({{"state", kZero}, {"x", kColumns}});
    CHECK(FloatsOf(out.Get("final")) == Floats{9, 12});
    CHECK(FloatsOf(out.Get("stack")) == Floats{-9, -4, -1, -12, -6, -2});
  }
}

TEST_CASE("a value of the graph around the node is captured, and stacked outputs can be left out") {
  Graph body = SumBody();
  body.AddInput("c", DType::kFloat32, {});
  body.AddNode(OperatorDef("Mul", {"slice", "c"}, {"scaled"}));
  body.AddOutput("scaled");
  OperatorDef scan("Scan", {"state", "x", "twice"}, {"final", "", "stack"});
  scan.Arg("num_scan_inputs", int64_t{1}).Arg("captures", std::vector<std::string>{"c"});
  scan.Subgraph("body", MakeSubgraph(body));
  Graph g;
  g.AddInput("state", DType::kFloat32, {2});
  g.AddInput("x", DType::kFloat32, {3, 2});
  g.AddInput("c", DType::kFloat32, {1});
  g.AddNode(OperatorDef("Add", {"c", "c"}, {"twice"}));
  g.AddNode(scan);
  g.AddNode(OperatorDef("Neg", {"stack"}, {"negated"}));
  g.AddOutput("final");
  g.AddOutput("negated");
  Executor exec(Compile(g));
  for (const float c : {1.f, 5.f}) {
    const NamedTensors out =
        exec.Run({{"state", kZero}, {"x", kRows}, {"c", Tensor::From<float>({1}, {c})}});
    CHECK(FloatsOf(out.Get("final")) == Floats{9, 12});
    CHECK(FloatsOf(out.Get("negated")) == Floats{-2 * c, -4 * c, -6 * c, -8 * c, -10 * c, -12 * c});
  }
}

TEST_CASE("a wrong node is an Error") {
  const auto message = [](OperatorDef scan, SymbolicShape x = {3, 2}) {
    return std::string(ErrorOf([&] { Compile(Around(std::move(scan), std::move(x))); }).what());
  };
  OperatorDef none = SumNode();
  none.Arg("num_scan_inputs", int64_t{0});
  CHECK(Contains(message(none), "'num_scan_inputs' is 0"));
  OperatorDef axis = SumNode();
  axis.Arg("scan_input_axes", std::vector<int64_t>{2});
  CHECK(Contains(message(axis), "'scan_input_axes' has the axis 2"));
  OperatorDef axes = SumNode();
  axes.Arg("scan_output_axes", std::vector<int64_t>{0, 1});
  CHECK(Contains(message(axes), "'scan_output_axes' has 2 entries, expected 1"));
  OperatorDef direction = SumNode();
  direction.Arg("scan_input_directions", std::vector<int64_t>{2});
  CHECK(Contains(message(direction), "expected 0 (forward) or 1 (backward)"));
  OperatorDef bare("Scan", {"state", "x"}, {"final", "stack"});
  bare.Arg("num_scan_inputs", int64_t{1});
  CHECK(Contains(message(bare), "needs the subgraph 'body'"));
}

TEST_CASE("scanned inputs of different lengths are an Error") {
  Graph body;
  for (const char* name : {"a", "b"}) body.AddInput(name, DType::kFloat32, {});
  body.AddNode(OperatorDef("Add", {"a", "b"}, {"sum"}));
  body.AddOutput("sum");
  OperatorDef scan("Scan", {"state", "x"}, {"stack"});
  scan.Arg("num_scan_inputs", int64_t{2}).Subgraph("body", MakeSubgraph(body));
  const Error error = ErrorOf([&] { Compile(Around(scan, {3}, {2})); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(std::string(error.what()), "has the extent 3, but another input has 2"));
  Executor exec(Compile(Around(scan, {2}, {2})));
  CHECK(FloatsOf(exec.Run({{"state", Tensor::From<float>({2}, {1, 2})},
                           {"x", Tensor::From<float>({2}, {10, 20})}})
                     .Get("stack")) == Floats{11, 22});
}

// h' = tanh(h * w + x), n' = n + n; stacks h' * x. `w` is captured, `n` an integer.
OperatorDef Recurrent() {
  Graph g;
  g.AddInput("h", DType::kFloat64, {2});
  g.AddInput("n", DType::kInt64, Shape{});
  g.AddInput("x", DType::kFloat64, {2});
  g.AddInput("w", DType::kFloat64, {2});
  g.AddNode(OperatorDef("Mul", {"h", "w"}, {"hw"}));
  g.AddNode(OperatorDef("Add", {"hw", "x"}, {"sum"}));
  g.AddNode(OperatorDef("Tanh", {"sum"}, {"next"}));
  g.AddNode(OperatorDef("Add", {"n", "n"}, {"next n"}));
  g.AddNode(OperatorDef("Mul", {"next", "x"}, {"s"}));
  g.AddOutput("next").AddOutput("next n").AddOutput("s");
  OperatorDef scan("Scan", {"h", "n", "x", "w"}, {"final", "final n", "stack"});
  scan.Arg("num_scan_inputs", int64_t{1}).Arg("captures", std::vector<std::string>{"w"});
  return scan.Subgraph("body", MakeSubgraph(std::move(g)));
}
const Tensor kState = Tensor::From<double>({2}, {0.5, -0.25});
const Tensor kScanned = Tensor::From<double>({3, 2}, {0.1, -0.2, 0.3, 0.7, -0.6, 0.4});
const Tensor kWeights = Tensor::From<double>({2}, {0.8, -1.5});

TEST_CASE("the gradient of states, slices and captured values is that of differences") {
  for (const int64_t backward : {0, 1})
    for (const int64_t axis : {0, 1}) {
      CAPTURE(backward);
      CAPTURE(axis);
      OperatorDef scan = Recurrent();
      scan.Arg("scan_input_directions", std::vector<int64_t>{backward});
      scan.Arg("scan_output_directions", std::vector<int64_t>{axis});
      scan.Arg("scan_input_axes", std::vector<int64_t>{axis - 2 * backward});  // -2, -1, 0 or 1
      scan.Arg("scan_output_axes", std::vector<int64_t>{1 - axis});
      const Tensor x = axis == 0 ? kScanned : kScanned.Permute({1, 0}).Contiguous();
      const GradientCheckResult found =
          CheckGradient(scan, {kState, Tensor::Scalar(int64_t{1}), x, kWeights});
      CHECK_MESSAGE(found.ok(), ToString(found));
      CHECK(found.elements_checked == 2 + 6 + 2);
    }
}

TEST_CASE("only the outputs that the loss reads have a gradient, and unread values have none") {
  // The loss reads the stack alone, or the final state alone.
  for (const bool stack : {true, false}) {
    Graph g;
    g.AddInput("h", DType::kFloat64, {2});
    g.AddInput("n", DType::kInt64, Shape{});
    g.AddInput("x", DType::kFloat64, {3, 2});
    g.AddInput("w", DType::kFloat64, {2});
    g.AddNode(Recurrent());
    g.AddNode(OperatorDef("ReduceSum", {stack ? "stack" : "final"}, {"loss"})
                  .Arg("keepdims", int64_t{0}));
    const GradientMap gradients = AddGradients(g, "loss", {"h", "x", "w"});
    std::vector<std::string> names;
    for (const char* name : {"h", "x", "w"}) {
      names.push_back(gradients.at(name).dense);
      g.AddOutput(names.back());
    }
    g.AddOutput("loss");
    PlanOptions options;
    options.threads = 1;
    options.memory.verify = true;
    Executor exec(Compile(g, options));
    const auto run = [&](const Tensor& h, const Tensor& x, const Tensor& w) {
      return exec.Run({{"h", h}, {"n", Tensor::Scalar(int64_t{1})}, {"x", x}, {"w", w}});
    };
    const NamedTensors at = run(kState, kScanned, kWeights);
    const auto check = [&](int input, const Tensor& tensor, const std::string& gradient) {
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        double difference = 0;
        for (const double step : {1e-6, -1e-6}) {
          Tensor moved = Tensor::From<double>(tensor.shape(), tensor.ToVector<double>());
          moved.mutable_data<double>()[i] += step;
          difference += *run(input == 0 ? moved : kState, input == 1 ? moved : kScanned,
                             input == 2 ? moved : kWeights)
                             .Get("loss")
                             .data<double>() /
                        (2 * step);
        }
        CHECK(at.Get(gradient).data<double>()[i] == doctest::Approx(difference).epsilon(1e-6));
      }
    };
    check(0, kState, names[0]);
    check(1, kScanned, names[1]);
    check(2, kWeights, names[2]);
  }
}

}  // namespace
}  // namespace scan_test

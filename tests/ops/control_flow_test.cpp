// If.
#include "opkit/ops/control_flow.hpp"

#include "data_movement.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/reshape.hpp"
#include "opkit/profile/profiler.hpp"

namespace control_flow_test {
using namespace opkit_tests;

namespace {

// A branch that reads `inputs`, has one node and the output `y`.
Graph Branch(const std::vector<std::string>& inputs, OperatorDef node) {
  Graph g;
  for (const std::string& input : inputs) g.AddInput(input, DType::kUndefined, {});
  g.AddNode(std::move(node));
  g.AddOutput("y");
  return g;
}
OperatorDef If(const std::vector<std::string>& captures, Graph then_branch, Graph else_branch) {
  OperatorDef def("If", {"condition"}, {"out"});
  def.Name("choose").Inputs(captures).Arg("captures", captures);
  return def.Subgraph("then_branch", MakeSubgraph(std::move(then_branch)))
      .Subgraph("else_branch", MakeSubgraph(std::move(else_branch)));
}
// -x, or x twice.
OperatorDef NegateOrDouble() {
  return If({"x"}, Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})),
            Branch({"x"}, OperatorDef("Concat", {"x", "x"}, {"y"}, {{"axis", 0}})));
}
Graph Around(OperatorDef node, SymbolicShape x = {2}) {
  Graph g;
  g.AddInput("condition", DType::kBool, Shape{});
  g.AddInput("x", DType::kFloat32, std::move(x));
  g.AddNode(std::move(node));
  g.AddOutput("out");
  return g;
}
const Tensor kYes = Tensor::Scalar(true), kNo = Tensor::Scalar(false);

TEST_CASE("a selection for a branch is forced, and one that cannot be is an Error") {
  const Graph graph = Around(NegateOrDouble());
  PlanOptions options;
  options.selection.forced = Compile(graph).selection();
  REQUIRE(options.selection.forced.nodes.size() == 3);
  CHECK(options.selection.forced.nodes[1].node == "out/then_branch/y");
  CHECK(ToString(Compile(graph, options).selection()) == ToString(options.selection.forced));
  const auto refusal = [&](const char* node, const char* backend, const char* op = "") {
    PlanOptions forced;
    forced.selection.forced.nodes = {{node, backend, -1, op}};
    return std::string(ErrorOf([&] { Compile(graph, forced); }).what());
  };
  CHECK(Contains(refusal("out/then_branch/y", "nobody"), "'nobody'"));
  CHECK(Contains(refusal("out/then_branch/y", "reference", "Tan"),
                 "the selection says that node 'y' is Tan, but it is Neg"));
  CHECK(Contains(refusal("out/then_branch/z", "reference"), "a kernel for node 'z'"));
}

TEST_CASE("the branch that is taken runs, run after run") {
  Executor exec(Compile(Around(NegateOrDouble())));
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const Tensor first = exec.Run({{"condition", kYes}, {"x", x}}).Get("out");
  CHECK(FloatsOf(first) == Floats{-1, -2});
  for (int run = 0; run < 3; ++run) {
    CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}}).Get("out")) == Floats{1, 2, 1, 2});
    const Tensor y = Tensor::From<float>({2}, {static_cast<float>(run), 5});
    CHECK(FloatsOf(exec.Run({{"condition", kYes}, {"x", y}}).Get("out")) ==
          Floats{static_cast<float>(-run), -5});
  }
  CHECK(FloatsOf(first) == Floats{-1, -2});  // a later run leaves a kept result unchanged
}

REGISTER_OP(ProfiledInBranch)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) { res.invoke("Neg", {in[0]}, {out[0]}); })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      return *num_in = *num_out = 1, SUCCESS;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
      return out = in, SUCCESS;
    });

TEST_CASE("a custom operator in a branch is seen as one in a profile, inside the If") {
  const Graph branch = Branch({"x"}, OperatorDef("ProfiledInBranch", {"x"}, {"y"}));
  Executor exec(Compile(Around(If({"x"}, branch, branch)), {.threads = 1}));
  Profiler::Start();
  exec.Run({{"condition", kYes}, {"x", Tensor::From<float>({2}, {1, 2})}});
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  const auto named = [&](std::string_view name) {
    const auto found = std::ranges::find(profile.spans, name, DisplayName);
    REQUIRE(found != profile.spans.end());
    return *found;
  };
  const ProfileSpan custom = named("ProfiledInBranch"), inner = named("ProfiledInBranch::Neg");
  CHECK(custom.kind == Invocation::Kind::kCustomOperator);
  CHECK(inner.parent == custom.id);
  CHECK(std::string(DomainOf(named("If"))) == "operator");
  uint64_t around = custom.parent;  // the run of the branch, and the If around that
  for (const ProfileSpan& span : profile.spans)
    if (span.id == around && span.kind == Invocation::Kind::kRun) around = span.parent;
  CHECK(around == named("If").id);
}

TEST_CASE("the output is used by later nodes, in planned memory or not") {
  for (const bool same_shape : {true, false}) {
    Graph g;
    g.AddInput("condition", DType::kBool, Shape{});
    g.AddInput("x", DType::kFloat32, {2});
    g.AddNode(same_shape ? If({"x"}, Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})),
                              Branch({"x"}, OperatorDef("Abs", {"x"}, {"y"})))
                         : NegateOrDouble());
    g.AddNode(OperatorDef("Add", {"out", "out"}, {"sum"}));
    g.AddOutput("sum");
    Executor exec(Compile(g));
    for (int run = 0; run < 3; ++run) {
      const Tensor x = Tensor::From<float>({2}, {-1, static_cast<float>(run)});
      CHECK(FloatsOf(exec.Run({{"condition", kYes}, {"x", x}}).Get("sum")) ==
            Floats{2, -2 * static_cast<float>(run)});
      const float r = 2 * static_cast<float>(run);
      CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}}).Get("sum")) ==
            (same_shape ? Floats{2, r} : Floats{-2, r, -2, r}));
    }
  }
}

TEST_CASE("an output without a reader is written over nothing that is needed") {
  // The branches make the unread `d` after they have begun with what `e` needs.
  const auto branch = [](const char* first, const char* second) {
    Graph g;
    g.AddInput("x", DType::kUndefined, {});
    g.AddNode(OperatorDef(first, {"x"}, {"a"}));
    g.AddNode(OperatorDef("Neg", {"x"}, {"d"}));
    g.AddNode(OperatorDef(second, {"a", "a"}, {"e"}));
    return g.AddOutput("d").AddOutput("e"), g;
  };
  OperatorDef choose = If({"x"}, branch("Exp", "Add"), branch("Abs", "Mul"));
  choose.mutable_outputs() = {"unread", "out"};
  for (const bool nested : {false, true}) {
    OperatorDef node = choose;
    if (nested) {  // in a branch of another one, whose outputs are its own
      Graph inner;
      inner.AddInput("condition", DType::kBool, Shape{}).AddInput("x", DType::kUndefined, {});
      inner.AddNode(choose);
      inner.AddOutput("unread").AddOutput("out");
      node = If({"condition", "x"}, inner, branch("Abs", "Mul"));
      node.mutable_outputs() = {"unread", "out"};
    }
    Executor exec(Compile(Around(node, {4}), {.memory = {.verify = true}}));
    const Tensor x = Tensor::From<float>({4}, {0, 1, 2, -1});
    const Floats taken = FloatsOf(exec.Run({{"condition", kYes}, {"x", x}}).Get("out"));
    for (size_t i = 0; i < 4; ++i)
      CHECK(taken[i] == doctest::Approx(2 * std::exp(x.data<float>()[i])));
    if (!nested)
      CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}}).Get("out")) == Floats{0, 1, 4, 1});
  }
}

// w + x, over w; beside it w twice.
class RewritesFirstOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor x = Input(1);
    Tensor* const w = Output(0, Input(0).shape(), DType::kFloat32);
    for (int64_t i = 0; i < w->numel(); ++i) w->mutable_data<float>()[i] += x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(RewritesFirst)
    .NumInputs(2)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(RewritesFirst, RewritesFirstOp);

// An If whose first branch rewrites the value that it captures as `w`.
OperatorDef RewritingIf(const std::string& w) {
  Graph rewrite;
  rewrite.AddInput("w", DType::kFloat32, {2}).AddInput("x", DType::kFloat32, {2});
  rewrite.AddNode(OperatorDef("RewritesFirst", {"w", "x"}, {"w"}));
  rewrite.AddNode(OperatorDef("Identity", {"w"}, {"y"}));
  rewrite.AddOutput("y");
  OperatorDef def = If({"w", "x"}, rewrite, Branch({"w"}, OperatorDef("Neg", {"w"}, {"y"})));
  def.mutable_inputs() = {"condition", w, "x"};
  return def;
}

TEST_CASE("a value that a branch rewrites is rewritten in the graph around it") {
  const Tensor x = Tensor::From<float>({2}, {1, 1});
  SUBCASE("a constant is refused") {
    Graph g = Around(RewritingIf("w"));
    g.AddConstant("w", Tensor::From<float>({2}, {10, 20}));
    CHECK_THROWS_WITH_AS(Compile(g), doctest::Contains("'w'"), Error);
  }
  SUBCASE("an input is the caller's, which sees it") {
    Graph g = Around(RewritingIf("w"));
    g.AddInput("w", DType::kFloat32, {2});
    Executor exec(Compile(g));
    const Tensor w = Tensor::From<float>({2}, {10, 20});
    const std::vector<NamedTensor> inputs = {{"condition", kYes}, {"x", x}, {"w", w}};
    CHECK(FloatsOf(exec.Run(inputs).Get("out")) == Floats{11, 21});
    CHECK(FloatsOf(w) == Floats{11, 21});
    CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}, {"w", w}}).Get("out")) ==
          Floats{-11, -21});
  }
  SUBCASE("its readers see it in the order of nodes") {
    for (const int threads : {1, 4}) {
      Graph g;
      g.AddInput("condition", DType::kBool, Shape{});
      g.AddInput("x", DType::kFloat32, {2}).AddInput("w", DType::kFloat32, {2});
      g.AddNode(OperatorDef("Abs", {"w"}, {"v"}));
      g.AddNode(OperatorDef("Neg", {"v"}, {"before"}));
      g.AddNode(RewritingIf("v"));
      g.AddNode(OperatorDef("Neg", {"v"}, {"after"}));
      g.AddOutput("before").AddOutput("out").AddOutput("after");
      Executor exec(Compile(g, {.threads = threads, .memory = {.verify = true}}));
      const Tensor w = Tensor::From<float>({2}, {10, 20});
      for (int run = 0; run < 3; ++run) {
        const auto out = exec.Run({{"condition", kYes}, {"x", x}, {"w", w}});
        CHECK(FloatsOf(out.Get("before")) == Floats{-10, -20});
        CHECK(FloatsOf(out.Get("out")) == Floats{11, 21});
        CHECK(FloatsOf(out.Get("after")) == Floats{-11, -21});
      }
    }
  }
}

TEST_CASE("a branch may return a capture or a constant unchanged") {
  Graph capture, constant;
  capture.AddInput("x", DType::kUndefined, {}).AddOutput("x");
  constant.AddConstant("seven", Tensor::Scalar(7.f)).AddOutput("seven");
  Executor exec(Compile(Around(If({"x"}, capture, constant))));
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CHECK(FloatsOf(exec.Run({{"condition", kYes}, {"x", x}}).Get("out")) == Floats{1, 2});
  CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}}).Get("out")) == Floats{7});
  CHECK(FloatsOf(x) == Floats{1, 2});
}

TEST_CASE("an If inside a branch takes its own branch") {
  OperatorDef inner = NegateOrDouble();
  inner.mutable_outputs()[0] = "y";
  Graph outer = Branch({"x", "condition"}, inner);
  OperatorDef def =
      If({"x", "condition"}, outer, Branch({"x"}, OperatorDef("Identity", {"x"}, {"y"})));
  def.mutable_inputs() = {"outer", "x", "condition"};
  Graph g = Around(def);
  g.AddInput("outer", DType::kBool, Shape{});
  Executor exec(Compile(g));
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const auto run = [&](const Tensor& outer_condition, const Tensor& condition) {
    return FloatsOf(
        exec.Run({{"outer", outer_condition}, {"condition", condition}, {"x", x}}).Get("out"));
  };
  CHECK(run(kYes, kYes) == Floats{-1, -2});
  CHECK(run(kYes, kNo) == Floats{1, 2, 1, 2});
  CHECK(run(kNo, kYes) == Floats{1, 2});
}

// The inferred type of "out", as text.
std::string InferredOut(const Graph& g) {
  const GraphView view(g);
  return ToString(InferGraph(view).Get("out"));
}

TEST_CASE("inference gives the facts that both branches share") {
  CHECK(InferredOut(Around(NegateOrDouble(), {Sym("N"), 3})) == "float32[?, 3]");
  CHECK(InferredOut(Around(NegateOrDouble(), {2})) == "float32[<=4]");
  CHECK(InferredOut(Around(If({"x"}, Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})),
                              Branch({"x"}, OperatorDef("Abs", {"x"}, {"y"}))),
                           {Sym("N"), 3})) == "float32[N, 3]");
  CHECK(InferredOut(Around(If({"x"}, Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})),
                              Branch({"x"}, OperatorDef("Flatten", {"x"}, {"y"}))),
                           {2, 3, 4})) == "float32[rank unknown]");
}

TEST_CASE("a branch that the shapes do not fit is not the one that is taken") {
  Graph squeeze = Branch({"x"}, OperatorDef("Squeeze", {"x", "axes"}, {"y"}));
  squeeze.AddConstant("axes", List({0}));
  const OperatorDef def = If({"x"}, squeeze, Branch({"x"}, OperatorDef("Identity", {"x"}, {"y"})));
  CHECK(InferredOut(Around(def, {2, 3})) == "float32[2, 3]");
  Executor exec(Compile(Around(def, {2, 3})));
  CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", Counting({2, 3})}}).Get("out")) ==
        Floats{0, 1, 2, 3, 4, 5});
  const auto error = ErrorOf([&] { exec.Run({{"condition", kYes}, {"x", Counting({2, 3})}}); });
  CHECK(Contains(error.what(), "only an extent of 1 can be left out"));
  CHECK(Contains(error.what(), "in then_branch"));
  CHECK(Contains(error.what(), "If 'choose'"));
}

TEST_CASE("a branch that makes another shape than was inferred from the other fails the run") {
  Graph taken = Branch({"x"}, OperatorDef("Concat", {"x", "x"}, {"y"}, {{"axis", 0}}));
  taken.AddNode(OperatorDef("Reshape", {"x", "five"}, {"unread"}));  // fails, and does not run
  taken.AddConstant("five", Tensor::From<int64_t>({1}, {5}));
  const OperatorDef node =
      If({"x"}, std::move(taken), Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})));
  const PassList none;
  Executor exec(Compile(Around(node), {.passes = &none}));
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CHECK(FloatsOf(exec.Run({{"condition", kNo}, {"x", x}}).Get("out")) == Floats{-1, -2});
  CHECK(Contains(ErrorOf([&] {
                   exec.Run({{"condition", kYes}, {"x", x}});
                 }).what(),
                 "float32[4], where its inference says float32[2]"));
}

TEST_CASE("with a known condition the branch decides, its data as well") {
  Graph g;
  g.AddConstant("condition", kNo);
  g.AddInput("x", DType::kFloat32, {2});
  g.AddNode(NegateOrDouble());
  g.AddOutput("out");
  CHECK(InferredOut(g) == "float32[4]");

  Graph shape, other;
  shape.AddConstant("list", List({3, 4})).AddOutput("list");
  other.AddConstant("list", List({5})).AddOutput("list");
  Graph reshaped;
  reshaped.AddConstant("condition", kYes);
  reshaped.AddInput("x", DType::kFloat32, {12});
  OperatorDef choose = If({}, shape, other);
  choose.mutable_outputs()[0] = "shape";
  reshaped.AddNode(choose);
  reshaped.AddNode(OperatorDef("Reshape", {"x", "shape"}, {"out"}));
  reshaped.AddOutput("out");
  CHECK(InferredOut(reshaped) == "float32[3, 4]");
}

TEST_CASE("deep nests are inferred in time that does not multiply") {
  OperatorDef def = NegateOrDouble();
  def.mutable_outputs()[0] = "y";
  for (int depth = 0; depth < 30; ++depth) {
    Graph inside = Branch({"x", "condition"}, def);
    def = If({"x", "condition"}, inside, Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"})));
    def.mutable_outputs()[0] = "y";
  }
  def.mutable_outputs()[0] = "out";
  def.mutable_inputs() = {"condition", "x", "condition"};
  CHECK(InferredOut(Around(def)) == "float32[<=4]");
}

TEST_CASE("a node that does not fit its branches is refused") {
  const auto refused = [](const OperatorDef& def) {
    return std::string(ErrorOf([&] { InferredOut(Around(def)); }).what());
  };
  const Graph negate = Branch({"x"}, OperatorDef("Neg", {"x"}, {"y"}));
  OperatorDef bare("If", {"condition"}, {"out"});
  CHECK(Contains(refused(bare), "If needs the subgraph 'then_branch'"));
  CHECK(Contains(refused(If({}, negate, negate)),
                 "'then_branch' reads 'x', which is not among the captures, []"));
  OperatorDef uncounted = If({"x"}, negate, negate);
  uncounted.Arg("captures", std::vector<std::string>{"x", "z"});
  CHECK(Contains(refused(uncounted), "'captures' names 2 values, expected one for each input"));
  OperatorDef two = If({"x"}, negate, negate);
  two.Output("more");
  CHECK(Contains(refused(two), "'then_branch' has 1 outputs, expected those of the node, 2"));
  CHECK(Contains(refused(If({"x"}, negate, Branch({"x"}, OperatorDef("Unheard", {"x"}, {"y"})))),
                 "no operator 'Unheard'"));
}

TEST_CASE("the gradient runs the branch that was taken backwards") {
  Graph square;
  square.AddInput("x", DType::kUndefined, {});
  square.AddNode(OperatorDef("Mul", {"x", "x"}, {"y"}));
  square.AddOutput("y");
  // Both branches have two captured values, and each reads one of them.
  const OperatorDef def =
      If({"x", "z"}, std::move(square), Branch({"z"}, OperatorDef("Neg", {"z"}, {"y"})));
  Graph g;
  g.AddInput("condition", DType::kBool, Shape{});
  for (const char* name : {"x", "z"}) g.AddInput(name, DType::kFloat32, Shape{2});
  g.AddNode(def);
  g.AddNode(OperatorDef("ReduceSum", {"out"}, {"loss"}, {{"keepdims", 0}}));
  const GradientMap gradients = AddGradients(g, "loss", {"x", "z"});
  for (const auto& [name, gradient] : gradients) g.AddOutput(gradient.dense);
  Executor executor(Compile(g));
  for (const bool taken : {true, false}) {
    const auto out = executor.Run({{"condition", Tensor::Scalar(taken)},
                                   {"x", Tensor::From<float>({2}, {3, -2})},
                                   {"z", Tensor::From<float>({2}, {5, 7})}});
    CHECK(FloatsOf(out.Get(gradients.at("x").dense)) == (taken ? Floats{6, -4} : Floats{0, 0}));
    CHECK(FloatsOf(out.Get(gradients.at("z").dense)) == (taken ? Floats{0, 0} : Floats{-1, -1}));
  }
}

TEST_CASE("the condition is one bool") {
  const auto error = [](const Tensor& condition) {
    Workspace ws;
    *ws.CreateTensor("condition") = condition;
    *ws.CreateTensor("x") = Counting({2});
    return ErrorOf([&] { CreateOperator(NegateOrDouble(), &ws)->Run(); }).message();
  };
  CHECK(
      Contains(error(Tensor::Scalar(1.f)), "the condition is float32[] on cpu, expected one bool"));
  CHECK(Contains(error(Tensor(Shape{2}, DType::kBool)), "expected one bool"));
}

}  // namespace
}  // namespace control_flow_test

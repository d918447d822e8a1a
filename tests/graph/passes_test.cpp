#include "opkit/graph/passes.hpp"
#include "support/sanitizers.hpp"

#include <doctest/doctest.h>

#include "nodes.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"
#include "opkit/graph/print/print.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "random_graph.hpp"
#include "support/error_of.hpp"

namespace passes_test {
using namespace opkit;
using namespace graph_nodes;

namespace {

Graph WithInputs(std::initializer_list<const char*> names) {
  Graph g;
  for (const char* name : names) g.AddInput(name, DType::kFloat32, {2, 2});
  return g;
}
Tensor Matrix(float a) { return Tensor::From<float>({2, 2}, {a, -a, a + 1, 0.5f}); }

std::string Listing(const Graph& graph) {  // of constants and nodes
  std::string out;
  for (const GraphConstant& constant : graph.constants()) out += constant.name + "; ";
  for (const OperatorDef& def : graph.nodes()) out += ToString(def) + "; ";
  return out;
}

// Four floats, and how often they were made.
class CountedOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    ++runs;
    for (int i = 0; i < 4; ++i) Output(0, Shape{4}, DType::kFloat32)->mutable_data<float>()[i] = 0;
    return true;
  }
  static inline int runs = 0;
};
OPERATOR_SCHEMA(CountedFour)
    .NumInputs(0)
    .NumOutputs(1)
    .TensorInferenceFunction([](InferenceContext& c) {
      c.SetOutput(0, DType::kFloat32, Shape{4});
    });
REGISTER_CPU_OPERATOR(CountedFour, CountedOp);

// Equal computations in a graph that has few: nodes are doubled, what reads a value may read the
// double's, and some doubles are outputs.
Graph WithDoubles(const Graph& graph, uint64_t seed) {
  detail::CheckRandom random(seed);
  const auto chance = [&](double probability) { return random.Uniform() < probability; };
  Graph out;
  for (const GraphInput& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape);
  for (const GraphConstant& constant : graph.constants()) {
    out.AddConstant(constant.name, constant.value);
    out.AddConstant(constant.name + "_double", detail::CopyOf(constant.value));
  }
  const GraphView view(graph);
  std::vector<std::string> outputs = graph.outputs();
  for (OperatorDef def : graph.nodes()) {
    for (std::string& input : def.mutable_inputs()) {
      const bool rewritten = view.IsRewritten(view.FindValue(input));
      if (!rewritten && out.HasValue(input + "_double") && chance(0.5)) input += "_double";
    }
    out.AddNode(def);
    const std::string made = def.outputs()[0];
    if (view.IsRewritten(view.FindValue(made)) || !chance(0.5)) continue;
    def.mutable_outputs()[0] += "_double";
    out.AddNode(def.Name(def.name().empty() ? "" : def.name() + "_double"));
    if (chance(0.2)) outputs.push_back(made + "_double");
    if (chance(0.2) && !graph.IsOutput(made)) outputs.push_back(made);
  }
  for (const std::string& output : outputs) out.AddOutput(output);
  return out;
}

void CheckSameResults(const Graph& before, const Graph& after, uint64_t seed) {
  Check(after);
  CHECK(after.outputs() == before.outputs());
  REQUIRE(after.inputs().size() == before.inputs().size());
  const auto inputs = RandomInputs(before, seed);
  const auto expected = RunInOrder(before, inputs), found = RunInOrder(after, inputs);
  REQUIRE(expected.size() == found.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    CAPTURE(before.outputs()[o]);
    CHECK(detail::SameBytes(expected[o], found[o]));
  }
}

}  // namespace

// ----------------------------------------------------------------------------------- dead nodes

TEST_CASE("a node has an effect beside its outputs if it is stateful, has none, or is unknown") {
  using detail::HasEffect;
  CHECK_FALSE(HasEffect(Relu("X", "Y")));
  CHECK(HasEffect(OperatorDef("Noise").Output("Y")));
  CHECK(HasEffect(OperatorDef("Report").Input("X")));
  CHECK(HasEffect(OperatorDef("Relu", {"X"}, {""})));
  CHECK(HasEffect(OperatorDef("NoSuchOperator", {"X"}, {"Y"})));
}

TEST_CASE("a node is evaluated on its own where only its outputs can tell") {
  using detail::MayEvaluate;
  CHECK(MayEvaluate(Scale("X", "Y", 2)));
  CHECK_FALSE(MayEvaluate(Accumulate("X", "Y")));
  CHECK_FALSE(MayEvaluate(OperatorDef("Noise").Output("Y")));
  CHECK_FALSE(MayEvaluate(Scale("X", "Y", 2).Device(DeviceType::kCUDA)));
  const Tensor x = Matrix(1);
  const std::vector<Tensor> outputs = detail::EvaluateNode(Scale("X", "Y", 2), {&x});
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].ToVector<float>() == std::vector<float>{2, -2, 4, 1});
}

TEST_CASE("nodes and constants that no output needs are removed, chains of them too") {
  Graph g = WithInputs({"X", "unread"});
  g.AddConstant("W", Matrix(1));
  g.AddConstant("V", Matrix(2));
  g.AddNode(Relu("X", "A"));
  g.AddNode(Add("A", "V", "dead1"));
  g.AddNode(Relu("dead1", "dead2"));
  g.AddNode(Add("A", "W", "Y"));
  g.AddOutput("Y");
  const Graph after = RemoveDeadNodes(g);
  CHECK(Listing(after) == "W; Relu (X) -> (A); Add (A, W) -> (Y); ");
  CHECK(after.inputs().size() == 2);  // the caller's signature
  CHECK(g.num_nodes() == 4);
}

TEST_CASE("an output of the graph may be a constant, and that one stays") {
  Graph g;
  g.AddConstant("W", Matrix(1));
  g.AddOutput("W");
  CHECK(Listing(RemoveDeadNodes(g)) == "W; ");
}

TEST_CASE("effects stay, with what they need: no outputs, stateful, inside a subgraph") {
  Graph noisy;
  noisy.AddNode(OperatorDef("Noise").Output("n"));
  noisy.AddOutput("n");
  Graph quiet;
  quiet.AddNode(OperatorDef("Ones").Output("n"));
  quiet.AddOutput("n");
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddNode(OperatorDef("Report").Input("A"));
  g.AddNode(OperatorDef("Noise").Output("B"));
  g.AddNode(OperatorDef("Identity").Input("X").Output("C").Subgraph("body", MakeSubgraph(noisy)));
  g.AddNode(OperatorDef("Identity").Input("X").Output("D").Subgraph("body", MakeSubgraph(quiet)));
  CHECK(Listing(RemoveDeadNodes(g)) ==
        "Relu (X) -> (A); Report (A) -> (); Noise () -> (B); Identity (X) -> (C); ");
}

TEST_CASE("an input of the graph that is rewritten is the caller's memory: that stays") {
  Graph g = WithInputs({"T", "X"});
  g.AddNode(Relu("X", "A"));
  g.AddNode(Accumulate("T", "A"));
  g.AddNode(Relu("T", "B"));  // nobody reads it
  CHECK(Listing(RemoveDeadNodes(g)) == "Relu (X) -> (A); Accumulate (T, A) -> (T); ");
}

TEST_CASE("of a value's rewrites, those before a reader stay") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "T"));
  g.AddNode(Accumulate("T", "X"));
  g.AddNode(Scale("T", "Y", 2));
  g.AddNode(Accumulate("T", "X"));  // after the last reader
  g.AddOutput("Y");
  CHECK(Listing(RemoveDeadNodes(g)) ==
        "Relu (X) -> (T); Accumulate (T, X) -> (T); Scale (T) -> (Y); ");
  g.AddOutput("T");  // now all of them count
  CHECK(RemoveDeadNodes(g).num_nodes() == 4);
  Graph whole = WithInputs({"X"});  // rewritten and never read
  whole.AddNode(Relu("X", "T"));
  whole.AddNode(Accumulate("T", "X"));
  CHECK(RemoveDeadNodes(whole).num_nodes() == 0);
}

TEST_CASE("a live node keeps the nodes that it waits for by name") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A").Name("first"));
  g.AddNode(Relu("X", "B").Name("other"));
  g.AddNode(Scale("X", "Y", 2).ControlInput("first"));
  g.AddOutput("Y");
  CHECK(Listing(RemoveDeadNodes(g)) == "Relu 'first' (X) -> (A); Scale (X) -> (Y); ");
}

// ------------------------------------------------------------------------------ constant folding

TEST_CASE("nodes that read constants, or nothing, become constants") {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Matrix(1));
  g.AddNode(OperatorDef("Ones").Output("E").Arg("size", 2));
  g.AddNode(Scale("W", "A", 3));
  g.AddNode(Add("A", "W", "B"));
  g.AddNode(Add("X", "B", "Y"));
  g.AddOutput("Y");
  g.AddOutput("E");
  const Graph after = FoldConstants(g);
  CHECK(Listing(after) == "E; B; Add (X, B) -> (Y); ");  // W and A are nobody's now
  CHECK(after.FindConstant("B")->ToVector<float>() == std::vector<float>{4, -4, 8, 2});
  CHECK(after.FindConstant("E")->ToVector<float>() == std::vector<float>{1, 1});
  CHECK(after.outputs() == g.outputs());
}

TEST_CASE("what may not run ahead of time is not folded") {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Matrix(1));
  SUBCASE("stateful") { g.AddNode(OperatorDef("Noise").Output("Y")); }
  SUBCASE("no outputs") { g.AddNode(OperatorDef("Report").Input("W")); }
  SUBCASE("one input is not constant") { g.AddNode(Add("X", "W", "Y")); }
  SUBCASE("rewrites") { g.AddNode(Accumulate("X", "W")); }
  SUBCASE("it throws") { g.AddNode(OperatorDef("Fail").Input("W").Output("Y")); }
  SUBCASE("it returns false") {
    g.AddNode(OperatorDef("Fail").Input("W").Output("Y").Arg("how", "false"));
  }
  SUBCASE("it cannot be made") { g.AddNode(Relu("W", "Y").Device(DeviceType::kMetal)); }
  SUBCASE("it waits for another") {
    g.AddNode(Relu("X", "A").Name("a"));
    g.AddNode(Relu("W", "Y").ControlInput("a"));
  }
  SUBCASE("another waits for it") {
    g.AddNode(Relu("W", "A").Name("a"));
    g.AddNode(Relu("X", "Y").ControlInput("a"));
  }
  CHECK(SameGraph(FoldConstants(g), g));
}

TEST_CASE("a value that is rewritten does not become a constant, which could not be written") {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Matrix(1));
  g.AddNode(Scale("W", "T", 2));
  g.AddNode(Accumulate("T", "X"));
  g.AddNode(Scale("W", "U", 2));
  g.AddNode(Add("T", "U", "Y"));
  g.AddOutput("Y");
  const Graph after = FoldConstants(g);
  CHECK(Listing(after) == "W; U; Scale (W) -> (T); Accumulate (T, X) -> (T); Add (T, U) -> (Y); ");
  CheckSameResults(g, after, 1);
}

TEST_CASE("results over the limit stay, and are not computed where the schema tells their size") {
  Graph g;
  g.AddNode(OperatorDef("Ones").Output("E").Arg("size", 1000));
  g.AddNode(OperatorDef("Ones").Output("F").Arg("size", int64_t{1} << 60));
  g.AddNode(OperatorDef("Ones").Output("G").Arg("size", 4));
  g.AddNode(OperatorDef("Positives").Input("G").Output("P"));  // only the data tells
  for (const char* name : {"E", "F", "P"}) g.AddOutput(name);
  CHECK(Listing(FoldConstants(g)) == "E; P; Ones () -> (F); ");
  CHECK(Listing(FoldConstants(g, {.max_bytes = 16})) == "P; Ones () -> (E); Ones () -> (F); ");
  Graph unsaid;  // the schema of Positives does not tell: it is run, and stays
  unsaid.AddConstant("V", Tensor::From<float>({3}, {1, 2, 3}));
  unsaid.AddNode(OperatorDef("Positives").Input("V").Output("P"));
  unsaid.AddOutput("P");
  CHECK(FoldConstants(unsaid, {.max_bytes = 11}).num_nodes() == 1);
  CHECK(FoldConstants(unsaid, {.max_bytes = 12}).num_nodes() == 0);
  CountedOp::runs = 0;
  Graph counted;
  counted.AddNode(OperatorDef("CountedFour").Output("Y"));
  counted.AddOutput("Y");
  FoldConstants(counted, {.max_bytes = 15});
  CHECK(CountedOp::runs == 0);
  FoldConstants(counted, {.max_bytes = 16});
  CHECK(CountedOp::runs == 1);
  CHECK(Listing(FoldConstants(g, {.max_bytes = 15})) ==
        "Ones () -> (E); Ones () -> (F); Ones () -> (G); Positives (G) -> (P); ");
}

TEST_CASE("folding leaves the graph's own constants alone, also through an operator that aliases") {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Matrix(1));
  g.AddNode(OperatorDef("Identity").Input("W").Output("A"));
  g.AddNode(Scale("A", "B", 5));
  g.AddNode(Add("A", "B", "C"));
  g.AddNode(Add("X", "C", "Y"));
  g.AddOutput("Y");
  g.AddOutput("W");
  const Graph after = FoldConstants(g);
  CHECK(Listing(after) == "W; C; Add (X, C) -> (Y); ");
  CHECK(after.FindConstant("W")->ToVector<float>() == Matrix(1).ToVector<float>());
  CheckSameResults(g, after, 2);
}

// ------------------------------------------------------------------------ common subexpressions

TEST_CASE("equal nodes become one, and so do those that read them") {
  Graph g = WithInputs({"X"});
  g.AddNode(Scale("X", "A", 2));
  g.AddNode(Scale("X", "B", 2));
  g.AddNode(Relu("A", "C"));
  g.AddNode(Relu("B", "D"));
  g.AddNode(Add("C", "D", "Y"));
  g.AddOutput("Y");
  CHECK(Listing(MergeCommonSubexpressions(g)) ==
        "Scale (X) -> (A); Relu (A) -> (C); Add (C, C) -> (Y); ");
}

TEST_CASE("what differs is not merged") {
  Graph g = WithInputs({"X", "Z"});
  g.AddNode(OperatorDef("Scale").Name("n").Input("X").Output("A").Arg("scale", 0.0));
  OperatorDef other = OperatorDef("Scale").Input("X").Output("B").Arg("scale", 0.0);
  bool merges = false;
  SUBCASE("but a name does not make a difference") { other.Name("m"), merges = true; }
  SUBCASE("type") { other.Type("Relu").mutable_args().Remove("scale"); }
  SUBCASE("input") { other.mutable_inputs()[0] = "Z"; }
  SUBCASE("attribute") { other.Arg("scale", 1.0); }
  SUBCASE("attribute, by the sign of zero") { other.Arg("scale", -0.0); }
  SUBCASE("no attribute") { other.mutable_args().Remove("scale"); }
  SUBCASE("device") { other.Device(DeviceType::kCPUStream); }
  SUBCASE("engine") { other.Engine("reference"); }
  SUBCASE("control input") { other.ControlInput("n"); }
  SUBCASE("somebody waits for it") {
    other.Name("m");
    g.AddNode(Relu("Z", "C").ControlInput("m"));
  }
  g.AddNode(other);
  g.AddNode(Add("A", "B", "Y"));
  g.AddOutput("Y");
  const Graph after = MergeCommonSubexpressions(g);
  CHECK(after.num_nodes() == g.num_nodes() - (merges ? 1 : 0));
  if (!merges) CHECK(SameGraph(after, g));
}

TEST_CASE("attributes are compared in any order, a NaN is itself") {
  Graph g = WithInputs({"X"});
  const double nan = std::bit_cast<double>(uint64_t{0x7ff8000000000000});
  const auto carrier = [&](const char* out, bool other_order) {
    OperatorDef def = OperatorDef("Identity").Input("X").Output(out);
    other_order ? def.Arg("b", 1).Arg("a", nan) : def.Arg("a", nan).Arg("b", 1);
    return def;
  };
  g.AddNode(carrier("A", false));
  g.AddNode(carrier("B", true));
  g.AddNode(Add("A", "B", "Y"));
  g.AddOutput("Y");
  CHECK(Listing(MergeCommonSubexpressions(g)) == "Identity (X) -> (A); Add (A, A) -> (Y); ");
}

TEST_CASE("stateful nodes, rewriting nodes and what touches rewritten values stay double") {
  Graph g = WithInputs({"X", "T"});
  SUBCASE("stateful") {
    g.AddNode(OperatorDef("Noise").Output("A"));
    g.AddNode(OperatorDef("Noise").Output("B"));
    g.AddNode(Add("A", "B", "Y"));
  }
  SUBCASE("no outputs") {
    g.AddNode(OperatorDef("Report").Input("X"));
    g.AddNode(OperatorDef("Report").Input("X"));
    g.AddNode(Relu("X", "Y"));
  }
  SUBCASE("read before and after a rewrite") {
    g.AddNode(Relu("T", "A"));
    g.AddNode(Accumulate("T", "X"));
    g.AddNode(Relu("T", "B"));
    g.AddNode(Add("A", "B", "Y"));
  }
  SUBCASE("twice added") {
    g.AddNode(Accumulate("T", "X"));
    g.AddNode(Accumulate("T", "X"));
    g.AddNode(Relu("T", "Y"));
  }
  SUBCASE("one of two equal values is rewritten later") {
    g.AddNode(Relu("X", "A"));
    g.AddNode(Relu("X", "B"));
    g.AddNode(Accumulate("B", "X"));
    g.AddNode(Add("A", "B", "Y"));
  }
  g.AddOutput("Y");
  const Graph after = MergeCommonSubexpressions(g);
  CHECK(SameGraph(after, g));
}

TEST_CASE("outputs of the graph keep their names") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddNode(Relu("X", "B"));
  g.AddNode(Scale("A", "C", 2));
  g.AddNode(Scale("B", "D", 2));
  SUBCASE("one double: the first node takes its name") {
    g.AddOutput("D");
    CHECK(Listing(MergeCommonSubexpressions(g)) == "Relu (X) -> (A); Scale (A) -> (D); ");
  }
  SUBCASE("both: both stay") {
    for (const char* name : {"A", "B", "C"}) g.AddOutput(name);
    CHECK(Listing(MergeCommonSubexpressions(g)) ==
          "Relu (X) -> (A); Relu (X) -> (B); Scale (A) -> (C); ");
  }
  const Graph after = MergeCommonSubexpressions(g);
  CheckSameResults(g, after, 3);
  CHECK(SameGraph(MergeCommonSubexpressions(after), after));
}

TEST_CASE("nodes with several outputs are merged whole") {
  Graph g = WithInputs({"X"});
  g.AddNode(OperatorDef("Split").Input("X").Output("A").Output("B"));
  g.AddNode(OperatorDef("Split").Input("X").Output("C").Output("D"));
  g.AddNode(OperatorDef("Split").Input("X").Output("E").Output(""));  // makes less
  for (const char* name : {"A", "D", "E"}) g.AddOutput(name);
  CHECK(Listing(MergeCommonSubexpressions(g)) == "Split (X) -> (A, D); Split (X) -> (E, ); ");
  g.AddOutput("C");  // clashes with A
  const Graph after = MergeCommonSubexpressions(g);
  CHECK(after.num_nodes() == 3);
  CheckSameResults(g, after, 4);
}

TEST_CASE("a node that leaves out what its double makes does not stand for it") {
  Graph g = WithInputs({"X"});
  g.AddNode(OperatorDef("Split").Input("X").Output("A").Output(""));
  g.AddNode(OperatorDef("Split").Input("X").Output("B").Output("C"));
  g.AddNode(Add("A", "B", "D"));
  g.AddNode(Add("D", "C", "Y"));
  g.AddOutput("Y");
  const Graph after = MergeCommonSubexpressions(g);
  CHECK(after.num_nodes() == 4);
  CheckSameResults(g, after, 5);
}

TEST_CASE("equal constants become one; another dtype, shape or byte makes another") {
  Graph g = WithInputs({"X"});
  g.AddConstant("W", Matrix(1));
  g.AddConstant("V", Matrix(1));
  g.AddConstant("U", Matrix(1).View({4}));
  g.AddConstant("O", Matrix(1));
  g.AddNode(Add("X", "W", "A"));
  g.AddNode(Add("X", "V", "B"));
  g.AddNode(Add("B", "O", "C"));
  g.AddNode(Add("A", "C", "Y"));
  g.AddNode(Relu("U", "Z"));
  for (const char* name : {"Y", "O", "Z"}) g.AddOutput(name);
  CHECK(Listing(MergeCommonSubexpressions(g)) ==
        "W; U; O; Add (X, W) -> (A); Add (A, W) -> (C); Add (A, C) -> (Y); Relu (U) -> (Z); ");
}

TEST_CASE("nodes with equal subgraphs are merged, with others not") {
  Graph twice = WithInputs({"x"}), thrice = WithInputs({"x"});
  twice.AddNode(Scale("x", "y", 2)), twice.AddOutput("y");
  thrice.AddNode(Scale("x", "y", 3)), thrice.AddOutput("y");
  Graph g = WithInputs({"X"});
  const auto carrier = [&](const char* out, const Graph& body) {
    return OperatorDef("Identity").Input("X").Output(out).Subgraph("body", MakeSubgraph(body));
  };
  g.AddNode(carrier("A", twice));
  g.AddNode(carrier("B", Graph(twice)));
  g.AddNode(carrier("C", thrice));
  g.AddNode(OperatorDef("Identity").Input("X").Output("D"));
  g.AddNode(OperatorDef("Sum").Inputs({"A", "B", "C", "D"}).Output("Y"));
  g.AddOutput("Y");
  CHECK(MergeCommonSubexpressions(g).nodes().back().inputs() ==
        std::vector<std::string>{"A", "A", "C", "D"});
}

// ----------------------------------------------------------------------------------------- lists

TEST_CASE("passes are named, ordered, inserted and removed") {
  PassList passes = DefaultPasses();
  CHECK(passes.names() == std::vector<std::string>{"remove_dead_nodes", "fold_constants",
                                                   "merge_common_subexpressions"});
  const auto nothing = [](Graph g) { return g; };
  passes.Add("last", nothing);
  passes.InsertBefore("remove_dead_nodes", "first", nothing);
  passes.InsertAfter("first", "second", nothing);
  const PassList copy = passes;
  passes.Remove("fold_constants").Remove("last");
  CHECK(passes.names() == std::vector<std::string>{"first", "second", "remove_dead_nodes",
                                                   "merge_common_subexpressions"});
  CHECK(copy.names().size() == 6);
  CHECK(Contains(ErrorOf([&] { passes.Remove("remove_dead_node"); }).what(),
                 "no pass 'remove_dead_node' (did you mean 'remove_dead_nodes'? known: 'first'"));
  CHECK(ErrorOf([&] { passes.InsertAfter("third", "x", nothing); }).code() == ErrorCode::kNotFound);
  CHECK(ErrorOf([&] { passes.Add("first", nothing); }).code() == ErrorCode::kAlreadyExists);
  CHECK(ErrorOf([&] { passes.Add("", nothing); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { passes.Add("x", {}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(passes.names().size() == 4);
}

TEST_CASE("a list runs its passes in order and leaves the graph it was given") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddOutput("A");
  PassList passes;
  const auto append = [](const char* in, const char* out) {
    return [=](Graph graph) {
      graph.AddNode(Scale(in, out, 2));
      return graph;
    };
  };
  passes.Add("one", append("A", "B")).Add("two", append("B", "C"));
  std::string seen;
  const Graph after = passes.Run(g, [&](const std::string& name, const Graph& a, const Graph& b) {
    seen += StrCat(name, ": ", a.num_nodes(), " -> ", b.num_nodes(), "; ");
  });
  CHECK(seen == "one: 1 -> 2; two: 2 -> 3; ");
  CHECK(after.num_nodes() == 3);
  CHECK(g.num_nodes() == 1);
  CHECK(SameGraph(passes.Run(g), after));
  CHECK(SameGraph(PassList().Run(g), g));
}

TEST_CASE("a graph that a pass breaks, and what a pass throws, name the pass") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddOutput("A");
  const auto error_of = [&](auto pass) {
    PassList passes = DefaultPasses();
    passes.InsertBefore("fold_constants", "mine", pass);
    return ErrorOf([&] { passes.Run(g); });
  };
  const Error broken = error_of([](Graph graph) {
    graph.RemoveNode(0);
    return graph;
  });
  CHECK(broken.code() == ErrorCode::kNotFound);
  CHECK(Contains(broken.what(), "output 'A' of the graph is made by no input"));
  CHECK(Contains(broken.what(), "in pass 'mine'"));
  const Error thrown = error_of([](Graph) -> Graph { throw std::runtime_error("no idea"); });
  CHECK(thrown.code() == ErrorCode::kOperatorFailed);
  CHECK(Contains(thrown.what(), "no idea\n  in pass 'mine'"));
  const Error number = error_of([](Graph) -> Graph { throw 3; });
  CHECK(Contains(number.what(), "threw something that is not a std::exception\n  in pass 'mine'"));
  g.AddOutput("missing");  // wrong before any pass
  CHECK_FALSE(Contains(ErrorOf([&] { DefaultPasses().Run(g); }).what(), "in pass"));
}

TEST_CASE("on random graphs every pass keeps the results to the bit, and twice is once") {
  int removed[4] = {0, 0, 0, 0};
  for (uint64_t seed = 1; seed <= Rounds(120u); ++seed) {
    CAPTURE(seed);
    RandomGraphOptions options;
    options.inputs = 1 + static_cast<int>(seed % 3);
    options.constants = static_cast<int>(seed % 4);
    options.aliases = seed % 5 != 0;
    options.rewrites = seed % 2 == 0;
    options.controls = seed % 3 == 0;
    options.shuffled = !options.rewrites && seed % 7 == 0;
    Graph graph = RandomGraph(seed, options);
    if (!options.shuffled) graph = WithDoubles(graph, seed);
    for (size_t drop = 0; graph.outputs().size() > 1 && drop < seed % 3; ++drop)
      graph.RemoveOutput(std::string(graph.outputs().back()));  // something to be dead
    const Graph after[] = {RemoveDeadNodes(graph), FoldConstants(graph),
                           MergeCommonSubexpressions(graph), DefaultPasses().Run(graph)};
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      CheckSameResults(graph, after[i], seed);
      removed[i] += graph.num_nodes() - after[i].num_nodes();
    }
    CHECK(SameGraph(RemoveDeadNodes(after[0]), after[0]));
    CHECK(SameGraph(FoldConstants(after[1]), after[1]));
    CHECK(SameGraph(MergeCommonSubexpressions(after[2]), after[2]));
    const Graph again = DefaultPasses().Run(after[3]);
    CHECK(SameGraph(again, after[3]));
    if (!SameGraph(again, after[3])) MESSAGE(PrintGraph(after[3], again));
  }
  for (const int nodes : removed) CHECK(nodes > Rounds(100));  // they had something to do
}

}  // namespace passes_test

// Partitioners, subgraph operators and passes of a library with MXNet's boundary.
#include "opkit/graph/partition/partitioner.hpp"
#include "mxnet_fixture.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/passes/named_pass.hpp"

namespace mxnet_partitioner_test {
using namespace mxnet_fixture;

namespace {

// y = Log(Exp(a + b)), of float32[3, 2] unless the extents are open.
Graph Chain(bool typed = true) {
  Graph graph;
  for (const char* input : {"a", "b"})
    graph.AddInput(input, typed ? DType::kFloat32 : DType::kUndefined,
                   typed ? SymbolicShape{3, 2} : SymbolicShape());
  graph.AddNode(OperatorDef("Add", {"a", "b"}, {"c"}).Name("sum"));
  graph.AddNode(OperatorDef("Exp", {"c"}, {"d"}).Name("up"));
  graph.AddNode(OperatorDef("Log", {"d"}, {"y"}).Name("down"));
  graph.AddOutput("y");
  return graph;
}
Strings TypesOf(const Graph& graph) {
  Strings types;
  const GraphView view(graph);
  for (const int node : view.order()) types.push_back(graph.node(node).type());
  return types;
}
const OperatorDef& NodeOf(const Graph& graph, const std::string& type) {
  for (int i = 0; i < graph.num_nodes(); ++i)
    if (graph.node(i).type() == type) return graph.node(i);
  FAIL("no node of type " << type);
  return graph.node(0);
}
Floats Run(const Graph& graph) {
  const Tensor ones = Filled({3, 2}, 1);
  return Executor(Compile(graph)).Run({{"a", ones}, {"b", ones}})[0].ToVector<float>();
}
void CheckTwos(const Floats& values, float expected = 2) {
  REQUIRE(values.size() == 6);
  for (const float value : values) CHECK(value == doctest::Approx(expected));
}
const std::string kSubgraph = "_custom_subgraph_op";

// The library of the partitioners, and one that has Add, Exp, Log and Neg.
struct Libraries {
  Scoped arithmetic{"arithmetic"};
  Whole whole;
  Library* operator->() { return &*whole; }
};

}  // namespace

TEST_CASE("a library's partitioners and passes have their names") {
  Libraries library;
  CHECK(library->partitioners() == Strings{"myProp.chains", "myProp.sums", "mySelect"});
  CHECK(library->passes() == Strings{"myPass", "addInputPass"});
}

TEST_CASE("a strategy takes nodes by MXNet's names of operators, and its operator runs them") {
  Libraries library;
  PartitionReport report;
  const Graph parted = Partition(Chain(), "myProp.chains", {}, &report);
  CHECK(TypesOf(parted) == Strings{"Add", kSubgraph});
  CHECK(report.num_taken() == 2);
  const OperatorDef& node = NodeOf(parted, kSubgraph);
  CHECK(node.args().Get<std::string>("myKey") == "myVal");
  CHECK(node.args().Get<std::string>("args") == "0");
  CheckTwos(Run(Chain()));
  CheckTwos(Run(parted));
}

TEST_CASE("a partitioner of several strategies runs them one after the other") {
  Libraries library;
  const Graph parted = Partition(Chain(), "myProp");
  CHECK(TypesOf(parted) == Strings{kSubgraph, kSubgraph});
  CheckTwos(Run(parted));
  CHECK(TypesOf(Partition(Chain(), "myProp.sums")) == Strings{kSubgraph, "Exp", "Log"});
  const Plan plan = Compile(Chain(), {.partitioners = {{"myProp", {}}}});
  const Tensor ones = Filled({3, 2}, 1);
  CheckTwos(Executor(plan).Run({{"a", ones}, {"b", ones}})[0].ToVector<float>());
}

TEST_CASE("a partitioner works without types, and sees those that are known") {
  Libraries library;
  CHECK(TypesOf(Partition(Chain(false), "myProp.chains")) == Strings{"Add", kSubgraph});
  const PartitionArguments only_float{{"reqFloat", ""}};
  CHECK(TypesOf(Partition(Chain(false), "myProp.chains", only_float)) ==
        Strings{"Add", "Exp", "Log"});
  CHECK(TypesOf(Partition(Chain(), "myProp.chains", only_float)) == Strings{"Add", kSubgraph});
}

TEST_CASE("a review rejects a subgraph") {
  Libraries library;
  const Graph graph = Chain();
  CHECK(SameGraph(Partition(graph, "myProp.chains", {{"reject", "True"}}), graph));
  CHECK(SameGraph(Partition(graph, "myProp.chains", {{"reqArgs", ""}}), graph));
  const Graph bare = Partition(graph, "myProp.chains", {{"bare", ""}});
  CHECK_FALSE(NodeOf(bare, kSubgraph).args().Has("myKey"));
}

TEST_CASE("a review gets the constants of the subgraph") {
  Libraries library;
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {2});
  graph.AddConstant("w", Vector({5, 6}));
  graph.AddNode(OperatorDef("Add", {"a", "w"}, {"c"}));
  graph.AddNode(OperatorDef("Exp", {"w"}, {"d"}).Name("of_w"));
  graph.AddNode(OperatorDef("Add", {"c", "d"}, {"y"}));
  graph.AddOutput("y");
  const Graph parted = Partition(graph, "myProp.chains", {{"reqArgs", ""}});
  const OperatorDef& node = NodeOf(parted, kSubgraph);
  CHECK(node.args().Get<std::string>("args") == "1");
  CHECK(node.args().Get<std::string>("first_arg") == "w of 2: 5");
}

TEST_CASE("a selector takes what a strategy with a list takes") {
  Libraries library;
  const Graph parted = Partition(Chain(), "mySelect");
  CHECK(TypesOf(parted) == Strings{"Add", kSubgraph});
  CheckTwos(Run(parted));
  CHECK(ReadCounters().selectors == 1);
  Partition(Chain(), "mySelect");
  CHECK(ReadCounters().selectors == 2);
}

TEST_CASE("a subgraph operator has as many inputs and outputs as its body") {
  Libraries library;
  Graph graph = Chain();
  graph.AddOutput("c");
  const Graph parted = Partition(graph, "myProp.sums");
  const OperatorDef& node = NodeOf(parted, kSubgraph);
  CHECK(node.inputs().size() == 2);
  const GraphView view(parted);
  const TensorInfo info = InferGraph(view).Get("c");
  CHECK(info.dtype == DType::kFloat32);
  CHECK(info.shape == SymbolicShape{3, 2});
}

TEST_CASE("an operator that a subgraph operator cannot run is named") {
  Libraries library;
  Graph body;
  body.AddInput("x", DType::kFloat32, {2});
  body.AddNode(OperatorDef("Neg", {"x"}, {"z"}));
  body.AddOutput("z");
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef(kSubgraph, {"x"}, {"z"}).Subgraph("body", MakeSubgraph(body)));
  graph.AddOutput("z");
  CheckFails(
      [&] {
        Executor(Compile(graph)).Run({{"x", Vector({1, 2})}});
      },
      "cannot run operator 'negative'");
}

TEST_CASE("a pass leaves a graph as it is, or fails with its words") {
  Libraries library;
  Graph graph = Chain();
  graph.AddConstant("w", Vector({5, 6}));
  graph.AddNode(OperatorDef("Exp", {"w"}, {"v"}).Name("of_w"));
  graph.AddOutput("v");
  CHECK(SameGraph(RunPass(graph, "myPass"), graph));
  const Graph parted = Partition(graph, "myProp");
  CHECK(SameGraph(RunPass(parted, "myPass"), parted));
  const std::string failure = ErrorOf([&] {
                                RunPass(graph, "myPass", {{"fail", "its options"}});
                              }).what();
  CHECK_MESSAGE(Contains(failure, "told to fail by 'its options' with 1 arguments: w = 5"),
                failure);
  CHECK(Contains(failure, "myPass"));
  CHECK(Contains(failure, "libwhole.so"));
}

TEST_CASE("a pass that writes to a constant changes it in its own graph") {
  Libraries library;
  Graph graph = Chain();
  graph.AddConstant("w", Vector({5, 6}));
  graph.AddNode(OperatorDef("Exp", {"w"}, {"v"}));
  graph.AddOutput("v");
  const Graph changed = RunPass(graph, "myPass", {{"write", ""}});
  CHECK(changed.constants().at(0).value.ToVector<float>() == Floats{42, 6});
  CHECK(graph.constants().at(0).value.ToVector<float>() == Floats{5, 6});
}

TEST_CASE("a pass adds a constant that the library fills in") {
  Libraries library;
  const Graph graph = Chain();
  CHECK(SameGraph(RunPass(graph, "addInputPass"), graph));  // no subgraph to add it to
  const Graph parted = Partition(graph, "myProp.chains");
  const Graph more = RunPass(parted, "addInputPass");
  const OperatorDef& node = NodeOf(more, kSubgraph);
  REQUIRE(node.inputs().size() == 2);
  CHECK(node.args().Get<std::string>("__ext_extra_inputs__") == "1");
  CHECK(node.args().Get<std::string>("myKey") == "myVal");
  REQUIRE(more.constants().size() == 1);
  CHECK(more.constants()[0].name == node.inputs()[1]);
  CHECK(more.constants()[0].value.shape() == Shape{1});
  CHECK(more.constants()[0].value.ToVector<float>() == Floats{1});
  CheckTwos(Run(more), 3);  // the operator adds what is no input of its body
}

}  // namespace mxnet_partitioner_test

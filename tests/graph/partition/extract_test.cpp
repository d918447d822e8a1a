// Extraction of a subgraph, and one node in its place.
#include "opkit/graph/partition/extract.hpp"

#include "graph/partition/partition_graphs.hpp"
#include "opkit/graph/print/print.hpp"
#include "opkit/graph/subgraph.hpp"

namespace extract_test {
using namespace partition_graphs;

namespace {

// X -> A -> B -> C, W read by B and C, D reads A; outputs C and D.
Graph Sample() {
  Graph g = WithInputs({"X", "Z"});
  g.AddConstant("W", RandomTensor(Shape{4, 4}, DType::kFloat32, 1));
  g.AddNode(Relu("X", "A").Name("a"));
  g.AddNode(Add("A", "W", "B").Name("twin"));
  g.AddNode(Add("B", "W", "C").Name("twin"));
  g.AddNode(Add("A", "Z", "D"));
  return g.AddOutput("C").AddOutput("D");
}

Graph Replaced(const Graph& graph, const std::vector<int>& nodes) {
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view);
  ExtractedSubgraph found = ExtractSubgraph(view, nodes, &types);
  OperatorDef def("RunBody", found.inputs, found.outputs);
  for (const std::string& control : found.control_inputs) def.ControlInput(control);
  def.Name("whole").Subgraph("body", MakeSubgraph(std::move(found.body)));
  return ReplaceNodes(view, {{nodes, def}});
}

}  // namespace

TEST_CASE("a subgraph has inputs, outputs that other nodes read, and constants") {
  const Graph graph = Sample();
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view);
  const ExtractedSubgraph found = ExtractSubgraph(view, {1, 0}, &types);
  CHECK(found.inputs == std::vector<std::string>{"X"});
  CHECK(found.outputs == std::vector<std::string>{"A", "B"});
  CHECK(found.control_inputs.empty());
  CHECK(ToString(found.body) ==
        "input X float32[4, 4]\n"
        "constant W float32[4, 4]\n"
        "Relu 'a' (X) -> (A)\n"
        "Add 'twin' (A, W) -> (B)\n"
        "output A\n"
        "output B\n");
  CHECK(found.body.FindConstant("W")->raw_data() == graph.FindConstant("W")->raw_data());
  CHECK_FALSE(ExtractSubgraph(view, {0}).body.inputs()[0].info.shape.has_rank());
}

TEST_CASE("one node replaces several, and the rest of the graph stays unchanged") {
  const Graph graph = Sample();
  for (const auto& nodes : {std::vector<int>{0}, {0, 1}, {1, 2}, {0, 1, 2}, {0, 1, 2, 3}}) {
    CAPTURE(nodes.size());
    const Graph after = Replaced(graph, nodes);
    CHECK(after.num_nodes() == graph.num_nodes() - static_cast<int>(nodes.size()) + 1);
    CheckSameResults(graph, after, 3);
  }
  // A constant stays while somebody outside reads it, and goes with the last reader.
  const Graph shared = Replaced(graph, {0, 1}), gone = Replaced(graph, {1, 2});
  CHECK(shared.FindConstant("W")->raw_data() == graph.FindConstant("W")->raw_data());
  CHECK_FALSE(gone.IsConstant("W"));
  CHECK(SameGraph(ReplaceNodes(GraphView(graph), {}), graph));
}

TEST_CASE("nodes without names, in an order in which they cannot run, are replaced too") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Add("B", "A", "C"));
  graph.AddNode(Relu("A", "B"));
  graph.AddNode(Scale("X", "A", 2));
  graph.AddOutput("C");
  CheckSameResults(graph, Replaced(graph, {1, 2}), 5);
  CheckSameResults(graph, Replaced(graph, {0, 1}), 5);
}

TEST_CASE("control inputs are kept inside, across the border, and on the replacing node") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "A").Name("a"));
  graph.AddNode(Scale("X", "B", 2).Name("b").ControlInput("a"));
  graph.AddNode(Add("B", "X", "C").Name("c").ControlInput("b"));
  graph.AddNode(Relu("X", "D").Name("d").ControlInput("b").ControlInput("c"));
  graph.AddOutput("A").AddOutput("C").AddOutput("D");
  const Graph after = Replaced(graph, {1, 2});
  const OperatorDef& whole = after.node(after.Producer("C"));
  CHECK(whole.control_inputs() == std::vector<std::string>{"a"});
  CHECK(after.node(after.Producer("D")).control_inputs() == std::vector<std::string>{"whole"});
  const Graph* body = SubgraphOf(whole, "body");
  REQUIRE(body);
  CHECK(body->node(0).control_inputs().empty());
  CHECK(body->node(1).control_inputs() == std::vector<std::string>{"b"});
  CheckSameResults(graph, after, 4);
}

TEST_CASE("a value that is rewritten inside is one thing before and another after") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "T"));
  graph.AddNode(Scale("T", "before", 2));
  graph.AddNode(Accumulate("T", "X"));
  graph.AddNode(Scale("T", "after", 2));
  graph.AddOutput("before").AddOutput("after");
  const GraphView view(graph);
  CheckSameResults(graph, Replaced(graph, {0, 1, 2}), 6);  // "after" reads T outside
  CheckSameResults(graph, Replaced(graph, {0, 1}), 6);     // T is rewritten outside
  CHECK(Contains(ErrorOf([&] {
                   ExtractSubgraph(view, {2, 3});
                 }).what(),
                 "rewrites 'T', which is made outside of the subgraph"));
  CHECK(Contains(ErrorOf([&] {
                   ExtractSubgraph(view, {0, 2});
                 }).what(),
                 "a path leaves them and comes back: Relu (X) -> (T)  ->  Scale (T) -> (before)  "
                 "->  Accumulate (T, X) -> (T)"));
}

TEST_CASE("a set that is no subgraph is refused") {
  const Graph graph = Sample();
  const GraphView view(graph);
  CHECK(ErrorOf([&] { ExtractSubgraph(view, {}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { ExtractSubgraph(view, {4}); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { ExtractSubgraph(view, {-1}); }).code() == ErrorCode::kOutOfRange);
  CHECK(Contains(ErrorOf([&] { ExtractSubgraph(view, {0, 0}); }).what(), "is named twice"));
  CHECK(Contains(ErrorOf([&] {
                   ExtractSubgraph(view, {0, 2});
                 }).what(),
                 "a path leaves them and comes back: Relu 'a' (X) -> (A)  ->  Add 'twin' (A, W) -> "
                 "(B)  ->  Add 'twin' (B, W) -> (C)"));
  const OperatorDef def("RunBody");
  CHECK(Contains(ErrorOf([&] {
                   ReplaceNodes(view, {{{0}, def}, {{0, 1}, def}});
                 }).what(),
                 "is replaced twice"));
}

TEST_CASE("sets that wait for each other cannot be replaced together") {
  Graph graph = WithInputs({"X"});
  graph.AddNode(Relu("X", "a1"));
  graph.AddNode(Relu("X", "x"));
  graph.AddNode(Add("a1", "x", "b1"));
  graph.AddNode(Relu("x", "b2"));
  graph.AddNode(Add("a1", "b2", "a2"));
  graph.AddOutput("b1").AddOutput("a2");
  const GraphView view(graph);
  const OperatorDef a("RunBody", {"X", "b2"}, {"a1", "a2"});
  const OperatorDef b("RunBody", {"X", "a1"}, {"b1", "b2"});
  CHECK(ReplaceNodes(view, {{{0, 4}, a}}).num_nodes() == 4);
  const Error error = ErrorOf([&] { ReplaceNodes(view, {{{0, 4}, a}, {{1, 2, 3}, b}}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.what(), "the subgraphs would wait for each other: RunBody"));
}

}  // namespace extract_test

#include "opkit/graph/graph.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/graph_view.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"

namespace graph_test {
using namespace opkit;

namespace {

using Edge = GraphView::Edge;

Graph Diamond() {  // X -> A -> {B, C} -> D
  Graph g;
  g.AddInput("X", DType::kFloat32, {2, 3});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("B").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Scale").Input("A").Output("C").Arg("scale", 3.f));
  g.AddNode(OperatorDef("Add").Input("B").Input("C").Output("D"));
  g.AddOutput("D");
  return g;
}

std::vector<std::string> Types(const Graph& g) {
  std::vector<std::string> types;
  for (const OperatorDef& def : g.nodes()) types.push_back(def.type());
  return types;
}

}  // namespace

TEST_CASE("a graph knows where its values come from") {
  Graph g = Diamond();
  g.AddConstant("W", Tensor::Scalar(1.f));
  CHECK(g.IsInput("X"));
  CHECK(g.IsConstant("W"));
  CHECK(g.FindConstant("W")->data<float>()[0] == 1.f);
  CHECK(g.FindConstant("X") == nullptr);
  CHECK(g.FindInput("X")->info.shape == SymbolicShape{2, 3});
  CHECK(g.Producer("D") == 3);
  CHECK(g.Producer("X") == -1);
  CHECK(g.Producer("nothing") == -1);
  CHECK(g.IsOutput("D"));
  CHECK_FALSE(g.IsOutput("A"));
  CHECK(g.FreshName("Z") == "Z");
  CHECK(g.FreshName("A") == "A_1");
}

TEST_CASE("a value that is made twice is refused, and the graph stays as it was") {
  Graph g = Diamond();
  const Error again =
      ErrorOf([&] { g.AddNode(OperatorDef("Relu").Input("X").Output("E").Output("A")); });
  CHECK(again.code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(again.what(), "value 'A' is made by node Relu (X) -> (A) already"));
  CHECK(Contains(again.what(), "again by node Relu (X) -> (E, A)"));
  CHECK(g.num_nodes() == 4);
  CHECK_FALSE(g.HasValue("E"));
  CHECK(Contains(ErrorOf([&] { g.AddInput("A", DType::kFloat32, {}); }).what(), "'A' is made by"));
  CHECK(Contains(ErrorOf([&] { g.AddConstant("X", Tensor::Scalar(1)); }).what(),
                 "by an input of the graph already"));
  CHECK(Contains(ErrorOf([&] { g.AddNode(OperatorDef("Split").Output("P").Output("P")); }).what(),
                 "makes 'P' twice"));
  CHECK(ErrorOf([&] { g.AddOutput("D"); }).code() == ErrorCode::kAlreadyExists);
  CHECK(ErrorOf([&] { g.AddConstant("V", Tensor()); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { g.AddInput("", DType::kFloat32, {}); }).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { g.node(4); }).code() == ErrorCode::kOutOfRange);
}

TEST_CASE("nodes are inserted, replaced and removed, and producers follow") {
  Graph g = Diamond();
  g.InsertNode(1, OperatorDef("Relu").Input("A").Output("A2"));
  g.ReplaceUses("A", "A3");
  CHECK(g.node(1).inputs()[0] == "A3");
  g.ReplaceUses("A3", "A");
  CHECK(Types(g) == std::vector<std::string>{"Relu", "Relu", "Scale", "Scale", "Add"});
  CHECK(g.Producer("D") == 4);
  CHECK(g.Producer("A2") == 1);
  g.ReplaceNode(1, OperatorDef("Scale").Input("A").Output("A4"));
  CHECK(g.Producer("A2") == -1);
  CHECK_FALSE(g.HasValue("A2"));
  CHECK(g.Producer("A4") == 1);
  CHECK(ErrorOf([&] { g.ReplaceNode(1, OperatorDef("Relu").Input("A").Output("B")); }).code() ==
        ErrorCode::kAlreadyExists);
  CHECK(g.node(1).type() == "Scale");
  g.RemoveNodes({0, 1, 0, 1, 0});
  CHECK(Types(g) == std::vector<std::string>{"Relu", "Scale", "Add"});
  CHECK(g.Producer("D") == 2);
  CHECK_FALSE(g.HasValue("C"));
  g.AddNode(OperatorDef("Relu").Input("B").Output("C"));  // the name is free again
  CHECK(g.Producer("C") == 3);
  g.RemoveNode(0);
  CHECK(g.num_nodes() == 3);
  CHECK(ErrorOf([&] { g.RemoveNodes({1}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { g.InsertNode(7, OperatorDef("Relu")); }).code() == ErrorCode::kOutOfRange);
  CHECK(g.RemoveOutput("D"));
  CHECK_FALSE(g.RemoveOutput("D"));
}

TEST_CASE("a released constant keeps its place, dtype and shape, and lacks elements") {
  Graph g = Diamond();
  g.AddConstant("V", Tensor::Scalar(1.f)).AddConstant("W", Tensor::Scalar(2.f));
  const Graph copy = g;
  const Tensor* const w = g.FindConstant("W");
  CHECK(g.ReleaseConstant("W"));
  CHECK(g.FindConstant("W") == w);
  CHECK(ToString(*w) == "float32[] on cpu (uninitialized)");
  CHECK(g.FindConstant("V")->data<float>()[0] == 1.f);
  CHECK(copy.FindConstant("W")->data<float>()[0] == 2.f);
  CHECK_FALSE(g.ReleaseConstant("X"));
  const Error error = ErrorOf([&] { Check(g); });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(Contains(error.what(), "constant 'W' has no data"));
}

TEST_CASE("the view has producers, consumers, edges and the order") {
  const Graph g = Diamond();
  const GraphView view(g);
  CHECK(view.num_values() == 5);
  const int a = view.FindValue("A");
  CHECK(view.name(a) == "A");
  CHECK(view.producer(a) == 0);
  CHECK(std::vector<int>(view.consumers(a).begin(), view.consumers(a).end()) ==
        std::vector<int>{1, 2});
  CHECK(view.producer(view.FindValue("X")) == -1);
  CHECK(view.IsInput(view.FindValue("X")));
  CHECK(view.IsOutput(view.FindValue("D")));
  CHECK(view.inputs(3)[1] == view.FindValue("C"));
  CHECK(view.outputs(3)[0] == view.FindValue("D"));
  CHECK(view.edges() == std::vector<Edge>{{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  CHECK(view.order() == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("nodes may be added in any order; the order of running is stable") {
  Graph g;
  g.AddOutput("D");
  g.AddNode(OperatorDef("Add").Input("B").Input("C").Output("D"));
  g.AddNode(OperatorDef("Relu").Input("X").Output("E"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("C"));
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("B"));
  g.AddInput("X", DType::kFloat32, {2});
  CHECK(GraphView(g).order() == std::vector<int>{1, 3, 2, 4, 0});
}

TEST_CASE("an input that is read twice is one edge; one left out is none") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("Add").Input("A").Input("A").Output("B"));
  g.AddNode(OperatorDef("Sum").Input("B").Input("").Output("C"));
  const GraphView view(g);
  CHECK(view.edges() == std::vector<Edge>{{0, 1}, {1, 2}});
  CHECK(view.consumers(view.FindValue("A")).size() == 1);
  CHECK(view.inputs(2)[1] == -1);
}

TEST_CASE("a rewritten value keeps the order of its readers and writers") {
  Graph g;  // T is read before and after each of two nodes that add to it
  g.AddInput("T", DType::kFloat32, {2});
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("T").Output("R0"));
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  g.AddNode(OperatorDef("Relu").Input("T").Output("R1"));
  g.AddNode(OperatorDef("Relu").Input("T").Output("R2"));
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  g.AddNode(OperatorDef("Relu").Input("T").Output("R3"));
  const GraphView view(g);
  CHECK(view.IsRewritten(view.FindValue("T")));
  CHECK_FALSE(view.IsRewritten(view.FindValue("X")));
  const auto has = [&](int from, int to) {
    for (const Edge& edge : view.edges())
      if (edge == Edge{from, to}) return true;
    return false;
  };
  CHECK(has(0, 1));  // write after read
  CHECK(has(1, 2));  // read after write
  CHECK(has(1, 4));  // write after write
  CHECK(has(2, 4));
  CHECK(has(3, 4));
  CHECK(has(4, 5));
  CHECK_FALSE(has(2, 3));  // two readers
  CHECK_FALSE(has(0, 2));
}

TEST_CASE("a reader that was added before the producer still comes before the rewriting") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("T").Output("R"));
  g.AddNode(OperatorDef("Relu").Input("X").Output("T"));
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  CHECK(GraphView(g).edges() == std::vector<Edge>{{1, 0}, {0, 2}, {1, 2}});
}

TEST_CASE("control inputs order nodes that share no value") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Name("second").Input("X").Output("A").ControlInput("first"));
  g.AddNode(OperatorDef("Relu").Name("first").Input("X").Output("B"));
  CHECK(GraphView(g).order() == std::vector<int>{1, 0});
  g.AddNode(OperatorDef("Relu").Name("third").Input("X").Output("C").ControlInput("frist"));
  const Error unknown = ErrorOf([&] { GraphView view(g); });
  CHECK(unknown.code() == ErrorCode::kNotFound);
  CHECK(Contains(unknown.what(), "Relu 'third' (X) -> (C) has the control input 'frist'"));
}

TEST_CASE("rewriting a value without a producer, and a control input of two nodes, are refused") {
  Graph self;
  self.AddNode(OperatorDef("Relu").Input("P").Output("P"));
  CHECK(
      Contains(ErrorOf([&] { GraphView view(self); }).what(),
               "node Relu (P) -> (P) rewrites 'P', which no input, constant or other node makes"));
  Graph names;
  names.AddInput("X", DType::kFloat32, {2});
  names.AddNode(OperatorDef("Relu").Name("n").Input("X").Output("A"));
  names.AddNode(OperatorDef("Relu").Name("n").Input("X").Output("B"));
  GraphView fine(names);
  names.AddNode(OperatorDef("Relu").Input("X").Output("C").ControlInput("n"));
  CHECK(Contains(ErrorOf([&] { GraphView view(names); }).what(), "two nodes have that name"));
}

TEST_CASE("structure errors name the node and the fault") {
  Graph g = Diamond();
  g.AddNode(OperatorDef("Relu").Name("last").Input("DD").Output("E"));
  const Error missing = ErrorOf([&] { Check(g); });
  CHECK(missing.code() == ErrorCode::kNotFound);
  CHECK(Contains(missing.what(), "node Relu 'last' (DD) -> (E) reads 'DD', which no input"));
  CHECK(Contains(missing.what(), "did you mean 'D'?"));

  Graph unknown = Diamond();
  unknown.AddNode(OperatorDef("Rleu").Input("D").Output("E"));
  CHECK(Contains(ErrorOf([&] { Check(unknown); }).what(), "Relu"));

  Graph arity = Diamond();
  arity.AddNode(OperatorDef("Add").Name("short").Input("D").Output("E"));
  const Error few = ErrorOf([&] { Check(arity); });
  CHECK(few.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(few.what(), "Add has 1 inputs, expected 2; in node Add 'short' (D) -> (E)"));

  Graph attribute = Diamond();
  attribute.AddNode(OperatorDef("Scale").Input("D").Output("E").Arg("scael", 1.f));
  CHECK(Contains(ErrorOf([&] { Check(attribute); }).what(), "did you mean 'scale'?"));

  Graph output = Diamond();
  output.AddOutput("Q");
  CHECK(Contains(ErrorOf([&] { Check(output); }).what(),
                 "constant or node makes output 'Q' of the graph"));

  Graph constant;
  constant.AddConstant("T", Tensor::Scalar(1.f));
  constant.AddInput("X", DType::kFloat32, {});
  constant.AddNode(OperatorDef("Accumulate").Input("T").Input("X").Output("T"));
  CHECK(Contains(ErrorOf([&] { Check(constant); }).what(), "writes to 'T', which is a constant"));
}

TEST_CASE("a cycle is shown as a path") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("X").Output("before"));
  g.AddNode(OperatorDef("Add").Input("before").Input("C").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("B"));
  g.AddNode(OperatorDef("Relu").Input("B").Output("C"));
  g.AddNode(OperatorDef("Relu").Input("C").Output("behind"));
  const Error cycle = ErrorOf([&] { GraphView view(g); });
  CHECK(cycle.code() == ErrorCode::kInvalidArgument);
  const std::string add = "Add (before, C) -> (A)", b = "Relu (A) -> (B)", c = "Relu (B) -> (C)";
  const std::string arrow = "  ->  ";
  const std::string text = cycle.what();
  CHECK((Contains(text, add + arrow + b + arrow + c + arrow + add) ||
         Contains(text, b + arrow + c + arrow + add + arrow + b) ||
         Contains(text, c + arrow + add + arrow + b + arrow + c)));
  CHECK_FALSE(Contains(text, "behind"));

  Graph self;
  self.AddNode(OperatorDef("Relu").Name("me").Input("X").Output("Y").ControlInput("me"));
  self.AddInput("X", DType::kFloat32, {2});
  CHECK(Contains(ErrorOf([&] { GraphView view(self); }).what(), "has a cycle: Relu 'me'"));
}

TEST_CASE("a large graph is built and ordered in linear time") {
  Graph g;
  g.AddInput("v0", DType::kFloat32, {1});
  constexpr int kNodes = Rounds(50000);
  for (int i = kNodes; i > 0; --i)  // the wrong way round
    g.AddNode(OperatorDef("Relu")
                  .Name(StrCat("n", i))
                  .Input(StrCat("v", i - 1))
                  .Output(StrCat("v", i))
                  .ControlInput(StrCat("n", i == 1 ? "" : StrCat(i / 2))));
  g.AddNode(OperatorDef("Relu").Name("n").Input("v0").Output("first"));
  const GraphView view(g);
  CHECK(view.order().front() == kNodes);
  CHECK(view.order().back() == 0);
}

}  // namespace graph_test

// Graphs inside nodes see nothing outside: what they read of it becomes an input or a constant of
// theirs. Functions are written out.
#include <doctest/doctest.h>

#include "any_operator.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/onnx.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"

namespace onnx_subgraph_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using onnx_bytes::FloatTensor;
using OnnxGraph = onnx_bytes::Graph;

namespace {

opkit::Graph Parse(const OnnxGraph& graph, const Strings& functions = {}) {
  return ParseOnnxModel(graph.Model(21, functions), AnyOperator()).graph;
}
std::string What(const OnnxGraph& graph, const Strings& functions = {}) {
  return ErrorOf([&] { Parse(graph, functions); }).what();
}
Strings InputsOf(const opkit::Graph& graph) {
  Strings names;
  for (const Graph::Input& input : graph.inputs()) names.push_back(input.name);
  return names;
}
Strings CapturesOf(const OperatorDef& def) { return def.args().Get<Strings>("captures", {"none"}); }

// Reads `names` and returns the last.
std::string Reader(const Strings& names) {
  OnnxGraph graph("reader");
  graph.Node("Op", names, {"made"});
  return graph.Output("made").bytes;
}
OnnxGraph IfGraph(const std::string& then_branch, const std::string& else_branch) {
  return OnnxGraph()
      .Input("c", {}, onnx_bytes::kBool)
      .Input("x", {"N", 3})
      .Initializer(FloatTensor("w", {2}, {1, 2}))
      .Node("Before", {"x"}, {"h"})
      .Node("Constant", {}, {"k"}, {AttributeProto::Int("value_int", 4)})
      .Node("If", {"c"}, {"y"},
            {AttributeProto::Graph("then_branch", then_branch),
             AttributeProto::Graph("else_branch", else_branch)},
            "choose")
      .ValueInfo("h", {5})
      .Output("y");
}

}  // namespace

TEST_CASE("Values that branches read from the graph around become their inputs and constants") {
  const opkit::Graph graph =
      Parse(IfGraph(Reader({"h", "w", "x", "h"}), Reader({"k", "x", "", "c"})));
  const OperatorDef& node = graph.node(1);
  CHECK(node.inputs() == Strings{"c", "h", "x", "c"});
  CHECK(CapturesOf(node) == Strings{"h", "x", "c"});
  const opkit::Graph& first = *SubgraphOf(node, "then_branch");
  CHECK(InputsOf(first) == Strings{"h", "x"});
  REQUIRE(first.constants().size() == 1);
  CHECK(first.constants()[0].name == "w");
  CHECK(first.FindConstant("w")->storage() == graph.FindConstant("w")->storage());
  CHECK(first.outputs() == Strings{"made"});
  const opkit::Graph& second = *SubgraphOf(node, "else_branch");
  CHECK(InputsOf(second) == Strings{"x", "c"});
  CHECK(second.FindConstant("k")->data<int64_t>()[0] == 4);
  // Inputs of the graph around have the type they were declared with; of others the dtype is kept.
  CHECK(first.FindInput("x")->info.shape == SymbolicShape{Sym("N"), 3});
  CHECK(first.FindInput("h")->info.dtype == DType::kFloat32);
  CHECK(!first.FindInput("h")->info.shape.has_rank());
}

TEST_CASE("A branch may return a value that it reads, and return a value twice") {
  const std::string outer = OnnxGraph("a").Output("x").Output("w").Output("x").bytes;
  const opkit::Graph graph = Parse(IfGraph(outer, outer));
  const opkit::Graph& branch = *SubgraphOf(graph.node(1), "then_branch");
  CHECK(InputsOf(branch) == Strings{"x"});
  CHECK(branch.outputs() == Strings{"x", "w", "x_1"});
  CHECK(branch.node(0).type() == "Identity");
  CHECK(branch.node(0).inputs() == Strings{"x"});
}

TEST_CASE("A graph in between passes on values that it does not read itself") {
  const std::string inner = OnnxGraph()
                                .Node("If", {"c"}, {"z"},
                                      {AttributeProto::Graph("then_branch", Reader({"x", "w"})),
                                       AttributeProto::Graph("else_branch", Reader({"own"}))},
                                      "inner")
                                .Node("Op", {}, {"own"})
                                .Output("z")
                                .bytes;
  const opkit::Graph graph = Parse(IfGraph(inner, Reader({})));
  const OperatorDef& outer = graph.node(1);
  CHECK(outer.inputs() == Strings{"c", "c", "x"});
  const opkit::Graph& middle = *SubgraphOf(outer, "then_branch");
  CHECK(InputsOf(middle) == Strings{"c", "x"});
  CHECK(middle.constants().empty());
  const OperatorDef& node = middle.node(0);
  CHECK(node.inputs() == Strings{"c", "x", "own"});
  CHECK(CapturesOf(node) == Strings{"x", "own"});
  CHECK(SubgraphOf(node, "then_branch")->FindConstant("w") != nullptr);
  CHECK(CapturesOf(outer) == Strings{"c", "x"});
}

TEST_CASE("A subgraph's own inputs come before its captures, and hide nothing else") {
  const std::string body = OnnxGraph("body")
                               .Input("i", {}, onnx_bytes::kInt64)
                               .Input("state", {1})
                               .Node("Op", {"h", "state", "i"}, {"next"})
                               .Output("next")
                               .bytes;
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("n")
                .Input("h")
                .Input("s")
                .Node("Loop", {"n", "", "s"}, {"y"}, {AttributeProto::Graph("body", body)})
                .Output("y"));
  const OperatorDef& loop = graph.node(0);
  CHECK(loop.inputs() == Strings{"n", "", "s", "h"});
  CHECK(InputsOf(*SubgraphOf(loop, "body")) == Strings{"i", "state", "h"});
  CHECK(CapturesOf(loop) == Strings{"h"});
}

TEST_CASE(
    "A body that reads nothing around it makes no attribute, which its operator may not have") {
  const std::string body = OnnxGraph("body").Input("i").Node("Op", {"i"}, {"o"}).Output("o").bytes;
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("x")
                .Node("Op", {"x"}, {"y"}, {AttributeProto::Graph("body", body)})
                .Output("y"));
  CHECK(graph.node(0).inputs() == Strings{"x"});
  CHECK(!graph.node(0).args().Has("captures"));
}

TEST_CASE("A node without graphs has no captures") {
  const opkit::Graph graph = Parse(OnnxGraph().Node("Op", {}, {"y"}).Output("y"));
  CHECK(!graph.node(0).args().Has("captures"));
}

TEST_CASE("Errors inside graphs inside nodes name the way there") {
  CHECK(Contains(What(IfGraph(Reader({"nowhere"}), Reader({}))),
                 "node 'choose' (If): attribute 'then_branch': node Op (nowhere) -> (made) reads "
                 "'nowhere'"));
  CHECK(Contains(
      What(IfGraph(OnnxGraph().Node("Op", {}, {"y"}, {AttributeProto("t", 13)}, "deep").bytes,
                   Reader({}))),
      "node 'choose' (If): attribute 'then_branch': node 'deep' (Op): attribute 't'"));
}

TEST_CASE("Graphs inside graphs are read to a depth") {
  const auto nested = [](int depth) {
    std::string graph = Reader({});
    for (int i = 0; i < depth; ++i)
      graph = OnnxGraph()
                  .Node("Op", {}, {"made"}, {AttributeProto::Graph("g", graph)})
                  .Output("made")
                  .bytes;
    OnnxGraph out;
    out.bytes = graph;
    return out;
  };
  Parse(nested(64));
  const std::string deep = What(nested(65));
  CHECK(Contains(deep, "graphs are nested more than 64 deep"));
  CHECK(deep.size() < 4000);
  What(nested(2000));  // ends no stack
}

TEST_CASE("Functions are written out where they are called") {
  // f(a, b; k) = Mul(Add(a, b; k), c) with an inner value of the name of one outside
  const std::string function = onnx_bytes::Function(
      "local", "f", {"a", "b"}, {"r"},
      {onnx_bytes::Node("Add", {"a", "b"}, {"h"},
                        {AttributeProto::Ref("k", 2, "k"), AttributeProto::Ref("gone", 2, "g")},
                        "add"),
       onnx_bytes::Node("Constant", {}, {"two"}, {AttributeProto::Float("value_float", 2)}),
       onnx_bytes::Node("Mul", {"h", "two"}, {"r"})},
      {"k", "g"}, {AttributeProto::Int("k", 7)});
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("x")
                .Input("h")
                .Node("f", {"x", "h"}, {"y"}, {AttributeProto::Int("k", 5)}, "first", "local")
                .Node("f", {"y"}, {"z"}, {}, "", "local")
                .Output("z"),
            {function});
  REQUIRE(graph.num_nodes() == 4);
  CHECK(graph.node(0).type() == "Add");
  CHECK(graph.node(0).name() == "first/1/add");
  CHECK(graph.node(0).inputs() == Strings{"x", "h"});
  CHECK(graph.node(0).outputs() == Strings{"first/1/h"});
  CHECK(graph.node(0).args().Get<int64_t>("k", 0) == 5);
  CHECK(!graph.node(0).args().Has("gone"));
  CHECK(graph.node(1).inputs() == Strings{"first/1/h", "first/1/two"});
  CHECK(graph.node(1).outputs() == Strings{"y"});
  CHECK(graph.node(2).inputs() == Strings{"y", ""});
  CHECK(graph.node(2).args().Get<int64_t>("k", 0) == 7);
  CHECK(graph.node(3).outputs() == Strings{"z"});
  CHECK(graph.constants().size() == 2);
}

TEST_CASE("Functions in functions, in branches, and with branches of their own") {
  const std::string inner =
      onnx_bytes::Function("local", "inner", {"a"}, {"r"}, {onnx_bytes::Node("Neg", {"a"}, {"r"})});
  const std::string outer = onnx_bytes::Function(
      "local", "outer", {"a", "c"}, {"r"},
      {onnx_bytes::Node("inner", {"a"}, {"n"}, {}, "", "local"),
       onnx_bytes::Node(
           "If", {"c"}, {"r"},
           {AttributeProto::Graph("then_branch", Reader({"n", "a"})),
            AttributeProto::Graph(
                "else_branch",
                OnnxGraph().Node("inner", {"n"}, {"m"}, {}, "", "local").Output("m").bytes)})});
  const opkit::Graph graph = Parse(OnnxGraph()
                                       .Input("x")
                                       .Input("cond")
                                       .Node("outer", {"x", "cond"}, {"y"}, {}, "o", "local")
                                       .Output("y"),
                                   {inner, outer});
  REQUIRE(graph.num_nodes() == 2);
  CHECK(graph.node(0).type() == "Neg");
  CHECK(graph.node(0).inputs() == Strings{"x"});
  const std::string n = graph.node(0).outputs()[0];
  CHECK(graph.node(1).inputs() == Strings{"cond", n, "x"});
  const opkit::Graph& other = *SubgraphOf(graph.node(1), "else_branch");
  CHECK(other.node(0).type() == "Neg");
  CHECK(other.node(0).inputs() == Strings{n});
  CHECK(other.outputs() == other.node(0).outputs());
}

TEST_CASE("A function's nodes have the opset of the function") {
  const std::string function = onnx_bytes::Function(
      "local", "f", {"a"}, {"r"},
      {onnx_bytes::Node("Squeeze", {"a"}, {"r"}, {AttributeProto::Ints("axes", {0})})}, {}, {}, 11);
  const opkit::Graph graph = Parse(
      OnnxGraph().Input("x").Node("f", {"x"}, {"y"}, {}, "", "local").Output("y"), {function});
  REQUIRE(graph.node(0).inputs().size() == 2);
  CHECK(graph.FindConstant(graph.node(0).inputs()[1])->ToVector<int64_t>() ==
        std::vector<int64_t>{0});
}

TEST_CASE("A graph passed to a function keeps the opset of the caller") {
  const std::string function =
      onnx_bytes::Function("local", "f", {"c"}, {"r"},
                           {onnx_bytes::Node("If", {"c"}, {"r"},
                                             {AttributeProto::Ref("then_branch", 5, "g"),
                                              AttributeProto::Ref("else_branch", 5, "other")})},
                           {"g"}, {AttributeProto::Graph("other", Reader({"x"}))});
  const std::string squeeze =
      OnnxGraph()
          .Node("Squeeze", {"x"}, {"s"}, {AttributeProto::Ints("axes", {0})})
          .Output("s")
          .bytes;
  const opkit::Graph graph =
      ParseOnnxModel(
          OnnxGraph()
              .Input("x")
              .Input("c", {}, onnx_bytes::kBool)
              .Node("f", {"c"}, {"y"}, {AttributeProto::Graph("g", squeeze)}, "", "local")
              .Output("y")
              .Model(11, {function}),
          AnyOperator())
          .graph;
  const opkit::Graph& branch = *SubgraphOf(graph.node(0), "then_branch");
  REQUIRE(branch.node(0).inputs().size() == 2);
  CHECK(branch.FindConstant(branch.node(0).inputs()[1])->ToVector<int64_t>() ==
        std::vector<int64_t>{0});
  CHECK(!branch.node(0).args().Has("axes"));
  CHECK(SubgraphOf(graph.node(0), "else_branch")->node(0).type() == "Op");
}

TEST_CASE("A graph that one function passes to another reads the values of the first") {
  const std::string inner = onnx_bytes::Function(
      "local", "inner", {"c", "t"}, {"r"},
      {onnx_bytes::Node("Abs", {"t"}, {"u"}),
       onnx_bytes::Node("If", {"c"}, {"r"},
                        {AttributeProto::Ref("then_branch", 5, "g"),
                         AttributeProto::Graph("else_branch", Reader({"u"}))})},
      {"g"});
  // The graph that it is called with comes in as g; its own reads t, and calls a function.
  const std::string outer = onnx_bytes::Function(
      "local", "outer", {"a", "c"}, {"r"},
      {onnx_bytes::Node("Neg", {"a"}, {"t"}),
       onnx_bytes::Node(
           "inner", {"c", "a"}, {"n"},
           {AttributeProto::Graph(
               "g", OnnxGraph().Node("twice", {"t"}, {"m"}, {}, "", "local").Output("m").bytes)},
           "", "local"),
       onnx_bytes::Node("inner", {"c", "n"}, {"r"}, {AttributeProto::Ref("g", 5, "h")}, "",
                        "local")},
      {"h"});
  const std::string twice = onnx_bytes::Function("local", "twice", {"t"}, {"u"},
                                                 {onnx_bytes::Node("Add", {"t", "t"}, {"u"})});
  const opkit::Graph graph =
      Parse(OnnxGraph()
                .Input("x")
                .Input("t")
                .Input("cond")
                .Node("outer", {"x", "cond"}, {"y"}, {AttributeProto::Graph("h", Reader({"t"}))},
                      "o", "local")
                .Output("y"),
            {twice, inner, outer});
  REQUIRE(graph.num_nodes() == 5);
  CHECK(graph.node(0).type() == "Neg");
  const std::string t = graph.node(0).outputs()[0], u = graph.node(1).outputs()[0];
  CHECK(t == "o/1/t");
  CHECK(graph.node(2).inputs() == Strings{"cond", t, u});
  const OperatorDef& add = SubgraphOf(graph.node(2), "then_branch")->node(0);
  CHECK(add.type() == "Add");
  CHECK(add.inputs() == Strings{t, t});
  // The subgraph of the model reads the model's t, through both functions.
  CHECK(SubgraphOf(graph.node(4), "then_branch")->node(0).inputs() == Strings{"t"});
}

TEST_CASE("Functions without an end, and calls that do not fit, are Errors") {
  const auto call = [](const Strings& inputs, const Strings& outputs) {
    return OnnxGraph().Input("x").Node("f", inputs, outputs, {}, "call", "local").Output("y");
  };
  const std::string self = onnx_bytes::Function(
      "local", "f", {"a"}, {"r"}, {onnx_bytes::Node("f", {"a"}, {"r"}, {}, "", "local")});
  CHECK(Contains(What(call({"x"}, {"y"}), {self}), "calls functions more than 64 deep"));
  // 2^60 calls of an empty function
  Strings many{onnx_bytes::Function("local", "f0", {}, {}, {})};
  for (int i = 1; i <= 60; ++i) {
    const std::string node = onnx_bytes::Node("f" + std::to_string(i - 1), {}, {}, {}, "", "local");
    many.push_back(onnx_bytes::Function("local", "f" + std::to_string(i), {}, {}, {node, node}));
  }
  CHECK(Contains(What(OnnxGraph().Node("f60", {}, {}, {}, "", "local"), many),
                 "the model has more than 1000000 nodes, its functions written out"));
  const std::string one =
      onnx_bytes::Function("local", "f", {"a"}, {"r"}, {onnx_bytes::Node("Neg", {"a"}, {"r"})});
  CHECK(What(call({"x", "x"}, {"y"}), {one}) ==
        "node 'call' (local.f): function 'f' has 1 inputs and 1 outputs, but the node has 2 and 1");
  const std::string pass = onnx_bytes::Function("local", "f", {"a"}, {"a"}, {});
  CHECK(Contains(What(call({"x"}, {"y"}), {pass}), "it needs an Identity between them"));
  CHECK(Contains(What(OnnxGraph().Node("Op", {}, {"y"}, {AttributeProto::Ref("k", 2, "k")})),
                 "node 0 (Op): attribute 'k': it refers to the attribute 'k' of a function"));
}

}  // namespace onnx_subgraph_test

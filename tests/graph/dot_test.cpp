#include "opkit/graph/dot.hpp"
#include "opkit/graph/subgraph.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace dot_test {
using namespace opkit;

namespace {

// The statements of a DOT text, and whether its quotes and braces are whole.
struct Parsed {
  std::vector<std::string> nodes;  // ids
  std::vector<std::string> edges;  // "from -> to"
  int clusters = 0;
  bool whole = true;
};
Parsed Parse(const std::string& dot) {
  Parsed out;
  int depth = 0;
  bool quoted = false;
  std::string statement;
  for (size_t i = 0; i < dot.size(); ++i) {
    const char c = dot[i];
    if (quoted) {
      if (c == '\n') out.whole = false;  // an unfinished label
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++depth;
      out.clusters += Contains(statement, "subgraph cluster_");
      statement.clear();
    } else if (c == '}') {
      out.whole &= --depth >= 0;
      statement.clear();
    } else if (c == ';') {
      const size_t end = statement.find(" [");
      const size_t begin = statement.find_first_not_of(" \n");
      const std::string subject = statement.substr(begin, end - begin);
      if (Contains(subject, " -> "))
        out.edges.push_back(subject);
      else if (end != std::string::npos && subject != "node" && subject != "edge")
        out.nodes.push_back(subject);
      statement.clear();
    } else {
      statement += c;
    }
  }
  out.whole &= depth == 0 && !quoted;
  return out;
}

}  // namespace

TEST_CASE("inputs, constants, nodes and outputs are boxes, and values are edges") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 3});
  g.AddConstant("W", Tensor::From<float>({3, 1}, {1, 2, 3}));
  g.AddNode(OperatorDef("MatMul").Name("mm").Input("X").Input("W").Output("A"));
  g.AddNode(OperatorDef("Scale").Input("A").Output("Y").Arg("scale", 2.f).ControlInput("mm"));
  g.AddOutput("Y");
  CHECK(ToDot(g) == R"(digraph opkit {
  compound=true;
  fontname="Helvetica";
  node [fontname="Helvetica", fontsize=10, style=filled];
  edge [fontname="Helvetica", fontsize=8];
  i0 [label="X\nfloat32[N, 3]", shape=ellipse, fillcolor="#cfe8cf"];
  c0 [label="W\nfloat32[3, 1]", shape=note, fillcolor="#eeeeee"];
  n0 [label="MatMul 'mm'", shape=box, fillcolor="#cfdff3"];
  i0 -> n0 [label="X"];
  c0 -> n0 [label="W"];
  n1 [label="Scale\nscale=2", shape=box, fillcolor="#cfdff3"];
  n0 -> n1 [label="A"];
  n0 -> n1 [style=dashed];
  o0 [label="Y", shape=ellipse, peripheries=2, fillcolor="#f6d9c9"];
  n1 -> o0;
}
)");
  const GraphView view(g);
  const std::string typed = ToDot(g, InferGraph(view));
  CHECK(Contains(typed, R"(n0 -> n1 [label="A\nfloat32[N, 1]"];)"));
  CHECK(Contains(typed, R"(n1 -> o0 [label="float32[N, 1]"];)"));
  CHECK(Parse(typed).edges == Parse(ToDot(g)).edges);
}

TEST_CASE("constants can be lines in the boxes of the nodes that read them") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddConstant("W", Tensor::From<float>({2, 1}, {1, 2}));
  g.AddConstant("kept", Tensor::From<float>({1}, {1}));
  g.AddNode(OperatorDef("Sum").Input("X").Input("W").Input("kept").Output("A"));
  g.AddNode(OperatorDef("Accumulate").Input("W").Input("A").Output("W"));
  g.AddNode(OperatorDef("Sum").Input("A").Input("W").Output("Y"));
  g.AddOutput("Y");
  g.AddOutput("kept");
  const std::string dot = ToDot(g, {.constants = false});
  CHECK(Contains(dot, R"(n0 [label="Sum\nW float32[2, 1]", )"));
  CHECK(Contains(dot, R"(n1 [label="Accumulate\nW float32[2, 1]", )"));
  CHECK(Contains(dot, R"(n2 [label="Sum", )"));  // reads what node 1 made of W
  CHECK(Parse(dot).nodes == Strings{"i0", "c1", "n0", "n1", "n2", "o0", "o1"});
  CHECK(Parse(dot).edges == Strings{"i0 -> n0", "c1 -> n0", "n0 -> n1", "n0 -> n2", "n1 -> n2",
                                    "n2 -> o0", "c1 -> o1"});
}

TEST_CASE("names are escaped") {
  Graph g;
  g.AddInput("a \"b\" \\ c\nd; }", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("a \"b\" \\ c\nd; }").Output("[Y]").Arg("note", "\"{&lt;"));
  g.AddOutput("[Y]");
  const std::string dot = ToDot(g);
  CHECK(Contains(dot, R"(label="a \"b\" \\ c\nd; }")"));
  CHECK(Contains(dot, R"(label="Relu\nnote=\"\"{&amp;lt;\"")"));
  const Parsed parsed = Parse(dot);
  CHECK(parsed.whole);
  CHECK(parsed.nodes == Strings{"i0", "n0", "o0"});
  CHECK(parsed.edges == Strings{"i0 -> n0", "n0 -> o0"});
}

TEST_CASE("a rewritten value has an edge from its last writer") {
  Graph g;
  g.AddInput("T", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Relu").Input("T").Output("A"));
  g.AddNode(OperatorDef("Accumulate").Input("T").Input("A").Output("T"));
  g.AddNode(OperatorDef("Relu").Input("T").Output("B"));
  g.AddOutput("T");
  CHECK(Parse(ToDot(g)).edges ==
        Strings{"i0 -> n0", "i0 -> n1", "n0 -> n1", "n1 -> n2", "n1 -> o0"});
}

TEST_CASE("nodes may come before their producers; left out and missing values are drawn too") {
  Graph g;
  g.AddNode(OperatorDef("Sum").Input("A").Input("").Output("Y"));
  g.AddNode(OperatorDef("Relu").Input("nowhere").Output("A").Output(""));
  g.AddOutput("Y");
  g.AddOutput("never");
  const Parsed parsed = Parse(ToDot(g));
  CHECK(parsed.whole);
  CHECK(parsed.edges == Strings{"n1 -> n0", "m0 -> n1", "n0 -> o0", "m1 -> o1"});
  CHECK(parsed.nodes == Strings{"n0", "n1", "m0", "o0", "m1", "o1"});
}

TEST_CASE("subgraphs are framed, nested ones inside, with boxes of their own") {
  Graph inner;
  inner.AddInput("x", DType::kFloat32, {2});
  inner.AddNode(OperatorDef("Relu").Input("x").Output("y"));
  inner.AddOutput("y");
  Graph middle;
  middle.AddNode(OperatorDef("If").Output("z").Subgraph("in \"then\"", MakeSubgraph(inner)));
  Graph g;
  g.AddNode(OperatorDef("If")
                .Output("Y")
                .Subgraph("then", MakeSubgraph(middle))
                .Subgraph("else", MakeSubgraph(inner)));
  g.AddOutput("Y");
  const std::string dot = ToDot(g);
  const Parsed parsed = Parse(dot);
  CHECK(parsed.whole);
  CHECK(parsed.clusters == 3);
  CHECK(Contains(dot, R"(label="in \"then\"";)"));
  for (size_t i = 0; i < parsed.nodes.size(); ++i)
    for (size_t k = 0; k < i; ++k) CHECK(parsed.nodes[i] != parsed.nodes[k]);
  for (const char* edge :
       {"s1_i0 -> s1_n0", "s2_i0 -> s2_n0", "n0 -> s0_head", "s0_n0 -> s1_head"}) {
    int found = 0;
    for (const std::string& one : parsed.edges) found += one == edge;
    CHECK_MESSAGE(found == 1, edge);
  }
}

TEST_CASE("an empty graph is an empty picture") {
  CHECK(Parse(ToDot(Graph())).whole);
  CHECK(Parse(ToDot(Graph())).nodes.empty());
}

}  // namespace dot_test

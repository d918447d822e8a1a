#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/subgraph.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"

namespace common_subexpressions_test {
using namespace pass_graphs;

TEST_CASE("equal nodes become one node, and so do the nodes that read them") {
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

TEST_CASE("nodes that differ are not merged") {
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
  SUBCASE("engine") { other.Backends("reference"); }
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

TEST_CASE("stateful and rewriting nodes, and readers of rewritten values, are not merged") {
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

TEST_CASE("a node is not merged into one that leaves out an output") {
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

}  // namespace common_subexpressions_test

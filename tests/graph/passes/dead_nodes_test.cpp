#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/graph/subgraph.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"

namespace dead_nodes_test {
using namespace pass_graphs;

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

TEST_CASE("nodes with effects stay, with their inputs: no outputs, stateful, inside a subgraph") {
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

TEST_CASE("rewrites of a value stay if a reader comes after them") {
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

}  // namespace dead_nodes_test

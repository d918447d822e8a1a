#include "opkit/graph/passes/constant_folding.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"

namespace constant_folding_test {
using namespace pass_graphs;

namespace {

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
OPERATOR_SCHEMA(CountedFour).NumInputs(0).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, Shape{4});
});
REGISTER_CPU_OPERATOR(CountedFour, CountedOp);

}  // namespace

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

TEST_CASE("nodes that must not run ahead of time are not folded") {
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

TEST_CASE("results over the limit stay, and are not computed if the schema infers their size") {
  Graph g;
  g.AddNode(OperatorDef("Ones").Output("E").Arg("size", 1000));
  g.AddNode(OperatorDef("Ones").Output("F").Arg("size", int64_t{1} << 60));
  g.AddNode(OperatorDef("Ones").Output("G").Arg("size", 4));
  g.AddNode(OperatorDef("Positives").Input("G").Output("P"));  // only the data tells
  for (const char* name : {"E", "F", "P"}) g.AddOutput(name);
  CHECK(Listing(FoldConstants(g)) == "E; P; Ones () -> (F); ");
  CHECK(Listing(FoldConstants(g, {.max_bytes = 16})) == "P; Ones () -> (E); Ones () -> (F); ");
  Graph unsaid;  // the schema of Positives gives no size: the node is run, and stays
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

}  // namespace constant_folding_test

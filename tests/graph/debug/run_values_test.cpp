#include "opkit/graph/debug/run_values.hpp"

#include <doctest/doctest.h>

#include "graph/nodes.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace run_values_test {
namespace {

using namespace opkit;
using namespace graph_nodes;

Graph Begin(std::initializer_list<OperatorDef> nodes, SymbolicShape shape = {3}) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, std::move(shape));
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("Y");
  return graph;
}
// "0 a [1, 2], 1 b [3, 4]": nodes, names and elements.
std::string Text(const std::vector<NodeValue>& values) {
  std::string text;
  for (const NodeValue& value : values)
    text +=
        StrCat(text.empty() ? "" : ", ", value.node, " ", value.name, " ", FloatsOf(value.tensor));
  return text;
}
const NamedTensor kX{"X", Vector({1, 2, 3})};

}  // namespace

TEST_CASE("every value is read before a later one overwrites its memory") {
  const Graph graph = Begin({Scale("X", "a", 2), Scale("a", "b", 2), Scale("b", "Y", 2)});
  const Plan plan = Compile(graph, {.threads = 1});
  REQUIRE(plan.memory().inplace_values > 0);
  Executor executor(plan);
  const std::string expected = "0 a [2, 4, 6], 1 b [4, 8, 12], 2 Y [8, 16, 24]";
  CHECK(Text(RunKeepingValues(executor, {kX})) == expected);
  for (int node = 0; node < 3; ++node) CHECK(executor.op(node).NumObservers() == 0);
  executor.Bind("X", kX.tensor);
  CHECK(Text(RunKeepingValues(executor)) == expected);
  CHECK(FloatsOf(executor.output("Y")) == Floats{8, 16, 24});
}

TEST_CASE("a value that nodes rewrite is there after each of them") {
  const Graph graph = Begin({Scale("X", "Y", 2), Accumulate("Y", "X"), Accumulate("Y", "X")});
  Executor executor(Compile(graph, {.threads = 1}));
  CHECK(Text(RunKeepingValues(executor, {kX})) == "0 Y [2, 4, 6], 1 Y [3, 6, 9], 2 Y [4, 8, 12]");
}

TEST_CASE("values of other layouts come in the standard one, under the names of the graph") {
  const auto in = [](const char* layout, const char* from, const char* to) {
    return OperatorDef("InLayouts", {from}, {to}).Arg("a", layout).Arg("y", layout);
  };
  Executor executor(Compile(Begin({in("A", "X", "P"), in("B", "P", "Y")}), {.threads = 1}));
  CHECK(Text(RunKeepingValues(executor, {kX})) == "0 P [2, 4, 6], 1 Y [4, 8, 12]");
}

TEST_CASE("of nodes that one kernel computes, the last one's value is read") {
  // Tripling of fused_graph_test.cpp
  const Graph graph = Begin({OperatorDef("Tripling", {"X"}, {"a"}),
                             OperatorDef("Tripling", {"a"}, {"b"}), Relu("b", "Y")});
  Executor executor(Compile(graph, {.threads = 1}));
  CHECK(Text(RunKeepingValues(executor, {kX})) == "1 b [9, 18, 27], 2 Y [9, 18, 27]");
}

TEST_CASE("a run that fails leaves nothing behind, and open shapes want a run before") {
  Executor executor(Compile(Begin({Relu("X", "Y")})));
  CHECK(ErrorOf([&] { RunKeepingValues(executor); }).code() == ErrorCode::kInvalidArgument);
  CHECK(executor.op(0).NumObservers() == 0);

  Executor open(Compile(Begin({Relu("X", "Y")}, {Sym("N")})));
  CHECK(ErrorOf([&] { RunKeepingValues(open, {kX}); }).code() == ErrorCode::kFailedPrecondition);
  open.Run({kX});
  CHECK(Text(RunKeepingValues(open, {kX})) == "0 Y [1, 2, 3]");
}

}  // namespace run_values_test

#include "opkit/graph/memory/node_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "support/layouts.hpp"
#include "support/tensors.hpp"

namespace node_order_test {
namespace {

using namespace opkit;

// `branches` chains of one large value and one small one each, all large ones first, and their sum.
Graph Branches(int branches) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  for (const char* stage : {"L", "S"})
    for (int i = 0; i < branches; ++i)
      graph.AddNode(
          OperatorDef("InLayouts", {*stage == 'L' ? "X" : StrCat("L", i)}, {StrCat(stage, i)}));
  std::string sum = "S0";
  for (int i = 1; i < branches; ++i) {
    const std::string next = i + 1 == branches ? "Y" : StrCat("P", i);
    graph.AddNode(OperatorDef("InLayouts", {sum, StrCat("S", i)}, {next}));
    sum = next;
  }
  graph.AddOutput("Y");
  return graph;
}
int64_t BytesOf(const GraphView& view, int value) {
  const std::string& name = view.name(value);
  return name[0] == 'L' ? 1000 : name == "X" || name == "Y" ? 0 : 10;
}

}  // namespace

TEST_CASE("chains are run to their ends before others begin, where that keeps less alive") {
  const Graph graph = Branches(5);
  const GraphView view(graph);
  const auto bytes = [&](int value) { return BytesOf(view, value); };
  const std::vector<int> order = OrderForFootprint(view, bytes);
  CHECK(PeakBytes(view, view.order(), bytes) == 5010);
  CHECK(PeakBytes(view, order, bytes) <= 1050);
  CHECK(std::is_permutation(order.begin(), order.end(), view.order().begin(), view.order().end()));
}

TEST_CASE("an order that is as good stays") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("InLayouts", {"X"}, {"P"}));
  graph.AddNode(OperatorDef("InLayouts", {"P"}, {"Y"}));
  graph.AddOutput("Y");
  const GraphView view(graph);
  CHECK(OrderForFootprint(view, [](int) { return int64_t{1}; }) == view.order());
}

TEST_CASE("a plan that may reorder its nodes has a smaller arena and the same results") {
  const Graph graph = Branches(6);
  const PassList no_passes;  // which would merge the chains
  const Tensor x = Tensor::From<float>({4}, {1, 2, 3, 4});
  std::vector<int64_t> arenas;
  for (const bool reorders : {false, true}) {
    PlanOptions options{.threads = 1, .passes = &no_passes, .memory = {.verify = true}};
    options.memory.reorder_nodes = reorders;
    Executor executor(Compile(graph, options));
    const Floats found = executor.Run({{"X", x}}).Get("Y").ToVector<float>();
    // S = 4 x; each sum doubles the one before.
    CHECK(found == Floats{252, 504, 756, 1008});
    arenas.push_back(executor.plan().memory().arena_bytes);
  }
  CHECK(arenas[1] < arenas[0]);
}

TEST_CASE("random graphs compute the same in the order for their footprint") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Graph graph;
    graph.AddInput("X", DType::kFloat32, {3});
    std::vector<std::string> values{"X"};
    for (int i = 0; i < 25; ++i) {
      OperatorDef node("InLayouts");
      for (int k = 0; k < 1 + static_cast<int>(random() % 2); ++k)
        node.Input(values[random() % values.size()]);
      graph.AddNode(node.Output(StrCat("V", i)).Arg("inplace", random() % 2 == 0));
      values.push_back(StrCat("V", i));
    }
    graph.AddOutput("V24");
    const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
    PlanOptions options{.threads = 1, .memory = {.verify = true}};
    const Floats expected =
        Executor(Compile(graph, options)).Run({{"X", x}}).Get("V24").ToVector<float>();
    options.memory.reorder_nodes = true;
    CHECK(Executor(Compile(graph, options)).Run({{"X", x}}).Get("V24").ToVector<float>() ==
          expected);
  }
}

}  // namespace node_order_test

// Partitioning of large graphs of 10^3 to 10^5 nodes. Measures the whole call of Partition, which
// includes inference, the partitioner's own answer, cutting, extraction and replacement, and the
// cut alone. Graphs: a chain of which every third node stays; a graph whose every node reads two of
// the 64 nodes before it; and a graph whose every node reads the node before it and the node a
// thousand before it. Of the last two graphs a fifth of the nodes stays. The goals are 10 ms for
// 1,000 nodes, 1 s for 40,000, and time that grows near-linearly. Names are Part/graph/nodes.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "opkit/graph/partition/cut.hpp"
#include "opkit/partition.hpp"
#include "pass_on.hpp"

namespace {

using namespace opkit;

OPERATOR_SCHEMA(PassOn).NumInputs(1, 2).NumOutputs(1).IdenticalTypeAndShape().Arg("stays", "");
OPERATOR_SCHEMA(Taken).NumInputs(0, 1 << 20).NumOutputs(1, 1 << 20).NeedsSubgraph();

REGISTER_PARTITIONER(bench)
    .setSupportedOps([](const PartitionView& view, PartitionAnswer& answer) {
      for (const PartitionNode& node : view.nodes())
        if (node.attributes().empty()) answer.Take(node);
    })
    .setSubgraphOp("Taken");

Graph Build(const std::string& shape, int nodes) {
  std::mt19937 random(1);
  Graph g;
  g.AddInput("v0", DType::kFloat32, {4});
  for (int i = 1; i <= nodes; ++i) {
    OperatorDef def("PassOn");
    def.Output(StrCat("v", i));
    const auto read = [&](int back) { def.Input(StrCat("v", i > back ? i - back : 0)); };
    const auto near = [&] { read(1 + static_cast<int>(random() % 64)); };
    if (shape == "chain")
      read(1);
    else if (shape == "near")
      near(), near();
    else
      read(1), read(1000);
    const bool stays = shape == "chain" ? i % 3 == 0 : random() % 5 == 0;
    if (stays) def.Arg("stays", 1);
    g.AddNode(std::move(def));
  }
  g.AddOutput(StrCat("v", nodes));
  return g;
}

void PartitionAll(benchmark::State& state, const std::string& shape, int nodes) {
  const Graph graph = Build(shape, nodes);
  PartitionReport report;
  for (auto _ : state) benchmark::DoNotOptimize(Partition(graph, "bench", {}, &report));
  state.counters["subgraphs"] = static_cast<double>(report.subgraphs.size());
}
void Cut(benchmark::State& state, const std::string& shape, int nodes) {
  const Graph graph = Build(shape, nodes);
  const GraphView view(graph);
  CutProblem problem = CutProblemOf(view);
  for (int node = 0; node < graph.num_nodes(); ++node)
    if (graph.node(node).args().empty()) problem.kinds[static_cast<size_t>(node)] = kAnySubgraph;
  CutResult cut;
  for (auto _ : state) cut = CutSubgraphs(problem);
  state.counters["subgraphs"] = cut.num_groups;
}

const bool registered = [] {
  for (const char* shape : {"chain", "near", "skips"})
    for (const int nodes : {1000, 10000, 40000, 100000}) {
      const std::string name = StrCat("/", shape, "/", nodes);
      benchmark::RegisterBenchmark(("Partition" + name).c_str(), [=](benchmark::State& state) {
        PartitionAll(state, shape, nodes);
      })->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("Cut" + name).c_str(), [=](benchmark::State& state) {
        Cut(state, shape, nodes);
      })->Unit(benchmark::kMillisecond);
    }
  return true;
}();

}  // namespace

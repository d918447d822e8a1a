// Selectors: how subgraphs grow, what Filter may drop, and cuts of what they select.
#include "opkit/graph/partition/selector.hpp"

#include "graph/partition/partition_graphs.hpp"
#include "opkit/partition.hpp"

namespace selector_test {
using namespace partition_graphs;

namespace {

// Records the calls, and does as the test says.
struct Script {
  std::vector<std::string> select, inputs, outputs;  // operators
  std::function<std::vector<PartitionNode>(const std::vector<PartitionNode>&)> filter;
  int kind = kAnySubgraph;
  std::string calls;
};
Script* g_script = nullptr;

class Scripted final : public SubgraphSelector {
 public:
  bool Select(const PartitionNode& node) override {
    g_script->calls += "S" + node.name() + " ";
    return In(g_script->select, node);
  }
  bool SelectInput(const PartitionNode& node, const PartitionNode& input) override {
    g_script->calls += "I" + node.name() + input.name() + " ";
    return In(g_script->inputs, input);
  }
  bool SelectOutput(const PartitionNode& node, const PartitionNode& output) override {
    g_script->calls += "O" + node.name() + output.name() + " ";
    return In(g_script->outputs, output);
  }
  std::vector<PartitionNode> Filter(const std::vector<PartitionNode>& candidates) override {
    return g_script->filter ? g_script->filter(candidates) : candidates;
  }
  void Reset() override { g_script->calls += "R "; }
  int Kind() const override { return g_script->kind; }

 private:
  static bool In(const std::vector<std::string>& list, const PartitionNode& node) {
    return std::find(list.begin(), list.end(), node.op()) != list.end();
  }
};

Graph Parted(const Graph& graph, Script& script) {
  g_script = &script;
  const Graph after = Partition(graph, "scripted");
  CheckSameResults(graph, after, 1);
  return after;
}

// X - Scale a - Relu b - Scale c - Add d(c, a).
Graph Sample() {
  Graph g = WithInputs({"X"});
  g.AddNode(Scale("X", "A", 2).Name("a"));
  g.AddNode(Relu("A", "B").Name("b"));
  g.AddNode(Scale("B", "C", 3).Name("c"));
  g.AddNode(Add("C", "A", "D").Name("d"));
  return g.AddOutput("D");
}

}  // namespace

REGISTER_PARTITIONER(scripted)
    .setCreateSelector([](const PartitionView&, const PartitionArguments&) {
      return std::unique_ptr<SubgraphSelector>(new Scripted);
    })
    .setSubgraphOp("RunBody");
REGISTER_PARTITIONER(no_selector)
    .setCreateSelector([](const PartitionView&, const PartitionArguments&) {
      return std::unique_ptr<SubgraphSelector>();
    })
    .setSubgraphOp("RunBody");

TEST_CASE("a subgraph grows from where Select begins it, breadth first") {
  Script script{{"Relu"}, {"Scale"}, {"Scale"}, {}, kAnySubgraph, {}};
  CHECK(Ops(Parted(Sample(), script)) == "RunBody Add");
  CHECK(script.calls == "R Sa R Sb Iba Obc Oad Ocd R Sd ");
}

TEST_CASE("a selection that cannot run as one subgraph is cut") {
  // a, c and d: b stands between, and c goes with d.
  Script script{{"Scale"}, {"Scale"}, {"Add"}, {}, kAnySubgraph, {}};
  CHECK(Ops(Parted(Sample(), script)) == "RunBody Relu RunBody");
}

TEST_CASE("each selection is a subgraph of its own, even beside another") {
  Script script{{"Scale", "Relu"}, {}, {}, {}, kAnySubgraph, {}};
  CHECK(Ops(Parted(Sample(), script)) == "RunBody RunBody RunBody Add");
}

TEST_CASE("Filter drops nodes, and the others are cut again") {
  // All four nodes are selected from a; without b the rest is no subgraph any more.
  Script script{{"Scale"}, {}, {"Relu", "Scale", "Add"}, {}, kAnySubgraph, {}};
  int calls = 0;
  script.filter = [&](const std::vector<PartitionNode>& found) {
    std::vector<PartitionNode> kept;
    for (const PartitionNode& node : found)
      if (calls > 0 || node.name() != "b") kept.push_back(node);
    ++calls;
    return kept;
  };
  CHECK(Ops(Parted(Sample(), script)) == "RunBody Relu RunBody");
}

TEST_CASE("a selector's answers are checked") {
  Script script{{"Relu"}, {}, {}, {}, kAnySubgraph, {}};
  g_script = &script;
  const Graph graph = Sample();
  const auto error = [&] { return ErrorOf([&] { Partition(graph, "scripted"); }); };
  script.filter = [](const std::vector<PartitionNode>& found) {
    return std::vector<PartitionNode>{found[0], found[0]};
  };
  CHECK(Contains(error().what(), "is not among its candidates or was returned twice"));
  script.filter = {};
  script.kind = -2;
  CHECK(error().code() == ErrorCode::kOutOfRange);
  CHECK(Contains(ErrorOf([&] { Partition(graph, "no_selector"); }).what(), "made no selector"));
}

}  // namespace selector_test

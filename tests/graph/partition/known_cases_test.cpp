// Graphs that other partitioners are tested with, as facts: their shape, what is taken, and how
// many subgraphs their source finds. Here each must be legal, leave what is not taken outside,
// compute the same and need no more subgraphs. Every node is a Sum of what it reads.
#include <map>

#include "graph/partition/cuts.hpp"
#include "graph/partition/partition_graphs.hpp"
#include "opkit/partition.hpp"

namespace known_cases_test {
using namespace partition_graphs;

namespace {

using Nodes = std::vector<std::pair<std::string, std::vector<std::string>>>;  // name, what it reads

// Names that no node has are inputs; values that no node reads, and `outputs`, are outputs.
Graph GraphOfNodes(const Nodes& nodes, const std::vector<std::string>& outputs = {}) {
  Graph graph;
  std::map<std::string, bool> read;
  for (const auto& [name, inputs] : nodes) read[name] = false;
  for (const auto& [name, inputs] : nodes)
    for (const std::string& input : inputs) {
      if (read.count(input) == 0) graph.AddInput(input, DType::kFloat32, {4, 4});
      read[input] = true;
    }
  for (const auto& [name, inputs] : nodes)
    graph.AddNode(OperatorDef("Sum", inputs, {name}).Name(name));
  for (const auto& [name, inputs] : nodes)
    if (!read[name]) graph.AddOutput(name);
  for (const std::string& output : outputs)
    if (!graph.IsOutput(output)) graph.AddOutput(output);
  return graph;
}

struct Case {
  const char* name;
  Nodes nodes;
  std::vector<std::string> taken;
  int most;  // subgraphs that the source finds
  std::vector<std::string> outputs = {};
  const char* min_size = "1";
};

void CheckCase(const Case& known) {
  CAPTURE(std::string(known.name));
  const Graph graph = GraphOfNodes(known.nodes, known.outputs);
  const ChoiceScope choice({[&](const PartitionView&, PartitionAnswer& answer) {
                              for (const std::string& name : known.taken) answer.Take(name);
                            },
                            {}});
  PartitionReport report;
  const Graph after = Partition(graph, "chosen", {{"min_size", known.min_size}}, &report);
  CHECK(report.subgraphs.size() <= static_cast<size_t>(known.most));
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const bool taken = std::find(known.taken.begin(), known.taken.end(), graph.node(node).name()) !=
                       known.taken.end();
    if (!taken) CHECK(report.nodes[static_cast<size_t>(node)].subgraph < 0);
    if (taken && known.min_size == std::string("1"))
      CHECK(report.nodes[static_cast<size_t>(node)].subgraph >= 0);
  }
  std::vector<int> group;
  for (const PartitionReport::Node& node : report.nodes) group.push_back(node.subgraph);
  CHECK(cuts::IsAcyclic(CutProblemOf(GraphView(graph)), group));
  CheckSameResults(graph, after, 1);
}

}  // namespace

TEST_CASE("PyTorch's fx partitioner") {
  // test/test_fx_passes.py: forward1 to forward18 without 3 and 4; r… is its relu, which is not
  // taken, and getitem is no node here. Later versions of it join nodes that share nothing, in
  // forward12 to two subgraphs and in forward17 to one; here a subgraph's nodes are connected.
  const Case cases[] = {
      {"forward1",
       {{"add", {"a", "b"}},
        {"add_1", {"add", "b"}},
        {"add_2", {"add_1", "c"}},
        {"r1", {"add_2"}},
        {"add_3", {"add_1", "add_2"}},
        {"add_4", {"add_1", "r1"}},
        {"add_5", {"add_4", "add_3"}},
        {"r2", {"add_5"}},
        {"add_6", {"r2", "add_5"}},
        {"add_7", {"add_6", "add_5"}}},
       {"add", "add_1", "add_2", "add_3", "add_4", "add_5", "add_6", "add_7"},
       3,
       {"add_5"}},
      {"forward2",
       {{"add", {"a", "b"}},
        {"add_1", {"add", "b"}},
        {"r1", {"add_1"}},
        {"add_2", {"add_1", "r1"}},
        {"add_3", {"add_1", "add_2"}}},
       {"add", "add_1", "add_2", "add_3"},
       2,
       {"add_1"}},
      {"forward5", {{"add", {"a"}}, {"r", {"add"}}, {"add_1", {"add"}}}, {"add", "add_1"}, 1},
      {"forward6", {{"add", {"a"}}, {"r", {"add"}}, {"r1", {"add"}}}, {"add"}, 1},
      {"forward7",
       {{"add", {"a"}}, {"add_1", {"add"}}, {"add_2", {"add"}}, {"add_3", {"add_2"}}},
       {"add", "add_1", "add_2", "add_3"},
       2},
      {"forward8",
       {{"add", {"a"}}, {"add_1", {"add"}}, {"add_2", {"add"}}, {"add_3", {"add_2", "add_1"}}},
       {"add", "add_1", "add_2", "add_3"},
       1},
      {"forward9",
       {{"add", {"a"}},
        {"add_1", {"add"}},
        {"add_2", {"add"}},
        {"add_3", {"add"}},
        {"out", {"add_1", "add_2", "add_3"}}},
       {"add", "add_1", "add_2", "add_3"},
       3},
      {"forward10",
       {{"add", {"a"}},
        {"add_1", {"add"}},
        {"add_2", {"add"}},
        {"add_3", {"add", "add_2"}},
        {"out", {"add_1", "add_2", "add_3"}}},
       {"add", "add_1", "add_2", "add_3"},
       2},
      {"forward11",
       {{"add", {"a"}},
        {"r1", {"add"}},
        {"add_1", {"add", "r1"}},
        {"r2", {"add"}},
        {"out", {"r1", "add_1", "r2"}}},
       {"add", "add_1"},
       2},
      {"forward12",  // which joins c0, c1 and c2, and then must not join b0 and b1
       {{"b0", {"a"}},
        {"c0", {"a"}},
        {"r0", {"b0"}},
        {"r1", {"c0"}},
        {"b1", {"b0", "r1"}},
        {"c1", {"c0"}},
        {"c2", {"r0", "c0"}}},
       {"b0", "c0", "b1", "c1", "c2"},
       3},
      {"forward13",
       {{"split", {"a"}},
        {"add", {"split", "b"}},
        {"add_1", {"split", "c"}},
        {"add_2", {"add", "add_1"}}},
       {"add", "add_1", "add_2"},
       1},
      {"forward14", {{"std_mean", {"a"}}, {"add", {"std_mean"}}}, {"std_mean", "add"}, 1},
      {"forward17",
       {{"add", {"a", "b"}}, {"add_1", {"c", "d"}}, {"add_2", {"e", "f"}}},
       {"add", "add_1", "add_2"},
       3},
      {"forward18", {{"var_mean", {"a"}}}, {}, 0},
  };
  for (const Case& known : cases) CheckCase(known);
  // A chain whose ends, which only move data, are taken, and are left outside.
  const Nodes chain = {{"view", {"a"}},
                       {"permute", {"view"}},
                       {"add", {"permute"}},
                       {"permute_1", {"add"}},
                       {"add_1", {"permute_1"}},
                       {"permute_2", {"add_1"}},
                       {"permute_3", {"permute_2"}}};
  Nodes between = {{"sub", {"x"}}};  // forward16 has one more at either end, which is not taken
  for (auto [name, inputs] : chain) {
    if (name == "view") inputs = {"sub"};
    between.push_back({name, inputs});
  }
  between.push_back({"sub_1", {"permute_3"}});
  const std::vector<std::string> inner = {"add", "permute_1", "add_1"};
  const std::vector<std::string> all = {"view",  "permute",   "add",      "permute_1",
                                        "add_1", "permute_2", "permute_3"};
  CheckCase({"forward15", chain, all, 1});
  CheckCase({"forward15 without its ends", chain, inner, 1});
  CheckCase({"forward16", between, all, 1});
  CheckCase({"forward16 without its ends", between, inner, 1});
}

TEST_CASE("PyTorch's fusing of given nodes: 12 legal sets and 4 illegal") {
  // test/test_fx_passes.py, test_fuser_util; its parameter is a constant here.
  Graph graph = GraphOfNodes({{"add", {"a", "b"}},
                              {"linear", {"add"}},
                              {"add_1", {"add", "c"}},
                              {"add_2", {"add_1", "param"}},
                              {"add_3", {"add_1", "linear"}},
                              {"add_4", {"add_2", "add_3"}},
                              {"linear2", {"add_4"}},
                              {"add_5", {"linear2", "add_4"}},
                              {"add_6", {"add_5", "a"}},
                              {"relu", {"add_6"}}},
                             {"add_4", "add_6"});
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view);
  const auto fuse = [&](const std::vector<std::vector<std::string>>& sets) {
    std::vector<NodeReplacement> replacements;
    for (const auto& names : sets) {
      NodeReplacement replacement;
      for (const std::string& name : names) replacement.nodes.push_back(graph.Producer(name));
      ExtractedSubgraph found = ExtractSubgraph(view, replacement.nodes, &types);
      replacement.def = OperatorDef("RunBody", found.inputs, found.outputs);
      replacement.def.Subgraph("body", MakeSubgraph(std::move(found.body)));
      replacements.push_back(std::move(replacement));
    }
    return ReplaceNodes(view, replacements);
  };
  const std::vector<std::vector<std::vector<std::string>>> legal = {
      {{"add", "add_1"}, {"add_5", "add_6"}},
      {{"add", "add_1", "add_2"}},
      {{"add_2", "add_3"}},
      {{"add_3", "add_4"}},
      {{"add_6", "add_5"}},
      {{"add_4", "add_1", "add_3", "add_2"}},
      {{"add_5", "add_6"}, {"add_1", "add_2", "add_3", "add_4"}},
      {{"add_5", "linear2"}},
      {{"add_6", "relu"}},
      {{"add_2"}},
      {{"add_1", "linear"}},
      {{"add", "linear", "add_1", "add_2", "add_3", "add_4", "linear2", "add_5", "add_6", "relu"}}};
  for (const auto& sets : legal) {
    CAPTURE(sets[0].size());
    const Graph after = fuse(sets);
    size_t nodes = static_cast<size_t>(graph.num_nodes()) + sets.size();
    for (const auto& names : sets) nodes -= names.size();
    CHECK(static_cast<size_t>(after.num_nodes()) == nodes);
    CheckSameResults(graph, after, 1);
  }
  const std::vector<std::vector<std::vector<std::string>>> illegal = {
      {{"add", "add_1"}, {"add_1", "add_5", "add_6"}},
      {{"add", "add_1", "add_3"}},
      {{"add_4", "add_5"}},
      {{"relu", "add_5"}}};
  for (const auto& sets : illegal)
    CHECK(ErrorOf([&] { fuse(sets); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("TVM's merged compiler regions") {
  // test_pass_merge_compiler_regions.py: the diamond with a branch of somebody else's.
  CheckCase(
      {"diamond",
       {{"o1", {"data"}}, {"o2", {"o1"}}, {"x", {"o1"}}, {"o3", {"o2", "x"}}, {"o4", {"o3", "x"}}},
       {"o1", "o2", "o3"},
       2});
  // The example of the algorithm's proposal; x… are its subtractions, which are not taken.
  CheckCase({"example graph",
             {{"n0", {"in_1", "in_2"}},
              {"n1", {"in_3", "in_4"}},
              {"n2", {"n0", "n1"}},
              {"x3", {"in_5", "in_6"}},
              {"x4", {"in_7", "x3"}},
              {"n5", {"n2", "x4"}},
              {"x6", {"in_8", "n5"}},
              {"n7", {"in_9", "n5"}},
              {"n8", {"x6", "n7"}},
              {"n9", {"in_10", "n8"}}},
             {"n0", "n1", "n2", "n5", "n7", "n8", "n9"},
             2});
  // An If that reads what is taken, and whose result is read by what is taken.
  CheckCase({"if and else",
             {{"add0", {"data", "data"}},
              {"sub0", {"add0", "data"}},
              {"equal", {"add0", "sub0"}},
              {"if", {"equal", "add0", "sub0"}},
              {"erf", {"if"}},
              {"out", {"add0", "erf"}}},
             {"add0", "erf", "out"},
             2});
}

TEST_CASE("TensorFlow Lite's independent node subsets") {
  // tensorflow/lite/graph_info_test.cc, its graphs with nodes that have inputs; it counts what is
  // not taken as subsets too, which `most` does not.
  const Nodes one = {{"n0", {"t0"}}}, two = {{"n0", {"t0"}}, {"n1", {"n0"}}};
  CheckCase({"Nodes1PartitionNodes0", one, {}, 0});
  CheckCase({"Nodes1PartitionNodes1", one, {"n0"}, 1});
  CheckCase({"Nodes2PartitionNodes1", two, {"n1"}, 1});
  CheckCase({"Nodes2PartitionNodes2", two, {"n0", "n1"}, 1});
  CheckCase({"Nodes3PartitionNodes2",
             {{"n0", {"t0"}}, {"n1", {"n0"}}, {"n2", {"n0", "n1"}}},
             {"n0", "n2"},
             2});
}

TEST_CASE("ONNX Runtime's supported partitions") {
  // onnxruntime/test/providers/partitioning_utils_test.cc; q… quantize, d… dequantize. All is
  // taken, but for the Cast of the first, whose weights are dequantized before it and read behind
  // it.
  const Case cases[] = {
      {"TestQDQHandling",
       {{"mul", {"x", "scale"}},
        {"d_weights", {"weights"}},
        {"cast", {"mul"}},
        {"q", {"cast"}},
        {"d", {"q"}},
        {"conv", {"d", "d_weights"}},
        {"q_out", {"conv"}}},
       {"mul", "d_weights", "q", "d", "conv", "q_out"},
       2},
      {"TestHandlingQDQNodeUnitWithNoQNodes",
       {{"q0", {"x0"}},
        {"d0", {"q0"}},
        {"q1", {"x1"}},
        {"d1", {"q1"}},
        {"equal", {"d0", "d1"}},
        {"cast", {"equal"}}},
       {"q0", "d0", "q1", "d1", "equal", "cast"},
       1},
      {"TestQDQNodeGroupWithOutputFromTargetNode",
       {{"q0", {"x"}},
        {"d0", {"q0"}},
        {"top", {"d0", "k"}},
        {"q1", {"top"}},
        {"d1", {"q1"}},
        {"cast", {"top"}}},
       {"q0", "d0", "top", "q1", "d1", "cast"},
       1},
      {"TestQDQNodeGroupWithRedundantRelu",
       {{"d_x", {"x"}},
        {"d_weights", {"weights"}},
        {"d_bias", {"bias"}},
        {"conv", {"d_x", "d_weights", "d_bias"}},
        {"relu", {"conv"}},
        {"q", {"relu"}}},
       {"d_x", "d_weights", "d_bias", "conv", "relu", "q"},
       1},
      {"TestQDQNodeGroupWithRedundantClip",
       {{"d0", {"x0"}},
        {"d1", {"x1"}},
        {"add", {"d0", "d1"}},
        {"clip", {"add", "min", "max"}},
        {"q", {"clip"}}},
       {"d0", "d1", "add", "clip", "q"},
       1},
  };
  for (const Case& known : cases) CheckCase(known);
}

TEST_CASE("TensorFlow's segments") {
  // tf2tensorrt/segment/segment_test.cc; a segment has two nodes at least.
  const Nodes simple = {{"add0", {"feed"}},
                        {"add1", {"feed"}},
                        {"add2", {"add0", "add1"}},
                        {"add3", {"add0", "add2"}},
                        {"add4", {"add2"}}};
  CheckCase({"Simple", simple, {"add0", "add1", "add2", "add3", "add4"}, 1, {}, "2"});
  CheckCase({"Simple without add1", simple, {"add0", "add2", "add3", "add4"}, 1, {}, "2"});
  CheckCase({"AvoidCycle", simple, {"add0", "add1", "add3", "add4"}, 0, {}, "2"});
  CheckCase({"Multiple",
             {{"add0", {"feed"}},
              {"add1", {"feed"}},
              {"add7", {"feed"}},
              {"add2", {"add0", "add1"}},
              {"add5", {"add2", "add7"}},
              {"add8", {"add7"}},
              {"add3", {"add0", "add2"}},
              {"add4", {"add2", "add5"}},
              {"add6", {"add5", "add8"}}},
             {"add0", "add1", "add2", "add3", "add4", "add6", "add7", "add8"},
             2,
             {},
             "2"});
  CheckCase({"BigIfElse",
             {{"add0", {"feed"}},
              {"add1", {"add0"}},
              {"add2", {"add1"}},
              {"add3", {"add2"}},
              {"add4", {"add0"}},
              {"add5", {"add4"}},
              {"add6", {"add5"}},
              {"add7", {"add3", "add6"}}},
             {"add0", "add1", "add3", "add4", "add5", "add6", "add7"},
             2,
             {},
             "2"});
}

TEST_CASE("MXNet's subgraph shapes") {
  // tests/python/unittest/test_subgraph_op.py, network_structure_1 to 7 with what it takes of each.
  const Nodes cycle = {
      {"exp", {"data"}}, {"cos", {"exp"}}, {"sin", {"exp"}}, {"plus", {"cos", "sin"}}};
  Nodes norms = cycle;
  norms.insert(norms.end(), {{"norm1", {"plus"}}, {"norm2", {"norm1"}}});
  Nodes around = {{"sin", {"data"}}, {"cos0", {"sin"}}};
  for (int i = 1; i <= 5; ++i) around.push_back({StrCat("cos", i), {StrCat("cos", i - 1)}});
  around.push_back({"plus", {"sin", "cos5"}});
  const Nodes weights = {{"sin", {"data2"}}, {"conv", {"data1", "sin"}}};
  const Case cases[] = {
      {"1, two that share an input", {{"c1", {"x", "w"}}, {"c2", {"w"}}}, {"c1", "c2"}, 2},
      {"2, without cos", cycle, {"exp", "sin", "plus"}, 2},
      {"2, without sin", cycle, {"exp", "cos", "plus"}, 2},
      {"3, without cos", norms, {"exp", "sin", "plus", "norm1", "norm2"}, 2},
      {"3, the ends", norms, {"exp", "norm1", "norm2"}, 2},
      {"4, an output of every kind", {{"exp", {"data"}}, {"out", {"exp"}}}, {"exp"}, 1, {"exp"}},
      {"5, the same input twice", {{"plus", {"data", "data"}}}, {"plus"}, 1},
      {"6, nothing", weights, {}, 0},
      {"6, both", weights, {"sin", "conv"}, 1},
      {"6, one", weights, {"conv"}, 1},
      {"7, a long way round", around, {"sin", "plus"}, 2},
  };
  for (const Case& known : cases) CheckCase(known);
}

}  // namespace known_cases_test

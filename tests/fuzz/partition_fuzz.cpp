// Partitioners that answer anything, over random graphs and with any options: an Error, or a graph
// whose order has no cycle and that stands for the same nodes; what was given has not changed.
#include <cstdlib>

#include "fuzz_bytes.hpp"
#include "opkit/graph/partition/extract.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/subgraph.hpp"

namespace {

using namespace opkit;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Anything final : public SubgraphSelector {
 public:
  bool Select(const PartitionNode&) override { return In().Byte() % 2; }
  bool SelectInput(const PartitionNode&, const PartitionNode&) override { return In().Byte() % 2; }
  bool SelectOutput(const PartitionNode&, const PartitionNode&) override { return In().Byte() % 2; }
  std::vector<PartitionNode> Filter(const std::vector<PartitionNode>& found) override {
    std::vector<PartitionNode> kept;
    for (const PartitionNode& node : found)
      if (In().Byte() % 4) kept.push_back(node);
    if (In().Rarely()) kept.push_back(found[0]);
    return kept;
  }
  int Kind() const override { return In().Rarely() ? In().Small() : kAnySubgraph; }
};

void Mark(const PartitionView& view, PartitionAnswer& answer) {
  for (const PartitionNode& node : view.nodes()) {
    if (In().Byte() % 2) answer.Take(node, In().Rarely() ? In().Byte() % 4 - 1 : kAnySubgraph);
    if (In().Rarely() && In().Rarely()) answer.Take(In().Small());
    if (In().Rarely() && In().Rarely()) answer.Take(node.name());
    if (In().Rarely()) answer.Refuse(node, "why");
  }
}
void Review(SubgraphReview& review) {
  if (In().Byte() % 4 == 0) review.Reject("not this");
  if (!In().Rarely()) return;
  if (In().Byte() % 2) review.SetAttribute("name", int64_t{1});
  if (In().Byte() % 2) review.AddConstant("", Tensor::From<float>({1}, {1}));
  if (In().Byte() % 2) review.IsArg(In().Small());
}
ReturnValue MarkIds(std::string, std::vector<int>& ids, std::map<std::string, std::string>&) {
  for (int& id : ids)
    if (In().Byte() % 2) id = In().Rarely() ? In().Byte() % 5 - 2 : -1;
  return In().Rarely() ? FAIL : SUCCESS;
}
REGISTER_PARTITIONER(marks).setSupportedOps(Mark).setAcceptSubgraph(Review);
REGISTER_PARTITIONER(ids).setSupportedOps(MarkIds);
REGISTER_PARTITIONER(selects).setCreateSelector([](const PartitionView&,
                                                   const PartitionArguments&) {
  return std::unique_ptr<SubgraphSelector>(new Anything);
});

Graph Build() {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {2});
  graph.AddConstant("v1", Tensor::From<float>({2}, {1, 2}));
  const int nodes = In().Byte() % 24;
  for (int i = 0; i < nodes; ++i) {
    const auto value = [&] {  // mostly one that there is
      if (In().Rarely()) return In().Rarely() ? std::string() : StrCat("v", In().Byte() % 32);
      return StrCat("v", In().Byte() % (i + 2));
    };
    constexpr const char* kOps[] = {"Add", "Mul", "Identity", "Alien"};
    OperatorDef def(In().Rarely() ? "Subgraph" : In().Of(kOps));
    def.Input(value());
    if (def.type() != "Identity") def.Input(value());
    def.Output(In().Rarely() ? def.inputs()[0] : StrCat("v", i + 2));
    if (In().Byte() % 4) def.Name(StrCat("n", In().Rarely() ? In().Byte() % 32 : i));
    if (In().Rarely()) def.ControlInput(StrCat("n", In().Byte() % (i + 1)));
    graph.AddNode(std::move(def));
  }
  for (int i = In().Byte() % 3; i >= 0; --i) {
    const std::string output = StrCat("v", nodes + 1 - In().Byte() % (nodes + 2));
    if (!graph.IsOutput(output)) graph.AddOutput(output);
  }
  return graph;
}

PartitionArguments Options() {
  constexpr const char* kNames[] = {"min_size",      "max_size",  "max_subgraphs", "exclude_ops",
                                    "exclude_nodes", "see_taken", "require_all",   "mine"};
  constexpr const char* kValues[] = {"2", "1", "3", "true", "Add", "n1,n2", "", "-1", "\xff,"};
  PartitionArguments options;
  for (int i = In().Byte() % 3; i > 0; --i) options.emplace_back(In().Of(kNames), In().Of(kValues));
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  t_bytes = &bytes;
  try {
    const Graph graph = Build();
    const Graph copy = graph;
    constexpr const char* kNames[] = {"marks", "ids", "selects"};
    std::vector<PartitionerRequest> partitioners;
    for (int i = 1 + In().Byte() % 2; i > 0; --i)
      partitioners.push_back({std::string(In().Of(kNames)), Options()});
    PartitionReport report;
    const Graph after = Partition(graph, partitioners, &report);
    Require(SameGraph(graph, copy), "the graph that was given has changed");
    const GraphView view(after);  // throws for a cycle
    Require(after.outputs() == graph.outputs(), "the outputs differ");
    static_cast<void>(ToString(report).size() + ToJson(report).size() + ToDot(report).size());
    if (report.num_taken() == 0)
      Require(SameGraph(after, graph), "nothing is taken, and it differs");
  } catch (const Error& error) {
    Require(error.code() != ErrorCode::kOperatorFailed ||
                std::string(error.what()).find("returned FAIL") != std::string::npos,
            error.what());
    Require(std::string(error.what()).find("the graph has a cycle") == std::string::npos ||
                error.context().empty(),
            error.what());
  }
  t_bytes = nullptr;
  return 0;
}

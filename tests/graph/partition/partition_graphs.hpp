// Support for the tests of partitioners: small graphs, the check that a partitioned graph computes
// the same, and partitioners whose choice a test gives. RunBody, which runs the subgraph it
// carries, is registered in partition_test.cpp.
#ifndef OPKIT_TESTS_GRAPH_PARTITION_PARTITION_GRAPHS_HPP_
#define OPKIT_TESTS_GRAPH_PARTITION_PARTITION_GRAPHS_HPP_

#include <doctest/doctest.h>

#include <functional>

#include "graph/nodes.hpp"
#include "graph/random_graph.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "support/error_of.hpp"

namespace partition_graphs {
using namespace opkit;
using namespace graph_nodes;

// The functions of the partitioner "chosen" of partition_test.cpp: each test sets those it needs.
struct Choice {
  std::function<void(const PartitionView&, PartitionAnswer&)> take;
  std::function<void(SubgraphReview&)> review;
};
inline Choice& CurrentChoice() {
  static Choice choice;
  return choice;
}
// For the rest of the scope.
class ChoiceScope {
 public:
  explicit ChoiceScope(Choice choice) { CurrentChoice() = std::move(choice); }
  ~ChoiceScope() { CurrentChoice() = {}; }
};

inline std::function<void(const PartitionView&, PartitionAnswer&)> TakeOps(
    std::vector<std::string> ops) {
  return [ops](const PartitionView& view, PartitionAnswer& answer) {
    for (const PartitionNode& node : view.nodes())
      if (std::find(ops.begin(), ops.end(), node.op()) != ops.end()) answer.Take(node);
  };
}

inline Graph WithInputs(std::initializer_list<const char*> names) {
  Graph g;
  for (const char* name : names) g.AddInput(name, DType::kFloat32, {4, 4});
  return g;
}
// The operators, in order.
inline std::string Ops(const Graph& graph) {
  std::string out;
  for (const OperatorDef& def : graph.nodes()) out += (out.empty() ? "" : " ") + def.type();
  return out;
}

// That a graph computes the same outputs, to the bit, before and after.
inline void CheckSameResults(const Graph& before, const Graph& after, uint64_t seed) {
  Check(after);
  CHECK(after.outputs() == before.outputs());
  REQUIRE(after.inputs().size() == before.inputs().size());
  const auto inputs = RandomInputs(before, seed);
  const auto expected = RunInOrder(before, inputs), found = RunInOrder(after, inputs);
  REQUIRE(expected.size() == found.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    CAPTURE(before.outputs()[o]);
    CHECK(detail::SameBytes(expected[o], found[o]));
  }
}

}  // namespace partition_graphs

#endif  // OPKIT_TESTS_GRAPH_PARTITION_PARTITION_GRAPHS_HPP_

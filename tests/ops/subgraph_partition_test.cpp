// Partitioners that leave their parts to the standard operator Subgraph: results and gradients.
#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/register_partitioner.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/ops/all.hpp"

namespace subgraph_partition_test {
using namespace opkit;

namespace {

void TakeElementwise(const PartitionView& view, PartitionAnswer& answer) {
  for (const PartitionNode& node : view.nodes())
    if (node.op() == "Exp" || node.op() == "Mul" || node.op() == "Tanh") answer.Take(node);
}
REGISTER_PARTITIONER(elementwise).setSupportedOps(TakeElementwise);

// loss = sum(tanh(exp(x w) * x)).
Graph Model() {
  Graph g;
  g.AddInput("x", DType::kFloat32, {3, 3}).AddInput("w", DType::kFloat32, {3, 3});
  g.AddNode(OperatorDef("MatMul", {"x", "w"}, {"a"}));
  g.AddNode(OperatorDef("Exp", {"a"}, {"b"}));
  g.AddNode(OperatorDef("Mul", {"b", "x"}, {"c"}));
  g.AddNode(OperatorDef("Tanh", {"c"}, {"d"}));
  g.AddNode(OperatorDef("ReduceSum", {"d"}, {"loss"}, {{"keepdims", 0}}));
  return g.AddOutput("loss");
}

}  // namespace

TEST_CASE("without setSubgraphOp the program runs the subgraph, and a partitioned graph trains") {
  const Graph flat = Model(), parted = Partition(flat, "elementwise");
  REQUIRE(parted.num_nodes() == 3);
  CHECK(parted.node(1).type() == "Subgraph");
  const Tensor x = RandomTensor(Shape{3, 3}, DType::kFloat32, 1),
               w = RandomTensor(Shape{3, 3}, DType::kFloat32, 2);
  std::vector<NamedTensors> found;
  for (const Graph* graph : {&flat, &parted}) {
    Graph with = *graph;
    const GradientMap gradients = AddGradients(with, "loss", {"w"});
    with.AddOutput(gradients.at("w").dense);
    Executor exec(Compile(with, {.threads = 1}));
    found.push_back(exec.Run({{"x", x}, {"w", w}}));
  }
  REQUIRE(found[0].size() == 2);
  for (size_t o = 0; o < 2; ++o) CHECK(detail::SameBytes(found[0][o], found[1][o]));
}

TEST_CASE("partitioners of a plan leave a graph with gradients too") {
  Graph flat = Model();
  const GradientMap gradients = AddGradients(flat, "loss", {"w"});
  flat.AddOutput(gradients.at("w").dense);
  PartitionReport report;
  const Plan plan = Compile(flat, {.partitioners = {"elementwise"}, .partition_report = &report});
  CHECK(report.num_taken() >= 3);
}

}  // namespace subgraph_partition_test

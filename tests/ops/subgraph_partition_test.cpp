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

// Takes each node with the probability percent / 100, by the option seed.
void TakeSome(const PartitionView& view, PartitionAnswer& answer,
              const PartitionArguments& options) {
  detail::CheckRandom random(std::stoull(options.at(0).second));
  const double probability = std::stod(options.at(1).second) / 100;
  for (const PartitionNode& node : view.nodes())
    if (random.Uniform() < probability) answer.Take(node);
}
REGISTER_PARTITIONER(some_nodes).setSupportedOps(TakeSome);

// Nodes that read what any earlier one makes, their sum as the loss, and its gradients.
Graph Trained(uint64_t seed) {
  detail::CheckRandom random(seed);
  Graph g;
  g.AddInput("v0", DType::kFloat32, {3, 4}).AddInput("v1", DType::kFloat32, {3, 4});
  int values = 2;
  for (; values < 10; ++values) {
    constexpr const char* kOps[] = {"Add", "Mul", "Tanh", "Sigmoid", "Sub"};
    const auto kind = static_cast<size_t>(random.Next() % 5);
    const auto pick = [&] { return StrCat("v", random.Next() % static_cast<uint64_t>(values)); };
    OperatorDef def(kOps[kind]);
    def.Input(pick()).Output(StrCat("v", values));
    if (kind != 2 && kind != 3) def.Input(pick());
    g.AddNode(std::move(def));
  }
  g.AddNode(OperatorDef("Add", {"v9", "v0"}, {"all"}));
  g.AddNode(OperatorDef("ReduceSum", {"all"}, {"loss"}, {{"keepdims", 0}}));
  const GradientMap gradients = AddGradients(g, "loss", {"v0"});
  return g.AddOutput("loss").AddOutput(gradients.at("v0").dense);
}

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
  const Plan plan = Compile(flat, {.partitioners = {"elementwise"}});
  CHECK(plan.partition_report().num_taken() >= 3);
}

TEST_CASE("random parts of forward and backward graphs keep every bit, on 1 thread and on 4") {
  int taken = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Graph flat = Trained(seed);
    const std::vector<NamedTensor> inputs = {
        {"v0", RandomTensor(Shape{3, 4}, DType::kFloat32, seed)},
        {"v1", RandomTensor(Shape{3, 4}, DType::kFloat32, seed + 1000)}};
    Executor expected(Compile(flat, {.threads = 1}));
    const NamedTensors want = expected.Run(inputs);
    for (const int threads : {1, 4}) {
      Executor exec(Compile(
          flat,
          {.threads = threads,
           .partitioners = {
               {"some_nodes", {{"seed", StrCat(seed)}, {"percent", StrCat(seed % 90 + 10)}}}}}));
      const NamedTensors found = exec.Run(inputs);
      for (size_t o = 0; o < want.size(); ++o) CHECK(detail::SameBytes(want[o], found[o]));
      taken += exec.plan().partition_report().num_taken();
    }
  }
  CHECK(taken > 500);
}

}  // namespace subgraph_partition_test

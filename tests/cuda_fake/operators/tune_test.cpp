// Tune on a graph whose nodes run on CUDA.
#include "opkit/graph/tune/tune.hpp"

#include "on_cuda.hpp"
#include "support/tensors.hpp"

namespace cuda_tune_test {
using namespace opkit;

TEST_CASE("tuning measures plans on CUDA, and the tuned plan has the results of the CPU") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {8, 16}).AddInput("i", DType::kInt64, {3});
  graph.AddInput("w", DType::kFloat32, {16, 4}).AddInput("c", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"rows"}));
  graph.AddNode(OperatorDef("MatMul", {"rows", "w"}, {"product"}));
  graph.AddNode(OperatorDef("Add", {"product", "c"}, {"sum"}));
  graph.AddNode(OperatorDef("Softmax", {"sum"}, {"y"}));
  graph.AddOutput("y");
  const NamedTensor i{"i", Vector<int64_t>({5, 0, 7})};
  PlanOptions options{.threads = 1, .devices = {kCuda0}};
  // Measures the default plan and another one at least.
  const TuneResult tuned = Tune(graph, {.plan = options, .inputs = {i}, .seconds = 0.001});
  CHECK(tuned.plans.size() >= 2);
  CHECK(tuned.configurations > 0);
  options.selection.forced = tuned.selection;
  for (Selection::Node& node : options.selection.forced.nodes) {
    CHECK(node.device == "cuda");
    node.device = "cuda:0";
  }
  const std::vector<NamedTensor> inputs = {
      {"x", Random({8, 16}, 1)}, i, {"w", Random({16, 4}, 2)}, {"c", Random({4}, 3)}};
  const Tensor expected = Executor(Compile(graph, {.threads = 1})).Run(inputs).Get("y");
  const Tensor found = Executor(Compile(graph, options)).Run(inputs).Get("y");
  CHECK(found.device() == kCuda0);
  CHECK(Difference(OnHost(found), expected, {.rtol = 1e-5, .atol = 1e-5}) == "");
}

}  // namespace cuda_tune_test

// DataParallel: training on several processes of a LocalCluster is that of one process, and where
// the AllReduce nodes stand.
#include "opkit/cluster/data_parallel.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/ops/all.hpp"
#include "support/check_fails.hpp"

namespace data_parallel_test { namespace {

using namespace opkit;

constexpr int64_t kRows = 6, kIn = 3, kHidden = 5, kOut = 2;
const std::vector<std::string> kWeights = {"W1", "B1", "W2", "B2"};

// Two layers and the mean of the squared differences to T.
Graph Model() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {kRows, kIn}).AddInput("T", DType::kFloat32, {kRows, kOut});
  g.AddInput("W1", DType::kFloat32, {kIn, kHidden}).AddInput("B1", DType::kFloat32, {kHidden});
  g.AddInput("W2", DType::kFloat32, {kHidden, kOut}).AddInput("B2", DType::kFloat32, {kOut});
  g.AddNode(OperatorDef("Gemm", {"X", "W1", "B1"}, {"A"}));
  g.AddNode(OperatorDef("Tanh", {"A"}, {"H"}));
  g.AddNode(OperatorDef("Gemm", {"H", "W2", "B2"}, {"Y"}));
  g.AddNode(OperatorDef("Sub", {"Y", "T"}, {"D"}));
  g.AddNode(OperatorDef("Mul", {"D", "D"}, {"S"}));
  g.AddNode(OperatorDef("ReduceMean", {"S"}, {"loss"}, {{"keepdims", 0}}));
  g.AddOutput("loss");
  return g;
}
std::vector<Tensor> FirstWeights() {
  std::vector<Tensor> weights;
  for (const Shape& shape :
       {Shape{kIn, kHidden}, Shape{kHidden}, Shape{kHidden, kOut}, Shape{kOut}})
    weights.push_back(RandomTensor(shape, DType::kFloat32, weights.size() + 1));
  return weights;
}
// The micro-batch of a process in a step.
std::vector<NamedTensor> BatchOf(int step, int process) {
  const auto seed = static_cast<uint64_t>(100 + 10 * step + process);
  return {{"X", RandomTensor({kRows, kIn}, DType::kFloat32, seed)},
          {"T", RandomTensor({kRows, kOut}, DType::kFloat32, seed + 1000)}};
}
void Update(std::vector<Tensor>& weights, size_t w, const float* slope) {
  for (int64_t i = 0; i < weights[w].numel(); ++i)
    weights[w].mutable_data<float>()[i] -= 0.1f * slope[i];
}

using Losses = std::vector<float>;  // by step

constexpr int kSteps = 8;

// Runs the micro-batches of all processes on one, and adds their gradients in this order. Returns
// the losses of process 0's micro-batches.
Losses OnOneProcess(int processes, bool is_mean) {
  Graph graph = Model();
  const GradientMap gradients = AddGradients(graph, "loss", kWeights);
  for (const std::string& name : kWeights) graph.AddOutput(gradients.at(name).dense);
  std::vector<Tensor> weights = FirstWeights();
  Executor exec(Compile(graph));
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::vector<float>> sums(kWeights.size());
    for (int process = 0; process < processes; ++process) {
      std::vector<NamedTensor> inputs = BatchOf(step, process);
      for (size_t w = 0; w < kWeights.size(); ++w) inputs.push_back({kWeights[w], weights[w]});
      const auto out = exec.Run(inputs);
      if (process == 0) losses.push_back(out.Get("loss").ToVector<float>()[0]);
      for (size_t w = 0; w < kWeights.size(); ++w) {
        const auto slope = out.Get(gradients.at(kWeights[w]).dense).ToVector<float>();
        if (process == 0) sums[w].assign(slope.size(), 0);
        for (size_t i = 0; i < slope.size(); ++i)
          sums[w][i] = process == 0 ? slope[i] : sums[w][i] + slope[i];
      }
    }
    for (size_t w = 0; w < kWeights.size(); ++w) {
      for (float& sum : sums[w]) sum /= is_mean ? static_cast<float>(processes) : 1;
      Update(weights, w, sums[w].data());
    }
  }
  return losses;
}
Losses OnProcesses(int processes, const DataParallelOptions& options) {
  LocalCluster cluster(processes);
  Losses of_first;
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Graph graph = Model();
    const GradientMap gradients = DataParallel(graph, "loss", kWeights, options);
    for (const std::string& name : kWeights) graph.AddOutput(gradients.at(name).dense);
    std::vector<Tensor> weights = FirstWeights();
    PlanOptions plan;
    plan.cluster.communicator = communicator;
    Executor exec(Compile(graph, plan));
    Losses losses;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<NamedTensor> inputs = BatchOf(step, communicator->process());
      for (size_t w = 0; w < kWeights.size(); ++w) inputs.push_back({kWeights[w], weights[w]});
      const auto out = exec.Run(inputs);
      losses.push_back(out.Get("loss").ToVector<float>()[0]);
      for (size_t w = 0; w < kWeights.size(); ++w)
        Update(weights, w, out.Get(gradients.at(kWeights[w]).dense).data<float>());
    }
    if (communicator->process() == 0) of_first = losses;
  });
  return of_first;
}

TEST_CASE("training on several processes is that of one process") {
  for (const int processes : {2, 3, 4})
    for (const bool is_mean : {true, false}) {
      CAPTURE(processes);
      CAPTURE(is_mean);
      const Losses expected = OnOneProcess(processes, is_mean);
      CHECK(expected.front() > 1.05f * expected.back());
      for (const int64_t bucket_bytes : {1, 64, 1 << 20}) {
        CAPTURE(bucket_bytes);
        DataParallelOptions options{.bucket_bytes = bucket_bytes, .is_mean = is_mean};
        options.deterministic = true;
        CHECK(OnProcesses(processes, options) == expected);
        options.deterministic = false;
        const Losses found = OnProcesses(processes, options);
        for (size_t step = 0; step < expected.size(); ++step)
          CHECK(found[step] == doctest::Approx(expected[step]).epsilon(1e-4));
      }
    }
}

std::vector<OperatorDef> ReductionsOf(const Graph& graph) {
  std::vector<OperatorDef> found;
  for (const OperatorDef& def : graph.nodes())
    if (def.type() == "opkit.cluster.AllReduce") found.push_back(def);
  return found;
}

TEST_CASE("buckets have gradients in the order in which they are made") {
  // The backward graph makes the gradients of the second layer first.
  Graph graph = Model();
  const GradientMap combined = DataParallel(graph, "loss", kWeights, {.bucket_bytes = 48});
  const std::vector<OperatorDef> reductions = ReductionsOf(graph);
  REQUIRE(reductions.size() == 3);
  REQUIRE(reductions[0].outputs().size() == 2);
  CHECK(Contains(StrCat(reductions[0].inputs()[0], " ", reductions[0].inputs()[1]), "W2"));
  CHECK(Contains(StrCat(reductions[0].inputs()[0], " ", reductions[0].inputs()[1]), "B2"));
  CHECK(Contains(reductions[1].inputs()[0], "W1"));
  CHECK(Contains(reductions[2].inputs()[0], "B1"));
  for (const std::string& name : kWeights) CHECK(graph.HasValue(combined.at(name).dense));
  // The first AllReduce stands before nodes of the backward graph that it does not wait for.
  const int first = graph.Producer(reductions[0].outputs()[0]);
  CHECK(first < graph.Producer(reductions[1].inputs()[0]));
  CHECK(graph.node(first - 1).outputs()[0] != reductions[1].inputs()[0]);
  int read = -1;
  for (const std::string& input : reductions[0].inputs())
    read = std::max(read, graph.Producer(input));
  CHECK(first == read + 1);
}

TEST_CASE("gradients of different dtypes, and one that two values share") {
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {2}).AddInput("b", DType::kFloat64, {2});
  const GradientMap combined =
      AllReduceGradients(graph, {{"x", "a"}, {"y", "b"}, {"z", "a"}, {"none", GradientValue()}},
                         {.deterministic = true});
  REQUIRE(ReductionsOf(graph).size() == 2);
  CHECK(combined.at("x") == combined.at("z"));
  CHECK(combined.at("none").IsEmpty());
  for (const OperatorDef& def : ReductionsOf(graph)) {
    CHECK(def.inputs().size() == 1);
    CHECK(def.args().Get<int64_t>("deterministic", 0) == 1);
  }
}

TEST_CASE("an error leaves the graph as it was") {
  Graph graph = Model();
  const int nodes = graph.num_nodes();
  CheckFails([&] { DataParallel(graph, "loss", kWeights, {.bucket_bytes = 0}); },
             "bucket_bytes is 0, expected 1 or more");
  CheckFails(
      [&] {
        AllReduceGradients(graph, {{"W1", GradientValue::Sparse("A", "H")}});
      },
      "the gradient of 'W1' is sparse");
  CheckFails([&] { AllReduceGradients(graph, {{"W1", "nothing"}}); }, "nothing");
  CHECK(graph.num_nodes() == nodes);
  graph.ReplaceNode(0, OperatorDef(graph.node(0)).Process(1));
  CheckFails(
      [&] {
        AllReduceGradients(graph, {{"W1", "A"}});
      },
      "makes the gradient of 'W1' on process 1 only");
  CHECK(graph.num_nodes() == nodes);
}

TEST_CASE("communications with a delay give the same results, and end when a process fails") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {4}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"sum"}));
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"fails"}).Process(1));
  graph.AddNode(OperatorDef("Neg", {"fails"}, {"y"}).Process(0));
  graph.AddOutput("sum").AddOutput("y");
  LocalCluster cluster(2, {.latency = 1e-4, .seconds_per_byte = 1e-8});
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const auto run = [&](int64_t place) {
      std::vector<NamedTensor> inputs = {{"x", Tensor::From<float>({4}, {1, 2, 3, 4})}};
      if (communicator->process() == 1)
        inputs.push_back({"i", Tensor::From<int64_t>({1}, {place})});
      return exec.Run(inputs);
    };
    const NamedTensors out = run(2);
    CHECK(out.Get("sum").ToVector<float>() == std::vector<float>{2, 4, 6, 8});
    if (communicator->process() == 0) CHECK(out.Get("y").ToVector<float>()[0] == -3);
    communicator->Exchange("");  // a failure of process 1 would end the first run of process 0 too
    CheckFails([&] { run(9); }, "Gather");
    CheckFails([&] { run(2); }, "process 1 ended the run");  // the communicator is broken
  });
}

}  // namespace
}  // namespace data_parallel_test

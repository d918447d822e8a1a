// Two uses of several processes, which are threads of this program. The throughput of resnet50 on a
// pipeline of two stages with one thread each, over that of one process with two threads (goal: at
// least 0.95). The time of a data-parallel step whose communications begin after the backward
// graph, over that of one whose communications overlap with it (goal: at least 1.2), where all
// communications together take as long as the work. The two sides of a pair take turns; the
// counters are ratios of the medians. OPKIT_DATA_DIR is the folder of data/fetch.py.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "cluster_runner.hpp"
#include "opkit/cluster/data_parallel.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/check/check_data.hpp"

namespace {

using namespace opkit;

using namespace cluster_bench;

void Resnet50(benchmark::State& state) {
  const char* const folder = std::getenv("OPKIT_DATA_DIR");
  if (!folder) return state.SkipWithError("OPKIT_DATA_DIR is not set");
  const Graph graph =
      LoadOnnx(StrCat(folder, "/onnx-1.22.0/onnx/backend/test/data/light/light_resnet50.onnx"));
  const std::vector<NamedTensor> inputs = {
      {graph.inputs()[0].name, RandomTensor({1, 3, 224, 224}, DType::kFloat32, 1)}};
  const MeasuredTimes times = Measure(graph, inputs);
  // A node without a time is part of another, or was folded into a constant.
  const PipelineCut cut =
      Pipeline(graph, 2, {.times = times, .node_ns = 0, .flops_per_ns = 1e9, .bytes_per_ns = 1e9});
  ClusterRunner stages(cut.graph, 2, inputs);
  stages.Run(3);
  PlanOptions options;
  options.threads = 2;
  Executor alone(Compile(graph, options));
  for (const NamedTensor& input : inputs) alone.Bind(input.name, input.tensor);
  alone.Run();
  constexpr int kRuns = 10;
  std::vector<double> one, two;
  for (auto _ : state) {
    const double begin = Seconds();
    for (int run = 0; run < kRuns; ++run) alone.Run();
    one.push_back((Seconds() - begin) / kRuns);
    two.push_back(stages.Run(kRuns));
  }
  state.counters["one_ms"] = 1e3 * Median(one);
  state.counters["two_ms"] = 1e3 * Median(two);
  state.counters["balance"] = cut.stages[0].ns / cut.stages[1].ns;
  state.counters["throughput"] = Median(one) / Median(two);
}
BENCHMARK(Resnet50)->Unit(benchmark::kMillisecond)->Iterations(9)->UseRealTime();

constexpr int kLayers = 8;
constexpr int64_t kRows = 128, kWidth = 384;

// A step of a chain of layers, with one AllReduce for each layer, or one behind all.
Graph Step(int64_t bucket_bytes, bool communicates = true) {
  Graph graph;
  graph.AddInput("x0", DType::kFloat32, {kRows, kWidth});
  std::vector<std::string> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.push_back(StrCat("w", layer));
    graph.AddInput(weights.back(), DType::kFloat32, {kWidth, kWidth});
    graph.AddNode(
        OperatorDef("MatMul", {StrCat("x", layer), weights.back()}, {StrCat("a", layer)}));
    graph.AddNode(OperatorDef("Tanh", {StrCat("a", layer)}, {StrCat("x", layer + 1)}));
  }
  graph.AddNode(OperatorDef("ReduceSum", {StrCat("x", kLayers)}, {"loss"}, {{"keepdims", 0}}));
  const GradientMap gradients =
      communicates ? DataParallel(graph, "loss", weights, {.bucket_bytes = bucket_bytes})
                   : AddGradients(graph, "loss", weights);
  for (const std::string& weight : weights) graph.AddOutput(gradients.at(weight).dense);
  return graph;
}

void DataParallelStep(benchmark::State& state) {
  std::vector<NamedTensor> inputs = {{"x0", RandomTensor({kRows, kWidth}, DType::kFloat32, 1)}};
  for (int layer = 0; layer < kLayers; ++layer)
    inputs.push_back({StrCat("w", layer), RandomTensor({kWidth, kWidth}, DType::kFloat32, 2)});
  ClusterRunner work(Step(1, false), 2, inputs);
  work.Run(3);
  std::vector<double> alone;
  for (int i = 0; i < 9; ++i) alone.push_back(work.Run(10));
  constexpr double kBytes = 4.0 * kLayers * kWidth * kWidth;
  const LinkCost delay{.seconds_per_byte = Median(alone) / kBytes};
  ClusterRunner overlapped(Step(1), 2, inputs, delay);
  ClusterRunner behind(Step(int64_t{1} << 40), 2, inputs, delay);
  overlapped.Run(3);
  behind.Run(3);
  std::vector<double> on, off;
  for (auto _ : state) {
    on.push_back(overlapped.Run(10));
    off.push_back(behind.Run(10));
  }
  state.counters["work_ms"] = 1e3 * Median(alone);
  state.counters["on_ms"] = 1e3 * Median(on);
  state.counters["off_ms"] = 1e3 * Median(off);
  state.counters["faster"] = Median(off) / Median(on);
}
BENCHMARK(DataParallelStep)->Unit(benchmark::kMillisecond)->Iterations(9)->UseRealTime();

}  // namespace

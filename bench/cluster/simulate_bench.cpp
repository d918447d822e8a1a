// The simulator against runs on two and four processes, which are threads of this program on a
// simulated network. The layers of the model wait instead of computing, so that two cores are
// enough for four processes. The prediction is made from the times of one process. The counters
// predicted_ms and measured_ms are times of a training step, the measured one a median; `ratio` is
// predicted over measured (goal: 0.85 to 1.15), and `layers_ratio` that of SimulateTraining, which
// knows only the costs of the layers.
#include <benchmark/benchmark.h>

#include "waiting_steps.hpp"

namespace {

using namespace cluster_bench;

constexpr LinkCost kLink{.latency = 2e-3, .seconds_per_byte = 5e-8, .reduction_per_byte = 1e-8};

MeasuredTimes MeasureHere(const Graph& graph) { return Measure(graph, InputsOf(graph)); }

void Compare(benchmark::State& state, const Step& step) {
  const Prediction predicted = Predict(step, kLink, MeasureHere);
  ClusterRunner runner(step.graph, step.processes(), InputsOf(step.graph), kLink);
  runner.Run(1);
  std::vector<double> measured;
  for (auto _ : state) measured.push_back(runner.Run(1));
  state.counters["predicted_ms"] = 1e3 * predicted.by_graph;
  state.counters["measured_ms"] = 1e3 * Median(measured);
  state.counters["ratio"] = predicted.by_graph / Median(measured);
  state.counters["layers_ratio"] = predicted.by_layers / Median(measured);
}

void DataParallel2(benchmark::State& state) { Compare(state, DataParallelStep(2, MeasureHere)); }
void DataParallel4(benchmark::State& state) { Compare(state, DataParallelStep(4, MeasureHere)); }
void Pipeline2(benchmark::State& state) { Compare(state, PipelineStep(2, 4, MeasureHere)); }
void Pipeline4(benchmark::State& state) { Compare(state, PipelineStep(4, 8, MeasureHere)); }
void Both4(benchmark::State& state) { Compare(state, BothStep(2, 4, MeasureHere)); }
BENCHMARK(DataParallel2)->Unit(benchmark::kMillisecond)->Iterations(5)->UseRealTime();
BENCHMARK(DataParallel4)->Unit(benchmark::kMillisecond)->Iterations(5)->UseRealTime();
BENCHMARK(Pipeline2)->Unit(benchmark::kMillisecond)->Iterations(5)->UseRealTime();
BENCHMARK(Pipeline4)->Unit(benchmark::kMillisecond)->Iterations(5)->UseRealTime();
BENCHMARK(Both4)->Unit(benchmark::kMillisecond)->Iterations(5)->UseRealTime();

}  // namespace

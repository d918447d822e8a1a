// An empty graph on the one process of a LocalCluster, beside the same graph without options for
// processes: Compile, and a run. Goal: at most 1.05 times the time.
#include <benchmark/benchmark.h>

#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"

namespace {

using namespace opkit;

// Returns the options of the process, or those without a cluster.
PlanOptions Options(const LocalCluster* cluster) {
  PlanOptions options;
  options.threads = 1;
  if (cluster) options.cluster.communicator = cluster->communicator(0);
  return options;
}

void Compiles(benchmark::State& state, bool on_cluster) {
  const LocalCluster cluster(1);
  const PlanOptions options = Options(on_cluster ? &cluster : nullptr);
  const Graph graph;
  for (auto _ : state) benchmark::DoNotOptimize(opkit::Compile(graph, options));
}
void Runs(benchmark::State& state, bool on_cluster) {
  const LocalCluster cluster(1);
  Executor exec(opkit::Compile(Graph(), Options(on_cluster ? &cluster : nullptr)));
  for (auto _ : state) exec.Run();
}

void Compile(benchmark::State& state) { Compiles(state, true); }
void CompileWithout(benchmark::State& state) { Compiles(state, false); }
void Run(benchmark::State& state) { Runs(state, true); }
void RunWithout(benchmark::State& state) { Runs(state, false); }
BENCHMARK(Compile);
BENCHMARK(CompileWithout);
BENCHMARK(Run);
BENCHMARK(RunWithout);

}  // namespace

// Compile of large graphs, of 10^3 to 10^6 nodes: the time for each node, and the bytes for each
// node, in the plan and at the peak. Both stay flat where Compile is linear. Also measures the cost
// of building the graph. Graphs: a chain, a chain whose every value is an output, and a chain whose
// every node also reads the output of a random earlier node. Names are Contender/graph/nodes.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "opkit/graph.hpp"
#include "pass_on.hpp"

namespace {

int64_t g_live = 0, g_peak = 0;  // bytes, with malloc's own; one thread allocates

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  g_live += static_cast<int64_t>(malloc_usable_size(memory) + sizeof(size_t));
  if (g_live > g_peak) g_peak = g_live;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (!memory) return;
  g_live -= static_cast<int64_t>(malloc_usable_size(memory) + sizeof(size_t));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace {

using namespace opkit;

OPERATOR_SCHEMA(PassOn).NumInputs(1, 2).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();

Graph Build(const std::string& shape, int nodes) {
  std::mt19937 random(1);
  Graph g;
  g.AddInput("x", DType::kFloat32, {4});
  for (int i = 0; i < nodes; ++i) {
    OperatorDef def("PassOn");
    def.Input(i == 0 ? "x" : StrCat("v", i - 1));
    if (shape == "random" && i > 1) def.Input(StrCat("v", random() % (i - 1u)));
    g.AddNode(std::move(def.Output(StrCat("v", i))));
    if (shape == "outputs") g.AddOutput(StrCat("v", i));
  }
  if (shape != "outputs") g.AddOutput(StrCat("v", nodes - 1));
  return g;
}

// Times make(). Its result is destroyed outside the measurement.
template <class F>
void Measure(benchmark::State& state, int nodes, F make) {
  int64_t kept = 0, peak = 0;
  for (auto _ : state) {
    const int64_t before = g_peak = g_live;
    const auto made = make();
    kept = g_live - before;
    peak = g_peak - before;
    state.PauseTiming();
    { const auto dropped = std::move(made); }
    state.ResumeTiming();
  }
  state.counters["ns_per_node"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * nodes * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes"] = static_cast<double>(kept) / nodes;
  state.counters["peak_bytes"] = static_cast<double>(peak) / nodes;
}

const bool registered = [] {
  for (const std::string shape : {"chain", "outputs", "random"})
    for (const int nodes : {1'000, 10'000, 100'000, 1'000'000}) {
      const std::string name = StrCat("/", shape, "/", nodes);
      benchmark::RegisterBenchmark(("Build" + name).c_str(), [=](benchmark::State& state) {
        Measure(state, nodes, [&] { return Build(shape, nodes); });
      });
      benchmark::RegisterBenchmark(("Compile" + name).c_str(), [=](benchmark::State& state) {
        const Graph graph = Build(shape, nodes);
        Measure(state, nodes, [&] { return Compile(graph, {.threads = 1}); });
      })->Unit(benchmark::kMillisecond);
    }
  return true;
}();

}  // namespace

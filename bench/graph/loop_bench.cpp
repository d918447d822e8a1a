// The cost of an iteration, and of denormal numbers. LoopOfThree: a Loop of 1,000 iterations of
// three operators on 8 floats; `s_an_iteration` is mostly the cost of reaching the operators.
// ScanLstm: an LSTM of 16 units over 100 steps as a Scan of MatMul, Slice, Sigmoid, Tanh, Mul and
// Add. Filter: a recursive filter of 4,096 channels over 100 steps, on numbers around 1, on
// denormal numbers, and on denormal numbers with PlanOptions::schedule.flush_denormals.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "opkit/graph.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/loops/loop.hpp"
#include "opkit/ops/loops/scan.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/nn/activation.hpp"
#include "opkit/ops/slice.hpp"

namespace {

using namespace opkit;

Tensor Filled(const Shape& shape, float value) {
  Tensor out(shape, DType::kFloat32);
  std::fill_n(out.mutable_data<float>(), out.numel(), value);
  return out;
}

// Runs the executor, whose body runs `iterations` times, in each turn.
void Measure(benchmark::State& state, Executor& exec, int iterations) {
  exec.Run();
  for (auto _ : state) exec.Run();
  state.counters["s_an_iteration"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * iterations,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void LoopOfThree(benchmark::State& state) {
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{}).AddInput("go", DType::kBool, Shape{});
  body.AddInput("x", DType::kFloat32, {8});
  body.AddConstant("half", Filled({8}, 0.5f)).AddConstant("one", Filled({8}, 1));
  body.AddNode(OperatorDef("Mul", {"x", "half"}, {"a"}));
  body.AddNode(OperatorDef("Add", {"a", "one"}, {"b"}));
  body.AddNode(OperatorDef("Sub", {"b", "a"}, {"y"}));
  body.AddOutput("go").AddOutput("y");
  Graph g;
  g.AddInput("x", DType::kFloat32, {8});
  g.AddConstant("M", Tensor::Scalar(int64_t{1000}));
  g.AddNode(OperatorDef("Loop", {"M", "", "x"}, {"out"}).Subgraph("body", MakeSubgraph(body)));
  g.AddOutput("out");
  Executor exec(Compile(g, {.threads = 1}));
  exec.Bind("x", Filled({8}, 2));
  Measure(state, exec, 1000);
}
BENCHMARK(LoopOfThree);

void ScanLstm(benchmark::State& state) {
  constexpr int64_t kUnits = 16, kSteps = 100;
  Graph body;
  for (const char* name : {"h", "c"}) body.AddInput(name, DType::kFloat32, {1, kUnits});
  body.AddInput("x", DType::kFloat32, {1, 4 * kUnits});
  body.AddConstant("R", Filled({kUnits, 4 * kUnits}, 0.01f));
  body.AddConstant("axes", Tensor::From<int64_t>({1}, {1}));
  for (int gate = 0; gate <= 4; ++gate)
    body.AddConstant(StrCat("at", gate), Tensor::From<int64_t>({1}, {gate * kUnits}));
  body.AddNode(OperatorDef("MatMul", {"h", "R"}, {"hR"}));
  body.AddNode(OperatorDef("Add", {"hR", "x"}, {"gates"}));
  const char* const functions[] = {"Sigmoid", "Sigmoid", "Sigmoid", "Tanh"};
  for (int gate = 0; gate < 4; ++gate) {
    body.AddNode(OperatorDef("Slice", {"gates", StrCat("at", gate), StrCat("at", gate + 1), "axes"},
                             {StrCat("s", gate)}));
    body.AddNode(OperatorDef(functions[gate], {StrCat("s", gate)}, {StrCat("g", gate)}));
  }
  body.AddNode(OperatorDef("Mul", {"g0", "g3"}, {"in"}));
  body.AddNode(OperatorDef("Mul", {"g2", "c"}, {"kept"}));
  body.AddNode(OperatorDef("Add", {"in", "kept"}, {"c_next"}));
  body.AddNode(OperatorDef("Tanh", {"c_next"}, {"squashed"}));
  body.AddNode(OperatorDef("Mul", {"g1", "squashed"}, {"h_next"}));
  body.AddNode(OperatorDef("Add", {"h_next", "h"}, {"y"}));
  body.AddOutput("h_next").AddOutput("c_next").AddOutput("y");
  Graph g;
  for (const char* name : {"h", "c"}) g.AddInput(name, DType::kFloat32, {1, kUnits});
  g.AddInput("x", DType::kFloat32, {kSteps, 1, 4 * kUnits});
  g.AddNode(OperatorDef("Scan", {"h", "c", "x"}, {"h_last", "c_last", "ys"})
                .Arg("num_scan_inputs", int64_t{1})
                .Subgraph("body", MakeSubgraph(body)));
  g.AddOutput("h_last").AddOutput("c_last").AddOutput("ys");
  Executor exec(Compile(g, {.threads = 1}));
  for (const char* name : {"h", "c"}) exec.Bind(name, Filled({1, kUnits}, 0.1f));
  exec.Bind("x", Filled({kSteps, 1, 4 * kUnits}, 0.2f));
  Measure(state, exec, kSteps);
}
BENCHMARK(ScanLstm);

// y = 0.5 * y + x for each channel.
void Filter(benchmark::State& state, float x, bool flushes) {
  constexpr int64_t kChannels = 4096, kSteps = 100;
  Graph body;
  for (const char* name : {"y", "x"}) body.AddInput(name, DType::kFloat32, {kChannels});
  body.AddConstant("half", Filled({1}, 0.5f));
  body.AddNode(OperatorDef("Mul", {"y", "half"}, {"decayed"}));
  body.AddNode(OperatorDef("Add", {"decayed", "x"}, {"next"}));
  body.AddOutput("next");
  Graph g;
  g.AddInput("y", DType::kFloat32, {kChannels});
  g.AddInput("x", DType::kFloat32, {kSteps, kChannels});
  g.AddNode(OperatorDef("Scan", {"y", "x"}, {"out"})
                .Arg("num_scan_inputs", int64_t{1})
                .Subgraph("body", MakeSubgraph(body)));
  g.AddOutput("out");
  PlanOptions options;
  options.threads = 1;
  options.schedule.flush_denormals = flushes;
  Executor exec(Compile(g, options));
  exec.Bind("y", Filled({kChannels}, x));
  exec.Bind("x", Filled({kSteps, kChannels}, x));
  Measure(state, exec, kSteps);
}
BENCHMARK_CAPTURE(Filter, normal, 1.f, false);
BENCHMARK_CAPTURE(Filter, denormal, 1e-39f, false);
BENCHMARK_CAPTURE(Filter, denormal_flushed, 1e-39f, true);

}  // namespace

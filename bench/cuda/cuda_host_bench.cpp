// The host's cost of an operator on CUDA without a device, on the runtime of tests/cuda_fake: an
// operator and a chain of 1,000 operators beside the same launches by hand. The counters are the
// calls of the CUDA runtime for one operator on the issuing thread. A gate holds the stream while
// operators or launches are issued, so their times are those of the issuing thread alone.
#ifndef OPKIT_CUDA_EMULATION
#define OPKIT_CUDA_EMULATION  // the loops of kernels run on the host
#endif
#include <benchmark/benchmark.h>

#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/operator.hpp"
#include "tests/cuda_fake/fake_runtime.hpp"

namespace {

using namespace opkit;

constexpr Device kCuda0{DeviceType::kCUDA, 0};
constexpr int kNodes = 1000;

struct AddOne {
  const float* x;
  float* y;
  void operator()(int64_t i) const { y[i] = x[i] + 1; }
};

class BenchAddOne final : public Operator<CUDAContext> {
 public:
  using Operator<CUDAContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    ParallelFor(context_, x.numel(), AddOne{x.data<float>(), y->mutable_data<float>()});
    return true;
  }
};
OPERATOR_SCHEMA(BenchAddOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(BenchAddOne, BenchAddOne);

Tensor OneElement() {
  Tensor out({1}, DType::kFloat32, kCuda0);
  out.mutable_data<float>();
  return out;
}

// Issues `count` pieces of work while their stream is held up.
template <class Issue>
void IssueBursts(benchmark::State& state, int count, Issue issue) {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  int64_t calls = 0;
  while (state.KeepRunningBatch(count)) {
    state.PauseTiming();
    fake::Gate gate(context.cuda_stream());
    const int64_t before = fake::calls();
    state.ResumeTiming();
    issue();
    state.PauseTiming();
    calls += fake::calls() - before;
    gate.Open();
    context.FinishDeviceComputation();
    state.ResumeTiming();
  }
  state.counters["calls"] = static_cast<double>(calls) / static_cast<double>(state.iterations());
}

void Launch(benchmark::State& state) {
  const Tensor x = OneElement(), y = OneElement();
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  const AddOne loop{x.data<float>(), const_cast<float*>(y.data<float>())};
  IssueBursts(state, kNodes, [&] {
    for (int i = 0; i < kNodes; ++i) detail::LaunchLoop(0, context.cuda_stream(), 1, loop);
  });
}
BENCHMARK(Launch);

// Runs a chain of operators, each of which reads the output of the one before it.
void RunOperators(benchmark::State& state, int operators) {
  Workspace ws;
  *ws.CreateTensor("v0") = OneElement();
  std::vector<std::unique_ptr<OperatorBase>> chain;
  for (int i = 0; i < operators; ++i) {
    chain.push_back(CreateOperator(
        OperatorDef("BenchAddOne", {StrCat("v", i)}, {StrCat("v", i + 1)}).Device(kCuda0), &ws));
    chain.back()->Run();
    chain.back()->DisableEvent();
  }
  IssueBursts(state, kNodes, [&] {
    for (int i = 0; i < kNodes; ++i) chain[static_cast<size_t>(i % operators)]->RunAsync();
  });
}
void RunAsyncOfOneOperator(benchmark::State& state) { RunOperators(state, 1); }
BENCHMARK(RunAsyncOfOneOperator);
void RunAsyncOfThousandOperators(benchmark::State& state) { RunOperators(state, kNodes); }
BENCHMARK(RunAsyncOfThousandOperators);

// Runs to the end, so that the time contains the wait.
void LaunchThousandAndWait(benchmark::State& state) {
  const Tensor x = OneElement(), y = OneElement();
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  const AddOne loop{x.data<float>(), const_cast<float*>(y.data<float>())};
  for (auto _ : state) {
    for (int i = 0; i < kNodes; ++i) detail::LaunchLoop(0, context.cuda_stream(), 1, loop);
    context.FinishDeviceComputation();
  }
}
BENCHMARK(LaunchThousandAndWait)->Unit(benchmark::kMicrosecond);
void RunChainOfThousand(benchmark::State& state) {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {1}, kCuda0);
  for (int i = 0; i < kNodes; ++i)
    graph.AddNode(
        OperatorDef("BenchAddOne", {StrCat("v", i)}, {StrCat("v", i + 1)}).Device(kCuda0));
  graph.AddOutput(StrCat("v", kNodes));
  Executor executor(Compile(graph, {.threads = 1, .schedule = {.capture = false}}));
  executor.Bind("v0", OneElement());
  executor.Run();
  const int64_t before = fake::calls();
  for (auto _ : state) executor.Run();
  state.counters["calls"] = static_cast<double>(fake::calls() - before) / kNodes /
                            static_cast<double>(state.iterations());
}
BENCHMARK(RunChainOfThousand)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();

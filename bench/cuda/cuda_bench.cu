// The host's cost of running on a CUDA device: an operator and a graph of 1,000 small kernels
// beside the same kernels launched by hand and as a CUDA graph, memory beside cudaMallocAsync, and
// ParallelFor beside a kernel written out.
#include <benchmark/benchmark.h>

#include <cstdio>

#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/operator.hpp"

namespace {

using namespace opkit;

constexpr Device kCuda0{DeviceType::kCUDA, 0};
constexpr int kNodes = 1000;
constexpr int64_t kSmall = 256;  // elements

__global__ void AddOne(int64_t n, const float* x, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
void LaunchAddOne(int64_t n, const float* x, float* y, cudaStream_t stream) {
  AddOne<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(n, x, y);
}

class BenchAddOne final : public Operator<CUDAContext> {
 public:
  using Operator<CUDAContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    LaunchAddOne(x.numel(), x.data<float>(), y->mutable_data<float>(), context_.cuda_stream());
    return true;
  }
};
OPERATOR_SCHEMA(BenchAddOne).NumInputs(1).NumOutputs(1).Arg("chain", "").IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(BenchAddOne, BenchAddOne);

// Two tensors of the device and a stream, for the loops written by hand.
struct ByHand {
  explicit ByHand(int64_t n = kSmall)
      : x({n}, DType::kFloat32, kCuda0), y({n}, DType::kFloat32, kCuda0) {
    context.SwitchToDevice(0);
    from = x.mutable_data<float>();
    to = y.mutable_data<float>();
  }
  void Launch() { LaunchAddOne(x.numel(), from, to, context.cuda_stream()); }
  void Wait() { OPKIT_CUDA_CHECK(cudaStreamSynchronize(context.cuda_stream())); }
  CUDAContext context{kCuda0};
  Tensor x, y;
  float *from, *to;
};

struct OneOperator {
  OneOperator() {
    *ws.CreateTensor("x") = Tensor({kSmall}, DType::kFloat32, kCuda0);
    ws.GetTensor("x")->mutable_data<float>();
    op = CreateOperator(OperatorDef("BenchAddOne", {"x"}, {"y"}).Device(kCuda0), &ws);
    op->Run();
  }
  Workspace ws;
  std::unique_ptr<OperatorBase> op;
};

void LaunchAndWait(benchmark::State& state) {
  ByHand peer;
  for (auto _ : state) peer.Launch(), peer.Wait();
}
BENCHMARK(LaunchAndWait);

void Run(benchmark::State& state) {
  OneOperator f;
  for (auto _ : state) f.op->Run();
}
BENCHMARK(Run);

void RunAsyncAndFinish(benchmark::State& state) {
  OneOperator f;
  for (auto _ : state) {
    f.op->RunAsync();
    f.op->event().Finish();
  }
}
BENCHMARK(RunAsyncAndFinish);

// Issues only: the device is waited for outside of the time.
template <class Issue, class Wait>
void IssueBursts(benchmark::State& state, Issue issue, Wait wait) {
  constexpr int kBurst = 500;
  while (state.KeepRunningBatch(kBurst)) {
    for (int i = 0; i < kBurst; ++i) issue();
    state.PauseTiming();
    wait();
    state.ResumeTiming();
  }
}
void LaunchOnly(benchmark::State& state) {
  ByHand peer;
  IssueBursts(
      state, [&] { peer.Launch(); }, [&] { peer.Wait(); });
}
BENCHMARK(LaunchOnly);

void RunAsyncWithoutEvent(benchmark::State& state) {
  OneOperator f;
  f.op->DisableEvent();
  auto& context = dynamic_cast<Operator<CUDAContext>&>(*f.op).context();
  IssueBursts(
      state, [&] { f.op->RunAsync(); }, [&] { context.FinishDeviceComputation(); });
}
BENCHMARK(RunAsyncWithoutEvent);

Graph Chain(int nodes) {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {kSmall}, kCuda0);
  for (int i = 0; i < nodes; ++i)
    graph.AddNode(
        OperatorDef("BenchAddOne", {StrCat("v", i)}, {StrCat("v", i + 1)}).Device(kCuda0));
  graph.AddOutput(StrCat("v", nodes));
  return graph;
}
// Eight chains beside each other, each with an argument of its own, or passes would merge them.
Graph Wide(int nodes) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {kSmall}, kCuda0);
  for (int chain = 0; chain < 8; ++chain)
    for (int i = 0; i < nodes / 8; ++i) {
      const std::string from = i == 0 ? "x" : StrCat("c", chain, "_", i - 1);
      const std::string to = StrCat("c", chain, "_", i);
      graph.AddNode(OperatorDef("BenchAddOne", {from}, {to}).Arg("chain", chain).Device(kCuda0));
      if (i + 1 == nodes / 8) graph.AddOutput(to);
    }
  return graph;
}

void LaunchThousand(benchmark::State& state) {
  ByHand peer;
  for (auto _ : state) {
    for (int i = 0; i < kNodes; ++i) peer.Launch();
    peer.Wait();
  }
}
BENCHMARK(LaunchThousand)->Unit(benchmark::kMicrosecond);

void LaunchThousandAsCudaGraph(benchmark::State& state) {
  ByHand peer;
  cudaStream_t stream = peer.context.cuda_stream();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  OPKIT_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kNodes; ++i) peer.Launch();
  OPKIT_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  OPKIT_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (auto _ : state) {
    OPKIT_CUDA_CHECK(cudaGraphLaunch(executable, stream));
    peer.Wait();
  }
}
BENCHMARK(LaunchThousandAsCudaGraph)->Unit(benchmark::kMicrosecond);

// The runs before the measured ones call the operators, and record them if `capture` is set.
void RunGraph(benchmark::State& state, Graph (*make)(int), bool capture = false) {
  const Plan plan = Compile(make(kNodes), {.threads = static_cast<int>(state.range(0)),
                                           .schedule = {.capture = capture}});
  Executor executor(plan);
  Tensor x({kSmall}, DType::kFloat32, kCuda0);
  x.mutable_data<float>();
  const std::string input = plan.graph().inputs().at(0).name;
  for (int run = 0; run < 3; ++run) executor.Run({{input, x}});
  for (auto _ : state) executor.Run({{input, x}});
}
// Each run reads another tensor, which is copied on the device.
void CapturedChainOfThousandWithCopies(benchmark::State& state) {
  Executor executor(Compile(Chain(kNodes), {.threads = 1}));
  Tensor x[5];
  for (Tensor& tensor : x) {
    tensor = Tensor({kSmall}, DType::kFloat32, kCuda0);
    tensor.mutable_data<float>();
    executor.Run({{"v0", tensor}});
  }
  for (int run = 0; auto _ : state) executor.Run({{"v0", x[++run % 5]}});
}
BENCHMARK(CapturedChainOfThousandWithCopies)->Unit(benchmark::kMicrosecond)->UseRealTime();
void ChainOfThousand(benchmark::State& state) { RunGraph(state, Chain); }
BENCHMARK(ChainOfThousand)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
void EightChainsOf125(benchmark::State& state) { RunGraph(state, Wide); }
BENCHMARK(EightChainsOf125)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
void CapturedChainOfThousand(benchmark::State& state) { RunGraph(state, Chain, true); }
BENCHMARK(CapturedChainOfThousand)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
void CapturedEightChainsOf125(benchmark::State& state) { RunGraph(state, Wide, true); }
BENCHMARK(CapturedEightChainsOf125)->Arg(1)->Unit(benchmark::kMicrosecond)->UseRealTime();

void AllocateAsyncByHand(benchmark::State& state) {
  ByHand peer;
  cudaStream_t stream = peer.context.cuda_stream();
  for (auto _ : state) {
    void* data = nullptr;
    OPKIT_CUDA_CHECK(cudaMallocAsync(&data, 1 << 20, stream));
    OPKIT_CUDA_CHECK(cudaFreeAsync(data, stream));
  }
}
BENCHMARK(AllocateAsyncByHand);

void AllocateStorageInARun(benchmark::State& state) {
  CUDAContext context(kCuda0);
  const detail::IssueScope run(true);
  context.SwitchToDevice(0);
  for (auto _ : state) benchmark::DoNotOptimize(AllocateStorage(kCuda0, 1 << 20));
}
BENCHMARK(AllocateStorageInARun);

void AllocateStorageOnDevice(benchmark::State& state) {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  for (auto _ : state) benchmark::DoNotOptimize(AllocateStorage(kCuda0, 1 << 20));
}
BENCHMARK(AllocateStorageOnDevice);

void AskWhetherCapturing(benchmark::State& state) {
  ByHand peer;
  for (auto _ : state) {
    cudaStreamCaptureStatus status;
    OPKIT_CUDA_CHECK(cudaStreamIsCapturing(peer.context.cuda_stream(), &status));
    benchmark::DoNotOptimize(status);
  }
}
BENCHMARK(AskWhetherCapturing);

void KernelByHand(benchmark::State& state) {
  ByHand peer(state.range(0));
  for (auto _ : state) {
    for (int i = 0; i < 10; ++i) peer.Launch();
    peer.Wait();
  }
  state.SetBytesProcessed(state.iterations() * 10 * 8 * state.range(0));
}
BENCHMARK(KernelByHand)->Arg(1 << 20)->Arg(1 << 26)->UseRealTime();

void KernelByParallelFor(benchmark::State& state) {
  ByHand peer(state.range(0));
  float *from = peer.from, *to = peer.to;
  for (auto _ : state) {
    for (int i = 0; i < 10; ++i)
      ParallelFor(peer.context, state.range(0),
                  [=] OPKIT_DEVICE(int64_t at) { to[at] = from[at] + 1; });
    peer.Wait();
  }
  state.SetBytesProcessed(state.iterations() * 10 * 8 * state.range(0));
}
BENCHMARK(KernelByParallelFor)->Arg(1 << 20)->Arg(1 << 26)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (CUDADeviceCount() == 0) {
    std::puts("not measured: no CUDA device");
    return 0;
  }
  benchmark::RunSpecifiedBenchmarks();
}

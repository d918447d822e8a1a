#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "device.cuh"
#include "opkit/graph/executor.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/operator.hpp"

namespace cuda_memory_test {
using namespace opkit;
using Values = std::vector<float>;

__global__ void Fill(float* y, int64_t n, float value) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = value;
}
__global__ void AddKernel(const float* x, float* y, int64_t n, float value) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + value;
}
__global__ void WriteTo(float* address) { *address = 1; }

class AddOp final : public Operator<CUDAContext> {
 public:
  AddOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), value_(GetSingleArgument<float>("value", 1.f)) {}
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    AddKernel<<<1, 256, 0, context_.cuda_stream()>>>(x.data<float>(), y->mutable_data<float>(),
                                                     x.numel(), value_);
    return true;
  }

 private:
  float value_;
};
OPERATOR_SCHEMA(CudaTestAdd).NumInputs(1).NumOutputs(1).Arg("value", "").IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(CudaTestAdd, AddOp);

OperatorDef Add(const std::string& from, const std::string& to, float value) {
  return OperatorDef("CudaTestAdd", {from}, {to}).Arg("value", value).Device(kCuda0);
}
// In a test case that needs a process of its own: whether this is it. Where it is not, runs the
// case in one, and checks how that ended.
bool IsChild() {
  if (std::getenv("OPKIT_CUDA_TEST_CHILD")) return true;
  std::string filter = StrCat("-tc=", doctest::getContextOptions()->currentTest->m_name);
  std::replace(filter.begin(), filter.end(), ',', '?');  // a comma would begin another filter
  const pid_t child = fork();
  if (child == 0) {
    setenv("OPKIT_CUDA_TEST_CHILD", "1", 1);
    execl("/proc/self/exe", "backends_cuda_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  return false;
}
cudaStream_t MakeStream() {
  cudaStream_t stream = nullptr;
  OPKIT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

}  // namespace cuda_memory_test

using namespace cuda_memory_test;

TEST_CASE("a copy issued on one stream does not go to a block that another still writes" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  constexpr int64_t kCount = 1 << 18;
  CUDAContext busy(kCuda0), other(kCuda0);
  busy.SwitchToDevice(1);
  other.SwitchToDevice(2);
  for (int round = 0; round < 20; ++round) {
    busy.SwitchToDevice(1);
    Gate gate(busy.cuda_stream());
    for (int i = 0; i < 4; ++i) {  // blocks whose frees are queued behind the gate
      Tensor x({kCount}, DType::kFloat32, kCuda0);
      Fill<<<1, 256, 0, busy.cuda_stream()>>>(x.mutable_data<float>(), kCount, -1.f);
    }
    Tensor y(kCuda0);
    CopyAsync(other, Tensor::From<float>({kCount}, Values(kCount, static_cast<float>(round))), &y);
    other.FinishDeviceComputation();
    gate.Open();
    busy.FinishDeviceComputation();
    const Values got = ToHost(y);
    CHECK(std::count(got.begin(), got.end(), static_cast<float>(round)) == kCount);
  }
}

TEST_CASE("an executor computes while the calling thread's stream is held with frees queued" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {1000}, kCuda0);
  constexpr int kNodes = 50;
  for (int i = 0; i < kNodes; ++i)
    graph.AddNode(Add(StrCat("v", i), StrCat("v", i + 1), static_cast<float>(i)));
  graph.AddOutput(StrCat("v", kNodes));
  const Tensor x = ToCuda(Values(1000, 3));
  CUDAContext busy(kCuda0);
  busy.SwitchToDevice(9);
  for (int threads : {1, 2, 8}) {
    Gate gate(busy.cuda_stream());
    for (int i = 0; i < 8; ++i) {
      Tensor block({1000}, DType::kFloat32, kCuda0);
      Fill<<<1, 256, 0, busy.cuda_stream()>>>(block.mutable_data<float>(), 1000, -1.f);
    }
    Executor executor(Compile(graph, {.threads = threads}));
    const Tensor y = executor.Run({{"v0", x}}).Get(StrCat("v", kNodes));
    gate.Open();
    busy.FinishDeviceComputation();
    CHECK(ToHost(y) == Values(1000, 3.f + kNodes * (kNodes - 1) / 2));
  }
}

TEST_CASE("memory of a stream that its owner has destroyed is freed, on any thread") {
  NEEDS_CUDA_DEVICE();
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  const int64_t before = allocator.live_bytes();
  Workspace ws;
  *ws.CreateTensor("x") = ToCuda({1, 2});
  auto op = CreateOperator(Add("x", "y", 1), &ws);
  cudaStream_t foreign = MakeStream();
  {
    const CUDAStreamScope scope(kCuda0, foreign);
    op->Run();
  }
  OPKIT_CUDA_CHECK(cudaStreamDestroy(foreign));
  CHECK(ToHost(*ws.GetTensor("y")) == Values{2, 3});
  std::thread([&] {
    ws.GetTensor("y")->Reset();
    ws.GetTensor("x")->Reset();
  }).join();
  op.reset();
  CHECK(allocator.live_bytes() == before);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("an operator without an event keeps the pinned memory that the device reads" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  constexpr int64_t kCount = 1 << 16;
  static std::atomic<bool> gone;
  gone = false;
  float* room = nullptr;
  OPKIT_CUDA_CHECK(cudaHostAlloc(&room, kCount * sizeof(float), cudaHostAllocMapped));
  std::fill_n(room, kCount, 5.f);
  Workspace ws;
  *ws.CreateTensor("x") = Tensor(AdoptStorage(kCuda0, room, kCount * 4,
                                              [](void* data, void*) {
                                                std::fill_n(static_cast<float*>(data), kCount, -1);
                                                gone = true;
                                              }),
                                 0, {kCount}, DType::kFloat32);
  auto op = CreateOperator(Add("x", "y", 1), &ws);
  op->DisableEvent();
  Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  op->RunAsync(0);
  ws.GetTensor("x")->Reset();
  CHECK(!gone);
  gate.Open();
  dynamic_cast<AddOp&>(*op).context().FinishDeviceComputation();
  CHECK(ToHost(*ws.GetTensor("y")) == Values(kCount, 6));
  while (!gone) std::this_thread::yield();
  OPKIT_CUDA_CHECK(cudaFreeHost(room));
}

TEST_CASE("operators run on the device's default stream, not on a thread's") {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("x") = ToCuda({1, 2});
  auto op = CreateOperator(Add("x", "y", 1), &ws);
  {
    const CUDAStreamScope scope(kCuda0, nullptr);
    op->Run();
    op->RunAsync();
    op->event().Finish();
  }
  CHECK(ToHost(*ws.GetTensor("y")) == Values{2, 3});
  CHECK_THROWS_WITH_AS(CUDAStreamScope(kCuda0, cudaStreamPerThread),
                       doctest::Contains("create a stream"), Error);
}

TEST_CASE("a stream that is captured is refused, and the capture goes on") {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("x") = ToCuda({1, 2});
  auto op = CreateOperator(Add("x", "y", 1), &ws);
  op->Run();
  const cudaStream_t stream = MakeStream();
  float* const y = ws.GetTensor("y")->mutable_data<float>();
  {
    const CUDAStreamScope scope(kCuda0, stream);
    OPKIT_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    AddKernel<<<1, 1, 0, stream>>>(y, y, 2, 1);
    CHECK_THROWS_WITH_AS(op->RunAsync(), doctest::Contains("captured into a CUDA graph"), Error);
    AddKernel<<<1, 1, 0, stream>>>(y, y, 2, 1);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
    CHECK(nodes == 2);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(op->Run());
  }
  OPKIT_CUDA_CHECK(cudaStreamDestroy(stream));
  CHECK(ToHost(*ws.GetTensor("y")) == Values{2, 3});
}

TEST_CASE("ParallelFor counts past 32 bits, and does not mind a query of work that is not done") {
  NEEDS_CUDA_DEVICE();
  constexpr int64_t kCount = (int64_t{1} << 31) + 5;
  CUDAContext context(kCuda0);
  Tensor bytes({kCount}, DType::kUInt8, kCuda0), sum({1}, DType::kInt64, kCuda0);
  auto* data = bytes.mutable_data<uint8_t>();
  auto* total = reinterpret_cast<unsigned long long*>(sum.mutable_data<int64_t>());
  OPKIT_CUDA_CHECK(cudaMemsetAsync(total, 0, 8, context.cuda_stream()));
  ParallelFor(context, kCount, [=] OPKIT_DEVICE(int64_t i) { data[i] = i % 251; });
  cudaEvent_t event;
  OPKIT_CUDA_CHECK(cudaEventCreate(&event));
  OPKIT_CUDA_CHECK(cudaEventRecord(event, context.cuda_stream()));
  CHECK(cudaEventQuery(event) != cudaErrorInvalidResourceHandle);  // leaves "not ready" behind
  ParallelFor(context, kCount, [=] OPKIT_DEVICE(int64_t i) {
    if (data[i] != i % 251) atomicAdd(total, 1ull);
  });
  context.FinishDeviceComputation();
  OPKIT_CUDA_CHECK(cudaEventDestroy(event));
  Tensor host;
  Copy(sum, &host);
  CHECK(host.data<int64_t>()[0] == 0);
  Copy(bytes.Slice(0, kCount - 1, kCount), &host);
  CHECK(host.data<uint8_t>()[0] == (kCount - 1) % 251);
}

TEST_CASE("a kernel's illegal address fails its event, wakes the waiters, and the process ends" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  if (!IsChild()) return;
  CUDAContext context(kCuda0);
  Event event(kCuda0), later(kCuda0);
  std::atomic<bool> told{false};
  event.SetCallback([&] { told = true; });
  WriteTo<<<1, 1, 0, context.cuda_stream()>>>(reinterpret_cast<float*>(16));
  context.Record(event);
  CHECK_THROWS_WITH_AS(event.Finish(), doctest::Contains("compute-sanitizer finds the kernel"),
                       Error);
  CHECK(event.Query() == EventStatus::kFailed);
  while (!told) std::this_thread::yield();
  CHECK_THROWS_AS(context.Record(later), Error);
}

TEST_CASE("a process may end while statics hold memory of the device and work is under way") {
  NEEDS_CUDA_DEVICE();
  if (!IsChild()) return;
  static Workspace ws;
  *ws.CreateTensor("x") = ToCuda({1, 2});
  static auto op = CreateOperator(Add("x", "y", 1), &ws);
  op->RunAsync();
  static Tensor kept = ToCuda({3});
}

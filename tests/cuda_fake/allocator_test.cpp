#include "opkit/backends/cuda/allocator.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace allocator_test {
using namespace opkit;

namespace {
constexpr Device kCuda0{DeviceType::kCUDA, 0}, kCuda1{DeviceType::kCUDA, 1};

// Opens the gate, on a thread of its own, once the condition holds.
std::jthread OpenWhen(std::unique_ptr<fake::Gate>& gate, std::function<bool()> condition) {
  return std::jthread([&gate, condition = std::move(condition)] {
    fake::Await(condition);
    gate.reset();
  });
}
void OnThreadWithoutStream(const std::function<void()>& work) { std::thread(work).join(); }
}  // namespace

TEST_CASE("a tensor's memory is on its own device") {
  const Tensor a({4}, DType::kFloat32, kCuda0), b({4}, DType::kFloat32, kCuda1);
  CHECK(fake::DeviceOf(a.raw_data()) == 0);
  CHECK(fake::DeviceOf(b.raw_data()) == 1);
  CHECK_THROWS_WITH_AS(Tensor({4}, DType::kFloat32, Device{DeviceType::kCUDA, 7}),
                       doctest::Contains("there is no cuda:7: this machine has 4 CUDA devices"),
                       Error);
}

TEST_CASE("bytes that live are counted") {
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  fake::Await([&] { return allocator.live_bytes() == 0; });  // what earlier tests left on its way
  {
    const Storage storage = AllocateStorage(kCuda0, 1000);
    CHECK(allocator.live_bytes() == 1000);
  }
  CHECK(allocator.live_bytes() == 0);
  CHECK(std::string(allocator.name()) == "cuda");
}

TEST_CASE("freed memory is free only after the work that was issued on the stream") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  Storage storage = AllocateStorage(kCuda0, 64);
  void* data = storage->data();
  fake::Gate gate(context.cuda_stream());
  fake::Enqueue(context.cuda_stream(), [data] { std::memset(data, 1, 64); });
  storage = {};
  CHECK(fake::DeviceOf(data) == 0);
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(fake::DeviceOf(data) == -1);
}

TEST_CASE("memory that no run allocates is no block that work of the thread's stream still uses") {
  CUDAContext busy(kCuda0), other(kCuda0);
  busy.SwitchToDevice(1);
  Storage storage = AllocateStorage(kCuda0, 64);
  void* data = storage->data();
  fake::Gate gate(busy.cuda_stream());
  fake::Enqueue(busy.cuda_stream(), [data] { std::memset(data, 1, 64); });
  storage = {};  // freed once the gate is open
  CHECK(CUDAStream::Current(0) == &busy.stream());
  CHECK(AllocateStorage(kCuda0, 64)->data() != data);
  const Tensor source = Tensor::From<float>({2}, {1, 2});
  Tensor target(kCuda0);
  CopyAsync(other, source, &target);
  CHECK(target.raw_data() != data);
  other.FinishDeviceComputation();
  busy.SwitchToDevice(1);
  const detail::IssueScope run(true);
  busy.SwitchToDevice(1);
  CHECK(AllocateStorage(kCuda0, 64)->data() == data);  // in the order of the run's own stream
}

TEST_CASE("memory of a foreign stream is freed without it once its scope is over") {
  CUDAContext own(kCuda0);
  own.SwitchToDevice(0);
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking) == cudaSuccess);
  Storage here, elsewhere;
  {
    const CUDAStreamScope scope(kCuda0, foreign);
    const detail::IssueScope run(true);
    CUDAContext context(kCuda0);
    context.SwitchToDevice(0);
    CHECK(CUDAStream::Issuing(0)->handle() == foreign);
    here = AllocateStorage(kCuda0, 64);
    elsewhere = AllocateStorage(kCuda0, 64);
  }
  REQUIRE(cudaStreamDestroy(foreign) ==
          cudaSuccess);  // the fake aborts when it is used from here on
  void *first = here->data(), *second = elsewhere->data();
  here = {};
  std::thread([&] { elsewhere = {}; }).join();
  fake::Await([&] { return fake::DeviceOf(first) == -1 && fake::DeviceOf(second) == -1; });
}

TEST_CASE("a run's memory freed beside another stream waits for both, and holds up neither") {
  CUDAContext context(kCuda0);
  Storage storage;
  {
    const detail::IssueScope run(true);
    context.SwitchToDevice(0);
    storage = AllocateStorage(kCuda0, 64);
  }
  void* data = storage->data();
  context.SwitchToDevice(1);
  CUDAStream& of_allocation = CUDAStream::Get(kCuda0, 0);
  fake::Gate first(of_allocation.handle()), second(context.cuda_stream());
  fake::Enqueue(context.cuda_stream(), [data] { std::memset(data, 1, 64); });
  storage = {};
  second.Open();
  context.FinishDeviceComputation();  // not held up by stream 0
  CHECK(fake::DeviceOf(data) == 0);
  first.Open();
  fake::Await([&] { return fake::DeviceOf(data) == -1; });
}

TEST_CASE("a thread without a stream gets and frees memory too") {
  OnThreadWithoutStream([] {
    REQUIRE(CUDAStream::Current(0) == nullptr);
    Storage storage = AllocateStorage(kCuda0, 64);
    void* data = storage->data();
    storage = {};
    fake::Await([&] { return fake::DeviceOf(data) == -1; });
    CHECK(CUDAStream::Current(0) == nullptr);
  });
}

TEST_CASE("a device without memory pools uses cudaMalloc") {
  const int64_t mallocs = fake::mallocs();
  Storage storage = AllocateStorage(kCuda1, 64);
  CHECK(fake::mallocs() == mallocs + 1);
  void* data = storage->data();
  CHECK(fake::DeviceOf(data) == 1);
  storage = {};
  CHECK(fake::DeviceOf(data) == -1);
}

TEST_CASE("out of memory: pending frees are waited for, then an error") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  context.FinishDeviceComputation();
  Storage big = AllocateStorage(kCuda0, int64_t{1} << 20);
  fake::LimitMemory(int64_t{3} << 19);
  const int64_t waited = fake::device_synchronizations(), trims = fake::pool_trims();
  CHECK_THROWS_WITH_AS(AllocateStorage(kCuda0, int64_t{1} << 20),
                       doctest::Contains("out of memory on cuda: 1048576 bytes were asked for"),
                       Error);
  CHECK(fake::device_synchronizations() == waited + 2);
  CHECK(fake::pool_trims() == trims + 1);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  auto gate = std::make_unique<fake::Gate>(context.cuda_stream());
  big = {};
  const auto opener = OpenWhen(gate, [&] { return fake::device_synchronizations() == waited + 3; });
  CHECK(AllocateStorage(kCuda0, int64_t{1} << 20)->nbytes() == int64_t{1} << 20);
  fake::LimitMemory(int64_t{1} << 40);
}

TEST_CASE("out of memory: memory that a completed run still holds is waited for") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  context.FinishDeviceComputation();
  Storage big = AllocateStorage(kCuda0, int64_t{1} << 20);
  fake::LimitMemory(int64_t{3} << 19);
  auto gate = std::make_unique<fake::Gate>(context.cuda_stream());
  detail::RefCountedList kept{big};
  big = {};
  context.Retain(std::move(kept));
  const int64_t waited = fake::device_synchronizations();
  const auto opener = OpenWhen(gate, [&] { return fake::device_synchronizations() == waited + 1; });
  CHECK(AllocateStorage(kCuda0, int64_t{1} << 20)->nbytes() == int64_t{1} << 20);
  fake::LimitMemory(int64_t{1} << 40);
}

TEST_CASE("freeing after a device failure is silent") {
  Storage storage = AllocateStorage(kCuda0, 64);
  fake::FailDevice(cudaErrorIllegalAddress);
  storage = {};
  fake::FailDevice(cudaSuccess);
}

TEST_CASE("tensors go to the device and back, and between devices") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  Tensor on_first(kCuda0), on_second(kCuda1), pinned({DeviceType::kCUDAHost, 0}), back;
  Copy(x, &on_first);
  CHECK(ToString(on_first) == "float32[2, 2] on cuda");
  Copy(on_first, &on_second);
  CHECK(ToString(on_second) == "float32[2, 2] on cuda:1");
  Copy(on_second, &pinned);
  CHECK(pinned.ToVector<float>() == std::vector<float>{1, 2, 3, 4});
  Copy(pinned.Slice(0, 1, 2), &on_first);
  Copy(on_first, &back);
  CHECK(back.ToVector<float>() == std::vector<float>{3, 4});
  Copy(back, &pinned);
  CHECK(pinned.ToVector<float>() == std::vector<float>{3, 4});
}

TEST_CASE("a copy between devices comes after the work on both") {
  CUDAContext first(kCuda0), second(kCuda1);
  first.SwitchToDevice(0);
  second.SwitchToDevice(0);
  Tensor x({1}, DType::kFloat32, kCuda0), y({1}, DType::kFloat32, kCuda1);
  auto* data = x.mutable_data<float>();
  *data = 0;
  auto gate = std::make_unique<fake::Gate>(first.cuda_stream());
  fake::Enqueue(first.cuda_stream(), [data] { *data = 42; });
  const int64_t waits = fake::host_waits();
  const auto opener = OpenWhen(gate, [&] { return fake::host_waits() > waits; });
  Copy(x, &y);
  CHECK(*static_cast<float*>(y.raw_mutable_data()) == 42);
}

TEST_CASE("a copy between host memories comes after the work on every device") {
  CUDAContext first(kCuda0), second(kCuda1);
  first.SwitchToDevice(0);
  second.SwitchToDevice(0);
  Tensor pinned({1}, DType::kFloat32, Device{DeviceType::kCUDAHost, 0}), y;
  auto* data = pinned.mutable_data<float>();
  *data = 0;
  auto gate = std::make_unique<fake::Gate>(second.cuda_stream());
  fake::Enqueue(second.cuda_stream(), [data] { *data = 42; });
  const int64_t waits = fake::host_waits();
  const auto opener = OpenWhen(gate, [&] { return fake::host_waits() >= waits + 2; });
  Copy(pinned, &y);
  CHECK(y.data<float>()[0] == 42);
}

TEST_CASE("an asynchronous copy runs after earlier work of the stream, and before the event") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  Tensor device({4}, DType::kFloat32, kCuda0), host({DeviceType::kCUDAHost, 0});
  fake::Gate gate(context.cuda_stream());
  auto* data = static_cast<float*>(device.raw_mutable_data());
  fake::Enqueue(context.cuda_stream(), [data] {
    for (int i = 0; i < 4; ++i) data[i] = static_cast<float>(i);
  });
  CopyAsync(context, device, &host);
  Event event(kCuda0);
  context.Record(event);
  CHECK(host.shape() == Shape{4});
  gate.Open();
  event.Finish();
  CHECK(host.ToVector<float>() == std::vector<float>{0, 1, 2, 3});
}

}  // namespace allocator_test

#include <atomic>
#include <thread>

#include "device.cuh"

using namespace opkit;

namespace {
using Values = std::vector<float>;

template <class Condition>
void Await(Condition condition) {  // no deadline of its own, ctest has one
  while (!condition()) std::this_thread::yield();
}
}  // namespace

TEST_CASE("the error for a missing device names it and the machine's devices") {
  try {
    CUDAContext context(Device{DeviceType::kCUDA, 99});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(error.message().starts_with("there is no cuda:99: "));
    if (CUDADeviceCount() == 0)
      CHECK(error.message().ends_with("; run the operator on another device"));
  }
  CHECK_THROWS_WITH_AS(CUDAContext(Device{}), "expected a device of type cuda, found cpu", Error);
}

TEST_CASE("without a device its events can be made, and its memory is an error with the reason") {
  Event event(kCuda0);
  CHECK(event.Query() == EventStatus::kInitialized);
  CHECK(event.Cancel());
  if (CUDADeviceCount() == 0)
    CHECK_THROWS_WITH_AS(Tensor({1}, DType::kFloat32, kCuda0),
                         doctest::Contains("no CUDA device on this machine"), Error);
}

TEST_CASE("an event of CUDA goes through its states again and again" * kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  CUDAContext context(kCuda0);
  Event event(kCuda0);
  for (int cycle = 0; cycle < 3; ++cycle) {
    Gate gate(context.cuda_stream());
    context.Record(event);
    CHECK(event.Query() == EventStatus::kScheduled);
    gate.Open();
    event.Finish();
    CHECK(event.Query() == EventStatus::kSuccess);
    event.Reset();
  }
}

TEST_CASE("a stream waits for an event of another" * kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  CUDAContext producer(kCuda0), consumer(kCuda0);
  producer.SwitchToDevice(0);
  consumer.SwitchToDevice(1);
  Tensor x = ToCuda({0, 0, 0}), y = ToCuda({0, 0, 0});
  float *a = x.mutable_data<float>(), *b = y.mutable_data<float>();
  Event produced(kCuda0);
  Gate gate(producer.cuda_stream());
  ParallelFor(producer, 3, [=] OPKIT_DEVICE(int64_t i) { a[i] = static_cast<float>(i + 1); });
  producer.Record(produced);
  consumer.WaitEvent(produced);
  ParallelFor(consumer, 3, [=] OPKIT_DEVICE(int64_t i) { b[i] = 10 * a[i]; });
  CHECK(!CUDAContext::IsStreamFree(kCuda0, 1));
  gate.Open();
  consumer.FinishDeviceComputation();
  CHECK(ToHost(y) == Values{10, 20, 30});
}

TEST_CASE("a callback may use CUDA") {
  NEEDS_CUDA_DEVICE();
  CUDAContext context(kCuda0);
  Event event(kCuda0);
  std::atomic<int> got{0};
  event.SetCallback([&] { got = static_cast<int>(ToHost(ToCuda({7}))[0]); });
  context.Record(event);
  Await([&] { return got == 7; });
}

TEST_CASE("cancelling fails dependants at once; the memory lives until the device has drained" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  CUDAContext producer(kCuda0), consumer(kCuda0);
  producer.SwitchToDevice(0);
  consumer.SwitchToDevice(1);
  Storage memory = AllocateStorage(kCuda0, 1024);
  Event first(kCuda0), second(kCuda0);
  Gate gate(producer.cuda_stream());
  first.state()->retained = {memory};
  producer.Record(first);
  consumer.WaitEvent(first);
  consumer.Record(second);
  CHECK(first.Cancel());
  CHECK_THROWS_WITH_AS(second.Finish(), "cancelled", Error);
  CHECK(memory.use_count() == 2);
  gate.Open();
  Await([&] { return memory.use_count() == 1; });
}

TEST_CASE("memory comes from the device, and is freed behind the work that uses it") {
  NEEDS_CUDA_DEVICE();
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  const int64_t before = allocator.live_bytes();
  CUDAContext context(kCuda0);
  context.SwitchToDevice(0);
  Tensor x({1000}, DType::kFloat32, kCuda0);
  CHECK(allocator.live_bytes() == before + 4000);
  cudaPointerAttributes attributes;
  OPKIT_CUDA_CHECK(cudaPointerGetAttributes(&attributes, x.raw_data()));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  x.Reset();
  CHECK(allocator.live_bytes() == before);
  CHECK_THROWS_WITH_AS(Tensor({int64_t{1} << 50}, DType::kFloat32, kCuda0),
                       doctest::Contains("out of memory on cuda: "), Error);
  CHECK(ToHost(ToCuda({1})) == Values{1});  // and nothing is broken by that
}

TEST_CASE("copies go to the device, within it, to pinned memory and back") {
  NEEDS_CUDA_DEVICE();
  Tensor device = ToCuda({1, 2, 3, 4}), second(kCuda0), pinned({DeviceType::kCUDAHost, 0});
  Copy(device.Slice(0, 1, 3), &second);
  CHECK(ToHost(second) == Values{2, 3});
  CUDAContext context(kCuda0);
  CopyAsync(context, device, &pinned);
  Event event(kCuda0);
  context.Record(event);
  event.Finish();
  CHECK(pinned.ToVector<float>() == Values{1, 2, 3, 4});
}

TEST_CASE("a launch that cannot be made fails the operator's event") {
  NEEDS_CUDA_DEVICE();
  CUDAContext context(kCuda0);
  SpinUntil<<<1, 100000, 0, context.cuda_stream()>>>(nullptr);
  Event event(kCuda0);
  CHECK_THROWS_WITH_AS(context.Record(event),
                       doctest::Contains("check the grid, block and shared memory sizes"), Error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("ParallelFor runs every index once, far past the number of threads") {
  NEEDS_CUDA_DEVICE();
  CUDAContext context(kCuda0);
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{257}, int64_t{20} << 20}) {
    Tensor counts({n + 1}, DType::kFloat32, kCuda0);
    auto* count = counts.mutable_data<float>();
    OPKIT_CUDA_CHECK(
        cudaMemsetAsync(count, 0, static_cast<size_t>(counts.nbytes()), context.cuda_stream()));
    ParallelFor(context, n, [=] OPKIT_DEVICE(int64_t i) { count[i] += 1; });
    context.FinishDeviceComputation();
    const Values got = ToHost(counts);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) wrong += got[static_cast<size_t>(i)] != 1;
    CHECK(wrong == 0);
    CHECK(got[static_cast<size_t>(n)] == 0);
  }
}

#include "opkit/backends/cuda/stream.hpp"

#include <doctest/doctest.h>

#include <latch>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace stream_test {
using namespace opkit;

namespace {
constexpr Device kCuda0{DeviceType::kCUDA, 0}, kCuda1{DeviceType::kCUDA, 1};
}  // namespace

TEST_CASE("a thread gets the same stream for the same id, and no other thread has it") {
  CUDAStream& first = CUDAStream::Get(kCuda0, 0);
  CHECK(&CUDAStream::Get(kCuda0, 0) == &first);
  CHECK(first.id() == 0);
  CHECK(&CUDAStream::Get(kCuda0, 1) != &first);
  CHECK(&CUDAStream::Get(kCuda1, 0) != &first);
  CHECK(CUDAStream::Get(kCuda1, 0).device() == kCuda1);
  CUDAStream* elsewhere = nullptr;
  std::thread([&] { elsewhere = &CUDAStream::Get(kCuda0, 0); }).join();
  CHECK(elsewhere != &first);
}

TEST_CASE("a thread that ends leaves its streams to the next thread") {
  CUDAStream *before = nullptr, *after = nullptr, *other_id = nullptr;
  std::thread([&] { before = &CUDAStream::Get(kCuda0, 7); }).join();
  std::thread([&] {
    other_id = &CUDAStream::Get(kCuda0, 8);
    after = &CUDAStream::Get(kCuda0, 7);
  }).join();
  CHECK(after == before);
  CHECK(other_id != before);
}

TEST_CASE("impossible streams and devices are named") {
  CHECK_THROWS_WITH_AS(CUDAStream::Get(kCuda0, -1), "stream id -1 is outside 0 to 4095", Error);
  CHECK_THROWS_WITH_AS(CUDAStream::Get({DeviceType::kCUDA, 4}, 0),
                       "there is no cuda:4: this machine has 4 CUDA devices", Error);
  CHECK_THROWS_WITH_AS(CheckCUDADevice({}), "expected a device of type cuda, found cpu", Error);
}

TEST_CASE("a stream scope puts a foreign stream in the place of every id, for its life") {
  CUDAStream& own = CUDAStream::Get(kCuda0, 0);
  CUDAStream::SetCurrent(own);
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking) == cudaSuccess);
  {
    CUDAStreamScope scope(kCuda0, foreign);
    CHECK(CUDAStream::Get(kCuda0, 0).handle() == foreign);
    CHECK(CUDAStream::Get(kCuda0, 5).handle() == foreign);
    CHECK(CUDAStream::Current(0)->handle() == foreign);
    CHECK(&CUDAStream::Foreign(kCuda0, foreign) == &CUDAStream::Get(kCuda0, 1));
  }
  CHECK(&CUDAStream::Get(kCuda0, 0) == &own);
  CHECK(CUDAStream::Current(0) == &own);
}

TEST_CASE("a null handle is the default stream of its device, even if another device is current") {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CUDAStream& stream = CUDAStream::Foreign(kCuda1, nullptr);
  std::atomic<bool> ran{false};
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  auto gate = std::make_unique<fake::Gate>(stream.handle());
  fake::Enqueue(stream.handle(), [&] { ran = true; });
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(!stream.IsFree());
  const detail::CUDAMark mark = stream.Mark();  // the fake refuses an event of another device
  CHECK(mark.Query() == cudaErrorNotReady);
  CUDAStream::Get(kCuda0, 0).Wait(mark);
  gate.reset();
  stream.Synchronize();
  CHECK(ran);
  int device = -1;
  CHECK((cudaGetDevice(&device) == cudaSuccess && device == 0));
  CHECK_THROWS_WITH_AS(CUDAStreamScope(kCuda0, cudaStreamPerThread),
                       "the default stream of a thread is another one on each thread: create a "
                       "stream",
                       Error);
}

TEST_CASE("a context that was used makes its device and stream the thread's again") {
  CUDAContext a(kCuda0), b(kCuda1), c(kCuda0);
  a.SwitchToDevice(0);
  c.SwitchToDevice(1);
  b.SwitchToDevice(0);
  int device = -1;
  const cudaStream_t stream = a.cuda_stream();
  CHECK((cudaGetDevice(&device) == cudaSuccess && device == 0));
  CHECK(CUDAStream::Current(0)->handle() == stream);
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking) == cudaSuccess);
  {
    const CUDAStreamScope scope(kCuda0, foreign);
    a.SwitchToDevice(0);
    CHECK(a.cuda_stream() == foreign);
  }
  CHECK(a.cuda_stream() == stream);
}

TEST_CASE("a stream that is captured into a CUDA graph is refused before anything is issued") {
  CUDAContext context(kCuda0);
  context.SwitchToDevice(3);
  const cudaStream_t stream = context.cuda_stream();
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  Event event(kCuda0);
  CHECK_THROWS_WITH_AS(context.Record(event), doctest::Contains("end the capture first"), Error);
  CHECK_THROWS_WITH_AS(context.SwitchToDevice(3),
                       doctest::Contains("the stream is being captured into a CUDA graph"), Error);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);  // the refusals did not invalidate it
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  context.SwitchToDevice(3);
}

TEST_CASE(
    "memory kept until marks is released after them, in any order of the marks, by few notices") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  std::vector<Storage> memory;
  for (int i = 0; i < 10; ++i) memory.push_back(AllocateStorage(Device{}, 8));
  fake::Gate gate(stream.handle());
  const int64_t waits = fake::stream_waits();
  std::vector<detail::CUDAMark> marks;
  for (int i = 0; i < 10; ++i) marks.push_back(stream.Mark());
  for (size_t i = 10; i-- > 0;) {
    detail::RefCountedList kept{memory[i]};
    stream.KeepUntil(marks[i], kept);
  }
  // The notice comes at once, or within 1 ms if an earlier case has just had one.
  fake::Await([&] { return fake::stream_waits() == waits + 1; });
  CHECK(memory[0].use_count() == 2);
  gate.Open();
  for (const Storage& storage : memory) fake::Await([&] { return storage.use_count() == 1; });
}

TEST_CASE("memory kept without marks is released behind the stream's earlier work, by one notice") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  std::vector<Storage> memory;
  for (int i = 0; i < 10; ++i) memory.push_back(AllocateStorage(Device{}, 8));
  fake::Gate gate(stream.handle());
  const int64_t waits = fake::stream_waits();
  for (const Storage& storage : memory) {
    detail::RefCountedList kept{storage};
    stream.Keep(kept);
  }
  // The notice comes at once, or within 1 ms if an earlier case has just had one.
  fake::Await([&] { return fake::stream_waits() == waits + 1; });
  for (const Storage& storage : memory) CHECK(storage.use_count() == 2);
  gate.Open();
  for (const Storage& storage : memory) fake::Await([&] { return storage.use_count() == 1; });
}

TEST_CASE("a wait holds up a stream until the mark; one in the same stream is not issued") {
  CUDAStream &a = CUDAStream::Get(kCuda0, 0), &b = CUDAStream::Get(kCuda1, 1);
  fake::Gate gate(a.handle());
  std::atomic<int> value{0}, seen{0};
  fake::Enqueue(a.handle(), [&] { value = 5; });
  const detail::CUDAMark mark = a.Mark();
  const int64_t waits = fake::stream_waits();
  a.Wait(mark);
  CHECK(fake::stream_waits() == waits);
  b.Wait(mark);
  CHECK(fake::stream_waits() == waits + 1);
  fake::Enqueue(b.handle(), [&] { seen = value.load(); });
  CHECK(!a.IsFree());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  gate.Open();
  b.Synchronize();
  CHECK(seen == 5);
  a.Synchronize();
  CHECK(a.IsFree());
}

TEST_CASE("the notice of an early mark does not wait for a later one that was asked for first") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  const detail::CUDAMark early = stream.Mark();
  fake::Gate gate(stream.handle());
  const detail::CUDAMark late = stream.Mark();
  std::atomic<int> reached{0};
  stream.WhenReached(late, [&](cudaError_t) { reached += 10; });
  stream.WhenReached(early, [&](cudaError_t) { reached += 1; });
  fake::Await([&] { return reached != 0; });
  CHECK(reached == 1);
  gate.Open();
  fake::Await([&] { return reached == 11; });
}

TEST_CASE("a notice has the device's failure, and comes at once if the device takes no more work") {
  CUDAStream& stream = CUDAStream::Get(kCuda0, 0);
  auto gate = std::make_unique<fake::Gate>(stream.handle());
  const detail::CUDAMark mark = stream.Mark();
  std::atomic<cudaError_t> told{cudaSuccess};
  stream.WhenReached(mark, [&](cudaError_t status) { told = status; });
  fake::FailDevice(cudaErrorIllegalAddress);
  gate.reset();
  fake::Await([&] { return told != cudaSuccess; });
  CHECK(told == cudaErrorIllegalAddress);
  cudaError_t at_once = cudaSuccess;
  stream.WhenReached(mark, [&](cudaError_t status) { at_once = status; });
  CHECK(at_once == cudaErrorIllegalAddress);
  fake::FailDevice(cudaSuccess);
}

TEST_CASE("a slot holds one object of a type for each stream") {
  struct Handle {
    explicit Handle(cudaStream_t of) : stream(of) {
      REQUIRE(cudaGetDevice(&device) == cudaSuccess);
    }
    cudaStream_t stream;
    int device = -1;
  };
  CUDAStream &a = CUDAStream::Get(kCuda0, 0), &b = CUDAStream::Get(kCuda1, 0);
  Handle& of_a = a.Slot<Handle>();
  CHECK(&a.Slot<Handle>() == &of_a);
  CHECK(of_a.stream == a.handle());
  CHECK(&b.Slot<Handle>() != &of_a);
  CHECK(b.Slot<Handle>().device == 1);
}

TEST_CASE(
    "threads that share a foreign stream have slots of their own, which later threads reuse") {
  struct Handle {
    explicit Handle(cudaStream_t) {}
  };
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CUDAStream& shared = CUDAStream::Foreign(kCuda0, stream);
  Handle& mine = shared.Slot<Handle>();
  CHECK(&shared.Slot<Handle>() == &mine);
  Handle *second = nullptr, *third = nullptr;
  std::thread([&] { second = &shared.Slot<Handle>(); }).join();
  std::thread([&] { third = &shared.Slot<Handle>(); }).join();
  CHECK(second != &mine);
  CHECK(third == second);
  CHECK(&shared.Slot<Handle>() == &mine);
}

TEST_CASE("a failed call is reported once, with its name") {
  try {
    OPKIT_CUDA_CHECK(cudaSetDevice(9));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(error.message().starts_with("cudaSetDevice(9) at "));
    CHECK(error.message().find("stream_test.cpp:") != std::string::npos);
    CHECK(error.message().ends_with("failed: a fake (cudaErrorFake)"));
  }
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("the message of a common failure says what to do") {
  const auto says = [](cudaError_t status, const char* advice) {
    return detail::CUDAError(status, "it").message().find(advice) != std::string::npos;
  };
  CHECK(says(cudaErrorUnsupportedPtxVersion, "update it, or compile for this GPU's architecture"));
  CHECK(says(cudaErrorNoKernelImageForDevice, "nvcc -arch=native"));
  CHECK(says(cudaErrorInitializationError, "start a new one"));
  for (cudaError_t status : {cudaErrorAssert, cudaErrorMisalignedAddress, cudaErrorIllegalAddress})
    CHECK(says(status, "compute-sanitizer finds the kernel at fault"));
}

TEST_CASE("a device guard restores the current device") {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  int device = -1;
  {
    CUDADeviceGuard guard(kCuda1);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 1);
  }
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
}

TEST_CASE("a completion that may come later comes by itself, and when a thread waits for all") {
  auto& completions = detail::CUDACompletions::Global();
  completions.EnsureServed();
  std::atomic<int> done{0};
  const auto push = [&] {
    auto item = std::make_unique<detail::CUDACompletions::Item>();
    item->done = [&](cudaError_t) { ++done; };
    completions.PushLater(std::move(item));
  };
  push();
  fake::Await([&] { return done == 1; });
  for (int i = 0; i < 3; ++i) push();
  CHECK(completions.WaitUntilIdle());
  CHECK(done == 4);
}

TEST_CASE("completions that wait for all others do not wait for each other") {
  auto& completions = detail::CUDACompletions::Global();
  completions.EnsureServed();
  std::latch both(2);
  std::atomic<int> done{0}, idle{0};
  for (int i = 0; i < 2; ++i) {
    auto item = std::make_unique<detail::CUDACompletions::Item>();
    item->done = [&](cudaError_t) {
      completions.EnsureServed();  // the other item gets a thread of its own
      both.arrive_and_wait();
      idle += completions.WaitUntilIdle();
      ++done;
    };
    completions.Push(std::move(item));
  }
  fake::Await([&] { return done == 2; });
  CHECK(idle.load() == 2);
}

}  // namespace stream_test

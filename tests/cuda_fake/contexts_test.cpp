// Which devices get a context. This is a program of its own, because threads of opkit still work
// for earlier cases of a program, on their devices: here only on device 3, after the first case,
// which leaves no work behind.
#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace contexts_test {
using namespace opkit;

namespace {

constexpr Device kCuda3{DeviceType::kCUDA, 3}, kPinned{DeviceType::kCUDAHost, 0};

// Runs on a new thread, whose current device is 0.
void OnNewThread(FunctionRef<void()> work) {
  std::thread([&] { work(); }).join();
}

}  // namespace

TEST_CASE("a guard makes the previous device current again only if that has a context") {
  OnNewThread([] {
    int device = -1;
    REQUIRE(cudaSetDevice(2) == cudaSuccess);
    { const CUDADeviceGuard guard(1); }
    CHECK((cudaGetDevice(&device) == cudaSuccess && device == 2));
    fake::ForgetContexts();
    { const CUDADeviceGuard guard(1); }
    CHECK((cudaGetDevice(&device) == cudaSuccess && device == 1));
    CHECK(fake::Contexts() == std::vector<int>{1});
    fake::ForgetContexts();
  });
}

TEST_CASE("work on one device makes no context on another") {
  CHECK(fake::Contexts().empty());
  OnNewThread([] {
    CUDAContext context(kCuda3);
    Tensor x({2}, DType::kFloat32, kCuda3), pinned({2}, DType::kFloat32, kPinned);
    Copy(Tensor::From<float>({2}, {1, 2}), &x);
    CopyAsync(context, x, &pinned);
    Event event(kCuda3);
    std::atomic<bool> called{false};
    event.SetCallback([&] { called = true; });  // on a thread of opkit
    event.state()->retained = {x.storage()};
    x = Tensor();
    context.Record(event);
    event.Finish();
    fake::Await([&] { return called.load(); });
    CHECK(pinned.ToVector<float>() == std::vector<float>{1, 2});
    Event late(kCuda3);
    std::atomic<bool> told{false};
    fake::Gate gate(context.cuda_stream());
    context.Record(late);
    OnNewThread([&] { CHECK(late.Query() == EventStatus::kScheduled); });
    OnNewThread([&] { late.SetCallback([&] { told = true; }); });
    gate.Open();
    fake::Await([&] { return told.load(); });
  });
  OnNewThread([] { Tensor({2}, DType::kFloat32, kCuda3); });
  OnNewThread([] { Tensor({2}, DType::kFloat32, kPinned); });
  CHECK(fake::Contexts() == std::vector<int>{3});
}

TEST_CASE("a recording makes no context on another device, also if other threads end it") {
  detail::IntrusivePtr<RecordedWork> work;
  std::atomic<bool> ran{false};
  OnNewThread([&] {
    work = FindRecording(DeviceType::kCUDA)(kCuda3, 2, [&](WorkRecorder&) {
      fake::Enqueue(CUDAStream::Get(kCuda3, 1).handle(), [&] { ran = true; });
    });
    Event event(kCuda3);
    work->Launch({}, {}, event);
    event.Finish();
  });
  CHECK(ran);
  OnNewThread([&] { work->Finish(); });
  OnNewThread([&] { work = {}; });
  CHECK(fake::Contexts() == std::vector<int>{3});
}

}  // namespace contexts_test

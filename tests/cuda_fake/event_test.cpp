#include "opkit/backends/cuda/event.hpp"

#include <doctest/doctest.h>

#include <latch>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"

namespace event_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0}, kCuda1{DeviceType::kCUDA, 1};

CUDAContext ContextOn(int stream_id, Device device = kCuda0) {
  CUDAContext context(device);
  context.SwitchToDevice(stream_id);
  return context;
}
// True while `watch` is the only handle.
bool Released(const Storage& watch) { return watch.use_count() == 1; }

}  // namespace

TEST_CASE("an event goes from INITIALIZED over SCHEDULED to SUCCESS, and back by Reset") {
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  for (int cycle = 0; cycle < 3; ++cycle) {
    CHECK(event.Query() == EventStatus::kInitialized);
    fake::Gate gate(context.cuda_stream());
    std::atomic<bool> ran{false};
    fake::Enqueue(context.cuda_stream(), [&] { ran = true; });
    context.Record(event);
    CHECK(event.Query() == EventStatus::kScheduled);
    CHECK_THROWS_WITH_AS(event.Finish(std::chrono::nanoseconds(0)),
                         doctest::Contains("the event on cuda is still SCHEDULED"), Error);
    CHECK_THROWS_WITH_AS(context.Record(event), doctest::Contains("while it is still SCHEDULED"),
                         Error);
    gate.Open();
    event.Finish();
    CHECK(ran);
    CHECK(event.Query() == EventStatus::kSuccess);
    event.Reset();
  }
}

TEST_CASE("an event without a waiter costs no notice, and still answers Query") {
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  const int64_t waits = fake::stream_waits();
  context.Record(event);
  context.FinishDeviceComputation();
  CHECK(event.Query() == EventStatus::kSuccess);
  CHECK(fake::stream_waits() == waits);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a callback that was set before the event is recorded runs when it completes") {
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  std::atomic<int> called{0};
  event.SetCallback([&] { ++called; });
  fake::Gate gate(context.cuda_stream());
  context.Record(event);
  CHECK(called == 0);
  gate.Open();
  fake::Await([&] { return called == 1; });
  event.SetCallback([&] { ++called; });
  CHECK(called == 2);
}

TEST_CASE("callbacks may call CUDA, and wait for other events of it") {
  CUDAContext context = ContextOn(0);
  std::atomic<int> depth{0};
  Event first(kCuda0);
  first.SetCallback([&] {
    CUDAContext inner = ContextOn(1);  // aborts on the runtime's own callback thread
    Event second(kCuda0);
    second.SetCallback([&] {
      CUDAContext innermost = ContextOn(2);
      Event third(kCuda0);
      innermost.Record(third);
      third.Finish();
      ++depth;
    });
    inner.Record(second);
    second.Finish();
    ++depth;
  });
  context.Record(first);
  fake::Await([&] { return depth == 2; });
}

TEST_CASE("a stream waits for an event of another stream or device, the host does not") {
  CUDAContext producer = ContextOn(0), same = ContextOn(0), other = ContextOn(1, kCuda1);
  fake::Gate gate(producer.cuda_stream());
  std::atomic<int> value{0}, seen{0};
  fake::Enqueue(producer.cuda_stream(), [&] { value = 3; });
  Event produced(kCuda0);
  producer.Record(produced);
  const int64_t waits = fake::stream_waits();
  same.WaitEvent(produced);
  CHECK(fake::stream_waits() == waits);
  other.WaitEvent(produced);
  CHECK(fake::stream_waits() == waits + 1);
  fake::Enqueue(other.cuda_stream(), [&] { seen = value.load(); });
  CHECK(produced.Query() == EventStatus::kScheduled);
  gate.Open();
  other.FinishDeviceComputation();
  CHECK(seen == 3);
  other.WaitEvent(produced);  // done: nothing to wait for
  CHECK(fake::stream_waits() == waits + 1);
}

TEST_CASE("waits issued before the stream is chosen count for the stream that is") {
  CUDAContext producer = ContextOn(0), consumer(kCuda0);
  fake::Gate gate(producer.cuda_stream());
  Event produced(kCuda0);
  producer.Record(produced);
  consumer.WaitEvent(produced);
  consumer.SwitchToDevice(3);
  CHECK(!CUDAContext::IsStreamFree(kCuda0, 3));
  gate.Open();
  consumer.FinishDeviceComputation();
  CHECK(CUDAContext::IsStreamFree(kCuda0, 3));
}

TEST_CASE("finishing waits for the context's own stream alone") {
  CUDAContext busy = ContextOn(0), idle = ContextOn(1);
  fake::Gate gate(busy.cuda_stream());
  idle.FinishDeviceComputation();
  CHECK(CUDAContext::IsStreamFree(kCuda0, 1));
  CHECK(!CUDAContext::IsStreamFree(kCuda0, 0));
}

TEST_CASE("an event of the host holds up the issuing thread, and its failure is thrown there") {
  CUDAContext context = ContextOn(0);
  Event host;
  CHECK_THROWS_WITH_AS(context.WaitEvent(host), doctest::Contains("was never recorded"), Error);
  host.SetScheduled();
  std::thread finisher([&] { host.SetFinished(); });
  context.WaitEvent(host);
  CHECK(host.Query() == EventStatus::kSuccess);
  finisher.join();
  Event failed;
  failed.SetFinished("no input");
  CHECK_THROWS_WITH_AS(context.WaitEvent(failed), "no input", Error);
  Event by_hand(kCuda0);  // no stream will ever reach it
  by_hand.SetScheduled();
  std::thread other([&] { by_hand.SetFinished(); });
  context.WaitEvent(by_hand);
  other.join();
}

TEST_CASE("an event of another kind of device cannot be recorded") {
  CUDAContext context = ContextOn(0);
  Event host;
  CHECK_THROWS_WITH_AS(context.Record(host),
                       "an event of cpu cannot be recorded on cuda; make it with that device",
                       Error);
}

TEST_CASE("a launch that failed unseen fails the next recorded event") {
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  fake::SetLastError(cudaErrorInvalidConfiguration);
  CHECK_THROWS_WITH_AS(context.Record(event),
                       "a kernel launch or an unchecked CUDA call on this thread failed: a fake "
                       "(cudaErrorInvalidConfiguration); check the grid, block and shared memory "
                       "sizes of the launch",
                       Error);
  CHECK(event.Query() == EventStatus::kInitialized);
  context.Record(event);
  event.Finish();
}

TEST_CASE("a query of the program that found unfinished work is no failure of the next run") {
  CUDAContext context = ContextOn(0);
  fake::SetLastError(cudaErrorNotReady);
  Event event(kCuda0);
  context.Record(event);
  event.Finish();
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a failed kernel fails its event, and wakes the waiting threads") {
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  auto gate = std::make_unique<fake::Gate>(context.cuda_stream());
  context.Record(event);
  std::string message;
  event.SetCallback([] {});  // so that the notice is under way before the device fails
  std::thread waiter([&] {
    try {
      event.Finish();
    } catch (const Error& error) {
      message = error.what();
    }
  });
  fake::FailDevice(cudaErrorIllegalAddress);
  gate.reset();
  waiter.join();
  fake::FailDevice(cudaSuccess);
  CHECK(message ==
        "work on the device failed: an illegal memory access was encountered "
        "(cudaErrorIllegalAddress); the process can use CUDA no more; compute-sanitizer finds the "
        "kernel at fault");
  CHECK(event.Query() == EventStatus::kFailed);
}

TEST_CASE("a cancelled event fails its dependants at once, and keeps its memory until drained") {
  CUDAContext producer = ContextOn(0), same = ContextOn(0), other = ContextOn(1);
  Storage memory = AllocateStorage(kCuda0, 100);
  fake::Gate gate(producer.cuda_stream());
  Event first(kCuda0), second(kCuda0), third(kCuda0);
  first.state()->retained = {memory};
  producer.Record(first);
  same.WaitEvent(first);
  same.Record(second);
  other.WaitEvent(second);
  other.Record(third);
  CHECK(third.Query() == EventStatus::kScheduled);
  CHECK(first.Cancel());
  CHECK(first.ErrorMessage() == "cancelled");
  CHECK(second.ErrorMessage() == "cancelled");
  CHECK(third.ErrorMessage() == "cancelled");
  CHECK_THROWS_WITH_AS(third.Finish(), "cancelled", Error);
  CHECK_THROWS_WITH_AS(other.WaitEvent(first), "cancelled", Error);
  CHECK(!Released(memory));
  gate.Open();
  fake::Await([&] { return Released(memory); });
  CHECK(first.Query() == EventStatus::kFailed);
}

TEST_CASE("a synchronous run fails with the event that it waited for") {
  CUDAContext producer = ContextOn(0), consumer = ContextOn(1);
  fake::Gate gate(producer.cuda_stream());
  Event event(kCuda0);
  producer.Record(event);
  consumer.WaitEvent(event);
  event.Cancel();
  gate.Open();
  CHECK_THROWS_WITH_AS(consumer.FinishDeviceComputation(), "cancelled", Error);
  consumer.FinishDeviceComputation();  // once
}

TEST_CASE("an event cancelled before it is recorded stays so and keeps its memory as well") {
  CUDAContext context = ContextOn(0);
  Storage memory = AllocateStorage(kCuda0, 100);
  fake::Gate gate(context.cuda_stream());
  Event event(kCuda0);
  event.Cancel();
  event.state()->retained = {memory};
  context.Record(event);
  CHECK(event.ErrorMessage() == "cancelled");
  event.Reset();
  CHECK(!Released(memory));
  gate.Open();
  fake::Await([&] { return Released(memory); });
}

TEST_CASE("memory outlives the last handle of an event while the device may use it") {
  CUDAContext context = ContextOn(0);
  Storage memory = AllocateStorage(kCuda0, 100);
  fake::Gate gate(context.cuda_stream());
  {
    Event event(kCuda0);
    event.state()->retained = {memory};
    context.Record(event);
  }
  CHECK(!Released(memory));
  gate.Open();
  fake::Await([&] { return Released(memory); });
}

TEST_CASE("after a wait for an event its memory is released") {
  CUDAContext context = ContextOn(0);
  Storage memory = AllocateStorage(kCuda0, 100);
  Event event(kCuda0);
  event.state()->retained = {memory};
  context.Record(event);
  event.Finish();
  CHECK(Released(memory));
}

TEST_CASE("an event completes after its memory is freed, whichever thread finds it reached first") {
  struct Held final : detail::RefCounted {
    Held(std::latch& begun, std::latch& go_on) : freed(begun), open(go_on) {}
    ~Held() override { freed.count_down(), open.wait(); }
    std::latch &freed, &open;
  };
  std::latch freed(1), open(1);
  CUDAContext context = ContextOn(0);
  Event event(kCuda0);
  event.state()->retained.push_back(detail::MakeIntrusive<Held>(freed, open));
  context.Record(event);
  std::atomic<bool> called{false};
  event.SetCallback([&] { called = true; });
  freed.wait();  // a thread of opkit frees the memory
  CHECK(event.Query() == EventStatus::kScheduled);
  CHECK_FALSE(event.state()->WaitBriefly(std::chrono::milliseconds(1)));
  CHECK(!called);
  open.count_down();
  event.Finish();
  fake::Await([&] { return called.load(); });
}

TEST_CASE("waiting for many events without recording one keeps only those still open") {
  CUDAContext producer = ContextOn(0), consumer = ContextOn(1);
  Storage memory = AllocateStorage(kCuda0, 100);
  for (int i = 0; i < 100; ++i) {
    fake::Gate gate(producer.cuda_stream());
    Event event(kCuda0);
    event.state()->retained = {memory};
    producer.Record(event);
    consumer.WaitEvent(event);
    gate.Open();
    producer.FinishDeviceComputation();
  }
  CHECK(memory.use_count() <= 1 + 17);
}

}  // namespace event_test

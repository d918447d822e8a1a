#include "opkit/device/cpu_stream.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/child_process.hpp"
#include "support/error_of.hpp"
#include "support/gate.hpp"
#include "support/test_allocator.hpp"

namespace cpu_stream_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::CurrentInvocation;
using opkit::Device;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Event;
using opkit::EventStatus;
using opkit::Invocation;
using opkit::InvocationScope;
using opkit::detail::CPUStream;

constexpr Device kStreams{DeviceType::kCPUStream, 0};

CPUStreamContext OnStream(int id) {
  CPUStreamContext context(kStreams);
  context.SwitchToDevice(id);
  return context;
}
// Until the stream's thread waits for an event that is not done.
void AwaitBlockedWait(CPUStream& stream, int64_t before) {
  while (stream.blocking_waits() == before) std::this_thread::yield();
}

TEST_CASE("a stream without a thread runs issued work at once and throws to its caller") {
  CPUStream here(kStreams);
  CHECK(here.id() == -1);
  bool ran = false;
  here.Launch([&] { ran = true; });
  CHECK(ran);
  CHECK(here.IsFree());
  CHECK(ErrorOf([&] { here.Launch([] { Throw(ErrorCode::kOutOfRange, "told to"); }); }).code() ==
        ErrorCode::kOutOfRange);
  Event event(kStreams);
  here.Record(event);
  CHECK(event.Query() == EventStatus::kSuccess);
  Event failed(kStreams);
  failed.SetFinished("it failed");
  CHECK(ErrorOf([&] { here.WaitEvent(failed); }).message() == "it failed");
}

TEST_CASE("in a scope the thread's contexts issue on its stream, and on their own after it") {
  CPUStream here(kStreams);
  CPUStreamContext context = OnStream(3);
  CPUStream& own = context.stream();
  {
    const opkit::detail::CPUStreamScope scope(here);
    for (const int id : {0, 3}) {
      context.SwitchToDevice(id);
      CHECK(&context.stream() == &here);
    }
    CHECK(&CPUStream::Get(kStreams, 7) == &here);
    context.FinishDeviceComputation();
    std::thread([&] { CHECK(&CPUStream::Get(kStreams, 3) == &own); }).join();
  }
  context.SwitchToDevice(3);
  CHECK(&context.stream() == &own);
}

TEST_CASE("work is issued, not done, and runs in order on one thread per stream") {
  Gate gate;
  CPUStreamContext context = OnStream(1);
  std::vector<std::thread::id> threads;
  std::string log;
  context.Launch([&] {
    gate.Pass();
    threads.push_back(std::this_thread::get_id());
    log += 'a';
  });
  for (char c : {'b', 'c', 'd'})
    context.Launch([&, c] {
      threads.push_back(std::this_thread::get_id());
      log += c;
    });
  gate.AwaitArrival();
  CHECK(log.empty());
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(log == "abcd");
  REQUIRE(threads.size() == 4);
  CHECK(threads == std::vector<std::thread::id>(4, threads[0]));
  CHECK(threads[0] != std::this_thread::get_id());
  std::thread::id other;
  CPUStreamContext second = OnStream(2);
  second.Launch([&] { other = std::this_thread::get_id(); });
  second.FinishDeviceComputation();
  CHECK(other != threads[0]);
}

TEST_CASE("the same device and id are the same stream, on every thread; others are others") {
  CPUStream& stream = CPUStream::Get(kStreams, 1);
  CHECK(stream.id() == 1);
  CHECK(stream.device() == kStreams);
  CHECK(&CPUStream::Get(kStreams, 1) == &stream);
  CHECK(&CPUStream::Get(kStreams, 2) != &stream);
  CHECK(&CPUStream::Get({DeviceType::kCPUStream, 1}, 1) != &stream);
  const CPUStream* elsewhere = nullptr;
  std::thread([&] { elsewhere = &CPUStream::Get(kStreams, 1); }).join();
  CHECK(elsewhere == &stream);
  const auto error = ErrorOf([] { CPUStream::Get(kStreams, -1); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "stream id -1 is negative");
}

TEST_CASE("a context starts on stream 0 and issues on the stream it was switched to") {
  CPUStreamContext context(kStreams);
  CHECK(context.stream().id() == 0);
  context.SwitchToDevice(2);
  CHECK(&context.stream() == &CPUStream::Get(kStreams, 2));
  context.SwitchToDevice();
  CHECK(context.stream().id() == 0);
}

TEST_CASE("a stream is free when nothing is queued or running") {
  Gate gate;
  CPUStreamContext context = OnStream(3);
  context.Launch([&] { gate.Pass(); });
  CHECK_FALSE(CPUStreamContext::IsStreamFree(kStreams, 3));
  gate.AwaitArrival();
  CHECK_FALSE(CPUStreamContext::IsStreamFree(kStreams, 3));
  CHECK(CPUStreamContext::IsStreamFree({DeviceType::kCPUStream, 7}, 3));
  gate.Open();
  while (!CPUStreamContext::IsStreamFree(kStreams, 3)) std::this_thread::yield();
}

TEST_CASE("an event is SCHEDULED when recorded and done when the work before it is") {
  Gate gate;
  CPUStreamContext context = OnStream(1);
  bool done = false;
  context.Launch([&] {
    gate.Pass();
    done = true;
  });
  Event event(kStreams);
  context.Record(event);
  CHECK(event.IsScheduled());
  CHECK(ErrorOf([&] { event.Finish(std::chrono::nanoseconds(1)); }).code() ==
        ErrorCode::kDeadlineExceeded);
  CHECK(ErrorOf([&] { context.Record(event); }).code() == ErrorCode::kFailedPrecondition);
  gate.Open();
  event.Finish();
  CHECK(done);
  CHECK(event.Query() == EventStatus::kSuccess);
  context.Record(event);  // ignored, it is done
  CHECK(event.Query() == EventStatus::kSuccess);
}

TEST_CASE("a closure's captures are destroyed before the event behind it completes") {
  CPUStreamContext context = OnStream(1);
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  context.Launch([owned = std::move(owned)] {});
  context.FinishDeviceComputation();
  CHECK(watched.expired());
}

TEST_CASE("a stream waits for another stream, and its issuer does not") {
  Gate gate;
  CPUStreamContext producer = OnStream(1), consumer = OnStream(2);
  int value = 0, seen = -1;
  producer.Launch([&] {
    gate.Pass();
    value = 42;
  });
  Event produced(kStreams);
  producer.Record(produced);
  const int64_t waits = consumer.stream().blocking_waits();
  consumer.WaitEvent(produced);
  consumer.Launch([&] { seen = value; });
  Event consumed(kStreams);
  consumer.Record(consumed);
  AwaitBlockedWait(consumer.stream(), waits);
  CHECK(consumed.IsScheduled());
  gate.Open();
  consumed.Finish();
  CHECK(seen == 42);
  CHECK(consumer.stream().blocking_waits() == waits + 1);
}

TEST_CASE("a stream waits for a CPU event that another thread finishes later") {
  Watchdog watchdog;
  for (bool fails : {false, true}) {
    CPUStreamContext context = OnStream(2);
    CPUContext cpu;
    Event finished_elsewhere;
    cpu.Record(finished_elsewhere);
    const int64_t waits = context.stream().blocking_waits();
    int value = 0, seen = -1;
    context.WaitEvent(finished_elsewhere);
    context.Launch([&] { seen = value; });
    Event event(kStreams);
    context.Record(event);
    AwaitBlockedWait(context.stream(), waits);
    std::thread([&] {
      value = 7;
      fails ? finished_elsewhere.SetFinished("fails") : finished_elsewhere.SetFinished();
    }).join();
    if (fails) {
      CHECK(ErrorOf([&] { event.Finish(); }).message() == "fails");
      CHECK(seen == -1);
    } else {
      event.Finish();
      CHECK(seen == 7);
    }
  }
}

TEST_CASE("the CPU waits for a stream, and gets its failure") {
  CPUContext cpu;
  CPUStreamContext context = OnStream(1);
  int value = 0;
  context.Launch([&] { value = 3; });
  Event event(kStreams);
  context.Record(event);
  cpu.WaitEvent(event);
  CHECK(value == 3);
  context.Launch([] { throw std::out_of_range("fails"); });
  Event failed(kStreams);
  context.Record(failed);
  CHECK_THROWS_AS(cpu.WaitEvent(failed), std::out_of_range);
}

TEST_CASE("waiting for an event of the same stream blocks nothing") {
  Gate gate;
  CPUStreamContext context = OnStream(4);
  const int64_t waits = context.stream().blocking_waits();
  context.Launch([&] { gate.Pass(); });
  Event first(kStreams), second(kStreams);
  context.Record(first);
  int done = 0;
  context.WaitEvent(first);  // not done yet
  context.Launch([&] { done = 1; });
  context.Record(second);
  gate.Open();
  second.Finish();
  CHECK(done == 1);
  CHECK(context.stream().blocking_waits() == waits);
}

TEST_CASE("waiting for an event that is done costs another stream nothing either") {
  CPUStreamContext producer = OnStream(1), consumer = OnStream(2);
  Event event(kStreams);
  producer.Record(event);
  event.Finish();
  const int64_t waits = consumer.stream().blocking_waits();
  consumer.WaitEvent(event);
  consumer.FinishDeviceComputation();
  CHECK(consumer.stream().blocking_waits() == waits);
}

TEST_CASE("waiting for an event that was never recorded is an error") {
  CPUStreamContext context = OnStream(1);
  const auto error = ErrorOf([&] { context.WaitEvent(Event(kStreams)); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() ==
        "a stream cannot wait for an event that was never recorded: run the operator first");
  context.FinishDeviceComputation();
}

TEST_CASE("a failure skips the work up to the next event, fails that, and the stream goes on") {
  CPUStreamContext context = OnStream(1);
  std::string log;
  context.Launch([&] { log += 'a'; });
  context.Launch([&] { throw std::out_of_range("asynchronous"); });
  context.Launch([&] { log += 'b'; });
  context.Launch([&] { throw 1; });  // skipped: the first failure is the one that counts
  Event failed(kStreams), next(kStreams);
  context.Record(failed);
  context.Launch([&] { log += 'c'; });
  context.Record(next);
  next.Finish();
  CHECK(log == "ac");
  CHECK(failed.ErrorMessage() == "asynchronous");
  CHECK_THROWS_AS(failed.Finish(), std::out_of_range);
  context.FinishDeviceComputation();
}

TEST_CASE("a failure inside an IssueScope concerns nothing that another thread issues meanwhile") {
  CPUStreamContext context = OnStream(1);
  Event failed(kStreams), right(kStreams), skipped(kStreams);
  bool ran = false, ran_behind = false;
  {
    const opkit::detail::IssueScope issue(true);
    context.Launch([] { throw std::out_of_range("asynchronous"); });
    std::thread([&] {
      const opkit::detail::IssueScope other(true);
      CPUStreamContext same = OnStream(1);
      same.Launch([&] { ran = true; });
      same.Record(right);
    }).join();
    context.Launch([&] { ran_behind = true; });
    context.Record(failed);
    context.WaitEvent(failed);  // fails with it, too
    context.Record(skipped);
  }
  right.Finish();
  CHECK(ran);
  CHECK_THROWS_AS(failed.Finish(), std::out_of_range);
  CHECK_THROWS_AS(skipped.Finish(), std::out_of_range);
  CHECK_FALSE(ran_behind);
  context.FinishDeviceComputation();
}

TEST_CASE("FinishDeviceComputation rethrows, once, a failure that no event took") {
  CPUStreamContext context = OnStream(1);
  context.Launch([] { throw std::out_of_range("lost otherwise"); });
  CHECK_THROWS_WITH_AS(context.FinishDeviceComputation(), "lost otherwise", std::out_of_range);
  context.FinishDeviceComputation();
}

TEST_CASE("a failure passes from stream to stream as one exception, and skips dependent work") {
  for (int dependant : {1, 2}) {  // an elided wait, and a real one
    CAPTURE(dependant);
    CPUStreamContext producer = OnStream(1), consumer = OnStream(dependant);
    Gate gate;
    bool ran = false;
    producer.Launch([&] {
      gate.Pass();
      throw std::out_of_range("asynchronous");
    });
    Event produced(kStreams), consumed(kStreams), last(kStreams);
    producer.Record(produced);
    consumer.WaitEvent(produced);
    consumer.Launch([&] { ran = true; });
    consumer.Record(consumed);
    consumer.WaitEvent(consumed);
    consumer.Record(last);
    gate.Open();
    CHECK_THROWS_AS(last.Finish(), std::out_of_range);
    CHECK_FALSE(ran);
    CHECK(produced.Query() == EventStatus::kFailed);
    CHECK(consumed.exception() == produced.exception());
    CHECK(last.exception() == produced.exception());
    consumer.Launch([&] { ran = true; });  // nothing waits for the failed one any more
    consumer.FinishDeviceComputation();
    CHECK(ran);
  }
}

TEST_CASE("a stream that waits for a failed event fails its later work as well") {
  CPUStreamContext context = OnStream(1);
  Event failed;
  failed.SetFinished("before");
  bool ran = false;
  context.WaitEvent(failed);
  context.Launch([&] { ran = true; });
  CHECK(ErrorOf([&] { context.FinishDeviceComputation(); }).message() == "before");
  CHECK_FALSE(ran);
}

TEST_CASE("when cancelled, dependants fail at once and memory lives until the stream has drained") {
  TestAllocator allocator;
  Gate gate;
  CPUStreamContext producer = OnStream(1), consumer = OnStream(2);
  Event produced(kStreams), consumed(kStreams);
  int written = 0;
  {
    opkit::Storage storage = opkit::AllocateStorage({}, 4);
    produced.state()->retained = {storage};
    producer.Launch([&, data = static_cast<int*>(storage->data())] {
      gate.Pass();
      *data = 5;
      written = *data;
    });
  }
  producer.Record(produced);
  bool ran = false;
  consumer.WaitEvent(produced);
  consumer.Launch([&] { ran = true; });
  consumer.Record(consumed);
  gate.AwaitArrival();
  CHECK(produced.Cancel());
  // All of this while the first stream still runs its work:
  CHECK(ErrorOf([&] { consumed.Finish(); }).code() == ErrorCode::kCancelled);
  CHECK(ErrorOf([&] { produced.Finish(); }).code() == ErrorCode::kCancelled);
  CHECK_FALSE(ran);
  produced.Reset();  // nor does dropping the event free it
  CHECK(allocator.live_bytes() == 4);
  gate.Open();
  producer.FinishDeviceComputation();
  CHECK(written == 5);
  CHECK(allocator.live_bytes() == 0);
}

TEST_CASE("an event that was cancelled before it is recorded keeps its memory as well") {
  TestAllocator allocator;
  Gate gate;
  CPUStreamContext context = OnStream(1);
  Event event(kStreams);
  event.state()->retained = {opkit::AllocateStorage({}, 8)};
  context.Launch([&] { gate.Pass(); });
  CHECK(event.Cancel());
  context.Record(event);
  CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
  event.Reset();
  CHECK(allocator.live_bytes() == 8);
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(allocator.live_bytes() == 0);
}

TEST_CASE("retained memory is free when the event is done") {
  TestAllocator allocator;
  CPUStreamContext context = OnStream(1);
  for (int round = 0; round < 200; ++round) {
    Event event(kStreams);
    event.state()->retained = {opkit::AllocateStorage({}, 8)};
    context.Record(event);
    event.Finish();
    CHECK(allocator.live_bytes() == 0);
  }
}

TEST_CASE("an event may be reset in flight and recorded again") {
  Gate gate;
  CPUStreamContext context = OnStream(1);
  std::atomic<int> old_callbacks{0}, new_callbacks{0};
  Event event(kStreams);
  context.Launch([&] { gate.Pass(); });
  context.Launch([] { throw std::runtime_error("of the old one"); });
  context.Record(event);
  event.SetCallback([&] { ++old_callbacks; });
  event.Reset();
  CHECK(event.Query() == EventStatus::kInitialized);
  context.Record(event);
  event.SetCallback([&] { ++new_callbacks; });
  CHECK(event.IsScheduled());
  CHECK(old_callbacks == 0);
  gate.Open();
  event.Finish();
  context.FinishDeviceComputation();
  CHECK(old_callbacks == 1);
  CHECK(new_callbacks == 1);
}

TEST_CASE("a callback runs on the completing stream and may issue more work there") {
  Gate gate;
  CPUStreamContext context = OnStream(1);
  std::thread::id stream_thread, callback_thread;
  Event first(kStreams), second(kStreams);
  context.Launch([&] {
    gate.Pass();
    stream_thread = std::this_thread::get_id();
  });
  context.Record(first);
  bool ran = false;
  first.SetCallback([&, context]() mutable {
    callback_thread = std::this_thread::get_id();
    context.Launch([&] { ran = true; });
    context.Record(second);
  });
  gate.Open();
  second.Finish(std::chrono::hours(1));
  CHECK(ran);
  CHECK(callback_thread == stream_thread);
}

TEST_CASE("work runs under the invocation it was issued in, and leaves none behind") {
  CPUStreamContext context = OnStream(1);
  Invocation issued, seen, inner, after_failure{1, 1, Invocation::Kind::kCopy};
  {
    InvocationScope scope(Invocation::Kind::kOperator);
    issued = CurrentInvocation();
    context.Launch([&] {
      seen = CurrentInvocation();
      InvocationScope own(Invocation::Kind::kUserCode);
      inner = CurrentInvocation();
      throw 1;
    });
  }
  CHECK_THROWS_AS(context.FinishDeviceComputation(), int);
  context.Launch([&] { after_failure = CurrentInvocation(); });
  context.FinishDeviceComputation();
  CHECK(seen == issued);
  CHECK(inner.parent == issued.id);
  CHECK(after_failure == Invocation{});
}

TEST_CASE("many threads issue on one stream: everything runs, one at a time") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    int count = 0;  // not atomic: the stream is one thread
    std::vector<std::thread> issuers;
    for (int t = 0; t < threads; ++t)
      issuers.emplace_back([&] {
        CPUStreamContext context = OnStream(5);
        for (int i = 0; i < 500; ++i) context.Launch([&] { ++count; });
        context.FinishDeviceComputation();
      });
    for (auto& issuer : issuers) issuer.join();
    CHECK(count == threads * 500);
  }
}

TEST_CASE("a chain across streams keeps its order through events alone") {
  Watchdog watchdog;
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int streams : {1, 2, 8}) {
    CAPTURE(streams);
    int value = 0, wrong = 0;  // not atomic: TSan sees an order that is missing
    Event previous(kStreams);
    previous.SetFinished();
    for (int i = 0; i < 1000; ++i) {
      CPUStreamContext context = OnStream(static_cast<int>(random() % streams));
      context.WaitEvent(previous);
      context.Launch([&, i] { wrong += value++ != i; });
      Event event(kStreams);
      context.Record(event);
      previous = event;
    }
    previous.Finish();
    CHECK(value == 1000);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a forked child starts streams of its own under the names of the parent's") {
  CPUStreamContext parent = OnStream(40);
  parent.Launch([] {});
  parent.FinishDeviceComputation();
  CHECK(ExitStatusOfChild([] {
          CPUStreamContext child = OnStream(40);
          int status = 1;
          child.Launch([&status] { status = 7; });
          child.FinishDeviceComputation();
          return status;
        }) == 7);
  int here = 0;
  parent.Launch([&here] { here = 1; });
  parent.FinishDeviceComputation();
  CHECK(here == 1);
}

TEST_CASE("failures, cancels and waits that race leave every event done and the streams usable") {
  Watchdog watchdog;
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    std::atomic<int> done{0};
    std::vector<std::thread> issuers;
    for (int t = 0; t < threads; ++t)
      issuers.emplace_back([&, t] {
        std::mt19937 random(seed + static_cast<unsigned>(t));
        Event previous(kStreams);
        previous.SetFinished();
        for (int i = 0; i < 300; ++i) {
          CPUStreamContext context = OnStream(static_cast<int>(random() % 3));
          Event event(kStreams);
          if (random() % 2) context.WaitEvent(previous);
          if (random() % 5 == 0) context.Launch([] { throw std::runtime_error("fails"); });
          context.Record(event);
          event.SetCallback([&] { ++done; });
          if (random() % 5 == 0) event.Cancel();
          previous = event;
        }
      });
    for (auto& issuer : issuers) issuer.join();
    for (int id = 0; id < 3; ++id) {
      CPUStreamContext context = OnStream(id);
      Event drained(kStreams);
      context.Record(drained);
      static_cast<void>(drained.state()->Wait({}));
      context.FinishDeviceComputation();
    }
    CHECK(done == threads * 300);
  }
}

}  // namespace
}  // namespace cpu_stream_test

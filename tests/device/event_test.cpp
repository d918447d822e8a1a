#include "opkit/device/event.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "opkit/device/invocation.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace event_test { namespace {

using opkit::Error;
using opkit::ErrorCode;
using opkit::Event;
using opkit::EventStatus;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Thrown by address, so that a waiter can check that it got the very same object.
struct Original : std::runtime_error {
  using std::runtime_error::runtime_error;
  Original(const Original&) = default;
  int payload = 42;
};
const void* AddressOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return &error;
  }
}

TEST_CASE("an event goes from INITIALIZED over SCHEDULED to SUCCESS") {
  Event event;
  CHECK(event.Query() == EventStatus::kInitialized);
  CHECK_FALSE(event.IsScheduled());
  CHECK_FALSE(event.IsFinished());
  CHECK(event.SetScheduled());
  CHECK(event.IsScheduled());
  event.SetFinished();
  CHECK(event.Query() == EventStatus::kSuccess);
  CHECK(event.IsFinished());
  CHECK(event.ErrorMessage().empty());
  CHECK(event.exception() == nullptr);
  event.Finish();
  event.Finish(nanoseconds(0));
  event.RethrowIfFailed();
}

// The classes that a device's author derives from, and the pointer that holds them, have public
// names.
static_assert(std::is_base_of_v<opkit::detail::RefCounted, opkit::EventState>);
static_assert(std::is_same_v<decltype(Event().state()),
                             const opkit::detail::IntrusivePtr<opkit::EventState>&>);
static_assert(std::is_same_v<opkit::detail::EventStateFactory,
                             opkit::detail::IntrusivePtr<opkit::EventState> (*)(opkit::Device)>);

TEST_CASE("the states print as they are called") {
  CHECK(std::string(ToString(EventStatus::kInitialized)) == "INITIALIZED");
  CHECK(std::string(ToString(EventStatus::kScheduled)) == "SCHEDULED");
  CHECK(std::string(ToString(EventStatus::kSuccess)) == "SUCCESS");
  CHECK(std::string(ToString(EventStatus::kFailed)) == "FAILED");
}

TEST_CASE("record, finish, wait and reset can be repeated") {
  Event event;
  for (int cycle = 0; cycle < 3; ++cycle) {
    CHECK(event.SetScheduled());
    cycle == 1 ? event.SetFinished("fails") : event.SetFinished();
    CHECK(event.Query() == (cycle == 1 ? EventStatus::kFailed : EventStatus::kSuccess));
    if (cycle == 1) CHECK(ErrorOf([&] { event.Finish(); }).message() == "fails");
    event.Reset();
    CHECK(event.Query() == EventStatus::kInitialized);
    CHECK(event.ErrorMessage().empty());
    CHECK(event.exception() == nullptr);
  }
}

TEST_CASE("an event may finish without having been recorded") {
  Event event;
  event.SetFinished();
  CHECK(event.Query() == EventStatus::kSuccess);
  CHECK_FALSE(event.SetScheduled());  // ignored, it is done
  CHECK(event.Query() == EventStatus::kSuccess);
}

TEST_CASE("recording an event that is SCHEDULED is an error") {
  Event event;
  event.SetScheduled();
  const auto error = ErrorOf([&] { event.SetScheduled(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() ==
        "the event is recorded while it is still SCHEDULED; Finish or Reset it first");
  CHECK(event.IsScheduled());
}

TEST_CASE("recording an event that has FAILED is ignored") {
  Event event;
  event.SetFinished("before it was issued");
  CHECK_FALSE(event.SetScheduled());
  CHECK(event.Query() == EventStatus::kFailed);
}

TEST_CASE("finishing after SUCCESS is an error for every second outcome") {
  Event event;
  event.SetFinished();
  for (const char* message : {static_cast<const char*>(nullptr), "fails"}) {
    const auto error = ErrorOf([&] { event.SetFinished(message); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(error.message() == "SetFinished on an event that is SUCCESS already; Reset it first");
  }
  CHECK(ErrorOf([&] { event.SetFinishedWithException(std::make_exception_ptr(1)); }).code() ==
        ErrorCode::kFailedPrecondition);
  CHECK(event.Query() == EventStatus::kSuccess);
}

TEST_CASE("the first failure is kept, later ones are ignored") {
  Event event;
  event.SetFinished("first");
  event.SetFinished("second");
  event.SetFinishedWithException(std::make_exception_ptr(Original("third")));
  event.SetFinished();
  CHECK_FALSE(event.Cancel());
  CHECK(event.Query() == EventStatus::kFailed);
  CHECK(event.ErrorMessage() == "first");
  const auto error = ErrorOf([&] { event.Finish(); });
  CHECK(error.code() == ErrorCode::kOperatorFailed);
  CHECK(error.message() == "first");
}

TEST_CASE("waiting on a FAILED event rethrows the very exception that failed it, every time") {
  Event event;
  const auto exception = std::make_exception_ptr(Original("text"));
  event.SetFinishedWithException(exception);
  CHECK(event.exception() == exception);
  CHECK(event.ErrorMessage() == "text");
  for (int wait = 0; wait < 2; ++wait) {
    try {
      wait == 0 ? event.Finish() : event.RethrowIfFailed();
      FAIL("nothing was thrown");
    } catch (const Original& caught) {
      CHECK(&caught == AddressOf(exception));
      CHECK(caught.payload == 42);
    }
  }
}

TEST_CASE("an exception that is no std::exception is kept as well") {
  Event event;
  event.SetFinishedWithException(std::make_exception_ptr(7));
  CHECK(event.ErrorMessage() == "threw something that is not a std::exception");
  CHECK_THROWS_AS(event.Finish(), int);
}

struct Whose final : opkit::detail::FailureContext {
  std::string Describe() const override { return "in operator Late"; }
};
struct Special : Error {
  Special() : Error(ErrorCode::kNotFound, "special") {}
};

TEST_CASE("an Error that fails an event gets the context of whose work it was, once") {
  Event event;
  event.state()->SetContext(opkit::detail::MakeIntrusive<Whose>());
  const Error original(ErrorCode::kOutOfRange, "boom");
  event.SetFinishedWithException(std::make_exception_ptr(original));
  for (int wait = 0; wait < 2; ++wait) {
    const auto error = ErrorOf([&] { event.Finish(); });
    CHECK(error.code() == ErrorCode::kOutOfRange);
    CHECK(std::string(error.what()) == "boom\n  in operator Late");
  }
}

TEST_CASE(
    "an exception becomes the cause of an Error with the context, and a derived Error stays") {
  Event event;
  event.state()->SetContext(opkit::detail::MakeIntrusive<Whose>());
  const auto exception = std::make_exception_ptr(Original("text"));
  event.SetFinishedWithException(exception);
  const Error error = ErrorOf([&] { event.Finish(); });
  CHECK(std::string(error.what()) == "text\n  in operator Late");
  CHECK(error.cause() == exception);
  event.Reset();
  event.state()->SetContext(opkit::detail::MakeIntrusive<Whose>());
  event.SetFinishedWithException(std::make_exception_ptr(Special()));
  CHECK_THROWS_AS(event.Finish(), Special);
}

TEST_CASE("an event that was never recorded is not waited for, unless for a time") {
  Event event;
  const auto error = ErrorOf([&] { event.Finish(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() ==
        "waiting for an event that was never recorded: run the operator first, or wait with a "
        "timeout");
  const auto late = ErrorOf([&] { event.Finish(nanoseconds(0)); });
  CHECK(late.code() == ErrorCode::kDeadlineExceeded);
  CHECK(late.message() == "the event on cpu is still INITIALIZED after 0 us");
  Watchdog watchdog;
  std::thread finisher([&] { event.SetFinished(); });
  event.Finish(std::chrono::hours(1));
  finisher.join();
}

TEST_CASE("a deadline that passes leaves the event going") {
  Event event({opkit::DeviceType::kCPUStream, 1});
  event.SetScheduled();
  const auto error = ErrorOf([&] { event.Finish(milliseconds(2)); });
  CHECK(error.code() == ErrorCode::kDeadlineExceeded);
  CHECK(error.message() == "the event on cpu_stream:1 is still SCHEDULED after 2000 us");
  CHECK(event.IsScheduled());
  event.SetFinished();
  event.Finish(milliseconds(2));
}

TEST_CASE("the longest deadlines are no deadline and do not overflow") {
  Watchdog watchdog;
  for (int round = 0; round < 100; ++round) {
    const nanoseconds timeout = (nanoseconds::max)() - nanoseconds(round);
    Event event;
    event.SetScheduled();
    std::atomic<bool> waiting{false};
    std::thread finisher([&] {
      while (!waiting) std::this_thread::yield();
      event.SetFinished();
    });
    waiting = true;
    event.Finish(timeout);
    finisher.join();
    CHECK(event.Query() == EventStatus::kSuccess);
  }
}

TEST_CASE("a callback runs when the event completes, and at once when it already has") {
  for (bool fails : {false, true}) {
    Event event;
    std::string log;
    event.SetCallback([&] { log += "a"; });
    event.SetScheduled();
    event.SetCallback([&] { log += "b"; });
    CHECK(log.empty());
    fails ? event.SetFinished("fails") : event.SetFinished();
    CHECK(log == "ab");
    event.SetCallback([&] { log += "c"; });
    CHECK(log == "abc");
    event.Reset();
    event.SetFinished();
    CHECK(log == "abc");  // callbacks belong to the completion that was reset
  }
}

TEST_CASE("a callback may set another, query, wait, and reset the same event") {
  Watchdog watchdog;
  Event event;
  std::string log;
  event.SetScheduled();
  event.SetCallback([&] {
    log += ToString(event.Query());
    event.SetCallback([&] { log += ", inner"; });
    event.Finish();
    event.Reset();
    log += std::string(", ") + ToString(event.Query());
    event.SetCallback([&] { log += ", again"; });
  });
  event.SetFinished();
  CHECK(log == "SUCCESS, inner, INITIALIZED");
  event.SetFinished();
  CHECK(log == "SUCCESS, inner, INITIALIZED, again");
}

TEST_CASE("a callback sees the failure") {
  Event event;
  std::string seen;
  event.SetCallback([&] { seen = event.ErrorMessage(); });
  event.SetFinished("fails");
  CHECK(seen == "fails");
}

TEST_CASE("a callback owns what it captures until it has run") {
  auto owned = std::make_unique<int>(5);
  int seen = 0;
  Event event;
  event.SetCallback([owned = std::move(owned), &seen] { seen = *owned; });
  event.SetFinished();
  CHECK(seen == 5);
}

TEST_CASE("copies of an event share its completion until one is reset") {
  Event event;
  Event copy = event;
  copy.SetScheduled();
  CHECK(event.IsScheduled());
  event.Reset();
  copy.SetFinished();
  CHECK(copy.Query() == EventStatus::kSuccess);
  CHECK(event.Query() == EventStatus::kInitialized);
}

TEST_CASE("a reset event knows nothing of before, though completions are used again") {
  Event event;
  const void* states[2] = {event.state().get(), nullptr};
  int called = 0;
  for (int run = 0; run < 6; ++run) {
    event.SetScheduled();
    event.SetCallback([&] { ++called; });
    event.state()->retained = {opkit::AllocateStorage({}, 8)};
    event.SetFinished();
    CHECK(called == run + 1);
    event.Reset();
    CHECK(event.Query() == EventStatus::kInitialized);
    CHECK(event.state()->retained.empty());
    if (run == 0) states[1] = event.state().get();
    CHECK(event.state().get() == states[(run + 1) % 2]);
  }
  event.SetFinishedWithException(std::make_exception_ptr(Original("lost")));
  event.Reset();
  CHECK(event.exception() == nullptr);
  event.SetFinished();
  event.Reset();
  event.SetCallback([&] { called += 100; });  // a reset event never completes
  event.Reset();
  event.SetFinished();
  event.Reset();
  event.SetFinished();
  CHECK(called == 6);
}

TEST_CASE("a completion with another holder is not used again; a completion without one is") {
  Event event;
  event.SetFinished();
  const Event first = event;
  event.Reset();
  const void* const second = event.state().get();
  event.SetFinished();
  event.Reset();
  CHECK(event.state().get() == second);
  CHECK(first.Query() == EventStatus::kSuccess);
  event.SetFinished();
  const Event held = event;
  event.Reset();
  CHECK(event.state().get() != first.state().get());
  CHECK(event.state().get() != second);
  CHECK(held.Query() == EventStatus::kSuccess);
}

TEST_CASE("a reset releases the objects that a failed run retained, and its callbacks") {
  const int64_t before = opkit::GetAllocator(opkit::DeviceType::kCPU).live_bytes();
  Event event;
  event.state()->retained = {opkit::AllocateStorage({}, 64)};
  event.Cancel();
  CHECK(opkit::GetAllocator(opkit::DeviceType::kCPU).live_bytes() == before + 64);
  event.Reset();
  CHECK(opkit::GetAllocator(opkit::DeviceType::kCPU).live_bytes() == before);
}

TEST_CASE("cancelling fails the event at once with kCancelled, and only while it is not done") {
  Event event;
  event.SetScheduled();
  CHECK(event.Cancel());
  CHECK(event.Query() == EventStatus::kFailed);
  CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
  event.SetFinished();  // the device ends later, which changes nothing
  CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
  CHECK_FALSE(event.Cancel());
  Event done;
  done.SetFinished();
  CHECK_FALSE(done.Cancel());
  CHECK(done.Query() == EventStatus::kSuccess);
}

TEST_CASE("waiters on many threads all wake, and see the writes before the finish") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int round = 0; round < 100; ++round) {
      Event event;
      event.SetScheduled();
      int written = -1;
      std::vector<int> seen(static_cast<size_t>(threads), -2);
      std::vector<std::thread> waiters;
      for (int& value : seen)
        waiters.emplace_back([&] {
          event.Finish();
          value = written;
        });
      written = round;
      event.SetFinished();
      for (auto& waiter : waiters) waiter.join();
      CHECK(seen == std::vector<int>(static_cast<size_t>(threads), round));
    }
  }
}

TEST_CASE("every waiter gets the same exception object") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    Event event;
    event.SetScheduled();
    const auto exception = std::make_exception_ptr(Original("shared"));
    std::vector<const void*> seen(static_cast<size_t>(threads));
    std::vector<std::thread> waiters;
    for (const void*& address : seen)
      waiters.emplace_back([&] {
        try {
          event.Finish();
        } catch (const Original& caught) {
          address = &caught;
        }
      });
    event.SetFinishedWithException(exception);
    for (auto& waiter : waiters) waiter.join();
    CHECK(seen == std::vector<const void*>(static_cast<size_t>(threads), AddressOf(exception)));
  }
}

TEST_CASE("each callback runs exactly once, however setting and finishing race") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int round = 0; round < 200; ++round) {
      constexpr int kCallbacks = 5;
      Event event;
      event.SetScheduled();
      std::vector<std::atomic<int>> runs(static_cast<size_t>(threads * kCallbacks));
      std::vector<std::thread> setters;
      for (int t = 0; t < threads; ++t)
        setters.emplace_back([&, t] {
          for (int i = 0; i < kCallbacks; ++i)
            event.SetCallback([&, at = static_cast<size_t>(t * kCallbacks + i)] { ++runs[at]; });
        });
      event.SetFinished();
      for (auto& setter : setters) setter.join();
      int once = 0;
      for (const auto& count : runs) once += count == 1;
      CHECK(once == threads * kCallbacks);
    }
  }
}

TEST_CASE("of several outcomes that race one wins, and every thread sees the same one") {
  Watchdog watchdog;
  for (int threads : {2, 8}) {
    for (int round = 0; round < 200; ++round) {
      Event event;
      event.SetScheduled();
      std::atomic<int> callbacks{0};
      event.SetCallback([&] { ++callbacks; });
      std::vector<std::thread> finishers;
      for (int t = 0; t < threads; ++t)
        finishers.emplace_back([&, t] {
          if (t % 2)
            event.Cancel();
          else
            event.SetFinished(std::to_string(t).c_str());
        });
      const std::string first = ErrorOf([&] { event.Finish(); }).message();
      for (auto& finisher : finishers) finisher.join();
      CHECK(ErrorOf([&] { event.Finish(); }).message() == first);
      CHECK(callbacks == 1);
    }
  }
}

// ASan and TSan see whether the finisher still touches what the waiter has ended.
TEST_CASE("a waiter may end the event while the thread that finishes it is still at it") {
  Watchdog watchdog;
  for (int round = 0; round < 2000; ++round) {
    auto event = std::make_unique<Event>();
    event->SetScheduled();
    std::thread finisher([raw = event.get(), round] {
      round % 3 == 0 ? static_cast<void>(raw->Cancel()) : raw->SetFinished();
    });
    while (!event->IsFinished()) std::this_thread::yield();
    event.reset();
    finisher.join();
  }
}

// Notes what an event is while its end is recorded.
struct EndSink final : opkit::detail::SpanSink {
  void Open(opkit::Invocation&, opkit::detail::SpanNames, const opkit::Device*,
            bool) noexcept override {}
  void Close() noexcept override {}
  void Completed(uint64_t id) noexcept override {
    if (id == span) seen = event->state()->status();
  }
  void Pushed(const opkit::Invocation&, opkit::detail::SpanNames) noexcept override {}

  uint64_t span = 0;
  Event* event = nullptr;
  EventStatus seen = EventStatus::kInitialized;
};

TEST_CASE("the end of an event is recorded before anybody sees it") {
  static EndSink sink;
  Event event(opkit::Device{});
  sink.span = opkit::detail::NextInvocationIds(1);
  sink.event = &event;
  event.state()->SetSpan(sink.span);
  event.state()->Schedule();
  opkit::detail::g_span_sink = &sink;
  event.state()->Complete({});
  opkit::detail::g_span_sink = nullptr;
  CHECK(sink.seen == EventStatus::kScheduled);
  CHECK(event.Query() == EventStatus::kSuccess);
}

}  // namespace
}  // namespace event_test

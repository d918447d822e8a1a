#include "opkit/device/context.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>

#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace context_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::Device;
using opkit::DeviceContext;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Event;
using opkit::EventStatus;

// The least that a device of a user's own brings.
struct MinimalContext {
  static constexpr DeviceType kDeviceType = DeviceType::kFirstUserDevice;
  static constexpr bool kAsynchronous = false;
  explicit MinimalContext(Device) {}
  Device device() const { return {kDeviceType, 0}; }
  void SwitchToDevice(int) {}
  void Record(Event&) {}
  void WaitEvent(const Event&) {}
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }
};
struct WithoutStreams : MinimalContext {
  using MinimalContext::MinimalContext;
  static void IsStreamFree(Device, int) {}
};
struct WithoutDevice {
  static constexpr DeviceType kDeviceType = DeviceType::kFirstUserDevice;
  static constexpr bool kAsynchronous = false;
};

TEST_CASE("contexts meet the concept, and a class that lacks a part does not") {
  static_assert(DeviceContext<CPUContext>);
  static_assert(DeviceContext<CPUStreamContext>);
  static_assert(DeviceContext<MinimalContext>);
  static_assert(!DeviceContext<WithoutStreams>);
  static_assert(!DeviceContext<WithoutDevice>);
  static_assert(!DeviceContext<int>);
  static_assert(!CPUContext::kAsynchronous && CPUStreamContext::kAsynchronous);
  CHECK(CPUContext().device() == Device{});
  CHECK(CPUStreamContext({DeviceType::kCPUStream, 2}).device() ==
        Device{DeviceType::kCPUStream, 2});
}

TEST_CASE("a context on another device type is an error") {
  const auto cpu = ErrorOf([] { CPUContext({DeviceType::kCUDA, 1}); });
  CHECK(cpu.code() == ErrorCode::kInvalidArgument);
  CHECK(cpu.message() == "CPUContext cannot run on cuda:1");
  const auto stream = ErrorOf([] { CPUStreamContext(Device{}); });
  CHECK(stream.code() == ErrorCode::kInvalidArgument);
  CHECK(stream.message() ==
        "CPUStreamContext cannot run on cpu; REGISTER_CPU_STREAM_OPERATOR registers an operator "
        "class of this context");
}

TEST_CASE("CPU work is done when it is issued, and every stream is free") {
  CPUContext context;
  context.SwitchToDevice(3);
  int done = 0;
  context.Launch([&] { done = 1; });
  CHECK(done == 1);
  CHECK_THROWS_AS(context.Launch([] { throw std::runtime_error("fails"); }), std::runtime_error);
  context.FinishDeviceComputation();
  CHECK(CPUContext::IsStreamFree({}, 0));
  CHECK(CPUContext::IsStreamFree({}, 17));
}

TEST_CASE("recording on the CPU leaves the event to the code that finishes it") {
  CPUContext context;
  Event event;
  context.Record(event);
  CHECK(event.Query() == EventStatus::kScheduled);
  event.SetFinished();
  CHECK(event.Query() == EventStatus::kSuccess);
}

TEST_CASE("the CPU waits for a CPU event that another thread finishes, and gets its failure") {
  Watchdog watchdog;
  CPUContext context;
  for (bool fails : {false, true}) {
    Event event;
    context.Record(event);
    int written = 0;
    std::thread finisher([&] {
      written = 1;
      fails ? event.SetFinished("fails") : event.SetFinished();
    });
    if (fails)
      CHECK(ErrorOf([&] { context.WaitEvent(event); }).message() == "fails");
    else
      context.WaitEvent(event);
    CHECK(written == 1);
    finisher.join();
  }
  CHECK(ErrorOf([&] { context.WaitEvent(Event()); }).code() == ErrorCode::kFailedPrecondition);
}

struct NativeContext {
  void* native_stream() { return this; }
};

TEST_CASE("the optional parts of a context have names") {
  CHECK(opkit::detail::HostContext<opkit::CPUContext>);
  CHECK(opkit::detail::HostContext<opkit::CPUStreamContext>);
  CHECK_FALSE(opkit::detail::HostContext<NativeContext>);
  CHECK(opkit::detail::NativeStreamContext<NativeContext>);
  CHECK_FALSE(opkit::detail::NativeStreamContext<opkit::CPUStreamContext>);
  CHECK(opkit::detail::StreamContext<opkit::CPUStreamContext>);
  CHECK_FALSE(opkit::detail::StreamContext<opkit::CPUContext>);
}

}  // namespace
}  // namespace context_test

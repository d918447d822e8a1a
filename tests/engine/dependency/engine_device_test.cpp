#include "opkit/engine/dependency/engine_device.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/engine_kinds.hpp"
#include "support/error_of.hpp"
#include "support/gate.hpp"

namespace engine_device_test { namespace {

using opkit::Device;
using opkit::DeviceType;
using opkit::Engine;
using opkit::Error;
using opkit::ErrorCode;
using opkit::OpKind;
using opkit::Var;
using opkit::detail::CPUStream;

// One device for each engine under test, so that no two share a stream.
Device NewDevice() {
  static int32_t index = 100;
  return {DeviceType::kCPUStream, index++};
}

TEST_CASE("an operation of a device runs on the device's stream, copies on another one") {
  OnEveryEngine([](Engine& engine) {
    const Device device = NewDevice();
    const Var v = engine.NewVar();
    std::thread::id compute, copy, again, host;
    engine.Push([&] { compute = std::this_thread::get_id(); }, {}, {v}, {.device = device});
    engine.Push([&] { copy = std::this_thread::get_id(); }, {}, {v},
                {.kind = OpKind::kCopy, .device = device});
    engine.Push([&] { again = std::this_thread::get_id(); }, {}, {v}, {.device = device});
    engine.Push([&] { host = std::this_thread::get_id(); }, {v}, {});
    engine.WaitForAll();
    CHECK(compute != std::thread::id());
    CHECK(compute == again);
    CHECK(compute != copy);
    CHECK(host != compute);
    CHECK(host != copy);
    CHECK(engine.Version(v) == 3);
  });
}

TEST_CASE("an operation of a device is done when the stream is, and blocks no thread until then") {
  Watchdog watchdog;
  Engine engine({.threads = 1});
  const Device device = NewDevice();
  const Var v = engine.NewVar(), w = engine.NewVar();
  Gate gate;
  std::atomic<bool> after{false};
  engine.Push([&] { gate.Pass(); }, {}, {v}, {.device = device});
  engine.Push([&] { after = true; }, {v}, {});
  gate.AwaitArrival();
  bool other = false;
  engine.Push([&] { other = true; }, {}, {w});  // the pool's only worker is free for it
  engine.WaitForVar(w);
  CHECK(other);
  CHECK_FALSE(after);
  CHECK(engine.Version(v) == 0);
  gate.Open();
  engine.WaitForAll();
  CHECK(after);
}

TEST_CASE("copies overlap with the work of the same device") {
  Watchdog watchdog;
  Engine engine({.threads = 2});
  const Device device = NewDevice();
  std::atomic<bool> copied{false};
  engine.Push(
      [&] {
        while (!copied) std::this_thread::yield();
      },
      {}, {}, {.device = device});
  engine.Push([&] { copied = true; }, {}, {}, {.kind = OpKind::kCopy, .device = device});
  engine.WaitForAll();
  CHECK(copied);
}

TEST_CASE("an exception of work on a device belongs to its operation alone") {
  OnEveryEngine([](Engine& engine) {
    const Device device = NewDevice();
    std::vector<Var> vars;
    for (int i = 0; i < 40; ++i) vars.push_back(engine.NewVar());
    std::atomic<int> ran{0};
    for (size_t i = 0; i < vars.size(); ++i) {
      engine.Push(
          [&, i] {
            ++ran;
            if (i % 4 == 0) throw static_cast<int>(i);
          },
          {}, {vars[i]}, {.device = device});
    }
    for (size_t i = 0; i < vars.size(); ++i) {
      int thrown = -1;
      try {
        engine.WaitForVar(vars[i]);
      } catch (int number) {
        thrown = number;
      }
      CHECK(thrown == (i % 4 == 0 ? static_cast<int>(i) : -1));
    }
    CHECK(ran == 40);
    engine.WaitForAll();
  });
}

TEST_CASE("an operation fails if its stream skips it after a failure elsewhere") {
  OnThreads([](Engine& engine) {
    const Device device = NewDevice();
    const Var v = engine.NewVar();
    Gate gate;
    CPUStream& stream = CPUStream::Get(device, 0);
    stream.Launch([&] {
      gate.Pass();
      throw std::runtime_error("foreign");
    });
    bool ran = false;
    engine.Push([&] { ran = true; }, {}, {v}, {.device = device});
    gate.Open();
    CHECK_THROWS_WITH_AS(engine.WaitForVar(v), "foreign", std::runtime_error);
    CHECK_FALSE(ran);
  });
}

TEST_CASE("an operation on a stream has an invocation inside the one that pushed it") {
  OnEveryEngine([](Engine& engine) {
    const Device device = NewDevice();
    opkit::Invocation pushed, seen;
    {
      opkit::InvocationScope scope(opkit::Invocation::Kind::kOperator);
      pushed = opkit::CurrentInvocation();
      engine.Push([&] { seen = opkit::CurrentInvocation(); }, {}, {}, {.device = device});
    }
    engine.WaitForAll();
    CHECK(seen.parent == pushed.id);
    CHECK(seen.kind == opkit::Invocation::Kind::kTask);
  });
}

TEST_CASE("a device without a context is an error that names the function to call") {
  OnEveryEngine([](Engine& engine) {
    const Error error = ErrorOf([&] {
      engine.Push([] {}, {}, {}, {.device = {DeviceType::kVulkan, 1}});
    });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.message(), "found vulkan:1; call RegisterEngineDevice"));
    const Error async = ErrorOf(
        [&] { engine.PushAsync([](opkit::Completion) {}, {}, {}, {.device = NewDevice()}); });
    CHECK(async.code() == ErrorCode::kInvalidArgument);
  });
}

// A device of the user's own that has no Launch: its work is issued by the closure itself.
struct ClosureContext {
  static constexpr DeviceType kDeviceType = DeviceType{90};
  static constexpr bool kAsynchronous = true;
  static inline int current_stream = -1;
  static inline std::vector<opkit::Event> recorded;

  explicit ClosureContext(Device device) : device_(device) {}
  Device device() const { return device_; }
  void SwitchToDevice(int stream_id) { current_stream = stream_id; }
  void Record(opkit::Event& event) {
    event.SetScheduled();
    recorded.push_back(event);
  }
  void WaitEvent(const opkit::Event& event) { event.Finish(); }
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }

 private:
  Device device_;
};

TEST_CASE("RegisterEngineDevice adds a device whose closures issue the work themselves") {
  Watchdog watchdog;
  CHECK(opkit::RegisterEngineDevice<ClosureContext>());
  Engine engine({.threads = 1});
  const Var v = engine.NewVar(), w = engine.NewVar();
  int stream = -1;
  engine.Push([&] { stream = ClosureContext::current_stream; }, {}, {v},
              {.kind = OpKind::kCopy, .device = {ClosureContext::kDeviceType, 0}});
  engine.Push([] {}, {}, {w});
  engine.WaitForVar(w);  // on the only worker, after the closure
  CHECK(stream == opkit::detail::kCopyStream);
  CHECK(engine.Version(v) == 0);
  REQUIRE(ClosureContext::recorded.size() == 1);
  ClosureContext::recorded[0].SetFinished("lost");
  CHECK(ErrorOf([&] { engine.WaitForVar(v); }).message() == "lost");
}

TEST_CASE("the engine's destructor waits for work that a device has begun") {
  for (int threads : {1, 2, 8}) {
    Watchdog watchdog;
    int count = 0;
    {
      Engine engine({.threads = threads});
      const Device device = NewDevice();
      const Var v = engine.NewVar();
      for (int i = 0; i < 50; ++i)
        engine.Push([&] { ++count; }, {}, {v}, {.device = i % 2 == 0 ? device : Device{}});
    }
    CHECK(count == 50);
  }
}

}  // namespace
}  // namespace engine_device_test

// Which functions of its context an operator calls, and when: switching to the device, whether work
// goes on after it was issued, and whether more may be issued behind it.
#include <doctest/doctest.h>

#include <functional>
#include <thread>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/operator.hpp"
#include "support/error_of.hpp"

namespace operator_context_test { namespace {

using namespace opkit;

std::string g_calls;  // in their order

// A CPUContext that notes each switch to the device.
class NotedContext : public CPUContext {
 public:
  using CPUContext::CPUContext;
  void SwitchToDevice(int stream = 0) {
    g_calls += "switch to " + std::to_string(stream) + "; ";
    if (stream == 13) Throw(ErrorCode::kOutOfRange, "there is no stream 13");
  }
};
class NotedOp final : public Operator<NotedContext> {
 public:
  NotedOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) { g_calls += "construct; "; }
  bool RunOnDevice() override { return g_calls += "body; ", true; }
};
class NotedObserver final : public ObserverBase<OperatorBase> {
 public:
  using ObserverBase::ObserverBase;
  void Start() override { g_calls += "start; "; }
  void Stop(bool succeeded) override { g_calls += succeeded ? "stop" : "stop failed"; }
};

TEST_CASE("constructors of operators run on their device") {
  Workspace ws;
  g_calls.clear();
  const NotedOp op(OperatorDef("Noted"), &ws);
  CHECK(g_calls == "switch to 0; construct; ");
}

TEST_CASE("observers start before the switch to the device, and see that it fails") {
  Workspace ws;
  NotedOp op(OperatorDef("Noted"), &ws);
  op.AttachObserver(std::make_unique<NotedObserver>(&op));
  for (const bool async : {false, true}) {
    const auto run = [&](int stream) { return async ? op.RunAsync(stream) : op.Run(stream); };
    g_calls.clear();
    CHECK(run(2));
    CHECK(g_calls == "start; switch to 2; body; stop");
    g_calls.clear();
    CHECK(ErrorOf([&] { run(13); }).code() == ErrorCode::kOutOfRange);
    CHECK(g_calls == "start; switch to 13; stop failed");
  }
}

// Computes on the host, whatever its context.
class AtOnceOp final : public Operator<CPUStreamContext> {
 public:
  using Operator::Operator;
  bool HasAsyncPart() const override { return false; }
  bool RunOnDevice() override { return true; }
};

TEST_CASE("an operator of a stream without an asynchronous part is done when it returns") {
  Workspace ws;
  AtOnceOp op(OperatorDef("AtOnce").Device(DeviceType::kCPUStream), &ws);
  CHECK_FALSE(op.SupportsAsyncScheduling());
  Event gate({DeviceType::kCPUStream, 0});
  gate.SetScheduled();
  op.WaitEvent(gate, 0);  // what is recorded on the stream would now wait for ever
  CHECK(op.RunAsync(0));
  CHECK(op.event().Query() == EventStatus::kSuccess);
  CHECK(op.RunAsync(0));
  CHECK(op.event().Query() == EventStatus::kSuccess);
  gate.SetFinished();
}

// A stream behind which nothing may be issued before its work is done.
class LoneContext : public CPUStreamContext {
 public:
  static constexpr bool kSupportsAsyncScheduling = false;
  using CPUStreamContext::CPUStreamContext;
};
template <class Context>
class NothingOp final : public Operator<Context> {
 public:
  using Operator<Context>::Operator;
  bool RunOnDevice() override { return true; }
};

TEST_CASE("a context decides whether operators may be issued behind unfinished ones") {
  Workspace ws;
  const OperatorDef def = OperatorDef("Nothing").Device(DeviceType::kCPUStream);
  const NothingOp<LoneContext> lone(def, &ws);
  CHECK(lone.HasAsyncPart());
  CHECK_FALSE(lone.SupportsAsyncScheduling());
  const NothingOp<CPUStreamContext> usual(def, &ws);
  CHECK(usual.HasAsyncPart());
  CHECK(usual.SupportsAsyncScheduling());
  const NothingOp<CPUContext> host(OperatorDef("Nothing"), &ws);
  CHECK_FALSE(host.HasAsyncPart());
  CHECK_FALSE(host.SupportsAsyncScheduling());
}

// Issues work, which fails on request, and calls `between` before the operator's event is recorded
// behind that work.
class FailsOnStreamOp final : public Operator<CPUStreamContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    context_.Launch([fails = fails] {
      if (fails) Throw(ErrorCode::kInvalidArgument, "fails on the stream");
    });
    if (between) std::thread(between).join();
    context_.Launch([this] { ended = true; });
    return true;
  }
  bool fails = false, ended = false;
  std::function<void()> between;
};

TEST_CASE("the failure of an operator on a stream is not that of one that another thread issues") {
  Workspace ws;
  const OperatorDef def = OperatorDef("FailsOnStream").Device(DeviceType::kCPUStream);
  for (const bool async : {false, true}) {
    FailsOnStreamOp failing(def, &ws), right(def, &ws);
    failing.fails = true;
    failing.between = [&] { right.RunAsync(3); };
    const Error error = ErrorOf([&] {
      if (!async) failing.Run(3);
      failing.RunAsync(3);
      failing.event().Finish();
    });
    CHECK(error.message() == "fails on the stream");
    CHECK_FALSE(failing.ended);
    right.event().Finish();
    CHECK(right.ended);
  }
}

}  // namespace
}  // namespace operator_context_test

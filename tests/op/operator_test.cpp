// Running: to completion or asynchronously, on the CPU, with a part that another thread finishes,
// and on CPU streams; failures, events, cancellation, memory in flight, invocations.
#include "opkit/op/operator.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "support/allocations.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/text.hpp"

namespace operator_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::Device;
using opkit::DeviceType;
using opkit::DType;
using opkit::Error;
using opkit::ErrorCode;
using opkit::Event;
using opkit::EventStatus;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;
using opkit::detail::CPUStream;
using BodyOpStream = BodyOp<CPUStreamContext>;

constexpr DType kF32 = DType::kFloat32;

template <class Context>
OperatorDef Def(std::vector<std::string> inputs = {}, std::vector<std::string> outputs = {}) {
  return OperatorDef("Body", std::move(inputs), std::move(outputs)).Device(Context::kDeviceType);
}

struct Mine : Error {
  Mine() : Error(ErrorCode::kOutOfRange, "mine") {}
};
// The ways in which RunOnDevice fails.
enum class How { kFalse, kError, kDerived, kStd, kInt };
bool FailBy(How how) {
  switch (how) {
    case How::kFalse:
      return false;
    case How::kError:
      throw Error(ErrorCode::kOutOfRange, "an error");
    case How::kDerived:
      throw Mine();
    case How::kStd:
      throw std::logic_error("a logic_error");
    case How::kInt:
      throw 7;
  }
  return true;
}
void CheckFailure(How how, const Error& error) {
  CHECK(Contains(error.what(), "in operator Body () -> ()"));
  switch (how) {
    case How::kFalse:
      CHECK(error.code() == ErrorCode::kOperatorFailed);
      CHECK(Contains(error.message(), "RunOnDevice returned false"));
      CHECK(error.cause() == nullptr);
      break;
    case How::kError:
      CHECK(error.code() == ErrorCode::kOutOfRange);
      CHECK(error.message() == "an error");
      CHECK(error.cause() == nullptr);
      break;
    case How::kDerived:
      CHECK(dynamic_cast<const Mine*>(&error) != nullptr);
      break;
    case How::kStd:
      CHECK(error.code() == ErrorCode::kOperatorFailed);
      CHECK(error.message() == "a logic_error");
      CHECK_THROWS_AS(std::rethrow_exception(error.cause()), std::logic_error);
      break;
    case How::kInt:
      CHECK(error.code() == ErrorCode::kOperatorFailed);
      CHECK(error.message() == "threw something that is not a std::exception");
      CHECK_THROWS_AS(std::rethrow_exception(error.cause()), int);
      break;
  }
}

template <class Context>
void CheckEveryFailure(bool async_part, bool async) {
  for (const How how : {How::kFalse, How::kError, How::kDerived, How::kStd, How::kInt}) {
    CAPTURE(static_cast<int>(how));
    Workspace ws;
    bool fail = true;
    BodyOp<Context> op(Def<Context>(), &ws, [&](BodyOp<Context>& self) {
      if (fail) return FailBy(how);
      if (async_part) self.event().SetFinished();
      return true;
    });
    op.async_part = async_part;
    bool thrown = false;
    try {
      async ? op.RunAsync() : op.Run();
    } catch (const Error& error) {
      thrown = true;
      CheckFailure(how, error);
      CHECK(Count(error.what(), "in operator") == 1);
    }
    CHECK(thrown);
    if (async) {  // the event has failed with the same
      CHECK(op.event().Query() == EventStatus::kFailed);
      try {
        op.event().Finish();
        FAIL("Finish did not rethrow");
      } catch (const Error& error) {
        CheckFailure(how, error);
        CHECK(Count(error.what(), "in operator") == 1);
      }
    }
    fail = false;  // and it can run again
    CHECK((async ? op.RunAsync() : op.Run()));
    if (async) CHECK_NOTHROW(op.event().Finish());
  }
}

TEST_CASE("a RunOnDevice that fails: one Error, of the type that was thrown") {
  SUBCASE("CPU, Run") { CheckEveryFailure<CPUContext>(false, false); }
  SUBCASE("CPU, RunAsync") { CheckEveryFailure<CPUContext>(false, true); }
  SUBCASE("CPU with an asynchronous part, Run") { CheckEveryFailure<CPUContext>(true, false); }
  SUBCASE("CPU with an asynchronous part, RunAsync") { CheckEveryFailure<CPUContext>(true, true); }
  SUBCASE("CPU stream, Run") { CheckEveryFailure<CPUStreamContext>(false, false); }
  SUBCASE("CPU stream, RunAsync") { CheckEveryFailure<CPUStreamContext>(false, true); }
}

TEST_CASE("an Error keeps its identity on its way to the caller of Run") {
  Workspace ws;
  const Error* inside = nullptr;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) -> bool {
    try {
      throw Mine();
    } catch (const Error& error) {
      inside = &error;
      throw;
    }
  });
  try {
    op.Run();
  } catch (const Error& error) {
    CHECK(&error == inside);
  }
  CHECK(inside);
}

TEST_CASE("a failure leaves the operator's position in the net, the first one included") {
  Workspace ws;
  bool fail = true;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) { return !fail; });
  CHECK_THROWS(op.Run());
  CHECK(ws.last_failed_op_net_position.load() == -1);
  op.set_net_position(0);
  CHECK_THROWS(op.Run());
  CHECK(ws.last_failed_op_net_position.load() == 0);
  op.set_net_position(3);
  CHECK_THROWS(op.RunAsync());
  CHECK(ws.last_failed_op_net_position.load() == 3);
  fail = false;
  op.set_net_position(5);
  op.Run();
  CHECK(ws.last_failed_op_net_position.load() == 3);
}

TEST_CASE("a synchronous operator is done when RunAsync returns") {
  Workspace ws;
  int runs = 0;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) { return ++runs > 0; });
  CHECK_FALSE(op.HasAsyncPart());
  CHECK_FALSE(op.SupportsAsyncScheduling());
  CHECK(op.event().Query() == EventStatus::kInitialized);
  for (int i = 1; i <= 3; ++i) {
    CHECK(op.RunAsync());
    CHECK(runs == i);
    CHECK(op.event().Query() == EventStatus::kSuccess);
  }
  op.ResetEvent();
  CHECK(op.event().Query() == EventStatus::kInitialized);
  CHECK(op.IsStreamFree(0));
}

TEST_CASE("a CPU operator whose work another thread finishes") {
  Workspace ws;
  std::thread worker;
  std::binary_semaphore go{0};
  bool fail = false;
  BodyOpCPU op(Def<CPUContext>({}, {"Y"}), &ws, [&](BodyOpCPU& self) {
    float* y = self.Output(0, {1}, kF32)->mutable_data<float>();
    worker = std::thread([&, y, done = self.event()]() mutable {
      go.acquire();
      *y += 1;
      if (fail)
        done.SetFinishedWithException(std::make_exception_ptr(Mine()));
      else
        done.SetFinished();
    });
    return true;
  });
  op.async_part = true;
  *ws.CreateTensor("Y") = Tensor::From<float>({1}, {0});
  for (int run = 1; run <= 3; ++run) {
    CHECK(op.RunAsync());
    CHECK(op.event().Query() == EventStatus::kScheduled);
    go.release();
    op.Finish();
    worker.join();
    CHECK(ws.GetTensor("Y")->data<float>()[0] == 2 * run - 1);
    go.release();
    CHECK(op.Run());  // waits for the event itself
    worker.join();
    CHECK(ws.GetTensor("Y")->data<float>()[0] == 2 * run);
  }
  fail = true;
  go.release();
  bool thrown = false;
  try {
    op.Run();
  } catch (const Mine& error) {
    thrown = true;
    CHECK(Count(error.what(), "in operator Body () -> (Y)") == 1);
  }
  CHECK(thrown);
  worker.join();
}

TEST_CASE("an operator with an asynchronous part cannot do without its event") {
  Workspace ws;
  int runs = 0;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) { return ++runs > 0; });
  op.async_part = true;
  op.DisableEvent();
  CHECK(ErrorOf([&] { op.Run(); }).code() == ErrorCode::kFailedPrecondition);
  CHECK(ErrorOf([&] { op.RunAsync(); }).code() == ErrorCode::kFailedPrecondition);
  CHECK(runs == 0);
}

TEST_CASE("work on a stream: Run waits for it, RunAsync does not") {
  Workspace ws;
  std::binary_semaphore go{0};
  std::atomic<int> done{0};
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] {
      go.acquire();
      ++done;
    });
    return true;
  });
  CHECK(op.HasAsyncPart());
  CHECK(op.SupportsAsyncScheduling());
  CHECK(op.RunAsync(3));
  CHECK(op.event().Query() == EventStatus::kScheduled);
  CHECK(done == 0);
  CHECK_FALSE(op.IsStreamFree(3));
  go.release();
  op.event().Finish();
  CHECK(done == 1);
  go.release();
  CHECK(op.Run(3));
  CHECK(done == 2);
}

TEST_CASE("an operator runs on the given stream, always the same thread for one stream") {
  Workspace ws;
  std::thread::id ran_on;
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] { ran_on = std::this_thread::get_id(); });
    return true;
  });
  auto thread_of = [&](int stream) {
    op.Run(stream);
    return ran_on;
  };
  const std::thread::id zero = thread_of(0), one = thread_of(1);
  CHECK(zero != one);
  CHECK(zero != std::this_thread::get_id());
  CHECK(thread_of(0) == zero);
  CHECK(thread_of(1) == one);
  op.RunAsync(1);
  op.Finish();
  CHECK(ran_on == one);
  CHECK(ErrorOf([&] { op.Run(-2); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("a failure on the stream reaches the caller of Run, or a waiter of the event") {
  for (const How how : {How::kError, How::kDerived, How::kStd, How::kInt}) {
    CAPTURE(static_cast<int>(how));
    Workspace ws;
    BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
      self.context().Launch([how] { FailBy(how); });
      self.context().Launch([] { std::abort(); });  // skipped
      return true;
    });
    bool thrown = false;
    try {
      op.Run();
    } catch (const Error& error) {
      thrown = true;
      CheckFailure(how, error);
    }
    CHECK(thrown);

    CHECK(op.RunAsync());
    if (how == How::kDerived) {
      CHECK_THROWS_AS(op.event().Finish(), Mine);
    } else {  // an Error that names the operator, whatever was thrown
      const Error error = ErrorOf([&] { op.event().Finish(); });
      CHECK(Count(error.what(), "in operator Body () -> (), on cpu_stream") == 1);
      CheckFailure(how, error);
    }
    CHECK(op.event().Query() == EventStatus::kFailed);
    op.body = [](BodyOpStream&) { return true; };
    CHECK(op.Run());  // the stream starts afresh
    CHECK(op.RunAsync());
    CHECK_NOTHROW(op.event().Finish());
  }
}

TEST_CASE("RunAsync while the last run is in flight is an Error and changes nothing") {
  Workspace ws;
  std::binary_semaphore go{0};
  int runs = 0;
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    ++runs;
    self.context().Launch([&] { go.acquire(); });
    return true;
  });
  op.RunAsync();
  const Error error = ErrorOf([&] { op.RunAsync(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() ==
        "operator Body () -> () is run while its last run is still SCHEDULED; "
        "Finish its event first");
  CHECK(op.event().Query() == EventStatus::kScheduled);
  CHECK(runs == 1);
  go.release();
  CHECK_NOTHROW(op.event().Finish());
}

TEST_CASE("dependants wait for an event across streams, and within one nothing blocks") {
  Workspace ws;
  std::binary_semaphore go{0};
  std::vector<int> order;
  BodyOpStream first(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] {
      go.acquire();
      order.push_back(1);
    });
    return true;
  });
  BodyOpStream second(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] { order.push_back(2); });
    return true;
  });
  CPUStream& one = CPUStream::Get({DeviceType::kCPUStream, 0}, 21);
  CPUStream& two = CPUStream::Get({DeviceType::kCPUStream, 0}, 22);

  first.RunAsync(21);
  second.WaitEvent(first.event(), 21);
  second.RunAsync(21);
  go.release();
  second.event().Finish();
  CHECK(order == std::vector<int>{1, 2});
  CHECK(one.blocking_waits() == 0);  // in order anyway

  order.clear();
  first.RunAsync(21);
  second.Wait(first, 22);
  second.RunAsync(22);
  CHECK(second.event().Query() == EventStatus::kScheduled);
  go.release();
  second.event().Finish();
  CHECK(order == std::vector<int>{1, 2});
  CHECK(two.blocking_waits() <= 1);

  order.clear();
  Event never;
  const Event& done = first.event();
  second.WaitEvents({&done, &done}, 22);  // done already
  second.RunAsync(22);
  second.Finish();
  CHECK(order == std::vector<int>{2});
  CHECK(ErrorOf([&] { second.WaitEvent(never); }).code() == ErrorCode::kFailedPrecondition);
}

TEST_CASE("an operator on the CPU waits for events of other devices on the host") {
  Workspace ws;
  std::binary_semaphore go{0};
  std::atomic<bool> ready{false};
  BodyOpStream first(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] {
      go.acquire();
      ready = true;
    });
    return true;
  });
  BodyOpCPU second(Def<CPUContext>(), &ws, [&](BodyOpCPU&) { return ready.load(); });
  first.RunAsync();
  go.release();
  second.WaitEvents({&first.event()});
  CHECK(second.Run());
}

TEST_CASE("a failed event fails the events that wait for it, with its own exception") {
  Workspace ws;
  BodyOpStream first(Def<CPUStreamContext>({}, {"A"}), &ws, [](BodyOpStream& self) {
    self.context().Launch([] { throw Mine(); });
    return true;
  });
  bool ran = false;
  BodyOpStream second(Def<CPUStreamContext>({}, {"B"}), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] { ran = true; });
    return true;
  });
  first.RunAsync(23);
  second.WaitEvent(first.event(), 24);
  second.RunAsync(24);
  CHECK_THROWS_AS(second.event().Finish(), Mine);
  CHECK_FALSE(ran);
  second.WaitEvent(first.event(), 24);  // known by now: no difference
  second.RunAsync(24);
  CHECK_THROWS_AS(second.event().Finish(), Mine);
  CHECK_FALSE(ran);
  BodyOpCPU third(Def<CPUContext>(), &ws);
  CHECK_THROWS_AS(third.WaitEvent(first.event()), Mine);
}

TEST_CASE("an operator that fails with an event does not change the event's error") {
  Workspace ws;
  BodyOpStream first(Def<CPUStreamContext>({}, {"A"}), &ws, [](BodyOpStream& self) {
    self.context().Launch([] { opkit::Throw(opkit::ErrorCode::kOutOfRange, "too far"); });
    return true;
  });
  first.RunAsync(25);
  CHECK_THROWS(first.event().Finish());
  const std::string message = first.event().ErrorMessage();
  BodyOpCPU second(Def<CPUContext>({}, {"B"}), &ws, [&](BodyOpCPU&) -> bool {
    first.event().Finish();
    return true;
  });
  CHECK_THROWS_AS(second.Run(), Error);
  CHECK(first.event().ErrorMessage() == message);
}

// Says when the memory it made is freed.
struct Probe {
  Tensor Make(std::initializer_list<float> list) {
    values = list;
    auto freed_by = [](void*, void* self) { static_cast<Probe*>(self)->freed = true; };
    const auto n = static_cast<int64_t>(values.size());
    return Tensor(opkit::AdoptStorage({}, values.data(), n * 4, freed_by, this), 0, {n}, kF32);
  }
  Floats values;
  std::atomic<bool> freed{false};
};

TEST_CASE("cancelling: dependants fail at once, memory lives until the stream has drained") {
  Probe x, y;
  std::binary_semaphore go{0}, started{0};
  float seen = 0;
  Event drained(Device{DeviceType::kCPUStream, 0});
  {
    Workspace ws;
    *ws.CreateTensor("X") = x.Make({5, 6});
    *ws.CreateTensor("Y") = y.Make({0, 0});
    BodyOpStream op(Def<CPUStreamContext>({"X"}, {"Y"}), &ws, [&](BodyOpStream& self) {
      const float* in = self.Input(0).data<float>();
      float* out = self.Output(0, {2}, kF32)->mutable_data<float>();
      self.context().Launch([&, in, out] {
        started.release();
        go.acquire();
        seen = out[0] = in[0];
      });
      return true;
    });
    BodyOpStream after(Def<CPUStreamContext>(), &ws, [](BodyOpStream& self) {
      self.context().Launch([] { std::abort(); });
      return true;
    });
    op.RunAsync(25);
    after.WaitEvent(op.event(), 26);
    after.RunAsync(26);
    started.acquire();
    op.Cancel();
    CHECK(op.event().Query() == EventStatus::kFailed);
    Error error = ErrorOf([&] { op.event().Finish(); });
    CHECK(error.code() == ErrorCode::kCancelled);
    CHECK(Contains(error.what(), "in operator Body (X) -> (Y)"));
    CHECK(ErrorOf([&] { after.event().Finish(); }).code() == ErrorCode::kCancelled);
    op.Cancel();  // nothing to do
    op.context().Record(drained);
  }  // workspace and operators are gone, the work still runs
  CHECK_FALSE(x.freed);
  CHECK_FALSE(y.freed);
  go.release();
  drained.Finish();
  CHECK(seen == 5);
  CHECK(x.freed);
  CHECK(y.freed);
}

TEST_CASE("cancelling an operator that is not in flight does nothing; after it, it can run again") {
  Workspace ws;
  std::counting_semaphore<2> go{0};
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] { go.acquire(); });
    return true;
  });
  op.Cancel();
  CHECK(op.event().Query() == EventStatus::kInitialized);
  op.RunAsync(27);
  op.Cancel();
  op.RunAsync(27);  // queued behind the cancelled one
  CHECK(op.event().Query() == EventStatus::kScheduled);
  go.release(2);
  CHECK_NOTHROW(op.event().Finish());
  op.Cancel();
  CHECK(op.event().Query() == EventStatus::kSuccess);
}

TEST_CASE("memory of work that another thread finishes lives as long as that work") {
  for (const bool cancel : {false, true}) {
    CAPTURE(cancel);
    Workspace ws;
    Probe x;
    Tensor* tensor = ws.CreateTensor("X");
    *tensor = x.Make({1, 2});
    std::binary_semaphore go{0};
    std::thread worker;
    float seen = 0;
    BodyOpCPU op(Def<CPUContext>({"X"}, {"X"}), &ws, [&](BodyOpCPU& self) {
      const float* in = self.Input(0).data<float>();
      float* out = self.Output(0, {8}, kF32)->mutable_data<float>();  // x's place in the workspace
      worker = std::thread([&, in, out, done = self.event()]() mutable {
        go.acquire();
        seen = out[7] = in[1];
        done.SetFinished();
      });
      return true;
    });
    op.async_part = true;
    op.RunAsync();
    CHECK(tensor->shape() == Shape{8});
    if (cancel) {
      op.Cancel();
      CHECK(ErrorOf([&] { op.Finish(); }).code() == ErrorCode::kCancelled);
      *tensor = Tensor();  // the rest of the run has no waiter
      op.ResetEvent();
    }
    CHECK_FALSE(x.freed);
    go.release();
    if (!cancel) op.Finish();
    worker.join();
    CHECK(seen == 2);
    CHECK(x.freed);
    if (!cancel) CHECK(tensor->data<float>()[7] == 2);
  }
}

TEST_CASE("an output that grows in place on a stream: the input outlives the work") {
  for (const bool disabled : {false, true}) {
    CAPTURE(disabled);
    Workspace ws;
    Probe x;
    Tensor* tensor = ws.CreateTensor("X");
    *tensor = x.Make({1, 2});
    std::binary_semaphore go{0};
    BodyOpStream op(Def<CPUStreamContext>({"X"}, {"X"}), &ws, [&](BodyOpStream& self) {
      const float* in = self.Input(0).data<float>();
      float* out = self.Output(0, {4}, kF32)->mutable_data<float>();
      self.context().Launch([&, in, out] {
        go.acquire();
        for (int i = 0; i < 4; ++i) out[i] = in[i % 2];
      });
      return true;
    });
    if (disabled) op.DisableEvent();
    op.RunAsync(28);
    CHECK(tensor->shape() == Shape{4});
    CHECK_FALSE(x.freed);
    go.release();
    op.SyncDeviceBarrierForObservers();
    CHECK(tensor->ToVector<float>() == Floats{1, 2, 1, 2});
    CHECK(x.freed);
  }
}

TEST_CASE("work that was issued before RunOnDevice failed keeps its memory") {
  Workspace ws;
  Probe x;
  Tensor* tensor = ws.CreateTensor("X");
  *tensor = x.Make({3});
  std::binary_semaphore go{0};
  float seen = 0;
  BodyOpStream op(Def<CPUStreamContext>({"X"}, {}), &ws, [&](BodyOpStream& self) {
    const float* in = self.Input(0).data<float>();
    self.context().Launch([&, in] {
      go.acquire();
      seen = *in;
    });
    return false;
  });
  CHECK_THROWS_AS(op.RunAsync(29), Error);
  *tensor = Tensor();
  CHECK_FALSE(x.freed);
  go.release();
  op.SyncDeviceBarrierForObservers();
  CHECK(seen == 3);
  CHECK(x.freed);
}

// Shared with an operator whose destructor must wait for its work, which uses its members. The test
// keeps this record longer than the operator.
struct SeenAtTheEnd {
  std::binary_semaphore started{0}, go{0}, ends{0};
  std::atomic<bool> worked{false}, worked_before_the_end{false};
};
template <class Context>
class WaitingOp final : public opkit::Operator<Context> {
 public:
  OPKIT_USE_OPERATOR_FUNCTIONS(Context);
  WaitingOp(Workspace* ws, SeenAtTheEnd& seen, bool issues = true)
      : opkit::Operator<Context>(Def<Context>(), ws), seen_(seen), issues_(issues) {}
  ~WaitingOp() override {
    seen_.ends.release();
    FinishWork();
    seen_.worked_before_the_end = seen_.worked.load();
  }
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    auto work = [&seen = seen_, this] {
      static_cast<void>(this);  // which one of the two kinds of contexts does not use
      seen.started.release();
      seen.go.acquire();
      seen.worked = true;
      if constexpr (!Context::kAsynchronous) this->SetEventFinished("the answer is no");
      if constexpr (Context::kAsynchronous) throw Mine();
    };
    if constexpr (Context::kAsynchronous)
      context_.Launch(work);
    else
      std::thread(work).detach();
    return issues_;
  }

 private:
  SeenAtTheEnd& seen_;
  const bool issues_;
};
template <class Context, class Run>
void CheckDestructorWaits(Run run, bool issues = true) {
  SeenAtTheEnd seen;
  Workspace ws;
  auto op = std::make_unique<WaitingOp<Context>>(&ws, seen, issues);
  run(*op, seen);
  std::thread letter([&] {  // the work ends when the destructor has begun
    seen.ends.acquire();
    seen.go.release();
  });
  op.reset();
  CHECK(seen.worked_before_the_end);
  letter.join();
}

TEST_CASE("FinishWork in a destructor waits for the work of the latest run") {
  SUBCASE("on a stream, whose failure stays in the event") {
    CheckDestructorWaits<CPUStreamContext>([](auto& op, SeenAtTheEnd&) { op.RunAsync(33); });
  }
  SUBCASE("in a thread of its own") {
    CheckDestructorWaits<CPUContext>([](auto& op, SeenAtTheEnd&) { op.RunAsync(); });
  }
  SUBCASE("that was cancelled and goes on on its stream") {
    CheckDestructorWaits<CPUStreamContext>([](auto& op, SeenAtTheEnd& seen) {
      op.RunAsync(33);
      seen.started.acquire();
      op.Cancel();
    });
  }
  SUBCASE("whose event is disabled") {
    CheckDestructorWaits<CPUStreamContext>([](auto& op, SeenAtTheEnd&) {
      op.DisableEvent();
      op.RunAsync(35);  // a stream of its own, as its failure stays there for the next event
    });
  }
  SUBCASE("that issued work and then failed") {
    CheckDestructorWaits<CPUStreamContext>(
        [](auto& op, SeenAtTheEnd&) { CHECK_THROWS_AS(op.RunAsync(33), Error); }, false);
  }
}

TEST_CASE("FinishWork in a destructor returns at once where nothing goes on") {
  Workspace ws;
  SeenAtTheEnd seen;
  { const WaitingOp<CPUStreamContext> never_ran(&ws, seen); }
  { const WaitingOp<CPUContext> never_ran(&ws, seen); }
  CHECK_FALSE(seen.worked_before_the_end);
  {
    WaitingOp<CPUStreamContext> done(&ws, seen);
    seen.go.release();
    CHECK_THROWS_AS(done.Run(34), Mine);
    seen.go.release();
    CHECK(done.RunAsync(34));
    CHECK_THROWS_AS(done.event().Finish(), Mine);
  }
  CHECK(seen.worked_before_the_end);
}

TEST_CASE("a disabled event: the operator runs, and its failure goes to the next event") {
  Workspace ws;
  BodyOpStream inner(Def<CPUStreamContext>(), &ws, [](BodyOpStream& self) {
    self.context().Launch([] { throw Mine(); });
    return true;
  });
  BodyOpStream last(Def<CPUStreamContext>(), &ws, [](BodyOpStream& self) {
    self.context().Launch([] { std::abort(); });
    return true;
  });
  inner.DisableEvent();
  CHECK(inner.IsEventDisabled());
  const Error error = ErrorOf([&] { inner.event(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() == "the event of Body () -> () is disabled");
  CHECK(inner.RunAsync(30));
  CHECK_THROWS_AS(inner.SyncDeviceBarrierForObservers(), Mine);  // sees it, does not take it
  last.Wait(inner, 30);                                          // no event: nothing to wait for
  CHECK(last.RunAsync(30));
  CHECK_THROWS_AS(last.event().Finish(), Mine);
  CHECK(last.event().Query() == EventStatus::kFailed);
  BodyOpCPU plain(Def<CPUContext>(), &ws, [](BodyOpCPU&) { return true; });
  plain.DisableEvent();
  CHECK(plain.RunAsync());
  CHECK(plain.Run());
}

TEST_CASE("Finish takes a deadline") {
  Workspace ws;
  std::binary_semaphore go{0};
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    self.context().Launch([&] { go.acquire(); });
    return true;
  });
  CHECK_NOTHROW(op.Finish());  // never run: nothing to wait for
  op.RunAsync(31);
  CHECK(ErrorOf([&] { op.Finish(std::chrono::nanoseconds(1)); }).code() ==
        ErrorCode::kDeadlineExceeded);
  go.release();
  CHECK_NOTHROW(op.Finish());
}

TEST_CASE("an error inside a nested operator names both, the inner one first") {
  Workspace ws;
  BodyOpCPU nested(OperatorDef("Inner"), &ws, [](BodyOpCPU&) { return false; });
  BodyOpCPU op(OperatorDef("Outer"), &ws, [&](BodyOpCPU&) { return nested.Run(); });
  const Error error = ErrorOf([&] { op.Run(); });
  REQUIRE(error.context().size() == 2);
  CHECK(Contains(error.context()[0], "in operator Inner"));
  CHECK(Contains(error.context()[1], "in operator Outer"));
}

TEST_CASE("a derived error that came through an event is passed on, and not changed for others") {
  Workspace ws;
  Event event;
  event.SetFinishedWithException(std::make_exception_ptr(Mine()));
  for (int dependant = 0; dependant < 2; ++dependant) {
    BodyOpCPU op(OperatorDef("Body"), &ws, [&](BodyOpCPU&) {
      event.Finish();
      return true;
    });
    CHECK_THROWS_AS(op.Run(), Mine);
  }
  CHECK(ErrorOf([&] { event.Finish(); }).context().empty());

  // One that the operator's own event has taken up is others' as well, from then on.
  BodyOpCPU inner(OperatorDef("Inner"), &ws, [](BodyOpCPU&) -> bool { throw Mine(); });
  BodyOpCPU outer(OperatorDef("Outer"), &ws, [&](BodyOpCPU&) { return inner.RunAsync(); });
  CHECK_THROWS_AS(outer.Run(), Mine);
  const Error error = ErrorOf([&] { inner.event().Finish(); });
  REQUIRE(error.context().size() == 1);
  CHECK(Contains(error.context()[0], "in operator Inner"));
}

// Written as a user's template: names of the base without this-> or template.
template <class Context>
class TaggedOp final : public opkit::Operator<Context> {
 public:
  OPKIT_USE_OPERATOR_FUNCTIONS(Context);
  OPKIT_INPUT_TAGS(DATA, SCALE);
  OPKIT_OUTPUT_TAGS(RESULT);
  TaggedOp(const OperatorDef& def, Workspace* ws)
      : opkit::Operator<Context>(def, ws),
        bias_(GetSingleArgument<float>("bias", 1.f)),
        steps_(GetRepeatedArgument<int>("steps")) {}

  bool RunOnDevice() override {
    const Tensor& x = Input(DATA);
    const float scale = HasInput(SCALE) ? Input<float>(SCALE) : 1.f;
    Tensor* y = Output(RESULT, x.shape(), x.dtype());
    OPKIT_ENFORCE(InputSize() == 2 && OutputSize() == 1 && InputIsType<Tensor>(DATA));
    OPKIT_ENFORCE(HasArgument("bias") == HasSingleArgumentOfType<float>("bias"));
    OPKIT_ENFORCE(!IsInputOutputAlias(DATA, RESULT) && InputTensorShapes()[DATA] == x.shape());
    const float* in = x.template data<float>();
    float* out = y->template mutable_data<float>();
    context_.Launch([=, n = x.numel(), bias = bias_] {
      for (int64_t i = 0; i < n; ++i) out[i] = scale * in[i] + bias;
    });
    return true;
  }

 private:
  float bias_;
  std::vector<int> steps_;
};

TEST_CASE("a class template names inputs, outputs and arguments plainly, for any context") {
  Workspace ws;
  *ws.CreateTensor("X") = Tensor::From<float>({2}, {1, 2});
  ws.CreateBlob("S")->Emplace<float>(10.f);
  TaggedOp<CPUContext> cpu(Def<CPUContext>({"X", "S"}, {"Y"}).Arg("bias", 5.f), &ws);
  cpu.Run();
  CHECK(ws.GetTensor("Y")->ToVector<float>() == Floats{15, 25});
  TaggedOp<CPUStreamContext> stream(Def<CPUStreamContext>({"X", ""}, {"Z"}), &ws);
  stream.Run();
  CHECK(ws.GetTensor("Z")->ToVector<float>() == Floats{2, 3});
}

// After the first runs, which find room: what `run` does has all it needs.
template <class F>
int64_t AllocationsOf100(F run) {
  for (int i = 0; i < 4; ++i) run();
  const int64_t before = Allocations();
  for (int i = 0; i < 100; ++i) run();
  return Allocations() - before;
}

TEST_CASE("a run allocates nothing once it has room, for every way of completion") {
  Workspace ws;
  *ws.CreateTensor("X") = Tensor::From<float>({2}, {1, 2});
  BodyOpCPU cpu(Def<CPUContext>({"X"}, {"Y"}), &ws, [](BodyOpCPU& op) {
    op.Output(0, op.Input(0).shape(), kF32);
    return true;
  });
  CHECK(AllocationsOf100([&] { cpu.Run(); }) == 0);
  CHECK(AllocationsOf100([&] {
          cpu.RunAsync();
          cpu.event().Finish();
        }) == 0);
  cpu.async_part = true;
  CHECK(AllocationsOf100([&] {
          cpu.RunAsync();
          cpu.event().SetFinished();
        }) == 0);

  std::atomic<int> ran{0};
  BodyOpStream stream(Def<CPUStreamContext>({"X"}, {"Z"}), &ws, [&](BodyOpStream& op) {
    op.Output(0, op.Input(0).shape(), kF32);
    op.context().Launch([&] { ran.fetch_add(1); });
    return true;
  });
  CHECK(AllocationsOf100([&] {
          stream.RunAsync();
          stream.event().Finish();
        }) == 0);
  CHECK(AllocationsOf100([&] { stream.Run(); }) == 0);
  CHECK(ran == 208);
}

}  // namespace
}  // namespace operator_test

// Operators that crash or hang while they are checked: a sentence in the report, and the program
// that asked goes on.
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "op/check/checked_ops.hpp"
#include "opkit/engine/context_parallel_for.hpp"

namespace check_crash_test {
using namespace checked_ops;

namespace {

CheckOptions InChild() {
  CheckOptions options;
  options.run.in_child = true;
  return options;
}

// Pointers that RunOnDevice uses. They are invalid after it returns, whatever the stack holds then.
struct Arrays {
  const float* volatile in;
  float* volatile out;
};
struct Forget {
  ~Forget() {
    arrays.in = nullptr;
    arrays.out = nullptr;
  }
  Arrays& arrays;
};
template <class Context>
class ByReferenceOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    static auto& arrays = *new Arrays;
    arrays.in = In(*this);
    arrays.out = OutLike(*this);
    const Forget forget{arrays};
    ParallelFor(context_, x.numel(), [&](int64_t i) { arrays.out[i] = -arrays.in[i]; });
    return true;
  }
};
SCHEMA_OF_ONE(BadByReference);
REGISTER_CPU_OPERATOR(BadByReference, ByReferenceOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(BadByReference, ByReferenceOp<CPUStreamContext>);
NO_GRADIENT(BadByReference);

constexpr auto kOfOddRank = [](auto& op) {
  if (op.Input(0).rank() == 3) std::raise(SIGSEGV);
  kDouble(op);
};
SCHEMA_OF_ONE(BadAtRank3);
REGISTER_CPU_OPERATOR(BadAtRank3, LambdaOp<kOfOddRank>);

constexpr auto kForEver = [](auto&) {
  for (volatile bool wait = true; wait;) {
  }
};
SCHEMA_OF_ONE(BadForEver);
REGISTER_CPU_OPERATOR(BadForEver, LambdaOp<kForEver>);

class Worker;
Worker* worker = nullptr;

// A thread that runs the tasks it is given, until its end. A fork waits for its mutex, because a
// mutex that is locked at the fork stays locked in the child.
class Worker {
 public:
  Worker() {
    static const int handlers = pthread_atfork(Lock, Unlock, Unlock);
    REQUIRE(handlers == 0);
    worker = this;
    thread_ = std::thread([this] {
      for (std::unique_lock lock(mutex_);;) {
        changed_.wait(lock, [this] { return task_ || ends_; });
        if (!task_) return;
        std::exchange(task_, nullptr)();
      }
    });
  }
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
    worker = nullptr;
  }
  void Do(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    changed_.notify_one();
  }

 private:
  static void Lock() {
    if (worker != nullptr) worker->mutex_.lock();
  }
  static void Unlock() {
    if (worker != nullptr) worker->mutex_.unlock();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool ends_ = false;
  std::thread thread_;
};

// A thread of the program does the work; with a factor of 0 it never reports the end.
template <int factor>
class HandedOverOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    float* out = OutLike(*this);
    worker->Do([this, in = In(*this), out, count = Count(*this)] {
      for (int64_t i = 0; i < count; ++i) out[i] = factor * in[i];
      if (factor != 0) SetEventFinished();
    });
    return true;
  }
};
SCHEMA_OF_ONE(GoodHandedOver);
REGISTER_CPU_OPERATOR(GoodHandedOver, HandedOverOp<3>);
NO_GRADIENT(GoodHandedOver);
SCHEMA_OF_ONE(BadHandedOver);
REGISTER_CPU_OPERATOR(BadHandedOver, HandedOverOp<0>);

OPERATOR_SCHEMA(BadInferenceCrash).NumInputs(1).NumOutputs(1).Infer([](InferenceContext&) {
  std::abort();
});
REGISTER_CPU_OPERATOR(BadInferenceCrash, LambdaOp<kDouble>);

}  // namespace

TEST_CASE("a body for a stream that captures by reference is a sentence with the way to mend it") {
  const CheckReport report = CheckOperator("BadByReference", InChild());
  INFO(ToString(report));
  REQUIRE(report.findings.size() == 1);
  const std::string& found = report.findings[0];
  CHECK(found.starts_with("operator BadByReference crashes: "));
  CHECK(found.find("is the body of ParallelFor or Launch a [&]? It runs when RunOnDevice has "
                   "returned and its variables are gone: capture by value, [=]") !=
        std::string::npos);
  CHECK(found.ends_with("  [cpu_stream/reference; float32[2, 3]]"));
  CHECK(report.runs > 10);
}

TEST_CASE("a crash is reported with the operator and the trial, and earlier findings stay") {
  const CheckReport report = CheckOperator("BadAtRank3", InChild());
  INFO(ToString(report));
  CHECK(ToString(report).starts_with("operator BadAtRank3: 1 wrong in "));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0] ==
        "operator BadAtRank3 crashes: signal 11 (Segmentation fault), run by Run  [cpu/reference; "
        "float32[2, 3, 5]]");
  CHECK(report.notes ==
        std::vector<std::string>{"work on a stream, because no kernel is registered for cpu_stream",
                                 "its gradient, none is registered"});
  Expect(CheckOperator("BadInferenceCrash", InChild()),
         {"operator BadInferenceCrash crashes: signal 6 (Aborted), in its inference"});
}

TEST_CASE("a run that does not end is reported") {
  CheckOptions hasty = InChild();
  hasty.run.hang_seconds = 0.5;
  const CheckReport report = CheckOperator("BadForEver", hasty);
  INFO(ToString(report));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].starts_with("operator BadForEver hangs: no end within 0.5 s"));
}

TEST_CASE("a program whose streams and pool are in use checks operators in a child all the same") {
  CPUStreamContext used;
  ParallelFor(used, 10, [](int64_t) {});
  used.FinishDeviceComputation();
  opkit::ParallelFor(1 << 20, [](int64_t) {});
  Expect("BadByReference", {"operator BadByReference crashes"}, InChild());
}

TEST_CASE("an operator whose work a thread of the program does is checked beside that thread") {
  const Worker here;
  CheckOptions patient = InChild();
  patient.run.deadline_ms = 600'000;  // longer than this test may last: the child does not wait
  Expect("GoodHandedOver", {}, patient);
  CheckOptions hasty = InChild();
  hasty.run.deadline_ms = 10;
  Expect("BadHandedOver",
         {"nothing completes its event, which is still SCHEDULED 10 ms after RunAsync"}, hasty);
}

TEST_CASE("the finding of a hang in a child mentions that the child lacks the program's threads") {
  const Worker here;
  CheckOptions hasty = InChild();
  hasty.run.hang_seconds = 0.5;
  Expect("BadForEver", {"threads that this program had started do not run in the child"}, hasty);
}

TEST_CASE("the operator's errors cross from the child with their code") {
  OperatorDef def("BadAtRank3", {"x"}, {"y"});
  CheckOptions none = InChild();
  none.num_inputs = 5;
  try {
    CheckOperator("BadAtRank3", none);
    FAIL("accepted");
  } catch (const opkit::Error& error) {
    CHECK(error.code() == opkit::ErrorCode::kInvalidArgument);
    CHECK(error.message().starts_with("CheckOperator finds no node of BadAtRank3: "));
  }
}

}  // namespace check_crash_test

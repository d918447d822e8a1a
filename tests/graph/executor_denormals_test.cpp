// PlanOptions::schedule.flush_denormals: the threads of a run take denormal numbers as zeros, and
// no other work does.
#include <doctest/doctest.h>

#include <thread>

#include "opkit/engine/parallel_for.hpp"
#include "opkit/graph.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"

namespace executor_denormals_test {
using namespace opkit;

namespace {

constexpr float kDenormal = 1e-39f;
constexpr int64_t kElements = 64;

bool Flushes() {
  return (detail::ReadFloatControl() & detail::kFlushDenormalBits) == detail::kFlushDenormalBits;
}

// Doubles each element, in a loop that the threads share. Fails if the first element is negative.
class DoubleDenormalsOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const float* const in = x.data<float>();
    if (in[0] < 0) Throw(ErrorCode::kInvalidArgument, "the first element is negative");
    float* const out = Output(0, x.shape(), x.dtype())->mutable_data<float>();
    ParallelFor(
        x.numel(),
        [&](int64_t i) {
          // Long enough for other threads to join.
          volatile float value = in[i];
          for (int k = 0; k < 2000; ++k) value = value * 1.0f;
          out[i] = value * 2.0f;
        },
        1);
    return true;
  }
};
OPERATOR_SCHEMA(DoubleDenormals).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(DoubleDenormals, DoubleDenormalsOp);

// Runs DoubleDenormals in an executor of its own, whose plan does not ask for flushing.
class NestedDenormalsOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override;
};
OPERATOR_SCHEMA(NestedDenormals).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(NestedDenormals, NestedDenormalsOp);

// Two independent nodes, so that a run may use several threads.
Plan PlanOf(bool flushes, const char* type = "DoubleDenormals", int threads = 0) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {kElements});
  g.AddNode(OperatorDef(type, {"x"}, {"y"}));
  g.AddNode(OperatorDef("DoubleDenormals", {"x"}, {"z"}));
  g.AddOutput("y").AddOutput("z");
  PlanOptions options;
  options.threads = threads;
  options.schedule.flush_denormals = flushes;
  return Compile(g, options);
}
bool NestedDenormalsOp::RunOnDevice() {
  Executor inner(PlanOf(false));
  SetOutputTensor(0, inner.Run({{"x", Input(0)}})[0]);
  return true;
}
Tensor Filled(float value) {
  Tensor x({kElements}, DType::kFloat32);
  std::fill_n(x.mutable_data<float>(), kElements, value);
  return x;
}
bool AllAre(const NamedTensors& out, float value) {
  for (const NamedTensor& one : out)
    for (const float found : one.tensor.ToVector<float>())
      if (found != value) return false;
  return out.size() == 2;
}
const Tensor kX = Filled(kDenormal);

// More threads than one in the process's pool, for the test's life.
struct SharedPool {
  const int before = NumThreads();
  SharedPool() { SetNumThreads(4); }
  ~SharedPool() { SetNumThreads(before); }
};

}  // namespace

TEST_CASE("A run flushes denormal numbers on all of its threads if its plan asks for it") {
  const SharedPool pool;
  Executor flushing(PlanOf(true)), plain(PlanOf(false)), own(PlanOf(true, "DoubleDenormals", 3));
  for (int i = 0; i < 20; ++i) {  // the same threads, in turn
    CHECK(AllAre(flushing.Run({{"x", kX}}), 0));
    CHECK(!Flushes());
    CHECK(AllAre(plain.Run({{"x", kX}}), 2 * kDenormal));
    CHECK(AllAre(own.Run({{"x", kX}}), 0));
    CHECK(!Flushes());
  }
}

TEST_CASE("Runs of two plans at once, on one pool, keep their modes apart") {
  const SharedPool pool;
  std::atomic<int> wrong{0};
  const auto run = [&](bool flushes) {
    Executor exec(PlanOf(flushes));
    for (int i = 0; i < 50; ++i)
      if (!AllAre(exec.Run({{"x", kX}}), flushes ? 0 : 2 * kDenormal) || Flushes()) ++wrong;
  };
  std::thread first(run, true), second(run, false), third(run, true);
  first.join();
  second.join();
  third.join();
  CHECK(wrong == 0);
}

TEST_CASE("The caller's mode is put back after an error and by an asynchronous run") {
  Executor exec(PlanOf(true));
  CHECK_THROWS_AS(exec.Run({{"x", Filled(-1)}}), Error);
  CHECK(!Flushes());
  exec.Bind("x", kX);
  bool flushes_in_callback = true;
  Event event = exec.RunAsync();
  CHECK(!Flushes());
  event.SetCallback([&] { flushes_in_callback = Flushes(); });
  event.Finish();
  CHECK(AllAre(exec.outputs(), 0));
  exec.Bind("x", Filled(-1));
  event = exec.RunAsync();
  CHECK_THROWS_AS(event.Finish(), Error);
  CHECK(!Flushes());
  CHECK(!flushes_in_callback);
}

TEST_CASE(
    "A mode that the program has set itself stays, and threads made by a run do not have it") {
  const uint64_t before = detail::ReadFloatControl();
  detail::WriteFloatControl(before | detail::kFlushDenormalBits);
  {
    Executor exec(PlanOf(true, "DoubleDenormals", 2));
    CHECK(AllAre(exec.Run({{"x", kX}}), 0));
  }
  CHECK(Flushes());
  detail::WriteFloatControl(before);
  // The pool is new: its thread starts inside a run that flushes.
  ThreadPool pool(2, "denormals");
  const PoolScope scope(pool);
  {
    const detail::DenormalScope flushing(true);
    ParallelFor(
        100, [](int64_t) {}, 1);
  }
  std::atomic<int> flushing{0};
  for (int i = 0; i < 20; ++i)
    ParallelFor(
        64, [&](int64_t) { flushing += Flushes() ? 1 : 0; }, 1);
  CHECK(flushing == 0);
}

TEST_CASE("An executor inside a run flushes as the run around it does") {
  Executor flushing(PlanOf(true, "NestedDenormals")), plain(PlanOf(false, "NestedDenormals"));
  CHECK(AllAre(flushing.Run({{"x", kX}}), 0));
  CHECK(AllAre(plain.Run({{"x", kX}}), 2 * kDenormal));
}

}  // namespace executor_denormals_test

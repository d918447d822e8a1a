// RecordedRuns with a CUDA device, whose recordings are CUDA graphs: which runs launch a recording,
// that their results are those of the operators, and which plans are not recorded.
#include "opkit/graph/plan/recorded_runs.hpp"

#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/device/deferred_failure.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/observers.hpp"
#include "opkit/op/registration.hpp"

namespace recorded_runs_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0}, kCuda1{DeviceType::kCUDA, 1};
std::atomic<int> g_calls{0};      // of RunOnDevice
std::atomic<bool> g_held{false};  // kernels that begin wait while it is set

struct Hold {
  Hold() { g_held = true; }
  ~Hold() { g_held = false; }
};

// y = a + factor * b.
class RecordedAxpyOp : public Operator<CUDAContext> {
 public:
  RecordedAxpyOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), factor_(GetSingleArgument<float>("factor", 1.f)) {}
  bool RunOnDevice() override {
    ++g_calls;
    const Tensor &a = Input(0), &b = Input(1);
    Tensor* y = Output(0, a.shape(), a.dtype());
    ParallelFor(context_, a.numel(),
                [factor = factor_, from_a = a.data<float>(), from_b = b.data<float>(),
                 to = y->mutable_data<float>()](int64_t i) {
                  while (g_held) std::this_thread::yield();
                  to[i] = from_a[i] + factor * from_b[i];
                });
    return true;
  }

 private:
  float factor_;
};
OPERATOR_SCHEMA(RecordedAxpy)
    .NumInputs(2)
    .NumOutputs(1)
    .Arg("factor", "")
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CUDA_OPERATOR(RecordedAxpy, RecordedAxpyOp);

// y = x + 1, and something that a recording does not take.
class RecordedOddOp final : public Operator<CUDAContext> {
 public:
  RecordedOddOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), does_(GetSingleArgument<std::string>("does", "")) {}
  bool RunOnDevice() override {
    ++g_calls;
    const Tensor& x = Input(0);
    if (does_ == "allocates") Tensor(x.shape(), x.dtype(), kCuda0).mutable_data<float>();
    if (does_ == "waits") context_.FinishDeviceComputation();
    if (does_ == "returns a view") {
      OutputTensorAlias(0, x);
      return true;
    }
    Tensor* y = Output(0, x.shape(), x.dtype());
    ParallelFor(context_, x.numel(),
                [from = x.data<float>(), to = y->mutable_data<float>()](int64_t i) {
                  to[i] = from[i] + 1;
                });
    return true;
  }
  bool SupportsRecording() const override { return does_ != "refuses"; }

 private:
  const std::string does_;
};
OPERATOR_SCHEMA(RecordedOdd).NumInputs(1).NumOutputs(1).Arg("does", "").IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(RecordedOdd, RecordedOddOp);
OPERATOR_SCHEMA(RecordedRandom)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("does", "")
    .Stateful()
    .IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(RecordedRandom, RecordedOddOp);

OPERATOR_SCHEMA(RecordedUntyped).NumInputs(1).NumOutputs(1).Arg("does", "");
REGISTER_CUDA_OPERATOR(RecordedUntyped, RecordedOddOp);

// y = x * n, with n on the host.
class RecordedScaleOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    ++g_calls;
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    ParallelFor(context_, x.numel(),
                [n = *Input(1, DeviceType::kCPU).data<float>(), from = x.data<float>(),
                 to = y->mutable_data<float>()](int64_t i) { to[i] = from[i] * n; });
    return true;
  }
};
OPERATOR_SCHEMA(RecordedScale)
    .NumInputs(2)
    .NumOutputs(1)
    .InputsOnHost({1})
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CUDA_OPERATOR(RecordedScale, RecordedScaleOp);

class OnHostOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = 10 * x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(RecordedOnHost).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RecordedOnHost, OnHostOp);

// y = x. The device notes negative elements.
class RecordedNotesOp final : public Operator<CUDAContext>, public DefersFailures {
 public:
  using Operator::Operator;
  ~RecordedNotesOp() override { FinishWork(); }
  bool RunOnDevice() override {
    ++g_calls;
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    ParallelFor(
        context_, x.numel(),
        [from = x.data<float>(), to = y->mutable_data<float>(), found = &found_](int64_t i) {
          to[i] = from[i];
          if (from[i] < 0) *found = true;
        });
    return true;
  }
  void ThrowDeferred() override {
    if (!found_.exchange(false)) return;
    try {
      Throw(ErrorCode::kOutOfRange, "an element is negative");
    } catch (...) {
      RethrowWithContext();
    }
  }
  void DiscardDeferred() override { found_ = false; }

 private:
  std::atomic<bool> found_{false};
};
OPERATOR_SCHEMA(RecordedNotes).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(RecordedNotes, RecordedNotesOp);

using Floats = std::vector<float>;

OperatorDef Axpy(const std::string& a, const std::string& b, const std::string& y, float factor) {
  return OperatorDef("RecordedAxpy", {a, b}, {y}).Arg("factor", factor).Device(kCuda0);
}
OperatorDef Odd(const std::string& x, const std::string& y, const std::string& does) {
  return OperatorDef("RecordedOdd", {x}, {y}).Arg("does", does).Device(kCuda0);
}
// Two branches that join: y = (x + 2 w) + 3 (w + 5 x), each on a stream of its own, and a chain.
Graph Branches() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {Sym("n")}, kCuda0);
  graph.AddInput("w", DType::kFloat32, {Sym("n")}, kCuda0);
  graph.AddNode(Axpy("x", "w", "a", 2));
  graph.AddNode(Axpy("w", "x", "b", 5));
  graph.AddNode(Axpy("b", "w", "c", 0));
  graph.AddNode(Axpy("a", "c", "d", 3));
  graph.AddNode(Axpy("d", "a", "y", 0));
  graph.AddNode(Axpy("b", "a", "z", 1));
  graph.AddOutput("y");
  graph.AddOutput("z");
  return graph;
}
constexpr int kNodes = 6;
Graph OneNode(const OperatorDef& node) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}, kCuda0);
  graph.AddNode(node);
  graph.AddOutput("y");
  return graph;
}
Floats Y(const Floats& x, const Floats& w) {
  Floats y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] + 2 * w[i] + 3 * (w[i] + 5 * x[i]));
  return y;
}
Floats Z(const Floats& x, const Floats& w) {
  Floats z;
  for (size_t i = 0; i < x.size(); ++i) z.push_back(w[i] + 5 * x[i] + x[i] + 2 * w[i]);
  return z;
}
Tensor OnCuda(const Floats& values) {
  Tensor out(kCuda0);
  Copy(Tensor::From<float>({static_cast<int64_t>(values.size())}, values), &out);
  return out;
}
Floats OnHost(const Tensor& tensor) {
  Tensor host;
  Copy(tensor, &host);
  return host.ToVector<float>();
}
void Set(const Tensor& tensor, const Floats& values) {
  Tensor target = tensor;
  Copy(Tensor::From<float>({static_cast<int64_t>(values.size())}, values), &target);
}
// Counts what a piece of code makes the runtime do.
struct Counts {
  int64_t launches = fake::graph_launches();
  int calls = g_calls;
  int64_t launched() const { return fake::graph_launches() - launches; }
  int called() const { return g_calls - calls; }
};

}  // namespace

TEST_CASE("runs with bound tensors are recorded once and launch once, and follow the elements") {
  for (int threads : {1, 2}) {
    Executor executor(Compile(Branches(), {.threads = threads}));
    const Tensor x = OnCuda({1, 2, 3}), w = OnCuda({4, 5, 6});
    const Tensor y = OnCuda({0, 0, 0});
    executor.Bind("x", x);
    executor.Bind("w", w);
    executor.Bind("y", y);
    Counts counts;
    executor.Run();
    CHECK(counts.called() == kNodes);
    CHECK(counts.launched() == 0);
    executor.Run();
    CHECK(counts.called() == 2 * kNodes);  // recorded
    for (int run = 0; run < 5; ++run) {
      const float at = static_cast<float>(run);
      const Floats new_x = {at, -at, 2 + at}, new_w = {1, at, 3 * at};
      Set(x, new_x);
      Set(w, new_w);
      counts = {};
      if (run % 2 == 0)
        executor.Run();
      else
        executor.RunAsync().Finish();
      CHECK(counts.launched() == 1);
      CHECK(counts.called() == 0);
      CHECK(OnHost(y) == Y(new_x, new_w));
      CHECK(OnHost(executor.output("z")) == Z(new_x, new_w));
    }
  }
}

TEST_CASE("runs whose tensors change copy them through buffers after the second change") {
  for (int threads : {1, 2}) {
    Executor executor(Compile(Branches(), {.threads = threads}));
    std::vector<Tensor> held;
    for (int run = 0; run < 8; ++run) {
      const float at = static_cast<float>(run);
      const Floats x = {at, 1}, w = {3, at};
      held.push_back(OnCuda(x));
      held.push_back(OnCuda(w));
      const Counts counts;
      const NamedTensors outputs = executor.Run({{"x", held[held.size() - 2]}, {"w", held.back()}});
      CHECK(counts.launched() == (run >= 2));
      CHECK(counts.called() == (run <= 2 ? kNodes : 0));
      CHECK(OnHost(outputs.Get("y")) == Y(x, w));
      CHECK(OnHost(outputs.Get("z")) == Z(x, w));
    }
    for (const Tensor& tensor : held) CHECK(tensor.storage().use_count() == 1);
  }
}

TEST_CASE("recordings with the addresses of several sets of tensors are kept") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  const Tensor x[] = {OnCuda({1, 2}), OnCuda({3, 4})}, w = OnCuda({5, 6});
  executor.Bind("w", w);
  for (const Tensor& input : x) {
    executor.Bind("x", input);
    for (int run = 0; run < 3; ++run) executor.Run();
  }
  CHECK(fake::graphs() == 2);
  const Counts counts;
  for (int run = 0; run < 4; ++run) {
    executor.Bind("x", x[run % 2]);
    executor.Run();
    CHECK(OnHost(executor.output("y")) == Y(OnHost(x[run % 2]), {5, 6}));
  }
  CHECK(counts.launched() == 4);
  CHECK(counts.called() == 0);
  CHECK(fake::graphs() == 2);
}

TEST_CASE("outputs that the caller holds keep their elements while later runs are launched") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  executor.Bind("w", OnCuda({0, 0}));
  const Tensor x = OnCuda({0, 0});
  executor.Bind("x", x);
  std::vector<Tensor> results;
  const Counts counts;
  for (int run = 0; run < 6; ++run) {
    const float at = static_cast<float>(run);
    Set(x, {at, -at});
    executor.Run();
    results.push_back(executor.output("y"));
  }
  CHECK(counts.launched() == 4);
  for (size_t run = 0; run < results.size(); ++run) {
    const float at = static_cast<float>(run);
    CHECK(OnHost(results[run]) == Y({at, -at}, {0, 0}));
  }
}

TEST_CASE("each set of input shapes has its recordings") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  const Floats shapes[] = {{1, 2, 3}, {4, 5}};
  std::vector<Tensor> inputs;
  for (const Floats& values : shapes) inputs.push_back(OnCuda(values));
  for (int round = 0; round < 3; ++round)
    for (size_t shape = 0; shape < 2; ++shape)
      for (int run = 0; run < 3; ++run) {
        const Counts counts;
        const auto outputs = executor.Run({{"x", inputs[shape]}, {"w", inputs[shape]}});
        CHECK(OnHost(outputs.Get("y")) == Y(shapes[shape], shapes[shape]));
        if (run == 2) CHECK(counts.launched() == 1);
      }
}

TEST_CASE("copies from and to the host run before and behind the recording") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddInput("w", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("RecordedOnHost", {"x"}, {"x10"}));
  graph.AddNode(CopyToDevice("x10", "a", kCuda0));
  graph.AddNode(Axpy("a", "a", "b", 1));
  graph.AddNode(CopyToDevice("w", "v", kCuda0));
  graph.AddNode(Axpy("b", "v", "c", 1));
  graph.AddNode(CopyToDevice("c", "d", Device{}));
  graph.AddNode(OperatorDef("RecordedOnHost", {"d"}, {"y"}));
  graph.AddOutput("y");
  for (int threads : {1, 2}) {
    Executor executor(Compile(graph, {.threads = threads}));
    for (int run = 0; run < 5; ++run) {
      const float at = static_cast<float>(run);
      const Counts counts;
      const auto outputs = executor.Run(
          {{"x", Tensor::From<float>({2}, {at, 1})}, {"w", Tensor::From<float>({2}, {2, at})}});
      CHECK(outputs.Get("y").ToVector<float>() == Floats{10 * (20 * at + 2), 10 * (20 + at)});
      CHECK(counts.launched() == (run >= 1));
    }
  }
}

TEST_CASE("a plan says why its steps are not recorded, and its operators run") {
  const auto check = [](const Graph& graph, const std::string& why, PlanOptions options = {}) {
    CAPTURE(why);
    options.threads = 1;
    const Plan plan = Compile(graph, options);
    Executor executor(plan);
    const Tensor x = OnCuda({1, 2});
    const Counts counts;
    for (int run = 0; run < 4; ++run) executor.Run({{"x", x}});
    CHECK(counts.launched() == 0);
    CHECK(counts.called() >= 4);
    CHECK_MESSAGE(executor.ExplainMode().find(why) != std::string::npos, executor.ExplainMode());
    CHECK(ToString(plan).find(why) != std::string::npos);
  };
  check(OneNode(Odd("x", "y", "refuses")),
        "steps on cuda are not recorded: RecordedOdd (x) -> (y) does not support it");
  check(OneNode(OperatorDef("RecordedRandom", {"x"}, {"y"}).Device(kCuda0)),
        "may do something else in each run");
  check(OneNode(Odd("x", "y", "allocates")),
        "which would use the same memory again in each launch; in operator RecordedOdd (x) -> (y)");
  check(OneNode(Odd("x", "y", "waits")), "cudaStreamSynchronize");
  check(OneNode(Odd("x", "y", "returns a view")), "an operator left 'y' in other memory");
  check(OneNode(Odd("x", "y", "")), "", {.schedule = {.capture = false}});
  Graph between = OneNode(Odd("c", "y", ""));
  between.AddNode(Odd("x", "a", ""));
  between.AddNode(CopyToDevice("a", "b", Device{}));
  between.AddNode(CopyToDevice("b", "c", kCuda0));
  check(between, "CopyToDevice (b) -> (c) runs on the host between steps on cuda");
  Graph devices = OneNode(Odd("x", "y", ""));
  devices.AddNode(CopyToDevice("x", "a", kCuda1));
  devices.AddNode(Odd("a", "b", "").Device(kCuda1));
  devices.AddOutput("b");
  check(devices, "steps run on cuda and on cuda:1");
  check(OneNode(OperatorDef("RecordedUntyped", {"x"}, {"y"}).Device(kCuda0)),
        "the type of 'y' is known only after a run");
  Graph host = OneNode(OperatorDef("RecordedScale", {"x", "n"}, {"y"}).Device(kCuda0));
  host.AddInput("m", DType::kFloat32, {1});
  host.SetDefault("m", Tensor::From<float>({1}, {3}));
  host.AddNode(OperatorDef("RecordedOnHost", {"m"}, {"n"}));
  check(host, "a step on cuda reads 'n' in memory of cpu");
  Graph donated;
  donated.AddInput("x", DType::kFloat32, {2}, kCuda0);
  donated.AddNode(Odd("x", "a", ""));
  donated.AddNode(Odd("a", "y", ""));
  donated.AddOutput("y");
  check(donated, "lies in a donated input", {.memory = {.donated_inputs = {"x"}}});
}

TEST_CASE("a run that an observer or a profile watches calls the operators") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  executor.Bind("x", OnCuda({1, 2}));
  executor.Bind("w", OnCuda({1, 2}));
  for (int run = 0; run < 2; ++run) executor.Run();
  auto* time = Observe<TimeObserver>(executor.op(1));
  Counts counts;
  executor.Run();
  CHECK(time->runs() == 1);
  CHECK(counts.called() == kNodes);
  CHECK(counts.launched() == 0);
  executor.op(1).DetachObserver(time);
  counts = {};
  executor.Run();
  CHECK(counts.called() == 0);
  CHECK(counts.launched() == 1);
}

TEST_CASE("a kernel's failure in a recording fails the run, and the next run is right") {
  for (int threads : {1, 2}) {
    Executor executor(Compile(Branches(), {.threads = threads}));
    const Tensor x = OnCuda({1, 2});
    executor.Bind("x", x);
    executor.Bind("w", x);
    for (int run = 0; run < 3; ++run) executor.Run();
    const Counts counts;
    auto hold = std::make_unique<Hold>();
    const Event done = executor.RunAsync();
    fake::Await([&] { return counts.launched() >= 1; });
    fake::FailDevice(cudaErrorIllegalAddress);
    hold.reset();
    CHECK_THROWS_WITH_AS(done.Finish(), doctest::Contains("an illegal memory access"), Error);
    fake::FailDevice(cudaSuccess);
    for (int run = 0; run < 3; ++run) {
      executor.Run();
      CHECK(OnHost(executor.output("y")) == Y({1, 2}, {1, 2}));
    }
  }
}

TEST_CASE("a launch that fails fails the run") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  const Tensor x = OnCuda({1, 2});
  executor.Bind("x", x);
  executor.Bind("w", x);
  for (int run = 0; run < 3; ++run) executor.Run();
  fake::FailDevice(cudaErrorLaunchFailure);
  CHECK_THROWS_WITH_AS(executor.Run(), doctest::Contains("failed"), Error);
  fake::FailDevice(cudaSuccess);
  for (int run = 0; run < 3; ++run) executor.Run();
  CHECK(OnHost(executor.output("y")) == Y({1, 2}, {1, 2}));
}

TEST_CASE("a launch in flight is cancelled, keeps its memory, and the next runs are right") {
  // The second plan has no arena.
  for (const Graph& graph : {Branches(), OneNode(Axpy("x", "x", "y", 16))}) {
    Executor executor(Compile(graph, {.threads = 1}));
    const bool has_w = graph.inputs().size() == 2;
    Tensor x = OnCuda({1, 2});
    const Tensor w = OnCuda({1, 2});
    executor.Bind("x", x);
    if (has_w) executor.Bind("w", w);
    for (int run = 0; run < 3; ++run) executor.Run();
    auto hold = std::make_unique<Hold>();
    const Counts counts;
    const Event done = executor.RunAsync();
    fake::Await([&] { return counts.launched() >= 1; });
    CHECK(done.Query() == EventStatus::kScheduled);
    executor.Cancel();
    CHECK_THROWS_WITH_AS(done.Finish(), doctest::Contains("cancelled"), Error);
    executor.Bind("x", Tensor());
    CHECK(x.storage().use_count() > 1);  // the device may still read it
    hold.reset();
    executor.Bind("x", x);
    const Counts after;
    for (int run = 0; run < 3; ++run) {
      executor.Run();
      const Floats y = has_w ? Y({1, 2}, {1, 2}) : Floats{17, 34};
      CHECK(OnHost(executor.output("y")) == y);
    }
    CHECK(after.launched() == 2);
    executor.Bind("x", Tensor());
    executor.Run(std::vector<NamedTensor>{{"x", w}});
    fake::Await([&] { return x.storage().use_count() == 1; });
  }
}

TEST_CASE("what an operator's device notes fails the run at its end, without another launch") {
  Graph graph = OneNode(Odd("b", "y", ""));
  graph.AddNode(OperatorDef("RecordedNotes", {"x"}, {"a"}).Device(kCuda0));
  graph.AddNode(OperatorDef("RecordedNotes", {"a"}, {"b"}).Device(kCuda0));
  for (const bool asynchronous : {false, true}) {
    Executor executor(Compile(graph, {.threads = 1}));
    const Tensor x = OnCuda({1, 2});
    executor.Bind("x", x);
    executor.Bind("y", OnCuda({0, 0}));
    const auto run = [&] { asynchronous ? executor.RunAsync().Finish() : executor.Run(); };
    for (int round = 0; round < 5; ++round) {
      const Counts counts;
      Set(x, {1, -2});
      CHECK_THROWS_WITH_AS(
          run(), doctest::Contains("negative\n  in operator RecordedNotes (x) -> (a)"), Error);
      CHECK_THROWS_WITH_AS(executor.output("y"), doctest::Contains("has no value"), Error);
      Set(x, {3, 4});
      run();
      CHECK(OnHost(executor.output("y")) == Floats{4, 5});
      CHECK(counts.called() == (round == 0 ? 6 : 0));  // the second run is recorded
      CHECK(counts.launched() == (round == 0 ? 1 : 2));
    }
  }
}

TEST_CASE("a launch makes as few calls of CUDA for operators that defer failures as for others") {
  const auto calls_of = [](const OperatorDef& node) {
    Executor executor(Compile(OneNode(node), {.threads = 1}));
    executor.Bind("x", OnCuda({1, 2}));
    executor.Bind("y", OnCuda({0, 0}));
    for (int run = 0; run < 2; ++run) executor.Run();
    const auto count = [] {  // without the polls, which a run repeats until its end
      int64_t sum = 0;
      for (const char* call :
           {"cudaGraphLaunch", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamAddCallback",
            "cudaStreamIsCapturing", "cudaMemcpyAsync", "cudaStreamSynchronize",
            "cudaEventSynchronize", "cudaMallocFromPoolAsync", "cudaHostAlloc"})
        sum += fake::calls(call);
      return sum;
    };
    const int64_t before = count();
    for (int run = 0; run < 10; ++run) executor.Run();
    return count() - before;
  };
  const int64_t calls = calls_of(Odd("x", "y", ""));
  CHECK(calls_of(OperatorDef("RecordedNotes", {"x"}, {"y"}).Device(kCuda0)) == calls);
  // The launch, its mark, two looks for a capture by the program, and the notification.
  CHECK(calls == 10 * 6);
}

TEST_CASE("a deadline ends a run whose launch is held up") {
  Executor executor(Compile(Branches(), {.threads = 1}));
  const Tensor x = OnCuda({1, 2});
  executor.Bind("x", x);
  executor.Bind("w", x);
  for (int run = 0; run < 3; ++run) executor.Run();
  {
    const Hold hold;
    CHECK_THROWS_AS(executor.Run(std::chrono::milliseconds(1)), Error);
  }
  executor.Run();
  CHECK(OnHost(executor.output("y")) == Y({1, 2}, {1, 2}));
}

TEST_CASE("the end of an executor frees the memory and the graphs of its recordings") {
  Allocator& allocator = GetAllocator(DeviceType::kCUDA);
  fake::Await([&] { return allocator.live_bytes() == 0; });  // what earlier tests left on its way
  CHECK(fake::graphs() == 0);
  {
    Executor executor(Compile(Branches(), {.threads = 1}));
    for (int run = 0; run < 6; ++run)
      executor.Run({{"x", OnCuda(Floats(1000, 1))}, {"w", OnCuda(Floats(1000, 2))}});
    CHECK(fake::graphs() >= 1);
  }
  fake::Await([&] { return allocator.live_bytes() == 0 && fake::graphs() == 0; });
}

TEST_CASE("a run on a stream that the program captures is refused, and the capture stays valid") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  Executor executor(Compile(Branches(), {.threads = 1}));
  const Tensor x = OnCuda({1, 2});
  executor.Bind("x", x);
  executor.Bind("w", x);
  for (int run = 0; run < 3; ++run) executor.Run();
  const CUDAStreamScope scope(kCuda0, stream);
  const Counts counts;
  executor.Run();
  CHECK(counts.launched() == 1);  // on the program's stream
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK_THROWS_WITH_AS(executor.Run(), doctest::Contains("end the capture first"), Error);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  executor.Run();
  CHECK(OnHost(executor.output("y")) == Y({1, 2}, {1, 2}));
}

}  // namespace recorded_runs_test

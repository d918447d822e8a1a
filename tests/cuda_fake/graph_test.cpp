#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/registration.hpp"

namespace graph_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};
std::shared_ptr<std::latch> g_held;  // what operators' kernels wait for; null: nothing

// Holds up the kernels of the runs that begin while it lives.
struct Hold {
  Hold() { g_held = std::make_shared<std::latch>(1); }
  ~Hold() { std::exchange(g_held, nullptr)->count_down(); }
};

class FakeAddOneOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    fake::Enqueue(context_.cuda_stream(), [from = x.data<float>(), to = y->mutable_data<float>(),
                                           n = x.numel(), held = g_held] {
      if (held) held->wait();
      for (int64_t i = 0; i < n; ++i) to[i] = from[i] + 1;
    });
    return true;
  }
};
OPERATOR_SCHEMA(FakeAddOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(FakeAddOne, FakeAddOneOp);

// Each run calls the operators, whose kernels then wait for the Hold of that run.
PlanOptions Uncaptured(int threads) { return {.threads = threads, .schedule = {.capture = false}}; }
OperatorDef AddOne(const std::string& from, const std::string& to) {
  return OperatorDef("FakeAddOne", {from}, {to}).Device(kCuda0);
}
Graph Chain(int nodes) {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {2}, kCuda0);
  for (int i = 0; i < nodes; ++i) graph.AddNode(AddOne(StrCat("v", i), StrCat("v", i + 1)));
  graph.AddOutput(StrCat("v", nodes));
  return graph;
}
Tensor OnCuda(const std::vector<float>& values) {
  Tensor out(kCuda0);
  Copy(Tensor::From<float>({static_cast<int64_t>(values.size())}, values), &out);
  return out;
}
// Runs a chain whose kernels are held, and returns once its last step, the one with a notice, was
// issued.
Event RunUntilIssued(Executor& executor, const Tensor& x) {
  executor.Bind("v0", x);
  const int64_t notices = fake::callbacks();
  Event done = executor.RunAsync();
  fake::Await([&] { return fake::callbacks() > notices; });
  return done;
}
std::vector<float> OnHost(const Tensor& tensor) {
  Tensor host;
  Copy(tensor, &host);
  return host.ToVector<float>();
}

}  // namespace

TEST_CASE("a chain on the device gets one notice, and its memory is released at the run's end") {
  const Tensor x = OnCuda({1, 2});
  for (int threads : {1, 2}) {
    Executor executor(Compile(Chain(20), Uncaptured(threads)));
    for (int run = 0; run < 3; ++run)
      CHECK(OnHost(executor.Run({{"v0", x}}).Get("v20")) == std::vector<float>{21, 22});
    executor.Bind("v0", x);
    const int64_t notices = fake::callbacks();
    auto hold = std::make_unique<Hold>();
    const Event done = executor.RunAsync();
    fake::Await([&] { return fake::callbacks() > notices; });  // the last step was issued
    hold.reset();
    done.Finish();
    CHECK(fake::callbacks() == notices + 1);
    OperatorBase& first = executor.op(0);
    executor.Run({{"v0", x}});
    CHECK(first.event().state()->status() == EventStatus::kSuccess);  // without any call of Finish
    CHECK(first.event().state()->retained.empty());
    executor.Bind("v0", OnCuda({5, 6}));
    executor.Run();
    CHECK(OnHost(executor.output("v20")) == std::vector<float>{25, 26});
    CHECK(x.storage().use_count() == 1);
  }
}

TEST_CASE("branches on the device join, and every output is there when the run has ended") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}, kCuda0);
  graph.AddNode(AddOne("x", "a"));
  graph.AddNode(AddOne("a", "b"));
  graph.AddNode(AddOne("a", "c"));
  graph.AddNode(AddOne("c", "d"));
  for (const char* output : {"a", "b", "d"}) graph.AddOutput(output);
  for (int threads : {1, 2}) {
    Executor executor(Compile(graph, {.threads = threads}));
    for (int run = 0; run < 5; ++run) {
      const float at = static_cast<float>(run);
      const auto outputs = executor.Run({{"x", OnCuda({at, at})}});
      CHECK(OnHost(outputs.Get("a")) == std::vector<float>{at + 1, at + 1});
      CHECK(OnHost(outputs.Get("b")) == std::vector<float>{at + 2, at + 2});
      CHECK(OnHost(outputs.Get("d")) == std::vector<float>{at + 3, at + 3});
    }
  }
}

TEST_CASE("a plan over several GPUs copies values between them, and leaves the others alone") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  const auto add_one = [&](const std::string& from, const std::string& to, int device) {
    graph.AddNode(OperatorDef("FakeAddOne", {from}, {to}).Device(DeviceType::kCUDA, device));
  };
  add_one("x", "a", 0);
  add_one("a", "b", 2);
  add_one("a", "c", 1);
  add_one("c", "d", 0);
  for (const char* output : {"b", "d"}) graph.AddOutput(output);
  for (int threads : {1, 2}) {
    Executor executor(Compile(graph, {.threads = threads}));
    for (int run = 0; run < 3; ++run) {
      const float at = static_cast<float>(run);
      const auto outputs = executor.Run({{"x", Tensor::From<float>({2}, {at, 5})}});
      CHECK(OnHost(outputs.Get("b")) == std::vector<float>{at + 2, 7});
      CHECK(OnHost(outputs.Get("d")) == std::vector<float>{at + 3, 8});
    }
  }
}

TEST_CASE("an asynchronous run whose device is held is cancelled, and the next one is right") {
  Executor executor(Compile(Chain(5), Uncaptured(1)));
  Tensor x = OnCuda({1, 2});
  executor.Run({{"v0", x}});
  auto hold = std::make_unique<Hold>();
  const Event done = RunUntilIssued(executor, x);
  CHECK(done.Query() == EventStatus::kScheduled);
  executor.Cancel();
  CHECK_THROWS_WITH_AS(done.Finish(), doctest::Contains("cancelled"), Error);
  CHECK(x.storage().use_count() > 1);  // the device may still read it
  hold.reset();
  CHECK(OnHost(executor.Run({{"v0", OnCuda({3, 4})}}).Get("v5")) == std::vector<float>{8, 9});
}

TEST_CASE("a kernel's failure in the midst of a chain fails the run") {
  Executor executor(Compile(Chain(5), Uncaptured(1)));
  const Tensor x = OnCuda({1, 2});
  executor.Run({{"v0", x}});
  auto hold = std::make_unique<Hold>();
  const Event done = RunUntilIssued(executor, x);
  fake::FailDevice(cudaErrorIllegalAddress);
  hold.reset();
  CHECK_THROWS_WITH_AS(done.Finish(), doctest::Contains("an illegal memory access"), Error);
  fake::FailDevice(cudaSuccess);
  CHECK(OnHost(executor.Run({{"v0", x}}).Get("v5")) == std::vector<float>{6, 7});
}

}  // namespace graph_test

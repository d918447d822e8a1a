// How many calls of the CUDA runtime an operator, a step of a plan and a run of a recording make.
#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/registration.hpp"

namespace issue_test {
using namespace opkit;

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

std::vector<int64_t> g_calls;  // of the thread, when each RunOnDevice begins

class IssueAddOneOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    g_calls.push_back(fake::calls());
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    ParallelFor(context_, x.numel(),
                [from = x.data<float>(), to = y->mutable_data<float>()](int64_t i) {
                  to[i] = from[i] + 1;
                });
    return true;
  }
};
OPERATOR_SCHEMA(IssueAddOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(IssueAddOne, IssueAddOneOp);

OperatorDef AddOne(const std::string& from, const std::string& to) {
  return OperatorDef("IssueAddOne", {from}, {to}).Device(kCuda0);
}
Tensor Zeros() {
  Tensor out(kCuda0);
  Copy(Tensor::From<float>({2}, {0, 0}), &out);
  return out;
}

}  // namespace

TEST_CASE("an operator is issued with few calls beside its launch") {
  Workspace ws;
  *ws.CreateTensor("x") = Zeros();
  auto op = CreateOperator(AddOne("x", "y"), &ws);
  op->RunAsync();
  op->event().Finish();
  const int64_t sets = fake::calls("cudaSetDevice");
  // cudaStreamIsCapturing, the launch, cudaPeekAtLastError and cudaEventRecord; and, only on a
  // machine with several devices, cudaGetDevice for the check, the switch, the launch, and twice
  // for the event.
  int64_t before = fake::calls();
  op->RunAsync();
  CHECK(fake::calls() == before + 9);
  op->event().Finish();
  op->DisableEvent();
  const fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  op->RunAsync();  // asks for a notice, which frees the memory of later runs, too
  before = fake::calls();
  op->RunAsync();
  CHECK(fake::calls() == before + 7);  // no cudaEventRecord, nor its cudaGetDevice
  CHECK(fake::calls("cudaSetDevice") == sets);
}

TEST_CASE("a step of a chain costs a fixed number of calls, and a recording as many as one step") {
  Graph graph;
  graph.AddInput("v0", DType::kFloat32, {2}, kCuda0);
  for (int i = 0; i < 20; ++i) graph.AddNode(AddOne(StrCat("v", i), StrCat("v", i + 1)));
  graph.AddOutput("v20");
  Executor calling(Compile(graph, {.threads = 1, .schedule = {.capture = false}}));
  calling.Bind("v0", Zeros());
  calling.Run();
  g_calls.clear();
  calling.Run();
  REQUIRE(g_calls.size() == 20);
  // As an operator without cudaEventRecord, which the last step alone needs, and with two more
  // calls of cudaGetDevice for the wait.
  for (size_t i = 1; i < g_calls.size(); ++i) CHECK(g_calls[i] - g_calls[i - 1] == 9);

  Executor recording(Compile(graph, {.threads = 1}));
  recording.Bind("v0", Zeros());
  for (int run = 0; run < 3; ++run) recording.Run();
  const auto calls_of_run = [&](const char* name) {
    const int64_t before = fake::calls(name);
    recording.Run();
    return fake::calls(name) - before;
  };
  CHECK(calls_of_run("cudaGraphLaunch") == 1);
  CHECK(calls_of_run("cudaEventRecord") == 1);
  CHECK(calls_of_run("cudaStreamIsCapturing") == 2);
  // On a machine with several devices also one of cudaGetDevice before each of these. The event is
  // polled, and waited for, as often as the time of the run makes it.
  const auto more = [] {
    int64_t sum = -fake::calls("cudaGetDevice");
    for (const char* name : {"cudaStreamIsCapturing", "cudaGraphLaunch", "cudaEventRecord",
                             "cudaEventQuery", "cudaStreamWaitEvent"})
      sum += fake::calls(name);
    return sum;
  };
  const int64_t before = more();
  recording.Run();
  CHECK(more() == before);
  for (const char* name : {"cudaSetDevice", "cudaLaunchHostFunc", "cudaMemcpyAsync"})
    CHECK(calls_of_run(name) == 0);
}

}  // namespace issue_test

// Plans whose steps are recorded as a CUDA graph, on a device.
// tests/cuda_fake/recorded_runs_test.cpp tests the rules.
#include "device.cuh"
#include "opkit/graph/executor.hpp"
#include "opkit/op/operator.hpp"

namespace cuda_recording_test {
using namespace opkit;
using Values = std::vector<float>;

std::atomic<int> g_calls{0};  // of RunOnDevice

// z = x + factor * y.
class RecordedOp final : public opkit::Operator<CUDAContext> {
 public:
  RecordedOp(const OperatorDef& def, Workspace* ws)
      : Operator<CUDAContext>(def, ws), factor_(GetSingleArgument<float>("factor", 1.f)) {}
  bool RunOnDevice() override {
    ++g_calls;
    Tensor* out = Output(0, Input(0).shape(), Input(0).dtype());
    const float *x = Input(0).data<float>(), *y = Input(1).data<float>(), factor = factor_;
    float* z = out->mutable_data<float>();
    ParallelFor(context_, out->numel(),
                [=] OPKIT_DEVICE(int64_t i) { z[i] = x[i] + factor * y[i]; });
    return true;
  }

 private:
  const float factor_;
};
OPERATOR_SCHEMA(CudaTestRecorded)
    .NumInputs(2)
    .NumOutputs(1)
    .Arg("factor", "")
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CUDA_OPERATOR(CudaTestRecorded, RecordedOp);

// Chains of `length` nodes that add 1 and 2 to x, on two streams, and their sum.
static Graph TwoChains(int length) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {Sym("n")}, kCuda0);
  graph.AddInput("one", DType::kFloat32, {Sym("n")}, kCuda0);
  const auto add = [&](const std::string& x, const std::string& y, const std::string& z, float f) {
    graph.AddNode(OperatorDef("CudaTestRecorded", {x, y}, {z}).Arg("factor", f).Device(kCuda0));
  };
  for (int chain = 1; chain <= 2; ++chain)
    for (int i = 0; i < length; ++i)
      add(i == 0 ? "x" : StrCat("c", chain, "_", i), "one", StrCat("c", chain, "_", i + 1),
          static_cast<float>(chain));
  add(StrCat("c1_", length), StrCat("c2_", length), "y", 1);
  graph.AddOutput("y");
  return graph;
}
static Tensor OnCuda(float value, int64_t n) {
  Tensor out(kCuda0);
  Copy(Tensor::From<float>({n}, Values(static_cast<size_t>(n), value)), &out);
  return out;
}
static bool IsAll(const Tensor& tensor, float value) {
  Tensor host;
  Copy(tensor, &host);
  for (const float found : host.ToVector<float>())
    if (found != value) return false;
  return true;
}

}  // namespace cuda_recording_test

using namespace cuda_recording_test;

TEST_CASE("recorded runs give the operators' results, with bound tensors and with others") {
  NEEDS_CUDA_DEVICE();
  constexpr int kLength = 50;
  constexpr int64_t kN = 100'000;
  for (int threads : {1, 2}) {
    Executor executor(Compile(TwoChains(kLength), {.threads = threads}));
    executor.Bind("one", OnCuda(1, kN));
    const Tensor bound = OnCuda(0, kN);
    executor.Bind("x", bound);
    for (int run = 0; run < 5; ++run) {
      const float at = static_cast<float>(run);
      Tensor target = bound;
      Copy(OnCuda(at, kN), &target);
      const int calls = g_calls;
      executor.Run();
      CHECK(IsAll(executor.output("y"), 2 * at + 3 * kLength));
      if (run >= 2) CHECK(g_calls == calls);
    }
    std::vector<Tensor> held;
    for (int run = 0; run < 5; ++run) {
      const float at = static_cast<float>(run);
      held.push_back(OnCuda(at, kN));
      const int calls = g_calls;
      held.push_back(executor.Run({{"x", held.back()}}).Get("y"));
      CHECK(IsAll(held.back(), 2 * at + 3 * kLength));
      if (run >= 2) CHECK(g_calls == calls);
    }
    for (int run = 0; run < 5; ++run)
      CHECK(
          IsAll(held[static_cast<size_t>(2 * run + 1)], 2 * static_cast<float>(run) + 3 * kLength));
    CHECK(executor.ExplainMode().find("are recorded and repeated by one launch") !=
          std::string::npos);
  }
}

TEST_CASE("a recorded run behind a gate is cancelled, and the next run is right") {
  NEEDS_CUDA_DEVICE();
  Executor executor(Compile(TwoChains(3), {.threads = 1}));
  executor.Bind("one", OnCuda(1, 8));
  executor.Bind("x", OnCuda(5, 8));
  for (int run = 0; run < 3; ++run) executor.Run();
  {
    CUDAContext context(kCuda0);
    context.SwitchToDevice(0);
    const Gate gate(context.cuda_stream());
    CHECK_THROWS_AS(executor.Run(std::chrono::milliseconds(20)), Error);
  }
  executor.Run();
  CHECK(IsAll(executor.output("y"), 2 * 5 + 9));
}

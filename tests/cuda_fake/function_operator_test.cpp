#include "opkit/backends/cuda/function_operator.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "fake_runtime.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"
#include "support/function_ops.hpp"

namespace function_operator_test {
using namespace opkit;  // NOLINT: as an author writes it

namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0}, kCuda1{DeviceType::kCUDA, 1};

// f(i) for every i in [0, n) on the stream of the run: a kernel of host code.
template <class F>
void LaunchKernel(const OpResource& res, int64_t n, F f) {
  fake::Enqueue(static_cast<cudaStream_t>(res.stream()), [n, f] {
    for (int64_t i = 0; i < n; ++i) f(i);
  });
}

int g_cpu_calls = 0;
Status Square(const AttrMap&, OpIns in, OpOuts out, OpResource&) {
  ++g_cpu_calls;
  for (int64_t i = 0; i < in[0].size(); ++i)
    out[0].data<float>()[i] = in[0].data<float>()[i] * in[0].data<float>()[i];
  return SUCCESS;
}
Status SquareOnStream(const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
  LaunchKernel(res, in[0].size(), [x = in[0].data<float>(), y = out[0].data<float>()](int64_t i) {
    y[i] = x[i] * x[i];
  });
  return SUCCESS;
}
Status SquareBackwardOnStream(const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
  const float *dy = in[0].data<float>(), *x = in[1].data<float>();
  LaunchKernel(res, in[1].size(),
               [=, dx = out[0].data<float>()](int64_t i) { dx[i] = 2 * x[i] * dy[i]; });
  return SUCCESS;
}

// Adds the number of its runs; its gradient is the number of forward runs.
class Counter : public StatefulOp {
 public:
  int Forward(std::vector<OpTensor> in, std::vector<OpTensor> out, const OpResource& res) override {
    const auto runs = static_cast<float>(++runs_);
    LaunchKernel(
        res, in[0].size(),
        [=, x = in[0].data<float>(), y = out[0].data<float>()](int64_t i) { y[i] = x[i] + runs; });
    return SUCCESS;
  }
  int Backward(std::vector<OpTensor> in, std::vector<OpTensor> out,
               const OpResource& res) override {
    const auto runs = static_cast<float>(runs_);
    LaunchKernel(res, in[0].size(), [=, dx = out[0].data<float>()](int64_t i) { dx[i] = runs; });
    return SUCCESS;
  }

 private:
  int runs_ = 0;
};
Device g_state_device;
int MakeCounter(const AttrMap&, OpContext context, StatefulOp** state) {
  g_state_device = context.device;
  *state = new Counter;
  return SUCCESS;
}

REGISTER_OP(FakeFnBody).setForward(CallBody, "gpu").setInferShape(SameShape);
REGISTER_OP(FakeFnAsync).setForward(CallBody, "gpu").setInferShape(SameShape).async();
REGISTER_OP(FakeFnAdding).setForward(CallBody, "gpu").setInferShape(SameShape).acceptsAdd();
REGISTER_OP(FakeFnScratch)
    .setForward(CallBody, "gpu")
    .setInferShape(SameShape)
    .scratch([](const AttrMap&, const ShapeVectors& in) { return 4 * in[0][0]; });
REGISTER_OP(FakeFnSquare)
    .setForward(Square, "cpu")
    .setForward(SquareOnStream, "gpu")
    .setBackward(SquareBackwardOnStream, "gpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);
REGISTER_OP(FakeFnCounter)
    .setCreateOpState(MakeCounter, "gpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = x + 1, through memory that the run allocates.
struct AllocatedMemory {
  float* data = nullptr;
  void* temporary = nullptr;

  void Add1(OpIns in, OpOuts out, OpResource& res) {
    const int64_t n = in[0].size();
    data = res.alloc<float>(n);
    const OpTensor sum = res.temporary({n}, DType::kFloat32);
    temporary = sum.raw_data();
    CHECK(sum.device() == kCuda0);
    const float* x = in[0].data<float>();
    LaunchKernel(res, n, [x, kept = data](int64_t i) { kept[i] = x[i]; });
    LaunchKernel(res, n,
                 [kept = data, to = sum.data<float>(), y = out[0].data<float>()](int64_t i) {
                   y[i] = to[i] = kept[i] + 1;
                 });
  }
  bool IsOnDevice() const { return fake::DeviceOf(data) == 0 && fake::DeviceOf(temporary) == 0; }
  bool IsFree() const { return fake::DeviceOf(data) == -1 && fake::DeviceOf(temporary) == -1; }
};

}  // namespace

TEST_CASE("a function's work is in order with the copies around it, and the host waits for none") {
  Bench bench(kCuda0);
  bench.Add("x", {0, 0});
  Tensor source({DeviceType::kCUDAHost, 0}), result({DeviceType::kCUDAHost, 0});
  Copy(Tensor::From<float>({2}, {3, 4}), &source);
  OperatorBase& op = bench.Create("FakeFnSquare");
  CUDAContext context(kCuda0);
  context.SwitchToDevice(1);
  const int64_t waits = fake::host_waits(), synchronizations = fake::device_synchronizations();
  auto issue = [&] {
    CopyAsync(context, source, bench.ws.GetTensor("x"));
    op.RunAsync(1);
    CopyAsync(context, *bench.ws.GetTensor("y"), &result);
  };
  issue();
  REQUIRE(fake::host_waits() == waits);  // here, for no gate lets such a wait pass
  REQUIRE(fake::device_synchronizations() == synchronizations);
  context.FinishDeviceComputation();
  CHECK(result.ToVector<float>() == Floats{9, 16});

  fake::Gate gate(context.cuda_stream());
  source.mutable_data<float>()[0] = 5;
  issue();
  CHECK(result.ToVector<float>() == Floats{9, 16});
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(result.ToVector<float>() == Floats{25, 16});
}

TEST_CASE("a function for \"gpu\" is called when work is issued, with the stream of the run") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2, 3});
  int calls = 0;
  void* stream = nullptr;
  g_body = [&](OpIns in, OpOuts out, OpResource& res) -> Status {
    ++calls;
    stream = res.stream();
    CHECK(res.device() == kCuda0);
    CHECK(in[0].device() == kCuda0);
    CHECK(out[0].device() == kCuda0);
    CHECK(fake::DeviceOf(in[0].raw_data()) == 0);
    CHECK(fake::DeviceOf(out[0].raw_data()) == 0);
    return SquareOnStream({}, in, out, res);
  };
  OperatorBase& op = bench.Create("FakeFnBody");
  CHECK(op.HasAsyncPart());
  CHECK(calls == 0);
  {
    fake::Gate gate(CUDAStream::Get(kCuda0, 2).handle());
    CHECK(op.RunAsync(2));
    CHECK(calls == 1);
    CHECK(stream == CUDAStream::Get(kCuda0, 2).handle());
    CHECK(op.event().Query() == EventStatus::kScheduled);
  }
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{1, 4, 9});

  CHECK(op.Run(0));
  CHECK(stream == CUDAStream::Get(kCuda0, 0).handle());
  cudaStream_t foreign = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking) == cudaSuccess);
  CUDAStreamScope scope(kCuda0, foreign);
  CHECK(op.Run(0));
  CHECK(stream == foreign);
  CHECK(calls == 3);
}

TEST_CASE("an operator has a function for each device, and runs that of its own") {
  Bench on_cpu, on_cuda(kCuda0);
  for (Bench* bench : {&on_cpu, &on_cuda}) bench->Add("x", {-1, 2, 3});
  g_cpu_calls = 0;
  on_cuda.Create("FakeFnSquare").Run();
  CHECK(g_cpu_calls == 0);
  on_cpu.Create("FakeFnSquare").Run();
  CHECK(g_cpu_calls == 1);
  CHECK(on_cuda.ws.GetTensor("y")->device() == kCuda0);
  CHECK(on_cuda.Values("y") == on_cpu.Values("y"));
}

TEST_CASE(
    "an operator invoked on CUDA issues its work on the stream of the run, and is kept ready") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2, 3});
  g_body = [](OpIns in, OpOuts out, OpResource& res) {
    const OpTensor square = res.temporary(in[0].shape(), in[0].dtype());
    res.invoke("FakeFnSquare", {in[0]}, {square});
    res.invoke("FakeFnCounter", {square}, {out[0]});
    return SUCCESS;
  };
  OperatorBase& op = bench.Create("FakeFnBody");
  {
    const int64_t waits = fake::host_waits(), synchronizations = fake::device_synchronizations();
    fake::Gate gate(CUDAStream::Get(kCuda0, 2).handle());
    op.RunAsync(2);
    CHECK(fake::host_waits() == waits);
    CHECK(fake::device_synchronizations() == synchronizations);
    CHECK(op.event().Query() == EventStatus::kScheduled);
  }
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{2, 5, 10});
  op.RunAsync(2);
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{3, 6, 11});  // the counter's second run
}

TEST_CASE("memory of a run is the device's, and there until the stream has come past the run") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  AllocatedMemory memory;
  g_body = [&](OpIns in, OpOuts out, OpResource& res) -> Status {
    CHECK(res.alloc(0) == nullptr);
    memory.Add1(in, out, res);
    return SUCCESS;
  };
  OperatorBase& op = bench.Create("FakeFnBody");
  fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  op.RunAsync(0);
  CHECK(memory.IsOnDevice());
  gate.Open();
  op.event().Finish();
  CHECK(memory.IsFree());
  CHECK(bench.Values("y") == Floats{2, 3});
}

TEST_CASE("after a failure the memory of issued work lives until the stream has passed it") {
  auto bench = std::make_unique<Bench>(kCuda0);
  bench->Add("x", {1, 2});
  AllocatedMemory memory;
  void* y = nullptr;
  g_body = [&](OpIns in, OpOuts out, OpResource& res) {
    memory.Add1(in, out, res);
    y = out[0].raw_data();
    return Status::Failure("no luck");
  };
  OperatorBase& op = bench->Create("FakeFnBody");
  fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  const Error error = ErrorOf([&] { op.RunAsync(0); });
  CHECK(error.code() == ErrorCode::kOperatorFailed);
  CHECK(error.message() == "forward of operator FakeFnBody failed: no luck");
  CHECK(Contains(error.what(), "in operator FakeFnBody (x) -> (y), on cuda"));
  CHECK(op.event().Query() == EventStatus::kFailed);
  bench.reset();
  CHECK(memory.IsOnDevice());
  CHECK(fake::DeviceOf(y) == 0);
  gate.Open();
  fake::Await([&] { return memory.IsFree() && fake::DeviceOf(y) == -1; });
}

TEST_CASE("a launch that a function did not check fails its run") {
  Bench bench(kCuda0);
  bench.Add("x", {1});
  g_body = [](OpIns, OpOuts, OpResource&) -> Status {
    fake::SetLastError(cudaErrorInvalidConfiguration);
    return SUCCESS;
  };
  OperatorBase& op = bench.Create("FakeFnBody");
  const Error error = ErrorOf([&] { op.RunAsync(); });
  CHECK(Contains(error.message(), "cudaErrorInvalidConfiguration"));
  CHECK(Contains(error.what(), "in operator FakeFnBody (x) -> (y), on cuda"));
  CHECK(op.event().Query() == EventStatus::kFailed);
}

TEST_CASE("calls that only the host's own streams allow are refused, with the operator's name") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  auto run = [&](auto body) {
    g_body = [&](OpIns in, OpOuts out, OpResource& res) -> Status {
      body(in, out, res);
      return SUCCESS;
    };
    OperatorBase& op = bench.Create("FakeFnBody");
    const Error error = ErrorOf([&] { op.RunAsync(); });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.what(), "in forward of operator FakeFnBody"));
    CHECK(op.event().Query() == EventStatus::kFailed);
    return error.message();
  };
  const auto captured = std::make_shared<int>(0);
  const std::string launch =
      "launch in operator FakeFnBody is not possible on cuda; issue the work on stream() yourself";
  CHECK(run([&](OpIns, OpOuts, OpResource& res) { res.launch([captured] { ++*captured; }); }) ==
        launch);
  CHECK(run([&](OpIns, OpOuts, OpResource& res) {
          res.parallel_for(2, [captured](int64_t) { ++*captured; });
        }) == launch);
  g_body = {};
  CHECK(captured.use_count() == 1);
  CHECK(*captured == 0);
}

TEST_CASE("a run on CUDA is not deferred: its stream completes it") {
  Bench bench(kCuda0);
  bench.Add("x", {3});
  g_body = [](OpIns, OpOuts, OpResource& res) -> Status {
    res.defer().Complete();
    return SUCCESS;
  };
  OperatorBase& op = bench.Create("FakeFnAsync");
  const Error error = ErrorOf([&] { op.RunAsync(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  CHECK(error.message() ==
        "defer() in operator FakeFnAsync, which runs on a stream already: issue the work there");
  g_body = [](OpIns in, OpOuts out, OpResource& res) { return SquareOnStream({}, in, out, res); };
  op.RunAsync();
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{9});
}

TEST_CASE("strided inputs and results to be added up are the functions' own affair on CUDA") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2});
  bench.Add("y", {10, 20});
  OpReq seen{};
  g_body = [&](OpIns in, OpOuts out, OpResource& res) -> Status {
    seen = out[0].req();
    LaunchKernel(res, in[0].size(),
                 [add = seen == OpReq::kAdd, x = in[0].data<float>(),
                  y = out[0].data<float>()](int64_t i) { y[i] = x[i] + (add ? y[i] : 0); });
    return SUCCESS;
  };
  OperatorBase& adding = bench.Create("FakeFnAdding");
  SetOutputReq(adding, 0, OpReq::kAdd);
  adding.Run();
  CHECK(seen == OpReq::kAdd);
  CHECK(bench.Values("y") == Floats{11, 22});

  OperatorBase& plain = bench.Create("FakeFnBody");
  SetOutputReq(plain, 0, OpReq::kAdd);
  const Error error = ErrorOf([&] { plain.Run(); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        "results cannot be added up on cuda; write functions that respect OpReq::kAdd and say "
        ".acceptsAdd()");
  CHECK(bench.Values("y") == Floats{11, 22});

  *bench.ws.GetTensor("x") =
      Tensor({2, 3}, DType::kFloat32, kCuda0).Permute(std::vector<int>{1, 0});
  CHECK(Contains(ErrorOf([&] { bench.Create("FakeFnBody").Run(); }).message(),
                 "input 0 of operator FakeFnBody has strides and cannot be copied"));
}

TEST_CASE("scratch's memory is the device's, kept from run to run and while work may use it") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2, 3});
  void* scratch = nullptr;
  g_body = [&](OpIns in, OpOuts out, OpResource& res) -> Status {
    scratch = res.scratch();
    CHECK(res.scratch_bytes() == 4 * in[0].size());
    auto* kept = static_cast<float*>(scratch);
    const float* x = in[0].data<float>();
    LaunchKernel(res, in[0].size(), [=](int64_t i) { kept[i] = 2 * x[i]; });
    LaunchKernel(res, in[0].size(), [=, y = out[0].data<float>()](int64_t i) { y[i] = kept[i]; });
    return SUCCESS;
  };
  OperatorBase& op = bench.Create("FakeFnScratch");
  op.Run();
  CHECK(fake::DeviceOf(scratch) == 0);
  const void* first = scratch;
  op.Run();
  CHECK(scratch == first);
  CHECK(bench.Values("y") == Floats{2, 4, 6});

  fake::Gate gate(CUDAStream::Get(kCuda0, 1).handle());
  op.RunAsync(1);
  bench.op.reset();
  CHECK(fake::DeviceOf(first) == 0);
  gate.Open();
  fake::Await([&] { return fake::DeviceOf(first) == -1; });
  CHECK(bench.Values("y") == Floats{2, 4, 6});
}

TEST_CASE("a state sees its CUDA device and runs on its streams, forward and backward") {
  for (const Device device : {kCuda0, kCuda1}) {
    Bench bench(device);
    bench.Add("x", {10, 20});
    bench.Add("dy", {1, 1});
    g_state_device = {};
    OperatorBase& forward = bench.Create("FakeFnCounter");
    CHECK(g_state_device == device);
    forward.Run();
    fake::Gate gate(CUDAStream::Get(device, 1).handle());
    forward.RunAsync(1);
    CHECK(forward.event().Query() == EventStatus::kScheduled);
    gate.Open();
    forward.event().Finish();
    CHECK(bench.Values("y") == Floats{12, 22});

    const GradientOpsMeta gradient = GetGradientForOp(forward.def(), {"dy"});
    REQUIRE(gradient.ops.size() == 1);
    CreateOperator(gradient.ops[0], &bench.ws)->Run();
    CHECK(bench.Values(gradient.g_input[0].dense) == Floats{2, 2});
  }
}

TEST_CASE("the gradient operator runs on the device of its operator, after it") {
  Bench bench(kCuda0);
  bench.Add("x", {1, 2, 3});
  bench.Add("dy", {1, 10, 100});
  OperatorBase& forward = bench.Create("FakeFnSquare");
  const GradientOpsMeta gradient = GetGradientForOp(forward.def(), {"dy"});
  REQUIRE(gradient.ops.size() == 1);
  CHECK(gradient.ops[0].type() == "FakeFnSquare_backward");
  CHECK(gradient.ops[0].device() == kCuda0);
  auto backward = CreateOperator(gradient.ops[0], &bench.ws);
  {
    fake::Gate gate(CUDAStream::Get(kCuda0, 0).handle());
    forward.RunAsync(0);
    backward->Wait(forward, 1);
    backward->RunAsync(1);
    CHECK(backward->event().Query() == EventStatus::kScheduled);
  }
  backward->event().Finish();
  CHECK(bench.Values("y") == Floats{1, 4, 9});
  CHECK(bench.ws.GetTensor(gradient.g_input[0].dense)->device() == kCuda0);
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{2, 40, 600});
}

}  // namespace function_operator_test

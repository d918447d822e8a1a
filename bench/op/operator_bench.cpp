// The cost of an operator without its kernel: Run against a plain virtual call in the same program,
// RunAsync, creation, access to inputs and outputs, observers, and Invoke. Then a kernel by
// BenchmarkOperator.
#include <vector>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/interop/google_benchmark.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/registration.hpp"

namespace {

using opkit::CPUContext;
using opkit::DType;
using opkit::Operator;
using opkit::OperatorBase;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;

// The peer: the cheapest call by an interface.
class PlainNode {
 public:
  virtual ~PlainNode() = default;
  virtual bool Run(int stream_id) = 0;
};
class EmptyNode final : public PlainNode {
 public:
  bool Run(int) override { return true; }
};
// A second class, so that compilers do not guess the first class and inline its call.
class OtherNode final : public PlainNode {
 public:
  bool Run(int stream_id) override { return stream_id == 0; }
};
template <class Context>
class EmptyOp final : public Operator<Context> {
 public:
  using Operator<Context>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(BenchEmpty).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(BenchEmpty, EmptyOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(BenchEmpty, EmptyOp<opkit::CPUStreamContext>);

// Does only the steps of every operator: reads its inputs and gets its output.
class AccessOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const Tensor& y = Input(1);
    Tensor* z = Output(0, x.shape(), x.dtype());
    benchmark::DoNotOptimize(x.data<float>());
    benchmark::DoNotOptimize(y.data<float>());
    benchmark::DoNotOptimize(z->mutable_data<float>());
    return true;
  }
};
OPERATOR_SCHEMA(BenchAccess).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(BenchAccess, AccessOp);

class AxpyOp final : public Operator<CPUContext> {
 public:
  AxpyOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), alpha_(GetSingleArgument<float>("alpha", 1.f)) {}
  bool RunOnDevice() override {
    const Tensor& in = Input(0);
    const float *x = in.data<float>(), *y = Input(1).data<float>();
    float* z = Output(0, in.shape(), in.dtype())->mutable_data<float>();
    const float alpha = alpha_;
    for (int64_t i = 0, n = in.numel(); i < n; ++i) z[i] = alpha * x[i] + y[i];
    return true;
  }

 private:
  float alpha_;
};
OPERATOR_SCHEMA(BenchAxpy)
    .NumInputs(2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg<float>("alpha", "factor of x", 1.f)
    .PointwiseCost(2);
REGISTER_CPU_OPERATOR(BenchAxpy, AxpyOp);

struct Fixture {
  explicit Fixture(const char* op, int64_t n = 4) {
    for (const char* name : {"x", "y"})
      *ws.CreateTensor(name) = opkit::RandomTensor(Shape{n}, DType::kFloat32, 1);
    node = opkit::CreateOperator(OperatorDef(op, {"x", "y"}, {"z"}), &ws);
    node->Run();
  }
  Workspace ws;
  std::unique_ptr<OperatorBase> node;
};

void PlainVirtualCall(benchmark::State& state) {
  EmptyNode empty;
  OtherNode other;
  PlainNode* node = state.max_iterations > 0 ? static_cast<PlainNode*>(&empty) : &other;
  benchmark::DoNotOptimize(node);  // hides the class from the compiler
  for (auto _ : state) benchmark::DoNotOptimize(node->Run(0));
}
BENCHMARK(PlainVirtualCall);

void RunEmpty(benchmark::State& state) {
  Fixture f("BenchEmpty");
  for (auto _ : state) benchmark::DoNotOptimize(f.node->Run());
}
BENCHMARK(RunEmpty);

void RunEmptyObserved(benchmark::State& state) {
  Fixture f("BenchEmpty");
  f.node->AttachObserver(std::make_unique<opkit::ObserverBase<OperatorBase>>(f.node.get()));
  for (auto _ : state) benchmark::DoNotOptimize(f.node->Run());
}
BENCHMARK(RunEmptyObserved);

void RunAsyncEmpty(benchmark::State& state) {
  Fixture f("BenchEmpty");
  for (auto _ : state) benchmark::DoNotOptimize(f.node->RunAsync());
}
BENCHMARK(RunAsyncEmpty);

void RunAsyncEmptyWithoutEvent(benchmark::State& state) {
  Fixture f("BenchEmpty");
  f.node->DisableEvent();
  for (auto _ : state) benchmark::DoNotOptimize(f.node->RunAsync());
}
BENCHMARK(RunAsyncEmptyWithoutEvent);

void RunTwoInputsOneOutput(benchmark::State& state) {
  Fixture f("BenchAccess");
  for (auto _ : state) benchmark::DoNotOptimize(f.node->Run());
}
BENCHMARK(RunTwoInputsOneOutput);

void CreateAndDestroy(benchmark::State& state) {
  Fixture f("BenchAxpy");
  const OperatorDef def("BenchAxpy", {"x", "y"}, {"z"}, {{"alpha", 2.f}});
  for (auto _ : state) benchmark::DoNotOptimize(opkit::CreateOperator(def, &f.ws));
}
BENCHMARK(CreateAndDestroy);

void InvokeByName(benchmark::State& state) {
  Fixture f("BenchAccess");
  const std::vector<Tensor> inputs{*f.ws.GetTensor("x"), *f.ws.GetTensor("y")};
  for (auto _ : state) benchmark::DoNotOptimize(opkit::Invoke("BenchAccess", inputs));
}
BENCHMARK(InvokeByName);

// Target: within 150 ns of RunTwoInputsOneOutput, which is the kernel of this benchmark.
void InvokeHandleIntoOutputs(benchmark::State& state) {
  Fixture f("BenchAccess");
  const std::vector<Tensor> inputs{*f.ws.GetTensor("x"), *f.ws.GetTensor("y")};
  std::vector<Tensor> outputs(1);
  opkit::ResolvedOperator handle("BenchAccess", 2);
  for (auto _ : state) handle.Run(inputs, outputs);
}
BENCHMARK(InvokeHandleIntoOutputs);

void InvokeHandleNewOutputs(benchmark::State& state) {
  Fixture f("BenchAccess");
  const std::vector<Tensor> inputs{*f.ws.GetTensor("x"), *f.ws.GetTensor("y")};
  opkit::ResolvedOperator handle("BenchAccess", 2);
  for (auto _ : state) benchmark::DoNotOptimize(handle(inputs));
}
BENCHMARK(InvokeHandleNewOutputs);

[[maybe_unused]] const bool registered =
    opkit::BenchmarkOperator("BenchAxpy", {{16}, {1024}, {1 << 20}});

}  // namespace

// Inputs with strides: dense in an operator's RunOnDevice unless it says that it follows them.
#include <doctest/doctest.h>

#include "op/body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"

namespace operator_strides_test {
using namespace opkit;

namespace {

constexpr Device kStream{DeviceType::kCPUStream, 0};

// Reads its input as if it were dense.
template <class Context>
class RawCopyOp : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const float* in = x.template data<float>();
    float* out = y->template mutable_data<float>();
    ParallelFor(context_, x.numel(), [=](int64_t i) { out[i] = in[i]; });
    return true;
  }
};
OPERATOR_SCHEMA(StridesRawCopy).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(StridesRawCopy, RawCopyOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(StridesRawCopy, RawCopyOp<CPUStreamContext>);

class FollowsStridesOp final : public RawCopyOp<CPUContext> {
 public:
  using RawCopyOp::RawCopyOp;
  bool AcceptsStrides() const override { return true; }
};
OPERATOR_SCHEMA(StridesFollowed).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(StridesFollowed, FollowsStridesOp);

// Gives its output strides.
class ViewOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    SetOutputTensor(0, Input(0).Permute({1, 0}));
    return true;
  }
};
OPERATOR_SCHEMA(StridesView).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(0)[1], c.input_shape(0)[0]});
});
REGISTER_CPU_OPERATOR(StridesView, ViewOp);

OPERATOR_SCHEMA(StridesMutated)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .MutatesInputs([](const OperatorDef&) { return std::vector<int>{0}; });
REGISTER_CPU_OPERATOR(StridesMutated, RawCopyOp<CPUContext>);

Tensor Matrix() { return Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6}); }
Tensor Strided() { return Matrix().Permute({1, 0}); }  // [3, 2]
const std::vector<float> kStrided{1, 4, 2, 5, 3, 6};

BodyOpCPU MakeBody(Workspace& ws, Tensor x, BodyOpCPU::Body body) {
  *ws.CreateTensor("x") = std::move(x);
  return {OperatorDef("Body", {"x"}, {"y"}), &ws, std::move(body)};
}

}  // namespace

TEST_CASE("a class operator that reads its input as if it were dense gets it dense") {
  for (const Device device : {Device{}, kStream}) {
    InvokeOptions options;
    options.device = device;
    CHECK(Invoke("StridesRawCopy", {Strided()}, {}, options)[0].ToVector<float>() == kStrided);
  }
}

TEST_CASE("an operator that declares to follow strides gets them") {
  CHECK(Invoke("StridesFollowed", {Strided()})[0].ToVector<float>() ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("an input with strides in the middle of a plan arrives dense as well") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2, 3});
  graph.AddNode(OperatorDef("StridesView", {"x"}, {"v"}));
  graph.AddNode(OperatorDef("StridesRawCopy", {"v"}, {"y"}));
  graph.AddOutput("y");
  Executor executor(Compile(graph));
  for (int run = 0; run < 2; ++run)
    CHECK(executor.Run({{"x", Matrix()}}).Get("y").ToVector<float>() == kStrided);
}

TEST_CASE("the copy is made once a run, anew in each, and gone with it") {
  Workspace ws;
  std::vector<float> seen;
  auto op = MakeBody(ws, Strided(), [&](BodyOpCPU& self) {
    const Tensor& x = self.Input(0);
    CHECK(x.is_dense());
    CHECK(&self.Input(0) == &x);
    CHECK(&self.DenseInput(0) == &x);
    seen = x.ToVector<float>();
    return true;
  });
  const int64_t before = GetAllocator(DeviceType::kCPU).live_bytes();
  op.Run();
  CHECK(seen == kStrided);
  CHECK(GetAllocator(DeviceType::kCPU).live_bytes() == before);
  CHECK(op.Input(0).ToVector<float>() == kStrided);  // between runs, as an observer asks
  *ws.CreateTensor("x") = Strided();
  ws.GetTensor("x")->mutable_data<float>()[0] = 9;
  op.Run();
  CHECK(seen == std::vector<float>{9, 4, 2, 5, 3, 6});
}

TEST_CASE("on a stream the copy is made in order and lives until the work is done") {
  Workspace ws;
  Tensor base = Tensor::From<float>({2, 2}, {0, 0, 0, 0});
  *ws.CreateTensor("x") = base.Permute({1, 0});
  auto op = CreateOperator(OperatorDef("StridesRawCopy", {"x"}, {"y"}).Device(kStream), &ws);
  Event open(kStream);  // the stream's work waits for it
  open.SetScheduled();
  detail::CPUStream::Get(kStream, 4).WaitEvent(open);
  detail::CPUStream::Get(kStream, 4).Launch([base]() mutable {
    for (int i = 0; i < 4; ++i) base.mutable_data<float>()[i] = static_cast<float>(i);
  });
  op->RunAsync(4);
  CHECK(op->event().Query() == EventStatus::kScheduled);
  open.SetFinished();
  op->event().Finish();
  CHECK(ws.GetTensor("y")->ToVector<float>() == std::vector<float>{0, 2, 1, 3});
}

TEST_CASE("an input that is written to is not copied but refused") {
  Workspace ws;
  *ws.CreateTensor("x") = Strided();
  const auto op = CreateOperator(OperatorDef("StridesMutated", {"x"}, {"y"}), &ws);
  CHECK(ErrorOf([&] { op->Run(); }).message() ==
        "input 0 'x' of operator StridesMutated has strides and cannot be copied, because it is "
        "written to; make it dense, or follow x.strides() and override AcceptsStrides()");
  *ws.CreateTensor("x") = Matrix();
  op->Run();
}

}  // namespace operator_strides_test

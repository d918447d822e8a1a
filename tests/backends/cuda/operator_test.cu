#include "device.cuh"
#include "opkit/op/typed_operator.hpp"

namespace cuda_test {
using namespace opkit;

__global__ void ScaleKernel(const float* x, float* y, int64_t n, float scale) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scale * x[i];
}

class ScaleOp final : public Operator<CUDAContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CUDAContext);
  ScaleOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {}
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const int64_t n = x.numel();
    if (n == 0) return true;  // CUDA refuses a launch of 0 blocks
    const auto blocks = static_cast<unsigned>((n + 127) / 128);
    ScaleKernel<<<blocks, 128, 0, context_.cuda_stream()>>>(x.data<float>(),
                                                            y->mutable_data<float>(), n, scale_);
    return true;
  }

 private:
  const float scale_;
};
OPERATOR_SCHEMA(Scale)
    .NumInputs(1)
    .NumOutputs(1)
    .Input(0, "x", "a tensor of any shape", {DType::kFloat32})
    .Arg<float>("scale", "the factor", 1.f)
    .IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(Scale, ScaleOp);

template <class Context>
void Axpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
          Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CUDAContext>();

}  // namespace cuda_test

using namespace opkit;
using Values = std::vector<float>;

TEST_CASE(
    "registrations of a .cu file are found; without a device making their operator is an error") {
  CHECK(OpRegistry::Global().FindKernels("Scale", DeviceType::kCUDA).size() == 1);
  CHECK(OpRegistry::Global().FindKernels("Axpy", DeviceType::kCUDA).size() == 1);
  if (CUDADeviceCount() > 0) return;
  Workspace ws;
  ws.CreateTensor("X");
  CHECK_THROWS_WITH_AS(
      CreateOperator(OperatorDef("Scale").Input("X").Output("Y").Device(kCuda0), &ws),
      doctest::Contains("there is no cuda: no CUDA device on this machine"), Error);
  CHECK(!ws.HasBlob("Y"));
}

TEST_CASE("the class spelling runs its kernel, to completion and asynchronously") {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("X") = ToCuda({1, 2, 3});
  auto op = CreateOperator(
      OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f).Device(kCuda0), &ws);
  CHECK(op->Run());
  CHECK(ToHost(*ws.GetTensor("Y")) == Values{2, 4, 6});
  for (int run = 0; run < 3; ++run) {
    CHECK(op->RunAsync(run));
    op->event().Finish();
    CHECK(op->event().Query() == EventStatus::kSuccess);
  }
  CHECK(ToHost(*ws.GetTensor("Y")) == Values{2, 4, 6});
  *ws.GetTensor("X") = ToCuda({});
  CHECK(op->Run());
  CHECK(ToHost(*ws.GetTensor("Y")).empty());
}

TEST_CASE("the typed function runs as a kernel") {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("X") = ToCuda({1, 2, 3});
  *ws.CreateTensor("Y") = ToCuda({10, 20, 30});
  auto op = CreateOperator(
      OperatorDef("Axpy").Input("X").Input("Y").Output("Z").Arg("alpha", 2.f).Device(kCuda0), &ws);
  CHECK(op->Run());
  CHECK(ToHost(*ws.GetTensor("Z")) == Values{12, 24, 36});
}

TEST_CASE("chained operators on two streams need no host between them" * kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("X") = ToCuda({1, 2});
  auto def = [](const char* from, const char* to) {
    return OperatorDef("Scale").Input(from).Output(to).Arg("scale", 3.f).Device(kCuda0);
  };
  auto first = CreateOperator(def("X", "Y"), &ws);
  auto second = CreateOperator(def("Y", "Z"), &ws);
  Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  first->RunAsync(0);
  second->Wait(*first, 1);
  second->RunAsync(1);
  CHECK(second->event().Query() == EventStatus::kScheduled);
  gate.Open();
  second->event().Finish();
  CHECK(ToHost(*ws.GetTensor("Z")) == Values{9, 18});
}

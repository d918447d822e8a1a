#include "opkit/backends/cuda/function_operator.hpp"

#include <cmath>

#include "device.cuh"
#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/plugin/library.hpp"
#include "support/error_of.hpp"
#include "support/function_ops.hpp"

namespace cuda_function_test {
using namespace opkit;
using Values = std::vector<float>;

// to[i] = from[i] where x[i] > 0, else 0.
__host__ __device__ inline float Rectify(float x, float from) { return x > 0 ? from : 0; }
__global__ void RectifyKernel(int64_t n, const float* x, const float* from, float* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = Rectify(x[i], from[i]);
}

void OnCpu(const OpTensor& x, const OpTensor& from, const OpTensor& to) {
  for (int64_t i = 0; i < x.size(); ++i)
    to.data<float>()[i] = Rectify(x.data<float>()[i], from.data<float>()[i]);
}
void OnStream(const OpTensor& x, const OpTensor& from, const OpTensor& to, OpResource& res) {
  const auto blocks = static_cast<unsigned>((x.size() + 127) / 128);
  RectifyKernel<<<blocks, 128, 0, static_cast<cudaStream_t>(res.stream())>>>(
      x.size(), x.data<float>(), from.data<float>(), to.data<float>());
}

Status Relu(const AttrMap&, OpIns in, OpOuts out, OpResource&) {
  OnCpu(in[0], in[0], out[0]);
  return SUCCESS;
}
Status ReluBackward(const AttrMap&, OpIns in, OpOuts out, OpResource&) {  // {dy, x, y} -> {dx}
  OnCpu(in[1], in[0], out[0]);
  return SUCCESS;
}
// By way of memory that the run allocates.
Status ReluOnStream(const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
  const OpTensor kept = res.temporary(in[0].shape(), DType::kFloat32);
  OnStream(in[0], in[0], kept, res);
  OnStream(kept, kept, out[0], res);
  return SUCCESS;
}
Status ReluBackwardOnStream(const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
  OnStream(in[1], in[0], out[0], res);
  return SUCCESS;
}
REGISTER_OP(CudaTestRelu)
    .setForward(Relu, "cpu")
    .setBackward(ReluBackward, "cpu")
    .setForward(ReluOnStream, "gpu")
    .setBackward(ReluBackwardOnStream, "gpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = 2 * x, by a loop on the device.
Status DoubleOnStream(const AttrMap&, OpIns in, OpOuts out, OpResource& res) {
  const float* x = in[0].data<float>();
  float* y = out[0].data<float>();
  res.parallel_for(in[0].size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
  return SUCCESS;
}
REGISTER_OP(CudaTestDouble)
    .setForward(DoubleOnStream, "gpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

Values Numbers(size_t count, float step) {
  Values out(count);
  for (size_t i = 0; i < count; ++i) out[i] = std::sin(step * static_cast<float>(i));
  return out;
}

// {y, dx} of `op`, a ReLU, and of its gradient on the device.
std::vector<Values> RunBothWays(const std::string& op, Device device) {
  Workspace ws;
  auto feed = [&](const char* name, const Values& values) {
    Tensor* tensor = ws.CreateTensor(name);
    *tensor = Tensor(device);
    Copy(Tensor::From<float>({static_cast<int64_t>(values.size())}, values), tensor);
  };
  feed("x", Numbers(1000, 0.7f));
  feed("dy", Numbers(1000, 0.3f));
  auto forward = CreateOperator(OperatorDef(op, {"x"}, {"y"}).Device(device), &ws);
  const GradientOpsMeta gradient = GetGradientForOp(forward->def(), {"dy"});
  auto backward = CreateOperator(gradient.ops.at(0), &ws);
  forward->RunAsync(0);
  backward->Wait(*forward, 1);
  backward->RunAsync(1);
  backward->event().Finish();
  return {ToHost(*ws.GetTensor("y")), ToHost(*ws.GetTensor(gradient.g_input.at(0).dense))};
}
std::vector<Values> Expected() {
  std::vector<Values> out;
  const Values x = Numbers(1000, 0.7f), dy = Numbers(1000, 0.3f);
  for (const Values& from : {x, dy}) {
    Values& to = out.emplace_back();
    for (size_t i = 0; i < x.size(); ++i) to.push_back(x[i] > 0 ? from[i] : 0);
  }
  return out;
}

}  // namespace cuda_function_test

using namespace cuda_function_test;

TEST_CASE("functions of a .cu file run on the CPU, and without a device are an error for CUDA") {
  CHECK(OpRegistry::Global().FindKernels("CudaTestRelu", DeviceType::kCUDA).size() == 1);
  CHECK(RunBothWays("CudaTestRelu", Device{}) == Expected());
  if (CUDADeviceCount() > 0) return;
  Workspace ws;
  ws.CreateTensor("x");
  const Error error = ErrorOf(
      [&] { CreateOperator(OperatorDef("CudaTestRelu", {"x"}, {"y"}).Device(kCuda0), &ws); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "there is no cuda: no CUDA device on this machine"));
}

TEST_CASE("a function and its backward launch kernels on the stream, with the CPU's results") {
  NEEDS_CUDA_DEVICE();
  CHECK(RunBothWays("CudaTestRelu", kCuda0) == RunBothWays("CudaTestRelu", Device{}));
}

TEST_CASE("parallel_for of a function for \"gpu\" runs a device lambda on the stream") {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  Tensor* x = ws.CreateTensor("x");
  *x = Tensor(kCuda0);
  const Values values = Numbers(1000, 0.1f);
  Copy(Tensor::From<float>({1000}, values), x);
  CreateOperator(OperatorDef("CudaTestDouble", {"x"}, {"y"}).Device(kCuda0), &ws)->Run();
  Tensor y;
  Copy(*ws.GetTensor("y"), &y);
  for (size_t i = 0; i < values.size(); ++i) CHECK(y.data<float>()[i] == 2 * values[i]);
}

TEST_CASE("a function is called when work is issued; its memory lasts until that is done" *
          kOutsideSanitizer) {
  NEEDS_CUDA_DEVICE();
  Workspace ws;
  *ws.CreateTensor("x") = ToCuda({-1, 2, 3});
  auto op = CreateOperator(OperatorDef("CudaTestRelu", {"x"}, {"y"}).Device(kCuda0), &ws);
  op->Run(0);  // the kernel is loaded, which may wait for the device
  Gate gate(CUDAStream::Get(kCuda0, 0).handle());
  op->RunAsync(0);
  CHECK(op->event().Query() == EventStatus::kScheduled);
  gate.Open();
  op->event().Finish();
  CHECK(ToHost(*ws.GetTensor("y")) == Values{0, 2, 3});
}

TEST_CASE("a library that nvcc has compiled is loaded and runs on the CPU and on the device") {
  Library library = Library::Load(OPKIT_TEST_CUDA_LIBRARY);
  CHECK(library.operators() == std::vector<std::string>{"my_relu"});
  CHECK(OpRegistry::Global().FindKernels("my_relu", DeviceType::kCUDA).size() == 1);
  CHECK(RunBothWays("my_relu", Device{}) == Expected());
  if (CUDADeviceCount() == 0)
    MESSAGE("skipped: no CUDA device");
  else
    CHECK(RunBothWays("my_relu", kCuda0) == Expected());
  const UnloadReport report = library.Unload();
  CHECK_MESSAGE(report.unmapped, ToString(report));
  CHECK(OpRegistry::Global().FindSchema("my_relu") == nullptr);
}

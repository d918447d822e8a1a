// Host code that never includes a CUDA header registers, lists and selects CUDA operators.
#include <doctest/doctest.h>

#include "opkit/backends/cuda/registration.hpp"

namespace registration_cuda_test {
using namespace opkit;

namespace {

// Stands for an operator that a .cu file defines; the host knows how to make one.
class HostDeclaredOp : public OperatorBase {
 public:
  using OperatorBase::OperatorBase;
  bool Run(int = 0) override { return true; }
  bool RunAsync(int = 0) override { return true; }
  bool HasAsyncPart() const override { return true; }
  bool SupportsAsyncScheduling() const override { return true; }
  void WaitEvent(const Event&, int = -1) override {}
  void WaitEvents(const std::vector<const Event*>&, int = -1) override {}
  void SyncDeviceBarrierForObservers() override {}
  bool IsStreamFree(int) const override { return true; }
};
std::unique_ptr<OperatorBase> MakeByCreator(const OperatorDef& def, Workspace* ws) {
  return std::make_unique<HostDeclaredOp>(def, ws);
}
class HostOnlyOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(CudaByClass).NumInputs(0).NumOutputs(0);
REGISTER_CUDA_OPERATOR(CudaByClass, HostDeclaredOp);
REGISTER_CUDA_OPERATOR_WITH_ENGINE(CudaByClass, CUDNN, HostDeclaredOp);
OPERATOR_SCHEMA(CudaByCreator).NumInputs(0).NumOutputs(0);
REGISTER_CUDA_OPERATOR_CREATOR(CudaByCreator, &MakeByCreator);
OPERATOR_SCHEMA(CudaMissing).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(CudaMissing, HostOnlyOp);

constexpr Device kCuda1{DeviceType::kCUDA, 1};

}  // namespace

TEST_CASE("CUDA operators are listed by host code with their backends and places") {
  const auto kernels = OpRegistry::Global().FindKernels("CudaByClass", DeviceType::kCUDA);
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0]->backend == kReferenceBackend);
  CHECK(kernels[1]->backend == "CUDNN");
  CHECK(kernels[0]->Place().find("registration_cuda_test.cpp:") != std::string::npos);
  CHECK(OpRegistry::Global().FindKernels("CudaByClass", DeviceType::kCPU).empty());
  CHECK(OpRegistry::Global().FindKernels("CudaByCreator", DeviceType::kCUDA).size() == 1);
}

TEST_CASE("host code selects and makes CUDA operators, on the device that the node names") {
  Workspace ws;
  auto by_class = CreateOperator(OperatorDef("CudaByClass").Device(kCuda1).Backends("CUDNN"), &ws);
  CHECK(by_class->device() == kCuda1);
  CHECK(by_class->getErrorMsg().find("on cuda:1, backend CUDNN") != std::string::npos);
  auto by_creator = CreateOperator(OperatorDef("CudaByCreator").Device(kCuda1), &ws);
  CHECK(by_creator->type() == "CudaByCreator");
}

TEST_CASE("the error for a missing CUDA kernel lists the kernels there are") {
  Workspace ws;
  CHECK_THROWS_WITH_AS(CreateOperator(OperatorDef("CudaMissing").Device(kCuda1), &ws),
                       doctest::Contains("has no kernel for cuda:1; it has kernels for cpu "
                                         "(reference, "),
                       Error);
}

TEST_CASE("in a program without the CUDA backend its memory and copies are refused with a hint") {
  CHECK_THROWS_WITH_AS(Tensor({1}, DType::kFloat32, Device{DeviceType::kCUDA, 0}),
                       doctest::Contains("no allocator for device cuda: include its backend's "
                                         "header, or call SetAllocator"),
                       Error);
}

}  // namespace registration_cuda_test

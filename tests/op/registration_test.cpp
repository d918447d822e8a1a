// The registration macros, end to end: what they register, where from, and a device of one's own.
#include "opkit/backends/cuda/registration.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace registration_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::CreateOperator;
using opkit::Device;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Event;
using opkit::Kernel;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::OpRegistry;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;

// y = x + kAdd, on any device whose memory the host can reach.
template <class Context, int kAdd = 1>
class AddOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const auto* in = static_cast<const float*>(x.raw_data());
    auto* out = static_cast<float*>(y->raw_mutable_data());
    context_.Launch([=, n = x.numel()] {
      for (int64_t i = 0; i < n; ++i) out[i] = in[i] + kAdd;
    });
    return true;
  }
};

// Before and after the registrations: the order does not matter. Several of one kind in one unit.
OPERATOR_SCHEMA(RegAdd).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
const int kFirstLine = __LINE__ + 1;
REGISTER_CPU_OPERATOR(RegAdd, AddOp<CPUContext, 1>);  // a class with commas
REGISTER_CPU_OPERATOR_WITH_ENGINE(RegAdd, TWO, AddOp<CPUContext, 2>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(RegAdd, THREE, AddOp<CPUContext, 3>);
REGISTER_CPU_STREAM_OPERATOR(RegAdd, AddOp<CPUStreamContext, 4>);
REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(RegAdd, TWO, AddOp<CPUStreamContext, 5>);
// Host code registers for CUDA without including anything of it.
REGISTER_CUDA_OPERATOR(RegAdd, AddOp<CPUContext, 6>);
REGISTER_CUDA_OPERATOR_WITH_ENGINE(RegAdd, CUDNN, AddOp<CPUContext, 7>);

REGISTER_CPU_OPERATOR_STR("Reg.Add/2", AddOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR_STR("Reg.Add/2", AddOp<CPUStreamContext>);
REGISTER_CUDA_OPERATOR_STR("Reg.Add/2", AddOp<CPUContext>);
// OPERATOR_SCHEMA takes identifiers.
[[maybe_unused]] const opkit::OpSchema& kAddSlash2 =
    OpRegistry::Global().AddSchema("Reg.Add/2", __FILE__, __LINE__).NumInputs(1).NumOutputs(1);

std::unique_ptr<opkit::OperatorBase> MakeTen(const OperatorDef& def, Workspace* ws) {
  return std::make_unique<AddOp<CPUContext, 10>>(def, ws);
}
REGISTER_CPU_OPERATOR_CREATOR(RegMade, MakeTen);
REGISTER_CPU_STREAM_OPERATOR_CREATOR(RegMade, [](const OperatorDef& def, Workspace* ws) {
  return std::unique_ptr<opkit::OperatorBase>(new AddOp<CPUStreamContext, 11>(def, ws));
});
REGISTER_CUDA_OPERATOR_CREATOR(RegMade, MakeTen);

REGISTER_CPU_OPERATOR_WITH_PRIORITY(RegPriority, kPreferred, AddOp<CPUContext, 3>);
REGISTER_CPU_OPERATOR_WITH_PRIORITY(RegPriority, kFallback, AddOp<CPUContext, 1>);
REGISTER_CPU_OPERATOR(RegPriority, AddOp<CPUContext, 2>);

OPERATOR_SCHEMA(RegMade).NumInputs(1).NumOutputs(1);
OPERATOR_SCHEMA(RegPriority).NumInputs(1).NumOutputs(1);

float Run(const std::string& type, const char* engine = "", DeviceType device = DeviceType::kCPU) {
  Workspace ws;
  *ws.CreateTensor("X") = Tensor::From<float>({1}, {100});
  CreateOperator(OperatorDef(type, {"X"}, {"Y"}).Backends(engine).Device(device), &ws)->Run();
  return ws.GetTensor("Y")->data<float>()[0];
}

TEST_CASE("each macro registers for its device and engine") {
  CHECK(Run("RegAdd") == 101);
  CHECK(Run("RegAdd", "TWO") == 102);
  CHECK(Run("RegAdd", "THREE,TWO") == 103);
  CHECK(Run("RegAdd", "", DeviceType::kCPUStream) == 104);
  CHECK(Run("RegAdd", "TWO", DeviceType::kCPUStream) == 105);
  CHECK(Run("RegMade") == 110);
  CHECK(Run("RegMade", "", DeviceType::kCPUStream) == 111);
}

TEST_CASE("a kernel that was registered remembers its place") {
  const auto kernels = OpRegistry::Global().FindKernels("RegAdd", DeviceType::kCPU);
  REQUIRE(kernels.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(kernels[i]->line == kFirstLine + static_cast<int>(i));
    CHECK(Contains(kernels[i]->file, "registration_test.cpp"));
    CHECK(kernels[i]->origin.empty());
  }
  CHECK(kernels[0]->backend == "reference");
  CHECK(kernels[1]->backend == "TWO");
}

TEST_CASE("CUDA kernels are listed and selected by host code that never saw CUDA") {
  const auto kernels = OpRegistry::Global().FindKernels("RegAdd", DeviceType::kCUDA);
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[1]->backend == "CUDNN");
  opkit::OpRegistry::Global().SetPreference(DeviceType::kCUDA, {"CUDNN"});
  CHECK(opkit::detail::KernelOrder(OperatorDef("RegAdd").Device(DeviceType::kCUDA)).front() ==
        kernels[1]);
  opkit::OpRegistry::Global().SetPreference(DeviceType::kCUDA, {});
}

TEST_CASE("the highest priority wins, in any order of registration") {
  CHECK(Run("RegPriority") == 103);
  CHECK(OpRegistry::Global().KernelsOf("RegPriority").size() == 1);
}

TEST_CASE("an operator registered by string may have any name") {
  CHECK(Run("Reg.Add/2") == 101);
  CHECK(Run("Reg.Add/2", "", DeviceType::kCPUStream) == 101);
  CHECK(OpRegistry::Global().FindKernels("Reg.Add/2", DeviceType::kCUDA).size() == 1);
}

TEST_CASE("by string: a missing schema is found at the first lookup, and by CheckRegistrations") {
  opkit::detail::RegisterClass<AddOp<CPUContext>>({"Reg.Late", DeviceType::kCPU, "DEFAULT",
                                                   opkit::Kernel::Priority::kDefault, __FILE__,
                                                   __LINE__});
  Workspace ws;
  ws.CreateTensor("X");
  const opkit::Error error =
      ErrorOf([&] { CreateOperator(OperatorDef("Reg.Late", {"X"}, {"Y"}), &ws); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "operator Reg.Late has a kernel (at "));
  CHECK(Contains(error.message(), "but no schema; add OPERATOR_SCHEMA(Reg.Late) to this program"));
  bool listed = false;
  for (const std::string& problem : opkit::CheckRegistrations())
    listed |= problem == error.message();
  CHECK(listed);
  OpRegistry::Global().Remove("Reg.Late");
}

TEST_CASE("a schema without a kernel is listed, with the registration to add") {
  auto listed = [] {
    for (const std::string& problem : opkit::CheckRegistrations())
      if (Contains(problem, "operator Reg.SchemaOnly has a schema (at ")) {
        CHECK(Contains(problem, "registration_test.cpp:"));
        CHECK(Contains(problem, "but no kernel; add REGISTER_CPU_OPERATOR(Reg.SchemaOnly, "));
        return true;
      }
    return false;
  };
  OpRegistry::Global().AddSchema("Reg.SchemaOnly", __FILE__, __LINE__);
  CHECK(listed());
  opkit::Kernel kernel;
  kernel.op = "Reg.SchemaOnly";
  OpRegistry::Global().AddKernel(std::move(kernel));
  CHECK_FALSE(listed());
  OpRegistry::Global().Remove("Reg.SchemaOnly");
}

TEST_CASE("the registered kernels are listed") {
  const std::vector<std::string> all = opkit::RegisteredOperators();
  for (const char* name : {"RegAdd", "RegMade", "RegPriority"}) {
    bool found = false;
    for (const std::string& op : all) found |= op == name;
    CHECK(found);
  }
}

TEST_CASE("an error of a registered operator names the place of its registration") {
  Workspace ws;
  ws.CreateTensor("X");
  auto op = CreateOperator(OperatorDef("RegAdd", {"X"}, {"Y"}), &ws);
  const opkit::Error error = ErrorOf([&] { op->Run(); });
  CHECK(Contains(error.what(), "registered at "));
  CHECK(Contains(error.what(), opkit::StrCat("registration_test.cpp:", kFirstLine)));
}

// A device of one's own: a type, memory that the host cannot reach by the rules, a context, a
// macro.
constexpr DeviceType kNpu{static_cast<int>(DeviceType::kFirstUserDevice) + 3};

class NpuAllocator final : public opkit::Allocator {
 public:
  const char* name() const override { return "npu"; }
  std::map<void*, int64_t> blocks;

 protected:
  void* DoAllocate(int64_t bytes) override {
    void* data = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
    blocks[data] = bytes;
    return data;
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    blocks.erase(data);
    std::free(data);
  }
};

struct NpuContext {
  static constexpr DeviceType kDeviceType = kNpu;
  static constexpr bool kAsynchronous = false;
  explicit NpuContext(Device device) : device_(device) {}
  Device device() const { return device_; }
  void SwitchToDevice(int stream_id) { stream = stream_id; }
  void Record(Event& event) { event.SetScheduled(); }
  void WaitEvent(const Event& event) { event.Finish(); }
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }
  template <class F>
  void Launch(F&& work) {
    work();
  }
  int stream = -1;

 private:
  Device device_;
};
static_assert(opkit::DeviceContext<NpuContext>);

#define REGISTER_NPU_OPERATOR(...) OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, __VA_ARGS__)
REGISTER_NPU_OPERATOR(RegAdd, AddOp<NpuContext, 20>);

TEST_CASE("a device of one's own in a few lines: type, allocator, context, macro") {
  opkit::RegisterDeviceType(kNpu, {"npu", kNpu, false});
  static NpuAllocator allocator;
  opkit::SetAllocator(kNpu, &allocator);
  {
    Workspace ws;
    Tensor* x = ws.CreateTensor("X");
    *x = Tensor({2}, opkit::DType::kFloat32, {kNpu, 1});
    static_cast<float*>(x->raw_mutable_data())[0] = 1;
    static_cast<float*>(x->raw_mutable_data())[1] = 2;
    auto op = CreateOperator(OperatorDef("RegAdd", {"X"}, {"Y"}).Device(kNpu, 1), &ws);
    op->Run();
    op->RunAsync(2);
    CHECK(op->event().Query() == opkit::EventStatus::kSuccess);
    const Tensor* y = ws.GetTensor("Y");
    CHECK(y->device() == Device{kNpu, 1});
    CHECK(static_cast<const float*>(y->raw_data())[1] == 22);
    CHECK(allocator.blocks.size() == 2);
    CHECK(allocator.live_bytes() == 16);
    CHECK(ToString(*y) == "float32[2] on npu:1");
    CHECK(ErrorOf([&] { y->ToVector<float>(); }).code() == ErrorCode::kUnsupported);

    *ws.CreateTensor("host") = Tensor::From<float>({1}, {1});
    auto wrong = CreateOperator(OperatorDef("RegAdd", {"host"}, {"Z"}).Device(kNpu), &ws);
    const opkit::Error error = ErrorOf([&] { wrong->Run(); });
    CHECK(Contains(error.message(),
                   "input 0 'host' is on cpu, but the operator runs on npu; copy it there first"));
  }
  CHECK(allocator.live_bytes() == 0);
  CHECK(allocator.blocks.empty());
  const opkit::Error error = ErrorOf([] { Run("RegMade", "", kNpu); });
  CHECK(Contains(error.message(), "has no kernel for npu; it has kernels for cpu (reference, "));
}

// For streams, and registered for the CPU by mistake.
class RegStreamOp final : public Operator<CPUStreamContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(RegStream).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(RegStream, RegStreamOp);

TEST_CASE("the error for a stream class registered for the CPU names the right macro") {
  Workspace ws;
  const opkit::Error error = ErrorOf([&] { CreateOperator(OperatorDef("RegStream"), &ws); });
  CHECK(Contains(error.message(),
                 "CPUStreamContext cannot run on cpu; REGISTER_CPU_STREAM_OPERATOR registers an "
                 "operator class of this context"));
}

}  // namespace
}  // namespace registration_test

// The operators ConvertLayout and CopyToDevice, and their registrations.
#ifndef OPKIT_GRAPH_PLAN_IMPL_CONVERTERS_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_CONVERTERS_IPP_

#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

class ConvertLayoutOp final : public Operator<CPUContext> {
 public:
  ConvertLayoutOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {
    set_invocation_kind(Invocation::Kind::kConverter);
  }
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    config.input_layouts = {query.inputs[0].layout};
    config.output_layouts = {Layout{FindLayout(query.def.args().Get<std::string>("layout")), {}}};
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& from = Input(0);
    Tensor* to = Output(0, from.shape(), from.dtype());
    ConvertLayoutTo(from, *to);
    return true;
  }
};

OPKIT_OPERATOR_SCHEMA(ConvertLayout)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<std::string>("layout", "the name of the output's layout; plans say it otherwise",
                      "standard")
    .Doc("The same elements in another order in memory.")
    .Internal();
OPKIT_REGISTER_CPU_OPERATOR(ConvertLayout, ConvertLayoutOp);

// Returns the device that a CopyToDevice node copies to.
inline Device TargetOf(const OperatorDef& def) {
  return {static_cast<DeviceType>(def.args().Get<int32_t>("device_type")),
          def.args().Get<int32_t>("device_index")};
}

// Blocks until the copy is done, so that readers on either device need no special event.
class CopyToDeviceOp final : public Operator<CPUContext> {
 public:
  CopyToDeviceOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), target_(TargetOf(def)) {
    set_invocation_kind(Invocation::Kind::kCopy);
  }
  bool RunOnDevice() override {
    Tensor from = InputBlob(0).Get<Tensor>();
    // The input may be a strided view that a host operator has made; copies to a device need it
    // dense.
    if (!from.is_dense() && IsHostAccessible(from.device().type)) from = from.Contiguous();
    const Tensor* to = Output(0, from.shape(), from.dtype(), target_);
    CopyElements(from, *to, nullptr);
    return true;
  }

 private:
  const Device target_;
};

OPKIT_OPERATOR_SCHEMA(CopyToDevice)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .RequiredArg<int64_t>("device_type", "the number of the device's type")
    .Arg<int64_t>("device_index", "the device among those of its type", 0)
    .InputsCanCrossDevices()
    .DeviceInferenceFunction([](const OperatorDef& def) -> OpSchema::DevicePlacement {
      return {{def.device()}, {TargetOf(def)}};
    })
    .Doc("The same elements in the memory of another device.")
    .Internal();
OPKIT_REGISTER_CPU_OPERATOR(CopyToDevice, CopyToDeviceOp);

inline const Kernel& PlainKernel(const char* op) {
  return *OpRegistry::Global().FindKernels(op, DeviceType::kCPU).front();
}
OPKIT_INLINE const Kernel& ConvertLayoutKernel() {
  static const Kernel* const kernel = &PlainKernel("ConvertLayout");
  return *kernel;
}
OPKIT_INLINE const Kernel& CopyToDeviceKernel() {
  static const Kernel* const kernel = &PlainKernel("CopyToDevice");
  return *kernel;
}

}  // namespace detail

OPKIT_INLINE OperatorDef CopyToDevice(const std::string& from, const std::string& to,
                                      Device device) {
  return OperatorDef("CopyToDevice", {from}, {to})
      .Arg("device_type", static_cast<int64_t>(device.type))
      .Arg("device_index", int64_t{device.index});
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_IMPL_CONVERTERS_IPP_

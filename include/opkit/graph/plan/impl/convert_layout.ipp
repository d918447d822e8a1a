// The operator ConvertLayout and its registration.
#ifndef OPKIT_GRAPH_PLAN_IMPL_CONVERT_LAYOUT_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_CONVERT_LAYOUT_IPP_

#include "opkit/core/layout_registry.hpp"
#include "opkit/graph/plan/convert_layout.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/registration.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class ConvertLayoutOp final : public Operator<CPUContext> {
 public:
  ConvertLayoutOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config) {
    set_invocation_kind(InvocationKind::kConverter);
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
    .Arg<std::string>("layout", "the name of the output's layout; plans say it otherwise", "standard")
    .SetDoc("The same elements in another order in memory.")
    .Private();
OPKIT_REGISTER_CPU_OPERATOR(ConvertLayout, ConvertLayoutOp);

OPKIT_INLINE const Kernel& ConvertLayoutKernel() {
  static const Kernel* const kernel =
      OpRegistry::Global().FindKernels("ConvertLayout", DeviceType::kCPU).front();
  return *kernel;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_IMPL_CONVERT_LAYOUT_IPP_

// The definitions of BoundOperator's functions.
#ifndef OPKIT_OP_CALL_IMPL_BOUND_OPERATOR_IPP_
#define OPKIT_OP_CALL_IMPL_BOUND_OPERATOR_IPP_

#include "opkit/device/cpu_stream.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/op/call/bound_operator.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The workspace and the operator behind a BoundOperator.
struct OPKIT_IMAGE_LOCAL OperatorPlace : RefCounted {
  OperatorPlace(const Kernel& kernel, const OperatorDef& def, const KernelConfig* config)
      : here(def.device()) {
    for (const std::string& name : def.inputs()) {
      inputs.push_back(name.empty() ? nullptr : workspace.CreateBlob(name));
      if (!name.empty()) workspace.CreateTensor(name);
    }
    const CPUStreamScope in_stream(here);
    op = CreateOperator(def, &workspace, {.kernel = &kernel, .config = config});
    // The caller's event completes with the work on native streams.
    if (FindNativeStreams(def.device().type)) op->DisableEvent();
    for (const std::string& name : def.outputs())
      outputs.push_back(name.empty() ? nullptr : workspace.FindBlob(name));
  }
  static OperatorPlace& Of(RefCounted& bound) { return static_cast<OperatorPlace&>(bound); }
  static Tensor* TensorIn(Blob* blob) { return blob ? blob->GetMutable<Tensor>() : nullptr; }

  CPUStream here;  // runs work at once: this thread already has its turn in a stream
  Workspace workspace;
  std::unique_ptr<OperatorBase> op;
  std::vector<Blob*> inputs, outputs;  // null for a value that is left out
};

OPKIT_IMAGE_LOCAL inline BoundOperator BindOperator(const Kernel& kernel, const OperatorDef& def,
                                                    const KernelConfig* config) {
  return {MakeIntrusive<OperatorPlace>(kernel, def, config),
          [](RefCounted& bound, size_t i) {
            return OperatorPlace::TensorIn(OperatorPlace::Of(bound).inputs[i]);
          },
          [](RefCounted& bound, size_t o) {
            return OperatorPlace::TensorIn(OperatorPlace::Of(bound).outputs[o]);
          },
          [](RefCounted& bound, size_t o) -> const Tensor* {
            const Blob* const blob = OperatorPlace::Of(bound).outputs[o];
            return blob->IsType<Tensor>() ? &blob->Get<Tensor>() : nullptr;
          },
          [](RefCounted& bound, void* scratch, int64_t scratch_bytes, bool issue) {
            OperatorPlace& place = OperatorPlace::Of(bound);
            const CPUStreamScope in_stream(place.here);
            place.op->SetScratch(scratch, scratch_bytes);
            issue ? place.op->RunAsync() : place.op->Run();
          }};
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_CALL_IMPL_BOUND_OPERATOR_IPP_

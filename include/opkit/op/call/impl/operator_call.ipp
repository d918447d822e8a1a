// The definitions of OperatorCall and of BoundOperator's functions.
#ifndef OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_
#define OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_

#include "opkit/device/cpu_stream.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/op/call/bound_operator.hpp"
#include "opkit/op/call/operator_call.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Releases the memory of the workspace's tensors at the end of a call. The next call sets these
// tensors again.
struct OperatorCall::Release {
  OperatorCall& self;
  ~Release() {
    for (Tensor* input : self.inputs_)
      if (input) const Tensor dropped = std::move(*input);
    for (Blob* output : self.outputs_)
      if (output->IsType<Tensor>()) const Tensor dropped = std::move(*output->GetMutable<Tensor>());
  }
};

OPKIT_INLINE OperatorCall::OperatorCall(const OpSchema& schema, const OperatorDef& def)
    : schema_(schema), def_(def) {
  Place place = MakePlace();
  auto made = CreateOperator(def_, place.workspace.get(), {.converts = true});
  SetOperator(std::move(made), std::move(place));
  const OpRegistry& registry = OpRegistry::Global();
  for (const Kernel* kernel : registry.FindKernels(def_.type(), def_.device().type))
    selects_ |=
        kernel->proposes_layouts || registry.BackendRank(kernel->backend, kernel->origin) > 0;
  if (selects_) selected_for_.resize(inputs_.size());
}

OPKIT_INLINE void OperatorCall::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                    bool issue) {
  const Release release{*this};
  bool standard = true;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs_[i]) {
      *inputs_[i] = inputs[i];
      standard &= inputs[i].layout().is_standard();
    }
  if (selects_ && !InferenceCache::Match(selected_for_, inputs_)) [[unlikely]]
    Select();
  if (converts_ || !standard) [[unlikely]]
    ConvertInputs();
  if (checks_types_ && !op_->inference().IsFresh(inputs_)) [[unlikely]] {
    op_->inference().Infer(
        def_, inputs_, [this](InferenceContext& context) { schema_.Infer(context); }, [] {});
    op_->inference().Keep();
  }
  for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
  if (issue) {
    op_->DisableEvent();  // the next run may be issued before this one has finished
    op_->RunAsync();
  } else {
    op_->Run();
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Blob& output = *outputs_[o];
    if (!output.IsType<Tensor>()) [[unlikely]]
      Throw(ErrorCode::kTypeMismatch, "'", output.name(), "' of operator ", def_.type(),
            " is not a tensor; run it in a workspace to get it");
    const Tensor& made = output.Get<Tensor>();
    if (!made.initialized()) [[unlikely]]
      Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
            output.name(), "'; get it with Output(i, shape, dtype) and write to it");
    if (checks_types_ && !op_->inference().outputs()[o].Allows(made)) [[unlikely]]
      ThrowContradicts(def_, output.name(), made, op_->inference().outputs()[o].info());
    if (converts_ || !made.layout().is_standard()) [[unlikely]]
      if (const Layout promised = op_->OutputLayout(static_cast<int>(o));
          made.layout().id != promised.id)
        ThrowOtherLayout(def_, output.name(), made, promised);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    Tensor& made = *outputs_[o]->GetMutable<Tensor>();
    if (converts_ && !made.layout().is_standard()) [[unlikely]]
      ConvertOutput(made, outputs[o]);
    else
      outputs[o] = std::move(made);
  }
}

OPKIT_INLINE void OperatorCall::ConvertInputs() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] && inputs_[i]->initialized())
      *inputs_[i] = g_convert_layout(*inputs_[i], op_->InputLayout(static_cast<int>(i)));
}
OPKIT_INLINE void OperatorCall::ConvertOutput(const Tensor& made, Tensor& output) const {
  const InvocationScope scope(Invocation::Kind::kConverter, [&] {
    return SpanNames{InternName("ConvertLayout"), InternName(def_.type())};
  });
  Tensor target = output.layout().is_standard() ? output : Tensor(made.device());
  target.Resize(made.shape(), made.dtype());
  g_convert_layout_to(made, target);
  output = std::move(target);
}

OPKIT_INLINE OperatorCall::Place OperatorCall::MakePlace() const {
  Place place{std::make_unique<Workspace>(), {}};
  for (const std::string& name : def_.inputs())
    place.inputs.push_back(name.empty() ? nullptr : place.workspace->CreateTensor(name));
  return place;
}
OPKIT_INLINE void OperatorCall::SetOperator(std::unique_ptr<OperatorBase> op, Place place) {
  std::vector<Blob*> outputs;
  for (const std::string& name : def_.outputs()) outputs.push_back(place.workspace->GetBlob(name));
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) *place.inputs[i] = std::move(*inputs_[i]);
  op_ = std::move(op);
  workspace_ = std::move(place.workspace);
  inputs_ = std::move(place.inputs);
  outputs_ = std::move(outputs);
  checks_types_ = (schema_.has_inference() || schema_.limits_dtypes()) && !op_->InfersOutputs();
}
OPKIT_INLINE void OperatorCall::Select() {
  const RegistryUse use;
  std::vector<TensorInfo> infos;
  for (const Tensor* input : inputs_)
    infos.push_back(input && input->initialized() ? TensorInfo::Of(*input) : TensorInfo());
  const std::vector<TensorInfo> outputs = schema_.InferOutputs(def_, infos);
  Place place = MakePlace();
  // On a stream no output can be converted here, because its elements are not computed yet.
  const bool converts = def_.device().type == DeviceType::kCPU;
  bool is_standard = true;
  auto op = g_create_selected(def_, place.workspace.get(), infos, outputs, converts, &is_standard);
  SetOperator(std::move(op), std::move(place));
  converts_ = !is_standard;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) selected_for_[i] = {inputs_[i]->dtype(), true, inputs_[i]->shape()};
}

OPKIT_INLINE ResolvedCall MakeOperatorCall(const OpSchema& schema, const OperatorDef& def) {
  auto call = std::make_unique<OperatorCall>(schema, def);
  OperatorCall* const made = call.get();
  return {[call = std::move(call)](std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                   bool issue) { call->Run(inputs, outputs, issue); },
          made};
}
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

  CPUStream here;  // runs work at once: a stream already runs this thread in order
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

OPKIT_INLINE void UseOperatorCalls() noexcept {
  g_operator_call.Fill(&MakeOperatorCall);
  g_bind_operator.Fill(&BindOperator);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_

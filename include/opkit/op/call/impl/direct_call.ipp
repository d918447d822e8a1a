// The definitions of DirectCall.
#ifndef OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_
#define OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/op/call/direct_call.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE DirectCall::DirectCall(const Kernel& kernel, const OpSchema& schema,
                                    const OperatorDef& def) try
    : identity_(def),
      call_(*kernel.typed, schema, def),
      device_(MemoryDevice(def.device())),
      inplace_masks_(InplaceMasks(schema, def, nullptr)),
      mutated_inputs_(MutatedInputs(schema, def)),
      inputs_(call_.num_inputs()),
      copies_(def.inputs().size()),
      made_(def.outputs().size()) {
  identity_.file = kernel.file;
  identity_.line = kernel.line;
  identity_.cost = {&schema, &kernel.backend, &ComputeWork};
  outputs_.resize(made_.size());
} catch (...) {
  RethrowFromConstructor(kernel, def);
}

// Releases the tensors of a call.
struct DirectCall::Finish {
  DirectCall& self;
  ~Finish() {
    for (std::vector<Tensor>* tensors : {&self.made_, &self.copies_})
      for (Tensor& tensor : *tensors)
        if (tensor.storage()) const Tensor dropped = std::move(tensor);
    for (const Tensor*& output : self.outputs_) output = nullptr;  // the caller's
  }
};

OPKIT_INLINE void DirectCall::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const Finish finish{*this};
  const InvocationScope invocation(Invocation::Kind::kCustomOperator, device_, [this] {
    if (span_names_.name == 0)
      span_names_ = {InternName(identity_.def.type()), InternName(identity_.def.name())};
    return span_names_;
  });
  try {
    Call(inputs, outputs);
  } catch (...) {
    Fail(inputs);
  }
  if (invocation.is_recorded()) [[unlikely]]
    DescribeSpan();
  for (size_t o = 0; o < outputs.size(); ++o)
    if (outputs_[o] == &made_[o]) outputs[o] = std::move(made_[o]);
}

OPKIT_INLINE void DirectCall::Call(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const OperatorDef& def = identity_.def;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    inputs_[i] = def.inputs()[i].empty() ? nullptr : &input;
    if (inputs_[i] && (input.device() != device_ || input.has_strides() ||
                       !input.layout().is_standard())) [[unlikely]]
      inputs_[i] = Unusual(i, input);
  }
  if (!inference_.IsFresh(inputs_)) [[unlikely]]
    call_.Infer(def, inputs_, inference_, [] {});
  const size_t version = call_.VersionFor(def, inputs_);
  for (size_t o = 0; o < outputs.size(); ++o)
    outputs_[o] =
        Output(o, inputs, outputs[o], inference_.outputs()[o].shape, call_.OutputDType(version, o));
  CPUContext context(def.device());
  if (!call_.Run(&context, version, inputs_, outputs_.data(), inference_.version())) [[unlikely]]
    ThrowReturnedFalse();
}

OPKIT_INLINE const Tensor* DirectCall::Unusual(size_t i, const Tensor& input) {
  const OperatorDef& def = identity_.def;
  CheckInputDevice(def, i, input, device_);
  if (!input.layout().is_standard() && input.dtype() != DType::kUndefined)
    return &(copies_[i] = g_convert_layout(input, Layout()));
  if (input.is_dense()) return &input;
  if (i < 64 && (mutated_inputs_ >> i & 1)) ThrowMutatedStrides(def, i, input);
  Tensor dense(input.device());
  dense.CopyFrom(input);
  return &(copies_[i] = std::move(dense));
}
OPKIT_INLINE bool DirectCall::Clobbers(size_t o, std::span<const Tensor> inputs,
                                       const Tensor& output) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i] || !inputs[i].SharesMemoryWith(output)) continue;
    const bool may_share = i < 64 && (inplace_masks_[o] >> i & 1);
    if (!may_share || inputs_[i]->raw_data() != output.raw_data()) return true;
  }
  for (size_t other = 0; other < o; ++other)
    if (outputs_[other]->SharesMemoryWith(output)) return true;
  return false;
}
OPKIT_INLINE const Tensor* DirectCall::Output(size_t o, std::span<const Tensor> inputs,
                                              const Tensor& callers, const Shape& shape,
                                              DType dtype) {
  if (callers.dtype() == dtype && callers.shape() == shape && callers.initialized() &&
      callers.device() == device_ && callers.is_dense() && callers.layout().is_standard() &&
      !Clobbers(o, inputs, callers)) [[likely]]
    return &callers;
  return &(made_[o] = OutputTensor(callers, shape, dtype, device_, [&](const Tensor& output) {
             return Clobbers(o, inputs, output);
           }));
}

OPKIT_INLINE void DirectCall::Fail(std::span<const Tensor> inputs) const {
  RethrowDescribed([&](Error& error) {
    std::vector<const Tensor*> given;  // the caller's tensors, not their dense copies
    for (size_t i = 0; i < inputs.size(); ++i)
      given.push_back(identity_.def.inputs()[i].empty() ? nullptr : &inputs[i]);
    AddOperatorContext(error, identity_, given, outputs_);
  });
}
OPKIT_INLINE void DirectCall::DescribeSpan() const noexcept {
  SpanSink* const sink = EndSpanForWork();
  if (!sink) return;
  const auto types = [](const auto& tensors) {
    std::vector<TensorInfo> infos;
    for (const Tensor* tensor : tensors)
      infos.push_back(tensor ? TensorInfo::Of(*tensor) : TensorInfo());
    return infos;
  };
  try {
    sink->Describe(
        identity_.cost.compute(identity_.cost, identity_.def, types(inputs_), types(outputs_)));
  } catch (...) {  // the schema's cost function failed; the run itself succeeded
  }
}

OPKIT_INLINE ResolvedCall MakeDirectCall(const OpSchema& schema, const OperatorDef& def) {
  const OpRegistry& registry = OpRegistry::Global();
  const std::vector<const Kernel*> kernels = registry.FindKernels(def.type(), def.device().type);
  if (kernels.empty()) ThrowNoKernel(def, {});
  const Kernel& kernel = *kernels.front();
  if (kernels.size() > 1 || !kernel.typed || kernel.make_typed) return {};
  // The order of backends does not matter for a single kernel, but OPKIT_BACKENDS may exclude its
  // backend.
  if (const BackendPreference& allowed = AllowedBackends();
      !allowed.empty() && !Contains(allowed, kernel.backend))
    ThrowNoneAllowed(def, kernel.backend);
  if (std::string why = registry.WhyUnavailable(kernel); !why.empty())
    ThrowNoKernel(def, StrCat("\n  backend ", kernel.backend, ": ", why));
  auto call = std::make_unique<DirectCall>(kernel, schema, def);
  return {[call = std::move(call)](std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                   bool) { call->Run(inputs, outputs); }};
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_

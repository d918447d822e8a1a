// InferenceCache's definitions: inference over tensors, and taking over what a plan has inferred.
#ifndef OPKIT_OP_IMPL_INFERENCE_CACHE_IPP_
#define OPKIT_OP_IMPL_INFERENCE_CACHE_IPP_

#include "opkit/base/index.hpp"
#include "opkit/op/inference_cache.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline void Record(const TensorInfo* infos, size_t count,
                   std::vector<InferenceCache::Output>& out) {
  out.clear();
  for (size_t i = 0; i < count; ++i) {
    const bool known = infos[i].shape.is_known();
    out.push_back({infos[i].dtype, known, known ? infos[i].shape.ToShape() : Shape()});
  }
}
inline bool AreKnown(std::span<const TensorInfo> infos, const std::vector<std::string>& names) {
  for (size_t i = 0; i < infos.size(); ++i)
    if (!names[i].empty() && (infos[i].dtype == DType::kUndefined || !infos[i].shape.is_known()))
      return false;
  return true;
}

OPKIT_INLINE void InferenceCache::Infer(const OperatorDef& def, InputPointers inputs,
                                        FunctionRef<void(InferenceContext&)> infer,
                                        FunctionRef<void()> before_data) {
  fresh_ = data_read_ = false;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < def.inputs().size(); ++i) {
    const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
    infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
  }
  RecordInputs(infos.data(), infos.size());
  auto data_of = [&](int i) -> const Tensor* {
    const Tensor* input = inputs[Index(i)];
    if (!input || !input->initialized() || !IsHostAccessible(input->device().type)) return nullptr;
    if (!data_read_) before_data();
    data_read_ = true;
    return input;
  };
  InferenceContext context(def, std::move(infos));
  context.ReadConstantsFrom(data_of);
  infer(context);
  RecordOutputs(context.outputs().data(), context.outputs().size());
}
OPKIT_INLINE void InferenceCache::Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
                                      std::span<const TensorInfo> outputs) {
  if (inputs.size() != def.inputs().size() || outputs.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "SetInferredOutputs of operator ", def, " for ",
          inputs.size(), " inputs and ", outputs.size(), " outputs");
  if (!AreKnown(inputs, def.inputs()) || !AreKnown(outputs, def.outputs())) return;
  RecordInputs(inputs.data(), inputs.size());
  RecordOutputs(outputs.data(), outputs.size());
  fresh_ = true;
}
OPKIT_INLINE void InferenceCache::RecordInputs(const TensorInfo* infos, size_t count) {
  Record(infos, count, inputs_);
}
OPKIT_INLINE void InferenceCache::RecordOutputs(const TensorInfo* infos, size_t count) {
  Record(infos, count, outputs_);
  ++version_;
}

}  // namespace detail

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INFERENCE_CACHE_IPP_

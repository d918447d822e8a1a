// InferenceContext's and InferenceCache's definitions: access to a node's values, and merging of
// facts about a value.
#ifndef OPKIT_OP_IMPL_INFERENCE_IPP_
#define OPKIT_OP_IMPL_INFERENCE_IPP_

#include "opkit/op/inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE TensorInfo TensorInfo::Of(const Tensor& tensor) {
  TensorInfo info(tensor.dtype(), tensor.shape());
  if (tensor.dtype() > DType::kString && tensor.numel() > 0) [[unlikely]] {
    const Tensor& first = *static_cast<const Tensor*>(tensor.raw_data());
    info.holds_sequence = first.dtype() == DType::kSequence;
    info.element = info.holds_sequence ? Of(first).element : first.dtype();
  }
  info.device = tensor.device();
  info.layout = tensor.layout();
  return info;
}
OPKIT_INLINE TensorInfo TensorInfo::OfConstant(const Tensor& tensor) {
  TensorInfo info = Of(tensor);
  if (tensor.initialized()) info.constant = &tensor;
  return info;
}
OPKIT_INLINE std::string ToString(const TensorInfo& info) {
  const std::string element = info.element == DType::kUndefined
                                  ? ""
                                  : StrCat(info.element, info.holds_sequence ? "[]" : "");
  return StrCat(info.dtype == DType::kUndefined ? "?" : ToString(info.dtype),
                element.empty() ? "" : "<" + element + ">", info.shape,
                info.layout.is_standard() ? "" : " in " + ToString(info.layout));
}

OPKIT_INLINE InferenceContext::InferenceContext(const OperatorDef& def,
                                                std::vector<TensorInfo> inputs,
                                                std::vector<TensorInfo> outputs)
    : def_(def), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  outputs_.resize(def.outputs().size());
}

namespace detail {

// Merges a dtype and shape into the known facts about an input or output.
inline void Refine(const OperatorDef& def, TensorInfo& info, const char* what, int i, DType dtype,
                   const SymbolicShape& shape) {
  // The new shape comes first: Merge keeps the first of two symbols, so that a later comparison of
  // this value with another value sees both.
  auto merged = SymbolicShape::Merge(shape, info.shape);
  if (info.dtype != DType::kUndefined && dtype != DType::kUndefined && info.dtype != dtype)
    Throw(ErrorCode::kTypeMismatch, what, " ", i, " of ", def, " is ", info, ", expected dtype ",
          dtype);
  if (!merged)
    Throw(ErrorCode::kInvalidArgument, what, " ", i, " of ", def, " is ", info,
          ", but inference finds ", TensorInfo(dtype, shape));
  info.shape = *std::move(merged);
  if (dtype != DType::kUndefined) info.dtype = dtype;
}

}  // namespace detail

OPKIT_INLINE const Attribute* detail::DefaultOf(
    const std::vector<detail::AttributeSchema>* declared, std::string_view name) {
  if (declared)
    for (const detail::AttributeSchema& attribute : *declared)
      if (attribute.name == name && attribute.default_value) return &*attribute.default_value;
  return nullptr;
}

OPKIT_INLINE const Tensor* InferenceContext::input_constant(int i) const {
  const Tensor* known = input(i).constant;
  if (!known && find_constant_) known = (*find_constant_)(i);
  lacks_data_ |= !known && HasInput(i);
  return known;
}
OPKIT_INLINE void InferenceContext::SetOutput(int i, DType dtype, const SymbolicShape& shape) {
  detail::Refine(def_, outputs_[Check(i, outputs_.size(), "output")], "output", i, dtype, shape);
}
OPKIT_INLINE void InferenceContext::SetOutput(int i, const TensorInfo& info) {
  SetOutput(i, info.dtype, info.shape);
  TensorInfo& output = outputs_[detail::Index(i)];
  if (output.element != DType::kUndefined && info.element != DType::kUndefined &&
      output.element != info.element)
    Throw(ErrorCode::kTypeMismatch, "output ", i, " of ", def_, " is ", output,
          ", but inference finds ", info);
  if (info.element == DType::kUndefined) return;
  output.element = info.element;
  output.holds_sequence = info.holds_sequence;
}
OPKIT_INLINE void InferenceContext::SetInput(int i, DType dtype, const SymbolicShape& shape) {
  detail::Refine(def_, inputs_[Check(i, inputs_.size(), "input")], "input", i, dtype, shape);
}
OPKIT_INLINE void InferenceContext::SetOutputData(int i, const Tensor& data) {
  SetOutput(i, data.dtype(), data.shape());
  output_data_.resize(outputs_.size());
  output_data_[detail::Index(i)] = data;
}
OPKIT_INLINE const Tensor* InferenceContext::output_data(int i) const {
  const size_t at = detail::Index(i);
  return at < output_data_.size() && output_data_[at].dtype() != DType::kUndefined
             ? &output_data_[at]
             : nullptr;
}

OPKIT_INLINE size_t InferenceContext::Check(int i, size_t count, const char* what) {
  if (i < 0 || detail::Index(i) >= count)
    Throw(ErrorCode::kOutOfRange, what, " ", i, " of a node that has ", count);
  return detail::Index(i);
}
namespace detail {

inline void Record(std::span<const TensorInfo> infos, std::vector<InferenceCache::Output>& out) {
  out.clear();
  for (const TensorInfo& info : infos) {
    const bool known = info.shape.is_known();
    out.push_back({info.dtype, known, known ? info.shape.ToShape() : Shape()});
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
  Record(infos, inputs_);
  auto data_of = [&](int i) -> const Tensor* {
    const Tensor* input = inputs[Index(i)];
    if (!input || !IsHostAccessible(input->device().type)) return nullptr;
    if (!input->initialized())
      Throw(ErrorCode::kUninitialized, "input ", i, " '", def.inputs()[Index(i)], "' is ",
            ToString(*input), ": nothing was written to it");
    if (!data_read_) before_data();
    data_read_ = true;
    return input;
  };
  InferenceContext context(def, std::move(infos), planned_);
  context.ReadConstantsFrom(data_of);
  infer(context);
  Record(context.outputs(), outputs_);
  ++version_;
}
OPKIT_INLINE void InferenceCache::Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
                                      std::span<const TensorInfo> outputs, bool lacks_data) {
  if (inputs.size() != def.inputs().size() || outputs.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "SetInferredOutputs of operator ", def,
          " is given types of ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  planned_.clear();
  if (lacks_data)
    for (const TensorInfo& output : outputs) planned_.emplace_back(output.dtype, output.shape);
  if (lacks_data || !AreKnown(inputs, def.inputs()) || !AreKnown(outputs, def.outputs())) return;
  Record(inputs, inputs_);
  Record(outputs, outputs_);
  ++version_;
  fresh_ = true;
}

OPKIT_INLINE void ThrowContradicts(const OperatorDef& def, std::string_view output,
                                   const Tensor& made, const TensorInfo& inferred) {
  Throw(ErrorCode::kOperatorFailed, "operator ", def, " made '", output, "' ",
        ToString(TensorInfo::Of(made)), ", where its inference says ", ToString(inferred),
        "; make what is inferred, or leave open in the inference what the run decides");
}
OPKIT_INLINE void ThrowOtherLayout(const OperatorDef& def, std::string_view output,
                                   const Tensor& made, const Layout& promised) {
  Throw(ErrorCode::kOperatorFailed, "operator ", def, " made '", output, "' ", made,
        ", where the configuration of its kernel says layout ", ToString(promised),
        "; Output(i, shape, dtype) gives a tensor in the layout that was proposed");
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INFERENCE_IPP_

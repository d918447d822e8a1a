// Definitions of TensorBindings: its checks of the caller's tensors.
#ifndef OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_

#include "opkit/graph/plan/tensor_bindings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_INLINE TensorBindings::TensorBindings(const GraphView& view,
                                                       std::span<const int> donated)
    : view_(view) {
  for (const auto& input : view.graph().inputs())
    inputs_.push_back({view.FindValue(input.name), {}, {}, false, false});
  for (const int value : donated) inputs_[value].donated = true;
  for (const auto& rewrite : view.rewrites())  // inputs are the first values
    if (view.IsInput(rewrite.value)) inputs_[rewrite.value].rewritten = true;
  for (int value : view.outputs()) outputs_.push_back({value, {}, false});
}

OPKIT_COLD OPKIT_INLINE void TensorBindings::ThrowUnknown(std::string_view name) const {
  std::vector<std::string> names;
  for (const Input& input : inputs_) names.push_back(this->name(input));
  for (const Output& output : outputs_) names.push_back(this->name(output));
  Throw(ErrorCode::kNotFound, "the graph has no input or output '", name, "'",
        SuggestName(name, names));
}

OPKIT_INLINE void TensorBindings::Check(const Input& input, const Tensor& tensor) const {
  const std::string& name = this->name(input);
  const TensorInfo& info = view_.graph().FindInput(name)->info;
  if (!tensor.initialized())
    Throw(ErrorCode::kUninitialized, "the tensor given for input '", name, "' has no data");
  const bool dtype_differs = DTypeDiffers(info, tensor);
  if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()))
    Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "input '", name,
          "' of the graph is ", ToString(info), ", but the tensor given is ", tensor);
  if (MemoryDevice(tensor.device()) != MemoryDevice(info.device))
    Throw(ErrorCode::kInvalidArgument, "input '", name, "' of the graph is on ",
          ToString(info.device), ", but the tensor given is ", tensor, "; copy it there first");
  if (!tensor.layout().is_standard())
    Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name,
          "' must have the standard layout, but is ", tensor);
  if (!tensor.is_dense() && (input.rewritten || !IsHostAccessible(tensor.device().type)))
    Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name, "' must be dense: ",
          input.rewritten ? "the graph writes to it" : "it is not on the host");
  if (input.rewritten || input.donated) CheckApartFromGraph("given for input", name, tensor);
}

OPKIT_INLINE void TensorBindings::Check(const Output& output, const Tensor& tensor) const {
  if (!tensor.initialized() || !tensor.is_dense() || !tensor.layout().is_standard())
    Throw(ErrorCode::kInvalidArgument, "the tensor bound to output '", name(output),
          "' must have memory and be dense, but is ", tensor);
  if (view_.producer(output.value) < 0)
    Throw(ErrorCode::kInvalidArgument, "output '", name(output),
          "' of the graph is an input or a constant itself, and cannot be bound");
  CheckApartFromGraph("bound to output", name(output), tensor);
}

OPKIT_INLINE void TensorBindings::CheckType(const Output& output, const TensorInfo& info,
                                            const Tensor& tensor) const {
  const bool dtype_differs = DTypeDiffers(info, tensor);
  if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()) ||
      MemoryDevice(info.device) != MemoryDevice(tensor.device()))
    Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "output '",
          name(output), "' of the graph is ", ToString(info), " on ", ToString(info.device),
          ", but the tensor bound to it is ", tensor);
}

OPKIT_INLINE std::vector<TensorInfo> TensorBindings::InputTypes() const {
  std::vector<TensorInfo> infos;
  for (const Input& input : inputs_) {
    if (input.tensor.dtype() == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "nothing was given for input '", name(input),
            "' of the graph; Run({{\"", name(input), "\", tensor}}), or Bind it");
    infos.push_back(TensorInfo::Of(input.tensor));
    infos.back().layout = Layout();
  }
  return infos;
}

OPKIT_INLINE void TensorBindings::CheckOverlaps() const {
  const auto share = [&](const Tensor& a, const Tensor& b, const char* what, int first,
                         int second) {
    if (a.SharesMemoryWith(b))
      Throw(ErrorCode::kInvalidArgument, what, " '", view_.name(first), "' and '",
            view_.name(second), "' share memory, and the graph writes to it; give each its own");
  };
  for (size_t i = 0; i < outputs_.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      share(outputs_[i].bound, outputs_[j].bound, "the tensors bound to the outputs",
            outputs_[j].value, outputs_[i].value);
  for (const Input& input : inputs_)
    for (const Input& other : inputs_)
      if ((input.rewritten || input.donated) && &input != &other)
        share(input.tensor, other.tensor, "the tensors given for the inputs", input.value,
              other.value);
}

OPKIT_INLINE bool TensorBindings::IsInputMemory(const Tensor& tensor) const {
  for (const Input& input : inputs_)
    if (input.tensor.SharesMemoryWith(tensor)) return true;
  return false;
}

OPKIT_INLINE void TensorBindings::CheckApartFromGraph(const char* use, const std::string& name,
                                                      const Tensor& tensor) const {
  if (const std::string holder = HolderOf(view_.graph(), tensor); !holder.empty())
    Throw(ErrorCode::kInvalidArgument, "the tensor ", use, " '", name, "' shares memory with ",
          holder, " of the graph, which runs would overwrite; give it memory of its own");
}

OPKIT_COLD OPKIT_INLINE std::string TensorBindings::HolderOf(const Graph& graph,
                                                             const Tensor& tensor) {
  for (const Graph::Constant& constant : graph.constants())
    if (constant.value.SharesMemoryWith(tensor)) return StrCat("constant '", constant.name, "'");
  for (const OperatorDef& def : graph.nodes()) {
    for (const NamedAttribute& arg : def.args())
      for (const Tensor& held : TensorsOf(arg.value))
        if (held.SharesMemoryWith(tensor))
          return StrCat("attribute '", arg.name, "' of node ", ToString(def));
    for (const NamedSubgraph& item : def.subgraphs())
      if (const Graph* inner = GraphOf(*item.graph))
        if (std::string holder = HolderOf(*inner, tensor); !holder.empty())
          return StrCat(holder, " of '", item.name, "'");
  }
  return {};
}

OPKIT_INLINE std::vector<Tensor> TensorBindings::TensorsOf(const Attribute& attribute) {
  if (attribute.type() == AttributeType::kTensor) return {attribute.Get<Tensor>()};
  if (attribute.type() != AttributeType::kTensors) return {};
  return attribute.Get<std::vector<Tensor>>();
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_

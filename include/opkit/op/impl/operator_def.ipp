// OperatorDef's definitions: the builder's setters and a node's spelling in messages.
#ifndef OPKIT_OP_IMPL_OPERATOR_DEF_IPP_
#define OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE OperatorDef::OperatorDef(std::string type, std::vector<std::string> inputs,
                                      std::vector<std::string> outputs, Arguments args)
    : type_(std::move(type)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      args_(std::move(args)) {}
OPKIT_INLINE OperatorDef::OperatorDef(const OperatorDef&) = default;
OPKIT_INLINE OperatorDef::OperatorDef(OperatorDef&&) noexcept = default;
OPKIT_INLINE OperatorDef& OperatorDef::operator=(const OperatorDef& other) {
  return *this = OperatorDef(other);
}
OPKIT_INLINE OperatorDef& OperatorDef::operator=(OperatorDef&&) noexcept = default;
OPKIT_INLINE OperatorDef::~OperatorDef() = default;

OPKIT_INLINE OperatorDef& OperatorDef::Input(std::string name) {
  return inputs_.push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Output(std::string name) {
  return outputs_.push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Inputs(const std::vector<std::string>& names) {
  return inputs_.insert(inputs_.end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Outputs(const std::vector<std::string>& names) {
  return outputs_.insert(outputs_.end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::ControlInput(std::string name) {
  return control_inputs_.push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Arg(std::string name, Attribute value) {
  return args_.Set(std::move(name), std::move(value)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Subgraph(std::string name,
                                                detail::IntrusivePtr<const SubgraphBase> graph) {
  if (!graph) Throw(ErrorCode::kInvalidArgument, "subgraph '", name, "' of ", type_, " is null");
  for (NamedSubgraph& known : subgraphs_)
    if (known.name == name) return known.graph = std::move(graph), *this;
  return subgraphs_.push_back({std::move(name), std::move(graph)}), *this;
}
OPKIT_INLINE const SubgraphBase* OperatorDef::FindSubgraph(std::string_view name) const {
  for (const NamedSubgraph& known : subgraphs_)
    if (known.name == name) return known.graph.get();
  return nullptr;
}

OPKIT_INLINE std::string ToString(const OperatorDef& def) {
  auto join = [](const std::vector<std::string>& names) {
    std::string out;
    for (size_t i = 0; i < names.size(); ++i) out += (i ? ", " : "") + names[i];
    return out;
  };
  return StrCat(def.type_, def.name_.empty() ? "" : " '" + def.name_ + "'", " (", join(def.inputs_),
                ") -> (", join(def.outputs_), ")");
}

}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

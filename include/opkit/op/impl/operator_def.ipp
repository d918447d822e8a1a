// OperatorDef's definitions: the builder's setters and a node's spelling in messages.
#ifndef OPKIT_OP_IMPL_OPERATOR_DEF_IPP_
#define OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE OperatorDef::OperatorDef(std::string type, std::vector<std::string> inputs,
                                      std::vector<std::string> outputs, Arguments args)
    : OperatorDef(std::move(type)) {
  mutable_inputs() = std::move(inputs);
  mutable_outputs() = std::move(outputs);
  mutable_args() = std::move(args);
}
OPKIT_INLINE const OperatorDef::Fields& OperatorDef::NoFields() {
  static const Fields fields;
  return fields;
}
OPKIT_INLINE OperatorDef::Fields& OperatorDef::mutable_fields() {
  if (shared_.use_count() != 1) shared_ = detail::MakeIntrusive<detail::Shared<Fields>>(fields());
  return shared_->value;
}

OPKIT_INLINE OperatorDef& OperatorDef::Input(std::string name) {
  return mutable_inputs().push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Output(std::string name) {
  return mutable_outputs().push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Inputs(const std::vector<std::string>& names) {
  return mutable_inputs().insert(mutable_inputs().end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Outputs(const std::vector<std::string>& names) {
  return mutable_outputs().insert(mutable_outputs().end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::ControlInput(std::string name) {
  return mutable_fields().control_inputs.push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Arg(std::string name, Attribute value) {
  return mutable_args().Set(std::move(name), std::move(value)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Subgraph(
    std::string name, detail::IntrusivePtr<const detail::SubgraphBase> graph) {
  if (!graph) Throw(ErrorCode::kInvalidArgument, "subgraph '", name, "' of ", type(), " is null");
  std::vector<detail::NamedSubgraph>& subgraphs = mutable_fields().subgraphs;
  for (detail::NamedSubgraph& known : subgraphs)
    if (known.name == name) return known.graph = std::move(graph), *this;
  return subgraphs.push_back({std::move(name), std::move(graph)}), *this;
}
OPKIT_INLINE const detail::SubgraphBase* OperatorDef::FindSubgraph(std::string_view name) const {
  for (const detail::NamedSubgraph& known : subgraphs())
    if (known.name == name) return known.graph.get();
  return nullptr;
}

OPKIT_INLINE std::string ToString(const OperatorDef& def) {
  auto join = [](const std::vector<std::string>& names) {
    std::string out;
    for (size_t i = 0; i < names.size(); ++i) out += (i ? ", " : "") + names[i];
    return out;
  };
  return StrCat(def.type(), def.name().empty() ? "" : " '" + def.name() + "'", " (",
                join(def.inputs()), ") -> (", join(def.outputs()), ")");
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

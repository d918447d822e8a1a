// Graph's definitions: building and rewriting, and the index from names to the inputs, constants
// and nodes that make them.
#ifndef OPKIT_GRAPH_IMPL_GRAPH_IPP_
#define OPKIT_GRAPH_IMPL_GRAPH_IPP_

#include <algorithm>

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE bool Reads(const OperatorDef& def, std::string_view name) {
  return std::find(def.inputs().begin(), def.inputs().end(), name) != def.inputs().end();
}

}  // namespace detail

OPKIT_INLINE Graph& Graph::AddInput(std::string name, DType dtype, SymbolicShape shape,
                                    Device device) {
  Graph::Input input{std::move(name), TensorInfo(dtype, std::move(shape))};
  input.info.device = device;
  return AddInput(std::move(input));
}
OPKIT_INLINE Graph& Graph::AddInput(Input input) {
  if (input.has_default()) CheckDefault(input, input.default_value);
  Declare(input.name, Source::kInput, inputs_.size());
  input.info.layout = Layout();
  input.info.constant = nullptr;
  inputs_.push_back(std::move(input));
  return *this;
}
OPKIT_INLINE Graph& Graph::SetDefault(std::string_view name, Tensor value) {
  const Declaration* found = Find(name, Source::kInput);
  if (!found) {
    std::vector<std::string> names;
    for (const Input& input : inputs_) names.push_back(input.name);
    Throw(ErrorCode::kNotFound, "the graph has no input '", name, "'", SuggestName(name, names));
  }
  Input& input = inputs_[detail::Index(found->index)];
  CheckDefault(input, value);
  input.default_value = std::move(value);
  return *this;
}
OPKIT_COLD OPKIT_INLINE void Graph::CheckDefault(const Input& input, const Tensor& value) {
  if (!value.initialized())
    Throw(ErrorCode::kUninitialized, "the default of input '", input.name, "' has no data");
  const TensorInfo& info = input.info;
  const bool dtype_differs = info.dtype != DType::kUndefined && info.dtype != value.dtype();
  if (dtype_differs || !SymbolicShape::Merge(info.shape, value.shape()) ||
      MemoryDevice(info.device) != MemoryDevice(value.device()) || !value.layout().is_standard())
    Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "input '",
          input.name, "' is ", ToString(info), " on ", ToString(info.device),
          ", but its default is ", value);
}

OPKIT_INLINE Graph& Graph::AddConstant(std::string name, Tensor value) {
  if (value.initialized() && !value.layout().is_standard())
    value = detail::g_convert_layout(value, Layout());
  return AddConstantInLayout(std::move(name), std::move(value));
}
OPKIT_INLINE Graph& Graph::AddConstantInLayout(std::string name, Tensor value) {
  if (!value.initialized())
    Throw(ErrorCode::kInvalidArgument, "constant '", name, "' has no data; fill it first");
  Declare(name, Source::kConstant, constants_.size());
  constants_.push_back({std::move(name), std::move(value)});
  return *this;
}

OPKIT_INLINE Graph& Graph::AddOutput(std::string name) {
  if (name.empty()) Throw(ErrorCode::kInvalidArgument, "an output of a graph needs a name");
  if (IsOutput(name))
    Throw(ErrorCode::kAlreadyExists, "'", name, "' is an output of the graph already");
  declared_[name].is_output = true;
  outputs_.push_back(std::move(name));
  return *this;
}

OPKIT_INLINE std::string Graph::FreshName(const std::string& hint) const {
  std::string name = hint;
  for (int n = 1; HasValue(name) || IsOutput(name); ++n) name = StrCat(hint, "_", n);
  return name;
}

OPKIT_INLINE int Graph::InsertNode(int before, OperatorDef def) {
  if (before < 0 || before > num_nodes())
    Throw(ErrorCode::kOutOfRange, "cannot insert a node before node ", before, ": the graph has ",
          num_nodes(), " nodes");
  if (def.type().empty())
    Throw(ErrorCode::kInvalidArgument, "a node needs the name of an operator");
  CheckOutputs(def, -1);
  nodes_.insert(nodes_.begin() + before, std::move(def));
  if (before + 1 == num_nodes())
    DeclareOutputs(detail::Index(before));
  else
    DeclareAll();
  return before;
}

OPKIT_INLINE void Graph::ReplaceNode(int i, OperatorDef def) {
  const size_t at = CheckIndex(i);
  CheckOutputs(def, i);
  nodes_[at] = std::move(def);
  DeclareAll();
}

OPKIT_INLINE void Graph::RemoveNode(int i) {
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(CheckIndex(i)));
  DeclareAll();
}

OPKIT_INLINE void Graph::RemoveNodes(const std::vector<char>& removed) {
  if (removed.size() != nodes_.size())
    Throw(ErrorCode::kInvalidArgument, "RemoveNodes needs a flag for each of ", num_nodes(),
          " nodes, found ", removed.size());
  size_t i = 0;
  std::erase_if(nodes_, [&](const OperatorDef&) { return removed[i++] != 0; });
  DeclareAll();
}

OPKIT_INLINE void Graph::ReplaceUses(const std::string& from, const std::string& to) {
  for (OperatorDef& def : nodes_)
    if (detail::Reads(def, from))
      std::replace(def.mutable_inputs().begin(), def.mutable_inputs().end(), from, to);
}

OPKIT_INLINE bool Graph::RemoveConstant(std::string_view name) {
  const Declaration* found = Find(name, Source::kConstant);
  if (!found) return false;
  constants_.erase(constants_.begin() + found->index);
  DeclareAll();
  return true;
}

OPKIT_INLINE bool Graph::RemoveOutput(std::string_view name) {
  if (!IsOutput(name)) return false;
  declared_[name].is_output = false;
  return std::erase(outputs_, name) > 0;
}

OPKIT_INLINE bool Graph::ReleaseConstant(std::string_view name) {
  const Declaration* found = Find(name, Source::kConstant);
  if (found) constants_[detail::Index(found->index)].value.ReleaseMemory();
  return found;
}

OPKIT_INLINE void Graph::Declare(const std::string& name, Source source, size_t index) {
  if (name.empty())
    Throw(ErrorCode::kInvalidArgument, source == Source::kInput ? "an input" : "a constant",
          " of a graph needs a name");
  if (const Declaration* found = Find(name)) ThrowMadeTwice(name, *found, "");
  Set(name, source, index);
}

OPKIT_INLINE void Graph::Set(const std::string& name, Source source, size_t index) {
  Declaration& declaration = declared_[name];
  declaration.source = source;
  declaration.index = static_cast<int>(index);
}

OPKIT_INLINE void Graph::CheckOutputs(const OperatorDef& def, int replaced) const {
  const std::vector<std::string>& outputs = def.outputs();
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->empty()) continue;
    if (std::find(outputs.begin(), output, *output) != output)
      Throw(ErrorCode::kAlreadyExists, "node ", ToString(def), " makes '", *output, "' twice");
    const Declaration* found = Find(*output);
    if (!found || detail::Reads(def, *output)) continue;
    if (found->source == Source::kNode && found->index == replaced) continue;
    ThrowMadeTwice(*output, *found, ToString(def));
  }
}

OPKIT_INLINE void Graph::DeclareOutputs(size_t node) {
  for (const std::string& name : nodes_[node].outputs())
    if (!name.empty() && !detail::Reads(nodes_[node], name)) Set(name, Source::kNode, node);
}

OPKIT_INLINE void Graph::DeclareAll() {
  declared_ = {};
  for (size_t i = 0; i < inputs_.size(); ++i) Set(inputs_[i].name, Source::kInput, i);
  for (size_t i = 0; i < constants_.size(); ++i) Set(constants_[i].name, Source::kConstant, i);
  for (size_t i = 0; i < nodes_.size(); ++i) DeclareOutputs(i);
  for (const std::string& output : outputs_) declared_[output].is_output = true;
}

OPKIT_COLD OPKIT_INLINE void Graph::ThrowMadeTwice(const std::string& name,
                                                   const Declaration& first,
                                                   const std::string& second) const {
  Throw(ErrorCode::kAlreadyExists, "value '", name, "' is made ",
        first.source == Source::kInput      ? "by an input of the graph"
        : first.source == Source::kConstant ? "by a constant"
                                            : "by node " + ToString(node(first.index)),
        " already", second.empty() ? "" : " and again by node " + second,
        "; give one of them another name");
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_GRAPH_IPP_

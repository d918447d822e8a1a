// WriteSymbolJson's definition.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_

#include <array>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes one text.
class SymbolJsonWriter {
 public:
  SymbolJsonWriter(const GraphView& view, const GraphTypes& types, const std::vector<bool>& is_arg)
      : view_(view), types_(types), is_arg_(is_arg), made_by_(Index(view.num_values()), {-1, -1}) {}

  SymbolJson Write() && {
    json_.BeginObject().NewLine("  ").Key("nodes").BeginArray();
    for (int value = 0; value < view_.num_values(); ++value)
      if (view_.IsInput(value) || view_.IsConstant(value)) WriteVariable(value);
    for (const int node : view_.order()) WriteNode(node);
    json_.NewLine("  ").EndArray().NewLine("  ").Key("arg_nodes").BeginArray();
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i] < 0) json_.Value(i);
    json_.EndArray().NewLine("  ").Key("heads");
    WriteEntries(view_.outputs());
    json_.NewLine().EndObject();
    return {text_ + "\n", std::move(nodes_)};
  }

 private:
  void Begin(int node, const std::string& op, const std::string& name) {
    json_.NewLine("    ").BeginObject().Member("op", op);
    json_.Member("name", name.empty() ? StrCat(op, "_", nodes_.size()) : name);
    json_.Key("attrs").BeginObject();
    nodes_.push_back(node);
  }
  void WriteVariable(int value) {
    made_by_[value] = {static_cast<int>(nodes_.size()), 0};
    Begin(-1, "null", view_.name(value));
    // Inputs are the first values.
    const bool is_arg = Index(value) >= is_arg_.size() || is_arg_[Index(value)];
    json_.Member("isArg", is_arg ? "True" : "False").Member("isAux", "False");
    if (view_.IsConstant(value)) json_.Member("constant", "True");
    json_.EndObject().Key("inputs").BeginArray().EndArray();
    WriteTypes({&value, 1});
  }
  void WriteNode(int node) {
    const OperatorDef& def = view_.graph().node(node);
    const auto number = static_cast<int>(nodes_.size());
    Begin(node, def.type(), def.name());
    for (const NamedAttribute& arg : def.args()) json_.Member(arg.name, AttributeText(arg.value));
    json_.EndObject().Key("inputs");
    WriteEntries(view_.inputs(node));
    if (!def.control_inputs().empty()) json_.Member("control_inputs", def.control_inputs());
    const auto outs = view_.outputs(node);
    WriteTypes(outs);
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) made_by_[outs[o]] = {number, static_cast<int>(o)};
  }
  // Writes the entries of the values that are there.
  template <class Values>
  void WriteEntries(const Values& values) {
    json_.BeginArray();
    for (const int value : values) {
      if (value < 0) continue;
      const auto& [node, output] = made_by_[value];
      json_.Value(std::array{node, output, 0});
    }
    json_.EndArray();
  }
  // Writes the dtypes and shapes of the values, and ends the node.
  void WriteTypes(std::span<const int> values) {
    json_.Key("dtypes").BeginArray();
    for (const int value : values) json_.Value(value < 0 ? "" : ToString(types_[value].dtype));
    json_.EndArray().Key("shapes").BeginArray();
    for (const int value : values) {
      if (value < 0 || !types_[value].shape.has_rank()) {
        json_.Item() += "null";
        continue;
      }
      json_.BeginArray();
      for (const Dim& dim : types_[value].shape.dims())
        json_.Value(dim.is_known() ? dim.value() : int64_t{-1});
      json_.EndArray();
    }
    json_.EndArray().EndObject();
  }

  const GraphView& view_;
  const GraphTypes& types_;
  const std::vector<bool>& is_arg_;
  IndexedVector<std::pair<int, int>> made_by_;  // by value: the text's node and output that make it
  std::string text_;
  JsonWriter json_{text_};
  std::vector<int> nodes_;
};

}  // namespace detail

OPKIT_INLINE SymbolJson WriteSymbolJson(const GraphView& view, const GraphTypes& types,
                                        const std::vector<bool>& is_arg) {
  return detail::SymbolJsonWriter(view, types, is_arg).Write();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_

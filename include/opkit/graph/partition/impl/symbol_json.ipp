// WriteSymbolJson's definition.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_

#include <algorithm>

#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/op/function/attr_map.hpp"
#include "opkit/profile/json_text.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes one text.
class SymbolJsonWriter {
 public:
  SymbolJsonWriter(const GraphView& view, const GraphTypes& types, const std::vector<bool>& is_arg)
      : view_(view), types_(types), is_arg_(is_arg), made_by_(Index(view.num_values()), {-1, -1}) {}

  SymbolJson Write() && {
    text_ = "{\n  \"nodes\": [";
    for (int value = 0; value < view_.num_values(); ++value)
      if (view_.IsInput(value) || view_.IsConstant(value)) WriteVariable(value);
    for (const int node : view_.order()) WriteNode(node);
    text_ += "\n  ],\n  \"arg_nodes\": [";
    bool first = true;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i] < 0) {
        if (!std::exchange(first, false)) text_ += ", ";
        AppendInteger(text_, i);
      }
    text_ += "],\n  \"heads\": [";
    first = true;
    for (const int output : view_.outputs()) {
      if (!std::exchange(first, false)) text_ += ", ";
      AppendEntry(output);
    }
    text_ += "]\n}\n";
    return {std::move(text_), std::move(nodes_)};
  }

 private:
  void Begin(int node, const std::string& op, const std::string& name) {
    text_ += nodes_.empty() ? "\n    {\"op\": " : ",\n    {\"op\": ";
    AppendJsonString(text_, op);
    text_ += ", \"name\": ";
    AppendJsonString(text_, name.empty() ? StrCat(op, "_", nodes_.size()) : name);
    nodes_.push_back(node);
  }
  void WriteVariable(int value) {
    made_by_[Index(value)] = {static_cast<int>(nodes_.size()), 0};
    Begin(-1, "null", view_.name(value));
    // Inputs are the first values.
    const bool is_arg = Index(value) >= is_arg_.size() || is_arg_[Index(value)];
    text_ += ", \"attrs\": {\"isArg\": ";
    text_ += is_arg ? "\"True\"" : "\"False\"";
    text_ += ", \"isAux\": \"False\"";
    if (view_.IsConstant(value)) text_ += ", \"constant\": \"True\"";
    text_ += "}, \"inputs\": []";
    AppendTypes({&value, 1});
    text_ += '}';
  }
  void WriteNode(int node) {
    const OperatorDef& def = view_.graph().node(node);
    const auto number = static_cast<int>(nodes_.size());
    Begin(node, def.type(), def.name());
    text_ += ", \"attrs\": {";
    bool first = true;
    for (const NamedAttribute& arg : def.args()) {
      if (!std::exchange(first, false)) text_ += ", ";
      AppendJsonString(text_, arg.name);
      text_ += ": ";
      AppendJsonString(text_, AttributeText(arg.value));
    }
    text_ += "}, \"inputs\": [";
    first = true;
    for (const int value : view_.inputs(node)) {
      if (value < 0) continue;
      if (!std::exchange(first, false)) text_ += ", ";
      AppendEntry(value);
    }
    text_ += ']';
    if (!def.control_inputs().empty()) {
      text_ += ", \"control_inputs\": [";
      first = true;
      for (const std::string& name : def.control_inputs()) {
        if (!std::exchange(first, false)) text_ += ", ";
        AppendJsonString(text_, name);
      }
      text_ += ']';
    }
    AppendTypes(view_.outputs(node));
    text_ += '}';
    const auto outs = view_.outputs(node);
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) made_by_[Index(outs[o])] = {number, static_cast<int>(o)};
  }
  void AppendEntry(int value) {
    const auto& [node, output] = made_by_[Index(value)];
    text_ += StrCat("[", node, ", ", output, ", 0]");
  }
  void AppendTypes(std::span<const int> values) {
    text_ += ", \"dtypes\": [";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_ += ", ";
      AppendJsonString(text_, values[i] < 0 ? "" : ToString(types_[values[i]].dtype));
    }
    text_ += "], \"shapes\": [";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_ += ", ";
      if (values[i] < 0 || !types_[values[i]].shape.has_rank()) {
        text_ += "null";
        continue;
      }
      text_ += '[';
      bool first = true;
      for (const Dim& dim : types_[values[i]].shape.dims()) {
        if (!std::exchange(first, false)) text_ += ", ";
        AppendInteger(text_, dim.is_known() ? dim.value() : int64_t{-1});
      }
      text_ += ']';
    }
    text_ += ']';
  }

  const GraphView& view_;
  const GraphTypes& types_;
  const std::vector<bool>& is_arg_;
  std::vector<std::pair<int, int>> made_by_;  // by value: the text's node and output that make it
  std::string text_;
  std::vector<int> nodes_;
};

}  // namespace detail

OPKIT_INLINE SymbolJson WriteSymbolJson(const GraphView& view, const GraphTypes& types,
                                        const std::vector<bool>& is_arg) {
  return detail::SymbolJsonWriter(view, types, is_arg).Write();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_SYMBOL_JSON_IPP_

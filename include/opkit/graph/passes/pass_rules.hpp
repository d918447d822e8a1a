// What every pass must know of a node before it drops, runs or merges it, and the copy of a graph
// with another choice of constants and nodes that passes end with.
#ifndef OPKIT_GRAPH_PASSES_PASS_RULES_HPP_
#define OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/subgraph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Calls f(name) for every value that the node writes though it is made elsewhere.
template <class Def, class F>
void ForEachRewritten(const Def& def, F&& f) {
  for (const std::string& output : def.outputs())
    for (const std::string& input : def.inputs())
      if (!output.empty() && output == input) {
        f(output);
        break;
      }
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema) return;
  for (const int i : schema->MutatedInputs(def))
    if (i >= 0 && static_cast<size_t>(i) < def.inputs().size() &&
        !def.inputs()[static_cast<size_t>(i)].empty())
      f(def.inputs()[static_cast<size_t>(i)]);
}
template <class Def>
bool RewritesInputs(const Def& def) {
  bool found = false;
  ForEachRewritten(def, [&](const std::string&) { found = true; });
  return found;
}

// A run of it, how often and when, can be told from more than its outputs: the operator is stateful
// or not known, the node has no outputs, or that is so inside a subgraph.
template <class Def>
bool HasEffect(const Def& def) {
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema || schema->is_stateful()) return true;
  bool any_output = false;
  for (const std::string& output : def.outputs()) any_output |= !output.empty();
  if (!any_output) return true;
  for (const auto& item : def.subgraphs()) {
    const auto* graph = GraphOf(*item.graph);
    if (!graph) return true;
    for (const auto& inner : graph->nodes()) {
      bool writes_outside = false;
      ForEachRewritten(inner,
                       [&](const std::string& name) { writes_outside |= graph->IsInput(name); });
      if (writes_outside || HasEffect(inner)) return true;
    }
  }
  return false;
}

// By value: whether some node writes it though it is made elsewhere (GraphView::IsRewritten, which
// looks through all that is rewritten every time).
template <class View>
std::vector<char> RewrittenValues(const View& view) {
  std::vector<char> flags(static_cast<size_t>(view.num_values()), 0);
  for (const auto& rewrite : view.rewrites()) flags[static_cast<size_t>(rewrite.value)] = 1;
  return flags;
}

// Node names that others wait for by name.
template <class G>
NameIndex ControlNames(const G& graph) {
  NameIndex names;
  for (const auto& def : graph.nodes())
    for (const std::string& name : def.control_inputs()) names.Add(name);
  return names;
}

// The graph's inputs and outputs around other constants and nodes.
template <class G, class Constants, class Nodes>
G WithContents(const G& graph, Constants constants, Nodes nodes) {
  G out;
  for (const auto& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
  for (auto& constant : constants)
    out.AddConstant(std::move(constant.name), std::move(constant.value));
  for (auto& def : nodes) out.AddNode(std::move(def));
  for (const std::string& output : graph.outputs()) out.AddOutput(output);
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

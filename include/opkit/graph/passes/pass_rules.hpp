// The rules by which a pass may drop, run or merge a node, and the copy of a graph with other
// constants and nodes that passes return. Only definitions include this header.
#ifndef OPKIT_GRAPH_PASSES_PASS_RULES_HPP_
#define OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

#include "opkit/graph/carried_graph.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline bool RewritesInputs(const OperatorDef& def) {
  bool found = false;
  ForEachRewritten(def, [&](const std::string&) { found = true; });
  return found;
}

// Whether more than the node's outputs tells how often and when it ran: the operator is stateful or
// not known, the node has no outputs, or such a node stands inside a subgraph.
inline bool HasEffect(const OperatorDef& def) {
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema || schema->is_stateful()) return true;
  bool any_output = false;
  for (const std::string& output : def.outputs()) any_output |= !output.empty();
  if (!any_output) return true;
  for (const NamedSubgraph& item : def.subgraphs()) {
    const Graph* graph = GraphOf(*item.graph);
    if (!graph) return true;
    for (const OperatorDef& inner : graph->nodes()) {
      bool writes_outside = false;
      ForEachRewritten(inner,
                       [&](const std::string& name) { writes_outside |= graph->IsInput(name); });
      if (writes_outside || HasEffect(inner)) return true;
    }
  }
  return false;
}

// Whether the node gives the same whenever it runs, so that it may run again, or not at all where
// an equal one has run. A rewritten value differs before and after.
inline bool IsRepeatable(const GraphView& view, int node) {
  const OperatorDef& def = view.graph().node(node);
  if (HasEffect(def) || RewritesInputs(def)) return false;
  for (const auto values : {view.inputs(node), view.outputs(node)})
    for (const int value : values)
      if (value >= 0 && view.IsRewritten(value)) return false;
  return true;
}

// The node names that control inputs mention.
inline NameIndex ControlNames(const Graph& graph) {
  NameIndex names;
  for (const OperatorDef& def : graph.nodes())
    for (const std::string& name : def.control_inputs()) names.Add(name);
  return names;
}

// Whether some node waits for this one by name.
inline bool IsWaitedFor(const OperatorDef& def, const NameIndex& control_names) {
  return !def.name().empty() && control_names.Find(def.name()) >= 0;
}

// The graph's inputs and outputs around other constants and nodes.
inline Graph WithContents(const Graph& graph, std::vector<GraphConstant> constants,
                          std::vector<OperatorDef> nodes) {
  Graph out;
  for (const GraphInput& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
  for (GraphConstant& constant : constants)
    out.AddConstant(std::move(constant.name), std::move(constant.value));
  for (OperatorDef& def : nodes) out.AddNode(std::move(def));
  for (const std::string& output : graph.outputs()) out.AddOutput(output);
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

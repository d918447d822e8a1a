// The rules by which a pass may drop, run or merge a node, and WithContents and WithInputs, which
// make a graph from another. Only files with definitions include this header.
#ifndef OPKIT_GRAPH_PASSES_PASS_RULES_HPP_
#define OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if the node writes to one of its inputs.
inline bool RewritesInputs(const OperatorDef& def) {
  bool found = false;
  ForEachRewritten(def, [&](const std::string&) { found = true; });
  return found;
}

// True if a run of the node changes more than its outputs: its operator is stateful or unknown, it
// has no outputs, or a subgraph of it contains such a node or one that rewrites a subgraph's input.
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

// True if some node rewrites a value that this node reads or makes.
inline bool UsesRewritten(const GraphView& view, int node) {
  for (const auto values : {view.inputs(node), view.outputs(node)})
    for (const int value : values)
      if (value >= 0 && view.IsRewritten(value)) return true;
  return false;
}

// True if every run of the node gives the same outputs. The node may then run again, or be replaced
// by an equal node. A node that uses a rewritten value is not repeatable.
inline bool IsRepeatable(const GraphView& view, int node) {
  const OperatorDef& def = view.graph().node(node);
  return !HasEffect(def) && !RewritesInputs(def) && !UsesRewritten(view, node);
}

// Returns the names of all control inputs.
inline NameIndex ControlNames(const Graph& graph) {
  NameIndex names;
  for (const OperatorDef& def : graph.nodes())
    for (const std::string& name : def.control_inputs()) names.Add(name);
  return names;
}

// True if the node is a control input of another node.
inline bool IsWaitedFor(const OperatorDef& def, const NameIndex& control_names) {
  return !def.name().empty() && control_names.Find(def.name()) >= 0;
}

inline Graph GraphWith(const std::vector<Graph::Input>& inputs,
                       std::vector<Graph::Constant> constants, std::vector<OperatorDef> nodes,
                       const std::vector<std::string>& outputs) {
  Graph out;
  for (const Graph::Input& input : inputs) out.AddInput(input);
  for (Graph::Constant& constant : constants)
    out.AddConstant(std::move(constant.name), std::move(constant.value));
  for (OperatorDef& def : nodes) out.AddNode(std::move(def));
  for (const std::string& output : outputs) out.AddOutput(output);
  return out;
}
// Returns a graph with the inputs and outputs of `graph` but other constants and nodes.
inline Graph WithContents(const Graph& graph, std::vector<Graph::Constant> constants,
                          std::vector<OperatorDef> nodes) {
  return GraphWith(graph.inputs(), std::move(constants), std::move(nodes), graph.outputs());
}
// Returns the graph with these inputs in place of its own.
inline Graph WithInputs(const Graph& graph, const std::vector<Graph::Input>& inputs) {
  return GraphWith(inputs, graph.constants(), graph.nodes(), graph.outputs());
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PASSES_PASS_RULES_HPP_

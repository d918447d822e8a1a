// Definitions of SubgraphExtractor and NodeReplacer.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/partition/node_sets.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void CheckNodeSet(const GraphView& view, const std::vector<int>& nodes) {
  if (nodes.empty()) Throw(ErrorCode::kInvalidArgument, "a subgraph needs at least one node");
  for (const int node : nodes) view.graph().node(node);  // throws kOutOfRange for a wrong index
}

OPKIT_INLINE std::string PathText(const Graph& graph, const std::vector<int>& path) {
  return PathText(path, [&](int node) -> const OperatorDef& { return graph.node(node); });
}

OPKIT_INLINE SubgraphExtractor::SubgraphExtractor(const GraphView& view, const GraphTypes* types)
    : view_(view),
      types_(types),
      node_mark_(Index(view.num_nodes()), 0),
      value_mark_(Index(view.num_values()), 0) {
  for (const GraphView::Rewrite& rewrite : view.rewrites())
    rewritten_by_.emplace_back(rewrite.node, rewrite.value);
  std::sort(rewritten_by_.begin(), rewritten_by_.end());
}

OPKIT_INLINE ExtractedSubgraph SubgraphExtractor::Extract(const std::vector<int>& nodes) {
  ++mark_;
  ExtractedSubgraph found;
  for (const int node : nodes) node_mark_[node] = mark_;
  NameIndex names;
  for (const int node : nodes) {
    const OperatorDef& def = view_.graph().node(node);
    if (!def.name().empty()) names.Add(def.name());
    for (auto own = std::lower_bound(rewritten_by_.begin(), rewritten_by_.end(),
                                     std::pair<int, int>(node, -1));
         own != rewritten_by_.end() && own->first == node; ++own)
      if (!Inside(view_.producer(own->second)))
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(def), " rewrites '",
              view_.name(own->second), "', which is made outside of the subgraph");
    for (const int value : view_.inputs(node))
      if (value >= 0 && !Inside(view_.producer(value))) Read(value, found);
  }
  for (const int node : nodes) {
    const OperatorDef& def = view_.graph().node(node);
    found.body.AddNode(WithoutOutsideControl(def, names, found.control_inputs));
    for (const int value : view_.outputs(node))
      if (value >= 0 && view_.producer(value) == node && IsUsedOutside(value))
        found.outputs.push_back(view_.name(value));
  }
  for (const std::string& output : found.outputs) found.body.AddOutput(output);
  return found;
}

OPKIT_INLINE void SubgraphExtractor::Read(int value, ExtractedSubgraph& found) {
  if (std::exchange(value_mark_[value], mark_) == mark_) return;
  const std::string& name = view_.name(value);
  if (const Tensor* constant = view_.constant(value)) {
    found.body.AddConstant(name, *constant);
    return;
  }
  TensorInfo info;
  if (types_) info = (*types_)[value];
  found.body.AddInput({name, std::move(info)});
  found.inputs.push_back(name);
}

OPKIT_INLINE bool SubgraphExtractor::IsUsedOutside(int value) const {
  if (view_.IsOutput(value)) return true;
  for (const int reader : view_.consumers(value))
    if (!Inside(reader)) return true;
  return false;
}

OPKIT_INLINE OperatorDef SubgraphExtractor::WithoutOutsideControl(
    const OperatorDef& def, const NameIndex& inside, std::vector<std::string>& outside) {
  bool crosses = false;
  for (const std::string& name : def.control_inputs()) {
    if (inside.Find(name) >= 0) continue;
    crosses = true;
    if (std::find(outside.begin(), outside.end(), name) == outside.end()) outside.push_back(name);
  }
  if (!crosses) return def;
  OperatorDef copy(def);
  std::erase_if(copy.mutable_control_inputs(),
                [&](const std::string& name) { return inside.Find(name) < 0; });
  return copy;
}

OPKIT_INLINE NodeReplacer::NodeReplacer(const GraphView& view,
                                        const std::vector<NodeReplacement>& replacements)
    : view_(view), replacements_(replacements), unit_(Index(view.num_nodes()), -1) {
  for (const NodeReplacement& replacement : replacements) {
    CheckNodeSet(view, replacement.nodes);
    for (const int node : replacement.nodes) {
      if (unit_[node] >= 0)
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(view.graph().node(node)),
              " is replaced twice");
      unit_[node] = static_cast<int>(units_.size());
    }
    units_.push_back(*std::min_element(replacement.nodes.begin(), replacement.nodes.end()));
  }
  for (int node = 0; node < view.num_nodes(); ++node)
    if (unit_[node] < 0) {
      unit_[node] = static_cast<int>(units_.size());
      units_.push_back(node);
    }
}

OPKIT_INLINE std::vector<std::vector<int>> NodeReplacer::NodesInOrder() const {
  std::vector<std::vector<int>> nodes;
  for (const int unit : Order())
    nodes.push_back(IsNew(unit) ? replacements_[Index(unit)].nodes
                                : std::vector<int>{units_[unit]});
  return nodes;
}

OPKIT_INLINE Graph NodeReplacer::Result() const {
  const Graph& graph = view_.graph();
  NameTable<std::string> renamed;  // by name of a replaced node: the name of the first replacement
  for (const NodeReplacement& replacement : replacements_)
    for (const int node : replacement.nodes)
      if (const std::string& name = graph.node(node).name(); !name.empty() && !renamed.Find(name))
        renamed[name] = replacement.def.name();
  std::vector<OperatorDef> nodes;
  for (const int unit : Order()) {
    OperatorDef def = DefOf(unit);
    if (!def.control_inputs().empty()) RenameControl(def, renamed);
    nodes.push_back(std::move(def));
  }
  IndexedVector<char> used(Index(view_.num_values()), 0);
  for (int node = 0; node < view_.num_nodes(); ++node)
    if (!IsNew(unit_[node]))
      for (const int value : view_.inputs(node))
        if (value >= 0) used[value] = 1;
  for (const NodeReplacement& replacement : replacements_)
    for (const std::string& name : replacement.def.inputs())
      if (const int value = view_.FindValue(name); value >= 0) used[value] = 1;
  std::vector<Graph::Constant> constants;
  for (const Graph::Constant& constant : graph.constants()) {
    const int value = view_.FindValue(constant.name);
    if (used[value] || view_.IsOutput(value) || view_.consumers(value).empty())
      constants.push_back(constant);
  }
  Graph result = WithContents(graph, std::move(constants), std::move(nodes));
  const GraphView checked(result);
  return result;
}

OPKIT_INLINE void NodeReplacer::RenameControl(OperatorDef& def,
                                              const NameTable<std::string>& renamed) {
  std::vector<std::string> names;
  for (const std::string& name : def.control_inputs()) {
    const std::string* const found = renamed.Find(name);
    const std::string& now = found ? *found : name;
    if (std::find(names.begin(), names.end(), now) == names.end()) names.push_back(now);
  }
  def.mutable_control_inputs() = std::move(names);
}

OPKIT_INLINE std::vector<int> NodeReplacer::Order() const {
  std::vector<GraphView::Edge> edges;
  for (const GraphView::Edge& edge : CutProblemOf(view_).edges)
    if (unit_[edge.from] != unit_[edge.to]) edges.push_back({unit_[edge.from], unit_[edge.to]});
  return SortByEdges(
      static_cast<int>(units_.size()), edges, units_, [&](const std::vector<int>& cycle) {
        Throw(ErrorCode::kInvalidArgument, "the subgraphs would wait for each other: ",
              PathText(cycle, [&](int u) -> const OperatorDef& { return DefOf(u); }));
      });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_

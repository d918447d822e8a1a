// Definitions of SubgraphExtractor and NodeReplacer.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/partition/node_sets.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void CheckNodeSet(const GraphView& view, const std::vector<int>& nodes) {
  if (nodes.empty()) Throw(ErrorCode::kInvalidArgument, "a subgraph needs a node, found none");
  for (const int node : nodes) view.graph().node(node);  // throws kOutOfRange for a wrong index
}

OPKIT_INLINE std::string PathText(const Graph& graph, const std::vector<int>& path) {
  std::string text;
  for (const int node : path) text += (text.empty() ? "" : "  ->  ") + ToString(graph.node(node));
  return text;
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
  found.body.AddInput(name, info.dtype, info.shape, info.device);
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
    nodes.push_back(Index(unit) < replacements_.size() ? replacements_[Index(unit)].nodes
                                                       : std::vector<int>{units_[unit]});
  return nodes;
}

OPKIT_INLINE Graph NodeReplacer::Result() const {
  const Graph& graph = view_.graph();
  NameIndex renamed;  // names of replaced nodes
  std::vector<size_t> by;
  for (size_t i = 0; i < replacements_.size(); ++i)
    for (const int node : replacements_[i].nodes)
      if (!graph.node(node).name().empty() && renamed.Find(graph.node(node).name()) < 0) {
        renamed.Add(graph.node(node).name());
        by.push_back(i);
      }
  std::vector<OperatorDef> nodes;
  for (const int unit : Order()) {
    const bool is_new = Index(unit) < replacements_.size();
    OperatorDef def = is_new ? replacements_[Index(unit)].def : graph.node(units_[unit]);
    if (!def.control_inputs().empty()) RenameControl(def, renamed, by);
    nodes.push_back(std::move(def));
  }
  IndexedVector<char> used(Index(view_.num_values()), 0);
  for (int node = 0; node < view_.num_nodes(); ++node)
    if (Index(unit_[node]) >= replacements_.size())
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

OPKIT_INLINE void NodeReplacer::RenameControl(OperatorDef& def, const NameIndex& renamed,
                                              const std::vector<size_t>& by) const {
  std::vector<std::string> names;
  for (const std::string& name : def.control_inputs()) {
    const int number = renamed.Find(name);
    const std::string& now = number < 0 ? name : replacements_[by[Index(number)]].def.name();
    if (std::find(names.begin(), names.end(), now) == names.end()) names.push_back(now);
  }
  def.mutable_control_inputs() = std::move(names);
}

OPKIT_INLINE std::vector<int> NodeReplacer::Order() const {
  std::vector<GraphView::Edge> edges;
  for (const GraphView::Edge& edge : CutProblemOf(view_).edges) {
    const int from = unit_[edge.from], to = unit_[edge.to];
    if (from != to) edges.push_back({from, to});
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  });
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  IndexedVector<size_t> first(units_.size() + 1, 0);
  std::vector<int> waits(units_.size(), 0);
  for (const GraphView::Edge& edge : edges) ++first[Index(edge.from) + 1], ++waits[Index(edge.to)];
  for (size_t i = 0; i < units_.size(); ++i) first[i + 1] += first[i];
  const auto later = [this](int a, int b) { return units_[a] > units_[b]; };
  std::vector<int> ready;  // a heap with the first unit on top
  const auto push = [&](int unit) {
    ready.push_back(unit);
    std::push_heap(ready.begin(), ready.end(), later);
  };
  for (size_t i = 0; i < units_.size(); ++i)
    if (waits[i] == 0) push(static_cast<int>(i));
  std::vector<int> order;
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), later);
    const int unit = ready.back();
    ready.pop_back();
    order.push_back(unit);
    for (size_t i = first[unit]; i < first[Index(unit) + 1]; ++i)
      if (--waits[Index(edges[i].to)] == 0) push(edges[i].to);
  }
  if (order.size() < units_.size()) ThrowUnitCycle(edges, waits);
  return order;
}

OPKIT_COLD OPKIT_INLINE void NodeReplacer::ThrowUnitCycle(const std::vector<GraphView::Edge>& edges,
                                                          const std::vector<int>& waits) const {
  IndexedVector<int> before(units_.size(), -1), path;
  int unit = -1;
  for (const GraphView::Edge& edge : edges)
    if (waits[Index(edge.from)] > 0 && waits[Index(edge.to)] > 0)
      before[unit = edge.to] = edge.from;
  IndexedVector<char> met(units_.size(), 0);
  for (; !met[unit]; unit = before[unit]) {
    met[unit] = 1;
    path.push_back(unit);
  }
  std::string text;
  const auto name = [&](int u) {
    return Index(u) < replacements_.size() ? ToString(replacements_[Index(u)].def)
                                           : ToString(view_.graph().node(units_[u]));
  };
  const auto begin = std::find(path.begin(), path.end(), unit);
  for (auto u = path.rbegin(); u != std::make_reverse_iterator(begin); ++u)
    text += name(*u) + "  ->  ";
  Throw(ErrorCode::kInvalidArgument, "the subgraphs would wait for each other: ", text,
        name(path.back()));
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_NODE_SETS_IPP_

// RemoveDeadNodes' definition: marks nodes as live, backwards from outputs, nodes with an effect
// and rewrites of inputs.
#ifndef OPKIT_GRAPH_PASSES_IMPL_DEAD_NODES_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_DEAD_NODES_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The set of nodes that RemoveDeadNodes keeps.
class LiveNodes {
 public:
  explicit LiveNodes(const GraphView& view)
      : graph_(view.graph()), view_(view), live_(Index(view.num_nodes()), 0) {
    for (int node = 0; node < view.num_nodes(); ++node) {
      named_.emplace(graph_.node(node).name(), node);
      if (HasEffect(graph_.node(node))) Mark(node);
    }
    for (const auto& rewrite : view.rewrites())  // an input's memory belongs to the caller
      if (view.IsInput(rewrite.value)) Mark(rewrite.node);
    for (const int output : view.outputs()) Need(output, view.num_nodes());
    while (!todo_.empty()) {
      const int node = todo_.back();
      todo_.pop_back();
      for (const int value : view.inputs(node))
        if (value >= 0) Need(value, node);
      for (const std::string& name : graph_.node(node).control_inputs()) Mark(named_.at(name));
    }
  }

  bool operator[](int node) const { return live_[node] != 0; }

 private:
  void Mark(int node) {
    if (!std::exchange(live_[node], 1)) todo_.push_back(node);
  }
  // Marks the producer of the value and the nodes that rewrite it before node `reader`.
  void Need(int value, int reader) {
    if (view_.producer(value) >= 0) Mark(view_.producer(value));
    if (!view_.IsRewritten(value)) return;
    for (const auto& rewrite : view_.rewrites())
      if (rewrite.value == value && rewrite.node < reader) Mark(rewrite.node);
  }

  const Graph& graph_;
  const GraphView& view_;
  std::map<std::string_view, int> named_;
  IndexedVector<char> live_;
  std::vector<int> todo_;
};

}  // namespace detail

OPKIT_INLINE Graph RemoveDeadNodes(const Graph& graph) {
  const GraphView view(graph);
  const detail::LiveNodes live(view);
  std::vector<OperatorDef> nodes;
  for (int node = 0; node < graph.num_nodes(); ++node)
    if (live[node]) nodes.push_back(graph.node(node));
  std::vector<Graph::Constant> constants;
  for (const Graph::Constant& constant : graph.constants()) {
    const int value = view.FindValue(constant.name);
    const auto readers = view.consumers(value);
    if (view.IsOutput(value) ||
        std::any_of(readers.begin(), readers.end(), [&](int node) { return live[node]; }))
      constants.push_back(constant);
  }
  return detail::WithContents(graph, std::move(constants), std::move(nodes));
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_DEAD_NODES_IPP_

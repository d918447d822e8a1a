// RemoveDeadNodes: drops the nodes and constants from which nothing that a run leaves behind can be
// reached.
#ifndef OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_
#define OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class G>
class LiveNodes {
 public:
  explicit LiveNodes(const BasicGraphView<G>& view)
      : graph_(view.graph()),
        view_(view),
        rewritten_(RewrittenValues(view)),
        live_(static_cast<size_t>(view.num_nodes()), 0) {
    for (int node = 0; node < view.num_nodes(); ++node) {
      const auto& def = graph_.node(node);
      if (!def.name().empty() && names_.Find(def.name()) < 0) {
        names_.Add(def.name());
        named_.push_back(node);
      }
    }
    for (int node = 0; node < view.num_nodes(); ++node)
      if (HasEffect(graph_.node(node))) Mark(node);
    for (const auto& rewrite : view.rewrites())  // an input's memory is the caller's
      if (view.IsInput(rewrite.value)) Mark(rewrite.node);
    for (const int output : view.outputs()) Need(output, view.num_nodes());
    while (!todo_.empty()) {
      const int node = todo_.back();
      todo_.pop_back();
      for (const int value : view.inputs(node))
        if (value >= 0) Need(value, node);
      for (const std::string& name : graph_.node(node).control_inputs())
        Mark(named_[static_cast<size_t>(names_.Find(name))]);
    }
  }

  bool operator[](int node) const { return live_[static_cast<size_t>(node)] != 0; }

 private:
  void Mark(int node) {
    if (!std::exchange(live_[static_cast<size_t>(node)], 1)) todo_.push_back(node);
  }
  // The value as it is when the node `reader` reads it: what rewrites it later does not matter.
  void Need(int value, int reader) {
    if (view_.producer(value) >= 0) Mark(view_.producer(value));
    if (!rewritten_[static_cast<size_t>(value)]) return;
    for (const auto& rewrite : view_.rewrites())
      if (rewrite.value == value && rewrite.node < reader) Mark(rewrite.node);
  }

  const G& graph_;
  const BasicGraphView<G>& view_;
  const std::vector<char> rewritten_;  // by value
  NameIndex names_;
  std::vector<int> named_;  // by the number in `names_`
  std::vector<char> live_;
  std::vector<int> todo_;
};

}  // namespace detail

// What stays: nodes that an output of the graph needs; those with an effect (no outputs, stateful
// operators) and those that rewrite an input of the graph; what these need, control inputs
// included. Constants that nothing reads go. Inputs and outputs of the graph stay as they are.
template <class G = Graph>
G RemoveDeadNodes(const G& graph) {
  const BasicGraphView<G> view(graph);
  const detail::LiveNodes<G> live(view);
  std::vector<typename G::Def> nodes;
  for (int node = 0; node < graph.num_nodes(); ++node)
    if (live[node]) nodes.push_back(graph.node(node));
  std::vector<typename G::Constant> constants;
  for (const auto& constant : graph.constants()) {
    const int value = view.FindValue(constant.name);
    bool used = view.IsOutput(value);
    for (const int node : view.consumers(value)) used |= live[node];
    if (used) constants.push_back(constant);
  }
  return detail::WithContents(graph, std::move(constants), std::move(nodes));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_DEAD_NODES_HPP_

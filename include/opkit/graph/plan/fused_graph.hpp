// FusedGraph: the graph of a plan after fusion, where one kernel computes its own node and the
// nodes behind it. A plan makes it after selection and before it inserts converters, and only if a
// selected kernel fuses its next node. fusion.hpp has the definitions.
#ifndef OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_

#include <memory>
#include <span>

#include "opkit/base/hook.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/node_choice.hpp"
#include "opkit/graph/selection.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Owns the fused graph, its types and its choices, and maps the numbers of the plan's graph to its
// own.
class FusedGraph {
 public:
  // True if a selected kernel may fuse the next node with its own.
  static bool IsNeeded(const IndexedVector<NodeChoice>& choices) {
    for (const NodeChoice& choice : choices)
      if (choice.kernel->fuse) return true;
    return false;
  }
  // Returns null if nothing is fused. `types` has the layouts that the choices give to the values
  // of `view`. Two nodes are not fused if something else reads the value between them, or the graph
  // returns it, or a node rewrites a value of either node. They are not fused if a node waits by
  // name for the first, or the second waits by name for others, or they run on two devices. The
  // second node must not require another backend or have another kernel in `forced`. Throws the
  // exceptions of a kernel's Fuse.
  static std::unique_ptr<FusedGraph> Make(const GraphView& view, const GraphTypes& types,
                                          const IndexedVector<NodeChoice>& choices,
                                          const Selection* forced);

  const GraphView& view() const { return view_; }
  const GraphTypes& types() const { return types_; }
  // Returns the choices, by node of view().
  const IndexedVector<NodeChoice>& choices() const { return choices_; }
  // Returns the nodes of the plan's graph that a node of the fused graph computes, in the order in
  // which they run.
  std::span<const int> PartsOf(int node) const { return parts_[node]; }
  // Converts the number of a node of the plan's graph to its number in the fused graph.
  int NodeOf(int plan_node) const { return node_of_[plan_node]; }
  // Converts a value's number in the plan's view to its number in the fused graph; -1 for a value
  // between two fused nodes. Inputs and constants keep their numbers.
  int ValueOf(int plan_value) const { return value_of_[plan_value]; }
  void ReleaseConstant(const std::string& name) { graph_.ReleaseConstant(name); }

 private:
  struct Builder;
  FusedGraph(Builder&& builder, const GraphView& plan, const GraphTypes& types);

  Graph graph_;
  GraphView view_;
  GraphTypes types_;
  IndexedVector<NodeChoice> choices_;
  IndexedVector<std::vector<int>> parts_;
  IndexedVector<int> node_of_;
  IndexedVector<int> value_of_;
};

// Hook for FusedGraph::Make.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<FusedGraph>(
    const GraphView&, const GraphTypes&, const IndexedVector<NodeChoice>&, const Selection*)>
    g_make_fused_graph{"a plan of kernels that have Fuse", "opkit/graph/plan/fusion.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_

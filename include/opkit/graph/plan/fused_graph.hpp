// FusedGraph: the graph of a plan where kernels compute, with their own node, the nodes behind it.
// Made of what was selected, before converters are inserted: where no selected kernel takes its
// neighbour in, the graph stays as it is. fusion.hpp has the definitions.
#ifndef OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_

#include <memory>
#include <span>

#include "opkit/base/hook.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class FusedGraph {
 public:
  // Whether a selected kernel may take a neighbour in.
  static bool IsNeeded(const std::vector<NodeChoice>& choices) {
    for (const NodeChoice& choice : choices)
      if (choice.kernel->fuse) return true;
    return false;
  }
  // Null where nothing is fused. `types` has the layouts that the choices give the values of
  // `view`. A node is not taken in where something else reads what is between the two, or the graph
  // returns it, or a node rewrites a value of either, or the first is waited for by name, or the
  // next waits so for others; where they run on two devices; where the next node is `forced` to, or
  // requires, another backend. Errors: what a kernel's Fuse throws.
  static std::unique_ptr<FusedGraph> Make(const GraphView& view, const GraphTypes& types,
                                          const std::vector<NodeChoice>& choices,
                                          const Selection* forced);

  const GraphView& view() const { return view_; }
  const GraphTypes& types() const { return types_; }
  // By node of view().
  const std::vector<NodeChoice>& choices() const { return choices_; }
  // The nodes of the plan's graph that a node stands for, in the order in which they run.
  std::span<const int> PartsOf(int node) const { return parts_[Index(node)]; }
  // The node here that computes one of the plan's graph.
  int NodeOf(int plan_node) const { return node_of_[Index(plan_node)]; }
  // The value here, by its number in the plan's view; -1 for one between two parts. Inputs and
  // constants keep their numbers.
  int ValueOf(int plan_value) const { return value_of_[Index(plan_value)]; }
  void ReleaseConstant(const std::string& name) { graph_.ReleaseConstant(name); }

 private:
  struct Builder;
  FusedGraph(Builder&& builder, const GraphView& plan, const GraphTypes& types);

  Graph graph_;
  GraphView view_;
  GraphTypes types_;
  std::vector<NodeChoice> choices_;
  std::vector<std::vector<int>> parts_;
  std::vector<int> node_of_;
  std::vector<int> value_of_;
};

// FusedGraph::Make.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<FusedGraph>(
    const GraphView&, const GraphTypes&, const std::vector<NodeChoice>&, const Selection*)>
    g_make_fused_graph{"a plan of kernels that have Fuse", "opkit/graph/plan/fusion.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_FUSED_GRAPH_HPP_

// BoundNodes: the operators of a graph's nodes, created for known types from the selected kernels,
// in a workspace of their own. A specialization makes them, one set for each executor.
#ifndef OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_

#include "opkit/base/index.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/node_choice.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Owns the operators and the workspace with their blobs. One executor uses it at a time.
class BoundNodes {
 public:
  // Creates the operator of each node with the kernel in `choices`, in the order of the view. If
  // the constructor of a kernel refuses its node, `refused`(node, why) changes the choice, or
  // throws. Throws the errors of CreateOperator. `outer` has an entry for each value: its blob in
  // the enclosing graph, or null if it is not a value of that graph. The enclosing graph's
  // BoundNodes must outlive this object.
  BoundNodes(const GraphView& view, const GraphTypes& types,
             const IndexedVector<NodeChoice>& choices, const IndexedVector<Blob*>& outer = {},
             FunctionRef<void(int, const std::string&)> refused = &ThrowRefused) {
    operators_.resize(Index(view.num_nodes()));
    for (int value = 0; value < view.num_values(); ++value) {
      if (!outer.empty() && outer[value]) {
        workspace_.ShareBlob(view.name(value), outer[value]);
        blobs_.push_back(outer[value]);
        continue;
      }
      Blob* blob = workspace_.CreateBlob(view.name(value));
      // If only converted copies of a constant are read, no blob shares the original's memory.
      const bool is_used = view.IsOutput(value) || !view.consumers(value).empty();
      if (const Tensor* constant = view.constant(value); constant && is_used)
        *blob->GetMutable<Tensor>() = *constant;
      if (view.IsInput(value)) blob->GetMutable<Tensor>();
      blobs_.push_back(blob);
    }
    for (int node : view.order()) {
      auto& op = operators_[node];
      while (!op) {
        const NodeChoice& choice = choices[node];
        try {
          op = CreateOperator(
              view.graph().node(node), &workspace_,
              {.kernel = choice.kernel, .config = &choice.config, .net_position = node});
        } catch (const UnsupportedOperatorFeature& error) {
          refused(node, error.message());
        }
      }
      // Spares every run from inferring the same types again.
      op->SetInferredOutputs(types.Of(view.inputs(node)), types.Of(view.outputs(node)),
                             types.LacksData(node));
    }
  }

  Workspace& workspace() { return workspace_; }
  OperatorBase& op(int node) const { return *operators_[node]; }
  // Returns the blob of a value. Inputs and the constants that are read hold a tensor; other blobs
  // are empty until they are written.
  Blob& blob(int value) const { return *blobs_[value]; }
  // Returns the operators of the bodies that are planned with this graph.
  std::vector<std::unique_ptr<BoundNodes>>& bodies() { return bodies_; }

 private:
  // The default `refused`, for executors after the first: the kernels have accepted these nodes.
  [[noreturn]] OPKIT_COLD static void ThrowRefused(int, const std::string& why) {
    throw UnsupportedOperatorFeature(why);
  }

  Workspace workspace_;
  IndexedVector<Blob*> blobs_;  // by value
  IndexedVector<std::unique_ptr<OperatorBase>>
      operators_;                                    // by node; destroyed before the workspace
  std::vector<std::unique_ptr<BoundNodes>> bodies_;  // destroyed before the blobs
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_

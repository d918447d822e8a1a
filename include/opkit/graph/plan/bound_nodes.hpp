// BoundNodes: the operators of a graph's nodes, made for known types in a workspace of their own.
// Between selection, which fixes a kernel and a configuration for each node, and the executor.
#ifndef OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_

#include "opkit/graph/plan/plan_parts.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Parts>
class BoundNodes {
  using GraphView = typename Parts::GraphView;
  using GraphTypes = typename Parts::GraphTypes;
  using NodeChoice = typename Parts::NodeChoice;
  using OperatorBase = typename Parts::OperatorBase;

 public:
  // Makes every operator, in the order of the view. Where `choices` is empty it selects, trying a
  // node's candidates until one takes it, and fills it in. Errors as CreateOperator's.
  BoundNodes(const GraphView& view, const GraphTypes& types, std::vector<NodeChoice>& choices) {
    const bool select = choices.empty();
    choices.resize(static_cast<size_t>(view.num_nodes()));
    operators_.resize(static_cast<size_t>(view.num_nodes()));
    for (int value = 0; value < view.num_values(); ++value) {
      Blob* blob = workspace_.CreateBlob(view.name(value));
      if (const Tensor* constant = view.constant(value)) *blob->GetMutable<Tensor>() = *constant;
      if (view.IsInput(value)) blob->GetMutable<Tensor>();
      blobs_.push_back(blob);
    }
    for (int node : view.order()) {
      NodeChoice& choice = choices[static_cast<size_t>(node)];
      CheckDevices(view, types, node);
      auto& op = operators_[static_cast<size_t>(node)];
      op = select ? Select(view, types, node, choice)
                  : CreateOperator(
                        view.graph().node(node), &workspace_,
                        {.kernel = choice.kernel, .config = &choice.config, .net_position = node});
      // What is known here need not be found again in every run.
      op->SetInferredOutputs(types.Of(view.inputs(node)), types.Of(view.outputs(node)));
    }
  }

  Workspace& workspace() { return workspace_; }
  OperatorBase& op(int node) const { return *operators_[static_cast<size_t>(node)]; }
  // Of a value. Inputs and constants hold a tensor; what nodes make is empty until it is written.
  Blob& blob(int value) const { return *blobs_[static_cast<size_t>(value)]; }

 private:
  std::unique_ptr<OperatorBase> Select(const GraphView& view, const GraphTypes& types, int node,
                                       NodeChoice& choice) {
    const auto& def = view.graph().node(node);
    KernelCandidate chosen;
    auto op = CreateSelected(def, &workspace_, types.Of(view.inputs(node)),
                             types.Of(view.outputs(node)), node, &chosen);
    choice = {chosen.kernel, std::move(chosen.config), chosen.kernel->owner};
    return op;
  }
  static void CheckDevices(const GraphView& view, const GraphTypes& types, int node) {
    const auto& def = view.graph().node(node);
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    if (schema.inputs_can_cross_devices()) return;
    const auto expected = schema.InferDevices(def).first;
    const auto ins = view.inputs(node);
    for (size_t i = 0; i < ins.size() && i < expected.size(); ++i) {
      if (ins[i] < 0) continue;
      const Device found = types[ins[i]].device;
      if (MemoryDevice(found) != MemoryDevice(expected[i]))
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(def), " reads '", view.name(ins[i]),
              "' on ", ToString(expected[i]), ", but it is on ", ToString(found),
              "; copy it there with a node that crosses devices, or place the nodes together");
    }
  }

  Workspace workspace_;
  std::vector<Blob*> blobs_;                              // by value
  std::vector<std::unique_ptr<OperatorBase>> operators_;  // by node; gone before the workspace
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_

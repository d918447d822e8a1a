// BoundNodes: the operators of a graph's nodes, made for known types in a workspace of their own.
// Between selection, which fixes a kernel and a configuration for each node, and the executor.
#ifndef OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_
#define OPKIT_GRAPH_PLAN_BOUND_NODES_HPP_

#include "opkit/base/index.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class BoundNodes {
 public:
  // Makes every operator, in the order of the view. An empty `choices` is filled in by selection,
  // which tries a node's candidates until one takes it, of the backends that the node names alone
  // where it is `strict`. Errors as CreateOperator's.
  BoundNodes(const GraphView& view, const GraphTypes& types, std::vector<NodeChoice>& choices,
             bool strict = false) {
    const bool select = choices.empty();
    choices.resize(Index(view.num_nodes()));
    operators_.resize(Index(view.num_nodes()));
    for (int value = 0; value < view.num_values(); ++value) {
      Blob* blob = workspace_.CreateBlob(view.name(value));
      if (const Tensor* constant = view.constant(value)) *blob->GetMutable<Tensor>() = *constant;
      if (view.IsInput(value)) blob->GetMutable<Tensor>();
      blobs_.push_back(blob);
    }
    for (int node : view.order()) {
      NodeChoice& choice = choices[Index(node)];
      CheckDevices(view, types, node);
      auto& op = operators_[Index(node)];
      op = select ? Select(view, types, node, strict, choice)
                  : CreateOperator(
                        view.graph().node(node), &workspace_,
                        {.kernel = choice.kernel, .config = &choice.config, .net_position = node});
      // Spares every run from inferring the same types again.
      op->SetInferredOutputs(types.Of(view.inputs(node)), types.Of(view.outputs(node)),
                             types.LacksData(node));
    }
  }

  Workspace& workspace() { return workspace_; }
  OperatorBase& op(int node) const { return *operators_[Index(node)]; }
  // The blob of a value. Inputs and constants hold a tensor, others nothing until they are written.
  Blob& blob(int value) const { return *blobs_[Index(value)]; }

 private:
  std::unique_ptr<OperatorBase> Select(const GraphView& view, const GraphTypes& types, int node,
                                       bool strict, NodeChoice& choice) {
    const OperatorDef& def = view.graph().node(node);
    KernelCandidate chosen;
    const auto select = [&](const OperatorDef& from) {
      return CreateSelected(from, &workspace_, types.Of(view.inputs(node)),
                            types.Of(view.outputs(node)), {.net_position = node}, &chosen,
                            &choice.passed_over);
    };
    auto op = strict ? select(Strictly(def)) : select(def);
    choice.kernel = chosen.kernel;
    choice.config = std::move(chosen.config);
    choice.owner = chosen.kernel->owner;
    return op;
  }
  // The node with its backends required. Throws for one that is preferred and not there.
  OPKIT_COLD static OperatorDef Strictly(OperatorDef def) {
    CheckBackends(def);
    return def.Engine(def.engine(), kRequired);
  }
  static void CheckDevices(const GraphView& view, const GraphTypes& types, int node) {
    const OperatorDef& def = view.graph().node(node);
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
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

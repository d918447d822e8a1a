// EvaluateNode: runs a node whose inputs are known before the graph runs. Constant folding puts the
// results into the graph; inference reads shapes from them.
#ifndef OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_
#define OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_

#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A run more or less of the node, on this thread, cannot be told from outside.
template <class Def>
bool MayEvaluate(const Def& def) {
  return IsHostAccessible(def.device().type) && !RewritesInputs(def) && !HasEffect(def);
}

// The outputs, uninitialized where the node leaves one out; `inputs` null where it does. By the
// kernel that a plan would select. Errors: as CreateSelected and Run.
template <class Def, class Value = Tensor>
std::vector<Value> EvaluateNode(const Def& def, const std::vector<const Value*>& inputs) {
  Workspace ws;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    infos.push_back(inputs[i] ? TensorInfo::Of(*inputs[i], true) : TensorInfo());
    if (inputs[i]) *ws.CreateTensor(def.inputs()[i]) = *inputs[i];
  }
  const auto& schema = OpRegistry::Global().GetSchema(def.type());
  CreateSelected(def, &ws, infos, schema.InferOutputs(def, infos))->Run();
  std::vector<Value> outputs;
  for (const std::string& name : def.outputs()) {
    outputs.emplace_back();
    if (!name.empty()) outputs.back() = *ws.GetTensor(name);
  }
  return outputs;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_

// EvaluateNode: runs a node whose inputs are known before the graph runs. Constant folding adds the
// results to the graph; inference reads shapes from them. Only files with definitions include this
// header.
#ifndef OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_
#define OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_

#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if an additional run of the node on this thread has no observable effect.
inline bool MayEvaluate(const OperatorDef& def) {
  return IsHostAccessible(def.device().type) && !RewritesInputs(def) && !HasEffect(def);
}

// Runs the kernel that a plan would select and returns the outputs. An input that the node leaves
// out is null, and an output that it leaves out is uninitialized. Throws the errors of
// CreateSelected and OperatorBase::Run.
inline std::vector<Tensor> EvaluateNode(const OperatorDef& def,
                                        const std::vector<const Tensor*>& inputs) {
  Workspace ws;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    infos.push_back(inputs[i] ? TensorInfo::OfConstant(*inputs[i]) : TensorInfo());
    if (inputs[i]) *ws.CreateTensor(def.inputs()[i]) = *inputs[i];
  }
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  CreateSelected(def, &ws, infos, schema.InferOutputs(def, infos))->Run();
  std::vector<Tensor> outputs;
  for (const std::string& name : def.outputs())
    outputs.push_back(name.empty() ? Tensor() : *ws.GetTensor(name));
  return outputs;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PASSES_EVALUATE_NODE_HPP_

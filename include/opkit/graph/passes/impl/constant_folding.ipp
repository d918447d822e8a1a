// FoldConstants' definition: visits the nodes in the order of a run and keeps the data of every
// value that is known.
#ifndef OPKIT_GRAPH_PASSES_IMPL_CONSTANT_FOLDING_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_CONSTANT_FOLDING_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes/constant_folding.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"
#include "opkit/graph/passes/node_pass.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// One run of the pass: the constructor evaluates nodes, Result builds the graph.
class ConstantFolder : NodePass {
 public:
  ConstantFolder(const Graph& graph, const FoldOptions& options)
      : NodePass(graph), options_(options), known_(Index(view_.num_values())) {
    for (int value = 0; value < view_.num_values(); ++value)
      if (view_.IsConstant(value)) known_[value] = *view_.constant(value);
    for (const int node : view_.order()) removed_[node] = Folds(node);
  }

  Graph Result() const {
    std::vector<Graph::Constant> constants;
    for (const Graph::Constant& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (view_.consumers(value).empty() || IsNeeded(value)) constants.push_back(constant);
    }
    std::vector<OperatorDef> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!removed_[node]) {
        nodes.push_back(graph_.node(node));
        continue;
      }
      for (const int value : view_.outputs(node))
        if (value >= 0 && IsNeeded(value)) constants.push_back({view_.name(value), known_[value]});
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  // True if the value is an output of the graph or a node that is not folded reads it.
  bool IsNeeded(int value) const {
    bool needed = view_.IsOutput(value);
    for (const int node : view_.consumers(value)) needed |= !removed_[node];
    return needed;
  }
  bool Folds(int node) {
    const OperatorDef& def = graph_.node(node);
    for (const int value : view_.inputs(node))
      if (value >= 0 && !known_[value].initialized()) return false;
    for (const int value : view_.outputs(node))  // a constant may not be written to
      if (value >= 0 && view_.IsRewritten(value)) return false;
    if (HasControlEdges(node) || !MayEvaluate(def)) return false;
    try {
      return !IsTooLarge(def, node) && Run(def, node);
    } catch (...) {
      return false;  // the node fails again, and reports its error, when the graph runs
    }
  }
  // True if the outputs exceed max_bytes. Counts 0 bytes for an output whose size the schema cannot
  // infer.
  bool IsTooLarge(const OperatorDef& def, int node) const {
    std::vector<TensorInfo> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? TensorInfo() : TensorInfo::OfConstant(known_[value]));
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    double bytes = 0;
    for (const TensorInfo& output : schema.InferOutputs(def, std::move(inputs)))
      bytes += static_cast<double>(OpSchema::Bytes(output));
    return bytes > static_cast<double>(options_.max_bytes);
  }
  bool Run(const OperatorDef& def, int node) {
    std::vector<const Tensor*> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? nullptr : &known_[value]);
    std::vector<Tensor> results = EvaluateNode(def, inputs);
    const auto outs = view_.outputs(node);
    int64_t bytes = 0;
    for (size_t o = 0; o < outs.size(); ++o) {
      if (outs[o] < 0) continue;
      if (IsObject(results[o].dtype())) return false;  // models keep these in nodes
      bytes += results[o].nbytes();
      if (!results[o].initialized() || bytes > options_.max_bytes) return false;
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) known_[outs[o]] = std::move(results[o]);
    return true;
  }

  const FoldOptions options_;
  IndexedVector<Tensor> known_;  // by value; uninitialized if the data is not known
};

}  // namespace detail

OPKIT_INLINE Graph FoldConstants(const Graph& graph, const FoldOptions& options) {
  return detail::ConstantFolder(graph, options).Result();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_CONSTANT_FOLDING_IPP_

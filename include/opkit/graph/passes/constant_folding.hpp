// FoldConstants: runs the nodes that have nothing but constants to read, and puts constants in
// their place.
#ifndef OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_
#define OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

#include "opkit/graph/passes/evaluate_node.hpp"

namespace opkit::inline OPKIT_ABI {

struct FoldOptions {
  // Of all outputs of a node together; a node that makes more stays. Where the schema tells the
  // size, such a node is not run.
  int64_t max_bytes = int64_t{512} << 20;
};

namespace detail {

template <class G>
class ConstantFolder {
 public:
  ConstantFolder(const G& graph, const FoldOptions& options)
      : graph_(graph),
        options_(options),
        view_(graph),
        rewritten_(RewrittenValues(view_)),
        control_(ControlNames(graph)),
        known_(static_cast<size_t>(view_.num_values())),
        folded_(static_cast<size_t>(graph.num_nodes()), 0) {
    for (int value = 0; value < view_.num_values(); ++value)
      if (view_.IsConstant(value)) known_[static_cast<size_t>(value)] = *view_.constant(value);
    for (const int node : view_.order()) folded_[static_cast<size_t>(node)] = Folds(node);
  }

  G Result() const {
    std::vector<typename G::Constant> constants;
    for (const auto& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (view_.consumers(value).empty() || IsNeeded(value)) constants.push_back(constant);
    }
    std::vector<typename G::Def> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!folded_[static_cast<size_t>(node)]) {
        nodes.push_back(graph_.node(node));
        continue;
      }
      for (const int value : view_.outputs(node))
        if (value >= 0 && IsNeeded(value))
          constants.push_back({view_.name(value), known_[static_cast<size_t>(value)]});
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  bool IsNeeded(int value) const {
    bool needed = view_.IsOutput(value);
    for (const int node : view_.consumers(value)) needed |= !folded_[static_cast<size_t>(node)];
    return needed;
  }
  bool Folds(int node) {
    const auto& def = graph_.node(node);
    for (const int value : view_.inputs(node))
      if (value >= 0 && !known_[static_cast<size_t>(value)].initialized()) return false;
    for (const int value : view_.outputs(node))  // a constant may not be written to
      if (value >= 0 && rewritten_[static_cast<size_t>(value)]) return false;
    const bool waited_for = !def.name().empty() && control_.Find(def.name()) >= 0;
    if (waited_for || !def.control_inputs().empty() || !MayEvaluate(def)) return false;
    try {
      return !IsTooLarge(def, node) && Run(def, node);
    } catch (...) {
      return false;  // whatever is wrong with the node is reported where it runs
    }
  }
  // As far as the schema tells.
  bool IsTooLarge(const typename G::Def& def, int node) const {
    std::vector<TensorInfo> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? TensorInfo()
                                 : TensorInfo::Of(known_[static_cast<size_t>(value)], true));
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    double bytes = 0;
    for (const TensorInfo& output : schema.InferOutputs(def, std::move(inputs)))
      bytes += static_cast<double>(OpSchema::Bytes(output));
    return bytes > static_cast<double>(options_.max_bytes);
  }
  bool Run(const typename G::Def& def, int node) {
    std::vector<const Tensor*> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? nullptr : &known_[static_cast<size_t>(value)]);
    std::vector<Tensor> results = EvaluateNode(def, inputs);
    const auto outs = view_.outputs(node);
    int64_t bytes = 0;
    for (size_t o = 0; o < outs.size(); ++o) {
      if (outs[o] < 0) continue;
      bytes += results[o].nbytes();
      if (!results[o].initialized() || bytes > options_.max_bytes) return false;
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) known_[static_cast<size_t>(outs[o])] = std::move(results[o]);
    return true;
  }

  const G& graph_;
  const FoldOptions options_;
  const BasicGraphView<G> view_;
  const std::vector<char> rewritten_;  // by value
  const NameIndex control_;
  std::vector<Tensor> known_;  // by value; uninitialized where it is no constant
  std::vector<char> folded_;
};

}  // namespace detail

// Constants that only such nodes read go with them. What stays: nodes with an effect (stateful
// operators, no outputs), those that rewrite an input or whose output is rewritten, those that wait
// for others or are waited for by name, and those that do not run: an error shows where the graph
// runs. Operators run on the device of their node, if the host can reach its memory.
template <class G = Graph>
G FoldConstants(const G& graph, const FoldOptions& options = {}) {
  return detail::ConstantFolder<G>(graph, options).Result();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_CONSTANT_FOLDING_HPP_

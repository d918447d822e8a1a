// NodePass: the base of the passes FoldConstants, FoldBatchNormalization, MergeHardSwish,
// MergeQuantizedNodes and MergeCommonSubexpressions. Only files with definitions include this
// header.
#ifndef OPKIT_GRAPH_PASSES_NODE_PASS_HPP_
#define OPKIT_GRAPH_PASSES_NODE_PASS_HPP_

#include <optional>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The base of passes that examine a graph node by node and remove some of its nodes.
class NodePass {
 protected:
  explicit NodePass(const Graph& graph)
      : graph_(graph),
        view_(graph),
        control_(ControlNames(graph)),
        removed_(Index(graph.num_nodes()), 0) {}

  // True if the node waits for another node by name, or another node waits for it.
  bool HasControlEdges(int node) const {
    return IsWaitedFor(graph_.node(node), control_) || !graph_.node(node).control_inputs().empty();
  }
  // True if the node has this operator, of ONNX's own domain.
  bool IsStandard(int node, std::string_view op) const {
    if (graph_.node(node).type() != op) return false;
    const OpSchema* schema = OpRegistry::Global().FindSchema(graph_.node(node).type());
    return schema && schema->is_standard();
  }
  // True if the node is of this standard operator, has one output and no control edges, and neither
  // reads nor makes a rewritten value.
  bool Is(int node, std::string_view op) const {
    return IsStandard(node, op) && !HasControlEdges(node) && view_.outputs(node).size() == 1 &&
           view_.outputs(node)[0] >= 0 && !UsesRewritten(view_, node);
  }
  // Returns input i of a node; -1 if the node leaves it out.
  int Input(int node, size_t i) const {
    return i < view_.inputs(node).size() ? view_.inputs(node)[i] : -1;
  }
  // True if the nodes have the same device and backend.
  bool AreTogether(std::initializer_list<int> nodes) const {
    const OperatorDef& first = graph_.node(*nodes.begin());
    for (const int node : nodes) {
      const OperatorDef& def = graph_.node(node);
      if (def.device() != first.device() || def.backends() != first.backends() ||
          def.requires_backends() != first.requires_backends())
        return false;
    }
    return true;
  }
  // Returns the only reader of a value; -1 if it has several, or if the graph returns the value.
  int OnlyReader(int value) const {
    const auto readers = view_.consumers(value);
    return view_.IsOutput(value) || readers.size() != 1 ? -1 : readers[0];
  }
  // Returns the types of the graph's values, which the first call infers. Returns null for a graph
  // without consistent types: Compile finds the error again and reports it.
  const GraphTypes* Types() {
    if (!types_) try {
        types_ = InferGraph(view_);
      } catch (const Error&) {
        return nullptr;
      }
    return &*types_;
  }
  // Returns the graph with these nodes and constants, but without the constants of which all
  // readers are gone.
  Graph WithNodes(std::vector<OperatorDef> nodes, std::vector<Graph::Constant> constants) const {
    NameIndex read;
    for (const OperatorDef& def : nodes)
      for (const std::string& input : def.inputs()) read.Add(input);
    std::erase_if(constants, [&](const Graph::Constant& constant) {
      const int value = view_.FindValue(constant.name);
      return value >= 0 && !view_.IsOutput(value) && !view_.consumers(value).empty() &&
             read.Find(constant.name) < 0;
    });
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

  const Graph& graph_;
  const GraphView view_;
  const NameIndex control_;
  IndexedVector<char> removed_;  // by node

 private:
  std::optional<GraphTypes> types_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PASSES_NODE_PASS_HPP_

// Graphs inside nodes (the branches of If, the body of Loop), and equality of graphs to the bit,
// which is how nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_SUBGRAPH_HPP_

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Unlike ==, tells 0.0 from -0.0 and finds a NaN equal to itself.
template <class Value>
bool SameBits(const Value& a, const Value& b) {
  if (a.type() != AttributeType::kFloat && a.type() != AttributeType::kFloats) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  const auto bits = [](const Value& attribute) {
    if (attribute.is_list()) return attribute.template Get<std::vector<double>>();
    return std::vector<double>{attribute.template Get<double>()};
  };
  const std::vector<double> x = bits(a), y = bits(b);
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

// In whatever order they were set.
template <class Args>
bool SameArguments(const Args& a, const Args& b) {
  if (a.size() != b.size()) return false;
  for (const auto& item : a) {
    const auto* other = b.Find(item.name);
    if (!other || !SameBits(item.value, *other)) return false;
  }
  return true;
}

// What two nodes do, whatever they are called, read and write.
template <class Def>
bool SameOperation(const Def& a, const Def& b) {
  if (a.type() != b.type() || a.device() != b.device() || a.engine() != b.engine() ||
      a.is_gradient_op() != b.is_gradient_op() || a.control_inputs() != b.control_inputs() ||
      a.subgraphs().size() != b.subgraphs().size() || !SameArguments(a.args(), b.args()))
    return false;
  for (const auto& item : a.subgraphs()) {
    const auto* other = b.FindSubgraph(item.name);
    if (!other || !item.graph->Equals(*other)) return false;
  }
  return true;
}

}  // namespace detail

// The same inputs, constants, nodes and outputs, by the same names in the same order, attributes
// and tensors to the bit.
template <class G = Graph>
bool SameGraph(const G& a, const G& b) {
  if (a.inputs().size() != b.inputs().size() || a.constants().size() != b.constants().size() ||
      a.num_nodes() != b.num_nodes() || a.outputs() != b.outputs())
    return false;
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    const auto &x = a.inputs()[i], &y = b.inputs()[i];
    if (x.name != y.name || x.info.dtype != y.info.dtype || x.info.shape != y.info.shape ||
        x.info.device != y.info.device)
      return false;
  }
  for (size_t i = 0; i < a.constants().size(); ++i)
    if (a.constants()[i].name != b.constants()[i].name ||
        Attribute(a.constants()[i].value) != Attribute(b.constants()[i].value))
      return false;
  for (int i = 0; i < a.num_nodes(); ++i) {
    const auto &x = a.node(i), &y = b.node(i);
    if (x.name() != y.name() || x.inputs() != y.inputs() || x.outputs() != y.outputs() ||
        !detail::SameOperation(x, y))
      return false;
  }
  return true;
}

namespace detail {

// A template, so that programs without subgraphs do not compile it.
template <class G>
class OPKIT_EXPORT GraphInNode final : public SubgraphBase {
 public:
  explicit GraphInNode(G contents) : graph(std::move(contents)) {}
  bool Equals(const SubgraphBase& other) const override {
    const auto* box = dynamic_cast<const GraphInNode*>(&other);
    return box && SameGraph(graph, box->graph);
  }
  std::string Describe() const override {
    std::vector<std::string> inputs;
    for (const auto& input : graph.inputs()) inputs.push_back(input.name);
    return StrCat("graph ", inputs, " -> ", graph.outputs(), " of ", graph.num_nodes(), " nodes");
  }
  const G graph;
};

}  // namespace detail

// A subgraph sees nothing of the graph around it: what it needs, its node reads and hands in as the
// subgraph's inputs, in the way that the operator says.
//
//   OperatorDef("If").Input("condition").Input("X").Output("Y")
//       .Subgraph("then_branch", MakeSubgraph(then_branch))
//       .Subgraph("else_branch", MakeSubgraph(else_branch))
template <class G = Graph>
detail::IntrusivePtr<const SubgraphBase> MakeSubgraph(G graph) {
  return detail::MakeIntrusive<detail::GraphInNode<G>>(std::move(graph));
}

// The graph inside a carried subgraph; null when it is something else than a Graph.
template <class G = Graph>
const G* GraphOf(const SubgraphBase& subgraph) {
  const auto* box = dynamic_cast<const detail::GraphInNode<G>*>(&subgraph);
  return box ? &box->graph : nullptr;
}
// Null when the node has no subgraph of that name.
template <class G = Graph>
const G* SubgraphOf(const OperatorDef& def, std::string_view name) {
  const SubgraphBase* found = def.FindSubgraph(name);
  return found ? GraphOf<G>(*found) : nullptr;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_SUBGRAPH_HPP_

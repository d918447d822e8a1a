// Definitions: bitwise comparison of graphs and nodes, and access to the graph in a subgraph.
#ifndef OPKIT_GRAPH_IMPL_GRAPH_SUBGRAPH_IPP_
#define OPKIT_GRAPH_IMPL_GRAPH_SUBGRAPH_IPP_

#include <algorithm>

#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if two attributes are equal bit by bit. Unlike ==, 0.0 differs from -0.0, and a NaN equals
// itself.
inline bool SameBits(const Attribute& a, const Attribute& b) {
  if (a.type() != AttributeType::kFloat && a.type() != AttributeType::kFloats) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  const auto bits = [](const Attribute& attribute) {
    if (attribute.is_list()) return attribute.Get<std::vector<double>>();
    return std::vector<double>{attribute.Get<double>()};
  };
  const std::vector<double> x = bits(a), y = bits(b);
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

OPKIT_INLINE bool SameOperation(const OperatorDef& a, const OperatorDef& b) {
  if (a.type() != b.type() || a.device() != b.device() || a.backends() != b.backends() ||
      a.requires_backends() != b.requires_backends() || a.process() != b.process() ||
      a.is_gradient_op() != b.is_gradient_op() || a.control_inputs() != b.control_inputs() ||
      a.subgraphs().size() != b.subgraphs().size() || a.args().size() != b.args().size())
    return false;
  for (const NamedAttribute& arg : a.args()) {  // `b` may have the attributes in another order
    const Attribute* other = b.args().Find(arg.name);
    if (!other || !SameBits(arg.value, *other)) return false;
  }
  for (const NamedSubgraph& item : a.subgraphs()) {
    const SubgraphBase* other = b.FindSubgraph(item.name);
    if (!other || !item.graph->Equals(*other)) return false;
  }
  return true;
}

}  // namespace detail

OPKIT_INLINE bool SameGraph(const Graph& a, const Graph& b) {
  const auto same = [](const auto& x, const auto& y, auto&& equal) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
  };
  return a.outputs() == b.outputs() &&
         same(a.inputs(), b.inputs(),
              [](const Graph::Input& x, const Graph::Input& y) {
                return x.name == y.name && x.info.dtype == y.info.dtype &&
                       x.info.shape == y.info.shape && x.info.device == y.info.device &&
                       Attribute(x.default_value) == Attribute(y.default_value);
              }) &&
         same(a.constants(), b.constants(),
              [](const Graph::Constant& x, const Graph::Constant& y) {
                return x.name == y.name && Attribute(x.value) == Attribute(y.value);
              }) &&
         same(a.nodes(), b.nodes(), [](const OperatorDef& x, const OperatorDef& y) {
           return x.name() == y.name() && x.inputs() == y.inputs() && x.outputs() == y.outputs() &&
                  detail::SameOperation(x, y);
         });
}

OPKIT_INLINE const Graph* GraphOf(const detail::SubgraphBase& subgraph) {
  const auto* box = dynamic_cast<const detail::GraphSubgraph*>(&subgraph);
  return box ? &box->graph : nullptr;
}

OPKIT_INLINE const Graph* SubgraphOf(const OperatorDef& def, std::string_view name) {
  const detail::SubgraphBase* found = def.FindSubgraph(name);
  return found ? GraphOf(*found) : nullptr;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_GRAPH_SUBGRAPH_IPP_

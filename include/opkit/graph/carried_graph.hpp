// The graph that a node carries, as others read it, and equality of graphs to the bit, by which
// nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_CARRIED_GRAPH_HPP_
#define OPKIT_GRAPH_CARRIED_GRAPH_HPP_

#include <atomic>

#include "opkit/graph/graph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Whether two nodes compute the same, regardless of their names, inputs and outputs.
bool SameOperation(const OperatorDef& a, const OperatorDef& b);

// The inference and the gradient of a node that runs the one graph that it carries. MakeSubgraph
// and AddGradients fill this in, the latter also in the compiled runtime when it is loaded, so that
// a header-only program that calls neither does not compile them. Relaxed: they are functions,
// which refer to nothing that a thread has written.
struct CarriedGraphRules {
  using Infer = void(const Graph& graph, InferenceContext& context);
  using MakeGradient = bool(const Graph& graph, const OperatorDef& def,
                            const std::vector<GradientValue>& g_output, GradientNames& names,
                            GradientOpsMeta& meta);
  std::atomic<Infer*> infer{nullptr};
  std::atomic<MakeGradient*> make_gradient{nullptr};
};
OPKIT_IMAGE_LOCAL inline constinit CarriedGraphRules g_carried_graph_rules;

// A subgraph that is a Graph. MakeSubgraph makes one.
class OPKIT_EXPORT CarriedGraph : public SubgraphBase {
 public:
  explicit CarriedGraph(Graph contents) : graph(std::move(contents)) {}
  // A subgraph of the same class with these contents.
  virtual IntrusivePtr<const SubgraphBase> With(Graph contents) const = 0;
  const Graph graph;
};

}  // namespace detail

// The same inputs, constants, nodes and outputs, by the same names in the same order, attributes
// and tensors to the bit.
bool SameGraph(const Graph& a, const Graph& b);

// The graph inside a carried subgraph; null when it is something else than a Graph.
const Graph* GraphOf(const SubgraphBase& subgraph);
// The node's subgraph of that name, null where it has none. It belongs to `def` and its copies.
const Graph* SubgraphOf(const OperatorDef& def, std::string_view name);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/carried_graph.ipp"
#endif

#endif  // OPKIT_GRAPH_CARRIED_GRAPH_HPP_

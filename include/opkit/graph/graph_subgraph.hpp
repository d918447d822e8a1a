// GraphSubgraph: a Graph that a node carries, and access to it. SameGraph: bitwise equality of
// graphs, by which nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_

#include <atomic>

#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if two nodes compute the same from the same inputs. Ignores their names, inputs and outputs.
bool SameOperation(const OperatorDef& a, const OperatorDef& b);

// Functions for nodes that carry one graph and run it: type inference and gradient. MakeSubgraph
// sets `infer`. AddGradients sets `make_gradient`, and so does the compiled runtime when it is
// loaded. A header-only program that calls neither does not compile the functions. Relaxed order is
// enough: the functions depend on no data that the setting thread wrote.
struct GraphSubgraphRules {
  using Infer = void(const Graph& graph, InferenceContext& context);
  using MakeGradient = bool(const Graph& graph, const OperatorDef& def,
                            const std::vector<GradientValue>& g_output, GradientNames& names,
                            GradientOpsMeta& meta);
  std::atomic<Infer*> infer{nullptr};
  std::atomic<MakeGradient*> make_gradient{nullptr};
};
OPKIT_IMAGE_LOCAL inline constinit GraphSubgraphRules g_graph_subgraph_rules;

// A subgraph that is a Graph. MakeSubgraph makes its objects.
class OPKIT_EXPORT GraphSubgraph : public SubgraphBase {
 public:
  explicit GraphSubgraph(Graph contents) : graph(std::move(contents)) {}
  // Returns a subgraph of the same class with these contents.
  virtual IntrusivePtr<const SubgraphBase> With(Graph contents) const = 0;
  const Graph graph;
};

}  // namespace detail

// True if both graphs have the same inputs, constants, nodes and outputs, with the same names in
// the same order. Compares attributes and tensors bit by bit.
bool SameGraph(const Graph& a, const Graph& b);

// Returns the Graph that a subgraph contains; null for a subgraph of another class.
const Graph* GraphOf(const SubgraphBase& subgraph);
// Returns the Graph of the node's subgraph of that name, or null. `def` and its copies own it.
const Graph* SubgraphOf(const OperatorDef& def, std::string_view name);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_subgraph.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_

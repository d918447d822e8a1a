// GraphSubgraph: a Graph that a node carries, and access to it. SameGraph: bitwise equality of
// graphs, by which nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/graph/graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if two nodes compute the same from the same inputs. Ignores their names, inputs and outputs.
bool SameOperation(const OperatorDef& a, const OperatorDef& b);

// Hooks for type inference and gradient of a node that carries one graph and runs it. MakeSubgraph
// fills the first hook. AddGradients and the compiled runtime (when it is loaded) fill the second.
// A header-only program that calls neither does not compile the functions.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Graph& graph, InferenceContext& context)>
    g_infer_graph_subgraph{"inference of a subgraph", "opkit/graph.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const Graph& graph, const OperatorDef& def,
                                             const std::vector<GradientValue>& g_output,
                                             GradientNames& names, GradientOpsMeta& meta)>
    g_make_graph_gradient{"a gradient of a subgraph", "opkit/graph.hpp"};

// A subgraph that is a Graph. MakeSubgraph makes its objects.
class OPKIT_VISIBLE GraphSubgraph : public SubgraphBase {
 public:
  explicit GraphSubgraph(Graph contents) : graph(std::move(contents)) {}
  std::pair<int, int> Arity() const override {
    return {static_cast<int>(graph.inputs().size()), static_cast<int>(graph.outputs().size())};
  }
  // Returns a subgraph of the same class with these contents.
  virtual IntrusivePtr<const SubgraphBase> With(Graph contents) const = 0;
  const Graph graph;
};

}  // namespace detail

// True if both graphs have the same inputs, constants, nodes and outputs, with the same names in
// the same order. Compares attributes and tensors bit by bit.
bool SameGraph(const Graph& a, const Graph& b);

// Returns the Graph that a subgraph contains; null for a subgraph of another class.
const Graph* GraphOf(const detail::SubgraphBase& subgraph);
// Returns the Graph of the node's subgraph of that name, or null. `def` and its copies own it.
const Graph* SubgraphOf(const OperatorDef& def, std::string_view name);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/graph_subgraph.ipp"
#endif

#endif  // OPKIT_GRAPH_GRAPH_SUBGRAPH_HPP_

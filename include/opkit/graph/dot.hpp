// ToDot: writes a graph in the language of Graphviz, which draws it:
// `dot -Tsvg graph.dot -o graph.svg`.
#ifndef OPKIT_GRAPH_DOT_HPP_
#define OPKIT_GRAPH_DOT_HPP_

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct DotOptions {
  // Draws a box for each constant. If false, a constant is a line in the boxes of the nodes that
  // read it: real models have more constants than nodes, and Graphviz takes minutes to place them.
  bool constants = true;
};

// Draws inputs green, constants grey, nodes blue, outputs with a double line. Edges lead from the
// node that made a value, or rewrote it last, to its readers. Their labels are the value's name
// and, if types are given, its dtype and shape. Control inputs are dashed, subgraphs framed.
// Without types, a graph with errors can be drawn too.
//
//   const GraphView view(graph);
//   std::string picture = ToDot(graph, InferGraph(view));
std::string ToDot(const Graph& graph, const DotOptions& options = {});
std::string ToDot(const Graph& graph, const GraphTypes& types, const DotOptions& options = {});

namespace detail {

// Nodes that are drawn in one box.
struct DotGroup {
  std::string label;
  std::vector<int> nodes;
};

// Draws a graph. `types`, `backends` (by node) and `groups` may be null. An empty backend marks the
// node as a converter between layouts.
std::string DrawDot(const Graph& graph, const GraphTypes* types, const DotOptions& options,
                    const std::vector<std::string>* backends,
                    const std::vector<DotGroup>* groups = nullptr);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/dot.ipp"
#endif

#endif  // OPKIT_GRAPH_DOT_HPP_

// ToDot: a graph in the language of Graphviz: `dot -Tsvg graph.dot -o graph.svg`.
#ifndef OPKIT_GRAPH_DOT_HPP_
#define OPKIT_GRAPH_DOT_HPP_

#include "opkit/graph/carried_graph.hpp"
#include "opkit/graph/graph_inference.hpp"

namespace opkit::inline OPKIT_ABI {

struct DotOptions {
  // A box for each constant. Otherwise constants are lines in the boxes of the nodes that read
  // them: real models have more constants than nodes, and Graphviz takes minutes to place them all.
  bool constants = true;
};

// Inputs are green, constants grey, nodes blue, outputs double. Edges go from the node that made a
// value, or rewrote it last, to those that read it. They carry its name, and its dtype and shape
// where types are given; control inputs are dashed, subgraphs framed. Without types, a graph with
// errors can be drawn too.
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

// `types`, `backends` and `groups` are null where there are none; a node's backend is empty for a
// converter between layouts.
std::string DrawDot(const Graph& graph, const GraphTypes* types, const DotOptions& options,
                    const std::vector<std::string>* backends,
                    const std::vector<DotGroup>* groups = nullptr);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/dot.ipp"
#endif

#endif  // OPKIT_GRAPH_DOT_HPP_

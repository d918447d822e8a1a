// The gradient of a node that runs a graph, from that graph: a node Subgraph that carries the
// graph's backward graph. What the backward graph reads of the forward one is computed there anew,
// since the node hands out nothing but its outputs.
#ifndef OPKIT_GRAPH_GRADIENT_BODY_GRADIENT_HPP_
#define OPKIT_GRAPH_GRADIENT_BODY_GRADIENT_HPP_

#include "opkit/graph/graph.hpp"
#include "opkit/op/gradient/gradient_maker.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Fills in `meta` for `def`, whose inputs and outputs are those of `body`, by position: one node
// Subgraph, which is to carry `backward`, or none where no gradient flows. False where the counts
// differ. Errors: as AddGradients of the body; kUnsupported for a sparse output gradient; kNotFound
// where the program has no operator Subgraph.
bool MakeBodyGradient(const Graph& body, const OperatorDef& def,
                      const std::vector<GradientValue>& g_output, GradientNames& names,
                      GradientOpsMeta& meta, Graph& backward);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/gradient/impl/body_gradient.ipp"
#endif

#endif  // OPKIT_GRAPH_GRADIENT_BODY_GRADIENT_HPP_

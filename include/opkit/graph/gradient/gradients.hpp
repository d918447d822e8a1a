// AddGradients: the backward graph of a loss, from the registered gradient makers: nodes in reverse
// order, a sum where a value is used more than once, and only what the wanted gradients need.
#ifndef OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_
#define OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_

#include <map>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit::inline OPKIT_ABI {

struct GradientOptions {
  std::string seed = {};  // the value that holds the gradient of the loss; "": a constant of ones
  // More values whose gradients flow back with that of the loss, each with the value that holds it:
  // the gradients are those of a function with several outputs, times these.
  std::vector<std::pair<std::string, std::string>> more_seeds = {};
  // The operator that adds up the gradients of a value that is used more than once: all at once
  // where its schema takes so many inputs, else two at a time.
  std::string sum_operator = "Sum";
  // A value that no gradient flows to gets an empty GradientValue; otherwise it is an Error.
  bool allow_none = false;
};

// The gradient of each value, by the name of the value.
using GradientMap = std::map<std::string, GradientValue>;

// Adds the nodes that compute the gradients of `loss` by the values `wrt` (inputs, constants or
// outputs of nodes) and returns the names of these gradients. Gradients do not become outputs of
// the graph by themselves; two values may share one gradient (those of an addition do), so ask
// IsOutput before AddOutput. Where the added operators have gradients themselves, a second call
// differentiates again.
//
//   GradientMap d = AddGradients(g, "loss", {"W", "b"});
//   g.AddOutput(d.at("W").dense);
//
// Errors leave the graph as it was: kNotFound for a name that the graph has not, or an operator
// whose gradient is not registered; kTypeMismatch for a loss or a value that is no floating-point
// number; kFailedPrecondition where the loss has no shape yet and no seed is given; kUnsupported
// for operators that must not or cannot be differentiated, for values that are rewritten on the
// way, and for sparse gradients that would have to be added up; kInvalidArgument when no gradient
// flows to a value, and where a gradient has another dtype or shape than its value, as far as both
// are known; and those of gradient makers, with the node and a path from a value to the
// loss.
GradientMap AddGradients(Graph& graph, const std::string& loss, const std::vector<std::string>& wrt,
                         const GradientOptions& options = {});

namespace detail {

// The gradient of a node that runs a graph, from that graph. Fills in `meta` for `def`, whose
// inputs and outputs are those of `body`, by position: one node Subgraph that carries the body's
// backward graph, or none where no gradient flows. What the backward graph reads of the forward one
// it computes anew, since the node hands out nothing but its outputs. False where the counts
// differ. Errors: as AddGradients of the body; kUnsupported for a sparse gradient; kNotFound where
// the program has no operator Subgraph.
bool MakeBodyGradient(const Graph& body, const OperatorDef& def,
                      const std::vector<GradientValue>& g_output, GradientNames& names,
                      GradientOpsMeta& meta);
// From now on a node that carries a graph has that gradient.
void UseGradientsOfCarriedGraphs();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/gradient/impl/body_gradient.ipp"
#include "opkit/graph/gradient/impl/gradients.ipp"
#endif

#endif  // OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_

// AddGradients: adds the backward graph of a loss, made by the registered gradient makers: gradient
// nodes in reverse order, sums for values with several readers, and no node that is not needed.
#ifndef OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_
#define OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_

#include <map>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/op/gradient/gradient_value.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct GradientOptions {
  std::string seed = {};  // the value that has the gradient of the loss; "": a constant of ones
  // More outputs to differentiate, each with the value that has its gradient. Together with the
  // loss they form a function with several outputs; the results are its vector-Jacobian product
  // with the seeds.
  std::vector<std::pair<std::string, std::string>> more_seeds = {};
  // The operator that adds up several gradients of a value: all at once if its schema accepts so
  // many inputs, else two at a time.
  std::string sum_operator = "Sum";
  // If no gradient flows to a wanted value, returns an empty GradientValue instead of an Error.
  bool allow_none = false;
};

// The gradient of each value, by the name of the value.
using GradientMap = std::map<std::string, GradientValue>;

// Adds the nodes that compute the gradients of `loss` with respect to the values `wrt` (inputs,
// constants or outputs of nodes). Returns the names of these gradients. Does not make them outputs
// of the graph. Two values may share one gradient, such as the inputs of an addition: check
// IsOutput before AddOutput. If the added operators have gradients too, a second call computes
// second derivatives.
//
//   GradientMap d = AddGradients(g, "loss", {"W", "b"});
//   g.AddOutput(d.at("W").dense);
//
// An error leaves the graph unchanged. Throws:
// - kNotFound for a name that the graph does not have, and for an operator without a registered
//   gradient
// - kTypeMismatch for a loss or a wanted value that is not floating-point
// - kFailedPrecondition if no seed is given and the loss has no known dtype or shape
// - kUnsupported for operators that must not or cannot be differentiated, for rewritten values
//   between the wanted values and the loss, and for a sum of sparse gradients
// - kInvalidArgument if `wrt` is empty, if no gradient flows to a value, and if a seed or gradient
//   has another dtype or shape than its value, as far as both are known
// - the errors of gradient makers, with the node and a path from a value to the loss.
GradientMap AddGradients(Graph& graph, const std::string& loss, const std::vector<std::string>& wrt,
                         const GradientOptions& options = {});

namespace detail {

// Makes the gradient of a node that runs a graph. The inputs and outputs of `def` are those of
// `body`, by position. Sets `meta` to one node Subgraph that carries the body's backward graph, or
// to no node if no gradient flows. The backward graph computes the forward values that it needs
// again, because the node gives access only to its outputs. Returns false if the counts of inputs
// or outputs differ. Throws the errors of AddGradients on the body, kUnsupported for a sparse
// gradient, and kNotFound if the program has no operator Subgraph.
bool MakeBodyGradient(const Graph& body, const OperatorDef& def,
                      const std::vector<GradientValue>& g_output, GradientNames& names,
                      GradientOpsMeta& meta);
// Installs MakeBodyGradient: from now on a node that carries one graph and runs it has a gradient.
void UseGradientsOfGraphSubgraphs();

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/gradient/impl/body_gradient.ipp"
#include "opkit/graph/gradient/impl/gradients.ipp"
#endif

#endif  // OPKIT_GRAPH_GRADIENT_GRADIENTS_HPP_

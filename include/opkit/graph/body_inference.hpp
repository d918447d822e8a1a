// The types of a node that runs graphs, from those graphs: inference of a body for the types of the
// node's inputs. If and Subgraph ask for it, and so does every operator that says that it carries a
// subgraph and has no inference of its own.
#ifndef OPKIT_GRAPH_BODY_INFERENCE_HPP_
#define OPKIT_GRAPH_BODY_INFERENCE_HPP_

#include "opkit/graph/graph_inference.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What is known of a body's inputs and outputs, by their positions in the graph. The data of those
// that are known before a run stands beside them: a Tensor without dtype where there is none.
struct InferredBody {
  const Graph* graph = nullptr;
  std::vector<TensorInfo> given;            // of the inputs, before
  std::vector<Tensor> given_data;           // of the inputs
  std::vector<TensorInfo> inputs, outputs;  // after; without their constants
  std::vector<Tensor> data;                 // of the outputs
};

// Infers the types of `body`, whose input i is input `inputs[i]` of the node. Symbols of the body
// are its own: where an extent is one of them, it is unknown to the node. Errors: as InferGraph,
// with `name` as context.
InferredBody InferBody(const InferenceContext& c, const Graph& body, std::span<const int> inputs,
                       std::string_view name);

// Sets the node's outputs to those of the body, by position, and adds what the body knows of the
// node's inputs, which are the body's by position. Error (kInvalidArgument) where the counts
// differ.
void InferAsBody(InferenceContext& c, const Graph& body, std::string_view name);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/body_inference.ipp"
#endif

#endif  // OPKIT_GRAPH_BODY_INFERENCE_HPP_

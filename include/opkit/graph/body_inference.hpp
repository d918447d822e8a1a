// The inference of graphs that nodes carry. MakeSubgraph includes it: a header-only program whose
// nodes carry no graphs does not compile it.
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
                       std::string_view name,
                       UnknownOperators unknown = UnknownOperators::kRefused);

// Sets the node's outputs to those of the body, by position, and adds what the body knows of the
// node's inputs, which are the body's by position. Error (kInvalidArgument) where the counts
// differ.
void InferAsBody(InferenceContext& c, const Graph& body, std::string_view name,
                 UnknownOperators unknown = UnknownOperators::kRefused);

// From now on a node that carries a graph is inferred from it.
void UseInferenceOfCarriedGraphs();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/body_inference.ipp"
#endif

#endif  // OPKIT_GRAPH_BODY_INFERENCE_HPP_

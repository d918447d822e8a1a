// Type inference of the graphs that nodes carry ("bodies"). Only MakeSubgraph and operators with
// bodies include this file: a header-only program without them does not compile it.
#ifndef OPKIT_GRAPH_BODY_INFERENCE_HPP_
#define OPKIT_GRAPH_BODY_INFERENCE_HPP_

#include "opkit/graph/graph_inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Types of a body's inputs and outputs, by position. The vectors of tensors have the data that is
// known before a run, else a Tensor without dtype.
struct InferredBody {
  const Graph* graph = nullptr;
  std::vector<TensorInfo> given;            // the inputs before inference
  std::vector<Tensor> given_data;           // data of the inputs
  std::vector<TensorInfo> inputs, outputs;  // the types after inference, with `constant` null
  std::vector<Tensor> data;                 // data of the outputs
};

// Infers the types of `body`, whose input i is input `inputs[i]` of the node. The body's symbols
// mean nothing outside it: an extent that is such a symbol is unknown to the node. Throws the
// errors of InferGraph, with `name` as context.
InferredBody InferBody(const InferenceContext& c, const Graph& body, std::span<const int> inputs,
                       std::string_view name,
                       UnknownOperators unknown = UnknownOperators::kRefused);

// Does the same for inputs of the types `given`, by position; `constant` of a type has the input's
// data, if known. `def` is the node, for messages.
InferredBody InferBody(const OperatorDef& def, const Graph& body, std::span<const TensorInfo> given,
                       std::string_view name,
                       UnknownOperators unknown = UnknownOperators::kRefused);

// Infers a node whose inputs and outputs are those of its body, by position. Copies the types of
// the body's inputs and outputs to the node. Throws kInvalidArgument if the counts differ.
void InferAsBody(InferenceContext& c, const Graph& body, std::string_view name,
                 UnknownOperators unknown = UnknownOperators::kRefused);

// Installs the inference of GraphSubgraph: nodes that carry such a graph then get its types.
void UseInferenceOfGraphSubgraphs();

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/body_inference.ipp"
#endif

#endif  // OPKIT_GRAPH_BODY_INFERENCE_HPP_

// SequenceMap: runs the graph "body" of its node for each element of sequences. Source:
// https://onnx.ai/onnx/operators/onnx__SequenceMap.html, opset 17. ONNX defines it by a Loop; this
// kernel saves the loop's copies of sequences that grow.
#ifndef OPKIT_OPS_SEQUENCE_SEQUENCE_MAP_HPP_
#define OPKIT_OPS_SEQUENCE_SEQUENCE_MAP_HPP_

#include "opkit/ops/loops/body_iterations.hpp"
#include "opkit/ops/sequence/sequence_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the body of a node: it reads an element of each sequence, or the tensor of that input.
inline IteratedBody SequenceMapBody(const OperatorDef& def) {
  return IteratedBodyOf(def, static_cast<int>(def.inputs().size()) - CountCaptures(def),
                        def.outputs().size());
}
// Infers the types of the body.
inline InferredBody InferMappedBody(const InferenceContext& c, const IteratedBody& body) {
  std::vector<TensorInfo> given;
  for (size_t i = 0; i < body.own; ++i) {
    const TensorInfo& input = c.input(static_cast<int>(i));
    given.push_back(input.dtype == DType::kSequence ? TensorInfo(input.element, {}) : input);
    given.back().constant = nullptr;
  }
  for (const int capture : body.captures) given.push_back(c.input(capture));
  return InferBody(c.def(), *body.graph, given, kIteratedBody);
}
// Infers the sequences that the body's outputs make.
inline void InferSequenceMap(InferenceContext& c) {
  const InferredBody found = InferMappedBody(c, SequenceMapBody(c.def()));
  for (int o = 0; o < c.num_outputs(); ++o)
    c.SetOutput(o, SequenceInfo(found.outputs[Index(o)].dtype));
}

}  // namespace detail

class SequenceMapOp final : public detail::IteratedOperator {
 public:
  SequenceMapOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : IteratedOperator(def, ws, config, detail::SequenceMapBody(def)) {}

  bool RunOnDevice() override {
    const auto length = static_cast<int64_t>(ElementsOf(Input(0)).size());
    for (size_t i = 1; i < body_.body().own; ++i)
      if (const Tensor& input = Input(static_cast<int>(i));
          input.dtype() == DType::kSequence && input.numel() != length)
        Throw(ErrorCode::kInvalidArgument, "SequenceMap: input ", i, " has ", input.numel(),
              " elements, but input 0 has ", length);
    body_.ReadCaptures(*this);
    std::vector<std::vector<Tensor>> made(detail::Index(OutputSize()));
    for (int64_t k = 0; k < length; ++k) {
      for (size_t i = 0; i < body_.body().own; ++i) {
        const Tensor& input = Input(static_cast<int>(i));
        body_.input(i) =
            input.dtype() == DType::kSequence ? ElementsOf(input)[detail::Index(k)] : input;
      }
      body_.Run(k);
      for (size_t o = 0; o < made.size(); ++o) made[o].push_back(body_.output(o).Contiguous());
    }
    body_.End();
    for (int o = 0; o < OutputSize(); ++o)
      if (HasOutput(o)) SetOutputTensor(o, MakeSequence(made[detail::Index(o)]));
    return true;
  }

 private:
  detail::InferredBody InferBodyTypes(const InferenceContext& c) const override {
    return detail::InferMappedBody(c, body_.body());
  }
};

OPKIT_STANDARD_OPERATOR(SequenceMap, kNotImplemented, SequenceMapOp)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .Input(0, "input_sequence", "its elements are the first input of the body", {DType::kSequence})
    .Input(1, "additional_inputs",
           "sequences of the same length, or tensors that every run of the body reads; behind "
           "them the values that the body captures")
    .Output(0, "out_sequence", "for each output of the body the sequence of its values",
            {DType::kSequence})
    .Arg<std::vector<std::string>>("captures", "the names that the last inputs have in the body")
    .RunsSubgraphs()
    .Infer(detail::InferSequenceMap)
    .Cost([](auto&...) { return OpCost(); })
    .Doc("Runs the subgraph `body` once for each element of the sequences.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SEQUENCE_SEQUENCE_MAP_HPP_

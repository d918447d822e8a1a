// Optional, OptionalGetElement and OptionalHasElement. Source: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opsets 15 and 18.
#ifndef OPKIT_OPS_SEQUENCE_OPTIONAL_OPERATORS_HPP_
#define OPKIT_OPS_SEQUENCE_OPTIONAL_OPERATORS_HPP_

#include "opkit/ops/sequence/sequence_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the dtypes of tensors and sequences.
inline std::vector<DType> TensorsAndSequences() {
  std::vector<DType> dtypes = WithStrings(AllDTypes());
  dtypes.push_back(DType::kSequence);
  return dtypes;
}

}  // namespace detail

class OptionalOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    Infer();
    SetOutputTensor(0, HasInput(0) ? MakeOptional(Input(0).Contiguous()) : MakeOptional({}));
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Optional, kNone, OptionalOp)
    .NumInputs(0, 1)
    .Input(0, "input", "a tensor or a sequence; without it the value is absent",
           detail::TensorsAndSequences())
    .Output(0, "output", "an optional value", {DType::kOptional})
    .Infer([](InferenceContext& c) {
      TensorInfo info(DType::kOptional, {Dim(c.HasInput(0) ? 1 : 0)});
      if (c.HasInput(0)) {
        info.holds_sequence = c.input_dtype(0) == DType::kSequence;
        info.element = info.holds_sequence ? c.input(0).element : c.input_dtype(0);
      }
      c.SetOutput(0, info);
    })
    .Doc("Makes an optional value of a tensor or a sequence, or an absent one.");

class OptionalHasElementOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    *InferredOutput(0)->mutable_data<bool>() =
        HasInput(0) && (Input(0).dtype() != DType::kOptional || Input(0).numel() > 0);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(OptionalHasElement, kNone, OptionalHasElementOp)
    .NumInputs(0, 1)
    .Input(0, "input", "any value", AnyDType())
    .Output(0, "output", "a scalar", {DType::kBool})
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kBool, Shape{}); })
    .Doc("False for an absent optional value, and for an input that the node leaves out.");

class OptionalGetElementOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor& value = DenseInput(0);
    if (value.dtype() != DType::kOptional)
      Give(0, value);
    else if (value.numel() == 0)
      Throw(ErrorCode::kInvalidArgument, "OptionalGetElement: the optional value is absent");
    else
      Give(0, ElementsOf(value)[0]);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(OptionalGetElement, kNone, OptionalGetElementOp)
    .Input(0, "input", "any value that is present", AnyDType())
    .Output(0, "output", "the element of an optional value; another value itself",
            detail::TensorsAndSequences())
    .Infer([](InferenceContext& c) {
      const TensorInfo& input = c.input(0);
      if (input.dtype == DType::kUndefined) return;
      if (input.dtype != DType::kOptional)
        c.SetOutput(0, input);
      else if (input.holds_sequence)
        c.SetOutput(0, detail::SequenceInfo(input.element));
      else
        c.SetOutput(0, input.element, {});
    })
    .Doc("Copies the element of an optional value.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SEQUENCE_OPTIONAL_OPERATORS_HPP_

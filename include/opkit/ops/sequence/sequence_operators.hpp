// SequenceAt, SequenceConstruct, SequenceEmpty, SequenceErase, SequenceInsert and SequenceLength.
// Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 11.
#ifndef OPKIT_OPS_SEQUENCE_SEQUENCE_OPERATORS_HPP_
#define OPKIT_OPS_SEQUENCE_SEQUENCE_OPERATORS_HPP_

#include "opkit/core/sequence.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the type of a sequence of tensors of this dtype. A sequence's length is not inferred:
// most sequences grow in loops.
inline TensorInfo SequenceInfo(DType element) {
  TensorInfo info(DType::kSequence, SymbolicShape(std::vector<Dim>{Dim()}));
  info.element = element;
  return info;
}
// Returns the first dtype that is known; kUndefined if none is. Throws kTypeMismatch if they
// differ.
inline DType SameElement(const InferenceContext& c, DType a, DType b) {
  if (a != DType::kUndefined && b != DType::kUndefined && a != b)
    Throw(ErrorCode::kTypeMismatch, c.def().type(), ": a sequence of ", a, " has no element of ",
          b);
  return a != DType::kUndefined ? a : b;
}

// Returns a position in a sequence, where negative ones count from the end. Throws kOutOfRange
// unless it is from -size to `last`, kInvalidArgument unless the tensor is one number.
inline size_t PositionIn(const OperatorBase& op, const Tensor& position, size_t size,
                         int64_t last) {
  const std::vector<int64_t> numbers = IntegersOf(position);
  if (numbers.size() != 1)
    Throw(ErrorCode::kInvalidArgument, op.type(), ": the position is ", position,
          ", expected one number");
  const auto count = static_cast<int64_t>(size);
  if (numbers[0] < -count || numbers[0] > last)
    Throw(ErrorCode::kOutOfRange, op.type(), ": position ", numbers[0],
          " is outside a sequence of ", count, " elements");
  return Index(numbers[0] < 0 ? numbers[0] + count : numbers[0]);
}

// The base of the operators here. Elements of sequences are never written to again, so that
// sequences share them; a tensor that enters or leaves a sequence is copied.
class SequenceOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Checks the types of the inputs.
  std::span<const Tensor> Elements(int input = 0) {
    Infer();
    return ElementsOf(DenseInput(input));
  }
  void SetSequence(int output, std::span<const Tensor> elements) {
    SetOutputTensor(output, MakeSequence(elements));
  }
  // Copies a tensor or a sequence to an output.
  void Give(int output, const Tensor& value) {
    OutputTensorCopyFrom(output, value.is_dense() ? value : value.Contiguous());
  }
};

}  // namespace detail

class SequenceEmptyOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    static_cast<void>(GetSingleArgument<int64_t>("dtype", 1));
    SetSequence(0, {});
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceEmpty, kNone, SequenceEmptyOp)
    .NumInputs(0)
    .Output(0, "output", "a sequence without elements", {DType::kSequence})
    .Arg<int64_t>("dtype", "of the tensors that it may have, as ONNX's number; 1 is float32", 1)
    .Infer([](InferenceContext& c) {
      const DType element = OnnxDType(c.Arg<int64_t>("dtype"));
      if (element == DType::kUndefined)
        Throw(ErrorCode::kUnsupported, "SequenceEmpty: dtype=", c.Arg<int64_t>("dtype"),
              " is no element type that tensors here have");
      c.SetOutput(0, detail::SequenceInfo(element));
    })
    .Doc("Makes a sequence without elements.");

class SequenceConstructOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    Infer();
    std::vector<Tensor> elements;
    for (int i = 0; i < InputSize(); ++i) elements.push_back(Input(i).Contiguous());
    SetSequence(0, elements);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceConstruct, kNone, SequenceConstructOp)
    .NumInputs(1, 1 << 20)
    .Input(0, "inputs", "tensors of one dtype", WithStrings(AllDTypes()))
    .Output(0, "output_sequence", "the tensors in their order", {DType::kSequence})
    .Infer([](InferenceContext& c) { c.SetOutput(0, detail::SequenceInfo(ExpectSameDType(c))); })
    .Doc("Makes a sequence of tensors.");

class SequenceInsertOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    const auto given = Elements();
    std::vector<Tensor> elements(given.begin(), given.end());
    const auto size = static_cast<int64_t>(elements.size());
    const size_t at =
        HasInput(2) ? detail::PositionIn(*this, Input(2), elements.size(), size) : elements.size();
    elements.insert(elements.begin() + static_cast<std::ptrdiff_t>(at), Input(1).Contiguous());
    SetSequence(0, elements);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceInsert, kNone, SequenceInsertOp)
    .NumInputs(2, 3)
    .Input(0, "input_sequence", "any sequence", {DType::kSequence})
    .Input(1, "tensor", "of the dtype of the sequence's elements", WithStrings(AllDTypes()))
    .Input(2, "position", "of the new element, -n to n; by default the end", IndexTypes::DTypes())
    .Output(0, "output_sequence", "the sequence with the tensor in it", {DType::kSequence})
    .Infer([](InferenceContext& c) {
      c.SetOutput(
          0, detail::SequenceInfo(detail::SameElement(c, c.input(0).element, c.input_dtype(1))));
    })
    .Doc("Inserts a tensor into a sequence.");

class SequenceAtOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    const auto elements = Elements();
    const auto last = static_cast<int64_t>(elements.size()) - 1;
    Give(0, elements[detail::PositionIn(*this, Input(1), elements.size(), last)]);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceAt, kNone, SequenceAtOp)
    .NumInputs(2)
    .Input(0, "input_sequence", "any sequence", {DType::kSequence})
    .Input(1, "position", "of the element, -n to n - 1", IndexTypes::DTypes())
    .Output(0, "tensor", "the element", WithStrings(AllDTypes()))
    .Infer([](InferenceContext& c) { c.SetOutput(0, c.input(0).element, {}); })
    .Doc("Copies an element of a sequence.");

class SequenceEraseOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    const auto given = Elements();
    std::vector<Tensor> elements(given.begin(), given.end());
    const auto last = static_cast<int64_t>(elements.size()) - 1;
    if (last < 0) Throw(ErrorCode::kOutOfRange, "SequenceErase: the sequence has no elements");
    const size_t at = HasInput(1) ? detail::PositionIn(*this, Input(1), elements.size(), last)
                                  : detail::Index(last);
    elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(at));
    SetSequence(0, elements);
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceErase, kNone, SequenceEraseOp)
    .NumInputs(1, 2)
    .Input(0, "input_sequence", "any sequence", {DType::kSequence})
    .Input(1, "position", "of the element, -n to n - 1; by default the last", IndexTypes::DTypes())
    .Output(0, "output_sequence", "the sequence without the element", {DType::kSequence})
    .Infer([](InferenceContext& c) { c.SetOutput(0, detail::SequenceInfo(c.input(0).element)); })
    .Doc("Removes an element from a sequence.");

class SequenceLengthOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    *InferredOutput(0)->mutable_data<int64_t>() = Input(0).numel();
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(SequenceLength, kNone, SequenceLengthOp)
    .Input(0, "input_sequence", "any sequence", {DType::kSequence})
    .Output(0, "length", "the number of elements, a scalar", {DType::kInt64})
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kInt64, Shape{}); })
    .Doc("Counts the elements of a sequence.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SEQUENCE_SEQUENCE_OPERATORS_HPP_

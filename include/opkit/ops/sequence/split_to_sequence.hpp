// SplitToSequence and ConcatFromSequence. Source:
// https://onnx.ai/onnx/operators/onnx__SplitToSequence.html and onnx__ConcatFromSequence.html,
// opset 11.
#ifndef OPKIT_OPS_SEQUENCE_SPLIT_TO_SEQUENCE_HPP_
#define OPKIT_OPS_SEQUENCE_SPLIT_TO_SEQUENCE_HPP_

#include "opkit/op/invoke.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/sequence/sequence_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the axis as a number from 0 to rank - 1. Throws kOutOfRange.
inline int AxisOfSequence(const char* op, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, op, ": axis ", axis, " is outside -", rank, " to ", rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace detail

class SplitToSequenceOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor& x = DenseInput(0);
    const int axis = detail::AxisOfSequence("SplitToSequence", axis_, x.rank());
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const int64_t length : Lengths(x.dim(axis))) {
      Tensor part = x.Slice(axis, begin, begin + length).Contiguous();
      begin += length;
      if (!HasInput(1) && !keep_axis_) {
        std::vector<int64_t> dims(part.shape().begin(), part.shape().end());
        dims.erase(dims.begin() + axis);
        part = part.View(Dims(dims));
      }
      parts.push_back(std::move(part));
    }
    SetSequence(0, parts);
    return true;
  }

 private:
  // Returns the extents of the parts along an axis of this extent.
  std::vector<int64_t> Lengths(int64_t extent) const {
    if (!HasInput(1)) return std::vector<int64_t>(detail::Index(extent), 1);
    std::vector<int64_t> lengths = IntegersOf(Input(1));
    if (Input(1).rank() == 0) {
      const int64_t length = lengths[0];
      if (length < 1)
        Throw(ErrorCode::kInvalidArgument, "SplitToSequence: 'split' is ", length,
              ", expected 1 or more");
      lengths.assign(detail::Index(extent / length), length);
      if (extent % length != 0) lengths.push_back(extent % length);
      return lengths;
    }
    int64_t rest = extent;
    for (const int64_t length : lengths) rest = length < 0 || length > rest ? -1 : rest - length;
    if (rest != 0)
      Throw(ErrorCode::kInvalidArgument, "SplitToSequence: 'split' is ", lengths,
            ", expected extents of 0 or more whose sum is that of the axis, ", extent);
    return lengths;
  }

  const int64_t axis_ = GetSingleArgument<int64_t>("axis", 0);
  const bool keep_axis_ = GetSingleArgument<int64_t>("keepdims", 1) != 0;
};

OPKIT_STANDARD_OPERATOR(SplitToSequence, kNone, SplitToSequenceOp)
    .NumInputs(1, 2)
    .Input(0, "input", "a tensor of rank 1 or more", WithStrings(AllDTypes()))
    .Input(1, "split",
           "a scalar: the extent of each part but the last; a list: the extents; by default 1",
           IndexTypes::DTypes())
    .Output(0, "output_sequence", "the parts in their order", {DType::kSequence})
    .Arg<int64_t>("axis", "the axis that is split", 0)
    .Arg<int64_t>("keepdims", "0: without `split`, the parts lack the axis", 1)
    .Infer([](InferenceContext& c) {
      if (c.input_shape(0).has_rank())
        detail::AxisOfSequence("SplitToSequence", c.Arg<int64_t>("axis"), c.input_shape(0).rank());
      c.SetOutput(0, detail::SequenceInfo(c.input_dtype(0)));
    })
    .Doc("Splits a tensor along an axis into a sequence.");

class ConcatFromSequenceOp final : public detail::SequenceOperator {
 public:
  using SequenceOperator::SequenceOperator;
  bool RunOnDevice() override {
    const auto elements = Elements();
    if (elements.empty())
      Throw(ErrorCode::kInvalidArgument, "ConcatFromSequence: the sequence has no elements");
    const int rank = elements[0].rank() + (new_axis_ ? 1 : 0);
    const int axis = detail::AxisOfSequence("ConcatFromSequence", axis_, rank);
    std::vector<Tensor> parts(elements.begin(), elements.end());
    for (Tensor& part : parts) {
      if (!new_axis_ || part.rank() + 1 != rank) continue;  // Concat refuses other ranks
      std::vector<int64_t> dims(part.shape().begin(), part.shape().end());
      dims.insert(dims.begin() + axis, 1);
      part = part.View(Dims(dims));
    }
    Give(0, Invoke("Concat", parts, {{"axis", axis}})[0]);
    return true;
  }

 private:
  const int64_t axis_ = GetSingleArgument<int64_t>("axis");
  const bool new_axis_ = GetSingleArgument<int64_t>("new_axis", 0) != 0;
};

OPKIT_STANDARD_OPERATOR(ConcatFromSequence, kNone, ConcatFromSequenceOp)
    .Input(0, "input_sequence", "tensors whose shapes differ along `axis` alone",
           {DType::kSequence})
    .Output(0, "concat_result", "all of them, one behind the other", WithStrings(AllDTypes()))
    .RequiredArg<int64_t>("axis", "the axis along which they are joined")
    .Arg<int64_t>("new_axis", "1: they are stacked along a new axis", 0)
    .Infer([](InferenceContext& c) { c.SetOutput(0, c.input(0).element, {}); })
    .Doc("Joins the tensors of a sequence.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SEQUENCE_SPLIT_TO_SEQUENCE_HPP_

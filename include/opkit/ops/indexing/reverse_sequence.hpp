// ReverseSequence: reverses the first steps of each sequence of a batch. Source:
// https://onnx.ai/onnx/operators/onnx__ReverseSequence.html, opset 10.
#ifndef OPKIT_OPS_INDEXING_REVERSE_SEQUENCE_HPP_
#define OPKIT_OPS_INDEXING_REVERSE_SEQUENCE_HPP_

#include <cstring>

#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferReverseSequence(InferenceContext& c) {
  const SymbolicShape &input = c.input_shape(0), &lengths = c.input_shape(1);
  const auto batch = c.Arg<int64_t>("batch_axis"), time = c.Arg<int64_t>("time_axis");
  if (batch < 0 || batch > 1 || time != 1 - batch)
    Throw(ErrorCode::kInvalidArgument, "ReverseSequence: batch_axis ", batch, " and time_axis ",
          time, ", expected 0 and 1, or 1 and 0");
  auto fail = [&](const char* expected) {
    Throw(ErrorCode::kInvalidArgument, "ReverseSequence: input ", ToString(input),
          ", sequence_lens ", ToString(lengths), ": expected ", expected);
  };
  if (input.has_rank() && input.rank() < 2) fail("an input of rank 2 or more");
  if (lengths.has_rank() && lengths.rank() != 1) fail("lengths of rank 1");
  if (input.has_rank() && lengths.has_rank()) {
    const Dim sequences = input[static_cast<int>(batch)];
    if (sequences.is_known() && lengths[0].is_known() && sequences.value() != lengths[0].value())
      fail("a length for each sequence");
  }
  c.SetOutput(0, c.input_dtype(0), input);
}

OPKIT_NODE_GRADIENT(ReverseSequence) { Give(0, "ReverseSequence", {GO(0), I(1)}, Def().args()); }

}  // namespace detail

class ReverseSequenceOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &lengths = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const auto batch = static_cast<int>(batch_);
    const int64_t sequences = x.dim(batch), steps = x.dim(1 - batch);
    const int64_t* length = lengths.data<int64_t>();
    for (int64_t i = 0; i < sequences; ++i)
      if (length[i] < 0 || length[i] > steps)
        Throw(ErrorCode::kOutOfRange, "ReverseSequence: length ", i, " is ", length[i],
              ", expected 0 to ", steps);
    const int64_t bytes = x.shape().NumelBetween(2, x.rank()) * ItemSize(x.dtype());
    const int64_t sequence_step = bytes * (batch == 0 ? steps : 1);
    const int64_t time_step = bytes * (batch == 0 ? 1 : sequences);
    const auto* from = static_cast<const char*>(x.raw_data());
    auto* to = static_cast<char*>(y->raw_mutable_data());
    for (int64_t i = 0; i < sequences && bytes > 0; ++i)
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t source = step < length[i] ? length[i] - 1 - step : step;
        std::memcpy(to + i * sequence_step + step * time_step,
                    from + i * sequence_step + source * time_step, static_cast<size_t>(bytes));
      }
    return true;
  }

 private:
  const int64_t batch_ = GetSingleArgument<int64_t>("batch_axis");
};

OPKIT_STANDARD_OPERATOR(ReverseSequence, kMaker, MovingStrings<ReverseSequenceOp>)
    .TakesStrings()
    .NumInputs(2)
    .Input(0, "input", "sequences: a tensor of rank 2 or more")
    .Input(1, "sequence_lens", "for each sequence, the number of steps to reverse", {DType::kInt64})
    .Output(0, "Y", "of the shape of the input; later steps stay")
    .Arg<int64_t>("batch_axis", "which of the first two axes numbers the sequences", 1)
    .Arg<int64_t>("time_axis", "the other of the two axes, which numbers the steps", 0)
    .Infer(detail::InferReverseSequence)
    .Doc("Reverses the first steps of each sequence.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_REVERSE_SEQUENCE_HPP_

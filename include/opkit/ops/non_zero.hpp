// NonZero: finds the indices of the elements that are not zero. The output's shape depends on the
// data.
#ifndef OPKIT_OPS_NON_ZERO_HPP_
#define OPKIT_OPS_NON_ZERO_HPP_

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class NonZeroOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    places_.clear();
    Visit<PlainTypes>([&]<class T>() {
      const T* data = x.data<T>();
      for (int64_t i = 0; i < x.numel(); ++i)
        if (data[i] != T(0)) places_.push_back(i);
    });
    const auto count = static_cast<int64_t>(places_.size());
    const int rank = (std::max)(x.rank(), 1);
    int64_t* out = Output(0, Shape{rank, count}, DType::kInt64)->mutable_data<int64_t>();
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t extent = x.rank() == 0 ? 1 : x.dim(axis);
      for (int64_t i = 0; i < count; ++i) {
        int64_t& place = places_[detail::Index(i)];
        out[axis * count + i] = place % extent;
        place /= extent;
      }
    }
    return true;
  }

 private:
  std::vector<int64_t> places_;
};

OPKIT_STANDARD_OPERATOR(NonZero, kNone, NonZeroOp)
    .Input(0, "X", "any tensor of numbers or bool")
    .Output(0, "Y",
            "[rank, n]: the indices of n elements, one row for each axis, in row-major "
            "order; a scalar counts as rank 1",
            {DType::kInt64})
    .Infer([](InferenceContext& c) {
      const SymbolicShape& input = c.input_shape(0);
      const Dim rank = !input.has_rank() ? Dim() : input.rank() == 0 ? Dim(1) : Dim(input.rank());
      c.SetOutput(0, DType::kInt64, {rank, Dim::AtMost(input.Elements())});
    })
    .Cost([](auto&, auto& inputs, auto& outputs) {
      const TensorInfo& x = inputs[0];
      OpCost cost = TrafficCost(OpSchema::Elements(x), inputs, outputs);
      // Before a run, assume that all elements of X are not zero.
      if (!outputs[0].shape.is_known() && x.shape.is_known())
        cost.bytes_written = OpSchema::Elements(x) * sizeof(int64_t) *
                             static_cast<uint64_t>((std::max)(x.shape.rank(), 1));
      return cost;
    })
    .Doc("The indices of the elements that are not zero.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NON_ZERO_HPP_

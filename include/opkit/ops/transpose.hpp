// Transpose: puts the axes of a tensor in another order.
#ifndef OPKIT_OPS_TRANSPOSE_HPP_
#define OPKIT_OPS_TRANSPOSE_HPP_

#include <cstring>

#include "opkit/core/packed.hpp"
#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the order of the axes: axis i of the output is axis order[i] of the input. Throws
// kInvalidArgument unless `perm` names every axis once, kOutOfRange for an axis outside the rank.
inline Dims TransposeOrder(const Arguments& args, int rank) {
  auto order = args.Get<std::vector<int64_t>>("perm", {});
  if (!args.Has("perm"))
    for (int i = 0; i < rank; ++i) order.push_back(rank - 1 - i);
  if (order.size() != static_cast<size_t>(rank))
    Throw(ErrorCode::kInvalidArgument, "Transpose: perm ", order, " must name each axis once, and ",
          "the input has rank ", rank);
  return NormalizeAxes(std::move(order), rank, "Transpose");
}

inline void InferTranspose(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  SymbolicShape shape;
  if (input.has_rank()) {
    std::vector<Dim> dims;
    for (const int64_t axis : TransposeOrder(c.args(), input.rank()))
      dims.push_back(input[static_cast<int>(axis)]);
    shape = SymbolicShape(std::move(dims));
  } else if (c.args().Has("perm")) {
    const auto order = c.Arg<std::vector<int64_t>>("perm", {});
    shape = SymbolicShape::OfRank(static_cast<int>(order.size()));
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

OPKIT_NODE_GRADIENT(Transpose) {
  Arguments args;
  if (Def().args().Has("perm")) {
    const int rank = static_cast<int>(Def().args().Get<std::vector<int64_t>>("perm").size());
    const Dims order = TransposeOrder(Def().args(), rank);
    std::vector<int64_t> inverse(static_cast<size_t>(rank));
    for (int i = 0; i < rank; ++i) inverse[Index(order[i])] = i;
    args.Set("perm", inverse);
  }
  Give(0, "Transpose", {GO(0)}, args);
}

}  // namespace detail

// The base of the kernels of Transpose.
class TransposeOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Calls f with the number of an element of y and the place of that element in the memory of x.
  template <class F>
  void ForEachElement(const Tensor& x, const Tensor& y, F&& f) {
    const Dims& order = Order(x.rank());
    const Dims strides = x.strides();
    for (int64_t i = 0; i < y.numel(); ++i) {
      int64_t rest = i, place = 0;
      for (int axis = x.rank() - 1; axis >= 0; --axis) {
        place += rest % y.dim(axis) * strides[static_cast<int>(order[axis])];
        rest /= y.dim(axis);
      }
      f(i, place);
    }
  }
  // Returns the order of the axes, computed once for a rank.
  const Dims& Order(int rank) {
    if (order_.size() != rank) order_ = detail::TransposeOrder(def().args(), rank);
    return order_;
  }

 private:
  Dims order_;
};

// The reference kernel: copies one element after the other.
class TransposeOp : public TransposeOpBase {
 public:
  using TransposeOpBase::TransposeOpBase;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    const int64_t item = ItemSize(x.dtype());
    const auto* from = static_cast<const char*>(x.raw_data());
    auto* to = static_cast<char*>(y->raw_mutable_data());
    ForEachElement(x, *y, [&](int64_t i, int64_t place) {
      std::memcpy(to + i * item, from + place * item, static_cast<size_t>(item));
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Transpose, kMaker, MovingStrings<TransposeOp>)
    .TakesStrings()
    .Input(0, "data", "any tensor")
    .Output(0, "transposed", "axis i is axis perm[i] of `data`")
    .Arg<std::vector<int64_t>>("perm", "every axis of `data` once; by default the reverse order")
    .Infer(detail::InferTranspose)
    .Doc("Puts the axes of a tensor in another order.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TRANSPOSE_HPP_

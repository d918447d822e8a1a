// TopK: finds the largest or smallest elements along an axis, and their indices. Source:
// https://onnx.ai/onnx/operators/onnx__TopK.html.
#ifndef OPKIT_OPS_TOPK_HPP_
#define OPKIT_OPS_TOPK_HPP_

#include <algorithm>

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// True if a comes after b in ascending order. NaN is above every number, as in NumPy's sort.
template <class T>
OPKIT_HOST_DEVICE bool IsAbove(T a, T b) {
  if (a != a || b != b) return b == b;
  return a > b;
}

}  // namespace detail

class TopKOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;

  // Always sorts the results, even if the attribute `sorted` is 0.
  bool RunOnDevice() override {
    return Visit<NumericTypes>([&]<class T>() {
      Tensor* values = InferredOutput(0);
      Tensor* indices = InferredOutput(1);
      const Tensor& in = DenseInput(0);
      const int axis = Axis(in.rank());
      const AxisSplit from(in.shape(), axis), to(values->shape(), axis);
      if (to.extent == 0) return;
      const T* input = in.data<T>();
      T* best = values->mutable_data<T>();
      int64_t* where = indices->mutable_data<int64_t>();
      ParallelForRange(from.rows(), kAutoGrain, [&](int64_t begin, int64_t end) {
        std::vector<int64_t> order(static_cast<size_t>(from.extent));
        for (int64_t row = begin; row < end; ++row) {
          const T* x = input + from.Begin(row);
          for (int64_t i = 0; i < from.extent; ++i) order[detail::Index(i)] = i;
          std::partial_sort(order.begin(), order.begin() + to.extent, order.end(),
                            [&](int64_t i, int64_t j) {
                              const T a = x[i * from.inner], b = x[j * from.inner];
                              if (detail::IsAbove(a, b)) return largest_;
                              if (detail::IsAbove(b, a)) return !largest_;
                              return i < j;
                            });
          for (int64_t i = 0; i < to.extent; ++i) {
            const int64_t at = to.Begin(row) + i * to.inner, found = order[detail::Index(i)];
            best[at] = x[found * from.inner];
            where[at] = found;
          }
        }
      });
    });
  }

 private:
  const bool largest_ = GetSingleArgument<int64_t>("largest") != 0;
};

namespace detail {

inline void InferTopK(InferenceContext& c) {
  const std::optional<Dims> k = KnownIntegerList(c, 1, "K of TopK");
  if (k && (k->size() != 1 || (*k)[0] < 0))
    Throw(ErrorCode::kInvalidArgument, "TopK: K is ", ToString(*k),
          ", expected one number that is not negative");
  SymbolicShape shape = c.input_shape(0);
  if (shape.has_rank()) {
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), shape.rank(), "TopK");
    if (k && shape[axis].is_known() && (*k)[0] > shape[axis].value())
      Throw(ErrorCode::kInvalidArgument, "TopK: K is ", (*k)[0], ", but axis ", axis, " of shape ",
            ToString(shape), " has only ", shape[axis].value(), " elements");
    shape[axis] = k ? Dim((*k)[0]) : Dim::AtMost(shape[axis]);
  }
  c.SetOutput(0, c.input_dtype(0), shape);
  c.SetOutput(1, DType::kInt64, shape);
}

OPKIT_NODE_GRADIENT(TopK) {
  if (!HasGO(0)) return;
  Give(0, "ScatterElements", {Node("ZerosLike", {I(0)}), O(1), GO(0)},
       {{"axis", Def().args().Get<int64_t>("axis", -1)}});
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(TopK, kMaker, TopKOp)
    .Doc(
        "The K largest or smallest elements along an axis, best first, and their indices. Of "
        "equal elements the one with the lower index comes first; a NaN counts as larger than "
        "every number.")
    .NumInputs(2)
    .InputsOnHost({1})
    .NumOutputs(2)
    .Input(0, "X", "a tensor", NumericTypes::DTypes())
    .Input(1, "K", "a list of one number", {DType::kInt64})
    .Output(0, "Values", "as X, with K elements along the axis")
    .Output(1, "Indices", "along the axis", {DType::kInt64})
    .Arg<int64_t>("axis", "the axis to search; negative: from the last", -1)
    .Arg<int64_t>("largest", "1: the largest elements; 0: the smallest", 1)
    .Arg<int64_t>("sorted", "1: best first; 0: the order does not matter", 1)
    .PointwiseCost(8)
    .Infer(&detail::InferTopK);

}}  // namespace opkit

#endif  // OPKIT_OPS_TOPK_HPP_

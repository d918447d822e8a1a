// ArgMax and ArgMin: find the index of the largest or smallest element along an axis. Source:
// https://onnx.ai/onnx/operators/onnx__ArgMax.html.
#ifndef OPKIT_OPS_MATH_ARG_HPP_
#define OPKIT_OPS_MATH_ARG_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// True if a wins over b: the larger for ArgMax, the smaller for ArgMin, and always a NaN, as in
// NumPy.
template <bool kMax, class T>
OPKIT_HOST_DEVICE bool WinsOver(T a, T b) {
  if (a != a || b != b) return b == b;
  return kMax ? a > b : a < b;
}

}  // namespace detail

template <bool kMax>
class ArgOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;

  bool RunOnDevice() override {
    return Visit<NumericTypes>([&]<class T>() {
      Tensor* out = InferredOutput(0);
      const Tensor& in = DenseInput(0);
      const AxisSplit split(in.shape(), Axis(in.rank()));
      const T* data = in.data<T>();
      int64_t* y = out->mutable_data<int64_t>();
      ParallelFor(split.rows(), [&](int64_t row) {
        const T* x = data + split.Begin(row);
        int64_t best = 0;
        for (int64_t i = 1; i < split.extent; ++i) {
          const T value = x[i * split.inner], found = x[best * split.inner];
          if (detail::WinsOver<kMax>(value, found) ||
              (last_ && !detail::WinsOver<kMax>(found, value)))
            best = i;
        }
        y[row] = best;
      });
    });
  }

 private:
  const bool last_ = GetSingleArgument<int64_t>("select_last_index") != 0;
};

namespace detail {

inline void InferArg(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (!x.has_rank()) return c.SetOutput(0, DType::kInt64, {});
  const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), x.rank(), c.def().type());
  if (x[axis] == Dim(0))
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": axis ", axis, " of shape ", ToString(x),
          " has no elements to choose from");
  std::vector<Dim> dims = x.dims();
  if (c.Arg<int64_t>("keepdims") != 0)
    dims[Index(axis)] = 1;
  else
    dims.erase(dims.begin() + axis);
  c.SetOutput(0, DType::kInt64, SymbolicShape(std::move(dims)));
}

inline void FillArgSchema(OpSchema& schema, const char* doc) {
  schema.Doc(doc)
      .Input(0, "data", "a tensor", NumericTypes::DTypes())
      .Output(0, "reduced", "indices along the axis", {DType::kInt64})
      .Arg<int64_t>("axis", "the axis to search; negative: from the last", 0)
      .Arg<int64_t>("keepdims", "1: the axis stays with an extent of 1; 0: it goes", 1)
      .Arg<int64_t>("select_last_index", "1: the last of equal elements; 0: the first", 0)
      .Flops([](auto& c) { return OpSchema::Elements(c.input(0)); })
      .Infer(&InferArg);
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(ArgMax, kNone, ArgOp<true>).FillUsing([](OpSchema& schema) {
  detail::FillArgSchema(schema,
                        "Where along an axis the largest element is; a NaN counts as larger.");
});

OPKIT_STANDARD_OPERATOR(ArgMin, kNone, ArgOp<false>).FillUsing([](OpSchema& schema) {
  detail::FillArgSchema(schema,
                        "Where along an axis the smallest element is; a NaN counts as smaller.");
});

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_ARG_HPP_

// OneHot: converts each index to a vector with the "on" value at the index and the "off" value
// elsewhere.
#ifndef OPKIT_OPS_ONE_HOT_HPP_
#define OPKIT_OPS_ONE_HOT_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/standard_operator.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns element i of a dense tensor of any real dtype, truncated to an integer. Throws
// kInvalidArgument for a floating-point number that is NaN or beyond +-2^62. A uint64 above the
// maximum of int64 becomes that maximum.
inline int64_t IntegerAt(const Tensor& tensor, int64_t i) {
  return DispatchDType<int64_t, int32_t, int16_t, int8_t, uint64_t, uint32_t, uint16_t, uint8_t,
                       float, double, float16, bfloat16>(tensor.dtype(), [&]<class T>() -> int64_t {
    const T value = tensor.data<T>()[i];
    if constexpr (!std::is_integral_v<T>) {
      if (!(static_cast<double>(value) >= -0x1p62 && static_cast<double>(value) <= 0x1p62))
        Throw(ErrorCode::kInvalidArgument, "OneHot: expected an integer, found ",
              static_cast<double>(value));
    }
    // INT64_MAX is outside every axis, as are all larger numbers.
    if constexpr (std::is_same_v<T, uint64_t>)
      return static_cast<int64_t>((std::min)(value, uint64_t{INT64_MAX}));
    else
      return static_cast<int64_t>(value);
  });
}

inline void InferOneHot(InferenceContext& c) {
  const SymbolicShape& indices = c.input_shape(0);
  Dim depth;
  if (const Tensor* known = c.input_constant(1)) {
    if (known->numel() != 1 || known->rank() > 1)
      Throw(ErrorCode::kInvalidArgument, "OneHot: 'depth' is ", *known,
            ", expected one element in a scalar or list");
    const int64_t value = IntegerAt(known->is_dense() ? *known : known->Contiguous(), 0);
    if (value < 0)
      Throw(ErrorCode::kInvalidArgument, "OneHot: 'depth' is ", value, ", expected at least 0");
    depth = value;
  }
  if (!SymbolicShape::Merge(c.input_shape(2), Shape{2}))
    Throw(ErrorCode::kInvalidArgument, "OneHot: 'values' has shape ", ToString(c.input_shape(2)),
          ", expected [2], the off and the on value");
  SymbolicShape shape;
  if (indices.has_rank()) {
    std::vector<Dim> dims = indices.dims();
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), indices.rank() + 1, "OneHot");
    dims.insert(dims.begin() + axis, depth);
    shape = SymbolicShape(std::move(dims));
  }
  c.SetOutput(0, c.input_dtype(2), shape);
}

}  // namespace detail

class OneHotOp : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor &indices = DenseInput(0), &values = DenseInput(2);
    Tensor* y = InferredOutput(0);
    const int axis = Axis(y->rank());
    const int64_t depth = y->dim(axis);
    const int64_t inner = y->shape().NumelBetween(axis + 1, y->rank());
    const int64_t item = ItemSize(y->dtype());
    const auto* off = static_cast<const char*>(values.raw_data());
    auto* out = static_cast<char*>(y->raw_mutable_data());
    copy_.Repeat(y->numel(), item, off, out);
    for (int64_t i = 0; i < indices.numel(); ++i) {
      int64_t index = detail::IntegerAt(indices, i);
      if (index < 0) index += depth;
      if (index < 0 || index >= depth) continue;  // every element stays "off"
      const int64_t at = (i / inner * depth + index) * inner + i % inner;
      std::memcpy(out + at * item, off + item, static_cast<size_t>(item));
    }
    return true;
  }

 private:
  StridedCopy copy_;
};

OPKIT_STANDARD_OPERATOR(OneHot, kNone, MovingStrings<OneHotOp, 2>)
    .TakesStrings()
    .NumInputs(3)
    .InputsOnHost({1})
    .Input(0, "indices",
           "of the place that is on; negative ones count from the end, and one "
           "outside leaves all off")
    .Input(1, "depth", "extent of the new axis: one number")
    .Input(2, "values", "[off, on]")
    .Output(0, "output", "the shape of `indices` with `axis` added, the dtype of `values`")
    .Arg<int64_t>("axis", "of the output, that is new; negative ones count from the end", -1)
    .Infer(detail::InferOneHot)
    .Doc("Indices as vectors that are on at one place.");

}}  // namespace opkit

#endif  // OPKIT_OPS_ONE_HOT_HPP_

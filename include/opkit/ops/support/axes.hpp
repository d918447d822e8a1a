// Axes of tensors as ONNX numbers them: negative numbers count from the last axis. Used by
// inference and kernels of operators with axis attributes.
#ifndef OPKIT_OPS_SUPPORT_AXES_HPP_
#define OPKIT_OPS_SUPPORT_AXES_HPP_

#include "opkit/base/index.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns `axis` as a number in [0, rank). Throws kOutOfRange, with the name `op` and the valid
// range.
inline int NormalizeAxis(int64_t axis, int rank, std::string_view op) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, op, ": axis ", axis, " is outside a tensor of rank ", rank,
          ", expected ", -rank, " to ", rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Returns a mask with one entry for each of `rank` axes: 1 if `axes` contains the axis, else 0.
// Throws kOutOfRange for an axis outside the rank, kInvalidArgument for an axis that is named
// twice.
inline std::vector<char> AxisMask(const std::vector<int64_t>& axes, int rank, std::string_view op) {
  std::vector<char> mask(static_cast<size_t>(rank), 0);
  for (const int64_t axis : axes) {
    char& named = mask[detail::Index(NormalizeAxis(axis, rank, op))];
    if (named) Throw(ErrorCode::kInvalidArgument, op, ": axis ", axis, " is named twice in ", axes);
    named = 1;
  }
  return mask;
}

// Returns `axes` as numbers in [0, rank). Throws as AxisMask does.
inline Dims NormalizeAxes(std::vector<int64_t> axes, int rank, std::string_view op) {
  [[maybe_unused]] const std::vector<char> each_named_once = AxisMask(axes, rank, op);
  for (int64_t& axis : axes) axis = NormalizeAxis(axis, rank, op);
  return axes;
}

// The base of operators with the attribute `axis`. AxisOperator is the base on the CPU.
template <class Context>
class AxisOperatorOn : public StandardOperatorOn<Context> {
 public:
  using StandardOperatorOn<Context>::StandardOperatorOn;

 protected:
  // Returns the attribute as a number in [0, rank). Throws kOutOfRange for any other axis.
  int Axis(int rank) const { return NormalizeAxis(axis_, rank, this->type()); }

 private:
  const int64_t axis_ = this->template GetSingleArgument<int64_t>("axis");
};
using AxisOperator = AxisOperatorOn<CPUContext>;

// A dense tensor viewed as [outer, extent, inner] around one of its axes: element (o, i, n) is at
// (o * extent + i) * inner + n.
struct AxisSplit {
  int64_t outer = 1, extent = 1, inner = 1;

  AxisSplit(const Shape& shape, int axis)
      : outer(shape.NumelBetween(0, axis)),
        extent(shape[axis]),
        inner(shape.NumelBetween(axis + 1, shape.rank())) {}
  // Number of rows along the axis, and the offset of a row's first element, in elements.
  OPKIT_HOST_DEVICE int64_t rows() const { return outer * inner; }
  OPKIT_HOST_DEVICE int64_t Begin(int64_t row) const {
    return row / inner * extent * inner + row % inner;
  }
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_AXES_HPP_

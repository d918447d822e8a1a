// Axes: numbers of dimensions as ONNX writes them, negative ones counted from the end.
#ifndef OPKIT_OPS_SUPPORT_AXES_HPP_
#define OPKIT_OPS_SUPPORT_AXES_HPP_

#include "opkit/base/index.hpp"
#include "opkit/core/symbolic_shape.hpp"

namespace opkit::inline OPKIT_ABI {

// Returns `axis` as a number in [0, rank). Error (kOutOfRange) that names the operator and the
// range.
inline int NormalizeAxis(int64_t axis, int rank, std::string_view op) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, op, ": axis ", axis, " is outside a tensor of rank ", rank,
          ", expected ", -rank, " to ", rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// For each axis of a tensor, whether it is among `axes`. Errors: kOutOfRange, kInvalidArgument for
// an axis that is named twice.
inline std::vector<char> AxisMask(const std::vector<int64_t>& axes, int rank, std::string_view op) {
  std::vector<char> mask(static_cast<size_t>(rank), 0);
  for (const int64_t axis : axes) {
    char& named = mask[detail::Index(NormalizeAxis(axis, rank, op))];
    if (named) Throw(ErrorCode::kInvalidArgument, op, ": axis ", axis, " is named twice in ", axes);
    named = 1;
  }
  return mask;
}

// A dense tensor seen as [outer, extent, inner] around one of its axes: element (o, i, n) is at
// (o * extent + i) * inner + n.
struct AxisSplit {
  int64_t outer = 1, extent = 1, inner = 1;

  AxisSplit(const Shape& shape, int axis)
      : outer(shape.NumelBetween(0, axis)),
        extent(shape[axis]),
        inner(shape.NumelBetween(axis + 1, shape.rank())) {}
  // The number of rows along the axis, and the place of a row's first element.
  int64_t rows() const { return outer * inner; }
  int64_t Begin(int64_t row) const { return row / inner * extent * inner + row % inner; }
};

}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_AXES_HPP_

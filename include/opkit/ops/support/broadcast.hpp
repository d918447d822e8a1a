// Broadcasting of several shapes to one, NumPy's rule: aligned at the last axis, an extent of 1 is
// repeated. Source: ONNX, Broadcasting.md, "multidirectional".
#ifndef OPKIT_OPS_SUPPORT_BROADCAST_HPP_
#define OPKIT_OPS_SUPPORT_BROADCAST_HPP_

#include "opkit/base/index.hpp"
#include "opkit/core/symbolic_shape.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the extent that a and b are broadcast to. Throws kInvalidArgument if both are known,
// differ, and neither is 1. If only one is known and it is not 1, returns the known extent: no
// other result is possible.
inline Dim BroadcastDim(const Dim& a, const Dim& b, const SymbolicShape& all_a,
                        const SymbolicShape& all_b) {
  if (a == b && !a.is_unknown()) return a;
  if (a.is_known() && b.is_known() && a.value() != 1 && b.value() != 1)
    Throw(ErrorCode::kInvalidArgument, "shapes ", ToString(all_a), " and ", ToString(all_b),
          " cannot be broadcast together: extents ", ToString(a), " and ", ToString(b));
  if (a.is_known()) return a.value() == 1 ? b : a;
  if (b.is_known()) return b.value() == 1 ? a : b;
  return Dim::Either(a, b);
}

// Returns the shape that a and b are broadcast to, or a shape of unknown rank if a rank is unknown.
inline SymbolicShape BroadcastShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank()) return {};
  const int rank = a.rank() > b.rank() ? a.rank() : b.rank();
  std::vector<Dim> dims(static_cast<size_t>(rank));
  for (int back = 1; back <= rank; ++back) {
    Dim& dim = dims[detail::Index(rank - back)];
    if (back > a.rank())
      dim = b[-back];
    else if (back > b.rank())
      dim = a[-back];
    else
      dim = BroadcastDim(a[-back], b[-back], a, b);
  }
  return SymbolicShape(std::move(dims));
}

// False if no tensor of shape `from` can be broadcast to `to`. Both ranks must be known.
inline bool MayBroadcastTo(const SymbolicShape& from, const SymbolicShape& to) {
  bool fits = from.rank() <= to.rank();
  for (int back = 1; fits && back <= from.rank(); ++back)
    fits =
        !from[-back].is_known() || from[-back] == Dim(1) || Dim::Compatible(from[-back], to[-back]);
  return fits;
}

// Returns the strides, in elements, that walk a dense tensor of shape `from` as if it had shape
// `to`: 0 along repeated axes. Throws kInvalidArgument if `from` cannot be broadcast to `to`.
inline Dims BroadcastStrides(const Shape& from, const Shape& to) {
  auto fail = [&] {
    Throw(ErrorCode::kInvalidArgument, "shape ", ToString(from), " cannot be broadcast to ",
          ToString(to));
  };
  if (from.rank() > to.rank()) fail();
  const Dims dense = from.DenseStrides();
  Dims strides(std::vector<int64_t>(static_cast<size_t>(to.rank()), 0));
  const int shift = to.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis)
    if (from[axis] == to[axis + shift])
      strides[axis + shift] = from[axis] == 1 ? 0 : dense[axis];
    else if (from[axis] != 1)
      fail();
  return strides;
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_BROADCAST_HPP_

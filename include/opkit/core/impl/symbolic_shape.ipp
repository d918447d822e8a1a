// The definitions of opkit/core/symbolic_shape.hpp.
#ifndef OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

#include "opkit/core/symbolic_shape.hpp"

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE Dim Dim::Symbol(std::string name) {
  Dim dim;
  dim.symbol_ = std::move(name);
  return dim;
}

OPKIT_INLINE int64_t Dim::value() const {
  if (!is_known())
    Throw(ErrorCode::kFailedPrecondition, "extent ", ToString(*this), " is not known yet");
  return value_;
}

OPKIT_INLINE Shape SymbolicShape::ToShape() const {
  std::vector<int64_t> values;
  if (!has_rank_) static_cast<void>(rank());
  for (const Dim& dim : dims_) values.push_back(dim.value());
  return Shape(values);
}

OPKIT_INLINE size_t SymbolicShape::Axis(int axis) const {
  const int found = axis < 0 ? axis + rank() : axis;
  if (found < 0 || found >= rank())
    Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside shape ", ToString(*this), " of rank ",
          rank());
  return static_cast<size_t>(found);
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

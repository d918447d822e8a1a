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
  if (!is_known()) throw NotKnownYet(StrCat("extent ", ToString(*this), " is not known yet"));
  return value_;
}

OPKIT_INLINE std::optional<Dim> Dim::Merge(const Dim& a, const Dim& b) {
  if (!Compatible(a, b)) return std::nullopt;
  if (a.is_known() || b.is_unknown()) return a;
  return b.is_known() || a.is_unknown() ? b : a;
}

OPKIT_INLINE DimExpr DimExpr::Compute(const DimExpr& a, char op, const DimExpr& b) {
  DimExpr out = Dim();
  if (!a.value_ || !b.value_) return out;
  int64_t x = *a.value_, y = *b.value_, result = 0;
  if (op == '/' && y == 0)
    Throw(ErrorCode::kInvalidArgument, "an extent is computed as ", x, " / 0");
  const bool overflows = op == '+'   ? __builtin_add_overflow(x, y, &result)
                         : op == '-' ? __builtin_sub_overflow(x, y, &result)
                         : op == '*' ? __builtin_mul_overflow(x, y, &result)
                         : y == -1   ? __builtin_sub_overflow(int64_t{0}, x, &result)
                                     : (result = x / y, false);
  if (overflows)
    Throw(ErrorCode::kOutOfRange, "an extent is computed as ", x, " ", op, " ", y,
          ", which is past int64");
  out.value_ = result;
  return out;
}

OPKIT_INLINE Shape SymbolicShape::ToShape() const {
  std::vector<int64_t> values;
  if (!has_rank_) static_cast<void>(rank());
  for (const Dim& dim : dims_) values.push_back(dim.value());
  return Shape(values);
}

OPKIT_INLINE std::optional<SymbolicShape> SymbolicShape::Merge(const SymbolicShape& a,
                                                               const SymbolicShape& b) {
  if (!a.has_rank_) return b;
  if (!b.has_rank_) return a;
  if (a.dims_.size() != b.dims_.size()) return std::nullopt;
  std::vector<Dim> dims;
  for (size_t i = 0; i < a.dims_.size(); ++i) {
    auto dim = Dim::Merge(a.dims_[i], b.dims_[i]);
    if (!dim) return std::nullopt;
    dims.push_back(*std::move(dim));
  }
  return SymbolicShape(std::move(dims));
}

OPKIT_INLINE size_t SymbolicShape::Axis(int axis) const {
  const int found = axis < 0 ? axis + rank() : axis;
  if (found < 0 || found >= rank())
    Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside ", *this, " of rank ", rank());
  return static_cast<size_t>(found);
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

// The definitions of opkit/core/symbolic_shape.hpp.
#ifndef OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

#include <algorithm>

#include "opkit/core/symbolic_shape.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE Dim Dim::Symbol(std::string name) {
  Dim dim;
  dim.symbol_ = std::move(name);
  return dim;
}

OPKIT_INLINE Dim Dim::AtMost(int64_t most) {
  if (most < 0)
    Throw(ErrorCode::kInvalidArgument, "an extent of at most ", most, " would be negative");
  Dim dim;
  dim.most_ = most;
  return dim;
}

OPKIT_INLINE std::string ToString(const Dim& dim) {
  if (dim.is_known()) return std::to_string(dim.value_);
  if (dim.is_symbol()) return dim.symbol_;
  return dim.most_ < 0 ? "?" : "<=" + std::to_string(dim.most_);
}

OPKIT_INLINE int64_t Dim::value() const {
  if (!is_known())
    throw detail::NotKnownYet(StrCat("extent ", ToString(*this), " is not known yet"));
  return value_;
}

OPKIT_INLINE std::optional<Dim> Dim::Merge(const Dim& a, const Dim& b) {
  if (!Compatible(a, b)) return std::nullopt;
  if (a.is_unknown() && b.is_unknown())
    return b.most_ >= 0 && (a.most_ < 0 || b.most_ < a.most_) ? b : a;
  if (a.is_known() || b.is_unknown()) return a;
  return b.is_known() || a.is_unknown() ? b : a;
}

OPKIT_INLINE Dim Dim::Either(const Dim& a, const Dim& b) {
  if (a == b) return a;
  return a.most_ < 0 || b.most_ < 0 ? Dim() : AtMost((std::max)(a.most_, b.most_));
}

namespace detail {
// Computes x op y. Returns true if the result exceeds int64.
inline bool ComputeExtent(int64_t x, char op, int64_t y, int64_t* result) {
  return op == '+'   ? __builtin_add_overflow(x, y, result)
         : op == '-' ? __builtin_sub_overflow(x, y, result)
         : op == '*' ? __builtin_mul_overflow(x, y, result)
         : y == -1   ? __builtin_sub_overflow(int64_t{0}, x, result)
                     : (*result = x / y, false);
}
}  // namespace detail

OPKIT_INLINE Dim::Expr::operator Dim() const {
  if (value_) return Dim(*value_);
  return most_ && *most_ >= 0 ? Dim::AtMost(*most_) : Dim();
}

// Returns the largest value that `a op b` can have. Returns nothing if an operand has no bound, if
// the result may fall while an operand grows, or on overflow.
OPKIT_INLINE std::optional<int64_t> Dim::Expr::MostOf(const Dim::Expr& a, char op,
                                                      const Dim::Expr& b) {
  if (op == '*' && a.value_ && !b.value_) return MostOf(b, op, a);
  const bool grows =
      op == '+' || (b.value_ && (op == '-' || (op == '*' ? *b.value_ >= 0 : *b.value_ > 0)));
  int64_t most = 0;
  if (!grows || !a.most_ || !b.most_ || detail::ComputeExtent(*a.most_, op, *b.most_, &most))
    return std::nullopt;
  return most;
}

OPKIT_INLINE Dim::Expr Dim::Expr::Compute(const Dim::Expr& a, char op, const Dim::Expr& b) {
  Dim::Expr out = Dim();
  if (!a.value_ || !b.value_) {
    out.most_ = MostOf(a, op, b);
    return out;
  }
  int64_t x = *a.value_, y = *b.value_, result = 0;
  if (op == '/' && y == 0)
    Throw(ErrorCode::kInvalidArgument, "an extent is computed as ", x, " / 0");
  if (detail::ComputeExtent(x, op, y, &result))
    Throw(ErrorCode::kOutOfRange, "an extent is computed as ", x, " ", op, " ", y,
          ", which is past int64");
  return result;
}

OPKIT_INLINE Shape SymbolicShape::ToShape() const {
  std::vector<int64_t> values;
  if (!has_rank_) static_cast<void>(rank());
  for (const Dim& dim : dims_) values.push_back(dim.value());
  return Shape(values);
}

OPKIT_INLINE Dim SymbolicShape::Elements() const {
  const std::optional<Shape> most = Most();
  if (!most) return {};
  return is_known() ? Dim(most->numel()) : Dim::AtMost(most->numel());
}

OPKIT_INLINE bool SymbolicShape::Allows(const Shape& shape) const {
  if (!has_rank_) return true;
  if (rank() != shape.rank()) return false;
  const int64_t* extent = shape.data();
  for (const Dim& dim : dims_) {
    if (dim.is_known() ? *extent != dim.value() : *extent > dim.most().value_or(*extent))
      return false;
    ++extent;
  }
  return true;
}

OPKIT_INLINE std::optional<Shape> SymbolicShape::Most() const {
  if (!has_rank_) return std::nullopt;
  std::vector<int64_t> values;
  int64_t product = 1;
  for (const Dim& dim : dims_) {
    const std::optional<int64_t> most = dim.most();
    if (!most || (*most > 0 && __builtin_mul_overflow(product, *most, &product)))
      return std::nullopt;
    values.push_back(*most);
  }
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

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

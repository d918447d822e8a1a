// Shapes that are not fully known yet: an extent is a number, a symbol (`Sym("N")`) or unknown,
// perhaps with an upper bound, and the rank itself may be unknown. Shape inference reads and writes
// such shapes.
#ifndef OPKIT_CORE_SYMBOLIC_SHAPE_HPP_
#define OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

#include <optional>

#include "opkit/core/shape.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Thrown by functions that need a rank or an extent that is not known. If an inference function
// throws it, nothing can be inferred yet; Compile does not report it as an Error.
class OPKIT_VISIBLE NotKnownYet : public Error {
 public:
  explicit NotKnownYet(std::string what) : Error(ErrorCode::kFailedPrecondition, std::move(what)) {}
};

}  // namespace detail

// An extent of a shape. Two symbols of the same name are the same extent; two unknown extents may
// differ.
class Dim {
 public:
  class Expr;

  Dim() = default;  // unknown
  Dim(int64_t value) : value_(value), most_(value) {
    if (value < 0) Throw(ErrorCode::kInvalidArgument, "extent ", value, " is negative");
  }
  static Dim Symbol(std::string name);
  // Returns an extent that a run decides, with an upper bound for the planning of memory.
  static Dim AtMost(int64_t most);
  // Returns an unknown extent that is no larger than the largest value of `whole`; without a bound
  // if `whole` has none.
  static Dim AtMost(const Dim& whole) { return whole.most_ < 0 ? Dim() : AtMost(whole.most_); }

  bool is_known() const { return value_ >= 0; }
  bool is_symbol() const { return !symbol_.empty(); }
  bool is_unknown() const { return !is_known() && !is_symbol(); }
  // Returns the number. Error (kFailedPrecondition) unless it is known.
  int64_t value() const;
  const std::string& symbol() const { return symbol_; }
  // Returns the largest value that the extent can have: a number itself, or the upper bound;
  // nothing without a bound.
  std::optional<int64_t> most() const {
    return most_ < 0 ? std::nullopt : std::optional<int64_t>(most_);
  }

  friend bool operator==(const Dim&, const Dim&) = default;
  friend std::string ToString(const Dim& dim);
  // True unless the two extents are known to differ.
  static bool Compatible(const Dim& a, const Dim& b) { return !a.IsAbove(b) && !b.IsAbove(a); }
  // Merges two descriptions of one extent: a number is kept before a symbol, a symbol before
  // unknown, the lower bound before the higher. Returns nothing if they contradict each other.
  static std::optional<Dim> Merge(const Dim& a, const Dim& b);
  // Returns the extent that is `a` or `b`: `a` if both are equal, else an unknown extent with the
  // larger of the two bounds, or without a bound if one of them has none.
  static Dim Either(const Dim& a, const Dim& b);

 private:
  bool IsAbove(const Dim& other) const {
    return is_known() && other.most_ >= 0 && value_ > other.most_;
  }

  int64_t value_ = -1;
  int64_t most_ = -1;  // negative: any
  std::string symbol_;
};

inline Dim Sym(std::string name) { return Dim::Symbol(std::move(name)); }

// A number computed from extents, as in `x[1] - w[0] + 1`. Negative numbers are allowed. The result
// is unknown if one extent is not a number, and has a bound if extents with bounds are added to
// each other or combined with numbers. Converts to Dim; Error (kInvalidArgument) for a negative
// number.
class Dim::Expr {
 public:
  Expr(int64_t value) : value_(value), most_(value) {}
  Expr(const Dim& dim) : most_(dim.most()) {
    if (dim.is_known()) value_ = dim.value();
  }
  operator Dim() const;

  // Errors: kOutOfRange past int64, kInvalidArgument for a division by 0. Division rounds towards
  // 0.
  friend Expr operator+(const Expr& a, const Expr& b) { return Compute(a, '+', b); }
  friend Expr operator-(const Expr& a, const Expr& b) { return Compute(a, '-', b); }
  friend Expr operator*(const Expr& a, const Expr& b) { return Compute(a, '*', b); }
  friend Expr operator/(const Expr& a, const Expr& b) { return Compute(a, '/', b); }

 private:
  static Expr Compute(const Expr& a, char op, const Expr& b);
  static std::optional<int64_t> MostOf(const Expr& a, char op, const Expr& b);

  std::optional<int64_t> value_;
  std::optional<int64_t> most_;  // the largest value that it can have
};
Dim::Expr operator+(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator-(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator*(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator/(const Dim::Expr& a, const Dim::Expr& b);

// A shape whose extents may be symbols or unknown. The rank of a default-constructed shape is
// unknown too.
class SymbolicShape {
 public:
  SymbolicShape() = default;
  SymbolicShape(std::initializer_list<Dim> dims) : dims_(dims), has_rank_(true) {}
  explicit SymbolicShape(std::vector<Dim> dims) : dims_(std::move(dims)), has_rank_(true) {}
  SymbolicShape(const Shape& shape) : dims_(shape.begin(), shape.end()), has_rank_(true) {}
  // Returns a shape of `rank` unknown extents.
  static SymbolicShape OfRank(int rank) {
    return SymbolicShape(std::vector<Dim>(static_cast<size_t>(rank)));
  }

  bool has_rank() const { return has_rank_; }
  int rank() const {
    if (!has_rank_) throw detail::NotKnownYet("the rank is not known yet");
    return static_cast<int>(dims_.size());
  }
  bool is_known() const {
    for (const Dim& dim : dims_)
      if (!dim.is_known()) return false;
    return has_rank_;
  }
  const std::vector<Dim>& dims() const { return dims_; }
  // Negative axes count from the end. Errors: kOutOfRange for an axis that is not there,
  // kFailedPrecondition while the rank is not known.
  const Dim& operator[](int axis) const { return dims_[Axis(axis)]; }
  Dim& operator[](int axis) { return dims_[Axis(axis)]; }
  const Dim& dim(int axis) const { return dims_[Axis(axis)]; }
  int size() const { return rank(); }
  // Returns the shape. Error (kFailedPrecondition) unless every extent is known.
  Shape ToShape() const;
  // Returns the number of elements. Errors as for ToShape.
  int64_t numel() const { return ToShape().numel(); }
  // Returns the number of elements as an extent: a number, a bound, or unknown.
  Dim Elements() const;
  // False if `shape` has another rank, or an extent that is known to differ.
  bool Allows(const Shape& shape) const;
  // Returns the largest value of each extent; nothing if an extent has no bound, or if their
  // product exceeds int64.
  std::optional<Shape> Most() const;

  // Merges two descriptions of one shape, extent by extent. Returns nothing if they contradict each
  // other.
  static std::optional<SymbolicShape> Merge(const SymbolicShape& a, const SymbolicShape& b);

  friend bool operator==(const SymbolicShape&, const SymbolicShape&) = default;
  OPKIT_COLD friend std::string ToString(const SymbolicShape& shape) {
    return shape.has_rank_ ? StrCat(shape.dims_) : "[rank unknown]";
  }

 private:
  size_t Axis(int axis) const;
  std::vector<Dim> dims_;
  bool has_rank_ = false;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/symbolic_shape.ipp"
#endif

#endif  // OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

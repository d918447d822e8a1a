// Shape: the extents of a tensor, checked once when it is made (no negative extent, element count
// within int64). Dims: the small vector of int64 underneath, also used for strides.
#ifndef OPKIT_CORE_SHAPE_HPP_
#define OPKIT_CORE_SHAPE_HPP_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Anything contiguous that holds integers: vectors, spans, arrays.
template <class R>
concept IntegerRange = requires(const R& range) {
  requires std::is_integral_v<std::remove_cvref_t<decltype(*range.data())>>;
  requires sizeof(*range.data()) > 1;
  static_cast<size_t>(range.size());
};

OPKIT_COLD size_t IndexFromEnd(int64_t i, const int64_t* values, int size);
// Returns `i` counted from the front; a negative `i` counts from the end. Error (kOutOfRange) that
// prints `values`, the extents or strides.
inline size_t CheckedIndex(int64_t i, const int64_t* values, int size) {
  if (i >= 0 && i < size) [[likely]]
    return static_cast<size_t>(i);
  return IndexFromEnd(i, values, size);
}

}  // namespace detail

// A vector of int64 that allocates only beyond six entries.
class Dims {
 public:
  static constexpr int kInline = 6;

  Dims() {}  // not defaulted: a const object with a Dims member needs no initializer
  Dims(std::initializer_list<int64_t> values) { Assign(values.begin(), values.size()); }
  Dims(const int64_t* values, size_t count) { Assign(values, count); }
  template <detail::IntegerRange R>
    requires(!std::is_base_of_v<Dims, R>)
  Dims(const R& values) {
    const std::vector<int64_t> wide(values.data(), values.data() + values.size());
    Assign(wide.data(), wide.size());
  }
  Dims(const Dims& other) { Assign(other.data(), static_cast<size_t>(other.size_)); }
  Dims(Dims&& other) noexcept { Steal(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) Assign(other.data(), static_cast<size_t>(other.size_));
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept;
  ~Dims() { Free(); }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return size_ <= kInline ? inline_ : heap_; }
  int64_t* data() { return size_ <= kInline ? inline_ : heap_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  // A negative index counts from the end. Error (kOutOfRange) for an index outside the vector.
  int64_t operator[](int i) const { return data()[detail::CheckedIndex(i, data(), size_)]; }
  int64_t& operator[](int i) { return data()[detail::CheckedIndex(i, data(), size_)]; }

  OPKIT_COLD friend std::string ToString(const Dims& dims) {
    return StrCat(std::vector<int64_t>(dims.begin(), dims.end()));
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    const int64_t *x = a.data(), *y = b.data();
    for (int i = 0; i < a.size_ && a.size_ == b.size_; ++i)
      if (x[i] != y[i]) return false;
    return a.size_ == b.size_;
  }

 private:
  void Assign(const int64_t* values, size_t count);
// If Steal is not inlined, g++ 12 does not see that heap_ is always set before it is read.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
  void Steal(Dims& other);
  void Free() {
    if (size_ > kInline) delete[] heap_;
    size_ = 0;
  }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  int size_ = 0;
  union {
    int64_t inline_[kInline];
    int64_t* heap_;
  };
};

// Extents, outermost first. A scalar has rank 0 and one element.
class Shape {
 public:
  Shape() = default;
  Shape(const Shape&) = default;
  Shape(Shape&& other) noexcept
      : dims_(std::move(other.dims_)), numel_(std::exchange(other.numel_, 1)) {}
  Shape& operator=(const Shape&) = default;
  Shape& operator=(Shape&& other) noexcept {
    dims_ = std::move(other.dims_);
    numel_ = std::exchange(other.numel_, 1);
    return *this;
  }
  // Errors: kInvalidArgument for a negative extent, kOutOfRange when the element count exceeds
  // int64.
  Shape(std::initializer_list<int64_t> dims) : Shape(dims.begin(), dims.size()) {}
  Shape(const std::vector<int64_t>& dims) : Shape(dims.data(), dims.size()) {}
  Shape(const int64_t* dims, size_t rank) : Shape(Dims(dims, rank)) {}
  explicit Shape(Dims dims) : dims_(std::move(dims)), numel_(CountElements(dims_)) {}
  template <detail::IntegerRange R>
    requires(!std::is_base_of_v<Shape, R> && !std::is_base_of_v<Dims, R>)
  explicit Shape(const R& dims) : Shape(Dims(dims)) {}

  int rank() const { return dims_.size(); }
  int64_t numel() const { return numel_; }
  // Negative axes count from the end. Error (kOutOfRange) for an axis that does not exist.
  int64_t dim(int axis) const { return dims_[axis]; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int size() const { return dims_.size(); }
  const int64_t* begin() const { return dims_.begin(); }
  const int64_t* end() const { return dims_.end(); }
  const int64_t* data() const { return dims_.data(); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  // Returns `axis` counted from the front; a negative axis counts from the end. Error: kOutOfRange.
  int Axis(int64_t axis) const {
    return static_cast<int>(detail::CheckedIndex(axis, dims_.data(), rank()));
  }
  // Returns the product of the extents in [begin, end).
  int64_t NumelBetween(int begin, int end) const;
  // Returns the strides, in elements, of the row-major dense tensor of this shape.
  Dims DenseStrides() const;

  // True if `strides` place the elements as DenseStrides() does. Ignores strides of axes of extent
  // 1, and all strides of an empty tensor.
  bool IsDense(const Dims& strides) const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend std::string ToString(const Shape& shape) { return StrCat(shape.dims_); }

 private:
  // Counts the elements. The product of the non-zero extents must fit int64 even if another extent
  // is zero, because strides are such products.
  static int64_t CountElements(const Dims& dims);

  Dims dims_;
  int64_t numel_ = 1;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/shape.ipp"
#endif

#endif  // OPKIT_CORE_SHAPE_HPP_

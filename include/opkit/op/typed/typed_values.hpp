// The parameters of a typed operator: In, OptionalIn, Out and Attr. Each has its name in its type.
// A kernel's lambda can copy each of them, on any device.
#ifndef OPKIT_OP_TYPED_TYPED_VALUES_HPP_
#define OPKIT_OP_TYPED_TYPED_VALUES_HPP_

#include "opkit/base/fixed_name.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The extents of a dense tensor, for kernels.
class TypedExtents {
 public:
  static constexpr int kMaxRank = 8;

  OPKIT_HOST_DEVICE int64_t numel() const { return size_; }
  OPKIT_HOST_DEVICE int64_t size() const { return size_; }  // number of extents, for use as a range
  OPKIT_HOST_DEVICE int rank() const { return rank_; }
  // Returns an extent; negative axes count from the end. On the host throws kOutOfRange for an axis
  // that the tensor does not have.
  OPKIT_HOST_DEVICE int64_t dim(int axis) const {
#ifdef OPKIT_DEVICE_PASS
    return dims_[axis < 0 ? axis + rank_ : axis];
#else
    return dims_[CheckedIndex(axis, dims_, rank_)];
#endif
  }
  Shape shape() const { return Shape(dims_, Index(rank_)); }

  // Throws kUnsupported for a rank past kMaxRank.
  OPKIT_COLD void SetShape(const Shape& shape) {
    size_ = shape.numel();
    rank_ = shape.rank();
    if (rank_ > kMaxRank)
      Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
            ", found shape ", shape, "; merge axes with View first");
    for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
  }

 private:
  int64_t size_ = 0;
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

// A dense tensor for kernels: a pointer and the extents, row-major.
template <class T>
class TypedView : public TypedExtents {
 public:
  TypedView() = default;
  TypedView(T* data, const Shape& shape) : data_(data) { SetShape(shape); }
  TypedView(T* data, const TypedExtents& extents) : TypedExtents(extents), data_(data) {}

  OPKIT_HOST_DEVICE T* data() const { return data_; }
  // Element i in row-major order, unchecked.
  OPKIT_HOST_DEVICE T& operator[](int64_t i) const { return data_[i]; }
  OPKIT_HOST_DEVICE T* begin() const { return data_; }
  OPKIT_HOST_DEVICE T* end() const { return data_ + size(); }

 private:
  T* data_ = nullptr;
};

// The value of an attribute. A string, a tensor or a list is held by reference, so that a lambda's
// copy copies only a pointer.
template <class T, bool kHeld = !std::is_trivially_copyable_v<T>>
class AttrValue {
 public:
  AttrValue() = default;
  explicit AttrValue(T value) : value_(value) {}
  OPKIT_HOST_DEVICE const T& value() const { return value_; }

 private:
  T value_{};
};
template <class T>
class AttrValue<T, true> {
 public:
  AttrValue() = default;
  explicit AttrValue(T value) : held_(new Shared<T>(std::move(value))) {}
  explicit AttrValue(const IntrusivePtr<RefCounted>& held)  // a Shared<T>
      : held_(static_cast<const Shared<T>*>(held.get())) {}
  const T& value() const {
    static const T kNone{};
    return held_ ? held_->value : kNone;
  }

 private:
  IntrusivePtr<const Shared<T>> held_;
};

}  // namespace detail

// An input tensor of elements T. A strided tensor arrives as a dense copy.
template <detail::FixedName Name, Element T>
class In : public detail::TypedView<const T> {
 public:
  using value_type = T;
  using detail::TypedView<const T>::TypedView;
};

// An input that a node may leave out. A left-out input is false and empty.
template <detail::FixedName Name, Element T>
class OptionalIn : public In<Name, T> {
 public:
  OptionalIn() = default;
  OptionalIn(const T* data, const Shape& shape) : In<Name, T>(data, shape), present_(true) {}
  OptionalIn(const T* data, const detail::TypedExtents& extents)
      : In<Name, T>(data, extents), present_(true) {}
  OPKIT_HOST_DEVICE explicit operator bool() const { return present_; }

 private:
  bool present_ = false;
};

// An output tensor, allocated before the function is called, by the operator's shape rule.
template <detail::FixedName Name, Element T>
class Out : public detail::TypedView<T> {
 public:
  using value_type = T;
  using detail::TypedView<T>::TypedView;
};

// An attribute: an integer, floating-point number, bool, std::string, Tensor, or a std::vector of
// one of these. Converts to T; use value() if a template must deduce T. Required unless the
// operator gives it a default. Strings, tensors and lists are for host code; a copy of such an Attr
// shares them.
template <detail::FixedName Name, class T>
class Attr : public detail::AttrValue<T> {
 public:
  using value_type = T;
  using detail::AttrValue<T>::AttrValue;
  OPKIT_HOST_DEVICE operator const T&() const { return this->value(); }
};

}}  // namespace opkit

#endif  // OPKIT_OP_TYPED_TYPED_VALUES_HPP_

// The definitions of opkit/core/shape.hpp.
#ifndef OPKIT_CORE_IMPL_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SHAPE_IPP_

#include "opkit/core/shape.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

OPKIT_INLINE size_t IndexFromEnd(int64_t i, const int64_t* values, int size) {
  if (i < -size || i >= size)
    Throw(ErrorCode::kOutOfRange, "axis ", i, " is outside ", ToString(Dims(values, Index(size))),
          " of rank ", size);
  return Index(i < 0 ? i + size : i);
}

}  // namespace detail

OPKIT_INLINE Dims& Dims::operator=(Dims&& other) noexcept {
  if (this != &other) {
    Free();
    Steal(other);
  }
  return *this;
}

OPKIT_INLINE void Dims::Assign(const int64_t* values, size_t count) {
  int64_t* heap = count > kInline ? new int64_t[count] : nullptr;
  Free();
  size_ = static_cast<int>(count);
  if (heap) heap_ = heap;
  if (count) std::memcpy(data(), values, count * sizeof(int64_t));
}

OPKIT_INLINE void Dims::Steal(Dims& other) {
  size_ = other.size_;
  if (size_ > kInline)
    heap_ = other.heap_;
  else
    for (int i = 0; i < size_; ++i) inline_[i] = other.inline_[i];
  other.size_ = 0;
}

OPKIT_INLINE int64_t Shape::NumelBetween(int begin, int end) const {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= dims_[i];
  return product;
}

OPKIT_INLINE Dims Shape::DenseStrides() const {
  Dims strides = dims_;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= dims_[i] > 0 ? dims_[i] : 1;
  }
  return strides;
}

OPKIT_INLINE bool Shape::IsDense(const Dims& strides) const {
  if (strides.size() != rank()) return false;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0 && numel_ > 0; --i) {
    if (dims_[i] != 1 && strides[i] != step) return false;
    step *= dims_[i];
  }
  return true;
}

OPKIT_INLINE int64_t Shape::CountElements(const Dims& dims) {
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0)
      Throw(ErrorCode::kInvalidArgument, "shape ", dims, " has the negative extent ", dims[i],
            " at axis ", i);
    empty |= dims[i] == 0;
    if (dims[i] > 0 && __builtin_mul_overflow(count, dims[i], &count))
      Throw(ErrorCode::kOutOfRange, "shape ", dims,
            " has more elements than a 64-bit count can hold");
  }
  return empty ? 0 : count;
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SHAPE_IPP_

// The definitions of foreign_tensor.hpp.
#ifndef OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_
#define OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_

#include "opkit/device/copy.hpp"
#include "opkit/export/foreign_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowNoDType(int code, int bits, int lanes) {
  Throw(ErrorCode::kUnsupported, "a tensor of DLPack's type {code ", code, ", bits ", bits,
        ", lanes ", lanes, "}, which no dtype of opkit is");
}

inline bool IsAligned(const ForeignTensor& tensor) {
  const auto alignment =
      static_cast<uintptr_t>(ItemSize(tensor.dtype) / (IsComplex(tensor.dtype) ? 2 : 1));
  return reinterpret_cast<uintptr_t>(tensor.data) % alignment == 0;
}

inline Shape ShapeOf(const ForeignTensor& tensor) {
  return Shape(tensor.shape, static_cast<size_t>(tensor.rank));
}

// Copies all elements between two host tensors of one shape. Strides are in elements.
inline void CopyElements(char* to, const int64_t* to_strides, const char* from,
                         const int64_t* from_strides, const Shape& shape, int64_t item, int axis) {
  if (axis == shape.rank()) {
    std::memcpy(to, from, static_cast<size_t>(item));
    return;
  }
  for (int64_t i = 0; i < shape[axis]; ++i)
    CopyElements(to + i * to_strides[axis] * item, to_strides, from + i * from_strides[axis] * item,
                 from_strides, shape, item, axis + 1);
}

inline void CheckHostReaches(const ForeignTensor& tensor) {
  if (!IsHostAccessible(tensor.device.type))
    Throw(ErrorCode::kUnsupported, "a tensor on ", tensor.device,
          " has strides that are negative or leave gaps, or is not aligned; make it contiguous");
}

inline Tensor CopyOfForeign(const ForeignTensor& from, Shape shape) {
  CheckHostReaches(from);
  Tensor copy(std::move(shape), from.dtype);
  const Dims dense = copy.strides();
  CopyElements(static_cast<char*>(copy.raw_mutable_data()), dense.data(),
               static_cast<const char*>(from.data), from.strides ? from.strides : dense.data(),
               copy.shape(), ItemSize(from.dtype), 0);
  return copy;
}

// Moves an earlier view. Returns false if a new view is needed.
inline bool MoveView(const ForeignTensor& to, Tensor& view) {
  if (view.dtype() != to.dtype || view.rank() != to.rank || view.has_strides() ||
      view.device() != to.device || view.storage().use_count() != 1 ||
      !view.storage()->is_foreign())
    return false;
  const int64_t* extents = view.shape().data();
  for (int axis = 0; axis < to.rank; ++axis)
    if (extents[axis] != to.shape[axis]) return false;
  if (!to.is_dense() || !IsAligned(to) || (!to.data && view.numel() > 0)) return false;
  view.storage()->Rebind(to.data, view.nbytes());
  return true;
}

// Returns the number of bytes from the first element to the end of the last; -1 for strides that a
// Tensor cannot have.
inline int64_t SpanOf(const ForeignTensor& tensor, const Shape& shape, const Dims& strides) {
  if (strides.empty()) return Tensor::CheckedBytes(shape, tensor.dtype);
  int64_t last = 0, step = 0, bytes = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (strides[axis] < 0 || __builtin_mul_overflow(strides[axis], shape[axis] - 1, &step) ||
        __builtin_add_overflow(last, step, &last))
      return -1;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, ItemSize(tensor.dtype), &bytes))
    return -1;
  return bytes;
}

inline void MakeView(const ForeignTensor& from, Shape shape, Dims strides, int64_t bytes,
                     Tensor& view) {
  if (!from.data && bytes > 0)
    Throw(ErrorCode::kInvalidArgument, "a tensor ", from.dtype, shape, " has no data");
  view = Tensor(AdoptStorage(from.device, from.data, bytes), 0, std::move(shape), from.dtype,
                std::move(strides));
}

OPKIT_INLINE void ViewForeign(const ForeignTensor& from, Tensor& view) {
  if (MoveView(from, view)) [[likely]]
    return;
  Shape shape = ShapeOf(from);
  Dims strides;
  if (!from.is_dense()) {
    strides = Dims(from.strides, static_cast<size_t>(from.rank));
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == 1) strides[axis] = 0;  // unused; may have any value
  }
  const int64_t bytes = SpanOf(from, shape, strides);
  if (bytes < 0 || !IsAligned(from))
    view = CopyOfForeign(from, std::move(shape));
  else
    MakeView(from, std::move(shape), std::move(strides), bytes, view);
}

OPKIT_INLINE bool ViewForeignOutput(const ForeignTensor& to, Tensor& view) {
  if (MoveView(to, view)) [[likely]]
    return true;
  if (!to.is_dense() || !IsAligned(to)) {
    CheckHostReaches(to);
    view = Tensor(to.device);
    return false;
  }
  Shape shape = ShapeOf(to);
  const int64_t bytes = Tensor::CheckedBytes(shape, to.dtype);
  MakeView(to, std::move(shape), {}, bytes, view);
  return true;
}

OPKIT_INLINE void EndView(Tensor& view) noexcept {
  const Storage& storage = view.storage();
  if (!storage) return;
  if (storage.use_count() == 1 && storage->is_foreign())
    storage->Rebind(nullptr, 0);
  else
    view = Tensor();
}

OPKIT_INLINE void CopyToForeign(const Tensor& from, const ForeignTensor& to) {
  if (from.numel() == 0) return;
  if (to.is_dense()) {
    const Device device = MemoryDevice(to.device);
    const Tensor dense = from.is_dense() ? from : from.Contiguous();
    const CopyFunction copy = FindCopy(dense.device().type, device.type);
    if (!copy)
      Throw(ErrorCode::kUnsupported, "nothing copies a result from ", from.device(), " to ",
            to.device);
    copy(to.data, device, dense.raw_data(), dense.device(), dense.nbytes(), nullptr);
    return;
  }
  CheckHostReaches(to);
  const Dims strides = from.strides();
  CopyElements(static_cast<char*>(to.data), to.strides, static_cast<const char*>(from.raw_data()),
               strides.data(), from.shape(), ItemSize(from.dtype()), 0);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_

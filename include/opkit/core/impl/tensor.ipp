// The definitions of opkit/core/tensor.hpp.
#ifndef OPKIT_CORE_IMPL_TENSOR_IPP_
#define OPKIT_CORE_IMPL_TENSOR_IPP_

#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of bytes of an element that is a C++ object.
constexpr int64_t ObjectBytes(DType dtype) {
  return static_cast<int64_t>(dtype == DType::kString ? sizeof(std::string) : sizeof(Tensor));
}
// True at the begin of an object, and for elements that are not objects.
constexpr bool IsAtObject(DType dtype, int64_t byte_offset) {
  return !IsObject(dtype) || byte_offset % ObjectBytes(dtype) == 0;
}
// Counts the bytes of `count` neighbouring elements; false if 64 bits cannot count them.
inline bool CountDenseBytes(int64_t count, DType dtype, int64_t* bytes) {
  if (IsPacked(dtype)) {
    *bytes = BytesOf(count, dtype);
    return true;
  }
  return !__builtin_mul_overflow(count, IsObject(dtype) ? ObjectBytes(dtype) : ItemSize(dtype),
                                 bytes);
}

template <class T>
Storage AllocateObjectsOf(Device device, DType dtype, int64_t count, int64_t nbytes) {
  T* objects = nullptr;
  try {
    objects = new T[Index(count)];
    return AdoptStorage(
        device, objects, nbytes, [](void* data, void*) { delete[] static_cast<T*>(data); }, nullptr,
        dtype);
  } catch (const std::bad_alloc&) {
    delete[] objects;
    Throw(ErrorCode::kOutOfMemory, "no memory for ", count, " elements of ", dtype);
  }
}
// Allocates and constructs elements of string, sequence or optional. Errors: kUnsupported on
// another device than the CPU, kOutOfMemory.
inline Storage AllocateObjects(Device device, DType dtype, int64_t count, int64_t nbytes) {
  if (device.type != DeviceType::kCPU)
    Throw(ErrorCode::kUnsupported, "elements of ", dtype, " are on the cpu only");
  return dtype == DType::kString ? AllocateObjectsOf<std::string>(device, dtype, count, nbytes)
                                 : AllocateObjectsOf<Tensor>(device, dtype, count, nbytes);
}
// Returns the dtype for StorageBlock::objects().
constexpr DType ObjectsOf(DType dtype) { return IsObject(dtype) ? dtype : DType::kUndefined; }
// Throws kTypeMismatch for a view of bytes as objects, of objects as bytes, or of other objects.
inline void CheckViewOf(const StorageBlock& storage, DType dtype, bool at_object) {
  if (storage.objects() == ObjectsOf(dtype) && (at_object || !IsObject(dtype))) [[likely]]
    return;
  Throw(ErrorCode::kTypeMismatch, "memory of ",
        storage.objects() == DType::kUndefined ? "plain elements" : ToString(storage.objects()),
        " cannot be viewed as ", dtype, at_object ? "" : " from the middle of an element on");
}

OPKIT_INLINE void CopyObjects(DType dtype, void* to, const void* from, int64_t count) {
  if (to == from) return;
  const auto copy = [count](auto* target, const auto* source) {
    for (int64_t i = 0; i < count; ++i) target[i] = source[i];
  };
  if (dtype == DType::kString)
    copy(static_cast<std::string*>(to), static_cast<const std::string*>(from));
  else
    copy(static_cast<Tensor*>(to), static_cast<const Tensor*>(from));
}

}  // namespace detail

OPKIT_INLINE Tensor::Tensor(const Tensor&) = default;
OPKIT_INLINE Tensor& Tensor::operator=(const Tensor&) = default;
OPKIT_INLINE Tensor::~Tensor() = default;

OPKIT_INLINE Tensor::Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype,
                            Dims strides)
    : storage_(std::move(storage)),
      byte_offset_(byte_offset),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      dtype_(dtype) {
  if (!storage_ || dtype == DType::kUndefined || !IsDType(dtype))
    Throw(ErrorCode::kInvalidArgument, "a view ", dtype, shape_, " needs ",
          storage_ ? "a dtype" : "a storage");
  static_cast<void>(MemoryBytes(shape_, dtype));
  detail::CheckViewOf(*storage_, dtype, detail::IsAtObject(dtype, byte_offset));
  device_ = storage_->device();
  if (shape_.IsDense(strides_)) strides_ = Dims();
  const int64_t needed = ViewBytes();
  if (byte_offset < 0 || needed < 0 || byte_offset > storage_->nbytes() - needed)
    Throw(ErrorCode::kOutOfRange, "a view ", dtype, shape_, " with strides", strides_, " at byte ",
          byte_offset, " does not fit in its storage of ", storage_->nbytes(), " bytes");
  if (strides_.empty()) capacity_ = needed;
}

OPKIT_INLINE void Tensor::Resize(Shape shape, DType dtype) {
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kInvalidArgument, "Resize to ", shape, " needs a dtype");
  if (!Fits(shape, dtype)) TakeMemory(NewMemory(shape, dtype));
  shape_ = std::move(shape);
  dtype_ = dtype;
  strides_ = Dims();
  layout_ = Layout();
}

OPKIT_INLINE void Tensor::ReleaseMemory() {
  storage_ = Storage();
  byte_offset_ = capacity_ = 0;
  strides_ = Dims();
}

OPKIT_INLINE void Tensor::ReserveSpace(int64_t outer) {
  if (rank() == 0 || dtype_ == DType::kUndefined)
    Fail(ErrorCode::kFailedPrecondition, "ReserveSpace needs a dtype and an outer dimension");
  CheckStandard("ReserveSpace");
  if (outer <= shape_[0]) return;
  Dims dims(shape_);
  dims[0] = outer;
  const Shape reserved(std::move(dims));
  if (is_dense() && Fits(reserved, dtype_)) return;
  CheckHost();
  Storage bigger = NewMemory(reserved, dtype_);
  CopyElementsTo(static_cast<char*>(bigger->data()));
  TakeMemory(std::move(bigger));
  strides_ = Dims();
}

OPKIT_INLINE void Tensor::ShareData(const Tensor& source) {
  source.CheckInitialized();
  source.CheckStandard("ShareData");
  if (numel() != source.numel())
    Fail(ErrorCode::kInvalidArgument, "ShareData needs equal element counts, but the source is ",
         source);
  if (!source.is_dense())
    Fail(ErrorCode::kInvalidArgument, "ShareData needs a dense source, but it has strides");
  Tensor shared = source;
  shared.shape_ = shape_;
  shared.strides_ = Dims();
  *this = std::move(shared);
}

OPKIT_INLINE void Tensor::CopyFrom(const Tensor& source) {
  if (&source == this) return;
  source.CheckInitialized();
  source.CheckHost();
  source.CheckStandard("CopyFrom");
  CheckHost();
  Tensor target = CopyDestination(source);
  source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
  *this = std::move(target);
}

OPKIT_INLINE Tensor Tensor::CopyDestination(const Tensor& source) const {
  Tensor target = *this;
  if (Fits(source.shape_, source.dtype_)) {
    target.Resize(source.shape_, source.dtype_);
    if (!target.SharesMemoryWith(source)) return target;
  }
  target.TakeMemory(NewMemory(source.shape_, source.dtype_));
  target.Resize(source.shape_, source.dtype_);
  return target;
}

OPKIT_INLINE Tensor Tensor::Contiguous() const {
  if (detail::g_contiguous_on_device && !IsHostAccessible(device_.type))
    return detail::g_contiguous_on_device(*this);
  Tensor out(device_);
  out.CopyFrom(*this);
  return out;
}

OPKIT_INLINE Tensor Tensor::View(const Dims& dims) const {
  CheckInitialized();
  if (!is_dense() || !layout_.is_standard())
    Fail(ErrorCode::kInvalidArgument, "View needs a dense tensor; call Contiguous() first");
  Dims resolved = dims;
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < resolved.size(); ++i)
    if (resolved[i] == -1 && unknown < 0)
      unknown = i;
    else if (__builtin_mul_overflow(known, resolved[i], &known))
      known = -1;
  if (unknown >= 0 && known > 0) resolved[unknown] = numel() / known;
  const bool open = unknown >= 0 && known == 0;
  Shape shape = open ? Shape{0} : Shape(std::move(resolved));
  if (open || shape.numel() != numel())
    Fail(ErrorCode::kInvalidArgument, "cannot be viewed as shape ", dims);
  Tensor out = *this;
  out.shape_ = std::move(shape);
  out.strides_ = Dims();
  return out;
}

OPKIT_INLINE Tensor Tensor::Slice(int axis, int64_t begin, int64_t end) const {
  CheckInitialized();
  CheckStandard("Slice");
  axis = shape_.Axis(axis);
  if (begin < 0 || end < begin || end > shape_[axis])
    Fail(ErrorCode::kOutOfRange, "slice [", begin, ", ", end, ") is outside axis ", axis);
  Tensor out = *this;
  Dims dims(shape_);
  dims[axis] = end - begin;
  out.shape_ = Shape(std::move(dims));
  const int64_t first = out.numel() > 0 ? begin * strides()[axis] : 0;
  out.strides_ = strides();
  if (out.shape_.IsDense(out.strides_)) out.strides_ = Dims();
  if (IsPacked(dtype_)) {
    const int64_t in_a_byte = 8 / BitSize(dtype_), last = first + out.numel();
    if (out.has_strides() || first % in_a_byte != 0 || (last % in_a_byte != 0 && last != numel()))
      Fail(ErrorCode::kUnsupported, "slice [", begin, ", ", end, ") of axis ", axis,
           " is no run of whole bytes; cast the tensor to a type of 8 bits first");
    out.byte_offset_ += first / in_a_byte;
  } else {
    out.byte_offset_ += first * ElementBytes(dtype_);
  }
  out.capacity_ = out.strides_.empty() ? out.SpanBytes() : 0;
  return out;
}

OPKIT_INLINE Tensor Tensor::Permute(const Dims& order) const {
  CheckInitialized();
  CheckStandard("Permute");
  if (order.size() != rank())
    Fail(ErrorCode::kInvalidArgument, "Permute needs ", rank(), " axes, found ", order.size());
  const Dims old_strides = strides();
  Dims dims = order, steps = order;
  for (int i = 0; i < order.size(); ++i) {
    const int axis = shape_.Axis(order[i]);
    for (int j = 0; j < i; ++j)
      if (shape_.Axis(order[j]) == axis)
        Fail(ErrorCode::kInvalidArgument, "Permute names axis ", axis, " twice");
    dims[i] = shape_[axis];
    steps[i] = old_strides[axis];
  }
  Tensor out = *this;
  out.shape_ = Shape(std::move(dims));
  out.strides_ = std::move(steps);
  if (!IsPacked(dtype_)) return out;
  if (!out.shape_.IsDense(out.strides_))
    Fail(ErrorCode::kUnsupported, "cannot have its axes in the order ", order,
         " without a copy; cast it to a type of 8 bits first");
  out.strides_ = Dims();
  return out;
}

OPKIT_INLINE bool Tensor::SpansOverlap(const Tensor& other) const {
  if (numel() == 0 || other.numel() == 0) return false;
  const auto* a = static_cast<const char*>(raw_data());
  const auto* b = static_cast<const char*>(other.raw_data());
  if (MemoryDevice(device_) != MemoryDevice(other.device_)) return false;
  return a < b + other.SpanBytes() && b < a + SpanBytes();
}

OPKIT_INLINE Tensor Tensor::FromLayout(Storage storage, Shape shape, DType dtype, Layout layout,
                                       int64_t byte_offset, int64_t bytes) {
  Tensor out(storage->device());
  static_cast<void>(MemoryBytes(shape, dtype));
  if (IsPacked(dtype) && !layout.is_standard())
    Throw(ErrorCode::kUnsupported, "elements of ", dtype, " are packed, and the layout '", layout,
          "' is for whole bytes");
  if (dtype != DType::kUndefined)
    detail::CheckViewOf(*storage, dtype,
                        layout.is_standard() && detail::IsAtObject(dtype, byte_offset));
  if (bytes < 0) bytes = storage->nbytes() - byte_offset;
  if (byte_offset < 0 || bytes < 0 || byte_offset > storage->nbytes() - bytes)
    Throw(ErrorCode::kOutOfRange, bytes, " bytes behind ", byte_offset,
          " do not fit in a storage of ", storage->nbytes());
  out.byte_offset_ = byte_offset;
  out.capacity_ = bytes;
  out.storage_ = std::move(storage);
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.layout_ = std::move(layout);
  return out;
}

OPKIT_INLINE void Tensor::SetDevice(Device device) {
  if (storage_ && MemoryDevice(device) != MemoryDevice(device_))
    Fail(ErrorCode::kInvalidArgument, "cannot be moved to ", device,
         " without a copy; use CopyFrom or device/copy.hpp");
  device_ = device;
}

OPKIT_INLINE std::string ToString(const Tensor& tensor) {
  std::string out = StrCat(tensor.dtype_, tensor.shape_, " on ", tensor.device_);
  if (!tensor.layout_.is_standard()) out += StrCat(" in ", tensor.layout_);
  if (!tensor.is_dense()) out += StrCat(" with strides", tensor.strides_);
  if (!tensor.initialized()) out += " (uninitialized)";
  return out;
}

OPKIT_INLINE int64_t Tensor::CheckedBytes(const Shape& shape, DType dtype) {
  int64_t nbytes = 0;
  if (!IsDType(dtype)) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, "there is no dtype of number ", static_cast<int>(dtype));
  if (dtype == DType::kUndefined) return 0;
  if (BitSize(dtype) == 0) [[unlikely]]
    Throw(ErrorCode::kUnsupported, "a tensor cannot hold elements of ", dtype);
  if (!detail::CountDenseBytes(shape.numel(), dtype, &nbytes))
    Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, shape,
          " has more bytes than a 64-bit count can hold");
  return nbytes;
}

OPKIT_INLINE int64_t Tensor::ElementBytes(DType dtype) {
  return IsObject(dtype) ? detail::ObjectBytes(dtype) : ItemSize(dtype);
}

OPKIT_INLINE int64_t Tensor::MemoryBytes(const Shape& shape, DType dtype) {
  if (!IsObject(dtype)) return CheckedBytes(shape, dtype);
  int64_t nbytes = 0;
  if (!detail::CountDenseBytes(shape.numel(), dtype, &nbytes))
    Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, shape,
          " has more bytes than a 64-bit count can hold");
  return nbytes;
}

OPKIT_INLINE void Tensor::FailJoined(ErrorCode code,
                                     std::initializer_list<detail::Text> parts) const {
  throw Error(code, StrCat("tensor ", *this, ": ", detail::Join(parts)), this);
}

OPKIT_INLINE void Tensor::FailToAccess(DType wanted, const char* advice) const {
  CheckInitialized();
  Fail(ErrorCode::kTypeMismatch, "accessed as ", wanted, " but holds ", dtype_, advice);
}

OPKIT_INLINE bool Tensor::Fits(const Shape& shape, DType dtype) const {
  if (storage_ && storage_->objects() != detail::ObjectsOf(dtype)) return false;
  int64_t nbytes = 0;
  if (!IsDType(dtype) || !detail::CountDenseBytes(shape.numel(), dtype, &nbytes) ||
      nbytes > capacity_ || (!storage_ && nbytes > 0))
    return false;
  if (IsObject(dtype)) return detail::IsAtObject(dtype, byte_offset_);
  const int64_t alignment = IsPacked(dtype) ? 1 : ItemSize(dtype);
  return (byte_offset_ & (alignment - 1)) == 0;  // else its elements would be misaligned
}

OPKIT_INLINE Storage Tensor::NewMemory(const Shape& shape, DType dtype) const {
  try {
    const int64_t nbytes = MemoryBytes(shape, dtype);
    if (IsObject(dtype)) [[unlikely]]
      return detail::AllocateObjects(MemoryDevice(device_), dtype, shape.numel(), nbytes);
    return AllocateStorage(MemoryDevice(device_), nbytes);
  } catch (const Error& error) {
    Fail(error.code(), "cannot become ", dtype, shape, ": ", error.message());
  }
}

OPKIT_INLINE void Tensor::TakeMemory(Storage storage) {
  capacity_ = storage->nbytes();
  storage_ = std::move(storage);
  byte_offset_ = 0;
}

OPKIT_INLINE int64_t Tensor::SpanBytes() const {
  if (!layout_.is_standard()) return capacity_;
  if (numel() == 0) return 0;
  if (strides_.empty()) return MemoryBytes(shape_, dtype_);
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
  return (last + 1) * ElementBytes(dtype_);
}

OPKIT_INLINE int64_t Tensor::ViewBytes() const {
  if (strides_.empty()) return MemoryBytes(shape_, dtype_);
  if (IsPacked(dtype_))
    Throw(ErrorCode::kUnsupported, "elements of ", dtype_,
          " are packed and cannot have the strides ", strides_, " in the shape ", shape_);
  if (strides_.size() != rank()) return -1;
  if (numel() == 0) return 0;
  int64_t end = 1, step = 0;
  for (int i = 0; i < rank(); ++i)
    if (strides_[i] < 0 || __builtin_mul_overflow(shape_[i] - 1, strides_[i], &step) ||
        __builtin_add_overflow(end, step, &end))
      return -1;
  return __builtin_mul_overflow(end, ElementBytes(dtype_), &end) ? -1 : end;
}

OPKIT_INLINE void Tensor::CopyElementsTo(char* out) const {
  const char* base = static_cast<const char*>(raw_data());
  if (numel() == 0) return;
  if (is_dense()) {
    if (IsObject(dtype_))
      detail::CopyObjects(dtype_, out, base, numel());
    else
      std::memcpy(out, base, static_cast<size_t>(nbytes()));
    return;
  }
  const auto item = static_cast<size_t>(ElementBytes(dtype_));
  Dims index(shape_);
  for (int i = 0; i < rank(); ++i) index[i] = 0;
  for (int64_t n = numel(); n > 0; --n, out += item) {
    int64_t offset = 0;
    for (int i = 0; i < rank(); ++i) offset += index[i] * strides_[i];
    const char* const from = base + offset * static_cast<int64_t>(item);
    if (IsObject(dtype_))
      detail::CopyObjects(dtype_, out, from, 1);
    else
      std::memcpy(out, from, item);
    for (int i = rank() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
  }
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_TENSOR_IPP_

// Tensor: dtype, shape, strides, device and layout over a Storage and a byte offset. Copying a
// Tensor is cheap and shares its bytes; CopyFrom copies them. What every operator reads and writes.
#ifndef OPKIT_CORE_TENSOR_HPP_
#define OPKIT_CORE_TENSOR_HPP_

#include <cstring>
#include <initializer_list>
#include <utility>

#include "opkit/core/dtype.hpp"
#include "opkit/core/layout.hpp"
#include "opkit/core/shape.hpp"
#include "opkit/core/storage.hpp"

namespace opkit::inline OPKIT_ABI {

// Regular: a copy shares the storage, but has a shape and dtype of its own. Not synchronised; reads
// from several threads are fine. Every member either succeeds or throws an Error and leaves the
// tensor as it was.
//
//   Tensor x({2, 3}, DType::kFloat32);            // allocated, contents undefined
//   Tensor y = Tensor::From<float>({2}, {1, 2});
//   x.mutable_data<float>()[0] = y.data<float>()[1];
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Device device) : device_(device) {}
  // Errors: kInvalidArgument for an undefined dtype, kOutOfRange for sizes past int64,
  // kOutOfMemory.
  Tensor(Shape shape, DType dtype, Device device = {}) : device_(device) {
    Resize(std::move(shape), dtype);
  }
  // Views `storage` from `byte_offset` on; `strides` in elements, none negative, empty for dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {})
      : storage_(std::move(storage)),
        byte_offset_(byte_offset),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        dtype_(dtype) {
    if (!storage_ || dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "a view ", dtype, ToString(shape_), " needs ",
            storage_ ? "a dtype" : "a storage");
    device_ = storage_->device();
    const int64_t needed = ViewBytes();
    if (byte_offset < 0 || needed < 0 || byte_offset > storage_->nbytes() - needed)
      Throw(ErrorCode::kOutOfRange, "a view ", dtype, ToString(shape_), " with strides",
            ToString(strides_), " at byte ", byte_offset, " does not fit in its storage of ",
            storage_->nbytes(), " bytes");
    if (shape_.IsDense(strides_)) strides_ = Dims();
    if (strides_.empty()) capacity_ = needed;
  }

  // A copy of `values` on the CPU, row-major. Error (kInvalidArgument) when the counts differ.
  template <Element T>
  static Tensor From(Shape shape, std::initializer_list<T> values) {
    return From(std::move(shape), values.begin(), values.size());
  }
  template <Element T>
  static Tensor From(Shape shape, const T* values, size_t count) {
    if (static_cast<int64_t>(count) != shape.numel())
      Throw(ErrorCode::kInvalidArgument, "shape ", shape, " holds ", shape.numel(),
            " elements, but ", count, " values were given");
    Tensor out(std::move(shape), kDTypeOf<T>);
    if (count) std::memcpy(out.raw_mutable_data(), values, count * sizeof(T));
    return out;
  }
  // A vector, span or array of T.
  template <Element T, class Range>
    requires requires(const Range& range) {
      { range.data() } -> std::convertible_to<const T*>;
      range.size();
    }
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <class Range>
    requires Element<typename Range::value_type>
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <Element T>
  static Tensor Scalar(T value) {
    return From<T>({}, {value});
  }
  // Memory of the caller's, which must outlive every tensor that shares it. Throws where it is null
  // and the shape has elements.
  template <Element T>
  static Tensor FromExternal(T* data, Shape shape, Device device = {}) {
    Tensor out(device);
    const int64_t nbytes = CheckedBytes(shape, kDTypeOf<T>);
    if (data == nullptr && nbytes > 0)
      Throw(ErrorCode::kInvalidArgument, "expected memory for ", ToString(shape), " of ",
            ToString(kDTypeOf<T>), ", found a null pointer");
    out.storage_ = AdoptStorage(device, const_cast<std::remove_const_t<T>*>(data), nbytes);
    out.shape_ = std::move(shape);
    out.dtype_ = kDTypeOf<T>;
    out.capacity_ = nbytes;
    return out;
  }

  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t nbytes() const { return numel() * ItemSize(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Layout& layout() const { return layout_; }
  const Storage& storage() const { return storage_; }
  int64_t byte_offset() const { return byte_offset_; }
  // Bytes that Resize can use without new memory; 0 where strides leave gaps that are not ours.
  int64_t capacity() const { return capacity_; }
  // In elements.
  Dims strides() const { return strides_.empty() ? shape_.DenseStrides() : strides_; }
  bool is_dense() const { return strides_.empty() || shape_.IsDense(strides_); }
  // Elements of this dtype and shape at this place, dense and in the standard layout.
  bool Is(const void* data, DType dtype, const int64_t* extents, int rank) const {
    if (raw_data() != data || dtype_ != dtype || !strides_.empty() || !layout_.is_standard() ||
        shape_.rank() != rank)
      return false;
    const int64_t* own = shape_.data();
    for (int axis = 0; axis < rank; ++axis)
      if (own[axis] != extents[axis]) return false;
    return true;
  }
  // Has a dtype and memory, so that it may be read.
  bool initialized() const { return dtype_ != DType::kUndefined && (storage_ || numel() == 0); }

  // Pointer to the first element; elements follow `strides()`. Errors: kTypeMismatch for another
  // T, kUninitialized.
  template <Element T>
  const T* data() const {
    CheckReadable(kDTypeOf<T>);
    return static_cast<const T*>(raw_data());
  }
  // As data(); a tensor that has no dtype yet takes T and is allocated.
  template <Element T>
  T* mutable_data() {
    if (dtype_ == DType::kUndefined) Resize(shape_, kDTypeOf<T>);
    CheckReadable(kDTypeOf<T>);
    return static_cast<T*>(raw_mutable_data());
  }
  const void* raw_data() const { return raw_mutable_data(); }
  void* raw_mutable_data() const {
    return storage_ ? static_cast<char*>(storage_->data()) + byte_offset_ : nullptr;
  }
  // The elements in row-major order. Host tensors only.
  template <Element T>
  std::vector<T> ToVector() const {
    CheckReadable(kDTypeOf<T>);
    CheckStandard("ToVector");
    CheckHost();
    const Tensor dense = is_dense() ? *this : Contiguous();
    const T* values = dense.data<T>();
    return std::vector<T>(values, values + numel());
  }

  // A new shape; keeps the dtype. Memory is kept when it is large enough, so shrinking and growing
  // back costs nothing; otherwise the tensor takes new memory, its contents are undefined, and
  // whoever shares the old memory keeps it. Without a dtype only the shape is set.
  void Resize(Shape shape) {
    if (dtype_ != DType::kUndefined) return Resize(std::move(shape), dtype_);
    shape_ = std::move(shape);
  }
  void Resize(Shape shape, DType dtype) {
    if (dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "Resize to ", ToString(shape), " needs a dtype");
    if (!Fits(shape, dtype)) TakeMemory(NewMemory(shape, dtype));
    shape_ = std::move(shape);
    dtype_ = dtype;
    strides_ = Dims();
    layout_ = Layout();
  }
  // Memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer) {
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
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source) {
    source.CheckInitialized();
    source.CheckStandard("ShareData");
    if (numel() != source.numel())
      Fail(ErrorCode::kInvalidArgument, "ShareData needs equal element counts, but the source is ",
           source.Describe());
    if (!source.is_dense())
      Fail(ErrorCode::kInvalidArgument, "ShareData needs a dense source, but it has strides");
    Tensor shared = source;
    shared.shape_ = shape_;
    shared.strides_ = Dims();
    *this = std::move(shared);
  }

  // A dense copy of the source's elements in this tensor's own memory and device, both reachable
  // from the host (device/copy.hpp crosses devices).
  void CopyFrom(const Tensor& source) {
    if (&source == this) return;
    source.CheckInitialized();
    source.CheckHost();
    source.CheckStandard("CopyFrom");
    CheckHost();
    Tensor target = PreparedFor(source);
    source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
    *this = std::move(target);
  }
  // What a copy of `source` writes to: this tensor resized, or new memory of its device where the
  // two overlap. This tensor stays as it is.
  Tensor PreparedFor(const Tensor& source) const {
    Tensor target = *this;
    if (Fits(source.shape_, source.dtype_)) {
      target.Resize(source.shape_, source.dtype_);
      if (!target.SharesMemoryWith(source)) return target;
    }
    target.TakeMemory(NewMemory(source.shape_, source.dtype_));
    target.Resize(source.shape_, source.dtype_);
    return target;
  }
  // A dense tensor with memory of its own.
  Tensor Contiguous() const {
    Tensor out(device_);
    out.CopyFrom(*this);
    return out;
  }

  // The same memory under another shape of equal element count. One extent may be -1.
  Tensor View(const Dims& dims) const {
    CheckInitialized();
    if (!is_dense() || !layout_.is_standard())
      Fail(ErrorCode::kInvalidArgument, "View needs a dense tensor; call Contiguous() first");
    Dims resolved = dims;
    int64_t known = 1;
    int unknown = -1;
    for (int i = 0; i < resolved.size(); ++i) {
      if (resolved[i] == -1 && unknown < 0) {
        unknown = i;
      } else if (__builtin_mul_overflow(known, resolved[i], &known)) {
        known = -1;
      }
    }
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
  // Elements [begin, end) of `axis`, sharing memory. Resizing a slice never reaches beyond it.
  Tensor Slice(int axis, int64_t begin, int64_t end) const {
    CheckInitialized();
    CheckStandard("Slice");
    axis = shape_.Axis(axis);
    if (begin < 0 || end < begin || end > shape_[axis])
      Fail(ErrorCode::kOutOfRange, "slice [", begin, ", ", end, ") is outside axis ", axis);
    Tensor out = *this;
    Dims dims(shape_);
    dims[axis] = end - begin;
    out.shape_ = Shape(std::move(dims));
    if (out.numel() > 0) out.byte_offset_ += begin * strides()[axis] * ItemSize(dtype_);
    out.strides_ = strides();
    if (out.shape_.IsDense(out.strides_)) out.strides_ = Dims();
    out.capacity_ = out.strides_.empty() ? out.SpanBytes() : 0;
    return out;
  }
  // The same memory with its axes in another order: axis i of the result is axis order[i] of this.
  Tensor Permute(const Dims& order) const {
    CheckInitialized();
    CheckStandard("Permute");
    if (order.size() != rank())
      Fail(ErrorCode::kInvalidArgument, "Permute needs ", rank(), " axes, found ", order.size());
    const Dims old_strides = strides();
    Dims dims = order, steps = order;
    for (int i = 0; i < order.size(); ++i) {
      const int axis = shape_.Axis(static_cast<int>(order[i]));
      for (int j = 0; j < i; ++j)
        if (shape_.Axis(static_cast<int>(order[j])) == axis)
          Fail(ErrorCode::kInvalidArgument, "Permute names axis ", axis, " twice");
      dims[i] = shape_[axis];
      steps[i] = old_strides[axis];
    }
    Tensor out = *this;
    out.shape_ = Shape(std::move(dims));
    out.strides_ = std::move(steps);
    return out;
  }

  // True when the bytes from the first to the last element overlap those of `other`.
  bool SharesMemoryWith(const Tensor& other) const {
    if (!storage_ || !other.storage_ || numel() == 0 || other.numel() == 0) return false;
    if (storage_ != other.storage_ && storage_->IsApartFrom(*other.storage_)) return false;
    const auto* a = static_cast<const char*>(raw_data());
    const auto* b = static_cast<const char*>(other.raw_data());
    if (MemoryDevice(device_) != MemoryDevice(other.device_)) return false;
    return a < b + other.SpanBytes() && b < a + SpanBytes();
  }

  // For backends whose layout needs other sizes than the dense one: `storage` of any size under a
  // blocked layout.
  static Tensor FromLayout(Storage storage, Shape shape, DType dtype, Layout layout) {
    Tensor out(storage->device());
    out.capacity_ = storage->nbytes();
    out.storage_ = std::move(storage);
    out.shape_ = std::move(shape);
    out.dtype_ = dtype;
    out.layout_ = std::move(layout);
    return out;
  }
  // The same memory on another device that can reach it (cpu and cpu_stream).
  void SetDevice(Device device) {
    if (storage_ && MemoryDevice(device) != MemoryDevice(device_))
      Fail(ErrorCode::kInvalidArgument, "cannot be moved to ", ToString(device),
           " without a copy; use CopyFrom or device/copy.hpp");
    device_ = device;
  }

  // "float32[2, 3] on cpu", with the layout or strides where they are not the plain ones.
  OPKIT_COLD std::string Describe() const {
    std::string out = StrCat(dtype_, ToString(shape_), " on ", ToString(device_));
    if (!layout_.is_standard()) out += " in " + ToString(layout_);
    if (!is_dense()) out += " with strides" + ToString(strides_);
    if (!initialized()) out += " (uninitialized)";
    return out;
  }
  friend std::string ToString(const Tensor& tensor) { return tensor.Describe(); }

  // Bytes of `shape` elements of `dtype`. Error (kOutOfRange) past int64.
  static int64_t CheckedBytes(const Shape& shape, DType dtype) {
    int64_t nbytes = 0;
    if (__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes))
      Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, ToString(shape),
            " has more bytes than a 64-bit count can hold");
    return nbytes;
  }

 private:
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Text& a, const Text& b = {},
                                    const Text& c = {}, const Text& d = {}, const Text& e = {},
                                    const Text& f = {}) const {
    throw Error(code, StrCat("tensor ", Describe(), ": ", a, b, c, d, e, f), this);
  }
  void CheckInitialized() const {
    if (!initialized()) [[unlikely]]
      Fail(ErrorCode::kUninitialized, "is read before anything was written to it");
  }
  void CheckReadable(DType wanted) const {
    if (dtype_ == wanted && (storage_ || numel() == 0)) [[likely]]
      return;
    CheckInitialized();
    Fail(ErrorCode::kTypeMismatch, "accessed as ", wanted, " but holds ", dtype_,
         "; to write another dtype call Resize(shape, dtype) first");
  }
  void CheckStandard(const char* what) const {
    if (!layout_.is_standard()) [[unlikely]]
      Fail(ErrorCode::kUnsupported, what, " needs the standard layout; convert first");
  }
  bool Fits(const Shape& shape, DType dtype) const {
    int64_t nbytes = 0;
    return !__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes) &&
           nbytes <= capacity_ && (storage_ || nbytes == 0) &&
           (byte_offset_ & (ItemSize(dtype) - 1)) == 0;  // else its elements would lie askew
  }
  Storage NewMemory(const Shape& shape, DType dtype) const {
    try {
      return AllocateStorage(MemoryDevice(device_), CheckedBytes(shape, dtype));
    } catch (const Error& error) {
      Fail(error.code(), "cannot become ", dtype, ToString(shape), ": ", error.message());
    }
  }
  void TakeMemory(Storage storage) {
    capacity_ = storage->nbytes();
    storage_ = std::move(storage);
    byte_offset_ = 0;
  }
  void CheckHost() const {
    if (!IsHostAccessible(device_.type))
      Fail(ErrorCode::kUnsupported, "is not reachable from the host; use device/copy.hpp");
  }
  // Bytes from the first element to the end of the last.
  int64_t SpanBytes() const {
    if (!layout_.is_standard()) return capacity_;
    if (numel() == 0) return 0;
    if (strides_.empty()) return CheckedBytes(shape_, dtype_);
    int64_t last = 0;
    for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
    return (last + 1) * ItemSize(dtype_);
  }
  // As SpanBytes, for strides that nobody has checked yet: -1 when they cannot be right.
  int64_t ViewBytes() const {
    if (strides_.empty()) return CheckedBytes(shape_, dtype_);
    if (strides_.size() != rank()) return -1;
    if (numel() == 0) return 0;
    int64_t end = 1, step = 0;
    for (int i = 0; i < rank(); ++i)
      if (strides_[i] < 0 || __builtin_mul_overflow(shape_[i] - 1, strides_[i], &step) ||
          __builtin_add_overflow(end, step, &end))
        return -1;
    return __builtin_mul_overflow(end, ItemSize(dtype_), &end) ? -1 : end;
  }
  void CopyElementsTo(char* out) const {
    const auto item = static_cast<size_t>(ItemSize(dtype_));
    const char* base = static_cast<const char*>(raw_data());
    if (numel() == 0) return;
    if (is_dense()) {
      std::memcpy(out, base, static_cast<size_t>(nbytes()));
      return;
    }
    Dims index(shape_);
    for (int i = 0; i < rank(); ++i) index[i] = 0;
    for (int64_t n = numel(); n > 0; --n, out += item) {
      int64_t offset = 0;
      for (int i = 0; i < rank(); ++i) offset += index[i] * strides_[i];
      std::memcpy(out, base + offset * static_cast<int64_t>(item), item);
      for (int i = rank() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
    }
  }

  Storage storage_;
  int64_t byte_offset_ = 0;
  int64_t capacity_ = 0;
  Shape shape_{0};
  Dims strides_;  // empty: dense
  Layout layout_;
  Device device_;
  DType dtype_ = DType::kUndefined;
};

}  // namespace opkit

#endif  // OPKIT_CORE_TENSOR_HPP_

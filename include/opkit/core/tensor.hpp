// Tensor: dtype, shape, strides, device and layout over a Storage and a byte offset. Copying a
// Tensor is cheap and shares its bytes; CopyFrom copies them. Operators read and write Tensors.
// A tensor of a packed dtype (int4 and others) is dense, in the standard layout: its views begin at
// a whole byte.
#ifndef OPKIT_CORE_TENSOR_HPP_
#define OPKIT_CORE_TENSOR_HPP_

#include <cstring>
#include <initializer_list>
#include <utility>

#include "opkit/core/dtype.hpp"
#include "opkit/core/layout.hpp"
#include "opkit/core/shape.hpp"
#include "opkit/core/storage.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
// Contiguous() of a tensor that the host cannot reach.
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Tensor&)> g_contiguous_on_device{
    "a copy of a tensor on a device", "opkit/opkit.hpp"};
}  // namespace detail

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
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept = default;
  ~Tensor();
  // An empty tensor of that device: shape [0], no dtype, no memory.
  explicit Tensor(Device device) : device_(device) {}
  // Errors: kInvalidArgument for an undefined dtype, kOutOfRange for sizes past int64,
  // kOutOfMemory.
  Tensor(Shape shape, DType dtype, Device device = {}) : device_(device) {
    Resize(std::move(shape), dtype);
  }
  // Views `storage` from `byte_offset` on; `strides` are in elements and not negative; empty means
  // dense. Error (kUnsupported) for strides of a packed dtype that are not dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {});

  // Copies `values` into a new row-major tensor on the CPU. Error (kInvalidArgument) when the
  // counts differ.
  template <detail::TensorElement T>
  static Tensor From(Shape shape, std::initializer_list<T> values) {
    return From(std::move(shape), values.begin(), values.size());
  }
  template <detail::TensorElement T>
  static Tensor From(Shape shape, const T* values, size_t count) {
    if (static_cast<int64_t>(count) != shape.numel())
      Throw(ErrorCode::kInvalidArgument, "shape ", shape, " holds ", shape.numel(),
            " elements, but ", count, " values were given");
    Tensor out(std::move(shape), kDTypeOf<T>);
    if constexpr (std::is_same_v<T, std::string>)
      for (size_t i = 0; i < count; ++i) out.mutable_data<T>()[i] = values[i];
    else if (count)
      std::memcpy(out.raw_mutable_data(), values, count * sizeof(T));
    return out;
  }
  // Takes a vector, span or array of T.
  template <detail::TensorElement T, class Range>
    requires requires(const Range& range) {
      { range.data() } -> std::convertible_to<const T*>;
      range.size();
    }
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <class Range>
    requires detail::TensorElement<typename Range::value_type>
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <detail::TensorElement T>
  static Tensor Scalar(T value) {
    return From<T>({}, {value});
  }
  // Views the caller's memory, which must outlive every tensor that shares it. Error
  // (kInvalidArgument) for a null pointer if the shape has elements.
  template <detail::TensorElement T>
  static Tensor FromExternal(T* data, Shape shape, Device device = {}) {
    Tensor out(device);
    constexpr DType dtype = kDTypeOf<T>;
    const int64_t nbytes = MemoryBytes(shape, dtype);
    if (!data && nbytes > 0)
      Throw(ErrorCode::kInvalidArgument, "expected memory for ", shape, " of ", dtype,
            ", found a null pointer");
    out.storage_ = AdoptStorage(device, const_cast<std::remove_const_t<T>*>(data), nbytes, nullptr,
                                nullptr, IsObject(dtype) ? dtype : DType::kUndefined);
    out.shape_ = std::move(shape);
    out.dtype_ = dtype;
    out.capacity_ = nbytes;
    return out;
  }

  // Return the parts of the tensor, in O(1) or O(rank). Only `dim` throws: kOutOfRange for an axis
  // that does not exist. numel() is the number of elements, nbytes() the size of a dense tensor
  // with these elements, byte_offset() the offset of the first element in the storage.
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  template <class... Nothing>
  int64_t size() const {
    static_assert(sizeof...(Nothing) > 0,
                  "a Tensor has no size(): numel() counts its elements, rank() its axes, nbytes() "
                  "its bytes");
    return 0;
  }
  int64_t nbytes() const { return BytesOf(numel(), dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Layout& layout() const { return layout_; }
  const Storage& storage() const { return storage_; }
  int64_t byte_offset() const { return byte_offset_; }
  // Returns the number of bytes that Resize can use without new memory. Returns 0 if strides leave
  // gaps, because the gaps may belong to other tensors.
  int64_t capacity() const { return capacity_; }
  // Returns the strides in elements.
  Dims strides() const { return strides_.empty() ? shape_.DenseStrides() : strides_; }
  // True if the tensor stores strides, as a view may; these strides can still be dense.
  bool has_strides() const { return !strides_.empty(); }
  bool is_dense() const { return strides_.empty() || shape_.IsDense(strides_); }
  // True if the tensor has this memory, dtype and shape, no stored strides, and the standard
  // layout.
  bool IsDenseAt(const void* data, DType dtype, const int64_t* extents, int rank) const {
    if (raw_data() != data || dtype_ != dtype || !strides_.empty() || !layout_.is_standard() ||
        shape_.rank() != rank)
      return false;
    const int64_t* own = shape_.data();
    for (int axis = 0; axis < rank; ++axis)
      if (own[axis] != extents[axis]) return false;
    return true;
  }
  // True if the tensor has a dtype, and memory for its elements, so that it may be read.
  bool initialized() const { return dtype_ != DType::kUndefined && (storage_ || numel() == 0); }

  // Returns the first element's address; elements follow `strides()`. Errors: kTypeMismatch for
  // another T, kUninitialized.
  template <detail::TensorElement T>
  const T* data() const {
    CheckHolds(kDTypeOf<T>);
    return static_cast<const T*>(raw_data());
  }
  // Returns the first element's address for writing; a tensor that has no dtype yet takes T and is
  // allocated.
  template <detail::TensorElement T>
  T* mutable_data() {
    if (dtype_ == DType::kUndefined) Resize(shape_, kDTypeOf<T>);
    CheckHolds(kDTypeOf<T>, "; to write another dtype call Resize(shape, dtype) first");
    return static_cast<T*>(raw_mutable_data());
  }
  const void* raw_data() const { return raw_mutable_data(); }
  // Same as data<T>(), for a dtype that is known only at run time.
  const void* raw_data(DType wanted) const {
    CheckHolds(wanted);
    return raw_data();
  }
  void* raw_mutable_data() const {
    return storage_ ? static_cast<char*>(storage_->data()) + byte_offset_ : nullptr;
  }
  // Returns the elements in row-major order. Error (kUnsupported) for a tensor that the host cannot
  // reach.
  template <detail::TensorElement T>
  std::vector<T> ToVector() const {
    CheckHolds(kDTypeOf<T>);
    CheckStandard("ToVector");
    CheckHost();
    const Tensor dense = is_dense() ? *this : Contiguous();
    const T* values = dense.data<T>();
    return std::vector<T>(values, values + numel());
  }

  // Changes the shape and keeps the dtype. Keeps the memory if it is large enough, so shrinking and
  // growing back costs nothing. Otherwise takes new memory with undefined contents; tensors that
  // share the old memory keep it. Without a dtype, sets only the shape.
  void Resize(Shape shape) {
    if (dtype_ != DType::kUndefined) return Resize(std::move(shape), dtype_);
    shape_ = std::move(shape);
  }
  void Resize(Shape shape, DType dtype);
  // Reserves memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer);
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }
  // Drops memory and strides; dtype and shape stay. Reading elements is then an Error
  // (kUninitialized), unless the tensor has no elements.
  void ReleaseMemory();

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source);

  // Copies the source's elements, dense, into this tensor's own memory on its device. Both devices
  // must be reachable from the host (device/copy.hpp crosses devices).
  void CopyFrom(const Tensor& source);
  // Returns the tensor that a copy of `source` writes to: this tensor resized, with new memory on
  // the same device if the old memory is too small or overlaps `source`. This tensor itself does
  // not change.
  Tensor CopyDestination(const Tensor& source) const;
  // Returns a dense copy with memory of its own, on the same device. A copy on a device is done at
  // return; for strided elements see RegisterStridedCopy (device/copy.hpp).
  Tensor Contiguous() const;

  // Returns the same memory under another shape of equal element count. One extent may be -1.
  Tensor View(const Dims& dims) const;
  // Returns the elements [begin, end) of `axis`, in the same memory. Resizing a slice never reaches
  // beyond it. Error (kUnsupported) for a packed dtype unless the slice is dense, begins at a whole
  // byte, and ends at one or at the end of the tensor.
  Tensor Slice(int axis, int64_t begin, int64_t end) const;
  // Returns the same memory with its axes in another order: axis i of the result is axis order[i]
  // of this tensor. Error (kUnsupported) for a packed dtype unless the elements stay in order.
  Tensor Permute(const Dims& order) const;

  // True when the bytes from the first to the last element overlap those of `other`.
  bool SharesMemoryWith(const Tensor& other) const {
    if (!storage_ || !other.storage_) return false;
    if (storage_ != other.storage_ && storage_->IsApartFrom(*other.storage_)) return false;
    return SpansOverlap(other);
  }

  // Returns a tensor in a layout, whose size may differ from the dense size. Views `bytes` bytes of
  // `storage` from `byte_offset` on; a negative `bytes` means all the remaining bytes.
  static Tensor FromLayout(Storage storage, Shape shape, DType dtype, Layout layout,
                           int64_t byte_offset = 0, int64_t bytes = -1);
  // Moves the tensor to another device that reaches the same memory (cpu and cpu_stream). Error
  // (kInvalidArgument) for other devices.
  void SetDevice(Device device);

  // Returns "float32[2, 3] on cpu", with the layout or the strides if the tensor is not dense
  // row-major.
  OPKIT_COLD friend std::string ToString(const Tensor& tensor);

  // Returns the number of bytes of a dense tensor of this shape and dtype. Errors: kOutOfRange past
  // int64, kUnsupported for a dtype whose elements are no bytes.
  static int64_t CheckedBytes(const Shape& shape, DType dtype);

 private:
  // The same as CheckedBytes and ItemSize, with the size of the C++ objects for IsObject(dtype).
  static int64_t MemoryBytes(const Shape& shape, DType dtype);
  static int64_t ElementBytes(DType dtype);
  template <class... Parts>
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Parts&... parts) const {
    FailJoined(code, {parts...});
  }
  [[noreturn]] OPKIT_COLD void FailJoined(ErrorCode code,
                                          std::initializer_list<detail::Text> parts) const;
  void CheckInitialized() const {
    if (!initialized()) [[unlikely]]
      Fail(ErrorCode::kUninitialized, "is read before anything was written to it");
  }
  void CheckHolds(DType wanted, const char* advice = "") const {
    if (dtype_ != wanted || (!storage_ && numel() != 0)) [[unlikely]]
      FailToAccess(wanted, advice);
  }
  [[noreturn]] OPKIT_COLD void FailToAccess(DType wanted, const char* advice) const;
  void CheckStandard(const char* what) const {
    if (!layout_.is_standard()) [[unlikely]]
      Fail(ErrorCode::kUnsupported, what, " needs the standard layout; convert first");
  }
  bool SpansOverlap(const Tensor& other) const;
  bool Fits(const Shape& shape, DType dtype) const;
  Storage NewMemory(const Shape& shape, DType dtype) const;
  void TakeMemory(Storage storage);
  void CheckHost() const {
    if (!IsHostAccessible(device_.type))
      Fail(ErrorCode::kUnsupported, "is not reachable from the host; use device/copy.hpp");
  }
  // Returns the number of bytes from the first element to the end of the last one.
  int64_t SpanBytes() const;
  // Returns the same as SpanBytes(), for strides that are not checked yet; -1 if they are invalid.
  int64_t ViewBytes() const;
  void CopyElementsTo(char* out) const;

  Storage storage_;
  int64_t byte_offset_ = 0;
  int64_t capacity_ = 0;
  Shape shape_{0};
  Dims strides_;  // empty: dense
  Layout layout_;
  Device device_;
  DType dtype_ = DType::kUndefined;
};

namespace detail {
// Copies elements of string, sequence or optional one after the other. The memories are equal or do
// not overlap. An element of a sequence or an optional value is a handle: the copy shares its
// memory.
void CopyObjects(DType dtype, void* to, const void* from, int64_t count);
}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/tensor.ipp"
#endif

#endif  // OPKIT_CORE_TENSOR_HPP_

// Exports tensors to DLPack and imports them without a copy, versioned and unversioned. The structs
// are our own declarations of DLPack's C ABI (github.com/dmlc/dlpack, version 1.1); a test compares
// them with the real header.
#ifndef OPKIT_CORE_DLPACK_HPP_
#define OPKIT_CORE_DLPACK_HPP_

#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace dlpack {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 10 to 14 float8
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null for row-major dense
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
inline constexpr uint64_t kFlagReadOnly = 1;
inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 1;

}  // namespace dlpack

namespace detail {

// A DType, and the code and bits that DLPack has for it.
struct DLPackTypeRow {
  DType dtype;
  uint8_t code, bits;
};
inline constexpr DLPackTypeRow kDLPackTypes[] = {{DType::kBool, 6, 8},
                                                 {DType::kInt8, 0, 8},
                                                 {DType::kInt16, 0, 16},
                                                 {DType::kInt32, 0, 32},
                                                 {DType::kInt64, 0, 64},
                                                 {DType::kUInt8, 1, 8},
                                                 {DType::kUInt16, 1, 16},
                                                 {DType::kUInt32, 1, 32},
                                                 {DType::kUInt64, 1, 64},
                                                 {DType::kFloat16, 2, 16},
                                                 {DType::kBFloat16, 4, 16},
                                                 {DType::kFloat32, 2, 32},
                                                 {DType::kFloat64, 2, 64},
                                                 {DType::kComplex64, 5, 64},
                                                 {DType::kComplex128, 5, 128},
                                                 {DType::kFloat8E4M3FN, 10, 8},
                                                 {DType::kFloat8E4M3FNUZ, 11, 8},
                                                 {DType::kFloat8E5M2, 12, 8},
                                                 {DType::kFloat8E5M2FNUZ, 13, 8},
                                                 {DType::kFloat8E8M0, 14, 8}};

// An exported tensor. Owns a handle of the memory, and the arrays that the DLTensor points to.
template <class Managed>
struct DLPackExport {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  Managed managed;
};

template <class Managed>
Managed* ExportDLPack(const Tensor& tensor) {
  if (!tensor.initialized())
    Throw(ErrorCode::kUninitialized, "cannot export tensor ", tensor, " to DLPack");
  if (!tensor.layout().is_standard())
    Throw(ErrorCode::kUnsupported, "DLPack has no layout '", tensor.layout(),
          "'; convert the tensor to the standard layout first");
  const DLPackTypeRow* row = nullptr;
  for (const auto& r : kDLPackTypes)
    if (r.dtype == tensor.dtype()) row = &r;
  if (!row)
    Throw(ErrorCode::kUnsupported, "cannot export tensor ", tensor, " to DLPack: ",
          IsPacked(tensor.dtype())
              ? "programs disagree on the order of bits in a byte; cast it to a "
                "type of 8 bits first"
              : "its elements are not numbers");
  const Dims strides = tensor.strides();
  auto* out = new DLPackExport<Managed>{
      tensor, tensor.shape().vec(), {strides.begin(), strides.end()}, Managed{}};
  Device device = tensor.device();
  if (static_cast<int>(device.type) >= static_cast<int>(DeviceType::kCPUStream))
    device = MemoryDevice(device);
  auto& dl = out->managed.dl_tensor;
  dl.data = tensor.raw_mutable_data();
  dl.device.device_type = static_cast<decltype(dl.device.device_type)>(device.type);
  dl.device.device_id = device.index;
  dl.ndim = tensor.rank();
  dl.dtype = {row->code, row->bits, 1};
  dl.shape = out->shape.data();
  dl.strides = out->strides.data();
  out->managed.manager_ctx = out;
  out->managed.deleter = [](Managed* self) {
    delete static_cast<DLPackExport<Managed>*>(self->manager_ctx);
  };
  return &out->managed;
}

template <class Managed>
Tensor ImportDLPack(Managed* managed) {
  const auto& in = managed->dl_tensor;
  DType dtype = DType::kUndefined;
  for (const auto& row : kDLPackTypes)
    if (row.code == in.dtype.code && row.bits == in.dtype.bits && in.dtype.lanes == 1)
      dtype = row.dtype;
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kUnsupported, "DLPack type {code ", int{in.dtype.code}, ", bits ",
          int{in.dtype.bits}, ", lanes ", in.dtype.lanes, "} has no DType");
  if (in.ndim < 0 || (in.ndim > 0 && !in.shape))
    Throw(ErrorCode::kInvalidArgument, "DLPack tensor has ndim ", in.ndim,
          in.shape ? "" : " and no shape");
  const auto rank = static_cast<size_t>(in.ndim);
  Shape shape(in.shape, rank);
  Dims strides;
  if (in.strides && rank) strides = Dims(in.strides, rank);
  if (shape.IsDense(strides)) strides = Dims();
  int64_t last = 0;
  for (int i = 0; i < strides.size(); ++i) {
    int64_t step = 0;
    if (shape[i] == 1) strides[i] = 0;  // unused; may have any value
    if (strides[i] < 0 || __builtin_mul_overflow(strides[i], shape[i] - 1, &step) ||
        __builtin_add_overflow(last, step, &last))
      Throw(ErrorCode::kUnsupported, "DLPack stride ", strides[i], " of axis ", i,
            " is negative or too large");
  }
  int64_t nbytes = Tensor::CheckedBytes(shape, dtype);
  if (!strides.empty() && (__builtin_add_overflow(last, 1, &last) ||
                           __builtin_mul_overflow(last, ItemSize(dtype), &nbytes)))
    Throw(ErrorCode::kOutOfRange, "DLPack strides reach past a 64-bit byte count");
  if (!in.data && nbytes > 0) Throw(ErrorCode::kInvalidArgument, "DLPack tensor has no data");
  uintptr_t begin = 0, end = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(in.data), in.byte_offset, &begin) ||
      __builtin_add_overflow(begin, static_cast<uintptr_t>(nbytes), &end))
    Throw(ErrorCode::kOutOfRange, "DLPack tensor of ", nbytes, " bytes at offset ", in.byte_offset,
          " reaches past the end of memory");
  const auto alignment = static_cast<uintptr_t>(ItemSize(dtype) / (IsComplex(dtype) ? 2 : 1));
  if (nbytes > 0 && begin % alignment != 0)
    Throw(ErrorCode::kInvalidArgument, "DLPack tensor of ", dtype,
          " begins at an address that is no multiple of ", alignment, " (byte_offset ",
          in.byte_offset, "); copy it to an aligned buffer first");
  const Device device{static_cast<DeviceType>(in.device.device_type), in.device.device_id};
  Storage storage = AdoptStorage(
      device, in.data ? static_cast<char*>(in.data) + in.byte_offset : nullptr, nbytes,
      [](void*, void* context) {
        auto* self = static_cast<Managed*>(context);
        if (self->deleter) self->deleter(self);
      },
      managed);
  return Tensor(std::move(storage), 0, std::move(shape), dtype, std::move(strides));
}

template <class T>
concept Versioned = requires(T& t) { t.version.major; };

// Structs with DLPack's layout: the declarations above, or the structs of the real header.
template <class T>
concept DLPackManaged = requires(T& t) {
  t.dl_tensor.byte_offset;
  t.manager_ctx;
  t.deleter;
  requires sizeof(T) == (Versioned<T> ? sizeof(dlpack::DLManagedTensorVersioned)
                                      : sizeof(dlpack::DLManagedTensor));
};

}  // namespace detail

// Exports without a copy, as our struct or another one of the same layout; the caller owns the
// result and calls its deleter once. Errors: kUninitialized, kUnsupported for a blocked layout and
// for a packed dtype.
template <detail::DLPackManaged Managed = dlpack::DLManagedTensor>
Managed* ToDLPack(const Tensor& tensor) {
  return detail::ExportDLPack<Managed>(tensor);
}
template <detail::DLPackManaged Managed = dlpack::DLManagedTensorVersioned>
Managed* ToDLPackVersioned(const Tensor& tensor) {
  auto* managed = detail::ExportDLPack<Managed>(tensor);
  managed->version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  return managed;
}

enum class DLPackReadOnly : uint8_t { kRefused, kAccepted };

// Imports without a copy. On success the tensor owns `managed`, and its last handle calls the
// deleter. After an Error the caller still owns `managed`. A read-only tensor is an Error
// (kInvalidArgument) unless the caller accepts it, because a Tensor does not know that its memory
// is read-only.
template <detail::DLPackManaged Managed>
Tensor FromDLPack(Managed* managed, DLPackReadOnly read_only = DLPackReadOnly::kRefused) {
  if (!managed) Throw(ErrorCode::kInvalidArgument, "FromDLPack was given a null pointer");
  if constexpr (detail::Versioned<Managed>) {
    if (managed->version.major != dlpack::kMajorVersion)
      Throw(ErrorCode::kUnsupported, "DLPack major version ", managed->version.major,
            " is not the supported ", dlpack::kMajorVersion);
    if ((managed->flags & dlpack::kFlagReadOnly) && read_only == DLPackReadOnly::kRefused)
      Throw(ErrorCode::kInvalidArgument,
            "the DLPack tensor is read-only: copy it, or pass "
            "DLPackReadOnly::kAccepted and do not write to it");
  }
  return detail::ImportDLPack(managed);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_DLPACK_HPP_

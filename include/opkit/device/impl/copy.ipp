// The definitions of opkit/device/copy.hpp.
#ifndef OPKIT_DEVICE_IMPL_COPY_IPP_
#define OPKIT_DEVICE_IMPL_COPY_IPP_

#include "opkit/base/index.hpp"
#include "opkit/device/copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns null if no function is registered.
inline CopyFunction RegisteredCopy(DeviceType from, DeviceType to) {
  MutexLock lock(Copies().mutex);
  for (const CopyTable::Route& route : Copies())
    if (route.from == from && route.to == to && route.copy) return route.copy;
  return nullptr;
}
OPKIT_INLINE CopyFunction FindCopy(DeviceType from, DeviceType to) {
  if (const CopyFunction registered = RegisteredCopy(from, to)) return registered;
  if (IsHostAccessible(from) && IsHostAccessible(to)) return &CopyHost;
  return RegisteredCopy(from, DeviceType::kCPU) && RegisteredCopy(DeviceType::kCPU, to)
             ? &CopyThroughHost
             : nullptr;
}
OPKIT_COLD OPKIT_INLINE void CopyThroughHost(void* target, Device target_device, const void* source,
                                             Device source_device, int64_t nbytes, void* stream) {
  const CopyFunction to_host = RegisteredCopy(source_device.type, DeviceType::kCPU);
  const CopyFunction from_host = RegisteredCopy(DeviceType::kCPU, target_device.type);
  if (stream || !to_host || !from_host)
    Throw(ErrorCode::kUnsupported, "cannot copy from ", source_device, " to ", target_device,
          stream ? " on a stream: it goes through the host; use Copy, which waits"
                 : ": the copies to and from the host are registered no more");
  const Storage between = AllocateStorage(Device{}, nbytes);
  to_host(between->data(), Device{}, source, source_device, nbytes, nullptr);
  from_host(target, target_device, between->data(), Device{}, nbytes, nullptr);
}
OPKIT_INLINE CopyFunction FindCopy(const Tensor& source, const Tensor& target) {
  const DeviceType from = MemoryDevice(source.device()).type;
  const DeviceType to = MemoryDevice(target.device()).type;
  if (const CopyFunction found = FindCopy(from, to)) return found;
  MutexLock lock(Copies().mutex);
  std::vector<std::string> known;
  for (const CopyTable::Route& route : Copies())
    if (route.copy) known.push_back(StrCat(route.from, " to ", route.to));
  throw Error(
      ErrorCode::kUnsupported,
      StrCat("cannot copy tensor ", source, " to ", ToString(target.device()), ": no copy from ",
             ToString(from), " to ", ToString(to), " is registered, only ", known,
             "; include its backend's header, or call RegisterCopy"),
      &source);
}

OPKIT_INLINE StridedCopyFunction FindStridedCopy(const Tensor& source) {
  if (source.is_dense() || IsHostAccessible(source.device().type)) return nullptr;
  const DeviceType type = MemoryDevice(source.device()).type;
  {
    MutexLock lock(Copies().mutex);
    if (const StridedCopyFunction found = Copies().strided[Index(static_cast<int>(type))])
      return found;
  }
  throw Error(ErrorCode::kUnsupported,
              StrCat("cannot copy tensor ", source, ": it has strides, and no copy of strided ",
                     "elements within ", type, " is registered; link the kernels of its backend ",
                     "(opkit::cuda_ops for cuda), or call RegisterStridedCopy"),
              &source);
}
// Copies `source` to dense memory, on the same device with `strided`.
inline void CopyStrided(StridedCopyFunction strided, CopyFunction copy, const Tensor& source,
                        const Tensor& target, void* stream) {
  const Device from = MemoryDevice(source.device()), to = MemoryDevice(target.device());
  if (from == to) return strided(source, target.raw_mutable_data(), stream);
  Tensor dense(source.device());
  dense.Resize(source.shape(), source.dtype());
  strided(source, dense.raw_mutable_data(), stream);
  copy(target.raw_mutable_data(), to, dense.raw_data(), from, dense.nbytes(), stream);
}

OPKIT_INLINE void CopyElements(const Tensor& source, const Tensor& target, void* stream) {
  const CopyFunction copy = FindCopy(source, target);
  const StridedCopyFunction strided = FindStridedCopy(source);
  if (target.numel() == 0) return;
  const bool on_host = copy == &CopyHost;
  if (!target.is_dense() || (!on_host && !strided && !source.is_dense()))
    Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source, " into ", target,
          " while one of them is strided");
  if (strided) return CopyStrided(strided, copy, source, target, stream);
  const Tensor dense = source.is_dense() ? source : source.Contiguous();
  void* const to = target.raw_mutable_data();
  if (IsObject(target.dtype()))
    CopyObjects(target.dtype(), to, dense.raw_data(), dense.numel());
  else if (on_host)
    std::memmove(to, dense.raw_data(), Index(dense.nbytes()));
  else
    copy(to, MemoryDevice(target.device()), dense.raw_data(), MemoryDevice(source.device()),
         dense.nbytes(), stream);
}

OPKIT_INLINE PreparedCopy::PreparedCopy(const Tensor& from, const Tensor& to) : source(from) {
  if (!from.initialized())
    throw Error(ErrorCode::kUninitialized,
                StrCat("tensor ", from, " is copied before anything was written to it"), &from);
  copy = FindCopy(from, to);
  if (!from.layout().is_standard())
    throw Error(ErrorCode::kUnsupported,
                StrCat("cannot copy tensor ", from, " to ", ToString(to.device()),
                       ": only tensors of the standard layout are copied; convert it first"),
                &from);
  strided = FindStridedCopy(from);
  target = to.CopyDestination(from);
}

OPKIT_INLINE void PreparedCopy::Run(void* stream) const {
  if (strided && source.numel() > 0) return CopyStrided(strided, copy, source, target, stream);
  const Tensor dense = source.is_dense() ? source : source.Contiguous();
  if (dense.numel() == 0) return;
  if (IsObject(dense.dtype()))  // the target is on the cpu, as the source is
    return CopyObjects(dense.dtype(), target.raw_mutable_data(), dense.raw_data(), dense.numel());
  copy(target.raw_mutable_data(), MemoryDevice(target.device()), dense.raw_data(),
       MemoryDevice(source.device()), dense.nbytes(), stream);
}

}  // namespace detail

OPKIT_INLINE detail::CopyFunction RegisterCopy(DeviceType from, DeviceType to,
                                               detail::CopyFunction copy) {
  from = MemoryDevice({from, 0}).type;
  to = MemoryDevice({to, 0}).type;
  detail::CopyTable& table = detail::Copies();
  detail::MutexLock lock(table.mutex);
  for (int i = 0; i < table.count; ++i)
    if (detail::CopyTable::Route& route = table.routes[i]; route.from == from && route.to == to)
      return std::exchange(route.copy, copy);
  if (table.count == table.kMost)
    Throw(ErrorCode::kOutOfRange, "a copy from ", from, " to ", to, " is one more than the ",
          int{table.kMost}, " that a program may have");
  table.routes[table.count++] = {from, to, copy};
  return nullptr;
}

OPKIT_INLINE detail::StridedCopyFunction RegisterStridedCopy(DeviceType type,
                                                             detail::StridedCopyFunction copy) {
  type = MemoryDevice({type, 0}).type;
  detail::MutexLock lock(detail::Copies().mutex);
  return std::exchange(detail::Copies().strided[detail::Index(static_cast<int>(type))], copy);
}

OPKIT_INLINE void Copy(const Tensor& source, Tensor* target) {
  if (&source == target) return;
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(Invocation::Kind::kCopy, target->device(), detail::CopyNames);
  prepared.Run();
  *target = std::move(prepared.target);
}

namespace detail {

OPKIT_COLD inline Tensor ContiguousOnDevice(const Tensor& tensor) {
  Tensor dense(tensor.device());
  Copy(tensor, &dense);
  return dense;
}
OPKIT_IMAGE_LOCAL inline const bool kFillsContiguous =
    g_contiguous_on_device.Fill(&ContiguousOnDevice);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_COPY_IPP_

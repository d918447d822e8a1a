// Copies between devices. Backends register a function for each pair of source and target memory.
// Copy (done on return) and CopyAsync (issued on a context's stream) call these functions.
#ifndef OPKIT_DEVICE_COPY_HPP_
#define OPKIT_DEVICE_COPY_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/device/context.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Copies `nbytes` (never 0) between the memory of two devices; the two blocks do not overlap. With
// a null `stream` the copy is done on return. Otherwise it is issued on `stream`, the native stream
// of the context. Throws on failure. A backend registers one function for each direction, and one
// from its device to itself for copies within a device and between peers:
//
//   void CopyMine(void* to, Device to_device, const void* from, Device from_device, int64_t nbytes,
//                 void* stream);   // at once, or on the stream
//   inline const auto registered = RegisterCopy(DeviceType::kCPU, kMyDevice, &CopyMine);
using CopyFunction = void (*)(void* target, Device target_device, const void* source,
                              Device source_device, int64_t nbytes, void* stream);

// Copies the elements of `source`, which has strides and at least one element, to `target`, dense
// memory on the same device. With a null `stream` the copy is done on return. Otherwise it is
// issued on `stream`, the native stream of the context. Throws on failure.
using StridedCopyFunction = void (*)(const Tensor& source, void* target, void* stream);

// The registered copies. An array, not a list: heap memory of a library leaks when the library is
// unloaded.
struct CopyTable {
  static constexpr int kMost = 128, kDeviceTypes = 128;
  struct Route {
    DeviceType from, to;
    CopyFunction copy;  // null: removed
  };
  const Route* begin() const { return routes; }
  const Route* end() const { return routes + count; }

  Mutex mutex;
  Route routes[kMost] = {};  // in the order of their registration
  int count = 0;
  StridedCopyFunction strided[kDeviceTypes] = {};  // by device type
};
inline CopyTable& Copies() {
  static constinit CopyTable table;
  return table;
}

inline void CopyHost(void* target, Device, const void* source, Device, int64_t nbytes, void*) {
  std::memcpy(target, source, static_cast<size_t>(nbytes));
}

// Copies through host memory with the two registered functions, and waits. Error (kUnsupported) for
// a stream, and if one of the functions is not registered any more.
void CopyThroughHost(void* target, Device target_device, const void* source, Device source_device,
                     int64_t nbytes, void* stream);

// Returns the registered function. Without one, returns CopyHost if the host reaches both memories,
// CopyThroughHost if functions to and from the host are registered, else null.
CopyFunction FindCopy(DeviceType from, DeviceType to);
// Returns the function that copies between these two tensors. Error (kUnsupported) if there is
// none.
CopyFunction FindCopy(const Tensor& source, const Tensor& target);

// Returns the registered copy of strided elements within the device of `source`; null for a tensor
// that is dense or in the host's memory. Error (kUnsupported) if none is registered.
StridedCopyFunction FindStridedCopy(const Tensor& source);

// Copies into the memory of `target`, which is dense and has the same dtype and shape. On the host
// the two tensors may overlap. On a device the copy is issued on `stream`.
void CopyElements(const Tensor& source, const Tensor& target, void* stream);

// A copy that is ready to run; keeps both memories alive.
struct PreparedCopy {
  CopyFunction copy;
  StridedCopyFunction strided;  // null for a source that is dense or in the host's memory
  Tensor source, target;

  PreparedCopy(const Tensor& from, const Tensor& to);
  // Runs the copy. Copies strided elements to dense memory here, not earlier, because the stream
  // may still be writing the source.
  void Run(void* stream = nullptr) const;
};

inline SpanNames CopyNames() { return {InternName("Copy")}; }

}  // namespace detail

// Registers the copy from one device type's memory to another's and returns the previous function
// (null if none); null removes it. Thread-safe.
detail::CopyFunction RegisterCopy(DeviceType from, DeviceType to, detail::CopyFunction copy);
// Registers the copy of strided elements within a device of this type and returns the previous
// function (null if none); null removes it. Without it a strided tensor cannot leave the device.
// The kernels of a backend register it: opkit::cuda_ops for CUDA. Thread-safe.
detail::StridedCopyFunction RegisterStridedCopy(DeviceType type, detail::StridedCopyFunction copy);

// Copies the elements of `source`, dense, to the target's device; done on return. Resizes the
// target, which keeps its memory unless that is too small or overlaps `source`. Copies through the
// host between two accelerators without a direct copy. Errors: kUninitialized, kUnsupported if no
// copy leads from one device to the other or the source's device cannot copy its strided elements,
// kOutOfMemory; the target is then unchanged.
void Copy(const Tensor& source, Tensor* target);

// Issues the same copy on the context's stream, after the work issued there so far and before later
// work. The target has its new shape at once. On the toolkit's own streams the copy keeps both
// memories alive. On a native stream (the context has `native_stream()`) the caller keeps them
// alive until the copy is done, and a strided source in the host's memory is an Error.
template <DeviceContext Context>
void CopyAsync(Context& context, const Tensor& source, Tensor* target) {
  if (&source == target) return;
  if constexpr (detail::NativeStreamContext<Context>)
    context.native_stream();  // allocates on this stream
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(Invocation::Kind::kCopy, target->device(), detail::CopyNames);
  Tensor result = prepared.target;
  if constexpr (detail::NativeStreamContext<Context>) {
    if (!source.is_dense() && !prepared.strided)
      Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source,
            " on a native stream because it has strides; call Contiguous() first");
    prepared.Run(context.native_stream());
  } else {
    context.Launch([prepared = std::move(prepared)] { prepared.Run(); });
  }
  *target = std::move(result);
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/copy.ipp"
#endif

#endif  // OPKIT_DEVICE_COPY_HPP_

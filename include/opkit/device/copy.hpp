// Copies between devices: a table of functions by the memory they read and write, which backends
// fill, and Copy (done when it returns) and CopyAsync (issued on a context's stream) on top of it.
#ifndef OPKIT_DEVICE_COPY_HPP_
#define OPKIT_DEVICE_COPY_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/device/context.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit::inline OPKIT_ABI {

// Copies `nbytes` (never 0) between two devices' memory, which does not overlap. With a null
// `stream` the bytes are there when it returns; otherwise the copy is issued on that native stream,
// the one the context gave. Throws what fails. A backend registers one for each direction, and one
// from its device to itself that serves copies within a device and between peers:
//
//   void CopyMine(void* to, Device to_device, const void* from, Device from_device, int64_t nbytes,
//                 void* stream);   // at once, or on the stream
//   inline const auto registered = RegisterCopy(DeviceType::kCPU, kMyDevice, &CopyMine);
using CopyFunction = void (*)(void* target, Device target_device, const void* source,
                              Device source_device, int64_t nbytes, void* stream);

namespace detail {

// An array, not a list: what a library allocates on the heap leaks when it is unloaded.
struct CopyTable {
  static constexpr int kMost = 128;
  struct Route {
    DeviceType from, to;
    CopyFunction copy;  // null: removed
  };
  const Route* begin() const { return routes; }
  const Route* end() const { return routes + count; }

  detail::Mutex mutex;
  Route routes[kMost] = {};  // in the order of their registration
  int count = 0;
};
inline CopyTable& Copies() {
  static constinit CopyTable table;
  return table;
}

inline void CopyHost(void* target, Device, const void* source, Device, int64_t nbytes, void*) {
  std::memcpy(target, source, static_cast<size_t>(nbytes));
}

// Copies through memory of the host, by the two functions that are registered for that, and waits.
// Error (kUnsupported) for a stream.
void CopyThroughHost(void* target, Device target_device, const void* source, Device source_device,
                     int64_t nbytes, void* stream);

// The function that is registered, or else CopyThroughHost where one leads to the host and another
// from there. Memory that the host reaches on both sides needs none. Null where nothing copies.
CopyFunction FindCopy(DeviceType from, DeviceType to);
// The same, or an Error (kUnsupported).
CopyFunction FindCopy(const Tensor& source, const Tensor& target);

// Copies into the dense memory of `target`, of the same dtype and shape, as it lies; on the host
// the two may overlap. On a device the copy is issued on `stream`, where the source must be dense.
void CopyElements(const Tensor& source, const Tensor& target, void* stream);

// A copy that is ready to run, whole in itself: it keeps both memories.
struct PreparedCopy {
  CopyFunction copy;
  Tensor source, target;

  PreparedCopy(const Tensor& from, const Tensor& to);
  // Strides are gathered here and not before: the stream may still be writing the source.
  void Run(void* stream = nullptr) const;
};

inline SpanNames CopyNames() { return {InternName("Copy")}; }

}  // namespace detail

// Registers the copy from one device type's memory to another's and returns the one before (null if
// none); null removes it. Thread-safe.
CopyFunction RegisterCopy(DeviceType from, DeviceType to, CopyFunction copy);

// A dense copy of `source` in the target's own device, done when it returns; the target is resized
// and reuses its memory, or takes new where the two overlap. Between two accelerators without a
// copy of their own it goes through the host. Errors: kUninitialized, kUnsupported where no copy
// leads from one device to the other, kOutOfMemory; the target is then as it was.
void Copy(const Tensor& source, Tensor* target);

// As Copy, after the work issued on the context's stream and before what is issued next; the target
// has its shape at once. On streams of the toolkit's own the copy holds both memories; on a native
// one (the context has `native_stream()`) the caller keeps them until the stream has come past it,
// and a strided source is an Error.
template <DeviceContext Context>
void CopyAsync(Context& context, const Tensor& source, Tensor* target) {
  if (&source == target) return;
  if constexpr (NativeStreamContext<Context>) context.native_stream();  // that memory is taken on
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(InvocationKind::kCopy, target->device(), detail::CopyNames);
  Tensor result = prepared.target;
  if constexpr (NativeStreamContext<Context>) {
    if (!source.is_dense())
      Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source,
            " on a native stream because it "
            "has strides; call Contiguous() first");
    prepared.Run(context.native_stream());
  } else {
    context.Launch([prepared = std::move(prepared)] { prepared.Run(); });
  }
  *target = std::move(result);
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/copy.ipp"
#endif

#endif  // OPKIT_DEVICE_COPY_HPP_

// CopyCUDA: copies between CUDA devices, pinned memory and the host. Including this header
// registers it in the table of device/copy.hpp.
#ifndef OPKIT_BACKENDS_CUDA_COPY_HPP_
#define OPKIT_BACKENDS_CUDA_COPY_HPP_

#include <cuda_runtime_api.h>

#include <cstring>

#include "opkit/backends/cuda/peer.hpp"
#include "opkit/backends/cuda/stream.hpp"
#include "opkit/device/copy.hpp"
#ifndef OPKIT_DEVICE_COMPILER  // device code does not compile plans
#include "opkit/graph/plan/converters.hpp"
#endif

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Copies `nbytes` bytes on `native_stream`. Without a stream it copies after the work on the
// calling thread's current streams of both devices, and waits for the copy. A copy between host
// memories first waits for the current streams of all devices. CUDA stages plain host memory and
// blocks the caller while reading it. Pinned memory (kCUDAHost) is not staged and must not change
// until the stream has passed the copy. A copy between devices is direct if they can access each
// other's memory; else CUDA stages it through the host.
inline void CopyCUDA(void* target, Device target_device, const void* source, Device source_device,
                     int64_t nbytes, void* native_stream) {
  const bool to_cuda = target_device.type == DeviceType::kCUDA;
  const bool from_cuda = source_device.type == DeviceType::kCUDA;
  const auto bytes = static_cast<size_t>(nbytes);
  if (!to_cuda && !from_cuda && !native_stream) {
    for (int device = 0; device < CUDADeviceCount(); ++device)
      if (CUDAStream* current = CUDAStream::Current(device)) current->Synchronize();
    std::memcpy(target, source, bytes);
    return;
  }
  CUDAStream* own = nullptr;
  auto stream = static_cast<cudaStream_t>(native_stream);
  if (!native_stream) {
    const Device device = to_cuda ? target_device : source_device;
    own = CUDAStream::Current(device.index);
    if (!own) own = &CUDAStream::Get(device, 0);
    stream = own->handle();
    if (from_cuda && source_device != device)
      if (CUDAStream* other = CUDAStream::Current(source_device.index)) own->Wait(other->Mark());
  }
  CUDADeviceGuard guard(own ? own->device().index : CUDADeviceGuard::kAnyDevice);
  if (to_cuda && from_cuda && target_device != source_device) {
    ConnectCUDADevices(target_device, source_device);
    ConnectCUDADevices(source_device, target_device);
    OPKIT_CUDA_CHECK(cudaMemcpyPeerAsync(target, target_device.index, source, source_device.index,
                                         bytes, stream));
  } else {
    const cudaMemcpyKind kind = to_cuda && from_cuda ? cudaMemcpyDeviceToDevice
                                : to_cuda            ? cudaMemcpyHostToDevice
                                : from_cuda          ? cudaMemcpyDeviceToHost
                                                     : cudaMemcpyHostToHost;
    OPKIT_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, kind, stream));
  }
  if (own) own->Synchronize();
}

inline const bool cuda_copies_registered = [] {
  constexpr DeviceType kHost = DeviceType::kCPU, kPinned = DeviceType::kCUDAHost,
                       kCUDA = DeviceType::kCUDA;
  for (auto [from, to] : {std::pair{kHost, kCUDA},
                          {kCUDA, kHost},
                          {kPinned, kCUDA},
                          {kCUDA, kPinned},
                          {kCUDA, kCUDA},
                          {kHost, kPinned},
                          {kPinned, kHost},
                          {kPinned, kPinned}})
    RegisterCopy(from, to, &CopyCUDA);
  return true;
}();

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_COPY_HPP_

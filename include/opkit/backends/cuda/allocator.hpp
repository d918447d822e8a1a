// CUDAAllocator: memory of CUDA devices, allocated and freed in the order of streams.
// CUDAHostAllocator: pinned host memory. Including this header registers both, for kCUDA and
// kCUDAHost.
#ifndef OPKIT_BACKENDS_CUDA_ALLOCATOR_HPP_
#define OPKIT_BACKENDS_CUDA_ALLOCATOR_HPP_

#include <cuda_runtime_api.h>

#include <map>
#include <unordered_map>

#include "opkit/backends/cuda/peer.hpp"
#include "opkit/backends/cuda/stream.hpp"
#include "opkit/core/allocator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Allocates from a memory pool of its own for each device. Memory that a run allocates while it
// issues work is ordered with the run's stream (CUDAStream::Issuing). Work on that stream, and on
// streams that wait for one of its events, may use the memory. All other memory may be used on
// every stream immediately.
//
// Freed memory is reused only after the work that was issued before the free on two streams: the
// stream of the allocation and the freeing thread's current stream (CUDAStream::Current). An
// operator's event keeps the storages of the run until the device has finished with them, so
// operators may use them on any stream. A program that launches its own work on other streams must
// keep the Storage until that work is done.
//
// During a recording (recording.hpp) an allocation is an Error, and memory is freed at the end.
//
// For devices without memory pools it calls cudaMalloc and cudaFree; cudaFree waits for the whole
// device.
class CUDAAllocator final : public Allocator {
 public:
  const char* name() const override { return "cuda"; }

 protected:
  void* DoAllocate(int64_t bytes) override { return DoAllocateOn(0, bytes); }
  void* DoAllocateOn(int32_t index, int64_t bytes) override {
    if (detail::t_cuda_recording) [[unlikely]]
      Throw(
          ErrorCode::kUnsupported,
          "memory of a device is allocated in a run that is recorded as a CUDA graph, which would "
          "use the same memory again in each launch");
    OfDevice& device = Get(index);
    void* data = TryAllocate(device, bytes);
    if (data) return data;
    // Out of memory: wait for outstanding frees, including those of completed runs whose callbacks
    // have not run, and release the blocks that the pool keeps.
    CUDADeviceGuard guard(index);
    OPKIT_CUDA_CHECK(cudaDeviceSynchronize());
    detail::CUDACompletions::Global().WaitUntilIdle();
    OPKIT_CUDA_CHECK(cudaDeviceSynchronize());
    if (device.pool) OPKIT_CUDA_CHECK(cudaMemPoolTrimTo(device.pool, 0));
    return TryAllocate(device, bytes);
  }
  void DoDeallocate(void* data, int64_t bytes) noexcept override {
    try {
      if (detail::t_cuda_recording) [[unlikely]]
        detail::t_cuda_recording->after.emplace_back(
            [this, data, bytes] { DoDeallocate(data, bytes); });
      else
        Free(data);
    } catch (...) {  // CUDA frees nothing after a kernel's failure or at the end of the process
    }
  }

 private:
  // The pool and the internal streams of a device.
  struct OfDevice {
    Device device;
    cudaMemPool_t pool = nullptr;  // null: cudaMalloc allocates, because the device has no pools
    CUDAStream* for_any_stream = nullptr;  // for allocations only, so that waiting for it is short
    CUDAStream* for_frees = nullptr;       // for frees only, so that it can wait for other streams
  };

  // Returns the pool and streams of a device; creates them at the first call.
  OfDevice& Get(int index) {
    CheckCUDADevice({DeviceType::kCUDA, index});
    std::lock_guard lock(mutex_);
    std::unique_ptr<OfDevice>& known = devices_[index];
    if (known) return *known;
    auto made = std::make_unique<OfDevice>();
    made->device = {DeviceType::kCUDA, index};
    int pools = 0;
    OPKIT_CUDA_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index));
    if (pools) {
      CUDADeviceGuard guard(index);
      made->for_any_stream = CUDAStream::MakeUnshared(made->device);
      made->for_frees = CUDAStream::MakeUnshared(made->device);
      cudaMemPoolProps properties = {};
      properties.allocType = cudaMemAllocationTypePinned;
      properties.location.type = cudaMemLocationTypeDevice;
      properties.location.id = index;
      OPKIT_CUDA_CHECK(cudaMemPoolCreate(&made->pool, &properties));
      // The pool keeps freed memory: returning it to the driver at every synchronisation costs more
      // than an allocation.
      uint64_t keep = UINT64_MAX;
      OPKIT_CUDA_CHECK(cudaMemPoolSetAttribute(made->pool, cudaMemPoolAttrReleaseThreshold, &keep));
      // An allocation does not take a block that another stream's work still uses, because the
      // allocation would have to wait for that work. So streams stay independent, and memory for
      // any stream is ready at once.
      int no = 0;
      OPKIT_CUDA_CHECK(
          cudaMemPoolSetAttribute(made->pool, cudaMemPoolReuseAllowInternalDependencies, &no));
      detail::CUDAPeers::Global().AddPool(index, made->pool);
    }
    return *(known = std::move(made));
  }
  // Returns null if the device has not enough memory.
  void* TryAllocate(OfDevice& device, int64_t bytes) {
    void* data = nullptr;
    CUDAStream* const issuing = CUDAStream::Issuing(device.device.index);
    CUDAStream* const stream = issuing ? issuing : device.for_any_stream;
    const CUDADeviceGuard guard(device.device);
    const cudaError_t status = device.pool
                                   ? cudaMallocFromPoolAsync(&data, static_cast<size_t>(bytes),
                                                             device.pool, stream->handle())
                                   : cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    OPKIT_CUDA_CHECK(status);
    Origin origin;
    origin.device = &device;
    if (device.pool) {
      origin.stream = stream;
      if (!issuing)
        stream->Synchronize();
      else if (stream->is_foreign())
        origin.allocated = stream->Mark();
    }
    std::lock_guard lock(mutex_);
    origins_[data] = std::move(origin);
    return data;
  }
  void Free(void* data) {
    Origin origin;
    {
      std::lock_guard lock(mutex_);
      const auto found = origins_.find(data);
      if (found != origins_.end()) {
        origin = std::move(found->second);
        origins_.erase(found);  // before CUDA can return this address from another allocation
      }
    }
    const CUDADeviceGuard guard(origin.device->device);
    if (!origin.stream) {
      OPKIT_CUDA_CHECK(cudaFree(data));
      return;
    }
    CUDAStream* const current = CUDAStream::Current(origin.device->device.index);
    CUDAStream* stream = origin.stream;
    if (stream == origin.device->for_any_stream) {
      stream = current ? current : origin.device->for_frees;
    } else if (current != stream && (current || stream->is_foreign())) {
      // A third stream waits for both streams and frees, so that neither delays the other.
      stream = origin.device->for_frees;
      if (!origin.allocated) origin.allocated = origin.stream->Mark();
      stream->Wait(origin.allocated);
      if (current) stream->Wait(current->Mark());
    }
    OPKIT_CUDA_CHECK(cudaFreeAsync(data, stream->handle()));
  }

  // Where an allocation was made.
  struct Origin {
    OfDevice* device = nullptr;
    CUDAStream* stream = nullptr;  // null if cudaMalloc made it
    detail::CUDAMark allocated;  // set for foreign streams, which may be destroyed before the free
  };
  std::mutex mutex_;
  std::map<int, std::unique_ptr<OfDevice>> devices_;
  std::unordered_map<void*, Origin> origins_;
};

// Page-locked host memory, for asynchronous copies to and from devices. Allocating it is far slower
// than allocating plain memory: reuse it. It must outlive the copies that use it; Storage handles
// ensure that.
class CUDAHostAllocator final : public Allocator {
 public:
  const char* name() const override { return "cuda_host"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    CheckCUDADevice({DeviceType::kCUDA, 0});
    const CUDADeviceGuard guard(DeviceWithContext());
    void* data = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    OPKIT_CUDA_CHECK(status);
    return data;
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    try {
      const CUDADeviceGuard guard(DeviceWithContext());
      OPKIT_CUDA_CHECK(cudaFreeHost(data));
    } catch (...) {  // as in CUDAAllocator
    }
  }

 private:
  // Returns the device to make current for a call: page-locked memory belongs to no device, so the
  // call must not make a context.
  static int DeviceWithContext() {
    int current = 0;
    if (CUDADeviceCount() == 1) return current;
    OPKIT_CUDA_CHECK(cudaGetDevice(&current));
    if (detail::HasCUDAContext(current)) return current;
    for (int device = 0; device < CUDADeviceCount(); ++device)
      if (detail::HasCUDAContext(device)) return device;
    return current;
  }
};

namespace detail {
// Registers both allocators. Keeps allocators that the program has set before.
inline const bool cuda_allocators_registered = [] {
  Allocator* none = nullptr;
  static auto* device = new CUDAAllocator;  // never destroyed, like every allocator in the table
  Allocators()[DeviceType::kCUDA].compare_exchange_strong(none, device);
  none = nullptr;
  static auto* host = new CUDAHostAllocator;
  Allocators()[DeviceType::kCUDAHost].compare_exchange_strong(none, host);
  return true;
}();
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_ALLOCATOR_HPP_

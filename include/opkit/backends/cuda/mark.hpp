// CUDAMark: a position in a CUDA stream that other streams and the host can wait for. Holds a CUDA
// event from a pool.
#ifndef OPKIT_BACKENDS_CUDA_MARK_HPP_
#define OPKIT_BACKENDS_CUDA_MARK_HPP_

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "opkit/backends/cuda/device.hpp"
#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class CUDAStream;

namespace detail {

// The idle CUDA events of a device, kept for reuse: creating an event costs more than recording it.
class CUDAEventPool {
 public:
  // Returns the pool of a device. Timed events, which profiles need, cost the device more and have
  // a pool of their own.
  static CUDAEventPool& Get(int device, bool timed) {
    static auto* pools = new std::vector<CUDAEventPool>(2 * static_cast<size_t>(CUDADeviceCount()));
    return (*pools)[2 * Index(device) + timed];
  }
  // Returns an idle or a new event. `device` and `timed` must be those of this pool. Throws CUDA's
  // errors.
  cudaEvent_t Take(int device, bool timed) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        const cudaEvent_t event = idle_.back();
        idle_.pop_back();
        return event;
      }
    }
    CUDADeviceGuard guard(device);
    cudaEvent_t event = nullptr;
    OPKIT_CUDA_CHECK(
        cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }
  void Give(cudaEvent_t event) {
    std::lock_guard lock(mutex_);
    idle_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> idle_;
};

// A mark may be destroyed at any time: waits that were issued for it stay valid.
class CUDAMark {
 public:
  CUDAMark() = default;
  CUDAMark(CUDAMark&& other) noexcept { *this = std::move(other); }
  CUDAMark& operator=(CUDAMark&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(event_, other.event_);
    std::swap(sequence_, other.sequence_);
    std::swap(device_, other.device_);
    std::swap(timed_, other.timed_);
    return *this;
  }
  ~CUDAMark() {
    if (event_) CUDAEventPool::Get(device_, timed_).Give(event_);
  }

  explicit operator bool() const { return event_; }
  CUDAStream& stream() const { return *stream_; }
  cudaEvent_t event() const { return event_; }
  // The mark's number in its stream, in ascending order.
  uint64_t sequence() const { return sequence_; }
  // Blocks the host until the device has passed the mark; returns the device's error.
  cudaError_t Synchronize() const {
    CUDADeviceGuard guard;
    const cudaError_t status = guard.Enter(device_);
    return status == cudaSuccess ? cudaEventSynchronize(event_) : status;
  }
  // Returns cudaSuccess, cudaErrorNotReady, or the device's error.
  cudaError_t Query() const {
    CUDADeviceGuard guard;
    cudaError_t status = guard.Enter(device_);
    if (status == cudaSuccess) status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) ForgetNotReady();
    return status;
  }

 private:
  friend class ::opkit::CUDAStream;  // the only creator of marks

  CUDAMark(CUDAStream* stream, int device, bool timed)
      : stream_(stream),
        event_(CUDAEventPool::Get(device, timed).Take(device, timed)),
        device_(device),
        timed_(timed) {}

  CUDAStream* stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  uint64_t sequence_ = 0;
  int device_ = 0;
  bool timed_ = false;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_MARK_HPP_

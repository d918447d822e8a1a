// CUDAClock: when a device passed the marks in its streams, as times of the host.
#ifndef OPKIT_BACKENDS_CUDA_CLOCK_HPP_
#define OPKIT_BACKENDS_CUDA_CLOCK_HPP_

#include <cuda_runtime_api.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "opkit/backends/cuda/device.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Each device has one, for the life of the process. CUDA says only how much time lies between two
// events, in ms as a float. So the clock passes an event of its own in a stream of its own, whose
// host time it knows to some 10 us, and measures from there; after a second it passes another, as a
// float would by then be coarser than the device's 0.5 us. Thread-safe; not from a stream callback.
class CUDAClock {
 public:
  struct Times {
    int64_t begin, end;  // ns as MonotonicNs counts
  };

  explicit CUDAClock(Device device) : device_(device) {}
  static CUDAClock& Get(Device device) {
    static auto* clocks = [] {
      auto* made = new std::vector<CUDAClock*>;
      for (int i = 0; i < CUDADeviceCount(); ++i)
        made->push_back(new CUDAClock({DeviceType::kCUDA, i}));
      return made;
    }();
    return *(*clocks)[Index(device.index)];
  }

  // Of two timed events that the device has passed. Nothing where CUDA cannot say: a profile then
  // has the host's times.
  std::optional<Times> Between(cudaEvent_t begin, cudaEvent_t end) noexcept {
    const std::lock_guard lock(mutex_);
    const std::optional<int64_t> from_zero = Prepare() ? NsBetween(zero_, begin) : std::nullopt;
    const std::optional<int64_t> length = from_zero ? NsBetween(begin, end) : std::nullopt;
    if (!length) {
      cudaGetLastError();  // what failed here is nobody's launch
      return {};
    }
    return Times{zero_ns_ + *from_zero, zero_ns_ + *from_zero + *length};
  }

 private:
  static constexpr int64_t kRenewNs = 1'000'000'000;

  static std::optional<int64_t> NsBetween(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) return {};
    return std::llround(static_cast<double>(ms) * 1e6);
  }
  bool Prepare() {
    if (zero_ns_ != 0 && MonotonicNs() - zero_ns_ < kRenewNs) return true;
    int previous = 0;
    if (cudaGetDevice(&previous) != cudaSuccess || cudaSetDevice(device_.index) != cudaSuccess)
      return false;
    const bool passed = PassZero();
    cudaSetDevice(previous);
    return passed;
  }
  bool PassZero() {
    if (!stream_ && cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
      return false;
    if (!zero_ && cudaEventCreateWithFlags(&zero_, cudaEventDefault) != cudaSuccess) return false;
    // The device passes the event between the two readings of the host's clock.
    const int64_t before = MonotonicNs();
    if (cudaEventRecord(zero_, stream_) != cudaSuccess ||
        cudaEventSynchronize(zero_) != cudaSuccess)
      return false;
    zero_ns_ = before + (MonotonicNs() - before) / 2;
    return true;
  }

  const Device device_;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t zero_ = nullptr;
  int64_t zero_ns_ = 0;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_CLOCK_HPP_

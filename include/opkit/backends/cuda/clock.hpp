// CUDAClock: when a device passed the marks in its streams, as times of the host.
#ifndef OPKIT_BACKENDS_CUDA_CLOCK_HPP_
#define OPKIT_BACKENDS_CUDA_CLOCK_HPP_

#include <cuda_runtime_api.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "opkit/backends/cuda/stream.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Each device has one, for the life of the process. CUDA says only how much time lies between two
// events, in ms as a float. So the clock passes a mark of its own in a stream of its own, whose
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

  // The times of two timed marks that the device has passed. None where CUDA cannot say: a profile
  // then has the host's times.
  std::optional<Times> Between(const CUDAMark& begin, const CUDAMark& end) noexcept try {
    const std::lock_guard lock(mutex_);
    if (!zero_ || MonotonicNs() - zero_ns_ >= kRenewNs) PassZero();
    const int64_t from = zero_ns_ + NsBetween(zero_, begin);
    return Times{from, from + NsBetween(begin, end)};
  } catch (const std::exception&) {
    return {};
  }

 private:
  static constexpr int64_t kRenewNs = 1'000'000'000;

  static int64_t NsBetween(const CUDAMark& from, const CUDAMark& to) {
    float ms = 0;
    OPKIT_CUDA_CHECK(cudaEventElapsedTime(&ms, from.event(), to.event()));
    return std::llround(static_cast<double>(ms) * 1e6);
  }
  void PassZero() {
    if (!stream_) stream_ = CUDAStream::MakeUnshared(device_);
    // The device passes the mark between the two readings of the host's clock.
    const int64_t before = MonotonicNs();
    CUDAMark mark = stream_->Mark(/*timed=*/true);
    OPKIT_CUDA_CHECK(cudaEventSynchronize(mark.event()));
    zero_ns_ = before + (MonotonicNs() - before) / 2;
    zero_ = std::move(mark);
  }

  const Device device_;
  std::mutex mutex_;
  CUDAStream* stream_ = nullptr;  // lives as long as the process
  CUDAMark zero_;
  int64_t zero_ns_ = 0;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_CLOCK_HPP_

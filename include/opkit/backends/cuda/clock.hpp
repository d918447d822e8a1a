// CUDAClock: converts the times at which a device passed marks in its streams to times of the host.
// CUDAEventState uses it for the device spans of profiles.
#ifndef OPKIT_BACKENDS_CUDA_CLOCK_HPP_
#define OPKIT_BACKENDS_CUDA_CLOCK_HPP_

#include <cuda_runtime_api.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "opkit/backends/cuda/stream.hpp"
#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The clock of one device; it lives as long as the process. CUDA reports only the time between two
// events, in ms as a float. So the clock records a mark in a stream of its own, whose host time is
// known to about 10 us, and measures from that mark. It renews the mark after a second, so that the
// float resolves less than the device's 0.5 us. Thread-safe. Must not be called from a stream
// callback.
class CUDAClock {
 public:
  struct Times {
    int64_t begin, end;  // ns, on the clock of MonotonicNs
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

  // Returns the times of two timed marks that the device has passed; nullopt if CUDA fails to
  // measure them. Profiles then use the host's times.
  std::optional<Times> Between(const CUDAMark& begin, const CUDAMark& end) noexcept try {
    const std::lock_guard lock(mutex_);
    const CUDADeviceGuard guard(device_);
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
  // Renews the mark from which the clock measures. Blocks until the device has passed it.
  void PassZero() {
    if (!stream_) stream_ = CUDAStream::MakeUnshared(device_);
    // The device passes the mark between the two readings of the host's clock.
    const int64_t before = MonotonicNs();
    CUDAMark mark = stream_->Mark(/*timed=*/true);
    OPKIT_CUDA_CHECK(mark.Synchronize());
    zero_ns_ = before + (MonotonicNs() - before) / 2;
    zero_ = std::move(mark);
  }

  const Device device_;
  std::mutex mutex_;
  CUDAStream* stream_ = nullptr;  // lives as long as the process
  CUDAMark zero_;
  int64_t zero_ns_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_CLOCK_HPP_

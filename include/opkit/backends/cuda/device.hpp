// The CUDA devices of the machine, and CUDADeviceGuard, which sets the thread's current device.
#ifndef OPKIT_BACKENDS_CUDA_DEVICE_HPP_
#define OPKIT_BACKENDS_CUDA_DEVICE_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/error.hpp"
#include "opkit/core/device.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the number of devices; 0 without a driver. The driver is queried once.
inline int CUDADeviceCount() {
  static const int count = [] {
    int found = 0;
    if (cudaGetDeviceCount(&found) == cudaSuccess) return found;
    cudaGetLastError();
    return 0;
  }();
  return count;
}

// Throws kInvalidArgument for a device of another type, kUnsupported for a device that this machine
// lacks.
inline void CheckCUDADevice(Device device) {
  if (device.type != DeviceType::kCUDA)
    Throw(ErrorCode::kInvalidArgument, "expected a device of type cuda, found ", ToString(device));
  const int count = CUDADeviceCount();
  if (device.index >= 0 && device.index < count) [[likely]]
    return;
  if (count > 0)
    Throw(ErrorCode::kUnsupported, "there is no ", ToString(device), ": this machine has ", count,
          " CUDA device", count == 1 ? "" : "s");
  int ignored = 0;
  const cudaError_t status = cudaGetDeviceCount(&ignored);
  cudaGetLastError();
  Throw(ErrorCode::kUnsupported, "there is no ", ToString(device),
        ": no CUDA device on this machine (", cudaGetErrorString(status),
        "); run the operator on another device");
}

// Lets kernel selection drop candidates on devices that this machine lacks.
inline const bool kCUDAAvailability = [] {
  SetDeviceAvailability(DeviceType::kCUDA, [](Device device) -> std::string {
    try {
      return CheckCUDADevice(device), "";
    } catch (const Error& error) {
      return error.message();
    }
  });
  return true;
}();

namespace detail {
// Makes the device current for the calling thread. Costs no call if the machine has only this
// device, which is current for every thread, and a cheap one if the device is current already.
inline void MakeCUDADeviceCurrent(int index) {
  if (CUDADeviceCount() == 1) return;
  int current = -1;
  OPKIT_CUDA_CHECK(cudaGetDevice(&current));
  if (current != index) OPKIT_CUDA_CHECK(cudaSetDevice(index));
}
}  // namespace detail

// Makes `index` the calling thread's current device while the guard lives; kAnyDevice changes
// nothing. RunOnDevice does not need a guard, because the operator's context sets the device.
class CUDADeviceGuard {
 public:
  static constexpr int kAnyDevice = -1;

  explicit CUDADeviceGuard(int index) {
    if (index == kAnyDevice) return;
    OPKIT_CUDA_CHECK(cudaGetDevice(&previous_));
    if (previous_ == index)
      previous_ = -1;
    else
      OPKIT_CUDA_CHECK(cudaSetDevice(index));
  }
  explicit CUDADeviceGuard(Device device) : CUDADeviceGuard(device.index) {}
  CUDADeviceGuard(const CUDADeviceGuard&) = delete;
  CUDADeviceGuard& operator=(const CUDADeviceGuard&) = delete;
  ~CUDADeviceGuard() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }

 private:
  int previous_ = -1;  // -1: nothing to restore
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_DEVICE_HPP_

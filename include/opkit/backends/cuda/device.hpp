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
// Returns true if the process has a context on the device. A context takes some hundred MB of the
// device, and a call of CUDA makes one on the current device if there is none.
inline bool HasCUDAContext(int index) {
  using State = int (*)(int device, unsigned* flags, int* active);  // of the driver; 0: success
  static const State state = [] {
    constexpr const char* kName = "cuDevicePrimaryCtxGetState";
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(kName, &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result);
#endif
    if (status != cudaSuccess) cudaGetLastError();
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<State>(found)
               : nullptr;
  }();
  if (!state) return true;
  unsigned flags = 0;
  int active = 0;
  return state(index, &flags, &active) == 0 && active != 0;
}
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
// nothing. If the previous device has no context, `index` stays current, because making the other
// one current again would make a context on it. Costs nothing on a machine with one device.
// RunOnDevice does not need a guard, because the operator's context sets the device.
class CUDADeviceGuard {
 public:
  static constexpr int kAnyDevice = -1;

  CUDADeviceGuard() = default;  // changes nothing until Enter
  explicit CUDADeviceGuard(int index) { OPKIT_CUDA_CHECK(Enter(index)); }
  explicit CUDADeviceGuard(Device device) : CUDADeviceGuard(device.index) {}
  CUDADeviceGuard(const CUDADeviceGuard&) = delete;
  CUDADeviceGuard& operator=(const CUDADeviceGuard&) = delete;
  // As the constructor, but returns CUDA's error. At most one call.
  cudaError_t Enter(int index) {
    if (index == kAnyDevice || CUDADeviceCount() == 1) return cudaSuccess;
    int current = 0;
    if (const cudaError_t status = cudaGetDevice(&current); status != cudaSuccess) return status;
    if (current == index) return cudaSuccess;
    const bool restores = detail::HasCUDAContext(current);
    const cudaError_t status = cudaSetDevice(index);
    if (status == cudaSuccess && restores) previous_ = current;
    return status;
  }
  ~CUDADeviceGuard() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }

 private:
  int previous_ = -1;  // -1: nothing to restore
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_DEVICE_HPP_

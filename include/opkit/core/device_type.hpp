// DeviceType: the kinds of devices, with DLPack's numbers, and the facts that the toolkit knows
// about each of them without its backend. No other portable header names a vendor's devices.
#ifndef OPKIT_CORE_DEVICE_TYPE_HPP_
#define OPKIT_CORE_DEVICE_TYPE_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class DeviceType : int32_t {
  kCPU = 1,
  kCUDA = 2,
  kCUDAHost = 3,
  kOpenCL = 4,
  kVulkan = 7,
  kMetal = 8,
  kROCM = 10,
  kROCMHost = 11,
  kExtDev = 12,
  kCUDAManaged = 13,
  kOneAPI = 14,
  kGPU = kCUDA,  // MXNet's "gpu"
  // Not a type of DLPack. Its tensors are in CPU memory, and are exported as CPU tensors.
  kCPUStream = 64,
  kFirstUserDevice = 80,
};

namespace detail {

struct KnownDeviceType {
  DeviceType type;
  const char* name;
  DeviceType memory;     // the type whose allocator and copies it uses
  bool host_accessible;  // the host may dereference pointers to its memory
};
// Common types stand first, because lookups go from the front.
inline constexpr KnownDeviceType kKnownDeviceTypes[] = {
    {DeviceType::kCPU, "cpu", DeviceType::kCPU, true},
    {DeviceType::kCPUStream, "cpu_stream", DeviceType::kCPU, true},
    {DeviceType::kCUDA, "cuda", DeviceType::kCUDA, false},
    {DeviceType::kCUDAHost, "cuda_host", DeviceType::kCUDAHost, true},
    {DeviceType::kOpenCL, "opencl", DeviceType::kOpenCL, false},
    {DeviceType::kVulkan, "vulkan", DeviceType::kVulkan, false},
    {DeviceType::kMetal, "metal", DeviceType::kMetal, false},
    {DeviceType::kROCM, "rocm", DeviceType::kROCM, false},
    {DeviceType::kROCMHost, "rocm_host", DeviceType::kROCMHost, true},
    {DeviceType::kExtDev, "ext_dev", DeviceType::kExtDev, false},
    {DeviceType::kCUDAManaged, "cuda_managed", DeviceType::kCUDAManaged, true},
    {DeviceType::kOneAPI, "oneapi", DeviceType::kOneAPI, false},
};
// Returns null for a type of the user's own.
constexpr const KnownDeviceType* FindKnownDeviceType(DeviceType type) {
  for (const KnownDeviceType& known : kKnownDeviceTypes)
    if (known.type == type) return &known;
  return nullptr;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_TYPE_HPP_

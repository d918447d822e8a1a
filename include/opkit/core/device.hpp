// Where a tensor's bytes live and an operator runs: {type, index}. Types have DLPack's numbers;
// the toolkit's own and a user's begin where DLPack's end.
#ifndef OPKIT_CORE_DEVICE_HPP_
#define OPKIT_CORE_DEVICE_HPP_

#include <new>
#include <string>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {

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
  // Not DLPack's. Its memory is the CPU's, and is exported as such.
  kCPUStream = 64,
  kFirstUserDevice = 80,
};

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// What the toolkit has to know of a device type before it can touch its memory.
struct DeviceTypeInfo {
  std::string name;                         // "cpu", "cuda", …; unique, used in text and defs
  DeviceType memory = DeviceType::kExtDev;  // whose allocator and copies it uses
  bool host_accessible = false;             // a host pointer may be dereferenced
};

namespace detail {

struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  // In place: what a library that is unloaded has on the heap would be lost.
  struct Entries {
    static constexpr int kMost = 64;  // AllocatorTable has slots for fewer of a user's
    Entries(std::initializer_list<Entry> built_in) {
      for (const Entry& entry : built_in) all[count++] = entry;
    }
    const Entry* begin() const { return all; }
    const Entry* end() const { return all + count; }
    Entry all[kMost];
    int count = 0;
  };
  detail::Mutex mutex;
  Entries entries{
      {DeviceType::kCPU, {"cpu", DeviceType::kCPU, true}},
      {DeviceType::kCUDA, {"cuda", DeviceType::kCUDA, false}},
      {DeviceType::kCUDAHost, {"cuda_host", DeviceType::kCUDAHost, true}},
      {DeviceType::kOpenCL, {"opencl", DeviceType::kOpenCL, false}},
      {DeviceType::kVulkan, {"vulkan", DeviceType::kVulkan, false}},
      {DeviceType::kMetal, {"metal", DeviceType::kMetal, false}},
      {DeviceType::kROCM, {"rocm", DeviceType::kROCM, false}},
      {DeviceType::kROCMHost, {"rocm_host", DeviceType::kROCMHost, true}},
      {DeviceType::kExtDev, {"ext_dev", DeviceType::kExtDev, false}},
      {DeviceType::kCUDAManaged, {"cuda_managed", DeviceType::kCUDAManaged, true}},
      {DeviceType::kOneAPI, {"oneapi", DeviceType::kOneAPI, false}},
      {DeviceType::kCPUStream, {"cpu_stream", DeviceType::kCPU, true}},
  };
};

OPKIT_COLD DeviceTypeRegistry& DeviceTypes();

}  // namespace detail

OPKIT_COLD DeviceTypeInfo GetDeviceTypeInfo(DeviceType type);

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
OPKIT_COLD DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info);

// True when the host may dereference pointers to this device's memory. No lock for the common ones.
inline bool IsHostAccessible(DeviceType type) {
  if (type == DeviceType::kCPU || type == DeviceType::kCPUStream) return true;
  if (type == DeviceType::kCUDA) return false;
  return GetDeviceTypeInfo(type).host_accessible;
}

// The device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on cpu:0.
Device MemoryDevice(Device device);

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
OPKIT_COLD inline std::string ToString(Device device) {
  return device.index == 0 ? ToString(device.type)
                           : StrCat(ToString(device.type), ":", device.index);
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/device.ipp"
#endif

#endif  // OPKIT_CORE_DEVICE_HPP_

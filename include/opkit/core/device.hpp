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

OPKIT_COLD inline DeviceTypeRegistry& DeviceTypes() {
  alignas(DeviceTypeRegistry) static unsigned char room[sizeof(DeviceTypeRegistry)];
  static auto* registry = new (room) DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

OPKIT_COLD inline DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
OPKIT_COLD inline DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries) {
    if (entry.type == type && entry.info.name == info.name) return type;
    if (entry.type == type || entry.info.name == info.name)
      Throw(ErrorCode::kAlreadyExists, "device type ", static_cast<int32_t>(type), " '", info.name,
            "' clashes with ", static_cast<int32_t>(entry.type), " '", entry.info.name, "'");
  }
  auto& entries = registry.entries;
  if (entries.count == entries.kMost)
    Throw(ErrorCode::kOutOfRange, "device type '", info.name, "' is one more than the ",
          static_cast<int>(entries.kMost), " that a program may have");
  entries.all[entries.count++] = {type, std::move(info)};
  return type;
}

// True when the host may dereference pointers to this device's memory. No lock for the common ones.
inline bool IsHostAccessible(DeviceType type) {
  if (type == DeviceType::kCPU || type == DeviceType::kCPUStream) return true;
  if (type == DeviceType::kCUDA) return false;
  return GetDeviceTypeInfo(type).host_accessible;
}

// The device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on cpu:0.
inline Device MemoryDevice(Device device) {
  if (device.type == DeviceType::kCPU || device.type == DeviceType::kCPUStream) return {};
  if (device.type == DeviceType::kCUDA) return device;
  return {GetDeviceTypeInfo(device.type).memory, device.index};
}

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
OPKIT_COLD inline std::string ToString(Device device) {
  return device.index == 0 ? ToString(device.type)
                           : StrCat(ToString(device.type), ":", device.index);
}

}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_HPP_

// Device: {type, index}, the place where a tensor's bytes are and an operator runs. A program may
// register device types of its own beside those of core/device_type.hpp.
#ifndef OPKIT_CORE_DEVICE_HPP_
#define OPKIT_CORE_DEVICE_HPP_

#include <new>
#include <string>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/core/device_type.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

namespace detail {

// The facts about a device type that the toolkit needs to use its memory.
struct DeviceTypeInfo {
  std::string name;                         // "cpu", …; unique, used in messages and in JSON
  DeviceType memory = DeviceType::kExtDev;  // the type whose allocator and copies it uses
  bool host_accessible = false;             // the host may dereference pointers to its memory
};

// The known device types and those that the program has registered.
struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  // An array, not a vector: heap memory of a library leaks when the library is unloaded.
  struct Entries {
    static constexpr int kMost = 64;  // room for a user's type in every slot of a DeviceTable
    Entries() {
      for (const KnownDeviceType& known : kKnownDeviceTypes)
        all[count++] = {known.type, {known.name, known.memory, known.host_accessible}};
    }
    const Entry* begin() const { return all; }
    const Entry* end() const { return all + count; }
    Entry all[kMost];
    int count = 0;
  };
  Mutex mutex;
  Entries entries;
};

OPKIT_COLD DeviceTypeRegistry& DeviceTypes();

}  // namespace detail

OPKIT_COLD detail::DeviceTypeInfo GetDeviceTypeInfo(DeviceType type);

// Returns the number of the device type of that name; -1 if this program knows none.
OPKIT_COLD int FindDeviceType(std::string_view name);

// Registers a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless. Errors: kAlreadyExists for another name or number of a known type;
// kOutOfRange for too many types.
OPKIT_COLD DeviceType RegisterDeviceType(DeviceType type, detail::DeviceTypeInfo info);

// Sets the function that explains why a device of the type is missing. The function returns an
// empty string for a device that exists. Backends call this. Error (kOutOfRange) for a type outside
// of 0 to 127.
OPKIT_COLD void SetDeviceAvailability(DeviceType type, std::string (*why_not)(Device));
// Returns the reason why the device is missing; empty if it exists, or if its type has no such
// function.
OPKIT_COLD std::string WhyNoDevice(Device device);

// True if the host may dereference pointers to this device's memory. Takes a lock only for types
// that the program has registered.
inline bool IsHostAccessible(DeviceType type) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(type);
  return known ? known->host_accessible : GetDeviceTypeInfo(type).host_accessible;
}

// Returns the device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on
// cpu:0.
Device MemoryDevice(Device device);

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
OPKIT_COLD inline std::string ToString(Device device) {
  return device.index == 0 ? ToString(device.type)
                           : StrCat(ToString(device.type), ":", device.index);
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/device.ipp"
#endif

#endif  // OPKIT_CORE_DEVICE_HPP_

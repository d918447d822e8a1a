// The definitions of opkit/core/device.hpp.
#ifndef OPKIT_CORE_IMPL_DEVICE_IPP_
#define OPKIT_CORE_IMPL_DEVICE_IPP_

#include "opkit/core/device.hpp"
#include "opkit/core/device_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE DeviceTypeRegistry& DeviceTypes() {
  alignas(DeviceTypeRegistry) static unsigned char room[sizeof(DeviceTypeRegistry)];
  static auto* registry = new (room) DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

OPKIT_INLINE detail::DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

OPKIT_INLINE int FindDeviceType(std::string_view name) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

OPKIT_INLINE DeviceType RegisterDeviceType(DeviceType type, detail::DeviceTypeInfo info) {
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

namespace detail {
OPKIT_INLINE int DeviceSlot(DeviceType type) {
  const int slot = static_cast<int>(type);
  if (slot < 0 || slot >= kDeviceSlots)
    Throw(ErrorCode::kOutOfRange, "device type ", slot, " is outside 0 to ", kDeviceSlots - 1);
  return slot;
}
// The functions given to SetDeviceAvailability.
inline constinit DeviceTable<std::string (*)(Device)> g_why_no_device;
}  // namespace detail

OPKIT_INLINE void SetDeviceAvailability(DeviceType type, std::string (*why_not)(Device)) {
  detail::g_why_no_device[type].store(why_not, std::memory_order_release);
}
OPKIT_INLINE std::string WhyNoDevice(Device device) {
  const auto why_not = detail::g_why_no_device.Find(device.type);
  return why_not ? why_not(device) : std::string();
}

OPKIT_INLINE Device MemoryDevice(Device device) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(device.type);
  if (!known) return {GetDeviceTypeInfo(device.type).memory, device.index};
  return known->memory == DeviceType::kCPU ? Device{} : Device{known->memory, device.index};
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_DEVICE_IPP_

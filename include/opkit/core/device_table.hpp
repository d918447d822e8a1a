// DeviceTable: a pointer for each device type, such as its allocator. Backends fill the tables;
// every allocation, event and call reads them without a lock.
#ifndef OPKIT_CORE_DEVICE_TABLE_HPP_
#define OPKIT_CORE_DEVICE_TABLE_HPP_

#include <atomic>

#include "opkit/core/device_type.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int kDeviceSlots = 128;  // device types 0 to 127 have a place in each table

// Returns the type's place in a table. Error (kOutOfRange) if it has none.
int DeviceSlot(DeviceType type);

// Pointer points to an object or a function. Thread-safe.
template <class Pointer>
class DeviceTable {
 public:
  // Error (kOutOfRange) for a type outside of 0 to 127.
  std::atomic<Pointer>& operator[](DeviceType type) { return slots_[DeviceSlot(type)]; }
  // Returns null if the type has no pointer, or is outside of 0 to 127. Acquire: pairs with the
  // store, which publishes the object behind the pointer.
  Pointer Find(DeviceType type) const {
    const auto slot = static_cast<uint32_t>(type);
    return slot < kDeviceSlots ? slots_[slot].load(std::memory_order_acquire) : nullptr;
  }

 private:
  std::atomic<Pointer> slots_[kDeviceSlots] = {};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_CORE_DEVICE_TABLE_HPP_

// The devices that the engine can issue work on.
#ifndef OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_
#define OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_

#include "opkit/engine/dependency/engine_device.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline std::atomic<IssueFunction>& RegisteredIssue(DeviceType type) {
  static std::atomic<IssueFunction> functions[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return functions[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

OPKIT_INLINE void RegisterIssue(DeviceType type, IssueFunction issue) {
  RegisteredIssue(type).store(issue, std::memory_order_release);
}

OPKIT_INLINE IssueFunction IssueFunctionOf(Device device) {
  if (device.type == DeviceType::kCPUStream) return &IssueOn<CPUStreamContext>;
  // Acquire: pairs with the registration.
  if (IssueFunction issue = RegisteredIssue(device.type).load(std::memory_order_acquire))
    return issue;
  Throw(ErrorCode::kUnsupported, "expected a device that the engine can issue work on, found ",
        ToString(device), "; call RegisterEngineDevice with its context first");
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_

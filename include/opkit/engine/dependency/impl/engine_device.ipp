// The devices that the engine can issue work on.
#ifndef OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_
#define OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_

#include "opkit/engine/dependency/engine_device.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline DeviceTable<IssueFunction>& IssueFunctions() {
  static constinit DeviceTable<IssueFunction> table;
  return table;
}

OPKIT_INLINE void RegisterIssue(DeviceType type, IssueFunction issue) {
  IssueFunctions()[type].store(issue, std::memory_order_release);
}

OPKIT_INLINE IssueFunction IssueFunctionOf(Device device) {
  if (device.type == DeviceType::kCPUStream) return &IssueOn<CPUStreamContext>;
  if (const IssueFunction issue = IssueFunctions().Find(device.type)) return issue;
  Throw(ErrorCode::kUnsupported, "expected a device that the engine can issue work on, found ",
        ToString(device), "; call RegisterEngineDevice with its context first");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_DEVICE_IPP_

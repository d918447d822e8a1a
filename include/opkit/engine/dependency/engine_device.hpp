// How the engine issues an operation on a device: on a stream of that device, copies on another
// one. A device takes part by one line that names its context.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_

#include "opkit/device/cpu_stream.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Issues `work` on that stream and records the event behind it.
using IssueFunction = void (*)(Device device, int stream_id, UniqueFunction<void()> work,
                               Event& event);

inline constexpr int kComputeStream = 0;
inline constexpr int kCopyStream = 1;

template <class Context>
void IssueOn(Device device, int stream_id, UniqueFunction<void()> work, Event& event) {
  Context context(device);
  context.SwitchToDevice(stream_id);
  if constexpr (requires { context.Launch(std::move(work)); }) {
    context.Launch(std::move(work));
  } else {
    work();
  }
  context.Record(event);
}

// What RegisterEngineDevice was told; the CPU's streams need not be registered.
inline std::atomic<IssueFunction>& RegisteredIssue(DeviceType type) {
  static std::atomic<IssueFunction> functions[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return functions[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

template <class CPUStream = CPUStreamContext>
IssueFunction IssueFunctionOf(Device device) {
  if (device.type == DeviceType::kCPUStream) return &IssueOn<CPUStream>;
  // Acquire: pairs with the registration.
  if (IssueFunction issue = RegisteredIssue(device.type).load(std::memory_order_acquire))
    return issue;
  Throw(ErrorCode::kUnsupported, "expected a device that the engine can issue work on, found ",
        ToString(device), "; call RegisterEngineDevice with its context first");
}

}  // namespace detail

// Lets operations be pushed with a device of that type. Where the context has a Launch, the closure
// runs on the stream; otherwise it runs on a thread of the pool, with the stream as that thread's
// current one, and issues the work itself.
template <DeviceContext Context>
bool RegisterEngineDevice() {
  detail::RegisteredIssue(Context::kDeviceType)
      .store(&detail::IssueOn<Context>, std::memory_order_release);
  return true;
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_

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
  if constexpr (requires { context.Launch(std::move(work)); })
    context.Launch(std::move(work));
  else
    work();
  context.Record(event);
}

void RegisterIssue(DeviceType type, IssueFunction issue);
// The registered function, or that of the CPU's streams.
IssueFunction IssueFunctionOf(Device device);

}  // namespace detail

// Lets operations be pushed with a device of that type. Where the context has a Launch, the closure
// runs on the stream; otherwise it runs on a thread of the pool, with the stream as that thread's
// current one, and issues the work itself.
template <DeviceContext Context>
bool RegisterEngineDevice() {
  detail::RegisterIssue(Context::kDeviceType, &detail::IssueOn<Context>);
  return true;
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/dependency/impl/engine_device.ipp"
#endif

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_

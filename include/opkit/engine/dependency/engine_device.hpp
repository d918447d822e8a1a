// How the engine issues operations on a device: on one stream, copies on another.
// RegisterEngineDevice, one line that names a context, adds a device.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_

#include "opkit/device/cpu_stream.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
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
// Returns the registered function, or that of CPU streams. Error (kUnsupported) if there is none.
IssueFunction IssueFunctionOf(Device device);

}  // namespace detail

// Allows operations to be pushed with a device of that type. If the context has a Launch, the
// closure runs on the stream. Otherwise it runs on a thread of the pool, where the stream is the
// current one, and issues the work itself.
template <DeviceContext Context>
bool RegisterEngineDevice() {
  detail::RegisterIssue(Context::kDeviceType, &detail::IssueOn<Context>);
  return true;
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/dependency/impl/engine_device.ipp"
#endif

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_DEVICE_HPP_

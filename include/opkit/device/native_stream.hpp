// Native streams that another image or the author has created: each backend with native streams
// registers a function by which its contexts issue work on a given stream. Libraries use it to run
// their operators on their host's streams; invoked operators use it to run on their caller's
// stream.
#ifndef OPKIT_DEVICE_NATIVE_STREAM_HPP_
#define OPKIT_DEVICE_NATIVE_STREAM_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/core/device.hpp"
#include "opkit/core/device_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Calls issue(), whose contexts on `device` issue their work on `stream`, whatever stream id they
// are switched to.
using NativeStreamFunction = void (*)(Device device, void* stream, FunctionRef<void()> issue);

namespace detail {
OPKIT_IMAGE_LOCAL inline constinit DeviceTable<NativeStreamFunction> g_native_streams;
}

// Registers a device with native streams, by one line in its header. Thread-safe. Error
// (kOutOfRange) for a type outside of 0 to 127.
//   [[maybe_unused]] inline const bool kNpuStreams = RegisterNativeStreams(kNpu,
//                                                                          &IssueOnNpuStream);
OPKIT_IMAGE_LOCAL inline bool RegisterNativeStreams(DeviceType type, NativeStreamFunction issue) {
  detail::g_native_streams[type].store(issue, std::memory_order_release);
  return true;
}
// Returns null if no header of the type's backend was included.
OPKIT_IMAGE_LOCAL inline NativeStreamFunction FindNativeStreams(DeviceType type) {
  return detail::g_native_streams.Find(type);
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_NATIVE_STREAM_HPP_

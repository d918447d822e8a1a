// Work on a stream that another image, or the author, has made: each backend with native streams
// says here how its contexts issue on one. Libraries run their operators on their host's streams by
// it, and operators that others invoke run on the stream of their caller.
#ifndef OPKIT_DEVICE_NATIVE_STREAM_HPP_
#define OPKIT_DEVICE_NATIVE_STREAM_HPP_

#include <atomic>

#include "opkit/base/function_ref.hpp"
#include "opkit/core/device.hpp"

namespace opkit::inline OPKIT_ABI {

// Calls issue(), whose contexts on `device` issue their work on `stream`, whatever stream id they
// are switched to.
using NativeStreamFunction = void (*)(Device device, void* stream, FunctionRef<void()> issue);

// Registers a device with native streams, by one line in its header. Thread-safe.
//   [[maybe_unused]] inline const bool kNpuStreams = RegisterNativeStreams(kNpu,
//   &IssueOnNpuStream);
OPKIT_IMAGE_LOCAL bool RegisterNativeStreams(DeviceType type, NativeStreamFunction issue);
// Null where no header of the type's backend was included.
OPKIT_IMAGE_LOCAL NativeStreamFunction FindNativeStreams(DeviceType type);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/native_stream.ipp"
#endif

#endif  // OPKIT_DEVICE_NATIVE_STREAM_HPP_

// RecordedWork: work that was issued on a device once and that the device repeats by one call, such
// as a CUDA graph. A backend whose device can do this registers a function; plans record their
// steps with it.
#ifndef OPKIT_DEVICE_RECORDED_WORK_HPP_
#define OPKIT_DEVICE_RECORDED_WORK_HPP_

#include <span>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/core/device_table.hpp"
#include "opkit/device/event.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Each launch has the addresses and numbers with which the work was recorded. Not synchronised.
class RecordedWork : public detail::RefCounted {
 public:
  // A copy within the device's memory.
  struct Move {
    void* to;
    const void* from;
    int64_t bytes;
  };

  // Issues the copies in `before`, the work, and the copies in `after`, on the calling thread's
  // stream 0 of the device, and records `event` behind them. Throws if the device does not accept
  // them; nothing is then under way.
  virtual void Launch(std::span<const Move> before, std::span<const Move> after, Event& event) = 0;
  // Blocks until the device has finished the latest launch, also if its event was cancelled.
  virtual void Finish() noexcept = 0;
};

// The streams on which work is recorded, during the recording.
class WorkRecorder {
 public:
  // Returns a mark of the work that has been issued on the stream so far.
  virtual int Mark(int stream) = 0;
  // Makes work that is issued on the stream from now on run after the mark.
  virtual void Wait(int stream, int mark) = 0;

 protected:
  ~WorkRecorder() = default;
};

// Calls issue(recorder) once and returns the work that it has issued. During the call the contexts
// of this thread issue their work for `device` on the recorder's streams, which have the ids from 0
// to `streams` - 1, and the device does not run it. Throws the errors of `issue`, and kUnsupported
// for work that cannot be repeated, such as an allocation on the device, or inside of another
// recording.
using RecordFunction = detail::IntrusivePtr<RecordedWork> (*)(
    Device device, int streams, FunctionRef<void(WorkRecorder& recorder)> issue);

namespace detail {
OPKIT_IMAGE_LOCAL inline constinit DeviceTable<RecordFunction> g_record_functions;
}

// Registers a device that can repeat work, by one line in its header. Thread-safe. Throws
// kOutOfRange for a type outside of 0 to 127.
OPKIT_IMAGE_LOCAL inline bool RegisterRecording(DeviceType type, RecordFunction record) {
  detail::g_record_functions[type].store(record, std::memory_order_release);
  return true;
}
// Returns null if the devices of the type cannot repeat work.
OPKIT_IMAGE_LOCAL inline RecordFunction FindRecording(DeviceType type) {
  return detail::g_record_functions.Find(type);
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_RECORDED_WORK_HPP_

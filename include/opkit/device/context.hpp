// Context: the device-side handle an operator runs with. The concept that every device meets, and
// CPUContext, where issuing work means doing it.
#ifndef OPKIT_DEVICE_CONTEXT_HPP_
#define OPKIT_DEVICE_CONTEXT_HPP_

#include "opkit/device/event.hpp"

namespace opkit::inline OPKIT_ABI {

// A user's own device is a class like CPUContext below, a REGISTER_<DEVICE>_OPERATOR macro of one
// line (op/registration.hpp), and, where its memory is not the host's, an Allocator and copies.
template <class C>
concept DeviceContext = requires(C& context, const C& constant, Event& event, int stream_id) {
  { C::kDeviceType } -> std::convertible_to<DeviceType>;
  { C::kAsynchronous } -> std::convertible_to<bool>;  // work goes on after it was issued
  requires std::constructible_from<C, Device>;
  { constant.device() } -> std::convertible_to<Device>;
  context.SwitchToDevice(stream_id);        // the stream that further work is issued on
  context.Record(event);                    // SCHEDULED; done when the work issued so far is
  context.WaitEvent(std::as_const(event));  // work issued from now on waits for the event
  context.FinishDeviceComputation();        // blocks until this stream has drained, rethrows
  { C::IsStreamFree(Device{}, stream_id) } -> std::convertible_to<bool>;
};

// Whether an operator may be issued before the work of those that it depends on is done, where that
// was issued to the same kind of device: as the context's member of that name says, which is true
// of every asynchronous context without one.
template <DeviceContext C>
inline constexpr bool kSupportsAsyncScheduling = C::kAsynchronous;
template <DeviceContext C>
  requires requires { C::kSupportsAsyncScheduling; }
inline constexpr bool kSupportsAsyncScheduling<C> = C::kSupportsAsyncScheduling;

// Abilities that a context may have besides, each a concept.
//
// Work that is a host function, at its place in the stream: CPUContext, CPUStreamContext, and a
// user's own. ParallelFor, strided inputs and function operators' launch come with it.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };
// Work that is issued on a stream of the device's own kind, given to copies and to functions.
template <class C>
concept NativeStreamContext = requires(C& context) {
  { context.native_stream() } -> std::convertible_to<void*>;
};
// A context whose device has a clock. `BeginSpan` is called where a run begins to issue, when a
// profile records it: the device tells the span of `event` when the work was there
// (SpanSink::RanOnDevice).
template <class C>
concept TimedContext = requires(C& context, Event& event) { context.BeginSpan(event); };
// A context that keeps memory until the work issued so far is done, for runs without an event.
template <class C>
concept RetainingContext =
    requires(C& context, RefCountedList memory) { context.Retain(std::move(memory)); };
// A stream that is an object of the toolkit's or the author's.
template <class C>
concept StreamContext = requires(C& context) { &context.stream(); };

// Synchronous host execution. Every call costs next to nothing.
class CPUContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPU;
  static constexpr bool kAsynchronous = false;

  CPUContext() = default;
  explicit CPUContext(Device device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUContext cannot run on ", ToString(device));
  }

  Device device() const { return {}; }
  void SwitchToDevice(int = 0) {}
  // Work is done when it is issued: an operator with an asynchronous part finishes the event
  // itself.
  void Record(Event& event) { event.SetScheduled(); }
  void WaitEvent(const Event& event) { event.Finish(); }
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }

  // Runs `work` now.
  template <class F>
  void Launch(F&& work) {
    work();
  }
};

}  // namespace opkit

#endif  // OPKIT_DEVICE_CONTEXT_HPP_

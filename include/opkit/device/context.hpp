// Context: the handle through which an operator issues work on its device. Defines the concept that
// the context of every device meets, and CPUContext, which does the work when it is issued.
#ifndef OPKIT_DEVICE_CONTEXT_HPP_
#define OPKIT_DEVICE_CONTEXT_HPP_

#include "opkit/device/event.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The context of a device. A user's own device needs a class like CPUContext below and a
// REGISTER_<DEVICE>_OPERATOR macro of one line (op/registration.hpp). If its memory is not the
// host's, it also needs an Allocator and copies.
template <class C>
concept DeviceContext = requires(C& context, const C& constant, Event& event, int stream_id) {
  { C::kDeviceType } -> std::convertible_to<DeviceType>;
  { C::kAsynchronous } -> std::convertible_to<bool>;  // true: issuing returns before the work ends
  requires std::constructible_from<C, Device>;
  { constant.device() } -> std::convertible_to<Device>;
  context.SwitchToDevice(stream_id);        // the stream that further work is issued on
  context.Record(event);                    // SCHEDULED; completes after the work issued so far
  context.WaitEvent(std::as_const(event));  // work issued from now on waits for the event
  context.FinishDeviceComputation();        // blocks until this stream has drained, rethrows
  { C::IsStreamFree(Device{}, stream_id) } -> std::convertible_to<bool>;
};

// True if work may be issued before its predecessors on the same device type are done. Default:
// every asynchronous context; override with C::kSupportsAsyncScheduling.
template <DeviceContext C>
inline constexpr bool kSupportsAsyncScheduling = C::kAsynchronous;
template <DeviceContext C>
  requires requires { C::kSupportsAsyncScheduling; }
inline constexpr bool kSupportsAsyncScheduling<C> = C::kSupportsAsyncScheduling;

namespace detail {

// Optional abilities of a context, each a concept.
//
// A context that runs host functions in the order of its stream: CPUContext, CPUStreamContext, or a
// user's own. It supports ParallelFor, strided inputs and the launch of function operators.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };

// A context that issues work on a native stream of its device; copies and functions receive that
// stream.
template <class C>
concept NativeStreamContext = requires(C& context) {
  { context.native_stream() } -> std::convertible_to<void*>;
};

// A context whose device has a clock. While a profile is recorded, a run calls `BeginSpan` before
// it issues its work. The device then reports the times of that work for the span of `event`
// (SpanSink::RanOnDevice).
template <class C>
concept TimedContext = requires(C& context, Event& event) { context.BeginSpan(event); };

// A context that can keep memory alive until the work issued so far is done, for runs without an
// event.
template <class C>
concept RetainingContext =
    requires(C& context, RefCountedList memory) { context.Retain(std::move(memory)); };

// A context whose stream is an object of the toolkit or of the author.
template <class C>
concept StreamContext = requires(C& context) { &context.stream(); };

}  // namespace detail

// Runs work on the host, synchronously. Every call is cheap.
class CPUContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPU;
  static constexpr DeviceType GetDeviceType() { return kDeviceType; }  // Caffe2's spelling
  static constexpr bool kAsynchronous = false;

  CPUContext() = default;
  explicit CPUContext(Device device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUContext cannot run on ", ToString(device));
  }

  Device device() const { return {}; }
  void SwitchToDevice(int = 0) {}
  // Work is done when it is issued; an operator with an asynchronous part finishes the event
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

}}  // namespace opkit

#endif  // OPKIT_DEVICE_CONTEXT_HPP_

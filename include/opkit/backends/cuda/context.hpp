// CUDAContext: issues an operator's work on a CUDA stream. Includes all of the CUDA backend except
// ParallelFor. A host compiler can compile this header, so an operator that only calls a library
// may be in a .cc file.
#ifndef OPKIT_BACKENDS_CUDA_CONTEXT_HPP_
#define OPKIT_BACKENDS_CUDA_CONTEXT_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/allocator.hpp"
#include "opkit/backends/cuda/copy.hpp"
#include "opkit/backends/cuda/event.hpp"
#include "opkit/backends/cuda/recording.hpp"
#include "opkit/backends/cuda/registration.hpp"
#include "opkit/device/context.hpp"
#include "opkit/device/native_stream.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   bool RunOnDevice() override {
//     …
//     MyKernel<<<blocks, threads, 0, context_.cuda_stream()>>>(…);
//     return true;                                   // launch errors are found by the context
//   }
//
// Not thread-safe, like the operator that owns it. A run issues work on the streams of the thread
// that calls it (CUDAStream::Get).
class CUDAContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCUDA;
  static constexpr bool kAsynchronous = true;

  // Throws kInvalidArgument for a device of another type, kUnsupported if this machine has no such
  // device.
  explicit CUDAContext(Device device = {kDeviceType, 0}) : device_(device) {
    CheckCUDADevice(device);
  }

  Device device() const { return device_; }
  // Returns the stream to issue on. Makes the stream and its device current for the thread.
  CUDAStream& stream() {
    CUDAStream* const current = CUDAStream::Current(device_.index);
    if (!stream_ || (current != stream_ && stream_->is_foreign())) [[unlikely]]
      SwitchToDevice(0);  // the CUDAStreamScope of a foreign stream has ended
    else if (current != stream_ || CUDADeviceCount() > 1)
      MakeCurrent();
    return *stream_;
  }
  cudaStream_t cuda_stream() { return stream().handle(); }
  void* native_stream() { return cuda_stream(); }  // for CopyAsync and libraries

  // Makes the device and this thread's stream `stream_id` current, until the next switch. The new
  // stream also waits for the events awaited since the last Record. Throws kUnsupported while the
  // program captures the stream into a CUDA graph.
  void SwitchToDevice(int stream_id = 0) {
    CUDAStream* stream = &CUDAStream::Get(device_, stream_id);
    stream->CheckNotCapturingYet();
    detail::MakeCUDADeviceCurrent(device_.index);
    CUDAStream::SetCurrent(*stream);
    if (std::exchange(stream_, stream) == stream) return;
    for (const auto& awaited : awaited_) awaited->MakeWait(*stream);
  }

  // Makes `event` complete when the work issued so far is done. Throws the errors of earlier
  // launches and unchecked CUDA calls of this thread.
  void Record(Event& event) {
    detail::CheckCUDALaunches();
    auto* state = dynamic_cast<detail::CUDAEventState*>(event.state().get());
    if (!state)
      Throw(ErrorCode::kInvalidArgument, "an event of ", ToString(event.device()),
            " cannot be recorded on ", ToString(device_), "; make it with that device");
    state->Record(stream());
    // The issued work runs after the awaited events and fails with them. If an awaited event is
    // cancelled, `event` fails at once, not when the device reaches that point.
    for (auto& awaited : std::exchange(awaited_, {})) {
      detail::CUDAEventState* cause = awaited.get();  // lives during its callback
      cause->AddQuietCallback([cause, effect = event.state()] {
        if (cause->status() == EventStatus::kFailed) effect->Complete(cause->exception());
      });
    }
  }
  // Begins the device span of `event`: the device's clock times the work issued on this stream from
  // here until `event` is recorded. If that fails, the span has the host's times; the run itself
  // reports errors of the device.
  void BeginSpan(Event& event) noexcept try {
    if (auto* state = dynamic_cast<detail::CUDAEventState*>(event.state().get()))
      state->BeginSpan(stream());
  } catch (const std::exception&) {
  }
  // Makes work that is issued from now on run after `event`. A CUDA event of any device blocks the
  // stream, not the host; an event of this stream blocks nothing. An event of another device type,
  // or an event SCHEDULED by hand, blocks the calling thread: a stream that waits for an event that
  // never completes could not be released. Throws kFailedPrecondition for an event that was never
  // recorded, and the exception of a FAILED event.
  void WaitEvent(const Event& event) {
    auto* state = dynamic_cast<detail::CUDAEventState*>(event.state().get());
    // The device is not asked about an event of this stream, because nothing will wait for it.
    const bool is_in_order = state && state->IsInOrderOf(stream());
    const EventStatus status = is_in_order ? state->status() : event.Query();
    if (status == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition,
            "a stream cannot wait for an event that was never recorded: run the operator first");
    if (IsTerminal(status)) return event.RethrowIfFailed();
    if (!is_in_order && (!state || !state->MakeWait(stream()))) return event.Finish();
    if (awaited_.size() >= kManyAwaited) ForgetSucceeded();
    awaited_.emplace_back(state);
  }
  // Keeps `memory` until the work issued so far is done. Throws the same errors as Record.
  void Retain(detail::RefCountedList memory) {
    detail::CheckCUDALaunches();
    stream().Keep(memory);
  }
  // Blocks until the work of this stream, and of no other, is done. Throws the exception of a
  // failed awaited event.
  void FinishDeviceComputation() {
    detail::CheckCUDALaunches();
    stream().Synchronize();
    for (const auto& awaited : std::exchange(awaited_, {}))
      if (awaited->status() == EventStatus::kFailed) std::rethrow_exception(awaited->exception());
  }
  static bool IsStreamFree(Device device, int stream_id) {
    return CUDAStream::Get(device, stream_id).IsFree();
  }

 private:
  static constexpr size_t kManyAwaited = 16;

  void MakeCurrent() {
    detail::MakeCUDADeviceCurrent(device_.index);
    CUDAStream::SetCurrent(*stream_);
  }
  // Removes awaited events that have succeeded. Without this the list would grow without bound if
  // the operator's event is disabled, because only Record() empties it.
  OPKIT_COLD void ForgetSucceeded() {
    std::erase_if(awaited_, [](const auto& awaited) {
      awaited->Poll();
      return awaited->status() == EventStatus::kSuccess;
    });
  }

  Device device_;
  CUDAStream* stream_ = nullptr;
  std::vector<detail::IntrusivePtr<detail::CUDAEventState>> awaited_;  // since the last Record
};

static_assert(DeviceContext<CUDAContext>);

namespace detail {
inline void IssueOnCUDAStream(Device device, void* stream, FunctionRef<void()> issue) {
  const CUDAStreamScope scope(device, static_cast<cudaStream_t>(stream));
  issue();
}
[[maybe_unused]] inline const bool kCUDAStreamsRegistered =
    RegisterNativeStreams(DeviceType::kCUDA, &IssueOnCUDAStream);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_CONTEXT_HPP_

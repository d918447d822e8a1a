// CUDAEventState: the state of an Event of a CUDA device, which completes when a stream passes a
// mark. Marks slow the device down, so an event that is seldom queried gets its mark at the first
// query. The host is notified only if a callback is set, a profile times the event, or a thread
// waits for longer than a small kernel takes.
#ifndef OPKIT_BACKENDS_CUDA_EVENT_HPP_
#define OPKIT_BACKENDS_CUDA_EVENT_HPP_

#include <cuda_runtime_api.h>

#include "opkit/backends/cuda/clock.hpp"
#include "opkit/backends/cuda/stream.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Frees `retained` once the stream has passed the mark, even if the event was completed by hand,
// cancelled or destroyed before.
class CUDAEventState final : public EventState {
 public:
  ~CUDAEventState() override {
    if (retained.empty() || !stream_) return;
    if (mark_ && mark_.Query() != cudaErrorNotReady) return;
    try {
      if (mark_)
        stream_->KeepUntil(mark_, retained);
      else
        stream_->Keep(retained);
    } catch (...) {  // out of memory, or the device accepts no more work
      if (mark_) mark_.Synchronize();
    }
  }

  // Begins the timing of the work that is issued on the stream from here to Record.
  void BeginSpan(CUDAStream& stream) {
    CUDAMark begin = stream.Mark(/*timed=*/true);
    std::lock_guard lock(mark_mutex_);
    begin_ = std::move(begin);
  }

  // Makes the event SCHEDULED; it completes when the work issued on the stream so far is done. A
  // terminal event stays terminal, but keeps `retained` until that work is done. Throws
  // kFailedPrecondition if the event is SCHEDULED already, and CUDA's errors.
  void Record(CUDAStream& stream) {
    if (status() == EventStatus::kScheduled) Schedule();  // throws
    const bool timed = IsTimed();
    if (timed) wanted_ = true;  // the profile needs the times even if no thread waits for them
    CUDAMark mark;
    if (timed || !defers_completion() || stream.is_foreign()) mark = stream.Mark(timed);
    {
      // Set these before Schedule(): a thread that reads SCHEDULED must find the stream.
      std::lock_guard lock(mark_mutex_);
      stream_ = &stream;
      mark_ = std::move(mark);
      requested_ = drained_ = false;
    }
    if (!Schedule() || wanted_.load()) RequestNotification();
  }

  // Makes work that is issued on `stream` from now on run after the event. Returns false for an
  // event that was SCHEDULED by hand, because the device does not see its completion.
  bool MakeWait(CUDAStream& stream) {
    std::lock_guard lock(mark_mutex_);
    if (!stream_) return false;
    if (!IsOn(stream)) stream.Wait(MadeMark());
    return true;
  }
  // True if work that is issued on `stream` from now on runs after the event without a wait.
  bool IsInOrderOf(const CUDAStream& stream) {
    std::lock_guard lock(mark_mutex_);
    return IsOn(stream);
  }

  void RequestNotification() override {
    wanted_ = true;  // set before the lock: Record reads wanted_ after its lock
    try {
      std::lock_guard lock(mark_mutex_);
      if (!stream_ || std::exchange(requested_, true)) return;
      MadeMark();
    } catch (const Error&) {
      Complete(std::current_exception());
      return;
    }
    // The callback keeps this state, and hence the mark, alive until the device has passed it.
    mark_.stream().WhenReached(mark_, [self = IntrusivePtr<CUDAEventState>(this)](
                                          cudaError_t reached) { self->Reached(reached); });
  }

  void Passed() override {
    Drain(cudaSuccess);
    Complete(nullptr);
  }

  bool WaitBriefly(Timeout timeout) override {
    const int64_t deadline = timeout.DeadlineNs(), end = MonotonicNs() + kPolledNs;
    while (!IsTerminal(status())) {
      if (status() != EventStatus::kScheduled || !IsRecorded()) return false;
      Poll();
      const int64_t now = MonotonicNs();
      if (now >= end || (deadline >= 0 && now >= deadline)) return IsTerminal(status());
    }
    return true;
  }

  // Returns false if the stream may not have passed the mark yet.
  bool Reuse() override {
    if (!retained.empty()) Poll();
    if (!retained.empty()) return false;
    {
      std::lock_guard lock(mark_mutex_);
      stream_ = nullptr;
      mark_ = {};
      begin_ = {};
      requested_ = drained_ = false;
    }
    wanted_ = false;
    return EventState::Reuse();
  }

  void Poll() override {
    cudaError_t reached = cudaErrorNotReady;
    try {
      std::lock_guard lock(mark_mutex_);
      if (stream_) reached = MadeMark().Query();
    } catch (const Error&) {
      Complete(std::current_exception());
      return;
    }
    if (reached != cudaErrorNotReady) Reached(reached);
  }

 private:
  // False if the event was SCHEDULED by hand.
  bool IsRecorded() {
    std::lock_guard lock(mark_mutex_);
    return stream_;
  }
  // mark_mutex_ must be held. A foreign stream does not count: it may have been destroyed, and a
  // new stream have the same handle.
  bool IsOn(const CUDAStream& stream) const { return stream_ == &stream && !stream.is_foreign(); }
  // Returns the mark; makes it if Record made none. A mark that is made late also waits for work
  // issued on the stream after Record. mark_mutex_ must be held. Throws CUDA's errors.
  const CUDAMark& MadeMark() {
    if (!mark_) mark_ = stream_->Mark();
    return mark_;
  }
  bool IsTimed() {
    std::lock_guard lock(mark_mutex_);
    return static_cast<bool>(begin_);
  }
  // Frees the memory and then completes the event, so that a waiting thread finds the memory freed.
  // The notification and a poll may come at once: one of the two threads does both.
  void Reached(cudaError_t reached) {
    if (!Drain(reached)) return;
    if (reached == cudaSuccess)
      Complete(nullptr);
    else
      Complete(std::make_exception_ptr(CUDAError(reached, "work on the device")));
  }

  // Frees the memory and gives the profile its times. Returns false, without effect, if a thread
  // has begun this before.
  bool Drain(cudaError_t reached) {
    RefCountedList memory;
    {
      std::lock_guard lock(mark_mutex_);
      if (std::exchange(drained_, true)) return false;
      memory.swap(retained);
      if (begin_) TellTimes(reached, std::exchange(begin_, {}));
    }
    return true;
  }

  OPKIT_COLD void TellTimes(cudaError_t reached, const CUDAMark& begin) noexcept {
    SpanSink* const sink = CurrentSpanSink();
    if (!sink || reached != cudaSuccess) return;
    if (const auto time = CUDAClock::Get(begin.stream().device()).Between(begin, mark_))
      sink->RanOnDevice(span(), time->begin, time->end);
  }

  std::mutex mark_mutex_;
  CUDAStream* stream_ = nullptr;  // the stream on which the event was recorded
  CUDAMark mark_;
  CUDAMark begin_;          // the begin of the run, if a profile times it
  bool requested_ = false;  // true once a notification is requested for this mark
  bool drained_ = false;    // true once a thread has taken `retained`
  std::atomic<bool> wanted_{false};
};

inline const bool cuda_events_registered = [] {
  EventFactories()[DeviceType::kCUDA].store(
      [](Device) -> IntrusivePtr<EventState> { return MakeIntrusive<CUDAEventState>(); },
      std::memory_order_release);
  return true;
}();

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_EVENT_HPP_

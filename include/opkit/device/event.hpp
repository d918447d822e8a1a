// Event: completion of work on a device. INITIALIZED, then SCHEDULED when work was issued, then
// SUCCESS or FAILED for good until Reset. Operators record one per run; executors and streams wait
// on it. A waiter is woken, a callback called, by the thread that completes the event.
#ifndef OPKIT_DEVICE_EVENT_HPP_
#define OPKIT_DEVICE_EVENT_HPP_

#include <atomic>
#include <exception>
#include <typeinfo>
#include <vector>

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/timeout.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/core/storage.hpp"

namespace opkit::inline OPKIT_ABI {

enum class EventStatus : uint8_t { kInitialized, kScheduled, kSuccess, kFailed };

inline const char* ToString(EventStatus status) {
  constexpr const char* kNames[] = {"INITIALIZED", "SCHEDULED", "SUCCESS", "FAILED"};
  return kNames[static_cast<int>(status)];
}
constexpr bool IsTerminal(EventStatus status) { return status >= EventStatus::kSuccess; }

// Says, when something fails after its caller has gone on, whose work it was.
class FailureContext : public RefCounted {
 public:
  virtual std::string Describe() const = 0;
};

// The state that the handles of one event share with its device. A device whose completion the host
// is not told of by itself derives a class from it.
class EventState : public RefCounted {
 public:
  // How long a waiting thread asks a device before it sleeps: about twice what a notice of a GPU's
  // driver and the thread's waking take, and several times what a small kernel does.
  static constexpr int64_t kPolledNs = 100'000;

  // Acquire: a thread that sees SUCCESS or FAILED also sees the writes of the work, and
  // `exception_`.
  EventStatus status() const { return status_.load(std::memory_order_acquire); }

  // Only after a terminal status, when nothing writes it any more.
  const std::exception_ptr& exception() const { return exception_; }

  // INITIALIZED to SCHEDULED. False if terminal already (failed or cancelled before it was issued).
  bool Schedule();
  // Terminal, once: false when it was terminal already. Wakes waiters, then runs the callbacks
  // outside the lock.
  bool Complete(std::exception_ptr exception);
  // INITIALIZED again, for a state that nobody else holds, with the room that its lists have. False
  // where the device still needs it as it is.
  OPKIT_INLINE virtual bool Reuse();
  // Runs at once when terminal.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    AddQuietCallback(std::move(callback));
  }
  // As AddCallback, without asking the device to tell: for what may wait until somebody asks.
  void AddQuietCallback(UniqueFunction<void()> callback);
  // Blocks until terminal; false when `timeout` ran out first.
  bool Wait(Timeout timeout);

  // A device that completes silently is asked here to call Complete when it is done.
  virtual void RequestNotification() {}
  // Asks such a device whether it is done, without waiting.
  virtual void Poll() {}
  // The device has passed it, as the caller knows by something that waited for it there.
  virtual void Passed() { Complete(nullptr); }
  // Waits on the processor for as long as being told would take; false when it was not done then,
  // nor at the end of `timeout`.
  virtual bool WaitBriefly(Timeout /*timeout*/) { return false; }

  void SetContext(IntrusivePtr<const FailureContext> context) { context_ = std::move(context); }
  // Only the thread that records it waits for it, and may change what it fails with.
  void SetPrivate() { private_ = true; }

  // Its end is seldom asked for, and then may be told late, with work that was issued after it on
  // the same stream: a device may save the mark in the stream. Before it is recorded.
  void SetSeldomAsked() { seldom_asked_ = true; }
  bool seldom_asked() const { return seldom_asked_; }

  // The invocation whose span in a profile ends with this event. Before the work is issued.
  void SetSpan(uint64_t invocation) { span_ = invocation; }
  uint64_t span() const { return span_; }

  // Memory that the device may still use, kept until it has drained (a cancelled event is terminal
  // long before that). Touched by the recording thread before the work is issued and by the device
  // after it, never at once.
  RefCountedList retained;

 private:
  // With the context of this event's work, and marked so that nobody changes what others read.
  std::exception_ptr Shared(std::exception_ptr exception) const;

  struct Waiter {  // on the stack of a thread in Wait
    detail::Parker parker;
    Waiter* next = nullptr;
  };

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  detail::Mutex mutex_;
  Waiter* waiters_ = nullptr;
  std::exception_ptr exception_;
  std::vector<UniqueFunction<void()>> callbacks_;
  IntrusivePtr<const FailureContext> context_;
  bool private_ = false;
  bool seldom_asked_ = false;
  uint64_t span_ = 0;
};

// How a device type makes its event states; the plain EventState where none was set.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
std::atomic<EventStateFactory>& EventFactory(DeviceType type);

namespace detail {
using ::opkit::EventFactory;
using ::opkit::EventState;
using ::opkit::FailureContext;
}  // namespace detail

// A handle; copies share the completion until one of them is Reset. Waits, queries and completion
// may come from any thread; Reset and assignment of one handle may not race with its other uses.
class Event {
 public:
  Event() : Event(Device{}) {}
  explicit Event(Device device) : device_(device), state_(NewState()) {}
  Event(const Event& other) : device_(other.device_), state_(other.state_) {}
  Event(Event&& other) noexcept = default;
  Event& operator=(Event other) noexcept {
    device_ = other.device_;
    std::swap(state_, other.state_);
    std::swap(spare_, other.spare_);
    return *this;
  }
  ~Event() = default;

  Device device() const { return device_; }
  EventStatus Query() const {
    if (state_->status() == EventStatus::kScheduled) state_->Poll();
    return state_->status();
  }
  bool IsScheduled() const { return Query() == EventStatus::kScheduled; }
  bool IsFinished() const { return IsTerminal(Query()); }

  // INITIALIZED to SCHEDULED, ignored when terminal. Error (kFailedPrecondition) when SCHEDULED.
  // Contexts call it when they issue work.
  bool SetScheduled() { return state_->Schedule(); }

  // Completes the event: SUCCESS, or FAILED with the message or exception. The first failure is
  // kept, later ones are ignored. Error (kFailedPrecondition) after SUCCESS.
  void SetFinished() { CompleteOnce(nullptr); }
  void SetFinished(const char* error_message);
  void SetFinishedWithException(std::exception_ptr exception) {
    CompleteOnce(std::move(exception));
  }
  // FAILED with kCancelled unless already terminal: a waiting thread fails at once, while the
  // device still runs what it has begun and keeps the memory until it has drained. False if too
  // late.
  bool Cancel();

  // Blocks the host until terminal and rethrows what failed. Errors: kDeadlineExceeded when
  // `timeout` ran out (the event goes on); kFailedPrecondition for an event that was never
  // recorded, unless a timeout is given to wait for that.
  void Finish(Timeout timeout = {}) const;
  void RethrowIfFailed() const {
    if (Query() == EventStatus::kFailed) std::rethrow_exception(state_->exception());
  }
  // Runs once terminal, on the completing thread, outside every lock; at once when already
  // terminal. It must not throw.
  void SetCallback(UniqueFunction<void()> callback) const {
    state_->AddCallback(std::move(callback));
  }

  // INITIALIZED again. Work still in flight keeps the old completion to itself. Two completions are
  // used in turn: from the second Reset on nothing is allocated unless others hold both.
  void Reset();

  // Null unless FAILED.
  std::exception_ptr exception() const {
    return Query() == EventStatus::kFailed ? state_->exception() : nullptr;
  }
  // Empty unless FAILED.
  std::string ErrorMessage() const;

  // For contexts.
  const IntrusivePtr<EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception);
  IntrusivePtr<EventState> NewState() const;

  Device device_;
  IntrusivePtr<EventState> state_;
  // The completion before: the thread that completed the present one may not have let go of it yet.
  IntrusivePtr<EventState> spare_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/event.ipp"
#endif

#endif  // OPKIT_DEVICE_EVENT_HPP_

// Event: completion of work on a device. An event is INITIALIZED, then SCHEDULED once work is
// issued, then SUCCESS or FAILED until Reset. Operators record one event per run; executors and
// streams wait for it. The thread that completes the event wakes the waiters and calls the
// callbacks.
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

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class EventStatus : uint8_t { kInitialized, kScheduled, kSuccess, kFailed };

inline const char* ToString(EventStatus status) {
  constexpr const char* kNames[] = {"INITIALIZED", "SCHEDULED", "SUCCESS", "FAILED"};
  return kNames[static_cast<int>(status)];
}
constexpr bool IsTerminal(EventStatus status) { return status >= EventStatus::kSuccess; }

namespace detail {

// Describes an operator or a task, in case its work fails after its caller has returned.
class FailureContext : public RefCounted {
 public:
  virtual std::string Describe() const = 0;
};

}  // namespace detail

// The state that the handles of one event share with its device. A device that does not report
// completion to the host by itself derives a class from it.
class EventState : public detail::RefCounted {
 public:
  // How long a waiting thread polls a device before it sleeps. About twice the time of a GPU
  // driver's notification and the thread's wake-up, and several times that of a small kernel.
  static constexpr int64_t kPolledNs = 100'000;

  // Returns the status. Acquire: a thread that sees SUCCESS or FAILED also sees the writes of the
  // work, and `exception_`.
  EventStatus status() const { return status_.load(std::memory_order_acquire); }

  // Returns the failure, or null. May be called only after a terminal status: no thread writes it
  // any more.
  const std::exception_ptr& exception() const { return exception_; }

  // Changes INITIALIZED to SCHEDULED. Returns false if the state is terminal already (failed or
  // cancelled before the work was issued). Error (kFailedPrecondition) if SCHEDULED.
  bool Schedule();
  // Makes the state terminal: SUCCESS if `exception` is null, else FAILED. Returns false if the
  // state was terminal already. Wakes waiters, then runs the callbacks outside the lock.
  bool Complete(std::exception_ptr exception);
  // Makes the state INITIALIZED again and keeps the memory of its lists; only the caller may hold
  // the state. Returns false if the device still needs the state unchanged.
  OPKIT_INLINE virtual bool Reuse();
  // Calls `callback` when the state is terminal; at once if it is terminal already.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    AddQuietCallback(std::move(callback));
  }
  // Adds a callback like AddCallback, but without RequestNotification: the callback may wait until
  // a thread polls or waits.
  void AddQuietCallback(UniqueFunction<void()> callback);
  // Blocks until terminal; returns false if `timeout` ran out first.
  bool Wait(Timeout timeout);

  // Makes a device that completes silently call Complete when the work is done.
  virtual void RequestNotification() {}
  // Completes the state if a device that completes silently is done; does not wait.
  virtual void Poll() {}
  // Completes the state if the caller knows that the work is done, because later work on the device
  // has waited for this event.
  virtual void Passed() { Complete(nullptr); }
  // Polls the device for about as long as a notification would take. Returns false if the work is
  // not done by then, or at the end of `timeout`.
  virtual bool WaitBriefly(Timeout /*timeout*/) { return false; }

  // Does nothing if the state has this context, because another thread may complete it by then.
  void SetContext(detail::IntrusivePtr<const detail::FailureContext> context) {
    if (context_.get() != context.get()) context_ = std::move(context);
  }
  // Promises that only the recording thread waits for this event; that thread may then change the
  // Error that the event fails with.
  void SetPrivate() { private_ = true; }

  // Allows a device to report this event late, together with later work of the same stream; the
  // device then need not mark the stream. For events for which few threads wait. Call it before the
  // event is recorded.
  void DeferCompletion() { defers_completion_ = true; }
  bool defers_completion() const { return defers_completion_; }

  // Sets the invocation whose span in a profile ends with this event. Call it before the work is
  // issued.
  void SetSpan(uint64_t invocation) { span_ = invocation; }
  uint64_t span() const { return span_; }

  // Memory that the device may still use, kept until the device has drained. A cancelled event may
  // be terminal long before. Needs no lock: the recording thread uses the list only before the work
  // is issued, the device only afterwards.
  detail::RefCountedList retained;

 private:
  // Returns the exception with the context of this event's work, marked as shared so that no thread
  // changes it.
  std::exception_ptr Shared(std::exception_ptr exception) const;

  struct Waiter {  // a waiting thread's record, on the stack of Wait
    detail::Parker parker;
    Waiter* next = nullptr;
  };

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  detail::Mutex mutex_;
  Waiter* waiters_ = nullptr;
  std::exception_ptr exception_;
  std::vector<UniqueFunction<void()>> callbacks_;
  detail::IntrusivePtr<const detail::FailureContext> context_;
  bool private_ = false;
  bool defers_completion_ = false;
  uint64_t span_ = 0;
};

namespace detail {
// Makes the event states of a device type.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
}  // namespace detail

// The factories by device type. Plain EventStates are made if none was set.
detail::DeviceTable<detail::EventStateFactory>& EventFactories();

// A handle; copies share the completion until one of them is Reset. Waits, queries and completion
// may come from any thread; Reset and assignment of one handle may not race with its other uses.
class Event {
 public:
  // An event of a device, in the state INITIALIZED; of the CPU by default.
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

  // Return the event's device, and its state. Query asks the device if the event is SCHEDULED.
  Device device() const { return device_; }
  EventStatus Query() const {
    if (state_->status() == EventStatus::kScheduled) state_->Poll();
    return state_->status();
  }
  bool IsScheduled() const { return Query() == EventStatus::kScheduled; }
  bool IsFinished() const { return IsTerminal(Query()); }

  // Changes INITIALIZED to SCHEDULED; returns false, without effect, if terminal. Error
  // (kFailedPrecondition) if SCHEDULED. Contexts call it when they issue work.
  bool SetScheduled() { return state_->Schedule(); }

  // Completes the event: SUCCESS, or FAILED with the message or exception. The first failure is
  // kept, later ones are ignored. Error (kFailedPrecondition) after SUCCESS.
  void SetFinished() { CompleteOnce(nullptr); }
  void SetFinished(const char* error_message);
  void SetFinishedWithException(std::exception_ptr exception) {
    CompleteOnce(std::move(exception));
  }
  // Makes the event FAILED with kCancelled; returns false if it is terminal already. A waiting
  // thread fails at once. The device still runs the work that it has begun, and keeps its memory
  // until it has drained.
  bool Cancel();

  // Blocks the host until terminal and rethrows the failure. Errors: kDeadlineExceeded if `timeout`
  // ran out (the event goes on); kFailedPrecondition for an event that was never recorded. With a
  // timeout the call waits for the recording instead.
  void Finish(Timeout timeout = {}) const;
  void RethrowIfFailed() const {
    if (Query() == EventStatus::kFailed) std::rethrow_exception(state_->exception());
  }
  // Calls `callback` once the event is terminal, on the completing thread and outside every lock;
  // at once if it is terminal already. `callback` must not throw.
  void SetCallback(UniqueFunction<void()> callback) const {
    state_->AddCallback(std::move(callback));
  }

  // Makes the event INITIALIZED again. Work still in flight keeps the old completion. Two
  // completions are used in turn: from the second Reset on nothing is allocated unless other
  // handles hold both.
  void Reset();

  // Returns the failure; null unless FAILED.
  std::exception_ptr exception() const {
    return Query() == EventStatus::kFailed ? state_->exception() : nullptr;
  }
  // Returns the failure's message; empty unless FAILED.
  std::string ErrorMessage() const;

  // Returns the shared state, for contexts.
  const detail::IntrusivePtr<EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception);
  detail::IntrusivePtr<EventState> NewState() const;

  Device device_;
  detail::IntrusivePtr<EventState> state_;
  // The state that state_ has replaced; the next Reset uses it again. A single state would not do,
  // because the thread that completed it may still hold it at the Reset.
  detail::IntrusivePtr<EventState> spare_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/device/impl/event.ipp"
#endif

#endif  // OPKIT_DEVICE_EVENT_HPP_

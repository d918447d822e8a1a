// Event: completion of work on a device. INITIALIZED, then SCHEDULED when work was issued, then
// SUCCESS or FAILED for good until Reset. Operators record one per run; executors and streams wait
// on it. Nothing polls: a waiter is woken, a callback called, by whoever completes the event.
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

// What the handles of one event and the device share. Devices whose completion the host is not told
// of by itself (CUDA) derive from it.
class EventState : public RefCounted {
 public:
  // Acquire: who sees SUCCESS or FAILED also sees what the work wrote and `exception_`.
  EventStatus status() const { return status_.load(std::memory_order_acquire); }

  // Only after a terminal status, when nothing writes it any more.
  const std::exception_ptr& exception() const { return exception_; }

  // INITIALIZED to SCHEDULED. False if terminal already (failed or cancelled before it was issued).
  bool Schedule() {
    detail::MutexLock lock(mutex_);
    const EventStatus now = status_.load(std::memory_order_relaxed);  // the mutex orders it
    if (IsTerminal(now)) return false;
    if (now == EventStatus::kScheduled)
      Throw(ErrorCode::kFailedPrecondition,
            "the event is recorded while it is still SCHEDULED; "
            "Finish or Reset it first");
    status_.store(EventStatus::kScheduled, std::memory_order_release);
    return true;
  }
  // Terminal, once: false when it was terminal already. Wakes waiters, then runs the callbacks
  // outside the lock.
  bool Complete(std::exception_ptr exception) {
    if (exception) exception = Shared(std::move(exception));
    std::vector<UniqueFunction<void()>> callbacks;
    {
      detail::MutexLock lock(mutex_);
      if (IsTerminal(status_.load(std::memory_order_relaxed))) return false;
      exception_ = std::move(exception);
      status_.store(exception_ ? EventStatus::kFailed : EventStatus::kSuccess,
                    std::memory_order_release);
      callbacks.swap(callbacks_);
      for (Waiter* waiter = waiters_; waiter;) {
        Waiter* next = waiter->next;  // gone once it is set
        detail::Parker::Wake(waiter->parker.Set());
        waiter = next;
      }
      waiters_ = nullptr;
    }
    if (callbacks.empty()) return true;
    const IntrusivePtr<EventState> self(this);  // a callback may Reset the last handle
    for (auto& callback : callbacks) callback();
    callbacks.clear();
    detail::MutexLock lock(mutex_);
    callbacks_.swap(callbacks);  // its room is for the next use of this state
    return true;
  }
  // INITIALIZED again, for a state that nobody else holds, with the room that its lists have. False
  // where the device still needs it as it is.
  virtual bool Reuse() {
    // Relaxed: whoever gets a handle from now on gets it by means that order this.
    status_.store(EventStatus::kInitialized, std::memory_order_relaxed);
    exception_ = nullptr;
    context_ = {};
    private_ = false;
    callbacks_.clear();
    retained.clear();
    return true;
  }
  // Runs at once when terminal.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    AddQuietCallback(std::move(callback));
  }
  // As AddCallback, without asking the device to tell: for what may wait until somebody asks.
  void AddQuietCallback(UniqueFunction<void()> callback) {
    {
      detail::MutexLock lock(mutex_);
      if (!IsTerminal(status_.load(std::memory_order_relaxed))) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }
  // Blocks until terminal; false when `timeout` ran out first.
  bool Wait(Timeout timeout) {
    if (IsTerminal(status())) return true;
    RequestNotification();
    Waiter self;
    {
      detail::MutexLock lock(mutex_);
      if (IsTerminal(status_.load(std::memory_order_relaxed))) return true;
      self.next = std::exchange(waiters_, &self);
    }
    if (self.parker.Wait(timeout.DeadlineNs())) return true;
    detail::MutexLock lock(mutex_);
    for (Waiter** link = &waiters_; *link; link = &(*link)->next)
      if (*link == &self) {
        *link = self.next;
        return false;
      }
    return true;  // completed at the last moment
  }

  // A device that completes silently is asked here to call Complete when it is done.
  virtual void RequestNotification() {}
  // Asks such a device whether it is done, without waiting.
  virtual void Poll() {}

  void SetContext(IntrusivePtr<const FailureContext> context) { context_ = std::move(context); }
  // Only the thread that records it waits for it, and may change what it fails with.
  void SetPrivate() { private_ = true; }

  // Memory that the device may still use, kept until it has drained (a cancelled event is terminal
  // long before that). Touched by the recording thread before the work is issued and by the device
  // after it, never at once.
  RefCountedList retained;

 private:
  // With the context of this event's work, and marked so that nobody changes what others read.
  std::exception_ptr Shared(std::exception_ptr exception) const {
    try {
      std::rethrow_exception(exception);
    } catch (Error& error) {
      // Of one that others may read already a copy is changed; a class derived from Error would be
      // cut by that and stays as it is.
      const bool others = error.is_shared();
      if (!private_) error.SetShared();
      if (!context_ || (others && typeid(error) != typeid(Error))) return exception;
      const std::string described = context_->Describe();
      for (const std::string& line : error.context())
        if (line == described) return exception;  // the operator itself failed while issuing
      if (typeid(error) != typeid(Error)) return error.AddContext(described), exception;
      Error copy = error;
      copy.AddContext(described).SetShared();
      return std::make_exception_ptr(std::move(copy));
    } catch (...) {
      return exception;
    }
  }

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
};

// How a device type makes its event states; the plain EventState where none was set.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
inline std::atomic<EventStateFactory>& EventFactory(DeviceType type) {
  static std::atomic<EventStateFactory> factories[detail::AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return factories[slot >= 0 && slot < detail::AllocatorTable::kSlots ? slot : 0];
}

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
  void SetFinished(const char* error_message) {
    CompleteOnce(error_message
                     ? std::make_exception_ptr(Error(ErrorCode::kOperatorFailed, error_message))
                     : nullptr);
  }
  void SetFinishedWithException(std::exception_ptr exception) {
    CompleteOnce(std::move(exception));
  }
  // FAILED with kCancelled unless already terminal: whoever waits fails at once, while the device
  // still runs what it has begun and keeps the memory until it has drained. False if too late.
  bool Cancel() {
    const auto state = state_;  // as in CompleteOnce
    const bool cancelled =
        state->Complete(std::make_exception_ptr(Error(ErrorCode::kCancelled, "cancelled")));
    state->RequestNotification();  // so that the memory is let go when the device has drained
    return cancelled;
  }

  // Blocks the host until terminal and rethrows what failed. Errors: kDeadlineExceeded when
  // `timeout` ran out (the event goes on); kFailedPrecondition for an event that was never
  // recorded, unless a timeout is given to wait for that.
  void Finish(Timeout timeout = {}) const {
    if (timeout.is_forever() && state_->status() == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition,
            "waiting for an event that was never recorded: run the "
            "operator first, or wait with a timeout");
    if (!state_->Wait(timeout))
      Throw(ErrorCode::kDeadlineExceeded, "the event on ", ToString(device_), " is still ",
            ToString(state_->status()), " after ", timeout.ns() / 1000, " us");
    RethrowIfFailed();
  }
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
  void Reset() {
    const bool spare = spare_.use_count() == 1 && spare_->Reuse();
    if (!spare && spare_ && state_.use_count() == 1 && state_->Reuse()) return;
    auto next = spare ? std::move(spare_) : NewState();
    spare_ = std::exchange(state_, std::move(next));
    // What it holds (callbacks, an exception, memory) goes now, or with its last handle.
    if (spare_.use_count() == 1 ? !spare_->Reuse() : spare_->status() != EventStatus::kSuccess)
      spare_ = {};
  }

  // Null unless FAILED.
  std::exception_ptr exception() const {
    return Query() == EventStatus::kFailed ? state_->exception() : nullptr;
  }
  // Empty unless FAILED.
  std::string ErrorMessage() const {
    if (Query() != EventStatus::kFailed) return {};
    try {
      std::rethrow_exception(state_->exception());
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "an exception that is not derived from std::exception";
    }
  }

  // For contexts.
  const IntrusivePtr<EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception) {
    // Whoever waits may end this handle as soon as it is terminal, while Complete still runs.
    const auto state = state_;
    if (!state->Complete(std::move(exception)) && state->status() == EventStatus::kSuccess)
      Throw(ErrorCode::kFailedPrecondition,
            "SetFinished on an event that is SUCCESS already; "
            "Reset it first");
  }
  IntrusivePtr<EventState> NewState() const {
    // Acquire: pairs with the backend's store, so that what it set up before is seen.
    const auto factory = EventFactory(device_.type).load(std::memory_order_acquire);
    return factory ? factory(device_) : MakeIntrusive<EventState>();
  }

  Device device_;
  IntrusivePtr<EventState> state_;
  // The completion before: who completed the present one may not have let go of it yet.
  IntrusivePtr<EventState> spare_;
};

}  // namespace opkit

#endif  // OPKIT_DEVICE_EVENT_HPP_

// The definitions of opkit/device/event.hpp.
#ifndef OPKIT_DEVICE_IMPL_EVENT_IPP_
#define OPKIT_DEVICE_IMPL_EVENT_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/device/event.hpp"
#include "opkit/device/invocation.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE bool EventState::Schedule() {
  detail::MutexLock lock(mutex_);
  const EventStatus now = status_.load(std::memory_order_relaxed);  // relaxed: the mutex orders it
  if (IsTerminal(now)) return false;
  if (now == EventStatus::kScheduled)
    Throw(ErrorCode::kFailedPrecondition,
          "the event is recorded while it is still SCHEDULED; Finish or Reset it first");
  status_.store(EventStatus::kScheduled, std::memory_order_release);
  return true;
}

OPKIT_INLINE bool EventState::Complete(std::exception_ptr exception) {
  if (exception) exception = Shared(std::move(exception));
  std::vector<UniqueFunction<void()>> callbacks;
  {
    detail::MutexLock lock(mutex_);
    if (IsTerminal(status_.load(std::memory_order_relaxed))) return false;
    if (span_ != 0) [[unlikely]]  // reports the end before a thread sees it and may end the profile
      if (detail::SpanSink* sink = detail::CurrentSpanSink()) sink->Completed(span_);
    exception_ = std::move(exception);
    status_.store(exception_ ? EventStatus::kFailed : EventStatus::kSuccess,
                  std::memory_order_release);
    callbacks.swap(callbacks_);
    for (Waiter* waiter = waiters_; waiter;) {
      Waiter* next = waiter->next;  // `waiter` may be gone after Set
      detail::Parker::Wake(waiter->parker.Set());
      waiter = next;
    }
    waiters_ = nullptr;
  }
  if (callbacks.empty()) return true;
  const detail::IntrusivePtr<EventState> self(this);  // a callback may Reset the last handle
  for (auto& callback : callbacks) callback();
  callbacks.clear();
  detail::MutexLock lock(mutex_);
  callbacks_.swap(callbacks);  // keeps the memory for the next use of this state
  return true;
}

OPKIT_INLINE bool EventState::Reuse() {
  // Relaxed: another thread can see this store only through a handle, and passing the handle orders
  // the store.
  status_.store(EventStatus::kInitialized, std::memory_order_relaxed);
  exception_ = nullptr;
  context_ = {};
  private_ = false;
  defers_completion_ = false;
  span_ = 0;
  callbacks_.clear();
  retained.clear();
  return true;
}

OPKIT_INLINE void EventState::AddQuietCallback(UniqueFunction<void()> callback) {
  {
    detail::MutexLock lock(mutex_);
    if (!IsTerminal(status_.load(std::memory_order_relaxed))) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

OPKIT_INLINE bool EventState::Wait(Timeout timeout) {
  if (IsTerminal(status()) || WaitBriefly(timeout)) return true;
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

OPKIT_INLINE std::exception_ptr EventState::Shared(std::exception_ptr exception) const {
  try {
    std::rethrow_exception(exception);
  } catch (Error& error) {
    // If other threads may already read the Error, copies it and changes the copy. An object of a
    // class derived from Error stays unchanged, because a copy would lose the derived part.
    const bool others = error.is_shared();
    if (!private_) error.SetShared();
    if (!context_ || (others && typeid(error) != typeid(Error))) return exception;
    const std::string described = context_->Describe();
    if (detail::Contains(error.context(), described))
      return exception;  // the operator itself failed while issuing
    if (typeid(error) != typeid(Error)) return error.AddContext(described), exception;
    Error copy = error;
    copy.AddContext(described).SetShared();
    return std::make_exception_ptr(std::move(copy));
  } catch (...) {
    if (!context_) return exception;
    Error error = CurrentError();
    error.AddContext(context_->Describe()).SetShared();
    return std::make_exception_ptr(std::move(error));
  }
}

OPKIT_INLINE detail::DeviceTable<detail::EventStateFactory>& EventFactories() {
  static constinit detail::DeviceTable<detail::EventStateFactory> table;
  return table;
}

OPKIT_INLINE void Event::SetFinished(const char* error_message) {
  CompleteOnce(error_message
                   ? std::make_exception_ptr(Error(ErrorCode::kOperatorFailed, error_message))
                   : nullptr);
}

OPKIT_INLINE bool Event::Cancel() {
  const auto state = state_;  // a waiting thread may destroy this handle meanwhile
  const bool cancelled =
      state->Complete(std::make_exception_ptr(Error(ErrorCode::kCancelled, "cancelled")));
  state->RequestNotification();  // frees the memory when the device has drained
  return cancelled;
}

OPKIT_INLINE void Event::Finish(Timeout timeout) const {
  if (timeout.is_forever() && state_->status() == EventStatus::kInitialized)
    Throw(ErrorCode::kFailedPrecondition,
          "waiting for an event that was never recorded: run the "
          "operator first, or wait with a timeout");
  if (!state_->Wait(timeout))
    Throw(ErrorCode::kDeadlineExceeded, "the event on ", ToString(device_), " is still ",
          ToString(state_->status()), " after ", timeout.ns() / 1000, " us");
  RethrowIfFailed();
}

OPKIT_INLINE void Event::Reset() {
  const bool spare = spare_.use_count() == 1 && spare_->Reuse();
  if (!spare && spare_ && state_.use_count() == 1 && state_->Reuse()) return;
  auto next = spare ? std::move(spare_) : NewState();
  spare_ = std::exchange(state_, std::move(next));
  // Frees the callbacks, the exception and the memory of the old state now, or with its last
  // handle.
  if (spare_.use_count() == 1 ? !spare_->Reuse() : spare_->status() != EventStatus::kSuccess)
    spare_ = {};
}

OPKIT_INLINE std::string Event::ErrorMessage() const {
  if (Query() != EventStatus::kFailed) return {};
  try {
    std::rethrow_exception(state_->exception());
  } catch (...) {
    return CurrentError().what();
  }
}

OPKIT_INLINE void Event::CompleteOnce(std::exception_ptr exception) {
  // A waiting thread may destroy this handle as soon as the event is terminal, while Complete still
  // runs.
  const auto state = state_;
  if (!state->Complete(std::move(exception)) && state->status() == EventStatus::kSuccess)
    Throw(ErrorCode::kFailedPrecondition,
          "SetFinished on an event that is SUCCESS already; Reset it first");
}

OPKIT_INLINE detail::IntrusivePtr<EventState> Event::NewState() const {
  const detail::EventStateFactory factory = EventFactories().Find(device_.type);
  return factory ? factory(device_) : detail::MakeIntrusive<EventState>();
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_EVENT_IPP_

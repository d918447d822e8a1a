// How one waits for the engine: for a Var, for all, for an asynchronous operation that somebody
// else completes; and how waiting is cut short, by Cancel and by the engine's end.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_WAIT_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_WAIT_HPP_

#include "opkit/engine/dependency/engine_run.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Takes the right to complete it. True for one of handle and Cancel.
template <class Op>
inline bool BasicEngineCore<Op>::Claim(EngineOp* op, uint32_t generation) {
  MutexLock lock(async_mutex_);
  OpDetails& details = op->details();
  if (!details.completable || details.async_generation != generation) return false;
  details.completable = false;
  EngineOp* const prev = details.async_prev;
  EngineOp* const next = details.async_next;
  (prev != nullptr ? prev->details().async_next : async_first_) = next;
  if (next != nullptr) next->details().async_prev = prev;
  return true;
}

template <class Op>
inline bool BasicEngineCore<Op>::CompleteAsync(EngineOp* op, uint32_t generation,
                                               std::exception_ptr exception) {
  live_.Add();
  const bool claimed = Claim(op, generation);
  if (claimed) {
    op->details().outcome = std::move(exception);
    Completed done;
    FinishPart(op, done);
    Dispatch(done);
  }
  live_.CountDown();
  return claimed;
}

template <class Op>
inline void BasicEngineCore<Op>::CancelAsync(uint64_t before) {
  live_.Add();
  for (;;) {
    EngineOp* op = nullptr;
    uint32_t generation = 0;
    {
      MutexLock lock(async_mutex_);
      op = async_first_;
      while (op != nullptr && op->sequence >= before) op = op->details().async_next;
      if (op != nullptr) generation = op->details().async_generation;
    }
    if (op == nullptr) break;
    if (!Claim(op, generation)) continue;
    op->details().outcome = CancelledError(*op);
    Completed done;
    FinishPart(op, done);
    Dispatch(done);
  }
  live_.CountDown();
}

template <class Op>
inline void BasicEngineCore<Op>::Cancel() {
  const uint64_t before = records_.next_sequence();
  uint64_t now = cancelled_before_.load(std::memory_order_relaxed);
  while (now < before &&
         !cancelled_before_.compare_exchange_weak(now, before, std::memory_order_seq_cst)) {
  }
  CancelAsync(before);
}

template <class Op>
inline bool BasicEngineCore<Op>::Wait(const Latch& latch, Timeout timeout) {
  // A runner whose operation waits makes room for another one.
  const bool inside = t_engine.frame != nullptr && t_engine.frame->core == this;
  if (naive_) {
    DrainInline();
  } else if (inside) {
    runners_.fetch_sub(1, std::memory_order_seq_cst);
    if (!queue_.empty()) WakeRunner();
  }
  const Latch* const outer = std::exchange(t_engine.waiting, &latch);
  const bool done = pool_.Wait(latch, timeout.is_forever() ? -1 : timeout.ns());
  t_engine.waiting = outer;
  if (inside && !naive_) runners_.fetch_add(1, std::memory_order_seq_cst);
  return done;
}

// Of the operations that run on this thread.
template <class Op>
inline const Access* BasicEngineCore<Op>::OwnAccess(const VarState& state) const {
  for (const OpFrame* frame = t_engine.frame; frame != nullptr; frame = frame->outer) {
    if (frame->core != this) continue;
    for (int32_t i = 0; i < frame->op->access_count; ++i) {
      if (frame->op->access(i).var == &state) return &frame->op->access(i);
    }
  }
  return nullptr;
}

template <class Op>
inline void BasicEngineCore<Op>::WaitForVar(Var var, Timeout timeout) {
  VarState& state = StateOf(var);
  const Access* own = t_engine.frame != nullptr ? OwnAccess(state) : nullptr;
  VarWaiter waiter;
  bool waits = false;
  {
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    waits = state.HasPendingWrites();
    if (waits && own == nullptr) {
      state.AppendWaiter(waiter);
    } else {
      waiter.failure = state.failure;
    }
  }
  if (waits && own != nullptr) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Var that others write, found WaitForVar inside an operation that ",
          own->writes() ? "writes" : "reads", " the Var itself, and so would wait for its own end");
  }
  if (waits && !Wait(waiter.latch, timeout)) {
    bool given_up = false;
    {
      SpinLockGuard guard(state.lock);
      given_up = !waiter.granted;
      if (given_up) state.Remove(waiter);
    }
    if (given_up) {
      Throw(ErrorCode::kDeadlineExceeded, "writes of the Var are still pending after ",
            timeout.ns() / 1000, " us; they go on, and the wait can be repeated");
    }
    pool_.Wait(waiter.latch);  // about to be counted down
  }
  if (waiter.failure && waiter.failure->Report(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(waiter.failure->exception());
}

template <class Op>
inline void BasicEngineCore<Op>::WaitForAll(Timeout timeout) {
  for (const OpFrame* frame = t_engine.frame; frame != nullptr; frame = frame->outer) {
    if (frame->core == this) {
      Throw(ErrorCode::kFailedPrecondition,
            "expected WaitForAll outside the operations of the engine, found it inside \"",
            frame->op->name, "\", which would wait for its own end; wait for a Var instead");
    }
  }
  const OpRecords::Waiter waiter(records_);
  if (!Wait(waiter.outstanding(), timeout)) {
    Throw(ErrorCode::kDeadlineExceeded, "operations are still pending after ", timeout.ns() / 1000,
          " us; they go on, and the wait can be repeated");
  }
  if (FailurePtr first = failures_.ReportAll(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(first->exception());
}

template <class Op>
inline void BasicEngineCore<Op>::Shutdown() {
  const OpRecords::Waiter waiter(records_);
  for (;;) {
    pool_.Wait(live_);
    if (waiter.outstanding().done()) break;
    // Nothing runs: what is left waits for handles that nobody has used yet.
    CancelAsync(~uint64_t{0});
  }
  pool_.Wait(live_);
}

}  // namespace detail

template <class Core>
inline BasicCompletion<Core>::BasicCompletion(Core* core, detail::EngineOp* op, uint32_t generation)
    : core_(core), op_(op), generation_(generation) {}

template <class Core>
inline BasicCompletion<Core>& BasicCompletion<Core>::operator=(BasicCompletion&& other) noexcept {
  BasicCompletion taken(std::move(other));
  std::swap(core_, taken.core_);
  std::swap(op_, taken.op_);
  std::swap(generation_, taken.generation_);
  return *this;  // what this one was to complete is dropped with `taken`
}

template <class Core>
inline BasicCompletion<Core>::~BasicCompletion() {
  if (!core_) return;
  SetFinishedWithException(std::make_exception_ptr(
      Error(ErrorCode::kFailedPrecondition,
            "expected the asynchronous operation to be completed, found its Completion dropped; "
            "keep the handle until SetFinished is called")));
}

template <class Core>
inline bool BasicCompletion<Core>::SetFinishedWithException(std::exception_ptr exception) {
  if (!core_) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Completion that was not used yet, found an empty one; an operation is "
          "completed once");
  }
  const auto core = std::move(core_);
  return core->CompleteAsync(op_, generation_, std::move(exception));
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_WAIT_HPP_

// How operations are pushed: their Vars are checked and sorted, and their accesses queued. How
// threads wait for operations, and complete or cancel asynchronous ones.
#ifndef OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_CORE_IPP_
#define OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_CORE_IPP_

#include <algorithm>

#include "opkit/engine/dependency/engine_core.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Sorts the accesses to several Vars by address, and keeps each Var once.
inline void EngineCore::SortAccesses(EngineOp& op) {
  Access* const begin = op.details().accesses;
  Access* const end = begin + op.access_count;
  const auto before = [](const Access& a, const Access& b) { return a.var < b.var; };
  if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  const auto same = [&op](const Access& a, const Access& b) {
    if (a.var == b.var && a.writes() != b.writes())
      Throw(ErrorCode::kInvalidArgument, "expected each Var in reads or in writes of \"", op.name,
            "\", found one in both; list it in writes alone, with .update = true where the "
            "operation needs the old value");
    return a.var == b.var;
  };
  op.access_count = static_cast<int32_t>(std::unique(begin, end, same) - begin);
  if (op.access_count == 1) op.only_access = *begin;
}

inline void EngineCore::SetAccesses(EngineOp& op, VarList reads, VarList writes) const {
  const size_t size = reads.size() + writes.size();
  Access* next = size <= 1 ? &op.only_access : op.details().ReserveAccesses(size);
  const auto add = [&](const VarList& vars, uintptr_t mark) {
    for (const Var& var : vars) {
      next->var = &StateOf(var);
      next->owner = reinterpret_cast<uintptr_t>(&op) | mark;
      // Submit checks the generation. Relaxed: on the same thread.
      next++->next.store(var.generation_, std::memory_order_relaxed);
    }
  };
  add(reads, 0);
  add(writes, Access::kWrite);
  op.access_count = static_cast<int32_t>(size);
  if (size > 1) SortAccesses(op);
}

inline OpSlot EngineCore::Prepare(VarList reads, VarList writes, const PushOptions& options,
                                  const OpClosureType& closure) {
  EngineOp* op = records_.Take();
  op->closure = &closure;
  op->priority = naive_ ? 0 : options.priority;
  op->name = options.name ? options.name : "";
  op->mode = closure.asynchronous ? OpMode::kAsynchronous : OpMode::kSynchronous;
  op->updates = options.update;
  const Invocation pusher = CurrentInvocation();
  op->invocation = {NextInvocationIds(1), pusher.id, Invocation::Kind::kTask, pusher.custom};
  if (SpanSink* sink = CurrentSpanSink()) [[unlikely]]
    sink->Pushed(op->invocation, op->span_names());
  try {
    if (options.device.type != DeviceType::kCPU) [[unlikely]] {
      if (closure.asynchronous)
        Throw(ErrorCode::kInvalidArgument,
              "expected PushAsync without a device, which completes operations by itself; found ",
              ToString(options.device), ": use Push");
      IssueFunctionOf(options.device);
      op->mode = options.kind == OpKind::kCopy ? OpMode::kCopyOnDevice : OpMode::kOnDevice;
      op->details().device = options.device;
    }
    SetAccesses(*op, reads, writes);
  } catch (...) {
    Abandon(op);
    throw;
  }
  return {op, op->closure_storage(closure)};
}

inline void EngineCore::Submit(EngineOp* op) {
  const std::span<Access> accesses = op->accesses();
  const auto n = static_cast<int32_t>(accesses.size());
  // Relaxed: a thread that counts it down has found the operation in a queue.
  op->waits.store(n, std::memory_order_relaxed);
  // All Vars are locked, in the order of their addresses, before any queue is changed. So the
  // operations of several pushers stand in the same order in every queue.
  for (Access& access : accesses) access.var->lock.Lock();
  bool live = true;
  // Relaxed: written by this thread.
  for (const Access& access : accesses)
    live &= access.var->generation == access.next.load(std::memory_order_relaxed);
  if (!live) [[unlikely]] {
    for (Access& access : accesses) access.var->lock.Unlock();
    op->EndClosure();
    GiveBack(op);
    ThrowDeleted();
  }
  int32_t granted = 0;
  for (Access& access : accesses) granted += access.var->Append(access);
  // Another thread may grant the last access and run the operation from here on, but it cannot
  // release a locked Var.
  for (Access& access : accesses) access.var->lock.Unlock();
  // Acquire-release as in AddIfGranted.
  if (granted != n &&
      (granted == 0 || op->waits.fetch_sub(granted, std::memory_order_acq_rel) != granted))
    return;
  if (naive_) [[unlikely]] {
    OpList list;
    list.Add(op);
    return RunInline(list);
  }
  queue_.Push(op);
  WakeRunner();
}

// --- waiting

inline bool EngineCore::CompleteAsync(EngineOp* op, uint32_t generation,
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

inline void EngineCore::CancelAsync(uint64_t before) {
  live_.Add();
  for (;;) {
    EngineOp* op = nullptr;
    uint32_t generation = 0;
    {
      MutexLock lock(async_mutex_);
      op = async_first_;
      while (op && op->sequence >= before) op = op->details().async_next;
      if (op) generation = op->details().async_generation;
    }
    if (!op) break;
    if (!Claim(op, generation)) continue;
    op->details().outcome = CancelledError(op->name);
    Completed done;
    FinishPart(op, done);
    Dispatch(done);
  }
  live_.CountDown();
}

inline bool EngineCore::Wait(const Latch& latch, Timeout timeout) {
  // A runner whose operation waits makes room for another one.
  const bool inside = t_engine.frame && t_engine.frame->core == this;
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

inline void EngineCore::WaitForVar(Var var, Timeout timeout) {
  VarState& state = StateOf(var);
  const Access* own = OwnAccess(state);
  VarWaiter waiter;
  bool waits = false;
  {
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    waits = state.HasPendingWrites();
    if (waits && !own)
      state.AppendWaiter(waiter);
    else
      waiter.failure = state.failure;
  }
  if (waits && own)
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Var that others write, found WaitForVar inside an operation that ",
          own->writes() ? "writes" : "reads", " the Var itself, and so would wait for its own end");
  if (waits && !Wait(waiter.latch, timeout)) {
    bool given_up = false;
    {
      SpinLockGuard guard(state.lock);
      given_up = !waiter.granted;
      if (given_up) state.Remove(waiter);
    }
    if (given_up)
      Throw(ErrorCode::kDeadlineExceeded, "writes of the Var are still pending after ",
            timeout.ns() / 1000, " us; they go on, and the wait can be repeated");
    pool_.Wait(waiter.latch);  // the waiter was granted meanwhile: its latch opens soon
  }
  if (waiter.failure && waiter.failure->Report(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(waiter.failure->exception());
}

inline void EngineCore::WaitForAll(Timeout timeout) {
  for (const OpFrame* frame = t_engine.frame; frame; frame = frame->outer)
    if (frame->core == this)
      Throw(ErrorCode::kFailedPrecondition,
            "expected WaitForAll outside the operations of the engine, found it inside \"",
            frame->op->name, "\", which would wait for its own end; wait for a Var instead");
  const OpRecords::Waiter waiter(records_);
  if (!Wait(waiter.outstanding(), timeout))
    Throw(ErrorCode::kDeadlineExceeded, "operations are still pending after ", timeout.ns() / 1000,
          " us; they go on, and the wait can be repeated");
  if (FailurePtr first = failures_.ReportAll(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(first->exception());
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_CORE_IPP_

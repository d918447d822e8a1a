// How the engine runs operations and ends them: runners on the pool, streams of devices, the naive
// engine's own way, and what every completion does to the Vars.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_RUN_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_RUN_HPP_

#include "opkit/engine/dependency/engine_core.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Op>
inline void BasicEngineCore<Op>::WakeRunner() {
  if (searching_.load(std::memory_order_seq_cst) != 0) return;
  int count = runners_.load(std::memory_order_seq_cst);
  do {
    if (count >= pool_.threads()) return;
  } while (!runners_.compare_exchange_weak(count, count + 1, std::memory_order_seq_cst));
  searching_.fetch_add(1, std::memory_order_seq_cst);
  live_.Add();
  Runner* runner = nullptr;
  {
    SpinLockGuard guard(runners_lock_);
    if (free_runners_ != nullptr) runner = std::exchange(free_runners_, free_runners_->next_free);
  }
  if (runner == nullptr) runner = new Runner(this);
  try {
    pool_.Schedule(runner);
  } catch (const Error&) {  // no thread can be started: then this one does it
    RunReady(runner);
  }
}

template <class Op>
inline void BasicEngineCore<Op>::RunReady(Runner* runner) {
  constexpr int kFlushAt = 32;
  constexpr int kTurns = 256;  // then others have theirs: tasks of the pool, operations off a chain
  const uint64_t spin_ticks = pool_.spin_ticks();
  const Latch* const waiting = t_engine.waiting;
  Completed done;
  EngineOp* op = nullptr;
  bool searching = true;
  uint64_t idle_since = 0;
  int pauses = 1;
  int idle_turn = 0;
  for (int turn = 0; turn < kTurns;) {
    if (op == nullptr) op = queue_.Take();
    if (op != nullptr) {
      if (searching) {
        searching = false;
        if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && !queue_.empty())
          WakeRunner();
      }
      Execute(op, done);
      ++turn;
      op = done.ready.TakeFirst();
      if (done.ready.first != nullptr || (op != nullptr && queue_.HasBetterThan(op->priority))) {
        // All but one are for others, and the best is not always the first.
        for (; op != nullptr; op = done.ready.TakeFirst()) queue_.Push(op);
        op = queue_.Take();
        if (!queue_.empty()) WakeRunner();
      }
      if (done.count >= kFlushAt) Flush(done);
      if ((waiting != nullptr && waiting->done()) || pool_.HasLoops()) break;
      idle_since = 0;
      continue;
    }
    Flush(done);
    if (waiting != nullptr && waiting->done()) break;
    if (!searching) {
      searching = true;
      searching_.fetch_add(1, std::memory_order_seq_cst);
    }
    const uint64_t now = Ticks();
    if (idle_since == 0) {
      idle_since = now;
      pauses = runner->PausesAfter(turn - std::exchange(idle_turn, turn));
    }
    if (now - idle_since >= spin_ticks) break;
    // Ever more rarely: who looks all the time makes the pusher wait for the cache line.
    for (int i = 0; i < pauses; ++i) CpuRelax();
    if (pauses < Runner::kMaxPauses) pauses *= 2;
  }
  if (op != nullptr) queue_.Push(op);
  Flush(done);
  {
    SpinLockGuard guard(runners_lock_);
    runner->next_free = std::exchange(free_runners_, runner);
  }
  runners_.fetch_sub(1, std::memory_order_seq_cst);
  if (searching) searching_.fetch_sub(1, std::memory_order_seq_cst);
  if (!queue_.empty()) WakeRunner();
  live_.CountDown();  // the engine may be gone from here on
}

template <class Op>
inline void BasicEngineCore<Op>::RunInline(OpList ready) {
  EngineThread& thread = t_engine;
  const bool outermost = thread.inline_core != this;
  OpList outer;
  const EngineCore* outer_core = thread.inline_core;
  if (outermost) {
    outer = std::exchange(thread.inline_ready, {});
    thread.inline_core = this;
    live_.Add();
  }
  while (EngineOp* op = ready.TakeFirst()) thread.inline_ready.AddInOrder(op);
  if (!outermost) return;  // the frame that is outermost runs them, however deep pushes nest
  DrainInline();
  thread.inline_ready = outer;
  thread.inline_core = outer_core;
  live_.CountDown();
}

template <class Op>
inline void BasicEngineCore<Op>::DrainInline() {
  if (t_engine.inline_core != this) return;
  while (EngineOp* op = t_engine.inline_ready.TakeFirst()) {
    Completed done;
    Execute(op, done);
    if (done.ready.first != nullptr) RunInline(done.ready);
    Flush(done);
  }
}

template <class Op>
inline typename Op::FailurePtr BasicEngineCore<Op>::ReasonToSkip(const EngineOp& op) {
  // Relaxed: a Cancel that the operation can know of came before it here, by the locks between.
  if (op.sequence < cancelled_before_.load(std::memory_order_relaxed)) [[unlikely]]
    return NewFailure(op, CancelledError(op));
  for (int32_t i = 0; i < op.access_count; ++i) {
    const Access& access = op.access(i);
    if (access.writes() && !op.updates) continue;
    const FailurePtr& failure = access.var->failure;
    if (failure && failure->ConcernsOperation(op.sequence)) [[unlikely]]
      return failure;
  }
  return {};
}

template <class Op>
inline void BasicEngineCore<Op>::CallClosure(EngineOp* op, void* argument) {
  const OpFrame frame{this, op, t_engine.frame};
  t_engine.frame = &frame;
  try {
    const auto scope = InvocationScope::Adopt(op->invocation);
    std::exchange(op->closure, nullptr)(*op, true, argument);
  } catch (...) {
    op->SetThrown(std::current_exception());
  }
  t_engine.frame = frame.outer;
}

template <class Op>
inline void BasicEngineCore<Op>::Execute(EngineOp* op, Completed& done) {
  if (FailurePtr reason = ReasonToSkip(*op)) [[unlikely]] {
    EndClosure(op);
    op->SetFailure(std::move(reason));
    return Finish(op, done);
  }
  if (op->mode == OpMode::kSynchronous) [[likely]] {
    CallClosure(op, nullptr);
    return Finish(op, done);
  }
  op->mode == OpMode::kAsynchronous ? StartAsync(op, done) : StartOnDevice(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::StartAsync(EngineOp* op, Completed& done) {
  OpDetails& details = op->details();
  details.parts.store(2, std::memory_order_relaxed);  // published by the mutex
  uint32_t generation = 0;
  {
    MutexLock lock(async_mutex_);
    generation = ++details.async_generation;
    details.completable = true;
    details.async_prev = nullptr;
    details.async_next = std::exchange(async_first_, op);
    if (details.async_next != nullptr) details.async_next->details().async_prev = op;
  }
  // A Cancel may have looked at the list just before.
  if (op->sequence < cancelled_before_.load(std::memory_order_seq_cst))
    CancelAsync(op->sequence + 1);
  {
    BasicCompletion<EngineCore> handle(this, op, generation);
    CallClosure(op, &handle);
    // What was thrown outdoes "dropped": the handle ended because of it.
    if (op->failed && Claim(op, generation)) FinishPart(op, done);
  }
  FinishPart(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::StartOnDevice(EngineOp* op, Completed& done) {
  live_.Add();
  const Device device = op->details().device;
  Event event(device);
  try {
    const auto scope = InvocationScope::Adopt(op->invocation);
    // Its exceptions stay in the operation: a stream may skip the work of others for them.
    IssueFunctionOf(device)(
        device, op->copies ? kCopyStream : kComputeStream, [this, op] { CallClosure(op, nullptr); },
        event);
  } catch (...) {
    op->SetThrown(std::current_exception());
    EndClosure(op);
    Finish(op, done);
    return live_.CountDown();
  }
  const EventState* state = event.state().get();  // alive while it calls back
  const auto finish = [this, op, state](Completed& finished) {
    if (!op->failed && state->status() == EventStatus::kFailed) op->SetThrown(state->exception());
    EndClosure(op);  // where the stream has skipped it
    Finish(op, finished);
  };
  if (naive_) {
    event.state()->Wait({});
    finish(done);
    return live_.CountDown();
  }
  event.SetCallback([this, finish] {
    Completed finished;
    finish(finished);
    Dispatch(finished);
    live_.CountDown();
  });
}

// --- completing

template <class Op>
inline void BasicEngineCore<Op>::Finish(EngineOp* op, Completed& done) {
  const int32_t n = op->access_count;
  Failure* failure = nullptr;
  if (op->failed) [[unlikely]] {
    OpDetails& details = op->details();
    if (details.thrown)
      details.failure = NewFailure(*op, Named(*op, std::exchange(details.thrown, nullptr)));
    failure = details.failure.get();
    int64_t holders = 0;
    for (int32_t i = 0; i < n; ++i) holders += op->access(i).writes();
    failure->AddHolders(holders);
  }
  for (int32_t i = 0; i < n; ++i) {
    Access& access = op->access(i);
    VarState& var = *access.var;
    if (access.writes()) {
      if (failure != nullptr || var.failure) [[unlikely]] {
        if (FailurePtr before = std::exchange(var.failure, FailurePtr(failure)))
          before->Overwritten();
      }
      // Relaxed read: nobody else writes it now. Release: pairs with Version.
      var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (var.Release(access, done.ready)) [[unlikely]]
      FreeVar(var);
  }
  if (failure != nullptr) {
    op->details().failure = {};
    op->failed = false;
  }
  done.records.Add(op);
  ++done.count;
}

// The last of the two parts of an asynchronous operation finishes it. Acquire-release: it sees what
// the other part wrote.
template <class Op>
inline void BasicEngineCore<Op>::FinishPart(EngineOp* op, Completed& done) {
  if (op->details().parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::exception_ptr outcome = std::exchange(op->details().outcome, nullptr);
  if (outcome && !op->failed) op->SetThrown(std::move(outcome));
  Finish(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::Flush(Completed& done) {
  if (done.count == 0) return;
  records_.GiveBack(std::exchange(done.records, {}), std::exchange(done.count, 0));
}

// On a thread that is no runner.
template <class Op>
inline void BasicEngineCore<Op>::Dispatch(Completed& done) {
  if (done.ready.first != nullptr) {
    if (naive_) {
      RunInline(std::exchange(done.ready, {}));
    } else {
      while (EngineOp* op = done.ready.TakeFirst()) queue_.Push(op);
      WakeRunner();
    }
  }
  Flush(done);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_RUN_HPP_

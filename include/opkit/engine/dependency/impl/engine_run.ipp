// How the engine runs operations and ends them: runners on the pool, streams of devices, the naive
// engine's own way, and the effect of every completion on the Vars.
#ifndef OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_RUN_IPP_
#define OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_RUN_IPP_

#include <algorithm>

#include "opkit/engine/dependency/engine_core.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline void EngineCore::RunReady(Runner* runner) {
  constexpr int kFlushAt = 32;
  // The runner ends after so many operations. Then queued operations and the pool's other tasks
  // run.
  constexpr int kTurns = 256;
  const uint64_t spin_ticks = pool_.spin_ticks();
  const Latch* const waiting = t_engine.waiting;
  Completed done;
  EngineOp* op = nullptr;
  bool searching = true;
  uint64_t idle_since = 0;
  int pauses = 1;
  int idle_turn = 0;
  for (int turn = 0; turn < kTurns;) {
    if (!op) op = queue_.Take();
    if (op) {
      if (searching) {
        searching = false;
        if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && !queue_.empty())
          WakeRunner();
      }
      Execute(op, done);
      ++turn;
      op = done.ready.TakeFirst();
      if (done.ready.first || (op && queue_.HasBetterThan(op->priority))) {
        // All operations but one go to other runners; the best operation is not always the first.
        for (; op; op = done.ready.TakeFirst()) queue_.Push(op);
        op = queue_.Take();
        if (!queue_.empty()) WakeRunner();
      }
      if (done.count >= kFlushAt) Flush(done);
      if ((waiting && waiting->done()) || pool_.HasLoops()) break;
      idle_since = 0;
      continue;
    }
    Flush(done);
    if (waiting && waiting->done()) break;
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
    // Looks ever more rarely: a runner that looks all the time makes the pusher wait for the cache
    // line.
    for (int i = 0; i < pauses; ++i) CpuRelax();
    if (pauses < Runner::kMaxPauses) pauses *= 2;
  }
  if (op) queue_.Push(op);
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

inline void EngineCore::RunInline(OpList ready) {
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
  if (!outermost) return;  // the outermost frame runs them, however deep pushes nest
  DrainInline();
  thread.inline_ready = outer;
  thread.inline_core = outer_core;
  live_.CountDown();
}

inline void EngineCore::StartAsync(EngineOp* op, Completed& done) {
  OpDetails& details = op->details();
  details.parts.store(2, std::memory_order_relaxed);  // published by the mutex
  uint32_t generation = 0;
  {
    MutexLock lock(async_mutex_);
    generation = ++details.async_generation;
    details.completable = true;
    details.async_prev = nullptr;
    details.async_next = std::exchange(async_first_, op);
    if (details.async_next) details.async_next->details().async_prev = op;
  }
  // A Cancel may have looked at the list just before.
  if (op->sequence < cancelled_before_.load(std::memory_order_seq_cst))
    CancelAsync(op->sequence + 1);
  {
    Completion handle(this, op, generation);
    CallClosure(op, &handle);
    // Report the closure's exception, not "dropped": unwinding destroyed the handle.
    if (op->failed && Claim(op, generation)) FinishPart(op, done);
  }
  FinishPart(op, done);
}

// Calls the closure, on the device's thread or where the operation is issued. In a naive engine the
// issuing thread waits for the stream. Operations that the closure pushes are left to that thread,
// because here they would wait for this very stream.
inline void EngineCore::CallIssued(EngineOp* op, EngineThread* issuer) {
  EngineThread& thread = t_engine;
  if (!issuer || issuer == &thread) return CallClosure(op, nullptr);
  const EngineCore* outer_core = std::exchange(thread.inline_core, this);
  OpList outer = std::exchange(thread.inline_ready, {});
  CallClosure(op, nullptr);
  while (EngineOp* pushed = thread.inline_ready.TakeFirst())
    issuer->inline_ready.AddInOrder(pushed);
  thread.inline_ready = outer;
  thread.inline_core = outer_core;
}

inline void EngineCore::StartOnDevice(EngineOp* op, Completed& done) {
  live_.Add();
  const Device device = op->details().device;
  Event event(device);
  try {
    const auto scope = InvocationScope::Adopt(op->invocation, [&] { return op->span_names(); });
    // Exceptions of the closure stay in the operation: a stream that saw them might skip the work
    // of other operations.
    IssueFunctionOf(device)(
        device, op->mode == OpMode::kCopyOnDevice ? kCopyStream : kComputeStream,
        [this, op, issuer = naive_ ? &t_engine : nullptr] { CallIssued(op, issuer); }, event);
  } catch (...) {
    op->SetThrown(std::current_exception());
    op->EndClosure();
    Finish(op, done);
    return live_.CountDown();
  }
  // A raw pointer: the state stays alive while its callbacks run.
  const EventState* state = event.state().get();
  const auto finish = [this, op, state](Completed& finished) {
    if (!op->failed && state->status() == EventStatus::kFailed) op->SetThrown(state->exception());
    op->EndClosure();  // the stream may have skipped the closure
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

inline void EngineCore::Finish(EngineOp* op, Completed& done) {
  const std::span<Access> accesses = op->accesses();
  Failure* failure = nullptr;
  if (op->failed) [[unlikely]] {
    OpDetails& details = op->details();
    if (details.thrown)
      details.failure = NewFailure(*op, Named(op->name, std::exchange(details.thrown, nullptr)));
    failure = details.failure.get();
    failure->AddHolders(std::count_if(accesses.begin(), accesses.end(),
                                      [](const Access& access) { return access.writes(); }));
  }
  for (Access& access : accesses) {
    VarState& var = *access.var;
    if (access.writes()) {
      if (failure || var.failure) [[unlikely]] {
        if (FailurePtr before = std::exchange(var.failure, FailurePtr(failure)))
          before->Overwritten();
      }
      // Relaxed read: no other thread writes it now. Release: pairs with Version.
      var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (var.Release(access, done.ready)) [[unlikely]]
      vars_.GiveBack(var);
  }
  if (failure) {
    op->details().failure = {};
    op->failed = false;
  }
  done.records.Add(op);
  ++done.count;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_IMPL_ENGINE_RUN_IPP_

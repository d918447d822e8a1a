// EngineCore: the engine behind Engine's header. It grants accesses, runs ready operations on the
// pool, completes operations and keeps their failures.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_

#include "opkit/base/error.hpp"
#include "opkit/base/timeout.hpp"
#include "opkit/engine/dependency/engine_device.hpp"
#include "opkit/engine/dependency/operation.hpp"
#include "opkit/engine/dependency/ready_queue.hpp"
#include "opkit/engine/dependency/var.hpp"
#include "opkit/engine/dependency/var_state.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operation that runs on this thread. While it waits, the thread may run another operation, in a
// frame whose `outer` is this one.
struct OpFrame {
  const EngineCore* core;
  const EngineOp* op;
  const OpFrame* outer;
};

// The engine's state of one thread.
struct EngineThread {
  const OpFrame* frame = nullptr;
  const Latch* waiting = nullptr;           // latch of the innermost wait on this thread
  const EngineCore* inline_core = nullptr;  // the naive engine whose operations run on this thread
  OpList inline_ready;                      // ready operations of inline_core that have not run
};
inline constinit thread_local EngineThread t_engine;

// Operations that a thread has completed but not given back yet, and operations that became ready
// through them.
struct Completed {
  OpList records;
  int64_t count = 0;
  OpList ready;
};

// Thread-safe. Runners are tasks of the pool, at most one for each of its threads, that take one
// operation after the other; a completed operation usually gives its runner the next one.
class EngineCore final : public AsyncEngine {
 public:
  // If `naive`, operations run on the thread that pushes them, or on the thread that completes the
  // operation that they waited for.
  EngineCore(ThreadPool& pool, bool naive, uint32_t id) : pool_(pool), naive_(naive), id_(id) {}
  ~EngineCore() override {
    while (free_runners_) delete std::exchange(free_runners_, free_runners_->next_free);
  }

  bool naive() const { return naive_; }

  Var NewVar() {
    VarState* state = vars_.Take();
    return Var(state, state->generation, id_);
  }
  void DeleteVar(Var var) {
    VarState& state = StateOf(var);
    bool last = false;
    {
      SpinLockGuard guard(state.lock);
      RequireLive(state, var.generation_);
      last = state.Delete();
    }
    if (last) vars_.GiveBack(state);
  }
  uint64_t Version(Var var) const {
    VarState& state = StateOf(var);
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    // Acquire: the caller sees the counted writes.
    return state.version.load(std::memory_order_acquire);
  }

  // A push calls Prepare, then Submit or Abandon. Engine documents the contracts.
  OpSlot Prepare(VarList reads, VarList writes, const PushOptions& options,
                 const OpClosureType& closure);
  void Abandon(EngineOp* op) {
    op->closure = nullptr;
    GiveBack(op);
  }
  void Submit(EngineOp* op);
  void WaitForVar(Var var, Timeout timeout);
  void WaitForAll(Timeout timeout);
  void Cancel() {
    const uint64_t before = records_.next_sequence();
    // The exchange below checks the value again.
    uint64_t now = cancelled_before_.load(std::memory_order_relaxed);
    while (now < before &&
           !cancelled_before_.compare_exchange_weak(now, before, std::memory_order_seq_cst)) {
    }
    CancelAsync(before);
  }

  // Returns when no operation is left.
  void Shutdown() {
    const OpRecords::Waiter waiter(records_);
    for (;;) {
      pool_.Wait(live_);
      if (waiter.outstanding().done()) break;
      // Nothing runs any more: the remaining operations wait for handles that were not used yet.
      CancelAsync(~uint64_t{0});
    }
    pool_.Wait(live_);
  }
  bool CompleteAsync(EngineOp* op, uint32_t generation, std::exception_ptr exception) override;

 private:
  // A task of the pool that runs ready operations.
  struct Runner : PoolTask {
    explicit Runner(EngineCore* its_core) : PoolTask(&RunRunner, Invocation{}), core(its_core) {}
    static void RunRunner(PoolTask* self) noexcept {
      auto* runner = static_cast<Runner*>(self);
      runner->core->RunReady(runner);
    }
    // Returns the number of CpuRelax calls before the runner looks into the queue again, after it
    // has run `operations` and found the queue empty. A longer pause lets the producer get ahead
    // instead of contending for cache lines; the pause gets shorter after a single operation, whose
    // pusher probably waits for it.
    int PausesAfter(int operations) {
      constexpr int kEnough = 64;
      if (operations == 1 && pauses > 1) pauses /= 2;
      if (operations > 1 && operations < kEnough && pauses < kMaxPauses) pauses *= 2;
      return pauses;
    }

    static constexpr int kMaxPauses = 32;
    EngineCore* const core;
    Runner* next_free = nullptr;
    int pauses = 1;
  };

  // --- pushing
  VarState& StateOf(Var var) const {
    if (var.engine_ != id_) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "expected a Var of this engine, found ",
            var ? "one of another engine" : "an empty Var",
            "; make it with NewVar() of the engine that uses it");
    return *var.state_;
  }
  [[noreturn]] OPKIT_COLD static void ThrowDeleted() {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Var that is in use, found one after DeleteVar; delete it after its last use, "
          "which need not have run by then");
  }
  static void RequireLive(const VarState& state, uint32_t generation) {
    if (state.generation != generation) [[unlikely]]
      ThrowDeleted();
  }
  static void SortAccesses(EngineOp& op);
  void SetAccesses(EngineOp& op, VarList reads, VarList writes) const;
  void GiveBack(EngineOp* op) {
    OpList list;
    list.Add(op);
    records_.GiveBack(list, 1);
  }

  // --- running
  void RunReady(Runner* runner);
  void WakeRunner() {
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
      if (free_runners_) runner = std::exchange(free_runners_, free_runners_->next_free);
    }
    if (!runner) runner = new Runner(this);
    try {
      pool_.Schedule(runner);
    } catch (const Error&) {  // no thread can be started: run them here
      RunReady(runner);
    }
  }
  void RunInline(OpList ready);
  void DrainInline() {
    if (t_engine.inline_core != this) return;
    while (EngineOp* op = t_engine.inline_ready.TakeFirst()) {
      Completed done;
      Execute(op, done);
      if (done.ready.first) RunInline(done.ready);
      Flush(done);
    }
  }
  FailurePtr ReasonToSkip(const EngineOp& op) {
    // Relaxed: locks order this load after every Cancel that the operation can know of.
    if (op.sequence < cancelled_before_.load(std::memory_order_relaxed)) [[unlikely]]
      return NewFailure(op, CancelledError(op.name));
    for (const Access& access : op.accesses()) {
      if (access.writes() && !op.updates) continue;
      const FailurePtr& failure = access.var->failure;
      if (failure && failure->ConcernsOperation(op.sequence)) [[unlikely]]
        return failure;
    }
    return {};
  }
  void CallClosure(EngineOp* op, Completion* completion) {
    const OpFrame frame{this, op, t_engine.frame};
    t_engine.frame = &frame;
    try {
      const auto scope = InvocationScope::Adopt(op->invocation, [&] { return op->span_names(); });
      op->EndClosure(/*call=*/true, completion);
    } catch (...) {
      op->SetThrown(std::current_exception());
    }
    t_engine.frame = frame.outer;
  }
  void Execute(EngineOp* op, Completed& done) {
    if (FailurePtr reason = ReasonToSkip(*op)) [[unlikely]] {
      op->EndClosure();
      op->SetFailure(std::move(reason));
      return Finish(op, done);
    }
    if (op->mode == OpMode::kSynchronous) [[likely]] {
      CallClosure(op, nullptr);
      return Finish(op, done);
    }
    op->mode == OpMode::kAsynchronous ? StartAsync(op, done) : StartOnDevice(op, done);
  }
  void StartAsync(EngineOp* op, Completed& done);
  void StartOnDevice(EngineOp* op, Completed& done);
  void CallIssued(EngineOp* op, EngineThread* issuer);

  // --- completing
  FailurePtr NewFailure(const EngineOp& op, std::exception_ptr exception) {
    FailurePtr failure(new Failure(std::move(exception), op.sequence));
    failures_.Add(failure);
    return failure;
  }
  void Finish(EngineOp* op, Completed& done);
  // Ends one of the two parts of an asynchronous operation; the last one finishes it.
  // Acquire-release: it sees the writes of the other part.
  void FinishPart(EngineOp* op, Completed& done) {
    if (op->details().parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::exception_ptr outcome = std::exchange(op->details().outcome, nullptr);
    if (outcome && !op->failed) op->SetThrown(std::move(outcome));
    Finish(op, done);
  }
  void Flush(Completed& done) {
    if (done.count == 0) return;
    records_.GiveBack(std::exchange(done.records, {}), std::exchange(done.count, 0));
  }
  // Queues the operations that became ready, or runs them in a naive engine. Called on threads that
  // are not runners.
  void Dispatch(Completed& done) {
    if (done.ready.first) {
      if (naive_) {
        RunInline(std::exchange(done.ready, {}));
      } else {
        while (EngineOp* op = done.ready.TakeFirst()) queue_.Push(op);
        WakeRunner();
      }
    }
    Flush(done);
  }
  // Takes the right to complete the operation. Returns true to the first caller only, which is the
  // operation's handle or Cancel.
  bool Claim(EngineOp* op, uint32_t generation) {
    MutexLock lock(async_mutex_);
    OpDetails& details = op->details();
    if (!details.completable || details.async_generation != generation) return false;
    details.completable = false;
    EngineOp* const prev = details.async_prev;
    EngineOp* const next = details.async_next;
    (prev ? prev->details().async_next : async_first_) = next;
    if (next) next->details().async_prev = prev;
    return true;
  }
  void CancelAsync(uint64_t before);

  // --- waiting
  bool Wait(const Latch& latch, Timeout timeout);
  // Returns the access to the Var of an operation that runs on this thread, or null.
  const Access* OwnAccess(const VarState& state) const {
    for (const OpFrame* frame = t_engine.frame; frame; frame = frame->outer) {
      if (frame->core != this) continue;
      for (const Access& access : frame->op->accesses())
        if (access.var == &state) return &access;
    }
    return nullptr;
  }

  ThreadPool& pool_;
  const bool naive_;
  const uint32_t id_;
  // Operations with a sequence below this number are cancelled. Only Cancel writes it.
  std::atomic<uint64_t> cancelled_before_{0};

  alignas(kCacheLine) OpRecords records_;
  ReadyQueue queue_;
  // Counts runners and other work under way that ends by itself.
  alignas(kCacheLine) Latch live_;

  // A thread that pushes an operation looks for a searching runner afterwards. A runner that stops
  // searching looks for operations once more afterwards. All these accesses are seq_cst, so that
  // the thread sees the runner or the runner sees the operation (IdleList explains this protocol).
  alignas(kCacheLine) std::atomic<int> searching_{0};  // scheduled runners included
  std::atomic<int> runners_{0};
  SpinLock runners_lock_;
  Runner* free_runners_ = nullptr;

  alignas(kCacheLine) VarTable vars_;

  FailureLog failures_;
  Mutex async_mutex_;
  EngineOp* async_first_ = nullptr;  // asynchronous operations that were started
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_

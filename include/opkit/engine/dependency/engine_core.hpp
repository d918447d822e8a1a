// EngineCore: what is behind Engine. It grants accesses, runs what is ready on the pool, completes
// operations and keeps what failed. Completion handles keep it alive, so that a late one is safe.
#ifndef OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_
#define OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_

#include "opkit/engine/dependency/engine_device.hpp"
#include "opkit/engine/dependency/ready_queue.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit::inline OPKIT_ABI {

// Copies have a stream of their own on every device.
enum class OpKind : uint8_t { kNormal, kCopy };

struct PushOptions {
  int priority = 0;       // of the operations that are ready, those with higher ones start first
  const char* name = "";  // for messages; not copied
  OpKind kind = OpKind::kNormal;
  Device device = {};   // unless a CPU: the operation is issued on a stream of it
  bool update = false;  // it reads what it writes, too: skipped where that has failed
};

// Where an asynchronous operation says that it is done: once, on any thread, at any time. Moves; a
// handle that is dropped fails its operation. It may outlive the engine.
template <class Core>
class BasicCompletion {
 public:
  BasicCompletion() = default;
  BasicCompletion(BasicCompletion&&) = default;
  BasicCompletion& operator=(BasicCompletion&& other) noexcept;
  ~BasicCompletion();

  explicit operator bool() const { return static_cast<bool>(core_); }  // not used up

  // False where the operation was cancelled meanwhile; then nothing happens. Error
  // (kFailedPrecondition) for a handle that was used already.
  bool SetFinished() { return SetFinishedWithException(nullptr); }
  // Fails the operation, unless null.
  bool SetFinishedWithException(std::exception_ptr exception);

 private:
  friend Core;
  BasicCompletion(Core* core, detail::EngineOp* op, uint32_t generation);

  detail::IntrusivePtr<Core> core_;
  detail::EngineOp* op_ = nullptr;
  uint32_t generation_ = 0;
};
using Completion = BasicCompletion<detail::EngineCore>;

namespace detail {

// An operation that runs on this thread; one that waits may run another inside.
struct OpFrame {
  const EngineCore* core;
  const EngineOp* op;
  const OpFrame* outer;
};

struct EngineThread {
  const OpFrame* frame = nullptr;
  const Latch* waiting = nullptr;           // what the innermost wait on this thread is for
  const EngineCore* inline_core = nullptr;  // the naive engine that runs operations here, and ...
  OpList inline_ready;                      // ... those that it has still to run
};
inline constinit thread_local EngineThread t_engine;

// What a thread has completed and not told the others yet, and what can run because of it.
struct Completed {
  OpList records;
  int64_t count = 0;
  OpList ready;
};

// Thread-safe. Runners are tasks of the pool, at most one for each of its threads, that take one
// operation after the other; the one that they complete usually hands them the next.
//
// A template, so that programs without an engine do not compile it.
template <class Op>
class BasicEngineCore final : public RefCounted {
 public:
  using EngineOp = Op;
  using EngineCore = BasicEngineCore;
  using FailurePtr = typename Op::FailurePtr;
  using Pool = ThreadPool;

  // Without a pool, operations run on the thread that pushes them or completes what they waited
  // for.
  BasicEngineCore(ThreadPool* pool, uint32_t id)
      : pool_(pool != nullptr ? *pool : ThreadPool::Default()), naive_(pool == nullptr), id_(id) {}
  ~BasicEngineCore() override {
    while (free_runners_ != nullptr) delete std::exchange(free_runners_, free_runners_->next_free);
  }

  bool naive() const { return naive_; }

  Var NewVar();
  void DeleteVar(Var var);
  uint64_t Version(Var var) const;

  // A push is Prepare, the making of the closure, and Submit; or Abandon. Prepare and Submit throw
  // for what the caller got wrong, and then nothing is changed.
  EngineOp* Prepare(VarList reads, VarList writes, const PushOptions& options);
  void Abandon(EngineOp* op) {
    OpList list;
    list.Add(op);
    records_.GiveBack(list, 1);
  }
  void Submit(EngineOp* op);

  void WaitForVar(Var var, Timeout timeout);
  void WaitForAll(Timeout timeout);
  void Cancel();
  // Returns when no operation is left.
  void Shutdown();

  // False when the handle is not the one that may complete the operation any more.
  bool CompleteAsync(EngineOp* op, uint32_t generation, std::exception_ptr exception);

 private:
  struct Runner : PoolTask {
    explicit Runner(EngineCore* core) : PoolTask(&RunRunner), core(core) {}
    static void RunRunner(PoolTask* self) noexcept {
      auto* runner = static_cast<Runner*>(self);
      runner->core->RunReady(runner);
    }
    // How long to leave the queue alone, in CpuRelax, after so many operations had emptied it. A
    // runner on the heels of a pusher waits with it for every cache line, and so lets it get ahead;
    // one that finds single operations is probably waited for.
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
  VarState& StateOf(Var var) const;
  [[noreturn]] static void ThrowDeleted();
  static void RequireLive(const VarState& state, uint32_t generation) {
    if (state.generation != generation) [[unlikely]]
      ThrowDeleted();
  }
  void FreeVar(VarState& state);
  void SetAccesses(EngineOp& op, VarList reads, VarList writes) const;
  static void SortAccesses(EngineOp& op);
  void MakeReady(EngineOp* op);

  // --- running
  void RunReady(Runner* runner);
  void WakeRunner();
  void RunInline(OpList ready);
  void DrainInline();
  FailurePtr ReasonToSkip(const EngineOp& op);
  void Execute(EngineOp* op, Completed& done);
  void CallClosure(EngineOp* op, void* argument);
  static void EndClosure(EngineOp* op) {
    if (op->closure != nullptr) std::exchange(op->closure, nullptr)(*op, false, nullptr);
  }
  void StartAsync(EngineOp* op, Completed& done);
  void StartOnDevice(EngineOp* op, Completed& done);

  // --- completing
  FailurePtr NewFailure(const EngineOp& op, std::exception_ptr exception) {
    FailurePtr failure(new Failure(std::move(exception), op.sequence));
    failures_.Add(failure);
    return failure;
  }
  // An Error that also says in which operation it happened, where that has a name; a copy, since
  // events may share it. Other exceptions stay what they are.
  OPKIT_COLD static std::exception_ptr Named(const EngineOp& op, std::exception_ptr exception) {
    if (*op.name == '\0') return exception;
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      if (typeid(error) != typeid(Error)) return exception;
      Error named = error;
      named.AddContext(StrCat("in the operation \"", op.name, "\" of an engine"));
      return std::make_exception_ptr(std::move(named));
    } catch (...) {
      return exception;
    }
  }
  static std::exception_ptr CancelledError(const EngineOp& op) {
    return std::make_exception_ptr(
        Error(ErrorCode::kCancelled, StrCat("the operation \"", op.name, "\" was cancelled")));
  }
  void Finish(EngineOp* op, Completed& done);
  void FinishPart(EngineOp* op, Completed& done);
  void Dispatch(Completed& done);
  void Flush(Completed& done);
  bool Claim(EngineOp* op, uint32_t generation);
  void CancelAsync(uint64_t before);

  // --- waiting
  bool Wait(const Latch& latch, Timeout timeout);
  const Access* OwnAccess(const VarState& state) const;

  ThreadPool& pool_;
  const bool naive_;
  const uint32_t id_;
  // Operations numbered below are cancelled. Only Cancel writes it.
  std::atomic<uint64_t> cancelled_before_{0};

  alignas(kCacheLine) OpRecords records_;
  ReadyQueue<Op> queue_;
  // Runners and other things under way that end by themselves.
  alignas(kCacheLine) Latch live_;

  // As in IdleList: who pushes looks for a searching runner after, who stops searching looks for
  // operations after; both seq_cst, so that one of them sees the other.
  alignas(kCacheLine) std::atomic<int> searching_{0};  // scheduled ones included
  std::atomic<int> runners_{0};
  SpinLock runners_lock_;
  Runner* free_runners_ = nullptr;

  alignas(kCacheLine) SpinLock vars_lock_;
  VarState* free_vars_ = nullptr;
  SlabTable<VarState> vars_;

  FailureLog<FailurePtr> failures_;
  Mutex async_mutex_;
  EngineOp* async_first_ = nullptr;  // asynchronous operations that were started
};

// --- Vars

template <class Op>
inline VarState& BasicEngineCore<Op>::StateOf(Var var) const {
  if (var.engine_ != id_) [[unlikely]] {
    Throw(ErrorCode::kInvalidArgument, "expected a Var of this engine, found ",
          var ? "one of another engine" : "an empty Var",
          "; make it with NewVar() of the engine that uses it");
  }
  return *var.state_;
}

template <class Op>
OPKIT_COLD inline void BasicEngineCore<Op>::ThrowDeleted() {
  Throw(ErrorCode::kFailedPrecondition,
        "expected a Var that is in use, found one after DeleteVar; delete it after its last use, "
        "which need not have run by then");
}

template <class Op>
inline Var BasicEngineCore<Op>::NewVar() {
  SpinLockGuard guard(vars_lock_);
  if (free_vars_ == nullptr) {
    VarState* fresh = vars_.Add();
    for (int i = SlabTable<VarState>::kObjects - 1; i >= 0; --i)
      fresh[i].next_free = std::exchange(free_vars_, &fresh[i]);
  }
  VarState* state = std::exchange(free_vars_, free_vars_->next_free);
  return Var(state, state->generation, id_);
}

template <class Op>
inline void BasicEngineCore<Op>::FreeVar(VarState& state) {
  state.Recycle();
  SpinLockGuard guard(vars_lock_);
  state.next_free = std::exchange(free_vars_, &state);
}

template <class Op>
inline void BasicEngineCore<Op>::DeleteVar(Var var) {
  VarState& state = StateOf(var);
  bool last = false;
  {
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    last = state.Delete();
  }
  if (last) FreeVar(state);
}

template <class Op>
inline uint64_t BasicEngineCore<Op>::Version(Var var) const {
  VarState& state = StateOf(var);
  SpinLockGuard guard(state.lock);
  RequireLive(state, var.generation_);
  // Acquire: what the counted writes wrote is seen.
  return state.version.load(std::memory_order_acquire);
}

// --- pushing

// Sorted by address, each Var once.
template <class Op>
inline void BasicEngineCore<Op>::SetAccesses(EngineOp& op, VarList reads, VarList writes) const {
  const size_t size = reads.size() + writes.size();
  if (size > 1) op.details().ReserveAccesses(size - 1);
  int32_t n = 0;
  const auto set = [&](const VarList& vars, uintptr_t mark) {
    for (const Var& var : vars) {
      VarState* state = &StateOf(var);
      Access& access = op.access(n++);
      access.var = state;
      access.owner = reinterpret_cast<uintptr_t>(&op) | mark;
      access.next.store(var.generation_, std::memory_order_relaxed);  // for Submit to check
    }
  };
  set(reads, 0);
  set(writes, Access::kWrite);
  op.access_count = n;
  if (n > 1) SortAccesses(op);
}

template <class Op>
inline void BasicEngineCore<Op>::SortAccesses(EngineOp& op) {
  const int32_t n = op.access_count;
  const auto swap = [&](Access& a, Access& b) {
    std::swap(a.var, b.var);
    std::swap(a.owner, b.owner);
    const uintptr_t generation = a.next.load(std::memory_order_relaxed);
    a.next.store(b.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    b.next.store(generation, std::memory_order_relaxed);
  };
  // Shell's sort: few as a rule, and mostly in order.
  for (int32_t gap = n > 8 ? n / 2 : 1; gap > 0; gap /= 2) {
    for (int32_t i = gap; i < n; ++i) {
      for (int32_t j = i; j >= gap && op.access(j).var < op.access(j - gap).var; j -= gap)
        swap(op.access(j), op.access(j - gap));
    }
  }
  int32_t kept = 0;
  for (int32_t i = 1; i < n; ++i) {
    if (op.access(i).var != op.access(kept).var) {
      if (++kept != i) swap(op.access(kept), op.access(i));
    } else if (op.access(i).writes() != op.access(kept).writes()) {
      Throw(ErrorCode::kInvalidArgument, "expected each Var in reads or in writes of \"", op.name,
            "\", found one in both; list it in writes alone, with .update = true where the "
            "operation needs the old value");
    }
  }
  op.access_count = kept + 1;
}

template <class Op>
inline Op* BasicEngineCore<Op>::Prepare(VarList reads, VarList writes, const PushOptions& options) {
  EngineOp* op = records_.Take();
  op->priority = naive_ ? 0 : options.priority;
  op->name = options.name != nullptr ? options.name : "";
  op->mode = OpMode::kSynchronous;
  op->updates = options.update;
  op->invocation = CurrentInvocation();
  try {
    if (options.device.type != DeviceType::kCPU) [[unlikely]] {
      IssueFunctionOf(options.device);
      op->mode = OpMode::kOnDevice;
      op->details().device = options.device;
      op->copies = options.kind == OpKind::kCopy;
    }
    SetAccesses(*op, reads, writes);
  } catch (...) {
    Abandon(op);
    throw;
  }
  return op;
}

template <class Op>
inline void BasicEngineCore<Op>::Submit(EngineOp* op) {
  const int32_t n = op->access_count;
  // Relaxed: who counts it down has found the operation in a queue.
  op->waits.store(n, std::memory_order_relaxed);
  // All Vars are locked before any queue is changed, in the order of their addresses, so that the
  // operations of several pushers stand in the same order in every queue.
  for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Lock();
  bool live = true;
  for (int32_t i = 0; i < n; ++i) {
    const Access& access = op->access(i);
    // Relaxed: this thread's.
    live &= access.var->generation == access.next.load(std::memory_order_relaxed);
  }
  if (!live) [[unlikely]] {
    for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Unlock();
    EndClosure(op);
    Abandon(op);
    ThrowDeleted();
  }
  int32_t granted = 0;
  for (int32_t i = 0; i < n; ++i) granted += op->access(i).var->Append(op->access(i));
  // Granted elsewhere the operation may run from here on, but it cannot release a locked Var.
  for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Unlock();
  // Acquire-release as in AddIfGranted.
  if (granted == n ||
      (granted > 0 && op->waits.fetch_sub(granted, std::memory_order_acq_rel) == granted)) {
    MakeReady(op);
  }
}

template <class Op>
inline void BasicEngineCore<Op>::MakeReady(EngineOp* op) {
  if (naive_) [[unlikely]] {
    OpList list;
    list.Add(op);
    return RunInline(list);
  }
  queue_.Push(op);
  WakeRunner();
}
}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_DEPENDENCY_ENGINE_CORE_HPP_

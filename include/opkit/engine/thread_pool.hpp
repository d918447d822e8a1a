// ThreadPool: the work-stealing pool under everything that runs in parallel: ParallelFor in
// kernels, the Var engine, the executor. One of them serves the process (Default), sized by one
// setting; threads that wait take part, so that n threads means n busy threads and no more.
#ifndef OPKIT_ENGINE_THREAD_POOL_HPP_
#define OPKIT_ENGINE_THREAD_POOL_HPP_

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/engine/pool/idle_list.hpp"
#include "opkit/engine/pool/inbox.hpp"
#include "opkit/engine/pool/latch.hpp"
#include "opkit/engine/pool/loop_board.hpp"
#include "opkit/engine/pool/work_deque.hpp"

namespace opkit::inline OPKIT_ABI {

class ThreadPool;

// A unit of work embedded in a record of its owner's (an operation of the engine), so that
// scheduling allocates nothing. From Schedule on it is the pool's, until `run` is called, which may
// free it. It runs under the invocation that was current when it was made.
struct PoolTask : detail::InboxNode {
  using RunFunction = void (*)(PoolTask*) noexcept;
  explicit PoolTask(RunFunction run) : run(run), invocation(CurrentInvocation()) {}

  RunFunction run;
  Invocation invocation;
};

namespace detail {

struct alignas(kCacheLine) PoolWorker {
  PoolWorker(ThreadPool* pool, int index) : pool(pool), index(index) {}

  ThreadPool* const pool;
  const int index;
  uint32_t turn = 0;
  bool running = false;  // guarded by the pool's start mutex, as is `thread`
  pthread_t thread{};
  WorkDeque<PoolTask, 1024> deque;
};

struct PoolThreadState {
  ThreadPool* pool = nullptr;    // what Current() says on this thread
  PoolWorker* worker = nullptr;  // on a pool's own threads
};
inline constinit thread_local PoolThreadState t_pool;

// Every live pool, for the fork handlers.
struct PoolRegistry {
  Mutex mutex;
  ThreadPool* first = nullptr;
  bool fork_handled = false;
};
inline constinit PoolRegistry g_pools;

}  // namespace detail

// Makes `pool` the one that ParallelFor and TaskGroup use on this thread.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool& pool) : previous_(std::exchange(detail::t_pool.pool, &pool)) {}
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
  ~PoolScope() { detail::t_pool.pool = previous_; }

 private:
  ThreadPool* previous_;
};

// A pool of n threads is the thread that waits (in Wait, TaskGroup or ParallelFor) and n - 1
// workers. A pool of one runs every ParallelFor inline; for tasks it has one worker, so that they
// progress when nobody waits, and a thread that waits from outside sleeps meanwhile: tasks of a
// pool of one never overlap. Workers start when there is something for them to do, one after the
// other.
//
// A worker without work looks for some for a few microseconds, then sleeps in the kernel: an idle
// pool uses no CPU. Waking costs the waker one system call, and only if somebody sleeps and nobody
// is already looking.
//
// All members are thread-safe except the destructor. A task that lets an exception escape
// terminates the process, as a std::thread does; TaskGroup keeps exceptions and hands them to its
// waiter.
//
// Fork: the child has the pool with its settings, empty and without threads; they start again when
// needed. Tasks, loops and latches that were pending stay with the parent. A child that was forked
// inside a task or a loop body must end by exec or _exit.
class ThreadPool {
 public:
  using Task = UniqueFunction<void()>;
  static constexpr int kMaxThreads = 1024;

  // `name` is the prefix of the threads' names. With `pin_workers`, worker i stays on the (i +
  // 1)-th of the CPUs that the thread which started it may use; without, the system places them.
  explicit ThreadPool(int threads, std::string name = "opkit", bool pin_workers = false)
      : name_(std::move(name)), pin_workers_(pin_workers) {
    SetThreads(threads);
    detail::MutexLock lock(detail::g_pools.mutex);
    if (!std::exchange(detail::g_pools.fork_handled, true)) HandleFork();
    registry_next_ = std::exchange(detail::g_pools.first, this);
  }

  // Runs all that is queued, what those tasks submit included, on the workers and the calling
  // thread, then joins the workers. Not for one of the pool's own tasks to call.
  ~ThreadPool() {
    OPKIT_ASSERT(OwnWorker() == nullptr);
    {
      detail::MutexLock lock(detail::g_pools.mutex);
      ThreadPool** at = &detail::g_pools.first;
      while (*at != this) at = &(*at)->registry_next_;
      *at = registry_next_;
    }
    {
      detail::MutexLock lock(start_mutex_);  // afterwards no worker starts or retires
      stopping_ = true;
    }
    idle_.WakeAll();
    if (threads() > 1) Drain();
    const int slots = slots_;
    for (int i = 0; i < slots; ++i) {
      detail::PoolWorker* worker = workers_[i];
      if (worker->running) pthread_join(worker->thread, nullptr);
    }
    Drain();
    for (int i = 0; i < slots; ++i) delete workers_[i].load();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The process's pool, made at the first call with OPKIT_NUM_THREADS threads or, without that
  // variable, one for each CPU that the process may use; OPKIT_PIN_THREADS=1 pins its workers. It
  // is never destroyed, so that destructors of static objects can use it; tasks still queued when
  // the process exits do not run.
  static ThreadPool& Default() {
    static ThreadPool* const pool = [] {
      const char* pin = std::getenv("OPKIT_PIN_THREADS");
      return new ThreadPool(DefaultThreads(), "opkit", pin != nullptr && pin[0] == '1');
    }();
    return *pool;
  }

  // What ParallelFor and TaskGroup use on this thread: the innermost PoolScope's pool, else the one
  // whose work the thread runs, else Default().
  static ThreadPool& Current() {
    return detail::t_pool.pool != nullptr ? *detail::t_pool.pool : Default();
  }

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

  // From 1 to kMaxThreads. Surplus workers leave after the task or loop that they are in; nothing
  // queued is lost, and loops already running keep the size they began with.
  void Resize(int threads) {
    SetThreads(threads);
    idle_.WakeAll();
  }

  // Runs `task` some time. Tasks of a worker go to its own queue, from where others steal, all
  // others to a shared one; no order is promised. Allocates a record for the task.
  void Submit(Task task) {
    struct Record : PoolTask {
      explicit Record(Task&& task) : PoolTask(&RunRecord), task(std::move(task)) {}
      static void RunRecord(PoolTask* self) noexcept {
        Record* record = static_cast<Record*>(self);
        record->task();
        delete record;
      }
      Task task;
    };
    RequireWorker();
    Schedule(new Record(std::move(task)));
  }

  // Submit without the allocation.
  void Schedule(PoolTask* task) {
    RequireWorker();
    detail::PoolWorker* worker = OwnWorker();
    if (worker == nullptr || !worker->deque.Push(task)) injected_.Put(task);
    NotifyWork();
  }

  // Runs one queued task, or takes part in a running loop, on this thread; false if there is none.
  bool RunOneTask() {
    PoolScope scope(*this);
    const Work work = FindWork(OwnWorker());
    if (work) Run(work);
    return static_cast<bool>(work);
  }

  // Returns true when the latch is at zero. Meanwhile this thread runs any of the pool's tasks: do
  // not hold a lock that a task may take. With a timeout (ns; false when it has passed) a thread
  // from outside only sleeps, because a task could take longer than that.
  bool Wait(const Latch& latch, int64_t timeout_ns = -1);

  // For tasks that run long: whether loops could use the thread meanwhile. Relaxed: a hint.
  bool HasLoops() const { return !loops_.empty(); }
  // How long a thread without work looks for some before it sleeps, in detail::Ticks.
  uint64_t spin_ticks() const { return spin_ticks_.load(std::memory_order_relaxed); }

  // Calls body(begin, end) for [first, last) in chunks of `grain`, on this thread and on workers
  // that have nothing else to do; ParallelFor is the front of it. This thread runs chunks of this
  // loop and nothing else, so a caller may hold a lock that the body does not take.
  void RunLoop(int64_t first, int64_t last, int64_t grain, detail::RangeFunction body);

 private:
  // A task to run, or a loop that has been joined.
  struct Work {
    PoolTask* task = nullptr;
    detail::ParallelLoop* loop = nullptr;
    explicit operator bool() const { return task != nullptr || loop != nullptr; }
  };

  static int DefaultThreads();
  static void HandleFork();
  void ResetAfterFork();
  void SetThreads(int threads);

  // Below 2 threads there is still the one worker for tasks.
  int worker_target() const { return threads() > 1 ? threads() - 1 : 1; }
  detail::PoolWorker* OwnWorker() const {
    detail::PoolWorker* worker = detail::t_pool.worker;
    return worker != nullptr && worker->pool == this ? worker : nullptr;
  }

  void RequireWorker() {
    if (running_.load(std::memory_order_relaxed) == 0) [[unlikely]]
      StartFirstWorker();
  }
  void StartFirstWorker();
  bool StartWorker();
  bool Retire(detail::PoolWorker& self);
  void WorkerMain(detail::PoolWorker& self);
  void Sleep(detail::PoolWorker& self);

  Work FindWork(detail::PoolWorker* self);
  bool HasWork() const;
  void Run(Work work);
  PoolTask* TakeInjected() { return static_cast<PoolTask*>(injected_.Take()); }
  void Drain() {
    while (RunOneTask()) {
    }
  }

  void NotifyWork();
  void WakeForLoop(int threads);
  void StopSearching() {
    if (idle_.StopSearching() && HasWork()) NotifyWork();
  }

  const std::string name_;
  const bool pin_workers_;
  std::atomic<int> threads_{1};
  // How long a thread looks for work before it sleeps: longer than a sleeper takes to wake up, and
  // nothing when there are more threads than CPUs, where looking keeps others from working.
  std::atomic<uint64_t> spin_ticks_{0};
  std::atomic<bool> stopping_{false};

  detail::Mutex start_mutex_;
  std::atomic<int> running_{0};  // workers whose thread exists
  std::atomic<int> slots_{0};    // workers ever made: that many entries of workers_, from the first
  std::atomic<detail::PoolWorker*> workers_[kMaxThreads] = {};
  ThreadPool* registry_next_ = nullptr;

  alignas(detail::kCacheLine) detail::Inbox injected_;
  alignas(detail::kCacheLine) detail::LoopBoard loops_;
  alignas(detail::kCacheLine) detail::IdleList idle_;
};

// Threads of the process's pool, the one setting that kernels hand on to the libraries they call.
inline int NumThreads() { return ThreadPool::Default().threads(); }
inline void SetNumThreads(int threads) { ThreadPool::Default().Resize(threads); }

inline int ThreadPool::DefaultThreads() {
  const char* text = std::getenv("OPKIT_NUM_THREADS");
  if (text == nullptr || *text == '\0') {
    const int cpus = detail::AvailableCpus();
    return cpus < kMaxThreads ? cpus : kMaxThreads;
  }
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (*end != '\0' || threads < 1 || threads > kMaxThreads) {
    Throw(ErrorCode::kInvalidArgument,
          "expected the environment variable OPKIT_NUM_THREADS to be a", " number from 1 to ",
          kMaxThreads, ", found \"", text, "\"; correct it or unset it");
  }
  return static_cast<int>(threads);
}

inline void ThreadPool::SetThreads(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    Throw(ErrorCode::kInvalidArgument, "expected a number of threads from 1 to ", kMaxThreads,
          " for the pool \"", name_, "\", found ", threads);
  }
  constexpr uint64_t kSpinTicks = 12'000;
  spin_ticks_ = threads <= detail::AvailableCpus() ? kSpinTicks : 0;
  detail::MutexLock lock(start_mutex_);
  threads_ = threads;
}

// --- workers

OPKIT_COLD inline void ThreadPool::StartFirstWorker() {
  if (stopping_ || StartWorker() || running_ != 0) return;
  Throw(ErrorCode::kFailedPrecondition, "expected to start a thread of the pool \"", name_,
        "\", but the system refused it; raise the limit on processes (ulimit -u) or on memory");
}

// False when all that should run do, or the system refuses.
OPKIT_COLD inline bool ThreadPool::StartWorker() {
  detail::MutexLock lock(start_mutex_);
  const int target = worker_target();
  if (stopping_ || running_ >= target) return false;
  for (int i = 0; i < target; ++i) {
    detail::PoolWorker* worker = workers_[i];
    if (worker == nullptr) {
      worker = new detail::PoolWorker(this, i);
      workers_[i] = worker;
      slots_ = i + 1;
    }
    if (worker->running) continue;
    const auto entry = [](void* self) -> void* {
      auto* started = static_cast<detail::PoolWorker*>(self);
      started->pool->WorkerMain(*started);
      return nullptr;
    };
    if (pthread_create(&worker->thread, nullptr, entry, worker) != 0) return false;
    idle_.StartSearching();  // the new thread's first state; it waits for start_mutex_
    worker->running = true;
    running_.fetch_add(1);
    return true;
  }
  return false;
}

// True when the calling worker was surplus and has left the pool, which may be gone from then on.
// Its queue stays where others steal from it; the first worker never leaves.
inline bool ThreadPool::Retire(detail::PoolWorker& self) {
  detail::MutexLock lock(start_mutex_);
  if (stopping_ || self.index < worker_target()) return false;
  self.running = false;
  running_.fetch_sub(1);
  pthread_detach(self.thread);
  detail::t_pool = {};
  return true;
}

inline void ThreadPool::WorkerMain(detail::PoolWorker& self) {
  {
    detail::MutexLock lock(start_mutex_);  // StartWorker has finished with `self`
  }
  detail::t_pool = {this, &self};
  detail::SetCurrentThreadName(StrCat(name_, "-", self.index).c_str());
  if (pin_workers_) detail::PinCurrentThread(self.index + 1);
  bool searching = true;
  uint64_t idle_since = 0;
  for (;;) {
    if (self.index >= worker_target()) [[unlikely]] {
      if (std::exchange(searching, false)) StopSearching();
      if (Retire(self)) return;
    }
    if (const Work work = FindWork(&self)) {
      if (std::exchange(searching, false)) StopSearching();
      Run(work);
      if (detail::t_pool.worker != &self) return;  // this is a child, forked by the task
      idle_since = 0;
      continue;
    }
    if (stopping_) break;
    if (!std::exchange(searching, true)) idle_.StartSearching();
    const uint64_t now = detail::Ticks();
    if (idle_since == 0) idle_since = now;
    // One or a few searchers find what there is as fast as all would.
    const bool crowded = idle_.searching() > 1 + worker_target() / 2;
    if (!crowded && now - idle_since < spin_ticks_.load(std::memory_order_relaxed)) {
      detail::CpuRelax();
      continue;
    }
    Sleep(self);
    idle_since = 0;
  }
  if (searching) StopSearching();
}

// The caller counts as searching, before and after.
inline void ThreadPool::Sleep(detail::PoolWorker& self) {
  detail::IdleThread sleeper;
  idle_.Enlist(sleeper);
  idle_.StopSearching();
  if (!HasWork() && !stopping_ && self.index < worker_target()) {
    sleeper.parker.Wait();
  } else if (idle_.Delist(sleeper)) {
    idle_.StartSearching();
  }
}

// --- work

inline ThreadPool::Work ThreadPool::FindWork(detail::PoolWorker* self) {
  if (!loops_.empty()) {  // what has been started is finished first
    int wake = 0;
    if (detail::ParallelLoop* loop = loops_.Join(&wake)) {
      if (wake > 0) WakeForLoop(wake);
      return {nullptr, loop};
    }
  }
  if (self != nullptr) {
    // Now and then the oldest comes first, of the shared queue or the own one, so that a worker
    // whose tasks keep submitting tasks starves neither.
    const uint32_t turn = ++self->turn % 64;
    if (turn == 0) {
      if (PoolTask* task = TakeInjected()) return {task};
    } else if (turn == 32) {
      if (PoolTask* task = self->deque.Steal()) return {task};
    }
    if (PoolTask* task = self->deque.Pop()) return {task};
  }
  if (PoolTask* task = TakeInjected()) return {task};
  const int slots = slots_.load(std::memory_order_acquire);
  for (int i = 0, victim = self != nullptr ? self->index : 0; i < slots; ++i, ++victim) {
    if (victim >= slots) victim = 0;
    detail::PoolWorker* worker = workers_[victim].load(std::memory_order_acquire);
    if (worker == self) continue;
    if (PoolTask* task = worker->deque.Steal()) return {task};
  }
  return {};
}

// For IdleList's protocol: every load is seq_cst.
inline bool ThreadPool::HasWork() const {
  if (!loops_.empty() || !injected_.empty()) return true;
  const int slots = slots_;
  for (int i = 0; i < slots; ++i) {
    if (!workers_[i].load()->deque.empty()) return true;
  }
  return false;
}

inline void ThreadPool::Run(Work work) {
  if (work.loop != nullptr) {
    loops_.Work(*work.loop);
  } else {
    auto scope = InvocationScope::Adopt(work.task->invocation);
    work.task->run(work.task);
  }
}

// --- waking and waiting

inline void ThreadPool::NotifyWork() {
  if (idle_.searching() != 0) return;
  if (idle_.sleeping() != 0 && idle_.WakeOne(/*unless_searching=*/true)) return;
  if (running_.load(std::memory_order_relaxed) < worker_target()) StartWorker();
}

// Threads that search will find the loop by themselves.
inline void ThreadPool::WakeForLoop(int threads) {
  for (threads -= idle_.searching(); threads > 0; --threads) {
    if (idle_.sleeping() != 0 && idle_.WakeOne(/*unless_searching=*/false)) continue;
    if (running_.load(std::memory_order_relaxed) >= worker_target() || !StartWorker()) return;
  }
}

inline bool ThreadPool::Wait(const Latch& latch, int64_t timeout_ns) {
  if (latch.done()) return true;
  detail::PoolWorker* const worker = OwnWorker();
  const bool helps = worker != nullptr || (timeout_ns < 0 && threads() > 1);
  const int64_t deadline_ns = timeout_ns < 0 ? -1 : detail::MonotonicNs() + timeout_ns;
  PoolScope scope(*this);
  bool searching = false;
  uint64_t idle_since = 0;
  while (!latch.done()) {
    if (helps) {
      if (const Work work = FindWork(worker)) {
        if (std::exchange(searching, false)) StopSearching();
        Run(work);
        idle_since = 0;
        continue;
      }
    }
    if (deadline_ns >= 0 && detail::MonotonicNs() >= deadline_ns) break;
    const uint64_t now = detail::Ticks();
    if (idle_since == 0) idle_since = now;
    if (now - idle_since < spin_ticks_.load(std::memory_order_relaxed)) {
      detail::CpuRelax();
      continue;
    }
    // Sleeps in two lists at once: the latch's, and the pool's for new work.
    detail::IdleThread sleeper;
    detail::LatchSleeper latch_sleeper{nullptr, &sleeper.parker};
    if (!latch.Enlist(latch_sleeper)) break;
    if (helps) idle_.Enlist(sleeper);
    if (std::exchange(searching, false)) idle_.StopSearching();
    if (!helps || !HasWork()) sleeper.parker.Wait(deadline_ns);
    latch.Delist(latch_sleeper);
    // Woken for work it counts as searching, and hands that on if it leaves without taking any.
    if (helps) searching = !idle_.Delist(sleeper);
    idle_since = 0;
  }
  if (searching) StopSearching();
  return latch.done();
}

// --- loops

inline void ThreadPool::RunLoop(int64_t first, int64_t last, int64_t grain,
                                detail::RangeFunction body) {
  OPKIT_ASSERT(grain > 0);
  if (first >= last) return;
  const int64_t chunks = (last - first - 1) / grain + 1;
  const int64_t spare = threads() - 1;
  const int64_t helpers = chunks - 1 < spare ? chunks - 1 : spare;
  if (helpers == 0) {
    for (int64_t begin = first; begin < last;) {
      const int64_t end = last - begin > grain ? begin + grain : last;
      body(begin, end);
      begin = end;
    }
    return;
  }
  detail::ParallelLoop loop(first, last, grain, chunks, body);
  WakeForLoop(loops_.Post(loop, static_cast<int>(helpers)));
  loop.RunChunks(loops_.mutex());
  loops_.Finish(loop, spin_ticks_.load(std::memory_order_relaxed));
}

// --- fork

inline void ThreadPool::HandleFork() {
  pthread_atfork([] { detail::g_pools.mutex.Lock(); }, [] { detail::g_pools.mutex.Unlock(); },
                 [] {
                   detail::g_pools.mutex.ResetAfterFork();
                   for (detail::LatchBucket& bucket : detail::g_latch_buckets) {
                     bucket.mutex.ResetAfterFork();
                     bucket.first = nullptr;
                   }
                   detail::t_pool.worker = nullptr;
                   for (ThreadPool* pool = detail::g_pools.first; pool != nullptr;
                        pool = pool->registry_next_) {
                     pool->ResetAfterFork();
                   }
                 });
}

inline void ThreadPool::ResetAfterFork() {
  start_mutex_.ResetAfterFork();
  running_ = 0;
  for (int i = 0; i < slots_; ++i) {
    workers_[i].load()->running = false;
    workers_[i].load()->deque.ResetAfterFork();
  }
  injected_.ResetAfterFork();
  loops_.ResetAfterFork();
  idle_.ResetAfterFork();
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_THREAD_POOL_HPP_

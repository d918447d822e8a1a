// ThreadPool: the work-stealing pool under everything that runs in parallel: ParallelFor in
// kernels, the Var engine, the executor. One pool serves the process (Default), sized by one
// setting. Threads that wait take part, so that n threads means n busy threads and no more.
#ifndef OPKIT_ENGINE_THREAD_POOL_HPP_
#define OPKIT_ENGINE_THREAD_POOL_HPP_

#include <atomic>
#include <string>
#include <utility>

#include "opkit/base/scoped_value.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/engine/pool/idle_list.hpp"
#include "opkit/engine/pool/idle_spin.hpp"
#include "opkit/engine/pool/inbox.hpp"
#include "opkit/engine/pool/latch.hpp"
#include "opkit/engine/pool/loop_board.hpp"
#include "opkit/engine/pool/own_threads.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ThreadPool;

namespace detail {

// A unit of work embedded in a record of its owner (such as an operation of the engine), so that
// scheduling allocates nothing. The pool may use it from Schedule until it calls `run`, which may
// free it. It runs under `invocation`, by default the invocation that was current when the task was
// made.
struct PoolTask : InboxNode {
  using RunFunction = void (*)(PoolTask*) noexcept;
  explicit PoolTask(RunFunction runs, Invocation runs_under = CurrentInvocation())
      : run(runs), invocation(runs_under) {}

  RunFunction run;
  Invocation invocation;
};

struct PoolWorker;

struct PoolThreadState {
  ThreadPool* pool = nullptr;    // returned by Current() on this thread
  PoolWorker* worker = nullptr;  // null on threads that are no worker of a pool
};
inline constinit thread_local PoolThreadState t_pool;

}  // namespace detail

// Makes `pool` the pool that ParallelFor and TaskGroup use on this thread.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool& pool) : pool_(detail::t_pool.pool, &pool) {}

 private:
  const detail::ScopedValue<ThreadPool*> pool_;
};

// A pool of n threads has n - 1 workers; the other thread is the one that waits (in Wait, TaskGroup
// or ParallelFor). A pool of one runs every ParallelFor inline. It has one worker for tasks, so
// that they progress when no thread waits. A thread that waits from outside sleeps meanwhile, so
// tasks of a pool of one never overlap. Workers start one after the other, when there is work for
// them.
//
// A worker without work searches for a few microseconds, after a loop for 0.2 ms, then sleeps in
// the kernel: an idle pool uses no CPU. Waking costs the waker one system call, and only if a
// worker sleeps and none is searching.
//
// All members are thread-safe except the destructor. A task that lets an exception escape
// terminates the process, as a std::thread does; TaskGroup keeps exceptions and rethrows the first
// in Wait.
//
// Fork: the child has the pool with its settings, empty and without threads; they start again when
// needed. Tasks, loops and latches that were pending stay with the parent. A child that was forked
// inside a task or a loop body must end by exec or _exit.
class ThreadPool {
 public:
  using Task = UniqueFunction<void()>;
  static constexpr int kMaxThreads = 1024;
  // Where the workers may run.
  enum class Placement : uint8_t { kFree, kPinned };

  // `name` is the prefix of the threads' names. With kPinned, worker i stays on the (i + 1)-th of
  // the CPUs that the thread which started it may use; with kFree, the system places them.
  explicit ThreadPool(int threads, std::string name = "opkit",
                      Placement placement = Placement::kFree);
  // Runs all queued tasks, and those that they submit, on the workers and the calling thread, then
  // joins the workers. Must not be called by one of the pool's own tasks.
  ~ThreadPool();
  ThreadPool(ThreadPool&&) = delete;

  // Returns the process's pool, made at the first call with OPKIT_NUM_THREADS threads or, without
  // that variable, one for each CPU that the calling thread may use; OPKIT_PIN_THREADS=1 pins its
  // workers. It is never destroyed, so that destructors of static objects can use it; tasks still
  // queued when the process exits do not run.
  static ThreadPool& Global();

  // Returns the pool that ParallelFor and TaskGroup use on this thread: that of the innermost
  // PoolScope, else the pool whose work the thread runs, else Global().
  static ThreadPool& Current() { return detail::t_pool.pool ? *detail::t_pool.pool : Global(); }

  // Relaxed: the number publishes no other data.
  int threads() const { return threads_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

  // Sets the number of threads, 1 to kMaxThreads. Surplus workers leave after the task or loop that
  // they are in; nothing queued is lost, and loops already running keep the size they began with.
  void Resize(int threads);

  // Queues `task`. Tasks that a worker submits go to its own queue, from which others steal; all
  // other tasks go to a shared queue. No order is promised. Allocates a record for the task.
  void Submit(Task task);
  // Queues `task` like Submit, but allocates nothing: the record is the owner's.
  void Schedule(detail::PoolTask* task);

  // Runs one queued task, or takes part in a running loop, on this thread; false if there is none.
  bool RunOneTask();

  // Returns true when the latch is at zero. Meanwhile this thread runs any of the pool's tasks: do
  // not hold a lock that a task may take. With a timeout (ns; false when it has passed) a thread
  // from outside only sleeps, because a task could take longer than that.
  bool Wait(const detail::Latch& latch, int64_t timeout_ns = -1);

  // True if a running loop could use this thread; a long task may then end early.
  bool HasLoops() const { return !loops_.empty(); }
  // Returns how long a thread without work searches before it sleeps, in detail::Ticks. Relaxed, as
  // threads().
  uint64_t spin_ticks() const { return spin_ticks_.load(std::memory_order_relaxed); }

  // Calls body(begin, end) for [first, last) in chunks of `grain`, on this thread and on workers
  // that have nothing else to do; ParallelFor calls it. This thread runs chunks of this loop and
  // nothing else, so a caller may hold a lock that the body does not take.
  void RunLoop(int64_t first, int64_t last, int64_t grain, detail::RangeFunction body);

 private:
  // A task to run, or a loop that has been joined.
  struct Work {
    detail::PoolTask* task = nullptr;
    detail::ParallelLoop* loop = nullptr;
    explicit operator bool() const { return task || loop; }
  };

  static void HandleFork();
  void ResetAfterFork();
  void SetThreads(int threads);

  // Relaxed, as threads().
  detail::SpinTimes spin_times() const {
    return {spin_ticks(), loop_spin_ticks_.load(std::memory_order_relaxed)};
  }
  // Returns the number of workers. A pool of one thread still has one worker for tasks.
  int worker_target() const { return threads() > 1 ? threads() - 1 : 1; }
  detail::PoolWorker* OwnWorker() const;

  // Starts a worker if none runs. Relaxed: a hint; StartWorker checks again under the mutex, and
  // the first worker never leaves.
  void RequireWorker() {
    if (running_.load(std::memory_order_relaxed) == 0) [[unlikely]]
      StartFirstWorker();
  }
  OPKIT_COLD void StartFirstWorker();
  OPKIT_COLD bool StartWorker();
  bool Retire(detail::PoolWorker& self);
  void WorkerMain(detail::PoolWorker& self);
  bool Sleep(detail::PoolWorker& self);

  Work FindWork(detail::PoolWorker* self);
  bool HasWork() const;
  void Run(Work work);
  detail::PoolTask* TakeInjected() { return static_cast<detail::PoolTask*>(injected_.Take()); }

  void NotifyWork();
  void WakeForLoop(int threads);
  void StopSearching() {
    if (idle_.StopSearching() && HasWork()) NotifyWork();
  }

  const std::string name_;
  const Placement placement_;
  std::atomic<int> threads_{1};
  // How long a thread searches for work before it sleeps: longer than a sleeper takes to wake up. 0
  // if there are more threads than CPUs, where a searching thread keeps another one from working.
  std::atomic<uint64_t> spin_ticks_{0};
  // How long a thread searches for work after a loop. Kernels that run one after the other start
  // the next loop soon. Waking a thread takes tens of microseconds, longer than many loops.
  std::atomic<uint64_t> loop_spin_ticks_{0};
  std::atomic<bool> stopping_{false};

  detail::Mutex start_mutex_;
  std::atomic<int> running_{0};  // workers whose thread exists
  std::atomic<int> slots_{0};    // workers ever made: the entries of workers_ that are set
  std::atomic<detail::PoolWorker*> workers_[kMaxThreads] = {};
  ThreadPool* registry_next_ = nullptr;

  alignas(detail::kCacheLine) detail::Inbox injected_;
  alignas(detail::kCacheLine) detail::LoopBoard loops_;
  alignas(detail::kCacheLine) detail::IdleList idle_;
};

namespace detail {

// Returns the program's own threads that run loops of this thread in place of a pool
// (SetParallelFor). Null if there are none, or if this thread's current pool is not the pool of the
// process.
inline const OwnThreads* CurrentOwnThreads() {
  const OwnThreads* const own = g_own_threads.load(std::memory_order_acquire);
  return own && (!t_pool.pool || t_pool.pool == &ThreadPool::Global()) ? own : nullptr;
}

}  // namespace detail

// Returns the number of threads that loops of this thread run on: that of SetParallelFor, or of the
// current pool. Kernels pass it to the libraries that they call.
inline int NumThreads() {
  const detail::OwnThreads* const own = detail::CurrentOwnThreads();
  return own ? own->threads : ThreadPool::Current().threads();
}
// Resizes the process's pool.
inline void SetNumThreads(int threads) { ThreadPool::Global().Resize(threads); }

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/impl/thread_pool.ipp"
#endif

#endif  // OPKIT_ENGINE_THREAD_POOL_HPP_

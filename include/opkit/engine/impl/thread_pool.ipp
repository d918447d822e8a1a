// The thread pool's workers: how they start and leave, find work, sleep and are woken, and survive
// a fork.
#ifndef OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_
#define OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_

#include <algorithm>
#include <cstdlib>

#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/engine/pool/engine_scope.hpp"
#include "opkit/engine/pool/work_deque.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A worker of a pool: its thread and its queue.
struct alignas(kCacheLine) PoolWorker {
  PoolWorker(ThreadPool* its_pool, int its_index) : pool(its_pool), index(its_index) {}

  ThreadPool* const pool;
  const int index;
  uint32_t turn = 0;
  bool running = false;  // guarded by the pool's start mutex, as is `thread`
  pthread_t thread{};
  WorkDeque<PoolTask, 1024> deque;
};

// Every live pool, for the fork handlers.
struct PoolRegistry {
  Mutex mutex;
  ThreadPool* first = nullptr;
  bool fork_handled = false;
};
inline constinit PoolRegistry g_pools;

inline int DefaultThreads() {
  constexpr int kMax = ThreadPool::kMaxThreads;
  const char* text = std::getenv("OPKIT_NUM_THREADS");
  if (!text || *text == '\0') return (std::min)(AvailableCpus(), kMax);
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (*end != '\0' || threads < 1 || threads > kMax)
    Throw(ErrorCode::kInvalidArgument,
          "expected the environment variable OPKIT_NUM_THREADS to be a number from 1 to ", kMax,
          ", found \"", text, "\"; correct it or unset it");
  return static_cast<int>(threads);
}

}  // namespace detail

OPKIT_INLINE ThreadPool::ThreadPool(int threads, std::string name, Placement placement)
    : name_(std::move(name)), placement_(placement) {
  SetThreads(threads);
  detail::MutexLock lock(detail::g_pools.mutex);
  if (!std::exchange(detail::g_pools.fork_handled, true)) HandleFork();
  registry_next_ = std::exchange(detail::g_pools.first, this);
}

OPKIT_INLINE ThreadPool::~ThreadPool() {
  OPKIT_ASSERT(!OwnWorker());
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
  const auto drain = [this] {
    while (RunOneTask()) {
    }
  };
  if (threads() > 1) drain();
  const int slots = slots_;
  for (int i = 0; i < slots; ++i)
    if (detail::PoolWorker* worker = workers_[i]; worker->running)
      pthread_join(worker->thread, nullptr);
  drain();
  for (int i = 0; i < slots; ++i) delete workers_[i].load();
}

OPKIT_INLINE ThreadPool& ThreadPool::Global() {
  static ThreadPool* const pool = [] {
    const char* pin = std::getenv("OPKIT_PIN_THREADS");
    return new ThreadPool(detail::DefaultThreads(), "opkit",
                          pin && pin[0] == '1' ? Placement::kPinned : Placement::kFree);
  }();
  return *pool;
}

OPKIT_INLINE void ThreadPool::SetThreads(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    Throw(ErrorCode::kInvalidArgument, "expected a number of threads from 1 to ", kMaxThreads,
          " for the pool \"", name_, "\", found ", threads);
  constexpr uint64_t kSpinTicks = 12'000, kLoopSpinTicks = 500'000;
  const bool may_spin = threads <= detail::AvailableCpus();
  spin_ticks_ = may_spin ? kSpinTicks : 0;
  loop_spin_ticks_ = may_spin ? kLoopSpinTicks : 0;
  detail::MutexLock lock(start_mutex_);
  threads_ = threads;
}

OPKIT_INLINE void ThreadPool::Resize(int threads) {
  SetThreads(threads);
  idle_.WakeAll();
}

// --- workers

OPKIT_INLINE detail::PoolWorker* ThreadPool::OwnWorker() const {
  detail::PoolWorker* worker = detail::t_pool.worker;
  return worker && worker->pool == this ? worker : nullptr;
}

OPKIT_INLINE void ThreadPool::StartFirstWorker() {
  if (stopping_ || StartWorker() || running_ != 0) return;
  Throw(ErrorCode::kFailedPrecondition, "expected to start a thread of the pool \"", name_,
        "\", but the system refused it; raise the limit on processes (ulimit -u) or on memory");
}

// Starts one worker. Returns false if enough workers run, or if the system refuses a thread.
OPKIT_INLINE bool ThreadPool::StartWorker() {
  detail::MutexLock lock(start_mutex_);
  const int target = worker_target();
  if (stopping_ || running_ >= target) return false;
  for (int i = 0; i < target; ++i) {
    detail::PoolWorker* worker = workers_[i];
    if (!worker) {
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
    const detail::DenormalScope own(false);  // a new thread inherits the creator's control register
    if (pthread_create(&worker->thread, nullptr, entry, worker) != 0) return false;
    idle_.StartSearching();  // for the new thread, which waits for start_mutex_
    worker->running = true;
    running_.fetch_add(1);
    return true;
  }
  return false;
}

// Lets the calling worker leave if it is surplus. Returns true if it has left the pool, which may
// be gone from then on. Its queue stays, and others steal from it; the first worker never leaves.
OPKIT_INLINE bool ThreadPool::Retire(detail::PoolWorker& self) {
  detail::MutexLock lock(start_mutex_);
  if (stopping_ || self.index < worker_target()) return false;
  self.running = false;
  running_.fetch_sub(1);
  pthread_detach(self.thread);
  detail::t_pool = {};
  return true;
}

OPKIT_INLINE void ThreadPool::WorkerMain(detail::PoolWorker& self) {
  {
    detail::MutexLock lock(start_mutex_);  // waits until StartWorker is done with `self`
  }
  detail::t_pool = {this, &self};
  detail::SetCurrentThreadName(StrCat(name_, "-", self.index).c_str());
  if (placement_ == Placement::kPinned) detail::PinCurrentThread(self.index + 1);
  bool searching = true;
  detail::IdleSpin spin;
  for (;;) {
    if (self.index >= worker_target()) [[unlikely]] {
      if (std::exchange(searching, false)) StopSearching();
      if (Retire(self)) return;
    }
    if (const Work work = FindWork(&self)) {
      if (std::exchange(searching, false)) StopSearching();
      Run(work);
      if (detail::t_pool.worker != &self) return;  // this is a child, forked by the task
      spin.Worked(/*on_loop=*/work.loop, detail::Ticks());
      continue;
    }
    if (stopping_) break;
    if (!std::exchange(searching, true)) idle_.StartSearching();
    // A few searchers find a task as fast as all threads would.
    const bool crowded = idle_.searching() > 1 + worker_target() / 2;
    if (spin.Goes(detail::Ticks(), crowded, spin_times())) {
      detail::CpuRelax();
      continue;
    }
    const bool for_loop = Sleep(self);
    spin.Woke(for_loop, detail::Ticks());
  }
  if (searching) StopSearching();
}

// Puts the worker to sleep; returns true if it was woken for a loop. The worker counts as searching
// before and after.
OPKIT_INLINE bool ThreadPool::Sleep(detail::PoolWorker& self) {
  detail::IdleThread sleeper;
  idle_.Enlist(sleeper);
  idle_.StopSearching();
  if (!HasWork() && !stopping_ && self.index < worker_target()) {
    const detail::EngineScope scope("park");
    sleeper.parker.Wait();
  } else if (idle_.Delist(sleeper)) {
    idle_.StartSearching();
  }
  return sleeper.for_loop;
}

// --- work

OPKIT_INLINE void ThreadPool::Submit(Task task) {
  struct Record : detail::PoolTask {
    explicit Record(Task&& its_task) : detail::PoolTask(&RunRecord), task(std::move(its_task)) {}
    static void RunRecord(detail::PoolTask* self) noexcept {
      Record* record = static_cast<Record*>(self);
      record->task();
      delete record;
    }
    Task task;
  };
  RequireWorker();
  Schedule(new Record(std::move(task)));
}

OPKIT_INLINE void ThreadPool::Schedule(detail::PoolTask* task) {
  RequireWorker();
  detail::PoolWorker* worker = OwnWorker();
  if (!worker || !worker->deque.Push(task)) injected_.Put(task);
  NotifyWork();
}

OPKIT_INLINE bool ThreadPool::RunOneTask() {
  PoolScope scope(*this);
  const Work work = FindWork(OwnWorker());
  if (work) Run(work);
  return static_cast<bool>(work);
}

OPKIT_INLINE ThreadPool::Work ThreadPool::FindWork(detail::PoolWorker* self) {
  if (!loops_.empty()) {  // loops that have begun come first
    int wake = 0;
    if (detail::ParallelLoop* loop = loops_.Join(&wake)) {
      if (wake > 0) WakeForLoop(wake);
      return {nullptr, loop};
    }
  }
  if (self) {
    // Now and then the oldest task of the shared queue, or of the worker's own queue, comes first:
    // a worker whose tasks keep submitting tasks must starve neither.
    const uint32_t turn = ++self->turn % 64;
    auto* task = turn == 0 ? TakeInjected() : turn == 32 ? self->deque.Steal() : nullptr;
    if (!task) task = self->deque.Pop();
    if (task) return {task};
  }
  if (detail::PoolTask* task = TakeInjected()) return {task};
  // Acquire, here and below: pairs with the stores in StartWorker, so that all members of a
  // worker's record are visible.
  const int slots = slots_.load(std::memory_order_acquire);
  for (int i = 0, victim = self ? self->index : 0; i < slots; ++i, ++victim) {
    if (victim >= slots) victim = 0;
    detail::PoolWorker* worker = workers_[victim].load(std::memory_order_acquire);
    if (worker == self) continue;
    if (detail::PoolTask* task = worker->deque.Steal()) {
      detail::MarkEngine("steal");
      return {task};
    }
  }
  return {};
}

// Every load is seq_cst, for IdleList's protocol.
OPKIT_INLINE bool ThreadPool::HasWork() const {
  if (!loops_.empty() || !injected_.empty()) return true;
  const int slots = slots_;
  for (int i = 0; i < slots; ++i)
    if (!workers_[i].load()->deque.empty()) return true;
  return false;
}

OPKIT_INLINE void ThreadPool::Run(Work work) {
  if (work.loop) return loops_.Work(*work.loop);
  auto scope = InvocationScope::Adopt(work.task->invocation);
  work.task->run(work.task);
}

// --- waking and waiting

OPKIT_INLINE void ThreadPool::NotifyWork() {
  if (idle_.searching() != 0) return;
  if (idle_.sleeping() != 0 && idle_.WakeForTask()) return;
  // Relaxed, here and below: a hint, which StartWorker checks under the mutex.
  if (running_.load(std::memory_order_relaxed) < worker_target()) StartWorker();
}

// Wakes `threads` threads for a loop, less the number of threads that search: those find the loop
// by themselves. With more threads than CPUs, the system places the woken threads.
OPKIT_INLINE void ThreadPool::WakeForLoop(int threads) {
  const bool elsewhere = spin_ticks() != 0;
  for (threads -= idle_.searching(); threads > 0; --threads) {
    if (idle_.sleeping() != 0 && idle_.WakeForLoop(elsewhere)) continue;
    if (running_.load(std::memory_order_relaxed) >= worker_target() || !StartWorker()) return;
  }
}

OPKIT_INLINE bool ThreadPool::Wait(const detail::Latch& latch, int64_t timeout_ns) {
  if (latch.done()) return true;
  detail::PoolWorker* const worker = OwnWorker();
  const bool helps = worker || (timeout_ns < 0 && threads() > 1);
  const int64_t deadline_ns = timeout_ns < 0 ? -1 : detail::MonotonicNs() + timeout_ns;
  PoolScope scope(*this);
  bool searching = false;
  detail::IdleSpin spin;
  while (!latch.done()) {
    if (helps) {
      if (const Work work = FindWork(worker)) {
        if (std::exchange(searching, false)) StopSearching();
        Run(work);
        spin.Worked(/*on_loop=*/work.loop, detail::Ticks());
        continue;
      }
    }
    if (deadline_ns >= 0 && detail::MonotonicNs() >= deadline_ns) break;
    if (spin.Goes(detail::Ticks(), /*crowded=*/false, spin_times())) {
      detail::CpuRelax();
      continue;
    }
    // Sleeps in two lists at once: the latch's, and the pool's for new work.
    detail::IdleThread sleeper;
    detail::LatchSleeper latch_sleeper{nullptr, &sleeper.parker};
    if (!latch.Enlist(latch_sleeper)) break;
    if (helps) idle_.Enlist(sleeper);
    if (std::exchange(searching, false)) idle_.StopSearching();
    const bool has_work = helps && HasWork();
    if (!has_work) {
      const detail::EngineScope waiting("wait");
      sleeper.parker.Wait(deadline_ns);
    }
    latch.Delist(latch_sleeper);
    // A thread that was woken for work counts as searching, and so does one that stays awake for
    // work: its submitter may have seen this thread search, and wakes no other. If the thread
    // leaves without taking work, StopSearching wakes another thread for what is left.
    if (helps) {
      searching = !idle_.Delist(sleeper);
      if (has_work && !std::exchange(searching, true)) idle_.StartSearching();
    }
    spin.Woke(sleeper.for_loop, detail::Ticks());
  }
  if (searching) StopSearching();
  return latch.done();
}

// --- loops

OPKIT_INLINE void ThreadPool::RunLoop(int64_t first, int64_t last, int64_t grain,
                                      detail::RangeFunction body) {
  OPKIT_ASSERT(grain > 0);
  if (first >= last) return;
  const int64_t chunks = (last - first - 1) / grain + 1;
  const int64_t spare = threads() - 1;
  const int64_t helpers = (std::min)(chunks - 1, spare);
  if (helpers == 0) return detail::RunChunksInOrder(first, last, grain, body);
  detail::ParallelLoop loop(first, last, grain, chunks, body);
  WakeForLoop(loops_.Post(loop, static_cast<int>(helpers)));
  loop.RunChunks(loops_.mutex());
  loops_.Finish(loop, spin_times().after_loop);
}

// --- fork

OPKIT_INLINE void ThreadPool::HandleFork() {
  const auto in_child = [] {
    detail::g_pools.mutex.ResetAfterFork();
    detail::Latch::ForgetSleepers();
    detail::t_pool.worker = nullptr;
    for (ThreadPool* pool = detail::g_pools.first; pool; pool = pool->registry_next_)
      pool->ResetAfterFork();
  };
  pthread_atfork([] { detail::g_pools.mutex.Lock(); }, [] { detail::g_pools.mutex.Unlock(); },
                 in_child);
}

OPKIT_INLINE void ThreadPool::ResetAfterFork() {
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

}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_

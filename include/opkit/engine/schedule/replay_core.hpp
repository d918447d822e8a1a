// ReplayCore: what a Replay does that does not depend on its body: the life of a run, the threads
// that take part in it, and the work they hand to each other. None of it is on the path of a node.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_

#include <atomic>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/timeout.hpp"
#include "opkit/base/unique_function.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Ready nodes, linked through their counters, which nobody counts any more.
struct ReadyChain {
  int head = -1;
  int size = 0;
};

// One thread's part in a run.
struct ReplayWorker {
  ReadyChain ready;
  int root = 0, root_end = 0;  // its share of the roots, by position in level order
  int64_t completed = 0;       // nodes, not yet subtracted from what remains
  int64_t next_wake = 0;       // value of `completed` from which it may wake another thread
  Invocation invocation;       // the run's
  bool active = false;         // counts in active_
  bool searching = false;      // counts in searching_
  bool caller = false;         // of Run; the others are helpers
};

// A run is over when all nodes have completed or it has been given up, and no thread is inside.
// All that says so is guarded by one mutex, which a thread takes when it runs out of work or hands
// some over, never for a node. The pool's tasks (helpers) outlive the run they were queued for: one
// that comes too late serves the next run or finds nothing to do. Each keeps the core alive.
template <class Schedule>
class ReplayCore final : public RefCounted {
 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;
  // Runs nodes by counters until `worker` has none left.
  using NodesFunction = void (*)(ReplayCore& core, ReplayWorker& worker);
  // Runs the nodes at [begin, end) of the stored order or, with `by_level`, of the level order.
  using RangeFunction = void (*)(ReplayCore& core, int begin, int end, bool by_level);

  ReplayCore(const Schedule& schedule, ThreadPool& pool, bool may_pend, void* body,
             NodesFunction run_nodes, RangeFunction run_range)
      : schedule(schedule),
        body(body),
        pool_(pool),
        may_pend_(may_pend),
        run_nodes_(run_nodes),
        run_range_(run_range),
        threads_(pool.threads()),
        search_ticks_(threads_ <= AvailableCpus() ? 12'000 : 0),
        helpers_(static_cast<size_t>(threads_)) {
    for (Helper& helper : helpers_) helper.next_free = std::exchange(free_helpers_, &helper);
  }

  int threads() const { return threads_; }
  bool may_pend() const { return may_pend_; }
  void AllocateCounters() { counters_.resize(static_cast<size_t>(schedule.size())); }

  // Relaxed: it publishes nothing but itself. Who gives a run up and then needs to know that no
  // body runs takes the mutex, as every thread does before its first node.
  bool stopped() {
    const Watch watch = watch_.load(std::memory_order_relaxed);
    return watch != Watch::kNothing && MustStop(watch);
  }

  // Whether others could run ready nodes of this thread's. Relaxed: a hint, looked into under the
  // mutex.
  bool WorkIsWanted() const { return wanted_.load(std::memory_order_relaxed) != kNobody; }

  // Both throw when a run is in progress. Run takes part, waits, and throws the run's error.
  void Run(ReplayMode mode, double ns_per_node, Timeout timeout);
  void RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done);
  void GiveUp(ErrorCode code);
  void Complete(int node, std::exception_ptr error);
  void Fail(std::exception_ptr error) {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning) return;
    if (!error_) error_ = std::move(error);
    watch_.store(Watch::kStop, std::memory_order_relaxed);
  }

  // True when this was the target's last edge. Release: what the node wrote is seen by whoever
  // releases the target last, which acquires; an only edge needs neither, its target runs on this
  // thread or is handed over under the mutex.
  bool Release(int entry) {
    if (Schedule::IsOnly(entry)) return true;
    std::atomic_ref<int> counter(counters_[static_cast<size_t>(Schedule::TargetOf(entry))]);
    return counter.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  int& Next(int node) { return counters_[static_cast<size_t>(node)]; }
  void Push(ReadyChain& chain, int node) {
    Next(node) = std::exchange(chain.head, node);
    ++chain.size;
  }
  int Pop(ReadyChain& chain) {
    --chain.size;
    return std::exchange(chain.head, Next(chain.head));
  }

  void CountPending() { pending_.fetch_add(1, std::memory_order_relaxed); }
  int pending() const { return pending_.load(std::memory_order_relaxed); }

  // Gives the older half of the worker's ready nodes to others, or of long ones all, but never its
  // only node.
  void HandOver(ReplayWorker& worker, bool has_next);

  // Until no thread is inside and nothing is queued: with the caller's promise that no Complete
  // comes any more, nothing refers to the schedule and the body from then on.
  void WaitUntilQuiet();

  const Schedule& schedule;
  void* const body;

 private:
  enum class Phase {
    kIdle,
    kRunning,
    kOver,       // Run has still to fetch the error
    kAbandoned,  // given up, nodes pending
  };
  enum class Work { kNone, kLead, kNodes };
  enum class Watch : char {  // what there is to look at before a node
    kNothing,
    kDeadline,
    kStop,  // no body is called any more
  };

  struct Helper : PoolTask {
    Helper() : PoolTask(&Main) {}
    static void Main(PoolTask* task) noexcept {
      Helper* helper = static_cast<Helper*>(task);
      const IntrusivePtr<ReplayCore> core = std::move(helper->core);
      core->Help(*helper);
    }
    IntrusivePtr<ReplayCore> core;
    Helper* next_free = nullptr;
  };

  // What a thread has to do once it has let the mutex go. The core may be gone by then.
  struct Duty {
    explicit Duty(ThreadPool& pool) : pool(pool) {}
    void Do() {
      if (helper != nullptr) {
        try {
          pool.Schedule(helper);
        } catch (...) {
          DoWithout(*helper);
        }
      }
      if (over != nullptr) over->CountDown();
      if (quiet != nullptr) quiet->CountDown();
      if (done) done(std::move(error));
    }
    ThreadPool& pool;
    Helper* helper = nullptr;
    Latch* over = nullptr;
    Latch* quiet = nullptr;
    DoneFunction done;
    std::exception_ptr error;
  };

  // The system refused the pool its first thread: those who are there do it all, this thread where
  // there is nobody else.
  OPKIT_COLD static void DoWithout(Helper& helper) {
    const IntrusivePtr<ReplayCore> core = std::move(helper.core);
    {
      MutexLock lock(core->mutex_);
      --core->queued_;
      helper.next_free = std::exchange(core->free_helpers_, &helper);
      core->UpdateHints();
      if (core->active_ + core->searching_ + core->queued_ > 0) return;
    }
    ReplayWorker worker;
    core->Participate(worker);
  }

  static uint64_t LevelWord(int level, int pieces) {
    return static_cast<uint64_t>(level) << 32 | static_cast<uint64_t>(pieces) << 16;
  }
  static bool HasPiece(uint64_t word) { return (word & 0xffff) < (word >> 16 & 0xffff); }

  OPKIT_COLD bool MustStop(Watch watch) {
    if (watch == Watch::kStop) return true;
    if (MonotonicNs() < deadline_ns_) return false;
    GiveUp(ErrorCode::kDeadlineExceeded);
    return true;
  }

  void Begin(ReplayMode mode, double ns_per_node);
  void Help(Helper& helper);
  void Participate(ReplayWorker& worker);
  Work Take(ReplayWorker& worker, bool may_search);
  bool Search(const ReplayWorker& worker);
  void Lead();
  void RunLevels();
  void ShareLevel(int level);
  int RunPieces();

  // With the mutex held.
  int offers() const { return chains_ + (next_root_ < roots_ ? 1 : 0) + (lead_offered_ ? 1 : 0); }
  bool quiet() const { return active_ == 0 && offers() == 0; }
  Helper* TakeHelper();
  void Offer(ReadyChain chain, int tail);
  void UpdateHints();
  void EndIfOver(Duty& duty);

  ThreadPool& pool_;
  const bool may_pend_;
  const NodesFunction run_nodes_;
  const RangeFunction run_range_;
  const int threads_;
  const uint64_t search_ticks_;  // how long a thread looks for work of this graph before it leaves
  std::vector<int> counters_;

  // Set before a run's first thread enters.
  ReplayMode mode_ = ReplayMode::kWalk;
  int64_t deadline_ns_ = -1;
  Invocation invocation_;
  bool long_nodes_ = false;  // worth the mutex: no ready node waits behind one that runs
  int wake_interval_ = 1;    // nodes to run between two wake-ups, so that these cost little
  int shared_width_ = 2;
  int piece_nodes_ = 1;  // least nodes of a level's piece

  // Read by every thread after every node, written rarely.
  alignas(kCacheLine) std::atomic<Watch> watch_{Watch::kNothing};
  enum : int { kNobody, kSearching, kAsleep, kAnybody };
  std::atomic<int> wanted_{kNobody};  // who could run more
  std::atomic<int> offers_{0};
  std::atomic<int> pending_{0};

  // The level being shared, its number of pieces, and the next piece: one word, so that a claim is
  // a claim of just that level.
  alignas(kCacheLine) std::atomic<uint64_t> level_{0};
  Latch level_left_;

  alignas(kCacheLine) Mutex mutex_;
  Phase phase_ = Phase::kIdle;
  bool given_up_ = false;
  bool lead_offered_ = false;  // an asynchronous run that no thread has begun
  bool sharing_ = false;       // levels: threads are welcome though nothing is on offer
  int active_ = 0;
  int searching_ = 0;
  int queued_ = 0;
  int next_root_ = 0, roots_ = 0;
  int64_t remaining_ = 0;
  std::exception_ptr error_;
  static constexpr int kMaxChains = 32;
  static constexpr int kMaxRootShare = 256;
  int chains_ = 0;
  ReadyChain shared_[kMaxChains];
  Helper* free_helpers_ = nullptr;
  std::vector<Helper> helpers_;
  Latch* quiet_waiter_ = nullptr;
  bool async_ = false;
  DoneFunction done_;
  Latch over_;
};

// --- the life of a run

// Of a run: all that is set before its first thread enters. Throws when one is in progress.
template <class Schedule>
inline void ReplayCore<Schedule>::Begin(ReplayMode mode, double ns_per_node) {
  if (phase_ == Phase::kAbandoned) {
    Throw(ErrorCode::kFailedPrecondition, "expected all nodes of the previous run, which was ",
          "given up, to have completed; ", pending(), " are still pending: complete them first");
  }
  if (phase_ != Phase::kIdle) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a replay that is not running; use one Replay for each run at a time");
  }
  OPKIT_ASSERT(quiet());
  phase_ = Phase::kRunning;
  mode_ = mode;
  deadline_ns_ = -1;
  invocation_ = CurrentInvocation();
  given_up_ = false;
  watch_.store(Watch::kNothing, std::memory_order_relaxed);
  const double ns = ns_per_node > 0.5 ? ns_per_node : 0.5;
  const auto nodes_in = [ns](double span) { return span < ns ? 1 : static_cast<int>(span / ns); };
  long_nodes_ = ns >= 5'000 && threads_ > 1;
  wake_interval_ = nodes_in(20'000);
  piece_nodes_ = nodes_in(500);
  shared_width_ = WidthToShare(ns);
  sharing_ = mode == ReplayMode::kLevels;
  if (mode != ReplayMode::kCounters) return;
  next_root_ = 0;
  roots_ = schedule.roots();
  remaining_ = schedule.size();
  if (remaining_ > 0) {
    std::memcpy(counters_.data(), schedule.in_degrees().data(), counters_.size() * sizeof(int));
  }
}

template <class Schedule>
inline void ReplayCore<Schedule>::RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done) {
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    Begin(mode, ns_per_node);
    done_ = std::move(done);
    async_ = true;
    lead_offered_ = mode != ReplayMode::kCounters || remaining_ == 0;
    duty.helper = TakeHelper();
    UpdateHints();
  }
  duty.Do();
}

template <class Schedule>
inline void ReplayCore<Schedule>::Run(ReplayMode mode, double ns_per_node, Timeout timeout) {
  ReplayWorker worker;
  {
    MutexLock lock(mutex_);
    Begin(mode, ns_per_node);
    deadline_ns_ = timeout.DeadlineNs();
    if (deadline_ns_ >= 0) watch_.store(Watch::kDeadline, std::memory_order_relaxed);
    async_ = false;
    over_.Add(1);
    active_ = 1;
    worker.active = worker.caller = true;
    UpdateHints();
  }
  PoolScope scope(pool_);
  if (mode != ReplayMode::kCounters) Lead();
  Participate(worker);
  if (!over_.done()) {
    if (deadline_ns_ < 0 || !may_pend_) {
      pool_.Wait(over_);  // who runs nodes looks at the deadline
    } else {
      const int64_t left_ns = deadline_ns_ - MonotonicNs();
      if (!pool_.Wait(over_, left_ns > 0 ? left_ns : 0)) {
        GiveUp(ErrorCode::kDeadlineExceeded);
        pool_.Wait(over_);  // for the bodies that are running
      }
    }
  }
  std::exception_ptr error;
  {
    MutexLock lock(mutex_);
    phase_ = remaining_ == 0 ? Phase::kIdle : Phase::kAbandoned;
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(std::move(error));
}

template <class Schedule>
OPKIT_COLD inline void ReplayCore<Schedule>::GiveUp(ErrorCode code) {
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning || given_up_) return;
    if (!error_) {
      const int pending = this->pending();
      error_ = std::make_exception_ptr(Error(
          code, code == ErrorCode::kCancelled
                    ? StrCat("the run of a graph of ", schedule.size(), " nodes was cancelled",
                             StrCat(" with ", pending, " nodes pending"))
                    : StrCat("expected the run of a graph of ", schedule.size(),
                             " nodes to end before its deadline, found it running with ",
                             StrCat(pending, " nodes pending; allow it more time"))));
    }
    given_up_ = true;
    watch_.store(Watch::kStop, std::memory_order_relaxed);
    EndIfOver(duty);
  }
  duty.Do();
}

template <class Schedule>
inline void ReplayCore<Schedule>::EndIfOver(Duty& duty) {
  if (!quiet()) return;
  if (phase_ == Phase::kRunning && (remaining_ == 0 || given_up_)) {
    sharing_ = false;
    if (async_) {
      phase_ = Phase::kAbandoned;
      duty.done = std::move(done_);
      duty.error = std::exchange(error_, nullptr);
    } else {
      phase_ = Phase::kOver;
      duty.over = &over_;
    }
    UpdateHints();
  }
  if (phase_ == Phase::kAbandoned && remaining_ == 0) phase_ = Phase::kIdle;
  if (phase_ != Phase::kRunning) duty.quiet = std::exchange(quiet_waiter_, nullptr);
}

template <class Schedule>
inline void ReplayCore<Schedule>::WaitUntilQuiet() {
  Latch latch(1);
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning && quiet()) return;
    quiet_waiter_ = &latch;
  }
  pool_.Wait(latch);
}

// A node that was completed elsewhere. Its early successors are released by the thread that ran its
// body, so neither has to wait for the other.
template <class Schedule>
inline void ReplayCore<Schedule>::Complete(int node, std::exception_ptr error) {
  OPKIT_ASSERT(node >= 0 && node < schedule.size());
  if (error) Fail(std::move(error));
  ReadyChain chain;
  int tail = -1;
  const int* entry = schedule.entries().data() + schedule.entry_begin()[static_cast<size_t>(node)];
  const int* const end =
      schedule.entries().data() + schedule.entry_begin()[static_cast<size_t>(node) + 1];
  for (; entry != end; ++entry) {
    if (Schedule::IsEarly(*entry) || !Release(*entry)) continue;
    if (chain.size == 0) tail = Schedule::TargetOf(*entry);
    Push(chain, Schedule::TargetOf(*entry));
  }
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    --remaining_;
    pending_.fetch_sub(1, std::memory_order_relaxed);
    if (chain.size > 0) Offer(chain, tail);
    if (searching_ < offers()) duty.helper = TakeHelper();
    UpdateHints();
    EndIfOver(duty);
  }
  duty.Do();
}

// --- threads

template <class Schedule>
inline typename ReplayCore<Schedule>::Helper* ReplayCore<Schedule>::TakeHelper() {
  if (free_helpers_ == nullptr || active_ + searching_ + queued_ >= threads_) return nullptr;
  Helper* helper = std::exchange(free_helpers_, free_helpers_->next_free);
  ++queued_;
  helper->core = IntrusivePtr<ReplayCore>(this);
  return helper;
}

template <class Schedule>
inline void ReplayCore<Schedule>::UpdateHints() {
  const int offers = this->offers();
  offers_.store(offers, std::memory_order_relaxed);
  int wanted = kNobody;
  if (long_nodes_) {
    wanted = kAnybody;
  } else if (phase_ == Phase::kRunning && offers == 0) {
    wanted = searching_ > 0 ? kSearching : active_ + queued_ < threads_ ? kAsleep : kNobody;
  }
  wanted_.store(wanted, std::memory_order_relaxed);
}

template <class Schedule>
inline void ReplayCore<Schedule>::Help(Helper& helper) {
  {
    MutexLock lock(mutex_);
    --queued_;
    helper.next_free = std::exchange(free_helpers_, &helper);
  }
  ReplayWorker worker;
  Participate(worker);
}

template <class Schedule>
inline void ReplayCore<Schedule>::Participate(ReplayWorker& worker) {
  for (bool may_search = true;;) {
    switch (Take(worker, may_search)) {
      case Work::kLead: {
        auto scope = InvocationScope::Adopt(worker.invocation);
        Lead();
        break;
      }
      case Work::kNodes: {
        auto scope = InvocationScope::Adopt(worker.invocation);
        run_nodes_(*this, worker);
        break;
      }
      case Work::kNone:
        if (worker.searching) {
          may_search = Search(worker);
        } else if (worker.caller || RunPieces() == 0) {
          return;
        }
        continue;
    }
    may_search = true;
  }
}

// Hands in what the worker has done and finds more for it.
template <class Schedule>
inline typename ReplayCore<Schedule>::Work ReplayCore<Schedule>::Take(ReplayWorker& worker,
                                                                      bool may_search) {
  Duty duty(pool_);
  Work work = Work::kNone;
  {
    MutexLock lock(mutex_);
    remaining_ -= worker.completed;
    worker.next_wake -= std::exchange(worker.completed, 0);
    if (std::exchange(worker.active, false)) --active_;
    if (std::exchange(worker.searching, false)) --searching_;
    if (lead_offered_) {
      lead_offered_ = false;
      work = Work::kLead;
    } else if (chains_ > 0) {
      ReadyChain& chain = shared_[chains_ - 1];
      if (long_nodes_ && chain.size > 1) {
        Push(worker.ready, Pop(chain));
      } else {
        worker.ready = chain;
        --chains_;
      }
      work = Work::kNodes;
    } else if (next_root_ < roots_) {
      // Ever smaller shares, so that the threads end together.
      const int share = long_nodes_ ? 1 : (roots_ - next_root_) / (4 * threads_);
      worker.root = next_root_;
      next_root_ += share < 1 ? 1 : share > kMaxRootShare ? kMaxRootShare : share;
      worker.root_end = next_root_;
      work = Work::kNodes;
    }
    if (work != Work::kNone) {
      worker.active = true;
      ++active_;
      worker.invocation = invocation_;
      if (searching_ < offers()) duty.helper = TakeHelper();
    } else {
      EndIfOver(duty);
      // One that is about to tell of the end finds nothing meanwhile: nobody is to count on it.
      if (may_search && search_ticks_ > 0 && !duty.done &&
          (!worker.caller || phase_ == Phase::kRunning)) {
        worker.searching = true;
        ++searching_;
      }
      if (sharing_) duty.helper = TakeHelper();
    }
    UpdateHints();
  }
  duty.Do();
  return work;
}

// False when there was nothing for too long.
template <class Schedule>
inline bool ReplayCore<Schedule>::Search(const ReplayWorker& worker) {
  uint64_t start = Ticks();
  do {
    if (offers_.load(std::memory_order_relaxed) > 0) return true;
    if (worker.caller) {
      if (over_.done()) return false;
    } else if (RunPieces() > 0) {
      start = Ticks();
    }
    CpuRelax();
  } while (Ticks() - start < search_ticks_);
  return false;
}

template <class Schedule>
inline void ReplayCore<Schedule>::HandOver(ReplayWorker& worker, bool has_next) {
  const int size = worker.ready.size;
  const int wanted = wanted_.load(std::memory_order_relaxed);
  const int keep = wanted == kAnybody ? (has_next ? 0 : 1) : has_next ? size / 2 : size - size / 2;
  if (keep >= size) return;
  if (wanted == kAsleep) {
    if (worker.completed < worker.next_wake) return;
    worker.next_wake = worker.completed + wake_interval_;
  }
  ReadyChain given{worker.ready.head, size - keep};
  int last_kept = -1;
  for (int i = 0; i < keep; ++i) {
    last_kept = given.head;
    given.head = Next(given.head);
  }
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    if (chains_ == kMaxChains && !long_nodes_) return;
    if (keep == 0) {
      worker.ready = {};
    } else {
      worker.ready.size = keep;
      Next(last_kept) = -1;
    }
    int tail = given.head;
    if (chains_ == kMaxChains) {
      for (int i = 1; i < given.size; ++i) tail = Next(tail);
    }
    Offer(given, tail);
    if (searching_ < offers()) duty.helper = TakeHelper();
    UpdateHints();
  }
  duty.Do();
}

// Adds a chain whose last node is `tail`, which is used where there is no room for one more.
template <class Schedule>
inline void ReplayCore<Schedule>::Offer(ReadyChain chain, int tail) {
  if (chains_ == kMaxChains) {
    Next(tail) = shared_[0].head;
    chain.size += shared_[0].size;
    shared_[0] = chain;
  } else {
    shared_[chains_++] = chain;
  }
}

// --- modes without counters

template <class Schedule>
inline void ReplayCore<Schedule>::Lead() {
  if (mode_ == ReplayMode::kLevels) {
    RunLevels();
  } else if (mode_ == ReplayMode::kWalk) {
    run_range_(*this, 0, schedule.size(), /*by_level=*/false);
  }
}

// Runs of narrow levels are walked, wide ones are shared.
template <class Schedule>
inline void ReplayCore<Schedule>::RunLevels() {
  int walked = 0;
  for (int level = 0; level < schedule.levels(); ++level) {
    const int begin = schedule.level_begin()[static_cast<size_t>(level)];
    const int end = schedule.level_begin()[static_cast<size_t>(level) + 1];
    if (end - begin < shared_width_) continue;
    if (walked < begin) run_range_(*this, walked, begin, /*by_level=*/true);
    if (stopped()) return;
    ShareLevel(level);
    walked = end;
  }
  if (walked < schedule.size()) run_range_(*this, walked, schedule.size(), /*by_level=*/true);
}

template <class Schedule>
inline void ReplayCore<Schedule>::ShareLevel(int level) {
  const int begin = schedule.level_begin()[static_cast<size_t>(level)];
  const int width = schedule.level_begin()[static_cast<size_t>(level) + 1] - begin;
  int pieces = width / piece_nodes_;
  const int most = (long_nodes_ ? 32 : 4) * threads_;  // fits the word's 16 bits
  if (pieces > most) pieces = most;
  if (pieces < threads_) pieces = threads_;
  if (pieces > width) pieces = width;
  level_left_.Add(pieces);
  // Release: a claim sees what the levels before have written.
  level_.store(LevelWord(level, pieces), std::memory_order_release);
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    duty.helper = TakeHelper();
  }
  duty.Do();
  RunPieces();
  const uint64_t start = Ticks();
  while (!level_left_.done()) {
    if (Ticks() - start < search_ticks_) {
      CpuRelax();
    } else {
      pool_.Wait(level_left_);
    }
  }
}

// Runs pieces of the level being shared, if there is one; returns how many.
template <class Schedule>
inline int ReplayCore<Schedule>::RunPieces() {
  for (int ran = 0;; ++ran) {
    // Relaxed: a look that the claim below makes good.
    if (!HasPiece(level_.load(std::memory_order_relaxed))) return ran;
    // Acquire: see ShareLevel. Other claims in between continue its release sequence.
    const uint64_t word = level_.fetch_add(1, std::memory_order_acquire);
    if (!HasPiece(word)) return ran;
    const size_t level = word >> 32;
    const int64_t pieces = word >> 16 & 0xffff, piece = word & 0xffff;
    const int64_t begin = schedule.level_begin()[level];
    const int64_t width = schedule.level_begin()[level + 1] - begin;
    {
      auto scope = InvocationScope::Adopt(invocation_);
      run_range_(*this, static_cast<int>(begin + width * piece / pieces),
                 static_cast<int>(begin + width * (piece + 1) / pieces), /*by_level=*/true);
    }
    level_left_.CountDown();
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_

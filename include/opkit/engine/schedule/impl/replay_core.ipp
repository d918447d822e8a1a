// How a replay's run begins and ends, and how the pool's threads take part in it: they look for
// ready nodes, give them to each other, share levels, wake each other and leave.
#ifndef OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_CORE_IPP_
#define OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_CORE_IPP_

#include <algorithm>

#include "opkit/engine/schedule/replay_core.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A level of the schedule that threads run together, in pieces that they claim by number.
class SharedLevel {
 public:
  static constexpr int kMaxPieces = 0xffff;

  // Offers a level in `pieces` pieces. Called by one thread, once the level before is done.
  void Share(int level, int pieces) {
    left_.Add(pieces);
    // Release: a thread that claims a piece sees the writes of the levels before.
    word_.store(static_cast<uint64_t>(level) << 32 | static_cast<uint64_t>(pieces) << 16,
                std::memory_order_release);
  }

  // Claims a piece and calls run(begin, end) with its positions in level order; returns false if no
  // piece is left.
  template <class F>
  bool RunPiece(const Schedule& schedule, F&& run) {
    // Relaxed: a hint; the claim below decides.
    if (!HasPiece(word_.load(std::memory_order_relaxed))) return false;
    // Acquire: see Share. Other claims in between continue its release sequence.
    const uint64_t word = word_.fetch_add(1, std::memory_order_acquire);
    if (!HasPiece(word)) return false;
    const size_t level = word >> 32;
    const int64_t pieces = word >> 16 & 0xffff, piece = word & 0xffff;
    const int64_t begin = schedule.level_begin()[level];
    const int64_t width = schedule.level_begin()[level + 1] - begin;
    run(static_cast<int>(begin + width * piece / pieces),
        static_cast<int>(begin + width * (piece + 1) / pieces));
    left_.CountDown();
    return true;
  }

  // Counts the pieces that have not ended.
  const Latch& left() const { return left_; }

 private:
  static bool HasPiece(uint64_t word) { return (word & 0xffff) < (word >> 16 & 0xffff); }

  // The level, its number of pieces, and the next piece: one word, so that a claim is a claim of
  // just that level.
  std::atomic<uint64_t> word_{0};
  Latch left_;
};

// A run is over when all nodes have completed or it has been given up, and no thread is inside. One
// mutex guards all state that decides this. A thread takes it when it runs out of work or gives
// some away, never for a node. The pool's tasks (helpers) may outlive the run they were queued for:
// a helper that comes too late serves the next run or finds nothing to do. Each helper keeps the
// core alive.
class ReplayCore::Impl final : public ReplayCore {
 public:
  Impl(const Schedule& its_schedule, ThreadPool& pool, const Body& its_body)
      : ReplayCore(its_schedule, its_body, pool.threads()),
        pool_(pool),
        search_ticks_(threads_ <= AvailableCpus() ? 12'000 : 0),
        helpers_(Index(threads_)) {
    for (Helper& helper : helpers_) helper.next_free = std::exchange(free_helpers_, &helper);
  }

  // --- the life of a run

  void Run(ReplayMode mode, double ns_per_node, Timeout timeout) override {
    ReplayWorker worker;
    {
      MutexLock lock(mutex_);
      Begin(mode, ns_per_node);
      deadline_ns_ = timeout.DeadlineNs();
      if (deadline_ns_ >= 0) SetWatch(Watch::kDeadline);
      async_ = false;
      over_.Add(1);
      active_ = 1;
      worker.active = worker.caller = true;
      UpdateHints();
    }
    PoolScope scope(pool_);
    if (mode != ReplayMode::kCounters) Lead();
    Participate(worker);
    if (body.poll && pending() > 0) PollPending();
    if (!over_.done()) {
      if (deadline_ns_ < 0 || !may_pend()) {
        pool_.Wait(over_);  // needs no timeout: the threads that run nodes check the deadline
      } else if (!pool_.Wait(over_, (std::max)(deadline_ns_ - MonotonicNs(), int64_t{0}))) {
        GiveUp(ErrorCode::kDeadlineExceeded);
        pool_.Wait(over_);  // waits for the bodies that are running
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

  void RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done) override {
    Duty duty{pool_};
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

  OPKIT_COLD void GiveUp(ErrorCode code) override {
    Duty duty{pool_};
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
      SetWatch(Watch::kStop);
      EndIfOver(duty);
    }
    duty.Do();
  }

  // Releases the node's successors that are not early. The thread that ran its body releases the
  // early ones, so neither thread waits for the other.
  void Complete(int node, std::exception_ptr error) override {
    OPKIT_ASSERT(node >= 0 && node < schedule.size());
    if (error) Fail(std::move(error));
    ReadyChain chain;
    int tail = -1;
    for (int i = schedule.entry_begin()[Index(node)]; i < schedule.entry_begin()[Index(node) + 1];
         ++i) {
      const int entry = schedule.entries()[Index(i)];
      if (Schedule::IsEarly(entry) || !Release(entry)) continue;
      if (chain.size == 0) tail = Schedule::TargetOf(entry);
      Push(chain, Schedule::TargetOf(entry));
    }
    Duty duty{pool_};
    {
      MutexLock lock(mutex_);
      --remaining_;
      pending_.fetch_sub(1, std::memory_order_relaxed);  // relaxed, as in CountPending
      if (chain.size > 0) Offer(chain, tail);
      if (searching_ < offers()) duty.helper = TakeHelper();
      UpdateHints();
      EndIfOver(duty);
    }
    duty.Do();
  }

  void Fail(std::exception_ptr error) override {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning) return;
    if (!error_) error_ = std::move(error);
    SetWatch(Watch::kStop);
  }

  void WaitUntilQuiet() override {
    Latch latch(1);
    {
      MutexLock lock(mutex_);
      if (phase_ != Phase::kRunning && quiet()) return;
      quiet_waiter_ = &latch;
    }
    pool_.Wait(latch);
  }

  void HandOver(ReplayWorker& worker, bool has_next) override {
    const int size = worker.ready.size;
    const int wanted = wanted_.load(std::memory_order_relaxed);  // relaxed, as in WorkIsWanted
    const int keep = wanted == kAnybody ? (has_next ? 0 : 1)
                     : has_next         ? size / 2
                                        : size - size / 2;
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
    Duty duty{pool_};
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
      if (chains_ == kMaxChains)
        for (int i = 1; i < given.size; ++i) tail = Next(tail);
      Offer(given, tail);
      if (searching_ < offers()) duty.helper = TakeHelper();
      UpdateHints();
    }
    duty.Do();
  }

 private:
  enum class Phase {
    kIdle,
    kRunning,
    kOver,       // Run has still to take the error
    kAbandoned,  // given up, nodes pending
  };
  enum class Work { kNone, kLead, kNodes };

  // A task of the pool that takes part in a run.
  struct Helper : PoolTask {
    Helper() : PoolTask(&Main, Invocation{}) {}
    static void Main(PoolTask* task) noexcept {
      Helper* helper = static_cast<Helper*>(task);
      const IntrusivePtr<Impl> core = std::move(helper->core);
      {
        MutexLock lock(core->mutex_);
        core->GiveBack(*helper);
      }
      ReplayWorker worker;
      core->Participate(worker);
    }
    IntrusivePtr<Impl> core;
    Helper* next_free = nullptr;
  };

  // The wake-ups to do after the mutex is released. The core may already be destroyed then.
  struct Duty {
    void Do() {
      if (helper) {
        try {
          pool.Schedule(helper);
        } catch (...) {
          DoWithout(*helper);
        }
      }
      if (over) over->CountDown();
      if (quiet) quiet->CountDown();
      if (done) done(std::move(error));
    }
    ThreadPool& pool;
    Helper* helper = nullptr;
    Latch* over = nullptr;
    Latch* quiet = nullptr;
    DoneFunction done = {};
    std::exception_ptr error = {};
  };

  // Does without a helper, if the system refused the pool its first thread: the threads that take
  // part do all the work, or this thread if there are none.
  OPKIT_COLD static void DoWithout(Helper& helper) {
    const IntrusivePtr<Impl> core = std::move(helper.core);
    {
      MutexLock lock(core->mutex_);
      core->GiveBack(helper);
      core->UpdateHints();
      if (core->active_ + core->searching_ + core->queued_ > 0) return;
    }
    ReplayWorker worker;
    core->Participate(worker);
  }

  // Polls the body for completions. Ends when a completion has made nodes ready, which pool_.Wait
  // runs.
  void PollPending() {
    while (!over_.done() && offers_.load(std::memory_order_relaxed) == 0 && !stopped() &&
           body.poll(body.object)) {
    }
  }

  OPKIT_COLD bool MustStop(Watch watch) override {
    if (watch == Watch::kStop) return true;
    if (MonotonicNs() < deadline_ns_) return false;
    GiveUp(ErrorCode::kDeadlineExceeded);
    return true;
  }
  // Relaxed: stopped() gives the reason.
  void SetWatch(Watch watch) { watch_.store(watch, std::memory_order_relaxed); }

  // Sets the state that the first thread of a run finds. Throws when a run is in progress.
  void Begin(ReplayMode mode, double ns_per_node) {
    if (phase_ == Phase::kAbandoned)
      Throw(ErrorCode::kFailedPrecondition,
            "expected all nodes of the previous run, which was given up, to have completed; ",
            pending(), " are still pending: complete them first");
    if (phase_ != Phase::kIdle)
      Throw(ErrorCode::kFailedPrecondition,
            "expected a replay that is not running; use one Replay for each run at a time");
    OPKIT_ASSERT(quiet());
    phase_ = Phase::kRunning;
    mode_ = mode;
    deadline_ns_ = -1;
    invocation_ = CurrentInvocation();
    given_up_ = false;
    SetWatch(Watch::kNothing);
    const double ns = (std::max)(ns_per_node, 0.5);
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
    std::copy(schedule.in_degrees().begin(), schedule.in_degrees().end(), counters_.begin());
  }

  // The members below, up to "threads", are called with the mutex held.
  int offers() const { return chains_ + (next_root_ < roots_ ? 1 : 0) + (lead_offered_ ? 1 : 0); }
  bool quiet() const { return active_ == 0 && offers() == 0; }

  void EndIfOver(Duty& duty) {
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

  Helper* TakeHelper() {
    if (!free_helpers_ || active_ + searching_ + queued_ >= threads_) return nullptr;
    Helper* helper = std::exchange(free_helpers_, free_helpers_->next_free);
    ++queued_;
    helper->core = IntrusivePtr<Impl>(this);
    return helper;
  }
  void GiveBack(Helper& helper) {
    --queued_;
    helper.next_free = std::exchange(free_helpers_, &helper);
  }

  // Relaxed: hints, which their readers check under the mutex.
  void UpdateHints() {
    const int offers = this->offers();
    offers_.store(offers, std::memory_order_relaxed);
    int wanted = kNobody;
    if (long_nodes_)
      wanted = kAnybody;
    else if (phase_ == Phase::kRunning && offers == 0)
      wanted = searching_ > 0 ? kSearching : active_ + queued_ < threads_ ? kAsleep : kNobody;
    wanted_.store(wanted, std::memory_order_relaxed);
  }

  // Adds a chain whose last node is `tail`. If there is no room for one more chain, joins it with
  // another behind `tail`.
  void Offer(ReadyChain chain, int tail) {
    if (chains_ < kMaxChains) {
      shared_[chains_++] = chain;
      return;
    }
    Next(tail) = shared_[0].head;
    chain.size += shared_[0].size;
    shared_[0] = chain;
  }

  // --- threads

  void Participate(ReplayWorker& worker) {
    for (bool may_search = true;;) {
      const Work work = Take(worker, may_search);
      if (work != Work::kNone) {
        auto scope = InvocationScope::Adopt(worker.invocation);
        work == Work::kLead ? Lead() : body.run_nodes(*this, worker);
        may_search = true;
      } else if (worker.searching) {
        may_search = Search(worker);
      } else if (worker.caller || RunPieces() == 0) {
        return;
      }
    }
  }

  // Counts the nodes that the worker has run and finds more for it.
  Work Take(ReplayWorker& worker, bool may_search) {
    Duty duty{pool_};
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
        // Shares get ever smaller, so that the threads end together.
        const int share = long_nodes_ ? 1 : (roots_ - next_root_) / (4 * threads_);
        worker.root = next_root_;
        next_root_ += (std::clamp)(share, 1, kMaxRootShare);
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
        // A thread about to report completion must not register as searching.
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

  // Looks for work; returns false if none came for too long.
  bool Search(const ReplayWorker& worker) {
    uint64_t start = Ticks();
    do {
      if (offers_.load(std::memory_order_relaxed) > 0) return true;  // a hint
      if (worker.caller) {
        if (over_.done()) return false;
      } else if (RunPieces() > 0) {
        start = Ticks();
      }
      CpuRelax();
    } while (Ticks() - start < search_ticks_);
    return false;
  }

  // --- modes without counters

  void Lead() {
    if (mode_ == ReplayMode::kLevels)
      RunLevels();
    else if (mode_ == ReplayMode::kWalk)
      body.run_range(*this, 0, schedule.size(), /*by_level=*/false);
  }

  // Walks runs of narrow levels, shares wide ones.
  void RunLevels() {
    int walked = 0;
    for (int level = 0; level < schedule.levels(); ++level) {
      const int begin = schedule.level_begin()[Index(level)];
      const int end = schedule.level_begin()[Index(level) + 1];
      if (end - begin < shared_width_) continue;
      if (walked < begin) body.run_range(*this, walked, begin, /*by_level=*/true);
      if (stopped()) return;
      ShareLevel(level, end - begin);
      walked = end;
    }
    if (walked < schedule.size()) body.run_range(*this, walked, schedule.size(), /*by_level=*/true);
  }

  void ShareLevel(int level, int width) {
    const int most = (long_nodes_ ? 32 : 4) * threads_;
    static_assert(32 * ThreadPool::kMaxThreads <= SharedLevel::kMaxPieces);
    const int pieces = (std::max)((std::min)(width / piece_nodes_, most), threads_);
    level_.Share(level, (std::min)(pieces, width));
    Duty duty{pool_};
    {
      MutexLock lock(mutex_);
      duty.helper = TakeHelper();
    }
    duty.Do();
    RunPieces();
    const uint64_t start = Ticks();
    while (!level_.left().done())
      if (Ticks() - start < search_ticks_)
        CpuRelax();
      else
        pool_.Wait(level_.left());
  }

  // Runs pieces of the level being shared, if there is one; returns how many.
  int RunPieces() {
    const auto run = [this](int begin, int end) {
      auto scope = InvocationScope::Adopt(invocation_);
      body.run_range(*this, begin, end, /*by_level=*/true);
    };
    int ran = 0;
    while (level_.RunPiece(schedule, run)) ++ran;
    return ran;
  }

  ThreadPool& pool_;
  const uint64_t search_ticks_;  // how long a thread looks for work of this graph before it leaves

  // Set before a run's first thread enters.
  ReplayMode mode_ = ReplayMode::kWalk;
  int64_t deadline_ns_ = -1;
  Invocation invocation_;
  // True if a node takes so long that sharing ready nodes pays for the mutex. No ready node then
  // waits behind a running node.
  bool long_nodes_ = false;
  int wake_interval_ = 1;  // nodes to run between two wake-ups, so that these cost little
  int shared_width_ = 2;
  int piece_nodes_ = 1;  // least nodes of a level's piece

  alignas(kCacheLine) SharedLevel level_;

  alignas(kCacheLine) Mutex mutex_;
  Phase phase_ = Phase::kIdle;
  bool given_up_ = false;
  bool lead_offered_ = false;  // an asynchronous run that no thread has begun
  bool sharing_ = false;       // mode kLevels: threads may join even if no node is offered
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

OPKIT_INLINE IntrusivePtr<ReplayCore> ReplayCore::Make(const Schedule& schedule, ThreadPool& pool,
                                                       const Body& body) {
  return MakeIntrusive<Impl>(schedule, pool, body);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_SCHEDULE_IMPL_REPLAY_CORE_IPP_

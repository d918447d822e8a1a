// ReplayCore: the part of a Replay that does not depend on its body. This header holds the path of
// a node: counters, ready nodes, the test whether to stop. How a run begins and ends, and how
// threads take part in it and give work to each other, is in impl/replay_core.ipp.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_

#include <atomic>
#include <exception>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/base/timeout.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Intrusive stack of ready nodes; reuses their dependency counters as links.
struct ReadyChain {
  int head = -1;
  int size = 0;
};

// One thread's part in a run.
struct ReplayWorker {
  ReadyChain ready;
  int root = 0, root_end = 0;  // the thread's share of the roots, by position in level order
  int64_t completed = 0;       // nodes, not yet subtracted from those that remain
  int64_t next_wake = 0;       // value of `completed` from which it may wake another thread
  Invocation invocation;       // the run's
  bool active = false;         // is counted in active_
  bool searching = false;      // is counted in searching_
  bool caller = false;         // the thread that called Run; the others are helpers
};

class ReplayCore : public RefCounted {
 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;
  // Runs nodes by counters until `worker` has none left.
  using NodesFunction = void (*)(ReplayCore& core, ReplayWorker& worker);
  // Runs the nodes at [begin, end) of the stored order or, with `by_level`, of the level order.
  using RangeFunction = void (*)(ReplayCore& core, int begin, int end, bool by_level);

  // A Replay's body behind functions, so that this class is no template.
  struct Body {
    void* object;
    NodesFunction run_nodes;
    RangeFunction run_range;
    bool may_pend;
    bool (*poll)(void* object);  // null: none
  };

  static IntrusivePtr<ReplayCore> Make(const Schedule& schedule, ThreadPool& pool,
                                       const Body& body);

  int threads() const { return threads_; }
  bool may_pend() const { return body.may_pend; }
  void AllocateCounters() { counters_.resize(Index(schedule.size())); }

  // Run and RunAsync throw when a run is in progress. Run takes part, waits, and throws the run's
  // error.
  virtual void Run(ReplayMode mode, double ns_per_node, Timeout timeout) = 0;
  virtual void RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done) = 0;
  virtual void GiveUp(ErrorCode code) = 0;
  // Completes a node that its body has left pending.
  virtual void Complete(int node, std::exception_ptr error) = 0;
  virtual void Fail(std::exception_ptr error) = 0;
  // Returns when no thread is inside and nothing is queued. If the caller promises that no Complete
  // is to come, nothing uses the schedule and the body from then on.
  virtual void WaitUntilQuiet() = 0;

  // True if no body may be called any more. Relaxed: no other data is read because of this value. A
  // thread that gives a run up, and must know that no body runs, takes the mutex; every thread
  // takes the mutex before its first node.
  bool stopped() {
    const Watch watch = watch_.load(std::memory_order_relaxed);
    if (watch == Watch::kNothing) [[likely]]
      return false;
    return MustStop(watch);
  }

  // True if other threads could run ready nodes of this thread. Relaxed: a hint, which is checked
  // under the mutex.
  bool WorkIsWanted() const { return wanted_.load(std::memory_order_relaxed) != kNobody; }
  // Gives the older half of the worker's ready nodes to other threads, or all of them if nodes are
  // long, but never its only node.
  virtual void HandOver(ReplayWorker& worker, bool has_next) = 0;

  // Counts an edge to a node as done. Returns true if it was the last such edge, so that the node
  // may run. Acquire-release: the thread that counts the last edge sees what all predecessors
  // wrote. If the edge is the only one to its node, no counter is needed: the node runs on this
  // thread or is handed over under the mutex.
  bool Release(int entry) {
    if (Schedule::IsOnly(entry)) return true;
    std::atomic_ref<int> counter(counters_[Schedule::TargetOf(entry)]);
    return counter.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  // Returns the link of a node in a ReadyChain.
  int& Next(int node) { return counters_[node]; }
  void Push(ReadyChain& chain, int node) {
    Next(node) = std::exchange(chain.head, node);
    ++chain.size;
  }
  int Pop(ReadyChain& chain) {
    --chain.size;
    return std::exchange(chain.head, Next(chain.head));
  }

  // Relaxed: no other data is read because of this number; the mutex orders the completions.
  void CountPending() { pending_.fetch_add(1, std::memory_order_relaxed); }
  int pending() const { return pending_.load(std::memory_order_relaxed); }

  const Schedule& schedule;
  const Body body;

 protected:
  enum class Watch : char {  // what a thread checks before its next node
    kNothing,
    kDeadline,
    kStop,  // no body is called any more
  };
  enum : int { kNobody, kSearching, kAsleep, kAnybody };

  ReplayCore(const Schedule& its_schedule, const Body& its_body, int threads)
      : schedule(its_schedule), body(its_body), threads_(threads) {}

  virtual bool MustStop(Watch watch) = 0;

  const int threads_;
  IndexedVector<int> counters_;

  // Read by every thread after every node, written rarely.
  alignas(kCacheLine) std::atomic<Watch> watch_{Watch::kNothing};
  std::atomic<int> wanted_{kNobody};  // the threads that could run more
  std::atomic<int> offers_{0};
  std::atomic<int> pending_{0};

 private:
  class Impl;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/schedule/impl/replay_core.ipp"
#endif

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_CORE_HPP_

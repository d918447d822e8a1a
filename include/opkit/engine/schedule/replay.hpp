// Replay: runs a Schedule, many times, on a thread pool: `body(node)` for each node after those
// that it depends on. The body is a template argument, so a node costs what its body costs and a
// few ns; a run allocates nothing. The frozen task graph and the executor use it.
#ifndef OPKIT_ENGINE_SCHEDULE_REPLAY_HPP_
#define OPKIT_ENGINE_SCHEDULE_REPLAY_HPP_

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "opkit/base/unique_function.hpp"
#include "opkit/engine/schedule/replay_core.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class NodeState {
  kDone,
  kPending,  // completes later, by a call of Replay::Complete(node)
};

struct ReplayOptions {
  ReplayMode mode = ReplayMode::kAuto;
  // How long a body takes, for the choice of the mode; measured in the first runs when 0.
  double ns_per_node = 0;
  // True if a body that returns NodeState may return kPending for this schedule.
  bool may_pend = true;
};

namespace detail {

// Returns the callable that one thread calls for its nodes: the result of body.OnThread(), if the
// body has that. Otherwise a trivially copyable body is copied to the stack: its members stay in
// registers, since the compiler knows that nodes do not change them.
template <class Body>
decltype(auto) BodyOnThread(Body& body) {
  if constexpr (requires { body.OnThread(); })
    return body.OnThread();
  else if constexpr (std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int>)
    return std::add_const_t<Body>(body);  // nvcc warns about a const that is written in a cast
  else
    return (body);
}
template <class Body>
using ReplayResult = std::invoke_result_t<decltype(BodyOnThread(std::declval<Body&>())), int>;

}  // namespace detail

template <class Body>
concept ReplayBody = std::is_void_v<detail::ReplayResult<Body>> ||
                     std::is_same_v<detail::ReplayResult<Body>, NodeState>;

//   Schedule schedule(3, {{0, 1}, {0, 2}});
//   Replay replay(schedule, [&](int node) { work[schedule.original_of(node)](); });
//   replay.Run();  // as often as you like
//
// The body is called once for each node, with the node's number in the schedule. Calls run on the
// calling thread and on workers of the pool, under the caller's invocation. If the body has
// `OnThread()`, the result of that is called instead, made for each thread's part in a run. If the
// body has `Poll()` and no node is left to run, the thread that called Run first calls Poll again
// and again, as long as it returns true and no node becomes ready, and then sleeps until a pending
// node completes. Poll may call Complete. A node sees the writes of the nodes that it depends on.
// Schedule and pool must outlive the replay.
//
// One run at a time; any number of Replays of one schedule may run at once. Complete and Cancel may
// be called from any thread during a run, from the body too. A forked child makes its own replays.
//
// Errors. The first exception that a body throws or Complete is given is kept; no body is called
// from then on, pending nodes are waited for, and Run rethrows it (RunAsync passes it to `done`). A
// run that is cancelled or passes its deadline is given up: no body is called from then on, and it
// ends, with kCancelled or kDeadlineExceeded, as soon as no body is running. Bodies are never
// killed. Nodes that are pending then must still be completed before the next run, which else
// throws kFailedPrecondition. The replay may be destroyed as soon as no call of Complete can come
// any more.
template <class Body>
class Replay {
  static_assert(ReplayBody<Body>,
                "Replay: the body must be callable as body(int node) and return void or NodeState");

 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;
  static constexpr bool kMayPend = std::is_same_v<detail::ReplayResult<Body>, NodeState>;

  // Throws kInvalidArgument for a mode that cannot run the schedule: nodes that may pend need
  // kCounters, an in_order schedule kCounters or kWalk.
  Replay(const Schedule& schedule, Body body, ReplayOptions options = {},
         ThreadPool& pool = ThreadPool::Current())
      : body_(std::move(body)),
        tuner_(schedule, options.mode, options.ns_per_node, pool.threads(),
               kMayPend && options.may_pend),
        core_(Core::Make(schedule, pool,
                         {&body_, &RunNodes, &RunRange, kMayPend && options.may_pend, Poll()})) {
    if (tuner_.may_use_counters()) core_->AllocateCounters();
  }
  Replay(Replay&&) = delete;
  // Waits for an asynchronous run; Cancel it first if its pending nodes may never complete.
  ~Replay() { core_->WaitUntilQuiet(); }

  // Runs all nodes; this thread takes part. The deadline is checked before each node, which costs
  // 20 to 30 ns. If nodes may pend and a deadline is set, a caller that is no thread of the pool
  // runs nodes only until none is ready. From then on it sleeps, and the pool's threads do the
  // rest.
  void Run(Timeout timeout = {}) {
    const bool timed = tuner_.NextIsTimed();
    const int64_t start = timed ? detail::MonotonicNs() : 0;
    core_->Run(tuner_.mode(), tuner_.ns_per_node(), timeout);
    if (timed) tuner_.Record(detail::MonotonicNs() - start);
  }

  // Starts a run and returns at once. The thread that ends the run calls `done` with the run's
  // error (null for none). From then on the replay may be run again or destroyed, by `done` too.
  // `done` must not throw; if it captures at most 48 bytes nothing is allocated. There is no
  // deadline, because no thread would watch it; use Cancel.
  void RunAsync(DoneFunction done) {
    core_->RunAsync(tuner_.mode(), tuner_.ns_per_node(), std::move(done));
  }

  // Completes a node; to be called once for each node whose body has returned, or will return,
  // kPending. Does not run other bodies, which run on the pool's threads or in Run, unless the
  // system refused the pool all of its threads.
  void Complete(int node, std::exception_ptr error = nullptr) {
    static_assert(kMayPend, "Replay::Complete: the body must return NodeState");
    core_->Complete(node, std::move(error));
  }

  // Fails the run in progress as a body that throws does.
  void Fail(std::exception_ptr error) { core_->Fail(std::move(error)); }

  // Gives up the run in progress, if there is one.
  void Cancel() { core_->GiveUp(ErrorCode::kCancelled); }

  // True if the run in progress has failed or was given up. A long body may call it to end early.
  // Costs as much as the check before a node.
  bool stopped() { return core_->stopped(); }

  // To be called after a run that was given up, once its pending nodes have been completed. Returns
  // when the rest of the graph has been skipped, so that the next run may begin.
  void Drain() { core_->WaitUntilQuiet(); }

  // Returns the number of nodes that are pending now.
  int pending() const { return core_->pending(); }
  int threads() const { return core_->threads(); }
  const Schedule& schedule() const { return core_->schedule; }
  Body& body() { return body_; }

  // Return the mode of the next run, whether that mode is settled (not a trial), and how many
  // trials have ended.
  ReplayMode mode() const { return tuner_.mode(); }
  bool settled() const { return tuner_.settled(); }
  int decisions() const { return tuner_.decisions(); }
  // Returns a sentence that names the mode and the reason for it. Must not be called during a run.
  std::string ExplainMode() const { return tuner_.Explain(); }

 private:
  using Core = detail::ReplayCore;

  static decltype(auto) OnThread(Core& core) {
    return detail::BodyOnThread(*static_cast<Body*>(core.body.object));
  }

  static auto Poll() -> bool (*)(void*) {
    if constexpr (requires(Body& body) { body.Poll(); })
      return [](void* body) -> bool { return static_cast<Body*>(body)->Poll(); };
    else
      return nullptr;
  }

  // Calls the body of a node that may not pend.
  static void CallDone(auto& body, int node) {
    if constexpr (kMayPend) {
      [[maybe_unused]] const NodeState state = body(node);
      OPKIT_ASSERT(state == NodeState::kDone);
    } else {
      body(node);
    }
  }

  static void RunRange(Core& core, int begin, int end, bool by_level) {
    decltype(OnThread(core)) body = OnThread(core);
    const std::vector<int>& order = core.schedule.level_order();
    try {
      if (by_level && !order.empty()) {
        const int* const nodes = order.data();
        for (int i = begin; i < end && !core.stopped(); ++i) CallDone(body, nodes[i]);
      } else {
        for (int i = begin; i < end && !core.stopped(); ++i) CallDone(body, i);
      }
    } catch (...) {
      core.Fail(std::current_exception());
    }
  }

  // Runs a node; returns true if it is pending.
  static bool RunNode(Core& core, auto& body, int node) {
    if (core.stopped()) return false;
    try {
      if constexpr (kMayPend) {
        if (body(node) == NodeState::kDone) return false;
        OPKIT_ASSERT(core.may_pend());
        core.CountPending();
        return true;
      } else {
        body(node);
      }
    } catch (...) {
      core.Fail(std::current_exception());
    }
    return false;
  }

  static void RunNodes(Core& core, detail::ReplayWorker& worker) {
    decltype(OnThread(core)) body = OnThread(core);
    const int* const entry_begin = core.schedule.entry_begin().data();
    const int* const entries = core.schedule.entries().data();
    for (;;) {
      int node;
      if (worker.ready.size > 0)
        node = core.Pop(worker.ready);
      else if (worker.root < worker.root_end)
        node = core.schedule.level_node(worker.root++);
      else
        return;
      while (node >= 0) {
        const bool pending = RunNode(core, body, node);
        int next = -1;
        const int* const end = entries + entry_begin[node + 1];
        for (const int* entry = entries + entry_begin[node]; entry != end; ++entry) {
          if constexpr (kMayPend)
            if (pending && !Schedule::IsEarly(*entry)) break;
          if (!core.Release(*entry)) continue;
          if (next < 0)
            next = Schedule::TargetOf(*entry);
          else
            core.Push(worker.ready, Schedule::TargetOf(*entry));
        }
        if (!pending) ++worker.completed;
        if (core.WorkIsWanted() && worker.ready.size > 0) core.HandOver(worker, next >= 0);
        node = next;
      }
    }
  }

  Body body_;
  detail::ReplayTuner tuner_;
  const detail::IntrusivePtr<Core> core_;
};

}}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_REPLAY_HPP_

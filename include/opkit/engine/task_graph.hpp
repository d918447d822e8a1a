// TaskGraph: plain functions with dependencies, built once, frozen, and run many times for a few ns
// a task. FrozenTaskGraph runs them: tasks lie in execution order, beside a Schedule and its
// Replay.
#ifndef OPKIT_ENGINE_TASK_GRAPH_HPP_
#define OPKIT_ENGINE_TASK_GRAPH_HPP_

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/timeout.hpp"
#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/engine/schedule/task_store.hpp"
#include "opkit/engine/thread_pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A task of the graph that returned it.
struct TaskId {
  int index = -1;
  friend bool operator==(TaskId, TaskId) = default;
};

struct FreezeOptions {
  // Number of threads; 0: those of `pool`, or of the current pool if `pool` is null. Without
  // `pool`, another number makes a pool of that many threads for this graph alone; the callback of
  // RunAsync must then not destroy the graph.
  int threads = 0;
  ThreadPool* pool = nullptr;
  ReplayMode mode = ReplayMode::kAuto;
  double ns_per_task = 0;  // for the choice of the mode; measured in the first runs when 0
  // Tasks run one after the other, in the order in which they were added as far as the edges allow.
  bool in_order = false;
};

// Runs the tasks of a TaskGraph, which need not exist any more. Runs, errors, deadlines and Cancel
// work as in Replay. One run at a time; freeze a graph twice for two at a time. After a move only
// destruction and assignment are allowed.
class FrozenTaskGraph {
 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;

  FrozenTaskGraph(FrozenTaskGraph&&) noexcept;
  FrozenTaskGraph& operator=(FrozenTaskGraph&&) noexcept;
  ~FrozenTaskGraph();

  void Run(Timeout timeout = {});
  void RunAsync(DoneFunction done);
  void Cancel();

  int size() const { return schedule().size(); }
  ReplayMode mode() const;
  bool settled() const;
  const Schedule& schedule() const;
  // Returns a few lines: the sizes of the graph, how it runs and why. Must not be called during a
  // run.
  OPKIT_COLD friend std::string ToString(const FrozenTaskGraph& graph);

 private:
  friend class TaskGraph;
  struct State;

  explicit FrozenTaskGraph(detail::IntrusivePtr<State> state);

  detail::IntrusivePtr<State> state_;
};

//   TaskGraph graph;
//   TaskId load = graph.Add([&] { Load(image); });
//   TaskId blur = graph.Add([&] { Blur(image); });
//   graph.Precede(load, blur);
//   FrozenTaskGraph frozen = graph.Freeze({.threads = 2});
//   for (;;) frozen.Run();
//
// Not thread-safe. Adding a task takes about 10 ns and 32 bytes, and an allocation now and then. A
// function that captures more than 24 bytes or is not trivially copyable is moved to a block of the
// graph's own. It is then one object for all frozen graphs.
class TaskGraph {
 public:
  TaskGraph() = default;
  TaskGraph(TaskGraph&&) noexcept = default;
  TaskGraph& operator=(TaskGraph&&) noexcept = default;

  template <class F>
  TaskId Add(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "TaskGraph::Add: a task must be callable without arguments");
    int bytes = 0;
    const detail::TaskRecord record = store_->Store(std::forward<F>(f), &bytes);
    if (bytes > max_bytes_) max_bytes_ = bytes;
    if (detail::Index(size_) == kBlock * blocks_.size()) [[unlikely]]
      AddBlock();
    blocks_.back().push_back(record);
    return {size_++};
  }

  // Makes `after` start when `before` has ended. Freeze finds cycles.
  void Precede(TaskId before, TaskId after) {
    const auto size = static_cast<unsigned>(size_);
    if (static_cast<unsigned>(before.index) >= size || static_cast<unsigned>(after.index) >= size)
        [[unlikely]]
      ThrowNoTasks(before, after);
    edges_.push_back({before.index, after.index});
  }

  int size() const { return size_; }

  // Makes a graph that runs the tasks added so far. Error (kInvalidArgument) with the path of a
  // cycle. The TaskGraph stays as it is; tasks may be added and it may be frozen again.
  FrozenTaskGraph Freeze(const FreezeOptions& options = {}) const;

 private:
  friend class FrozenTaskGraph;

  OPKIT_COLD void AddBlock();
  [[noreturn]] OPKIT_COLD void ThrowNoTasks(TaskId before, TaskId after) const;

  // In blocks, so that a large graph is not copied while it grows.
  static constexpr size_t kBlock = 2048;
  const detail::TaskRecord& task(int index) const {
    return blocks_[detail::Index(index) / kBlock][detail::Index(index) % kBlock];
  }

  int size_ = 0;
  std::vector<std::vector<detail::TaskRecord>> blocks_;
  std::vector<ScheduleEdge> edges_;
  int max_bytes_ = 0;
  detail::IntrusivePtr<detail::TaskStore> store_ = detail::MakeIntrusive<detail::TaskStore>();
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/engine/impl/task_graph.ipp"
#endif

#endif  // OPKIT_ENGINE_TASK_GRAPH_HPP_

// TaskGraph: plain functions with dependencies, built once, frozen, and run many times for a few ns
// a task. FrozenTaskGraph is what runs: tasks lie in execution order, beside a Schedule and its
// Replay.
#ifndef OPKIT_ENGINE_TASK_GRAPH_HPP_
#define OPKIT_ENGINE_TASK_GRAPH_HPP_

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "opkit/engine/schedule/replay.hpp"
#include "opkit/engine/schedule/task_store.hpp"

namespace opkit::inline OPKIT_ABI {

// A task of the graph that returned it.
struct TaskId {
  int index = -1;
  friend bool operator==(TaskId, TaskId) = default;
};

struct FreezeOptions {
  // 0: the threads of `pool`, or of the current one. Without a pool, a number makes a pool of that
  // many threads for this graph alone; then the callback of RunAsync must not destroy the graph.
  int threads = 0;
  ThreadPool* pool = nullptr;
  ReplayMode mode = ReplayMode::kAuto;
  double ns_per_task = 0;  // for the choice of the mode; measured in the first runs when 0
  // Tasks run one after the other, in the order in which they were added as far as the edges allow.
  bool in_order = false;
};

template <class Record, class Edge>
class BasicTaskGraph;

// Runs the tasks of a TaskGraph, which need not exist any more. What Replay says of runs, errors,
// deadlines and Cancel holds here. One run at a time; freeze a graph twice for two at a time. After
// a move only destruction and assignment are allowed.
//
// Both graphs are templates, so that programs without them do not compile them.
template <class Record, class Edge>
class BasicFrozenTaskGraph {
  using TaskGraph = BasicTaskGraph<Record, Edge>;
  using Schedule = BasicSchedule<Edge>;

 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;

  BasicFrozenTaskGraph(BasicFrozenTaskGraph&&) noexcept = default;
  BasicFrozenTaskGraph& operator=(BasicFrozenTaskGraph&&) noexcept = default;
  BasicFrozenTaskGraph(const BasicFrozenTaskGraph&) = delete;
  BasicFrozenTaskGraph& operator=(const BasicFrozenTaskGraph&) = delete;

  void Run(Timeout timeout = {}) { state_->replay.Run(timeout); }
  void RunAsync(DoneFunction done) { state_->replay.RunAsync(std::move(done)); }
  void Cancel() { state_->replay.Cancel(); }

  int size() const { return state_->schedule.size(); }
  ReplayMode mode() const { return state_->replay.mode(); }
  bool settled() const { return state_->replay.settled(); }
  const Schedule& schedule() const { return state_->schedule; }
  // A few lines: what was frozen, how it runs and why. Not during a run.
  std::string Describe() const;

 private:
  friend TaskGraph;

  struct OwnPool final : detail::RefCounted {
    explicit OwnPool(int threads) : pool(threads) {}
    ThreadPool pool;
  };

  // Calls task `node`: its record lies at `records + node * stride`.
  struct Body {
    void operator()(int node) const {
      unsigned char* record = records + static_cast<size_t>(node) * stride;
      void (*call)(void*);
      std::memcpy(&call, record, sizeof call);
      call(record + sizeof call);
    }
    unsigned char* records;
    size_t stride;
  };

  struct State final : detail::RefCounted {
    State(const TaskGraph& graph, size_t stride, const FreezeOptions& options);

    detail::IntrusivePtr<OwnPool> own_pool;
    detail::IntrusivePtr<detail::TaskStore<Record>> store;
    Schedule schedule;
    std::vector<uint64_t> records;
    Replay<Body, Schedule> replay;
  };

  explicit BasicFrozenTaskGraph(detail::IntrusivePtr<State> state) : state_(std::move(state)) {}

  detail::IntrusivePtr<State> state_;
};
using FrozenTaskGraph = BasicFrozenTaskGraph<detail::TaskRecord, ScheduleEdge>;

//   TaskGraph graph;
//   TaskId load = graph.Add([&] { Load(image); });
//   TaskId blur = graph.Add([&] { Blur(image); });
//   graph.Precede(load, blur);
//   FrozenTaskGraph frozen = graph.Freeze({.threads = 2});
//   for (;;) frozen.Run();
//
// Not thread-safe. Adding a task takes about 10 ns and 32 bytes, and one allocation in a while; a
// function that captures more than 24 bytes or is not trivially copyable is moved to a block of the
// graph's own, and is one object for all frozen graphs.
template <class Record, class Edge>
class BasicTaskGraph {
  using FrozenTaskGraph = BasicFrozenTaskGraph<Record, Edge>;

 public:
  BasicTaskGraph() = default;
  BasicTaskGraph(BasicTaskGraph&&) noexcept = default;
  BasicTaskGraph& operator=(BasicTaskGraph&&) noexcept = default;
  BasicTaskGraph(const BasicTaskGraph&) = delete;
  BasicTaskGraph& operator=(const BasicTaskGraph&) = delete;

  template <class F>
  TaskId Add(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "TaskGraph::Add: a task must be callable without arguments");
    int bytes = 0;
    const Record record = store_->Store(std::forward<F>(f), &bytes);
    if (bytes > max_bytes_) max_bytes_ = bytes;
    if (static_cast<size_t>(size_) == kBlock * blocks_.size()) {
      blocks_.emplace_back();
      blocks_.back().reserve(kBlock);
    }
    blocks_.back().push_back(record);
    return {size_++};
  }

  // `after` starts when `before` has ended. Cycles are found by Freeze.
  void Precede(TaskId before, TaskId after) {
    const auto size = static_cast<unsigned>(size_);
    if (static_cast<unsigned>(before.index) >= size || static_cast<unsigned>(after.index) >= size)
        [[unlikely]] {
      Throw(ErrorCode::kOutOfRange, "expected two tasks of this graph, which has ", size,
            ", found tasks ", before.index, " and ", after.index, "; use what Add returned");
    }
    edges_.push_back({before.index, after.index});
  }

  int size() const { return size_; }

  // Throws kInvalidArgument with the path for a cycle. The graph stays as it is and may be added to
  // and frozen again.
  FrozenTaskGraph Freeze(const FreezeOptions& options = {}) const {
    const size_t stride = sizeof(void*) + (static_cast<size_t>(max_bytes_) + 7) / 8 * 8;
    return FrozenTaskGraph(
        detail::MakeIntrusive<typename FrozenTaskGraph::State>(*this, stride, options));
  }

 private:
  friend FrozenTaskGraph;

  // In blocks, so that a large graph is not copied while it grows.
  static constexpr size_t kBlock = 2048;
  const Record& task(int index) const {
    return blocks_[static_cast<size_t>(index) / kBlock][static_cast<size_t>(index) % kBlock];
  }

  int size_ = 0;
  std::vector<std::vector<Record>> blocks_;
  std::vector<Edge> edges_;
  int max_bytes_ = 0;
  detail::IntrusivePtr<detail::TaskStore<Record>> store_ =
      detail::MakeIntrusive<detail::TaskStore<Record>>();
};
using TaskGraph = BasicTaskGraph<detail::TaskRecord, ScheduleEdge>;

template <class Record, class Edge>
inline BasicFrozenTaskGraph<Record, Edge>::State::State(const TaskGraph& graph, size_t stride,
                                                        const FreezeOptions& options)
    : own_pool(options.pool == nullptr && options.threads != 0
                   ? detail::MakeIntrusive<OwnPool>(options.threads)
                   : detail::IntrusivePtr<OwnPool>()),
      store(graph.store_),
      schedule(graph.size_, graph.edges_,
               {.order = ScheduleOrder::kLevelsIfWide, .in_order = options.in_order}),
      records(static_cast<size_t>(graph.size_) * stride / sizeof(uint64_t)),
      replay(schedule, Body{reinterpret_cast<unsigned char*>(records.data()), stride},
             {.mode = options.mode, .ns_per_node = options.ns_per_task},
             options.pool != nullptr ? *options.pool
             : own_pool              ? own_pool->pool
                                     : ThreadPool::Current()) {
  auto* record = reinterpret_cast<unsigned char*>(records.data());
  for (int node = 0; node < graph.size_; ++node, record += stride) {
    std::memcpy(record, &graph.task(schedule.original_of(node)), stride);
  }
}

template <class Record, class Edge>
OPKIT_COLD inline std::string BasicFrozenTaskGraph<Record, Edge>::Describe() const {
  const Schedule& schedule = state_->schedule;
  const int64_t removed = schedule.edges_given() - schedule.edges_kept();
  return StrCat(
      StrCat(schedule.size(), " tasks, ", schedule.edges_kept(), " edges"),
      removed > 0 ? StrCat(" (", removed, " more implied by these)") : "",
      StrCat(", ", schedule.levels(), " levels of at most ", schedule.max_width(), " tasks\n"),
      StrCat("on ", state_->replay.threads(),
             state_->replay.threads() == 1 ? " thread by " : " threads by ",
             state_->replay.ExplainMode()));
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_TASK_GRAPH_HPP_

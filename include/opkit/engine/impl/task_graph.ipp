// The definitions of opkit/engine/task_graph.hpp: how the tasks of a graph are frozen and run.
#ifndef OPKIT_ENGINE_IMPL_TASK_GRAPH_IPP_
#define OPKIT_ENGINE_IMPL_TASK_GRAPH_IPP_

#include <cstring>
#include <memory>

#include "opkit/engine/schedule/replay.hpp"
#include "opkit/engine/task_graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The record of node n lies at `stride` times n: the function's call pointer, then its bytes.
struct FrozenTaskGraph::State final : detail::RefCounted {
  // The body of the replay: calls the function in a node's record.
  struct Body {
    void operator()(int node) const {
      unsigned char* record = records + detail::Index(node) * stride;
      void (*call)(void*);
      std::memcpy(&call, record, sizeof call);
      call(record + sizeof call);
    }
    unsigned char* records;
    size_t stride;
  };

  State(const TaskGraph& graph, size_t stride, const FreezeOptions& options)
      : own_pool(!options.pool && options.threads != 0
                     ? std::make_unique<ThreadPool>(options.threads)
                     : nullptr),
        store(graph.store_),
        schedule(graph.size_, graph.edges_,
                 {.order = ScheduleOrder::kLevelsIfWide, .in_order = options.in_order}),
        records(detail::Index(graph.size_) * stride / sizeof(uint64_t)),
        replay(schedule, Body{reinterpret_cast<unsigned char*>(records.data()), stride},
               {.mode = options.mode, .ns_per_node = options.ns_per_task},
               options.pool ? *options.pool
               : own_pool   ? *own_pool
                            : ThreadPool::Current()) {
    auto* record = reinterpret_cast<unsigned char*>(records.data());
    for (int node = 0; node < graph.size_; ++node, record += stride)
      std::memcpy(record, &graph.task(schedule.original_of(node)), stride);
  }

  std::unique_ptr<ThreadPool> own_pool;
  detail::IntrusivePtr<detail::TaskStore> store;
  Schedule schedule;
  std::vector<uint64_t> records;
  Replay<Body> replay;
};

OPKIT_INLINE FrozenTaskGraph::FrozenTaskGraph(detail::IntrusivePtr<State> state)
    : state_(std::move(state)) {}
OPKIT_INLINE FrozenTaskGraph::FrozenTaskGraph(FrozenTaskGraph&&) noexcept = default;
OPKIT_INLINE FrozenTaskGraph& FrozenTaskGraph::operator=(FrozenTaskGraph&&) noexcept = default;
OPKIT_INLINE FrozenTaskGraph::~FrozenTaskGraph() = default;

OPKIT_INLINE void FrozenTaskGraph::Run(Timeout timeout) { state_->replay.Run(timeout); }
OPKIT_INLINE void FrozenTaskGraph::RunAsync(DoneFunction done) {
  state_->replay.RunAsync(std::move(done));
}
OPKIT_INLINE void FrozenTaskGraph::Cancel() { state_->replay.Cancel(); }

OPKIT_INLINE ReplayMode FrozenTaskGraph::mode() const { return state_->replay.mode(); }
OPKIT_INLINE bool FrozenTaskGraph::settled() const { return state_->replay.settled(); }
OPKIT_INLINE const Schedule& FrozenTaskGraph::schedule() const { return state_->schedule; }

OPKIT_INLINE std::string ToString(const FrozenTaskGraph& graph) {
  const Schedule& schedule = graph.schedule();
  const int threads = graph.state_->replay.threads();
  const int64_t removed = schedule.edges_given() - schedule.edges_kept();
  return StrCat(StrCat(schedule.size(), " tasks, ", schedule.edges_kept(), " edges"),
                removed > 0 ? StrCat(" (", removed, " more implied by these)") : "",
                StrCat(", ", schedule.levels(), " levels of at most ", schedule.max_width()),
                StrCat(" tasks\non ", threads, threads == 1 ? " thread by " : " threads by ",
                       graph.state_->replay.ExplainMode()));
}

OPKIT_INLINE void TaskGraph::AddBlock() {
  blocks_.emplace_back();
  blocks_.back().reserve(kBlock);
}
OPKIT_INLINE void TaskGraph::ThrowNoTasks(TaskId before, TaskId after) const {
  Throw(ErrorCode::kOutOfRange, "expected two tasks of this graph, which has ", size_,
        ", found tasks ", before.index, " and ", after.index, "; use what Add returned");
}

OPKIT_INLINE FrozenTaskGraph TaskGraph::Freeze(const FreezeOptions& options) const {
  const size_t stride = sizeof(void*) + detail::Index(max_bytes_ + 7) / 8 * 8;
  return FrozenTaskGraph(detail::MakeIntrusive<FrozenTaskGraph::State>(*this, stride, options));
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_TASK_GRAPH_IPP_

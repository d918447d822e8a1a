// Plan: a frozen graph, made once by Compile: checked, rewritten by passes, kernels selected, nodes
// scheduled, memory planned. Executors run it, as often and as many at once as one likes.
#ifndef OPKIT_GRAPH_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_HPP_

#include "opkit/engine/schedule/replay_mode.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit::inline OPKIT_ABI {

struct PlanOptions {
  // Threads that run it, the caller's included; 0: those of ThreadPool::Default(). Another number
  // than that makes a pool of the plan's own.
  int threads = 0;
  // Nodes are called in one fixed order, whatever the number of threads.
  bool deterministic = false;
  ReplayMode mode = ReplayMode::kAuto;
  // Applied in order before anything is selected; null: DefaultPasses().
  const PassList* passes = nullptr;
  MemoryPlanOptions memory = {};
  // Has every memory plan proved by VerifyMemoryPlan; without NDEBUG all but large ones are.
  bool verify_memory = false;
  // Sets of input shapes that the plan, and each executor, keeps; the least recently used goes.
  int max_shapes = 8;
};

namespace detail {

template <class Parts>
class PlanState final : public RefCounted {
 public:
  using Graph = typename Parts::Graph;
  using GraphView = typename Parts::GraphView;
  using Pool = typename Parts::ThreadPool;
  using Specialization = detail::Specialization<Parts>;
  using BoundNodes = detail::BoundNodes<Parts>;

  PlanState(Graph graph, const PlanOptions& options)
      : options_(options), graph_(std::move(graph)), view_(graph_) {
    if (options.threads < 0 || options.max_shapes < 1)
      Throw(ErrorCode::kInvalidArgument, "a plan needs threads >= 0 and max_shapes >= 1, found ",
            options.threads, " and ", options.max_shapes);
    options_.passes = nullptr;  // the caller's
    if (options.threads != 0 && options.threads != ThreadPool::Default().threads())
      own_pool_ = std::make_unique<Pool>(options.threads, "opkit-plan");
  }

  const PlanOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  const GraphView& view() const { return view_; }
  Pool& pool() const { return own_pool_ ? *own_pool_ : Pool::Default(); }

  // What these inputs decide, with operators for one executor. Thread-safe.
  IntrusivePtr<Specialization> Specialize(const std::vector<TensorInfo>& inputs,
                                          std::unique_ptr<BoundNodes>* nodes);
  // The one used last; null while the shapes of the inputs are not known.
  IntrusivePtr<Specialization> Latest() const {
    MutexLock lock(mutex_);
    return known_.empty() ? IntrusivePtr<Specialization>() : known_.front();
  }

 private:
  IntrusivePtr<Specialization> Find(const std::vector<TensorInfo>& inputs) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (!SameTypes(known_[i]->inputs(), inputs)) continue;
      IntrusivePtr<Specialization> found = known_[i];
      known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(i));
      known_.insert(known_.begin(), found);
      return found;
    }
    return {};
  }
  // Steps run one after the other in their order.
  bool IsWalked() const {
    const bool walk = options_.mode == ReplayMode::kWalk ||
                      (options_.mode == ReplayMode::kAuto && pool().threads() == 1);
    return walk || options_.deterministic;
  }
  static bool SameTypes(const std::vector<TensorInfo>& a, const std::vector<TensorInfo>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i].dtype != b[i].dtype || !(a[i].shape == b[i].shape)) return false;
    return true;
  }

  PlanOptions options_;
  const Graph graph_;
  const GraphView view_;
  std::unique_ptr<Pool> own_pool_;
  mutable Mutex mutex_;
  std::vector<IntrusivePtr<Specialization>> known_;  // the most recently used first
};

template <class Parts>
IntrusivePtr<Specialization<Parts>> PlanState<Parts>::Specialize(
    const std::vector<TensorInfo>& inputs, std::unique_ptr<BoundNodes>* nodes) {
  MutexLock lock(mutex_);
  IntrusivePtr<Specialization> found = Find(inputs);
  if (!found) {
    found = MakeIntrusive<Specialization>(
        view_, inputs,
        typename Specialization::Options{IsWalked(), options_.deterministic, options_.memory,
                                         options_.verify_memory});
    known_.insert(known_.begin(), found);
    if (known_.size() > static_cast<size_t>(options_.max_shapes)) known_.pop_back();
  }
  if (nodes) *nodes = found->TakeNodes();
  return found;
}

}  // namespace detail

// A handle; copies are the same plan. Thread-safe.
template <class PlanParts>
class BasicPlan {
 public:
  using Parts = PlanParts;
  using State = detail::PlanState<Parts>;
  using Graph = typename State::Graph;
  using NodeChoice = typename Parts::NodeChoice;

  // The graph as it runs, after the passes.
  const Graph& graph() const { return state_->graph(); }
  int threads() const { return state_->pool().threads(); }

  // Of the input shapes used last. Error (kFailedPrecondition) while none are known: the graph
  // leaves some open and nothing has run yet.
  MemorySummary memory() const { return Latest()->memory(); }
  // What is known of a value then. Errors: as memory(), kNotFound.
  TensorInfo type(std::string_view value) const { return Latest()->types().at(value); }
  // The kernel selected for a node of graph().
  NodeChoice choice(int node) const {
    graph().node(node);
    return Latest()->choices()[static_cast<size_t>(node)];
  }

  // For people: the schedule, the memory plan, what was selected for each node.
  std::string Describe() const {
    std::string out = StrCat("plan of ", graph().num_nodes(), " nodes on ", threads(),
                             threads() == 1 ? " thread\n" : " threads\n");
    const auto found = state_->Latest();
    if (!found) return out + "  the shapes of its inputs are not known yet\n";
    const auto& schedule = found->schedule();
    out += StrCat("  schedule: ", schedule.edges_kept(), " of ", schedule.edges_given(),
                  " edges kept, ", schedule.levels(), " levels, at most ",
                  StrCat(schedule.max_width(), " wide\n"));
    out += StrCat("  mode: ", found->mode(), "\n");
    const auto& memory = found->memory();
    out += StrCat("  memory: ", memory.arena_bytes, " bytes for ", memory.planned_values,
                  " values (at least ", memory.lower_bound_bytes, ", one by one ",
                  memory.naive_bytes, StrCat("), ", memory.inplace_values, " in place\n"));
    for (int step = 0; step < schedule.size(); ++step) {
      const int node = schedule.original_of(step);
      const NodeChoice& choice = found->choices()[static_cast<size_t>(node)];
      out += StrCat("  ", step, " ", ToString(graph().node(node)), ": ", choice.kernel->backend,
                    ", ", choice.kernel->Place());
      for (int value : state_->view().outputs(node))
        if (value >= 0) out += " " + ToString(found->types()[value]);
      out += "\n";
    }
    return out;
  }

  // For executors.
  const detail::IntrusivePtr<State>& state() const { return state_; }

 private:
  template <class P>
  friend P Compile(const typename P::Graph&, const PlanOptions&);
  explicit BasicPlan(detail::IntrusivePtr<State> state) : state_(std::move(state)) {}

  auto Latest() const {
    auto latest = state_->Latest();
    if (!latest)
      Throw(ErrorCode::kFailedPrecondition,
            "the plan leaves shapes of its inputs open, and nothing has run yet: run it, or give "
            "every input a shape");
    return latest;
  }
  detail::IntrusivePtr<State> state_;
};
using Plan = BasicPlan<detail::PlanParts>;

// Makes a plan of a graph, which is copied. When all inputs have shapes, kernels are selected and
// memory is planned at once; otherwise for each set of shapes at its first run. Errors: what is
// wrong with the graph (Check, InferGraph), a pass or its result, an operator's constructor.
//
//   Plan plan = Compile(g, {.threads = 2});
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
template <class P = Plan>
P Compile(const typename P::Graph& graph, const PlanOptions& options = {}) {
  const BasicPassList<typename P::Graph>* passes = options.passes;
  P plan(detail::MakeIntrusive<typename P::State>(
      passes ? passes->Run(graph) : DefaultPasses<typename P::Graph>().Run(graph), options));
  if (graph.num_nodes() > 0 && graph.outputs().empty() && plan.graph().num_nodes() == 0)
    Throw(ErrorCode::kInvalidArgument,
          "the graph has no outputs, and none of its nodes has an effect: AddOutput what a run is "
          "to return");
  std::vector<TensorInfo> inputs;
  bool known = true;
  for (const auto& input : plan.graph().inputs()) {
    inputs.push_back(input.info);
    known &= input.info.dtype != DType::kUndefined && input.info.shape.is_known();
  }
  if (known) {
    plan.state_->Specialize(inputs, nullptr);
  } else {
    InferGraph(plan.state_->view());  // what is wrong whatever the shapes are
  }
  return plan;
}
#ifdef OPKIT_EXTERN_GRAPH  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
extern template Plan Compile<Plan>(const Graph&, const PlanOptions&);
extern template detail::IntrusivePtr<detail::Specialization<detail::PlanParts>>
detail::PlanState<detail::PlanParts>::Specialize(const std::vector<TensorInfo>&,
                                                 std::unique_ptr<BoundNodes>*);
#endif

}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_HPP_

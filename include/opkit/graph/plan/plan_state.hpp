// PlanState: the state that all handles of a Plan share: the graph, its view, the pool, and the
// specializations for the latest input shapes.
#ifndef OPKIT_GRAPH_PLAN_PLAN_STATE_HPP_
#define OPKIT_GRAPH_PLAN_PLAN_STATE_HPP_

#include <atomic>
#include <optional>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/plan/explain_selection.hpp"
#include "opkit/graph/plan/shape_cache.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A graph with its view.
struct ViewedGraph {
  explicit ViewedGraph(Graph of) : graph(std::move(of)), view(graph) {}
  ViewedGraph(const ViewedGraph&) = delete;
  ViewedGraph& operator=(const ViewedGraph&) = delete;

  Graph graph;
  const GraphView view;
};

class PlanState;
// Hook for TunedKernels of graph/tune/plan_tuning.hpp.
OPKIT_IMAGE_LOCAL inline constinit Hook<Selection(const PlanState&, const std::vector<TensorInfo>&)>
    g_tuned_kernels{"PlanOptions::tuning", "opkit/graph/tune/tune.hpp"};

// Hook for AddMeasured of graph/tune/tune.hpp.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const PlanState&, Explanation&)> g_add_measured{
    "PlanOptions::tuning", "opkit/graph/tune/tune.hpp"};

// Shared by the copies of a Plan and by its executors. Thread-safe where a function says so.
class PlanState final : public RefCounted {
 public:
  // The effect of PlanOptions::memory.recompute, with the numbers of MemorySummary.
  struct Recomputed {
    int nodes = 0;
    double share = 0;
  };

  PlanState(Graph graph, const PlanOptions& options, IntrusivePtr<RefCounted> preferences,
            std::shared_ptr<const PartitionReport> partition_report);

  const PlanOptions& options() const { return options_; }
  // Returns null unless partitioners were named.
  const PartitionReport* partition_report() const { return partition_report_.get(); }
  // Returns the preferences for backends that were in force during Compile.
  const RefCounted& preferences() const { return *preferences_; }
  // Returns the inputs whose memory belongs to the plan during a run.
  const std::vector<int>& donated() const { return donated_; }
  const Graph& graph() const { return graph_->graph; }
  const GraphView& view() const { return graph_->view; }
  ThreadPool& pool() const { return own_pool_ ? *own_pool_ : ThreadPool::Global(); }
  // Returns the types that the graph declares for its inputs. inputs_known() is true if they have
  // the dtype and shape of each; the infos of inputs with a default then have it as their data.
  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  // Returns the default of each input; a tensor without dtype for an input that has none.
  const std::vector<Tensor>& defaults() const { return defaults_; }
  bool inputs_known() const { return inputs_known_; }

  // Returns the specialization for these inputs and, unless `nodes` is null, operators for one
  // executor. Thread-safe.
  IntrusivePtr<Specialization> Specialize(const std::vector<TensorInfo>& inputs,
                                          std::unique_ptr<BoundNodes>* nodes);
  // Makes Latest() return this specialization of an executor, even if the plan has dropped it.
  // Thread-safe.
  void SetLatest(IntrusivePtr<Specialization> specialization);
  // Makes a specialization that the plan does not keep.
  OPKIT_COLD IntrusivePtr<Specialization> Make(std::vector<TensorInfo> inputs) const {
    return MakeOf(view(), std::move(inputs), options_.memory);
  }
  // Makes a specialization of a graph with the same inputs, for their declared shapes. Its arena
  // may exceed the capacity, and has no place for values whose size only has a bound. The search
  // for a better memory plan stops when the arena fits the capacity.
  IntrusivePtr<Specialization> MakeUnbounded(const GraphView& view) const;
  // Replaces the plan's graph by another with the same inputs and outputs. Call it before any run.
  void UseGraph(std::unique_ptr<ViewedGraph> graph, Recomputed recomputed) {
    graph_ = std::move(graph);
    recomputed_ = recomputed;
  }
  // Stores a specialization, which must be made for the plan's graph.
  void Keep(IntrusivePtr<Specialization> specialization) {
    MutexLock lock(mutex_);
    specializations_.Add(std::move(specialization));
  }
  // Replaces the forced kernels. Call it before Specialize makes the specialization for them.
  void SetSelection(Selection selection) { options_.selection.forced = std::move(selection); }
  const Recomputed& recomputed() const { return recomputed_; }
  // The threads that measure for PlanOptions::tuning.online (graph/tune); null before the first.
  // Only Specialize, which has the mutex, sets it.
  IntrusivePtr<RefCounted>& background() const { return background_; }
  // Makes the next run with these inputs select its kernels again. Thread-safe.
  void SelectAgain(const std::vector<TensorInfo>& inputs) const;
  // The number of calls of SelectAgain. Relaxed: a run that reads the number too early takes its
  // kernels over one run later, and Specialize orders everything else by its mutex.
  int selections() const { return selections_.load(std::memory_order_relaxed); }
  // True if some specialization has kernels that tuning has found.
  bool is_tuned() const {
    MutexLock lock(tuned_mutex_);
    return has_tuned_;
  }
  // True if steps run one after the other, in their order.
  bool IsWalked() const {
    return options_.schedule.deterministic || options_.schedule.mode == ReplayMode::kWalk ||
           (options_.schedule.mode == ReplayMode::kAuto && pool().threads() == 1);
  }
  // Infers types_for_any(). Throws for a graph that is wrong whatever its input shapes are.
  void CheckForAnyShapes();
  // Drops the constants of which Latest() reads only converted copies. Latest() must be the
  // specialization for the plan's only input shapes. Not synchronised.
  void ReleaseConstants();
  Explanation Explain() const;
  // Returns the types that hold for every shape of the inputs; null if the graph declares these
  // shapes.
  const GraphTypes* types_for_any() const { return types_for_any_ ? &*types_for_any_ : nullptr; }
  // Returns the specialization used last; null before the first run if input shapes are unknown.
  IntrusivePtr<Specialization> Latest() const {
    MutexLock lock(mutex_);
    return specializations_.latest();
  }
  // Returns the specialization of Latest(), but throws kFailedPrecondition instead of returning
  // null.
  IntrusivePtr<Specialization> GetLatest() const;

 private:
  // True if a kernel exists on the node's device or, if it names none, on one of
  // PlanOptions::devices.
  bool HasKernel(const OperatorDef& def) const;
  void FindDonated();
  // Returns the forced kernels and, for the other nodes, those that tuning has found for these
  // inputs; null if there are none.
  const Selection* ForcedFor(const std::vector<TensorInfo>& inputs) const;
  IntrusivePtr<Specialization> MakeOf(const GraphView& view, std::vector<TensorInfo> inputs,
                                      const PlanOptions::MemoryOptions& memory) const;

  PlanOptions options_;
  const std::shared_ptr<const PartitionReport> partition_report_;
  const IntrusivePtr<RefCounted> preferences_;
  std::unique_ptr<ViewedGraph> graph_;
  Recomputed recomputed_;
  std::vector<TensorInfo> inputs_;
  std::vector<Tensor> defaults_;
  std::vector<int> donated_;
  bool inputs_known_ = true;
  std::optional<GraphTypes> types_for_any_;
  std::optional<Explanation> explanation_;  // set if constants were released
  std::unique_ptr<ThreadPool> own_pool_;
  mutable ConvertedConstants converted_constants_;
  // The forced and tuned kernels of the specializations.
  mutable Mutex tuned_mutex_;
  mutable std::vector<std::unique_ptr<const Selection>> tuned_;
  mutable bool has_tuned_ = false;  // some of them have kernels that tuning has found
  mutable Mutex mutex_;
  ShapeCache<Specialization> specializations_;
  mutable std::vector<std::vector<TensorInfo>> stale_;  // the inputs of SelectAgain
  mutable std::atomic<int> selections_{0};
  mutable IntrusivePtr<RefCounted> background_;  // its end waits for threads that use all above
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/plan_state.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_PLAN_STATE_HPP_

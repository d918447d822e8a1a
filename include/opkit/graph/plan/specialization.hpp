// Specialization: everything about a graph that depends on its inputs' types and shapes: kernels,
// schedule, the place of each value in memory. A plan makes one specialization for each set of
// shapes; its executors share it.
#ifndef OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_
#define OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

#include <algorithm>
#include <optional>
#include <span>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/graph/node_bodies.hpp"
#include "opkit/graph/plan/bound_nodes.hpp"
#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/graph/plan/fused_graph.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"
#include "opkit/graph/plan/planned_memory.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the edges that leave a step, as the schedule encodes them.
inline std::span<const int> EntriesOf(const Schedule& schedule, int step) {
  const int* const entries = schedule.entries().data();
  const int* const begin = schedule.entry_begin().data() + step;
  return {entries + begin[0], entries + begin[1]};
}

class Specialization;

// A body that is planned with its enclosing graph.
struct PlannedBody {
  PlannedBody(int carrier, int number_of_body, const NodeBody& body)
      : node(carrier),
        number(number_of_body),
        apart(body.apart),
        name(body.name),
        view(*body.graph) {}

  const int node;    // the node that carries it
  const int number;  // the body's index among the node's bodies
  const bool apart;  // see NodeBody
  const std::string name;
  const GraphView view;
  Selection forced;  // the enclosing graph's forced kernels for nodes of the body
  IntrusivePtr<Specialization> plan;
};

// Only read after construction, except for the text of mode(), TakeNodes and ReleaseConstant.
class Specialization final : public RefCounted {
 public:
  struct Options {
    bool walked = false;  // steps run one after the other, in their order
    bool in_order = false;
    PlanOptions::MemoryOptions memory;
    ConvertedConstants* converted_constants = nullptr;  // the converted constants of the plan
    KernelSelector::Options selection = {};
    // Donated inputs, as values of the plan's graph; none in a body.
    std::span<const int> donated = {};
  };

  // The enclosing graph of a body, with its operators, and the node that carries the body.
  struct Enclosing {
    const Specialization& plan;
    const BoundNodes& nodes;
    int node;
    const NodeBody& body;

    Device device() const { return plan.view().graph().node(node).device(); }
  };

  // Specializes a graph or, with `enclosing`, a body. A body has no arenas: its values lie in those
  // of the enclosing graph.
  Specialization(const GraphView& view, std::vector<TensorInfo> input_infos, const Options& options,
                 const Enclosing* enclosing = nullptr);

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  // Returns the graph that runs. It has one node for the nodes that one kernel computes, and it has
  // converters. PartsOf, NodeOf and ValueOf relate it to the plan's graph.
  const GraphView& view() const { return converted_ ? converted_->view() : fused_view(); }
  const GraphTypes& types() const { return converted_ ? converted_->types() : fused_types(); }
  // Converts a value's number in the plan's graph to its number in the graph that runs; -1 for a
  // value between two nodes that one kernel computes.
  int ValueOf(int plan_value) const {
    const int value = fused_ ? fused_->ValueOf(plan_value) : plan_value;
    return converted_ && value >= 0 ? converted_->ValueOf(value) : value;
  }
  // Returns the nodes of the plan's graph that a node of the running graph computes, in the order
  // in which they run; empty for a converter.
  std::vector<int> PartsOf(int node) const;
  // Returns the types of the plan graph's values, in the layouts in which their nodes make them.
  const GraphTypes& plan_types() const { return plan_types_; }
  const GraphView& plan_view() const { return plan_view_; }
  const KernelSelector& selector() const { return selector_; }
  // Converts the number of a node of the plan's graph to its number in the graph that runs.
  int NodeOf(int plan_node) const { return fused_ ? fused_->NodeOf(plan_node) : plan_node; }
  // Returns the choice for a node of the graph that runs. plan_choice(): for the plan's graph.
  const NodeChoice& choice(int node) const { return choices_[node]; }
  const NodeChoice& plan_choice(int node) const { return selected_[node]; }
  const Schedule& schedule() const { return *schedule_; }
  // True if an entry of the schedule is no edge of the graph: it only fixes the order in which
  // steps are called, and the later step waits for no work.
  bool IsOrderOnly(int step, int entry) const {
    return !follows_.empty() && Schedule::TargetOf(entry) == step + 1 && follows_[step + 1] == 0;
  }
  const PlannedMemory& memory() const { return memory_; }
  // Returns a sentence that says how nodes are run, and why. The executor that measured its runs
  // last has set it. Thread-safe.
  std::string mode() const {
    MutexLock lock(mode_mutex_);
    return mode_;
  }
  void SetMode(std::string mode) {
    MutexLock lock(mode_mutex_);
    mode_ = std::move(mode);
  }
  // Returns the bytes of a value of the graph that runs. If extents only have a bound, counts the
  // largest shape.
  int64_t BytesOf(int value) const {
    const TensorInfo& info = types()[value];
    return LayoutBytes(info.layout, *info.shape.Most(), info.dtype);
  }
  // True if some operator completes after it has returned.
  bool may_pend() const { return may_pend_; }
  bool IsAsynchronous(int node) const { return asynchronous_[node] != 0; }
  int stream(int node) const { return streams_[node]; }
  // Returns the bodies that are planned with this graph, in the order of the nodes that carry them.
  const std::vector<std::unique_ptr<PlannedBody>>& bodies() const { return bodies_; }
  std::span<const std::unique_ptr<PlannedBody>> BodiesOf(int node) const {
    const auto [first, end] = std::ranges::equal_range(
        bodies_, node, {}, [](const std::unique_ptr<PlannedBody>& body) { return body->node; });
    return {first, end};
  }
  // True if the planned body of a node has inputs and outputs of its own.
  bool HasBodyApart(int node) const {
    return !BodiesOf(node).empty() && BodiesOf(node).front()->apart;
  }
  // For a body: returns the number that the value has in the enclosing graph; -1 for a value of the
  // body's own.
  int OuterOf(int value) const { return outer_[value]; }
  // True if a node of this graph or of an enclosing graph rewrites the value.
  bool IsRewritten(int value) const { return rewritten_[value] != 0; }

  // Returns the names of the constants that nodes read only as converted copies. ReleaseConstant
  // drops the original of such a constant.
  std::vector<std::string> UnreadConstants() const {
    return converted_ ? converted_->UnreadConstants(fused_view()) : std::vector<std::string>();
  }
  void ReleaseConstant(const std::string& name) {
    plan_types_[plan_view_.FindValue(name)].constant = nullptr;
    if (fused_) fused_->ReleaseConstant(name);
    converted_->ReleaseConstant(name);
  }

  // Returns operators for one executor; the first call returns the operators that selection made.
  // Not synchronised.
  std::unique_ptr<BoundNodes> TakeNodes() {
    if (first_nodes_) return std::move(first_nodes_);
    return MakeNodes(nullptr);
  }

 private:
  friend class PlannedMemory;  // numbers the values of bodies

  // Runs the whole pipeline. Starts again with another selection if a constructor refuses its node
  // and the next kernel needs other layouts. The values of a body get their memory from the
  // enclosing graph.
  void Build(const Options& options, const Enclosing* enclosing);
  static GraphTypes Infer(const GraphView& view, const std::vector<TensorInfo>& inputs);

  // The graph and its types after fusion, but before converters are inserted.
  const GraphView& fused_view() const { return fused_ ? fused_->view() : plan_view_; }
  const GraphTypes& fused_types() const { return fused_ ? fused_->types() : plan_types_; }

  // Makes one node of each chain of nodes that one kernel computes.
  void FuseNodes(const Options& options);
  // Inserts converters between nodes whose kernels want other layouts or devices.
  void InsertConverters(const Options& options, const Enclosing* enclosing);
  // Creates the operators. If a constructor refuses its node, binds the next kernel; returns false
  // if that kernel wants other layouts.
  bool BindNodes(const Enclosing* enclosing);
  // Gives a node's configuration the layouts of its values. These are equal already; the call makes
  // them share descriptors, so that no run compares two descriptors.
  void ShareDescriptors(int node);
  // For a body: finds the enclosing graph's values that are the body's inputs, and those that the
  // body's nodes make as outputs. Also finds the values that a node rewrites.
  void FindOuter(const Enclosing* enclosing);
  // Returns, for each value of this graph, its blob in the enclosing graph, or null if the value is
  // the graph's own; empty without an enclosing graph.
  IndexedVector<Blob*> OuterBlobs(const BoundNodes* enclosing) const;
  std::unique_ptr<BoundNodes> MakeNodes(const BoundNodes* enclosing) const;

  void PlanBodies(const Options& options);
  // Plans a body with this graph. The node itself runs two kinds of bodies, which stay unplanned: a
  // body with an operator that completes after it has returned, and one of several bodies that does
  // not fit the shapes. No run executes that body.
  void PlanBody(int node, int number, const RunsBodies& carrier, const Options& options);

  // True if the body can be planned without forced kernels.
  static bool Fits(const PlannedBody& body, const std::vector<TensorInfo>& infos, Options options,
                   const Enclosing& enclosing);

  // Makes the schedule. An edge is early if both operators are on one device and accept work whose
  // predecessors are not done. The second operator is then issued right after the first.
  void MakeSchedule(const Options& options);

  // Chooses streams: a chain of operators on one device runs on one stream; a branch takes the next
  // stream.
  void AssignStreams();
  void PlanMemory(const Options& options);

  const GraphView& plan_view_;
  std::vector<TensorInfo> inputs_;
  GraphTypes plan_types_;
  KernelSelector selector_;
  IndexedVector<NodeChoice> selected_;         // by node of the plan's graph
  IndexedVector<NodeChoice> choices_;          // by node of the graph that runs
  std::unique_ptr<FusedGraph> fused_;          // null if nothing is fused
  std::unique_ptr<ConvertedGraph> converted_;  // null if no converter is needed
  std::optional<Schedule> schedule_;
  IndexedVector<char> asynchronous_;  // by node
  IndexedVector<int> streams_;        // by node
  IndexedVector<char> follows_;  // by step, if in order: the graph has an edge from the step before
  bool may_pend_ = false;
  std::vector<std::unique_ptr<PlannedBody>> bodies_;  // ordered by node
  IndexedVector<int> outer_;                          // by value; see OuterOf
  IndexedVector<char> rewritten_;                     // by value
  PlannedMemory memory_;
  mutable Mutex mode_mutex_;
  std::string mode_ = "no executor has been made yet";
  std::unique_ptr<BoundNodes> first_nodes_;
};

// Calls `visit` with a plan and each body in it, and with the prefix of their nodes' names in
// selections. `prefix` is that of the plan.
void ForEachPlanned(
    const Specialization& plan, const std::string& prefix,
    FunctionRef<void(const Specialization& planned, const std::string& prefix)> visit);
// Appends the choices of a plan, those of a body behind that of the node that carries it. A node
// that the kernel of an earlier node computes is appended with `computed_too` alone, and if both
// have the same backend: if forced, they are computed together again.
void AppendSelection(const Specialization& plan, const std::string& prefix, bool computed_too,
                     Selection& selection);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/planned_memory.ipp"
#include "opkit/graph/plan/impl/specialization.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

// Specialization: everything about a graph that its inputs' types and shapes decide: the kernels,
// the schedule, where in memory each value lies. Made once for each set of shapes, shared by the
// executors of a plan.
#ifndef OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_
#define OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

#include <algorithm>
#include <optional>
#include <span>

#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/graph/memory/node_order.hpp"
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
  const std::vector<int>& begin = schedule.entry_begin();
  return {entries + begin[Index(step)], entries + begin[Index(step) + 1]};
}

class Specialization;

// A body that is planned with its enclosing graph.
struct PlannedBody {
  PlannedBody(int carrier, int number_of_body, const NodeBody& body)
      : node(carrier), number(number_of_body), name(body.name), view(*body.graph) {}

  const int node;    // the node that carries it
  const int number;  // among the node's bodies
  const std::string name;
  const GraphView view;
  Selection forced;  // the enclosing graph's forced kernels for nodes of the body
  IntrusivePtr<Specialization> plan;
};

class Specialization final : public RefCounted {
 public:
  struct Options {
    bool walked = false;  // steps run one after the other, in their order
    bool in_order = false;
    MemoryPlanOptions memory;
    bool verify_memory = false;
    ConvertedConstants* converted_constants = nullptr;  // of the plan
    KernelSelector::Options selection = {};
    std::span<const int> donated = {};  // values of the plan's graph; none in a body
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
                 const Enclosing* enclosing = nullptr)
      : plan_view_(view),
        inputs_(std::move(input_infos)),
        plan_types_(Infer(view, inputs_)),
        selector_(plan_view_, plan_types_, options.selection),
        memory_(*this, options.memory) {
    SelectKernels(options, enclosing);
    PlanBodies(options);
    SetSchedule(options);
    AssignStreams();
    if (enclosing) return;
    PlannedMemory::Options memory{options.memory, options.verify_memory, options.walked, {}};
    for (const int input : options.donated) memory.donated.push_back(ValueOf(input));
    memory_.PlanArenas(memory);
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  // Returns the graph that runs: with the nodes that one kernel computes as one node, and with
  // converters. PartsOf, NodeOf and ValueOf relate it to the plan's graph.
  const GraphView& view() const { return converted_ ? converted_->view() : fused_view(); }
  const GraphTypes& types() const { return converted_ ? converted_->types() : fused_types(); }
  // Returns the number in view() of a value of the plan's graph; -1 for a value between two nodes
  // that one kernel computes.
  int ValueOf(int plan_value) const {
    const int value = fused_ ? fused_->ValueOf(plan_value) : plan_value;
    return converted_ && value >= 0 ? converted_->ValueOf(value) : value;
  }
  // Returns the nodes of the plan's graph that a node of view() computes, in the order in which
  // they run; empty for a converter.
  std::vector<int> PartsOf(int node) const {
    if (node >= fused_view().num_nodes()) return {};
    if (!fused_) return {node};
    return {fused_->PartsOf(node).begin(), fused_->PartsOf(node).end()};
  }
  // Returns the types of the plan graph's values, in the layouts in which their nodes make them.
  const GraphTypes& plan_types() const { return plan_types_; }
  const GraphView& plan_view() const { return plan_view_; }
  const KernelSelector& selector() const { return selector_; }
  // Returns the node of view() that computes a node of the plan's graph.
  int NodeOf(int plan_node) const { return fused_ ? fused_->NodeOf(plan_node) : plan_node; }
  // Returns the choice for a node of view(); plan_choice(), for a node of the plan's graph.
  const NodeChoice& choice(int node) const { return choices_[Index(node)]; }
  const NodeChoice& plan_choice(int node) const { return selected_[Index(node)]; }
  const Schedule& schedule() const { return *schedule_; }
  // True if an entry of the schedule only fixes the order in which steps are called, and waits for
  // no work: the graph has no such edge.
  bool IsOrderOnly(int step, int entry) const {
    return !follows_.empty() && Schedule::TargetOf(entry) == step + 1 &&
           follows_[Index(step) + 1] == 0;
  }
  const PlannedMemory& memory() const { return memory_; }
  // Returns how nodes are run, and why, as the executor that measured last describes it.
  // Thread-safe.
  std::string mode() const {
    MutexLock lock(mode_mutex_);
    return mode_;
  }
  void SetMode(std::string mode) {
    MutexLock lock(mode_mutex_);
    mode_ = std::move(mode);
  }
  // Returns the bytes of a value of view(). A shape with a bound counts as the largest it allows.
  int64_t BytesOf(int value) const {
    const TensorInfo& info = types()[value];
    return LayoutBytes(info.layout, *info.shape.Most(), info.dtype);
  }
  // True if some operator completes after it has returned.
  bool may_pend() const { return may_pend_; }
  bool IsAsynchronous(int node) const { return asynchronous_[Index(node)] != 0; }
  int stream(int node) const { return streams_[Index(node)]; }
  // Returns the bodies that are planned with this graph, in the order of the nodes that carry them.
  const std::vector<std::unique_ptr<PlannedBody>>& bodies() const { return bodies_; }
  std::span<const std::unique_ptr<PlannedBody>> BodiesOf(int node) const {
    const auto [first, end] = std::ranges::equal_range(
        bodies_, node, {}, [](const std::unique_ptr<PlannedBody>& body) { return body->node; });
    return {first, end};
  }
  // For a body: returns the enclosing graph's value that this value is; -1 for a value of the
  // body's own.
  int OuterOf(int value) const { return outer_[Index(value)]; }
  // True if a node of this graph or of an enclosing graph rewrites the value.
  bool IsRewritten(int value) const { return rewritten_[Index(value)] != 0; }

  // Returns the names of constants of which only converted copies are read. ReleaseConstant drops
  // the original of one of them here.
  std::vector<std::string> UnreadConstants() const {
    return converted_ ? converted_->UnreadConstants(fused_view()) : std::vector<std::string>();
  }
  void ReleaseConstant(const std::string& name) {
    plan_types_[plan_view_.FindValue(name)].constant = nullptr;
    if (fused_) fused_->ReleaseConstant(name);
    converted_->ReleaseConstant(name);
  }

  // Returns operators for one executor; the first call returns those that selection made. Not
  // synchronised.
  std::unique_ptr<BoundNodes> TakeNodes() {
    if (first_nodes_) return std::move(first_nodes_);
    return MakeNodes(nullptr);
  }

 private:
  friend class PlannedMemory;  // numbers the values of bodies

  static GraphTypes Infer(const GraphView& view, const std::vector<TensorInfo>& inputs) {
    std::vector<GraphInput> known;
    for (size_t i = 0; i < inputs.size(); ++i)
      known.push_back({view.graph().inputs()[i].name, inputs[i]});
    return InferGraph(view, known);
  }

  // The graph and its types after fusion, before converters are inserted.
  const GraphView& fused_view() const { return fused_ ? fused_->view() : plan_view_; }
  const GraphTypes& fused_types() const { return fused_ ? fused_->types() : plan_types_; }

  // Selects kernels, fuses nodes, inserts the converters that they need, and creates the operators.
  // Starts again if a constructor refuses its node and the next kernel wants other layouts.
  void SelectKernels(const Options& options, const Enclosing* enclosing) {
    struct OtherLayouts {};
    const auto refused = [&](int node, const std::string& why) {
      const std::vector<int> parts = PartsOf(node);
      if (parts.size() != 1) throw UnsupportedOperatorFeature(why);
      NodeChoice& choice = selected_[Index(parts[0])];
      if (!selector_.SelectAfterRefusal(parts[0], why, choice)) throw OtherLayouts();
      choices_[Index(node)] = choice;
      ShareDescriptors(node);
    };
    while (!first_nodes_) {
      selector_.SelectAll(selected_);
      converted_.reset();
      fused_.reset();
      if (FusedGraph::IsNeeded(selected_))
        fused_ = g_make_fused_graph(plan_view_, plan_types_, selected_, options.selection.forced);
      choices_ = fused_ ? fused_->choices() : selected_;
      for (int node = 0; node < plan_view_.num_nodes(); ++node)
        if (const int first = PartsOf(NodeOf(node)).front(); first != node)
          selected_[Index(node)].computed_by = first;
      // A body returns its outputs on the device on which the node that carries it makes them.
      const std::optional<Device> device =
          enclosing ? std::optional(enclosing->device()) : std::nullopt;
      const Device* const outputs_on = device ? &*device : nullptr;
      if (NeedsConverters(fused_view(), fused_types(), choices_, outputs_on))
        converted_ = g_make_converted_graph(fused_view(), fused_types(), choices_,
                                            *options.converted_constants, outputs_on);
      for (int node = 0; node < view().num_nodes(); ++node) ShareDescriptors(node);
      FindOuter(enclosing);
      try {
        first_nodes_ = std::make_unique<BoundNodes>(
            view(), types(), choices_, OuterBlobs(enclosing ? &enclosing->nodes : nullptr),
            refused);
      } catch (const OtherLayouts&) {
      }
    }
  }
  // Gives a node's configuration the layouts that its values have. The two are equal by now; this
  // makes them share their descriptors, so that no run compares two descriptors.
  void ShareDescriptors(int node) {
    const auto share = [&](std::span<const int> values, std::vector<Layout>& layouts) {
      for (size_t i = 0; i < layouts.size(); ++i) {
        if (values[i] < 0) continue;
        const Layout& layout = types()[values[i]].layout;
        OPKIT_ASSERT(layouts[i] == layout);
        layouts[i] = layout;
      }
    };
    KernelConfig& config = choices_[Index(node)].config;
    share(view().inputs(node), config.input_layouts);
    share(view().outputs(node), config.output_layouts);
  }
  // For a body: finds the enclosing graph's values that are the body's inputs, and those that the
  // body's nodes make as outputs. Also finds the values that a node rewrites.
  OPKIT_COLD void FindOuter(const Enclosing* enclosing) {
    outer_.assign(Index(view().num_values()), -1);
    rewritten_.assign(outer_.size(), 0);
    if (enclosing) {
      const GraphView& outside = enclosing->plan.view();
      const auto bind = [&](int plan_value, std::span<const int> values, size_t at) {
        if (at < values.size()) outer_[Index(ValueOf(plan_value))] = values[at];
      };
      for (size_t i = 0; i < inputs_.size(); ++i)  // inputs are the first values
        bind(static_cast<int>(i), outside.inputs(enclosing->node),
             Index(enclosing->body.inputs[i]));
      for (size_t o = 0; o < plan_view_.outputs().size(); ++o)
        if (const int value = plan_view_.outputs()[o]; plan_view_.producer(value) >= 0)
          bind(value, outside.outputs(enclosing->node), o);
    }
    for (int value = 0; value < view().num_values(); ++value)
      rewritten_[Index(value)] =
          view().IsRewritten(value) ||
          (OuterOf(value) >= 0 && enclosing->plan.IsRewritten(OuterOf(value)));
  }
  // Returns the blobs of the enclosing graph, by value of this one; empty if there is none.
  OPKIT_COLD std::vector<Blob*> OuterBlobs(const BoundNodes* enclosing) const {
    std::vector<Blob*> blobs;
    for (int value = 0; enclosing && value < view().num_values(); ++value)
      blobs.push_back(OuterOf(value) < 0 ? nullptr : &enclosing->blob(OuterOf(value)));
    return blobs;
  }
  OPKIT_COLD std::unique_ptr<BoundNodes> MakeNodes(const BoundNodes* enclosing) const {
    auto nodes = std::make_unique<BoundNodes>(view(), types(), choices_, OuterBlobs(enclosing));
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      nodes->bodies().push_back(body->plan->MakeNodes(nodes.get()));
    return nodes;
  }

  OPKIT_COLD void PlanBodies(const Options& options) {
    for (int node = 0; node < view().num_nodes(); ++node)
      if (const auto* runs = dynamic_cast<const RunsBodies*>(&first_nodes_->op(node))) {
        const bool exclusive = runs->bodies().size() > 1;
        for (size_t i = 0; i < runs->bodies().size(); ++i)
          PlanBody(node, static_cast<int>(i), runs->bodies()[i], exclusive, options);
      }
  }
  // Plans a body with this graph. A body with an operator that completes after it has returned is
  // left to its node. So is a body that does not fit the shapes, if the node has several: a run
  // does not take it.
  OPKIT_COLD void PlanBody(int node, int number, const NodeBody& body, bool exclusive,
                           const Options& options) {
    const OperatorDef& def = view().graph().node(node);
    auto planned = std::make_unique<PlannedBody>(node, number, body);
    std::vector<TensorInfo> infos;
    for (const int input : body.inputs) {
      const int value = view().inputs(node)[Index(input)];
      infos.push_back(value < 0 ? TensorInfo() : types()[value]);
    }
    Options inner = options;
    inner.walked = true;
    inner.donated = {};
    planned->forced = selector_.ForcedInside(PartsOf(node)[0], body.name);
    inner.selection.forced = planned->forced.nodes.empty() ? nullptr : &planned->forced;
    const Enclosing enclosing{*this, *first_nodes_, node, body};
    try {
      planned->plan = MakeIntrusive<Specialization>(planned->view, infos, inner, &enclosing);
    } catch (const Error& error) {
      const bool may_not_fit = exclusive && error.code() != ErrorCode::kNotFound;
      if (may_not_fit && (!inner.selection.forced || !Fits(*planned, infos, inner, enclosing)))
        return;
      RethrowInContext(StrCat("in ", body.name, " of ", def));
    }
    if (planned->plan->may_pend()) {
      if (planned->forced.nodes.empty()) return;
      Throw(ErrorCode::kUnsupported, "the selection has kernels for nodes in ", body.name, " of ",
            def,
            ", which is not planned with the graph: an operator in it completes after it has "
            "returned");
    }
    first_nodes_->bodies().push_back(planned->plan->TakeNodes());
    bodies_.push_back(std::move(planned));
  }

  // True if the body can be planned without forced kernels.
  OPKIT_COLD static bool Fits(const PlannedBody& body, const std::vector<TensorInfo>& infos,
                              Options options, const Enclosing& enclosing) {
    options.selection.forced = nullptr;
    try {
      static_cast<void>(MakeIntrusive<Specialization>(body.view, infos, options, &enclosing));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // Makes the schedule. An edge is early if both operators are on one device and accept work before
  // the work that they depend on is done: the second is issued behind the first.
  void SetSchedule(const Options& settings) {
    const bool in_order = settings.in_order;
    auto supports = [&](int node) {
      return asynchronous_[Index(node)] != 0 && first_nodes_->op(node).SupportsAsyncScheduling();
    };
    for (int node = 0; node < view().num_nodes(); ++node) {
      asynchronous_.push_back(first_nodes_->op(node).HasAsyncPart());
      may_pend_ |= first_nodes_->op(node).HasAsyncPart();
    }
    std::vector<ScheduleEdge> edges;
    for (const auto& edge : view().edges())
      edges.push_back(
          {edge.from, edge.to,
           supports(edge.from) && supports(edge.to) &&
               first_nodes_->op(edge.from).device() == first_nodes_->op(edge.to).device()});
    const auto name = [&](int node) { return ToString(view().graph().node(node)); };
    const FunctionRef<std::string(int)> name_ref = name;
    ScheduleOptions options;
    options.in_order = in_order;
    options.name = &name_ref;
    std::vector<int> order;
    if (settings.memory.reorder_nodes && settings.walked) {
      order = OrderForFootprint(
          view(), [&](int value) { return memory_.IsPlanned(value) ? BytesOf(value) : 0; });
      options.given = &order;
    }
    schedule_.emplace(view().num_nodes(), edges, options);
    if (in_order) {
      follows_.assign(Index(schedule_->size()), 0);
      for (const auto& edge : view().edges()) {
        const int to = schedule_->node_of(edge.to);
        if (schedule_->node_of(edge.from) + 1 == to) follows_[Index(to)] = 1;
      }
    }
  }

  // Chooses streams: a chain of operators on one device runs on one stream; a branch takes the
  // next.
  void AssignStreams() {
    constexpr int kStreams = 4;
    streams_.assign(Index(view().num_nodes()), 0);
    std::vector<char> continued(streams_.size(), 0);
    int next = 0;
    for (int step = 0; step < schedule_->size(); ++step) {
      const int node = schedule_->original_of(step);
      if (!IsAsynchronous(node)) continue;
      int stream = -1;
      const auto& edges = view().edges();
      for (size_t e = view().FirstEdgeTo(node); e < edges.size() && edges[e].to == node; ++e) {
        const auto& edge = edges[e];
        if (!IsAsynchronous(edge.from) || continued[Index(edge.from)] ||
            first_nodes_->op(edge.from).device() != first_nodes_->op(node).device())
          continue;
        continued[Index(edge.from)] = 1;
        stream = streams_[Index(edge.from)];
        break;
      }
      streams_[Index(node)] = stream >= 0 ? stream : next++ % kStreams;
    }
  }

  const GraphView& plan_view_;
  std::vector<TensorInfo> inputs_;
  GraphTypes plan_types_;
  KernelSelector selector_;
  std::vector<NodeChoice> selected_;           // by node of the plan's graph
  std::vector<NodeChoice> choices_;            // by node of view()
  std::unique_ptr<FusedGraph> fused_;          // null if nothing is fused
  std::unique_ptr<ConvertedGraph> converted_;  // null if no converter is needed
  std::optional<Schedule> schedule_;
  std::vector<char> asynchronous_;  // by node
  std::vector<int> streams_;        // by node
  std::vector<char> follows_;  // by step, if in order: the graph has an edge from the step before
  bool may_pend_ = false;
  std::vector<std::unique_ptr<PlannedBody>> bodies_;  // ordered by node
  std::vector<int> outer_;                            // by value; see OuterOf
  std::vector<char> rewritten_;                       // by value
  PlannedMemory memory_;
  mutable Mutex mode_mutex_;
  std::string mode_ = "no executor has been made yet";
  std::unique_ptr<BoundNodes> first_nodes_;
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/specialization.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

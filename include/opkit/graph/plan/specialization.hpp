// Specialization: everything about a graph that its inputs' types and shapes decide: the kernels,
// the schedule, where in memory each value lies. Made once for each set of shapes, shared by the
// executors of a plan.
#ifndef OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_
#define OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/memory/node_order.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/node_bodies.hpp"
#include "opkit/graph/plan/bound_nodes.hpp"
#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/graph/plan/fused_graph.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The memory of one device, as the planner and the verifier see it: its steps and values are those
// that Specialization numbers, with the steps and values of bodies among them.
struct ArenaPlan {
  Device device;
  std::vector<RunValue> values;
  std::vector<InPlaceOption> inplace;
  MemoryLifetimes lifetimes;
  MemoryPlan plan;
  // The memory of an input that the caller has donated: an offset from `begin` on, which lies
  // behind the arena, is one into that input's tensor.
  struct Donated {
    int input;  // a value of the view
    int64_t begin, end;
  };
  std::vector<Donated> donated;

  // The offset of a value; -1 where it is not in this arena.
  int64_t OffsetOf(size_t value) const {
    const int buffer = lifetimes.buffer_of[value];
    if (buffer < 0) return -1;
    return plan.offsets[Index(buffer)] + lifetimes.offset_in_buffer[value];
  }
};

// The edges that leave a step, as the schedule encodes them.
inline std::span<const int> EntriesOf(const Schedule& schedule, int step) {
  const int* const entries = schedule.entries().data();
  const std::vector<int>& begin = schedule.entry_begin();
  return {entries + begin[Index(step)], entries + begin[Index(step) + 1]};
}

class Specialization;

// A body that is planned with the graph around it.
struct PlannedBody {
  PlannedBody(int carrier, int number_of_body, const NodeBody& body)
      : node(carrier), number(number_of_body), name(body.name), view(*body.graph) {}

  const int node;    // that carries it
  const int number;  // among the node's bodies
  const std::string name;
  const GraphView view;
  Selection forced;  // what the selection of the graph around says of the body's nodes
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

  // The node that carries a body, in the graph around it, and that graph's operators.
  struct Around {
    const Specialization& plan;
    const BoundNodes& nodes;
    int node;
    const NodeBody& body;
  };

  // Of a body, with `around`: it has no arenas, since those of the graph around hold its values.
  Specialization(const GraphView& view, std::vector<TensorInfo> input_infos, const Options& options,
                 const Around* around = nullptr)
      : plan_view_(view),
        inputs_(std::move(input_infos)),
        plan_types_(Infer(view, inputs_)),
        selector_(plan_view_, plan_types_, options.selection) {
    SelectKernels(options, around);
    PlanBodies(options);
    SetSchedule(options);
    AssignStreams();
    if (!around) PlanArenas(options);
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  // Of the graph that runs, with the nodes that kernels compute together as one, and with the
  // converters between layouts. Its nodes are those of PartsOf; its values have those of ValueOf.
  const GraphView& view() const { return converted_ ? converted_->view() : fused_view(); }
  const GraphTypes& types() const { return converted_ ? converted_->types() : fused_types(); }
  // -1 for a value between two nodes that one kernel computes.
  int ValueOf(int plan_value) const {
    const int value = fused_ ? fused_->ValueOf(plan_value) : plan_value;
    return converted_ && value >= 0 ? converted_->ValueOf(value) : value;
  }
  // The nodes of the plan's graph that a node of view() stands for, in the order in which they run;
  // empty for a converter.
  std::vector<int> PartsOf(int node) const {
    if (node >= fused_view().num_nodes()) return {};
    if (!fused_) return {node};
    return {fused_->PartsOf(node).begin(), fused_->PartsOf(node).end()};
  }
  // Of the values of the plan's graph, with the layouts that their nodes make them in.
  const GraphTypes& plan_types() const { return plan_types_; }
  const GraphView& plan_view() const { return plan_view_; }
  const KernelSelector& selector() const { return selector_; }
  // The node of view() that computes a node of the plan's graph.
  int NodeOf(int plan_node) const { return fused_ ? fused_->NodeOf(plan_node) : plan_node; }
  // By node of view(), and what was selected for a node of the plan's graph.
  const NodeChoice& choice(int node) const { return choices_[Index(node)]; }
  const NodeChoice& plan_choice(int node) const { return selected_[Index(node)]; }
  const Schedule& schedule() const { return *schedule_; }
  const RunOrder& run_order() const { return run_order_; }
  // Whether an entry of the schedule only fixes the order in which steps are called and waits for
  // no work: the graph has no such edge.
  bool IsOrderAlone(int step, int entry) const {
    return !follows_.empty() && Schedule::TargetOf(entry) == step + 1 &&
           follows_[Index(step) + 1] == 0;
  }
  const std::vector<ArenaPlan>& arenas() const { return arenas_; }
  // Whether an output of the graph lies in a donated input.
  bool IsDonated(int output) const { return std::ranges::count(donated_outputs_, output) > 0; }
  const MemorySummary& memory() const { return memory_; }
  // How nodes are run, and why, in the words of the executor that measured last. Thread-safe.
  std::string mode() const {
    MutexLock lock(mode_mutex_);
    return mode_;
  }
  void SetMode(std::string mode) {
    MutexLock lock(mode_mutex_);
    mode_ = std::move(mode);
  }
  // Bytes of a value of view() whose shape is known.
  int64_t BytesOf(int value) const {
    const TensorInfo& info = types()[value];
    return LayoutBytes(info.layout, info.shape.ToShape(), info.dtype);
  }
  // Whether some operator completes after it has returned.
  bool may_pend() const { return may_pend_; }
  bool IsAsynchronous(int node) const { return asynchronous_[Index(node)] != 0; }
  int stream(int node) const { return streams_[Index(node)]; }
  // Names the value or scratch that takes most of an arena, for an Error about the whole of it.
  OPKIT_COLD std::string LargestIn(const ArenaPlan& arena) const {
    size_t largest = 0;
    const auto bytes = [&](size_t value) {
      return arena.values[value].external ? -1 : arena.values[value].bytes;
    };
    for (size_t value = 1; value < arena.values.size(); ++value)
      if (bytes(value) > bytes(largest)) largest = value;
    const std::string begin = "in the memory of " + ToString(arena.device) + " between nodes, ";
    if (largest >= first_body_value())
      return StrCat(begin, "most of it the ", bytes(largest), " bytes of ",
                    DescribeMemory(largest));
    const int value = static_cast<int>(largest);
    if (largest >= memory_scratch_)
      return StrCat(begin, "most of it the ", bytes(largest), " bytes of scratch of node ",
                    NameOfStep(static_cast<int>(largest - memory_scratch_)));
    return StrCat(begin, "most of it '", view().name(value), "', which is ",
                  ToString(types()[value]), " and made by node ",
                  ToString(view().graph().node(view().producer(value))));
  }

  // The bodies that are planned with this graph, in the order of the nodes that carry them.
  const std::vector<std::unique_ptr<PlannedBody>>& bodies() const { return bodies_; }
  std::span<const std::unique_ptr<PlannedBody>> BodiesOf(int node) const {
    const auto [first, end] = std::ranges::equal_range(
        bodies_, node, {}, [](const std::unique_ptr<PlannedBody>& body) { return body->node; });
    return {first, end};
  }
  // Of a body: the value of the graph around that this one is; -1 where it is the body's own.
  int OuterOf(int value) const { return outer_[Index(value)]; }
  // Whether a node of this graph or of one around it rewrites the value.
  bool IsRewritten(int value) const { return rewritten_[Index(value)] != 0; }

  // The numbers of values and steps in ArenaPlan and run_order(): first the values of view() and
  // the scratch of each step, then those of each body. A step that runs bodies is one step for its
  // beginning, those of the bodies, and one for its end.
  size_t MemoryValue(int value) const { return memory_values_[Index(value)]; }
  size_t MemoryScratch(int step) const { return memory_scratch_ + Index(step); }
  // The step of schedule() that a step of the memory plan belongs to.
  int StepOf(int64_t memory_step) const {
    const auto next = std::ranges::upper_bound(begin_, memory_step);
    return static_cast<int>(next - begin_.begin()) - 1;
  }
  bool IsScratchOfStep(size_t number) const {
    return number >= memory_scratch_ && number < memory_scratch_ + Index(schedule_->size());
  }
  // "sum", "scratch of step 3", "branch/sum".
  OPKIT_COLD std::string MemoryName(size_t number) const {
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      if (body->plan->HasMemoryValue(number))
        return StrCat(SelectionName(view().graph().node(body->node)), "/",
                      body->plan->MemoryName(number));
    for (int value = 0; value < view().num_values(); ++value)
      if (MemoryValue(value) == number) return view().name(value);
    return StrCat("scratch of step ", number - memory_scratch_);
  }

  // The constants that are read converted alone, by name, and the end of their originals here.
  std::vector<std::string> UnreadConstants() const {
    return converted_ ? converted_->UnreadConstants(fused_view()) : std::vector<std::string>();
  }
  void ReleaseConstant(const std::string& name) {
    plan_types_[plan_view_.FindValue(name)].constant = nullptr;
    if (fused_) fused_->ReleaseConstant(name);
    converted_->ReleaseConstant(name);
  }

  // Operators for one executor; the first call returns those that selection made. Not synchronised.
  std::unique_ptr<BoundNodes> TakeNodes() {
    if (spare_) return std::move(spare_);
    return MakeNodes(nullptr);
  }

 private:
  static GraphTypes Infer(const GraphView& view, const std::vector<TensorInfo>& inputs) {
    std::vector<GraphInput> known;
    for (size_t i = 0; i < inputs.size(); ++i)
      known.push_back({view.graph().inputs()[i].name, inputs[i]});
    return InferGraph(view, known);
  }

  // The graph between fusion and the insertion of converters.
  const GraphView& fused_view() const { return fused_ ? fused_->view() : plan_view_; }
  const GraphTypes& fused_types() const { return fused_ ? fused_->types() : plan_types_; }

  // Selection, then what kernels fuse, then the converters that they ask for, then the operators;
  // once more where a constructor refuses its node and the next kernel wants other layouts.
  void SelectKernels(const Options& options, const Around* around) {
    struct OtherLayouts {};
    const auto refused = [&](int node, const std::string& why) {
      const std::vector<int> parts = PartsOf(node);
      if (parts.size() != 1) throw UnsupportedOperatorFeature(why);
      NodeChoice& choice = selected_[Index(parts[0])];
      if (!selector_.SelectAfterRefusal(parts[0], why, choice)) throw OtherLayouts();
      choices_[Index(node)] = choice;
    };
    while (!spare_) {
      selector_.SelectAll(selected_);
      converted_.reset();
      fused_ = FusedGraph::Make(plan_view_, plan_types_, selected_, options.selection.forced);
      choices_ = fused_ ? fused_->choices() : selected_;
      for (int node = 0; node < plan_view_.num_nodes(); ++node)
        if (const int first = PartsOf(NodeOf(node)).front(); first != node)
          selected_[Index(node)].computed_by = first;
      if (ConvertedGraph::IsNeeded(fused_view(), fused_types(), choices_))
        converted_ = std::make_unique<ConvertedGraph>(fused_view(), fused_types(), choices_,
                                                      *options.converted_constants);
      FindOuter(around);
      try {
        spare_ = std::make_unique<BoundNodes>(
            view(), types(), choices_, OuterBlobs(around ? &around->nodes : nullptr), refused);
      } catch (const OtherLayouts&) {
      }
    }
  }
  // Finds the values that the graph around hands in, and those that it is to get from a node of
  // this one.
  void FindOuter(const Around* around) {
    outer_.assign(Index(view().num_values()), -1);
    rewritten_.assign(outer_.size(), 0);
    if (around) {
      const GraphView& outside = around->plan.view();
      const auto bind = [&](int plan_value, std::span<const int> values, size_t at) {
        if (at < values.size()) outer_[Index(ValueOf(plan_value))] = values[at];
      };
      for (size_t i = 0; i < inputs_.size(); ++i)  // inputs are the first values
        bind(static_cast<int>(i), outside.inputs(around->node), Index(around->body.inputs[i]));
      for (size_t o = 0; o < plan_view_.outputs().size(); ++o)
        if (const int value = plan_view_.outputs()[o]; plan_view_.producer(value) >= 0)
          bind(value, outside.outputs(around->node), o);
    }
    for (int value = 0; value < view().num_values(); ++value)
      rewritten_[Index(value)] = view().IsRewritten(value) ||
                                 (OuterOf(value) >= 0 && around->plan.IsRewritten(OuterOf(value)));
  }
  // The blobs of the graph around, by value; empty where there is none.
  std::vector<Blob*> OuterBlobs(const BoundNodes* around) const {
    std::vector<Blob*> blobs;
    for (int value = 0; around && value < view().num_values(); ++value)
      blobs.push_back(OuterOf(value) < 0 ? nullptr : &around->blob(OuterOf(value)));
    return blobs;
  }
  std::unique_ptr<BoundNodes> MakeNodes(const BoundNodes* around) const {
    auto nodes = std::make_unique<BoundNodes>(view(), types(), choices_, OuterBlobs(around));
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      nodes->bodies().push_back(body->plan->MakeNodes(nodes.get()));
    return nodes;
  }

  void PlanBodies(const Options& options) {
    for (int node = 0; node < view().num_nodes(); ++node)
      if (const auto* runs = dynamic_cast<const RunsBodies*>(&spare_->op(node))) {
        const bool exclusive = runs->bodies().size() > 1;
        for (size_t i = 0; i < runs->bodies().size(); ++i)
          PlanBody(node, static_cast<int>(i), runs->bodies()[i], exclusive, options);
      }
  }
  // A body with an operator that completes after it has returned is left to its node. So is one of
  // several that does not fit the shapes: it is not the one that is taken.
  void PlanBody(int node, int number, const NodeBody& body, bool exclusive,
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
    planned->forced = SelectionInside(options.selection.forced, def, body.name);
    inner.selection.forced = planned->forced.nodes.empty() ? nullptr : &planned->forced;
    try {
      const Around around{*this, *spare_, node, body};
      planned->plan =
          MakeIntrusive<Specialization>(planned->view, std::move(infos), inner, &around);
    } catch (const Error& error) {
      if (exclusive && error.code() != ErrorCode::kNotFound) return;
      RethrowInContext(StrCat("in ", body.name, " of ", def));
    }
    if (planned->plan->may_pend()) return;
    spare_->bodies().push_back(planned->plan->TakeNodes());
    bodies_.push_back(std::move(planned));
  }

  // An edge is early between two operators of one device that both take work before the work they
  // depend on is done: the second is issued behind the first.
  void SetSchedule(const Options& settings) {
    const bool in_order = settings.in_order;
    auto supports = [&](int node) {
      return asynchronous_[Index(node)] != 0 && spare_->op(node).SupportsAsyncScheduling();
    };
    for (int node = 0; node < view().num_nodes(); ++node) {
      asynchronous_.push_back(spare_->op(node).HasAsyncPart());
      may_pend_ |= spare_->op(node).HasAsyncPart();
    }
    std::vector<ScheduleEdge> edges;
    for (const auto& edge : view().edges())
      edges.push_back({edge.from, edge.to,
                       supports(edge.from) && supports(edge.to) &&
                           spare_->op(edge.from).device() == spare_->op(edge.to).device()});
    const auto name = [&](int node) { return ToString(view().graph().node(node)); };
    const FunctionRef<std::string(int)> name_ref = name;
    ScheduleOptions options;
    options.in_order = in_order;
    options.name = &name_ref;
    std::vector<int> order;
    if (settings.memory.reorder_nodes && settings.walked) {
      order = OrderForFootprint(view(),
                                [&](int value) { return IsPlanned(value) ? BytesOf(value) : 0; });
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

  // A chain of operators of one device runs on one stream; a branch takes the next one.
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
            spare_->op(edge.from).device() != spare_->op(node).device())
          continue;
        continued[Index(edge.from)] = 1;
        stream = streams_[Index(edge.from)];
        break;
      }
      streams_[Index(node)] = stream >= 0 ? stream : next++ % kStreams;
    }
  }

  // The number of steps is known with the last of them.
  int NumberSteps(int next) {
    for (int step = 0; step < schedule_->size(); ++step) {
      begin_.push_back(next++);
      const auto bodies = BodiesOf(schedule_->original_of(step));
      for (const std::unique_ptr<PlannedBody>& body : bodies) next = body->plan->NumberSteps(next);
      end_.push_back(bodies.empty() ? begin_.back() : next++);
    }
    return next;
  }
  size_t NumberValues(size_t next, const Specialization* around) {
    first_memory_value_ = next;
    for (int value = 0; value < view().num_values(); ++value)
      memory_values_.push_back(OuterOf(value) < 0 ? next++ : around->MemoryValue(OuterOf(value)));
    memory_scratch_ = next;
    next += Index(schedule_->size());
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      next = body->plan->NumberValues(next, this);
    return end_memory_value_ = next;
  }
  bool HasMemoryValue(size_t number) const {
    return first_memory_value_ <= number && number < end_memory_value_;
  }
  // Adds the order of the steps inside `step`: those of its bodies one after the other, and so the
  // bodies.
  void OrderBodies(int step, RunOrder& order) const {
    int last = begin_[Index(step)];
    const auto follow = [&](int next) {
      order.before.push_back(last);
      order.after.push_back(next);
    };
    const auto bodies = BodiesOf(schedule_->original_of(step));
    for (const std::unique_ptr<PlannedBody>& body : bodies)
      for (int inner = 0; inner < body->plan->schedule().size(); ++inner) {
        follow(body->plan->begin_[Index(inner)]);
        body->plan->OrderBodies(inner, order);
        last = body->plan->end_[Index(inner)];
      }
    if (!bodies.empty()) follow(end_[Index(step)]);
  }
  void OrderSteps(const Options& options) {
    run_order_.nodes = NumberSteps(0);
    for (int step = 0; step < schedule_->size(); ++step) {
      OrderBodies(step, run_order_);
      for (int entry : EntriesOf(*schedule_, step)) {
        if (IsOrderAlone(step, entry)) continue;
        run_order_.before.push_back(end_[Index(step)]);
        run_order_.after.push_back(begin_[Index(Schedule::TargetOf(entry))]);
      }
    }
    if (options.walked && !may_pend_)
      for (int step = 0; step < run_order_.nodes; ++step) run_order_.stages.push_back(step);
  }
  void AddArenas(std::vector<ArenaPlan>& arenas) const {
    const auto add = [&](Device device) {
      for (const ArenaPlan& arena : arenas)
        if (arena.device == device) return;
      arenas.emplace_back().device = device;
    };
    for (int value = 0; value < view().num_values(); ++value)
      if (OuterOf(value) < 0 && IsPlanned(value)) add(MemoryDevice(types()[value].device));
    for (const int value : donated_) add(MemoryDevice(types()[value].device));
    for (int node = 0; node < view().num_nodes(); ++node)
      if (Scratch(node) > 0) add(MemoryDevice(view().graph().node(node).device()));
    for (const std::unique_ptr<PlannedBody>& body : bodies_) body->plan->AddArenas(arenas);
  }
  void PlanArenas(const Options& options) {
    OrderSteps(options);
    for (const int input : options.donated) donated_.push_back(ValueOf(input));
    const size_t values = NumberValues(0, nullptr);
    AddArenas(arenas_);
    for (ArenaPlan& arena : arenas_) {
      if (!donated_.empty()) FindDonatedOutputs(arena, values);
      FindLifetimesOf(arena, values, memory_.planned_values);
      // What lies in a donated input takes nothing of the arena.
      std::vector<MemoryInterval> buffers = arena.lifetimes.buffers;
      for (const int input : donated_)
        if (const int buffer = BufferOf(arena, input); buffer >= 0) buffers[Index(buffer)].size = 0;
      const auto plan = [&] {
        return PlanMemory(buffers, arena.lifetimes.conflicts, options.memory);
      };
      arena.plan = InContext(plan, [&] { return LargestIn(arena); });
      PlaceDonated(arena);
      CheckCapacity(arena, options.memory.capacity_bytes);
      // The most values that are verified without being asked: the time grows with their square.
      [[maybe_unused]] constexpr size_t kCheaplyVerified = 4096;
      if (options.verify_memory) Verify(arena);
      OPKIT_ASSERT(options.verify_memory || arena.values.size() > kCheaplyVerified ||
                   Verify(arena));
      memory_.arena_bytes += arena.plan.arena_bytes;
      memory_.lower_bound_bytes += arena.plan.lower_bound_bytes;
      memory_.seconds += arena.plan.seconds;
      for (const RunValue& value : arena.values)
        if (!value.external) AddNaive(value);
      for (uint8_t granted : arena.lifetimes.granted) memory_.inplace_values += granted;
    }
  }
  void FindLifetimesOf(ArenaPlan& arena, size_t values, int& planned_values) const {
    arena.values.assign(values, {});
    arena.inplace.clear();
    for (RunValue& value : arena.values) value.external = true;
    Describe(arena, -1, planned_values);
    AllowInPlace(arena);
    arena.lifetimes = FindLifetimes(run_order_, arena.values, arena.inplace);
  }
  int BufferOf(const ArenaPlan& arena, int value) const {
    return arena.lifetimes.buffer_of[MemoryValue(value)];
  }
  // An output lies outside the arena, unless that is in the memory of a donated input.
  void FindDonatedOutputs(ArenaPlan& arena, size_t values) {
    const auto is_known = [&](int value) {
      return view().producer(value) >= 0 && types()[value].shape.is_known() &&
             types()[value].dtype != DType::kUndefined;
    };
    const std::vector<int> before = donated_outputs_;  // on other devices
    for (const int output : view().outputs())
      if (is_known(output)) donated_outputs_.push_back(output);
    int count = 0;
    FindLifetimesOf(arena, values, count);
    std::vector<int> found = before;
    for (const int output : donated_outputs_)
      for (const int input : donated_)
        if (BufferOf(arena, output) >= 0 && BufferOf(arena, output) == BufferOf(arena, input))
          found.push_back(output);
    donated_outputs_ = std::move(found);
  }
  void PlaceDonated(ArenaPlan& arena) const {
    int64_t next = arena.plan.arena_bytes;
    for (const int input : donated_) {
      const int buffer = BufferOf(arena, input);
      if (buffer < 0) continue;
      const int64_t bytes = arena.lifetimes.buffers[Index(buffer)].size;
      arena.plan.offsets[Index(buffer)] = next;
      arena.donated.push_back({input, next, next + bytes});
      next += (bytes + 63) / 64 * 64;
    }
  }
  OPKIT_COLD void CheckCapacity(const ArenaPlan& arena, int64_t capacity) const {
    if (capacity < 0)
      Throw(ErrorCode::kInvalidArgument, "MemoryPlanOptions::capacity_bytes is ", capacity);
    if (capacity == 0 || arena.plan.arena_bytes <= capacity) return;
    const std::vector<MemoryInterval>& buffers = arena.lifetimes.buffers;
    // The step at which the most bytes are live.
    std::vector<int64_t> change(Index(run_order_.nodes) + 2, 0);
    const auto at = [&](int64_t step) {
      return Index((std::clamp)(step + 1, int64_t{0}, int64_t{run_order_.nodes} + 1));
    };
    for (const MemoryInterval& buffer : buffers) {
      change[at(buffer.lower)] += buffer.size;
      if (at(buffer.upper) < change.size()) change[at(buffer.upper)] -= buffer.size;
    }
    int64_t live = 0, most = -1, peak = 0;
    for (size_t step = 0; step < change.size(); ++step)
      if ((live += change[step]) > most) most = live, peak = static_cast<int64_t>(step) - 1;
    std::vector<size_t> values;
    for (size_t value = 0; value < arena.values.size(); ++value) {
      const int buffer = arena.lifetimes.buffer_of[value];
      if (buffer >= 0 && buffers[Index(buffer)].lower <= peak &&
          peak < buffers[Index(buffer)].upper)
        values.push_back(value);
    }
    std::ranges::sort(values, std::ranges::greater(),
                      [&](size_t value) { return arena.values[value].bytes; });
    constexpr size_t kShown = 5;
    std::string list;
    for (const size_t value : std::span(values).first((std::min)(kShown, values.size())))
      list += StrCat("\n  ", arena.values[value].bytes, " bytes: ", DescribeMemory(value));
    if (values.size() > kShown) list += StrCat("\n  and ", values.size() - kShown, " more");
    Throw(ErrorCode::kOutOfMemory, "the memory between nodes on ", ToString(arena.device),
          " takes ", arena.plan.arena_bytes, " bytes (no plan less than ",
          arena.plan.lower_bound_bytes,
          StrCat("), more than the capacity of ", capacity, "; live together:"), list);
  }
  // Adds the bytes that a value takes in a buffer of its own. Saturates: values that share bytes
  // may add up to more than the buffers that were planned.
  void AddNaive(const RunValue& value) {
    const int64_t rest = (value.alignment - value.bytes % value.alignment) % value.alignment;
    int64_t& sum = memory_.naive_bytes;
    if (__builtin_add_overflow(sum, value.bytes, &sum) || __builtin_add_overflow(sum, rest, &sum))
      sum = (std::numeric_limits<int64_t>::max)();
  }
  bool Verify(const ArenaPlan& arena) const {
    std::vector<int64_t> addresses;
    std::vector<std::string> names;
    for (size_t value = 0; value < arena.values.size(); ++value)
      addresses.push_back(arena.OffsetOf(value));
    for (size_t value = 0; value < first_body_value(); ++value)
      names.push_back(value < memory_scratch_ ? view().name(static_cast<int>(value))
                                              : std::string());
    for (size_t value = first_body_value(); value < arena.values.size(); ++value)
      names.push_back(MemoryName(value));
    const int64_t end = arena.donated.empty() ? arena.plan.arena_bytes : arena.donated.back().end;
    VerifyMemoryPlan(run_order_, arena.values, arena.inplace, addresses, end, names);
    return true;
  }
  // The first number of a body's value; of the graph that has the arenas.
  size_t first_body_value() const { return MemoryScratch(schedule_->size()); }
  int64_t Scratch(int node) const { return choice(node).config.scratch_bytes; }
  // Whether the value lies in an arena: a node makes it, its size is known, and runs do not return
  // it.
  bool IsPlanned(int value) const {
    const TensorInfo& info = types()[value];
    if (std::ranges::count(donated_, value)) return true;
    return view().producer(value) >= 0 &&
           (!view().IsOutput(value) || std::ranges::count(donated_outputs_, value)) &&
           info.shape.is_known() && info.dtype != DType::kUndefined;
  }
  // "'sum' float32[2]", "scratch of Conv 'c1' (X, W) -> (P)".
  OPKIT_COLD std::string DescribeMemory(size_t number) const {
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      if (body->plan->HasMemoryValue(number))
        return StrCat(body->plan->DescribeMemory(number), " in ", body->name, " of ",
                      view().graph().node(body->node));
    if (number >= memory_scratch_)
      return "scratch of " + NameOfStep(static_cast<int>(number - memory_scratch_));
    for (int value = 0; value < view().num_values(); ++value)
      if (OuterOf(value) < 0 && MemoryValue(value) == number)
        return StrCat("'", view().name(value), "' ", ToString(types()[value]));
    return {};
  }
  std::string NameOfStep(int step) const {
    return ToString(view().graph().node(schedule_->original_of(step)));
  }

  // Fills in the values of an arena. A value that a body hands out is made by the body's step, and
  // one that it takes in is read by the body's steps alone; where a run takes one body of several,
  // such values are made when the node begins and read until it ends. `carrier_end` is the end of
  // the step that runs this body; -1: no body.
  void Describe(ArenaPlan& arena, int carrier_end, int& planned_values) const {
    const auto is_exclusive = [&](int node) { return BodyCount(node) > 1; };
    const auto step_of = [&](int node) { return Index(schedule_->node_of(node)); };
    for (int value = 0; value < view().num_values(); ++value) {
      RunValue& planned = arena.values[MemoryValue(value)];
      const bool is_own = OuterOf(value) < 0;
      if (is_own && IsPlanned(value) && MemoryDevice(types()[value].device) == arena.device) {
        planned.external = false;
        planned.bytes = BytesOf(value);
        planned.kept = view().IsOutput(value);
        ++planned_values;
      }
      if (planned.external) continue;
      if (const int node = view().producer(value);
          node >= 0 && (is_own || planned.producer == carrier_end))
        planned.producer = is_exclusive(node) ? begin_[step_of(node)] : end_[step_of(node)];
      for (const int node : view().consumers(value))
        if (BodiesOf(node).empty() || is_exclusive(node) || HandsOn(node, value))
          planned.users.push_back(end_[step_of(node)]);
    }
    for (int step = 0; step < schedule_->size(); ++step) {
      const int node = schedule_->original_of(step);
      if (Scratch(node) == 0 || MemoryDevice(view().graph().node(node).device()) != arena.device)
        continue;
      RunValue& scratch = arena.values[MemoryScratch(step)];
      scratch.external = false;
      scratch.bytes = Scratch(node);
      scratch.producer = begin_[Index(step)];
    }
    for (const std::unique_ptr<PlannedBody>& body : bodies_)
      body->plan->Describe(arena, end_[step_of(body->node)], planned_values);
  }
  // How many bodies a node has, those that are left to it included.
  size_t BodyCount(int node) const {
    return BodiesOf(node).empty() ? 0 : view().graph().node(node).subgraphs().size();
  }
  // Whether the one body of a node hands the value out as it came in.
  bool HandsOn(int node, int value) const {
    const Specialization& body = *BodiesOf(node)[0]->plan;
    for (size_t i = 0; i < body.inputs_.size(); ++i) {  // inputs are the first values
      const int inner = body.ValueOf(static_cast<int>(i));
      if (body.OuterOf(inner) == value && body.view().IsOutput(inner)) return true;
    }
    return false;
  }
  // Lists the values of an arena that may share bytes.
  void AllowInPlace(ArenaPlan& arena) const {
    for (int node = 0; node < view().num_nodes(); ++node)
      for (const auto& [input, output] : choice(node).config.inplace)
        AllowInPlace(arena, node, input, output);
    for (const std::unique_ptr<PlannedBody>& body : bodies_) body->plan->AllowInPlace(arena);
  }
  void AllowInPlace(ArenaPlan& arena, int node, int input, int output) const {
    const int from = view().inputs(node)[Index(input)];
    const int to = view().outputs(node)[Index(output)];
    if (from < 0 || to < 0 || from == to || view().producer(to) != node) return;
    const int step = end_[Index(schedule_->node_of(node))];
    const RunValue& read = arena.values[MemoryValue(from)];
    const RunValue& written = arena.values[MemoryValue(to)];
    if (read.external || written.external || written.producer != step) return;
    for (size_t i = 0; i < view().inputs(node).size(); ++i)  // also read where it may not be shared
      if (view().inputs(node)[i] == from && !MayShare(node, static_cast<int>(i), output)) return;
    arena.inplace.push_back(
        {step, static_cast<int>(MemoryValue(from)), static_cast<int>(MemoryValue(to))});
  }

  bool MayShare(int node, int input, int output) const {
    const auto& pairs = choice(node).config.inplace;
    return std::find(pairs.begin(), pairs.end(), std::pair(input, output)) != pairs.end();
  }

  const GraphView& plan_view_;
  std::vector<TensorInfo> inputs_;
  GraphTypes plan_types_;
  KernelSelector selector_;
  std::vector<NodeChoice> selected_;           // by node of the plan's graph
  std::vector<NodeChoice> choices_;            // by node of view()
  std::unique_ptr<FusedGraph> fused_;          // null where nothing is fused
  std::unique_ptr<ConvertedGraph> converted_;  // null where no layouts differ
  std::optional<Schedule> schedule_;
  std::vector<char> asynchronous_;  // by node
  std::vector<int> streams_;        // by node
  std::vector<char> follows_;       // by step, in order: the graph has an edge from the step before
  bool may_pend_ = false;
  std::vector<std::unique_ptr<PlannedBody>> bodies_;      // by node
  std::vector<int> outer_;                                // by value; see OuterOf
  std::vector<char> rewritten_;                           // by value
  std::vector<int> donated_;                              // inputs whose memory is the plan's
  std::vector<int> donated_outputs_;                      // that lie in it
  std::vector<size_t> memory_values_;                     // by value
                                                          // by value
  size_t memory_scratch_ = 0;                             // of the first step
  size_t first_memory_value_ = 0, end_memory_value_ = 0;  // its own numbers, and its bodies'
  std::vector<int> begin_, end_;                          // by step: in the memory plan
  RunOrder run_order_;
  std::vector<ArenaPlan> arenas_;
  MemorySummary memory_;
  mutable Mutex mode_mutex_;
  std::string mode_ = "no executor has been made yet";
  std::unique_ptr<BoundNodes> spare_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_SPECIALIZATION_HPP_

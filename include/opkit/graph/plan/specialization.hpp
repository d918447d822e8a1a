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
#include "opkit/graph/plan/bound_nodes.hpp"
#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The memory of one device, as the planner and the verifier see it: steps are numbers of the
// schedule, values are those of the view and then the scratch of each step.
struct ArenaPlan {
  Device device;
  std::vector<RunValue> values;
  std::vector<InPlaceOption> inplace;
  MemoryLifetimes lifetimes;
  MemoryPlan plan;

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

class Specialization final : public RefCounted {
 public:
  struct Options {
    bool walked = false;  // steps run one after the other, in their order
    bool in_order = false;
    MemoryPlanOptions memory;
    bool verify_memory = false;
    ConvertedConstants* converted_constants = nullptr;  // of the plan
    KernelSelector::Options selection = {};
  };

  Specialization(const GraphView& view, std::vector<TensorInfo> input_infos, const Options& options)
      : plan_view_(view),
        inputs_(std::move(input_infos)),
        plan_types_(Infer(view, inputs_)),
        selector_(plan_view_, plan_types_, options.selection) {
    SelectKernels(*options.converted_constants);
    SetSchedule(options);
    AssignStreams();
    PlanArenas(options);
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  // Of the graph that runs, with the converters between layouts. The nodes of the plan's graph keep
  // their numbers there; its values have those of ValueOf.
  const GraphView& view() const { return converted_ ? converted_->view() : plan_view_; }
  const GraphTypes& types() const { return converted_ ? converted_->types() : plan_types_; }
  int ValueOf(int plan_value) const {
    return converted_ ? converted_->ValueOf(plan_value) : plan_value;
  }
  // Of the values of the plan's graph, with the layouts that their nodes make them in.
  const GraphTypes& plan_types() const { return plan_types_; }
  const GraphView& plan_view() const { return plan_view_; }
  const KernelSelector& selector() const { return selector_; }
  const NodeChoice& choice(int node) const { return choices_[Index(node)]; }
  const Schedule& schedule() const { return *schedule_; }
  const RunOrder& run_order() const { return run_order_; }
  // Whether an entry of the schedule only fixes the order in which steps are called and waits for
  // no work: the graph has no such edge.
  bool IsOrderAlone(int step, int entry) const {
    return !follows_.empty() && Schedule::TargetOf(entry) == step + 1 &&
           follows_[Index(step) + 1] == 0;
  }
  const std::vector<ArenaPlan>& arenas() const { return arenas_; }
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
    const int value = static_cast<int>(largest);
    if (value >= view().num_values())
      return StrCat(begin, "most of it the ", bytes(largest), " bytes of scratch of node ",
                    NameOfStep(value - view().num_values()));
    return StrCat(begin, "most of it '", view().name(value), "', which is ",
                  ToString(types()[value]), " and made by node ",
                  ToString(view().graph().node(view().producer(value))));
  }

  // Operators for one executor; the first call returns those that selection made. Not synchronised.
  std::unique_ptr<BoundNodes> TakeNodes() {
    if (spare_) return std::move(spare_);
    return std::make_unique<BoundNodes>(view(), types(), choices_);
  }

 private:
  static GraphTypes Infer(const GraphView& view, const std::vector<TensorInfo>& inputs) {
    std::vector<GraphInput> known;
    for (size_t i = 0; i < inputs.size(); ++i)
      known.push_back({view.graph().inputs()[i].name, inputs[i]});
    return InferGraph(view, known);
  }

  // Selection, then the converters that it asks for, then the operators; once more where a
  // constructor refuses its node and the next kernel wants other layouts.
  void SelectKernels(ConvertedConstants& constants) {
    struct OtherLayouts {};
    const auto refused = [&](int node, const std::string& why) {
      if (node >= plan_view_.num_nodes()) throw UnsupportedOperatorFeature(why);
      if (!selector_.SelectAfterRefusal(node, why, choices_[Index(node)])) throw OtherLayouts();
    };
    while (!spare_) {
      selector_.SelectAll(choices_);
      converted_.reset();
      if (ConvertedGraph::IsNeeded(plan_view_, plan_types_, choices_))
        converted_ = std::make_unique<ConvertedGraph>(plan_view_, plan_types_, choices_, constants);
      try {
        spare_ = std::make_unique<BoundNodes>(view(), types(), choices_, refused);
      } catch (const OtherLayouts&) {
      }
    }
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
    run_order_.nodes = schedule_->size();
    for (int step = 0; step < schedule_->size(); ++step)
      for (int entry : EntriesOf(*schedule_, step)) {
        if (IsOrderAlone(step, entry)) continue;
        run_order_.before.push_back(step);
        run_order_.after.push_back(Schedule::TargetOf(entry));
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

  std::string NameOfStep(int step) const {
    return ToString(view().graph().node(schedule_->original_of(step)));
  }
  void PlanArenas(const Options& options) {
    if (options.walked && !may_pend_)
      for (int step = 0; step < schedule_->size(); ++step) run_order_.stages.push_back(step);
    for (int value = 0; value < view().num_values(); ++value)
      if (IsPlanned(value)) AddArena(MemoryDevice(types()[value].device));
    for (int node = 0; node < view().num_nodes(); ++node)
      if (Scratch(node) > 0) AddArena(MemoryDevice(view().graph().node(node).device()));
    for (ArenaPlan& arena : arenas_) {
      Describe(arena);
      arena.lifetimes = FindLifetimes(run_order_, arena.values, arena.inplace);
      const auto plan = [&] {
        return PlanMemory(arena.lifetimes.buffers, arena.lifetimes.conflicts, options.memory);
      };
      arena.plan = InContext(plan, [&] { return LargestIn(arena); });
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
  OPKIT_COLD void CheckCapacity(const ArenaPlan& arena, int64_t capacity) const {
    if (capacity < 0)
      Throw(ErrorCode::kInvalidArgument, "MemoryPlanOptions::capacity_bytes is ", capacity);
    if (capacity == 0 || arena.plan.arena_bytes <= capacity) return;
    const std::vector<MemoryInterval>& buffers = arena.lifetimes.buffers;
    // The step at which the most bytes are live.
    std::vector<int64_t> change(Index(schedule_->size()) + 2, 0);
    const auto at = [&](int64_t step) {
      return Index((std::clamp)(step + 1, int64_t{0}, int64_t{schedule_->size()} + 1));
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
    for (const size_t value : std::span(values).first((std::min)(kShown, values.size()))) {
      const int number = static_cast<int>(value);
      list += StrCat("\n  ", arena.values[value].bytes, " bytes: ",
                     number < view().num_values()
                         ? StrCat("'", view().name(number), "' ", ToString(types()[number]))
                         : "scratch of " + NameOfStep(number - view().num_values()));
    }
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
    for (int value = 0; value < view().num_values(); ++value) names.push_back(view().name(value));
    VerifyMemoryPlan(run_order_, arena.values, arena.inplace, addresses, arena.plan.arena_bytes,
                     names);
    return true;
  }
  void AddArena(Device device) {
    for (const ArenaPlan& arena : arenas_)
      if (arena.device == device) return;
    arenas_.emplace_back().device = device;
  }
  int64_t Scratch(int node) const { return choice(node).config.scratch_bytes; }
  // Whether the value lies in an arena: a node makes it, its size is known, and runs do not return
  // it.
  bool IsPlanned(int value) const {
    const TensorInfo& info = types()[value];
    return view().producer(value) >= 0 && !view().IsOutput(value) && info.shape.is_known() &&
           info.dtype != DType::kUndefined;
  }
  // Fills in the values of an arena, and which of them may share bytes.
  void Describe(ArenaPlan& arena) {
    arena.values.reserve(Index(view().num_values()) + Index(schedule_->size()));
    for (int value = 0; value < view().num_values(); ++value) {
      RunValue& planned = arena.values.emplace_back();
      planned.external = !IsPlanned(value) || MemoryDevice(types()[value].device) != arena.device;
      if (planned.external) continue;
      ++memory_.planned_values;
      planned.bytes = BytesOf(value);
      planned.producer = schedule_->node_of(view().producer(value));
      for (int node : view().consumers(value)) planned.users.push_back(schedule_->node_of(node));
    }
    for (int step = 0; step < schedule_->size(); ++step) {
      const int node = schedule_->original_of(step);
      RunValue& scratch = arena.values.emplace_back();
      scratch.bytes = Scratch(node);
      scratch.producer = step;
      scratch.external =
          scratch.bytes == 0 || MemoryDevice(view().graph().node(node).device()) != arena.device;
    }
    for (int node = 0; node < view().num_nodes(); ++node)
      for (const auto& [input, output] : choice(node).config.inplace)
        AllowInPlace(arena, node, input, output);
  }
  void AllowInPlace(ArenaPlan& arena, int node, int input, int output) {
    const int from = view().inputs(node)[Index(input)];
    const int to = view().outputs(node)[Index(output)];
    if (from < 0 || to < 0 || from == to || view().producer(to) != node) return;
    if (arena.values[Index(from)].external || arena.values[Index(to)].external) return;
    for (size_t i = 0; i < view().inputs(node).size(); ++i)  // also read where it may not be shared
      if (view().inputs(node)[i] == from && !MayShare(node, static_cast<int>(i), output)) return;
    arena.inplace.push_back({schedule_->node_of(node), from, to});
  }

  bool MayShare(int node, int input, int output) const {
    const auto& pairs = choice(node).config.inplace;
    return std::find(pairs.begin(), pairs.end(), std::pair(input, output)) != pairs.end();
  }

  const GraphView& plan_view_;
  std::vector<TensorInfo> inputs_;
  GraphTypes plan_types_;
  KernelSelector selector_;
  std::vector<NodeChoice> choices_;            // by node of view()
  std::unique_ptr<ConvertedGraph> converted_;  // null where no layouts differ
  std::optional<Schedule> schedule_;
  std::vector<char> asynchronous_;  // by node
  std::vector<int> streams_;        // by node
  std::vector<char> follows_;       // by step, in order: the graph has an edge from the step before
  bool may_pend_ = false;
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

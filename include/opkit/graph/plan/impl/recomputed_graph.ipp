// Definitions of RecomputedGraph and FitByRecomputation: converts a plan's graph to steps that may
// run again, writes the graph of such a run, and plans it until a plan fits.
#ifndef OPKIT_GRAPH_PLAN_IMPL_RECOMPUTED_GRAPH_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_RECOMPUTED_GRAPH_IPP_

#include <algorithm>
#include <limits>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/plan/recomputed_graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_INLINE RecomputedGraph::RecomputedGraph(const Specialization& found, Device memory)
    : found_(found), view_(found.plan_view()) {
  problem_.bytes.assign(Index(view_.num_values()), 0);
  for (int value = 0; value < view_.num_values(); ++value)
    problem_.kept.push_back(view_.IsOutput(value));
  const NameIndex waited_for = ControlNames(view_.graph());
  for (int step = 0; step < found.schedule().size(); ++step)
    AddStep(found.schedule().original_of(step), memory, waited_for);
}

OPKIT_COLD OPKIT_INLINE void RecomputedGraph::AddStep(int node, Device memory,
                                                      const NameIndex& waited_for) {
  const std::vector<int> parts = found_.PartsOf(node);
  if (parts.empty()) return;
  parts_.push_back(parts);
  RecomputeProblem::Step& step = problem_.steps.emplace_back();
  step.cost = 0;
  step.repeatable = found_.BodiesOf(node).empty();
  for (const int part : parts) {
    const OperatorDef& def = view_.graph().node(part);
    step.cost += CostOf(part);
    step.repeatable = step.repeatable && IsRepeatable(view_, part) && def.subgraphs().empty() &&
                      !IsWaitedFor(def, waited_for);
    for (const int value : view_.inputs(part))
      if (value >= 0 && !Contains(step.inputs, value) && !Contains(parts, view_.producer(value)))
        step.inputs.push_back(value);
    for (const int value : view_.outputs(part)) {
      if (value < 0 || view_.producer(value) != part || found_.ValueOf(value) < 0) continue;
      const int made = found_.ValueOf(value);
      step.outputs.push_back(value);
      const TensorInfo& info = found_.types()[made];
      step.repeatable = step.repeatable && info.shape.is_known();
      if (found_.memory().IsPlanned(made) && MemoryDevice(info.device) == memory)
        problem_.bytes[value] = (found_.BytesOf(made) + 63) / 64 * 64;
    }
  }
  const NodeChoice& choice = found_.choice(node);
  if (MemoryDevice(choice.device) == memory) step.scratch_bytes = choice.config.scratch_bytes;
  const auto place_of = [&](const std::vector<int>& values, int made) {
    size_t at = 0;
    while (at < values.size() && found_.ValueOf(values[at]) != made) ++at;
    return at < values.size() ? static_cast<int>(at) : -1;
  };
  for (const auto& [input, output] : choice.config.inplace) {
    const int read = place_of(step.inputs, found_.view().inputs(node)[Index(input)]);
    const int made = place_of(step.outputs, found_.view().outputs(node)[Index(output)]);
    if (read >= 0 && made >= 0) step.in_place.emplace_back(read, made);
  }
}

// Estimates the node's time in ns: a core does 100 operations and moves 10 bytes per ns.
OPKIT_COLD OPKIT_INLINE double RecomputedGraph::CostOf(int node) const {
  const OperatorDef& def = view_.graph().node(node);
  const OpSchema* const schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema) return 0;
  const OpCost cost = schema->Cost(def, found_.plan_types().Of(view_.inputs(node)),
                                   found_.plan_types().Of(view_.outputs(node)));
  return 0.01 * static_cast<double>(cost.flops) +
         0.1 * (static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written));
}

// Writes the nodes of a run in its order. Nodes that run again get new names.
class RecomputedGraph::Writer {
 public:
  Writer(const RecomputedGraph& from, const RecomputedRun& run, bool walked)
      : from_(from), run_(run), walked_(walked), names_(run.steps.size()) {
    const Graph& graph = from.view_.graph();
    for (const OperatorDef& def : graph.nodes())
      if (!def.name().empty()) ++named_[def.name()];
    for (size_t at = 0; at < run.steps.size(); ++at) {
      anchored_.push_back(anchor_);
      for (const int part : from.parts_[run.steps[at].step]) WritePart(at, part);
      if (!run.steps[at].moved) anchor_ = static_cast<int>(nodes_.size()) - 1;
    }
    out_.graph = WithContents(graph, graph.constants(), std::move(nodes_));
  }
  Rewritten Take() { return std::move(out_); }

 private:
  void WritePart(size_t at, int part) {
    const RecomputedRun::Step& step = run_.steps[at];
    const OperatorDef& original = from_.view_.graph().node(part);
    OperatorDef def = original;
    const auto inputs = from_.view_.inputs(part);
    bool waits = step.moved && !walked_ && anchor_ >= 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] < 0) continue;
      const int maker = MakerOf(at, inputs[i]);
      if (maker < 0) continue;
      // An input whose maker already waits for the same node makes this wait unnecessary.
      if (run_.steps[Index(maker)].moved && anchored_[maker] == anchor_) waits = false;
      const std::string& name = NameOf(Index(maker), inputs[i]);
      if (name != def.inputs()[i]) def.mutable_inputs()[i] = name;
    }
    if (waits) def.ControlInput(NameAnchor());
    if (step.again) {
      const auto outputs = from_.view_.outputs(part);
      for (size_t o = 0; o < outputs.size(); ++o) {
        if (outputs[o] < 0) continue;
        names_[at].emplace_back(outputs[o], FreshName(def.outputs()[o]));
        def.mutable_outputs()[o] = names_[at].back().second;
      }
      if (!def.name().empty()) def.Name(FreshNodeName(def.name() + "#again"));
      out_.again.emplace_back(SelectionName(original), SelectionName(def));
    }
    nodes_.push_back(std::move(def));
  }
  // Returns the place in the run of the step that makes the value for the step at place `at`; -1:
  // an input or a constant.
  int MakerOf(size_t at, int value) const {
    const RecomputeProblem::Step& step = from_.problem_.steps[run_.steps[at].step];
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] == value) return run_.steps[at].makers[i];
    return static_cast<int>(at);  // another part of the step
  }
  const std::string& NameOf(size_t at, int value) const {
    for (const auto& [made, name] : names_[at])
      if (made == value) return name;
    return from_.view_.name(value);
  }
  std::string FreshName(const std::string& value) {
    std::string name = value + "#again";
    while (from_.view_.graph().HasValue(name) || values_.Find(name) >= 0) name += "'";
    values_.Add(name);
    return name;
  }
  std::string FreshNodeName(std::string name) {
    while (named_.Find(name)) name += "'";
    ++named_[name];
    return name;
  }
  // Returns the name of the node to wait for. Renames the node if it has no name or shares it.
  const std::string& NameAnchor() {
    OperatorDef& def = nodes_[anchor_];
    if (def.name().empty() || named_[def.name()] > 1)
      def.Name(FreshNodeName(SelectionName(def).empty() ? def.type() : SelectionName(def)));
    return def.name();
  }

  const RecomputedGraph& from_;
  const RecomputedRun& run_;
  const bool walked_;
  Rewritten out_;
  IndexedVector<OperatorDef> nodes_;
  // By place: the values that its step makes again, with their new names.
  std::vector<std::vector<std::pair<int, std::string>>> names_;
  IndexedVector<int> anchored_;  // by place: anchor_ when its step was written
  int anchor_ = -1;              // the last of nodes_ that was not moved; -1: none yet
  NameIndex values_;
  NameTable<int> named_;  // how many nodes have a name
};

OPKIT_COLD OPKIT_INLINE RecomputedGraph::Rewritten RecomputedGraph::Rewrite(
    const RecomputedRun& run, bool walked) const {
  return Writer(*this, run, walked).Take();
}

// Returns the largest arena; null if there is none.
OPKIT_COLD inline const ArenaPlan* LargestArena(const Specialization& found) {
  const ArenaPlan* largest = nullptr;
  for (const ArenaPlan& arena : found.memory().arenas())
    if (!largest || arena.plan.arena_bytes > largest->plan.arena_bytes) largest = &arena;
  return largest;
}

// Returns the selection for a graph in which nodes run again. Such a node has the forced kernel
// that `aside` has for its own name, or its original's.
OPKIT_COLD inline Selection ForcedAgain(
    const Selection& forced, const Selection& aside,
    const std::vector<std::pair<std::string, std::string>>& again) {
  Selection out = forced;
  for (const auto& [original, name] : again) {
    const Selection::Node* found = aside.Find(name);
    if (!found) found = forced.Find(original);
    if (!found) continue;
    out.nodes.push_back(*found);
    out.nodes.back().node = name;
  }
  return out;
}

// True for the name of a node that runs again: a name of the graph followed by
// "#again".
OPKIT_COLD inline bool IsNameOfRepeat(const Graph& graph, const std::string& name) {
  const size_t at = name.rfind("#again");
  return at != name.npos && name.find('/', at) == name.npos && !graph.HasValue(name) &&
         graph.HasValue(name.substr(0, at));
}

OPKIT_COLD OPKIT_INLINE void FitByRecomputation(PlanState& state) {
  const int64_t capacity = state.options().memory.capacity_bytes;
  // A selection made from a recomputed plan names nodes that run again, which this graph does not
  // have yet.
  Selection forced, aside;
  for (const Selection::Node& one : state.options().selection.forced.nodes)
    (IsNameOfRepeat(state.graph(), one.node) ? aside : forced).nodes.push_back(one);
  state.SetSelection(forced);
  try {
    // The plan fits without recomputation.
    return static_cast<void>(state.Specialize(state.inputs(), nullptr));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
  }
  const IntrusivePtr<Specialization> given = state.MakeUnbounded(state.view());
  const ArenaPlan* arena = LargestArena(*given);
  if (!arena || arena->plan.arena_bytes <= capacity) return state.Keep(given);

  const RecomputedGraph steps(*given, arena->device);
  const RecomputedRun as_given = Recompute(steps.problem(), (std::numeric_limits<int64_t>::max)());
  struct {
    std::unique_ptr<ViewedGraph> graph;
    Selection selection;
    PlanState::Recomputed recomputed;
    int64_t bytes, peak;
  } best{nullptr, {}, {}, arena->plan.arena_bytes, as_given.given_bytes};
  // The steps may count bytes that the plan does not need; the target is higher by these.
  int64_t target = capacity + (std::max)(as_given.given_bytes - best.bytes, int64_t{0});
  for (int i = 0; i < PlanOptions::MemoryOptions::kRecomputeTries && target >= as_given.least_bytes;
       ++i) {
    const RecomputedRun run = Recompute(steps.problem(), target);
    if (run.peak_bytes >= best.peak) break;
    best.peak = run.peak_bytes;
    RecomputedGraph::Rewritten rewritten = steps.Rewrite(run, state.IsWalked());
    auto graph = std::make_unique<ViewedGraph>(std::move(rewritten.graph));
    Selection selection = ForcedAgain(forced, aside, rewritten.again);
    state.SetSelection(selection);
    const IntrusivePtr<Specialization> made = state.MakeUnbounded(graph->view);
    const ArenaPlan* const lowered = LargestArena(*made);
    const int64_t bytes = lowered ? lowered->plan.arena_bytes : 0;
    const PlanState::Recomputed recomputed{
        static_cast<int>(rewritten.again.size()),
        run.given_cost > 0 ? run.added_cost / run.given_cost : 0};
    if (bytes <= capacity) {
      state.UseGraph(std::move(graph), recomputed);
      return state.Keep(made);
    }
    if (bytes < best.bytes) {
      best.graph = std::move(graph);
      best.selection = std::move(selection);
      best.recomputed = recomputed;
      best.bytes = bytes;
    }
    target = run.peak_bytes - (bytes - capacity);
  }
  // No plan fits: throw the Error of the plan that comes nearest.
  state.SetSelection(best.graph ? best.selection : forced);
  if (!best.graph) return static_cast<void>(state.Specialize(state.inputs(), nullptr));
  const int nodes = best.recomputed.nodes;
  state.UseGraph(std::move(best.graph), best.recomputed);
  InContext(
      [&] { state.Specialize(state.inputs(), nullptr); },
      [&] { return StrCat("with ", nodes, " nodes computed again, the fewest bytes found"); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_RECOMPUTED_GRAPH_IPP_

// Definitions of Compile and of Plan's members.
#ifndef OPKIT_GRAPH_IMPL_PLAN_IPP_
#define OPKIT_GRAPH_IMPL_PLAN_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/plan/recomputed_graph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Indents NodeChoice::passed_over for Describe.
OPKIT_COLD inline std::string PassedOver(const std::string& list) {
  std::string out = list.empty() ? "" : "\n    passed over:";
  for (const char c : list) out += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return out + "\n";
}
// Returns " float32[2, 3]" for each output of the node.
OPKIT_COLD inline std::string TypesText(const GraphView& view, int node, const GraphTypes& types) {
  std::string out;
  for (const int value : view.outputs(node))
    if (value >= 0) out += " " + ToString(types[value]);
  return out;
}
OPKIT_COLD inline void DescribeSteps(const Specialization& found, const std::string& indent,
                                     std::string& out) {
  for (int step = 0; step < found.schedule().size(); ++step) {
    const int node = found.schedule().original_of(step);
    const NodeChoice& choice = found.choice(node);
    const Kernel& kernel = *choice.kernel;
    out += StrCat(indent, step, " ", ToString(found.view().graph().node(node)), ": ", choice.name(),
                  StrCat(", ", kernel.Place()), TypesText(found.view(), node, found.types()),
                  PassedOver(choice.passed_over));
    for (const std::unique_ptr<PlannedBody>& body : found.BodiesOf(node)) {
      out += StrCat(indent, "  ", body->name, ":\n");
      DescribeSteps(*body->plan, indent + "    ", out);
    }
  }
}
OPKIT_COLD inline std::string DescribePlan(const PlanState& state, const Specialization* found) {
  const PreferenceScope preferring(state.preferences());
  const Graph& graph = state.graph();
  const int threads = state.pool().threads();
  std::string out = StrCat("plan of ", graph.num_nodes(), " nodes on ", threads,
                           threads == 1 ? " thread\n" : " threads\n");
  for (const auto& [name, value] : graph.constants())
    if (graph.IsOutput(name))
      out += StrCat("  known before any run: ", name, " ", ToString(TensorInfo::Of(value)), "\n");
  if (!found) {
    out += "  kernels and memory: with the first run, since shapes of inputs are open\n";
    for (const int node : state.view().order()) {
      out += StrCat("  ", ToString(graph.node(node)), ":",
                    TypesText(state.view(), node, *state.types_for_any()));
      std::string missing;
      for (const auto& [backend, why] : MissingBackends(graph.node(node)))
        missing += StrCat("\n  backend ", backend, ": ", why);
      out += PassedOver(missing);
    }
    return out;
  }
  const Schedule& schedule = found->schedule();
  out +=
      StrCat("  schedule: ", schedule.edges_kept(), " of ", schedule.edges_given(), " edges kept, ",
             schedule.levels(), " levels, at most ", StrCat(schedule.max_width(), " wide\n"));
  out += StrCat("  mode: ", found->mode(), "\n");
  const MemorySummary& memory = found->memory().summary();
  out += StrCat("  memory: ", memory.arena_bytes, " bytes for ", memory.planned_values,
                " values (at least ", memory.lower_bound_bytes, ", one by one ", memory.naive_bytes,
                StrCat("), ", memory.inplace_values, " in place"));
  if (const PlanState::Recomputed& again = state.recomputed(); again.nodes > 0)
    out += StrCat(", ", again.nodes, " nodes computed again for ",
                  static_cast<int>(100 * again.share + 0.5), " % more work");
  if (memory.bounded_values > 0)
    out += StrCat(", ", memory.bounded_values, " by a bound of what a run decides");
  out += "\n";
  DescribeSteps(*found, "  ", out);
  return out;
}
}  // namespace detail

OPKIT_INLINE Plan::Plan(detail::IntrusivePtr<detail::PlanState> state) : state_(std::move(state)) {}
OPKIT_INLINE Plan::Plan(const Plan& other) = default;
OPKIT_INLINE Plan& Plan::operator=(const Plan& other) = default;
OPKIT_INLINE Plan::~Plan() = default;

OPKIT_INLINE const Graph& Plan::graph() const { return state_->graph(); }
OPKIT_INLINE const GraphView& Plan::view() const { return state_->view(); }
OPKIT_INLINE int Plan::threads() const { return state_->pool().threads(); }
OPKIT_INLINE bool Plan::has_shapes() const { return static_cast<bool>(state_->Latest()); }
OPKIT_INLINE MemorySummary Plan::memory() const {
  MemorySummary memory = state_->GetLatest()->memory().summary();
  memory.recomputed_nodes = state_->recomputed().nodes;
  memory.recomputed_share = state_->recomputed().share;
  return memory;
}
OPKIT_INLINE GraphTypes Plan::types() const {
  const auto latest = state_->Latest();
  if (!latest) return *state_->types_for_any();
  GraphTypes types = latest->plan_types();
  // Callers get outputs in the standard layout.
  for (const int output : view().outputs()) types[output].layout = Layout();
  return types;
}
OPKIT_INLINE TensorInfo Plan::type(std::string_view value) const {
  const auto latest = state_->Latest();
  TensorInfo info = (latest ? latest->plan_types() : *state_->types_for_any()).Get(value);
  if (graph().IsOutput(value)) info.layout = Layout();
  return info;
}
OPKIT_INLINE NodeChoice Plan::choice(int node) const {
  graph().node(node);  // throws kOutOfRange for an index that the graph does not have
  return state_->GetLatest()->plan_choice(node);
}

OPKIT_INLINE Selection Plan::selection() const {
  Selection selection;
  detail::AppendSelection(*state_->GetLatest(), {}, false, selection);
  return selection;
}

OPKIT_INLINE const PartitionReport& Plan::partition_report() const {
  if (!state_->partition_report())
    Throw(ErrorCode::kFailedPrecondition,
          "the plan has no partition report: PlanOptions named no partitioners");
  return *state_->partition_report();
}
OPKIT_INLINE Explanation Plan::Explain() const { return state_->Explain(); }
OPKIT_INLINE std::string ToString(const Plan& plan) {
  const auto found = plan.state()->Latest();
  return detail::DescribePlan(*plan.state(), found.get());
}
OPKIT_INLINE std::string ToString(const Plan& plan,
                                  const std::vector<std::pair<std::string, Shape>>& shapes) {
  std::vector<Graph::Input> known;
  for (const auto& [name, shape] : shapes) known.push_back({name, {DType::kUndefined, shape}});
  const GraphTypes types = InferGraph(plan.state()->view(), known);
  std::vector<TensorInfo> inputs;
  for (const Graph::Input& input : plan.graph().inputs()) {
    inputs.push_back(types.Get(input.name));
    if (inputs.back().dtype == DType::kUndefined || !inputs.back().shape.is_known())
      Throw(ErrorCode::kInvalidArgument,
            "ToString needs the dtype and the shape of every input, but input '", input.name,
            "' is ", ToString(inputs.back()));
  }
  // If the graph declares all shapes, use its specialization: the plan may have released constants
  // that another specialization needs.
  detail::PlanState& state = *plan.state();
  const auto found = state.inputs_known() ? state.GetLatest() : state.Make(std::move(inputs));
  return detail::DescribePlan(state, found.get());
}

namespace detail {

// Applies the passes to a graph and to the bodies of its nodes. Throws if a pass fails on the only
// body of a node. With several bodies, the failing one stays unchanged: runs may never execute it.
inline Graph ApplyPasses(const Graph& graph, const PassList& passes, UnknownOperators unknown) {
  Graph out = passes.Run(graph, {}, unknown);
  for (int node = 0; node < out.num_nodes(); ++node) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(out.node(node).type());
    if (!schema || !schema->runs_subgraphs()) continue;
    const OperatorDef before = out.node(node);
    OperatorDef after = before;
    for (const NamedSubgraph& item : before.subgraphs()) {
      const auto* const body = dynamic_cast<const GraphSubgraph*>(item.graph.get());
      if (!body) continue;
      try {
        after.Subgraph(item.name, body->With(ApplyPasses(body->graph, passes, unknown)));
      } catch (const Error&) {
        if (before.subgraphs().size() == 1)
          RethrowInContext(StrCat("in ", item.name, " of ", before));
      }
    }
    if (!before.subgraphs().empty()) out.ReplaceNode(node, std::move(after));
  }
  return out;
}

// Throws kNotFound, with a list of nodes, if the operator of a node is not registered.
OPKIT_COLD inline void CheckOperatorsKnown(const Graph& graph) {
  std::string list, first;
  int unknown = 0;
  for (const OperatorDef& def : graph.nodes()) {
    if (OpRegistry::Global().FindSchema(def.type())) continue;
    if (first.empty()) first = def.type();
    constexpr int kMaxListed = 50;
    if (++unknown <= kMaxListed) list += "\n  " + ToString(def);
  }
  if (unknown > 0)
    Throw(ErrorCode::kNotFound, unknown, unknown == 1 ? " node has" : " nodes have",
          " an operator that is not registered, and no partitioner took it; the first is '", first,
          "'", SuggestName(first, OpRegistry::Global().Operators()), list);
}

// Returns Partition's result. Throws kNotFound if no partitioner is registered at all.
OPKIT_COLD inline Graph Partitioned(const Graph& graph, const PlanOptions& options,
                                    std::shared_ptr<const PartitionReport>& report) {
  if (g_partition) return g_partition(graph, options.partitioners, report);
  Throw(ErrorCode::kNotFound, "no partitioner '", options.partitioners[0].name,
        "' is registered; REGISTER_PARTITIONER registers one");
}

// Throws kInvalidArgument if the dtype or shape of an input is unknown. `option` is the option that
// needs them; `why` completes "since another shape may need".
OPKIT_COLD inline void CheckInputsKnown(const Graph& graph, std::string_view option,
                                        std::string_view why) {
  for (const Graph::Input& input : graph.inputs())
    if (input.info.dtype == DType::kUndefined || !input.info.shape.is_known())
      Throw(ErrorCode::kInvalidArgument, option,
            " needs the dtype and the shape of every input, since another shape may need ", why,
            "; input '", StrCat(input.name, "' is ", ToString(input.info)));
}

// Returns the graph that the plan runs: after passes and partitioners.
inline Graph PreparedGraph(const Graph& graph, const PlanOptions& options,
                           std::shared_ptr<const PartitionReport>& report) {
  const bool parted = !options.partitioners.empty();
  Graph prepared = ApplyPasses(graph, options.passes ? *options.passes : DefaultPasses(),
                               parted ? UnknownOperators::kAllowed : UnknownOperators::kRefused);
  if (!parted) return prepared;
  prepared = Partitioned(prepared, options, report);
  CheckOperatorsKnown(prepared);
  return prepared;
}

// Compiles all nodes of the graph for this process.
inline IntrusivePtr<PlanState> CompileHere(const Graph& graph, const PlanOptions& options) {
  const RegistryUse use;
  const InvocationScope scope(Invocation::Kind::kPhase,
                              [] { return SpanNames{InternName("Compile")}; });
  if (options.schedule.flush_denormals && kFlushDenormalBits == 0)
    Throw(ErrorCode::kUnsupported,
          "PlanOptions::schedule.flush_denormals needs an x86 or ARM64 CPU");
  if (options.memory.release_constants)
    CheckInputsKnown(graph, "PlanOptions::memory.release_constants", "what is dropped");
  if (options.memory.recompute) {
    if (options.memory.capacity_bytes == 0)
      Throw(ErrorCode::kInvalidArgument,
            "PlanOptions::memory.recompute needs capacity_bytes, the most bytes that the plan may "
            "take");
    CheckInputsKnown(graph, "PlanOptions::memory.recompute", "other nodes to run again");
  }
  const auto preferences = OpRegistry::Global().KeepPreferences(options.backends);
  const PreferenceScope preferring(*preferences);
  std::shared_ptr<const PartitionReport> report;
  Graph prepared = PreparedGraph(graph, options, report);
  auto state =
      MakeIntrusive<PlanState>(std::move(prepared), options, preferences, std::move(report));
  if (graph.num_nodes() > 0 && graph.outputs().empty() && state->graph().num_nodes() == 0)
    Throw(ErrorCode::kInvalidArgument,
          "the graph has no outputs, and none of its nodes has an effect; call AddOutput for each "
          "value that a run returns");
  if (state->inputs_known()) {
    if (options.memory.recompute)
      FitByRecomputation(*state);
    else
      state->Specialize(state->inputs(), nullptr);
    if (options.memory.release_constants) state->ReleaseConstants();
  } else {
    state->CheckForAnyShapes();
  }
  return state;
}

}  // namespace detail

OPKIT_INLINE Plan Compile(const Graph& graph, const PlanOptions& options) {
  const bool is_of_one = options.cluster.CountProcesses() <= 1;
  if (is_of_one && !options.cluster.communicator) [[likely]]
    return Plan(detail::CompileHere(graph, options));
  PlanOptions own = options;
  if (is_of_one) {
    own.cluster.communicator = {};  // a run of this plan may fail without breaking it
    return Plan(detail::CompileHere(graph, own));
  }
  const Graph part = detail::g_process_part(graph, own);
  try {
    return Plan(detail::CompileHere(part, own));
  } catch (...) {
    if (!own.cluster.communicator) throw;
    std::rethrow_exception(own.cluster.communicator->RunFailed(std::current_exception()));
  }
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_PLAN_IPP_

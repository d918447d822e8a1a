// Compile, and a plan's answers about itself.
#ifndef OPKIT_GRAPH_IMPL_PLAN_IPP_
#define OPKIT_GRAPH_IMPL_PLAN_IPP_

#include "opkit/graph/plan.hpp"
#include "opkit/graph/plan/plan_state.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline IntrusivePtr<Specialization> LatestOf(const PlanState& state) {
  auto latest = state.Latest();
  if (!latest)
    Throw(ErrorCode::kFailedPrecondition,
          "the plan leaves shapes of its inputs open, and nothing has run yet: run it, or give "
          "every input a shape");
  return latest;
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
OPKIT_INLINE MemorySummary Plan::memory() const { return detail::LatestOf(*state_)->memory(); }
OPKIT_INLINE GraphTypes Plan::types() const { return detail::LatestOf(*state_)->types(); }
OPKIT_INLINE TensorInfo Plan::type(std::string_view value) const {
  return detail::LatestOf(*state_)->types().at(value);
}
OPKIT_INLINE NodeChoice Plan::choice(int node) const {
  graph().node(node);  // throws for a node that there is not
  return detail::LatestOf(*state_)->choice(node);
}

OPKIT_INLINE std::string Plan::Describe() const {
  std::string out = StrCat("plan of ", graph().num_nodes(), " nodes on ", threads(),
                           threads() == 1 ? " thread\n" : " threads\n");
  const auto found = state_->Latest();
  if (!found) return out + "  the shapes of its inputs are not known yet\n";
  const Schedule& schedule = found->schedule();
  out +=
      StrCat("  schedule: ", schedule.edges_kept(), " of ", schedule.edges_given(), " edges kept, ",
             schedule.levels(), " levels, at most ", StrCat(schedule.max_width(), " wide\n"));
  out += StrCat("  mode: ", found->mode(), "\n");
  const MemorySummary& memory = found->memory();
  out += StrCat("  memory: ", memory.arena_bytes, " bytes for ", memory.planned_values,
                " values (at least ", memory.lower_bound_bytes, ", one by one ", memory.naive_bytes,
                StrCat("), ", memory.inplace_values, " in place\n"));
  for (int step = 0; step < schedule.size(); ++step) {
    const int node = schedule.original_of(step);
    const NodeChoice& choice = found->choice(node);
    const Kernel& kernel = *choice.kernel;
    out += StrCat("  ", step, " ", ToString(graph().node(node)), ": ", kernel.backend, ", ",
                  kernel.Place());
    for (int value : state_->view().outputs(node))
      if (value >= 0) out += " " + ToString(found->types()[value]);
    if (!choice.passed_over.empty()) out += "\n    passed over:";
    for (const char c : choice.passed_over)
      out += c == '\n' ? std::string("\n    ") : std::string(1, c);
    out += "\n";
  }
  return out;
}

OPKIT_INLINE Plan Compile(const Graph& graph, const PlanOptions& options) {
  const detail::RegistryUse use;
  auto state = detail::MakeIntrusive<detail::PlanState>(
      options.passes ? options.passes->Run(graph) : DefaultPasses().Run(graph), options);
  if (graph.num_nodes() > 0 && graph.outputs().empty() && state->graph().num_nodes() == 0)
    Throw(ErrorCode::kInvalidArgument,
          "the graph has no outputs, and none of its nodes has an effect: AddOutput what a run is "
          "to return");
  if (state->inputs_known())
    state->Specialize(state->inputs(), nullptr);
  else
    InferGraph(state->view());  // finds what is wrong whatever the shapes are
  return Plan(std::move(state));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_PLAN_IPP_

// Definitions of PlanState.
#ifndef OPKIT_GRAPH_PLAN_IMPL_PLAN_STATE_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_PLAN_STATE_IPP_

#include "opkit/graph/plan/plan_state.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE PlanState::PlanState(Graph graph, const PlanOptions& options,
                                  IntrusivePtr<RefCounted> preferences,
                                  std::shared_ptr<const PartitionReport> partition_report)
    : options_(options),
      partition_report_(std::move(partition_report)),
      preferences_(std::move(preferences)),
      graph_(std::make_unique<ViewedGraph>(std::move(graph))),
      specializations_(options.max_shapes) {
  if (options.threads < 0 || options.max_shapes < 1)
    Throw(ErrorCode::kInvalidArgument, "a plan needs threads >= 0 and max_shapes >= 1, found ",
          options.threads, " and ", options.max_shapes);
  options_.passes = nullptr;  // the list belongs to the caller
  if (options.threads != 0 && options.threads != ThreadPool::Global().threads())
    own_pool_ = std::make_unique<ThreadPool>(options.threads, "opkit-plan");
  FindDonated();
  for (const auto& input : this->graph().inputs()) {
    inputs_.push_back(input.info);
    defaults_.push_back(input.default_value);
    inputs_known_ &= input.info.dtype != DType::kUndefined && input.info.shape.is_known();
  }
  // A plan for the shapes that the graph declares is made for runs that read the defaults.
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (const int value = static_cast<int>(i); inputs_known_ && defaults_[i].initialized() &&
                                               !view().IsRewritten(value) &&
                                               std::ranges::count(donated_, value) == 0)
      inputs_[i].constant = &defaults_[i];
}

OPKIT_INLINE IntrusivePtr<Specialization> PlanState::Specialize(
    const std::vector<TensorInfo>& inputs, std::unique_ptr<BoundNodes>* nodes) {
  MutexLock lock(mutex_);
  IntrusivePtr<Specialization> found = specializations_.Find(inputs);
  const auto is_stale = [&](const std::vector<TensorInfo>& one) { return SameTypes(one, inputs); };
  if (std::erase_if(stale_, is_stale) > 0) {
    specializations_.Remove(inputs);
    found = {};
  }
  if (!found) {
    found = Make(inputs);
    specializations_.Add(found);
  }
  if (nodes) *nodes = found->TakeNodes();
  return found;
}

OPKIT_INLINE void PlanState::SetLatest(IntrusivePtr<Specialization> specialization) {
  MutexLock lock(mutex_);
  if (!specializations_.Find(specialization->inputs()))
    specializations_.Add(std::move(specialization));
}

OPKIT_COLD OPKIT_INLINE IntrusivePtr<Specialization> PlanState::MakeUnbounded(
    const GraphView& view) const {
  PlanOptions::MemoryOptions memory = options_.memory;
  memory.search.enough_bytes = (std::max)(memory.search.enough_bytes, memory.capacity_bytes);
  memory.capacity_bytes = 0;
  memory.most_bound_bytes = -1;
  return MakeOf(view, inputs_, memory);
}

OPKIT_COLD OPKIT_INLINE void PlanState::CheckForAnyShapes() {
  types_for_any_.emplace(InferGraph(view()));
  for (const OperatorDef& def : graph().nodes()) {
    if (options_.backend_need == kRequired) CheckBackends(def);
    if (!HasKernel(def)) ThrowNoKernel(def, "");
  }
}

OPKIT_COLD OPKIT_INLINE void PlanState::ReleaseConstants() {
  const auto latest = GetLatest();
  const std::vector<std::string> names = latest->UnreadConstants();
  if (names.empty()) return;
  explanation_ = g_explain_converted(*latest);  // first, since kernels may read constants
  for (const std::string& name : names) {
    latest->ReleaseConstant(name);
    graph_->graph.ReleaseConstant(name);
  }
  converted_constants_.Clear();
}

OPKIT_INLINE Explanation PlanState::Explain() const {
  const PreferenceScope scope(*preferences_);
  Explanation explanation = explanation_ ? *explanation_ : ExplainSelection(*GetLatest());
  explanation.recomputed_nodes = recomputed_.nodes;
  // Kernels may read constants, which have lost their elements if there is an explanation already.
  if (options_.tuning.use != PlanOptions::TuningOptions::Use::kNone && !explanation_)
    g_add_measured(*this, explanation);
  return explanation;
}

OPKIT_INLINE IntrusivePtr<Specialization> PlanState::GetLatest() const {
  auto latest = Latest();
  if (!latest)
    Throw(ErrorCode::kFailedPrecondition,
          "the shapes of the plan's inputs are open, and it has not run yet; run it, or declare "
          "the shape of every input");
  return latest;
}

OPKIT_COLD OPKIT_INLINE bool PlanState::HasKernel(const OperatorDef& def) const {
  if (options_.devices.empty() || def.device() != Device{})
    return !KernelOrder(def, /*by_rank=*/true).empty();
  for (const Device device : options_.devices)
    if (!KernelOrder(OperatorDef(def).Device(device), /*by_rank=*/true).empty()) return true;
  return false;
}

OPKIT_COLD OPKIT_INLINE void PlanState::FindDonated() {
  std::vector<std::string> names;
  for (const Graph::Input& input : graph().inputs()) names.push_back(input.name);
  for (const std::string& name : options_.memory.donated_inputs) {
    const int value = view().FindValue(name);
    if (value < 0 || !view().IsInput(value))
      Throw(ErrorCode::kNotFound, "PlanOptions::memory.donated_inputs names '", name,
            "', which is no input of the graph", SuggestName(name, names));
    const char* const why = view().IsRewritten(value) ? "rewritten by a node of the graph"
                            : view().IsOutput(value)  ? "an output of the graph too"
                                                      : nullptr;
    if (why)
      Throw(ErrorCode::kInvalidArgument, "PlanOptions::memory.donated_inputs names '", name,
            "', which is ", why, ", and the caller reads it after a run");
    donated_.push_back(value);
  }
}

OPKIT_COLD OPKIT_INLINE void PlanState::SelectAgain(const std::vector<TensorInfo>& inputs) const {
  MutexLock lock(mutex_);
  stale_.push_back(inputs);
  selections_.fetch_add(1, std::memory_order_relaxed);
}

OPKIT_INLINE const Selection* PlanState::ForcedFor(const std::vector<TensorInfo>& inputs) const {
  const Selection& forced = options_.selection.forced;
  if (options_.tuning.use == PlanOptions::TuningOptions::Use::kNone)
    return forced.nodes.empty() ? nullptr : &forced;
  Selection tuned = g_tuned_kernels(*this, inputs);
  if (tuned.nodes.empty()) return forced.nodes.empty() ? nullptr : &forced;
  auto both = std::make_unique<Selection>(forced);
  for (Selection::Node& node : tuned.nodes) {
    if (forced.Find(node.node)) continue;
    node.required = false;
    both->nodes.push_back(std::move(node));
  }
  MutexLock lock(tuned_mutex_);
  has_tuned_ = true;
  // Shapes that come again, after others, have the selection that they had before.
  const std::string text = ToString(*both);
  for (const auto& one : tuned_)
    if (ToString(*one) == text) return one.get();
  tuned_.push_back(std::move(both));
  return tuned_.back().get();
}

OPKIT_COLD OPKIT_INLINE IntrusivePtr<Specialization> PlanState::MakeOf(
    const GraphView& view, std::vector<TensorInfo> inputs,
    const PlanOptions::MemoryOptions& memory) const {
  const PreferenceScope scope(*preferences_);
  const Selection* const forced = ForcedFor(inputs);
  return MakeIntrusive<Specialization>(
      view, std::move(inputs),
      Specialization::Options{
          IsWalked(),
          options_.schedule.deterministic,
          memory,
          &converted_constants_,
          {options_.backend_need, forced, &options_.devices, options_.selection.objective},
          donated_});
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_PLAN_STATE_IPP_

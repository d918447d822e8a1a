// Definitions of Specialization: its pipeline, from selected kernels to planned memory.
#ifndef OPKIT_GRAPH_PLAN_IMPL_SPECIALIZATION_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_SPECIALIZATION_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/node_order.hpp"
#include "opkit/graph/node_bodies.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE Specialization::Specialization(const GraphView& view,
                                            std::vector<TensorInfo> input_infos,
                                            const Options& options, const Enclosing* enclosing)
    : plan_view_(view),
      inputs_(std::move(input_infos)),
      plan_types_(Infer(view, inputs_)),
      selector_(plan_view_, plan_types_, options.selection),
      memory_(*this, options.memory) {
  Build(options, enclosing);
}

OPKIT_INLINE void Specialization::Build(const Options& options, const Enclosing* enclosing) {
  do {
    selector_.SelectAll(selected_);
    FuseNodes(options);
    InsertConverters(options, enclosing);
    FindOuter(enclosing);
  } while (!BindNodes(enclosing));
  PlanBodies(options);
  MakeSchedule(options);
  AssignStreams();
  if (!enclosing) PlanMemory(options);
}

OPKIT_INLINE GraphTypes Specialization::Infer(const GraphView& view,
                                              const std::vector<TensorInfo>& inputs) {
  std::vector<Graph::Input> known;
  for (size_t i = 0; i < inputs.size(); ++i)
    known.push_back({view.graph().inputs()[i].name, inputs[i]});
  return InferGraph(view, known);
}

OPKIT_INLINE std::vector<int> Specialization::PartsOf(int node) const {
  if (node >= fused_view().num_nodes()) return {};
  if (!fused_) return {node};
  return {fused_->PartsOf(node).begin(), fused_->PartsOf(node).end()};
}

OPKIT_INLINE void Specialization::FuseNodes(const Options& options) {
  converted_.reset();
  fused_.reset();
  if (FusedGraph::IsNeeded(selected_))
    fused_ = g_make_fused_graph(plan_view_, plan_types_, selected_, options.selection.forced);
  choices_ = fused_ ? fused_->choices() : selected_;
  for (int node = 0; node < plan_view_.num_nodes(); ++node)
    if (const int first = PartsOf(NodeOf(node)).front(); first != node)
      selected_[node].computed_by = first;
}

OPKIT_INLINE void Specialization::InsertConverters(const Options& options,
                                                   const Enclosing* enclosing) {
  // A body returns its outputs on the device on which the node that carries it makes them.
  const Device device = enclosing ? enclosing->device() : Device();
  const Device* const outputs_on = enclosing ? &device : nullptr;
  if (NeedsConverters(fused_view(), fused_types(), choices_, outputs_on))
    converted_ = g_make_converted_graph(fused_view(), fused_types(), choices_,
                                        *options.converted_constants, outputs_on);
  for (int node = 0; node < view().num_nodes(); ++node) ShareDescriptors(node);
}

OPKIT_INLINE bool Specialization::BindNodes(const Enclosing* enclosing) {
  struct OtherLayouts {};
  const auto refused = [&](int node, const std::string& why) {
    const std::vector<int> parts = PartsOf(node);
    if (parts.size() != 1) throw UnsupportedOperatorFeature(why);
    NodeChoice& choice = selected_[parts[0]];
    if (!selector_.SelectAfterRefusal(parts[0], why, choice)) throw OtherLayouts();
    choices_[node] = choice;
    ShareDescriptors(node);
  };
  try {
    first_nodes_ = std::make_unique<BoundNodes>(
        view(), types(), choices_, OuterBlobs(enclosing ? &enclosing->nodes : nullptr), refused);
    return true;
  } catch (const OtherLayouts&) {
    return false;
  }
}

OPKIT_INLINE void Specialization::ShareDescriptors(int node) {
  const auto share = [&](std::span<const int> values, std::vector<Layout>& layouts) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (values[i] < 0) continue;
      const Layout& layout = types()[values[i]].layout;
      OPKIT_ASSERT(layouts[i] == layout);
      layouts[i] = layout;
    }
  };
  KernelConfig& config = choices_[node].config;
  share(view().inputs(node), config.input_layouts);
  share(view().outputs(node), config.output_layouts);
}

OPKIT_COLD OPKIT_INLINE void Specialization::FindOuter(const Enclosing* enclosing) {
  outer_.assign(Index(view().num_values()), -1);
  rewritten_.assign(outer_.size(), 0);
  if (enclosing && !enclosing->body.apart) {
    const GraphView& outside = enclosing->plan.view();
    const auto bind = [&](int plan_value, std::span<const int> values, size_t at) {
      if (at < values.size()) outer_[ValueOf(plan_value)] = values[at];
    };
    for (size_t i = 0; i < inputs_.size(); ++i)  // inputs are the first values
      bind(static_cast<int>(i), outside.inputs(enclosing->node), Index(enclosing->body.inputs[i]));
    for (size_t o = 0; o < plan_view_.outputs().size(); ++o)
      if (const int value = plan_view_.outputs()[o]; plan_view_.producer(value) >= 0)
        bind(value, outside.outputs(enclosing->node), o);
  }
  for (int value = 0; value < view().num_values(); ++value)
    rewritten_[value] = view().IsRewritten(value) ||
                        (OuterOf(value) >= 0 && enclosing->plan.IsRewritten(OuterOf(value)));
}

OPKIT_COLD OPKIT_INLINE IndexedVector<Blob*> Specialization::OuterBlobs(
    const BoundNodes* enclosing) const {
  IndexedVector<Blob*> blobs;
  for (int value = 0; enclosing && value < view().num_values(); ++value)
    blobs.push_back(OuterOf(value) < 0 ? nullptr : &enclosing->blob(OuterOf(value)));
  return blobs;
}

OPKIT_COLD OPKIT_INLINE std::unique_ptr<BoundNodes> Specialization::MakeNodes(
    const BoundNodes* enclosing) const {
  auto nodes = std::make_unique<BoundNodes>(view(), types(), choices_, OuterBlobs(enclosing));
  for (const std::unique_ptr<PlannedBody>& body : bodies_)
    nodes->bodies().push_back(body->plan->MakeNodes(nodes.get()));
  return nodes;
}

OPKIT_COLD OPKIT_INLINE void Specialization::PlanBodies(const Options& options) {
  for (int node = 0; node < view().num_nodes(); ++node)
    if (const auto* runs = dynamic_cast<const RunsBodies*>(&first_nodes_->op(node)))
      for (size_t i = 0; i < runs->bodies().size(); ++i)
        PlanBody(node, static_cast<int>(i), *runs, options);
}

OPKIT_COLD OPKIT_INLINE void Specialization::PlanBody(int node, int number,
                                                      const RunsBodies& carrier,
                                                      const Options& options) {
  const OperatorDef& def = view().graph().node(node);
  const NodeBody& body = carrier.bodies()[Index(number)];
  const bool exclusive = carrier.bodies().size() > 1;
  auto planned = std::make_unique<PlannedBody>(node, number, body);
  const std::vector<TensorInfo> given = types().Of(view().inputs(node));
  std::vector<TensorInfo> infos;
  if (body.apart)
    infos = carrier.TypesInBody(number, given);
  else
    for (const int input : body.inputs) infos.push_back(given[Index(input)]);
  Options inner = options;
  inner.walked = true;
  inner.donated = {};
  planned->forced = selector_.ForcedInside(PartsOf(node)[0], body.name);
  inner.selection.forced = planned->forced.nodes.empty() ? nullptr : &planned->forced;
  inner.selection.is_body = true;
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
          ", but that body is not planned with the graph: one of its operators completes after it "
          "has returned");
  }
  first_nodes_->bodies().push_back(planned->plan->TakeNodes());
  bodies_.push_back(std::move(planned));
}

OPKIT_COLD OPKIT_INLINE bool Specialization::Fits(const PlannedBody& body,
                                                  const std::vector<TensorInfo>& infos,
                                                  Options options, const Enclosing& enclosing) {
  options.selection.forced = nullptr;
  try {
    static_cast<void>(MakeIntrusive<Specialization>(body.view, infos, options, &enclosing));
    return true;
  } catch (const Error&) {
    return false;
  }
}

OPKIT_INLINE void Specialization::MakeSchedule(const Options& options) {
  auto supports = [&](int node) {
    return asynchronous_[node] != 0 && first_nodes_->op(node).SupportsAsyncScheduling();
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
  ScheduleOptions settings;
  settings.in_order = options.in_order;
  settings.name = &name_ref;
  std::vector<int> order;
  if (options.memory.reorder_nodes && options.walked) {
    order = OrderForFootprint(
        view(), [&](int value) { return memory_.IsPlanned(value) ? BytesOf(value) : 0; });
    settings.given = &order;
  }
  schedule_.emplace(view().num_nodes(), edges, settings);
  if (options.in_order) {
    follows_.assign(Index(schedule_->size()), 0);
    for (const auto& edge : view().edges()) {
      const int to = schedule_->node_of(edge.to);
      if (schedule_->node_of(edge.from) + 1 == to) follows_[to] = 1;
    }
  }
}

OPKIT_INLINE void Specialization::AssignStreams() {
  constexpr int kStreams = 4;
  streams_.assign(Index(view().num_nodes()), 0);
  IndexedVector<char> continued(streams_.size(), 0);
  int next = 0;
  for (int step = 0; step < schedule_->size(); ++step) {
    const int node = schedule_->original_of(step);
    if (!IsAsynchronous(node)) continue;
    int stream = -1;
    const auto& edges = view().edges();
    for (size_t e = view().FirstEdgeTo(node); e < edges.size() && edges[e].to == node; ++e) {
      const auto& edge = edges[e];
      if (!IsAsynchronous(edge.from) || continued[edge.from] ||
          first_nodes_->op(edge.from).device() != first_nodes_->op(node).device())
        continue;
      continued[edge.from] = 1;
      stream = streams_[edge.from];
      break;
    }
    streams_[node] = stream >= 0 ? stream : next++ % kStreams;
  }
}

OPKIT_INLINE void Specialization::PlanMemory(const Options& options) {
  PlannedMemory::Options memory{options.memory, options.walked, {}};
  for (const int input : options.donated) memory.donated.push_back(ValueOf(input));
  memory_.PlanArenas(memory);
}

OPKIT_COLD OPKIT_INLINE void ForEachPlanned(
    const Specialization& plan, const std::string& prefix,
    FunctionRef<void(const Specialization& planned, const std::string& prefix)> visit) {
  visit(plan, prefix);
  if (plan.bodies().empty()) return;
  const IndexedVector<std::string> names = SelectionNames(plan.plan_view().graph());
  for (const std::unique_ptr<PlannedBody>& body : plan.bodies())
    ForEachPlanned(*body->plan,
                   prefix + SelectionPrefix(names[plan.PartsOf(body->node)[0]], body->name), visit);
}
OPKIT_COLD OPKIT_INLINE void AppendSelection(const Specialization& plan, const std::string& prefix,
                                             bool computed_too, Selection& selection) {
  const Graph& graph = plan.plan_view().graph();
  const IndexedVector<std::string> names = SelectionNames(graph);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const std::string& name = names[node];
    const NodeChoice& choice = plan.plan_choice(node);
    const std::string& backend = choice.kernel->backend;
    if (choice.computed_by >= 0 &&
        (!computed_too || plan.plan_choice(choice.computed_by).kernel->backend != backend))
      continue;
    selection.nodes.push_back(SelectionEntry(prefix + name, graph.node(node).type(), *choice.kernel,
                                             choice.device, choice.config, choice.config_number));
    for (const std::unique_ptr<PlannedBody>& body : plan.BodiesOf(plan.NodeOf(node)))
      AppendSelection(*body->plan, prefix + SelectionPrefix(name, body->name), computed_too,
                      selection);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_SPECIALIZATION_IPP_

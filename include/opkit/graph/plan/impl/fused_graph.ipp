// Definitions of FusedGraph: finds chains of nodes that one kernel computes, from their first node
// on.
#ifndef OPKIT_GRAPH_PLAN_IMPL_FUSED_GRAPH_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_FUSED_GRAPH_IPP_

#include <algorithm>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"
#include "opkit/op/fusion.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Finds the chains and writes the fused graph.
struct FusedGraph::Builder {
  // Nodes that one kernel computes; `def` stands for all of them.
  struct Chain {
    OperatorDef def;
    NodeChoice choice;
    std::vector<int> parts;
  };

  Builder(const GraphView& from, const GraphTypes& known, const IndexedVector<NodeChoice>& chosen,
          const Selection* selection)
      : view(from),
        types(known),
        choices(chosen),
        control(ControlNames(from.graph())),
        is_part(Index(from.num_nodes()), 0) {
    if (selection)
      for (const Selection::Node& one : selection->nodes)
        if (const Selection::Node*& first = forced[one.node]; !first) first = &one;
    for (const int node : view.order()) {
      if (is_part[node]) continue;
      Chain& chain = chains.emplace_back();
      chain = {view.graph().node(node), choices[node], {node}};
      while (chain.choice.kernel->fuse && Extend(chain)) fused = true;
    }
  }

  // True if the node has exactly one output and no node rewrites its inputs or output.
  bool IsFree(int node) const {
    const auto outputs = view.outputs(node);
    return outputs.size() == 1 && outputs[0] >= 0 && !UsesRewritten(view, node);
  }
  // Returns the only reader of the chain's result if it may be fused; else -1. The first node of a
  // chain may wait for others by name, and other nodes may wait by name for the last.
  int NextOf(const Chain& chain) const {
    const int last = chain.parts.back();
    if (!IsFree(last) || IsWaitedFor(view.graph().node(last), control)) return -1;
    const int value = view.outputs(last)[0];
    if (view.IsOutput(value) || view.consumers(value).size() != 1) return -1;
    const int next = view.consumers(value)[0];
    const OperatorDef& def = view.graph().node(next);
    const std::string& backend = chain.choice.kernel->backend;
    const Selection::Node* const* const chosen = forced.Find(SelectionName(def));
    const bool is_chosen = (chosen && (*chosen)->backend != backend) ||
                           (def.requires_backends() && def.backends() != backend);
    if (!IsFree(next) || !def.control_inputs().empty() || is_part[next] || is_chosen ||
        choices[next].device != chain.choice.device ||
        std::ranges::count(view.inputs(next), value) != 1)
      return -1;
    return next;
  }
  std::vector<TensorInfo> InfosOf(const std::vector<std::string>& names) const {
    std::vector<TensorInfo> infos;
    for (const std::string& name : names)
      infos.push_back(name.empty() ? TensorInfo() : types[view.FindValue(name)]);
    return infos;
  }
  bool Extend(Chain& chain) {
    const int next = NextOf(chain);
    if (next < 0) return false;
    const OperatorDef& reader = view.graph().node(next);
    const std::vector<TensorInfo> inputs = InfosOf(chain.def.inputs()),
                                  outputs = InfosOf(chain.def.outputs()),
                                  next_inputs = InfosOf(reader.inputs()),
                                  next_outputs = InfosOf(reader.outputs());
    const auto read = std::ranges::find(reader.inputs(), chain.def.outputs()[0]);
    std::optional<FusedNode> made =
        chain.choice.kernel->fuse({{chain.def, inputs, outputs},
                                   chain.choice.config,
                                   {reader, next_inputs, next_outputs},
                                   choices[next].config,
                                   static_cast<size_t>(read - reader.inputs().begin())});
    const Kernel* kernel = made ? KernelOf(made->def, *chain.choice.kernel) : nullptr;
    if (!kernel) return false;
    CheckConfig(*kernel, made->def, made->config);
    OPKIT_ASSERT(made->def.outputs() == reader.outputs());
    std::vector<std::string> waits_for = chain.def.control_inputs();
    chain.def = std::move(made->def);
    if (chain.def.control_inputs() != waits_for)
      chain.def.mutable_control_inputs() = std::move(waits_for);
    if (IsWaitedFor(reader, control)) chain.def.Name(reader.name());
    chain.choice.kernel = kernel;
    chain.choice.config = std::move(made->config);
    chain.choice.owner = kernel->owner;
    chain.parts.push_back(next);
    is_part[next] = 1;
    return true;
  }
  static const Kernel* KernelOf(const OperatorDef& def, const Kernel& like) {
    for (const Kernel* kernel : OpRegistry::Global().FindKernels(def.type(), like.device))
      if (kernel->backend == like.backend) return kernel;
    return nullptr;
  }
  // Each chain stands where its last part stood.
  Graph MakeGraph() {
    StableSort(chains,
               [](const Chain& a, const Chain& b) { return a.parts.back() < b.parts.back(); });
    std::vector<OperatorDef> nodes;
    for (const Chain& chain : chains) nodes.push_back(chain.def);
    return WithContents(view.graph(), view.graph().constants(), std::move(nodes));
  }

  const GraphView& view;
  const GraphTypes& types;
  const IndexedVector<NodeChoice>& choices;
  NameTable<const Selection::Node*> forced;
  const NameIndex control;
  IndexedVector<char> is_part;  // by node: 1 if fused into an earlier node
  std::vector<Chain> chains;
  bool fused = false;
};

OPKIT_INLINE std::unique_ptr<FusedGraph> FusedGraph::Make(const GraphView& view,
                                                          const GraphTypes& types,
                                                          const IndexedVector<NodeChoice>& choices,
                                                          const Selection* forced) {
  const RegistryUse use;
  Builder builder(view, types, choices, forced);
  if (!builder.fused) return nullptr;
  return std::unique_ptr<FusedGraph>(new FusedGraph(std::move(builder), view, types));
}

OPKIT_INLINE FusedGraph::FusedGraph(Builder&& builder, const GraphView& plan,
                                    const GraphTypes& types)
    : graph_(builder.MakeGraph()), view_(graph_), types_(view_), node_of_(Index(plan.num_nodes())) {
  for (int value = 0; value < plan.num_values(); ++value) {
    value_of_.push_back(view_.FindValue(plan.name(value)));
    if (value_of_.back() >= 0) types_[value_of_.back()] = types[value];
  }
  for (Builder::Chain& chain : builder.chains) {
    const int node = static_cast<int>(parts_.size());
    if (chain.parts.size() == 1) types_.SetLacksData(node, types.LacksData(chain.parts[0]));
    for (const int part : chain.parts) node_of_[part] = node;
    choices_.push_back(std::move(chain.choice));
    parts_.push_back(std::move(chain.parts));
  }
}

OPKIT_IMAGE_LOCAL inline const bool kFillsMakeFusedGraph =
    g_make_fused_graph.Fill(&FusedGraph::Make);

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_FUSED_GRAPH_IPP_

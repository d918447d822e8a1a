// Definitions of ExplainSelection: explains a selection node by node.
#ifndef OPKIT_GRAPH_PLAN_IMPL_EXPLAIN_SELECTION_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_EXPLAIN_SELECTION_IPP_

#include <algorithm>

#include "opkit/graph/plan/explain_selection.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD inline void ExplainConverter(const TensorInfo& from, const TensorInfo& to,
                                        Explanation::Node& out) {
  const Shape shape = from.shape.ToShape();
  out.from = ToString(from.layout);
  out.to = ToString(to.layout);
  out.bytes = LayoutBytes(from.layout, shape, from.dtype) + LayoutBytes(to.layout, shape, to.dtype);
  out.ns = FindLayoutPath(from.layout, to.layout, shape, from.dtype).cost_ns;
}
OPKIT_COLD inline void ExplainCopy(const TensorInfo& from, const TensorInfo& to,
                                   Explanation::Node& out) {
  out.from = ToString(from.device);
  out.to = ToString(to.device);
  out.bytes = 2 * LayoutBytes(from.layout, from.shape.ToShape(), from.dtype);
  out.ns = EstimatedCopyNs(out.bytes / 2);
}

// Fills in the candidates of `node`, a node of the plan's graph.
OPKIT_COLD inline void ExplainNode(const Specialization& found, int node, Explanation::Node& out) {
  const NodeChoice& choice = found.plan_choice(node);
  const NodeRating rating = found.selector().Rate(node);
  for (size_t i = 0; i < rating.candidates.size(); ++i) {
    const NodeRating::Rated& rated = rating.candidates[i];
    const KernelCandidate& candidate = rated.candidate;
    Explanation::Candidate& one = out.candidates.emplace_back();
    one.backend = candidate.backend;
    if (rated.device != Device{} && candidate.kernel) one.device = ToString(rated.device);
    one.place = candidate.kernel ? candidate.kernel->Place() : "";
    one.config = candidate.number;
    one.variant = candidate.config.variant;
    one.layouts = LayoutsText(candidate.config);
    one.cost_ns = candidate.config.cost_ns;
    one.conversion_ns = rated.conversion_ns;
    one.why_not = rating.WhyNot(static_cast<int>(i));
    const int place = static_cast<int>(i);
    if (candidate.kernel == choice.kernel && rated.device == choice.device &&
        candidate.number == choice.config_number) {
      out.chosen = place;
      one.why_not.clear();
    } else if (candidate.dropped.empty() && out.runner_up < 0) {
      out.runner_up = place;
    }
  }
}

// Returns ", 128 bytes" for a node that communicates (opkit/cluster/operators.hpp), else nothing.
OPKIT_COLD inline std::string CommunicatedBytes(const Specialization& found, int node) {
  if (!found.view().graph().node(node).type().starts_with("opkit.cluster.")) return "";
  uint64_t sent = 0, received = 0;
  for (const TensorInfo& info : found.types().Of(found.view().inputs(node)))
    sent += OpSchema::Bytes(info);
  for (const TensorInfo& info : found.types().Of(found.view().outputs(node)))
    received += OpSchema::Bytes(info);
  return StrCat(", ", (std::max)(sent, received), " bytes");
}

OPKIT_COLD inline void ExplainNodes(const Specialization& found,
                                    std::vector<Explanation::Node>& nodes,
                                    Explanation& explanation) {
  for (const Graph::Constant& constant : found.view().graph().constants())
    explanation.converted_constants += found.plan_view().FindValue(constant.name) < 0;
  for (int step = 0; step < found.schedule().size(); ++step) {
    const int node = found.schedule().original_of(step);
    const OperatorDef& def = found.view().graph().node(node);
    Explanation::Node& out = nodes.emplace_back();
    out.name = SelectionName(def);
    out.text = ToString(def) + CommunicatedBytes(found, node);
    if (const std::vector<int> parts = found.PartsOf(node); !parts.empty()) {
      ExplainNode(found, parts[0], out);
      for (const int part : parts)
        if (parts.size() > 1) out.parts.push_back(ToString(found.plan_view().graph().node(part)));
      for (const std::unique_ptr<PlannedBody>& body : found.BodiesOf(node)) {
        out.bodies.push_back({body->name, {}});
        ExplainNodes(*body->plan, out.bodies.back().nodes, explanation);
      }
      continue;
    }
    const TensorInfo& from = found.types()[found.view().inputs(node)[0]];
    const TensorInfo& to = found.types()[found.view().outputs(node)[0]];
    const bool copies = MemoryDevice(from.device) != MemoryDevice(to.device);
    copies ? ExplainCopy(from, to, out) : ExplainConverter(from, to, out);
    ++(copies ? explanation.copies : explanation.converters);
    (copies ? explanation.copied_bytes : explanation.converted_bytes) += out.bytes;
  }
}

OPKIT_COLD OPKIT_INLINE Explanation ExplainSelection(const Specialization& found) {
  const RegistryUse use;
  Explanation explanation;
  ExplainNodes(found, explanation.nodes, explanation);
  return explanation;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_EXPLAIN_SELECTION_IPP_

// The box in which a node carries a graph, and what a node is that runs it.
#ifndef OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_
#define OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_

#include <algorithm>

#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/subgraph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class OPKIT_EXPORT GraphInNode final : public CarriedGraph {
 public:
  using CarriedGraph::CarriedGraph;
  bool Equals(const SubgraphBase& other) const override {
    const Graph* inner = GraphOf(other);
    return inner && SameGraph(graph, *inner);
  }
  std::string Describe() const override {
    std::vector<std::string> inputs;
    for (const GraphInput& input : graph.inputs()) inputs.push_back(input.name);
    return StrCat("graph ", inputs, " -> ", graph.outputs(), " of ", graph.num_nodes(), " nodes");
  }
  void Infer(InferenceContext& context) const override {
    if (Index(context.num_inputs()) == graph.inputs().size() &&
        Index(context.num_outputs()) == graph.outputs().size())
      // Its operator runs the graph itself, and may have operators that nobody else has.
      InferAsBody(context, graph, "the graph", UnknownOperators::kAllowed);
  }
  bool MakeGradient(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                    GradientNames& names, GradientOpsMeta& meta) const override {
    return MakeBodyGradient(graph, def, g_output, names, meta);
  }
  std::vector<int> MutatedInputs() const override {
    std::vector<int> mutated;
    for (const OperatorDef& def : graph.nodes())
      ForEachRewritten(def, [&](const std::string& name) {
        for (size_t i = 0; i < graph.inputs().size(); ++i)
          if (graph.inputs()[i].name == name && !std::ranges::count(mutated, static_cast<int>(i)))
            mutated.push_back(static_cast<int>(i));
      });
    return mutated;
  }
};

}  // namespace detail

OPKIT_INLINE detail::IntrusivePtr<const SubgraphBase> MakeSubgraph(Graph graph) {
  return detail::MakeIntrusive<detail::GraphInNode>(std::move(graph));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_

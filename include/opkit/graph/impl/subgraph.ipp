// MakeSubgraph's definition: the SubgraphBase of a Graph, with the inference, the gradient and the
// rewritten inputs of a node that runs it.
#ifndef OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_
#define OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_

#include <algorithm>

#include "opkit/graph/body_inference.hpp"
#include "opkit/graph/subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The GraphSubgraph of MakeSubgraph.
class OPKIT_VISIBLE GraphInNode final : public GraphSubgraph {
 public:
  using GraphSubgraph::GraphSubgraph;
  IntrusivePtr<const SubgraphBase> With(Graph contents) const override {
    return MakeIntrusive<GraphInNode>(std::move(contents));
  }
  bool Equals(const SubgraphBase& other) const override {
    const Graph* inner = GraphOf(other);
    return inner && SameGraph(graph, *inner);
  }
  std::string Describe() const override {
    std::vector<std::string> inputs;
    for (const Graph::Input& input : graph.inputs()) inputs.push_back(input.name);
    return StrCat("graph ", inputs, " -> ", graph.outputs(), " of ", graph.num_nodes(), " nodes");
  }
  void Infer(InferenceContext& context) const override {
    if (g_infer_graph_subgraph) g_infer_graph_subgraph(graph, context);
  }
  bool MakeGradient(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                    GradientNames& names, GradientOpsMeta& meta) const override {
    return g_make_graph_gradient && g_make_graph_gradient(graph, def, g_output, names, meta);
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

OPKIT_INLINE detail::IntrusivePtr<const detail::SubgraphBase> MakeSubgraph(Graph graph) {
  detail::UseInferenceOfGraphSubgraphs();
  return detail::MakeIntrusive<detail::GraphInNode>(std::move(graph));
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_SUBGRAPH_IPP_

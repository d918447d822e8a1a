// Extra inputs of subgraph operators. A pass of a library for MXNet may add inputs to a node that
// carries a subgraph, for the operator alone; the attribute __ext_extra_inputs__ has their number.
// opkit's nodes have an input for each input of their subgraph. So the subgraph gets inputs that no
// node of it reads, and the library sees it without them.
#ifndef OPKIT_INTEROP_MXNET_EXTRA_INPUTS_HPP_
#define OPKIT_INTEROP_MXNET_EXTRA_INPUTS_HPP_

#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// MX_STR_EXTRA_INPUTS of lib_api.h.
inline constexpr std::string_view kMxnetExtraInputs = "__ext_extra_inputs__";

// Returns the number that the attribute gives; 0 without it. Throws kInvalidArgument for another
// text.
inline size_t MxnetExtraInputs(const std::string& text) {
  const std::optional<int64_t> count = ParseText<int64_t>(text);
  if (!count || *count < 0)
    Throw(ErrorCode::kInvalidArgument, "attribute '", kMxnetExtraInputs, "' is \"", text,
          "\", expected a number of inputs");
  return Index(*count);
}

// Returns the graph in which the subgraph of each node has an input for every input of the node.
inline Graph WithExtraInputs(Graph graph) {
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const Attribute* const extra = graph.node(i).args().Find(kMxnetExtraInputs);
    if (!extra || graph.node(i).subgraphs().size() != 1) continue;
    static_cast<void>(MxnetExtraInputs(AttributeText(*extra)));
    OperatorDef def = graph.node(i);
    const NamedSubgraph carried = def.subgraphs()[0];
    const Graph* const inner = GraphOf(*carried.graph);
    if (!inner || inner->inputs().size() >= def.inputs().size()) continue;
    Graph body = *inner;
    for (size_t k = inner->inputs().size(); k < def.inputs().size(); ++k)
      body.AddInput(body.FreshName(def.inputs()[k]), DType::kUndefined, {});
    def.Subgraph(carried.name, MakeSubgraph(std::move(body)));
    graph.ReplaceNode(i, std::move(def));
  }
  return graph;
}

// Returns the subgraph without its last `count` inputs. Throws kInvalidArgument if it has fewer.
inline Graph WithoutExtraInputs(const Graph& body, size_t count) {
  if (count > body.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "attribute '", kMxnetExtraInputs, "' says ", count,
          " inputs, but the subgraph has ", body.inputs().size());
  Graph out;
  for (size_t i = 0; i < body.inputs().size() - count; ++i) {
    const Graph::Input& input = body.inputs()[i];
    out.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
  }
  for (const Graph::Constant& constant : body.constants())
    out.AddConstant(constant.name, constant.value);
  for (const OperatorDef& node : body.nodes()) out.AddNode(node);
  for (const std::string& output : body.outputs()) out.AddOutput(output);
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_EXTRA_INPUTS_HPP_

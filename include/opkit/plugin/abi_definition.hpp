// The reverse of abi_node.hpp: an opkit_node, with the graphs it carries, as an OperatorDef.
#ifndef OPKIT_PLUGIN_ABI_DEFINITION_HPP_
#define OPKIT_PLUGIN_ABI_DEFINITION_HPP_

#include "opkit/plugin/abi_node.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Graphs>
IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from);

// Copies everything.
template <class Graphs = Graph>
OperatorDef DefinitionOfAbi(const opkit_node& node) {
  OperatorDef def(node.op, {node.inputs, node.inputs + node.num_inputs},
                  {node.outputs, node.outputs + node.num_outputs},
                  ArgumentsOfAbi(node.attrs, node.num_attrs));
  if (node.name) def.Name(node.name);
  def.Device({static_cast<DeviceType>(node.device_type), node.device_index});
  for (uint64_t i = 0; i < node.num_graphs; ++i)
    def.Subgraph(node.graphs[i]->name, SubgraphOfAbi<Graphs>(*node.graphs[i]));
  return def;
}

template <class Graphs>
IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from) {
  Graphs graph;
  for (uint64_t i = 0; i < from.num_inputs; ++i)
    graph.AddInput(from.inputs[i], DType::kUndefined, {});
  for (uint64_t i = 0; i < from.num_constants; ++i) {
    Tensor copy;
    copy.CopyFrom(TensorOfView(*from.constants[i]));
    graph.AddConstant(from.constant_names[i], std::move(copy));
  }
  for (uint64_t i = 0; i < from.num_nodes; ++i)
    graph.AddNode(DefinitionOfAbi<Graphs>(*from.nodes[i]));
  for (uint64_t i = 0; i < from.num_outputs; ++i) graph.AddOutput(from.outputs[i]);
  return MakeSubgraph(std::move(graph));
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_ABI_DEFINITION_HPP_

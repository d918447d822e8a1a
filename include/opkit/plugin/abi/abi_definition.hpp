// The reverse of abi_node.hpp: an opkit_node, with the graphs it carries, as an OperatorDef. For
// the definitions of plugin/.
#ifndef OPKIT_PLUGIN_ABI_ABI_DEFINITION_HPP_
#define OPKIT_PLUGIN_ABI_ABI_DEFINITION_HPP_

#include "opkit/plugin/abi/abi_node.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from);

// Names that a library hands over.
inline std::vector<std::string> NamesOfAbi(const char* const* names, uint64_t count,
                                           const char* what) {
  if (count > kMostParts || (count > 0 && !names))
    Throw(ErrorCode::kInvalidArgument, "a node has ", count, " ", what,
          names ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i)
    if (!names[i])
      Throw(ErrorCode::kInvalidArgument, "a node's ", what, " have a null name at ", i);
  return {names, names + count};
}

// Copies everything; the types of inputs of graphs inside do not cross. Error (kInvalidArgument)
// for what is no node.
inline OperatorDef DefinitionOfAbi(const opkit_node& node) {
  if (node.size < kNodeBytes || !node.op || node.num_graphs > kMostParts ||
      (node.num_graphs > 0 && !node.graphs))
    Throw(ErrorCode::kInvalidArgument,
          "a node is shorter than version 1.0's, names no operator or has graphs that are null or "
          "too many");
  OperatorDef def(node.op, NamesOfAbi(node.inputs, node.num_inputs, "inputs"),
                  NamesOfAbi(node.outputs, node.num_outputs, "outputs"),
                  ArgumentsOfAbi(node.attrs, node.num_attrs));
  if (node.name) def.Name(node.name);
  def.Device({static_cast<DeviceType>(node.device_type), node.device_index});
  for (uint64_t i = 0; i < node.num_graphs; ++i) {
    if (!node.graphs[i] || node.graphs[i]->size < kGraphBytes || !node.graphs[i]->name)
      Throw(ErrorCode::kInvalidArgument, "graph ", i, " of a node ", node.op,
            " is null, shorter than version 1.0's or has no name");
    def.Subgraph(node.graphs[i]->name, SubgraphOfAbi(*node.graphs[i]));
  }
  return def;
}

inline IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from) {
  Graph graph;
  for (const std::string& input : NamesOfAbi(from.inputs, from.num_inputs, "graph inputs"))
    graph.AddInput(input, DType::kUndefined, {});
  const auto constants = NamesOfAbi(from.constant_names, from.num_constants, "graph constants");
  for (size_t i = 0; i < constants.size(); ++i) {
    if (const std::string problem = ProblemOfView(from.constants ? from.constants[i] : nullptr);
        !problem.empty())
      Throw(ErrorCode::kInvalidArgument, "constant '", constants[i], "' of graph ", from.name, " ",
            problem);
    Tensor copy;
    copy.CopyFrom(TensorOfView(*from.constants[i]));
    graph.AddConstant(constants[i], std::move(copy));
  }
  if (from.num_nodes > kMostParts || (from.num_nodes > 0 && !from.nodes))
    Throw(ErrorCode::kInvalidArgument, "graph ", from.name, " has ", from.num_nodes, " nodes",
          from.nodes ? "" : ", which are null");
  for (uint64_t i = 0; i < from.num_nodes; ++i) {
    if (!from.nodes[i])
      Throw(ErrorCode::kInvalidArgument, "node ", i, " of graph ", from.name, " is null");
    graph.AddNode(DefinitionOfAbi(*from.nodes[i]));
  }
  for (std::string& output : NamesOfAbi(from.outputs, from.num_outputs, "graph outputs"))
    graph.AddOutput(std::move(output));
  return MakeSubgraph(std::move(graph));
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_ABI_ABI_DEFINITION_HPP_

// Conversion between Graph and the opkit_graph of opkit_abi.h, in which graphs are passed to and
// from libraries and operators of functions. Only files with definitions include this file.
#ifndef OPKIT_GRAPH_ABI_GRAPH_HPP_
#define OPKIT_GRAPH_ABI_GRAPH_HPP_

#include <map>
#include <optional>

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The limit for the nodes, and for each list of names, of an opkit_graph.
inline constexpr uint64_t kMostNodes = 10'000'000;

// An opkit_graph and the data that it points to. It includes the types of all values that `types`
// has. If `types` is null, it includes only the types that the graph declares for its inputs.
struct AbiGraph : RefCounted {
  explicit AbiGraph(const GraphView& graph_view, std::string graph_name = {},
                    const GraphTypes* types = nullptr)
      : name(std::move(graph_name)), order(graph_view.order()) {
    const Graph& graph = graph_view.graph();
    for (const auto& input : graph.inputs()) names.push_back(input.name);
    const size_t num_inputs = names.size();
    for (const std::string& output : graph.outputs()) names.push_back(output);
    const size_t num_outputs = names.size() - num_inputs;
    std::vector<Tensor> values;
    for (const auto& constant : graph.constants()) {
      names.push_back(constant.name);
      values.push_back(constant.value);
    }
    constants = MakeIntrusive<AbiAttributes>(Arguments{{"constants", values}});
    for (const std::string& text : names) pointers.push_back(text.c_str());
    for (int node : order) nodes.push_back(MakeIntrusive<AbiNode>(graph.node(node)));
    for (const auto& node : nodes) node_pointers.push_back(&node->node());
    view.size = sizeof view;
    view.name = name.c_str();
    view.num_inputs = num_inputs;
    view.inputs = pointers.data();
    view.num_outputs = num_outputs;
    view.outputs = pointers.data() + num_inputs;
    view.num_constants = values.size();
    view.constant_names = pointers.data() + num_inputs + num_outputs;
    view.constants = (*constants->data())->tensors;
    view.num_nodes = node_pointers.size();
    view.nodes = node_pointers.data();
    if (types)
      for (int value = 0; value < graph_view.num_values(); ++value)
        AddType(graph_view.name(value), (*types)[value]);
    else
      for (const Graph::Input& input : graph.inputs()) AddType(input.name, input.info);
    ShowTypes();
  }

  std::string name;
  std::vector<int> order;  // the index in the graph of each node of `view`
  std::vector<std::string> names;
  std::vector<const char*> pointers;
  IntrusivePtr<AbiAttributes> constants;
  std::vector<IntrusivePtr<AbiNode>> nodes;
  std::vector<const opkit_node*> node_pointers;
  opkit_graph view{};

 private:
  void AddType(const std::string& value, TensorInfo info) {
    if (info.shape.has_rank() && info.shape.rank() > OPKIT_MAX_RANK) info.shape = {};
    value_names_.push_back(value);
    infos_.push_back(std::move(info));
  }
  void ShowTypes() {
    for (const std::string& text : value_names_) value_pointers_.push_back(text.c_str());
    values_.emplace(infos_, symbols_);
    for (size_t i = 0; i < infos_.size(); ++i)
      if (infos_[i].constant) values_->SetConstant(i, *infos_[i].constant);
    view.num_values = value_pointers_.size();
    view.value_names = value_pointers_.data();
    view.values = values_->data();
  }

  std::vector<std::string> symbols_, value_names_;
  std::vector<TensorInfo> infos_;
  std::vector<const char*> value_pointers_;
  std::optional<AbiValues> values_;
};

inline void AddAbiGraphs(const OperatorDef& def, RefCountedList& graphs,
                         std::vector<const opkit_graph*>& pointers) {
  for (const NamedSubgraph& item : def.subgraphs())
    if (const Graph* graph = GraphOf(*item.graph)) {
      const GraphView view(*graph);
      GraphTypes types(view);  // the declared types; others depend on the enclosing graph
      for (size_t i = 0; i < graph->inputs().size(); ++i)
        types[static_cast<int>(i)] = graph->inputs()[i].info;
      auto added = MakeIntrusive<AbiGraph>(view, item.name, &types);
      pointers.push_back(&added->view);
      graphs.push_back(std::move(added));
    }
}

// Makes the tensor of a constant from its view in an opkit_graph.
using ConstantOfAbi = FunctionRef<Tensor(const std::string& name, const opkit_tensor& view)>;
inline Tensor CopyConstant(const std::string&, const opkit_tensor& view) {
  Tensor copy;
  copy.CopyFrom(TensorOfView(view));
  return copy;
}
// Makes a Graph of an opkit_graph. `origin` is the graph from which the opkit_graph was made; null
// if it is unknown. An input has the type of the input of that name in `origin`, else the type that
// the opkit_graph lists for it. Throws kInvalidArgument for an invalid struct.
inline Graph GraphOfAbi(const opkit_graph* graph_of, ConstantOfAbi constant_of,
                        const Graph* origin = nullptr) {
  if (!IsReadable(graph_of))
    Throw(ErrorCode::kInvalidArgument, "a graph is null or shorter than version 1.0's");
  const opkit_graph& from = *graph_of;
  const std::string what = TextOfAbi(from.name);
  Graph graph;
  std::map<std::string, const opkit_value*> known;
  if (OPKIT_ABI_HAS(&from, values) && from.num_values > 0) {
    if (!IsReadable(from.values))
      Throw(ErrorCode::kInvalidArgument, "the values of graph ", what,
            " are null or shorter than version 1.0's");
    uint64_t i = 0;
    for (std::string& value :
         NamesOfAbi(from.value_names, from.num_values, "graph values", kMostNodes))
      known.emplace(std::move(value), opkit_value_at(const_cast<opkit_value*>(from.values), i++));
  }
  for (const std::string& input :
       NamesOfAbi(from.inputs, from.num_inputs, "graph inputs", kMostNodes)) {
    const auto value = known.find(input);
    TensorInfo info;
    if (value != known.end()) info = InfoOfAbi(*value->second);
    if (const Graph::Input* same = origin ? origin->FindInput(input) : nullptr) info = same->info;
    graph.AddInput(input, info.dtype, info.shape, info.device);
  }
  const auto constants =
      NamesOfAbi(from.constant_names, from.num_constants, "graph constants", kMostNodes);
  if (!IsAligned(from.constants))
    Throw(ErrorCode::kInvalidArgument, "the constants of graph ", what, " are not aligned");
  for (size_t i = 0; i < constants.size(); ++i) {
    if (const std::string problem = ProblemOfView(from.constants ? from.constants[i] : nullptr);
        !problem.empty())
      Throw(ErrorCode::kInvalidArgument, "constant '", constants[i], "' of graph ", what, " ",
            problem);
    graph.AddConstant(constants[i], constant_of(constants[i], *from.constants[i]));
  }
  if (from.num_nodes > kMostNodes || (from.num_nodes > 0 && !IsUsable(from.nodes)))
    Throw(ErrorCode::kInvalidArgument, "graph ", what, " has ", from.num_nodes, " nodes",
          from.nodes ? "" : ", which are null");
  for (uint64_t i = 0; i < from.num_nodes; ++i)
    graph.AddNode(InContext([&] { return DefinitionOfAbi(from.nodes[i]); },
                            [&] { return StrCat("in node ", i, " of graph ", what); }));
  for (std::string& output :
       NamesOfAbi(from.outputs, from.num_outputs, "graph outputs", kMostNodes))
    graph.AddOutput(std::move(output));
  return graph;
}

inline IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from) {
  return MakeSubgraph(GraphOfAbi(&from, &CopyConstant));
}
[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kGraphsCross =
    g_add_abi_graphs.Fill(&AddAbiGraphs) && g_subgraph_of_abi.Fill(&SubgraphOfAbi);

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_ABI_GRAPH_HPP_

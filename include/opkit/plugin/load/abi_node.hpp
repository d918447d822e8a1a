// Nodes, and inference's knowledge of their values, as opkit_abi.h passes them to a library. For
// the definitions of plugin/. The graphs that nodes carry are in plugin/load/abi_graph.hpp.
#ifndef OPKIT_PLUGIN_LOAD_ABI_NODE_HPP_
#define OPKIT_PLUGIN_LOAD_ABI_NODE_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/op/abi/abi_attributes.hpp"
#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Of plugin/load/abi_graph.hpp: adds the graphs that a node carries to what keeps them and to the
// pointers, and copies one.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const OperatorDef&, RefCountedList&,
                                             std::vector<const opkit_graph*>&)>
    g_add_abi_graphs{"a node that carries graphs, in a library,", "opkit/graph.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<const SubgraphBase>(const opkit_graph&)>
    g_subgraph_of_abi{"a node that carries graphs, in a library,", "opkit/graph.hpp"};

inline constexpr const char* kAbiSymbol = "s";  // what names of symbols begin with, in a library

// An opkit_node, and the data that it points to.
class AbiNode : public RefCounted {
 public:
  explicit AbiNode(const OperatorDef& def) : def_(def), attributes_(def_.args()) {
    Point(def_.inputs(), inputs_);
    Point(def_.outputs(), outputs_);
    if (!def_.subgraphs().empty()) g_add_abi_graphs(def_, graphs_, graph_pointers_);
    node_.size = sizeof node_;
    node_.op = def_.type().c_str();
    node_.name = def_.name().c_str();
    node_.device_type = static_cast<int32_t>(def_.device().type);
    node_.device_index = def_.device().index;
    node_.num_inputs = inputs_.size();
    node_.inputs = inputs_.data();
    node_.num_outputs = outputs_.size();
    node_.outputs = outputs_.data();
    node_.num_attrs = attributes_.size();
    node_.attrs = attributes_.data();
    node_.num_graphs = graph_pointers_.size();
    node_.graphs = graph_pointers_.data();
    Point(def_.control_inputs(), control_inputs_);
    node_.num_control_inputs = control_inputs_.size();
    node_.control_inputs = control_inputs_.data();
    node_.backend = def_.engine().c_str();
    node_.is_gradient = def_.is_gradient_op();
  }
  const opkit_node& node() const { return node_; }

 private:
  static void Point(const std::vector<std::string>& names, std::vector<const char*>& pointers) {
    for (const std::string& name : names) pointers.push_back(name.c_str());
  }

  const OperatorDef def_;
  AbiAttributes attributes_;
  std::vector<const char*> inputs_, outputs_, control_inputs_;
  RefCountedList graphs_;  // of AbiGraph
  std::vector<const opkit_graph*> graph_pointers_;
  opkit_node node_{};
};

// Knowledge of values as an array of opkit_value, which a library refines.
class AbiValues {
 public:
  // Symbols have a number each in `symbols`, which inputs and outputs share.
  AbiValues(std::span<const TensorInfo> infos, std::vector<std::string>& symbols)
      : symbols_(symbols), values_(infos.size()) {
    for (size_t i = 0; i < infos.size(); ++i) {
      const TensorInfo& info = infos[i];
      opkit_value& value = values_[i];
      value.size = sizeof value;
      value.present = 1;
      value.dtype = info.dtype == DType::kUndefined ? -1 : static_cast<int32_t>(info.dtype);
      value.rank = -1;
      if (!info.layout.descriptor && g_layout_name_pointer)
        value.layout = g_layout_name_pointer(info.layout.id);
      if (!info.shape.has_rank()) continue;
      if (info.shape.rank() > OPKIT_MAX_RANK)
        Throw(ErrorCode::kUnsupported, "a value of ", info.shape.rank(),
              " axes cannot be passed to a library; ", OPKIT_MAX_RANK, " are the most");
      value.rank = info.shape.rank();
      for (int axis = 0; axis < value.rank; ++axis) value.dims[axis] = Number(info.shape[axis]);
    }
  }
  AbiValues(const AbiValues&) = delete;

  opkit_value* data() { return values_.data(); }
  opkit_value& operator[](size_t i) { return values_[i]; }
  void SetConstant(size_t i, const Tensor& tensor) {
    constants_.push_back(MakeIntrusive<AbiAttributes>(Arguments{{"constant", tensor}}));
    values_[i].constant = (*constants_.back()->data())->tensors[0];
  }
  DType dtype(size_t i, const char* what) const {
    const int32_t dtype = values_[i].dtype;
    if (dtype < -1 || dtype >= kNumDTypes)
      Throw(ErrorCode::kInvalidArgument, "it says dtype ", dtype, " for ", what, " ", i,
            ", which does not exist");
    return dtype < 0 ? DType::kUndefined : static_cast<DType>(dtype);
  }
  SymbolicShape shape(size_t i, const char* what) const {
    const opkit_value& value = values_[i];
    if (value.rank < -1 || value.rank > OPKIT_MAX_RANK)
      Throw(ErrorCode::kInvalidArgument, "it says rank ", value.rank, " for ", what, " ", i);
    if (value.rank < 0) return {};
    std::vector<Dim> dims;
    for (int axis = 0; axis < value.rank; ++axis) {
      const int64_t extent = value.dims[axis];
      const uint64_t symbol = extent < -1 ? static_cast<uint64_t>(-2 - extent) : 0;
      if (extent < -1 && symbol >= symbols_.size())
        Throw(ErrorCode::kInvalidArgument, "it says extent ", extent, " on axis ", axis, " of ",
              what, " ", i, "; -1 is unknown");
      dims.push_back(extent >= 0    ? Dim(extent)
                     : extent == -1 ? Dim()
                                    : Sym(symbols_[Index(symbol)]));
    }
    return SymbolicShape(std::move(dims));
  }

 private:
  int64_t Number(const Dim& dim) {
    if (dim.is_known()) return dim.value();
    if (!dim.is_symbol()) return -1;
    for (size_t i = 0; i < symbols_.size(); ++i)
      if (symbols_[i] == dim.symbol()) return -2 - static_cast<int64_t>(i);
    symbols_.push_back(dim.symbol());
    return -1 - static_cast<int64_t>(symbols_.size());
  }

  std::vector<std::string>& symbols_;
  std::vector<opkit_value> values_;
  std::vector<IntrusivePtr<AbiAttributes>> constants_;
};

// Names that a library hands over.
inline std::vector<std::string> NamesOfAbi(const char* const* names, uint64_t count,
                                           const char* what, uint64_t most = kMostParts) {
  if (count > most || (count > 0 && !names))
    Throw(ErrorCode::kInvalidArgument, "a node has ", count, " ", what,
          names ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i)
    if (!names[i])
      Throw(ErrorCode::kInvalidArgument, "a node's ", what, " have a null name at ", i);
  return {names, names + count};
}

// Copies everything; the types of inputs of graphs inside do not cross. Error (kInvalidArgument)
// for a struct that is no node.
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
  if (OPKIT_ABI_HAS(&node, is_gradient)) {
    for (std::string& name :
         NamesOfAbi(node.control_inputs, node.num_control_inputs, "control inputs"))
      def.ControlInput(std::move(name));
    if (node.backend) def.Engine(node.backend);
    def.IsGradientOp(node.is_gradient != 0);
  }
  def.Device({static_cast<DeviceType>(node.device_type), node.device_index});
  for (uint64_t i = 0; i < node.num_graphs; ++i) {
    if (!node.graphs[i] || node.graphs[i]->size < kGraphBytes || !node.graphs[i]->name)
      Throw(ErrorCode::kInvalidArgument, "graph ", i, " of a node ", node.op,
            " is null, shorter than version 1.0's or has no name");
    def.Subgraph(node.graphs[i]->name, g_subgraph_of_abi(*node.graphs[i]));
  }
  return def;
}

// A dtype and shape as the other side knows them. Symbols have names by their numbers.
inline TensorInfo InfoOfAbi(const opkit_value& value) {
  TensorInfo info;
  if (value.dtype > 0 && value.dtype < kNumDTypes) info.dtype = static_cast<DType>(value.dtype);
  if (value.rank < 0 || value.rank > OPKIT_MAX_RANK) return info;
  std::vector<Dim> dims;
  for (int axis = 0; axis < value.rank; ++axis) {
    const int64_t extent = value.dims[axis];
    dims.push_back(extent >= 0    ? Dim(extent)
                   : extent == -1 ? Dim()
                                  : Sym(StrCat(kAbiSymbol, -2 - extent)));
  }
  info.shape = SymbolicShape(std::move(dims));
  return info;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_ABI_NODE_HPP_

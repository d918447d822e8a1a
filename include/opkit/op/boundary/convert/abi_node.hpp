// Nodes and the types of their values, as opkit_abi.h passes them to an operator's functions. Only
// definitions include this header. graph/abi_graph.hpp has the graphs that nodes carry.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_

#include <list>

#include "opkit/base/hook.hpp"
#include "opkit/base/interned_names.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/op/inference.hpp"
#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Hooks that graph/abi_graph.hpp fills. The first adds a node's graphs to the list of their owners
// and to the list of pointers; the second copies a graph.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const OperatorDef&, RefCountedList&,
                                             std::vector<const opkit_graph*>&)>
    g_add_abi_graphs{"the node of an operator that carries graphs", "opkit/partition.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<const SubgraphBase>(const opkit_graph&)>
    g_subgraph_of_abi{"a node that carries graphs, in a library,", "opkit/graph.hpp"};

// Converts extents: a known extent, -1 for unknown, or a lower number for a symbol. A host uses the
// numbers of interned names, so that a node's own graph and the graph around the node use the same
// numbers. A library names a symbol by its number, "s12".
inline constexpr const char* kAbiSymbol = "s";
OPKIT_IMAGE_LOCAL inline int64_t AbiExtent(const Dim& dim) {
  if (dim.is_known()) return dim.value();
  if (!dim.is_symbol()) return -1;
  const std::string& name = dim.symbol();
  if (!IsLoadedLibrary()) return -1 - int64_t{InternName(name)};
  if (name.size() < 2 || name[0] != *kAbiSymbol) return -1;
  int64_t number = 0;
  for (const char c : std::string_view(name).substr(1)) {
    if (c < '0' || c > '9' || number > UINT32_MAX) return -1;
    number = 10 * number + (c - '0');
  }
  return -2 - number;
}
OPKIT_IMAGE_LOCAL inline Dim DimOfAbi(int64_t extent) {
  if (extent >= 0) return Dim(extent);
  if (extent == -1) return {};
  if (IsLoadedLibrary()) return Sym(StrCat(kAbiSymbol, -2 - extent));
  const int64_t number = extent < -int64_t{UINT32_MAX} ? 0 : -1 - extent;
  const std::string name = InternedName(static_cast<uint32_t>(number));
  return name.empty() ? Dim() : Sym(name);
}

// An opkit_node with the data that it points to.
class AbiNode : public RefCounted {
 public:
  explicit AbiNode(const OperatorDef& def) : def_(def), attributes_(def_.args()) {
    node_.size = sizeof node_;
    node_.op = def_.type().c_str();
    node_.name = def_.name().c_str();
    node_.device_type = static_cast<int32_t>(def_.device().type);
    node_.device_index = def_.device().index;
    Point(def_.inputs(), inputs_);
    Put(inputs_, node_.num_inputs, node_.inputs);
    Point(def_.outputs(), outputs_);
    Put(outputs_, node_.num_outputs, node_.outputs);
    Put(attributes_, node_.num_attrs, node_.attrs);
    if (!def_.subgraphs().empty()) g_add_abi_graphs(def_, graphs_, graph_pointers_);
    Put(graph_pointers_, node_.num_graphs, node_.graphs);
    Point(def_.control_inputs(), control_inputs_);
    Put(control_inputs_, node_.num_control_inputs, node_.control_inputs);
    node_.backend = def_.backends().c_str();
    node_.is_gradient = def_.is_gradient_op();
  }
  const opkit_node& node() const { return node_; }

 private:
  static void Point(const std::vector<std::string>& names, std::vector<const char*>& pointers) {
    for (const std::string& name : names) pointers.push_back(name.c_str());
  }

  static void Put(const auto& list, uint64_t& count, auto& pointer) {
    count = list.size();
    pointer = list.data();
  }
  const OperatorDef def_;
  AbiAttributes attributes_;
  std::vector<const char*> inputs_, outputs_, control_inputs_;
  RefCountedList graphs_;  // list of AbiGraph
  std::vector<const opkit_graph*> graph_pointers_;
  opkit_node node_{};
};

// The types of values as an array of opkit_value, which a library refines.
class AbiValues {
 public:
  // Adds the symbols of these values to `symbols`; a library's result may use no others.
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
      for (int axis = 0; axis < value.rank; ++axis) {
        const Dim& dim = info.shape[axis];
        value.dims[axis] = AbiExtent(dim);
        if (dim.is_symbol()) symbols_.push_back(dim.symbol());
      }
    }
  }
  AbiValues(const AbiValues&) = delete;

  opkit_value* data() { return values_.data(); }
  const opkit_value& operator[](size_t i) const { return values_[i]; }
  // Prepares the inputs of a node: marks the left-out inputs, and passes constants.
  void SetInputs(const OperatorDef& def, std::span<const TensorInfo> infos) {
    for (size_t i = 0; i < infos.size(); ++i) {
      values_[i].present = !def.inputs()[i].empty();
      if (infos[i].constant) SetConstant(i, *infos[i].constant);
    }
  }
  void SetConstant(size_t i, const Tensor& tensor) {
    constants_.push_back(MakeIntrusive<AbiAttributes>(Arguments{{"constant", tensor}}));
    values_[i].constant = (*constants_.back()->data())->tensors[0];
  }
  DType dtype(size_t i, const char* what) const {
    const int32_t dtype = values_[i].dtype;
    if (dtype < -1 || dtype >= kNumPlainDTypes)
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
      dims.push_back(DimOfAbi(extent));
      if (extent < -1 && !IsKnownSymbol(dims.back()))
        Throw(ErrorCode::kInvalidArgument, "it says extent ", extent, " on axis ", axis, " of ",
              what, " ", i, "; -1 is unknown");
    }
    return SymbolicShape(std::move(dims));
  }

 private:
  bool IsKnownSymbol(const Dim& dim) const {
    for (const std::string& symbol : symbols_)
      if (dim.is_symbol() && dim.symbol() == symbol) return true;
    return false;
  }

  std::vector<std::string>& symbols_;
  std::vector<opkit_value> values_;
  std::vector<IntrusivePtr<AbiAttributes>> constants_;
};

// A node and the types of its values, in the form of opkit_abi.h.
struct AbiQuery {
  AbiQuery(const OperatorDef& def, std::span<const TensorInfo> in, std::span<const TensorInfo> out)
      : node(def), inputs(in, symbols), outputs(out, symbols) {
    inputs.SetInputs(def, in);
  }
  explicit AbiQuery(const KernelQuery& query) : AbiQuery(query.def, query.inputs, query.outputs) {}
  const AbiNode node;
  std::vector<std::string> symbols;
  AbiValues inputs, outputs;
};
// Refines the facts of `context` by the other image's values, which `read` converts.
template <class Read>
void RefineBy(InferenceContext& context, const AbiValues& inputs, const AbiValues& outputs,
              Read read) {
  for (int i = 0; i < context.num_inputs(); ++i)
    if (context.HasInput(i)) {
      const TensorInfo info = read(inputs, Index(i), "input");
      context.SetInput(i, info.dtype, info.shape);
    }
  for (int o = 0; o < context.num_outputs(); ++o) {
    const TensorInfo info = read(outputs, Index(o), "output");
    context.SetOutput(o, info.dtype, info.shape);
  }
}

// Copies an array of names of the other image. Throws kInvalidArgument for a damaged one.
inline std::vector<std::string> NamesOfAbi(const char* const* names, uint64_t count,
                                           const char* what, uint64_t most = kMostParts) {
  if (count > most || (count > 0 && !IsUsable(names)))
    Throw(ErrorCode::kInvalidArgument, "a node has ", count, " ", what,
          names ? "" : ", which are null");
  std::vector<std::string> read;
  for (uint64_t i = 0; i < count; ++i) {
    if (!names[i])
      Throw(ErrorCode::kInvalidArgument, "a node's ", what, " have a null name at ", i);
    read.push_back(TextOfAbi(names[i]));
  }
  return read;
}

// Copies a node. Throws kInvalidArgument for a struct that is no valid node.
inline OperatorDef DefinitionOfAbi(const opkit_node* from) {
  if (!IsReadable(from) || !from->op || from->num_graphs > kMostParts ||
      (from->num_graphs > 0 && !IsUsable(from->graphs)))
    Throw(ErrorCode::kInvalidArgument,
          "a node is null or shorter than version 1.0's, names no operator or has graphs that are "
          "null or too many");
  const opkit_node& node = *from;
  OperatorDef def(TextOfAbi(node.op), NamesOfAbi(node.inputs, node.num_inputs, "inputs"),
                  NamesOfAbi(node.outputs, node.num_outputs, "outputs"),
                  ArgumentsOfAbi(node.attrs, node.num_attrs));
  if (node.name) def.Name(TextOfAbi(node.name));
  if (OPKIT_ABI_HAS(&node, is_gradient)) {
    for (std::string& name :
         NamesOfAbi(node.control_inputs, node.num_control_inputs, "control inputs"))
      def.ControlInput(std::move(name));
    if (node.backend) def.Backends(TextOfAbi(node.backend));
    def.IsGradientOp(node.is_gradient != 0);
  }
  def.Device({static_cast<DeviceType>(node.device_type), node.device_index});
  for (uint64_t i = 0; i < node.num_graphs; ++i) {
    if (!IsReadable(node.graphs[i]) || !node.graphs[i]->name)
      Throw(ErrorCode::kInvalidArgument, "graph ", i, " of a node ", def.type(),
            " is null, shorter than version 1.0's or has no name");
    def.Subgraph(TextOfAbi(node.graphs[i]->name), g_subgraph_of_abi(*node.graphs[i]));
  }
  return def;
}

// Reads the dtype and shape of an opkit_value. A dtype or rank that does not exist in this image is
// unknown for a library; in a program it throws kInvalidArgument.
inline TensorInfo InfoOfAbi(const opkit_value& value) {
  TensorInfo info;
  if ((value.dtype < -1 || value.dtype >= kNumPlainDTypes || value.rank < -1 ||
       value.rank > OPKIT_MAX_RANK) &&
      !IsLoadedLibrary())
    Throw(ErrorCode::kInvalidArgument, "a value of a library has the dtype ", value.dtype,
          " and the rank ", value.rank);
  if (value.dtype > 0 && value.dtype < kNumPlainDTypes)
    info.dtype = static_cast<DType>(value.dtype);
  if (value.rank < 0 || value.rank > OPKIT_MAX_RANK) return info;
  std::vector<Dim> dims;
  for (int axis = 0; axis < value.rank; ++axis) dims.push_back(DimOfAbi(value.dims[axis]));
  info.shape = SymbolicShape(std::move(dims));
  return info;
}

// The other image's array of values for inference in this image, which can store its results there.
// Throws kInvalidArgument for an array that is not valid.
class ValuesOfAbi {
 public:
  ValuesOfAbi(const opkit_value* values, uint64_t count, bool with_shapes) {
    if (count > kMostParts || (count > 0 && !IsReadable(values)))
      Throw(ErrorCode::kInvalidArgument, "a library has ", count,
            " values that are null or shorter than version 1.0's");
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
      TensorInfo& info = infos_.emplace_back(InfoOfAbi(value));
      if (!with_shapes) {
        info.shape = {};
        continue;
      }
      if (OPKIT_ABI_HAS(&value, layout) && value.layout) info.layout = KnownLayout(value.layout);
      if (value.constant) info.constant = &constants_.emplace_back(TensorOfView(*value.constant));
    }
  }
  ValuesOfAbi(const ValuesOfAbi&) = delete;
  const std::vector<TensorInfo>& infos() const { return infos_; }

  static void StoreTypes(const std::vector<TensorInfo>& infos, opkit_value* values) {
    for (size_t i = 0; i < infos.size(); ++i)
      if (infos[i].dtype != DType::kUndefined)
        opkit_value_at(values, i)->dtype = static_cast<int32_t>(infos[i].dtype);
  }
  static void StoreShapes(const std::vector<TensorInfo>& infos, opkit_value* values) {
    for (size_t i = 0; i < infos.size(); ++i) {
      const SymbolicShape& shape = infos[i].shape;
      if (!shape.has_rank()) continue;
      if (shape.rank() > OPKIT_MAX_RANK)
        Throw(ErrorCode::kOutOfRange, "inference gives a value ", shape.rank(), " axes; ",
              OPKIT_MAX_RANK, " are the most");
      opkit_value& value = *opkit_value_at(values, i);
      const bool same_rank = value.rank == shape.rank();
      value.rank = shape.rank();
      for (int axis = 0; axis < value.rank; ++axis) {
        const int64_t extent = AbiExtent(shape[axis]);
        if (extent != -1 || !same_rank) value.dims[axis] = extent;
      }
    }
  }

 private:
  // Returns the standard layout for a layout that only the other image knows.
  static Layout KnownLayout(const char* its_name) {
    const std::string name = TextOfAbi(its_name);
    if (g_registered_layouts)
      for (const RegisteredLayout& known : g_registered_layouts())
        if (known.name == name) return Layout{known.id, {}};
    return {};
  }
  std::vector<TensorInfo> infos_;
  std::list<Tensor> constants_;  // infos_ has pointers to these
};

// A copy of the other image's node and of the types of its values.
struct NodeOfAbi {
  NodeOfAbi(const opkit_node* node, const opkit_value* in, const opkit_value* out)
      : def(DefinitionOfAbi(node)),
        inputs(in, node->num_inputs, true),
        outputs(out, node->num_outputs, true) {}
  KernelQuery query() const { return {def, inputs.infos(), outputs.infos()}; }
  const OperatorDef def;
  const ValuesOfAbi inputs, outputs;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_

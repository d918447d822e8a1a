// ComputeHalfInFloat32's definition: finds the nodes that can be widened, drops those at a border
// that gain nothing, and builds the graph with a Cast at each border.
#ifndef OPKIT_GRAPH_PASSES_IMPL_HALF_PRECISION_IPP_
#define OPKIT_GRAPH_PASSES_IMPL_HALF_PRECISION_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"
#include "opkit/graph/passes/half_precision.hpp"
#include "opkit/graph/passes/node_pass.hpp"
#include "opkit/graph/passes/standard_passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The constructor marks the nodes that the pass widens, and Result builds the new graph.
class HalfWidener : NodePass {
 public:
  explicit HalfWidener(const Graph& graph)
      : NodePass(graph),
        kinds_(Index(graph.num_nodes()), Kind::kKept),
        constants_(Index(view_.num_values())) {
    if (!MayHaveHalf() || !Types()) return;
    for (const int node : view_.order())
      convolves_ |= IsStandard(node, "Conv") || IsStandard(node, "ConvTranspose");
    for (const int node : view_.order()) {
      kinds_[node] = KindOf(node);
      any_ |= kinds_[node] == Kind::kGains;
    }
    any_ &= !has_half_products_;
    if (any_) KeepBorders();
  }

  Graph Result() {
    if (!any_) return graph_;
    std::vector<Graph::Constant> constants = graph_.constants();
    std::vector<OperatorDef> nodes;
    IndexedVector<std::string> wide(Index(view_.num_values()));  // names of the float32 values
    const auto name_of = [&](int value) -> const std::string& {
      if (wide[value].empty()) wide[value] = graph_.FreshName(view_.name(value) + ".float32");
      return wide[value];
    };
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (kinds_[node] == Kind::kKept) {
        nodes.push_back(graph_.node(node));
        continue;
      }
      OperatorDef def = WideNode(node);
      const auto inputs = view_.inputs(node), outputs = view_.outputs(node);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!HoldsHalf(inputs[i])) continue;
        const bool first = wide[inputs[i]].empty();
        const std::string& name = name_of(inputs[i]);
        if (first && view_.IsConstant(inputs[i]))
          constants.push_back({name, Widened(inputs[i])});
        else if (first && !IsMadeWide(inputs[i]))
          nodes.push_back(CastOf(def, view_.name(inputs[i]), name, DType::kFloat32));
        def.mutable_inputs()[i] = name;
      }
      std::vector<OperatorDef> casts;
      for (size_t o = 0; o < outputs.size(); ++o) {
        if (!HoldsHalf(outputs[o])) continue;
        def.mutable_outputs()[o] = name_of(outputs[o]);
        if (IsReadAsHalf(outputs[o]))
          casts.push_back(CastOf(def, name_of(outputs[o]), view_.name(outputs[o]),
                                 (*Types())[outputs[o]].dtype));
      }
      nodes.push_back(std::move(def));
      for (OperatorDef& cast : casts) nodes.push_back(std::move(cast));
    }
    return WithNodes(std::move(nodes), std::move(constants));
  }

 private:
  // kGains: a fast kernel takes the node in float32. kFits: the node can be widened but gains
  // nothing by itself. kKept: the node stays as it is.
  enum class Kind : uint8_t { kKept, kFits, kGains };

  bool HoldsHalf(int value) { return value >= 0 && IsHalf((*Types())[value].dtype); }
  // False if no value of the graph can have a half type, as in most graphs: inference is not needed
  // then. Other sources of a half type than these are nodes that stay as they are.
  bool MayHaveHalf() const {
    for (const Graph::Input& input : graph_.inputs())
      if (IsHalf(input.info.dtype)) return true;
    for (const Graph::Constant& constant : graph_.constants())
      if (IsHalf(constant.value.dtype())) return true;
    return false;
  }
  bool IsMadeWide(int value) const {
    return view_.producer(value) >= 0 && kinds_[view_.producer(value)] != Kind::kKept;
  }
  bool IsReadAsHalf(int value) const {
    if (view_.IsOutput(value)) return true;
    for (const int node : view_.consumers(value))
      if (kinds_[node] == Kind::kKept) return true;
    return false;
  }
  static OperatorDef CastOf(const OperatorDef& node, const std::string& from, const std::string& to,
                            DType dtype) {
    const int64_t number = dtype == DType::kFloat32 ? 1 : dtype == DType::kFloat16 ? 10 : 16;
    return OperatorDef("Cast", {from}, {to}, {{"to", number}}).Device(node.device());
  }
  // True for a conversion of integers or bools to a half type. A conversion of floating-point
  // numbers rounds them, and stays.
  bool ConvertsIntegers(int node) {
    return IsStandard(node, "Cast") && view_.inputs(node)[0] >= 0 &&
           !IsFloatingPoint((*Types())[view_.inputs(node)[0]].dtype);
  }
  // Returns the node for values of float32, with its old names.
  OperatorDef WideNode(int node) {
    OperatorDef def = graph_.node(node);
    if (ConvertsIntegers(node)) def.Arg("to", int64_t{1});
    return def;
  }
  // Returns the constant in float32, which the first call converts.
  const Tensor& Widened(int value) {
    Tensor& wide = constants_[value];
    if (!wide.initialized())
      wide = EvaluateNode(CastOf({}, "x", "y", DType::kFloat32), {view_.constant(value)})[0];
    return wide;
  }

  // Returns the types of these values, with float32 in place of a half type.
  std::vector<TensorInfo> WideTypes(std::span<const int> values) {
    std::vector<TensorInfo> infos = Types()->Of(values);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!IsHalf(infos[i].dtype)) continue;
      infos[i].dtype = DType::kFloat32;
      infos[i].constant = view_.IsConstant(values[i]) ? &Widened(values[i]) : nullptr;
    }
    return infos;
  }
  // True if the node may be moved to float32 as far as its place in the graph and its operator say.
  bool IsFree(int node) {
    const OperatorDef& def = graph_.node(node);
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    if (!schema || !schema->is_standard() || !schema->has_inference() || !def.subgraphs().empty() ||
        HasControlEdges(node) || def.device().type != DeviceType::kCPU || RewritesInputs(def) ||
        UsesRewritten(view_, node))
      return false;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
      if (kernel->device != DeviceType::kCPU) return false;
    bool has_half = false;
    for (const int value : view_.inputs(node)) has_half |= HoldsHalf(value);
    const auto outputs = view_.outputs(node);
    for (const int value : outputs) has_half |= HoldsHalf(value);
    const bool makes_floats =
        !outputs.empty() && (outputs[0] < 0 || IsFloatingPoint((*Types())[outputs[0]].dtype));
    return has_half && makes_floats;
  }
  // True if another kernel than the plain one is selected for the node with values of these types.
  // With `unknown_fits`, a kernel counts whatever its reason for refusing the node is.
  static bool HasFastKernel(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                            const std::vector<TensorInfo>& outputs, bool unknown_fits) {
    for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs)) {
      if (candidate.backend == kReferenceBackend) return false;
      if (candidate.kernel && candidate.config.variant != kInFloat32 &&
          (unknown_fits || candidate.dropped.empty()))
        return true;
    }
    return false;
  }
  static bool AreKnown(const std::vector<TensorInfo>& infos) {
    for (const TensorInfo& info : infos)
      if (info.dtype != DType::kUndefined && !info.shape.is_known()) return false;
    return true;
  }
  // Returns these types with an extent of 16 in place of each that is not known.
  static std::vector<TensorInfo> WithExtents(std::vector<TensorInfo> infos) {
    constexpr int64_t kAssumed = 16;
    for (TensorInfo& info : infos) {
      if (!info.shape.has_rank() || info.shape.is_known()) continue;
      std::vector<Dim> dims(info.shape.dims().begin(), info.shape.dims().end());
      for (Dim& dim : dims)
        if (!dim.is_known()) dim = kAssumed;
      info.shape = SymbolicShape(std::move(dims));
    }
    return infos;
  }
  // True if a fast kernel computes the node in the half type itself. Sets has_half_products_ if it
  // is a product of matrices or a convolution: it does several operations for each element.
  bool HasFastHalfKernel(const OperatorDef& def, const OpSchema& schema,
                         std::vector<TensorInfo> inputs) {
    constexpr uint64_t kFew = 4;
    if (convolves_) return false;
    try {
      inputs = WithExtents(std::move(inputs));
      const std::vector<TensorInfo> outputs = schema.InferOutputs(def, inputs);
      if (!AreKnown(inputs) || !HasFastKernel(def, inputs, outputs, false)) return false;
      has_half_products_ |=
          !outputs.empty() && IsHalf(outputs[0].dtype) &&
          schema.Cost(def, inputs, outputs).flops > kFew * OpSchema::Elements(outputs[0]);
      return true;
    } catch (const Error&) {  // the assumed extents do not fit
      return false;
    }
  }
  Kind KindOf(int node) {
    if (!IsFree(node)) return Kind::kKept;
    const OperatorDef def = WideNode(node);
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    const std::vector<TensorInfo> inputs = WideTypes(view_.inputs(node));
    const std::vector<TensorInfo> wanted = WideTypes(view_.outputs(node));
    try {
      const std::vector<TensorInfo> outputs = schema.InferOutputs(def, inputs);
      for (size_t o = 0; o < wanted.size(); ++o)
        if (view_.outputs(node)[o] >= 0 && outputs[o].dtype != wanted[o].dtype) return Kind::kKept;
      if (ConvertsIntegers(node)) return Kind::kFits;
      if (HasFastHalfKernel(def, schema, Types()->Of(view_.inputs(node)))) return Kind::kFits;
      const bool known = AreKnown(inputs) && AreKnown(wanted);
      return HasFastKernel(def, inputs, wanted, !known) ? Kind::kGains : Kind::kFits;
    } catch (const Error&) {  // the operator does not take float32 there
      return Kind::kKept;
    }
  }
  // Keeps the nodes that gain nothing, unless they lie between two widened nodes.
  void KeepBorders() {
    for (bool changed = true; changed;) {
      changed = false;
      for (int node = 0; node < graph_.num_nodes(); ++node) {
        if (kinds_[node] != Kind::kFits || IsBetween(node)) continue;
        kinds_[node] = Kind::kKept;
        changed = true;
      }
    }
  }
  bool IsBetween(int node) {
    bool before = ConvertsIntegers(node), after = false;
    for (const int value : view_.inputs(node)) before |= HoldsHalf(value) && IsMadeWide(value);
    for (const int value : view_.outputs(node)) {
      if (!HoldsHalf(value)) continue;
      for (const int reader : view_.consumers(value)) after |= kinds_[reader] != Kind::kKept;
    }
    return before && after;
  }

  IndexedVector<Kind> kinds_;
  IndexedVector<Tensor> constants_;  // by value; the widened constants
  bool convolves_ = false;
  bool any_ = false;                // whether a node gains
  bool has_half_products_ = false;  // whether the graph is better off in its half type
};

}  // namespace detail

OPKIT_INLINE Graph ComputeHalfInFloat32(const Graph& graph) {
  return detail::HalfWidener(graph).Result();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline const bool kFillsComputeHalfInFloat32 =
    g_compute_half_in_float32.Fill(&ComputeHalfInFloat32);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_IMPL_HALF_PRECISION_IPP_

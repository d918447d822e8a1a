// InferGraph's definition: calls the schemas' inference for all nodes until a round changes nothing
// (at most 16 rounds); and the union-find of symbols.
#ifndef OPKIT_GRAPH_IMPL_GRAPH_INFERENCE_IPP_
#define OPKIT_GRAPH_IMPL_GRAPH_INFERENCE_IPP_

#include <optional>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE void GraphTypes::SetData(int value, const Tensor& data) {
  auto* owned = new detail::Shared<Tensor>(data);
  data_.push_back(detail::IntrusivePtr<detail::RefCounted>(owned));
  (*this)[value].constant = &owned->value;
}

OPKIT_INLINE std::vector<TensorInfo> GraphTypes::Of(std::span<const int> values) const {
  std::vector<TensorInfo> infos;
  for (int value : values) infos.push_back(value < 0 ? TensorInfo() : (*this)[value]);
  return infos;
}

OPKIT_INLINE const TensorInfo& GraphTypes::Get(std::string_view name) const {
  const int value = view_->FindValue(name);
  if (value < 0)
    Throw(ErrorCode::kNotFound, "the graph has no value '", name, "'",
          SuggestName(name, view_->names()));
  return (*this)[value];
}

namespace detail {

// A union-find of symbols: the sets of equal symbols, and the number that each set equals.
class SymbolTable {
 public:
  // Returns the extent's number if that is known, else the symbol that represents all symbols equal
  // to it. An unknown extent stays unknown.
  Dim Resolve(Dim dim) const {
    while (dim.is_symbol()) {
      const Binding* const found = bindings_.Find(dim.symbol());
      if (!found) break;
      dim = found->extent;
    }
    return dim;
  }
  SymbolicShape Resolve(const SymbolicShape& shape) const {
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims;
    for (const Dim& dim : shape.dims()) dims.push_back(Resolve(dim));
    return SymbolicShape(std::move(dims));
  }
  // Makes both extents equal and returns the more precise extent. Sets `why` if they contradict
  // each other. A later contradiction to this binding names `where` in its message.
  Dim Unify(Dim a, Dim b, const std::string& where, std::string& why) {
    const Dim first = a, second = b;
    a = Resolve(std::move(a));
    b = Resolve(std::move(b));
    if (a == b) return a;
    if (!Dim::Compatible(a, b)) {
      why = StrCat("extent ", a, Origin(first), " against ", b, Origin(second));
      return a;
    }
    if (a.is_unknown() || b.is_unknown()) return *Dim::Merge(a, b);
    if (a.is_known()) std::swap(a, b);
    bindings_[a.symbol()] = {b, where};
    return b;
  }

 private:
  // Returns the symbol and the source of its binding; "" for a plain number.
  std::string Origin(const Dim& dim) const {
    if (!dim.is_symbol()) return "";
    return StrCat(" (", dim.symbol(), ", ", bindings_.Find(dim.symbol())->where, ")");
  }

  // The extent that a symbol equals, and the source of this fact, for messages.
  struct Binding {
    Dim extent;
    std::string where;
  };
  NameTable<Binding> bindings_;  // by symbol
};

// The state of one InferGraph: the types found so far and the symbols.
class GraphInference {
 public:
  GraphInference(const GraphView& view, UnknownOperators unknown)
      : view_(view), unknown_(unknown), types_(view), evaluated_(Index(view.num_nodes()), 0) {}

  void Know(int value, const TensorInfo& info, const std::string& where) {
    Merge(value, info, where);
    if (info.constant) types_[value].constant = info.constant;
    types_[value].device = info.device;
  }
  GraphTypes Run() && {
    constexpr int kMaxRounds = 16;  // a round carries facts about inputs back by one more node
    for (int round = 0; round < kMaxRounds; ++round) {
      changed_ = false;
      for (int node : view_.order()) Infer(node);
      if (!changed_) break;
    }
    for (int value = 0; value < view_.num_values(); ++value)
      types_[value].shape = symbols_.Resolve(types_[value].shape);
    return std::move(types_);
  }

 private:
  static bool IsKnown(const TensorInfo& info) {
    return info.dtype != DType::kUndefined && info.shape.is_known();
  }

  void Infer(int node) {
    const OperatorDef& def = view_.graph().node(node);
    const bool is_own = OpRegistry::Global().FindSchema(def.type());
    const bool is_hosts = !is_own && IsOperatorOfHost(def.type());
    if (unknown_ == UnknownOperators::kAllowed && !is_own && !is_hosts) return;
    std::optional<OpSchema> unnamed;
    const OpSchema& schema =
        is_hosts ? unnamed.emplace() : OpRegistry::Global().GetSchema(def.type());
    const auto ins = view_.inputs(node), outs = view_.outputs(node);
    const std::string where = "node " + ToString(def);
    bool inputs_known = true;
    for (int value : ins) inputs_known &= value < 0 || IsKnown(types_[value]);
    // First infer from the inputs alone, so that Merge compares the outputs' symbols with those
    // already known. Then infer with the known outputs, for operators that infer inputs from them.
    Apply(schema, node, ins, outs, {}, where);
    if (!inputs_known) Apply(schema, node, ins, outs, Resolved(outs), where);
    CheckSizes(outs, where);
    const auto devices = schema.InferDevices(def).second;
    for (size_t o = 0; o < outs.size() && o < devices.size(); ++o)
      if (outs[o] >= 0) types_[outs[o]].device = devices[o];
    if (!is_hosts) Evaluate(node, def, ins, outs, where);
  }
  // Throws kOutOfRange if the bytes of an output overflow an int64. The nodes that read it, kernels
  // and the memory planner then need no check.
  void CheckSizes(std::span<const int> outs, const std::string& where) const {
    for (const int value : outs) {
      if (value < 0 || !types_[value].shape.is_known() || IsObject(types_[value].dtype)) continue;
      InContext(
          [&] { return Tensor::CheckedBytes(types_[value].shape.ToShape(), types_[value].dtype); },
          [&] {
            return StrCat("in the type of '", view_.name(value), "', which ", where, " makes");
          });
    }
  }
  // Runs the node, once, if the data of all its inputs is known.
  void Evaluate(int node, const OperatorDef& def, std::span<const int> ins,
                std::span<const int> outs, const std::string& where) {
    constexpr int64_t kMaxElements = 1024;  // enough for shapes and axes
    char& evaluated = evaluated_[node];
    if (evaluated || ins.empty()) return;
    std::vector<const Tensor*> inputs;
    for (const int value : ins) {
      inputs.push_back(value < 0 ? nullptr : types_[value].constant);
      if (value >= 0 && (!inputs.back() || inputs.back()->numel() > kMaxElements)) return;
    }
    for (const int value : outs) {
      if (value < 0) continue;
      const SymbolicShape& shape = types_[value].shape;
      const bool is_small = !shape.is_known() || shape.ToShape().numel() <= kMaxElements;
      if (!is_small || view_.IsRewritten(value) || types_[value].constant) return;
    }
    evaluated = 1;
    if (!MayEvaluate(def)) return;
    std::vector<Tensor> results(outs.size());
    try {
      results = EvaluateNode(def, inputs);
    } catch (...) {  // the node fails again, and reports its error, when the graph runs
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0 && results[o].initialized()) Learn(outs[o], results[o], where);
  }
  void Learn(int value, const Tensor& data, const std::string& where) {
    if (types_[value].constant || view_.IsRewritten(value)) return;
    Merge(value, TensorInfo::Of(data), where);
    types_.SetData(value, data);
    changed_ = true;
  }
  void Apply(const OpSchema& schema, int node, std::span<const int> ins, std::span<const int> outs,
             std::vector<TensorInfo> known_outputs, const std::string& where) {
    InferenceContext context(view_.graph().node(node), Resolved(ins), std::move(known_outputs));
    schema.name().empty() ? g_infer_on_host(context) : schema.Infer(context);
    types_.SetLacksData(node, context.lacks_data());
    for (size_t i = 0; i < ins.size(); ++i)
      if (ins[i] >= 0) Merge(ins[i], context.inputs()[i], where);
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) Merge(outs[o], context.outputs()[o], where);
    for (size_t o = 0; o < outs.size(); ++o)
      if (const Tensor* data = context.output_data(static_cast<int>(o)); data && outs[o] >= 0)
        Learn(outs[o], *data, where);
  }
  std::vector<TensorInfo> Resolved(std::span<const int> values) const {
    std::vector<TensorInfo> infos = types_.Of(values);
    for (TensorInfo& info : infos) info.shape = symbols_.Resolve(info.shape);
    return infos;
  }
  void Merge(int value, const TensorInfo& found, const std::string& where) {
    TensorInfo& known = types_[value];
    if (found.dtype != DType::kUndefined && known.dtype != found.dtype) {
      if (known.dtype != DType::kUndefined) Contradiction(value, found, where, "");
      known.dtype = found.dtype;
      changed_ = true;
    }
    if (found.element != DType::kUndefined && known.element != found.element) {
      if (known.element != DType::kUndefined) Contradiction(value, found, where, "");
      known.element = found.element;
      known.holds_sequence = found.holds_sequence;
      changed_ = true;
    }
    if (!found.shape.has_rank()) return;
    if (!known.shape.has_rank()) {
      known.shape = symbols_.Resolve(found.shape);
      changed_ = true;
      return;
    }
    if (known.shape.rank() != found.shape.rank())
      Contradiction(value, found, where,
                    StrCat("rank ", known.shape.rank(), " against ", found.shape.rank()));
    for (int axis = 0; axis < known.shape.rank(); ++axis) {
      std::string why;
      Dim dim = symbols_.Unify(known.shape[axis], found.shape[axis], where, why);
      if (!why.empty()) Contradiction(value, found, where, why);
      if (dim == known.shape[axis]) continue;
      known.shape[axis] = std::move(dim);
      changed_ = true;
    }
  }
  [[noreturn]] OPKIT_COLD void Contradiction(int value, const TensorInfo& found,
                                             const std::string& where,
                                             const std::string& why) const {
    Throw(ErrorCode::kInvalidArgument, "value '", view_.name(value), "' is ",
          ToString(types_[value]), ", but ", where, " finds ", ToString(found),
          why.empty() ? "" : ": " + why);
  }

  const GraphView& view_;
  const UnknownOperators unknown_;
  GraphTypes types_;
  SymbolTable symbols_;
  IndexedVector<char> evaluated_;  // by node: 1 if Evaluate has tried it
  bool changed_ = false;
};

}  // namespace detail

OPKIT_INLINE GraphTypes InferGraph(const GraphView& view, const std::vector<Graph::Input>& known,
                                   UnknownOperators unknown) {
  const detail::RegistryUse use;
  const Graph& graph = view.graph();
  detail::GraphInference inference(view, unknown);
  for (const Graph::Input& input : graph.inputs())
    inference.Know(view.FindValue(input.name), input.info, "input '" + input.name + "'");
  for (const Graph::Constant& constant : graph.constants())
    inference.Know(view.FindValue(constant.name), TensorInfo::OfConstant(constant.value),
                   "constant '" + constant.name + "'");
  for (const Graph::Input& input : known) {
    if (!graph.IsInput(input.name)) {
      std::vector<std::string> names = view.names();
      names.resize(graph.inputs().size());  // inputs are the first values
      Throw(ErrorCode::kNotFound, "the graph has no input '", input.name, "'",
            SuggestName(input.name, names));
    }
    inference.Know(view.FindValue(input.name), input.info,
                   "what is given for input '" + input.name + "'");
  }
  return std::move(inference).Run();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_GRAPH_INFERENCE_IPP_

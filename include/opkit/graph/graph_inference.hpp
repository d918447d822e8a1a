// InferGraph: dtypes and shapes of every value of a graph, from what is known of its inputs and
// constants and of what nodes say of their outputs. Symbols that meet a number, or each other,
// become one extent everywhere. What small nodes make of known data (the arithmetic on shapes that
// exporters leave in models) is evaluated on the way, so that shapes made of it are known too.
#ifndef OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
#define OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/passes/evaluate_node.hpp"

namespace opkit::inline OPKIT_ABI {

// What is known of the values of a graph, by the numbers of its view. Where data decides a shape,
// extents or even the rank stay unknown.
template <class View>
class BasicGraphTypes {
 public:
  explicit BasicGraphTypes(const View& view)
      : view_(&view), infos_(static_cast<size_t>(view.num_values())) {}

  const TensorInfo& operator[](int value) const { return infos_[static_cast<size_t>(value)]; }
  TensorInfo& operator[](int value) { return infos_[static_cast<size_t>(value)]; }
  // Data of a value that is no constant of the graph, but known before it runs.
  void SetData(int value, const Tensor& data) {
    auto* owned = new detail::Shared<Tensor>(data);
    data_.push_back(detail::IntrusivePtr<detail::RefCounted>(owned));
    (*this)[value].constant = &owned->value;
  }
  // Of a node's values, a plain TensorInfo where it leaves one out.
  std::vector<TensorInfo> Of(std::span<const int> values) const {
    std::vector<TensorInfo> infos;
    for (int value : values) infos.push_back(value < 0 ? TensorInfo() : (*this)[value]);
    return infos;
  }
  // Error (kNotFound) that names the nearest value.
  const TensorInfo& at(std::string_view name) const {
    const int value = view_->FindValue(name);
    if (value < 0) {
      std::vector<std::string> known;
      for (int v = 0; v < view_->num_values(); ++v) known.push_back(view_->name(v));
      Throw(ErrorCode::kNotFound, "the graph has no value '", name, "'", SuggestName(name, known));
    }
    return (*this)[value];
  }

 private:
  const View* view_;
  std::vector<TensorInfo> infos_;
  detail::RefCountedList data_;  // of Shared<Tensor>: what SetData was given
};
using GraphTypes = BasicGraphTypes<GraphView>;

namespace detail {

// The extents that symbols stand for.
template <class Dim>
class SymbolTable {
 public:
  // The number, the symbol that stands for all those equal to it, or unknown.
  Dim Resolve(Dim dim) const {
    while (dim.is_symbol()) {
      const int number = names_.Find(dim.symbol());
      if (number < 0 || bound_[static_cast<size_t>(number)].dim.is_unknown()) break;
      dim = bound_[static_cast<size_t>(number)].dim;
    }
    return dim;
  }
  SymbolicShape Resolve(const SymbolicShape& shape) const {
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims;
    for (const Dim& dim : shape.dims()) dims.push_back(Resolve(dim));
    return SymbolicShape(std::move(dims));
  }
  // What both say together; empty `why` unless they contradict each other.
  Dim Unify(Dim a, Dim b, const std::string& where, std::string& why) {
    const Dim first = a, second = b;
    a = Resolve(std::move(a));
    b = Resolve(std::move(b));
    if (a == b || b.is_unknown()) return a;
    if (a.is_unknown()) return b;
    if (a.is_known() && b.is_known()) {
      why = StrCat("extent ", a, Origin(first), " against ", b, Origin(second));
      return a;
    }
    if (a.is_known()) std::swap(a, b);
    const auto number = static_cast<size_t>(names_.Add(a.symbol()));
    if (number >= bound_.size()) bound_.resize(number + 1);
    bound_[number] = {b, where};
    return b;
  }

 private:
  struct Binding {
    Dim dim;
    std::string where;
  };
  // Why a symbol is a number.
  std::string Origin(const Dim& dim) const {
    if (!dim.is_symbol()) return "";
    const int number = names_.Find(dim.symbol());
    return StrCat(" (", dim.symbol(), ", ", bound_[static_cast<size_t>(number)].where, ")");
  }

  NameIndex names_;
  std::vector<Binding> bound_;
};

template <class View, class Symbols = SymbolTable<Dim>>
class GraphInference {
 public:
  explicit GraphInference(const View& view)
      : view_(view),
        types_(view),
        rewritten_(RewrittenValues(view)),
        evaluated_(static_cast<size_t>(view.num_nodes()), 0) {}

  void Know(int value, const TensorInfo& info, const std::string& where) {
    Merge(value, info, where);
    if (info.constant) types_[value].constant = info.constant;
    types_[value].device = info.device;
  }
  BasicGraphTypes<View> Run() && {
    constexpr int kMaxRounds = 16;  // each carries what was learned of inputs one node further back
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
  static constexpr auto kIsKnown = [](const TensorInfo& info) {
    return info.dtype != DType::kUndefined && info.shape.is_known();
  };

  void Infer(int node) {
    const auto& def = view_.graph().node(node);
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    const auto ins = view_.inputs(node), outs = view_.outputs(node);
    const std::string where = "node " + ToString(def);
    bool inputs_known = true;
    for (int value : ins) inputs_known &= value < 0 || kIsKnown(types_[value]);
    // Forward alone first, so that the symbols of both sides meet here; then with what is known of
    // the outputs, for operators that learn their inputs from them.
    Apply(schema, def, ins, outs, {}, where);
    if (!inputs_known) Apply(schema, def, ins, outs, Resolved(outs), where);
    CheckSizes(outs, where);
    const auto devices = schema.InferDevices(def).second;
    for (size_t o = 0; o < outs.size() && o < devices.size(); ++o)
      if (outs[o] >= 0) types_[outs[o]].device = devices[o];
    Evaluate(node, def, ins, outs);
  }
  // No count overflows for what comes after: the nodes that read them, kernels, the planner.
  void CheckSizes(std::span<const int> outs, const std::string& where) const {
    for (const int value : outs) {
      if (value < 0 || !types_[value].shape.is_known()) continue;
      try {
        static_cast<void>(Tensor::CheckedBytes(types_[value].shape.ToShape(), types_[value].dtype));
      } catch (Error& error) {
        error.AddContext(
            StrCat("in the type of '", view_.name(value), "', which ", where, " makes"));
        throw;
      }
    }
  }
  // Runs the node, once, if all that it reads is known.
  template <class Def>
  void Evaluate(int node, const Def& def, std::span<const int> ins, std::span<const int> outs) {
    constexpr int64_t kMaxElements = 1024;  // shapes, axes and the like
    char& evaluated = evaluated_[static_cast<size_t>(node)];
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
      if (!is_small || rewritten_[static_cast<size_t>(value)] || types_[value].constant) return;
    }
    evaluated = 1;
    if (!MayEvaluate(def)) return;
    std::vector<Tensor> results(outs.size());
    try {
      results = EvaluateNode(def, inputs);
    } catch (...) {  // whatever is wrong with the node is reported where it runs
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0 && results[o].initialized())
        Learn(outs[o], results[o], "node " + ToString(def));
  }
  void Learn(int value, const Tensor& data, const std::string& where) {
    if (types_[value].constant || rewritten_[static_cast<size_t>(value)]) return;
    Merge(value, TensorInfo::Of(data), where);
    types_.SetData(value, data);
    changed_ = true;
  }
  template <class Def>
  void Apply(const OpSchema& schema, const Def& def, std::span<const int> ins,
             std::span<const int> outs, std::vector<TensorInfo> known_outputs,
             const std::string& where) {
    InferenceContext context(def, Resolved(ins), std::move(known_outputs));
    schema.Infer(context);
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

  const View& view_;
  BasicGraphTypes<View> types_;
  Symbols symbols_;
  const std::vector<char> rewritten_;  // by value: its data is not known
  std::vector<char> evaluated_;        // by node
  bool changed_ = false;
};

}  // namespace detail

// `known` adds to what the graph says of its inputs (the shapes of a run). Errors, showing both
// sides: kInvalidArgument where two sources contradict each other, kNotFound for a name in `known`
// that is no input, kOutOfRange where a node makes more bytes than an int64 counts, and what the
// operators' own functions throw.
template <class View = GraphView, class Input = GraphInput>
BasicGraphTypes<View> InferGraph(const std::type_identity_t<View>& view,
                                 const std::vector<Input>& known = {}) {
  detail::GraphInference<View> inference(view);
  for (const auto& input : view.graph().inputs())
    inference.Know(view.FindValue(input.name), input.info, "input '" + input.name + "'");
  for (const auto& constant : view.graph().constants())
    inference.Know(view.FindValue(constant.name), TensorInfo::Of(constant.value, true),
                   "constant '" + constant.name + "'");
  for (const Input& input : known) {
    const auto* declared = view.graph().FindInput(input.name);
    if (!declared) {
      std::vector<std::string> names;
      for (const auto& one : view.graph().inputs()) names.push_back(one.name);
      Throw(ErrorCode::kNotFound, "the graph has no input '", input.name, "'",
            SuggestName(input.name, names));
    }
    inference.Know(view.FindValue(input.name), input.info,
                   "what is given for input '" + input.name + "'");
  }
  return std::move(inference).Run();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

// TensorBindings: the caller's tensors that runs of an executor read inputs from and write outputs
// to, checked against the graph and against each other. A part of executor.ipp.
#ifndef OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/plan/process_link.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The inputs and outputs of one executor, in the order of the graph. Shares the tensors' memory.
class TensorBindings {
 public:
  // An input of the graph and its tensor.
  struct Input {
    int value;
    Tensor tensor;
    Tensor dense;    // a copy of `tensor`, if that has strides
    bool rewritten;  // a node of the graph rewrites it
    bool donated;    // runs may write to it
  };
  // An output of the graph and, if the caller has bound one, its tensor.
  struct Output {
    int value;
    Tensor bound;
    bool lent;             // operators write to `bound` itself; else results are copied there
    bool donated = false;  // runs write it to a donated input

    bool is_bound() const { return bound.dtype() != DType::kUndefined; }
  };

  // `defaults` has the default of each input and must outlive this object, as must the communicator
  // of a plan of several processes.
  OPKIT_COLD TensorBindings(const GraphView& view, std::span<const int> donated,
                            const std::vector<Tensor>& defaults, const ProcessLink* communicator)
      : view_(view), defaults_(defaults), communicator_(communicator) {
    for (const auto& input : view.graph().inputs())
      inputs_.push_back({view.FindValue(input.name), defaults[inputs_.size()], {}, false, false});
    for (const int value : donated) inputs_[value].donated = true;
    for (const auto& rewrite : view.rewrites())  // inputs are the first values
      if (view.IsInput(rewrite.value)) inputs_[rewrite.value].rewritten = true;
    for (int value : view.outputs()) outputs_.push_back({value, {}, false});
  }

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  std::vector<Output>& outputs() { return outputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::string& name(const Input& input) const { return view_.name(input.value); }
  const std::string& name(const Output& output) const { return view_.name(output.value); }

  // Returns the input of that name; null if the graph has none.
  Input* FindInput(std::string_view name) { return Find(inputs_, name); }
  Output* FindOutput(std::string_view name) { return Find(outputs_, name); }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view name) const {
    if (const std::string* sentence = communicator_ ? communicator_->FindMissing(name) : nullptr)
      Throw(ErrorCode::kNotFound, *sentence);
    std::vector<std::string> names;
    for (const Input& input : inputs_) names.push_back(this->name(input));
    for (const Output& output : outputs_) names.push_back(this->name(output));
    Throw(ErrorCode::kNotFound, "the graph has no input or output '", name, "'",
          SuggestName(name, names));
  }

  // Throws for a tensor that the graph does not take as this input.
  void Check(const Input& input, const Tensor& tensor) const {
    const std::string& name = this->name(input);
    const TensorInfo& info = view_.graph().FindInput(name)->info;
    if (!tensor.initialized())
      Throw(ErrorCode::kUninitialized, "the tensor given for input '", name, "' has no data");
    const bool dtype_differs = DTypeDiffers(info, tensor);
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "input '", name,
            "' of the graph is ", ToString(info), ", but the tensor given is ", TypeOf(tensor));
    if (MemoryDevice(tensor.device()) != MemoryDevice(info.device))
      Throw(ErrorCode::kInvalidArgument, "input '", name, "' of the graph is on ",
            ToString(info.device), ", but the tensor given is ", tensor, "; copy it there first");
    if (!tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name,
            "' must have the standard layout, but is ", tensor);
    if (!tensor.is_dense() && (input.rewritten || !IsHostAccessible(tensor.device().type)))
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name, "' must be dense: ",
            input.rewritten ? "the graph writes to it" : "it is not on the host");
    if (input.rewritten || input.donated) CheckApartFromGraph("given for input", name, tensor);
  }

  // Throws for a tensor that this output cannot be written to, whatever type the output has.
  void Check(const Output& output, const Tensor& tensor) const {
    if (!tensor.initialized() || !tensor.is_dense() || !tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor bound to output '", name(output),
            "' must have memory and be dense, but is ", tensor);
    if (view_.producer(output.value) < 0)
      Throw(ErrorCode::kInvalidArgument, "output '", name(output),
            "' of the graph is also an input or a constant, and cannot be bound");
    CheckApartFromGraph("bound to output", name(output), tensor);
  }

  // Throws for a tensor that differs from the output's type.
  void CheckType(const Output& output, const TensorInfo& info, const Tensor& tensor) const {
    const bool dtype_differs = DTypeDiffers(info, tensor);
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()) ||
        MemoryDevice(info.device) != MemoryDevice(tensor.device()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "output '",
            name(output), "' of the graph is ", ToString(info), " on ", ToString(info.device),
            ", but the tensor bound to it is ", TypeOf(tensor));
  }

  // Returns the tensor that runs read if the caller gives none: without dtype unless the graph has
  // a default.
  const Tensor& DefaultOf(const Input& input) const {
    return defaults_[Index(input.value)];  // inputs are the first values
  }
  // Returns the input types of the next run. The info of an input whose default the run reads has
  // that tensor as its data. Throws kInvalidArgument for an input without a tensor.
  std::vector<TensorInfo> InputTypes() const {
    std::vector<TensorInfo> infos;
    for (const Input& input : inputs_) {
      if (input.tensor.dtype() == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument, "input '", name(input),
              "' of the graph has no tensor; call Run({{\"", name(input), "\", ",
              view_.graph().FindInput(name(input))->info.dtype == DType::kSequence
                  ? "MakeSequence({a, b})"
                  : "tensor",
              "}}) or Bind");
      infos.push_back(TensorInfo::Of(input.tensor));
      infos.back().layout = Layout();
      if (const Tensor& value = DefaultOf(input);
          value.initialized() && ReadsDefault(input, value)) {
        if (input.rewritten || input.donated)
          Throw(ErrorCode::kInvalidArgument, "input '", name(input),
                "' of the graph has a default, ", "but a run writes to it; call Run({{\"",
                name(input), "\", tensor}}) or Bind");
        infos.back().constant = &value;
      }
    }
    return infos;
  }

  // Throws kInvalidArgument if the graph writes to memory that another tensor here shares.
  void CheckOverlaps() const {
    const auto share = [&](const Tensor& a, const Tensor& b, const char* what, int first,
                           int second) {
      if (a.SharesMemoryWith(b))
        Throw(ErrorCode::kInvalidArgument, what, " '", view_.name(first), "' and '",
              view_.name(second), "' share memory, and the graph writes to it; give each its own");
    };
    for (size_t i = 0; i < outputs_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        share(outputs_[i].bound, outputs_[j].bound, "the tensors bound to the outputs",
              outputs_[j].value, outputs_[i].value);
    for (const Input& input : inputs_)
      for (const Input& other : inputs_)
        if ((input.rewritten || input.donated) && &input != &other)
          share(input.tensor, other.tensor, "the tensors given for the inputs", input.value,
                other.value);
  }

  bool IsInputMemory(const Tensor& tensor) const {
    for (const Input& input : inputs_)
      if (input.tensor.SharesMemoryWith(tensor)) return true;
    return false;
  }

 private:
  template <class Item>
  Item* Find(std::vector<Item>& items, std::string_view name) const {
    for (Item& item : items)
      if (view_.name(item.value) == name) return &item;
    return nullptr;
  }
  // Throws kInvalidArgument for memory that the graph holds and that runs would overwrite.
  void CheckApartFromGraph(const char* use, const std::string& name, const Tensor& tensor) const {
    if (const std::string holder = HolderOf(view_.graph(), tensor); !holder.empty())
      Throw(ErrorCode::kInvalidArgument, "the tensor ", use, " '", name, "' shares memory with ",
            holder, " of the graph, which runs would overwrite; give it memory of its own");
  }

  // Returns the constant or attribute, in subgraphs too, that shares memory with the tensor; empty
  // if there is none.
  OPKIT_COLD static std::string HolderOf(const Graph& graph, const Tensor& tensor) {
    for (const Graph::Input& input : graph.inputs())
      if (input.default_value.SharesMemoryWith(tensor))
        return StrCat("the default of input '", input.name, "'");
    for (const Graph::Constant& constant : graph.constants())
      if (constant.value.SharesMemoryWith(tensor)) return StrCat("constant '", constant.name, "'");
    for (const OperatorDef& def : graph.nodes()) {
      for (const NamedAttribute& arg : def.args())
        for (const Tensor& held : TensorsOf(arg.value))
          if (held.SharesMemoryWith(tensor))
            return StrCat("attribute '", arg.name, "' of node ", ToString(def));
      for (const NamedSubgraph& item : def.subgraphs())
        if (const Graph* inner = GraphOf(*item.graph))
          if (std::string holder = HolderOf(*inner, tensor); !holder.empty())
            return StrCat(holder, " of '", item.name, "'");
    }
    return {};
  }

  static std::vector<Tensor> TensorsOf(const Attribute& attribute) {
    if (attribute.type() == AttributeType::kTensor) return {attribute.Get<Tensor>()};
    if (attribute.type() != AttributeType::kTensors) return {};
    return attribute.Get<std::vector<Tensor>>();
  }

  static bool ReadsDefault(const Input& input, const Tensor& value) {
    return input.tensor.raw_data() == value.raw_data() && input.tensor.shape() == value.shape() &&
           input.tensor.strides() == value.strides();
  }

  // Returns a tensor's text for an error; that of a sequence or an optional value says which
  // elements it has.
  OPKIT_COLD static std::string TypeOf(const Tensor& tensor) {
    const TensorInfo info = TensorInfo::Of(tensor);
    return info.element == DType::kUndefined ? ToString(tensor)
                                             : StrCat(ToString(info), " on ", tensor.device());
  }
  static bool DTypeDiffers(const TensorInfo& info, const Tensor& tensor) {
    if (info.dtype != DType::kUndefined && info.dtype != tensor.dtype()) return true;
    if (!IsObject(tensor.dtype()) || info.element == DType::kUndefined) return false;
    const TensorInfo found = TensorInfo::Of(tensor);
    if (tensor.dtype() == DType::kOptional && tensor.numel() > 0 &&
        found.holds_sequence != info.holds_sequence)
      return true;
    return found.element != DType::kUndefined && found.element != info.element;
  }

  const GraphView& view_;
  const std::vector<Tensor>& defaults_;
  const ProcessLink* const communicator_;  // null in a plan of one process
  IndexedVector<Input> inputs_;
  std::vector<Output> outputs_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_TENSOR_BINDINGS_IPP_

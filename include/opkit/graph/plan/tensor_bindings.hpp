// TensorBindings: the caller's tensors that runs of an executor read inputs from and write outputs
// to, checked against the graph and against each other.
#ifndef OPKIT_GRAPH_PLAN_TENSOR_BINDINGS_HPP_
#define OPKIT_GRAPH_PLAN_TENSOR_BINDINGS_HPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_subgraph.hpp"

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

  TensorBindings(const GraphView& view, std::span<const int> donated);

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  std::vector<Output>& outputs() { return outputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::string& name(const Input& input) const { return view_.name(input.value); }
  const std::string& name(const Output& output) const { return view_.name(output.value); }

  // Returns the input of that name; null if the graph has none.
  Input* FindInput(std::string_view name) { return Find(inputs_, name); }
  Output* FindOutput(std::string_view name) { return Find(outputs_, name); }
  [[noreturn]] void ThrowUnknown(std::string_view name) const;

  // Throws for a tensor that the graph does not take as this input.
  void Check(const Input& input, const Tensor& tensor) const;
  // Throws for a tensor that this output cannot be written to, whatever type the output has.
  void Check(const Output& output, const Tensor& tensor) const;
  // Throws for a tensor that differs from the output's type.
  void CheckType(const Output& output, const TensorInfo& info, const Tensor& tensor) const;

  // Returns the input types of the next run. Throws kInvalidArgument for an input without a tensor.
  std::vector<TensorInfo> InputTypes() const;
  // Throws kInvalidArgument if the graph writes to memory that another tensor here shares.
  void CheckOverlaps() const;
  bool IsInputMemory(const Tensor& tensor) const;

 private:
  template <class Item>
  Item* Find(std::vector<Item>& items, std::string_view name) const {
    for (Item& item : items)
      if (view_.name(item.value) == name) return &item;
    return nullptr;
  }
  // Throws kInvalidArgument for memory that the graph holds and that runs would overwrite.
  void CheckApartFromGraph(const char* use, const std::string& name, const Tensor& tensor) const;
  // Returns the constant or attribute, in subgraphs too, that shares memory with the tensor; empty
  // if there is none.
  static std::string HolderOf(const Graph& graph, const Tensor& tensor);
  static std::vector<Tensor> TensorsOf(const Attribute& attribute);
  static bool DTypeDiffers(const TensorInfo& info, const Tensor& tensor) {
    return info.dtype != DType::kUndefined && info.dtype != tensor.dtype();
  }

  const GraphView& view_;
  IndexedVector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/tensor_bindings.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_TENSOR_BINDINGS_HPP_

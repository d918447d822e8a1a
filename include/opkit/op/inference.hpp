// What shape and type inference sees of a node: everything known about its inputs and outputs,
// where known may mean a symbol or nothing yet, and the data of constant inputs.
#ifndef OPKIT_OP_INFERENCE_HPP_
#define OPKIT_OP_INFERENCE_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

// What is known of a value before it is computed.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
  Device device;
  Layout layout;
  const Tensor* constant = nullptr;  // its data where that is known already; not owned

  TensorInfo() = default;
  TensorInfo(DType type, SymbolicShape extents) : dtype(type), shape(std::move(extents)) {}
  // All that a tensor says. `as_constant` lets inference read its data.
  static TensorInfo Of(const Tensor& tensor, bool as_constant = false) {
    TensorInfo info(tensor.dtype(), tensor.shape());
    info.device = tensor.device();
    info.layout = tensor.layout();
    if (as_constant) info.constant = &tensor;
    return info;
  }
  friend std::string ToString(const TensorInfo& info) {
    return StrCat(info.dtype == DType::kUndefined ? "?" : ToString(info.dtype),
                  ToString(info.shape));
  }
};

// Handed to an operator's inference function, which reads the inputs and sets the outputs. Outputs
// may hold what is known of them already, and inputs may be refined from them.
class InferenceContext {
 public:
  InferenceContext(const OperatorDef& def, std::vector<TensorInfo> inputs,
                   std::vector<TensorInfo> outputs = {})
      : def_(def), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
    outputs_.resize(def.outputs().size());
  }

  const OperatorDef& def() const { return def_; }
  const Arguments& args() const { return def_.args(); }
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    return args().Get<T>(name, std::move(fallback));
  }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // False for an optional input that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < num_inputs() && !def_.inputs()[static_cast<size_t>(i)].empty();
  }
  // Error (kOutOfRange) for an index the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // The data of a constant input; null where it is not known yet.
  const Tensor* input_constant(int i) const {
    const Tensor* known = input(i).constant;
    return known || !find_constant_ ? known : (*find_constant_)(i);
  }
  // Where else input_constant looks, so that data is made available only to who asks for it. `find`
  // outlives the inference.
  void ReadConstantsFrom(FunctionRef<const Tensor*(int)> find) { find_constant_ = find; }
  const TensorInfo& output(int i) const { return outputs_[Check(i, outputs_.size(), "output")]; }

  // Says what is true of a value. Error (kInvalidArgument), showing both sides, when that
  // contradicts what is known of it already.
  void SetOutput(int i, DType dtype, const SymbolicShape& shape) {
    Refine(outputs_[Check(i, outputs_.size(), "output")], "output", i, dtype, shape);
  }
  // Says the elements of a value as well, where shapes and attributes alone decide them (Shape):
  // what reads them can then be inferred too.
  template <class Data = Tensor>
  void SetOutputData(int i, const std::type_identity_t<Data>& data) {
    SetOutput(i, data.dtype(), data.shape());
    if (output_data_.size() < outputs_.size()) output_data_.resize(outputs_.size());
    output_data_[static_cast<size_t>(i)] =
        detail::IntrusivePtr<detail::RefCounted>(new detail::Shared<Data>(data));
  }
  // Null where nothing was said.
  template <class Data = Tensor>
  const Data* output_data(int i) const {
    if (static_cast<size_t>(i) >= output_data_.size()) return nullptr;
    auto* said = static_cast<detail::Shared<Data>*>(output_data_[static_cast<size_t>(i)].get());
    return said ? &said->value : nullptr;
  }
  void SetInput(int i, DType dtype, const SymbolicShape& shape) {
    Refine(inputs_[Check(i, inputs_.size(), "input")], "input", i, dtype, shape);
  }

  std::vector<TensorInfo>& inputs() { return inputs_; }
  std::vector<TensorInfo>& outputs() { return outputs_; }

 private:
  static size_t Check(int i, size_t count, const char* what) {
    if (i < 0 || static_cast<size_t>(i) >= count)
      Throw(ErrorCode::kOutOfRange, what, " ", i, " of a node that has ", count);
    return static_cast<size_t>(i);
  }
  OPKIT_COLD void Refine(TensorInfo& info, const char* what, int i, DType dtype,
                         const SymbolicShape& shape) {
    // The new shape first: of two symbols its own stays, so that whoever compares sees both.
    auto merged = SymbolicShape::Merge(shape, info.shape);
    const bool dtypes_differ =
        info.dtype != DType::kUndefined && dtype != DType::kUndefined && info.dtype != dtype;
    if (dtypes_differ)
      Throw(ErrorCode::kTypeMismatch, what, " ", i, " of ", ToString(def_), " is ", ToString(info),
            ", expected dtype ", dtype);
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, what, " ", i, " of ", ToString(def_), " is ",
            ToString(info), ", but inference finds ", ToString(TensorInfo(dtype, shape)));
    info.shape = *std::move(merged);
    if (dtype != DType::kUndefined) info.dtype = dtype;
  }

  const OperatorDef& def_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::optional<FunctionRef<const Tensor*(int)>> find_constant_;
  detail::RefCountedList output_data_;  // of Shared<Tensor>; by output, or empty
};

}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_HPP_

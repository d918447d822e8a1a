// TensorInfo and InferenceContext: the facts that shape and type inference has about a node's
// inputs and outputs. An extent may be a symbol or unknown; constant inputs have their data.
#ifndef OPKIT_OP_INFERENCE_HPP_
#define OPKIT_OP_INFERENCE_HPP_

#include <span>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/hook.hpp"
#include "opkit/base/index.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/op/operator_def.hpp"
#include "opkit/op/schema/value_schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The knowledge of a value before it is computed.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
  Device device;
  Layout layout;
  // For a sequence or an optional value: the dtype of the tensors in it, and whether an optional
  // value holds a sequence of them. Unknown for other values.
  DType element = DType::kUndefined;
  bool holds_sequence = false;
  const Tensor* constant = nullptr;  // the value's data if known; not owned

  TensorInfo() = default;
  TensorInfo(DType type, SymbolicShape extents) : dtype(type), shape(std::move(extents)) {}
  OPKIT_NOINLINE TensorInfo(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo(TensorInfo&&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(TensorInfo&&) = default;
  OPKIT_NOINLINE ~TensorInfo() = default;
  // Returns the dtype, shape, device and layout of a tensor. OfConstant also lets inference read
  // the tensor's data, if it has memory; the tensor must then outlive the TensorInfo.
  static TensorInfo Of(const Tensor& tensor);
  static TensorInfo OfConstant(const Tensor& tensor);
  friend std::string ToString(const TensorInfo& info);
};

namespace detail {
// Returns the default of an attribute; null if none is declared, or if the list is null.
const Attribute* DefaultOf(const std::vector<AttributeSchema>* declared, std::string_view name);
}  // namespace detail

// The argument of an operator's inference function, which reads the inputs and sets the outputs.
// Outputs may already have partial information, and the function may refine inputs from it.
class InferenceContext {
 public:
  InferenceContext(const OperatorDef& def, std::vector<TensorInfo> inputs,
                   std::vector<TensorInfo> outputs = {});

  const OperatorDef& def() const { return def_; }
  const Arguments& args() const { return def_.args(); }
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    return args().Get<T>(name, std::move(fallback));
  }
  // Returns the node's attribute, else the default that the operator's schema declares. Throws
  // kNotFound if there is neither.
  template <class T>
  T Arg(std::string_view name) const {
    const Attribute* fallback = args().Has(name) ? nullptr : detail::DefaultOf(declared_, name);
    return fallback ? fallback->Get<T>() : args().Get<T>(name);
  }
  // Sets the attributes that the schema declares, whose defaults Arg returns. OpSchema calls it;
  // the list must outlive the context.
  void SetDeclared(const std::vector<detail::AttributeSchema>& declared) { declared_ = &declared; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  int InputSize() const { return num_inputs(); }  // OperatorBase's name of num_inputs()
  int OutputSize() const { return num_outputs(); }
  // False for an optional input that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < num_inputs() && !def_.inputs()[detail::Index(i)].empty();
  }
  // Throws kOutOfRange for an index that the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // Returns the data of a constant input; null if not known yet.
  const Tensor* input_constant(int i) const;
  // True once input_constant was called for data that is not known yet. The inferred types may then
  // be incomplete or wrong for the real data.
  bool lacks_data() const { return lacks_data_; }
  // Makes input_constant call `find` for inputs whose info has no data, so that data is fetched
  // only if an operator reads it. `find` must outlive the inference.
  void ReadConstantsFrom(FunctionRef<const Tensor*(int)> find) { find_constant_ = find; }
  const TensorInfo& output(int i) const { return outputs_[Check(i, outputs_.size(), "output")]; }

  // Refines the dtype and shape of a value; an undefined dtype or unknown extent adds nothing.
  // Throws kTypeMismatch or kInvalidArgument, showing both sides, if the two contradict each other.
  void SetOutput(int i, DType dtype, const SymbolicShape& shape);
  // Also refines what is known about the elements of a sequence or an optional value.
  void SetOutput(int i, const TensorInfo& info);
  void SetInput(int i, DType dtype, const SymbolicShape& shape);
  // Sets dtype, shape and elements of an output that depends only on shapes and attributes
  // (operator Shape). The shapes of its consumers can then be inferred too.
  void SetOutputData(int i, const Tensor& data);
  // Returns null if SetOutputData was not called.
  const Tensor* output_data(int i) const;

  std::vector<TensorInfo>& inputs() { return inputs_; }
  std::vector<TensorInfo>& outputs() { return outputs_; }

 private:
  static size_t Check(int i, size_t count, const char* what);

  const OperatorDef& def_;
  const std::vector<detail::AttributeSchema>* declared_ = nullptr;
  std::vector<TensorInfo> inputs_, outputs_;
  std::optional<FunctionRef<const Tensor*(int)>> find_constant_;
  mutable bool lacks_data_ = false;
  std::vector<Tensor> output_data_;  // by output, or empty; an undefined dtype means not set
};

namespace detail {

// Hooks that a loaded library fills: the first is true if the program that loaded the library has
// the operator; the second infers by the program's operator. In a program they are empty or return
// false.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_host_has_operator{
    "an operator of the program, in a library,", "opkit/op.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(InferenceContext& context)> g_infer_on_host{
    "an operator of the program, in a library,", "opkit/op.hpp"};
inline bool IsOperatorOfHost(const std::string& op) {
  return g_host_has_operator && g_host_has_operator(op);
}

// A node's inputs; null for an input that the node leaves out.
using InputPointers = std::span<const Tensor* const>;

// The inferred types of a node that runs repeatedly. Infers again only if an input's dtype or shape
// has changed, or if the result depended on an input's data. Each operator has a cache; the
// operator itself, an eager call or a plan fills it.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // valid if `known`
    bool Allows(const Tensor& made) const {
      return (dtype == DType::kUndefined || dtype == made.dtype()) &&
             (!known || shape == made.shape());
    }
    TensorInfo info() const { return {dtype, known ? SymbolicShape(shape) : SymbolicShape()}; }
  };

  // True if these inputs have the recorded dtypes and shapes.
  static bool Match(const std::vector<Output>& recorded, InputPointers inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != recorded[i].dtype || inputs[i]->shape() != recorded[i].shape))
        return false;
    return true;
  }
  // True if outputs() is valid for these inputs.
  bool IsFresh(InputPointers inputs) const { return fresh_ && Match(inputs_, inputs); }
  // Like IsFresh(inputs), for a caller whose inputs have not changed since the last IsFresh call.
  bool fresh() const { return fresh_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Increases whenever the outputs are recomputed; begins at 0.
  uint64_t version() const { return version_; }

  // Runs `infer` and records the outputs. Calls `before_data` before the first read of an input's
  // elements, because the device may still be computing them. The cache is fresh only after Keep.
  void Infer(const OperatorDef& def, InputPointers inputs,
             FunctionRef<void(InferenceContext&)> infer, FunctionRef<void()> before_data);
  // Accepts the result. It is valid until an input changes; if it depended on an input's data, only
  // for this run.
  void Keep() { fresh_ = !data_read_; }

  // Takes over the types that a plan has inferred. Does nothing if a dtype or shape is unknown. If
  // the plan lacked an input's data, each run infers again and throws kInvalidArgument if the
  // result contradicts the plan.
  void Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
           std::span<const TensorInfo> outputs, bool lacks_data);

 private:
  std::vector<Output> inputs_, outputs_;
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
  std::vector<TensorInfo> planned_;  // types that every run must agree with; empty: no restriction
};

// Throws kOperatorFailed for an output whose dtype or shape differs from the inferred one.
[[noreturn]] OPKIT_COLD void ThrowContradicts(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const TensorInfo& inferred);
// Throws kOperatorFailed for an output whose layout differs from its kernel's configuration.
[[noreturn]] OPKIT_COLD void ThrowOtherLayout(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const Layout& promised);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/inference.ipp"
#endif

#endif  // OPKIT_OP_INFERENCE_HPP_

// TensorInfo and InferenceContext: what shape and type inference knows of a node's inputs and
// outputs, where an extent may be a symbol or unknown, and the data of constant inputs.
#ifndef OPKIT_OP_INFERENCE_HPP_
#define OPKIT_OP_INFERENCE_HPP_

#include <span>

#include "opkit/base/function_ref.hpp"
#include "opkit/base/hook.hpp"
#include "opkit/base/index.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

// The knowledge of a value before it is computed.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
  Device device;
  Layout layout;
  const Tensor* constant = nullptr;  // its data where that is known already; not owned

  TensorInfo() = default;
  TensorInfo(DType type, SymbolicShape extents) : dtype(type), shape(std::move(extents)) {}
  OPKIT_NOINLINE TensorInfo(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo(TensorInfo&&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(TensorInfo&&) = default;
  OPKIT_NOINLINE ~TensorInfo() = default;
  // The dtype, shape, device and layout of a tensor. `as_constant` lets inference read its data,
  // if it has any.
  static TensorInfo Of(const Tensor& tensor, bool as_constant = false);
  friend std::string ToString(const TensorInfo& info);
  std::string ToString() const { return StrCat(*this); }  // the same
};

// Handed to an operator's inference function, which reads the inputs and sets the outputs. Outputs
// may hold what is known of them already, and inputs may be refined from them.
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
  // Error (kNotFound) where the node does not give it.
  template <class T>
  T Arg(std::string_view name) const {
    return args().Get<T>(name);
  }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  int InputSize() const { return num_inputs(); }  // as an operator's class says it
  int OutputSize() const { return num_outputs(); }
  // False for an optional input that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < num_inputs() && !def_.inputs()[detail::Index(i)].empty();
  }
  // Error (kOutOfRange) for an index the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // The data of a constant input; null where it is not known yet.
  const Tensor* input_constant(int i) const;
  // True once input_constant was asked for data that is not known yet: what was found may be less
  // than the data decides, and the data may contradict it.
  bool lacks_data() const { return lacks_data_; }
  // Makes input_constant call `find` for inputs whose info has no data, so that data is fetched
  // only where an operator asks for it. `find` outlives the inference.
  void ReadConstantsFrom(FunctionRef<const Tensor*(int)> find) { find_constant_ = find; }
  const TensorInfo& output(int i) const { return outputs_[Check(i, outputs_.size(), "output")]; }

  // Adds to what is known of a value: an undefined dtype or unknown extent adds nothing. Error
  // (kTypeMismatch, kInvalidArgument), showing both sides, when the two contradict each other.
  void SetOutput(int i, DType dtype, const SymbolicShape& shape);
  void SetInput(int i, DType dtype, const SymbolicShape& shape);
  // Sets dtype, shape and elements of an output that shapes and attributes alone decide (Shape), so
  // that the shapes of its consumers can be inferred too.
  void SetOutputData(int i, const Tensor& data);
  // Null where SetOutputData was not called.
  const Tensor* output_data(int i) const;

  std::vector<TensorInfo>& inputs() { return inputs_; }
  std::vector<TensorInfo>& outputs() { return outputs_; }

 private:
  static size_t Check(int i, size_t count, const char* what);

  const OperatorDef& def_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::optional<FunctionRef<const Tensor*(int)>> find_constant_;
  mutable bool lacks_data_ = false;
  std::vector<Tensor> output_data_;  // by output, or empty; undefined dtype: not set
};

namespace detail {

// Filled in a library: whether the program that has loaded it has an operator, and inference by
// that. Of a program's own they are empty, or answer no.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_host_has_operator{
    "an operator of the program, in a library,", "opkit/op.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(InferenceContext& context)> g_infer_on_host{
    "an operator of the program, in a library,", "opkit/op.hpp"};
inline bool IsOperatorOfHost(const std::string& op) {
  return g_host_has_operator && g_host_has_operator(op);
}

// A node's inputs, null where it leaves one out.
using InputPointers = std::span<const Tensor* const>;

// The types that were inferred for a node that is run again and again: inference is repeated only
// when an input's dtype or shape has changed, or when the result came from its data. Each operator
// has one, which the operator itself, an eager call or a plan fills.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // where known
    bool Allows(const Tensor& made) const {
      return (dtype == DType::kUndefined || dtype == made.dtype()) &&
             (!known || shape == made.shape());
    }
    TensorInfo info() const { return {dtype, known ? SymbolicShape(shape) : SymbolicShape()}; }
  };

  // Whether these inputs have the dtypes and shapes recorded.
  static bool Match(const std::vector<Output>& recorded, InputPointers inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != recorded[i].dtype || inputs[i]->shape() != recorded[i].shape))
        return false;
    return true;
  }
  // True when outputs() holds for these inputs.
  bool IsFresh(InputPointers inputs) const { return fresh_ && Match(inputs_, inputs); }
  // As IsFresh, for a caller that knows its inputs to be those of the last IsFresh, unchanged.
  bool fresh() const { return fresh_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Incremented whenever outputs are recomputed; 0 before.
  uint64_t version() const { return version_; }

  // Runs `infer` and records the outputs. `before_data` is called before the first read of an
  // input's elements, which the device may still be computing. Nothing is fresh until Keep is
  // called.
  void Infer(const OperatorDef& def, InputPointers inputs,
             FunctionRef<void(InferenceContext&)> infer, FunctionRef<void()> before_data);
  // The caller accepts the result: it holds until an input changes, or for this run alone where it
  // came from an input's data.
  void Keep() { fresh_ = !data_read_; }

  // Takes over what a plan has inferred. Nothing changes where a dtype or shape is not known. Where
  // the plan lacked an input's data each run infers again, and what contradicts the plan is an
  // Error (kInvalidArgument).
  void Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
           std::span<const TensorInfo> outputs, bool lacks_data);

 private:
  std::vector<Output> inputs_, outputs_;
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
  std::vector<TensorInfo> planned_;  // what every run must agree with; empty: nothing
};

// An operator made something else than was inferred of it.
[[noreturn]] OPKIT_COLD void ThrowContradicts(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const TensorInfo& inferred);
// For an output in another layout than the configuration of its operator says.
[[noreturn]] OPKIT_COLD void ThrowOtherLayout(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const Layout& promised);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/inference.ipp"
#endif

#endif  // OPKIT_OP_INFERENCE_HPP_

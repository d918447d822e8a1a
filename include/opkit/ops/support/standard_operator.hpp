// StandardOperatorOn<Context>: the base of the standard operators. Its outputs take dtypes and
// shapes from the schema's inference, so that shape rules are written once. Kernels can get dense
// inputs. StandardOperator is the base on the CPU.
#ifndef OPKIT_OPS_SUPPORT_STANDARD_OPERATOR_HPP_
#define OPKIT_OPS_SUPPORT_STANDARD_OPERATOR_HPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/base/index.hpp"
#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   class ReluOp final : public StandardOperator {
//    public:
//     using StandardOperator::StandardOperator;
//     bool RunOnDevice() override {
//       const Tensor& x = DenseInput(0);
//       Tensor* y = InferredOutput(0);
//       …
//     }
//   };
template <class Context>
class StandardOperatorOn : public Operator<Context> {
 public:
  StandardOperatorOn(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : Operator<Context>(def, ws, config),
        schema_(&OpRegistry::Global().GetSchema(def.type())),
        inputs_(def.inputs().size()),
        dense_(def.inputs().size()) {}

  bool InfersOutputs() const final { return true; }
  // Some standard operators follow strides; the others call DenseInput.
  bool AcceptsStrides() const final { return true; }

 protected:
  // Returns DenseInput(i). Returns a copy of the input if it shares memory with `out`, and number
  // or size of elements differ: elements could be overwritten before they are read.
  const Tensor& InputBeside(int i, const Tensor& out) {
    const Tensor& input = this->DenseInput(i);
    if (input.numel() == out.numel() && BitSize(input.dtype()) == BitSize(out.dtype())) [[likely]]
      return input;
    if (!input.SharesMemoryWith(out)) [[likely]]
      return input;
    Tensor& copy = dense_[detail::Index(i)];
    if (copy.device() != input.device()) copy = Tensor(input.device());
    this->CopyDense(input, &copy);
    return copy;
  }
  // Returns output o, with the dtype and shape that the schema's inference finds for the inputs of
  // this run. Inference may read the inputs' data. Throws the errors of inference, and
  // kInvalidArgument if the dtype or shape stays unknown.
  Tensor* InferredOutput(int o) {
    Infer();
    const auto& inferred = this->inference().outputs()[detail::Index(o)];
    if (!inferred.known || inferred.dtype == DType::kUndefined) [[unlikely]]
      NotInferred(o);
    return this->Output(o, inferred.shape, inferred.dtype);
  }
  const OpSchema& schema() const { return *schema_; }
  // Runs the schema's inference on the inputs of this run if its results are out of date.
  // InferredOutput calls it. Throws the errors of inference.
  void Infer() {
    for (int i = 0; i < this->InputSize(); ++i)  // some inputs may be on another device
      inputs_[detail::Index(i)] =
          this->HasInput(i) ? &this->InputBlob(i).template Get<Tensor>() : nullptr;
    if (this->inference().IsFresh(inputs_)) [[likely]]
      return;
    this->inference().Infer(
        this->def(), inputs_, [this](InferenceContext& context) { schema_->Infer(context); },
        [] {});
    this->inference().Keep();
  }
  // Calls f.operator()<T>() with the element type T of input 0. Throws kTypeMismatch if T is not
  // one of Types; inference usually refuses such inputs before.
  template <class Types, class F>
  bool Visit(F&& f) {
    Infer();
    if (!Types::Visit(this->Input(0).dtype(), f)) [[unlikely]]
      NotComputed();
    return true;
  }

 private:
  [[noreturn]] OPKIT_COLD void NotComputed() const {
    Throw(ErrorCode::kTypeMismatch, this->type(), " does not compute ",
          ToString(this->Input(0).dtype()));
  }
  [[noreturn]] OPKIT_COLD void NotInferred(int o) const {
    Throw(ErrorCode::kInvalidArgument, "output ", o, " of ", this->type(),
          " cannot be inferred from these inputs");
  }

  const OpSchema* schema_;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor> dense_;  // copies of inputs that share the output's memory
};
using StandardOperator = StandardOperatorOn<CPUContext>;

namespace detail {

// Returns "float32 and float64" or similar, for messages.
template <class DTypes>
std::string NamesOf(const DTypes& dtypes) {
  std::string names;
  for (const DType dtype : dtypes) names += StrCat(names.empty() ? "" : " and ", dtype);
  return names;
}

}  // namespace detail

// Throws UnsupportedOperatorFeature unless input 0 has one of these dtypes. Kernels with few dtypes
// call it in each run, because CreateOperator makes operators before the types of their inputs are
// known.
inline void RequireDTypes(const OperatorBase& op, const char* backend,
                          std::initializer_list<DType> dtypes) {
  if (detail::Contains(dtypes, op.Input(0).dtype())) [[likely]]
    return;
  throw UnsupportedOperatorFeature(StrCat("the kernel of ", op.type(), " for \"", backend,
                                          "\" computes ", detail::NamesOf(dtypes),
                                          ", and input 0 is ", op.Input(0)));
}
// Throws UnsupportedOperatorFeature unless input `i` is known to have one of these dtypes. For
// Propose.
inline void RequireDTypes(const KernelQuery& query, size_t i, const std::vector<DType>& dtypes) {
  const DType found = query.inputs[i].dtype;
  if (detail::Contains(dtypes, found)) return;
  throw UnsupportedOperatorFeature(
      StrCat("it computes ", detail::NamesOf(dtypes), ", and input ", i, " is ",
             found == DType::kUndefined ? "not known" : ToString(found)));
}

// Returns the cost of `flops` operations, of reading these inputs and of writing these outputs. For
// schemas.
inline OpCost TrafficCost(uint64_t flops, const std::vector<TensorInfo>& inputs,
                          const std::vector<TensorInfo>& outputs) {
  OpCost cost;
  cost.flops = flops;
  for (const TensorInfo& input : inputs) cost.bytes_read += OpSchema::Bytes(input);
  for (const TensorInfo& output : outputs) cost.bytes_written += OpSchema::Bytes(output);
  return cost;
}

// Returns the elements of a tensor of axes, extents or other integers. Throws kTypeMismatch unless
// the tensor is int32 or int64.
inline std::vector<int64_t> IntegersOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kInt64) return tensor.ToVector<int64_t>();
  if (tensor.dtype() != DType::kInt32)
    Throw(ErrorCode::kTypeMismatch, "expected int64 or int32 elements, found ", ToString(tensor));
  const std::vector<int32_t> narrow = tensor.ToVector<int32_t>();
  return {narrow.begin(), narrow.end()};
}

// Converts a string attribute to an enumerator: its position among the values in the schema of
// `op`. A missing attribute is the first value. Throws kInvalidArgument for another string.
template <class Enumeration>
Enumeration EnumeratorOf(std::string_view op, const Arguments& args, const char* attribute) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  const std::vector<std::string>& values = schema.FindAttribute(attribute)->values;
  const auto found = args.Get<std::string>(attribute, values[0]);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] == found) return static_cast<Enumeration>(i);
  Throw(ErrorCode::kInvalidArgument, schema.VerifyArguments(args));
}

namespace detail {

// Registers that an operator has no gradient. Does nothing for kMaker, because another macro
// registers the gradient's maker.
inline bool RegisterGradientKind(const char* op, GradientKind kind, const char* file,
                                 int line) noexcept {
  return kind == GradientKind::kMaker || RegisterGradient(op, kind, nullptr, file, line);
}

}  // namespace detail
}}  // namespace opkit

// Registers the reference kernel of an operator in ONNX's default domain, and the kind of its
// gradient: kMaker, kNone or kNotImplemented. Begins the operator's schema: one input, one output,
// and the cost of a copy, unless later setters say otherwise. The class comes last, so that it may
// contain commas.
//
//   OPKIT_STANDARD_OPERATOR(Trilu, kMaker, TriluOp).NumInputs(1, 2)…;
#define OPKIT_STANDARD_OPERATOR(name, gradient, ...)                                          \
  OPKIT_REGISTER_CPU_OPERATOR(name, __VA_ARGS__);                                             \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                          \
      ::opkit::detail::RegisterGradientKind(#name, ::opkit::GradientKind::gradient, __FILE__, \
                                            __LINE__);                                        \
  OPKIT_OPERATOR_SCHEMA(name).Standard().NumInputs(1).NumOutputs(1).PointwiseCost(0)

// The same for an operator of another domain of ONNX models. It is registered as "<domain>.<name>".
//
//   OPKIT_DOMAIN_OPERATOR("com.microsoft", MatMulNBits, kNone, MatMulNBitsOp).NumInputs(3, 6)…;
#define OPKIT_DOMAIN_OPERATOR(domain, name, gradient, ...)                                     \
  OPKIT_REGISTER_CPU_OPERATOR_STR(domain "." #name, __VA_ARGS__);                              \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradientKind(domain "." #name, ::opkit::GradientKind::gradient, \
                                            __FILE__, __LINE__);                               \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                     \
      ::opkit::OpRegistry::Global()                                                            \
          .AddSchema(domain "." #name, __FILE__, __LINE__)                                     \
          .NumInputs(1)                                                                        \
          .NumOutputs(1)                                                                       \
          .PointwiseCost(0)

#endif  // OPKIT_OPS_SUPPORT_STANDARD_OPERATOR_HPP_

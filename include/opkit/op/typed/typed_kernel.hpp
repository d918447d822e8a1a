// TypedOperator: the Operator<Context> that calls a typed operator's function. It reads attributes
// once, infers output shapes when those of the inputs change, binds the parameters and picks the
// element type.
#ifndef OPKIT_OP_TYPED_TYPED_KERNEL_HPP_
#define OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/engine/context_parallel_for.hpp"

#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/typed/typed_signature.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The tensors of a call, beside its attributes.
struct TypedRun {
  const Tensor* const* inputs;  // dense; null where the node leaves one out
  const InferenceCache::Output* outputs;
  uint64_t version;  // of the inputs' and outputs' shapes
};

// The node's attribute, or the default. Error: kNotFound.
OPKIT_IMAGE_LOCAL const Attribute& FindAttribute(const OperatorBase& op, const FixedName& name);
[[noreturn]] OPKIT_COLD void ThrowForArgument(const Error& error, const FixedName& name);
template <class T>
OPKIT_IMAGE_LOCAL T ReadAttribute(const OperatorBase& op, const FixedName& name) {
  const Attribute& attribute = FindAttribute(op, name);
  try {
    return attribute.Get<T>();
  } catch (const Error& error) {
    ThrowForArgument(error, name);
  }
}

// `value` as an element of type T. Error (kOutOfRange) where an integer or bool cannot hold it.
template <class T>
T ToElement(double value, const FixedName& name) {
  if constexpr (std::is_integral_v<T>) {
    constexpr int kBits = std::is_same_v<T, bool> ? 1 : 8 * sizeof(T) - std::is_signed_v<T>;
    constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (kBits - 1));
    if (!(value < kEnd && value >= (std::is_signed_v<T> ? -kEnd : 0)) ||
        static_cast<double>(static_cast<T>(value)) != value)
      Throw(ErrorCode::kOutOfRange, "argument '", name.str(), "' is ", value,
            ", which is no value of the inputs' dtype ", kDTypeOf<T>);
  }
  return static_cast<T>(value);
}
template <class T>
void SetElements(T& out, double value, const FixedName& name) {
  out = ToElement<T>(value, name);
}
template <class T>
void SetElements(std::vector<T>& out, const std::vector<double>& values, const FixedName& name) {
  for (double value : values) out.push_back(ToElement<T>(value, name));
}

// The function for one context and at most one element type, with its attributes.
template <class Function, class Context, class... Types>
class TypedCall {
  using S = SignatureOf<Function, Context, Types...>;
  using Indices = std::make_index_sequence<S::kCount>;

 public:
  explicit TypedCall(const OperatorBase& op) { ReadAttributes(op, Indices{}); }

  bool operator()(Operator<Context>& op, const TypedRun& run) {
    if (!refused_.empty()) [[unlikely]]
      Throw(ErrorCode::kOutOfRange, refused_);
    const bool reshaped = version_ != run.version;
    version_ = 0;
    Bind(op, run, reshaped, Indices{});
    version_ = run.version;
    return Call(op, Indices{});
  }

 private:
  template <size_t... I>
  void ReadAttributes(const OperatorBase& op, std::index_sequence<I...>) {
    (ReadAttribute<I>(op), ...);
  }
  template <size_t I>
  void ReadAttribute(const OperatorBase& op) {
    constexpr const TypedParameter& kRow = kTypedRows<Function>[I];
    if constexpr (IsAttribute(kRow.kind)) {
      using P = typename S::template Parameter<I>;
      using Value = typename P::value_type;
      if constexpr (kRow.by_element) {
        using Stored = std::conditional_t<kIsVector<Value>, std::vector<double>, double>;
        const auto stored = detail::ReadAttribute<Stored>(op, kRow.name);
        Value value{};
        try {  // matters only to a run with this element type
          SetElements(value, stored, kRow.name);
        } catch (const Error& error) {
          refused_ = error.message();
        }
        std::get<I>(values_) = P(std::move(value));
      } else {
        std::get<I>(values_) = P(detail::ReadAttribute<Value>(op, kRow.name));
      }
    }
  }

  template <size_t... I>
  void Bind(OperatorBase& op, const TypedRun& run, bool reshaped, std::index_sequence<I...>) {
    (BindParameter<I>(op, run, reshaped), ...);
  }
  template <size_t I>
  void BindParameter(OperatorBase& op, const TypedRun& run, bool reshaped) {
    constexpr const TypedParameter& kRow = kTypedRows<Function>[I];
    using P = typename S::template Parameter<I>;
    if constexpr (!IsAttribute(kRow.kind)) {
      using T = typename P::value_type;
      P& value = std::get<I>(values_);
      if constexpr (IsInput(kRow.kind)) {
        const Tensor* in = run.inputs[kRow.place];
        if (!in) return;
        if (reshaped) value = P(nullptr, in->shape());
        value.set_data(in->template data<T>());
      } else {
        Tensor* out = op.Output(kRow.place, run.outputs[kRow.place].shape, kDTypeOf<T>);
        if (reshaped) value = P(nullptr, out->shape());
        value.set_data(static_cast<T*>(out->raw_mutable_data()));
      }
    }
  }

  template <size_t... I>
  bool Call(Operator<Context>& op, std::index_sequence<I...>) {
    constexpr auto kFunction =
        Function{}(std::type_identity<Context>{}, std::type_identity<Types>{}...);
    if constexpr (std::is_void_v<typename S::Return>) {
      kFunction(op.context(), std::get<I>(values_)...);
      return true;
    } else {
      return kFunction(op.context(), std::get<I>(values_)...);
    }
  }

  typename S::Values values_;
  uint64_t version_ = 0;  // of the shapes in values_
  std::string refused_;   // why an attribute does not fit the element type
};

// The tensors of a typed operator: the part that depends neither on the function nor on the
// context.
class TypedBinding {
 public:
  // Error (kInvalidArgument) where the node leaves out an input or output that is not optional.
  TypedBinding(OperatorBase& op, std::span<const TypedParameter> rows);

  // Reads this run's inputs, which are dense.
  void ReadInputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!op_.HasInput(static_cast<int>(i))) continue;
      inputs_[i] = &op_.Input(static_cast<int>(i));
      if (!inputs_[i]->layout().is_standard()) [[unlikely]]
        NotStandard(i);
    }
  }
  bool IsInferred() const { return op_.inference().IsFresh(inputs_); }
  // `wait` is called before the first read of an input's elements, which the device may still be
  // computing.
  OPKIT_COLD void InferOutputs(FunctionRef<void()> wait);
  TypedRun run() const {
    return {inputs_.data(), op_.inference().outputs().data(), op_.inference().version()};
  }
  DType input_dtype(int i) const { return inputs_[Index(i)]->dtype(); }
  [[noreturn]] OPKIT_COLD void NotStandard(size_t i) const;
  [[noreturn]] OPKIT_COLD void NoVersionFor(int i, std::initializer_list<DType> versions) const;

 private:
  OperatorBase& op_;
  const OpSchema* schema_;
  std::vector<const Tensor*> inputs_;  // of the run in progress; null where left out
};

// The part that is the same for every function on a context.
template <class Context>
class TypedOperatorBase : public Operator<Context> {
 protected:
  TypedOperatorBase(const OperatorDef& def, Workspace* ws, std::span<const TypedParameter> rows)
      : Operator<Context>(def, ws), binding_(*this, rows) {}

  // Calls the function.
  virtual bool Call(const TypedRun& run) = 0;
  const TypedBinding& binding() const { return binding_; }

 private:
  bool InfersOutputs() const final { return true; }
  bool RunOnDevice() final {
    binding_.ReadInputs();
    if (!binding_.IsInferred()) [[unlikely]]
      binding_.InferOutputs([&] {
        if constexpr (Context::kAsynchronous) this->context_.FinishDeviceComputation();
      });
    return Call(binding_.run());
  }

  TypedBinding binding_;
};

template <class Function, class Context, class... Types>
class TypedOperator final : public TypedOperatorBase<Context> {
  using Calls = std::conditional_t<sizeof...(Types) == 0, std::tuple<TypedCall<Function, Context>>,
                                   std::tuple<TypedCall<Function, Context, Types>...>>;

 public:
  TypedOperator(const OperatorDef& def, Workspace* ws)
      : TypedOperatorBase<Context>(def, ws, kTypedRows<Function>),
        calls_(MakeCalls(*this, std::make_index_sequence<std::tuple_size_v<Calls>>{})) {}

  bool Call(const TypedRun& run) final {
    if constexpr (sizeof...(Types) == 0) {
      return std::get<0>(calls_)(*this, run);
    } else {
      constexpr int kInput = ElementInput<Function>();
      const DType dtype = this->binding().input_dtype(kInput);
      if (!((dtype == kDTypeOf<Types>) || ...)) [[unlikely]]
        this->binding().NoVersionFor(kInput, {kDTypeOf<Types>...});
      return DispatchDType<Types...>(dtype, [&]<class T>() {
        return std::get<TypedCall<Function, Context, T>>(calls_)(*this, run);
      });
    }
  }

 private:
  template <size_t... I>
  static Calls MakeCalls(const OperatorBase& op, std::index_sequence<I...>) {
    return Calls(std::tuple_element_t<I, Calls>(op)...);
  }
  Calls calls_;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/typed/impl/typed_kernel.ipp"
#endif

#endif  // OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

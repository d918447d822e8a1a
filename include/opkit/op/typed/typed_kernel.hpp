// TypedOperator: the Operator<Context> that calls a typed operator's function. It reads attributes
// once, infers output shapes when the inputs' change, binds the parameters and picks the element
// type.
#ifndef OPKIT_OP_TYPED_TYPED_KERNEL_HPP_
#define OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

#include "opkit/device/copy.hpp"
#include "opkit/engine/context_parallel_for.hpp"

#include "opkit/op/op_registry.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/typed/typed_signature.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What a call gets besides its attributes.
struct TypedRun {
  const Tensor* const* inputs;  // dense; null where the node leaves one out
  const InferenceCache::Output* outputs;
  uint64_t version;  // of the inputs' and outputs' shapes
};

// The node's attribute, or the default. Error: kNotFound.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline const Attribute& FindAttribute(const OperatorBase& op,
                                                                   const std::string& name) {
  if (const Attribute* given = op.def().args().Find(name)) return *given;
  const AttributeSchema* declared = OpRegistry::Global().GetSchema(op.type()).FindAttribute(name);
  if (!declared || !declared->default_value)
    Throw(ErrorCode::kNotFound, "operator ", op.type(), " needs the argument '", name, "'");
  return *declared->default_value;
}
template <class T>
OPKIT_IMAGE_LOCAL T ReadAttribute(const OperatorBase& op, const FixedName& fixed_name) {
  const std::string name = fixed_name.str();
  return Arguments{{name, FindAttribute(op, name)}}.Get<T>(name);
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
  using F = TypedFunction<Function>;
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
        SetView(value, in->template data<T>(), in->shape(), reshaped);
      } else {
        Tensor* out = op.Output(kRow.place, run.outputs[kRow.place].shape, kDTypeOf<T>);
        SetView(value, out->template mutable_data<T>(), out->shape(), reshaped);
      }
    }
  }
  template <class P, class T>
  static void SetView(P& value, T* data, const Shape& shape, bool reshaped) {
    if (reshaped) {
      value = P(data, shape);
    } else {
      value.set_data(data);
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

template <class Function, class Context, class... Types>
struct TypedCallsOf {
  using type = std::tuple<TypedCall<Function, Context, Types>...>;
};
template <class Function, class Context>
struct TypedCallsOf<Function, Context> {
  using type = std::tuple<TypedCall<Function, Context>>;
};

// The part that is the same for every function on a context.
template <class Context>
class TypedOperatorBase : public Operator<Context> {
 protected:
  OPKIT_COLD OPKIT_IMAGE_LOCAL TypedOperatorBase(const OperatorDef& def, Workspace* ws,
                                                 std::span<const TypedParameter> rows)
      : Operator<Context>(def, ws), schema_(&OpRegistry::Global().GetSchema(def.type())) {
    for (const TypedParameter& row : rows) {
      if (IsInput(row.kind)) inputs_.push_back(nullptr);
      const bool left_out = (row.kind == ParameterKind::kIn && !this->HasInput(row.place)) ||
                            (row.kind == ParameterKind::kOut && !this->HasOutput(row.place));
      if (left_out)
        Throw(ErrorCode::kInvalidArgument, ToString(def), " leaves out ",
              IsInput(row.kind) ? "input " : "output ", row.place, " '", row.name.str(),
              "', which is not optional",
              IsInput(row.kind) ? "; an Invoke leaves out a tensor that has no dtype yet" : "");
    }
  }

  bool InfersOutputs() const final { return true; }

  // Inputs and output shapes of this run; `call` then runs the function.
  template <class F>
  bool Prepare(F call) {
    bool strided = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!this->HasInput(input)) continue;
      inputs_[i] = &this->Input(input);
      strided |= !inputs_[i]->is_dense() || !inputs_[i]->layout().is_standard();
    }
    if (!this->inference().IsFresh(inputs_)) [[unlikely]]
      InferShapes();
    if (strided) [[unlikely]]
      return RunOnDenseCopies(call);
    return call(Bound());
  }
  DType input_dtype(int i) const { return inputs_[static_cast<size_t>(i)]->dtype(); }
  [[noreturn]] OPKIT_COLD void NoVersionFor(int i, std::initializer_list<DType> versions) const {
    std::vector<std::string> names;
    for (DType dtype : versions) names.push_back(ToString(dtype));
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("input ", i, " '", schema_->inputs()[static_cast<size_t>(i)].name, "' of ",
                       this->type(), " is ", input_dtype(i), ", but its kernel for ",
                       this->device(), " is compiled for ", names, "; add it to .Kernel<>"),
                inputs_[static_cast<size_t>(i)]);
  }

 private:
  TypedRun Bound() {
    const InferenceCache& inferred = this->inference();
    return {inputs_.data(), inferred.outputs().data(), inferred.version()};
  }

  OPKIT_COLD void InferShapes() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && !inputs_[i]->initialized())
        throw Error(ErrorCode::kUninitialized,
                    StrCat("input ", i, " of ", ToString(this->def()),
                           " is read before anything was written to it"),
                    inputs_[i]);
    auto infer = [this](InferenceContext& context) {
      schema_->Infer(context);
      for (size_t o = 0; o < context.outputs().size(); ++o)
        if (const SymbolicShape& shape = context.outputs()[o].shape; !shape.is_known())
          Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
                schema_->outputs()[o].name, "' of ", ToString(this->def()),
                " does not follow from its inputs: its shape rule says ", ToString(shape));
    };
    this->inference().Infer(this->def(), inputs_, infer, [this] { this->WaitForInputs(); });
    this->inference().Keep();
  }

  // The work issued so far may still be computing them.
  void WaitForInputs() {
    if constexpr (Context::kAsynchronous) this->context_.FinishDeviceComputation();
  }
  // On an asynchronous device the copies are made on the stream and kept until it has come past
  // what the function issues.
  template <class F>
  OPKIT_COLD bool RunOnDenseCopies(F call) {
    if constexpr (!Context::kAsynchronous) {
      return RunOn(call, [](const Tensor& from, Tensor* to) { to->CopyFrom(from); });
    } else if constexpr (HostContext<Context> || NativeStreamContext<Context>) {
      return RunOn(call,
                   [this](const Tensor& from, Tensor* to) { CopyAsync(this->context_, from, to); });
    } else {
      Throw(ErrorCode::kUnsupported, "an input of ", ToString(this->def()),
            " has strides or a layout of its own; copy it to a dense tensor first");
    }
  }
  template <class F, class Copy>
  bool RunOn(F call, Copy copy) {
    std::vector<Tensor> copies;
    copies.reserve(inputs_.size());
    const KeepUntilIssued keep{this->context_, copies};
    for (const Tensor*& input : inputs_) {
      if (!input || (input->is_dense() && input->layout().is_standard())) continue;
      Tensor& dense = copies.emplace_back(input->device());
      copy(*input, &dense);
      input = &dense;
    }
    return call(Bound());
  }
  struct KeepUntilIssued {
    Context& context;
    const std::vector<Tensor>& copies;
    ~KeepUntilIssued() {
      if constexpr (Context::kAsynchronous && HostContext<Context>) {
        try {
          context.Launch([kept = copies] {});
        } catch (...) {
          Drain();
        }
      }
    }
    void Drain() const noexcept {
      try {
        context.FinishDeviceComputation();
      } catch (...) {  // what failed before is reported by the event of its operator
      }
    }
  };

  const OpSchema* schema_;
  std::vector<const Tensor*> inputs_;  // of the run in progress; null where left out
};

template <class Function, class Context, class... Types>
class TypedOperator final : public TypedOperatorBase<Context> {
  using Calls = typename TypedCallsOf<Function, Context, Types...>::type;

 public:
  TypedOperator(const OperatorDef& def, Workspace* ws)
      : TypedOperatorBase<Context>(def, ws, kTypedRows<Function>),
        calls_(MakeCalls(*this, std::make_index_sequence<std::tuple_size_v<Calls>>{})) {}

  bool RunOnDevice() override {
    return this->Prepare([this](const TypedRun& run) {
      if constexpr (sizeof...(Types) == 0) {
        return std::get<0>(calls_)(*this, run);
      } else {
        constexpr int kInput = ElementInput<Function>();
        const DType dtype = this->input_dtype(kInput);
        if (!((dtype == kDTypeOf<Types>) || ...)) [[unlikely]]
          this->NoVersionFor(kInput, {kDTypeOf<Types>...});
        return DispatchDType<Types...>(dtype, [&]<class T>() {
          return std::get<TypedCall<Function, Context, T>>(calls_)(*this, run);
        });
      }
    });
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

#endif  // OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

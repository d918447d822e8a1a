// Typed operators: one function template, and everything else (arity, dtypes, attribute names and
// types, output allocation, checks, docs) derived from its signature at compile time. One source for
// CPU, CPU streams and CUDA.
#ifndef OPKIT_OP_TYPED_OPERATOR_HPP_
#define OPKIT_OP_TYPED_OPERATOR_HPP_

#include <tuple>

#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_values.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The signature of the function behind the macro's lambda for a context and element types.
template <class Function, class... Types>
using SignatureOf = TypedSignature<decltype(Function{}(std::type_identity<Types>{}...))>;

// A function template over <Context> alone, or over <Context, T>.
template <class Function>
inline constexpr bool kTakesElementType =
    !std::is_invocable_v<Function, std::type_identity<CPUContext>>;
template <class Function, bool = kTakesElementType<Function>>
struct CanonicalSignatureOf {
  using type = SignatureOf<Function, CPUContext>;
};
template <class Function>
struct CanonicalSignatureOf<Function, true> {
  static_assert(std::is_invocable_v<Function, std::type_identity<CPUContext>,
                                    std::type_identity<float>>,
                "OPKIT_OP: the function must be a template over <class Context>, or over <class "
                "Context, class T> with an element type T");
  using type = SignatureOf<Function, CPUContext, float>;
};
template <class Function>
using CanonicalSignature = typename CanonicalSignatureOf<Function>::type;

// Whether parameter I is declared with the function's own element type T.
template <class Function, size_t I>
constexpr bool DependsOnElementType() {
  if constexpr (kTakesElementType<Function>) {
    return !std::is_same_v<
        typename SignatureOf<Function, CPUContext, float>::template Parameter<I>,
        typename SignatureOf<Function, CPUContext, double>::template Parameter<I>>;
  } else {
    return false;
  }
}
// Place of the first input declared with T, or -1.
template <class Function>
constexpr int ElementTypeInput() {
  using S = CanonicalSignature<Function>;
  int found = -1;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((found < 0 && IsInput(ParameterTraits<typename S::template Parameter<I>>::kKind) &&
              DependsOnElementType<Function, I>()
          ? void(found = S::template Place<I>())
          : void()),
     ...);
  }(std::make_index_sequence<S::kCount>{});
  return found;
}

// The part of a typed operator that does not depend on the function: output shapes by the schema's
// inference, run again only when an input's dtype or shape has changed.
class OutputShapes {
 public:
  void Update(const OperatorBase& op) {
    if (Known(op)) return;
    const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
    std::vector<TensorInfo> infos;
    seen_.clear();
    for (int i = 0; i < op.InputSize(); ++i) {
      if (!op.HasInput(i)) {
        infos.emplace_back();
        continue;
      }
      const Tensor& input = op.Input(i);
      infos.push_back(TensorInfo::Of(input, IsHostAccessible(input.device().type)));
    }
    shapes_.clear();
    for (const TensorInfo& output : schema.InferOutputs(op.def(), std::move(infos)))
      shapes_.push_back(output.shape.ToShape());
    for (int i = 0; i < op.InputSize(); ++i)
      seen_.push_back(op.HasInput(i) ? Seen{op.Input(i).dtype(), op.Input(i).shape()} : Seen{});
  }
  const Shape& operator[](int o) const { return shapes_[static_cast<size_t>(o)]; }

 private:
  struct Seen {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  bool Known(const OperatorBase& op) const {
    if (seen_.empty() || seen_.size() != static_cast<size_t>(op.InputSize())) return false;
    for (int i = 0; i < op.InputSize(); ++i)
      if (op.HasInput(i) && (op.Input(i).dtype() != seen_[static_cast<size_t>(i)].dtype ||
                             op.Input(i).shape() != seen_[static_cast<size_t>(i)].shape))
        return false;
    return true;
  }
  std::vector<Seen> seen_;
  std::vector<Shape> shapes_;
};

// The attributes of one instantiation, and the call.
template <class Function, class Context, class... Types>
class TypedCall {
  using S = SignatureOf<Function, Context, Types...>;

 public:
  explicit TypedCall(const OperatorBase& op) { ReadAll(op, std::make_index_sequence<S::kCount>{}); }

  bool operator()(Operator<Context>& op, const OutputShapes& shapes, std::vector<Tensor>& dense) {
    return Call(op, shapes, dense, std::make_index_sequence<S::kCount>{});
  }

 private:
  template <size_t... I>
  void ReadAll(const OperatorBase& op, std::index_sequence<I...>) {
    (Read<I>(op), ...);
  }
  template <size_t I>
  void Read(const OperatorBase& op) {
    using P = typename S::template Parameter<I>;
    if constexpr (ParameterTraits<P>::kKind == ParameterKind::kAttr) {
      using Value = typename P::value_type;
      const std::string name = P::kName.str();
      const Attribute* given = op.def().args().Find(name);
      if (!given) {
        const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
        const AttributeSchema* declared = schema.FindAttribute(name);
        if (declared && declared->default_value) given = &*declared->default_value;
      }
      if (!given)
        Throw(ErrorCode::kInvalidArgument, "operator ", op.type(), " needs the argument '", name,
              "'");
      // An attribute of the function's element type is kept as a float whatever T is.
      if constexpr (DependsOnElementType<Function, I>()) {
        std::get<I>(values_) = P(static_cast<Value>(given->Get<double>()));
      } else {
        std::get<I>(values_) = P(given->Get<Value>());
      }
    }
  }
  template <size_t... I>
  bool Call(Operator<Context>& op, const OutputShapes& shapes, std::vector<Tensor>& dense,
            std::index_sequence<I...>) {
    (Bind<I>(op, shapes, dense), ...);
    constexpr auto function = Function{}(std::type_identity<Context>{}, std::type_identity<Types>{}...);
    if constexpr (std::is_void_v<typename S::Return>) {
      function(op.context(), std::get<I>(values_)...);
      return true;
    } else {
      return function(op.context(), std::get<I>(values_)...);
    }
  }
  template <size_t I>
  void Bind(OperatorBase& op, const OutputShapes& shapes, std::vector<Tensor>& dense) {
    using P = typename S::template Parameter<I>;
    constexpr ParameterKind kKind = ParameterTraits<P>::kKind;
    constexpr int kPlace = S::template Place<I>();
    if constexpr (kKind == ParameterKind::kOut) {
      Tensor* out = op.Output(kPlace, shapes[kPlace], kDTypeOf<typename P::value_type>);
      std::get<I>(values_) =
          P(out->template mutable_data<typename P::value_type>(), out->shape());
    } else if constexpr (IsInput(kKind)) {
      if (kKind == ParameterKind::kOptionalIn && !op.HasInput(kPlace)) {
        std::get<I>(values_) = P();
        return;
      }
      const Tensor& in = op.Input(kPlace);
      const Tensor* readable = &in;
      if (!in.is_dense()) [[unlikely]]
        readable = &dense.emplace_back(in.Contiguous());
      std::get<I>(values_) =
          P(readable->template data<typename P::value_type>(), readable->shape());
      if constexpr (kKind == ParameterKind::kOptionalIn) std::get<I>(values_).set_present();
    }
  }

  template <class P>
  using Stored = P;
  typename S::template Values<Stored> values_;
};

template <class Function, class Context, class... Types>
struct TypedCalls {
  using type = std::tuple<TypedCall<Function, Context, Types>...>;
};
template <class Function, class Context>
struct TypedCalls<Function, Context> {
  using type = std::tuple<TypedCall<Function, Context>>;
};

template <class Function, class Context, class... Types>
class TypedOperator final : public Operator<Context> {
  using Calls = typename TypedCalls<Function, Context, Types...>::type;

 public:
  TypedOperator(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws),
        calls_(MakeCalls(*this, std::make_index_sequence<std::tuple_size_v<Calls>>{})) {}

  bool RunOnDevice() override {
    shapes_.Update(*this);
    dense_.clear();
    dense_.reserve(static_cast<size_t>(this->InputSize()));
    Operator<Context>& self = *this;
    if constexpr (sizeof...(Types) == 0) {
      return std::get<0>(calls_)(self, shapes_, dense_);
    } else {
      const DType dtype = this->Input(ElementTypeInput<Function>()).dtype();
      return DispatchDType<Types...>(dtype, [&]<class T>() {
        return std::get<TypedCall<Function, Context, T>>(calls_)(self, shapes_, dense_);
      });
    }
  }

 private:
  template <size_t... I>
  static Calls MakeCalls(const OperatorBase& op, std::index_sequence<I...>) {
    return Calls(std::tuple_element_t<I, Calls>(op)...);
  }
  Calls calls_;
  OutputShapes shapes_;
  std::vector<Tensor> dense_;  // dense copies of strided inputs, for the run that uses them
};

// What the builder collects: the shape rules, run in order as the schema's inference, and what the
// signature says of dtypes. Owned by the schema.
struct TypedRules {
  OpSchema* schema = nullptr;
  const char* file = "";
  int line = 0;
  std::vector<std::pair<int, int>> inplace;
  std::vector<UniqueFunction<void(InferenceContext&)>> rules;
  std::vector<DType> input_dtypes, output_dtypes;  // kUndefined where the element type T decides
  int element_input = -1;

  void Infer(InferenceContext& context) {
    for (size_t i = 0; i < input_dtypes.size(); ++i) {
      const int input = static_cast<int>(i);
      if (context.HasInput(input)) context.SetInput(input, TypeOf(context, input_dtypes[i]), {});
    }
    for (size_t o = 0; o < output_dtypes.size(); ++o)
      context.SetOutput(static_cast<int>(o), TypeOf(context, output_dtypes[o]), {});
    for (auto& rule : rules) rule(context);
  }

 private:
  DType TypeOf(const InferenceContext& context, DType declared) const {
    return declared == DType::kUndefined && element_input >= 0 ? context.input_dtype(element_input)
                                                               : declared;
  }
};

// What SameShape means: one shape for all of these inputs and outputs.
inline void InferSameShape(InferenceContext& context, const std::vector<int>& inputs,
                           const std::vector<int>& outputs) {
  SymbolicShape shape;
  for (int i : inputs) {
    if (!context.HasInput(i)) continue;
    auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, "input ", i, " of ", ToString(context.def()),
            " has shape ", ToString(context.input_shape(i)), ", but must have the same shape as "
            "input ", inputs[0], ", ", ToString(shape));
    shape = *std::move(merged);
  }
  for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
}

}  // namespace detail

// The builder behind OPKIT_OP. `kRuled` has bit o set once output o has a shape rule.
template <class Function, uint64_t kRuled = 0>
class TypedOp {
  using S = detail::CanonicalSignature<Function>;
  static_assert(S::kValid,
                "OPKIT_OP: the function must be void or bool (Context&, In<\"name\", T>…, "
                "Out<\"name\", T>…, Attr<\"name\", T>…)");
  static_assert(S::kParametersKnown,
                "OPKIT_OP: every parameter after the context must be In<\"name\", T>, "
                "OptionalIn<\"name\", T>, Out<\"name\", T> or Attr<\"name\", T>");
  static_assert(std::is_same_v<typename S::Return, void> || std::is_same_v<typename S::Return, bool>,
                "OPKIT_OP: the function must return void or bool");
  static_assert(S::NamesDiffer(), "OPKIT_OP: two parameters of the function have the same name");

 public:
  explicit TypedOp(detail::TypedRules* rules) : rules_(rules) {}

  TypedOp Doc(std::string doc) { return schema().SetDoc(std::move(doc)), *this; }

  // These inputs must have one shape, which these outputs get.
  template <FixedName... Names>
  auto SameShape() {
    static_assert(((InputIndex<Names>() >= 0 || OutputIndex<Names>() >= 0) && ...),
                  "OPKIT_OP(…).SameShape<names…>: a name is neither an input nor an output of the "
                  "function");
    std::vector<int> inputs, outputs;
    (Collect<Names>(inputs, outputs), ...);
    rules_->rules.emplace_back([inputs, outputs](InferenceContext& context) {
      detail::InferSameShape(context, inputs, outputs);
    });
    constexpr uint64_t kNew = ((OutputIndex<Names>() >= 0 ? uint64_t{1} << OutputIndex<Names>() : 0) | ... | 0);
    return TypedOp<Function, kRuled | kNew>(rules_);
  }
  // The shape of an output from a function (const InferenceContext&) -> SymbolicShape, which may
  // read the inputs' shapes, the attributes and the data of constant inputs.
  template <FixedName Name, class F>
  auto OutShape(F shape) {
    static_assert(OutputIndex<Name>() >= 0,
                  "OPKIT_OP(…).OutShape<\"name\">: the name is not an output of the function");
    static_assert(std::is_invocable_r_v<SymbolicShape, F&, const InferenceContext&>,
                  "OPKIT_OP(…).OutShape<\"name\">(f): f must be callable as "
                  "SymbolicShape(const InferenceContext&)");
    rules_->rules.emplace_back([shape = std::move(shape)](InferenceContext& context) mutable {
      context.SetOutput(OutputIndex<Name>(), DType::kUndefined, shape(std::as_const(context)));
    });
    return TypedOp<Function, kRuled | uint64_t{1} << OutputIndex<Name>()>(rules_);
  }
  // The output may be written over the input.
  template <FixedName Input, FixedName Output>
  TypedOp Inplace() {
    static_assert(InputIndex<Input>() >= 0,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the first name is not an input of the "
                  "function");
    static_assert(OutputIndex<Output>() >= 0,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the second name is not an output of "
                  "the function");
    rules_->inplace.push_back({InputIndex<Input>(), OutputIndex<Output>()});
    return *this;
  }
  // The attribute may be left out.
  template <FixedName Name, class T>
  TypedOp Default(const T& value) {
    static_assert(S::template Find<Name>(detail::KindIsAttr) >= 0,
                  "OPKIT_OP(…).Default<\"name\">: the name is not an attribute of the function");
    if constexpr (S::template Find<Name>(detail::KindIsAttr) >= 0) {
      using Value = AttributeValue<Name>;
      static_assert(std::is_convertible_v<T, Value> &&
                        !(std::is_floating_point_v<T> && std::is_integral_v<Value>) &&
                        std::is_same_v<T, bool> == std::is_same_v<Value, bool>,
                    "OPKIT_OP(…).Default<\"name\">(value): the value is not of the attribute's type");
      schema().SetDefault(Name.str(), Attribute(static_cast<Value>(value)));
    }
    return *this;
  }
  // Floating-point operations for each element of output 0.
  TypedOp Flops(uint64_t per_element) { return schema().PointwiseCost(per_element), *this; }
  // Everything else that a schema can say.
  template <class F>
  TypedOp Schema(F fill) {
    return fill(schema()), *this;
  }

  // Registers the function for a device; for a function over <Context, T> with the element types it
  // is compiled for.
  template <class Context, Element... Types>
  TypedOp Kernel() {
    static_assert(DeviceContext<Context>,
                  "OPKIT_OP(…).Kernel<Context>: Context must meet opkit::DeviceContext");
    constexpr uint64_t kAll = (uint64_t{1} << kOutputs) - 1;
    static_assert((kRuled & kAll) == kAll,
                  "OPKIT_OP: an output has no shape rule; add .SameShape<\"input\", \"output\">() or "
                  ".OutShape<\"output\">(f) before .Kernel");
    static_assert(detail::kTakesElementType<Function> == (sizeof...(Types) > 0),
                  "OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element "
                  "types here, one over <Context> takes none");
    static_assert(!detail::kTakesElementType<Function> || detail::ElementTypeInput<Function>() >= 0,
                  "OPKIT_OP: a function over <Context, T> needs an input In<\"name\", T> that says "
                  "which T to run");
#ifdef __CUDACC__
    static_assert(Context::kDeviceType == DeviceType::kCUDA,
                  "OPKIT_OP(…).Kernel<CPUContext>() under nvcc would compute nothing: compile CPU "
                  "kernels in a .cc file, CUDA kernels in a .cu file");
#endif
    if (sizeof...(Types) > 0) schema().SetElementTypes({kDTypeOf<Types>...});
    detail::RegisterKernel(schema().name().c_str(), Context::kDeviceType, "DEFAULT",
                           RegistrationPriority::kDefault, rules_->file, rules_->line,
                           &detail::CreateClass<detail::TypedOperator<Function, Context, Types...>>);
    return *this;
  }

 private:
  template <FixedName Name>
  static constexpr int InputIndex() {
    return S::template Find<Name>(detail::KindIsInput);
  }
  template <FixedName Name>
  static constexpr int OutputIndex() {
    return S::template Find<Name>(detail::KindIsOut);
  }
  template <FixedName Name>
  static void Collect(std::vector<int>& inputs, std::vector<int>& outputs) {
    if (InputIndex<Name>() >= 0) inputs.push_back(InputIndex<Name>());
    if (OutputIndex<Name>() >= 0) outputs.push_back(OutputIndex<Name>());
  }
  template <FixedName Name>
  static auto AttributeValueOf() {
    return []<size_t... I>(std::index_sequence<I...>) {
      std::tuple<typename detail::ParameterTraits<typename S::template Parameter<I>>::Value...>* values = nullptr;
      constexpr size_t kFound =
          ((detail::ParameterTraits<typename S::template Parameter<I>>::kKind ==
                        detail::ParameterKind::kAttr &&
                    detail::ParameterTraits<typename S::template Parameter<I>>::kName == Name
                ? I
                : 0) +
           ...);
      return std::type_identity<
          std::remove_cvref_t<decltype(std::get<kFound>(*values))>>{};
    }(std::make_index_sequence<S::kCount>{});
  }
  template <FixedName Name>
  using AttributeValue = typename decltype(AttributeValueOf<Name>())::type;

  static constexpr int CountOutputs() {
    int count = 0;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((count += detail::KindIsOut(detail::ParameterTraits<typename S::template Parameter<I>>::kKind)), ...);
    }(std::make_index_sequence<S::kCount>{});
    return count;
  }
  static constexpr int kOutputs = CountOutputs();

  OpSchema& schema() { return *rules_->schema; }

  detail::TypedRules* rules_;
};

namespace detail {

// Fills in what the signature says.
template <class Function, size_t I>
void DescribeParameter(OpSchema& schema, TypedRules& rules, int& required_inputs) {
  using S = CanonicalSignature<Function>;
  using P = typename S::template Parameter<I>;
  constexpr bool kByElement = DependsOnElementType<Function, I>();
  const std::string name = P::kName.str();
  if constexpr (ParameterTraits<P>::kKind == ParameterKind::kAttr) {
    using Value = typename P::value_type;
    static_assert(kByElement || requires { kAttributeTypeOf<Value>; },
                  "OPKIT_OP: Attr<\"name\", T>: T must be an integer, bool, floating-point number, "
                  "std::string, or a std::vector of one of these");
    schema.RequiredArg<std::conditional_t<kByElement, double, Value>>(name, "");
  } else {
    const DType dtype = kByElement ? DType::kUndefined : kDTypeOf<typename P::value_type>;
    std::vector<DType> dtypes;
    if (!kByElement) dtypes.push_back(dtype);
    constexpr int kPlace = S::template Place<I>();
    if constexpr (IsInput(ParameterTraits<P>::kKind)) {
      schema.Input(kPlace, name, {}, std::move(dtypes));
      rules.input_dtypes.push_back(dtype);
      if (ParameterTraits<P>::kKind == ParameterKind::kIn) required_inputs = kPlace + 1;
    } else {
      schema.Output(kPlace, name, {}, std::move(dtypes));
      rules.output_dtypes.push_back(dtype);
    }
  }
}

template <class Function>
TypedOp<Function> MakeTypedOp(const char* name, const char* file, int line, Function) {
  using S = CanonicalSignature<Function>;
  auto owned = std::make_unique<TypedRules>();
  TypedRules* rules = owned.get();
  if constexpr (S::kValid && S::kParametersKnown) {
    // The same signature in a .cc and a .cu file is the same operator.
    OpSchema& schema = OpRegistry::Global().AddSchema(
        name, file, line, typeid(S).name());
    rules->schema = &schema;
    rules->file = file;
    rules->line = line;
    int required_inputs = 0;
    [&]<size_t... I>(std::index_sequence<I...>) {
      (DescribeParameter<Function, I>(schema, *rules, required_inputs), ...);
    }(std::make_index_sequence<S::kCount>{});
    rules->element_input = ElementTypeInput<Function>();
    schema.NumInputs(required_inputs, static_cast<int>(rules->input_dtypes.size()))
        .NumOutputs(static_cast<int>(rules->output_dtypes.size()))
        .AllowInplace([rules](int in, int out) {
          for (const auto& pair : rules->inplace)
            if (pair.first == in && pair.second == out) return true;
          return false;
        })
        .TensorInferenceFunction(
            [owned = std::move(owned)](InferenceContext& context) { owned->Infer(context); });
  } else {
    owned.release();  // never reached: TypedOp's static_assert says what is wrong
  }
  return TypedOp<Function>(rules);
}

}  // namespace detail
}  // namespace opkit

// OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">()
//     .Default<"alpha">(1.f).Kernel<CPUContext>();
//
// At namespace scope, after the function template `Axpy`; a static initialiser.
#define OPKIT_OP(name)                                                                            \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}      \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_typed_op_) = ::opkit::detail::MakeTypedOp( \
      #name, __FILE__, __LINE__,                                                                  \
      []<class... OpkitTypes>(std::type_identity<OpkitTypes>...) constexpr                        \
          ->decltype(&name<OpkitTypes...>) { return &name<OpkitTypes...>; })

#endif  // OPKIT_OP_TYPED_OPERATOR_HPP_

// The signature of a typed operator's function as a compile-time table: kind, name, place, and
// dtype or attribute type of each parameter. Also contains the compile errors for signatures that
// the table cannot describe.
#ifndef OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_
#define OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_

#include <array>
#include <span>
#include <tuple>

#include "opkit/device/context.hpp"
#include "opkit/op/typed/typed_values.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

enum class ParameterKind { kIn, kOptionalIn, kOut, kAttr, kUnknown };

constexpr bool IsInput(ParameterKind kind) {
  return kind == ParameterKind::kIn || kind == ParameterKind::kOptionalIn;
}
constexpr bool IsOutput(ParameterKind kind) { return kind == ParameterKind::kOut; }
constexpr bool IsAttribute(ParameterKind kind) { return kind == ParameterKind::kAttr; }

// True if T is allowed in Attr<"name", T>.
template <class T>
inline constexpr bool kIsAttributeElement =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
    std::is_same_v<T, Tensor>;
template <class T>
inline constexpr bool kIsAttribute = kIsAttributeElement<T>;
template <class T>
inline constexpr bool kIsAttribute<std::vector<T>> = kIsAttributeElement<T>;

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <class P>
struct ParameterTraits {
  static constexpr ParameterKind kKind = ParameterKind::kUnknown;
  static constexpr FixedName kName = "?";
  using Value = void;
};
template <ParameterKind kParameterKind, FixedName Name, class T>
struct KnownParameter {
  static constexpr ParameterKind kKind = kParameterKind;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<In<Name, T>> : KnownParameter<ParameterKind::kIn, Name, T> {};
template <FixedName Name, class T>
struct ParameterTraits<OptionalIn<Name, T>> : KnownParameter<ParameterKind::kOptionalIn, Name, T> {
};
template <FixedName Name, class T>
struct ParameterTraits<Out<Name, T>> : KnownParameter<ParameterKind::kOut, Name, T> {};
template <FixedName Name, class T>
struct ParameterTraits<Attr<Name, T>> : KnownParameter<ParameterKind::kAttr, Name, T> {};

// One row of the table: a parameter of the function.
struct TypedParameter {
  ParameterKind kind;
  FixedName name;
  DType dtype;              // dtype of a tensor
  AttributeType attribute;  // type of an attribute
  int place = 0;            // among the inputs, the outputs or the attributes
  bool by_element = false;  // declared with the function's element type T
};

template <class P>
consteval TypedParameter DescribeParameter() {
  using Traits = ParameterTraits<P>;
  using Value = typename Traits::Value;
  TypedParameter row{Traits::kKind, Traits::kName, DType::kUndefined, AttributeType::kInt};
  if constexpr (Traits::kKind == ParameterKind::kAttr) {
    if constexpr (kIsAttribute<Value>) row.attribute = kAttributeTypeOf<Value>;
  } else if constexpr (Traits::kKind != ParameterKind::kUnknown) {
    row.dtype = kDTypeOf<Value>;
  }
  return row;
}

// Reads the type of a function: R (Context&, P...).
template <class F>
struct TypedSignature {
  static constexpr bool kReadable = false;
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...)> {
  static constexpr bool kReadable = true;
  static constexpr size_t kCount = sizeof...(P);
  using Return = R;
  using Context = std::remove_const_t<C>;
  using Values = std::tuple<std::remove_cvref_t<P>...>;
  template <size_t I>
  using Parameter = std::tuple_element_t<I, Values>;
  template <size_t I>
  using Value = typename ParameterTraits<Parameter<I>>::Value;

  static constexpr std::array<TypedParameter, kCount> kRows = {
      DescribeParameter<std::remove_cvref_t<P>>()...};
  static constexpr bool kParametersKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kUnknown &&
        !std::is_rvalue_reference_v<P>)&&...);
  static constexpr bool kAttributesKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kAttr ||
        kIsAttribute<typename ParameterTraits<std::remove_cvref_t<P>>::Value>)&&...);
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...) noexcept> : TypedSignature<R (*)(C&, P...)> {};

// True if the function has a version for these types. Function is the type of OPKIT_OP's lambda,
// which stands for a function template over <Context> alone, or over <Context, T>.
template <class Function, class... Types>
inline constexpr bool kHasVersion = std::is_invocable_v<Function, std::type_identity<Types>...>;
template <class Function, class... Types>
using SignatureOf = TypedSignature<decltype(Function{}(std::type_identity<Types>{}...))>;

// Returns two element types for which the function has versions. The comparison of the two versions
// shows which parameters change with T.
template <class Function>
consteval auto ElementProbes() {
  if constexpr (kHasVersion<Function, CPUContext, float, float, float>) {
    // The function is not a template: a compiler that continues after that error accepts any
    // arguments.
    return std::type_identity<bool>{};
  } else if constexpr (kHasVersion<Function, CPUContext, float> &&
                       kHasVersion<Function, CPUContext, double>) {
    return std::type_identity<void(float, double)>{};
  } else if constexpr (kHasVersion<Function, CPUContext, int32_t> &&
                       kHasVersion<Function, CPUContext, int64_t>) {
    return std::type_identity<void(int32_t, int64_t)>{};
  } else {
    return std::type_identity<void>{};
  }
}

template <class Function, class Probes>
struct TypedFunctionOf {  // neither form
  static constexpr bool kTemplate = false;
};
template <class Function>
  requires(kHasVersion<Function, CPUContext>)
struct TypedFunctionOf<Function, void> {
  static constexpr bool kTemplate = true;
  static constexpr bool kTakesElement = false;
  using Signature = SignatureOf<Function, CPUContext>;
  template <size_t>
  static constexpr bool kByElement = false;
  static constexpr bool kElementsAreT = true;
};
template <class Function, class T, class U>
struct TypedFunctionOf<Function, void(T, U)> {
  static constexpr bool kTemplate = true;
  static constexpr bool kTakesElement = true;
  using Signature = SignatureOf<Function, CPUContext, T>;
  using Other = SignatureOf<Function, CPUContext, U>;
  template <size_t I>
  static constexpr bool kByElement = !std::is_same_v<typename Signature::template Parameter<I>,
                                                     typename Other::template Parameter<I>>;
  template <class A, class B>
  static constexpr bool kIsElement =
      std::is_same_v<A, B> || (std::is_same_v<A, T> && std::is_same_v<B, U>) ||
      (std::is_same_v<A, std::vector<T>> && std::is_same_v<B, std::vector<U>>);
  // True if every parameter that depends on T has T itself, or a vector of T, as its type.
  static constexpr bool kElementsAreT = []<size_t... I>(std::index_sequence<I...>) {
    return (kIsElement<typename Signature::template Value<I>, typename Other::template Value<I>> &&
            ...);
  }(std::make_index_sequence < Signature::kReadable ? Signature::kCount : 0 > {});
};

// The facts about a readable function that OPKIT_OP needs.
template <class Function>
struct TypedFunction
    : TypedFunctionOf<Function, typename decltype(ElementProbes<Function>())::type> {};

template <class Function>
consteval auto TypedRows() {
  using F = TypedFunction<Function>;
  using S = typename F::Signature;
  auto rows = S::kRows;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((rows[I].by_element = F::template kByElement<I>), ...);
  }(std::make_index_sequence<S::kCount>{});
  int inputs = 0, outputs = 0, attributes = 0;
  for (TypedParameter& row : rows) {
    row.place = IsInput(row.kind) ? inputs++ : IsOutput(row.kind) ? outputs++ : attributes++;
    if (!row.by_element) continue;
    row.dtype = DType::kUndefined;
    if (IsAttribute(row.kind))  // kept as floating point for every T
      row.attribute =
          row.attribute >= AttributeType::kInts ? AttributeType::kFloats : AttributeType::kFloat;
  }
  return rows;
}
template <class Function>
inline constexpr auto kTypedRows = TypedRows<Function>();

// Returns the index of the parameter of that name and kind, or -1.
template <class Function>
constexpr int FindParameter(FixedName name, bool (*of_kind)(ParameterKind)) {
  const auto& rows = kTypedRows<Function>;
  for (size_t i = 0; i < rows.size(); ++i)
    if (of_kind(rows[i].kind) && rows[i].name == name) return static_cast<int>(i);
  return -1;
}
// Returns the place of the input (output) of that name, or -1.
template <class Function>
constexpr int FindPlace(FixedName name, bool (*of_kind)(ParameterKind)) {
  const int found = FindParameter<Function>(name, of_kind);
  return found < 0 ? -1 : kTypedRows<Function>[Index(found)].place;
}
template <class Function>
constexpr int CountParameters(bool (*of_kind)(ParameterKind)) {
  int count = 0;
  for (const TypedParameter& row : kTypedRows<Function>) count += of_kind(row.kind);
  return count;
}
template <class Function>
constexpr bool NamesDiffer() {
  const auto& rows = kTypedRows<Function>;
  for (size_t a = 0; a < rows.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (rows[a].name == rows[b].name) return false;
  return true;
}
// Returns the place of the first required input declared with T, or -1.
template <class Function>
constexpr int ElementInput() {
  for (const TypedParameter& row : kTypedRows<Function>)
    if (row.kind == ParameterKind::kIn && row.by_element) return row.place;
  return -1;
}

// Reports the first mistake in the function's signature as a compile error; true if there is none.
template <class Function>
consteval bool CheckTypedFunction() {
  using F = TypedFunction<Function>;
  static_assert(F::kTemplate,
                "OPKIT_OP(name): name must be one function template over <class Context>, or over "
                "<class Context, class T> with an element type T");
  if constexpr (F::kTemplate) {
    using S = typename F::Signature;
    static_assert(S::kReadable,
                  "OPKIT_OP: the function must be void or bool (Context&, In<\"name\", T>…, "
                  "Out<\"name\", T>…, Attr<\"name\", T>…)");
    if constexpr (S::kReadable) {
      constexpr bool kContext = std::is_same_v<typename S::Context, CPUContext>;
      static_assert(kContext, "OPKIT_OP: the function's first parameter must be Context&");
      constexpr bool kReturn =
          std::is_same_v<typename S::Return, void> || std::is_same_v<typename S::Return, bool>;
      static_assert(kReturn, "OPKIT_OP: the function must return void or bool");
      static_assert(S::kParametersKnown,
                    "OPKIT_OP: every parameter after the context must be In<\"name\", T>, "
                    "OptionalIn<\"name\", T>, Out<\"name\", T> or Attr<\"name\", T>");
      static_assert(S::kAttributesKnown || !S::kParametersKnown,
                    "OPKIT_OP: Attr<\"name\", T>: T must be an integer, bool, floating-point "
                    "number, std::string, opkit::Tensor, or a std::vector of one of these");
      if constexpr (kContext && kReturn && S::kParametersKnown && S::kAttributesKnown) {
        static_assert(NamesDiffer<Function>(),
                      "OPKIT_OP: two parameters of the function have the same name");
        static_assert(F::kElementsAreT,
                      "OPKIT_OP: where a parameter of a function over <Context, T> depends on T, "
                      "its type must be T itself, or std::vector<T> for an attribute");
        constexpr bool kSaysT = !F::kTakesElement || ElementInput<Function>() >= 0;
        static_assert(kSaysT,
                      "OPKIT_OP: a function over <Context, T> needs an input In<\"name\", T> that "
                      "says which T to run");
        constexpr bool kFewOutputs = CountParameters<Function>(IsOutput) < 64;
        static_assert(kFewOutputs, "OPKIT_OP: the function has more than 63 outputs");
        return NamesDiffer<Function>() && F::kElementsAreT && kSaysT && kFewOutputs;
      }
    }
  }
  return false;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_

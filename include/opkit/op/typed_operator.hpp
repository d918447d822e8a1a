// Typed operators: OPKIT_OP registers one function template and derives everything else (arity,
// dtypes, attribute names and types, output allocation, checks, docs) from its signature at compile
// time. The same source serves the CPU, its streams and devices.
#ifndef OPKIT_OP_TYPED_OPERATOR_HPP_
#define OPKIT_OP_TYPED_OPERATOR_HPP_

#include "opkit/op/registration.hpp"
#include "opkit/op/typed/typed_class.hpp"
#include "opkit/op/typed/typed_schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Accepts the rest of a builder's chain after a reported mistake, so that the compiler prints no
// second error.
struct IgnoredOp {
  IgnoredOp Doc(const auto&...) { return {}; }
  template <FixedName...>
  IgnoredOp SameShape() {
    return {};
  }
  template <FixedName>
  IgnoredOp OutShape(const auto&) {
    return {};
  }
  template <FixedName...>
  IgnoredOp Inplace() {
    return {};
  }
  template <FixedName, class T = int>
  IgnoredOp Default(const T&) {
    return {};
  }
  template <FixedName>
  IgnoredOp Values(std::initializer_list<const char*>) {
    return {};
  }
  IgnoredOp Flops(const auto&) { return {}; }
  IgnoredOp PointwiseCost(const auto&) { return {}; }
  IgnoredOp Schema(const auto&) { return {}; }
  template <class...>
  IgnoredOp Kernel() {
    return {};
  }
};

// The type of the attribute of that name; NoAttribute if there is none.
struct NoAttribute {};
template <class Function, FixedName Name>
consteval auto FindAttributeValue() {
  constexpr int kRow = FindParameter<Function>(Name, IsAttribute);
  if constexpr (kRow >= 0) {
    using S = typename TypedFunction<Function>::Signature;
    return std::type_identity<typename S::template Value<Index(kRow)>>{};
  } else {
    return std::type_identity<NoAttribute>{};
  }
}
template <class Function, FixedName Name>
using AttributeValue = typename decltype(FindAttributeValue<Function, Name>())::type;

// Accepts a value as an attribute's default if the value converts to the attribute's type without
// losing a fraction and without mixing numbers and bools.
template <class T, class Value>
concept DefaultFor =
    std::is_convertible_v<T, Value> &&
    !(std::is_floating_point_v<T> && std::is_integral_v<Value>)&&std::is_same_v<T, bool> ==
        std::is_same_v<Value, bool>;

}  // namespace detail

// The builder behind OPKIT_OP. `kRuled` has bit o set once output o has a shape rule. The same
// function in another file is the same operator: for instance CPU kernels in a file for the C++
// compiler, device kernels in a file for the device compiler. The chains of both files must then
// declare the same schema.
template <class Function, uint64_t kRuled = 0>
class TypedOp {
 public:
  // OPKIT_OP makes it.
  explicit TypedOp(detail::TypedSchemaPtr typed) : typed_(std::move(typed)) {}

  // Sets the sentences that `opkit ops` and references show.
  TypedOp Doc(std::string doc) { return schema().Doc(std::move(doc)), *this; }

  // Requires the same shape of all these inputs and gives it to these outputs.
  template <detail::FixedName... Names>
  auto SameShape() {
    constexpr bool kKnown = ((InputPlace(Names) >= 0 || OutputPlace(Names) >= 0) && ...);
    static_assert(kKnown,
                  "OPKIT_OP(…).SameShape<names…>: a name is neither an input nor an output of the "
                  "function");
    constexpr bool kFollows = ((InputPlace(Names) >= 0 || (OutputBit(Names) & kRuled) != 0) || ...);
    static_assert(
        kFollows || !kKnown,
        "OPKIT_OP(…).SameShape<names…>: name an input, or an output that has a shape rule "
        "already, for the others to follow");
    if constexpr (kKnown && kFollows) {
      typed_->SameShape({InputPlace(Names)...}, {OutputPlace(Names)...});
      return TypedOp<Function, (kRuled | ... | OutputBit(Names))>(typed_);
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the shape of an output by a function (const InferenceContext&) -> SymbolicShape. The
  // function may read the inputs' shapes, the attributes and, by input_constant, the data of
  // inputs. In a graph before its run input_constant returns null. Inference waits for an
  // asynchronous device before the function reads data.
  template <detail::FixedName Name, class F>
  auto OutShape(F shape) {
    constexpr bool kKnown = OutputPlace(Name) >= 0;
    static_assert(kKnown,
                  "OPKIT_OP(…).OutShape<\"name\">: the name is not an output of the function");
    constexpr bool kCallable = std::is_invocable_r_v<SymbolicShape, F&, const InferenceContext&>;
    static_assert(kCallable,
                  "OPKIT_OP(…).OutShape<\"name\">(f): f must be callable as "
                  "SymbolicShape(const InferenceContext&)");
    if constexpr (kKnown && kCallable) {
      typed_->AddRule([shape = std::move(shape)](InferenceContext& context) mutable {
        context.SetOutput(OutputPlace(Name), DType::kUndefined, shape(std::as_const(context)));
      });
      return TypedOp<Function, kRuled | OutputBit(Name)>(typed_);
    } else {
      return detail::IgnoredOp();
    }
  }
  // Allows the output to overwrite the input.
  template <detail::FixedName Input, detail::FixedName Output>
  auto Inplace() {
    constexpr bool kInput = InputPlace(Input) >= 0, kOutput = OutputPlace(Output) >= 0;
    static_assert(
        kInput,
        "OPKIT_OP(…).Inplace<\"input\", \"output\">: the first name is not an input of the "
        "function");
    static_assert(kOutput,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the second name is not an output of "
                  "the function");
    if constexpr (kInput && kOutput) {
      constexpr bool kSameSize =
          ItemSizeOf(Input, detail::IsInput) == ItemSizeOf(Output, detail::IsOutput);
      static_assert(
          kSameSize,
          "OPKIT_OP(…).Inplace<\"input\", \"output\">: the two have elements of different "
          "sizes");
      typed_->AddInplace(InputPlace(Input), OutputPlace(Output));
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Makes the attribute optional.
  template <detail::FixedName Name, class T = detail::AttributeValue<Function, Name>>
  auto Default(const T& value) {
    using Value = detail::AttributeValue<Function, Name>;
    constexpr bool kKnown = !std::is_same_v<Value, detail::NoAttribute>;
    static_assert(kKnown,
                  "OPKIT_OP(…).Default<\"name\">: the name is not an attribute of the function");
    constexpr bool kRightType = detail::DefaultFor<T, Value>;
    static_assert(kRightType || !kKnown,
                  "OPKIT_OP(…).Default<\"name\">(value): the value is not of the attribute's type");
    if constexpr (kKnown && kRightType) {
      constexpr int kRow = detail::FindParameter<Function>(Name, detail::IsAttribute);
      constexpr bool kByElement = detail::kTypedRows<Function>[kRow].by_element;
      if constexpr (kByElement && std::is_arithmetic_v<T>)
        schema().Default(Name.str(), static_cast<double>(value));
      else if constexpr (std::is_integral_v<T> && std::is_integral_v<Value>)
        schema().Default(Name.str(), value);  // its range is checked when it is read
      else
        schema().Default(Name.str(), static_cast<Value>(value));
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the allowed values of a string attribute, or of a list's elements. The first becomes the
  // default of a string attribute without a default, as in OpSchema::Arg.
  template <detail::FixedName Name>
  auto Values(std::initializer_list<const char*> values) {
    using Value = detail::AttributeValue<Function, Name>;
    constexpr bool kStrings =
        std::is_same_v<Value, std::string> || std::is_same_v<Value, std::vector<std::string>>;
    static_assert(kStrings,
                  "OPKIT_OP(…).Values<\"name\">(…): the name is not a string attribute of the "
                  "function");
    if constexpr (kStrings) {
      schema().Values(Name.str(), {values.begin(), values.end()});
      if (std::is_same_v<Value, std::string> && schema().FindAttribute(Name.str())->required)
        schema().Default(Name.str(), *values.begin());
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the floating-point operations for each element of output 0, as in OpSchema.
  TypedOp PointwiseCost(uint64_t flops) { return schema().PointwiseCost(flops), *this; }
  // Sets the floating-point operations of a run by a function (const InferenceContext&) -> uint64_t
  // of the attributes and shapes.
  template <std::invocable<const InferenceContext&> F>
  TypedOp Flops(F flops) {
    return schema().Flops(std::move(flops)), *this;
  }
  // Sets all other properties of the schema by a function (OpSchema&). An exception of the function
  // is reported at the operator's first lookup.
  template <std::invocable<OpSchema&> F>
  TypedOp Schema(F fill) {
    try {
      fill(schema());
    } catch (...) {
      typed_->AddProblem(CurrentError().what());
    }
    return *this;
  }

  // Registers the function for a device. For a function over <Context, T>, lists the element types
  // to compile.
  template <class Context, class... Types>
  auto Kernel() {
    constexpr bool kElements = (Element<Types> && ...);
    static_assert(kElements,
                  "OPKIT_OP(…).Kernel<Context, T…>: each T is an element type of a tensor: float, "
                  "double, bool, an integer, opkit::float16 or opkit::bfloat16");
    constexpr bool kContext = DeviceContext<Context>;
    static_assert(kContext, "OPKIT_OP(…).Kernel<Context>: Context must meet opkit::DeviceContext");
    constexpr uint64_t kAll =
        (uint64_t{1} << detail::CountParameters<Function>(detail::IsOutput)) - 1;
    constexpr bool kShapes = (kRuled & kAll) == kAll;
    static_assert(
        kShapes,
        "OPKIT_OP: an output has no shape rule; add .SameShape<\"input\", \"output\">() or "
        ".OutShape<\"output\">(f) before .Kernel");
    constexpr bool kTypes =
        detail::TypedFunction<Function>::kTakesElement == (sizeof...(Types) > 0);
    static_assert(kTypes,
                  "OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element "
                  "types here, one over <Context> takes none");
    if constexpr (kElements && kContext && kShapes && kTypes) {
      constexpr bool kVersions = HasVersions<Context, Types...>();
      static_assert(kVersions,
                    "OPKIT_OP(…).Kernel<Context, T…>: the function has no version for this context "
                    "and these element types");
      if constexpr (kVersions) {
        detail::MakeTyped make = nullptr;
        if constexpr (!std::is_same_v<Context, CPUContext>) {
          make = &detail::MakeTypedOperator<Context>;
          detail::UseOperatorCalls();
        }
        typed_->AddKernel(Context::kDeviceType, detail::kTypedKernel<Function, Context, Types...>,
                          make);
        return *this;
      } else {
        return detail::IgnoredOp();
      }
    } else {
      return detail::IgnoredOp();
    }
  }

 private:
  static constexpr int InputPlace(detail::FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsInput);
  }
  static constexpr int OutputPlace(detail::FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsOutput);
  }
  static constexpr uint64_t OutputBit(detail::FixedName name) {
    return OutputPlace(name) >= 0 ? uint64_t{1} << OutputPlace(name) : 0;
  }
  // Returns 0 for the function's element type.
  static constexpr int64_t ItemSizeOf(detail::FixedName name,
                                      bool (*of_kind)(detail::ParameterKind)) {
    const int row = detail::FindParameter<Function>(name, of_kind);
    const DType dtype = detail::kTypedRows<Function>[detail::Index(row)].dtype;
    return dtype == DType::kUndefined ? 0 : ItemSize(dtype);
  }
  template <class Context, class... Types>
  static consteval bool HasVersions() {
    if constexpr (sizeof...(Types) == 0)
      return detail::kHasVersion<Function, Context>;
    else
      return (detail::kHasVersion<Function, Context, Types> && ...);
  }

  OpSchema& schema() { return typed_->schema; }

  detail::TypedSchemaPtr typed_;
};

namespace detail {

template <class Function>
OPKIT_IMAGE_LOCAL auto MakeTypedOp(const char* name, const char* file, int line, Function) {
  if constexpr (CheckTypedFunction<Function>())
    return TypedOp<Function>(TypedSchema::Make(name, file, line, kTypedRows<Function>));
  else
    return IgnoredOp();
}

}  // namespace detail
}}  // namespace opkit

// Registers a typed operator: the function template `name` over its context. Belongs at namespace
// scope, after the function; runs during static initialisation and does not throw.
//
//   OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">()
//       .Default<"alpha">(1.f).Kernel<CPUContext>();
#define OPKIT_OP(name)                                                                             \
  OPKIT_REGISTRATION_OF(OPKIT_OP, name);                                                           \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}       \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_typed_op_) = ::opkit::detail::MakeTypedOp( \
      #name, __FILE__, __LINE__,                                                                   \
      []<class... OpkitTypes>(std::type_identity<OpkitTypes>...) constexpr                         \
      -> decltype(&name<OpkitTypes...>) { return &name<OpkitTypes...>; })

#endif  // OPKIT_OP_TYPED_OPERATOR_HPP_

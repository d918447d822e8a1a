// TypedKernel: the record that OPKIT_OP(…).Kernel<Context, T…>() registers. It has a row for each
// parameter of the author's function. For each element type it has a function that calls the
// author's function with the values of the parameters. TypedCall does the rest of a run, which is
// the same for all signatures.
#ifndef OPKIT_OP_TYPED_TYPED_KERNEL_HPP_
#define OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/op/typed/typed_signature.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The value of one parameter in a run, for any C++ type.
struct TypedSlot {
  TypedExtents extents;           // extents of a tensor
  void* data = nullptr;           // first element of a tensor
  bool present = false;           // false: the node leaves the input out
  uint64_t number = 0;            // the bytes of an attribute that is a number, bool or enum
  IntrusivePtr<RefCounted> held;  // a Shared<T> for an attribute of any other type T
};

// Reads an attribute into a slot. Throws kTypeMismatch, kOutOfRange.
using AttributeReader = void (*)(const Attribute& attribute, TypedSlot& slot);

// The function for one element type.
struct TypedVersion {
  DType element;  // kUndefined if the function has no element type
  bool (*call)(void* context, const TypedSlot* slots);
  const AttributeReader* readers;  // one for each parameter; null for a tensor
};

// The record of a typed kernel; a constant of the program.
struct TypedKernel {
  std::span<const TypedParameter> rows;
  std::span<const TypedVersion> versions;
  int element_input;  // the input whose dtype selects the version; -1: only one version
};

[[noreturn]] OPKIT_COLD void ThrowNoElement(double value, DType dtype);
// Returns `value` as an element of type T. Throws kOutOfRange if an integer or bool cannot hold it.
template <class T>
T ToElement(double value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr int kBits = std::is_same_v<T, bool> ? 1 : 8 * sizeof(T) - std::is_signed_v<T>;
    constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (kBits - 1));
    if (!(value < kEnd && value >= (std::is_signed_v<T> ? -kEnd : 0)) ||
        static_cast<double>(static_cast<T>(value)) != value)
      ThrowNoElement(value, kDTypeOf<T>);
  }
  return static_cast<T>(value);
}

template <class T>
void SetSlot(TypedSlot& slot, T value) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    static_assert(sizeof(T) <= sizeof slot.number);
    __builtin_memcpy(&slot.number, &value, sizeof value);
  } else {
    slot.held = IntrusivePtr<RefCounted>(new Shared<T>(std::move(value)));
  }
}
template <class T>
void ReadAttribute(const Attribute& attribute, TypedSlot& slot) {
  SetSlot(slot, attribute.Get<T>());
}
// Reads an attribute that the function declares with its element type, or with a list of that type.
// A node stores such an attribute as a floating-point number or a list of such numbers.
template <class T>
void ReadElements(const Attribute& attribute, TypedSlot& slot) {
  if constexpr (kIsVector<T>) {
    T elements;
    for (const double value : attribute.Get<std::vector<double>>())
      elements.push_back(ToElement<typename T::value_type>(value));
    SetSlot(slot, std::move(elements));
  } else {
    SetSlot(slot, ToElement<T>(attribute.Get<double>()));
  }
}

// Makes the parameter from its slot.
template <class P>
P FromSlot(const TypedSlot& slot) {
  using Traits = ParameterTraits<P>;
  using T = typename Traits::Value;
  if constexpr (Traits::kKind == ParameterKind::kAttr) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      T value;
      __builtin_memcpy(&value, &slot.number, sizeof value);
      return P(value);
    } else {
      return P(slot.held);
    }
  } else {
    if constexpr (Traits::kKind == ParameterKind::kOptionalIn)
      if (!slot.present) return P();
    return P(static_cast<T*>(slot.data), slot.extents);
  }
}

// The function over Context and at most one element type: its call and its readers of attributes.
template <class Function, class Context, class... Types>
struct TypedVersionOf {
  using S = SignatureOf<Function, Context, Types...>;

  template <size_t... I>
  static auto CallWith(void* context, const TypedSlot* slots, std::index_sequence<I...>) {
    constexpr auto kFunction =
        Function{}(std::type_identity<Context>{}, std::type_identity<Types>{}...);
    return kFunction(*static_cast<Context*>(context),
                     FromSlot<typename S::template Parameter<I>>(slots[I])...);
  }
  static bool Call(void* context, const TypedSlot* slots) {
    if constexpr (std::is_void_v<typename S::Return>) {
      CallWith(context, slots, std::make_index_sequence<S::kCount>{});
      return true;
    } else {
      return CallWith(context, slots, std::make_index_sequence<S::kCount>{});
    }
  }

  template <size_t I>
  static constexpr AttributeReader ReaderOf() {
    using Traits = ParameterTraits<typename S::template Parameter<I>>;
    if constexpr (Traits::kKind != ParameterKind::kAttr)
      return nullptr;
    else if constexpr (kTypedRows<Function>[I].by_element)
      return &ReadElements<typename Traits::Value>;
    else
      return &ReadAttribute<typename Traits::Value>;
  }
  template <size_t... I>
  static constexpr std::array<AttributeReader, S::kCount> Readers(std::index_sequence<I...>) {
    return {ReaderOf<I>()...};
  }
  static constexpr auto kReaders = Readers(std::make_index_sequence<S::kCount>{});
};

template <class Function, class Context, class... Types>
consteval auto TypedVersions() {
  if constexpr (sizeof...(Types) == 0) {
    using Version = TypedVersionOf<Function, Context>;
    return std::array<TypedVersion, 1>{
        {{DType::kUndefined, &Version::Call, Version::kReaders.data()}}};
  } else {
    return std::array<TypedVersion, sizeof...(Types)>{
        {{kDTypeOf<Types>, &TypedVersionOf<Function, Context, Types>::Call,
          TypedVersionOf<Function, Context, Types>::kReaders.data()}...}};
  }
}
template <class Function, class Context, class... Types>
inline constexpr auto kTypedVersions = TypedVersions<Function, Context, Types...>();
template <class Function, class Context, class... Types>
inline constexpr TypedKernel kTypedKernel = {
    kTypedRows<Function>, kTypedVersions<Function, Context, Types...>, ElementInput<Function>()};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

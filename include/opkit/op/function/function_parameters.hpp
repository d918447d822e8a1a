// Reads the parameter list of a function at compile time, and passes arguments as the list says: by
// value, reference or pointer. function_signature.hpp and partition_signature.hpp adapt functions
// of many signatures to one type-erased form each.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_PARAMETERS_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_PARAMETERS_HPP_

#include <type_traits>
#include <utility>

#include "opkit/op/function/op_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the status for SUCCESS or FAIL; for any other number a failure that names it.
inline OpStatus ToStatus(int answer) {
  if (answer == SUCCESS || answer == FAIL) return static_cast<ReturnValue>(answer);
  return OpStatus::Failure("it returned ", answer, "; 1 is SUCCESS and 0 is FAIL");
}

// The types of a function's parameters, in order.
template <class... Types>
struct TypeList {};

// The types of the result and the parameters of F: a function pointer, noexcept or not, or a
// function object whose operator() is neither overloaded nor generic. For any other F the result is
// Unreadable.
template <class R, class... P>
struct SignatureParts {
  using Return = R;
  using Parameters = TypeList<P...>;
};
template <class R, class... P>
SignatureParts<R, P...> ReadSignature(R (*)(P...));
template <class C, class R, class... P>
SignatureParts<R, P...> ReadSignature(R (C::*)(P...));
template <class C, class R, class... P>
SignatureParts<R, P...> ReadSignature(R (C::*)(P...) const);
template <class F>
auto ReadSignature(const F&) -> decltype(ReadSignature(&F::operator()));
struct Unreadable {};
SignatureParts<Unreadable> ReadSignature(...);

template <class F>
using FunctionSignature = decltype(ReadSignature(std::declval<F>()));
template <class F>
using FunctionReturn = typename FunctionSignature<F>::Return;

// True for a result type that CallForStatus turns into an OpStatus; void is a success.
template <class R>
inline constexpr bool kIsReturn =
    std::is_void_v<R> || std::is_same_v<R, int> || std::is_same_v<R, bool> ||
    std::is_same_v<R, ReturnValue> || std::is_same_v<R, OpStatus>;

template <class F, class... Args>
OpStatus CallForStatus(F& f, Args&&... args) {
  using R = FunctionReturn<F>;
  if constexpr (std::is_void_v<R>) {
    f(std::forward<Args>(args)...);
    return {};
  } else if constexpr (std::is_same_v<R, OpStatus>) {
    return f(std::forward<Args>(args)...);
  } else {
    return ToStatus(static_cast<int>(f(std::forward<Args>(args)...)));
  }
}

// P without reference or pointer: the type T that P passes by value, reference or pointer.
template <class P>
using Pointee = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<P>>>;
// True if PassAs can pass a T as P: P is T, T& or T*, const or not.
template <class P>
inline constexpr bool kIsPassed =
    !std::is_rvalue_reference_v<P> &&
    !(std::is_reference_v<P> && std::is_pointer_v<std::remove_reference_t<P>>);
// True if the function can change the caller's object through P.
template <class P>
inline constexpr bool kIsWritable =
    (std::is_lvalue_reference_v<P> ||
     std::is_pointer_v<P>)&&!std::is_const_v<std::remove_pointer_t<std::remove_reference_t<P>>>;

// Passes `object` as P; moves it if P is a value.
template <class P, class T>
P PassAs(T& object) {
  if constexpr (std::is_pointer_v<P>)
    return &object;
  else if constexpr (std::is_reference_v<P>)
    return object;
  else
    return std::move(object);
}

// The headers of signatures have an overload of Adapt(As<Erased>, f, TypeList<P...>) for each list
// of parameters P that they accept. It makes an Erased function, which calls f. kFits is true if
// there is an overload for the parameters of F; AdaptTo calls it.
template <class Erased>
using As = std::type_identity<Erased>;
template <class Erased, class F>
inline constexpr bool kFits = requires {
  Adapt(As<Erased>{}, std::declval<F>(), typename FunctionSignature<F>::Parameters{});
};
template <class Erased, class F>
Erased AdaptTo(F f) {
  if constexpr (kFits<Erased, F>)
    return Adapt(As<Erased>{}, std::move(f), typename FunctionSignature<F>::Parameters{});
  else
    return {};  // a static_assert of the caller has failed
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_FUNCTION_PARAMETERS_HPP_

// FunctionRef: a non-owning reference to anything callable, two words, never allocates. For
// parameters that are called before the callee returns (loop bodies, visitors). A UniqueFunction
// holds a callable that outlives the call.
#ifndef OPKIT_BASE_FUNCTION_REF_HPP_
#define OPKIT_BASE_FUNCTION_REF_HPP_

#include <type_traits>
#include <utility>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if F can be called with Args and returns an R. Compilers evaluate this for every lambda and
// every overload, and an expression compiles faster than std::is_invocable_r.
template <class F, class R, class... Args>
concept CallableAs = requires(F& f, Args... args) {
  f(std::forward<Args>(args)...);
  requires std::is_void_v<R> || std::is_same_v<decltype(f(std::forward<Args>(args)...)), R> ||
               std::is_convertible_v<decltype(f(std::forward<Args>(args)...)), R>;
};

}  // namespace detail

template <class Signature>
class FunctionRef;

// Refers to the callable itself, so a temporary lives long enough only as an argument of the call.
// Functions and function pointers are copied. Copies are cheap and refer to the same callable. A
// call costs one indirect jump.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             !std::is_member_pointer_v<std::remove_cvref_t<F>> && detail::CallableAs<F, R, Args...>)
  FunctionRef(F&& f) noexcept {  // NOLINT: implicit, as a reference is
    using Callable = std::remove_reference_t<F>;
    using Decayed = std::decay_t<F>;
    if constexpr (std::is_pointer_v<Decayed> &&
                  std::is_function_v<std::remove_pointer_t<Decayed>>) {
      target_.function = reinterpret_cast<void (*)()>(static_cast<Decayed>(f));
      call_ = [](Target target, Args... args) -> R {
        return static_cast<R>(
            reinterpret_cast<Decayed>(target.function)(std::forward<Args>(args)...));
      };
    } else {
      target_.object = const_cast<void*>(static_cast<const void*>(__builtin_addressof(f)));
      call_ = [](Target target, Args... args) -> R {
        return static_cast<R>(
            (*static_cast<Callable*>(target.object))(std::forward<Args>(args)...));
      };
    }
  }

  R operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  union Target {
    void* object;
    void (*function)();
  };
  Target target_;
  R (*call_)(Target, Args...);
};

}}  // namespace opkit

#endif  // OPKIT_BASE_FUNCTION_REF_HPP_

// Hook: lets code of a lower row call a function of an upper row without including its header. The
// calling folder declares the hook; the upper header fills it. A program that does not include the
// upper header does not compile the function behind the hook.
#ifndef OPKIT_BASE_HOOK_HPP_
#define OPKIT_BASE_HOOK_HPP_

#include <utility>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Throws the Error (kFailedPrecondition) for a call through an empty hook.
[[noreturn]] OPKIT_COLD void ThrowEmptyHook(const char* what, const char* header);

template <class Signature>
class Hook;

// Declare a hook at namespace scope, constinit and OPKIT_IMAGE_LOCAL. A static initialiser fills it
// before main; a call from another static initialiser may come too early and throws the Error of an
// empty hook. Filling it twice with the same function is allowed. In the compiled runtime, a source
// of src/ that calls through a hook also links the source that fills it.
//
//   // In the calling header.
//   OPKIT_IMAGE_LOCAL inline constinit Hook<int(const Plan&)> g_draw{"drawing a plan",
//                                                                    "opkit/graph.hpp"};
//   // In the .ipp of the upper header.
//   OPKIT_IMAGE_LOCAL inline const bool kFillsDraw = g_draw.Fill(&DrawPlan);
template <class R, class... Args>
class Hook<R(Args...)> {
 public:
  // The Error of an empty hook reads "`what` needs `header`". `header` is the narrowest umbrella
  // that fills the hook, or the upper header itself if no umbrella but opkit/all.hpp does.
  constexpr Hook(const char* what, const char* header) : what_(what), header_(header) {}
  Hook(Hook&&) = delete;

  // Stores the function; returns true, for a static initialiser. Relaxed: all threads store the
  // same function, and the store publishes no other data.
  bool Fill(R (*function)(Args...)) noexcept {
    __atomic_store_n(&function_, function, __ATOMIC_RELAXED);
    return true;
  }
  explicit operator bool() const { return __atomic_load_n(&function_, __ATOMIC_RELAXED); }
  // Calls the function. Error (kFailedPrecondition) with the header's name if the hook is empty.
  R operator()(Args... args) const {
    R (*const function)(Args...) = __atomic_load_n(&function_, __ATOMIC_RELAXED);
    if (!function) [[unlikely]]
      ThrowEmptyHook(what_, header_);
    return function(std::forward<Args>(args)...);
  }

 private:
  R (*function_)(Args...) = nullptr;
  const char* what_;
  const char* header_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/hook.ipp"
#endif

#endif  // OPKIT_BASE_HOOK_HPP_

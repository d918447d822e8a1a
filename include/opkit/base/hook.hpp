// Hook: a function of an upper row that a lower row calls without naming it. The folder that calls
// owns the hook; the header that makes the case possible fills it, so that a program which does not
// include that header does not compile what stands behind it.
#ifndef OPKIT_BASE_HOOK_HPP_
#define OPKIT_BASE_HOOK_HPP_

#include <utility>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Throws the Error (kFailedPrecondition) of a call through an empty hook.
[[noreturn]] OPKIT_COLD void ThrowEmptyHook(const char* what, const char* header);

template <class Signature>
class Hook;

// A namespace-scope variable, constinit and OPKIT_IMAGE_LOCAL. A static initialiser fills it, so
// that it is full before main; a call from another static initialiser may come too early, and is
// the Error of an empty hook. Filling it twice with one function is allowed. In the compiled
// runtime a source of src/ that calls through a hook links the source that fills it.
//
//   // In the header that calls.
//   OPKIT_IMAGE_LOCAL inline constinit Hook<int(const Plan&)> g_draw{"drawing a plan",
//                                                                    "opkit/graph.hpp"};
//   // In the .ipp of the header that makes the case possible.
//   OPKIT_IMAGE_LOCAL inline const bool kFillsDraw = g_draw.Fill(&DrawPlan);
template <class R, class... Args>
class Hook<R(Args...)> {
 public:
  // The Error of an empty hook says "`what` needs `header`": the narrowest umbrella that fills it,
  // or the header itself where that is none but opkit/all.hpp.
  constexpr Hook(const char* what, const char* header) : what_(what), header_(header) {}
  Hook(Hook&&) = delete;

  // Relaxed: every thread may fill it, with the same function, and reads nothing else by it.
  bool Fill(R (*function)(Args...)) noexcept {
    __atomic_store_n(&function_, function, __ATOMIC_RELAXED);
    return true;
  }
  explicit operator bool() const { return __atomic_load_n(&function_, __ATOMIC_RELAXED); }
  // Error (kFailedPrecondition) with the name of the header where the hook is empty.
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

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/hook.ipp"
#endif

#endif  // OPKIT_BASE_HOOK_HPP_

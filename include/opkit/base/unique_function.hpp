// UniqueFunction: owns anything callable, move-only callables included, with 48 bytes of room
// inside, so that the usual task (a few pointers captured) costs no allocation. One cache line.
#ifndef OPKIT_BASE_UNIQUE_FUNCTION_HPP_
#define OPKIT_BASE_UNIQUE_FUNCTION_HPP_

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "opkit/base/error.hpp"

namespace opkit::inline OPKIT_ABI {

template <class Signature>
class UniqueFunction;

template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  static constexpr size_t kInlineBytes = 48;

  // Whether F is stored inside; otherwise construction allocates once, and moves still do not.
  template <class F>
  static constexpr bool kFitsInline =
      sizeof(F) <= kInlineBytes && alignof(F) <= alignof(std::max_align_t) &&
      std::is_nothrow_move_constructible_v<F>;

  UniqueFunction() noexcept = default;
  UniqueFunction(std::nullptr_t) noexcept {}  // NOLINT: implicit, as for a pointer

  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
  UniqueFunction(F&& f) {  // NOLINT: implicit, so that a lambda can be passed
    using Callable = std::decay_t<F>;
    if constexpr (kFitsInline<Callable>) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(f));
      call_ = &CallInline<Callable>;
      if constexpr (!std::is_trivially_copyable_v<Callable>) manage_ = &ManageInline<Callable>;
    } else {
      ::new (static_cast<void*>(storage_)) Callable*(new Callable(std::forward<F>(f)));
      call_ = &CallHeap<Callable>;
      manage_ = &ManageHeap<Callable>;
    }
  }

  UniqueFunction(UniqueFunction&& other) noexcept { TakeFrom(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      Destroy();
      TakeFrom(other);
    }
    return *this;
  }
  ~UniqueFunction() { Destroy(); }

  explicit operator bool() const noexcept { return call_ != nullptr; }

  R operator()(Args... args) {
    OPKIT_ASSERT(call_ != nullptr);
    return call_(storage_, std::forward<Args>(args)...);
  }

 private:
  template <class F>
  static R CallInline(void* storage, Args... args) {
    return static_cast<R>((*std::launder(static_cast<F*>(storage)))(std::forward<Args>(args)...));
  }
  template <class F>
  static R CallHeap(void* storage, Args... args) {
    return static_cast<R>((**std::launder(static_cast<F**>(storage)))(std::forward<Args>(args)...));
  }

  // Moves what `from` holds into `to` when there is one, and ends it in `from`.
  template <class F>
  static void ManageInline(void* from, void* to) noexcept {
    F* f = std::launder(static_cast<F*>(from));
    if (to != nullptr) ::new (to) F(std::move(*f));
    f->~F();
  }
  template <class F>
  static void ManageHeap(void* from, void* to) noexcept {
    F** f = std::launder(static_cast<F**>(from));
    if (to != nullptr) {
      ::new (to) F*(*f);
    } else {
      delete *f;
    }
  }

  void TakeFrom(UniqueFunction& other) noexcept {
    call_ = std::exchange(other.call_, nullptr);
    manage_ = std::exchange(other.manage_, nullptr);
    if (manage_ != nullptr) {
      manage_(other.storage_, storage_);
    } else if (call_ != nullptr) {
// A small callable leaves the rest of the bytes unset; copying all 48 is faster than asking how
// many.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
      std::memcpy(storage_, other.storage_, kInlineBytes);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
    }
  }
  void Destroy() noexcept {
    call_ = nullptr;
    if (manage_ != nullptr) std::exchange(manage_, nullptr)(storage_, nullptr);
  }

  alignas(std::max_align_t) unsigned char storage_[kInlineBytes];
  R (*call_)(void*, Args...) = nullptr;
  void (*manage_)(void*, void*) noexcept = nullptr;  // null: bytes may be copied and dropped
};

}  // namespace opkit

#endif  // OPKIT_BASE_UNIQUE_FUNCTION_HPP_

// UniqueFunction: owns anything callable, also move-only callables. Has 48 bytes of room inside, so
// that the usual task (a few captured pointers) costs no allocation. One cache line.
#ifndef OPKIT_BASE_UNIQUE_FUNCTION_HPP_
#define OPKIT_BASE_UNIQUE_FUNCTION_HPP_

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Holds a callable, or a pointer to a callable on the heap, of any signature.
class FunctionStorage {
 public:
  static constexpr size_t kInlineBytes = 48;

  FunctionStorage() noexcept = default;
  FunctionStorage(FunctionStorage&& other) noexcept { TakeFrom(other); }
  FunctionStorage& operator=(FunctionStorage&& other) noexcept {
    if (this != &other) {
      Destroy();
      TakeFrom(other);
    }
    return *this;
  }
  ~FunctionStorage() { Destroy(); }

  alignas(std::max_align_t) unsigned char bytes[kInlineBytes];
  void (*call)() = nullptr;
  void (*manage)(void*, void*) noexcept = nullptr;  // null: the bytes are trivially copyable

 private:
  void TakeFrom(FunctionStorage& other) noexcept {
    call = std::exchange(other.call, nullptr);
    manage = std::exchange(other.manage, nullptr);
    if (manage) {
      manage(other.bytes, bytes);
    } else if (call) {
// A small callable leaves other bytes unset. Copying all 48 bytes is faster than counting the set
// bytes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
      std::memcpy(bytes, other.bytes, kInlineBytes);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
    }
  }
  void Destroy() noexcept {
    call = nullptr;
    if (auto* const destroy = std::exchange(manage, nullptr)) destroy(bytes, nullptr);
  }
};

}  // namespace detail

template <class Signature>
class UniqueFunction;

// A move-only owner of a callable. Calling an empty one is not allowed.
template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  static constexpr size_t kInlineBytes = detail::FunctionStorage::kInlineBytes;

  // True if F is stored inside. Otherwise construction allocates once; moves never allocate.
  template <class F>
  static constexpr bool kFitsInline =
      sizeof(F) <= kInlineBytes &&
      alignof(F) <= alignof(std::max_align_t)&& noexcept(F(std::declval<F>()));

  UniqueFunction() noexcept = default;
  UniqueFunction(std::nullptr_t) noexcept {}  // NOLINT: implicit, as for a pointer

  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
             detail::CallableAs<std::decay_t<F>, R, Args...>)
  UniqueFunction(F&& f) {  // NOLINT: implicit, so that a lambda can be passed
    using Callable = std::decay_t<F>;
    void* const bytes = storage_.bytes;
    if constexpr (kFitsInline<Callable>) {
      ::new (bytes) Callable(std::forward<F>(f));
      storage_.call = reinterpret_cast<void (*)()>(&CallInline<Callable>);
      if constexpr (!std::is_trivially_copyable_v<Callable>)
        storage_.manage = &ManageInline<Callable>;
    } else {
      ::new (bytes) Callable*(new Callable(std::forward<F>(f)));
      storage_.call = reinterpret_cast<void (*)()>(&CallHeap<Callable>);
      storage_.manage = &ManageHeap<Callable>;
    }
  }

  explicit operator bool() const noexcept { return storage_.call; }

  R operator()(Args... args) {
    OPKIT_ASSERT(storage_.call);
    return reinterpret_cast<R (*)(void*, Args...)>(storage_.call)(storage_.bytes,
                                                                  std::forward<Args>(args)...);
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

  // Moves the callable in `from` to `to`, unless `to` is null, and destroys the one in `from`.
  template <class F>
  static void ManageInline(void* from, void* to) noexcept {
    F* f = std::launder(static_cast<F*>(from));
    if (to) ::new (to) F(std::move(*f));
    f->~F();
  }
  template <class F>
  static void ManageHeap(void* from, void* to) noexcept {
    F** f = std::launder(static_cast<F**>(from));
    if (to)
      ::new (to) F*(*f);
    else
      delete *f;
  }

  detail::FunctionStorage storage_;
};

}}  // namespace opkit

#endif  // OPKIT_BASE_UNIQUE_FUNCTION_HPP_

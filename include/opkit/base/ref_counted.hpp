// Intrusive reference counting: a handle is one pointer wide and an object takes one allocation.
// Light to include: <memory> costs more than the rest of this folder. Storage and events use it.
#ifndef OPKIT_BASE_REF_COUNTED_HPP_
#define OPKIT_BASE_REF_COUNTED_HPP_

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Base class of the objects that IntrusivePtr holds.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(RefCounted&&) = delete;
  virtual ~RefCounted() = default;

 private:
  template <class>
  friend class IntrusivePtr;
  mutable std::atomic<int64_t> count_{0};
};

// A regular handle of a RefCounted object. Copies may live on different threads; two threads must
// not write the same handle. Calls no std::swap or std::exchange, since these and their traits
// would be instantiated for every T.
template <class T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) : object_(object) { Retain(); }
  IntrusivePtr(const IntrusivePtr& other) : object_(other.object_) { Retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  template <class U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(const IntrusivePtr<U>& other) : IntrusivePtr(other.get()) {}
  // Two operators, not one that takes its argument by value: in `handle = {}` inside a template,
  // clang 16 never destroys that argument.
  IntrusivePtr& operator=(const IntrusivePtr& other) { return *this = IntrusivePtr(other); }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept {
    IntrusivePtr moved(static_cast<IntrusivePtr&&>(other));
    T* const before = object_;
    object_ = moved.object_;
    moved.object_ = before;
    return *this;
  }
  ~IntrusivePtr() { Release(); }

  // Returns a handle of an object that may be in its destructor: null if it is. The caller must
  // prevent the end of that destructor, for instance by a lock that the destructor takes. Relaxed:
  // another handle exists if the count is not 0, and keeps the object alive.
  static IntrusivePtr TryShare(T* object) {
    IntrusivePtr shared;
    int64_t count = object->count_.load(std::memory_order_relaxed);
    while (count > 0 &&
           !object->count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
    }
    if (count > 0) shared.object_ = object;
    return shared;
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_; }
  friend bool operator==(const IntrusivePtr&, const IntrusivePtr&) = default;

  // Returns the number of handles; exact only when no other thread copies or drops one at the same
  // time. Acquire: a caller that sees 1 also sees the writes of the last other owner.
  int64_t use_count() const {
    return object_ ? object_->count_.load(std::memory_order_acquire) : 0;
  }

 private:
  // Relaxed: a new handle is made from an existing one, which keeps the object alive.
  void Retain() {
    if (object_) object_->count_.fetch_add(1, std::memory_order_relaxed);
  }
  // Acquire-release: the thread that deletes sees all writes made through the other handles.
  void Release() {
    if (object_ && object_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object_;
  }
  T* object_ = nullptr;
};

template <class T, class... Args>
IntrusivePtr<T> MakeIntrusive(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

// Objects whose type only their owner knows. One vector type serves all of them, because each
// further type of std::vector that grows costs a translation unit about 4 ms.
using RefCountedList = std::vector<IntrusivePtr<RefCounted>>;

// A reference-counted T.
template <class T>
struct Shared : RefCounted {
  explicit Shared(T object) : value(std::move(object)) {}
  T value;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REF_COUNTED_HPP_

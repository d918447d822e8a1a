// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds opkit/plugin/author.hpp and all that it includes; a header of the same
// checkout may be included beside it, in any order. Declarations come first, then the definitions,
// which a program that defines OPKIT_COMPILED leaves to the one unit that defines
// OPKIT_IMPLEMENTATION.
#ifndef OPKIT_SINGLE_INCLUDE_OP_HPP_
#define OPKIT_SINGLE_INCLUDE_OP_HPP_

#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <initializer_list>
#include <linux/futex.h>
#include <new>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <stddef.h>
#include <stdexcept>
#include <stdint.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

// ---- opkit/version.hpp
// Version of the toolkit and the inline namespace made of it, so that objects compiled against two
// versions link as strangers instead of mixing layouts. Every header opens
// `namespace opkit::inline OPKIT_ABI {`.
#ifndef OPKIT_VERSION_HPP_
#define OPKIT_VERSION_HPP_

#define OPKIT_VERSION_MAJOR 0
#define OPKIT_VERSION_MINOR 1
#define OPKIT_VERSION_PATCH 0
#define OPKIT_VERSION_STRING "0.1.0"

// Changes whenever a type's layout or the meaning of an inline function changes. The two ways to
// consume the toolkit (config.hpp) are two namespaces, so that objects of both never share a type.
#if defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_ABI v0_1_compiled
#else
#define OPKIT_ABI v0_1
#endif

#endif  // OPKIT_VERSION_HPP_

// ---- opkit/config.hpp
// What the compiler in use offers, under the toolkit's own names. Row 0: includes nothing but the
// version.
#ifndef OPKIT_CONFIG_HPP_
#define OPKIT_CONFIG_HPP_

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "opkit needs C++20: add -std=c++20 (g++ 12 or clang 16 and up) to the compiler's options"
#endif

// The two ways to consume the toolkit. Header-only is the default: every definition is inline. With
// OPKIT_COMPILED the headers only declare what is not hot, and the definitions, which stand in the
// impl/*.ipp beside them, are compiled once: by src/*.cpp, or by the one unit of the program that
// defines OPKIT_IMPLEMENTATION before it includes opkit/opkit.hpp.
#if defined(OPKIT_IMPLEMENTATION) && !defined(OPKIT_COMPILED)
#define OPKIT_COMPILED
#endif
#ifdef OPKIT_COMPILED
#define OPKIT_INLINE
#else
#define OPKIT_INLINE inline
#endif
// A header ends with `#ifdef OPKIT_DEFINITIONS`, `#include` of its .ipp.
#if !defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_DEFINITIONS
#endif

// Marks the lambda handed to ParallelFor. `__device__` alone under nvcc: a `__host__ __device__`
// lambda runs 8 to 10 times slower on the host, so CPU kernels are compiled in .cc files.
#ifdef __CUDACC__
#define OPKIT_DEVICE_COMPILER  // one that compiles kernels of a device
#define OPKIT_DEVICE __device__
#define OPKIT_HOST_DEVICE __host__ __device__
#else
#define OPKIT_DEVICE
#define OPKIT_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define OPKIT_DEVICE_PASS  // this pass of the device compiler makes the device's code
#endif

// Visible from a shared object compiled with -fvisibility=hidden: types that cross by exception.
#define OPKIT_EXPORT __attribute__((visibility("default")))

// One in each program or shared library, whatever a dynamic linker would make of it.
#define OPKIT_IMAGE_LOCAL __attribute__((visibility("hidden")))

// Keeps error paths out of the way of the caller's instructions.
#define OPKIT_COLD __attribute__((cold))

#define OPKIT_CONCAT_(a, b) a##b
#define OPKIT_CONCAT(a, b) OPKIT_CONCAT_(a, b)
#define OPKIT_UNIQUE(prefix) OPKIT_CONCAT(prefix, __COUNTER__)

#endif  // OPKIT_CONFIG_HPP_

// ---- opkit/base/ref_counted.hpp
// Intrusive reference counting: one pointer wide and one allocation, and light to include (<memory>
// costs more than the rest of this folder). Storage and event state are shared through it.
#ifndef OPKIT_BASE_REF_COUNTED_HPP_
#define OPKIT_BASE_REF_COUNTED_HPP_

namespace opkit::inline OPKIT_ABI {

// Base of what is held by IntrusivePtr.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

 private:
  template <class>
  friend class IntrusivePtr;
  mutable std::atomic<int64_t> count_{0};
};

// Regular handle of a RefCounted. Copies may live on different threads; one handle object may not
// be written from two.
template <class T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) : object_(object) { Retain(); }
  IntrusivePtr(const IntrusivePtr& other) : object_(other.object_) { Retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(const IntrusivePtr<U>& other) : IntrusivePtr(other.get()) {}
  // Not one that takes its argument by value: in `handle = {}` inside a template clang 16 never
  // destroys that.
  IntrusivePtr& operator=(const IntrusivePtr& other) {
    IntrusivePtr copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept {
    IntrusivePtr moved(std::move(other));
    std::swap(object_, moved.object_);
    return *this;
  }
  ~IntrusivePtr() { Release(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const IntrusivePtr&, const IntrusivePtr&) = default;

  // Exact only when no other thread copies or drops a handle at the same time. Acquire: a caller
  // that sees 1 may write to what the last other owner wrote.
  int64_t use_count() const {
    return object_ ? object_->count_.load(std::memory_order_acquire) : 0;
  }

 private:
  // Relaxed: a new handle is made from an existing one, which keeps the object alive.
  void Retain() {
    if (object_) object_->count_.fetch_add(1, std::memory_order_relaxed);
  }
  // Acquire-release: whoever deletes sees all writes made through the other handles.
  void Release() {
    if (object_ && object_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object_;
  }
  T* object_ = nullptr;
};

template <class T, class... Args>
IntrusivePtr<T> MakeIntrusive(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

// Objects of one kind that their owner knows. One vector type for all of them, since every other
// std::vector that grows costs a translation unit about 4 ms.
using RefCountedList = std::vector<IntrusivePtr<RefCounted>>;

namespace detail {
using ::opkit::IntrusivePtr;
using ::opkit::MakeIntrusive;
using ::opkit::RefCounted;
using ::opkit::RefCountedList;

// A T that is held by reference.
template <class T>
struct Shared : RefCounted {
  explicit Shared(T object) : value(std::move(object)) {}
  T value;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_REF_COUNTED_HPP_

// ---- opkit/base/name_table.hpp
// NameTable: objects by name, sorted, at addresses that never change. A sorted vector instead of a
// std::map: tables of names are read far more often than they grow, and every instantiation of
// std::map costs a translation unit as much as this whole folder.
#ifndef OPKIT_BASE_NAME_TABLE_HPP_
#define OPKIT_BASE_NAME_TABLE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct NamedRow : RefCounted {
  explicit NamedRow(std::string_view row_name) : name(row_name) {}
  std::string name;
};

// All of a table that does not depend on what it holds, so that every table is the same code.
class SortedRows {
 public:
  NamedRow* At(size_t i) const { return static_cast<NamedRow*>(rows[i].get()); }
  // Place of `name`, or where it would be.
  size_t LowerBound(std::string_view name) const;
  NamedRow* Find(std::string_view name) const;
  void Add(NamedRow* row);
  bool Erase(std::string_view name);

  RefCountedList rows;
};

}  // namespace detail

// Finding is O(log n), adding and removing O(n) pointer moves. Not synchronised.
template <class T>
class NameTable {
 public:
  struct Row : detail::NamedRow {
    template <class... Args>
    explicit Row(std::string_view row_name, Args&&... args)
        : NamedRow(row_name), value(std::forward<Args>(args)...) {}
    T value;
  };

  NameTable() = default;
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;

  // Null when there is none.
  T* Find(std::string_view name) const {
    detail::NamedRow* row = table_.Find(name);
    return row ? &static_cast<Row*>(row)->value : nullptr;
  }
  // The object of that name, made from `args` when there is none.
  template <class... Args>
  T& FindOrAdd(std::string_view name, Args&&... args) {
    if (T* found = Find(name)) return *found;
    auto* row = new Row(name, std::forward<Args>(args)...);
    table_.Add(row);
    return row->value;
  }
  bool Erase(std::string_view name) { return table_.Erase(name); }

  size_t size() const { return table_.rows.size(); }
  bool empty() const { return table_.rows.empty(); }
  // Rows in the order of their names: for (const auto* row : table) row->name, row->value.
  struct Iterator {
    const detail::IntrusivePtr<detail::RefCounted>* at;
    Row* operator*() const { return static_cast<Row*>(at->get()); }
    void operator++() { ++at; }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {table_.rows.data()}; }
  Iterator end() const { return {table_.rows.data() + size()}; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < size(); ++i) names.push_back(table_.At(i)->name);
    return names;
  }

 private:
  detail::SortedRows table_;
};

}  // namespace opkit

#endif  // OPKIT_BASE_NAME_TABLE_HPP_

// ---- opkit/macros.hpp
// The ancestors' short spellings of the toolkit's public macros. On by default; off with
// -DOPKIT_NO_SHORT_MACROS, which leaves the OPKIT_ names.
#ifndef OPKIT_MACROS_HPP_
#define OPKIT_MACROS_HPP_

#ifndef OPKIT_NO_SHORT_MACROS

#if defined(OPERATOR_SCHEMA) || defined(REGISTER_CPU_OPERATOR) || defined(REGISTER_OP) ||    \
    defined(REGISTER_GRADIENT) || defined(NO_GRADIENT) || defined(USE_OPERATOR_FUNCTIONS) || \
    defined(INPUT_TAGS) || defined(OUTPUT_TAGS)
#error \
    "another library has already defined one of opkit's short macros (OPERATOR_SCHEMA, REGISTER_CPU_OPERATOR, REGISTER_OP, …): compile with -DOPKIT_NO_SHORT_MACROS and use the OPKIT_ names"
#endif

#define OPERATOR_SCHEMA(name) OPKIT_OPERATOR_SCHEMA(name)
#define USE_OPERATOR_FUNCTIONS(context) OPKIT_USE_OPERATOR_FUNCTIONS(context)
#define INPUT_TAGS(...) OPKIT_INPUT_TAGS(__VA_ARGS__)
#define OUTPUT_TAGS(...) OPKIT_OUTPUT_TAGS(__VA_ARGS__)

#define REGISTER_CPU_OPERATOR(...) OPKIT_REGISTER_CPU_OPERATOR(__VA_ARGS__)
#define REGISTER_CPU_OPERATOR_STR(...) OPKIT_REGISTER_CPU_OPERATOR_STR(__VA_ARGS__)
#define REGISTER_CPU_OPERATOR_CREATOR(...) OPKIT_REGISTER_CPU_OPERATOR_CREATOR(__VA_ARGS__)
#define REGISTER_CPU_OPERATOR_WITH_ENGINE(...) OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(__VA_ARGS__)
#define REGISTER_CPU_OPERATOR_WITH_PRIORITY(...) \
  OPKIT_REGISTER_CPU_OPERATOR_WITH_PRIORITY(__VA_ARGS__)

#define REGISTER_CPU_STREAM_OPERATOR(...) OPKIT_REGISTER_CPU_STREAM_OPERATOR(__VA_ARGS__)
#define REGISTER_CPU_STREAM_OPERATOR_STR(...) OPKIT_REGISTER_CPU_STREAM_OPERATOR_STR(__VA_ARGS__)
#define REGISTER_CPU_STREAM_OPERATOR_CREATOR(...) \
  OPKIT_REGISTER_CPU_STREAM_OPERATOR_CREATOR(__VA_ARGS__)
#define REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(...) \
  OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(__VA_ARGS__)

#define REGISTER_OP(name) OPKIT_REGISTER_OP(name)

#define REGISTER_GRADIENT(...) OPKIT_REGISTER_GRADIENT(__VA_ARGS__)
#define REGISTER_GRADIENT_STR(...) OPKIT_REGISTER_GRADIENT_STR(__VA_ARGS__)
#define NO_GRADIENT(name) OPKIT_NO_GRADIENT(name)
#define SHOULD_NOT_DO_GRADIENT(name) OPKIT_SHOULD_NOT_DO_GRADIENT(name)
#define GRADIENT_NOT_IMPLEMENTED_YET(name) OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name)

#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_MACROS_HPP_

// ---- opkit/base/strings.hpp
// StrCat: message building by concatenation, without <sstream>. Everything that reports to a user
// goes through it, so numbers look the same everywhere. Not a variadic template: a message is built
// at a hundred places with a hundred combinations of types, and each would be an instantiation.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

namespace opkit::inline OPKIT_ABI {

// One part of a message: a string, character, bool, integer, floating-point number (9 significant
// digits), anything with a `ToString(value)` found by argument-dependent lookup, or a vector of
// these (`[1, 2]`). A parameter type only: it refers to what it was made from, so that a call that
// reports nothing builds no strings, and one that does is a few stores.
class Text {
 public:
  Text() : kind_(Kind::kChars) {}
  Text(const char* text) : kind_(Kind::kLiteral) { value_.object = text; }
  Text(const std::string& text) : Text(std::string_view(text)) {}
  Text(std::string_view text) : kind_(Kind::kChars), size_(text.size()) {
    value_.object = text.data();
  }
  Text(char c) : kind_(Kind::kCharacter) { value_.integer = c; }
  Text(bool b) : Text(b ? "true" : "false") {}
  Text(double number) : kind_(Kind::kFloat) { value_.number = number; }
  template <class T>
    requires std::is_integral_v<T>
  Text(T integer) : kind_(std::is_signed_v<T> ? Kind::kInt : Kind::kUInt) {
    value_.integer = static_cast<int64_t>(integer);
  }
  template <class T>
    requires requires(const T& value) { std::string_view(ToString(value)); }
  Text(const T& value) : kind_(Kind::kObject) {
    value_.object = &value;
    append_ = [](std::string& out, const void* object) {
      out += ToString(*static_cast<const T*>(object));
    };
  }
  template <class T>
  Text(const std::vector<T>& values) : kind_(Kind::kObject) {
    value_.object = &values;
    append_ = [](std::string& out, const void* object) {
      const auto& all = *static_cast<const std::vector<T>*>(object);
      out += '[';
      for (size_t i = 0; i < all.size(); ++i) {
        if (i) out += ", ";
        Text(static_cast<const T&>(all[i])).AppendTo(out);
      }
      out += ']';
    };
  }

  OPKIT_COLD void AppendTo(std::string& out) const;

 private:
  enum class Kind : uint8_t { kLiteral, kChars, kCharacter, kInt, kUInt, kFloat, kObject };
  union Value {
    const void* object = nullptr;
    int64_t integer;
    double number;
  };
  Kind kind_;
  Value value_;
  union {
    size_t size_ = 0;
    void (*append_)(std::string& out, const void* object);
  };
};

namespace detail {
OPKIT_COLD std::string Join(std::initializer_list<const Text*> parts);
}  // namespace detail

// Concatenates up to 16 parts; nest calls for more. Three overloads, so that a short message does
// not build sixteen parts.
OPKIT_COLD std::string StrCat(const Text& a, const Text& b = {}, const Text& c = {},
                              const Text& d = {});
OPKIT_COLD std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                              const Text& e, const Text& f = {}, const Text& g = {},
                              const Text& h = {});
OPKIT_COLD std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                              const Text& e, const Text& f, const Text& g, const Text& h,
                              const Text& i, const Text& j = {}, const Text& k = {},
                              const Text& l = {}, const Text& m = {}, const Text& n = {},
                              const Text& o = {}, const Text& p = {});

}  // namespace opkit

#endif  // OPKIT_BASE_STRINGS_HPP_

// ---- opkit/base/error.hpp
// opkit::Error, the one exception of the toolkit: a code to branch on, a message that says what was
// expected, what was found and how to mend it, and context lines added on the way up. Input that a
// user can get wrong throws it; a broken invariant of the toolkit's own is an OPKIT_ASSERT.
#ifndef OPKIT_BASE_ERROR_HPP_
#define OPKIT_BASE_ERROR_HPP_

namespace opkit::inline OPKIT_ABI {

enum class ErrorCode {
  kInvalidArgument,     // a value, shape or count that the callee does not accept
  kTypeMismatch,        // a value of another type or dtype than asked for
  kNotFound,            // no such operator, blob, backend, argument, file
  kAlreadyExists,       // registered or created twice
  kOutOfRange,          // an index or a number outside what can be represented
  kUninitialized,       // a tensor or blob read before anything was written
  kOutOfMemory,         //
  kUnsupported,         // understood, but not possible on this device, dtype or build
  kFailedPrecondition,  // called in a state that does not allow it
  kCancelled,           //
  kDeadlineExceeded,    //
  kOperatorFailed,      // RunOnDevice returned false, or threw something that is not an Error
};

const char* ToString(ErrorCode code);

// `what()` is the message followed by one indented line for each context. Copies are independent;
// AddContext is not thread-safe: an Error that an event holds is shared by all who wait for it.
class OPKIT_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message, const void* subject = nullptr);

  OPKIT_INLINE const char* what() const noexcept override;
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::string>& context() const noexcept { return context_; }
  // The exception this error was made of when that was not an Error itself; null otherwise.
  const std::exception_ptr& cause() const noexcept { return cause_; }
  Error& SetCause(std::exception_ptr cause) { return cause_ = std::move(cause), *this; }
  // Address of the object the error is about (a Tensor), for a caller who knows its name.
  const void* subject() const noexcept { return subject_; }

  Error& AddContext(std::string line);
  // Held where others read it: it must not change any more. Copies are not.
  bool is_shared() const noexcept { return shared_.Get(); }
  void SetShared() const noexcept { shared_.Set(); }

 private:
  struct SharedFlag {
    SharedFlag() = default;
    SharedFlag(const SharedFlag&) {}
    SharedFlag& operator=(const SharedFlag&) { return *this; }
    // Relaxed: set by whoever shares it, before the others can see it.
    bool Get() const { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
    void Set() const { __atomic_store_n(&value, true, __ATOMIC_RELAXED); }
    mutable bool value = false;
  };

  ErrorCode code_;
  const void* subject_;
  std::string message_;
  std::string what_;
  std::vector<std::string> context_;
  std::exception_ptr cause_;
  SharedFlag shared_;
};

// Throws an Error whose message is StrCat of the parts.
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Text& a, const Text& b = {},
                                   const Text& c = {}, const Text& d = {});
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Text& a, const Text& b, const Text& c,
                                   const Text& d, const Text& e, const Text& f = {},
                                   const Text& g = {}, const Text& h = {});
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Text& a, const Text& b, const Text& c,
                                   const Text& d, const Text& e, const Text& f, const Text& g,
                                   const Text& h, const Text& i, const Text& j = {},
                                   const Text& k = {}, const Text& l = {}, const Text& m = {},
                                   const Text& n = {}, const Text& o = {}, const Text& p = {});

namespace detail {
[[noreturn]] OPKIT_COLD void AssertFailed(const char* condition, const char* file, int line);
}  // namespace detail

}  // namespace opkit

// For operator authors: throws Error(kInvalidArgument) with the condition's text and the parts.
#define OPKIT_ENFORCE(condition, ...)                                        \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument,                   \
                     "expected " #condition __VA_OPT__(": ", ) __VA_ARGS__); \
  } while (0)

// An invariant of the toolkit itself; compiled out with NDEBUG.
#ifdef NDEBUG
#define OPKIT_ASSERT(condition) static_cast<void>(0)
#else
#define OPKIT_ASSERT(condition)       \
  ((condition) ? static_cast<void>(0) \
               : ::opkit::detail::AssertFailed(#condition, __FILE__, __LINE__))
#endif

#endif  // OPKIT_BASE_ERROR_HPP_

// ---- opkit/base/function_ref.hpp
// FunctionRef: a non-owning reference to anything callable, two words, never allocates. For
// parameters that are called before the callee returns (loop bodies, visitors); what outlives the
// call is held by a UniqueFunction.
#ifndef OPKIT_BASE_FUNCTION_REF_HPP_
#define OPKIT_BASE_FUNCTION_REF_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// An expression rather than std::is_invocable_r: asked of every lambda against every overload.
template <class F, class R, class... Args>
concept CallableAs = requires(F& f, Args... args) {
  f(std::forward<Args>(args)...);
  requires std::is_void_v<R> || std::is_same_v<decltype(f(std::forward<Args>(args)...)), R> ||
               std::is_convertible_v<decltype(f(std::forward<Args>(args)...)), R>;
};

}  // namespace detail

template <class Signature>
class FunctionRef;

// Refers to the callable itself, so a temporary lives long enough only when it is an argument of
// the call; functions and function pointers are copied. Copies are cheap and refer to the same
// callable. A call costs one indirect jump.
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

}  // namespace opkit

#endif  // OPKIT_BASE_FUNCTION_REF_HPP_

// ---- opkit/base/unique_function.hpp
// UniqueFunction: owns anything callable, move-only callables included, with 48 bytes of room
// inside, so that the usual task (a few pointers captured) costs no allocation. One cache line.
#ifndef OPKIT_BASE_UNIQUE_FUNCTION_HPP_
#define OPKIT_BASE_UNIQUE_FUNCTION_HPP_

namespace opkit::inline OPKIT_ABI {

namespace detail {

// Bytes that hold a callable, or a pointer to one, whatever its signature is.
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
  void (*manage)(void*, void*) noexcept = nullptr;  // null: bytes may be copied and dropped

 private:
  void TakeFrom(FunctionStorage& other) noexcept {
    call = other.call;
    manage = other.manage;
    other.call = nullptr;
    other.manage = nullptr;
    if (manage != nullptr) {
      manage(other.bytes, bytes);
    } else if (call != nullptr) {
// A small callable leaves the rest of the bytes unset; copying all 48 is faster than asking how
// many.
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
    if (manage == nullptr) return;
    auto* const destroy = manage;
    manage = nullptr;
    destroy(bytes, nullptr);
  }
};

}  // namespace detail

template <class Signature>
class UniqueFunction;

template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  static constexpr size_t kInlineBytes = detail::FunctionStorage::kInlineBytes;

  // Whether F is stored inside; otherwise construction allocates once, and moves still do not.
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

  explicit operator bool() const noexcept { return storage_.call != nullptr; }

  R operator()(Args... args) {
    OPKIT_ASSERT(storage_.call != nullptr);
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

  detail::FunctionStorage storage_;
};

}  // namespace opkit

#endif  // OPKIT_BASE_UNIQUE_FUNCTION_HPP_

// ---- opkit/abi/opkit_abi.h
/* opkit_abi.h: all that crosses between a host program and a library of operators. C99.
 *
 * A library exports one function, opkit_library_entry. It is given the host's table of functions
 * and returns a description of the library: its operators, and for each the functions that infer
 * and compute. Authors in C++ include opkit/plugin/author.hpp, which fills all of this in;
 * examples/library/plain_c.c is a library in C.
 *
 * The rules that keep libraries and hosts of different versions working together:
 * 1. Every struct begins with `size`, the sizeof that its maker compiled with, and `extension`,
 *    null but for private agreements. A reader asks OPKIT_ABI_HAS(p, member) before it reads a
 *    member that was not there in version 1.0.
 * 2. Members never change their place, type or meaning and are never removed. New ones go at the
 *    end of their struct, and OPKIT_ABI_MINOR grows by one. What cannot be done so is a new major
 *    version, which older libraries are refused by. A host does not look at flags it does not know.
 *    opkit_scope and opkit_invocation have no size and never change.
 * 3. Arrays of structs are read with the stride that their first element's `size` says
 *    (opkit_tensor_at, opkit_value_at), or are arrays of pointers.
 * 4. A null function pointer is something its side does not offer. A status that one does not know
 *    is a failure.
 * 5. No memory changes hands: who allocates frees. Strings are UTF-8, end with a zero and, like all
 *    that is passed to a call, last until the call returns; what describes a library lasts until it
 *    is unloaded.
 * 6. Nothing is thrown and no longjmp passes through a call in either direction.
 * 7. Any function may be called from several threads at once, for different instances; one
 *    instance is run by one thread at a time.
 */
#ifndef OPKIT_ABI_OPKIT_ABI_H_
#define OPKIT_ABI_OPKIT_ABI_H_

#ifdef __cplusplus
extern "C" {
#endif

#define OPKIT_ABI_MAJOR 1
#define OPKIT_ABI_MINOR 0

/* Whether the struct that p points to is long enough to have the member. */
#define OPKIT_ABI_HAS(p, member) \
  ((p)->size >= (uint64_t)((const char*)(&(p)->member + 1) - (const char*)(p)))

/* What a function answers. After a failure the text given to host->set_error explains it. */
typedef int32_t opkit_status;
enum {
  OPKIT_OK = 0,
  OPKIT_INVALID_ARGUMENT = 1,
  OPKIT_TYPE_MISMATCH = 2,
  OPKIT_NOT_FOUND = 3,
  OPKIT_ALREADY_EXISTS = 4,
  OPKIT_OUT_OF_RANGE = 5,
  OPKIT_UNINITIALIZED = 6,
  OPKIT_OUT_OF_MEMORY = 7,
  OPKIT_UNSUPPORTED = 8,
  OPKIT_FAILED_PRECONDITION = 9,
  OPKIT_CANCELLED = 10,
  OPKIT_DEADLINE_EXCEEDED = 11,
  OPKIT_FAILED = 12
};

/* Element types. complex64 is two float32, complex128 two float64. */
enum {
  OPKIT_UNDEFINED = 0,
  OPKIT_BOOL = 1,
  OPKIT_INT8 = 2,
  OPKIT_INT16 = 3,
  OPKIT_INT32 = 4,
  OPKIT_INT64 = 5,
  OPKIT_UINT8 = 6,
  OPKIT_UINT16 = 7,
  OPKIT_UINT32 = 8,
  OPKIT_UINT64 = 9,
  OPKIT_FLOAT16 = 10,
  OPKIT_BFLOAT16 = 11,
  OPKIT_FLOAT32 = 12,
  OPKIT_FLOAT64 = 13,
  OPKIT_COMPLEX64 = 14,
  OPKIT_COMPLEX128 = 15
};

/* Devices have DLPack's numbers (1 is the CPU, 2 CUDA); 64 is the CPU with streams. */
enum { OPKIT_CPU = 1, OPKIT_CUDA = 2, OPKIT_CPU_STREAM = 64 };

/* How a result is to be stored. */
enum {
  OPKIT_REQ_NONE = 0,    /* nobody wants it: there is no memory */
  OPKIT_REQ_WRITE = 1,   /* */
  OPKIT_REQ_INPLACE = 2, /* the memory is that of an input, which the operator allows */
  OPKIT_REQ_ADD = 3      /* onto what is there; only for operators with OPKIT_OP_ACCEPTS_ADD */
};

enum { OPKIT_LOG_INFO = 0, OPKIT_LOG_WARNING = 1, OPKIT_LOG_ERROR = 2 };

/* A tensor: a view. One that the node leaves out has the dtype OPKIT_UNDEFINED and no data. */
typedef struct opkit_tensor {
  uint64_t size;
  const void* extension;
  void* data; /* the first element; in the memory of the device */
  const int64_t* shape;
  const int64_t* strides; /* in elements, one for each extent */
  int32_t rank;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
  int32_t req;      /* of an output */
  int32_t reserved; /* 0 */
  const void* host; /* the host's own: handed on when the tensor, or a part of it, goes to invoke */
} opkit_tensor;

/* The type of an attribute. A list's number is its element's plus five. */
enum {
  OPKIT_ATTR_INT = 0,
  OPKIT_ATTR_FLOAT = 1,
  OPKIT_ATTR_BOOL = 2,
  OPKIT_ATTR_STRING = 3,
  OPKIT_ATTR_TENSOR = 4,
  OPKIT_ATTR_INTS = 5,
  OPKIT_ATTR_FLOATS = 6,
  OPKIT_ATTR_BOOLS = 7,
  OPKIT_ATTR_STRINGS = 8,
  OPKIT_ATTR_TENSORS = 9
};

/* A named attribute. Of the four arrays the one of its type has `count` elements (one for a single
 * value) and the others are null. */
typedef struct opkit_attr {
  uint64_t size;
  const void* extension;
  const char* name;
  int32_t type;
  int32_t reserved; /* 0 */
  uint64_t count;
  const int64_t* ints; /* bools too */
  const double* floats;
  const char* const* strings;
  const uint64_t* string_sizes; /* bytes, without the zero at the end */
  const opkit_tensor* const* tensors;
  const char* text; /* the value as text: 3, 0.5, true, word, [1, 2] */
} opkit_attr;

typedef struct opkit_node opkit_node;

/* A graph that a node carries as an attribute: nodes in an order that respects their values. */
typedef struct opkit_graph {
  uint64_t size;
  const void* extension;
  const char* name; /* of the attribute */
  uint64_t num_inputs;
  const char* const* inputs;
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_constants;
  const char* const* constant_names;
  const opkit_tensor* const* constants;
  uint64_t num_nodes;
  const opkit_node* const* nodes;
} opkit_graph;

/* A call site of an operator. */
struct opkit_node {
  uint64_t size;
  const void* extension;
  const char* op;
  const char* name; /* empty where it has none */
  int32_t device_type;
  int32_t device_index;
  uint64_t num_inputs;
  const char* const* inputs; /* names of values; empty for one that is left out */
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_attrs;
  const opkit_attr* const* attrs;
  uint64_t num_graphs;
  const opkit_graph* const* graphs;
};

/* What is known of an input or output before it is computed; inference fills in what it can say. */
#define OPKIT_MAX_RANK 32
typedef struct opkit_value {
  uint64_t size;
  const void* extension;
  int32_t present; /* 0: the node leaves it out */
  int32_t dtype;   /* -1: unknown */
  int32_t rank;    /* -1: unknown */
  int32_t reserved;
  /* -1: unknown; less: a symbol, the same number for the same one */
  int64_t dims[OPKIT_MAX_RANK];
  const opkit_tensor* constant; /* the elements of an input, where they are known; else null */
} opkit_value;

typedef struct opkit_host opkit_host;

/* One run of an operator. Tensors are read with opkit_input and opkit_output. */
typedef struct opkit_call {
  uint64_t size;
  const void* extension;
  const opkit_host* host;
  void* context;  /* the host's own */
  const char* op; /* the operator's name */
  uint64_t num_inputs;
  const opkit_tensor* inputs;
  uint64_t num_outputs;
  const opkit_tensor* outputs;
  void* scratch; /* what scratch_bytes asked for, undefined at the start; null for 0 bytes */
  int64_t scratch_bytes;
  void* stream; /* a cudaStream_t where the device is CUDA; the work belongs on it */
  int32_t device_type;
  int32_t device_index;
  int32_t asynchronous; /* not 0: what is issued now runs later, at its place in the stream */
  int32_t reserved;
  uint64_t random_seed; /* of this run: drawn from the program's seed and the node */
  uint64_t author[8];   /* for the author's side, all 0 at the start */
} opkit_call;

/* What remembers that an operator is not finished: see opkit_host.defer. */
typedef struct opkit_completion opkit_completion;

/* Room for the host, on the caller's stack. */
typedef struct opkit_scope {
  uint64_t storage[8];
} opkit_scope;

/* The identity of an operator's run, for the profiler. */
typedef struct opkit_invocation {
  uint64_t id;
  uint64_t parent;
  uint64_t kind;
} opkit_invocation;

/* What the host offers. `call` is the one that forward or backward was given. */
struct opkit_host {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version; /* of the host's toolkit */

  /* Explains the failure that this thread is about to return; add_error adds to what is there. The
   * text is copied. */
  void (*set_error)(opkit_status status, const char* text, uint64_t text_size);
  void (*add_error)(const char* text, uint64_t text_size);
  /* Why a function of this table has failed last in this thread. */
  const char* (*failure_text)(void);

  /* `bytes` bytes of the device's memory, aligned to 64; each call its own. Freed when the run has
   * ended. Null for 0 bytes. From any thread of the call. */
  opkit_status (*alloc)(const opkit_call* call, int64_t bytes, void** memory);
  /* A dense tensor in such memory, written to *tensor. */
  opkit_status (*temporary)(const opkit_call* call, int32_t dtype, int32_t rank,
                            const int64_t* shape, opkit_tensor* tensor);
  /* body(context, begin, end) for ranges that make up [0, n), on the host's threads and this one;
   * `grain` indices make a range, 0 lets the host measure. Returns when all have run; where one
   * fails, the others are skipped as far as they have not begun, and its status is the answer. Now,
   * also on a CPU stream: issue it by launch. */
  opkit_status (*parallel_for)(const opkit_call* call, int64_t n, int64_t grain,
                               opkit_status (*body)(void* context, int64_t begin, int64_t end),
                               void* context);
  /* work(context) at its place in the stream, and then drop(context); without a stream both now.
   * drop is called also where work is not, and where launch fails. */
  opkit_status (*launch)(const opkit_call* call, opkit_status (*work)(void* context),
                         void (*drop)(void* context), void* context);
  /* Another operator of the host on these tensors, writing into the outputs given; at its place in
   * the stream where there is one. Kept ready from run to run. One thread of a call at a time. */
  opkit_status (*invoke)(const opkit_call* call, const char* op, uint64_t num_inputs,
                         const opkit_tensor* inputs, uint64_t num_outputs,
                         const opkit_tensor* outputs, uint64_t num_attrs,
                         const opkit_attr* const* attrs);
  void (*log)(const opkit_call* call, int32_t level, const char* text);

  /* A named part of the operator's own code, in this thread: begin and end nest. */
  void (*scope_begin)(const opkit_call* call, const char* name, opkit_scope* scope);
  void (*scope_end)(opkit_scope* scope);
  /* The identity that work in this thread has now, and going on with it in a thread of one's own.
   */
  void (*invocation)(opkit_invocation* identity);
  void (*adopt)(const opkit_invocation* identity, opkit_scope* scope); /* until scope_end */

  /* For operators with OPKIT_OP_ASYNC: forward may return OPKIT_OK before its outputs are there.
   * Whoever ends the work then calls complete, once, from any thread; tensors and memory of the
   * call last until then. */
  opkit_status (*defer)(const opkit_call* call, opkit_completion** completion);
  void (*complete)(opkit_completion* completion, opkit_status status, const char* text);
};

/* The implementation of an operator for a type of device. */
typedef struct opkit_kernel opkit_kernel;
struct opkit_kernel {
  uint64_t size;
  const void* extension;
  const char* device; /* "cpu", "gpu", "cpu_stream", or the name of another device type */
  /* Makes what forward and backward get as `instance`: once for each operator that the host
   * creates, and destroyed with it. Without it they get `author`. */
  opkit_status (*create)(const opkit_kernel* kernel, const opkit_node* node, void** instance);
  void (*destroy)(void* instance);
  opkit_status (*forward)(void* instance, const opkit_call* call);
  /* Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs. */
  opkit_status (*backward)(void* instance, const opkit_call* call);
  uint64_t flags;
  const void* author; /* the author's own */
};
/* forward keeps something in its instance that backward needs: both run the same one. */
#define OPKIT_KERNEL_STATEFUL ((uint64_t)1)

/* One attribute, input or output, as documented. */
typedef struct opkit_parameter {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const opkit_attr* default_value; /* of an attribute; null: none */
  int32_t type;                    /* of an attribute; -1: any */
  int32_t required;
  uint64_t dtypes; /* of an input or output: bit 1 << dtype for each it may have; 0: any */
} opkit_parameter;

/* What an operator's gradient function is asked: which nodes compute the gradients of the inputs of
 * `node` from those of its outputs. The values of `node` keep their names; all that is new is given
 * one by new_name. Names that are null or empty: no gradient. A sparse gradient is one of indices
 * and values of slices along the first axis. */
typedef struct opkit_gradient opkit_gradient;
struct opkit_gradient {
  uint64_t size;
  const void* extension;
  const opkit_node* node;
  const char* const* dense;   /* of each output: the name of its gradient, */
  const char* const* indices; /* or those of a sparse one */
  const char* const* values;
  void* context; /* the host's own */
  /* A name that nothing has yet, for a gradient of `value`, or where suffix is given for a part of
   * the computation: "x" and "_grad_mask". The first without a suffix is where the gradient of
   * `value` is expected. Lasts until the gradient function returns; null after a failure. */
  const char* (*new_name)(const opkit_gradient* gradient, const char* value, const char* suffix);
  /* In the order they run. */
  opkit_status (*add_node)(const opkit_gradient* gradient, const opkit_node* node);
  opkit_status (*set_input)(const opkit_gradient* gradient, uint64_t input, const char* dense,
                            const char* indices, const char* values);
};

/* An operator. Only `name` and one kernel are required. */
typedef struct opkit_op opkit_op;
struct opkit_op {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  uint64_t flags;
  uint64_t num_kernels;
  const opkit_kernel* const* kernels;
  uint64_t num_inplace;
  const int32_t* inplace; /* num_inplace pairs: input, output that may share memory */

  /* How many inputs and outputs a node with these attributes has (-1: any number), or a failure
   * for wrong attributes. */
  opkit_status (*parse_attrs)(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                              int32_t* num_outputs);
  /* Fill in what is unknown, of the outputs from the inputs or the reverse. While some inputs are
   * unknown a failure only means: not yet. Without infer_type outputs have the dtype of input 0. */
  opkit_status (*infer_type)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  opkit_status (*infer_shape)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                              opkit_value* outputs);
  /* The inputs that are written to: mutated[i] is set to 1; all are 0 before. */
  opkit_status (*mutated_inputs)(const opkit_op* op, const opkit_node* node, uint8_t* mutated);
  /* Memory of a run, known before it, for inputs whose shapes are known. */
  opkit_status (*scratch_bytes)(const opkit_op* op, const opkit_node* node,
                                const opkit_value* inputs, int64_t* bytes);

  uint64_t num_attrs;
  const opkit_parameter* const* attrs;
  uint64_t num_inputs;
  const opkit_parameter* const* inputs;
  uint64_t num_outputs;
  const opkit_parameter* const* outputs;
  const void* author; /* the author's own */
  /* In place of a backward function: the nodes that compute the gradient. */
  opkit_status (*gradient)(const opkit_op* op, const opkit_gradient* gradient);
};
#define OPKIT_OP_SUBGRAPH ((uint64_t)1)        /* reads a graph that its node carries */
#define OPKIT_OP_ACCEPTS_STRIDES ((uint64_t)2) /* otherwise inputs arrive dense */
#define OPKIT_OP_ACCEPTS_ADD ((uint64_t)4)     /* otherwise the host adds up */
#define OPKIT_OP_ASYNC ((uint64_t)8)           /* forward may call host->defer */
/* two runs may differ, or do more than write the outputs: never merged, folded or dropped */
#define OPKIT_OP_EFFECTS ((uint64_t)16)
/* no gradient flows through it; asking for one is a mistake; it has one that is not written yet */
#define OPKIT_OP_NO_GRADIENT ((uint64_t)32)
#define OPKIT_OP_SHOULD_NOT_GRADIENT ((uint64_t)64)
#define OPKIT_OP_GRADIENT_NOT_IMPLEMENTED ((uint64_t)128)
#define OPKIT_OP_OPEN_ATTRS ((uint64_t)256) /* takes attributes that are not among attrs */

/* A library. */
typedef struct opkit_library {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* name;    /* null: the file's */
  const char* version; /* of the toolkit it was compiled with; null: none */
  /* Called once before anything else, with the host's version; a failure refuses the loading. */
  opkit_status (*initialize)(uint32_t host_abi_major, uint32_t host_abi_minor);
  void (*finalize)(void); /* before it is unmapped */
  uint64_t num_ops;
  const opkit_op* const* ops;
  /* Reserved: 0 and null. */
  uint64_t num_partitioners;
  const void* const* partitioners;
  uint64_t num_passes;
  const void* const* passes;
} opkit_library;

/* The one symbol of a library. Null, after host->set_error, when it cannot serve this host. */
#define OPKIT_LIBRARY_ENTRY "opkit_library_entry"
typedef const opkit_library* (*opkit_library_entry_function)(const opkit_host* host);

static inline const opkit_tensor* opkit_tensor_at(const opkit_tensor* tensors, uint64_t i) {
  return (const opkit_tensor*)(const void*)((const char*)tensors + i * tensors->size);
}
static inline opkit_value* opkit_value_at(opkit_value* values, uint64_t i) {
  return (opkit_value*)(void*)((char*)values + i * values->size);
}
static inline const opkit_tensor* opkit_input(const opkit_call* call, uint64_t i) {
  return opkit_tensor_at(call->inputs, i);
}
static inline const opkit_tensor* opkit_output(const opkit_call* call, uint64_t i) {
  return opkit_tensor_at(call->outputs, i);
}
/* Elements of a tensor. */
static inline int64_t opkit_numel(const opkit_tensor* tensor) {
  int64_t count = 1;
  int32_t i;
  for (i = 0; i < tensor->rank; ++i) count *= tensor->shape[i];
  return count;
}
/* The attribute of that name; null when there is none. */
static inline const opkit_attr* opkit_find_attr(const opkit_node* node, const char* name) {
  uint64_t i;
  for (i = 0; i < node->num_attrs; ++i) {
    const char *a = node->attrs[i]->name, *b = name;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return node->attrs[i];
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif

#endif /* OPKIT_ABI_OPKIT_ABI_H_ */

// ---- opkit/base/suggest.hpp
// "Did you mean …?": the known name nearest to an unknown one, for error messages.
#ifndef OPKIT_BASE_SUGGEST_HPP_
#define OPKIT_BASE_SUGGEST_HPP_

namespace opkit::inline OPKIT_ABI {

// Edit distance (Damerau-Levenshtein in its optimal string alignment form) that ignores case.
OPKIT_COLD size_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" when none is near enough to be a slip (a third of its
// letters, at least one).
OPKIT_COLD std::string NearestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

// " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" when nothing is known.
OPKIT_COLD std::string SuggestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

}  // namespace opkit

#endif  // OPKIT_BASE_SUGGEST_HPP_

// ---- opkit/core/dtype.hpp
// Element types: the enumeration, the C++ type of each, and float16 and bfloat16 with their
// conversions. complex64 is a pair of float32, complex128 a pair of float64; std::complex and
// anything else with its members and layout maps to them, without including <complex>.
#ifndef OPKIT_CORE_DTYPE_HPP_
#define OPKIT_CORE_DTYPE_HPP_

namespace opkit::inline OPKIT_ABI {

enum class DType : uint8_t {
  kUndefined,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};
inline constexpr int kNumDTypes = 16;

// Bytes of one element; 0 for kUndefined.
constexpr int64_t ItemSize(DType dtype) {
  constexpr uint8_t kSizes[kNumDTypes] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return kSizes[static_cast<int>(dtype)];
}

constexpr const char* ToString(DType dtype) {
  constexpr const char* kNames[kNumDTypes] = {"undefined", "bool",    "int8",      "int16",
                                              "int32",     "int64",   "uint8",     "uint16",
                                              "uint32",    "uint64",  "float16",   "bfloat16",
                                              "float32",   "float64", "complex64", "complex128"};
  return kNames[static_cast<int>(dtype)];
}

constexpr bool IsFloatingPoint(DType dtype) {
  return dtype >= DType::kFloat16 && dtype <= DType::kFloat64;
}
constexpr bool IsInteger(DType dtype) { return dtype >= DType::kInt8 && dtype <= DType::kUInt64; }
constexpr bool IsComplex(DType dtype) { return dtype >= DType::kComplex64; }

// IEEE 754 binary16. Conversions round to nearest, ties to even; overflow becomes infinity; NaN
// stays NaN; subnormals are kept.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  constexpr float16(float value) : bits(FromFloat(value)) {}
  constexpr operator float() const { return ToFloat(bits); }

  static constexpr uint16_t FromFloat(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((x >> 16) & 0x8000);
    const uint32_t magnitude = x & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN, quiet
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
    if (magnitude < 0x38800000) {                       // below the smallest normal, 2^-14
      // Adding 0.5 lines the 10-bit fraction up with the low bits; the addition itself rounds.
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
      return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3f000000);
    }
    const uint32_t odd = (magnitude >> 13) & 1;
    return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
  }
  static constexpr float ToFloat(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00)
      return std::bit_cast<float>(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
    if (magnitude < 0x0400) {
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return sign ? -value : value;
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  }
};

// The upper half of a float32. Conversion rounds to nearest, ties to even.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  constexpr bfloat16(float value) : bits(FromFloat(value)) {}
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  static constexpr uint16_t FromFloat(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    if ((x & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((x >> 16) | 0x40);
    return static_cast<uint16_t>((x + 0x7fff + ((x >> 16) & 1)) >> 16);
  }
};

namespace detail {

template <class T, class Real>
concept ComplexOf = requires(const T& z) {
  requires std::is_same_v<typename T::value_type, Real>;
  requires sizeof(T) == 2 * sizeof(Real);
  z.real();
  z.imag();
};

template <class T>
constexpr DType DTypeOfImpl() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else if constexpr (std::is_same_v<T, float16>)
    return DType::kFloat16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::kBFloat16;
  else if constexpr (ComplexOf<T, float>)
    return DType::kComplex64;
  else if constexpr (ComplexOf<T, double>)
    return DType::kComplex128;
  else if constexpr (!std::is_integral_v<T>)
    return DType::kUndefined;
  else if constexpr (sizeof(T) > 8)
    return DType::kUndefined;  // __int128 is integral under -std=gnu++20
  else if constexpr (std::is_signed_v<T> && !std::is_same_v<T, wchar_t>)
    return sizeof(T) == 1   ? DType::kInt8
           : sizeof(T) == 2 ? DType::kInt16
           : sizeof(T) == 4 ? DType::kInt32
                            : DType::kInt64;
  else if constexpr (!std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t> &&
                     !std::is_same_v<T, wchar_t>)
    return sizeof(T) == 1   ? DType::kUInt8
           : sizeof(T) == 2 ? DType::kUInt16
           : sizeof(T) == 4 ? DType::kUInt32
                            : DType::kUInt64;
  else
    return DType::kUndefined;
}

}  // namespace detail

// The DType of a C++ type; kUndefined for a type that is not an element type.
template <class T>
inline constexpr DType kDTypeOf = detail::DTypeOfImpl<std::remove_cv_t<T>>();

// Types that a tensor can hold.
template <class T>
concept Element = kDTypeOf<T> != DType::kUndefined;

// "float32", …: the DType of that name, or kUndefined.
inline DType DTypeFromName(std::string_view name) {
  for (int i = 1; i < kNumDTypes; ++i)
    if (name == ToString(static_cast<DType>(i))) return static_cast<DType>(i);
  return DType::kUndefined;
}

namespace detail {
template <class T, class F>
decltype(auto) CallWithType(F& f) {
  if constexpr (requires { f.template operator()<T>(); }) {
    return f.template operator()<T>();
  } else {
    return f(T{});
  }
}
template <class Result, class T, class F>
Result CallWithTypeAs(F& f) {
  return CallWithType<T>(f);
}
}  // namespace detail

// Calls `f` with the C++ type T of `dtype`, one of Ts, and returns what it returns. `f` is a lambda
// `[&]<class T>() {…}` or `[&](auto tag) { using T = decltype(tag); … }`. Any other dtype is an
// Error (kTypeMismatch) that lists those supported.
//
//   DispatchDType<float, double>(x.dtype(), [&]<class T>() { Scale(x.data<T>(), …); });
template <Element... Ts, class F>
decltype(auto) DispatchDType(DType dtype, F&& f) {
  using Result = std::common_type_t<
      std::type_identity<decltype(detail::CallWithType<Ts>(f))>...>::type;  // the same for every T
  Result (*call)(std::remove_reference_t<F>&) = nullptr;
  ((dtype == kDTypeOf<Ts>
        ? void(call = &detail::CallWithTypeAs<Result, Ts, std::remove_reference_t<F>>)
        : void()),
   ...);
  if (!call) {
    Throw(ErrorCode::kTypeMismatch, "dtype ", ToString(dtype),
          " is not supported here; expected one of ",
          std::vector<std::string>{ToString(kDTypeOf<Ts>)...});
  }
  return call(f);
}

}  // namespace opkit

#endif  // OPKIT_CORE_DTYPE_HPP_

// ---- opkit/core/layout.hpp
// Layout: how a tensor's elements are ordered in memory. STANDARD is row-major (or described by the
// strides); any other id belongs to a backend, and its immutable descriptor says which blocking was
// chosen. The registry of layouts and their converters is dispatch's.
#ifndef OPKIT_CORE_LAYOUT_HPP_
#define OPKIT_CORE_LAYOUT_HPP_

namespace opkit::inline OPKIT_ABI {

using LayoutId = uint16_t;
inline constexpr LayoutId kStandardLayout = 0;

// Base of a backend's own description of a blocked layout. Immutable once shared.
class LayoutDescriptor : public detail::RefCounted {
 public:
  virtual bool Equals(const LayoutDescriptor& other) const = 0;
  virtual std::string Describe() const = 0;
};

struct Layout {
  LayoutId id = kStandardLayout;
  detail::IntrusivePtr<const LayoutDescriptor> descriptor;

  bool is_standard() const { return id == kStandardLayout; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.id != b.id) return false;
    if (a.descriptor == b.descriptor) return true;
    return a.descriptor && b.descriptor && a.descriptor->Equals(*b.descriptor);
  }
  friend std::string ToString(const Layout& layout) {
    if (layout.is_standard()) return "standard";
    return StrCat("layout ", layout.id,
                  layout.descriptor ? " " + layout.descriptor->Describe() : std::string());
  }
};

}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HPP_

// ---- opkit/core/shape.hpp
// Shape: the extents of a tensor, checked once when it is made (no negative extent, element count
// within int64). Dims: the small vector of int64 underneath, also used for strides.
#ifndef OPKIT_CORE_SHAPE_HPP_
#define OPKIT_CORE_SHAPE_HPP_

namespace opkit::inline OPKIT_ABI {

// Anything contiguous that holds integers: vectors, spans, arrays.
template <class R>
concept IntegerRange = requires(const R& range) {
  requires std::is_integral_v<std::remove_cvref_t<decltype(*range.data())>>;
  requires sizeof(*range.data()) > 1;
  static_cast<size_t>(range.size());
};

// A vector of int64 that allocates only beyond six entries.
class Dims {
 public:
  static constexpr int kInline = 6;

  Dims() {}  // not defaulted: a const object of what holds Dims then needs no initializer
  Dims(std::initializer_list<int64_t> values) { Assign(values.begin(), values.size()); }
  Dims(const int64_t* values, size_t count) { Assign(values, count); }
  template <IntegerRange R>
    requires(!std::is_base_of_v<Dims, R>)
  Dims(const R& values) {
    const std::vector<int64_t> wide(values.data(), values.data() + values.size());
    Assign(wide.data(), wide.size());
  }
  Dims(const Dims& other) { Assign(other.data(), static_cast<size_t>(other.size_)); }
  Dims(Dims&& other) noexcept { Steal(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) Assign(other.data(), static_cast<size_t>(other.size_));
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept;
  ~Dims() { Free(); }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return size_ <= kInline ? inline_ : heap_; }
  int64_t* data() { return size_ <= kInline ? inline_ : heap_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t operator[](int i) const { return data()[i]; }
  int64_t& operator[](int i) { return data()[i]; }

  OPKIT_COLD friend std::string ToString(const Dims& dims) {
    std::string out = "[";
    for (int i = 0; i < dims.size_; ++i) {
      if (i) out += ", ";
      out += std::to_string(dims[i]);
    }
    return out + "]";
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    const int64_t *x = a.data(), *y = b.data();
    for (int i = 0; i < a.size_ && a.size_ == b.size_; ++i)
      if (x[i] != y[i]) return false;
    return a.size_ == b.size_;
  }

 private:
  void Assign(const int64_t* values, size_t count);
// g++ 12 does not see that heap_ is read only where it was set, when Steal is not inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
  void Steal(Dims& other);
  void Free() {
    if (size_ > kInline) delete[] heap_;
    size_ = 0;
  }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  int size_ = 0;
  union {
    int64_t inline_[kInline];
    int64_t* heap_;
  };
};

// Extents, outermost first. A scalar has rank 0 and one element.
class Shape {
 public:
  Shape() = default;
  Shape(const Shape&) = default;
  Shape(Shape&& other) noexcept
      : dims_(std::move(other.dims_)), numel_(std::exchange(other.numel_, 1)) {}
  Shape& operator=(const Shape&) = default;
  Shape& operator=(Shape&& other) noexcept {
    dims_ = std::move(other.dims_);
    numel_ = std::exchange(other.numel_, 1);
    return *this;
  }
  // Errors: kInvalidArgument for a negative extent, kOutOfRange when the element count exceeds
  // int64.
  Shape(std::initializer_list<int64_t> dims) : Shape(dims.begin(), dims.size()) {}
  Shape(const std::vector<int64_t>& dims) : Shape(dims.data(), dims.size()) {}
  Shape(const int64_t* dims, size_t rank) : Shape(Dims(dims, rank)) {}
  explicit Shape(Dims dims) : dims_(std::move(dims)), numel_(CountElements(dims_)) {}
  template <IntegerRange R>
    requires(!std::is_base_of_v<Shape, R> && !std::is_base_of_v<Dims, R>)
  explicit Shape(const R& dims) : Shape(Dims(dims)) {}

  int rank() const { return dims_.size(); }
  int64_t numel() const { return numel_; }
  // Negative axes count from the end. Error (kOutOfRange) for an axis that is not there.
  int64_t dim(int axis) const { return dims_[Axis(axis)]; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int size() const { return dims_.size(); }
  const int64_t* begin() const { return dims_.begin(); }
  const int64_t* end() const { return dims_.end(); }
  const int64_t* data() const { return dims_.data(); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  // `axis` counted from the front, checked against the rank.
  int Axis(int axis) const;
  // Product of the extents in [begin, end).
  int64_t NumelBetween(int begin, int end) const;
  // Element strides of the row-major dense tensor of this shape.
  Dims DenseStrides() const;

  // True when elements at `strides` lie as DenseStrides() puts them; those of extents of 1, and all
  // of an empty tensor, are never used.
  bool IsDense(const Dims& strides) const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend std::string ToString(const Shape& shape) { return ToString(shape.dims_); }

 private:
  // Extents other than zero must multiply within int64 even beside a zero: strides need them.
  static int64_t CountElements(const Dims& dims);

  Dims dims_;
  int64_t numel_ = 1;
};

}  // namespace opkit

#endif  // OPKIT_CORE_SHAPE_HPP_

// ---- opkit/base/platform.hpp
// What the toolkit asks of the operating system and the processor: for its threads a mutex and a
// parking place that survive fork, thread start, names, affinity, a cheap clock; files as memory.
// All of it is POSIX and Linux; another system is another version of this header.
//
// pthread and futex are used bare because the standard's types cannot be given up in a forked
// child: a std::thread there cannot be joined or destroyed, a locked std::mutex cannot be reset,
// and destroying a condition variable waits for waiters that no longer exist.
#ifndef OPKIT_BASE_PLATFORM_HPP_
#define OPKIT_BASE_PLATFORM_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline constexpr size_t kCacheLine = 64;

// For sections of a few instructions: who finds it locked spins briefly before the system call.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() { pthread_mutex_lock(&mutex_); }
  void Unlock() { pthread_mutex_unlock(&mutex_); }
  // In a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() { mutex_.Unlock(); }

 private:
  Mutex& mutex_;
};

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A counter for spans of microseconds on one thread, about 10 ns to read: cycles on x86, ns
// elsewhere, so one tick is between 0.2 and 1 ns.
inline uint64_t Ticks() {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(MonotonicNs());
#endif
}

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores
#endif
}

// Where one thread sleeps until it is signalled; lives on that thread's stack. Set() and Wake() are
// apart so that Set() can happen under the lock of the list which the sleeper is found in (from
// then on the sleeper may be gone) and the system call after it: Wake() uses the address alone.
class Parker {
 public:
  using Address = const void*;

  // Release, with the acquire in Wait: what the signaller did is seen by the thread it woke.
  Address Set() {
    signalled_.store(1, std::memory_order_release);
    return &signalled_;
  }
  static void Wake(Address address) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // `deadline_ns` as MonotonicNs counts, or negative for none; false when it has passed.
  bool Wait(int64_t deadline_ns = -1);

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// CPUs that this process may run on, at least 1.
int AvailableCpus();

// Pins the calling thread to the `index`-th (modulo their number) of the CPUs it may run on.
void PinCurrentThread(int index);

// As ps, top and gdb show it; the system keeps the first 15 characters.
void SetCurrentThreadName(const char* name);

// A file's bytes as memory that is only read. MapFile of interop/mapped_file.hpp owns one.
struct FileMapping {
  void* data = nullptr;  // also for an empty file
  size_t size = 0;
  int error = 0;         // errno, when it could not be opened or mapped
  bool is_file = false;  // and not a folder, pipe or device
};
FileMapping MapFileForReading(const char* path);
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Lets go of whole pages that were read and will not be soon: they come back from the file.
void ForgetMapped(const void* data, size_t size);

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_PLATFORM_HPP_

// ---- opkit/core/device_type.hpp
// DeviceType: the kinds of devices, with DLPack's numbers, and what the toolkit knows about each of
// them without its backend. This is the one portable place that names a vendor's devices.
#ifndef OPKIT_CORE_DEVICE_TYPE_HPP_
#define OPKIT_CORE_DEVICE_TYPE_HPP_

namespace opkit::inline OPKIT_ABI {

enum class DeviceType : int32_t {
  kCPU = 1,
  kCUDA = 2,
  kCUDAHost = 3,
  kOpenCL = 4,
  kVulkan = 7,
  kMetal = 8,
  kROCM = 10,
  kROCMHost = 11,
  kExtDev = 12,
  kCUDAManaged = 13,
  kOneAPI = 14,
  kGPU = kCUDA,  // MXNet's "gpu"
  // Not one of DLPack's. Its tensors are in the CPU's memory, and are exported as the CPU's.
  kCPUStream = 64,
  kFirstUserDevice = 80,
};

namespace detail {

struct KnownDeviceType {
  DeviceType type;
  const char* name;
  DeviceType memory;     // the type whose allocator and copies it uses
  bool host_accessible;  // the host may dereference pointers to its memory
};
// The common ones first, as lookups go from the front.
inline constexpr KnownDeviceType kKnownDeviceTypes[] = {
    {DeviceType::kCPU, "cpu", DeviceType::kCPU, true},
    {DeviceType::kCPUStream, "cpu_stream", DeviceType::kCPU, true},
    {DeviceType::kCUDA, "cuda", DeviceType::kCUDA, false},
    {DeviceType::kCUDAHost, "cuda_host", DeviceType::kCUDAHost, true},
    {DeviceType::kOpenCL, "opencl", DeviceType::kOpenCL, false},
    {DeviceType::kVulkan, "vulkan", DeviceType::kVulkan, false},
    {DeviceType::kMetal, "metal", DeviceType::kMetal, false},
    {DeviceType::kROCM, "rocm", DeviceType::kROCM, false},
    {DeviceType::kROCMHost, "rocm_host", DeviceType::kROCMHost, true},
    {DeviceType::kExtDev, "ext_dev", DeviceType::kExtDev, false},
    {DeviceType::kCUDAManaged, "cuda_managed", DeviceType::kCUDAManaged, true},
    {DeviceType::kOneAPI, "oneapi", DeviceType::kOneAPI, false},
};
// Null for a type of the user's own.
constexpr const KnownDeviceType* FindKnownDeviceType(DeviceType type) {
  for (const KnownDeviceType& known : kKnownDeviceTypes)
    if (known.type == type) return &known;
  return nullptr;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_TYPE_HPP_

// ---- opkit/core/device.hpp
// Device: where a tensor's bytes are and an operator runs, {type, index}. A program may register
// device types of its own beside those of core/device_type.hpp.
#ifndef OPKIT_CORE_DEVICE_HPP_
#define OPKIT_CORE_DEVICE_HPP_

namespace opkit::inline OPKIT_ABI {

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// What the toolkit has to know about a device type to use its memory.
struct DeviceTypeInfo {
  std::string name;                         // "cpu", …; unique, used in messages and in JSON
  DeviceType memory = DeviceType::kExtDev;  // the type whose allocator and copies it uses
  bool host_accessible = false;             // the host may dereference pointers to its memory
};

namespace detail {

struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  // An array, not a vector: what a library allocates on the heap leaks when it is unloaded.
  struct Entries {
    static constexpr int kMost =
        64;  // more than the user's types that AllocatorTable has slots for
    Entries() {
      for (const KnownDeviceType& known : kKnownDeviceTypes)
        all[count++] = {known.type, {known.name, known.memory, known.host_accessible}};
    }
    const Entry* begin() const { return all; }
    const Entry* end() const { return all + count; }
    Entry all[kMost];
    int count = 0;
  };
  detail::Mutex mutex;
  Entries entries;
};

OPKIT_COLD DeviceTypeRegistry& DeviceTypes();

}  // namespace detail

OPKIT_COLD DeviceTypeInfo GetDeviceTypeInfo(DeviceType type);

// The number of the device type of that name; -1 if this program knows none.
OPKIT_COLD int FindDeviceType(std::string_view name);

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
OPKIT_COLD DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info);

// True when the host may dereference pointers to this device's memory. Locks for a user's types
// only.
inline bool IsHostAccessible(DeviceType type) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(type);
  return known ? known->host_accessible : GetDeviceTypeInfo(type).host_accessible;
}

// The device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on cpu:0.
Device MemoryDevice(Device device);

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
OPKIT_COLD inline std::string ToString(Device device) {
  return device.index == 0 ? ToString(device.type)
                           : StrCat(ToString(device.type), ":", device.index);
}

}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_HPP_

// ---- opkit/core/allocator.hpp
// Allocator: where a storage's bytes come from. One per memory device, replaceable at run time; it
// counts what lives and the peak. Backends register theirs; the CPU's is here.
#ifndef OPKIT_CORE_ALLOCATOR_HPP_
#define OPKIT_CORE_ALLOCATOR_HPP_

namespace opkit::inline OPKIT_ABI {

inline constexpr int64_t kAlignment = 64;  // bytes; a cache line, and an AVX-512 register

// Thread-safe. An allocator must outlive its memory; those given to SetAllocator live for ever.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // At least `bytes` bytes aligned to kAlignment, or an Error (kOutOfMemory) that says how much was
  // asked for and how much lives. 0 bytes is a null pointer. `index` is the device's among those of
  // its type.
  void* Allocate(int64_t bytes, int32_t index = 0);
  void Deallocate(void* data, int64_t bytes) noexcept;

  virtual const char* name() const = 0;
  int64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void ResetPeak() { peak_.store(live_bytes(), std::memory_order_relaxed); }

 protected:
  virtual void* DoAllocate(int64_t bytes) = 0;  // null when there is no memory
  // For a type with several devices, each with memory of its own.
  virtual void* DoAllocateOn(int32_t /*index*/, int64_t bytes) { return DoAllocate(bytes); }
  virtual void DoDeallocate(void* data, int64_t bytes) noexcept = 0;

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

class CPUAllocator final : public Allocator {
 public:
  const char* name() const override { return "cpu"; }

 protected:
  OPKIT_INLINE void* DoAllocate(int64_t bytes) override;
  OPKIT_INLINE void DoDeallocate(void* data, int64_t) noexcept override;
};

namespace detail {
// Devices are few: a fixed table by device type, read without a lock.
struct AllocatorTable {
  static constexpr int kSlots = 128;
  std::atomic<Allocator*> slots[kSlots];
  alignas(CPUAllocator) unsigned char cpu[sizeof(CPUAllocator)];
  AllocatorTable();
  std::atomic<Allocator*>& operator[](DeviceType type);
};
AllocatorTable& Allocators();
}  // namespace detail

// The allocator of the device's memory. Error (kUnsupported) where no backend brought one.
Allocator& GetAllocator(DeviceType type);

// Replaces the allocator of the device's memory for new storages and returns the one before (null
// if none). `allocator` must live until the process ends or every storage made from it is gone.
Allocator* SetAllocator(DeviceType type, Allocator* allocator);

}  // namespace opkit

#endif  // OPKIT_CORE_ALLOCATOR_HPP_

// ---- opkit/core/storage.hpp
// Storage: reference-counted bytes of one device. Tensors view it; the last handle frees it,
// through the allocator it came from or the deleter that foreign memory was adopted with.
#ifndef OPKIT_CORE_STORAGE_HPP_
#define OPKIT_CORE_STORAGE_HPP_

namespace opkit::inline OPKIT_ABI {

class StorageBlock final : public detail::RefCounted {
 public:
  // Frees foreign memory; `context` is what was given with it.
  using Deleter = void (*)(void* data, void* context);

  // Bytes from the device's allocator. Error: kOutOfMemory, kUnsupported.
  StorageBlock(Device device, int64_t nbytes)
      : device_(device), nbytes_(nbytes), allocator_(&GetAllocator(device.type)) {
    data_ = allocator_->Allocate(nbytes, device.index);
  }
  // Foreign memory; `deleter` may be null when the caller keeps it alive.
  StorageBlock(Device device, void* data, int64_t nbytes, Deleter deleter, void* context)
      : device_(device), data_(data), nbytes_(nbytes), deleter_(deleter), context_(context) {}
  ~StorageBlock() override {
    if (allocator_) {
      allocator_->Deallocate(data_, nbytes_);
    } else if (deleter_) {
      deleter_(data_, context_);
    }
  }

  Device device() const { return device_; }
  void* data() const { return data_; }
  int64_t nbytes() const { return nbytes_; }
  // No address in common, as two blocks of one allocator; foreign memory may overlap.
  bool IsApartFrom(const StorageBlock& other) const {
    const auto a = reinterpret_cast<uintptr_t>(data_), b = reinterpret_cast<uintptr_t>(other.data_);
    return a + static_cast<uintptr_t>(nbytes_) <= b ||
           b + static_cast<uintptr_t>(other.nbytes_) <= a;
  }

 private:
  Device device_;
  void* data_ = nullptr;
  int64_t nbytes_;
  Allocator* allocator_ = nullptr;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

using Storage = detail::IntrusivePtr<StorageBlock>;

inline Storage AllocateStorage(Device device, int64_t nbytes) {
  return detail::MakeIntrusive<StorageBlock>(device, nbytes);
}
inline Storage AdoptStorage(Device device, void* data, int64_t nbytes,
                            StorageBlock::Deleter deleter = nullptr, void* context = nullptr) {
  return detail::MakeIntrusive<StorageBlock>(device, data, nbytes, deleter, context);
}

}  // namespace opkit

#endif  // OPKIT_CORE_STORAGE_HPP_

// ---- opkit/core/tensor.hpp
// Tensor: dtype, shape, strides, device and layout over a Storage and a byte offset. Copying a
// Tensor is cheap and shares its bytes; CopyFrom copies them. What every operator reads and writes.
#ifndef OPKIT_CORE_TENSOR_HPP_
#define OPKIT_CORE_TENSOR_HPP_

namespace opkit::inline OPKIT_ABI {

// Regular: a copy shares the storage, but has a shape and dtype of its own. Not synchronised; reads
// from several threads are fine. Every member either succeeds or throws an Error and leaves the
// tensor as it was.
//
//   Tensor x({2, 3}, DType::kFloat32);            // allocated, contents undefined
//   Tensor y = Tensor::From<float>({2}, {1, 2});
//   x.mutable_data<float>()[0] = y.data<float>()[1];
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept = default;
  ~Tensor();
  explicit Tensor(Device device) : device_(device) {}
  // Errors: kInvalidArgument for an undefined dtype, kOutOfRange for sizes past int64,
  // kOutOfMemory.
  Tensor(Shape shape, DType dtype, Device device = {}) : device_(device) {
    Resize(std::move(shape), dtype);
  }
  // Views `storage` from `byte_offset` on; `strides` in elements, none negative, empty for dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {});

  // A copy of `values` on the CPU, row-major. Error (kInvalidArgument) when the counts differ.
  template <Element T>
  static Tensor From(Shape shape, std::initializer_list<T> values) {
    return From(std::move(shape), values.begin(), values.size());
  }
  template <Element T>
  static Tensor From(Shape shape, const T* values, size_t count) {
    if (static_cast<int64_t>(count) != shape.numel())
      Throw(ErrorCode::kInvalidArgument, "shape ", shape, " holds ", shape.numel(),
            " elements, but ", count, " values were given");
    Tensor out(std::move(shape), kDTypeOf<T>);
    if (count) std::memcpy(out.raw_mutable_data(), values, count * sizeof(T));
    return out;
  }
  // A vector, span or array of T.
  template <Element T, class Range>
    requires requires(const Range& range) {
      { range.data() } -> std::convertible_to<const T*>;
      range.size();
    }
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <class Range>
    requires Element<typename Range::value_type>
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <Element T>
  static Tensor Scalar(T value) {
    return From<T>({}, {value});
  }
  // Memory of the caller's, which must outlive every tensor that shares it. Throws where it is null
  // and the shape has elements.
  template <Element T>
  static Tensor FromExternal(T* data, Shape shape, Device device = {}) {
    Tensor out(device);
    const int64_t nbytes = CheckedBytes(shape, kDTypeOf<T>);
    if (data == nullptr && nbytes > 0)
      Throw(ErrorCode::kInvalidArgument, "expected memory for ", ToString(shape), " of ",
            ToString(kDTypeOf<T>), ", found a null pointer");
    out.storage_ = AdoptStorage(device, const_cast<std::remove_const_t<T>*>(data), nbytes);
    out.shape_ = std::move(shape);
    out.dtype_ = kDTypeOf<T>;
    out.capacity_ = nbytes;
    return out;
  }

  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t nbytes() const { return numel() * ItemSize(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Layout& layout() const { return layout_; }
  const Storage& storage() const { return storage_; }
  int64_t byte_offset() const { return byte_offset_; }
  // Bytes that Resize can use without new memory; 0 where strides leave gaps that are not ours.
  int64_t capacity() const { return capacity_; }
  // In elements.
  Dims strides() const { return strides_.empty() ? shape_.DenseStrides() : strides_; }
  bool is_dense() const { return strides_.empty() || shape_.IsDense(strides_); }
  // Elements of this dtype and shape at this place, dense and in the standard layout.
  bool Is(const void* data, DType dtype, const int64_t* extents, int rank) const {
    if (raw_data() != data || dtype_ != dtype || !strides_.empty() || !layout_.is_standard() ||
        shape_.rank() != rank)
      return false;
    const int64_t* own = shape_.data();
    for (int axis = 0; axis < rank; ++axis)
      if (own[axis] != extents[axis]) return false;
    return true;
  }
  // Has a dtype and memory, so that it may be read.
  bool initialized() const { return dtype_ != DType::kUndefined && (storage_ || numel() == 0); }

  // Pointer to the first element; elements follow `strides()`. Errors: kTypeMismatch for another
  // T, kUninitialized.
  template <Element T>
  const T* data() const {
    CheckReadable(kDTypeOf<T>);
    return static_cast<const T*>(raw_data());
  }
  // As data(); a tensor that has no dtype yet takes T and is allocated.
  template <Element T>
  T* mutable_data() {
    if (dtype_ == DType::kUndefined) Resize(shape_, kDTypeOf<T>);
    CheckReadable(kDTypeOf<T>);
    return static_cast<T*>(raw_mutable_data());
  }
  const void* raw_data() const { return raw_mutable_data(); }
  void* raw_mutable_data() const {
    return storage_ ? static_cast<char*>(storage_->data()) + byte_offset_ : nullptr;
  }
  // The elements in row-major order. Host tensors only.
  template <Element T>
  std::vector<T> ToVector() const {
    CheckReadable(kDTypeOf<T>);
    CheckStandard("ToVector");
    CheckHost();
    const Tensor dense = is_dense() ? *this : Contiguous();
    const T* values = dense.data<T>();
    return std::vector<T>(values, values + numel());
  }

  // A new shape; keeps the dtype. Memory is kept when it is large enough, so shrinking and growing
  // back costs nothing; otherwise the tensor takes new memory, its contents are undefined, and
  // whoever shares the old memory keeps it. Without a dtype only the shape is set.
  void Resize(Shape shape) {
    if (dtype_ != DType::kUndefined) return Resize(std::move(shape), dtype_);
    shape_ = std::move(shape);
  }
  void Resize(Shape shape, DType dtype);
  // Memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer);
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source);

  // A dense copy of the source's elements in this tensor's own memory and device, both reachable
  // from the host (device/copy.hpp crosses devices).
  void CopyFrom(const Tensor& source);
  // What a copy of `source` writes to: this tensor resized, or new memory of its device where the
  // two overlap. This tensor stays as it is.
  Tensor PreparedFor(const Tensor& source) const;
  // A dense tensor with memory of its own.
  Tensor Contiguous() const;

  // The same memory under another shape of equal element count. One extent may be -1.
  Tensor View(const Dims& dims) const;
  // Elements [begin, end) of `axis`, sharing memory. Resizing a slice never reaches beyond it.
  Tensor Slice(int axis, int64_t begin, int64_t end) const;
  // The same memory with its axes in another order: axis i of the result is axis order[i] of this.
  Tensor Permute(const Dims& order) const;

  // True when the bytes from the first to the last element overlap those of `other`.
  bool SharesMemoryWith(const Tensor& other) const;

  // For backends whose layout needs other sizes than the dense one: `storage` of any size under a
  // blocked layout.
  static Tensor FromLayout(Storage storage, Shape shape, DType dtype, Layout layout);
  // The same memory on another device that can reach it (cpu and cpu_stream).
  void SetDevice(Device device);

  // "float32[2, 3] on cpu", with the layout or strides where they are not the plain ones.
  OPKIT_COLD std::string Describe() const;
  friend std::string ToString(const Tensor& tensor) { return tensor.Describe(); }

  // Bytes of `shape` elements of `dtype`. Error (kOutOfRange) past int64.
  static int64_t CheckedBytes(const Shape& shape, DType dtype);

 private:
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Text& a, const Text& b = {},
                                    const Text& c = {}, const Text& d = {}, const Text& e = {},
                                    const Text& f = {}) const;
  void CheckInitialized() const {
    if (!initialized()) [[unlikely]]
      Fail(ErrorCode::kUninitialized, "is read before anything was written to it");
  }
  void CheckReadable(DType wanted) const;
  void CheckStandard(const char* what) const {
    if (!layout_.is_standard()) [[unlikely]]
      Fail(ErrorCode::kUnsupported, what, " needs the standard layout; convert first");
  }
  bool Fits(const Shape& shape, DType dtype) const;
  Storage NewMemory(const Shape& shape, DType dtype) const;
  void TakeMemory(Storage storage);
  void CheckHost() const {
    if (!IsHostAccessible(device_.type))
      Fail(ErrorCode::kUnsupported, "is not reachable from the host; use device/copy.hpp");
  }
  // Bytes from the first element to the end of the last.
  int64_t SpanBytes() const;
  // As SpanBytes, for strides that nobody has checked yet: -1 when they cannot be right.
  int64_t ViewBytes() const;
  void CopyElementsTo(char* out) const;

  Storage storage_;
  int64_t byte_offset_ = 0;
  int64_t capacity_ = 0;
  Shape shape_{0};
  Dims strides_;  // empty: dense
  Layout layout_;
  Device device_;
  DType dtype_ = DType::kUndefined;
};

}  // namespace opkit

#endif  // OPKIT_CORE_TENSOR_HPP_

// ---- opkit/core/attribute.hpp
// Attribute: one typed constant of an operator; Arguments: an operator's named attributes. Types
// are strict, so a wrong one is found when the operator is built, not when it computes nonsense.
#ifndef OPKIT_CORE_ATTRIBUTE_HPP_
#define OPKIT_CORE_ATTRIBUTE_HPP_

namespace opkit::inline OPKIT_ABI {

// A list's number is its element's plus five.
enum class AttributeType : uint8_t {
  kInt,
  kFloat,
  kBool,
  kString,
  kTensor,
  kInts,
  kFloats,
  kBools,
  kStrings,
  kTensors,
};

const char* ToString(AttributeType type);

namespace detail {

// The type an element is kept as: int64, double, bool, string or Tensor; void for any other type.
template <class T>
using StoredAttribute = std::conditional_t<
    std::is_same_v<T, bool>, bool,
    std::conditional_t<
        std::is_integral_v<T> || std::is_enum_v<T>, int64_t,
        std::conditional_t<
            std::is_floating_point_v<T>, double,
            std::conditional_t<std::is_same_v<T, Tensor>, Tensor,
                               std::conditional_t<std::is_convertible_v<T, std::string_view>,
                                                  std::string, void>>>>>;

template <class T>
constexpr AttributeType kAttributeElement =
    std::is_same_v<StoredAttribute<T>, int64_t>       ? AttributeType::kInt
    : std::is_same_v<StoredAttribute<T>, double>      ? AttributeType::kFloat
    : std::is_same_v<StoredAttribute<T>, bool>        ? AttributeType::kBool
    : std::is_same_v<StoredAttribute<T>, std::string> ? AttributeType::kString
                                                      : AttributeType::kTensor;

}  // namespace detail

// Types that an attribute (or one element of its list) can be given and read as.
template <class T>
concept AttributeElement = !std::is_void_v<detail::StoredAttribute<std::remove_cvref_t<T>>>;

// The AttributeType of a C++ type or of a vector of it.
template <class T>
inline constexpr AttributeType kAttributeTypeOf = detail::kAttributeElement<T>;
template <class T>
inline constexpr AttributeType kAttributeTypeOf<std::vector<T>> =
    static_cast<AttributeType>(static_cast<int>(detail::kAttributeElement<T>) + 5);

// A regular value: int64, double, bool, string, Tensor, or a list of one of these. Any integer,
// enumeration, floating-point and string type converts to it.
class Attribute {
 public:
  Attribute() : Attribute(int64_t{0}) {}
  template <AttributeElement T>
  Attribute(const T& value) : type_(kAttributeTypeOf<T>) {
    Add(value);
  }
  Attribute(const char* value) : Attribute(std::string(value)) {}
  template <AttributeElement T>
  Attribute(const std::vector<T>& values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }
  template <AttributeElement T>
  Attribute(std::initializer_list<T> values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }

  // Also when moved from: a copy shares the value, which never changes.
  Attribute(const Attribute&) = default;
  Attribute& operator=(const Attribute&) = default;

  AttributeType type() const { return type_; }
  bool is_list() const { return type_ >= AttributeType::kInts; }
  // Elements of a list; 1 for a single value.
  size_t size() const {
    const Values& all = *values_;
    return all.ints.size() + all.floats.size() + all.strings.size() + all.tensors.size();
  }

  // True when Get<T>() can return: T is an element type or a vector of one.
  template <class T>
  bool Is() const {
    return type_ == kAttributeTypeOf<T>;
  }
  // Errors: kTypeMismatch for another type, kOutOfRange for an integer that T cannot hold. An empty
  // list reads as a list of anything.
  template <class T>
  T Get() const {
    if constexpr (AttributeElement<T>) {
      if (!Is<T>()) WrongType(kAttributeTypeOf<T>);
      return Load<T>(List<T>()[0]);
    } else {
      using Item = typename T::value_type;
      static_assert(AttributeElement<Item>,
                    "an attribute is an integer, bool, floating-point "
                    "number, string, Tensor, or a std::vector of one of these");
      if (!Is<T>() && !(is_list() && size() == 0)) WrongType(kAttributeTypeOf<T>);
      T out;
      for (const auto& stored : List<Item>()) out.push_back(Load<Item>(stored));
      return out;
    }
  }

  friend std::string ToString(const Attribute& attribute) { return attribute.Print(); }
  // Tensors are compared by dtype, shape, device and bytes.
  OPKIT_COLD friend bool operator==(const Attribute& a, const Attribute& b) {
    const Values &x = *a.values_, &y = *b.values_;
    if (a.type_ != b.type_ || x.ints != y.ints || x.floats != y.floats || x.strings != y.strings ||
        x.tensors.size() != y.tensors.size())
      return false;
    for (size_t i = 0; i < x.tensors.size(); ++i)
      if (!SameTensor(x.tensors[i], y.tensors[i])) return false;
    return true;
  }

 private:
  // Single values are lists of one; bools are kept among the integers.
  template <class T>
  auto& List() {
    using Stored = detail::StoredAttribute<T>;
    if constexpr (std::is_same_v<Stored, double>)
      return values_->floats;
    else if constexpr (std::is_same_v<Stored, std::string>)
      return values_->strings;
    else if constexpr (std::is_same_v<Stored, Tensor>)
      return values_->tensors;
    else
      return values_->ints;
  }
  template <class T>
  const auto& List() const {
    return const_cast<Attribute*>(this)->List<T>();
  }
  template <class T>
  void Add(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      if (static_cast<int64_t>(value) < 0 && value > 0)
        Throw(ErrorCode::kOutOfRange, "attribute value ", value, " does not fit in int64");
    }
    using Stored = typename std::remove_cvref_t<decltype(List<T>())>::value_type;
    List<T>().push_back(static_cast<Stored>(value));
  }
  template <class T, class Stored>
  static T Load(const Stored& stored) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (static_cast<Stored>(static_cast<T>(stored)) != stored ||
          (stored < 0) != (static_cast<T>(stored) < T{}))
        Throw(ErrorCode::kOutOfRange, "value ", stored, " does not fit in the ", sizeof(T) * 8,
              std::is_signed_v<T> ? "-bit signed" : "-bit unsigned", " integer asked for");
    }
    return static_cast<T>(stored);
  }
  [[noreturn]] OPKIT_COLD void WrongType(AttributeType wanted) const;
  OPKIT_COLD std::string Print() const;
  OPKIT_COLD static bool SameTensor(const Tensor& a, const Tensor& b);

  struct Values : detail::RefCounted {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    std::vector<Tensor> tensors;
  };

  AttributeType type_;
  detail::IntrusivePtr<Values> values_{new Values};
};

struct NamedAttribute {
  std::string name;
  Attribute value;
  friend bool operator==(const NamedAttribute&, const NamedAttribute&) = default;
};

// Named attributes in the order they were set. A few at a time, read when an operator is built and
// never while it runs: a list beats a map.
class Arguments {
 public:
  Arguments() = default;
  // Error (kInvalidArgument) for a name that is there twice.
  Arguments(std::initializer_list<NamedAttribute> list);

  // Adds, or replaces the attribute of that name.
  void Set(std::string name, Attribute value);
  bool Remove(std::string_view name);
  // Null when there is none.
  const Attribute* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The attribute as T, or `fallback` when there is none. A stored value of another type is an
  // Error (kTypeMismatch) that names the argument.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const Attribute* found = Find(name);
    return found ? Read<T>(name, *found) : fallback;
  }
  // As above; an Error (kNotFound) when there is none.
  template <class T>
  T Get(std::string_view name) const {
    const Attribute* found = Find(name);
    if (!found) Throw(ErrorCode::kNotFound, "no argument '", name, "'", SuggestName(name, Names()));
    return Read<T>(name, *found);
  }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::vector<std::string> Names() const;
  friend bool operator==(const Arguments&, const Arguments&) = default;

 private:
  template <class T>
  static T Read(std::string_view name, const Attribute& attribute) {
    try {
      return attribute.Get<T>();
    } catch (const Error& error) {
      Throw(error.code(), "argument '", name, "': ", error.message());
    }
  }
  std::vector<NamedAttribute> items_;
};

}  // namespace opkit

#endif  // OPKIT_CORE_ATTRIBUTE_HPP_

// ---- opkit/op/abi/attr_map.hpp
// AttrMap: an operator's attributes as text, which is how function operators read them; typed
// access parses. Made once when the operator is built.
#ifndef OPKIT_OP_ABI_ATTR_MAP_HPP_
#define OPKIT_OP_ABI_ATTR_MAP_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Its address identifies the type, in every translation unit.
template <class T>
inline constexpr char kTypeTag = 0;

template <class T>
concept StringMap = requires(T& map, const std::string& text) {
  requires std::is_same_v<typename T::key_type, std::string>;
  requires std::is_same_v<typename T::mapped_type, std::string>;
  map.emplace(text, text);
};

// 3, 0.1, true, text, [1, 2], ["a", "b"]; floating-point numbers without loss, unlike messages.
std::string AttributeText(const Attribute& attribute);

template <class T>
std::optional<T> ParseText(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if constexpr (std::is_same_v<T, std::string>) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "True" || text == "1") return true;
    if (text == "false" || text == "False" || text == "0") return false;
    return std::nullopt;
  } else {  // whatever the program's locale says
    static_assert(std::is_arithmetic_v<T>,
                  "AttrMap::get<T>: T is an integer, bool, floating-point "
                  "number, std::string, or a std::vector of one of these");
    if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
    T value{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
      return std::nullopt;
    return value;
  }
}

// "[1, 2]", "(1, 2)" or "1, 2".
template <class T>
std::optional<std::vector<T>> ParseList(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.size() >= 2 &&
      ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')')))
    text = text.substr(1, text.size() - 2);
  std::vector<T> out;
  while (!text.empty()) {
    size_t end = 0;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != ','); ++end)
      quoted ^= text[end] == '"';
    auto item = ParseText<T>(text.substr(0, end));
    if (!item) return std::nullopt;
    out.push_back(*std::move(item));
    text = end < text.size() ? text.substr(end + 1) : std::string_view();
  }
  return out;
}

template <class T>
inline constexpr bool kIsAttrList = false;
template <class T>
inline constexpr bool kIsAttrList<std::vector<T>> = true;

}  // namespace detail

// An operator's attributes as text, made once when the operator is built. Names that begin with
// "__" are the toolkit's own and are left out. Reading a number costs its parsing.
class AttrMap {
 public:
  AttrMap() = default;
  AttrMap(const AttrMap&) = delete;
  AttrMap& operator=(const AttrMap&) = delete;
  AttrMap(AttrMap&&) noexcept = default;
  AttrMap& operator=(AttrMap&&) noexcept = default;
  explicit AttrMap(const Arguments& arguments);
  explicit AttrMap(const opkit_node& node);

  // Null when there is none.
  const std::string* find(std::string_view name) const {
    for (const auto& [key, text] : items_)
      if (key == name) return &text;
    return nullptr;
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // The attribute as T, `fallback` when there is none. Error (kTypeMismatch) for text that does not
  // read as T.
  template <class T>
  T get(std::string_view name, T fallback) const {
    const std::string* text = find(name);
    return text ? Parse<T>(name, *text) : std::move(fallback);
  }
  // Error (kNotFound) when there is none.
  template <class T>
  T get(std::string_view name) const {
    const std::string* text = find(name);
    if (!text) Missing(name);
    return Parse<T>(name, *text);
  }
  std::string get(std::string_view name, const char* fallback) const {
    return get<std::string>(name, fallback);
  }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  // The attributes as any map of strings; made at the first call for each type and kept.
  template <detail::StringMap Map>
  const Map& As() const {
    for (const auto& copy : copies_)
      if (copy->tag == &detail::kTypeTag<Map>) return static_cast<const MapCopy<Map>&>(*copy).map;
    auto copy = detail::MakeIntrusive<MapCopy<Map>>();
    copy->tag = &detail::kTypeTag<Map>;
    for (const auto& [name, text] : items_) copy->map.emplace(name, text);
    copies_.emplace_back(copy);
    return copy->map;
  }

 private:
  [[noreturn]] OPKIT_COLD void Missing(std::string_view name) const;
  struct Copy : detail::RefCounted {
    const char* tag = nullptr;
  };
  template <class Map>
  struct MapCopy : Copy {
    Map map;
  };
  template <class T>
  static T Parse(std::string_view name, const std::string& text) {
    std::optional<T> value;
    if constexpr (std::is_same_v<T, std::string>) {
      value = text;
    } else if constexpr (detail::kIsAttrList<T>) {
      value = detail::ParseList<typename T::value_type>(text);
    } else {
      value = detail::ParseText<T>(text);
    }
    if (!value)
      Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is \"", text,
            "\", which does not read as ", kAttributeTypeOf<T>);
    return *std::move(value);
  }

  std::vector<std::pair<std::string, std::string>> items_;
  mutable std::vector<detail::IntrusivePtr<Copy>> copies_;
};

}  // namespace opkit

#endif  // OPKIT_OP_ABI_ATTR_MAP_HPP_

// ---- opkit/device/invocation.hpp
// Which operator is running: an explicit identity {id, parent, kind}, ambient per thread. Run and
// Invoke open a scope; a task captures the token when it is pushed and adopts it where it runs, so
// work done anywhere is attributed to its operator. Names are never parsed to find this out.
#ifndef OPKIT_DEVICE_INVOCATION_HPP_
#define OPKIT_DEVICE_INVOCATION_HPP_

namespace opkit::inline OPKIT_ABI {

enum class InvocationKind : uint8_t {
  kNone,
  kOperator,
  kCustomOperator,  // loaded from a library, or registered by functions
  kSubOperator,     // invoked from inside another operator
  kUserCode,        // a scope that an author opened
  kConverter,
  kCopy,
};

// A token, freely copied to other threads. `id` is unique in the process; 0 means none.
struct Invocation {
  uint64_t id = 0;
  uint64_t parent = 0;
  InvocationKind kind = InvocationKind::kNone;
  friend bool operator==(const Invocation&, const Invocation&) = default;
};

namespace detail {

struct InvocationState {
  Invocation current;
  uint64_t next_id = 0;
  uint64_t last_id = 0;
};
inline constinit thread_local InvocationState t_invocation;
inline constinit std::atomic<uint64_t> g_invocation_block{0};

// Each thread draws ids from a block of its own, so that opening a scope touches nothing shared.
inline uint64_t NextInvocationId() {
  InvocationState& state = t_invocation;
  if (state.next_id == state.last_id) [[unlikely]] {
    constexpr uint64_t kBlock = uint64_t{1} << 20;
    // Relaxed: only the uniqueness of the number matters, it publishes nothing.
    state.next_id = g_invocation_block.fetch_add(1, std::memory_order_relaxed) * kBlock;
    state.last_id = state.next_id + kBlock;
    if (state.next_id == 0) state.next_id = 1;
  }
  return state.next_id++;
}

}  // namespace detail

inline Invocation CurrentInvocation() { return detail::t_invocation.current; }

// Opens a child of the current invocation for the scope's life; restores on every path, exceptions
// included. Costs a few ns.
//
//   std::thread([token = opkit::CurrentInvocation()] {
//     auto scope = opkit::InvocationScope::Adopt(token);
//     …                                    // attributed to the operator that started the thread
//   });
class InvocationScope {
 public:
  explicit InvocationScope(InvocationKind kind) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = {detail::NextInvocationId(), previous_.id, kind};
  }
  // Continues `token` itself on this thread, without a new identity.
  static InvocationScope Adopt(Invocation token) { return InvocationScope(token); }

  InvocationScope(const InvocationScope&) = delete;
  InvocationScope& operator=(const InvocationScope&) = delete;
  ~InvocationScope() { detail::t_invocation.current = previous_; }

 private:
  explicit InvocationScope(Invocation token) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = token;
  }
  Invocation previous_;
};

}  // namespace opkit

#endif  // OPKIT_DEVICE_INVOCATION_HPP_

// ---- opkit/base/index.hpp
// Index: a number as a place in a container. Values, nodes and axes are numbered by int, containers
// by size_t.
#ifndef OPKIT_BASE_INDEX_HPP_
#define OPKIT_BASE_INDEX_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The caller knows that `i` is not negative.
template <class Integer>
constexpr size_t Index(Integer i) {
  return static_cast<size_t>(i);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_INDEX_HPP_

// ---- opkit/op/abi/op_tensor.hpp
// OpTensor and Status: the arguments of a function operator and its answer. Over the plain structs
// of opkit_abi.h, so that the same function serves the program and a shared library.
#ifndef OPKIT_OP_ABI_OP_TENSOR_HPP_
#define OPKIT_OP_ABI_OP_TENSOR_HPP_

namespace opkit::inline OPKIT_ABI {

// A function may answer with one of these instead of a Status.
enum ReturnValue : int { FAIL = 0, SUCCESS = 1 };
using MXReturnValue = ReturnValue;

// Success, or a failure with its text. One pointer, null for a success.
class [[nodiscard]] OpStatus {
 public:
  OpStatus() = default;
  OpStatus(ReturnValue value) {  // NOLINT: `return SUCCESS;`
    if (value != SUCCESS) [[unlikely]]
      Fail({});
  }
  template <class... Parts>
  static OpStatus Failure(const Parts&... parts) {
    OpStatus status;
    status.Fail(StrCat(parts...));
    return status;
  }
  bool ok() const { return !message_; }
  // Empty for a success.
  std::string message() const { return message_ ? message_->value : std::string(); }

 private:
  OPKIT_COLD void Fail(std::string text) {
    message_ = detail::IntrusivePtr<Message>(new Message(std::move(text)));
  }
  using Message = detail::Shared<std::string>;
  detail::IntrusivePtr<Message> message_;
};
#ifndef Status  // X11 makes it a macro for int, which functions may return as well
using Status = OpStatus;
#endif

namespace detail {

// The host functions that operators of this image call: the program's own table, or in a library
// the table it was loaded with. Null before the first function operator is registered or loaded.
OPKIT_IMAGE_LOCAL inline constinit const opkit_host* g_host = nullptr;

}  // namespace detail

// The text that explains a FAIL: OPKIT_ERROR_MSG << "k is " << k; return FAIL; Every thread has its
// own, empty at the start of every call. The host keeps it, because a thread-local string of a
// library would keep the library in the process.
class OPKIT_IMAGE_LOCAL ErrorMessageStream {
 public:
  template <class T>
  const ErrorMessageStream& operator<<(const T& value) const {
    if (const opkit_host* host = detail::g_host) {
      const std::string text = StrCat(value);
      host->add_error(text.data(), text.size());
    }
    return *this;
  }
};
inline ErrorMessageStream ErrorMessage() { return {}; }

// How a result is to be stored.
enum class OpReq : uint8_t {
  kNone = OPKIT_REQ_NONE,        // nobody wants it: there is no memory
  kWrite = OPKIT_REQ_WRITE,      //
  kInplace = OPKIT_REQ_INPLACE,  // the memory is that of an input, which the schema allows
  kAdd = OPKIT_REQ_ADD,          // onto what is there; only for operators with setAcceptAdd()
};
inline const char* ToString(OpReq req) {
  constexpr const char* kNames[] = {"none", "write", "in-place", "add"};
  return kNames[static_cast<int>(req)];
}

// A tensor as a function sees it: a view, copied freely, valid until its operator runs again. An
// input or output that the node leaves out has no dtype and no data.
class OpTensor {
 public:
  OpTensor() = default;
  // Views memory that outlives it; `shape` and `strides` (in elements) too.
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : OpTensor(data, dtype, shape.data(), strides.data(), static_cast<int>(shape.size()), device,
                 req) {}
  OpTensor(void* data, DType dtype, const int64_t* shape, const int64_t* strides, int rank,
           Device device = {}, OpReq req = OpReq::kWrite)
      : view_{sizeof view_,
              nullptr,
              data,
              shape,
              strides,
              rank,
              static_cast<int32_t>(dtype),
              static_cast<int32_t>(device.type),
              device.index,
              static_cast<int32_t>(req),
              0,
              nullptr} {}
  // Copies as many members as the version of the ABI has that `view` was made with.
  explicit OpTensor(const opkit_tensor& view) {
    std::memcpy(&view_, &view, view.size < sizeof view_ ? view.size : sizeof view_);
    view_.size = sizeof view_;
  }

  // The first element; element (i, j, …) is at data[i * strides[0] + j * strides[1] + …]. Writable
  // in outputs and in mutated inputs. Error (kTypeMismatch) for another T.
  template <Element T>
  T* data() const {
    if (dtype() != kDTypeOf<T>) [[unlikely]]
      WrongType(kDTypeOf<T>);
    return static_cast<T*>(view_.data);
  }
  void* raw_data() const { return view_.data; }
  bool has_value() const { return view_.dtype != OPKIT_UNDEFINED; }

  std::span<const int64_t> shape() const { return {view_.shape, detail::Index(view_.rank)}; }
  // In elements.
  std::span<const int64_t> strides() const { return {view_.strides, detail::Index(view_.rank)}; }
  int64_t stride(int axis) const { return view_.strides[axis < 0 ? axis + view_.rank : axis]; }
  int rank() const { return view_.rank; }
  int64_t dim(int axis) const { return view_.shape[axis < 0 ? axis + view_.rank : axis]; }
  // Number of elements.
  int64_t size() const {
    int64_t count = 1;
    for (int i = 0; i < view_.rank; ++i) count *= view_.shape[i];
    return count;
  }
  int64_t nbytes() const { return size() * ItemSize(dtype()); }
  bool is_dense() const {
    int64_t step = 1;
    for (int i = view_.rank - 1; i >= 0; --i) {
      if (view_.shape[i] != 1 && view_.strides[i] != step) return false;
      step *= view_.shape[i] > 0 ? view_.shape[i] : 1;
    }
    return true;
  }
  DType dtype() const { return static_cast<DType>(view_.dtype); }
  Device device() const { return {static_cast<DeviceType>(view_.device_type), view_.device_index}; }
  OpReq req() const { return static_cast<OpReq>(view_.req); }

  friend std::string ToString(const OpTensor& tensor);

  // For the toolkit: the viewed Tensor, where the view was made of one.
  const Tensor* tensor() const { return static_cast<const Tensor*>(view_.host); }
  void Bind(const Tensor* tensor) { view_.host = tensor; }
  const opkit_tensor& view() const { return view_; }

 private:
  [[noreturn]] OPKIT_COLD void WrongType(DType wanted) const;

  opkit_tensor view_{
      sizeof(opkit_tensor), nullptr, nullptr, nullptr, nullptr, 0, 0, 1, 0, 0, 0, nullptr};
};
static_assert(sizeof(OpTensor) == sizeof(opkit_tensor), "arrays of one are arrays of the other");
using MXTensor = OpTensor;

}  // namespace opkit

// Explains the FAIL that follows: OPKIT_ERROR_MSG << "expected 2 axes, found " << rank;
#define OPKIT_ERROR_MSG ::opkit::ErrorMessage()

#endif  // OPKIT_OP_ABI_OP_TENSOR_HPP_

// ---- opkit/op/random.hpp
// Random numbers for operators: a small generator, seeded by the host, whose numbers depend on the
// seed, the operator and its run, and on nothing else: not on threads, nor on what else was built.
#ifndef OPKIT_OP_RANDOM_HPP_
#define OPKIT_OP_RANDOM_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One step of SplitMix64 (Steele, Lea, Flood 2014): spreads a counter over all bits.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct RandomSeed {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> epoch{1};  // how often it was set
};
inline constinit RandomSeed g_random_seed;

}  // namespace detail

// Operators draw the same numbers again from their next run on. Not while an operator runs.
inline void SetSeed(uint64_t seed) {
  // Relaxed: operators that run later see it by whatever orders them after this call.
  detail::g_random_seed.seed.store(seed, std::memory_order_relaxed);
  detail::g_random_seed.epoch.fetch_add(1, std::memory_order_relaxed);
}

// xoshiro256** (Blackman, Vigna 2018), a uniform random bit generator. Different (seed, stream)
// are different sequences. Costs about 1 ns a number.
class RandomGenerator {
 public:
  using result_type = uint64_t;

  explicit constexpr RandomGenerator(uint64_t seed = 0, uint64_t stream = 0) {
    uint64_t x = detail::MixBits(seed) ^ detail::MixBits(~stream);
    for (uint64_t& word : state_) word = x = detail::MixBits(x);
  }
  static constexpr uint64_t(min)() { return 0; }
  static constexpr uint64_t(max)() { return ~uint64_t{0}; }

  constexpr uint64_t operator()() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  // In [0, 1).
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  // Mean 0, variance 1 (Marsaglia's polar method).
  double normal() {
    for (;;) {
      const double x = 2 * uniform() - 1, y = 2 * uniform() - 1;
      const double r = x * x + y * y;
      if (r > 0 && r < 1) return x * __builtin_sqrt(-2 * __builtin_log(r) / r);
    }
  }

 private:
  static constexpr uint64_t Rotate(uint64_t x, int k) { return x << k | x >> (64 - k); }
  uint64_t state_[4];
};

}  // namespace opkit

#endif  // OPKIT_OP_RANDOM_HPP_

// ---- opkit/op/abi/op_resource.hpp
// OpResource: the services that a function operator's host gives it: memory, scratch, threads, the
// stream, random numbers, logging, sub-events, and every other operator by name. It calls
// opkit_abi.h's table, so that it is the same in a program and in a library.
#ifndef OPKIT_OP_ABI_OP_RESOURCE_HPP_
#define OPKIT_OP_ABI_OP_RESOURCE_HPP_

namespace opkit::inline OPKIT_ABI {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
inline const char* ToString(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

namespace detail {

// Where the program's own host keeps exception objects, so that an exception of an operator of the
// program arrives as it was thrown. Null in a library, whose exceptions must not leave it.
struct ExceptionKeeper {
  void (*keep)() noexcept;  // keeps the exception being handled
  void (*rethrow)();        // throws the exception kept last, if any
};
OPKIT_IMAGE_LOCAL inline constinit const ExceptionKeeper* g_exceptions = nullptr;

inline opkit_status StatusOf(ErrorCode code) { return static_cast<opkit_status>(code) + 1; }
inline ErrorCode CodeOfStatus(opkit_status status) {
  return status >= OPKIT_INVALID_ARGUMENT && status <= OPKIT_FAILED
             ? static_cast<ErrorCode>(status - 1)
             : ErrorCode::kOperatorFailed;
}

// In a catch block: reports the exception to the host, and says which status to return to it.
OPKIT_COLD OPKIT_IMAGE_LOCAL opkit_status ReportFailure() noexcept;
// Throws the failure of a function of the host's table.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowHostFailure(const opkit_host* host,
                                                                opkit_status status);

// A loop's body behind a function pointer. Its exception is kept and thrown where the loop began.
template <class F>
struct LoopBody {
  F& f;
  std::exception_ptr thrown;
  std::atomic<bool> failed{false};

  static opkit_status Run(void* context, int64_t begin, int64_t end) {
    auto& self = *static_cast<LoopBody*>(context);
    try {
      self.f(begin, end);
      return OPKIT_OK;
    } catch (...) {
      // Relaxed: the loop's end orders this before the only read of `thrown`.
      if (!self.failed.exchange(true, std::memory_order_relaxed))
        self.thrown = std::current_exception();
      return OPKIT_FAILED;
    }
  }
};
template <class F>
concept LoopIndexBody = std::is_invocable_v<F&, int64_t>;

// f(begin, end) for ranges that make up [0, n), on the host's threads.
template <class F>
void RunHostRanges(const opkit_host* host, const opkit_call* call, int64_t n, int64_t grain, F f) {
  LoopBody<F> body{f, {}, {}};
  const opkit_status status = host->parallel_for(call, n, grain, &LoopBody<F>::Run, &body);
  if (status == OPKIT_OK) [[likely]]
    return;
  if (body.thrown) std::rethrow_exception(body.thrown);
  ThrowHostFailure(host, status);
}
template <class F>
void RunHostLoop(const opkit_host* host, const opkit_call* call, int64_t n, int64_t grain, F& f) {
  if (n <= 0) return;
  if (n <= grain) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  RunHostRanges(host, call, n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<F> && std::is_invocable_v<const F&, int64_t>) {
      const F body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

// Work on its way to a stream.
template <class F>
struct LaunchedWork {
  F work;
  std::string op;

  static opkit_status Run(void* context) {
    auto& self = *static_cast<LaunchedWork*>(context);
    try {
      self.Work();
      return OPKIT_OK;
    } catch (...) {
      return ReportFailure();
    }
  }
  static void Drop(void* context) { delete static_cast<LaunchedWork*>(context); }

 private:
  void Work() {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& thrown) {
      Error error(ErrorCode::kOperatorFailed,
                  StrCat("work that operator ", op, " launched threw: ", thrown.what()));
      error.SetCause(std::current_exception());
      throw error;
    }
  }
};

}  // namespace detail

// A named part of an operator's own code, for the scope's life: work in it has an identity of its
// own, below the operator's.
class OpScope {
 public:
  OpScope(const opkit_call* call, const char* name) : host_(call->host), name_(name) {
    host_->scope_begin(call, name, &scope_);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  ~OpScope() { host_->scope_end(&scope_); }
  const char* name() const { return name_; }

 private:
  const opkit_host* host_;
  const char* name_;
  opkit_scope scope_{};
};

// The rest of an operator that returned before its outputs were there: Complete or Fail it, once,
// from any thread. Dropped without, the operator fails. Its tensors and memory last until then.
class OpCompletion {
 public:
  OpCompletion(const opkit_host* host, opkit_completion* completion)
      : host_(host), completion_(completion) {}
  OpCompletion(OpCompletion&& other) noexcept
      : host_(other.host_), completion_(std::exchange(other.completion_, nullptr)) {}
  OpCompletion& operator=(OpCompletion&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(completion_, other.completion_);
    return *this;
  }
  ~OpCompletion() {
    if (completion_)
      End(OPKIT_FAILED, "its completion handle was dropped without Complete() or Fail()");
  }

  void Complete() { End(OPKIT_OK, ""); }
  void Fail(const char* text) { End(OPKIT_FAILED, text); }
  void Fail(const std::string& text) { End(OPKIT_FAILED, text.c_str()); }
  explicit operator bool() const { return completion_ != nullptr; }

 private:
  // A second call does nothing.
  void End(opkit_status status, const char* text) {
    if (completion_) host_->complete(std::exchange(completion_, nullptr), status, text);
  }
  const opkit_host* host_;
  opkit_completion* completion_;
};

// Goes on with the work of an operator in a thread of the author's own, for the scope's life.
// `identity` comes from OpResource::invocation.
class OpAdoption {
 public:
  explicit OpAdoption(const Invocation& identity);
  OpAdoption(const OpAdoption&) = delete;
  OpAdoption& operator=(const OpAdoption&) = delete;
  ~OpAdoption() { detail::g_host->scope_end(&scope_); }

 private:
  opkit_scope scope_{};
};

// A handle, copied freely, valid during the call it was given to. Members may be called from any
// thread of the call, except invoke(), temporary() and random().
class OpResource {
 public:
  explicit OpResource(const opkit_call* call) : call_(call) {}

  // For the toolkit, and for members of opkit_abi.h that this class does not show.
  const opkit_call* call() const { return call_; }

  // `bytes` bytes of the device's memory, aligned to 64; every call gets other memory. Freed when
  // the operator ends, also when it fails; on an asynchronous device when the stream has come past
  // it. Null for 0 bytes. Errors: kInvalidArgument, kOutOfMemory.
  void* alloc(int64_t bytes) const;
  template <class T>
  T* alloc(int64_t count) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes))
      Throw(ErrorCode::kOutOfRange, "alloc of ", count, " elements");
    return static_cast<T*>(alloc(bytes));
  }
  // A tensor in such memory.
  OpTensor temporary(std::span<const int64_t> shape, DType dtype) const;
  OpTensor temporary(std::initializer_list<int64_t> shape, DType dtype) const {
    return temporary(std::span(shape.begin(), shape.size()), dtype);
  }

  // The memory declared by setScratch, undefined at the start of every run; null without.
  void* scratch() const { return call_->scratch; }
  int64_t scratch_bytes() const { return call_->scratch_bytes; }

  Device device() const {
    return {static_cast<DeviceType>(call_->device_type), call_->device_index};
  }
  // The CPUStream or the cudaStream_t that work goes to; null on the CPU.
  void* stream() const { return call_->stream; }
  template <class T>
  T* stream() const {
    return static_cast<T*>(call_->stream);
  }
  // Runs `work` at its place in the stream; on the CPU, now. Its captures are copied. Error
  // (kUnsupported) on CUDA, as in parallel_for and invoke: issue work on stream() there.
  template <class F>
  void launch(F work) const {
    if (!call_->asynchronous) return static_cast<void>(work());
    using Work = detail::LaunchedWork<F>;
    Check(host()->launch(call_, &Work::Run, &Work::Drop, new Work{std::move(work), call_->op}));
  }
  // f(i) for every i in [0, n) on the host's threads; at its place in the stream where there is
  // one.
  template <class F>
  void parallel_for(int64_t n, F f, int64_t grain = 0) const {
    static_assert(detail::LoopIndexBody<F>,
                  "parallel_for: the body must be callable as f(int64_t index)");
    if (!call_->asynchronous) return detail::RunHostLoop(host(), call_, n, grain, f);
    launch([n, f = std::move(f), grain, host = host()]() mutable {
      detail::RunHostLoop(host, static_cast<const opkit_call*>(nullptr), n, grain, f);
    });
  }

  // One sequence for each run, whose numbers SetSeed and the operator's name decide.
  RandomGenerator& random() const;
  // Independent sequences, for instance one for each row of a parallel loop.
  RandomGenerator random(uint64_t stream) const {
    return RandomGenerator(call_->random_seed, stream);
  }

  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) const {
    host()->log(call_, static_cast<int32_t>(level), StrCat(parts...).c_str());
  }
  [[nodiscard]] OpScope scope(const char* name) const { return OpScope(call_, name); }
  // The identity of this thread's work; OpAdoption goes on with it in another thread.
  Invocation invocation() const;

  // For operators with setAsync(): the function may return before its outputs are there, and the
  // holder of the handle completes it. At most once in a call. Error: kFailedPrecondition.
  OpCompletion defer() const;

  // Runs another operator on these tensors, writing into the outputs given. The host keeps it ready
  // from run to run. On a CPU stream it runs at its place in the stream. Errors: as Invoke;
  // kInvalidArgument when an output has another dtype or shape than the result.
  //
  //   res.invoke("Add", {inputs[0], inputs[1]}, {outputs[0]});
  void invoke(std::string_view op, std::span<const OpTensor> inputs,
              std::span<const OpTensor> outputs, const Arguments& args = {}) const;
  void invoke(std::string_view op, std::initializer_list<OpTensor> inputs,
              std::initializer_list<OpTensor> outputs, const Arguments& args = {}) const {
    invoke(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
           args);
  }

 private:
  const opkit_host* host() const { return call_->host; }
  void Check(opkit_status status) const {
    if (status != OPKIT_OK) [[unlikely]]
      detail::ThrowHostFailure(host(), status);
  }

  const opkit_call* call_;
};

}  // namespace opkit

#endif  // OPKIT_OP_ABI_OP_RESOURCE_HPP_

// ---- opkit/op/function/function_signature.hpp
// The signatures that function operators may have, read at compile time and adapted to one erased
// form each. The fast forms are passed through; the others copy maps and vectors at every call.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_

namespace opkit::inline OPKIT_ABI {

class OperatorDef;

// Where an operator with state will run.
struct OpContext {
  Device device;
  const OperatorDef* def = nullptr;  // the node: in the program that runs it
  const opkit_node* node = nullptr;  // the same, in a library
};

// Whether an operator runs the forward or the backward functions of its record.
enum class FunctionPass : uint8_t { kForward, kBackward };

// An operator that keeps something between its runs. Made by setCreateOpState's function once for
// each operator instance, and destroyed with it.
class StatefulOp : public detail::RefCounted {
 public:
  // Runs either pass without allocating; by default Forward and Backward, whose vectors are made at
  // every call.
  OPKIT_INLINE virtual OpStatus Run(FunctionPass pass, std::span<const OpTensor> inputs,
                                    std::span<OpTensor> outputs, OpResource& resource);
  OPKIT_INLINE virtual int Forward(std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
                                   const OpResource& resource);
  // Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs.
  OPKIT_INLINE virtual int Backward(std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
                                    const OpResource& resource);
};

// Shapes of inputs or outputs; an extent of -1 is unknown, and so is the rank of an empty one
// before its value is known.
using ShapeVectors = std::vector<std::vector<int64_t>>;

using ForwardFunction = UniqueFunction<OpStatus(const AttrMap&, std::span<const OpTensor>,
                                                std::span<OpTensor>, OpResource&)>;
using ParseAttrsFunction = UniqueFunction<OpStatus(const AttrMap&, int* num_in, int* num_out)>;
using InferTypeFunction =
    UniqueFunction<OpStatus(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out)>;
using InferShapeFunction =
    UniqueFunction<OpStatus(const AttrMap&, ShapeVectors& in, ShapeVectors& out)>;
using MutateInputsFunction = UniqueFunction<OpStatus(const AttrMap&, std::vector<int>& inputs)>;
using CreateStateFunction =
    UniqueFunction<OpStatus(const AttrMap&, const OpContext&, detail::IntrusivePtr<StatefulOp>&)>;
using ScratchFunction = UniqueFunction<int64_t(const AttrMap&, const ShapeVectors& in)>;

namespace detail {

template <class... Types>
struct TypeList {};

template <class R, class... P>
struct SignatureParts {
  using Return = R;
  using Parameters = TypeList<P...>;
};
struct UnreadableSignature {
  using Return = UnreadableSignature;
  using Parameters = TypeList<>;
};
template <class F>
struct MemberSignature : UnreadableSignature {};
template <class C, class R, class... P>
struct MemberSignature<R (C::*)(P...)> : SignatureParts<R, P...> {};
template <class C, class R, class... P>
struct MemberSignature<R (C::*)(P...) const> : SignatureParts<R, P...> {};
template <class C, class R, class... P>
struct MemberSignature<R (C::*)(P...) noexcept> : SignatureParts<R, P...> {};
template <class C, class R, class... P>
struct MemberSignature<R (C::*)(P...) const noexcept> : SignatureParts<R, P...> {};

// Of a function pointer, or of a function object whose operator() is neither overloaded nor
// generic.
template <class F>
struct FunctionSignature : UnreadableSignature {};
template <class R, class... P>
struct FunctionSignature<R (*)(P...)> : SignatureParts<R, P...> {};
template <class R, class... P>
struct FunctionSignature<R (*)(P...) noexcept> : SignatureParts<R, P...> {};
template <class F>
  requires requires { &F::operator(); }
struct FunctionSignature<F> : MemberSignature<decltype(&F::operator())> {};

template <class F>
using FunctionReturn = typename FunctionSignature<F>::Return;
template <class F>
using FunctionParameters = typename FunctionSignature<F>::Parameters;

template <class R>
inline constexpr bool kIsReturn =
    std::is_void_v<R> || std::is_same_v<R, int> || std::is_same_v<R, bool> ||
    std::is_same_v<R, ReturnValue> || std::is_same_v<R, OpStatus>;

OpStatus StatusOfAnswer(int answer);
template <class F, class... Args>
OpStatus CallForStatus(F& f, Args&&... args) {
  using R = FunctionReturn<F>;
  if constexpr (std::is_void_v<R>) {
    f(std::forward<Args>(args)...);
    return {};
  } else if constexpr (std::is_same_v<R, OpStatus>) {
    return f(std::forward<Args>(args)...);
  } else {
    return StatusOfAnswer(static_cast<int>(f(std::forward<Args>(args)...)));
  }
}

// P without reference or pointer, where it is a T passed by value, reference or pointer.
template <class P>
using Pointee = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<P>>>;
template <class P>
inline constexpr bool kIsPassed =
    !std::is_rvalue_reference_v<P> &&
    !(std::is_reference_v<P> && std::is_pointer_v<std::remove_reference_t<P>>);
// The caller sees values that the function writes to P.
template <class P>
inline constexpr bool kIsWritable =
    (std::is_lvalue_reference_v<P> ||
     std::is_pointer_v<P>)&&!std::is_const_v<std::remove_pointer_t<std::remove_reference_t<P>>>;

// `object`, passed as P.
template <class P, class T>
P PassAs(T& object) {
  if constexpr (std::is_pointer_v<P>) {
    return &object;
  } else if constexpr (std::is_reference_v<P>) {
    return object;
  } else {
    return std::move(object);
  }
}

// Attributes: const AttrMap&, or a map of strings by value or const reference.
template <class P>
constexpr bool IsAttrs() {
  using Map = std::remove_cvref_t<P>;
  constexpr bool kReadOnly =
      !std::is_reference_v<P> ||
      (std::is_lvalue_reference_v<P> && std::is_const_v<std::remove_reference_t<P>>);
  if constexpr (std::is_same_v<Map, AttrMap>) {
    return kReadOnly && std::is_reference_v<P>;
  } else {
    return kReadOnly && StringMap<Map>;
  }
}
template <class P>
const std::remove_cvref_t<P>& PassAttrs(const AttrMap& attrs) {
  using Map = std::remove_cvref_t<P>;
  if constexpr (std::is_same_v<Map, AttrMap>) {
    return attrs;
  } else {
    return attrs.As<Map>();
  }
}

// Tensors: a span, or a vector by value, reference or pointer.
template <class P, bool kInputs>
inline constexpr bool kIsTensors =
    std::is_same_v<std::remove_cvref_t<P>, std::span<const OpTensor>> ||
    (!kInputs && std::is_same_v<std::remove_cvref_t<P>, std::span<OpTensor>>) ||
    (kIsPassed<P> && std::is_same_v<Pointee<P>, std::vector<OpTensor>>);

template <class P, class Span>
class TensorsArg {
 public:
  explicit TensorsArg(Span tensors) : items_(tensors.begin(), tensors.end()) {}
  P Get() { return PassAs<P>(items_); }

 private:
  std::vector<OpTensor> items_;
};
template <class P, class Span>
  requires(!std::is_same_v<Pointee<P>, std::vector<OpTensor>>)
class TensorsArg<P, Span> {
 public:
  explicit TensorsArg(Span tensors) : tensors_(tensors) {}
  std::remove_cvref_t<P> Get() const { return tensors_; }

 private:
  Span tensors_;
};

// Types as DType, or as int with -1 for unknown.
template <class P>
inline constexpr bool kIsTypes = kIsPassed<P> && (std::is_same_v<Pointee<P>, std::vector<int>> ||
                                                  std::is_same_v<Pointee<P>, std::vector<DType>>);
template <class P>
class TypesArg {
 public:
  explicit TypesArg(const std::vector<DType>& types) {
    for (DType type : types) {
      const bool unknown = std::is_same_v<Item, int> && type == DType::kUndefined;
      items_.push_back(unknown ? static_cast<Item>(-1) : static_cast<Item>(type));
    }
  }
  P Get() { return PassAs<P>(items_); }
  void Store(std::vector<DType>& types, const char* what) const {
    if constexpr (kIsWritable<P>) {
      types.clear();
      for (size_t i = 0; i < items_.size(); ++i) {
        const int type = static_cast<int>(items_[i]);
        if (type < -1 || type >= kNumDTypes)
          Throw(ErrorCode::kInvalidArgument, "inferType says ", type, " for ", what, " ", i,
                ", which is no DType; -1 is unknown");
        types.push_back(type < 0 ? DType::kUndefined : static_cast<DType>(type));
      }
    }
  }

 private:
  using Item = typename Pointee<P>::value_type;
  std::vector<Item> items_;
};

// Shapes of int64_t or unsigned int. An unknown extent is -1 in both: 4294967295 as unsigned int.
template <class P>
inline constexpr bool kIsShapes =
    kIsPassed<P> && (std::is_same_v<Pointee<P>, ShapeVectors> ||
                     std::is_same_v<Pointee<P>, std::vector<std::vector<unsigned int>>>);
template <class P>
class ShapesArg {
  using Extent = typename Pointee<P>::value_type::value_type;
  static constexpr bool kNarrow = std::is_same_v<Extent, unsigned int>;
  static constexpr int64_t kUnknownNarrow = 0xffffffff;

 public:
  ShapesArg(const ShapeVectors& shapes, const char* what) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      auto& item = items_.emplace_back();
      for (int64_t extent : shapes[i]) {
        if (kNarrow && extent >= kUnknownNarrow)
          Throw(ErrorCode::kOutOfRange, "extent ", extent, " of ", what, " ", i,
                " does not fit in "
                "unsigned int; write the function with std::vector<std::vector<int64_t>>");
        item.push_back(static_cast<Extent>(extent));
      }
    }
  }
  P Get() { return PassAs<P>(items_); }
  void Store(ShapeVectors& shapes, const char* what) const {
    if constexpr (kIsWritable<P>) {
      shapes.clear();
      for (size_t i = 0; i < items_.size(); ++i) {
        auto& shape = shapes.emplace_back();
        for (Extent item : items_[i]) {
          const auto extent = static_cast<int64_t>(item);
          if (extent < -1)
            Throw(ErrorCode::kInvalidArgument, "inferShape says extent ", extent, " for ", what,
                  " ", i, "; -1 is unknown");
          shape.push_back(kNarrow && extent == kUnknownNarrow ? -1 : extent);
        }
      }
    }
  }

 private:
  Pointee<P> items_;
};

template <class P>
inline constexpr bool kIsResource =
    !std::is_rvalue_reference_v<P> && std::is_same_v<std::remove_cvref_t<P>, OpResource>;

// Whether F is one of the signatures for its place; then Make… adapts it.
template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsForward = false;
template <class F, class A, class I, class O, class R>
inline constexpr bool kIsForward<F, TypeList<A, I, O, R>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTensors<I, true> && kIsTensors<O, false> &&
    kIsResource<R>;
template <class F, class A, class I, class O, class R>
ForwardFunction MakeForward(F f, TypeList<A, I, O, R>) {
  return [f = std::move(f)](const AttrMap& attrs, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource& resource) mutable -> OpStatus {
    TensorsArg<I, std::span<const OpTensor>> in(inputs);
    TensorsArg<O, std::span<OpTensor>> out(outputs);
    return CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get(), resource);
  };
}

template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsParseAttrs = false;
template <class F, class A>
inline constexpr bool kIsParseAttrs<F, TypeList<A, int*, int*>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>();
template <class F, class A>
ParseAttrsFunction MakeParseAttrs(F f, TypeList<A, int*, int*>) {
  return [f = std::move(f)](const AttrMap& attrs, int* num_in, int* num_out) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), num_in, num_out);
  };
}

template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsInferType = false;
template <class F, class A, class I, class O>
inline constexpr bool kIsInferType<F, TypeList<A, I, O>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTypes<I> && kIsTypes<O> && kIsWritable<O>;
template <class F, class A, class I, class O>
InferTypeFunction MakeInferType(F f, TypeList<A, I, O>) {
  return [f = std::move(f)](const AttrMap& attrs, std::vector<DType>& inputs,
                            std::vector<DType>& outputs) mutable {
    TypesArg<I> in(inputs);
    TypesArg<O> out(outputs);
    OpStatus status = CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get());
    if (status.ok()) in.Store(inputs, "input"), out.Store(outputs, "output");
    return status;
  };
}

template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsInferShape = false;
template <class F, class A, class I, class O>
inline constexpr bool kIsInferShape<F, TypeList<A, I, O>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I> && kIsShapes<O> && kIsWritable<O>;
template <class F, class A, class I, class O>
InferShapeFunction MakeInferShape(F f, TypeList<A, I, O>) {
  return [f = std::move(f)](const AttrMap& attrs, ShapeVectors& inputs,
                            ShapeVectors& outputs) mutable {
    ShapesArg<I> in(inputs, "input");
    ShapesArg<O> out(outputs, "output");
    OpStatus status = CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get());
    if (status.ok()) in.Store(inputs, "input"), out.Store(outputs, "output");
    return status;
  };
}

template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsMutateInputs = false;
template <class F, class A, class I>
inline constexpr bool kIsMutateInputs<F, TypeList<A, I>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsPassed<I> && kIsWritable<I> &&
    std::is_same_v<Pointee<I>, std::vector<int>>;
template <class F, class A, class I>
MutateInputsFunction MakeMutateInputs(F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, std::vector<int>& inputs) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), PassAs<I>(inputs));
  };
}

template <class P>
inline constexpr bool kIsStateOwner = false;
// A std::unique_ptr<StatefulOp>*: <memory> is for those who write it.
template <class P>
  requires requires(P* owner) {
    requires std::is_same_v<typename P::element_type, StatefulOp>;
    requires std::is_same_v<decltype(owner->release()), StatefulOp*>;
  }
inline constexpr bool kIsStateOwner<P*> = true;
template <class P>
inline constexpr bool kIsStateOut = std::is_same_v<P, StatefulOp**> || kIsStateOwner<P>;

// The place where the function makes its state. The state is adopted at once, so that it is freed
// also when the function fails after making it.
template <class P>
class StateOut {
 public:
  explicit StateOut(IntrusivePtr<StatefulOp>& owner) : owner_(owner) {}
  ~StateOut() {
    if constexpr (std::is_pointer_v<Made>) {
      if (made_) owner_ = IntrusivePtr<StatefulOp>(made_);
    } else if (made_) {
      owner_ = IntrusivePtr<StatefulOp>(made_.release());
    }
  }
  P Get() { return &made_; }

 private:
  using Made = std::remove_pointer_t<P>;
  IntrusivePtr<StatefulOp>& owner_;
  Made made_{};
};
template <class P>
inline constexpr bool kIsOpContext =
    std::is_same_v<std::remove_cvref_t<P>, OpContext> &&
    (!std::is_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>);
template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsCreateState = false;
template <class F, class A, class S>
inline constexpr bool kIsCreateState<F, TypeList<A, S>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsStateOut<S>;
template <class F, class A, class C, class S>
inline constexpr bool kIsCreateState<F, TypeList<A, C, S>> =
    kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsOpContext<C> && kIsStateOut<S>;
template <class F, class A, class S>
CreateStateFunction MakeCreateState(F f, TypeList<A, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext&,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), made.Get());
  };
}
template <class F, class A, class C, class S>
CreateStateFunction MakeCreateState(F f, TypeList<A, C, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext& context,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), context, made.Get());
  };
}

template <class F, class Parameters = FunctionParameters<F>>
inline constexpr bool kIsScratch = false;
template <class F, class A, class I>
inline constexpr bool kIsScratch<F, TypeList<A, I>> =
    std::is_integral_v<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I>;
template <class F, class A, class I>
ScratchFunction MakeScratch(F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, const ShapeVectors& inputs) mutable {
    ShapesArg<I> in(inputs, "input");
    return static_cast<int64_t>(f(PassAttrs<A>(attrs), in.Get()));
  };
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_

// ---- opkit/op/function_op.hpp
// REGISTER_OP: operators made of plain functions, the spelling that MXNet's loadable operators
// have. The builder fills in a record, which a program registers
// (op/function/function_operator.hpp) and a library hands over (plugin/library_export.hpp).
#ifndef OPKIT_OP_FUNCTION_OP_HPP_
#define OPKIT_OP_FUNCTION_OP_HPP_

namespace opkit::inline OPKIT_ABI {

// The functions for one device type.
struct FunctionDevice {
  std::string name;                    // "cpu", "gpu", …
  DeviceType type = DeviceType::kCPU;  // of that name, where the program knows it
  ForwardFunction forward, backward;
  CreateStateFunction create_state;  // where set, its object is called instead of the two
  bool shares_state = true;          // backward runs the object that forward has used
};

// Filled in during registration and read-only afterwards; called from several threads.
struct FunctionOpRecord : detail::RefCounted {
  std::string name;
  const char* file = "";
  int line = 0;
  std::string doc;
  std::string library;  // that it came from; empty for the program itself
  std::vector<FunctionDevice> devices;
  ParseAttrsFunction parse_attrs;
  InferTypeFunction infer_type;
  InferShapeFunction infer_shape;
  MutateInputsFunction mutate_inputs;
  ScratchFunction scratch;
  std::vector<std::pair<int, int>> inplace;  // {input, output}
  bool is_subgraph_op = false;
  bool accepts_strides = false;
  bool accepts_add = false;
  bool is_async = false;
  bool has_effects = false;
  bool no_gradient = false;
  // Of an operator that is described by more than functions (a library's): detail::FunctionHooks.
  detail::IntrusivePtr<detail::RefCounted> hooks;
  detail::IntrusivePtr<detail::RefCounted> in_use;  // held by every operator made of it
  std::string problem;  // what is wrong with the registration; reported when the operator is used

  FunctionDevice* Find(DeviceType type) {
    for (FunctionDevice& device : devices)
      if (device.type == type) return &device;
    return nullptr;
  }
};

namespace detail {
using FunctionRecord = IntrusivePtr<FunctionOpRecord>;
}  // namespace detail

// Fills in a record; made by REGISTER_OP. Devices are "cpu" (also when none is given), "gpu",
// "cpu_stream", or the name of a device type of your own. A function may be a function, a function
// pointer or a lambda.
//
//   int forward(std::map<std::string, std::string> attrs, std::vector<OpTensor> inputs,
//               std::vector<OpTensor> outputs, OpResource res);
//   REGISTER_OP(my_gemm).setForward(forward, "cpu").setBackward(backward, "cpu")
//       .setParseAttrs(parseAttrs).setInferType(inferType).setInferShape(inferShape);
//
// Attributes arrive in a map of strings, by value or const reference; tensors in a vector, by
// value, reference or pointer; the answer is int (1 is success), bool, ReturnValue, Status or void.
// The form that allocates nothing is
//   Status forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
//
// Host takes the record, and is told what is added to it: FunctionOpHost in a program,
// LibraryOpHost in a library.
template <class Host>
class BasicFunctionOpBuilder {
 public:
  BasicFunctionOpBuilder(const char* name, const char* file, int line) noexcept
      : record_(new FunctionOpRecord), host_(record_) {
    Guarded([&] {
      record_->name = name;
      record_->file = file;
      record_->line = line;
      host_.Begin();
    });
  }

  // Computes the outputs. Their shapes are those that inferShape says; without it, those that the
  // output tensors have before the run.
  template <class F>
  BasicFunctionOpBuilder& setForward(F f, const char* device = "cpu") {
    static_assert(detail::kIsForward<F>,
                  "setForward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    if constexpr (detail::kIsForward<F>)
      OnDevice(device, "setForward", &FunctionDevice::forward, FunctionPass::kForward,
               detail::MakeForward(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Computes the gradients of the inputs from those of the outputs, the inputs and the outputs, in
  // this order: the operator <name>_backward, and the gradient of this one.
  template <class F>
  BasicFunctionOpBuilder& setBackward(F f, const char* device = "cpu") {
    static_assert(detail::kIsForward<F>,
                  "setBackward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    if constexpr (detail::kIsForward<F>)
      OnDevice(device, "setBackward", &FunctionDevice::backward, FunctionPass::kBackward,
               detail::MakeForward(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Makes the object that runs the operator. It is also asked for the gradient; with
  // setNoGradient() it is not.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kIsCreateState<F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device; std::unique_ptr<StatefulOp>* also does for the state");
    if constexpr (detail::kIsCreateState<F>) {
      OnDevice(device, "setCreateOpState", &FunctionDevice::create_state, FunctionPass::kForward,
               detail::MakeCreateState(std::move(f), detail::FunctionParameters<F>{}));
      Guarded([&] {
        if (auto* added = FindDevice(Host::DeviceName(device, "setCreateOpState")))
          if (!record_->no_gradient) host_.Add(*added, FunctionPass::kBackward);
      });
    }
    return *this;
  }
  // The operator has no gradient, as one whose StatefulOp has no Backward.
  BasicFunctionOpBuilder& setNoGradient() {
    Guarded([&] {
      for (const FunctionDevice& device : record_->devices)
        if (device.backward)
          Throw(ErrorCode::kInvalidArgument, "setBackward(f) and setNoGradient() contradict");
      record_->no_gradient = true;
      host_.NoGradient();
    });
    return *this;
  }
  // Says how many inputs and outputs a node with these attributes has, and refuses wrong
  // attributes. Without it any number goes.
  template <class F>
  BasicFunctionOpBuilder& setParseAttrs(F f) {
    static_assert(detail::kIsParseAttrs<F>,
                  "setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* "
                  "num_in, int* num_out)");
    if constexpr (detail::kIsParseAttrs<F>)
      Once(record_->parse_attrs, "setParseAttrs",
           detail::MakeParseAttrs(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // DTypes of outputs from those of inputs, or the reverse; numbers of DType, -1 for unknown.
  // Without it every output has the dtype of input 0.
  template <class F>
  BasicFunctionOpBuilder& setInferType(F f) {
    static_assert(detail::kIsInferType<F>,
                  "setInferType(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& intypes, std::vector<int>& outtypes)");
    if constexpr (detail::kIsInferType<F>)
      Once(record_->infer_type, "setInferType",
           detail::MakeInferType(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Shapes of outputs from those of inputs, or the reverse. Unknown are an extent of -1 (the
  // largest number as unsigned int) and, where the value has not been seen yet, an empty shape.
  // While something is unknown a failure means that nothing can be said yet.
  template <class F>
  BasicFunctionOpBuilder& setInferShape(F f) {
    static_assert(detail::kIsInferShape<F>,
                  "setInferShape(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<std::vector<unsigned int>>& inshapes, "
                  "std::vector<std::vector<unsigned int>>& outshapes), or with int64_t");
    if constexpr (detail::kIsInferShape<F>)
      Once(record_->infer_shape, "setInferShape",
           detail::MakeInferShape(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Inputs that are written to.
  template <class F>
  BasicFunctionOpBuilder& setMutateInputs(F f) {
    static_assert(detail::kIsMutateInputs<F>,
                  "setMutateInputs(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& input_indices), or setMutateInputs({0, 2})");
    if constexpr (detail::kIsMutateInputs<F>)
      Once(record_->mutate_inputs, "setMutateInputs",
           detail::MakeMutateInputs(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  BasicFunctionOpBuilder& setMutateInputs(std::initializer_list<int> inputs) {
    Once(record_->mutate_inputs, "setMutateInputs",
         MutateInputsFunction(
             [list = std::vector<int>(inputs)](const AttrMap&, std::vector<int>& out) -> OpStatus {
               out = list;
               return {};
             }));
    return *this;
  }
  // Memory for the whole of a run of either pass, known from the shapes of the forward inputs
  // before it, so that a plan can hold it.
  BasicFunctionOpBuilder& setScratch(int64_t bytes) {
    Once(record_->scratch, "setScratch",
         ScratchFunction([bytes](const AttrMap&, const ShapeVectors&) { return bytes; }));
    return *this;
  }
  template <class F>
    requires(!std::is_arithmetic_v<F>)
  BasicFunctionOpBuilder& setScratch(F f) {
    static_assert(detail::kIsScratch<F>,
                  "setScratch(f): write int64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes), or setScratch(bytes)");
    if constexpr (detail::kIsScratch<F>)
      Once(record_->scratch, "setScratch",
           detail::MakeScratch(std::move(f), detail::FunctionParameters<F>{}));
    return *this;
  }
  // Pairs {input, output} that may share memory.
  BasicFunctionOpBuilder& setInplace(std::initializer_list<std::pair<int, int>> pairs) {
    Guarded([&] { record_->inplace.insert(record_->inplace.end(), pairs.begin(), pairs.end()); });
    return *this;
  }
  BasicFunctionOpBuilder& setIsSubgraphOp() { return record_->is_subgraph_op = true, *this; }
  // The functions respect strides(). Otherwise strided inputs arrive as dense copies.
  BasicFunctionOpBuilder& setAcceptStrides() { return record_->accepts_strides = true, *this; }
  // The functions respect OpReq::kAdd. Otherwise the toolkit adds their results up.
  BasicFunctionOpBuilder& setAcceptAdd() { return record_->accepts_add = true, *this; }
  // forward may end after it has returned: it takes OpResource::defer(), whose holder completes it.
  // On the CPU; on streams the stream does it.
  BasicFunctionOpBuilder& setAsync() { return record_->is_async = true, *this; }
  // Two runs on the same inputs may differ (random numbers), or have an effect beside the outputs:
  // a graph never merges, folds or drops such nodes.
  BasicFunctionOpBuilder& setHasEffects() {
    Guarded([&] { record_->has_effects = true, host_.HasEffects(); });
    return *this;
  }
  BasicFunctionOpBuilder& setDoc(const char* doc) {
    Guarded([&] { record_->doc = doc, host_.Doc(); });
    return *this;
  }

 private:
  // Static initialisers must not throw: an error is kept, and reported when the operator is used.
  template <class F>
  void Guarded(F call) noexcept {
    try {
      call();
    } catch (const std::exception& error) {
      AddProblem(error.what());
    } catch (...) {
      AddProblem("it threw something that is not a std::exception");
    }
  }
  void AddProblem(const std::string& text) noexcept {
    try {
      std::string problem = StrCat("REGISTER_OP(", record_->name, ") at ", record_->file, ":",
                                   record_->line, ": ", text);
      host_.Problem(problem);
      if (record_->problem.empty()) record_->problem = std::move(problem);
    } catch (...) {  // no memory to report it in
    }
  }
  template <class Function>
  void Once(Function& slot, const char* setter, Function function) {
    if (slot) return AddProblem(StrCat(setter, " is called twice"));
    slot = std::move(function);
  }
  FunctionDevice* FindDevice(std::string_view name) {
    for (FunctionDevice& device : record_->devices)
      if (device.name == name) return &device;
    return nullptr;
  }
  template <class Function>
  void OnDevice(const char* name, const char* setter, Function FunctionDevice::*slot,
                FunctionPass pass, Function function) {
    Guarded([&] {
      FunctionDevice added;
      added.name = Host::DeviceName(name, setter);
      FunctionDevice* functions = FindDevice(added.name);
      if (!functions) functions = &record_->devices.emplace_back(std::move(added));
      if (pass == FunctionPass::kBackward && record_->no_gradient)
        Throw(ErrorCode::kInvalidArgument, "setBackward(f) and setNoGradient() contradict");
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name, "\") is called twice");
      functions->*slot = std::move(function);
      host_.Add(*functions, pass);
    });
  }

  detail::FunctionRecord record_;
  Host host_;
};

}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_OP_HPP_

// ---- opkit/plugin/library_export.hpp
// The library's side of opkit_abi.h: a FunctionOpRecord as an opkit_op, whose functions build views
// of what the host passes, call the author's, and let no exception out.
#ifndef OPKIT_PLUGIN_LIBRARY_EXPORT_HPP_
#define OPKIT_PLUGIN_LIBRARY_EXPORT_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Runs `body`, which answers with an OpStatus; what it throws is reported to the host.
template <class Body>
OPKIT_IMAGE_LOCAL opkit_status GuardedCall(Body body) noexcept {
  try {
    const OpStatus status = body();
    if (status.ok()) [[likely]]
      return OPKIT_OK;
    const std::string text = status.message();
    g_host->add_error(text.data(), text.size());
    return OPKIT_FAILED;
  } catch (...) {
    return ReportFailure();
  }
}

// One operator of the host's: the attributes read once, and the author's state.
struct FunctionInstance {
  FunctionInstance(FunctionDevice& device, AttrMap read, IntrusivePtr<StatefulOp> made)
      : functions{&device.forward, &device.backward},
        attrs(std::move(read)),
        state(std::move(made)) {}
  ForwardFunction* functions[2];  // by FunctionPass
  AttrMap attrs;
  IntrusivePtr<StatefulOp> state;
};

// Everything of the opkit_op lies in one place and stays there. A template, so that it is compiled
// where there is a library.
template <class Record>
class OPKIT_IMAGE_LOCAL ExportedOp : public RefCounted {
 public:
  explicit ExportedOp(IntrusivePtr<Record> record) : record_(std::move(record)) {
    Record& from = *record_;
    op_.size = sizeof op_;
    op_.name = from.name.c_str();
    op_.doc = from.doc.c_str();
    op_.file = from.file;
    op_.line = from.line;
    op_.flags = (from.is_subgraph_op ? OPKIT_OP_SUBGRAPH : 0) |
                (from.accepts_strides ? OPKIT_OP_ACCEPTS_STRIDES : 0) |
                (from.accepts_add ? OPKIT_OP_ACCEPTS_ADD : 0) |
                (from.is_async ? OPKIT_OP_ASYNC : 0) | (from.has_effects ? OPKIT_OP_EFFECTS : 0) |
                (from.no_gradient ? OPKIT_OP_NO_GRADIENT : 0);
    kernels_.reserve(from.devices.size());
    for (FunctionDevice& device : from.devices) AddKernel(device);
    for (const opkit_kernel& kernel : kernels_) pointers_.push_back(&kernel);
    op_.num_kernels = pointers_.size();
    op_.kernels = pointers_.data();
    for (const auto& [input, output] : from.inplace) {
      inplace_.push_back(input);
      inplace_.push_back(output);
    }
    op_.num_inplace = from.inplace.size();
    op_.inplace = inplace_.data();
    if (from.parse_attrs) op_.parse_attrs = &ParseAttrs;
    if (from.infer_type) op_.infer_type = &InferType;
    if (from.infer_shape) op_.infer_shape = &InferShape;
    if (from.mutate_inputs) op_.mutated_inputs = &MutatedInputs;
    if (from.scratch) op_.scratch_bytes = &ScratchBytes;
    op_.author = record_.get();
  }
  const opkit_op& op() const { return op_; }

 private:
  void AddKernel(FunctionDevice& device) {
    opkit_kernel& kernel = kernels_.emplace_back();
    kernel = {};
    kernel.size = sizeof kernel;
    kernel.device = device.name.c_str();
    kernel.create = &Create;
    kernel.destroy = &Destroy;
    if (device.forward || device.create_state) kernel.forward = &Run<FunctionPass::kForward>;
    if (device.backward || (device.create_state && !record_->no_gradient))
      kernel.backward = &Run<FunctionPass::kBackward>;
    kernel.flags = device.create_state ? OPKIT_KERNEL_STATEFUL : 0;
    kernel.author = &device;
  }

  static Record& RecordOf(const opkit_op* op) {
    return *static_cast<Record*>(const_cast<void*>(op->author));
  }

  static opkit_status Create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
    return GuardedCall([&] {
      auto& device = *static_cast<FunctionDevice*>(const_cast<void*>(kernel->author));
      AttrMap attrs(*node);
      IntrusivePtr<StatefulOp> state;
      if (device.create_state) {
        const OpContext context{
            {static_cast<DeviceType>(node->device_type), node->device_index}, nullptr, node};
        OpStatus status = device.create_state(attrs, context, state);
        if (!status.ok()) return status;
        if (!state) return OpStatus::Failure("createOpState succeeded but made no StatefulOp");
      }
      *instance = new FunctionInstance(device, std::move(attrs), std::move(state));
      return OpStatus();
    });
  }
  static void Destroy(void* instance) {
    try {
      delete static_cast<FunctionInstance*>(instance);
    } catch (...) {
      ReportFailure();
    }
  }
  template <FunctionPass kPass>
  static opkit_status Run(void* context, const opkit_call* call) {
    auto& instance = *static_cast<FunctionInstance*>(context);
    return GuardedCall([&] {
      if (!IsOurs(call->inputs, call->num_inputs) || !IsOurs(call->outputs, call->num_outputs))
        return RunOnCopies<kPass>(instance, call);
      return RunOn<kPass>(instance, call, ViewsOf(call->inputs), ViewsOf(call->outputs));
    });
  }
  // Host and library were compiled with the same opkit_tensor: the functions see the host's array.
  static bool IsOurs(const opkit_tensor* tensors, uint64_t count) {
    return count == 0 || tensors->size == sizeof(opkit_tensor);
  }
  // The functions may only read the views: what they write goes to the memory behind.
  static OpTensor* ViewsOf(const opkit_tensor* tensors) {
    return reinterpret_cast<OpTensor*>(const_cast<opkit_tensor*>(tensors));
  }
  template <FunctionPass kPass>
  static OpStatus RunOn(FunctionInstance& instance, const opkit_call* call, const OpTensor* inputs,
                        OpTensor* outputs) {
    OpResource resource(call);
    const std::span<const OpTensor> in(inputs, call->num_inputs);
    const std::span<OpTensor> out(outputs, call->num_outputs);
    if (instance.state) return instance.state->Run(kPass, in, out, resource);
    return (*instance.functions[static_cast<int>(kPass)])(instance.attrs, in, out, resource);
  }
  template <FunctionPass kPass>
  OPKIT_COLD static OpStatus RunOnCopies(FunctionInstance& instance, const opkit_call* call) {
    const auto copy = [](const opkit_tensor* tensors, uint64_t count) {
      std::vector<OpTensor> views;
      for (uint64_t i = 0; i < count; ++i) views.emplace_back(*opkit_tensor_at(tensors, i));
      return views;
    };
    const std::vector<OpTensor> inputs = copy(call->inputs, call->num_inputs);
    std::vector<OpTensor> outputs = copy(call->outputs, call->num_outputs);
    return RunOn<kPass>(instance, call, inputs.data(), outputs.data());
  }

  static opkit_status ParseAttrs(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                                 int32_t* num_outputs) {
    return GuardedCall([&] {
      int inputs = -1, outputs = -1;
      OpStatus status = RecordOf(op).parse_attrs(AttrMap(*node), &inputs, &outputs);
      *num_inputs = inputs;
      *num_outputs = outputs;
      return status;
    });
  }

  static std::vector<DType> Types(opkit_value* values, uint64_t count) {
    std::vector<DType> types;
    for (uint64_t i = 0; i < count; ++i) {
      const int32_t dtype = opkit_value_at(values, i)->dtype;
      types.push_back(dtype > 0 && dtype < kNumDTypes ? static_cast<DType>(dtype)
                                                      : DType::kUndefined);
    }
    return types;
  }
  static void StoreTypes(const std::vector<DType>& types, opkit_value* values, uint64_t count,
                         const char* what) {
    CheckCount(types.size(), count, "inferType", what);
    for (uint64_t i = 0; i < count; ++i)
      opkit_value_at(values, i)->dtype =
          types[i] == DType::kUndefined ? -1 : static_cast<int32_t>(types[i]);
  }
  static void CheckCount(size_t found, uint64_t expected, const char* function, const char* what) {
    if (found != expected)
      Throw(ErrorCode::kInvalidArgument, function, " answered for ", found, " ", what,
            ", but the node has ", expected);
  }
  static opkit_status InferType(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
    return GuardedCall([&] {
      std::vector<DType> in = Types(inputs, node->num_inputs);
      std::vector<DType> out = Types(outputs, node->num_outputs);
      OpStatus status = RecordOf(op).infer_type(AttrMap(*node), in, out);
      if (status.ok()) {
        StoreTypes(in, inputs, node->num_inputs, "inputs");
        StoreTypes(out, outputs, node->num_outputs, "outputs");
      }
      return status;
    });
  }

  static ShapeVectors Shapes(const opkit_value* values, uint64_t count) {
    ShapeVectors shapes(count);
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
      for (int32_t axis = 0; axis < value.rank; ++axis)
        shapes[i].push_back(value.dims[axis] < 0 ? -1 : value.dims[axis]);
    }
    return shapes;
  }
  // An empty shape says nothing, or is a scalar's where `empty_is_scalar`.
  static void StoreShapes(const ShapeVectors& shapes, opkit_value* values, uint64_t count,
                          const char* what, bool empty_is_scalar) {
    CheckCount(shapes.size(), count, "inferShape", what);
    for (uint64_t i = 0; i < count; ++i) {
      opkit_value& value = *opkit_value_at(values, i);
      const std::vector<int64_t>& shape = shapes[i];
      if (shape.size() > OPKIT_MAX_RANK)
        Throw(ErrorCode::kOutOfRange, "inferShape says ", shape.size(), " axes for ", what, " ", i,
              "; ", OPKIT_MAX_RANK, " are the most");
      if (shape.empty() && !empty_is_scalar) continue;
      const bool same_rank = value.rank == static_cast<int32_t>(shape.size());
      value.rank = static_cast<int32_t>(shape.size());
      for (size_t axis = 0; axis < shape.size(); ++axis)
        if (shape[axis] >= 0 || !same_rank) value.dims[axis] = shape[axis];
    }
  }
  static opkit_status InferShape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                 opkit_value* outputs) {
    return GuardedCall([&] {
      ShapeVectors in = Shapes(inputs, node->num_inputs);
      ShapeVectors out = Shapes(outputs, node->num_outputs);
      bool ranks_known = true;
      for (uint64_t i = 0; i < node->num_inputs; ++i) {
        const opkit_value& input = *opkit_value_at(inputs, i);
        ranks_known &= !input.present || input.rank >= 0;
      }
      OpStatus status = RecordOf(op).infer_shape(AttrMap(*node), in, out);
      if (status.ok()) {
        StoreShapes(in, inputs, node->num_inputs, "inputs", false);
        StoreShapes(out, outputs, node->num_outputs, "outputs", ranks_known);
      }
      return status;
    });
  }
  static opkit_status MutatedInputs(const opkit_op* op, const opkit_node* node, uint8_t* mutated) {
    return GuardedCall([&] {
      std::vector<int> list;
      OpStatus status = RecordOf(op).mutate_inputs(AttrMap(*node), list);
      for (int input : list) {
        if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
          return OpStatus::Failure("mutateInputs names input ", input, ", but the node has ",
                                   node->num_inputs);
        mutated[input] = 1;
      }
      return status;
    });
  }
  static opkit_status ScratchBytes(const opkit_op* op, const opkit_node* node,
                                   const opkit_value* inputs, int64_t* bytes) {
    return GuardedCall([&] {
      *bytes = RecordOf(op).scratch(AttrMap(*node), Shapes(inputs, node->num_inputs));
      return OpStatus();
    });
  }

  IntrusivePtr<Record> record_;
  opkit_op op_{};
  std::vector<opkit_kernel> kernels_;
  std::vector<const opkit_kernel*> pointers_;
  std::vector<int32_t> inplace_;
};

using OpRecord = IntrusivePtr<FunctionOpRecord>;

// What the library hands over. One in each shared object, also where several are loaded.
struct LibraryContents {
  std::vector<OpRecord> records;
  OpStatus (*initialize)(int, int) = nullptr;
  void (*finalize)() = nullptr;
  // More operators, described as the first call asks for them: those of op/'s registries.
  void (*add_ops)(std::vector<const opkit_op*>& ops, RefCountedList& owners) = nullptr;

  RefCountedList owners;
  std::vector<const opkit_op*> ops;
  opkit_library library{};
};
OPKIT_IMAGE_LOCAL inline LibraryContents& ThisLibrary() {
  static LibraryContents contents;
  return contents;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_EXPORT_HPP_

// ---- opkit/plugin/author.hpp
// All that the author of an operator library includes. Operators registered in this unit are the
// library's; a host gets them with Library::Load (plugin/library.hpp).
//
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -I<opkit>/include my_ops.cc -o libmy_ops.so
//
// -fno-gnu-unique lets the library be unloaded: with g++ even std::make_shared pins it otherwise.
//
// REGISTER_OP(name)… (op/function_op.hpp) needs nothing more. For operators that are classes or
// typed functions include <opkit/opkit.hpp> as well.
#ifndef OPKIT_PLUGIN_AUTHOR_HPP_
#define OPKIT_PLUGIN_AUTHOR_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Takes a record into the library.
class OPKIT_IMAGE_LOCAL LibraryOpHost {
 public:
  explicit LibraryOpHost(OpRecord record) : record_(std::move(record)) {}

  void Begin() { ThisLibrary().records.push_back(record_); }
  static std::string DeviceName(const char* name, const char*) { return name; }
  void Add(FunctionDevice&, FunctionPass) {}
  void Doc() {}
  void HasEffects() {}
  void NoGradient() {}
  void Problem(const std::string&) {}

 private:
  OpRecord record_;
};

OPKIT_IMAGE_LOCAL inline opkit_status InitializeLibrary(uint32_t host_major, uint32_t host_minor) {
  return GuardedCall([&] {
    return ThisLibrary().initialize(static_cast<int>(host_major), static_cast<int>(host_minor));
  });
}
OPKIT_IMAGE_LOCAL inline void FinalizeLibrary() {
  try {
    ThisLibrary().finalize();
  } catch (...) {
    ReportFailure();
  }
}

// What opkit_library_entry does.
OPKIT_IMAGE_LOCAL inline const opkit_library* DescribeLibrary(const opkit_host* host) noexcept {
  LibraryContents& contents = ThisLibrary();
  g_host = host;
  g_exceptions = nullptr;
  const opkit_status status = GuardedCall([&] {
    contents.ops.clear();
    contents.owners.clear();
    NameTable<OpRecord> known;
    for (const OpRecord& record : contents.records) {
      OpRecord& first = known.FindOrAdd(record->name);
      // A header's operator, registered by two units, is one.
      if (first && first->line == record->line && std::string_view(first->file) == record->file)
        continue;
      first = record;
      if (!record->problem.empty()) return OpStatus::Failure(record->problem);
      auto op = MakeIntrusive<ExportedOp<FunctionOpRecord>>(record);
      contents.ops.push_back(&op->op());
      contents.owners.push_back(op);
    }
    if (contents.add_ops) contents.add_ops(contents.ops, contents.owners);
    return OpStatus();
  });
  if (status != OPKIT_OK) return nullptr;
  opkit_library& library = contents.library;
  library = {};
  library.size = sizeof library;
  library.abi_major = OPKIT_ABI_MAJOR;
  library.abi_minor = OPKIT_ABI_MINOR;
  library.version = OPKIT_VERSION_STRING;
  if (contents.initialize) library.initialize = &InitializeLibrary;
  if (contents.finalize) library.finalize = &FinalizeLibrary;
  library.num_ops = contents.ops.size();
  library.ops = contents.ops.data();
  return &library;
}

template <auto f>
OpStatus CallInitialize(int host_major, int host_minor) {
  auto call = f;
  static_assert(
      std::is_invocable_v<decltype(f), int, int> && kIsReturn<FunctionReturn<decltype(f)>>,
      "OPKIT_LIBRARY_INITIALIZE(f): write int f(int host_major, int host_minor); the "
      "answer is int (1 is success), bool, ReturnValue, Status or void");
  return CallForStatus(call, host_major, host_minor);
}

}  // namespace detail

using LibraryOpBuilder = BasicFunctionOpBuilder<detail::LibraryOpHost>;

}  // namespace opkit

// See op/op_registry.hpp.
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;
char opkit_image_is_library = 1;

extern "C" __attribute__((weak, used, visibility("default"))) const opkit_library*
opkit_library_entry(const opkit_host* host) {
  return ::opkit::detail::DescribeLibrary(host);
}

// REGISTER_OP(my_gemm).setForward(…)…; at namespace scope.
#undef OPKIT_REGISTER_OP
#define OPKIT_REGISTER_OP(name)                                                              \
  [[maybe_unused]] static const ::opkit::LibraryOpBuilder OPKIT_UNIQUE(opkit_function_op_) = \
      ::opkit::LibraryOpBuilder(#name, __FILE__, __LINE__)

// Called when the library is loaded, before its operators are used, with the version of the host's
// ABI: int f(int host_major, int host_minor). A failure refuses the loading.
#define OPKIT_LIBRARY_INITIALIZE(...)                                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_initialize_) = \
      (::opkit::detail::ThisLibrary().initialize =                     \
           &::opkit::detail::CallInitialize<(__VA_ARGS__)>,            \
       true)
// Called before the library is unloaded: void f().
#define OPKIT_LIBRARY_FINALIZE(...)                                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_finalize_) = \
      (::opkit::detail::ThisLibrary().finalize = (__VA_ARGS__), true)

#ifdef OPKIT_OPKIT_HPP_
// ---- opkit/plugin/export_operators.hpp
// The operators that a library registers as classes (REGISTER_CPU_OPERATOR) or typed functions
// (OPKIT_OP), handed over beside those of REGISTER_OP. They are in the library's own registries;
// each becomes an opkit_op, which runs the operator in a workspace of its own over the host's
// memory. Included where a unit includes both opkit.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_OPERATORS_HPP_
#define OPKIT_PLUGIN_EXPORT_OPERATORS_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What the library's operators give to a pool, other than loops, runs on one thread: a second pool
// beside the host's would only take its CPUs. Ended before the library is unloaded.
struct ExportThreads {
  Mutex mutex;
  std::atomic<ThreadPool*> pool{nullptr};
  void (*finalize)() = nullptr;  // the author's
  bool ended = false;
};
OPKIT_IMAGE_LOCAL inline constinit ExportThreads g_export_threads;
OPKIT_IMAGE_LOCAL inline ThreadPool& LibraryPool() {
  ExportThreads& threads = g_export_threads;
  if (ThreadPool* pool = threads.pool.load(std::memory_order_acquire)) [[likely]]
    return *pool;
  MutexLock lock(threads.mutex);
  if (!threads.pool) threads.pool = new ThreadPool(1, "opkit-library");
  return *threads.pool;
}
OPKIT_IMAGE_LOCAL inline void EndLibraryPool() {
  ExportThreads& threads = g_export_threads;
  if (threads.finalize) threads.finalize();
  delete threads.pool.exchange(nullptr);
  threads.ended = true;
}
// This image's loops, on the host's threads.
struct OPKIT_IMAGE_LOCAL HostLoops : LoopRunner {
  HostLoops() : LoopRunner{&RunOnHost} {}

 private:
  // The pool that this thread had before: also the host's, where the two share the variable.
  struct OuterPool {
    explicit OuterPool(ThreadPool* outer) : own(std::exchange(t_pool.pool, outer)) {}
    OuterPool(const OuterPool&) = delete;
    OuterPool& operator=(const OuterPool&) = delete;
    ~OuterPool() { t_pool.pool = own; }
    ThreadPool* own;
  };
  static void RunOnHost(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body) {
    const OuterPool pool(static_cast<const HostLoops&>(self).pool_);
    RunHostRanges(g_host, nullptr, n, grain, [&](int64_t begin, int64_t end) {
      const LoopRunnerScope nested(&self);
      body(begin, end);
    });
  }

  ThreadPool* const pool_ = t_pool.pool;
};
// The registries last as long as the image. Where that is unmapped, and not at the program's end,
// they are freed: nothing of the library is in use then.
struct OPKIT_IMAGE_LOCAL ExportedRegistries {
  ~ExportedRegistries() {
    if (!g_export_threads.ended) return;
    delete &GradientRegistry::Global();
    delete &OpRegistry::Global();
  }
};
OPKIT_IMAGE_LOCAL inline ExportedRegistries g_exported_registries;

// One operator of the host's: the library's, and the blobs that it is bound to.
class OPKIT_IMAGE_LOCAL ExportedInstance : public RefCounted {
 public:
  ExportedInstance(const OpSchema& schema, const opkit_node& node) {
    OperatorDef def = DefinitionOfAbi(node);
    // In a host's stream it takes its turn there, and then runs as on the CPU.
    if (def.device().type == DeviceType::kCPUStream) def.Device(DeviceType::kCPU);
    inputs_.resize(def.inputs().size());
    outputs_.resize(def.outputs().size());
    for (size_t o = 0; o < outputs_.size(); ++o) NameOutput(schema, def, o);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& name = def.inputs()[i];
      if (name.empty()) continue;
      inputs_[i].blob = workspace_.CreateBlob(name);
      workspace_.CreateTensor(name);
    }
    const PoolScope threads(LibraryPool());
    op_ = CreateOperator(def, &workspace_);
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (!def.outputs()[o].empty()) outputs_[o].blob = workspace_.FindBlob(def.outputs()[o]);
  }

  opkit_status Forward(const opkit_call* call) {
    if (call->asynchronous) return Launch(call);
    for (size_t i = 0; i < inputs_.size(); ++i) Bind(inputs_[i], *opkit_input(call, i));
    for (size_t o = 0; o < outputs_.size(); ++o) BindOutput(call, o);
    Run(call->scratch, call->scratch_bytes);
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].blob) Deliver(o, *opkit_output(call, o));
    return OPKIT_OK;
  }

 private:
  struct Value {
    Blob* blob = nullptr;   // null where the node leaves it out
    int shared_input = -1;  // of an output that must be in its place
  };

  // Blobs of their own for outputs, but for those that must be an input's.
  void NameOutput(const OpSchema& schema, OperatorDef& def, size_t o) {
    std::string& name = def.mutable_outputs()[o];
    if (name.empty()) return;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& input = def.inputs()[i];
      if (input.empty() || !schema.MustInplace(static_cast<int>(i), static_cast<int>(o))) continue;
      outputs_[o].shared_input = static_cast<int>(i);
      name = input;
      return;
    }
    const auto taken = [&] {
      for (const std::string& input : def.inputs())
        if (input == name) return true;
      return false;
    };
    while (taken()) name += "_out";
  }

  // Whether `tensor` is the view already, so that nothing has to be made.
  static bool IsView(const Tensor& tensor, const opkit_tensor& view) {
    if (tensor.raw_data() != view.data || tensor.rank() != view.rank || !tensor.is_dense() ||
        static_cast<int32_t>(tensor.dtype()) != view.dtype || !tensor.storage())
      return false;
    int64_t step = 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      if (tensor.shape()[axis] != view.shape[axis]) return false;
      if (view.shape[axis] != 1 && view.strides[axis] != step) return false;
      step *= view.shape[axis] > 0 ? view.shape[axis] : 1;
    }
    return true;
  }
  static void Bind(const Value& value, const opkit_tensor& view) {
    if (!value.blob) return;
    Tensor* tensor = value.blob->GetMutable<Tensor>();
    if (IsView(*tensor, view)) [[likely]]
      return;
    *tensor = view.dtype == OPKIT_UNDEFINED ? Tensor() : TensorOfView(view);
  }
  void BindOutput(const opkit_call* call, size_t o) {
    const Value& output = outputs_[o];
    const opkit_tensor& view = *opkit_output(call, o);
    if (!output.blob) return;
    if (output.shared_input >= 0) {
      const opkit_tensor& in = *opkit_input(call, static_cast<uint64_t>(output.shared_input));
      if (view.dtype == OPKIT_UNDEFINED) return;
      if (view.data != in.data) {
        Tensor copy = TensorOfView(view);
        const Tensor source = TensorOfView(in);
        CheckResult(o, source, view, "must be in place of an input that");
        if (view.data != nullptr) CopyInto(source, view);
      }
    }
    Bind(output, view);
  }
  void Run(void* scratch, int64_t scratch_bytes) {
    const HostLoops loops;
    const PoolScope threads(LibraryPool());
    const LoopRunnerScope on_host(&loops);
    op_->SetScratch(scratch, scratch ? scratch_bytes : 0);
    op_->Run();
  }

  // The result lies in the host's memory, or is copied there.
  void Deliver(size_t o, const opkit_tensor& view) {
    if (view.dtype == OPKIT_UNDEFINED) return;
    Blob* blob = outputs_[o].blob;
    if (!blob->IsType<Tensor>())
      Throw(ErrorCode::kTypeMismatch, "output ", o, " '", blob->name(), "' of operator ",
            op_->type(), " is not a tensor, which is all that a library can hand over");
    const Tensor& result = blob->Get<Tensor>();
    if (IsView(result, view)) [[likely]]
      return;
    if (!result.initialized())
      Throw(ErrorCode::kOperatorFailed, "operator ", op_->type(), " returned without making '",
            blob->name(), "'; get it with Output(i, shape, dtype) and write to it");
    CheckResult(o, result, view, "is");
    CopyInto(result, view);
  }
  OPKIT_COLD void CheckResult(size_t o, const Tensor& result, const opkit_tensor& view,
                              const char* how) const {
    const Shape wanted(Dims(view.shape, static_cast<size_t>(view.rank)));
    if (static_cast<int32_t>(result.dtype()) == view.dtype && result.shape() == wanted) return;
    Throw(ErrorCode::kInvalidArgument, "output ", o, " '", op_->def().outputs()[o],
          "' of operator ", op_->type(), " ", how, " ", result.dtype(), result.shape(),
          ", but the program has ", static_cast<DType>(view.dtype), wanted,
          " for it; correct the schema's TensorInferenceFunction, or write one");
  }
  static void CopyInto(const Tensor& result, const opkit_tensor& view) {
    if (result.nbytes() == 0) return;
    const Tensor dense = result.is_dense() ? result : result.Contiguous();
    std::memmove(view.data, dense.raw_data(), static_cast<size_t>(dense.nbytes()));
  }

  // A run at its place in the host's stream: a call of its own, which holds what the host's points
  // to.
  struct LaunchedRun {
    IntrusivePtr<ExportedInstance> instance;
    opkit_call call;
    std::vector<opkit_tensor> inputs, outputs;
    std::vector<Dims> extents;

    LaunchedRun(ExportedInstance* self, const opkit_call* from) : instance(self), call{} {
      std::memcpy(&call, from, (std::min)(from->size, uint64_t{sizeof call}));
      call.size = sizeof call;
      extents.reserve(2 * (call.num_inputs + call.num_outputs));
      for (uint64_t i = 0; i < call.num_inputs; ++i) Copy(*opkit_input(from, i), inputs);
      for (uint64_t o = 0; o < call.num_outputs; ++o) Copy(*opkit_output(from, o), outputs);
      call.inputs = inputs.data();
      call.outputs = outputs.data();
      call.asynchronous = 0;
    }
    void Copy(const opkit_tensor& from, std::vector<opkit_tensor>& all) {
      const auto rank = static_cast<size_t>(from.rank);
      opkit_tensor view = OpTensor(from).view();
      view.shape = extents.emplace_back(from.shape, rank).data();
      view.strides = extents.emplace_back(from.strides, rank).data();
      all.push_back(view);
    }
    static opkit_status Work(void* context) {
      auto* run = static_cast<LaunchedRun*>(context);
      return GuardedCall([&] {
        run->instance->Forward(&run->call);
        return OpStatus();
      });
    }
    static void Drop(void* context) { delete static_cast<LaunchedRun*>(context); }
  };
  opkit_status Launch(const opkit_call* call) {
    return call->host->launch(call, &LaunchedRun::Work, &LaunchedRun::Drop,
                              new LaunchedRun(this, call));
  }

  Workspace workspace_;
  std::unique_ptr<OperatorBase> op_;
  std::vector<Value> inputs_, outputs_;
};

// An operator of the library's registries. Everything of the opkit_op lies in one place and stays
// there.
class OPKIT_IMAGE_LOCAL ExportedOperator : public RefCounted {
 public:
  explicit ExportedOperator(const OpSchema& schema) : schema_(schema) {
    op_.size = sizeof op_;
    op_.name = schema.name().c_str();
    op_.doc = schema.doc().c_str();
    op_.file = schema.file();
    op_.line = schema.line();
    op_.flags = (schema.is_stateful() ? OPKIT_OP_EFFECTS : 0) |
                (schema.unknown_args_allowed() ? OPKIT_OP_OPEN_ATTRS : 0) | GradientFlags();
    op_.parse_attrs = &ParseAttrs;
    if (schema.has_inference()) {
      op_.infer_type = &InferType;
      op_.infer_shape = &InferShape;
    }
    op_.mutated_inputs = &MutatedInputs;
    op_.scratch_bytes = &ScratchBytes;
    op_.author = this;
    AddKernels();
    AddInplace();
    AddParameters();
  }
  const opkit_op& op() const { return op_; }

 private:
  static const ExportedOperator& Of(const opkit_op* op) {
    return *static_cast<const ExportedOperator*>(op->author);
  }

  // In the host's streams run what the library has for the CPU.
  void AddKernels() {
    bool on_cpu = false, on_stream = false;
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema_.name())) {
      if (kernel->backend != kReferenceBackend)
        Throw(ErrorCode::kUnsupported, "operator ", schema_.name(), " has a kernel of the backend ",
              kernel->backend, " (at ", kernel->Place(),
              "): a library hands over plain kernels alone, for which LoadOptions::backend is the "
              "name of their backend");
      on_cpu |= kernel->device == DeviceType::kCPU;
      on_stream |= kernel->device == DeviceType::kCPUStream;
    }
    const auto add = [this](opkit_kernel& kernel, const char* device) {
      kernel.size = sizeof kernel;
      kernel.device = device;
      kernel.create = &Create;
      kernel.destroy = &Destroy;
      kernel.forward = &Forward;
      kernel.author = this;
      kernel_pointers_.push_back(&kernel);
    };
    if (on_cpu) add(kernels_[0], "cpu");
    if (on_cpu && on_stream) add(kernels_[1], "cpu_stream");
    op_.num_kernels = kernel_pointers_.size();
    op_.kernels = kernel_pointers_.data();
  }
  // Of the first values; schemas say it by a function.
  void AddInplace() {
    constexpr int kMost = 16;
    const int inputs = (std::min)(schema_.max_inputs(), kMost);
    const int outputs = (std::min)(schema_.max_outputs(), kMost);
    for (int i = 0; i < inputs; ++i)
      for (int o = 0; o < outputs; ++o) {
        if (!schema_.CanInplace(i, o)) continue;
        inplace_.push_back(i);
        inplace_.push_back(o);
      }
    op_.num_inplace = inplace_.size() / 2;
    op_.inplace = inplace_.data();
  }

  void AddParameters() {
    const size_t count =
        schema_.attributes().size() + schema_.inputs().size() + schema_.outputs().size();
    parameters_.reserve(count);
    const auto add = [this](const std::string& name, const std::string& doc) -> opkit_parameter& {
      opkit_parameter& parameter = parameters_.emplace_back();
      parameter = {};
      parameter.size = sizeof parameter;
      parameter.name = name.c_str();
      parameter.doc = doc.c_str();
      parameter.type = -1;
      pointers_.push_back(&parameter);
      return parameter;
    };
    for (const AttributeSchema& attribute : schema_.attributes()) {
      opkit_parameter& parameter = add(attribute.name, attribute.doc);
      if (attribute.type) parameter.type = static_cast<int32_t>(*attribute.type);
      parameter.required = attribute.required;
      if (!attribute.default_value) continue;
      defaults_.push_back(MakeIntrusive<DefaultValue>(attribute.name, *attribute.default_value));
      parameter.default_value = *static_cast<DefaultValue&>(*defaults_.back()).attributes.data();
    }
    for (const auto* values : {&schema_.inputs(), &schema_.outputs()})
      for (const ValueSchema& value : *values) {
        opkit_parameter& parameter = add(value.name, value.doc);
        for (const DType dtype : value.dtypes)
          parameter.dtypes |= uint64_t{1} << static_cast<int>(dtype);
      }
    op_.num_attrs = schema_.attributes().size();
    op_.attrs = pointers_.data();
    op_.num_inputs = schema_.inputs().size();
    op_.inputs = pointers_.data() + op_.num_attrs;
    op_.num_outputs = schema_.outputs().size();
    op_.outputs = op_.inputs + op_.num_inputs;
  }
  struct DefaultValue : RefCounted {
    DefaultValue(const std::string& name, const Attribute& value) : attributes(List(name, value)) {}
    static Arguments List(const std::string& name, const Attribute& value) {
      Arguments one;
      one.Set(name, value);
      return one;
    }
    AbiAttributes attributes;
  };

  static opkit_status Create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
    return GuardedCall([&] {
      const auto& self = *static_cast<const ExportedOperator*>(kernel->author);
      auto made = MakeIntrusive<ExportedInstance>(self.schema_, *node);
      *instance = new IntrusivePtr<ExportedInstance>(std::move(made));
      return OpStatus();
    });
  }
  static void Destroy(void* instance) {
    try {
      delete static_cast<IntrusivePtr<ExportedInstance>*>(instance);
    } catch (...) {
      ReportFailure();
    }
  }
  static opkit_status Forward(void* instance, const opkit_call* call) {
    opkit_status launched = OPKIT_OK;
    const opkit_status status = GuardedCall([&] {
      launched = (*static_cast<IntrusivePtr<ExportedInstance>*>(instance))->Forward(call);
      return launched == OPKIT_OK ? OpStatus() : OpStatus::Failure(g_host->failure_text());
    });
    return launched == OPKIT_OK ? status : launched;
  }

  static opkit_status ParseAttrs(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                                 int32_t* num_outputs) {
    return GuardedCall([&] {
      const OpSchema& schema = Of(op).schema_;
      if (!schema.problem().empty()) return OpStatus::Failure(schema.problem());
      const auto [inputs, outputs] = schema.Arity(ArgumentsOfAbi(node->attrs, node->num_attrs));
      *num_inputs = inputs;
      *num_outputs = outputs;
      return OpStatus();
    });
  }

  // What the host knows of values, as this image's inference sees it.
  class Values {
   public:
    Values(const opkit_value* values, uint64_t count, bool with_shapes) {
      for (uint64_t i = 0; i < count; ++i) {
        const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
        TensorInfo& info = infos_.emplace_back();
        if (value.dtype > 0 && value.dtype < kNumDTypes)
          info.dtype = static_cast<DType>(value.dtype);
        if (!with_shapes) continue;
        if (value.rank >= 0) info.shape = ShapeOf(value);
        if (!value.constant) continue;
        constants_.push_back(MakeIntrusive<Shared<Tensor>>(TensorOfView(*value.constant)));
        info.constant = &static_cast<Shared<Tensor>&>(*constants_.back()).value;
      }
    }
    const std::vector<TensorInfo>& infos() const { return infos_; }

   private:
    static SymbolicShape ShapeOf(const opkit_value& value) {
      std::vector<Dim> dims;
      for (int axis = 0; axis < value.rank; ++axis) {
        const int64_t extent = value.dims[axis];
        dims.push_back(extent >= 0    ? Dim(extent)
                       : extent == -1 ? Dim()
                                      : Sym(StrCat(kSymbol, -2 - extent)));
      }
      return SymbolicShape(std::move(dims));
    }
    std::vector<TensorInfo> infos_;
    RefCountedList constants_;  // of Shared<Tensor>
  };
  static constexpr const char* kSymbol = "s";
  static int64_t NumberOf(const Dim& dim) {
    if (dim.is_known()) return dim.value();
    const std::string& name = dim.symbol();
    if (name.size() < 2 || name[0] != *kSymbol) return -1;
    const auto number = ParseText<int64_t>(std::string_view(name).substr(1));
    return number && *number >= 0 ? -2 - *number : -1;
  }

  void Infer(const opkit_node* node, opkit_value* inputs, opkit_value* outputs, bool types,
             bool with_shapes) const {
    OperatorDef def = DefinitionOfAbi(*node);
    const Values ins(inputs, node->num_inputs, with_shapes);
    const Values outs(outputs, node->num_outputs, with_shapes);
    InferenceContext context(def, ins.infos(), outs.infos());
    schema_.Infer(context);
    const auto store = [&](const std::vector<TensorInfo>& infos, opkit_value* values) {
      for (size_t i = 0; i < infos.size(); ++i)
        types ? StoreType(infos[i], *opkit_value_at(values, i))
              : StoreShape(infos[i], *opkit_value_at(values, i));
    };
    store(context.inputs(), inputs);
    store(context.outputs(), outputs);
  }
  static void StoreType(const TensorInfo& info, opkit_value& value) {
    if (info.dtype != DType::kUndefined) value.dtype = static_cast<int32_t>(info.dtype);
  }
  static void StoreShape(const TensorInfo& info, opkit_value& value) {
    if (!info.shape.has_rank()) return;
    if (info.shape.rank() > OPKIT_MAX_RANK)
      Throw(ErrorCode::kOutOfRange, "inference says ", info.shape.rank(), " axes; ", OPKIT_MAX_RANK,
            " are the most");
    const bool same_rank = value.rank == info.shape.rank();
    value.rank = info.shape.rank();
    for (int axis = 0; axis < value.rank; ++axis) {
      const int64_t extent = NumberOf(info.shape[axis]);
      if (extent != -1 || !same_rank) value.dims[axis] = extent;
    }
  }
  // Wrong shapes are for infer_shape to report.
  static opkit_status InferType(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
    return GuardedCall([&] {
      const ExportedOperator& self = Of(op);
      try {
        self.Infer(node, inputs, outputs, true, true);
      } catch (...) {
        const std::exception_ptr failure = std::current_exception();
        try {
          self.Infer(node, inputs, outputs, true, false);
        } catch (...) {
          std::rethrow_exception(failure);
        }
      }
      return OpStatus();
    });
  }
  static opkit_status InferShape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                 opkit_value* outputs) {
    return GuardedCall([&] {
      Of(op).Infer(node, inputs, outputs, false, true);
      return OpStatus();
    });
  }
  static opkit_status MutatedInputs(const opkit_op* op, const opkit_node* node, uint8_t* mutated) {
    return GuardedCall([&] {
      for (const int input : Of(op).schema_.MutatedInputs(DefinitionOfAbi(*node))) {
        if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
          return OpStatus::Failure("MutatesInputs of its schema names input ", input,
                                   ", but the node has ", node->num_inputs);
        mutated[input] = 1;
      }
      return OpStatus();
    });
  }
  // Of the first configuration that the kernel proposes in standard layouts.
  static opkit_status ScratchBytes(const opkit_op* op, const opkit_node* node,
                                   const opkit_value* inputs, int64_t* bytes) {
    return GuardedCall([&] {
      const OpSchema& schema = Of(op).schema_;
      *bytes = 0;
      OperatorDef def = DefinitionOfAbi(*node);
      def.Device(DeviceType::kCPU);
      const auto kernels = KernelOrder(def);
      if (kernels.empty() || !kernels[0]->propose) return OpStatus();
      const Values ins(inputs, node->num_inputs, true);
      const std::vector<TensorInfo> outs = schema.InferOutputs(def, ins.infos());
      try {
        for (const KernelConfig& config : kernels[0]->propose({def, ins.infos(), outs})) {
          if (!config.input_layouts.empty() || !config.output_layouts.empty()) continue;
          *bytes = config.scratch_bytes;
          break;
        }
      } catch (const UnsupportedOperatorFeature&) {  // creating the operator says so
      }
      return OpStatus();
    });
  }

  uint64_t GradientFlags() {
    const GradientRegistration* gradient = GradientRegistry::Global().Find(schema_.name());
    if (!gradient) return 0;
    switch (gradient->kind) {
      case GradientKind::kNone:
        return OPKIT_OP_NO_GRADIENT;
      case GradientKind::kShouldNot:
        return OPKIT_OP_SHOULD_NOT_GRADIENT;
      case GradientKind::kNotImplemented:
        return OPKIT_OP_GRADIENT_NOT_IMPLEMENTED;
      case GradientKind::kMaker:
        break;
    }
    op_.gradient = &Gradient;
    return 0;
  }
  // The library's maker names what is new by its own map; the host then gives each its name.
  static opkit_status Gradient(const opkit_op*, const opkit_gradient* gradient) {
    return GuardedCall([&] {
      const OperatorDef def = DefinitionOfAbi(*gradient->node);
      std::vector<GradientValue> g_output;
      for (size_t o = 0; o < def.outputs().size(); ++o) {
        GradientValue& value = g_output.emplace_back();
        value.dense = gradient->dense[o];
        value.indices = gradient->indices[o];
        value.values = gradient->values[o];
      }
      GradientNames names;
      GradientOpsMeta meta = GetGradientForOp(def, g_output, names);
      std::map<std::string, std::string> renamed;
      const auto rename = [&](std::string& name) {
        const std::string* value = names.ValueOf(name);
        if (!value) return;
        std::string& known = renamed[name];
        if (known.empty()) {
          const std::string own = *value, suffix = name.substr(own.size());
          const char* given = gradient->new_name(gradient, own.c_str(),
                                                 names.Of(own) == name ? nullptr : suffix.c_str());
          if (!given) Throw(ErrorCode::kOperatorFailed, g_host->failure_text());
          known = given;
        }
        name = known;
      };
      const auto accept = [](opkit_status status) {
        if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
      };
      for (size_t i = 0; i < meta.g_input.size(); ++i) {
        GradientValue& value = meta.g_input[i];
        for (std::string* name : {&value.dense, &value.indices, &value.values}) rename(*name);
        accept(gradient->set_input(gradient, i, value.dense.c_str(), value.indices.c_str(),
                                   value.values.c_str()));
      }
      for (OperatorDef& op : meta.ops) {
        for (std::string& name : op.mutable_inputs()) rename(name);
        for (std::string& name : op.mutable_outputs()) rename(name);
        const AbiNode node(op);
        accept(gradient->add_node(gradient, &node.node()));
      }
      return OpStatus();
    });
  }

  const OpSchema& schema_;
  opkit_op op_{};
  opkit_kernel kernels_[2]{};
  std::vector<const opkit_kernel*> kernel_pointers_;
  std::vector<int32_t> inplace_;
  std::vector<opkit_parameter> parameters_;
  std::vector<const opkit_parameter*> pointers_;
  RefCountedList defaults_;  // of DefaultValue
};

// All that the host can run. Nothing where the host is this program itself, which has them already.
OPKIT_IMAGE_LOCAL inline void AddRegisteredOperators(std::vector<const opkit_op*>& ops,
                                                     RefCountedList& owners) {
  if (IsProgramHost(g_host)) return;
  if (const auto problems = CheckRegistrations(); !problems.empty())
    Throw(ErrorCode::kInvalidArgument, problems[0]);
  LibraryContents& contents = ThisLibrary();
  if (contents.finalize != &EndLibraryPool)
    g_export_threads.finalize = std::exchange(contents.finalize, &EndLibraryPool);
  for (const std::string& name : RegisteredOperators()) {
    auto op = MakeIntrusive<ExportedOperator>(OpRegistry::Global().GetSchema(name));
    if (op->op().num_kernels == 0) continue;
    ops.push_back(&op->op());
    owners.push_back(op);
  }
}
[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kExportsRegisteredOperators =
    (ThisLibrary().add_ops = &AddRegisteredOperators, true);

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_OPERATORS_HPP_
#endif

#endif  // OPKIT_PLUGIN_AUTHOR_HPP_

#ifdef OPKIT_DEFINITIONS

// ---- opkit/base/impl/name_table.ipp
// The definitions of opkit/base/name_table.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_TABLE_IPP_
#define OPKIT_BASE_IMPL_NAME_TABLE_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE size_t SortedRows::LowerBound(std::string_view name) const {
  size_t low = 0, high = rows.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (At(middle)->name.compare(name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

OPKIT_INLINE NamedRow* SortedRows::Find(std::string_view name) const {
  const size_t at = LowerBound(name);
  return at < rows.size() && At(at)->name == name ? At(at) : nullptr;
}

OPKIT_INLINE void SortedRows::Add(NamedRow* row) {
  const size_t at = LowerBound(row->name);
  rows.push_back(IntrusivePtr<RefCounted>(row));
  for (size_t i = rows.size() - 1; i > at; --i) std::swap(rows[i], rows[i - 1]);
}

OPKIT_INLINE bool SortedRows::Erase(std::string_view name) {
  if (!Find(name)) return false;
  for (size_t i = LowerBound(name) + 1; i < rows.size(); ++i) std::swap(rows[i], rows[i - 1]);
  rows.pop_back();
  return true;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_NAME_TABLE_IPP_

// ---- opkit/base/impl/strings.ipp
// The definitions of opkit/base/strings.hpp.
#ifndef OPKIT_BASE_IMPL_STRINGS_IPP_
#define OPKIT_BASE_IMPL_STRINGS_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE void Text::AppendTo(std::string& out) const {
  switch (kind_) {
    case Kind::kLiteral:
      out += value_.object ? static_cast<const char*>(value_.object) : "(null)";
      break;
    case Kind::kChars:
      out.append(static_cast<const char*>(value_.object), size_);
      break;
    case Kind::kCharacter:
      out += static_cast<char>(value_.integer);
      break;
    case Kind::kInt:
      out += std::to_string(value_.integer);
      break;
    case Kind::kUInt:
      out += std::to_string(static_cast<uint64_t>(value_.integer));
      break;
    case Kind::kFloat: {
      char buffer[32];  // whatever the program's locale says
      out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value_.number,
                                       std::chars_format::general, 9)
                             .ptr);
      break;
    }
    case Kind::kObject:
      append_(out, value_.object);
      break;
  }
}

namespace detail {

OPKIT_INLINE std::string Join(std::initializer_list<const Text*> parts) {
  std::string out;
  for (const Text* part : parts) part->AppendTo(out);
  return out;
}

}  // namespace detail

OPKIT_INLINE std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d) {
  return detail::Join({&a, &b, &c, &d});
}

OPKIT_INLINE std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                                const Text& e, const Text& f, const Text& g, const Text& h) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h});
}

OPKIT_INLINE std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                                const Text& e, const Text& f, const Text& g, const Text& h,
                                const Text& i, const Text& j, const Text& k, const Text& l,
                                const Text& m, const Text& n, const Text& o, const Text& p) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &o, &p});
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_STRINGS_IPP_

// ---- opkit/base/impl/error.ipp
// The definitions of opkit/base/error.hpp.
#ifndef OPKIT_BASE_IMPL_ERROR_IPP_
#define OPKIT_BASE_IMPL_ERROR_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE const char* ToString(ErrorCode code) {
  constexpr const char* kNames[] = {"invalid argument", "type mismatch",     "not found",
                                    "already exists",   "out of range",      "uninitialized",
                                    "out of memory",    "unsupported",       "failed precondition",
                                    "cancelled",        "deadline exceeded", "operator failed"};
  return kNames[static_cast<int>(code)];
}

OPKIT_INLINE Error::Error(ErrorCode code, std::string message, const void* subject)
    : std::runtime_error(message),
      code_(code),
      subject_(subject),
      message_(std::move(message)),
      what_(message_) {}

OPKIT_INLINE const char* Error::what() const noexcept { return what_.c_str(); }

OPKIT_INLINE Error& Error::AddContext(std::string line) {
  what_ += "\n  " + line;
  context_.push_back(std::move(line));
  return *this;
}

OPKIT_INLINE void Throw(ErrorCode code, const Text& a, const Text& b, const Text& c,
                        const Text& d) {
  throw Error(code, StrCat(a, b, c, d));
}

OPKIT_INLINE void Throw(ErrorCode code, const Text& a, const Text& b, const Text& c, const Text& d,
                        const Text& e, const Text& f, const Text& g, const Text& h) {
  throw Error(code, StrCat(a, b, c, d, e, f, g, h));
}

OPKIT_INLINE void Throw(ErrorCode code, const Text& a, const Text& b, const Text& c, const Text& d,
                        const Text& e, const Text& f, const Text& g, const Text& h, const Text& i,
                        const Text& j, const Text& k, const Text& l, const Text& m, const Text& n,
                        const Text& o, const Text& p) {
  throw Error(code, StrCat(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}

namespace detail {

OPKIT_INLINE void AssertFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "opkit: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_ERROR_IPP_

// ---- opkit/base/impl/suggest.ipp
// The definitions of opkit/base/suggest.hpp.
#ifndef OPKIT_BASE_IMPL_SUGGEST_IPP_
#define OPKIT_BASE_IMPL_SUGGEST_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE size_t EditDistance(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const size_t width = b.size() + 1;
  std::vector<int64_t> rows(3 * width);
  int64_t *before = rows.data(), *previous = before + width, *row = previous + width;
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t differs = lower(a[i - 1]) != lower(b[j - 1]);
      int64_t best = previous[j - 1] + differs;
      if (previous[j] + 1 < best) best = previous[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
      row[j] = best;
    }
    int64_t* const unused = before;
    before = previous;
    previous = row;
    row = unused;
  }
  return static_cast<size_t>(previous[b.size()]);
}

OPKIT_INLINE std::string NearestName(std::string_view name,
                                     const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = (name.size() < 6 ? 1 : name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

OPKIT_INLINE std::string SuggestName(std::string_view name,
                                     const std::vector<std::string>& candidates) {
  if (candidates.empty()) return {};
  constexpr size_t kShown = 12;
  const std::string nearest = NearestName(name, candidates);
  std::string out = nearest.empty() ? " (known: " : " (did you mean '" + nearest + "'? known: ";
  for (size_t i = 0; i < candidates.size() && i < kShown; ++i) {
    if (i) out += ", ";
    out += "'" + candidates[i] + "'";
  }
  if (candidates.size() > kShown) out += StrCat(" and ", candidates.size() - kShown, " more");
  return out + ")";
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_SUGGEST_IPP_

// ---- opkit/core/impl/shape.ipp
// The definitions of opkit/core/shape.hpp.
#ifndef OPKIT_CORE_IMPL_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SHAPE_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE Dims& Dims::operator=(Dims&& other) noexcept {
  if (this != &other) {
    Free();
    Steal(other);
  }
  return *this;
}

OPKIT_INLINE void Dims::Assign(const int64_t* values, size_t count) {
  int64_t* heap = count > kInline ? new int64_t[count] : nullptr;
  Free();
  size_ = static_cast<int>(count);
  if (heap) heap_ = heap;
  if (count) std::memcpy(data(), values, count * sizeof(int64_t));
}

OPKIT_INLINE void Dims::Steal(Dims& other) {
  size_ = other.size_;
  if (size_ > kInline) {
    heap_ = other.heap_;
  } else {
    for (int i = 0; i < size_; ++i) inline_[i] = other.inline_[i];
  }
  other.size_ = 0;
}

OPKIT_INLINE int Shape::Axis(int axis) const {
  if (axis < -rank() || axis >= rank())
    Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside shape ", ToString(*this), " of rank ",
          rank());
  return axis < 0 ? axis + rank() : axis;
}

OPKIT_INLINE int64_t Shape::NumelBetween(int begin, int end) const {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= dims_[i];
  return product;
}

OPKIT_INLINE Dims Shape::DenseStrides() const {
  Dims strides = dims_;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= dims_[i] > 0 ? dims_[i] : 1;
  }
  return strides;
}

OPKIT_INLINE bool Shape::IsDense(const Dims& strides) const {
  if (strides.size() != rank()) return false;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0 && numel_ > 0; --i) {
    if (dims_[i] != 1 && strides[i] != step) return false;
    step *= dims_[i];
  }
  return true;
}

OPKIT_INLINE int64_t Shape::CountElements(const Dims& dims) {
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0)
      Throw(ErrorCode::kInvalidArgument, "shape ", dims, " has the negative extent ", dims[i],
            " at axis ", i);
    empty |= dims[i] == 0;
    if (dims[i] > 0 && __builtin_mul_overflow(count, dims[i], &count))
      Throw(ErrorCode::kOutOfRange, "shape ", dims,
            " has more elements than a 64-bit count can hold");
  }
  return empty ? 0 : count;
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SHAPE_IPP_

// ---- opkit/base/impl/platform.ipp
// The definitions of opkit/base/platform.hpp.
#ifndef OPKIT_BASE_IMPL_PLATFORM_IPP_
#define OPKIT_BASE_IMPL_PLATFORM_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE bool Parker::Wait(int64_t deadline_ns) {
  const timespec deadline{static_cast<time_t>(deadline_ns / 1'000'000'000),
                          static_cast<long>(deadline_ns % 1'000'000'000)};
  while (signalled_.load(std::memory_order_acquire) == 0) {
    // The kernel compares the word with 0 again before it sleeps, so a Set() in between is not
    // lost.
    const long rc = syscall(SYS_futex, &signalled_, FUTEX_WAIT_BITSET_PRIVATE, 0,
                            deadline_ns < 0 ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (rc != 0 && errno == ETIMEDOUT) return signalled_.load(std::memory_order_acquire) != 0;
  }
  return true;
}

OPKIT_INLINE int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the set has room for
  return online > 0 ? static_cast<int>(online) : 1;
}

OPKIT_INLINE void PinCurrentThread(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

OPKIT_INLINE void SetCurrentThreadName(const char* name) {
  char shortened[16] = {};
  for (int i = 0; i < 15 && name[i] != '\0'; ++i) shortened[i] = name[i];
  pthread_setname_np(pthread_self(), shortened);
}

OPKIT_INLINE FileMapping MapFileForReading(const char* path) {
  FileMapping out;
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) {
    out.error = errno;
  } else if (S_ISREG(status.st_mode)) {
    out.is_file = true;
    out.size = static_cast<size_t>(status.st_size);
    if (out.size > 0) out.data = mmap(nullptr, out.size, PROT_READ, MAP_PRIVATE, file, 0);
    if (out.data == MAP_FAILED) out = {nullptr, 0, errno, true};
  }
  if (file >= 0) close(file);
  return out;
}

OPKIT_INLINE void ForgetMapped(const void* data, size_t size) {
  constexpr uintptr_t kPage = 65536;  // at least the system's, and not worth a call below
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_PLATFORM_IPP_

// ---- opkit/core/impl/device.ipp
// The definitions of opkit/core/device.hpp.
#ifndef OPKIT_CORE_IMPL_DEVICE_IPP_
#define OPKIT_CORE_IMPL_DEVICE_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE DeviceTypeRegistry& DeviceTypes() {
  alignas(DeviceTypeRegistry) static unsigned char room[sizeof(DeviceTypeRegistry)];
  static auto* registry = new (room) DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

OPKIT_INLINE DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

OPKIT_INLINE int FindDeviceType(std::string_view name) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

OPKIT_INLINE DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries) {
    if (entry.type == type && entry.info.name == info.name) return type;
    if (entry.type == type || entry.info.name == info.name)
      Throw(ErrorCode::kAlreadyExists, "device type ", static_cast<int32_t>(type), " '", info.name,
            "' clashes with ", static_cast<int32_t>(entry.type), " '", entry.info.name, "'");
  }
  auto& entries = registry.entries;
  if (entries.count == entries.kMost)
    Throw(ErrorCode::kOutOfRange, "device type '", info.name, "' is one more than the ",
          static_cast<int>(entries.kMost), " that a program may have");
  entries.all[entries.count++] = {type, std::move(info)};
  return type;
}

OPKIT_INLINE Device MemoryDevice(Device device) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(device.type);
  if (!known) return {GetDeviceTypeInfo(device.type).memory, device.index};
  return known->memory == DeviceType::kCPU ? Device{} : Device{known->memory, device.index};
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_DEVICE_IPP_

// ---- opkit/core/impl/allocator.ipp
// The definitions of opkit/core/allocator.hpp.
#ifndef OPKIT_CORE_IMPL_ALLOCATOR_IPP_
#define OPKIT_CORE_IMPL_ALLOCATOR_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE void* Allocator::Allocate(int64_t bytes, int32_t index) {
  if (bytes <= 0) return nullptr;
  void* data = DoAllocateOn(index, bytes);
  if (!data)
    Throw(ErrorCode::kOutOfMemory, "out of memory on ", name(), ": ", bytes,
          " bytes were asked for while ", live_bytes(), " bytes are in use");
  // Relaxed: statistics, they order nothing.
  const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return data;
}

OPKIT_INLINE void Allocator::Deallocate(void* data, int64_t bytes) noexcept {
  if (!data) return;
  live_.fetch_sub(bytes, std::memory_order_relaxed);
  DoDeallocate(data, bytes);
}

OPKIT_INLINE void* CPUAllocator::DoAllocate(int64_t bytes) {
  return ::operator new(static_cast<size_t>(bytes), std::align_val_t{kAlignment}, std::nothrow);
}

OPKIT_INLINE void CPUAllocator::DoDeallocate(void* data, int64_t) noexcept {
  ::operator delete(data, std::align_val_t{kAlignment});
}

namespace detail {

OPKIT_INLINE AllocatorTable::AllocatorTable() {
  for (auto& slot : slots) slot.store(nullptr, std::memory_order_relaxed);
  slots[static_cast<int>(DeviceType::kCPU)].store(new (cpu) CPUAllocator,
                                                  std::memory_order_relaxed);
}

OPKIT_INLINE std::atomic<Allocator*>& AllocatorTable::operator[](DeviceType type) {
  const int slot = static_cast<int>(type);
  if (slot < 0 || slot >= kSlots)
    Throw(ErrorCode::kOutOfRange, "device type ", slot, " is outside 0 to ", kSlots - 1);
  return slots[slot];
}

OPKIT_INLINE AllocatorTable& Allocators() {
  // Never destroyed: it outlives every static tensor. In place: what a library that is unloaded has
  // on the heap would be lost.
  alignas(AllocatorTable) static unsigned char room[sizeof(AllocatorTable)];
  static auto* table = new (room) AllocatorTable;
  return *table;
}

}  // namespace detail

OPKIT_INLINE Allocator& GetAllocator(DeviceType type) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  Allocator* allocator = detail::Allocators()[memory].load(std::memory_order_acquire);
  if (!allocator)
    Throw(ErrorCode::kUnsupported, "no allocator for device ", ToString(type),
          ": include its backend's header, or call SetAllocator");
  return *allocator;
}

OPKIT_INLINE Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  return detail::Allocators()[memory].exchange(allocator, std::memory_order_acq_rel);
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ALLOCATOR_IPP_

// ---- opkit/core/impl/tensor.ipp
// The definitions of opkit/core/tensor.hpp.
#ifndef OPKIT_CORE_IMPL_TENSOR_IPP_
#define OPKIT_CORE_IMPL_TENSOR_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE Tensor::Tensor(const Tensor&) = default;
OPKIT_INLINE Tensor& Tensor::operator=(const Tensor&) = default;
OPKIT_INLINE Tensor::~Tensor() = default;

OPKIT_INLINE Tensor::Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype,
                            Dims strides)
    : storage_(std::move(storage)),
      byte_offset_(byte_offset),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      dtype_(dtype) {
  if (!storage_ || dtype == DType::kUndefined)
    Throw(ErrorCode::kInvalidArgument, "a view ", dtype, ToString(shape_), " needs ",
          storage_ ? "a dtype" : "a storage");
  device_ = storage_->device();
  const int64_t needed = ViewBytes();
  if (byte_offset < 0 || needed < 0 || byte_offset > storage_->nbytes() - needed)
    Throw(ErrorCode::kOutOfRange, "a view ", dtype, ToString(shape_), " with strides",
          ToString(strides_), " at byte ", byte_offset, " does not fit in its storage of ",
          storage_->nbytes(), " bytes");
  if (shape_.IsDense(strides_)) strides_ = Dims();
  if (strides_.empty()) capacity_ = needed;
}

OPKIT_INLINE void Tensor::Resize(Shape shape, DType dtype) {
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kInvalidArgument, "Resize to ", ToString(shape), " needs a dtype");
  if (!Fits(shape, dtype)) TakeMemory(NewMemory(shape, dtype));
  shape_ = std::move(shape);
  dtype_ = dtype;
  strides_ = Dims();
  layout_ = Layout();
}

OPKIT_INLINE void Tensor::ReserveSpace(int64_t outer) {
  if (rank() == 0 || dtype_ == DType::kUndefined)
    Fail(ErrorCode::kFailedPrecondition, "ReserveSpace needs a dtype and an outer dimension");
  CheckStandard("ReserveSpace");
  if (outer <= shape_[0]) return;
  Dims dims(shape_);
  dims[0] = outer;
  const Shape reserved(std::move(dims));
  if (is_dense() && Fits(reserved, dtype_)) return;
  CheckHost();
  Storage bigger = NewMemory(reserved, dtype_);
  CopyElementsTo(static_cast<char*>(bigger->data()));
  TakeMemory(std::move(bigger));
  strides_ = Dims();
}

OPKIT_INLINE void Tensor::ShareData(const Tensor& source) {
  source.CheckInitialized();
  source.CheckStandard("ShareData");
  if (numel() != source.numel())
    Fail(ErrorCode::kInvalidArgument, "ShareData needs equal element counts, but the source is ",
         source.Describe());
  if (!source.is_dense())
    Fail(ErrorCode::kInvalidArgument, "ShareData needs a dense source, but it has strides");
  Tensor shared = source;
  shared.shape_ = shape_;
  shared.strides_ = Dims();
  *this = std::move(shared);
}

OPKIT_INLINE void Tensor::CopyFrom(const Tensor& source) {
  if (&source == this) return;
  source.CheckInitialized();
  source.CheckHost();
  source.CheckStandard("CopyFrom");
  CheckHost();
  Tensor target = PreparedFor(source);
  source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
  *this = std::move(target);
}

OPKIT_INLINE Tensor Tensor::PreparedFor(const Tensor& source) const {
  Tensor target = *this;
  if (Fits(source.shape_, source.dtype_)) {
    target.Resize(source.shape_, source.dtype_);
    if (!target.SharesMemoryWith(source)) return target;
  }
  target.TakeMemory(NewMemory(source.shape_, source.dtype_));
  target.Resize(source.shape_, source.dtype_);
  return target;
}

OPKIT_INLINE Tensor Tensor::Contiguous() const {
  Tensor out(device_);
  out.CopyFrom(*this);
  return out;
}

OPKIT_INLINE Tensor Tensor::View(const Dims& dims) const {
  CheckInitialized();
  if (!is_dense() || !layout_.is_standard())
    Fail(ErrorCode::kInvalidArgument, "View needs a dense tensor; call Contiguous() first");
  Dims resolved = dims;
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < resolved.size(); ++i) {
    if (resolved[i] == -1 && unknown < 0) {
      unknown = i;
    } else if (__builtin_mul_overflow(known, resolved[i], &known)) {
      known = -1;
    }
  }
  if (unknown >= 0 && known > 0) resolved[unknown] = numel() / known;
  const bool open = unknown >= 0 && known == 0;
  Shape shape = open ? Shape{0} : Shape(std::move(resolved));
  if (open || shape.numel() != numel())
    Fail(ErrorCode::kInvalidArgument, "cannot be viewed as shape ", dims);
  Tensor out = *this;
  out.shape_ = std::move(shape);
  out.strides_ = Dims();
  return out;
}

OPKIT_INLINE Tensor Tensor::Slice(int axis, int64_t begin, int64_t end) const {
  CheckInitialized();
  CheckStandard("Slice");
  axis = shape_.Axis(axis);
  if (begin < 0 || end < begin || end > shape_[axis])
    Fail(ErrorCode::kOutOfRange, "slice [", begin, ", ", end, ") is outside axis ", axis);
  Tensor out = *this;
  Dims dims(shape_);
  dims[axis] = end - begin;
  out.shape_ = Shape(std::move(dims));
  if (out.numel() > 0) out.byte_offset_ += begin * strides()[axis] * ItemSize(dtype_);
  out.strides_ = strides();
  if (out.shape_.IsDense(out.strides_)) out.strides_ = Dims();
  out.capacity_ = out.strides_.empty() ? out.SpanBytes() : 0;
  return out;
}

OPKIT_INLINE Tensor Tensor::Permute(const Dims& order) const {
  CheckInitialized();
  CheckStandard("Permute");
  if (order.size() != rank())
    Fail(ErrorCode::kInvalidArgument, "Permute needs ", rank(), " axes, found ", order.size());
  const Dims old_strides = strides();
  Dims dims = order, steps = order;
  for (int i = 0; i < order.size(); ++i) {
    const int axis = shape_.Axis(static_cast<int>(order[i]));
    for (int j = 0; j < i; ++j)
      if (shape_.Axis(static_cast<int>(order[j])) == axis)
        Fail(ErrorCode::kInvalidArgument, "Permute names axis ", axis, " twice");
    dims[i] = shape_[axis];
    steps[i] = old_strides[axis];
  }
  Tensor out = *this;
  out.shape_ = Shape(std::move(dims));
  out.strides_ = std::move(steps);
  return out;
}

OPKIT_INLINE bool Tensor::SharesMemoryWith(const Tensor& other) const {
  if (!storage_ || !other.storage_ || numel() == 0 || other.numel() == 0) return false;
  if (storage_ != other.storage_ && storage_->IsApartFrom(*other.storage_)) return false;
  const auto* a = static_cast<const char*>(raw_data());
  const auto* b = static_cast<const char*>(other.raw_data());
  if (MemoryDevice(device_) != MemoryDevice(other.device_)) return false;
  return a < b + other.SpanBytes() && b < a + SpanBytes();
}

OPKIT_INLINE Tensor Tensor::FromLayout(Storage storage, Shape shape, DType dtype, Layout layout) {
  Tensor out(storage->device());
  out.capacity_ = storage->nbytes();
  out.storage_ = std::move(storage);
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.layout_ = std::move(layout);
  return out;
}

OPKIT_INLINE void Tensor::SetDevice(Device device) {
  if (storage_ && MemoryDevice(device) != MemoryDevice(device_))
    Fail(ErrorCode::kInvalidArgument, "cannot be moved to ", ToString(device),
         " without a copy; use CopyFrom or device/copy.hpp");
  device_ = device;
}

OPKIT_INLINE std::string Tensor::Describe() const {
  std::string out = StrCat(dtype_, ToString(shape_), " on ", ToString(device_));
  if (!layout_.is_standard()) out += " in " + ToString(layout_);
  if (!is_dense()) out += " with strides" + ToString(strides_);
  if (!initialized()) out += " (uninitialized)";
  return out;
}

OPKIT_INLINE int64_t Tensor::CheckedBytes(const Shape& shape, DType dtype) {
  int64_t nbytes = 0;
  if (__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes))
    Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, ToString(shape),
          " has more bytes than a 64-bit count can hold");
  return nbytes;
}

OPKIT_INLINE void Tensor::Fail(ErrorCode code, const Text& a, const Text& b, const Text& c,
                               const Text& d, const Text& e, const Text& f) const {
  throw Error(code, StrCat("tensor ", Describe(), ": ", a, b, c, d, e, f), this);
}

OPKIT_INLINE void Tensor::CheckReadable(DType wanted) const {
  if (dtype_ == wanted && (storage_ || numel() == 0)) [[likely]]
    return;
  CheckInitialized();
  Fail(ErrorCode::kTypeMismatch, "accessed as ", wanted, " but holds ", dtype_,
       "; to write another dtype call Resize(shape, dtype) first");
}

OPKIT_INLINE bool Tensor::Fits(const Shape& shape, DType dtype) const {
  int64_t nbytes = 0;
  return !__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes) && nbytes <= capacity_ &&
         (storage_ || nbytes == 0) &&
         (byte_offset_ & (ItemSize(dtype) - 1)) == 0;  // else its elements would lie askew
}

OPKIT_INLINE Storage Tensor::NewMemory(const Shape& shape, DType dtype) const {
  try {
    return AllocateStorage(MemoryDevice(device_), CheckedBytes(shape, dtype));
  } catch (const Error& error) {
    Fail(error.code(), "cannot become ", dtype, ToString(shape), ": ", error.message());
  }
}

OPKIT_INLINE void Tensor::TakeMemory(Storage storage) {
  capacity_ = storage->nbytes();
  storage_ = std::move(storage);
  byte_offset_ = 0;
}

OPKIT_INLINE int64_t Tensor::SpanBytes() const {
  if (!layout_.is_standard()) return capacity_;
  if (numel() == 0) return 0;
  if (strides_.empty()) return CheckedBytes(shape_, dtype_);
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
  return (last + 1) * ItemSize(dtype_);
}

OPKIT_INLINE int64_t Tensor::ViewBytes() const {
  if (strides_.empty()) return CheckedBytes(shape_, dtype_);
  if (strides_.size() != rank()) return -1;
  if (numel() == 0) return 0;
  int64_t end = 1, step = 0;
  for (int i = 0; i < rank(); ++i)
    if (strides_[i] < 0 || __builtin_mul_overflow(shape_[i] - 1, strides_[i], &step) ||
        __builtin_add_overflow(end, step, &end))
      return -1;
  return __builtin_mul_overflow(end, ItemSize(dtype_), &end) ? -1 : end;
}

OPKIT_INLINE void Tensor::CopyElementsTo(char* out) const {
  const auto item = static_cast<size_t>(ItemSize(dtype_));
  const char* base = static_cast<const char*>(raw_data());
  if (numel() == 0) return;
  if (is_dense()) {
    std::memcpy(out, base, static_cast<size_t>(nbytes()));
    return;
  }
  Dims index(shape_);
  for (int i = 0; i < rank(); ++i) index[i] = 0;
  for (int64_t n = numel(); n > 0; --n, out += item) {
    int64_t offset = 0;
    for (int i = 0; i < rank(); ++i) offset += index[i] * strides_[i];
    std::memcpy(out, base + offset * static_cast<int64_t>(item), item);
    for (int i = rank() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
  }
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_TENSOR_IPP_

// ---- opkit/core/impl/attribute.ipp
// The definitions of opkit/core/attribute.hpp.
#ifndef OPKIT_CORE_IMPL_ATTRIBUTE_IPP_
#define OPKIT_CORE_IMPL_ATTRIBUTE_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE const char* ToString(AttributeType type) {
  constexpr const char* kNames[] = {"int",  "float",  "bool",  "string",  "tensor",
                                    "ints", "floats", "bools", "strings", "tensors"};
  return kNames[static_cast<int>(type)];
}

OPKIT_INLINE void Attribute::WrongType(AttributeType wanted) const {
  const bool write_float = type_ == AttributeType::kInt && wanted == AttributeType::kFloat;
  Throw(ErrorCode::kTypeMismatch, "is ", type_, " (", Print(), "), but is read as ", wanted,
        write_float ? "; write " + Print() + ".0" : std::string());
}

OPKIT_INLINE std::string Attribute::Print() const {
  std::string out;
  auto separate = [&] {
    if (!out.empty()) out += ", ";
  };
  for (int64_t value : values_->ints) {
    separate();
    if (type_ == AttributeType::kBool || type_ == AttributeType::kBools)
      out += value ? "true" : "false";
    else
      out += std::to_string(value);
  }
  for (double value : values_->floats) separate(), out += StrCat(value);
  for (const std::string& value : values_->strings) separate(), out += "\"" + value + "\"";
  for (const Tensor& value : values_->tensors) separate(), out += value.Describe();
  return is_list() ? "[" + out + "]" : out;
}

OPKIT_INLINE bool Attribute::SameTensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
  if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
  if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
  const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
  return x.nbytes() == 0 ||
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

OPKIT_INLINE Arguments::Arguments(std::initializer_list<NamedAttribute> list) {
  for (const NamedAttribute& item : list) {
    if (Has(item.name))
      Throw(ErrorCode::kInvalidArgument, "argument '", item.name, "' is given twice, as ",
            ToString(*Find(item.name)), " and as ", ToString(item.value));
    items_.push_back(item);
  }
}

OPKIT_INLINE void Arguments::Set(std::string name, Attribute value) {
  for (NamedAttribute& item : items_)
    if (item.name == name) {
      item.value = std::move(value);
      return;
    }
  items_.push_back({std::move(name), std::move(value)});
}

OPKIT_INLINE bool Arguments::Remove(std::string_view name) {
  for (size_t i = 0; i < items_.size(); ++i)
    if (items_[i].name == name) {
      for (; i + 1 < items_.size(); ++i) std::swap(items_[i], items_[i + 1]);
      items_.pop_back();
      return true;
    }
  return false;
}

OPKIT_INLINE const Attribute* Arguments::Find(std::string_view name) const {
  for (const NamedAttribute& item : items_)
    if (item.name == name) return &item.value;
  return nullptr;
}

OPKIT_INLINE std::vector<std::string> Arguments::Names() const {
  std::vector<std::string> names;
  for (const NamedAttribute& item : items_) names.push_back(item.name);
  return names;
}

}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ATTRIBUTE_IPP_

// ---- opkit/op/abi/impl/attr_map.ipp
// Attributes as text, and the AttrMap that is made of them.
#ifndef OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_
#define OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Number>
std::string NumberText(Number value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
// The shortest text that reads back as the same number; as the same float for a value that is one.
inline std::string FloatText(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? NumberText(narrow) : NumberText(value);
}

OPKIT_INLINE std::string AttributeText(const Attribute& attribute) {
  switch (attribute.type()) {
    case AttributeType::kString:
      return attribute.Get<std::string>();
    case AttributeType::kFloat:
      return FloatText(attribute.Get<double>());
    case AttributeType::kFloats: {
      std::string out;
      for (double value : attribute.Get<std::vector<double>>())
        out += (out.empty() ? "" : ", ") + FloatText(value);
      return "[" + out + "]";
    }
    default:
      return ToString(attribute);
  }
}

}  // namespace detail

OPKIT_INLINE AttrMap::AttrMap(const Arguments& arguments) {
  for (const NamedAttribute& item : arguments)
    if (!item.name.starts_with("__"))
      items_.emplace_back(item.name, detail::AttributeText(item.value));
}
OPKIT_INLINE AttrMap::AttrMap(const opkit_node& node) {
  for (uint64_t i = 0; i < node.num_attrs; ++i)
    if (const std::string_view name = node.attrs[i]->name; !name.starts_with("__"))
      items_.emplace_back(name, node.attrs[i]->text);
}

OPKIT_INLINE void AttrMap::Missing(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& item : items_) known.push_back(item.first);
  Throw(ErrorCode::kNotFound, "no attribute '", name, "'", SuggestName(name, known));
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_ATTR_MAP_IPP_

// ---- opkit/op/abi/impl/op_tensor.ipp
// OpTensor as text, and the error of reading it as another type.
#ifndef OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_
#define OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE std::string ToString(const OpTensor& tensor) {
  if (!tensor.has_value()) return "(none)";
  const opkit_tensor& view = tensor.view_;
  return StrCat(tensor.dtype(), std::vector<int64_t>(view.shape, view.shape + view.rank), " on ",
                tensor.device());
}
OPKIT_INLINE void OpTensor::WrongType(DType wanted) const {
  if (!has_value())
    Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
          "; ask has_value() first");
  Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_OP_TENSOR_IPP_

// ---- opkit/op/abi/abi_attributes.hpp
// Tensors and attributes across opkit_abi.h: a Tensor as an opkit_tensor, Arguments as an array of
// opkit_attr, and back. What another image hands over is checked member by member before it is
// read.
#ifndef OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_
#define OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Bytes of the structs in version 1.0, which every reader may rely on. Members were added since
// where the header's sizes are larger.
inline constexpr uint64_t kAttrBytes = 88, kTensorBytes = 72, kNodeBytes = 104, kGraphBytes = 96,
                          kOpBytes = 192, kKernelBytes = 72, kLibraryBytes = 104,
                          kParameterBytes = 56;
static_assert(sizeof(opkit_attr) >= kAttrBytes && sizeof(opkit_tensor) >= kTensorBytes &&
              sizeof(opkit_node) >= kNodeBytes && sizeof(opkit_graph) >= kGraphBytes &&
              sizeof(opkit_op) >= kOpBytes && sizeof(opkit_kernel) >= kKernelBytes &&
              sizeof(opkit_library) >= kLibraryBytes && sizeof(opkit_parameter) >= kParameterBytes);
// Elements, inputs, kernels: a larger count is taken for damage.
inline constexpr uint64_t kMostParts = 65535;

// Why a tensor or an attribute must not be read, to follow its name ("has the rank 40"); empty
// where it may.
std::string ProblemOfView(const opkit_tensor* view);
std::string ProblemOfAttr(const opkit_attr* attr);

// A view of `tensor`, which with `strides` must outlive it.
opkit_tensor AbiTensor(const Tensor& tensor, const Dims& strides);
// A tensor over the memory that another image views: `host` itself where the view still shows all
// of it, a part of `host`'s storage where it lies in there, else memory that the other image owns.
// Error (kInvalidArgument) for what is no view.
Tensor TensorOfView(const opkit_tensor& view, const Tensor* host = nullptr);

// Holds all that the array points to.
class AbiAttributes {
 public:
  explicit AbiAttributes(const Arguments& arguments);
  AbiAttributes(const AbiAttributes&) = delete;
  AbiAttributes& operator=(const AbiAttributes&) = delete;

  const opkit_attr* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  RefCountedList items_;  // an Item for each attribute
  std::vector<const opkit_attr*> pointers_;
};
// Copies everything. Error (kInvalidArgument) for what is no attribute.
Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count);

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_

// ---- opkit/op/abi/impl/op_resource.ipp
// OpResource over the host's table, and the failures of either side as status and text.
#ifndef OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_
#define OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE opkit_status ReportFailure() noexcept {
  opkit_status status = OPKIT_FAILED;
  const auto report = [&](std::string_view text) {
    g_host->set_error(status, text.data(), text.size());
  };
  try {
    throw;
  } catch (const Error& error) {
    status = StatusOf(error.code());
    report(error.what());
  } catch (const std::exception& thrown) {
    report(thrown.what());
  } catch (...) {
    report("it threw something that is not a std::exception");
  }
  if (g_exceptions) g_exceptions->keep();
  return status;
}
OPKIT_INLINE void ThrowHostFailure(const opkit_host* host, opkit_status status) {
  if (g_exceptions) g_exceptions->rethrow();
  throw Error(CodeOfStatus(status), host->failure_text());
}

}  // namespace detail

OPKIT_INLINE OpAdoption::OpAdoption(const Invocation& identity) {
  const opkit_invocation token{identity.id, identity.parent, static_cast<uint64_t>(identity.kind)};
  detail::g_host->adopt(&token, &scope_);
}

OPKIT_INLINE void* OpResource::alloc(int64_t bytes) const {
  void* memory = nullptr;
  Check(host()->alloc(call_, bytes, &memory));
  return memory;
}
OPKIT_INLINE OpTensor OpResource::temporary(std::span<const int64_t> shape, DType dtype) const {
  opkit_tensor tensor{};
  tensor.size = sizeof tensor;
  Check(host()->temporary(call_, static_cast<int32_t>(dtype), static_cast<int32_t>(shape.size()),
                          shape.data(), &tensor));
  return OpTensor(tensor);
}
OPKIT_INLINE RandomGenerator& OpResource::random() const {
  static_assert(sizeof(RandomGenerator) <= 7 * sizeof(uint64_t));
  uint64_t* room = const_cast<opkit_call*>(call_)->author;
  if (!room[7]) {
    room[7] = 1;
    return *new (room) RandomGenerator(random(0));
  }
  return *std::launder(reinterpret_cast<RandomGenerator*>(room));
}
OPKIT_INLINE Invocation OpResource::invocation() const {
  opkit_invocation now{};
  host()->invocation(&now);
  return {now.id, now.parent, static_cast<InvocationKind>(now.kind)};
}
OPKIT_INLINE OpCompletion OpResource::defer() const {
  opkit_completion* completion = nullptr;
  Check(host()->defer(call_, &completion));
  return OpCompletion(host(), completion);
}
OPKIT_INLINE void OpResource::invoke(std::string_view op, std::span<const OpTensor> inputs,
                                     std::span<const OpTensor> outputs,
                                     const Arguments& args) const {
  const std::string name(op);
  const detail::AbiAttributes attributes(args);
  const auto views = [](std::span<const OpTensor> tensors) {
    return tensors.empty() ? nullptr : &tensors.data()->view();
  };
  Check(host()->invoke(call_, name.c_str(), inputs.size(), views(inputs), outputs.size(),
                       views(outputs), attributes.size(), attributes.data()));
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_

// ---- opkit/op/function/impl/function_signature.ipp
// The answers of functions as an OpStatus, and StatefulOp's own functions.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_

namespace opkit::inline OPKIT_ABI {

OPKIT_INLINE OpStatus detail::StatusOfAnswer(int answer) {
  if (answer == SUCCESS || answer == FAIL) return static_cast<ReturnValue>(answer);
  return OpStatus::Failure("it returned ", answer, "; 1 is SUCCESS and 0 is FAIL");
}

OPKIT_INLINE OpStatus StatefulOp::Run(FunctionPass pass, std::span<const OpTensor> inputs,
                                      std::span<OpTensor> outputs, OpResource& resource) {
  std::vector<OpTensor> ins(inputs.begin(), inputs.end()), outs(outputs.begin(), outputs.end());
  return detail::StatusOfAnswer(pass == FunctionPass::kForward
                                    ? Forward(std::move(ins), std::move(outs), resource)
                                    : Backward(std::move(ins), std::move(outs), resource));
}
OPKIT_INLINE int StatefulOp::Forward(std::vector<OpTensor>, std::vector<OpTensor>,
                                     const OpResource&) {
  OPKIT_ERROR_MSG << "its StatefulOp overrides neither Forward nor Run";
  return FAIL;
}
OPKIT_INLINE int StatefulOp::Backward(std::vector<OpTensor>, std::vector<OpTensor>,
                                      const OpResource&) {
  OPKIT_ERROR_MSG << "its StatefulOp does not override Backward";
  return FAIL;
}

}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_SIGNATURE_IPP_

// ---- opkit/op/abi/impl/abi_attributes.ipp
// Tensors and attributes across the ABI: the views that are handed out, and the checks of those
// that come in.
#ifndef OPKIT_OP_ABI_IMPL_ABI_ATTRIBUTES_IPP_
#define OPKIT_OP_ABI_IMPL_ABI_ATTRIBUTES_IPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

static_assert(static_cast<int>(AttributeType::kTensors) == OPKIT_ATTR_TENSORS);
static_assert(static_cast<int>(DType::kComplex128) == OPKIT_COMPLEX128);

// Bytes from the first element of a view to the end of the last; false where they cannot be
// counted.
inline bool CountBytes(const opkit_tensor& view, int64_t* bytes) {
  int64_t last = 0, step = 0;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 0 && (__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &step) ||
                              __builtin_add_overflow(last, step, &last)))
      return false;
  return !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(last, ItemSize(static_cast<DType>(view.dtype)), bytes);
}

OPKIT_INLINE std::string ProblemOfView(const opkit_tensor* view) {
  if (!view) return "is null";
  if (view->size < kTensorBytes) return "is shorter than version 1.0's";
  if (view->dtype <= 0 || view->dtype >= kNumDTypes)
    return StrCat("has the dtype ", view->dtype, ", which does not exist");
  if (view->rank < 0 || view->rank > OPKIT_MAX_RANK) return StrCat("has the rank ", view->rank);
  if (view->device_type <= 0)
    return StrCat("is on a device of the type ", view->device_type, ", which does not exist");
  if (view->rank > 0 && (!view->shape || !view->strides)) return "has no shape or no strides";
  bool is_empty = false;
  for (int i = 0; i < view->rank; ++i) {
    if (view->shape[i] < 0) return StrCat("has the extent ", view->shape[i], " on axis ", i);
    is_empty |= view->shape[i] == 0;
  }
  int64_t bytes = 0;
  if (!CountBytes(*view, &bytes)) return "reaches further than 64 bits can count";
  return view->data || is_empty ? "" : "has no memory";
}
OPKIT_INLINE std::string ProblemOfAttr(const opkit_attr* attr) {
  if (!attr) return "is null";
  if (attr->size < kAttrBytes) return "is shorter than version 1.0's";
  if (attr->type < 0 || attr->type > OPKIT_ATTR_TENSORS)
    return StrCat("has the type ", attr->type, ", which does not exist");
  if (!attr->name) return "has no name";
  if (attr->count > kMostParts) return StrCat("has ", attr->count, " elements");
  if (attr->type < OPKIT_ATTR_INTS && attr->count != 1)
    return StrCat("has ", attr->count, " elements and is no list");
  const int type = attr->type % 5;
  const bool is_tensor = type == OPKIT_ATTR_TENSOR, is_text = type == OPKIT_ATTR_STRING;
  const void* elements = is_tensor                  ? static_cast<const void*>(attr->tensors)
                         : is_text                  ? static_cast<const void*>(attr->strings)
                         : type == OPKIT_ATTR_FLOAT ? static_cast<const void*>(attr->floats)
                                                    : static_cast<const void*>(attr->ints);
  if (attr->count > 0 && (!elements || (is_text && !attr->string_sizes)))
    return "has elements that are null";
  for (uint64_t i = 0; i < attr->count; ++i) {
    if (is_text && !attr->strings[i]) return "has a null string";
    if (!is_tensor) continue;
    if (const std::string problem = ProblemOfView(attr->tensors[i]); !problem.empty())
      return StrCat("has a tensor that ", problem);
    if (attr->tensors[i]->device_type != OPKIT_CPU) return "has a tensor that is not on the CPU";
  }
  return "";
}

OPKIT_INLINE opkit_tensor AbiTensor(const Tensor& tensor, const Dims& strides) {
  OpTensor view(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(), strides.data(),
                tensor.rank(), tensor.device());
  view.Bind(&tensor);
  return view.view();
}
OPKIT_INLINE Tensor TensorOfView(const opkit_tensor& view, const Tensor* host) {
  if (const std::string problem = ProblemOfView(&view); !problem.empty()) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, "a tensor of a library ", problem);
  const Device device{static_cast<DeviceType>(view.device_type), view.device_index};
  const auto dtype = static_cast<DType>(view.dtype);
  const auto rank = static_cast<size_t>(view.rank);
  Shape shape(Dims(view.shape, rank));
  Dims strides(view.strides, rank);
  if (host && host->raw_data() == view.data && host->dtype() == dtype && host->shape() == shape &&
      host->strides() == strides)
    return *host;
  int64_t bytes = 0;
  CountBytes(view, &bytes);
  if (host && host->storage()) {
    const auto* const begin = static_cast<const char*>(host->storage()->data());
    const int64_t offset = static_cast<const char*>(view.data) - begin;
    if (offset >= 0 && offset <= host->storage()->nbytes() - bytes)
      return Tensor(host->storage(), offset, std::move(shape), dtype, std::move(strides));
  }
  return Tensor(AdoptStorage(MemoryDevice(device), view.data, bytes), 0, std::move(shape), dtype,
                std::move(strides));
}

// An opkit_attr with all that it points to.
struct AbiAttribute : RefCounted {
  AbiAttribute(const std::string& attribute_name, const Attribute& value)
      : name(attribute_name), text(AttributeText(value)) {
    attr.size = sizeof attr;
    attr.type = static_cast<int32_t>(value.type());
    attr.count = value.is_list() ? value.size() : 1;
    switch (attr.type % 5) {
      case OPKIT_ATTR_INT:
        ints = ListOf<int64_t>(value);
        break;
      case OPKIT_ATTR_BOOL:
        for (bool one : ListOf<bool>(value)) ints.push_back(one);
        break;
      case OPKIT_ATTR_FLOAT:
        floats = ListOf<double>(value);
        break;
      case OPKIT_ATTR_STRING:
        strings = ListOf<std::string>(value);
        for (const std::string& one : strings) {
          string_data.push_back(one.c_str());
          string_sizes.push_back(one.size());
        }
        break;
      default:
        tensors = ListOf<Tensor>(value);
        for (const Tensor& tensor : tensors) strides.push_back(tensor.strides());
        for (size_t i = 0; i < tensors.size(); ++i)
          views.push_back(AbiTensor(tensors[i], strides[i]));
        for (const opkit_tensor& view : views) view_pointers.push_back(&view);
    }
    attr.name = name.c_str();
    attr.text = text.c_str();
    attr.ints = ints.data();
    attr.floats = floats.data();
    attr.strings = string_data.data();
    attr.string_sizes = string_sizes.data();
    attr.tensors = view_pointers.data();
  }
  template <class T>
  static std::vector<T> ListOf(const Attribute& value) {
    if (value.is_list()) return value.Get<std::vector<T>>();
    return {value.Get<T>()};
  }

  std::string name, text;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  std::vector<const char*> string_data;
  std::vector<uint64_t> string_sizes;
  std::vector<Tensor> tensors;
  std::vector<Dims> strides;
  std::vector<opkit_tensor> views;
  std::vector<const opkit_tensor*> view_pointers;
  opkit_attr attr{};
};

OPKIT_INLINE AbiAttributes::AbiAttributes(const Arguments& arguments) {
  for (const NamedAttribute& argument : arguments) {
    auto item = MakeIntrusive<AbiAttribute>(argument.name, argument.value);
    pointers_.push_back(&item->attr);
    items_.push_back(std::move(item));
  }
}

OPKIT_INLINE Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count) {
  Arguments out;
  if (count > kMostParts || (count > 0 && !attrs))
    Throw(ErrorCode::kInvalidArgument, "a library hands over ", count, " attributes",
          attrs ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i) {
    if (const std::string problem = ProblemOfAttr(attrs[i]); !problem.empty()) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "attribute ", i,
            attrs[i] && attrs[i]->name ? StrCat(" '", attrs[i]->name, "'") : std::string(),
            " of a library ", problem);
    const opkit_attr& attr = *attrs[i];
    const size_t n = attr.count;
    auto set = [&](auto list) {
      if (attr.type >= OPKIT_ATTR_INTS) return out.Set(attr.name, std::move(list));
      typename decltype(list)::value_type one = list[0];
      out.Set(attr.name, Attribute(one));
    };
    switch (attr.type % 5) {
      case OPKIT_ATTR_INT:
        set(std::vector<int64_t>(attr.ints, attr.ints + n));
        break;
      case OPKIT_ATTR_BOOL:
        set(std::vector<bool>(attr.ints, attr.ints + n));
        break;
      case OPKIT_ATTR_FLOAT:
        set(std::vector<double>(attr.floats, attr.floats + n));
        break;
      case OPKIT_ATTR_STRING: {
        std::vector<std::string> texts;
        for (size_t k = 0; k < n; ++k) texts.emplace_back(attr.strings[k], attr.string_sizes[k]);
        set(std::move(texts));
        break;
      }
      default: {
        std::vector<Tensor> tensors;
        for (size_t k = 0; k < n; ++k) {
          Tensor copy;
          copy.CopyFrom(TensorOfView(*attr.tensors[k]));
          tensors.push_back(std::move(copy));
        }
        set(std::move(tensors));
      }
    }
  }
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_ABI_ATTRIBUTES_IPP_

#endif  // OPKIT_DEFINITIONS

#endif  // OPKIT_SINGLE_INCLUDE_OP_HPP_

// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds opkit/plugin/author.hpp and all that it includes; another single
// header, or a header of the same checkout, may be included beside it, in any order. Declarations
// come first, then the definitions, which a program that defines OPKIT_COMPILED leaves to the one
// unit that defines OPKIT_IMPLEMENTATION.
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
#include <iosfwd>
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

// ---- opkit/macros.hpp
// The ancestors' short spellings of the toolkit's public macros. On by default; off with
// -DOPKIT_NO_SHORT_MACROS, which leaves the OPKIT_ names.
#ifndef OPKIT_MACROS_HPP_
#define OPKIT_MACROS_HPP_

#ifndef OPKIT_NO_SHORT_MACROS

#if defined(OPERATOR_SCHEMA) || defined(REGISTER_CPU_OPERATOR) || defined(REGISTER_OP) ||    \
    defined(REGISTER_GRADIENT) || defined(NO_GRADIENT) || defined(USE_OPERATOR_FUNCTIONS) || \
    defined(INPUT_TAGS) || defined(OUTPUT_TAGS) || defined(REGISTER_PARTITIONER)
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
#define REGISTER_CPU_STREAM_OPERATOR_WITH_PRIORITY(...) \
  OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_PRIORITY(__VA_ARGS__)

#define REGISTER_OP(name) OPKIT_REGISTER_OP(name)
#define REGISTER_PARTITIONER(name) OPKIT_REGISTER_PARTITIONER(name)
#define REGISTER_PASS(name) OPKIT_REGISTER_PASS(name)

#define REGISTER_GRADIENT(...) OPKIT_REGISTER_GRADIENT(__VA_ARGS__)
#define REGISTER_GRADIENT_STR(...) OPKIT_REGISTER_GRADIENT_STR(__VA_ARGS__)
#define NO_GRADIENT(name) OPKIT_NO_GRADIENT(name)
#define SHOULD_NOT_DO_GRADIENT(name) OPKIT_SHOULD_NOT_DO_GRADIENT(name)
#define GRADIENT_NOT_IMPLEMENTED_YET(name) OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name)

#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_MACROS_HPP_

// ---- opkit/version.hpp
// The toolkit's version, and the inline namespace made of it: objects compiled against two versions
// share no symbol, so their layouts never mix. Every header opens
// `namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {`.
#ifndef OPKIT_VERSION_HPP_
#define OPKIT_VERSION_HPP_

#define OPKIT_VERSION_MAJOR 0
#define OPKIT_VERSION_MINOR 1
#define OPKIT_VERSION_PATCH 0
#define OPKIT_VERSION_STRING "0.1.0"

// Changes whenever a type's layout or the meaning of an inline function changes. The two ways to
// consume the toolkit (config.hpp) are two namespaces, so that objects of both never share a type.
#if defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_INLINE_NAMESPACE v0_1_compiled
#else
#define OPKIT_INLINE_NAMESPACE v0_1
#endif

#endif  // OPKIT_VERSION_HPP_

// ---- opkit/config.hpp
// Configuration macros of the toolkit, and its own names for compiler attributes. The lowest
// header: it includes only the version (row 0).
#ifndef OPKIT_CONFIG_HPP_
#define OPKIT_CONFIG_HPP_

#if defined(__clang__) ? __clang_major__ < 16 : defined(__GNUC__) && __GNUC__ < 12
#error "opkit needs a newer compiler: g++ 12 or clang 16 and up"
#endif
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "opkit needs C++20: add -std=c++20 (g++ 12 or clang 16 and up) to the compiler's options"
#endif
#ifndef __cpp_exceptions
#error "opkit needs exceptions: remove -fno-exceptions from the compiler's options"
#endif
#ifndef __cpp_rtti
#error "opkit needs run-time types: remove -fno-rtti from the compiler's options"
#endif

// The two ways to consume the toolkit. Header-only is the default: every definition is inline. With
// OPKIT_COMPILED, headers hold only declarations, templates and hot functions. The other
// definitions stand in impl/*.ipp and are compiled once: by src/*.cpp, or by one unit of the
// program that defines OPKIT_IMPLEMENTATION. That unit includes the widest umbrella that the
// program uses, such as opkit/all.hpp.
#if defined(OPKIT_IMPLEMENTATION) && !defined(OPKIT_COMPILED)
#define OPKIT_COMPILED
#endif
#ifdef OPKIT_COMPILED
#define OPKIT_INLINE
#else
#define OPKIT_INLINE inline
#endif
// A header with an .ipp ends with `#ifdef OPKIT_DEFINITIONS` and the `#include` of that .ipp.
#if !defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_DEFINITIONS
#endif

// Marks a lambda that ParallelFor runs on the device. It is `__device__` alone under nvcc: a
// `__host__ __device__` lambda runs 8 to 10 times slower on the host, so CPU kernels are compiled
// in .cc files.
#ifdef __CUDACC__
#define OPKIT_DEVICE_COMPILER  // the compiler also compiles device kernels
#define OPKIT_DEVICE __device__
#define OPKIT_HOST_DEVICE __host__ __device__
#else
#define OPKIT_DEVICE
#define OPKIT_HOST_DEVICE
#endif

#ifdef __CUDA_ARCH__
#define OPKIT_DEVICE_PASS  // this pass generates device code
#if __CUDA_ARCH__ >= 800
#define OPKIT_DEVICE_BFLOAT16  // for devices with instructions for bfloat16
#endif
#endif

// Makes a symbol visible outside a shared object that is compiled with -fvisibility=hidden.
// Exception types need it, so that another shared object can catch them.
#define OPKIT_VISIBLE __attribute__((visibility("default")))

// Gives each program and each shared library its own copy: the dynamic linker cannot merge hidden
// symbols.
#define OPKIT_IMAGE_LOCAL __attribute__((visibility("hidden")))

// Keeps one copy of a function that the compiler would inline at many places.
#define OPKIT_NOINLINE __attribute__((noinline))

// Marks error paths, so that the compiler places them apart from the caller's hot instructions.
#define OPKIT_COLD __attribute__((cold))

#define OPKIT_CONCAT_(a, b) a##b
#define OPKIT_CONCAT(a, b) OPKIT_CONCAT_(a, b)
#define OPKIT_UNIQUE(prefix) OPKIT_CONCAT(prefix, __COUNTER__)

// First line of a `macro` that belongs at namespace scope; elsewhere a compile error. In a function
// the static_assert prints its sentence, in a class the extern declaration shows its name. Has no
// effect under nvcc, which accepts neither declaration in an unnamed namespace.
#ifdef OPKIT_DEVICE_COMPILER
#define OPKIT_AT_NAMESPACE_SCOPE(macro) static_assert(true)
#else
#define OPKIT_AT_NAMESPACE_SCOPE(macro)                                               \
  static_assert(__builtin_FUNCTION()[0] == '\0',                                      \
                #macro " goes at namespace scope, outside of functions and classes"); \
  [[maybe_unused]] extern struct macro##_goes_at_namespace_scope_not_in_a_class       \
      macro##_goes_at_namespace_scope_not_in_a_class
#endif

#endif  // OPKIT_CONFIG_HPP_

// ---- opkit/base/fixed_name.hpp
// FixedName: a string literal as a template argument, so that names are checked at compile time.
#ifndef OPKIT_BASE_FIXED_NAME_HPP_
#define OPKIT_BASE_FIXED_NAME_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A name of 1 to 31 characters, packed into four integers because of nvcc. nvcc rejects extended
// lambdas inside functions whose template arguments hold a char array. It writes the name as
// FixedName{w0, w1, w2, w3} into the code for the host compiler, where it cannot write an array
// member.
struct FixedName {
  uint64_t w0 = 0, w1 = 0, w2 = 0, w3 = 0;

  template <size_t N>
  consteval FixedName(const char (&text)[N]) {
    static_assert(N >= 2 && N <= 32, "a name has 1 to 31 characters");
    uint64_t* words[] = {&w0, &w1, &w2, &w3};
    for (size_t i = 0; i + 1 < N; ++i)
      *words[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (i % 8 * 8);
  }
  explicit constexpr FixedName(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0)
      : w0(a), w1(b), w2(c), w3(d) {}
  friend constexpr bool operator==(const FixedName&, const FixedName&) = default;

  std::string str() const {
    const uint64_t words[] = {w0, w1, w2, w3};
    std::string out;
    for (size_t i = 0; i < 31; ++i) {
      const char c = static_cast<char>(words[i / 8] >> (i % 8 * 8) & 0xff);
      if (c == 0) break;
      out += c;
    }
    return out;
  }
};

// True if the text looks like a C++ identifier: it is not empty and has no character of other
// names.
consteval bool IsIdentifier(std::string_view name) {
  for (const char c : name)
    if (c == ':' || c == '"' || c == ' ' || c == '<' || c == '.') return false;
  return !name.empty();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_FIXED_NAME_HPP_

// ---- opkit/base/strings.hpp
// StrCat: builds messages by concatenation, without <sstream>. All text for users goes through it,
// so numbers look the same everywhere. Messages are built at hundreds of places with as many
// combinations of types; a template would be instantiated for each combination. A call therefore
// passes an array of parts, two words each, to one ordinary function.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// One part of a message: a string, character, bool, integer, floating-point number (9 significant
// digits), anything with a `ToString(value)` found by argument-dependent lookup, or a vector of
// these (`[1, 2]`). Use Text as a parameter type only: it refers to its source object and does not
// copy it. No string is built until a message is needed; a call costs a few stores.
class Text {
 public:
  constexpr Text() : Text("") {}
  constexpr Text(const char* text) : value_{text}, append_(AppendLiteral) {}
  Text(const std::string& text) : value_{&text}, append_(AppendString) {}
  Text(const std::string_view& text) : value_{&text}, append_(AppendView) {}
  Text(char c) : Text(int64_t{c}, AppendCharacter) {}
  Text(bool b) : Text(b ? "true" : "false") {}
  Text(double number) : append_(AppendFloat) { value_.number = number; }
  Text(int i) : Text(int64_t{i}, AppendInt) {}
  Text(long i) : Text(int64_t{i}, AppendInt) {}
  Text(long long i) : Text(int64_t{i}, AppendInt) {}
  Text(unsigned i) : Text(int64_t{i}, AppendInt) {}
  Text(unsigned long i) : Text(static_cast<int64_t>(i), AppendUInt) {}
  Text(unsigned long long i) : Text(static_cast<int64_t>(i), AppendUInt) {}
  // First tests for a class or an enumeration with the compiler's built-in traits, so that a
  // literal causes no instantiation.
  template <class T>
    requires((__is_class(T) || __is_enum(T)) &&
             requires(const T& value) { std::string_view(ToString(value)); })
  Text(const T& value) : value_{&value} {
    append_ = [](std::string& out, Value part) {
      out += ToString(*static_cast<const T*>(part.object));
    };
  }
  template <class T>
  Text(const std::vector<T>& values) : value_{&values} {
    append_ = [](std::string& out, Value part) {
      const auto& all = *static_cast<const std::vector<T>*>(part.object);
      out += '[';
      for (size_t i = 0; i < all.size(); ++i) {
        if (i) out += ", ";
        Text(static_cast<const T&>(all[i])).AppendTo(out);
      }
      out += ']';
    };
  }

  void AppendTo(std::string& out) const { append_(out, value_); }

 private:
  union Value {
    const void* object = nullptr;
    int64_t integer;
    double number;
  };
  using Append = void(std::string& out, Value part);

  Text(int64_t integer, Append* append) : append_(append) { value_.integer = integer; }
  OPKIT_COLD static void AppendLiteral(std::string& out, Value part);
  OPKIT_COLD static void AppendString(std::string& out, Value part);
  OPKIT_COLD static void AppendView(std::string& out, Value part);
  OPKIT_COLD static void AppendCharacter(std::string& out, Value part);
  OPKIT_COLD static void AppendInt(std::string& out, Value part);
  OPKIT_COLD static void AppendUInt(std::string& out, Value part);
  OPKIT_COLD static void AppendFloat(std::string& out, Value part);

  Value value_;
  Append* append_;
};

OPKIT_COLD std::string Join(std::initializer_list<Text> parts);

}  // namespace detail

// Concatenates the parts; each has a type that detail::Text accepts.
template <class... Parts>
OPKIT_COLD std::string StrCat(const Parts&... parts) {
  return detail::Join({parts...});
}

// Prints any type that has a ToString: std::cout << shape.
template <class Char, class Traits, class T>
  requires((std::is_class_v<T> || std::is_enum_v<T>) &&
           !std::is_convertible_v<const T&, std::string_view> &&
           requires(const T& value) { std::string_view(ToString(value)); })
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const T& value) {
  return out << ToString(value);
}

}}  // namespace opkit

#endif  // OPKIT_BASE_STRINGS_HPP_

// ---- opkit/base/error.hpp
// opkit::Error, the one exception of the toolkit: a code to branch on, a message with what was
// expected, what was found and how to fix it, and context lines that callers add. Wrong input of a
// user throws an Error; a broken invariant of the toolkit fails an OPKIT_ASSERT.
#ifndef OPKIT_BASE_ERROR_HPP_
#define OPKIT_BASE_ERROR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kind of a failure, for programs that react to it; the C boundary has the same kinds.
enum class ErrorCode {
  kInvalidArgument,     // a value, shape or count that the callee does not accept
  kTypeMismatch,        // a type or dtype other than the requested one
  kNotFound,            // no such operator, blob, backend, argument
  kAlreadyExists,       // registered or created twice
  kOutOfRange,          // an index or a number outside what can be represented
  kUninitialized,       // a tensor or blob read before anything was written
  kOutOfMemory,         // an allocator has no memory of this size
  kUnsupported,         // understood, but not possible on this device, dtype or build
  kFailedPrecondition,  // called in a state that does not allow it
  kCancelled,           // ended by Cancel, or skipped after it
  kDeadlineExceeded,    // the time given to a wait or a run is over
  kOperatorFailed,      // RunOnDevice returned false, or threw something that is not an Error
  kIo,                  // a file that cannot be opened, read or written
};

const char* ToString(ErrorCode code);

// `what()` is the message followed by one indented line for each context. Copies are independent.
// AddContext is not thread-safe: add lines to a copy of an Error that an event holds, because all
// threads that wait for the event share it.
class OPKIT_VISIBLE Error : public std::runtime_error {
 public:
  // Use Throw() below to make an Error and throw it.
  Error(ErrorCode code, std::string message, const void* subject = nullptr);

  // Return the whole text, and its parts: the code, the message alone, and the lines of context.
  OPKIT_INLINE const char* what() const noexcept override;
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::string>& context() const noexcept { return context_; }
  // Returns the number of lines left out of a long context. The context keeps the first lines,
  // which are nearest to the failure, and the last lines; a line between them prints this number.
  int lines_left_out() const noexcept { return left_out_; }
  // Returns the original exception if this error was made from an exception of another type; else
  // null.
  const std::exception_ptr& cause() const noexcept { return cause_; }
  Error& SetCause(std::exception_ptr cause) { return cause_ = std::move(cause), *this; }
  // Returns the address of the object that the error is about (a Tensor), for a caller who knows
  // its name.
  const void* subject() const noexcept { return subject_; }

  // Adds a line of context: a place where the failure passed. The innermost place comes first.
  Error& AddContext(std::string line);
  // True once threads share this object; it is then immutable. Copies start unshared.
  bool is_shared() const noexcept { return shared_.Get(); }
  void SetShared() const noexcept { shared_.Set(); }

 private:
  // A flag that copies do not inherit.
  struct SharedFlag {
    SharedFlag() = default;
    SharedFlag(const SharedFlag&) {}
    SharedFlag& operator=(const SharedFlag&) { return *this; }
    // Relaxed: the thread that shares the object sets the flag before other threads can see it.
    bool Get() const { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
    void Set() const { __atomic_store_n(&value, true, __ATOMIC_RELAXED); }
    mutable bool value = false;
  };

  ErrorCode code_;
  const void* subject_;
  std::string message_;
  std::string what_;
  std::vector<std::string> context_;
  int left_out_ = 0;
  std::exception_ptr cause_;
  SharedFlag shared_;
};

namespace detail {
[[noreturn]] OPKIT_COLD void ThrowJoined(ErrorCode code, std::initializer_list<Text> parts);
}

// Throws an Error whose message is StrCat of the parts.
template <class Part, class... Parts>
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Part& part, const Parts&... parts) {
  detail::ThrowJoined(code, {part, parts...});
}

// Returns the current exception as an Error; call it in a catch block. An exception of another type
// becomes the Error's cause(), and its what() the message.
OPKIT_COLD Error CurrentError();

namespace detail {

// Throws the current exception again with one more line of context; call it in a catch block. An
// exception of another type becomes an Error. Adds the line to a copy if the Error is shared. A
// shared Error of a derived class is thrown without the line, because a copy would lose the derived
// class's part.
[[noreturn]] OPKIT_COLD void RethrowInContext(std::string line);

// Returns call(), and adds the line context() to an exception that it throws.
template <class F, class Context>
decltype(auto) InContext(F&& call, Context&& context) {
  try {
    return call();
  } catch (...) {
    RethrowInContext(context());
  }
}

[[noreturn]] OPKIT_COLD void AssertFailed(const char* condition, const char* file, int line);
}  // namespace detail

}}  // namespace opkit

// Throws an Error (kInvalidArgument) with the condition's text and the parts if the condition is
// false. For operator authors.
#define OPKIT_ENFORCE(condition, ...)                                        \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument,                   \
                     "expected " #condition __VA_OPT__(": ", ) __VA_ARGS__); \
  } while (0)

// Aborts if the condition, an invariant of the toolkit itself, is false. Compiled out with NDEBUG.
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
// parameters that are called before the callee returns (loop bodies, visitors). A UniqueFunction
// holds a callable that outlives the call.
#ifndef OPKIT_BASE_FUNCTION_REF_HPP_
#define OPKIT_BASE_FUNCTION_REF_HPP_

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

// ---- opkit/base/unique_function.hpp
// UniqueFunction: owns anything callable, also move-only callables. Has 48 bytes of room inside, so
// that the usual task (a few captured pointers) costs no allocation. One cache line.
#ifndef OPKIT_BASE_UNIQUE_FUNCTION_HPP_
#define OPKIT_BASE_UNIQUE_FUNCTION_HPP_

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

// ---- opkit/abi/opkit_abi.h
/* opkit_abi.h: everything that crosses between a host program and a library of operators. C99.
 *
 * A library exports one function, opkit_library_entry. Its argument is the host's table of
 * functions. It returns a description of the library: its operators, and for each of them the
 * functions that infer and compute. Authors in C++ include opkit/op.hpp, which fills all of this
 * in; examples/library/plain_c.c is a library in C.
 *
 * These rules keep libraries and hosts of different versions working together:
 * 1. Every struct begins with `size`, its sizeof when its maker was compiled, and `extension`, null
 *    except by private agreement. A reader checks OPKIT_ABI_HAS(p, member) before it reads a member
 *    that version 1.0 did not have.
 * 2. Members never change their place, type or meaning and are never removed. New members go at the
 *    end of their struct, and OPKIT_ABI_MINOR grows by one. Any other change needs a new major
 *    version, whose hosts refuse older libraries. A host ignores flags that it does not know.
 *    opkit_scope and opkit_invocation have no size and never change.
 * 3. An array of structs is read with its first element's `size` as the stride (opkit_tensor_at,
 *    opkit_value_at), or is an array of pointers.
 * 4. A null function pointer is a function that its side does not offer. A status that the reader
 *    does not know is a failure.
 * 5. Memory does not change its owner: the side that allocates also frees. Strings are UTF-8 and
 *    end with a zero. Everything that is passed to a call lasts until the call returns; the
 *    description of a library lasts until the library is unloaded.
 * 6. No exception and no longjmp passes through a call in either direction.
 * 7. Several threads may call a function at once, but only one at a time may run an instance.
 */
#ifndef OPKIT_ABI_OPKIT_ABI_H_
#define OPKIT_ABI_OPKIT_ABI_H_

#ifdef __cplusplus
extern "C" {
#endif

#define OPKIT_ABI_MAJOR 1
#define OPKIT_ABI_MINOR 4

/* True if the struct at p is long enough to have the member. */
#define OPKIT_ABI_HAS(p, member) \
  ((p)->size >= (uint64_t)((const char*)(&(p)->member + 1) - (const char*)(p)))

/* The result of a function. The text given to host->set_error explains a failure. */
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
  OPKIT_FAILED = 12,
  OPKIT_IO = 13 /* a file that cannot be opened, read or written; since 1.4 */
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

/* The way in which an output is stored. */
enum {
  OPKIT_REQ_NONE = 0,    /* the output is not needed and has no memory */
  OPKIT_REQ_WRITE = 1,   /* the result replaces the old elements */
  OPKIT_REQ_INPLACE = 2, /* the memory of an input; the operator allows it */
  OPKIT_REQ_ADD = 3      /* add to the old elements; only with OPKIT_OP_ACCEPTS_ADD */
};

enum { OPKIT_LOG_INFO = 0, OPKIT_LOG_WARNING = 1, OPKIT_LOG_ERROR = 2 };

/* A view of a tensor. A left-out input or output has the dtype OPKIT_UNDEFINED and no data. */
typedef struct opkit_tensor {
  uint64_t size;
  const void* extension;
  void* data; /* the first element, in the memory of the device */
  const int64_t* shape;
  const int64_t* strides; /* in elements, one for each extent */
  int32_t rank;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
  int32_t req;      /* for outputs: OPKIT_REQ_... */
  int32_t reserved; /* 0 */
  const void* host; /* for the host: copy it to views that you pass to invoke */
} opkit_tensor;

/* The type of an attribute. The number of a list type is that of its element type plus five. */
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

/* A named attribute. The array for the attribute's type has `count` elements (1 for a single
 * value); the other three arrays are null. */
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

/* A graph that a node carries as an attribute. A node comes after the producers of its inputs. */
typedef struct opkit_graph {
  uint64_t size;
  const void* extension;
  const char* name; /* the attribute's name */
  uint64_t num_inputs;
  const char* const* inputs;
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_constants;
  const char* const* constant_names;
  const opkit_tensor* const* constants;
  uint64_t num_nodes;
  const opkit_node* const* nodes;
  /* Since 1.3. The known facts about named values, read with opkit_value_at; num_values is 0 if the
   * graph was not inferred. */
  uint64_t num_values;
  const char* const* value_names;
  const struct opkit_value* values;
} opkit_graph;

/* A call site of an operator. */
struct opkit_node {
  uint64_t size;
  const void* extension;
  const char* op;
  const char* name; /* empty without a name */
  int32_t device_type;
  int32_t device_index;
  uint64_t num_inputs;
  const char* const* inputs; /* names of values; empty for an input that is left out */
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_attrs;
  const opkit_attr* const* attrs;
  uint64_t num_graphs;
  const opkit_graph* const* graphs;
  /* Since 1.3. Names of nodes that must run before this node, although it reads none of their
   * outputs; the requested backend, or an empty text; nonzero if the node computes a gradient. */
  uint64_t num_control_inputs;
  const char* const* control_inputs;
  const char* backend;
  int32_t is_gradient;
  int32_t reserved;
};

/* The known facts about an input or output before it is computed. Inference adds more facts. */
#define OPKIT_MAX_RANK 32
typedef struct opkit_value {
  uint64_t size;
  const void* extension;
  int32_t present; /* 0: the node leaves the value out */
  int32_t dtype;   /* -1: unknown */
  int32_t rank;    /* -1: unknown */
  int32_t reserved;
  /* -1: unknown; below -1: a symbol, and equal numbers are the same symbol */
  int64_t dims[OPKIT_MAX_RANK];
  const opkit_tensor* constant; /* the elements of an input if they are known, else null */
  const char* layout;           /* since 1.3: an input's layout, in propose; null: standard */
} opkit_value;

typedef struct opkit_host opkit_host;

/* The address of scratch of 0 bytes. */
#define OPKIT_NO_BYTES ((void*)64)

/* One run of an operator. Tensors are read with opkit_input and opkit_output. */
typedef struct opkit_call {
  uint64_t size;
  const void* extension;
  const opkit_host* host;
  void* context;  /* for the host alone */
  const char* op; /* the operator's name */
  uint64_t num_inputs;
  const opkit_tensor* inputs;
  uint64_t num_outputs;
  const opkit_tensor* outputs;
  /* Scratch of the size that scratch_bytes, or the chosen opkit_config, requests; undefined at the
   * start. OPKIT_NO_BYTES for 0 bytes; null without scratch_bytes and without propose. */
  void* scratch;
  int64_t scratch_bytes;
  void* stream; /* a cudaStream_t if the device is CUDA: issue the work there */
  int32_t device_type;
  int32_t device_index;
  int32_t asynchronous; /* nonzero: work issued now runs later, at its place in the stream */
  int32_t reserved;
  uint64_t random_seed; /* the run's seed, drawn from the program's seed and the node */
  uint64_t author[8];   /* for the author's side, all 0 at the start */
  /* Since 1.3. Names of the layouts of inputs and outputs. A tensor with a layout has no valid
   * strides; with a null name or array it has. Only for kernels whose configuration has layouts. */
  const char* const* input_layouts;
  const char* const* output_layouts;
} opkit_call;

/* A handle of a run that ends after its function has returned: see opkit_host.defer. */
typedef struct opkit_completion opkit_completion;

/* Since 1.2. A handle of an operator that runs in parallel to its caller: see invoke_async. */
typedef struct opkit_pending opkit_pending;

/* Storage that a function of the host uses, on the caller's stack. */
typedef struct opkit_scope {
  uint64_t storage[8];
} opkit_scope;

/* The identity of an operator's run. The work that the run starts has this identity. */
typedef struct opkit_invocation {
  uint64_t id;
  uint64_t parent;
  uint64_t kind; /* in the low 8 bits; the other bits are the host's: keep them unchanged */
} opkit_invocation;

/* The functions of the host. `call` is the argument of forward or backward. */
struct opkit_host {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version; /* the version of the host's toolkit */

  /* Explains the failure that this thread is about to return; add_error appends to the text. The
   * text is copied. */
  void (*set_error)(opkit_status status, const char* text, uint64_t text_size);
  void (*add_error)(const char* text, uint64_t text_size);
  /* Returns the reason of the last failure, in this thread, of a function of this table. */
  const char* (*failure_text)(void);

  /* Allocates `bytes` bytes of the device's memory, aligned to 64 bytes; null for 0 bytes. The host
   * frees the memory when the run has ended. May be called in any thread of the call. */
  opkit_status (*alloc)(const opkit_call* call, int64_t bytes, void** memory);
  /* Allocates a dense tensor in the same way, written to *tensor. */
  opkit_status (*temporary)(const opkit_call* call, int32_t dtype, int32_t rank,
                            const int64_t* shape, opkit_tensor* tensor);
  /* Calls body(context, begin, end) for ranges that make up [0, n), on the host's threads and this
   * one. A range has `grain` indices; with 0 the host measures. Returns when all ranges have run.
   * After a failure of `body`, skips the ranges that have not begun and returns its status. Runs at
   * once, also on a CPU stream: call it inside launch to run the loop in the stream. */
  opkit_status (*parallel_for)(const opkit_call* call, int64_t n, int64_t grain,
                               opkit_status (*body)(void* context, int64_t begin, int64_t end),
                               void* context);
  /* Calls work(context) in the order of the stream, and then drop(context); without a stream, calls
   * both at once. Calls drop also if work is never called, and if launch fails. */
  opkit_status (*launch)(const opkit_call* call, opkit_status (*work)(void* context),
                         void (*drop)(void* context), void* context);
  /* Runs another operator of the host on these tensors and writes into the given outputs. If the
   * device has a stream, the operator runs in the order of the stream. The host keeps the operator
   * prepared between runs. Only one thread of a call at a time may call it. */
  opkit_status (*invoke)(const opkit_call* call, const char* op, uint64_t num_inputs,
                         const opkit_tensor* inputs, uint64_t num_outputs,
                         const opkit_tensor* outputs, uint64_t num_attrs,
                         const opkit_attr* const* attrs);
  void (*log)(const opkit_call* call, int32_t level, const char* text);

  /* Begins a named part of the operator's own code in this thread; scope_end ends it. */
  void (*scope_begin)(const opkit_call* call, const char* name, opkit_scope* scope);
  void (*scope_end)(opkit_scope* scope);
  /* Writes the identity of this thread's work; adopt uses it in another thread, until scope_end. */
  void (*invocation)(opkit_invocation* identity);
  void (*adopt)(const opkit_invocation* identity, opkit_scope* scope);

  /* For operators with OPKIT_OP_ASYNC: lets forward return OPKIT_OK before its outputs are
   * computed. When the work ends, complete must be called once, from any thread. Tensors and memory
   * of the call stay valid until then. */
  opkit_status (*defer)(const opkit_call* call, opkit_completion** completion);
  void (*complete)(opkit_completion* completion, opkit_status status, const char* text);

  /* Since 1.1. For operators with OPKIT_OP_ALLOCATES_OUTPUTS, before forward returns: allocates an
   * output that has the dtype OPKIT_UNDEFINED and OPKIT_REQ_WRITE, in a shape that depends on the
   * data. Writes the tensor to *tensor and to the output of the call. */
  opkit_status (*allocate_output)(const opkit_call* call, uint64_t output, int32_t dtype,
                                  int32_t rank, const int64_t* shape, opkit_tensor* tensor);

  /* Since 1.2. Runs another operator as invoke does, but on the host's threads, while the caller
   * continues. Only issues the work if invoke would. *pending lasts as long as the call. */
  opkit_status (*invoke_async)(const opkit_call* call, const char* op, uint64_t num_inputs,
                               const opkit_tensor* inputs, uint64_t num_outputs,
                               const opkit_tensor* outputs, uint64_t num_attrs,
                               const opkit_attr* const* attrs, opkit_pending** pending);
  /* Waits until the started operator has ended, and returns its status. After the caller's function
   * has returned, the host waits for the others; their failure is that of the function. */
  opkit_status (*wait)(const opkit_call* call, opkit_pending* pending);

  /* Since 1.3. Runs a graph of the call's node, or a part of it, in the host: for nodes that an
   * operator has taken but cannot run itself. Inputs and outputs are matched by position; results
   * are written to the given tensors, which are dense. Only on the CPU; on a CPU stream in the
   * stream's order. The host prepares the graph once, so the graph must last as long as the
   * operator. Only one thread of a call at a time may call it. */
  opkit_status (*run_graph)(const opkit_call* call, const opkit_graph* graph, uint64_t num_inputs,
                            const opkit_tensor* inputs, uint64_t num_outputs,
                            const opkit_tensor* outputs);

  /* Since 1.4. These functions may be called in any thread, also outside of a call. */
  /* Returns 1 if the program has an operator of this name, else 0. */
  int32_t (*has_operator)(const char* op);
  /* Adds the facts that the program's operator infers about the node's values, as infer_type and
   * infer_shape of an opkit_op do. Returns OPKIT_NOT_FOUND if the program has no such operator. */
  opkit_status (*infer)(const opkit_node* node, opkit_value* inputs, opkit_value* outputs);
  /* Allocates `bytes` bytes, not 0, of a device's memory, aligned to 64 bytes, by the program's
   * current allocator. *owner is the argument for deallocate. */
  opkit_status (*allocate)(int32_t device_type, int32_t device_index, int64_t bytes, void** memory,
                           void** owner);
  void (*deallocate)(void* owner, void* memory, int64_t bytes);
  /* is_profiling returns 1 if the program records a profile, else 0. span_begin begins a span in
   * this thread; scope_end ends it. `kind` is that of opkit_invocation. `node` may be null. */
  int32_t (*is_profiling)(void);
  void (*span_begin)(int32_t kind, const char* name, const char* node, opkit_scope* scope);
};

/* Since 1.3. One way in which a kernel can run a node. */
typedef struct opkit_config {
  uint64_t size;
  const void* extension;
  /* Layouts of inputs and outputs. Null name: the standard layout. Null array: all standard. */
  const char* const* input_layouts;
  const char* const* output_layouts;
  uint64_t num_inplace;
  const int32_t* inplace; /* num_inplace pairs: input, output that may share memory */
  int64_t scratch_bytes;  /* scratch of one run */
  double cost_ns;         /* estimated time of one run; negative: unknown */
  const char* variant;    /* since 1.4: names one of several ways with equal layouts; null: usual */
} opkit_config;
/* Receives the configurations that a kernel proposes, the best first. `add` copies. */
typedef struct opkit_proposals opkit_proposals;
struct opkit_proposals {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  opkit_status (*add)(const opkit_proposals* proposals, const opkit_config* config);
};

/* Since 1.4. Offers a kernel to compute two nodes as one: `node`, and `next`, the only reader of
 * its output 0. Each node has its chosen configuration. */
typedef struct opkit_fusion opkit_fusion;
struct opkit_fusion {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  const opkit_node* node;
  const opkit_value* inputs;
  const opkit_value* outputs;
  const opkit_config* config;
  const opkit_node* next;
  const opkit_value* next_inputs;
  const opkit_value* next_outputs;
  const opkit_config* next_config;
  uint64_t read; /* the input of `next` that is output 0 of the node */
  /* Replaces both nodes by one node, for a kernel of the same backend, with its configuration. The
   * new node has the outputs of `next` and reads inputs of both. Without a call both nodes stay. */
  opkit_status (*fuse)(const opkit_fusion* fusion, const opkit_node* node,
                       const opkit_config* config);
};

/* The implementation of an operator for a type of device. */
typedef struct opkit_kernel opkit_kernel;
struct opkit_kernel {
  uint64_t size;
  const void* extension;
  const char* device; /* "cpu", "gpu", "cpu_stream", or the name of another device type */
  /* Makes the `instance` of forward and backward for each operator that the host creates; destroy
   * frees it with the operator. Without create the instance is `author`. */
  opkit_status (*create)(const opkit_kernel* kernel, const opkit_node* node, void** instance);
  void (*destroy)(void* instance);
  opkit_status (*forward)(void* instance, const opkit_call* call);
  /* Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs. */
  opkit_status (*backward)(void* instance, const opkit_call* call);
  uint64_t flags;
  const void* author; /* for the author's side alone */
  /* Since 1.1. The name by which a node requests the kernel; null: the device's plain kernel. */
  const char* backend;
  /* Since 1.3. Proposes the ways in which the kernel can run the node. If it cannot, it proposes no
   * way, or returns OPKIT_UNSUPPORTED with the reason. Without propose there is one way: standard
   * layouts, and the operator's own in-place pairs and scratch. */
  opkit_status (*propose)(const opkit_kernel* kernel, const opkit_node* node,
                          const opkit_value* inputs, const opkit_value* outputs,
                          const opkit_proposals* proposals);
  /* Replaces create for a configuration that was proposed and chosen. */
  opkit_status (*create_for)(const opkit_kernel* kernel, const opkit_node* node,
                             const opkit_config* config, void** instance);
  /* Since 1.4. Calls fusion->fuse to compute the next node too, or does nothing. */
  opkit_status (*fuse)(const opkit_kernel* kernel, const opkit_fusion* fusion);
};
/* backward needs data that forward keeps in its instance: both run the same instance. */
#define OPKIT_KERNEL_STATEFUL ((uint64_t)1)

/* The documentation of one attribute, input or output. */
typedef struct opkit_parameter {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const opkit_attr* default_value; /* an attribute's default; null: none */
  int32_t type;                    /* an attribute's type; -1: any */
  int32_t required;
  uint64_t dtypes; /* bit 1 << dtype for each dtype that an input or output may have; 0: any */
} opkit_parameter;

/* The argument of opkit_op.gradient, which adds nodes. They compute the gradients of the inputs of
 * `node` from the gradients of its outputs. The values of `node` keep their names; new_name gives
 * names to all new values. A null or empty name means no gradient. A sparse gradient consists of
 * indices and values: slices along the first axis. */
typedef struct opkit_gradient opkit_gradient;
struct opkit_gradient {
  uint64_t size;
  const void* extension;
  const opkit_node* node;
  const char* const* dense;   /* for each output: the name of its gradient, */
  const char* const* indices; /* or the names of its sparse gradient */
  const char* const* values;
  void* context; /* for the host alone */
  /* Returns a new name for a gradient of `value`, or, with a suffix, for a part of the computation:
   * "x" and "_grad_mask". The first name without a suffix is the usual name for the gradient of
   * `value`. The name lasts until the gradient function returns; null after a failure. */
  const char* (*new_name)(const opkit_gradient* gradient, const char* value, const char* suffix);
  /* Adds one node. Add the nodes in the order in which they run. */
  opkit_status (*add_node)(const opkit_gradient* gradient, const opkit_node* node);
  /* Names the gradient of an input: dense, or indices and values. */
  opkit_status (*set_input)(const opkit_gradient* gradient, uint64_t input, const char* dense,
                            const char* indices, const char* values);
};

/* Since 1.1. The work of one run. */
typedef struct opkit_cost {
  uint64_t size;
  const void* extension;
  uint64_t flops;
  uint64_t bytes_read;
  uint64_t bytes_written;
  uint64_t params_bytes;
} opkit_cost;

/* Since 1.4. Receives the inputs for a test of an operator, one by one. `add` copies. */
typedef struct opkit_test_inputs opkit_test_inputs;
struct opkit_test_inputs {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  opkit_status (*add)(const opkit_test_inputs* inputs, const opkit_tensor* tensor);
};

/* An operator. `name` and one kernel are required. Since version 1.1, an operator that the program
 * does not have yet also needs parse_attrs; infer_shape if it has outputs; and infer_type if these
 * cannot have the dtype of input 0. OPKIT_OP_ALLOCATES_OUTPUTS makes infer_shape and infer_type
 * optional. With OPKIT_OP_SUBGRAPH all three are optional: without infer_shape and infer_type, the
 * types and shapes are those of the graph that the node carries. */
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

  /* Returns the numbers of inputs and outputs of a node with these attributes and graphs (-1: any;
   * with OPKIT_OP_SUBGRAPH that of the one graph), or a failure for wrong attributes. */
  opkit_status (*parse_attrs)(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                              int32_t* num_outputs);
  /* Infer unknown dtypes and shapes: of outputs from inputs, or the reverse. While some inputs are
   * unknown, a failure only means that nothing can be inferred yet. Without infer_type, outputs
   * have the dtype of input 0. */
  opkit_status (*infer_type)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  opkit_status (*infer_shape)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                              opkit_value* outputs);
  /* Sets mutated[i] to 1 for each input to which the operator writes. All are 0 before the call. */
  opkit_status (*mutated_inputs)(const opkit_op* op, const opkit_node* node, uint8_t* mutated);
  /* Returns the scratch of a run in *bytes, for inputs whose shapes are known. */
  opkit_status (*scratch_bytes)(const opkit_op* op, const opkit_node* node,
                                const opkit_value* inputs, int64_t* bytes);

  uint64_t num_attrs;
  const opkit_parameter* const* attrs;
  uint64_t num_inputs;
  const opkit_parameter* const* inputs;
  uint64_t num_outputs;
  const opkit_parameter* const* outputs;
  const void* author; /* for the author's side alone */
  /* Replaces a backward function: adds the nodes that compute the gradient. */
  opkit_status (*gradient)(const opkit_op* op, const opkit_gradient* gradient);
  /* Since 1.1. Returns the work of a run in *cost, which the host has set to the bytes of all
   * inputs and outputs and 0 flops. Without this function the cost is that value. */
  opkit_status (*cost)(const opkit_op* op, const opkit_node* node, const opkit_value* inputs,
                       const opkit_value* outputs, opkit_cost* cost);
  /* Since 1.4. Adds inputs with which a test may run the operator, the same for the same seed.
   * Their floating-point type is `dtype`. Adds no inputs if the operator has none for that type. */
  opkit_status (*test_inputs)(const opkit_op* op, int32_t dtype, uint64_t seed,
                              const opkit_test_inputs* inputs);
};
#define OPKIT_OP_SUBGRAPH ((uint64_t)1)        /* reads a graph that its node carries */
#define OPKIT_OP_ACCEPTS_STRIDES ((uint64_t)2) /* otherwise inputs arrive dense */
#define OPKIT_OP_ACCEPTS_ADD ((uint64_t)4)     /* otherwise the host adds */
#define OPKIT_OP_ASYNC ((uint64_t)8)           /* forward may call host->defer */
/* two runs may differ, or have other effects: its nodes are never merged, folded or dropped */
#define OPKIT_OP_EFFECTS ((uint64_t)16)
/* no gradient flows; a request for one is a mistake; the gradient is not written yet */
#define OPKIT_OP_NO_GRADIENT ((uint64_t)32)
#define OPKIT_OP_SHOULD_NOT_GRADIENT ((uint64_t)64)
#define OPKIT_OP_GRADIENT_NOT_IMPLEMENTED ((uint64_t)128)
#define OPKIT_OP_OPEN_ATTRS ((uint64_t)256) /* accepts attributes that are not in attrs */
/* with OPKIT_OP_EFFECTS, if the only effect is data that a node keeps between its runs: equal
   inputs give equal results */
#define OPKIT_OP_KEEPS_STATE ((uint64_t)512)
/* since 1.1: forward allocates outputs whose shapes inference does not know (allocate_output) */
#define OPKIT_OP_ALLOCATES_OUTPUTS ((uint64_t)1024)
/* since 1.4: accepts only attrs; otherwise parse_attrs without attrs accepts any attribute */
#define OPKIT_OP_CLOSED_ATTRS ((uint64_t)2048)

/* Since 1.3. An order of elements in memory other than row by row. Names of layouts are unique: a
 * library's layout is ignored if its name is taken. */
typedef struct opkit_layout opkit_layout;
struct opkit_layout {
  uint64_t size;
  const void* extension;
  const char* name;
  /* Returns the bytes of a tensor in *bytes; null: the sum of its elements' bytes. */
  opkit_status (*bytes)(const opkit_layout* layout, int32_t dtype, int32_t rank,
                        const int64_t* shape, int64_t* bytes);
  /* Both functions are required. They write all of `to`, which has enough memory. All data is in
   * host memory. */
  opkit_status (*to_standard)(const opkit_layout* layout, const opkit_tensor* from,
                              const opkit_tensor* to);
  opkit_status (*from_standard)(const opkit_layout* layout, const opkit_tensor* from,
                                const opkit_tensor* to);
  double ns_per_byte; /* an estimate, for each byte read or written */
  const void* author; /* for the author's side alone */
};
/* Since 1.3. A direct conversion between two layouts other than the standard one. */
typedef struct opkit_layout_converter opkit_layout_converter;
struct opkit_layout_converter {
  uint64_t size;
  const void* extension;
  const char* from;
  const char* to;
  opkit_status (*convert)(const opkit_layout_converter* converter, const opkit_tensor* from,
                          const opkit_tensor* to);
  double ns_per_byte;
  const void* author;
};

/* Since 1.3. A type of device with memory of its own. A kernel for it has its name in
 * opkit_kernel.device. The work is done when forward returns, or ends as in opkit_host.defer, so
 * that a device can have its own queues. Several threads may call the functions at once. */
typedef struct opkit_device opkit_device;
enum { OPKIT_HOST_TO_DEVICE = 1, OPKIT_DEVICE_TO_HOST = 2, OPKIT_DEVICE_TO_DEVICE = 3 };
struct opkit_device {
  uint64_t size;
  const void* extension;
  const char* name;
  int32_t type; /* a number from 80 to 127 that no other device of the program has */
  int32_t reserved;
  /* Returns a failure with the reason if no device has that index. Null: every index exists. */
  opkit_status (*available)(const opkit_device* device, int32_t index);
  /* Allocates memory aligned to 64 bytes, or returns OPKIT_OUT_OF_MEMORY; `bytes` is not 0. */
  opkit_status (*alloc)(const opkit_device* device, int32_t index, int64_t bytes, void** memory);
  void (*free)(const opkit_device* device, void* memory, int64_t bytes);
  /* Copies `bytes` bytes, not 0, in one direction, and returns when the copy is done. The ranges do
   * not overlap. Between two devices, `index` is that of the target. */
  opkit_status (*copy)(const opkit_device* device, int32_t index, int32_t direction, void* to,
                       const void* from, int64_t bytes);
  const void* author; /* for the author's side alone */
};

/* Since 1.3. The graph that a partitioner partitions, and the functions for it.
 * Everything that `begin` gets lasts until `end` is called. */
typedef struct opkit_partition opkit_partition;
struct opkit_partition {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  /* The whole graph with its types. Nodes are in an order in which they can run; a node's number is
   * its index in the list. */
  const opkit_graph* graph;
  const uint8_t* taken; /* for each node: nonzero if an earlier partitioner has made it */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* Writes the graph, or in `review` the subgraph, as text in the form of MXNet's symbols. *nodes
   * has, for each node of the text, its number in that graph; -1 for inputs and constants. The text
   * and *nodes last until the partitioner's function returns. */
  opkit_status (*json)(const opkit_partition* partition, const char** text, uint64_t* num_nodes,
                       const int64_t** nodes);

  /* In `mark`. Takes a node. Nodes of different kinds (numbers from 0 on) are never in one
   * subgraph; kind -1 may be with any kind. Nodes of different sets (numbers from 0 on) are never
   * in one subgraph; pass 0 if there is only one set. */
  opkit_status (*take)(const opkit_partition* partition, uint64_t node, int32_t kind, int32_t set);
  /* In `mark`. Leaves a node in the graph, for this reason. */
  opkit_status (*refuse)(const opkit_partition* partition, uint64_t node, const char* why);

  /* In `review`. A legal subgraph, the numbers of its nodes in the whole graph, and the operator
   * that replaces the subgraph; `op` does not carry the subgraph yet. Inputs and outputs of the
   * subgraph have the names of the graph's values. */
  const opkit_graph* subgraph;
  const opkit_node* op;
  int64_t id;
  int32_t kind;
  int32_t reserved;
  uint64_t num_nodes;
  const uint64_t* nodes;
  opkit_status (*reject)(const opkit_partition* partition, const char* why);
  /* set_attr sets an attribute of the operator. add_constant adds a constant to the subgraph, under
   * a name that the subgraph does not use. */
  opkit_status (*set_attr)(const opkit_partition* partition, const opkit_attr* attr);
  opkit_status (*add_constant)(const opkit_partition* partition, const char* name,
                               const opkit_tensor* value);
};

/* Since 1.3. Decides which nodes of a graph go to an operator of the library. The host calls begin,
 * mark, review for each subgraph, and end, in this order; for several graphs possibly at once. */
typedef struct opkit_partitioner opkit_partitioner;
struct opkit_partitioner {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  /* Returns the operator that replaces a subgraph of this kind. */
  const char* (*subgraph_op)(const opkit_partitioner* partitioner, int32_t kind);
  /* Makes the `work` of the next three functions. Null: `work` is `author`. */
  opkit_status (*begin)(const opkit_partitioner* partitioner, const opkit_partition* partition,
                        void** work);
  opkit_status (*mark)(void* work, const opkit_partition* partition);
  opkit_status (*review)(void* work, const opkit_partition* partition); /* null: accepts all */
  void (*end)(void* work);
  const void* author; /* for the author's side alone */
};

/* Since 1.3. A graph that a pass changes. Node numbers are those of `graph`. The host makes all
 * changes together after the pass has returned, and only if the result is valid. */
typedef struct opkit_rewrite opkit_rewrite;
struct opkit_rewrite {
  uint64_t size;
  const void* extension;
  void* context;            /* for the host alone */
  const opkit_graph* graph; /* has its types; nodes are in an order in which they can run */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* Adds a node before the node of this number, or at the end for num_nodes. */
  opkit_status (*add_node)(const opkit_rewrite* rewrite, uint64_t before, const opkit_node* node);
  opkit_status (*replace_node)(const opkit_rewrite* rewrite, uint64_t node,
                               const opkit_node* replacement);
  opkit_status (*remove_node)(const opkit_rewrite* rewrite, uint64_t node);
  /* Makes every node that reads `from` read `to`. */
  opkit_status (*replace_uses)(const opkit_rewrite* rewrite, const char* from, const char* to);
  opkit_status (*add_constant)(const opkit_rewrite* rewrite, const char* name,
                               const opkit_tensor* value);
  opkit_status (*remove_constant)(const opkit_rewrite* rewrite, const char* name);
  /* Sets the whole result instead; the new graph has the inputs and outputs of `graph`. */
  opkit_status (*set_graph)(const opkit_rewrite* rewrite, const opkit_graph* graph);
};
typedef struct opkit_pass opkit_pass;
struct opkit_pass {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  opkit_status (*run)(const opkit_pass* pass, const opkit_rewrite* rewrite);
  const void* author; /* for the author's side alone */
};

/* Since 1.4. The description of a backend of the library's kernels (opkit_kernel.backend). */
typedef struct opkit_backend opkit_backend;
struct opkit_backend {
  uint64_t size;
  const void* extension;
  const char* name;
  /* For the library's own operators: kernels of a higher rank come first; plain kernels have rank
   * 0. Negative: no rank. */
  int32_t rank;
  int32_t reserved;
  /* Returns a failure with the reason if the backend cannot run on this machine. Called once,
   * before the first node that its kernels might run. Null: the backend can run. */
  opkit_status (*available)(const opkit_backend* backend);
  const void* author; /* for the author's side alone */
};

/* The description of a library. */
typedef struct opkit_library {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* name;    /* null: the file's name */
  const char* version; /* of the toolkit with which it was compiled; null: none */
  /* Called once, before anything else, with the host's version. A failure stops the loading. */
  opkit_status (*initialize)(uint32_t host_abi_major, uint32_t host_abi_minor);
  void (*finalize)(void); /* called once: before unloading, or when the process ends */
  uint64_t num_ops;
  const opkit_op* const* ops;
  /* Since 1.3. A host of an older version refuses a library with partitioners or passes. */
  uint64_t num_partitioners;
  const opkit_partitioner* const* partitioners;
  uint64_t num_passes;
  const opkit_pass* const* passes;
  /* Since 1.3. Registered before the operators. */
  uint64_t num_layouts;
  const opkit_layout* const* layouts;
  uint64_t num_layout_converters;
  const opkit_layout_converter* const* layout_converters;
  uint64_t num_devices;
  const opkit_device* const* devices;
  /* Since 1.4. */
  uint64_t num_backends;
  const opkit_backend* const* backends;
  const char* own_version; /* the library's own; null: none */
} opkit_library;

/* The name of the one function that a library exports. The function calls host->set_error and
 * returns null if the library cannot serve this host. */
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
/* Returns the number of elements of a tensor. */
static inline int64_t opkit_numel(const opkit_tensor* tensor) {
  int64_t count = 1;
  int32_t i;
  for (i = 0; i < tensor->rank; ++i) count *= tensor->shape[i];
  return count;
}
/* Returns the attribute of that name; null if there is none. */
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

// ---- opkit/base/ref_counted.hpp
// Intrusive reference counting: a handle is one pointer wide and an object takes one allocation.
// Light to include: <memory> costs more than the rest of this folder. Storage and events use it.
#ifndef OPKIT_BASE_REF_COUNTED_HPP_
#define OPKIT_BASE_REF_COUNTED_HPP_

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

// ---- opkit/base/suggest.hpp
// "Did you mean …?": the known name nearest to an unknown one, for error messages.
#ifndef OPKIT_BASE_SUGGEST_HPP_
#define OPKIT_BASE_SUGGEST_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the edit distance (Damerau-Levenshtein in its optimal string alignment form), ignoring
// case.
OPKIT_COLD size_t EditDistance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `name`, or "" if none is near enough to be a slip: at most a
// third of the letters of `name` differ, or one letter.
OPKIT_COLD std::string NearestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

// Returns " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" if there are no candidates.
OPKIT_COLD std::string SuggestName(std::string_view name,
                                   const std::vector<std::string>& candidates);

}}  // namespace opkit

#endif  // OPKIT_BASE_SUGGEST_HPP_

// ---- opkit/core/dtype.hpp
// Element types: the enumeration, the C++ type of each one of whole bytes, and float16 and bfloat16
// with their conversions. complex64 is a pair of float32, complex128 a pair of float64. They are
// the dtypes of std::complex, and of any other class with the same members and layout; this header
// does not include <complex>.
#ifndef OPKIT_CORE_DTYPE_HPP_
#define OPKIT_CORE_DTYPE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

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
  kInt2,
  kUInt2,
  kInt4,
  kUInt4,
  kFloat4E2M1,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0,
  kString,
  kSequence,
  kOptional,
};
inline constexpr int kNumDTypes = 29;
// The dtypes below this number, bool to complex128, are the plain ones: their elements are whole
// bytes, and every part of the toolkit handles them. A part that handles another dtype says so.
inline constexpr int kNumPlainDTypes = 16;

// True if the number is a dtype, kUndefined included. A number from a file or another host may be
// invalid.
constexpr bool IsDType(DType dtype) { return static_cast<int>(dtype) < kNumDTypes; }

// True for bool to complex128.
constexpr bool IsPlain(DType dtype) {
  return dtype != DType::kUndefined && static_cast<int>(dtype) < kNumPlainDTypes;
}
// True for the numbers of two and four bits: int2 to float4_e2m1fn. A byte has four or two of them,
// the first one in the low bits.
constexpr bool IsPacked(DType dtype) {
  return dtype >= DType::kInt2 && dtype <= DType::kFloat4E2M1;
}
// True for string, sequence and optional, whose elements are C++ objects: std::string, or the
// tensors of a sequence or an optional value (core/sequence.hpp).
constexpr bool IsObject(DType dtype) { return dtype >= DType::kString && IsDType(dtype); }
// True for the five floating-point types of one byte, and for float8_e8m0fnu, a power of two.
constexpr bool IsFloat8(DType dtype) {
  return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat8E8M0;
}

constexpr const char* ToString(DType dtype) {
  constexpr const char* kNames[kNumDTypes] = {"undefined",
                                              "bool",
                                              "int8",
                                              "int16",
                                              "int32",
                                              "int64",
                                              "uint8",
                                              "uint16",
                                              "uint32",
                                              "uint64",
                                              "float16",
                                              "bfloat16",
                                              "float32",
                                              "float64",
                                              "complex64",
                                              "complex128",
                                              "int2",
                                              "uint2",
                                              "int4",
                                              "uint4",
                                              "float4_e2m1fn",
                                              "float8_e4m3fn",
                                              "float8_e4m3fnuz",
                                              "float8_e5m2",
                                              "float8_e5m2fnuz",
                                              "float8_e8m0fnu",
                                              "string",
                                              "sequence",
                                              "optional"};
  return IsDType(dtype) ? kNames[static_cast<int>(dtype)] : "not a dtype";
}

// Returns the number of bits of one element; 0 if its size is not fixed: for kUndefined, string,
// sequence, optional and an invalid number.
constexpr int BitSize(DType dtype) {
  constexpr uint8_t kBits[kNumDTypes] = {0,   8, 8, 16, 32, 64, 8, 16, 32, 64, 16, 16, 32, 64, 64,
                                         128, 2, 2, 4,  4,  4,  8, 8,  8,  8,  8,  0,  0,  0};
  return IsDType(dtype) ? kBits[static_cast<int>(dtype)] : 0;
}

namespace detail {
[[noreturn]] OPKIT_COLD inline void ThrowNoItemSize(DType dtype) {
  Throw(ErrorCode::kUnsupported, "elements of ", ToString(dtype), " are not whole bytes",
        IsPacked(dtype) ? "; cast them to a type of 8 bits or more" : "");
}
}  // namespace detail

// Returns the number of bytes of one element; 0 for kUndefined and for an invalid number. Error
// (kUnsupported) for a packed dtype, and for string, sequence and optional.
constexpr int64_t ItemSize(DType dtype) {
  if (IsPacked(dtype) || IsObject(dtype)) [[unlikely]]
    detail::ThrowNoItemSize(dtype);
  return BitSize(dtype) / 8;
}

// Returns the number of bytes of `count` neighbouring elements; a packed dtype fills the last byte
// with zero bits. The bytes must fit in 64 bits. Error (kUnsupported) for string, sequence and
// optional.
constexpr int64_t BytesOf(int64_t count, DType dtype) {
  if (!IsPacked(dtype)) [[likely]]
    return count * ItemSize(dtype);
  const int64_t in_a_byte = 8 / BitSize(dtype);
  return count / in_a_byte + (count % in_a_byte != 0);
}

// True for float16 to float64, true for int8 to uint64, and true for the two complex types. No
// other dtype is one of these three kinds.
constexpr bool IsFloatingPoint(DType dtype) {
  return dtype >= DType::kFloat16 && dtype <= DType::kFloat64;
}
constexpr bool IsInteger(DType dtype) { return dtype >= DType::kInt8 && dtype <= DType::kUInt64; }
constexpr bool IsComplex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

// IEEE 754 binary16. Conversions round to nearest, ties to even; overflow becomes infinity; NaN
// stays NaN; subnormals are kept. Device code converts by the GPU's instructions.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  constexpr float16(float value) : bits(FromFloat(value)) {}
  constexpr operator float() const { return ToFloat(bits); }

  static constexpr uint16_t FromFloat(float value) {
#ifdef OPKIT_DEVICE_PASS
    if (!std::is_constant_evaluated()) {
      uint16_t half;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
      return half;
    }
#endif
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((x >> 16) & 0x8000);
    const uint32_t magnitude = x & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN, quiet
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
    if (magnitude < 0x38800000) {                       // below the smallest normal, 2^-14
      // The addition of 0.5 moves the 10-bit fraction into the low bits and rounds it.
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
      return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3f000000);
    }
    const uint32_t odd = (magnitude >> 13) & 1;
    return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
  }
  static constexpr float ToFloat(uint16_t half) {
#ifdef OPKIT_DEVICE_PASS
    if (!std::is_constant_evaluated()) {
      float value;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
      return value;
    }
#endif
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

// The upper 16 bits of a float32. Conversion rounds to nearest, ties to even.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  constexpr bfloat16(float value) : bits(FromFloat(value)) {}
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  static constexpr uint16_t FromFloat(float value) {
#ifdef OPKIT_DEVICE_BFLOAT16
    if (!std::is_constant_evaluated()) {
      uint16_t half;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
      return half;
    }
#endif
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

// Returns the dtype for the size of T. Each kind has four dtypes of 1 to 8 bytes, numbered by size.
template <class T>
constexpr DType IntegerDType(DType of_one_byte) {
  return static_cast<DType>(static_cast<int>(of_one_byte) + std::countr_zero(sizeof(T)));
}

template <class T>
constexpr DType DTypeOfImpl() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else if constexpr (std::is_same_v<T, std::string>)
    return DType::kString;
  else if constexpr (std::is_same_v<T, float16>)
    return DType::kFloat16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::kBFloat16;
  else if constexpr (ComplexOf<T, float>)
    return DType::kComplex64;
  else if constexpr (ComplexOf<T, double>)
    return DType::kComplex128;
  else if constexpr (requires { DType{T::kElementDType}; })
    return T::kElementDType;  // the types of float8.hpp
  else if constexpr (!std::is_integral_v<T>)
    return DType::kUndefined;
  else if constexpr (sizeof(T) > 8)
    return DType::kUndefined;  // __int128 is integral under -std=gnu++20
  else if constexpr (std::is_signed_v<T> && !std::is_same_v<T, wchar_t>)
    return IntegerDType<T>(DType::kInt8);
  else if constexpr (!std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t> &&
                     !std::is_same_v<T, wchar_t>)
    return IntegerDType<T>(DType::kUInt8);
  else
    return DType::kUndefined;
}

}  // namespace detail

// The DType of a C++ type; kUndefined for a type that is not an element type. `char` is int8 on
// machines where it is signed (x86-64), and uint8 on others (ARM64).
template <class T>
inline constexpr DType kDTypeOf = detail::DTypeOfImpl<std::remove_cv_t<T>>();

// Types of which operators compute, and whose elements are plain bytes.
template <class T>
concept Element = kDTypeOf<T> != DType::kUndefined && !std::is_same_v<T, std::string>;
namespace detail {
// Types that a tensor can hold.
template <class T>
concept TensorElement = Element<T> || std::is_same_v<T, std::string>;
}  // namespace detail

// Returns the DType of a name such as "float32"; kUndefined for other names.
inline DType DTypeFromName(std::string_view name) {
  for (int i = 1; i < kNumDTypes; ++i)
    if (name == ToString(static_cast<DType>(i))) return static_cast<DType>(i);
  return DType::kUndefined;
}

namespace detail {
template <class T, class F>
decltype(auto) CallWithType(F& f) {
  if constexpr (requires { f.template operator()<T>(); })
    return f.template operator()<T>();
  else
    return f(T{});
}
template <class Result, class T, class F>
Result CallWithTypeAs(F& f) {
  return CallWithType<T>(f);
}
}  // namespace detail

// Calls `f` with the C++ type T of `dtype`, one of Ts, and returns its result. `f` is a lambda
// `[&]<class T>() {…}` or `[&](auto tag) { using T = decltype(tag); … }`. Any other dtype is an
// Error (kTypeMismatch) that lists the supported dtypes.
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
  if (!call)
    Throw(ErrorCode::kTypeMismatch, "dtype ", ToString(dtype),
          " is not supported here; expected one of ",
          std::vector<std::string>{ToString(kDTypeOf<Ts>)...});
  return call(f);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_DTYPE_HPP_

// ---- opkit/base/hook.hpp
// Hook: lets code of a lower row call a function of an upper row without including its header. The
// calling folder declares the hook; the upper header fills it. A program that does not include the
// upper header does not compile the function behind the hook.
#ifndef OPKIT_BASE_HOOK_HPP_
#define OPKIT_BASE_HOOK_HPP_

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

#endif  // OPKIT_BASE_HOOK_HPP_

// ---- opkit/core/layout.hpp
// Layout: the order of a tensor's elements in memory. The standard layout, id 0, is row-major or
// follows the strides. RegisterLayout (core/layout_registry.hpp) returns all other ids. An optional
// immutable descriptor describes the chosen blocking.
#ifndef OPKIT_CORE_LAYOUT_HPP_
#define OPKIT_CORE_LAYOUT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using LayoutId = uint16_t;
inline constexpr LayoutId kStandardLayout = 0;
class Shape;
class Tensor;
struct Device;
enum class DType : uint8_t;
struct Layout;

namespace detail {
// Returns the name of a registered layout, an empty string for others. The hook is empty until a
// layout is registered.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::string(LayoutId)> g_layout_name{
    "the name of a layout", "opkit/core/layout_registry.hpp"};
// Hooks for ConvertLayout, ConvertLayoutTo and MakeTensor of core/layout_registry.hpp. Callers of
// the hooks do not include the registry, because only a program that registers a layout needs it.
inline constexpr const char* kOtherLayout = "a tensor in another layout than the standard one";
inline constexpr const char* kLayoutHeader = "opkit/core/layout_registry.hpp";
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Tensor&, const Layout&)> g_convert_layout{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Tensor&, Tensor&)> g_convert_layout_to{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Shape&, DType, const Layout&, Device)>
    g_make_tensor{kOtherLayout, kLayoutHeader};
}  // namespace detail

struct Layout {
  // Base of a backend's own description of a blocked layout. Immutable once shared.
  class Descriptor : public detail::RefCounted {
   public:
    virtual bool Equals(const Descriptor& other) const = 0;
    virtual std::string Describe() const = 0;
    // Returns the number of bytes of a tensor of this shape. A negative number means the size of
    // the standard layout.
    virtual int64_t Bytes(const Shape& shape, DType dtype) const {
      return static_cast<void>(shape), static_cast<void>(dtype), -1;
    }
  };

  LayoutId id = kStandardLayout;
  detail::IntrusivePtr<const Descriptor> descriptor;

  bool is_standard() const { return id == kStandardLayout; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.id != b.id) return false;
    if (a.descriptor == b.descriptor) return true;
    return a.descriptor && b.descriptor && a.descriptor->Equals(*b.descriptor);
  }
  // Returns the name and the descriptor's text: "nChw8c 16 channels".
  friend std::string ToString(const Layout& layout) {
    if (layout.is_standard()) return "standard";
    std::string name = detail::g_layout_name ? detail::g_layout_name(layout.id) : std::string();
    if (name.empty()) name = StrCat("layout ", layout.id);
    return layout.descriptor ? StrCat(name, " ", layout.descriptor->Describe()) : name;
  }
};

}}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HPP_

// ---- opkit/base/index.hpp
// Index: converts an int to the size_t that indexes a container. Values, nodes and axes are
// numbered by int, containers by size_t.
#ifndef OPKIT_BASE_INDEX_HPP_
#define OPKIT_BASE_INDEX_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts `i`, which must not be negative.
template <class Integer>
constexpr size_t Index(Integer i) {
  return static_cast<size_t>(i);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_INDEX_HPP_

// ---- opkit/core/shape.hpp
// Shape: the extents of a tensor, checked once when it is made (no negative extent, element count
// within int64). Dims: the small vector of int64 underneath, also used for strides.
#ifndef OPKIT_CORE_SHAPE_HPP_
#define OPKIT_CORE_SHAPE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Anything contiguous that holds integers: vectors, spans, arrays.
template <class R>
concept IntegerRange = requires(const R& range) {
  requires std::is_integral_v<std::remove_cvref_t<decltype(*range.data())>>;
  requires sizeof(*range.data()) > 1;
  static_cast<size_t>(range.size());
};

OPKIT_COLD size_t IndexFromEnd(int64_t i, const int64_t* values, int size);
// Returns `i` counted from the front; a negative `i` counts from the end. Error (kOutOfRange) that
// prints `values`, the extents or strides.
inline size_t CheckedIndex(int64_t i, const int64_t* values, int size) {
  if (i >= 0 && i < size) [[likely]]
    return static_cast<size_t>(i);
  return IndexFromEnd(i, values, size);
}

}  // namespace detail

// A vector of int64 that allocates only beyond six entries.
class Dims {
 public:
  static constexpr int kInline = 6;

  Dims() {}  // not defaulted: a const object with a Dims member needs no initializer
  Dims(std::initializer_list<int64_t> values) { Assign(values.begin(), values.size()); }
  Dims(const int64_t* values, size_t count) { Assign(values, count); }
  template <detail::IntegerRange R>
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
  // A negative index counts from the end. Error (kOutOfRange) for an index outside the vector.
  int64_t operator[](int i) const { return data()[detail::CheckedIndex(i, data(), size_)]; }
  int64_t& operator[](int i) { return data()[detail::CheckedIndex(i, data(), size_)]; }

  OPKIT_COLD friend std::string ToString(const Dims& dims) {
    return StrCat(std::vector<int64_t>(dims.begin(), dims.end()));
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    const int64_t *x = a.data(), *y = b.data();
    for (int i = 0; i < a.size_ && a.size_ == b.size_; ++i)
      if (x[i] != y[i]) return false;
    return a.size_ == b.size_;
  }

 private:
  void Assign(const int64_t* values, size_t count);
// If Steal is not inlined, g++ 12 does not see that heap_ is always set before it is read.
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
  template <detail::IntegerRange R>
    requires(!std::is_base_of_v<Shape, R> && !std::is_base_of_v<Dims, R>)
  explicit Shape(const R& dims) : Shape(Dims(dims)) {}

  int rank() const { return dims_.size(); }
  int64_t numel() const { return numel_; }
  // Negative axes count from the end. Error (kOutOfRange) for an axis that does not exist.
  int64_t dim(int axis) const { return dims_[axis]; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int size() const { return dims_.size(); }
  const int64_t* begin() const { return dims_.begin(); }
  const int64_t* end() const { return dims_.end(); }
  const int64_t* data() const { return dims_.data(); }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  // Returns `axis` counted from the front; a negative axis counts from the end. Error: kOutOfRange.
  int Axis(int64_t axis) const {
    return static_cast<int>(detail::CheckedIndex(axis, dims_.data(), rank()));
  }
  // Returns the product of the extents in [begin, end).
  int64_t NumelBetween(int begin, int end) const;
  // Returns the strides, in elements, of the row-major dense tensor of this shape.
  Dims DenseStrides() const;

  // True if `strides` place the elements as DenseStrides() does. Ignores strides of axes of extent
  // 1, and all strides of an empty tensor.
  bool IsDense(const Dims& strides) const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend std::string ToString(const Shape& shape) { return StrCat(shape.dims_); }

 private:
  // Counts the elements. The product of the non-zero extents must fit int64 even if another extent
  // is zero, because strides are such products.
  static int64_t CountElements(const Dims& dims);

  Dims dims_;
  int64_t numel_ = 1;
};

}}  // namespace opkit

#endif  // OPKIT_CORE_SHAPE_HPP_

// ---- opkit/base/platform.hpp
// The services of the operating system and the processor that the toolkit uses: a mutex and a
// Parker that survive fork, thread names, affinity, a cheap clock, performance counters, files as
// memory. All of it is POSIX and Linux; a port to another system replaces this header.
//
// pthread and futex are used directly because the standard's types cannot be abandoned in a forked
// child: a std::thread there cannot be joined or destroyed, a locked std::mutex cannot be reset,
// and destroying a condition variable waits for waiters that no longer exist.
#ifndef OPKIT_BASE_PLATFORM_HPP_
#define OPKIT_BASE_PLATFORM_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr size_t kCacheLine = 64;

// A mutex for sections of a few instructions. A thread that has to wait spins briefly before it
// sleeps in the kernel.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(Mutex&&) = delete;
  void Lock() { pthread_mutex_lock(&mutex_); }
  void Unlock() { pthread_mutex_unlock(&mutex_); }
  // Unlocks the mutex in a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

// Holds a lock from its construction to the end of its scope.
template <class Lock>
class LockGuard {
 public:
  explicit LockGuard(Lock& lock) : lock_(lock) { lock_.Lock(); }
  LockGuard(LockGuard&&) = delete;
  ~LockGuard() { lock_.Unlock(); }

 private:
  Lock& lock_;
};
using MutexLock = LockGuard<Mutex>;

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Reads a counter for spans of microseconds on one thread; costs about 10 ns. Cycles on x86, ns
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

// A place where one thread sleeps until another thread signals it; lives on the sleeper's stack.
// Set() and Wake() are separate: the signaller calls Set() under the lock of the list that holds
// the sleeper, and Wake(), a system call, after unlocking. The Parker may be destroyed once Set()
// is done, so Wake() uses only its address.
class Parker {
 public:
  using Address = const void*;

  // Release pairs with the acquire in Wait: the woken thread sees the signaller's writes.
  Address Set() {
    signalled_.store(1, std::memory_order_release);
    return &signalled_;
  }
  static void Wake(Address address) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  // Sleeps until Set() and returns true; returns false once `deadline_ns` has passed. The deadline
  // is on the clock of MonotonicNs; a negative value means no deadline.
  bool Wait(int64_t deadline_ns = -1);

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// Returns the system's number of the calling thread, which traces and debuggers show.
inline int64_t CurrentThreadId() { return syscall(SYS_gettid); }

// Counts the CPUs that the calling thread may run on; at least 1.
int AvailableCpus();

// Calls visit(cpu), in rising order, for each CPU that the calling thread may run on; for none if
// the system has more CPUs than a cpu_set_t.
template <class F>
void VisitAvailableCpus(F&& visit) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) visit(cpu);
}

// Returns the CPU that the calling thread runs on now.
inline int CurrentCpu() { return sched_getcpu(); }

// Keeps a sleeping thread off one CPU until it has woken. Linux tends to wake a thread on the
// waker's CPU. There the thread waits for milliseconds if the waker goes on running. Created and
// destroyed by the sleeping thread.
class CpuBan {
 public:
  CpuBan() = default;
  CpuBan(CpuBan&&) = delete;
  ~CpuBan() {
    if (banned_) Lift();
  }

  // Bans `cpu`; another thread calls it, once. Does nothing if the sleeper may run on no other CPU.
  void Ban(int cpu);

 private:
  void Lift();

  const int64_t thread_ = CurrentThreadId();
  bool banned_ = false;
  cpu_set_t allowed_;  // the CPUs before the ban, if banned_
};

// Pins the calling thread to the `index`-th CPU that it may run on (modulo the number of these
// CPUs).
void PinCurrentThread(int index);

// Sets the name that ps, top and gdb show; the system keeps the first 15 characters.
void SetCurrentThreadName(const char* name);
void GetCurrentThreadName(char (&name)[16]);

// Gives the calling thread a stack for signal handlers (sigaltstack), unless it has one already. A
// handler needs this stack after an overflow of the thread's own stack. Freed when the thread ends.
void MakeSignalStack();

// Starts a Linux counter on the calling thread and returns its descriptor, or -errno. `type` and
// `config` are those of perf_event_open(2). With `kernel`, counts what happens in the kernel
// too, which the system may forbid. With `new_threads`, counts also on the threads that this thread
// starts from now on, and on theirs.
int OpenThreadCounter(uint32_t type, uint64_t config, bool kernel, bool new_threads);
// Returns the present count; 0 if the counter cannot be read. The count is scaled up if several
// counters had to share one of the processor's counters.
uint64_t ReadThreadCounter(int file);
inline void CloseThreadCounter(int file) { close(file); }

// Returns how often the system has taken the processor away from the calling thread so far, though
// the thread had work (involuntary context switches).
int64_t ThreadPreemptions();
// Returns the milliseconds since 1970, by a clock that may be set back.
int64_t UnixMs();
// Returns the size in bytes of the processor's last cache; 32 MiB if the system does not know it.
int64_t LastCacheBytes();

// Reads up to `room` bytes from the start of a file, which may be one of /proc and have no size.
// Returns the number of bytes; 0 for a file that cannot be read.
size_t ReadStartOfFile(const char* path, char* to, size_t room);
// A cache of the processor that holds data.
struct CpuCache {
  int level = 0;  // 1 is the nearest to the core
  int64_t bytes = 0;
  int shared_by = 1;  // processors that share it
};
constexpr int kMostCpuCaches = 4;
// Fills `caches` from the smallest level on and returns their number; 0 if the system does not know
// them.
int CpuCaches(CpuCache (&caches)[kMostCpuCaches]);

// A file mapped into memory for reading. MapFile of interop/mapped_file.hpp owns a mapping.
struct FileMapping {
  void* data = nullptr;  // null also for an empty file
  size_t size = 0;
  int error = 0;         // errno if it could not be opened or mapped
  bool is_file = false;  // a regular file: no folder, pipe or device
};
FileMapping MapFileForReading(const char* path);
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Releases the whole pages inside the range, for bytes that are not needed soon; the next read
// loads them from the file again.
void ForgetMapped(const void* data, size_t size);

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_PLATFORM_HPP_

// ---- opkit/core/device_type.hpp
// DeviceType: the kinds of devices, with DLPack's numbers, and the facts that the toolkit knows
// about each of them without its backend. No other portable header names a vendor's devices.
#ifndef OPKIT_CORE_DEVICE_TYPE_HPP_
#define OPKIT_CORE_DEVICE_TYPE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

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
  // Not a type of DLPack. Its tensors are in CPU memory, and are exported as CPU tensors.
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
// Common types stand first, because lookups go from the front.
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
// Returns null for a type of the user's own.
constexpr const KnownDeviceType* FindKnownDeviceType(DeviceType type) {
  for (const KnownDeviceType& known : kKnownDeviceTypes)
    if (known.type == type) return &known;
  return nullptr;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_TYPE_HPP_

// ---- opkit/core/device.hpp
// Device: {type, index}, the place where a tensor's bytes are and an operator runs. A program may
// register device types of its own beside those of core/device_type.hpp.
#ifndef OPKIT_CORE_DEVICE_HPP_
#define OPKIT_CORE_DEVICE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

namespace detail {

// The facts about a device type that the toolkit needs to use its memory.
struct DeviceTypeInfo {
  std::string name;                         // "cpu", …; unique, used in messages and in JSON
  DeviceType memory = DeviceType::kExtDev;  // the type whose allocator and copies it uses
  bool host_accessible = false;             // the host may dereference pointers to its memory
};

// The known device types and those that the program has registered.
struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  // An array, not a vector: heap memory of a library leaks when the library is unloaded.
  struct Entries {
    static constexpr int kMost = 64;  // room for a user's type in every slot of a DeviceTable
    Entries() {
      for (const KnownDeviceType& known : kKnownDeviceTypes)
        all[count++] = {known.type, {known.name, known.memory, known.host_accessible}};
    }
    const Entry* begin() const { return all; }
    const Entry* end() const { return all + count; }
    Entry all[kMost];
    int count = 0;
  };
  Mutex mutex;
  Entries entries;
};

OPKIT_COLD DeviceTypeRegistry& DeviceTypes();

}  // namespace detail

OPKIT_COLD detail::DeviceTypeInfo GetDeviceTypeInfo(DeviceType type);

// Returns the number of the device type of that name; -1 if this program knows none.
OPKIT_COLD int FindDeviceType(std::string_view name);

// Registers a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless. Errors: kAlreadyExists for another name or number of a known type;
// kOutOfRange for too many types.
OPKIT_COLD DeviceType RegisterDeviceType(DeviceType type, detail::DeviceTypeInfo info);

// Sets the function that explains why a device of the type is missing. The function returns an
// empty string for a device that exists. Backends call this. Error (kOutOfRange) for a type outside
// of 0 to 127.
OPKIT_COLD void SetDeviceAvailability(DeviceType type, std::string (*why_not)(Device));
// Returns the reason why the device is missing; empty if it exists, or if its type has no such
// function.
OPKIT_COLD std::string WhyNoDevice(Device device);

// True if the host may dereference pointers to this device's memory. Takes a lock only for types
// that the program has registered.
inline bool IsHostAccessible(DeviceType type) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(type);
  return known ? known->host_accessible : GetDeviceTypeInfo(type).host_accessible;
}

// Returns the device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on
// cpu:0.
Device MemoryDevice(Device device);

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
OPKIT_COLD inline std::string ToString(Device device) {
  return device.index == 0 ? ToString(device.type)
                           : StrCat(ToString(device.type), ":", device.index);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_DEVICE_HPP_

// ---- opkit/core/device_table.hpp
// DeviceTable: a pointer for each device type, such as its allocator. Backends fill the tables;
// every allocation, event and call reads them without a lock.
#ifndef OPKIT_CORE_DEVICE_TABLE_HPP_
#define OPKIT_CORE_DEVICE_TABLE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int kDeviceSlots = 128;  // device types 0 to 127 have a place in each table

// Returns the type's place in a table. Error (kOutOfRange) if it has none.
int DeviceSlot(DeviceType type);

// Pointer points to an object or a function. Thread-safe.
template <class Pointer>
class DeviceTable {
 public:
  // Error (kOutOfRange) for a type outside of 0 to 127.
  std::atomic<Pointer>& operator[](DeviceType type) { return slots_[DeviceSlot(type)]; }
  // Returns null if the type has no pointer, or is outside of 0 to 127. Acquire: pairs with the
  // store, which publishes the object behind the pointer.
  Pointer Find(DeviceType type) const {
    const auto slot = static_cast<uint32_t>(type);
    return slot < kDeviceSlots ? slots_[slot].load(std::memory_order_acquire) : nullptr;
  }

 private:
  std::atomic<Pointer> slots_[kDeviceSlots] = {};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_CORE_DEVICE_TABLE_HPP_

// ---- opkit/core/allocator.hpp
// Allocator: allocates the bytes of every Storage. Each device type with its own memory has one
// allocator, which counts live and peak bytes and can be replaced at run time. Backends register
// their allocators; the CPU's allocator is here.
#ifndef OPKIT_CORE_ALLOCATOR_HPP_
#define OPKIT_CORE_ALLOCATOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// bytes: the size of a cache line and of an AVX-512 register
inline constexpr int64_t kAlignment = 64;

// Allocates the memory of one device type. Thread-safe. An allocator must outlive its memory (see
// SetAllocator).
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Returns at least `bytes` bytes aligned to kAlignment; a null pointer for 0 bytes. Error
  // (kOutOfMemory) with the requested and the live bytes. `index` is the device's number among
  // those of its type.
  void* Allocate(int64_t bytes, int32_t index = 0);
  void Deallocate(void* data, int64_t bytes) noexcept;

  virtual const char* name() const = 0;
  int64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void ResetPeak() { peak_.store(live_bytes(), std::memory_order_relaxed); }

 protected:
  virtual void* DoAllocate(int64_t bytes) = 0;  // null when there is no memory
  // Allocates on the device `index`, for a type whose devices each have memory of their own.
  virtual void* DoAllocateOn(int32_t /*index*/, int64_t bytes) { return DoAllocate(bytes); }
  virtual void DoDeallocate(void* data, int64_t bytes) noexcept = 0;

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

namespace detail {

// Receives every allocation and deallocation. A sink lives as long as the process.
class MemorySink {
 public:
  // `bytes` were allocated, or freed if negative; `live` bytes are now in use.
  virtual void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept = 0;

 protected:
  ~MemorySink() = default;
};

inline constinit std::atomic<MemorySink*> g_memory_sink{nullptr};

class CPUAllocator final : public Allocator {
 public:
  const char* name() const override { return "cpu"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t{kAlignment}, std::nothrow);
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ::operator delete(data, std::align_val_t{kAlignment});
  }
};

// Returns the allocators by device type, the CPU's from the beginning.
DeviceTable<Allocator*>& Allocators();
}  // namespace detail

// Returns the allocator of the device type's memory. Error (kUnsupported) if no backend has set
// one.
Allocator& GetAllocator(DeviceType type);

// Replaces the allocator of the device's memory for new storages. Returns the previous allocator,
// or null. `allocator` must live until the process ends or every storage made from it is gone.
Allocator* SetAllocator(DeviceType type, Allocator* allocator);

}}  // namespace opkit

#endif  // OPKIT_CORE_ALLOCATOR_HPP_

// ---- opkit/core/storage.hpp
// Storage: reference-counted bytes of one device. Tensors view it. The last handle frees it,
// through its allocator or the deleter of foreign memory.
#ifndef OPKIT_CORE_STORAGE_HPP_
#define OPKIT_CORE_STORAGE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class DType : uint8_t;

namespace detail {

// The memory that Storage handles share: an allocator's or foreign memory.
class StorageBlock final : public RefCounted {
 public:
  // Frees foreign memory; `context` is the pointer given to the constructor.
  using Deleter = void (*)(void* data, void* context);

  // Takes the bytes from the device's allocator. Errors: kOutOfMemory, kUnsupported.
  StorageBlock(Device device, int64_t nbytes)
      : device_(device), nbytes_(nbytes), allocator_(&GetAllocator(device.type)) {
    data_ = allocator_->Allocate(nbytes, device.index);
  }
  // Adopts foreign memory; `deleter` may be null if the caller keeps the memory alive. `objects` is
  // the dtype of the C++ objects that fill the memory, such as kString; kUndefined for plain bytes.
  StorageBlock(Device device, void* data, int64_t nbytes, Deleter deleter, void* context,
               DType objects = {})
      : device_(device),
        objects_(objects),
        data_(data),
        nbytes_(nbytes),
        deleter_(deleter),
        context_(context) {}
  OPKIT_NOINLINE ~StorageBlock() override {
    if (allocator_)
      allocator_->Deallocate(data_, nbytes_);
    else if (deleter_)
      deleter_(data_, context_);
  }

  Device device() const { return device_; }
  void* data() const { return data_; }
  int64_t nbytes() const { return nbytes_; }
  // Returns the dtype of the objects in the memory; kUndefined for plain bytes. A tensor of objects
  // views only memory with objects of its dtype, and another tensor only plain bytes.
  DType objects() const { return objects_; }
  // True for adopted memory without a deleter, which its owner keeps alive.
  bool is_foreign() const { return !allocator_ && !deleter_; }
  // Moves a view of foreign memory to other memory of the same device. No other handle may exist.
  void Rebind(void* data, int64_t nbytes) { data_ = data, nbytes_ = nbytes; }
  // True if the two blocks have no common address. Blocks of one allocator never overlap; foreign
  // memory may.
  bool IsApartFrom(const StorageBlock& other) const {
    const auto a = reinterpret_cast<uintptr_t>(data_), b = reinterpret_cast<uintptr_t>(other.data_);
    return a + static_cast<uintptr_t>(nbytes_) <= b ||
           b + static_cast<uintptr_t>(other.nbytes_) <= a;
  }

 private:
  Device device_;
  DType objects_{};
  void* data_ = nullptr;
  int64_t nbytes_;
  Allocator* allocator_ = nullptr;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace detail

using Storage = detail::IntrusivePtr<detail::StorageBlock>;

inline Storage AllocateStorage(Device device, int64_t nbytes) {
  return detail::MakeIntrusive<detail::StorageBlock>(device, nbytes);
}
inline Storage AdoptStorage(Device device, void* data, int64_t nbytes,
                            detail::StorageBlock::Deleter deleter = nullptr,
                            void* context = nullptr, DType objects = {}) {
  return detail::MakeIntrusive<detail::StorageBlock>(device, data, nbytes, deleter, context,
                                                     objects);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_STORAGE_HPP_

// ---- opkit/core/tensor.hpp
// Tensor: dtype, shape, strides, device and layout over a Storage and a byte offset. Copying a
// Tensor is cheap and shares its bytes; CopyFrom copies them. Operators read and write Tensors.
// A tensor of a packed dtype (int4 and others) is dense, in the standard layout: its views begin at
// a whole byte.
#ifndef OPKIT_CORE_TENSOR_HPP_
#define OPKIT_CORE_TENSOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
// Contiguous() of a tensor that the host cannot reach.
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Tensor&)> g_contiguous_on_device{
    "a copy of a tensor on a device", "opkit/opkit.hpp"};
}  // namespace detail

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
  // An empty tensor of that device: shape [0], no dtype, no memory.
  explicit Tensor(Device device) : device_(device) {}
  // Errors: kInvalidArgument for an undefined dtype, kOutOfRange for sizes past int64,
  // kOutOfMemory.
  Tensor(Shape shape, DType dtype, Device device = {}) : device_(device) {
    Resize(std::move(shape), dtype);
  }
  // Views `storage` from `byte_offset` on; `strides` are in elements and not negative; empty means
  // dense. Error (kUnsupported) for strides of a packed dtype that are not dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {});

  // Copies `values` into a new row-major tensor on the CPU. Error (kInvalidArgument) when the
  // counts differ.
  template <detail::TensorElement T>
  static Tensor From(Shape shape, std::initializer_list<T> values) {
    return From(std::move(shape), values.begin(), values.size());
  }
  template <detail::TensorElement T>
  static Tensor From(Shape shape, const T* values, size_t count) {
    if (static_cast<int64_t>(count) != shape.numel())
      Throw(ErrorCode::kInvalidArgument, "shape ", shape, " holds ", shape.numel(),
            " elements, but ", count, " values were given");
    Tensor out(std::move(shape), kDTypeOf<T>);
    if constexpr (std::is_same_v<T, std::string>)
      for (size_t i = 0; i < count; ++i) out.mutable_data<T>()[i] = values[i];
    else if (count)
      std::memcpy(out.raw_mutable_data(), values, count * sizeof(T));
    return out;
  }
  // Takes a vector, span or array of T.
  template <detail::TensorElement T, class Range>
    requires requires(const Range& range) {
      { range.data() } -> std::convertible_to<const T*>;
      range.size();
    }
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <class Range>
    requires detail::TensorElement<typename Range::value_type>
  static Tensor From(Shape shape, const Range& values) {
    return From(std::move(shape), values.data(), values.size());
  }
  template <detail::TensorElement T>
  static Tensor Scalar(T value) {
    return From<T>({}, {value});
  }
  // Views the caller's memory, which must outlive every tensor that shares it. Error
  // (kInvalidArgument) for a null pointer if the shape has elements.
  template <detail::TensorElement T>
  static Tensor FromExternal(T* data, Shape shape, Device device = {}) {
    Tensor out(device);
    constexpr DType dtype = kDTypeOf<T>;
    const int64_t nbytes = MemoryBytes(shape, dtype);
    if (!data && nbytes > 0)
      Throw(ErrorCode::kInvalidArgument, "expected memory for ", shape, " of ", dtype,
            ", found a null pointer");
    out.storage_ = AdoptStorage(device, const_cast<std::remove_const_t<T>*>(data), nbytes, nullptr,
                                nullptr, IsObject(dtype) ? dtype : DType::kUndefined);
    out.shape_ = std::move(shape);
    out.dtype_ = dtype;
    out.capacity_ = nbytes;
    return out;
  }

  // Return the parts of the tensor, in O(1) or O(rank). Only `dim` throws: kOutOfRange for an axis
  // that does not exist. numel() is the number of elements, nbytes() the size of a dense tensor
  // with these elements, byte_offset() the offset of the first element in the storage.
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  template <class... Nothing>
  int64_t size() const {
    static_assert(sizeof...(Nothing) > 0,
                  "a Tensor has no size(): numel() counts its elements, rank() its axes, nbytes() "
                  "its bytes");
    return 0;
  }
  int64_t nbytes() const { return BytesOf(numel(), dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Layout& layout() const { return layout_; }
  const Storage& storage() const { return storage_; }
  int64_t byte_offset() const { return byte_offset_; }
  // Returns the number of bytes that Resize can use without new memory. Returns 0 if strides leave
  // gaps, because the gaps may belong to other tensors.
  int64_t capacity() const { return capacity_; }
  // Returns the strides in elements.
  Dims strides() const { return strides_.empty() ? shape_.DenseStrides() : strides_; }
  // True if the tensor stores strides, as a view may; these strides can still be dense.
  bool has_strides() const { return !strides_.empty(); }
  bool is_dense() const { return strides_.empty() || shape_.IsDense(strides_); }
  // True if the tensor has this memory, dtype and shape, no stored strides, and the standard
  // layout.
  bool IsDenseAt(const void* data, DType dtype, const int64_t* extents, int rank) const {
    if (raw_data() != data || dtype_ != dtype || !strides_.empty() || !layout_.is_standard() ||
        shape_.rank() != rank)
      return false;
    const int64_t* own = shape_.data();
    for (int axis = 0; axis < rank; ++axis)
      if (own[axis] != extents[axis]) return false;
    return true;
  }
  // True if the tensor has a dtype, and memory for its elements, so that it may be read.
  bool initialized() const { return dtype_ != DType::kUndefined && (storage_ || numel() == 0); }

  // Returns the first element's address; elements follow `strides()`. Errors: kTypeMismatch for
  // another T, kUninitialized.
  template <detail::TensorElement T>
  const T* data() const {
    CheckHolds(kDTypeOf<T>);
    return static_cast<const T*>(raw_data());
  }
  // Returns the first element's address for writing; a tensor that has no dtype yet takes T and is
  // allocated.
  template <detail::TensorElement T>
  T* mutable_data() {
    if (dtype_ == DType::kUndefined) Resize(shape_, kDTypeOf<T>);
    CheckHolds(kDTypeOf<T>, "; to write another dtype call Resize(shape, dtype) first");
    return static_cast<T*>(raw_mutable_data());
  }
  const void* raw_data() const { return raw_mutable_data(); }
  // Same as data<T>(), for a dtype that is known only at run time.
  const void* raw_data(DType wanted) const {
    CheckHolds(wanted);
    return raw_data();
  }
  void* raw_mutable_data() const {
    return storage_ ? static_cast<char*>(storage_->data()) + byte_offset_ : nullptr;
  }
  // Returns the elements in row-major order. Error (kUnsupported) for a tensor that the host cannot
  // reach.
  template <detail::TensorElement T>
  std::vector<T> ToVector() const {
    CheckHolds(kDTypeOf<T>);
    CheckStandard("ToVector");
    CheckHost();
    const Tensor dense = is_dense() ? *this : Contiguous();
    const T* values = dense.data<T>();
    return std::vector<T>(values, values + numel());
  }

  // Changes the shape and keeps the dtype. Keeps the memory if it is large enough, so shrinking and
  // growing back costs nothing. Otherwise takes new memory with undefined contents; tensors that
  // share the old memory keep it. Without a dtype, sets only the shape.
  void Resize(Shape shape) {
    if (dtype_ != DType::kUndefined) return Resize(std::move(shape), dtype_);
    shape_ = std::move(shape);
  }
  void Resize(Shape shape, DType dtype);
  // Reserves memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer);
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }
  // Drops memory and strides; dtype and shape stay. Reading elements is then an Error
  // (kUninitialized), unless the tensor has no elements.
  void ReleaseMemory();

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source);

  // Copies the source's elements, dense, into this tensor's own memory on its device. Both devices
  // must be reachable from the host (device/copy.hpp crosses devices).
  void CopyFrom(const Tensor& source);
  // Returns the tensor that a copy of `source` writes to: this tensor resized, with new memory on
  // the same device if the old memory is too small or overlaps `source`. This tensor itself does
  // not change.
  Tensor CopyDestination(const Tensor& source) const;
  // Returns a dense copy with memory of its own, on the same device. A copy on a device is done at
  // return; for strided elements see RegisterStridedCopy (device/copy.hpp).
  Tensor Contiguous() const;

  // Returns the same memory under another shape of equal element count. One extent may be -1.
  Tensor View(const Dims& dims) const;
  // Returns the elements [begin, end) of `axis`, in the same memory. Resizing a slice never reaches
  // beyond it. Error (kUnsupported) for a packed dtype unless the slice is dense, begins at a whole
  // byte, and ends at one or at the end of the tensor.
  Tensor Slice(int axis, int64_t begin, int64_t end) const;
  // Returns the same memory with its axes in another order: axis i of the result is axis order[i]
  // of this tensor. Error (kUnsupported) for a packed dtype unless the elements stay in order.
  Tensor Permute(const Dims& order) const;

  // True when the bytes from the first to the last element overlap those of `other`.
  bool SharesMemoryWith(const Tensor& other) const {
    if (!storage_ || !other.storage_) return false;
    if (storage_ != other.storage_ && storage_->IsApartFrom(*other.storage_)) return false;
    return SpansOverlap(other);
  }

  // Returns a tensor in a layout, whose size may differ from the dense size. Views `bytes` bytes of
  // `storage` from `byte_offset` on; a negative `bytes` means all the remaining bytes.
  static Tensor FromLayout(Storage storage, Shape shape, DType dtype, Layout layout,
                           int64_t byte_offset = 0, int64_t bytes = -1);
  // Moves the tensor to another device that reaches the same memory (cpu and cpu_stream). Error
  // (kInvalidArgument) for other devices.
  void SetDevice(Device device);

  // Returns "float32[2, 3] on cpu", with the layout or the strides if the tensor is not dense
  // row-major.
  OPKIT_COLD friend std::string ToString(const Tensor& tensor);

  // Returns the number of bytes of a dense tensor of this shape and dtype. Errors: kOutOfRange past
  // int64, kUnsupported for a dtype whose elements are no bytes.
  static int64_t CheckedBytes(const Shape& shape, DType dtype);

 private:
  // The same as CheckedBytes and ItemSize, with the size of the C++ objects for IsObject(dtype).
  static int64_t MemoryBytes(const Shape& shape, DType dtype);
  static int64_t ElementBytes(DType dtype);
  template <class... Parts>
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Parts&... parts) const {
    FailJoined(code, {parts...});
  }
  [[noreturn]] OPKIT_COLD void FailJoined(ErrorCode code,
                                          std::initializer_list<detail::Text> parts) const;
  void CheckInitialized() const {
    if (!initialized()) [[unlikely]]
      Fail(ErrorCode::kUninitialized, "is read before anything was written to it");
  }
  void CheckHolds(DType wanted, const char* advice = "") const {
    if (dtype_ != wanted || (!storage_ && numel() != 0)) [[unlikely]]
      FailToAccess(wanted, advice);
  }
  [[noreturn]] OPKIT_COLD void FailToAccess(DType wanted, const char* advice) const;
  void CheckStandard(const char* what) const {
    if (!layout_.is_standard()) [[unlikely]]
      Fail(ErrorCode::kUnsupported, what, " needs the standard layout; convert first");
  }
  bool SpansOverlap(const Tensor& other) const;
  bool Fits(const Shape& shape, DType dtype) const;
  Storage NewMemory(const Shape& shape, DType dtype) const;
  void TakeMemory(Storage storage);
  void CheckHost() const {
    if (!IsHostAccessible(device_.type))
      Fail(ErrorCode::kUnsupported, "is not reachable from the host; use device/copy.hpp");
  }
  // Returns the number of bytes from the first element to the end of the last one.
  int64_t SpanBytes() const;
  // Returns the same as SpanBytes(), for strides that are not checked yet; -1 if they are invalid.
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

namespace detail {
// Copies elements of string, sequence or optional one after the other. The memories are equal or do
// not overlap. An element of a sequence or an optional value is a handle: the copy shares its
// memory.
void CopyObjects(DType dtype, void* to, const void* from, int64_t count);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_CORE_TENSOR_HPP_

// ---- opkit/core/attribute.hpp
// Attribute: one typed constant of an operator; Arguments: an operator's named attributes. Types
// are strict, so that a wrong type is an Error when the operator is built.
#ifndef OPKIT_CORE_ATTRIBUTE_HPP_
#define OPKIT_CORE_ATTRIBUTE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The number of a list type is that of its element type plus five.
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

// The type that an element is stored as: int64, double, bool, string or Tensor; void for any other
// type.
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

// Types of the values that an attribute, or one element of its list, accepts and returns.
template <class T>
concept AttributeElement = !std::is_void_v<StoredAttribute<std::remove_cvref_t<T>>>;

}  // namespace detail

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
  template <detail::AttributeElement T>
  Attribute(const T& value) : type_(kAttributeTypeOf<T>) {
    Add(value);
  }
  Attribute(const char* value) : Attribute(std::string(value)) {}
  template <detail::AttributeElement T>
  Attribute(const std::vector<T>& values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }
  template <detail::AttributeElement T>
  Attribute(std::initializer_list<T> values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }

  // The stored elements. A single value is a list of one, and bools are stored as integers. Only
  // the list that belongs to the type has elements.
  struct Values : detail::RefCounted {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    std::vector<Tensor> tensors;
  };
  Attribute(AttributeType type, detail::IntrusivePtr<Values> values)
      : type_(type), values_(std::move(values)) {}
  const Values& values() const { return *values_; }

  // A move is a copy too: copies share the value, which never changes.
  Attribute(const Attribute&) = default;
  Attribute& operator=(const Attribute&) = default;

  AttributeType type() const { return type_; }
  bool is_list() const { return type_ >= AttributeType::kInts; }
  // Returns the number of elements of a list; 1 for a single value.
  size_t size() const {
    const Values& all = *values_;
    return all.ints.size() + all.floats.size() + all.strings.size() + all.tensors.size();
  }

  // True if the attribute has the type of T: an element type or a vector of one.
  template <class T>
  bool Is() const {
    return type_ == kAttributeTypeOf<T>;
  }
  // True if Get can return this type. Integers read as floating-point numbers too, and an empty
  // list as a list of any type.
  bool ReadsAs(AttributeType wanted) const {
    return type_ == wanted || (is_list() && size() == 0 && wanted >= AttributeType::kInts) ||
           (type_ == AttributeType::kInt && wanted == AttributeType::kFloat) ||
           (type_ == AttributeType::kInts && wanted == AttributeType::kFloats);
  }
  // Returns the value as T. Errors: kTypeMismatch for a type that the attribute cannot be read as;
  // kOutOfRange for an integer that T cannot hold exactly.
  template <class T>
  T Get() const {
    if (!ReadsAs(kAttributeTypeOf<T>)) WrongType(kAttributeTypeOf<T>);
    const bool ints = type_ == AttributeType::kInt || type_ == AttributeType::kInts;
    if constexpr (detail::AttributeElement<T>) {
      if constexpr (std::is_floating_point_v<T>)
        if (ints) return Load<T>(values_->ints[0]);
      return Load<T>(List<T>()[0]);
    } else {
      using Item = typename T::value_type;
      static_assert(detail::AttributeElement<Item>,
                    "an attribute is an integer, bool, floating-point "
                    "number, string, Tensor, or a std::vector of one of these");
      T out;
      if constexpr (std::is_floating_point_v<Item>)
        if (ints)
          for (int64_t stored : values_->ints) out.push_back(Load<Item>(stored));
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
    if constexpr (std::is_integral_v<T>)
      if (static_cast<int64_t>(value) < 0 && value > 0)
        Throw(ErrorCode::kOutOfRange, "attribute value ", value, " does not fit in int64");
    using Stored = typename std::remove_cvref_t<decltype(List<T>())>::value_type;
    List<T>().push_back(static_cast<Stored>(value));
  }
  template <class T, class Stored>
  static T Load(const Stored& stored) {
    if constexpr (std::is_floating_point_v<T> && std::is_integral_v<Stored>) {
      constexpr int kDigits = sizeof(T) == sizeof(float) ? 24 : 53;
      if (stored > int64_t{1} << kDigits || stored < -(int64_t{1} << kDigits))
        Throw(ErrorCode::kOutOfRange, "value ", stored, " is not sure to be exact as the ",
              sizeof(T) * 8, "-bit floating-point number asked for");
    }
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

  AttributeType type_;
  detail::IntrusivePtr<Values> values_{new Values};
};

namespace detail {

struct NamedAttribute {
  std::string name;
  Attribute value;
  friend bool operator==(const NamedAttribute&, const NamedAttribute&) = default;
};

}  // namespace detail

// Named attributes in the order they were set. A list, not a map: an operator has few attributes,
// and reads them when it is built, never while it runs.
class Arguments {
 public:
  Arguments() = default;
  // Error (kInvalidArgument) for a name that is given twice.
  Arguments(std::initializer_list<detail::NamedAttribute> list);

  // Adds, or replaces the attribute of that name.
  void Set(std::string name, Attribute value);
  bool Remove(std::string_view name);
  // Returns null if no attribute has the name.
  const Attribute* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name); }

  // Returns the attribute as T, or `fallback` if there is none. A stored value of another type is
  // an Error (kTypeMismatch) that names the argument.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const Attribute* found = Find(name);
    return found ? Read<T>(name, *found) : fallback;
  }
  // Returns the attribute as T. Errors: kTypeMismatch, with the argument's name, for a stored value
  // of another type; kNotFound if there is none.
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
  std::vector<detail::NamedAttribute> items_;
};

}}  // namespace opkit

#endif  // OPKIT_CORE_ATTRIBUTE_HPP_

// ---- opkit/op/function/attr_map.hpp
// AttrMap: an operator's attributes as text, the form that function operators read; typed access
// parses the text. Made once when the operator is built.
#ifndef OPKIT_OP_FUNCTION_ATTR_MAP_HPP_
#define OPKIT_OP_FUNCTION_ATTR_MAP_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The argument of a backward node that names the blob with its forward operator's state.
inline constexpr std::string_view kStateArgument = "__state";

// The address of kTypeTag<T> identifies T, the same in every translation unit.
template <class T>
inline constexpr char kTypeTag = 0;

// A map from strings to strings: std::map, std::unordered_map and others.
template <class T>
concept StringMap = requires(T& map, const std::string& text) {
  requires std::is_same_v<typename T::key_type, std::string>;
  requires std::is_same_v<typename T::mapped_type, std::string>;
  map.emplace(text, text);
};

template <class Number>
std::string NumberText(Number value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
// Returns the shortest text that reads back as the same number; as the same float if the value is a
// float.
inline std::string FloatText(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? NumberText(narrow) : NumberText(value);
}

// Returns the attribute as text: 3, 0.1, true, text, [1, 2], ["a", "b"]. Floating-point numbers
// lose nothing, unlike in messages.
inline std::string AttributeText(const Attribute& attribute) {
  const Attribute::Values& values = attribute.values();
  if (attribute.type() == AttributeType::kString) return values.strings[0];
  if (values.floats.empty()) return ToString(attribute);
  std::string out;
  for (double value : values.floats) out += (out.empty() ? "" : ", ") + FloatText(value);
  return attribute.is_list() ? "[" + out + "]" : out;
}

// Returns the text without the spaces around it.
inline std::string_view WithoutSpaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}
template <class T>
std::optional<T> ParseText(std::string_view text) {
  text = WithoutSpaces(text);
  if constexpr (std::is_same_v<T, std::string>) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "True" || text == "1") return true;
    if (text == "false" || text == "False" || text == "0") return false;
    return std::nullopt;
  } else {  // does not depend on the program's locale
    static_assert(std::is_arithmetic_v<T>,
                  "AttrMap::Get<T>: T is an integer, bool, floating-point "
                  "number, std::string, or a std::vector of one of these");
    if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
    T value{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
      return std::nullopt;
    return value;
  }
}

// Reads a list: "[1, 2]", "(1, 2)" or "1, 2".
template <class T>
std::optional<std::vector<T>> ParseList(std::string_view text) {
  text = WithoutSpaces(text);
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

}  // namespace detail

// An operator's attributes as text, made once when the operator is built. Excludes the toolkit's
// own attribute kStateArgument. Reading a number parses its text.
class AttrMap {
 public:
  AttrMap() = default;
  AttrMap(AttrMap&&) noexcept = default;
  AttrMap& operator=(AttrMap&&) noexcept = default;
  explicit AttrMap(const Arguments& arguments) {
    for (const detail::NamedAttribute& item : arguments)
      if (item.name != detail::kStateArgument)
        items_.emplace_back(item.name, detail::AttributeText(item.value));
  }
  explicit AttrMap(const opkit_node& node) {
    for (uint64_t i = 0; i < node.num_attrs; ++i)
      if (const std::string_view name = node.attrs[i]->name; name != detail::kStateArgument)
        items_.emplace_back(name, node.attrs[i]->text);
  }

  // Adds the default of a declared attribute that the node does not give.
  void AddDefault(const std::string& name, const Attribute& value) {
    if (!Has(name)) items_.emplace_back(name, detail::AttributeText(value));
  }

  // Returns the text of the attribute; null if there is none.
  const std::string* Find(std::string_view name) const {
    for (const auto& [key, text] : items_)
      if (key == name) return &text;
    return nullptr;
  }
  bool Has(std::string_view name) const { return Find(name); }
  // Returns the attribute as T, `fallback` if there is none. Throws kTypeMismatch for text that
  // does not read as T.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const std::string* text = Find(name);
    return text ? Parse<T>(name, *text) : std::move(fallback);
  }
  // Returns the attribute as T. Throws kNotFound if there is none.
  template <class T>
  T Get(std::string_view name) const {
    const std::string* text = Find(name);
    if (!text) Missing(name);
    return Parse<T>(name, *text);
  }
  std::string Get(std::string_view name, const char* fallback) const {
    return Get<std::string>(name, fallback);
  }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  // Returns the attributes as any map of strings; made at the first call for each type and kept.
  template <detail::StringMap Map>
  const Map& As() const {
    using Copy = detail::Shared<Map>;
    for (const auto& [tag, copy] : copies_)
      if (tag == &detail::kTypeTag<Map>) return static_cast<const Copy&>(*copy).value;
    auto copy = detail::MakeIntrusive<Copy>(Map());
    for (const auto& [name, text] : items_) copy->value.emplace(name, text);
    copies_.emplace_back(&detail::kTypeTag<Map>, copy);
    return copy->value;
  }

 private:
  [[noreturn]] OPKIT_COLD void Missing(std::string_view name) const {
    std::vector<std::string> known;
    for (const auto& item : items_) known.push_back(item.first);
    Throw(ErrorCode::kNotFound, "no attribute '", name, "'", SuggestName(name, known));
  }
  template <class T>
  static T Parse(std::string_view name, const std::string& text) {
    std::optional<T> value;
    if constexpr (std::is_same_v<T, std::string>)
      value = text;
    else if constexpr (requires { typename T::value_type; })
      value = detail::ParseList<typename T::value_type>(text);
    else
      value = detail::ParseText<T>(text);
    if (!value)
      Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is \"", text,
            "\", which does not read as ", kAttributeTypeOf<T>);
    return *std::move(value);
  }

  std::vector<std::pair<std::string, std::string>> items_;
  mutable std::vector<std::pair<const char*, detail::IntrusivePtr<detail::RefCounted>>> copies_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_ATTR_MAP_HPP_

// ---- opkit/op/boundary/host/program_host.hpp
// The host whose functions this image's operators call, and whether the host is another program.
// Separate from op/boundary/host/host_table.hpp, because a library needs no table of its own.
#ifndef OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_
#define OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The host functions that this image's operators call: the program's own table, or in a library the
// table that the program passed when it loaded the library. Null before the first function operator
// is registered or loaded.
OPKIT_IMAGE_LOCAL inline constinit const opkit_host* g_host = nullptr;

// The table of the program itself; set by the first call of HostTable::Global(). Relaxed: the
// pointer is only compared.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<const opkit_host*> g_program_host{nullptr};

OPKIT_IMAGE_LOCAL inline bool IsProgramHost(const opkit_host* host) {
  return host && host == g_program_host.load(std::memory_order_relaxed);
}
// True while this thread makes a call for another kind of host (export/). Such a call runs this
// image's own operators, with the program's own table, even if a program has loaded the image as a
// library.
OPKIT_IMAGE_LOCAL inline constinit thread_local bool t_calls_own_operators = false;

// The host that keeps the error texts of this thread's operators.
OPKIT_IMAGE_LOCAL inline const opkit_host* HostOfErrors() {
  return t_calls_own_operators ? g_program_host.load(std::memory_order_relaxed) : g_host;
}

// True if this image is a library that another program has loaded.
OPKIT_IMAGE_LOCAL inline bool IsLoadedLibrary() { return g_host && !IsProgramHost(g_host); }

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_PROGRAM_HOST_HPP_

// ---- opkit/op/function/op_tensor.hpp
// OpTensor and Status: the arguments of a function operator and its result. They wrap the plain
// structs of opkit_abi.h, so that the same function serves the program and a shared library.
#ifndef OPKIT_OP_FUNCTION_OP_TENSOR_HPP_
#define OPKIT_OP_FUNCTION_OP_TENSOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A view of extents or strides: a span with a checked index, which may count from the end.
class DimsView : public std::span<const int64_t> {
 public:
  DimsView(const int64_t* values, int size) : span(values, static_cast<size_t>(size)) {}
  int64_t operator[](int64_t i) const {
    return data()[detail::CheckedIndex(i, data(), static_cast<int>(size()))];
  }
};

// The values that a function may return instead of a Status.
enum ReturnValue : int { FAIL = 0, SUCCESS = 1 };

// Success, or a failure with its text. One pointer, which is null for a success.
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
  // Returns the text of the failure; empty for a success.
  std::string message() const { return message_ ? message_->value : std::string(); }

 private:
  OPKIT_COLD void Fail(std::string text) {
    message_ = detail::IntrusivePtr<Message>(new Message(std::move(text)));
  }
  using Message = detail::Shared<std::string>;
  detail::IntrusivePtr<Message> message_;
};
#ifndef Status  // X11 has a macro Status for int; functions may return int too
using Status = OpStatus;
#endif

// Adds to the text that explains a FAIL: OPKIT_ERROR_MSG << "k is " << k; return FAIL; Every thread
// has its own text, empty at the start of every call. The host keeps the text, because a
// thread-local string of a library would keep the library in the process.
class OPKIT_IMAGE_LOCAL ErrorMessageStream {
 public:
  template <class T>
  const ErrorMessageStream& operator<<(const T& value) const {
    if (const opkit_host* host = detail::HostOfErrors()) {
      const std::string text = StrCat(value);
      host->add_error(text.data(), text.size());
    }
    return *this;
  }
};
inline ErrorMessageStream ErrorMessage() { return {}; }

// How a function must store a result.
enum class OpReq : uint8_t {
  kNone = OPKIT_REQ_NONE,        // do not compute the result: it has no memory
  kWrite = OPKIT_REQ_WRITE,      //
  kInplace = OPKIT_REQ_INPLACE,  // the memory is that of an input; the schema allows it
  kAdd = OPKIT_REQ_ADD,          // add to the present elements; only with acceptsAdd()
};
inline const char* ToString(OpReq req) {
  constexpr const char* kNames[] = {"none", "write", "in-place", "add"};
  return kNames[static_cast<int>(req)];
}

// A tensor as the argument of a function: a view that may be copied, valid until its operator runs
// again. A left-out input or output has no dtype and no data.
class OpTensor {
 public:
  OpTensor() = default;
  // Views memory, which must outlive the view, as must `shape` and `strides` (in elements).
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : OpTensor(data, dtype, shape.data(), strides.data(), static_cast<int>(shape.size()), device,
                 req) {}
  OpTensor(void* data, DType dtype, const int64_t* shape, const int64_t* strides, int rank,
           Device device = {}, OpReq req = OpReq::kWrite) {
    if (IsObject(dtype)) [[unlikely]]
      Throw(ErrorCode::kUnsupported, "functions and libraries take no tensors of ",
            ToString(dtype));
    view_.data = data;
    view_.shape = shape;
    view_.strides = strides;
    view_.rank = rank;
    view_.dtype = static_cast<int32_t>(dtype);
    view_.device_type = static_cast<int32_t>(device.type);
    view_.device_index = device.index;
    view_.req = static_cast<int32_t>(req);
  }
  // Copies the members that exist in the ABI version of `view`.
  explicit OpTensor(const opkit_tensor& view) {
    std::memcpy(&view_, &view, view.size < sizeof view_ ? view.size : sizeof view_);
    view_.size = sizeof view_;
  }

  // Returns the first element; element (i, j, …) is at data[i * strides[0] + j * strides[1] + …].
  // Writable in outputs and in mutated inputs. Throws kTypeMismatch for another T.
  template <Element T>
  T* data() const {
    if (dtype() != kDTypeOf<T>) [[unlikely]]
      WrongType(kDTypeOf<T>);
    return static_cast<T*>(view_.data);
  }
  void* raw_data() const { return view_.data; }
  bool has_value() const { return view_.dtype != OPKIT_UNDEFINED; }

  // Returns the shape or an extent; negative axes count from the end. Throws kOutOfRange for an
  // axis that the tensor does not have.
  DimsView shape() const { return {view_.shape, view_.rank}; }
  int64_t dim(int axis) const { return shape()[axis]; }
  // Returns the strides, in elements.
  DimsView strides() const { return {view_.strides, view_.rank}; }
  int64_t stride(int axis) const { return strides()[axis]; }
  int rank() const { return view_.rank; }
  // Returns the number of elements; `size` is MXNet's name for it.
  int64_t numel() const {
    int64_t count = 1;
    for (int i = 0; i < view_.rank; ++i) count *= view_.shape[i];
    return count;
  }
  int64_t size() const { return numel(); }
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

  friend std::string ToString(const OpTensor& tensor) {
    if (!tensor.has_value()) return "(none)";
    const opkit_tensor& view = tensor.view_;
    return StrCat(tensor.dtype(), std::vector<int64_t>(view.shape, view.shape + view.rank), " on ",
                  tensor.device());
  }

  // Returns the viewed Tensor, for the toolkit; null if the view was not made from a Tensor.
  const Tensor* tensor() const { return static_cast<const Tensor*>(view_.host); }
  void Bind(const Tensor* tensor) { view_.host = tensor; }
  const opkit_tensor& view() const { return view_; }

 private:
  [[noreturn]] OPKIT_COLD void WrongType(DType wanted) const {
    if (!has_value() && req() == OpReq::kWrite)
      Throw(ErrorCode::kUninitialized, "an output that the operator makes itself is accessed as ",
            wanted, " before it is there; call allocate_output first");
    if (!has_value())
      Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
            "; ask has_value() first");
    Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
  }

  opkit_tensor view_{
      sizeof(opkit_tensor), nullptr, nullptr, nullptr, nullptr, 0, 0, 1, 0, 0, 0, nullptr};
};
static_assert(sizeof(OpTensor) == sizeof(opkit_tensor), "arrays of one are arrays of the other");

}}  // namespace opkit

// Explains the FAIL that follows: OPKIT_ERROR_MSG << "expected 2 axes, found " << rank;
#define OPKIT_ERROR_MSG ::opkit::ErrorMessage()

#endif  // OPKIT_OP_FUNCTION_OP_TENSOR_HPP_

// ---- opkit/op/function/function_parameters.hpp
// Reads the parameter list of a function at compile time, and passes arguments as the list says: by
// value, reference or pointer. function_signature.hpp and partition_signature.hpp adapt functions
// of many signatures to one type-erased form each.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_PARAMETERS_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_PARAMETERS_HPP_

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

// ---- opkit/base/denormals.hpp
// SetFlushDenormals: makes this thread's floating-point unit take denormal numbers (smaller than
// 1.2e-38 in float32) as zeros, in operands and in results. Many CPUs compute with denormal numbers
// a hundred times slower than with others. InvocationScope calls it for a plan that asks for it.
#ifndef OPKIT_BASE_DENORMALS_HPP_
#define OPKIT_BASE_DENORMALS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The bits of the thread's control register that flush denormal numbers: FTZ and DAZ of MXCSR on
// x86, FZ and FZ16 of FPCR on ARM64; 0 on CPUs for which opkit does not know the register.
#if defined(__x86_64__) || defined(__SSE2__)
inline constexpr uint64_t kFlushDenormalBits = 0x8040;
inline uint64_t ReadFloatControl() { return __builtin_ia32_stmxcsr(); }
inline void WriteFloatControl(uint64_t bits) {
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(bits));
}
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushDenormalBits = 0x1080000;
inline uint64_t ReadFloatControl() {
  uint64_t bits;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void WriteFloatControl(uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
inline constexpr uint64_t kFlushDenormalBits = 0;
inline uint64_t ReadFloatControl() { return 0; }
inline void WriteFloatControl(uint64_t) {}
#endif

// The bits of this thread from before SetFlushDenormals(true): a program may have set them.
inline constinit thread_local uint64_t t_own_denormal_bits = 0;

// With true, sets the bits; with false, puts back those from before. Calls alternate.
OPKIT_NOINLINE inline void SetFlushDenormals(bool flushes) {
  const uint64_t now = ReadFloatControl();
  if (flushes) t_own_denormal_bits = now & kFlushDenormalBits;
  WriteFloatControl((now & ~kFlushDenormalBits) |
                    (flushes ? kFlushDenormalBits : t_own_denormal_bits));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_DENORMALS_HPP_

// ---- opkit/base/interned_names.hpp
// Interned names: each name has a number for the life of the process. The name of a library's
// object can be printed after the library is unloaded.
#ifndef OPKIT_BASE_INTERNED_NAMES_HPP_
#define OPKIT_BASE_INTERNED_NAMES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the number of a name, from 1; 0 for the empty name. Copies the text and never frees it.
// Thread-safe.
uint32_t InternName(std::string_view name);
// Returns the number of a name like InternName, but 0 for a new name beyond the limit of
// SetRoomForNames. Thread-safe.
uint32_t InternNameIfRoom(std::string_view name);
// Limits the memory of further names to `bytes`, in case a caller makes new names without end.
// InternName ignores the limit, but its names count towards it. Without a call there is no limit.
// Thread-safe.
void SetRoomForNames(int64_t bytes);
// Returns the name with this number of InternName; empty for an unknown number. Thread-safe.
std::string InternedName(uint32_t number);

}}  // namespace opkit

#endif  // OPKIT_BASE_INTERNED_NAMES_HPP_

// ---- opkit/device/invocation.hpp
// Invocation: the identity {id, parent, kind} of the running operator, one current identity per
// thread. Run and Invoke open a scope. A task captures the token when it is pushed, and adopts the
// token in the thread that runs it. So work on any thread is attributed to its operator without
// parsing names. The profiler receives the begin and end of scopes through a SpanSink.
#ifndef OPKIT_DEVICE_INVOCATION_HPP_
#define OPKIT_DEVICE_INVOCATION_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct Device;

// A token, freely copied to other threads. `id` is unique in the process; 0 means none.
struct Invocation {
  // The kind of work. An operator that another operator invokes keeps its kind; its parent is the
  // other's id.
  enum class Kind : uint8_t {
    kNone,
    kOperator,
    kCustomOperator,  // loaded from a library, or registered by functions or a typed function
    // 3 was an operator inside another operator; an older library may still use it.
    kUserCode = 4,  // a scope that an author opened
    kConverter,
    kCopy,
    kRun,     // a run of an executor or a net
    kTask,    // an operation pushed to an engine
    kPhase,   // a part of Compile
    kEngine,  // a thread of a pool sleeps or waits
  };

  uint64_t id = 0;
  uint64_t parent = 0;
  Kind kind = Kind::kNone;
  // The interned path of this custom operator, or of the nearest custom operator around it:
  // "Outer::MyOp". 0 outside of custom operators, and while no profile is recorded.
  uint32_t custom = 0;
  // The work takes denormal numbers as zeros (PlanOptions::schedule.flush_denormals): a thread that
  // adopts the token sets its floating-point unit so for the scope's life.
  bool flushes_denormals = false;
  friend bool operator==(const Invocation&, const Invocation&) = default;
};

namespace detail {

// The interned names of a span (base/interned_names.hpp): `name` of the operator's type, the task
// or the scope, `node` of the graph's node. 0 for none.
struct SpanNames {
  uint32_t name = 0;
  uint32_t node = 0;
  // The name as text if the name has no number; valid only during the call that receives it.
  std::string_view text = {};

  // Returns the names of a span whose name is chosen by the program. A program may use any number
  // of names, so InternNameIfRoom limits their memory.
  static SpanNames OfText(std::string_view name) {
    const uint32_t number = InternNameIfRoom(name);
    return {number, 0, number != 0 ? std::string_view() : name};
  }
};

// The work of an operator's run: the interned dtypes and shapes of its inputs, "float32[2, 3]", the
// interned backend of its kernel, and the cost by its schema.
struct SpanWork {
  uint32_t shapes = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;
  uint32_t backend = 0;
};

// Receives the spans of all threads. A sink lives as long as the process.
class SpanSink {
 public:
  // Begins a span of `now` on this thread, inside the thread's innermost span. `adopted`: the span
  // is a part of an invocation that was opened or pushed elsewhere. `device` may be null. May set
  // `now.custom`.
  virtual void Open(Invocation& now, SpanNames names, const Device* device,
                    bool adopted) noexcept = 0;
  // Closes the innermost span of this thread.
  virtual void Close() noexcept = 0;
  // True if operators are to call EndSpan and Describe.
  virtual bool WantsWork() const noexcept { return false; }
  // Records the end of the work in this thread's innermost span; the scope itself closes later.
  virtual void EndSpan() noexcept {}
  // Records the work of this thread's innermost span, after EndSpan.
  virtual void Describe(const SpanWork&) noexcept {}
  // Records that the event of an operator's run is terminal, which may be long after the run's span
  // on the host.
  virtual void Completed(uint64_t id) noexcept = 0;
  // Records that the run's work was on its device from `begin` to `end`: the device's clock in ns
  // of MonotonicNs. A device that has a clock calls it before Completed.
  virtual void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept {
    static_cast<void>(id), static_cast<void>(begin), static_cast<void>(end);
  }
  // True if threads of a pool are to open spans of kEngine and to call Marked.
  virtual bool WantsEngine() const noexcept { return false; }
  // Records an instant marker with this interned name.
  virtual void Marked(uint32_t name) noexcept { static_cast<void>(name); }
  // Records that this thread pushed `task` to an engine.
  virtual void Pushed(const Invocation& task, SpanNames names) noexcept = 0;

 protected:
  ~SpanSink() = default;
};

// The invocation of one thread, and the block of ids that it draws from.
struct InvocationState {
  Invocation current;
  uint64_t next_id = 0;
  uint64_t last_id = 0;
};
inline constinit thread_local InvocationState t_invocation;
inline constinit std::atomic<uint64_t> g_next_invocation_id{1};
inline constinit std::atomic<SpanSink*> g_span_sink{nullptr};
// Points to the variable with the sink of this image, which is the program or a shared object. In
// the program the pointer holds &g_span_sink. In a loaded library it points to a variable that only
// the library uses, even if the library exports its symbols. The pointer is set before the
// library's operators run.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<SpanSink*>* g_image_span_sink = &g_span_sink;

// Returns the current sink, or null. The first load is relaxed, which costs one load on every
// machine: a thread that sees a new sink late records later. The second is acquire, so that the
// thread sees the sink's members.
OPKIT_IMAGE_LOCAL inline SpanSink* CurrentSpanSink() {
  if (!g_image_span_sink->load(std::memory_order_relaxed)) [[likely]]
    return nullptr;
  return g_image_span_sink->load(std::memory_order_acquire);
}

// Takes `count` consecutive ids and returns the first. Each thread takes ids from its own block, so
// that opening a scope touches no shared memory.
inline uint64_t NextInvocationIds(uint64_t count) {
  InvocationState& state = t_invocation;
  if (state.last_id - state.next_id < count) [[unlikely]] {
    const uint64_t block = count + (uint64_t{1} << 20);
    // Relaxed: only the uniqueness of the number matters; the number publishes no data.
    state.next_id = g_next_invocation_id.fetch_add(block, std::memory_order_relaxed);
    state.last_id = state.next_id + block;
  }
  return std::exchange(state.next_id, state.next_id + count);
}

}  // namespace detail

inline Invocation CurrentInvocation() { return detail::t_invocation.current; }

// Opens a child of the current invocation for the scope's life and restores the current one at its
// end, also after an exception. Costs a few ns.
//
//   std::thread([token = opkit::CurrentInvocation()] {
//     auto scope = opkit::InvocationScope::Adopt(token);
//     …                                    // attributed to the operator that started the thread
//   });
class InvocationScope {
 public:
  explicit InvocationScope(Invocation::Kind kind) : previous_(detail::t_invocation.current) {
    detail::t_invocation.current = {detail::NextInvocationIds(1), previous_.id, kind,
                                    previous_.custom, previous_.flushes_denormals};
  }
  // Calls `names()` only while a profile is recorded.
  template <class Names>
  InvocationScope(Invocation::Kind kind, const Device& device, Names names)
      : InvocationScope(kind) {
    if (detail::SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), &device, /*adopted=*/false);
  }
  template <class Names>
  InvocationScope(Invocation::Kind kind, Names names) : InvocationScope(kind) {
    if (detail::SpanSink* sink = detail::CurrentSpanSink()) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/false);
  }
  // Continues the invocation `token` on this thread, without a new identity.
  static InvocationScope Adopt(Invocation token) {
    return Adopt(token, [] { return detail::SpanNames{}; });
  }
  template <class Names>
  static InvocationScope Adopt(Invocation token, Names names) {
    return InvocationScope(token, names);
  }

  InvocationScope(InvocationScope&&) = delete;
  ~InvocationScope() {
    if (sink_) [[unlikely]]
      sink_->Close();
    SwitchTo(previous_);
  }

  bool is_recorded() const { return static_cast<bool>(sink_); }

 private:
  template <class Names>
  InvocationScope(Invocation token, Names names) : previous_(detail::t_invocation.current) {
    SwitchTo(token);
    if (detail::SpanSink* sink = detail::CurrentSpanSink();
        sink && token.id != 0 && token.id != previous_.id) [[unlikely]]
      Open(*sink, names(), nullptr, /*adopted=*/true);
  }
  static void SwitchTo(const Invocation& invocation) {
    if (detail::t_invocation.current.flushes_denormals != invocation.flushes_denormals) [[unlikely]]
      detail::SetFlushDenormals(invocation.flushes_denormals);
    detail::t_invocation.current = invocation;
  }
  void Open(detail::SpanSink& sink, detail::SpanNames names, const Device* device, bool adopted) {
    sink.Open(detail::t_invocation.current, names, device, adopted);
    sink_ = &sink;
  }

  Invocation previous_;
  detail::SpanSink* sink_ = nullptr;
};

namespace detail {

// Makes this thread, and the work that it pushes, take denormal numbers as zeros or not, for the
// scope's life.
class DenormalScope {
 public:
  explicit DenormalScope(bool flushes) : scope_(InvocationScope::Adopt(With(flushes))) {}

 private:
  static Invocation With(bool flushes) {
    Invocation now = CurrentInvocation();
    now.flushes_denormals = flushes;
    return now;
  }
  const InvocationScope scope_;
};

// The id of this thread's IssueScope; 0 outside of one.
inline constinit thread_local uint64_t t_issuer = 0;

// Joins the work that this thread issues on streams during the scope. If one piece of work fails,
// the rest of the scope's work and its event fail too. Work of other threads on the same stream is
// not affected. Inside another scope the work belongs to the outer scope.
class IssueScope {
 public:
  explicit IssueScope(bool wanted) : opened_(wanted && t_issuer == 0) {
    if (opened_) t_issuer = NextInvocationIds(1);
  }
  IssueScope(IssueScope&&) = delete;
  ~IssueScope() {
    if (opened_) t_issuer = 0;
  }

 private:
  const bool opened_;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_DEVICE_INVOCATION_HPP_

// ---- opkit/op/boundary/convert/abi_structs.hpp
// The size of each struct of opkit_abi.h in the version that introduced the struct. A reader of
// another image's struct may rely on this size; a larger struct has members of later versions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_

struct opkit_config;  // not in version 1.0's opkit_abi.h, which a test puts before this header

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// clang-format off
template <class Struct> inline constexpr uint64_t kFirstBytes = Struct::is_not_in_this_list;
template <> inline constexpr uint64_t kFirstBytes<opkit_tensor> = 72;
template <> inline constexpr uint64_t kFirstBytes<opkit_attr> = 88;
template <> inline constexpr uint64_t kFirstBytes<opkit_graph> = 96;
template <> inline constexpr uint64_t kFirstBytes<opkit_node> = 104;
template <> inline constexpr uint64_t kFirstBytes<opkit_value> = 296;
template <> inline constexpr uint64_t kFirstBytes<opkit_call> = 184;
template <> inline constexpr uint64_t kFirstBytes<opkit_scope> = 64;
template <> inline constexpr uint64_t kFirstBytes<opkit_invocation> = 24;
template <> inline constexpr uint64_t kFirstBytes<opkit_host> = 152;
template <> inline constexpr uint64_t kFirstBytes<opkit_kernel> = 72;
template <> inline constexpr uint64_t kFirstBytes<opkit_parameter> = 56;
template <> inline constexpr uint64_t kFirstBytes<opkit_gradient> = 80;
template <> inline constexpr uint64_t kFirstBytes<opkit_op> = 192;
template <> inline constexpr uint64_t kFirstBytes<opkit_library> = 104;
template <> inline constexpr uint64_t kFirstBytes<opkit_config> = 64;
// clang-format on

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_STRUCTS_HPP_

// ---- opkit/op/boundary/convert/abi_attributes.hpp
// Tensors and attributes across opkit_abi.h: converts a Tensor to an opkit_tensor, Arguments to an
// array of opkit_attr, and back. Data from another image is checked member by member before it is
// read.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Limits: for the number of elements, inputs or kernels, for the bytes of a struct, and for the
// bytes of a name or other text. A larger number means that the data is damaged.
inline constexpr uint64_t kMostParts = 65535, kMostStructBytes = 65536, kMostTextBytes = 65535;

// True if the other image's array is aligned for its elements.
template <class T>
bool IsAligned(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % alignof(T) == 0;
}
// True if a pointer that the other image gave is not null and is aligned. It may point to an array,
// to a struct, or to memory for a result.
template <class T>
bool IsUsable(const T* pointer) {
  return pointer && IsAligned(pointer);
}
// True if the other image's struct can be read: the pointer is valid and the size is possible.
template <class Struct>
bool IsReadable(const Struct* it, uint64_t least_bytes = kFirstBytes<Struct>) {
  return IsUsable(it) && it->size >= least_bytes && it->size <= kMostStructBytes &&
         it->size % alignof(Struct) == 0;
}
// Throws kInvalidArgument if the other image's pointer for a result is null or not aligned.
template <class T>
void RequireRoom(const T* room, const char* what) {
  if (!IsUsable(room)) Throw(ErrorCode::kInvalidArgument, what, " has no room for its answer");
}
// Copies the other image's text; null is empty. Throws kInvalidArgument for a text without an end.
std::string TextOfAbi(const char* text);

// Returns the reason why a tensor or an attribute must not be read, in words that follow its name
// ("has the rank 40"); empty if it may be read.
std::string ProblemOfView(const opkit_tensor* view);
std::string ProblemOfAttr(const opkit_attr* attr);
// Throws kInvalidArgument, with `what` in front of the reason, for a tensor that must not be read.
template <class... What>
void RequireView(const opkit_tensor* view, const What&... what) {
  if (const std::string problem = ProblemOfView(view); !problem.empty()) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, what..., problem);
}

// Throws kUnsupported, with `what` in front, for a dtype that the ABI does not have. A library that
// was built before the dtype existed would take the size of its elements for 0.
template <class... What>
void RequirePlain(DType dtype, const What&... what) {
  if (!IsPlain(dtype)) [[unlikely]]
    Throw(ErrorCode::kUnsupported, what..., " is of ", dtype,
          ", which functions and libraries do not take; cast it to a type of 8 bits or more");
}

// Returns a tensor over the memory that another image views. Returns `host` itself if the view
// still shows the whole tensor, or a part of `host`'s storage if the memory lies in that storage.
// Otherwise the other image owns the memory. Throws kInvalidArgument for a struct that is no valid
// view.
Tensor TensorOfView(const opkit_tensor& view, const Tensor* host = nullptr);

// Arguments as an array of opkit_attr; owns everything that the array points to.
class AbiAttributes : public RefCounted {
 public:
  explicit AbiAttributes(const Arguments& arguments);
  const opkit_attr* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  RefCountedList items_;  // an Item for each attribute
  std::vector<const opkit_attr*> pointers_;
};
// Copies the attributes. Throws kInvalidArgument for a struct that is no valid attribute.
Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_ATTRIBUTES_HPP_

// ---- opkit/op/random.hpp
// Random numbers for operators: a small generator, seeded by the host. The numbers depend only on
// the seed, the operator and the number of its runs, not on threads or other operators.
#ifndef OPKIT_OP_RANDOM_HPP_
#define OPKIT_OP_RANDOM_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// One step of SplitMix64 (Steele, Lea, Flood 2014): spreads a counter over all bits.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The program's seed, set by SetSeed.
struct RandomSeed {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> epoch{1};  // number of SetSeed calls, plus 1
  std::atomic<uint64_t> calls{0};  // calls of Invoke that have drawn random numbers since SetSeed
};
inline constinit RandomSeed g_random_seed;
// True while this thread executes a call of Invoke, which makes a new operator. The operator's seed
// then depends on the number of the call, so that equal calls give different random numbers.
inline constinit thread_local bool t_in_invoke = false;

// The seeds of an operator's runs: a seed depends on SetSeed, the operator's key, and the number of
// runs since SetSeed.
class RunSeeds {
 public:
  void SetKey(std::string_view text) {
    key_ = 0;
    for (const char c : text) key_ = MixBits(key_ ^ static_cast<unsigned char>(c));
  }
  // Relaxed: SetSeed must not be called while an operator runs, and calls of Invoke on different
  // threads have no defined order.
  uint64_t Next() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    if (epoch != epoch_) [[unlikely]] {
      epoch_ = epoch;
      next_ = MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ key_);
      if (t_in_invoke)
        next_ += MixBits(g_random_seed.calls.fetch_add(1, std::memory_order_relaxed));
    }
    return next_++;
  }

 private:
  uint64_t key_ = 0, epoch_ = 0, next_ = 0;
};

}  // namespace detail

// Restarts the random numbers of all operators from their next run on. An operator's numbers then
// depend on its name and run; in Invoke, on the order of the calls. Must not be called while an
// operator runs.
inline void SetSeed(uint64_t seed) {
  // Relaxed: later runs are ordered after this call by other synchronisation, which also makes the
  // store visible.
  detail::g_random_seed.seed.store(seed, std::memory_order_relaxed);
  detail::g_random_seed.calls.store(0, std::memory_order_relaxed);
  detail::g_random_seed.epoch.fetch_add(1, std::memory_order_relaxed);
}

// xoshiro256** (Blackman, Vigna 2018), a uniform random bit generator. Different (seed, stream)
// pairs give different sequences. Costs about 1 ns a number.
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
  // Returns a number in [0, 1).
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  // Returns a number with mean 0 and variance 1 (Marsaglia's polar method).
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

}}  // namespace opkit

#endif  // OPKIT_OP_RANDOM_HPP_

// ---- opkit/op/function/op_resource.hpp
// OpResource: the services of a function operator's host: memory, scratch, threads, the stream,
// random numbers, logging, sub-events, and all other operators by name. It calls opkit_abi.h's
// table, so that it is the same in a program and in a library.
#ifndef OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_
#define OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
inline const char* ToString(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

namespace detail {

// The functions by which the program's own host keeps exception objects, so that an exception of a
// program's operator keeps its type. Null in a library: its exceptions must not reach the program.
struct ExceptionKeeper {
  void (*keep)() noexcept;  // keeps the exception being handled
  void (*rethrow)();        // throws the last kept exception, if any
};
OPKIT_IMAGE_LOCAL inline constinit const ExceptionKeeper* g_exceptions = nullptr;

inline opkit_status StatusOf(ErrorCode code) { return static_cast<opkit_status>(code) + 1; }
inline ErrorCode CodeOfStatus(opkit_status status) {
  return status >= OPKIT_INVALID_ARGUMENT && status <= OPKIT_IO ? static_cast<ErrorCode>(status - 1)
                                                                : ErrorCode::kOperatorFailed;
}

// Returns the status and the text of the current exception for the ABI; for use in a catch block.
OPKIT_COLD inline opkit_status DescribeException(
    std::string& text, const char* unknown = "it threw something that is not a std::exception") {
  try {
    throw;
  } catch (const Error& error) {
    text = error.what();
    return StatusOf(error.code());
  } catch (const std::exception& thrown) {
    text = thrown.what();
  } catch (...) {
    text = unknown;
  }
  return OPKIT_FAILED;
}
// Reports the exception in flight to the host, and returns the status for it; for use in a catch
// block.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline opkit_status ReportFailure() noexcept {
  std::string text;
  const opkit_status status = DescribeException(text);
  g_host->set_error(status, text.data(), text.size());
  if (g_exceptions) g_exceptions->keep();
  return status;
}
// Runs `body` for the host. `body` may return an OpStatus; exceptions are reported to the host.
template <class Body>
OPKIT_IMAGE_LOCAL opkit_status GuardedCall(Body body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return OPKIT_OK;
    } else {
      const OpStatus status = body();
      if (status.ok()) [[likely]]
        return OPKIT_OK;
      const std::string text = status.message();
      g_host->add_error(text.data(), text.size());
      return OPKIT_FAILED;
    }
  } catch (...) {
    return ReportFailure();
  }
}
// Throws the failure of a function of the host's table.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ThrowHostFailure(const opkit_host* host,
                                                                       opkit_status status) {
  if (g_exceptions) g_exceptions->rethrow();
  throw Error(CodeOfStatus(status), host->failure_text());
}
// Throws the failure, if any, that a function of the host's table has returned.
OPKIT_IMAGE_LOCAL inline void AcceptAnswer(opkit_status status, const opkit_host* host = g_host) {
  if (status != OPKIT_OK) [[unlikely]]
    ThrowHostFailure(host, status);
}
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ThrowNoScratch(const opkit_call* call) {
  Throw(ErrorCode::kFailedPrecondition, "operator ", call->op,
        " has no scratch: declare it with scratch(bytes), or with scratch(f) where the bytes "
        "depend on f(attrs, shapes)");
}

// A loop's body behind a function pointer. Stores an exception of the body; the caller of the loop
// throws it.
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

// Calls f(begin, end) for ranges that together are [0, n), on the host's threads.
template <class F>
void RunHostRanges(const opkit_host* host, const opkit_call* call, int64_t n, int64_t grain, F f) {
  LoopBody<F> body{f, {}, {}};
  const opkit_status status = host->parallel_for(call, n, grain, &LoopBody<F>::Run, &body);
  if (body.thrown) [[unlikely]]
    std::rethrow_exception(body.thrown);
  AcceptAnswer(status, host);
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

// The work of a launch() on its way to a stream.
template <class F>
struct LaunchedWork {
  F work;
  std::string op;

  static opkit_status Run(void* context) {
    return GuardedCall([&self = *static_cast<LaunchedWork*>(context)] {
      try {
        self.work();
      } catch (const Error&) {
        throw;
      } catch (...) {
        throw Error(
            ErrorCode::kOperatorFailed,
            StrCat("work that operator ", self.op, " launched threw: ", CurrentError().message()))
            .SetCause(std::current_exception());
      }
    });
  }
  static void Drop(void* context) { delete static_cast<LaunchedWork*>(context); }
};

}  // namespace detail

// Names a part of an operator's own code, for the scope's life. The work in the scope has its own
// identity, a child of the operator's.
class OpScope {
 public:
  OpScope(const opkit_call* call, const char* name) : host_(call->host), name_(name) {
    host_->scope_begin(call, name, &scope_);
  }
  OpScope(OpScope&&) = delete;
  ~OpScope() { host_->scope_end(&scope_); }
  const char* name() const { return name_; }

 private:
  const opkit_host* host_;
  const char* name_;
  opkit_scope scope_{};
};

// Completes an operator after its function has returned: call Complete or Fail once, from any
// thread. The operator fails if the handle is destroyed without a call. The operator's tensors and
// memory live until the completion.
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
  explicit operator bool() const { return completion_; }

 private:
  // Ends the operator; a second call does nothing.
  void End(opkit_status status, const char* text) {
    if (completion_) host_->complete(std::exchange(completion_, nullptr), status, text);
  }
  const opkit_host* host_;
  opkit_completion* completion_;
};

namespace detail {

// Converts an identity. The upper half of the ABI's `kind` stores the host's Invocation::custom.
inline opkit_invocation ToAbi(const Invocation& identity) {
  return {identity.id, identity.parent,
          static_cast<uint64_t>(identity.kind) | uint64_t{identity.custom} << 32};
}
inline Invocation FromAbi(const opkit_invocation& identity) {
  return {identity.id, identity.parent, static_cast<Invocation::Kind>(identity.kind & 0xff),
          static_cast<uint32_t>(identity.kind >> 32)};
}

}  // namespace detail

// Continues an operator's work in a thread of the author, for the scope's life. `identity` comes
// from OpResource::invocation.
class OpAdoption {
 public:
  explicit OpAdoption(const Invocation& identity) {
    const opkit_invocation token = detail::ToAbi(identity);
    detail::g_host->adopt(&token, &scope_);
  }
  OpAdoption(OpAdoption&&) = delete;
  ~OpAdoption() { detail::g_host->scope_end(&scope_); }

 private:
  opkit_scope scope_{};
};

// An operator that OpResource::invoke_async has started. Valid during the call.
class OpPending {
 public:
  OpPending(const opkit_call* call, opkit_pending* pending) : call_(call), pending_(pending) {}
  // Waits for the operator's end; meanwhile the thread runs other work of the host. Throws the
  // error with which the operator failed.
  void Wait() const { detail::AcceptAnswer(call_->host->wait(call_, pending_), call_->host); }

 private:
  const opkit_call* call_;
  opkit_pending* pending_;
};

// The author's handle of a call; may be copied. Valid during the call; after defer() until the
// completion, so that continuing work may capture a copy. Several threads may call its members at
// the same time, with four exceptions: invoke(), invoke_async(), temporary() and random() allow one
// thread at a time. After the function has returned, defer(), invoke_async() and allocate_output()
// throw kFailedPrecondition.
class OpResource {
 public:
  explicit OpResource(const opkit_call* call) : call_(call) {}

  // Returns the call itself, for the toolkit, and for members of opkit_abi.h that this class does
  // not have.
  const opkit_call* call() const { return call_; }

  // Allocates `bytes` bytes of the device's memory, aligned to 64 bytes; every call returns
  // different memory. The memory is freed when the operator ends, also after a failure; on an
  // asynchronous device when the stream has finished the run. Returns null for 0 bytes. Throws
  // kInvalidArgument, kOutOfMemory.
  void* alloc(int64_t bytes) const {
    void* memory = nullptr;
    Check(host()->alloc(call_, bytes, &memory));
    return memory;
  }
  template <class T>
  T* alloc(int64_t count) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes))
      Throw(ErrorCode::kOutOfRange, "alloc of ", count,
            " elements needs more bytes than 64 bits can count");
    return static_cast<T*>(alloc(bytes));
  }
  // Allocates a tensor in memory like that of alloc().
  OpTensor temporary(std::span<const int64_t> shape, DType dtype) const {
    opkit_tensor tensor = OpTensor().view();
    Check(host()->temporary(call_, static_cast<int32_t>(dtype), static_cast<int32_t>(shape.size()),
                            shape.data(), &tensor));
    return OpTensor(tensor);
  }
  OpTensor temporary(std::initializer_list<int64_t> shape, DType dtype) const {
    return temporary(std::span(shape.begin(), shape.size()), dtype);
  }

  // Makes an output whose shape depends on the data, in an operator with allocatesOutputs(). The
  // output must have no dtype yet, and req() must request it. Call it before forward returns, even
  // if the rest of the run is deferred. The call's list of outputs then contains the tensor. Throws
  // kInvalidArgument for any other output; kTypeMismatch if the inferred dtype differs;
  // kFailedPrecondition; kUnsupported in a program of an older ABI.
  OpTensor allocate_output(int output, std::span<const int64_t> shape, DType dtype) const {
    Need(OPKIT_ABI_HAS(host(), allocate_output), "allocate_output needs ABI 1.1");
    opkit_tensor tensor = OpTensor().view();
    Check(host()->allocate_output(call_, static_cast<uint64_t>(output), static_cast<int32_t>(dtype),
                                  static_cast<int32_t>(shape.size()), shape.data(), &tensor));
    return OpTensor(tensor);
  }
  OpTensor allocate_output(int output, std::initializer_list<int64_t> shape, DType dtype) const {
    return allocate_output(output, std::span(shape.begin(), shape.size()), dtype);
  }

  // Returns the memory declared by scratch(), undefined at the start of every run. Throws
  // kFailedPrecondition without scratch().
  void* scratch() const {
    if (!call_->scratch) [[unlikely]]
      detail::ThrowNoScratch(call_);
    return call_->scratch;
  }
  int64_t scratch_bytes() const { return call_->scratch_bytes; }

  Device device() const {
    return {static_cast<DeviceType>(call_->device_type), call_->device_index};
  }
  // Returns the stream for the operator's work: a CPUStream, or the native stream of the device;
  // null on the CPU.
  void* stream() const { return call_->stream; }
  template <class T>
  T* stream() const {
    return static_cast<T*>(call_->stream);
  }
  // Runs `work` in the order of the stream; on the CPU at once. Moves `work` with its captures to
  // the stream. Throws kUnsupported on a device that runs no host code, as do parallel_for and
  // invoke. On such a device issue work on stream().
  template <class F>
  void launch(F work) const {
    if (!call_->asynchronous) return static_cast<void>(work());
    using Work = detail::LaunchedWork<F>;
    Check(host()->launch(call_, &Work::Run, &Work::Drop, new Work{std::move(work), call_->op}));
  }
  // Calls f(i) for every i in [0, n) on the host's threads; in the order of the stream if there is
  // a stream. With opkit/backends/cuda/parallel_for.hpp in a .cu file, an OPKIT_DEVICE lambda is a
  // kernel on the stream.
  template <class F>
  void parallel_for(int64_t n, F f, int64_t grain = 0) const {
    if constexpr (requires(const OpResource& self) { IssueDeviceLoop(self, n, f); })
      IssueDeviceLoop(*this, n, f);
    else
      LoopOnHost(n, std::move(f), grain);
  }

  // Returns the generator of this run; its numbers depend on SetSeed, the operator's name and the
  // run.
  RandomGenerator& random() const {
    static_assert(sizeof(RandomGenerator) <= 7 * sizeof(uint64_t));
    uint64_t* room = const_cast<opkit_call*>(call_)->author;
    if (!room[7]) {
      room[7] = 1;
      return *new (room) RandomGenerator(random(0));
    }
    return *std::launder(reinterpret_cast<RandomGenerator*>(room));
  }
  // Returns a generator of an independent sequence, for instance for each row of a parallel loop.
  RandomGenerator random(uint64_t stream) const {
    return RandomGenerator(call_->random_seed, stream);
  }

  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) const {
    host()->log(call_, static_cast<int32_t>(level), StrCat(parts...).c_str());
  }
  [[nodiscard]] OpScope scope(const char* name) const { return OpScope(call_, name); }
  // Returns the identity of this thread's work, for OpAdoption to continue it in another thread.
  Invocation invocation() const {
    opkit_invocation now{};
    host()->invocation(&now);
    return detail::FromAbi(now);
  }

  // Lets the function of an operator with async() return before its outputs are computed; the
  // holder of the handle completes the run. At most once in a call. Throws kFailedPrecondition.
  OpCompletion defer() const {
    opkit_completion* completion = nullptr;
    Check(host()->defer(call_, &completion));
    return OpCompletion(host(), completion);
  }

  // Runs another operator on these tensors and writes into the given outputs. The host keeps the
  // prepared operator from run to run. On a CPU stream the operator runs in the order of the
  // stream. Throws the errors of Invoke; kInvalidArgument if an output has another dtype or shape
  // than the result.
  //
  //   res.invoke("Add", {inputs[0], inputs[1]}, {outputs[0]});
  void invoke(std::string_view op, std::span<const OpTensor> inputs,
              std::span<const OpTensor> outputs, const Arguments& args = {}) const {
    const std::string name(op);
    const detail::AbiAttributes attributes(args);
    Check(host()->invoke(call_, name.c_str(), inputs.size(), Views(inputs), outputs.size(),
                         Views(outputs), attributes.size(), attributes.data()));
  }
  void invoke(std::string_view op, std::initializer_list<OpTensor> inputs,
              std::initializer_list<OpTensor> outputs, const Arguments& args = {}) const {
    invoke(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
           args);
  }
  // Runs another operator like invoke, but on the host's threads, in parallel to the caller's own
  // code. A pool of one thread runs the operator at once; a stream runs it in the stream's order.
  // Wait throws the Error of the started operator. Without a Wait the calling operator fails with
  // this Error. The started operator always ends before the calling operator. Throws like invoke
  // for errors before the run; kUnsupported in a program of an older ABI.
  //
  //   const OpPending sum = res.invoke_async("Add", {inputs[0], inputs[1]}, {outputs[0]});
  //   …
  //   sum.Wait();
  OpPending invoke_async(std::string_view op, std::span<const OpTensor> inputs,
                         std::span<const OpTensor> outputs, const Arguments& args = {}) const {
    Need(OPKIT_ABI_HAS(host(), wait), "invoke_async needs ABI 1.2");
    const std::string name(op);
    const detail::AbiAttributes attributes(args);
    opkit_pending* pending = nullptr;
    Check(host()->invoke_async(call_, name.c_str(), inputs.size(), Views(inputs), outputs.size(),
                               Views(outputs), attributes.size(), attributes.data(), &pending));
    return OpPending(call_, pending);
  }
  OpPending invoke_async(std::string_view op, std::initializer_list<OpTensor> inputs,
                         std::initializer_list<OpTensor> outputs,
                         const Arguments& args = {}) const {
    return invoke_async(op, std::span(inputs.begin(), inputs.size()),
                        std::span(outputs.begin(), outputs.size()), args);
  }

  // Runs a graph that the operator's node carries (OpContext::node), or a part of a graph, in the
  // program. Useful for nodes that an operator has accepted but cannot run itself. Inputs and
  // outputs are matched by position; the results are written to the given tensors. The host
  // prepares the graph once; on a CPU stream the graph runs in the order of the stream. Throws the
  // errors of the graph's operators, and in its first run those of Compile; kInvalidArgument if
  // tensors do not fit; kUnsupported in a program of an older ABI and off the CPU.
  void run_graph(const opkit_graph& graph, std::span<const OpTensor> inputs,
                 std::span<const OpTensor> outputs) const {
    Need(OPKIT_ABI_HAS(host(), run_graph), "run_graph needs ABI 1.3");
    Check(host()->run_graph(call_, &graph, inputs.size(), Views(inputs), outputs.size(),
                            Views(outputs)));
  }

 private:
  template <class F>
  void LoopOnHost(int64_t n, F f, int64_t grain) const {
    static_assert(std::is_invocable_v<F&, int64_t>,
                  "parallel_for: the body must be callable as f(int64_t index)");
    if (!call_->asynchronous) return detail::RunHostLoop(host(), call_, n, grain, f);
    launch([n, f = std::move(f), grain, host = host()]() mutable {
      detail::RunHostLoop(host, static_cast<const opkit_call*>(nullptr), n, grain, f);
    });
  }
  static const opkit_tensor* Views(std::span<const OpTensor> tensors) {
    return tensors.empty() ? nullptr : &tensors.data()->view();
  }
  const opkit_host* host() const { return call_->host; }
  // Throws kUnsupported if the program's older ABI lacks a function.
  void Need(bool has, const char* what) const {
    if (!has)
      Throw(ErrorCode::kUnsupported, what, "; this program has ", host()->abi_major, ".",
            host()->abi_minor);
  }
  void Check(opkit_status status) const { detail::AcceptAnswer(status, host()); }

  const opkit_call* call_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_

// ---- opkit/op/function/stateful_op.hpp
// StatefulOp: the base class of the objects that setCreateOpState makes, with the OpContext that
// they are made for.
#ifndef OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_
#define OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct KernelConfig;

// The device and the node that a state is made for. The state may keep the pointers: they are valid
// as long as its operator lives.
struct OpContext {
  Device device;
  const OperatorDef* def = nullptr;      // the node; null in a library
  const opkit_node* node = nullptr;      // the node as a C struct, with its graphs
  const KernelConfig* config = nullptr;  // the selected configuration; null in a library
};

// Selects the forward or the backward functions of a record.
enum class FunctionPass : uint8_t { kForward, kBackward };

// The base class of an operator that keeps data between its runs. The function of setCreateOpState
// makes one object for each operator instance. The object is destroyed with the instance, or, if a
// deferred run is in flight, in the thread that completes that run. A class overrides either form
// of Forward and Backward; the form with spans does not allocate. Run is for a class with one
// function for both passes.
class StatefulOp : public detail::RefCounted {
 public:
  virtual OpStatus Run(FunctionPass pass, std::span<const OpTensor> inputs,
                       std::span<OpTensor> outputs, OpResource& resource) {
    return pass == FunctionPass::kForward ? Forward(inputs, outputs, resource)
                                          : Backward(inputs, outputs, resource);
  }
  virtual OpStatus Forward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                           OpResource& resource) {
    return detail::ToStatus(Forward(List(inputs), List(outputs), resource));
  }
  // Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs.
  virtual OpStatus Backward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                            OpResource& resource) {
    return detail::ToStatus(Backward(List(inputs), List(outputs), resource));
  }
  // The same functions in MXNet's form: lists are allocated at every call, and the result is
  // SUCCESS or FAIL.
  virtual int Forward(std::vector<OpTensor>, std::vector<OpTensor>, const OpResource&) {
    OPKIT_ERROR_MSG << "its StatefulOp overrides neither Forward nor Run";
    return FAIL;
  }
  virtual int Backward(std::vector<OpTensor>, std::vector<OpTensor>, const OpResource&) {
    OPKIT_ERROR_MSG << "its StatefulOp does not override Backward";
    return FAIL;
  }

 private:
  static std::vector<OpTensor> List(std::span<const OpTensor> tensors) {
    return {tensors.begin(), tensors.end()};
  }
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_

// ---- opkit/op/function/state_of_inputs.hpp
// StateOfInputs: the state of an operator whose setCreateOpState wants the shapes and types of its
// inputs. They are known in a run, not when the operator is made.
#ifndef OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_
#define OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The shapes of inputs or outputs. An extent of -1 is unknown. An empty shape means a scalar, or
// during inference a shape of unknown rank.
using ShapeVectors = std::vector<std::vector<int64_t>>;

namespace detail {

// Makes the author's state in the first run, from the tensors of that run, and again in a run whose
// inputs have other shapes or types. Each run runs that state.
class StateOfInputs final : public StatefulOp {
 public:
  using MakeFunction = UniqueFunction<OpStatus(
      const ShapeVectors& shapes, const std::vector<DType>& types, IntrusivePtr<StatefulOp>& made)>;

  explicit StateOfInputs(MakeFunction make) : make_(std::move(make)) {}
  // If no state can be made, the run fails, and the operator keeps the state that it has.
  OPKIT_INLINE OpStatus Run(FunctionPass pass, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource& resource) override;

 private:
  // True if the state was made for these inputs.
  bool Fits(std::span<const OpTensor> inputs) const;
  OpStatus Make(std::span<const OpTensor> inputs);

  MakeFunction make_;
  ShapeVectors shapes_;
  std::vector<DType> types_;
  IntrusivePtr<StatefulOp> state_;
  // The states that earlier runs have used, while work of these runs may be left.
  std::vector<IntrusivePtr<StatefulOp>> replaced_;
  const opkit_call* calls_[2] = {};  // the last run of each pass
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_STATE_OF_INPUTS_HPP_

// ---- opkit/op/function/function_signature.hpp
// The signatures that function operators may have, read at compile time and adapted to one
// type-erased form each. The fast forms are called directly; the other forms copy maps and vectors
// at every call.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct KernelQuery;
struct FusionQuery;
struct FusedNode;

using ForwardFunction = UniqueFunction<OpStatus(const AttrMap&, std::span<const OpTensor>,
                                                std::span<OpTensor>, OpResource&)>;
using ParseAttrsFunction = UniqueFunction<OpStatus(const AttrMap&, int* num_in, int* num_out)>;
using InferTypeFunction =
    UniqueFunction<OpStatus(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out)>;
using InferShapeFunction =
    UniqueFunction<OpStatus(const AttrMap&, ShapeVectors& in, ShapeVectors& out)>;
using MutateInputsFunction = UniqueFunction<OpStatus(const AttrMap&, std::vector<int>& inputs)>;
// Makes the state of an operator. The state may keep references to the attributes, and what the
// context points to: both live as long as the operator.
using CreateStateFunction =
    UniqueFunction<OpStatus(const AttrMap&, const OpContext&, detail::IntrusivePtr<StatefulOp>&)>;
using ScratchFunction = UniqueFunction<int64_t(const AttrMap&, const ShapeVectors& in)>;
using FlopsFunction =
    UniqueFunction<uint64_t(const AttrMap&, const ShapeVectors& in, const ShapeVectors& out)>;

namespace detail {

// True for a parameter that takes attributes: const AttrMap&, or a map of strings by value or const
// reference.
template <class P>
constexpr bool IsAttrs() {
  using Map = std::remove_cvref_t<P>;
  constexpr bool kReadOnly =
      !std::is_reference_v<P> ||
      (std::is_lvalue_reference_v<P> && std::is_const_v<std::remove_reference_t<P>>);
  if constexpr (std::is_same_v<Map, AttrMap>)
    return kReadOnly && std::is_reference_v<P>;
  else
    return kReadOnly && StringMap<Map>;
}
template <class P>
const std::remove_cvref_t<P>& PassAttrs(const AttrMap& attrs) {
  using Map = std::remove_cvref_t<P>;
  if constexpr (std::is_same_v<Map, AttrMap>)
    return attrs;
  else
    return attrs.As<Map>();
}

// True for a parameter that takes tensors: a span, or a vector by value, reference or pointer.
template <class P, bool kInputs>
inline constexpr bool kIsTensors =
    std::is_same_v<std::remove_cvref_t<P>, std::span<const OpTensor>> ||
    (!kInputs && std::is_same_v<std::remove_cvref_t<P>, std::span<OpTensor>>) ||
    (kIsPassed<P> && std::is_same_v<Pointee<P>, std::vector<OpTensor>>);

template <class P>
class TensorsArg {
  static constexpr bool kCopies = std::is_same_v<Pointee<P>, std::vector<OpTensor>>;

 public:
  template <class Span>
  explicit TensorsArg(Span tensors) : items_(tensors.begin(), tensors.end()) {}
  decltype(auto) Get() {
    if constexpr (kCopies)
      return PassAs<P>(items_);
    else
      return (items_);
  }

 private:
  std::conditional_t<kCopies, Pointee<P>, std::remove_cvref_t<P>> items_;
};

// True for a parameter that takes types: as DType, or as int with -1 for unknown.
template <class P>
inline constexpr bool kIsTypes = kIsPassed<P> && (std::is_same_v<Pointee<P>, std::vector<int>> ||
                                                  std::is_same_v<Pointee<P>, std::vector<DType>>);
template <class P>
class TypesArg {
 public:
  TypesArg(const std::vector<DType>& types, const char*) {
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
        if (type < -1 || type >= kNumPlainDTypes)
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

// True for a parameter that takes shapes, of int64_t or unsigned int. An unknown extent is -1 in
// both: 4294967295 as unsigned int.
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

// The overloads that AdaptTo calls (function_parameters.hpp).
template <class F, class A, class I, class O, class R>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTensors<I, true> &&
           kIsTensors<O, false> && kIsResource<R>)
ForwardFunction Adapt(As<ForwardFunction>, F f, TypeList<A, I, O, R>) {
  return [f = std::move(f)](const AttrMap& attrs, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource& resource) mutable -> OpStatus {
    TensorsArg<I> in(inputs);
    TensorsArg<O> out(outputs);
    return CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get(), resource);
  };
}
template <class F, class A>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>())
ParseAttrsFunction Adapt(As<ParseAttrsFunction>, F f, TypeList<A, int*, int*>) {
  return [f = std::move(f)](const AttrMap& attrs, int* num_in, int* num_out) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), num_in, num_out);
  };
}
template <class List, class A, class In, class Out, class F>
auto AdaptInference(F f) {
  return [f = std::move(f)](const AttrMap& attrs, List& inputs, List& outputs) mutable {
    In in(inputs, "input");
    Out out(outputs, "output");
    OpStatus status = CallForStatus(f, PassAttrs<A>(attrs), in.Get(), out.Get());
    if (status.ok()) in.Store(inputs, "input"), out.Store(outputs, "output");
    return status;
  };
}
template <class F, class A, class I, class O>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsTypes<I> && kIsTypes<O> &&
           kIsWritable<O>)
InferTypeFunction Adapt(As<InferTypeFunction>, F f, TypeList<A, I, O>) {
  return AdaptInference<std::vector<DType>, A, TypesArg<I>, TypesArg<O>>(std::move(f));
}
template <class F, class A, class I, class O>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I> && kIsShapes<O> &&
           kIsWritable<O>)
InferShapeFunction Adapt(As<InferShapeFunction>, F f, TypeList<A, I, O>) {
  return AdaptInference<ShapeVectors, A, ShapesArg<I>, ShapesArg<O>>(std::move(f));
}
template <class F, class A, class I>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsPassed<I> && kIsWritable<I> &&
           std::is_same_v<Pointee<I>, std::vector<int>>)
MutateInputsFunction Adapt(As<MutateInputsFunction>, F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, std::vector<int>& inputs) mutable {
    return CallForStatus(f, PassAttrs<A>(attrs), PassAs<I>(inputs));
  };
}
template <class P>
inline constexpr bool kIsStateOwner = false;
// True if P is a std::unique_ptr<StatefulOp>*; recognised by its members, so that <memory> is not
// included.
template <class P>
  requires requires(P* owner) {
    requires std::is_same_v<typename P::element_type, StatefulOp>;
    requires std::is_same_v<decltype(owner->release()), StatefulOp*>;
  }
inline constexpr bool kIsStateOwner<P*> = true;
template <class P>
inline constexpr bool kIsStateOut = std::is_same_v<P, StatefulOp**> || kIsStateOwner<P>;

// Receives the state that a function makes. Adopts the state at once, so that it is freed also if
// the function fails after making it.
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
template <class F, class A, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext&,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), made.Get());
  };
}
template <class F, class A, class C, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsOpContext<C> && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, C, S>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext& context,
                            IntrusivePtr<StatefulOp>& state) mutable {
    StateOut<S> made(state);
    return CallForStatus(f, PassAttrs<A>(attrs), context, made.Get());
  };
}
template <class F, class A, class C, class I, class T, class S>
  requires(kIsReturn<FunctionReturn<F>> && IsAttrs<A>() && kIsOpContext<C> && kIsShapes<I> &&
           kIsTypes<T> && kIsStateOut<S>)
CreateStateFunction Adapt(As<CreateStateFunction>, F f, TypeList<A, C, I, T, S>) {
  return [shared = MakeIntrusive<Shared<F>>(std::move(f))](
             const AttrMap& attrs, const OpContext& context, IntrusivePtr<StatefulOp>& state) {
    state = MakeIntrusive<StateOfInputs>([shared, &attrs, context](const ShapeVectors& shapes,
                                                                   const std::vector<DType>& types,
                                                                   IntrusivePtr<StatefulOp>& made) {
      ShapesArg<I> in_shapes(shapes, "input");
      TypesArg<T> in_types(types, "input");
      StateOut<S> out(made);
      return CallForStatus(shared->value, PassAttrs<A>(attrs), context, in_shapes.Get(),
                           in_types.Get(), out.Get());
    });
    return OpStatus();
  };
}
template <class F, class A, class I>
  requires(std::is_integral_v<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I>)
ScratchFunction Adapt(As<ScratchFunction>, F f, TypeList<A, I>) {
  return [f = std::move(f)](const AttrMap& attrs, const ShapeVectors& inputs) mutable {
    ShapesArg<I> in(inputs, "input");
    return static_cast<int64_t>(f(PassAttrs<A>(attrs), in.Get()));
  };
}
template <class F, class A, class I, class O>
  requires(std::is_integral_v<FunctionReturn<F>> && IsAttrs<A>() && kIsShapes<I> && kIsShapes<O>)
FlopsFunction Adapt(As<FlopsFunction>, F f, TypeList<A, I, O>) {
  return [f = std::move(f)](const AttrMap& attrs, const ShapeVectors& inputs,
                            const ShapeVectors& outputs) mutable {
    ShapesArg<I> in(inputs, "input");
    ShapesArg<O> out(outputs, "output");
    return static_cast<uint64_t>(f(PassAttrs<A>(attrs), in.Get(), out.Get()));
  };
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_FUNCTION_SIGNATURE_HPP_

// ---- opkit/op/schema/value_schema.hpp
// The descriptions of an operator's attributes, inputs and outputs: the same types in a schema and
// in a library's record.
#ifndef OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An attribute that an operator accepts.
struct AttributeSchema {
  std::string name;
  std::string doc;
  bool required = false;
  std::optional<AttributeType> type;  // unset: any
  std::optional<Attribute> default_value;
  std::vector<std::string> values = {};  // allowed strings, also in lists; empty: any

  // Returns the first string of an attribute that `values` lacks; null if all strings are allowed.
  const std::string* FindOther(const Attribute& given) const {
    for (const std::string& found : given.values().strings) {
      bool allowed = values.empty();
      for (const std::string& value : values) allowed |= value == found;
      if (!allowed) return &found;
    }
    return nullptr;
  }
};

// An input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;  // empty: any but string, sequence and optional

  // True if the dtype is allowed, or unknown.
  bool Allows(DType dtype) const {
    for (const DType allowed : dtypes)
      if (allowed == dtype) return true;
    return dtype == DType::kUndefined || (dtypes.empty() && !IsObject(dtype));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_

// ---- opkit/op/function_op.hpp
// REGISTER_OP: operators made of plain functions, in the spelling of MXNet's loadable operators.
// The builder fills in a record. A program registers the record
// (op/function/function_operator.hpp); a library exports it (plugin/export/library_export.hpp).
#ifndef OPKIT_OP_FUNCTION_OP_HPP_
#define OPKIT_OP_FUNCTION_OP_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if REGISTER_OP accepts the name: my_gemm, com.me.Gemm, me::Gemm.
consteval bool IsOperatorName(std::string_view name) {
  for (const char c : name)
    if (c == '"' || c == ' ' || c == '<' || c == '(') return false;
  return !name.empty();
}

// True if the registration of an operator with this Host defines an anchor function: only in a
// program, and only if the operator's name can be part of a function's name.
template <class Host>
consteval bool HasAnchor(std::string_view name) {
  return !Host::kIsLibrary && IsIdentifier(name);
}

// Counts the operators and deferred runs that keep a library loaded. Any other handle to this
// object keeps the library loaded as well. Relaxed everywhere: unloading reads the counts only for
// its message.
struct FunctionUse : RefCounted {
  std::atomic<int64_t> operators{0}, late_runs{0};
};

}  // namespace detail

// The functions for one device type.
struct FunctionDevice {
  std::string name;                    // "cpu", "gpu", …
  std::string backend;                 // the backend of a library's kernel; empty: the plain kernel
  DeviceType type = DeviceType::kCPU;  // the type of that name, if the program knows it
  ForwardFunction forward, backward;
  CreateStateFunction create_state;  // if set, its object runs instead of forward and backward
  bool shares_state = true;          // backward runs the same object as forward
  // Set for a library's kernel that proposes configurations. Empty: one configuration, as the
  // record declares.
  UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)> propose;
  // Set for a library's kernel that can fuse with the next node.
  UniqueFunction<std::optional<FusedNode>(const FusionQuery&)> fuse;
  opkit_kernel abi{};  // the functions in the form of opkit_abi.h, for libraries
};

// The description of an operator. REGISTER_OP fills it in; a library also fills in records for its
// class and typed operators. op/boundary/convert/op_conversion.hpp converts it to an opkit_op, and
// back to a record in the program that loads the library. Read-only after registration; several
// threads call its functions.
struct FunctionOpRecord : detail::RefCounted {
  std::string name;
  const char* file = "";
  int line = 0;
  std::string doc;
  std::string library;  // the library of the record; empty for the program itself
  // The name and version that the library announces: its own version, or that of its toolkit.
  std::string library_name, library_version;
  uint64_t flags = 0;  // OPKIT_OP_SUBGRAPH, …
  std::vector<FunctionDevice> devices;
  std::vector<std::pair<int, int>> inplace;  // {input, output}
  std::vector<detail::AttributeSchema> attributes;
  std::vector<detail::ValueSchema> inputs, outputs;

  // The functions of REGISTER_OP.
  ParseAttrsFunction parse_attrs;
  InferTypeFunction infer_type;
  InferShapeFunction infer_shape;
  MutateInputsFunction mutate_inputs;
  ScratchFunction scratch;
  FlopsFunction flops;
  // The record in the form of opkit_abi.h, for a record that crosses the boundary.
  opkit_op abi{};
  // detail::FunctionHooks, which a loaded library's operator uses instead of the functions.
  detail::IntrusivePtr<detail::RefCounted> hooks;

  // The library's use count. Every operator made of the record holds it, and so does every object
  // that may make further operators.
  detail::IntrusivePtr<detail::FunctionUse> in_use;
  std::string problem;  // the fault of the registration; reported when the operator is used

  // Returns the attributes of a node, with defaults for attributes that the node does not give.
  template <class From>
  AttrMap Attrs(const From& from) const {
    AttrMap attrs(from);
    for (const detail::AttributeSchema& declared : attributes)
      if (declared.default_value) attrs.AddDefault(declared.name, *declared.default_value);
    return attrs;
  }
  // Sets the numbers of a node's inputs and outputs: from parse_attrs if set, else from the
  // declared inputs and outputs.
  OpStatus CountValues(const AttrMap& attrs, int* num_in, int* num_out) {
    if (parse_attrs) return parse_attrs(attrs, num_in, num_out);
    if (!inputs.empty()) *num_in = static_cast<int>(inputs.size());
    if (!outputs.empty()) *num_out = static_cast<int>(outputs.size());
    return {};
  }
  bool Has(uint64_t flag) const { return (flags & flag) != 0; }
  // True if a record that came from a library has a backward function.
  bool HasBackward() const {
    for (const FunctionDevice& device : devices)
      if (device.abi.backward) return true;
    return false;
  }
};

namespace detail {
using FunctionRecord = IntrusivePtr<FunctionOpRecord>;
}  // namespace detail

// The builder that REGISTER_OP makes; fills in a record. Devices are "cpu" (the default), "gpu",
// "cpu_stream", or the name of your own device type. A setter accepts a function, a function
// pointer or a lambda.
//
//   int forward(std::map<std::string, std::string> attrs, std::vector<OpTensor> inputs,
//               std::vector<OpTensor> outputs, OpResource res);
//   REGISTER_OP(my_gemm).setForward(forward, "cpu").setBackward(backward, "cpu")
//       .setParseAttrs(parseAttrs).setInferType(inferType).setInferShape(inferShape);
//
// Attributes arrive in a map of strings, by value or const reference; tensors in a vector, by
// value, reference or pointer. The function returns int (1 is success), bool, ReturnValue, Status
// or void. The form that allocates nothing is
//   Status forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&);
//
// Host receives the record and each addition to it: FunctionOpHost in a program, LibraryOpHost in a
// library.
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

  // Sets the function that computes the outputs. Output shapes come from inferShape; without it,
  // from the output tensors before the run.
  template <class F>
  BasicFunctionOpBuilder& setForward(F f, const char* device = "cpu") {
    static_assert(detail::kFits<ForwardFunction, F>,
                  "setForward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    return OnDevice<FunctionPass::kForward>(device, "setForward", &FunctionDevice::forward,
                                            std::move(f));
  }
  // Sets the function that computes the gradients of the inputs. Its tensors are the gradients of
  // the outputs, the inputs and the outputs, in this order. Registers the operator <name>_backward,
  // and the gradient of this operator.
  template <class F>
  BasicFunctionOpBuilder& setBackward(F f, const char* device = "cpu") {
    static_assert(detail::kFits<ForwardFunction, F>,
                  "setBackward(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or "
                  "Status f(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, "
                  "OpResource&)");
    return OnDevice<FunctionPass::kBackward>(device, "setBackward", &FunctionDevice::backward,
                                             std::move(f));
  }
  // Sets the function that makes the object that runs the operator. The object also computes the
  // gradient, with two exceptions: after setIsSubgraphOp() the graph's gradient is used, and after
  // noGradient() the operator has no gradient.
  //   int f(std::map<std::string, std::string> attrs, StatefulOp** state)
  //   int f(std::map<std::string, std::string> attrs, const OpContext& context, StatefulOp** state)
  //   int f(std::map<std::string, std::string> attrs, const OpContext& context,
  //         const std::vector<std::vector<unsigned int>>& in_shapes,
  //         const std::vector<int>& in_types, StatefulOp** state)
  // The last form, of MXNet 1.8, gets the shapes and dtypes of the operator's inputs. It is called
  // in the first run, and again in a run whose inputs have other shapes or dtypes: the new object
  // replaces the old one. A run fails if its object cannot be made.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kFits<CreateStateFunction, F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device, and const std::vector<std::vector<unsigned int>>& in_shapes, const "
                  "std::vector<int>& in_types behind it if you need these; "
                  "std::unique_ptr<StatefulOp>* also does for the state");
    OnDevice<FunctionPass::kForward>(device, "setCreateOpState", &FunctionDevice::create_state,
                                     std::move(f));
    return Guarded([&] {
      if (auto* added = FindDevice(Host::DeviceName(device, "setCreateOpState")))
        if (!record_->Has(OPKIT_OP_NO_GRADIENT) && !record_->Has(OPKIT_OP_SUBGRAPH))
          host_.template Add<FunctionPass::kBackward>(*added);
    });
  }
  // Declares that the operator has no gradient, for instance because its StatefulOp has no
  // Backward.
  BasicFunctionOpBuilder& noGradient() {
    record_->flags |= OPKIT_OP_NO_GRADIENT;
    return Guarded([&] {
      for (const FunctionDevice& device : record_->devices)
        CheckGradient(static_cast<bool>(device.backward));
      host_.NoGradient();
    });
  }
  // Declares an attribute of any type, of type T, or of the type of its default. The functions get
  // the default if a node does not give the attribute. After the first declaration a node may give
  // no undeclared attribute, unless allowUncheckedAttributes() is called.
  BasicFunctionOpBuilder& arg(const char* name, const char* doc) {
    return Declare({name, doc, false, {}, {}});
  }
  template <class T>
  BasicFunctionOpBuilder& arg(const char* name, const char* doc) {
    return Declare({name, doc, false, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& arg(const char* name, const char* doc, Attribute fallback) {
    return Declare({name, doc, false, fallback.type(), fallback});
  }
  // Declares an attribute that every node must give.
  template <class T>
  BasicFunctionOpBuilder& requiredArg(const char* name, const char* doc) {
    return Declare({name, doc, true, kAttributeTypeOf<T>, {}});
  }
  BasicFunctionOpBuilder& allowUncheckedAttributes() {
    return Guarded([&] { host_.OpenAttrs(); }).Set(OPKIT_OP_OPEN_ATTRS);
  }
  // Declares the next input or output: its name and, if limited, its dtypes. Without setParseAttrs
  // every node has exactly the declared inputs and outputs.
  BasicFunctionOpBuilder& input(const char* name, const char* doc = "",
                                std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      host_.Input(record_->inputs.emplace_back(detail::ValueSchema{name, doc, std::move(dtypes)}));
    });
  }
  BasicFunctionOpBuilder& output(const char* name, const char* doc = "",
                                 std::vector<DType> dtypes = {}) {
    return Guarded([&] {
      host_.Output(
          record_->outputs.emplace_back(detail::ValueSchema{name, doc, std::move(dtypes)}));
    });
  }
  // Sets the function that computes the numbers of inputs and outputs from the attributes, and
  // refuses wrong attributes. A number may be -1, which allows any number; after setIsSubgraphOp()
  // it is then that of the node's graph. Both numbers are -1 without this function and without
  // declared inputs and outputs; a library's operator needs one of these, or setIsSubgraphOp().
  template <class F>
  BasicFunctionOpBuilder& setParseAttrs(F f) {
    static_assert(detail::kFits<ParseAttrsFunction, F>,
                  "setParseAttrs(f): write int f(std::map<std::string, std::string> attrs, int* "
                  "num_in, int* num_out)");
    return Once(record_->parse_attrs, "setParseAttrs", std::move(f));
  }
  // Sets the function that infers the outputs' dtypes from the inputs', or the reverse. Dtypes and
  // shapes have separate functions, unlike OpSchema's single Infer: MXNet's libraries have two
  // functions, opkit_abi.h calls them separately, and dtypes are often known before shapes. Dtypes
  // are numbers of DType; -1 is unknown. Without the function every output has the dtype of input
  // 0.
  template <class F>
  BasicFunctionOpBuilder& setInferType(F f) {
    static_assert(detail::kFits<InferTypeFunction, F>,
                  "setInferType(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& intypes, std::vector<int>& outtypes)");
    host_.InfersTypes();
    return Once(record_->infer_type, "setInferType", std::move(f));
  }
  // Sets the function that infers the outputs' shapes from the inputs', or the reverse. An unknown
  // extent is -1 (as unsigned int the largest number); a value without any known shape has an empty
  // shape. While an input's shape is unknown, a failure means only that the shapes cannot be
  // inferred yet. A library's operator with outputs needs this function, unless it calls
  // allocatesOutputs().
  template <class F>
  BasicFunctionOpBuilder& setInferShape(F f) {
    static_assert(detail::kFits<InferShapeFunction, F>,
                  "setInferShape(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<std::vector<unsigned int>>& inshapes, "
                  "std::vector<std::vector<unsigned int>>& outshapes), or with int64_t");
    host_.InfersShapes();
    return Once(record_->infer_shape, "setInferShape", std::move(f));
  }
  // Sets the indices of the inputs that the operator writes to.
  template <class F>
  BasicFunctionOpBuilder& setMutateInputs(F f) {
    static_assert(detail::kFits<MutateInputsFunction, F>,
                  "setMutateInputs(f): write int f(std::map<std::string, std::string> attrs, "
                  "std::vector<int>& input_indices), or setMutateInputs({0, 2})");
    host_.MutatesInputs();
    return Once(record_->mutate_inputs, "setMutateInputs", std::move(f));
  }
  BasicFunctionOpBuilder& setMutateInputs(std::initializer_list<int> inputs) {
    return setMutateInputs(
        [list = std::vector<int>(inputs)](const AttrMap&, std::vector<int>& out) { out = list; });
  }
  // Requests scratch memory for every run, forward or backward. The size depends only on the
  // attributes and the shapes of the forward inputs, so that a plan can reserve it.
  BasicFunctionOpBuilder& scratch(int64_t bytes) {
    host_.NeedsScratch();
    return Once(record_->scratch, "scratch",
                [bytes](const AttrMap&, const ShapeVectors&) { return bytes; });
  }
  template <class F>
    requires(!std::is_arithmetic_v<F>)
  BasicFunctionOpBuilder& scratch(F f) {
    static_assert(detail::kFits<ScratchFunction, F>,
                  "scratch(f): write int64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes), or scratch(bytes)");
    host_.NeedsScratch();
    return Once(record_->scratch, "scratch", std::move(f));
  }
  // Sets the function that counts the floating-point operations of a run with known shapes; the
  // toolkit counts the bytes.
  template <class F>
  BasicFunctionOpBuilder& flops(F f) {
    static_assert(detail::kFits<FlopsFunction, F>,
                  "flops(f): write uint64_t f(const AttrMap& attrs, const "
                  "std::vector<std::vector<int64_t>>& inshapes, const "
                  "std::vector<std::vector<int64_t>>& outshapes)");
    Once(record_->flops, "flops", std::move(f));
    return Guarded([&] { host_.Cost(); });
  }
  // Adds pairs {input, output} that may share memory.
  BasicFunctionOpBuilder& inplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Guarded([&] {
      for (const auto& pair : pairs) record_->inplace.push_back(pair);
    });
  }
  // Declares that every node carries a graph, which the functions run; a node without a graph is
  // refused. A node has as many inputs and outputs as its one graph, unless setParseAttrs or
  // declared inputs and outputs say another number. Without setBackward the operator's gradient is
  // the gradient of the graph.
  BasicFunctionOpBuilder& setIsSubgraphOp() {
    return Guarded([&] {
             host_.NeedsSubgraph();
             for (const FunctionDevice& device : record_->devices)
               if (device.backward) return;
             host_.DropBackward();  // setCreateOpState added this backward
           })
        .Set(OPKIT_OP_SUBGRAPH);
  }
  // Declares that the functions read strides(). Otherwise strided inputs arrive as dense copies.
  BasicFunctionOpBuilder& acceptsStrides() { return Set(OPKIT_OP_ACCEPTS_STRIDES); }
  // Declares that the functions handle OpReq::kAdd. Otherwise the toolkit adds their results.
  BasicFunctionOpBuilder& acceptsAdd() { return Set(OPKIT_OP_ACCEPTS_ADD); }
  // Declares that the work may end after forward has returned: forward calls OpResource::defer(),
  // and the holder of its result completes the run. Only for the CPU: on a stream the stream
  // completes the run.
  BasicFunctionOpBuilder& async() { return Set(OPKIT_OP_ASYNC); }
  // Declares that output shapes depend on the data. If inference cannot determine an output's
  // shape, the output has no dtype and no memory until forward calls OpResource::allocate_output.
  // Not for CPU streams, where the work runs after forward.
  BasicFunctionOpBuilder& allocatesOutputs() { return Set(OPKIT_OP_ALLOCATES_OUTPUTS); }
  // Declares that two runs on the same inputs may differ (random numbers), or that a run has an
  // effect beside its outputs: a graph never merges, folds or drops such nodes.
  BasicFunctionOpBuilder& stateful() {
    return Guarded([&] { host_.HasEffects(); }).Set(OPKIT_OP_EFFECTS);
  }
  BasicFunctionOpBuilder& doc(const char* doc) {
    return Guarded([&] {
      record_->doc = doc;
      host_.Doc();
    });
  }

 private:
  BasicFunctionOpBuilder& Declare(detail::AttributeSchema attribute) {
    return Guarded([&] {
      for (const detail::AttributeSchema& known : record_->attributes)
        if (known.name == attribute.name)
          Throw(ErrorCode::kInvalidArgument, "attribute '", known.name, "' is declared twice");
      host_.Attr(record_->attributes.emplace_back(std::move(attribute)));
    });
  }
  BasicFunctionOpBuilder& Set(uint64_t flag) {
    record_->flags |= flag;
    return *this;
  }
  // Keeps an error and reports it when the operator is used, because static initialisers must not
  // throw.
  template <class F>
  BasicFunctionOpBuilder& Guarded(F call) noexcept {
    try {
      call();
    } catch (...) {
      AddProblem(CurrentError().what());
    }
    return *this;
  }
  void AddProblem(const std::string& text) noexcept {
    try {
      std::string problem = StrCat("REGISTER_OP(", record_->name, ") at ", record_->file, ":",
                                   record_->line, ": ", text);
      host_.Problem(problem);
      if (record_->problem.empty()) record_->problem = std::move(problem);
    } catch (...) {  // out of memory: the problem cannot be stored
    }
  }
  template <class Function, class F>
  BasicFunctionOpBuilder& Once(Function& slot, const char* setter, F f) {
    if (slot)
      AddProblem(StrCat(setter, " is called twice"));
    else
      slot = detail::AdaptTo<Function>(std::move(f));
    return *this;
  }
  // Throws if the operator has a backward function but is declared to have no gradient.
  void CheckGradient(bool has_backward) const {
    if (has_backward && record_->Has(OPKIT_OP_NO_GRADIENT))
      Throw(ErrorCode::kInvalidArgument, "setBackward(f) and noGradient() contradict");
  }
  FunctionDevice* FindDevice(std::string_view name) {
    for (FunctionDevice& device : record_->devices)
      if (device.name == name) return &device;
    return nullptr;
  }
  template <FunctionPass kPass, class Function, class F>
  BasicFunctionOpBuilder& OnDevice(const char* name, const char* setter,
                                   Function FunctionDevice::*slot, F f) {
    return Guarded([&] {
      FunctionDevice added;
      added.name = Host::DeviceName(name, setter);
      FunctionDevice* functions = FindDevice(added.name);
      if (!functions) functions = &record_->devices.emplace_back(std::move(added));
      CheckGradient(kPass == FunctionPass::kBackward);
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", name, "\") is called twice");
      functions->*slot = detail::AdaptTo<Function>(std::move(f));
      host_.template Add<kPass>(*functions);
    });
  }

  detail::FunctionRecord record_;
  Host host_;
};

}}  // namespace opkit

// REGISTER_OP(my_gemm).setForward(…)…; for namespace scope, in a source file or a header. In a unit
// that includes opkit/op.hpp the operator belongs to the library, else to the program. A program's
// operator has an anchor (op/registration.hpp), except if its name is no C++ identifier
// (com.me.Gemm, me::Gemm).
#undef OPKIT_REGISTER_OP  // the sentence of not_included.hpp
#define OPKIT_REGISTER_OP(name) OPKIT_REGISTER_OP_WITH(name, OPKIT_UNIQUE(opkit_anchor_))
#define OPKIT_REGISTER_OP_WITH(name, anchor)                                                 \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OP);                                                     \
  static_assert(::opkit::detail::IsOperatorName(#name),                                      \
                "REGISTER_OP(name): write the name without quotes or spaces, as my_gemm, "   \
                "com.me.Gemm or me::Gemm");                                                  \
  extern "C" __attribute__((visibility("hidden"))) void anchor() __asm__(                    \
      "opkit_add_OPERATOR_SCHEMA_for_" #name);                                               \
  extern "C" inline void anchor() {}                                                         \
  __attribute__((used)) static void (*const OPKIT_UNIQUE(opkit_keeps_anchor_))() =           \
      []<class Host = decltype(::opkit::detail::OpHost(0))>()->void(*)() {                   \
    if constexpr (::opkit::detail::HasAnchor<Host>(#name))                                   \
      return &anchor;                                                                        \
    else                                                                                     \
      return nullptr;                                                                        \
  }                                                                                          \
  ();                                                                                        \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_function_op_) =                      \
      ::opkit::BasicFunctionOpBuilder<decltype(::opkit::detail::OpHost(0))>(#name, __FILE__, \
                                                                            __LINE__)

#endif  // OPKIT_OP_FUNCTION_OP_HPP_

// ---- opkit/plugin/export/library_export.hpp
// Collects the operators of a library from its units, and describes them to the host that loads it.
#ifndef OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_
#define OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The contents of this shared object. Every loaded library has its own.
struct LibraryContents {
  OPKIT_IMAGE_LOCAL static LibraryContents& Global();
  std::vector<FunctionRecord> records;  // the operators of REGISTER_OP
  OpStatus (*initialize)(int host_major, int host_minor) = nullptr;
  void (*finalize)() = nullptr;
  const char* own_version = nullptr;
  // Fills in the records of REGISTER_OP and appends each record once to `records`. Null if the
  // library has no such operator.
  OpStatus (*add_records)(std::vector<FunctionRecord>& records) = nullptr;
  // Adds the operators of op/'s registries; set if a unit includes opkit.hpp.
  void (*add_registered)(std::vector<FunctionRecord>& records) = nullptr;
  // Adds the layouts and devices; set if a unit includes opkit.hpp.
  void (*add_layouts)(LibraryContents& contents) = nullptr;
  // Adds the partitioners and passes of graph/'s registries; set if a unit includes partition.hpp.
  void (*add_partitioners)(LibraryContents& contents) = nullptr;
  // Partitioners of REGISTER_PARTITIONER in units that do not include partition.hpp.
  RefCountedList own_partitioners;
  std::vector<const opkit_partitioner*> own_partitioner_pointers;

  RefCountedList owners;  // keep the objects that the lists below point to
  std::vector<const opkit_op*> ops;
  std::vector<const opkit_layout*> layouts;
  std::vector<const opkit_layout_converter*> layout_converters;
  std::vector<const opkit_device*> devices;
  std::vector<const opkit_partitioner*> partitioners;
  std::vector<const opkit_pass*> passes;
  std::vector<const opkit_backend*> backends;
  opkit_library library{};
};

// Makes an exported object, adds it to a list, and keeps it alive in `contents`.
template <class Exported, class Struct, class... From>
void AddExported(LibraryContents& contents, std::vector<const Struct*>& list, From&&... from) {
  auto made = MakeIntrusive<Exported>(std::forward<From>(from)...);
  list.push_back(&made->abi);
  contents.owners.push_back(std::move(made));
}
OPKIT_IMAGE_LOCAL void AddToLibrary(const FunctionRecord& record);

// Makes a function of opkit_abi.h from `kBody`, a member of Author or a function that takes an
// Author: the struct's `author` replaces the struct. Failures of kBody are reported to the host.
template <class Author, auto kBody, class Struct, class... Args>
OPKIT_IMAGE_LOCAL opkit_status GuardBy(const Struct* self, Args... args) {
  return GuardedCall([&] {
    auto& author = *static_cast<Author*>(const_cast<void*>(self->author));
    if constexpr (std::is_member_function_pointer_v<decltype(kBody)>)
      return (author.*kBody)(args...);
    else
      return kBody(author, args...);
  });
}

// The bodies of an opkit_op's functions whose `author` is a record. Each calls the record's
// function with copies of the host's attributes, types and shapes.
struct OPKIT_IMAGE_LOCAL RecordFunctions {
  using Record = FunctionOpRecord;
  static OpStatus ParseAttrs(Record& record, const opkit_node* node, int32_t* num_inputs,
                             int32_t* num_outputs);
  static OpStatus InferType(Record& record, const opkit_node* node, opkit_value* inputs,
                            opkit_value* outputs);
  static OpStatus InferShape(Record& record, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  static OpStatus MutatedInputs(Record& record, const opkit_node* node, uint8_t* mutated);
  static void Cost(Record& record, const opkit_node* node, const opkit_value* inputs,
                   const opkit_value* outputs, opkit_cost* cost);
  static void ScratchBytes(Record& record, const opkit_node* node, const opkit_value* inputs,
                           int64_t* bytes);
};
// The functions forward and backward of an opkit_kernel.
OPKIT_IMAGE_LOCAL opkit_status RunForward(void* instance, const opkit_call* call);
OPKIT_IMAGE_LOCAL opkit_status RunBackward(void* instance, const opkit_call* call);

// Describes the library to `host`; opkit_library_entry calls it. Returns null after a failure,
// which it has reported to the host.
OPKIT_IMAGE_LOCAL const opkit_library* DescribeLibrary(const opkit_host* host) noexcept;

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_LIBRARY_EXPORT_HPP_

// ---- opkit/op/function/partition_signature.hpp
// MXNet's signatures of a partitioner's functions, and the one form to which each is adapted.
// Programs and libraries accept the same signatures. Each parameter may be a value, a reference or
// a pointer.
#ifndef OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using OptionStrings = std::vector<std::pair<std::string, std::string>>;

// The argument for a function's map from names to strings or tensors. Converts to the map type of
// the function, such as std::unordered_map or std::map, so that this header need not include it.
template <class Value>
class MapArgument {
 public:
  using Items = std::vector<std::pair<std::string, Value>>;

  MapArgument() = default;
  explicit MapArgument(Items items) : items_(std::move(items)) {}
  template <class Map>
    requires std::is_same_v<typename Map::key_type, std::string> &&
             std::is_same_v<typename Map::mapped_type, Value>
  operator Map&() {  // NOLINT: implicit
    using Made = std::remove_const_t<Map>;
    auto* made = new Shared<Made>(Made());
    for (const auto& [name, value] : items_) made->value.emplace(name, value);
    map_ = IntrusivePtr<RefCounted>(made);
    read_ = [](const RefCounted& map) {
      const Made& filled = static_cast<const Shared<Made>&>(map).value;
      return Items(filled.begin(), filled.end());
    };
    return made->value;
  }
  // Returns the contents of the map after the call.
  Items Read() const { return map_ ? read_(*map_) : items_; }

 private:
  Items items_;
  IntrusivePtr<RefCounted> map_;
  Items (*read_)(const RefCounted&) = nullptr;
};
using StringMapArgument = MapArgument<std::string>;
using TensorMapArgument = MapArgument<OpTensor>;

// The forms to which setSupportedOps and setAcceptSubgraph adapt functions with MXNet's signatures.
// `ids` has a number for each node of the JSON: -2, its value before the call, leaves the node in
// the graph; -1 takes it; a number from 0 on takes it as that kind.
using SupportedOpsFunction =
    UniqueFunction<OpStatus(std::string json, std::vector<int>& ids, StringMapArgument& options)>;
using AcceptFunction = UniqueFunction<OpStatus(std::string json, int id, bool* accept,
                                               StringMapArgument& options, StringMapArgument& attrs,
                                               TensorMapArgument& args, TensorMapArgument& aux)>;

// True for a parameter that takes a T by value, reference or pointer.
template <class P, class T>
inline constexpr bool kPasses = kIsPassed<P> && std::is_same_v<Pointee<P>, T>;
// True for a parameter that takes a map from names to values of the type.
template <class P, class Value>
inline constexpr bool kIsMapOf = false;
template <class P, class Value>
  requires requires {
    requires std::is_same_v<typename Pointee<P>::key_type, std::string>;
    requires std::is_same_v<typename Pointee<P>::mapped_type, Value>;
  }
inline constexpr bool kIsMapOf<P, Value> = kIsPassed<P>;
template <class P, class Value>
P PassMap(MapArgument<Value>& argument) {
  Pointee<P>& map = argument;
  if constexpr (std::is_same_v<P, Pointee<P>>)
    return map;  // a copy, so that Read still finds the argument's map
  else
    return PassAs<P>(map);
}

// Replaces flags, which are 1 for a node that is taken and 0 for another, by ids of
// SupportedOpsFunction. Leaves -1 and -2, which mean the same as flags and as ids. Throws
// kInvalidArgument for other numbers: 0 and 1 would then be flags or kinds.
inline void IdsOfFlags(std::vector<int>& ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < -2 || ids[i] > 1)
      Throw(ErrorCode::kInvalidArgument, "setSupportedOps' function answered ", ids[i],
            " for node ", i,
            " in int* ids, where 1 or -1 takes a node and 0 or -2 leaves it; a function that takes "
            "nodes of several kinds has std::vector<int>* ids");
    if (ids[i] >= 0) ids[i] = ids[i] == 1 ? -1 : -2;
  }
}

template <class F, class Json, class Ids, class Options>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> && kIsWritable<Ids> &&
           (kPasses<Ids, std::vector<int>> || kPasses<Ids, std::vector<bool>>) &&
           kIsMapOf<Options, std::string>)
SupportedOpsFunction Adapt(As<SupportedOpsFunction>, F f, TypeList<Json, Ids, Options>) {
  return [f = std::move(f)](std::string json, std::vector<int>& ids,
                            StringMapArgument& options) mutable -> OpStatus {
    if constexpr (kPasses<Ids, std::vector<int>>) {
      return CallForStatus(f, PassAs<Json>(json), PassAs<Ids>(ids), PassMap<Options>(options));
    } else {
      std::vector<bool> flags(ids.size());
      OpStatus status =
          CallForStatus(f, PassAs<Json>(json), PassAs<Ids>(flags), PassMap<Options>(options));
      ids.assign(flags.begin(), flags.end());
      IdsOfFlags(ids);
      return status;
    }
  };
}
template <class F, class Json, class Options>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> &&
           kIsMapOf<Options, std::string>)
SupportedOpsFunction Adapt(As<SupportedOpsFunction>, F f, TypeList<Json, int, int*, Options>) {
  return [f = std::move(f)](std::string json, std::vector<int>& ids,
                            StringMapArgument& options) mutable {
    OpStatus status = CallForStatus(f, PassAs<Json>(json), static_cast<int>(ids.size()), ids.data(),
                                    PassMap<Options>(options));
    if (status.ok()) IdsOfFlags(ids);
    return status;
  };
}

// True for the parameters after the options: none, attrs, or attrs, args and aux.
template <class... P>
inline constexpr bool kIsAcceptTail = sizeof...(P) == 0;
template <class Attrs>
inline constexpr bool kIsAcceptTail<Attrs> = kIsMapOf<Attrs, std::string>;
template <class Attrs, class Args, class Aux>
inline constexpr bool kIsAcceptTail<Attrs, Args, Aux> =
    kIsMapOf<Attrs, std::string> && kIsMapOf<Args, OpTensor> && kIsMapOf<Aux, OpTensor>;

template <class F, class Json, class Options, class... Tail>
  requires(kIsReturn<FunctionReturn<F>> && kPasses<Json, std::string> &&
           kIsMapOf<Options, std::string> && kIsAcceptTail<Tail...>)
AcceptFunction Adapt(As<AcceptFunction>, F f, TypeList<Json, int, bool*, Options, Tail...>) {
  return [f = std::move(f)](std::string json, int id, bool* accept, StringMapArgument& options,
                            StringMapArgument& attrs, TensorMapArgument& args,
                            TensorMapArgument& aux) mutable {
    const auto map = [&]<size_t i>(std::integral_constant<size_t, i>) -> auto& {
      if constexpr (i == 0)
        return attrs;
      else if constexpr (i == 1)
        return args;
      else
        return aux;
    };
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return CallForStatus(f, PassAs<Json>(json), id, accept, PassMap<Options>(options),
                           PassMap<Tail>(map(std::integral_constant<size_t, i>()))...);
    }(std::index_sequence_for<Tail...>());
  };
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_PARTITION_SIGNATURE_HPP_

// ---- opkit/op/function/partitioner_builder.hpp
// REGISTER_PARTITIONER: makes a partitioner of functions. They have the signatures of MXNet's
// loadable partitioners, which read JSON, or opkit's typed signatures, which read PartitionView and
// need opkit/partition.hpp. Both use one builder; its host is GraphPartitionerHost
// (graph/partition/register_partitioner.hpp) in a unit that includes opkit/partition.hpp, else
// LibraryPartitionerHost (plugin/export/library_partitioner.hpp).
#ifndef OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_
#define OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The names that the setters of REGISTER_PARTITIONER store, without the functions.
struct PartitionerRecord {
  std::string name, problem, subgraph_op = "Subgraph";
  // Operators of the kinds that have their own.
  std::vector<std::pair<int, std::string>> subgraph_ops;

  // Returns the operator that replaces subgraphs of a kind.
  const std::string& SubgraphOp(int kind) const {
    for (size_t i = subgraph_ops.size(); i > 0; --i)  // the last call for the kind counts
      if (subgraph_ops[i - 1].first == kind) return subgraph_ops[i - 1].second;
    return subgraph_op;
  }
};

}  // namespace detail

// Sets the functions of a partitioner; REGISTER_PARTITIONER makes the builder. The setters accept
// functions, function pointers and lambdas. Several threads may call these functions. If no
// function takes the options, a request with an option of the partitioner is an Error
// (kInvalidArgument). Functions with MXNet's signatures return SUCCESS, or FAIL after
// OPKIT_ERROR_MSG. Typed functions return nothing and throw errors.
//
//   void supported(const PartitionView& view, PartitionAnswer& answer) {
//     for (const PartitionNode& node : view.nodes())
//       if (node.op() == "Exp" || node.op() == "Log") answer.Take(node);
//   }
//   REGISTER_PARTITIONER(myProp).setSupportedOps(supported).setSubgraphOp("_custom_subgraph_op");
//
// Host stores the functions: kTakesMark<F> and kTakesReview<F> are true for its typed signatures.
// Mark, Review and Selector convert a typed function, JsonMark and JsonReview one with MXNet's
// signature.
template <class Host>
class BasicPartitionerBuilder {
 public:
  BasicPartitionerBuilder(const char* name, const char* file, int line) : host_(name, file, line) {}

  // Sets the function that takes nodes. It is typed, as above, with PartitionArguments as an
  // optional third parameter; or it has MXNet's signature
  //   ReturnValue f(const std::string& json, std::vector<int>* ids,
  //                 const std::unordered_map<std::string, std::string>& options)
  // `ids` has a number for each node of the JSON (symbol_json.hpp). The initial -2 leaves the node
  // in the graph, -1 takes it, and a number from 0 on takes it as that kind. In older signatures
  // ids are flags, 1 or true for a node that is taken:
  //   ReturnValue f(std::string json, const int num_ids, int* ids, …& options)
  //   ReturnValue f(std::string json, std::vector<bool>& ids, …& options)
  // -1 and -2 keep their meaning in int* ids; any other number is an Error (kInvalidArgument).
  template <class F>
  BasicPartitionerBuilder& setSupportedOps(F f) {
    constexpr bool kTyped = Host::template kTakesMark<F>;
    static_assert(kTyped || detail::kFits<detail::SupportedOpsFunction, F>,
                  "setSupportedOps(f): write void f(const PartitionView& view, PartitionAnswer& "
                  "answer), which needs opkit/partition.hpp, or ReturnValue f(const std::string& "
                  "json, std::vector<int>* ids, const std::unordered_map<std::string, "
                  "std::string>& options)");
    if constexpr (kTyped)
      return Once(host_.record().mark, "setSupportedOps", host_.Mark(std::move(f)));
    else
      return Once(host_.record().mark, "setSupportedOps",
                  host_.JsonMark(detail::AdaptTo<detail::SupportedOpsFunction>(std::move(f))));
  }
  // Sets, instead of setSupportedOps, the function that makes the SubgraphSelector for a graph; it
  // needs opkit/partition.hpp:
  //   std::unique_ptr<SubgraphSelector> f(const PartitionView&, const PartitionArguments&).
  template <class F>
  BasicPartitionerBuilder& setCreateSelector(F make) {
    constexpr bool kFits = requires { host_.Selector(std::move(make)); };
    static_assert(kFits,
                  "setCreateSelector(f): write std::unique_ptr<SubgraphSelector> f(const "
                  "PartitionView& view, const PartitionArguments& options), which needs "
                  "opkit/partition.hpp");
    if constexpr (kFits)
      Once(host_.record().make_selector, "setCreateSelector", host_.Selector(std::move(make)));
    return *this;
  }
  // Sets the operator that replaces a subgraph, or subgraphs of one kind. The default is
  // "Subgraph", which runs the subgraph in the program.
  BasicPartitionerBuilder& setSubgraphOp(std::string op) {
    host_.record().subgraph_op = std::move(op);
    return *this;
  }
  BasicPartitionerBuilder& setSubgraphOp(std::string op, int kind) {
    host_.record().subgraph_ops.emplace_back(kind, std::move(op));
    return *this;
  }
  // Sets the function that accepts or rejects every legal subgraph: void f(SubgraphReview&), with
  // PartitionArguments as an optional second parameter, or MXNet's
  //   ReturnValue f(const std::string& json, int subgraph_id, bool* accept,
  //                 const std::unordered_map<std::string, std::string>& options,
  //                 std::unordered_map<std::string, std::string>* attrs,
  //                 const std::unordered_map<std::string, OpTensor>& args,
  //                 const std::unordered_map<std::string, OpTensor>& aux)
  // or the first four or five of them. `attrs` become attributes of the operator; `args` are the
  // constants of the subgraph; `aux` is empty. A map may be a std::map.
  template <class F>
  BasicPartitionerBuilder& setAcceptSubgraph(F f) {
    constexpr bool kTyped = Host::template kTakesReview<F>;
    static_assert(kTyped || detail::kFits<detail::AcceptFunction, F>,
                  "setAcceptSubgraph(f): write void f(SubgraphReview& review), which needs "
                  "opkit/partition.hpp, or ReturnValue f(const std::string& json, int subgraph_id, "
                  "bool* accept, const std::unordered_map<std::string, std::string>& options)");
    if constexpr (kTyped)
      return Once(host_.record().review, "setAcceptSubgraph", host_.Review(std::move(f)));
    else
      return Once(host_.record().review, "setAcceptSubgraph",
                  host_.JsonReview(detail::AdaptTo<detail::AcceptFunction>(std::move(f))));
  }
  // Does the same as setAcceptSubgraph: later versions of MXNet have this name.
  template <class F>
  BasicPartitionerBuilder& setReviewSubgraph(F f) {
    return setAcceptSubgraph(std::move(f));
  }

 private:
  // Stores a function; a second call of the same setter is a problem of the registration.
  template <class Function>
  BasicPartitionerBuilder& Once(Function& slot, const char* setter, Function f) {
    if (slot)
      host_.record().problem = StrCat(setter, " is called twice");
    else
      slot = std::move(f);
    return *this;
  }

  Host host_;
};

}}  // namespace opkit

// Registers a partitioner at namespace scope: REGISTER_PARTITIONER(myProp).setSupportedOps(…)…;
#undef OPKIT_REGISTER_PARTITIONER  // the sentence of not_included.hpp
#define OPKIT_REGISTER_PARTITIONER(name)                                               \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_PARTITIONER);                                      \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_partitioner_) =                \
      ::opkit::BasicPartitionerBuilder<decltype(::opkit::detail::PartitionerHost(0))>( \
          #name, __FILE__, __LINE__)

#endif  // OPKIT_OP_FUNCTION_PARTITIONER_BUILDER_HPP_

// ---- opkit/plugin/export/library_partitioner.hpp
// Host of REGISTER_PARTITIONER in a library that does not include opkit/partition.hpp: partitioners
// with MXNet's signatures, which the library's host calls through opkit_partitioner.
#ifndef OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_
#define OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the options of an opkit_partition or opkit_rewrite.
template <class Struct>
OptionStrings OptionsOfAbi(const Struct& from) {
  OptionStrings options;
  for (uint64_t i = 0; i < from.num_options; ++i)
    options.emplace_back(from.option_names[i], from.option_values[i]);
  return options;
}

// A partitioner. Its setters fill in the functions; the host calls them through `abi`.
struct OPKIT_IMAGE_LOCAL LibraryPartitionerRecord : RefCounted, PartitionerRecord {
  LibraryPartitionerRecord(const char* its_name, const char* file, int line);

  SupportedOpsFunction mark;
  AcceptFunction review;
  opkit_partitioner abi{};
};

// The host of a BasicPartitionerBuilder. Adds the partitioner to the library.
class OPKIT_IMAGE_LOCAL LibraryPartitionerHost {
 public:
  template <class F>
  static constexpr bool kTakesMark = false;
  template <class F>
  static constexpr bool kTakesReview = false;

  LibraryPartitionerHost(const char* name, const char* file, int line)
      : record_(MakeIntrusive<LibraryPartitionerRecord>(name, file, line)) {
    LibraryContents::Global().own_partitioners.push_back(record_);
    LibraryContents::Global().own_partitioner_pointers.push_back(&record_->abi);
  }
  LibraryPartitionerRecord& record() { return *record_; }
  SupportedOpsFunction JsonMark(SupportedOpsFunction f) { return f; }
  AcceptFunction JsonReview(AcceptFunction f) { return f; }

 private:
  IntrusivePtr<LibraryPartitionerRecord> record_;
};
// The host of REGISTER_PARTITIONER, unless opkit/partition.hpp declares another.
LibraryPartitionerHost PartitionerHost(...);

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_

// ---- opkit/plugin/author.hpp
// The contents of opkit/op.hpp, the one header that the author of an operator library includes.
// Operators registered in such a unit belong to the library; a host loads them with Library::Load
// (plugin/library.hpp).
//
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -I<opkit>/include my_ops.cc -o libmy_ops.so
//
// With -fno-gnu-unique the library can be unloaded. Without this option of g++ even
// std::make_shared keeps the library in the process.
//
// REGISTER_OP(name)… (op/function_op.hpp) needs no other header. For operators that are classes or
// typed functions, also include <opkit/opkit.hpp>. For their gradients include
// <opkit/op/gradient/gradient.hpp> before opkit.hpp; for typed partitioners and passes include
// <opkit/partition.hpp>.
#ifndef OPKIT_PLUGIN_AUTHOR_HPP_
#define OPKIT_PLUGIN_AUTHOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Adds a record to the library. Stores the author's functions in the form of opkit_abi.h. Functions
// that the author does not give are not compiled.
class OPKIT_IMAGE_LOCAL LibraryOpHost {
 public:
  static constexpr bool kIsLibrary = true;
  explicit LibraryOpHost(FunctionRecord record) : record_(std::move(record)) {}

  void Begin() { AddToLibrary(record_); }
  static std::string DeviceName(const char* name, const char*) { return name; }
  template <FunctionPass kPass>
  void Add(FunctionDevice& device) {
    if constexpr (kPass == FunctionPass::kForward)
      device.abi.forward = &RunForward;
    else
      device.abi.backward = &RunBackward;
  }
  void Doc() {}
  void Attr(const AttributeSchema&) {}
  void OpenAttrs() {}
  void Input(const ValueSchema&) {}
  void Output(const ValueSchema&) {}
  void InfersTypes() {
    record_->abi.infer_type = &GuardBy<FunctionOpRecord, &RecordFunctions::InferType>;
  }
  void InfersShapes() {
    record_->abi.infer_shape = &GuardBy<FunctionOpRecord, &RecordFunctions::InferShape>;
  }
  void MutatesInputs() {
    record_->abi.mutated_inputs = &GuardBy<FunctionOpRecord, &RecordFunctions::MutatedInputs>;
  }
  void NeedsScratch() {
    record_->abi.scratch_bytes = &GuardBy<FunctionOpRecord, &RecordFunctions::ScratchBytes>;
  }
  void Cost() { record_->abi.cost = &GuardBy<FunctionOpRecord, &RecordFunctions::Cost>; }
  void HasEffects() {}
  void NeedsSubgraph() {}
  void NoGradient() {}
  void DropBackward() {
    for (FunctionDevice& device : record_->devices) device.abi.backward = nullptr;
  }
  void Problem(const std::string&) {}

 private:
  FunctionRecord record_;
};

LibraryOpHost OpHost(int);  // REGISTER_OP prefers this to the program's OpHost

// Argument of MXNet's initialize(int version): the number of MXNet's last version, 1.9.1.
inline constexpr int kMXNetVersion = 10901;

template <auto f>
OpStatus CallInitialize(int host_major, int host_minor) {
  auto call = f;
  static_assert((std::is_invocable_v<decltype(f), int, int> ||
                 std::is_invocable_v<decltype(f), int>)&&kIsReturn<FunctionReturn<decltype(f)>>,
                "OPKIT_LIBRARY_INITIALIZE(f): write int f(int host_major, int host_minor); the "
                "answer is int (1 is success), bool, ReturnValue, Status or void");
  if constexpr (std::is_invocable_v<decltype(f), int, int>)
    return CallForStatus(call, host_major, host_minor);
  else
    return CallForStatus(call, kMXNetVersion);
}

}  // namespace detail

using LibraryOpBuilder = BasicFunctionOpBuilder<detail::LibraryOpHost>;

}}  // namespace opkit

// Marks this image as a library (op/op_registry.hpp).
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;
char opkit_image_is_library = 1;

extern "C" __attribute__((weak, used, visibility("default"))) const opkit_library*
opkit_library_entry(const opkit_host* host) {
  return ::opkit::detail::DescribeLibrary(host);
}

// Sets the function that is called when the library is loaded, before its operators are used: int
// f(int host_major, int host_minor), with the version of the host's ABI. A failure stops the
// loading. MXNet's initialize(int version) is allowed too; its argument is kMXNetVersion.
#define OPKIT_LIBRARY_INITIALIZE(...)                                  \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_INITIALIZE);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_initialize_) = \
      (::opkit::detail::LibraryContents::Global().initialize =         \
           &::opkit::detail::CallInitialize<(__VA_ARGS__)>,            \
       true)
// Sets the library's own version, which Library::own_version() and `opkit lib` show:
// OPKIT_LIBRARY_VERSION("1.2.0");
#define OPKIT_LIBRARY_VERSION(version)                              \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_VERSION);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_version_) = \
      (::opkit::detail::LibraryContents::Global().own_version = version, true)
// Sets a function void f() that is called once: before the library is unloaded, or at the program's
// end by exit() or a return from main, before the destructors of static objects.
#define OPKIT_LIBRARY_FINALIZE(...)                                  \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_FINALIZE);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_finalize_) = \
      (::opkit::detail::LibraryContents::Global().finalize = (__VA_ARGS__), true)

#ifdef OPKIT_OPKIT_HPP_
// ---- opkit/plugin/export/export_operators.hpp
// Exports the operators that a library registers as classes (REGISTER_CPU_OPERATOR) or typed
// functions (OPKIT_OP), in addition to the operators of REGISTER_OP. The library's own registries
// hold these operators. Each operator becomes a record, whose kernels run it in its own workspace
// over the host's memory. Included if a unit includes both opkit.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Runs another operator of the host program during the run of a class or typed operator of the
// library. Writes into the given outputs, on the calling operator's device, and on CUDA in its
// stream. The host keeps the other operator prepared between runs. Throws the errors of
// OpResource::invoke; kFailedPrecondition if this thread runs no operator of the library.
//
//   InvokeOnHost("Add", {Input(0), Input(1)}, {*Output(0, Input(0).shape(), Input(0).dtype())});
OPKIT_IMAGE_LOCAL void InvokeOnHost(std::string_view op, const std::vector<Tensor>& inputs,
                                    const std::vector<Tensor>& outputs, const Arguments& args = {});

namespace detail {

// Adds a record of each registered operator, except internal operators. Adds no record if the host
// is this program itself, which already has the operators.
OPKIT_IMAGE_LOCAL void AddRegisteredOperators(std::vector<FunctionRecord>& records);

// Filled by export_gradients.hpp: stores a registered gradient in the record, in the form that the
// host reads.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(FunctionOpRecord&)> g_read_gradient{
    "a gradient, in a library,", "opkit/graph.hpp"};

// Adds the layouts registered so far with their direct converters, and the author's own device
// types.
OPKIT_IMAGE_LOCAL void AddRegisteredLayouts(LibraryContents& contents);

[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kExportsRegisteredOperators =
    (LibraryContents::Global().add_layouts = &AddRegisteredLayouts,
     LibraryContents::Global().add_registered = &AddRegisteredOperators, true);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_
#endif
#if defined OPKIT_OPKIT_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
// ---- opkit/plugin/export/export_gradients.hpp
// Exports the gradients of a library's class and typed operators to its host. Included if a unit
// includes both op/gradient/gradient.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
#endif
#ifdef OPKIT_GRAPH_HPP_
// ---- opkit/plugin/export/export_graphs.hpp
// Lets the nodes of a library's operators carry graphs between the library and its host. Included
// if a unit includes both graph.hpp and plugin/author.hpp. The headers fill the hooks of
// abi_node.hpp and of op/inference.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRAPHS_HPP_
#endif
#ifdef OPKIT_PARTITION_HPP_
// ---- opkit/plugin/export/export_partitioners.hpp
// Exports the partitioners and passes that a library registers by the typed REGISTER_PARTITIONER
// and by REGISTER_PASS. Included if a unit includes both partition.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Adds the registered partitioners and passes; none if the host is this program itself.
OPKIT_IMAGE_LOCAL void AddRegisteredPartitioners(LibraryContents& contents);

[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kExportsRegisteredPartitioners =
    (LibraryContents::Global().add_partitioners = &AddRegisteredPartitioners, true);

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_PARTITIONERS_HPP_
#endif

#endif  // OPKIT_PLUGIN_AUTHOR_HPP_

#ifdef OPKIT_DEFINITIONS
#include <algorithm>
#include <csignal>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <typeinfo>

// ---- opkit/base/impl/strings.ipp
// The definitions of opkit/base/strings.hpp.
#ifndef OPKIT_BASE_IMPL_STRINGS_IPP_
#define OPKIT_BASE_IMPL_STRINGS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void Text::AppendLiteral(std::string& out, Value part) {
  out += part.object ? static_cast<const char*>(part.object) : "(null)";
}
OPKIT_INLINE void Text::AppendString(std::string& out, Value part) {
  out += *static_cast<const std::string*>(part.object);
}
OPKIT_INLINE void Text::AppendView(std::string& out, Value part) {
  out += *static_cast<const std::string_view*>(part.object);
}
OPKIT_INLINE void Text::AppendCharacter(std::string& out, Value part) {
  out += static_cast<char>(part.integer);
}
OPKIT_INLINE void Text::AppendInt(std::string& out, Value part) {
  out += std::to_string(part.integer);
}
OPKIT_INLINE void Text::AppendUInt(std::string& out, Value part) {
  out += std::to_string(static_cast<uint64_t>(part.integer));
}
OPKIT_INLINE void Text::AppendFloat(std::string& out, Value part) {
  char buffer[32];  // std::to_chars ignores the program's locale
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, part.number,
                                   std::chars_format::general, 9)
                         .ptr);
}

OPKIT_INLINE std::string Join(std::initializer_list<Text> parts) {
  std::string out;
  for (const Text& part : parts) part.AppendTo(out);
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_STRINGS_IPP_

// ---- opkit/base/impl/error.ipp
// The definitions of opkit/base/error.hpp.
#ifndef OPKIT_BASE_IMPL_ERROR_IPP_
#define OPKIT_BASE_IMPL_ERROR_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE const char* ToString(ErrorCode code) {
  constexpr const char* kNames[] = {"invalid argument", "type mismatch",     "not found",
                                    "already exists",   "out of range",      "uninitialized",
                                    "out of memory",    "unsupported",       "failed precondition",
                                    "cancelled",        "deadline exceeded", "operator failed",
                                    "input or output"};
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
  constexpr size_t kMost = 24, kFirst = 12;
  if (context_.size() < kMost) {
    what_ += "\n  " + line;
    context_.push_back(std::move(line));
    return *this;
  }
  // The first time two lines are lost: the line that prints the number replaces a line of context.
  left_out_ += left_out_ == 0 ? 2 : 1;
  context_.erase(context_.begin() + kFirst + 1);
  context_.push_back(std::move(line));
  context_[kFirst] = StrCat("(", left_out_, " lines of context left out)");
  what_ = message_;
  for (const std::string& one : context_) what_ += "\n  " + one;
  return *this;
}

OPKIT_INLINE Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kOperatorFailed, thrown.what()).SetCause(std::current_exception());
  } catch (...) {
    return Error(ErrorCode::kOperatorFailed, "threw something that is not a std::exception")
        .SetCause(std::current_exception());
  }
}

namespace detail {

OPKIT_INLINE void ThrowJoined(ErrorCode code, std::initializer_list<Text> parts) {
  throw Error(code, Join(parts));
}

OPKIT_INLINE void RethrowInContext(std::string line) {
  try {
    throw;
  } catch (Error& error) {
    if (error.is_shared() && typeid(error) == typeid(Error))
      throw Error(error).AddContext(std::move(line));
    if (!error.is_shared()) error.AddContext(std::move(line));
    throw;
  } catch (...) {
    throw CurrentError().AddContext(std::move(line));
  }
}

OPKIT_INLINE void AssertFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "opkit: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_ERROR_IPP_

// ---- opkit/base/impl/suggest.ipp
// The definitions of opkit/base/suggest.hpp.
#ifndef OPKIT_BASE_IMPL_SUGGEST_IPP_
#define OPKIT_BASE_IMPL_SUGGEST_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

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
    std::swap(before, previous);
    std::swap(previous, row);
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

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_SUGGEST_IPP_

// ---- opkit/base/impl/hook.ipp
// The definitions of opkit/base/hook.hpp.
#ifndef OPKIT_BASE_IMPL_HOOK_IPP_
#define OPKIT_BASE_IMPL_HOOK_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowEmptyHook(const char* what, const char* header) {
  // The folders of tuning and of several processes are included by name alone.
  const std::string_view name = header;
  const bool is_in_all = name.find("/tune/") == name.npos && name.find("/cluster/") == name.npos;
  Throw(ErrorCode::kFailedPrecondition, what, " needs ", header,
        is_in_all ? ": include it (or opkit/all.hpp)" : ": include it",
        " in one file of the program, and call it from main on, not "
        "from a static variable's initialiser");
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_HOOK_IPP_

// ---- opkit/core/impl/shape.ipp
// The definitions of opkit/core/shape.hpp.
#ifndef OPKIT_CORE_IMPL_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SHAPE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

OPKIT_INLINE size_t IndexFromEnd(int64_t i, const int64_t* values, int size) {
  if (i < -size || i >= size)
    Throw(ErrorCode::kOutOfRange, "axis ", i, " is outside ", ToString(Dims(values, Index(size))),
          " of rank ", size);
  return Index(i < 0 ? i + size : i);
}

}  // namespace detail

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
  if (size_ > kInline)
    heap_ = other.heap_;
  else
    for (int i = 0; i < size_; ++i) inline_[i] = other.inline_[i];
  other.size_ = 0;
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

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SHAPE_IPP_

// ---- opkit/base/impl/platform.ipp
// The definitions of opkit/base/platform.hpp.
#ifndef OPKIT_BASE_IMPL_PLATFORM_IPP_
#define OPKIT_BASE_IMPL_PLATFORM_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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

OPKIT_INLINE int64_t ThreadPreemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

OPKIT_INLINE int64_t UnixMs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

OPKIT_INLINE int64_t LastCacheBytes() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

// Reads the first bytes of a small file; an empty text if there is no such file.
template <size_t kSize>
void ReadSmallFile(const char* path, char (&text)[kSize]) {
  text[0] = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = read(file, text, kSize - 1);
  text[length > 0 ? length : 0] = 0;
  close(file);
}
// Counts the processors in a list such as "0-3,8,10-11".
inline int CountCpusIn(const char* list) {
  int count = 0;
  while (*list >= '0' && *list <= '9') {
    char* end;
    const long first = std::strtol(list, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    count += static_cast<int>(last - first) + 1;
    list = *end == ',' ? end + 1 : end;
  }
  return count;
}

OPKIT_INLINE int CpuCaches(CpuCache (&caches)[kMostCpuCaches]) {
  int count = 0;
  for (int index = 0; index < 8 && count < kMostCpuCaches; ++index) {
    char path[80], text[256];
    const auto fact = [&](const char* name) {
      std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
                    name);
      ReadSmallFile(path, text);
      return text;
    };
    CpuCache cache;
    cache.level = std::atoi(fact("level"));
    if (cache.level <= 0) break;
    if (fact("type")[0] == 'I') continue;  // instructions
    char* unit;
    cache.bytes = std::strtol(fact("size"), &unit, 10);
    if (*unit == 'K') cache.bytes <<= 10;
    if (*unit == 'M') cache.bytes <<= 20;
    const int shared = CountCpusIn(fact("shared_cpu_list"));
    cache.shared_by = shared > 0 ? shared : 1;
    if (cache.bytes > 0) caches[count++] = cache;
  }
  if (count > 0) return count;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  for (int level = 1; level <= 3; ++level) {
    const long bytes = sysconf(level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                               : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                                            : _SC_LEVEL3_CACHE_SIZE);
    if (bytes > 0)
      caches[count++] = {level, bytes, level == 3 && online > 0 ? static_cast<int>(online) : 1};
  }
  return count;
}

OPKIT_INLINE int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than cpu_set_t holds
  return online > 0 ? static_cast<int>(online) : 1;
}

OPKIT_INLINE void CpuBan::Ban(int cpu) {
  const auto thread = static_cast<pid_t>(thread_);
  if (sched_getaffinity(thread, sizeof allowed_, &allowed_) != 0) return;
  cpu_set_t others = allowed_;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  if (CPU_COUNT(&others) == 0) return;
  banned_ = sched_setaffinity(thread, sizeof others, &others) == 0;
}

OPKIT_INLINE void CpuBan::Lift() { sched_setaffinity(0, sizeof allowed_, &allowed_); }

OPKIT_INLINE void PinCurrentThread(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

// The stack of one thread for signal handlers, freed when the thread ends.
class SignalStack {
 public:
  SignalStack() {
    stack_t now = {};
    if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t own = {};
    own.ss_sp = memory;
    own.ss_size = kBytes;
    if (sigaltstack(&own, nullptr) == 0)
      memory_ = memory;
    else
      munmap(memory, kBytes);
  }
  SignalStack(const SignalStack&) = delete;
  ~SignalStack() {
    if (!memory_) return;
    stack_t now = {}, none = {};
    none.ss_flags = SS_DISABLE;
    const bool is_own = sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_;
    if (!is_own || sigaltstack(&none, nullptr) == 0) munmap(memory_, kBytes);
  }

 private:
  static constexpr size_t kBytes = 64 << 10;  // enough for a program's own handlers too
  void* memory_ = nullptr;
};
OPKIT_INLINE void MakeSignalStack() {
  static thread_local const SignalStack stack;
  static_cast<void>(stack);
}

OPKIT_INLINE void SetCurrentThreadName(const char* name) {
  char shortened[16] = {};
  for (int i = 0; i < 15 && name[i] != '\0'; ++i) shortened[i] = name[i];
  pthread_setname_np(pthread_self(), shortened);
}

OPKIT_INLINE void GetCurrentThreadName(char (&name)[16]) {
  if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) name[0] = 0;
}

OPKIT_INLINE size_t ReadStartOfFile(const char* path, char* to, size_t room) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return 0;
  size_t size = 0;
  while (size < room) {
    const ssize_t got = read(file, to + size, room - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  return size;
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
  constexpr uintptr_t kPage = 65536;  // at least a system page; a smaller range is not worth a call
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

OPKIT_INLINE int OpenThreadCounter(uint32_t type, uint64_t config, bool kernel, bool new_threads) {
  // The first version of perf_event_attr (PERF_ATTR_SIZE_VER0); its header would bring 200 macros.
  struct {
    uint32_t type, size;
    uint64_t config, sample_period, sample_type, read_format, flags;
    uint32_t wakeup_events, breakpoint_type;
    uint64_t config1;
  } wanted = {};
  constexpr uint64_t kTimeEnabled = 1, kTimeRunning = 2;
  constexpr uint64_t kInherit = 1 << 1, kExcludeKernel = 1 << 5;
  constexpr int kThisThread = 0, kAnyCpu = -1, kNoGroup = -1;
  constexpr unsigned long kCloseOnExec = 8;
  static_assert(sizeof wanted == 64);
  wanted.type = type;
  wanted.size = sizeof wanted;
  wanted.config = config;
  wanted.read_format = kTimeEnabled | kTimeRunning;
  wanted.flags = (new_threads ? kInherit : 0) | (kernel ? 0 : kExcludeKernel);
  const long file =
      syscall(SYS_perf_event_open, &wanted, kThisThread, kAnyCpu, kNoGroup, kCloseOnExec);
  return file >= 0 ? static_cast<int>(file) : -errno;
}

OPKIT_INLINE uint64_t ReadThreadCounter(int file) {
  struct {
    uint64_t value, enabled, running;
  } now = {};
  if (file < 0 || read(file, &now, sizeof now) != sizeof now || now.running == 0) return 0;
  if (now.enabled == now.running) return now.value;
  return static_cast<uint64_t>(static_cast<double>(now.value) * static_cast<double>(now.enabled) /
                               static_cast<double>(now.running));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_PLATFORM_IPP_

// ---- opkit/core/impl/device.ipp
// The definitions of opkit/core/device.hpp.
#ifndef OPKIT_CORE_IMPL_DEVICE_IPP_
#define OPKIT_CORE_IMPL_DEVICE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE DeviceTypeRegistry& DeviceTypes() {
  alignas(DeviceTypeRegistry) static unsigned char room[sizeof(DeviceTypeRegistry)];
  static auto* registry = new (room) DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

OPKIT_INLINE detail::DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
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

OPKIT_INLINE DeviceType RegisterDeviceType(DeviceType type, detail::DeviceTypeInfo info) {
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

namespace detail {
OPKIT_INLINE int DeviceSlot(DeviceType type) {
  const int slot = static_cast<int>(type);
  if (slot < 0 || slot >= kDeviceSlots)
    Throw(ErrorCode::kOutOfRange, "device type ", slot, " is outside 0 to ", kDeviceSlots - 1);
  return slot;
}
// The functions given to SetDeviceAvailability.
inline constinit DeviceTable<std::string (*)(Device)> g_why_no_device;
}  // namespace detail

OPKIT_INLINE void SetDeviceAvailability(DeviceType type, std::string (*why_not)(Device)) {
  detail::g_why_no_device[type].store(why_not, std::memory_order_release);
}
OPKIT_INLINE std::string WhyNoDevice(Device device) {
  const auto why_not = detail::g_why_no_device.Find(device.type);
  return why_not ? why_not(device) : std::string();
}

OPKIT_INLINE Device MemoryDevice(Device device) {
  const detail::KnownDeviceType* known = detail::FindKnownDeviceType(device.type);
  if (!known) return {GetDeviceTypeInfo(device.type).memory, device.index};
  return known->memory == DeviceType::kCPU ? Device{} : Device{known->memory, device.index};
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_DEVICE_IPP_

// ---- opkit/core/impl/allocator.ipp
// The definitions of opkit/core/allocator.hpp.
#ifndef OPKIT_CORE_IMPL_ALLOCATOR_IPP_
#define OPKIT_CORE_IMPL_ALLOCATOR_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {
inline void TellMemorySink(const Allocator& allocator, int64_t bytes, int64_t live) noexcept {
  if (MemorySink* sink = g_memory_sink.load(std::memory_order_acquire)) [[unlikely]]
    sink->Changed(allocator, bytes, live);
}
}  // namespace detail

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
  detail::TellMemorySink(*this, bytes, live);
  return data;
}

OPKIT_INLINE void Allocator::Deallocate(void* data, int64_t bytes) noexcept {
  if (!data) return;
  const int64_t live = live_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  DoDeallocate(data, bytes);
  detail::TellMemorySink(*this, -bytes, live);
}

namespace detail {

OPKIT_INLINE DeviceTable<Allocator*>& Allocators() {
  static constinit DeviceTable<Allocator*> table;
  // Never destroyed, so that it outlives every static tensor. In static memory, because heap memory
  // of a library that is unloaded would leak.
  alignas(CPUAllocator) static unsigned char room[sizeof(CPUAllocator)];
  [[maybe_unused]] static const bool has_cpu = [] {
    table[DeviceType::kCPU].store(new (room) CPUAllocator, std::memory_order_release);
    return true;
  }();
  return table;
}

}  // namespace detail

OPKIT_INLINE Allocator& GetAllocator(DeviceType type) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  Allocator* const allocator = detail::Allocators()[memory].load(std::memory_order_acquire);
  if (!allocator)
    Throw(ErrorCode::kUnsupported, "no allocator for device ", ToString(type),
          ": include its backend's header, or call SetAllocator");
  return *allocator;
}

OPKIT_INLINE Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  return detail::Allocators()[memory].exchange(allocator, std::memory_order_acq_rel);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ALLOCATOR_IPP_

// ---- opkit/core/impl/tensor.ipp
// The definitions of opkit/core/tensor.hpp.
#ifndef OPKIT_CORE_IMPL_TENSOR_IPP_
#define OPKIT_CORE_IMPL_TENSOR_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of bytes of an element that is a C++ object.
constexpr int64_t ObjectBytes(DType dtype) {
  return static_cast<int64_t>(dtype == DType::kString ? sizeof(std::string) : sizeof(Tensor));
}
// True at the begin of an object, and for elements that are not objects.
constexpr bool IsAtObject(DType dtype, int64_t byte_offset) {
  return !IsObject(dtype) || byte_offset % ObjectBytes(dtype) == 0;
}
// Counts the bytes of `count` neighbouring elements; false if 64 bits cannot count them.
inline bool CountDenseBytes(int64_t count, DType dtype, int64_t* bytes) {
  if (IsPacked(dtype)) {
    *bytes = BytesOf(count, dtype);
    return true;
  }
  return !__builtin_mul_overflow(count, IsObject(dtype) ? ObjectBytes(dtype) : ItemSize(dtype),
                                 bytes);
}

template <class T>
Storage AllocateObjectsOf(Device device, DType dtype, int64_t count, int64_t nbytes) {
  T* objects = nullptr;
  try {
    objects = new T[Index(count)];
    return AdoptStorage(
        device, objects, nbytes, [](void* data, void*) { delete[] static_cast<T*>(data); }, nullptr,
        dtype);
  } catch (const std::bad_alloc&) {
    delete[] objects;
    Throw(ErrorCode::kOutOfMemory, "no memory for ", count, " elements of ", dtype);
  }
}
// Allocates and constructs elements of string, sequence or optional. Errors: kUnsupported on
// another device than the CPU, kOutOfMemory.
inline Storage AllocateObjects(Device device, DType dtype, int64_t count, int64_t nbytes) {
  if (device.type != DeviceType::kCPU)
    Throw(ErrorCode::kUnsupported, "elements of ", dtype, " are on the cpu only");
  return dtype == DType::kString ? AllocateObjectsOf<std::string>(device, dtype, count, nbytes)
                                 : AllocateObjectsOf<Tensor>(device, dtype, count, nbytes);
}
// Returns the dtype for StorageBlock::objects().
constexpr DType ObjectsOf(DType dtype) { return IsObject(dtype) ? dtype : DType::kUndefined; }
// Throws kTypeMismatch for a view of bytes as objects, of objects as bytes, or of other objects.
inline void CheckViewOf(const StorageBlock& storage, DType dtype, bool at_object) {
  if (storage.objects() == ObjectsOf(dtype) && (at_object || !IsObject(dtype))) [[likely]]
    return;
  Throw(ErrorCode::kTypeMismatch, "memory of ",
        storage.objects() == DType::kUndefined ? "plain elements" : ToString(storage.objects()),
        " cannot be viewed as ", dtype, at_object ? "" : " from the middle of an element on");
}

OPKIT_INLINE void CopyObjects(DType dtype, void* to, const void* from, int64_t count) {
  if (to == from) return;
  const auto copy = [count](auto* target, const auto* source) {
    for (int64_t i = 0; i < count; ++i) target[i] = source[i];
  };
  if (dtype == DType::kString)
    copy(static_cast<std::string*>(to), static_cast<const std::string*>(from));
  else
    copy(static_cast<Tensor*>(to), static_cast<const Tensor*>(from));
}

}  // namespace detail

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
  if (!storage_ || dtype == DType::kUndefined || !IsDType(dtype))
    Throw(ErrorCode::kInvalidArgument, "a view ", dtype, shape_, " needs ",
          storage_ ? "a dtype" : "a storage");
  static_cast<void>(MemoryBytes(shape_, dtype));
  detail::CheckViewOf(*storage_, dtype, detail::IsAtObject(dtype, byte_offset));
  device_ = storage_->device();
  if (shape_.IsDense(strides_)) strides_ = Dims();
  const int64_t needed = ViewBytes();
  if (byte_offset < 0 || needed < 0 || byte_offset > storage_->nbytes() - needed)
    Throw(ErrorCode::kOutOfRange, "a view ", dtype, shape_, " with strides", strides_, " at byte ",
          byte_offset, " does not fit in its storage of ", storage_->nbytes(), " bytes");
  if (strides_.empty()) capacity_ = needed;
}

OPKIT_INLINE void Tensor::Resize(Shape shape, DType dtype) {
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kInvalidArgument, "Resize to ", shape, " needs a dtype");
  if (!Fits(shape, dtype)) TakeMemory(NewMemory(shape, dtype));
  shape_ = std::move(shape);
  dtype_ = dtype;
  strides_ = Dims();
  layout_ = Layout();
}

OPKIT_INLINE void Tensor::ReleaseMemory() {
  storage_ = Storage();
  byte_offset_ = capacity_ = 0;
  strides_ = Dims();
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
         source);
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
  Tensor target = CopyDestination(source);
  source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
  *this = std::move(target);
}

OPKIT_INLINE Tensor Tensor::CopyDestination(const Tensor& source) const {
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
  if (detail::g_contiguous_on_device && !IsHostAccessible(device_.type))
    return detail::g_contiguous_on_device(*this);
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
  for (int i = 0; i < resolved.size(); ++i)
    if (resolved[i] == -1 && unknown < 0)
      unknown = i;
    else if (__builtin_mul_overflow(known, resolved[i], &known))
      known = -1;
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
  const int64_t first = out.numel() > 0 ? begin * strides()[axis] : 0;
  out.strides_ = strides();
  if (out.shape_.IsDense(out.strides_)) out.strides_ = Dims();
  if (IsPacked(dtype_)) {
    const int64_t in_a_byte = 8 / BitSize(dtype_), last = first + out.numel();
    if (out.has_strides() || first % in_a_byte != 0 || (last % in_a_byte != 0 && last != numel()))
      Fail(ErrorCode::kUnsupported, "slice [", begin, ", ", end, ") of axis ", axis,
           " is no run of whole bytes; cast the tensor to a type of 8 bits first");
    out.byte_offset_ += first / in_a_byte;
  } else {
    out.byte_offset_ += first * ElementBytes(dtype_);
  }
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
    const int axis = shape_.Axis(order[i]);
    for (int j = 0; j < i; ++j)
      if (shape_.Axis(order[j]) == axis)
        Fail(ErrorCode::kInvalidArgument, "Permute names axis ", axis, " twice");
    dims[i] = shape_[axis];
    steps[i] = old_strides[axis];
  }
  Tensor out = *this;
  out.shape_ = Shape(std::move(dims));
  out.strides_ = std::move(steps);
  if (!IsPacked(dtype_)) return out;
  if (!out.shape_.IsDense(out.strides_))
    Fail(ErrorCode::kUnsupported, "cannot have its axes in the order ", order,
         " without a copy; cast it to a type of 8 bits first");
  out.strides_ = Dims();
  return out;
}

OPKIT_INLINE bool Tensor::SpansOverlap(const Tensor& other) const {
  if (numel() == 0 || other.numel() == 0) return false;
  const auto* a = static_cast<const char*>(raw_data());
  const auto* b = static_cast<const char*>(other.raw_data());
  if (MemoryDevice(device_) != MemoryDevice(other.device_)) return false;
  return a < b + other.SpanBytes() && b < a + SpanBytes();
}

OPKIT_INLINE Tensor Tensor::FromLayout(Storage storage, Shape shape, DType dtype, Layout layout,
                                       int64_t byte_offset, int64_t bytes) {
  Tensor out(storage->device());
  static_cast<void>(MemoryBytes(shape, dtype));
  if (IsPacked(dtype) && !layout.is_standard())
    Throw(ErrorCode::kUnsupported, "elements of ", dtype, " are packed, and the layout '", layout,
          "' is for whole bytes");
  if (dtype != DType::kUndefined)
    detail::CheckViewOf(*storage, dtype,
                        layout.is_standard() && detail::IsAtObject(dtype, byte_offset));
  if (bytes < 0) bytes = storage->nbytes() - byte_offset;
  if (byte_offset < 0 || bytes < 0 || byte_offset > storage->nbytes() - bytes)
    Throw(ErrorCode::kOutOfRange, bytes, " bytes behind ", byte_offset,
          " do not fit in a storage of ", storage->nbytes());
  out.byte_offset_ = byte_offset;
  out.capacity_ = bytes;
  out.storage_ = std::move(storage);
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.layout_ = std::move(layout);
  return out;
}

OPKIT_INLINE void Tensor::SetDevice(Device device) {
  if (storage_ && MemoryDevice(device) != MemoryDevice(device_))
    Fail(ErrorCode::kInvalidArgument, "cannot be moved to ", device,
         " without a copy; use CopyFrom or device/copy.hpp");
  device_ = device;
}

OPKIT_INLINE std::string ToString(const Tensor& tensor) {
  std::string out = StrCat(tensor.dtype_, tensor.shape_, " on ", tensor.device_);
  if (!tensor.layout_.is_standard()) out += StrCat(" in ", tensor.layout_);
  if (!tensor.is_dense()) out += StrCat(" with strides", tensor.strides_);
  if (!tensor.initialized()) out += " (uninitialized)";
  return out;
}

OPKIT_INLINE int64_t Tensor::CheckedBytes(const Shape& shape, DType dtype) {
  int64_t nbytes = 0;
  if (!IsDType(dtype)) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, "there is no dtype of number ", static_cast<int>(dtype));
  if (dtype == DType::kUndefined) return 0;
  if (BitSize(dtype) == 0) [[unlikely]]
    Throw(ErrorCode::kUnsupported, "a tensor cannot hold elements of ", dtype);
  if (!detail::CountDenseBytes(shape.numel(), dtype, &nbytes))
    Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, shape,
          " has more bytes than a 64-bit count can hold");
  return nbytes;
}

OPKIT_INLINE int64_t Tensor::ElementBytes(DType dtype) {
  return IsObject(dtype) ? detail::ObjectBytes(dtype) : ItemSize(dtype);
}

OPKIT_INLINE int64_t Tensor::MemoryBytes(const Shape& shape, DType dtype) {
  if (!IsObject(dtype)) return CheckedBytes(shape, dtype);
  int64_t nbytes = 0;
  if (!detail::CountDenseBytes(shape.numel(), dtype, &nbytes))
    Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, shape,
          " has more bytes than a 64-bit count can hold");
  return nbytes;
}

OPKIT_INLINE void Tensor::FailJoined(ErrorCode code,
                                     std::initializer_list<detail::Text> parts) const {
  throw Error(code, StrCat("tensor ", *this, ": ", detail::Join(parts)), this);
}

OPKIT_INLINE void Tensor::FailToAccess(DType wanted, const char* advice) const {
  CheckInitialized();
  Fail(ErrorCode::kTypeMismatch, "accessed as ", wanted, " but holds ", dtype_, advice);
}

OPKIT_INLINE bool Tensor::Fits(const Shape& shape, DType dtype) const {
  if (storage_ && storage_->objects() != detail::ObjectsOf(dtype)) return false;
  int64_t nbytes = 0;
  if (!IsDType(dtype) || !detail::CountDenseBytes(shape.numel(), dtype, &nbytes) ||
      nbytes > capacity_ || (!storage_ && nbytes > 0))
    return false;
  if (IsObject(dtype)) return detail::IsAtObject(dtype, byte_offset_);
  const int64_t alignment = IsPacked(dtype) ? 1 : ItemSize(dtype);
  return (byte_offset_ & (alignment - 1)) == 0;  // else its elements would be misaligned
}

OPKIT_INLINE Storage Tensor::NewMemory(const Shape& shape, DType dtype) const {
  try {
    const int64_t nbytes = MemoryBytes(shape, dtype);
    if (IsObject(dtype)) [[unlikely]]
      return detail::AllocateObjects(MemoryDevice(device_), dtype, shape.numel(), nbytes);
    return AllocateStorage(MemoryDevice(device_), nbytes);
  } catch (const Error& error) {
    Fail(error.code(), "cannot become ", dtype, shape, ": ", error.message());
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
  if (strides_.empty()) return MemoryBytes(shape_, dtype_);
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
  return (last + 1) * ElementBytes(dtype_);
}

OPKIT_INLINE int64_t Tensor::ViewBytes() const {
  if (strides_.empty()) return MemoryBytes(shape_, dtype_);
  if (IsPacked(dtype_))
    Throw(ErrorCode::kUnsupported, "elements of ", dtype_,
          " are packed and cannot have the strides ", strides_, " in the shape ", shape_);
  if (strides_.size() != rank()) return -1;
  if (numel() == 0) return 0;
  int64_t end = 1, step = 0;
  for (int i = 0; i < rank(); ++i)
    if (strides_[i] < 0 || __builtin_mul_overflow(shape_[i] - 1, strides_[i], &step) ||
        __builtin_add_overflow(end, step, &end))
      return -1;
  return __builtin_mul_overflow(end, ElementBytes(dtype_), &end) ? -1 : end;
}

OPKIT_INLINE void Tensor::CopyElementsTo(char* out) const {
  const char* base = static_cast<const char*>(raw_data());
  if (numel() == 0) return;
  if (is_dense()) {
    if (IsObject(dtype_))
      detail::CopyObjects(dtype_, out, base, numel());
    else
      std::memcpy(out, base, static_cast<size_t>(nbytes()));
    return;
  }
  const auto item = static_cast<size_t>(ElementBytes(dtype_));
  Dims index(shape_);
  for (int i = 0; i < rank(); ++i) index[i] = 0;
  for (int64_t n = numel(); n > 0; --n, out += item) {
    int64_t offset = 0;
    for (int i = 0; i < rank(); ++i) offset += index[i] * strides_[i];
    const char* const from = base + offset * static_cast<int64_t>(item);
    if (IsObject(dtype_))
      detail::CopyObjects(dtype_, out, from, 1);
    else
      std::memcpy(out, from, item);
    for (int i = rank() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
  }
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_TENSOR_IPP_

// ---- opkit/core/impl/attribute.ipp
// The definitions of opkit/core/attribute.hpp.
#ifndef OPKIT_CORE_IMPL_ATTRIBUTE_IPP_
#define OPKIT_CORE_IMPL_ATTRIBUTE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE const char* ToString(AttributeType type) {
  constexpr const char* kNames[] = {"int",  "float",  "bool",  "string",  "tensor",
                                    "ints", "floats", "bools", "strings", "tensors"};
  return kNames[static_cast<int>(type)];
}

OPKIT_INLINE void Attribute::WrongType(AttributeType wanted) const {
  Throw(ErrorCode::kTypeMismatch, "is ", type_, " (", Print(), "), but is read as ", wanted);
}

OPKIT_INLINE std::string Attribute::Print() const {
  std::string out;
  auto add = [&](const detail::Text& value) { out += StrCat(out.empty() ? "" : ", ", value); };
  const bool bools = type_ == AttributeType::kBool || type_ == AttributeType::kBools;
  for (int64_t value : values_->ints) add(bools ? detail::Text(value != 0) : detail::Text(value));
  for (double value : values_->floats) add(value);
  for (const std::string& value : values_->strings) add("\"" + value + "\"");
  for (const Tensor& value : values_->tensors) add(value);
  return is_list() ? "[" + out + "]" : out;
}

OPKIT_INLINE bool Attribute::SameTensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
  if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
  if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
  const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
  if (a.dtype() == DType::kString) return x.ToVector<std::string>() == y.ToVector<std::string>();
  if (IsObject(a.dtype())) {
    const auto elements = [](const Tensor& tensor) {
      return static_cast<const Tensor*>(tensor.raw_data());
    };
    return std::equal(elements(x), elements(x) + x.numel(), elements(y), &SameTensor);
  }
  return x.nbytes() == 0 ||
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

OPKIT_INLINE Arguments::Arguments(std::initializer_list<detail::NamedAttribute> list) {
  for (const detail::NamedAttribute& item : list) {
    if (Has(item.name))
      Throw(ErrorCode::kInvalidArgument, "argument '", item.name, "' is given twice, as ",
            ToString(*Find(item.name)), " and as ", ToString(item.value));
    items_.push_back(item);
  }
}

OPKIT_INLINE void Arguments::Set(std::string name, Attribute value) {
  for (detail::NamedAttribute& item : items_)
    if (item.name == name) {
      item.value = std::move(value);
      return;
    }
  items_.push_back({std::move(name), std::move(value)});
}

OPKIT_INLINE bool Arguments::Remove(std::string_view name) {
  return std::erase_if(items_,
                       [&](const detail::NamedAttribute& item) { return item.name == name; }) > 0;
}

OPKIT_INLINE const Attribute* Arguments::Find(std::string_view name) const {
  for (const detail::NamedAttribute& item : items_)
    if (item.name == name) return &item.value;
  return nullptr;
}

OPKIT_INLINE std::vector<std::string> Arguments::Names() const {
  std::vector<std::string> names;
  for (const detail::NamedAttribute& item : items_) names.push_back(item.name);
  return names;
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ATTRIBUTE_IPP_

// ---- opkit/base/name_index.hpp
// NameIndex: numbers names in the order in which they are added. A graph's values and nodes have
// names; code that visits a graph works with the numbers. NameTable: a value for each name.
#ifndef OPKIT_BASE_NAME_INDEX_HPP_
#define OPKIT_BASE_NAME_INDEX_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An open-addressing hash table (linear probing, at most half full). Adding and finding is O(1);
// names are never removed. Not synchronised.
class NameIndex {
 public:
  // Returns the name's number, or -1 if the name was never added.
  int Find(std::string_view name) const;
  // Returns the name's number; a new name gets the next one.
  int Add(std::string_view name);
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& operator[](int number) const { return names_[Index(number)]; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Slot {
    int number = -1;  // -1: empty
    uint32_t hash = 0;
  };

  // Returns the index of the name's slot, or of the empty slot where the name would go.
  size_t Probe(std::string_view name, uint32_t hash) const;
  void Grow();

  std::vector<std::string> names_;
  std::vector<Slot> slots_;  // their number is a power of two
};

// A value for each name, found in O(1). Adding a name may move the values. Not synchronised.
template <class T>
class NameTable {
 public:
  // Returns the name's value; a new name gets a value-initialised one.
  T& operator[](std::string_view name) {
    const size_t number = Index(names_.Add(name));
    if (number == values_.size()) values_.emplace_back();
    return values_[number];
  }
  // Returns null for a name that was never added.
  const T* Find(std::string_view name) const {
    const int number = names_.Find(name);
    return number < 0 ? nullptr : &values_[Index(number)];
  }
  bool empty() const { return values_.empty(); }

 private:
  NameIndex names_;
  std::vector<T> values_;  // by number in `names_`
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_NAME_INDEX_HPP_

// ---- opkit/base/registration/own_names.hpp
// The function by which a library frees its interned names before it is unmapped. Only .ipp files
// include this header.
#ifndef OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_
#define OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Deletes this image's table of names. The hook is empty before the table exists. The image must
// not use names after the call.
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_names{"deleting the names",
                                                               "opkit/base/interned_names.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REGISTRATION_OWN_NAMES_HPP_

// ---- opkit/base/impl/interned_names.ipp
// The table of interned names.
#ifndef OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_
#define OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The table of names, made at first use.
struct InternedNames {
  Mutex mutex;
  NameIndex names;
  int64_t room = INT64_MAX;

  // Never destroyed at the end of the process: threads may still intern names then.
  static InternedNames& Global() {
    static InternedNames* table = [] {
      auto* made = new InternedNames;
      made->names.Add("");
      g_delete_names.Fill([] { delete &Global(); });
      pthread_atfork([] { Global().mutex.Lock(); }, [] { Global().mutex.Unlock(); },
                     [] { Global().mutex.ResetAfterFork(); });
      return made;
    }();
    return *table;
  }
};

// A name that this thread interned recently; the search takes no lock. A scope in a loop interns
// the same name in every iteration.
struct RecentName {
  uint32_t number;
  uint32_t size;
  char text[24];
};
inline constinit thread_local RecentName t_recent_names[64] = {};

inline uint32_t NumberOfName(std::string_view name, bool only_if_room) {
  // Bytes of a name in addition to its text: the string object and index slots.
  constexpr int64_t kBytesBeside = 64;
  if (name.empty()) return 0;
  // Hashed by address: most names are literals or long-lived strings.
  const auto place = reinterpret_cast<uintptr_t>(name.data()) >> 2;
  RecentName& recent = t_recent_names[(place ^ place >> 6) % 64];
  if (recent.size == name.size() && std::memcmp(recent.text, name.data(), name.size()) == 0)
    return recent.number;
  InternedNames& table = InternedNames::Global();
  MutexLock lock(table.mutex);
  int found = table.names.Find(name);
  if (found < 0) {
    const int64_t bytes = static_cast<int64_t>(name.size()) + kBytesBeside;
    if (only_if_room && table.room < bytes) return 0;
    table.room -= bytes;
    found = table.names.Add(name);
  }
  const auto number = static_cast<uint32_t>(found);
  if (name.size() <= sizeof recent.text) {
    recent.number = number;
    recent.size = static_cast<uint32_t>(name.size());
    std::memcpy(recent.text, name.data(), name.size());
  }
  return number;
}

}  // namespace detail

OPKIT_INLINE uint32_t InternName(std::string_view name) {
  return detail::NumberOfName(name, false);
}
OPKIT_INLINE uint32_t InternNameIfRoom(std::string_view name) {
  return detail::NumberOfName(name, true);
}
OPKIT_INLINE void SetRoomForNames(int64_t bytes) {
  detail::InternedNames& table = detail::InternedNames::Global();
  detail::MutexLock lock(table.mutex);
  table.room = bytes;
}
OPKIT_INLINE std::string InternedName(uint32_t number) {
  detail::InternedNames& table = detail::InternedNames::Global();
  detail::MutexLock lock(table.mutex);
  const int at = static_cast<int>(number);
  return at >= 0 && at < table.names.size() ? table.names[at] : std::string();
}

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_INTERNED_NAMES_IPP_

// ---- opkit/op/boundary/convert/impl/abi_attributes.ipp
// Tensors and attributes across the ABI: outgoing views, and the checks of incoming structs.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

static_assert(static_cast<int>(AttributeType::kTensors) == OPKIT_ATTR_TENSORS);
static_assert(static_cast<int>(DType::kComplex128) == OPKIT_COMPLEX128);

// Counts the bytes from the first element of a view to the end of the last; false if 64 bits cannot
// count them.
inline bool CountBytes(const opkit_tensor& view, int64_t* bytes) {
  int64_t last = 0, step = 0;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 0 && (__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &step) ||
                              __builtin_add_overflow(last, step, &last)))
      return false;
  return !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(last, ItemSize(static_cast<DType>(view.dtype)), bytes);
}

inline constexpr uint64_t kMostStringBytes = uint64_t{1} << 32;  // limit for a string attribute

OPKIT_INLINE std::string TextOfAbi(const char* text) {
  const size_t bytes = text ? ::strnlen(text, kMostTextBytes + 1) : 0;
  if (bytes > kMostTextBytes)
    Throw(ErrorCode::kInvalidArgument, "a text of a library has more than ", kMostTextBytes,
          " bytes, or no end: ", std::string(text, 32), "…");
  return {text ? text : "", bytes};
}

// Returns the reason why a struct must not be read; null if it may be read.
template <class Struct>
const char* ProblemOfStruct(const Struct* it) {
  if (!it) return "is null";
  if (!IsAligned(it)) return "is not aligned";
  if (it->size < kFirstBytes<Struct>) return "is shorter than version 1.0's";
  return IsReadable(it) ? nullptr : "says a size that it cannot have";
}

OPKIT_INLINE std::string ProblemOfView(const opkit_tensor* view) {
  if (const char* problem = ProblemOfStruct(view)) return problem;
  if (view->dtype <= 0 || view->dtype >= kNumPlainDTypes)
    return StrCat("has the dtype ", view->dtype, ", which does not exist");
  if (view->rank < 0 || view->rank > OPKIT_MAX_RANK) return StrCat("has the rank ", view->rank);
  if (view->device_type <= 0)
    return StrCat("is on a device of the type ", view->device_type, ", which does not exist");
  if (view->rank > 0 && (!view->shape || !view->strides)) return "has no shape or no strides";
  if (!IsAligned(view->shape) || !IsAligned(view->strides))
    return "has a shape or strides that are not aligned";
  bool is_empty = false;
  for (int i = 0; i < view->rank; ++i) {
    if (view->shape[i] < 0) return StrCat("has the extent ", view->shape[i], " on axis ", i);
    is_empty |= view->shape[i] == 0;
  }
  int64_t bytes = 0;
  if (!CountBytes(*view, &bytes)) return "reaches further than 64 bits can count";
  if (!view->data) return is_empty ? "" : "has no memory";
  const auto dtype = static_cast<DType>(view->dtype);
  const auto alignment = static_cast<uintptr_t>(ItemSize(dtype)) / (IsComplex(dtype) ? 2 : 1);
  return reinterpret_cast<uintptr_t>(view->data) % alignment == 0
             ? ""
             : "has memory that is not aligned to its elements";
}
OPKIT_INLINE std::string ProblemOfAttr(const opkit_attr* attr) {
  if (const char* problem = ProblemOfStruct(attr)) return problem;
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
  if (reinterpret_cast<uintptr_t>(elements) % 8 != 0 || (is_text && !IsAligned(attr->string_sizes)))
    return "has elements that are not aligned";
  for (uint64_t i = 0; i < attr->count; ++i) {
    if (is_text && !attr->strings[i]) return "has a null string";
    if (is_text && attr->string_sizes[i] > kMostStringBytes)
      return StrCat("has a string of ", attr->string_sizes[i], " bytes");
    if (!is_tensor) continue;
    if (const std::string problem = ProblemOfView(attr->tensors[i]); !problem.empty())
      return StrCat("has a tensor that ", problem);
    if (attr->tensors[i]->device_type != OPKIT_CPU) return "has a tensor that is not on the CPU";
  }
  return "";
}

OPKIT_INLINE Tensor TensorOfView(const opkit_tensor& view, const Tensor* host) {
  RequireView(&view, "a tensor of a library ");
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

// An opkit_attr with all data that it points to.
struct AbiAttribute : RefCounted {
  AbiAttribute(const std::string& attribute_name, const Attribute& attribute)
      : name(attribute_name),
        text(AttributeText(attribute)),
        value(attribute),
        string_data(value.values().strings.size()),
        string_sizes(string_data.size()),
        strides(value.values().tensors.size()),
        views(strides.size()),
        view_pointers(strides.size()) {
    const Attribute::Values& all = value.values();
    for (size_t i = 0; i < all.strings.size(); ++i) {
      string_data[i] = all.strings[i].c_str();
      string_sizes[i] = all.strings[i].size();
    }
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      const Tensor& tensor = all.tensors[i];
      if (tensor.dtype() != DType::kUndefined) RequirePlain(tensor.dtype(), "attribute ", name);
      strides[i] = tensor.strides();
      views[i] = OpTensor(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(),
                          strides[i].data(), tensor.rank(), tensor.device());
      views[i].Bind(&tensor);
      view_pointers[i] = &views[i].view();
    }
    attr.size = sizeof attr;
    attr.name = name.c_str();
    attr.type = static_cast<int32_t>(value.type());
    attr.count = value.size();
    attr.ints = all.ints.data();
    attr.floats = all.floats.data();
    attr.strings = string_data.data();
    attr.string_sizes = string_sizes.data();
    attr.tensors = view_pointers.data();
    attr.text = text.c_str();
  }

  std::string name, text;
  Attribute value;
  std::vector<const char*> string_data;
  std::vector<uint64_t> string_sizes;
  std::vector<Dims> strides;
  std::vector<OpTensor> views;
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
  if (count > kMostParts || (count > 0 && !IsUsable(attrs)))
    Throw(ErrorCode::kInvalidArgument, "a library gives ", count, " attributes",
          attrs ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i) {
    if (const std::string problem = ProblemOfAttr(attrs[i]); !problem.empty()) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "attribute ", i,
            IsReadable(attrs[i]) && attrs[i]->name ? StrCat(" '", TextOfAbi(attrs[i]->name), "'")
                                                   : std::string(),
            " of a library ", problem);
    const opkit_attr& attr = *attrs[i];
    auto values = MakeIntrusive<Attribute::Values>();
    for (uint64_t k = 0; k < attr.count; ++k) {
      const int type = attr.type % 5;
      if (type == OPKIT_ATTR_INT || type == OPKIT_ATTR_BOOL)
        values->ints.push_back(type == OPKIT_ATTR_INT ? attr.ints[k] : attr.ints[k] != 0);
      else if (type == OPKIT_ATTR_FLOAT)
        values->floats.push_back(attr.floats[k]);
      else if (type == OPKIT_ATTR_STRING)
        values->strings.emplace_back(attr.strings[k], attr.string_sizes[k]);
      else
        values->tensors.emplace_back().CopyFrom(TensorOfView(*attr.tensors[k]));
    }
    out.Set(TextOfAbi(attr.name),
            Attribute(static_cast<AttributeType>(attr.type), std::move(values)));
  }
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_

// ---- opkit/op/function/impl/state_of_inputs.ipp
// StateOfInputs' definitions.
#ifndef OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_
#define OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE OpStatus StateOfInputs::Run(FunctionPass pass, std::span<const OpTensor> inputs,
                                         std::span<OpTensor> outputs, OpResource& resource) {
  std::span<const OpTensor> of_forward = inputs;
  if (pass == FunctionPass::kBackward) {  // gradients of outputs, inputs, outputs
    if (inputs.size() < outputs.size() || (inputs.size() - outputs.size()) % 2 != 0)
      return OpStatus::Failure("it has ", inputs.size(), " inputs for ", outputs.size(),
                               " gradients of inputs, expected an input for each gradient, and two "
                               "for each output of the forward operator");
    of_forward = inputs.subspan((inputs.size() - outputs.size()) / 2, outputs.size());
  }
  const opkit_call*& last_call = calls_[static_cast<int>(pass)];
  if (!state_ || !Fits(of_forward)) {
    IntrusivePtr<StatefulOp> before = state_;
    if (OpStatus status = Make(of_forward); !status.ok()) return status;
    // Work on a stream may still use the state, and so may a run that was cancelled: the operator
    // then makes a new opkit_call.
    if (before && (resource.call()->asynchronous || last_call != resource.call()))
      replaced_.push_back(std::move(before));
  }
  last_call = resource.call();
  return state_->Run(pass, inputs, outputs, resource);
}

OPKIT_INLINE bool StateOfInputs::Fits(std::span<const OpTensor> inputs) const {
  if (inputs.size() != shapes_.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype() != types_[i] || !std::ranges::equal(inputs[i].shape(), shapes_[i]))
      return false;
  return true;
}

OPKIT_INLINE OpStatus StateOfInputs::Make(std::span<const OpTensor> inputs) {
  ShapeVectors shapes;
  std::vector<DType> types;
  for (const OpTensor& input : inputs) {
    shapes.emplace_back(input.shape().begin(), input.shape().end());
    types.push_back(input.dtype());
  }
  IntrusivePtr<StatefulOp> made;
  try {
    if (OpStatus status = make_(shapes, types, made); !status.ok()) {
      if (const std::string why = status.message(); !why.empty())
        return OpStatus::Failure("createOpState failed: ", why);
      OPKIT_ERROR_MSG << " (createOpState returned FAIL)";  // behind the author's text
      return status;
    }
  } catch (Error& error) {
    error.AddContext("in createOpState");
    throw;
  } catch (...) {
    throw Error(ErrorCode::kOperatorFailed,
                StrCat("createOpState threw: ", CurrentError().message()))
        .SetCause(std::current_exception());
  }
  if (!made) return OpStatus::Failure("createOpState succeeded but made no StatefulOp");
  state_ = std::move(made);
  shapes_ = std::move(shapes);
  types_ = std::move(types);
  return {};
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_STATE_OF_INPUTS_IPP_

// ---- opkit/op/boundary/convert/op_conversion.hpp
// Operators across the boundary: ExportOp turns a record into an opkit_op, and ImportOp checks a
// library's opkit_op and reads it into a record. A new value of opkit_op is added in
// abi/opkit_abi.h, in FunctionOpRecord and in this header's definitions; CONTRIBUTING.md describes
// how to add a function.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the device type named "cpu", "gpu" or by its own name; -1 for an unknown name.
int DeviceTypeFromName(std::string_view name);

// Returns the record as an opkit_op, which lives as long as the owner that is added to `owners`.
// The pointers in the record's `abi` are passed on unchanged: its kernels must call the record's
// functions and must not throw.
OPKIT_IMAGE_LOCAL const opkit_op* ExportOp(FunctionRecord record, RefCountedList& owners);

// Reads operator `index` of a library into a record. Its devices, in the order of op.kernels, have
// no functions yet: LibraryOps (plugin/load/library_ops.hpp) calls the kernels. Throws
// kInvalidArgument for every fault of the description.
FunctionRecord ImportOp(const opkit_op* op, uint64_t index, const std::string& library);

// Throws an Error: "library NAME WHAT; MEND".
[[noreturn]] OPKIT_COLD void RefuseDescription(const std::string& library, const Text& what,
                                               const Text& mend = {},
                                               ErrorCode code = ErrorCode::kInvalidArgument);
// Throws for a name that is not one short line of text, or has a character below `least`. Accepts
// null.
void CheckLibraryText(const std::string& library, const char* name, const Text& what,
                      unsigned char least = ' ', const Text& mend = {});
// Throws for a text without a terminating zero. Accepts null.
void CheckLibraryTextEnds(const std::string& library, const char* text, const Text& what);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_OP_CONVERSION_HPP_

// ---- opkit/plugin/export/impl/library_export.ipp
// Implements opkit_op by the functions of REGISTER_OP, and describes the library.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// One operator of the host: its attributes, read once, and the author's state.
struct FunctionInstance {
  FunctionDevice& device;
  AttrMap attrs;
  IntrusivePtr<StatefulOp> state;
};

OPKIT_IMAGE_LOCAL inline opkit_status CreateInstance(const opkit_kernel* kernel,
                                                     const opkit_node* node, void** instance) {
  return GuardedCall([&] {
    auto& record = *static_cast<FunctionOpRecord*>(const_cast<void*>(kernel->author));
    FunctionDevice* device = record.devices.data();
    while (&device->abi != kernel) ++device;
    // The state may refer to the attributes.
    struct Made {
      FunctionInstance* instance;
      ~Made() { delete instance; }
    } owner{new FunctionInstance{*device, record.Attrs(*node), {}}};
    FunctionInstance* const made = owner.instance;
    if (device->create_state) {
      const OpContext context{
          {static_cast<DeviceType>(node->device_type), node->device_index}, nullptr, node};
      OpStatus status = device->create_state(made->attrs, context, made->state);
      if (!status.ok()) return status;
      if (!made->state) return OpStatus::Failure("createOpState succeeded but made no StatefulOp");
    }
    *instance = std::exchange(owner.instance, nullptr);
    return OpStatus();
  });
}
OPKIT_IMAGE_LOCAL inline void DestroyInstance(void* instance) {
  GuardedCall([&] { delete static_cast<FunctionInstance*>(instance); });
}

// Returns the host's array if its opkit_tensor has the size of ours, else copies. The author's
// functions only read the views; they write to the memory behind them.
inline OpTensor* ViewsOfAbi(const opkit_tensor* tensors, uint64_t count,
                            std::vector<OpTensor>& copies) {
  if (count == 0 || tensors->size == sizeof(opkit_tensor)) [[likely]]
    return reinterpret_cast<OpTensor*>(const_cast<opkit_tensor*>(tensors));
  for (uint64_t i = 0; i < count; ++i) copies.emplace_back(*opkit_tensor_at(tensors, i));
  return copies.data();
}

template <FunctionPass kPass>
opkit_status RunFunction(void* context, const opkit_call* call) {
  return GuardedCall([&] {
    auto& [device, attrs, state] = *static_cast<FunctionInstance*>(context);
    std::vector<OpTensor> in_copies, out_copies;
    const std::span<const OpTensor> in(ViewsOfAbi(call->inputs, call->num_inputs, in_copies),
                                       call->num_inputs);
    const std::span<OpTensor> out(ViewsOfAbi(call->outputs, call->num_outputs, out_copies),
                                  call->num_outputs);
    OpResource resource(call);
    if (state) return state->Run(kPass, in, out, resource);
    return (kPass == FunctionPass::kForward ? device.forward : device.backward)(attrs, in, out,
                                                                                resource);
  });
}
OPKIT_INLINE opkit_status RunForward(void* instance, const opkit_call* call) {
  return RunFunction<FunctionPass::kForward>(instance, call);
}
OPKIT_INLINE opkit_status RunBackward(void* instance, const opkit_call* call) {
  return RunFunction<FunctionPass::kBackward>(instance, call);
}

OPKIT_INLINE OpStatus RecordFunctions::ParseAttrs(Record& record, const opkit_node* node,
                                                  int32_t* num_inputs, int32_t* num_outputs) {
  int inputs = -1, outputs = -1;
  OpStatus status = record.CountValues(record.Attrs(*node), &inputs, &outputs);
  *num_inputs = inputs;
  *num_outputs = outputs;
  return status;
}

inline std::vector<DType> TypesOfAbi(opkit_value* values, uint64_t count) {
  std::vector<DType> types(count);  // kUndefined
  for (uint64_t i = 0; i < count; ++i)
    if (const int32_t dtype = opkit_value_at(values, i)->dtype;
        dtype > 0 && dtype < kNumPlainDTypes)
      types[i] = static_cast<DType>(dtype);
  return types;
}
inline void CheckAnswers(size_t found, uint64_t expected, const char* function, const char* what) {
  if (found != expected)
    Throw(ErrorCode::kInvalidArgument, function, " returned ", found, " ", what,
          ", but the node has ", expected);
}
inline void StoreTypesInAbi(const std::vector<DType>& types, opkit_value* values, uint64_t count,
                            const char* what) {
  CheckAnswers(types.size(), count, "inferType", what);
  for (uint64_t i = 0; i < count; ++i)
    opkit_value_at(values, i)->dtype =
        types[i] == DType::kUndefined ? -1 : static_cast<int32_t>(types[i]);
}
OPKIT_INLINE OpStatus RecordFunctions::InferType(Record& record, const opkit_node* node,
                                                 opkit_value* inputs, opkit_value* outputs) {
  std::vector<DType> in = TypesOfAbi(inputs, node->num_inputs);
  std::vector<DType> out = TypesOfAbi(outputs, node->num_outputs);
  OpStatus status = record.infer_type(record.Attrs(*node), in, out);
  if (status.ok()) {
    StoreTypesInAbi(in, inputs, node->num_inputs, "inputs");
    StoreTypesInAbi(out, outputs, node->num_outputs, "outputs");
  }
  return status;
}

inline ShapeVectors ShapesOfAbi(const opkit_value* values, uint64_t count) {
  ShapeVectors shapes(count);
  for (uint64_t i = 0; i < count; ++i) {
    const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
    for (int32_t axis = 0; axis < value.rank; ++axis)
      shapes[i].push_back(value.dims[axis] < 0 ? -1 : value.dims[axis]);
  }
  return shapes;
}
// Stores shapes. An empty shape is a scalar if `empty_is_scalar`, else unknown.
inline void StoreShapesInAbi(const ShapeVectors& shapes, opkit_value* values, uint64_t count,
                             const char* what, bool empty_is_scalar) {
  CheckAnswers(shapes.size(), count, "inferShape", what);
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
OPKIT_INLINE OpStatus RecordFunctions::InferShape(Record& record, const opkit_node* node,
                                                  opkit_value* inputs, opkit_value* outputs) {
  ShapeVectors in = ShapesOfAbi(inputs, node->num_inputs);
  ShapeVectors out = ShapesOfAbi(outputs, node->num_outputs);
  bool ranks_known = true;
  for (uint64_t i = 0; i < node->num_inputs; ++i) {
    const opkit_value& input = *opkit_value_at(inputs, i);
    ranks_known &= !input.present || input.rank >= 0;
  }
  OpStatus status = record.infer_shape(record.Attrs(*node), in, out);
  if (status.ok()) {
    StoreShapesInAbi(in, inputs, node->num_inputs, "inputs", false);
    StoreShapesInAbi(out, outputs, node->num_outputs, "outputs", ranks_known);
  }
  return status;
}
OPKIT_INLINE OpStatus RecordFunctions::MutatedInputs(Record& record, const opkit_node* node,
                                                     uint8_t* mutated) {
  std::vector<int> list;
  OpStatus status = record.mutate_inputs(record.Attrs(*node), list);
  for (int input : list) {
    if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
      return OpStatus::Failure("mutateInputs names input ", input, ", but the node has ",
                               node->num_inputs);
    mutated[input] = 1;
  }
  return status;
}
inline bool AreKnownInAbi(const opkit_value* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
    if (value.rank < 0) return false;
    for (int32_t axis = 0; axis < value.rank; ++axis)
      if (value.dims[axis] < 0) return false;
  }
  return true;
}
OPKIT_INLINE void RecordFunctions::Cost(Record& record, const opkit_node* node,
                                        const opkit_value* inputs, const opkit_value* outputs,
                                        opkit_cost* cost) {
  if (AreKnownInAbi(inputs, node->num_inputs) && AreKnownInAbi(outputs, node->num_outputs))
    cost->flops = record.flops(record.Attrs(*node), ShapesOfAbi(inputs, node->num_inputs),
                               ShapesOfAbi(outputs, node->num_outputs));
}
OPKIT_INLINE void RecordFunctions::ScratchBytes(Record& record, const opkit_node* node,
                                                const opkit_value* inputs, int64_t* bytes) {
  *bytes = record.scratch(record.Attrs(*node), ShapesOfAbi(inputs, node->num_inputs));
}

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void FillInRecord(FunctionOpRecord& record) {
  if (record.parse_attrs || (!record.inputs.empty() && !record.outputs.empty()))
    record.abi.parse_attrs = &GuardBy<FunctionOpRecord, &RecordFunctions::ParseAttrs>;
  record.abi.author = &record;
  for (FunctionDevice& device : record.devices) {
    opkit_kernel& kernel = device.abi;
    kernel.create = &CreateInstance;
    kernel.destroy = &DestroyInstance;
    kernel.author = &record;
    if (record.Has(OPKIT_OP_NO_GRADIENT)) kernel.backward = nullptr;
  }
}
// Adds the records of REGISTER_OP. An operator that two units register from one header is added
// once.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline OpStatus AddRecords(std::vector<FunctionRecord>& records) {
  std::string problems;
  for (const FunctionRecord& record : LibraryContents::Global().records) {
    bool known = false;
    for (size_t i = records.size(); i > 0; --i) {
      const FunctionOpRecord& other = *records[i - 1];
      if (other.name != record->name) continue;
      known = other.line == record->line && std::string_view(other.file) == record->file;
      break;
    }
    if (known) continue;
    if (!record->problem.empty()) problems += StrCat(problems.empty() ? "" : "\n", record->problem);
    FillInRecord(*record);
    records.push_back(record);
  }
  return problems.empty() ? OpStatus() : OpStatus::Failure(problems);
}
OPKIT_COLD OPKIT_INLINE void AddToLibrary(const FunctionRecord& record) {
  LibraryContents::Global().records.push_back(record);
  LibraryContents::Global().add_records = &AddRecords;
}

OPKIT_COLD OPKIT_INLINE LibraryContents& LibraryContents::Global() {
  static LibraryContents contents;
  return contents;
}

OPKIT_COLD OPKIT_INLINE const opkit_library* DescribeLibrary(const opkit_host* host) noexcept {
  LibraryContents& contents = LibraryContents::Global();
  g_host = host;
  g_exceptions = nullptr;
  const opkit_status status = GuardedCall([&] {
    contents.ops.clear();
    contents.owners.clear();
    std::vector<FunctionRecord> records;
    if (contents.add_records)
      if (OpStatus added = contents.add_records(records); !added.ok()) return added;
    contents.layouts.clear();
    contents.layout_converters.clear();
    contents.devices.clear();
    contents.partitioners = contents.own_partitioner_pointers;
    contents.passes.clear();
    contents.backends.clear();
    if (contents.add_layouts) contents.add_layouts(contents);
    if (contents.add_partitioners) contents.add_partitioners(contents);
    if (contents.add_registered) contents.add_registered(records);
    for (FunctionRecord& record : records)
      contents.ops.push_back(ExportOp(std::move(record), contents.owners));
    return OpStatus();
  });
  if (status != OPKIT_OK) return nullptr;
  opkit_library& library = contents.library;
  library = {};
  library.size = sizeof library;
  library.abi_major = OPKIT_ABI_MAJOR;
  library.abi_minor = OPKIT_ABI_MINOR;
  library.version = OPKIT_VERSION_STRING;
  if (contents.initialize)
    library.initialize = [](uint32_t host_major, uint32_t host_minor) {
      return GuardedCall([&] {
        return LibraryContents::Global().initialize(static_cast<int>(host_major),
                                                    static_cast<int>(host_minor));
      });
    };
  if (contents.finalize)
    library.finalize = [] { GuardedCall([] { LibraryContents::Global().finalize(); }); };
  library.num_ops = contents.ops.size();
  library.ops = contents.ops.data();
  const auto tell = [](const auto& all, uint64_t& count, auto& pointers) {
    count = all.size();
    pointers = all.data();
  };
  tell(contents.layouts, library.num_layouts, library.layouts);
  tell(contents.layout_converters, library.num_layout_converters, library.layout_converters);
  tell(contents.devices, library.num_devices, library.devices);
  tell(contents.partitioners, library.num_partitioners, library.partitioners);
  tell(contents.passes, library.num_passes, library.passes);
  tell(contents.backends, library.num_backends, library.backends);
  library.own_version = contents.own_version;
  return &library;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_

// ---- opkit/plugin/export/impl/library_partitioner.ipp
// Lets the host call a partitioner in MXNet's spelling.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Functions of an opkit_partitioner whose `author` is a LibraryPartitionerRecord.
struct OPKIT_IMAGE_LOCAL LibraryPartitionerFunctions {
  static const char* SubgraphOp(const opkit_partitioner* self, int32_t kind) {
    return RecordOf(self->author).SubgraphOp(kind).c_str();
  }
  static opkit_status Mark(void* author, const opkit_partition* partition) {
    return GuardedCall([&] {
      LibraryPartitionerRecord& record = RecordOf(author);
      if (!record.problem.empty() || !record.mark)
        return OpStatus::Failure(record.problem.empty() ? "setSupportedOps(f) is missing"
                                                        : record.problem);
      const GraphText graph(partition);
      std::vector<int> ids(graph.count, -2);
      StringMapArgument options(OptionsOfAbi(*partition));
      if (OpStatus status = record.mark(graph.text, ids, options); !status.ok()) return status;
      if (ids.size() != graph.count)
        return OpStatus::Failure("it answered ", ids.size(), " ids for ", graph.count, " nodes");
      for (uint64_t i = 0; i < graph.count; ++i)
        if (graph.nodes[i] >= 0 && ids[i] != -2)
          AcceptAnswer(
              partition->take(partition, static_cast<uint64_t>(graph.nodes[i]), ids[i], 0));
      return OpStatus();
    });
  }
  static opkit_status Review(void* author, const opkit_partition* partition) {
    return GuardedCall([&] {
      LibraryPartitionerRecord& record = RecordOf(author);
      if (!record.review) return OpStatus();
      const GraphText graph(partition);
      StringMapArgument options(OptionsOfAbi(*partition)), attributes;
      TensorMapArgument::Items constants;
      const opkit_graph& body = *partition->subgraph;
      for (uint64_t i = 0; i < body.num_constants; ++i)
        constants.emplace_back(body.constant_names[i], OpTensor(*body.constants[i]));
      TensorMapArgument args(std::move(constants)), aux;
      bool accept = true;
      if (OpStatus status = record.review(graph.text, static_cast<int>(partition->id), &accept,
                                          options, attributes, args, aux);
          !status.ok())
        return status;
      if (!accept) {
        AcceptAnswer(partition->reject(partition, ""));
        return OpStatus();
      }
      OptionStrings given = attributes.Read();
      std::sort(given.begin(), given.end());  // the order of a map may differ
      for (const auto& [name, value] : given) {
        const AbiAttributes attribute(Arguments{{name, value}});
        AcceptAnswer(partition->set_attr(partition, *attribute.data()));
      }
      return OpStatus();
    });
  }

 private:
  // The JSON of the partition's graph, and the graph's number of each node in the JSON.
  struct GraphText {
    explicit GraphText(const opkit_partition* partition) {
      AcceptAnswer(partition->json(partition, &text, &count, &nodes));
    }
    const char* text = nullptr;
    uint64_t count = 0;
    const int64_t* nodes = nullptr;
  };
  static LibraryPartitionerRecord& RecordOf(const void* author) {
    return *static_cast<LibraryPartitionerRecord*>(const_cast<void*>(author));
  }
};

OPKIT_INLINE LibraryPartitionerRecord::LibraryPartitionerRecord(const char* its_name,
                                                                const char* file, int line) {
  name = its_name;
  abi.size = sizeof abi;
  abi.name = name.c_str();
  abi.file = file;
  abi.line = line;
  abi.subgraph_op = &LibraryPartitionerFunctions::SubgraphOp;
  abi.mark = &LibraryPartitionerFunctions::Mark;
  abi.review = &LibraryPartitionerFunctions::Review;
  abi.author = this;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_

// ---- opkit/base/impl/name_index.ipp
// The definitions of opkit/base/name_index.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_INDEX_IPP_
#define OPKIT_BASE_IMPL_NAME_INDEX_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline uint32_t HashOf(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(name));
}

OPKIT_INLINE int NameIndex::Find(std::string_view name) const {
  if (slots_.empty()) return -1;
  return slots_[Probe(name, HashOf(name))].number;
}

OPKIT_INLINE int NameIndex::Add(std::string_view name) {
  if (names_.size() * 2 >= slots_.size()) Grow();
  const uint32_t hash = HashOf(name);
  Slot& slot = slots_[Probe(name, hash)];
  if (slot.number < 0) {
    slot = {size(), hash};
    names_.emplace_back(name);
  }
  return slot.number;
}

OPKIT_INLINE size_t NameIndex::Probe(std::string_view name, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].number >= 0 &&
         (slots_[at].hash != hash || names_[Index(slots_[at].number)] != name))
    at = (at + 1) & mask;
  return at;
}

OPKIT_INLINE void NameIndex::Grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 16 : old.size() * 2, {});
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.number < 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].number >= 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_NAME_INDEX_IPP_

// ---- opkit/op/boundary/convert/impl/op_conversion.ipp
// Conversions of opkit_op, member by member, in both directions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE int DeviceTypeFromName(std::string_view name) {
  if (name == "gpu") return static_cast<int>(DeviceType::kGPU);
  DeviceTypeRegistry& registry = DeviceTypes();
  MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

// Fills in the ABI structs inside a record, and owns the arrays that they point to.
class OPKIT_IMAGE_LOCAL ExportedOp : public RefCounted {
 public:
  OPKIT_COLD explicit ExportedOp(FunctionRecord record)
      : record_(std::move(record)),
        kernels_(record_->devices.size()),
        inplace_(2 * record_->inplace.size()),
        parameters_(record_->attributes.size() + record_->inputs.size() + record_->outputs.size()),
        parameter_pointers_(parameters_.size()) {
    FunctionOpRecord& from = *record_;
    opkit_op& op = from.abi;
    op.size = sizeof op;
    op.name = from.name.c_str();
    op.doc = from.doc.c_str();
    op.file = from.file;
    op.line = from.line;
    op.flags = from.flags;
    for (size_t k = 0; k < kernels_.size(); ++k) kernels_[k] = Kernel(from.devices[k]);
    op.num_kernels = kernels_.size();
    op.kernels = kernels_.data();
    for (size_t i = 0; i < from.inplace.size(); ++i) {
      inplace_[2 * i] = from.inplace[i].first;
      inplace_[2 * i + 1] = from.inplace[i].second;
    }
    op.num_inplace = from.inplace.size();
    op.inplace = inplace_.data();
    opkit_parameter* next = parameters_.data();
    for (const AttributeSchema& attribute : from.attributes) FillIn(*next++, attribute);
    for (const auto* list : {&from.inputs, &from.outputs})
      for (const ValueSchema& value : *list) FillIn(*next++, value);
    for (size_t p = 0; p < parameters_.size(); ++p) parameter_pointers_[p] = &parameters_[p];
    op.num_attrs = from.attributes.size();
    op.attrs = parameter_pointers_.data();
    op.num_inputs = from.inputs.size();
    op.inputs = op.attrs + op.num_attrs;
    op.num_outputs = from.outputs.size();
    op.outputs = op.inputs + op.num_inputs;
  }

 private:
  static const opkit_kernel* Kernel(FunctionDevice& device) {
    opkit_kernel& kernel = device.abi;
    kernel.size = sizeof kernel;
    kernel.device = device.name.c_str();
    kernel.backend = device.backend.empty() ? nullptr : device.backend.c_str();
    kernel.flags = device.create_state && device.shares_state ? OPKIT_KERNEL_STATEFUL : 0;
    return &kernel;
  }
  template <class From>
  void FillIn(opkit_parameter& parameter, const From& from) {
    parameter.size = sizeof parameter;
    parameter.name = from.name.c_str();
    parameter.doc = from.doc.c_str();
    parameter.type = -1;
    if constexpr (std::is_same_v<From, ValueSchema>) {
      for (const DType dtype : from.dtypes)
        if (!IsObject(dtype)) parameter.dtypes |= uint64_t{1} << static_cast<int>(dtype);
    } else {
      if (from.type) parameter.type = static_cast<int32_t>(*from.type);
      parameter.required = from.required;
      if (!from.default_value) return;
      auto value = MakeIntrusive<AbiAttributes>(Arguments{{from.name, *from.default_value}});
      parameter.default_value = *value->data();
      defaults_.push_back(std::move(value));
    }
  }

  FunctionRecord record_;
  std::vector<const opkit_kernel*> kernels_;
  std::vector<int32_t> inplace_;
  std::vector<opkit_parameter> parameters_;
  std::vector<const opkit_parameter*> parameter_pointers_;
  RefCountedList defaults_;  // list of AbiAttributes
};

OPKIT_COLD OPKIT_INLINE const opkit_op* ExportOp(FunctionRecord record, RefCountedList& owners) {
  const opkit_op* op = &record->abi;
  owners.push_back(MakeIntrusive<ExportedOp>(std::move(record)));
  return op;
}

OPKIT_INLINE void RefuseDescription(const std::string& library, const Text& what, const Text& mend,
                                    ErrorCode code) {
  const std::string advice = StrCat(mend);
  Throw(code, "library ", library, " ", what, advice.empty() ? "" : "; ", advice);
}
OPKIT_INLINE void CheckLibraryText(const std::string& library, const char* name, const Text& what,
                                   unsigned char least, const Text& mend) {
  constexpr size_t kLongestName = 255;
  for (size_t i = 0; name && name[i]; ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i >= kLongestName)
      RefuseDescription(library, StrCat("has ", what, " of more than ", kLongestName,
                                        " bytes: ", std::string(name, 32), "…"));
    if (c < least || c == 127)
      RefuseDescription(
          library, StrCat("has ", what, " that holds the character ", static_cast<int>(c)), mend);
  }
}

OPKIT_INLINE void CheckLibraryTextEnds(const std::string& library, const char* text,
                                       const Text& what) {
  if (text && ::strnlen(text, kMostTextBytes + 1) > kMostTextBytes)
    RefuseDescription(library, StrCat("has ", what, " of more than ", kMostTextBytes,
                                      " bytes, or without an end"));
}

// Reads one operator's description; throws if it is wrong.
class OpImport {
 public:
  OpImport(const opkit_op& op, const std::string& library) : op_(op), library_(library) {}

  FunctionRecord Read(uint64_t index) {
    if (!IsReadable(&op_))
      Refuse(StrCat("describes operator ", index, " in ", op_.size,
                    " bytes, where version 1.0 has ", kFirstBytes<opkit_op>),
             "fill in opkit_op.size with sizeof(opkit_op)");
    if (!op_.name || !*op_.name) Refuse(StrCat("gives operator ", index, " no name"));
    CheckLibraryText(library_, op_.name, "an operator's name", '!', "use letters, digits, _ . -");
    FunctionRecord record(new FunctionOpRecord);
    FunctionOpRecord& to = *record;
    to.name = op_.name;
    Text(op_.file, "a file's name");
    to.file = op_.file ? op_.file : "";
    to.line = op_.line;
    to.doc = Text(op_.doc, "a doc");
    to.library = library_;
    to.flags = op_.flags;
    if (op_.num_kernels == 0 || !op_.kernels)
      Refuse(StrCat("has ", who(), " without a kernel"),
             "give it a forward function: REGISTER_OP(…).setForward(f), or setCreateOpState(f)");
    CheckArray(op_.num_kernels, op_.kernels, "kernels");
    for (uint64_t k = 0; k < op_.num_kernels; ++k) AddKernel(k, to.devices);
    CheckArray(op_.num_inplace, op_.inplace, "in-place pairs");
    for (uint64_t i = 0; i < op_.num_inplace; ++i) {
      const int32_t input = op_.inplace[2 * i], output = op_.inplace[2 * i + 1];
      if (input < 0 || output < 0)
        Refuse(StrCat("has ", who(), " that may run in place from input ", input, " to output ",
                      output),
               "both count from 0");
      to.inplace.emplace_back(input, output);
    }
    AddParameters(op_.attrs, op_.num_attrs, "attributes", to.attributes);
    AddParameters(op_.inputs, op_.num_inputs, "inputs", to.inputs);
    AddParameters(op_.outputs, op_.num_outputs, "outputs", to.outputs);
    std::memcpy(&to.abi, &op_, (std::min)(op_.size, uint64_t{sizeof to.abi}));
    return record;
  }

 private:
  [[noreturn]] void Refuse(const Text& what, const Text& mend = {}) const {
    RefuseDescription(library_, what, mend);
  }
  std::string who() const { return StrCat("operator ", op_.name); }
  std::string Text(const char* text, const char* what) const {
    CheckLibraryTextEnds(library_, text, StrCat(who(), " with ", what));
    return text ? text : "";
  }

  // Throws for a damaged count, or for a missing array.
  template <class T>
  void CheckArray(uint64_t count, const T* array, const char* what) const {
    if (count > kMostParts)
      Refuse(StrCat("has ", who(), " with ", count, " ", what), StrCat("at most ", kMostParts));
    if (count > 0 && !array) Refuse(StrCat("has ", who(), " whose ", what, " are null"));
    if (!IsAligned(array)) Refuse(StrCat("has ", who(), " whose ", what, " are not aligned"));
  }
  void AddKernel(uint64_t k, std::vector<FunctionDevice>& devices) const {
    const opkit_kernel* kernel = op_.kernels[k];
    if (!IsReadable(kernel) || !kernel->device)
      Refuse(StrCat("has kernel ", k, " of operator ", op_.name,
                    " that is null, shorter than version 1.0's or without a device"));
    CheckLibraryText(library_, kernel->device, StrCat(who(), " with a kernel for a device"));
    if (!kernel->forward)
      Refuse(StrCat("has operator ", op_.name, " without a forward function for ", kernel->device),
             StrCat("REGISTER_OP(", op_.name, ").setForward(f, \"", kernel->device,
                    "\"), or setCreateOpState(f, \"", kernel->device, "\")"));
    const int type = DeviceTypeFromName(kernel->device);
    if (type < 0)
      Refuse(StrCat("has a kernel of operator ", op_.name, " for \"", kernel->device,
                    "\", which is no device type of this program"),
             "\"cpu\", \"gpu\" and \"cpu_stream\" are");
    const char* const backend =
        OPKIT_ABI_HAS(kernel, backend) && kernel->backend ? kernel->backend : "";
    CheckLibraryText(library_, backend, StrCat(who(), " with a kernel of a backend"));
    for (const FunctionDevice& other : devices)
      if (other.type == static_cast<DeviceType>(type) && other.backend == backend)
        Refuse(StrCat("has two kernels of operator ", op_.name, " for ", kernel->device,
                      *backend ? " of the backend " : "", backend));
    FunctionDevice& device = devices.emplace_back();
    device.name = kernel->device;
    device.backend = backend;
    device.type = static_cast<DeviceType>(type);
    device.shares_state = kernel->flags & OPKIT_KERNEL_STATEFUL;
    std::memcpy(&device.abi, kernel, (std::min)(kernel->size, uint64_t{sizeof device.abi}));
  }
  void AddParameters(const opkit_parameter* const* parameters, uint64_t count, const char* what,
                     auto& list) const {
    CheckArray(count, parameters, what);
    NameIndex seen;
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_parameter* one = parameters[i];
      if (!IsReadable(one))
        Refuse(StrCat("has ", who(), " of whose ", what, " number ", i,
                      " is null or shorter than version 1.0's"));
      if (!one->name || !*one->name)
        Refuse(StrCat("has ", who(), " of whose ", what, " number ", i, " has no name"));
      CheckLibraryText(library_, one->name, StrCat(who(), " with a name among its ", what));
      if (Index(seen.Add(one->name)) < i)
        Refuse(StrCat("has ", who(), " with two ", what, " named '", one->name, "'"));
      const std::string whose = StrCat("has ", who(), " whose '", one->name, "' has ");
      if (one->type < -1 || one->type > OPKIT_ATTR_TENSORS)
        Refuse(StrCat(whose, "the type ", one->type, ", which does not exist"));
      const opkit_attr* value = one->default_value;
      if (const std::string problem = value ? ProblemOfAttr(value) : ""; !problem.empty())
        Refuse(StrCat(whose, "a default that ", problem));
      if (value && one->type >= 0 && value->type != one->type)
        Refuse(StrCat(whose, "a default of the type ", value->type, ", but the type ", one->type));
      auto& to = list.emplace_back();
      to.name = one->name;
      to.doc = Text(one->doc, "a doc");
      if constexpr (requires { to.dtypes; }) {
        for (int dtype = 1; dtype < kNumDTypes; ++dtype)
          if (one->dtypes >> dtype & 1 && !IsObject(static_cast<DType>(dtype)))
            to.dtypes.push_back(static_cast<DType>(dtype));
      } else {
        to.required = one->required != 0;
        if (one->type >= 0) to.type = static_cast<AttributeType>(one->type);
        if (value) to.default_value = ArgumentsOfAbi(&value, 1).begin()->value;
      }
    }
  }

  const opkit_op& op_;
  const std::string& library_;
};

OPKIT_INLINE FunctionRecord ImportOp(const opkit_op* op, uint64_t index,
                                     const std::string& library) {
  if (!op) RefuseDescription(library, StrCat("has a null pointer for operator ", index));
  if (!IsAligned(op))
    RefuseDescription(library,
                      StrCat("describes operator ", index, " at an address that is not aligned"));
  return OpImport(*op, library).Read(index);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_OP_CONVERSION_IPP_

// ---- opkit/base/algorithm.hpp
#ifdef OPKIT_OPKIT_HPP_
// Searching and stable sorting of vectors, for code off the hot paths; they compile fast. std::sort
// and std::stable_sort are compiled again for every item type and comparison, about 3 KB each; the
// sort here is compiled once. The concepts of std::ranges cost a unit some milliseconds for every
// searched type.
#ifndef OPKIT_BASE_ALGORITHM_HPP_
#define OPKIT_BASE_ALGORITHM_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if the container holds the value.
template <class Container, class T>
bool Contains(const Container& values, const T& value) {
  for (const auto& one : values)
    if (one == value) return true;
  return false;
}

// Returns the numbers 0 to count - 1, sorted by before(a, b); equal ones keep their order. A merge
// sort: about count * log2(count) indirect calls, and scratch memory for `count` numbers.
std::vector<int> SortedOrder(size_t count, FunctionRef<bool(int a, int b)> before);

// Sorts the items by before(item, other); equal items keep their order. Moves each item at most
// twice.
template <class T, class Before>
void StableSort(std::vector<T>& items, Before before) {
  std::vector<int> order = SortedOrder(items.size(), [&](int a, int b) {
    return before(std::as_const(items[Index(a)]), std::as_const(items[Index(b)]));
  });
  for (size_t first = 0; first < order.size(); ++first) {
    if (Index(order[first]) == first) continue;
    T held = std::move(items[first]);
    size_t hole = first;
    for (size_t next; (next = Index(order[hole])) != first; hole = next) {
      items[hole] = std::move(items[next]);
      order[hole] = static_cast<int>(hole);
    }
    items[hole] = std::move(held);
    order[hole] = static_cast<int>(hole);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_ALGORITHM_HPP_
#endif

// ---- opkit/core/layout_hooks.hpp
#ifdef OPKIT_OPKIT_HPP_
// Hooks into the registry of layouts, for code that exchanges layouts with another image. A program
// that registers no layout does not need the registry.
#ifndef OPKIT_CORE_LAYOUT_HOOKS_HPP_
#define OPKIT_CORE_LAYOUT_HOOKS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A layout other than the standard one.
struct RegisteredLayout {
  LayoutId id;
  std::string name;
  bool has_descriptors;
  double ns_per_byte;
};
// A direct converter between two layouts, neither of which is the standard layout.
struct LayoutPair {
  LayoutId from, to;
  double ns_per_byte;
};
// Functions of core/layout_registry.hpp. The hooks are empty until the registry is used; until then
// only the standard layout is registered.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::vector<RegisteredLayout>()> g_registered_layouts{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<std::vector<LayoutPair>()> g_direct_converters{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<LayoutId(std::string_view)> g_find_layout{kOtherLayout,
                                                                                  kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(LayoutId)> g_is_registered_layout{kOtherLayout,
                                                                               kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<const char*(LayoutId)> g_layout_name_pointer{kOtherLayout,
                                                                                     kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<int64_t(const Layout&, const Shape&, DType)> g_layout_bytes{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Tensor&, Tensor&)> g_convert_directly{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_layout_registry{kOtherLayout,
                                                                         kLayoutHeader};

}}}  // namespace opkit::detail

#endif  // OPKIT_CORE_LAYOUT_HOOKS_HPP_
#endif

// ---- opkit/op/boundary/convert/abi_config.hpp
#ifdef OPKIT_OPKIT_HPP_
// Kernel configurations, and tensors in layouts, across the ABI. Layouts are passed by name,
// because each image has its own numbers for them.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An opkit_config with the arrays that it points to. Throws kUnsupported for a layout with a
// descriptor, which only its own image knows.
class OPKIT_IMAGE_LOCAL AbiConfig {
 public:
  AbiConfig(const KernelConfig& config, size_t num_inputs, size_t num_outputs);
  AbiConfig(const AbiConfig&) = delete;
  const opkit_config& config() const { return config_; }

 private:
  opkit_config config_{};
  std::vector<const char*> inputs_, outputs_;
  std::vector<int32_t> inplace_;
  const std::string variant_;
};

// Reads a configuration. Throws kInvalidArgument for a struct that is no valid configuration;
// kNotFound for a layout that this image does not know.
OPKIT_IMAGE_LOCAL KernelConfig ConfigOfAbi(const opkit_config* config, size_t num_inputs,
                                           size_t num_outputs);
// Returns the layout of that name; the standard layout for null.
OPKIT_IMAGE_LOCAL Layout LayoutOfAbi(const char* name);
// Like TensorOfView, for a tensor in a layout; null is the standard layout.
OPKIT_IMAGE_LOCAL Tensor TensorInLayout(const opkit_tensor& view, const char* layout);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_CONFIG_HPP_
#endif

// ---- opkit/plugin/export/impl/export_layouts.ipp
#ifdef OPKIT_OPKIT_HPP_
// Describes the layouts and devices of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts one view to another; a null layout is the standard one.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ConvertView(const opkit_tensor* from,
                                                     const char* from_layout,
                                                     const opkit_tensor* to,
                                                     const char* to_layout) {
  Tensor target = TensorInLayout(*to, to_layout);
  g_convert_directly(TensorInLayout(*from, from_layout), target);
}

// An opkit_layout for a registered layout.
struct OPKIT_IMAGE_LOCAL ExportedLayout : RefCounted {
  explicit ExportedLayout(RegisteredLayout exported) : layout(std::move(exported)) {
    abi.size = sizeof abi;
    abi.name = layout.name.c_str();
    abi.bytes = &GuardBy<ExportedLayout, &ExportedLayout::Bytes>;
    abi.to_standard = &GuardBy<ExportedLayout, &ExportedLayout::ToStandard>;
    abi.from_standard = &GuardBy<ExportedLayout, &ExportedLayout::FromStandard>;
    abi.ns_per_byte = layout.ns_per_byte;
    abi.author = this;
  }
  void ToStandard(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, abi.name, to, nullptr);
  }
  void FromStandard(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, nullptr, to, abi.name);
  }
  void Bytes(int32_t dtype, int32_t rank, const int64_t* shape, int64_t* bytes) const {
    *bytes = g_layout_bytes(Layout{layout.id, {}}, Shape(Dims(shape, static_cast<size_t>(rank))),
                            static_cast<DType>(dtype));
  }
  const RegisteredLayout layout;
  opkit_layout abi{};
};

// An opkit_layout_converter for a registered direct converter.
struct OPKIT_IMAGE_LOCAL ExportedConverter : RefCounted {
  explicit ExportedConverter(const LayoutPair& pair) {
    abi.size = sizeof abi;
    abi.from = g_layout_name_pointer(pair.from);
    abi.to = g_layout_name_pointer(pair.to);
    abi.convert = &GuardBy<ExportedConverter, &ExportedConverter::Convert>;
    abi.ns_per_byte = pair.ns_per_byte;
    abi.author = this;
  }
  void Convert(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, abi.from, to, abi.to);
  }
  opkit_layout_converter abi{};
};

// An opkit_device for a registered device type.
struct OPKIT_IMAGE_LOCAL ExportedDevice : RefCounted {
  ExportedDevice(DeviceType number, std::string its_name)
      : type(number), name(std::move(its_name)) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.type = static_cast<int32_t>(type);
    abi.available = &GuardBy<ExportedDevice, &ExportedDevice::CheckAvailable>;
    abi.alloc = &GuardBy<ExportedDevice, &ExportedDevice::Allocate>;
    abi.free = &Free;
    abi.copy = &GuardBy<ExportedDevice, &ExportedDevice::Copy>;
    abi.author = this;
  }
  void CheckAvailable(int32_t index) const {
    if (const std::string why = WhyNoDevice({type, index}); !why.empty())
      Throw(ErrorCode::kUnsupported, why);
  }
  void Allocate(int32_t index, int64_t bytes, void** memory) const {
    *memory = GetAllocator(type).Allocate(bytes, index);
  }
  static void Free(const opkit_device* self, void* memory, int64_t bytes) {
    const DeviceType type = static_cast<const ExportedDevice*>(self->author)->type;
    if (Allocator* allocator = Allocators()[type].load()) allocator->Deallocate(memory, bytes);
  }
  void Copy(int32_t index, int32_t direction, void* to, const void* from, int64_t bytes) const {
    const Device here{type, index}, host{};
    const Device source = direction == OPKIT_HOST_TO_DEVICE ? host : here;
    const Device target = direction == OPKIT_DEVICE_TO_HOST ? host : here;
    const CopyFunction copy = FindCopy(source.type, target.type);
    if (!copy)
      Throw(ErrorCode::kUnsupported, "no copy from ", source, " to ", target,
            " is registered in the library; call RegisterCopy");
    copy(to, target, from, source, bytes, nullptr);
  }
  const DeviceType type;
  const std::string name;
  opkit_device abi{};
};

OPKIT_COLD OPKIT_INLINE void AddRegisteredLayouts(LibraryContents& contents) {
  if (IsProgramHost(g_host)) return;
  if (g_registered_layouts) {
    std::vector<LayoutId> exported;
    for (RegisteredLayout& one : g_registered_layouts()) {
      if (one.has_descriptors) continue;
      exported.push_back(one.id);
      AddExported<ExportedLayout>(contents, contents.layouts, std::move(one));
    }
    for (const LayoutPair& one : g_direct_converters())
      if (Contains(exported, one.from) && Contains(exported, one.to))
        AddExported<ExportedConverter>(contents, contents.layout_converters, one);
  }
  DeviceTypeRegistry& types = DeviceTypes();
  MutexLock lock(types.mutex);
  for (const auto& one : types.entries)
    if (one.type >= DeviceType::kFirstUserDevice && one.info.memory == one.type)
      AddExported<ExportedDevice>(contents, contents.devices, one.type, one.info.name);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_
#endif

// ---- opkit/device/native_stream.hpp
#ifdef OPKIT_OPKIT_HPP_
// Native streams that another image or the author has created: each backend with native streams
// registers a function by which its contexts issue work on a given stream. Libraries use it to run
// their operators on their host's streams; invoked operators use it to run on their caller's
// stream.
#ifndef OPKIT_DEVICE_NATIVE_STREAM_HPP_
#define OPKIT_DEVICE_NATIVE_STREAM_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Calls issue(), whose contexts on `device` issue their work on `stream`, whatever stream id they
// are switched to.
using NativeStreamFunction = void (*)(Device device, void* stream, FunctionRef<void()> issue);

namespace detail {
OPKIT_IMAGE_LOCAL inline constinit DeviceTable<NativeStreamFunction> g_native_streams;
}

// Registers a device with native streams, by one line in its header. Thread-safe. Error
// (kOutOfRange) for a type outside of 0 to 127.
//   [[maybe_unused]] inline const bool kNpuStreams = RegisterNativeStreams(kNpu,
//                                                                          &IssueOnNpuStream);
OPKIT_IMAGE_LOCAL inline bool RegisterNativeStreams(DeviceType type, NativeStreamFunction issue) {
  detail::g_native_streams[type].store(issue, std::memory_order_release);
  return true;
}
// Returns null if no header of the type's backend was included.
OPKIT_IMAGE_LOCAL inline NativeStreamFunction FindNativeStreams(DeviceType type) {
  return detail::g_native_streams.Find(type);
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_NATIVE_STREAM_HPP_
#endif

// ---- opkit/op/gradient/gradient_hook.hpp
#ifdef OPKIT_OPKIT_HPP_
// Hooks into the registry of gradients, for code that must also link without the registry. The
// hooks stay empty if a program registers no gradient.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if a gradient is registered for an operator, or a declaration that it has no gradient.
// RegisterGradient fills the hook.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_has_gradient{
    "a gradient", "opkit/op/gradient/gradient.hpp"};
// Frees a library's registry of gradients when the library is unloaded. The registry fills the
// hook.
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_gradients{
    "a gradient", "opkit/op/gradient/gradient.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_GRADIENT_GRADIENT_HOOK_HPP_
#endif

// ---- opkit/plugin/export/host_memory.hpp
#ifdef OPKIT_OPKIT_HPP_
// HostMemory: takes the memory of a library's tensors from its host's allocators. Included by
// definitions.
#ifndef OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_
#define OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An allocator of this image that calls the host's current allocator.
class OPKIT_IMAGE_LOCAL HostMemory final : public Allocator {
 public:
  HostMemory(DeviceType type, Allocator& own) : type_(type), own_(own) {}
  const char* name() const override { return own_.name(); }

  // Replaces this image's allocators. Changes nothing if the program exports its symbols, so that
  // both images share one table of allocators.
  static void Use() {
    if (!OPKIT_ABI_HAS(g_host, span_begin)) return;
    void *memory = nullptr, *owner = nullptr;
    if (g_host->allocate(OPKIT_CPU, 0, kAlignment, &memory, &owner) != OPKIT_OK) return;
    g_host->deallocate(owner, memory, kAlignment);
    if (owner == &GetAllocator(DeviceType::kCPU)) return;
    constexpr DeviceType kTypes[] = {DeviceType::kCPU, DeviceType::kGPU};
    alignas(HostMemory) static unsigned char rooms[std::size(kTypes)][sizeof(HostMemory)];
    static bool used = false;
    if (std::exchange(used, true)) return;
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if (Allocator* const own = Allocators()[kTypes[i]].load())
        SetAllocator(kTypes[i], new (rooms[i]) HostMemory(kTypes[i], *own));
  }

 protected:
  void* DoAllocate(int64_t bytes) override { return DoAllocateOn(0, bytes); }
  void* DoAllocateOn(int32_t index, int64_t bytes) override {
    void *memory = nullptr, *owner = nullptr;
    const opkit_status status =
        g_host->allocate(static_cast<int32_t>(type_), index, bytes, &memory, &owner);
    if (status == OPKIT_UNSUPPORTED)  // the host has no such memory
      memory = own_.Allocate(bytes, index);
    else if (status == OPKIT_OUT_OF_MEMORY)
      return nullptr;
    else
      AcceptAnswer(status);
    void* none = nullptr;
    if (owner && (usual_.compare_exchange_strong(none, owner) || none == owner)) return memory;
    try {
      MutexLock lock(mutex_);
      others_.emplace_back(memory, owner);
      ++num_others_;
      return memory;
    } catch (...) {  // out of memory: the owner cannot be stored
      Free(owner, memory, bytes);
      return nullptr;
    }
  }
  void DoDeallocate(void* data, int64_t bytes) noexcept override {
    void* owner = usual_.load();
    if (num_others_.load() > 0) owner = Forget(data, owner);
    Free(owner, data, bytes);
  }

 private:
  void Free(void* owner, void* memory, int64_t bytes) noexcept {
    owner ? g_host->deallocate(owner, memory, bytes) : own_.Deallocate(memory, bytes);
  }
  // Removes the entry of `data` and returns its owner. If there is no entry, returns `usual`.
  void* Forget(const void* data, void* usual) {
    MutexLock lock(mutex_);
    for (auto& one : others_) {
      if (one.first != data) continue;
      void* const owner = one.second;
      one = others_.back();
      others_.pop_back();
      if (--num_others_ == 0) std::vector<std::pair<void*, void*>>().swap(others_);
      return owner;
    }
    return usual;
  }

  const DeviceType type_;
  Allocator& own_;
  std::atomic<void*> usual_{nullptr};  // the first owner, which nearly all memory has
  Mutex mutex_;                        // guards others_
  std::vector<std::pair<void*, void*>> others_;
  std::atomic<int64_t> num_others_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_HOST_MEMORY_HPP_
#endif

// ---- opkit/plugin/export/host_spans.hpp
#ifdef OPKIT_OPKIT_HPP_
// HostSpans: adds the spans of a library to the profile that its host records. Included by
// definitions.
#ifndef OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_
#define OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The span sink of a library. Sends to the host the spans that ProfileScope and Invoke open during
// runs of the library's operators. Each thread has a list of its open spans.
class OPKIT_IMAGE_LOCAL HostSpans final : public SpanSink {
 public:
  static void Use() { g_image_span_sink = &g_sink; }
  // Installs the sink if the host records, else removes it. True if the host records.
  static bool Follow() {
    static constinit HostSpans spans;
    SpanSink* const wanted =
        OPKIT_ABI_HAS(g_host, span_begin) && g_host->is_profiling() ? &spans : nullptr;
    // Relaxed, as in CurrentSpanSink: a thread that sees the sink late records later.
    if (CurrentSpanSink() != wanted) g_sink.store(wanted, std::memory_order_relaxed);
    return wanted;
  }
  // Marks the next span of this thread with the operator's name: the host has already opened this
  // span.
  class Known {
   public:
    explicit Known(const std::string& op) : name_(t_known, InternName(op)) {}

   private:
    const ScopedValue<uint32_t> name_;
  };

  void Open(Invocation& now, SpanNames names, const Device*, bool adopted) noexcept override {
    if (t_known != 0 && names.name == t_known) {
      t_known = 0;
      return Pass();
    }
    if (adopted) return Pass();
    auto* const span = new (std::nothrow) Span{t_span};
    if (!span) return Pass();
    t_span = span;
    // The host gives the span an identity, as a child of the current identity. If both images share
    // the variable of the current identity, `now` is this variable: reset it to the parent first.
    now.id = now.parent;
    try {
      g_host->span_begin(static_cast<int32_t>(now.kind), InternedName(names.name).c_str(),
                         InternedName(names.node).c_str(), &span->scope);
      return;
    } catch (...) {  // no memory for the names
    }
    t_span = span->outer;
    delete span;
    Pass();
  }
  void Close() noexcept override {
    int64_t& passed = Passed();
    if (passed > 0) return static_cast<void>(--passed);
    Span* const span = t_span;
    t_span = span->outer;
    g_host->scope_end(&span->scope);
    delete span;
  }
  void Completed(uint64_t) noexcept override {}
  void Pushed(const Invocation&, SpanNames) noexcept override {}

 private:
  struct Span {
    Span* outer;
    int64_t passed = 0;  // number of open spans inside this span that were not sent to the host
    opkit_scope scope{};
  };
  static int64_t& Passed() { return t_span ? t_span->passed : t_passed; }
  static void Pass() { ++Passed(); }

  inline static constinit std::atomic<SpanSink*> g_sink{nullptr};
  inline static constinit thread_local Span* t_span = nullptr;
  inline static constinit thread_local int64_t t_passed = 0;
  inline static constinit thread_local uint32_t t_known = 0;  // an interned name
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_
#endif

// ---- opkit/op/boundary/convert/abi_node.hpp
#ifdef OPKIT_OPKIT_HPP_
// Nodes and the types of their values, as opkit_abi.h passes them to an operator's functions. Only
// definitions include this header. graph/abi_graph.hpp has the graphs that nodes carry.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_
#define OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Hooks that graph/abi_graph.hpp fills. The first adds a node's graphs to the list of their owners
// and to the list of pointers; the second copies a graph.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const OperatorDef&, RefCountedList&,
                                             std::vector<const opkit_graph*>&)>
    g_add_abi_graphs{"the node of an operator that carries graphs", "opkit/partition.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<const SubgraphBase>(const opkit_graph&)>
    g_subgraph_of_abi{"a node that carries graphs, in a library,", "opkit/graph.hpp"};

// Converts extents: a known extent, -1 for unknown, or a lower number for a symbol. A host uses the
// numbers of interned names, so that a node's own graph and the graph around the node use the same
// numbers. A library names a symbol by its number, "s12".
inline constexpr const char* kAbiSymbol = "s";
OPKIT_IMAGE_LOCAL inline int64_t AbiExtent(const Dim& dim) {
  if (dim.is_known()) return dim.value();
  if (!dim.is_symbol()) return -1;
  const std::string& name = dim.symbol();
  if (!IsLoadedLibrary()) return -1 - int64_t{InternName(name)};
  if (name.size() < 2 || name[0] != *kAbiSymbol) return -1;
  int64_t number = 0;
  for (const char c : std::string_view(name).substr(1)) {
    if (c < '0' || c > '9' || number > UINT32_MAX) return -1;
    number = 10 * number + (c - '0');
  }
  return -2 - number;
}
OPKIT_IMAGE_LOCAL inline Dim DimOfAbi(int64_t extent) {
  if (extent >= 0) return Dim(extent);
  if (extent == -1) return {};
  if (IsLoadedLibrary()) return Sym(StrCat(kAbiSymbol, -2 - extent));
  const int64_t number = extent < -int64_t{UINT32_MAX} ? 0 : -1 - extent;
  const std::string name = InternedName(static_cast<uint32_t>(number));
  return name.empty() ? Dim() : Sym(name);
}

// An opkit_node with the data that it points to.
class AbiNode : public RefCounted {
 public:
  explicit AbiNode(const OperatorDef& def) : def_(def), attributes_(def_.args()) {
    node_.size = sizeof node_;
    node_.op = def_.type().c_str();
    node_.name = def_.name().c_str();
    node_.device_type = static_cast<int32_t>(def_.device().type);
    node_.device_index = def_.device().index;
    Point(def_.inputs(), inputs_);
    Put(inputs_, node_.num_inputs, node_.inputs);
    Point(def_.outputs(), outputs_);
    Put(outputs_, node_.num_outputs, node_.outputs);
    Put(attributes_, node_.num_attrs, node_.attrs);
    if (!def_.subgraphs().empty()) g_add_abi_graphs(def_, graphs_, graph_pointers_);
    Put(graph_pointers_, node_.num_graphs, node_.graphs);
    Point(def_.control_inputs(), control_inputs_);
    Put(control_inputs_, node_.num_control_inputs, node_.control_inputs);
    node_.backend = def_.backends().c_str();
    node_.is_gradient = def_.is_gradient_op();
  }
  const opkit_node& node() const { return node_; }

 private:
  static void Point(const std::vector<std::string>& names, std::vector<const char*>& pointers) {
    for (const std::string& name : names) pointers.push_back(name.c_str());
  }

  static void Put(const auto& list, uint64_t& count, auto& pointer) {
    count = list.size();
    pointer = list.data();
  }
  const OperatorDef def_;
  AbiAttributes attributes_;
  std::vector<const char*> inputs_, outputs_, control_inputs_;
  RefCountedList graphs_;  // list of AbiGraph
  std::vector<const opkit_graph*> graph_pointers_;
  opkit_node node_{};
};

// The types of values as an array of opkit_value, which a library refines.
class AbiValues {
 public:
  // Adds the symbols of these values to `symbols`; a library's result may use no others.
  AbiValues(std::span<const TensorInfo> infos, std::vector<std::string>& symbols)
      : symbols_(symbols), values_(infos.size()) {
    for (size_t i = 0; i < infos.size(); ++i) {
      const TensorInfo& info = infos[i];
      opkit_value& value = values_[i];
      value.size = sizeof value;
      value.present = 1;
      value.dtype = info.dtype == DType::kUndefined ? -1 : static_cast<int32_t>(info.dtype);
      value.rank = -1;
      if (!info.layout.descriptor && g_layout_name_pointer)
        value.layout = g_layout_name_pointer(info.layout.id);
      if (!info.shape.has_rank()) continue;
      if (info.shape.rank() > OPKIT_MAX_RANK)
        Throw(ErrorCode::kUnsupported, "a value of ", info.shape.rank(),
              " axes cannot be passed to a library; ", OPKIT_MAX_RANK, " are the most");
      value.rank = info.shape.rank();
      for (int axis = 0; axis < value.rank; ++axis) {
        const Dim& dim = info.shape[axis];
        value.dims[axis] = AbiExtent(dim);
        if (dim.is_symbol()) symbols_.push_back(dim.symbol());
      }
    }
  }
  AbiValues(const AbiValues&) = delete;

  opkit_value* data() { return values_.data(); }
  const opkit_value& operator[](size_t i) const { return values_[i]; }
  // Prepares the inputs of a node: marks the left-out inputs, and passes constants.
  void SetInputs(const OperatorDef& def, std::span<const TensorInfo> infos) {
    for (size_t i = 0; i < infos.size(); ++i) {
      values_[i].present = !def.inputs()[i].empty();
      if (infos[i].constant) SetConstant(i, *infos[i].constant);
    }
  }
  void SetConstant(size_t i, const Tensor& tensor) {
    constants_.push_back(MakeIntrusive<AbiAttributes>(Arguments{{"constant", tensor}}));
    values_[i].constant = (*constants_.back()->data())->tensors[0];
  }
  DType dtype(size_t i, const char* what) const {
    const int32_t dtype = values_[i].dtype;
    if (dtype < -1 || dtype >= kNumPlainDTypes)
      Throw(ErrorCode::kInvalidArgument, "it says dtype ", dtype, " for ", what, " ", i,
            ", which does not exist");
    return dtype < 0 ? DType::kUndefined : static_cast<DType>(dtype);
  }
  SymbolicShape shape(size_t i, const char* what) const {
    const opkit_value& value = values_[i];
    if (value.rank < -1 || value.rank > OPKIT_MAX_RANK)
      Throw(ErrorCode::kInvalidArgument, "it says rank ", value.rank, " for ", what, " ", i);
    if (value.rank < 0) return {};
    std::vector<Dim> dims;
    for (int axis = 0; axis < value.rank; ++axis) {
      const int64_t extent = value.dims[axis];
      dims.push_back(DimOfAbi(extent));
      if (extent < -1 && !IsKnownSymbol(dims.back()))
        Throw(ErrorCode::kInvalidArgument, "it says extent ", extent, " on axis ", axis, " of ",
              what, " ", i, "; -1 is unknown");
    }
    return SymbolicShape(std::move(dims));
  }

 private:
  bool IsKnownSymbol(const Dim& dim) const {
    for (const std::string& symbol : symbols_)
      if (dim.is_symbol() && dim.symbol() == symbol) return true;
    return false;
  }

  std::vector<std::string>& symbols_;
  std::vector<opkit_value> values_;
  std::vector<IntrusivePtr<AbiAttributes>> constants_;
};

// A node and the types of its values, in the form of opkit_abi.h.
struct AbiQuery {
  AbiQuery(const OperatorDef& def, std::span<const TensorInfo> in, std::span<const TensorInfo> out)
      : node(def), inputs(in, symbols), outputs(out, symbols) {
    inputs.SetInputs(def, in);
  }
  explicit AbiQuery(const KernelQuery& query) : AbiQuery(query.def, query.inputs, query.outputs) {}
  const AbiNode node;
  std::vector<std::string> symbols;
  AbiValues inputs, outputs;
};
// Refines the facts of `context` by the other image's values, which `read` converts.
template <class Read>
void RefineBy(InferenceContext& context, const AbiValues& inputs, const AbiValues& outputs,
              Read read) {
  for (int i = 0; i < context.num_inputs(); ++i)
    if (context.HasInput(i)) {
      const TensorInfo info = read(inputs, Index(i), "input");
      context.SetInput(i, info.dtype, info.shape);
    }
  for (int o = 0; o < context.num_outputs(); ++o) {
    const TensorInfo info = read(outputs, Index(o), "output");
    context.SetOutput(o, info.dtype, info.shape);
  }
}

// Copies an array of names of the other image. Throws kInvalidArgument for a damaged one.
inline std::vector<std::string> NamesOfAbi(const char* const* names, uint64_t count,
                                           const char* what, uint64_t most = kMostParts) {
  if (count > most || (count > 0 && !IsUsable(names)))
    Throw(ErrorCode::kInvalidArgument, "a node has ", count, " ", what,
          names ? "" : ", which are null");
  std::vector<std::string> read;
  for (uint64_t i = 0; i < count; ++i) {
    if (!names[i])
      Throw(ErrorCode::kInvalidArgument, "a node's ", what, " have a null name at ", i);
    read.push_back(TextOfAbi(names[i]));
  }
  return read;
}

// Copies a node. Throws kInvalidArgument for a struct that is no valid node.
inline OperatorDef DefinitionOfAbi(const opkit_node* from) {
  if (!IsReadable(from) || !from->op || from->num_graphs > kMostParts ||
      (from->num_graphs > 0 && !IsUsable(from->graphs)))
    Throw(ErrorCode::kInvalidArgument,
          "a node is null or shorter than version 1.0's, names no operator or has graphs that are "
          "null or too many");
  const opkit_node& node = *from;
  OperatorDef def(TextOfAbi(node.op), NamesOfAbi(node.inputs, node.num_inputs, "inputs"),
                  NamesOfAbi(node.outputs, node.num_outputs, "outputs"),
                  ArgumentsOfAbi(node.attrs, node.num_attrs));
  if (node.name) def.Name(TextOfAbi(node.name));
  if (OPKIT_ABI_HAS(&node, is_gradient)) {
    for (std::string& name :
         NamesOfAbi(node.control_inputs, node.num_control_inputs, "control inputs"))
      def.ControlInput(std::move(name));
    if (node.backend) def.Backends(TextOfAbi(node.backend));
    def.IsGradientOp(node.is_gradient != 0);
  }
  def.Device({static_cast<DeviceType>(node.device_type), node.device_index});
  for (uint64_t i = 0; i < node.num_graphs; ++i) {
    if (!IsReadable(node.graphs[i]) || !node.graphs[i]->name)
      Throw(ErrorCode::kInvalidArgument, "graph ", i, " of a node ", def.type(),
            " is null, shorter than version 1.0's or has no name");
    def.Subgraph(TextOfAbi(node.graphs[i]->name), g_subgraph_of_abi(*node.graphs[i]));
  }
  return def;
}

// Reads the dtype and shape of an opkit_value. A dtype or rank that does not exist in this image is
// unknown for a library; in a program it throws kInvalidArgument.
inline TensorInfo InfoOfAbi(const opkit_value& value) {
  TensorInfo info;
  if ((value.dtype < -1 || value.dtype >= kNumPlainDTypes || value.rank < -1 ||
       value.rank > OPKIT_MAX_RANK) &&
      !IsLoadedLibrary())
    Throw(ErrorCode::kInvalidArgument, "a value of a library has the dtype ", value.dtype,
          " and the rank ", value.rank);
  if (value.dtype > 0 && value.dtype < kNumPlainDTypes)
    info.dtype = static_cast<DType>(value.dtype);
  if (value.rank < 0 || value.rank > OPKIT_MAX_RANK) return info;
  std::vector<Dim> dims;
  for (int axis = 0; axis < value.rank; ++axis) dims.push_back(DimOfAbi(value.dims[axis]));
  info.shape = SymbolicShape(std::move(dims));
  return info;
}

// The other image's array of values for inference in this image, which can store its results there.
// Throws kInvalidArgument for an array that is not valid.
class ValuesOfAbi {
 public:
  ValuesOfAbi(const opkit_value* values, uint64_t count, bool with_shapes) {
    if (count > kMostParts || (count > 0 && !IsReadable(values)))
      Throw(ErrorCode::kInvalidArgument, "a library has ", count,
            " values that are null or shorter than version 1.0's");
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
      TensorInfo& info = infos_.emplace_back(InfoOfAbi(value));
      if (!with_shapes) {
        info.shape = {};
        continue;
      }
      if (OPKIT_ABI_HAS(&value, layout) && value.layout) info.layout = KnownLayout(value.layout);
      if (value.constant) info.constant = &constants_.emplace_back(TensorOfView(*value.constant));
    }
  }
  ValuesOfAbi(const ValuesOfAbi&) = delete;
  const std::vector<TensorInfo>& infos() const { return infos_; }

  static void StoreTypes(const std::vector<TensorInfo>& infos, opkit_value* values) {
    for (size_t i = 0; i < infos.size(); ++i)
      if (infos[i].dtype != DType::kUndefined)
        opkit_value_at(values, i)->dtype = static_cast<int32_t>(infos[i].dtype);
  }
  static void StoreShapes(const std::vector<TensorInfo>& infos, opkit_value* values) {
    for (size_t i = 0; i < infos.size(); ++i) {
      const SymbolicShape& shape = infos[i].shape;
      if (!shape.has_rank()) continue;
      if (shape.rank() > OPKIT_MAX_RANK)
        Throw(ErrorCode::kOutOfRange, "inference gives a value ", shape.rank(), " axes; ",
              OPKIT_MAX_RANK, " are the most");
      opkit_value& value = *opkit_value_at(values, i);
      const bool same_rank = value.rank == shape.rank();
      value.rank = shape.rank();
      for (int axis = 0; axis < value.rank; ++axis) {
        const int64_t extent = AbiExtent(shape[axis]);
        if (extent != -1 || !same_rank) value.dims[axis] = extent;
      }
    }
  }

 private:
  // Returns the standard layout for a layout that only the other image knows.
  static Layout KnownLayout(const char* its_name) {
    const std::string name = TextOfAbi(its_name);
    if (g_registered_layouts)
      for (const RegisteredLayout& known : g_registered_layouts())
        if (known.name == name) return Layout{known.id, {}};
    return {};
  }
  std::vector<TensorInfo> infos_;
  std::list<Tensor> constants_;  // infos_ has pointers to these
};

// A copy of the other image's node and of the types of its values.
struct NodeOfAbi {
  NodeOfAbi(const opkit_node* node, const opkit_value* in, const opkit_value* out)
      : def(DefinitionOfAbi(node)),
        inputs(in, node->num_inputs, true),
        outputs(out, node->num_outputs, true) {}
  KernelQuery query() const { return {def, inputs.infos(), outputs.infos()}; }
  const OperatorDef def;
  const ValuesOfAbi inputs, outputs;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_ABI_NODE_HPP_
#endif

// ---- opkit/op/fusion.hpp
#ifdef OPKIT_OPKIT_HPP_
// FusionQuery and FusedNode: the argument and the result of a kernel's Fuse, by which a backend
// runs two nodes of a graph as one.
#ifndef OPKIT_OP_FUSION_HPP_
#define OPKIT_OP_FUSION_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A node and the next node, each with its selected configuration. The next node is the only reader
// of the node's output 0.
struct FusionQuery {
  KernelQuery node;
  const KernelConfig& config;
  KernelQuery next;
  const KernelConfig& next_config;
  size_t read;  // index of the input of `next` that is the node's output 0
};
// The fusion of the two nodes: a node with the outputs of `next` and inputs of both, for a kernel
// of the same backend, and its configuration. Kernels are not selected again, so the layouts must
// be those that were selected for the two nodes.
struct FusedNode {
  OperatorDef def;
  KernelConfig config;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUSION_HPP_
#endif

// ---- opkit/op/call/bound_operator.hpp
#ifdef OPKIT_OPKIT_HPP_
// BoundOperator: an operator in its own workspace. The caller binds memory to its inputs and
// outputs before each run. A library runs its class operators this way for its host
// (plugin/export/export_operators.hpp).
#ifndef OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
#define OPKIT_OP_CALL_BOUND_OPERATOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operator, its workspace, and the functions that use them. Function pointers instead of virtual
// functions: g++ compiles every override that a program might reach by a virtual call.
struct BoundOperator {
  IntrusivePtr<RefCounted> bound;  // workspace and operator; first argument of the functions
  // Returns the tensor object of an input or output, to be set before a run; null if the node
  // leaves it out. An output with the name of an input shares the input's tensor object.
  Tensor* (*input)(RefCounted& bound, size_t i) = nullptr;
  Tensor* (*output)(RefCounted& bound, size_t o) = nullptr;
  // Returns the output of the run; null if it is no tensor.
  const Tensor* (*result)(RefCounted& bound, size_t o) = nullptr;
  // Runs the operator; with `issue` returns once the work is issued. Throws the errors of
  // OperatorBase::Run and SetScratch.
  void (*run)(RefCounted& bound, void* scratch, int64_t scratch_bytes, bool issue) = nullptr;
};

// Makes the operator of a kernel, in a configuration that the kernel proposed or in none. Throws
// the errors of CreateOperator. A library with only typed CPU operators does not need this hook.
// The registration of any other kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<BoundOperator(const Kernel& kernel, const OperatorDef& def,
                                                      const KernelConfig* config)>
    g_bind_operator{"a kernel that is no typed operator's", "opkit/op/registration.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_BOUND_OPERATOR_HPP_
#endif

// ---- opkit/op/call/direct_call.hpp
#ifdef OPKIT_OPKIT_HPP_
// DirectCall: calls a typed operator's function on the caller's tensors, without a workspace and an
// operator. Inference, checks, errors and profile are the same as in a run of the operator.
#ifndef OPKIT_OP_CALL_DIRECT_CALL_HPP_
#define OPKIT_OP_CALL_DIRECT_CALL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A typed kernel for CPUContext that is called directly for one node.
class DirectCall {
 public:
  // Throws the errors of TypedCall, with the node and the kernel as context.
  DirectCall(const Kernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // Runs like ResolvedCall::run; the work is done at return.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs);

 private:
  struct Finish;
  void Call(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  // Returns the input in the form that the function accepts: on this device, in the standard
  // layout, dense.
  const Tensor* Unusual(size_t i, const Tensor& input);
  // Returns the tensor for output o: the caller's tensor if it fits and writing to it overwrites no
  // input; otherwise a tensor in made_.
  const Tensor* Output(size_t o, std::span<const Tensor> inputs, const Tensor& callers,
                       const Shape& shape, DType dtype);
  // True if writing to the output would overwrite an earlier output or an input. Exception: an
  // input that the schema pairs with the output, if the function reads the input itself and not a
  // copy.
  bool Clobbers(size_t o, std::span<const Tensor> inputs, const Tensor& output) const;
  [[noreturn]] OPKIT_COLD void Fail(std::span<const Tensor> inputs) const;
  OPKIT_COLD void DescribeSpan() const noexcept;

  OperatorIdentity identity_;
  TypedCall call_;
  Device device_;  // the device whose memory the call reads
  std::vector<uint64_t> inplace_masks_;
  uint64_t mutated_inputs_;
  InferenceCache inference_;
  SpanNames span_names_;  // valid after the first recorded call
  // The tensors of the current call.
  std::vector<const Tensor*> inputs_;   // null for an input that is left out
  std::vector<Tensor> copies_;          // dense copies of inputs that are not dense
  std::vector<Tensor> made_;            // new tensors for outputs that do not fit
  std::vector<const Tensor*> outputs_;  // the caller's tensors, or tensors of made_
};

// Makes the call of a node whose only kernel on the device is a typed kernel for CPUContext;
// returns an empty call if there is another kernel. Throws kNotFound if there is no kernel;
// kUnsupported if its backend is unavailable; the constructor's errors.
OPKIT_IMAGE_LOCAL ResolvedCall MakeDirectCall(const OpSchema& schema, const OperatorDef& def);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_DIRECT_CALL_HPP_
#endif

// ---- opkit/plugin/export/impl/export_threads.ipp
#ifdef OPKIT_OPKIT_HPP_
// Runs the tasks and loops of a library's operators, and stores the host's call in which they run.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The thread that runs the tasks, but not the loops, of the library's operators. A second pool of
// threads would take CPUs from the host's pool. The thread ends before the library is unloaded.
struct ExportThreads {
  Mutex mutex;
  std::atomic<ThreadPool*> pool{nullptr};
  void (*finalize)() = nullptr;  // the author's function
  bool described = false;  // true once a host has read the library's description, until finalize
};
inline OPKIT_IMAGE_LOCAL constinit ExportThreads g_export_threads;
inline OPKIT_IMAGE_LOCAL ThreadPool& LibraryPool() {
  ExportThreads& threads = g_export_threads;
  if (ThreadPool* pool = threads.pool.load(std::memory_order_acquire)) [[likely]]
    return *pool;
  MutexLock lock(threads.mutex);
  if (!threads.pool) threads.pool = new ThreadPool(1, "opkit-library");
  return *threads.pool;
}
OPKIT_COLD inline OPKIT_IMAGE_LOCAL void EndLibraryPool() {
  ExportThreads& threads = g_export_threads;
  const struct End {  // runs even if the library author's `finalize` throws
    ~End() {
      delete g_export_threads.pool.exchange(nullptr);
      g_export_threads.described = false;
    }
  } end;
  if (threads.finalize) threads.finalize();
}
// Runs this image's loops on the host's threads.
struct OPKIT_IMAGE_LOCAL HostLoops : LoopRunner {
  HostLoops() : LoopRunner{&RunOnHost} {}

 private:
  static void RunOnHost(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body) {
    // The pool that the thread had before the operator's run. The host may share this variable.
    const ScopedValue pool(t_pool.pool, static_cast<const HostLoops&>(self).pool_);
    RunHostRanges(g_host, nullptr, n, grain, [&](int64_t begin, int64_t end) {
      const ScopedValue nested(t_loop_runner, &self);
      body(begin, end);
    });
  }

  ThreadPool* const pool_ = t_pool.pool;
};
// The host's call in which this thread runs an operator; null outside.
OPKIT_IMAGE_LOCAL inline constinit thread_local const opkit_call* t_host_call = nullptr;

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_THREADS_IPP_
#endif

// ---- opkit/plugin/export/impl/exported_instance.ipp
#ifdef OPKIT_OPKIT_HPP_
// Runs one operator of a library's registries for its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The library's operator behind one operator of the host, with the tensors that the operator reads
// and writes. A typed operator on the CPU is called directly, as a program's Invoke calls it. Any
// other operator is bound to a workspace.
class OPKIT_IMAGE_LOCAL ExportedInstance : public RefCounted {
 public:
  // `config` is null if the host has chosen no configuration.
  ExportedInstance(const Kernel& kernel, const opkit_node& node, const KernelConfig* config)
      : def_(DefinitionOfAbi(&node)),
        registered_(StrCat("registered at ", kernel.Place())),
        shared_inputs_(def_.outputs().size(), -1) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(kernel.op);
    def_.Backends("");  // the host has chosen the kernel
    for (size_t o = 0; o < shared_inputs_.size(); ++o) NameOutput(schema, o);
    const PoolScope threads(LibraryPool());
    if (!kernel.typed || kernel.make_typed) {
      bound_ = g_bind_operator(kernel, def_, config);
      return;
    }
    const RegistryUse use;
    CheckNode(OpRegistry::Global().GetSchema(def_.type()), def_);
    CheckIsFor(kernel, def_);
    call_ = std::make_unique<DirectCall>(kernel, schema, def_);
    inputs_.resize(def_.inputs().size());
    outputs_.resize(def_.outputs().size());
  }

  // Runs the operator. If the host has a stream, runs it in the order of the stream: a CPU stream
  // waits for the operator; on a native stream the operator only issues its work.
  void Run(const opkit_call* call) {
    const Device device = def_.device();
    if (!call->asynchronous) {
      Forward(call);
    } else if (IsHostAccessible(device.type)) {
      OpResource(call).launch(
          [run = MakeIntrusive<LaunchedRun>(this, call)] { run->instance->Forward(&run->call); });
    } else {
      FindNativeStreams(device.type)(device, call->stream, [&] { Forward(call); });
    }
  }

 private:
  void Forward(const opkit_call* call) {
    const size_t num_inputs = def_.inputs().size(), num_outputs = def_.outputs().size();
    for (size_t i = 0; i < num_inputs; ++i)
      if (Tensor* const place = InputPlace(i))
        Bind(*place, *opkit_input(call, i), InputLayout(call, i));
    for (size_t o = 0; o < num_outputs; ++o)
      if (!def_.outputs()[o].empty()) BindOutput(call, o);
    RunOperator(call);
    for (size_t o = 0; o < num_outputs; ++o)
      if (!def_.outputs()[o].empty()) Deliver(call, o);
  }
  Tensor* InputPlace(size_t i) {
    if (bound_.bound) return bound_.input(*bound_.bound, i);
    return def_.inputs()[i].empty() ? nullptr : &inputs_[i];
  }

  // Gives output o its own name, or the name of the input whose memory it must use.
  void NameOutput(const OpSchema& schema, size_t o) {
    std::string& name = def_.mutable_outputs()[o];
    if (name.empty()) return;
    for (size_t i = 0; i < def_.inputs().size(); ++i) {
      const std::string& input = def_.inputs()[i];
      if (input.empty() || !schema.MustInplace(static_cast<int>(i), static_cast<int>(o))) continue;
      shared_inputs_[o] = static_cast<int>(i);
      name = input;
      return;
    }
    while (Contains(def_.inputs(), name)) name += "_out";
  }

  // True if `tensor` is the view already, so that no new tensor is needed.
  static bool IsView(const Tensor& tensor, const opkit_tensor& view, const char* layout) {
    if (layout) [[unlikely]]
      return tensor.raw_data() == view.data && tensor.storage() &&
             tensor.dtype() == static_cast<DType>(view.dtype) &&
             tensor.layout() == LayoutOfAbi(layout) &&
             tensor.shape() == Shape(Dims(view.shape, static_cast<size_t>(view.rank)));
    return tensor.IsDenseAt(view.data, static_cast<DType>(view.dtype), view.shape, view.rank) &&
           tensor.storage() && OpTensor(view).is_dense();
  }
  static const char* InputLayout(const opkit_call* call, size_t i) {
    const bool has = OPKIT_ABI_HAS(call, input_layouts) && call->input_layouts;
    return has ? call->input_layouts[i] : nullptr;
  }
  static const char* OutputLayout(const opkit_call* call, size_t o) {
    const bool has = OPKIT_ABI_HAS(call, output_layouts) && call->output_layouts;
    return has ? call->output_layouts[o] : nullptr;
  }
  static void Bind(Tensor& tensor, const opkit_tensor& view, const char* layout) {
    if (IsView(tensor, view, layout)) [[likely]]
      return;
    tensor = view.dtype == OPKIT_UNDEFINED ? Tensor() : TensorInLayout(view, layout);
  }
  void BindOutput(const opkit_call* call, size_t o) {
    const opkit_tensor& view = *opkit_output(call, o);
    const int shared = shared_inputs_[o];
    if (shared >= 0 && view.dtype != OPKIT_UNDEFINED) {
      const opkit_tensor& in = *opkit_input(call, static_cast<uint64_t>(shared));
      if (view.data != in.data) {
        const Tensor source = TensorOfView(in);
        CheckResult(o, source, view, "must be in place of an input that");
        if (view.data) CopyElements(source, TensorOfView(view), call->stream);
      }
    }
    Tensor& output = bound_.bound ? *bound_.output(*bound_.bound, o) : outputs_[o];
    if (shared < 0 || view.dtype != OPKIT_UNDEFINED) Bind(output, view, OutputLayout(call, o));
    if (bound_.bound || shared < 0) return;
    Tensor& input = inputs_[Index(shared)];
    view.dtype == OPKIT_UNDEFINED ? output = input : input = output;
  }
  void RunOperator(const opkit_call* call) {
    const HostLoops loops;
    const PoolScope threads(LibraryPool());
    const ScopedValue on_host(t_loop_runner, &loops);
    const ScopedValue of_host(t_host_call, call);
    std::optional<HostSpans::Known> known;
    if (HostSpans::Follow()) [[unlikely]]
      known.emplace(def_.type());
    try {
      if (call_) return call_->Run(inputs_, outputs_);
      bound_.run(*bound_.bound, call->scratch, call->scratch ? call->scratch_bytes : 0,
                 call->asynchronous);
    } catch (const Error& error) {
      RethrowForHost(error);
    }
  }
  // Throws the error without the lines about this operator, because the host adds such lines
  // itself.
  [[noreturn]] OPKIT_COLD void RethrowForHost(const Error& error) const {
    Error told(error.code(), error.message());
    for (const std::string& line : error.context()) {
      if (line.starts_with("in operator ") && line.ends_with(registered_)) break;
      told.AddContext(line);
    }
    throw told;
  }

  // Copies a result that does not lie in the host's memory to that memory.
  void Deliver(const opkit_call* call, size_t o) {
    opkit_tensor view = OpTensor(*opkit_output(call, o)).view();
    const bool is_open = view.dtype == OPKIT_UNDEFINED;
    if (is_open && view.req == OPKIT_REQ_NONE) return;
    const Tensor* const made = call_ ? &outputs_[o] : bound_.result(*bound_.bound, o);
    if (!made)
      Throw(ErrorCode::kTypeMismatch, "output ", o, " '", def_.outputs()[o], "' of operator ",
            def_.type(), " is not a tensor, which is all that a library can hand over");
    const Tensor& result = *made;
    const char* const layout = OutputLayout(call, o);
    if (IsView(result, view, layout)) [[likely]]
      return;
    if (!result.initialized())
      Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
            def_.outputs()[o], "'; get it with Output(i, shape, dtype) and write to it");
    if (is_open)
      view = OpResource(call)
                 .allocate_output(static_cast<int>(o),
                                  std::span(result.shape().data(), Index(result.rank())),
                                  result.dtype())
                 .view();
    CheckResult(o, result, view, "is");
    if (layout) {
      Tensor target = TensorInLayout(view, layout);
      g_convert_layout_to(result, target);
    } else {
      CopyElements(result, TensorOfView(view), call->stream);
    }
  }
  OPKIT_COLD void CheckResult(size_t o, const Tensor& result, const opkit_tensor& view,
                              const char* how) const {
    const Shape wanted(Dims(view.shape, static_cast<size_t>(view.rank)));
    if (static_cast<int32_t>(result.dtype()) == view.dtype && result.shape() == wanted) return;
    Throw(ErrorCode::kInvalidArgument, "output ", o, " '", def_.outputs()[o], "' of operator ",
          def_.type(), " ", how, " ", result.dtype(), result.shape(), ", but the program has ",
          static_cast<DType>(view.dtype), wanted,
          " for it; correct the schema's Infer, or write one");
  }

  // A run that the host's stream starts later. It has its own call, with copies of the data to
  // which the host's call points.
  struct LaunchedRun : RefCounted {
    IntrusivePtr<ExportedInstance> instance;
    opkit_call call;
    std::vector<opkit_tensor> inputs, outputs;
    std::vector<const char*> input_layouts, output_layouts;
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
      const auto keep = [](const char* const*& names, uint64_t count,
                           std::vector<const char*>& kept) {
        if (!names) return;
        kept.assign(names, names + count);
        names = kept.data();
      };
      keep(call.input_layouts, call.num_inputs, input_layouts);
      keep(call.output_layouts, call.num_outputs, output_layouts);
    }
    void Copy(const opkit_tensor& from, std::vector<opkit_tensor>& all) {
      const auto rank = static_cast<size_t>(from.rank);
      opkit_tensor view = OpTensor(from).view();
      view.shape = extents.emplace_back(from.shape, rank).data();
      view.strides = extents.emplace_back(from.strides, rank).data();
      all.push_back(view);
    }
  };

  OperatorDef def_;
  const std::string registered_;
  std::vector<int> shared_inputs_;  // by output: the input whose memory it must use; -1: none
  BoundOperator bound_;             // null if call_ is set
  std::unique_ptr<DirectCall> call_;
  std::vector<Tensor> inputs_, outputs_;  // tensors of call_
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_
#endif

// ---- opkit/plugin/export/impl/schema_functions.ipp
#ifdef OPKIT_OPKIT_HPP_
// Implements opkit_op and opkit_kernel by the schemas and kernels of a library's registries.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Functions of an opkit_op whose `author` is a schema, and of opkit_kernels whose `author` is a
// kernel of the registry.
struct OPKIT_IMAGE_LOCAL SchemaFunctions {
  OPKIT_COLD static void FillIn(opkit_op& op, const OpSchema& schema) {
    op.parse_attrs = &GuardBy<const OpSchema, &ParseAttrs>;
    if (schema.has_inference()) {
      op.infer_type = &GuardBy<const OpSchema, &InferType>;
      op.infer_shape = &GuardBy<const OpSchema, &InferShape>;
    }
    op.mutated_inputs = &GuardBy<const OpSchema, &MutatedInputs>;
    op.scratch_bytes = &GuardBy<const OpSchema, &ScratchBytes>;
    if (schema.has_cost()) op.cost = &GuardBy<const OpSchema, &Cost>;
    if (schema.has_test_inputs()) op.test_inputs = &GuardBy<const OpSchema, &TestInputs>;
    op.author = &schema;
  }
  OPKIT_COLD static void FillIn(opkit_kernel& to, const Kernel& kernel) {
    to.create = &GuardBy<const Kernel, &Create>;
    if (kernel.propose) {
      to.propose = &GuardBy<const Kernel, &Propose>;
      to.create_for = &GuardBy<const Kernel, &CreateFor>;
    }
    if (kernel.fuse) to.fuse = &GuardBy<const Kernel, &Fuse>;
    to.destroy = &Destroy;
    to.forward = &Forward;
    to.author = &kernel;
  }

 private:
  static void Create(const Kernel& kernel, const opkit_node* node, void** instance) {
    *instance = new IntrusivePtr(new ExportedInstance(kernel, *node, nullptr));
  }
  OPKIT_COLD static void CreateFor(const Kernel& kernel, const opkit_node* node,
                                   const opkit_config* config, void** instance) {
    const KernelConfig chosen = ConfigOfAbi(config, node->num_inputs, node->num_outputs);
    *instance = new IntrusivePtr(new ExportedInstance(kernel, *node, &chosen));
  }
  OPKIT_COLD static void Propose(const Kernel& kernel, const opkit_node* node,
                                 const opkit_value* inputs, const opkit_value* outputs,
                                 const opkit_proposals* proposals) {
    const NodeOfAbi asked(node, inputs, outputs);
    for (const KernelConfig& config : kernel.propose(asked.query())) {
      const AbiConfig abi(config, node->num_inputs, node->num_outputs);
      AcceptAnswer(proposals->add(proposals, &abi.config()));
    }
  }
  static KernelConfig ConfigOf(const opkit_config* config, const NodeOfAbi& node) {
    return ConfigOfAbi(config, node.def.inputs().size(), node.def.outputs().size());
  }
  OPKIT_COLD static void Fuse(const Kernel& kernel, const opkit_fusion* fusion) {
    const NodeOfAbi node(fusion->node, fusion->inputs, fusion->outputs),
        next(fusion->next, fusion->next_inputs, fusion->next_outputs);
    const KernelConfig config = ConfigOf(fusion->config, node),
                       next_config = ConfigOf(fusion->next_config, next);
    const std::optional<FusedNode> made = kernel.fuse(
        {node.query(), config, next.query(), next_config, static_cast<size_t>(fusion->read)});
    if (!made) return;
    const AbiNode both(made->def);
    const AbiConfig chosen(made->config, made->def.inputs().size(), made->def.outputs().size());
    AcceptAnswer(fusion->fuse(fusion, &both.node(), &chosen.config()));
  }
  static void Destroy(void* instance) {
    GuardedCall([&] { delete static_cast<IntrusivePtr<ExportedInstance>*>(instance); });
  }
  static opkit_status Forward(void* instance, const opkit_call* call) {
    return GuardedCall(
        [&] { (*static_cast<IntrusivePtr<ExportedInstance>*>(instance))->Run(call); });
  }

  OPKIT_COLD static OpStatus ParseAttrs(const OpSchema& schema, const opkit_node* node,
                                        int32_t* num_inputs, int32_t* num_outputs) {
    const Arguments args = ArgumentsOfAbi(node->attrs, node->num_attrs);
    if (!schema.problem().empty()) return OpStatus::Failure(schema.problem());
    if (std::string why = schema.VerifyArguments(args); !why.empty()) return OpStatus::Failure(why);
    const auto [inputs, outputs] = schema.Arity(args);
    *num_inputs = inputs;
    *num_outputs = outputs;
    return OpStatus();
  }

  static void Infer(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                    opkit_value* outputs, bool types, bool with_shapes) {
    OperatorDef def = DefinitionOfAbi(node);
    const ValuesOfAbi ins(inputs, node->num_inputs, with_shapes);
    const ValuesOfAbi outs(outputs, node->num_outputs, with_shapes);
    InferenceContext context(def, ins.infos(), outs.infos());
    schema.Infer(context);
    for (const auto& [infos, values] :
         {std::pair(&context.inputs(), inputs), std::pair(&context.outputs(), outputs)})
      types ? ValuesOfAbi::StoreTypes(*infos, values) : ValuesOfAbi::StoreShapes(*infos, values);
  }
  // If inference with shapes fails, infers dtypes without shapes; infer_shape then reports the
  // shapes.
  static void InferType(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                        opkit_value* outputs) {
    try {
      Infer(schema, node, inputs, outputs, true, true);
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        Infer(schema, node, inputs, outputs, true, false);
      } catch (...) {
        std::rethrow_exception(failure);
      }
    }
  }
  static void InferShape(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                         opkit_value* outputs) {
    Infer(schema, node, inputs, outputs, false, true);
  }
  OPKIT_COLD static OpStatus MutatedInputs(const OpSchema& schema, const opkit_node* node,
                                           uint8_t* mutated) {
    for (const int input : schema.MutatedInputs(DefinitionOfAbi(node))) {
      if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
        return OpStatus::Failure("MutatesInputs of its schema names input ", input,
                                 ", but the node has ", node->num_inputs);
      mutated[input] = 1;
    }
    return OpStatus();
  }
  OPKIT_COLD static void Cost(const OpSchema& schema, const opkit_node* node,
                              const opkit_value* inputs, const opkit_value* outputs,
                              opkit_cost* cost) {
    const NodeOfAbi asked(node, inputs, outputs);
    const OpCost said = schema.Cost(asked.def, asked.inputs.infos(), asked.outputs.infos());
    cost->flops = said.flops;
    cost->bytes_read = said.bytes_read;
    cost->bytes_written = said.bytes_written;
    cost->params_bytes = said.params_bytes;
  }
  OPKIT_COLD static void TestInputs(const OpSchema& schema, int32_t dtype, uint64_t seed,
                                    const opkit_test_inputs* inputs) {
    for (const Tensor& one : schema.MakeTestInputs(static_cast<DType>(dtype), seed)) {
      const AbiAttributes tensor(Arguments{{"input", one}});
      AcceptAnswer(inputs->add(inputs, (*tensor.data())->tensors[0]));
    }
  }
  // Computes the largest scratch of all kernels of the device, because the host does not name the
  // kernel that it will run. Uses each kernel's first proposed configuration in standard layouts.
  OPKIT_COLD static void ScratchBytes(const OpSchema& schema, const opkit_node* node,
                                      const opkit_value* inputs, int64_t* bytes) {
    *bytes = 0;
    const OperatorDef def = DefinitionOfAbi(node);
    const ValuesOfAbi ins(inputs, node->num_inputs, true);
    std::optional<std::vector<TensorInfo>> outs;
    for (const Kernel* kernel :
         OpRegistry::Global().FindKernels(schema.name(), def.device().type)) {
      if (!kernel->propose) continue;
      if (!outs) outs = schema.InferOutputs(def, ins.infos());
      try {
        for (const KernelConfig& config : kernel->propose({def, ins.infos(), *outs})) {
          if (!config.input_layouts.empty() || !config.output_layouts.empty()) continue;
          *bytes = (std::max)(*bytes, config.scratch_bytes);
          break;
        }
      } catch (const UnsupportedOperatorFeature&) {  // reported when the operator is created
      }
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
#endif

// ---- opkit/plugin/export/impl/export_operators.ipp
#ifdef OPKIT_OPKIT_HPP_
// Describes the operators and backends of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Frees the registries when the library is unmapped, but not at the program's end.
struct OPKIT_IMAGE_LOCAL ExportedRegistries {
  ~ExportedRegistries() {
    if (g_export_threads.described) return;
    if (g_delete_gradients) g_delete_gradients();
    delete &OpRegistry::Global();
    if (g_delete_layout_registry) g_delete_layout_registry();
    if (g_delete_names) g_delete_names();
  }
};

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ReadKernels(const OpSchema& schema,
                                                     FunctionOpRecord& record) {
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema.name())) {
    if (!IsHostAccessible(kernel->device) && !FindNativeStreams(kernel->device) &&
        kernel->device < DeviceType::kFirstUserDevice)
      Throw(ErrorCode::kUnsupported, "operator ", schema.name(), " has a kernel for ",
            kernel->device,
            " that cannot issue work on its host's streams: include the header of the backend in "
            "the library (opkit/backends/<its name>/context.hpp), or call RegisterNativeStreams "
            "for a device of your own (at ",
            kernel->Place(), ")");
    FunctionDevice& device = record.devices.emplace_back();
    device.name = ToString(kernel->device);
    if (kernel->backend != kReferenceBackend) device.backend = kernel->backend;
    SchemaFunctions::FillIn(device.abi, *kernel);
  }
}
// Returns a record of a registered operator, like those of REGISTER_OP.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline FunctionRecord ReadSchema(const OpSchema& schema) {
  FunctionRecord record(new FunctionOpRecord);
  record->name = schema.name();
  record->doc = schema.doc();
  record->file = schema.file();
  record->line = schema.line();
  // OPKIT_OP_EFFECTS protects the node from hosts that do not know OPKIT_OP_KEEPS_STATE.
  const bool keeps = schema.is_stateful() && !schema.runs_may_differ();
  record->flags = OPKIT_OP_ALLOCATES_OUTPUTS |  // a class makes outputs that inference leaves open
                  (schema.is_stateful() ? OPKIT_OP_EFFECTS : 0) |
                  (keeps ? OPKIT_OP_KEEPS_STATE : 0) |
                  (schema.needs_subgraph() ? OPKIT_OP_SUBGRAPH : 0) |
                  (schema.unknown_args_allowed() ? OPKIT_OP_OPEN_ATTRS : OPKIT_OP_CLOSED_ATTRS);
  SchemaFunctions::FillIn(record->abi, schema);
  if (g_read_gradient)
    g_read_gradient(*record);
  else if (g_has_gradient && g_has_gradient(record->name))
    Throw(ErrorCode::kFailedPrecondition, "the gradient of operator ", record->name,
          " does not reach the program: include both opkit/op.hpp and opkit/graph.hpp in the unit "
          "that "
          "registers it");
  ReadKernels(schema, *record);
  // Adds only in-place pairs of the first inputs and outputs, because the schema's function must be
  // called for each possible pair.
  constexpr int kMost = 16;
  for (int i = 0; i < (std::min)(schema.max_inputs(), kMost); ++i)
    for (int o = 0; o < (std::min)(schema.max_outputs(), kMost); ++o)
      if (schema.CanInplace(i, o)) record->inplace.emplace_back(i, o);
  record->attributes = schema.attributes();
  record->inputs = schema.inputs();
  record->outputs = schema.outputs();
  return record;
}

// True if a record of REGISTER_OP has brought the operator, or its gradient, into the registry too
// (export/exported_operator.hpp).
OPKIT_COLD OPKIT_IMAGE_LOCAL inline bool IsFromRecord(const OpSchema& schema,
                                                      std::span<const FunctionRecord> records) {
  for (const FunctionRecord& record : records)
    if (schema.line() == record->line && std::string_view(schema.file()) == record->file &&
        (schema.name() == record->name || schema.name() == record->name + "_backward"))
      return true;
  return false;
}

// Describes a backend of the library's kernels to the host: its rank and availability.
struct OPKIT_IMAGE_LOCAL ExportedBackend : RefCounted {
  explicit ExportedBackend(std::string its_name) : name(std::move(its_name)) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.rank = OpRegistry::Global().BackendRank(name);
    if (OpRegistry::Global().HasAvailability(name))
      abi.available = &GuardBy<ExportedBackend, &ExportedBackend::Available>;
    abi.author = this;
  }
  OpStatus Available() const {
    Kernel kernel;
    kernel.backend = name;
    const std::string why = OpRegistry::Global().WhyUnavailable(kernel);
    return why.empty() ? OpStatus() : OpStatus::Failure(why);
  }
  const std::string name;
  opkit_backend abi{};
};
OPKIT_COLD OPKIT_IMAGE_LOCAL inline void AddBackends(const std::vector<FunctionRecord>& records,
                                                     LibraryContents& contents) {
  std::vector<std::string> names;
  for (const FunctionRecord& record : records)
    for (const FunctionDevice& device : record->devices)
      if (!device.backend.empty() && !Contains(names, device.backend)) {
        names.push_back(device.backend);
        AddExported<ExportedBackend>(contents, contents.backends, device.backend);
      }
}

OPKIT_COLD OPKIT_INLINE void AddRegisteredOperators(std::vector<FunctionRecord>& records) {
  if (IsProgramHost(g_host)) return;
  static const ExportedRegistries registries;
  HostMemory::Use();
  HostSpans::Use();
  if (const auto problems = CheckRegistrations(); !problems.empty())
    Throw(ErrorCode::kInvalidArgument, problems[0]);
  LibraryContents& contents = LibraryContents::Global();
  if (contents.finalize != &EndLibraryPool)
    g_export_threads.finalize = std::exchange(contents.finalize, &EndLibraryPool);
  const std::vector<FunctionRecord> own = records;
  for (const std::string& name : RegisteredOperators()) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(name);
    if (!schema.is_internal() && !IsFromRecord(schema, own)) records.push_back(ReadSchema(schema));
  }
  AddBackends(records, contents);
  g_export_threads.described = true;
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE void InvokeOnHost(std::string_view op, const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& outputs,
                                          const Arguments& args) {
  if (!detail::t_host_call)
    Throw(ErrorCode::kFailedPrecondition, "InvokeOnHost(\"", op,
          "\") is called in a thread that runs no operator of a library; a program's own operator "
          "calls Invoke");
  std::list<Dims> strides;
  const auto views = [&](const std::vector<Tensor>& tensors) {
    std::vector<OpTensor> all;
    for (const Tensor& tensor : tensors) {
      strides.push_back(tensor.strides());
      all.emplace_back(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(),
                       strides.back().data(), tensor.rank(), tensor.device());
    }
    return all;
  };
  OpResource(detail::t_host_call).invoke(op, views(inputs), views(outputs), args);
}

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
#endif

// ---- opkit/plugin/export/impl/export_gradients.ipp
#if defined OPKIT_OPKIT_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
// Lets the host call the gradient makers of a library's registries.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls the library's gradient maker, which chooses names for new values. Names from the host's
// new_name then replace these names.
OPKIT_IMAGE_LOCAL inline opkit_status ExportedGradient(const opkit_op*,
                                                       const opkit_gradient* gradient) {
  return GuardedCall([&] {
    const OperatorDef def = DefinitionOfAbi(gradient->node);
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
    for (size_t i = 0; i < meta.g_input.size(); ++i) {
      GradientValue& value = meta.g_input[i];
      for (std::string* name : {&value.dense, &value.indices, &value.values}) rename(*name);
      AcceptAnswer(gradient->set_input(gradient, i, value.dense.c_str(), value.indices.c_str(),
                                       value.values.c_str()));
    }
    for (OperatorDef& op : meta.ops) {
      for (std::string& name : op.mutable_inputs()) rename(name);
      for (std::string& name : op.mutable_outputs()) rename(name);
      const AbiNode node(op);
      AcceptAnswer(gradient->add_node(gradient, &node.node()));
    }
  });
}

// Describes a registered gradient in the form that the host reads.
OPKIT_IMAGE_LOCAL inline void ReadGradient(FunctionOpRecord& record) {
  const GradientRegistration* gradient = GradientRegistry::Global().Find(record.name);
  if (!gradient) return;
  switch (gradient->kind) {
    case GradientKind::kMaker:
      record.abi.gradient = &ExportedGradient;
      break;
    case GradientKind::kNone:
      record.flags |= OPKIT_OP_NO_GRADIENT;
      break;
    case GradientKind::kShouldNot:
      record.flags |= OPKIT_OP_SHOULD_NOT_GRADIENT;
      break;
    case GradientKind::kNotImplemented:
      record.flags |= OPKIT_OP_GRADIENT_NOT_IMPLEMENTED;
  }
}
OPKIT_IMAGE_LOCAL inline const bool kFillsExportOfGradients = g_read_gradient.Fill(&ReadGradient);

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_GRADIENTS_IPP_
#endif

// ---- opkit/graph/abi_graph.hpp
#ifdef OPKIT_GRAPH_HPP_
// Conversion between Graph and the opkit_graph of opkit_abi.h, in which graphs are passed to and
// from libraries and operators of functions. Only files with definitions include this file.
#ifndef OPKIT_GRAPH_ABI_GRAPH_HPP_
#define OPKIT_GRAPH_ABI_GRAPH_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The limit for the nodes, and for each list of names, of an opkit_graph.
inline constexpr uint64_t kMostNodes = 10'000'000;

// An opkit_graph and the data that it points to. It includes the types of all values that `types`
// has. If `types` is null, it includes only the types that the graph declares for its inputs.
struct AbiGraph : RefCounted {
  explicit AbiGraph(const GraphView& graph_view, std::string graph_name = {},
                    const GraphTypes* types = nullptr)
      : name(std::move(graph_name)), order(graph_view.order()) {
    const Graph& graph = graph_view.graph();
    for (const auto& input : graph.inputs()) names.push_back(input.name);
    const size_t num_inputs = names.size();
    for (const std::string& output : graph.outputs()) names.push_back(output);
    const size_t num_outputs = names.size() - num_inputs;
    std::vector<Tensor> values;
    for (const auto& constant : graph.constants()) {
      names.push_back(constant.name);
      values.push_back(constant.value);
    }
    constants = MakeIntrusive<AbiAttributes>(Arguments{{"constants", values}});
    for (const std::string& text : names) pointers.push_back(text.c_str());
    for (int node : order) nodes.push_back(MakeIntrusive<AbiNode>(graph.node(node)));
    for (const auto& node : nodes) node_pointers.push_back(&node->node());
    view.size = sizeof view;
    view.name = name.c_str();
    view.num_inputs = num_inputs;
    view.inputs = pointers.data();
    view.num_outputs = num_outputs;
    view.outputs = pointers.data() + num_inputs;
    view.num_constants = values.size();
    view.constant_names = pointers.data() + num_inputs + num_outputs;
    view.constants = (*constants->data())->tensors;
    view.num_nodes = node_pointers.size();
    view.nodes = node_pointers.data();
    if (types)
      for (int value = 0; value < graph_view.num_values(); ++value)
        AddType(graph_view.name(value), (*types)[value]);
    else
      for (const Graph::Input& input : graph.inputs()) AddType(input.name, input.info);
    ShowTypes();
  }

  std::string name;
  std::vector<int> order;  // the index in the graph of each node of `view`
  std::vector<std::string> names;
  std::vector<const char*> pointers;
  IntrusivePtr<AbiAttributes> constants;
  std::vector<IntrusivePtr<AbiNode>> nodes;
  std::vector<const opkit_node*> node_pointers;
  opkit_graph view{};

 private:
  void AddType(const std::string& value, TensorInfo info) {
    if (info.shape.has_rank() && info.shape.rank() > OPKIT_MAX_RANK) info.shape = {};
    value_names_.push_back(value);
    infos_.push_back(std::move(info));
  }
  void ShowTypes() {
    for (const std::string& text : value_names_) value_pointers_.push_back(text.c_str());
    values_.emplace(infos_, symbols_);
    for (size_t i = 0; i < infos_.size(); ++i)
      if (infos_[i].constant) values_->SetConstant(i, *infos_[i].constant);
    view.num_values = value_pointers_.size();
    view.value_names = value_pointers_.data();
    view.values = values_->data();
  }

  std::vector<std::string> symbols_, value_names_;
  std::vector<TensorInfo> infos_;
  std::vector<const char*> value_pointers_;
  std::optional<AbiValues> values_;
};

inline void AddAbiGraphs(const OperatorDef& def, RefCountedList& graphs,
                         std::vector<const opkit_graph*>& pointers) {
  for (const NamedSubgraph& item : def.subgraphs())
    if (const Graph* graph = GraphOf(*item.graph)) {
      const GraphView view(*graph);
      GraphTypes types(view);  // the declared types; others depend on the enclosing graph
      for (size_t i = 0; i < graph->inputs().size(); ++i)
        types[static_cast<int>(i)] = graph->inputs()[i].info;
      auto added = MakeIntrusive<AbiGraph>(view, item.name, &types);
      pointers.push_back(&added->view);
      graphs.push_back(std::move(added));
    }
}

// Makes the tensor of a constant from its view in an opkit_graph.
using ConstantOfAbi = FunctionRef<Tensor(const std::string& name, const opkit_tensor& view)>;
inline Tensor CopyConstant(const std::string&, const opkit_tensor& view) {
  Tensor copy;
  copy.CopyFrom(TensorOfView(view));
  return copy;
}
// Makes a Graph of an opkit_graph. `origin` is the graph from which the opkit_graph was made; null
// if it is unknown. An input has the type of the input of that name in `origin`, else the type that
// the opkit_graph lists for it. Throws kInvalidArgument for an invalid struct.
inline Graph GraphOfAbi(const opkit_graph* graph_of, ConstantOfAbi constant_of,
                        const Graph* origin = nullptr) {
  if (!IsReadable(graph_of))
    Throw(ErrorCode::kInvalidArgument, "a graph is null or shorter than version 1.0's");
  const opkit_graph& from = *graph_of;
  const std::string what = TextOfAbi(from.name);
  Graph graph;
  std::map<std::string, const opkit_value*> known;
  if (OPKIT_ABI_HAS(&from, values) && from.num_values > 0) {
    if (!IsReadable(from.values))
      Throw(ErrorCode::kInvalidArgument, "the values of graph ", what,
            " are null or shorter than version 1.0's");
    uint64_t i = 0;
    for (std::string& value :
         NamesOfAbi(from.value_names, from.num_values, "graph values", kMostNodes))
      known.emplace(std::move(value), opkit_value_at(const_cast<opkit_value*>(from.values), i++));
  }
  for (const std::string& input :
       NamesOfAbi(from.inputs, from.num_inputs, "graph inputs", kMostNodes)) {
    const auto value = known.find(input);
    TensorInfo info;
    if (value != known.end()) info = InfoOfAbi(*value->second);
    if (const Graph::Input* same = origin ? origin->FindInput(input) : nullptr) info = same->info;
    graph.AddInput(input, info.dtype, info.shape, info.device);
  }
  const auto constants =
      NamesOfAbi(from.constant_names, from.num_constants, "graph constants", kMostNodes);
  if (!IsAligned(from.constants))
    Throw(ErrorCode::kInvalidArgument, "the constants of graph ", what, " are not aligned");
  for (size_t i = 0; i < constants.size(); ++i) {
    if (const std::string problem = ProblemOfView(from.constants ? from.constants[i] : nullptr);
        !problem.empty())
      Throw(ErrorCode::kInvalidArgument, "constant '", constants[i], "' of graph ", what, " ",
            problem);
    graph.AddConstant(constants[i], constant_of(constants[i], *from.constants[i]));
  }
  if (from.num_nodes > kMostNodes || (from.num_nodes > 0 && !IsUsable(from.nodes)))
    Throw(ErrorCode::kInvalidArgument, "graph ", what, " has ", from.num_nodes, " nodes",
          from.nodes ? "" : ", which are null");
  for (uint64_t i = 0; i < from.num_nodes; ++i)
    graph.AddNode(InContext([&] { return DefinitionOfAbi(from.nodes[i]); },
                            [&] { return StrCat("in node ", i, " of graph ", what); }));
  for (std::string& output :
       NamesOfAbi(from.outputs, from.num_outputs, "graph outputs", kMostNodes))
    graph.AddOutput(std::move(output));
  return graph;
}

inline IntrusivePtr<const SubgraphBase> SubgraphOfAbi(const opkit_graph& from) {
  return MakeSubgraph(GraphOfAbi(&from, &CopyConstant));
}
[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kGraphsCross =
    g_add_abi_graphs.Fill(&AddAbiGraphs) && g_subgraph_of_abi.Fill(&SubgraphOfAbi);

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_ABI_GRAPH_HPP_
#endif

// ---- opkit/op/boundary/host/host_inference.hpp
#ifdef OPKIT_GRAPH_HPP_
// InferOnHost: a library's inference by the operators of the program that loaded it. Only
// definitions include this header.
#ifndef OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_IMAGE_LOCAL inline bool HostHasOperator(const std::string& op) {
  return IsLoadedLibrary() && OPKIT_ABI_HAS(g_host, infer) && g_host->has_operator(op.c_str()) != 0;
}
// Infers the node's dtypes and shapes by calling the operator of the program that loaded this
// library. Throws the errors of that operator; kNotFound if there is none.
OPKIT_IMAGE_LOCAL inline void InferOnHost(InferenceContext& context) {
  AbiQuery query(context.def(), context.inputs(), context.outputs());
  AcceptAnswer(g_host->infer(&query.node.node(), query.inputs.data(), query.outputs.data()));
  RefineBy(context, query.inputs, query.outputs,
           [](auto& values, size_t i, auto) { return InfoOfAbi(values[i]); });
}

OPKIT_IMAGE_LOCAL inline const bool kInfersOnHost =
    g_host_has_operator.Fill(&HostHasOperator) && g_infer_on_host.Fill(&InferOnHost);

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_HOST_INFERENCE_HPP_
#endif

// ---- opkit/op/function/log_hook.hpp
#ifdef OPKIT_PARTITION_HPP_
// SetLogHook: redirects the log lines of function operators, of this program and of its libraries.
#ifndef OPKIT_OP_FUNCTION_LOG_HOOK_HPP_
#define OPKIT_OP_FUNCTION_LOG_HOOK_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Receives operators' log lines. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);
// Replaces the log hook and returns the previous hook; null restores logging to stderr.
LogHook SetLogHook(LogHook hook);

namespace detail {

// Passes a line to the log hook.
void WriteLog(LogLevel level, std::string_view op, std::string_view text);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_LOG_HOOK_HPP_
#endif

// ---- opkit/op/boundary/host/host_table.hpp
#ifdef OPKIT_PARTITION_HPP_
// The host's side of opkit_abi.h: the table of functions that serve function operators in this
// program and in its libraries, and each thread's current failure.
#ifndef OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The reason for the failure of the function that this thread runs.
struct HostError : RefCounted {
  std::string text;              // given by the operator
  std::string failure;           // given by a function of the host's table
  std::exception_ptr exception;  // their cause, if thrown in this program
};
using HostErrorSlot = IntrusivePtr<HostError>;  // made at the first failure

// The error of the innermost HostErrorScope on this thread.
inline constinit thread_local HostErrorSlot* t_host_error = nullptr;
OPKIT_COLD HostError& CurrentHostError();
// Gives this thread an empty error; restores the previous error at the end of the scope.
class HostErrorScope {
  HostErrorSlot slot_;
  const ScopedValue<HostErrorSlot*> scope_{t_host_error, &slot_};
};

// Stores the current exception as this thread's failure, and returns its status; for use in a catch
// block. `unknown` describes an exception that is not a std::exception.
OPKIT_COLD OPKIT_IMAGE_LOCAL opkit_status
KeepFailure(const char* unknown = "it threw something that is not a std::exception") noexcept;
// Runs `body` for a caller of the table; returns the status.
template <class Body>
opkit_status AnswerCaller(Body body) noexcept {
  try {
    body();
    return OPKIT_OK;
  } catch (...) {
    return KeepFailure();
  }
}

// Returns the object that is the `context` of a struct that the library got from this program.
template <class Self, class Struct>
Self& ContextOf(const Struct* from) {
  if (!from)
    Throw(ErrorCode::kInvalidArgument, "a function of ", Self::kStruct,
          " is called without the struct");
  return *static_cast<Self*>(from->context);
}
// A function of such a struct: calls the member kMember of the object with the other arguments.
template <class Self, auto kMember, class Struct, class... Args>
opkit_status AnswerBy(const Struct* from, Args... args) {
  return AnswerCaller([&] { (ContextOf<Self>(from).*kMember)(args...); });
}

struct HostTable {
  // Returns this program's own table. The first call, from the first function operator, puts the
  // table into use.
  OPKIT_IMAGE_LOCAL static const opkit_host& Global();
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_
#endif

// ---- opkit/op/function/mx_failure.hpp
#ifdef OPKIT_PARTITION_HPP_
// CheckMxReturn: turns FAIL from a function in MXNet's spelling into an Error with the text of
// OPKIT_ERROR_MSG.
#ifndef OPKIT_OP_FUNCTION_MX_FAILURE_HPP_
#define OPKIT_OP_FUNCTION_MX_FAILURE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The Error for a FAIL that a library's function in MXNet's spelling has returned. The library's
// host stores the reason.
class OPKIT_VISIBLE MxFailure : public Error {
 public:
  using Error::Error;
};

// Calls f. If f returns FAIL, throws an Error with the text of OPKIT_ERROR_MSG. In a library throws
// MxFailure, without the text. If f returns a failure with a text, throws an Error with that text.
template <class F>
void CheckMxReturn(const char* what, F&& f) {
  static_cast<void>(HostTable::Global());  // makes the host that keeps the text
  const HostErrorScope scope;
  const OpStatus status = f();
  if (status.ok()) return;
  if (const std::string why = status.message(); !why.empty())
    Throw(ErrorCode::kOperatorFailed, what, " failed: ", why);
  if (!IsProgramHost(g_host))
    throw MxFailure(ErrorCode::kOperatorFailed, StrCat(what, " returned FAIL"));
  const std::string text = t_host_error && *t_host_error ? (*t_host_error)->text : std::string();
  Throw(ErrorCode::kOperatorFailed, what, " returned FAIL", text.empty() ? "" : ": ", text);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_MX_FAILURE_HPP_
#endif

// ---- opkit/plugin/export/exported_partitioner.hpp
#ifdef OPKIT_PARTITION_HPP_
// ExportedPartitioner and ExportedPass: describe a Partitioner and a NamedPass of this image to a
// host, as opkit_partitioner and opkit_pass, and run them over the host's graphs. Only definitions
// include this header.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns a copy of the host's graph whose constants share the host's memory.
inline Graph BorrowGraph(const opkit_graph& from) {
  return GraphOfAbi(
      &from, [](const std::string&, const opkit_tensor& view) { return TensorOfView(view); });
}
// Runs a partitioner of this library over one graph of the host.
class OPKIT_IMAGE_LOCAL ExportedPartitionWork {
 public:
  ExportedPartitionWork(const Partitioner& partitioner, const opkit_partition& partition)
      : graph_(BorrowGraph(*partition.graph)), structure_(graph_), types_(structure_) {
    const opkit_graph& graph = *partition.graph;
    for (uint64_t i = 0; i < graph.num_values; ++i) {
      const int value = structure_.FindValue(graph.value_names[i]);
      if (value < 0) continue;
      const opkit_value& known = *opkit_value_at(const_cast<opkit_value*>(graph.values), i);
      types_[value] = InfoOfAbi(known);
      if (known.constant) types_.SetData(value, TensorOfView(*known.constant));
    }
    view_.emplace(structure_, types_,
                  std::vector<char>(partition.taken, partition.taken + graph.num_nodes));
    work_ = partitioner.Begin(*view_, OptionsOfAbi(partition));
  }

  void Mark(const opkit_partition* partition) {
    PartitionAnswer answer(*view_);
    work_->Mark(answer);
    for (int node = 0; node < view_->num_nodes(); ++node) {
      const size_t at = Index(node);
      if (answer.kinds()[at] != kNotTaken)
        AcceptAnswer(partition->take(partition, at, answer.kinds()[at], answer.sets()[at]));
      else if (!answer.reasons()[at].empty())
        AcceptAnswer(partition->refuse(partition, at, answer.reasons()[at].c_str()));
    }
  }
  void Review(const opkit_partition* partition) {
    Graph body = BorrowGraph(*partition->subgraph);
    OperatorDef def = DefinitionOfAbi(partition->op);
    const OperatorDef before = def;
    const size_t constants = body.constants().size();
    const std::vector<int> nodes(partition->nodes, partition->nodes + partition->num_nodes);
    SubgraphReview review(*view_, nodes, body, def, static_cast<int>(partition->id),
                          partition->kind);
    work_->Review(review);
    if (review.is_rejected())
      return AcceptAnswer(partition->reject(partition, review.why_rejected().c_str()));
    for (const NamedAttribute& one : def.args()) {
      const Attribute* had = before.args().Find(one.name);
      if (had && *had == one.value) continue;
      const AbiAttributes attribute(Arguments{{one.name, one.value}});
      AcceptAnswer(partition->set_attr(partition, *attribute.data()));
    }
    for (size_t i = constants; i < body.constants().size(); ++i) {
      const Graph::Constant& added = body.constants()[i];
      const AbiAttributes tensor(Arguments{{"value", added.value}});
      AcceptAnswer(
          partition->add_constant(partition, added.name.c_str(), (*tensor.data())->tensors[0]));
    }
  }

 private:
  const Graph graph_;
  const GraphView structure_;
  GraphTypes types_;
  std::optional<PartitionView> view_;
  std::unique_ptr<PartitionWork> work_;
};

// Runs `call` for the host. After a FAIL the host already has the reason.
template <class Call>
opkit_status AnswerHost(Call call) {
  return GuardedCall([&] {
    try {
      call();
    } catch (const MxFailure&) {
      return OpStatus(FAIL);
    }
    return OpStatus();
  });
}

// An opkit_partitioner for a registered partitioner.
struct OPKIT_IMAGE_LOCAL ExportedPartitioner : RefCounted {
  explicit ExportedPartitioner(IntrusivePtr<const Partitioner> one)
      : partitioner(std::move(one)), name(partitioner->name()) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.subgraph_op = &SubgraphOp;
    abi.begin = &GuardBy<ExportedPartitioner, &ExportedPartitioner::Begin>;
    abi.mark = [](void* work, const opkit_partition* partition) {
      return AnswerHost([&] { WorkOf(work).Mark(partition); });
    };
    abi.review = [](void* work, const opkit_partition* partition) {
      return AnswerHost([&] { WorkOf(work).Review(partition); });
    };
    abi.end = [](void* work) { GuardedCall([&] { delete &WorkOf(work); }); };
    abi.author = this;
  }
  static ExportedPartitionWork& WorkOf(void* work) {
    return *static_cast<ExportedPartitionWork*>(work);
  }
  static const char* SubgraphOp(const opkit_partitioner* self, int32_t kind) {
    auto& own = *static_cast<ExportedPartitioner*>(const_cast<void*>(self->author));
    const char* op = nullptr;
    GuardedCall([&] {
      MutexLock lock(own.mutex);
      op = own.ops.try_emplace(kind, own.partitioner->SubgraphOperator(kind)).first->second.c_str();
    });
    return op;
  }
  void Begin(const opkit_partition* partition, void** work) const {
    *work = new ExportedPartitionWork(*partitioner, *partition);
  }
  const IntrusivePtr<const Partitioner> partitioner;
  const std::string name;
  Mutex mutex;
  std::map<int, std::string> ops;  // by kind, kept for the host
  opkit_partitioner abi{};
};

// An opkit_pass for a registered pass.
struct OPKIT_IMAGE_LOCAL ExportedPass : RefCounted {
  explicit ExportedPass(IntrusivePtr<const NamedPass> one)
      : pass(std::move(one)), name(pass->name()), place(pass->place()) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.file = place.c_str();
    abi.run = &Run;
    abi.author = this;
  }
  static opkit_status Run(const opkit_pass* self, const opkit_rewrite* rewrite) {
    return AnswerHost([&] {
      const auto& own = *static_cast<const ExportedPass*>(self->author);
      const Graph result = own.pass->Run(BorrowGraph(*rewrite->graph), OptionsOfAbi(*rewrite));
      const AbiGraph whole{GraphView(result)};
      AcceptAnswer(rewrite->set_graph(rewrite, &whole.view));
    });
  }

  const IntrusivePtr<const NamedPass> pass;
  const std::string name, place;
  opkit_pass abi{};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_
#endif

// ---- opkit/plugin/export/impl/export_partitioners.ipp
#ifdef OPKIT_PARTITION_HPP_
// Describes the partitioners and passes of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void AddRegisteredPartitioners(LibraryContents& contents) {
  if (IsProgramHost(g_host)) return;
  for (const std::string& name : PartitionerRegistry::Global().Names())
    AddExported<ExportedPartitioner>(contents, contents.partitioners,
                                     PartitionerRegistry::Global().Get(name));
  for (const std::string& name : RegisteredPasses())
    AddExported<ExportedPass>(contents, contents.passes, GetPass(name));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_PARTITIONERS_IPP_
#endif

// ---- opkit/base/impl/algorithm.ipp
#ifdef OPKIT_OPKIT_HPP_
// The definitions of opkit/base/algorithm.hpp.
#ifndef OPKIT_BASE_IMPL_ALGORITHM_IPP_
#define OPKIT_BASE_IMPL_ALGORITHM_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE std::vector<int> SortedOrder(size_t count, FunctionRef<bool(int a, int b)> before) {
  std::vector<int> order(count), merged(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<int>(i);
  // Each run of `width` numbers is sorted already.
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = begin + width < count ? begin + width : count;
      const size_t end = middle + width < count ? middle + width : count;
      size_t a = begin, b = middle, to = begin;
      while (a < middle && b < end)
        merged[to++] = before(order[b], order[a]) ? order[b++] : order[a++];
      while (a < middle) merged[to++] = order[a++];
      while (b < end) merged[to++] = order[b++];
    }
    order.swap(merged);
  }
  return order;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_ALGORITHM_IPP_
#endif

// ---- opkit/op/boundary/convert/impl/abi_config.ipp
#ifdef OPKIT_OPKIT_HPP_
// Conversions of opkit_config in both directions.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void NameLayouts(const std::vector<Layout>& layouts,
                                                     size_t count,
                                                     std::vector<const char*>& names) {
  bool all_standard = true;
  for (const Layout& layout : layouts) all_standard &= layout.is_standard();
  if (all_standard) return;
  if (layouts.size() != count)
    Throw(ErrorCode::kInvalidArgument, "a configuration has ", layouts.size(),
          " layouts, expected ", count);
  for (const Layout& layout : layouts) {
    if (layout.descriptor)
      Throw(ErrorCode::kUnsupported, "the layout ", ToString(layout),
            " has a descriptor, and layouts go to another image by their names alone; register one "
            "layout for each blocking");
    if (!layout.is_standard() && !(g_is_registered_layout && g_is_registered_layout(layout.id)))
      Throw(ErrorCode::kNotFound, "a configuration has ", ToString(layout),
            ", which is not registered; RegisterLayout gives the id");
    names.push_back(layout.is_standard() ? nullptr : g_layout_name_pointer(layout.id));
  }
}

OPKIT_COLD OPKIT_INLINE AbiConfig::AbiConfig(const KernelConfig& config, size_t num_inputs,
                                             size_t num_outputs)
    : variant_(config.variant) {
  NameLayouts(config.input_layouts, num_inputs, inputs_);
  NameLayouts(config.output_layouts, num_outputs, outputs_);
  for (const auto& [input, output] : config.inplace) {
    inplace_.push_back(input);
    inplace_.push_back(output);
  }
  config_.size = sizeof config_;
  config_.input_layouts = inputs_.empty() ? nullptr : inputs_.data();
  config_.output_layouts = outputs_.empty() ? nullptr : outputs_.data();
  config_.num_inplace = config.inplace.size();
  config_.inplace = inplace_.data();
  config_.scratch_bytes = config.scratch_bytes;
  config_.cost_ns = config.cost_ns;
  if (!variant_.empty()) config_.variant = variant_.c_str();
}

OPKIT_INLINE Layout LayoutOfAbi(const char* name) {
  return name ? Layout{g_find_layout(TextOfAbi(name)), {}} : Layout();
}
OPKIT_INLINE Tensor TensorInLayout(const opkit_tensor& view, const char* layout_name) {
  if (!layout_name) return TensorOfView(view);
  RequireView(&view, "a tensor of a library ");
  const Layout layout = LayoutOfAbi(layout_name);
  const Device device{static_cast<DeviceType>(view.device_type), view.device_index};
  const auto dtype = static_cast<DType>(view.dtype);
  Shape shape(Dims(view.shape, static_cast<size_t>(view.rank)));
  const int64_t bytes = g_layout_bytes(layout, shape, dtype);
  return Tensor::FromLayout(AdoptStorage(MemoryDevice(device), view.data, bytes), std::move(shape),
                            dtype, layout);
}
OPKIT_COLD OPKIT_INLINE KernelConfig ConfigOfAbi(const opkit_config* from, size_t num_inputs,
                                                 size_t num_outputs) {
  if (!IsReadable(from))
    Throw(ErrorCode::kInvalidArgument, "a configuration is null, not aligned or shorter than the ",
          kFirstBytes<opkit_config>, " bytes of version 1.3",
          "; fill in opkit_config.size with sizeof(opkit_config)");
  const opkit_config& config = *from;
  if (config.num_inplace > kMostParts || (config.num_inplace > 0 && !config.inplace) ||
      !IsAligned(config.inplace))
    Throw(ErrorCode::kInvalidArgument, "a configuration has ", config.num_inplace,
          " pairs in place", config.inplace ? "" : ", which are null");
  if (!IsAligned(config.input_layouts) || !IsAligned(config.output_layouts))
    Throw(ErrorCode::kInvalidArgument, "a configuration has layouts that are not aligned");
  KernelConfig read;
  const auto add = [](const char* const* names, size_t count, std::vector<Layout>& layouts) {
    for (size_t i = 0; names && i < count; ++i) layouts.push_back(LayoutOfAbi(names[i]));
  };
  add(config.input_layouts, num_inputs, read.input_layouts);
  add(config.output_layouts, num_outputs, read.output_layouts);
  for (uint64_t i = 0; i < config.num_inplace; ++i)
    read.inplace.emplace_back(config.inplace[2 * i], config.inplace[2 * i + 1]);
  read.scratch_bytes = config.scratch_bytes;
  read.cost_ns = config.cost_ns;
  if (OPKIT_ABI_HAS(&config, variant)) read.variant = TextOfAbi(config.variant);
  return read;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_CONFIG_IPP_
#endif

// ---- opkit/op/call/impl/direct_call.ipp
#ifdef OPKIT_OPKIT_HPP_
// The definitions of DirectCall.
#ifndef OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_
#define OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE DirectCall::DirectCall(const Kernel& kernel, const OpSchema& schema,
                                    const OperatorDef& def) try
    : identity_(def),
      call_(*kernel.typed, schema, def),
      device_(MemoryDevice(def.device())),
      inplace_masks_(InplaceMasks(schema, def, nullptr)),
      mutated_inputs_(MutatedInputs(schema, def)),
      inputs_(call_.num_inputs()),
      copies_(def.inputs().size()),
      made_(def.outputs().size()) {
  identity_.file = kernel.file;
  identity_.line = kernel.line;
  identity_.cost = {&schema, &kernel.backend, &ComputeWork};
  outputs_.resize(made_.size());
} catch (...) {
  RethrowFromConstructor(kernel, def);
}

// Releases the tensors of a call.
struct DirectCall::Finish {
  DirectCall& self;
  ~Finish() {
    for (std::vector<Tensor>* tensors : {&self.made_, &self.copies_})
      for (Tensor& tensor : *tensors)
        if (tensor.storage()) const Tensor dropped = std::move(tensor);
    for (const Tensor*& output : self.outputs_) output = nullptr;  // the caller's
  }
};

OPKIT_INLINE void DirectCall::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const Finish finish{*this};
  const InvocationScope invocation(Invocation::Kind::kCustomOperator, device_, [this] {
    if (span_names_.name == 0)
      span_names_ = {InternName(identity_.def.type()), InternName(identity_.def.name())};
    return span_names_;
  });
  try {
    Call(inputs, outputs);
  } catch (...) {
    Fail(inputs);
  }
  if (invocation.is_recorded()) [[unlikely]]
    DescribeSpan();
  for (size_t o = 0; o < outputs.size(); ++o)
    if (outputs_[o] == &made_[o]) outputs[o] = std::move(made_[o]);
}

OPKIT_INLINE void DirectCall::Call(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  const OperatorDef& def = identity_.def;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    inputs_[i] = def.inputs()[i].empty() ? nullptr : &input;
    if (inputs_[i] && (input.device() != device_ || input.has_strides() ||
                       !input.layout().is_standard())) [[unlikely]]
      inputs_[i] = Unusual(i, input);
  }
  if (!inference_.IsFresh(inputs_)) [[unlikely]]
    call_.Infer(def, inputs_, inference_, [] {});
  const size_t version = call_.VersionFor(def, inputs_);
  for (size_t o = 0; o < outputs.size(); ++o)
    outputs_[o] =
        Output(o, inputs, outputs[o], inference_.outputs()[o].shape, call_.OutputDType(version, o));
  CPUContext context(def.device());
  if (!call_.Run(&context, version, inputs_, outputs_.data(), inference_.version())) [[unlikely]]
    ThrowReturnedFalse();
}

OPKIT_INLINE const Tensor* DirectCall::Unusual(size_t i, const Tensor& input) {
  const OperatorDef& def = identity_.def;
  CheckInputDevice(def, i, input, device_);
  if (!input.layout().is_standard() && input.dtype() != DType::kUndefined)
    return &(copies_[i] = g_convert_layout(input, Layout()));
  if (input.is_dense()) return &input;
  if (i < 64 && (mutated_inputs_ >> i & 1)) ThrowMutatedStrides(def, i, input);
  Tensor dense(input.device());
  dense.CopyFrom(input);
  return &(copies_[i] = std::move(dense));
}
OPKIT_INLINE bool DirectCall::Clobbers(size_t o, std::span<const Tensor> inputs,
                                       const Tensor& output) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i] || !inputs[i].SharesMemoryWith(output)) continue;
    const bool may_share = i < 64 && (inplace_masks_[o] >> i & 1);
    if (!may_share || inputs_[i]->raw_data() != output.raw_data()) return true;
  }
  for (size_t other = 0; other < o; ++other)
    if (outputs_[other]->SharesMemoryWith(output)) return true;
  return false;
}
OPKIT_INLINE const Tensor* DirectCall::Output(size_t o, std::span<const Tensor> inputs,
                                              const Tensor& callers, const Shape& shape,
                                              DType dtype) {
  if (callers.dtype() == dtype && callers.shape() == shape && callers.initialized() &&
      callers.device() == device_ && callers.is_dense() && callers.layout().is_standard() &&
      !Clobbers(o, inputs, callers)) [[likely]]
    return &callers;
  return &(made_[o] = OutputTensor(callers, shape, dtype, device_, [&](const Tensor& output) {
             return Clobbers(o, inputs, output);
           }));
}

OPKIT_INLINE void DirectCall::Fail(std::span<const Tensor> inputs) const {
  RethrowDescribed([&](Error& error) {
    std::vector<const Tensor*> given;  // the caller's tensors, not their dense copies
    for (size_t i = 0; i < inputs.size(); ++i)
      given.push_back(identity_.def.inputs()[i].empty() ? nullptr : &inputs[i]);
    AddOperatorContext(error, identity_, given, outputs_);
  });
}
OPKIT_INLINE void DirectCall::DescribeSpan() const noexcept {
  SpanSink* const sink = EndSpanForWork();
  if (!sink) return;
  const auto types = [](const auto& tensors) {
    std::vector<TensorInfo> infos;
    for (const Tensor* tensor : tensors)
      infos.push_back(tensor ? TensorInfo::Of(*tensor) : TensorInfo());
    return infos;
  };
  try {
    sink->Describe(
        identity_.cost.compute(identity_.cost, identity_.def, types(inputs_), types(outputs_)));
  } catch (...) {  // the schema's cost function failed; the run itself succeeded
  }
}

OPKIT_INLINE ResolvedCall MakeDirectCall(const OpSchema& schema, const OperatorDef& def) {
  const OpRegistry& registry = OpRegistry::Global();
  const std::vector<const Kernel*> kernels = registry.FindKernels(def.type(), def.device().type);
  if (kernels.empty()) ThrowNoKernel(def, {});
  const Kernel& kernel = *kernels.front();
  if (kernels.size() > 1 || !kernel.typed || kernel.make_typed) return {};
  // The order of backends does not matter for a single kernel, but OPKIT_BACKENDS may exclude its
  // backend.
  if (const BackendPreference& allowed = AllowedBackends();
      !allowed.empty() && !Contains(allowed, kernel.backend))
    ThrowNoneAllowed(def, kernel.backend);
  if (std::string why = registry.WhyUnavailable(kernel); !why.empty())
    ThrowNoKernel(def, StrCat("\n  backend ", kernel.backend, ": ", why));
  auto call = std::make_unique<DirectCall>(kernel, schema, def);
  return {[call = std::move(call)](std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                   bool) { call->Run(inputs, outputs); }};
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_IMPL_DIRECT_CALL_IPP_
#endif

// ---- opkit/op/function/impl/log_hook.ipp
#ifdef OPKIT_PARTITION_HPP_
// The log hook of the program.
#ifndef OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_
#define OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void LogToStderr(LogLevel level, std::string_view op, std::string_view text) {
  std::fprintf(stderr, "opkit %s: %.*s: %.*s\n", ToString(level), static_cast<int>(op.size()),
               op.data(), static_cast<int>(text.size()), text.data());
}
inline constinit std::atomic<LogHook> g_log_hook{&LogToStderr};
OPKIT_INLINE void WriteLog(LogLevel level, std::string_view op, std::string_view text) {
  g_log_hook.load(std::memory_order_acquire)(level, op, text);
}

}  // namespace detail

OPKIT_INLINE LogHook SetLogHook(LogHook hook) {
  return detail::g_log_hook.exchange(hook ? hook : &detail::LogToStderr, std::memory_order_acq_rel);
}

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_
#endif

// ---- opkit/op/boundary/host/resource_state.hpp
#ifdef OPKIT_PARTITION_HPP_
// The state behind the calls of a function operator: its memory, the operators that it invoked, and
// runs that end after their function. Only the definitions of host_table.hpp and function_body.hpp
// use it.
#ifndef OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tensor with a view of it, whose address does not change.
struct TensorSlot : RefCounted {
  Tensor tensor;
  Shape shape;
  Dims strides;
  OpTensor view;

  // Sets the view to the present state of `viewed`.
  void Bind(const Tensor& viewed, OpReq req) {
    const bool changed = view.dtype() != viewed.dtype() || shape != viewed.shape();
    if (changed) shape = viewed.shape();
    if (changed || !dense || !viewed.is_dense()) strides = viewed.strides();
    dense = viewed.is_dense();
    view = OpTensor(viewed.raw_mutable_data(), viewed.dtype(), shape.data(), strides.data(),
                    shape.rank(), viewed.device(), req);
    view.Bind(&viewed);
  }
  bool dense = false;
};

// An operator that this operator invokes, kept between calls. Each stream has its own instance,
// because work of two streams may run at the same time.
struct InvokedOperator : RefCounted {
  InvokedOperator(const std::string& name, const std::vector<int>& inputs,
                  const Arguments& arguments, const InvokeOptions& options, const void* its_stream)
      : op(name),
        args(arguments),
        present(inputs),
        stream(its_stream),
        resolved(name, inputs, arguments, options) {}
  std::string op;
  Arguments args;
  std::vector<int> present;
  const void* stream;
  ResolvedOperator resolved;
  // True while a thread of the pool runs the operator. Release by that thread, acquire by the next
  // thread that uses it.
  std::atomic<bool> busy{false};
};

// An operator that runs in parallel to its caller.
struct PendingInvoke : RefCounted {
  ThreadPool& pool = ThreadPool::Current();
  Latch done{1};
  std::exception_ptr failure;  // written before the latch opens
  bool failure_taken = false;  // a Wait of the caller has thrown the failure

  void Wait() {
    if (!done.done()) pool.Wait(done);
  }
};

// Adds `term` to `target`, element by element; both are dense.
inline void AddTensor(const Tensor& target, const Tensor& term) {
  const DType dtype = target.dtype();
  auto add = [&]<class T>(std::type_identity<T>, int64_t count) {
    auto* to = static_cast<T*>(target.raw_mutable_data());
    const auto* from = static_cast<const T*>(term.raw_data());
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  };
  if (dtype == DType::kComplex64) {
    add(std::type_identity<float>{}, 2 * target.numel());
  } else if (dtype == DType::kComplex128) {
    add(std::type_identity<double>{}, 2 * target.numel());
  } else {
    DispatchDType<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float16,
                  bfloat16, float, double>(
        dtype, [&]<class T>() { add(std::type_identity<T>{}, target.numel()); });
  }
}
// A result to be added to the elements of the output.
struct Addition {
  Tensor target, term;
};

// The memory that a function has allocated. Work may use the memory after the function has
// returned.
struct RunMemory {
  std::vector<Storage> memory;
  std::vector<IntrusivePtr<TensorSlot>> temporaries;
  std::vector<Addition> additions;

  bool empty() const { return memory.empty() && temporaries.empty() && additions.empty(); }
};

// Makes the outputs whose shapes inference cannot determine.
class OutputMaker {
 public:
  virtual const OpTensor& MakeOutput(size_t output, const Shape& shape, DType dtype) = 0;

 protected:
  ~OutputMaker() = default;
};

// A prepared graph that the program runs for a function operator. `key` is the address of the
// opkit_graph.
class HostedGraph : public RefCounted {
 public:
  explicit HostedGraph(const opkit_graph* graph) : key(graph) {}
  virtual void Run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) = 0;
  const opkit_graph* const key;
};
// Prepares a graph.
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<HostedGraph>(const opkit_graph* graph)>
    g_make_hosted_graph{"run_graph", "opkit/partition.hpp"};

struct ResourceState;
// A run that continues after its function has returned. Ends once two things have happened: the
// function has returned, and the completion handle was used.
struct DeferredRun : RefCounted {
  IntrusivePtr<EventState> event;
  RefCountedList kept;  // views, the operator's state, the library
  // The library's count of deferred runs, for messages (hence relaxed); null for the program's
  // operators.
  std::atomic<int64_t>* count = nullptr;
  ResourceState* state = nullptr;  // state of the run's operator; `kept` keeps it alive
  RunMemory memory;
  std::string op;
  std::exception_ptr failure;  // the failure of the completion, if any
  std::atomic<bool> arrived_once{false};

  // Called twice: when the function returns, and by the completion handle. The second call ends the
  // run. Acquire and release: the second caller reads the first caller's writes.
  void Arrive() {
    if (arrived_once.exchange(true, std::memory_order_acq_rel)) End();
  }

 private:
  inline void End();
};

// The state of an operator that the host table's functions use during a call.
struct ResourceState {
  Device device;
  std::string op;
  bool asynchronous = false;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  Mutex mutex;  // guards `memory`, `deferred_run` and the data of `deferred_run`
  RunMemory memory;
  bool used = false;  // this run has memory, pending operators or a completion handle
  // A deferred run between the return of its function and its completion: memory allocated in this
  // time belongs to it.
  DeferredRun* deferred_run = nullptr;
  std::vector<IntrusivePtr<InvokedOperator>> invoked;
  std::vector<IntrusivePtr<HostedGraph>> graphs;
  // Operators that this run has started; they use its tensors.
  std::vector<IntrusivePtr<PendingInvoke>> pending;
  RefCountedList kept_by_work;          // kept until launched work has run: a library's code
  OutputMaker* output_maker = nullptr;  // set for an operator with allocatesOutputs()
  OperatorBase* deferrable = nullptr;   // set for an operator with async(), while its forward runs
  IntrusivePtr<DeferredRun> deferred;

  // Calls `add` with the memory of the current run.
  template <class Add>
  void Keep(Add add) {
    MutexLock lock(mutex);
    if (deferred_run) return add(deferred_run->memory);
    used = true;
    add(memory);
  }
  // Throws kFailedPrecondition after the function has returned. For services that only the function
  // may use.
  void RequireFunction(const char* what) {
    MutexLock lock(mutex);
    if (deferred_run)
      Throw(ErrorCode::kFailedPrecondition, what, " in operator ", op,
            " after forward has returned; call it before");
  }
  // Waits for all operators that run in parallel to the function; returns the first failure that no
  // Wait has thrown.
  std::exception_ptr AwaitPending() noexcept {
    std::exception_ptr failure;
    for (const auto& one : pending) {
      one->Wait();
      if (!one->failure_taken && !failure) failure = one->failure;
    }
    pending.clear();
    return failure;
  }
  // Moves the function's memory to `run`; called when the function has returned.
  void HandOver(DeferredRun* run) {
    MutexLock lock(mutex);
    run->memory = std::exchange(memory, {});
    run->state = this;
    used = false;
    deferred_run = run;
  }
  void Ended(const DeferredRun* run) {
    MutexLock lock(mutex);
    if (deferred_run == run) deferred_run = nullptr;
  }
};

inline void DeferredRun::End() {
  try {
    if (!failure)
      for (const Addition& sum : memory.additions) AddTensor(sum.target, sum.term);
  } catch (...) {
    failure = std::current_exception();
  }
  if (state) state->Ended(this);
  memory = {};
  if (count) count->fetch_sub(1, std::memory_order_relaxed);
  // Cleared before the event completes: a thread that waits for the event may run the operator
  // again, or unload its library.
  kept.clear();
  event->Complete(std::move(failure));  // no effect for a cancelled run
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_
#endif

// ---- opkit/op/boundary/host/impl/host_table.ipp
#ifdef OPKIT_PARTITION_HPP_
// The host's table: its functions and the failures that they report.
#ifndef OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_
#define OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE HostError& CurrentHostError() {
  static thread_local HostErrorSlot outside;  // used while the thread has no open HostErrorScope
  HostErrorSlot& slot = t_host_error ? *t_host_error : outside;
  if (!slot) slot = MakeIntrusive<HostError>();
  return *slot;
}

OPKIT_INLINE opkit_status KeepFailure(const char* unknown) noexcept {
  HostError& now = CurrentHostError();
  now.exception = std::current_exception();
  return DescribeException(now.failure, unknown);
}

// Runs an operator into the memory of `wanted`; copies results that the operator has placed
// elsewhere. With `native_stream`, only issues the work, on that stream's thread.
inline void RunInto(InvokedOperator& invoked, const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& wanted, void* native_stream = nullptr) {
  std::vector<Tensor> results(wanted);
  native_stream ? invoked.resolved.Issue(inputs, results) : invoked.resolved.Run(inputs, results);
  for (size_t o = 0; o < wanted.size(); ++o) {
    const Tensor &got = results[o], &want = wanted[o];
    if (got.dtype() != want.dtype() || got.shape() != want.shape())
      Throw(ErrorCode::kInvalidArgument, "invoke(\"", invoked.op, "\"): output ", o, " is ", got,
            ", but the tensor given for it is ", want);
    if (got.raw_data() == want.raw_data() || want.nbytes() == 0) continue;
    if (!want.is_dense())
      Throw(ErrorCode::kUnsupported, "invoke(\"", invoked.op, "\"): output ", o, ", ", want,
            ", is strided; give it a dense tensor and copy from there");
    CopyElements(got, want, native_stream);
  }
}

// The functions of the table, each with the signature that opkit_abi.h declares.
struct OPKIT_IMAGE_LOCAL HostFunctions {
  // Makes a function of the table from a function that throws its failures.
  template <auto kBody, class... Args>
  static opkit_status Answer(Args... args) {
    return AnswerCaller([&] { kBody(args...); });
  }

  static ResourceState& StateOf(const opkit_call* call) {
    if (!call)
      Throw(ErrorCode::kInvalidArgument,
            "a function of the host's table is called without its opkit_call");
    return *static_cast<ResourceState*>(call->context);
  }

  // Throws the kept exception, if any.
  static void RethrowKept() {
    if (std::exception_ptr kept = std::exchange(CurrentHostError().exception, nullptr))
      std::rethrow_exception(kept);
  }
  // Throws the failure that an operator's function has reported.
  [[noreturn]] OPKIT_COLD static void Rethrow(opkit_status status) {
    const std::string text = std::exchange(CurrentHostError().text, {});
    RethrowKept();
    throw Error(CodeOfStatus(status), text);
  }
  [[noreturn]] OPKIT_COLD static void NotOnThisDevice(const ResourceState& state,
                                                      const char* what) {
    Throw(ErrorCode::kUnsupported, what, " in operator ", state.op, " is not possible on ",
          state.device, "; issue the work on stream() yourself");
  }

  static void SetError(opkit_status, const char* text, uint64_t size) {
    HostError& now = CurrentHostError();
    now.text = TextOfSize(text, size);
    now.exception = nullptr;
  }
  static void AddError(const char* text, uint64_t size) {
    CurrentHostError().text += TextOfSize(text, size);
  }
  // Returns the text, at most `size` bytes of it.
  static std::string_view TextOfSize(const char* text, uint64_t size) {
    if (!text) return {};
    return {text, ::strnlen(text, (std::min)(size, kMostTextBytes))};
  }
  static const char* FailureText() { return CurrentHostError().failure.c_str(); }

  static void Alloc(const opkit_call* call, int64_t bytes, void** memory) {
    ResourceState& state = StateOf(call);
    RequireRoom(memory, "alloc()");
    *memory = nullptr;
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "alloc(", bytes, ") in operator ", state.op,
            " asks for less than 0 bytes");
    Storage storage = AllocateStorage(MemoryDevice(state.device), bytes);
    *memory = storage->data();
    state.Keep([&](RunMemory& kept) { kept.memory.push_back(std::move(storage)); });
  }
  static Shape ShapeOfCall(const ResourceState& state, const char* what, int32_t dtype,
                           int32_t rank, const int64_t* shape) {
    if (dtype <= 0 || dtype >= kNumPlainDTypes || rank < 0 || rank > OPKIT_MAX_RANK ||
        (rank > 0 && !IsUsable(shape)))
      Throw(ErrorCode::kInvalidArgument, what, " of dtype ", dtype, " and rank ", rank,
            " in operator ", state.op, " has no such dtype or rank, or a null shape");
    return Shape(Dims(shape, static_cast<size_t>(rank)));
  }
  static void Temporary(const opkit_call* call, int32_t dtype, int32_t rank, const int64_t* shape,
                        opkit_tensor* tensor) {
    ResourceState& state = StateOf(call);
    auto slot = MakeIntrusive<TensorSlot>();
    slot->tensor = Tensor(ShapeOfCall(state, "temporary", dtype, rank, shape),
                          static_cast<DType>(dtype), MemoryDevice(state.device));
    slot->Bind(slot->tensor, OpReq::kWrite);
    CopyView(slot->view.view(), tensor);
    state.Keep([&](RunMemory& kept) { kept.temporaries.push_back(std::move(slot)); });
  }
  static void AllocateOutput(const opkit_call* call, uint64_t output, int32_t dtype, int32_t rank,
                             const int64_t* shape, opkit_tensor* tensor) {
    ResourceState& state = StateOf(call);
    state.RequireFunction("allocate_output");
    if (!state.output_maker)
      Throw(ErrorCode::kFailedPrecondition, "allocate_output in operator ", state.op,
            state.asynchronous && state.launch
                ? ", which runs on a stream of the CPU's, where all shapes must be inferred"
                : ": only forward of an operator with .allocatesOutputs() makes its outputs");
    CopyView(state.output_maker
                 ->MakeOutput(output, ShapeOfCall(state, "output", dtype, rank, shape),
                              static_cast<DType>(dtype))
                 .view(),
             tensor);
  }
  // Copies the members that exist in the caller's version.
  static void CopyView(const opkit_tensor& from, opkit_tensor* to) {
    RequireRoom(to, "a tensor");
    if (!IsReadable(to, 0))
      Throw(ErrorCode::kInvalidArgument, "the room for a tensor says ", to->size,
            " bytes; fill in opkit_tensor.size with sizeof(opkit_tensor)");
    const uint64_t size = to->size < sizeof from ? to->size : sizeof from;
    std::memcpy(static_cast<void*>(to), &from, size);
    to->size = size;
  }

  static opkit_status ParallelFor(const opkit_call*, int64_t n, int64_t grain,
                                  opkit_status (*body)(void*, int64_t, int64_t), void* context) {
    struct Stopped {
      opkit_status status;
      std::string text;
    };
    try {
      if (!body) Throw(ErrorCode::kInvalidArgument, "parallel_for() is given a null function");
      ParallelForRange(n, grain, [&](int64_t begin, int64_t end) {
        const HostErrorScope message;
        if (const opkit_status status = body(context, begin, end); status != OPKIT_OK) [[unlikely]]
          throw Stopped{status, CurrentHostError().text};
      });
      return OPKIT_OK;
    } catch (const Stopped& stopped) {
      HostError& now = CurrentHostError();
      if (now.text.empty()) now.text = stopped.text;
      now.failure = stopped.text;
      return stopped.status;
    } catch (...) {
      return KeepFailure("a loop of the host's threw something that is not a std::exception");
    }
  }

  // A function and its data as work for a stream.
  struct Launched {
    opkit_status (*work)(void*);
    void (*drop)(void*);
    void* context;
    RefCountedList kept;  // keeps a library's code loaded while its work waits

    Launched(opkit_status (*run)(void*), void (*end)(void*), void* argument)
        : work(run), drop(end), context(argument) {}
    Launched(Launched&& other) noexcept
        : work(other.work),
          drop(std::exchange(other.drop, nullptr)),
          context(other.context),
          kept(std::move(other.kept)) {}
    ~Launched() {
      if (drop) drop(context);
    }
    void operator()() {
      HostErrorScope message;
      if (const opkit_status status = work(context); status != OPKIT_OK) Rethrow(status);
    }
  };
  static void Launch(const opkit_call* call, opkit_status (*work)(void*), void (*drop)(void*),
                     void* context) {
    Launched launched(work, drop, context);
    ResourceState& state = StateOf(call);
    if (!work)
      Throw(ErrorCode::kInvalidArgument, "launch() in operator ", state.op,
            " is given a null function");
    if (!state.launch) NotOnThisDevice(state, "launch");
    launched.kept = state.kept_by_work;
    state.launch(state.context, std::move(launched));
  }

  static std::vector<Tensor> Tensors(const opkit_tensor* views, uint64_t count) {
    std::vector<Tensor> tensors;
    if (count > kMostParts || (count > 0 && !IsReadable(views)))
      Throw(ErrorCode::kInvalidArgument, "invoke() is given ", count,
            " tensors that are null or shorter than version 1.0's");
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_tensor& view = *opkit_tensor_at(views, i);
      if (view.dtype == OPKIT_UNDEFINED)
        tensors.emplace_back();
      else
        tensors.push_back(TensorOfView(view, static_cast<const Tensor*>(view.host)));
    }
    return tensors;
  }
  static constexpr size_t kMostInvoked = 32;  // attributes may differ in every call
  static IntrusivePtr<InvokedOperator> Resolve(ResourceState& state, const std::string& op,
                                               const std::vector<Tensor>& inputs,
                                               size_t num_outputs, const Arguments& args,
                                               Device device, const void* stream) {
    std::vector<int> present = PresentInputs(inputs);
    for (const auto& known : state.invoked)
      if (!known->busy.load(std::memory_order_acquire) && known->stream == stream &&
          known->op == op && known->args == args && known->present == present &&
          Index(known->resolved.num_outputs()) == num_outputs)
        return known;
    const InvokeOptions options{device, {}, static_cast<int>(num_outputs)};
    auto made = MakeIntrusive<InvokedOperator>(op, present, args, options, stream);
    if (state.invoked.size() >= kMostInvoked) state.invoked.erase(state.invoked.begin());
    state.invoked.push_back(made);
    return made;
  }
  // Runs an operator on tensors of the call. If the call is not asynchronous and `pending` is not
  // null, a thread of the pool runs the operator. Returns false if that thread may still run it.
  static bool InvokeOn(const opkit_call* call, const char* op, std::vector<Tensor> ins,
                       std::vector<Tensor> outs, const Arguments& args, PendingInvoke* pending) {
    ResourceState& state = StateOf(call);
    if (!op) Throw(ErrorCode::kInvalidArgument, "invoke() has no operator's name");
    const bool is_native = call->asynchronous && !state.launch;
    const NativeStreamFunction on_stream =
        is_native ? FindNativeStreams(state.device.type) : nullptr;
    if (is_native && !on_stream) NotOnThisDevice(state, "invoke");
    // The stream's thread runs the operator as on the CPU.
    const Device device = state.launch && state.asynchronous ? Device{} : state.device;
    IntrusivePtr<InvokedOperator> invoked =
        Resolve(state, TextOfAbi(op), ins, outs.size(), args, device, call->stream);
    if (pending && !call->asynchronous && pending->pool.threads() > 1) {
      RunBeside(state, std::move(invoked), std::move(ins), std::move(outs), pending);
      return false;
    }
    if (!call->asynchronous)
      RunInto(*invoked, ins, outs);
    else if (is_native)
      on_stream(device, call->stream, [&] { RunInto(*invoked, ins, outs, call->stream); });
    else
      state.launch(state.context, [invoked = std::move(invoked), ins = std::move(ins),
                                   outs = std::move(outs)] { RunInto(*invoked, ins, outs); });
    return true;
  }
  static void Invoke(const opkit_call* call, const char* op, uint64_t num_inputs,
                     const opkit_tensor* inputs, uint64_t num_outputs, const opkit_tensor* outputs,
                     uint64_t num_attrs, const opkit_attr* const* attrs) {
    InvokeOn(call, op, Tensors(inputs, num_inputs), Tensors(outputs, num_outputs),
             ArgumentsOfAbi(attrs, num_attrs), nullptr);
  }
  static void RunBeside(ResourceState& state, IntrusivePtr<InvokedOperator> invoked,
                        std::vector<Tensor> ins, std::vector<Tensor> outs, PendingInvoke* pending) {
    const IntrusivePtr<PendingInvoke> kept(pending);
    state.pending.push_back(kept);
    state.used = true;
    invoked->busy.store(true, std::memory_order_relaxed);  // the pool's queue publishes it
    try {
      pending->pool.Submit([kept, invoked, ins = std::move(ins), outs = std::move(outs)]() mutable {
        try {
          RunInto(*invoked, ins, outs);
        } catch (...) {
          kept->failure = std::current_exception();
        }
        // Releases the tensors and the operator before the waiting caller continues.
        ins.clear();
        outs.clear();
        std::exchange(invoked, {})->busy.store(false, std::memory_order_release);
        kept->done.CountDown();
      });
    } catch (...) {
      state.pending.pop_back();
      invoked->busy.store(false, std::memory_order_relaxed);
      throw;
    }
  }
  static void InvokeAsync(const opkit_call* call, const char* op, uint64_t num_inputs,
                          const opkit_tensor* inputs, uint64_t num_outputs,
                          const opkit_tensor* outputs, uint64_t num_attrs,
                          const opkit_attr* const* attrs, opkit_pending** handle) {
    RequireRoom(handle, "invoke_async()");
    *handle = nullptr;
    ResourceState& state = StateOf(call);
    state.RequireFunction("invoke_async");
    const auto pending = MakeIntrusive<PendingInvoke>();
    if (InvokeOn(call, op, Tensors(inputs, num_inputs), Tensors(outputs, num_outputs),
                 ArgumentsOfAbi(attrs, num_attrs), pending.get())) {
      pending->done.CountDown();
      state.pending.push_back(pending);
      state.used = true;
    }
    *handle = reinterpret_cast<opkit_pending*>(pending.get());
  }
  static void Wait(const opkit_call*, opkit_pending* handle) {
    if (!handle) Throw(ErrorCode::kInvalidArgument, "wait() has no handle");
    auto* const pending = reinterpret_cast<PendingInvoke*>(handle);
    pending->Wait();
    pending->failure_taken = true;
    if (pending->failure) std::rethrow_exception(pending->failure);
  }

  static void RunGraph(const opkit_call* call, const opkit_graph* graph, uint64_t num_inputs,
                       const opkit_tensor* inputs, uint64_t num_outputs,
                       const opkit_tensor* outputs) {
    ResourceState& state = StateOf(call);
    if (!graph)
      Throw(ErrorCode::kInvalidArgument, "run_graph() in operator ", state.op,
            " is given a null graph");
    if (!IsHostAccessible(state.device.type)) NotOnThisDevice(state, "run_graph");
    const auto known = std::ranges::find(state.graphs, graph, [](auto& one) { return one->key; });
    const IntrusivePtr<HostedGraph> ready =
        known == state.graphs.end() ? g_make_hosted_graph(graph) : *known;
    if (known == state.graphs.end()) state.graphs.push_back(ready);
    std::vector<Tensor> ins = Tensors(inputs, num_inputs), outs = Tensors(outputs, num_outputs);
    if (!call->asynchronous) return ready->Run(ins, outs);
    state.launch(state.context,
                 [ready, ins = std::move(ins), outs = std::move(outs)] { ready->Run(ins, outs); });
  }

  static void Log(const opkit_call* call, int32_t level, const char* text) {
    const bool known = level >= OPKIT_LOG_INFO && level <= OPKIT_LOG_ERROR;
    static_cast<void>(AnswerCaller([&] {
      WriteLog(known ? static_cast<LogLevel>(level) : LogLevel::kError,
               call ? StateOf(call).op : std::string(), TextOfAbi(text));
    }));
  }

  static_assert(sizeof(InvocationScope) <= sizeof(opkit_scope));
  static uint32_t NameOfSpan(const char* name) { return name ? InternName(TextOfSpan(name)) : 0; }
  static std::string_view TextOfSpan(const char* name) { return TextOfSize(name, kMostTextBytes); }
  static void ScopeBegin(const opkit_call*, const char* name, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    new (static_cast<void*>(scope)) InvocationScope(
        Invocation::Kind::kUserCode, [&] { return SpanNames::OfText(TextOfSpan(name)); });
  }
  static void ScopeEnd(opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    std::launder(reinterpret_cast<InvocationScope*>(scope))->~InvocationScope();
  }
  static void CurrentIdentity(opkit_invocation* identity) {
    if (IsUsable(identity)) *identity = ToAbi(CurrentInvocation());
  }
  static void Adopt(const opkit_invocation* identity, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    Invocation token = IsUsable(identity) ? FromAbi(*identity) : CurrentInvocation();
    token.flushes_denormals = CurrentInvocation().flushes_denormals;  // the ABI has no place for it
    new (static_cast<void*>(scope)) InvocationScope(InvocationScope::Adopt(token));
  }

  static void Defer(const opkit_call* call, opkit_completion** completion) {
    ResourceState& state = StateOf(call);
    RequireRoom(completion, "defer()");
    *completion = nullptr;
    state.RequireFunction("defer()");
    if (!state.deferrable)
      Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
            state.asynchronous
                ? ", which runs on a stream already: issue the work there"
                : ": only forward of an operator with .async() may end later than it returns");
    if (state.deferred)
      Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
            " is called twice in a run");
    auto run = MakeIntrusive<DeferredRun>();
    run->event = state.deferrable->event().state();
    run->op = state.op;
    state.deferred = run;
    state.used = true;
    *completion = reinterpret_cast<opkit_completion*>(new IntrusivePtr<DeferredRun>(run));
  }
  static void Complete(opkit_completion* completion, opkit_status status, const char* text) {
    if (!completion) return;
    auto* handle = reinterpret_cast<IntrusivePtr<DeferredRun>*>(completion);
    const IntrusivePtr<DeferredRun> run = *handle;
    delete handle;
    if (status != OPKIT_OK)
      run->failure = std::make_exception_ptr(
          Error(CodeOfStatus(status),
                StrCat("operator ", run->op, " failed after it had returned",
                       text && *text ? ": " : "", TextOfSize(text, kMostTextBytes))));
    run->Arrive();
  }

  static int32_t HasOperator(const char* op) {
    bool has = false;
    static_cast<void>(AnswerCaller(
        [&] { has = static_cast<bool>(OpRegistry::Global().FindSchema(TextOfAbi(op))); }));
    return has;
  }
  static void Infer(const opkit_node* node, opkit_value* inputs, opkit_value* outputs) {
    const RegistryUse use;
    const NodeOfAbi asked(node, inputs, outputs);
    InferenceContext context(asked.def, asked.inputs.infos(), asked.outputs.infos());
    const OpSchema& schema = OpRegistry::Global().GetSchema(asked.def.type());
    CheckNode(schema, asked.def);
    schema.Infer(context);
    for (const auto& [infos, values] :
         {std::pair(&context.inputs(), inputs), std::pair(&context.outputs(), outputs)}) {
      ValuesOfAbi::StoreTypes(*infos, values);
      ValuesOfAbi::StoreShapes(*infos, values);
    }
  }

  static void Allocate(int32_t device_type, int32_t device_index, int64_t bytes, void** memory,
                       void** owner) {
    RequireRoom(memory, "allocate()");
    RequireRoom(owner, "allocate()");
    *memory = *owner = nullptr;
    if (bytes <= 0) Throw(ErrorCode::kInvalidArgument, "allocate(", bytes, ") asks for no memory");
    Allocator& allocator = GetAllocator(static_cast<DeviceType>(device_type));
    *memory = allocator.Allocate(bytes, device_index);
    *owner = &allocator;
  }
  static void Deallocate(void* owner, void* memory, int64_t bytes) {
    if (owner) static_cast<Allocator*>(owner)->Deallocate(memory, bytes);
  }

  static int32_t IsProfiling() { return static_cast<bool>(CurrentSpanSink()); }
  static void SpanBegin(int32_t kind, const char* name, const char* node, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    const bool is_kind = kind >= 0 && kind <= static_cast<int32_t>(Invocation::Kind::kEngine);
    new (static_cast<void*>(scope)) InvocationScope(
        is_kind ? static_cast<Invocation::Kind>(kind) : Invocation::Kind::kUserCode, [&] {
          return SpanNames{NameOfSpan(name), NameOfSpan(node)};
        });
  }

  static void Keep() noexcept { CurrentHostError().exception = std::current_exception(); }

  static constexpr opkit_host kTable{sizeof(opkit_host),
                                     nullptr,
                                     OPKIT_ABI_MAJOR,
                                     OPKIT_ABI_MINOR,
                                     OPKIT_VERSION_STRING,
                                     &SetError,
                                     &AddError,
                                     &FailureText,
                                     &Answer<&Alloc>,
                                     &Answer<&Temporary>,
                                     &ParallelFor,
                                     &Answer<&Launch>,
                                     &Answer<&Invoke>,
                                     &Log,
                                     &ScopeBegin,
                                     &ScopeEnd,
                                     &CurrentIdentity,
                                     &Adopt,
                                     &Answer<&Defer>,
                                     &Complete,
                                     &Answer<&AllocateOutput>,
                                     &Answer<&InvokeAsync>,
                                     &Answer<&Wait>,
                                     &Answer<&RunGraph>,
                                     &HasOperator,
                                     &Answer<&Infer>,
                                     &Answer<&Allocate>,
                                     &Deallocate,
                                     &IsProfiling,
                                     &SpanBegin};
  static constexpr ExceptionKeeper kExceptions{&Keep, &RethrowKept};
};

OPKIT_INLINE const opkit_host& HostTable::Global() {
  g_program_host.store(&HostFunctions::kTable, std::memory_order_relaxed);
  if (!g_host) {
    g_exceptions = &HostFunctions::kExceptions;
    g_host = &HostFunctions::kTable;
  }
  return HostFunctions::kTable;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_
#endif

#endif  // OPKIT_DEFINITIONS

#endif  // OPKIT_SINGLE_INCLUDE_OP_HPP_

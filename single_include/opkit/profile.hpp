// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds opkit/profile.hpp and all that it includes; another single
// header, or a header of the same checkout, may be included beside it, in any order. Declarations
// come first, then the definitions, which a program that defines OPKIT_COMPILED leaves to the one
// unit that defines OPKIT_IMPLEMENTATION.
#ifndef OPKIT_SINGLE_INCLUDE_PROFILE_HPP_
#define OPKIT_SINGLE_INCLUDE_PROFILE_HPP_

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
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
#include <memory>
#include <new>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unistd.h>
#include <utility>
#include <vector>

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

// ---- opkit/not_included.hpp
// Declares names that opkit/opkit.hpp leaves out, so that the compiler's error for a program that
// uses them names the missing header. A macro becomes one static_assert; a class is declared with
// its header's name beside it.
#ifndef OPKIT_NOT_INCLUDED_HPP_
#define OPKIT_NOT_INCLUDED_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class AttrMap;            // defined in opkit/functions.hpp
class OpTensor;           // defined in opkit/functions.hpp
class OpResource;         // defined in opkit/functions.hpp
class GradientMakerBase;  // defined in opkit/op/gradient/gradient.hpp
class Profiler;           // defined in opkit/profile.hpp

}}  // namespace opkit

// For a variable of an incomplete class, clang shows the class's declaration. g++ does not; for an
// unknown name it suggests the same name in another namespace and shows that declaration.
// clang-format off
#ifdef __clang__
namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
#else
namespace opkit_not_included {
#endif
// clang-format on

class Graph;            // defined in opkit/graph.hpp
class Plan;             // defined in opkit/graph.hpp
class Executor;         // defined in opkit/graph.hpp
class SimpleNet;        // defined in opkit/graph/simple_net.hpp
class PassList;         // defined in opkit/partition.hpp
struct PlanOptions;     // defined in opkit/graph.hpp
struct Profile;         // defined in opkit/profile.hpp
struct ProfileTable;    // defined in opkit/profile.hpp
struct ProfileOptions;  // defined in opkit/profile.hpp
class Library;          // defined in opkit/plugin.hpp

#ifdef __clang__
}
}  // namespace opkit
#else
}  // namespace opkit_not_included
#endif

// Prints the error. The variable template then absorbs the rest of the statement, which the
// compiler does not check.
#define OPKIT_NOT_INCLUDED(macro, header)                            \
  static_assert(false, #macro " needs #include <opkit/" header ">"); \
  template <class Builder>                                           \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_not_included_) = Builder()

#ifndef OPKIT_REGISTER_OP
#define OPKIT_REGISTER_OP(name) OPKIT_NOT_INCLUDED(REGISTER_OP, "functions.hpp")
#endif
#ifndef OPKIT_REGISTER_PARTITIONER
#define OPKIT_REGISTER_PARTITIONER(name) OPKIT_NOT_INCLUDED(REGISTER_PARTITIONER, "partition.hpp")
#endif
#ifndef OPKIT_REGISTER_PASS
#define OPKIT_REGISTER_PASS(name) OPKIT_NOT_INCLUDED(REGISTER_PASS, "partition.hpp")
#endif
#ifndef OPKIT_REGISTER_GRADIENT
#define OPKIT_REGISTER_GRADIENT(...) \
  OPKIT_NOT_INCLUDED(REGISTER_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_REGISTER_GRADIENT_STR(...) \
  OPKIT_NOT_INCLUDED(REGISTER_GRADIENT_STR, "op/gradient/gradient.hpp")
#define OPKIT_NO_GRADIENT(name) OPKIT_NOT_INCLUDED(NO_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) \
  OPKIT_NOT_INCLUDED(SHOULD_NOT_DO_GRADIENT, "op/gradient/gradient.hpp")
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) \
  OPKIT_NOT_INCLUDED(GRADIENT_NOT_IMPLEMENTED_YET, "op/gradient/gradient.hpp")
#endif

#endif  // OPKIT_NOT_INCLUDED_HPP_

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

// ---- opkit/core/symbolic_shape.hpp
// Shapes that are not fully known yet: an extent is a number, a symbol (`Sym("N")`) or unknown,
// perhaps with an upper bound, and the rank itself may be unknown. Shape inference reads and writes
// such shapes.
#ifndef OPKIT_CORE_SYMBOLIC_SHAPE_HPP_
#define OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Thrown by functions that need a rank or an extent that is not known. If an inference function
// throws it, nothing can be inferred yet; Compile does not report it as an Error.
class OPKIT_VISIBLE NotKnownYet : public Error {
 public:
  explicit NotKnownYet(std::string what) : Error(ErrorCode::kFailedPrecondition, std::move(what)) {}
};

}  // namespace detail

// An extent of a shape. Two symbols of the same name are the same extent; two unknown extents may
// differ.
class Dim {
 public:
  class Expr;

  Dim() = default;  // unknown
  Dim(int64_t value) : value_(value), most_(value) {
    if (value < 0) Throw(ErrorCode::kInvalidArgument, "extent ", value, " is negative");
  }
  static Dim Symbol(std::string name);
  // Returns an extent that a run decides, with an upper bound for the planning of memory.
  static Dim AtMost(int64_t most);
  // Returns an unknown extent that is no larger than the largest value of `whole`; without a bound
  // if `whole` has none.
  static Dim AtMost(const Dim& whole) { return whole.most_ < 0 ? Dim() : AtMost(whole.most_); }

  bool is_known() const { return value_ >= 0; }
  bool is_symbol() const { return !symbol_.empty(); }
  bool is_unknown() const { return !is_known() && !is_symbol(); }
  // Returns the number. Error (kFailedPrecondition) unless it is known.
  int64_t value() const;
  const std::string& symbol() const { return symbol_; }
  // Returns the largest value that the extent can have: a number itself, or the upper bound;
  // nothing without a bound.
  std::optional<int64_t> most() const {
    return most_ < 0 ? std::nullopt : std::optional<int64_t>(most_);
  }

  friend bool operator==(const Dim&, const Dim&) = default;
  friend std::string ToString(const Dim& dim);
  // True unless the two extents are known to differ.
  static bool Compatible(const Dim& a, const Dim& b) { return !a.IsAbove(b) && !b.IsAbove(a); }
  // Merges two descriptions of one extent: a number is kept before a symbol, a symbol before
  // unknown, the lower bound before the higher. Returns nothing if they contradict each other.
  static std::optional<Dim> Merge(const Dim& a, const Dim& b);
  // Returns the extent that is `a` or `b`: `a` if both are equal, else an unknown extent with the
  // larger of the two bounds, or without a bound if one of them has none.
  static Dim Either(const Dim& a, const Dim& b);

 private:
  bool IsAbove(const Dim& other) const {
    return is_known() && other.most_ >= 0 && value_ > other.most_;
  }

  int64_t value_ = -1;
  int64_t most_ = -1;  // negative: any
  std::string symbol_;
};

inline Dim Sym(std::string name) { return Dim::Symbol(std::move(name)); }

// A number computed from extents, as in `x[1] - w[0] + 1`. Negative numbers are allowed. The result
// is unknown if one extent is not a number, and has a bound if extents with bounds are added to
// each other or combined with numbers. Converts to Dim; Error (kInvalidArgument) for a negative
// number.
class Dim::Expr {
 public:
  Expr(int64_t value) : value_(value), most_(value) {}
  Expr(const Dim& dim) : most_(dim.most()) {
    if (dim.is_known()) value_ = dim.value();
  }
  operator Dim() const;

  // Errors: kOutOfRange past int64, kInvalidArgument for a division by 0. Division rounds towards
  // 0.
  friend Expr operator+(const Expr& a, const Expr& b) { return Compute(a, '+', b); }
  friend Expr operator-(const Expr& a, const Expr& b) { return Compute(a, '-', b); }
  friend Expr operator*(const Expr& a, const Expr& b) { return Compute(a, '*', b); }
  friend Expr operator/(const Expr& a, const Expr& b) { return Compute(a, '/', b); }

 private:
  static Expr Compute(const Expr& a, char op, const Expr& b);
  static std::optional<int64_t> MostOf(const Expr& a, char op, const Expr& b);

  std::optional<int64_t> value_;
  std::optional<int64_t> most_;  // the largest value that it can have
};
Dim::Expr operator+(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator-(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator*(const Dim::Expr& a, const Dim::Expr& b);
Dim::Expr operator/(const Dim::Expr& a, const Dim::Expr& b);

// A shape whose extents may be symbols or unknown. The rank of a default-constructed shape is
// unknown too.
class SymbolicShape {
 public:
  SymbolicShape() = default;
  SymbolicShape(std::initializer_list<Dim> dims) : dims_(dims), has_rank_(true) {}
  explicit SymbolicShape(std::vector<Dim> dims) : dims_(std::move(dims)), has_rank_(true) {}
  SymbolicShape(const Shape& shape) : dims_(shape.begin(), shape.end()), has_rank_(true) {}
  // Returns a shape of `rank` unknown extents.
  static SymbolicShape OfRank(int rank) {
    return SymbolicShape(std::vector<Dim>(static_cast<size_t>(rank)));
  }

  bool has_rank() const { return has_rank_; }
  int rank() const {
    if (!has_rank_) throw detail::NotKnownYet("the rank is not known yet");
    return static_cast<int>(dims_.size());
  }
  bool is_known() const {
    for (const Dim& dim : dims_)
      if (!dim.is_known()) return false;
    return has_rank_;
  }
  const std::vector<Dim>& dims() const { return dims_; }
  // Negative axes count from the end. Errors: kOutOfRange for an axis that is not there,
  // kFailedPrecondition while the rank is not known.
  const Dim& operator[](int axis) const { return dims_[Axis(axis)]; }
  Dim& operator[](int axis) { return dims_[Axis(axis)]; }
  const Dim& dim(int axis) const { return dims_[Axis(axis)]; }
  int size() const { return rank(); }
  // Returns the shape. Error (kFailedPrecondition) unless every extent is known.
  Shape ToShape() const;
  // Returns the number of elements. Errors as for ToShape.
  int64_t numel() const { return ToShape().numel(); }
  // Returns the number of elements as an extent: a number, a bound, or unknown.
  Dim Elements() const;
  // False if `shape` has another rank, or an extent that is known to differ.
  bool Allows(const Shape& shape) const;
  // Returns the largest value of each extent; nothing if an extent has no bound, or if their
  // product exceeds int64.
  std::optional<Shape> Most() const;

  // Merges two descriptions of one shape, extent by extent. Returns nothing if they contradict each
  // other.
  static std::optional<SymbolicShape> Merge(const SymbolicShape& a, const SymbolicShape& b);

  friend bool operator==(const SymbolicShape&, const SymbolicShape&) = default;
  OPKIT_COLD friend std::string ToString(const SymbolicShape& shape) {
    return shape.has_rank_ ? StrCat(shape.dims_) : "[rank unknown]";
  }

 private:
  size_t Axis(int axis) const;
  std::vector<Dim> dims_;
  bool has_rank_ = false;
};

}}  // namespace opkit

#endif  // OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

// ---- opkit/base/timeout.hpp
// Timeout: how long to wait. Takes any std::chrono duration without including <chrono>.
#ifndef OPKIT_BASE_TIMEOUT_HPP_
#define OPKIT_BASE_TIMEOUT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   event.Finish();                                // for ever
//   event.Finish(std::chrono::milliseconds(50));
class Timeout {
 public:
  constexpr Timeout() = default;
  // Takes a std::chrono::duration, rounded down to nanoseconds. A negative duration counts as 0; a
  // duration past int64 nanoseconds is for ever.
  template <class Duration>
    requires requires(const Duration& d) {
      d.count();
      Duration::period::num;
    }
  constexpr Timeout(const Duration& duration) {
    const auto ns = static_cast<long double>(duration.count()) * 1e9L *
                    static_cast<long double>(Duration::period::num) /
                    static_cast<long double>(Duration::period::den);
    if (ns < 9.2e18L) ns_ = ns > 0 ? static_cast<int64_t>(ns) : 0;
  }

  constexpr bool is_forever() const { return ns_ < 0; }
  constexpr int64_t ns() const { return ns_; }
  // Returns the deadline on the clock of detail::MonotonicNs; -1 for ever.
  int64_t DeadlineNs() const {
    if (is_forever()) return -1;
    int64_t deadline = 0;
    return __builtin_add_overflow(detail::MonotonicNs(), ns_, &deadline) ? -1 : deadline;
  }

 private:
  int64_t ns_ = -1;
};

}}  // namespace opkit

#endif  // OPKIT_BASE_TIMEOUT_HPP_

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

// ---- opkit/device/event.hpp
// Event: completion of work on a device. An event is INITIALIZED, then SCHEDULED once work is
// issued, then SUCCESS or FAILED until Reset. Operators record one event per run; executors and
// streams wait for it. The thread that completes the event wakes the waiters and calls the
// callbacks.
#ifndef OPKIT_DEVICE_EVENT_HPP_
#define OPKIT_DEVICE_EVENT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class EventStatus : uint8_t { kInitialized, kScheduled, kSuccess, kFailed };

inline const char* ToString(EventStatus status) {
  constexpr const char* kNames[] = {"INITIALIZED", "SCHEDULED", "SUCCESS", "FAILED"};
  return kNames[static_cast<int>(status)];
}
constexpr bool IsTerminal(EventStatus status) { return status >= EventStatus::kSuccess; }

namespace detail {

// Describes an operator or a task, in case its work fails after its caller has returned.
class FailureContext : public RefCounted {
 public:
  virtual std::string Describe() const = 0;
};

}  // namespace detail

// The state that the handles of one event share with its device. A device that does not report
// completion to the host by itself derives a class from it.
class EventState : public detail::RefCounted {
 public:
  // How long a waiting thread polls a device before it sleeps. About twice the time of a GPU
  // driver's notification and the thread's wake-up, and several times that of a small kernel.
  static constexpr int64_t kPolledNs = 100'000;

  // Returns the status. Acquire: a thread that sees SUCCESS or FAILED also sees the writes of the
  // work, and `exception_`.
  EventStatus status() const { return status_.load(std::memory_order_acquire); }

  // Returns the failure, or null. May be called only after a terminal status: no thread writes it
  // any more.
  const std::exception_ptr& exception() const { return exception_; }

  // Changes INITIALIZED to SCHEDULED. Returns false if the state is terminal already (failed or
  // cancelled before the work was issued). Error (kFailedPrecondition) if SCHEDULED.
  bool Schedule();
  // Makes the state terminal: SUCCESS if `exception` is null, else FAILED. Returns false if the
  // state was terminal already. Wakes waiters, then runs the callbacks outside the lock.
  bool Complete(std::exception_ptr exception);
  // Makes the state INITIALIZED again and keeps the memory of its lists; only the caller may hold
  // the state. Returns false if the device still needs the state unchanged.
  OPKIT_INLINE virtual bool Reuse();
  // Calls `callback` when the state is terminal; at once if it is terminal already.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    AddQuietCallback(std::move(callback));
  }
  // Adds a callback like AddCallback, but without RequestNotification: the callback may wait until
  // a thread polls or waits.
  void AddQuietCallback(UniqueFunction<void()> callback);
  // Blocks until terminal; returns false if `timeout` ran out first.
  bool Wait(Timeout timeout);

  // Makes a device that completes silently call Complete when the work is done.
  virtual void RequestNotification() {}
  // Completes the state if a device that completes silently is done; does not wait.
  virtual void Poll() {}
  // Completes the state if the caller knows that the work is done, because later work on the device
  // has waited for this event.
  virtual void Passed() { Complete(nullptr); }
  // Polls the device for about as long as a notification would take. Returns false if the work is
  // not done by then, or at the end of `timeout`.
  virtual bool WaitBriefly(Timeout /*timeout*/) { return false; }

  // Does nothing if the state has this context, because another thread may complete it by then.
  void SetContext(detail::IntrusivePtr<const detail::FailureContext> context) {
    if (context_.get() != context.get()) context_ = std::move(context);
  }
  // Promises that only the recording thread waits for this event; that thread may then change the
  // Error that the event fails with.
  void SetPrivate() { private_ = true; }

  // Allows a device to report this event late, together with later work of the same stream; the
  // device then need not mark the stream. For events for which few threads wait. Call it before the
  // event is recorded.
  void DeferCompletion() { defers_completion_ = true; }
  bool defers_completion() const { return defers_completion_; }

  // Sets the invocation whose span in a profile ends with this event. Call it before the work is
  // issued.
  void SetSpan(uint64_t invocation) { span_ = invocation; }
  uint64_t span() const { return span_; }

  // Memory that the device may still use, kept until the device has drained. A cancelled event may
  // be terminal long before. Needs no lock: the recording thread uses the list only before the work
  // is issued, the device only afterwards.
  detail::RefCountedList retained;

 private:
  // Returns the exception with the context of this event's work, marked as shared so that no thread
  // changes it.
  std::exception_ptr Shared(std::exception_ptr exception) const;

  struct Waiter {  // a waiting thread's record, on the stack of Wait
    detail::Parker parker;
    Waiter* next = nullptr;
  };

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  detail::Mutex mutex_;
  Waiter* waiters_ = nullptr;
  std::exception_ptr exception_;
  std::vector<UniqueFunction<void()>> callbacks_;
  detail::IntrusivePtr<const detail::FailureContext> context_;
  bool private_ = false;
  bool defers_completion_ = false;
  uint64_t span_ = 0;
};

namespace detail {
// Makes the event states of a device type.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
}  // namespace detail

// The factories by device type. Plain EventStates are made if none was set.
detail::DeviceTable<detail::EventStateFactory>& EventFactories();

// A handle; copies share the completion until one of them is Reset. Waits, queries and completion
// may come from any thread; Reset and assignment of one handle may not race with its other uses.
class Event {
 public:
  // An event of a device, in the state INITIALIZED; of the CPU by default.
  Event() : Event(Device{}) {}
  explicit Event(Device device) : device_(device), state_(NewState()) {}
  Event(const Event& other) : device_(other.device_), state_(other.state_) {}
  Event(Event&& other) noexcept = default;
  Event& operator=(Event other) noexcept {
    device_ = other.device_;
    std::swap(state_, other.state_);
    std::swap(spare_, other.spare_);
    return *this;
  }

  // Return the event's device, and its state. Query asks the device if the event is SCHEDULED.
  Device device() const { return device_; }
  EventStatus Query() const {
    if (state_->status() == EventStatus::kScheduled) state_->Poll();
    return state_->status();
  }
  bool IsScheduled() const { return Query() == EventStatus::kScheduled; }
  bool IsFinished() const { return IsTerminal(Query()); }

  // Changes INITIALIZED to SCHEDULED; returns false, without effect, if terminal. Error
  // (kFailedPrecondition) if SCHEDULED. Contexts call it when they issue work.
  bool SetScheduled() { return state_->Schedule(); }

  // Completes the event: SUCCESS, or FAILED with the message or exception. The first failure is
  // kept, later ones are ignored. Error (kFailedPrecondition) after SUCCESS.
  void SetFinished() { CompleteOnce(nullptr); }
  void SetFinished(const char* error_message);
  void SetFinishedWithException(std::exception_ptr exception) {
    CompleteOnce(std::move(exception));
  }
  // Makes the event FAILED with kCancelled; returns false if it is terminal already. A waiting
  // thread fails at once. The device still runs the work that it has begun, and keeps its memory
  // until it has drained.
  bool Cancel();

  // Blocks the host until terminal and rethrows the failure. Errors: kDeadlineExceeded if `timeout`
  // ran out (the event goes on); kFailedPrecondition for an event that was never recorded. With a
  // timeout the call waits for the recording instead.
  void Finish(Timeout timeout = {}) const;
  void RethrowIfFailed() const {
    if (Query() == EventStatus::kFailed) std::rethrow_exception(state_->exception());
  }
  // Calls `callback` once the event is terminal, on the completing thread and outside every lock;
  // at once if it is terminal already. `callback` must not throw.
  void SetCallback(UniqueFunction<void()> callback) const {
    state_->AddCallback(std::move(callback));
  }

  // Makes the event INITIALIZED again. Work still in flight keeps the old completion. Two
  // completions are used in turn: from the second Reset on nothing is allocated unless other
  // handles hold both.
  void Reset();

  // Returns the failure; null unless FAILED.
  std::exception_ptr exception() const {
    return Query() == EventStatus::kFailed ? state_->exception() : nullptr;
  }
  // Returns the failure's message; empty unless FAILED.
  std::string ErrorMessage() const;

  // Returns the shared state, for contexts.
  const detail::IntrusivePtr<EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception);
  detail::IntrusivePtr<EventState> NewState() const;

  Device device_;
  detail::IntrusivePtr<EventState> state_;
  // The state that state_ has replaced; the next Reset uses it again. A single state would not do,
  // because the thread that completed it may still hold it at the Reset.
  detail::IntrusivePtr<EventState> spare_;
};

}}  // namespace opkit

#endif  // OPKIT_DEVICE_EVENT_HPP_

// ---- opkit/device/context.hpp
// Context: the handle through which an operator issues work on its device. Defines the concept that
// the context of every device meets, and CPUContext, which does the work when it is issued.
#ifndef OPKIT_DEVICE_CONTEXT_HPP_
#define OPKIT_DEVICE_CONTEXT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The context of a device. A user's own device needs a class like CPUContext below and a
// REGISTER_<DEVICE>_OPERATOR macro of one line (op/registration.hpp). If its memory is not the
// host's, it also needs an Allocator and copies.
template <class C>
concept DeviceContext = requires(C& context, const C& constant, Event& event, int stream_id) {
  { C::kDeviceType } -> std::convertible_to<DeviceType>;
  { C::kAsynchronous } -> std::convertible_to<bool>;  // true: issuing returns before the work ends
  requires std::constructible_from<C, Device>;
  { constant.device() } -> std::convertible_to<Device>;
  context.SwitchToDevice(stream_id);        // the stream that further work is issued on
  context.Record(event);                    // SCHEDULED; completes after the work issued so far
  context.WaitEvent(std::as_const(event));  // work issued from now on waits for the event
  context.FinishDeviceComputation();        // blocks until this stream has drained, rethrows
  { C::IsStreamFree(Device{}, stream_id) } -> std::convertible_to<bool>;
};

// True if work may be issued before its predecessors on the same device type are done. Default:
// every asynchronous context; override with C::kSupportsAsyncScheduling.
template <DeviceContext C>
inline constexpr bool kSupportsAsyncScheduling = C::kAsynchronous;
template <DeviceContext C>
  requires requires { C::kSupportsAsyncScheduling; }
inline constexpr bool kSupportsAsyncScheduling<C> = C::kSupportsAsyncScheduling;

namespace detail {

// Optional abilities of a context, each a concept.
//
// A context that runs host functions in the order of its stream: CPUContext, CPUStreamContext, or a
// user's own. It supports ParallelFor, strided inputs and the launch of function operators.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };

// A context that issues work on a native stream of its device; copies and functions receive that
// stream.
template <class C>
concept NativeStreamContext = requires(C& context) {
  { context.native_stream() } -> std::convertible_to<void*>;
};

// A context whose device has a clock. While a profile is recorded, a run calls `BeginSpan` before
// it issues its work. The device then reports the times of that work for the span of `event`
// (SpanSink::RanOnDevice).
template <class C>
concept TimedContext = requires(C& context, Event& event) { context.BeginSpan(event); };

// A context that can keep memory alive until the work issued so far is done, for runs without an
// event.
template <class C>
concept RetainingContext =
    requires(C& context, RefCountedList memory) { context.Retain(std::move(memory)); };

// A context whose stream is an object of the toolkit or of the author.
template <class C>
concept StreamContext = requires(C& context) { &context.stream(); };

}  // namespace detail

// Runs work on the host, synchronously. Every call is cheap.
class CPUContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPU;
  static constexpr DeviceType GetDeviceType() { return kDeviceType; }  // Caffe2's spelling
  static constexpr bool kAsynchronous = false;

  CPUContext() = default;
  explicit CPUContext(Device device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUContext cannot run on ", ToString(device));
  }

  Device device() const { return {}; }
  void SwitchToDevice(int = 0) {}
  // Work is done when it is issued; an operator with an asynchronous part finishes the event
  // itself.
  void Record(Event& event) { event.SetScheduled(); }
  void WaitEvent(const Event& event) { event.Finish(); }
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }

  // Runs `work` now.
  template <class F>
  void Launch(F&& work) {
    work();
  }
};

}}  // namespace opkit

#endif  // OPKIT_DEVICE_CONTEXT_HPP_

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

// ---- opkit/device/copy.hpp
// Copies between devices. Backends register a function for each pair of source and target memory.
// Copy (done on return) and CopyAsync (issued on a context's stream) call these functions.
#ifndef OPKIT_DEVICE_COPY_HPP_
#define OPKIT_DEVICE_COPY_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Copies `nbytes` (never 0) between the memory of two devices; the two blocks do not overlap. With
// a null `stream` the copy is done on return. Otherwise it is issued on `stream`, the native stream
// of the context. Throws on failure. A backend registers one function for each direction, and one
// from its device to itself for copies within a device and between peers:
//
//   void CopyMine(void* to, Device to_device, const void* from, Device from_device, int64_t nbytes,
//                 void* stream);   // at once, or on the stream
//   inline const auto registered = RegisterCopy(DeviceType::kCPU, kMyDevice, &CopyMine);
using CopyFunction = void (*)(void* target, Device target_device, const void* source,
                              Device source_device, int64_t nbytes, void* stream);

// Copies the elements of `source`, which has strides and at least one element, to `target`, dense
// memory on the same device. With a null `stream` the copy is done on return. Otherwise it is
// issued on `stream`, the native stream of the context. Throws on failure.
using StridedCopyFunction = void (*)(const Tensor& source, void* target, void* stream);

// The registered copies. An array, not a list: heap memory of a library leaks when the library is
// unloaded.
struct CopyTable {
  static constexpr int kMost = 128, kDeviceTypes = 128;
  struct Route {
    DeviceType from, to;
    CopyFunction copy;  // null: removed
  };
  const Route* begin() const { return routes; }
  const Route* end() const { return routes + count; }

  Mutex mutex;
  Route routes[kMost] = {};  // in the order of their registration
  int count = 0;
  StridedCopyFunction strided[kDeviceTypes] = {};  // by device type
};
inline CopyTable& Copies() {
  static constinit CopyTable table;
  return table;
}

inline void CopyHost(void* target, Device, const void* source, Device, int64_t nbytes, void*) {
  std::memcpy(target, source, static_cast<size_t>(nbytes));
}

// Copies through host memory with the two registered functions, and waits. Error (kUnsupported) for
// a stream, and if one of the functions is not registered any more.
void CopyThroughHost(void* target, Device target_device, const void* source, Device source_device,
                     int64_t nbytes, void* stream);

// Returns the registered function. Without one, returns CopyHost if the host reaches both memories,
// CopyThroughHost if functions to and from the host are registered, else null.
CopyFunction FindCopy(DeviceType from, DeviceType to);
// Returns the function that copies between these two tensors. Error (kUnsupported) if there is
// none.
CopyFunction FindCopy(const Tensor& source, const Tensor& target);

// Returns the registered copy of strided elements within the device of `source`; null for a tensor
// that is dense or in the host's memory. Error (kUnsupported) if none is registered.
StridedCopyFunction FindStridedCopy(const Tensor& source);

// Copies into the memory of `target`, which is dense and has the same dtype and shape. On the host
// the two tensors may overlap. On a device the copy is issued on `stream`.
void CopyElements(const Tensor& source, const Tensor& target, void* stream);

// A copy that is ready to run; keeps both memories alive.
struct PreparedCopy {
  CopyFunction copy;
  StridedCopyFunction strided;  // null for a source that is dense or in the host's memory
  Tensor source, target;

  PreparedCopy(const Tensor& from, const Tensor& to);
  // Runs the copy. Copies strided elements to dense memory here, not earlier, because the stream
  // may still be writing the source.
  void Run(void* stream = nullptr) const;
};

inline SpanNames CopyNames() { return {InternName("Copy")}; }

}  // namespace detail

// Registers the copy from one device type's memory to another's and returns the previous function
// (null if none); null removes it. Thread-safe.
detail::CopyFunction RegisterCopy(DeviceType from, DeviceType to, detail::CopyFunction copy);
// Registers the copy of strided elements within a device of this type and returns the previous
// function (null if none); null removes it. Without it a strided tensor cannot leave the device.
// The kernels of a backend register it: opkit::cuda_ops for CUDA. Thread-safe.
detail::StridedCopyFunction RegisterStridedCopy(DeviceType type, detail::StridedCopyFunction copy);

// Copies the elements of `source`, dense, to the target's device; done on return. Resizes the
// target, which keeps its memory unless that is too small or overlaps `source`. Copies through the
// host between two accelerators without a direct copy. Errors: kUninitialized, kUnsupported if no
// copy leads from one device to the other or the source's device cannot copy its strided elements,
// kOutOfMemory; the target is then unchanged.
void Copy(const Tensor& source, Tensor* target);

// Issues the same copy on the context's stream, after the work issued there so far and before later
// work. The target has its new shape at once. On the toolkit's own streams the copy keeps both
// memories alive. On a native stream (the context has `native_stream()`) the caller keeps them
// alive until the copy is done, and a strided source in the host's memory is an Error.
template <DeviceContext Context>
void CopyAsync(Context& context, const Tensor& source, Tensor* target) {
  if (&source == target) return;
  if constexpr (detail::NativeStreamContext<Context>)
    context.native_stream();  // allocates on this stream
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(Invocation::Kind::kCopy, target->device(), detail::CopyNames);
  Tensor result = prepared.target;
  if constexpr (detail::NativeStreamContext<Context>) {
    if (!source.is_dense() && !prepared.strided)
      Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source,
            " on a native stream because it has strides; call Contiguous() first");
    prepared.Run(context.native_stream());
  } else {
    context.Launch([prepared = std::move(prepared)] { prepared.Run(); });
  }
  *target = std::move(result);
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_COPY_HPP_

// ---- opkit/base/scoped_value.hpp
// ScopedValue: gives a variable, mostly a thread_local one, another value for the length of a
// scope.
#ifndef OPKIT_BASE_SCOPED_VALUE_HPP_
#define OPKIT_BASE_SCOPED_VALUE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

//   const ScopedValue runner(t_loop_runner, &mine);
template <class T>
class [[nodiscard]] ScopedValue {
 public:
  // The variable must outlive the scope. The end of the scope restores the previous value.
  ScopedValue(T& variable, std::type_identity_t<T> value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ScopedValue(ScopedValue&&) = delete;
  ~ScopedValue() { variable_ = std::move(outer_); }

 private:
  T& variable_;
  T outer_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_SCOPED_VALUE_HPP_

// ---- opkit/device/cpu_stream.hpp
// CPUStreamContext: a CPU device with in-order asynchronous streams, each served by a thread of its
// own. A real asynchronous device on every machine: tests of streams, waits between streams,
// asynchronous errors and cancellation use it.
#ifndef OPKIT_DEVICE_CPU_STREAM_HPP_
#define OPKIT_DEVICE_CPU_STREAM_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// An in-order queue of work. After a failure, work up to the next recorded event is skipped, and
// that event becomes FAILED with the exception; later work runs normally. The failure of an
// operator affects only its own work and event. Thread-safe. Streams with a thread live as long as
// the process. A forked child starts new streams under the same ids; it must not use an object that
// holds one of the parent's streams, such as an operator that has run.
class CPUStream {
 public:
  // Makes a stream without a thread: work runs at once when it is issued, and throws to its caller.
  // For a thread that a stream already runs at the right place in its order; see CPUStreamScope.
  explicit CPUStream(Device device) : device_(device), id_(-1) {}
  CPUStream(CPUStream&&) = delete;

  // Returns the process's stream `id` of `device`, started at first use; inside a CPUStreamScope,
  // the scope's stream for every id.
  static CPUStream& Get(Device device, int id);
  // Returns null if the stream has not been used yet.
  static CPUStream* Find(Device device, int id) {
    MutexLock lock(All().mutex);
    return All().Find(device, id);
  }

  Device device() const { return device_; }
  int id() const { return id_; }  // -1 for a stream without a thread

  // Runs `work` after all work issued before, under the caller's current invocation.
  void Launch(UniqueFunction<void()> work) { Push({std::move(work), {}, {}, CurrentInvocation()}); }
  // Makes the event SCHEDULED; it completes when the work issued so far is done.
  void Record(Event& event);
  // Makes work issued from now on run after the event, and fail with it. An event of the same
  // stream never blocks, because the stream is in order; but its failure makes the later work fail.
  // Error (kFailedPrecondition) for an event that was never recorded.
  void WaitEvent(const Event& event);
  // True when nothing is queued or running.
  bool IsFree() const {
    MutexLock lock(mutex_);
    return queue_.empty() && !busy_;
  }
  // Returns how often the stream's thread had to wait for another stream's event.
  int64_t blocking_waits() const { return blocking_waits_.load(std::memory_order_relaxed); }

 private:
  // The streams of the process that have a thread.
  struct Registry {
    CPUStream* Find(Device device, int id) const;
    Mutex mutex;
    CPUStream* streams = nullptr;
  };
  static Registry& All();

  static constexpr size_t kUsualBatch = 16;

  CPUStream(Device device, int id);

  // An item of the queue: work, an event to complete, or an event to wait for.
  struct Item {
    UniqueFunction<void()> work;
    IntrusivePtr<EventState> record;
    IntrusivePtr<EventState> wait;
    Invocation invocation;
    uint64_t issuer = 0;  // number of the IssueScope that issued the item; 0: none
  };
  // Failures that are not yet reported by an event; at most one for each issuer.
  class Failures {
   public:
    // True if work of the issuer is skipped: after a failure of its own, or of work without an
    // issuer.
    bool Concerns(uint64_t issuer) const { return Find(issuer) || Find(0); }
    void Add(uint64_t issuer, std::exception_ptr failure);
    std::exception_ptr Take(uint64_t issuer);

   private:
    const std::pair<uint64_t, std::exception_ptr>* Find(uint64_t issuer) const {
      for (const auto& failure : list_)
        if (failure.first == issuer) return &failure;
      return nullptr;
    }
    std::vector<std::pair<uint64_t, std::exception_ptr>> list_;
  };

  void Push(Item item);
  // Waits for work, then swaps the whole queue into `items`. The queue reuses the memory of
  // `items`.
  void Next(std::vector<Item>& items);
  void Serve();
  void Execute(Item& item, Failures& failures);

  const Device device_;
  const int id_;
  mutable Mutex mutex_;
  std::vector<Item> queue_;
  Parker* parked_ = nullptr;  // the stream's thread while it sleeps, else null
  bool busy_ = false;
  std::atomic<int64_t> blocking_waits_{0};
  CPUStream* next_ = nullptr;  // the next stream in the registry
};

inline constinit thread_local CPUStream* t_cpu_stream = nullptr;

// Makes the calling thread issue its work for CPU streams on this stream during the scope, whatever
// stream id operators run with.
class CPUStreamScope {
 public:
  explicit CPUStreamScope(CPUStream& stream) : stream_(t_cpu_stream, &stream) {}

 private:
  const ScopedValue<CPUStream*> stream_;
};

}  // namespace detail

// Issues work on a CPUStream of device {kCPUStream, index}.
class CPUStreamContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPUStream;
  static constexpr bool kAsynchronous = true;

  explicit CPUStreamContext(Device device = {kDeviceType, 0}) : device_(device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUStreamContext cannot run on ", ToString(device),
            "; REGISTER_CPU_STREAM_OPERATOR registers an operator class of this context");
  }

  Device device() const { return device_; }
  detail::CPUStream& stream() {
    if (!stream_) SwitchToDevice(0);
    return *stream_;
  }
  void SwitchToDevice(int stream_id = 0) {
    if (!stream_ || stream_->id() != stream_id || detail::t_cpu_stream)
      stream_ = &detail::CPUStream::Get(device_, stream_id);
  }
  void Record(Event& event) { stream().Record(event); }
  void WaitEvent(const Event& event) { stream().WaitEvent(event); }
  void FinishDeviceComputation();
  static bool IsStreamFree(Device device, int stream_id) {
    const detail::CPUStream* stream = detail::CPUStream::Find(device, stream_id);
    return !stream || stream->IsFree();
  }

  // Runs `work` on the stream; returns at once.
  template <class F>
  void Launch(F&& work) {
    stream().Launch(std::forward<F>(work));
  }

 private:
  Device device_;
  detail::CPUStream* stream_ = nullptr;
  std::optional<Event> drained_;  // kept to reuse its memory
};

}}  // namespace opkit

#endif  // OPKIT_DEVICE_CPU_STREAM_HPP_

// ---- opkit/engine/pool/idle_list.hpp
// IdleList: the threads of a pool that search for work or sleep because there is none. Its protocol
// ensures that none of them sleeps while there is work. Costs a submitter two loads when no thread
// sleeps.
#ifndef OPKIT_ENGINE_POOL_IDLE_LIST_HPP_
#define OPKIT_ENGINE_POOL_IDLE_LIST_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A place in the list, on the sleeping thread's stack.
struct IdleThread {
  Parker parker;
  CpuBan ban;
  bool for_loop = false;  // woken for a loop, not for a task
  IdleThread* prev = nullptr;
  IdleThread* next = nullptr;
  bool listed = false;
};

// A thread without work is first `searching`, then asleep in the list. A publisher of work reads
// searching() and sleeping() after publishing; a thread that goes to sleep enters the list, leaves
// `searching`, and then looks at all the work again. All four are seq_cst, as are the publications,
// so at least one of the two sees the other. The publisher either
//  - sees searching() > 0: that searcher stops searching later, to sleep (then it looks again and
//    sees the work) or because it found other work (then the last searcher looks again and wakes
//    another thread); or
//  - sees sleeping() > 0 and wakes one thread, which counts as searching from that moment: a burst
//    of submissions wakes one thread, and each that finds work wakes the next; or
//  - sees neither: every thread of the pool is busy and will look before it sleeps.
class IdleList {
 public:
  int searching() const { return searching_.load(std::memory_order_seq_cst); }
  int sleeping() const { return sleeping_.load(std::memory_order_seq_cst); }

  void StartSearching() { searching_.fetch_add(1, std::memory_order_seq_cst); }
  // Ends this thread's search; true when no other thread searches.
  bool StopSearching() { return searching_.fetch_sub(1, std::memory_order_seq_cst) == 1; }

  void Enlist(IdleThread& self) {
    MutexLock lock(mutex_);
    self.listed = true;
    self.next = first_;
    if (first_) first_->prev = &self;
    first_ = &self;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
  }

  // Removes the thread. Returns false if it has been woken meanwhile; it then counts as searching.
  // Afterwards no thread holds a pointer to `self`.
  bool Delist(IdleThread& self) {
    MutexLock lock(mutex_);
    if (!self.listed) return false;
    Remove(self);
    return true;
  }

  // Wakes the thread that fell asleep last (its cache is the warmest). Returns false if none sleeps
  // or one searches already.
  bool WakeForTask() {
    return Wake([this](IdleThread&) { return searching() == 0; });
  }
  // Wakes a thread even if others search. With `elsewhere` the thread wakes on another CPU than the
  // caller's, since the caller works on the loop itself. The 2 system calls for that cost less than
  // a microsecond, the wake-up some.
  bool WakeForLoop(bool elsewhere) {
    return Wake([elsewhere](IdleThread& sleeper) {
      sleeper.for_loop = true;
      if (elsewhere) sleeper.ban.Ban(CurrentCpu());
      return true;
    });
  }
  void WakeAll() {
    while (Wake([](IdleThread&) { return true; })) {
    }
  }

  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    first_ = nullptr;
    searching_ = 0;
    sleeping_ = 0;
  }

 private:
  // Wakes the thread that fell asleep last. Returns false if none sleeps, or if `prepare` returns
  // false for that thread.
  template <class Prepare>
  bool Wake(Prepare prepare) {
    Parker::Address address = nullptr;
    {
      MutexLock lock(mutex_);
      if (!first_ || !prepare(*first_)) return false;
      StartSearching();
      IdleThread& sleeper = *first_;
      Remove(sleeper);
      address = sleeper.parker.Set();
    }
    Parker::Wake(address);
    return true;
  }
  void Remove(IdleThread& thread) {
    (thread.prev ? thread.prev->next : first_) = thread.next;
    if (thread.next) thread.next->prev = thread.prev;
    thread.listed = false;
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

  Mutex mutex_;
  IdleThread* first_ = nullptr;
  std::atomic<int> sleeping_{0};
  std::atomic<int> searching_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IDLE_LIST_HPP_

// ---- opkit/engine/pool/idle_spin.hpp
// IdleSpin: decides how long a thread without work searches before it sleeps.
#ifndef OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_
#define OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct SpinTimes {  // in ticks
  uint64_t idle = 0;
  uint64_t after_loop = 0;  // longer, because the next loop often starts soon after a loop
};

// The state of one thread. `now` is in ticks and never 0.
class IdleSpin {
 public:
  // Records that the thread has worked until now.
  void Worked(bool on_loop, uint64_t now) {
    idle_since_ = 0;
    if (on_loop) last_loop_ = now;
  }
  // Records that the thread has woken. A wake-up for a loop counts as work on it: even if the loop
  // has ended by then, the next one follows soon.
  void Woke(bool for_loop, uint64_t now) {
    idle_since_ = 0;
    last_loop_ = for_loop ? now : 0;
  }
  // True if the thread keeps searching. If `crowded`, enough threads search for tasks, and it keeps
  // searching only if a loop has just ended: the next loop can use all threads.
  bool Goes(uint64_t now, bool crowded, const SpinTimes& times) {
    if (idle_since_ == 0) idle_since_ = now;
    return (!crowded && now - idle_since_ < times.idle) ||
           (last_loop_ != 0 && now - last_loop_ < times.after_loop);
  }

 private:
  uint64_t idle_since_ = 0;  // 0: the thread is not idle
  uint64_t last_loop_ = 0;   // when it last worked on a loop or woke for one; 0: not since it slept
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IDLE_SPIN_HPP_

// ---- opkit/engine/pool/spin_lock.hpp
// SpinLock: one word, for sections of a dozen instructions that are nearly never contended: the
// bookkeeping of one Var, the head of a free list.
#ifndef OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_
#define OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Half the price of a mutex, because unlocking is a plain store: there is no sleeper to look for. A
// thread that finds it locked for long yields the CPU, since the holder may have lost its own.
class SpinLock {
 public:
  // Acquire, with the release in Unlock: the section sees the writes of earlier ones.
  void Lock() {
    if (locked_.exchange(1, std::memory_order_acquire) != 0) [[unlikely]]
      LockSlowly();
  }
  void Unlock() { locked_.store(0, std::memory_order_release); }
  // Unlocks it in a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { locked_ = 0; }

 private:
  OPKIT_COLD void LockSlowly() {
    constexpr int kSpins = 64;
    for (;;) {
      for (int i = 0; i < kSpins; ++i) {
        CpuRelax();
        // Relaxed: only a hint of when to try.
        if (locked_.load(std::memory_order_relaxed) == 0 &&
            locked_.exchange(1, std::memory_order_acquire) == 0)
          return;
      }
      sched_yield();
    }
  }

  std::atomic<uint32_t> locked_{0};
};

using SpinLockGuard = LockGuard<SpinLock>;

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_SPIN_LOCK_HPP_

// ---- opkit/engine/pool/inbox.hpp
// Inbox: a queue that any thread puts nodes into without a lock and any thread takes them from, the
// oldest first. The pool's shared queue and the engine's queue of ready operations are inboxes.
#ifndef OPKIT_ENGINE_POOL_INBOX_HPP_
#define OPKIT_ENGINE_POOL_INBOX_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct InboxNode {
  std::atomic<InboxNode*> next{nullptr};
};

// D. Vyukov's intrusive queue (a list that always holds at least a stub node), with a lock for
// takers, since the original allows only one taker. The queue does not own its nodes; a taker sees
// everything that was written before the Put of its node.
class Inbox {
 public:
  // Adds a node. Seq_cst, as empty() is: a thread that puts a node looks for a taker afterwards,
  // and a taker that goes to sleep announces that before it looks here.
  void Put(InboxNode* node) {
    // Relaxed: the exchange publishes it.
    node->next.store(nullptr, std::memory_order_relaxed);
    InboxNode* before = tail_.exchange(node, std::memory_order_seq_cst);
    // Release: the taker sees all members of the node. Until here the list ends at `before`.
    before->next.store(node, std::memory_order_release);
  }

  // Returns the oldest node; null if there is none, or only one that is just being put.
  InboxNode* Take() {
    // Relaxed: a hint. Not read from `tail_`: every Put would wait for that cache line.
    if (head_.load(std::memory_order_relaxed) == &stub_ &&
        !stub_.next.load(std::memory_order_relaxed))
      return nullptr;
    SpinLockGuard guard(take_lock_);
    // Relaxed, as all accesses of `head_`: it is written under the lock, and empty() gives the
    // reason for its own read. Acquire, here and below: pairs with Put.
    InboxNode* head = head_.load(std::memory_order_relaxed);
    InboxNode* next = head->next.load(std::memory_order_acquire);
    if (head == &stub_) {
      if (!next) return nullptr;
      head = next;
      head_.store(head, std::memory_order_relaxed);
      next = head->next.load(std::memory_order_acquire);
    }
    if (!next) {
      // The last node leaves only when the stub is behind it.
      if (tail_.load(std::memory_order_seq_cst) != head) return nullptr;
      Put(&stub_);
      next = head->next.load(std::memory_order_acquire);
      if (!next) return nullptr;
    }
    head_.store(next, std::memory_order_relaxed);
    // The next taker soon needs these cache lines, which are in the cache of the CPU that put them.
    const auto address = reinterpret_cast<uintptr_t>(next);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    return head;
  }

  // Never returns true while a node is in the queue. Relaxed: a taker makes the stub the tail again
  // only after it has moved `head_` on, so a thread that sees this tail also sees that head.
  bool empty() const {
    return tail_.load(std::memory_order_seq_cst) == &stub_ &&
           head_.load(std::memory_order_relaxed) == &stub_;
  }

  // Forgets the nodes, which belong to the parent; called in a forked child.
  void ResetAfterFork() {
    take_lock_.ResetAfterFork();
    stub_.next = nullptr;
    head_ = tail_ = &stub_;
  }

 private:
  InboxNode stub_;
  alignas(kCacheLine) std::atomic<InboxNode*> tail_{&stub_};
  alignas(kCacheLine) SpinLock take_lock_;
  std::atomic<InboxNode*> head_{&stub_};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_INBOX_HPP_

// ---- opkit/engine/pool/latch.hpp
// Latch: a count of things still to happen, which threads wait for through ThreadPool::Wait while
// they help with the pool's tasks. TaskGroup and the waits of the engine use it.
#ifndef OPKIT_ENGINE_POOL_LATCH_HPP_
#define OPKIT_ENGINE_POOL_LATCH_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ThreadPool;

namespace detail {

class Parker;

// A sleeping thread, in the list of threads whose latch falls into the same bucket.
struct LatchSleeper {
  const void* latch = nullptr;
  Parker* parker = nullptr;
  LatchSleeper* next = nullptr;
};

class Latch {
 public:
  explicit Latch(int64_t count = 0) : count_(count) {}
  Latch(Latch&&) = delete;

  // Adds `n`. Relaxed: no other data is read because of this number. A latch is raised either
  // before its waiters start, or by something that itself still counts.
  void Add(int64_t n = 1) { count_.fetch_add(n, std::memory_order_relaxed); }

  // Subtracts `n`. A waiter may destroy the latch before the last CountDown returns. Costs an
  // atomic subtraction, and about 20 ns more when the count reaches zero.
  void CountDown(int64_t n = 1) {
    // Release: everything before any CountDown is seen by a thread that acquires the zero (the
    // subtractions of others continue the release sequence).
    if (count_.fetch_sub(n, std::memory_order_release) == n) WakeSleepers(this);
  }

  bool done() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  friend ThreadPool;

  // Adds the thread to the sleepers; returns false if the count is zero already.
  bool Enlist(LatchSleeper& self) const;
  static void Delist(LatchSleeper& self);
  static void WakeSleepers(const void* latch);
  // Forgets all sleepers; called in a forked child, where their threads do not exist.
  static void ForgetSleepers();

  std::atomic<int64_t> count_;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_ENGINE_POOL_LATCH_HPP_

// ---- opkit/engine/pool/loop_board.hpp
// LoopBoard: where running ParallelFor loops are posted for the pool's idle threads to join. A loop
// lives on its caller's stack; the caller takes it down and waits only for threads that are inside
// and make progress on their own. That is why nested loops cannot deadlock: no thread ever waits
// for work that is still queued.
#ifndef OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_
#define OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using RangeFunction = FunctionRef<void(int64_t, int64_t)>;

// Calls `body` for the chunks of [first, last) one after the other, on this thread.
inline void RunChunksInOrder(int64_t first, int64_t last, int64_t grain, RangeFunction body) {
  for (; last - first > grain; first += grain) body(first, first + grain);
  body(first, last);
}

// A loop over [first, last) in chunks of `grain`, which threads claim by number.
struct ParallelLoop {
  // Runs chunks until none is left. After an exception the remaining ones are skipped.
  void RunChunks(Mutex& mutex) {
    try {
      for (;;) {
        // Relaxed: the counter hands out numbers and publishes nothing; a chunk's writes reach the
        // caller through `joined`.
        const int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks) return;
        const int64_t begin = first + chunk * grain;
        body(begin, last - begin > grain ? begin + grain : last);
      }
    } catch (...) {
      MutexLock lock(mutex);
      if (!error) error = std::current_exception();
      // Relaxed, like the fetch_add above.
      next_chunk.store(chunks, std::memory_order_relaxed);
    }
  }

  const int64_t first, last, grain, chunks;
  const RangeFunction body;
  const Invocation invocation = CurrentInvocation();

  // Guarded by the board's mutex.
  int may_join = 0;  // threads that may still join
  int may_wake = 0;  // threads that its joiners should still wake
  bool listed = false;
  ParallelLoop* prev = nullptr;
  ParallelLoop* next = nullptr;
  Parker* waiter = nullptr;  // the caller's Parker while the caller sleeps
  std::exception_ptr error = {};

  std::atomic<int> joined{0};  // threads inside, without the caller
  alignas(kCacheLine) std::atomic<int64_t> next_chunk{0};
};

class LoopBoard {
 public:
  // Each joiner wakes two more, so the caller pays for two wake-ups and the rest spread as a tree.
  static constexpr int kWakeFan = 2;

  // True if there is no loop to join. Reads without the lock; seq_cst for IdleList's protocol.
  bool empty() const { return !first_.load(std::memory_order_seq_cst); }

  // Posts a loop that `helpers` threads may join. Returns how many threads the caller should wake.
  int Post(ParallelLoop& loop, int helpers) {
    MutexLock lock(mutex_);
    loop.may_join = helpers;
    loop.may_wake = helpers;
    loop.listed = true;
    loop.next = first_.load(std::memory_order_relaxed);  // written under the lock
    if (loop.next) loop.next->prev = &loop;
    first_.store(&loop, std::memory_order_seq_cst);
    return TakeWakes(loop);
  }

  // Joins the newest loop (the innermost of a nest) and returns it, or null if there is none.
  // `wake` receives how many threads the caller should wake.
  ParallelLoop* Join(int* wake) {
    MutexLock lock(mutex_);
    // Relaxed: first_ is written under the lock, and `joined` is read under it or after it.
    ParallelLoop* loop = first_.load(std::memory_order_relaxed);
    if (!loop) return nullptr;
    loop->joined.fetch_add(1, std::memory_order_relaxed);
    if (--loop->may_join == 0) Remove(*loop);
    *wake = TakeWakes(*loop);
    return loop;
  }

  // Runs the joined loop's chunks and leaves it; the loop may be gone afterwards.
  void Work(ParallelLoop& loop) {
    {
      auto scope = InvocationScope::Adopt(loop.invocation);
      loop.RunChunks(mutex_);
    }
    Parker::Address address = nullptr;
    {
      MutexLock lock(mutex_);
      Remove(loop);  // no chunk is left
      Parker* waiter = loop.waiter;
      // Release: the caller sees the chunks' writes. It may return as soon as it reads zero,
      // unless it sleeps; then it waits for Set.
      if (loop.joined.fetch_sub(1, std::memory_order_release) == 1 && waiter)
        address = waiter->Set();
    }
    if (address) Parker::Wake(address);
  }

  // Ends the loop for its caller: returns when no other thread is inside, and rethrows the first
  // exception.
  void Finish(ParallelLoop& loop, uint64_t spin_ticks) {
    {
      MutexLock lock(mutex_);
      Remove(loop);
    }
    const uint64_t start = Ticks();
    // Acquire, here and below: pairs with the release in Work.
    while (loop.joined.load(std::memory_order_acquire) != 0) {
      if (Ticks() - start < spin_ticks) {
        CpuRelax();
        continue;
      }
      Parker parker;
      {
        MutexLock lock(mutex_);
        if (loop.joined.load(std::memory_order_acquire) == 0) break;
        loop.waiter = &parker;
      }
      parker.Wait();
    }
    if (loop.error) std::rethrow_exception(std::move(loop.error));
  }

  Mutex& mutex() { return mutex_; }

  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    first_ = nullptr;
  }

 private:
  static int TakeWakes(ParallelLoop& loop) {
    const int wake = loop.may_wake < kWakeFan ? loop.may_wake : kWakeFan;
    loop.may_wake -= wake;
    return wake;
  }

  void Remove(ParallelLoop& loop) {
    if (!loop.listed) return;
    loop.listed = false;
    if (loop.next) loop.next->prev = loop.prev;
    if (loop.prev)
      loop.prev->next = loop.next;
    else
      first_.store(loop.next, std::memory_order_seq_cst);
  }

  Mutex mutex_;
  std::atomic<ParallelLoop*> first_{nullptr};  // loops that may still be joined
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_LOOP_BOARD_HPP_

// ---- opkit/engine/pool/own_threads.hpp
// OwnThreads: threads of the program's own, on which loops run in place of the process's pool. Set
// by SetParallelFor of engine/parallel_for.hpp.
#ifndef OPKIT_ENGINE_POOL_OWN_THREADS_HPP_
#define OPKIT_ENGINE_POOL_OWN_THREADS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls `work` `count` times, on all its threads at once, and returns when all calls have returned.
// `work` throws nothing. Called by several threads at once.
using RunOnThreads = UniqueFunction<void(int count, FunctionRef<void()> work)>;

// The threads given to SetParallelFor.
struct OwnThreads {
  int threads;
  mutable RunOnThreads run;
  int pool_threads;  // the size of the process's pool before SetParallelFor
};
inline constinit std::atomic<const OwnThreads*> g_own_threads{nullptr};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_OWN_THREADS_HPP_

// ---- opkit/engine/thread_pool.hpp
// ThreadPool: the work-stealing pool under everything that runs in parallel: ParallelFor in
// kernels, the Var engine, the executor. One pool serves the process (Default), sized by one
// setting. Threads that wait take part, so that n threads means n busy threads and no more.
#ifndef OPKIT_ENGINE_THREAD_POOL_HPP_
#define OPKIT_ENGINE_THREAD_POOL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class ThreadPool;

namespace detail {

// A unit of work embedded in a record of its owner (such as an operation of the engine), so that
// scheduling allocates nothing. The pool may use it from Schedule until it calls `run`, which may
// free it. It runs under `invocation`, by default the invocation that was current when the task was
// made.
struct PoolTask : InboxNode {
  using RunFunction = void (*)(PoolTask*) noexcept;
  explicit PoolTask(RunFunction runs, Invocation runs_under = CurrentInvocation())
      : run(runs), invocation(runs_under) {}

  RunFunction run;
  Invocation invocation;
};

struct PoolWorker;

struct PoolThreadState {
  ThreadPool* pool = nullptr;    // returned by Current() on this thread
  PoolWorker* worker = nullptr;  // null on threads that are no worker of a pool
};
inline constinit thread_local PoolThreadState t_pool;

}  // namespace detail

// Makes `pool` the pool that ParallelFor and TaskGroup use on this thread.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool& pool) : pool_(detail::t_pool.pool, &pool) {}

 private:
  const detail::ScopedValue<ThreadPool*> pool_;
};

// A pool of n threads has n - 1 workers; the other thread is the one that waits (in Wait, TaskGroup
// or ParallelFor). A pool of one runs every ParallelFor inline. It has one worker for tasks, so
// that they progress when no thread waits. A thread that waits from outside sleeps meanwhile, so
// tasks of a pool of one never overlap. Workers start one after the other, when there is work for
// them.
//
// A worker without work searches for a few microseconds, after a loop for 0.2 ms, then sleeps in
// the kernel: an idle pool uses no CPU. Waking costs the waker one system call, and only if a
// worker sleeps and none is searching.
//
// All members are thread-safe except the destructor. A task that lets an exception escape
// terminates the process, as a std::thread does; TaskGroup keeps exceptions and rethrows the first
// in Wait.
//
// Fork: the child has the pool with its settings, empty and without threads; they start again when
// needed. Tasks, loops and latches that were pending stay with the parent. A child that was forked
// inside a task or a loop body must end by exec or _exit.
class ThreadPool {
 public:
  using Task = UniqueFunction<void()>;
  static constexpr int kMaxThreads = 1024;
  // Where the workers may run.
  enum class Placement : uint8_t { kFree, kPinned };

  // `name` is the prefix of the threads' names. With kPinned, worker i stays on the (i + 1)-th of
  // the CPUs that the thread which started it may use; with kFree, the system places them.
  explicit ThreadPool(int threads, std::string name = "opkit",
                      Placement placement = Placement::kFree);
  // Runs all queued tasks, and those that they submit, on the workers and the calling thread, then
  // joins the workers. Must not be called by one of the pool's own tasks.
  ~ThreadPool();
  ThreadPool(ThreadPool&&) = delete;

  // Returns the process's pool, made at the first call with OPKIT_NUM_THREADS threads or, without
  // that variable, one for each CPU that the calling thread may use; OPKIT_PIN_THREADS=1 pins its
  // workers. It is never destroyed, so that destructors of static objects can use it; tasks still
  // queued when the process exits do not run.
  static ThreadPool& Global();

  // Returns the pool that ParallelFor and TaskGroup use on this thread: that of the innermost
  // PoolScope, else the pool whose work the thread runs, else Global().
  static ThreadPool& Current() { return detail::t_pool.pool ? *detail::t_pool.pool : Global(); }

  // Relaxed: the number publishes no other data.
  int threads() const { return threads_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

  // Sets the number of threads, 1 to kMaxThreads. Surplus workers leave after the task or loop that
  // they are in; nothing queued is lost, and loops already running keep the size they began with.
  void Resize(int threads);

  // Queues `task`. Tasks that a worker submits go to its own queue, from which others steal; all
  // other tasks go to a shared queue. No order is promised. Allocates a record for the task.
  void Submit(Task task);
  // Queues `task` like Submit, but allocates nothing: the record is the owner's.
  void Schedule(detail::PoolTask* task);

  // Runs one queued task, or takes part in a running loop, on this thread; false if there is none.
  bool RunOneTask();

  // Returns true when the latch is at zero. Meanwhile this thread runs any of the pool's tasks: do
  // not hold a lock that a task may take. With a timeout (ns; false when it has passed) a thread
  // from outside only sleeps, because a task could take longer than that.
  bool Wait(const detail::Latch& latch, int64_t timeout_ns = -1);

  // True if a running loop could use this thread; a long task may then end early.
  bool HasLoops() const { return !loops_.empty(); }
  // Returns how long a thread without work searches before it sleeps, in detail::Ticks. Relaxed, as
  // threads().
  uint64_t spin_ticks() const { return spin_ticks_.load(std::memory_order_relaxed); }

  // Calls body(begin, end) for [first, last) in chunks of `grain`, on this thread and on workers
  // that have nothing else to do; ParallelFor calls it. This thread runs chunks of this loop and
  // nothing else, so a caller may hold a lock that the body does not take.
  void RunLoop(int64_t first, int64_t last, int64_t grain, detail::RangeFunction body);

 private:
  // A task to run, or a loop that has been joined.
  struct Work {
    detail::PoolTask* task = nullptr;
    detail::ParallelLoop* loop = nullptr;
    explicit operator bool() const { return task || loop; }
  };

  static void HandleFork();
  void ResetAfterFork();
  void SetThreads(int threads);

  // Relaxed, as threads().
  detail::SpinTimes spin_times() const {
    return {spin_ticks(), loop_spin_ticks_.load(std::memory_order_relaxed)};
  }
  // Returns the number of workers. A pool of one thread still has one worker for tasks.
  int worker_target() const { return threads() > 1 ? threads() - 1 : 1; }
  detail::PoolWorker* OwnWorker() const;

  // Starts a worker if none runs. Relaxed: a hint; StartWorker checks again under the mutex, and
  // the first worker never leaves.
  void RequireWorker() {
    if (running_.load(std::memory_order_relaxed) == 0) [[unlikely]]
      StartFirstWorker();
  }
  OPKIT_COLD void StartFirstWorker();
  OPKIT_COLD bool StartWorker();
  bool Retire(detail::PoolWorker& self);
  void WorkerMain(detail::PoolWorker& self);
  bool Sleep(detail::PoolWorker& self);

  Work FindWork(detail::PoolWorker* self);
  bool HasWork() const;
  void Run(Work work);
  detail::PoolTask* TakeInjected() { return static_cast<detail::PoolTask*>(injected_.Take()); }

  void NotifyWork();
  void WakeForLoop(int threads);
  void StopSearching() {
    if (idle_.StopSearching() && HasWork()) NotifyWork();
  }

  const std::string name_;
  const Placement placement_;
  std::atomic<int> threads_{1};
  // How long a thread searches for work before it sleeps: longer than a sleeper takes to wake up. 0
  // if there are more threads than CPUs, where a searching thread keeps another one from working.
  std::atomic<uint64_t> spin_ticks_{0};
  // How long a thread searches for work after a loop. Kernels that run one after the other start
  // the next loop soon. Waking a thread takes tens of microseconds, longer than many loops.
  std::atomic<uint64_t> loop_spin_ticks_{0};
  std::atomic<bool> stopping_{false};

  detail::Mutex start_mutex_;
  std::atomic<int> running_{0};  // workers whose thread exists
  std::atomic<int> slots_{0};    // workers ever made: the entries of workers_ that are set
  std::atomic<detail::PoolWorker*> workers_[kMaxThreads] = {};
  ThreadPool* registry_next_ = nullptr;

  alignas(detail::kCacheLine) detail::Inbox injected_;
  alignas(detail::kCacheLine) detail::LoopBoard loops_;
  alignas(detail::kCacheLine) detail::IdleList idle_;
};

namespace detail {

// Returns the program's own threads that run loops of this thread in place of a pool
// (SetParallelFor). Null if there are none, or if this thread's current pool is not the pool of the
// process.
inline const OwnThreads* CurrentOwnThreads() {
  const OwnThreads* const own = g_own_threads.load(std::memory_order_acquire);
  return own && (!t_pool.pool || t_pool.pool == &ThreadPool::Global()) ? own : nullptr;
}

}  // namespace detail

// Returns the number of threads that loops of this thread run on: that of SetParallelFor, or of the
// current pool. Kernels pass it to the libraries that they call.
inline int NumThreads() {
  const detail::OwnThreads* const own = detail::CurrentOwnThreads();
  return own ? own->threads : ThreadPool::Current().threads();
}
// Resizes the process's pool.
inline void SetNumThreads(int threads) { ThreadPool::Global().Resize(threads); }

}}  // namespace opkit

#endif  // OPKIT_ENGINE_THREAD_POOL_HPP_

// ---- opkit/engine/parallel_for.hpp
// ParallelFor: a loop whose iterations are spread over the current thread pool; kernels are written
// with it. The body is inlined into a chunk; only chunks are called through a pointer.
#ifndef OPKIT_ENGINE_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_PARALLEL_FOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The bodies of ParallelFor and ParallelForRange.
template <class F>
concept IndexBody = std::is_invocable_v<F&, int64_t>;

template <class F>
concept RangeBody = std::is_invocable_v<F&, int64_t, int64_t>;

}  // namespace detail

inline constexpr int64_t kAutoGrain = 0;

namespace detail {

// Replaces the pool for this thread's loops; a library forwards them to its host.
struct LoopRunner {
  void (*run)(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body);
};
OPKIT_IMAGE_LOCAL inline constinit thread_local const LoopRunner* t_loop_runner = nullptr;

OPKIT_IMAGE_LOCAL void RunParallel(int64_t n, int64_t grain, RangeFunction body);

// Calls `work` `count` times, on all its threads at once, and returns when all calls have returned.
using CallOnThreads = FunctionRef<void(int count, FunctionRef<void()> work)>;

// Runs this thread's loops on the threads of a host that calls an operator:
//   const auto run = [&](int count, FunctionRef<void()> work) { … };
//   const LoopsOnHost loops(host_threads, run);
//   const ScopedValue on_host(t_loop_runner, &loops);
// A loop inside a loop runs on the thread of the outer one.
class OPKIT_IMAGE_LOCAL LoopsOnHost : public LoopRunner {
 public:
  // `call` must outlive the object.
  LoopsOnHost(int threads, CallOnThreads call) : LoopRunner{&Run}, threads_(threads), run_(call) {}

 private:
  static void Run(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body);

  int threads_;
  CallOnThreads run_;
};

}  // namespace detail

// Runs the loops of the process's pool on `threads` threads of the program's own, so that the two
// do not compete for the CPUs. The pool is resized to one thread, so that plans run their nodes one
// after the other and start no thread. A loop inside a loop runs on the thread of the outer one. An
// empty function undoes it. Must not be called while a loop runs. Error (kInvalidArgument) for a
// number outside 1 to ThreadPool::kMaxThreads.
//
//   SetParallelFor(8, [&](int count, FunctionRef<void()> work) {
//     tbb::parallel_for(0, count, [&](int) { work(); });
//   });
void SetParallelFor(int threads, detail::RunOnThreads run);

// Calls f(begin, end) so that the ranges make up [0, n) and each index is in one of them. With a
// positive grain the ranges are [k * grain, (k + 1) * grain), the last one shorter. The number of
// threads does not change them, so partial results by range are reproducible. With kAutoGrain the
// ranges depend on how long the body takes. The ranges run in any order and at the same time, under
// the caller's invocation. They run on the current pool's idle workers and on this thread, which
// runs nothing else meanwhile.
//
// Returns when all ranges have ended. If one throws, those not yet begun are skipped and the first
// exception is rethrown here. Loops may be nested to any depth.
template <class F>
void ParallelForRange(int64_t n, int64_t grain, F&& f) {
  static_assert(detail::RangeBody<F>,
                "ParallelForRange: the body must be callable as f(int64_t begin, int64_t end)");
  if (n <= 0) return;
  if (n <= grain)
    f(int64_t{0}, n);
  else
    detail::RunParallel(n, grain, f);
}

// Calls f(i) for every i in [0, n). `grain` is the number of indices that are worth giving to
// another thread, about 10 us of work; a loop with n <= grain is a plain loop, at no cost.
// kAutoGrain measures the grain, which costs 40 to 80 ns a call. It fits unless the first indices
// are much cheaper than the rest.
//
//   opkit::ParallelFor(rows, [&](int64_t row) { Softmax(x + row * columns, columns); });
template <class F>
void ParallelFor(int64_t n, F&& f, int64_t grain = kAutoGrain) {
  static_assert(detail::IndexBody<F>, "ParallelFor: the body must be callable as f(int64_t index)");
  using Body = std::remove_cvref_t<F>;
  ParallelForRange(n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int64_t>) {
      // A copy on the stack keeps the body's captures in registers: the compiler knows that the
      // body's stores do not change it.
      const Body body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_PARALLEL_FOR_HPP_

// ---- opkit/engine/context_parallel_for.hpp
// ParallelFor(ctx, n, f): one loop for every device. On a host context it is ParallelFor on the
// thread pool, issued through the context; a device's backend adds the overload that launches a
// kernel.
#ifndef OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Issues f(i) for every i in [0, n). Errors of `f` reach the caller, or the operator's event.
//
// On an asynchronous context `f` runs after this function has returned, so it must capture by
// value. With [&] it reads variables that no longer exist: no compiler reports that, and it ends in
// garbage or a crash (CheckOperator finds both). On a CPU stream `f` may own its data: a
// std::vector, a std::shared_ptr or std::unique_ptr captured by value lives until the stream has
// run the loop. On CUDA `f` is copied byte by byte, so it must be trivially copyable.
//
//   ParallelFor(ctx, n, [=] OPKIT_DEVICE (int64_t i) { y[i] = 2 * x[i]; });
template <detail::HostContext Context, class F>
void ParallelFor(Context& context, int64_t n, F f, int64_t grain = kAutoGrain) {
#ifdef OPKIT_DEVICE_COMPILER
  static_assert(!__nv_is_extended_device_lambda_closure_type(F),
                "ParallelFor: this lambda is for the device only and would do nothing on a host "
                "context; compile the CPU kernel in a .cc file, or pass a struct with an "
                "OPKIT_HOST_DEVICE call operator");
#endif
  if constexpr (!Context::kAsynchronous)
    ParallelFor(n, f, grain);
  else
    context.Launch([n, f = std::move(f), grain]() mutable { ParallelFor(n, f, grain); });
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

// ---- opkit/base/image_mode.hpp
// Detects programs that mix header-only and compiled units (config.hpp). Each kind has its own
// registries, so an operator of one kind would be missing in the other. Each unit leaves a marker
// symbol of its kind in the program or shared library; the registries look for the marker of the
// other kind.
#ifndef OPKIT_BASE_IMAGE_MODE_HPP_
#define OPKIT_BASE_IMAGE_MODE_HPP_

// The symbols are hidden: a program and a library that it loads may be of different kinds, and must
// not see each other's markers.
extern "C" {
#ifdef OPKIT_COMPILED
__attribute__((used)) OPKIT_IMAGE_LOCAL inline char opkit_unit_is_compiled = 0;
__attribute__((weak)) OPKIT_IMAGE_LOCAL extern char opkit_unit_is_header_only;
#else
__attribute__((used)) OPKIT_IMAGE_LOCAL inline char opkit_unit_is_header_only = 0;
__attribute__((weak)) OPKIT_IMAGE_LOCAL extern char opkit_unit_is_compiled;
#endif
}

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True if a unit of the other kind is linked into this program or shared library.
inline bool ImageMixesModes() {
#ifdef OPKIT_COMPILED
  char* volatile other = &opkit_unit_is_header_only;
#else
  char* volatile other = &opkit_unit_is_compiled;
#endif
  return other;
}

inline constexpr const char* kMixedModes =
    "this program or shared library mixes units that are header-only with units that define "
    "OPKIT_COMPILED, and each kind has registries of its own: define OPKIT_COMPILED for all of "
    "them (in CMake all link opkit::opkit) or for none (all link opkit::header_only)";

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMAGE_MODE_HPP_

// ---- opkit/op/fwd.hpp
// Forward declarations of the classes that define, register, make, call and watch operators, for
// headers that only name them.
#ifndef OPKIT_OP_FWD_HPP_
#define OPKIT_OP_FWD_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct TensorInfo;
class InferenceContext;
class OpSchema;

struct KernelQuery;
struct KernelConfig;
struct Kernel;
class OpRegistry;

class Blob;
class Workspace;
class OperatorBase;
template <class Context>
class Operator;
struct CreateOptions;
struct KernelCandidate;
class ResolvedOperator;

template <class T>
class ObserverBase;

struct GradientValue;
struct GradientOpsMeta;
class GradientNames;
class GradientMakerBase;
class GradientRegistry;

}}  // namespace opkit

#endif  // OPKIT_OP_FWD_HPP_

// ---- opkit/op/operator_def.hpp
// OperatorDef: a node as plain data: the operator's type, the names of its inputs and outputs, its
// attributes, its device and the requested backend. Schemas and registries provide all other facts.
#ifndef OPKIT_OP_OPERATOR_DEF_HPP_
#define OPKIT_OP_OPERATOR_DEF_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class GradientNames;
class InferenceContext;
class OperatorDef;
struct GradientOpsMeta;
struct GradientValue;

namespace detail {

// A graph that an operator carries (the branches of If, the body of Loop). Immutable once shared.
// The folder graph/ defines graphs. This interface only stores and compares a graph, and answers
// questions about the node that runs the graph. The node's inputs and outputs match the graph's by
// position.
class SubgraphBase : public RefCounted {
 public:
  virtual bool Equals(const SubgraphBase& other) const = 0;
  virtual std::string Describe() const = 0;
  // Returns the graph's numbers of inputs and outputs; -1 for an unknown number.
  virtual std::pair<int, int> Arity() const { return {-1, -1}; }
  // Infers the types of the node's inputs and outputs from the graph; does nothing if their counts
  // differ.
  virtual void Infer(InferenceContext&) const {}
  // Fills in the operators that compute the gradients of the node's inputs. Returns false if the
  // graph cannot.
  virtual bool MakeGradient(const OperatorDef&, const std::vector<GradientValue>&, GradientNames&,
                            GradientOpsMeta&) const {
    return false;
  }
  // Returns the indices of the inputs that the graph writes to.
  virtual std::vector<int> MutatedInputs() const { return {}; }
};

// One named subgraph of a node. Copies share the graph.
struct NamedSubgraph {
  std::string name;
  IntrusivePtr<const SubgraphBase> graph;
  friend bool operator==(const NamedSubgraph& a, const NamedSubgraph& b) {
    return a.name == b.name && (a.graph == b.graph || a.graph->Equals(*b.graph));
  }
};

}  // namespace detail

// A regular value with a fluent builder: an overload with an argument sets or adds, an overload
// without an argument reads. Copies share their fields until a copy is changed, so that copies of a
// graph and the operators of its nodes share one set of fields. Copying the definition makes
// references from mutable_…() functions invalid.
//
//   OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f).Device(DeviceType::kCPU)
class OperatorDef {
 public:
  // The strength of a node's request for backends: kPreferred also allows other backends, kRequired
  // does not.
  enum BackendNeed : uint8_t { kPreferred, kRequired };

  OperatorDef() = default;
  // A node of the operator `type`; the other parts may be given here or by the setters below.
  explicit OperatorDef(std::string type) { Type(std::move(type)); }
  OperatorDef(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
              Arguments args = {});

  // Set the operator, and the node's own name, which messages and profiles show.
  OperatorDef& Type(std::string type) { return mutable_fields().type = std::move(type), *this; }
  OperatorDef& Name(std::string name) { return mutable_fields().name = std::move(name), *this; }
  // Adds an input or output; an empty name leaves an optional input or output out.
  OperatorDef& Input(std::string name);
  OperatorDef& Output(std::string name);
  OperatorDef& Inputs(const std::vector<std::string>& names);
  OperatorDef& Outputs(const std::vector<std::string>& names);
  // Adds the name of a node that must run before this node, although this node reads none of its
  // outputs.
  OperatorDef& ControlInput(std::string name);
  OperatorDef& Arg(std::string name, Attribute value);
  // Adds a subgraph, or replaces the subgraph of that name (MakeSubgraph of graph/subgraph.hpp
  // makes a graph). Throws kInvalidArgument for null.
  OperatorDef& Subgraph(std::string name, detail::IntrusivePtr<const detail::SubgraphBase> graph);
  OperatorDef& Device(::opkit::Device device) { return mutable_fields().device = device, *this; }
  OperatorDef& Device(DeviceType type, int32_t index = 0) { return Device({type, index}); }
  // Sets the backends to try, in order, separated by commas. "DEFAULT" is the plain operator.
  // Preferred backends that are not in the program, or refuse the node, are skipped, so that one
  // net runs on machines with and without them. Of required backends, one must accept the node.
  OperatorDef& Backends(std::string backends, BackendNeed need = kPreferred) {
    mutable_fields().backends = std::move(backends);
    mutable_fields().backend_need = need;
    return *this;
  }
  // Caffe2's name of Backends().
  OperatorDef& Engine(std::string backends) { return Backends(std::move(backends)); }
  // Sets the process that runs the node, from 0, if several processes run the graph together
  // (PlanOptions::cluster); -1, the default: each process runs it.
  OperatorDef& Process(int process) { return mutable_fields().process = process, *this; }
  OperatorDef& IsGradientOp(bool value) { return mutable_fields().is_gradient_op = value, *this; }

  // Return the parts that the setters have set, by reference into the definition.
  const std::string& type() const { return fields().type; }
  const std::string& name() const { return fields().name; }
  const std::vector<std::string>& inputs() const { return fields().inputs; }
  const std::vector<std::string>& outputs() const { return fields().outputs; }
  // Caffe2's spellings. They are members, because a ported source calls them on the toolkit's own
  // nodes.
  int input_size() const { return static_cast<int>(inputs().size()); }
  int output_size() const { return static_cast<int>(outputs().size()); }
  const std::string& input(int i) const { return inputs().at(static_cast<size_t>(i)); }
  const std::string& output(int i) const { return outputs().at(static_cast<size_t>(i)); }
  const std::vector<std::string>& control_inputs() const { return fields().control_inputs; }
  const Arguments& args() const { return fields().args; }
  const std::vector<detail::NamedSubgraph>& subgraphs() const { return fields().subgraphs; }
  // Returns null if there is no subgraph of that name.
  const detail::SubgraphBase* FindSubgraph(std::string_view name) const;
  ::opkit::Device device() const { return fields().device; }
  const std::string& backends() const { return fields().backends; }
  bool requires_backends() const {
    return fields().backend_need == kRequired && !fields().backends.empty();
  }
  int process() const { return fields().process; }
  bool is_gradient_op() const { return fields().is_gradient_op; }
  Arguments& mutable_args() { return mutable_fields().args; }
  std::vector<std::string>& mutable_inputs() { return mutable_fields().inputs; }
  std::vector<std::string>& mutable_outputs() { return mutable_fields().outputs; }
  std::vector<std::string>& mutable_control_inputs() { return mutable_fields().control_inputs; }

  // Returns the node's text for messages: "Scale 'name' (X) -> (Y)".
  OPKIT_COLD friend std::string ToString(const OperatorDef& def);
  friend bool operator==(const OperatorDef& a, const OperatorDef& b) {
    return a.shared_ == b.shared_ || a.fields() == b.fields();
  }

 private:
  struct Fields {
    std::string type;
    std::string name;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::vector<std::string> control_inputs;
    Arguments args;
    std::vector<detail::NamedSubgraph> subgraphs;
    ::opkit::Device device;
    std::string backends;
    BackendNeed backend_need = kPreferred;
    int process = -1;
    bool is_gradient_op = false;
    friend bool operator==(const Fields&, const Fields&) = default;
  };
  OPKIT_INLINE static const Fields& NoFields();
  const Fields& fields() const { return shared_ ? shared_->value : NoFields(); }
  // Returns fields that no other definition shares; copies them first if necessary.
  OPKIT_INLINE Fields& mutable_fields();

  detail::IntrusivePtr<detail::Shared<Fields>> shared_;  // null: default fields
};

// A program writes kRequired without the class.
using enum OperatorDef::BackendNeed;

}}  // namespace opkit

#endif  // OPKIT_OP_OPERATOR_DEF_HPP_

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

// ---- opkit/op/inference.hpp
// TensorInfo and InferenceContext: the facts that shape and type inference has about a node's
// inputs and outputs. An extent may be a symbol or unknown; constant inputs have their data.
#ifndef OPKIT_OP_INFERENCE_HPP_
#define OPKIT_OP_INFERENCE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The knowledge of a value before it is computed.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
  Device device;
  Layout layout;
  // For a sequence or an optional value: the dtype of the tensors in it, and whether an optional
  // value holds a sequence of them. Unknown for other values.
  DType element = DType::kUndefined;
  bool holds_sequence = false;
  const Tensor* constant = nullptr;  // the value's data if known; not owned

  TensorInfo() = default;
  TensorInfo(DType type, SymbolicShape extents) : dtype(type), shape(std::move(extents)) {}
  OPKIT_NOINLINE TensorInfo(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo(TensorInfo&&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(const TensorInfo&) = default;
  OPKIT_NOINLINE TensorInfo& operator=(TensorInfo&&) = default;
  OPKIT_NOINLINE ~TensorInfo() = default;
  // Returns the dtype, shape, device and layout of a tensor. OfConstant also lets inference read
  // the tensor's data, if it has memory; the tensor must then outlive the TensorInfo.
  static TensorInfo Of(const Tensor& tensor);
  static TensorInfo OfConstant(const Tensor& tensor);
  friend std::string ToString(const TensorInfo& info);
};

namespace detail {
// Returns the default of an attribute; null if none is declared, or if the list is null.
const Attribute* DefaultOf(const std::vector<AttributeSchema>* declared, std::string_view name);
}  // namespace detail

// The argument of an operator's inference function, which reads the inputs and sets the outputs.
// Outputs may already have partial information, and the function may refine inputs from it.
class InferenceContext {
 public:
  InferenceContext(const OperatorDef& def, std::vector<TensorInfo> inputs,
                   std::vector<TensorInfo> outputs = {});

  const OperatorDef& def() const { return def_; }
  const Arguments& args() const { return def_.args(); }
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    return args().Get<T>(name, std::move(fallback));
  }
  // Returns the node's attribute, else the default that the operator's schema declares. Throws
  // kNotFound if there is neither.
  template <class T>
  T Arg(std::string_view name) const {
    const Attribute* fallback = args().Has(name) ? nullptr : detail::DefaultOf(declared_, name);
    return fallback ? fallback->Get<T>() : args().Get<T>(name);
  }
  // Sets the attributes that the schema declares, whose defaults Arg returns. OpSchema calls it;
  // the list must outlive the context.
  void SetDeclared(const std::vector<detail::AttributeSchema>& declared) { declared_ = &declared; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  int InputSize() const { return num_inputs(); }  // OperatorBase's name of num_inputs()
  int OutputSize() const { return num_outputs(); }
  // False for an optional input that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < num_inputs() && !def_.inputs()[detail::Index(i)].empty();
  }
  // Throws kOutOfRange for an index that the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // Returns the data of a constant input; null if not known yet.
  const Tensor* input_constant(int i) const;
  // True once input_constant was called for data that is not known yet. The inferred types may then
  // be incomplete or wrong for the real data.
  bool lacks_data() const { return lacks_data_; }
  // Makes input_constant call `find` for inputs whose info has no data, so that data is fetched
  // only if an operator reads it. `find` must outlive the inference.
  void ReadConstantsFrom(FunctionRef<const Tensor*(int)> find) { find_constant_ = find; }
  const TensorInfo& output(int i) const { return outputs_[Check(i, outputs_.size(), "output")]; }

  // Refines the dtype and shape of a value; an undefined dtype or unknown extent adds nothing.
  // Throws kTypeMismatch or kInvalidArgument, showing both sides, if the two contradict each other.
  void SetOutput(int i, DType dtype, const SymbolicShape& shape);
  // Also refines what is known about the elements of a sequence or an optional value.
  void SetOutput(int i, const TensorInfo& info);
  void SetInput(int i, DType dtype, const SymbolicShape& shape);
  // Sets dtype, shape and elements of an output that depends only on shapes and attributes
  // (operator Shape). The shapes of its consumers can then be inferred too.
  void SetOutputData(int i, const Tensor& data);
  // Returns null if SetOutputData was not called.
  const Tensor* output_data(int i) const;

  std::vector<TensorInfo>& inputs() { return inputs_; }
  std::vector<TensorInfo>& outputs() { return outputs_; }

 private:
  static size_t Check(int i, size_t count, const char* what);

  const OperatorDef& def_;
  const std::vector<detail::AttributeSchema>* declared_ = nullptr;
  std::vector<TensorInfo> inputs_, outputs_;
  std::optional<FunctionRef<const Tensor*(int)>> find_constant_;
  mutable bool lacks_data_ = false;
  std::vector<Tensor> output_data_;  // by output, or empty; an undefined dtype means not set
};

namespace detail {

// Hooks that a loaded library fills: the first is true if the program that loaded the library has
// the operator; the second infers by the program's operator. In a program they are empty or return
// false.
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(const std::string& op)> g_host_has_operator{
    "an operator of the program, in a library,", "opkit/op.hpp"};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(InferenceContext& context)> g_infer_on_host{
    "an operator of the program, in a library,", "opkit/op.hpp"};
inline bool IsOperatorOfHost(const std::string& op) {
  return g_host_has_operator && g_host_has_operator(op);
}

// A node's inputs; null for an input that the node leaves out.
using InputPointers = std::span<const Tensor* const>;

// The inferred types of a node that runs repeatedly. Infers again only if an input's dtype or shape
// has changed, or if the result depended on an input's data. Each operator has a cache; the
// operator itself, an eager call or a plan fills it.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // valid if `known`
    bool Allows(const Tensor& made) const {
      return (dtype == DType::kUndefined || dtype == made.dtype()) &&
             (!known || shape == made.shape());
    }
    TensorInfo info() const { return {dtype, known ? SymbolicShape(shape) : SymbolicShape()}; }
  };

  // True if these inputs have the recorded dtypes and shapes.
  static bool Match(const std::vector<Output>& recorded, InputPointers inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != recorded[i].dtype || inputs[i]->shape() != recorded[i].shape))
        return false;
    return true;
  }
  // True if outputs() is valid for these inputs.
  bool IsFresh(InputPointers inputs) const { return fresh_ && Match(inputs_, inputs); }
  // Like IsFresh(inputs), for a caller whose inputs have not changed since the last IsFresh call.
  bool fresh() const { return fresh_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Increases whenever the outputs are recomputed; begins at 0.
  uint64_t version() const { return version_; }

  // Runs `infer` and records the outputs. Calls `before_data` before the first read of an input's
  // elements, because the device may still be computing them. The cache is fresh only after Keep.
  void Infer(const OperatorDef& def, InputPointers inputs,
             FunctionRef<void(InferenceContext&)> infer, FunctionRef<void()> before_data);
  // Accepts the result. It is valid until an input changes; if it depended on an input's data, only
  // for this run.
  void Keep() { fresh_ = !data_read_; }

  // Takes over the types that a plan has inferred. Does nothing if a dtype or shape is unknown. If
  // the plan lacked an input's data, each run infers again and throws kInvalidArgument if the
  // result contradicts the plan.
  void Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
           std::span<const TensorInfo> outputs, bool lacks_data);

 private:
  std::vector<Output> inputs_, outputs_;
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
  std::vector<TensorInfo> planned_;  // types that every run must agree with; empty: no restriction
};

// Throws kOperatorFailed for an output whose dtype or shape differs from the inferred one.
[[noreturn]] OPKIT_COLD void ThrowContradicts(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const TensorInfo& inferred);
// Throws kOperatorFailed for an output whose layout differs from its kernel's configuration.
[[noreturn]] OPKIT_COLD void ThrowOtherLayout(const OperatorDef& def, std::string_view output,
                                              const Tensor& made, const Layout& promised);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_HPP_

// ---- opkit/op/kernel.hpp
// Kernel: one implementation of an operator for a device type and a backend. For a KernelQuery it
// proposes configurations; selection picks one of them before memory is planned.
#ifndef OPKIT_OP_KERNEL_HPP_
#define OPKIT_OP_KERNEL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct FusionQuery;  // opkit/op/fusion.hpp
struct FusedNode;    // opkit/op/fusion.hpp

// A node and all known facts about its values: dtypes, shapes, layouts, constants' data.
struct KernelQuery {
  const OperatorDef& def;
  std::span<const TensorInfo> inputs;
  std::span<const TensorInfo> outputs;
};

// A configuration in which a kernel can run a node.
struct KernelConfig {
  std::vector<Layout> input_layouts;  // empty: all standard; otherwise one layout for each value
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;  // {input, output} that may share memory
  int64_t scratch_bytes = 0;                 // bytes for a run; see OperatorBase::Scratch
  double cost_ns = -1;                       // an estimate; negative: none
  // Names one of several ways in which the kernel can run a node with the same layouts: "winograd",
  // "threads=1". The kernel reads the name of the chosen one in its constructor. Empty: the usual
  // way. Configurations with equal layouts have different names. Printable characters in one line.
  std::string variant;

  Layout input_layout(size_t i) const {
    return i < input_layouts.size() ? input_layouts[i] : Layout();
  }
  Layout output_layout(size_t o) const {
    return o < output_layouts.size() ? output_layouts[o] : Layout();
  }
  // True if all layouts are the standard layout.
  bool is_standard() const {
    for (const auto* layouts : {&input_layouts, &output_layouts})
      for (const Layout& layout : *layouts)
        if (!layout.is_standard()) return false;
    return true;
  }
};

namespace detail {

// Returns the name of a kernel's configuration in texts, "onednn" or "onednn winograd".
inline std::string WithVariant(const std::string& backend, const std::string& variant) {
  return variant.empty() ? backend : StrCat(backend, " ", variant);
}

// Makes an operator for a node: a function (const OperatorDef&, Workspace*), which may also take
// the chosen configuration as a third argument: const KernelConfig*, null if none was chosen.
class OperatorCreator {
 public:
  using Pointer = std::unique_ptr<OperatorBase>;

  OperatorCreator() = default;
  template <class F>
    requires(!std::is_same_v<F, OperatorCreator> &&
             (CallableAs<F, Pointer, const OperatorDef&, Workspace*> ||
              CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>))
  OperatorCreator(F create) {
    if constexpr (CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>) {
      create_ = std::move(create);
    } else {
      create_ = [create = std::move(create)](const OperatorDef& def, Workspace* ws,
                                             const KernelConfig*) mutable -> Pointer {
        return create(def, ws);
      };
    }
  }
  // The definition is in operator_base.ipp, because it needs the complete class OperatorBase.
  Pointer operator()(const OperatorDef& def, Workspace* ws,
                     const KernelConfig* config = nullptr) const;
  explicit operator bool() const { return static_cast<bool>(create_); }

 private:
  mutable UniqueFunction<Pointer(const OperatorDef&, Workspace*, const KernelConfig*)> create_;
};

// Returns the configurations for a node, best first. If the kernel cannot run the node, returns an
// empty list or throws UnsupportedOperatorFeature with the reason.
using KernelProposer = UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)>;

// Fuses a kernel's node with the next node; returns nullopt if the kernel cannot. Plans call the
// function again with the fused node, to fuse more nodes.
using KernelFuser = UniqueFunction<std::optional<FusedNode>(const FusionQuery&)>;

struct TypedKernel;
using MakeTyped = std::unique_ptr<OperatorBase> (*)(const TypedKernel& kernel,
                                                    const OperatorDef& def, Workspace* ws);
}  // namespace detail

inline constexpr const char* kReferenceBackend = "reference";  // the plain operator

// An implementation of an operator, as a registration describes it.
struct Kernel {
  // Decides between two kernels of the same operator, device and backend: the higher priority wins.
  // Two equal priorities from two places are an error at first lookup.
  enum class Priority : uint8_t { kFallback = 1, kDefault = 2, kPreferred = 3 };

  std::string op;
  DeviceType device = DeviceType::kCPU;
  std::string backend = kReferenceBackend;
  Priority priority = Priority::kDefault;
  const char* file = "";
  int line = 0;
  std::string origin;  // the library of the kernel; empty for the program itself
  detail::IntrusivePtr<detail::RefCounted> owner;  // keeps the library loaded
  detail::OperatorCreator create;  // UnsupportedOperatorFeature: the next kernel is tried
  // Used instead of `create` for a typed operator: its record, and the function that makes the
  // operator from it. The function is null for CPUContext, which CreateOperator handles itself.
  const detail::TypedKernel* typed = nullptr;
  detail::MakeTyped make_typed = nullptr;
  bool shares_state_with_backward = false;  // forward leaves its state for the backward node
  // Empty: one configuration with standard layouts and the schema's in-place pairs.
  mutable detail::KernelProposer propose;
  // True if a configuration may have other layouts than the standard one.
  bool proposes_layouts = false;
  // Empty: the kernel's nodes are never fused.
  mutable detail::KernelFuser fuse;

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thrown by the constructor of an operator that cannot run this node. The next kernel is then
// tried.
class OPKIT_VISIBLE UnsupportedOperatorFeature : public Error {
 public:
  explicit UnsupportedOperatorFeature(std::string what)
      : Error(ErrorCode::kUnsupported, std::move(what)) {}
};

}}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_HPP_

// ---- opkit/op/schema/op_cost.hpp
// OpCost: the work of one run of an operator, the same for every device.
#ifndef OPKIT_OP_SCHEMA_OP_COST_HPP_
#define OPKIT_OP_SCHEMA_OP_COST_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The work of one run, for benchmarks, profiles and selection.
struct OpCost {
  uint64_t flops = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t params_bytes = 0;
};

}}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_OP_COST_HPP_

// ---- opkit/op/schema.hpp
// OpSchema: the facts about an operator that are true on every device. OPERATOR_SCHEMA or a typed
// signature fills it in once. The schema then verifies nodes, infers their outputs and computes the
// cost of a run.
#ifndef OPKIT_OP_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Function objects in these classes are mutable because const members call them. Their results must
// not depend on earlier calls.

// The allowed numbers of inputs or outputs of a node: a range and, within it, a list or a
// predicate.
class CountRule {
 public:
  static constexpr int kAny = 1 << 30;

  void SetRange(int least, int most) { min_ = least, max_ = most; }
  void SetList(std::initializer_list<int> allowed);
  void SetPredicate(UniqueFunction<bool(int)> allowed);
  int least() const { return min_; }
  int most() const { return max_; }
  // Returns the only number of the range; -1 if the range has several numbers.
  int fixed() const { return min_ == max_ ? min_ : -1; }
  bool Allows(int count) const;
  // Returns "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string Describe() const;

 private:
  int min_ = 0, max_ = kAny;
  std::vector<int> list_;
  mutable UniqueFunction<bool(int)> predicate_;
};

// The allowed numbers of inputs and outputs, and the rule by which the number of outputs follows
// from the inputs or the attributes.
struct ArityRules {
  CountRule inputs, outputs;
  mutable UniqueFunction<bool(int, int)> pair_allowed;
  mutable UniqueFunction<int(int)> outputs_of_inputs;
  mutable UniqueFunction<std::pair<int, int>(const Arguments&, std::span<const NamedSubgraph>)>
      of_arguments;

  // Returns the number of outputs; -1 if the inputs and attributes do not decide it.
  int OutputsOf(int num_inputs) const;
  int OutputsOf(int num_inputs, const Arguments& args) const;
  // Returns the numbers of inputs and outputs of a node with these attributes; -1 for a number that
  // they do not decide.
  std::pair<int, int> Of(const Arguments& args) const;
  // Returns the reason why a node of `op` may not have its numbers of values; empty if the numbers
  // are allowed. The Verify functions below have the same convention.
  std::string Verify(const std::string& op, const OperatorDef& def, bool needs_subgraph) const;
};

// Pairs {input, output} that may, or must, be one blob.
struct InplaceRules {
  using Predicate = UniqueFunction<bool(int, int)>;
  mutable Predicate allowed, enforced;

  static Predicate AnyOf(std::initializer_list<std::pair<int, int>> pairs);
  static bool OneToOne(int input, int output) { return input == output; }
  bool Must(int input, int output) const { return enforced && enforced(input, output); }
  bool May(int input, int output) const {
    return Must(input, output) || (allowed && allowed(input, output));
  }
  std::string Verify(const std::string& op, const OperatorDef& def) const;
};

// The declared attributes. With `free_if_none` an operator parses its attributes itself, and
// accepts every attribute if none is declared.
struct AttributeRules {
  std::vector<AttributeSchema> declared;
  bool unknown_allowed = false, free_if_none = false;

  // Returns null if it is not declared.
  const AttributeSchema* Find(std::string_view name) const;
  bool Takes(std::string_view name) const {
    return unknown_allowed || (free_if_none && declared.empty()) || Find(name);
  }
  std::string Suggest(std::string_view name) const;
  std::string Verify(const std::string& op, const Arguments& args) const;
};

// Selects AdaptInference, which a header of compat/ defines. AdaptInference converts an ancestor's
// form of an inference function to a function of an InferenceContext.
struct AncestorForm {};

// Throws kTypeMismatch if a known dtype is not among the declared ones. If none is declared, allows
// the dtypes up to `last`, and those of numbers.
OPKIT_COLD void CheckDTypes(const char* what, const std::vector<ValueSchema>& declared,
                            const std::vector<TensorInfo>& infos, DType last = DType::kUndefined);

}  // namespace detail

// The schema of an operator. Setters return *this, so that a schema reads as one sentence. Not
// synchronised: filled in during static initialisation, read-only afterwards.
class OpSchema {
 public:
  OpSchema() = default;
  // The schema of operator `name`, registered at this place; OPERATOR_SCHEMA makes it.
  OpSchema(std::string name, const char* file, int line, std::string signature = {});

  // Sets the allowed numbers: exactly n, between two numbers, one of a list, or by a predicate.
  OpSchema& NumInputs(int n) { return NumInputs(n, n); }
  OpSchema& NumInputs(int min, int max) { return arity_.inputs.SetRange(min, max), *this; }
  OpSchema& NumInputs(std::initializer_list<int> all) { return arity_.inputs.SetList(all), *this; }
  OpSchema& NumInputs(UniqueFunction<bool(int)> allowed) {
    return arity_.inputs.SetPredicate(std::move(allowed)), *this;
  }
  OpSchema& NumOutputs(int n) { return NumOutputs(n, n); }
  OpSchema& NumOutputs(int min, int max) { return arity_.outputs.SetRange(min, max), *this; }
  OpSchema& NumOutputs(std::initializer_list<int> all) {
    return arity_.outputs.SetList(all), *this;
  }
  OpSchema& NumOutputs(UniqueFunction<bool(int)> allowed) {
    return arity_.outputs.SetPredicate(std::move(allowed)), *this;
  }
  // Sets a predicate of the numbers of inputs and outputs.
  OpSchema& NumInputsOutputs(UniqueFunction<bool(int, int)> allowed) {
    return arity_.pair_allowed = std::move(allowed), *this;
  }
  // Sets the function that computes the number of outputs from the number of inputs.
  OpSchema& OutputCalculator(UniqueFunction<int(int)> calculate) {
    return arity_.outputs_of_inputs = std::move(calculate), *this;
  }
  OpSchema& SameNumberOfOutput() {
    return OutputCalculator([](int inputs) { return inputs; });
  }
  // Sets the function that computes the numbers of inputs and outputs from the attributes and the
  // graphs of a node; it returns -1 for a number that they do not decide. If the node carries one
  // graph, and the operator NeedsSubgraph(), such a number is the graph's.
  using ArityFunction = UniqueFunction<std::pair<int, int>(
      const Arguments&, std::span<const detail::NamedSubgraph> graphs)>;
  OpSchema& ArityFromArguments(ArityFunction arity) {
    return arity_.of_arguments = std::move(arity), *this;
  }

  // Sets the inputs that a node also writes to.
  using MutationFunction = UniqueFunction<std::vector<int>(const OperatorDef&)>;
  OpSchema& MutatesInputs(MutationFunction inputs) { return mutates_ = std::move(inputs), *this; }
  OpSchema& MutatesInputs(std::initializer_list<int> inputs);

  // Declares that two runs on the same inputs may differ (random numbers), or that a run has an
  // effect beside its outputs. Such a node is never folded, merged with an equal node, or dropped.
  OpSchema& Stateful() { return stateful_ = runs_differ_ = true, *this; }
  // Declares that a node keeps state between its runs, although equal inputs give equal results.
  // Such a node is never folded, merged with an equal node, or dropped.
  OpSchema& KeepsState() { return stateful_ = true, *this; }
  // Declares that a node runs a graph that it carries; a node without a graph is refused. If the
  // node's inputs and outputs match the graph's by position, the graph decides the node's types and
  // shapes, the inputs to which it writes, and its gradient. The operator's own declarations come
  // first.
  OpSchema& NeedsSubgraph() { return needs_subgraph_ = true, *this; }
  // Declares that the operator runs its nodes' graphs in this program (RunsBodies of
  // graph/node_bodies.hpp), so that a plan's passes also process those graphs.
  OpSchema& RunsSubgraphs() { return runs_subgraphs_ = true, *this; }

  // Sets the pairs {input, output} that may, or must, be the same blob.
  using InplacePredicate = detail::InplaceRules::Predicate;
  OpSchema& Inplace(InplacePredicate may) { return inplace_.allowed = std::move(may), *this; }
  OpSchema& Inplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Inplace(detail::InplaceRules::AnyOf(pairs));
  }
  OpSchema& OneToOneInplace() { return Inplace(&detail::InplaceRules::OneToOne); }
  OpSchema& EnforceInplace(InplacePredicate must) {
    return inplace_.enforced = std::move(must), *this;
  }
  OpSchema& EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return EnforceInplace(detail::InplaceRules::AnyOf(pairs));
  }
  OpSchema& EnforceOneToOneInplace() { return EnforceInplace(&detail::InplaceRules::OneToOne); }

  // Declares an attribute. `Arg(name, doc)` accepts any type; `Arg<T>` checks the type and
  // documents a default. An undeclared attribute is an Error, in a node and in a constructor that
  // reads it, unless AllowUncheckedAttributes is called.
  OpSchema& Arg(std::string name, std::string doc) {
    return Arg({std::move(name), std::move(doc), false, {}, {}});
  }
  template <class T>
  OpSchema& Arg(std::string name, std::string doc, std::optional<T> default_value = {}) {
    detail::AttributeSchema attribute{
        std::move(name), std::move(doc), false, kAttributeTypeOf<T>, {}};
    if (default_value) attribute.default_value.emplace(*default_value);
    return Arg(std::move(attribute));
  }
  OpSchema& Arg(detail::AttributeSchema attribute);
  // Declares an attribute of type T that every node must give.
  template <class T>
  OpSchema& RequiredArg(std::string name, std::string doc) {
    return Arg({std::move(name), std::move(doc), true, kAttributeTypeOf<T>, {}});
  }
  // Declares a string attribute with these values; the first is the default, unless a node must
  // give it.
  //   .Arg("mode", "how the borders are filled", {"valid", "same"})
  OpSchema& Arg(std::string name, std::string doc, std::initializer_list<const char*> values);
  OpSchema& RequiredArg(std::string name, std::string doc,
                        std::initializer_list<const char*> values);
  // Makes a declared attribute optional, or limits its strings. An undeclared name, or a default
  // that is not among the values, becomes the schema's problem().
  OpSchema& Default(std::string_view name, Attribute value);
  OpSchema& Values(std::string_view name, std::vector<std::string> values);
  OpSchema& ArgIsTest(std::string doc) { return Arg("is_test", std::move(doc)); }
  OpSchema& AllowUncheckedAttributes() { return attributes_.unknown_allowed = true, *this; }
  // Declares that the operator's functions parse the attributes: as long as none is declared, a
  // node may give any.
  OpSchema& ParsesAttributes() { return attributes_.free_if_none = true, *this; }

  // Sets the function that infers the types and shapes of the outputs.
  using InferenceFunction = UniqueFunction<void(InferenceContext&)>;
  OpSchema& Infer(InferenceFunction infer) { return infer_ = std::move(infer), *this; }
  // Calls inference only if every input shape is known.
  OpSchema& NeedsAllInputShapes(bool needs = true) { return needs_all_shapes_ = needs, *this; }
  // Sets the inference: output i has the type and shape of input i, of one input, or of input
  // inputs[i]. Known facts about an output refine its input.
  OpSchema& IdenticalTypeAndShape();
  OpSchema& IdenticalTypeAndShapeOfInput(int input);
  OpSchema& IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs);
  // Sets the inference: rank 1, the extent of the input along `dim`, the input's dtype.
  OpSchema& IdenticalTypeAndShapeOfInputDim(int input, int dim);
  OpSchema& ScalarType(DType dtype);

  // Sets the function that computes the cost of a run (operations, bytes) from the node and the
  // types of its inputs and outputs.
  using CostFunction = UniqueFunction<OpCost(const OperatorDef&, const std::vector<TensorInfo>&,
                                             const std::vector<TensorInfo>&)>;
  OpSchema& Cost(CostFunction cost) { return cost_ = std::move(cost), *this; }
  // Sets the cost of an operator that reads every input and writes every output once, with `flops`
  // operations for each element of output 0.
  OpSchema& PointwiseCost(uint64_t flops);
  // Sets the cost of an operator that reads every input and writes every output once, with the
  // floating-point operations of a run from a function. The function reads attributes and the
  // shapes of inputs and outputs, which are all known: for instance OpSchema::Elements(c.output(0))
  // * 2.
  OpSchema& Flops(UniqueFunction<uint64_t(const InferenceContext&)> flops);
  // Sets the function that returns the devices of inputs and outputs. By default all are on the
  // node's device.
  using DevicePlacement = std::pair<std::vector<Device>, std::vector<Device>>;
  OpSchema& DeviceInferenceFunction(UniqueFunction<DevicePlacement(const OperatorDef&)> devices) {
    return devices_ = std::move(devices), *this;
  }
  // Sets the inputs that every kernel reads in the host's memory, such as the shape of a Reshape:
  // the shapes of outputs depend on their elements. Plans leave or copy these inputs there.
  OpSchema& InputsOnHost(std::vector<int> inputs);
  OpSchema& InputsCanCrossDevices() { return inputs_cross_devices_ = true, *this; }

  // Sets name, doc and, if limited, dtypes of an input or output; inference and Invoke throw
  // kTypeMismatch for another dtype.
  OpSchema& Input(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {});
  OpSchema& Output(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {});
  // Declares that the inputs and outputs whose dtypes are not limited also take strings.
  OpSchema& TakesStrings() { return takes_strings_ = true, *this; }
  OpSchema& Doc(std::string doc) { return doc_ = std::move(doc), *this; }
  // Hides the operator in the reference of operators.
  OpSchema& Private() { return private_ = true, *this; }
  // Marks an operator that only plans insert. A library does not export such an operator, because
  // its host has the same one.
  OpSchema& Internal() { return internal_ = true, Private(); }
  // Marks an operator of ONNX's own domain: a model's node of the same name in another domain is a
  // different operator.
  OpSchema& Standard() { return standard_ = true, *this; }
  template <class Populator>
  OpSchema& FillUsing(Populator populate) {
    return populate(*this), *this;
  }
  // Sets the function that makes valid inputs for this operator, for CheckOperator and benchmarks.
  OpSchema& TestInputs(UniqueFunction<std::vector<Tensor>(DType, uint64_t seed)> make) {
    return test_inputs_ = std::move(make), *this;
  }

  // Caffe2's spellings of the setters.
  OpSchema& Arg(std::string name, std::string doc, bool required) {
    return Arg({std::move(name), std::move(doc), required, {}, {}});
  }
  OpSchema& SetDoc(std::string doc) { return Doc(std::move(doc)); }
  OpSchema& AllowInplace(InplacePredicate may) { return Inplace(std::move(may)); }
  OpSchema& AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Inplace(pairs);
  }
  OpSchema& AllowOneToOneInplace() { return OneToOneInplace(); }
  OpSchema& TensorInferenceFunction(InferenceFunction infer) { return Infer(std::move(infer)); }
  // Takes Caffe2's form of the function, once opkit/compat/caffe2.hpp is included.
  template <class F>
    requires requires(F infer) { AdaptInference(infer, detail::AncestorForm{}); }
  OpSchema& TensorInferenceFunction(F infer) {
    return Infer(AdaptInference(std::move(infer), detail::AncestorForm{}));
  }
  OpSchema& CostInferenceFunction(CostFunction cost) { return Cost(std::move(cost)); }
  OpSchema& AllowUnknownArgs() { return AllowUncheckedAttributes(); }
  OpSchema& InheritOnnxSchema(std::string_view = {}) { return *this; }  // does nothing

  // Return the operator's name, and the place of its registration.
  const std::string& name() const { return name_; }
  const char* file() const { return file_; }
  int line() const { return line_; }
  // Returns the library of the operator, by its name in this program; empty for the program itself.
  const std::string& origin() const { return origin_; }
  // Return the name and version that the library itself announces, which are the same in every
  // program. The name is the library's own name, or its file's name without the folder; the version
  // may be empty.
  const std::string& library_name() const { return library_name_; }
  const std::string& library_version() const { return library_version_; }
  OpSchema& SetOrigin(std::string library, std::string name, std::string version) {
    origin_ = std::move(library);
    library_name_ = std::move(name);
    library_version_ = std::move(version);
    return *this;
  }
  // Returns the parameters of the typed function from which the schema was derived; empty for other
  // schemas.
  const std::string& signature() const { return signature_; }
  const std::string& doc() const { return doc_; }
  // Returns the mistake in the schema itself; empty if there is none. Setters run before main and
  // must not throw.
  std::string problem() const;
  bool is_private() const { return private_; }
  bool is_internal() const { return internal_; }
  bool is_standard() const { return standard_; }
  bool is_stateful() const { return stateful_; }
  bool runs_may_differ() const { return runs_differ_; }
  bool needs_subgraph() const { return needs_subgraph_; }
  bool runs_subgraphs() const { return runs_subgraphs_; }
  bool inputs_can_cross_devices() const { return inputs_cross_devices_; }
  // True if the schema gives the devices of its values; otherwise all are on the node's device.
  bool infers_devices() const { return static_cast<bool>(devices_); }
  bool has_inference() const { return static_cast<bool>(infer_); }
  // True if the dtypes of an input or output are limited.
  bool limits_dtypes() const;
  bool has_cost() const { return cost_ || flops_; }
  int min_inputs() const { return arity_.inputs.least(); }
  int max_inputs() const { return arity_.inputs.most(); }
  int min_outputs() const { return arity_.outputs.least(); }
  int max_outputs() const { return arity_.outputs.most(); }
  // Returns "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string expected_inputs() const { return arity_.inputs.Describe(); }
  std::string expected_outputs() const { return arity_.outputs.Describe(); }
  const std::vector<detail::AttributeSchema>& attributes() const { return attributes_.declared; }
  const std::vector<detail::ValueSchema>& inputs() const { return inputs_; }
  const std::vector<detail::ValueSchema>& outputs() const { return outputs_; }
  bool CanInplace(int input, int output) const { return inplace_.May(input, output); }
  bool MustInplace(int input, int output) const { return inplace_.Must(input, output); }
  // Returns the number of outputs; -1 if the inputs do not decide it.
  int CalculateOutput(int inputs) const { return arity_.OutputsOf(inputs); }
  int CalculateOutput(int inputs, const Arguments& args) const {
    return arity_.OutputsOf(inputs, args);
  }
  // Returns the numbers of inputs and outputs of a node with these attributes; -1 for a number that
  // they do not decide.
  std::pair<int, int> Arity(const Arguments& args) const { return arity_.Of(args); }
  std::vector<int> MutatedInputs(const OperatorDef& def) const;
  const detail::AttributeSchema* FindAttribute(std::string_view name) const {
    return attributes_.Find(name);
  }
  // False for an attribute that a node must not give.
  bool TakesArgument(std::string_view name) const { return attributes_.Takes(name); }
  bool unknown_args_allowed() const { return attributes_.unknown_allowed; }
  // Returns "; did you mean 'alpha'?" or similar, for a name that is not declared.
  std::string SuggestArgument(std::string_view name) const { return attributes_.Suggest(name); }
  // True if ArityFromArguments was called: attributes may decide the number of outputs.
  bool has_arity_function() const { return static_cast<bool>(arity_.of_arguments); }
  bool has_test_inputs() const { return static_cast<bool>(test_inputs_); }
  // Returns no tensors if the schema makes no test data.
  std::vector<Tensor> MakeTestInputs(DType dtype, uint64_t seed) const {
    return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
  }

  // Returns the reason why `def` is not a valid node of this operator, or why its attributes are
  // not valid; empty if `def` is valid.
  std::string Verify(const OperatorDef& def) const;
  std::string VerifyArguments(const Arguments& args) const {
    return attributes_.Verify(name_, args);
  }

  // Infers the types and shapes of the outputs from those of the inputs. Without a declared
  // inference the outputs stay unknown. Errors of the operator's own function get the node as
  // context.
  void Infer(InferenceContext& context) const;
  std::vector<TensorInfo> InferOutputs(const OperatorDef& def,
                                       std::vector<TensorInfo> inputs) const;
  // Returns the cost of a run. Without a cost function: the bytes of inputs and outputs, and no
  // flops.
  OpCost Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs) const;
  DevicePlacement InferDevices(const OperatorDef& def) const;

  // Returns the elements and bytes of a value with a known shape; 0 otherwise. Bytes are at most
  // INT64_MAX, so that sums of a few do not wrap.
  static uint64_t Elements(const TensorInfo& info);
  static uint64_t Bytes(const TensorInfo& info);

 private:
  // Returns the declared attribute. If it is not declared, returns null and records the schema's
  // problem.
  detail::AttributeSchema* Declared(std::string_view name, const char* to_give);

  std::string name_;
  const char* file_ = "";
  int line_ = 0;
  std::string signature_;
  std::string origin_, library_name_, library_version_;
  std::string doc_;
  std::string problem_;
  detail::ArityRules arity_;
  detail::InplaceRules inplace_;
  detail::AttributeRules attributes_;
  std::vector<detail::ValueSchema> inputs_, outputs_;
  bool needs_all_shapes_ = false, private_ = false, internal_ = false;
  bool inputs_cross_devices_ = false, stateful_ = false, runs_differ_ = false,
       needs_subgraph_ = false, standard_ = false;
  bool runs_subgraphs_ = false, takes_strings_ = false;
  // Mutable because const members call them; their results must not depend on earlier calls.
  mutable MutationFunction mutates_;
  mutable InferenceFunction infer_;
  mutable CostFunction cost_;
  mutable UniqueFunction<uint64_t(const InferenceContext&)> flops_;
  mutable UniqueFunction<DevicePlacement(const OperatorDef&)> devices_;
  mutable UniqueFunction<std::vector<Tensor>(DType, uint64_t)> test_inputs_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_HPP_

// ---- opkit/op/op_registry.hpp
// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// preferences for backends. Registration never throws or exits. Mistakes are stored; the first
// lookup reports them, and CheckRegistrations lists all of them.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

// Defined in an image (a program or shared object) if one of its units includes plugin/author.hpp.
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True in a library that is loaded at run time: it has its own registries, whatever symbols the
// program exports. Shared objects that a program is linked with share the program's registries.
OPKIT_IMAGE_LOCAL bool HasOwnRegistries();

using BackendPreference = std::vector<std::string>;  // backends to try, in order

}  // namespace detail

// Thread-safe. The schemas and kernels that it returns stay valid until their library is unloaded.
class OpRegistry {
 public:
  // A provider of kernels: its facts in this program and on this machine.
  struct Backend {
    std::string name;
    int rank = 0;
    int kernels = 0;
    std::string why_unavailable;  // empty: its kernels can run here
  };

  OpRegistry();
  ~OpRegistry();

  // Inline, with a static variable inside: the dynamic linker makes this one object for the program
  // and the shared objects that it is linked with.
  OPKIT_VISIBLE static OpRegistry& OfProgram() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }
  OPKIT_IMAGE_LOCAL static OpRegistry& Global();

  // Adds a schema and returns it to be filled in. Two schemas of the same name are one schema if
  // they come from the same place (a header in two translation units), or from the same typed
  // signature. Settings of the second schema have no effect.
  OpSchema& AddSchema(const char* name, const char* file, int line, std::string signature = {});
  // Adds a schema that is filled in already; `owner` keeps it alive.
  void AddSchema(detail::IntrusivePtr<detail::RefCounted> owner, OpSchema& schema);
  // Adds a kernel; ignores a second one from the same place.
  void AddKernel(Kernel kernel);

  // Adds a mistake that its caller has found, such as a second gradient, to Problems. The caller's
  // own lookup reports the mistake.
  void AddProblem(const std::string& op, std::string text);
  // Records that `what`, such as a gradient, is registered for an operator by name, perhaps before
  // the operator itself. Problems lists `what` if the operator is never registered. ForgetExpected
  // deletes the record.
  void ExpectOperator(const std::string& op, std::string what);
  void ForgetExpected(const std::string& op);

  // Returns null if there is none.
  const OpSchema* FindSchema(std::string_view op) const;
  // Returns the schema. Throws kNotFound, with the nearest name, for an operator without a schema;
  // kAlreadyExists for an operator that was registered twice; kFailedPrecondition if the program
  // mixes header-only with compiled units.
  const OpSchema& GetSchema(std::string_view op) const;
  // Returns all kernels of an operator, or its kernels for a device type, in the order of
  // registration.
  std::vector<const Kernel*> KernelsOf(std::string_view op) const;
  std::vector<const Kernel*> FindKernels(std::string_view op, DeviceType device) const;
  // Returns the sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const;
  // Returns all mistakes in the registrations of this program.
  std::vector<std::string> Problems() const;
  // Puts a backend first for an operator, behind the backends that the node and the program
  // request.
  void AddOverride(const std::string& op, const std::string& backend, const std::string& origin);
  // Removes everything that came from a library.
  void RemoveOrigin(const std::string& origin);
  // Removes the operator's schema, kernels and problems; for tests.
  void Remove(std::string_view op);

  // Returns a sentence, with the nearest name, if no kernel of the program has this backend; empty
  // if one has.
  std::string WhyNoBackend(std::string_view backend) const;
  // Throws kNotFound with the sentence of WhyNoBackend, unless it is empty.
  void CheckBackend(std::string_view backend) const;
  // Sets the rank of a backend. Selection orders the backends that no node or preference requests
  // by rank, highest first. "reference" has rank 0; an unranked backend comes last. The higher of
  // two ranks counts. A rank from library `origin` applies only to that library's kernels.
  void SetBackendRank(std::string_view backend, int rank, const std::string& origin = {});
  int BackendRank(std::string_view backend, std::string_view origin = {}) const;
  static constexpr int kUnranked = -1;
  // Sets the function that returns the version of a backend. Tuning writes it beside the times that
  // it measures, because other code has other times. BackendVersion returns an empty text without
  // such a function.
  void SetBackendVersion(std::string_view backend, std::string (*version)());
  std::string BackendVersion(std::string_view backend) const;
  // Sets the function that returns the reason why a backend cannot run on this machine; empty if it
  // can run. The function is called once, at the first node that a kernel of the backend might run.
  // Kernels of an unavailable backend are dropped with the reason. A function from library `origin`
  // applies only to that library's kernels.
  void SetBackendAvailability(std::string_view backend, UniqueFunction<std::string()> why_not,
                              const std::string& origin = {});
  std::string WhyUnavailable(const Kernel& kernel) const;
  // True if SetBackendAvailability was called for this program's own kernels of the backend.
  bool HasAvailability(std::string_view backend) const;
  // Returns the backends that have kernels in this program.
  std::vector<Backend> Backends() const;

  // Sets the backends to try for every operator of a device, or the backends to try first for one
  // operator. A backend without a kernel is skipped; an empty list clears the setting. Throws
  // kNotFound for an operator that is not registered, or for a device without kernels.
  // CheckPreference only throws the errors of SetPreference.
  void SetPreference(DeviceType device, detail::BackendPreference backends);
  void SetPreference(const std::string& op, DeviceType device, detail::BackendPreference backends);
  void CheckPreference(DeviceType device, const detail::BackendPreference& backends) const;
  void CheckPreference(const std::string& op, DeviceType device) const;
  // Returns the preferred backends of an operator, its own first. Inside a PreferenceScope, returns
  // the preferences that the scope holds.
  detail::BackendPreference PreferenceOf(std::string_view op, DeviceType device) const;
  // Returns a copy of all current preferences of this thread, with `first` in front for every
  // operator. A plan keeps the copy, so that runs with new shapes later use the same backends.
  detail::IntrusivePtr<detail::RefCounted> KeepPreferences(
      const detail::BackendPreference& first) const;

 private:
  struct State;
  State* const state_;  // owned
};

namespace detail {

// Prevents the unloading of libraries. Hold it while you use schemas and kernels longer than one
// lookup, and while a library's function runs. Scopes nest; the outermost scope costs two
// uncontended locks.
class OPKIT_IMAGE_LOCAL RegistryUse {
 public:
  RegistryUse();
  RegistryUse(RegistryUse&&) = delete;
  ~RegistryUse();
  // True if this thread holds a RegistryUse.
  static bool IsInThisThread();
};
// Exclusive lock for removing registrations. Waits for all RegistryUse scopes of other threads; new
// scopes block until this object is destroyed. Only one RegistryRemoval exists at a time; its
// thread must not hold a RegistryUse.
class OPKIT_IMAGE_LOCAL RegistryRemoval {
 public:
  RegistryRemoval();
  RegistryRemoval(RegistryRemoval&&) = delete;
  ~RegistryRemoval();
};

// Makes PreferenceOf on this thread return preferences that KeepPreferences has copied. Scopes
// nest; the innermost scope counts.
class OPKIT_IMAGE_LOCAL PreferenceScope {
 public:
  explicit PreferenceScope(const RefCounted& preferences);

 private:
  const ScopedValue<const RefCounted*> preferences_;
};

}  // namespace detail

// Returns all mistakes in the registrations of this program, one sentence each: duplicates with
// both places, kernels without a schema, schemas without a kernel, gradients without an operator. A
// good first line of a test.
OPKIT_IMAGE_LOCAL inline std::vector<std::string> CheckRegistrations() {
  return OpRegistry::Global().Problems();
}
OPKIT_IMAGE_LOCAL inline std::vector<std::string> RegisteredOperators() {
  return OpRegistry::Global().Operators();
}

}}  // namespace opkit

#endif  // OPKIT_OP_OP_REGISTRY_HPP_

// ---- opkit/op/observer.hpp
// Observers: watch operators and nets from outside. An attached observer is started before and
// stopped after every run, also after a failed run. Without observers a run pays one predictable
// branch.
#ifndef OPKIT_OP_OBSERVER_HPP_
#define OPKIT_OP_OBSERVER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

class ObserverList;
// The base class of all observers, for every class of subjects.
class AnyObserver {
 public:
  explicit AnyObserver(void* subject) : subject_(subject) {}
  virtual ~AnyObserver() = default;
  virtual void Start() {}
  // Runs at the end of every run; `succeeded` is false if the run failed.
  virtual void Stop(bool succeeded) { static_cast<void>(succeeded); }

 protected:
  void* subject_;
  friend ObserverList;
};

// The observers of one subject, owned by this list. One class serves all types of subjects.
class ObserverList {
 public:
  ObserverList() = default;
  ObserverList(ObserverList&&) = delete;
  ~ObserverList();

  void Attach(AnyObserver* observer);
  // Gives ownership back to the caller; returns false if the observer is not attached.
  bool Detach(const AnyObserver* observer);
  void Take(ObserverList& other, void* subject);
  bool empty() const { return !items_; }
  size_t size() const;
  std::string error() const;
  void Start();
  void Stop(bool succeeded);

 private:
  struct Items;
  template <class F>
  void ForEach(F call);

  Items* items_ = nullptr;  // made with the first observer
};

}  // namespace detail

// Watches one T (an operator or a net). An exception of Start or Stop is kept in
// `Observable::last_observer_error` and never reaches the caller of Run.
template <class T>
class ObserverBase : public detail::AnyObserver {
 public:
  explicit ObserverBase(T* subject) : AnyObserver(subject) {}
  T* subject() const { return static_cast<T*>(subject_); }
};

namespace detail {

// Base of a class that can be observed. Attaching and detaching may not race with a run.
template <class T>
class Observable {
 public:
  Observable() = default;
  Observable(Observable&&) = delete;

  // Takes ownership; DetachObserver takes the returned pointer.
  ObserverBase<T>* AttachObserver(std::unique_ptr<ObserverBase<T>> observer) {
    observers_.Attach(observer.get());
    return observer.release();
  }
  // Returns the observer to the caller; null if it is not attached.
  std::unique_ptr<ObserverBase<T>> DetachObserver(const ObserverBase<T>* observer) {
    return std::unique_ptr<ObserverBase<T>>(
        observers_.Detach(observer) ? const_cast<ObserverBase<T>*>(observer) : nullptr);
  }
  // Appends the observers of `other` to this subject's observers. They watch this subject from now
  // on.
  void TakeObservers(Observable& other) {
    observers_.Take(other.observers_, static_cast<T*>(this));
  }
  size_t NumObservers() const { return observers_.size(); }
  // Returns the text of the last exception of an observer; empty if there was none.
  std::string last_observer_error() const { return observers_.error(); }

  void StartAllObservers() {
    if (!observers_.empty()) [[unlikely]]
      observers_.Start();
  }
  void StopAllObservers(bool succeeded) {
    if (!observers_.empty()) [[unlikely]]
      observers_.Stop(succeeded);
  }

 private:
  ObserverList observers_;
};

// Starts the observers of `subject` and stops them at the end of the scope, exceptions included.
// Call Succeeded() at the end of the good path.
template <class T>
class ObserverScope {
 public:
  explicit ObserverScope(Observable<T>& subject) : subject_(subject) {
    subject_.StartAllObservers();
  }
  ObserverScope(ObserverScope&&) = delete;
  ~ObserverScope() { subject_.StopAllObservers(succeeded_); }
  void Succeeded() { succeeded_ = true; }

 private:
  Observable<T>& subject_;
  bool succeeded_ = false;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_OBSERVER_HPP_

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

// ---- opkit/op/workspace.hpp
// Workspace: the named values that operators are bound to. A Blob holds an object of any C++ type,
// most often a Tensor; its address never changes while it is in the workspace.
#ifndef OPKIT_OP_WORKSPACE_HPP_
#define OPKIT_OP_WORKSPACE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Owns one object of any type. Not copyable; not synchronised.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string name) : name_(std::move(name)) {}
  Blob(Blob&&) = delete;
  ~Blob() { Reset(); }

  const std::string& name() const { return name_; }
  bool empty() const { return !object_; }
  // True for type T. Compares the types' names if their type_info differs, as happens across shared
  // objects.
  template <class T>
  bool IsType() const {
    return type_ == &typeid(T) || HasName(typeid(T));
  }
  // True while the blob owns exactly this object; false after another object has replaced it.
  template <class T>
  bool Holds(const T* object) const {
    return object_ == object && type_ == &typeid(T);
  }
  // Returns the object. Throws kUninitialized if the blob is empty, kTypeMismatch for another type.
  template <class T>
  const T& Get() const {
    if (!IsType<T>()) [[unlikely]]
      WrongType(typeid(T).name());
    return *static_cast<const T*>(object_);
  }
  // Returns the object. If the blob holds no object of this type, first makes a default-constructed
  // object.
  template <class T>
  T* GetMutable() {
    if (!IsType<T>()) return Emplace<T>();
    return static_cast<T*>(object_);
  }
  template <class T, class... Args>
  T* Emplace(Args&&... args) {
    T* object = new T(std::forward<Args>(args)...);
    Reset();
    object_ = object;
    type_ = &typeid(T);
    destroy_ = [](void* dead) { delete static_cast<T*>(dead); };
    return object;
  }
  void Reset() {
    if (object_) destroy_(object_);
    object_ = nullptr;
    type_ = nullptr;
  }

 private:
  // Compares with a type of another shared object. Out of line, so that not every Input() contains
  // the code.
  OPKIT_COLD bool HasName(const std::type_info& type) const;
  [[noreturn]] OPKIT_COLD void WrongType(const char* wanted) const;

  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
  std::string name_;
};

// The table of blobs by name. Not synchronised: create blobs before operators run in parallel.
class Workspace {
 public:
  Workspace() = default;
  Workspace(Workspace&&) = delete;
  ~Workspace();

  // Returns the blob of that name; makes it if it does not exist.
  Blob* CreateBlob(const std::string& name);
  // Adds a blob of another workspace under `name`. The other workspace must outlive this one.
  // Throws kAlreadyExists if this workspace has a blob of that name.
  void ShareBlob(const std::string& name, Blob* blob);
  bool HasBlob(std::string_view name) const { return FindBlob(name); }
  // Returns null if there is none.
  Blob* FindBlob(std::string_view name) const {
    const int number = names_.Find(name);
    return number < 0 ? nullptr : blobs_[detail::Index(number)];
  }
  // Returns the blob. Throws kNotFound, with the nearest name, if it does not exist.
  Blob* GetBlob(const std::string& name) const;
  // Returns false if the blob does not exist. Operators bound to the blob must be destroyed before.
  bool RemoveBlob(std::string_view name);
  // Returns the names of all blobs, in alphabetical order.
  std::vector<std::string> Blobs() const;

  // Returns the tensor of that name; makes it (uninitialized) if there is none.
  Tensor* CreateTensor(const std::string& name) { return CreateBlob(name)->GetMutable<Tensor>(); }
  // Throws kNotFound; kTypeMismatch for a blob of another type; kUninitialized for an empty blob.
  Tensor* GetTensor(const std::string& name) const;
  bool HasTensor(const std::string& name) const;

  // The index in its net of the operator that failed last; -1 if none did.
  std::atomic<int> last_failed_op_net_position{-1};

 private:
  detail::NameIndex names_;
  std::vector<Blob*> blobs_;     // by number; null for a removed blob
  std::vector<char> is_shared_;  // by number; true for a blob of another workspace
};

}}  // namespace opkit

#endif  // OPKIT_OP_WORKSPACE_HPP_

// ---- opkit/op/operator_base.hpp
// OperatorBase: an operator bound to the blobs of a workspace, on any device. Gives access to
// arguments, inputs, outputs and the completion event, and adds context to errors.
#ifndef OPKIT_OP_OPERATOR_BASE_HPP_
#define OPKIT_OP_OPERATOR_BASE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Tensors of the current run that are not in blobs. They are dense copies of strided inputs, and
// new output tensors: an output gets one if its present tensor is also an input that the run still
// reads.
class PendingTensors {
 public:
  bool empty() const { return !items_; }
  // Returns the tensor that replaces the output's tensor; null if no tensor replaces it. The
  // address stays valid until Publish or Clear.
  Tensor* Find(int output);
  Tensor* Add(int output, Blob* blob, Tensor tensor);
  // Returns the dense copy of an input. The first call under the current invocation makes it by
  // `make`.
  const Tensor& DenseInput(int input, FunctionRef<Tensor()> make);
  // Moves the outputs to their blobs and releases the copies.
  void Publish();
  void Clear() {
    if (items_) [[unlikely]]
      items_ = {};
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  struct Items;
  Items& items();
  IntrusivePtr<RefCounted> items_;  // Items, made with the first tensor
};

// The scratch memory of an operator: memory that a plan reserves, or its own memory, which grows to
// the largest request.
class ScratchMemory {
 public:
  void Plan(void* bytes, int64_t size, Storage owner);
  void* Take(int64_t size, Device device) {
    return size > 0 && size <= planned_bytes_ ? planned_ : TakeOwn(size, device);
  }
  void AppendStorages(RefCountedList& out) const;

 private:
  void* TakeOwn(int64_t size, Device device);

  void* planned_ = nullptr;
  int64_t planned_bytes_ = 0;
  Storage planned_owner_;
  Storage own_;
};

// Schema and backend of a run, for the profiler. Pointers, so that this header needs neither class.
// `compute` computes the work of a run; null if the work is unknown.
struct RunCost {
  const OpSchema* schema = nullptr;
  const std::string* backend = nullptr;
  SpanWork (*compute)(const RunCost& cost, const OperatorDef& def,
                      const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) = nullptr;
};

// The name of an operator in messages, shared with the events it records, which may outlive it.
class OperatorIdentity final : public FailureContext {
 public:
  explicit OperatorIdentity(const OperatorDef& operator_def) : def(operator_def) {}
  OPKIT_INLINE std::string Describe() const override;
  OperatorDef def;
  std::string file;
  int line = 0;
  RunCost cost;
};

// Adds context to an error: the value that caused it, the failed operator, and the operator's
// inputs. A pointer is null for a value that is no tensor or is left out.
OPKIT_COLD void AddOperatorContext(Error& error, const OperatorIdentity& identity,
                                   const std::vector<const Tensor*>& inputs,
                                   const std::vector<const Tensor*>& outputs);
// Throws the exception in flight as an Error, after `add` has added context; for use in a catch
// block. An Error keeps its type and identity; any other exception becomes the Error's cause.
[[noreturn]] OPKIT_COLD void RethrowDescribed(FunctionRef<void(Error&)> add);
// Throws kInvalidArgument if an input's memory is not that of `memory_device`.
OPKIT_COLD void CheckInputDevice(const OperatorDef& def, size_t i, const Tensor& input,
                                 Device memory_device);
// Throws kUnsupported for a strided input that the node writes to.
[[noreturn]] OPKIT_COLD void ThrowMutatedStrides(const OperatorDef& def, size_t i,
                                                 const Tensor& input);
// Returns a tensor for an output. Reuses the memory of `out` if it is dense, on `device` and large
// enough. Allocates new memory otherwise, and also if `clobbers` is true: writing to `out` would
// change an input or another output.
OPKIT_COLD Tensor OutputTensor(Tensor out, const Shape& shape, DType dtype, Device device,
                               FunctionRef<bool(const Tensor&)> clobbers);
// Ends the latest span of this thread if a profile records the work of spans. Returns that
// profile's sink; null if there is none.
SpanSink* EndSpanForWork() noexcept;
// Throws kOperatorFailed for a RunOnDevice that returned false.
[[noreturn]] OPKIT_COLD void ThrowReturnedFalse();

// Refuses undeclared arguments of the operator that this thread constructs. CreateOperator sets it,
// so that this header needs no schema class.
struct ArgumentCheck {
  const OpSchema* schema = nullptr;
  void (*refuse)(const OpSchema& schema, const std::string& type, std::string_view name) = nullptr;
};
inline constinit thread_local ArgumentCheck t_argument_check;

}  // namespace detail

// The base class of all operators. Not synchronised: one run at a time. Operators of one workspace
// may run at the same time if none writes a tensor that another reads or writes.
class OperatorBase : public detail::Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which it creates; copies the node's configuration,
  // if any. Throws kNotFound, kInvalidArgument.
  OperatorBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr);
  OPKIT_INLINE virtual ~OperatorBase();

  // Runs to completion. Returns true, or throws an Error with the operator as context.
  virtual bool Run(int stream_id = 0) = 0;
  // Issues the work and returns; event() completes with the work. If issuing fails, the event fails
  // and the Error is thrown as well. Throws kFailedPrecondition while the last run is still
  // SCHEDULED.
  virtual bool RunAsync(int stream_id = 0) = 0;
  // Does the operator's work. The default throws kUnsupported, for a class that derives directly
  // from OperatorBase and does its work in Run.
  OPKIT_INLINE virtual bool RunOnDevice();
  // True if Run only calls RunOnDevice on the calling thread: it uses no stream, and no work
  // continues after the call.
  virtual bool RunsDirectly() const { return false; }
  // Runs an operator that RunsDirectly(), under the caller's invocation: a plan opens one scope for
  // many operators.
  void RunDirectly() {
    detail::ObserverScope<OperatorBase> observers(*this);
    try {
      if (!RunOnDevice()) [[unlikely]]
        detail::ThrowReturnedFalse();
      PublishOutputs();
    } catch (...) {
      RethrowWithContext();
    }
    observers.Succeeded();
  }
  // Issues the work of a run that its device records and repeats (device/recorded_work.hpp),
  // without event, observers and span. The default throws kUnsupported.
  OPKIT_INLINE virtual void RunRecorded(int stream_id);
  // True if plans may record a run of this operator: with the same tensors each run issues the same
  // work, whatever the elements of the tensors are. False for a class whose RunOnDevice decides
  // something else on the host, such as a seed.
  virtual bool SupportsRecording() const { return false; }
  // True if RunOnDevice respects the strides of its inputs. If false, Input returns dense copies of
  // strided inputs.
  virtual bool AcceptsStrides() const { return false; }
  // True if work continues after RunOnDevice has returned.
  virtual bool HasAsyncPart() const = 0;
  // True if the operator may be issued before its predecessors on the same device type are done.
  virtual bool SupportsAsyncScheduling() const = 0;
  // Makes the event SCHEDULED; it completes with the work issued so far. With a message, makes it
  // FAILED at once. Does nothing if the event is disabled. Throws kUnsupported in a class without a
  // context.
  OPKIT_INLINE virtual void RecordEvent(const char* error_message = nullptr);
  // Makes all work that this operator issues later wait for the event; `stream_id` -1 is the
  // current stream. A FAILED event fails that work.
  virtual void WaitEvent(const Event& event, int stream_id = -1) = 0;
  virtual void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) = 0;
  // Blocks until this operator's stream has finished all work, so that an observer can measure it.
  virtual void SyncDeviceBarrierForObservers() = 0;
  virtual bool IsStreamFree(int stream_id) const = 0;
  // Fails the event of a run in flight with kCancelled at once; the device finishes the work that
  // it has begun. Does nothing for a finished run.
  OPKIT_INLINE virtual void Cancel();

  // Returns the operator's own copy of its node.
  const OperatorDef& def() const { return identity_->def; }
  // Returns the backend of the kernel, such as "eigen"; empty for an operator that was made without
  // a kernel.
  std::string backend() const {
    return identity_->cost.backend ? *identity_->cost.backend : std::string();
  }
  // Caffe2's spellings. Every operator has a definition, so has_debug_def is true.
  const OperatorDef& debug_def() const { return def(); }
  static constexpr bool has_debug_def() { return true; }
  const std::string& type() const { return def().type(); }
  Device device() const { return device_; }
  Workspace* workspace() const { return workspace_; }

  // The next functions read attributes; call them in constructors. They throw kTypeMismatch for a
  // value of another type, and kInvalidArgument, with the nearest name, for an attribute that the
  // operator's schema does not declare.
  bool HasArgument(std::string_view name) const { return FindArgument(name); }
  template <class T>
  bool HasSingleArgumentOfType(std::string_view name) const {
    const Attribute* found = FindArgument(name);
    return found && found->Is<T>();
  }
  template <class T>
  T GetSingleArgument(std::string_view name, const T& fallback) const {
    CheckDeclared(name);
    return def().args().Get<T>(name, fallback);
  }
  template <class T>
  std::vector<T> GetRepeatedArgument(std::string_view name,
                                     const std::vector<T>& fallback = {}) const {
    CheckDeclared(name);
    return def().args().Get<std::vector<T>>(name, fallback);
  }

  // The same as GetSingleArgument; InferenceContext has this name, too. Without a fallback, both
  // functions return the schema's default if the node does not give the attribute. They throw
  // kNotFound if the schema has no default.
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    CheckDeclared(name);
    return def().args().Get<T>(name, std::move(fallback));
  }
  template <class T>
  T Arg(std::string_view name) const {
    const Attribute* fallback = FindArgument(name) ? nullptr : FindDefault(name);
    return fallback ? fallback->Get<T>() : def().args().Get<T>(name);
  }
  template <class T>
  T GetSingleArgument(std::string_view name) const {
    return Arg<T>(name);
  }

  // Return the numbers of the node's inputs and outputs, including left-out ones.
  int InputSize() const { return static_cast<int>(inputs_.size()); }
  int OutputSize() const { return static_cast<int>(outputs_.size()); }
  // False for an optional value that the node leaves out.
  bool HasInput(int i) const { return i >= 0 && i < InputSize() && inputs_[detail::Index(i)]; }
  bool HasOutput(int i) const { return i >= 0 && i < OutputSize() && outputs_[detail::Index(i)]; }

  // Returns the input; for a strided input a dense copy, unless the operator AcceptsStrides(). The
  // copy is made once a run, on the device's stream, and lasts as long as the run and its work:
  // call Input in RunOnDevice, not in code that runs later. Throws kOutOfRange, kUninitialized,
  // kTypeMismatch; kInvalidArgument for a tensor on a device that this operator cannot reach.
  // Throws kUnsupported if no copy can be made: the schema declares that the node writes to the
  // input, or the device cannot copy strided tensors.
  __attribute__((always_inline)) const Tensor& Input(int i) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    if (tensor.device() != memory_device_ || tensor.has_strides() || !tensor.layout().is_standard())
        [[unlikely]]
      return UnusualInput(i, tensor);
    return tensor;
  }
  // Returns an input on a device type other than this operator's, such as a size that the host
  // reads. A dense copy is complete at return.
  const Tensor& Input(int i, DeviceType type) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    CheckDeviceType(i, tensor, type);
    return tensor.is_dense() || AcceptsStrides() ? tensor : DenseCopy(i, tensor, CopyTime::kNow);
  }
  // Returns the input as a dense tensor, for an operator that accepts strides of other inputs.
  const Tensor& DenseInput(int i) const {
    const Tensor& tensor = Input(i);
    return tensor.is_dense() ? tensor : DenseCopy(i, tensor);
  }
  // Returns a value of any C++ type.
  template <class T>
  const T& Input(int i) const {
    return InputBlob(i).Get<T>();
  }
  template <class T>
  bool InputIsType(int i) const {
    return InputBlob(i).IsType<T>();
  }
  bool InputIsTensorType(int i, DeviceType type) const {
    return InputIsType<Tensor>(i) && Input<Tensor>(i).device().type == type;
  }
  const Blob& InputBlob(int i) const { return *Bound(inputs_, i, "input"); }
  std::vector<Shape> InputTensorShapes() const;
  // Returns the current dtypes and shapes; unknown for a value that is left out or is no tensor.
  std::vector<TensorInfo> InputTypes() const { return TypesOf(inputs_); }
  std::vector<TensorInfo> OutputTypes() const { return TypesOf(outputs_); }

  // Returns the output in the state of the last run, or of an earlier call in this run: for
  // operators that resize it themselves.
  Tensor* Output(int i) {
    if (!pending_.empty()) [[unlikely]]
      if (Tensor* replaced = pending_.Find(i)) return replaced;
    return OutputBlob(i)->GetMutable<Tensor>();
  }
  // Returns the output with this shape and dtype, dense, on this operator's device; reuses the last
  // run's memory. The output shares memory with an input only if the schema allows the pair. The
  // call never frees or resizes an input: if the output is also an input and must change, a new
  // tensor replaces it after RunOnDevice has returned. Work that continues after that must hold the
  // tensors by value.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    return OutputIn(memory_device_, i, shape, dtype);
  }
  // Returns the output with this shape and dtype, dense, on `device`.
  Tensor* Output(int i, const Shape& shape, DType dtype, Device device) {
    return OutputIn(MemoryDevice(device), i, shape, dtype);
  }
  // Like Output(i), but on a device of this type: returns a new tensor if the present tensor is on
  // another device type.
  Tensor* Output(int i, DeviceType type);
  template <class T>
  T* Output(int i) const {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spelling of Output(i, shape, dtype).
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  Tensor* OutputTensor(int i, const Shape& shape, DType dtype, Device device) {
    return Output(i, shape, dtype, device);
  }
  // Returns a tensor to write to; null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // Copies the elements of `source` to the output; both must be reachable from the host.
  Tensor* OutputTensorCopyFrom(int i, const Tensor& source);
  // Makes the output share the memory of `source`.
  Tensor* OutputTensorAlias(int i, const Tensor& source) { return Replace(i, source); }
  void SetOutputTensor(int i, Tensor tensor) { Replace(i, std::move(tensor)); }
  template <class T>
  bool OutputIsType(int i) const {
    return Bound(outputs_, i, "output")->template IsType<T>();
  }
  Blob* OutputBlob(int i) const {
    has_taken_outputs_ = true;
    return Bound(outputs_, i, "output");
  }
  // True if OutputBlob was ever called. If not, every output still has the memory that the plan
  // chose.
  bool HasTakenOutputs() const { return has_taken_outputs_; }
  // True if the input and the output share memory, even under different names.
  bool IsInputOutputAlias(int i, int o) const;

  // Returns the completion of the latest RunAsync; INITIALIZED before. Throws kFailedPrecondition
  // if the event is disabled.
  Event& event() {
    if (event_disabled_ || !event_) [[unlikely]]
      MakeEvent();
    return *event_;
  }
  void ResetEvent() {
    if (event_) event_->Reset();
  }
  // Ends the event of a run whose work continues elsewhere: with success, or with a failure. The
  // failure is the exception being handled, or the message if no exception is being handled. Does
  // nothing if the event is disabled.
  void SetEventFinished(const char* error_message = nullptr) {
    if (!event_disabled_) event().SetFinished(error_message);
  }
  void SetEventFinishedWithException(const char* error_message = nullptr);
  // Disables the event. Saves the event's cost if no thread waits for this operator, as inside a
  // chain.
  void DisableEvent() { event_disabled_ = true; }
  bool IsEventDisabled() const { return event_disabled_; }
  // Calls EventState::DeferCompletion on the events of all later runs. Executors call it.
  void DeferEventCompletion() { defers_event_completion_ = true; }
  bool IsEventCompletionDeferred() const { return defers_event_completion_; }
  void Wait(OperatorBase& other, int stream_id = -1) {
    if (!other.IsEventDisabled()) WaitEvent(other.event(), stream_id);
  }
  void Finish(Timeout timeout = {}) {
    if (event_) event_->Finish(timeout);
  }

  // Returns the operator's index in the net, -1 outside a net. A failure stores it in the
  // workspace.
  int net_position() const { return net_position_; }
  void set_net_position(int position) { net_position_ = position; }
  void RecordLastFailedOpNetPosition() {
    if (net_position_ != -1) workspace_->last_failed_op_net_position = net_position_;
  }
  std::string getErrorMsg() const { return "Error from operator: " + Describe(); }

  // Returns the kernel's configuration that was selected for this node: layouts, in-place pairs,
  // scratch. Null if none was selected: then the schema's declarations and the standard layout
  // apply.
  const KernelConfig* config() const { return config_ ? &config_->value : nullptr; }
  // Returns the configuration's layouts of an input and an output; the standard layout by default.
  Layout InputLayout(int i) const {
    return config_ ? config_->value.input_layout(detail::Index(i)) : Layout();
  }
  Layout OutputLayout(int o) const {
    return config_ ? config_->value.output_layout(detail::Index(o)) : Layout();
  }
  // Sets the configuration of an operator whose constructor does not take it.
  void SetConfig(const KernelConfig& config);

  // Gives later runs `size` bytes of the device's memory as scratch, instead of the operator's own.
  // The memory remains the caller's and must be aligned to 64 bytes; other work may write to it
  // between runs. Runs that continue after they were cancelled keep `owner`; without an owner the
  // memory must outlive them. A null `bytes` ends the use of the memory.
  void SetScratch(void* bytes, int64_t size, Storage owner = {});
  // Returns at least `size` bytes of the device's memory, undefined at the start of every run: the
  // planned memory if it is large enough, else the operator's own memory, kept for the next run.
  // Call it only once in a run: a larger request may free the memory of an earlier request. Null
  // for size 0.
  void* Scratch(int64_t size) {
    if (size < 0) [[unlikely]]
      ThrowNegativeScratch(size);
    return scratch_.Take(size, memory_device_);
  }

  // True if a run itself infers the types and shapes of its outputs after those of its inputs have
  // changed.
  virtual bool InfersOutputs() const { return false; }
  // Takes over the types that a plan has inferred: runs with inputs of these dtypes and shapes then
  // do not infer. With `lacks_data`, inference needs data that only a run has. Runs then infer
  // again, and fail if the result contradicts `outputs`. Does nothing if a dtype or shape is
  // unknown, or if runs do not infer. Throws kInvalidArgument for a wrong count.
  void SetInferredOutputs(std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs,
                          bool lacks_data = false) {
    if (InfersOutputs()) inference_.Set(def(), inputs, outputs, lacks_data);
  }
  detail::InferenceCache& inference() { return inference_; }

  // Sets where the kernel was registered; called by CreateOperator.
  void SetRegistration(const char* file, int line, detail::RunCost cost = {});
  // Sets the pairs that may share memory: output o may use the memory of input i if bit i of
  // masks[o] is set. Inputs past 63 never share memory. CreateOperator calls it. Without the call
  // every output may share the memory of every input.
  void SetInplaceMasks(std::vector<uint64_t> masks) { inplace_masks_ = std::move(masks); }
  // Sets the inputs to which the operator writes: bit i stands for input i; inputs past 63 are
  // ignored. CreateOperator calls it.
  void SetMutatedInputs(uint64_t mask) { mutated_inputs_ = mask; }
  Invocation::Kind invocation_kind() const { return invocation_kind_; }
  // Returns a node's name in profiles: its name, or that of its first output.
  static const std::string& NodeName(const OperatorDef& def);
  // Returns the names of this operator's runs in profiles.
  detail::SpanNames span_names() const {
    if (span_names_.name == 0) [[unlikely]]
      InternNames();
    return span_names_;
  }

 protected:
  // Marks the operator's work as custom in profiles; for operators of loaded libraries and
  // functions.
  void set_invocation_kind(Invocation::Kind kind) { invocation_kind_ = kind; }

  // Waits until the work of the latest run has succeeded or failed; returns at once if no work
  // continues. For the destructor of a class whose work uses its members. Also waits after Cancel,
  // because a stream still runs the work that it has begun. Must not be called on the stream's own
  // thread. The class itself must join the threads that it has started.
  void FinishWork() noexcept;
  // Records that work was issued without an event for its completion.
  void SetStrayWork() { has_stray_work_ = true; }

  // Makes the event INITIALIZED for a new run. Throws kFailedPrecondition while it is SCHEDULED.
  void PrepareEvent();
  // Keeps the memory of work that continues elsewhere until the work finishes the event. After a
  // cancellation the memory lives as long as a handle of the event.
  void RetainUntilFinished();
  // Rethrows the exception in flight as an Error with this operator as context; for use in a catch
  // block. With `complete_event` the event fails with that Error. An Error keeps its type and
  // identity; any other exception becomes the Error's cause.
  [[noreturn]] OPKIT_COLD void RethrowWithContext(bool complete_event = false);

  // Records the run's work in the profile, if the profile records work.
  OPKIT_COLD void DescribeSpan() const noexcept;

  // Moves new tensors of this run's outputs to their blobs.
  void PublishOutputs() {
    if (!pending_.empty()) [[unlikely]]
      pending_.Publish();
  }
  // Makes `dense` a dense copy of `source`; on the context's stream if the context is asynchronous.
  OPKIT_INLINE virtual void CopyDense(const Tensor& source, Tensor* dense);
  // Fills `out` with the storages that this run may touch.
  void TouchedStorages(detail::RefCountedList& out) const;
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const { return identity_; }

 private:
  Blob* Bound(const std::vector<Blob*>& blobs, int i, const char* what) const {
    if (detail::Index(i) >= blobs.size() || !blobs[detail::Index(i)]) [[unlikely]]
      ThrowUnbound(blobs, i, what);
    return blobs[detail::Index(i)];
  }
  [[noreturn]] OPKIT_COLD void ThrowUnbound(const std::vector<Blob*>& blobs, int i,
                                            const char* what) const;
  [[noreturn]] OPKIT_COLD void ThrowNegativeScratch(int64_t size) const;
  OPKIT_COLD void CheckDeclared(std::string_view name) const;
  OPKIT_COLD const Attribute* FindArgument(std::string_view name) const;
  // Takes no lock. In a constructor, reads the schema of the operator that this thread constructs.
  OPKIT_COLD const Attribute* FindDefault(std::string_view name) const;
  OPKIT_COLD const Tensor& UnusualInput(int i, const Tensor& tensor) const;
  enum class CopyTime : uint8_t { kInOrder, kNow };  // in the order of the device's work, or now
  OPKIT_COLD const Tensor& DenseCopy(int i, const Tensor& tensor,
                                     CopyTime time = CopyTime::kInOrder) const;
  void CheckDeviceType(int i, const Tensor& tensor, DeviceType type) const;
  // True if writing to `out` would overwrite an input or an earlier output. Exception: an input
  // that the schema pairs with the output, if element i of both is still at the same address.
  bool Clobbers(int o, const Tensor& out) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Blob* blob = inputs_[i];
      if (!blob || !blob->IsType<Tensor>()) continue;
      const Tensor& in = blob->Get<Tensor>();
      if (!in.SharesMemoryWith(out)) continue;
      if (!MayShare(i, o) || in.raw_data() != out.raw_data() || !in.is_dense()) return true;
    }
    return o > 0 && ClobbersOutput(o, out);
  }
  bool ClobbersOutput(int o, const Tensor& out) const;
  bool MayShare(size_t i, int o) const {
    if (inplace_masks_.empty()) return true;  // built without a schema
    if (!config_ && inputs_[i] == outputs_[detail::Index(o)])
      return true;  // verified with the node
    return i < 64 && (inplace_masks_[detail::Index(o)] >> i & 1);
  }
  // Returns the output with this shape and dtype in the memory of `device`.
  Tensor* OutputIn(Device device, int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == device && out->is_dense() && out->layout().is_standard() &&
        !has_output_layouts_ && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, *out, shape, dtype, device);
  }
  // Makes `next` the output: at once, or at the end of the run if an input would change.
  OPKIT_COLD Tensor* Replace(int o, Tensor next);
  OPKIT_COLD Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype,
                                  Device device);
  OPKIT_COLD void MakeEvent();
  OPKIT_COLD void InternNames() const;
  OPKIT_COLD static std::vector<TensorInfo> TypesOf(const std::vector<Blob*>& blobs);
  [[noreturn]] OPKIT_COLD void RethrowDescribed();
  std::string Describe() const { return identity_->Describe(); }

  // Members that every run reads come first, in one cache line with the observers.
  Invocation::Kind invocation_kind_ = Invocation::Kind::kOperator;
  bool event_disabled_ = false;
  bool defers_event_completion_ = false;
  bool has_stray_work_ = false;
  mutable bool has_taken_outputs_ = false;
  // True if the configuration has an output layout that is not standard.
  bool has_output_layouts_ = false;
  int net_position_ = -1;
  mutable detail::PendingTensors pending_;
  Device device_;
  Device memory_device_;
  Workspace* workspace_;
  std::vector<Blob*> inputs_, outputs_;  // null where the node leaves one out
  std::vector<uint64_t> inplace_masks_;
  uint64_t mutated_inputs_ = 0;
  detail::IntrusivePtr<const detail::Shared<KernelConfig>> config_;
  detail::InferenceCache inference_;
  detail::ScratchMemory scratch_;
  detail::IntrusivePtr<const detail::OperatorIdentity> identity_;
  std::optional<Event> event_;
  mutable detail::SpanNames span_names_;  // valid after the first span_names()
};

}}  // namespace opkit

#endif  // OPKIT_OP_OPERATOR_BASE_HPP_

// ---- opkit/op/create_operator.hpp
// CreateOperator: makes the operator of a definition, bound to a workspace. Verifies the node
// against its schema, then tries kernels in the order of preference until one accepts it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
// Decisions about a node that were made before its operator is created.
struct CreateOptions {
  const Kernel* kernel = nullptr;        // null: the first kernel that accepts the node
  const KernelConfig* config = nullptr;  // a configuration that the kernel proposed; copied
  int net_position = -1;
  // True if the caller converts inputs and outputs to the layouts of the operator's configuration,
  // or selects another operator before it runs. If false, skips a kernel that proposes only layouts
  // other than the standard one for the values in the workspace.
  bool converts = false;
};

// Creates an operator. Throws kNotFound, with the nearest name, for an unknown operator or backend,
// a missing kernel for the device, or a missing input blob; kInvalidArgument if the node breaks the
// schema, or if the given kernel or configuration is not for it; kUnsupported, with each reason, if
// every kernel refused the node; kAlreadyExists if the operator is registered twice. Throws
// UnsupportedOperatorFeature if the caller gave a kernel that refuses the node; another kernel may
// accept the node. After an error the workspace is unchanged.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               const CreateOptions& options);
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def,
                                                               Workspace* ws,
                                                               int net_position = -1);

namespace detail {

// Returns the types of the named tensors; an unknown type for a blob that is no tensor or has no
// memory.
std::vector<TensorInfo> TypesIn(const Workspace& ws, const std::vector<std::string>& names);

// Returns the backends of the environment variable OPKIT_BACKENDS, "eigen,reference": the only
// backends that may run in this process. If empty, all backends may run. In a loaded library the
// plain kernels may always run.
OPKIT_IMAGE_LOCAL const BackendPreference& AllowedBackends();
// Returns the requested backends in order: from the node, from OPKIT_BACKENDS, from the preferences
// for the operator and for all operators, and last the plain operator. For a node that requires its
// backends, returns only those.
OPKIT_IMAGE_LOCAL BackendPreference BackendOrder(const OperatorDef& def);
// Returns the backends of BackendOrder for which the program has no kernel, each with the sentence
// of WhyNoBackend.
OPKIT_IMAGE_LOCAL std::vector<std::pair<std::string, std::string>> MissingBackends(
    const OperatorDef& def);
// Throws the first of MissingBackends as an Error (kNotFound).
OPKIT_IMAGE_LOCAL void CheckBackends(const OperatorDef& def);
// Throws kNotFound if the node itself names a backend for which the program has no kernel.
OPKIT_IMAGE_LOCAL void CheckEngine(const OperatorDef& def);
// Returns the kernels for the node, best first: the kernels of the requested backends, then the
// plain kernel, then all others, so that an operator without a plain kernel still runs. `by_rank`
// is for a node whose types are known. It orders all kernels that are not requested, including the
// plain kernel, by the ranks of their backends. For a node that requires its backends, returns only
// their kernels; throws kNotFound if none of them has a kernel.
OPKIT_IMAGE_LOCAL std::vector<const Kernel*> KernelOrder(const OperatorDef& def,
                                                         bool by_rank = false);
// Throws kNotFound for a node that has kernels only from `backends`, which OPKIT_BACKENDS excludes.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoneAllowed(const OperatorDef& def,
                                                                const std::string& backends);
// Throws kUnsupported if `refused` lists kernels with their reasons, kNotFound if it is empty.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void ThrowNoKernel(const OperatorDef& def,
                                                             const std::string& refused);
// Throws kInvalidArgument if the node breaks the schema.
void CheckNode(const OpSchema& schema, const OperatorDef& def);
// Throws kInvalidArgument if the kernel is for another operator or device.
void CheckIsFor(const Kernel& kernel, const OperatorDef& def);
// Returns masks in which bit i of masks[o] is set if output o may share memory with input i. The
// configuration decides, if there is one; otherwise the schema.
std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def,
                                   const KernelConfig* config);
// Returns a mask in which bit i is set if the node writes to input i.
uint64_t MutatedInputs(const OpSchema& schema, const OperatorDef& def);
// Rethrows the exception of an operator's constructor, with the node and the kernel as context. For
// use in a catch block.
[[noreturn]] OPKIT_COLD void RethrowFromConstructor(const Kernel& kernel, const OperatorDef& def);
// Computes the work of a run for a profile; the function behind RunCost::compute.
SpanWork ComputeWork(const RunCost& run, const OperatorDef& def,
                     const std::vector<TensorInfo>& inputs, const std::vector<TensorInfo>& outputs);
// Throws kInvalidArgument for a configuration that does not fit the node.
void CheckConfig(const Kernel& kernel, const OperatorDef& def, const KernelConfig& config);
// Hooks to functions of kernel_candidates.hpp, which UseSelection fills. Only programs with kernels
// that propose configurations, or with ranked backends, need them.
inline constexpr const char* kProposes = "a kernel that proposes configurations, or has a rank,";
inline constexpr const char* kRegisters = "opkit/op/registration.hpp";
OPKIT_IMAGE_LOCAL inline constinit Hook<std::string(const Kernel&, const OpSchema&,
                                                    const OperatorDef&, const Workspace&)>
    g_why_not_standard{kProposes, kRegisters};
// Calls CreateSelected; sets *is_standard if all layouts of the chosen configuration are standard.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<OperatorBase>(
    const OperatorDef&, Workspace*, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, bool converts, bool* is_standard)>
    g_create_selected{kProposes, kRegisters};
// Makes the operator by `kernel` and sets its registration and in-place pairs. Errors get the node
// and the kernel as context. Returns null if the kernel's creator returned null.
std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                         const OperatorDef& def, Workspace* ws,
                                         const KernelConfig* config);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_

// ---- opkit/op/call/resolved_call.hpp
// ResolvedCall: the call behind a ResolvedOperator. A typed operator on the CPU is called directly
// (direct_call.hpp); any other operator is bound to a workspace (operator_call.hpp).
#ifndef OPKIT_OP_CALL_RESOLVED_CALL_HPP_
#define OPKIT_OP_CALL_RESOLVED_CALL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class OperatorCall;

// A call that is prepared for repeated use.
struct ResolvedCall {
  // Computes all outputs of the node from all its inputs, and reuses the outputs' memory if it
  // fits. With `issue` returns once the work is issued. On an Error the outputs are unchanged. Only
  // one call at a time is allowed. A function object instead of a virtual function: g++ compiles
  // every override that a program might reach by a virtual call.
  UniqueFunction<void(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue)> run;
  OperatorCall* by_operator = nullptr;  // null for a direct call
};

// Makes the call of an operator. A program with only typed CPU operators does not need this hook.
// The registration of any other kernel fills it (UseOperatorCalls).
OPKIT_IMAGE_LOCAL inline constinit Hook<ResolvedCall(const OpSchema& schema,
                                                     const OperatorDef& def)>
    g_operator_call{"a kernel that is no typed operator's", "opkit/opkit.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_RESOLVED_CALL_HPP_

// ---- opkit/op/invoke.hpp
// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator
// makes the same call repeatedly, with all preparation done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of Invoke, InvokeAsync and ResolvedOperator.
struct InvokeOptions {
  std::optional<Device> device = {};  // default: the device of the first input
  // Backends to try, in order, separated by commas; default: the registry's order. kNotFound for a
  // backend of which the program has no kernel.
  std::string backends = {};
  int num_outputs = -1;  // needed only if the schema does not decide it
  // kRequired uses no other backends; kUnsupported if none of them accepts the call.
  OperatorDef::BackendNeed backend_need = kPreferred;
};

// An operator that is prepared for repeated calls: schema, kernel and attributes are fixed, and
// inference runs again only for new dtypes or shapes of inputs. If the operator has a kernel of a
// ranked backend, new dtypes or shapes also cause a new selection, which makes another operator.
// The object keeps no tensors of the caller between calls. A call returns when the work is done.
// Allows one call at a time: a call during another call, from another thread or from the operator's
// own body, throws kFailedPrecondition. Concurrent threads need one object each.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
// into the caller's tensors: no allocation
class ResolvedOperator {
 public:
  // Throws the errors of CreateOperator; kInvalidArgument if the schema does not decide the number
  // of outputs.
  ResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                   const InvokeOptions& options = {});
  // Leaves optional input i out if present[i] is 0.
  OPKIT_IMAGE_LOCAL ResolvedOperator(const std::string& op, const std::vector<int>& present,
                                     Arguments args, const InvokeOptions& options);

  // Runs on `inputs` and returns new outputs. Throws kInvalidArgument for a wrong count or for
  // shapes that inference refuses; kFailedPrecondition during another call; and the errors of the
  // operator.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  // Runs into `outputs` and reuses their memory if it fits. After an Error the outputs are
  // unchanged, except for contents that the operator had begun to write.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, false);
  }
  // Like Run, but only issues the work on an asynchronous device and returns. The caller waits on
  // its stream for the end of the work, and keeps all tensors until then.
  void Issue(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    RunBy(inputs, outputs, true);
  }

  // Returns the number of tensors that a call returns, or that Run takes.
  int num_outputs() const { return static_cast<int>(def_.outputs().size()); }
  // Return the operator's schema, and the node that a call runs, with the names of its values.
  const OpSchema& schema() const { return *schema_; }
  const OperatorDef& def() const { return def_; }

  // Returns the current operator, which later calls also run. If kernels are selected, a call with
  // new dtypes or shapes replaces the operator and its observers.
  OperatorBase& op();

 private:
  void RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  struct Release;
  // Marks a ResolvedOperator during a call. Moving a ResolvedOperator does not copy the mark.
  class CallGuard {
   public:
    CallGuard() = default;
    CallGuard(CallGuard&&) noexcept {}
    CallGuard& operator=(CallGuard&&) noexcept { return *this; }
    bool Begin() { return !taken_.exchange(true, std::memory_order_acquire); }
    // Release: the next call sees the results of this call.
    void End() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

  const OpSchema* schema_;
  OperatorDef def_;
  detail::ResolvedCall call_;
  CallGuard call_guard_;
};

namespace detail {

// Returns 1 for each present input, 0 for an optional input that is left out.
std::vector<int> PresentInputs(std::span<const Tensor> inputs);
// Returns the number of a node's outputs: `given`, or the schema's number if `given` is negative.
// Throws kInvalidArgument, with `mend` at the end of the message, if the schema does not decide the
// number.
int CountOutputs(const OpSchema& schema, size_t num_inputs, const Arguments& args, int given,
                 const char* mend);

}  // namespace detail

// Calls operator `op` once, by default with the registry's order of kernels on the device of the
// first input. A default-constructed Tensor leaves an optional input out. Throws the errors of
// CreateOperator and of Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
OPKIT_IMAGE_LOCAL std::vector<Tensor> Invoke(const std::string& op,
                                             const std::vector<Tensor>& inputs, Arguments args = {},
                                             InvokeOptions options = {});

// The future outputs of a call of InvokeAsync.
class PendingOutputs {
 public:
  // Returns the event of the call, which fails with the call's Error.
  const Event& event() const;
  // Waits for the outputs and returns them; the waiting thread runs other work of the pool. Throws
  // the errors of Invoke; kFailedPrecondition for a second Get.
  std::vector<Tensor> Get();

 private:
  OPKIT_IMAGE_LOCAL friend PendingOutputs InvokeAsync(const std::string& op,
                                                      std::vector<Tensor> inputs, Arguments args,
                                                      InvokeOptions options);
  struct State;
  explicit PendingOutputs(detail::IntrusivePtr<detail::RefCounted> state);
  State& state() const;
  detail::IntrusivePtr<detail::RefCounted> state_;  // a State
};

// Runs Invoke on a thread of ThreadPool::Current(), under the caller's current invocation: a custom
// operator's sub-operators run in parallel to its own code. In a pool of one thread the call runs
// before InvokeAsync returns. Throws the errors of CreateOperator; errors of the run come from Get.
//
//   PendingOutputs sum = InvokeAsync("Add", {x, y});
//   …
//   std::vector<Tensor> out = sum.Get();
OPKIT_IMAGE_LOCAL PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                             Arguments args = {}, InvokeOptions options = {});

}}  // namespace opkit

#endif  // OPKIT_OP_INVOKE_HPP_

// ---- opkit/op/operator.hpp
// Operator<Context>: the class that operators' authors derive from. It owns the device context. Its
// Run (to completion) and RunAsync (issues the work, which completes the event) call RunOnDevice.
#ifndef OPKIT_OP_OPERATOR_HPP_
#define OPKIT_OP_OPERATOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   template <class Context>
//   class ScaleOp final : public opkit::Operator<Context> {
//    public:
//     USE_OPERATOR_FUNCTIONS(Context);
//     ScaleOp(const OperatorDef& def, Workspace* ws)
//         : Operator<Context>(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {}
//     bool RunOnDevice() override { … }
//   };
//
// Run of a synchronous operator costs a few ns over the virtual call; nothing is allocated.
template <class Context>
class Operator : public OperatorBase {
  static_assert(DeviceContext<Context>,
                "Operator<Context>: Context must meet opkit::DeviceContext (device/context.hpp)");

 public:
  // Binds the node's tensors, as OperatorBase does, and makes the context of the node's device.
  Operator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : OperatorBase(def, ws, config), context_(def.device()) {
    context_.SwitchToDevice(0);  // for the constructors of derived classes
  }

  // Does the operator's work on the context's device and stream. False or an exception is a
  // failure.
  bool RunOnDevice() override = 0;

  // The members of OperatorBase, for this context.
  bool Run(int stream_id = 0) final {
    if (RunsDirectly()) [[likely]] {
      InvocationScope invocation(invocation_kind(), device(), [this] { return span_names(); });
      RunDirectly();
      if (invocation.is_recorded()) [[unlikely]]
        DescribeSpan();
      return true;
    }
    const bool by_event = !Context::kAsynchronous && HasAsyncPart();
    return RunAs(stream_id, by_event, [&] { RunToEnd(by_event); });
  }
  bool RunAsync(int stream_id = 0) final {
    return RunAs(stream_id, !IsEventDisabled(), [this] { Issue(); });
  }
  // The members of OperatorBase, for devices that repeat recorded work.
  void RunRecorded(int stream_id) final {
    if constexpr (Context::kAsynchronous) {
      try {
        context_.SwitchToDevice(stream_id);
        RunOnDeviceOrFail();
        PublishOutputs();
      } catch (...) {
        RethrowWithContext();
      }
    } else {
      OperatorBase::RunRecorded(stream_id);
    }
  }
  bool SupportsRecording() const override { return SupportsAsyncScheduling(); }

  // True on the CPU for an operator whose work ends in RunOnDevice.
  bool RunsDirectly() const final { return std::is_same_v<Context, CPUContext> && !HasAsyncPart(); }
  bool HasAsyncPart() const override { return Context::kAsynchronous; }
  bool SupportsAsyncScheduling() const override {
    return kSupportsAsyncScheduling<Context> && HasAsyncPart();
  }

  // The members of OperatorBase, on the context's stream.
  void RecordEvent(const char* error_message = nullptr) final {
    if (IsEventDisabled()) return;
    event().state()->SetContext(failure_context());
    if (error_message) [[unlikely]]
      return event().SetFinished(error_message);
    if constexpr (Context::kAsynchronous) {
      TouchedStorages(event().state()->retained);
      if (IsEventCompletionDeferred()) event().state()->DeferCompletion();
    }
    context_.Record(event());
  }
  void WaitEvent(const Event& event, int stream_id = -1) final {
    if (stream_id >= 0) context_.SwitchToDevice(stream_id);
    context_.WaitEvent(event);
  }
  void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) final {
    if (stream_id >= 0) context_.SwitchToDevice(stream_id);
    for (const Event* event : events) context_.WaitEvent(*event);
  }
  void SyncDeviceBarrierForObservers() override {
    try {
      context_.FinishDeviceComputation();
    } catch (...) {
      // The failed work was issued earlier; the next event that is recorded here gets its failure.
      if constexpr (detail::HostContext<Context>)
        context_.Launch([failure = std::current_exception()] { std::rethrow_exception(failure); });
      throw;
    }
  }
  bool IsStreamFree(int stream_id) const override {
    return Context::IsStreamFree(device(), stream_id);
  }

  // Return the context in which the operator runs; getContext is Caffe2's spelling.
  Context& context() { return context_; }
  const Context* getContext() const { return &context_; }

 protected:
  void CopyDense(const Tensor& source, Tensor* dense) final {
    if constexpr (Context::kAsynchronous &&
                  (detail::HostContext<Context> || detail::NativeStreamContext<Context>))
      CopyAsync(context_, source, dense);
    else
      OperatorBase::CopyDense(source, dense);
  }

 private:
  // Runs `body` with the run's invocation, observers and stream. With `by_event` the event belongs
  // to this run and fails with it.
  template <class Body>
  bool RunAs(int stream_id, bool by_event, Body body) {
    const detail::IssueScope issue(Context::kAsynchronous && !IsEventDisabled());
    InvocationScope invocation(invocation_kind(), device(), [this] { return span_names(); });
    detail::ObserverScope<OperatorBase> observers(*this);
    SwitchStream(stream_id, by_event);
    if (by_event) {
      PrepareEvent();
      if (invocation.is_recorded()) BeginSpan();
    }
    try {
      body();
      PublishOutputs();
    } catch (...) {
      Fail(by_event);
    }
    if (invocation.is_recorded()) [[unlikely]]
      DescribeSpan();
    observers.Succeeded();
    return true;
  }
  OPKIT_COLD void BeginSpan() {
    event().state()->SetSpan(CurrentInvocation().id);
    if constexpr (detail::TimedContext<Context>) context_.BeginSpan(event());
  }
  void SwitchStream(int stream_id, bool by_event) {
    try {
      context_.SwitchToDevice(stream_id);
    } catch (...) {
      const bool in_flight = by_event && event().Query() == EventStatus::kScheduled;
      if (by_event && !in_flight) PrepareEvent();
      // No work was issued yet. If an earlier run is still in flight, its event stays unchanged.
      RethrowWithContext(by_event && !in_flight);
    }
  }
  void RunOnDeviceOrFail() {
    if (!RunOnDevice()) [[unlikely]]
      detail::ThrowReturnedFalse();
  }
  void RunToEnd(bool by_event) {
    if constexpr (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      context_.FinishDeviceComputation();
    } else if (by_event) [[unlikely]] {
      Issue();
      event().Finish();
    } else {
      RunOnDeviceOrFail();
    }
  }
  // Issues the work and sets the event, if any, to the state that fits the device: SCHEDULED if the
  // work continues, else finished.
  void Issue() {
    if constexpr (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      if (!HasAsyncPart()) [[unlikely]] {
        if (!IsEventDisabled()) event().SetFinished();
      } else if (!IsEventDisabled()) {
        RecordEvent();
      } else if constexpr (detail::HostContext<Context>) {
        detail::RefCountedList kept;  // kept until the stream has finished this run
        TouchedStorages(kept);
        context_.Launch([kept = std::move(kept)] {});
      } else if constexpr (detail::RetainingContext<Context>) {
        detail::RefCountedList kept;
        TouchedStorages(kept);
        context_.Retain(std::move(kept));
      }
    } else if (HasAsyncPart()) [[unlikely]] {
      IssueAsyncPart();
    } else {
      RunOnDeviceOrFail();
      if (!IsEventDisabled()) event().SetFinished();
    }
  }
  OPKIT_COLD void IssueAsyncPart() {
    static_cast<void>(event());  // throws if disabled: no thread could wait for the run
    RecordEvent();  // before the body: the operator may finish the event from another thread
    RunOnDeviceOrFail();
    RetainUntilFinished();
  }
  // Rethrows the exception in flight with this operator as context; for use in a catch block.
  [[noreturn]] OPKIT_COLD void Fail(bool complete_event) {
    if constexpr (Context::kAsynchronous) RetainUntilDrained();
    RethrowWithContext(complete_event);
  }
  // Keeps the tensors' memory after a failure, until the stream has finished the work in flight.
  void RetainUntilDrained() noexcept {
    SetStrayWork();
    try {
      Event drained(device());
      TouchedStorages(drained.state()->retained);
      context_.Record(drained);
    } catch (...) {  // if the device accepts no work at all, nothing was issued
    }
  }

 protected:
  Context context_;
};

}}  // namespace opkit

// Makes a member template of the base, and its overloads, usable without `template`. g++ parses the
// name as a template only if the class itself declares a template of this name.
#define OPKIT_USE_OPERATOR_TEMPLATE(Name)                                 \
  using ::opkit::OperatorBase::Name;                                      \
  template <class OpkitT, class... OpkitArgs>                             \
  decltype(auto) Name(OpkitArgs&&... args) const {                        \
    return static_cast<const ::opkit::OperatorBase&>(*this).Name<OpkitT>( \
        static_cast<OpkitArgs&&>(args)...);                               \
  }                                                                       \
  static_assert(true)
// Makes names of the base usable without `this->` and without `template` in a class template
// derived from Operator<Context>. Name the type of each Input and Output (`const Tensor& x =
// Input(0); x.data<float>()`): in a chain or behind `auto` C++ needs `template` before `data`.
#define OPKIT_USE_OPERATOR_BASE_FUNCTIONS               \
  using ::opkit::OperatorBase::DenseInput;              \
  using ::opkit::OperatorBase::FinishWork;              \
  using ::opkit::OperatorBase::HasArgument;             \
  using ::opkit::OperatorBase::HasInput;                \
  using ::opkit::OperatorBase::HasOutput;               \
  using ::opkit::OperatorBase::InputBlob;               \
  using ::opkit::OperatorBase::InputSize;               \
  using ::opkit::OperatorBase::InputTensorShapes;       \
  using ::opkit::OperatorBase::IsInputOutputAlias;      \
  using ::opkit::OperatorBase::OutputBlob;              \
  using ::opkit::OperatorBase::OutputSize;              \
  using ::opkit::OperatorBase::OutputTensor;            \
  using ::opkit::OperatorBase::OutputTensorAlias;       \
  using ::opkit::OperatorBase::OutputTensorCopyFrom;    \
  using ::opkit::OperatorBase::OutputTensorOrUndefined; \
  using ::opkit::OperatorBase::Scratch;                 \
  using ::opkit::OperatorBase::SetOutputTensor;         \
  using ::opkit::OperatorBase::config;                  \
  using ::opkit::OperatorBase::def;                     \
  using ::opkit::OperatorBase::device;                  \
  using ::opkit::OperatorBase::event;                   \
  OPKIT_USE_OPERATOR_TEMPLATE(Arg);                     \
  OPKIT_USE_OPERATOR_TEMPLATE(GetRepeatedArgument);     \
  OPKIT_USE_OPERATOR_TEMPLATE(GetSingleArgument);       \
  OPKIT_USE_OPERATOR_TEMPLATE(HasSingleArgumentOfType); \
  OPKIT_USE_OPERATOR_TEMPLATE(Input);                   \
  OPKIT_USE_OPERATOR_TEMPLATE(InputIsType);             \
  OPKIT_USE_OPERATOR_TEMPLATE(Output)
#define OPKIT_USE_OPERATOR_FUNCTIONS(Context) \
  OPKIT_USE_OPERATOR_BASE_FUNCTIONS;          \
  using ::opkit::Operator<Context>::context_

// Names the indices of inputs and outputs: INPUT_TAGS(X, SCALE); … Input(SCALE).
#define OPKIT_INPUT_TAGS(first, ...) enum InputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }
#define OPKIT_OUTPUT_TAGS(first, ...) enum OutputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }

#endif  // OPKIT_OP_OPERATOR_HPP_

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

// ---- opkit/op/call/operator_call.hpp
// OperatorCall: a ResolvedOperator's operator, bound to its own workspace and run on the caller's
// tensors. It selects the kernel for the tensors' types, and converts tensors to the layouts of the
// kernel.
#ifndef OPKIT_OP_CALL_OPERATOR_CALL_HPP_
#define OPKIT_OP_CALL_OPERATOR_CALL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operator that ResolvedOperator calls on the caller's tensors.
class OperatorCall {
 public:
  // Throws the errors of CreateOperator.
  OPKIT_IMAGE_LOCAL OperatorCall(const OpSchema& schema, const OperatorDef& def);

  // Runs like ResolvedCall::run.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs, bool issue);
  OperatorBase& op() { return *op_; }

 private:
  struct Release;
  // The workspace of one operator. Each operator has its own workspace, so that state in the
  // workspace does not disturb the next operator.
  struct Place {
    std::unique_ptr<Workspace> workspace;
    std::vector<Tensor*> inputs;
  };
  Place MakePlace() const;
  void SetOperator(std::unique_ptr<OperatorBase> op, Place place);
  // Makes the operator of the first candidate for the current inputs.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void Select();
  // Converts the inputs to the operator's layouts.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertInputs();
  // Converts an output to the standard layout, in the caller's memory if that fits.
  OPKIT_COLD OPKIT_IMAGE_LOCAL void ConvertOutput(const Tensor& made, Tensor& output) const;

  const OpSchema& schema_;
  OperatorDef def_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<OperatorBase> op_;
  std::vector<Tensor*> inputs_;  // in the workspace; null for an input that is left out
  std::vector<Blob*> outputs_;
  bool checks_types_ = false;  // infers before a run, because the operator itself does not
  bool selects_ = false;       // the order of kernels depends on the inputs
  bool converts_ = false;      // the operator has other layouts than the standard one
  std::vector<InferenceCache::Output> selected_for_;  // dtypes and shapes of the inputs
};

OPKIT_IMAGE_LOCAL ResolvedCall MakeOperatorCall(const OpSchema& schema, const OperatorDef& def);
// Lets Invoke and ResolvedOperator call kernels other than typed CPU kernels. The registration of
// such a kernel calls it.
OPKIT_IMAGE_LOCAL void UseOperatorCalls() noexcept;

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_OPERATOR_CALL_HPP_

// ---- opkit/op/registration.hpp
// The registration macros: OPERATOR_SCHEMA and REGISTER_<DEVICE>_OPERATOR. Each expands to a static
// initialiser at namespace scope, in a source file or a header.
#ifndef OPKIT_OP_REGISTRATION_HPP_
#define OPKIT_OP_REGISTRATION_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class Op>
inline constexpr bool kTakesConfig =
    std::is_constructible_v<Op, const OperatorDef&, Workspace*, const KernelConfig*>;

template <class Op>
std::unique_ptr<OperatorBase> CreateClass(const OperatorDef& def, Workspace* ws,
                                          [[maybe_unused]] const KernelConfig* config) {
  static_assert(
      std::is_base_of_v<OperatorBase, Op>,
      "REGISTER_*_OPERATOR(name, Class): Class must derive from opkit::Operator<Context>");
  static_assert(!std::is_abstract_v<Op>,
                "REGISTER_*_OPERATOR(name, Class): Class must override bool RunOnDevice()");
  static_assert(std::is_constructible_v<Op, const OperatorDef&, Workspace*> || kTakesConfig<Op>,
                "REGISTER_*_OPERATOR(name, Class): Class needs a constructor "
                "(const opkit::OperatorDef&, opkit::Workspace*)");
  if constexpr (kTakesConfig<Op>)
    return std::make_unique<Op>(def, ws, config);
  else
    return std::make_unique<Op>(def, ws);
}

// Runs `add`; returns false if `add` throws, because static initialisers must not throw. A failed
// registration (out of memory) appears later as a missing kernel.
template <class F>
bool Registered(F add) noexcept {
  try {
    return add(), true;
  } catch (...) {
    return false;
  }
}
// A kernel as a macro registers it. `file` is a literal; the registry copies the other strings.
struct KernelRegistration {
  const char* op;
  DeviceType device;
  const char* backend;  // "" or "DEFAULT": the reference backend
  Kernel::Priority priority;
  const char* file;
  int line;
};
OPKIT_IMAGE_LOCAL bool RegisterKernel(const KernelRegistration& kernel,
                                      OperatorCreator create) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterProposingKernel(const KernelRegistration& kernel,
                                               OperatorCreator create, KernelProposer propose,
                                               KernelFuser fuse = {}) noexcept;
// Registers a plain function as creator, so that a registering unit need not compile
// OperatorCreator.
using CreateFunction = std::unique_ptr<OperatorBase> (*)(const OperatorDef&, Workspace*,
                                                         const KernelConfig*);
OPKIT_IMAGE_LOCAL bool RegisterFunction(const KernelRegistration& kernel,
                                        CreateFunction create) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendRank(const char* backend, int rank) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendVersion(const char* backend,
                                              std::string (*version)()) noexcept;
OPKIT_IMAGE_LOCAL bool RegisterBackendAvailability(const char* backend,
                                                   std::string (*why_not)()) noexcept;

// Makes the name Propose ambiguous in AmbiguousPropose<Op> if Op has a member of that name, of any
// kind and access.
struct NamesPropose {
  void Propose();
};
template <class Op>
struct AmbiguousPropose : Op, NamesPropose {};
// True if Op has a member named Propose. In a final class, which cannot be a base, a private member
// is not found.
template <class Op>
consteval bool HasMemberPropose() {
  if constexpr (std::is_final_v<Op>)
    return requires { &Op::Propose; } ||
           requires(Op& op, KernelQuery& query) { op.Propose(query); };
  else
    return !requires { &AmbiguousPropose<Op>::Propose; };
}

template <class Op>
OPKIT_IMAGE_LOCAL bool RegisterClass(const KernelRegistration& kernel) noexcept {
  if constexpr (requires { KernelFuser(&Op::Fuse); }) {
    return RegisterProposingKernel(kernel, &CreateClass<Op>, &Op::Propose, &Op::Fuse);
  } else if constexpr (requires { KernelProposer(&Op::Propose); }) {
    return RegisterProposingKernel(kernel, &CreateClass<Op>, &Op::Propose);
  } else {
    if constexpr (std::is_base_of_v<OperatorBase, Op>)  // others get the message of CreateClass
      static_assert(!HasMemberPropose<Op>(),
                    "REGISTER_*_OPERATOR(name, Class): Class's Propose must be public, and "
                    "`static std::vector<KernelConfig> Propose(const KernelQuery&)`");
    return RegisterFunction(kernel, &CreateClass<Op>);
  }
}

template <template <class...> class Op>
bool RegisterClass(const KernelRegistration&) {
  static_assert(std::is_void_v<Op<CPUContext>>,
                "REGISTER_*_OPERATOR(name, Class): Class is a class template; write its context as "
                "well, such as Class<CPUContext>");
  return false;
}

}}}  // namespace opkit::detail

// A class registration calls the function that OPERATOR_SCHEMA defines. A forgotten schema is then
// a link error, and the name of the missing symbol says what to write.
#define OPKIT_SCHEMA_ANCHOR(name) opkit_add_OPERATOR_SCHEMA_for_##name
// Begins a macro with an anchor: checks the scope and the name.
#define OPKIT_REGISTRATION_OF(macro, name)                                                   \
  OPKIT_AT_NAMESPACE_SCOPE(macro);                                                           \
  static_assert(::opkit::detail::IsIdentifier(#name), #macro                                 \
                "(name, …): the name is an identifier; where it is that of a function or " \
                "class in a namespace, write the macro there")

// OPERATOR_SCHEMA(Scale).NumInputs(1).NumOutputs(1)…;
#define OPKIT_OPERATOR_SCHEMA(name)                                                          \
  OPKIT_REGISTRATION_OF(OPERATOR_SCHEMA, name);                                              \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {} \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                   \
      ::opkit::OpRegistry::Global().AddSchema(#name, __FILE__, __LINE__)

// Registers a class; the general form. `device` is a DeviceType, `backend` a string; the class
// comes last, so that it may contain commas. Your own device type needs one line:
//   #define REGISTER_NPU_OPERATOR(...) OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, __VA_ARGS__)
// A class with several configurations returns them from a static function. It takes the selected
// configuration as the third argument of its constructor, or reads config():
//   static std::vector<KernelConfig> Propose(const KernelQuery& query);
// (Invoke of such an operator needs opkit/graph.hpp in the program.)
//   ConvOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
//       : Operator<Context>(def, ws, config) {}           // null where none was chosen
// A class that can fuse its node with the next node (op/fusion.hpp) has a function beside Propose:
//   static std::optional<FusedNode> Fuse(const FusionQuery& query);
#define OPKIT_REGISTER_OPERATOR(device, name, backend, priority, ...)                \
  OPKIT_REGISTRATION_OF(REGISTER_OPERATOR, name);                                    \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)(); \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                   \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                  \
       ::opkit::detail::RegisterClass<__VA_ARGS__>(                                  \
           {#name, device, backend, ::opkit::Kernel::Priority::priority, __FILE__, __LINE__}))
// Registers by string, for names that are not identifiers and for kernels of another binary's
// operator. A missing schema is reported at the first lookup.
#define OPKIT_REGISTER_OPERATOR_STR(device, string, backend, ...)  \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OPERATOR_STR);                 \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) = \
      ::opkit::detail::RegisterClass<__VA_ARGS__>(                 \
          {string, device, backend, ::opkit::Kernel::Priority::kDefault, __FILE__, __LINE__})
// Sets the rank of a backend. Selection tries the backends that no node or preference requests by
// rank, highest first; "reference" has rank 0. OPKIT_REGISTER_BACKEND_RANK("eigen", 100);
#define OPKIT_REGISTER_BACKEND_RANK(backend, rank)               \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_RANK);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_rank_) = \
      ::opkit::detail::RegisterBackendRank(backend, rank)
// Registers a function that returns the version of the library behind a backend; tuning measures
// anew where it differs: OPKIT_REGISTER_BACKEND_VERSION("mine", [] { return "2.1"; });
#define OPKIT_REGISTER_BACKEND_VERSION(backend, ...)                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_VERSION);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_version_) = \
      ::opkit::detail::RegisterBackendVersion(backend,              \
                                              []() -> std::string { return (__VA_ARGS__)(); })
// Registers a function that returns the reason why the backend cannot run on this machine, else "":
//   OPKIT_REGISTER_BACKEND_AVAILABILITY("avx512", [] { return HasAvx512() ? "" : "no AVX-512"; });
#define OPKIT_REGISTER_BACKEND_AVAILABILITY(backend, ...)                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTER_BACKEND_AVAILABILITY);         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_availability_) = \
      ::opkit::detail::RegisterBackendAvailability(                      \
          backend, []() -> std::string { return (__VA_ARGS__)(); })
// Registers a creator function (const OperatorDef&, Workspace*) -> std::unique_ptr<OperatorBase>,
// which may take a const KernelConfig* as well.
#define OPKIT_REGISTER_OPERATOR_CREATOR(device, name, ...)                                     \
  OPKIT_AT_NAMESPACE_SCOPE(REGISTER_OPERATOR_CREATOR);                                         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                             \
      ::opkit::detail::RegisterKernel(                                                         \
          {#name, device, "DEFAULT", ::opkit::Kernel::Priority::kDefault, __FILE__, __LINE__}, \
          __VA_ARGS__)

#define OPKIT_REGISTER_DEVICE_OPERATOR(device, name, ...) \
  OPKIT_REGISTER_OPERATOR(device, name, "DEFAULT", kDefault, __VA_ARGS__)

#define OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(device, name, priority, ...) \
  OPKIT_REGISTER_OPERATOR(device, name, "DEFAULT", priority, __VA_ARGS__)

#define OPKIT_REGISTER_CPU_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPU, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPU, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_PRIORITY(name, priority, ...)                    \
  OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(::opkit::DeviceType::kCPU, name, priority, \
                                               __VA_ARGS__)

#define OPKIT_REGISTER_CPU_STREAM_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPUStream, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPUStream, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_PRIORITY(name, priority, ...)                   \
  OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(::opkit::DeviceType::kCPUStream, name, priority, \
                                               __VA_ARGS__)

// Keeps the registrations of a static archive. A linker takes only the objects to which other code
// refers, and no code refers to a registration. Put OPKIT_REGISTRATIONS(my_ops) in the archive's
// source file and OPKIT_USE_REGISTRATIONS(my_ops) in the program, or link with the CMake function
// opkit_link_operators.
#define OPKIT_REGISTRATIONS(group)               \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_REGISTRATIONS); \
  extern "C" void opkit_use_registrations_of_##group() {}
#define OPKIT_USE_REGISTRATIONS(group)                                    \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_USE_REGISTRATIONS);                      \
  extern "C" void opkit_use_registrations_of_##group();                   \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_registrations_) = \
      (opkit_use_registrations_of_##group(), true)

#endif  // OPKIT_OP_REGISTRATION_HPP_

// ---- opkit/op/typed/typed_values.hpp
// The parameters of a typed operator: In, OptionalIn, Out and Attr. Each has its name in its type.
// A kernel's lambda can copy each of them, on any device.
#ifndef OPKIT_OP_TYPED_TYPED_VALUES_HPP_
#define OPKIT_OP_TYPED_TYPED_VALUES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The extents of a dense tensor, for kernels.
class TypedExtents {
 public:
  static constexpr int kMaxRank = 8;

  OPKIT_HOST_DEVICE int64_t numel() const { return size_; }
  OPKIT_HOST_DEVICE int64_t size() const { return size_; }  // number of extents, for use as a range
  OPKIT_HOST_DEVICE int rank() const { return rank_; }
  // Returns an extent; negative axes count from the end. On the host throws kOutOfRange for an axis
  // that the tensor does not have.
  OPKIT_HOST_DEVICE int64_t dim(int axis) const {
#ifdef OPKIT_DEVICE_PASS
    return dims_[axis < 0 ? axis + rank_ : axis];
#else
    return dims_[CheckedIndex(axis, dims_, rank_)];
#endif
  }
  Shape shape() const { return Shape(dims_, Index(rank_)); }

  // Throws kUnsupported for a rank past kMaxRank.
  OPKIT_COLD void SetShape(const Shape& shape) {
    size_ = shape.numel();
    rank_ = shape.rank();
    if (rank_ > kMaxRank)
      Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
            ", found shape ", shape, "; merge axes with View first");
    for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
  }

 private:
  int64_t size_ = 0;
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

// A dense tensor for kernels: a pointer and the extents, row-major.
template <class T>
class TypedView : public TypedExtents {
 public:
  TypedView() = default;
  TypedView(T* data, const Shape& shape) : data_(data) { SetShape(shape); }
  TypedView(T* data, const TypedExtents& extents) : TypedExtents(extents), data_(data) {}

  OPKIT_HOST_DEVICE T* data() const { return data_; }
  // Element i in row-major order, unchecked.
  OPKIT_HOST_DEVICE T& operator[](int64_t i) const { return data_[i]; }
  OPKIT_HOST_DEVICE T* begin() const { return data_; }
  OPKIT_HOST_DEVICE T* end() const { return data_ + size(); }

 private:
  T* data_ = nullptr;
};

// The value of an attribute. A string, a tensor or a list is held by reference, so that a lambda's
// copy copies only a pointer.
template <class T, bool kHeld = !std::is_trivially_copyable_v<T>>
class AttrValue {
 public:
  AttrValue() = default;
  explicit AttrValue(T value) : value_(value) {}
  OPKIT_HOST_DEVICE const T& value() const { return value_; }

 private:
  T value_{};
};
template <class T>
class AttrValue<T, true> {
 public:
  AttrValue() = default;
  explicit AttrValue(T value) : held_(new Shared<T>(std::move(value))) {}
  explicit AttrValue(const IntrusivePtr<RefCounted>& held)  // a Shared<T>
      : held_(static_cast<const Shared<T>*>(held.get())) {}
  const T& value() const {
    static const T kNone{};
    return held_ ? held_->value : kNone;
  }

 private:
  IntrusivePtr<const Shared<T>> held_;
};

}  // namespace detail

// An input tensor of elements T. A strided tensor arrives as a dense copy.
template <detail::FixedName Name, Element T>
class In : public detail::TypedView<const T> {
 public:
  using value_type = T;
  using detail::TypedView<const T>::TypedView;
};

// An input that a node may leave out. A left-out input is false and empty.
template <detail::FixedName Name, Element T>
class OptionalIn : public In<Name, T> {
 public:
  OptionalIn() = default;
  OptionalIn(const T* data, const Shape& shape) : In<Name, T>(data, shape), present_(true) {}
  OptionalIn(const T* data, const detail::TypedExtents& extents)
      : In<Name, T>(data, extents), present_(true) {}
  OPKIT_HOST_DEVICE explicit operator bool() const { return present_; }

 private:
  bool present_ = false;
};

// An output tensor, allocated before the function is called, by the operator's shape rule.
template <detail::FixedName Name, Element T>
class Out : public detail::TypedView<T> {
 public:
  using value_type = T;
  using detail::TypedView<T>::TypedView;
};

// An attribute: an integer, floating-point number, bool, std::string, Tensor, or a std::vector of
// one of these. Converts to T; use value() if a template must deduce T. Required unless the
// operator gives it a default. Strings, tensors and lists are for host code; a copy of such an Attr
// shares them.
template <detail::FixedName Name, class T>
class Attr : public detail::AttrValue<T> {
 public:
  using value_type = T;
  using detail::AttrValue<T>::AttrValue;
  OPKIT_HOST_DEVICE operator const T&() const { return this->value(); }
};

}}  // namespace opkit

#endif  // OPKIT_OP_TYPED_TYPED_VALUES_HPP_

// ---- opkit/op/typed/typed_signature.hpp
// The signature of a typed operator's function as a compile-time table: kind, name, place, and
// dtype or attribute type of each parameter. Also contains the compile errors for signatures that
// the table cannot describe.
#ifndef OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_
#define OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

enum class ParameterKind { kIn, kOptionalIn, kOut, kAttr, kUnknown };

constexpr bool IsInput(ParameterKind kind) {
  return kind == ParameterKind::kIn || kind == ParameterKind::kOptionalIn;
}
constexpr bool IsOutput(ParameterKind kind) { return kind == ParameterKind::kOut; }
constexpr bool IsAttribute(ParameterKind kind) { return kind == ParameterKind::kAttr; }

// True if T is allowed in Attr<"name", T>.
template <class T>
inline constexpr bool kIsAttributeElement =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
    std::is_same_v<T, Tensor>;
template <class T>
inline constexpr bool kIsAttribute = kIsAttributeElement<T>;
template <class T>
inline constexpr bool kIsAttribute<std::vector<T>> = kIsAttributeElement<T>;

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <class P>
struct ParameterTraits {
  static constexpr ParameterKind kKind = ParameterKind::kUnknown;
  static constexpr FixedName kName = "?";
  using Value = void;
};
template <ParameterKind kParameterKind, FixedName Name, class T>
struct KnownParameter {
  static constexpr ParameterKind kKind = kParameterKind;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<In<Name, T>> : KnownParameter<ParameterKind::kIn, Name, T> {};
template <FixedName Name, class T>
struct ParameterTraits<OptionalIn<Name, T>> : KnownParameter<ParameterKind::kOptionalIn, Name, T> {
};
template <FixedName Name, class T>
struct ParameterTraits<Out<Name, T>> : KnownParameter<ParameterKind::kOut, Name, T> {};
template <FixedName Name, class T>
struct ParameterTraits<Attr<Name, T>> : KnownParameter<ParameterKind::kAttr, Name, T> {};

// One row of the table: a parameter of the function.
struct TypedParameter {
  ParameterKind kind;
  FixedName name;
  DType dtype;              // dtype of a tensor
  AttributeType attribute;  // type of an attribute
  int place = 0;            // among the inputs, the outputs or the attributes
  bool by_element = false;  // declared with the function's element type T
};

template <class P>
consteval TypedParameter DescribeParameter() {
  using Traits = ParameterTraits<P>;
  using Value = typename Traits::Value;
  TypedParameter row{Traits::kKind, Traits::kName, DType::kUndefined, AttributeType::kInt};
  if constexpr (Traits::kKind == ParameterKind::kAttr) {
    if constexpr (kIsAttribute<Value>) row.attribute = kAttributeTypeOf<Value>;
  } else if constexpr (Traits::kKind != ParameterKind::kUnknown) {
    row.dtype = kDTypeOf<Value>;
  }
  return row;
}

// Reads the type of a function: R (Context&, P...).
template <class F>
struct TypedSignature {
  static constexpr bool kReadable = false;
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...)> {
  static constexpr bool kReadable = true;
  static constexpr size_t kCount = sizeof...(P);
  using Return = R;
  using Context = std::remove_const_t<C>;
  using Values = std::tuple<std::remove_cvref_t<P>...>;
  template <size_t I>
  using Parameter = std::tuple_element_t<I, Values>;
  template <size_t I>
  using Value = typename ParameterTraits<Parameter<I>>::Value;

  static constexpr std::array<TypedParameter, kCount> kRows = {
      DescribeParameter<std::remove_cvref_t<P>>()...};
  static constexpr bool kParametersKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kUnknown &&
        !std::is_rvalue_reference_v<P>)&&...);
  static constexpr bool kAttributesKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kAttr ||
        kIsAttribute<typename ParameterTraits<std::remove_cvref_t<P>>::Value>)&&...);
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...) noexcept> : TypedSignature<R (*)(C&, P...)> {};

// True if the function has a version for these types. Function is the type of OPKIT_OP's lambda,
// which stands for a function template over <Context> alone, or over <Context, T>.
template <class Function, class... Types>
inline constexpr bool kHasVersion = std::is_invocable_v<Function, std::type_identity<Types>...>;
template <class Function, class... Types>
using SignatureOf = TypedSignature<decltype(Function{}(std::type_identity<Types>{}...))>;

// Returns two element types for which the function has versions. The comparison of the two versions
// shows which parameters change with T.
template <class Function>
consteval auto ElementProbes() {
  if constexpr (kHasVersion<Function, CPUContext, float, float, float>) {
    // The function is not a template: a compiler that continues after that error accepts any
    // arguments.
    return std::type_identity<bool>{};
  } else if constexpr (kHasVersion<Function, CPUContext, float> &&
                       kHasVersion<Function, CPUContext, double>) {
    return std::type_identity<void(float, double)>{};
  } else if constexpr (kHasVersion<Function, CPUContext, int32_t> &&
                       kHasVersion<Function, CPUContext, int64_t>) {
    return std::type_identity<void(int32_t, int64_t)>{};
  } else {
    return std::type_identity<void>{};
  }
}

template <class Function, class Probes>
struct TypedFunctionOf {  // neither form
  static constexpr bool kTemplate = false;
};
template <class Function>
  requires(kHasVersion<Function, CPUContext>)
struct TypedFunctionOf<Function, void> {
  static constexpr bool kTemplate = true;
  static constexpr bool kTakesElement = false;
  using Signature = SignatureOf<Function, CPUContext>;
  template <size_t>
  static constexpr bool kByElement = false;
  static constexpr bool kElementsAreT = true;
};
template <class Function, class T, class U>
struct TypedFunctionOf<Function, void(T, U)> {
  static constexpr bool kTemplate = true;
  static constexpr bool kTakesElement = true;
  using Signature = SignatureOf<Function, CPUContext, T>;
  using Other = SignatureOf<Function, CPUContext, U>;
  template <size_t I>
  static constexpr bool kByElement = !std::is_same_v<typename Signature::template Parameter<I>,
                                                     typename Other::template Parameter<I>>;
  template <class A, class B>
  static constexpr bool kIsElement =
      std::is_same_v<A, B> || (std::is_same_v<A, T> && std::is_same_v<B, U>) ||
      (std::is_same_v<A, std::vector<T>> && std::is_same_v<B, std::vector<U>>);
  // True if every parameter that depends on T has T itself, or a vector of T, as its type.
  static constexpr bool kElementsAreT = []<size_t... I>(std::index_sequence<I...>) {
    return (kIsElement<typename Signature::template Value<I>, typename Other::template Value<I>> &&
            ...);
  }(std::make_index_sequence < Signature::kReadable ? Signature::kCount : 0 > {});
};

// The facts about a readable function that OPKIT_OP needs.
template <class Function>
struct TypedFunction
    : TypedFunctionOf<Function, typename decltype(ElementProbes<Function>())::type> {};

template <class Function>
consteval auto TypedRows() {
  using F = TypedFunction<Function>;
  using S = typename F::Signature;
  auto rows = S::kRows;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((rows[I].by_element = F::template kByElement<I>), ...);
  }(std::make_index_sequence<S::kCount>{});
  int inputs = 0, outputs = 0, attributes = 0;
  for (TypedParameter& row : rows) {
    row.place = IsInput(row.kind) ? inputs++ : IsOutput(row.kind) ? outputs++ : attributes++;
    if (!row.by_element) continue;
    row.dtype = DType::kUndefined;
    if (IsAttribute(row.kind))  // kept as floating point for every T
      row.attribute =
          row.attribute >= AttributeType::kInts ? AttributeType::kFloats : AttributeType::kFloat;
  }
  return rows;
}
template <class Function>
inline constexpr auto kTypedRows = TypedRows<Function>();

// Returns the index of the parameter of that name and kind, or -1.
template <class Function>
constexpr int FindParameter(FixedName name, bool (*of_kind)(ParameterKind)) {
  const auto& rows = kTypedRows<Function>;
  for (size_t i = 0; i < rows.size(); ++i)
    if (of_kind(rows[i].kind) && rows[i].name == name) return static_cast<int>(i);
  return -1;
}
// Returns the place of the input (output) of that name, or -1.
template <class Function>
constexpr int FindPlace(FixedName name, bool (*of_kind)(ParameterKind)) {
  const int found = FindParameter<Function>(name, of_kind);
  return found < 0 ? -1 : kTypedRows<Function>[Index(found)].place;
}
template <class Function>
constexpr int CountParameters(bool (*of_kind)(ParameterKind)) {
  int count = 0;
  for (const TypedParameter& row : kTypedRows<Function>) count += of_kind(row.kind);
  return count;
}
template <class Function>
constexpr bool NamesDiffer() {
  const auto& rows = kTypedRows<Function>;
  for (size_t a = 0; a < rows.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (rows[a].name == rows[b].name) return false;
  return true;
}
// Returns the place of the first required input declared with T, or -1.
template <class Function>
constexpr int ElementInput() {
  for (const TypedParameter& row : kTypedRows<Function>)
    if (row.kind == ParameterKind::kIn && row.by_element) return row.place;
  return -1;
}

// Reports the first mistake in the function's signature as a compile error; true if there is none.
template <class Function>
consteval bool CheckTypedFunction() {
  using F = TypedFunction<Function>;
  static_assert(F::kTemplate,
                "OPKIT_OP(name): name must be one function template over <class Context>, or over "
                "<class Context, class T> with an element type T");
  if constexpr (F::kTemplate) {
    using S = typename F::Signature;
    static_assert(S::kReadable,
                  "OPKIT_OP: the function must be void or bool (Context&, In<\"name\", T>…, "
                  "Out<\"name\", T>…, Attr<\"name\", T>…)");
    if constexpr (S::kReadable) {
      constexpr bool kContext = std::is_same_v<typename S::Context, CPUContext>;
      static_assert(kContext, "OPKIT_OP: the function's first parameter must be Context&");
      constexpr bool kReturn =
          std::is_same_v<typename S::Return, void> || std::is_same_v<typename S::Return, bool>;
      static_assert(kReturn, "OPKIT_OP: the function must return void or bool");
      static_assert(S::kParametersKnown,
                    "OPKIT_OP: every parameter after the context must be In<\"name\", T>, "
                    "OptionalIn<\"name\", T>, Out<\"name\", T> or Attr<\"name\", T>");
      static_assert(S::kAttributesKnown || !S::kParametersKnown,
                    "OPKIT_OP: Attr<\"name\", T>: T must be an integer, bool, floating-point "
                    "number, std::string, opkit::Tensor, or a std::vector of one of these");
      if constexpr (kContext && kReturn && S::kParametersKnown && S::kAttributesKnown) {
        static_assert(NamesDiffer<Function>(),
                      "OPKIT_OP: two parameters of the function have the same name");
        static_assert(F::kElementsAreT,
                      "OPKIT_OP: where a parameter of a function over <Context, T> depends on T, "
                      "its type must be T itself, or std::vector<T> for an attribute");
        constexpr bool kSaysT = !F::kTakesElement || ElementInput<Function>() >= 0;
        static_assert(kSaysT,
                      "OPKIT_OP: a function over <Context, T> needs an input In<\"name\", T> that "
                      "says which T to run");
        constexpr bool kFewOutputs = CountParameters<Function>(IsOutput) < 64;
        static_assert(kFewOutputs, "OPKIT_OP: the function has more than 63 outputs");
        return NamesDiffer<Function>() && F::kElementsAreT && kSaysT && kFewOutputs;
      }
    }
  }
  return false;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_SIGNATURE_HPP_

// ---- opkit/op/typed/typed_kernel.hpp
// TypedKernel: the record that OPKIT_OP(…).Kernel<Context, T…>() registers. It has a row for each
// parameter of the author's function. For each element type it has a function that calls the
// author's function with the values of the parameters. TypedCall does the rest of a run, which is
// the same for all signatures.
#ifndef OPKIT_OP_TYPED_TYPED_KERNEL_HPP_
#define OPKIT_OP_TYPED_TYPED_KERNEL_HPP_

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

// ---- opkit/op/typed/typed_call.hpp
// TypedCall: a typed kernel that is prepared for a node. It reads the node's attributes once,
// infers output shapes when the inputs' shapes change, and calls the kernel's function.
// TypedOperator and DirectCall use it.
#ifndef OPKIT_OP_TYPED_TYPED_CALL_HPP_
#define OPKIT_OP_TYPED_TYPED_CALL_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A typed kernel, prepared for one node. Every `def` argument must be the node's definition.
class TypedCall {
 public:
  // Throws kInvalidArgument if the node leaves out a required input or output; kNotFound for an
  // attribute without a value; kTypeMismatch for an attribute of another type.
  TypedCall(const TypedKernel& kernel, const OpSchema& schema, const OperatorDef& def);

  // Returns the signature's number of inputs; a node may have fewer inputs if the last inputs are
  // optional.
  size_t num_inputs() const { return num_inputs_; }
  // Infers the outputs into `inference`. Calls `wait` before the first read of an input's elements,
  // because the device may still be computing them. Throws kUninitialized; the errors of inference;
  // kInvalidArgument if inference does not find the whole shape of an output.
  OPKIT_COLD void Infer(const OperatorDef& def, InputPointers inputs, InferenceCache& inference,
                        FunctionRef<void()> wait) const;
  // Returns the index of the version for the inputs' element type. Throws kTypeMismatch if there is
  // none; kOutOfRange if the element type cannot hold an attribute.
  size_t VersionFor(const OperatorDef& def, InputPointers inputs) const {
    if (kernel_.element_input < 0) return 0;
    const DType dtype = inputs[Index(kernel_.element_input)]->dtype();
    for (size_t v = 0; v < kernel_.versions.size(); ++v)
      if (kernel_.versions[v].element == dtype) {
        if (!states_[v].refused.empty()) [[unlikely]]
          Throw(ErrorCode::kOutOfRange, states_[v].refused);
        return v;
      }
    ThrowNoVersion(def, inputs);
  }
  // Returns the dtype of an output in that version.
  DType OutputDType(size_t version, size_t output) const {
    const TypedParameter* row = kernel_.rows.data();
    while (!IsOutput(row->kind) || Index(row->place) != output) ++row;
    return row->by_element ? kernel_.versions[version].element : row->dtype;
  }
  // Calls the function. `context` has the type for which the function was compiled. `inputs` has
  // num_inputs() tensors, dense, in the standard layout and on the context's device; null if the
  // node leaves the input out. `outputs` have the inferred shapes and the dtypes of OutputDType.
  // `shapes` is InferenceCache::version. Returns false if the function returns false. Throws
  // kTypeMismatch, kUninitialized; kUnsupported for a rank past 8; the exceptions of the function.
  bool Run(void* context, size_t version, InputPointers inputs, const Tensor* const* outputs,
           uint64_t shapes);

  // Throws kUnsupported for an input in another layout than the standard one.
  [[noreturn]] OPKIT_COLD void ThrowNotStandard(const OperatorDef& def, size_t i,
                                                const Tensor& input) const;

 private:
  [[noreturn]] OPKIT_COLD void ThrowNoVersion(const OperatorDef& def, InputPointers inputs) const;

  // The slots of a version. `shapes` is the inference version of the extents in the slots.
  struct State {
    std::unique_ptr<TypedSlot[]> slots;
    uint64_t shapes = 0;
    std::string refused;  // why an attribute does not fit the element type
  };
  const TypedKernel& kernel_;
  const OpSchema& schema_;
  std::unique_ptr<State[]> states_;
  size_t num_inputs_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_CALL_HPP_

// ---- opkit/op/typed/typed_class.hpp
// TypedOperator: the operator class of typed kernels, one class for each context. Graphs,
// workspaces, streams, observers and CreateOperator run a typed kernel through it.
#ifndef OPKIT_OP_TYPED_TYPED_CLASS_HPP_
#define OPKIT_OP_TYPED_TYPED_CLASS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

template <class Context>
class TypedOperator final : public Operator<Context> {
 public:
  // Throws the errors of TypedCall.
  TypedOperator(const TypedKernel& kernel, const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws),
        call_(kernel, OpRegistry::Global().GetSchema(def.type()), def),
        inputs_(call_.num_inputs()),
        outputs_(def.outputs().size()) {
    this->set_invocation_kind(Invocation::Kind::kCustomOperator);
  }

 private:
  bool InfersOutputs() const final { return true; }
  bool RunOnDevice() final {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!this->HasInput(static_cast<int>(i))) continue;
      const Tensor& input = this->Input(static_cast<int>(i));
      if (!input.layout().is_standard()) [[unlikely]]
        call_.ThrowNotStandard(this->def(), i, input);
      inputs_[i] = &input;
    }
    InferenceCache& inference = this->inference();
    if (!inference.IsFresh(inputs_)) [[unlikely]]
      call_.Infer(this->def(), inputs_, inference, [&] {
        if constexpr (Context::kAsynchronous) this->context_.FinishDeviceComputation();
      });
    const size_t version = call_.VersionFor(this->def(), inputs_);
    for (int o = 0; o < static_cast<int>(outputs_.size()); ++o)
      outputs_[Index(o)] = this->Output(o, inference.outputs()[Index(o)].shape,
                                        call_.OutputDType(version, Index(o)));
    return call_.Run(&this->context_, version, inputs_, outputs_.data(), inference.version());
  }

  TypedCall call_;
  std::vector<const Tensor*> inputs_;  // the current run's; null for an input that is left out
  std::vector<const Tensor*> outputs_;
};

template <class Context>
std::unique_ptr<OperatorBase> MakeTypedOperator(const TypedKernel& kernel, const OperatorDef& def,
                                                Workspace* ws) {
  return std::make_unique<TypedOperator<Context>>(kernel, def, ws);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_CLASS_HPP_

// ---- opkit/op/typed/typed_schema.hpp
// TypedSchema: fills in an OpSchema from the table of a typed operator's parameters. The shape
// rules that the builder adds run in order as the schema's inference.
#ifndef OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_
#define OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The schema of a typed operator and its rules, shared by the builder and the schema's functions.
class OPKIT_IMAGE_LOCAL TypedSchema final : public RefCounted {
 public:
  static IntrusivePtr<TypedSchema> Make(const char* name, const char* file, int line,
                                        std::span<const TypedParameter> rows);
  TypedSchema(OpSchema& filled, std::span<const TypedParameter> rows);

  // Requires the same shape of these inputs and outputs. Both lists come from one list of names: an
  // index is -1 if the name is in the other list.
  void SameShape(std::initializer_list<int> inputs, std::initializer_list<int> outputs);
  OPKIT_COLD void AddRule(UniqueFunction<void(InferenceContext&)> rule) {
    rules_.push_back(std::move(rule));
  }
  OPKIT_COLD void AddInplace(int input, int output) { inplace_.emplace_back(input, output); }
  // Registers a kernel, and adds its element types to those of earlier kernels.
  void AddKernel(DeviceType device, const TypedKernel& kernel, MakeTyped make) noexcept;
  void AddProblem(std::string_view what);

  OpSchema& schema;

 private:
  void Describe(const TypedParameter& row, std::string doc, std::vector<DType> dtypes);
  void Infer(InferenceContext& context);

  std::vector<std::pair<int, int>> inplace_;
  std::vector<UniqueFunction<void(InferenceContext&)>> rules_;
  const std::span<const TypedParameter> rows_;
  std::vector<DType> element_types_;
  int element_input_ = -1;
};

using TypedSchemaPtr = IntrusivePtr<TypedSchema>;

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_TYPED_SCHEMA_HPP_

// ---- opkit/op/typed_operator.hpp
// Typed operators: OPKIT_OP registers one function template and derives everything else (arity,
// dtypes, attribute names and types, output allocation, checks, docs) from its signature at compile
// time. The same source serves the CPU, its streams and devices.
#ifndef OPKIT_OP_TYPED_OPERATOR_HPP_
#define OPKIT_OP_TYPED_OPERATOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Accepts the rest of a builder's chain after a reported mistake, so that the compiler prints no
// second error.
struct IgnoredOp {
  IgnoredOp Doc(const auto&...) { return {}; }
  template <FixedName...>
  IgnoredOp SameShape() {
    return {};
  }
  template <FixedName>
  IgnoredOp OutShape(const auto&) {
    return {};
  }
  template <FixedName...>
  IgnoredOp Inplace() {
    return {};
  }
  template <FixedName, class T = int>
  IgnoredOp Default(const T&) {
    return {};
  }
  template <FixedName>
  IgnoredOp Values(std::initializer_list<const char*>) {
    return {};
  }
  IgnoredOp Flops(const auto&) { return {}; }
  IgnoredOp PointwiseCost(const auto&) { return {}; }
  IgnoredOp Schema(const auto&) { return {}; }
  template <class...>
  IgnoredOp Kernel() {
    return {};
  }
};

// The type of the attribute of that name; NoAttribute if there is none.
struct NoAttribute {};
template <class Function, FixedName Name>
consteval auto FindAttributeValue() {
  constexpr int kRow = FindParameter<Function>(Name, IsAttribute);
  if constexpr (kRow >= 0) {
    using S = typename TypedFunction<Function>::Signature;
    return std::type_identity<typename S::template Value<Index(kRow)>>{};
  } else {
    return std::type_identity<NoAttribute>{};
  }
}
template <class Function, FixedName Name>
using AttributeValue = typename decltype(FindAttributeValue<Function, Name>())::type;

// Accepts a value as an attribute's default if the value converts to the attribute's type without
// losing a fraction and without mixing numbers and bools.
template <class T, class Value>
concept DefaultFor =
    std::is_convertible_v<T, Value> &&
    !(std::is_floating_point_v<T> && std::is_integral_v<Value>)&&std::is_same_v<T, bool> ==
        std::is_same_v<Value, bool>;

}  // namespace detail

// The builder behind OPKIT_OP. `kRuled` has bit o set once output o has a shape rule. The same
// function in another file is the same operator: for instance CPU kernels in a file for the C++
// compiler, device kernels in a file for the device compiler. The chains of both files must then
// declare the same schema.
template <class Function, uint64_t kRuled = 0>
class TypedOp {
 public:
  // OPKIT_OP makes it.
  explicit TypedOp(detail::TypedSchemaPtr typed) : typed_(std::move(typed)) {}

  // Sets the sentences that `opkit ops` and references show.
  TypedOp Doc(std::string doc) { return schema().Doc(std::move(doc)), *this; }

  // Requires the same shape of all these inputs and gives it to these outputs.
  template <detail::FixedName... Names>
  auto SameShape() {
    constexpr bool kKnown = ((InputPlace(Names) >= 0 || OutputPlace(Names) >= 0) && ...);
    static_assert(kKnown,
                  "OPKIT_OP(…).SameShape<names…>: a name is neither an input nor an output of the "
                  "function");
    constexpr bool kFollows = ((InputPlace(Names) >= 0 || (OutputBit(Names) & kRuled) != 0) || ...);
    static_assert(
        kFollows || !kKnown,
        "OPKIT_OP(…).SameShape<names…>: name an input, or an output that has a shape rule "
        "already, for the others to follow");
    if constexpr (kKnown && kFollows) {
      typed_->SameShape({InputPlace(Names)...}, {OutputPlace(Names)...});
      return TypedOp<Function, (kRuled | ... | OutputBit(Names))>(typed_);
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the shape of an output by a function (const InferenceContext&) -> SymbolicShape. The
  // function may read the inputs' shapes, the attributes and, by input_constant, the data of
  // inputs. In a graph before its run input_constant returns null. Inference waits for an
  // asynchronous device before the function reads data.
  template <detail::FixedName Name, class F>
  auto OutShape(F shape) {
    constexpr bool kKnown = OutputPlace(Name) >= 0;
    static_assert(kKnown,
                  "OPKIT_OP(…).OutShape<\"name\">: the name is not an output of the function");
    constexpr bool kCallable = std::is_invocable_r_v<SymbolicShape, F&, const InferenceContext&>;
    static_assert(kCallable,
                  "OPKIT_OP(…).OutShape<\"name\">(f): f must be callable as "
                  "SymbolicShape(const InferenceContext&)");
    if constexpr (kKnown && kCallable) {
      typed_->AddRule([shape = std::move(shape)](InferenceContext& context) mutable {
        context.SetOutput(OutputPlace(Name), DType::kUndefined, shape(std::as_const(context)));
      });
      return TypedOp<Function, kRuled | OutputBit(Name)>(typed_);
    } else {
      return detail::IgnoredOp();
    }
  }
  // Allows the output to overwrite the input.
  template <detail::FixedName Input, detail::FixedName Output>
  auto Inplace() {
    constexpr bool kInput = InputPlace(Input) >= 0, kOutput = OutputPlace(Output) >= 0;
    static_assert(
        kInput,
        "OPKIT_OP(…).Inplace<\"input\", \"output\">: the first name is not an input of the "
        "function");
    static_assert(kOutput,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the second name is not an output of "
                  "the function");
    if constexpr (kInput && kOutput) {
      constexpr bool kSameSize =
          ItemSizeOf(Input, detail::IsInput) == ItemSizeOf(Output, detail::IsOutput);
      static_assert(
          kSameSize,
          "OPKIT_OP(…).Inplace<\"input\", \"output\">: the two have elements of different "
          "sizes");
      typed_->AddInplace(InputPlace(Input), OutputPlace(Output));
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Makes the attribute optional.
  template <detail::FixedName Name, class T = detail::AttributeValue<Function, Name>>
  auto Default(const T& value) {
    using Value = detail::AttributeValue<Function, Name>;
    constexpr bool kKnown = !std::is_same_v<Value, detail::NoAttribute>;
    static_assert(kKnown,
                  "OPKIT_OP(…).Default<\"name\">: the name is not an attribute of the function");
    constexpr bool kRightType = detail::DefaultFor<T, Value>;
    static_assert(kRightType || !kKnown,
                  "OPKIT_OP(…).Default<\"name\">(value): the value is not of the attribute's type");
    if constexpr (kKnown && kRightType) {
      constexpr int kRow = detail::FindParameter<Function>(Name, detail::IsAttribute);
      constexpr bool kByElement = detail::kTypedRows<Function>[kRow].by_element;
      if constexpr (kByElement && std::is_arithmetic_v<T>)
        schema().Default(Name.str(), static_cast<double>(value));
      else if constexpr (std::is_integral_v<T> && std::is_integral_v<Value>)
        schema().Default(Name.str(), value);  // its range is checked when it is read
      else
        schema().Default(Name.str(), static_cast<Value>(value));
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the allowed values of a string attribute, or of a list's elements. The first becomes the
  // default of a string attribute without a default, as in OpSchema::Arg.
  template <detail::FixedName Name>
  auto Values(std::initializer_list<const char*> values) {
    using Value = detail::AttributeValue<Function, Name>;
    constexpr bool kStrings =
        std::is_same_v<Value, std::string> || std::is_same_v<Value, std::vector<std::string>>;
    static_assert(kStrings,
                  "OPKIT_OP(…).Values<\"name\">(…): the name is not a string attribute of the "
                  "function");
    if constexpr (kStrings) {
      schema().Values(Name.str(), {values.begin(), values.end()});
      if (std::is_same_v<Value, std::string> && schema().FindAttribute(Name.str())->required)
        schema().Default(Name.str(), *values.begin());
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Sets the floating-point operations for each element of output 0, as in OpSchema.
  TypedOp PointwiseCost(uint64_t flops) { return schema().PointwiseCost(flops), *this; }
  // Sets the floating-point operations of a run by a function (const InferenceContext&) -> uint64_t
  // of the attributes and shapes.
  template <std::invocable<const InferenceContext&> F>
  TypedOp Flops(F flops) {
    return schema().Flops(std::move(flops)), *this;
  }
  // Sets all other properties of the schema by a function (OpSchema&). An exception of the function
  // is reported at the operator's first lookup.
  template <std::invocable<OpSchema&> F>
  TypedOp Schema(F fill) {
    try {
      fill(schema());
    } catch (...) {
      typed_->AddProblem(CurrentError().what());
    }
    return *this;
  }

  // Registers the function for a device. For a function over <Context, T>, lists the element types
  // to compile.
  template <class Context, class... Types>
  auto Kernel() {
    constexpr bool kElements = (Element<Types> && ...);
    static_assert(kElements,
                  "OPKIT_OP(…).Kernel<Context, T…>: each T is an element type of a tensor: float, "
                  "double, bool, an integer, opkit::float16 or opkit::bfloat16");
    constexpr bool kContext = DeviceContext<Context>;
    static_assert(kContext, "OPKIT_OP(…).Kernel<Context>: Context must meet opkit::DeviceContext");
    constexpr uint64_t kAll =
        (uint64_t{1} << detail::CountParameters<Function>(detail::IsOutput)) - 1;
    constexpr bool kShapes = (kRuled & kAll) == kAll;
    static_assert(
        kShapes,
        "OPKIT_OP: an output has no shape rule; add .SameShape<\"input\", \"output\">() or "
        ".OutShape<\"output\">(f) before .Kernel");
    constexpr bool kTypes =
        detail::TypedFunction<Function>::kTakesElement == (sizeof...(Types) > 0);
    static_assert(kTypes,
                  "OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element "
                  "types here, one over <Context> takes none");
    if constexpr (kElements && kContext && kShapes && kTypes) {
      constexpr bool kVersions = HasVersions<Context, Types...>();
      static_assert(kVersions,
                    "OPKIT_OP(…).Kernel<Context, T…>: the function has no version for this context "
                    "and these element types");
      if constexpr (kVersions) {
        detail::MakeTyped make = nullptr;
        if constexpr (!std::is_same_v<Context, CPUContext>) {
          make = &detail::MakeTypedOperator<Context>;
          detail::UseOperatorCalls();
        }
        typed_->AddKernel(Context::kDeviceType, detail::kTypedKernel<Function, Context, Types...>,
                          make);
        return *this;
      } else {
        return detail::IgnoredOp();
      }
    } else {
      return detail::IgnoredOp();
    }
  }

 private:
  static constexpr int InputPlace(detail::FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsInput);
  }
  static constexpr int OutputPlace(detail::FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsOutput);
  }
  static constexpr uint64_t OutputBit(detail::FixedName name) {
    return OutputPlace(name) >= 0 ? uint64_t{1} << OutputPlace(name) : 0;
  }
  // Returns 0 for the function's element type.
  static constexpr int64_t ItemSizeOf(detail::FixedName name,
                                      bool (*of_kind)(detail::ParameterKind)) {
    const int row = detail::FindParameter<Function>(name, of_kind);
    const DType dtype = detail::kTypedRows<Function>[detail::Index(row)].dtype;
    return dtype == DType::kUndefined ? 0 : ItemSize(dtype);
  }
  template <class Context, class... Types>
  static consteval bool HasVersions() {
    if constexpr (sizeof...(Types) == 0)
      return detail::kHasVersion<Function, Context>;
    else
      return (detail::kHasVersion<Function, Context, Types> && ...);
  }

  OpSchema& schema() { return typed_->schema; }

  detail::TypedSchemaPtr typed_;
};

namespace detail {

template <class Function>
OPKIT_IMAGE_LOCAL auto MakeTypedOp(const char* name, const char* file, int line, Function) {
  if constexpr (CheckTypedFunction<Function>())
    return TypedOp<Function>(TypedSchema::Make(name, file, line, kTypedRows<Function>));
  else
    return IgnoredOp();
}

}  // namespace detail
}}  // namespace opkit

// Registers a typed operator: the function template `name` over its context. Belongs at namespace
// scope, after the function; runs during static initialisation and does not throw.
//
//   OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">()
//       .Default<"alpha">(1.f).Kernel<CPUContext>();
#define OPKIT_OP(name)                                                                             \
  OPKIT_REGISTRATION_OF(OPKIT_OP, name);                                                           \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}       \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_typed_op_) = ::opkit::detail::MakeTypedOp( \
      #name, __FILE__, __LINE__,                                                                   \
      []<class... OpkitTypes>(std::type_identity<OpkitTypes>...) constexpr                         \
      -> decltype(&name<OpkitTypes...>) { return &name<OpkitTypes...>; })

#endif  // OPKIT_OP_TYPED_OPERATOR_HPP_

// ---- opkit/opkit.hpp
// Umbrella to define, register and call operators: tensors and attributes, devices, ParallelFor,
// OPKIT_OP, REGISTER_CPU_OPERATOR, CreateOperator, Invoke. More is in opkit/graph.hpp,
// opkit/functions.hpp (REGISTER_OP), opkit/profile.hpp, opkit/partition.hpp and opkit/plugin.hpp;
// opkit/all.hpp has all of these. The standard operators (opkit/ops/…), the backends
// (opkit/backends/…) and the bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#if defined OPKIT_PLUGIN_AUTHOR_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
// ---- opkit/plugin/export/export_gradients.hpp
// Exports the gradients of a library's class and typed operators to its host. Included if a unit
// includes both op/gradient/gradient.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_GRADIENTS_HPP_
#endif

#endif  // OPKIT_OPKIT_HPP_

// ---- opkit/profile/profile.hpp
// Profile: the decoded recording of a profiler, from which traces, tables and reports are written.
#ifndef OPKIT_PROFILE_PROFILE_HPP_
#define OPKIT_PROFILE_PROFILE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The identity of a message between processes, the same on its sender and on its receiver. The span
// of a run of several processes has the plan and the number of the run, without a message.
struct ProfileMessage {
  int from = -1, to = -1;  // processes of the plan; -1 for no message
  int64_t plan = 0;        // the same on the processes that run a plan together, and on no others
  int64_t channel = 0;     // among the messages from one process to the other
  int64_t number = 0;      // the run of the plan
};

// A period on one thread that belongs to an invocation. Times are ns since the session began.
struct ProfileSpan {
  uint64_t id = 0;      // the invocation's id
  uint64_t parent = 0;  // 0 for none
  int64_t begin = 0;
  int64_t end = 0;
  int64_t completed = -1;  // time when the run's event completed, if after `end`; else -1
  // Begin and end of the work on the device, by the device's clock; -1 if unknown. `completed` is
  // the time when the host learned of the end.
  int64_t device_begin = -1;
  int64_t device_end = -1;
  int64_t pushed = -1;  // time at which a task was pushed to its engine; -1 for no task
  int thread = 0;       // index in Profile::threads
  int pusher = -1;      // index of the thread that pushed the task; -1 for no task
  Invocation::Kind kind = Invocation::Kind::kNone;
  Device device;
  // Interned names: the operator's type, the task or scope; the node; Invocation::custom.
  uint32_t name = 0;
  uint32_t node = 0;
  uint32_t custom = 0;
  bool adopted = false;    // true for a part of an invocation that began elsewhere
  bool open = false;       // true if the span had not ended; `end` is then the time of Stop or Read
  detail::SpanWork work;   // set with ProfileOptions::shapes; its `shapes` is 0 if unknown
  ProfileMessage message;  // that the span sent or received, with success
};

// An allocation, or a release, of tensors' memory.
struct ProfileAllocation {
  int64_t time = 0;
  uint64_t invocation = 0;  // the running invocation; 0 for none
  int64_t bytes = 0;        // negative for a release
  int64_t live = 0;         // bytes of the allocator in use afterwards
  uint32_t allocator = 0;   // interned name of the allocator
  int thread = 0;
};

// Counts during an invocation: the sum over all of its threads, including the spans inside it.
struct ProfileCounts {
  static constexpr int kMost = 6;
  uint64_t invocation = 0;
  uint64_t values[kMost] = {};  // in the order of Profile::counted
};

struct ProfileCounter {
  int64_t time = 0;
  uint32_t name = 0;
  double value = 0;
};

struct ProfileMarker {
  int64_t time = 0;
  uint32_t name = 0;
  int thread = 0;
  bool frame = false;  // true if a frame of the program begins here
};

struct ProfileThread {
  int64_t id = 0;  // the system's thread id
  std::string name;
};

struct Profile {
  std::vector<ProfileThread> threads;
  // Sorted by thread, then by begin; a span that encloses others comes before them.
  std::vector<ProfileSpan> spans;
  // Sorted by time. Includes the bytes in use of each allocator, as in "memory of cpu".
  std::vector<ProfileCounter> counters;
  std::vector<ProfileMarker> markers;          // sorted by time
  std::vector<ProfileAllocation> allocations;  // sorted by time, with ProfileOptions::memory
  std::vector<ProfileCounts> counts;  // sorted by invocation, with ProfileOptions::counters
  std::vector<std::string> counted;   // names of the values in `counts`
  // Counters that read 0 everywhere, with the reason: "cycles: why".
  std::vector<std::string> absent_counters;
  int64_t duration = 0;  // ns from Start to Stop, or to now
  int64_t dropped = 0;   // records that found no room, or that later records replaced
  // Estimated ns that all threads spent on recording. Each record counts as much as a span.
  int64_t cost = 0;
};

// Returns the ns of a run: the time on the device if known, else the time until the span and its
// event had ended.
inline int64_t RunTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return span.device_end - span.device_begin;
  return (span.completed > span.end ? span.completed : span.end) - span.begin;
}
// Returns the name that tables and traces display: "MyOp", "MyOp::Add" for an operator that the
// custom operator MyOp invokes, "MyOp::scope" for a scope that its author opened.
std::string DisplayName(const ProfileSpan& span);
// Returns the domain of a span: "engine" for engine spans, "Custom Operators" for custom operators
// and spans inside them, else "operator", "user", "converter", "copy", "run", "task" or "phase".
const char* DomainOf(const ProfileSpan& span);

namespace detail {
// Returns begin and end of the work that a span issued: on its device if known, else from the
// span's begin to the end of its event. {-1, -1} if no work continued after the span.
inline std::pair<int64_t, int64_t> AsynchronousTime(const ProfileSpan& span) {
  if (span.device_end >= 0) return {span.device_begin, span.device_end};
  return {span.completed >= 0 ? span.begin : -1, span.completed};
}
// True if a custom operator's own code runs in the span while none of its children runs.
inline bool HasUserCode(const ProfileSpan& span) {
  return span.kind == Invocation::Kind::kCustomOperator && !span.adopted;
}
std::string UserCodeName(const ProfileSpan& span);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_PROFILE_PROFILE_HPP_

// ---- opkit/profile/profile_diff.hpp
// CompareTimes: finds the operators that became slower or faster from one recording to another, and
// separates real differences from chance.
#ifndef OPKIT_PROFILE_PROFILE_DIFF_HPP_
#define OPKIT_PROFILE_PROFILE_DIFF_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Durations in ns of the runs that share a name.
struct NamedTimes {
  std::string name;
  std::vector<double> times;
};

enum class TimesOf : uint8_t { kOperators, kNodes };

// Returns the durations (RunTime) of a profile's runs, grouped and sorted by DisplayName. With
// kNodes the node is part of the name ("Conv (conv1)"). Spans that are still open are left out.
std::vector<NamedTimes> TimesByName(const Profile& profile, TimesOf of = TimesOf::kOperators);

// The comparison of the runs of one name.
struct ProfileDiffRow {
  enum class Verdict {
    kSame,  // any difference may be chance
    kSlower,
    kFaster,
    kTooFew,  // with so few runs no difference can be significant
    kNew,     // not in the first recording
    kGone,    // not in the second
  };
  std::string name;
  int64_t runs_before = 0, runs_after = 0;
  double median_before = 0, median_after = 0;  // ns
  // Relative change of the median: 0.1 for 10 % slower; 0 for a new or gone name.
  double change = 0;
  double p = 1;  // two-sided, Mann-Whitney, corrected for the number of comparisons (Holm 1979)
  Verdict verdict = Verdict::kSame;
};

struct ProfileDiff {
  // Sorted by the additional time, largest first: the difference of the medians times the larger of
  // the two numbers of runs.
  std::vector<ProfileDiffRow> rows;
};

// Compares the durations of equal names. `significance` bounds the probability that any difference
// is called significant although there is none. Runs of one process are not independent samples:
// clocks, caches and memory drift together. If that matters, record both sides in turns and join
// several recordings of each. Throws kInvalidArgument if `significance` is not between 0 and 1, or
// if a time is NaN or infinite.
//
//   Profiler::Start(); RunOld(); Profiler::Stop();
//   const auto before = TimesByName(Profiler::Read());
//   Profiler::Start(); RunNew(); Profiler::Stop();
//   std::puts(ToString(CompareTimes(before, TimesByName(Profiler::Read()))).c_str());
ProfileDiff CompareTimes(const std::vector<NamedTimes>& before,
                         const std::vector<NamedTimes>& after, double significance = 0.01);

std::string ToString(const ProfileDiff& diff);
// {"rows": [{"name": …, "runs_before": …, "runs_after": …, "median_before_ns": …,
// "median_after_ns": …, "change": …, "p": …, "verdict": "slower"}, …]}
std::string ToJson(const ProfileDiff& diff);

}}  // namespace opkit

#endif  // OPKIT_PROFILE_PROFILE_DIFF_HPP_

// ---- opkit/profile/chrome_trace.hpp
// Writes a profile as a Chrome trace: JSON that Perfetto (https://ui.perfetto.dev) and
// chrome://tracing show. Also the default format of SaveProfileFile.
#ifndef OPKIT_PROFILE_CHROME_TRACE_HPP_
#define OPKIT_PROFILE_CHROME_TRACE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Writes the JSON object form of the trace event format. Spans are complete events (X) on the track
// of their thread. Each time in which a custom operator's own code runs is a slice
// "MyOp::user_code" inside its span. Work that continues after its span is an async pair (b, e).
// The pair ends with the operator's event or, if the device has a clock, with the work on the
// device. Arrows (bind_id) lead from the push of a task, a complete event without duration, to its
// run. Times are microseconds with three decimals. Bytes of a name that are not UTF-8 become
// U+FFFD. Counter values that are not finite are left out. Throws kIo if the file
// cannot be written.
void SaveChromeTrace(const Profile& profile, const std::string& path);

// A process of a trace of several. All profiles count time from the same moment.
struct TraceProcess {
  std::string name;
  const Profile* profile = nullptr;
};
// An arrow from one process to another. A complete event without duration, with the arrow's name,
// marks each end.
struct TraceArrow {
  struct End {
    size_t process = 0;  // index of the TraceProcess
    int thread = 0;      // index in Profile::threads
    int64_t time = 0;
  };
  uint64_t id = 0;  // differs from those of other arrows and of tasks
  std::string name;
  End from, to;
};
// Writes several profiles as one Chrome trace, with a track for each process. The ids of their
// invocations must differ. Throws kIo if the file cannot be written.
void SaveChromeTrace(const std::vector<TraceProcess>& processes,
                     const std::vector<TraceArrow>& arrows, const std::string& path);

}}  // namespace opkit

#endif  // OPKIT_PROFILE_CHROME_TRACE_HPP_

// ---- opkit/profile/environment.hpp
// Profiles a program without a change to its source: OPKIT_PROFILE=trace.json in the environment.
#ifndef OPKIT_PROFILE_ENVIRONMENT_HPP_
#define OPKIT_PROFILE_ENVIRONMENT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Starts a session, at most once, if the environment variable OPKIT_PROFILE names a file. The
// session lasts to the end of the process, or until the program calls Profiler::Start.
// SaveProfileFile then writes the file, with the process id for each "%p" in its name. Returns
// true if a session was started, by this call or an earlier one.
bool ProfileByEnvironment();

}  // namespace detail

#ifdef OPKIT_DEFINITIONS
// Starts the session before main. The compiled runtime does so in op/impl/operator_base.ipp.
[[maybe_unused]] inline const bool kProfileByEnvironment = detail::ProfileByEnvironment();
#endif

}}  // namespace opkit

#endif  // OPKIT_PROFILE_ENVIRONMENT_HPP_

// ---- opkit/profile/counters.hpp
// Counts what the processor and the system do on a thread: cycles, cache misses, page faults. The
// profiler records these counts for each span (ProfileOptions::counters), CompareKernels for each
// kernel.
#ifndef OPKIT_PROFILE_COUNTERS_HPP_
#define OPKIT_PROFILE_COUNTERS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Counters of one thread, which count from CounterSource::Open on.
class ThreadCounters {
 public:
  virtual ~ThreadCounters() = default;
  // Writes the counts so far of the threads that count: a number for each name given to Open, in
  // their order.
  virtual void Read(uint64_t* values) noexcept = 0;
};

// A provider of counters. Lives as long as the process.
class CounterSource {
 public:
  // The threads that count.
  enum class Threads : uint8_t {
    kThis,        // the thread that calls Open
    kThisAndNew,  // also the threads that it starts from then on, and those that they start
  };
  // Begins to count on the calling thread. A counter that is not available reads as 0; its name and
  // the reason are appended to `absent` unless that is null. Throws kInvalidArgument for an unknown
  // name.
  virtual std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                               std::vector<std::string>* absent,
                                               Threads threads = Threads::kThis) = 0;

 protected:
  ~CounterSource() = default;
};

// Returns the counters of Linux (perf_event_open(2)): "cycles", "instructions", "cache_references",
// "cache_misses", "branches", "branch_misses", "page_faults", "context_switches", "cpu_migrations"
// and "task_clock" (ns). They leave out the kernel's part if the system forbids to count it;
// "context_switches" and "cpu_migrations" happen in the kernel alone, and are then absent. With
// kThisAndNew the counters of the hardware count the program's part only, on every machine. A
// processor with fewer counters than requested counts them in turns; the numbers are then scaled.
CounterSource& PerfCounters();

namespace detail {
// Returns the reason for an error of perf_event_open.
std::string WhyNotCounted(int error);
}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_PROFILE_COUNTERS_HPP_

// ---- opkit/profile/options.hpp
// ProfileOptions: the facts that a profiler records, and the memory that it may use for them.
#ifndef OPKIT_PROFILE_OPTIONS_HPP_
#define OPKIT_PROFILE_OPTIONS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct ProfileOptions {
  // Bound on the memory of records, 48 bytes each. Records beyond it are dropped and counted. With
  // `ring` they replace the oldest records: those of an ended thread or, if there is none, those of
  // the recording thread.
  int64_t max_bytes = int64_t{1} << 30;
  bool ring = false;
  // Records dtypes and shapes of operators' inputs, and the operations and bytes that their schemas
  // count. Computed after the operator's span ends; the enclosing span grows by about 1 us.
  bool shapes = false;
  // Records each allocation and release of tensors' memory, with the operator that was running.
  bool memory = false;
  // Records what pool threads do outside of tasks: spans "park" of workers that sleep, "wait" of
  // threads that sleep until something has ended, "drain" of Engine::WaitForAll; markers "steal" of
  // tasks from another worker's queue.
  bool engine = false;
  // Names of the events to count during each span, at most six; for PerfCounters() for example
  // {"cycles", "cache_misses"}. Each makes a span longer by about 0.3 us. Profile::absent_counters
  // lists the names that are not available.
  std::vector<std::string> counters = {};
  CounterSource* counter_source = nullptr;  // null for PerfCounters()
  // File for the profile if a fault, SIGINT, SIGTERM or another fatal signal ends the process while
  // the session runs; empty for none. The file is a Chrome trace, or a Perfetto trace or a report
  // if its name ends in ".pftrace" or ".html". Installs signal handlers, and a stack for them on
  // each thread that records.
  std::string crash_trace = {};
};

}}  // namespace opkit

#endif  // OPKIT_PROFILE_OPTIONS_HPP_

// ---- opkit/profile/perfetto_trace.hpp
// Writes a profile as a native Perfetto trace, for https://ui.perfetto.dev: a quarter of the size
// of JSON.
#ifndef OPKIT_PROFILE_PERFETTO_TRACE_HPP_
#define OPKIT_PROFILE_PERFETTO_TRACE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Writes the protocol buffers of perfetto.protos.Trace, with interned names and with times as
// differences. Slices, their facts, counters, markers and arrows are those of SaveChromeTrace. Work
// that continues after its span is a slice on a track "asynchronous"; slices that overlap lie on
// different tracks. A slice has its invocation's id if another track refers to the slice. Throws
// kIo if the file cannot be written.
void SavePerfettoTrace(const Profile& profile, const std::string& path);

}}  // namespace opkit

#endif  // OPKIT_PROFILE_PERFETTO_TRACE_HPP_

// ---- opkit/profile/machine_rates.hpp
// MachineRates: how fast a machine computes, and moves bytes to and from each level of its memory.
// MachinePeak (machine_peak.hpp) measures it. PeakShare says how near a piece of work comes to it.
#ifndef OPKIT_PROFILE_MACHINE_RATES_HPP_
#define OPKIT_PROFILE_MACHINE_RATES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The rate of a cache.
struct CacheCeiling {
  std::string name;             // "L2"
  double capacity = 0;          // bytes that the caches of all threads together hold
  double bytes_per_second = 0;  // to and from it
};

// The share of the machine's peak that a piece of work reaches.
struct PeakShare {
  double share = 0;     // 1: as fast as the ceiling; 0: unknown
  std::string ceiling;  // what limits the work: "FMA" (multiply-adds), "L2", "memory"; or empty
};
// "71 % of L2", with the reasons that are possible if it is above 100 %; "" if it is unknown.
std::string ToString(const PeakShare& share);

// Rates that one or more threads reach together.
struct MachineRates {
  double flops = 0;                       // float32 operations per second; a multiply-add is two
  double bytes = 0;                       // bytes to and from memory per second
  std::vector<CacheCeiling> caches = {};  // from the smallest on; empty: unknown
  int threads = 1;
  // True if the machine was busy with other work while it was measured: see MachinePeak.
  bool disturbed = false;

  // The time that a piece of work needs at these rates.
  struct Limit {
    double seconds = 0;  // 0: a rate is unknown, NaN or not above 0
    size_t ceiling = 0;  // 0: FMA; i + 1: caches[i]; above: memory
  };
  // The time of `its_flops` operations, or of `its_bytes` bytes that flow from the smallest level
  // that holds `data_bytes`, the data that the work touches; the longer one of the two (Williams,
  // Waterman, Patterson: Roofline, 2009). Data that comes from elsewhere, as in a model's run, only
  // takes longer.
  Limit LimitOf(double its_flops, double its_bytes, double data_bytes) const;
  std::string CeilingName(size_t ceiling) const;
  // Compares the limit with the time `ns` that the work took.
  PeakShare ShareOf(double its_flops, double its_bytes, double data_bytes, int64_t ns) const;
};

}}  // namespace opkit

#endif  // OPKIT_PROFILE_MACHINE_RATES_HPP_

// ---- opkit/profile/profile_table.hpp
// ProfileTable: counts and durations of the runs of each operator, scope and task.
#ifndef OPKIT_PROFILE_PROFILE_TABLE_HPP_
#define OPKIT_PROFILE_PROFILE_TABLE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct ProfileTableOptions {
  enum class Sort { kTotal, kSelf, kCount, kMean, kMax, kName };
  Sort sort = Sort::kTotal;
  bool by_node = false;  // a row for each node instead of one for each type of operator
  // Separates rows also by backend and by the inputs' dtypes and shapes; needs
  // ProfileOptions::shapes.
  bool by_shape = false;
  // Rates with which `of_peak` compares: those of MachinePeak() in opkit/profile/machine_peak.hpp.
  MachineRates peak = {};
};

// Statistics of the runs of one name; times in ns. `total` counts each run until its event has
// ended (RunTime). `self` leaves out spans inside a run on its thread: the author's own code for a
// custom operator. Other threads' work for that code is in the row `MyOp::user_code`.
struct ProfileTableRow {
  std::string name;
  std::string node;             // empty unless by_node
  std::string shapes, backend;  // empty unless by_shape
  std::string domain;
  int64_t count = 0;
  int64_t total = 0, self = 0, min = 0, max = 0;
  double mean = 0;
  // Percentiles of the run times (nearest rank).
  int64_t p50 = 0, p90 = 0, p99 = 0;
  // Sums over all runs, counted by their schemas (ProfileOptions::shapes).
  uint64_t flops = 0, bytes = 0;
  // The time that the machine needs at its peak for the flops and bytes of all runs, over `total`
  // (the roofline). Each run's bytes count as if they came from the smallest cache that holds them.
  PeakShare of_peak;
  int64_t allocated = 0;  // bytes allocated by the operator itself (ProfileOptions::memory)
  // Counts in the order of ProfileTable::counted: sums over all runs and the spans inside them.
  std::vector<uint64_t> counts;
};

// Number of runs in a domain (DomainOf). Their time leaves out the spans inside them.
struct ProfileDomainRow {
  std::string domain;
  int64_t count = 0, self = 0;
};

// Memory given out by an allocator, in bytes.
struct ProfileMemoryRow {
  std::string allocator;
  int64_t allocations = 0;
  int64_t allocated = 0;       // sum over all allocations
  int64_t peak = 0, live = 0;  // bytes in use: largest, and at the end
};

struct ProfileTable {
  std::vector<ProfileTableRow> rows;
  std::vector<ProfileDomainRow> domains;
  std::vector<ProfileMemoryRow> memory;
  int64_t duration = 0;
  int64_t dropped = 0;
  std::vector<std::string> counted, absent_counters;  // as in Profile
  int64_t cost = 0;                                   // ns that recording took, estimated
};

// Sums a profile's spans by name, and by node, backend and shapes if the options request it. Sorts
// the rows as the options say. Reads each span once.
ProfileTable MakeProfileTable(const Profile& profile, const ProfileTableOptions& options = {});
std::string ToString(const ProfileTable& table);
// {"duration_ns": …, "dropped": …, "cost_ns": …, "rows": [{"name": …, "count": …, "total_ns": …,
// …}],
//  "domains": […], "memory": […]}
std::string ToJson(const ProfileTable& table);

}}  // namespace opkit

#endif  // OPKIT_PROFILE_PROFILE_TABLE_HPP_

// ---- opkit/profile/save_report.hpp
// SaveReport: writes a profile as a page for a browser. The writer itself is
// opkit/report/report.hpp, which registers itself if a program includes it. Programs that only
// record do not compile it.
#ifndef OPKIT_PROFILE_SAVE_REPORT_HPP_
#define OPKIT_PROFILE_SAVE_REPORT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A run of a graph, from which a report draws the graph and the memory over time. ReportOfRun of
// opkit/graph/run_profile.hpp makes it. All times are ns since the profile's session began.
struct RunReport {
  struct Node {
    std::string name;
    int64_t ready = 0, begin = 0, end = 0;  // as in NodeTime
    std::vector<int> after;                 // indices in `nodes` of the nodes that it waits for
    bool critical = false;                  // on the critical path
  };
  struct Buffer {
    std::string name;   // the value's name; "a = b" for values that share it, in order
    std::string owner;  // the node that writes it first
    int64_t bytes = 0;
    int64_t begin = 0, end = 0;  // begin and end of the period in which its memory is in use
  };
  // The run on one of several processes (ClusterRun of opkit/cluster/cluster_run.hpp).
  struct Process {
    int64_t ns = 0;
    int64_t waited = 0;  // the part of it in which the process only communicated
  };
  // A node that communicates with other processes, as in ClusterRun::Wait.
  struct Wait {
    std::string node;
    int process = 0, peer = 0;
    int64_t ns = 0, late = 0;
  };
  std::vector<Node> nodes;  // sorted by begin; empty if there is no run to show
  std::vector<Buffer> buffers;
  std::vector<Process> processes;  // empty for a run of one process
  std::vector<Wait> waits;
  int64_t begin = 0, end = 0;
  int64_t arena_bytes = 0;  // size of the plan's arena, which holds all buffers
  // The subgraphs that partitioners took, and why other nodes stayed: the JSON of
  // PartitionReport::ToJson() (opkit/graph/partition/report.hpp). Empty if there is nothing to
  // show.
  std::string partition = {};
};

// Writes a profile as a page. `table` sets the options of its table; `table.peak` adds a roofline.
// `run` adds the graph, its memory, and the parts that partitioners took of it. Throws kUnsupported
// if no file of the program includes opkit/report/report.hpp, kIo if the file cannot be written.
void SaveReport(const Profile& profile, const std::string& path,
                const ProfileTableOptions& table = {}, const RunReport& run = {});

namespace detail {

OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Profile& profile, const std::string& path,
                                             const ProfileTableOptions& table,
                                             const RunReport& run)>
    g_report_writer{"a report", "opkit/report/report.hpp"};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PROFILE_SAVE_REPORT_HPP_

// ---- opkit/profile/profiler.hpp
// Profiler: records where time goes, inside custom operators too, and writes it as a trace or a
// table. ProfileScope and the functions beside it add the program's own parts.
//
//   Profiler::Start();
//   executor.Run();
//   Profiler::Stop();
//   std::puts(ToString(MakeProfileTable(Profiler::Read())).c_str());
//   SaveChromeTrace(Profiler::Read(), "trace.json");   // for https://ui.perfetto.dev
#ifndef OPKIT_PROFILE_PROFILER_HPP_
#define OPKIT_PROFILE_PROFILER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The profiler of the process. It records all threads, also those started later. Every function may
// be called from any thread at any time, also while operators run.
class Profiler {
 public:
  // Begins a session and discards the previous recording. Throws kFailedPrecondition while a
  // session runs, kInvalidArgument for wrong options, kUnsupported if the thread of a crash trace
  // cannot be started.
  static void Start(const ProfileOptions& options = {});
  // Ends the session, if one runs. A span that is still open when Read is called ends at the time
  // of Stop.
  static void Stop();
  // Interrupts recording until Resume, which throws kFailedPrecondition without a session.
  static void Pause();
  static void Resume();
  static bool IsRunning();

  // Returns and keeps the session's recording so far, of all threads, with spans that are still
  // open. Pass it to MakeProfileTable, SaveChromeTrace, SavePerfettoTrace or SaveReport.
  static Profile Read();
};

// Records a part of the program's own code, as a child of the current invocation. A scope must end
// on the thread on which it began, after the scopes that began inside it.
class ProfileScope {
 public:
  // Copies `name` if a profile is being recorded.
  explicit ProfileScope(std::string_view name)
      : scope_(Invocation::Kind::kUserCode, [&] { return detail::SpanNames::OfText(name); }) {}

 private:
  InvocationScope scope_;
};

// Records the value that a counter has from now on.
void ProfileCount(std::string_view counter, double value);
// Records a named point in time on the calling thread.
void ProfileMark(std::string_view name);
// Records that a frame (an iteration, a request) of the program begins.
void ProfileFrame(std::string_view name = "frame");

}}  // namespace opkit

#endif  // OPKIT_PROFILE_PROFILER_HPP_

// ---- opkit/profile.hpp
// Umbrella for the profiler: Profiler, its tables and traces, and the comparison of two profiles.
// Brings opkit/opkit.hpp too. A header-only program that includes it writes a trace when its
// environment has OPKIT_PROFILE=trace.json. The HTML page of a profile is in
// opkit/report/report.hpp.
#ifndef OPKIT_PROFILE_HPP_
#define OPKIT_PROFILE_HPP_

#endif  // OPKIT_PROFILE_HPP_

#ifdef OPKIT_DEFINITIONS
#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <dirent.h>
#include <dlfcn.h>
#include <iterator>
#include <list>
#include <map>
#include <stddef.h>
#include <stdint.h>

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

// ---- opkit/core/impl/symbolic_shape.ipp
// The definitions of opkit/core/symbolic_shape.hpp.
#ifndef OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_
#define OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE Dim Dim::Symbol(std::string name) {
  Dim dim;
  dim.symbol_ = std::move(name);
  return dim;
}

OPKIT_INLINE Dim Dim::AtMost(int64_t most) {
  if (most < 0)
    Throw(ErrorCode::kInvalidArgument, "an extent of at most ", most, " would be negative");
  Dim dim;
  dim.most_ = most;
  return dim;
}

OPKIT_INLINE std::string ToString(const Dim& dim) {
  if (dim.is_known()) return std::to_string(dim.value_);
  if (dim.is_symbol()) return dim.symbol_;
  return dim.most_ < 0 ? "?" : "<=" + std::to_string(dim.most_);
}

OPKIT_INLINE int64_t Dim::value() const {
  if (!is_known())
    throw detail::NotKnownYet(StrCat("extent ", ToString(*this), " is not known yet"));
  return value_;
}

OPKIT_INLINE std::optional<Dim> Dim::Merge(const Dim& a, const Dim& b) {
  if (!Compatible(a, b)) return std::nullopt;
  if (a.is_unknown() && b.is_unknown())
    return b.most_ >= 0 && (a.most_ < 0 || b.most_ < a.most_) ? b : a;
  if (a.is_known() || b.is_unknown()) return a;
  return b.is_known() || a.is_unknown() ? b : a;
}

OPKIT_INLINE Dim Dim::Either(const Dim& a, const Dim& b) {
  if (a == b) return a;
  return a.most_ < 0 || b.most_ < 0 ? Dim() : AtMost((std::max)(a.most_, b.most_));
}

namespace detail {
// Computes x op y. Returns true if the result exceeds int64.
inline bool ComputeExtent(int64_t x, char op, int64_t y, int64_t* result) {
  return op == '+'   ? __builtin_add_overflow(x, y, result)
         : op == '-' ? __builtin_sub_overflow(x, y, result)
         : op == '*' ? __builtin_mul_overflow(x, y, result)
         : y == -1   ? __builtin_sub_overflow(int64_t{0}, x, result)
                     : (*result = x / y, false);
}
}  // namespace detail

OPKIT_INLINE Dim::Expr::operator Dim() const {
  if (value_) return Dim(*value_);
  return most_ && *most_ >= 0 ? Dim::AtMost(*most_) : Dim();
}

// Returns the largest value that `a op b` can have. Returns nothing if an operand has no bound, if
// the result may fall while an operand grows, or on overflow.
OPKIT_INLINE std::optional<int64_t> Dim::Expr::MostOf(const Dim::Expr& a, char op,
                                                      const Dim::Expr& b) {
  if (op == '*' && a.value_ && !b.value_) return MostOf(b, op, a);
  const bool grows =
      op == '+' || (b.value_ && (op == '-' || (op == '*' ? *b.value_ >= 0 : *b.value_ > 0)));
  int64_t most = 0;
  if (!grows || !a.most_ || !b.most_ || detail::ComputeExtent(*a.most_, op, *b.most_, &most))
    return std::nullopt;
  return most;
}

OPKIT_INLINE Dim::Expr Dim::Expr::Compute(const Dim::Expr& a, char op, const Dim::Expr& b) {
  Dim::Expr out = Dim();
  if (!a.value_ || !b.value_) {
    out.most_ = MostOf(a, op, b);
    return out;
  }
  int64_t x = *a.value_, y = *b.value_, result = 0;
  if (op == '/' && y == 0)
    Throw(ErrorCode::kInvalidArgument, "an extent is computed as ", x, " / 0");
  if (detail::ComputeExtent(x, op, y, &result))
    Throw(ErrorCode::kOutOfRange, "an extent is computed as ", x, " ", op, " ", y,
          ", which is past int64");
  return result;
}

OPKIT_INLINE Shape SymbolicShape::ToShape() const {
  std::vector<int64_t> values;
  if (!has_rank_) static_cast<void>(rank());
  for (const Dim& dim : dims_) values.push_back(dim.value());
  return Shape(values);
}

OPKIT_INLINE Dim SymbolicShape::Elements() const {
  const std::optional<Shape> most = Most();
  if (!most) return {};
  return is_known() ? Dim(most->numel()) : Dim::AtMost(most->numel());
}

OPKIT_INLINE bool SymbolicShape::Allows(const Shape& shape) const {
  if (!has_rank_) return true;
  if (rank() != shape.rank()) return false;
  const int64_t* extent = shape.data();
  for (const Dim& dim : dims_) {
    if (dim.is_known() ? *extent != dim.value() : *extent > dim.most().value_or(*extent))
      return false;
    ++extent;
  }
  return true;
}

OPKIT_INLINE std::optional<Shape> SymbolicShape::Most() const {
  if (!has_rank_) return std::nullopt;
  std::vector<int64_t> values;
  int64_t product = 1;
  for (const Dim& dim : dims_) {
    const std::optional<int64_t> most = dim.most();
    if (!most || (*most > 0 && __builtin_mul_overflow(product, *most, &product)))
      return std::nullopt;
    values.push_back(*most);
  }
  return Shape(values);
}

OPKIT_INLINE std::optional<SymbolicShape> SymbolicShape::Merge(const SymbolicShape& a,
                                                               const SymbolicShape& b) {
  if (!a.has_rank_) return b;
  if (!b.has_rank_) return a;
  if (a.dims_.size() != b.dims_.size()) return std::nullopt;
  std::vector<Dim> dims;
  for (size_t i = 0; i < a.dims_.size(); ++i) {
    auto dim = Dim::Merge(a.dims_[i], b.dims_[i]);
    if (!dim) return std::nullopt;
    dims.push_back(*std::move(dim));
  }
  return SymbolicShape(std::move(dims));
}

OPKIT_INLINE size_t SymbolicShape::Axis(int axis) const {
  const int found = axis < 0 ? axis + rank() : axis;
  if (found < 0 || found >= rank())
    Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside ", *this, " of rank ", rank());
  return static_cast<size_t>(found);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SYMBOLIC_SHAPE_IPP_

// ---- opkit/base/algorithm.hpp
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

// ---- opkit/device/impl/event.ipp
// The definitions of opkit/device/event.hpp.
#ifndef OPKIT_DEVICE_IMPL_EVENT_IPP_
#define OPKIT_DEVICE_IMPL_EVENT_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE bool EventState::Schedule() {
  detail::MutexLock lock(mutex_);
  const EventStatus now = status_.load(std::memory_order_relaxed);  // relaxed: the mutex orders it
  if (IsTerminal(now)) return false;
  if (now == EventStatus::kScheduled)
    Throw(ErrorCode::kFailedPrecondition,
          "the event is recorded while it is still SCHEDULED; Finish or Reset it first");
  status_.store(EventStatus::kScheduled, std::memory_order_release);
  return true;
}

OPKIT_INLINE bool EventState::Complete(std::exception_ptr exception) {
  if (exception) exception = Shared(std::move(exception));
  std::vector<UniqueFunction<void()>> callbacks;
  {
    detail::MutexLock lock(mutex_);
    if (IsTerminal(status_.load(std::memory_order_relaxed))) return false;
    if (span_ != 0) [[unlikely]]  // reports the end before a thread sees it and may end the profile
      if (detail::SpanSink* sink = detail::CurrentSpanSink()) sink->Completed(span_);
    exception_ = std::move(exception);
    status_.store(exception_ ? EventStatus::kFailed : EventStatus::kSuccess,
                  std::memory_order_release);
    callbacks.swap(callbacks_);
    for (Waiter* waiter = waiters_; waiter;) {
      Waiter* next = waiter->next;  // `waiter` may be gone after Set
      detail::Parker::Wake(waiter->parker.Set());
      waiter = next;
    }
    waiters_ = nullptr;
  }
  if (callbacks.empty()) return true;
  const detail::IntrusivePtr<EventState> self(this);  // a callback may Reset the last handle
  for (auto& callback : callbacks) callback();
  callbacks.clear();
  detail::MutexLock lock(mutex_);
  callbacks_.swap(callbacks);  // keeps the memory for the next use of this state
  return true;
}

OPKIT_INLINE bool EventState::Reuse() {
  // Relaxed: another thread can see this store only through a handle, and passing the handle orders
  // the store.
  status_.store(EventStatus::kInitialized, std::memory_order_relaxed);
  exception_ = nullptr;
  context_ = {};
  private_ = false;
  defers_completion_ = false;
  span_ = 0;
  callbacks_.clear();
  retained.clear();
  return true;
}

OPKIT_INLINE void EventState::AddQuietCallback(UniqueFunction<void()> callback) {
  {
    detail::MutexLock lock(mutex_);
    if (!IsTerminal(status_.load(std::memory_order_relaxed))) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

OPKIT_INLINE bool EventState::Wait(Timeout timeout) {
  if (IsTerminal(status()) || WaitBriefly(timeout)) return true;
  RequestNotification();
  Waiter self;
  {
    detail::MutexLock lock(mutex_);
    if (IsTerminal(status_.load(std::memory_order_relaxed))) return true;
    self.next = std::exchange(waiters_, &self);
  }
  if (self.parker.Wait(timeout.DeadlineNs())) return true;
  detail::MutexLock lock(mutex_);
  for (Waiter** link = &waiters_; *link; link = &(*link)->next)
    if (*link == &self) {
      *link = self.next;
      return false;
    }
  return true;  // completed at the last moment
}

OPKIT_INLINE std::exception_ptr EventState::Shared(std::exception_ptr exception) const {
  try {
    std::rethrow_exception(exception);
  } catch (Error& error) {
    // If other threads may already read the Error, copies it and changes the copy. An object of a
    // class derived from Error stays unchanged, because a copy would lose the derived part.
    const bool others = error.is_shared();
    if (!private_) error.SetShared();
    if (!context_ || (others && typeid(error) != typeid(Error))) return exception;
    const std::string described = context_->Describe();
    if (detail::Contains(error.context(), described))
      return exception;  // the operator itself failed while issuing
    if (typeid(error) != typeid(Error)) return error.AddContext(described), exception;
    Error copy = error;
    copy.AddContext(described).SetShared();
    return std::make_exception_ptr(std::move(copy));
  } catch (...) {
    if (!context_) return exception;
    Error error = CurrentError();
    error.AddContext(context_->Describe()).SetShared();
    return std::make_exception_ptr(std::move(error));
  }
}

OPKIT_INLINE detail::DeviceTable<detail::EventStateFactory>& EventFactories() {
  static constinit detail::DeviceTable<detail::EventStateFactory> table;
  return table;
}

OPKIT_INLINE void Event::SetFinished(const char* error_message) {
  CompleteOnce(error_message
                   ? std::make_exception_ptr(Error(ErrorCode::kOperatorFailed, error_message))
                   : nullptr);
}

OPKIT_INLINE bool Event::Cancel() {
  const auto state = state_;  // a waiting thread may destroy this handle meanwhile
  const bool cancelled =
      state->Complete(std::make_exception_ptr(Error(ErrorCode::kCancelled, "cancelled")));
  state->RequestNotification();  // frees the memory when the device has drained
  return cancelled;
}

OPKIT_INLINE void Event::Finish(Timeout timeout) const {
  if (timeout.is_forever() && state_->status() == EventStatus::kInitialized)
    Throw(ErrorCode::kFailedPrecondition,
          "waiting for an event that was never recorded: run the "
          "operator first, or wait with a timeout");
  if (!state_->Wait(timeout))
    Throw(ErrorCode::kDeadlineExceeded, "the event on ", ToString(device_), " is still ",
          ToString(state_->status()), " after ", timeout.ns() / 1000, " us");
  RethrowIfFailed();
}

OPKIT_INLINE void Event::Reset() {
  const bool spare = spare_.use_count() == 1 && spare_->Reuse();
  if (!spare && spare_ && state_.use_count() == 1 && state_->Reuse()) return;
  auto next = spare ? std::move(spare_) : NewState();
  spare_ = std::exchange(state_, std::move(next));
  // Frees the callbacks, the exception and the memory of the old state now, or with its last
  // handle.
  if (spare_.use_count() == 1 ? !spare_->Reuse() : spare_->status() != EventStatus::kSuccess)
    spare_ = {};
}

OPKIT_INLINE std::string Event::ErrorMessage() const {
  if (Query() != EventStatus::kFailed) return {};
  try {
    std::rethrow_exception(state_->exception());
  } catch (...) {
    return CurrentError().what();
  }
}

OPKIT_INLINE void Event::CompleteOnce(std::exception_ptr exception) {
  // A waiting thread may destroy this handle as soon as the event is terminal, while Complete still
  // runs.
  const auto state = state_;
  if (!state->Complete(std::move(exception)) && state->status() == EventStatus::kSuccess)
    Throw(ErrorCode::kFailedPrecondition,
          "SetFinished on an event that is SUCCESS already; Reset it first");
}

OPKIT_INLINE detail::IntrusivePtr<EventState> Event::NewState() const {
  const detail::EventStateFactory factory = EventFactories().Find(device_.type);
  return factory ? factory(device_) : detail::MakeIntrusive<EventState>();
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_EVENT_IPP_

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

// ---- opkit/device/impl/copy.ipp
// The definitions of opkit/device/copy.hpp.
#ifndef OPKIT_DEVICE_IMPL_COPY_IPP_
#define OPKIT_DEVICE_IMPL_COPY_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns null if no function is registered.
inline CopyFunction RegisteredCopy(DeviceType from, DeviceType to) {
  MutexLock lock(Copies().mutex);
  for (const CopyTable::Route& route : Copies())
    if (route.from == from && route.to == to && route.copy) return route.copy;
  return nullptr;
}
OPKIT_INLINE CopyFunction FindCopy(DeviceType from, DeviceType to) {
  if (const CopyFunction registered = RegisteredCopy(from, to)) return registered;
  if (IsHostAccessible(from) && IsHostAccessible(to)) return &CopyHost;
  return RegisteredCopy(from, DeviceType::kCPU) && RegisteredCopy(DeviceType::kCPU, to)
             ? &CopyThroughHost
             : nullptr;
}
OPKIT_COLD OPKIT_INLINE void CopyThroughHost(void* target, Device target_device, const void* source,
                                             Device source_device, int64_t nbytes, void* stream) {
  const CopyFunction to_host = RegisteredCopy(source_device.type, DeviceType::kCPU);
  const CopyFunction from_host = RegisteredCopy(DeviceType::kCPU, target_device.type);
  if (stream || !to_host || !from_host)
    Throw(ErrorCode::kUnsupported, "cannot copy from ", source_device, " to ", target_device,
          stream ? " on a stream: it goes through the host; use Copy, which waits"
                 : ": the copies to and from the host are registered no more");
  const Storage between = AllocateStorage(Device{}, nbytes);
  to_host(between->data(), Device{}, source, source_device, nbytes, nullptr);
  from_host(target, target_device, between->data(), Device{}, nbytes, nullptr);
}
OPKIT_INLINE CopyFunction FindCopy(const Tensor& source, const Tensor& target) {
  const DeviceType from = MemoryDevice(source.device()).type;
  const DeviceType to = MemoryDevice(target.device()).type;
  if (const CopyFunction found = FindCopy(from, to)) return found;
  MutexLock lock(Copies().mutex);
  std::vector<std::string> known;
  for (const CopyTable::Route& route : Copies())
    if (route.copy) known.push_back(StrCat(route.from, " to ", route.to));
  throw Error(
      ErrorCode::kUnsupported,
      StrCat("cannot copy tensor ", source, " to ", ToString(target.device()), ": no copy from ",
             ToString(from), " to ", ToString(to), " is registered, only ", known,
             "; include its backend's header, or call RegisterCopy"),
      &source);
}

OPKIT_INLINE StridedCopyFunction FindStridedCopy(const Tensor& source) {
  if (source.is_dense() || IsHostAccessible(source.device().type)) return nullptr;
  const DeviceType type = MemoryDevice(source.device()).type;
  {
    MutexLock lock(Copies().mutex);
    if (const StridedCopyFunction found = Copies().strided[Index(static_cast<int>(type))])
      return found;
  }
  throw Error(ErrorCode::kUnsupported,
              StrCat("cannot copy tensor ", source, ": it has strides, and no copy of strided ",
                     "elements within ", type, " is registered; link the kernels of its backend ",
                     "(opkit::cuda_ops for cuda), or call RegisterStridedCopy"),
              &source);
}
// Copies `source` to dense memory, on the same device with `strided`.
inline void CopyStrided(StridedCopyFunction strided, CopyFunction copy, const Tensor& source,
                        const Tensor& target, void* stream) {
  const Device from = MemoryDevice(source.device()), to = MemoryDevice(target.device());
  if (from == to) return strided(source, target.raw_mutable_data(), stream);
  Tensor dense(source.device());
  dense.Resize(source.shape(), source.dtype());
  strided(source, dense.raw_mutable_data(), stream);
  copy(target.raw_mutable_data(), to, dense.raw_data(), from, dense.nbytes(), stream);
}

OPKIT_INLINE void CopyElements(const Tensor& source, const Tensor& target, void* stream) {
  const CopyFunction copy = FindCopy(source, target);
  const StridedCopyFunction strided = FindStridedCopy(source);
  if (target.numel() == 0) return;
  const bool on_host = copy == &CopyHost;
  if (!target.is_dense() || (!on_host && !strided && !source.is_dense()))
    Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source, " into ", target,
          " while one of them is strided");
  if (strided) return CopyStrided(strided, copy, source, target, stream);
  const Tensor dense = source.is_dense() ? source : source.Contiguous();
  void* const to = target.raw_mutable_data();
  if (IsObject(target.dtype()))
    CopyObjects(target.dtype(), to, dense.raw_data(), dense.numel());
  else if (on_host)
    std::memmove(to, dense.raw_data(), Index(dense.nbytes()));
  else
    copy(to, MemoryDevice(target.device()), dense.raw_data(), MemoryDevice(source.device()),
         dense.nbytes(), stream);
}

OPKIT_INLINE PreparedCopy::PreparedCopy(const Tensor& from, const Tensor& to) : source(from) {
  if (!from.initialized())
    throw Error(ErrorCode::kUninitialized,
                StrCat("tensor ", from, " is copied before anything was written to it"), &from);
  copy = FindCopy(from, to);
  if (!from.layout().is_standard())
    throw Error(ErrorCode::kUnsupported,
                StrCat("cannot copy tensor ", from, " to ", ToString(to.device()),
                       ": only tensors of the standard layout are copied; convert it first"),
                &from);
  strided = FindStridedCopy(from);
  target = to.CopyDestination(from);
}

OPKIT_INLINE void PreparedCopy::Run(void* stream) const {
  if (strided && source.numel() > 0) return CopyStrided(strided, copy, source, target, stream);
  const Tensor dense = source.is_dense() ? source : source.Contiguous();
  if (dense.numel() == 0) return;
  if (IsObject(dense.dtype()))  // the target is on the cpu, as the source is
    return CopyObjects(dense.dtype(), target.raw_mutable_data(), dense.raw_data(), dense.numel());
  copy(target.raw_mutable_data(), MemoryDevice(target.device()), dense.raw_data(),
       MemoryDevice(source.device()), dense.nbytes(), stream);
}

}  // namespace detail

OPKIT_INLINE detail::CopyFunction RegisterCopy(DeviceType from, DeviceType to,
                                               detail::CopyFunction copy) {
  from = MemoryDevice({from, 0}).type;
  to = MemoryDevice({to, 0}).type;
  detail::CopyTable& table = detail::Copies();
  detail::MutexLock lock(table.mutex);
  for (int i = 0; i < table.count; ++i)
    if (detail::CopyTable::Route& route = table.routes[i]; route.from == from && route.to == to)
      return std::exchange(route.copy, copy);
  if (table.count == table.kMost)
    Throw(ErrorCode::kOutOfRange, "a copy from ", from, " to ", to, " is one more than the ",
          int{table.kMost}, " that a program may have");
  table.routes[table.count++] = {from, to, copy};
  return nullptr;
}

OPKIT_INLINE detail::StridedCopyFunction RegisterStridedCopy(DeviceType type,
                                                             detail::StridedCopyFunction copy) {
  type = MemoryDevice({type, 0}).type;
  detail::MutexLock lock(detail::Copies().mutex);
  return std::exchange(detail::Copies().strided[detail::Index(static_cast<int>(type))], copy);
}

OPKIT_INLINE void Copy(const Tensor& source, Tensor* target) {
  if (&source == target) return;
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(Invocation::Kind::kCopy, target->device(), detail::CopyNames);
  prepared.Run();
  *target = std::move(prepared.target);
}

namespace detail {

OPKIT_COLD inline Tensor ContiguousOnDevice(const Tensor& tensor) {
  Tensor dense(tensor.device());
  Copy(tensor, &dense);
  return dense;
}
OPKIT_IMAGE_LOCAL inline const bool kFillsContiguous =
    g_contiguous_on_device.Fill(&ContiguousOnDevice);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_COPY_IPP_

// ---- opkit/device/impl/cpu_stream.ipp
// The definitions of opkit/device/cpu_stream.hpp.
#ifndef OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_
#define OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

OPKIT_INLINE CPUStream::Registry& CPUStream::All() {
  // Never freed: the threads use their streams until the process ends.
  static Registry* const registry = [] {
    pthread_atfork([] { All().mutex.Lock(); }, [] { All().mutex.Unlock(); },
                   [] {
                     All().mutex.ResetAfterFork();
                     All().streams = nullptr;  // their threads exist in the parent only
                   });
    return new Registry;
  }();
  return *registry;
}

OPKIT_INLINE CPUStream& CPUStream::Get(Device device, int id) {
  if (t_cpu_stream) return *t_cpu_stream;
  if (id < 0) Throw(ErrorCode::kInvalidArgument, "stream id ", id, " is negative");
  MutexLock lock(All().mutex);
  if (CPUStream* stream = All().Find(device, id)) return *stream;
  auto* stream = new CPUStream(device, id);
  stream->next_ = std::exchange(All().streams, stream);
  return *stream;
}

OPKIT_INLINE void CPUStream::Record(Event& event) {
  // An event that was cancelled before it was recorded still keeps its memory until the stream
  // reaches this item.
  if (event.SetScheduled() || event.Query() == EventStatus::kFailed)
    Push({{}, event.state(), {}, {}});
}

OPKIT_INLINE void CPUStream::WaitEvent(const Event& event) {
  const EventStatus status = event.Query();
  if (status == EventStatus::kSuccess) return;
  if (status == EventStatus::kInitialized)
    Throw(ErrorCode::kFailedPrecondition,
          "a stream cannot wait for an event that was never recorded: run the operator first");
  event.state()->RequestNotification();
  Push({{}, {}, event.state(), {}});
}

OPKIT_INLINE CPUStream* CPUStream::Registry::Find(Device device, int id) const {
  for (CPUStream* stream = streams; stream; stream = stream->next_)
    if (stream->device_ == device && stream->id_ == id) return stream;
  return nullptr;
}

OPKIT_INLINE CPUStream::CPUStream(Device device, int id) : device_(device), id_(id) {
  queue_.reserve(kUsualBatch);
  const auto serve = [](void* self) -> void* {
    static_cast<CPUStream*>(self)->Serve();
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, nullptr, serve, this) != 0)
    Throw(ErrorCode::kOutOfMemory, "cannot start the thread of stream ", id);
  pthread_detach(thread);
}

OPKIT_INLINE void CPUStream::Push(Item item) {
  item.issuer = t_issuer;
  if (id_ < 0) {
    Failures failures;
    Execute(item, failures);
    if (std::exception_ptr failure = failures.Take(item.issuer)) std::rethrow_exception(failure);
    return;
  }
  Parker::Address sleeper = nullptr;
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(item));
    if (parked_) sleeper = std::exchange(parked_, nullptr)->Set();
  }
  if (sleeper) Parker::Wake(sleeper);
}

OPKIT_INLINE void CPUStream::Next(std::vector<Item>& items) {
  for (;;) {
    Parker parker;
    {
      MutexLock lock(mutex_);
      busy_ = !queue_.empty();
      if (busy_) return items.swap(queue_);
      parked_ = &parker;
    }
    parker.Wait();
  }
}

OPKIT_INLINE void CPUStream::Serve() {
  Failures failures;
  std::vector<Item> items;
  items.reserve(kUsualBatch);
  for (;;) {
    Next(items);
    for (Item& item : items) {
      Execute(item, failures);
      item = {};  // frees the closure before the next item runs
    }
    items.clear();
  }
}

OPKIT_INLINE void CPUStream::Failures::Add(uint64_t issuer, std::exception_ptr failure) {
  list_.emplace_back(issuer, std::move(failure));
}
OPKIT_INLINE std::exception_ptr CPUStream::Failures::Take(uint64_t issuer) {
  const auto* found = Find(issuer);
  if (!found) found = Find(0);
  if (!found) return nullptr;
  std::exception_ptr failure = found->second;
  list_.erase(list_.begin() + (found - list_.data()));
  return failure;
}

OPKIT_INLINE void CPUStream::Execute(Item& item, Failures& failures) {
  if (item.record) {
    // The stream may use the memory of a cancelled event until now. Frees it before the event
    // completes, so that a thread that has waited finds it freed.
    item.record->retained.clear();
    item.record->Complete(failures.Take(item.issuer));
  } else if (failures.Concerns(item.issuer)) {
    return;
  } else if (item.wait) {
    if (!IsTerminal(item.wait->status())) {
      // Relaxed: a statistic.
      blocking_waits_.fetch_add(1, std::memory_order_relaxed);
      item.wait->Wait({});
    }
    if (item.wait->status() == EventStatus::kFailed)
      failures.Add(item.issuer, item.wait->exception());
  } else {
    auto scope = InvocationScope::Adopt(item.invocation);
    try {
      item.work();
    } catch (...) {
      failures.Add(item.issuer, std::current_exception());
    }
  }
}

}  // namespace detail

OPKIT_INLINE void CPUStreamContext::FinishDeviceComputation() {
  if (drained_)
    drained_->Reset();
  else
    drained_.emplace(device_);
  drained_->state()->SetPrivate();
  stream().Record(*drained_);
  drained_->Finish();
}

}}  // namespace opkit

#endif  // OPKIT_DEVICE_IMPL_CPU_STREAM_IPP_

// ---- opkit/engine/pool/impl/latch.ipp
// How threads sleep until a Latch is at zero: in a table that is never destroyed, by the latch's
// address. The thread that brings a latch to zero needs only the address from then on. So a waiter
// that sees the zero may destroy the latch at once.
#ifndef OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_
#define OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The sleeping threads of all latches whose addresses have the same hash.
struct alignas(kCacheLine) LatchBucket {
  Mutex mutex;
  LatchSleeper* first = nullptr;
};

inline constexpr int kLatchBucketBits = 6;
inline constinit LatchBucket g_latch_buckets[1 << kLatchBucketBits];

inline LatchBucket& BucketOf(const void* latch) {
  const uint64_t hash = reinterpret_cast<uintptr_t>(latch) * uint64_t{0x9E3779B97F4A7C15};
  return g_latch_buckets[hash >> (64 - kLatchBucketBits)];
}

// No wake-up is lost: the sleeper enlists and looks at the count under the bucket's lock. If the
// last CountDown takes the lock later it finds the sleeper; if earlier, its subtraction happened
// before and the sleeper sees zero.
OPKIT_INLINE bool Latch::Enlist(LatchSleeper& self) const {
  LatchBucket& bucket = BucketOf(this);
  MutexLock lock(bucket.mutex);
  if (done()) return false;
  self.latch = this;
  self.next = bucket.first;
  bucket.first = &self;
  return true;
}

OPKIT_INLINE void Latch::Delist(LatchSleeper& self) {
  LatchBucket& bucket = BucketOf(self.latch);
  MutexLock lock(bucket.mutex);
  LatchSleeper** at = &bucket.first;
  while (*at && *at != &self) at = &(*at)->next;
  if (*at) *at = self.next;
}

OPKIT_INLINE void Latch::WakeSleepers(const void* latch) {
  LatchBucket& bucket = BucketOf(latch);
  MutexLock lock(bucket.mutex);
  for (LatchSleeper** at = &bucket.first; *at;) {
    LatchSleeper* const sleeper = *at;
    if (sleeper->latch != latch) {
      at = &sleeper->next;
      continue;
    }
    *at = sleeper->next;
    // `sleeper` is on the stack of its thread. It is not destroyed while this lock is held, because
    // the thread must take the lock in Delist before it returns.
    Parker::Wake(sleeper->parker->Set());
  }
}

OPKIT_INLINE void Latch::ForgetSleepers() {
  for (LatchBucket& bucket : g_latch_buckets) {
    bucket.mutex.ResetAfterFork();
    bucket.first = nullptr;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_IMPL_LATCH_IPP_

// ---- opkit/engine/pool/engine_scope.hpp
// Spans and markers of what a pool's threads do besides their tasks (sleep, wait, steal), for
// profiles that record them.
#ifndef OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_
#define OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the current sink if it records what pool threads do, else null.
inline SpanSink* EngineSink() {
  SpanSink* const sink = CurrentSpanSink();
  return sink && sink->WantsEngine() ? sink : nullptr;
}

// Opens a span of this thread for the scope's life.
class EngineScope {
 public:
  explicit EngineScope(const char* name)
      : scope_(EngineSink() ? InvocationScope(Invocation::Kind::kEngine,
                                              [&] { return SpanNames{InternName(name)}; })
                            : InvocationScope::Adopt(CurrentInvocation())) {}

 private:
  InvocationScope scope_;
};

// Records an instant marker on this thread.
inline void MarkEngine(const char* name) {
  if (SpanSink* sink = EngineSink()) [[unlikely]]
    sink->Marked(InternName(name));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_ENGINE_SCOPE_HPP_

// ---- opkit/engine/pool/work_deque.hpp
// WorkDeque: the queue of one worker of the pool. Its owner pushes and pops at the bottom (the
// newest first, still in its cache), any other thread steals at the top (the oldest). Chase and
// Lev's deque (SPAA 2005) with a ring of fixed size, so that nothing is ever allocated or
// reclaimed: a full deque refuses, and the pool's shared queue takes the overflow.
#ifndef OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_
#define OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Holds pointers it does not own. The thread that gets an item sees what was written before its
// Push.
//
// Memory orders. Pop lowers `bottom_` and then reads `top_`, Steal reads `top_` and then `bottom_`;
// each must see the other when both go for the last item. The pool's parking protocol also needs
// Push ordered before the pusher's look at the sleepers. Both are store-then-load, so these
// accesses are seq_cst operations (not fences, which TSan does not model). Slots are relaxed: a
// thief uses what it read only if its compare-exchange of `top_` succeeds, and then the seq_cst
// read of `bottom_` has acquired the owner's write.
template <class T, size_t kCapacity>
class WorkDeque {
  static_assert((kCapacity & (kCapacity - 1)) == 0, "the capacity must be a power of two");

 public:
  // Owner only. Adds an item; returns false if the deque is full.
  bool Push(T* item) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);  // only the owner writes it
    // Acquire: the slot about to be reused has been read by the thief that moved `top_` past it.
    const int64_t top = top_.load(std::memory_order_acquire);
    if (bottom - top >= static_cast<int64_t>(kCapacity)) return false;
    Slot(bottom).store(item, std::memory_order_relaxed);
    bottom_.store(bottom + 1, std::memory_order_seq_cst);
    return true;
  }

  // Owner only. Removes and returns the newest item, or null.
  T* Pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;  // only the owner writes it
    // Relaxed: `top_` only grows, so an old value that already means "empty" is still right.
    if (top_.load(std::memory_order_relaxed) > bottom) return nullptr;
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    T* item = nullptr;
    if (top <= bottom) {
      item = Slot(bottom).load(std::memory_order_relaxed);
      if (top < bottom) return item;  // more than one left: no thief can reach this one
      // Relaxed on failure: the value that it reads is not used.
      if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                        std::memory_order_relaxed))
        item = nullptr;
    }
    // Relaxed: the deque is empty now. A thief that reads this value finds nothing that it could
    // take.
    bottom_.store(bottom + 1, std::memory_order_relaxed);
    return item;
  }

  // Any thread. Removes and returns the oldest item, or null if there was none.
  T* Steal() {
    int64_t top = top_.load(std::memory_order_seq_cst);
    while (top < bottom_.load(std::memory_order_seq_cst)) {
      T* item = Slot(top).load(std::memory_order_relaxed);
      if (top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                       std::memory_order_seq_cst))
        return item;
    }
    return nullptr;
  }

  // Any thread. True if the deque was empty a moment ago.
  bool empty() const {
    return top_.load(std::memory_order_seq_cst) >= bottom_.load(std::memory_order_seq_cst);
  }

  // Forgets the items, which belong to the parent; called in a forked child. Relaxed: the child has
  // one thread.
  void ResetAfterFork() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<T*>& Slot(int64_t index) { return slots_[Index(index) & (kCapacity - 1)]; }

  // On cache lines of their own: thieves write `top_`, the owner `bottom_`.
  alignas(kCacheLine) std::atomic<int64_t> top_{0};
  alignas(kCacheLine) std::atomic<int64_t> bottom_{0};
  alignas(kCacheLine) std::atomic<T*> slots_[kCapacity] = {};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_POOL_WORK_DEQUE_HPP_

// ---- opkit/engine/impl/thread_pool.ipp
// The thread pool's workers: how they start and leave, find work, sleep and are woken, and survive
// a fork.
#ifndef OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_
#define OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A worker of a pool: its thread and its queue.
struct alignas(kCacheLine) PoolWorker {
  PoolWorker(ThreadPool* its_pool, int its_index) : pool(its_pool), index(its_index) {}

  ThreadPool* const pool;
  const int index;
  uint32_t turn = 0;
  bool running = false;  // guarded by the pool's start mutex, as is `thread`
  pthread_t thread{};
  WorkDeque<PoolTask, 1024> deque;
};

// Every live pool, for the fork handlers.
struct PoolRegistry {
  Mutex mutex;
  ThreadPool* first = nullptr;
  bool fork_handled = false;
};
inline constinit PoolRegistry g_pools;

inline int DefaultThreads() {
  constexpr int kMax = ThreadPool::kMaxThreads;
  const char* text = std::getenv("OPKIT_NUM_THREADS");
  if (!text || *text == '\0') return (std::min)(AvailableCpus(), kMax);
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (*end != '\0' || threads < 1 || threads > kMax)
    Throw(ErrorCode::kInvalidArgument,
          "expected the environment variable OPKIT_NUM_THREADS to be a number from 1 to ", kMax,
          ", found \"", text, "\"; correct it or unset it");
  return static_cast<int>(threads);
}

}  // namespace detail

OPKIT_INLINE ThreadPool::ThreadPool(int threads, std::string name, Placement placement)
    : name_(std::move(name)), placement_(placement) {
  SetThreads(threads);
  detail::MutexLock lock(detail::g_pools.mutex);
  if (!std::exchange(detail::g_pools.fork_handled, true)) HandleFork();
  registry_next_ = std::exchange(detail::g_pools.first, this);
}

OPKIT_INLINE ThreadPool::~ThreadPool() {
  OPKIT_ASSERT(!OwnWorker());
  {
    detail::MutexLock lock(detail::g_pools.mutex);
    ThreadPool** at = &detail::g_pools.first;
    while (*at != this) at = &(*at)->registry_next_;
    *at = registry_next_;
  }
  {
    detail::MutexLock lock(start_mutex_);  // afterwards no worker starts or retires
    stopping_ = true;
  }
  idle_.WakeAll();
  const auto drain = [this] {
    while (RunOneTask()) {
    }
  };
  if (threads() > 1) drain();
  const int slots = slots_;
  for (int i = 0; i < slots; ++i)
    if (detail::PoolWorker* worker = workers_[i]; worker->running)
      pthread_join(worker->thread, nullptr);
  drain();
  for (int i = 0; i < slots; ++i) delete workers_[i].load();
}

OPKIT_INLINE ThreadPool& ThreadPool::Global() {
  static ThreadPool* const pool = [] {
    const char* pin = std::getenv("OPKIT_PIN_THREADS");
    return new ThreadPool(detail::DefaultThreads(), "opkit",
                          pin && pin[0] == '1' ? Placement::kPinned : Placement::kFree);
  }();
  return *pool;
}

OPKIT_INLINE void ThreadPool::SetThreads(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    Throw(ErrorCode::kInvalidArgument, "expected a number of threads from 1 to ", kMaxThreads,
          " for the pool \"", name_, "\", found ", threads);
  constexpr uint64_t kSpinTicks = 12'000, kLoopSpinTicks = 500'000;
  const bool may_spin = threads <= detail::AvailableCpus();
  spin_ticks_ = may_spin ? kSpinTicks : 0;
  loop_spin_ticks_ = may_spin ? kLoopSpinTicks : 0;
  detail::MutexLock lock(start_mutex_);
  threads_ = threads;
}

OPKIT_INLINE void ThreadPool::Resize(int threads) {
  SetThreads(threads);
  idle_.WakeAll();
}

// --- workers

OPKIT_INLINE detail::PoolWorker* ThreadPool::OwnWorker() const {
  detail::PoolWorker* worker = detail::t_pool.worker;
  return worker && worker->pool == this ? worker : nullptr;
}

OPKIT_INLINE void ThreadPool::StartFirstWorker() {
  if (stopping_ || StartWorker() || running_ != 0) return;
  Throw(ErrorCode::kFailedPrecondition, "expected to start a thread of the pool \"", name_,
        "\", but the system refused it; raise the limit on processes (ulimit -u) or on memory");
}

// Starts one worker. Returns false if enough workers run, or if the system refuses a thread.
OPKIT_INLINE bool ThreadPool::StartWorker() {
  detail::MutexLock lock(start_mutex_);
  const int target = worker_target();
  if (stopping_ || running_ >= target) return false;
  for (int i = 0; i < target; ++i) {
    detail::PoolWorker* worker = workers_[i];
    if (!worker) {
      worker = new detail::PoolWorker(this, i);
      workers_[i] = worker;
      slots_ = i + 1;
    }
    if (worker->running) continue;
    const auto entry = [](void* self) -> void* {
      auto* started = static_cast<detail::PoolWorker*>(self);
      started->pool->WorkerMain(*started);
      return nullptr;
    };
    const detail::DenormalScope own(false);  // a new thread inherits the creator's control register
    if (pthread_create(&worker->thread, nullptr, entry, worker) != 0) return false;
    idle_.StartSearching();  // for the new thread, which waits for start_mutex_
    worker->running = true;
    running_.fetch_add(1);
    return true;
  }
  return false;
}

// Lets the calling worker leave if it is surplus. Returns true if it has left the pool, which may
// be gone from then on. Its queue stays, and others steal from it; the first worker never leaves.
OPKIT_INLINE bool ThreadPool::Retire(detail::PoolWorker& self) {
  detail::MutexLock lock(start_mutex_);
  if (stopping_ || self.index < worker_target()) return false;
  self.running = false;
  running_.fetch_sub(1);
  pthread_detach(self.thread);
  detail::t_pool = {};
  return true;
}

OPKIT_INLINE void ThreadPool::WorkerMain(detail::PoolWorker& self) {
  {
    detail::MutexLock lock(start_mutex_);  // waits until StartWorker is done with `self`
  }
  detail::t_pool = {this, &self};
  detail::SetCurrentThreadName(StrCat(name_, "-", self.index).c_str());
  if (placement_ == Placement::kPinned) detail::PinCurrentThread(self.index + 1);
  bool searching = true;
  detail::IdleSpin spin;
  for (;;) {
    if (self.index >= worker_target()) [[unlikely]] {
      if (std::exchange(searching, false)) StopSearching();
      if (Retire(self)) return;
    }
    if (const Work work = FindWork(&self)) {
      if (std::exchange(searching, false)) StopSearching();
      Run(work);
      if (detail::t_pool.worker != &self) return;  // this is a child, forked by the task
      spin.Worked(/*on_loop=*/work.loop, detail::Ticks());
      continue;
    }
    if (stopping_) break;
    if (!std::exchange(searching, true)) idle_.StartSearching();
    // A few searchers find a task as fast as all threads would.
    const bool crowded = idle_.searching() > 1 + worker_target() / 2;
    if (spin.Goes(detail::Ticks(), crowded, spin_times())) {
      detail::CpuRelax();
      continue;
    }
    const bool for_loop = Sleep(self);
    spin.Woke(for_loop, detail::Ticks());
  }
  if (searching) StopSearching();
}

// Puts the worker to sleep; returns true if it was woken for a loop. The worker counts as searching
// before and after.
OPKIT_INLINE bool ThreadPool::Sleep(detail::PoolWorker& self) {
  detail::IdleThread sleeper;
  idle_.Enlist(sleeper);
  idle_.StopSearching();
  if (!HasWork() && !stopping_ && self.index < worker_target()) {
    const detail::EngineScope scope("park");
    sleeper.parker.Wait();
  } else if (idle_.Delist(sleeper)) {
    idle_.StartSearching();
  }
  return sleeper.for_loop;
}

// --- work

OPKIT_INLINE void ThreadPool::Submit(Task task) {
  struct Record : detail::PoolTask {
    explicit Record(Task&& its_task) : detail::PoolTask(&RunRecord), task(std::move(its_task)) {}
    static void RunRecord(detail::PoolTask* self) noexcept {
      Record* record = static_cast<Record*>(self);
      record->task();
      delete record;
    }
    Task task;
  };
  RequireWorker();
  Schedule(new Record(std::move(task)));
}

OPKIT_INLINE void ThreadPool::Schedule(detail::PoolTask* task) {
  RequireWorker();
  detail::PoolWorker* worker = OwnWorker();
  if (!worker || !worker->deque.Push(task)) injected_.Put(task);
  NotifyWork();
}

OPKIT_INLINE bool ThreadPool::RunOneTask() {
  PoolScope scope(*this);
  const Work work = FindWork(OwnWorker());
  if (work) Run(work);
  return static_cast<bool>(work);
}

OPKIT_INLINE ThreadPool::Work ThreadPool::FindWork(detail::PoolWorker* self) {
  if (!loops_.empty()) {  // loops that have begun come first
    int wake = 0;
    if (detail::ParallelLoop* loop = loops_.Join(&wake)) {
      if (wake > 0) WakeForLoop(wake);
      return {nullptr, loop};
    }
  }
  if (self) {
    // Now and then the oldest task of the shared queue, or of the worker's own queue, comes first:
    // a worker whose tasks keep submitting tasks must starve neither.
    const uint32_t turn = ++self->turn % 64;
    auto* task = turn == 0 ? TakeInjected() : turn == 32 ? self->deque.Steal() : nullptr;
    if (!task) task = self->deque.Pop();
    if (task) return {task};
  }
  if (detail::PoolTask* task = TakeInjected()) return {task};
  // Acquire, here and below: pairs with the stores in StartWorker, so that all members of a
  // worker's record are visible.
  const int slots = slots_.load(std::memory_order_acquire);
  for (int i = 0, victim = self ? self->index : 0; i < slots; ++i, ++victim) {
    if (victim >= slots) victim = 0;
    detail::PoolWorker* worker = workers_[victim].load(std::memory_order_acquire);
    if (worker == self) continue;
    if (detail::PoolTask* task = worker->deque.Steal()) {
      detail::MarkEngine("steal");
      return {task};
    }
  }
  return {};
}

// Every load is seq_cst, for IdleList's protocol.
OPKIT_INLINE bool ThreadPool::HasWork() const {
  if (!loops_.empty() || !injected_.empty()) return true;
  const int slots = slots_;
  for (int i = 0; i < slots; ++i)
    if (!workers_[i].load()->deque.empty()) return true;
  return false;
}

OPKIT_INLINE void ThreadPool::Run(Work work) {
  if (work.loop) return loops_.Work(*work.loop);
  auto scope = InvocationScope::Adopt(work.task->invocation);
  work.task->run(work.task);
}

// --- waking and waiting

OPKIT_INLINE void ThreadPool::NotifyWork() {
  if (idle_.searching() != 0) return;
  if (idle_.sleeping() != 0 && idle_.WakeForTask()) return;
  // Relaxed, here and below: a hint, which StartWorker checks under the mutex.
  if (running_.load(std::memory_order_relaxed) < worker_target()) StartWorker();
}

// Wakes `threads` threads for a loop, less the number of threads that search: those find the loop
// by themselves. With more threads than CPUs, the system places the woken threads.
OPKIT_INLINE void ThreadPool::WakeForLoop(int threads) {
  const bool elsewhere = spin_ticks() != 0;
  for (threads -= idle_.searching(); threads > 0; --threads) {
    if (idle_.sleeping() != 0 && idle_.WakeForLoop(elsewhere)) continue;
    if (running_.load(std::memory_order_relaxed) >= worker_target() || !StartWorker()) return;
  }
}

OPKIT_INLINE bool ThreadPool::Wait(const detail::Latch& latch, int64_t timeout_ns) {
  if (latch.done()) return true;
  detail::PoolWorker* const worker = OwnWorker();
  const bool helps = worker || (timeout_ns < 0 && threads() > 1);
  const int64_t deadline_ns = timeout_ns < 0 ? -1 : detail::MonotonicNs() + timeout_ns;
  PoolScope scope(*this);
  bool searching = false;
  detail::IdleSpin spin;
  while (!latch.done()) {
    if (helps) {
      if (const Work work = FindWork(worker)) {
        if (std::exchange(searching, false)) StopSearching();
        Run(work);
        spin.Worked(/*on_loop=*/work.loop, detail::Ticks());
        continue;
      }
    }
    if (deadline_ns >= 0 && detail::MonotonicNs() >= deadline_ns) break;
    if (spin.Goes(detail::Ticks(), /*crowded=*/false, spin_times())) {
      detail::CpuRelax();
      continue;
    }
    // Sleeps in two lists at once: the latch's, and the pool's for new work.
    detail::IdleThread sleeper;
    detail::LatchSleeper latch_sleeper{nullptr, &sleeper.parker};
    if (!latch.Enlist(latch_sleeper)) break;
    if (helps) idle_.Enlist(sleeper);
    if (std::exchange(searching, false)) idle_.StopSearching();
    const bool has_work = helps && HasWork();
    if (!has_work) {
      const detail::EngineScope waiting("wait");
      sleeper.parker.Wait(deadline_ns);
    }
    latch.Delist(latch_sleeper);
    // A thread that was woken for work counts as searching, and so does one that stays awake for
    // work: its submitter may have seen this thread search, and wakes no other. If the thread
    // leaves without taking work, StopSearching wakes another thread for what is left.
    if (helps) {
      searching = !idle_.Delist(sleeper);
      if (has_work && !std::exchange(searching, true)) idle_.StartSearching();
    }
    spin.Woke(sleeper.for_loop, detail::Ticks());
  }
  if (searching) StopSearching();
  return latch.done();
}

// --- loops

OPKIT_INLINE void ThreadPool::RunLoop(int64_t first, int64_t last, int64_t grain,
                                      detail::RangeFunction body) {
  OPKIT_ASSERT(grain > 0);
  if (first >= last) return;
  const int64_t chunks = (last - first - 1) / grain + 1;
  const int64_t spare = threads() - 1;
  const int64_t helpers = (std::min)(chunks - 1, spare);
  if (helpers == 0) return detail::RunChunksInOrder(first, last, grain, body);
  detail::ParallelLoop loop(first, last, grain, chunks, body);
  WakeForLoop(loops_.Post(loop, static_cast<int>(helpers)));
  loop.RunChunks(loops_.mutex());
  loops_.Finish(loop, spin_times().after_loop);
}

// --- fork

OPKIT_INLINE void ThreadPool::HandleFork() {
  const auto in_child = [] {
    detail::g_pools.mutex.ResetAfterFork();
    detail::Latch::ForgetSleepers();
    detail::t_pool.worker = nullptr;
    for (ThreadPool* pool = detail::g_pools.first; pool; pool = pool->registry_next_)
      pool->ResetAfterFork();
  };
  pthread_atfork([] { detail::g_pools.mutex.Lock(); }, [] { detail::g_pools.mutex.Unlock(); },
                 in_child);
}

OPKIT_INLINE void ThreadPool::ResetAfterFork() {
  start_mutex_.ResetAfterFork();
  running_ = 0;
  for (int i = 0; i < slots_; ++i) {
    workers_[i].load()->running = false;
    workers_[i].load()->deque.ResetAfterFork();
  }
  injected_.ResetAfterFork();
  loops_.ResetAfterFork();
  idle_.ResetAfterFork();
}

}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_THREAD_POOL_IPP_

// ---- opkit/engine/impl/parallel_for.ipp
// How a parallel loop chooses its chunks, and the threads that run them.
#ifndef OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_
#define OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Runs the loop from its start, in pieces that grow fourfold, until one piece lasts long enough to
// be measured. A loop too short to repay a wake-up ends here; the rest of a longer loop is shared
// in chunks of equal work.
template <class RunLoop>
void RunMeasuredLoop(int threads, int64_t n, RangeFunction body, RunLoop run_loop) {
  constexpr uint64_t kTellingTicks = 2'000;
  constexpr double kWorthSharingTicks = 12'000;  // waking a sleeper takes about that long
  constexpr double kChunkTicks = 25'000;
  int64_t piece = 1;
  int64_t done = 0;
  uint64_t elapsed = 0;
  for (uint64_t start = Ticks();;) {
    const int64_t end = n - done > piece ? done + piece : n;
    body(done, end);
    if (end == n) return;
    piece = end - done;
    done = end;
    const uint64_t now = Ticks();
    elapsed = now - start;
    if (elapsed >= kTellingTicks) break;
    start = now;
    if (piece <= n / 4) piece *= 4;
  }
  const double index_ticks = static_cast<double>(elapsed) / static_cast<double>(piece);
  const int64_t rest = n - done;
  if (index_ticks * static_cast<double>(rest) < kWorthSharingTicks) return body(done, n);
  // At least four chunks a thread, so that the threads end together.
  const int64_t most = (rest - 1) / (int64_t{4} * threads) + 1;
  const double wanted = kChunkTicks / index_ticks;
  const int64_t grain = wanted < 1                           ? 1
                        : wanted > static_cast<double>(most) ? most
                                                             : static_cast<int64_t>(wanted);
  run_loop(done, n, grain);
}

inline void RunInPlace(const LoopRunner&, int64_t n, int64_t grain, RangeFunction body) {
  RunChunksInOrder(0, n, grain > 0 ? grain : n, body);
}
inline constexpr LoopRunner kInPlace{&RunInPlace};

// Runs the loop's chunks by one call of `work` for each thread. Each call takes the next chunk that
// is left, so a call may begin late, or after the others have ended.
inline void RunOnForeignThreads(int threads, CallOnThreads run, int64_t first, int64_t last,
                                int64_t grain, RangeFunction body) {
  const int64_t chunks = (last - first - 1) / grain + 1;
  const auto count = static_cast<int>((std::min)(chunks, int64_t{threads}));
  ParallelLoop loop(first, last, grain, chunks, body);
  Mutex mutex;
  const auto work = [&] {
    const auto invocation = InvocationScope::Adopt(loop.invocation);
    const ScopedValue nested(t_loop_runner, &kInPlace);
    loop.RunChunks(mutex);
  };
  run(count, work);
  if (loop.error) std::rethrow_exception(loop.error);
}
OPKIT_COLD inline void RunParallelOn(int threads, CallOnThreads run, int64_t n, int64_t grain,
                                     RangeFunction body) {
  if (threads == 1 || n == 1) return RunInPlace(kInPlace, n, grain, body);
  if (grain > 0) return RunOnForeignThreads(threads, run, 0, n, grain, body);
  RunMeasuredLoop(threads, n, body, [&](int64_t first, int64_t last, int64_t measured) {
    RunOnForeignThreads(threads, run, first, last, measured, body);
  });
}
OPKIT_COLD OPKIT_INLINE void LoopsOnHost::Run(const LoopRunner& self, int64_t n, int64_t grain,
                                              RangeFunction body) {
  const auto& host = static_cast<const LoopsOnHost&>(self);
  RunParallelOn(host.threads_, host.run_, n, grain, body);
}

OPKIT_INLINE void RunParallel(int64_t n, int64_t grain, RangeFunction body) {
  if (t_loop_runner) [[unlikely]]
    return t_loop_runner->run(*t_loop_runner, n, grain, body);
  if (const OwnThreads* own = CurrentOwnThreads()) [[unlikely]]
    return RunParallelOn(own->threads, own->run, n, grain, body);
  ThreadPool& pool = ThreadPool::Current();
  if (grain > 0) return pool.RunLoop(0, n, grain, body);
  if (pool.threads() == 1 || n == 1) return body(0, n);
  RunMeasuredLoop(pool.threads(), n, body, [&](int64_t first, int64_t last, int64_t measured) {
    pool.RunLoop(first, last, measured, body);
  });
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE void SetParallelFor(int threads, detail::RunOnThreads run) {
  if (run && (threads < 1 || threads > ThreadPool::kMaxThreads))
    Throw(ErrorCode::kInvalidArgument, "SetParallelFor with ", threads, " threads; expected 1 to ",
          int{ThreadPool::kMaxThreads});
  static constinit detail::Mutex mutex;
  detail::MutexLock lock(mutex);
  ThreadPool& pool = ThreadPool::Global();
  const detail::OwnThreads* const before = detail::g_own_threads.load();
  const int pool_threads = before ? before->pool_threads : pool.threads();
  const detail::OwnThreads* const now =
      run ? new detail::OwnThreads{threads, std::move(run), pool_threads} : nullptr;
  pool.Resize(now ? 1 : pool_threads);
  detail::g_own_threads.store(now, std::memory_order_release);
  delete before;
}
}}  // namespace opkit

#endif  // OPKIT_ENGINE_IMPL_PARALLEL_FOR_IPP_

// ---- opkit/op/impl/operator_def.ipp
// OperatorDef's definitions: the builder's setters and a node's spelling in messages.
#ifndef OPKIT_OP_IMPL_OPERATOR_DEF_IPP_
#define OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE OperatorDef::OperatorDef(std::string type, std::vector<std::string> inputs,
                                      std::vector<std::string> outputs, Arguments args)
    : OperatorDef(std::move(type)) {
  mutable_inputs() = std::move(inputs);
  mutable_outputs() = std::move(outputs);
  mutable_args() = std::move(args);
}
OPKIT_INLINE const OperatorDef::Fields& OperatorDef::NoFields() {
  static const Fields fields;
  return fields;
}
OPKIT_INLINE OperatorDef::Fields& OperatorDef::mutable_fields() {
  if (shared_.use_count() != 1) shared_ = detail::MakeIntrusive<detail::Shared<Fields>>(fields());
  return shared_->value;
}

OPKIT_INLINE OperatorDef& OperatorDef::Input(std::string name) {
  return mutable_inputs().push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Output(std::string name) {
  return mutable_outputs().push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Inputs(const std::vector<std::string>& names) {
  return mutable_inputs().insert(mutable_inputs().end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Outputs(const std::vector<std::string>& names) {
  return mutable_outputs().insert(mutable_outputs().end(), names.begin(), names.end()), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::ControlInput(std::string name) {
  return mutable_fields().control_inputs.push_back(std::move(name)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Arg(std::string name, Attribute value) {
  return mutable_args().Set(std::move(name), std::move(value)), *this;
}
OPKIT_INLINE OperatorDef& OperatorDef::Subgraph(
    std::string name, detail::IntrusivePtr<const detail::SubgraphBase> graph) {
  if (!graph) Throw(ErrorCode::kInvalidArgument, "subgraph '", name, "' of ", type(), " is null");
  std::vector<detail::NamedSubgraph>& subgraphs = mutable_fields().subgraphs;
  for (detail::NamedSubgraph& known : subgraphs)
    if (known.name == name) return known.graph = std::move(graph), *this;
  return subgraphs.push_back({std::move(name), std::move(graph)}), *this;
}
OPKIT_INLINE const detail::SubgraphBase* OperatorDef::FindSubgraph(std::string_view name) const {
  for (const detail::NamedSubgraph& known : subgraphs())
    if (known.name == name) return known.graph.get();
  return nullptr;
}

OPKIT_INLINE std::string ToString(const OperatorDef& def) {
  auto join = [](const std::vector<std::string>& names) {
    std::string out;
    for (size_t i = 0; i < names.size(); ++i) out += (i ? ", " : "") + names[i];
    return out;
  };
  return StrCat(def.type(), def.name().empty() ? "" : " '" + def.name() + "'", " (",
                join(def.inputs()), ") -> (", join(def.outputs()), ")");
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_DEF_IPP_

// ---- opkit/op/impl/inference.ipp
// InferenceContext's and InferenceCache's definitions: access to a node's values, and merging of
// facts about a value.
#ifndef OPKIT_OP_IMPL_INFERENCE_IPP_
#define OPKIT_OP_IMPL_INFERENCE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE TensorInfo TensorInfo::Of(const Tensor& tensor) {
  TensorInfo info(tensor.dtype(), tensor.shape());
  if (tensor.dtype() > DType::kString && tensor.numel() > 0) [[unlikely]] {
    const Tensor& first = *static_cast<const Tensor*>(tensor.raw_data());
    info.holds_sequence = first.dtype() == DType::kSequence;
    info.element = info.holds_sequence ? Of(first).element : first.dtype();
  }
  info.device = tensor.device();
  info.layout = tensor.layout();
  return info;
}
OPKIT_INLINE TensorInfo TensorInfo::OfConstant(const Tensor& tensor) {
  TensorInfo info = Of(tensor);
  if (tensor.initialized()) info.constant = &tensor;
  return info;
}
OPKIT_INLINE std::string ToString(const TensorInfo& info) {
  const std::string element = info.element == DType::kUndefined
                                  ? ""
                                  : StrCat(info.element, info.holds_sequence ? "[]" : "");
  return StrCat(info.dtype == DType::kUndefined ? "?" : ToString(info.dtype),
                element.empty() ? "" : "<" + element + ">", info.shape,
                info.layout.is_standard() ? "" : " in " + ToString(info.layout));
}

OPKIT_INLINE InferenceContext::InferenceContext(const OperatorDef& def,
                                                std::vector<TensorInfo> inputs,
                                                std::vector<TensorInfo> outputs)
    : def_(def), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  outputs_.resize(def.outputs().size());
}

namespace detail {

// Merges a dtype and shape into the known facts about an input or output.
inline void Refine(const OperatorDef& def, TensorInfo& info, const char* what, int i, DType dtype,
                   const SymbolicShape& shape) {
  // The new shape comes first: Merge keeps the first of two symbols, so that a later comparison of
  // this value with another value sees both.
  auto merged = SymbolicShape::Merge(shape, info.shape);
  if (info.dtype != DType::kUndefined && dtype != DType::kUndefined && info.dtype != dtype)
    Throw(ErrorCode::kTypeMismatch, what, " ", i, " of ", def, " is ", info, ", expected dtype ",
          dtype);
  if (!merged)
    Throw(ErrorCode::kInvalidArgument, what, " ", i, " of ", def, " is ", info,
          ", but inference finds ", TensorInfo(dtype, shape));
  info.shape = *std::move(merged);
  if (dtype != DType::kUndefined) info.dtype = dtype;
}

}  // namespace detail

OPKIT_INLINE const Attribute* detail::DefaultOf(
    const std::vector<detail::AttributeSchema>* declared, std::string_view name) {
  if (declared)
    for (const detail::AttributeSchema& attribute : *declared)
      if (attribute.name == name && attribute.default_value) return &*attribute.default_value;
  return nullptr;
}

OPKIT_INLINE const Tensor* InferenceContext::input_constant(int i) const {
  const Tensor* known = input(i).constant;
  if (!known && find_constant_) known = (*find_constant_)(i);
  lacks_data_ |= !known && HasInput(i);
  return known;
}
OPKIT_INLINE void InferenceContext::SetOutput(int i, DType dtype, const SymbolicShape& shape) {
  detail::Refine(def_, outputs_[Check(i, outputs_.size(), "output")], "output", i, dtype, shape);
}
OPKIT_INLINE void InferenceContext::SetOutput(int i, const TensorInfo& info) {
  SetOutput(i, info.dtype, info.shape);
  TensorInfo& output = outputs_[detail::Index(i)];
  if (output.element != DType::kUndefined && info.element != DType::kUndefined &&
      output.element != info.element)
    Throw(ErrorCode::kTypeMismatch, "output ", i, " of ", def_, " is ", output,
          ", but inference finds ", info);
  if (info.element == DType::kUndefined) return;
  output.element = info.element;
  output.holds_sequence = info.holds_sequence;
}
OPKIT_INLINE void InferenceContext::SetInput(int i, DType dtype, const SymbolicShape& shape) {
  detail::Refine(def_, inputs_[Check(i, inputs_.size(), "input")], "input", i, dtype, shape);
}
OPKIT_INLINE void InferenceContext::SetOutputData(int i, const Tensor& data) {
  SetOutput(i, data.dtype(), data.shape());
  output_data_.resize(outputs_.size());
  output_data_[detail::Index(i)] = data;
}
OPKIT_INLINE const Tensor* InferenceContext::output_data(int i) const {
  const size_t at = detail::Index(i);
  return at < output_data_.size() && output_data_[at].dtype() != DType::kUndefined
             ? &output_data_[at]
             : nullptr;
}

OPKIT_INLINE size_t InferenceContext::Check(int i, size_t count, const char* what) {
  if (i < 0 || detail::Index(i) >= count)
    Throw(ErrorCode::kOutOfRange, what, " ", i, " of a node that has ", count);
  return detail::Index(i);
}
namespace detail {

inline void Record(std::span<const TensorInfo> infos, std::vector<InferenceCache::Output>& out) {
  out.clear();
  for (const TensorInfo& info : infos) {
    const bool known = info.shape.is_known();
    out.push_back({info.dtype, known, known ? info.shape.ToShape() : Shape()});
  }
}
inline bool AreKnown(std::span<const TensorInfo> infos, const std::vector<std::string>& names) {
  for (size_t i = 0; i < infos.size(); ++i)
    if (!names[i].empty() && (infos[i].dtype == DType::kUndefined || !infos[i].shape.is_known()))
      return false;
  return true;
}

OPKIT_INLINE void InferenceCache::Infer(const OperatorDef& def, InputPointers inputs,
                                        FunctionRef<void(InferenceContext&)> infer,
                                        FunctionRef<void()> before_data) {
  fresh_ = data_read_ = false;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < def.inputs().size(); ++i) {
    const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
    infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
  }
  Record(infos, inputs_);
  auto data_of = [&](int i) -> const Tensor* {
    const Tensor* input = inputs[Index(i)];
    if (!input || !IsHostAccessible(input->device().type)) return nullptr;
    if (!input->initialized())
      Throw(ErrorCode::kUninitialized, "input ", i, " '", def.inputs()[Index(i)], "' is ",
            ToString(*input), ": nothing was written to it");
    if (!data_read_) before_data();
    data_read_ = true;
    return input;
  };
  InferenceContext context(def, std::move(infos), planned_);
  context.ReadConstantsFrom(data_of);
  infer(context);
  Record(context.outputs(), outputs_);
  ++version_;
}
OPKIT_INLINE void InferenceCache::Set(const OperatorDef& def, std::span<const TensorInfo> inputs,
                                      std::span<const TensorInfo> outputs, bool lacks_data) {
  if (inputs.size() != def.inputs().size() || outputs.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "SetInferredOutputs of operator ", def,
          " is given types of ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  planned_.clear();
  if (lacks_data)
    for (const TensorInfo& output : outputs) planned_.emplace_back(output.dtype, output.shape);
  if (lacks_data || !AreKnown(inputs, def.inputs()) || !AreKnown(outputs, def.outputs())) return;
  Record(inputs, inputs_);
  Record(outputs, outputs_);
  ++version_;
  fresh_ = true;
}

OPKIT_INLINE void ThrowContradicts(const OperatorDef& def, std::string_view output,
                                   const Tensor& made, const TensorInfo& inferred) {
  Throw(ErrorCode::kOperatorFailed, "operator ", def, " made '", output, "' ",
        ToString(TensorInfo::Of(made)), ", where its inference says ", ToString(inferred),
        "; make what is inferred, or leave open in the inference what the run decides");
}
OPKIT_INLINE void ThrowOtherLayout(const OperatorDef& def, std::string_view output,
                                   const Tensor& made, const Layout& promised) {
  Throw(ErrorCode::kOperatorFailed, "operator ", def, " made '", output, "' ", made,
        ", where the configuration of its kernel says layout ", ToString(promised),
        "; Output(i, shape, dtype) gives a tensor in the layout that was proposed");
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INFERENCE_IPP_

// ---- opkit/op/impl/schema.ipp
// OpSchema's definitions: the rules for verifying nodes with their messages, ready-made inference,
// and the cost of a node.
#ifndef OPKIT_OP_IMPL_SCHEMA_IPP_
#define OPKIT_OP_IMPL_SCHEMA_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE void CountRule::SetList(std::initializer_list<int> allowed) {
  list_ = std::vector<int>(allowed);
  predicate_ = {};
}
OPKIT_INLINE void CountRule::SetPredicate(UniqueFunction<bool(int)> allowed) {
  list_.clear();
  predicate_ = std::move(allowed);
}
OPKIT_INLINE bool CountRule::Allows(int count) const {
  if (count < min_ || count > max_ || (predicate_ && !predicate_(count))) return false;
  return list_.empty() || Contains(list_, count);
}
OPKIT_INLINE std::string CountRule::Describe() const {
  if (!list_.empty()) return StrCat("one of ", list_);
  if (predicate_) return "a number that its schema's function allows";
  if (min_ == max_) return StrCat(min_);
  if (max_ >= kAny) return min_ == 0 ? "any number" : StrCat("at least ", min_);
  return StrCat(min_, " to ", max_);
}

OPKIT_INLINE int ArityRules::OutputsOf(int num_inputs) const {
  return outputs_of_inputs ? outputs_of_inputs(num_inputs) : outputs.fixed();
}
OPKIT_INLINE int ArityRules::OutputsOf(int num_inputs, const Arguments& args) const {
  const int outs = of_arguments ? of_arguments(args, {}).second : -1;
  return outs >= 0 ? outs : OutputsOf(num_inputs);
}
OPKIT_INLINE std::pair<int, int> ArityRules::Of(const Arguments& args) const {
  auto [ins, outs] = of_arguments ? of_arguments(args, {}) : std::pair(-1, -1);
  if (ins < 0) ins = inputs.fixed();
  if (outs < 0) outs = outputs.fixed();
  if (outs < 0 && ins >= 0) outs = OutputsOf(ins);
  return {ins, outs};
}
OPKIT_INLINE std::string ArityRules::Verify(const std::string& op, const OperatorDef& def,
                                            bool needs_subgraph) const {
  const int ins = static_cast<int>(def.inputs().size());
  const int outs = static_cast<int>(def.outputs().size());
  auto wrong = [&](const char* what, int found, const std::string& expected) {
    return StrCat(op, " has ", found, " ", what, ", expected ", expected);
  };
  if (!inputs.Allows(ins)) return wrong("inputs", ins, inputs.Describe());
  if (!outputs.Allows(outs)) return wrong("outputs", outs, outputs.Describe());
  if (pair_allowed && !pair_allowed(ins, outs))
    return StrCat(op, " does not take ", ins, " inputs together with ", outs, " outputs");
  if (outputs_of_inputs && outputs_of_inputs(ins) != outs)
    return wrong("outputs", outs, StrCat(outputs_of_inputs(ins), " for ", ins, " inputs"));
  if (!of_arguments) return {};
  const auto [want_ins, want_outs] = of_arguments(def.args(), def.subgraphs());
  if (want_ins >= 0 && ins != want_ins)
    return wrong("inputs", ins, StrCat(want_ins, " with these attributes"));
  if (want_outs >= 0 && outs != want_outs)
    return wrong("outputs", outs, StrCat(want_outs, " with these attributes"));
  if (!needs_subgraph || def.subgraphs().size() != 1) return {};
  const auto [body_ins, body_outs] = def.subgraphs()[0].graph->Arity();
  if ((want_ins < 0 && body_ins >= 0 && ins != body_ins) ||
      (want_outs < 0 && body_outs >= 0 && outs != body_outs))
    return StrCat(op, " has ", ins, " inputs and ", outs, " outputs, but the graph '",
                  def.subgraphs()[0].name, "' that it carries has ", body_ins, " and ", body_outs);
  return {};
}

OPKIT_INLINE InplaceRules::Predicate InplaceRules::AnyOf(
    std::initializer_list<std::pair<int, int>> pairs) {
  return [list = std::vector<std::pair<int, int>>(pairs)](int input, int output) {
    return Contains(list, std::pair(input, output));
  };
}
OPKIT_INLINE std::string InplaceRules::Verify(const std::string& op, const OperatorDef& def) const {
  for (int in = 0; const std::string& input : def.inputs()) {
    for (int out = 0; const std::string& output : def.outputs()) {
      const bool same = !input.empty() && input == output;
      if (same && !May(in, out))
        return StrCat(op, " may not run in place: input ", in, " and output ", out, " are both '",
                      output, "'");
      if (!same && Must(in, out))
        return StrCat(op, " must run in place: input ", in, " is '", input, "' and output ", out,
                      " is '", output, "'");
      ++out;
    }
    ++in;
  }
  return {};
}

OPKIT_INLINE const AttributeSchema* AttributeRules::Find(std::string_view name) const {
  for (const AttributeSchema& attribute : declared)
    if (attribute.name == name) return &attribute;
  return nullptr;
}
OPKIT_INLINE std::string AttributeRules::Suggest(std::string_view name) const {
  std::vector<std::string> known;
  for (const AttributeSchema& attribute : declared) known.push_back(attribute.name);
  return SuggestName(name, known);
}
OPKIT_INLINE std::string AttributeRules::Verify(const std::string& op,
                                                const Arguments& args) const {
  for (const AttributeSchema& attribute : declared) {
    const Attribute* given = args.Find(attribute.name);
    if (!given && attribute.required) {
      std::string undeclared;  // may be a misspelling of attribute.name
      for (const NamedAttribute& arg : args)
        if (!Takes(arg.name))
          undeclared +=
              StrCat("; '", arg.name, "' was given, which is not declared", Suggest(arg.name));
      return StrCat(op, " needs the argument '", attribute.name, "'",
                    attribute.doc.empty() ? "" : " (" + attribute.doc + ")", undeclared);
    }
    if (!given) continue;
    if (attribute.type && !given->ReadsAs(*attribute.type))
      return StrCat("argument '", attribute.name, "' of ", op, " is ", given->type(), " (", *given,
                    "), expected ", *attribute.type);
    if (const std::string* wrong = attribute.FindOther(*given))
      return StrCat("argument '", attribute.name, "' of ", op, " is '", *wrong,
                    "', which is none of its values", SuggestName(*wrong, attribute.values));
  }
  for (const NamedAttribute& arg : args)
    if (!Takes(arg.name))
      return StrCat(op, " has no argument '", arg.name, "'",
                    declared.empty() ? "; its schema declares none: .Arg<float>(\"name\", …) "
                                       "declares one, .AllowUncheckedAttributes() takes any"
                                     : Suggest(arg.name));
  return {};
}

inline void InferLike(InferenceContext& context, int input, int output) {
  context.SetOutput(output, context.input_dtype(input), context.input_shape(input));
  context.SetInput(input, context.output(output).dtype, context.output(output).shape);
}
inline void Describe(std::vector<ValueSchema>& values, int i, ValueSchema value) {
  if (values.size() <= Index(i)) values.resize(Index(i) + 1);
  values[Index(i)] = std::move(value);
}
OPKIT_INLINE void CheckDTypes(const char* what, const std::vector<ValueSchema>& declared,
                              const std::vector<TensorInfo>& infos, DType last) {
  for (size_t i = 0; i < infos.size(); ++i) {
    const DType found = infos[i].dtype;
    // The values behind the last described value are more of its kind.
    const ValueSchema* const value = i < declared.size() ? &declared[i]
                                     : declared.empty()  ? nullptr
                                                         : &declared.back();
    const bool limited = i < declared.size() && !value->dtypes.empty();
    if (limited ? value->Allows(found)
                : !IsObject(found) || found <= last || (value && value->Allows(found))) [[likely]]
      continue;
    const std::string name = i < declared.size() ? StrCat(" '", value->name, "'") : std::string();
    if (limited)
      Throw(ErrorCode::kTypeMismatch, what, " ", i, name, " is ", infos[i], ", expected one of ",
            value->dtypes);
    Throw(ErrorCode::kTypeMismatch, what, " ", i, name, " is ", infos[i],
          last == DType::kString ? ", expected a tensor" : ", expected a tensor of numbers");
  }
}
inline bool LimitsDTypes(const std::vector<ValueSchema>& values) {
  for (const ValueSchema& value : values)
    if (!value.dtypes.empty()) return true;
  return false;
}
inline OpCost Traffic(const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) {
  OpCost cost;
  for (const TensorInfo& input : inputs) cost.bytes_read += OpSchema::Bytes(input);
  for (const TensorInfo& output : outputs) cost.bytes_written += OpSchema::Bytes(output);
  return cost;
}

}  // namespace detail

OPKIT_INLINE OpSchema::OpSchema(std::string name, const char* file, int line, std::string signature)
    : name_(std::move(name)), file_(file), line_(line), signature_(std::move(signature)) {}

OPKIT_INLINE OpSchema& OpSchema::MutatesInputs(std::initializer_list<int> inputs) {
  return MutatesInputs([list = std::vector<int>(inputs)](const OperatorDef&) { return list; });
}
OPKIT_INLINE OpSchema& OpSchema::Arg(std::string name, std::string doc,
                                     std::initializer_list<const char*> values) {
  const Attribute first(*values.begin());
  return Arg({std::move(name),
              std::move(doc),
              false,
              AttributeType::kString,
              first,
              {values.begin(), values.end()}});
}
OPKIT_INLINE OpSchema& OpSchema::RequiredArg(std::string name, std::string doc,
                                             std::initializer_list<const char*> values) {
  return Arg({std::move(name),
              std::move(doc),
              true,
              AttributeType::kString,
              {},
              {values.begin(), values.end()}});
}
OPKIT_INLINE OpSchema& OpSchema::Arg(detail::AttributeSchema attribute) {
  return attributes_.declared.push_back(std::move(attribute)), *this;
}
OPKIT_INLINE detail::AttributeSchema* OpSchema::Declared(std::string_view name,
                                                         const char* to_give) {
  for (detail::AttributeSchema& attribute : attributes_.declared)
    if (attribute.name == name) return &attribute;
  problem_ = StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                    " has no argument '", name, "' to give ", to_give);
  return nullptr;
}
OPKIT_INLINE OpSchema& OpSchema::Default(std::string_view name, Attribute value) {
  if (detail::AttributeSchema* found = Declared(name, "a default")) {
    found->required = false;
    found->default_value = std::move(value);
  }
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::Values(std::string_view name, std::vector<std::string> values) {
  if (detail::AttributeSchema* found = Declared(name, "values")) found->values = std::move(values);
  return *this;
}

OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShape() {
  return Infer([](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) detail::InferLike(c, i, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInput(int input) {
  return Infer([input](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) detail::InferLike(c, input, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
  return Infer([inputs = std::move(inputs)](InferenceContext& c) {
    for (int i = 0; int input : inputs) detail::InferLike(c, input, i++);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInputDim(int input, int dim) {
  return Infer([=](InferenceContext& c) {
    const SymbolicShape& in = c.input_shape(input);
    const int axis = in.has_rank() && dim < 0 ? dim + in.rank() : dim;
    if (in.has_rank() && (axis < 0 || axis >= in.rank()))
      Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", in, ", which has no axis ",
            dim);
    c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[axis] : Dim()});
  });
}
OPKIT_INLINE OpSchema& OpSchema::ScalarType(DType dtype) {
  return Infer([dtype](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
  });
}
OPKIT_INLINE OpSchema& OpSchema::PointwiseCost(uint64_t flops) {
  return Cost([flops](const OperatorDef&, const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) {
    OpCost cost = detail::Traffic(inputs, outputs);
    if (!outputs.empty()) cost.flops = flops * Elements(outputs[0]);
    return cost;
  });
}
OPKIT_INLINE OpSchema& OpSchema::Flops(UniqueFunction<uint64_t(const InferenceContext&)> flops) {
  flops_ = std::move(flops);
  return Cost(CostFunction());
}
OPKIT_INLINE OpSchema& OpSchema::Input(int i, std::string name, std::string doc,
                                       std::vector<DType> dtypes) {
  detail::Describe(inputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::Output(int i, std::string name, std::string doc,
                                        std::vector<DType> dtypes) {
  detail::Describe(outputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}

OPKIT_INLINE std::string OpSchema::problem() const {
  if (!problem_.empty()) return problem_;
  for (const detail::AttributeSchema& attribute : attributes_.declared)
    if (attribute.default_value)
      if (const std::string* wrong = attribute.FindOther(*attribute.default_value))
        return StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                      " gives the argument '", attribute.name, "' the default '", *wrong,
                      "', which is none of its values", SuggestName(*wrong, attribute.values));
  return {};
}
OPKIT_INLINE std::string OpSchema::Verify(const OperatorDef& def) const {
  if (std::string why = problem(); !why.empty()) return why;
  if (std::string why = arity_.Verify(name_, def, needs_subgraph_); !why.empty()) return why;
  if (std::string why = inplace_.Verify(name_, def); !why.empty()) return why;
  if (needs_subgraph_ && def.subgraphs().empty())
    return StrCat(name_,
                  " runs a graph that its node carries, and this node carries none; give it ",
                  "one (OperatorDef::Subgraph)");
  return VerifyArguments(def.args());
}
OPKIT_INLINE bool OpSchema::limits_dtypes() const {
  return detail::LimitsDTypes(inputs_) || detail::LimitsDTypes(outputs_);
}
OPKIT_INLINE std::vector<int> OpSchema::MutatedInputs(const OperatorDef& def) const {
  if (mutates_) return mutates_(def);
  if (needs_subgraph_ && def.subgraphs().size() == 1)
    return def.subgraphs()[0].graph->MutatedInputs();
  return {};
}
OPKIT_INLINE void OpSchema::Infer(InferenceContext& context) const {
  context.SetDeclared(attributes_.declared);
  bool known = true;
  for (int i = 0; i < context.num_inputs(); ++i)
    known &= !context.HasInput(i) || context.input(i).shape.is_known();
  const auto fail = [&] {
    std::string inputs;
    for (const TensorInfo& input : context.inputs()) inputs += " " + ToString(input);
    detail::RethrowInContext(
        StrCat("in shape inference of ", context.def(), " with inputs", inputs));
  };
  try {
    const bool runs_graphs = needs_subgraph_ || runs_subgraphs_;  // they check their own values
    const DType last = runs_graphs      ? DType::kOptional
                       : takes_strings_ ? DType::kString
                                        : DType::kUndefined;
    detail::CheckDTypes("input", inputs_, context.inputs(), last);
    if (infer_ && (known || !needs_all_shapes_)) infer_(context);
    if (!infer_ && needs_subgraph_ && context.def().subgraphs().size() == 1)
      context.def().subgraphs()[0].graph->Infer(context);
    std::vector<TensorInfo>& outputs = context.outputs();
    for (size_t o = 0; o < outputs.size() && o < outputs_.size(); ++o)
      if (outputs[o].dtype == DType::kUndefined && outputs_[o].dtypes.size() == 1)
        outputs[o].dtype = outputs_[o].dtypes[0];
    detail::CheckDTypes("output", outputs_, outputs, last);
  } catch (const detail::NotKnownYet&) {
    if (known) fail();  // else the shapes cannot be inferred yet
  } catch (...) {
    fail();
  }
}
OPKIT_INLINE std::vector<TensorInfo> OpSchema::InferOutputs(const OperatorDef& def,
                                                            std::vector<TensorInfo> inputs) const {
  InferenceContext context(def, std::move(inputs));
  Infer(context);
  return std::move(context.outputs());
}
OPKIT_INLINE OpCost OpSchema::Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                                   const std::vector<TensorInfo>& outputs) const {
  if (cost_) return cost_(def, inputs, outputs);
  OpCost cost = detail::Traffic(inputs, outputs);
  if (!flops_) return cost;
  auto known = [](const TensorInfo& info) { return info.shape.is_known(); };
  bool all = std::ranges::all_of(outputs, known);
  for (size_t i = 0; i < inputs.size(); ++i) all &= known(inputs[i]) || def.inputs()[i].empty();
  InferenceContext context(def, inputs, outputs);
  context.SetDeclared(attributes_.declared);
  if (all) cost.flops = flops_(context);
  return cost;
}
OPKIT_COLD OPKIT_INLINE OpSchema& OpSchema::InputsOnHost(std::vector<int> inputs) {
  devices_ = [inputs = std::move(inputs)](const OperatorDef& def) {
    DevicePlacement placement{std::vector<Device>(def.inputs().size(), def.device()),
                              std::vector<Device>(def.outputs().size(), def.device())};
    for (const int i : inputs)
      if (def.device().type != DeviceType::kCPU && detail::Index(i) < placement.first.size())
        placement.first[detail::Index(i)] = Device{};
    return placement;
  };
  return *this;
}
OPKIT_INLINE OpSchema::DevicePlacement OpSchema::InferDevices(const OperatorDef& def) const {
  if (devices_) return devices_(def);
  return {std::vector<Device>(def.inputs().size(), def.device()),
          std::vector<Device>(def.outputs().size(), def.device())};
}

OPKIT_INLINE uint64_t OpSchema::Elements(const TensorInfo& info) {
  return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
}
OPKIT_INLINE uint64_t OpSchema::Bytes(const TensorInfo& info) {
  constexpr uint64_t kMost = ~uint64_t{0} >> 1;
  uint64_t bits = 0;
  const auto item = static_cast<uint64_t>(BitSize(info.dtype));
  if (!__builtin_mul_overflow(Elements(info), item, &bits)) return bits / 8 + (bits % 8 != 0);
  uint64_t bytes = 0;
  return __builtin_mul_overflow(Elements(info), item / 8, &bytes) || bytes > kMost ? kMost : bytes;
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_SCHEMA_IPP_

// ---- opkit/base/name_map.hpp
// NameMap: values by name, in alphabetical order. Registries keep their rows in it. The functions
// of std::map are compiled again for every type of value; the search here is compiled once.
#ifndef OPKIT_BASE_NAME_MAP_HPP_
#define OPKIT_BASE_NAME_MAP_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Base class of the rows of every NameMap.
struct NamedRow {
  explicit NamedRow(std::string_view row_name) : name(row_name) {}
  const std::string name;
};
// Rows in alphabetical order, each allocated on its own. The functions below serve every NameMap.
using NamedRows = std::vector<NamedRow*>;
// Returns the place of the first row whose name is not less than `name`.
size_t LowerRow(const NamedRows& rows, std::string_view name);
// True if the row at `at` has the name; `at` may be the end.
inline bool IsRow(const NamedRows& rows, size_t at, std::string_view name) {
  return at < rows.size() && rows[at]->name == name;
}
// Returns null if no row has the name.
NamedRow* FindRow(const NamedRows& rows, std::string_view name);
// Reserves room for one more row, so that the next InsertRow does not throw.
void GrowRows(NamedRows& rows);
void InsertRow(NamedRows& rows, size_t at, NamedRow* row);
void EraseRow(NamedRows& rows, size_t at);
OPKIT_COLD std::vector<std::string> NamesOf(const NamedRows& rows);

}  // namespace detail

// A vector of pointers, sorted by name: a search takes log2(size) comparisons, an insertion moves
// the pointers behind it. References to values and names stay valid until their row is erased. Not
// synchronised.
//
//   NameMap<int> ranks;
//   ranks["eigen"] = 1;
//   if (const int* rank = ranks.Find("onednn")) …
//   for (const auto& row : ranks) Use(row.name, row.value);
template <class T>
class NameMap {
 public:
  struct Row : detail::NamedRow {
    using NamedRow::NamedRow;
    T value{};
  };
  // R is Row or const Row.
  template <class R>
  struct Iterator {
    R& operator*() const { return static_cast<R&>(**at); }
    R* operator->() const { return &**this; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
    detail::NamedRow* const* at;
  };

  NameMap() = default;
  NameMap(NameMap&&) = delete;
  ~NameMap() {
    for (detail::NamedRow* row : rows_) delete static_cast<Row*>(row);
  }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  Iterator<Row> begin() { return {rows_.data()}; }
  Iterator<Row> end() { return {rows_.data() + rows_.size()}; }
  Iterator<const Row> begin() const { return {rows_.data()}; }
  Iterator<const Row> end() const { return {rows_.data() + rows_.size()}; }

  // Returns null if the name has no value.
  T* Find(std::string_view name) { return ValueOf(detail::FindRow(rows_, name)); }
  const T* Find(std::string_view name) const { return ValueOf(detail::FindRow(rows_, name)); }
  bool Has(std::string_view name) const { return detail::FindRow(rows_, name); }
  // Returns the name's row; adds one with a value-initialised value if there is none.
  Row& RowOf(std::string_view name) {
    const size_t at = detail::LowerRow(rows_, name);
    if (detail::IsRow(rows_, at, name)) return static_cast<Row&>(*rows_[at]);
    detail::GrowRows(rows_);
    Row* const row = new Row(name);
    detail::InsertRow(rows_, at, row);
    return *row;
  }
  T& operator[](std::string_view name) { return RowOf(name).value; }
  // Returns false if the name has no value.
  bool Erase(std::string_view name) {
    const size_t at = detail::LowerRow(rows_, name);
    if (!detail::IsRow(rows_, at, name)) return false;
    Drop(at);
    return true;
  }
  // Erases the rows for which `is_dead(row)` is true; returns true if there were any. Calls
  // `is_dead` once for each row.
  template <class Predicate>
  bool EraseIf(Predicate is_dead) {
    const size_t before = rows_.size();
    for (size_t at = 0; at < rows_.size();)
      if (is_dead(static_cast<Row&>(*rows_[at])))
        Drop(at);
      else
        ++at;
    return rows_.size() != before;
  }
  // Returns the names in alphabetical order.
  std::vector<std::string> Names() const { return detail::NamesOf(rows_); }

 private:
  void Drop(size_t at) {
    Row* const row = static_cast<Row*>(rows_[at]);
    detail::EraseRow(rows_, at);
    delete row;
  }
  static T* ValueOf(detail::NamedRow* row) {
    return row ? &static_cast<Row*>(row)->value : nullptr;
  }

  detail::NamedRows rows_;
};

}}  // namespace opkit

#endif  // OPKIT_BASE_NAME_MAP_HPP_

// ---- opkit/base/registration/source_place.hpp
// SamePlace: true if two registrations stand at the same place of the source. Registries need this
// because a header with a registration registers once in every unit that includes the header.
#ifndef OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_
#define OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the folder and name of a header ("ops/exp.hpp"), the whole path of any other file. An
// installed header and the copy in a library's build share only these two parts of the path.
OPKIT_COLD inline std::string_view PlaceOfFile(std::string_view file) {
  while (file.substr(0, 2) == "./") file.remove_prefix(2);
  const size_t dot = file.rfind('.');
  if (dot == file.npos || file.substr(dot + 1, 1) != "h") return file;
  const size_t name = file.rfind('/');
  const size_t folder = name == file.npos || name == 0 ? file.npos : file.rfind('/', name - 1);
  return folder == file.npos ? file : file.substr(folder + 1);
}
OPKIT_COLD inline bool SamePlace(std::string_view file_a, int line_a, std::string_view file_b,
                                 int line_b) {
  return line_a == line_b && PlaceOfFile(file_a) == PlaceOfFile(file_b);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_REGISTRATION_SOURCE_PLACE_HPP_

// ---- opkit/op/impl/op_registry.ipp
// OpRegistry's definitions: the table of operators, its lookups, and the messages for mistakes.
#ifndef OPKIT_OP_IMPL_OP_REGISTRY_IPP_
#define OPKIT_OP_IMPL_OP_REGISTRY_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE bool HasOwnRegistries() {
  char* volatile marker = &opkit_image_is_library;
  return marker;
}
inline void CheckModes() {
  if (ImageMixesModes()) Throw(ErrorCode::kFailedPrecondition, kMixedModes);
}
inline std::string SchemaPlace(const OpSchema& schema) {
  return StrCat(schema.file(), ":", schema.line());
}

// The users of the registry and the removal that waits for them. A waiting removal does not block
// new users. A user may start threads that also use the registry and wait for these threads; if
// they waited for the removal, nothing would go on.
struct RegistryUsers {
  Mutex mutex;  // held by a removal for as long as it lasts
  int64_t count = 0;
  Parker* removal = nullptr;  // wakes the waiting removal after the last user
};
OPKIT_IMAGE_LOCAL inline constinit RegistryUsers g_registry_users;
OPKIT_IMAGE_LOCAL inline constinit thread_local int t_registry_uses = 0;

OPKIT_INLINE RegistryUse::RegistryUse() {
  if (t_registry_uses++ > 0) return;
  MutexLock lock(g_registry_users.mutex);
  ++g_registry_users.count;
}
OPKIT_INLINE RegistryUse::~RegistryUse() {
  if (--t_registry_uses > 0) return;
  Parker::Address sleeper = nullptr;
  {
    MutexLock lock(g_registry_users.mutex);
    if (--g_registry_users.count == 0 && g_registry_users.removal)
      sleeper = std::exchange(g_registry_users.removal, nullptr)->Set();
  }
  if (sleeper) Parker::Wake(sleeper);
}
// A copy of all preferences, which KeepPreferences makes.
struct KeptPreferences : RefCounted {
  BackendPreference first;
  NameMap<BackendPreference> by_key;
};
OPKIT_IMAGE_LOCAL inline constinit thread_local const RefCounted* t_preferences = nullptr;
inline const KeptPreferences* PreferencesOfThread() {
  return static_cast<const KeptPreferences*>(t_preferences);
}

OPKIT_INLINE PreferenceScope::PreferenceScope(const RefCounted& preferences)
    : preferences_(t_preferences, &preferences) {}

OPKIT_INLINE bool RegistryUse::IsInThisThread() { return t_registry_uses > 0; }

OPKIT_INLINE RegistryRemoval::RegistryRemoval() {
  ++t_registry_uses;  // so that calls inside the removal do not wait for it
  for (;;) {
    Parker parker;
    g_registry_users.mutex.Lock();
    if (g_registry_users.count == 0) return;
    g_registry_users.removal = &parker;
    g_registry_users.mutex.Unlock();
    parker.Wait();
  }
}
OPKIT_INLINE RegistryRemoval::~RegistryRemoval() {
  --t_registry_uses;
  g_registry_users.mutex.Unlock();
}

}  // namespace detail

// All data of the registry, behind one lock.
struct OpRegistry::State {
  // A backend that a library puts first for an operator.
  struct Override {
    std::string backend, origin;
  };
  using KernelRow = detail::Shared<Kernel>;  // keeps its address while the list grows
  static Kernel& KernelOf(const detail::IntrusivePtr<detail::RefCounted>& row) {
    return static_cast<KernelRow&>(*row).value;
  }
  // All registrations of one operator.
  struct Entry {
    OpSchema* schema = nullptr;
    detail::IntrusivePtr<detail::RefCounted> schema_owner;
    detail::RefCountedList kernels;     // KernelRow objects
    std::vector<std::string> problems;  // thrown at lookup; Problems lists them
    std::vector<std::string> listed;
    std::vector<Override> overrides;  // the last override comes first in the order

    bool Exists() const { return schema || !kernels.empty() || !problems.empty(); }
    bool HasKernel(DeviceType device) const {
      for (const auto& row : kernels)
        if (KernelOf(row).device == device) return true;
      return false;
    }
    void Add(std::string problem) {  // once, even if several translation units contain it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  const Entry& Get(std::string_view op) const {
    const Entry* entry = ops.Find(op);
    if (entry && entry->Exists()) return *entry;
    if (const std::string* library = removed.Find(op))
      Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered: it was library ", *library,
            "'s, which is loaded no more");
    const std::vector<std::string> names = Names();
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, names),
          ops.empty() ? "; nothing is: no file with operators is linked, or, before main, none has "
                        "registered its operators yet"
                      : "",
          NearestName(op, names).empty()
              ? "; a standard operator comes with opkit::ops or its header in opkit/ops, one "
                "of opkit.cluster with opkit::cluster or opkit/cluster/operators.hpp, one in a "
                "static archive is kept by opkit_link_operators (CMake) or "
                "OPKIT_USE_REGISTRATIONS, one of a shared library comes with Library::Load"
              : "",
          detail::HasOwnRegistries()
              ? "; in a library Invoke and CreateOperator know the library's own operators, "
                "OpResource::invoke in a REGISTER_OP those of the program"
              : "");
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& row : ops)
      if (row.value.Exists()) names.push_back(row.name);
    return names;
  }
  static std::string WithoutSchema(std::string_view op, const Entry& entry) {
    return StrCat(
        "operator ", op, " has a kernel",
        entry.kernels.empty() ? "" : " (at " + KernelOf(entry.kernels.front()).Place() + ")",
        " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }

  mutable detail::Mutex mutex;
  NameMap<Entry> ops;
  NameMap<std::string> removed;   // last origin of each removed operator, by name
  NameMap<std::string> expected;  // ExpectOperator's texts, by operator
  // Second schemas and replaced kernels, to which callers may have pointers.
  detail::RefCountedList kept;
  // Returns the key of an operator (empty for all operators) and a device.
  static std::string PreferenceKey(std::string_view op, DeviceType device) {
    return StrCat(op, '\n', static_cast<int>(device));
  }
  NameMap<detail::BackendPreference> preferences;
  bool has_overrides = false;
  // The rank of a backend, as the program or a library (`origin`) has set it.
  struct Rank {
    int value = kUnranked;
    std::string origin;
  };
  // The function that returns why a backend is unavailable, and its result once called.
  struct Availability {
    // Shared, so that it keeps its address during a call.
    detail::IntrusivePtr<detail::Shared<UniqueFunction<std::string()>>> why_not;
    bool is_known = false;
    std::string found;
    std::string origin;
  };
  // For each backend, an entry of the program and of each library that has set it.
  NameMap<std::vector<Rank>> ranks;
  NameMap<std::string (*)()> versions;  // by backend
  NameMap<std::vector<Availability>> availability;
  // Returns the entry of an origin; null if it has none.
  template <class List>
  static auto OfOrigin(List* list, std::string_view origin) -> decltype(list->data()) {
    if (list)
      for (auto& one : *list)
        if (one.origin == origin) return &one;
    return nullptr;
  }
  // Returns the entry of an origin; makes it if there is none.
  template <class T>
  static T& AddedOf(NameMap<std::vector<T>>& all, std::string_view backend,
                    const std::string& origin) {
    std::vector<T>& list = all[backend];
    if (T* known = OfOrigin(&list, origin)) return *known;
    list.emplace_back().origin = origin;
    return list.back();
  }
};

OPKIT_INLINE OpRegistry::OpRegistry() : state_(new State) {}
OPKIT_COLD OPKIT_INLINE OpRegistry::~OpRegistry() { delete state_; }
OPKIT_INLINE OpRegistry& OpRegistry::Global() {
  static auto* registry = detail::HasOwnRegistries() ? new OpRegistry : &OfProgram();
  return *registry;
}

OPKIT_COLD OPKIT_INLINE OpSchema& OpRegistry::AddSchema(const char* name, const char* file,
                                                        int line, std::string signature) {
  auto* added = new detail::Shared<OpSchema>(OpSchema(name, file, line, std::move(signature)));
  AddSchema(detail::IntrusivePtr<detail::RefCounted>(added), added->value);
  return added->value;
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::AddSchema(detail::IntrusivePtr<detail::RefCounted> owner,
                                                   OpSchema& schema) {
  detail::MutexLock lock(state_->mutex);
  State::Entry& entry = state_->ops[schema.name()];
  if (!entry.schema) {
    entry.schema_owner = std::move(owner);
    entry.schema = &schema;
    return;
  }
  const OpSchema& known = *entry.schema;
  const bool same_signature =
      !schema.signature().empty() && schema.signature() == known.signature();
  if (!same_signature &&
      !detail::SamePlace(known.file(), known.line(), schema.file(), schema.line()))
    entry.Add(StrCat("two schemas of operator ", schema.name(), ": at ", detail::SchemaPlace(known),
                     " and at ", detail::SchemaPlace(schema), "; remove one of them"));
  state_->kept.push_back(std::move(owner));
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::AddKernel(Kernel kernel) {
  detail::MutexLock lock(state_->mutex);
  State::Entry& entry = state_->ops[kernel.op];
  for (auto& row : entry.kernels) {
    const Kernel& known = State::KernelOf(row);
    if (known.device != kernel.device || known.backend != kernel.backend) continue;
    if (detail::SamePlace(known.file, known.line, kernel.file, kernel.line)) return;
    if (known.priority == kernel.priority)
      entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", kernel.device, ", backend ",
                       kernel.backend, ": at ", known.Place(), " and at ", kernel.Place(),
                       "; remove one, or register it with another priority or backend"));
    if (known.priority >= kernel.priority) return;
    state_->kept.push_back(row);
    row = detail::MakeIntrusive<State::KernelRow>(std::move(kernel));
    return;
  }
  entry.kernels.push_back(detail::MakeIntrusive<State::KernelRow>(std::move(kernel)));
}
OPKIT_INLINE void OpRegistry::AddProblem(const std::string& op, std::string text) {
  detail::MutexLock lock(state_->mutex);
  state_->ops[op].listed.push_back(std::move(text));
}

OPKIT_INLINE void OpRegistry::ExpectOperator(const std::string& op, std::string what) {
  detail::MutexLock lock(state_->mutex);
  state_->expected[op] = std::move(what);
}
OPKIT_INLINE void OpRegistry::ForgetExpected(const std::string& op) {
  detail::MutexLock lock(state_->mutex);
  state_->expected.Erase(op);
}

OPKIT_INLINE const OpSchema* OpRegistry::FindSchema(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  const State::Entry* entry = state_->ops.Find(op);
  return entry ? entry->schema : nullptr;
}
OPKIT_INLINE const OpSchema& OpRegistry::GetSchema(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  const State::Entry& entry = state_->Get(op);
  if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
  if (!entry.schema) Throw(ErrorCode::kNotFound, State::WithoutSchema(op, entry));
  return *entry.schema;
}
OPKIT_INLINE std::vector<const Kernel*> OpRegistry::KernelsOf(std::string_view op) const {
  detail::CheckModes();
  detail::MutexLock lock(state_->mutex);
  std::vector<const Kernel*> out;
  if (const State::Entry* entry = state_->ops.Find(op))
    for (const auto& row : entry->kernels) out.push_back(&State::KernelOf(row));
  return out;
}
OPKIT_INLINE std::vector<const Kernel*> OpRegistry::FindKernels(std::string_view op,
                                                                DeviceType device) const {
  std::vector<const Kernel*> out;
  for (const Kernel* kernel : KernelsOf(op))
    if (kernel->device == device) out.push_back(kernel);
  return out;
}
OPKIT_COLD OPKIT_INLINE std::vector<std::string> OpRegistry::Operators() const {
  detail::MutexLock lock(state_->mutex);
  return state_->Names();
}
OPKIT_COLD OPKIT_INLINE std::vector<std::string> OpRegistry::Problems() const {
  detail::MutexLock lock(state_->mutex);
  std::vector<std::string> out;
  if (detail::ImageMixesModes()) out.push_back(detail::kMixedModes);
  for (const auto& row : state_->ops) {
    const std::string& op = row.name;
    const State::Entry& entry = row.value;
    for (const std::string& problem : entry.problems) out.push_back(problem);
    for (const std::string& problem : entry.listed) out.push_back(problem);
    if (std::string why = entry.schema ? entry.schema->problem() : std::string(); !why.empty())
      out.push_back(std::move(why));
    if (!entry.schema && !entry.kernels.empty()) out.push_back(State::WithoutSchema(op, entry));
    if (entry.schema && entry.kernels.empty())
      out.push_back(StrCat("operator ", op, " has a schema (at ",
                           detail::SchemaPlace(*entry.schema),
                           ") but no kernel; add REGISTER_CPU_OPERATOR(", op,
                           ", …), or link the file that registers it"));
  }
  for (const auto& row : state_->expected) {
    const State::Entry* entry = state_->ops.Find(row.name);
    if (!entry || !entry->Exists())
      out.push_back(StrCat(row.value, ", and no operator '", row.name, "' is registered",
                           SuggestName(row.name, state_->Names())));
  }
  return out;
}
OPKIT_INLINE void OpRegistry::AddOverride(const std::string& op, const std::string& backend,
                                          const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  state_->ops[op].overrides.push_back({backend, origin});
  state_->has_overrides = true;
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::RemoveOrigin(const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  const auto forget = [&](auto& row) {
    std::erase_if(row.value, [&](const auto& one) { return one.origin == origin; });
    return row.value.empty();
  };
  state_->ranks.EraseIf(forget);
  state_->availability.EraseIf(forget);
  state_->ops.EraseIf([&](auto& row) {
    State::Entry& entry = row.value;
    std::erase_if(entry.kernels,
                  [&](const auto& kernel) { return State::KernelOf(kernel).origin == origin; });
    std::erase_if(entry.overrides, [&](const auto& known) { return known.origin == origin; });
    if (entry.schema && entry.schema->origin() == origin) {
      entry.schema = nullptr;
      entry.schema_owner = {};
    }
    if (entry.Exists()) return false;
    state_->removed[row.name] = origin;
    return true;
  });
}
OPKIT_INLINE void OpRegistry::Remove(std::string_view op) {
  detail::MutexLock lock(state_->mutex);
  state_->ops.Erase(op);
}

OPKIT_COLD OPKIT_INLINE std::string OpRegistry::WhyNoBackend(std::string_view backend) const {
  detail::MutexLock lock(state_->mutex);
  NameMap<char> known;
  for (const auto& row : state_->ops)
    for (const auto& kernel : row.value.kernels) {
      const std::string& name = State::KernelOf(kernel).backend;
      if (name == backend) return {};
      known.RowOf(name);
    }
  return StrCat("no backend '", backend, "' has a kernel in this program",
                SuggestName(backend, known.Names()));
}
OPKIT_INLINE void OpRegistry::CheckBackend(std::string_view backend) const {
  if (std::string why = WhyNoBackend(backend); !why.empty()) Throw(ErrorCode::kNotFound, why);
}
OPKIT_INLINE void OpRegistry::SetBackendRank(std::string_view backend, int rank,
                                             const std::string& origin) {
  detail::MutexLock lock(state_->mutex);
  int& known = State::AddedOf(state_->ranks, backend, origin).value;
  known = (std::max)(known, rank);
}
OPKIT_INLINE int OpRegistry::BackendRank(std::string_view backend, std::string_view origin) const {
  if (backend == kReferenceBackend) return 0;
  detail::MutexLock lock(state_->mutex);
  int rank = kUnranked;
  if (const auto* known = state_->ranks.Find(backend))
    for (const State::Rank& one : *known)
      if (one.origin.empty() || one.origin == origin) rank = (std::max)(rank, one.value);
  return rank;
}

OPKIT_COLD OPKIT_INLINE void OpRegistry::SetBackendVersion(std::string_view backend,
                                                           std::string (*version)()) {
  detail::MutexLock lock(state_->mutex);
  state_->versions[backend] = version;
}
OPKIT_COLD OPKIT_INLINE std::string OpRegistry::BackendVersion(std::string_view backend) const {
  std::string (*version)() = nullptr;
  {
    detail::MutexLock lock(state_->mutex);
    if (auto* const known = state_->versions.Find(backend)) version = *known;
  }
  return version ? version() : std::string();
}

OPKIT_INLINE void OpRegistry::SetBackendAvailability(std::string_view backend,
                                                     UniqueFunction<std::string()> why_not,
                                                     const std::string& origin) {
  using Function = detail::Shared<UniqueFunction<std::string()>>;
  detail::MutexLock lock(state_->mutex);
  State::AddedOf(state_->availability, backend, origin) = {
      detail::MakeIntrusive<Function>(std::move(why_not)), false, {}, origin};
}
OPKIT_COLD OPKIT_INLINE std::string OpRegistry::WhyUnavailable(const Kernel& kernel) const {
  const auto find = [&] {
    return State::OfOrigin(state_->availability.Find(kernel.backend), kernel.origin);
  };
  detail::IntrusivePtr<detail::Shared<UniqueFunction<std::string()>>> why_not;
  {
    detail::MutexLock lock(state_->mutex);
    const State::Availability* known = find();
    if (!known) return {};
    if (known->is_known) return known->found;
    why_not = known->why_not;
  }
  std::string why = why_not->value();  // outside the lock: it may be slow, and may use the registry
  detail::MutexLock lock(state_->mutex);
  if (State::Availability* known = find(); known && known->why_not.get() == why_not.get()) {
    known->is_known = true;
    known->found = why;
  }
  return why;
}
OPKIT_COLD OPKIT_INLINE bool OpRegistry::HasAvailability(std::string_view backend) const {
  detail::MutexLock lock(state_->mutex);
  return static_cast<bool>(State::OfOrigin(state_->availability.Find(backend), {}));
}
OPKIT_COLD OPKIT_INLINE std::vector<OpRegistry::Backend> OpRegistry::Backends() const {
  struct Row {
    int kernels = 0;
    detail::RefCountedList rows;  // one kernel of each origin
  };
  NameMap<Row> backends;
  {
    detail::MutexLock lock(state_->mutex);
    for (const auto& row : state_->ops)
      for (const auto& kernel : row.value.kernels) {
        const Kernel& one = State::KernelOf(kernel);
        Row& backend = backends[one.backend];
        ++backend.kernels;
        bool is_new = true;
        for (const auto& known : backend.rows)
          is_new &= State::KernelOf(known).origin != one.origin;
        if (is_new) backend.rows.push_back(kernel);
      }
  }
  std::vector<Backend> found;
  for (const auto& row : backends) {
    Backend& info = found.emplace_back();
    info.name = row.name;
    info.rank = BackendRank(row.name);
    for (const auto& kernel : row.value.rows)
      info.rank = (std::max)(info.rank, BackendRank(row.name, State::KernelOf(kernel).origin));
    info.kernels = row.value.kernels;
    for (const auto& kernel : row.value.rows) {  // all kernels of an origin are available, or none
      info.why_unavailable = WhyUnavailable(State::KernelOf(kernel));
      if (info.why_unavailable.empty()) break;
    }
  }
  return found;
}

OPKIT_INLINE void OpRegistry::SetPreference(DeviceType device, detail::BackendPreference backends) {
  CheckPreference(device, backends);
  detail::MutexLock lock(state_->mutex);
  state_->preferences[State::PreferenceKey("", device)] = std::move(backends);
}
OPKIT_INLINE void OpRegistry::SetPreference(const std::string& op, DeviceType device,
                                            detail::BackendPreference backends) {
  CheckPreference(op, device);
  detail::MutexLock lock(state_->mutex);
  state_->preferences[State::PreferenceKey(op, device)] = std::move(backends);
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::CheckPreference(
    DeviceType device, const detail::BackendPreference& backends) const {
  detail::MutexLock lock(state_->mutex);
  bool known = backends.empty();
  for (const auto& row : state_->ops) known |= row.value.HasKernel(device);
  if (!known)
    Throw(ErrorCode::kNotFound, "a backend preference is set for ", ToString(device),
          ", for which no operator of this program has a kernel");
}
OPKIT_COLD OPKIT_INLINE void OpRegistry::CheckPreference(const std::string& op,
                                                         DeviceType device) const {
  detail::MutexLock lock(state_->mutex);
  if (!state_->Get(op).HasKernel(device))
    Throw(ErrorCode::kNotFound, "a backend preference is set for operator ", op, " on ",
          ToString(device), ", where it has no kernel");
}
OPKIT_COLD OPKIT_INLINE detail::BackendPreference OpRegistry::PreferenceOf(
    std::string_view op, DeviceType device) const {
  detail::MutexLock lock(state_->mutex);
  detail::BackendPreference out;
  // Preferences are nearly always empty, but every creation of an operator reads them.
  const detail::KeptPreferences* const kept = detail::PreferencesOfThread();
  if (kept) out = kept->first;
  const NameMap<detail::BackendPreference>& by_key = kept ? kept->by_key : state_->preferences;
  if (by_key.empty() && !state_->has_overrides) return out;
  for (const std::string_view key : {op, std::string_view()})
    if (const detail::BackendPreference* known = by_key.Find(State::PreferenceKey(key, device)))
      for (const std::string& backend : *known) out.push_back(backend);
  if (const State::Entry* entry = state_->ops.Find(op))
    for (size_t i = entry->overrides.size(); i > 0; --i)
      out.push_back(entry->overrides[i - 1].backend);
  return out;
}
OPKIT_COLD OPKIT_INLINE detail::IntrusivePtr<detail::RefCounted> OpRegistry::KeepPreferences(
    const detail::BackendPreference& first) const {
  auto now = detail::MakeIntrusive<detail::KeptPreferences>();
  now->first = first;
  const auto add = [&](const NameMap<detail::BackendPreference>& by_key) {
    for (const auto& row : by_key) now->by_key[row.name] = row.value;
  };
  if (const detail::KeptPreferences* kept = detail::PreferencesOfThread()) {
    now->first.insert(now->first.end(), kept->first.begin(), kept->first.end());
    add(kept->by_key);
  } else {
    detail::MutexLock lock(state_->mutex);
    add(state_->preferences);
  }
  return now;
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OP_REGISTRY_IPP_

// ---- opkit/op/impl/observer.ipp
// ObserverList's definitions: the list of observers that a subject owns.
#ifndef OPKIT_OP_IMPL_OBSERVER_IPP_
#define OPKIT_OP_IMPL_OBSERVER_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct ObserverList::Items {
  std::vector<AnyObserver*> list;
  std::string error;
};

OPKIT_INLINE ObserverList::~ObserverList() {
  if (!items_) return;
  for (AnyObserver* observer : items_->list) delete observer;
  delete items_;
}
OPKIT_INLINE void ObserverList::Attach(AnyObserver* observer) {
  if (!observer) Throw(ErrorCode::kInvalidArgument, "AttachObserver was given null");
  if (!items_) items_ = new Items;
  items_->list.push_back(observer);
}
OPKIT_INLINE bool ObserverList::Detach(const AnyObserver* observer) {
  if (!items_) return false;
  const auto found = std::find(items_->list.begin(), items_->list.end(), observer);
  if (found == items_->list.end()) return false;
  items_->list.erase(found);
  return true;
}
OPKIT_INLINE void ObserverList::Take(ObserverList& other, void* subject) {
  if (!other.items_ || &other == this) return;
  if (!items_) items_ = new Items;
  items_->list.insert(items_->list.end(), other.items_->list.begin(), other.items_->list.end());
  for (AnyObserver* observer : other.items_->list) observer->subject_ = subject;
  if (!other.items_->error.empty()) items_->error.swap(other.items_->error);
  delete std::exchange(other.items_, nullptr);
}
OPKIT_INLINE size_t ObserverList::size() const { return items_ ? items_->list.size() : 0; }
OPKIT_INLINE std::string ObserverList::error() const { return items_ ? items_->error : ""; }

// Iterates by index, because an observer may attach another.
template <class F>
void ObserverList::ForEach(F call) {
  for (size_t i = 0; i < items_->list.size(); ++i) {
    try {
      call(*items_->list[i]);
    } catch (...) {
      items_->error = CurrentError().what();
    }
  }
}
OPKIT_INLINE void ObserverList::Start() {
  ForEach([](AnyObserver& observer) { observer.Start(); });
}
OPKIT_INLINE void ObserverList::Stop(bool succeeded) {
  ForEach([&](AnyObserver& observer) { observer.Stop(succeeded); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_IMPL_OBSERVER_IPP_

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

// ---- opkit/op/impl/workspace.ipp
// The definitions of Workspace, and Blob's errors.
#ifndef OPKIT_OP_IMPL_WORKSPACE_IPP_
#define OPKIT_OP_IMPL_WORKSPACE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE bool Blob::HasName(const std::type_info& type) const {
  return type_ && *type_ == type;
}
OPKIT_INLINE void Blob::WrongType(const char* wanted) const {
  if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
  Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
        ", but is read as ", wanted, " (names as the compiler mangles them)");
}

OPKIT_INLINE Workspace::~Workspace() {
  for (size_t i = 0; i < blobs_.size(); ++i)
    if (!is_shared_[i]) delete blobs_[i];
}
OPKIT_INLINE Blob* Workspace::CreateBlob(const std::string& name) {
  const size_t number = detail::Index(names_.Add(name));
  if (number == blobs_.size()) blobs_.push_back(nullptr), is_shared_.push_back(0);
  Blob*& blob = blobs_[number];
  if (!blob) blob = new Blob(name);
  return blob;
}
OPKIT_INLINE void Workspace::ShareBlob(const std::string& name, Blob* blob) {
  if (HasBlob(name))
    Throw(ErrorCode::kAlreadyExists, "the workspace has a blob '", name, "' already");
  const size_t number = detail::Index(names_.Add(name));
  if (number == blobs_.size()) blobs_.push_back(nullptr), is_shared_.push_back(0);
  blobs_[number] = blob;
  is_shared_[number] = 1;
}
OPKIT_INLINE bool Workspace::RemoveBlob(std::string_view name) {
  if (!FindBlob(name)) return false;
  const size_t number = detail::Index(names_.Find(name));
  Blob* const blob = std::exchange(blobs_[number], nullptr);
  if (!std::exchange(is_shared_[number], 0)) delete blob;
  return true;
}
OPKIT_INLINE std::vector<std::string> Workspace::Blobs() const {
  std::vector<std::string> names;
  for (const Blob* blob : blobs_)
    if (blob) names.push_back(blob->name());
  detail::StableSort(names, [](const std::string& a, const std::string& b) { return a < b; });
  return names;
}
OPKIT_INLINE Blob* Workspace::GetBlob(const std::string& name) const {
  if (Blob* blob = FindBlob(name)) return blob;
  Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace", SuggestName(name, Blobs()));
}

OPKIT_INLINE Tensor* Workspace::GetTensor(const std::string& name) const {
  return const_cast<Tensor*>(&GetBlob(name)->Get<Tensor>());
}
OPKIT_INLINE bool Workspace::HasTensor(const std::string& name) const {
  const Blob* blob = FindBlob(name);
  return blob && blob->IsType<Tensor>();
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_WORKSPACE_IPP_

// ---- opkit/op/impl/operator_base.ipp
// OperatorBase's definitions: binding, outputs that are resized or replaced, and the context of
// errors.
#ifndef OPKIT_OP_IMPL_OPERATOR_BASE_IPP_
#define OPKIT_OP_IMPL_OPERATOR_BASE_IPP_

#ifndef OPKIT_DEFINITIONS
#endif

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The pending tensors, in an object of their own, because most runs have none.
struct PendingTensors::Items : RefCounted {
  struct Item {
    int place;
    Blob* blob;           // null for a copy of an input
    uint64_t invocation;  // for a copy: the id of the run that made it
    Tensor tensor;
  };
  std::list<Item> list;  // a list, so that the tensors keep their addresses
};
OPKIT_INLINE PendingTensors::Items& PendingTensors::items() {
  if (!items_) items_ = MakeIntrusive<Items>();
  return static_cast<Items&>(*items_);
}

OPKIT_INLINE Tensor* PendingTensors::Find(int output) {
  if (items_)
    for (Items::Item& item : items().list)
      if (item.blob && item.place == output) return &item.tensor;
  return nullptr;
}
OPKIT_INLINE Tensor* PendingTensors::Add(int output, Blob* blob, Tensor tensor) {
  items().list.push_back({output, blob, 0, std::move(tensor)});
  return &items().list.back().tensor;
}
OPKIT_INLINE const Tensor& PendingTensors::DenseInput(int input, FunctionRef<Tensor()> make) {
  // A copy from before this run, for the constructor or an observer, may be out of date.
  const uint64_t invocation = CurrentInvocation().id;
  for (const Items::Item& item : items().list)
    if (!item.blob && item.place == input && item.invocation == invocation) return item.tensor;
  items().list.push_back({input, nullptr, invocation, make()});
  return items().list.back().tensor;
}
OPKIT_INLINE void PendingTensors::Publish() {
  if (!items_) return;
  for (Items::Item& item : items().list)
    if (item.blob) *item.blob->GetMutable<Tensor>() = std::move(item.tensor);
  items_ = {};
}
OPKIT_INLINE void PendingTensors::AppendStorages(RefCountedList& out) const {
  if (!items_) return;
  for (const Items::Item& item : static_cast<const Items&>(*items_).list)
    out.push_back(item.tensor.storage());
}

OPKIT_INLINE void ScratchMemory::Plan(void* bytes, int64_t size, Storage owner) {
  planned_ = bytes;
  planned_bytes_ = size;
  planned_owner_ = std::move(owner);
}
OPKIT_INLINE void* ScratchMemory::TakeOwn(int64_t size, Device device) {
  if (size == 0) return nullptr;
  if (!own_ || own_->nbytes() < size) own_ = AllocateStorage(device, size);
  return own_->data();
}
OPKIT_INLINE void ScratchMemory::AppendStorages(RefCountedList& out) const {
  if (own_) out.push_back(own_);
  if (planned_owner_) out.push_back(planned_owner_);
}

OPKIT_INLINE OperatorCreator::Pointer OperatorCreator::operator()(
    const OperatorDef& def, Workspace* ws, const KernelConfig* config) const {
  return create_(def, ws, config);
}

}  // namespace detail

OPKIT_INLINE std::string detail::OperatorIdentity::Describe() const {
  std::string out = "in operator " + ToString(def);
  for (const detail::NamedAttribute& arg : def.args())
    out += ", " + arg.name + "=" + ToString(arg.value);
  out += ", on " + ToString(def.device());
  if (!def.backends().empty()) out += ", backend " + def.backends();
  if (line > 0) out += StrCat(", registered at ", file, ":", line);
  return out;
}

namespace detail {

OPKIT_INLINE void AddOperatorContext(Error& error, const OperatorIdentity& identity,
                                     const std::vector<const Tensor*>& inputs,
                                     const std::vector<const Tensor*>& outputs) {
  const OperatorDef& def = identity.def;
  auto name = [&](const std::vector<const Tensor*>& values, const std::vector<std::string>& names,
                  const char* what) {
    for (size_t i = 0; i < values.size(); ++i)
      if (error.subject() && values[i] == error.subject())
        error.AddContext(StrCat("while accessing ", what, " ", i, " '", names[i], "'"));
  };
  name(inputs, def.inputs(), "input");
  if (error.context().empty()) name(outputs, def.outputs(), "output");
  // An Error from an event already has the description of its operator.
  const std::string described = identity.Describe();
  bool told = false;
  for (const std::string& line : error.context()) told |= line == described;
  if (!told) error.AddContext(described);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const std::string place = StrCat("input ", i), &named = def.inputs()[i];
    error.AddContext(
        StrCat("  ", place, named == place ? "" : StrCat(" '", named, "'"), ": ", *inputs[i]));
  }
}

OPKIT_INLINE void RethrowDescribed(FunctionRef<void(Error&)> add) {
  try {
    throw;
  } catch (Error& error) {
    // An Error from an event belongs to the event, and other threads may be reading it. Therefore a
    // copy gets the context. An object of a class derived from Error is rethrown unchanged, because
    // a copy would lose the derived part.
    if (typeid(error) != typeid(Error)) {
      if (!error.is_shared()) add(error);
      throw;
    }
  } catch (...) {
  }
  Error wrapped = CurrentError();
  add(wrapped);
  throw wrapped;
}
OPKIT_INLINE void CheckInputDevice(const OperatorDef& def, size_t i, const Tensor& input,
                                   Device memory_device) {
  if (!input.initialized() || MemoryDevice(input.device()) == memory_device) return;
  Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def.inputs()[i], "' is on ", input.device(),
        ", but the operator runs on ", def.device(), "; copy it there first");
}
OPKIT_INLINE void ThrowMutatedStrides(const OperatorDef& def, size_t i, const Tensor& input) {
  throw Error(ErrorCode::kUnsupported,
              StrCat("input ", i, " '", def.inputs()[i], "' of operator ", def.type(),
                     " has strides and cannot be copied, because it is written to; make it "
                     "dense, or follow x.strides() and override AcceptsStrides()"),
              &input);
}
OPKIT_INLINE Tensor OutputTensor(Tensor out, const Shape& shape, DType dtype, Device device,
                                 FunctionRef<bool(const Tensor&)> clobbers) {
  if (MemoryDevice(out.device()) != device || !out.is_dense() || !out.layout().is_standard())
    out = Tensor(device);
  out.SetDevice(device);
  out.Resize(shape, dtype);
  if (clobbers(out)) {
    out = Tensor(device);
    out.Resize(shape, dtype);
  }
  return out;
}
OPKIT_INLINE SpanSink* EndSpanForWork() noexcept {
  SpanSink* const sink = CurrentSpanSink();
  if (!sink || !sink->WantsWork()) return nullptr;
  sink->EndSpan();
  return sink;
}
OPKIT_INLINE void ThrowReturnedFalse() {
  Throw(ErrorCode::kOperatorFailed,
        "RunOnDevice returned false; to say why, throw an opkit::Error or use OPKIT_ENFORCE");
}

}  // namespace detail

OPKIT_INLINE OperatorBase::OperatorBase(const OperatorDef& def, Workspace* ws,
                                        const KernelConfig* config)
    : device_(def.device()),
      memory_device_(MemoryDevice(def.device())),
      workspace_(ws),
      identity_(new detail::OperatorIdentity(def)) {
  if (config) SetConfig(*config);
  if (!ws) Throw(ErrorCode::kInvalidArgument, "operator ", def, " needs a workspace");
  for (const std::string& name : def.inputs()) {
    Blob* blob = name.empty() ? nullptr : ws->FindBlob(name);
    if (!name.empty() && !blob)
      Throw(ErrorCode::kNotFound, "operator ", def, " reads blob '", name,
            "', which is not in the workspace", SuggestName(name, ws->Blobs()),
            "; create it before the operator");
    inputs_.push_back(blob);
  }
  for (const std::string& name : def.outputs())
    outputs_.push_back(name.empty() ? nullptr : ws->CreateBlob(name));
}
OPKIT_INLINE OperatorBase::~OperatorBase() = default;
OPKIT_INLINE void OperatorBase::Cancel() {
  if (event_ && event_->Query() == EventStatus::kScheduled) event_->Cancel();
}

OPKIT_INLINE std::vector<Shape> OperatorBase::InputTensorShapes() const {
  std::vector<Shape> shapes;
  for (int i = 0; i < InputSize(); ++i)
    shapes.push_back(HasInput(i) && InputIsType<Tensor>(i) ? Input<Tensor>(i).shape() : Shape{0});
  return shapes;
}
OPKIT_INLINE std::vector<TensorInfo> OperatorBase::TypesOf(const std::vector<Blob*>& blobs) {
  std::vector<TensorInfo> types;
  for (const Blob* blob : blobs)
    types.push_back(blob && blob->IsType<Tensor>() ? TensorInfo::Of(blob->Get<Tensor>())
                                                   : TensorInfo());
  return types;
}
OPKIT_INLINE Tensor* OperatorBase::OutputTensorCopyFrom(int i, const Tensor& source) {
  Tensor* out = Output(i, source.shape(), source.dtype());
  out->CopyFrom(source);
  return out;
}
OPKIT_INLINE bool OperatorBase::IsInputOutputAlias(int i, int o) const {
  const Blob &in = InputBlob(i), &out = *OutputBlob(o);
  if (&in == &out) return true;
  return in.IsType<Tensor>() && out.IsType<Tensor>() &&
         in.Get<Tensor>().SharesMemoryWith(out.Get<Tensor>());
}

OPKIT_INLINE void OperatorBase::SetConfig(const KernelConfig& config) {
  config_ = detail::MakeIntrusive<const detail::Shared<KernelConfig>>(config);
  has_output_layouts_ = false;
  for (const Layout& layout : config.output_layouts) has_output_layouts_ |= !layout.is_standard();
}
OPKIT_INLINE void OperatorBase::SetScratch(void* bytes, int64_t size, Storage owner) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (size < 0 || (!bytes && size > 0) || address % 64 != 0)
    Throw(ErrorCode::kInvalidArgument, "SetScratch of operator ", def(), " with ", size,
          " bytes at ", address, "; give it memory aligned to 64 bytes, or null and 0");
  scratch_.Plan(bytes, size, std::move(owner));
}
OPKIT_INLINE void OperatorBase::InternNames() const {
  span_names_ = {InternName(def().type()),
                 InternName(net_position_ >= 0 ? NodeName(def()) : def().name())};
}
OPKIT_INLINE const std::string& OperatorBase::NodeName(const OperatorDef& def) {
  if (def.name().empty())
    for (const std::string& output : def.outputs())
      if (!output.empty()) return output;
  return def.name();
}

OPKIT_INLINE void OperatorBase::DescribeSpan() const noexcept {
  const detail::RunCost& cost = identity_->cost;
  detail::SpanSink* const sink = cost.compute ? detail::EndSpanForWork() : nullptr;
  if (!sink) return;
  try {
    sink->Describe(cost.compute(cost, def(), InputTypes(), OutputTypes()));
  } catch (...) {  // the schema's cost function failed; the run itself succeeded
  }
}

OPKIT_INLINE void OperatorBase::SetRegistration(const char* file, int line, detail::RunCost cost) {
  auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def());
  identity->cost = cost;
  identity->file = file;
  identity->line = line;
  identity_ = identity;
}

OPKIT_INLINE void OperatorBase::RunRecorded(int) {
  Throw(ErrorCode::kUnsupported, "the runs of operator ", def(), " cannot be recorded");
}
OPKIT_INLINE void OperatorBase::PrepareEvent() {
  const EventStatus status = event().Query();
  if (status == EventStatus::kScheduled)
    Throw(ErrorCode::kFailedPrecondition, "operator ", def(),
          " is run while its last run is still SCHEDULED; Finish its event first");
  if (IsTerminal(status)) event().Reset();
}
namespace detail {
inline bool IsCancelled(const EventState& state) {
  try {
    if (state.status() == EventStatus::kFailed) std::rethrow_exception(state.exception());
  } catch (const Error& error) {
    return error.code() == ErrorCode::kCancelled;
  } catch (...) {
  }
  return false;
}
}  // namespace detail

OPKIT_INLINE void OperatorBase::RetainUntilFinished() {
  EventState* state = event().state().get();  // a raw pointer, because the state owns the callback
  TouchedStorages(state->retained);
  event().SetCallback([state] {
    if (!detail::IsCancelled(*state)) state->retained.clear();
  });
}
OPKIT_INLINE void OperatorBase::FinishWork() noexcept {
  bool drain = event_disabled_ || has_stray_work_;
  if (event_ && !event_disabled_) {
    try {
      if (event_->Query() == EventStatus::kScheduled) event_->Finish();
    } catch (...) {  // the event carries the failure
    }
    drain |= detail::IsCancelled(*event_->state());
  }
  if (!drain) return;
  try {
    SyncDeviceBarrierForObservers();
  } catch (...) {  // the failure belongs to the next event of the stream
  }
}
OPKIT_INLINE void OperatorBase::RethrowWithContext(bool complete_event) {
  try {
    RethrowDescribed();
  } catch (...) {
    if (complete_event) {
      const auto state = event().state();  // a callback may Reset the event
      state->Complete(std::current_exception());
    }
    throw;
  }
}
OPKIT_INLINE void OperatorBase::RethrowDescribed() {
  RecordLastFailedOpNetPosition();
  pending_.Clear();
  detail::RethrowDescribed([this](Error& error) {
    const auto tensors = [](const std::vector<Blob*>& blobs) {
      std::vector<const Tensor*> found;
      for (const Blob* blob : blobs)
        found.push_back(blob && blob->IsType<Tensor>() ? &blob->Get<Tensor>() : nullptr);
      return found;
    };
    detail::AddOperatorContext(error, *identity_, tensors(inputs_), tensors(outputs_));
  });
}
OPKIT_INLINE bool OperatorBase::RunOnDevice() {
  Throw(ErrorCode::kUnsupported, "operator ", type(), " has no RunOnDevice; call Run");
}
OPKIT_INLINE void OperatorBase::TouchedStorages(detail::RefCountedList& out) const {
  out.clear();
  out.reserve(inputs_.size() + outputs_.size());
  for (const auto* blobs : {&inputs_, &outputs_})
    for (const Blob* blob : *blobs)
      if (blob && blob->IsType<Tensor>() && blob->Get<Tensor>().storage())
        out.push_back(blob->Get<Tensor>().storage());
  pending_.AppendStorages(out);
  scratch_.AppendStorages(out);
}

OPKIT_INLINE void OperatorBase::ThrowUnbound(const std::vector<Blob*>& blobs, int i,
                                             const char* what) const {
  Throw(ErrorCode::kOutOfRange, what, " ", i, " was asked for, but the node has ", blobs.size(),
        " ", what, "s",
        detail::Index(i) >= blobs.size() ? ""
        : &blobs == &inputs_
            ? " and leaves that one out (by an empty name, or by an Invoke with a tensor that "
              "has no dtype yet)"
            : " and leaves that one out");
}
OPKIT_INLINE void OperatorBase::ThrowNegativeScratch(int64_t size) const {
  Throw(ErrorCode::kInvalidArgument, "operator ", def(), " asks for ", size, " bytes of scratch");
}
OPKIT_INLINE void OperatorBase::CheckDeclared(std::string_view name) const {
  const detail::ArgumentCheck& checked = detail::t_argument_check;
  if (checked.schema) checked.refuse(*checked.schema, type(), name);
}
OPKIT_INLINE const Attribute* OperatorBase::FindArgument(std::string_view name) const {
  CheckDeclared(name);
  return def().args().Find(name);
}
OPKIT_INLINE const Attribute* OperatorBase::FindDefault(std::string_view name) const {
  const OpSchema* const known = identity_->cost.schema;
  const OpSchema* const schema = known ? known : detail::t_argument_check.schema;
  return schema ? detail::DefaultOf(&schema->attributes(), name) : nullptr;
}
OPKIT_INLINE const Tensor& OperatorBase::UnusualInput(int i, const Tensor& tensor) const {
  detail::CheckInputDevice(def(), detail::Index(i), tensor, memory_device_);
  if (const Layout wanted = InputLayout(i);
      tensor.layout() != wanted && tensor.dtype() != DType::kUndefined)
    throw Error(ErrorCode::kUnsupported,
                StrCat("input ", i, " '", def().inputs()[detail::Index(i)], "' of operator ",
                       type(), " is ", tensor, ", but its kernel takes ", wanted,
                       "; Invoke and plans convert, a workspace's tensors are converted by "
                       "ConvertLayout"),
                &tensor);
  return tensor.is_dense() || AcceptsStrides() ? tensor : DenseCopy(i, tensor);
}
OPKIT_INLINE const Tensor& OperatorBase::DenseCopy(int i, const Tensor& tensor,
                                                   CopyTime time) const {
  if (i < 64 && (mutated_inputs_ >> i & 1))
    detail::ThrowMutatedStrides(def(), detail::Index(i), tensor);
  return pending_.DenseInput(i, [&] {
    Tensor dense(tensor.device());
    if (time == CopyTime::kNow)
      dense.CopyFrom(tensor);
    else
      const_cast<OperatorBase*>(this)->CopyDense(tensor, &dense);
    return dense;
  });
}
OPKIT_INLINE void OperatorBase::CopyDense(const Tensor& source, Tensor* dense) {
  dense->CopyFrom(source);
}
OPKIT_INLINE void OperatorBase::CheckDeviceType(int i, const Tensor& tensor,
                                                DeviceType type) const {
  if (!tensor.initialized() || MemoryDevice(tensor.device()).type == MemoryDevice({type, 0}).type)
    return;
  Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def().inputs()[detail::Index(i)],
        "' is on ", tensor.device(), ", but the operator reads it on ", type,
        "; copy it there first");
}
OPKIT_INLINE void OperatorBase::RecordEvent(const char*) {
  Throw(ErrorCode::kUnsupported, "operator ", def(), " has no context to record its event with");
}
OPKIT_INLINE void OperatorBase::SetEventFinishedWithException(const char* error_message) {
  if (event_disabled_) return;
  std::exception_ptr exception = std::current_exception();
  if (!exception)
    exception = std::make_exception_ptr(Error(
        ErrorCode::kOperatorFailed, error_message ? error_message : "failed without a reason"));
  event().SetFinishedWithException(std::move(exception));
}
OPKIT_INLINE bool OperatorBase::ClobbersOutput(int o, const Tensor& out) const {
  for (int other = 0; other < o; ++other) {
    const Blob* const blob = outputs_[detail::Index(other)];
    if (blob && blob != outputs_[detail::Index(o)] && blob->IsType<Tensor>() &&
        blob->Get<Tensor>().SharesMemoryWith(out))
      return true;
  }
  return false;
}
OPKIT_INLINE Tensor* OperatorBase::Replace(int o, Tensor next) {
  if (Tensor* replaced = pending_.Find(o)) return &(*replaced = std::move(next));
  Blob* blob = OutputBlob(o);
  Tensor* out = blob->GetMutable<Tensor>();
  for (const Blob* input : inputs_)
    if (input == blob && out->initialized()) return pending_.Add(o, blob, std::move(next));
  return &(*out = std::move(next));
}
OPKIT_INLINE Tensor* OperatorBase::ResizeOutput(int o, const Tensor& out, const Shape& shape,
                                                DType dtype, Device device) {
  if (const Layout layout = OutputLayout(o); !layout.is_standard()) {
    if (out.layout() == layout && out.dtype() == dtype && out.shape() == shape &&
        out.device() == device && out.initialized() && !Clobbers(o, out))
      return Output(o);
    return Replace(o, detail::g_make_tensor(shape, dtype, layout, device));
  }
  return Replace(o, detail::OutputTensor(out, shape, dtype, device,
                                         [&](const Tensor& next) { return Clobbers(o, next); }));
}
OPKIT_INLINE Tensor* OperatorBase::Output(int i, DeviceType type) {
  Tensor* out = Output(i);
  const Device device = MemoryDevice({type, type == device_.type ? device_.index : 0});
  if (MemoryDevice(out->device()).type == device.type) return out;
  return Replace(i, Tensor(device));
}
OPKIT_INLINE void OperatorBase::MakeEvent() {
  if (event_disabled_)
    Throw(ErrorCode::kFailedPrecondition, "the event of ", def(), " is disabled");
  event_.emplace(device_);
}
#ifndef OPKIT_DEFINITIONS
// Starts the session of the environment variable OPKIT_PROFILE before main, in the compiled
// runtime. It is in this file because every program with operators links it.
namespace {
[[maybe_unused]] const bool kProfileByEnvironment = detail::ProfileByEnvironment();
}
#endif

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_OPERATOR_BASE_IPP_

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

// ---- opkit/op/impl/create_operator.ipp
// CreateOperator's definitions: the order of kernels, and the creation of an operator by a kernel.
#ifndef OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_
#define OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the names between the commas of a text; "DEFAULT" becomes "reference".
inline BackendPreference SplitBackends(std::string_view text) {
  BackendPreference names;
  while (!text.empty()) {
    const size_t comma = (std::min)(text.find(','), text.size());
    std::string_view name = text.substr(0, comma);
    constexpr std::string_view kSpace = " \t\r\n";
    name.remove_prefix((std::min)(name.find_first_not_of(kSpace), name.size()));
    name.remove_suffix(name.size() - (name.find_last_not_of(kSpace) + 1));
    if (!name.empty()) names.emplace_back(name == "DEFAULT" ? kReferenceBackend : name);
    text.remove_prefix((std::min)(comma + 1, text.size()));
  }
  return names;
}

OPKIT_INLINE const BackendPreference& AllowedBackends() {
  static const BackendPreference allowed = [] {
    const char* const text = std::getenv("OPKIT_BACKENDS");
    BackendPreference names = SplitBackends(text ? text : "");
    if (names.empty() || !IsLoadedLibrary()) return names;
    // In the program the library's plain kernels may have the backend name "my_ops", and the
    // kernels of its backend "fast" the name "my_ops.fast".
    for (size_t i = names.size(); i > 0; --i)
      if (const size_t dot = names[i - 1].rfind('.'); dot != std::string::npos)
        names.push_back(names[i - 1].substr(dot + 1));
    names.emplace_back(kReferenceBackend);
    return names;
  }();
  return allowed;
}

OPKIT_INLINE BackendPreference BackendOrder(const OperatorDef& def) {
  const OpRegistry& registry = OpRegistry::Global();
  BackendPreference order = SplitBackends(def.backends());
  if (!def.requires_backends()) {
    for (const std::string& name : AllowedBackends()) order.push_back(name);
    for (std::string& name : registry.PreferenceOf(def.type(), def.device().type))
      order.push_back(std::move(name));
    order.emplace_back("DEFAULT");
  }
  for (std::string& name : order)
    if (name == "DEFAULT") name = kReferenceBackend;
  return order;
}

OPKIT_INLINE std::vector<std::pair<std::string, std::string>> MissingBackends(
    const OperatorDef& def) {
  std::vector<std::pair<std::string, std::string>> missing;
  for (std::string& backend : BackendOrder(def)) {
    std::string why = OpRegistry::Global().WhyNoBackend(backend);
    if (backend != kReferenceBackend && !why.empty())
      missing.emplace_back(std::move(backend), std::move(why));
  }
  return missing;
}
OPKIT_INLINE void CheckBackends(const OperatorDef& def) {
  for (const auto& [backend, why] : MissingBackends(def)) Throw(ErrorCode::kNotFound, why);
}

OPKIT_INLINE void CheckEngine(const OperatorDef& def) {
  for (const std::string& name : SplitBackends(def.backends()))
    if (name != kReferenceBackend) OpRegistry::Global().CheckBackend(name);
}

OPKIT_INLINE std::vector<const Kernel*> KernelOrder(const OperatorDef& def, bool by_rank) {
  const OpRegistry& registry = OpRegistry::Global();
  BackendPreference asked = BackendOrder(def);
  // The plain kernel's rank decides its place.
  if (by_rank && !def.requires_backends()) asked.pop_back();
  // Orders by the position among the requested backends. All other kernels come after these, by
  // rank if `by_rank`.
  auto place = [&](const Kernel* kernel) {
    int64_t at = 0;
    for (const std::string& name : asked) {
      if (name == kernel->backend) return at << 32;
      ++at;
    }
    return (at << 32) - (by_rank ? registry.BackendRank(kernel->backend, kernel->origin) : 0);
  };
  const BackendPreference& allowed = AllowedBackends();
  std::string refused;  // backends that OPKIT_BACKENDS excludes
  std::vector<const Kernel*> order;
  for (const Kernel* kernel : registry.FindKernels(def.type(), def.device().type)) {
    if (def.requires_backends() && !Contains(asked, kernel->backend)) continue;
    if (!allowed.empty() && !Contains(allowed, kernel->backend)) {
      refused += StrCat(refused.empty() ? "" : ", ", kernel->backend);
      continue;
    }
    order.push_back(kernel);
    for (size_t i = order.size() - 1; i > 0 && place(order[i]) < place(order[i - 1]); --i)
      std::swap(order[i], order[i - 1]);
  }
  if (order.empty() && def.requires_backends()) {
    CheckBackends(def);
    if (!refused.empty())
      Throw(ErrorCode::kNotFound, "operator ", def, " requires a kernel of backend ",
            def.backends(), " on ", def.device(),
            ", by itself or by a selection; the environment's OPKIT_BACKENDS=",
            std::getenv("OPKIT_BACKENDS"), " leaves out ", refused);
    Throw(ErrorCode::kNotFound, "operator ", def, " requires a kernel of backend ", def.backends(),
          " on ", def.device(), ", which has none for it");
  }
  if (order.empty() && !refused.empty()) ThrowNoneAllowed(def, refused);
  return order;
}
OPKIT_INLINE void ThrowNoneAllowed(const OperatorDef& def, const std::string& backends) {
  std::string unknown;
  for (const std::string& name : AllowedBackends())
    if (std::string why = OpRegistry::Global().WhyNoBackend(name); !why.empty())
      unknown += "; " + why;
  Throw(ErrorCode::kNotFound, "operator ", def, " has kernels of the backends ", backends, " on ",
        def.device(), ", and the environment's OPKIT_BACKENDS=", std::getenv("OPKIT_BACKENDS"),
        " allows none of them", unknown);
}

OPKIT_INLINE void ThrowNoKernel(const OperatorDef& def, const std::string& refused) {
  if (!refused.empty())
    Throw(ErrorCode::kUnsupported, "no kernel of operator ", def, " on ", def.device(),
          " accepts this node:", refused);
  std::string others;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    others += StrCat(others.empty() ? "" : ", ", kernel->device, " (", kernel->backend, ", ",
                     kernel->Place(), ")");
  Throw(ErrorCode::kNotFound, "operator ", def, " has no kernel for ", def.device(), "; it has ",
        others.empty() ? "none at all" : "kernels for " + others);
}

OPKIT_INLINE std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def,
                                                const KernelConfig* config) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (int out = 0; uint64_t & mask : masks) {
    for (int in = 0; in < static_cast<int>(def.inputs().size()) && in < 64; ++in)
      if (config ? schema.MustInplace(in, out) : schema.CanInplace(in, out))
        mask |= uint64_t{1} << in;
    ++out;
  }
  if (config)
    for (const auto& [in, out] : config->inplace)
      if (in < 64) masks[Index(out)] |= uint64_t{1} << in;
  return masks;
}

OPKIT_INLINE uint64_t MutatedInputs(const OpSchema& schema, const OperatorDef& def) {
  uint64_t mutated = 0;
  for (const int input : schema.MutatedInputs(def))
    if (input >= 0 && input < 64) mutated |= uint64_t{1} << input;
  for (int i = 0; i < 64 && i < static_cast<int>(def.inputs().size()); ++i)
    for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
      if (schema.MustInplace(i, o)) mutated |= uint64_t{1} << i;
  return mutated;
}
OPKIT_INLINE void CheckNode(const OpSchema& schema, const OperatorDef& def) {
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", def);
}
OPKIT_INLINE void CheckIsFor(const Kernel& kernel, const OperatorDef& def) {
  if (kernel.op != def.type() || kernel.device != def.device().type)
    Throw(ErrorCode::kInvalidArgument, "the kernel given, of ", kernel.op, " for ", kernel.device,
          " at ", kernel.Place(), ", cannot run ", def, " on ", def.device());
}
OPKIT_INLINE void RethrowFromConstructor(const Kernel& kernel, const OperatorDef& def) {
  RethrowInContext(
      StrCat("in the constructor of operator ", def, ", registered at ", kernel.Place()));
}

// Refuses an undeclared argument; the function behind ArgumentCheck.
inline void CheckDeclares(const OpSchema& schema, const std::string& type, std::string_view name) {
  if (schema.name() != type || schema.TakesArgument(name)) return;
  Throw(ErrorCode::kInvalidArgument, "operator ", type, " reads the argument '", name,
        "', which its schema does not declare", schema.SuggestArgument(name),
        "; declare it with Arg, or say AllowUncheckedAttributes() in the schema");
}

OPKIT_INLINE SpanWork ComputeWork(const RunCost& run, const OperatorDef& def,
                                  const std::vector<TensorInfo>& inputs,
                                  const std::vector<TensorInfo>& outputs) {
  std::string shapes;
  for (const TensorInfo& input : inputs)
    shapes += StrCat(&input == inputs.data() ? "" : ", ",
                     input.dtype == DType::kUndefined ? "-" : ToString(input));
  uint32_t shapes_name = InternNameIfRoom(shapes);
  if (shapes_name == 0) shapes_name = InternName("(other shapes)");
  const OpCost cost = run.schema->Cost(def, inputs, outputs);
  return {shapes_name, cost.flops, cost.bytes_read + cost.bytes_written, InternName(*run.backend)};
}

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                                      const OperatorDef& def, Workspace* ws,
                                                      const KernelConfig* config) {
  try {
    const ScopedValue checked_arguments(t_argument_check, {&schema, &CheckDeclares});
    const MakeTyped make_typed =
        kernel.make_typed ? kernel.make_typed : &MakeTypedOperator<CPUContext>;
    std::unique_ptr<OperatorBase> op =
        kernel.typed ? make_typed(*kernel.typed, def, ws) : kernel.create(def, ws, config);
    if (!op) return op;
    if (config && !op->config()) op->SetConfig(*config);
    op->SetRegistration(kernel.file, kernel.line, {&schema, &kernel.backend, &ComputeWork});
    op->SetInplaceMasks(InplaceMasks(schema, def, config));
    op->SetMutatedInputs(MutatedInputs(schema, def));
    return op;
  } catch (...) {
    RethrowFromConstructor(kernel, def);
  }
}

// Removes the blobs that a failed construction left behind.
class OutputBlobGuard {
 public:
  OutputBlobGuard(const OperatorDef& def, Workspace* ws) : ws_(ws) {
    for (const std::string& name : def.outputs())
      if (!name.empty() && !ws->HasBlob(name)) created_.push_back(name);
  }
  ~OutputBlobGuard() {
    for (const std::string& name : created_) ws_->RemoveBlob(name);
  }
  void Keep() { created_.clear(); }

 private:
  Workspace* ws_;
  std::vector<std::string> created_;
};

OPKIT_INLINE std::vector<TensorInfo> TypesIn(const Workspace& ws,
                                             const std::vector<std::string>& names) {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) {
    const Tensor* tensor = !name.empty() && ws.HasTensor(name) ? ws.GetTensor(name) : nullptr;
    infos.push_back(tensor && tensor->initialized() ? TensorInfo::Of(*tensor) : TensorInfo());
  }
  return infos;
}

OPKIT_INLINE void CheckConfig(const Kernel& kernel, const OperatorDef& def,
                              const KernelConfig& config) {
  auto wrong = [&](const std::string& what) {
    Throw(ErrorCode::kInvalidArgument, "the configuration that the kernel of ", kernel.op, " at ",
          kernel.Place(), " proposes for ", def, " ", what);
  };
  const size_t inputs = def.inputs().size(), outputs = def.outputs().size();
  auto check_layouts = [&](size_t found, size_t expected, const char* values) {
    if (found != 0 && found != expected)
      wrong(StrCat("has layouts for ", found, " ", values, ", expected none or ", expected));
  };
  check_layouts(config.input_layouts.size(), inputs, "inputs");
  check_layouts(config.output_layouts.size(), outputs, "outputs");
  for (const auto& [in, out] : config.inplace)
    if (in < 0 || out < 0 || Index(in) >= inputs || Index(out) >= outputs)
      wrong(StrCat("pairs input ", in, " with output ", out, " in place, but the node has ", inputs,
                   " inputs and ", outputs, " outputs"));
  if (!__builtin_isfinite(config.cost_ns)) wrong(StrCat("costs ", config.cost_ns, " ns"));
  if (config.scratch_bytes < 0) wrong(StrCat("needs ", config.scratch_bytes, " bytes of scratch"));
  for (const char c : config.variant)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      wrong("has a variant whose name contains a control character");
}

// Makes the operator of the given kernel, or of the first kernel that accepts the node.
OPKIT_IMAGE_LOCAL inline std::unique_ptr<OperatorBase> CreateBy(const OpSchema& schema,
                                                                const OperatorDef& def,
                                                                Workspace* ws,
                                                                const CreateOptions& options) {
  if (const Kernel* kernel = options.kernel) {
    CheckIsFor(*kernel, def);
    if (options.config) CheckConfig(*kernel, def, *options.config);
    if (auto op = CreateWith(*kernel, schema, def, ws, options.config)) return op;
    throw UnsupportedOperatorFeature(
        StrCat("the creator of ", kernel->op, " at ", kernel->Place(), " returned null"));
  }
  std::string refused;
  for (const Kernel* kernel : KernelOrder(def)) {
    std::string why = OpRegistry::Global().WhyUnavailable(*kernel);
    if (why.empty() && kernel->proposes_layouts && !options.converts)
      why = g_why_not_standard(*kernel, schema, def, *ws);
    if (!why.empty()) {
      refused += StrCat("\n  backend ", kernel->backend, ": ", why);
      continue;
    }
    try {
      if (auto op = CreateWith(*kernel, schema, def, ws, nullptr)) return op;
      refused += StrCat("\n  backend ", kernel->backend, ": its creator returned null");
    } catch (const UnsupportedOperatorFeature& error) {
      refused += StrCat("\n  backend ", kernel->backend, ": ", error.message());
    }
  }
  ThrowNoKernel(def, refused);
}

}  // namespace detail

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                          const CreateOptions& options) {
  const detail::RegistryUse use;
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (options.config && !options.kernel)
      Throw(ErrorCode::kInvalidArgument, "CreateOperator of ", def,
            " was given a configuration without the kernel that proposed it");
    detail::CheckNode(schema, def);
    detail::OutputBlobGuard guard(def, ws);
    auto op = detail::CreateBy(schema, def, ws, options);
    op->set_net_position(options.net_position);
    guard.Keep();
    return op;
  } catch (...) {
    if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
    throw;
  }
}
OPKIT_INLINE std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                          int net_position) {
  return CreateOperator(def, ws, {.net_position = net_position});
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_CREATE_OPERATOR_IPP_

// ---- opkit/op/call/direct_call.hpp
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

// ---- opkit/op/impl/invoke.ipp
// The definitions of ResolvedOperator and Invoke.
#ifndef OPKIT_OP_IMPL_INVOKE_IPP_
#define OPKIT_OP_IMPL_INVOKE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Ends the call at the end of the scope.
struct ResolvedOperator::Release {
  ResolvedOperator& self;
  ~Release() { self.call_guard_.End(); }
};

namespace detail {

inline std::vector<int> AllPresent(const std::string& op, int num_inputs) {
  if (num_inputs < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
  return std::vector<int>(Index(num_inputs), 1);
}
OPKIT_INLINE std::vector<int> PresentInputs(std::span<const Tensor> inputs) {
  std::vector<int> present;
  for (const Tensor& input : inputs) present.push_back(input.dtype() != DType::kUndefined);
  return present;
}

OPKIT_INLINE int CountOutputs(const OpSchema& schema, size_t num_inputs, const Arguments& args,
                              int given, const char* mend) {
  const int count = given >= 0 ? given : schema.CalculateOutput(static_cast<int>(num_inputs), args);
  if (count < 0)
    Throw(ErrorCode::kInvalidArgument, "operator ", schema.name(), " has ",
          schema.expected_outputs(), " outputs; ", mend);
  return count;
}
// Returns the schema's name of value i, or a generated name such as "input 0". Generates a name if
// the schema has no name for the value, or if the node already has a value of that name. Also
// replaces a name with a space, which could equal a generated name.
inline std::string NameOfValue(const OperatorDef& def, const std::vector<ValueSchema>& declared,
                               const char* kind, size_t i) {
  if (i < declared.size()) {
    const std::string& name = declared[i].name;
    if (!name.empty() && name.find(' ') == std::string::npos && !Contains(def.inputs(), name) &&
        !Contains(def.outputs(), name))
      return name;
  }
  return StrCat(kind, i);
}

}  // namespace detail

OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op, int num_inputs,
                                                Arguments args, const InvokeOptions& options)
    : ResolvedOperator(op, detail::AllPresent(op, num_inputs), std::move(args), options) {}
OPKIT_INLINE ResolvedOperator::ResolvedOperator(const std::string& op,
                                                const std::vector<int>& present, Arguments args,
                                                const InvokeOptions& options)
    : schema_(nullptr) {
  const detail::RegistryUse use;
  schema_ = &OpRegistry::Global().GetSchema(op);
  def_ = OperatorDef(op, {}, {}, std::move(args));
  def_.Device(options.device.value_or(Device{})).Backends(options.backends, options.backend_need);
  for (size_t i = 0; i < present.size(); ++i)
    def_.Input(present[i] ? detail::NameOfValue(def_, schema_->inputs(), "input ", i)
                          : std::string());
  const int num_outputs =
      detail::CountOutputs(*schema_, present.size(), def_.args(), options.num_outputs,
                           schema_->has_arity_function()
                               ? "say how many with InvokeOptions::num_outputs, or once for all in "
                                 "its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"
                               : "say how many with InvokeOptions::num_outputs");
  for (size_t i = 0; i < detail::Index(num_outputs); ++i)
    def_.Output(detail::NameOfValue(def_, schema_->outputs(), "output ", i));
  detail::CheckNode(*schema_, def_);
  detail::CheckEngine(def_);
  call_ = detail::MakeDirectCall(*schema_, def_);
  if (!call_.run) call_ = detail::g_operator_call(*schema_, def_);
}

OPKIT_INLINE std::vector<Tensor> ResolvedOperator::operator()(std::span<const Tensor> inputs) {
  std::vector<Tensor> results(def_.outputs().size());
  Run(inputs, results);
  return results;
}
OPKIT_INLINE void ResolvedOperator::RunBy(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                          bool issue) {
  const size_t num_inputs = def_.inputs().size(), num_outputs = def_.outputs().size();
  if (inputs.size() != num_inputs || outputs.size() != num_outputs)
    Throw(ErrorCode::kInvalidArgument, "operator ", def_.type(), " was resolved for ", num_inputs,
          " inputs and ", num_outputs, " outputs, but called with ", inputs.size(), " and ",
          outputs.size());
  if (!call_guard_.Begin()) [[unlikely]]
    Throw(ErrorCode::kFailedPrecondition, "the ResolvedOperator of ", def_.type(),
          " is called while another call of it runs, and takes one thread at a time: make one for "
          "each thread");
  const Release release{*this};
  call_.run(inputs, outputs, issue);
}

OPKIT_INLINE OperatorBase& ResolvedOperator::op() {
  if (!call_.by_operator) {
    const detail::RegistryUse use;
    call_ = detail::MakeOperatorCall(*schema_, def_);
  }
  return call_.by_operator->op();
}

namespace detail {
OPKIT_IMAGE_LOCAL inline ResolvedOperator Resolve(const std::string& op,
                                                  const std::vector<Tensor>& inputs, Arguments args,
                                                  InvokeOptions options) {
  const std::vector<int> present = PresentInputs(inputs);
  for (size_t i = 0; i < inputs.size() && !options.device; ++i)
    if (present[i]) options.device = inputs[i].device();
  return ResolvedOperator(op, present, std::move(args), options);
}
}  // namespace detail

OPKIT_INLINE std::vector<Tensor> Invoke(const std::string& op, const std::vector<Tensor>& inputs,
                                        Arguments args, InvokeOptions options) {
  const detail::ScopedValue in_invoke(detail::t_in_invoke, true);
  return detail::Resolve(op, inputs, std::move(args), std::move(options))(std::span(inputs));
}

// A call of InvokeAsync, shared by its handle and by the pool's thread.
struct PendingOutputs::State : detail::RefCounted {
  State(ResolvedOperator resolved, std::vector<Tensor> tensors)
      : op(std::move(resolved)), inputs(std::move(tensors)) {}

  void Run() noexcept {
    std::exception_ptr failure;
    {  // destroys the call, except its outputs, before the event completes
      const detail::ScopedValue in_invoke(detail::t_in_invoke, true);
      ResolvedOperator called = std::move(op);
      const std::vector<Tensor> read = std::move(inputs);
      try {
        outputs = called(std::span(read));
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure)
      event.SetFinishedWithException(std::move(failure));
    else
      event.SetFinished();
    done.CountDown();
  }

  ResolvedOperator op;
  std::vector<Tensor> inputs, outputs;
  Event event;
  ThreadPool& pool = ThreadPool::Current();
  detail::Latch done{1};
  bool taken = false;
};

OPKIT_INLINE PendingOutputs::PendingOutputs(detail::IntrusivePtr<detail::RefCounted> state)
    : state_(std::move(state)) {}
OPKIT_INLINE PendingOutputs::State& PendingOutputs::state() const {
  return static_cast<State&>(*state_);
}
OPKIT_INLINE const Event& PendingOutputs::event() const { return state().event; }
OPKIT_INLINE std::vector<Tensor> PendingOutputs::Get() {
  if (std::exchange(state().taken, true))
    Throw(ErrorCode::kFailedPrecondition, "PendingOutputs::Get: the outputs were taken already");
  if (!state().done.done()) state().pool.Wait(state().done);
  state().event.RethrowIfFailed();
  return std::move(state().outputs);
}

OPKIT_INLINE PendingOutputs InvokeAsync(const std::string& op, std::vector<Tensor> inputs,
                                        Arguments args, InvokeOptions options) {
  ResolvedOperator resolved = detail::Resolve(op, inputs, std::move(args), std::move(options));
  auto state = detail::MakeIntrusive<PendingOutputs::State>(std::move(resolved), std::move(inputs));
  state->event.SetScheduled();
  if (state->pool.threads() > 1)
    state->pool.Submit([state] { state->Run(); });
  else
    state->Run();
  return PendingOutputs(state);
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_INVOKE_IPP_

// ---- opkit/device/native_stream.hpp
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

// ---- opkit/op/call/bound_operator.hpp
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

// ---- opkit/op/call/impl/operator_call.ipp
// The definitions of OperatorCall and of BoundOperator's functions.
#ifndef OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_
#define OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Releases the memory of the workspace's tensors at the end of a call. The next call sets these
// tensors again.
struct OperatorCall::Release {
  OperatorCall& self;
  ~Release() {
    for (Tensor* input : self.inputs_)
      if (input) const Tensor dropped = std::move(*input);
    for (Blob* output : self.outputs_)
      if (output->IsType<Tensor>()) const Tensor dropped = std::move(*output->GetMutable<Tensor>());
  }
};

OPKIT_INLINE OperatorCall::OperatorCall(const OpSchema& schema, const OperatorDef& def)
    : schema_(schema), def_(def) {
  Place place = MakePlace();
  auto made = CreateOperator(def_, place.workspace.get(), {.converts = true});
  SetOperator(std::move(made), std::move(place));
  const OpRegistry& registry = OpRegistry::Global();
  for (const Kernel* kernel : registry.FindKernels(def_.type(), def_.device().type))
    selects_ |=
        kernel->proposes_layouts || registry.BackendRank(kernel->backend, kernel->origin) > 0;
  if (selects_) selected_for_.resize(inputs_.size());
}

OPKIT_INLINE void OperatorCall::Run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                    bool issue) {
  const Release release{*this};
  bool standard = true;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs_[i]) {
      *inputs_[i] = inputs[i];
      standard &= inputs[i].layout().is_standard();
    }
  if (selects_ && !InferenceCache::Match(selected_for_, inputs_)) [[unlikely]]
    Select();
  if (converts_ || !standard) [[unlikely]]
    ConvertInputs();
  if (checks_types_ && !op_->inference().IsFresh(inputs_)) [[unlikely]] {
    op_->inference().Infer(
        def_, inputs_, [this](InferenceContext& context) { schema_.Infer(context); }, [] {});
    op_->inference().Keep();
  }
  for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
  if (issue) {
    op_->DisableEvent();  // the next run may be issued before this one has finished
    op_->RunAsync();
  } else {
    op_->Run();
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Blob& output = *outputs_[o];
    if (!output.IsType<Tensor>()) [[unlikely]]
      Throw(ErrorCode::kTypeMismatch, "'", output.name(), "' of operator ", def_.type(),
            " is not a tensor; run it in a workspace to get it");
    const Tensor& made = output.Get<Tensor>();
    if (!made.initialized()) [[unlikely]]
      Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
            output.name(), "'; get it with Output(i, shape, dtype) and write to it");
    if (checks_types_ && !op_->inference().outputs()[o].Allows(made)) [[unlikely]]
      ThrowContradicts(def_, output.name(), made, op_->inference().outputs()[o].info());
    if (converts_ || !made.layout().is_standard()) [[unlikely]]
      if (const Layout promised = op_->OutputLayout(static_cast<int>(o));
          made.layout().id != promised.id)
        ThrowOtherLayout(def_, output.name(), made, promised);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    Tensor& made = *outputs_[o]->GetMutable<Tensor>();
    if (converts_ && !made.layout().is_standard()) [[unlikely]]
      ConvertOutput(made, outputs[o]);
    else
      outputs[o] = std::move(made);
  }
}

OPKIT_INLINE void OperatorCall::ConvertInputs() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] && inputs_[i]->initialized())
      *inputs_[i] = g_convert_layout(*inputs_[i], op_->InputLayout(static_cast<int>(i)));
}
OPKIT_INLINE void OperatorCall::ConvertOutput(const Tensor& made, Tensor& output) const {
  const InvocationScope scope(Invocation::Kind::kConverter, [&] {
    return SpanNames{InternName("ConvertLayout"), InternName(def_.type())};
  });
  Tensor target = output.layout().is_standard() ? output : Tensor(made.device());
  target.Resize(made.shape(), made.dtype());
  g_convert_layout_to(made, target);
  output = std::move(target);
}

OPKIT_INLINE OperatorCall::Place OperatorCall::MakePlace() const {
  Place place{std::make_unique<Workspace>(), {}};
  for (const std::string& name : def_.inputs())
    place.inputs.push_back(name.empty() ? nullptr : place.workspace->CreateTensor(name));
  return place;
}
OPKIT_INLINE void OperatorCall::SetOperator(std::unique_ptr<OperatorBase> op, Place place) {
  std::vector<Blob*> outputs;
  for (const std::string& name : def_.outputs()) outputs.push_back(place.workspace->GetBlob(name));
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) *place.inputs[i] = std::move(*inputs_[i]);
  op_ = std::move(op);
  workspace_ = std::move(place.workspace);
  inputs_ = std::move(place.inputs);
  outputs_ = std::move(outputs);
  checks_types_ = (schema_.has_inference() || schema_.limits_dtypes()) && !op_->InfersOutputs();
}
OPKIT_INLINE void OperatorCall::Select() {
  const RegistryUse use;
  std::vector<TensorInfo> infos;
  for (const Tensor* input : inputs_)
    infos.push_back(input && input->initialized() ? TensorInfo::Of(*input) : TensorInfo());
  const std::vector<TensorInfo> outputs = schema_.InferOutputs(def_, infos);
  Place place = MakePlace();
  // On a stream no output can be converted here, because its elements are not computed yet.
  const bool converts = def_.device().type == DeviceType::kCPU;
  bool is_standard = true;
  auto op = g_create_selected(def_, place.workspace.get(), infos, outputs, converts, &is_standard);
  SetOperator(std::move(op), std::move(place));
  converts_ = !is_standard;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i]) selected_for_[i] = {inputs_[i]->dtype(), true, inputs_[i]->shape()};
}

OPKIT_INLINE ResolvedCall MakeOperatorCall(const OpSchema& schema, const OperatorDef& def) {
  auto call = std::make_unique<OperatorCall>(schema, def);
  OperatorCall* const made = call.get();
  return {[call = std::move(call)](std::span<const Tensor> inputs, std::span<Tensor> outputs,
                                   bool issue) { call->Run(inputs, outputs, issue); },
          made};
}
// The workspace and the operator behind a BoundOperator.
struct OPKIT_IMAGE_LOCAL OperatorPlace : RefCounted {
  OperatorPlace(const Kernel& kernel, const OperatorDef& def, const KernelConfig* config)
      : here(def.device()) {
    for (const std::string& name : def.inputs()) {
      inputs.push_back(name.empty() ? nullptr : workspace.CreateBlob(name));
      if (!name.empty()) workspace.CreateTensor(name);
    }
    const CPUStreamScope in_stream(here);
    op = CreateOperator(def, &workspace, {.kernel = &kernel, .config = config});
    // The caller's event completes with the work on native streams.
    if (FindNativeStreams(def.device().type)) op->DisableEvent();
    for (const std::string& name : def.outputs())
      outputs.push_back(name.empty() ? nullptr : workspace.FindBlob(name));
  }
  static OperatorPlace& Of(RefCounted& bound) { return static_cast<OperatorPlace&>(bound); }
  static Tensor* TensorIn(Blob* blob) { return blob ? blob->GetMutable<Tensor>() : nullptr; }

  CPUStream here;  // runs work at once: a stream already runs this thread in order
  Workspace workspace;
  std::unique_ptr<OperatorBase> op;
  std::vector<Blob*> inputs, outputs;  // null for a value that is left out
};

OPKIT_IMAGE_LOCAL inline BoundOperator BindOperator(const Kernel& kernel, const OperatorDef& def,
                                                    const KernelConfig* config) {
  return {MakeIntrusive<OperatorPlace>(kernel, def, config),
          [](RefCounted& bound, size_t i) {
            return OperatorPlace::TensorIn(OperatorPlace::Of(bound).inputs[i]);
          },
          [](RefCounted& bound, size_t o) {
            return OperatorPlace::TensorIn(OperatorPlace::Of(bound).outputs[o]);
          },
          [](RefCounted& bound, size_t o) -> const Tensor* {
            const Blob* const blob = OperatorPlace::Of(bound).outputs[o];
            return blob->IsType<Tensor>() ? &blob->Get<Tensor>() : nullptr;
          },
          [](RefCounted& bound, void* scratch, int64_t scratch_bytes, bool issue) {
            OperatorPlace& place = OperatorPlace::Of(bound);
            const CPUStreamScope in_stream(place.here);
            place.op->SetScratch(scratch, scratch_bytes);
            issue ? place.op->RunAsync() : place.op->Run();
          }};
}

OPKIT_INLINE void UseOperatorCalls() noexcept {
  g_operator_call.Fill(&MakeOperatorCall);
  g_bind_operator.Fill(&BindOperator);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CALL_IMPL_OPERATOR_CALL_IPP_

// ---- opkit/op/kernel_candidates.hpp
// KernelCandidates: lists the kernels of a node in the order of preference, with their proposed
// configurations, or the reason why a kernel proposes none. Selection picks a candidate, memory is
// planned with it, and CreateOperator makes its operator.
#ifndef OPKIT_OP_KERNEL_CANDIDATES_HPP_
#define OPKIT_OP_KERNEL_CANDIDATES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A configuration that a kernel proposes for a node, or the reason why the kernel has none.
struct KernelCandidate {
  const Kernel* kernel = nullptr;  // null: a preferred backend without a kernel in the program
  KernelConfig config;
  std::string dropped;  // why it cannot be chosen; empty if it can be
  std::string backend;  // the kernel's backend
  int number = 0;       // index of the configuration in the kernel's proposals

  // Returns the backend and the variant, "onednn winograd".
  std::string name() const { return detail::WithVariant(backend, config.variant); }
};

// Returns the candidates for a node, best first: the kernels of the backends that the node, or a
// preference of the operator or program, requests; then all other kernels by the rank of their
// backends. Each kernel is listed with every configuration that it proposes. A kernel without a
// configuration is listed once with the reason; so is a preferred backend without kernels. Drops
// configurations with layouts that no conversion supports (core/layout_registry.hpp). A constructor
// may still refuse the node: it throws UnsupportedOperatorFeature. Take the next candidate then.
// Throws kNotFound like CreateOperator; the errors of a proposer; kInvalidArgument for a
// configuration that does not fit the node.
//
//   for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
//     if (candidate.dropped.empty())
//       return CreateOperator(def, &ws, {.kernel = candidate.kernel, .config = &candidate.config});
OPKIT_IMAGE_LOCAL std::vector<KernelCandidate> KernelCandidates(
    const OperatorDef& def, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs);

namespace detail {
// Lets CreateOperator, Invoke and ResolvedOperator select among kernels that propose configurations
// or have a rank. Every registration of such a kernel or of a rank calls this function.
OPKIT_IMAGE_LOCAL void UseSelection() noexcept;
// Returns the reason why the kernel cannot run the node with the workspace's tensors: all its
// configurations need other layouts than the standard layout, and no code converts the tensors.
// Empty if the kernel can run the node, or if this is not known yet.
OPKIT_IMAGE_LOCAL std::string WhyNotStandard(const Kernel& kernel, const OpSchema& schema,
                                             const OperatorDef& def, const Workspace& ws);
// Returns the layouts of a configuration as text, "NHWC, standard -> NHWC"; empty if all are the
// standard layout.
OPKIT_IMAGE_LOCAL std::string LayoutsText(const KernelConfig& config);
// True if two configurations have the same layouts; IsSameConfig: and the same variant.
OPKIT_IMAGE_LOCAL bool HaveSameLayouts(const KernelConfig& a, const KernelConfig& b);
inline bool IsSameConfig(const KernelConfig& a, const KernelConfig& b) {
  return a.variant == b.variant && HaveSameLayouts(a, b);
}
// Returns the reason why no conversion supports a layout of the configuration; empty if conversions
// support all layouts.
OPKIT_IMAGE_LOCAL std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config);
}  // namespace detail

// The options of CreateSelected.
struct SelectOptions {
  int net_position = -1;
  // True if the operator must also accept other shapes: the kernel is selected for the given types,
  // but made without the configuration that it proposed for them.
  bool any_shapes = false;
  // True if the caller converts inputs and outputs to the layouts of the configuration. If false,
  // skips configurations with other layouts than the standard one.
  bool converts = false;
};

// Makes the operator of the first candidate that accepts the node. Stores the candidate in
// `chosen`, and in `passed_over` the better candidates with the reasons against them, a line each;
// both may be null. Throws the errors of KernelCandidates and CreateOperator; kUnsupported with
// each candidate's reason if none accepts the node.
OPKIT_IMAGE_LOCAL std::unique_ptr<OperatorBase> CreateSelected(
    const OperatorDef& def, Workspace* ws, std::span<const TensorInfo> inputs,
    std::span<const TensorInfo> outputs, const SelectOptions& options = {},
    KernelCandidate* chosen = nullptr, std::string* passed_over = nullptr);

}}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_CANDIDATES_HPP_

// ---- opkit/op/impl/registration.ipp
// The definitions of the functions that the registration macros call.
#ifndef OPKIT_OP_IMPL_REGISTRATION_IPP_
#define OPKIT_OP_IMPL_REGISTRATION_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes a kernel without a proposer.
inline Kernel PlainKernel(const KernelRegistration& from, OperatorCreator create) {
  Kernel kernel;
  kernel.op = from.op;
  kernel.device = from.device;
  if (*from.backend && std::string_view(from.backend) != "DEFAULT") kernel.backend = from.backend;
  kernel.priority = from.priority;
  kernel.file = from.file;
  kernel.line = from.line;
  kernel.create = std::move(create);
  return kernel;
}
OPKIT_INLINE bool RegisterKernel(const KernelRegistration& kernel,
                                 OperatorCreator create) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    OpRegistry::Global().AddKernel(PlainKernel(kernel, std::move(create)));
  });
}
OPKIT_INLINE bool RegisterProposingKernel(const KernelRegistration& kernel, OperatorCreator create,
                                          KernelProposer propose, KernelFuser fuse) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    UseSelection();
    Kernel proposing = PlainKernel(kernel, std::move(create));
    proposing.proposes_layouts = true;
    proposing.propose = std::move(propose);
    proposing.fuse = std::move(fuse);
    OpRegistry::Global().AddKernel(std::move(proposing));
  });
}
OPKIT_INLINE bool RegisterFunction(const KernelRegistration& kernel,
                                   CreateFunction create) noexcept {
  return RegisterKernel(kernel, create);
}
OPKIT_INLINE bool RegisterBackendAvailability(const char* backend,
                                              std::string (*why_not)()) noexcept {
  return Registered([&] { OpRegistry::Global().SetBackendAvailability(backend, why_not); });
}
OPKIT_INLINE bool RegisterBackendRank(const char* backend, int rank) noexcept {
  return Registered([&] {
    UseSelection();
    OpRegistry::Global().SetBackendRank(backend, rank);
  });
}
OPKIT_INLINE bool RegisterBackendVersion(const char* backend, std::string (*version)()) noexcept {
  return Registered([&] { OpRegistry::Global().SetBackendVersion(backend, version); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_IMPL_REGISTRATION_IPP_

// ---- opkit/op/typed/impl/typed_call.ipp
// The definitions of TypedCall, and of the error of its attributes.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void ThrowNoElement(double value, DType dtype) {
  Throw(ErrorCode::kOutOfRange, value, ", which is no value of the inputs' dtype ", dtype);
}

// Returns the node's attribute, or the default. Throws kNotFound.
inline const Attribute& FindAttribute(const OpSchema& schema, const OperatorDef& def,
                                      const std::string& name) {
  if (const Attribute* given = def.args().Find(name)) return *given;
  const AttributeSchema* declared = schema.FindAttribute(name);
  if (!declared || !declared->default_value)
    Throw(ErrorCode::kNotFound, "operator ", def.type(), " needs the argument '", name, "'");
  return *declared->default_value;
}

OPKIT_INLINE TypedCall::TypedCall(const TypedKernel& kernel, const OpSchema& schema,
                                  const OperatorDef& def)
    : kernel_(kernel), schema_(schema), states_(new State[kernel.versions.size()]) {
  const auto leaves_out = [&](const std::vector<std::string>& names, int place) {
    return Index(place) >= names.size() || names[Index(place)].empty();
  };
  for (const TypedParameter& row : kernel.rows) {
    num_inputs_ += IsInput(row.kind);
    if ((row.kind == ParameterKind::kIn && leaves_out(def.inputs(), row.place)) ||
        (row.kind == ParameterKind::kOut && leaves_out(def.outputs(), row.place)))
      Throw(ErrorCode::kInvalidArgument, def, " leaves out ",
            IsInput(row.kind) ? "input " : "output ", row.place, " '", row.name.str(),
            "', which is not optional",
            IsInput(row.kind) ? "; an Invoke leaves out a tensor that has no dtype yet" : "");
  }
  for (size_t v = 0; v < kernel.versions.size(); ++v) {
    State& state = states_[v];
    state.slots.reset(new TypedSlot[kernel.rows.size()]);
    for (size_t i = 0; i < kernel.rows.size(); ++i) {
      const TypedParameter& row = kernel.rows[i];
      if (!IsAttribute(row.kind)) continue;
      const std::string name = row.name.str();
      const Attribute& attribute = FindAttribute(schema, def, name);
      try {
        kernel.versions[v].readers[i](attribute, state.slots[i]);
      } catch (const Error& error) {
        if (!row.by_element || error.code() != ErrorCode::kOutOfRange)
          Throw(error.code(), "argument '", name, "': ", error.message());
        // Only a run with this element type reports the error.
        state.refused = StrCat("argument '", name, "' is ", error.message());
      }
    }
  }
}

OPKIT_INLINE void TypedCall::Infer(const OperatorDef& def, InputPointers inputs,
                                   InferenceCache& inference, FunctionRef<void()> wait) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] && !inputs[i]->initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("input ", i, " of ", def, " is read before anything was written to it"),
                  inputs[i]);
  auto infer = [&](InferenceContext& context) {
    schema_.Infer(context);
    for (size_t o = 0; o < context.outputs().size(); ++o)
      if (const SymbolicShape& shape = context.outputs()[o].shape; !shape.is_known())
        Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
              schema_.outputs()[o].name, "' of ", def,
              " does not follow from its inputs: its shape rule says ", shape);
  };
  inference.Infer(def, inputs, infer, wait);
  inference.Keep();
}

OPKIT_INLINE bool TypedCall::Run(void* context, size_t version, InputPointers inputs,
                                 const Tensor* const* outputs, uint64_t shapes) {
  const TypedVersion& to_call = kernel_.versions[version];
  State& state = states_[version];
  const bool reshaped = state.shapes != shapes;
  state.shapes = 0;
  TypedSlot* slot = state.slots.get();
  for (const TypedParameter& row : kernel_.rows) {
    if (!IsAttribute(row.kind)) {
      const bool is_input = IsInput(row.kind);
      const Tensor* tensor = is_input ? inputs[Index(row.place)] : outputs[row.place];
      if (tensor) {
        if (reshaped) slot->extents.SetShape(tensor->shape());
        slot->data =
            is_input
                ? const_cast<void*>(tensor->raw_data(row.by_element ? to_call.element : row.dtype))
                : tensor->raw_mutable_data();
      }
      slot->present = tensor;
    }
    ++slot;
  }
  state.shapes = shapes;
  return to_call.call(context, state.slots.get());
}

OPKIT_INLINE void TypedCall::ThrowNotStandard(const OperatorDef& def, size_t i,
                                              const Tensor& input) const {
  throw Error(ErrorCode::kUnsupported,
              StrCat("input ", i, " '", schema_.inputs()[i].name, "' of ", def,
                     " needs the standard layout; convert first"),
              &input);
}
OPKIT_INLINE void TypedCall::ThrowNoVersion(const OperatorDef& def, InputPointers inputs) const {
  const size_t i = Index(kernel_.element_input);
  std::vector<DType> versions;
  for (const TypedVersion& version : kernel_.versions) versions.push_back(version.element);
  throw Error(ErrorCode::kTypeMismatch,
              StrCat("input ", i, " '", schema_.inputs()[i].name, "' of ", def.type(), " is ",
                     inputs[i]->dtype(), ", but its kernel for ", def.device(), " is compiled for ",
                     versions, "; add it to .Kernel<>"),
              inputs[i]);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_CALL_IPP_

// ---- opkit/op/typed/impl/typed_schema.ipp
// TypedSchema's definitions: the schema of a table of parameters, and inference by shape rules.
#ifndef OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_
#define OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns a text such as "x: float32, y?: T -> z: T out, alpha: float"; the texts are equal for
// functions with equal schemas.
OPKIT_COLD inline std::string TypedSignatureText(std::span<const TypedParameter> rows) {
  std::string inputs, rest;
  for (const TypedParameter& row : rows) {
    std::string& out = IsInput(row.kind) ? inputs : rest;
    out += StrCat(out.empty() ? "" : ", ", row.name.str(),
                  row.kind == ParameterKind::kOptionalIn ? "?: " : ": ",
                  row.by_element          ? "T"
                  : IsAttribute(row.kind) ? ToString(row.attribute)
                                          : ToString(row.dtype),
                  IsOutput(row.kind) ? " out" : "");
  }
  return inputs + " -> " + rest;
}

OPKIT_COLD OPKIT_INLINE IntrusivePtr<TypedSchema> TypedSchema::Make(
    const char* name, const char* file, int line, std::span<const TypedParameter> rows) {
  OpSchema& schema = OpRegistry::Global().AddSchema(name, file, line, TypedSignatureText(rows));
  auto typed = MakeIntrusive<TypedSchema>(schema, rows);
  schema.Inplace([typed](int in, int out) { return Contains(typed->inplace_, std::pair(in, out)); })
      .Infer([typed](InferenceContext& context) { typed->Infer(context); });
  return typed;
}
OPKIT_COLD OPKIT_INLINE TypedSchema::TypedSchema(OpSchema& filled,
                                                 std::span<const TypedParameter> rows)
    : schema(filled), rows_(rows) {
  int inputs = 0, required_inputs = 0, outputs = 0;
  for (const TypedParameter& row : rows) {
    if (IsAttribute(row.kind)) {
      schema.Arg({row.name.str(), "", true, row.attribute, {}});
      continue;
    }
    Describe(row, {}, row.by_element ? std::vector<DType>() : std::vector{row.dtype});
    if (row.kind == ParameterKind::kIn) {
      required_inputs = row.place + 1;
      if (row.by_element && element_input_ < 0) element_input_ = row.place;
    }
    ++(IsInput(row.kind) ? inputs : outputs);
  }
  schema.NumInputs(required_inputs, inputs).NumOutputs(outputs);
}

// Merges all known shapes of these inputs and outputs and sets the result for all of them.
inline void InferSameShape(const OpSchema& schema, InferenceContext& context,
                           const std::vector<int>& inputs, const std::vector<int>& outputs) {
  const auto name = [&](int i) {
    return StrCat("input ", i, " '", schema.inputs()[Index(i)].name, "'");
  };
  SymbolicShape shape;
  for (int o : outputs)
    if (auto merged = SymbolicShape::Merge(shape, context.output(o).shape))
      shape = *std::move(merged);
  int first = -1;
  for (int i : inputs) {
    if (!context.HasInput(i)) continue;
    auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, name(i), " of ", context.def(), " has shape ",
            context.input_shape(i), ", but must have that of ",
            first < 0 ? "the output" : name(first), ", ", shape);
    shape = *std::move(merged);
    if (first < 0) first = i;
  }
  for (int i : inputs)
    if (context.HasInput(i)) context.SetInput(i, DType::kUndefined, shape);
  for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
}
OPKIT_COLD OPKIT_INLINE void TypedSchema::SameShape(std::initializer_list<int> inputs,
                                                    std::initializer_list<int> outputs) {
  std::vector<int> ins, outs;
  for (const int place : inputs)
    if (place >= 0) ins.push_back(place);
  for (const int place : outputs)
    if (place >= 0) outs.push_back(place);
  AddRule([this, ins = std::move(ins), outs = std::move(outs)](InferenceContext& context) {
    InferSameShape(schema, context, ins, outs);
  });
}
OPKIT_COLD OPKIT_INLINE void TypedSchema::AddKernel(DeviceType device, const TypedKernel& typed,
                                                    MakeTyped make) noexcept {
  try {
    for (const TypedVersion& version : typed.versions)
      if (version.element != DType::kUndefined && !Contains(element_types_, version.element))
        element_types_.push_back(version.element);
    for (const TypedParameter& row : rows_) {
      if (!row.by_element || IsAttribute(row.kind)) continue;
      const auto& values = IsInput(row.kind) ? schema.inputs() : schema.outputs();
      Describe(row, values[Index(row.place)].doc, element_types_);
    }
    Kernel kernel;
    kernel.op = schema.name();
    kernel.device = device;
    kernel.file = schema.file();
    kernel.line = schema.line();
    kernel.typed = &typed;
    kernel.make_typed = make;
    OpRegistry::Global().AddKernel(std::move(kernel));
  } catch (...) {  // out of memory: the first lookup reports a missing kernel
  }
}
OPKIT_INLINE void TypedSchema::AddProblem(std::string_view what) {
  OpRegistry::Global().AddProblem(
      schema.name(), StrCat("the schema of operator ", schema.name(), " at ", schema.file(), ":",
                            schema.line(), " is not whole: ", what));
}

OPKIT_COLD OPKIT_INLINE void TypedSchema::Describe(const TypedParameter& row, std::string doc,
                                                   std::vector<DType> dtypes) {
  const auto describe = IsInput(row.kind) ? &OpSchema::Input : &OpSchema::Output;
  (schema.*describe)(row.place, row.name.str(), std::move(doc), std::move(dtypes));
}
OPKIT_INLINE void TypedSchema::Infer(InferenceContext& context) {
  for (const TypedParameter& row : rows_) {
    if (IsAttribute(row.kind)) continue;
    const DType dtype = row.by_element ? context.input_dtype(element_input_) : row.dtype;
    if (IsOutput(row.kind))
      context.SetOutput(row.place, dtype, {});
    else if (context.HasInput(row.place))
      context.SetInput(row.place, dtype, {});
  }
  for (auto& rule : rules_) rule(context);
}
}}}  // namespace opkit::detail

#endif  // OPKIT_OP_TYPED_IMPL_TYPED_SCHEMA_IPP_

// ---- opkit/profile/impl/profile.ipp
// Names and domains of spans.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::string detail::UserCodeName(const ProfileSpan& span) {
  return StrCat(InternedName(span.custom), "::user_code");
}

OPKIT_INLINE std::string DisplayName(const ProfileSpan& span) {
  const std::string name = span.name ? InternedName(span.name) : "(unnamed)";
  if (span.custom == 0 || span.kind == Invocation::Kind::kEngine) return name;
  const std::string path = InternedName(span.custom);
  if (span.kind == Invocation::Kind::kCustomOperator)
    return span.adopted ? detail::UserCodeName(span) : path;
  return StrCat(path, "::", name);
}

OPKIT_INLINE const char* DomainOf(const ProfileSpan& span) {
  if (span.kind == Invocation::Kind::kEngine) return "engine";
  if (span.custom != 0) return "Custom Operators";
  constexpr const char* kDomains[] = {"operator", "operator",  "operator", "operator",
                                      "user",     "converter", "copy",     "run",
                                      "task",     "phase",     "engine"};  // by kind
  const auto kind = static_cast<size_t>(span.kind);
  return kind < std::size(kDomains) ? kDomains[kind] : "operator";
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_IPP_

// ---- opkit/base/json/json_writer.hpp
// JsonWriter: appends JSON to a string. All JSON of the toolkit is written through it, so that
// escapes, commas and numbers that JSON lacks are handled in one place.
#ifndef OPKIT_BASE_JSON_JSON_WRITER_HPP_
#define OPKIT_BASE_JSON_JSON_WRITER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the length in bytes of the valid UTF-8 sequence (The Unicode Standard, table 3-7) at the
// start of `text`; 0 if the first bytes are not valid UTF-8.
size_t Utf8Length(std::string_view text);

// Appends `text` in quotes, escaped by the rules of RFC 8259. Writes U+FFFD for each invalid byte.
void AppendJsonString(std::string& out, std::string_view text);

template <class Integer>
void AppendInteger(std::string& out, Integer value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Appends the shortest text that reads back as the number, or null for NaN and the infinities,
// which JSON cannot express.
void AppendNumber(std::string& out, double value);

// Every call appends at once. Fast enough for files of millions of lines; a caller may move the
// text away between two calls.
//
//   std::string text;
//   JsonWriter json(text);
//   json.BeginObject().Member("name", name).Member("sizes", std::vector{1, 2});
//   json.Key("rows").BeginArray();
//   for (const Row& row : rows) json.NewLine("  ").Value(row.time);
//   json.EndArray().EndObject();
class JsonWriter {
 public:
  enum Spacing {
    kCompact,  // {"a":1,"b":2}
    kSpaced    // {"a": 1, "b": 2}
  };

  // The string must outlive the writer.
  explicit JsonWriter(std::string& out, Spacing spacing = kSpaced)
      : out_(out), is_spaced_(spacing == kSpaced) {}
  JsonWriter(JsonWriter&&) = delete;

  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  // Begins a member of an object; the next call appends its value.
  JsonWriter& Key(std::string_view name);
  // Appends a bool, a number, a string, or a range of these as an array.
  template <class T>
  JsonWriter& Value(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      Item() += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      AppendInteger(Item(), value);
    } else if constexpr (std::is_floating_point_v<T>) {
      AppendNumber(Item(), value);
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      AppendJsonString(Item(), value);
    } else {
      BeginArray();
      for (const auto& element : value) Value(element);
      EndArray();
    }
    return *this;
  }
  template <class T>
  JsonWriter& Member(std::string_view name, const T& value) {
    return Key(name).Value(value);
  }
  // Appends the comma and the new line before an item, and returns the string. The caller then
  // appends one JSON value.
  std::string& Item();
  // Begins the next item, key or end on a line of its own, after `indent`, a literal.
  JsonWriter& NewLine(const char* indent = "") {
    indent_ = indent;
    return *this;
  }

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  void AppendNewLine();

  std::string& out_;
  const bool is_spaced_;
  bool needs_comma_ = false;      // a comma precedes the next item or key
  const char* indent_ = nullptr;  // indent of the next item's new line; null: it stays on this line
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_JSON_JSON_WRITER_HPP_

// ---- opkit/profile/mann_whitney.hpp
// MannWhitneyTest: tests whether one sample tends to be larger than another, for any distributions.
// CompareTimes (profile_diff.hpp) uses it.
#ifndef OPKIT_PROFILE_MANN_WHITNEY_HPP_
#define OPKIT_PROFILE_MANN_WHITNEY_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The result of MannWhitneyTest.
struct MannWhitney {
  // The number of pairs (x of `a`, y of `b`) with y > x. A pair of equal numbers counts a half.
  double u = 0;
  // Probability of a U that lies at least as far from its mean, on either side, if both samples
  // have the same distribution. 1 if a sample is empty or all numbers are equal.
  double p = 1;
};

// Computes U and p: exactly for up to 50 numbers without ties, else by the normal approximation
// with corrections for ties and continuity (Mann and Whitney 1947; Siegel and Castellan 1988,
// section 6.4). Throws kInvalidArgument for a NaN.
MannWhitney MannWhitneyTest(const std::vector<double>& a, const std::vector<double>& b);

// Returns the smallest p that samples of these sizes can have: 2 / C(a + b, a), at most 1.
double SmallestMannWhitneyP(int64_t a, int64_t b);

namespace detail {

// Corrects the member p of several comparisons for their number: multiplies each p by the number of
// rows whose p is not smaller, and raises it to the corrected p before it (Holm 1979). At most 1.
template <class Row>
void CorrectForComparisons(std::vector<Row*> rows) {
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return a->p < b->p; });
  double least = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    least = (std::max)(least, rows[i]->p * static_cast<double>(rows.size() - i));
    rows[i]->p = (std::min)(least, 1.0);
  }
}

}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_PROFILE_MANN_WHITNEY_HPP_

// ---- opkit/profile/nesting.hpp
// Walks the spans of a profile as they nest on their threads, and groups spans by their displayed
// name. The writers of traces, tables and reports use it.
#ifndef OPKIT_PROFILE_NESTING_HPP_
#define OPKIT_PROFILE_NESTING_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A map from the names that spans display to values. It stays small, because spans combine their
// interned names in few different ways.
template <class Value>
class PerName {
 public:
  // Returns the value for the span's name. Node, shapes and backend distinguish values only if they
  // are given.
  Value& Of(const ProfileSpan& span, uint32_t node = 0, uint32_t shapes = 0, uint32_t backend = 0) {
    return values_[{span.name, span.custom, span.kind, span.adopted, node, shapes, backend}];
  }

 private:
  std::map<std::tuple<uint32_t, uint32_t, Invocation::Kind, bool, uint32_t, uint32_t, uint32_t>,
           Value>
      values_;
};

// Calls open(span) for each span in order. Calls gap(span, begin, end) for each period of a span
// during which none of its children runs, and close(span, self) with the sum of these periods.
template <class Open, class Gap, class Close>
void WalkSpans(const Profile& profile, Open open, Gap gap, Close close) {
  struct Level {
    const ProfileSpan* span;
    int64_t cursor;  // the end of its last child
    int64_t self = 0;
  };
  std::vector<Level> levels;
  const auto advance = [&](Level& level, int64_t to, int64_t next) {
    if (to > level.cursor) {
      level.self += to - level.cursor;
      gap(*level.span, level.cursor, to);
    }
    level.cursor = next;
  };
  const auto pop = [&] {
    Level& level = levels.back();
    advance(level, level.span->end, level.span->end);
    close(*level.span, level.self);
    levels.pop_back();
  };
  for (const ProfileSpan& span : profile.spans) {
    while (!levels.empty() &&
           (levels.back().span->thread != span.thread || levels.back().span->end < span.end ||
            levels.back().span->end <= span.begin))
      pop();
    if (!levels.empty()) advance(levels.back(), span.begin, span.end);
    open(span);
    levels.push_back({&span, span.begin});
  }
  while (!levels.empty()) pop();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_NESTING_HPP_

// ---- opkit/profile/text_columns.hpp
// Aligns text in columns, for the tables of profiles and of their comparison.
#ifndef OPKIT_PROFILE_TEXT_COLUMNS_HPP_
#define OPKIT_PROFILE_TEXT_COLUMNS_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline std::string Microseconds(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ns / 1000);
  return text;
}

// Returns the lines with each column as wide as its widest entry. The first `texts` columns are
// aligned on the left, the others on the right.
inline std::string AlignColumns(const std::vector<std::vector<std::string>>& lines, size_t texts) {
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = (std::max)(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - line[i].size(), ' ');
      if (i > 0) out += "  ";
      out += i < texts ? line[i] + pad : pad + line[i];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_TEXT_COLUMNS_HPP_

// ---- opkit/profile/impl/profile_diff.ipp
// Compares two recordings.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::vector<NamedTimes> TimesByName(const Profile& profile, TimesOf of) {
  std::map<std::string, std::vector<double>> times;
  detail::PerName<std::vector<double>*> known;
  for (const ProfileSpan& span : profile.spans) {
    // An adopted span of a task is the run of that task. Other adopted spans are parts of a run
    // that has a span of its own.
    if (span.open || (span.adopted && span.kind != Invocation::Kind::kTask)) continue;
    const uint32_t node = of == TimesOf::kNodes ? span.node : 0;
    std::vector<double>*& list = known.Of(span, node);
    if (!list)
      list = &times[DisplayName(span) + (node != 0 ? StrCat(" (", InternedName(node), ")") : "")];
    list->push_back(static_cast<double>(RunTime(span)));
  }
  std::vector<NamedTimes> out;
  for (auto& [name, list] : times) out.push_back({name, std::move(list)});
  return out;
}

namespace detail {

inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline const char* VerdictText(ProfileDiffRow::Verdict verdict) {
  constexpr const char* kNames[] = {"same", "slower", "faster", "too few runs", "new", "gone"};
  return kNames[static_cast<int>(verdict)];
}

}  // namespace detail

OPKIT_INLINE ProfileDiff CompareTimes(const std::vector<NamedTimes>& before,
                                      const std::vector<NamedTimes>& after, double significance) {
  using Verdict = ProfileDiffRow::Verdict;
  if (!(significance > 0 && significance < 1))
    Throw(ErrorCode::kInvalidArgument, "the significance is ", significance,
          "; expected a number between 0 and 1");
  struct Pair {
    std::vector<double> before, after;
  };
  std::map<std::string, Pair> pairs;
  const auto append = [](std::vector<double>& to, const NamedTimes& from) {
    for (const double time : from.times)
      if (!std::isfinite(time))
        Throw(ErrorCode::kInvalidArgument, "a time of '", from.name, "' is ", time,
              "; times to compare are finite");
    to.insert(to.end(), from.times.begin(), from.times.end());
  };
  for (const NamedTimes& one : before) append(pairs[one.name].before, one);
  for (const NamedTimes& one : after) append(pairs[one.name].after, one);

  ProfileDiff diff;
  diff.rows.reserve(pairs.size());
  std::vector<ProfileDiffRow*> compared;
  for (const auto& [name, pair] : pairs) {
    if (pair.before.empty() && pair.after.empty()) continue;
    ProfileDiffRow& row = diff.rows.emplace_back();
    row.name = name;
    row.runs_before = static_cast<int64_t>(pair.before.size());
    row.runs_after = static_cast<int64_t>(pair.after.size());
    row.median_before = detail::Median(pair.before);
    row.median_after = detail::Median(pair.after);
    if (row.runs_before == 0 || row.runs_after == 0) {
      row.verdict = row.runs_before == 0 ? Verdict::kNew : Verdict::kGone;
      continue;
    }
    if (row.median_before > 0) row.change = row.median_after / row.median_before - 1;
    row.p = MannWhitneyTest(pair.before, pair.after).p;
    compared.push_back(&row);
  }
  detail::CorrectForComparisons(compared);
  for (ProfileDiffRow* row : compared) {
    const double least = SmallestMannWhitneyP(row->runs_before, row->runs_after);
    if (row->p <= significance && row->median_after != row->median_before)
      row->verdict = row->median_after > row->median_before ? Verdict::kSlower : Verdict::kFaster;
    else if (least * static_cast<double>(compared.size()) > significance)
      row->verdict = Verdict::kTooFew;
  }
  const auto cost = [](const ProfileDiffRow& row) {
    return static_cast<double>((std::max)(row.runs_after, row.runs_before)) *
           (row.median_after - row.median_before);
  };
  std::stable_sort(
      diff.rows.begin(), diff.rows.end(),
      [&](const ProfileDiffRow& a, const ProfileDiffRow& b) { return cost(a) > cost(b); });
  return diff;
}

OPKIT_INLINE std::string ToString(const ProfileDiff& diff) {
  std::vector<std::vector<std::string>> lines = {
      {"name", "verdict", "runs", "after", "median us", "after", "change", "p"}};
  for (const ProfileDiffRow& row : diff.rows) {
    const bool both = row.runs_before > 0 && row.runs_after > 0;
    char change[32] = "", p[32] = "";
    if (both) {
      std::snprintf(change, sizeof change, "%+.1f %%", 100 * row.change);
      std::snprintf(p, sizeof p, row.p < 0.001 ? "%.1e" : "%.3f", row.p);
    }
    lines.push_back({row.name, detail::VerdictText(row.verdict), StrCat(row.runs_before),
                     StrCat(row.runs_after),
                     row.runs_before > 0 ? detail::Microseconds(row.median_before) : "",
                     row.runs_after > 0 ? detail::Microseconds(row.median_after) : "", change, p});
  }
  return detail::AlignColumns(lines, 2);
}

OPKIT_INLINE std::string ToJson(const ProfileDiff& diff) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Key("rows").BeginArray();
  for (const ProfileDiffRow& row : diff.rows) {
    json.BeginObject().Member("name", row.name).Member("runs_before", row.runs_before);
    json.Member("runs_after", row.runs_after).Member("median_before_ns", row.median_before);
    json.Member("median_after_ns", row.median_after).Member("change", row.change);
    json.Member("p", row.p).Member("verdict", detail::VerdictText(row.verdict)).EndObject();
  }
  json.EndArray().EndObject();
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_DIFF_IPP_

// ---- opkit/base/output_file.hpp
// OutputFile, SaveFile: write a file completely, or leave the old file unchanged. UpdateFile does
// so for a file that several processes change.
#ifndef OPKIT_BASE_OUTPUT_FILE_HPP_
#define OPKIT_BASE_OUTPUT_FILE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes a new file in the same folder; Commit renames the new file over the old one. An error
// before Commit leaves the old file unchanged. Follows links and keeps permissions. Writes in place
// to a pipe, a device, or a file in a folder where no new file can be created. Writes to a
// descriptor ("/dev/stdout", "/dev/fd/3") from its current offset, for any kind of file.
class OutputFile {
 public:
  // Errors here and below: kIo with the path and the system's message.
  explicit OutputFile(const std::string& path);
  OutputFile(OutputFile&&) = delete;
  ~OutputFile();

  void Write(std::string_view bytes);
  // Replaces `path` by the written file. Call it last.
  void Commit();

 private:
  [[noreturn]] void Fail() const;

  // `target_` is `path_` with links resolved; without a `temporary_` the target is written in
  // place.
  std::string path_, target_, temporary_;
  std::FILE* file_ = nullptr;
  bool truncated_ = false;  // the old contents are cut off, or must stay for a descriptor
};

// Returns the bytes of a file; an empty string if there is none. Throws kIo for anything else that
// cannot be read, such as a folder or a pipe.
std::string ReadFileIfPresent(const std::string& path);

// Changes a file that other processes and threads may change at the same time. `change` gets the
// present bytes, none if there is no file, and returns the new ones; if it throws, the file stays.
// The call makes missing folders. It waits for the lock of the file "PATH.lock", which stays, at
// most so many seconds. The new bytes are on the disk in "PATH.new" before that file is renamed, so
// a kill or a crash at any moment leaves the old file or the new one. Follows links and keeps
// permissions. Throws kIo, with the path and the system's message.
void UpdateFile(const std::string& path, FunctionRef<std::string(std::string_view bytes)> change,
                double wait_s = 10);

}  // namespace detail

void SaveFile(const std::string& path, std::string_view bytes);

}}  // namespace opkit

#endif  // OPKIT_BASE_OUTPUT_FILE_HPP_

// ---- opkit/profile/json_text.hpp
// Appends times to a text, fast enough for files of millions of lines, and splits text at UTF-8.
#ifndef OPKIT_PROFILE_JSON_TEXT_HPP_
#define OPKIT_PROFILE_JSON_TEXT_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls f with each UTF-8 sequence of the text, and with U+FFFD for each byte outside of a valid
// sequence.
template <class F>
void ForEachCharacter(std::string_view text, F f) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    f(length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

// Appends `ns` as microseconds with three decimals.
inline void AppendMicroseconds(std::string& out, int64_t ns) {
  const uint64_t size = ns < 0 ? -static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  if (ns < 0) out += '-';
  AppendInteger(out, size / 1000);
  const auto rest = static_cast<int>(size % 1000);
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out.append(decimals, 4);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_JSON_TEXT_HPP_

// ---- opkit/profile/trace_visitor.hpp
// TraceVisitor: walks a profile and calls one function for each kind of record that traces and
// reports show. Their writers derive from it, so that a new kind is added once, here.
#ifndef OPKIT_PROFILE_TRACE_VISITOR_HPP_
#define OPKIT_PROFILE_TRACE_VISITOR_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The displayed name of spans and their domain. Names are numbered from 0 in order of first use.
struct TraceName {
  size_t number = 0;
  std::string text;
  const char* domain = nullptr;
};

// A fact about one span.
struct TraceFact {
  enum class Kind { kText, kCount, kTime, kFlag };  // kTime: `number` is ns; kFlag: `number` is 1
  Kind kind;
  std::string_view name;
  uint64_t number = 0;
  std::string_view text = {};
};

// Visits the spans, counters and markers of a profile, with the names that traces display. Composes
// each name once, not once for each span, because composing locks the table of interned names.
// Names are valid as long as the visitor exists. Facts are valid only during the call that gets
// them.
class TraceVisitor {
 protected:
  explicit TraceVisitor(const Profile& profile) : profile_(profile) {}
  ~TraceVisitor() = default;

  // Calls OnSpan for each span, thread by thread; then OnPush for its push and OnAsynchronous for
  // its work after the span. Between OnSpan and OnSpanEnd come the spans inside it. For a custom
  // operator, OnUserCode reports each period in which none of these spans ran.
  void VisitSpans() {
    WalkSpans(
        profile_,
        [&](const ProfileSpan& span) {
          const TraceName& name = NameOf(span);
          OnSpan(span, name);
          if (IsTask(span)) OnPush(span, name);
          if (const auto [begin, end] = AsynchronousTime(span); end >= 0)
            OnAsynchronous(span, name, begin, end);
        },
        [&](const ProfileSpan& span, int64_t begin, int64_t end) {
          if (HasUserCode(span)) OnUserCode(span, UserCodeNameOf(span), begin, end);
        },
        [&](const ProfileSpan& span, int64_t) { OnSpanEnd(span); });
  }
  void VisitCounters() {
    for (const ProfileCounter& counter : profile_.counters) OnCounter(counter, Text(counter.name));
  }
  void VisitMarkers() {
    for (const ProfileMarker& marker : profile_.markers) OnMarker(marker, Text(marker.name));
  }
  // Calls OnFact for each known fact of the span, except its names, ids and times.
  void VisitFacts(const ProfileSpan& span) {
    const auto text = [&](std::string_view name, std::string_view value) {
      OnFact({TraceFact::Kind::kText, name, 0, value});
    };
    const auto count = [&](std::string_view name, uint64_t value) {
      OnFact({TraceFact::Kind::kCount, name, value});
    };
    if (span.device != Device{}) text("device", ToString(span.device));
    if (span.work.shapes != 0) {
      text("shapes", Text(span.work.shapes));
      text("backend", Text(span.work.backend));
      count("flops", span.work.flops);
      count("bytes", span.work.bytes);
    }
    if (const ProfileMessage& message = span.message; message.from >= 0)
      text("message", StrCat("from process ", message.from, " to ", message.to, ", channel ",
                             message.channel, StrCat(", run ", message.number)));
    if (span.pushed >= 0)
      OnFact({TraceFact::Kind::kTime, "wait", static_cast<uint64_t>(span.begin - span.pushed)});
    const auto counts =
        std::lower_bound(profile_.counts.begin(), profile_.counts.end(), span.id,
                         [](const ProfileCounts& one, uint64_t id) { return one.invocation < id; });
    if (counts != profile_.counts.end() && counts->invocation == span.id)
      for (size_t i = 0; i < profile_.counted.size(); ++i)
        count(profile_.counted[i], counts->values[i]);
    if (span.open) OnFact({TraceFact::Kind::kFlag, "open", 1});
  }

  virtual void OnSpan(const ProfileSpan& span, const TraceName& name) = 0;
  virtual void OnSpanEnd(const ProfileSpan&) {}
  virtual void OnUserCode(const ProfileSpan& span, const TraceName& name, int64_t begin,
                          int64_t end) = 0;
  virtual void OnPush(const ProfileSpan&, const TraceName&) {}
  virtual void OnAsynchronous(const ProfileSpan&, const TraceName&, int64_t /*begin*/,
                              int64_t /*end*/) {}
  virtual void OnFact(const TraceFact& fact) = 0;
  virtual void OnCounter(const ProfileCounter& counter, const std::string& name) = 0;
  virtual void OnMarker(const ProfileMarker& marker, const std::string& name) = 0;

  // True if an engine ran the span's task: OnPush is called for it.
  static bool IsTask(const ProfileSpan& span) { return span.pushed >= 0 && span.pusher >= 0; }
  // Returns the text of an interned name.
  const std::string& Text(uint32_t interned) {
    const auto [found, is_new] = texts_.try_emplace(interned);
    if (is_new) found->second = InternedName(interned);
    return found->second;
  }

  const Profile& profile_;

 private:
  const TraceName& NameOf(const ProfileSpan& span) {
    TraceName& name = names_.Of(span);
    if (!name.domain) name = {num_names_++, DisplayName(span), DomainOf(span)};
    return name;
  }
  const TraceName& UserCodeNameOf(const ProfileSpan& span) {
    TraceName& name = user_code_names_[span.custom];
    if (!name.domain) name = {num_names_++, UserCodeName(span), DomainOf(span)};
    return name;
  }

  size_t num_names_ = 0;
  PerName<TraceName> names_;
  std::map<uint32_t, TraceName> user_code_names_;  // by the custom operator's path
  std::map<uint32_t, std::string> texts_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_TRACE_VISITOR_HPP_

// ---- opkit/profile/impl/chrome_trace.ipp
// The writer of Chrome traces.
#ifndef OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The text of a trace's file, which goes there in blocks of about kBlock bytes.
class ChromeTraceFile {
 public:
  explicit ChromeTraceFile(const std::string& path) : file_(path) {}
  void Begin(int64_t dropped) {
    json.BeginObject().Member("displayTimeUnit", "ns");
    json.Key("distributedInfo").BeginObject().Member("rank", 0).EndObject();
    json.Key("otherData").BeginObject().Member("dropped", dropped).EndObject();
    json.Key("traceEvents").BeginArray();
  }
  // Writes a full block.
  void Flush() {
    if (out_.size() <= kBlock) return;
    file_.Write(out_);
    out_.clear();
  }
  void End() {
    json.NewLine().EndArray().EndObject();
    file_.Write(out_ + '\n');
    file_.Commit();
  }

 private:
  static constexpr size_t kBlock = 1 << 20;

  OutputFile file_;
  std::string out_;

 public:
  JsonWriter json{out_, JsonWriter::kCompact};
};

// Writes the events of one profile.
class ChromeTrace final : TraceVisitor {
 public:
  ChromeTrace(const Profile& profile, ChromeTraceFile& file, int64_t pid)
      : TraceVisitor(profile), file_(file), pid_(pid) {}

  void Write(std::string_view process) {
    WriteName("process_name", -1, process);
    for (size_t i = 0; i < profile_.threads.size(); ++i)
      WriteName("thread_name", static_cast<int>(i), profile_.threads[i].name);
    VisitSpans();
    VisitCounters();
    VisitMarkers();
  }
  // Writes one end of an arrow: its begin ("flow_out") or its end ("flow_in").
  void WriteArrow(const TraceArrow& arrow, const char* end, const TraceArrow::End& place) {
    Begin("X", Quoted(arrow.name), place.time);
    Time("dur", 0);
    Thread(place.thread);
    json_.Member("cat", "communication");
    Flow(arrow.id, end);
    json_.EndObject();
  }

 private:
  void WriteName(const char* kind, int thread, std::string_view name) {
    Begin("M", Quoted(kind), 0);
    if (thread >= 0) Thread(thread);
    json_.Key("args").BeginObject().Member("name", name).EndObject().EndObject();
  }
  void OnSpan(const ProfileSpan& span, const TraceName& name) override {
    Begin("X", Quoted(name), span.begin);
    Time("dur", span.end - span.begin);
    Thread(span.thread);
    json_.Member("cat", name.domain).Key("args").BeginObject();
    json_.Member("id", span.id).Member("parent", span.parent);
    if (span.node != 0) json_.Member("node", Text(span.node));
    VisitFacts(span);
    json_.EndObject();
    if (IsTask(span)) Flow(span.id, "flow_in");
    json_.EndObject();
  }
  void OnFact(const TraceFact& fact) override {
    switch (fact.kind) {
      case TraceFact::Kind::kText:
        json_.Member(fact.name, fact.text);
        return;
      case TraceFact::Kind::kCount:
        json_.Member(fact.name, fact.number);
        return;
      case TraceFact::Kind::kTime:
        return Time(StrCat(fact.name, "_us"), static_cast<int64_t>(fact.number));
      case TraceFact::Kind::kFlag:
        json_.Member(fact.name, true);
    }
  }
  // Writes the push as a slice: an arrow begins at a slice, and there may be none at a push.
  void OnPush(const ProfileSpan& span, const TraceName& name) override {
    Begin("X", Quoted(name), span.pushed);
    Time("dur", 0);
    Thread(span.pusher);
    json_.Member("cat", "push");
    Flow(span.id, "flow_out");
    json_.EndObject();
  }
  // Writes two events that the invocation's id connects.
  void OnAsynchronous(const ProfileSpan& span, const TraceName& name, int64_t begin,
                      int64_t end) override {
    for (const auto& [phase, time] : {std::pair("b", begin), std::pair("e", end)}) {
      Begin(phase, Quoted(name), time);
      Thread(span.thread);
      json_.Member("cat", "asynchronous").Member("id", span.id).EndObject();
    }
  }
  void OnUserCode(const ProfileSpan& span, const TraceName& name, int64_t begin,
                  int64_t end) override {
    Begin("X", Quoted(name), begin);
    Time("dur", end - begin);
    Thread(span.thread);
    json_.Member("cat", name.domain).Key("args").BeginObject().Member("parent", span.id);
    json_.EndObject().EndObject();
  }
  void OnCounter(const ProfileCounter& counter, const std::string& name) override {
    if (!__builtin_isfinite(counter.value)) return;  // not in JSON; viewers reject null
    Begin("C", Quoted(name), counter.time);
    json_.Key("args").BeginObject().Member("value", counter.value).EndObject().EndObject();
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    Begin("i", Quoted(name), marker.time);
    Thread(marker.thread);
    json_.Member("cat", marker.frame ? "frame" : "marker").Member("s", marker.frame ? "p" : "t");
    json_.EndObject();
  }

  // Marks the event as the beginning ("flow_out") or end ("flow_in") of an arrow.
  void Flow(uint64_t id, const char* end) { json_.Member("bind_id", id).Member(end, true); }
  // Begins an event; `name` is in quotes.
  void Begin(const char* phase, std::string_view name, int64_t time) {
    file_.Flush();
    json_.NewLine().BeginObject().Member("ph", phase).Key("name").Item() += name;
    Time("ts", time);
    json_.Member("pid", pid_);
  }
  void Time(std::string_view key, int64_t ns) { AppendMicroseconds(json_.Key(key).Item(), ns); }
  void Thread(int thread) { json_.Member("tid", profile_.threads[Index(thread)].id); }

  static std::string Quoted(std::string_view text) {
    std::string out;
    AppendJsonString(out, text);
    return out;
  }
  // Cached, since spans share few names.
  const std::string& Quoted(const TraceName& name) {
    if (name.number >= quoted_.size()) quoted_.resize(name.number + 1);
    std::string& quoted = quoted_[name.number];
    if (quoted.empty()) quoted = Quoted(name.text);
    return quoted;
  }

  ChromeTraceFile& file_;
  const int64_t pid_;
  JsonWriter& json_ = file_.json;
  std::vector<std::string> quoted_;  // by number of the name
};

}  // namespace detail

OPKIT_INLINE void SaveChromeTrace(const Profile& profile, const std::string& path) {
  detail::ChromeTraceFile file(path);
  file.Begin(profile.dropped);
  detail::ChromeTrace(profile, file, getpid()).Write(program_invocation_short_name);
  file.End();
}

OPKIT_INLINE void SaveChromeTrace(const std::vector<TraceProcess>& processes,
                                  const std::vector<TraceArrow>& arrows, const std::string& path) {
  int64_t dropped = 0;
  for (const TraceProcess& process : processes) dropped += process.profile->dropped;
  detail::ChromeTraceFile file(path);
  file.Begin(dropped);
  const auto trace = [&](size_t process) {
    return detail::ChromeTrace(*processes[process].profile, file, static_cast<int64_t>(process));
  };
  for (size_t process = 0; process < processes.size(); ++process)
    trace(process).Write(processes[process].name);
  for (const TraceArrow& arrow : arrows) {
    trace(arrow.from.process).WriteArrow(arrow, "flow_out", arrow.from);
    trace(arrow.to.process).WriteArrow(arrow, "flow_in", arrow.to);
  }
  file.End();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_

// ---- opkit/profile/impl/counters.ipp
// Implements the counters of Linux, by perf_event_open(2).
#ifndef OPKIT_PROFILE_IMPL_COUNTERS_IPP_
#define OPKIT_PROFILE_IMPL_COUNTERS_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

struct PerfEvent {
  const char* name;
  uint32_t type;  // type and config of perf_event_attr
  uint64_t config;
  bool in_kernel = false;  // happens in the kernel alone
};
inline constexpr uint32_t kPerfHardware = 0, kPerfSoftware = 1;
inline constexpr PerfEvent kPerfEvents[] = {
    {"cycles", kPerfHardware, 0},
    {"instructions", kPerfHardware, 1},
    {"cache_references", kPerfHardware, 2},
    {"cache_misses", kPerfHardware, 3},
    {"branches", kPerfHardware, 4},
    {"branch_misses", kPerfHardware, 5},
    {"task_clock", kPerfSoftware, 1},
    {"page_faults", kPerfSoftware, 2},
    {"context_switches", kPerfSoftware, 3, true},
    {"cpu_migrations", kPerfSoftware, 4, true},
};

inline const PerfEvent& PerfEventNamed(const std::string& name) {
  std::vector<std::string> known;
  for (const PerfEvent& event : kPerfEvents) {
    if (name == event.name) return event;
    known.push_back(event.name);
  }
  Throw(ErrorCode::kInvalidArgument, "there is no counter '", name, "'", SuggestName(name, known));
}

// Returns the descriptor of a new counter, or -errno.
inline int OpenPerfEvent(const PerfEvent& event, CounterSource::Threads threads) {
  const bool new_threads = threads == CounterSource::Threads::kThisAndNew;
  const bool program_only = new_threads && event.type == kPerfHardware;
  const int file = OpenThreadCounter(event.type, event.config, !program_only, new_threads);
  const bool is_forbidden = file == -EACCES || file == -EPERM;
  if (!is_forbidden || program_only || event.in_kernel) return file;
  return OpenThreadCounter(event.type, event.config, false, new_threads);
}
OPKIT_COLD OPKIT_INLINE std::string WhyNotCounted(int error) {
  std::string out = std::strerror(error);
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP)
    return out + " (this processor, or this virtual machine, has no such counter)";
  if (error != EACCES && error != EPERM) return out;
  out += " (this process may not count";
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/perf_event_paranoid", "re")) {
    int paranoid = 0;
    if (std::fscanf(file, "%d", &paranoid) == 1)
      out += StrCat(": /proc/sys/kernel/perf_event_paranoid is ", paranoid,
                    ", up to 2 allows the program's part and up to 1 the kernel's too");
    std::fclose(file);
  }
  return out + "; a container may forbid it too)";
}

// Counters with one descriptor each. One call could read a group of counters, but a group counts
// nothing if the processor cannot count all of its members at once.
class PerfThreadCounters final : public ThreadCounters {
 public:
  PerfThreadCounters(const std::vector<std::string>& names, std::vector<std::string>* absent,
                     CounterSource::Threads threads) {
    for (const std::string& name : names) {
      const PerfEvent& event = PerfEventNamed(name);
      files_.push_back(OpenPerfEvent(event, threads));
      if (files_.back() < 0 && absent)
        absent->push_back(StrCat(name, ": ", WhyNotCounted(-files_.back())));
    }
  }
  PerfThreadCounters(const PerfThreadCounters&) = delete;
  ~PerfThreadCounters() override {
    for (const int file : files_)
      if (file >= 0) CloseThreadCounter(file);
  }
  void Read(uint64_t* values) noexcept override {
    for (const int file : files_) *values++ = ReadThreadCounter(file);
  }

 private:
  std::vector<int> files_;  // negative for an absent counter
};

}  // namespace detail

OPKIT_INLINE CounterSource& PerfCounters() {
  struct Perf final : CounterSource {
    std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                         std::vector<std::string>* absent,
                                         CounterSource::Threads threads) override {
      return std::make_unique<detail::PerfThreadCounters>(names, absent, threads);
    }
  };
  static Perf perf;
  return perf;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_COUNTERS_IPP_

// ---- opkit/profile/impl/perfetto_trace.ipp
// The writer of Perfetto traces. Field numbers are those of perfetto's protos/perfetto/trace.
#ifndef OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Builds one message of a protocol buffer, with the wire types varint, fixed64 and
// length-delimited.
class ProtoMessage {
 public:
  ProtoMessage& Number(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
    return *this;
  }
  ProtoMessage& Fixed(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3 | 1);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  ProtoMessage& Text(int field, std::string_view text) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(text.size());
    bytes_ += text;
    return *this;
  }
  ProtoMessage& Message(int field, const ProtoMessage& message) {
    return Text(field, message.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Writes the packets of one profile to a file, in blocks of about kBlock bytes.
class PerfettoTrace final : TraceVisitor {
 public:
  PerfettoTrace(const Profile& profile, OutputFile& file)
      : TraceVisitor(profile), file_(file), pid_(static_cast<uint64_t>(getpid())) {}

  void Write() {
    ProtoMessage process;
    process.Number(1, pid_).Text(6, Utf8(program_invocation_short_name));
    Describe(ProtoMessage().Number(1, kProcess).Message(3, process));
    for (size_t i = 0; i < profile_.threads.size(); ++i) {
      const ProfileThread& thread = profile_.threads[i];
      ProtoMessage described;
      described.Number(1, pid_).Number(2, static_cast<uint64_t>(thread.id));
      described.Text(5, Utf8(thread.name));
      Describe(ProtoMessage().Number(1, TrackOf(static_cast<int>(i))).Message(4, described));
    }
    VisitMarkers();
    VisitSpans();
    WriteAsynchronous();
    VisitCounters();
    WriteInstants();
    Flush();
  }

 private:
  enum Type : uint64_t { kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4 };
  // A sequence of packets in order of time, with its own interned names and last time.
  struct Sequence {
    uint64_t id;
    int64_t time = 0;
    std::map<std::string, uint64_t> names = {}, categories = {};
  };
  // A run's work after its span. The writer writes it after all slices.
  struct Run {
    int64_t begin, end;
    uint64_t id;
    const TraceName* name;
  };
  // A marker, or a push at which an arrow begins.
  struct Instant {
    int64_t time;
    const std::string* name;
    const char* category;
    uint64_t track, flow;
  };
  static constexpr uint64_t kProcess = 1;
  static constexpr uint64_t kClock = 64;  // the first clock id that a sequence may define
  static constexpr size_t kBlock = 1 << 20;

  static uint64_t TrackOf(int thread) { return 2 + static_cast<uint64_t>(thread); }
  static std::string Utf8(std::string_view text) {
    std::string out;
    ForEachCharacter(text, [&](std::string_view character) { out += character; });
    return out;
  }

  void Flush() {
    file_.Write(out_.bytes());
    out_.Clear();
  }
  void Packet(const ProtoMessage& packet) {
    out_.Message(1, packet);
    if (out_.bytes().size() > kBlock) Flush();
  }
  void Describe(const ProtoMessage& track) { Packet(ProtoMessage().Message(60, track)); }
  // Writes the packet that a reader needs before the sequence's first event: a clock that counts ns
  // from the event before, and `track` as the track of events that name no other.
  Sequence BeginSequence(uint64_t track) {
    Sequence sequence{++sequences_};
    ProtoMessage clock, boot, snapshot, defaults;
    boot.Number(1, 6).Number(2, 0);
    clock.Number(1, kClock).Number(2, 0).Number(3, 1);
    snapshot.Message(1, boot).Message(1, clock);
    defaults.Number(58, kClock).Message(11, ProtoMessage().Number(11, track));
    ProtoMessage packet;
    packet.Number(10, sequence.id).Number(13, 1).Message(59, defaults);
    Packet(packet.Message(6, snapshot));
    return sequence;
  }
  static uint64_t Intern(std::map<std::string, uint64_t>& known, const std::string& text, int field,
                         ProtoMessage& interned) {
    const auto [found, is_new] = known.try_emplace(text, known.size() + 1);
    if (is_new)
      interned.Message(field, ProtoMessage().Number(1, found->second).Text(2, Utf8(text)));
    return found->second;
  }
  // Writes an event. `event` holds all members except type, name and category. An end event has
  // neither name nor category: a reader takes them from the begin event.
  void Event(Sequence& sequence, Type type, int64_t time, const std::string& name,
             const char* category, ProtoMessage event = {}) {
    ProtoMessage interned;
    if (*category) event.Number(3, Intern(sequence.categories, category, 1, interned));
    event.Number(9, type);
    if (!name.empty()) event.Number(10, Intern(sequence.names, name, 2, interned));
    ProtoMessage packet;
    packet.Number(8, static_cast<uint64_t>(time - sequence.time)).Number(10, sequence.id);
    packet.Message(11, event);
    if (!interned.bytes().empty()) packet.Message(12, interned);
    packet.Number(13, 2);
    sequence.time = time;
    Packet(packet);
  }
  static void Annotate(ProtoMessage& event, std::string_view name, uint64_t value) {
    event.Message(4, ProtoMessage().Text(10, name).Number(3, value));
  }

  void OnSpan(const ProfileSpan& span, const TraceName& name) override {
    if (span.thread != thread_) {
      thread_ = span.thread;
      slices_ = BeginSequence(TrackOf(thread_));
    }
    event_ = {};
    if (span.adopted || span.pushed >= 0 || AsynchronousTime(span).second >= 0 ||
        span.kind == Invocation::Kind::kCustomOperator)
      Annotate(event_, "id", span.id);
    if (span.node != 0) OnFact({TraceFact::Kind::kText, "node", 0, Text(span.node)});
    VisitFacts(span);
    if (span.pushed >= 0) event_.Fixed(48, span.id);
    Event(slices_, kBegin, span.begin, name.text, name.domain, std::move(event_));
  }
  void OnFact(const TraceFact& fact) override {
    if (fact.kind == TraceFact::Kind::kText)
      event_.Message(4, ProtoMessage().Text(10, fact.name).Text(6, Utf8(fact.text)));
    else if (fact.kind != TraceFact::Kind::kTime)  // viewers show the length of an arrow
      Annotate(event_, fact.name, fact.number);
  }
  void OnUserCode(const ProfileSpan&, const TraceName& name, int64_t begin, int64_t end) override {
    Event(slices_, kBegin, begin, name.text, name.domain);
    Event(slices_, kEnd, end, "", "");
  }
  void OnSpanEnd(const ProfileSpan& span) override { Event(slices_, kEnd, span.end, "", ""); }
  void OnAsynchronous(const ProfileSpan& span, const TraceName& name, int64_t begin,
                      int64_t end) override {
    runs_.push_back({begin, end, span.id, &name});
  }
  void OnPush(const ProfileSpan& span, const TraceName& name) override {
    instants_.push_back({span.pushed, &name.text, "push", TrackOf(span.pusher), span.id});
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    instants_.push_back(
        {marker.time, &name, marker.frame ? "frame" : "marker", TrackOf(marker.thread), 0});
  }
  void OnCounter(const ProfileCounter& counter, const std::string& name) override {
    if (!__builtin_isfinite(counter.value)) return;  // a Chrome trace leaves out such values, too
    if (counter_tracks_.empty()) counters_ = BeginSequence(kProcess);
    uint64_t& track = counter_tracks_[counter.name];
    if (track == 0) track = NewTrack(name, /*is_counter=*/true);
    Event(counters_, kCounter, counter.time, "", "",
          ProtoMessage().Number(11, track).Fixed(44, std::bit_cast<uint64_t>(counter.value)));
  }

  void WriteAsynchronous() {
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.id < b.id;
    });
    struct Lane {
      uint64_t track;
      Sequence sequence;
      int64_t end;
    };
    std::vector<Lane> lanes;
    for (const Run& run : runs_) {
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [&](const Lane& other) { return other.end <= run.begin; });
      if (lane == lanes.end()) {
        const uint64_t track = NewTrack("asynchronous");
        lane = lanes.insert(lane, {track, BeginSequence(track), 0});
      }
      ProtoMessage event;
      Annotate(event, "id", run.id);
      Event(lane->sequence, kBegin, run.begin, run.name->text, "asynchronous", std::move(event));
      Event(lane->sequence, kEnd, run.end, "", "");
      lane->end = run.end;
    }
  }
  void WriteInstants() {
    if (instants_.empty()) return;
    std::stable_sort(instants_.begin(), instants_.end(),
                     [](const Instant& a, const Instant& b) { return a.time < b.time; });
    Sequence sequence = BeginSequence(kProcess);
    for (const Instant& instant : instants_) {
      ProtoMessage event;
      event.Number(11, instant.track);
      if (instant.flow != 0) event.Fixed(47, instant.flow);
      Event(sequence, kInstant, instant.time, *instant.name, instant.category, std::move(event));
    }
  }

  uint64_t NewTrack(const std::string& name, bool is_counter = false) {
    const uint64_t track = TrackOf(static_cast<int>(profile_.threads.size())) + tracks_++;
    ProtoMessage described;
    described.Number(1, track).Text(2, Utf8(name)).Number(5, kProcess);
    if (is_counter) described.Message(8, {});
    Describe(described);
    return track;
  }

  OutputFile& file_;
  const uint64_t pid_;
  uint64_t sequences_ = 0, tracks_ = 0;
  ProtoMessage out_;
  int thread_ = -1;  // the thread whose slices are written; -1 before the first
  Sequence slices_{0}, counters_{0};
  std::map<uint32_t, uint64_t> counter_tracks_;  // by the counter's name
  ProtoMessage event_;                           // the event of the span whose facts are visited
  std::vector<Run> runs_;
  std::vector<Instant> instants_;
};

}  // namespace detail

OPKIT_INLINE void SavePerfettoTrace(const Profile& profile, const std::string& path) {
  detail::OutputFile file(path);
  detail::PerfettoTrace(profile, file).Write();
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_

// ---- opkit/profile/impl/machine_rates.ipp
// Definitions of MachineRates.
#ifndef OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_
#define OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE MachineRates::Limit MachineRates::LimitOf(double its_flops, double its_bytes,
                                                       double data_bytes) const {
  if (!(flops > 0) || !(bytes > 0)) return {};
  size_t level = 0;
  while (level < caches.size() &&
         !(data_bytes <= caches[level].capacity && caches[level].bytes_per_second > 0))
    ++level;
  const double rate = level < caches.size() ? caches[level].bytes_per_second : bytes;
  const double compute = its_flops / flops, traffic = its_bytes / rate;
  return compute > traffic ? Limit{compute, 0} : Limit{traffic, level + 1};
}

OPKIT_COLD OPKIT_INLINE std::string MachineRates::CeilingName(size_t ceiling) const {
  if (ceiling == 0) return "FMA";
  return ceiling <= caches.size() ? caches[ceiling - 1].name : "memory";
}

OPKIT_INLINE PeakShare MachineRates::ShareOf(double its_flops, double its_bytes, double data_bytes,
                                             int64_t ns) const {
  const Limit limit = LimitOf(its_flops, its_bytes, data_bytes);
  if (ns <= 0 || !(limit.seconds > 0)) return {};
  return {limit.seconds / (static_cast<double>(ns) * 1e-9), CeilingName(limit.ceiling)};
}

OPKIT_COLD OPKIT_INLINE std::string ToString(const PeakShare& share) {
  if (!(share.share > 0)) return {};
  const double percent = 100 * share.share;
  char text[40];
  if (percent < 1e8)
    std::snprintf(text, sizeof text, "%.*f %%", percent < 1 ? 2 : percent < 10 ? 1 : 0, percent);
  else
    std::snprintf(text, sizeof text, "%.3g %%", percent);
  std::string out = text;
  out += " of " + share.ceiling;
  // A share of 100.4 % is written as 100 %, and needs no reason.
  if (percent >= 100.5)
    out += share.ceiling == "FMA" ? " (fewer or narrower operations)" : " (data nearer or unused)";
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MACHINE_RATES_IPP_

// ---- opkit/profile/impl/profile_table.ipp
// Sums, percentiles and text of a profile's table.
#ifndef OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_
#define OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the nearest-rank percentile of times in ascending order.
inline int64_t Percentile(const std::vector<int64_t>& times, int percent) {
  const size_t rank = (times.size() * Index(percent) + 99) / 100;
  return times[rank == 0 ? 0 : rank - 1];
}

// Sums up the spans, allocations and counts of a profile.
class ProfileTableMaker {
 public:
  ProfileTableMaker(const Profile& profile, const ProfileTableOptions& options)
      : profile_(profile), options_(options) {}

  ProfileTable Make() {
    table_.duration = profile_.duration;
    table_.dropped = profile_.dropped;
    table_.cost = profile_.cost;
    table_.counted = profile_.counted;
    table_.absent_counters = profile_.absent_counters;
    AddSpans();
    AddAllocations();
    AddCounts();
    for (auto& [name, row] : domains_) {
      row.domain = name;
      table_.domains.push_back(std::move(row));
    }
    for (auto& [key, sum] : sums_) {
      Finish(sum);
      table_.rows.push_back(std::move(sum.row));
    }
    SortRows();
    return std::move(table_);
  }

 private:
  struct Sums {
    ProfileTableRow row;
    std::vector<int64_t> times;
    std::vector<double> limits;  // seconds that the runs need at each ceiling of the peak
  };

  void AddSpans() {
    WalkSpans(
        profile_,
        [&](const ProfileSpan& span) {
          // An adopted span of a task is the run of that task. Other adopted spans are parts of a
          // run that has a span of its own.
          if (!span.adopted || span.kind == Invocation::Kind::kTask) AddRun(span);
        },
        [](const ProfileSpan&, int64_t, int64_t) {},
        [&](const ProfileSpan& span, int64_t self) {
          domains_[DomainOf(span)].self += self;
          // The run's total already includes adopted spans of other invocations. Those of a custom
          // operator are its user code, which has a row of its own.
          if (!span.adopted || span.kind == Invocation::Kind::kCustomOperator ||
              span.kind == Invocation::Kind::kTask)
            SumsOf(span).row.self += self;
        });
  }
  void AddRun(const ProfileSpan& span) {
    Sums& sum = SumsOf(span);
    sum.times.push_back(RunTime(span));
    sum.row.flops += span.work.flops;
    sum.row.bytes += span.work.bytes;
    AddLimit(sum, static_cast<double>(span.work.flops), static_cast<double>(span.work.bytes));
    ++domains_[DomainOf(span)].count;
    if (!profile_.allocations.empty() || !profile_.counts.empty()) of_invocation_[span.id] = &sum;
  }
  void AddLimit(Sums& sum, double flops, double bytes) const {
    const MachineRates::Limit limit = options_.peak.LimitOf(flops, bytes, bytes);
    if (!(limit.seconds > 0)) return;
    sum.limits.resize((std::max)(sum.limits.size(), limit.ceiling + 1));
    sum.limits[limit.ceiling] += limit.seconds;
  }
  // The share of the peak, and the ceiling that limits most of the time.
  PeakShare ShareOfPeak(const Sums& sum) const {
    double seconds = 0;
    size_t most = 0;
    for (size_t i = 0; i < sum.limits.size(); ++i) {
      seconds += sum.limits[i];
      if (sum.limits[i] > sum.limits[most]) most = i;
    }
    if (!(seconds > 0) || sum.row.total <= 0) return {};
    return {seconds / (static_cast<double>(sum.row.total) * 1e-9), options_.peak.CeilingName(most)};
  }
  Sums& SumsOf(const ProfileSpan& span) {
    const uint32_t node_name = options_.by_node ? span.node : 0;
    const uint32_t shapes_name = options_.by_shape ? span.work.shapes : 0;
    const uint32_t backend_name = options_.by_shape ? span.work.backend : 0;
    Sums*& found = known_.Of(span, node_name, shapes_name, backend_name);
    if (found) return *found;
    const std::string name = DisplayName(span), node = InternedName(node_name),
                      shapes = InternedName(shapes_name), backend = InternedName(backend_name);
    found = &sums_[{name, node, shapes, backend}];
    found->row.name = name;
    found->row.node = node;
    found->row.shapes = shapes;
    found->row.backend = backend;
    found->row.domain = DomainOf(span);
    return *found;
  }
  // Returns the row of an invocation, or null.
  ProfileTableRow* RowOf(uint64_t invocation) {
    const auto found = of_invocation_.find(invocation);
    return found == of_invocation_.end() ? nullptr : &found->second->row;
  }

  void AddAllocations() {
    std::map<uint32_t, ProfileMemoryRow> memory;  // by the allocator's name
    for (const ProfileAllocation& one : profile_.allocations) {
      ProfileMemoryRow& row = memory[one.allocator];
      row.peak = (std::max)(row.peak, one.live);
      row.live = one.live;
      if (one.bytes <= 0) continue;
      ++row.allocations;
      row.allocated += one.bytes;
      if (ProfileTableRow* const run = RowOf(one.invocation)) run->allocated += one.bytes;
    }
    for (auto& [name, row] : memory) {
      row.allocator = InternedName(name);
      table_.memory.push_back(std::move(row));
    }
  }
  void AddCounts() {
    for (auto& [key, sum] : sums_) sum.row.counts.resize(table_.counted.size());
    for (const ProfileCounts& one : profile_.counts)
      if (ProfileTableRow* const run = RowOf(one.invocation))
        for (size_t i = 0; i < run->counts.size(); ++i) run->counts[i] += one.values[i];
  }

  // Computes the row's count, total, extremes, mean and percentiles from its run times, and its
  // share of the peak.
  void Finish(Sums& sum) const {
    ProfileTableRow& row = sum.row;
    std::sort(sum.times.begin(), sum.times.end());
    row.count = static_cast<int64_t>(sum.times.size());
    for (int64_t time : sum.times) row.total += time;
    row.of_peak = ShareOfPeak(sum);
    if (row.count == 0) return;
    row.min = sum.times.front();
    row.max = sum.times.back();
    row.mean = static_cast<double>(row.total) / static_cast<double>(row.count);
    row.p50 = Percentile(sum.times, 50);
    row.p90 = Percentile(sum.times, 90);
    row.p99 = Percentile(sum.times, 99);
  }
  void SortRows() {
    using Sort = ProfileTableOptions::Sort;
    if (options_.sort == Sort::kName) return;  // the rows are sorted by name already
    const auto key = [&](const ProfileTableRow& row) {
      switch (options_.sort) {
        case Sort::kSelf:
          return static_cast<double>(row.self);
        case Sort::kCount:
          return static_cast<double>(row.count);
        case Sort::kMean:
          return row.mean;
        case Sort::kMax:
          return static_cast<double>(row.max);
        default:
          return static_cast<double>(row.total);
      }
    };
    std::stable_sort(
        table_.rows.begin(), table_.rows.end(),
        [&](const ProfileTableRow& a, const ProfileTableRow& b) { return key(a) > key(b); });
  }

  const Profile& profile_;
  const ProfileTableOptions& options_;
  ProfileTable table_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Sums> sums_;
  PerName<Sums*> known_;
  std::map<std::string_view, ProfileDomainRow> domains_;
  // Finds the sums for allocations and counts, which name an invocation.
  std::map<uint64_t, Sums*> of_invocation_;
};
}  // namespace detail

OPKIT_INLINE ProfileTable MakeProfileTable(const Profile& profile,
                                           const ProfileTableOptions& options) {
  return detail::ProfileTableMaker(profile, options).Make();
}

namespace detail {
// Formats amount / ns, the rate in units of 10^9 per second: "12.3"; "" for 0.
inline std::string Rate(uint64_t amount, int64_t ns) {
  if (amount == 0 || ns <= 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(amount) / static_cast<double>(ns));
  return text;
}
}  // namespace detail

OPKIT_INLINE std::string ToString(const ProfileTable& table) {
  const auto any = [&](auto member) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const ProfileTableRow& row) { return row.*member != 0; });
  };
  const bool work = any(&ProfileTableRow::bytes), memory = any(&ProfileTableRow::allocated);
  const bool peak = std::ranges::any_of(
      table.rows, [](const ProfileTableRow& row) { return row.of_peak.share > 0; });
  std::vector<std::vector<std::string>> lines{{"name", "domain", "count", "total us", "self us",
                                               "mean us", "min us", "p50 us", "p90 us", "p99 us",
                                               "max us"}};
  if (work) lines[0].insert(lines[0].end(), {"GFLOP/s", "GB/s"});
  if (peak) lines[0].push_back("of peak");
  if (memory) lines[0].push_back("allocated");
  lines[0].insert(lines[0].end(), table.counted.begin(), table.counted.end());
  const auto us = [](int64_t ns) { return detail::Microseconds(static_cast<double>(ns)); };
  for (const ProfileTableRow& row : table.rows) {
    auto& line = lines.emplace_back(std::vector<std::string>{
        StrCat(row.name, row.node.empty() ? "" : StrCat(" (", row.node, ")"),
               row.shapes.empty() ? "" : " " + row.shapes,
               row.backend.empty() ? "" : " by " + row.backend),
        row.domain, StrCat(row.count), us(row.total), us(row.self), detail::Microseconds(row.mean),
        us(row.min), us(row.p50), us(row.p90), us(row.p99), us(row.max)});
    if (work)
      line.insert(line.end(),
                  {detail::Rate(row.flops, row.total), detail::Rate(row.bytes, row.total)});
    if (peak) line.push_back(ToString(row.of_peak));
    if (memory) line.push_back(row.allocated == 0 ? std::string() : StrCat(row.allocated));
    for (const uint64_t count : row.counts) line.push_back(StrCat(count));
  }
  std::string text = detail::AlignColumns(lines, 2);
  if (table.domains.size() > 1) {
    lines = {{"domain", "count", "self us"}};
    for (const ProfileDomainRow& row : table.domains)
      lines.push_back({row.domain, StrCat(row.count), us(row.self)});
    text += '\n' + detail::AlignColumns(lines, 1);
  }
  if (!table.memory.empty()) {
    lines = {{"memory", "allocations", "allocated", "peak", "live"}};
    for (const ProfileMemoryRow& row : table.memory)
      lines.push_back({row.allocator, StrCat(row.allocations), StrCat(row.allocated),
                       StrCat(row.peak), StrCat(row.live)});
    text += '\n' + detail::AlignColumns(lines, 1);
  }
  for (const std::string& absent : table.absent_counters)
    text += StrCat("not counted: ", absent, "\n");
  if (table.cost > 0)
    text += StrCat("\n", us(table.duration), " us; of which recording took about ", us(table.cost),
                   " us\n");
  if (table.dropped > 0) text += StrCat(table.dropped, " records found no room\n");
  return text;
}

OPKIT_INLINE std::string ToJson(const ProfileTable& table) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Member("duration_ns", table.duration).Member("dropped", table.dropped);
  json.Member("cost_ns", table.cost).Key("rows").BeginArray();
  for (const ProfileTableRow& row : table.rows) {
    json.NewLine().BeginObject().Member("name", row.name).Member("node", row.node);
    json.Member("shapes", row.shapes).Member("backend", row.backend).Member("domain", row.domain);
    json.Member("count", row.count).Member("total_ns", row.total).Member("self_ns", row.self);
    json.Member("mean_ns", row.mean).Member("min_ns", row.min).Member("p50_ns", row.p50);
    json.Member("p90_ns", row.p90).Member("p99_ns", row.p99).Member("max_ns", row.max);
    json.Member("flops", row.flops).Member("bytes", row.bytes);
    json.Member("of_peak", row.of_peak.share).Member("ceiling", row.of_peak.ceiling);
    json.Member("allocated", row.allocated);
    for (size_t i = 0; i < row.counts.size(); ++i) json.Member(table.counted[i], row.counts[i]);
    json.EndObject();
  }
  json.NewLine().EndArray().Key("domains").BeginArray();
  for (const ProfileDomainRow& row : table.domains) {
    json.NewLine().BeginObject().Member("domain", row.domain);
    json.Member("count", row.count).Member("self_ns", row.self).EndObject();
  }
  json.NewLine().EndArray().Key("memory").BeginArray();
  for (const ProfileMemoryRow& row : table.memory) {
    json.NewLine().BeginObject().Member("allocator", row.allocator);
    json.Member("allocations", row.allocations).Member("allocated", row.allocated);
    json.Member("peak", row.peak).Member("live", row.live).EndObject();
  }
  json.NewLine().EndArray().EndObject();
  return out + '\n';
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILE_TABLE_IPP_

// ---- opkit/profile/impl/save_report.ipp
// Calls the writer of reports, if the program has one.
#ifndef OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_
#define OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
OPKIT_INLINE void SaveReport(const Profile& profile, const std::string& path,
                             const ProfileTableOptions& table, const RunReport& run) {
  if (!detail::g_report_writer)
    throw Error(ErrorCode::kUnsupported,
                StrCat("cannot write the report '", path,
                       "': no file of the program includes opkit/report/report.hpp, which is not a "
                       "part of opkit/all.hpp"));
  detail::g_report_writer(profile, path, table, run);
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_SAVE_REPORT_IPP_

// ---- opkit/profile/profile_file.hpp
// SaveProfileFile: writes a profile in the format that the file's name selects. Crash traces and
// OPKIT_PROFILE use it.
#ifndef OPKIT_PROFILE_PROFILE_FILE_HPP_
#define OPKIT_PROFILE_PROFILE_FILE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Writes a report to "x.html", a Perfetto trace to "x.pftrace" and "x.perfetto-trace", and a Chrome
// trace to every other name. Returns the name of the written file: "x.html.json", a Chrome trace,
// if the program has no writer of reports. Throws kIo if the file cannot be
// written.
inline std::string SaveProfileFile(const Profile& profile, const std::string& path) {
  std::string written = path;
  if (path.ends_with(".pftrace") || path.ends_with(".perfetto-trace")) {
    SavePerfettoTrace(profile, path);
  } else if (path.ends_with(".html") && g_report_writer) {
    SaveReport(profile, path);
  } else {
    if (path.ends_with(".html")) written += ".json";
    SaveChromeTrace(profile, written);
  }
  return written;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_PROFILE_FILE_HPP_

// ---- opkit/profile/recording/record.hpp
// ProfileRecord: the record that a thread writes for one fact while a profiler session runs. A
// record has a fixed size and a type, which says which struct of the union holds its fields.
// Recorder (recorder.hpp) writes records, ProfileDecoder (decoder.hpp) reads them.
#ifndef OPKIT_PROFILE_RECORDING_RECORD_HPP_
#define OPKIT_PROFILE_RECORDING_RECORD_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

enum class RecordType : uint8_t {
  kSpan,
  kAdopted,  // a span that is a part of an invocation begun elsewhere
  kCompleted,
  kOnDevice,
  kPushed,
  kCounter,
  kMarker,
  kWork,
  kMemory,
  kCounts,
  kMessage,
  kText
};

// The structs below are the records. `id` and `parent` are ids of invocations, `time`, `begin` and
// `end` raw ticks of the clock, `name` and `node` interned names.
struct SpanRecord {
  RecordType type = RecordType::kSpan;
  Invocation::Kind kind = Invocation::Kind::kNone;
  int8_t device_type = 0, device_index = 0;
  uint32_t name = 0, node = 0, custom = 0;
  uint64_t id = 0, parent = 0;
  uint64_t begin = 0, end = 0;  // `end` is 0 while the span is open

  // Both relaxed: a reader sees the span open or ended, and either was true a moment ago.
  void End(uint64_t now) { std::atomic_ref(end).store(now, std::memory_order_relaxed); }
  uint64_t EndOrZero() const {
    return std::atomic_ref(const_cast<uint64_t&>(end)).load(std::memory_order_relaxed);
  }
};

// The event of the run `id` became terminal.
struct CompletedRecord {
  RecordType type = RecordType::kCompleted;
  uint64_t id = 0, time = 0;
};

// The work of the run `id` was on its device from `begin` to `end`: ns of MonotonicNs, not ticks.
struct OnDeviceRecord {
  RecordType type = RecordType::kOnDevice;
  uint64_t id = 0;
  int64_t begin = 0, end = 0;
};

// The thread pushed the task `id` to an engine.
struct PushedRecord {
  RecordType type = RecordType::kPushed;
  uint32_t name = 0;
  uint64_t id = 0, time = 0;
};

struct CounterRecord {
  RecordType type = RecordType::kCounter;
  uint32_t name = 0;
  uint64_t time = 0;
  double value = 0;
};

struct MarkerRecord {
  RecordType type = RecordType::kMarker;
  bool frame = false;
  uint32_t name = 0;
  uint64_t time = 0;
};

// The work of the run `id`; shapes and backend are interned names.
struct WorkRecord {
  RecordType type = RecordType::kWork;
  uint32_t shapes = 0, backend = 0;
  uint64_t id = 0, flops = 0, bytes = 0;
};

// Memory was allocated, or released if `bytes` is negative, while the invocation `id` ran. The
// allocator then has `live` bytes in use.
struct MemoryRecord {
  RecordType type = RecordType::kMemory;
  uint32_t allocator = 0;
  uint64_t id = 0, time = 0;
  int64_t bytes = 0, live = 0;
};

// Three of the session's counts, from number `first` on, of one span of the invocation `id`.
struct CountsRecord {
  RecordType type = RecordType::kCounts;
  uint8_t first = 0;
  uint64_t id = 0;
  uint64_t values[3] = {};
};

// The run `id` sent or received a message: see ProfileMessage.
struct MessageRecord {
  RecordType type = RecordType::kMessage;
  int32_t from = 0, to = 0;
  uint64_t id = 0;
  int64_t plan = 0, channel = 0, number = 0;
};

// A part of a name without an interned number. The parts stand before the record that has the name.
struct TextRecord {
  static constexpr size_t kBytes = 44;
  RecordType type = RecordType::kText;
  char text[kBytes] = {};  // padded with zeros
};

union ProfileRecord {
  SpanRecord span = {};
  CompletedRecord completed;
  OnDeviceRecord on_device;
  PushedRecord pushed;
  CounterRecord counter;
  MarkerRecord marker;
  WorkRecord work;
  MemoryRecord memory;
  CountsRecord counts;
  MessageRecord message;
  TextRecord text;

  // Every struct begins with the type, so that any of them can read it.
  RecordType type() const { return span.type; }
};
static_assert(sizeof(ProfileRecord) == 48 && std::is_trivially_copyable_v<ProfileRecord>);

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_RECORD_HPP_

// ---- opkit/profile/tool_ranges.hpp
// ToolRanges: reports spans, as they begin and end, to a tool outside of the process: NVIDIA's by
// NVTX, Intel's by ITT. opkit links neither library: a tool starts the process with an environment
// variable that names the tool's library.
#ifndef OPKIT_PROFILE_TOOL_RANGES_HPP_
#define OPKIT_PROFILE_TOOL_RANGES_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tool that receives ranges, which nest on each thread. The object lives as long as the process.
// Thread-safe.
class ToolRanges {
 public:
  // Returns the tools that watch this process, loaded once, at the first call; null if there are
  // none. Reports a library that cannot be loaded on stderr.
  static const ToolRanges* Global();
  // Loads a tool from its library. NVTX_INJECTION64_PATH names the library of NVTX, which has the
  // symbol InitializeInjectionNvtx2. INTEL_LIBITTNOTIFY64 names the library of ITT, which has
  // __itt_api_init or the functions themselves. Throws kNotFound with the name of the missing
  // library or symbol.
  static const ToolRanges* LoadNvtx(const std::string& library);
  static const ToolRanges* LoadItt(const std::string& library);

  virtual void Push(const std::string& name) const = 0;
  virtual void Pop() const = 0;

 protected:
  ~ToolRanges() = default;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_TOOL_RANGES_HPP_

// ---- opkit/profile/recording/recorder.hpp
// Recorder: the sink that records what threads do while a profiler session runs. Each thread writes
// fixed-size records with raw clock ticks to its own chunks; Read decodes them (decoder.hpp).
#ifndef OPKIT_PROFILE_RECORDING_RECORDER_HPP_
#define OPKIT_PROFILE_RECORDING_RECORDER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct ProfileChunk {
  static constexpr uint32_t kRecords = 2048;
  // Limit on a name without an interned number; the rest is cut off. A ring keeps the open spans
  // and their names in one chunk, which must have room for more.
  static constexpr size_t kLongestText = 6;  // records
  // Stored with release by the owning thread, loaded with acquire by the reader: the records before
  // it are complete.
  std::atomic<uint32_t> count{0};
  // Zeroed once when the chunk is made: the page faults of new memory then happen between spans,
  // and do not make single spans longer.
  ProfileRecord records[kRecords] = {};
};

// The records of one thread. No other thread writes them. The mutex guards the list of chunks.
class ThreadProfile {
 public:
  static constexpr int kMaxDepth = 256;
  static_assert(kMaxDepth * (1 + ProfileChunk::kLongestText) < ProfileChunk::kRecords);

  ThreadProfile();

  // Returns room for the record of a new span, which the caller fills and publishes; null if the
  // span is dropped. `text` is the span's name if it has no interned number.
  ProfileRecord* Open(uint32_t session, std::string_view text = {}) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    const int depth = this->depth_;
    ProfileRecord* record = nullptr;
    if (depth < kMaxDepth) [[likely]] {
      if (counters_) [[unlikely]]
        StartCounts(depth);
      open_[depth] = record = NewRecord(text);
    } else {
      CountDropped();
    }
    depth_ = depth + 1;
    return record;
  }
  void Close(uint32_t session, uint64_t now) {
    if (depth_ == 0) [[unlikely]]
      return;  // the scope began on another thread, where its span stays open
    const int depth = --depth_;
    if (depth < earlier_) [[unlikely]] {
      earlier_ = depth;  // the span began in an earlier session
      return;
    }
    if (session_ != session || depth >= kMaxDepth || !open_[depth]) [[unlikely]]
      return;
    SpanRecord& span = open_[depth]->span;
    if (span.end == 0) span.End(now);
    if (counters_) [[unlikely]]
      AddCounts(depth, span.id);
  }
  // Sets the end of the innermost span, which closes later.
  void End(uint32_t session, uint64_t now) {
    if (ProfileRecord* record = innermost(session)) record->span.End(now);
  }
  // Returns the record of the innermost open span; null if this session has none.
  ProfileRecord* innermost(uint32_t session) const {
    return session_ == session && depth_ > earlier_ && depth_ <= kMaxDepth ? open_[depth_ - 1]
                                                                           : nullptr;
  }
  // Makes the records written so far visible to readers.
  void Publish() { chunk_->count.store(count_, std::memory_order_release); }
  void Add(uint32_t session, const ProfileRecord& record, std::string_view text = {}) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    ProfileRecord* const room = NewRecord(text);
    if (!room) return;
    *room = record;
    Publish();
  }
  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    BeginSession(0);
    thread_.id = CurrentThreadId();
  }

 private:
  friend class Recorder;

  // Returns room for one record. If there is none, counts a dropped record and returns null.
  ProfileRecord* NewRecord(std::string_view text = {}) {
    if (!text.empty()) [[unlikely]]
      return NewNamedRecord(text);
    if (count_ == ProfileChunk::kRecords) [[unlikely]]
      if (!NextChunk()) return CountDropped(), nullptr;
    return &chunk_->records[count_++];
  }
  // Writes `text` into as many records as it needs, and returns room for one record directly behind
  // them, in the same chunk.
  OPKIT_COLD ProfileRecord* NewNamedRecord(std::string_view text);
  // Relaxed: a statistic with one writer.
  void CountDropped(int64_t records = 1) {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + records, std::memory_order_relaxed);
  }
  OPKIT_COLD void BeginSession(uint32_t session);
  OPKIT_COLD bool NextChunk();
  OPKIT_COLD void StartCounts(int depth);
  OPKIT_COLD void AddCounts(int depth, uint64_t id);

  ProfileChunk* chunk_ = nullptr;
  uint32_t count_ = ProfileChunk::kRecords;
  uint32_t session_ = 0;
  int depth_ = 0;    // number of open spans on the thread
  int earlier_ = 0;  // how many of them began in earlier sessions
  std::atomic<int64_t> dropped_{0};
  ProfileRecord* open_[kMaxDepth] = {};       // the open spans, the outermost first
  std::unique_ptr<ThreadCounters> counters_;  // the session's; null if it counts nothing
  int num_counters_ = 0;
  std::vector<ProfileCounts> counts_;  // at the begin of each open span, by depth

  Mutex mutex_;
  std::vector<std::unique_ptr<ProfileChunk>> chunks_;  // the oldest first
  ProfileThread thread_;
  bool ended_ = false;
};

// Records the spans and allocations of all threads. One object per process, never destroyed: scopes
// that are open when the process ends still use it.
class Recorder final : public SpanSink, public MemorySink {
 public:
  static Recorder& Global();

  // Begins an empty session. Throws kFailedPrecondition while a session runs, kInvalidArgument for
  // wrong options.
  void Start(const ProfileOptions& options);
  // Stop ends the recording, Pause interrupts it. The records stay until the next Start.
  void Stop();
  void Pause();
  void Resume();
  bool is_running() const { return CurrentSpanSink() == this; }
  // Returns this session's recording so far. Threads continue to record meanwhile.
  Profile Read();

  void Open(Invocation& now, SpanNames names, const Device* device, bool adopted) noexcept override;
  void Close() noexcept override;
  bool WantsWork() const noexcept override { return shapes_.load(std::memory_order_relaxed); }
  bool WantsEngine() const noexcept override { return engine_.load(std::memory_order_relaxed); }
  void Marked(uint32_t name) noexcept override { Mark({name}, /*frame=*/false); }
  void EndSpan() noexcept override;
  void Describe(const SpanWork& work) noexcept override;
  void Completed(uint64_t id) noexcept override;
  void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept override;
  void Pushed(const Invocation& task, SpanNames names) noexcept override;
  void Mark(SpanNames names, bool frame) noexcept;
  void Count(SpanNames names, double value) noexcept;
  // Records that the run `id` sent or received a message.
  void Communicated(uint64_t id, const ProfileMessage& message) noexcept;
  void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept override;

  // Reserves one chunk of the bound on memory. False if the bound is reached.
  bool TakeChunk();
  // Takes the oldest chunk of a thread that has ended, for a full ring; null if there is none.
  std::unique_ptr<ProfileChunk> TakeChunkOfEnded();
  bool is_ring() const { return ring_.load(std::memory_order_relaxed); }
  bool wants_crash_trace() const { return crash_trace_.load(std::memory_order_relaxed); }
  // Marks a thread as ended. Its records stay; the object is deleted with the last of them.
  void Ended(ThreadProfile* thread);
  // Opens the session's counters on the calling thread and sets `count` to their number; null if
  // the session counts nothing.
  std::unique_ptr<ThreadCounters> OpenCounters(int& count);

 private:
  // One point in time on both clocks.
  struct Instant {
    uint64_t ticks;
    int64_t ns;
    static Instant Now();
  };
  // Returns the calling thread's profile, and makes it first if needed; null if that fails or while
  // the thread ends.
  ThreadProfile* OfThread();
  OPKIT_COLD ThreadProfile* MakeOfThread();
  // Deletes the profile of a thread that has ended. The caller holds the mutex.
  void Forget(ThreadProfile* thread);
  void Add(const ProfileRecord& record, std::string_view text = {}) noexcept;
  // Returns the interned path "outer::name".
  static uint32_t CustomPath(uint32_t outer, uint32_t name);
  // Measures the ticks that a span costs its thread.
  double TicksOfSpan();
  void ResetAfterFork();
  OPKIT_COLD static void PushRange(const ToolRanges& tools, const Invocation& now, SpanNames names,
                                   bool adopted) noexcept;
  // Installs the recorder as the sink of spans and memory, or removes it.
  void Install(bool on);

  // Relaxed: every Start stores the same pointer. A thread finds the recorder by an acquire load
  // in CurrentSpanSink, so it also sees the pointer that the first Start stored before.
  std::atomic<const ToolRanges*> tools_{nullptr};
  Mutex mutex_;  // guards the members below, except atomics and those of counters_mutex_
  std::vector<ThreadProfile*> threads_;
  const Instant origin_ = Instant::Now();
  Instant start_ = origin_;
  uint64_t stopped_ = 0;  // ticks; 0 while the session runs or is paused
  int64_t dropped_ = 0;   // records dropped by deleted threads, or in chunks taken from ended ones
  bool memory_ = false;
  // Guards the next three members: a thread may see the new session before Start stores them.
  Mutex counters_mutex_;
  std::vector<std::string> counted_, absent_;
  CounterSource* counter_source_ = nullptr;
  // Relaxed, like the two below.
  std::atomic<bool> shapes_{false}, engine_{false}, ring_{false}, crash_trace_{false};
  // Both relaxed: a thread that sees a new session late still writes to the previous one.
  std::atomic<uint32_t> session_{0};
  std::atomic<int64_t> chunks_left_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_RECORDER_HPP_

// ---- opkit/profile/crash_trace.hpp
// CrashTrace: writes the profile of a process that a fatal signal ends. Profiler::Start arms it if
// ProfileOptions::crash_trace names a file.
#ifndef OPKIT_PROFILE_CRASH_TRACE_HPP_
#define OPKIT_PROFILE_CRASH_TRACE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct FatalSignal {
  int number;
  bool is_fault;  // true for a fault of the program, false for a request to end
};
inline constexpr FatalSignal kFatalSignals[] = {
    {SIGSEGV, true},  {SIGBUS, true},   {SIGILL, true},   {SIGFPE, true},   {SIGABRT, true},
    {SIGTRAP, true},  {SIGSYS, true},   {SIGINT, false},  {SIGTERM, false}, {SIGHUP, false},
    {SIGQUIT, false}, {SIGPIPE, false}, {SIGALRM, false}, {SIGXCPU, false}};

// State that the handler shares with one writing thread. Never destroyed: handlers may still wait
// in it.
struct CrashWriter {
  std::string path;
  const pid_t process = getpid();
  Parker crashed, written;
  std::atomic<int64_t> thread{0};    // relaxed: only that thread finds its own id in it
  std::atomic<bool> crashes{false};  // relaxed: which of two threads comes first does not matter
};
// The current writer, and the signals' actions from before Arm.
struct CrashState {
  // Release store and acquire load: a handler sees the complete object.
  std::atomic<CrashWriter*> writer{nullptr};
  struct sigaction before[std::size(kFatalSignals)] = {};
  bool armed = false;
};
inline CrashState& Crash() {
  static auto* state = new CrashState;
  return *state;
}

inline void* WriteCrashTrace(void* argument) {
  CrashWriter& writer = *static_cast<CrashWriter*>(argument);
  SetCurrentThreadName("opkit-crash");
  writer.thread.store(CurrentThreadId(), std::memory_order_relaxed);
  writer.crashed.Wait();
  try {
    Recorder& recorder = Recorder::Global();
    const bool records = recorder.is_running();
    recorder.Pause();  // so that other threads add nothing to the trace
    const std::string path = SaveProfileFile(recorder.Read(), writer.path);
    if (records) recorder.Resume();  // the program's own handler may let the process continue
    std::fprintf(stderr, "opkit: the profile until the crash is in %s\n", path.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "opkit: no profile of the crash: %s\n", failure.what());
  }
  Parker::Wake(writer.written.Set());
  return nullptr;
}

// Handles a fatal signal. Calls only functions that a signal handler may call.
inline void HandleCrash(int signal, siginfo_t* info, void*) {
  constexpr int64_t kLongestNs = 10'000'000'000;
  const int error = errno;
  CrashState& state = Crash();
  CrashWriter* const writer = state.writer.load(std::memory_order_acquire);
  if (writer && writer->process == getpid() &&
      writer->thread.load(std::memory_order_relaxed) != CurrentThreadId()) {
    if (!writer->crashes.exchange(true, std::memory_order_relaxed))
      Parker::Wake(writer->crashed.Set());
    if (writer->written.Wait(MonotonicNs() + kLongestNs))
      Parker::Wake(writer->written.Set());  // wakes the next thread that waits here
  }
  for (size_t i = 0; i < std::size(kFatalSignals); ++i)
    if (kFatalSignals[i].number == signal) sigaction(signal, &state.before[i], nullptr);
  // Sends the same signal again; it arrives when this handler has returned.
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), CurrentThreadId(), signal, info) != 0) raise(signal);
  errno = error;
}

inline bool IsOfCrashTrace(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &HandleCrash;
}

// Returns a writer whose thread has not written yet, and starts one if needed.
inline CrashWriter& WaitingCrashWriter() {
  CrashState& state = Crash();
  // Relaxed: this thread has stored the pointer.
  if (CrashWriter* const made = state.writer.load(std::memory_order_relaxed);
      made && made->process == getpid() && !made->crashes.load(std::memory_order_relaxed))
    return *made;
  auto writer = std::make_unique<CrashWriter>();
  // Block all signals in the new thread: it must not run the handler, which waits for it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, &WriteCrashTrace, writer.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error)
    Throw(ErrorCode::kUnsupported,
          "ProfileOptions::crash_trace needs a thread: ", std::strerror(error));
  pthread_detach(thread);
  state.writer.store(writer.get(), std::memory_order_release);
  return *writer.release();
}

// From Arm to Disarm, a signal that ends the process first writes the profile recorded so far to
// `path` (see SaveProfileFile). Then the signal's earlier action follows, with the same siginfo_t.
// Faults (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS) are caught even if the program
// handles them. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM and SIGXCPU are caught only if
// the program neither handles nor ignores them. Threads that crash meanwhile wait for the trace.
// A signal handler must not allocate memory. Therefore a separate thread, which waits from Arm on,
// writes the trace. The handlers wait for it, but at most ten seconds: the crashed thread may hold
// a lock that writing needs. Each Arm leads to at most one trace; a forked child writes none. Arm
// and Disarm must not run at the same time. Throws kUnsupported if the thread cannot be started.
class CrashTrace {
 public:
  static void Arm(const std::string& path) {
    CrashState& state = Crash();
    WaitingCrashWriter().path = path;
    MakeSignalStack();
    struct sigaction action = {};
    action.sa_sigaction = &HandleCrash;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
      struct sigaction now = {};
      sigaction(kFatalSignals[i].number, nullptr, &now);
      if (IsOfCrashTrace(now)) continue;  // inherited by the child of an armed process
      state.before[i] = now;
      if (!kFatalSignals[i].is_fault && ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL))
        continue;
      sigaction(kFatalSignals[i].number, &action, nullptr);
    }
    state.armed = true;
  }
  static void Disarm() {
    CrashState& state = Crash();
    if (!std::exchange(state.armed, false)) return;
    for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
      struct sigaction now = {};
      sigaction(kFatalSignals[i].number, nullptr, &now);
      if (IsOfCrashTrace(now)) sigaction(kFatalSignals[i].number, &state.before[i], nullptr);
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_CRASH_TRACE_HPP_

// ---- opkit/profile/impl/profiler.ipp
// Forwards the profiler's functions to the recorder and the writers, and runs the session of
// OPKIT_PROFILE.
#ifndef OPKIT_PROFILE_IMPL_PROFILER_IPP_
#define OPKIT_PROFILE_IMPL_PROFILER_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The session of the environment variable OPKIT_PROFILE: from the start of the process to its end,
// or until the program begins a session of its own.
class EnvironmentSession {
 public:
  static EnvironmentSession& Global() {
    // In static memory: on the heap, the object of a library would leak when the library is
    // unmapped. Never destroyed.
    alignas(EnvironmentSession) static char room[sizeof(EnvironmentSession)];
    static auto* session = new (room) EnvironmentSession;
    return *session;
  }
  // Starts the session if the environment variable names a file; at most once.
  bool Begin() {
    const char* const asked = std::getenv("OPKIT_PROFILE");
    if (!asked || !*asked) return false;
    if (std::exchange(begun_, true)) return started_;
    path_ = asked;
    for (size_t at = 0; (at = path_.find("%p", at)) != std::string::npos;)
      path_.replace(at, 2, StrCat(process_));
    try {
      Profiler::Start({.crash_trace = path_});
    } catch (const std::exception& error) {  // a static initialiser has begun a session
      std::fprintf(stderr, "opkit: OPKIT_PROFILE: %s\n", error.what());
      return false;
    }
    started_ = unwritten_ = true;
    std::atexit([] { Global().End(); });
    return true;
  }
  // Ends the session and writes its trace, unless that is done. Returns the written file's name, or
  // an empty string if nothing was written. A forked child does not write the file of its parent.
  std::string End() noexcept {
    if (!unwritten_.exchange(false) || process_ != getpid()) return {};
    Profiler::Stop();
    try {
      std::string written = SaveProfileFile(Profiler::Read(), path_);
      if (written != path_)
        std::fprintf(stderr,
                     "opkit: OPKIT_PROFILE: no file of the program includes "
                     "opkit/report/report.hpp: the profile is the trace %s\n",
                     written.c_str());
      return written;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "opkit: OPKIT_PROFILE: %s\n", error.what());
      return {};
    }
  }

 private:
  std::string path_;
  const pid_t process_ = getpid();
  bool begun_ = false, started_ = false;
  std::atomic<bool> unwritten_{false};
};

}  // namespace detail

OPKIT_INLINE void Profiler::Start(const ProfileOptions& options) {
  if (const std::string written = detail::EnvironmentSession::Global().End(); !written.empty())
    std::fprintf(stderr,
                 "opkit: OPKIT_PROFILE: the program begins a profile of its own: %s ends there\n",
                 written.c_str());
  detail::Recorder::Global().Start(options);
  if (options.crash_trace.empty()) return;
  try {
    detail::CrashTrace::Arm(options.crash_trace);
  } catch (...) {
    Stop();
    throw;
  }
}
OPKIT_INLINE void Profiler::Stop() {
  detail::CrashTrace::Disarm();
  detail::Recorder::Global().Stop();
}
OPKIT_INLINE void Profiler::Pause() { detail::Recorder::Global().Pause(); }
OPKIT_INLINE void Profiler::Resume() { detail::Recorder::Global().Resume(); }
OPKIT_INLINE bool Profiler::IsRunning() { return detail::Recorder::Global().is_running(); }
OPKIT_INLINE Profile Profiler::Read() { return detail::Recorder::Global().Read(); }

OPKIT_INLINE void ProfileCount(std::string_view counter, double value) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Count(detail::SpanNames::OfText(counter), value);
}
OPKIT_INLINE void ProfileMark(std::string_view name) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Mark(detail::SpanNames::OfText(name), /*frame=*/false);
}
OPKIT_INLINE void ProfileFrame(std::string_view name) {
  if (detail::CurrentSpanSink())
    detail::Recorder::Global().Mark(detail::SpanNames::OfText(name), /*frame=*/true);
}

OPKIT_INLINE bool detail::ProfileByEnvironment() { return EnvironmentSession::Global().Begin(); }

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PROFILER_IPP_

// ---- opkit/base/impl/algorithm.ipp
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

// ---- opkit/base/impl/name_map.ipp
// The definitions of opkit/base/name_map.hpp.
#ifndef OPKIT_BASE_IMPL_NAME_MAP_IPP_
#define OPKIT_BASE_IMPL_NAME_MAP_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE size_t LowerRow(const NamedRows& rows, std::string_view name) {
  size_t low = 0, high = rows.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (std::string_view(rows[middle]->name).compare(name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
OPKIT_INLINE NamedRow* FindRow(const NamedRows& rows, std::string_view name) {
  const size_t at = LowerRow(rows, name);
  return IsRow(rows, at, name) ? rows[at] : nullptr;
}
OPKIT_INLINE void GrowRows(NamedRows& rows) {
  if (rows.size() == rows.capacity()) rows.reserve(rows.empty() ? 8 : 2 * rows.size());
}
OPKIT_INLINE void InsertRow(NamedRows& rows, size_t at, NamedRow* row) {
  rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(at), row);
}
OPKIT_INLINE void EraseRow(NamedRows& rows, size_t at) {
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(at));
}
OPKIT_INLINE std::vector<std::string> NamesOf(const NamedRows& rows) {
  std::vector<std::string> names;
  for (const NamedRow* row : rows) names.push_back(row->name);
  return names;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_IMPL_NAME_MAP_IPP_

// ---- opkit/op/call/impl/direct_call.ipp
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

// ---- opkit/op/impl/kernel_candidates.ipp
// The definitions of KernelCandidates and CreateSelected.
#ifndef OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_
#define OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The reason for skipping a kernel with other layouts than the standard one.
inline constexpr const char* kNothingConverts =
    "it takes another layout than the standard one, and nothing converts here";

[[noreturn]] OPKIT_COLD inline void RethrowFromProposal(const Kernel& kernel,
                                                        const OperatorDef& def) {
  RethrowInContext(StrCat("in the proposal for operator ", def, " of the kernel registered at ",
                          kernel.Place()));
}
OPKIT_INLINE std::string WhyNotStandard(const Kernel& kernel, const OpSchema& schema,
                                        const OperatorDef& def, const Workspace& ws) {
  const std::vector<TensorInfo> infos = TypesIn(ws, def.inputs());
  std::vector<KernelConfig> proposed;
  try {
    proposed = kernel.propose({def, infos, schema.InferOutputs(def, infos)});
  } catch (const Error&) {  // types are not known yet, or the run reports the mistake
    return {};
  } catch (...) {
    RethrowFromProposal(kernel, def);
  }
  for (const KernelConfig& config : proposed)
    if (config.is_standard()) return {};
  return proposed.empty() ? "" : kNothingConverts;
}

OPKIT_COLD OPKIT_INLINE std::string LayoutsText(const KernelConfig& config) {
  if (config.is_standard()) return {};
  std::string text;
  for (const auto* layouts : {&config.input_layouts, &config.output_layouts}) {
    text += layouts == &config.input_layouts ? "" : " -> ";
    if (layouts->empty()) text += "standard";
    for (size_t i = 0; i < layouts->size(); ++i)
      text += (i == 0 ? "" : ", ") + ToString((*layouts)[i]);
  }
  return text;
}
OPKIT_INLINE bool HaveSameLayouts(const KernelConfig& a, const KernelConfig& b) {
  const size_t inputs = (std::max)(a.input_layouts.size(), b.input_layouts.size());
  for (size_t i = 0; i < inputs; ++i)
    if (a.input_layout(i) != b.input_layout(i)) return false;
  const size_t outputs = (std::max)(a.output_layouts.size(), b.output_layouts.size());
  for (size_t o = 0; o < outputs; ++o)
    if (a.output_layout(o) != b.output_layout(o)) return false;
  return true;
}

OPKIT_INLINE std::string UnmetLayout(const OperatorDef& def, const KernelConfig& config) {
  for (const auto* layouts : {&config.input_layouts, &config.output_layouts})
    for (size_t i = 0; i < layouts->size(); ++i) {
      const Layout& layout = (*layouts)[i];
      if (layout.is_standard()) continue;
      const char* why = nullptr;
      if (!g_layout_name || g_layout_name(layout.id).empty())
        why = "and nothing converts between it and the standard layout";
      if (!IsHostAccessible(def.device().type)) why = "and layouts are converted on the host alone";
      if (why)
        return StrCat("it proposes ", ToString(layout), " for ",
                      layouts == &config.input_layouts ? "input " : "output ", i, ", ", why);
    }
  return {};
}

}  // namespace detail

OPKIT_INLINE std::vector<KernelCandidate> KernelCandidates(const OperatorDef& def,
                                                           std::span<const TensorInfo> inputs,
                                                           std::span<const TensorInfo> outputs) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<KernelCandidate> out;
  const auto kernels = detail::KernelOrder(def, /*by_rank=*/true);
  for (auto& [backend, why] : detail::MissingBackends(def))
    out.push_back({nullptr, {}, std::move(why), std::move(backend)});
  for (const Kernel* kernel : kernels) {
    if (std::string why = OpRegistry::Global().WhyUnavailable(*kernel); !why.empty()) {
      out.push_back({kernel, {}, std::move(why), kernel->backend});
      continue;
    }
    if (!kernel->propose) {
      KernelCandidate& plain = out.emplace_back(KernelCandidate{kernel, {}, {}, kernel->backend});
      for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
        for (int i = 0; i < static_cast<int>(def.inputs().size()); ++i)
          if (schema.CanInplace(i, o)) plain.config.inplace.emplace_back(i, o);
      continue;
    }
    std::string dropped = "it proposes no configuration for this node";
    int number = 0;
    try {
      for (KernelConfig& config : kernel->propose({def, inputs, outputs})) {
        detail::CheckConfig(*kernel, def, config);
        out.push_back({kernel, std::move(config), {}, kernel->backend, number++});
        out.back().dropped = detail::UnmetLayout(def, out.back().config);
        dropped.clear();
      }
    } catch (const UnsupportedOperatorFeature& error) {
      dropped = error.message();
    } catch (...) {
      detail::RethrowFromProposal(*kernel, def);
    }
    if (!dropped.empty()) out.push_back({kernel, {}, std::move(dropped), kernel->backend});
  }
  if (kernels.empty()) detail::ThrowNoKernel(def, {});
  return out;
}

OPKIT_INLINE std::unique_ptr<OperatorBase> CreateSelected(const OperatorDef& def, Workspace* ws,
                                                          std::span<const TensorInfo> inputs,
                                                          std::span<const TensorInfo> outputs,
                                                          const SelectOptions& options,
                                                          KernelCandidate* chosen,
                                                          std::string* passed_over) try {
  const detail::RegistryUse use;
  std::string refused;
  for (KernelCandidate& candidate : KernelCandidates(def, inputs, outputs)) {
    if (!options.converts && !candidate.config.is_standard() && candidate.dropped.empty())
      candidate.dropped = detail::kNothingConverts;
    if (candidate.dropped.empty()) {
      try {
        auto op = CreateOperator(def, ws,
                                 {.kernel = candidate.kernel,
                                  .config = options.any_shapes ? nullptr : &candidate.config,
                                  .net_position = options.net_position});
        if (chosen) *chosen = std::move(candidate);
        if (passed_over) *passed_over = std::move(refused);
        return op;
      } catch (const UnsupportedOperatorFeature& error) {
        candidate.dropped = error.message();
      }
    }
    refused += StrCat("\n  backend ", candidate.name(), ": ", candidate.dropped);
  }
  detail::ThrowNoKernel(def, refused);
} catch (...) {
  if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
  throw;
}

namespace detail {

inline std::unique_ptr<OperatorBase> CreateSelectedFor(const OperatorDef& def, Workspace* ws,
                                                       std::span<const TensorInfo> inputs,
                                                       std::span<const TensorInfo> outputs,
                                                       bool converts, bool* is_standard) {
  KernelCandidate chosen;
  auto op = CreateSelected(def, ws, inputs, outputs, {.converts = converts}, &chosen);
  *is_standard = chosen.config.is_standard();
  return op;
}
OPKIT_INLINE void UseSelection() noexcept {
  g_why_not_standard.Fill(&WhyNotStandard);
  g_create_selected.Fill(&CreateSelectedFor);
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_KERNEL_CANDIDATES_IPP_

// ---- opkit/base/json/impl/json_writer.ipp
// JsonWriter's definitions.
#ifndef OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_
#define OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!continues(1) || !continues(2)) return 0;
    return (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    return (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) ? 0 : 4;
  }
  return 0;
}

OPKIT_INLINE void AppendJsonString(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // start of the bytes that need no escape and are not yet in `out`
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80 ? 1 : Utf8Length(text.substr(at));
    if (length != 0 && first >= 0x20 && first != '"' && first != '\\') {
      at += length;
      continue;
    }
    out += text.substr(plain, at - plain);
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (first < 0x20)
      ((out += "\\u00") += kHex[first >> 4]) += kHex[first & 15];
    else
      (out += '\\') += text[at];
    plain = ++at;
  }
  out += text.substr(plain);
  out += '"';
}

OPKIT_INLINE void AppendNumber(std::string& out, double value) {
  char digits[32];
  if (!__builtin_isfinite(value))
    out += "null";
  else
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

OPKIT_INLINE JsonWriter& JsonWriter::Key(std::string_view name) {
  AppendJsonString(Item(), name);
  out_ += is_spaced_ ? ": " : ":";
  needs_comma_ = false;
  return *this;
}
OPKIT_INLINE std::string& JsonWriter::Item() {
  if (std::exchange(needs_comma_, true)) out_ += is_spaced_ && !indent_ ? ", " : ",";
  AppendNewLine();
  return out_;
}
OPKIT_INLINE JsonWriter& JsonWriter::Begin(char bracket) {
  Item() += bracket;
  needs_comma_ = false;
  return *this;
}
OPKIT_INLINE JsonWriter& JsonWriter::End(char bracket) {
  AppendNewLine();
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}
OPKIT_INLINE void JsonWriter::AppendNewLine() {
  if (const char* const indent = std::exchange(indent_, nullptr)) (out_ += '\n') += indent;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_JSON_IMPL_JSON_WRITER_IPP_

// ---- opkit/profile/impl/mann_whitney.ipp
// Computes ranks, and the distribution of U.
#ifndef OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_
#define OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the probability that U is at most `limit` if all orders of a + b numbers are equally
// likely. The numbers of orders by U are the coefficients of the Gaussian binomial: the product
// over i from 1 to a of (1 - x^(b + i)) / (1 - x^i). For a + b <= 50 they and their sum are exact
// in a double.
inline double ProbabilityOfU(size_t a, size_t b, double limit) {
  std::vector<double> counts(a * b + 1);
  counts[0] = 1;
  double all = 1;
  for (size_t i = 1; i <= a; ++i) {
    for (size_t u = counts.size(); u-- > b + i;) counts[u] -= counts[u - b - i];
    for (size_t u = i; u < counts.size(); ++u) counts[u] += counts[u - i];
    all = all * static_cast<double>(b + i) / static_cast<double>(i);
  }
  double sum = 0;
  for (size_t u = 0; u < counts.size() && static_cast<double>(u) <= limit; ++u) sum += counts[u];
  return sum / all;
}

}  // namespace detail

OPKIT_INLINE MannWhitney MannWhitneyTest(const std::vector<double>& a,
                                         const std::vector<double>& b) {
  MannWhitney out;
  if (a.empty() || b.empty()) return out;
  struct Item {
    double value;
    bool of_b;
  };
  std::vector<Item> items;
  items.reserve(a.size() + b.size());
  for (double value : a) items.push_back({value, false});
  for (double value : b) items.push_back({value, true});
  for (const Item& item : items)
    if (std::isnan(item.value))
      Throw(ErrorCode::kInvalidArgument, "a sample contains NaN, which has no rank");
  std::sort(items.begin(), items.end(),
            [](const Item& x, const Item& y) { return x.value < y.value; });
  double ties = 0, a_before = 0;
  for (size_t first = 0, end = 0; first < items.size(); first = end) {
    double of_a = 0, of_b = 0;
    for (end = first; end < items.size() && items[end].value == items[first].value; ++end)
      ++(items[end].of_b ? of_b : of_a);
    out.u += of_b * (a_before + of_a / 2);
    a_before += of_a;
    const double equal = of_a + of_b;
    ties += equal * equal * equal - equal;
  }
  const auto m = static_cast<double>(a.size()), n = static_cast<double>(b.size()), all = m + n;
  const double distance = std::abs(out.u - m * n / 2);
  if (ties == 0 && all <= 50) {
    out.p = 2 * detail::ProbabilityOfU(a.size(), b.size(), m * n / 2 - distance);
  } else {
    const double variance = m * n / 12 * (all + 1 - ties / (all * (all - 1)));
    if (variance > 0) out.p = std::erfc((std::max)(distance - 0.5, 0.0) / std::sqrt(2 * variance));
  }
  out.p = (std::min)(out.p, 1.0);
  return out;
}

OPKIT_INLINE double SmallestMannWhitneyP(int64_t a, int64_t b) {
  double p = 2;
  for (int64_t i = 1; i <= (std::min)(a, b); ++i)
    p *= static_cast<double>(i) / static_cast<double>((std::max)(a, b) + i);
  return (std::min)(p, 1.0);
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_MANN_WHITNEY_IPP_

// ---- opkit/base/cache/file_lock.hpp
// FileLock: excludes other processes and threads while a file or a folder of a cache is changed.
#ifndef OPKIT_BASE_CACHE_FILE_LOCK_HPP_
#define OPKIT_BASE_CACHE_FILE_LOCK_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Throws kIo, "cannot CANNOT 'PATH': WHY"; without `why` the message of errno.
[[noreturn]] OPKIT_COLD void FailFile(const char* cannot, const std::string& path,
                                      const char* why = nullptr);

// Makes the missing folders above a file, for "a/b/c" the folders a and a/b. Returns false, with
// the reason in errno, if it cannot; opening the file then fails too.
bool MakeFolders(const std::string& path);

// The lock of a file, held until the end of the scope. The system frees the lock of a process that
// ends in any way. It belongs to this open file, not to the process: threads exclude each other
// too.
class FileLock {
 public:
  // Makes the file if there is none; it stays afterwards. Waits for another holder of the lock.
  // Throws kIo after `wait_s` seconds, or if the file cannot be written.
  FileLock(const std::string& path, double wait_s);
  FileLock(FileLock&&) = delete;
  ~FileLock();

 private:
  bool Set(short type) const;
  const int file_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_FILE_LOCK_HPP_

// ---- opkit/base/impl/output_file.ipp
// The definitions of base/output_file.hpp.
#ifndef OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_
#define OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the descriptor in a name such as "/dev/stdout" or "/dev/fd/3"; -1 for other names. The
// file of a descriptor may have no name any more, and the descriptor has its own write offset.
inline int DescriptorOf(std::string_view path) {
  for (const auto& [name, number] :
       {std::pair("/dev/stdin", 0), {"/dev/stdout", 1}, {"/dev/stderr", 2}})
    if (path == name) return number;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const std::string_view digits = path.substr(folder.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() ? number : -1;
  }
  return -1;
}
inline std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}
// Follows up to 40 symbolic links and returns the last path; no file need exist there.
inline std::string BehindLinks(std::string path) {
  char next[4096];
  for (int links = 0; links < 40 && DescriptorOf(path) < 0; ++links) {
    const ssize_t length = readlink(path.c_str(), next, sizeof next);
    if (length < 0) return path;
    const std::string_view target(next, static_cast<size_t>(length));
    path = target.starts_with('/') ? std::string(target) : StrCat(FolderOf(path), target);
  }
  return path;
}

// Opens a new file in the folder of `target` and stores its name in `name`; returns -1 if the file
// cannot be created there. The name is short even if the target's name has the greatest length that
// the system allows.
inline int OpenBeside(const std::string& target, mode_t mode, std::string* name) {
  for (int n = 0;; ++n) {
    *name = StrCat(FolderOf(target), ".opkit.", getpid(), ".", n, ".new");
    const int file = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

OPKIT_INLINE OutputFile::OutputFile(const std::string& path)
    : path_(path), target_(detail::BehindLinks(path)) {
  if (const int descriptor = detail::DescriptorOf(target_); descriptor >= 0) {
    if (descriptor == 1) std::fflush(stdout);  // keeps earlier prints in front
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    file_ = own < 0 ? nullptr : fdopen(own, "wb");
    if (!file_) Fail();
    truncated_ = true;
    return;
  }
  struct stat old;
  const bool exists = stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) Fail();
  if (exists && access(target_.c_str(), W_OK) != 0) Fail();
  if (!exists || S_ISREG(old.st_mode)) {
    const int made = detail::OpenBeside(target_, exists ? 0600 : 0666, &temporary_);
    if (made >= 0) {
      // Readers of the old file can read the new one. The owner is not kept: the system may not
      // allow it.
      if (exists) static_cast<void>(fchmod(made, old.st_mode & 07777));
      file_ = fdopen(made, "wb");
      return;
    }
    temporary_.clear();
    if (!exists) Fail();
  }
  file_ = std::fopen(target_.c_str(), "ab");
  if (!file_) Fail();
}
OPKIT_INLINE OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

OPKIT_INLINE void OutputFile::Write(std::string_view bytes) {
  // EINVAL: a pipe or a device, whose contents cannot be cut off.
  if (temporary_.empty() && !std::exchange(truncated_, true) && ftruncate(fileno(file_), 0) != 0 &&
      errno != EINVAL)
    Fail();
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) Fail();
}

OPKIT_INLINE void OutputFile::Commit() {
  Write({});
  if (std::fclose(std::exchange(file_, nullptr)) != 0) Fail();
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) Fail();
  temporary_.clear();
}

OPKIT_INLINE void OutputFile::Fail() const {
  Throw(ErrorCode::kIo, "cannot write '", path_, "': ", std::strerror(errno));
}

OPKIT_INLINE std::string ReadFileIfPresent(const std::string& path) {
  struct Descriptor {
    const int number;
    ~Descriptor() {
      if (number >= 0) close(number);
    }
  };
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status;
  if (file.number < 0 && errno == ENOENT) return {};
  if (file.number < 0 || fstat(file.number, &status) != 0) FailFile("read", path);
  if (!S_ISREG(status.st_mode)) FailFile("read", path, "it is not a regular file");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(file.number, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailFile("read", path);
    if (got == 0) break;  // the file has become shorter
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

// Writes a new file to the disk. `mode` is -1 for the mode that new files have. Returns false, with
// errno, if that fails.
inline bool WriteToDisk(const std::string& path, int mode, std::string_view bytes) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode < 0 ? 0666 : 0600);
  if (file < 0) return false;
  if (mode >= 0) static_cast<void>(fchmod(file, static_cast<mode_t>(mode)));
  bool good = true;
  while (good && !bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    good = written >= 0 || errno == EINTR;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  good = good && fsync(file) == 0;
  const int error = errno;
  const bool closed = close(file) == 0;
  if (!good) errno = error;
  return good && closed;
}

OPKIT_INLINE void UpdateFile(const std::string& path,
                             FunctionRef<std::string(std::string_view bytes)> change,
                             double wait_s) {
  const std::string target = BehindLinks(path), temporary = target + ".new";
  struct stat old;
  if (stat(target.c_str(), &old) == 0 && !S_ISREG(old.st_mode))  // such as /dev/null
    FailFile("write", path, "it is not a regular file");
  static_cast<void>(MakeFolders(target));
  const FileLock lock(target + ".lock", wait_s);
  const std::string bytes = change(ReadFileIfPresent(target));
  const bool exists = stat(target.c_str(), &old) == 0;
  if (exists && access(target.c_str(), W_OK) != 0) FailFile("write", path);
  // A process that was killed leaves ".new"; only the holder of the lock writes it.
  unlink(temporary.c_str());
  if (WriteToDisk(temporary, exists ? static_cast<int>(old.st_mode & 07777) : -1, bytes) &&
      std::rename(temporary.c_str(), target.c_str()) == 0)
    return;
  const int error = errno;
  unlink(temporary.c_str());
  FailFile("write", path, std::strerror(error));
}

}  // namespace detail

OPKIT_INLINE void SaveFile(const std::string& path, std::string_view bytes) {
  detail::OutputFile file(path);
  file.Write(bytes);
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_

// ---- opkit/profile/impl/tool_ranges.ipp
// Implements the two protocols by which tools offer their functions to a process.
#ifndef OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_
#define OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline void* OpenTool(const std::string& library) {
  if (void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  Throw(ErrorCode::kNotFound, "cannot load the tool's library: ", dlerror());
}
template <class Function>
Function ToolSymbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// A tool of NVTX 3: its library's initialiser requests tables of pointers by number and fills in
// its own functions (nvtxTypes.h of the CUDA toolkit lists the numbers).
class NvtxRanges final : public ToolRanges {
 public:
  explicit NvtxRanges(const std::string& library) {
    void* const handle = OpenTool(library);
    const auto start =
        ToolSymbol<int (*)(const void* (*)(uint32_t))>(handle, "InitializeInjectionNvtx2");
    if (!start)
      Throw(ErrorCode::kNotFound, "'", library, "' has no InitializeInjectionNvtx2: it is no tool ",
            "for NVTX");
    for (int i = 0; i < kFunctions; ++i) slots_[i] = &functions_[i];
    Loading() = this;
    const int started = start(&ExportTable);
    Loading() = nullptr;
    push_ = reinterpret_cast<Push_*>(functions_[kRangePushA]);
    pop_ = reinterpret_cast<Pop_*>(functions_[kRangePop]);
    if (!started || !push_ || !pop_)
      Throw(ErrorCode::kNotFound, "the tool in '", library, "' takes no ranges by NVTX");
  }
  void Push(const std::string& name) const override { push_(name.c_str()); }
  void Pop() const override { pop_(); }

 private:
  using Function = void (*)();
  using Push_ = int(const char*);
  using Pop_ = int();
  // NVTX's numbers: the core module, two functions in its table, the table's size without its null.
  static constexpr int kCore = 1, kRangePushA = 9, kRangePop = 11, kFunctions = 16;
  static constexpr uint32_t kCallbacks = 1;
  struct Callbacks {
    size_t struct_size;
    int (*get_module_table)(int module, Function*** table, unsigned* size);
  };

  // The object that is being loaded: the protocol's callbacks cannot carry a pointer to it.
  static NvtxRanges*& Loading() {
    static NvtxRanges* loading = nullptr;
    return loading;
  }
  static const void* ExportTable(uint32_t table) {
    static const Callbacks callbacks{sizeof(Callbacks), &ModuleTable};
    return table == kCallbacks ? &callbacks : nullptr;
  }
  static int ModuleTable(int module, Function*** table, unsigned* size) {
    if (module != kCore || !Loading()) return 0;
    if (table) *table = Loading()->slots_;
    if (size) *size = kFunctions;
    return 1;
  }

  Function functions_[kFunctions] = {};
  Function* slots_[kFunctions + 1] = {};
  Push_* push_ = nullptr;
  Pop_* pop_ = nullptr;
};

// A tool of ITT API 3: the collector receives a description of the process's functions and fills in
// their pointers. Older collectors export the functions by name (ittnotify_config.h of Intel's
// ittapi).
class IttRanges final : public ToolRanges {
 public:
  explicit IttRanges(const std::string& library) {
    void* const handle = OpenTool(library);
    if (const auto start = ToolSymbol<void (*)(Process*, int)>(handle, "__itt_api_init"))
      start(&process_, kAllGroups);
    else
      for (Entry* entry = entries_; entry->name; ++entry)
        *entry->function = dlsym(handle, entry->name);
    if (!task_begin_ || !task_end_)
      Throw(ErrorCode::kNotFound, "the tool in '", library,
            "' has neither __itt_api_init nor __itt_task_begin: it takes no tasks by ITT");
    domain_ = domain_create_ ? reinterpret_cast<Domain* (*)(const char*)>(domain_create_)("opkit")
                             : nullptr;
    if (!domain_) domain_ = process_.domains = &own_domain_;
  }
  void Push(const std::string& name) const override {
    reinterpret_cast<void (*)(const Domain*, Id, Id, Handle*)>(task_begin_)(domain_, {}, {},
                                                                            HandleOf(name));
  }
  void Pop() const override { reinterpret_cast<void (*)(const Domain*)>(task_end_)(domain_); }

 private:
  // Id to Process have the layout of the protocol's structs in ittnotify_config.h.
  struct Id {
    unsigned long long words[3] = {};
  };
  struct Domain {
    volatile int flags = 1;  // enabled
    const char* name = nullptr;
    void* wide_name = nullptr;
    int extra1 = 0;
    void* extra2 = nullptr;
    Domain* next = nullptr;
  };
  struct Handle {
    const char* text = nullptr;
    void* wide_text = nullptr;
    int extra1 = 0;
    void* extra2 = nullptr;
    Handle* next = nullptr;
  };
  struct Entry {
    const char* name;
    void** function;
    void* initial;
    void* none;
    int group;
  };
  struct Process {
    unsigned char magic[8] = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30};
    unsigned long version[3] = {3, 25, 0};
    volatile long is_initialized = 0, has_mutex = 0, counter = 0;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    void* library = nullptr;
    void* error_handler = nullptr;
    const char** path = nullptr;
    Entry* entries = nullptr;
    Process* next = nullptr;
    void* threads = nullptr;
    Domain* domains = nullptr;
    Handle* strings = nullptr;
    int state = 0;
    void* counters = nullptr;
    unsigned collect_events = 0;
    void* histograms = nullptr;
    void* counter_metadata = nullptr;
  };
  static constexpr int kAllGroups = -1, kStructure = 1 << 12;

  // Returns the tool's handle for a name. Handles are kept, since a tool keeps their pointers.
  Handle* HandleOf(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto [place, is_new] = handles_.try_emplace(name);
    if (is_new) {
      if (string_handle_create_)
        place->second.made =
            reinterpret_cast<Handle* (*)(const char*)>(string_handle_create_)(place->first.c_str());
      place->second.own.text = place->first.c_str();
    }
    return place->second.made ? place->second.made : &place->second.own;
  }

  // A name's handle: `made` by the tool, or `own` if the tool makes none.
  struct Known {
    Handle own;
    Handle* made = nullptr;
  };
  void *domain_create_ = nullptr, *string_handle_create_ = nullptr, *task_begin_ = nullptr,
       *task_end_ = nullptr;
  Entry entries_[5] = {
      {"__itt_domain_create", &domain_create_, nullptr, nullptr, kStructure},
      {"__itt_string_handle_create", &string_handle_create_, nullptr, nullptr, kStructure},
      {"__itt_task_begin", &task_begin_, nullptr, nullptr, kStructure},
      {"__itt_task_end", &task_end_, nullptr, nullptr, kStructure},
      {nullptr, nullptr, nullptr, nullptr, 0}};
  Process process_ = {.entries = entries_};
  Domain own_domain_ = {.name = "opkit"};
  const Domain* domain_ = nullptr;
  mutable Mutex mutex_;
  mutable std::map<std::string, Known> handles_;  // guarded by mutex_
};

class BothRanges final : public ToolRanges {
 public:
  BothRanges(const ToolRanges* first, const ToolRanges* second) : first_(first), second_(second) {}
  void Push(const std::string& name) const override {
    first_->Push(name);
    second_->Push(name);
  }
  void Pop() const override {
    second_->Pop();
    first_->Pop();
  }

 private:
  const ToolRanges* const first_;
  const ToolRanges* const second_;
};

OPKIT_INLINE const ToolRanges* ToolRanges::LoadNvtx(const std::string& library) {
  return new NvtxRanges(library);
}
OPKIT_INLINE const ToolRanges* ToolRanges::LoadItt(const std::string& library) {
  return new IttRanges(library);
}
OPKIT_INLINE const ToolRanges* ToolRanges::Global() {
  const auto of_variable = [](const char* variable,
                              const ToolRanges* (*load)(const std::string&)) -> const ToolRanges* {
    const char* const library = std::getenv(variable);
    if (!library || !*library) return nullptr;
    try {
      return load(library);
    } catch (const Error& error) {
      std::fprintf(stderr, "opkit: %s: %s\n", variable, error.what());
      return nullptr;
    }
  };
  static const ToolRanges* const tools = [&]() -> const ToolRanges* {
    const ToolRanges* const nvtx = of_variable("NVTX_INJECTION64_PATH", &LoadNvtx);
    const ToolRanges* const itt = of_variable("INTEL_LIBITTNOTIFY64", &LoadItt);
    if (nvtx && itt) return new BothRanges(nvtx, itt);
    return nvtx ? nvtx : itt;
  }();
  return tools;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_

// ---- opkit/profile/recording/decoder.hpp
// ProfileDecoder: makes a Profile of the records of a profiler session.
#ifndef OPKIT_PROFILE_RECORDING_DECODER_HPP_
#define OPKIT_PROFILE_RECORDING_DECODER_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Takes the records of all threads, one thread after the other, and the records of a thread in
// their order. Has one function for each type of record. Records that add a fact to a span are kept
// until Finish, since the span may be on a thread that comes later.
class ProfileDecoder {
 public:
  // Begin of the session on both clocks, and its end, or the current time if it still runs.
  struct Clock {
    uint64_t start_ticks;
    int64_t start_ns;
    uint64_t end_ticks;
    double ns_per_tick;
    // Returns the ns since the session began.
    int64_t Time(uint64_t ticks) const {
      return static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - start_ticks)) *
                                  ns_per_tick);
    }
  };

  explicit ProfileDecoder(const Clock& clock) : clock_(clock) {}

  void BeginThread(const ProfileThread& thread) {
    profile_.threads.push_back(thread);
    last_ = clock_.end_ticks;
  }
  void Add(std::span<const ProfileRecord> records) {
    for (const ProfileRecord& record : records) Decode(record);
  }
  // Ends the thread's open spans at its last record, or at the end of the session.
  void EndThread() {
    for (const size_t place : std::exchange(open_, {})) {
      profile_.spans[place].end = clock_.Time(last_);
      profile_.spans[place].open = true;
    }
  }
  // Adds what the kept records say about spans to those spans, and sorts the profile's lists.
  Profile Finish() {
    profile_.duration = clock_.Time(clock_.end_ticks);
    ApplyFacts();
    NameAdopted();
    AddMemoryCounters();
    for (const auto& [id, sum] : counts_) profile_.counts.push_back(sum);
    Sort();
    return std::move(profile_);
  }

 private:
  // A record about the invocation `id`, and the index of the thread that wrote it.
  struct Fact {
    uint64_t id;
    ProfileRecord record;
    int thread;
  };

  void Decode(const ProfileRecord& record) {
    switch (record.type()) {
      case RecordType::kSpan:
      case RecordType::kAdopted:
        return Decode(record.span);
      case RecordType::kCompleted:
        return AddFact(record.completed.id, record);
      case RecordType::kOnDevice:
        return AddFact(record.on_device.id, record);
      case RecordType::kPushed:
        AddFact(record.pushed.id, record);
        facts_.back().record.pushed.name = NameOf(record.pushed.name);
        return;
      case RecordType::kWork:
        return AddFact(record.work.id, record);
      case RecordType::kMessage:
        return AddFact(record.message.id, record);
      case RecordType::kCounter:
        return Decode(record.counter);
      case RecordType::kMarker:
        return Decode(record.marker);
      case RecordType::kMemory:
        return Decode(record.memory);
      case RecordType::kCounts:
        return Decode(record.counts);
      case RecordType::kText:
        return Decode(record.text);
    }
  }
  void Decode(const SpanRecord& record) {
    const uint64_t end = record.EndOrZero();
    if (end == 0) open_.push_back(profile_.spans.size());
    last_ = (std::max)({last_, record.begin, end});
    ProfileSpan& span = profile_.spans.emplace_back();
    span.id = record.id;
    span.parent = record.parent;
    span.begin = clock_.Time(record.begin);
    span.end = clock_.Time(end);
    span.thread = Thread();
    span.kind = record.kind;
    span.device = {static_cast<DeviceType>(record.device_type), record.device_index};
    span.name = NameOf(record.name);
    span.node = record.node;
    span.custom = record.custom;
    span.adopted = record.type == RecordType::kAdopted;
  }
  void Decode(const CounterRecord& record) {
    profile_.counters.push_back({clock_.Time(record.time), NameOf(record.name), record.value});
  }
  void Decode(const MarkerRecord& record) {
    profile_.markers.push_back(
        {clock_.Time(record.time), NameOf(record.name), Thread(), record.frame});
  }
  void Decode(const MemoryRecord& record) {
    profile_.allocations.push_back({clock_.Time(record.time), record.id, record.bytes, record.live,
                                    record.allocator, Thread()});
  }
  void Decode(const CountsRecord& record) {
    ProfileCounts& sum = counts_[record.id];
    sum.invocation = record.id;
    for (size_t i = 0; i < 3; ++i) sum.values[record.first + i] += record.values[i];
  }
  void Decode(const TextRecord& record) {
    text_.append(record.text, strnlen(record.text, TextRecord::kBytes));
  }
  void AddFact(uint64_t id, const ProfileRecord& record) {
    facts_.push_back({id, record, Thread()});
  }

  // Each AddTo adds the fact of one type of record to a span of its invocation.
  void AddTo(ProfileSpan& span, const CompletedRecord& record) const {
    const int64_t time = clock_.Time(record.time);
    if (!span.adopted && time > span.end) span.completed = time;
  }
  void AddTo(ProfileSpan& span, const OnDeviceRecord& record) const {
    if (span.adopted) return;
    // Clamped to the session's begin, because the comparison of the two clocks has some error.
    span.device_begin = (std::max)(record.begin - clock_.start_ns, int64_t{0});
    span.device_end = span.device_begin + (record.end - record.begin);
  }
  void AddTo(ProfileSpan& span, const PushedRecord& record, int pusher) const {
    if (span.name == 0) span.name = record.name;
    span.pushed = clock_.Time(record.time);
    span.pusher = pusher;
  }
  void AddTo(ProfileSpan& span, const WorkRecord& record) const {
    if (!span.adopted && record.shapes != 0)
      span.work = {record.shapes, record.flops, record.bytes, record.backend};
  }
  void AddTo(ProfileSpan& span, const MessageRecord& record) const {
    if (!span.adopted)
      span.message = {record.from, record.to, record.plan, record.channel, record.number};
  }

  // Adds a fact to the span of its invocation.
  void Apply(const Fact& fact, ProfileSpan& span) const {
    switch (fact.record.type()) {
      case RecordType::kCompleted:
        return AddTo(span, fact.record.completed);
      case RecordType::kOnDevice:
        return AddTo(span, fact.record.on_device);
      case RecordType::kPushed:
        return AddTo(span, fact.record.pushed, fact.thread);
      case RecordType::kWork:
        return AddTo(span, fact.record.work);
      case RecordType::kMessage:
        return AddTo(span, fact.record.message);
      default:
        return;
    }
  }
  void ApplyFacts() {
    if (facts_.empty()) return;
    std::sort(facts_.begin(), facts_.end(),
              [](const Fact& a, const Fact& b) { return a.id < b.id; });
    for (ProfileSpan& span : profile_.spans)
      for (const Fact& fact : std::ranges::equal_range(facts_, span.id, {}, &Fact::id))
        Apply(fact, span);
  }
  // Gives a nameless part of an invocation the names of the invocation's own span.
  void NameAdopted() {
    const auto is_nameless = [](const ProfileSpan& span) { return span.adopted && span.name == 0; };
    std::map<uint64_t, SpanNames> names;  // by invocation
    for (const ProfileSpan& span : profile_.spans)
      if (is_nameless(span)) names.try_emplace(span.id);
    if (names.empty()) return;
    for (const ProfileSpan& span : profile_.spans)
      if (const auto found = names.find(span.id); found != names.end() && !span.adopted)
        found->second = {span.name, span.node};
    for (ProfileSpan& span : profile_.spans)
      if (is_nameless(span)) {
        span.name = names[span.id].name;
        span.node = names[span.id].node;
      }
  }
  void AddMemoryCounters() {
    std::map<uint32_t, uint32_t> counters;  // counter's name by allocator's name
    for (const ProfileAllocation& one : profile_.allocations) {
      uint32_t& counter = counters[one.allocator];
      if (counter == 0) counter = InternName("memory of " + InternedName(one.allocator));
      profile_.counters.push_back({one.time, counter, static_cast<double>(one.live)});
    }
  }
  void Sort() {
    std::sort(profile_.spans.begin(), profile_.spans.end(),
              [](const ProfileSpan& a, const ProfileSpan& b) {
                if (a.thread != b.thread) return a.thread < b.thread;
                if (a.begin != b.begin) return a.begin < b.begin;
                if (a.end != b.end) return a.end > b.end;
                return a.id < b.id;
              });
    const auto by_time = [](const auto& a, const auto& b) { return a.time < b.time; };
    StableSort(profile_.counters, by_time);
    StableSort(profile_.markers, by_time);
    StableSort(profile_.allocations, by_time);
  }

  int Thread() const { return static_cast<int>(profile_.threads.size()) - 1; }
  // Returns the interned name of a record: `name`, or the texts that came before it.
  uint32_t NameOf(uint32_t name) {
    return text_.empty() ? name : InternName(std::exchange(text_, {}));
  }

  const Clock clock_;
  Profile profile_;
  uint64_t last_ = 0;         // ticks of the thread's last record
  std::vector<size_t> open_;  // indices in profile_.spans of the thread's open spans
  std::string text_;          // name of the next record
  std::vector<Fact> facts_;
  std::map<uint64_t, ProfileCounts> counts_;  // by invocation
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_DECODER_HPP_

// ---- opkit/profile/recording/impl/recorder.ipp
// Records on each thread, and manages chunks and sessions.
#ifndef OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_
#define OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// --- one thread

OPKIT_INLINE ThreadProfile::ThreadProfile() {
  char name[16];
  GetCurrentThreadName(name);
  thread_ = {CurrentThreadId(), name};
}

OPKIT_INLINE void ThreadProfile::BeginSession(uint32_t session) {
  MutexLock lock(mutex_);
  chunks_.clear();
  chunk_ = nullptr;
  count_ = ProfileChunk::kRecords;
  session_ = session;
  earlier_ = depth_;
  dropped_.store(0, std::memory_order_relaxed);
  if (session != 0 && Recorder::Global().wants_crash_trace()) MakeSignalStack();
  counters_ = session == 0 ? nullptr : Recorder::Global().OpenCounters(num_counters_);
}

OPKIT_INLINE void ThreadProfile::StartCounts(int depth) {
  if (counts_.size() <= Index(depth)) counts_.resize(Index(depth) + 1);
  counters_->Read(counts_[Index(depth)].values);
}
OPKIT_INLINE void ThreadProfile::AddCounts(int depth, uint64_t id) {
  const ProfileCounts& before = counts_[Index(depth)];
  uint64_t now[ProfileCounts::kMost] = {};
  counters_->Read(now);
  for (int i = 0; i < ProfileCounts::kMost; ++i) now[i] -= before.values[i];
  for (int first = 0; first < num_counters_; first += 3) {
    ProfileRecord* const record = NewRecord();
    if (!record) return;
    *record = {.counts = {.first = static_cast<uint8_t>(first),
                          .id = id,
                          .values = {now[first], now[first + 1], now[first + 2]}}};
    Publish();
  }
}

OPKIT_INLINE bool ThreadProfile::NextChunk() {
  Recorder& recorder = Recorder::Global();
  std::unique_ptr<ProfileChunk> chunk;
  if (recorder.TakeChunk())
    chunk.reset(new (std::nothrow) ProfileChunk);
  else if (recorder.is_ring())
    chunk = recorder.TakeChunkOfEnded();  // a running thread may be writing to its chunks
  const bool makes_room = !chunk && recorder.is_ring() && !chunks_.empty();
  if (!chunk && !makes_room) return false;
  MutexLock lock(mutex_);
  uint32_t kept = 0;  // records of open spans, with their names, that stay in the reused chunk
  if (makes_room) {
    std::rotate(chunks_.begin(), chunks_.begin() + 1, chunks_.end());
    const std::span<ProfileRecord> records = chunks_.back()->records;
    for (int i = earlier_; i < (std::min)(depth_, kMaxDepth); ++i)
      if (ProfileRecord* const open = open_[i];
          open && open >= records.data() && open < records.data() + records.size()) {
        const ProfileRecord* from = open;
        while (from > records.data() && from[-1].type() == RecordType::kText) --from;
        // `from` never points before `kept`: records and open_ are both in order of begin.
        for (; from <= open; ++from) records[kept++] = *from;
        open_[i] = &records[kept - 1];
      }
    // Relaxed: this thread has stored the count.
    CountDropped(chunks_.back()->count.load(std::memory_order_relaxed) - kept);
  } else {
    chunks_.push_back(std::move(chunk));
  }
  chunk_ = chunks_.back().get();
  // Relaxed: the mutex orders the store.
  chunk_->count.store(kept, std::memory_order_relaxed);
  count_ = kept;
  return true;
}

OPKIT_INLINE ProfileRecord* ThreadProfile::NewNamedRecord(std::string_view text) {
  text = text.substr(0, ProfileChunk::kLongestText * TextRecord::kBytes);
  const size_t records = (text.size() + TextRecord::kBytes - 1) / TextRecord::kBytes;
  if (count_ + records >= ProfileChunk::kRecords && !NextChunk()) return CountDropped(), nullptr;
  for (size_t at = 0; at < text.size(); at += TextRecord::kBytes) {
    ProfileRecord& part = chunk_->records[count_++] = {.text = {}};
    text.copy(part.text.text, TextRecord::kBytes, at);
  }
  return &chunk_->records[count_++];
}

// The calling thread's profile; null before its first record and after the destruction of its
// thread-local objects.
inline constinit thread_local ThreadProfile* t_profile = nullptr;
inline constinit thread_local bool t_profile_ended = false;
// Ends the calling thread's profile when the thread ends.
struct ThreadProfileEnd {
  ~ThreadProfileEnd() {
    t_profile_ended = true;
    if (t_profile) Recorder::Global().Ended(std::exchange(t_profile, nullptr));
  }
};

// --- the recorder

OPKIT_INLINE Recorder& Recorder::Global() {
  static Recorder* recorder = [] {
    auto* made = new Recorder;
    // First makes the table of names, which registers its handlers for a fork. The recorder
    // registers its own afterwards. A fork calls the handlers in reverse order: it locks the
    // recorder's mutex first and the table's second. A recording thread that makes a name locks
    // them in the same order.
    static_cast<void>(InternName("recorder"));
    pthread_atfork([] { Global().mutex_.Lock(); }, [] { Global().mutex_.Unlock(); },
                   [] { Global().ResetAfterFork(); });
    return made;
  }();
  return *recorder;
}

// Reads both clocks several times and returns the closest pair: the thread may lose its core
// between two reads.
OPKIT_INLINE Recorder::Instant Recorder::Instant::Now() {
  Instant best{0, 0};
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = Ticks();
    const int64_t ns = MonotonicNs();
    const uint64_t apart = Ticks() - before;
    if (apart >= closest) continue;
    closest = apart;
    best = {before + apart / 2, ns};
  }
  return best;
}

OPKIT_INLINE void Recorder::Start(const ProfileOptions& options) {
  if (options.max_bytes < static_cast<int64_t>(sizeof(ProfileChunk)))
    Throw(ErrorCode::kInvalidArgument, "ProfileOptions::max_bytes is ", options.max_bytes,
          "; expected at least ", sizeof(ProfileChunk), ", one chunk of records");
  CounterSource& source = options.counter_source ? *options.counter_source : PerfCounters();
  if (options.counters.size() > ProfileCounts::kMost)
    Throw(ErrorCode::kInvalidArgument, "ProfileOptions::counters has ", options.counters.size(),
          " names; ", ProfileCounts::kMost, " are the most");
  std::vector<std::string> absent;
  if (!options.counters.empty()) source.Open(options.counters, &absent);
  const ToolRanges* const tools = ToolRanges::Global();
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) != 0 && stopped_ == 0)
    Throw(ErrorCode::kFailedPrecondition,
          "Profiler::Start: a session runs already; Profiler::Stop ends it");
  std::erase_if(threads_, [](ThreadProfile* thread) {
    const bool ended = thread->ended_;
    if (ended) delete thread;
    return ended;
  });
  dropped_ = 0;
  {
    MutexLock counters_lock(counters_mutex_);
    counted_ = options.counters;
    absent_ = std::move(absent);
    counter_source_ = &source;
  }
  SetRoomForNames(options.max_bytes / 4);
  ring_.store(options.ring, std::memory_order_relaxed);
  crash_trace_.store(!options.crash_trace.empty(), std::memory_order_relaxed);
  chunks_left_.store(options.max_bytes / static_cast<int64_t>(sizeof(ProfileChunk)),
                     std::memory_order_relaxed);
  session_.store(session_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  stopped_ = 0;
  start_ = Instant::Now();
  memory_ = options.memory;
  tools_.store(tools, std::memory_order_relaxed);
  shapes_.store(options.shapes, std::memory_order_relaxed);
  engine_.store(options.engine, std::memory_order_relaxed);
  Install(true);
}

OPKIT_INLINE void Recorder::Install(bool on) {
  // Release: a thread that loads the sink with acquire sees the recorder complete.
  g_span_sink.store(on ? this : nullptr, std::memory_order_release);
  g_memory_sink.store(on && memory_ ? this : nullptr, std::memory_order_release);
}

OPKIT_INLINE void Recorder::Stop() {
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) == 0 || stopped_ != 0) return;
  Install(false);
  stopped_ = Ticks();
}

OPKIT_INLINE void Recorder::Pause() {
  MutexLock lock(mutex_);
  Install(false);
}

OPKIT_INLINE void Recorder::Resume() {
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) == 0 || stopped_ != 0)
    Throw(ErrorCode::kFailedPrecondition, "Profiler::Resume: no session; call Profiler::Start");
  Install(true);
}

OPKIT_INLINE std::unique_ptr<ThreadCounters> Recorder::OpenCounters(int& count) {
  MutexLock lock(counters_mutex_);
  count = static_cast<int>(counted_.size());
  return counted_.empty() ? nullptr : counter_source_->Open(counted_, nullptr);
}

OPKIT_INLINE bool Recorder::TakeChunk() {
  return chunks_left_.load(std::memory_order_relaxed) > 0 &&
         chunks_left_.fetch_sub(1, std::memory_order_relaxed) > 0;
}

OPKIT_INLINE std::unique_ptr<ProfileChunk> Recorder::TakeChunkOfEnded() {
  MutexLock lock(mutex_);
  // Threads are in the order in which they began to record.
  const auto found = std::ranges::find_if(threads_, [&](ThreadProfile* thread) {
    return thread->ended_ && thread->session_ == session_.load(std::memory_order_relaxed);
  });
  if (found == threads_.end()) return nullptr;
  ThreadProfile* const thread = *found;
  std::unique_ptr<ProfileChunk> chunk = std::move(thread->chunks_.front());
  thread->chunks_.erase(thread->chunks_.begin());
  dropped_ += chunk->count.load(std::memory_order_relaxed);  // relaxed: the thread has ended
  if (thread->chunks_.empty()) {
    threads_.erase(found);
    Forget(thread);
  }
  return chunk;
}

OPKIT_INLINE void Recorder::Ended(ThreadProfile* thread) {
  MutexLock lock(mutex_);
  thread->ended_ = true;
  if (!thread->chunks_.empty()) return;
  std::erase(threads_, thread);
  Forget(thread);
}
OPKIT_INLINE void Recorder::Forget(ThreadProfile* thread) {
  if (thread->session_ == session_.load(std::memory_order_relaxed))
    dropped_ += thread->dropped_.load(std::memory_order_relaxed);
  delete thread;
}

OPKIT_INLINE ThreadProfile* Recorder::OfThread() {
  if (t_profile) [[likely]]
    return t_profile;
  return MakeOfThread();
}

OPKIT_INLINE ThreadProfile* Recorder::MakeOfThread() {
  if (t_profile_ended) return nullptr;
  static thread_local const ThreadProfileEnd end;
  static_cast<void>(&end);
  auto* made = new (std::nothrow) ThreadProfile;
  if (!made) return nullptr;
  MutexLock lock(mutex_);
  threads_.push_back(made);
  return t_profile = made;
}

OPKIT_INLINE uint32_t Recorder::CustomPath(uint32_t outer, uint32_t name) {
  if (outer == 0) return name;
  struct Known {
    uint32_t outer, name, path;
  };
  static thread_local Known known[8];
  Known& entry = known[(outer ^ name) & 7];
  if (entry.outer != outer || entry.name != name)
    entry = {outer, name, InternName(StrCat(InternedName(outer), "::", InternedName(name)))};
  return entry.path;
}

OPKIT_INLINE void Recorder::Open(Invocation& now, SpanNames names, const Device* device,
                                 bool adopted) noexcept {
  ThreadProfile* thread = OfThread();
  if (!thread) return;
  if (now.kind == Invocation::Kind::kCustomOperator && !adopted)
    now.custom = CustomPath(now.custom, names.name);
  if (const ToolRanges* tools = tools_.load(std::memory_order_relaxed)) [[unlikely]]
    PushRange(*tools, now, names, adopted);
  ProfileRecord* const record = thread->Open(session_.load(std::memory_order_relaxed), names.text);
  if (!record) return;
  const Device place = device ? *device : Device{};
  record->span = {.type = adopted ? RecordType::kAdopted : RecordType::kSpan,
                  .kind = now.kind,
                  .device_type = static_cast<int8_t>(place.type),
                  .device_index = static_cast<int8_t>(place.index),
                  .name = names.name,
                  .node = names.node,
                  .custom = now.custom,
                  .id = now.id,
                  .parent = now.parent};
  record->span.begin = Ticks();
  thread->Publish();
}

OPKIT_INLINE void Recorder::PushRange(const ToolRanges& tools, const Invocation& now,
                                      SpanNames names, bool adopted) noexcept {
  ProfileSpan span;
  span.kind = now.kind;
  span.name = names.name;
  span.custom = now.custom;
  span.adopted = adopted;
  const bool is_part = names.name == 0 && now.custom == 0;  // another thread's record has the name
  tools.Push(!names.text.empty() ? std::string(names.text)
             : is_part           ? "(part)"
                                 : DisplayName(span));
}

OPKIT_INLINE void Recorder::Close() noexcept {
  const uint64_t now = Ticks();
  ThreadProfile* const thread = t_profile;
  if (!thread) return;
  thread->Close(session_.load(std::memory_order_relaxed), now);
  if (const ToolRanges* tools = tools_.load(std::memory_order_relaxed)) [[unlikely]]
    tools->Pop();
}

OPKIT_INLINE void Recorder::EndSpan() noexcept {
  const uint64_t now = Ticks();
  if (ThreadProfile* thread = t_profile) thread->End(session_.load(std::memory_order_relaxed), now);
}
OPKIT_INLINE void Recorder::Describe(const SpanWork& work) noexcept {
  ThreadProfile* thread = t_profile;
  if (!thread) return;
  const uint32_t session = session_.load(std::memory_order_relaxed);
  if (const ProfileRecord* const open = thread->innermost(session))
    thread->Add(session, {.work = {.shapes = work.shapes,
                                   .backend = work.backend,
                                   .id = open->span.id,
                                   .flops = work.flops,
                                   .bytes = work.bytes}});
}
OPKIT_INLINE void Recorder::Communicated(uint64_t id, const ProfileMessage& message) noexcept {
  Add({.message = {.from = message.from,
                   .to = message.to,
                   .id = id,
                   .plan = message.plan,
                   .channel = message.channel,
                   .number = message.number}});
}
OPKIT_INLINE void Recorder::Changed(const Allocator& allocator, int64_t bytes,
                                    int64_t live) noexcept {
  Add({.memory = {.allocator = InternName(allocator.name()),
                  .id = CurrentInvocation().id,
                  .time = Ticks(),
                  .bytes = bytes,
                  .live = live}});
}

OPKIT_INLINE void Recorder::Add(const ProfileRecord& record, std::string_view text) noexcept {
  if (ThreadProfile* thread = OfThread())
    thread->Add(session_.load(std::memory_order_relaxed), record, text);
}
OPKIT_INLINE void Recorder::Completed(uint64_t id) noexcept {
  Add({.completed = {.id = id, .time = Ticks()}});
}
OPKIT_INLINE void Recorder::RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept {
  Add({.on_device = {.id = id, .begin = begin, .end = end}});
}
OPKIT_INLINE void Recorder::Pushed(const Invocation& task, SpanNames names) noexcept {
  Add({.pushed = {.name = names.name, .id = task.id, .time = Ticks()}}, names.text);
}
OPKIT_INLINE void Recorder::Mark(SpanNames names, bool frame) noexcept {
  Add({.marker = {.frame = frame, .name = names.name, .time = Ticks()}}, names.text);
}
OPKIT_INLINE void Recorder::Count(SpanNames names, double value) noexcept {
  Add({.counter = {.name = names.name, .time = Ticks(), .value = value}}, names.text);
}

OPKIT_INLINE double Recorder::TicksOfSpan() {
  constexpr int kSpans = 600;  // number of spans that fit into one chunk with their counts
  static_assert(kSpans * (1 + ProfileCounts::kMost / 3) < ProfileChunk::kRecords);
  ThreadProfile probe;
  const uint32_t session = session_.load(std::memory_order_relaxed);
  probe.BeginSession(session);
  probe.chunks_.push_back(std::make_unique<ProfileChunk>());
  probe.chunk_ = probe.chunks_.back().get();
  probe.count_ = 0;
  const uint64_t begin = Ticks();
  for (int i = 0; i < kSpans; ++i) {
    *probe.Open(session) = {.span = {.begin = Ticks()}};
    probe.Publish();
    probe.Close(session, Ticks());
  }
  return static_cast<double>(Ticks() - begin) / kSpans;
}

OPKIT_INLINE Profile Recorder::Read() {
  MutexLock lock(mutex_);
  const uint32_t session = session_.load(std::memory_order_relaxed);
  if (session == 0) return {};
  Instant now = Instant::Now();
  constexpr int64_t kEnoughNs = 10'000'000;  // gives a rate with an error below 10^-4
  while (now.ns - origin_.ns < kEnoughNs) now = Instant::Now();
  const double ns_per_tick =
      static_cast<double>(now.ns - origin_.ns) / static_cast<double>(now.ticks - origin_.ticks);
  ProfileDecoder decoder(
      {start_.ticks, start_.ns, stopped_ != 0 ? stopped_ : now.ticks, ns_per_tick});
  int64_t dropped = dropped_, records = 0;
  for (ThreadProfile* thread : threads_) {
    MutexLock thread_lock(thread->mutex_);
    if (thread->session_ != session) continue;
    dropped += thread->dropped_.load(std::memory_order_relaxed);
    decoder.BeginThread(thread->thread_);
    for (const auto& chunk : thread->chunks_) {
      const uint32_t count = chunk->count.load(std::memory_order_acquire);
      records += count;
      decoder.Add({chunk->records, count});
    }
    decoder.EndThread();
  }
  Profile profile = decoder.Finish();
  profile.dropped = dropped;
  profile.cost = static_cast<int64_t>(static_cast<double>(records) * TicksOfSpan() * ns_per_tick);
  profile.counted = counted_;
  profile.absent_counters = absent_;
  return profile;
}

// Resets the recorder in the child of a fork: its one thread begins without the parent's records,
// and the parent's other threads do not exist.
OPKIT_INLINE void Recorder::ResetAfterFork() {
  mutex_.ResetAfterFork();
  counters_mutex_.ResetAfterFork();
  Install(false);
  stopped_ = 1;
  threads_.clear();
  if (ThreadProfile* mine = t_profile) {
    mine->ResetAfterFork();
    threads_.push_back(mine);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_

// ---- opkit/base/cache/file_state.hpp
// FileState: what the system says of a file without reading it, so that a cache sees a change; and
// the names in a folder.
#ifndef OPKIT_BASE_CACHE_FILE_STATE_HPP_
#define OPKIT_BASE_CACHE_FILE_STATE_HPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The size of a file and the times at which its content and its inode changed last. A file that is
// written changes at least one of them, but for a change of the same size within one tick of the
// system's clock for files (10 ms at most). All are -1 if there is no such file.
struct FileState {
  int64_t size = -1, modified_ns = -1, changed_ns = -1;
  bool exists() const { return size >= 0; }
  friend bool operator==(const FileState&, const FileState&) = default;
};
FileState StateOf(const char* path);
// Returns the time since 1970. No file that was written before has a later time.
int64_t FileClockNs();
// Returns the same after a pause of at most 10 ms: a file that is written after this call has a
// later time. Files get the time of the last tick of a coarse clock; since Linux 6.13 some get the
// exact time.
int64_t FileClockNsWithPause();
// Calls visit(context, name) for each file and folder in a folder, but "." and "..", in any order.
void VisitFolder(const char* path, void (*visit)(void* context, const char* name), void* context);

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_FILE_STATE_HPP_

// ---- opkit/base/cache/impl/file_lock.ipp
// The definitions of base/cache/file_lock.hpp.
#ifndef OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_
#define OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void FailFile(const char* cannot, const std::string& path, const char* why) {
  Throw(ErrorCode::kIo, "cannot ", cannot, " '", path, "': ", why ? why : std::strerror(errno));
}

OPKIT_INLINE bool MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0777) == 0) continue;
    const int error = errno;
    if (StateOf(folder.c_str()).exists()) continue;
    errno = error;
    return false;
  }
  return true;
}

OPKIT_INLINE FileLock::FileLock(const std::string& path, double wait_s)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) FailFile("write", path);
  const int64_t deadline = MonotonicNs() + static_cast<int64_t>(wait_s * 1e9);
  while (!Set(F_WRLCK)) {
    const bool is_held = errno == EAGAIN || errno == EACCES;
    if (is_held && MonotonicNs() < deadline) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    } else if (errno != EINTR) {
      const std::string why = !is_held ? std::string(std::strerror(errno))
                              : wait_s > 0
                                  ? StrCat("another process has held the lock for ", wait_s, " s")
                                  : "another program holds the lock";
      close(file_);
      FailFile("lock", path, why.c_str());
    }
  }
}
OPKIT_INLINE FileLock::~FileLock() {
  Set(F_UNLCK);  // a child process that another thread has forked may still have the file open
  close(file_);
}

OPKIT_INLINE bool FileLock::Set(short type) const {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(file_, F_OFD_SETLK, &lock) == 0;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_

// ---- opkit/base/cache/impl/file_state.ipp
// The definitions of file_state.hpp.
#ifndef OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_
#define OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE FileState StateOf(const char* path) {
  struct stat status;
  if (stat(path, &status) != 0) return {};
  const auto ns = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_size, ns(status.st_mtim), ns(status.st_ctim)};
}

inline int64_t NsOfClock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

OPKIT_INLINE int64_t FileClockNs() { return NsOfClock(CLOCK_REALTIME); }

OPKIT_INLINE int64_t FileClockNsWithPause() {
  const int64_t now = FileClockNs();
  const timespec pause{0, 1'000'000};
  while (NsOfClock(CLOCK_REALTIME_COARSE) <= now) nanosleep(&pause, nullptr);
  return now;
}

OPKIT_INLINE void VisitFolder(const char* path, void (*visit)(void* context, const char* name),
                              void* context) {
  DIR* const folder = opendir(path);
  if (!folder) return;
  while (const dirent* entry = readdir(folder)) {
    const char* const name = entry->d_name;
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) visit(context, name);
  }
  closedir(folder);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_

// ---- opkit/core/layout_hooks.hpp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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

// ---- opkit/op/boundary/convert/op_conversion.hpp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#endif

// ---- opkit/op/gradient/gradient_hook.hpp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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

// ---- opkit/plugin/export/impl/export_threads.ipp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#if defined OPKIT_PLUGIN_AUTHOR_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
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

// ---- opkit/op/boundary/convert/impl/abi_config.ipp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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

// ---- opkit/op/boundary/convert/impl/op_conversion.ipp
#ifdef OPKIT_PLUGIN_AUTHOR_HPP_  // in a library: exports its registrations to the host
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
#endif

#endif  // OPKIT_DEFINITIONS

#endif  // OPKIT_SINGLE_INCLUDE_PROFILE_HPP_

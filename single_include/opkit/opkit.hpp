// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds opkit/opkit.hpp and all that it includes; a header of the same
// checkout may be included beside it, in any order.
#ifndef OPKIT_SINGLE_INCLUDE_HPP_
#define OPKIT_SINGLE_INCLUDE_HPP_

#include <array>
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
#include <initializer_list>
#include <linux/futex.h>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <time.h>
#include <tuple>
#include <type_traits>
#include <typeinfo>
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

// Changes whenever a type's layout or the meaning of an inline function changes.
#define OPKIT_ABI v0_1

#endif  // OPKIT_VERSION_HPP_

// ---- opkit/config.hpp
// What the compiler in use offers, under the toolkit's own names. Row 0: includes nothing but the
// version.
#ifndef OPKIT_CONFIG_HPP_
#define OPKIT_CONFIG_HPP_

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "opkit needs C++20: add -std=c++20 (g++ 12 or clang 16 and up) to the compiler's options"
#endif

// Marks the lambda handed to ParallelFor. `__device__` alone under nvcc: a `__host__ __device__`
// lambda runs 8 to 10 times slower on the host, so CPU kernels are compiled in .cc files.
#ifdef __CUDACC__
#define OPKIT_DEVICE __device__
#define OPKIT_HOST_DEVICE __host__ __device__
#else
#define OPKIT_DEVICE
#define OPKIT_HOST_DEVICE
#endif

// Visible from a shared object compiled with -fvisibility=hidden: types that cross by exception.
#define OPKIT_EXPORT __attribute__((visibility("default")))

// Keeps error paths out of the caller's instruction stream.
#define OPKIT_COLD __attribute__((noinline, cold))

#endif  // OPKIT_CONFIG_HPP_

// ---- opkit/macros.hpp
// The ancestors' short spellings of the toolkit's public macros. On by default; off with
// -DOPKIT_NO_SHORT_MACROS, which leaves the OPKIT_ names.
#ifndef OPKIT_MACROS_HPP_
#define OPKIT_MACROS_HPP_

#ifndef OPKIT_NO_SHORT_MACROS

#if defined(OPERATOR_SCHEMA) || defined(REGISTER_CPU_OPERATOR) ||                            \
    defined(REGISTER_CUDA_OPERATOR) || defined(REGISTER_OP) || defined(REGISTER_GRADIENT) || \
    defined(NO_GRADIENT) || defined(USE_OPERATOR_FUNCTIONS) || defined(INPUT_TAGS) ||        \
    defined(OUTPUT_TAGS)
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

#define REGISTER_CUDA_OPERATOR(...) OPKIT_REGISTER_CUDA_OPERATOR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_STR(...) OPKIT_REGISTER_CUDA_OPERATOR_STR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_CREATOR(...) OPKIT_REGISTER_CUDA_OPERATOR_CREATOR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_WITH_ENGINE(...) \
  OPKIT_REGISTER_CUDA_OPERATOR_WITH_ENGINE(__VA_ARGS__)

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
// these (`[1, 2]`).
class Text {
 public:
  Text() = default;
  Text(const char* text) : text_(text ? text : "(null)") {}
  Text(const std::string& text) : text_(text) {}
  Text(std::string_view text) : text_(text) {}
  Text(char c) : text_(1, c) {}
  Text(bool b) : text_(b ? "true" : "false") {}
  Text(double value) {
    char buffer[32];  // whatever the program's locale says
    text_.assign(
        buffer,
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 9).ptr);
  }
  template <class T>
    requires std::is_integral_v<T>
  Text(T value) : text_(std::to_string(value)) {}
  template <class T>
    requires requires(const T& value) { std::string_view(ToString(value)); }
  Text(const T& value) : text_(ToString(value)) {}
  template <class T>
  Text(const std::vector<T>& values) {
    text_ = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) text_ += ", ";
      text_ += Text(static_cast<const T&>(values[i])).text_;
    }
    text_ += ']';
  }

  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

namespace detail {
inline std::string Join(std::initializer_list<const Text*> parts) {
  std::string out;
  for (const Text* part : parts) out += part->str();
  return out;
}
}  // namespace detail

// Concatenates up to 16 parts; nest calls for more. Three overloads, so that a short message does
// not build sixteen parts.
inline std::string StrCat(const Text& a, const Text& b = {}, const Text& c = {},
                          const Text& d = {}) {
  return detail::Join({&a, &b, &c, &d});
}
inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d, const Text& e,
                          const Text& f = {}, const Text& g = {}, const Text& h = {}) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h});
}
inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d, const Text& e,
                          const Text& f, const Text& g, const Text& h, const Text& i,
                          const Text& j = {}, const Text& k = {}, const Text& l = {},
                          const Text& m = {}, const Text& n = {}, const Text& o = {},
                          const Text& p = {}) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &o, &p});
}

}  // namespace opkit

#endif  // OPKIT_BASE_STRINGS_HPP_

// ---- opkit/base/suggest.hpp
// "Did you mean …?": the known name nearest to an unknown one, for error messages.
#ifndef OPKIT_BASE_SUGGEST_HPP_
#define OPKIT_BASE_SUGGEST_HPP_

namespace opkit::inline OPKIT_ABI {

// Edit distance (Damerau-Levenshtein in its optimal string alignment form) that ignores case.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  std::vector<size_t> before, previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t differs = lower(a[i - 1]) != lower(b[j - 1]);
      size_t best = previous[j - 1] + differs;
      if (previous[j] + 1 < best) best = previous[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
      row[j] = best;
    }
    before = previous;
    previous = row;
  }
  return previous[b.size()];
}

// The candidate nearest to `name`, or "" when none is near enough to be a slip (a third of its
// letters, at least one).
inline std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
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

// " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" when nothing is known.
inline std::string SuggestName(std::string_view name, const std::vector<std::string>& candidates) {
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

#endif  // OPKIT_BASE_SUGGEST_HPP_

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

inline const char* ToString(ErrorCode code) {
  constexpr const char* kNames[] = {"invalid argument", "type mismatch",     "not found",
                                    "already exists",   "out of range",      "uninitialized",
                                    "out of memory",    "unsupported",       "failed precondition",
                                    "cancelled",        "deadline exceeded", "operator failed"};
  return kNames[static_cast<int>(code)];
}

// `what()` is the message followed by one indented line for each context. Copies are independent;
// AddContext is not thread-safe.
class OPKIT_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message, const void* subject = nullptr)
      : std::runtime_error(message),
        code_(code),
        subject_(subject),
        message_(std::move(message)),
        what_(message_) {}

  const char* what() const noexcept override { return what_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::string>& context() const noexcept { return context_; }
  // The exception this error was made of when that was not an Error itself; null otherwise.
  const std::exception_ptr& cause() const noexcept { return cause_; }
  Error& SetCause(std::exception_ptr cause) { return cause_ = std::move(cause), *this; }
  // Address of the object the error is about (a Tensor), for a caller who knows its name.
  const void* subject() const noexcept { return subject_; }

  Error& AddContext(std::string line) {
    what_ += "\n  " + line;
    context_.push_back(std::move(line));
    return *this;
  }

 private:
  ErrorCode code_;
  const void* subject_;
  std::string message_;
  std::string what_;
  std::vector<std::string> context_;
  std::exception_ptr cause_;
};

// Throws an Error whose message is StrCat of the parts.
[[noreturn]] OPKIT_COLD inline void Throw(ErrorCode code, const Text& a, const Text& b = {},
                                          const Text& c = {}, const Text& d = {}) {
  throw Error(code, StrCat(a, b, c, d));
}
[[noreturn]] OPKIT_COLD inline void Throw(ErrorCode code, const Text& a, const Text& b,
                                          const Text& c, const Text& d, const Text& e,
                                          const Text& f = {}, const Text& g = {},
                                          const Text& h = {}) {
  throw Error(code, StrCat(a, b, c, d, e, f, g, h));
}
[[noreturn]] OPKIT_COLD inline void Throw(ErrorCode code, const Text& a, const Text& b,
                                          const Text& c, const Text& d, const Text& e,
                                          const Text& f, const Text& g, const Text& h,
                                          const Text& i, const Text& j = {}, const Text& k = {},
                                          const Text& l = {}, const Text& m = {},
                                          const Text& n = {}, const Text& o = {},
                                          const Text& p = {}) {
  throw Error(code, StrCat(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p));
}

namespace detail {
[[noreturn]] OPKIT_COLD inline void AssertFailed(const char* condition, const char* file,
                                                 int line) {
  std::fprintf(stderr, "opkit: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}
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

// ---- opkit/base/ref_counted.hpp
// Intrusive reference counting: one pointer wide and one allocation, and light to include (<memory>
// costs more than the rest of this folder). Storage and event state are shared through it.
#ifndef OPKIT_BASE_REF_COUNTED_HPP_
#define OPKIT_BASE_REF_COUNTED_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

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
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_REF_COUNTED_HPP_

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
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) {
      Free();
      Steal(other);
    }
    return *this;
  }
  ~Dims() { Free(); }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return size_ <= kInline ? inline_ : heap_; }
  int64_t* data() { return size_ <= kInline ? inline_ : heap_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t operator[](int i) const { return data()[i]; }
  int64_t& operator[](int i) { return data()[i]; }

  friend std::string ToString(const Dims& dims) {
    std::string out = "[";
    for (int i = 0; i < dims.size_; ++i) {
      if (i) out += ", ";
      out += std::to_string(dims[i]);
    }
    return out + "]";
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  void Assign(const int64_t* values, size_t count) {
    int64_t* heap = count > kInline ? new int64_t[count] : nullptr;
    Free();
    size_ = static_cast<int>(count);
    if (heap) heap_ = heap;
    if (count) std::memcpy(data(), values, count * sizeof(int64_t));
  }
  void Steal(Dims& other) {
    size_ = other.size_;
    if (size_ > kInline) {
      heap_ = other.heap_;
    } else {
      for (int i = 0; i < size_; ++i) inline_[i] = other.inline_[i];
    }
    other.size_ = 0;
  }
  void Free() {
    if (size_ > kInline) delete[] heap_;
    size_ = 0;
  }

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
  int Axis(int axis) const {
    if (axis < -rank() || axis >= rank())
      Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside shape ", ToString(*this),
            " of rank ", rank());
    return axis < 0 ? axis + rank() : axis;
  }
  // Product of the extents in [begin, end).
  int64_t NumelBetween(int begin, int end) const {
    int64_t product = 1;
    for (int i = begin; i < end; ++i) product *= dims_[i];
    return product;
  }
  // Element strides of the row-major dense tensor of this shape.
  Dims DenseStrides() const {
    Dims strides = dims_;
    int64_t step = 1;
    for (int i = rank() - 1; i >= 0; --i) {
      strides[i] = step;
      step *= dims_[i] > 0 ? dims_[i] : 1;
    }
    return strides;
  }

  // True when elements at `strides` lie as DenseStrides() puts them; those of extents of 1, and all
  // of an empty tensor, are never used.
  bool IsDense(const Dims& strides) const {
    if (strides.size() != rank()) return false;
    int64_t step = 1;
    for (int i = rank() - 1; i >= 0 && numel_ > 0; --i) {
      if (dims_[i] != 1 && strides[i] != step) return false;
      step *= dims_[i];
    }
    return true;
  }

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend std::string ToString(const Shape& shape) { return ToString(shape.dims_); }

 private:
  // Extents other than zero must multiply within int64 even beside a zero: strides need them.
  static int64_t CountElements(const Dims& dims) {
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

  Dims dims_;
  int64_t numel_ = 1;
};

}  // namespace opkit

#endif  // OPKIT_CORE_SHAPE_HPP_

// ---- opkit/base/platform.hpp
// What the toolkit asks of the operating system and the processor for its threads: a mutex and a
// parking place that survive fork, thread start, names, affinity, a cheap clock. All of it is POSIX
// and Linux; another system is another version of this header.
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
  bool Wait(int64_t deadline_ns = -1) {
    const timespec deadline{static_cast<time_t>(deadline_ns / 1'000'000'000),
                            static_cast<long>(deadline_ns % 1'000'000'000)};
    while (signalled_.load(std::memory_order_acquire) == 0) {
      // The kernel compares the word with 0 again before it sleeps, so a Set() in between is not
      // lost.
      const long rc =
          syscall(SYS_futex, &signalled_, FUTEX_WAIT_BITSET_PRIVATE, 0,
                  deadline_ns < 0 ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (rc != 0 && errno == ETIMEDOUT) return signalled_.load(std::memory_order_acquire) != 0;
    }
    return true;
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a 32-bit word");
  std::atomic<uint32_t> signalled_{0};
};

// CPUs that this process may run on, at least 1.
inline int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the set has room for
  return online > 0 ? static_cast<int>(online) : 1;
}

// Pins the calling thread to the `index`-th (modulo their number) of the CPUs it may run on.
inline void PinCurrentThread(int index) {
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

// As ps, top and gdb show it; the system keeps the first 15 characters.
inline void SetCurrentThreadName(const char* name) {
  char shortened[16] = {};
  for (int i = 0; i < 15 && name[i] != '\0'; ++i) shortened[i] = name[i];
  pthread_setname_np(pthread_self(), shortened);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BASE_PLATFORM_HPP_

// ---- opkit/core/device.hpp
// Where a tensor's bytes live and an operator runs: {type, index}. Types have DLPack's numbers;
// the toolkit's own and a user's begin where DLPack's end.
#ifndef OPKIT_CORE_DEVICE_HPP_
#define OPKIT_CORE_DEVICE_HPP_

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
  // Not DLPack's. Its memory is the CPU's, and is exported as such.
  kCPUStream = 64,
  kFirstUserDevice = 80,
};

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// What the toolkit has to know of a device type before it can touch its memory.
struct DeviceTypeInfo {
  std::string name;                         // "cpu", "cuda", …; unique, used in text and defs
  DeviceType memory = DeviceType::kExtDev;  // whose allocator and copies it uses
  bool host_accessible = false;             // a host pointer may be dereferenced
};

namespace detail {

struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  detail::Mutex mutex;
  std::vector<Entry> entries{
      {DeviceType::kCPU, {"cpu", DeviceType::kCPU, true}},
      {DeviceType::kCUDA, {"cuda", DeviceType::kCUDA, false}},
      {DeviceType::kCUDAHost, {"cuda_host", DeviceType::kCUDAHost, true}},
      {DeviceType::kOpenCL, {"opencl", DeviceType::kOpenCL, false}},
      {DeviceType::kVulkan, {"vulkan", DeviceType::kVulkan, false}},
      {DeviceType::kMetal, {"metal", DeviceType::kMetal, false}},
      {DeviceType::kROCM, {"rocm", DeviceType::kROCM, false}},
      {DeviceType::kROCMHost, {"rocm_host", DeviceType::kROCMHost, true}},
      {DeviceType::kExtDev, {"ext_dev", DeviceType::kExtDev, false}},
      {DeviceType::kCUDAManaged, {"cuda_managed", DeviceType::kCUDAManaged, true}},
      {DeviceType::kOneAPI, {"oneapi", DeviceType::kOneAPI, false}},
      {DeviceType::kCPUStream, {"cpu_stream", DeviceType::kCPU, true}},
  };
};

inline DeviceTypeRegistry& DeviceTypes() {
  static auto* registry = new DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

inline DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
inline DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries) {
    if (entry.type == type && entry.info.name == info.name) return type;
    if (entry.type == type || entry.info.name == info.name)
      Throw(ErrorCode::kAlreadyExists, "device type ", static_cast<int32_t>(type), " '", info.name,
            "' clashes with ", static_cast<int32_t>(entry.type), " '", entry.info.name, "'");
  }
  registry.entries.push_back({type, std::move(info)});
  return type;
}

// True when the host may dereference pointers to this device's memory. No lock for the common ones.
inline bool IsHostAccessible(DeviceType type) {
  if (type == DeviceType::kCPU || type == DeviceType::kCPUStream) return true;
  if (type == DeviceType::kCUDA) return false;
  return GetDeviceTypeInfo(type).host_accessible;
}

// The device whose allocator and copies `device` uses: cpu_stream:1 keeps its tensors on cpu:0.
inline Device MemoryDevice(Device device) {
  if (device.type == DeviceType::kCPU || device.type == DeviceType::kCPUStream) return {};
  if (device.type == DeviceType::kCUDA) return device;
  return {GetDeviceTypeInfo(device.type).memory, device.index};
}

inline std::string ToString(DeviceType type) { return GetDeviceTypeInfo(type).name; }
inline std::string ToString(Device device) {
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
  void* Allocate(int64_t bytes, int32_t index = 0) {
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
  void Deallocate(void* data, int64_t bytes) noexcept {
    if (!data) return;
    live_.fetch_sub(bytes, std::memory_order_relaxed);
    DoDeallocate(data, bytes);
  }

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
  void* DoAllocate(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t{kAlignment}, std::nothrow);
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ::operator delete(data, std::align_val_t{kAlignment});
  }
};

namespace detail {
// Devices are few: a fixed table by device type, read without a lock.
struct AllocatorTable {
  static constexpr int kSlots = 128;
  std::atomic<Allocator*> slots[kSlots];
  AllocatorTable() {
    for (auto& slot : slots) slot.store(nullptr, std::memory_order_relaxed);
    slots[static_cast<int>(DeviceType::kCPU)].store(new CPUAllocator, std::memory_order_relaxed);
  }
  std::atomic<Allocator*>& operator[](DeviceType type) {
    const int slot = static_cast<int>(type);
    if (slot < 0 || slot >= kSlots)
      Throw(ErrorCode::kOutOfRange, "device type ", slot, " is outside 0 to ", kSlots - 1);
    return slots[slot];
  }
};
inline AllocatorTable& Allocators() {
  static auto* table = new AllocatorTable;  // outlives every static tensor
  return *table;
}
}  // namespace detail

// The allocator of the device's memory. Error (kUnsupported) where no backend brought one.
inline Allocator& GetAllocator(DeviceType type) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  Allocator* allocator = detail::Allocators()[memory].load(std::memory_order_acquire);
  if (!allocator)
    Throw(ErrorCode::kUnsupported, "no allocator for device ", ToString(type),
          ": include its backend's header, or call SetAllocator");
  return *allocator;
}

// Replaces the allocator of the device's memory for new storages and returns the one before (null
// if none). `allocator` must live until the process ends or every storage made from it is gone.
inline Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  const DeviceType memory = MemoryDevice({type, 0}).type;
  return detail::Allocators()[memory].exchange(allocator, std::memory_order_acq_rel);
}

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
  explicit Tensor(Device device) : device_(device) {}
  // Errors: kInvalidArgument for an undefined dtype, kOutOfRange for sizes past int64,
  // kOutOfMemory.
  Tensor(Shape shape, DType dtype, Device device = {}) : device_(device) {
    Resize(std::move(shape), dtype);
  }
  // Views `storage` from `byte_offset` on; `strides` in elements, none negative, empty for dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {})
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
  // Memory of the caller's, which must outlive every tensor that shares it.
  template <Element T>
  static Tensor FromExternal(T* data, Shape shape, Device device = {}) {
    Tensor out(device);
    const int64_t nbytes = CheckedBytes(shape, kDTypeOf<T>);
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
  void Resize(Shape shape, DType dtype) {
    if (dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "Resize to ", ToString(shape), " needs a dtype");
    if (!Fits(shape, dtype)) TakeMemory(NewMemory(shape, dtype));
    shape_ = std::move(shape);
    dtype_ = dtype;
    strides_ = Dims();
    layout_ = Layout();
  }
  // Memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer) {
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
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source) {
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

  // A dense copy of the source's elements in this tensor's own memory and device, both reachable
  // from the host (device/copy.hpp crosses devices).
  void CopyFrom(const Tensor& source) {
    if (&source == this) return;
    source.CheckInitialized();
    source.CheckHost();
    source.CheckStandard("CopyFrom");
    CheckHost();
    Tensor target = PreparedFor(source);
    source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
    *this = std::move(target);
  }
  // What a copy of `source` writes to: this tensor resized, or new memory of its device where the
  // two overlap. This tensor stays as it is.
  Tensor PreparedFor(const Tensor& source) const {
    Tensor target = *this;
    if (Fits(source.shape_, source.dtype_)) {
      target.Resize(source.shape_, source.dtype_);
      if (!target.SharesMemoryWith(source)) return target;
    }
    target.TakeMemory(NewMemory(source.shape_, source.dtype_));
    target.Resize(source.shape_, source.dtype_);
    return target;
  }
  // A dense tensor with memory of its own.
  Tensor Contiguous() const {
    Tensor out(device_);
    out.CopyFrom(*this);
    return out;
  }

  // The same memory under another shape of equal element count. One extent may be -1.
  Tensor View(const Dims& dims) const {
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
  // Elements [begin, end) of `axis`, sharing memory. Resizing a slice never reaches beyond it.
  Tensor Slice(int axis, int64_t begin, int64_t end) const {
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
  // The same memory with its axes in another order: axis i of the result is axis order[i] of this.
  Tensor Permute(const Dims& order) const {
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

  // True when the bytes from the first to the last element overlap those of `other`.
  bool SharesMemoryWith(const Tensor& other) const {
    if (!storage_ || !other.storage_ || numel() == 0 || other.numel() == 0) return false;
    if (storage_ != other.storage_ && storage_->IsApartFrom(*other.storage_)) return false;
    const auto* a = static_cast<const char*>(raw_data());
    const auto* b = static_cast<const char*>(other.raw_data());
    if (MemoryDevice(device_) != MemoryDevice(other.device_)) return false;
    return a < b + other.SpanBytes() && b < a + SpanBytes();
  }

  // For backends whose layout needs other sizes than the dense one: `storage` of any size under a
  // blocked layout.
  static Tensor FromLayout(Storage storage, Shape shape, DType dtype, Layout layout) {
    Tensor out(storage->device());
    out.capacity_ = storage->nbytes();
    out.storage_ = std::move(storage);
    out.shape_ = std::move(shape);
    out.dtype_ = dtype;
    out.layout_ = std::move(layout);
    return out;
  }
  // The same memory on another device that can reach it (cpu and cpu_stream).
  void SetDevice(Device device) {
    if (storage_ && MemoryDevice(device) != MemoryDevice(device_))
      Fail(ErrorCode::kInvalidArgument, "cannot be moved to ", ToString(device),
           " without a copy; use CopyFrom or device/copy.hpp");
    device_ = device;
  }

  // "float32[2, 3] on cpu", with the layout or strides where they are not the plain ones.
  std::string Describe() const {
    std::string out = StrCat(dtype_, ToString(shape_), " on ", ToString(device_));
    if (!layout_.is_standard()) out += " in " + ToString(layout_);
    if (!is_dense()) out += " with strides" + ToString(strides_);
    if (!initialized()) out += " (uninitialized)";
    return out;
  }
  friend std::string ToString(const Tensor& tensor) { return tensor.Describe(); }

  // Bytes of `shape` elements of `dtype`. Error (kOutOfRange) past int64.
  static int64_t CheckedBytes(const Shape& shape, DType dtype) {
    int64_t nbytes = 0;
    if (__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes))
      Throw(ErrorCode::kOutOfRange, "a tensor ", dtype, ToString(shape),
            " has more bytes than a 64-bit count can hold");
    return nbytes;
  }

 private:
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Text& a, const Text& b = {},
                                    const Text& c = {}, const Text& d = {}, const Text& e = {},
                                    const Text& f = {}) const {
    throw Error(code, StrCat("tensor ", Describe(), ": ", a, b, c, d, e, f), this);
  }
  void CheckInitialized() const {
    if (!initialized()) [[unlikely]]
      Fail(ErrorCode::kUninitialized, "is read before anything was written to it");
  }
  void CheckReadable(DType wanted) const {
    if (dtype_ == wanted && (storage_ || numel() == 0)) [[likely]]
      return;
    CheckInitialized();
    Fail(ErrorCode::kTypeMismatch, "accessed as ", wanted, " but holds ", dtype_,
         "; to write another dtype call Resize(shape, dtype) first");
  }
  void CheckStandard(const char* what) const {
    if (!layout_.is_standard()) [[unlikely]]
      Fail(ErrorCode::kUnsupported, what, " needs the standard layout; convert first");
  }
  bool Fits(const Shape& shape, DType dtype) const {
    int64_t nbytes = 0;
    return !__builtin_mul_overflow(shape.numel(), ItemSize(dtype), &nbytes) &&
           nbytes <= capacity_ && (storage_ || nbytes == 0);
  }
  Storage NewMemory(const Shape& shape, DType dtype) const {
    try {
      return AllocateStorage(MemoryDevice(device_), CheckedBytes(shape, dtype));
    } catch (const Error& error) {
      Fail(error.code(), "cannot become ", dtype, ToString(shape), ": ", error.message());
    }
  }
  void TakeMemory(Storage storage) {
    capacity_ = storage->nbytes();
    storage_ = std::move(storage);
    byte_offset_ = 0;
  }
  void CheckHost() const {
    if (!IsHostAccessible(device_.type))
      Fail(ErrorCode::kUnsupported, "is not reachable from the host; use device/copy.hpp");
  }
  // Bytes from the first element to the end of the last.
  int64_t SpanBytes() const {
    if (!layout_.is_standard()) return capacity_;
    if (numel() == 0) return 0;
    if (strides_.empty()) return CheckedBytes(shape_, dtype_);
    int64_t last = 0;
    for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
    return (last + 1) * ItemSize(dtype_);
  }
  // As SpanBytes, for strides that nobody has checked yet: -1 when they cannot be right.
  int64_t ViewBytes() const {
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
  void CopyElementsTo(char* out) const {
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

inline const char* ToString(AttributeType type) {
  constexpr const char* kNames[] = {"int",  "float",  "bool",  "string",  "tensor",
                                    "ints", "floats", "bools", "strings", "tensors"};
  return kNames[static_cast<int>(type)];
}

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
  Attribute(const char* value) : type_(AttributeType::kString), strings_{value} {}
  template <AttributeElement T>
  Attribute(const std::vector<T>& values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }
  template <AttributeElement T>
  Attribute(std::initializer_list<T> values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }

  AttributeType type() const { return type_; }
  bool is_list() const { return type_ >= AttributeType::kInts; }
  // Elements of a list; 1 for a single value.
  size_t size() const { return ints_.size() + floats_.size() + strings_.size() + tensors_.size(); }

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
  friend bool operator==(const Attribute& a, const Attribute& b) {
    if (a.type_ != b.type_ || a.ints_ != b.ints_ || a.floats_ != b.floats_ ||
        a.strings_ != b.strings_ || a.tensors_.size() != b.tensors_.size())
      return false;
    for (size_t i = 0; i < a.tensors_.size(); ++i)
      if (!SameTensor(a.tensors_[i], b.tensors_[i])) return false;
    return true;
  }

 private:
  // Single values are lists of one; bools are kept among the integers.
  template <class T>
  auto& List() {
    using Stored = detail::StoredAttribute<T>;
    if constexpr (std::is_same_v<Stored, double>)
      return floats_;
    else if constexpr (std::is_same_v<Stored, std::string>)
      return strings_;
    else if constexpr (std::is_same_v<Stored, Tensor>)
      return tensors_;
    else
      return ints_;
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
  [[noreturn]] OPKIT_COLD void WrongType(AttributeType wanted) const {
    const bool write_float = type_ == AttributeType::kInt && wanted == AttributeType::kFloat;
    Throw(ErrorCode::kTypeMismatch, "is ", type_, " (", Print(), "), but is read as ", wanted,
          write_float ? "; write " + Print() + ".0" : std::string());
  }
  std::string Print() const {
    std::string out;
    auto separate = [&] {
      if (!out.empty()) out += ", ";
    };
    for (int64_t value : ints_) {
      separate();
      if (type_ == AttributeType::kBool || type_ == AttributeType::kBools)
        out += value ? "true" : "false";
      else
        out += std::to_string(value);
    }
    for (double value : floats_) separate(), out += StrCat(value);
    for (const std::string& value : strings_) separate(), out += "\"" + value + "\"";
    for (const Tensor& value : tensors_) separate(), out += value.Describe();
    return is_list() ? "[" + out + "]" : out;
  }
  static bool SameTensor(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
    if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
    if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
    const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
    return x.nbytes() == 0 ||
           std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
  }

  AttributeType type_;
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
  std::vector<std::string> strings_;
  std::vector<Tensor> tensors_;
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
  Arguments(std::initializer_list<NamedAttribute> list) {
    for (const NamedAttribute& item : list) Set(item.name, item.value);
  }

  // Adds, or replaces the attribute of that name.
  void Set(std::string name, Attribute value) {
    for (NamedAttribute& item : items_)
      if (item.name == name) {
        item.value = std::move(value);
        return;
      }
    items_.push_back({std::move(name), std::move(value)});
  }
  bool Remove(std::string_view name) {
    for (size_t i = 0; i < items_.size(); ++i)
      if (items_[i].name == name) {
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      }
    return false;
  }
  // Null when there is none.
  const Attribute* Find(std::string_view name) const {
    for (const NamedAttribute& item : items_)
      if (item.name == name) return &item.value;
    return nullptr;
  }
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
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const NamedAttribute& item : items_) names.push_back(item.name);
    return names;
  }
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

// ---- opkit/core/dlpack.hpp
// DLPack in and out without a copy, versioned and unversioned. The structs are our own declarations
// of DLPack's C ABI (github.com/dmlc/dlpack, version 1.1); a test compares them with the real
// header.
#ifndef OPKIT_CORE_DLPACK_HPP_
#define OPKIT_CORE_DLPACK_HPP_

namespace opkit::inline OPKIT_ABI {
namespace dlpack {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null for row-major dense
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
inline constexpr uint64_t kFlagReadOnly = 1;
inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 1;

}  // namespace dlpack

namespace detail {

struct DLPackTypeRow {
  DType dtype;
  uint8_t code, bits;
};
inline constexpr DLPackTypeRow kDLPackTypes[] = {
    {DType::kBool, 6, 8},     {DType::kInt8, 0, 8},       {DType::kInt16, 0, 16},
    {DType::kInt32, 0, 32},   {DType::kInt64, 0, 64},     {DType::kUInt8, 1, 8},
    {DType::kUInt16, 1, 16},  {DType::kUInt32, 1, 32},    {DType::kUInt64, 1, 64},
    {DType::kFloat16, 2, 16}, {DType::kBFloat16, 4, 16},  {DType::kFloat32, 2, 32},
    {DType::kFloat64, 2, 64}, {DType::kComplex64, 5, 64}, {DType::kComplex128, 5, 128}};

// Keeps the tensor alive and the arrays that the exported DLTensor points into.
template <class Managed>
struct DLPackExport {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  Managed managed;
};

template <class Managed>
Managed* ExportDLPack(const Tensor& tensor) {
  if (!tensor.initialized())
    Throw(ErrorCode::kUninitialized, "cannot export tensor ", tensor.Describe());
  if (!tensor.layout().is_standard())
    Throw(ErrorCode::kUnsupported, "DLPack knows no ", ToString(tensor.layout()),
          "; convert first");
  const Dims strides = tensor.strides();
  auto* out = new DLPackExport<Managed>{
      tensor, tensor.shape().vec(), {strides.begin(), strides.end()}, Managed{}};
  Device device = tensor.device();
  if (static_cast<int>(device.type) >= static_cast<int>(DeviceType::kCPUStream))
    device = MemoryDevice(device);
  auto& dl = out->managed.dl_tensor;
  dl.data = tensor.raw_mutable_data();
  dl.device.device_type = static_cast<decltype(dl.device.device_type)>(device.type);
  dl.device.device_id = device.index;
  dl.ndim = tensor.rank();
  for (const auto& row : kDLPackTypes)
    if (row.dtype == tensor.dtype()) dl.dtype = {row.code, row.bits, 1};
  dl.shape = out->shape.data();
  dl.strides = out->strides.data();
  out->managed.manager_ctx = out;
  out->managed.deleter = [](Managed* self) {
    delete static_cast<DLPackExport<Managed>*>(self->manager_ctx);
  };
  return &out->managed;
}

template <class Managed>
Tensor ImportDLPack(Managed* managed) {
  const auto& in = managed->dl_tensor;
  DType dtype = DType::kUndefined;
  for (const auto& row : kDLPackTypes)
    if (row.code == in.dtype.code && row.bits == in.dtype.bits && in.dtype.lanes == 1)
      dtype = row.dtype;
  if (dtype == DType::kUndefined)
    Throw(ErrorCode::kUnsupported, "DLPack type {code ", int{in.dtype.code}, ", bits ",
          int{in.dtype.bits}, ", lanes ", in.dtype.lanes, "} has no DType");
  if (in.ndim < 0 || (in.ndim > 0 && !in.shape))
    Throw(ErrorCode::kInvalidArgument, "DLPack tensor has ndim ", in.ndim,
          in.shape ? "" : " and no shape");
  const auto rank = static_cast<size_t>(in.ndim);
  Shape shape(in.shape, rank);
  Dims strides;
  if (in.strides && rank) strides = Dims(in.strides, rank);
  if (shape.IsDense(strides)) strides = Dims();
  int64_t last = 0;
  for (int i = 0; i < strides.size(); ++i) {
    int64_t step = 0;
    if (shape[i] == 1) strides[i] = 0;  // unused, and may be anything
    if (strides[i] < 0 || __builtin_mul_overflow(strides[i], shape[i] - 1, &step) ||
        __builtin_add_overflow(last, step, &last))
      Throw(ErrorCode::kUnsupported, "DLPack stride ", strides[i], " of axis ", i,
            " is negative or too large");
  }
  int64_t nbytes = Tensor::CheckedBytes(shape, dtype);
  if (!strides.empty() && (__builtin_add_overflow(last, 1, &last) ||
                           __builtin_mul_overflow(last, ItemSize(dtype), &nbytes)))
    Throw(ErrorCode::kOutOfRange, "DLPack strides reach past a 64-bit byte count");
  if (!in.data && nbytes > 0) Throw(ErrorCode::kInvalidArgument, "DLPack tensor has no data");
  const Device device{static_cast<DeviceType>(in.device.device_type), in.device.device_id};
  Storage storage = AdoptStorage(
      device, in.data ? static_cast<char*>(in.data) + in.byte_offset : nullptr, nbytes,
      [](void*, void* context) {
        auto* self = static_cast<Managed*>(context);
        if (self->deleter) self->deleter(self);
      },
      managed);
  return Tensor(std::move(storage), 0, std::move(shape), dtype, std::move(strides));
}

template <class T>
concept Versioned = requires(T& t) { t.version.major; };

}  // namespace detail

// Structs of DLPack's layout: those above, or the real header's.
template <class T>
concept DLPackManaged = requires(T& t) {
  t.dl_tensor.byte_offset;
  t.manager_ctx;
  t.deleter;
  requires sizeof(T) == (detail::Versioned<T> ? sizeof(dlpack::DLManagedTensorVersioned)
                                              : sizeof(dlpack::DLManagedTensor));
};

// Exports without a copy, as our struct or another of its layout; the caller owns the result and
// calls its deleter once. Errors: kUninitialized, kUnsupported for a blocked layout.
template <DLPackManaged Managed = dlpack::DLManagedTensor>
Managed* ToDLPack(const Tensor& tensor) {
  return detail::ExportDLPack<Managed>(tensor);
}
template <DLPackManaged Managed = dlpack::DLManagedTensorVersioned>
Managed* ToDLPackVersioned(const Tensor& tensor) {
  auto* managed = detail::ExportDLPack<Managed>(tensor);
  managed->version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  return managed;
}

// Imports without a copy. On success the tensor owns `managed` and calls its deleter with the last
// handle; on an Error it still belongs to the caller. A read-only one is refused unless
// `accept_read_only`: a Tensor does not remember that it must not be written.
template <DLPackManaged Managed>
Tensor FromDLPack(Managed* managed, bool accept_read_only = false) {
  if (!managed) Throw(ErrorCode::kInvalidArgument, "FromDLPack was given a null pointer");
  if constexpr (detail::Versioned<Managed>) {
    if (managed->version.major != dlpack::kMajorVersion)
      Throw(ErrorCode::kUnsupported, "DLPack major version ", managed->version.major,
            " is not the supported ", dlpack::kMajorVersion);
    if ((managed->flags & dlpack::kFlagReadOnly) && !accept_read_only)
      Throw(ErrorCode::kInvalidArgument,
            "the DLPack tensor is read-only: copy it, or pass "
            "accept_read_only = true and do not write to it");
  }
  return detail::ImportDLPack(managed);
}

}  // namespace opkit

#endif  // OPKIT_CORE_DLPACK_HPP_

// ---- opkit/core/symbolic_shape.hpp
// Shapes that are not fully known yet: an extent is a number, a symbol (`Sym("N")`) or unknown, and
// the rank itself may be unknown. What shape inference reads and writes.
#ifndef OPKIT_CORE_SYMBOLIC_SHAPE_HPP_
#define OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

namespace opkit::inline OPKIT_ABI {

// One extent. Two symbols of the same name are the same extent; unknown equals nothing for sure.
class Dim {
 public:
  Dim() = default;  // unknown
  Dim(int64_t value) : value_(value) {
    if (value < 0) Throw(ErrorCode::kInvalidArgument, "extent ", value, " is negative");
  }
  static Dim Symbol(std::string name) {
    Dim dim;
    dim.symbol_ = std::move(name);
    return dim;
  }

  bool is_known() const { return value_ >= 0; }
  bool is_symbol() const { return !symbol_.empty(); }
  bool is_unknown() const { return !is_known() && !is_symbol(); }
  // Error (kFailedPrecondition) unless known.
  int64_t value() const {
    if (!is_known())
      Throw(ErrorCode::kFailedPrecondition, "extent ", ToString(*this), " is not known yet");
    return value_;
  }
  const std::string& symbol() const { return symbol_; }

  friend bool operator==(const Dim&, const Dim&) = default;
  friend std::string ToString(const Dim& dim) {
    return dim.is_known() ? std::to_string(dim.value_) : dim.is_symbol() ? dim.symbol_ : "?";
  }
  // True unless the two are known to differ.
  static bool Compatible(const Dim& a, const Dim& b) {
    return !a.is_known() || !b.is_known() || a.value_ == b.value_;
  }
  // What is known of an extent described by both; nothing if they contradict each other.
  static std::optional<Dim> Merge(const Dim& a, const Dim& b) {
    if (!Compatible(a, b)) return std::nullopt;
    if (a.is_known() || b.is_unknown()) return a;
    return b.is_known() || a.is_unknown() ? b : a;
  }

 private:
  int64_t value_ = -1;
  std::string symbol_;
};

inline Dim Sym(std::string name) { return Dim::Symbol(std::move(name)); }

// Extents of which some may be symbols or unknown; default-constructed, even the rank is unknown.
class SymbolicShape {
 public:
  SymbolicShape() = default;
  SymbolicShape(std::initializer_list<Dim> dims) : dims_(dims), has_rank_(true) {}
  explicit SymbolicShape(std::vector<Dim> dims) : dims_(std::move(dims)), has_rank_(true) {}
  SymbolicShape(const Shape& shape) : dims_(shape.begin(), shape.end()), has_rank_(true) {}
  // A shape of `rank` unknown extents.
  static SymbolicShape OfRank(int rank) {
    return SymbolicShape(std::vector<Dim>(static_cast<size_t>(rank)));
  }

  bool has_rank() const { return has_rank_; }
  int rank() const {
    if (!has_rank_) Throw(ErrorCode::kFailedPrecondition, "the rank is not known yet");
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
  // Error (kFailedPrecondition) unless every extent is known.
  Shape ToShape() const {
    std::vector<int64_t> values;
    if (!has_rank_) static_cast<void>(rank());
    for (const Dim& dim : dims_) values.push_back(dim.value());
    return Shape(values);
  }

  // What is known of a shape described by both; nothing if they contradict each other.
  static std::optional<SymbolicShape> Merge(const SymbolicShape& a, const SymbolicShape& b) {
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

  friend bool operator==(const SymbolicShape&, const SymbolicShape&) = default;
  friend std::string ToString(const SymbolicShape& shape) {
    return shape.has_rank_ ? StrCat(shape.dims_) : "[rank unknown]";
  }

 private:
  size_t Axis(int axis) const {
    const int found = axis < 0 ? axis + rank() : axis;
    if (found < 0 || found >= rank())
      Throw(ErrorCode::kOutOfRange, "axis ", axis, " is outside shape ", ToString(*this),
            " of rank ", rank());
    return static_cast<size_t>(found);
  }
  std::vector<Dim> dims_;
  bool has_rank_ = false;
};

}  // namespace opkit

#endif  // OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

// ---- opkit/base/timeout.hpp
// Timeout: how long to wait. Takes any std::chrono duration without including <chrono>.
#ifndef OPKIT_BASE_TIMEOUT_HPP_
#define OPKIT_BASE_TIMEOUT_HPP_

namespace opkit::inline OPKIT_ABI {

//   event.Finish();                                // for ever
//   event.Finish(std::chrono::milliseconds(50));
class Timeout {
 public:
  constexpr Timeout() = default;
  // A std::chrono::duration, rounded down to nanoseconds. A negative one has passed; one past int64
  // is for ever.
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
  // On the clock of detail::MonotonicNs; -1 for ever.
  int64_t DeadlineNs() const {
    if (is_forever()) return -1;
    int64_t deadline = 0;
    return __builtin_add_overflow(detail::MonotonicNs(), ns_, &deadline) ? -1 : deadline;
  }

 private:
  int64_t ns_ = -1;
};

}  // namespace opkit

#endif  // OPKIT_BASE_TIMEOUT_HPP_

// ---- opkit/base/unique_function.hpp
// UniqueFunction: owns anything callable, move-only callables included, with 48 bytes of room
// inside, so that the usual task (a few pointers captured) costs no allocation. One cache line.
#ifndef OPKIT_BASE_UNIQUE_FUNCTION_HPP_
#define OPKIT_BASE_UNIQUE_FUNCTION_HPP_

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

// ---- opkit/device/event.hpp
// Event: completion of work on a device. INITIALIZED, then SCHEDULED when work was issued, then
// SUCCESS or FAILED for good until Reset. Operators record one per run; executors and streams wait
// on it. Nothing polls: a waiter is woken, a callback called, by whoever completes the event.
#ifndef OPKIT_DEVICE_EVENT_HPP_
#define OPKIT_DEVICE_EVENT_HPP_

namespace opkit::inline OPKIT_ABI {

enum class EventStatus : uint8_t { kInitialized, kScheduled, kSuccess, kFailed };

inline const char* ToString(EventStatus status) {
  constexpr const char* kNames[] = {"INITIALIZED", "SCHEDULED", "SUCCESS", "FAILED"};
  return kNames[static_cast<int>(status)];
}
constexpr bool IsTerminal(EventStatus status) { return status >= EventStatus::kSuccess; }

namespace detail {

// Says, when something fails after its caller has gone on, whose work it was.
class FailureContext : public RefCounted {
 public:
  virtual std::string Describe() const = 0;
};

// What the handles of one event and the device share. Devices whose completion the host is not told
// of by itself (CUDA) derive from it.
class EventState : public RefCounted {
 public:
  // Acquire: who sees SUCCESS or FAILED also sees what the work wrote and `exception_`.
  EventStatus status() const { return status_.load(std::memory_order_acquire); }

  // Only after a terminal status, when nothing writes it any more.
  const std::exception_ptr& exception() const { return exception_; }

  // INITIALIZED to SCHEDULED. False if terminal already (failed or cancelled before it was issued).
  bool Schedule() {
    detail::MutexLock lock(mutex_);
    const EventStatus now = status_.load(std::memory_order_relaxed);  // the mutex orders it
    if (IsTerminal(now)) return false;
    if (now == EventStatus::kScheduled)
      Throw(ErrorCode::kFailedPrecondition,
            "the event is recorded while it is still SCHEDULED; "
            "Finish or Reset it first");
    status_.store(EventStatus::kScheduled, std::memory_order_release);
    return true;
  }
  // Terminal, once: false when it was terminal already. Wakes waiters, then runs the callbacks
  // outside the lock.
  bool Complete(std::exception_ptr exception) {
    if (exception && context_) exception = WithContext(std::move(exception));
    std::vector<UniqueFunction<void()>> callbacks;
    {
      detail::MutexLock lock(mutex_);
      if (IsTerminal(status_.load(std::memory_order_relaxed))) return false;
      exception_ = std::move(exception);
      status_.store(exception_ ? EventStatus::kFailed : EventStatus::kSuccess,
                    std::memory_order_release);
      callbacks.swap(callbacks_);
      for (Waiter* waiter = waiters_; waiter;) {
        Waiter* next = waiter->next;  // gone once it is set
        Parker::Wake(waiter->parker.Set());
        waiter = next;
      }
      waiters_ = nullptr;
    }
    for (auto& callback : callbacks) callback();
    return true;
  }
  // Runs at once when terminal.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    AddQuietCallback(std::move(callback));
  }
  // As AddCallback, without asking the device to tell: for what may wait until somebody asks.
  void AddQuietCallback(UniqueFunction<void()> callback) {
    {
      detail::MutexLock lock(mutex_);
      if (!IsTerminal(status_.load(std::memory_order_relaxed))) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }
  // Blocks until terminal; false when `timeout` ran out first.
  bool Wait(Timeout timeout) {
    if (IsTerminal(status())) return true;
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

  // A device that completes silently is asked here to call Complete when it is done.
  virtual void RequestNotification() {}
  // Asks such a device whether it is done, without waiting.
  virtual void Poll() {}

  void SetContext(IntrusivePtr<const FailureContext> context) { context_ = std::move(context); }

  // Memory that the device may still use, kept until it has drained (a cancelled event is terminal
  // long before that). Touched by the recording thread before the work is issued and by the device
  // after it, never at once.
  std::vector<Storage> retained;

 private:
  std::exception_ptr WithContext(std::exception_ptr exception) const {
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      // Other waiters read the same object, so a copy is changed; a class derived from Error would
      // be cut by that and stays as it is.
      if (typeid(error) != typeid(Error)) return exception;
      const std::string described = context_->Describe();
      for (const std::string& line : error.context())
        if (line == described) return exception;  // the operator itself failed while issuing
      Error copy = error;
      return std::make_exception_ptr(copy.AddContext(described));
    } catch (...) {
      return exception;
    }
  }

  struct Waiter {  // on the stack of a thread in Wait
    Parker parker;
    Waiter* next = nullptr;
  };

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  detail::Mutex mutex_;
  Waiter* waiters_ = nullptr;
  std::exception_ptr exception_;
  std::vector<UniqueFunction<void()>> callbacks_;
  IntrusivePtr<const FailureContext> context_;
};

// How a device type makes its event states; the plain EventState where none was set.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
inline std::atomic<EventStateFactory>& EventFactory(DeviceType type) {
  static std::atomic<EventStateFactory> factories[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return factories[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

}  // namespace detail

// A handle; copies share the completion until one of them is Reset. Waits, queries and completion
// may come from any thread; Reset and assignment of one handle may not race with its other uses.
class Event {
 public:
  Event() : Event(Device{}) {}
  explicit Event(Device device) : device_(device), state_(NewState()) {}

  Device device() const { return device_; }
  EventStatus Query() const {
    if (state_->status() == EventStatus::kScheduled) state_->Poll();
    return state_->status();
  }
  bool IsScheduled() const { return Query() == EventStatus::kScheduled; }
  bool IsFinished() const { return IsTerminal(Query()); }

  // INITIALIZED to SCHEDULED, ignored when terminal. Error (kFailedPrecondition) when SCHEDULED.
  // Contexts call it when they issue work.
  bool SetScheduled() { return state_->Schedule(); }

  // Completes the event: SUCCESS, or FAILED with the message or exception. The first failure is
  // kept, later ones are ignored. Error (kFailedPrecondition) after SUCCESS.
  void SetFinished() { CompleteOnce(nullptr); }
  void SetFinished(const char* error_message) {
    CompleteOnce(error_message
                     ? std::make_exception_ptr(Error(ErrorCode::kOperatorFailed, error_message))
                     : nullptr);
  }
  void SetFinishedWithException(std::exception_ptr exception) {
    CompleteOnce(std::move(exception));
  }
  // FAILED with kCancelled unless already terminal: whoever waits fails at once, while the device
  // still runs what it has begun and keeps the memory until it has drained. False if too late.
  bool Cancel() {
    const auto state = state_;  // as in CompleteOnce
    const bool cancelled =
        state->Complete(std::make_exception_ptr(Error(ErrorCode::kCancelled, "cancelled")));
    state->RequestNotification();  // so that the memory is let go when the device has drained
    return cancelled;
  }

  // Blocks the host until terminal and rethrows what failed. Errors: kDeadlineExceeded when
  // `timeout` ran out (the event goes on); kFailedPrecondition for an event that was never
  // recorded, unless a timeout is given to wait for that.
  void Finish(Timeout timeout = {}) const {
    if (timeout.is_forever() && state_->status() == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition,
            "waiting for an event that was never recorded: run the "
            "operator first, or wait with a timeout");
    if (!state_->Wait(timeout))
      Throw(ErrorCode::kDeadlineExceeded, "the event on ", ToString(device_), " is still ",
            ToString(state_->status()), " after ", timeout.ns() / 1000, " us");
    RethrowIfFailed();
  }
  void RethrowIfFailed() const {
    if (Query() == EventStatus::kFailed) std::rethrow_exception(state_->exception());
  }
  // Runs once terminal, on the completing thread, outside every lock; at once when already
  // terminal. It must not throw.
  void SetCallback(UniqueFunction<void()> callback) const {
    state_->AddCallback(std::move(callback));
  }

  // INITIALIZED again. Work still in flight keeps the old completion to itself.
  void Reset() { state_ = NewState(); }

  // Null unless FAILED.
  std::exception_ptr exception() const {
    return Query() == EventStatus::kFailed ? state_->exception() : nullptr;
  }
  // Empty unless FAILED.
  std::string ErrorMessage() const {
    if (Query() != EventStatus::kFailed) return {};
    try {
      std::rethrow_exception(state_->exception());
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "an exception that is not derived from std::exception";
    }
  }

  // For contexts.
  const detail::IntrusivePtr<detail::EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception) {
    // Whoever waits may end this handle as soon as it is terminal, while Complete still runs.
    const auto state = state_;
    if (!state->Complete(std::move(exception)) && state->status() == EventStatus::kSuccess)
      Throw(ErrorCode::kFailedPrecondition,
            "SetFinished on an event that is SUCCESS already; "
            "Reset it first");
  }
  detail::IntrusivePtr<detail::EventState> NewState() const {
    // Acquire: pairs with the backend's store, so that what it set up before is seen.
    const auto factory = detail::EventFactory(device_.type).load(std::memory_order_acquire);
    return factory ? factory(device_) : detail::MakeIntrusive<detail::EventState>();
  }

  Device device_;
  detail::IntrusivePtr<detail::EventState> state_;
};

}  // namespace opkit

#endif  // OPKIT_DEVICE_EVENT_HPP_

// ---- opkit/device/context.hpp
// Context: the device-side handle an operator runs with. The concept that every device meets, and
// CPUContext, where issuing work means doing it.
#ifndef OPKIT_DEVICE_CONTEXT_HPP_
#define OPKIT_DEVICE_CONTEXT_HPP_

namespace opkit::inline OPKIT_ABI {

// A user's own device is a class like CPUContext below, a REGISTER_<DEVICE>_OPERATOR macro of one
// line (op/registration.hpp), and, where its memory is not the host's, an Allocator and copies.
template <class C>
concept DeviceContext = requires(C& context, const C& constant, Event& event, int stream_id) {
  { C::kDeviceType } -> std::convertible_to<DeviceType>;
  { C::kAsynchronous } -> std::convertible_to<bool>;  // work goes on after it was issued
  requires std::constructible_from<C, Device>;
  { constant.device() } -> std::convertible_to<Device>;
  context.SwitchToDevice(stream_id);        // the stream that further work is issued on
  context.Record(event);                    // SCHEDULED; done when the work issued so far is
  context.WaitEvent(std::as_const(event));  // work issued from now on waits for the event
  context.FinishDeviceComputation();        // blocks until this stream has drained, rethrows
  { C::IsStreamFree(Device{}, stream_id) } -> std::convertible_to<bool>;
};

// Synchronous host execution. Every call costs next to nothing.
class CPUContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPU;
  static constexpr bool kAsynchronous = false;

  CPUContext() = default;
  explicit CPUContext(Device device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUContext cannot run on ", ToString(device));
  }

  Device device() const { return {}; }
  void SwitchToDevice(int = 0) {}
  // Work is done when it is issued: an operator with an asynchronous part finishes the event
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

}  // namespace opkit

#endif  // OPKIT_DEVICE_CONTEXT_HPP_

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

// ---- opkit/device/copy.hpp
// Copies between devices: a table of functions by the memory they read and write, which backends
// fill, and Copy (done when it returns) and CopyAsync (issued on a context's stream) on top of it.
#ifndef OPKIT_DEVICE_COPY_HPP_
#define OPKIT_DEVICE_COPY_HPP_

namespace opkit::inline OPKIT_ABI {

// Copies `nbytes` (never 0) between two devices' memory, which does not overlap. With a null
// `stream` the bytes are there when it returns; otherwise the copy is issued on that native stream,
// the one the context gave. Throws what fails. A backend registers one for each direction, and one
// from its device to itself that serves copies within a device and between peers:
//
//   void CopyCUDA(void* to, Device to_device, const void* from, Device from_device, int64_t nbytes,
//                 void* stream);   // cudaMemcpy, or cudaMemcpyAsync(…, (cudaStream_t)stream)
//   inline const auto registered = RegisterCopy(DeviceType::kCPU, DeviceType::kCUDA, &CopyCUDA);
using CopyFunction = void (*)(void* target, Device target_device, const void* source,
                              Device source_device, int64_t nbytes, void* stream);

namespace detail {

struct CopyTable {
  struct Route {
    DeviceType from, to;
    CopyFunction copy;
  };
  detail::Mutex mutex;
  std::vector<Route> routes;
};
inline CopyTable& Copies() {
  static auto* table = new CopyTable;
  return *table;
}

inline void CopyHost(void* target, Device, const void* source, Device, int64_t nbytes, void*) {
  std::memcpy(target, source, static_cast<size_t>(nbytes));
}

// Memory that the host reaches on both sides needs no registered function.
inline CopyFunction FindCopy(const Tensor& source, const Tensor& target) {
  const DeviceType from = MemoryDevice(source.device()).type;
  const DeviceType to = MemoryDevice(target.device()).type;
  detail::MutexLock lock(Copies().mutex);
  for (const auto& route : Copies().routes)
    if (route.from == from && route.to == to) return route.copy;
  if (IsHostAccessible(from) && IsHostAccessible(to)) return &CopyHost;
  std::vector<std::string> known;
  for (const auto& route : Copies().routes) known.push_back(StrCat(route.from, " to ", route.to));
  throw Error(
      ErrorCode::kUnsupported,
      StrCat("cannot copy tensor ", source, " to ", ToString(target.device()), ": no copy from ",
             ToString(from), " to ", ToString(to), " is registered, only ", known,
             "; include its backend's header, or call RegisterCopy"),
      &source);
}

// A copy that is ready to run, whole in itself: it keeps both memories.
struct PreparedCopy {
  CopyFunction copy;
  Tensor source, target;

  PreparedCopy(const Tensor& from, const Tensor& to) : source(from) {
    if (!from.initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("tensor ", from, " is copied before anything was written to it"), &from);
    copy = FindCopy(from, to);
    if (!from.layout().is_standard() || (!from.is_dense() && !IsHostAccessible(from.device().type)))
      throw Error(
          ErrorCode::kUnsupported,
          StrCat("cannot copy tensor ", from, " to ", ToString(to.device()),
                 ": only dense tensors of the standard layout leave a device; convert it there "
                 "first"),
          &from);
    target = to.PreparedFor(from);
  }
  // Strides are gathered here and not before: the stream may still be writing the source.
  void Run(void* stream = nullptr) const {
    const Tensor dense = source.is_dense() ? source : source.Contiguous();
    if (dense.nbytes() == 0) return;
    copy(target.raw_mutable_data(), MemoryDevice(target.device()), dense.raw_data(),
         MemoryDevice(source.device()), dense.nbytes(), stream);
  }
};

template <class Context>
concept HasNativeStream = requires(Context& context) {
  { context.native_stream() } -> std::convertible_to<void*>;
};

}  // namespace detail

// Registers the copy from one device type's memory to another's and returns the one before (null if
// none); null removes it. Thread-safe.
inline CopyFunction RegisterCopy(DeviceType from, DeviceType to, CopyFunction copy) {
  from = MemoryDevice({from, 0}).type;
  to = MemoryDevice({to, 0}).type;
  detail::MutexLock lock(detail::Copies().mutex);
  auto& routes = detail::Copies().routes;
  for (auto route = routes.begin(); route != routes.end(); ++route) {
    if (route->from != from || route->to != to) continue;
    const CopyFunction before = std::exchange(route->copy, copy);
    if (!copy) routes.erase(route);
    return before;
  }
  if (copy) routes.push_back({from, to, copy});
  return nullptr;
}

// A dense copy of `source` in the target's own device, done when it returns; the target is resized
// and reuses its memory, or takes new where the two overlap. Errors: kUninitialized, kUnsupported
// where no copy leads from one device to the other, kOutOfMemory; the target is then as it was.
inline void Copy(const Tensor& source, Tensor* target) {
  if (&source == target) return;
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(InvocationKind::kCopy);
  prepared.Run();
  *target = std::move(prepared.target);
}

// As Copy, after the work issued on the context's stream and before what is issued next; the target
// has its shape at once. On streams of the toolkit's own the copy holds both memories; on a native
// one (the context has `native_stream()`) the caller keeps them until the stream has come past it,
// and a strided source is an Error.
template <DeviceContext Context>
void CopyAsync(Context& context, const Tensor& source, Tensor* target) {
  if (&source == target) return;
  detail::PreparedCopy prepared(source, *target);
  InvocationScope invocation(InvocationKind::kCopy);
  Tensor result = prepared.target;
  if constexpr (detail::HasNativeStream<Context>) {
    if (!source.is_dense())
      Throw(ErrorCode::kUnsupported, "cannot copy tensor ", source,
            " on a native stream because it "
            "has strides; call Contiguous() first");
    prepared.Run(context.native_stream());
  } else {
    context.Launch([prepared = std::move(prepared)] { prepared.Run(); });
  }
  *target = std::move(result);
}

}  // namespace opkit

#endif  // OPKIT_DEVICE_COPY_HPP_

// ---- opkit/device/cpu_stream.hpp
// CPUStreamContext: a CPU device with in-order asynchronous streams, each served by a thread of its
// own. A real asynchronous device on every machine: what streams, cross-stream waits, asynchronous
// errors and cancellation are built and tested with.
#ifndef OPKIT_DEVICE_CPU_STREAM_HPP_
#define OPKIT_DEVICE_CPU_STREAM_HPP_

namespace opkit::inline OPKIT_ABI {

// An in-order queue of work. After a failure the rest of what was issued up to the next recorded
// event is skipped, and that event becomes FAILED with the exception; what comes after it starts
// afresh. Thread-safe. The streams live as long as the process; a forked child has none running and
// must not use them.
class CPUStream {
 public:
  CPUStream(const CPUStream&) = delete;
  CPUStream& operator=(const CPUStream&) = delete;

  // The process's stream `id` of `device`, started at first use.
  static CPUStream& Get(Device device, int id) {
    if (id < 0) Throw(ErrorCode::kInvalidArgument, "stream id ", id, " is negative");
    detail::MutexLock lock(All().mutex);
    if (CPUStream* stream = All().Find(device, id)) return *stream;
    All().streams.push_back(new CPUStream(device, id));
    return *All().streams.back();
  }
  // Null while nobody has used it.
  static CPUStream* Find(Device device, int id) {
    detail::MutexLock lock(All().mutex);
    return All().Find(device, id);
  }

  Device device() const { return device_; }
  int id() const { return id_; }

  // Runs `work` after everything issued before, under the invocation current now.
  void Launch(UniqueFunction<void()> work) { Push({std::move(work), {}, {}, CurrentInvocation()}); }
  // The event is SCHEDULED now and completes when the work issued so far is done.
  void Record(Event& event) {
    // One that was cancelled before it was recorded still keeps its memory until the stream is
    // here.
    if (event.SetScheduled() || event.Query() == EventStatus::kFailed)
      Push({{}, event.state(), {}, {}});
  }
  // Work issued from now on runs after the event, and fails with it. Nothing blocks for an event of
  // this stream, which is in order anyway: only its failure is passed on. Error
  // (kFailedPrecondition) for an event that was never recorded.
  void WaitEvent(const Event& event) {
    const EventStatus status = event.Query();
    if (status == EventStatus::kSuccess) return;
    if (status == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition,
            "a stream cannot wait for an event that was never "
            "recorded: run the operator first");
    event.state()->RequestNotification();
    Push({{}, {}, event.state(), {}});
  }
  // True when nothing is queued or running.
  bool IsFree() const {
    detail::MutexLock lock(mutex_);
    return queue_.empty() && !busy_;
  }
  // Times that the stream's thread had to wait for another stream's event.
  int64_t blocking_waits() const { return blocking_waits_.load(std::memory_order_relaxed); }

 private:
  struct Registry {
    CPUStream* Find(Device device, int id) const {
      for (CPUStream* stream : streams)
        if (stream->device_ == device && stream->id_ == id) return stream;
      return nullptr;
    }
    detail::Mutex mutex;
    std::vector<CPUStream*> streams;
  };
  static Registry& All() {
    static auto* registry = new Registry;  // the threads use their streams until the process ends
    return *registry;
  }

  CPUStream(Device device, int id) : device_(device), id_(id) {
    const auto serve = [](void* self) -> void* {
      static_cast<CPUStream*>(self)->Serve();
      return nullptr;
    };
    pthread_t thread;
    if (pthread_create(&thread, nullptr, serve, this) != 0)
      Throw(ErrorCode::kOutOfMemory, "cannot start the thread of stream ", id);
    pthread_detach(thread);
  }

  // One of: work; an event to complete; an event to wait for.
  struct Item {
    UniqueFunction<void()> work;
    detail::IntrusivePtr<detail::EventState> record;
    detail::IntrusivePtr<detail::EventState> wait;
    Invocation invocation;
  };

  void Push(Item item) {
    detail::Parker::Address sleeper = nullptr;
    {
      detail::MutexLock lock(mutex_);
      queue_.push_back(std::move(item));
      if (parked_) sleeper = std::exchange(parked_, nullptr)->Set();
    }
    if (sleeper) detail::Parker::Wake(sleeper);
  }
  // Takes all that is queued at once.
  std::vector<Item> Next() {
    for (;;) {
      detail::Parker parker;
      {
        detail::MutexLock lock(mutex_);
        busy_ = !queue_.empty();
        if (busy_) return std::exchange(queue_, {});
        parked_ = &parker;
      }
      parker.Wait();
    }
  }
  void Serve() {
    std::exception_ptr failure;
    for (;;) {
      std::vector<Item> items = Next();
      for (Item& item : items) {
        Execute(item, failure);
        item = {};  // what the closure held is gone before what comes next
      }
    }
  }
  void Execute(Item& item, std::exception_ptr& failure) {
    if (item.record) {
      // Still wanted when cancelled: only now is the memory no longer in use. Freed before the
      // event completes, so that who has waited finds it freed.
      item.record->retained = {};
      item.record->Complete(std::exchange(failure, nullptr));
    } else if (failure) {
      return;
    } else if (item.wait) {
      if (!IsTerminal(item.wait->status())) {
        // Relaxed: a statistic.
        blocking_waits_.fetch_add(1, std::memory_order_relaxed);
        item.wait->Wait({});
      }
      if (item.wait->status() == EventStatus::kFailed) failure = item.wait->exception();
    } else {
      auto scope = InvocationScope::Adopt(item.invocation);
      try {
        item.work();
      } catch (...) {
        failure = std::current_exception();
      }
    }
  }

  const Device device_;
  const int id_;
  mutable detail::Mutex mutex_;
  std::vector<Item> queue_;
  detail::Parker* parked_ = nullptr;  // the stream's thread, while there is nothing to do
  bool busy_ = false;
  std::atomic<int64_t> blocking_waits_{0};
};

// Issues work on a CPUStream of device {kCPUStream, index}.
class CPUStreamContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kCPUStream;
  static constexpr bool kAsynchronous = true;

  explicit CPUStreamContext(Device device = {kDeviceType, 0}) : device_(device) {
    if (device.type != kDeviceType)
      Throw(ErrorCode::kInvalidArgument, "CPUStreamContext cannot run on ", ToString(device));
  }

  Device device() const { return device_; }
  CPUStream& stream() {
    if (!stream_) SwitchToDevice(0);
    return *stream_;
  }
  void SwitchToDevice(int stream_id = 0) {
    if (!stream_ || stream_->id() != stream_id) stream_ = &CPUStream::Get(device_, stream_id);
  }
  void Record(Event& event) { stream().Record(event); }
  void WaitEvent(const Event& event) { stream().WaitEvent(event); }
  void FinishDeviceComputation() {
    Event drained(device_);
    stream().Record(drained);
    drained.Finish();
  }
  static bool IsStreamFree(Device device, int stream_id) {
    const CPUStream* stream = CPUStream::Find(device, stream_id);
    return !stream || stream->IsFree();
  }

  // Runs `work` on the stream; returns at once.
  template <class F>
  void Launch(F&& work) {
    stream().Launch(std::forward<F>(work));
  }

 private:
  Device device_;
  CPUStream* stream_ = nullptr;
};

}  // namespace opkit

#endif  // OPKIT_DEVICE_CPU_STREAM_HPP_

// ---- opkit/engine/idle_list.hpp
// IdleList: the threads of a pool that look for work or sleep for want of it, and the protocol by
// which none of them sleeps while there is work. Costs a submitter two loads when nobody sleeps.
#ifndef OPKIT_ENGINE_IDLE_LIST_HPP_
#define OPKIT_ENGINE_IDLE_LIST_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A place in the list, on the sleeping thread's stack.
struct IdleThread {
  Parker parker;
  IdleThread* prev = nullptr;
  IdleThread* next = nullptr;
  bool listed = false;
};

// A thread without work is first `searching`, then asleep in the list. Whoever publishes work then
// reads searching() and sleeping(); whoever goes to sleep enters the list, leaves `searching`, and
// then looks at all the work again. All four are seq_cst, as are the publications, so at least one
// of the two sees the other. The publisher either
//  - sees searching() > 0: that searcher stops searching later, either to sleep (then it looks
//  again
//    and sees the work) or because it found other work (then, if it is the last one, it looks again
//    and wakes another); or
//  - sees sleeping() > 0 and wakes one, which counts as searching from that moment: a burst of
//    submissions wakes one thread, and each that finds work wakes the next; or
//  - sees neither: every thread of the pool is busy and will look before it sleeps.
class IdleList {
 public:
  int searching() const { return searching_.load(std::memory_order_seq_cst); }
  int sleeping() const { return sleeping_.load(std::memory_order_seq_cst); }

  void StartSearching() { searching_.fetch_add(1, std::memory_order_seq_cst); }
  // True for the last one.
  bool StopSearching() { return searching_.fetch_sub(1, std::memory_order_seq_cst) == 1; }

  void Enlist(IdleThread& self) {
    MutexLock lock(mutex_);
    self.listed = true;
    self.next = first_;
    if (first_ != nullptr) first_->prev = &self;
    first_ = &self;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
  }

  // False when the thread has been woken meanwhile: it then counts as searching. Afterwards nobody
  // holds a pointer to `self`.
  bool Delist(IdleThread& self) {
    MutexLock lock(mutex_);
    if (!self.listed) return false;
    Remove(self);
    return true;
  }

  // Wakes the thread that fell asleep last (its cache is the warmest). False when nobody sleeps or,
  // with `unless_searching`, somebody searches already.
  bool WakeOne(bool unless_searching) {
    Parker::Address address = nullptr;
    {
      MutexLock lock(mutex_);
      if (first_ == nullptr || (unless_searching && searching() != 0)) return false;
      StartSearching();
      IdleThread& sleeper = *first_;
      Remove(sleeper);
      address = sleeper.parker.Set();
    }
    Parker::Wake(address);
    return true;
  }

  void WakeAll() {
    while (WakeOne(/*unless_searching=*/false)) {
    }
  }

  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    first_ = nullptr;
    searching_ = 0;
    sleeping_ = 0;
  }

 private:
  void Remove(IdleThread& thread) {
    (thread.prev != nullptr ? thread.prev->next : first_) = thread.next;
    if (thread.next != nullptr) thread.next->prev = thread.prev;
    thread.listed = false;
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }

  Mutex mutex_;
  IdleThread* first_ = nullptr;
  std::atomic<int> sleeping_{0};
  std::atomic<int> searching_{0};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_IDLE_LIST_HPP_

// ---- opkit/engine/latch.hpp
// Latch: a count of things still to happen, which threads wait for through ThreadPool::Wait while
// they help with the pool's tasks. TaskGroup and the Var engine's waits are made of it.
#ifndef OPKIT_ENGINE_LATCH_HPP_
#define OPKIT_ENGINE_LATCH_HPP_

namespace opkit::inline OPKIT_ABI {

namespace detail {

// Sleeping threads by the address of the latch they wait for, in a table that is never destroyed:
// whoever brings a latch to zero needs only its address from then on, so that a waiter which sees
// the zero may destroy the latch at once.
struct LatchSleeper {
  const void* latch = nullptr;
  Parker* parker = nullptr;
  LatchSleeper* next = nullptr;
};

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

}  // namespace detail

class Latch {
 public:
  explicit Latch(int64_t count = 0) : count_(count) {}
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  // Relaxed: it publishes nothing, and a latch is raised either before its waiters start or by
  // something that itself still counts.
  void Add(int64_t n = 1) { count_.fetch_add(n, std::memory_order_relaxed); }

  // The latch may be destroyed by a waiter before the last CountDown returns. Costs an atomic
  // subtraction, and about 20 ns more when it reaches zero.
  void CountDown(int64_t n = 1) {
    // Release: everything before any CountDown is seen by a thread that acquires the zero (the
    // subtractions of others continue the release sequence).
    if (count_.fetch_sub(n, std::memory_order_release) == n) WakeSleepers(this);
  }

  bool done() const { return count_.load(std::memory_order_acquire) == 0; }

 private:
  friend class ThreadPool;

  // No wake-up is lost: the sleeper enlists and looks at the count under the bucket's lock. If the
  // last CountDown takes the lock later it finds the sleeper; if earlier, its subtraction happened
  // before and the sleeper sees zero.
  bool Enlist(detail::LatchSleeper& self) const {
    detail::LatchBucket& bucket = detail::BucketOf(this);
    detail::MutexLock lock(bucket.mutex);
    if (done()) return false;
    self.latch = this;
    self.next = bucket.first;
    bucket.first = &self;
    return true;
  }

  static void Delist(detail::LatchSleeper& self) {
    detail::LatchBucket& bucket = detail::BucketOf(self.latch);
    detail::MutexLock lock(bucket.mutex);
    for (detail::LatchSleeper** at = &bucket.first; *at != nullptr; at = &(*at)->next) {
      if (*at != &self) continue;
      *at = self.next;
      return;
    }
  }

  static void WakeSleepers(const void* latch) {
    detail::LatchBucket& bucket = detail::BucketOf(latch);
    detail::MutexLock lock(bucket.mutex);
    for (detail::LatchSleeper** at = &bucket.first; *at != nullptr;) {
      if ((*at)->latch != latch) {
        at = &(*at)->next;
        continue;
      }
      detail::LatchSleeper* sleeper = *at;
      *at = sleeper->next;
      // The sleeper delists itself under this lock, so it stays until the lock is let go.
      detail::Parker::Wake(sleeper->parker->Set());
    }
  }

  std::atomic<int64_t> count_;
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_LATCH_HPP_

// ---- opkit/base/function_ref.hpp
// FunctionRef: a non-owning reference to anything callable, two words, never allocates. For
// parameters that are called before the callee returns (loop bodies, visitors); what outlives the
// call is held by a UniqueFunction.
#ifndef OPKIT_BASE_FUNCTION_REF_HPP_
#define OPKIT_BASE_FUNCTION_REF_HPP_

namespace opkit::inline OPKIT_ABI {

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
             !std::is_member_pointer_v<std::remove_cvref_t<F>> &&
             std::is_invocable_r_v<R, F&, Args...>)
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

// ---- opkit/engine/loop_board.hpp
// LoopBoard: where running ParallelFor loops hang for the pool's idle threads to join. A loop lives
// on its caller's stack; the caller takes it down and waits only for threads that are inside and
// make progress on their own. That is why nested loops cannot deadlock: nobody ever waits for
// something that is still queued.
#ifndef OPKIT_ENGINE_LOOP_BOARD_HPP_
#define OPKIT_ENGINE_LOOP_BOARD_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

using RangeFunction = FunctionRef<void(int64_t, int64_t)>;

// [first, last) in chunks of `grain`, claimed by number.
struct ParallelLoop {
  ParallelLoop(int64_t first, int64_t last, int64_t grain, int64_t chunks, RangeFunction body)
      : body(body), first(first), last(last), grain(grain), chunks(chunks) {}

  // Takes chunks until none is left. After an exception the remaining ones are skipped.
  void RunChunks(Mutex& mutex) {
    try {
      for (;;) {
        // Relaxed: the counter hands out numbers and publishes nothing; what a chunk wrote reaches
        // the caller through `joined`.
        const int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks) return;
        const int64_t begin = first + chunk * grain;
        body(begin, last - begin > grain ? begin + grain : last);
      }
    } catch (...) {
      MutexLock lock(mutex);
      if (!error) error = std::current_exception();
      next_chunk.store(chunks, std::memory_order_relaxed);
    }
  }

  const RangeFunction body;
  const int64_t first, last, grain, chunks;
  const Invocation invocation = CurrentInvocation();

  // Guarded by the board's mutex.
  int may_join = 0;  // threads that may still join
  int may_wake = 0;  // threads that those who join should still wake
  bool listed = false;
  ParallelLoop* prev = nullptr;
  ParallelLoop* next = nullptr;
  Parker* waiter = nullptr;  // the caller's, once it sleeps
  std::exception_ptr error;

  std::atomic<int> joined{0};  // threads inside, without the caller
  alignas(kCacheLine) std::atomic<int64_t> next_chunk{0};
};

class LoopBoard {
 public:
  // Each joiner wakes two more, so the caller pays for two wake-ups and the rest spread as a tree.
  static constexpr int kWakeFan = 2;

  // A look without the lock. Seq_cst for the sake of IdleList's protocol.
  bool empty() const { return first_.load(std::memory_order_seq_cst) == nullptr; }

  // Returns how many threads the caller should wake.
  int Post(ParallelLoop& loop, int helpers) {
    MutexLock lock(mutex_);
    loop.may_join = helpers;
    loop.may_wake = helpers;
    loop.listed = true;
    loop.next = first_.load(std::memory_order_relaxed);
    if (loop.next != nullptr) loop.next->prev = &loop;
    first_.store(&loop, std::memory_order_seq_cst);
    return TakeWakes(loop);
  }

  // The newest loop (the innermost of a nest), or null. `wake`: as for Post.
  ParallelLoop* Join(int* wake) {
    MutexLock lock(mutex_);
    ParallelLoop* loop = first_.load(std::memory_order_relaxed);
    if (loop == nullptr) return nullptr;
    loop->joined.fetch_add(1, std::memory_order_relaxed);  // read under the lock, or after it
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
      // Release: the caller sees what the chunks wrote. It may return as soon as it reads zero,
      // unless it sleeps; then it waits for Set.
      if (loop.joined.fetch_sub(1, std::memory_order_release) == 1 && waiter != nullptr) {
        address = waiter->Set();
      }
    }
    if (address != nullptr) Parker::Wake(address);
  }

  // The caller's end of the loop: returns when nobody is inside, rethrows the first exception.
  void Finish(ParallelLoop& loop, uint64_t spin_ticks) {
    {
      MutexLock lock(mutex_);
      Remove(loop);
    }
    const uint64_t start = Ticks();
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
    if (loop.next != nullptr) loop.next->prev = loop.prev;
    if (loop.prev != nullptr) {
      loop.prev->next = loop.next;
    } else {
      first_.store(loop.next, std::memory_order_seq_cst);
    }
  }

  Mutex mutex_;
  std::atomic<ParallelLoop*> first_{nullptr};  // loops that may still be joined
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_LOOP_BOARD_HPP_

// ---- opkit/engine/work_deque.hpp
// WorkDeque: the queue of one worker of the pool. Its owner pushes and pops at the bottom (the
// newest first, still in its cache), any other thread steals at the top (the oldest). Chase and
// Lev's deque (SPAA 2005) with a ring of fixed size, so that nothing is ever allocated or
// reclaimed: a full deque refuses, and the pool's shared queue takes the overflow.
#ifndef OPKIT_ENGINE_WORK_DEQUE_HPP_
#define OPKIT_ENGINE_WORK_DEQUE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Holds pointers it does not own. What was written before Push is seen by whoever gets the item.
//
// Memory orders. Pop lowers `bottom_` and then reads `top_`, Steal reads `top_` and then `bottom_`;
// each must see the other when both go for the last item, and the pool's parking protocol needs
// Push ordered before the pusher's look at the sleepers. Both are store-then-load, so these
// accesses are seq_cst operations (not fences, which TSan does not model). Slots are relaxed: a
// thief uses what it read only if its compare-exchange of `top_` succeeds, and then the seq_cst
// read of `bottom_` has acquired the owner's write.
template <class T, size_t kCapacity>
class WorkDeque {
  static_assert((kCapacity & (kCapacity - 1)) == 0, "the capacity must be a power of two");

 public:
  // Owner only. False when full.
  bool Push(T* item) {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);  // only the owner writes it
    // Acquire: the slot about to be reused has been read by the thief that moved `top_` past it.
    const int64_t top = top_.load(std::memory_order_acquire);
    if (bottom - top >= static_cast<int64_t>(kCapacity)) return false;
    Slot(bottom).store(item, std::memory_order_relaxed);
    bottom_.store(bottom + 1, std::memory_order_seq_cst);
    return true;
  }

  // Owner only. The newest item, or null.
  T* Pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;
    // Relaxed: `top_` only grows, so an old value that already says "empty" is still right.
    if (top_.load(std::memory_order_relaxed) > bottom) return nullptr;
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    T* item = nullptr;
    if (top <= bottom) {
      item = Slot(bottom).load(std::memory_order_relaxed);
      if (top < bottom) return item;  // more than one left: no thief can reach this one
      if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                        std::memory_order_relaxed)) {
        item = nullptr;
      }
    }
    // Relaxed: the deque is empty now, a thief that reads this finds nothing it could take.
    bottom_.store(bottom + 1, std::memory_order_relaxed);
    return item;
  }

  // Any thread. The oldest item, or null when there was none.
  T* Steal() {
    int64_t top = top_.load(std::memory_order_seq_cst);
    while (top < bottom_.load(std::memory_order_seq_cst)) {
      T* item = Slot(top).load(std::memory_order_relaxed);
      if (top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                       std::memory_order_seq_cst)) {
        return item;
      }
    }
    return nullptr;
  }

  // Any thread; a snapshot.
  bool empty() const {
    return top_.load(std::memory_order_seq_cst) >= bottom_.load(std::memory_order_seq_cst);
  }

  // In a forked child: forgets the items, which belong to the parent.
  void ResetAfterFork() {
    top_.store(0, std::memory_order_relaxed);
    bottom_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<T*>& Slot(int64_t index) {
    return slots_[static_cast<size_t>(index) & (kCapacity - 1)];
  }

  // Apart: thieves write one, the owner the other.
  alignas(kCacheLine) std::atomic<int64_t> top_{0};
  alignas(kCacheLine) std::atomic<int64_t> bottom_{0};
  alignas(kCacheLine) std::atomic<T*> slots_[kCapacity] = {};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_WORK_DEQUE_HPP_

// ---- opkit/engine/thread_pool.hpp
// ThreadPool: the work-stealing pool under everything that runs in parallel: ParallelFor in
// kernels, the Var engine, the executor. One of them serves the process (Default), sized by one
// setting; threads that wait take part, so that n threads means n busy threads and no more.
#ifndef OPKIT_ENGINE_THREAD_POOL_HPP_
#define OPKIT_ENGINE_THREAD_POOL_HPP_

namespace opkit::inline OPKIT_ABI {

class ThreadPool;

// A unit of work embedded in a record of its owner's (an operation of the engine), so that
// scheduling allocates nothing. From Schedule on it is the pool's, until `run` is called, which may
// free it. It runs under the invocation that was current when it was made.
struct PoolTask {
  using RunFunction = void (*)(PoolTask*) noexcept;
  explicit PoolTask(RunFunction run) : run(run), invocation(CurrentInvocation()) {}

  RunFunction run;
  PoolTask* next = nullptr;  // the pool's
  Invocation invocation;
};

namespace detail {

struct alignas(kCacheLine) PoolWorker {
  PoolWorker(ThreadPool* pool, int index) : pool(pool), index(index) {}

  ThreadPool* const pool;
  const int index;
  uint32_t turn = 0;
  bool running = false;  // guarded by the pool's start mutex, as is `thread`
  pthread_t thread{};
  WorkDeque<PoolTask, 1024> deque;
};

struct PoolThreadState {
  ThreadPool* pool = nullptr;    // what Current() says on this thread
  PoolWorker* worker = nullptr;  // on a pool's own threads
};
inline constinit thread_local PoolThreadState t_pool;

// Every live pool, for the fork handlers.
struct PoolRegistry {
  Mutex mutex;
  ThreadPool* first = nullptr;
  bool fork_handled = false;
};
inline constinit PoolRegistry g_pools;

}  // namespace detail

// Makes `pool` the one that ParallelFor and TaskGroup use on this thread.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool& pool) : previous_(std::exchange(detail::t_pool.pool, &pool)) {}
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
  ~PoolScope() { detail::t_pool.pool = previous_; }

 private:
  ThreadPool* previous_;
};

// A pool of n threads is the thread that waits (in Wait, TaskGroup or ParallelFor) and n - 1
// workers. A pool of one runs every ParallelFor inline; for tasks it has one worker, so that they
// progress when nobody waits, and a thread that waits from outside sleeps meanwhile: tasks of a
// pool of one never overlap. Workers start when there is something for them to do, one after the
// other.
//
// A worker without work looks for some for a few microseconds, then sleeps in the kernel: an idle
// pool uses no CPU. Waking costs the waker one system call, and only if somebody sleeps and nobody
// is already looking.
//
// All members are thread-safe except the destructor. A task that lets an exception escape
// terminates the process, as a std::thread does; TaskGroup keeps exceptions and hands them to its
// waiter.
//
// Fork: the child has the pool with its settings, empty and without threads; they start again when
// needed. Tasks, loops and latches that were pending stay with the parent. A child that was forked
// inside a task or a loop body must end by exec or _exit.
class ThreadPool {
 public:
  using Task = UniqueFunction<void()>;
  static constexpr int kMaxThreads = 1024;

  // `name` is the prefix of the threads' names. With `pin_workers`, worker i stays on the (i +
  // 1)-th of the CPUs that the thread which started it may use; without, the system places them.
  explicit ThreadPool(int threads, std::string name = "opkit", bool pin_workers = false)
      : name_(std::move(name)), pin_workers_(pin_workers) {
    SetThreads(threads);
    detail::MutexLock lock(detail::g_pools.mutex);
    if (!std::exchange(detail::g_pools.fork_handled, true)) HandleFork();
    registry_next_ = std::exchange(detail::g_pools.first, this);
  }

  // Runs all that is queued, what those tasks submit included, on the workers and the calling
  // thread, then joins the workers. Not for one of the pool's own tasks to call.
  ~ThreadPool() {
    OPKIT_ASSERT(OwnWorker() == nullptr);
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
    if (threads() > 1) Drain();
    const int slots = slots_;
    for (int i = 0; i < slots; ++i) {
      detail::PoolWorker* worker = workers_[i];
      if (worker->running) pthread_join(worker->thread, nullptr);
    }
    Drain();
    for (int i = 0; i < slots; ++i) delete workers_[i].load();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The process's pool, made at the first call with OPKIT_NUM_THREADS threads or, without that
  // variable, one for each CPU that the process may use; OPKIT_PIN_THREADS=1 pins its workers. It
  // is never destroyed, so that destructors of static objects can use it; tasks still queued when
  // the process exits do not run.
  static ThreadPool& Default() {
    static ThreadPool* const pool = [] {
      const char* pin = std::getenv("OPKIT_PIN_THREADS");
      return new ThreadPool(DefaultThreads(), "opkit", pin != nullptr && pin[0] == '1');
    }();
    return *pool;
  }

  // What ParallelFor and TaskGroup use on this thread: the innermost PoolScope's pool, else the one
  // whose work the thread runs, else Default().
  static ThreadPool& Current() {
    return detail::t_pool.pool != nullptr ? *detail::t_pool.pool : Default();
  }

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

  // From 1 to kMaxThreads. Surplus workers leave after the task or loop that they are in; nothing
  // queued is lost, and loops already running keep the size they began with.
  void Resize(int threads) {
    SetThreads(threads);
    idle_.WakeAll();
  }

  // Runs `task` some time. Tasks of a worker go to its own queue, from where others steal, all
  // others to a shared one; no order is promised. Allocates a record for the task.
  void Submit(Task task) {
    struct Record : PoolTask {
      explicit Record(Task&& task) : PoolTask(&RunRecord), task(std::move(task)) {}
      static void RunRecord(PoolTask* self) noexcept {
        Record* record = static_cast<Record*>(self);
        record->task();
        delete record;
      }
      Task task;
    };
    RequireWorker();
    Schedule(new Record(std::move(task)));
  }

  // Submit without the allocation.
  void Schedule(PoolTask* task) {
    RequireWorker();
    detail::PoolWorker* worker = OwnWorker();
    if (worker == nullptr || !worker->deque.Push(task)) Inject(task);
    NotifyWork();
  }

  // Runs one queued task, or takes part in a running loop, on this thread; false if there is none.
  bool RunOneTask() {
    PoolScope scope(*this);
    const Work work = FindWork(OwnWorker());
    if (work) Run(work);
    return static_cast<bool>(work);
  }

  // Returns true when the latch is at zero. Meanwhile this thread runs any of the pool's tasks: do
  // not hold a lock that a task may take. With a timeout (ns; false when it has passed) a thread
  // from outside only sleeps, because a task could take longer than that.
  bool Wait(const Latch& latch, int64_t timeout_ns = -1);

  // Calls body(begin, end) for [first, last) in chunks of `grain`, on this thread and on workers
  // that have nothing else to do; ParallelFor is the front of it. This thread runs chunks of this
  // loop and nothing else, so a caller may hold a lock that the body does not take.
  void RunLoop(int64_t first, int64_t last, int64_t grain, detail::RangeFunction body);

 private:
  // A task to run, or a loop that has been joined.
  struct Work {
    PoolTask* task = nullptr;
    detail::ParallelLoop* loop = nullptr;
    explicit operator bool() const { return task != nullptr || loop != nullptr; }
  };

  static int DefaultThreads();
  static void HandleFork();
  void ResetAfterFork();
  void SetThreads(int threads);

  // Below 2 threads there is still the one worker for tasks.
  int worker_target() const { return threads() > 1 ? threads() - 1 : 1; }
  detail::PoolWorker* OwnWorker() const {
    detail::PoolWorker* worker = detail::t_pool.worker;
    return worker != nullptr && worker->pool == this ? worker : nullptr;
  }

  void RequireWorker() {
    if (running_.load(std::memory_order_relaxed) == 0) [[unlikely]]
      StartFirstWorker();
  }
  void StartFirstWorker();
  bool StartWorker();
  bool Retire(detail::PoolWorker& self);
  void WorkerMain(detail::PoolWorker& self);
  void Sleep(detail::PoolWorker& self);

  Work FindWork(detail::PoolWorker* self);
  bool HasWork() const;
  void Run(Work work);
  void Inject(PoolTask* task);
  PoolTask* TakeInjected(detail::PoolWorker* self);
  void Drain() {
    while (RunOneTask()) {
    }
  }

  void NotifyWork();
  void WakeForLoop(int threads);
  void StopSearching() {
    if (idle_.StopSearching() && HasWork()) NotifyWork();
  }

  const std::string name_;
  const bool pin_workers_;
  std::atomic<int> threads_{1};
  // How long a thread looks for work before it sleeps: longer than a sleeper takes to wake up, and
  // nothing when there are more threads than CPUs, where looking keeps others from working.
  std::atomic<uint64_t> spin_ticks_{0};
  std::atomic<bool> stopping_{false};

  detail::Mutex start_mutex_;
  std::atomic<int> running_{0};  // workers whose thread exists
  std::atomic<int> slots_{0};    // workers ever made: that many entries of workers_, from the first
  std::atomic<detail::PoolWorker*> workers_[kMaxThreads] = {};
  ThreadPool* registry_next_ = nullptr;

  alignas(detail::kCacheLine) detail::Mutex injected_mutex_;
  PoolTask* injected_first_ = nullptr;
  PoolTask* injected_last_ = nullptr;
  std::atomic<int64_t> injected_size_{0};

  alignas(detail::kCacheLine) detail::LoopBoard loops_;
  alignas(detail::kCacheLine) detail::IdleList idle_;
};

// Threads of the process's pool, the one setting that kernels hand on to the libraries they call.
inline int NumThreads() { return ThreadPool::Default().threads(); }
inline void SetNumThreads(int threads) { ThreadPool::Default().Resize(threads); }

inline int ThreadPool::DefaultThreads() {
  const char* text = std::getenv("OPKIT_NUM_THREADS");
  if (text == nullptr || *text == '\0') {
    const int cpus = detail::AvailableCpus();
    return cpus < kMaxThreads ? cpus : kMaxThreads;
  }
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (*end != '\0' || threads < 1 || threads > kMaxThreads) {
    Throw(ErrorCode::kInvalidArgument,
          "expected the environment variable OPKIT_NUM_THREADS to be a", " number from 1 to ",
          kMaxThreads, ", found \"", text, "\"; correct it or unset it");
  }
  return static_cast<int>(threads);
}

inline void ThreadPool::SetThreads(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    Throw(ErrorCode::kInvalidArgument, "expected a number of threads from 1 to ", kMaxThreads,
          " for the pool \"", name_, "\", found ", threads);
  }
  constexpr uint64_t kSpinTicks = 12'000;
  spin_ticks_ = threads <= detail::AvailableCpus() ? kSpinTicks : 0;
  detail::MutexLock lock(start_mutex_);
  threads_ = threads;
}

// --- workers

OPKIT_COLD inline void ThreadPool::StartFirstWorker() {
  if (stopping_ || StartWorker() || running_ != 0) return;
  Throw(ErrorCode::kFailedPrecondition, "expected to start a thread of the pool \"", name_,
        "\", but the system refused it; raise the limit on processes (ulimit -u) or on memory");
}

// False when all that should run do, or the system refuses.
OPKIT_COLD inline bool ThreadPool::StartWorker() {
  detail::MutexLock lock(start_mutex_);
  const int target = worker_target();
  if (stopping_ || running_ >= target) return false;
  for (int i = 0; i < target; ++i) {
    detail::PoolWorker* worker = workers_[i];
    if (worker == nullptr) {
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
    if (pthread_create(&worker->thread, nullptr, entry, worker) != 0) return false;
    idle_.StartSearching();  // the new thread's first state; it waits for start_mutex_
    worker->running = true;
    running_.fetch_add(1);
    return true;
  }
  return false;
}

// True when the calling worker was surplus and has left the pool, which may be gone from then on.
// Its queue stays where others steal from it; the first worker never leaves.
inline bool ThreadPool::Retire(detail::PoolWorker& self) {
  detail::MutexLock lock(start_mutex_);
  if (stopping_ || self.index < worker_target()) return false;
  self.running = false;
  running_.fetch_sub(1);
  pthread_detach(self.thread);
  detail::t_pool = {};
  return true;
}

inline void ThreadPool::WorkerMain(detail::PoolWorker& self) {
  {
    detail::MutexLock lock(start_mutex_);  // StartWorker has finished with `self`
  }
  detail::t_pool = {this, &self};
  detail::SetCurrentThreadName(StrCat(name_, "-", self.index).c_str());
  if (pin_workers_) detail::PinCurrentThread(self.index + 1);
  bool searching = true;
  uint64_t idle_since = 0;
  for (;;) {
    if (self.index >= worker_target()) [[unlikely]] {
      if (std::exchange(searching, false)) StopSearching();
      if (Retire(self)) return;
    }
    if (const Work work = FindWork(&self)) {
      if (std::exchange(searching, false)) StopSearching();
      Run(work);
      if (detail::t_pool.worker != &self) return;  // this is a child, forked by the task
      idle_since = 0;
      continue;
    }
    if (stopping_) break;
    if (!std::exchange(searching, true)) idle_.StartSearching();
    const uint64_t now = detail::Ticks();
    if (idle_since == 0) idle_since = now;
    // One or a few searchers find what there is as fast as all would.
    const bool crowded = idle_.searching() > 1 + worker_target() / 2;
    if (!crowded && now - idle_since < spin_ticks_.load(std::memory_order_relaxed)) {
      detail::CpuRelax();
      continue;
    }
    Sleep(self);
    idle_since = 0;
  }
  if (searching) StopSearching();
}

// The caller counts as searching, before and after.
inline void ThreadPool::Sleep(detail::PoolWorker& self) {
  detail::IdleThread sleeper;
  idle_.Enlist(sleeper);
  idle_.StopSearching();
  if (!HasWork() && !stopping_ && self.index < worker_target()) {
    sleeper.parker.Wait();
  } else if (idle_.Delist(sleeper)) {
    idle_.StartSearching();
  }
}

// --- work

inline ThreadPool::Work ThreadPool::FindWork(detail::PoolWorker* self) {
  if (!loops_.empty()) {  // what has been started is finished first
    int wake = 0;
    if (detail::ParallelLoop* loop = loops_.Join(&wake)) {
      if (wake > 0) WakeForLoop(wake);
      return {nullptr, loop};
    }
  }
  if (self != nullptr) {
    // Now and then the oldest comes first, of the shared queue or the own one, so that a worker
    // whose tasks keep submitting tasks starves neither.
    const uint32_t turn = ++self->turn % 64;
    if (turn == 0) {
      if (PoolTask* task = TakeInjected(self)) return {task};
    } else if (turn == 32) {
      if (PoolTask* task = self->deque.Steal()) return {task};
    }
    if (PoolTask* task = self->deque.Pop()) return {task};
  }
  if (PoolTask* task = TakeInjected(self)) return {task};
  const int slots = slots_.load(std::memory_order_acquire);
  for (int i = 0, victim = self != nullptr ? self->index : 0; i < slots; ++i, ++victim) {
    if (victim >= slots) victim = 0;
    detail::PoolWorker* worker = workers_[victim].load(std::memory_order_acquire);
    if (worker == self) continue;
    if (PoolTask* task = worker->deque.Steal()) return {task};
  }
  return {};
}

// For IdleList's protocol: every load is seq_cst.
inline bool ThreadPool::HasWork() const {
  if (!loops_.empty() || injected_size_ != 0) return true;
  const int slots = slots_;
  for (int i = 0; i < slots; ++i) {
    if (!workers_[i].load()->deque.empty()) return true;
  }
  return false;
}

inline void ThreadPool::Run(Work work) {
  if (work.loop != nullptr) {
    loops_.Work(*work.loop);
  } else {
    auto scope = InvocationScope::Adopt(work.task->invocation);
    work.task->run(work.task);
  }
}

inline void ThreadPool::Inject(PoolTask* task) {
  task->next = nullptr;
  detail::MutexLock lock(injected_mutex_);
  (injected_last_ != nullptr ? injected_last_->next : injected_first_) = task;
  injected_last_ = task;
  injected_size_.fetch_add(1, std::memory_order_seq_cst);
}

// A worker takes some more into its own queue, its share of them, to come here less often.
inline PoolTask* ThreadPool::TakeInjected(detail::PoolWorker* self) {
  // Relaxed: who misses a task here looks again, by HasWork, before it sleeps.
  if (injected_size_.load(std::memory_order_relaxed) == 0) return nullptr;
  constexpr int64_t kBatch = 32;
  PoolTask* batch[kBatch];
  int64_t count = 0;
  {
    detail::MutexLock lock(injected_mutex_);
    const int64_t size = injected_size_.load(std::memory_order_relaxed);
    int64_t wanted = self == nullptr ? 1 : 1 + size / (threads() + 1);
    if (wanted > kBatch) wanted = kBatch;
    for (; count < wanted && injected_first_ != nullptr; ++count) {
      batch[count] = injected_first_;
      injected_first_ = injected_first_->next;
    }
    if (injected_first_ == nullptr) injected_last_ = nullptr;
    injected_size_.fetch_sub(count, std::memory_order_seq_cst);
  }
  if (count == 0) return nullptr;
  // The oldest on top; what does not fit goes back.
  for (int64_t i = count - 1; i > 0; --i) {
    if (!self->deque.Push(batch[i])) Inject(batch[i]);
  }
  if (count > 1) NotifyWork();  // for a moment a searcher could see them nowhere
  return batch[0];
}

// --- waking and waiting

inline void ThreadPool::NotifyWork() {
  if (idle_.searching() != 0) return;
  if (idle_.sleeping() != 0 && idle_.WakeOne(/*unless_searching=*/true)) return;
  if (running_.load(std::memory_order_relaxed) < worker_target()) StartWorker();
}

// Threads that search will find the loop by themselves.
inline void ThreadPool::WakeForLoop(int threads) {
  for (threads -= idle_.searching(); threads > 0; --threads) {
    if (idle_.sleeping() != 0 && idle_.WakeOne(/*unless_searching=*/false)) continue;
    if (running_.load(std::memory_order_relaxed) >= worker_target() || !StartWorker()) return;
  }
}

inline bool ThreadPool::Wait(const Latch& latch, int64_t timeout_ns) {
  if (latch.done()) return true;
  detail::PoolWorker* const worker = OwnWorker();
  const bool helps = worker != nullptr || (timeout_ns < 0 && threads() > 1);
  const int64_t deadline_ns = timeout_ns < 0 ? -1 : detail::MonotonicNs() + timeout_ns;
  PoolScope scope(*this);
  bool searching = false;
  uint64_t idle_since = 0;
  while (!latch.done()) {
    if (helps) {
      if (const Work work = FindWork(worker)) {
        if (std::exchange(searching, false)) StopSearching();
        Run(work);
        idle_since = 0;
        continue;
      }
    }
    if (deadline_ns >= 0 && detail::MonotonicNs() >= deadline_ns) break;
    const uint64_t now = detail::Ticks();
    if (idle_since == 0) idle_since = now;
    if (now - idle_since < spin_ticks_.load(std::memory_order_relaxed)) {
      detail::CpuRelax();
      continue;
    }
    // Sleeps in two lists at once: the latch's, and the pool's for new work.
    detail::IdleThread sleeper;
    detail::LatchSleeper latch_sleeper{nullptr, &sleeper.parker};
    if (!latch.Enlist(latch_sleeper)) break;
    if (helps) idle_.Enlist(sleeper);
    if (std::exchange(searching, false)) idle_.StopSearching();
    if (!helps || !HasWork()) sleeper.parker.Wait(deadline_ns);
    latch.Delist(latch_sleeper);
    // Woken for work it counts as searching, and hands that on if it leaves without taking any.
    if (helps) searching = !idle_.Delist(sleeper);
    idle_since = 0;
  }
  if (searching) StopSearching();
  return latch.done();
}

// --- loops

inline void ThreadPool::RunLoop(int64_t first, int64_t last, int64_t grain,
                                detail::RangeFunction body) {
  OPKIT_ASSERT(grain > 0);
  if (first >= last) return;
  const int64_t chunks = (last - first - 1) / grain + 1;
  const int64_t spare = threads() - 1;
  const int64_t helpers = chunks - 1 < spare ? chunks - 1 : spare;
  if (helpers == 0) {
    for (int64_t begin = first; begin < last;) {
      const int64_t end = last - begin > grain ? begin + grain : last;
      body(begin, end);
      begin = end;
    }
    return;
  }
  detail::ParallelLoop loop(first, last, grain, chunks, body);
  WakeForLoop(loops_.Post(loop, static_cast<int>(helpers)));
  loop.RunChunks(loops_.mutex());
  loops_.Finish(loop, spin_ticks_.load(std::memory_order_relaxed));
}

// --- fork

inline void ThreadPool::HandleFork() {
  pthread_atfork([] { detail::g_pools.mutex.Lock(); }, [] { detail::g_pools.mutex.Unlock(); },
                 [] {
                   detail::g_pools.mutex.ResetAfterFork();
                   for (detail::LatchBucket& bucket : detail::g_latch_buckets) {
                     bucket.mutex.ResetAfterFork();
                     bucket.first = nullptr;
                   }
                   detail::t_pool.worker = nullptr;
                   for (ThreadPool* pool = detail::g_pools.first; pool != nullptr;
                        pool = pool->registry_next_) {
                     pool->ResetAfterFork();
                   }
                 });
}

inline void ThreadPool::ResetAfterFork() {
  start_mutex_.ResetAfterFork();
  running_ = 0;
  for (int i = 0; i < slots_; ++i) {
    workers_[i].load()->running = false;
    workers_[i].load()->deque.ResetAfterFork();
  }
  injected_mutex_.ResetAfterFork();
  injected_first_ = injected_last_ = nullptr;
  injected_size_ = 0;
  loops_.ResetAfterFork();
  idle_.ResetAfterFork();
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_THREAD_POOL_HPP_

// ---- opkit/engine/parallel_for.hpp
// ParallelFor: a loop whose iterations are spread over the current thread pool. What kernels are
// written with. The body is inlined into a chunk; only chunks are called through a pointer.
#ifndef OPKIT_ENGINE_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_PARALLEL_FOR_HPP_

namespace opkit::inline OPKIT_ABI {

// What ParallelFor and ParallelForRange call.
template <class F>
concept IndexBody = std::is_invocable_v<F&, int64_t>;
template <class F>
concept RangeBody = std::is_invocable_v<F&, int64_t, int64_t>;

inline constexpr int64_t kAutoGrain = 0;

namespace detail {

// The loop is run and measured from its start, in pieces that grow fourfold, until a piece has
// lasted long enough to tell. Whatever cannot repay a wake-up has then been done already, or is
// finished here; the rest is shared in chunks of equal work.
inline void RunMeasuredLoop(ThreadPool& pool, int64_t n, RangeFunction body) {
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
    piece *= 4;
  }
  const double index_ticks = static_cast<double>(elapsed) / static_cast<double>(piece);
  const int64_t rest = n - done;
  if (index_ticks * static_cast<double>(rest) < kWorthSharingTicks) return body(done, n);
  // At least four chunks a thread, so that the threads end together.
  const int64_t most = (rest - 1) / (int64_t{4} * pool.threads()) + 1;
  const double wanted = kChunkTicks / index_ticks;
  const int64_t grain = wanted < 1                           ? 1
                        : wanted > static_cast<double>(most) ? most
                                                             : static_cast<int64_t>(wanted);
  pool.RunLoop(done, n, grain, body);
}

inline void RunParallel(int64_t n, int64_t grain, RangeFunction body) {
  ThreadPool& pool = ThreadPool::Current();
  if (grain > 0) {
    pool.RunLoop(0, n, grain, body);
  } else if (pool.threads() == 1 || n == 1) {
    body(0, n);
  } else {
    RunMeasuredLoop(pool, n, body);
  }
}

}  // namespace detail

// Calls f(begin, end) so that the ranges make up [0, n) and each index is in one of them. With a
// positive grain the ranges are [k * grain, (k + 1) * grain), the last one shorter, whatever the
// number of threads is, so partial results by range are reproducible; with kAutoGrain they depend
// on how long the body takes. The ranges run in any order and at the same time, under the caller's
// invocation, on the current pool's idle workers and this thread, which runs nothing else
// meanwhile.
//
// Returns when all ranges have ended. If one throws, those not yet begun are skipped and the first
// exception is rethrown here. Loops may be nested to any depth.
template <class F>
void ParallelForRange(int64_t n, int64_t grain, F&& f) {
  static_assert(RangeBody<F>,
                "ParallelForRange: the body must be callable as f(int64_t begin, int64_t end)");
  if (n <= 0) return;
  if (n <= grain) {
    f(int64_t{0}, n);
    return;
  }
  detail::RunParallel(n, grain, f);
}

// f(i) for every i in [0, n). `grain`: how many indices make a chunk worth handing to another
// thread (10 us of work is; a loop with n <= grain is a plain loop, at no cost); kAutoGrain
// measures, which costs 40 to 80 ns a call, and fits unless the first indices are much cheaper than
// the rest.
//
//   opkit::ParallelFor(rows, [&](int64_t row) { Softmax(x + row * columns, columns); });
template <class F>
void ParallelFor(int64_t n, F&& f, int64_t grain = kAutoGrain) {
  static_assert(IndexBody<F>, "ParallelFor: the body must be callable as f(int64_t index)");
  using Body = std::remove_cvref_t<F>;
  ParallelForRange(n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int64_t>) {
      // A copy on the stack keeps what the body captured in registers: the compiler knows that the
      // body's stores do not change it.
      const Body body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_PARALLEL_FOR_HPP_

// ---- opkit/engine/context_parallel_for.hpp
// ParallelFor(ctx, n, f): one loop for every device. On a host context it is ParallelFor on the
// thread pool, issued through the context; the CUDA backend adds the overload that launches a
// kernel.
#ifndef OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

namespace opkit::inline OPKIT_ABI {

// Contexts whose work is host code: CPUContext, CPUStreamContext, and a user's own.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };

// Issues f(i) for every i in [0, n). Asynchronous on an asynchronous context: `f` is copied and
// must capture by value. Errors of `f` reach the caller, or the operator's event.
//
//   ParallelFor(ctx, n, [=] OPKIT_DEVICE (int64_t i) { y[i] = 2 * x[i]; });
template <HostContext Context, class F>
void ParallelFor(Context& context, int64_t n, F f, int64_t grain = kAutoGrain) {
#ifdef __CUDACC__
  static_assert(!__nv_is_extended_device_lambda_closure_type(F),
                "ParallelFor: this lambda is for the device only and would do nothing on a host "
                "context; compile CPU kernels in a .cc file");
#endif
  if constexpr (!Context::kAsynchronous) {
    ParallelFor(n, f, grain);
  } else {
    context.Launch([n, f = std::move(f), grain]() mutable { ParallelFor(n, f, grain); });
  }
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

// ---- opkit/engine/task_group.hpp
// TaskGroup: tasks of the pool that are waited for together. The waiter takes part, and gets the
// first exception that one of them threw.
#ifndef OPKIT_ENGINE_TASK_GROUP_HPP_
#define OPKIT_ENGINE_TASK_GROUP_HPP_

namespace opkit::inline OPKIT_ABI {

//   opkit::TaskGroup group;
//   group.Run([&] { left = Sort(a); });
//   group.Run([&] { right = Sort(b); });
//   group.Wait();
//
// Run may be called from any thread, from the group's own tasks too. After an exception the group's
// other tasks still run. Reusable after Wait.
class TaskGroup {
 public:
  explicit TaskGroup(ThreadPool& pool = ThreadPool::Current()) : pool_(pool) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  // Waits; an exception that nobody has waited for is dropped.
  ~TaskGroup() { pool_.Wait(pending_); }

  void Run(ThreadPool::Task task) {
    Member* member = new Member(*this, std::move(task));
    pending_.Add();
    try {
      pool_.Schedule(member);
    } catch (...) {
      delete member;
      pending_.CountDown();
      throw;
    }
  }

  // Not from the group's own tasks. Rethrows the first exception since the last Wait.
  void Wait() {
    pool_.Wait(pending_);
    detail::MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  struct Member : PoolTask {
    Member(TaskGroup& group, ThreadPool::Task&& task)
        : PoolTask(&RunMember), group(group), task(std::move(task)) {}
    static void RunMember(PoolTask* self) noexcept {
      Member* member = static_cast<Member*>(self);
      TaskGroup& group = member->group;
      try {
        member->task();
      } catch (...) {
        detail::MutexLock lock(group.mutex_);
        if (!group.error_) group.error_ = std::current_exception();
      }
      delete member;
      group.pending_.CountDown();  // the group may be gone from here on
    }
    TaskGroup& group;
    ThreadPool::Task task;
  };

  ThreadPool& pool_;
  Latch pending_;
  detail::Mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_TASK_GROUP_HPP_

// ---- opkit/base/name_table.hpp
// NameTable: objects by name, sorted, at addresses that never change. A sorted vector instead of a
// std::map: tables of names are read far more often than they grow, and every instantiation of
// std::map costs a translation unit as much as this whole folder.
#ifndef OPKIT_BASE_NAME_TABLE_HPP_
#define OPKIT_BASE_NAME_TABLE_HPP_

namespace opkit::inline OPKIT_ABI {

// Finding is O(log n), adding and removing O(n) pointer moves. Not synchronised.
template <class T>
class NameTable {
 public:
  struct Row {
    std::string name;
    T value;
  };

  // Null when there is none.
  T* Find(std::string_view name) const {
    const size_t at = LowerBound(name);
    return at < rows_.size() && rows_[at]->name == name ? &rows_[at]->value : nullptr;
  }
  // The object of that name, made from `args` when there is none.
  template <class... Args>
  T& FindOrAdd(std::string_view name, Args&&... args) {
    const size_t at = LowerBound(name);
    if (at == rows_.size() || rows_[at]->name != name)
      rows_.emplace(rows_.begin() + static_cast<std::ptrdiff_t>(at),
                    new Row{std::string(name), T(std::forward<Args>(args)...)});
    return rows_[at]->value;
  }
  bool Erase(std::string_view name) {
    const size_t at = LowerBound(name);
    if (at == rows_.size() || rows_[at]->name != name) return false;
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  // Rows in the order of their names: for (const auto& row : table) row->name, row->value.
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& row : rows_) names.push_back(row->name);
    return names;
  }

 private:
  size_t LowerBound(std::string_view name) const {
    size_t low = 0, high = rows_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (rows_[middle]->name < name) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  std::vector<std::unique_ptr<Row>> rows_;
};

}  // namespace opkit

#endif  // OPKIT_BASE_NAME_TABLE_HPP_

// ---- opkit/op/operator_def.hpp
// OperatorDef: one node, as plain data: the op's type, the names of what it reads and writes, its
// attributes, the device and the backend asked for. Everything else is derived from it.
#ifndef OPKIT_OP_OPERATOR_DEF_HPP_
#define OPKIT_OP_OPERATOR_DEF_HPP_

namespace opkit::inline OPKIT_ABI {

// A regular value with a fluent builder; an overload with an argument sets or adds, one without
// reads.
//
//   OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f).Device(DeviceType::kCPU)
class OperatorDef {
 public:
  OperatorDef() = default;
  explicit OperatorDef(std::string type) : type_(std::move(type)) {}
  OperatorDef(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
              Arguments args = {})
      : type_(std::move(type)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        args_(std::move(args)) {}

  OperatorDef& Type(std::string type) { return type_ = std::move(type), *this; }
  OperatorDef& Name(std::string name) { return name_ = std::move(name), *this; }
  // Adds one; an empty name leaves an optional input out.
  OperatorDef& Input(std::string name) { return inputs_.push_back(std::move(name)), *this; }
  OperatorDef& Output(std::string name) { return outputs_.push_back(std::move(name)), *this; }
  OperatorDef& Inputs(const std::vector<std::string>& names) {
    return inputs_.insert(inputs_.end(), names.begin(), names.end()), *this;
  }
  OperatorDef& Outputs(const std::vector<std::string>& names) {
    return outputs_.insert(outputs_.end(), names.begin(), names.end()), *this;
  }
  // Nodes that must run before this one though nothing of theirs is read.
  OperatorDef& ControlInput(std::string name) {
    return control_inputs_.push_back(std::move(name)), *this;
  }
  OperatorDef& Arg(std::string name, Attribute value) {
    return args_.Set(std::move(name), std::move(value)), *this;
  }
  OperatorDef& Device(::opkit::Device device) { return device_ = device, *this; }
  OperatorDef& Device(DeviceType type, int32_t index = 0) { return Device({type, index}); }
  // Backends to try, in order, separated by commas. "DEFAULT" is the plain operator.
  OperatorDef& Engine(std::string engine) { return engine_ = std::move(engine), *this; }
  OperatorDef& IsGradientOp(bool value) { return is_gradient_op_ = value, *this; }

  const std::string& type() const { return type_; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::vector<std::string>& control_inputs() const { return control_inputs_; }
  const Arguments& args() const { return args_; }
  Arguments& mutable_args() { return args_; }
  ::opkit::Device device() const { return device_; }
  const std::string& engine() const { return engine_; }
  bool is_gradient_op() const { return is_gradient_op_; }
  std::vector<std::string>& mutable_inputs() { return inputs_; }
  std::vector<std::string>& mutable_outputs() { return outputs_; }

  // "Scale 'name' (X) -> (Y)": how messages name a node.
  friend std::string ToString(const OperatorDef& def) {
    auto join = [](const std::vector<std::string>& names) {
      std::string out;
      for (size_t i = 0; i < names.size(); ++i) out += (i ? ", " : "") + names[i];
      return out;
    };
    return StrCat(def.type_, def.name_.empty() ? "" : " '" + def.name_ + "'", " (",
                  join(def.inputs_), ") -> (", join(def.outputs_), ")");
  }
  friend bool operator==(const OperatorDef&, const OperatorDef&) = default;

 private:
  std::string type_;
  std::string name_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
  std::vector<std::string> control_inputs_;
  Arguments args_;
  ::opkit::Device device_;
  std::string engine_;
  bool is_gradient_op_ = false;
};

}  // namespace opkit

#endif  // OPKIT_OP_OPERATOR_DEF_HPP_

// ---- opkit/op/inference.hpp
// What shape and type inference sees of a node: everything known about its inputs and outputs,
// where known may mean a symbol or nothing yet, and the data of constant inputs.
#ifndef OPKIT_OP_INFERENCE_HPP_
#define OPKIT_OP_INFERENCE_HPP_

namespace opkit::inline OPKIT_ABI {

// What is known of a value before it is computed.
struct TensorInfo {
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
  Device device;
  Layout layout;
  const Tensor* constant = nullptr;  // its data where that is known already; not owned

  TensorInfo() = default;
  TensorInfo(DType type, SymbolicShape extents) : dtype(type), shape(std::move(extents)) {}
  // All that a tensor says. `as_constant` lets inference read its data.
  static TensorInfo Of(const Tensor& tensor, bool as_constant = false) {
    TensorInfo info(tensor.dtype(), tensor.shape());
    info.device = tensor.device();
    info.layout = tensor.layout();
    if (as_constant) info.constant = &tensor;
    return info;
  }
  friend std::string ToString(const TensorInfo& info) {
    return StrCat(info.dtype == DType::kUndefined ? "?" : ToString(info.dtype),
                  ToString(info.shape));
  }
};

// Handed to an operator's inference function, which reads the inputs and sets the outputs. Outputs
// may hold what is known of them already, and inputs may be refined from them.
class InferenceContext {
 public:
  InferenceContext(const OperatorDef& def, std::vector<TensorInfo> inputs,
                   std::vector<TensorInfo> outputs = {})
      : def_(def), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
    outputs_.resize(def.outputs().size());
  }

  const OperatorDef& def() const { return def_; }
  const Arguments& args() const { return def_.args(); }
  template <class T>
  T Arg(std::string_view name, T fallback) const {
    return args().Get<T>(name, std::move(fallback));
  }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // False for an optional input that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < num_inputs() && !def_.inputs()[static_cast<size_t>(i)].empty();
  }
  // Error (kOutOfRange) for an index the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // The data of a constant input; null where it is not known yet.
  const Tensor* input_constant(int i) const {
    const Tensor* known = input(i).constant;
    return known || !find_constant_ ? known : (*find_constant_)(i);
  }
  // Where else input_constant looks, so that data is made available only to who asks for it. `find`
  // outlives the inference.
  void ReadConstantsFrom(FunctionRef<const Tensor*(int)> find) { find_constant_ = find; }
  const TensorInfo& output(int i) const { return outputs_[Check(i, outputs_.size(), "output")]; }

  // Says what is true of a value. Error (kInvalidArgument), showing both sides, when that
  // contradicts what is known of it already.
  void SetOutput(int i, DType dtype, const SymbolicShape& shape) {
    Refine(outputs_[Check(i, outputs_.size(), "output")], "output", i, dtype, shape);
  }
  void SetInput(int i, DType dtype, const SymbolicShape& shape) {
    Refine(inputs_[Check(i, inputs_.size(), "input")], "input", i, dtype, shape);
  }

  std::vector<TensorInfo>& inputs() { return inputs_; }
  std::vector<TensorInfo>& outputs() { return outputs_; }

 private:
  static size_t Check(int i, size_t count, const char* what) {
    if (i < 0 || static_cast<size_t>(i) >= count)
      Throw(ErrorCode::kOutOfRange, what, " ", i, " of a node that has ", count);
    return static_cast<size_t>(i);
  }
  void Refine(TensorInfo& info, const char* what, int i, DType dtype, const SymbolicShape& shape) {
    auto merged = SymbolicShape::Merge(info.shape, shape);
    const bool dtypes_differ =
        info.dtype != DType::kUndefined && dtype != DType::kUndefined && info.dtype != dtype;
    if (dtypes_differ)
      Throw(ErrorCode::kTypeMismatch, what, " ", i, " of ", ToString(def_), " is ", ToString(info),
            ", expected dtype ", dtype);
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, what, " ", i, " of ", ToString(def_), " is ",
            ToString(info), ", but inference finds ", ToString(TensorInfo(dtype, shape)));
    info.shape = *std::move(merged);
    if (dtype != DType::kUndefined) info.dtype = dtype;
  }

  const OperatorDef& def_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::optional<FunctionRef<const Tensor*(int)>> find_constant_;
};

}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_HPP_

// ---- opkit/op/kernel.hpp
// Kernel: one implementation of an operator for a device type and a backend. Asked with a
// KernelQuery it proposes configurations, of which selection picks one before memory is planned.
#ifndef OPKIT_OP_KERNEL_HPP_
#define OPKIT_OP_KERNEL_HPP_

namespace opkit::inline OPKIT_ABI {

class OperatorBase;
class Workspace;

// The node to run and all that is known of its values: dtypes, shapes, layouts, constants' data.
struct KernelQuery {
  const OperatorDef& def;
  std::span<const TensorInfo> inputs;
  std::span<const TensorInfo> outputs;
};

// One way a kernel offers to run a node.
struct KernelConfig {
  std::vector<Layout> input_layouts;  // empty: all standard
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;  // {input, output} that may share memory
  int64_t scratch_bytes = 0;
  double cost_ns = -1;  // an estimate; negative: none
};

using OperatorCreator =
    UniqueFunction<std::unique_ptr<OperatorBase>(const OperatorDef&, Workspace*)>;
using KernelProposer = UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)>;

// Who wins when one (operator, device, backend) is registered twice: the higher; two equal ones
// from two places are an error at first lookup.
enum class RegistrationPriority : uint8_t { kFallback = 1, kDefault = 2, kPreferred = 3 };

inline constexpr const char* kReferenceBackend = "reference";  // the plain operator

struct Kernel {
  std::string op;
  DeviceType device = DeviceType::kCPU;
  std::string backend = kReferenceBackend;
  RegistrationPriority priority = RegistrationPriority::kDefault;
  const char* file = "";
  int line = 0;
  std::string origin;      // the library it came from; empty for the program itself
  OperatorCreator create;  // may throw UnsupportedOperatorFeature: the next kernel is tried
  KernelProposer propose;  // none: one configuration, standard layouts, in place as the schema says

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thrown by an operator's constructor that cannot run this node; another kernel then gets it.
class OPKIT_EXPORT UnsupportedOperatorFeature : public Error {
 public:
  explicit UnsupportedOperatorFeature(std::string what)
      : Error(ErrorCode::kUnsupported, std::move(what)) {}
};

}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_HPP_

// ---- opkit/op/schema.hpp
// OpSchema: what is true of an operator on every device. Filled in once by OPERATOR_SCHEMA (or
// derived from a typed signature), then asked: is this node right, what comes out, what does it
// cost.
#ifndef OPKIT_OP_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_HPP_

namespace opkit::inline OPKIT_ABI {

// Work of one run, for benchmarks and selection.
struct OpCost {
  uint64_t flops = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t params_bytes = 0;
};

// One attribute that an operator takes.
struct AttributeSchema {
  std::string name;
  std::string doc;
  bool required = false;
  std::optional<AttributeType> type;  // unset: any
  std::optional<Attribute> default_value;
};

// One input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;  // empty: any
};

// Setters return *this, so that a schema reads as one sentence. Not synchronised: filled in during
// static initialisation, read-only afterwards.
class OpSchema {
 public:
  OpSchema() = default;
  OpSchema(std::string name, const char* file, int line, std::string signature = {})
      : name_(std::move(name)), file_(file), line_(line), signature_(std::move(signature)) {}

  // Arity: exactly n, between two numbers, one of a set, or a predicate.
  OpSchema& NumInputs(int n) { return NumInputs(n, n); }
  OpSchema& NumInputs(int min, int max) { return min_inputs_ = min, max_inputs_ = max, *this; }
  OpSchema& NumInputs(std::initializer_list<int> allowed) { return SetArity(allowed, true); }
  OpSchema& NumInputs(UniqueFunction<bool(int)> allowed) {
    return inputs_allowed_ = std::move(allowed), *this;
  }
  OpSchema& NumOutputs(int n) { return NumOutputs(n, n); }
  OpSchema& NumOutputs(int min, int max) { return min_outputs_ = min, max_outputs_ = max, *this; }
  OpSchema& NumOutputs(std::initializer_list<int> allowed) { return SetArity(allowed, false); }
  OpSchema& NumOutputs(UniqueFunction<bool(int)> allowed) {
    return outputs_allowed_ = std::move(allowed), *this;
  }
  // A relation between the number of inputs and outputs.
  OpSchema& NumInputsOutputs(UniqueFunction<bool(int, int)> allowed) {
    return arity_allowed_ = std::move(allowed), *this;
  }
  // The number of outputs that a number of inputs has.
  OpSchema& OutputCalculator(UniqueFunction<int(int)> calculate) {
    return calculate_outputs_ = std::move(calculate), *this;
  }
  OpSchema& SameNumberOfOutput() {
    return OutputCalculator([](int inputs) { return inputs; });
  }
  // {inputs, outputs} as the attributes decide them; -1 leaves a number open.
  using ArityFunction = UniqueFunction<std::pair<int, int>(const Arguments&)>;
  OpSchema& ArityFromArguments(ArityFunction arity) { return arity_ = std::move(arity), *this; }

  // Inputs that the operator also writes to.
  using MutationFunction = UniqueFunction<std::vector<int>(const Arguments&)>;
  OpSchema& MutatesInputs(MutationFunction inputs) { return mutates_ = std::move(inputs), *this; }
  OpSchema& MutatesInputs(std::initializer_list<int> inputs) {
    return MutatesInputs([list = std::vector<int>(inputs)](const Arguments&) { return list; });
  }

  // Pairs {input, output} that may, or must, be the same blob.
  using InplacePredicate = UniqueFunction<bool(int, int)>;
  OpSchema& AllowInplace(InplacePredicate may) { return inplace_allowed_ = std::move(may), *this; }
  OpSchema& AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return AllowInplace(AnyOf(pairs));
  }
  OpSchema& AllowOneToOneInplace() {
    return AllowInplace([](int in, int out) { return in == out; });
  }
  OpSchema& EnforceInplace(InplacePredicate must) {
    return inplace_enforced_ = std::move(must), *this;
  }
  OpSchema& EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return EnforceInplace(AnyOf(pairs));
  }
  OpSchema& EnforceOneToOneInplace() {
    return EnforceInplace([](int in, int out) { return in == out; });
  }

  // Attributes. `Arg(name, doc)` takes any type; `Arg<T>` checks it, and documents a default. Once
  // one is declared, an undeclared attribute is an error unless AllowUnknownArgs.
  OpSchema& Arg(std::string name, std::string doc, bool required = false) {
    return Arg({std::move(name), std::move(doc), required, {}, {}});
  }
  template <class T>
  OpSchema& Arg(std::string name, std::string doc, std::optional<T> default_value = {},
                bool required = false) {
    AttributeSchema attribute{std::move(name), std::move(doc), required, kAttributeTypeOf<T>, {}};
    if (default_value) attribute.default_value = Attribute(*default_value);
    return Arg(std::move(attribute));
  }
  OpSchema& Arg(AttributeSchema attribute) {
    return attributes_.push_back(std::move(attribute)), *this;
  }
  template <class T>
  OpSchema& RequiredArg(std::string name, std::string doc) {
    return Arg<T>(std::move(name), std::move(doc), {}, true);
  }
  // Makes a declared attribute optional. One that is not declared is a problem of the schema's.
  OpSchema& SetDefault(std::string_view name, Attribute value) {
    for (AttributeSchema& attribute : attributes_) {
      if (attribute.name != name) continue;
      attribute.required = false;
      attribute.default_value = std::move(value);
      return *this;
    }
    problem_ = StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                      " has no argument '", name, "' to give a default");
    return *this;
  }
  OpSchema& ArgIsTest(std::string doc) { return Arg("is_test", std::move(doc)); }
  OpSchema& AllowUnknownArgs() { return unknown_args_allowed_ = true, *this; }

  // Types and shapes of the outputs. Ready-made rules are templates: a program compiles those that
  // its schemas name.
  OpSchema& TensorInferenceFunction(UniqueFunction<void(InferenceContext&)> infer) {
    return infer_ = std::move(infer), *this;
  }
  // Inference is only called when every input shape is known.
  OpSchema& NeedsAllInputShapes(bool needs = true) { return needs_all_shapes_ = needs, *this; }
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShape() {
    return TensorInferenceFunction([](Context& c) {
      for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) Same(c, i, i);
    });
  }
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfInput(int input) {
    return TensorInferenceFunction([input](Context& c) {
      for (int i = 0; i < c.num_outputs(); ++i) Same(c, input, i);
    });
  }
  // Output i is like input inputs[i].
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
    return TensorInferenceFunction([inputs = std::move(inputs)](Context& c) {
      for (size_t i = 0; i < inputs.size(); ++i) Same(c, inputs[i], static_cast<int>(i));
    });
  }
  // Rank 1, as long as the input is along `dim`; the input's type.
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfInputDim(int input, int dim) {
    return TensorInferenceFunction([=](Context& c) {
      const SymbolicShape& in = c.input_shape(input);
      const int axis = in.has_rank() && dim < 0 ? dim + in.rank() : dim;
      if (in.has_rank() && (axis < 0 || axis >= in.rank()))
        Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", ToString(in),
              ", which has no axis ", dim);
      c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[axis] : Dim()});
    });
  }
  template <class Context = InferenceContext>
  OpSchema& ScalarType(DType dtype) {
    return TensorInferenceFunction([dtype](Context& c) {
      for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
    });
  }

  using CostFunction = UniqueFunction<OpCost(const OperatorDef&, const std::vector<TensorInfo>&,
                                             const std::vector<TensorInfo>&)>;
  OpSchema& CostInferenceFunction(CostFunction cost) { return cost_ = std::move(cost), *this; }
  // Reads every input and writes every output once; `flops` for each element of output 0.
  template <class Def = OperatorDef>
  OpSchema& PointwiseCost(uint64_t flops) {
    return CostInferenceFunction([flops](const Def&, const std::vector<TensorInfo>& inputs,
                                         const std::vector<TensorInfo>& outputs) {
      OpCost cost = Traffic(inputs, outputs);
      if (!outputs.empty()) cost.flops = flops * Elements(outputs[0]);
      return cost;
    });
  }
  // Devices of the inputs and of the outputs; by default all are the node's.
  using DevicePlacement = std::pair<std::vector<Device>, std::vector<Device>>;
  OpSchema& DeviceInferenceFunction(UniqueFunction<DevicePlacement(const OperatorDef&)> devices) {
    return devices_ = std::move(devices), *this;
  }
  OpSchema& InputsCanCrossDevices() { return inputs_cross_devices_ = true, *this; }

  // Names, docs and, where it is limited, dtypes of inputs and outputs.
  OpSchema& Input(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {}) {
    return Value(inputs_, i, std::move(name), std::move(doc), std::move(dtypes));
  }
  OpSchema& Output(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {}) {
    return Value(outputs_, i, std::move(name), std::move(doc), std::move(dtypes));
  }
  // The dtypes of all inputs and outputs that do not limit theirs.
  OpSchema& SetElementTypes(const std::vector<DType>& dtypes) {
    for (auto* values : {&inputs_, &outputs_})
      for (ValueSchema& value : *values)
        if (value.dtypes.empty()) value.dtypes = std::vector<DType>(dtypes);
    return *this;
  }
  OpSchema& SetDoc(std::string doc) { return doc_ = std::move(doc), *this; }
  OpSchema& Private() { return private_ = true, *this; }
  template <class Populator>
  OpSchema& FillUsing(Populator populate) {
    return populate(*this), *this;
  }
  // Makes inputs that mean something to this operator, for CheckOperator and benchmarks.
  OpSchema& TestInputs(UniqueFunction<std::vector<Tensor>(DType, uint64_t seed)> make) {
    return test_inputs_ = std::move(make), *this;
  }

  const std::string& name() const { return name_; }
  const char* file() const { return file_; }
  int line() const { return line_; }
  // Of the typed function the schema was derived from; empty for others.
  const std::string& signature() const { return signature_; }
  const std::string& doc() const { return doc_; }
  // What is wrong with the schema itself: setters run before main and must not throw.
  const std::string& problem() const { return problem_; }
  bool is_private() const { return private_; }
  bool inputs_can_cross_devices() const { return inputs_cross_devices_; }
  bool has_inference() const { return static_cast<bool>(infer_); }
  bool has_cost() const { return static_cast<bool>(cost_); }
  int min_inputs() const { return min_inputs_; }
  int max_inputs() const { return max_inputs_; }
  int min_outputs() const { return min_outputs_; }
  int max_outputs() const { return max_outputs_; }
  // "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string expected_inputs() const {
    return Counts(min_inputs_, max_inputs_, input_counts_, static_cast<bool>(inputs_allowed_));
  }
  std::string expected_outputs() const {
    return Counts(min_outputs_, max_outputs_, output_counts_, static_cast<bool>(outputs_allowed_));
  }
  const std::vector<AttributeSchema>& attributes() const { return attributes_; }
  const std::vector<ValueSchema>& inputs() const { return inputs_; }
  const std::vector<ValueSchema>& outputs() const { return outputs_; }
  bool CanInplace(int input, int output) const {
    return MustInplace(input, output) || (inplace_allowed_ && inplace_allowed_(input, output));
  }
  bool MustInplace(int input, int output) const {
    return inplace_enforced_ && inplace_enforced_(input, output);
  }
  // -1 when the inputs do not decide it.
  int CalculateOutput(int inputs) const {
    if (calculate_outputs_) return calculate_outputs_(inputs);
    return min_outputs_ == max_outputs_ ? min_outputs_ : -1;
  }
  int CalculateOutput(int inputs, const Arguments& args) const {
    const int outputs = arity_ ? arity_(args).second : -1;
    return outputs >= 0 ? outputs : CalculateOutput(inputs);
  }
  std::vector<int> MutatedInputs(const Arguments& args) const {
    return mutates_ ? mutates_(args) : std::vector<int>();
  }
  const AttributeSchema* FindAttribute(std::string_view name) const {
    for (const AttributeSchema& attribute : attributes_)
      if (attribute.name == name) return &attribute;
    return nullptr;
  }
  // Empty where the schema makes no test data.
  std::vector<Tensor> MakeTestInputs(DType dtype, uint64_t seed) const {
    return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
  }

  // Why `def` is not a right node of this operator; empty when it is.
  std::string Verify(const OperatorDef& def) const {
    if (!problem_.empty()) return problem_;
    const int ins = static_cast<int>(def.inputs().size());
    const int outs = static_cast<int>(def.outputs().size());
    if (std::string why = VerifyArity(ins, outs, def.args()); !why.empty()) return why;
    if (std::string why = VerifyInplace(def); !why.empty()) return why;
    return VerifyArgs(def.args());
  }

  // Types and shapes of the outputs from what is known of the inputs; unknown where the operator
  // declares no inference. Errors of the operator's own function get the node as context.
  void Infer(InferenceContext& context) const {
    if (!infer_) return;
    if (needs_all_shapes_)
      for (int i = 0; i < context.num_inputs(); ++i)
        if (context.HasInput(i) && !context.input(i).shape.is_known()) return;
    try {
      infer_(context);
    } catch (Error& error) {
      std::string inputs;
      for (const TensorInfo& input : context.inputs()) inputs += " " + ToString(input);
      error.AddContext("in shape inference of " + ToString(context.def()) + " with inputs" +
                       inputs);
      throw;
    }
  }
  std::vector<TensorInfo> InferOutputs(const OperatorDef& def,
                                       std::vector<TensorInfo> inputs) const {
    InferenceContext context(def, std::move(inputs));
    Infer(context);
    return std::move(context.outputs());
  }
  // Without a cost function: the bytes of inputs and outputs, and no flops.
  OpCost Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs) const {
    return cost_ ? cost_(def, inputs, outputs) : Traffic(inputs, outputs);
  }
  DevicePlacement InferDevices(const OperatorDef& def) const {
    if (devices_) return devices_(def);
    return {std::vector<Device>(def.inputs().size(), def.device()),
            std::vector<Device>(def.outputs().size(), def.device())};
  }

  // Elements and bytes of a value whose shape is known; 0 otherwise.
  static uint64_t Elements(const TensorInfo& info) {
    return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
  }
  static uint64_t Bytes(const TensorInfo& info) {
    return Elements(info) * static_cast<uint64_t>(ItemSize(info.dtype));
  }

 private:
  static InplacePredicate AnyOf(std::initializer_list<std::pair<int, int>> pairs) {
    return [list = std::vector<std::pair<int, int>>(pairs)](int in, int out) {
      for (const auto& pair : list)
        if (pair.first == in && pair.second == out) return true;
      return false;
    };
  }
  static void Same(InferenceContext& c, int input, int output) {
    c.SetOutput(output, c.input_dtype(input), c.input_shape(input));
    c.SetInput(input, c.output(output).dtype, c.output(output).shape);
  }
  static OpCost Traffic(const std::vector<TensorInfo>& inputs,
                        const std::vector<TensorInfo>& outputs) {
    OpCost cost;
    for (const TensorInfo& input : inputs) cost.bytes_read += Bytes(input);
    for (const TensorInfo& output : outputs) cost.bytes_written += Bytes(output);
    return cost;
  }
  OpSchema& SetArity(std::initializer_list<int> allowed, bool inputs) {
    auto in = [list = std::vector<int>(allowed)](int n) {
      for (int one : list)
        if (one == n) return true;
      return false;
    };
    (inputs ? inputs_allowed_ : outputs_allowed_) = std::move(in);
    (inputs ? input_counts_ : output_counts_) = std::vector<int>(allowed);
    return *this;
  }
  OpSchema& Value(std::vector<ValueSchema>& values, int i, std::string name, std::string doc,
                  std::vector<DType> dtypes) {
    if (values.size() <= static_cast<size_t>(i)) values.resize(static_cast<size_t>(i) + 1);
    values[static_cast<size_t>(i)] = {std::move(name), std::move(doc), std::move(dtypes)};
    return *this;
  }

  static std::string Counts(int min, int max, const std::vector<int>& set, bool predicate) {
    if (!set.empty()) return StrCat("one of ", set);
    if (predicate) return "a number that its schema's function allows";
    if (min == max) return std::to_string(min);
    if (max == kAny) return min == 0 ? "any number" : StrCat("at least ", min);
    return StrCat(min, " to ", max);
  }
  std::string VerifyArity(int ins, int outs, const Arguments& args) const {
    auto wrong = [&](const char* what, int found, const std::string& expected) {
      return StrCat(name_, " has ", found, " ", what, ", expected ", expected);
    };
    if (ins < min_inputs_ || ins > max_inputs_ || (inputs_allowed_ && !inputs_allowed_(ins)))
      return wrong("inputs", ins, expected_inputs());
    if (outs < min_outputs_ || outs > max_outputs_ || (outputs_allowed_ && !outputs_allowed_(outs)))
      return wrong("outputs", outs, expected_outputs());
    if (arity_allowed_ && !arity_allowed_(ins, outs))
      return StrCat(name_, " does not take ", ins, " inputs together with ", outs, " outputs");
    if (calculate_outputs_ && calculate_outputs_(ins) != outs)
      return wrong("outputs", outs, StrCat(calculate_outputs_(ins), " for ", ins, " inputs"));
    if (arity_) {
      const auto [inputs, outputs] = arity_(args);
      if (inputs >= 0 && ins != inputs)
        return wrong("inputs", ins, StrCat(inputs, " with these attributes"));
      if (outputs >= 0 && outs != outputs)
        return wrong("outputs", outs, StrCat(outputs, " with these attributes"));
    }
    return {};
  }
  std::string VerifyInplace(const OperatorDef& def) const {
    for (size_t i = 0; i < def.inputs().size(); ++i)
      for (size_t o = 0; o < def.outputs().size(); ++o) {
        const bool same = !def.inputs()[i].empty() && def.inputs()[i] == def.outputs()[o];
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (same && !CanInplace(in, out))
          return StrCat(name_, " may not run in place: input ", i, " and output ", o, " are both '",
                        def.outputs()[o], "'");
        if (!same && MustInplace(in, out))
          return StrCat(name_, " must run in place: input ", i, " is '", def.inputs()[i],
                        "' and output ", o, " is '", def.outputs()[o], "'");
      }
    return {};
  }
  std::string VerifyArgs(const Arguments& args) const {
    for (const AttributeSchema& attribute : attributes_) {
      const Attribute* given = args.Find(attribute.name);
      if (!given && attribute.required)
        return StrCat(name_, " needs the argument '", attribute.name, "'",
                      attribute.doc.empty() ? "" : " (" + attribute.doc + ")");
      const bool empty_list = given && given->is_list() && given->size() == 0;
      if (given && attribute.type && given->type() != *attribute.type && !empty_list)
        return StrCat("argument '", attribute.name, "' of ", name_, " is ", given->type(), " (",
                      ToString(*given), "), expected ", *attribute.type);
    }
    if (attributes_.empty() || unknown_args_allowed_) return {};
    for (const NamedAttribute& arg : args) {
      if (FindAttribute(arg.name)) continue;
      std::vector<std::string> known;
      for (const AttributeSchema& attribute : attributes_) known.push_back(attribute.name);
      return StrCat(name_, " has no argument '", arg.name, "'", SuggestName(arg.name, known));
    }
    return {};
  }

  static constexpr int kAny = 1 << 30;
  std::string name_;
  const char* file_ = "";
  int line_ = 0;
  std::string signature_;
  std::string doc_;
  std::string problem_;
  std::vector<AttributeSchema> attributes_;
  std::vector<ValueSchema> inputs_, outputs_;
  std::vector<int> input_counts_, output_counts_;  // of the set form
  int min_inputs_ = 0, max_inputs_ = kAny, min_outputs_ = 0, max_outputs_ = kAny;
  bool needs_all_shapes_ = false, private_ = false, inputs_cross_devices_ = false;
  bool unknown_args_allowed_ = false;
  // Called from const members: the functions themselves are stateless to the schema.
  mutable UniqueFunction<bool(int)> inputs_allowed_, outputs_allowed_;
  mutable UniqueFunction<bool(int, int)> arity_allowed_;
  mutable UniqueFunction<int(int)> calculate_outputs_;
  mutable ArityFunction arity_;
  mutable MutationFunction mutates_;
  mutable InplacePredicate inplace_allowed_, inplace_enforced_;
  mutable UniqueFunction<void(InferenceContext&)> infer_;
  mutable CostFunction cost_;
  mutable UniqueFunction<DevicePlacement(const OperatorDef&)> devices_;
  mutable UniqueFunction<std::vector<Tensor>(DType, uint64_t)> test_inputs_;
};

}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_HPP_

// ---- opkit/op/op_registry.hpp
// OpRegistry: every schema and kernel of the program, filled in by static initialisers, and the
// engine preferences. Registration never throws or exits; what is wrong is kept and reported at the
// first lookup, or all at once by CheckRegistrations.
#ifndef OPKIT_OP_OP_REGISTRY_HPP_
#define OPKIT_OP_OP_REGISTRY_HPP_

namespace opkit::inline OPKIT_ABI {

using EnginePref = std::vector<std::string>;  // backends to try, in order

// Thread-safe. What it returns stays valid until the library it came from is unloaded.
class OpRegistry {
 public:
  static OpRegistry& Global() {
    static auto* registry = new OpRegistry;  // operators may outlive every static object
    return *registry;
  }

  // A schema to fill in. The same name from the same place (a header seen by two translation units)
  // is the same schema: the second filling goes nowhere.
  // So are two that were derived from the same typed signature.
  OpSchema& AddSchema(const char* name, const char* file, int line, std::string signature = {}) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(name);
    auto schema = std::make_unique<OpSchema>(name, file, line, std::move(signature));
    if (!entry.schema) return *(entry.schema = std::move(schema));
    const bool same_signature =
        !schema->signature().empty() && schema->signature() == entry.schema->signature();
    if (!same_signature && !SamePlace(entry.schema->file(), entry.schema->line(), file, line))
      entry.Add(StrCat("two schemas of operator ", name, ": at ", entry.schema->file(), ":",
                       entry.schema->line(), " and at ", file, ":", line, "; remove one of them"));
    return *shadows_.emplace_back(std::move(schema));
  }

  // The same kernel from the same place is the same kernel.
  void AddKernel(Kernel kernel) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(kernel.op);
    for (auto& known : entry.kernels) {
      if (known->device != kernel.device || known->backend != kernel.backend) continue;
      if (SamePlace(known->file, known->line, kernel.file, kernel.line)) return;
      if (known->priority < kernel.priority) {
        replaced_.push_back(std::exchange(known, std::make_unique<Kernel>(std::move(kernel))));
      } else if (known->priority == kernel.priority) {
        entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", ToString(kernel.device),
                         ", backend ", kernel.backend, ": at ", known->Place(), " and at ",
                         kernel.Place(),
                         "; remove one, or register it with another priority or backend"));
      }
      return;
    }
    entry.kernels.push_back(std::make_unique<Kernel>(std::move(kernel)));
  }

  // Two registrations are one when a header has made them in two translation units.
  static bool SamePlace(std::string_view file_a, int line_a, std::string_view file_b, int line_b) {
    auto strip = [](std::string_view path) {
      while (path.substr(0, 2) == "./") path.remove_prefix(2);
      return path;
    };
    return line_a == line_b && strip(file_a) == strip(file_b);
  }

  // Something else that is wrong with an operator's registrations (a second gradient): listed by
  // Problems, and reported by whoever looks that up.
  void AddProblem(const std::string& op, std::string text) {
    detail::MutexLock lock(mutex_);
    ops_.FindOrAdd(op).listed.push_back(std::move(text));
  }

  // Null when there is none.
  const OpSchema* FindSchema(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    const Entry* entry = ops_.Find(op);
    return entry ? entry->schema.get() : nullptr;
  }
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for one that
  // was registered twice.
  const OpSchema& GetSchema(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    const Entry& entry = Get(op);
    if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
    if (!entry.schema) Throw(ErrorCode::kNotFound, WithoutSchema(op, entry));
    return *entry.schema;
  }
  // All kernels of an operator, or those for a device type, in the order of registration.
  std::vector<const Kernel*> KernelsOf(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    std::vector<const Kernel*> out;
    if (const Entry* entry = ops_.Find(op))
      for (const auto& kernel : entry->kernels) out.push_back(kernel.get());
    return out;
  }
  std::vector<const Kernel*> FindKernels(std::string_view op, DeviceType device) const {
    std::vector<const Kernel*> out;
    for (const Kernel* kernel : KernelsOf(op))
      if (kernel->device == device) out.push_back(kernel);
    return out;
  }
  // Sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const {
    detail::MutexLock lock(mutex_);
    return Names();
  }
  // Everything wrong with the registrations of this program; empty when nothing is.
  std::vector<std::string> Problems() const {
    detail::MutexLock lock(mutex_);
    std::vector<std::string> out;
    for (const auto& row : ops_) {
      const Entry& entry = row->value;
      for (const std::string& problem : entry.problems) out.push_back(problem);
      for (const std::string& problem : entry.listed) out.push_back(problem);
      if (entry.schema && !entry.schema->problem().empty()) out.push_back(entry.schema->problem());
      if (!entry.schema && !entry.kernels.empty()) out.push_back(WithoutSchema(row->name, entry));
    }
    return out;
  }
  // For tests and libraries: forgets an operator whole.
  void Remove(std::string_view op) {
    detail::MutexLock lock(mutex_);
    ops_.Erase(op);
  }

  // Error (kNotFound), naming the nearest, for a backend that no kernel of the program has.
  void CheckBackend(const std::string& backend) const {
    detail::MutexLock lock(mutex_);
    NameTable<Entry> backends;  // only for its names, sorted: another kind of table costs more
    for (const auto& row : ops_)
      for (const auto& kernel : row->value.kernels) {
        if (kernel->backend == backend) return;
        backends.FindOrAdd(kernel->backend);
      }
    Throw(ErrorCode::kNotFound, "no backend '", backend, "' has a kernel in this program",
          SuggestName(backend, backends.Names()));
  }

  // Backends tried for every operator of a device, or for one operator before those; ones that have
  // no kernel are passed over, an empty list clears. Errors: kNotFound for an operator nobody
  // registered, or a device without kernels. `apply` false only checks.
  void SetGlobalEnginePref(DeviceType device, EnginePref engines, bool apply = true) {
    detail::MutexLock lock(mutex_);
    bool known = engines.empty();
    for (const auto& row : ops_) known |= HasKernel(row->value, device);
    if (!known)
      Throw(ErrorCode::kNotFound, "engine preference for ", ToString(device),
            ", for which no operator of this program has a kernel");
    if (apply) SetPref({}, device, std::move(engines));
  }
  void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines,
                       bool apply = true) {
    detail::MutexLock lock(mutex_);
    if (!HasKernel(Get(op), device))
      Throw(ErrorCode::kNotFound, "engine preference for operator ", op, " on ", ToString(device),
            ", where it has no kernel");
    if (apply) SetPref(op, device, std::move(engines));
  }
  // Preferred backends of an operator, its own first.
  EnginePref EnginePrefs(std::string_view op, DeviceType device) const {
    detail::MutexLock lock(mutex_);
    EnginePref out;
    for (const std::string_view scope : {op, std::string_view()})
      for (const Pref& pref : prefs_)
        if (pref.op == scope && pref.device == device)
          for (const std::string& engine : pref.engines) out.push_back(engine);
    return out;
  }

 private:
  struct Entry {
    std::unique_ptr<OpSchema> schema;
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<std::string> problems;  // thrown at lookup, and listed
    std::vector<std::string> listed;

    bool Exists() const { return schema || !kernels.empty() || !problems.empty(); }
    void Add(std::string problem) {  // once, however many translation units see it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  struct Pref {
    std::string op;  // empty: every operator
    DeviceType device;
    EnginePref engines;
  };

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& row : ops_)
      if (row->value.Exists()) names.push_back(row->name);
    return names;
  }
  const Entry& Get(std::string_view op) const {
    const Entry* entry = ops_.Find(op);
    if (!entry || !entry->Exists()) ThrowUnknown(op);
    return *entry;
  }
  static bool HasKernel(const Entry& entry, DeviceType device) {
    for (const auto& kernel : entry.kernels)
      if (kernel->device == device) return true;
    return false;
  }
  void SetPref(std::string_view op, DeviceType device, EnginePref engines) {
    for (Pref& pref : prefs_)
      if (pref.op == op && pref.device == device) {
        pref.engines = std::move(engines);
        return;
      }
    prefs_.push_back({std::string(op), device, std::move(engines)});
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view op) const {
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, Names()),
          ops_.empty() ? "; nothing is: was the file that registers it linked?" : "");
  }
  static std::string WithoutSchema(std::string_view op, const Entry& entry) {
    return StrCat("operator ", op, " has a kernel",
                  entry.kernels.empty() ? "" : " (at " + entry.kernels[0]->Place() + ")",
                  " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }
  mutable detail::Mutex mutex_;
  NameTable<Entry> ops_;
  std::vector<std::unique_ptr<OpSchema>> shadows_;
  std::vector<std::unique_ptr<Kernel>> replaced_;
  std::vector<Pref> prefs_;
};

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema), one sentence each; empty when nothing is. A good first line of a test.
inline std::vector<std::string> CheckRegistrations() { return OpRegistry::Global().Problems(); }
inline std::vector<std::string> RegisteredOperators() { return OpRegistry::Global().Operators(); }
inline void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetGlobalEnginePref(device, std::move(engines));
}
inline void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetOpEnginePref(op, device, std::move(engines));
}
// Caffe2's forms: maps from device type to backends, and to operators and their backends. Nothing
// is changed when one entry is wrong.
template <class EnginesByDevice>
void SetGlobalEnginePref(const EnginesByDevice& pref) {
  for (const bool apply : {false, true})
    for (const auto& [device, engines] : pref)
      OpRegistry::Global().SetGlobalEnginePref(device, engines, apply);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const bool apply : {false, true})
    for (const auto& [device, engines] : pref)
      OpRegistry::Global().SetOpEnginePref(op, device, engines, apply);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const bool apply : {false, true})
    for (const auto& [device, ops] : pref)
      for (const auto& [op, engines] : ops)
        OpRegistry::Global().SetOpEnginePref(op, device, engines, apply);
}

}  // namespace opkit

#endif  // OPKIT_OP_OP_REGISTRY_HPP_

// ---- opkit/op/observer.hpp
// Observers: watch operators and nets from outside. What is attached is started before and stopped
// after every run, on every path. Without observers a run pays one predictable branch.
#ifndef OPKIT_OP_OBSERVER_HPP_
#define OPKIT_OP_OBSERVER_HPP_

namespace opkit::inline OPKIT_ABI {

// Watches one T (an operator or a net). What Start or Stop throw is kept as
// `Observable::last_observer_error` and never reaches the caller of Run.
template <class T>
class ObserverBase {
 public:
  explicit ObserverBase(T* subject) : subject_(subject) {}
  virtual ~ObserverBase() = default;
  virtual void Start() {}
  // Also called when the run failed; `succeeded` tells.
  virtual void Stop(bool succeeded) { static_cast<void>(succeeded); }
  T* subject() const { return subject_; }

 private:
  T* subject_;
};

// What can be observed. Attaching and detaching may not race with a run.
template <class T>
class Observable {
 public:
  Observable() = default;
  Observable(const Observable&) = delete;
  Observable& operator=(const Observable&) = delete;

  // Takes ownership; the pointer returned is the handle to detach it by.
  ObserverBase<T>* AttachObserver(std::unique_ptr<ObserverBase<T>> observer) {
    if (!observer) Throw(ErrorCode::kInvalidArgument, "AttachObserver was given null");
    if (!observers_) observers_ = std::make_unique<List>();
    observers_->items.push_back(std::move(observer));
    return observers_->items.back().get();
  }
  // Gives it back; null when it is not attached.
  std::unique_ptr<ObserverBase<T>> DetachObserver(const ObserverBase<T>* observer) {
    if (!observers_) return nullptr;
    auto& items = observers_->items;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].get() != observer) continue;
      std::unique_ptr<ObserverBase<T>> detached = std::move(items[i]);
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
      return detached;
    }
    return nullptr;
  }
  size_t NumObservers() const { return observers_ ? observers_->items.size() : 0; }
  // What an observer threw last; empty when none did.
  std::string last_observer_error() const { return observers_ ? observers_->error : ""; }

  void StartAllObservers() {
    if (observers_) [[unlikely]]
      ForEach([](ObserverBase<T>& observer) { observer.Start(); });
  }
  void StopAllObservers(bool succeeded) {
    if (observers_) [[unlikely]]
      ForEach([&](ObserverBase<T>& observer) { observer.Stop(succeeded); });
  }

 private:
  struct List {
    std::vector<std::unique_ptr<ObserverBase<T>>> items;
    std::string error;
  };
  template <class F>
  OPKIT_COLD void ForEach(F call) {
    for (size_t i = 0; i < observers_->items.size(); ++i) {
      try {
        call(*observers_->items[i]);
      } catch (const std::exception& error) {
        observers_->error = error.what();
      } catch (...) {
        observers_->error = "an exception that is not derived from std::exception";
      }
    }
  }
  std::unique_ptr<List> observers_;
};

// Starts the observers of `subject` and stops them at the end of the scope, exceptions included.
// Call Succeeded() at the end of the good path.
template <class T>
class ObserverScope {
 public:
  explicit ObserverScope(Observable<T>& subject) : subject_(subject) {
    subject_.StartAllObservers();
  }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;
  ~ObserverScope() { subject_.StopAllObservers(succeeded_); }
  void Succeeded() { succeeded_ = true; }

 private:
  Observable<T>& subject_;
  bool succeeded_ = false;
};

}  // namespace opkit

#endif  // OPKIT_OP_OBSERVER_HPP_

// ---- opkit/op/workspace.hpp
// Workspace: the named values that operators are bound to. A Blob holds one of any C++ type, most
// often a Tensor; its address never changes while it is in the workspace.
#ifndef OPKIT_OP_WORKSPACE_HPP_
#define OPKIT_OP_WORKSPACE_HPP_

namespace opkit::inline OPKIT_ABI {

// Owns one object of any type. Not copyable; not synchronised.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string name) : name_(std::move(name)) {}
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob() { Reset(); }

  const std::string& name() const { return name_; }
  bool empty() const { return object_ == nullptr; }
  // By name, so that it holds across shared objects.
  template <class T>
  bool IsType() const {
    return type_ && (type_ == &typeid(T) || *type_ == typeid(T));
  }
  // Errors: kUninitialized when empty, kTypeMismatch for another type.
  template <class T>
  const T& Get() const {
    if (!IsType<T>()) [[unlikely]]
      WrongType(typeid(T).name());
    return *static_cast<const T*>(object_);
  }
  // The object, made anew (default constructed) when the blob holds none of this type.
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
  [[noreturn]] OPKIT_COLD void WrongType(const char* wanted) const {
    if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
    Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
          ", but is read as ", wanted, " (names as the compiler mangles them)");
  }

  std::string name_;
  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
};

// Blobs by name. Not synchronised: create blobs before operators run in parallel.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // The blob of that name, made when there is none.
  Blob* CreateBlob(const std::string& name) { return &blobs_.FindOrAdd(name, name); }
  bool HasBlob(std::string_view name) const { return blobs_.Find(name) != nullptr; }
  // Null when there is none.
  Blob* FindBlob(std::string_view name) const { return blobs_.Find(name); }
  // Error (kNotFound) that names the nearest blob when there is none.
  Blob* GetBlob(const std::string& name) const {
    Blob* blob = FindBlob(name);
    if (!blob)
      Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace",
            SuggestName(name, Blobs()));
    return blob;
  }
  // Operators bound to the blob must be gone.
  bool RemoveBlob(std::string_view name) { return blobs_.Erase(name); }
  std::vector<std::string> Blobs() const { return blobs_.Names(); }

  // The tensor of that name, made (uninitialized) when there is none.
  Tensor* CreateTensor(const std::string& name) { return CreateBlob(name)->GetMutable<Tensor>(); }
  // Errors: kNotFound, kTypeMismatch for a blob of another type, kUninitialized for an empty blob.
  Tensor* GetTensor(const std::string& name) const {
    return const_cast<Tensor*>(&GetBlob(name)->Get<Tensor>());
  }
  bool HasTensor(const std::string& name) const {
    const Blob* blob = FindBlob(name);
    return blob && blob->IsType<Tensor>();
  }

  // Place in its net of the operator that failed last; -1 when none did.
  std::atomic<int> last_failed_op_net_position{-1};

 private:
  NameTable<Blob> blobs_;
};

}  // namespace opkit

#endif  // OPKIT_OP_WORKSPACE_HPP_

// ---- opkit/op/operator_base.hpp
// OperatorBase: an operator bound to the blobs of a workspace, whatever device it runs on. Argument
// access, inputs and outputs, the completion event, errors with their context.
#ifndef OPKIT_OP_OPERATOR_BASE_HPP_
#define OPKIT_OP_OPERATOR_BASE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What an operator is called in messages, shared with the events it records, which may outlive it.
class OperatorIdentity final : public FailureContext {
 public:
  explicit OperatorIdentity(const OperatorDef& operator_def) : def(operator_def) {}
  std::string Describe() const override {
    std::string out = "in operator " + ToString(def);
    for (const NamedAttribute& arg : def.args()) out += ", " + arg.name + "=" + ToString(arg.value);
    out += ", on " + ToString(def.device());
    if (!def.engine().empty()) out += ", engine " + def.engine();
    if (line > 0) out += StrCat(", registered at ", file, ":", line);
    return out;
  }
  OperatorDef def;
  std::string file;
  int line = 0;
};

}  // namespace detail

// Not synchronised: one run at a time. Operators of one workspace may run at the same time when
// they do not write what another reads or writes.
class OperatorBase : public Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which are made. Error: kNotFound,
  // kInvalidArgument.
  OperatorBase(const OperatorDef& def, Workspace* ws)
      : device_(def.device()), memory_device_(MemoryDevice(def.device())), workspace_(ws) {
    auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def);
    identity_ = identity;
    if (!ws) Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def), " needs a workspace");
    for (const std::string& name : def.inputs()) {
      Blob* blob = name.empty() ? nullptr : ws->FindBlob(name);
      if (!name.empty() && !blob)
        Throw(ErrorCode::kNotFound, "operator ", ToString(def), " reads blob '", name,
              "', which is not in the workspace", SuggestName(name, ws->Blobs()),
              "; create it before the operator");
      inputs_.push_back(blob);
    }
    for (const std::string& name : def.outputs())
      outputs_.push_back(name.empty() ? nullptr : ws->CreateBlob(name));
  }
  virtual ~OperatorBase() = default;

  // Runs to completion. True, or an Error with the operator as context.
  virtual bool Run(int stream_id = 0) = 0;
  // Issues the work and returns; event() completes with it. What fails while issuing fails the
  // event and is thrown as well. Error (kFailedPrecondition) while the last run is still SCHEDULED.
  virtual bool RunAsync(int stream_id = 0) = 0;
  // Work goes on after RunOnDevice has returned.
  virtual bool HasAsyncPart() const = 0;
  // May be issued before the operators it depends on are done, if those are on its device type.
  virtual bool SupportsAsyncScheduling() const = 0;
  // Work that this operator issues from now on waits for the event; `stream_id` -1 is the stream in
  // use. A FAILED event fails it.
  virtual void WaitEvent(const Event& event, int stream_id = -1) = 0;
  virtual void WaitEvents(const std::vector<const Event*>& events, int stream_id = -1) = 0;
  // Blocks until this operator's stream has drained, so that an observer can measure it.
  virtual void SyncDeviceBarrierForObservers() = 0;
  virtual bool IsStreamFree(int stream_id) const = 0;
  // Fails the event of a run in flight with kCancelled at once; the device finishes what it has
  // begun. Nothing to do for one that is done.
  virtual void Cancel() {
    if (event_ && event_->Query() == EventStatus::kScheduled) event_->Cancel();
  }

  const OperatorDef& def() const { return identity_->def; }
  const std::string& type() const { return def().type(); }
  Device device() const { return device_; }
  Workspace* workspace() const { return workspace_; }

  // Attributes, for constructors. A value of another type is an Error (kTypeMismatch).
  bool HasArgument(std::string_view name) const { return def().args().Has(name); }
  template <class T>
  bool HasSingleArgumentOfType(std::string_view name) const {
    const Attribute* found = def().args().Find(name);
    return found && found->Is<T>();
  }
  template <class T>
  T GetSingleArgument(std::string_view name, const T& fallback) const {
    return def().args().Get<T>(name, fallback);
  }
  template <class T>
  std::vector<T> GetRepeatedArgument(std::string_view name,
                                     const std::vector<T>& fallback = {}) const {
    return def().args().Get<std::vector<T>>(name, fallback);
  }

  int InputSize() const { return static_cast<int>(inputs_.size()); }
  int OutputSize() const { return static_cast<int>(outputs_.size()); }
  // False for an optional value that the node leaves out.
  bool HasInput(int i) const {
    return i >= 0 && i < InputSize() && inputs_[static_cast<size_t>(i)];
  }
  bool HasOutput(int i) const {
    return i >= 0 && i < OutputSize() && outputs_[static_cast<size_t>(i)];
  }

  // Errors: kOutOfRange, kUninitialized, kTypeMismatch, kInvalidArgument for a tensor on a device
  // that this operator cannot reach.
  const Tensor& Input(int i) const {
    const Tensor& tensor = InputBlob(i).Get<Tensor>();
    if (tensor.device() != memory_device_) [[unlikely]]
      CheckDevice(i, tensor);
    return tensor;
  }
  // A value of any C++ type.
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
  std::vector<Shape> InputTensorShapes() const {
    std::vector<Shape> shapes;
    for (int i = 0; i < InputSize(); ++i)
      shapes.push_back(HasInput(i) && InputIsType<Tensor>(i) ? Input<Tensor>(i).shape() : Shape{0});
    return shapes;
  }

  // The output as the last run, or an earlier call in this one, left it: for operators that resize
  // it themselves.
  Tensor* Output(int i) {
    if (!pending_.empty()) [[unlikely]]
      if (Tensor* replaced = FindPending(i)) return replaced;
    return OutputBlob(i)->GetMutable<Tensor>();
  }
  // The output with this shape and dtype, dense, on this operator's device; memory of the last run
  // is reused. It never shares memory with an input that the schema does not pair it with. No input
  // is freed or resized by it: where the output is also an input and changes, a new tensor takes
  // its place when RunOnDevice has returned, so that work going on then needs the tensors by value.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == memory_device_ && out->is_dense() && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, *out, shape, dtype);
  }
  template <class T>
  T* Output(int i) {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spelling: another name for Output(i, shape, dtype).
  Tensor* XOutput(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  // A tensor to write to, or null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // The output with a copy of the elements of `source`; both reachable from the host.
  Tensor* OutputTensorCopyFrom(int i, const Tensor& source) {
    Tensor* out = Output(i, source.shape(), source.dtype());
    out->CopyFrom(source);
    return out;
  }
  // The output becomes `source` itself, sharing its memory.
  Tensor* OutputTensorAlias(int i, const Tensor& source) { return Replace(i, source); }
  void SetOutputTensor(int i, Tensor tensor) { Replace(i, std::move(tensor)); }
  template <class T>
  bool OutputIsType(int i) const {
    return Bound(outputs_, i, "output")->template IsType<T>();
  }
  Blob* OutputBlob(int i) const { return Bound(outputs_, i, "output"); }
  // Judged by memory, not by name.
  bool IsInputOutputAlias(int i, int o) const {
    const Blob &in = InputBlob(i), &out = *OutputBlob(o);
    if (&in == &out) return true;
    return in.IsType<Tensor>() && out.IsType<Tensor>() &&
           in.Get<Tensor>().SharesMemoryWith(out.Get<Tensor>());
  }

  // The completion of the latest RunAsync; INITIALIZED before. Error (kFailedPrecondition) when
  // disabled.
  Event& event() {
    if (event_disabled_)
      Throw(ErrorCode::kFailedPrecondition, "the event of ", ToString(def()), " is disabled");
    if (!event_) event_.emplace(device_);
    return *event_;
  }
  void ResetEvent() {
    if (event_) event_->Reset();
  }
  // For operators inside a chain, whose completion nobody asks for.
  void DisableEvent() { event_disabled_ = true; }
  bool IsEventDisabled() const { return event_disabled_; }
  void Wait(OperatorBase& other, int stream_id = -1) {
    if (!other.IsEventDisabled()) WaitEvent(other.event(), stream_id);
  }
  void Finish(Timeout timeout = {}) {
    if (event_) event_->Finish(timeout);
  }

  // Place in the net, -1 outside one; a failure leaves it in the workspace.
  int net_position() const { return net_position_; }
  void set_net_position(int position) { net_position_ = position; }
  void RecordLastFailedOpNetPosition() {
    if (net_position_ != -1) workspace_->last_failed_op_net_position = net_position_;
  }
  std::string getErrorMsg() const { return "Error from operator: " + Describe(); }

  // For the registry: where the kernel was registered, and which outputs may share an input's
  // memory (bit i of masks[o]; inputs past 63 may not).
  void SetRegistration(const char* file, int line, std::vector<uint64_t> inplace_masks) {
    auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def());
    identity->file = file;
    identity->line = line;
    identity_ = identity;
    inplace_masks_ = std::move(inplace_masks);
  }
  InvocationKind invocation_kind() const { return invocation_kind_; }

 protected:
  InvocationKind NextInvocationKind() const {
    return CurrentInvocation().id != 0 ? InvocationKind::kSubOperator : invocation_kind_;
  }
  // In operators that outside code brought: what they do is attributed as custom.
  void set_invocation_kind(InvocationKind kind) { invocation_kind_ = kind; }

  // Called in a catch block: rethrows what is in flight as an Error with this operator as context.
  // An Error keeps its type and identity; anything else becomes its cause.
  [[noreturn]] OPKIT_COLD void RethrowWithContext() {
    RecordLastFailedOpNetPosition();
    pending_.clear();
    try {
      throw;
    } catch (Error& error) {
      // One that came through an event is that event's, and others may be reading it: a copy gets
      // the context. A class derived from Error would be cut by copying.
      if (typeid(error) != typeid(Error)) {
        AddContext(error);
        throw;
      }
      Error copy = error;
      AddContext(copy);
      throw copy;
    } catch (const std::exception& thrown) {
      Error error(ErrorCode::kOperatorFailed, thrown.what());
      error.SetCause(std::current_exception());
      AddContext(error);
      throw error;
    } catch (...) {
      Error error(ErrorCode::kOperatorFailed, "threw something that is not a std::exception");
      error.SetCause(std::current_exception());
      AddContext(error);
      throw error;
    }
  }
  [[noreturn]] OPKIT_COLD static void ReturnedFalse() {
    Throw(ErrorCode::kOperatorFailed, "RunOnDevice returned false");
  }

  // Outputs whose tensor was replaced during the run take their place.
  void PublishOutputs() {
    if (pending_.empty()) [[likely]]
      return;
    for (Pending& pending : pending_) *pending.blob->GetMutable<Tensor>() = *pending.tensor;
    pending_.clear();
  }
  // All memory that this run may touch.
  std::vector<Storage> TouchedStorages() const {
    std::vector<Storage> out;
    for (const auto* blobs : {&inputs_, &outputs_})
      for (const Blob* blob : *blobs)
        if (blob && blob->IsType<Tensor>() && blob->Get<Tensor>().storage())
          out.push_back(blob->Get<Tensor>().storage());
    for (const Pending& pending : pending_) out.push_back(pending.tensor->storage());
    return out;
  }
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const { return identity_; }

 private:
  struct Pending {
    int output;
    Blob* blob;
    std::unique_ptr<Tensor> tensor;  // its address must not change
  };

  template <class Blobs>
  Blob* Bound(const Blobs& blobs, int i, const char* what) const {
    if (i < 0 || static_cast<size_t>(i) >= blobs.size() || !blobs[static_cast<size_t>(i)])
        [[unlikely]]
      Throw(ErrorCode::kOutOfRange, what, " ", i, " was asked for, but the node has ", blobs.size(),
            " ", what, "s",
            static_cast<size_t>(i) < blobs.size() ? " and leaves that one out" : "");
    return blobs[static_cast<size_t>(i)];
  }
  OPKIT_COLD void CheckDevice(int i, const Tensor& tensor) const {
    if (!tensor.initialized() || MemoryDevice(tensor.device()) == memory_device_) return;
    Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def().inputs()[static_cast<size_t>(i)],
          "' is on ", ToString(tensor.device()), ", but the operator runs on ", ToString(device_),
          "; copy it there first");
  }
  // Writing to `out` would overwrite an input that it does not share memory with by right: where
  // the schema pairs the two, element i of both must still be at one place.
  bool Clobbers(int o, const Tensor& out) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Blob* blob = inputs_[i];
      if (!blob || !blob->IsType<Tensor>()) continue;
      const Tensor& in = blob->Get<Tensor>();
      if (!in.SharesMemoryWith(out)) continue;
      if (!MayShare(i, o) || in.raw_data() != out.raw_data() || !in.is_dense()) return true;
    }
    return false;
  }
  bool MayShare(size_t i, int o) const {
    if (inputs_[i] == outputs_[static_cast<size_t>(o)]) return true;  // verified with the node
    if (inplace_masks_.empty()) return true;                          // built without a schema
    return i < 64 && (inplace_masks_[static_cast<size_t>(o)] >> i & 1);
  }
  Tensor* FindPending(int o) const {
    for (const Pending& pending : pending_)
      if (pending.output == o) return pending.tensor.get();
    return nullptr;
  }
  // The output becomes `next`: at once, or at the end of the run where an input would change.
  Tensor* Replace(int o, Tensor next) {
    if (Tensor* replaced = FindPending(o)) return &(*replaced = std::move(next));
    Blob* blob = OutputBlob(o);
    Tensor* out = blob->GetMutable<Tensor>();
    bool is_input = false;
    for (const Blob* input : inputs_) is_input |= input == blob;
    if (!is_input || !out->initialized()) return &(*out = std::move(next));
    pending_.push_back({o, blob, std::make_unique<Tensor>(std::move(next))});
    return pending_.back().tensor.get();
  }
  Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype) {
    Tensor next = out;
    if (MemoryDevice(next.device()) != memory_device_ || !next.is_dense())
      next = Tensor(memory_device_);
    next.SetDevice(memory_device_);
    next.Resize(shape, dtype);
    if (Clobbers(o, next)) {
      next = Tensor(memory_device_);
      next.Resize(shape, dtype);
    }
    return Replace(o, std::move(next));
  }
  std::string Describe() const { return identity_->Describe(); }
  OPKIT_COLD void AddContext(Error& error) const {
    auto name = [&](const std::vector<Blob*>& blobs, const char* what) {
      for (size_t i = 0; i < blobs.size(); ++i)
        if (error.subject() && blobs[i] && blobs[i]->IsType<Tensor>() &&
            &blobs[i]->Get<Tensor>() == error.subject())
          error.AddContext(StrCat("while accessing ", what, " ", i, " '", blobs[i]->name(), "'"));
    };
    name(inputs_, "input");
    if (error.context().empty()) name(outputs_, "output");
    bool described = false;  // by the event that it came through
    for (const std::string& line : error.context()) described |= line == Describe();
    if (!described) error.AddContext(Describe());
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && inputs_[i]->IsType<Tensor>())
        error.AddContext(
            StrCat("  input ", i, " '", inputs_[i]->name(), "': ", inputs_[i]->Get<Tensor>()));
  }

  Device device_;
  Device memory_device_;
  Workspace* workspace_;
  std::vector<Blob*> inputs_, outputs_;  // null where the node leaves one out
  std::vector<uint64_t> inplace_masks_;
  std::vector<Pending> pending_;
  detail::IntrusivePtr<const detail::OperatorIdentity> identity_;
  std::optional<Event> event_;
  int net_position_ = -1;
  bool event_disabled_ = false;
  InvocationKind invocation_kind_ = InvocationKind::kOperator;
};

}  // namespace opkit

#endif  // OPKIT_OP_OPERATOR_BASE_HPP_

// ---- opkit/op/create_operator.hpp
// CreateOperator: from a definition to an operator bound to a workspace. Verifies the node against
// its schema, then tries kernels in the order of preference until one takes it.
#ifndef OPKIT_OP_CREATE_OPERATOR_HPP_
#define OPKIT_OP_CREATE_OPERATOR_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Backend names in the order they are tried: the node's, the operator's preference, the global one,
// the plain operator.
inline EnginePref EngineOrder(const OperatorDef& def) {
  EnginePref order;
  std::string_view engines = def.engine();
  while (!engines.empty()) {
    const size_t comma = engines.find(',');
    std::string_view name = engines.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) order.emplace_back(name);
    if (!name.empty() && name != "DEFAULT") OpRegistry::Global().CheckBackend(order.back());
    engines = comma == std::string_view::npos ? std::string_view() : engines.substr(comma + 1);
  }
  for (std::string& name : OpRegistry::Global().EnginePrefs(def.type(), def.device().type))
    order.push_back(std::move(name));
  order.emplace_back("DEFAULT");
  for (std::string& name : order)
    if (name == "DEFAULT") name = kReferenceBackend;
  return order;
}

// Kernels for the node, best first. A backend nobody asked for comes last, so that an operator that
// has only such kernels still runs.
inline std::vector<const Kernel*> KernelOrder(const OperatorDef& def) {
  const auto kernels = OpRegistry::Global().FindKernels(def.type(), def.device().type);
  std::vector<const Kernel*> order;
  auto add = [&](const Kernel* kernel) {
    for (const Kernel* known : order)
      if (known == kernel) return;
    order.push_back(kernel);
  };
  for (const std::string& engine : EngineOrder(def))
    for (const Kernel* kernel : kernels)
      if (kernel->backend == engine) add(kernel);
  for (const Kernel* kernel : kernels) add(kernel);
  return order;
}

[[noreturn]] OPKIT_COLD inline void ThrowNoKernel(const OperatorDef& def,
                                                  const std::string& refused) {
  if (!refused.empty())
    Throw(ErrorCode::kUnsupported, "no kernel of operator ", ToString(def), " on ",
          ToString(def.device()), " accepts this node:", refused);
  std::string others;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    others += StrCat(others.empty() ? "" : ", ", ToString(kernel->device), " (", kernel->backend,
                     ", ", kernel->Place(), ")");
  Throw(ErrorCode::kNotFound, "operator ", ToString(def), " has no kernel for ",
        ToString(def.device()), "; it has ",
        others.empty() ? "none at all" : "kernels for " + others);
}

OPKIT_COLD inline std::string InConstructor(const OperatorDef& def, const Kernel& kernel) {
  return StrCat("in the constructor of operator ", ToString(def), ", registered at ",
                kernel.Place());
}

inline std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const OperatorDef& def) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (size_t o = 0; o < masks.size(); ++o)
    for (size_t i = 0; i < def.inputs().size() && i < 64; ++i)
      if (schema.CanInplace(static_cast<int>(i), static_cast<int>(o))) masks[o] |= uint64_t{1} << i;
  return masks;
}

// Removes the blobs that a failed construction left behind.
class OutputBlobGuard {
 public:
  OutputBlobGuard(const OperatorDef& def, Workspace* ws) : ws_(ws) {
    for (const std::string& name : def.outputs())
      if (!name.empty() && !ws->HasBlob(name)) created_.push_back(name);
  }
  ~OutputBlobGuard() {
    if (!kept_)
      for (const std::string& name : created_) ws_->RemoveBlob(name);
  }
  void Keep() { kept_ = true; }

 private:
  Workspace* ws_;
  std::vector<std::string> created_;
  bool kept_ = false;
};

}  // namespace detail

// Errors: kNotFound (unknown operator or engine, no kernel for the device, missing input blob),
// with the nearest name; kInvalidArgument (the node breaks the schema); kUnsupported (every kernel
// refused it, with each reason); kAlreadyExists (registered twice). The workspace is then as it
// was.
inline std::unique_ptr<OperatorBase> CreateOperator(const OperatorDef& def, Workspace* ws,
                                                    int net_position = -1) {
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
    detail::OutputBlobGuard guard(def, ws);
    std::string refused;
    for (const Kernel* kernel : detail::KernelOrder(def)) {
      std::unique_ptr<OperatorBase> op;
      try {
        op = const_cast<Kernel*>(kernel)->create(def, ws);
      } catch (const UnsupportedOperatorFeature& error) {
        refused += StrCat("\n  backend ", kernel->backend, ": ", error.message());
        continue;
      } catch (Error& error) {
        error.AddContext(detail::InConstructor(def, *kernel));
        throw;
      } catch (const std::exception& thrown) {
        Error error(ErrorCode::kOperatorFailed, thrown.what());
        error.SetCause(std::current_exception());
        throw error.AddContext(detail::InConstructor(def, *kernel));
      }
      if (!op) {
        refused += StrCat("\n  backend ", kernel->backend, ": its creator returned null");
        continue;
      }
      op->SetRegistration(kernel->file, kernel->line, detail::InplaceMasks(schema, def));
      op->set_net_position(net_position);
      guard.Keep();
      return op;
    }
    detail::ThrowNoKernel(def, refused);
  } catch (...) {
    if (ws && net_position != -1) ws->last_failed_op_net_position = net_position;
    throw;
  }
}

}  // namespace opkit

#endif  // OPKIT_OP_CREATE_OPERATOR_HPP_

// ---- opkit/op/dispatch_helper.hpp
// DispatchHelper: from a tensor's dtype, or a number, to a template member of the operator;
// Caffe2's spelling of DispatchDType, for operators of the class kind.
#ifndef OPKIT_OP_DISPATCH_HELPER_HPP_
#define OPKIT_OP_DISPATCH_HELPER_HPP_

namespace opkit::inline OPKIT_ABI {

// The element types that an operator has code for. GenericTensorImplementation as the last one
// sends every other dtype to DoRunWithOtherType.
template <class... Types>
struct TensorTypes {};
struct GenericTensorImplementation {};

// The numbers that an operator has special code for.
template <int64_t... Values>
struct FixedValues {};

// In RunOnDevice (the members that it calls are public; Extra are passed on in front of the type):
//
//   bool RunOnDevice() override {
//     return DispatchHelper<TensorTypes<float, double>>::call(this, Input(0));
//   }
//   template <class T> bool DoRunWithType();
//
//   return DispatchHelper<FixedValues<1, 2, 4>>::call(this, block_size_);
//   template <int64_t N> bool DoRunWithValue();          // N is -1 for any other number
template <class Cases, class... Extra>
struct DispatchHelper;

template <class... Types, class... Extra>
struct DispatchHelper<TensorTypes<Types...>, Extra...> {
  // Error (kTypeMismatch) that lists the supported dtypes.
  template <class Op>
  static bool call(Op* op, const Tensor& tensor) {
    return Dispatch(op, tensor.dtype(), &tensor);
  }
  template <class Op>
  static bool call(Op* op, DType dtype) {
    return Dispatch(op, dtype, nullptr);
  }

 private:
  template <class T, class Op>
  static bool Call(Op* op) {
    if constexpr (std::is_same_v<T, GenericTensorImplementation>) {
      return op->template DoRunWithOtherType<Extra...>();
    } else {
      static_assert(Element<T>, "TensorTypes<...> lists element types, such as float or int64_t");
      return op->template DoRunWithType<Extra..., T>();
    }
  }
  template <class Op>
  static bool Dispatch(Op* op, DType dtype, const Tensor* tensor) {
    bool (*call)(Op*) = nullptr;
    ((!call && (std::is_same_v<Types, GenericTensorImplementation> || dtype == kDTypeOf<Types>)
          ? void(call = &Call<Types, Op>)
          : void()),
     ...);
    if (!call) [[unlikely]]
      Unsupported(*op, dtype, tensor);
    return call(op);
  }
  [[noreturn]] OPKIT_COLD static void Unsupported(const OperatorBase& op, DType dtype,
                                                  const Tensor* tensor) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("operator ", op.type(), " has no code for dtype ", dtype, "; it supports ",
                       std::vector<std::string>{ToString(kDTypeOf<Types>)...}),
                tensor);
  }
};

template <int64_t... Values, class... Extra>
struct DispatchHelper<FixedValues<Values...>, Extra...> {
  template <class Op>
  static bool call(Op* op, int64_t value) {
    bool (*call)(Op*) = &Call<-1, Op>;
    ((value == Values ? void(call = &Call<Values, Op>) : void()), ...);
    return call(op);
  }

 private:
  template <int64_t Value, class Op>
  static bool Call(Op* op) {
    return op->template DoRunWithValue<Extra..., Value>();
  }
};

}  // namespace opkit

#endif  // OPKIT_OP_DISPATCH_HELPER_HPP_

// ---- opkit/op/attr_map.hpp
// AttrMap: an operator's attributes as text, which is how function operators read them; typed
// access parses. Made once when the operator is built.
#ifndef OPKIT_OP_ATTR_MAP_HPP_
#define OPKIT_OP_ATTR_MAP_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One for each type, the same in every translation unit.
template <class T>
inline constexpr char kTypeTag = 0;

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
// The shortest text that reads back as the same number; as the same float for a value that is one.
inline std::string FloatText(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? NumberText(narrow) : NumberText(value);
}

// 3, 0.1, true, text, [1, 2], ["a", "b"]; lists of numbers without loss, unlike messages.
inline std::string AttributeText(const Attribute& attribute) {
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
  explicit AttrMap(const Arguments& arguments) {
    for (const NamedAttribute& item : arguments)
      if (item.name.substr(0, 2) != "__")
        items_.emplace_back(item.name, detail::AttributeText(item.value));
  }

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
    if (!text) {
      std::vector<std::string> known;
      for (const auto& item : items_) known.push_back(item.first);
      Throw(ErrorCode::kNotFound, "no attribute '", name, "'", SuggestName(name, known));
    }
    return Parse<T>(name, *text);
  }
  std::string get(std::string_view name, const char* fallback) const {
    return get<std::string>(name, fallback);
  }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  // The same as any map of strings; made at the first call for each type and kept.
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
  struct Copy : detail::RefCounted {
    const char* tag = nullptr;
  };
  template <class Map>
  struct MapCopy : Copy {
    Map map;
  };
  template <class T>
  static T Parse(std::string_view name, const std::string& text) {
    auto read = [&] {
      if constexpr (std::is_same_v<T, std::string>) {
        return std::optional<std::string>(text);
      } else if constexpr (detail::kIsAttrList<T>) {
        return detail::ParseList<typename T::value_type>(text);
      } else {
        return detail::ParseText<T>(text);
      }
    };
    auto value = read();
    if (!value)
      Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is \"", text,
            "\", which does not read as ", kAttributeTypeOf<T>);
    return *std::move(value);
  }

  std::vector<std::pair<std::string, std::string>> items_;
  mutable std::vector<detail::IntrusivePtr<Copy>> copies_;
};

}  // namespace opkit

#endif  // OPKIT_OP_ATTR_MAP_HPP_

// ---- opkit/op/inference_cache.hpp
// InferenceCache: shape inference of a node that is run again and again. It is repeated only when
// an input's dtype or shape has changed, or when the result came from an input's data.
#ifndef OPKIT_OP_INFERENCE_CACHE_HPP_
#define OPKIT_OP_INFERENCE_CACHE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

using InputPointers = std::span<const Tensor* const>;  // null where the node leaves an input out

class InferenceCache {
 public:
  // The last result that was kept holds for these inputs.
  bool IsFresh(InputPointers inputs) const {
    if (!fresh_) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != seen_[i].dtype || inputs[i]->shape() != seen_[i].shape))
        return false;
    return true;
  }
  // What inference says of the outputs. `before_data` is called before the first read of an input's
  // elements, which may still be on their way. Nothing is fresh until Keep is called.
  OPKIT_COLD std::vector<TensorInfo> Infer(const OpSchema& schema, const OperatorDef& def,
                                           InputPointers inputs, FunctionRef<void()> before_data) {
    fresh_ = false;
    std::vector<TensorInfo> infos;
    std::vector<Seen> seen;
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
      infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    }
    for (const Tensor* input : inputs)
      seen.push_back(input ? Seen{input->dtype(), input->shape()} : Seen());
    data_read_ = false;
    auto data_of = [&](int i) -> const Tensor* {
      const Tensor* input = inputs[static_cast<size_t>(i)];
      if (!input || !input->initialized() || !IsHostAccessible(input->device().type))
        return nullptr;
      if (!data_read_) before_data();
      data_read_ = true;
      return input;
    };
    InferenceContext context(def, std::move(infos));
    context.ReadConstantsFrom(data_of);
    schema.Infer(context);
    seen_ = std::move(seen);
    return std::move(context.outputs());
  }
  // The result is good: it holds until an input changes, unless it came from an input's data.
  void Keep() { fresh_ = !data_read_; }

 private:
  struct Seen {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  std::vector<Seen> seen_;
  bool data_read_ = false;
  bool fresh_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_CACHE_HPP_

// ---- opkit/op/invoke.hpp
// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator is
// the same call with everything but the run done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

namespace opkit::inline OPKIT_ABI {

struct InvokeOptions {
  std::optional<Device> device = {};  // default: that of the first input
  std::string engine = {};            // backends to try; default: the registry's order
  int num_outputs = -1;               // needed only where the schema leaves it open
};

// An operator ready to be called again and again: schema, kernel and attributes are settled, and
// while the inputs' dtypes and shapes stay the same, so is inference. Nothing of the caller's is
// held between calls. A call returns when the work is done. Not synchronised: one thread at a time.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
//   axpy.Run({x, y}, outputs);                    // into tensors of the caller's: no allocation
//
// A template, so that programs without eager calls do not compile it.
template <class Base>
class BasicResolvedOperator {
 public:
  // Errors: as CreateOperator; kInvalidArgument when the number of outputs is open.
  BasicResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                        const InvokeOptions& options = {})
      : BasicResolvedOperator(op, AllPresent(op, num_inputs), std::move(args), options) {}
  // `present[i]` false leaves optional input i out.
  OPKIT_COLD BasicResolvedOperator(const std::string& op, const std::vector<bool>& present,
                                   Arguments args, const InvokeOptions& options)
      : schema_(&OpRegistry::Global().GetSchema(op)), workspace_(std::make_unique<Workspace>()) {
    def_ = OperatorDef(op, {}, {}, std::move(args));
    def_.Device(options.device.value_or(Device{})).Engine(options.engine);
    for (size_t i = 0; i < present.size(); ++i) {
      const std::string name = present[i] ? StrCat("input ", i) : std::string();
      def_.Input(name);
      inputs_.push_back(present[i] ? workspace_->CreateTensor(name) : nullptr);
    }
    int num_outputs = options.num_outputs;
    if (num_outputs < 0)
      num_outputs = schema_->CalculateOutput(static_cast<int>(present.size()), def_.args());
    if (num_outputs < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " has ", schema_->expected_outputs(),
            " outputs; say how many with InvokeOptions::num_outputs");
    for (int i = 0; i < num_outputs; ++i) def_.Output(StrCat("output ", i));
    op_ = CreateOperator(def_, workspace_.get());
    for (const std::string& name : def_.outputs()) outputs_.push_back(workspace_->GetBlob(name));
  }

  // Runs on `inputs` and returns new outputs. Errors: kInvalidArgument for a wrong count or what
  // inference finds wrong with the shapes; whatever the operator throws.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) {
    std::vector<Tensor> results(outputs_.size());
    Run(inputs, results);
    return results;
  }
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span(inputs.begin(), inputs.size()));
  }
  // Runs into `outputs`, whose memory is reused where it fits. On an Error they are as they were,
  // but for contents that the operator had begun to write.
  void Run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      Throw(ErrorCode::kInvalidArgument, "operator ", def_.type(), " was resolved for ",
            inputs_.size(), " inputs and ", outputs_.size(), " outputs, but called with ",
            inputs.size(), " and ", outputs.size());
    const Release release{*this};
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs_[i]) *inputs_[i] = inputs[i];
    if (schema_->has_inference() && !cache_.IsFresh(inputs_)) [[unlikely]] {
      cache_.Infer(*schema_, def_, inputs_, [] {});
      cache_.Keep();
    }
    for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
    op_->Run();
    for (const Blob* output : outputs_)
      if (!output->IsType<Tensor>()) [[unlikely]]
        Throw(ErrorCode::kTypeMismatch, "'", output->name(), "' of operator ", def_.type(),
              " is not a tensor; run it in a workspace to get it");
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o] = std::move(*outputs_[o]->GetMutable<Tensor>());
  }

  OperatorBase& op() { return *op_; }

 private:
  static std::vector<bool> AllPresent(const std::string& op, int num_inputs) {
    if (num_inputs < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
    return std::vector<bool>(static_cast<size_t>(num_inputs), true);
  }
  // Leaves the workspace's tensors without memory, and unspecified until the next call sets them.
  struct Release {
    BasicResolvedOperator& self;
    ~Release() {
      for (Tensor* input : self.inputs_)
        if (input) const Tensor dropped = std::move(*input);
      for (Blob* output : self.outputs_)
        if (output->IsType<Tensor>())
          const Tensor dropped = std::move(*output->GetMutable<Tensor>());
    }
  };

  const OpSchema* schema_;
  std::unique_ptr<Workspace> workspace_;
  OperatorDef def_;
  std::unique_ptr<Base> op_;
  std::vector<Tensor*> inputs_;  // in the workspace; null where left out
  std::vector<Blob*> outputs_;
  detail::InferenceCache cache_;
};
using ResolvedOperator = BasicResolvedOperator<OperatorBase>;

// Calls operator `op` once, with the default order of kernels on the device of the first input. A
// default-constructed Tensor leaves an optional input out. Errors: as CreateOperator and Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
template <class Resolved = ResolvedOperator>
std::vector<Tensor> Invoke(const std::string& op, const std::vector<Tensor>& inputs,
                           Arguments args = {}, InvokeOptions options = {}) {
  std::vector<bool> present;
  for (const Tensor& input : inputs) {
    present.push_back(input.dtype() != DType::kUndefined);
    if (!options.device && present.back()) options.device = input.device();
  }
  return Resolved(op, present, std::move(args), options)(inputs);
}

}  // namespace opkit

#endif  // OPKIT_OP_INVOKE_HPP_

// ---- opkit/op/op_tensor.hpp
// OpTensor and Status: what a function operator is called with and what it answers. Plain views
// that cost nothing to make, so that the same function serves the program and a shared library.
#ifndef OPKIT_OP_OP_TENSOR_HPP_
#define OPKIT_OP_OP_TENSOR_HPP_

namespace opkit::inline OPKIT_ABI {

// What a function may answer instead of a Status.
enum ReturnValue : int { FAIL = 0, SUCCESS = 1 };
using MXReturnValue = ReturnValue;

// Success, or a failure with its text. Making a success costs nothing.
class [[nodiscard]] OpStatus {
 public:
  OpStatus() = default;
  OpStatus(ReturnValue value) : ok_(value == SUCCESS) {}  // NOLINT: `return SUCCESS;`
  template <class... Parts>
  static OpStatus Failure(const Parts&... parts) {
    OpStatus status(FAIL);
    status.message_ = StrCat(parts...);
    return status;
  }
  bool ok() const { return ok_; }
  const std::string& message() const { return message_; }

 private:
  bool ok_ = true;
  std::string message_;
};
#ifndef Status  // X11 makes it a macro for int, which functions may return as well
using Status = OpStatus;
#endif

// Text that explains a FAIL, one for each thread: OPKIT_ERROR_MSG << "k is " << k; return FAIL;
// It is empty at the start of every call.
class ErrorMessageStream {
 public:
  template <class T>
  ErrorMessageStream& operator<<(const T& value) {
    text_ += StrCat(value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  friend class ErrorMessageScope;
  std::string text_;
};
inline ErrorMessageStream& ErrorMessage() {
  static thread_local ErrorMessageStream stream;
  return stream;
}
// An empty message for the scope's life; the one before returns with its end.
class ErrorMessageScope {
 public:
  ErrorMessageScope() : saved_(std::exchange(ErrorMessage().text_, {})) {}
  ErrorMessageScope(const ErrorMessageScope&) = delete;
  ErrorMessageScope& operator=(const ErrorMessageScope&) = delete;
  ~ErrorMessageScope() { ErrorMessage().text_ = std::move(saved_); }

 private:
  std::string saved_;
};

// How a result is to be stored.
enum class OpReq : uint8_t {
  kNone,     // nobody wants it: there is no memory
  kWrite,    //
  kInplace,  // the memory is that of an input, which the schema allows
  kAdd,      // onto what is there; only for operators with setAcceptAdd()
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
  // Views memory that outlives it; `strides` in elements.
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : data_(data),
        dims_(shape.data()),
        strides_(strides.data()),
        rank_(static_cast<int32_t>(shape.size())),
        device_(device),
        dtype_(dtype),
        req_(req) {}

  // The first element; element (i, j, …) is at data[i * strides[0] + j * strides[1] + …]. Writable
  // in outputs and in mutated inputs. Error (kTypeMismatch) for another T.
  template <Element T>
  T* data() const {
    if (dtype_ != kDTypeOf<T>) [[unlikely]]
      WrongType(kDTypeOf<T>);
    return static_cast<T*>(data_);
  }
  void* raw_data() const { return data_; }
  bool has_value() const { return dtype_ != DType::kUndefined; }

  std::span<const int64_t> shape() const { return {dims_, static_cast<size_t>(rank_)}; }
  // In elements.
  std::span<const int64_t> strides() const { return {strides_, static_cast<size_t>(rank_)}; }
  int rank() const { return rank_; }
  int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // Number of elements.
  int64_t size() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[i];
    return count;
  }
  int64_t nbytes() const { return size() * ItemSize(dtype_); }
  bool is_dense() const {
    int64_t step = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      if (dims_[i] != 1 && strides_[i] != step) return false;
      step *= dims_[i] > 0 ? dims_[i] : 1;
    }
    return true;
  }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  OpReq req() const { return req_; }

  friend std::string ToString(const OpTensor& tensor) {
    if (!tensor.has_value()) return "(none)";
    return StrCat(tensor.dtype_, std::vector<int64_t>(tensor.dims_, tensor.dims_ + tensor.rank_),
                  " on ", tensor.device_);
  }

  // For the toolkit: the tensor that is viewed, where there is one.
  const Tensor* tensor() const { return tensor_; }
  void Bind(const Tensor* tensor) { tensor_ = tensor; }

 private:
  [[noreturn]] OPKIT_COLD void WrongType(DType wanted) const {
    if (!has_value())
      Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
            "; ask has_value() first");
    Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
  }

  void* data_ = nullptr;
  const int64_t* dims_ = nullptr;
  const int64_t* strides_ = nullptr;
  int32_t rank_ = 0;
  Device device_;
  DType dtype_ = DType::kUndefined;
  OpReq req_ = OpReq::kNone;
  const Tensor* tensor_ = nullptr;
};
using MXTensor = OpTensor;

}  // namespace opkit

// Explains the FAIL that follows: OPKIT_ERROR_MSG << "expected 2 axes, found " << rank;
#define OPKIT_ERROR_MSG ::opkit::ErrorMessage()

#endif  // OPKIT_OP_OP_TENSOR_HPP_

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

// ---- opkit/op/op_resource.hpp
// OpResource: what a function operator gets from its host: memory, scratch, threads, the stream,
// random numbers, logging, sub-events, and every other operator by name.
#ifndef OPKIT_OP_OP_RESOURCE_HPP_
#define OPKIT_OP_OP_RESOURCE_HPP_

namespace opkit::inline OPKIT_ABI {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
inline const char* ToString(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}
// Where operators' log lines go. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);

namespace detail {

inline void LogToStderr(LogLevel level, std::string_view op, std::string_view text) {
  std::fprintf(stderr, "opkit %s: %.*s: %.*s\n", ToString(level), static_cast<int>(op.size()),
               op.data(), static_cast<int>(text.size()), text.data());
}
inline constinit std::atomic<LogHook> g_log_hook{&LogToStderr};

// A tensor with a view of it that stays in place.
struct TensorSlot : RefCounted {
  Tensor tensor;
  Shape shape;
  Dims strides;
  OpTensor view;

  // Views `tensor` as it is now.
  void Bind(OpReq req) { Bind(tensor, req); }
  // True when the dtype or the shape is another than the last time.
  bool Bind(const Tensor& viewed, OpReq req) {
    const bool changed = view.dtype() != viewed.dtype() || shape != viewed.shape();
    if (changed) shape = viewed.shape();
    if (changed || !dense || !viewed.is_dense()) strides = viewed.strides();
    dense = viewed.is_dense();
    view = OpTensor(viewed.raw_mutable_data(), viewed.dtype(),
                    std::span(shape.data(), static_cast<size_t>(shape.rank())),
                    {strides.data(), static_cast<size_t>(strides.size())}, viewed.device(), req);
    view.Bind(&viewed);
    return changed;
  }
  bool dense = false;
};

// Another operator that this one calls, kept from call to call.
template <class Resolved>
struct InvokedOperator : RefCounted {
  InvokedOperator(const std::string& name, const std::vector<bool>& inputs,
                  const Arguments& arguments, const InvokeOptions& options)
      : op(name), args(arguments), present(inputs), resolved(name, inputs, arguments, options) {}
  std::string op;
  Arguments args;
  std::vector<bool> present;
  Resolved resolved;
};

// What the handles of one operator share.
struct ResourceState {
  std::string_view op;
  Device device;
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  Storage scratch;
  uint64_t random_key = 0, run = 0;
  bool random_drawn = false;
  RandomGenerator random;
  Mutex mutex;  // guards `memory`
  std::vector<Storage> memory;
  std::vector<IntrusivePtr<TensorSlot>> temporaries;
  std::vector<IntrusivePtr<InvokedOperator<ResolvedOperator>>> invoked;

  uint64_t RandomSeedOfRun() const {
    return MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ random_key) + run;
  }
};

template <class View>
Tensor ToTensor(const View& view) {
  if (!view.has_value()) return {};
  if (view.tensor()) return *view.tensor();
  int64_t last = 0;
  for (int i = 0; i < view.rank(); ++i)
    last += view.dim(i) > 0 ? (view.dim(i) - 1) * view.strides()[static_cast<size_t>(i)] : 0;
  return Tensor(AdoptStorage(MemoryDevice(view.device()), view.raw_data(),
                             (last + 1) * ItemSize(view.dtype())),
                0, Shape(view.shape()), view.dtype(), Dims(view.strides()));
}

// Runs into `wanted`'s memory: an operator that could not use it has its result copied there.
template <class Resolved>
void RunInto(Resolved& resolved, std::string_view op, std::span<const Tensor> inputs,
             std::span<const Tensor> wanted) {
  std::vector<Tensor> results(wanted.begin(), wanted.end());
  resolved.Run(inputs, results);
  for (size_t o = 0; o < wanted.size(); ++o) {
    const Tensor &got = results[o], &want = wanted[o];
    if (got.dtype() != want.dtype() || got.shape() != want.shape())
      Throw(ErrorCode::kInvalidArgument, "invoke(\"", op, "\"): output ", o, " is ", got,
            ", but the tensor given for it is ", want);
    if (got.raw_data() == want.raw_data() || want.nbytes() == 0) continue;
    if (!want.is_dense())
      Throw(ErrorCode::kUnsupported, "invoke(\"", op, "\"): output ", o, ", ", want,
            ", is strided; give it a dense tensor and copy from there");
    const Tensor dense = got.is_dense() ? got : got.Contiguous();
    std::memmove(want.raw_mutable_data(), dense.raw_data(), static_cast<size_t>(want.nbytes()));
  }
}

}  // namespace detail

// Replaces the log hook and returns the one before; null goes back to stderr.
inline LogHook SetLogHook(LogHook hook) {
  return detail::g_log_hook.exchange(hook ? hook : &detail::LogToStderr, std::memory_order_acq_rel);
}

// A named part of an operator's own code, for the scope's life: work in it has an identity of its
// own, below the operator's.
class OpScope {
 public:
  explicit OpScope(const char* name) : scope_(InvocationKind::kUserCode), name_(name) {}
  const char* name() const { return name_; }

 private:
  InvocationScope scope_;
  const char* name_;
};

// A handle, copied freely, valid during the call it was given to. Members may be called from any
// thread of the call, except invoke(), temporary() and random(). A template, so that only what is
// called is compiled.
template <class State>
class BasicOpResource {
 public:
  explicit BasicOpResource(State* state) : state_(state) {}

  // `bytes` bytes of the device's memory, aligned to 64; each call its own. Freed when the operator
  // ends, also when it fails; on an asynchronous device when the stream has come past it. Null for
  // 0 bytes. Errors: kInvalidArgument, kOutOfMemory.
  void* alloc(int64_t bytes) const {
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "alloc(", bytes, ") in operator ", state_->op);
    Storage storage = AllocateStorage(MemoryDevice(state_->device), bytes);
    void* data = storage->data();
    detail::MutexLock lock(state_->mutex);
    state_->memory.push_back(std::move(storage));
    return data;
  }
  template <class T>
  T* alloc(int64_t count) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes))
      Throw(ErrorCode::kOutOfRange, "alloc of ", count, " elements in operator ", state_->op);
    return static_cast<T*>(alloc(bytes));
  }
  // A tensor in such memory.
  OpTensor temporary(std::span<const int64_t> shape, DType dtype) const {
    auto slot = detail::MakeIntrusive<detail::TensorSlot>();
    slot->tensor = Tensor(Shape(shape), dtype, MemoryDevice(state_->device));
    slot->Bind(OpReq::kWrite);
    state_->temporaries.push_back(std::move(slot));
    return state_->temporaries.back()->view;
  }
  OpTensor temporary(std::initializer_list<int64_t> shape, DType dtype) const {
    return temporary(std::span(shape.begin(), shape.size()), dtype);
  }

  // The memory declared by setScratch, undefined at the start of every run; null without.
  void* scratch() const { return state_->scratch ? state_->scratch->data() : nullptr; }
  int64_t scratch_bytes() const { return state_->scratch ? state_->scratch->nbytes() : 0; }

  Device device() const { return state_->device; }
  // The CPUStream or the cudaStream_t that work goes to; null on the CPU.
  void* stream() const { return state_->stream; }
  template <class T>
  T* stream() const {
    return static_cast<T*>(state_->stream);
  }
  // Runs `work` at its place in the stream; on the CPU, now. What it captures is copied.
  template <class F>
  void launch(F work) const {
    if (!state_->launch) NotOnThisDevice("launch");
    if (!state_->asynchronous) return state_->launch(state_->context, std::move(work));
    state_->launch(
        state_->context, [work = std::move(work), op = std::string(state_->op)]() mutable {
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
        });
  }
  // f(i) for every i in [0, n) on the host's threads; at its place in the stream where there is
  // one.
  template <class F>
  void parallel_for(int64_t n, F f, int64_t grain = kAutoGrain) const {
    static_assert(IndexBody<F>, "parallel_for: the body must be callable as f(int64_t index)");
    if (!state_->asynchronous) return ParallelFor(n, f, grain);
    if (!state_->launch || !IsHostAccessible(state_->device.type)) NotOnThisDevice("parallel_for");
    launch([n, f = std::move(f), grain]() mutable { ParallelFor(n, f, grain); });
  }

  // One sequence for each run, whose numbers SetSeed and the operator's name decide.
  RandomGenerator& random() const {
    if (!state_->random_drawn) state_->random = random(0);
    state_->random_drawn = true;
    return state_->random;
  }
  // Independent sequences, for instance one for each row of a parallel loop.
  RandomGenerator random(uint64_t stream) const {
    return RandomGenerator(state_->RandomSeedOfRun(), stream);
  }

  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) const {
    detail::g_log_hook.load(std::memory_order_acquire)(level, state_->op, StrCat(parts...));
  }
  [[nodiscard]] OpScope scope(const char* name) const { return OpScope(name); }

  // Runs another operator on these tensors, writing into the outputs given. Kept ready from one run
  // to the next. On a CPU stream it runs at its place in the stream. Errors: as Invoke;
  // kInvalidArgument when an output has another dtype or shape than the result.
  //
  //   res.invoke("Add", {inputs[0], inputs[1]}, {outputs[0]});
  void invoke(std::string_view op, std::span<const OpTensor> inputs,
              std::span<const OpTensor> outputs, Arguments args = {}) const {
    std::vector<Tensor> ins, outs;
    for (const OpTensor& input : inputs) ins.push_back(detail::ToTensor(input));
    for (const OpTensor& output : outputs) outs.push_back(detail::ToTensor(output));
    if (!state_->asynchronous) {
      detail::RunInto(Resolve(op, ins, outs.size(), args), op, ins, outs);
    } else if (state_->launch && IsHostAccessible(state_->device.type)) {
      launch([op = std::string(op), ins = std::move(ins), outs = std::move(outs),
              args = std::move(args)] {
        ResolvedOperator resolved(op, Present(ins), args, Options(outs.size(), Device{}));
        detail::RunInto(resolved, op, ins, outs);
      });
    } else {
      NotOnThisDevice("invoke");
    }
  }
  void invoke(std::string_view op, std::initializer_list<OpTensor> inputs,
              std::initializer_list<OpTensor> outputs, Arguments args = {}) const {
    invoke(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
           std::move(args));
  }

 private:
  static std::vector<bool> Present(const std::vector<Tensor>& tensors) {
    std::vector<bool> present;
    for (const Tensor& tensor : tensors) present.push_back(tensor.dtype() != DType::kUndefined);
    return present;
  }
  static InvokeOptions Options(size_t num_outputs, Device device) {
    InvokeOptions options;
    options.device = device;
    options.num_outputs = static_cast<int>(num_outputs);
    return options;
  }
  ResolvedOperator& Resolve(std::string_view op, const std::vector<Tensor>& inputs,
                            size_t num_outputs, const Arguments& args) const {
    std::vector<bool> present = Present(inputs);
    for (const auto& known : state_->invoked)
      if (known->op == op && known->args == args && known->present == present &&
          static_cast<size_t>(known->resolved.op().OutputSize()) == num_outputs)
        return known->resolved;
    state_->invoked.push_back(detail::MakeIntrusive<detail::InvokedOperator<ResolvedOperator>>(
        std::string(op), present, args, Options(num_outputs, state_->device)));
    return state_->invoked.back()->resolved;
  }
  [[noreturn]] OPKIT_COLD void NotOnThisDevice(const char* what) const {
    Throw(ErrorCode::kUnsupported, what, " in operator ", state_->op, " is not possible on ",
          state_->device, "; issue the work on stream() yourself");
  }

  State* state_;
};
using OpResource = BasicOpResource<detail::ResourceState>;

}  // namespace opkit

#endif  // OPKIT_OP_OP_RESOURCE_HPP_

// ---- opkit/op/function_signature.hpp
// The signatures that function operators may have, read at compile time and adapted to one erased
// form each. The fast forms are passed through; the others copy maps and vectors at every call.
#ifndef OPKIT_OP_FUNCTION_SIGNATURE_HPP_
#define OPKIT_OP_FUNCTION_SIGNATURE_HPP_

namespace opkit::inline OPKIT_ABI {

// Where an operator with state will run.
struct OpContext {
  Device device;
};

// An operator that keeps something between its runs. Made by setCreateOpState's function once for
// each operator instance, and destroyed with it. Both members allocate their vectors at every call.
class StatefulOp {
 public:
  virtual ~StatefulOp() = default;
  virtual int Forward(std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
                      const OpResource& resource) = 0;
  // Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs.
  virtual int Backward(std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
                       const OpResource& resource) {
    static_cast<void>(inputs), static_cast<void>(outputs), static_cast<void>(resource);
    OPKIT_ERROR_MSG << "its StatefulOp does not override Backward";
    return FAIL;
  }
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
    UniqueFunction<OpStatus(const AttrMap&, const OpContext&, std::unique_ptr<StatefulOp>&)>;
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

template <class F, class... Args>
OpStatus CallForStatus(F& f, Args&&... args) {
  using R = FunctionReturn<F>;
  if constexpr (std::is_void_v<R>) {
    f(std::forward<Args>(args)...);
    return {};
  } else if constexpr (std::is_same_v<R, OpStatus>) {
    return f(std::forward<Args>(args)...);
  } else {
    const int value = static_cast<int>(f(std::forward<Args>(args)...));
    if (value == SUCCESS || value == FAIL) return static_cast<ReturnValue>(value);
    return OpStatus::Failure("it returned ", value, "; 1 is SUCCESS and 0 is FAIL");
  }
}

// P without reference or pointer, where it is a T passed by value, reference or pointer.
template <class P>
using Pointee = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<P>>>;
template <class P>
inline constexpr bool kIsPassed =
    !std::is_rvalue_reference_v<P> &&
    !(std::is_reference_v<P> && std::is_pointer_v<std::remove_reference_t<P>>);
// What the function writes to P reaches the caller.
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

// The state is adopted at once, so that it is freed also when the function fails after making it.
struct StateOut {
  std::unique_ptr<StatefulOp>& owner;
  StatefulOp* raw = nullptr;
  ~StateOut() {
    if (raw) owner.reset(raw);
  }
};
template <class P>
inline constexpr bool kIsStateOut =
    std::is_same_v<P, StatefulOp**> || std::is_same_v<P, std::unique_ptr<StatefulOp>*>;
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
template <class F, class A, class... Rest>
CreateStateFunction MakeCreateState(F f, TypeList<A, Rest...>) {
  return [f = std::move(f)](const AttrMap& attrs, const OpContext& context,
                            std::unique_ptr<StatefulOp>& state) mutable {
    StateOut out{state};
    auto pass = [&]<class P>(std::type_identity<P>) -> decltype(auto) {
      if constexpr (std::is_same_v<P, StatefulOp**>) {
        return &out.raw;
      } else if constexpr (std::is_same_v<P, std::unique_ptr<StatefulOp>*>) {
        return &state;
      } else {
        return (context);
      }
    };
    return CallForStatus(f, PassAttrs<A>(attrs), pass(std::type_identity<Rest>{})...);
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

#endif  // OPKIT_OP_FUNCTION_SIGNATURE_HPP_

// ---- opkit/op/function_record.hpp
// FunctionOpRecord: an operator given by functions, every one in its erased form. What REGISTER_OP
// fills in, and a library can; schema, kernels and gradient are derived from it.
#ifndef OPKIT_OP_FUNCTION_RECORD_HPP_
#define OPKIT_OP_FUNCTION_RECORD_HPP_

namespace opkit::inline OPKIT_ABI {

// The functions for one device type.
struct FunctionDevice {
  DeviceType type = DeviceType::kCPU;
  ForwardFunction forward, backward;
  CreateStateFunction create_state;  // where set, its object is called instead of the two
};

// Filled in during registration and read-only afterwards; called from several threads.
struct FunctionOpRecord : detail::RefCounted {
  std::string name;
  const char* file = "";
  int line = 0;
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
  std::string problem;  // what is wrong with the registration; reported when the operator is used

  FunctionDevice* Find(DeviceType type) {
    for (FunctionDevice& device : devices)
      if (device.type == type) return &device;
    return nullptr;
  }
  bool HasBackward() const {
    for (const FunctionDevice& device : devices)
      if (device.backward || device.create_state) return true;
    return false;
  }
};

// Whether an operator runs the forward or the backward functions of its record.
enum class FunctionPass : uint8_t { kForward, kBackward };

namespace detail {

using FunctionRecord = IntrusivePtr<FunctionOpRecord>;

template <class Record>
[[noreturn]] OPKIT_COLD void ThrowFunctionFailed(const Record& record, const char* what,
                                                 const OpStatus& status) {
  std::string text = status.message();
  if (const std::string& more = ErrorMessage().text(); !more.empty())
    text += (text.empty() ? "" : ": ") + more;
  if (text.empty()) text = "it returned FAIL; say why with OPKIT_ERROR_MSG << \"…\"";
  Throw(ErrorCode::kOperatorFailed, what, " of operator ", record.name, " failed: ", text);
}

// Calls one of the record's functions: what it fails with or throws becomes an Error that names it.
template <class Record, class Call>
void CallFunction(const Record& record, const char* what, Call&& call) {
  ErrorMessageScope message;
  OpStatus status;
  try {
    status = call();
  } catch (Error& error) {
    error.AddContext(StrCat("in ", what, " of operator ", record.name));
    throw;
  } catch (const std::exception& thrown) {
    Error error(ErrorCode::kOperatorFailed,
                StrCat(what, " of operator ", record.name, " threw: ", thrown.what()));
    error.SetCause(std::current_exception());
    throw error;
  } catch (...) {
    Error error(ErrorCode::kOperatorFailed, StrCat(what, " of operator ", record.name,
                                                   " threw something that is not a "
                                                   "std::exception"));
    error.SetCause(std::current_exception());
    throw error;
  }
  if (!status.ok()) [[unlikely]]
    ThrowFunctionFailed(record, what, status);
}
// As above for inference while something is still unknown, where a failure only means: not yet.
template <class Record, class Call>
bool TryFunction(const Record& record, const char* what, bool all_known, Call&& call) {
  if (all_known) {
    CallFunction(record, what, call);
    return true;
  }
  ErrorMessageScope message;
  try {
    return call().ok();
  } catch (...) {
    return false;
  }
}

// {inputs, outputs} of the operator; -1 where parseAttrs leaves one open.
template <class Record>
std::pair<int, int> FunctionArity(Record& record, const AttrMap& attrs) {
  int inputs = -1, outputs = -1;
  if (!record.problem.empty()) Throw(ErrorCode::kInvalidArgument, record.problem);
  if (record.parse_attrs)
    CallFunction(record, "parseAttrs",
                 [&] { return record.parse_attrs(attrs, &inputs, &outputs); });
  return {inputs, outputs};
}

template <class Record>
std::vector<int> FunctionMutatedInputs(Record& record, const AttrMap& attrs) {
  std::vector<int> inputs;
  if (record.mutate_inputs)
    CallFunction(record, "mutateInputs", [&] { return record.mutate_inputs(attrs, inputs); });
  for (int input : inputs)
    if (input < 0)
      Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", record.name, " names input ",
            input);
  return inputs;
}

template <class AnyShape>
std::vector<int64_t> KnownExtents(const AnyShape& shape) {
  std::vector<int64_t> extents;
  if (shape.has_rank())
    for (const Dim& dim : shape.dims()) extents.push_back(dim.is_known() ? dim.value() : -1);
  return extents;
}
template <class Infos>
ShapeVectors KnownShapes(const Infos& infos) {
  ShapeVectors shapes;
  for (const TensorInfo& info : infos) shapes.push_back(KnownExtents(info.shape));
  return shapes;
}
template <class Extents>
SymbolicShape ShapeOfExtents(const Extents& extents) {
  std::vector<Dim> dims;
  for (int64_t extent : extents) dims.push_back(extent < 0 ? Dim() : Dim(extent));
  return SymbolicShape(std::move(dims));
}
template <class Record>
void CheckCount(const Record& record, const char* function, const char* what, size_t found,
                size_t expected) {
  if (found != expected)
    Throw(ErrorCode::kInvalidArgument, function, " of operator ", record.name, " answered for ",
          found, " ", what, ", but the node has ", expected);
}

// Without setInferType every output has the dtype of the first input.
template <class Record>
void InferFunctionTypes(Record& record, const AttrMap& attrs, InferenceContext& context) {
  if (!record.infer_type) {
    for (int o = 0; o < context.num_outputs() && context.num_inputs() > 0; ++o)
      context.SetOutput(o, context.input_dtype(0), {});
    return;
  }
  std::vector<DType> inputs, outputs;
  bool all_known = true;
  for (int i = 0; i < context.num_inputs(); ++i) {
    inputs.push_back(context.input_dtype(i));
    all_known &= inputs.back() != DType::kUndefined || !context.HasInput(i);
  }
  for (const TensorInfo& output : context.outputs()) outputs.push_back(output.dtype);
  const size_t num_inputs = inputs.size(), num_outputs = outputs.size();
  if (!TryFunction(record, "inferType", all_known,
                   [&] { return record.infer_type(attrs, inputs, outputs); }))
    return;
  CheckCount(record, "inferType", "inputs", inputs.size(), num_inputs);
  CheckCount(record, "inferType", "outputs", outputs.size(), num_outputs);
  for (size_t i = 0; i < num_inputs; ++i)
    if (context.HasInput(static_cast<int>(i))) context.SetInput(static_cast<int>(i), inputs[i], {});
  for (size_t o = 0; o < num_outputs; ++o) context.SetOutput(static_cast<int>(o), outputs[o], {});
}

// An empty answer for an output is a scalar when the ranks of all inputs are known, and unknown
// otherwise.
template <class Record>
void InferFunctionShapes(Record& record, const AttrMap& attrs, InferenceContext& context) {
  if (!record.infer_shape) return;
  bool ranks_known = true, all_known = true, anything = context.num_inputs() == 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    const SymbolicShape& shape = context.input_shape(i);
    ranks_known &= shape.has_rank();
    all_known &= shape.is_known();
    anything |= shape.has_rank();
  }
  for (const TensorInfo& output : context.outputs()) anything |= output.shape.has_rank();
  if (!anything) return;
  ShapeVectors inputs = KnownShapes(context.inputs()), outputs = KnownShapes(context.outputs());
  const size_t num_inputs = inputs.size(), num_outputs = outputs.size();
  if (!TryFunction(record, "inferShape", all_known,
                   [&] { return record.infer_shape(attrs, inputs, outputs); }))
    return;
  CheckCount(record, "inferShape", "inputs", inputs.size(), num_inputs);
  CheckCount(record, "inferShape", "outputs", outputs.size(), num_outputs);
  for (int i = 0; i < context.num_inputs(); ++i)
    if (const auto& extents = inputs[static_cast<size_t>(i)];
        context.HasInput(i) && !extents.empty())
      context.SetInput(i, DType::kUndefined, ShapeOfExtents(extents));
  for (int o = 0; o < context.num_outputs(); ++o)
    if (const auto& extents = outputs[static_cast<size_t>(o)]; ranks_known || !extents.empty())
      context.SetOutput(o, DType::kUndefined, ShapeOfExtents(extents));
}

template <class Record>
void InferFunction(Record& record, const AttrMap& attrs, FunctionPass pass,
                   InferenceContext& context) {
  if (pass == FunctionPass::kForward) {
    InferFunctionTypes(record, attrs, context);
    InferFunctionShapes(record, attrs, context);
    return;
  }
  // Output gradients, inputs, outputs -> input gradients.
  const int inputs = context.num_outputs(), outputs = (context.num_inputs() - inputs) / 2;
  auto same = [&](int value, int gradient_in, int gradient_out) {
    if (!context.HasInput(value)) return;
    const TensorInfo info = context.input(value);
    if (gradient_out >= 0) context.SetOutput(gradient_out, info.dtype, info.shape);
    if (gradient_in >= 0 && context.HasInput(gradient_in))
      context.SetInput(gradient_in, info.dtype, info.shape);
  };
  for (int i = 0; i < inputs; ++i) same(outputs + i, -1, i);
  for (int o = 0; o < outputs; ++o) same(outputs + inputs + o, o, -1);
}

// Bytes of scratch for inputs whose shapes are all known.
template <class Record>
int64_t FunctionScratch(Record& record, const AttrMap& attrs, std::span<const TensorInfo> inputs) {
  if (!record.scratch) return 0;
  int64_t bytes = 0;
  CallFunction(record, "setScratch's function", [&] {
    bytes = record.scratch(attrs, KnownShapes(inputs));
    return bytes >= 0 ? OpStatus() : OpStatus::Failure("it asked for ", bytes, " bytes");
  });
  return bytes;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_RECORD_HPP_

// ---- opkit/op/operator.hpp
// Operator<Context>: the class that op authors derive from. It owns the device context and turns
// RunOnDevice into Run (to completion) and RunAsync (issued, completing through the event).
#ifndef OPKIT_OP_OPERATOR_HPP_
#define OPKIT_OP_OPERATOR_HPP_

namespace opkit::inline OPKIT_ABI {

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
  Operator(const OperatorDef& def, Workspace* ws) : OperatorBase(def, ws), context_(def.device()) {}

  // The operator's work, on the context's device and stream. False or an exception is a failure.
  virtual bool RunOnDevice() = 0;

  bool Run(int stream_id = 0) final {
    const bool by_event = !Context::kAsynchronous && HasAsyncPart();
    SwitchStream(stream_id, by_event);  // first, so that observers see this run's stream
    ObserverScope<OperatorBase> observers(*this);
    InvocationScope invocation(NextInvocationKind());
    if (by_event) PrepareEvent();
    try {
      if constexpr (Context::kAsynchronous) {
        RunOnDeviceOrFail();
        Drain();
      } else if (by_event) [[unlikely]] {
        Issue();
        event().Finish();
      } else {
        RunOnDeviceOrFail();
      }
      PublishOutputs();
    } catch (...) {
      Fail(by_event);
    }
    observers.Succeeded();
    return true;
  }

  bool RunAsync(int stream_id = 0) final {
    SwitchStream(stream_id, !IsEventDisabled());
    ObserverScope<OperatorBase> observers(*this);
    InvocationScope invocation(NextInvocationKind());
    if (!IsEventDisabled()) PrepareEvent();
    try {
      Issue();
      PublishOutputs();
    } catch (...) {
      Fail(!IsEventDisabled());
    }
    observers.Succeeded();
    return true;
  }

  bool HasAsyncPart() const override { return Context::kAsynchronous; }
  bool SupportsAsyncScheduling() const override { return Context::kAsynchronous; }

  // The event is SCHEDULED and completes with the work issued so far.
  void RecordEvent() {
    event().state()->SetContext(failure_context());
    if constexpr (Context::kAsynchronous) event().state()->retained = TouchedStorages();
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
      // What failed came before and belongs to the next event that is recorded here.
      if constexpr (requires { context_.Launch([] {}); })
        context_.Launch([failure = std::current_exception()] { std::rethrow_exception(failure); });
      throw;
    }
  }
  bool IsStreamFree(int stream_id) const override {
    return Context::IsStreamFree(device(), stream_id);
  }

  Context& context() { return context_; }

 private:
  void SwitchStream(int stream_id, bool by_event) {
    try {
      context_.SwitchToDevice(stream_id);
    } catch (...) {
      const bool in_flight = by_event && event().Query() == EventStatus::kScheduled;
      if (by_event && !in_flight) PrepareEvent();
      Fail(by_event && !in_flight);  // the event of a run in flight stays that run's
    }
  }
  void RunOnDeviceOrFail() {
    if (!RunOnDevice()) [[unlikely]]
      ReturnedFalse();
  }
  // Runs with the event, if any, in the state that the device's kind of completion asks for.
  void Issue() {
    if constexpr (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      if (!IsEventDisabled()) {
        RecordEvent();
      } else if constexpr (requires { context_.Launch([] {}); }) {
        context_.Launch([kept = TouchedStorages()] {});  // until the stream has come past this run
      }
    } else if (HasAsyncPart()) {
      RecordEvent();  // before the body: the operator may finish the event from another thread
      RunOnDeviceOrFail();
      RetainUntilFinished();
    } else {
      RunOnDeviceOrFail();
      if (!IsEventDisabled()) event().SetFinished();
    }
  }
  void PrepareEvent() {
    const EventStatus status = event().Query();
    if (status == EventStatus::kScheduled)
      Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def()),
            " is run while its last run is still SCHEDULED; Finish its event first");
    if (IsTerminal(status)) event().Reset();
  }
  // As FinishDeviceComputation, for this operator's work.
  void Drain() { context_.FinishDeviceComputation(); }
  // Memory of work that goes on elsewhere: dropped when it finishes the event. One that was
  // cancelled is not finished; its memory stays as long as a handle of the event.
  void RetainUntilFinished() {
    event().SetCallback([state = event().state().get(), kept = TouchedStorages()]() mutable {
      if (state->status() != EventStatus::kFailed) return;
      try {
        std::rethrow_exception(state->exception());
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kCancelled) state->retained = std::move(kept);
      } catch (...) {
      }
    });
  }
  // In a catch block.
  [[noreturn]] OPKIT_COLD void Fail(bool complete_event) {
    if constexpr (Context::kAsynchronous) RetainUntilDrained();
    try {
      RethrowWithContext();
    } catch (...) {
      if (complete_event) event().state()->Complete(std::current_exception());
      throw;
    }
  }
  // After a failure some work may be in flight: its memory stays until the stream has come past it.
  void RetainUntilDrained() noexcept {
    try {
      Event drained(device());
      drained.state()->retained = TouchedStorages();
      context_.Record(drained);
    } catch (...) {  // nothing was issued if the device takes no work at all
    }
  }

 protected:
  Context context_;
};

}  // namespace opkit

// In a class template derived from Operator<Context>: names of the base, usable without `this->`
// and without `template`. Give what Input and Output return a type of its own (`const Tensor& x =
// Input(0); x.data<float>()`): in a chain or behind `auto` C++ wants `template` before `data`.
#define OPKIT_USE_OPERATOR_BASE_FUNCTIONS                                                          \
  using ::opkit::OperatorBase::HasArgument;                                                        \
  using ::opkit::OperatorBase::HasInput;                                                           \
  using ::opkit::OperatorBase::HasOutput;                                                          \
  using ::opkit::OperatorBase::InputBlob;                                                          \
  using ::opkit::OperatorBase::InputSize;                                                          \
  using ::opkit::OperatorBase::InputTensorShapes;                                                  \
  using ::opkit::OperatorBase::IsInputOutputAlias;                                                 \
  using ::opkit::OperatorBase::OutputBlob;                                                         \
  using ::opkit::OperatorBase::OutputSize;                                                         \
  using ::opkit::OperatorBase::OutputTensorAlias;                                                  \
  using ::opkit::OperatorBase::OutputTensorCopyFrom;                                               \
  using ::opkit::OperatorBase::OutputTensorOrUndefined;                                            \
  using ::opkit::OperatorBase::SetOutputTensor;                                                    \
  using ::opkit::OperatorBase::XOutput;                                                            \
  using ::opkit::OperatorBase::def;                                                                \
  using ::opkit::OperatorBase::device;                                                             \
  using ::opkit::OperatorBase::event;                                                              \
  const ::opkit::Tensor& Input(int i) const {                                                      \
    return static_cast<const ::opkit::OperatorBase&>(*this).Input(i);                              \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  const OpkitT& Input(int i) const {                                                               \
    return static_cast<const ::opkit::OperatorBase&>(*this).Input<OpkitT>(i);                      \
  }                                                                                                \
  ::opkit::Tensor* Output(int i) { return static_cast<::opkit::OperatorBase&>(*this).Output(i); }  \
  ::opkit::Tensor* Output(int i, const ::opkit::Shape& shape, ::opkit::DType dtype) {              \
    return static_cast<::opkit::OperatorBase&>(*this).Output(i, shape, dtype);                     \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  OpkitT* Output(int i) {                                                                          \
    return static_cast<::opkit::OperatorBase&>(*this).Output<OpkitT>(i);                           \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  bool InputIsType(int i) const {                                                                  \
    return static_cast<const ::opkit::OperatorBase&>(*this).InputIsType<OpkitT>(i);                \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  bool HasSingleArgumentOfType(std::string_view name) const {                                      \
    return static_cast<const ::opkit::OperatorBase&>(*this).HasSingleArgumentOfType<OpkitT>(name); \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  OpkitT GetSingleArgument(std::string_view name, const OpkitT& fallback) const {                  \
    return static_cast<const ::opkit::OperatorBase&>(*this).GetSingleArgument<OpkitT>(name,        \
                                                                                      fallback);   \
  }                                                                                                \
  template <class OpkitT>                                                                          \
  std::vector<OpkitT> GetRepeatedArgument(std::string_view name,                                   \
                                          const std::vector<OpkitT>& fallback = {}) const {        \
    return static_cast<const ::opkit::OperatorBase&>(*this).GetRepeatedArgument<OpkitT>(name,      \
                                                                                        fallback); \
  }                                                                                                \
  static_assert(true)
#define OPKIT_USE_OPERATOR_FUNCTIONS(Context) \
  OPKIT_USE_OPERATOR_BASE_FUNCTIONS;          \
  using ::opkit::Operator<Context>::context_

// Names for the indices of inputs and outputs: INPUT_TAGS(X, SCALE); … Input(SCALE).
#define OPKIT_INPUT_TAGS(first, ...) enum InputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }
#define OPKIT_OUTPUT_TAGS(first, ...) enum OutputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }

#endif  // OPKIT_OP_OPERATOR_HPP_

// ---- opkit/op/function_body.hpp
// FunctionBody: one instance of a function operator, whatever its device: attributes, state, the
// views its functions are called with, scratch, requests. Nothing is allocated in a run whose
// shapes are those of the run before.
#ifndef OPKIT_OP_FUNCTION_BODY_HPP_
#define OPKIT_OP_FUNCTION_BODY_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

class FunctionRequests {
 public:
  virtual ~FunctionRequests() = default;
  virtual void SetOutputReq(int output, OpReq req) = 0;
};

// What a context offers to the functions, taken anew for each run.
struct FunctionDeviceLink {
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void*, UniqueFunction<void()>) = nullptr;
};

// A forward operator leaves its state where the backward operator of the same node finds it. It is
// emptied when the forward operator is destroyed.
struct FunctionState : RefCounted {
  std::unique_ptr<StatefulOp> op;
};
using FunctionStatePtr = IntrusivePtr<FunctionState>;
inline constexpr const char* kStateArgument = "__state";
inline std::string FunctionStateBlob(const OperatorDef& def) {
  return StrCat("__state of ", def.type(), " ", def.name(), " ",
                def.outputs().empty() ? std::string() : def.outputs()[0]);
}

// target += term, element by element; both dense.
template <class AnyTensor>
void AddTensor(const AnyTensor& target, const AnyTensor& term) {
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

// A template only for what it costs to compile: programs without function operators do not pay.
template <class Record>
class FunctionBody {
 public:
  FunctionBody(OperatorBase& op, IntrusivePtr<Record> record, FunctionPass pass)
      : op_(op),
        record_(std::move(record)),
        pass_(pass),
        functions_(*record_->Find(op.device().type)),
        attrs_(op.def().args()),
        inputs_(static_cast<size_t>(op.InputSize())),
        outputs_(static_cast<size_t>(op.OutputSize())),
        dense_(inputs_.size()),
        infos_(outputs_.size()),
        sums_(outputs_.size()),
        reqs_(outputs_.size(), OpReq::kWrite),
        input_views_(inputs_.size()),
        output_views_(outputs_.size()) {
    mutated_.resize(inputs_.size());
    if (pass == FunctionPass::kForward)
      for (int input : FunctionMutatedInputs(*record_, attrs_)) {
        if (static_cast<size_t>(input) >= inputs_.size())
          Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", record_->name,
                " names input ", input, ", but the node has ", inputs_.size());
        mutated_[static_cast<size_t>(input)] = true;
      }
    resource_.op = record_->name;
    resource_.device = op.device();
    const std::string key = StrCat(op.type(), " ", op.def().name(), " ", op.def().outputs());
    for (char c : key)
      resource_.random_key = MixBits(resource_.random_key ^ static_cast<unsigned char>(c));
    MakeState();
  }
  FunctionBody(const FunctionBody&) = delete;
  FunctionBody& operator=(const FunctionBody&) = delete;
  ~FunctionBody() {
    if (owns_state_) state_->op.reset();
  }

  void SetReq(int output, OpReq req) {
    if (output < 0 || static_cast<size_t>(output) >= reqs_.size())
      Throw(ErrorCode::kOutOfRange, "output ", output, " of operator ", ToString(op_.def()),
            ", which has ", reqs_.size());
    reqs_[static_cast<size_t>(output)] = req == OpReq::kInplace ? OpReq::kWrite : req;
  }

  void Run(const FunctionDeviceLink& link) {
    resource_.asynchronous = link.asynchronous;
    resource_.stream = link.stream;
    resource_.context = link.context;
    resource_.launch = link.launch;
    StartRandom();
    if (BindInputs() || !inferred_) Infer();
    const Release release{*this};
    BindOutputs();
    OpResource resource(&resource_);
    CallFunction(*record_, pass_ == FunctionPass::kForward ? "forward" : "backward",
                 [&] { return Call(resource); });
    AddUp(resource);
  }

 private:
  struct Release {
    FunctionBody& self;
    ~Release() { self.ReleaseMemory(); }
  };

  void MakeState() {
    if (!functions_.create_state) return;
    const OperatorDef& def = op_.def();
    if (pass_ == FunctionPass::kBackward && def.args().Has(kStateArgument)) {
      const std::string name = def.args().Get<std::string>(kStateArgument);
      const Blob* blob = op_.workspace()->FindBlob(name);
      if (!blob)
        Throw(ErrorCode::kFailedPrecondition, "operator ", ToString(def), " needs the state of ",
              record_->name, ", whose operator must be created before it, in the same workspace");
      state_ = blob->Get<FunctionStatePtr>();
      return;
    }
    state_ = MakeIntrusive<FunctionState>();
    const OpContext context{op_.device()};
    CallFunction(*record_, "createOpState",
                 [&] { return functions_.create_state(attrs_, context, state_->op); });
    if (!state_->op)
      Throw(ErrorCode::kOperatorFailed, "createOpState of operator ", record_->name,
            " succeeded but made no StatefulOp");
    owns_state_ = true;
    if (pass_ != FunctionPass::kForward) return;
    Blob* blob = op_.workspace()->CreateBlob(FunctionStateBlob(def));
    if (blob->IsType<FunctionStatePtr>() && blob->Get<FunctionStatePtr>()->op)
      Throw(ErrorCode::kAlreadyExists, "two operators ", ToString(def),
            " that keep a state write the same output; give them different names");
    blob->Emplace<FunctionStatePtr>(state_);
  }

  // Runs count from the last SetSeed on.
  void StartRandom() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    resource_.run = epoch == random_epoch_ ? resource_.run + 1 : 0;
    random_epoch_ = epoch;
    resource_.random_drawn = false;
  }

  // True when a dtype or a shape is not that of the last run.
  bool BindInputs() {
    bool changed = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!op_.HasInput(static_cast<int>(i))) continue;
      const Tensor& tensor = op_.Input(static_cast<int>(i));
      if (!tensor.initialized() || !tensor.layout().is_standard()) [[unlikely]]
        Unreadable(i, tensor);
      const Tensor* readable = &tensor;
      if (!tensor.is_dense() && !record_->accepts_strides) [[unlikely]] {
        CheckCopyable(i, tensor);
        dense_[i].CopyFrom(tensor);
        readable = &dense_[i];
      }
      changed |= inputs_[i].Bind(*readable, OpReq::kWrite);
      input_views_[i] = inputs_[i].view;
    }
    if (changed) inferred_ = false;
    return changed;
  }
  [[noreturn]] OPKIT_COLD void Unreadable(size_t i, const Tensor& tensor) const {
    if (!tensor.initialized())
      throw Error(ErrorCode::kUninitialized,
                  StrCat("input ", i, " '", op_.def().inputs()[i], "' of operator ", record_->name,
                         " is read before anything was written to it"),
                  &tensor);
    throw Error(ErrorCode::kUnsupported,
                StrCat("input ", i, " of operator ", record_->name, " is in layout ",
                       tensor.layout(), ", but functions take the standard one"),
                &tensor);
  }
  OPKIT_COLD void CheckCopyable(size_t i, const Tensor& tensor) const {
    const char* why = mutated_[i]              ? "it is written to"
                      : resource_.asynchronous ? "work that is still under way may write to it"
                                               : nullptr;
    if (why)
      throw Error(ErrorCode::kUnsupported,
                  StrCat("input ", i, " of operator ", record_->name,
                         " has strides and cannot be copied, because ", why,
                         "; make it dense, or write functions that use strides() and say "
                         ".setAcceptStrides()"),
                  &tensor);
  }

  void Infer() {
    std::vector<TensorInfo> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs.push_back(op_.HasInput(static_cast<int>(i))
                           ? TensorInfo::Of(op_.Input(static_cast<int>(i)))
                           : TensorInfo());
    InferenceContext context(op_.def(), inputs);
    InferFunction(*record_, attrs_, pass_, context);
    for (size_t o = 0; o < infos_.size(); ++o) {
      const TensorInfo& info = context.output(static_cast<int>(o));
      infos_[o].dtype = info.dtype;
      infos_[o].known = info.shape.is_known();
      if (infos_[o].known) {
        infos_[o].shape = info.shape.ToShape();
      } else if ((record_->infer_shape || pass_ == FunctionPass::kBackward) &&
                 op_.HasOutput(static_cast<int>(o))) {
        Throw(ErrorCode::kInvalidArgument, "inferShape of operator ", record_->name,
              " leaves output ", o, " unknown: ", ToString(info.shape));
      }
    }
    ReserveScratch(inputs);
    inferred_ = true;
  }
  void ReserveScratch(std::span<const TensorInfo> inputs) {
    if (pass_ == FunctionPass::kBackward || !record_->scratch) return;
    const int64_t bytes = FunctionScratch(*record_, attrs_, inputs);
    const int64_t present = resource_.scratch ? resource_.scratch->nbytes() : 0;
    if (bytes > present) resource_.scratch = AllocateStorage(MemoryDevice(op_.device()), bytes);
  }

  void BindOutputs() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const int output = static_cast<int>(o);
      OpReq req = op_.HasOutput(output) ? reqs_[o] : OpReq::kNone;
      if (req == OpReq::kNone) {
        output_views_[o] = OpTensor();
        continue;
      }
      const Wanted wanted = Want(output);
      Tensor addend;  // what is added to
      if (req == OpReq::kAdd) {
        CheckAddable(output, wanted);
        addend = *op_.Output(output);
      }
      Tensor* tensor = op_.Output(output, *wanted.shape, wanted.dtype);
      // It was strided, or lay where an input lies, and has got memory of its own.
      if (req == OpReq::kAdd && tensor->raw_data() != addend.raw_data()) tensor->CopyFrom(addend);
      if (req == OpReq::kAdd && !record_->accepts_add) {
        sums_[o].SetDevice(MemoryDevice(op_.device()));
        sums_[o].Resize(*wanted.shape, wanted.dtype);
        targets_.emplace_back(o, *tensor);
        tensor = &sums_[o];
        req = OpReq::kWrite;
      }
      if (req == OpReq::kWrite && tensor->raw_data())
        for (const OpTensor& input : input_views_)
          if (input.raw_data() == tensor->raw_data()) req = OpReq::kInplace;
      outputs_[o].Bind(*tensor, req);
      output_views_[o] = outputs_[o].view;
    }
  }
  struct Wanted {
    DType dtype;
    const Shape* shape;
  };
  // What inference says; without setInferShape what the output tensor has.
  Wanted Want(int output) {
    const Info& info = infos_[static_cast<size_t>(output)];
    if (info.known && info.dtype != DType::kUndefined) return {info.dtype, &info.shape};
    const Tensor& present = *op_.Output(output);
    const bool usable = present.dtype() != DType::kUndefined;
    if (!info.known && !usable)
      Throw(ErrorCode::kInvalidArgument, "operator ", record_->name,
            " has no setInferShape, and "
            "output ",
            output, " '", op_.def().outputs()[static_cast<size_t>(output)],
            "' has no "
            "shape yet; add .setInferShape(f), or give the tensor its shape and dtype before the "
            "run");
    DType dtype = info.dtype;
    if (dtype == DType::kUndefined || (!info.known && !record_->infer_type))
      dtype = present.dtype();
    if (dtype == DType::kUndefined)
      Throw(ErrorCode::kInvalidArgument, "the dtype of output ", output, " of operator ",
            record_->name, " is not known; add .setInferType(f)");
    return {dtype, info.known ? &info.shape : &present.shape()};
  }
  void CheckAddable(int output, const Wanted& wanted) {
    const Tensor& present = *op_.Output(output);
    if (!present.initialized() || present.dtype() != wanted.dtype ||
        present.shape() != *wanted.shape)
      Throw(ErrorCode::kFailedPrecondition, "output ", output, " of operator ", record_->name,
            " is to be added to, but it is ", present, " and the result is ", wanted.dtype,
            *wanted.shape);
  }

  OpStatus Call(OpResource& resource) {
    if (!functions_.create_state)
      return (pass_ == FunctionPass::kForward ? functions_.forward : functions_.backward)(
          attrs_, input_views_, output_views_, resource);
    if (!state_->op)
      return OpStatus::Failure("the operator ", record_->name, " that made the state is destroyed");
    std::vector<OpTensor> inputs(input_views_), outputs(output_views_);
    auto call = [&](std::vector<OpTensor> ins, std::vector<OpTensor> outs) {
      return pass_ == FunctionPass::kForward
                 ? state_->op->Forward(std::move(ins), std::move(outs), resource)
                 : state_->op->Backward(std::move(ins), std::move(outs), resource);
    };
    return CallForStatus(call, std::move(inputs), std::move(outputs));
  }

  void AddUp(OpResource& resource) {
    for (auto& [o, target] : targets_) {
      if (!resource_.asynchronous) {
        AddTensor(target, sums_[o]);
      } else if (IsHostAccessible(op_.device().type)) {
        resource.launch([target = target, term = sums_[o]] { AddTensor(target, term); });
      } else {
        Throw(ErrorCode::kUnsupported, "results cannot be added up on ", op_.device(),
              "; write functions that respect OpReq::kAdd and say .setAcceptAdd()");
      }
    }
  }
  // On a stream the work that was issued may still use what the functions allocated.
  void ReleaseMemory() noexcept {
    targets_.clear();
    if (resource_.memory.empty() && resource_.temporaries.empty()) return;
    try {
      if (resource_.asynchronous && resource_.launch)
        resource_.launch(resource_.context, [memory = std::move(resource_.memory),
                                             more = std::move(resource_.temporaries)] {});
    } catch (...) {  // no memory to wait with: what is freed here was lost anyway
    }
    resource_.memory.clear();
    resource_.temporaries.clear();
  }

  struct Info {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;
  };

  OperatorBase& op_;
  IntrusivePtr<Record> record_;
  FunctionPass pass_;
  FunctionDevice& functions_;
  AttrMap attrs_;
  std::vector<TensorSlot> inputs_, outputs_;
  std::vector<Tensor> dense_;  // copies of strided inputs
  std::vector<Info> infos_;    // of the outputs, for the inputs of the last run
  std::vector<Tensor> sums_;   // results that are to be added to an output
  std::vector<std::pair<size_t, Tensor>> targets_;
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  std::vector<OpTensor> input_views_, output_views_;
  ResourceState resource_;
  FunctionStatePtr state_;
  uint64_t random_epoch_ = 0;
  bool owns_state_ = false, inferred_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_BODY_HPP_

// ---- opkit/op/gradient_maker.hpp
// GradientMakerBase: says which operators compute the gradients of a node's inputs from those of
// its outputs. What op authors derive from; gradient.hpp registers it.
#ifndef OPKIT_OP_GRADIENT_MAKER_HPP_
#define OPKIT_OP_GRADIENT_MAKER_HPP_

namespace opkit::inline OPKIT_ABI {

// The blobs that hold the gradient of one value: one dense tensor; or indices and values of slices
// along the first axis; or nothing, where no gradient flows.
struct GradientValue {
  std::string dense;
  std::string indices;
  std::string values;

  GradientValue() = default;
  GradientValue(std::string name) : dense(std::move(name)) {}
  GradientValue(const char* name) : dense(name) {}
  static GradientValue Sparse(std::string indices, std::string values) {
    GradientValue out;
    out.indices = std::move(indices);
    out.values = std::move(values);
    return out;
  }
  bool IsDense() const { return !dense.empty(); }
  bool IsSparse() const { return !indices.empty() || !values.empty(); }
  bool IsEmpty() const { return !IsDense() && !IsSparse(); }
  friend bool operator==(const GradientValue&, const GradientValue&) = default;
  friend std::string ToString(const GradientValue& value) {
    if (value.IsEmpty()) return "(none)";
    return value.IsDense() ? value.dense : StrCat("{", value.indices, ", ", value.values, "}");
  }
};

struct GradientOpsMeta {
  std::vector<OperatorDef> ops;        // in the order they run
  std::vector<GradientValue> g_input;  // of every input; empty where no gradient flows
};

// Names of gradients, by an explicit map: what is a gradient, and of what, is looked up and never
// read from a name, and no gradient gets the name of another value. One map serves a whole graph,
// whose names are reserved before the first gradient is named. A template, like the base of makers
// below, so that its maps are compiled only where gradients are.
template <class Text>
class BasicGradientNames {
 public:
  // A name that something else has. Error (kAlreadyExists) when a gradient was given it before.
  void Reserve(const Text& name) {
    if (values_.count(name))
      Throw(ErrorCode::kAlreadyExists, "value '", name,
            "' has the name that was given to the "
            "gradient of '",
            values_[name], "'; reserve the graph's names before naming gradients");
    taken_.emplace(name, true);
  }
  // Everything that a node and its output gradients are called.
  template <class Values>
  void ReserveNamesOf(const OperatorDef& def, const Values& g_output) {
    auto reserve = [&](const Text& name) {
      if (!name.empty() && !IsGradient(name)) Reserve(name);
    };
    for (const Text& name : def.inputs()) reserve(name);
    for (const Text& name : def.outputs()) reserve(name);
    for (const auto& value : g_output)
      for (const Text* name : {&value.dense, &value.indices, &value.values}) reserve(*name);
  }
  // The gradient's name of a value; always the same one.
  const Text& Of(const Text& value) {
    const auto it = gradients_.find(value);
    return it != gradients_.end() ? it->second : gradients_[value] = Fresh(value);
  }
  // One more blob for a part of the value's gradient (one use among several, indices, values).
  Text Fresh(const Text& value, const Text& suffix = "_grad") {
    Text name = value + suffix;
    for (int n = 1; taken_.count(name); ++n) name = StrCat(value, suffix, "_", n);
    taken_.emplace(name, true);
    values_.emplace(name, value);
    return name;
  }
  bool IsGradient(const Text& name) const { return values_.count(name) != 0; }
  // What `name` is a gradient of; null when it is not one of this map's.
  const Text* ValueOf(const Text& name) const {
    const auto it = values_.find(name);
    return it == values_.end() ? nullptr : &it->second;
  }

 private:
  std::map<Text, Text> gradients_, values_;  // value to gradient, gradient to value
  std::map<Text, bool> taken_;
};
using GradientNames = BasicGradientNames<std::string>;

// Base of makers. One object serves one node.
//
//   class ScaleGradient : public GradientMakerBase {
//     using GradientMakerBase::GradientMakerBase;
//     std::vector<OperatorDef> GetGradientDefs() override {
//       return SingleGradientDef("Scale", "", {GO(0)}, {GI(0)});     // the argument is copied
//     }
//   };
//   REGISTER_GRADIENT(Scale, ScaleGradient);
template <class Value, class NameMap>
class BasicGradientMaker {
 public:
  BasicGradientMaker(const OperatorDef& def, std::vector<Value> g_output)
      : def_(def), g_output_(std::move(g_output)), g_input_(def.inputs().size()) {}
  BasicGradientMaker(const BasicGradientMaker&) = delete;
  BasicGradientMaker& operator=(const BasicGradientMaker&) = delete;
  virtual ~BasicGradientMaker() = default;

  // What the gradient operators take over from the node; an argument that they set themselves
  // stays.
  virtual bool CopyDeviceOption() const { return true; }
  virtual bool CopyEngine() const { return true; }
  virtual bool CopyArguments() const { return true; }

  // The gradient operators. Names every output gradient it reads by GO and every input gradient it
  // makes by GI (or SetDense, SetSparse); inputs not named get no gradient.
  virtual std::vector<OperatorDef> GetGradientDefs() {
    Throw(ErrorCode::kUnsupported, "the gradient maker of operator ", def_.type(),
          " must override GetGradientDefs() or Get()");
  }
  virtual GradientOpsMeta Get() {
    std::vector<OperatorDef> ops = GetGradientDefs();
    return {std::move(ops), g_input_};
  }
  // Where names come from; without it, from a map that knows this node alone.
  void UseNames(NameMap* names) { names_ = names; }

 protected:
  const OperatorDef& Def() const { return def_; }
  const std::string& I(int i) const { return def_.inputs()[Check(i, def_.inputs(), "input")]; }
  const std::string& O(int i) const { return def_.outputs()[Check(i, def_.outputs(), "output")]; }

  // Blobs of the gradient of output i. Error (kInvalidArgument) when it is of the other kind, or
  // none was given: ask GradOut(i) first where that is possible.
  const Value& GradOut(int i) const { return g_output_[Check(i, g_output_, "output")]; }
  const std::string& GO(int i) const {
    if (!GradOut(i).IsDense()) WrongKind(i, "dense");
    return GradOut(i).dense;
  }
  const std::string& GO_I(int i) const {
    if (!GradOut(i).IsSparse()) WrongKind(i, "sparse");
    return GradOut(i).indices;
  }
  const std::string& GO_V(int i) const {
    if (!GradOut(i).IsSparse()) WrongKind(i, "sparse");
    return GradOut(i).values;
  }

  // Blobs for the gradient of input i, named at the first call. A value that is read by two inputs
  // gets two gradients, which whoever uses them adds up.
  const std::string& GI(int i) {
    Value& value = Gradient(i, false);
    if (value.dense.empty()) value.dense = Name(i);
    return value.dense;
  }
  const std::string& GI_I(int i) {
    Value& value = Gradient(i, true);
    if (value.indices.empty()) value.indices = Names().Fresh(I(i), "_grad_indices");
    return value.indices;
  }
  const std::string& GI_V(int i) {
    Value& value = Gradient(i, true);
    if (value.values.empty()) value.values = Names().Fresh(I(i), "_grad_values");
    return value.values;
  }
  // The gradient of input i is a blob that exists by another name, such as GO(0) itself.
  void SetDense(int i, const std::string& name) { Gradient(i, false).dense = name; }
  void SetSparse(int i, const std::string& indices, const std::string& values) {
    Gradient(i, true) = Value::Sparse(indices, values);
  }
  // A name for an intermediate result of several gradient operators.
  std::string Temporary(const std::string& hint) {
    return Names().Fresh(def_.outputs().empty() ? def_.type() : def_.outputs()[0], "_grad_" + hint);
  }
  NameMap& Names() {
    if (names_) return *names_;
    if (!own_names_) {
      own_names_.emplace();
      ReserveNames(*own_names_, def_, g_output_);
    }
    return *own_names_;
  }

  static std::vector<OperatorDef> SingleGradientDef(const std::string& type,
                                                    const std::string& name,
                                                    const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& outputs,
                                                    Arguments args = {}) {
    OperatorDef def(type, inputs, outputs, std::move(args));
    def.Name(name);
    return {std::move(def)};
  }

 public:
  static void ReserveNames(NameMap& names, const OperatorDef& def,
                           const std::vector<Value>& g_output) {
    names.ReserveNamesOf(def, g_output);
  }

 private:
  template <class Values>
  size_t Check(int i, const Values& values, const char* what) const {
    if (i < 0 || static_cast<size_t>(i) >= values.size())
      Throw(ErrorCode::kOutOfRange, "the gradient maker of ", ToString(def_), " asks for ", what,
            " ", i, " of ", values.size());
    return static_cast<size_t>(i);
  }
  [[noreturn]] OPKIT_COLD void WrongKind(int i, const char* wanted) const {
    Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", ToString(def_), " needs a ",
          wanted, " gradient of output ", i, " '", O(i), "', but ",
          GradOut(i).IsEmpty() ? "none was given" : "was given " + ToString(GradOut(i)));
  }
  Value& Gradient(int i, bool sparse) {
    Value& value = g_input_[Check(i, g_input_, "input")];
    if (sparse ? value.IsDense() : value.IsSparse())
      Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", ToString(def_),
            " makes the gradient of input ", i, " '", I(i), "' both dense and sparse");
    return value;
  }
  std::string Name(int i) {
    for (int k = 0; k < i; ++k)
      if (I(k) == I(i)) return Names().Fresh(I(i));
    // In place, the value's gradient may be the very one that comes in.
    const std::string& name = Names().Of(I(i));
    for (const Value& value : g_output_)
      if (value.dense == name) return Names().Fresh(I(i));
    return name;
  }

  const OperatorDef def_;
  const std::vector<Value> g_output_;
  std::vector<Value> g_input_;
  NameMap* names_ = nullptr;
  std::optional<NameMap> own_names_;
};
using GradientMakerBase = BasicGradientMaker<GradientValue, GradientNames>;

}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_MAKER_HPP_

// ---- opkit/op/registration.hpp
// The registration macros: OPERATOR_SCHEMA and REGISTER_<DEVICE>_OPERATOR. Each is a static
// initialiser at namespace scope, in a source file or a header.
#ifndef OPKIT_OP_REGISTRATION_HPP_
#define OPKIT_OP_REGISTRATION_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Op>
std::unique_ptr<OperatorBase> CreateClass(const OperatorDef& def, Workspace* ws) {
  static_assert(
      std::is_base_of_v<OperatorBase, Op>,
      "REGISTER_*_OPERATOR(name, Class): Class must derive from opkit::Operator<Context>");
  static_assert(!std::is_abstract_v<Op>,
                "REGISTER_*_OPERATOR(name, Class): Class must override bool RunOnDevice()");
  static_assert(std::is_constructible_v<Op, const OperatorDef&, Workspace*>,
                "REGISTER_*_OPERATOR(name, Class): Class needs a constructor "
                "(const opkit::OperatorDef&, opkit::Workspace*)");
  return std::make_unique<Op>(def, ws);
}

// Static initialisers must not throw: a failure to register (no memory) shows as a missing kernel.
inline bool RegisterKernel(const char* op, DeviceType device, const char* backend,
                           RegistrationPriority priority, const char* file, int line,
                           OperatorCreator create) noexcept {
  try {
    Kernel kernel;
    kernel.op = op;
    kernel.device = device;
    kernel.backend = backend;
    if (kernel.backend == "DEFAULT" || kernel.backend.empty()) kernel.backend = kReferenceBackend;
    kernel.priority = priority;
    kernel.file = file;
    kernel.line = line;
    kernel.create = std::move(create);
    OpRegistry::Global().AddKernel(std::move(kernel));
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace detail
}  // namespace opkit

#define OPKIT_CONCAT_(a, b) a##b
#define OPKIT_CONCAT(a, b) OPKIT_CONCAT_(a, b)
#define OPKIT_UNIQUE(prefix) OPKIT_CONCAT(prefix, __COUNTER__)

// A class registration calls the function that OPERATOR_SCHEMA defines, so that forgetting the
// schema is a link error whose symbol says what to add.
#define OPKIT_SCHEMA_ANCHOR(name) opkit_add_OPERATOR_SCHEMA_for_##name

// OPERATOR_SCHEMA(Scale).NumInputs(1).NumOutputs(1)…;
#define OPKIT_OPERATOR_SCHEMA(name)                                                          \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {} \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                   \
      ::opkit::OpRegistry::Global().AddSchema(#name, __FILE__, __LINE__)

// The general form. `device` is a DeviceType, `backend` a string; the class comes last, so that it
// may contain commas. A device of your own needs one line:
//   #define REGISTER_NPU_OPERATOR(...) OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, __VA_ARGS__)
#define OPKIT_REGISTER_OPERATOR(device, name, backend, priority, ...)                     \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)();      \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                        \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                       \
       ::opkit::detail::RegisterKernel(#name, device, backend,                            \
                                       ::opkit::RegistrationPriority::priority, __FILE__, \
                                       __LINE__, &::opkit::detail::CreateClass<__VA_ARGS__>))
// By string, for names that are not identifiers and for kernels of another binary's operator: a
// missing schema is then found at the first lookup.
#define OPKIT_REGISTER_OPERATOR_STR(device, string, backend, ...)                                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                                 \
      ::opkit::detail::RegisterKernel(string, device, backend,                                     \
                                      ::opkit::RegistrationPriority::kDefault, __FILE__, __LINE__, \
                                      &::opkit::detail::CreateClass<__VA_ARGS__>)
// By a function (const OperatorDef&, Workspace*) -> std::unique_ptr<OperatorBase>.
#define OPKIT_REGISTER_OPERATOR_CREATOR(device, name, ...)                                         \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                                 \
      ::opkit::detail::RegisterKernel(#name, device, "DEFAULT",                                    \
                                      ::opkit::RegistrationPriority::kDefault, __FILE__, __LINE__, \
                                      __VA_ARGS__)

#define OPKIT_REGISTER_DEVICE_OPERATOR(device, name, ...) \
  OPKIT_REGISTER_OPERATOR(device, name, "DEFAULT", kDefault, __VA_ARGS__)

#define OPKIT_REGISTER_CPU_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPU, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPU, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPU, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_OPERATOR_WITH_PRIORITY(name, priority, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPU, name, "DEFAULT", priority, __VA_ARGS__)

#define OPKIT_REGISTER_CPU_STREAM_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCPUStream, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCPUStream, name, __VA_ARGS__)
#define OPKIT_REGISTER_CPU_STREAM_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCPUStream, name, #engine, kDefault, __VA_ARGS__)

#define OPKIT_REGISTER_CUDA_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCUDA, name, __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCUDA, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCUDA, name, __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCUDA, name, #engine, kDefault, __VA_ARGS__)

// A linker takes from a static archive only what is referred to, and nobody refers to a registrar.
// Put OPKIT_REGISTRATIONS(my_ops) in the archive's source file and OPKIT_USE_REGISTRATIONS(my_ops)
// in the program, or link with the CMake function opkit_link_operators.
#define OPKIT_REGISTRATIONS(group) \
  extern "C" void opkit_use_registrations_of_##group() {}
#define OPKIT_USE_REGISTRATIONS(group)                                    \
  extern "C" void opkit_use_registrations_of_##group();                   \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_registrations_) = \
      (opkit_use_registrations_of_##group(), true)

#endif  // OPKIT_OP_REGISTRATION_HPP_

// ---- opkit/op/gradient.hpp
// Gradients by operator: REGISTER_GRADIENT names its maker, other macros say that there is none.
// GetGradientForOp is asked node by node by whoever differentiates a graph, and by the gradient
// checker.
#ifndef OPKIT_OP_GRADIENT_HPP_
#define OPKIT_OP_GRADIENT_HPP_

namespace opkit::inline OPKIT_ABI {

// What was said about the gradient of an operator.
enum class GradientKind : uint8_t {
  kMaker,
  kNone,       // no gradient flows through it
  kShouldNot,  // asking is a mistake
  kNotImplemented,
};

struct GradientRegistration {
  using Make = UniqueFunction<GradientOpsMeta(
      const OperatorDef&, const std::vector<GradientValue>& g_output, GradientNames&)>;
  GradientKind kind = GradientKind::kMaker;
  Make make;
  const char* file = "";
  int line = 0;
  std::string problem;  // a second registration; reported when the gradient is asked for

  std::string Place() const { return StrCat(file, ":", line); }
};

// Thread-safe; never throws while it is filled in. A template, like what asks it, so that programs
// without gradients do not compile it.
template <class Registration>
class BasicGradientRegistry {
 public:
  static BasicGradientRegistry& Global() {
    static auto* registry = new BasicGradientRegistry;  // used by static objects of any order
    return *registry;
  }
  // The same operator from the same place is the same registration; from another place it is kept
  // as a problem, which CheckRegistrations lists.
  void Add(const std::string& op, Registration registration) {
    detail::MutexLock lock(mutex_);
    auto& known = gradients_[op];
    if (!known) {
      known = std::make_unique<Registration>(std::move(registration));
    } else if (!OpRegistry::SamePlace(known->file, known->line, registration.file,
                                      registration.line)) {
      known->problem = StrCat("two gradients of operator ", op, ": at ", known->Place(), " and at ",
                              registration.Place(), "; remove one of them");
      OpRegistry::Global().AddProblem(op, known->problem);
    }
  }
  // Null when nothing was said.
  Registration* Find(const std::string& op) const {
    detail::MutexLock lock(mutex_);
    const auto it = gradients_.find(op);
    return it == gradients_.end() ? nullptr : it->second.get();
  }
  // For tests and libraries.
  void Remove(const std::string& op) {
    detail::MutexLock lock(mutex_);
    gradients_.erase(op);
  }

 private:
  mutable detail::Mutex mutex_;
  std::map<std::string, std::unique_ptr<Registration>> gradients_;
};
using GradientRegistry = BasicGradientRegistry<GradientRegistration>;

// True when the operator has a gradient maker.
template <class Registry = GradientRegistry>
bool HasGradient(const std::string& op) {
  const auto* found = Registry::Global().Find(op);
  return found && found->kind == GradientKind::kMaker;
}

// The operators that compute the gradients of a node's inputs, given the names of those of its
// outputs (one for each, empty where none flows). Errors: kNotFound when nothing was said about the
// operator's gradient; kUnsupported for SHOULD_NOT_DO_GRADIENT and GRADIENT_NOT_IMPLEMENTED_YET;
// kInvalidArgument for a wrong number of gradients or a node its schema refuses; kAlreadyExists.
template <class Text, class Registry = GradientRegistry>
GradientOpsMeta GetGradientForOp(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                                 BasicGradientNames<Text>& names) {
  const std::string& op = def.type();
  auto* registration = Registry::Global().Find(op);
  if (!registration) {
    static_cast<void>(OpRegistry::Global().GetSchema(op));  // an unknown operator says so
    Throw(ErrorCode::kNotFound, "operator ", op, " has no gradient: write REGISTER_GRADIENT(", op,
          ", Maker), or NO_GRADIENT(", op,
          ") if none flows through it, or "
          "SHOULD_NOT_DO_GRADIENT or GRADIENT_NOT_IMPLEMENTED_YET");
  }
  if (!registration->problem.empty()) Throw(ErrorCode::kAlreadyExists, registration->problem);
  if (registration->kind == GradientKind::kShouldNot)
    Throw(ErrorCode::kUnsupported, "operator ", ToString(def),
          " must not be differentiated "
          "(SHOULD_NOT_DO_GRADIENT at ",
          registration->Place(), "); stop the gradient before it reaches this node");
  if (registration->kind == GradientKind::kNotImplemented)
    Throw(ErrorCode::kUnsupported, "the gradient of operator ", op,
          " is not implemented yet "
          "(GRADIENT_NOT_IMPLEMENTED_YET at ",
          registration->Place(), "); write a maker and REGISTER_GRADIENT(", op, ", Maker) there");
  if (g_output.size() != def.outputs().size())
    Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def), " has ", def.outputs().size(),
          " outputs, but ", g_output.size(),
          " output gradients were given; give one for each, an "
          "empty GradientValue where none flows");
  if (const OpSchema* schema = OpRegistry::Global().FindSchema(op))
    if (std::string why = schema->Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (registration->kind == GradientKind::kNone)
    return {{}, std::vector<GradientValue>(def.inputs().size())};
  names.ReserveNamesOf(def, g_output);
  try {
    GradientOpsMeta meta = registration->make(def, g_output, names);
    if (meta.g_input.size() != def.inputs().size())
      Throw(ErrorCode::kInvalidArgument, "it names ", meta.g_input.size(), " input gradients for ",
            def.inputs().size(), " inputs");
    return meta;
  } catch (Error& error) {
    error.AddContext(StrCat("in the gradient maker of ", ToString(def), ", registered at ",
                            registration->Place()));
    throw;
  }
}
template <class Names = GradientNames>
GradientOpsMeta GetGradientForOp(const OperatorDef& def,
                                 const std::vector<GradientValue>& g_output) {
  Names names;
  return GetGradientForOp(def, g_output, names);
}

namespace detail {

// What the maker says, and what its operators take over from the node.
template <class Value, class NameMap>
GradientOpsMeta RunGradientMaker(BasicGradientMaker<Value, NameMap>& maker, const OperatorDef& def,
                                 NameMap& names) {
  maker.UseNames(&names);
  GradientOpsMeta meta = maker.Get();
  for (auto& op : meta.ops) {
    op.IsGradientOp(true);
    if (maker.CopyDeviceOption()) op.Device(def.device());
    if (maker.CopyEngine()) op.Engine(def.engine());
    if (!maker.CopyArguments()) continue;
    for (const NamedAttribute& arg : def.args())
      if (!op.args().Has(arg.name)) op.Arg(arg.name, arg.value);
  }
  return meta;
}

template <class Maker>
GradientOpsMeta MakeGradient(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                             GradientNames& names) {
  static_assert(std::is_base_of_v<GradientMakerBase, Maker>,
                "REGISTER_GRADIENT(name, Maker): Maker must derive from opkit::GradientMakerBase");
  static_assert(
      std::is_constructible_v<Maker, const OperatorDef&, const std::vector<GradientValue>&>,
      "REGISTER_GRADIENT(name, Maker): Maker needs a public constructor (const "
      "opkit::OperatorDef&, std::vector<opkit::GradientValue>); write "
      "`public: using opkit::GradientMakerBase::GradientMakerBase;`");
  Maker maker(def, g_output);
  return RunGradientMaker(maker, def, names);
}

template <class Registry = GradientRegistry>
bool RegisterGradient(const char* op, GradientKind kind, GradientRegistration::Make make,
                      const char* file, int line) noexcept {
  try {
    Registry::Global().Add(op, {kind, std::move(make), file, line, {}});
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace detail
}  // namespace opkit

// The maker comes last, so that it may contain commas.
#define OPKIT_REGISTER_GRADIENT_STR(string, ...)                                               \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(string, ::opkit::GradientKind::kMaker,                 \
                                        &::opkit::detail::MakeGradient<__VA_ARGS__>, __FILE__, \
                                        __LINE__)
#define OPKIT_REGISTER_GRADIENT(name, ...) OPKIT_REGISTER_GRADIENT_STR(#name, __VA_ARGS__)
#define OPKIT_GRADIENT_STATEMENT(name, kind)                                                   \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_gradient_) =                           \
      ::opkit::detail::RegisterGradient(#name, ::opkit::GradientKind::kind, nullptr, __FILE__, \
                                        __LINE__)
// No gradient flows through the operator: its inputs get none.
#define OPKIT_NO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(name, kNone)
// Asking for its gradient is a mistake (an optimiser's update, a metric).
#define OPKIT_SHOULD_NOT_DO_GRADIENT(name) OPKIT_GRADIENT_STATEMENT(name, kShouldNot)
#define OPKIT_GRADIENT_NOT_IMPLEMENTED_YET(name) OPKIT_GRADIENT_STATEMENT(name, kNotImplemented)

#endif  // OPKIT_OP_GRADIENT_HPP_

// ---- opkit/op/function_operator.hpp
// REGISTER_OP: operators made of plain functions, the spelling that MXNet's loadable operators
// have. FunctionOperator<Context> runs their record; the builder turns it into a schema and
// kernels.
#ifndef OPKIT_OP_FUNCTION_OPERATOR_HPP_
#define OPKIT_OP_FUNCTION_OPERATOR_HPP_

namespace opkit::inline OPKIT_ABI {

// Runs a record's functions. On an asynchronous device (cpu_stream, gpu) they are called when work
// is issued and put theirs on the stream.
template <class Context>
class FunctionOperator final : public Operator<Context>, public detail::FunctionRequests {
 public:
  FunctionOperator(const OperatorDef& def, Workspace* ws, detail::FunctionRecord record,
                   FunctionPass pass)
      : Operator<Context>(def, ws), body_(*this, std::move(record), pass) {
    this->set_invocation_kind(InvocationKind::kCustomOperator);
  }

  bool RunOnDevice() override {
    detail::FunctionDeviceLink link;
    link.asynchronous = Context::kAsynchronous;
    link.context = &this->context_;
    if constexpr (requires { this->context_.native_stream(); }) {
      link.stream = this->context_.native_stream();
    } else if constexpr (requires { this->context_.stream(); }) {
      link.stream = &this->context_.stream();
    }
    if constexpr (requires(UniqueFunction<void()> work) {
                    this->context_.Launch(std::move(work));
                  }) {
      link.launch = [](void* context, UniqueFunction<void()> work) {
        static_cast<Context*>(context)->Launch(std::move(work));
      };
    }
    body_.Run(link);
    return true;
  }
  void SetOutputReq(int output, OpReq req) override { body_.SetReq(output, req); }

 private:
  detail::FunctionBody<FunctionOpRecord> body_;
};

namespace detail {

// How a device type runs function operators; null where no header of its backend was included.
using FunctionOperatorFactory = std::unique_ptr<OperatorBase> (*)(const OperatorDef&, Workspace*,
                                                                  FunctionRecord, FunctionPass);
inline std::atomic<FunctionOperatorFactory>& FunctionFactory(DeviceType type) {
  static std::atomic<FunctionOperatorFactory> factories[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return factories[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

inline std::unique_ptr<OperatorBase> CreateFunctionOperator(const OperatorDef& def, Workspace* ws,
                                                            FunctionRecord record,
                                                            FunctionPass pass) {
  const FunctionOperatorFactory factory =
      FunctionFactory(def.device().type).load(std::memory_order_acquire);
  if (!factory)
    throw UnsupportedOperatorFeature(
        StrCat("function operators cannot run on ", def.device().type,
               " in this program: include the header of its backend "
               "(opkit/backends/<its name>/function_operator.hpp), or call "
               "opkit::EnableFunctionOperators<Context>() for a device of your own"));
  return factory(def, ws, std::move(record), pass);
}

// "cpu", "gpu" or any device type's own name; -1 for an unknown one.
inline int DeviceTypeFromName(std::string_view name) {
  if (name == "gpu") return static_cast<int>(DeviceType::kCUDA);
  DeviceTypeRegistry& registry = DeviceTypes();
  MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.info.name == name) return static_cast<int>(entry.type);
  return -1;
}

template <class Record, class Base>
class FunctionGradient final : public Base {
 public:
  FunctionGradient(const OperatorDef& def, std::vector<GradientValue> g_output,
                   IntrusivePtr<Record> record)
      : Base(def, std::move(g_output)), record_(std::move(record)) {}

  // Inputs that the operator writes to get no gradient.
  std::vector<OperatorDef> GetGradientDefs() override {
    const OperatorDef& def = this->Def();
    OperatorDef backward(def.type() + "_backward");
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      const int output = static_cast<int>(o);
      backward.Input(this->GradOut(output).IsEmpty() ? std::string() : this->GO(output));
    }
    backward.Inputs(def.inputs()).Inputs(def.outputs());
    const std::vector<int> mutated = FunctionMutatedInputs(*record_, AttrMap(def.args()));
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const int input = static_cast<int>(i);
      bool skipped = def.inputs()[i].empty();
      for (int one : mutated) skipped |= one == input;
      backward.Output(skipped ? std::string() : this->GI(input));
    }
    const FunctionDevice* device = record_->Find(def.device().type);
    for (const NamedAttribute& arg : def.args()) backward.Arg(arg.name, arg.value);
    if (device && device->create_state) backward.Arg(kStateArgument, FunctionStateBlob(def));
    backward.Device(def.device()).Engine(def.engine()).IsGradientOp(true);
    return {std::move(backward)};
  }

 private:
  IntrusivePtr<Record> record_;
};

}  // namespace detail

// Lets function operators run with Context: one line in the header of a device.
//   [[maybe_unused]] inline const bool kNpuFunctions = EnableFunctionOperators<NpuContext>();
template <DeviceContext Context>
bool EnableFunctionOperators() {
  detail::FunctionFactory(Context::kDeviceType)
      .store(
          [](const OperatorDef& def, Workspace* ws, detail::FunctionRecord record,
             FunctionPass pass) -> std::unique_ptr<OperatorBase> {
            return std::make_unique<FunctionOperator<Context>>(def, ws, std::move(record), pass);
          },
          std::memory_order_release);
  return true;
}

// What the result of an output is to be: OpReq::kWrite at first; kAdd adds to what the output
// holds, kNone leaves it out. Error (kUnsupported) for an operator that is not made of functions.
inline void SetOutputReq(OperatorBase& op, int output, OpReq req) {
  auto* functions = dynamic_cast<detail::FunctionRequests*>(&op);
  if (!functions)
    Throw(ErrorCode::kUnsupported, "operator ", op.type(),
          " takes no request for its outputs: it "
          "is not made of functions");
  functions->SetOutputReq(output, req);
}

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
// Contexts are those that every program can run functions with. A template, so that the toolkit's
// side of function operators is compiled only where one is registered.
template <class Record, class... Contexts>
class BasicFunctionOpBuilder {
 public:
  BasicFunctionOpBuilder(const char* name, const char* file, int line) noexcept
      : record_(new Record) {
    Guarded([&] {
      (EnableFunctionOperators<Contexts>(), ...);
      record_->name = name;
      record_->file = file;
      record_->line = line;
      schema_ = AddSchema(record_->name, FunctionPass::kForward);
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
  // Makes the object that runs the operator. It is also asked for the gradient.
  template <class F>
  BasicFunctionOpBuilder& setCreateOpState(F f, const char* device = "cpu") {
    static_assert(detail::kIsCreateState<F>,
                  "setCreateOpState(f): write int f(std::map<std::string, std::string> attrs, "
                  "StatefulOp** state), with OpContext context in the middle if you need the "
                  "device; std::unique_ptr<StatefulOp>* also does for the state");
    if constexpr (detail::kIsCreateState<F>) {
      OnDevice(device, "setCreateOpState", &FunctionDevice::create_state, FunctionPass::kForward,
               detail::MakeCreateState(std::move(f), detail::FunctionParameters<F>{}));
      Guarded([&] { RegisterKernel(detail::DeviceTypeFromName(device), FunctionPass::kBackward); });
    }
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
  // Memory for the whole of a run, known before it, so that a plan can hold it.
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
  BasicFunctionOpBuilder& setDoc(const char* doc) {
    Guarded([&] {
      if (schema_) schema_->SetDoc(doc);
    });
    return *this;
  }

 private:
  // Static initialisers must not throw: what is wrong is kept for whoever uses the operator.
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
      // A header's registration is listed once, however many translation units see it.
      if (OpRegistry::Global().FindSchema(record_->name) == schema_)
        OpRegistry::Global().AddProblem(record_->name, problem);
      if (record_->problem.empty()) record_->problem = std::move(problem);
    } catch (...) {  // no memory to report it in
    }
  }
  template <class Function>
  void Once(Function& slot, const char* setter, Function function) {
    if (slot) return AddProblem(StrCat(setter, " is called twice"));
    slot = std::move(function);
  }
  template <class Function>
  void OnDevice(const char* device, const char* setter, Function FunctionDevice::*slot,
                FunctionPass pass, Function function) {
    Guarded([&] {
      const int type = detail::DeviceTypeFromName(device);
      if (type < 0)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", device,
              "\"): no device type has this "
              "name; \"cpu\", \"gpu\" and \"cpu_stream\" do");
      FunctionDevice* functions = record_->Find(static_cast<DeviceType>(type));
      if (!functions) {
        functions = &record_->devices.emplace_back();
        functions->type = static_cast<DeviceType>(type);
      }
      if (functions->*slot)
        Throw(ErrorCode::kInvalidArgument, setter, "(f, \"", device, "\") is called twice");
      functions->*slot = std::move(function);
      RegisterKernel(type, pass);
    });
  }

  void RegisterKernel(int type, FunctionPass pass) {
    if (type < 0) return;
    detail::IntrusivePtr<Record> record = record_;
    Kernel kernel;
    kernel.op = record->name;
    if (pass == FunctionPass::kBackward) {
      kernel.op += "_backward";
      if (!backward_added_) AddBackward();
    }
    kernel.device = static_cast<DeviceType>(type);
    kernel.file = record->file;
    kernel.line = record->line;
    kernel.origin = record->library;
    kernel.create = [record, pass](const OperatorDef& def, Workspace* ws) {
      return detail::CreateFunctionOperator(def, ws, record, pass);
    };
    kernel.propose = [record, pass](const KernelQuery& query) {
      KernelConfig config;
      if (pass == FunctionPass::kForward) config.inplace = record->inplace;
      bool known = true;
      for (const TensorInfo& input : query.inputs) known &= input.shape.is_known();
      if (known)
        config.scratch_bytes =
            detail::FunctionScratch(*record, AttrMap(query.def.args()), query.inputs);
      return std::vector<KernelConfig>{std::move(config)};
    };
    OpRegistry::Global().AddKernel(std::move(kernel));
  }
  OpSchema* AddSchema(const std::string& name, FunctionPass pass) {
    detail::IntrusivePtr<Record> record = record_;
    OpSchema& schema = OpRegistry::Global().AddSchema(name.c_str(), record->file, record->line);
    schema
        .ArityFromArguments([record, pass](const Arguments& args) {
          const auto [inputs, outputs] = detail::FunctionArity(*record, AttrMap(args));
          if (pass == FunctionPass::kForward) return std::pair(inputs, outputs);
          const bool known = inputs >= 0 && outputs >= 0;
          return std::pair(known ? 2 * outputs + inputs : -1, inputs);
        })
        .TensorInferenceFunction([record, pass](InferenceContext& context) {
          detail::InferFunction(*record, AttrMap(context.args()), pass, context);
        });
    if (pass == FunctionPass::kForward)
      schema
          .AllowInplace([record](int input, int output) {
            for (const auto& pair : record->inplace)
              if (pair.first == input && pair.second == output) return true;
            return false;
          })
          .MutatesInputs([record](const Arguments& args) {
            return detail::FunctionMutatedInputs(*record, AttrMap(args));
          });
    return &schema;
  }
  void AddBackward() {
    backward_added_ = true;
    AddSchema(record_->name + "_backward", FunctionPass::kBackward)
        ->SetDoc("Gradients of the inputs of " + record_->name +
                 ", from those of its outputs, its inputs and its outputs.");
    GradientRegistration gradient;
    gradient.file = record_->file;
    gradient.line = record_->line;
    gradient.make = [record = record_](const OperatorDef& def,
                                       const std::vector<GradientValue>& g_output,
                                       GradientNames& names) {
      detail::FunctionGradient<Record, GradientMakerBase> maker(def, g_output, record);
      maker.UseNames(&names);
      return maker.Get();
    };
    BasicGradientRegistry<GradientRegistration>::Global().Add(record_->name, std::move(gradient));
  }

  detail::IntrusivePtr<Record> record_;
  OpSchema* schema_ = nullptr;
  bool backward_added_ = false;
};
using FunctionOpBuilder = BasicFunctionOpBuilder<FunctionOpRecord, CPUContext, CPUStreamContext>;

}  // namespace opkit

// REGISTER_OP(my_gemm).setForward(…)…; at namespace scope, in a source file or a header.
#define OPKIT_REGISTER_OP(name)                                                               \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}  \
  [[maybe_unused]] static const ::opkit::FunctionOpBuilder OPKIT_UNIQUE(opkit_function_op_) = \
      ::opkit::FunctionOpBuilder(#name, __FILE__, __LINE__)

#endif  // OPKIT_OP_FUNCTION_OPERATOR_HPP_

// ---- opkit/op/observers.hpp
// Ready observers: how often an operator or a net runs, how long it takes, and what an operator
// wrote (shapes, NaN, infinity). Attached in one line, owned by what they watch.
#ifndef OPKIT_OP_OBSERVERS_HPP_
#define OPKIT_OP_OBSERVERS_HPP_

namespace opkit::inline OPKIT_ABI {

// Attaches an observer to an operator or a net, which owns it; the pointer reads it and detaches
// it.
//
//   auto* time = Observe<TimeObserver>(*op);
//   auto* numbers = Observe<NumericObserver>(*op);
//   op->Run();
//   std::puts(StrCat(time->average_ms(), " ms\n", numbers->Report()).c_str());
template <template <class> class Observer, class T>
Observer<T>* Observe(Observable<T>& subject) {
  return static_cast<Observer<T>*>(
      subject.AttachObserver(std::make_unique<Observer<T>>(static_cast<T*>(&subject))));
}
template <class Observer, class T>
Observer* Observe(Observable<T>& subject) {
  return static_cast<Observer*>(
      subject.AttachObserver(std::make_unique<Observer>(static_cast<T*>(&subject))));
}

template <class T>
class RunCountObserver : public ObserverBase<T> {
 public:
  using ObserverBase<T>::ObserverBase;
  void Stop(bool succeeded) override { ++(succeeded ? succeeded_ : failed_); }

  int64_t runs() const { return succeeded_ + failed_; }
  int64_t failed_runs() const { return failed_; }

 private:
  int64_t succeeded_ = 0, failed_ = 0;
};

// Wall-clock milliseconds from Start to Stop, failed runs included. An operator's device is drained
// at both ends, so that its own work is measured and nothing else: an observed RunAsync waits. (The
// asynchronous part of a CPU operator is not waited for.)
template <class T>
class TimeObserver : public ObserverBase<T> {
 public:
  using ObserverBase<T>::ObserverBase;
  void Start() override {
    Drain();
    start_ns_ = detail::MonotonicNs();
  }
  void Stop(bool) override {
    Drain();
    last_ms_ = static_cast<double>(detail::MonotonicNs() - start_ns_) * 1e-6;
    total_ms_ += last_ms_;
    ++runs_;
  }

  int64_t runs() const { return runs_; }
  double last_ms() const { return last_ms_; }
  double total_ms() const { return total_ms_; }
  // 0 before the first run.
  double average_ms() const { return runs_ ? total_ms_ / static_cast<double>(runs_) : 0; }

 private:
  void Drain() {
    if constexpr (requires(T& subject) { subject.SyncDeviceBarrierForObservers(); })
      this->subject()->SyncDeviceBarrierForObservers();
  }
  int64_t start_ns_ = 0;
  double last_ms_ = 0, total_ms_ = 0;
  int64_t runs_ = 0;
};

// What one output held after a run.
struct OutputNumerics {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape{0};
  bool checked = false;  // a floating-point tensor that the host could read
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t first_bad = -1;  // row-major index of the first NaN or infinity
};

// Looks at every tensor that a run wrote. Reads all elements on the host: for finding faults, not
// for production. A run that failed, or is still writing, is not looked at.
class NumericObserver final : public ObserverBase<OperatorBase> {
 public:
  using ObserverBase<OperatorBase>::ObserverBase;
  void Stop(bool succeeded) override {
    outputs_.clear();
    if (!succeeded) return;
    OperatorBase& op = *subject();
    op.SyncDeviceBarrierForObservers();
    const bool has_event = op.HasAsyncPart() && !op.IsEventDisabled();
    if (has_event && (op.event().IsScheduled() || op.event().exception())) return;
    for (int i = 0; i < op.OutputSize(); ++i) {
      if (!op.HasOutput(i) || !op.OutputIsType<Tensor>(i)) continue;
      outputs_.push_back(Examine(op.def().outputs()[static_cast<size_t>(i)], *op.Output(i)));
    }
    for (const OutputNumerics& seen : outputs_)
      if (seen.first_bad >= 0) return void(++bad_runs_);
  }

  // Of the last run; empty when it failed.
  const std::vector<OutputNumerics>& outputs() const { return outputs_; }
  int64_t bad_runs() const { return bad_runs_; }
  // "Log (X) -> (Y)\n  output 'Y' float32[2, 3]: 1 NaN, 2 infinite, first at element 4"
  std::string Report() const {
    std::string out = ToString(subject()->def());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OutputNumerics& seen = outputs_[i];
      out += StrCat("\n  output '", seen.name, "' ", seen.dtype, seen.shape, ": ");
      out += !seen.checked        ? "not checked"
             : seen.first_bad < 0 ? "finite"
                                  : StrCat(seen.nans, " NaN, ", seen.infinities,
                                           " infinite, first at element ", seen.first_bad);
    }
    return out;
  }

 private:
  static OutputNumerics Examine(const std::string& name, const Tensor& tensor) {
    OutputNumerics seen{name, tensor.dtype(), tensor.shape()};
    if (!IsFloatingPoint(tensor.dtype()) || !tensor.initialized() ||
        !tensor.layout().is_standard() || !IsHostAccessible(tensor.device().type))
      return seen;
    seen.checked = true;
    const Tensor dense = tensor.is_dense() ? tensor : tensor.Contiguous();
    // By their bits: -ffast-math would fold std::isnan to false.
    if (seen.dtype == DType::kFloat64) Count<uint64_t>(dense, 0x7ff0000000000000, seen);
    if (seen.dtype == DType::kFloat32) Count<uint32_t>(dense, 0x7f800000, seen);
    if (seen.dtype == DType::kFloat16) Count<uint16_t>(dense, 0x7c00, seen);
    if (seen.dtype == DType::kBFloat16) Count<uint16_t>(dense, 0x7f80, seen);
    return seen;
  }
  // `infinity` is its bit pattern; above it, sign aside, are the NaNs.
  template <class Bits>
  static void Count(const Tensor& dense, Bits infinity, OutputNumerics& seen) {
    const auto* bytes = static_cast<const char*>(dense.raw_data());
    for (int64_t i = 0; i < dense.numel(); ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof bits), sizeof bits);
      bits = static_cast<Bits>(bits << 1) >> 1;
      if (bits < infinity) continue;
      ++(bits == infinity ? seen.infinities : seen.nans);
      if (seen.first_bad < 0) seen.first_bad = i;
    }
  }

  std::vector<OutputNumerics> outputs_;
  int64_t bad_runs_ = 0;
};

}  // namespace opkit

#endif  // OPKIT_OP_OBSERVERS_HPP_

// ---- opkit/op/schema_docs.hpp
// A schema as Markdown: what an operator's users read, generated from what its nodes are checked
// against, so that the two cannot differ.
#ifndef OPKIT_OP_SCHEMA_DOCS_HPP_
#define OPKIT_OP_SCHEMA_DOCS_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Fit for a table's cell.
inline std::string Cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

inline std::string ValueTable(const char* title, const std::string& count,
                              const std::vector<ValueSchema>& values) {
  std::string out = StrCat("\n**", title, "** (", count, ")\n");
  if (values.empty()) return out;
  out += "\n| # | name | dtypes | |\n|---|---|---|---|\n";
  for (size_t i = 0; i < values.size(); ++i) {
    std::string dtypes;
    for (DType dtype : values[i].dtypes) dtypes += StrCat(dtypes.empty() ? "" : ", ", dtype);
    out += StrCat("| ", i, " | ", Cell(values[i].name), " | ", dtypes.empty() ? "any" : dtypes,
                  " | ", Cell(values[i].doc), " |\n");
  }
  return out;
}

inline std::string NameOf(const std::vector<ValueSchema>& values, const char* what, int i) {
  const auto index = static_cast<size_t>(i);
  return index < values.size() && !values[index].name.empty() ? "`" + values[index].name + "`"
                                                              : StrCat(what, " ", i);
}

// The pairs among the first few inputs and outputs: a predicate may allow any number of them.
inline std::string InplaceList(const OpSchema& schema) {
  constexpr int kShown = 8;
  std::string out;
  for (int i = 0; i < kShown && i < schema.max_inputs(); ++i)
    for (int o = 0; o < kShown && o < schema.max_outputs(); ++o)
      if (schema.CanInplace(i, o))
        out += StrCat("\n- ", NameOf(schema.inputs(), "input", i), " and ",
                      NameOf(schema.outputs(), "output", o),
                      schema.MustInplace(i, o) ? " (must be the same)" : "");
  return out;
}

}  // namespace detail

// Name, description, inputs, outputs, attributes and in-place pairs.
inline std::string ToMarkdown(const OpSchema& schema) {
  std::string out = StrCat("## ", schema.name(), "\n");
  if (!schema.doc().empty()) out += StrCat("\n", schema.doc(), "\n");
  out += detail::ValueTable("Inputs", schema.expected_inputs(), schema.inputs());
  out += detail::ValueTable("Outputs", schema.expected_outputs(), schema.outputs());
  if (!schema.attributes().empty()) {
    out += "\n**Attributes**\n\n| name | type | default | |\n|---|---|---|---|\n";
    for (const AttributeSchema& attribute : schema.attributes())
      out += StrCat("| ", detail::Cell(attribute.name), " | ",
                    attribute.type ? ToString(*attribute.type) : "any", " | ",
                    attribute.required        ? "required"
                    : attribute.default_value ? detail::Cell(ToString(*attribute.default_value))
                                              : std::string(),
                    " | ", detail::Cell(attribute.doc), " |\n");
  }
  const std::string inplace = detail::InplaceList(schema);
  if (!inplace.empty()) out += "\n**In place**\n" + inplace + "\n";
  return out;
}

// All operators of the program that are not private, by name, and what runs each of them.
inline std::string DocsOfAllOperators() {
  const OpRegistry& registry = OpRegistry::Global();
  std::string out;
  for (const std::string& op : registry.Operators()) {
    const OpSchema* schema = registry.FindSchema(op);
    if (!schema || schema->is_private()) continue;
    std::string kernels;
    for (const Kernel* kernel : registry.KernelsOf(op))
      kernels += StrCat(kernels.empty() ? "" : ", ", kernel->device, " (", kernel->backend, ")");
    out += StrCat(out.empty() ? "" : "\n", ToMarkdown(*schema),
                  "\n**Kernels**: ", kernels.empty() ? "none in this program" : kernels, "\n");
  }
  return out;
}

}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_DOCS_HPP_

// ---- opkit/base/fixed_name.hpp
// FixedName: a string literal as a template argument, so that names are checked at compile time.
#ifndef OPKIT_BASE_FIXED_NAME_HPP_
#define OPKIT_BASE_FIXED_NAME_HPP_

namespace opkit::inline OPKIT_ABI {

// Up to 31 characters, packed into integers: nvcc rejects extended lambdas inside functions whose
// template arguments hold a char array, and writes the name as FixedName{w0, w1, w2, w3} into the
// code that it hands to the host compiler (an array member it cannot write at all).
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

}  // namespace opkit

#endif  // OPKIT_BASE_FIXED_NAME_HPP_

// ---- opkit/op/typed_values.hpp
// The parameters of a typed operator: In, OptionalIn, Out and Attr. Each carries its name in its
// type; each is copied into a kernel's lambda, on any device.
#ifndef OPKIT_OP_TYPED_VALUES_HPP_
#define OPKIT_OP_TYPED_VALUES_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A dense tensor as a kernel sees it: a pointer and the extents, row-major.
template <class T>
class TypedView {
 public:
  static constexpr int kMaxRank = 8;

  TypedView() = default;
  // Error (kUnsupported) for a rank past kMaxRank.
  TypedView(T* data, const Shape& shape) : data_(data), size_(shape.numel()), rank_(shape.rank()) {
    if (rank_ > kMaxRank)
      Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
            ", found shape ", ToString(shape), "; merge axes with View first");
    for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
  }

  OPKIT_HOST_DEVICE T* data() const { return data_; }
  OPKIT_HOST_DEVICE int64_t size() const { return size_; }
  OPKIT_HOST_DEVICE int rank() const { return rank_; }
  // Unchecked; negative axes count from the end.
  // Negative axes count from the end. On the host an Error (kOutOfRange) for one that is not there.
  OPKIT_HOST_DEVICE int64_t dim(int axis) const {
    const int found = axis < 0 ? axis + rank_ : axis;
#ifndef __CUDA_ARCH__
    if (found < 0 || found >= rank_) [[unlikely]]
      static_cast<void>(shape().Axis(axis));
#endif
    return dims_[found];
  }
  // Element i in row-major order, unchecked.
  OPKIT_HOST_DEVICE T& operator[](int64_t i) const { return data_[i]; }
  OPKIT_HOST_DEVICE T* begin() const { return data_; }
  OPKIT_HOST_DEVICE T* end() const { return data_ + size_; }
  Shape shape() const { return Shape(std::vector<int64_t>(dims_, dims_ + rank_)); }

  // The same shape at another address.
  void set_data(T* data) { data_ = data; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

}  // namespace detail

// An input tensor of elements T. A strided one arrives as a dense copy.
template <FixedName Name, Element T>
class In : public detail::TypedView<const T> {
 public:
  using value_type = T;
  using detail::TypedView<const T>::TypedView;
};

// An input that a node may leave out: false then, and empty.
template <FixedName Name, Element T>
class OptionalIn : public In<Name, T> {
 public:
  OptionalIn() = default;
  OptionalIn(const T* data, const Shape& shape) : In<Name, T>(data, shape), present_(true) {}
  OPKIT_HOST_DEVICE explicit operator bool() const { return present_; }

 private:
  bool present_ = false;
};

// An output tensor, allocated before the function is called, by the operator's shape rule.
template <FixedName Name, Element T>
class Out : public detail::TypedView<T> {
 public:
  using value_type = T;
  using detail::TypedView<T>::TypedView;
};

// An attribute: an integer, floating-point number, bool, std::string, Tensor, or a std::vector of
// one of these. Converts to T; value() where a template must deduce it. Required unless the
// operator gives it a default. Strings, tensors and lists are for host code; taken by const
// reference they are not copied in every run.
template <FixedName Name, class T>
class Attr {
 public:
  using value_type = T;
  Attr() = default;
  explicit Attr(T value) : value_(std::move(value)) {}
  OPKIT_HOST_DEVICE const T& value() const { return value_; }
  OPKIT_HOST_DEVICE operator const T&() const { return value_; }

 private:
  T value_{};
};

}  // namespace opkit

#endif  // OPKIT_OP_TYPED_VALUES_HPP_

// ---- opkit/op/typed_signature.hpp
// The signature of a typed operator's function as a table that the compiler reads: kind, name,
// place, dtype or attribute type of each parameter, and the sentences for what cannot be read.
#ifndef OPKIT_OP_TYPED_SIGNATURE_HPP_
#define OPKIT_OP_TYPED_SIGNATURE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

enum class ParameterKind { kIn, kOptionalIn, kOut, kAttr, kUnknown };

constexpr bool IsInput(ParameterKind kind) {
  return kind == ParameterKind::kIn || kind == ParameterKind::kOptionalIn;
}
constexpr bool IsOutput(ParameterKind kind) { return kind == ParameterKind::kOut; }
constexpr bool IsAttribute(ParameterKind kind) { return kind == ParameterKind::kAttr; }

// Attr<"name", T> is kept as this type; nothing where T cannot be an attribute.
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

// One row of the table.
struct TypedParameter {
  ParameterKind kind;
  FixedName name;
  DType dtype;              // of a tensor
  AttributeType attribute;  // of an attribute
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

// The type of a function: R (Context&, P...).
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

// A function template over <Context> alone, or over <Context, T>, behind a lambda of OPKIT_OP.
template <class Function, class... Types>
inline constexpr bool kHasVersion = std::is_invocable_v<Function, std::type_identity<Types>...>;
template <class Function, class... Types>
using SignatureOf = TypedSignature<decltype(Function{}(std::type_identity<Types>{}...))>;

// Two element types that the function may be asked for, to see which parameters change with T.
template <class Function>
consteval auto ElementProbes() {
  if constexpr (kHasVersion<Function, CPUContext, float> &&
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
struct TypedFunctionOf {  // none of the two
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
  // Where T occurs, it is the element type itself.
  static constexpr bool kElementsAreT = []<size_t... I>(std::index_sequence<I...>) {
    return (kIsElement<typename Signature::template Value<I>, typename Other::template Value<I>> &&
            ...);
  }(std::make_index_sequence < Signature::kReadable ? Signature::kCount : 0 > {});
};

// All that OPKIT_OP needs to know of a readable function.
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
    if (IsAttribute(row.kind))  // kept as floating point whatever T is
      row.attribute =
          row.attribute >= AttributeType::kInts ? AttributeType::kFloats : AttributeType::kFloat;
  }
  return rows;
}
template <class Function>
inline constexpr auto kTypedRows = TypedRows<Function>();

// Index of the parameter of that name and kind, or -1.
template <class Function>
constexpr int FindParameter(FixedName name, bool (*of_kind)(ParameterKind)) {
  const auto& rows = kTypedRows<Function>;
  for (size_t i = 0; i < rows.size(); ++i)
    if (of_kind(rows[i].kind) && rows[i].name == name) return static_cast<int>(i);
  return -1;
}
// Place of the input (output) of that name, or -1.
template <class Function>
constexpr int FindPlace(FixedName name, bool (*of_kind)(ParameterKind)) {
  const int found = FindParameter<Function>(name, of_kind);
  return found < 0 ? -1 : kTypedRows<Function>[static_cast<size_t>(found)].place;
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
// Place of the first required input declared with T, or -1.
template <class Function>
constexpr int ElementInput() {
  for (const TypedParameter& row : kTypedRows<Function>)
    if (row.kind == ParameterKind::kIn && row.by_element) return row.place;
  return -1;
}

// Says what is wrong with the function, one thing at a time; true when nothing is.
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_SIGNATURE_HPP_

// ---- opkit/op/typed_kernel.hpp
// TypedOperator: the Operator<Context> that calls a typed operator's function. It reads attributes
// once, infers output shapes when the inputs' change, binds the parameters and picks the element
// type.
#ifndef OPKIT_OP_TYPED_KERNEL_HPP_
#define OPKIT_OP_TYPED_KERNEL_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What a call gets besides its attributes.
struct TypedRun {
  const Tensor* const* inputs;  // dense; null where the node leaves one out
  const Shape* output_shapes;
  uint64_t version;  // of the inputs' and outputs' shapes
};

// The node's attribute, or the default. Error: kNotFound.
OPKIT_COLD inline const Attribute& FindAttribute(const OperatorBase& op, const std::string& name) {
  if (const Attribute* given = op.def().args().Find(name)) return *given;
  const AttributeSchema* declared = OpRegistry::Global().GetSchema(op.type()).FindAttribute(name);
  if (!declared || !declared->default_value)
    Throw(ErrorCode::kNotFound, "operator ", op.type(), " needs the argument '", name, "'");
  return *declared->default_value;
}
template <class T>
T ReadAttribute(const OperatorBase& op, const FixedName& fixed_name) {
  const std::string name = fixed_name.str();
  return Arguments{{name, FindAttribute(op, name)}}.Get<T>(name);
}

// `value` as an element of type T. Error (kOutOfRange) where an integer or bool cannot hold it.
template <class T>
T ToElement(double value, const FixedName& name) {
  if constexpr (std::is_integral_v<T>) {
    constexpr int kBits = std::is_same_v<T, bool> ? 1 : 8 * sizeof(T) - std::is_signed_v<T>;
    constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (kBits - 1));
    if (!(value < kEnd && value >= (std::is_signed_v<T> ? -kEnd : 0)) ||
        static_cast<double>(static_cast<T>(value)) != value)
      Throw(ErrorCode::kOutOfRange, "argument '", name.str(), "' is ", value,
            ", which is no value of the inputs' dtype ", kDTypeOf<T>);
  }
  return static_cast<T>(value);
}
template <class T>
void SetElements(T& out, double value, const FixedName& name) {
  out = ToElement<T>(value, name);
}
template <class T>
void SetElements(std::vector<T>& out, const std::vector<double>& values, const FixedName& name) {
  for (double value : values) out.push_back(ToElement<T>(value, name));
}

// The function for one context and at most one element type, with its attributes.
template <class Function, class Context, class... Types>
class TypedCall {
  using F = TypedFunction<Function>;
  using S = SignatureOf<Function, Context, Types...>;
  using Indices = std::make_index_sequence<S::kCount>;

 public:
  explicit TypedCall(const OperatorBase& op) { ReadAttributes(op, Indices{}); }

  bool operator()(Operator<Context>& op, const TypedRun& run) {
    if (!refused_.empty()) [[unlikely]]
      Throw(ErrorCode::kOutOfRange, refused_);
    const bool reshaped = version_ != run.version;
    version_ = 0;
    Bind(op, run, reshaped, Indices{});
    version_ = run.version;
    return Call(op, Indices{});
  }

 private:
  template <size_t... I>
  void ReadAttributes(const OperatorBase& op, std::index_sequence<I...>) {
    (ReadAttribute<I>(op), ...);
  }
  template <size_t I>
  void ReadAttribute(const OperatorBase& op) {
    constexpr const TypedParameter& kRow = kTypedRows<Function>[I];
    if constexpr (IsAttribute(kRow.kind)) {
      using P = typename S::template Parameter<I>;
      using Value = typename P::value_type;
      if constexpr (kRow.by_element) {
        using Stored = std::conditional_t<kIsVector<Value>, std::vector<double>, double>;
        const auto stored = detail::ReadAttribute<Stored>(op, kRow.name);
        Value value{};
        try {  // matters only to a run with this element type
          SetElements(value, stored, kRow.name);
        } catch (const Error& error) {
          refused_ = error.message();
        }
        std::get<I>(values_) = P(std::move(value));
      } else {
        std::get<I>(values_) = P(detail::ReadAttribute<Value>(op, kRow.name));
      }
    }
  }

  template <size_t... I>
  void Bind(OperatorBase& op, const TypedRun& run, bool reshaped, std::index_sequence<I...>) {
    (BindParameter<I>(op, run, reshaped), ...);
  }
  template <size_t I>
  void BindParameter(OperatorBase& op, const TypedRun& run, bool reshaped) {
    constexpr const TypedParameter& kRow = kTypedRows<Function>[I];
    using P = typename S::template Parameter<I>;
    if constexpr (!IsAttribute(kRow.kind)) {
      using T = typename P::value_type;
      P& value = std::get<I>(values_);
      if constexpr (IsInput(kRow.kind)) {
        const Tensor* in = run.inputs[kRow.place];
        if (!in) return;
        SetView(value, in->template data<T>(), in->shape(), reshaped);
      } else {
        Tensor* out = op.Output(kRow.place, run.output_shapes[kRow.place], kDTypeOf<T>);
        SetView(value, out->template mutable_data<T>(), out->shape(), reshaped);
      }
    }
  }
  template <class P, class T>
  static void SetView(P& value, T* data, const Shape& shape, bool reshaped) {
    if (reshaped) {
      value = P(data, shape);
    } else {
      value.set_data(data);
    }
  }

  template <size_t... I>
  bool Call(Operator<Context>& op, std::index_sequence<I...>) {
    constexpr auto kFunction =
        Function{}(std::type_identity<Context>{}, std::type_identity<Types>{}...);
    if constexpr (std::is_void_v<typename S::Return>) {
      kFunction(op.context(), std::get<I>(values_)...);
      return true;
    } else {
      return kFunction(op.context(), std::get<I>(values_)...);
    }
  }

  typename S::Values values_;
  uint64_t version_ = 0;  // of the shapes in values_
  std::string refused_;   // why an attribute does not fit the element type
};

template <class Function, class Context, class... Types>
struct TypedCallsOf {
  using type = std::tuple<TypedCall<Function, Context, Types>...>;
};
template <class Function, class Context>
struct TypedCallsOf<Function, Context> {
  using type = std::tuple<TypedCall<Function, Context>>;
};

// The part that is the same for every function on a context.
template <class Context>
class TypedOperatorBase : public Operator<Context> {
 protected:
  OPKIT_COLD TypedOperatorBase(const OperatorDef& def, Workspace* ws,
                               std::span<const TypedParameter> rows)
      : Operator<Context>(def, ws), schema_(&OpRegistry::Global().GetSchema(def.type())) {
    for (const TypedParameter& row : rows) {
      if (IsInput(row.kind)) inputs_.push_back(nullptr);
      const bool left_out = (row.kind == ParameterKind::kIn && !this->HasInput(row.place)) ||
                            (row.kind == ParameterKind::kOut && !this->HasOutput(row.place));
      if (left_out)
        Throw(ErrorCode::kInvalidArgument, ToString(def), " leaves out ",
              IsInput(row.kind) ? "input " : "output ", row.place, " '", row.name.str(),
              "', which is not optional");
    }
  }

  // Inputs and output shapes of this run; `call` then runs the function.
  template <class F>
  bool Prepare(F call) {
    bool strided = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!this->HasInput(input)) continue;
      inputs_[i] = &this->Input(input);
      strided |= !inputs_[i]->is_dense() || !inputs_[i]->layout().is_standard();
    }
    if (!cache_.IsFresh(inputs_)) [[unlikely]]
      InferShapes();
    if (strided) [[unlikely]]
      return RunOnDenseCopies(call);
    return call(Bound());
  }
  DType input_dtype(int i) const { return inputs_[static_cast<size_t>(i)]->dtype(); }

 private:
  TypedRun Bound() const { return {inputs_.data(), output_shapes_.data(), version_}; }

  OPKIT_COLD void InferShapes() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && !inputs_[i]->initialized())
        throw Error(ErrorCode::kUninitialized,
                    StrCat("input ", i, " of ", ToString(this->def()),
                           " is read before anything was written to it"),
                    inputs_[i]);
    const auto infos =
        cache_.Infer(*schema_, this->def(), inputs_, [this] { this->WaitForInputs(); });
    output_shapes_.clear();
    for (size_t o = 0; o < infos.size(); ++o) {
      if (!infos[o].shape.is_known())
        Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
              schema_->outputs()[o].name, "' of ", ToString(this->def()),
              " does not follow from its inputs: its shape rule says ", ToString(infos[o].shape));
      output_shapes_.push_back(infos[o].shape.ToShape());
    }
    ++version_;
    cache_.Keep();
  }

  // The work issued so far may still be computing them.
  void WaitForInputs() {
    if constexpr (Context::kAsynchronous) this->context_.FinishDeviceComputation();
  }
  // On an asynchronous device the copies are made on the stream and kept until it has come past
  // what the function issues.
  template <class F>
  OPKIT_COLD bool RunOnDenseCopies(F call) {
    if constexpr (!Context::kAsynchronous) {
      return RunOn(call, [](const Tensor& from, Tensor* to) { to->CopyFrom(from); });
    } else if constexpr (HostContext<Context> || HasNativeStream<Context>) {
      return RunOn(call,
                   [this](const Tensor& from, Tensor* to) { CopyAsync(this->context_, from, to); });
    } else {
      Throw(ErrorCode::kUnsupported, "an input of ", ToString(this->def()),
            " has strides or a layout of its own; copy it to a dense tensor first");
    }
  }
  template <class F, class Copy>
  bool RunOn(F call, Copy copy) {
    std::vector<Tensor> copies;
    copies.reserve(inputs_.size());
    const KeepUntilIssued keep{this->context_, copies};
    for (const Tensor*& input : inputs_) {
      if (!input || (input->is_dense() && input->layout().is_standard())) continue;
      Tensor& dense = copies.emplace_back(input->device());
      copy(*input, &dense);
      input = &dense;
    }
    return call(Bound());
  }
  struct KeepUntilIssued {
    Context& context;
    const std::vector<Tensor>& copies;
    ~KeepUntilIssued() {
      if constexpr (Context::kAsynchronous && HostContext<Context>) {
        try {
          context.Launch([kept = copies] {});
        } catch (...) {
          Drain();
        }
      }
    }
    void Drain() const noexcept {
      try {
        context.FinishDeviceComputation();
      } catch (...) {  // what failed before is reported by the event of its operator
      }
    }
  };

  const OpSchema* schema_;
  std::vector<const Tensor*> inputs_;  // of the run in progress; null where left out
  std::vector<Shape> output_shapes_;
  uint64_t version_ = 0;
  InferenceCache cache_;
};

template <class Function, class Context, class... Types>
class TypedOperator final : public TypedOperatorBase<Context> {
  using Calls = typename TypedCallsOf<Function, Context, Types...>::type;

 public:
  TypedOperator(const OperatorDef& def, Workspace* ws)
      : TypedOperatorBase<Context>(def, ws, kTypedRows<Function>),
        calls_(MakeCalls(*this, std::make_index_sequence<std::tuple_size_v<Calls>>{})) {}

  bool RunOnDevice() override {
    return this->Prepare([this](const TypedRun& run) {
      if constexpr (sizeof...(Types) == 0) {
        return std::get<0>(calls_)(*this, run);
      } else {
        return DispatchDType<Types...>(this->input_dtype(ElementInput<Function>()), [&]<class T>() {
          return std::get<TypedCall<Function, Context, T>>(calls_)(*this, run);
        });
      }
    });
  }

 private:
  template <size_t... I>
  static Calls MakeCalls(const OperatorBase& op, std::index_sequence<I...>) {
    return Calls(std::tuple_element_t<I, Calls>(op)...);
  }
  Calls calls_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_KERNEL_HPP_

// ---- opkit/op/typed_schema.hpp
// TypedSchema: an OpSchema filled in from the table of a typed operator's parameters, and the shape
// rules that its builder adds, run in order as the schema's inference.
#ifndef OPKIT_OP_TYPED_SCHEMA_HPP_
#define OPKIT_OP_TYPED_SCHEMA_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

class TypedSchema;
using TypedSchemaPtr = IntrusivePtr<TypedSchema>;

// Shared by the builder and the schema's functions.
class TypedSchema final : public RefCounted {
 public:
  OPKIT_COLD static TypedSchemaPtr Make(const char* name, const char* file, int line,
                                        std::span<const TypedParameter> rows) {
    auto typed = MakeIntrusive<TypedSchema>(
        OpRegistry::Global().AddSchema(name, file, line, Signature(rows)), rows);
    typed->schema.AllowInplace([typed](int in, int out) { return typed->CanInplace(in, out); })
        .TensorInferenceFunction([typed](InferenceContext& context) { typed->Infer(context); });
    return typed;
  }
  OPKIT_COLD TypedSchema(OpSchema& filled, std::span<const TypedParameter> rows) : schema(filled) {
    int required_inputs = 0;
    for (const TypedParameter& row : rows) {
      if (IsAttribute(row.kind)) {
        schema.Arg({row.name.str(), "", true, row.attribute, {}});
        continue;
      }
      Describe(row, {}, row.by_element ? std::vector<DType>() : std::vector{row.dtype});
      if (row.by_element) by_element_.push_back(row);
      if (row.kind == ParameterKind::kIn) {
        required_inputs = row.place + 1;
        if (row.by_element && element_input_ < 0) element_input_ = row.place;
      }
      (IsInput(row.kind) ? input_dtypes_ : output_dtypes_).push_back(row.dtype);
    }
    schema.NumInputs(required_inputs, static_cast<int>(input_dtypes_.size()))
        .NumOutputs(static_cast<int>(output_dtypes_.size()));
  }

  // Negative places are those of names on the other side.
  OPKIT_COLD void SameShape(std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
    auto places = [](std::initializer_list<int> all) {
      std::vector<int> out;
      for (int place : all)
        if (place >= 0) out.push_back(place);
      return out;
    };
    AddRule([this, ins = places(inputs), outs = places(outputs)](InferenceContext& context) {
      InferSameShape(context, ins, outs);
    });
  }
  void AddRule(UniqueFunction<void(InferenceContext&)> rule) { rules_.push_back(std::move(rule)); }
  // The element types of a kernel, besides those of the kernels before it.
  OPKIT_COLD void AddElementTypes(std::initializer_list<DType> dtypes) {
    for (DType dtype : dtypes) {
      bool known = false;
      for (DType one : element_types_) known |= one == dtype;
      if (!known) element_types_.push_back(dtype);
    }
    for (const TypedParameter& row : by_element_) {
      const auto& values = IsInput(row.kind) ? schema.inputs() : schema.outputs();
      Describe(row, values[static_cast<size_t>(row.place)].doc, element_types_);
    }
  }
  OPKIT_COLD void AddProblem(std::string_view what) {
    OpRegistry::Global().AddProblem(
        schema.name(), StrCat("the schema of operator ", schema.name(), " at ", schema.file(), ":",
                              schema.line(), " is not whole: ", what));
  }

  OpSchema& schema;
  std::vector<std::pair<int, int>> inplace;

 private:
  // "x: float32, y?: T -> z: T, alpha: float": equal for functions that make equal schemas.
  OPKIT_COLD static std::string Signature(std::span<const TypedParameter> rows) {
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
  void Describe(const TypedParameter& row, std::string doc, std::vector<DType> dtypes) {
    if (IsInput(row.kind)) {
      schema.Input(row.place, row.name.str(), std::move(doc), std::move(dtypes));
    } else {
      schema.Output(row.place, row.name.str(), std::move(doc), std::move(dtypes));
    }
  }
  bool CanInplace(int in, int out) const {
    for (const auto& pair : inplace)
      if (pair.first == in && pair.second == out) return true;
    return false;
  }
  OPKIT_COLD void Infer(InferenceContext& context) {
    for (size_t i = 0; i < input_dtypes_.size(); ++i) {
      const int input = static_cast<int>(i);
      if (context.HasInput(input)) context.SetInput(input, DTypeOf(context, input_dtypes_[i]), {});
    }
    for (size_t o = 0; o < output_dtypes_.size(); ++o)
      context.SetOutput(static_cast<int>(o), DTypeOf(context, output_dtypes_[o]), {});
    for (auto& rule : rules_) rule(context);
  }
  DType DTypeOf(const InferenceContext& context, DType declared) const {
    return declared == DType::kUndefined && element_input_ >= 0
               ? context.input_dtype(element_input_)
               : declared;
  }
  // One shape for all of these inputs and outputs, from what is known of any of them.
  OPKIT_COLD void InferSameShape(InferenceContext& context, const std::vector<int>& inputs,
                                 const std::vector<int>& outputs) const {
    SymbolicShape shape;
    for (int o : outputs)
      if (auto merged = SymbolicShape::Merge(shape, context.output(o).shape))
        shape = *std::move(merged);
    int first = -1;
    for (int i : inputs) {
      if (!context.HasInput(i)) continue;
      auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
      if (!merged)
        Throw(ErrorCode::kInvalidArgument, InputName(i), " of ", ToString(context.def()),
              " has shape ", ToString(context.input_shape(i)), ", but must have that of ",
              first < 0 ? "the output" : InputName(first), ", ", ToString(shape));
      shape = *std::move(merged);
      if (first < 0) first = i;
    }
    for (int i : inputs)
      if (context.HasInput(i)) context.SetInput(i, DType::kUndefined, shape);
    for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
  }
  std::string InputName(int i) const {
    return StrCat("input ", i, " '", schema.inputs()[static_cast<size_t>(i)].name, "'");
  }

  std::vector<UniqueFunction<void(InferenceContext&)>> rules_;
  std::vector<DType> input_dtypes_, output_dtypes_;  // kUndefined where the element type decides
  std::vector<TypedParameter> by_element_;
  std::vector<DType> element_types_;
  int element_input_ = -1;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_SCHEMA_HPP_

// ---- opkit/op/typed_operator.hpp
// Typed operators: one function template, and everything else (arity, dtypes, attribute names and
// types, output allocation, checks, docs) derived from its signature at compile time. One source
// for CPU, CPU streams and CUDA.
#ifndef OPKIT_OP_TYPED_OPERATOR_HPP_
#define OPKIT_OP_TYPED_OPERATOR_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Takes the rest of a chain whose mistake has been reported, so that the compiler says nothing
// else.
struct IgnoredOp {
  template <class... Args>
  IgnoredOp Doc(const Args&...) {
    return {};
  }
  template <FixedName...>
  IgnoredOp SameShape() {
    return {};
  }
  template <FixedName, class F>
  IgnoredOp OutShape(const F&) {
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
  IgnoredOp Flops(uint64_t) { return {}; }
  template <class F>
  IgnoredOp Schema(const F&) {
    return {};
  }
  template <class...>
  IgnoredOp Kernel() {
    return {};
  }
};

// The type of the attribute of that name.
struct NoAttribute {};
template <class Function, FixedName Name>
consteval auto FindAttributeValue() {
  constexpr int kRow = FindParameter<Function>(Name, IsAttribute);
  if constexpr (kRow >= 0) {
    using S = typename TypedFunction<Function>::Signature;
    return std::type_identity<typename S::template Value<static_cast<size_t>(kRow)>>{};
  } else {
    return std::type_identity<NoAttribute>{};
  }
}
template <class Function, FixedName Name>
using AttributeValue = typename decltype(FindAttributeValue<Function, Name>())::type;

// A value that may be an attribute's default: converts to T, and neither drops a fraction nor
// confuses numbers with bools.
template <class T, class Value>
concept DefaultFor =
    std::is_convertible_v<T, Value> &&
    !(std::is_floating_point_v<T> && std::is_integral_v<Value>)&&std::is_same_v<T, bool> ==
        std::is_same_v<Value, bool>;

}  // namespace detail

// The builder behind OPKIT_OP. `kRuled` has bit o set once output o has a shape rule. In another
// file the same function is the same operator (CPU kernels in a .cc, CUDA kernels in a .cu): what
// the chain says of the schema must then be said in both.
template <class Function, uint64_t kRuled = 0>
class TypedOp {
 public:
  explicit TypedOp(detail::TypedSchemaPtr typed) : typed_(std::move(typed)) {}

  TypedOp Doc(std::string doc) { return schema().SetDoc(std::move(doc)), *this; }

  // These inputs must have one shape, which these outputs get.
  template <FixedName... Names>
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
  // The shape of an output from a function (const InferenceContext&) -> SymbolicShape, which may
  // read the inputs' shapes, the attributes and, by input_constant, the data of inputs. Such data
  // is null in a graph that is not run yet; an asynchronous device is waited for before it is read.
  template <FixedName Name, class F>
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
  // The output may be written over the input.
  template <FixedName Input, FixedName Output>
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
      typed_->inplace.push_back({InputPlace(Input), OutputPlace(Output)});
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // The attribute may be left out.
  template <FixedName Name, class T = detail::AttributeValue<Function, Name>>
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
      if constexpr (kByElement && std::is_arithmetic_v<T>) {
        schema().SetDefault(Name.str(), static_cast<double>(value));
      } else if constexpr (std::is_integral_v<T> && std::is_integral_v<Value>) {
        schema().SetDefault(Name.str(), value);  // its range is checked when it is read
      } else {
        schema().SetDefault(Name.str(), static_cast<Value>(value));
      }
      return *this;
    } else {
      return detail::IgnoredOp();
    }
  }
  // Floating-point operations for each element of output 0.
  TypedOp Flops(uint64_t per_element) { return schema().PointwiseCost(per_element), *this; }
  // Everything else that a schema can say, by a function (OpSchema&). What it throws is reported at
  // the operator's first lookup.
  template <std::invocable<OpSchema&> F>
  TypedOp Schema(F fill) {
    try {
      fill(schema());
    } catch (const std::exception& error) {
      typed_->AddProblem(error.what());
    }
    return *this;
  }

  // Registers the function for a device; for a function over <Context, T> with the element types it
  // is compiled for.
  template <class Context, Element... Types>
  auto Kernel() {
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
    if constexpr (kContext && kShapes && kTypes) {
      constexpr bool kVersions = HasVersions<Context, Types...>();
      static_assert(kVersions,
                    "OPKIT_OP(…).Kernel<Context, T…>: the function has no version for this context "
                    "and these element types");
#ifdef __CUDACC__
      static_assert(
          Context::kDeviceType == DeviceType::kCUDA,
          "OPKIT_OP(…).Kernel<CPUContext>() under nvcc would compute nothing: compile CPU "
          "kernels in a .cc file, CUDA kernels in a .cu file");
#endif
      if constexpr (kVersions) {
        typed_->AddElementTypes({kDTypeOf<Types>...});
        using Op = detail::TypedOperator<Function, Context, Types...>;
        detail::RegisterKernel(schema().name().c_str(), Context::kDeviceType, "DEFAULT",
                               RegistrationPriority::kDefault, schema().file(), schema().line(),
                               &detail::CreateClass<Op>);
        return *this;
      } else {
        return detail::IgnoredOp();
      }
    } else {
      return detail::IgnoredOp();
    }
  }

 private:
  static constexpr int InputPlace(FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsInput);
  }
  static constexpr int OutputPlace(FixedName name) {
    return detail::FindPlace<Function>(name, detail::IsOutput);
  }
  static constexpr uint64_t OutputBit(FixedName name) {
    return OutputPlace(name) >= 0 ? uint64_t{1} << OutputPlace(name) : 0;
  }
  // 0 for the function's element type.
  static constexpr int64_t ItemSizeOf(FixedName name, bool (*of_kind)(detail::ParameterKind)) {
    const int row = detail::FindParameter<Function>(name, of_kind);
    const DType dtype = detail::kTypedRows<Function>[static_cast<size_t>(row)].dtype;
    return dtype == DType::kUndefined ? 0 : ItemSize(dtype);
  }
  template <class Context, class... Types>
  static consteval bool HasVersions() {
    if constexpr (sizeof...(Types) == 0) {
      return detail::kHasVersion<Function, Context>;
    } else {
      return (detail::kHasVersion<Function, Context, Types> && ...);
    }
  }

  OpSchema& schema() { return typed_->schema; }

  detail::TypedSchemaPtr typed_;
};

namespace detail {

template <class Function>
auto MakeTypedOp(const char* name, const char* file, int line, Function) {
  if constexpr (CheckTypedFunction<Function>()) {
    return TypedOp<Function>(TypedSchema::Make(name, file, line, kTypedRows<Function>));
  } else {
    return IgnoredOp();
  }
}

}  // namespace detail
}  // namespace opkit

// OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">()
//     .Default<"alpha">(1.f).Kernel<CPUContext>();
//
// At namespace scope, after the function template `Axpy`; a static initialiser.
#define OPKIT_OP(name)                                                                             \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}       \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_typed_op_) = ::opkit::detail::MakeTypedOp( \
      #name, __FILE__, __LINE__,                                                                   \
      []<class... OpkitTypes>(std::type_identity<OpkitTypes>...) constexpr                         \
      -> decltype(&name<OpkitTypes...>) { return &name<OpkitTypes...>; })

#endif  // OPKIT_OP_TYPED_OPERATOR_HPP_

// ---- opkit/opkit.hpp
// The whole toolkit that needs a compiler and nothing else. Standard operators (opkit/ops/…),
// third-party backends (opkit/backends/…) and bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#endif  // OPKIT_OPKIT_HPP_

#endif  // OPKIT_SINGLE_INCLUDE_HPP_

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
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <initializer_list>
#include <limits>
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
#include <sys/mman.h>
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

  OPKIT_COLD void AppendTo(std::string& out) const {
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
OPKIT_COLD inline std::string Join(std::initializer_list<const Text*> parts) {
  std::string out;
  for (const Text* part : parts) part->AppendTo(out);
  return out;
}
}  // namespace detail

// Concatenates up to 16 parts; nest calls for more. Three overloads, so that a short message does
// not build sixteen parts.
OPKIT_COLD inline std::string StrCat(const Text& a, const Text& b = {}, const Text& c = {},
                                     const Text& d = {}) {
  return detail::Join({&a, &b, &c, &d});
}
OPKIT_COLD inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                                     const Text& e, const Text& f = {}, const Text& g = {},
                                     const Text& h = {}) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h});
}
OPKIT_COLD inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d,
                                     const Text& e, const Text& f, const Text& g, const Text& h,
                                     const Text& i, const Text& j = {}, const Text& k = {},
                                     const Text& l = {}, const Text& m = {}, const Text& n = {},
                                     const Text& o = {}, const Text& p = {}) {
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
OPKIT_COLD inline size_t EditDistance(std::string_view a, std::string_view b) {
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

// The candidate nearest to `name`, or "" when none is near enough to be a slip (a third of its
// letters, at least one).
OPKIT_COLD inline std::string NearestName(std::string_view name,
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

// " (did you mean 'X'? known: 'X', 'Y', … and 3 more)", or "" when nothing is known.
OPKIT_COLD inline std::string SuggestName(std::string_view name,
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
// AddContext is not thread-safe: an Error that an event holds is shared by all who wait for it.
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

  OPKIT_COLD friend std::string ToString(const Dims& dims) {
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
// g++ 12 does not see that heap_ is read only where it was set, when Steal is not inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
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

// A file's bytes as memory that is only read. MapFile of interop/mapped_file.hpp owns one.
struct FileMapping {
  void* data = nullptr;  // also for an empty file
  size_t size = 0;
  int error = 0;         // errno, when it could not be opened or mapped
  bool is_file = false;  // and not a folder, pipe or device
};
inline FileMapping MapFileForReading(const char* path) {
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
inline void UnmapFile(void* data, size_t size) { munmap(data, size); }
// Lets go of whole pages that were read and will not be soon: they come back from the file.
inline void ForgetMapped(const void* data, size_t size) {
  constexpr uintptr_t kPage = 65536;  // at least the system's, and not worth a call below
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
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

OPKIT_COLD inline DeviceTypeRegistry& DeviceTypes() {
  static auto* registry = new DeviceTypeRegistry;  // outlives every static tensor
  return *registry;
}

}  // namespace detail

OPKIT_COLD inline DeviceTypeInfo GetDeviceTypeInfo(DeviceType type) {
  auto& registry = detail::DeviceTypes();
  detail::MutexLock lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
OPKIT_COLD inline DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info) {
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
  OPKIT_COLD std::string Describe() const {
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
           nbytes <= capacity_ && (storage_ || nbytes == 0) &&
           (byte_offset_ & (ItemSize(dtype) - 1)) == 0;  // else its elements would lie askew
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
  [[noreturn]] OPKIT_COLD void WrongType(AttributeType wanted) const {
    const bool write_float = type_ == AttributeType::kInt && wanted == AttributeType::kFloat;
    Throw(ErrorCode::kTypeMismatch, "is ", type_, " (", Print(), "), but is read as ", wanted,
          write_float ? "; write " + Print() + ".0" : std::string());
  }
  OPKIT_COLD std::string Print() const {
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
  OPKIT_COLD static bool SameTensor(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
    if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
    if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
    const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
    return x.nbytes() == 0 ||
           std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
  }

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
  Arguments(std::initializer_list<NamedAttribute> list) {
    for (const NamedAttribute& item : list) {
      if (Has(item.name))
        Throw(ErrorCode::kInvalidArgument, "argument '", item.name, "' is given twice, as ",
              ToString(*Find(item.name)), " and as ", ToString(item.value));
      items_.push_back(item);
    }
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
        for (; i + 1 < items_.size(); ++i) std::swap(items_[i], items_[i + 1]);
        items_.pop_back();
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
  template <class Extent = Dim>
  static std::optional<Extent> Merge(const std::type_identity_t<Extent>& a,
                                     const std::type_identity_t<Extent>& b) {
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
  template <class AnyShape = SymbolicShape>
  static std::optional<AnyShape> Merge(const std::type_identity_t<AnyShape>& a,
                                       const std::type_identity_t<AnyShape>& b) {
    if (!a.has_rank_) return b;
    if (!b.has_rank_) return a;
    if (a.dims_.size() != b.dims_.size()) return std::nullopt;
    std::vector<Dim> dims;
    for (size_t i = 0; i < a.dims_.size(); ++i) {
      auto dim = Dim::Merge(a.dims_[i], b.dims_[i]);
      if (!dim) return std::nullopt;
      dims.push_back(*std::move(dim));
    }
    return AnyShape(std::move(dims));
  }

  friend bool operator==(const SymbolicShape&, const SymbolicShape&) = default;
  OPKIT_COLD friend std::string ToString(const SymbolicShape& shape) {
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
    if (exception) exception = Shared(std::move(exception));
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
        detail::Parker::Wake(waiter->parker.Set());
        waiter = next;
      }
      waiters_ = nullptr;
    }
    if (callbacks.empty()) return true;
    const IntrusivePtr<EventState> self(this);  // a callback may Reset the last handle
    for (auto& callback : callbacks) callback();
    callbacks.clear();
    detail::MutexLock lock(mutex_);
    callbacks_.swap(callbacks);  // its room is for the next use of this state
    return true;
  }
  // INITIALIZED again, for a state that nobody else holds, with the room that its lists have. False
  // where the device still needs it as it is.
  virtual bool Reuse() {
    // Relaxed: whoever gets a handle from now on gets it by means that order this.
    status_.store(EventStatus::kInitialized, std::memory_order_relaxed);
    exception_ = nullptr;
    context_ = {};
    private_ = false;
    callbacks_.clear();
    retained.clear();
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
  // Only the thread that records it waits for it, and may change what it fails with.
  void SetPrivate() { private_ = true; }

  // Memory that the device may still use, kept until it has drained (a cancelled event is terminal
  // long before that). Touched by the recording thread before the work is issued and by the device
  // after it, never at once.
  RefCountedList retained;

 private:
  // With the context of this event's work, and marked so that nobody changes what others read.
  std::exception_ptr Shared(std::exception_ptr exception) const {
    try {
      std::rethrow_exception(exception);
    } catch (Error& error) {
      // Of one that others may read already a copy is changed; a class derived from Error would be
      // cut by that and stays as it is.
      const bool others = error.is_shared();
      if (!private_) error.SetShared();
      if (!context_ || (others && typeid(error) != typeid(Error))) return exception;
      const std::string described = context_->Describe();
      for (const std::string& line : error.context())
        if (line == described) return exception;  // the operator itself failed while issuing
      if (typeid(error) != typeid(Error)) return error.AddContext(described), exception;
      Error copy = error;
      copy.AddContext(described).SetShared();
      return std::make_exception_ptr(std::move(copy));
    } catch (...) {
      return exception;
    }
  }

  struct Waiter {  // on the stack of a thread in Wait
    detail::Parker parker;
    Waiter* next = nullptr;
  };

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  detail::Mutex mutex_;
  Waiter* waiters_ = nullptr;
  std::exception_ptr exception_;
  std::vector<UniqueFunction<void()>> callbacks_;
  IntrusivePtr<const FailureContext> context_;
  bool private_ = false;
};

// How a device type makes its event states; the plain EventState where none was set.
using EventStateFactory = IntrusivePtr<EventState> (*)(Device);
inline std::atomic<EventStateFactory>& EventFactory(DeviceType type) {
  static std::atomic<EventStateFactory> factories[detail::AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return factories[slot >= 0 && slot < detail::AllocatorTable::kSlots ? slot : 0];
}

namespace detail {
using ::opkit::EventFactory;
using ::opkit::EventState;
using ::opkit::FailureContext;
}  // namespace detail

// A handle; copies share the completion until one of them is Reset. Waits, queries and completion
// may come from any thread; Reset and assignment of one handle may not race with its other uses.
class Event {
 public:
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
  ~Event() = default;

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

  // INITIALIZED again. Work still in flight keeps the old completion to itself. Two completions are
  // used in turn: from the second Reset on nothing is allocated unless others hold both.
  void Reset() {
    const bool spare = spare_.use_count() == 1 && spare_->Reuse();
    if (!spare && spare_ && state_.use_count() == 1 && state_->Reuse()) return;
    auto next = spare ? std::move(spare_) : NewState();
    spare_ = std::exchange(state_, std::move(next));
    // What it holds (callbacks, an exception, memory) goes now, or with its last handle.
    if (spare_.use_count() == 1 ? !spare_->Reuse() : spare_->status() != EventStatus::kSuccess)
      spare_ = {};
  }

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
  const IntrusivePtr<EventState>& state() const { return state_; }

 private:
  void CompleteOnce(std::exception_ptr exception) {
    // Whoever waits may end this handle as soon as it is terminal, while Complete still runs.
    const auto state = state_;
    if (!state->Complete(std::move(exception)) && state->status() == EventStatus::kSuccess)
      Throw(ErrorCode::kFailedPrecondition,
            "SetFinished on an event that is SUCCESS already; "
            "Reset it first");
  }
  IntrusivePtr<EventState> NewState() const {
    // Acquire: pairs with the backend's store, so that what it set up before is seen.
    const auto factory = EventFactory(device_.type).load(std::memory_order_acquire);
    return factory ? factory(device_) : MakeIntrusive<EventState>();
  }

  Device device_;
  IntrusivePtr<EventState> state_;
  // The completion before: who completed the present one may not have let go of it yet.
  IntrusivePtr<EventState> spare_;
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

// What a context may have besides, and what it then can do.
//
// Work that is a host function, at its place in the stream: CPUContext, CPUStreamContext, and a
// user's own. ParallelFor, strided inputs and function operators' launch come with it.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };
// Work that is issued on a stream of the device's own kind, given to copies and to functions.
template <class C>
concept NativeStreamContext = requires(C& context) {
  { context.native_stream() } -> std::convertible_to<void*>;
};
// A stream that is an object of the toolkit's or the author's.
template <class C>
concept StreamContext = requires(C& context) { &context.stream(); };

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
    CopyFunction copy;  // null: removed
    Route* next;
  };
  detail::Mutex mutex;
  Route* routes = nullptr;  // in the order of their registration; kept for ever
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
  for (const auto* route = Copies().routes; route; route = route->next)
    if (route->from == from && route->to == to && route->copy) return route->copy;
  if (IsHostAccessible(from) && IsHostAccessible(to)) return &CopyHost;
  std::vector<std::string> known;
  for (const auto* route = Copies().routes; route; route = route->next)
    if (route->copy) known.push_back(StrCat(route->from, " to ", route->to));
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

}  // namespace detail

// Registers the copy from one device type's memory to another's and returns the one before (null if
// none); null removes it. Thread-safe.
inline CopyFunction RegisterCopy(DeviceType from, DeviceType to, CopyFunction copy) {
  from = MemoryDevice({from, 0}).type;
  to = MemoryDevice({to, 0}).type;
  detail::MutexLock lock(detail::Copies().mutex);
  detail::CopyTable::Route** link = &detail::Copies().routes;
  for (; *link; link = &(*link)->next)
    if ((*link)->from == from && (*link)->to == to) return std::exchange((*link)->copy, copy);
  *link = new detail::CopyTable::Route{from, to, copy, nullptr};
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
  if constexpr (NativeStreamContext<Context>) {
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
    auto* stream = new CPUStream(device, id);
    stream->next_ = std::exchange(All().streams, stream);
    return *stream;
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
      for (CPUStream* stream = streams; stream; stream = stream->next_)
        if (stream->device_ == device && stream->id_ == id) return stream;
      return nullptr;
    }
    detail::Mutex mutex;
    CPUStream* streams = nullptr;
  };
  static Registry& All() {
    static auto* registry = new Registry;  // the threads use their streams until the process ends
    return *registry;
  }

  static constexpr size_t kUsualBatch = 16;

  CPUStream(Device device, int id) : device_(device), id_(id) {
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
  // Takes all that is queued at once, and leaves the room of `items` for what comes.
  void Next(std::vector<Item>& items) {
    for (;;) {
      detail::Parker parker;
      {
        detail::MutexLock lock(mutex_);
        busy_ = !queue_.empty();
        if (busy_) return items.swap(queue_);
        parked_ = &parker;
      }
      parker.Wait();
    }
  }
  void Serve() {
    std::exception_ptr failure;
    std::vector<Item> items;
    items.reserve(kUsualBatch);
    for (;;) {
      Next(items);
      for (Item& item : items) {
        Execute(item, failure);
        item = {};  // what the closure held is gone before what comes next
      }
      items.clear();
    }
  }
  void Execute(Item& item, std::exception_ptr& failure) {
    if (item.record) {
      // Still wanted when cancelled: only now is the memory no longer in use. Freed before the
      // event completes, so that who has waited finds it freed.
      item.record->retained.clear();
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
  CPUStream* next_ = nullptr;  // in the registry
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
    if (drained_) {
      drained_->Reset();
    } else {
      drained_.emplace(device_);
    }
    drained_->state()->SetPrivate();
    stream().Record(*drained_);
    drained_->Finish();
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
  std::optional<Event> drained_;  // kept for its memory
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

// ---- opkit/engine/spin_lock.hpp
// SpinLock: one word, for sections of a dozen instructions that are nearly never contended: the
// bookkeeping of one Var, the head of a free list.
#ifndef OPKIT_ENGINE_SPIN_LOCK_HPP_
#define OPKIT_ENGINE_SPIN_LOCK_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Half the price of a mutex, because unlocking is a plain store: there is no sleeper to look for.
// Who finds it locked for long gives its time slice away, since the holder may have lost the CPU.
class SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  // Acquire, with the release in Unlock: the section sees what earlier ones wrote.
  void Lock() {
    if (locked_.exchange(1, std::memory_order_acquire) != 0) [[unlikely]]
      LockSlowly();
  }
  void Unlock() { locked_.store(0, std::memory_order_release); }
  // In a forked child, where the thread that held it may not exist.
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

class SpinLockGuard {
 public:
  explicit SpinLockGuard(SpinLock& lock) : lock_(lock) { lock_.Lock(); }
  SpinLockGuard(const SpinLockGuard&) = delete;
  SpinLockGuard& operator=(const SpinLockGuard&) = delete;
  ~SpinLockGuard() { lock_.Unlock(); }

 private:
  SpinLock& lock_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_SPIN_LOCK_HPP_

// ---- opkit/engine/inbox.hpp
// Inbox: a queue that any thread puts into without a lock and any thread takes from, the oldest
// first. The pool's shared queue, and the engine's of operations that are ready.
#ifndef OPKIT_ENGINE_INBOX_HPP_
#define OPKIT_ENGINE_INBOX_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct InboxNode {
  InboxNode() = default;
  InboxNode(const InboxNode&) {}  // a copy is in no queue
  InboxNode& operator=(const InboxNode&) = delete;

  std::atomic<InboxNode*> next{nullptr};
};

// D. Vyukov's intrusive queue (a list that always holds a stub, at least), with a lock for takers,
// who are many here. Nodes are their owner's; what was written before Put is seen by who takes.
class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Seq_cst, as empty() is: who puts looks for somebody who takes afterwards, and who goes to sleep
  // looks here after saying so.
  void Put(InboxNode* node) {
    node->next.store(nullptr, std::memory_order_relaxed);
    InboxNode* before = tail_.exchange(node, std::memory_order_seq_cst);
    // Release: the taker sees the node whole. Until here the list ends at `before`.
    before->next.store(node, std::memory_order_release);
  }

  // Null where there is none, or one that is just being put.
  InboxNode* Take() {
    if (empty()) return nullptr;
    SpinLockGuard guard(take_lock_);
    // Relaxed: written under the lock. Acquire, here and below: pairs with Put.
    InboxNode* head = head_.load(std::memory_order_relaxed);
    InboxNode* next = head->next.load(std::memory_order_acquire);
    if (head == &stub_) {
      if (next == nullptr) return nullptr;
      head = next;
      head_.store(head, std::memory_order_seq_cst);
      next = head->next.load(std::memory_order_acquire);
    }
    if (next == nullptr) {
      // The last one leaves only when the stub is behind it.
      if (tail_.load(std::memory_order_seq_cst) != head) return nullptr;
      Put(&stub_);
      next = head->next.load(std::memory_order_acquire);
      if (next == nullptr) return nullptr;
    }
    head_.store(next, std::memory_order_seq_cst);
    // Its lines will be wanted soon, and are in the cache of the CPU that put it.
    const auto address = reinterpret_cast<uintptr_t>(next);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    return head;
  }

  // Never true while something is in it.
  bool empty() const {
    return head_.load(std::memory_order_seq_cst) == &stub_ &&
           tail_.load(std::memory_order_seq_cst) == &stub_;
  }

  // In a forked child: forgets the nodes, which belong to the parent.
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_INBOX_HPP_

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
struct PoolTask : detail::InboxNode {
  using RunFunction = void (*)(PoolTask*) noexcept;
  explicit PoolTask(RunFunction run) : run(run), invocation(CurrentInvocation()) {}

  RunFunction run;
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
    if (worker == nullptr || !worker->deque.Push(task)) injected_.Put(task);
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

  // For tasks that run long: whether loops could use the thread meanwhile. Relaxed: a hint.
  bool HasLoops() const { return !loops_.empty(); }
  // How long a thread without work looks for some before it sleeps, in detail::Ticks.
  uint64_t spin_ticks() const { return spin_ticks_.load(std::memory_order_relaxed); }

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
  PoolTask* TakeInjected() { return static_cast<PoolTask*>(injected_.Take()); }
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

  alignas(detail::kCacheLine) detail::Inbox injected_;
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
      if (PoolTask* task = TakeInjected()) return {task};
    } else if (turn == 32) {
      if (PoolTask* task = self->deque.Steal()) return {task};
    }
    if (PoolTask* task = self->deque.Pop()) return {task};
  }
  if (PoolTask* task = TakeInjected()) return {task};
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
  if (!loops_.empty() || !injected_.empty()) return true;
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
  injected_.ResetAfterFork();
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

// ---- opkit/engine/engine_device.hpp
// How the engine issues an operation on a device: on a stream of that device, copies on another
// one. A device takes part by one line that names its context.
#ifndef OPKIT_ENGINE_ENGINE_DEVICE_HPP_
#define OPKIT_ENGINE_ENGINE_DEVICE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Issues `work` on that stream and records the event behind it.
using IssueFunction = void (*)(Device device, int stream_id, UniqueFunction<void()> work,
                               Event& event);

inline constexpr int kComputeStream = 0;
inline constexpr int kCopyStream = 1;

template <class Context>
void IssueOn(Device device, int stream_id, UniqueFunction<void()> work, Event& event) {
  Context context(device);
  context.SwitchToDevice(stream_id);
  if constexpr (requires { context.Launch(std::move(work)); }) {
    context.Launch(std::move(work));
  } else {
    work();
  }
  context.Record(event);
}

// What RegisterEngineDevice was told; the CPU's streams need not be registered.
inline std::atomic<IssueFunction>& RegisteredIssue(DeviceType type) {
  static std::atomic<IssueFunction> functions[AllocatorTable::kSlots];
  const int slot = static_cast<int>(type);
  return functions[slot >= 0 && slot < AllocatorTable::kSlots ? slot : 0];
}

template <class CPUStream = CPUStreamContext>
IssueFunction IssueFunctionOf(Device device) {
  if (device.type == DeviceType::kCPUStream) return &IssueOn<CPUStream>;
  // Acquire: pairs with the registration.
  if (IssueFunction issue = RegisteredIssue(device.type).load(std::memory_order_acquire))
    return issue;
  Throw(ErrorCode::kUnsupported, "expected a device that the engine can issue work on, found ",
        ToString(device), "; call RegisterEngineDevice with its context first");
}

}  // namespace detail

// Lets operations be pushed with a device of that type. Where the context has a Launch, the closure
// runs on the stream; otherwise it runs on a thread of the pool, with the stream as that thread's
// current one, and issues the work itself.
template <DeviceContext Context>
bool RegisterEngineDevice() {
  detail::RegisteredIssue(Context::kDeviceType)
      .store(&detail::IssueOn<Context>, std::memory_order_release);
  return true;
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_DEVICE_HPP_

// ---- opkit/engine/engine_failure.hpp
// Failure: what went wrong in an operation of the engine, shared by every Var that has no valid
// value because of it. It is reported once, to whoever waits first.
#ifndef OPKIT_ENGINE_ENGINE_FAILURE_HPP_
#define OPKIT_ENGINE_ENGINE_FAILURE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

class Failure final : public RefCounted {
 public:
  // `sequence` is the place in push order of the operation that failed.
  Failure(std::exception_ptr exception, uint64_t sequence)
      : exception_(std::move(exception)), sequence_(sequence) {}

  const std::exception_ptr& exception() const { return exception_; }
  uint64_t sequence() const { return sequence_; }

  // Whether an operation pushed as number `sequence` has to be skipped. Those that were pushed
  // before somebody was told still are, whenever they come to run, as if they had run at once.
  // Relaxed, here and below: the number stands for itself, and the rest of the object never
  // changes.
  bool ConcernsOperation(uint64_t sequence) const {
    const uint64_t reported = reported_.load(std::memory_order_relaxed);
    return reported == 0 || sequence < reported;
  }
  bool reported() const { return reported_.load(std::memory_order_relaxed) != 0; }
  // True for the one that is to rethrow it. `next_sequence` is that of the next push, at least 1.
  bool Report(uint64_t next_sequence) {
    uint64_t expected = 0;
    return reported_.compare_exchange_strong(expected, next_sequence, std::memory_order_relaxed);
  }

  // Of the Vars that are about to hold it, before the first does.
  void AddHolders(int64_t n) { holders_.fetch_add(n, std::memory_order_relaxed); }
  // A valid value took its place in one Var; in the last one that ends it, unreported.
  void Overwritten() {
    if (holders_.fetch_sub(1, std::memory_order_relaxed) == 1) Report(1);
  }

 private:
  const std::exception_ptr exception_;
  const uint64_t sequence_;
  std::atomic<uint64_t> reported_{0};
  std::atomic<int64_t> holders_{0};
};

using FailurePtr = IntrusivePtr<Failure>;

// The failures that nobody was told of yet. Only failing operations and WaitForAll come here.
template <class FailurePtr>
class FailureLog {
 public:
  void Add(FailurePtr failure) {
    MutexLock lock(mutex_);
    if (failures_.size() >= prune_at_) {
      std::erase_if(failures_, [](const FailurePtr& f) { return f->reported(); });
      prune_at_ = 2 * failures_.size() + kPruneAt;
    }
    failures_.push_back(std::move(failure));
  }

  // Reports all, and returns the one whose operation was pushed first; null where there is none.
  FailurePtr ReportAll(uint64_t next_sequence) {
    MutexLock lock(mutex_);
    FailurePtr first;
    for (FailurePtr& failure : failures_) {
      if (!failure->Report(next_sequence)) continue;
      if (!first || failure->sequence() < first->sequence()) first = failure;
    }
    failures_.clear();
    return first;
  }

 private:
  static constexpr size_t kPruneAt = 64;
  Mutex mutex_;
  std::vector<FailurePtr> failures_;
  size_t prune_at_ = kPruneAt;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_FAILURE_HPP_

// ---- opkit/engine/var.hpp
// Var: what operations of the engine depend on, with many readers or one writer at a time. Here is
// the queue of accesses that every Var keeps, and the rules by which they are granted.
#ifndef OPKIT_ENGINE_VAR_HPP_
#define OPKIT_ENGINE_VAR_HPP_

namespace opkit::inline OPKIT_ABI {

namespace detail {
struct EngineOp;
template <class Op>
class BasicEngineCore;
using EngineCore = BasicEngineCore<EngineOp>;
class VarState;
}  // namespace detail

// A handle, freely copied. It stands for nothing that the engine looks into: a program lets it
// stand for a tensor, a file, a random generator. Made by Engine::NewVar, ended by
// Engine::DeleteVar; using it after that, or with another engine, is an Error.
class Var {
 public:
  Var() = default;
  explicit operator bool() const { return state_ != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;

 private:
  template <class Op>
  friend class detail::BasicEngineCore;
  Var(detail::VarState* state, uint32_t generation, uint32_t engine)
      : state_(state), generation_(generation), engine_(engine) {}

  detail::VarState* state_ = nullptr;
  uint32_t generation_ = 0;
  uint32_t engine_ = 0;  // looked at before `state_`, which dies with its engine
};

// The Vars of one call, seen as a range: `{a, b}`, `{}` or a std::vector<Var>.
class VarList {
 public:
  VarList() = default;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // as long as the call, which is as long as the list is looked at
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  VarList(std::initializer_list<Var> vars) : begin_(vars.begin()), size_(vars.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  VarList(const std::vector<Var>& vars) : begin_(vars.data()), size_(vars.size()) {}

  size_t size() const { return size_; }
  const Var* begin() const { return begin_; }
  const Var* end() const { return begin_ + size_; }

 private:
  const Var* begin_ = nullptr;
  size_t size_ = 0;
};

namespace detail {

// The place of an operation, or of a waiting thread, in the queue of one Var. An operation has one
// for each of its Vars.
struct Access {
  static constexpr uintptr_t kWrite = 1;

  // The access queued behind this one; marked with kWrite if that is an operation's write.
  std::atomic<uintptr_t> next{0};
  VarState* var = nullptr;
  uintptr_t owner = 0;  // the operation, marked with kWrite if it writes; 0 for a waiting thread

  EngineOp* op() const { return reinterpret_cast<EngineOp*>(owner & ~kWrite); }
  bool writes() const { return (owner & kWrite) != 0; }
  uintptr_t Tagged() const { return reinterpret_cast<uintptr_t>(this) | (owner & kWrite); }
  static Access* Untagged(uintptr_t tagged) { return reinterpret_cast<Access*>(tagged & ~kWrite); }
};

// A thread that waits until everything that was to write the Var has: a reader without an
// operation, on that thread's stack.
struct VarWaiter : Access {
  Latch latch{1};
  Access* prev = nullptr;
  bool granted = false;
  FailurePtr failure;
};

// Operations that wait for nothing any more, in a list.
struct OpList {
  void Add(EngineOp* op);
  void AddInOrder(EngineOp* op);    // of pushes, into a list in that order
  void AddIfGranted(EngineOp* op);  // counts one grant, adds it with the last one
  EngineOp* TakeFirst();
  EngineOp* first = nullptr;
  EngineOp* last = nullptr;
};

// The queue of one Var, in push order. Members are called with `lock` held unless they say
// otherwise.
//
// Who ends a write hands the Var to a queued write that comes next without the lock, and without
// touching what pushers touch: in a chain of writes, pushing and completing meet nowhere.
class alignas(kCacheLine) VarState {
 public:
  SpinLock lock;
  uint32_t generation = 0;  // of the handles that are good
  VarState* next_free = nullptr;

 private:
  // While a write is active the queue hangs behind it, else behind `head_`.
  bool writing_ = false;
  bool deleted_ = false;
  int32_t readers_ = 0;
  Access* head_ = nullptr;  // the write that waits for `readers_`
  Access* tail_ = nullptr;

 public:
  // What the active writer alone writes, and readers and waiters read once they are granted.
  alignas(kCacheLine) std::atomic<uint64_t> version{0};
  FailurePtr failure;

  bool HasPendingWrites() const { return writing_ || head_ != nullptr; }

  // True when the access is granted at once; it is not in the queue then, but must be released.
  bool Append(Access& access) {
    access.next.store(0, std::memory_order_relaxed);
    if (access.writes()) {
      if (!writing_ && readers_ == 0) {
        writing_ = true;
        tail_ = &access;
        return true;
      }
    } else if (!HasPendingWrites()) {
      ++readers_;
      return true;
    }
    Enqueue(access);
    return false;
  }

  // Only where there are pending writes. A waiter is granted with the reads around it.
  void AppendWaiter(VarWaiter& waiter) {
    waiter.prev = tail_;
    Enqueue(waiter);
  }

  // A waiter that gives up. What is before it is a write that goes on, or a read or waiter that is
  // not granted either; each can be released only with the lock, because what follows is no write.
  void Remove(VarWaiter& waiter) {
    const uintptr_t next = waiter.next.load(std::memory_order_relaxed);
    waiter.prev->next.store(next, std::memory_order_release);
    if (tail_ == &waiter) {
      tail_ = waiter.prev;
    } else if (Access* after = Access::Untagged(next); after->owner == 0) {
      static_cast<VarWaiter*>(after)->prev = waiter.prev;
    }
  }

  // Ends a granted access, without the lock. What it lets go on is added to `ready`. True when the
  // Var was deleted and this was its last access.
  bool Release(Access& access, OpList& ready) {
    VarWaiter* waiters = nullptr;
    bool last = false;
    if (access.writes()) {
      // Acquire: pairs with Enqueue, so that the next access is whole.
      const uintptr_t next = access.next.load(std::memory_order_acquire);
      if ((next & Access::kWrite) != 0) {
        ready.AddIfGranted(Access::Untagged(next)->op());
        return false;
      }
      SpinLockGuard guard(lock);
      writing_ = false;
      // Relaxed: written under the lock.
      last =
          GrantFrom(Access::Untagged(access.next.load(std::memory_order_relaxed)), ready, waiters);
    } else {
      SpinLockGuard guard(lock);
      if (--readers_ == 0) last = GrantFrom(head_, ready, waiters);
    }
    while (waiters != nullptr) {
      auto* next =
          static_cast<VarWaiter*>(Access::Untagged(waiters->next.load(std::memory_order_relaxed)));
      waiters->latch.CountDown();  // gone from here on
      waiters = next;
    }
    return last;
  }

  // No handle is good any more. True when no access is left either.
  bool Delete() {
    ++generation;
    deleted_ = true;
    return !HasPendingWrites() && readers_ == 0;
  }
  // For the next NewVar.
  void Recycle() {
    deleted_ = false;
    failure = {};
    version.store(0, std::memory_order_relaxed);
  }

 private:
  void Enqueue(Access& access) {
    if (tail_ != nullptr) {
      // Release: a writer that finds it without the lock sees the access whole.
      tail_->next.store(access.Tagged(), std::memory_order_release);
    } else {
      head_ = &access;
    }
    tail_ = &access;
  }

  // Grants the accesses from `at` on that go together: reads and waiters up to the next write, or
  // one write. An operation that is granted here cannot run before the lock is let go, or the
  // access's `next` has been read. True when nothing is left and the Var deleted.
  bool GrantFrom(Access* at, OpList& ready, VarWaiter*& waiters) {
    while (at != nullptr && !at->writes()) {
      Access* next = Access::Untagged(at->next.load(std::memory_order_relaxed));
      if (at->owner != 0) {
        ++readers_;
        ready.AddIfGranted(at->op());
      } else {
        auto* waiter = static_cast<VarWaiter*>(at);
        waiter->failure = failure;
        waiter->granted = true;
        waiter->next.store(reinterpret_cast<uintptr_t>(static_cast<Access*>(waiters)),
                           std::memory_order_relaxed);
        waiters = waiter;
      }
      at = next;
    }
    head_ = at;
    if (at == nullptr) {
      tail_ = nullptr;
    } else if (readers_ == 0) {
      head_ = nullptr;
      writing_ = true;
      ready.AddIfGranted(at->op());
    }
    return deleted_ && at == nullptr && readers_ == 0;
  }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_VAR_HPP_

// ---- opkit/engine/engine_op.hpp
// EngineOp: the record of one operation between push and completion, its closure and its accesses
// inside. Records are used again and again, so that a push allocates nothing.
#ifndef OPKIT_ENGINE_ENGINE_OP_HPP_
#define OPKIT_ENGINE_ENGINE_OP_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

enum class OpMode : uint8_t { kSynchronous, kAsynchronous, kOnDevice };

// What few operations need: more Vars, large closures, failures, devices, completion elsewhere.
// Apart from the record, so that of those that wait in their thousands, more fit into a cache.
struct OpDetails {
  static constexpr int32_t kInlineAccesses = 2;
  static constexpr size_t kClosureBytes = 64;

  Access* more_accesses = inline_accesses;
  int32_t access_capacity = kInlineAccesses;
  std::atomic<int32_t> parts{0};  // of closure and completion, how many are still to come
  Access inline_accesses[kInlineAccesses];
  alignas(std::max_align_t) unsigned char storage[kClosureBytes];

  FailurePtr failure;         // why the Vars that it writes have no valid value
  std::exception_ptr thrown;  // before it becomes a Failure
  Device device;

  // Of an asynchronous operation.
  std::exception_ptr outcome;  // what its handle, or Cancel, completed it with
  // Guarded by the engine's mutex for such operations.
  bool completable = false;
  uint32_t async_generation = 0;  // of the handle that may complete it
  EngineOp* async_prev = nullptr;
  EngineOp* async_next = nullptr;

  OpDetails() = default;
  OpDetails(const OpDetails&) = delete;
  OpDetails& operator=(const OpDetails&) = delete;
  ~OpDetails() {
    if (more_accesses != inline_accesses) delete[] more_accesses;
  }

  void ReserveAccesses(size_t n) {
    if (n <= static_cast<size_t>(access_capacity)) return;
    Access* larger = new Access[n];
    if (more_accesses != inline_accesses) delete[] more_accesses;
    more_accesses = larger;
    access_capacity = static_cast<int32_t>(n);
  }
};

// Two cache lines. Lies in an OpSlab.
struct alignas(kCacheLine) EngineOp : InboxNode {
  using FailurePtr = detail::FailurePtr;
  static constexpr size_t kClosureBytes = 32;

  // Calls the closure with the argument and ends it, or ends it alone.
  void (*closure)(EngineOp& op, bool call, void* argument) = nullptr;
  uint64_t sequence = 0;  // place in push order, from 1
  std::atomic<int32_t> waits{0};
  int32_t access_count = 0;
  int32_t priority = 0;
  OpMode mode = OpMode::kSynchronous;
  bool copies = false;
  bool updates = false;
  bool failed = false;  // `failure` or `thrown` is set
  Access first_access;

  Invocation invocation;
  const char* name = "";
  alignas(std::max_align_t) unsigned char storage[kClosureBytes];

  EngineOp() = default;
  EngineOp(const EngineOp&) = delete;
  EngineOp& operator=(const EngineOp&) = delete;

  OpDetails& details() const;
  Access& access(int32_t i) { return i == 0 ? first_access : details().more_accesses[i - 1]; }
  const Access& access(int32_t i) const {
    return i == 0 ? first_access : details().more_accesses[i - 1];
  }

  // Relaxed: whatever hands a list to another thread orders it.
  EngineOp* next_in_list() const {
    return static_cast<EngineOp*>(next.load(std::memory_order_relaxed));
  }
  void SetNextInList(EngineOp* op) { next.store(op, std::memory_order_relaxed); }

  void SetThrown(std::exception_ptr exception) {
    details().thrown = std::move(exception);
    failed = true;
  }
  void SetFailure(FailurePtr reason) {
    details().failure = std::move(reason);
    failed = true;
  }

  // F is called with no argument, or with an Argument&.
  template <class Argument, class F>
  void SetClosure(F&& f) {
    using Callable = std::decay_t<F>;
    constexpr bool kAligned = alignof(Callable) <= alignof(std::max_align_t);
    constexpr bool kHere = kAligned && sizeof(Callable) <= kClosureBytes;
    constexpr bool kInDetails = kAligned && sizeof(Callable) <= OpDetails::kClosureBytes;
    if constexpr (kHere) {
      ::new (static_cast<void*>(storage)) Callable(std::forward<F>(f));
    } else if constexpr (kInDetails) {
      ::new (static_cast<void*>(details().storage)) Callable(std::forward<F>(f));
    } else {
      ::new (static_cast<void*>(storage)) Callable*(new Callable(std::forward<F>(f)));
    }
    closure = [](EngineOp& op, bool call, void* argument) {
      Callable* callable = nullptr;
      if constexpr (kHere) {
        callable = std::launder(reinterpret_cast<Callable*>(op.storage));
      } else if constexpr (kInDetails) {
        callable = std::launder(reinterpret_cast<Callable*>(op.details().storage));
      } else {
        callable = *std::launder(reinterpret_cast<Callable**>(op.storage));
      }
      struct End {
        Callable* callable;
        ~End() {
          if constexpr (kInDetails) {
            callable->~Callable();
          } else {
            delete callable;
          }
        }
      } end{callable};
      if (!call) return;
      if constexpr (std::is_void_v<Argument>) {
        (*callable)();
      } else {
        (*callable)(std::move(*static_cast<Argument*>(argument)));
      }
    };
  }
};

// A block of records with their details beside it, found by the address: nothing points to them.
struct alignas(16384) OpSlab {
  static constexpr size_t kBytes = 16384;
  static constexpr int kOps = kBytes / sizeof(EngineOp) - 1;

  explicit OpSlab(OpSlab* previous) : previous(previous) {}

  OpSlab* const previous;
  OpDetails* const details = new OpDetails[kOps];
  EngineOp ops[kOps];
};
static_assert(sizeof(OpSlab) == OpSlab::kBytes);

inline OpDetails& EngineOp::details() const {
  auto* slab = reinterpret_cast<OpSlab*>(reinterpret_cast<uintptr_t>(this) & ~(OpSlab::kBytes - 1));
  return slab->details[this - slab->ops];
}

inline void OpList::Add(EngineOp* op) {
  op->SetNextInList(nullptr);
  last != nullptr ? last->SetNextInList(op) : static_cast<void>(first = op);
  last = op;
}
inline void OpList::AddInOrder(EngineOp* op) {
  if (last == nullptr || last->sequence < op->sequence) return Add(op);
  EngineOp* before = nullptr;
  for (EngineOp* at = first; at->sequence < op->sequence; at = at->next_in_list()) before = at;
  op->SetNextInList(before != nullptr ? before->next_in_list() : first);
  before != nullptr ? before->SetNextInList(op) : static_cast<void>(first = op);
}
inline EngineOp* OpList::TakeFirst() {
  EngineOp* op = first;
  if (op == nullptr) return nullptr;
  first = op->next_in_list();
  if (first == nullptr) last = nullptr;
  return op;
}
// Acquire-release: the last grant has seen what every operation before it did, on whatever thread.
inline void OpList::AddIfGranted(EngineOp* op) {
  if (op->access_count == 1 || op->waits.fetch_sub(1, std::memory_order_acq_rel) == 1) Add(op);
}

// Blocks of objects that are never moved, nor given back before the table ends.
template <class T>
class SlabTable {
 public:
  SlabTable() = default;
  SlabTable(const SlabTable&) = delete;
  SlabTable& operator=(const SlabTable&) = delete;
  ~SlabTable() {
    while (last_ != nullptr) delete std::exchange(last_, last_->previous);
  }
  static constexpr int kObjects = 64;
  T* Add() {
    last_ = new Slab{last_, {}};
    return last_->objects;
  }

 private:
  struct Slab {
    Slab* previous;
    T objects[kObjects];
  };
  Slab* last_ = nullptr;
};

// The operations of one engine. Pushers take records here, and numbers, under one short lock; who
// completes operations gives them back many at a time, somewhere else.
class OpRecords {
 public:
  OpRecords() = default;
  OpRecords(const OpRecords&) = delete;
  OpRecords& operator=(const OpRecords&) = delete;
  ~OpRecords() {
    while (last_slab_ != nullptr) {
      OpSlab* slab = std::exchange(last_slab_, last_slab_->previous);
      delete[] slab->details;
      delete slab;
    }
  }

  EngineOp* Take() {
    SpinLockGuard guard(lock_);
    if (free_ == nullptr) [[unlikely]]
      Refill();
    EngineOp* op = free_;
    free_ = op->next_in_list();
    // The next taker's, from the cache of the CPU that gave it back; null is harmless.
    const auto address = reinterpret_cast<uintptr_t>(free_);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
    __builtin_prefetch(reinterpret_cast<const void*>(address + kCacheLine), 1);
    op->sequence = next_sequence_++;
    return op;
  }
  // Of the operation that is pushed next.
  uint64_t next_sequence() {
    SpinLockGuard guard(lock_);
    return next_sequence_;
  }

  void GiveBack(const OpList& list) {
    EngineOp* head = returned_.load(std::memory_order_relaxed);
    do {
      list.last->SetNextInList(head);
      // Release: whoever takes the records sees what was done with them.
    } while (!returned_.compare_exchange_weak(head, list.first, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

 private:
  OPKIT_COLD void Refill() {
    // The whole list at once: there is no other taker, and no ABA.
    free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (free_ != nullptr) return;
    last_slab_ = new OpSlab(last_slab_);
    for (int i = OpSlab::kOps - 1; i >= 0; --i) {
      last_slab_->ops[i].SetNextInList(free_);
      free_ = &last_slab_->ops[i];
    }
  }

  SpinLock lock_;
  EngineOp* free_ = nullptr;
  uint64_t next_sequence_ = 1;
  OpSlab* last_slab_ = nullptr;
  alignas(kCacheLine) std::atomic<EngineOp*> returned_{nullptr};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_OP_HPP_

// ---- opkit/engine/ready_queue.hpp
// ReadyQueue: operations that wait for nothing but a thread. The highest priority comes first, the
// order of arrival decides among equals.
#ifndef OPKIT_ENGINE_READY_QUEUE_HPP_
#define OPKIT_ENGINE_READY_QUEUE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Thread-safe. Operations of priority 0, which are nearly all, are in an inbox: a queue of a worker
// each would be cheaper still, but then an operation could lie behind one that waits for it. The
// others are in a heap under a lock, and a number says whether to look there.
template <class EngineOp>
class ReadyQueue {
 public:
  void Push(EngineOp* op) {
    if (op->priority != 0) [[unlikely]]
      return PushHeap(op);
    normal_.Put(op);
  }

  // The best operation; null where there is none, or one that is just being pushed.
  EngineOp* Take() {
    // Relaxed: a hint.
    const int top = top_.load(std::memory_order_relaxed);
    if (top > 0) {
      if (EngineOp* op = TakeHeap(1)) return op;
    }
    if (InboxNode* node = normal_.Take()) return static_cast<EngineOp*>(node);
    return top != kNone ? TakeHeap(kNone) : nullptr;
  }

  // Whether an operation of this priority should let another one pass.
  bool HasBetterThan(int priority) const {
    return top_.load(std::memory_order_relaxed) > priority || (priority < 0 && !normal_.empty());
  }

  // Never true while something is in it. Seq_cst, as are pushes: who pushes looks for somebody who
  // takes afterwards, and who leaves looks here after.
  bool empty() const { return normal_.empty() && top_.load(std::memory_order_seq_cst) == kNone; }

 private:
  static constexpr int kNone = INT_MIN;

  static bool Before(const EngineOp& a, const EngineOp& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.sequence < b.sequence;
  }

  OPKIT_COLD void PushHeap(EngineOp* op) {
    MutexLock lock(heap_mutex_);
    size_t at = heap_.size();
    heap_.push_back(op);
    while (at > 0 && Before(*op, *heap_[(at - 1) / 2])) {
      heap_[at] = heap_[(at - 1) / 2];
      at = (at - 1) / 2;
    }
    heap_[at] = op;
    top_.store(heap_[0]->priority, std::memory_order_seq_cst);
  }

  OPKIT_COLD EngineOp* TakeHeap(int lowest) {
    MutexLock lock(heap_mutex_);
    if (heap_.empty() || heap_[0]->priority < lowest) return nullptr;
    EngineOp* best = heap_[0];
    EngineOp* moved = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size > 0) {
      size_t at = 0;
      for (;;) {
        size_t child = 2 * at + 1;
        if (child >= size) break;
        if (child + 1 < size && Before(*heap_[child + 1], *heap_[child])) ++child;
        if (!Before(*heap_[child], *moved)) break;
        heap_[at] = heap_[child];
        at = child;
      }
      heap_[at] = moved;
    }
    top_.store(size > 0 ? heap_[0]->priority : kNone, std::memory_order_seq_cst);
    return best;
  }

  Inbox normal_;
  alignas(kCacheLine) std::atomic<int> top_{kNone};  // the heap's best priority
  Mutex heap_mutex_;
  std::vector<EngineOp*> heap_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_READY_QUEUE_HPP_

// ---- opkit/engine/engine_core.hpp
// EngineCore: what is behind Engine. It grants accesses, runs what is ready on the pool, completes
// operations and keeps what failed. Completion handles keep it alive, so that a late one is safe.
#ifndef OPKIT_ENGINE_ENGINE_CORE_HPP_
#define OPKIT_ENGINE_ENGINE_CORE_HPP_

namespace opkit::inline OPKIT_ABI {

// Copies have a stream of their own on every device.
enum class OpKind : uint8_t { kNormal, kCopy };

struct PushOptions {
  int priority = 0;       // of the operations that are ready, those with higher ones start first
  const char* name = "";  // for messages; not copied
  OpKind kind = OpKind::kNormal;
  Device device = {};   // unless a CPU: the operation is issued on a stream of it
  bool update = false;  // it reads what it writes, too: skipped where that has failed
};

// Where an asynchronous operation says that it is done: once, on any thread, at any time. Moves; a
// handle that is dropped fails its operation. It may outlive the engine.
template <class Core>
class BasicCompletion {
 public:
  BasicCompletion() = default;
  BasicCompletion(BasicCompletion&&) = default;
  BasicCompletion& operator=(BasicCompletion&& other) noexcept;
  ~BasicCompletion();

  explicit operator bool() const { return static_cast<bool>(core_); }  // not used up

  // False where the operation was cancelled meanwhile; then nothing happens. Error
  // (kFailedPrecondition) for a handle that was used already.
  bool SetFinished() { return SetFinishedWithException(nullptr); }
  // Fails the operation, unless null.
  bool SetFinishedWithException(std::exception_ptr exception);

 private:
  friend Core;
  BasicCompletion(Core* core, detail::EngineOp* op, uint32_t generation);

  detail::IntrusivePtr<Core> core_;
  detail::EngineOp* op_ = nullptr;
  uint32_t generation_ = 0;
};
using Completion = BasicCompletion<detail::EngineCore>;

namespace detail {

// An operation that runs on this thread; one that waits may run another inside.
struct OpFrame {
  const EngineCore* core;
  const EngineOp* op;
  const OpFrame* outer;
};

struct EngineThread {
  const OpFrame* frame = nullptr;
  const Latch* waiting = nullptr;           // what the innermost wait on this thread is for
  const EngineCore* inline_core = nullptr;  // the naive engine that runs operations here, and ...
  OpList inline_ready;                      // ... those that it has still to run
};
inline constinit thread_local EngineThread t_engine;

// What a thread has completed and not told the others yet, and what can run because of it.
struct Completed {
  OpList records;
  int64_t count = 0;
  OpList ready;
};

// Thread-safe. Runners are tasks of the pool, at most one for each of its threads, that take one
// operation after the other; the one that they complete usually hands them the next.
//
// A template, so that programs without an engine do not compile it.
template <class Op>
class BasicEngineCore final : public RefCounted {
 public:
  using EngineOp = Op;
  using EngineCore = BasicEngineCore;
  using FailurePtr = typename Op::FailurePtr;
  using Pool = ThreadPool;

  // Without a pool, operations run on the thread that pushes them or completes what they waited
  // for.
  BasicEngineCore(ThreadPool* pool, uint32_t id)
      : pool_(pool != nullptr ? *pool : ThreadPool::Default()), naive_(pool == nullptr), id_(id) {}
  ~BasicEngineCore() override {
    while (free_runners_ != nullptr) delete std::exchange(free_runners_, free_runners_->next_free);
  }

  bool naive() const { return naive_; }

  Var NewVar();
  void DeleteVar(Var var);
  uint64_t Version(Var var) const;

  // A push is Prepare, the making of the closure, and Submit; or Abandon. Prepare and Submit throw
  // for what the caller got wrong, and then nothing is changed.
  EngineOp* Prepare(VarList reads, VarList writes, const PushOptions& options);
  void Abandon(EngineOp* op) {
    OpList list;
    list.Add(op);
    records_.GiveBack(list);
  }
  void Submit(EngineOp* op);

  void WaitForVar(Var var, Timeout timeout);
  void WaitForAll(Timeout timeout);
  void Cancel();
  // Returns when no operation is left.
  void Shutdown();

  // False when the handle is not the one that may complete the operation any more.
  bool CompleteAsync(EngineOp* op, uint32_t generation, std::exception_ptr exception);

 private:
  struct Runner : PoolTask {
    explicit Runner(EngineCore* core) : PoolTask(&RunRunner), core(core) {}
    static void RunRunner(PoolTask* self) noexcept {
      auto* runner = static_cast<Runner*>(self);
      runner->core->RunReady(runner);
    }
    EngineCore* const core;
    Runner* next_free = nullptr;
  };

  // --- pushing
  VarState& StateOf(Var var) const;
  [[noreturn]] static void ThrowDeleted();
  static void RequireLive(const VarState& state, uint32_t generation) {
    if (state.generation != generation) [[unlikely]]
      ThrowDeleted();
  }
  void FreeVar(VarState& state);
  void SetAccesses(EngineOp& op, VarList reads, VarList writes) const;
  static void SortAccesses(EngineOp& op);
  void MakeReady(EngineOp* op);

  // --- running
  void RunReady(Runner* runner);
  void WakeRunner();
  void RunInline(OpList ready);
  void DrainInline();
  FailurePtr ReasonToSkip(const EngineOp& op);
  void Execute(EngineOp* op, Completed& done);
  void CallClosure(EngineOp* op, void* argument);
  static void EndClosure(EngineOp* op) {
    if (op->closure != nullptr) std::exchange(op->closure, nullptr)(*op, false, nullptr);
  }
  void StartAsync(EngineOp* op, Completed& done);
  void StartOnDevice(EngineOp* op, Completed& done);

  // --- completing
  FailurePtr NewFailure(const EngineOp& op, std::exception_ptr exception) {
    FailurePtr failure(new Failure(std::move(exception), op.sequence));
    failures_.Add(failure);
    return failure;
  }
  // An Error that also says in which operation it happened, where that has a name; a copy, since
  // events may share it. Other exceptions stay what they are.
  OPKIT_COLD static std::exception_ptr Named(const EngineOp& op, std::exception_ptr exception) {
    if (*op.name == '\0') return exception;
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      if (typeid(error) != typeid(Error)) return exception;
      Error named = error;
      named.AddContext(StrCat("in the operation \"", op.name, "\" of an engine"));
      return std::make_exception_ptr(std::move(named));
    } catch (...) {
      return exception;
    }
  }
  static std::exception_ptr CancelledError(const EngineOp& op) {
    return std::make_exception_ptr(
        Error(ErrorCode::kCancelled, StrCat("the operation \"", op.name, "\" was cancelled")));
  }
  void Finish(EngineOp* op, Completed& done);
  void FinishPart(EngineOp* op, Completed& done);
  void Dispatch(Completed& done);
  void Flush(Completed& done);
  bool Claim(EngineOp* op, uint32_t generation);
  void CancelAsync(uint64_t before);

  // --- waiting
  bool Wait(const Latch& latch, Timeout timeout);
  const Access* OwnAccess(const VarState& state) const;

  ThreadPool& pool_;
  const bool naive_;
  const uint32_t id_;
  // Operations numbered below are cancelled. Only Cancel writes it.
  std::atomic<uint64_t> cancelled_before_{0};

  alignas(kCacheLine) OpRecords records_;
  ReadyQueue<Op> queue_;
  alignas(kCacheLine) Latch outstanding_;  // operations pushed and not completed
  // Runners and other things under way that end by themselves.
  alignas(kCacheLine) Latch live_;

  // As in IdleList: who pushes looks for a searching runner after, who stops searching looks for
  // operations after; both seq_cst, so that one of them sees the other.
  alignas(kCacheLine) std::atomic<int> searching_{0};  // scheduled ones included
  std::atomic<int> runners_{0};
  SpinLock runners_lock_;
  Runner* free_runners_ = nullptr;

  alignas(kCacheLine) SpinLock vars_lock_;
  VarState* free_vars_ = nullptr;
  SlabTable<VarState> vars_;

  FailureLog<FailurePtr> failures_;
  Mutex async_mutex_;
  EngineOp* async_first_ = nullptr;  // asynchronous operations that were started
};

// --- Vars

template <class Op>
inline VarState& BasicEngineCore<Op>::StateOf(Var var) const {
  if (var.engine_ != id_) [[unlikely]] {
    Throw(ErrorCode::kInvalidArgument, "expected a Var of this engine, found ",
          var ? "one of another engine" : "an empty Var",
          "; make it with NewVar() of the engine that uses it");
  }
  return *var.state_;
}

template <class Op>
OPKIT_COLD inline void BasicEngineCore<Op>::ThrowDeleted() {
  Throw(ErrorCode::kFailedPrecondition,
        "expected a Var that is in use, found one after DeleteVar; delete it after its last use, "
        "which need not have run by then");
}

template <class Op>
inline Var BasicEngineCore<Op>::NewVar() {
  SpinLockGuard guard(vars_lock_);
  if (free_vars_ == nullptr) {
    VarState* fresh = vars_.Add();
    for (int i = SlabTable<VarState>::kObjects - 1; i >= 0; --i)
      fresh[i].next_free = std::exchange(free_vars_, &fresh[i]);
  }
  VarState* state = std::exchange(free_vars_, free_vars_->next_free);
  return Var(state, state->generation, id_);
}

template <class Op>
inline void BasicEngineCore<Op>::FreeVar(VarState& state) {
  state.Recycle();
  SpinLockGuard guard(vars_lock_);
  state.next_free = std::exchange(free_vars_, &state);
}

template <class Op>
inline void BasicEngineCore<Op>::DeleteVar(Var var) {
  VarState& state = StateOf(var);
  bool last = false;
  {
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    last = state.Delete();
  }
  if (last) FreeVar(state);
}

template <class Op>
inline uint64_t BasicEngineCore<Op>::Version(Var var) const {
  VarState& state = StateOf(var);
  SpinLockGuard guard(state.lock);
  RequireLive(state, var.generation_);
  // Acquire: what the counted writes wrote is seen.
  return state.version.load(std::memory_order_acquire);
}

// --- pushing

// Sorted by address, each Var once.
template <class Op>
inline void BasicEngineCore<Op>::SetAccesses(EngineOp& op, VarList reads, VarList writes) const {
  const size_t size = reads.size() + writes.size();
  if (size > 1) op.details().ReserveAccesses(size - 1);
  int32_t n = 0;
  const auto set = [&](const VarList& vars, uintptr_t mark) {
    for (const Var& var : vars) {
      VarState* state = &StateOf(var);
      Access& access = op.access(n++);
      access.var = state;
      access.owner = reinterpret_cast<uintptr_t>(&op) | mark;
      access.next.store(var.generation_, std::memory_order_relaxed);  // for Submit to check
    }
  };
  set(reads, 0);
  set(writes, Access::kWrite);
  op.access_count = n;
  if (n > 1) SortAccesses(op);
}

template <class Op>
inline void BasicEngineCore<Op>::SortAccesses(EngineOp& op) {
  const int32_t n = op.access_count;
  const auto swap = [&](Access& a, Access& b) {
    std::swap(a.var, b.var);
    std::swap(a.owner, b.owner);
    const uintptr_t generation = a.next.load(std::memory_order_relaxed);
    a.next.store(b.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    b.next.store(generation, std::memory_order_relaxed);
  };
  // Shell's sort: few as a rule, and mostly in order.
  for (int32_t gap = n > 8 ? n / 2 : 1; gap > 0; gap /= 2) {
    for (int32_t i = gap; i < n; ++i) {
      for (int32_t j = i; j >= gap && op.access(j).var < op.access(j - gap).var; j -= gap)
        swap(op.access(j), op.access(j - gap));
    }
  }
  int32_t kept = 0;
  for (int32_t i = 1; i < n; ++i) {
    if (op.access(i).var != op.access(kept).var) {
      if (++kept != i) swap(op.access(kept), op.access(i));
    } else if (op.access(i).writes() != op.access(kept).writes()) {
      Throw(ErrorCode::kInvalidArgument, "expected each Var in reads or in writes of \"", op.name,
            "\", found one in both; list it in writes alone, with .update = true where the "
            "operation needs the old value");
    }
  }
  op.access_count = kept + 1;
}

template <class Op>
inline Op* BasicEngineCore<Op>::Prepare(VarList reads, VarList writes, const PushOptions& options) {
  EngineOp* op = records_.Take();
  op->priority = naive_ ? 0 : options.priority;
  op->name = options.name != nullptr ? options.name : "";
  op->mode = OpMode::kSynchronous;
  op->updates = options.update;
  op->invocation = CurrentInvocation();
  try {
    if (options.device.type != DeviceType::kCPU) [[unlikely]] {
      IssueFunctionOf(options.device);
      op->mode = OpMode::kOnDevice;
      op->details().device = options.device;
      op->copies = options.kind == OpKind::kCopy;
    }
    SetAccesses(*op, reads, writes);
  } catch (...) {
    Abandon(op);
    throw;
  }
  return op;
}

template <class Op>
inline void BasicEngineCore<Op>::Submit(EngineOp* op) {
  const int32_t n = op->access_count;
  // Relaxed: who counts it down has found the operation in a queue.
  op->waits.store(n, std::memory_order_relaxed);
  // All Vars are locked before any queue is changed, in the order of their addresses, so that the
  // operations of several pushers stand in the same order in every queue.
  for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Lock();
  bool live = true;
  for (int32_t i = 0; i < n; ++i) {
    const Access& access = op->access(i);
    // Relaxed: this thread's.
    live &= access.var->generation == access.next.load(std::memory_order_relaxed);
  }
  if (!live) [[unlikely]] {
    for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Unlock();
    EndClosure(op);
    Abandon(op);
    ThrowDeleted();
  }
  outstanding_.Add();
  int32_t granted = 0;
  for (int32_t i = 0; i < n; ++i) granted += op->access(i).var->Append(op->access(i));
  // Granted elsewhere the operation may run from here on, but it cannot release a locked Var.
  for (int32_t i = 0; i < n; ++i) op->access(i).var->lock.Unlock();
  // Acquire-release as in AddIfGranted.
  if (granted == n ||
      (granted > 0 && op->waits.fetch_sub(granted, std::memory_order_acq_rel) == granted)) {
    MakeReady(op);
  }
}

template <class Op>
inline void BasicEngineCore<Op>::MakeReady(EngineOp* op) {
  if (naive_) [[unlikely]] {
    OpList list;
    list.Add(op);
    return RunInline(list);
  }
  queue_.Push(op);
  WakeRunner();
}
}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_CORE_HPP_

// ---- opkit/engine/engine_run.hpp
// How the engine runs operations and ends them: runners on the pool, streams of devices, the naive
// engine's own way, and what every completion does to the Vars.
#ifndef OPKIT_ENGINE_ENGINE_RUN_HPP_
#define OPKIT_ENGINE_ENGINE_RUN_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Op>
inline void BasicEngineCore<Op>::WakeRunner() {
  if (searching_.load(std::memory_order_seq_cst) != 0) return;
  int count = runners_.load(std::memory_order_seq_cst);
  do {
    if (count >= pool_.threads()) return;
  } while (!runners_.compare_exchange_weak(count, count + 1, std::memory_order_seq_cst));
  searching_.fetch_add(1, std::memory_order_seq_cst);
  live_.Add();
  Runner* runner = nullptr;
  {
    SpinLockGuard guard(runners_lock_);
    if (free_runners_ != nullptr) runner = std::exchange(free_runners_, free_runners_->next_free);
  }
  if (runner == nullptr) runner = new Runner(this);
  try {
    pool_.Schedule(runner);
  } catch (const Error&) {  // no thread can be started: then this one does it
    RunReady(runner);
  }
}

template <class Op>
inline void BasicEngineCore<Op>::RunReady(Runner* runner) {
  constexpr int kFlushAt = 32;
  constexpr int kTurns = 256;  // then others have theirs: tasks of the pool, operations off a chain
  const uint64_t spin_ticks = pool_.spin_ticks();
  const Latch* const waiting = t_engine.waiting;
  Completed done;
  EngineOp* op = nullptr;
  bool searching = true;
  uint64_t idle_since = 0;
  int pauses = 1;
  for (int turn = 0; turn < kTurns;) {
    if (op == nullptr) op = queue_.Take();
    if (op != nullptr) {
      if (searching) {
        searching = false;
        if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && !queue_.empty())
          WakeRunner();
      }
      Execute(op, done);
      ++turn;
      op = done.ready.TakeFirst();
      if (done.ready.first != nullptr || (op != nullptr && queue_.HasBetterThan(op->priority))) {
        // All but one are for others, and the best is not always the first.
        for (; op != nullptr; op = done.ready.TakeFirst()) queue_.Push(op);
        op = queue_.Take();
        if (!queue_.empty()) WakeRunner();
      }
      if (done.count >= kFlushAt) Flush(done);
      if ((waiting != nullptr && waiting->done()) || pool_.HasLoops()) break;
      idle_since = 0;
      continue;
    }
    Flush(done);
    if (waiting != nullptr && waiting->done()) break;
    if (!searching) {
      searching = true;
      searching_.fetch_add(1, std::memory_order_seq_cst);
    }
    const uint64_t now = Ticks();
    if (idle_since == 0) {
      idle_since = now;
      pauses = 1;
    }
    if (now - idle_since >= spin_ticks) break;
    // Ever more rarely: who looks all the time makes the pusher wait for the cache line.
    for (int i = 0; i < pauses; ++i) CpuRelax();
    if (pauses < 16) pauses *= 2;
  }
  if (op != nullptr) queue_.Push(op);
  Flush(done);
  {
    SpinLockGuard guard(runners_lock_);
    runner->next_free = std::exchange(free_runners_, runner);
  }
  runners_.fetch_sub(1, std::memory_order_seq_cst);
  if (searching) searching_.fetch_sub(1, std::memory_order_seq_cst);
  if (!queue_.empty()) WakeRunner();
  live_.CountDown();  // the engine may be gone from here on
}

template <class Op>
inline void BasicEngineCore<Op>::RunInline(OpList ready) {
  EngineThread& thread = t_engine;
  const bool outermost = thread.inline_core != this;
  OpList outer;
  const EngineCore* outer_core = thread.inline_core;
  if (outermost) {
    outer = std::exchange(thread.inline_ready, {});
    thread.inline_core = this;
    live_.Add();
  }
  while (EngineOp* op = ready.TakeFirst()) thread.inline_ready.AddInOrder(op);
  if (!outermost) return;  // the frame that is outermost runs them, however deep pushes nest
  DrainInline();
  thread.inline_ready = outer;
  thread.inline_core = outer_core;
  live_.CountDown();
}

template <class Op>
inline void BasicEngineCore<Op>::DrainInline() {
  if (t_engine.inline_core != this) return;
  while (EngineOp* op = t_engine.inline_ready.TakeFirst()) {
    Completed done;
    Execute(op, done);
    if (done.ready.first != nullptr) RunInline(done.ready);
    Flush(done);
  }
}

template <class Op>
inline typename Op::FailurePtr BasicEngineCore<Op>::ReasonToSkip(const EngineOp& op) {
  // Relaxed: a Cancel that the operation can know of came before it here, by the locks between.
  if (op.sequence < cancelled_before_.load(std::memory_order_relaxed)) [[unlikely]]
    return NewFailure(op, CancelledError(op));
  for (int32_t i = 0; i < op.access_count; ++i) {
    const Access& access = op.access(i);
    if (access.writes() && !op.updates) continue;
    const FailurePtr& failure = access.var->failure;
    if (failure && failure->ConcernsOperation(op.sequence)) [[unlikely]]
      return failure;
  }
  return {};
}

template <class Op>
inline void BasicEngineCore<Op>::CallClosure(EngineOp* op, void* argument) {
  const OpFrame frame{this, op, t_engine.frame};
  t_engine.frame = &frame;
  try {
    const auto scope = InvocationScope::Adopt(op->invocation);
    std::exchange(op->closure, nullptr)(*op, true, argument);
  } catch (...) {
    op->SetThrown(std::current_exception());
  }
  t_engine.frame = frame.outer;
}

template <class Op>
inline void BasicEngineCore<Op>::Execute(EngineOp* op, Completed& done) {
  if (FailurePtr reason = ReasonToSkip(*op)) [[unlikely]] {
    EndClosure(op);
    op->SetFailure(std::move(reason));
    return Finish(op, done);
  }
  if (op->mode == OpMode::kSynchronous) [[likely]] {
    CallClosure(op, nullptr);
    return Finish(op, done);
  }
  op->mode == OpMode::kAsynchronous ? StartAsync(op, done) : StartOnDevice(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::StartAsync(EngineOp* op, Completed& done) {
  OpDetails& details = op->details();
  details.parts.store(2, std::memory_order_relaxed);  // published by the mutex
  uint32_t generation = 0;
  {
    MutexLock lock(async_mutex_);
    generation = ++details.async_generation;
    details.completable = true;
    details.async_prev = nullptr;
    details.async_next = std::exchange(async_first_, op);
    if (details.async_next != nullptr) details.async_next->details().async_prev = op;
  }
  // A Cancel may have looked at the list just before.
  if (op->sequence < cancelled_before_.load(std::memory_order_seq_cst))
    CancelAsync(op->sequence + 1);
  {
    BasicCompletion<EngineCore> handle(this, op, generation);
    CallClosure(op, &handle);
    // What was thrown outdoes "dropped": the handle ended because of it.
    if (op->failed && Claim(op, generation)) FinishPart(op, done);
  }
  FinishPart(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::StartOnDevice(EngineOp* op, Completed& done) {
  live_.Add();
  const Device device = op->details().device;
  Event event(device);
  try {
    const auto scope = InvocationScope::Adopt(op->invocation);
    // Its exceptions stay in the operation: a stream may skip the work of others for them.
    IssueFunctionOf(device)(
        device, op->copies ? kCopyStream : kComputeStream, [this, op] { CallClosure(op, nullptr); },
        event);
  } catch (...) {
    op->SetThrown(std::current_exception());
    EndClosure(op);
    Finish(op, done);
    return live_.CountDown();
  }
  const EventState* state = event.state().get();  // alive while it calls back
  const auto finish = [this, op, state](Completed& finished) {
    if (!op->failed && state->status() == EventStatus::kFailed) op->SetThrown(state->exception());
    EndClosure(op);  // where the stream has skipped it
    Finish(op, finished);
  };
  if (naive_) {
    event.state()->Wait({});
    finish(done);
    return live_.CountDown();
  }
  event.SetCallback([this, finish] {
    Completed finished;
    finish(finished);
    Dispatch(finished);
    live_.CountDown();
  });
}

// --- completing

template <class Op>
inline void BasicEngineCore<Op>::Finish(EngineOp* op, Completed& done) {
  const int32_t n = op->access_count;
  Failure* failure = nullptr;
  if (op->failed) [[unlikely]] {
    OpDetails& details = op->details();
    if (details.thrown)
      details.failure = NewFailure(*op, Named(*op, std::exchange(details.thrown, nullptr)));
    failure = details.failure.get();
    int64_t holders = 0;
    for (int32_t i = 0; i < n; ++i) holders += op->access(i).writes();
    failure->AddHolders(holders);
  }
  for (int32_t i = 0; i < n; ++i) {
    Access& access = op->access(i);
    VarState& var = *access.var;
    if (access.writes()) {
      if (failure != nullptr || var.failure) [[unlikely]] {
        if (FailurePtr before = std::exchange(var.failure, FailurePtr(failure)))
          before->Overwritten();
      }
      // Relaxed read: nobody else writes it now. Release: pairs with Version.
      var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (var.Release(access, done.ready)) [[unlikely]]
      FreeVar(var);
  }
  if (failure != nullptr) {
    op->details().failure = {};
    op->failed = false;
  }
  done.records.Add(op);
  ++done.count;
}

// The last of the two parts of an asynchronous operation finishes it. Acquire-release: it sees what
// the other part wrote.
template <class Op>
inline void BasicEngineCore<Op>::FinishPart(EngineOp* op, Completed& done) {
  if (op->details().parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::exception_ptr outcome = std::exchange(op->details().outcome, nullptr);
  if (outcome && !op->failed) op->SetThrown(std::move(outcome));
  Finish(op, done);
}

template <class Op>
inline void BasicEngineCore<Op>::Flush(Completed& done) {
  if (done.count == 0) return;
  records_.GiveBack(done.records);
  done.records = {};
  outstanding_.CountDown(std::exchange(done.count, 0));
}

// On a thread that is no runner.
template <class Op>
inline void BasicEngineCore<Op>::Dispatch(Completed& done) {
  if (done.ready.first != nullptr) {
    if (naive_) {
      RunInline(std::exchange(done.ready, {}));
    } else {
      while (EngineOp* op = done.ready.TakeFirst()) queue_.Push(op);
      WakeRunner();
    }
  }
  Flush(done);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_RUN_HPP_

// ---- opkit/engine/engine_wait.hpp
// How one waits for the engine: for a Var, for all, for an asynchronous operation that somebody
// else completes; and how waiting is cut short, by Cancel and by the engine's end.
#ifndef OPKIT_ENGINE_ENGINE_WAIT_HPP_
#define OPKIT_ENGINE_ENGINE_WAIT_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Takes the right to complete it. True for one of handle and Cancel.
template <class Op>
inline bool BasicEngineCore<Op>::Claim(EngineOp* op, uint32_t generation) {
  MutexLock lock(async_mutex_);
  OpDetails& details = op->details();
  if (!details.completable || details.async_generation != generation) return false;
  details.completable = false;
  EngineOp* const prev = details.async_prev;
  EngineOp* const next = details.async_next;
  (prev != nullptr ? prev->details().async_next : async_first_) = next;
  if (next != nullptr) next->details().async_prev = prev;
  return true;
}

template <class Op>
inline bool BasicEngineCore<Op>::CompleteAsync(EngineOp* op, uint32_t generation,
                                               std::exception_ptr exception) {
  live_.Add();
  const bool claimed = Claim(op, generation);
  if (claimed) {
    op->details().outcome = std::move(exception);
    Completed done;
    FinishPart(op, done);
    Dispatch(done);
  }
  live_.CountDown();
  return claimed;
}

template <class Op>
inline void BasicEngineCore<Op>::CancelAsync(uint64_t before) {
  live_.Add();
  for (;;) {
    EngineOp* op = nullptr;
    uint32_t generation = 0;
    {
      MutexLock lock(async_mutex_);
      op = async_first_;
      while (op != nullptr && op->sequence >= before) op = op->details().async_next;
      if (op != nullptr) generation = op->details().async_generation;
    }
    if (op == nullptr) break;
    if (!Claim(op, generation)) continue;
    op->details().outcome = CancelledError(*op);
    Completed done;
    FinishPart(op, done);
    Dispatch(done);
  }
  live_.CountDown();
}

template <class Op>
inline void BasicEngineCore<Op>::Cancel() {
  const uint64_t before = records_.next_sequence();
  uint64_t now = cancelled_before_.load(std::memory_order_relaxed);
  while (now < before &&
         !cancelled_before_.compare_exchange_weak(now, before, std::memory_order_seq_cst)) {
  }
  CancelAsync(before);
}

template <class Op>
inline bool BasicEngineCore<Op>::Wait(const Latch& latch, Timeout timeout) {
  // A runner whose operation waits makes room for another one.
  const bool inside = t_engine.frame != nullptr && t_engine.frame->core == this;
  if (naive_) {
    DrainInline();
  } else if (inside) {
    runners_.fetch_sub(1, std::memory_order_seq_cst);
    if (!queue_.empty()) WakeRunner();
  }
  const Latch* const outer = std::exchange(t_engine.waiting, &latch);
  const bool done = pool_.Wait(latch, timeout.is_forever() ? -1 : timeout.ns());
  t_engine.waiting = outer;
  if (inside && !naive_) runners_.fetch_add(1, std::memory_order_seq_cst);
  return done;
}

// Of the operations that run on this thread.
template <class Op>
inline const Access* BasicEngineCore<Op>::OwnAccess(const VarState& state) const {
  for (const OpFrame* frame = t_engine.frame; frame != nullptr; frame = frame->outer) {
    if (frame->core != this) continue;
    for (int32_t i = 0; i < frame->op->access_count; ++i) {
      if (frame->op->access(i).var == &state) return &frame->op->access(i);
    }
  }
  return nullptr;
}

template <class Op>
inline void BasicEngineCore<Op>::WaitForVar(Var var, Timeout timeout) {
  VarState& state = StateOf(var);
  const Access* own = t_engine.frame != nullptr ? OwnAccess(state) : nullptr;
  VarWaiter waiter;
  bool waits = false;
  {
    SpinLockGuard guard(state.lock);
    RequireLive(state, var.generation_);
    waits = state.HasPendingWrites();
    if (waits && own == nullptr) {
      state.AppendWaiter(waiter);
    } else {
      waiter.failure = state.failure;
    }
  }
  if (waits && own != nullptr) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Var that others write, found WaitForVar inside an operation that ",
          own->writes() ? "writes" : "reads", " the Var itself, and so would wait for its own end");
  }
  if (waits && !Wait(waiter.latch, timeout)) {
    bool given_up = false;
    {
      SpinLockGuard guard(state.lock);
      given_up = !waiter.granted;
      if (given_up) state.Remove(waiter);
    }
    if (given_up) {
      Throw(ErrorCode::kDeadlineExceeded, "writes of the Var are still pending after ",
            timeout.ns() / 1000, " us; they go on, and the wait can be repeated");
    }
    pool_.Wait(waiter.latch);  // about to be counted down
  }
  if (waiter.failure && waiter.failure->Report(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(waiter.failure->exception());
}

template <class Op>
inline void BasicEngineCore<Op>::WaitForAll(Timeout timeout) {
  for (const OpFrame* frame = t_engine.frame; frame != nullptr; frame = frame->outer) {
    if (frame->core == this) {
      Throw(ErrorCode::kFailedPrecondition,
            "expected WaitForAll outside the operations of the engine, found it inside \"",
            frame->op->name, "\", which would wait for its own end; wait for a Var instead");
    }
  }
  if (!Wait(outstanding_, timeout)) {
    Throw(ErrorCode::kDeadlineExceeded, "operations are still pending after ", timeout.ns() / 1000,
          " us; they go on, and the wait can be repeated");
  }
  if (FailurePtr first = failures_.ReportAll(records_.next_sequence())) [[unlikely]]
    std::rethrow_exception(first->exception());
}

template <class Op>
inline void BasicEngineCore<Op>::Shutdown() {
  for (;;) {
    pool_.Wait(live_);
    if (outstanding_.done()) break;
    // Nothing runs: what is left waits for handles that nobody has used yet.
    CancelAsync(~uint64_t{0});
  }
  pool_.Wait(live_);
}

}  // namespace detail

template <class Core>
inline BasicCompletion<Core>::BasicCompletion(Core* core, detail::EngineOp* op, uint32_t generation)
    : core_(core), op_(op), generation_(generation) {}

template <class Core>
inline BasicCompletion<Core>& BasicCompletion<Core>::operator=(BasicCompletion&& other) noexcept {
  BasicCompletion taken(std::move(other));
  std::swap(core_, taken.core_);
  std::swap(op_, taken.op_);
  std::swap(generation_, taken.generation_);
  return *this;  // what this one was to complete is dropped with `taken`
}

template <class Core>
inline BasicCompletion<Core>::~BasicCompletion() {
  if (!core_) return;
  SetFinishedWithException(std::make_exception_ptr(
      Error(ErrorCode::kFailedPrecondition,
            "expected the asynchronous operation to be completed, found its Completion dropped; "
            "keep the handle until SetFinished is called")));
}

template <class Core>
inline bool BasicCompletion<Core>::SetFinishedWithException(std::exception_ptr exception) {
  if (!core_) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a Completion that was not used yet, found an empty one; an operation is "
          "completed once");
  }
  const auto core = std::move(core_);
  return core->CompleteAsync(op_, generation_, std::move(exception));
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_WAIT_HPP_

// ---- opkit/engine/engine.hpp
// Engine: runs closures as soon as what they depend on is done, on the threads of a pool. Who
// pushes says which Vars a closure reads and writes; everything else follows from the order of
// pushes. For graphs that are known beforehand, the executor does the same for less.
#ifndef OPKIT_ENGINE_ENGINE_HPP_
#define OPKIT_ENGINE_ENGINE_HPP_

namespace opkit::inline OPKIT_ABI {

struct EngineOptions {
  int threads = 0;     // 0: the process's pool, else a pool of the engine's own
  bool naive = false;  // as if the environment had OPKIT_ENGINE=naive
};

//   opkit::Engine engine({.threads = 2});
//   opkit::Var x = engine.NewVar(), y = engine.NewVar();
//   engine.Push([&] { Fill(a); }, {}, {x});
//   engine.Push([&] { Double(a, b); }, {x}, {y}, {.name = "double"});
//   engine.WaitForVar(y);
//
// Operations that share a Var run in push order, except that reads of it may overlap; all others in
// any order, the highest priority first among those that are ready. Operations may push. Pushing
// and completing an empty operation costs some 100 ns and allocates nothing once the engine is warm
// (closures up to 64 bytes, asynchronous operations too).
//
// What a closure throws, of whatever type, is kept in the Vars that it writes. Operations that read
// such a Var are skipped and what they write fails alike. A later write that succeeds makes a Var
// valid again. The exception is rethrown once: by WaitForVar of any Var that holds it, or, the one
// whose operation was pushed first, by WaitForAll; then all Vars are as if nothing had happened.
//
// A naive engine runs every operation inside the Push, in push order, and ignores priorities: the
// same program with the same results and errors, for debugging. An asynchronous operation is
// started there; what depends on it runs where it is completed.
//
// All members are thread-safe except the destructor. The engine belongs to the process that made
// it: a forked child may destroy it, which does nothing there, and use it for nothing else.
template <class Core>
class BasicEngine {
 public:
  // Errors (kInvalidArgument): a number of threads that a pool cannot have; an OPKIT_ENGINE that is
  // neither "naive" nor "threaded".
  explicit BasicEngine(EngineOptions options = {})
      : process_(getpid()), pool_(MakePool(options)), core_(MakeCore(options, pool_.get())) {}
  BasicEngine(const BasicEngine&) = delete;
  BasicEngine& operator=(const BasicEngine&) = delete;
  // Waits for everything that can still run. Asynchronous operations that are not completed by then
  // fail as cancelled; failures that nobody waited for are dropped.
  ~BasicEngine() {
    if (getpid() != process_) {
      static_cast<void>(pool_.release());
      static_cast<void>(new detail::IntrusivePtr<Core>(core_));
      return;
    }
    core_->Shutdown();
  }

  bool naive() const { return core_->naive(); }

  Var NewVar() { return core_->NewVar(); }
  // Its handles are invalid at once; operations that were pushed with it still run, and what failed
  // in it is still rethrown by WaitForAll.
  void DeleteVar(Var var) { core_->DeleteVar(var); }
  // Writes of the Var that have ended, failed and skipped ones included. What they wrote is visible
  // to the caller.
  uint64_t Version(Var var) const { return core_->Version(var); }

  // Runs `fn()` after the operations that it depends on. Reads and writes are lists like {x, y} or
  // vectors; a Var twice in one of them counts once. With a device, `fn` is issued on a stream of
  // it and the operation is done when the stream is; copies (kind) have another stream. Errors: a
  // Var in both lists, deleted, empty or of another engine; a device that the engine does not know.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
  void Push(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    Submit<void>(std::forward<F>(fn), core_->Prepare(reads, writes, options));
  }

  // Runs `fn(Completion)`; the operation is done when the handle says so.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, Completion>
  void PushAsync(F&& fn, VarList reads, VarList writes, const PushOptions& options = {}) {
    if (options.device.type != DeviceType::kCPU) {
      Throw(ErrorCode::kInvalidArgument,
            "expected PushAsync without a device, which completes operations by itself; found ",
            ToString(options.device), ": use Push");
    }
    auto* op = core_->Prepare(reads, writes, options);
    op->mode = detail::OpMode::kAsynchronous;
    Submit<Completion>(std::forward<F>(fn), op);
  }

  // Returns when all writes of the Var that were pushed before are done, and rethrows what failed.
  // Meanwhile the thread runs operations, so do not hold a lock that one of them takes. An
  // operation may wait, too, but not for itself. Error (kDeadlineExceeded) where `timeout` ran out.
  void WaitForVar(Var var, Timeout timeout = {}) { core_->WaitForVar(var, timeout); }
  // Returns when no operation is pending, those included that are pushed meanwhile. Not inside an
  // operation.
  void WaitForAll(Timeout timeout = {}) { core_->WaitForAll(timeout); }

  // Fails all operations pushed so far that have not started, and asynchronous ones that are not
  // completed, with kCancelled. What runs, runs on, as does what a device has begun; what a late
  // Completion says is ignored. Does not wait.
  void Cancel() { core_->Cancel(); }

 private:
  using Pool = typename Core::Pool;

  static bool IsNaive(const EngineOptions& options) {
    const char* text = std::getenv("OPKIT_ENGINE");
    const std::string_view chosen = text != nullptr ? text : "";
    if (chosen != "" && chosen != "naive" && chosen != "threaded") {
      Throw(ErrorCode::kInvalidArgument,
            "expected the environment variable OPKIT_ENGINE to be naive or threaded, found \"",
            chosen, "\"; correct it or unset it");
    }
    return options.naive || chosen == "naive";
  }
  static std::unique_ptr<Pool> MakePool(const EngineOptions& options) {
    if (options.threads == 0 || IsNaive(options)) return nullptr;
    return std::make_unique<Pool>(options.threads, "engine");
  }
  static detail::IntrusivePtr<Core> MakeCore(const EngineOptions& options, ThreadPool* pool) {
    static constinit std::atomic<uint32_t> engines{0};
    // Relaxed: only the uniqueness of the number matters.
    const uint32_t id = engines.fetch_add(1, std::memory_order_relaxed) + 1;
    if (pool == nullptr && !IsNaive(options)) pool = &ThreadPool::Default();
    return detail::MakeIntrusive<Core>(pool, id);
  }

  template <class Argument, class F>
  void Submit(F&& fn, typename Core::EngineOp* op) {
    try {
      op->template SetClosure<Argument>(std::forward<F>(fn));
    } catch (...) {
      core_->Abandon(op);
      throw;
    }
    core_->Submit(op);
  }

  const pid_t process_;
  std::unique_ptr<Pool> pool_;
  const detail::IntrusivePtr<Core> core_;
};
using Engine = BasicEngine<detail::EngineCore>;

}  // namespace opkit

#endif  // OPKIT_ENGINE_ENGINE_HPP_

// ---- opkit/engine/naive_engine.hpp
// NaiveEngine: the engine without threads, by a name of its own. Any Engine of a program becomes
// one where the environment has OPKIT_ENGINE=naive.
#ifndef OPKIT_ENGINE_NAIVE_ENGINE_HPP_
#define OPKIT_ENGINE_NAIVE_ENGINE_HPP_

namespace opkit::inline OPKIT_ABI {

template <class Engine>
class BasicNaiveEngine : public Engine {
 public:
  BasicNaiveEngine() : Engine({.threads = 0, .naive = true}) {}
};
using NaiveEngine = BasicNaiveEngine<Engine>;

}  // namespace opkit

#endif  // OPKIT_ENGINE_NAIVE_ENGINE_HPP_

// ---- opkit/engine/schedule.hpp
// Schedule: a graph of nodes and edges, made once, in the form that replaying it wants: nodes
// renumbered into execution order, edges that others imply removed, successors and levels in flat
// arrays. Replay runs it; the task graph and the executor of operators both sit on the two.
#ifndef OPKIT_ENGINE_SCHEDULE_HPP_
#define OPKIT_ENGINE_SCHEDULE_HPP_

namespace opkit::inline OPKIT_ABI {

// `to` starts after `from` has completed or, when `early`, as soon as the body of `from` has
// returned: its work has been issued to the device that `to` issues to.
struct ScheduleEdge {
  int from = 0;
  int to = 0;
  bool early = false;
};

enum class ScheduleOrder {
  kStable,        // as given; a node is moved only to just before the first one that needs it
  kLevels,        // by level (longest path from a root), as given within a level
  kLevelsIfWide,  // kLevels when a level has kWideLevel nodes on average, else kStable
};

struct ScheduleOptions {
  ScheduleOrder order = ScheduleOrder::kStable;
  // Adds an early edge from each node to the next in the stable order, so that bodies are called in
  // that order whatever the mode is. Only completions may still overlap.
  bool in_order = false;
  // What a cycle's message calls a node; its number when null.
  const FunctionRef<std::string(int)>* name = nullptr;
};

// Immutable, so any number of threads may replay one. Takes 12 to 28 bytes a node and 4 an edge.
//
// "Node" is a number in execution order from here on: edges lead from a lower node to a higher one.
// node_of and original_of translate.
//
// A template, as is what runs it, so that programs without graphs do not compile it.
template <class Edge>
class BasicSchedule {
 public:
  // Throws kOutOfRange for an edge that names no node, kInvalidArgument with the path for a cycle.
  // Edges given twice count once, the stronger (not early) of the two.
  //
  // Edges that others imply are removed: all of them in graphs of at most kExactNodes nodes; above,
  // those with a detour of two edges, looked for among the first kFewPreds predecessors of a node
  // and of each of these, so that building stays linear.
  BasicSchedule(int nodes, const Edge* edges, int64_t edge_count, ScheduleOptions options = {});
  BasicSchedule(int nodes, const std::vector<Edge>& edges, ScheduleOptions options = {})
      : BasicSchedule(nodes, edges.data(), static_cast<int64_t>(edges.size()), options) {}

  static constexpr int kMaxNodes = (1 << 30) - 1;
  static constexpr int kExactNodes = 4096;
  static constexpr int kFewPreds = 8;
  static constexpr int kWideLevel = 256;

  int size() const { return size_; }
  int node_of(int original) const { return node_of_.empty() ? original : node_of_[At(original)]; }
  int original_of(int node) const { return original_of_.empty() ? node : original_of_[At(node)]; }

  // Edges that a node waits for, after removal.
  int in_degree(int node) const { return in_degree_[At(node)]; }
  const std::vector<int>& in_degrees() const { return in_degree_; }

  // Successors of node n are entries()[entry_begin()[n] .. entry_begin()[n + 1]), early ones first.
  const std::vector<int>& entry_begin() const { return entry_begin_; }
  const std::vector<int>& entries() const { return entries_; }
  static int TargetOf(int entry) { return entry & kMaxNodes; }
  static bool IsEarly(int entry) { return (entry & kEarly) != 0; }
  // Whether the target waits for this edge alone.
  static bool IsOnly(int entry) { return entry < 0; }

  // Nodes of level l are level_node(level_begin()[l]) .. level_node(level_begin()[l + 1] - 1);
  // those of level 0 wait for nothing.
  int levels() const { return static_cast<int>(level_begin_.size()) - 1; }
  const std::vector<int>& level_begin() const { return level_begin_; }
  int level_node(int position) const {
    return level_order_.empty() ? position : level_order_[At(position)];
  }
  // Empty when the nodes lie in level order already.
  const std::vector<int>& level_order() const { return level_order_; }
  int roots() const { return size_ == 0 ? 0 : level_begin_[1]; }

  bool in_order() const { return in_order_; }
  bool has_early() const { return has_early_; }
  int64_t edges_given() const { return edges_given_; }
  int64_t edges_kept() const { return static_cast<int64_t>(entries_.size()); }
  bool exactly_reduced() const { return exactly_reduced_; }
  int max_width() const { return max_width_; }
  // How many levels, and nodes in them, have a width in [2^i, 2^(i+1)).
  static constexpr int kWidthClasses = 30;
  int levels_of_width(int i) const { return width_levels_[i]; }
  int nodes_of_width(int i) const { return width_nodes_[i]; }

  int64_t bytes() const {
    const auto of = [](const std::vector<int>& v) { return static_cast<int64_t>(v.capacity()); };
    return 4 * (of(node_of_) + of(original_of_) + of(in_degree_) + of(entry_begin_) + of(entries_) +
                of(level_begin_) + of(level_order_)) +
           static_cast<int64_t>(sizeof(BasicSchedule));
  }

 private:
  static constexpr int kEarly = 1 << 30;
  static constexpr int kOnly = static_cast<int>(0x80000000u);

  // Predecessors by original number: those of node n are preds[pred_begin[n] ..], count[n] of them.
  // `order` holds original numbers in execution order, or nothing when the given order is one.
  struct Draft {
    std::vector<int> pred_begin, preds, count, level, order;
    int node(int i) const { return order.empty() ? i : order[At(i)]; }
  };

  static size_t At(int i) { return static_cast<size_t>(i); }

  static void SetPredecessors(int size, const Edge* edges, int64_t edge_count, Draft& draft);
  static void Sort(int size, Draft& draft, const ScheduleOptions& options);
  [[noreturn]] static void ThrowCycle(const std::vector<int>& path, const ScheduleOptions& options);
  bool SetLevels(Draft& draft);
  void SetLevelOrder(Draft& draft, ScheduleOrder wanted);
  void DropImplied(Draft& draft);
  static void DropTriangles(Draft& draft, int node);
  static void DropTwins(Draft& draft, int node, std::vector<int>& seen);
  void SetOrder(std::vector<int>&& order);
  void SetEntries(const Draft& draft);

  int size_ = 0;
  int max_width_ = 0;
  bool in_order_ = false;
  bool has_early_ = false;
  bool exactly_reduced_ = true;
  int64_t edges_given_ = 0;
  std::vector<int> node_of_, original_of_;  // empty: the same number
  std::vector<int> in_degree_, entry_begin_, entries_;
  std::vector<int> level_begin_, level_order_;
  int width_levels_[kWidthClasses] = {};
  int width_nodes_[kWidthClasses] = {};
};
using Schedule = BasicSchedule<ScheduleEdge>;

template <class Edge>
inline BasicSchedule<Edge>::BasicSchedule(int nodes, const Edge* edges, int64_t edge_count,
                                          ScheduleOptions options)
    : size_(nodes), in_order_(options.in_order), edges_given_(edge_count) {
  if (nodes < 0 || nodes > kMaxNodes || edge_count > INT32_MAX - nodes) {
    Throw(ErrorCode::kOutOfRange, "expected a graph of at most ", kMaxNodes, " nodes and ",
          INT32_MAX - kMaxNodes, " edges, found ", nodes, " nodes and ", edge_count, " edges");
  }
  bool sorted = true;
  for (int64_t i = 0; i < edge_count; ++i) {
    const Edge& edge = edges[i];
    if (edge.from < 0 || edge.from >= nodes || edge.to < 0 || edge.to >= nodes) {
      Throw(ErrorCode::kOutOfRange, "expected edge ", i, " to join two of the ", nodes,
            " nodes from 0 to ", nodes - 1, ", found ", edge.from, " -> ", edge.to);
    }
    sorted = sorted && edge.from < edge.to;
    has_early_ = has_early_ || edge.early;
  }
  Draft draft;
  SetPredecessors(nodes, edges, edge_count, draft);
  if (!sorted) Sort(nodes, draft, options);
  const bool may_be_implied = SetLevels(draft);
  exactly_reduced_ = !may_be_implied || nodes <= kExactNodes;
  if (may_be_implied) DropImplied(draft);
  if (!in_order_) SetLevelOrder(draft, options.order);
  SetOrder(std::move(draft.order));
  SetEntries(draft);
}

template <class Edge>
inline void BasicSchedule<Edge>::SetPredecessors(int size, const Edge* edges, int64_t edge_count,
                                                 Draft& draft) {
  draft.count.assign(At(size), 0);
  for (int64_t i = 0; i < edge_count; ++i) ++draft.count[At(edges[i].to)];
  draft.pred_begin.resize(At(size));
  int total = 0;
  for (int i = 0; i < size; ++i) {
    draft.pred_begin[At(i)] = total;
    total += std::exchange(draft.count[At(i)], 0);
  }
  draft.preds.resize(At(total));
  for (int64_t i = 0; i < edge_count; ++i) {
    const int to = edges[i].to;
    draft.preds[At(draft.pred_begin[At(to)] + draft.count[At(to)]++)] =
        edges[i].early ? edges[i].from | kEarly : edges[i].from;
  }
}

// Depth-first from each node in the given order, predecessors first. The stack is a path, so a
// predecessor found on it closes a cycle.
template <class Edge>
inline void BasicSchedule<Edge>::Sort(int size, Draft& draft, const ScheduleOptions& options) {
  constexpr int kNew = -1, kPlaced = -2;  // else: the next predecessor to look at
  std::vector<int> next_pred(At(size), kNew), path;
  draft.order.reserve(At(size));
  for (int first = 0; first < size; ++first) {
    if (next_pred[At(first)] != kNew) continue;
    next_pred[At(first)] = draft.pred_begin[At(first)];
    path.push_back(first);
    while (!path.empty()) {
      const int node = path.back();
      if (next_pred[At(node)] == draft.pred_begin[At(node)] + draft.count[At(node)]) {
        next_pred[At(node)] = kPlaced;
        draft.order.push_back(node);
        path.pop_back();
        continue;
      }
      const int pred = TargetOf(draft.preds[At(next_pred[At(node)]++)]);
      if (next_pred[At(pred)] >= 0) {
        size_t start = path.size() - 1;
        while (path[start] != pred) --start;
        std::vector<int> cycle(1, pred);  // the path leads from a node to what it needs
        for (size_t i = path.size(); i-- > start;) cycle.push_back(path[i]);
        ThrowCycle(cycle, options);
      }
      if (next_pred[At(pred)] == kNew) {
        next_pred[At(pred)] = draft.pred_begin[At(pred)];
        path.push_back(pred);
      }
    }
  }
}

template <class Edge>
OPKIT_COLD inline void BasicSchedule<Edge>::ThrowCycle(const std::vector<int>& path,
                                                       const ScheduleOptions& options) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (i == kShown && path.size() > kShown + 2) {
      text += StrCat(" -> (", path.size() - kShown - 1, " more)");
      i = path.size() - 1;
    }
    if (i > 0) text += " -> ";
    text += options.name != nullptr ? (*options.name)(path[i]) : std::to_string(path[i]);
  }
  Throw(ErrorCode::kInvalidArgument, "expected a graph without cycles, found ", text,
        "; remove one of these edges");
}

// True when an edge may be implied by others: it spans two levels, or is given twice.
template <class Edge>
inline bool BasicSchedule<Edge>::SetLevels(Draft& draft) {
  bool may_be_implied = false;
  draft.level.assign(At(size_), 0);
  level_begin_.assign(1, 0);
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    const int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
    int deepest = -1, shallowest = size_;
    for (int p = 0; p < draft.count[At(node)]; ++p) {
      const int above = draft.level[At(TargetOf(preds[p]))];
      if (above > deepest) deepest = above;
      if (above < shallowest) shallowest = above;
      for (int q = 0; q < p && p < kFewPreds; ++q) {
        may_be_implied = may_be_implied || TargetOf(preds[p]) == TargetOf(preds[q]);
      }
    }
    may_be_implied = may_be_implied || shallowest < deepest || draft.count[At(node)] > kFewPreds;
    draft.level[At(node)] = ++deepest;
    if (At(deepest) + 1 == level_begin_.size()) level_begin_.push_back(0);
    ++level_begin_[At(deepest) + 1];
  }
  if (in_order_) {
    level_begin_.resize(At(size_) + 1);
    for (int i = 0; i <= size_; ++i) level_begin_[At(i)] = i > 0 ? 1 : 0;
  }
  for (size_t l = 1; l < level_begin_.size(); ++l) {
    const int width = level_begin_[l];
    if (width > max_width_) max_width_ = width;
    const int width_class = 31 - __builtin_clz(static_cast<unsigned>(width));
    ++width_levels_[width_class];
    width_nodes_[width_class] += width;
    level_begin_[l] += level_begin_[l - 1];
  }
  return may_be_implied;
}

template <class Edge>
inline void BasicSchedule<Edge>::SetLevelOrder(Draft& draft, ScheduleOrder wanted) {
  bool sorted = true;
  for (int i = 1; i < size_ && sorted; ++i) {
    sorted = draft.level[At(draft.node(i - 1))] <= draft.level[At(draft.node(i))];
  }
  if (sorted) return;
  const bool by_level = wanted == ScheduleOrder::kLevels ||
                        (wanted == ScheduleOrder::kLevelsIfWide && size_ / kWideLevel >= levels());
  std::vector<int> place(level_begin_), order(At(size_));
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    // Stored by level, what is listed is the original number; else the new one.
    order[At(place[At(draft.level[At(node)])]++)] = by_level ? node : i;
  }
  (by_level ? draft.order : level_order_) = std::move(order);
}

// An edge u -> v is implied by a path of more edges from u to v. What the path promises depends on
// its first edge alone: if that is early, v only waits until u has been issued, so it implies only
// an early edge. Found from v: the path's last edge comes from another predecessor of v that u
// leads to.
template <class Edge>
inline void BasicSchedule<Edge>::DropImplied(Draft& draft) {
  std::vector<int> seen(At(size_), -1);
  if (size_ > kExactNodes) {
    for (int i = 0; i < size_; ++i) {
      const int node = draft.node(i);
      if (draft.count[At(node)] < 2) continue;
      DropTwins(draft, node, seen);
      DropTriangles(draft, node);
    }
    return;
  }
  // Bit sets of the nodes that lead to a node: `any`, or with a first edge that is not early.
  const size_t words = At(size_ + 63) / 64;
  std::vector<uint64_t> any(words * At(size_)), late(has_early_ ? words * At(size_) : 0);
  const auto bit = [](int node) { return uint64_t{1} << (node % 64); };
  for (int i = 0; i < size_; ++i) {
    const int node = draft.node(i);
    DropTwins(draft, node, seen);
    int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
    int& count = draft.count[At(node)];
    uint64_t* const to_any = &any[words * At(node)];
    uint64_t* const to_late = has_early_ ? &late[words * At(node)] : to_any;
    for (int p = 0; p < count; ++p) {
      const size_t from = words * At(TargetOf(preds[p]));
      for (size_t w = 0; w < words; ++w) to_any[w] |= any[from + w];
      if (!has_early_) continue;
      for (size_t w = 0; w < words; ++w) to_late[w] |= late[from + w];
    }
    int kept = 0;
    for (int p = 0; p < count; ++p) {
      const int pred = TargetOf(preds[p]);
      const uint64_t* implied = IsEarly(preds[p]) ? to_any : to_late;
      if ((implied[At(pred) / 64] & bit(pred)) == 0) preds[kept++] = preds[p];
    }
    count = kept;
    for (int p = 0; p < kept; ++p) {
      const int pred = TargetOf(preds[p]);
      to_any[At(pred) / 64] |= bit(pred);
      if (!IsEarly(preds[p])) to_late[At(pred) / 64] |= bit(pred);
    }
  }
}

// Of an edge given twice the stronger stays.
template <class Edge>
inline void BasicSchedule<Edge>::DropTwins(Draft& draft, int node, std::vector<int>& seen) {
  int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
  int& count = draft.count[At(node)];
  int kept = 0;
  for (int p = 0; p < count; ++p) {
    const int pred = TargetOf(preds[p]);
    int twin = kept;
    if (count <= kFewPreds) {
      for (twin = 0; twin < kept && TargetOf(preds[twin]) != pred;) ++twin;
    } else if (seen[At(pred)] >= draft.pred_begin[At(node)]) {
      twin = seen[At(pred)] - draft.pred_begin[At(node)];
      // The mark may be another node's, whose predecessors lie behind.
      if (twin >= kept || TargetOf(preds[twin]) != pred) twin = kept;
    }
    if (twin < kept) {
      if (!IsEarly(preds[p])) preds[twin] = pred;
      continue;
    }
    if (count > kFewPreds) seen[At(pred)] = draft.pred_begin[At(node)] + kept;
    preds[kept++] = preds[p];
  }
  count = kept;
}

// Looks for predecessors of `node` among the first predecessors of its first predecessors.
template <class Edge>
inline void BasicSchedule<Edge>::DropTriangles(Draft& draft, int node) {
  int* const preds = draft.preds.data() + draft.pred_begin[At(node)];
  int& count = draft.count[At(node)];
  const int looked_at = count < kFewPreds ? count : kFewPreds;
  unsigned implied = 0;  // bit p: preds[p]
  for (int p = 0; p < looked_at; ++p) {
    const int between = TargetOf(preds[p]);
    const int steps = draft.count[At(between)] < kFewPreds ? draft.count[At(between)] : kFewPreds;
    const int* const before = draft.preds.data() + draft.pred_begin[At(between)];
    for (int s = 0; s < steps; ++s) {
      for (int q = 0; q < looked_at; ++q) {
        if (TargetOf(preds[q]) == TargetOf(before[s]) && (IsEarly(preds[q]) || !IsEarly(before[s])))
          implied |= 1u << q;
      }
    }
  }
  if (implied == 0) return;
  int kept = 0;
  for (int p = 0; p < count; ++p) {
    if (p >= looked_at || (implied >> p & 1) == 0) preds[kept++] = preds[p];
  }
  count = kept;
}

template <class Edge>
inline void BasicSchedule<Edge>::SetOrder(std::vector<int>&& order) {
  bool same = true;
  for (int i = 0; i < static_cast<int>(order.size()) && same; ++i) same = order[At(i)] == i;
  if (same) return;
  original_of_ = std::move(order);
  node_of_.resize(At(size_));
  for (int i = 0; i < size_; ++i) node_of_[At(original_of_[At(i)])] = i;
}

// The successors of each node, early ones first, each kind in ascending order.
template <class Edge>
inline void BasicSchedule<Edge>::SetEntries(const Draft& draft) {
  has_early_ = has_early_ || (in_order_ && size_ > 1);
  in_degree_.resize(At(size_));
  entry_begin_.assign(At(size_) + 1, 0);
  // Calls f(from, to, whether early) for every edge, `to` ascending.
  const auto for_each = [&](auto&& f) {
    for (int to = 0; to < size_; ++to) {
      const int original = original_of(to);
      const int* const preds = draft.preds.data() + draft.pred_begin[At(original)];
      bool follows = false;  // the node before
      for (int p = 0; p < draft.count[At(original)]; ++p) {
        const int from = node_of(TargetOf(preds[p]));
        follows = follows || from == to - 1;
        f(from, to, IsEarly(preds[p]));
      }
      if (in_order_ && to > 0 && !follows) f(to - 1, to, true);
    }
  };
  for_each([&](int from, int to, bool) {
    ++in_degree_[At(to)];
    ++entry_begin_[At(from)];
  });
  int total = 0;
  for (int& begin : entry_begin_) begin = std::exchange(total, total + begin);
  entries_.resize(At(total));
  std::vector<int> end(entry_begin_.begin(), entry_begin_.end() - 1);
  for (const bool early : {true, false}) {
    if (early && !has_early_) continue;
    for_each([&](int from, int to, bool is_early) {
      if (is_early != early) return;
      const int only = in_degree_[At(to)] == 1 ? kOnly : 0;
      entries_[At(end[At(from)]++)] = to | (early ? kEarly : 0) | only;
    });
  }
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_HPP_

// ---- opkit/engine/replay_mode.hpp
// ReplayMode: the three ways of running a Schedule, and the estimate by which one is chosen from
// the graph's shape and the time that a node takes.
#ifndef OPKIT_ENGINE_REPLAY_MODE_HPP_
#define OPKIT_ENGINE_REPLAY_MODE_HPP_

namespace opkit::inline OPKIT_ABI {

enum class ReplayMode {
  kAuto,      // the choice of ChooseMode, kept only if it proves faster than the walk
  kWalk,      // one thread, the stored order, no counters
  kLevels,    // level by level, wide levels shared by all threads
  kCounters,  // a node runs when its last predecessor has released it, on any thread
};

inline const char* ToString(ReplayMode mode) {
  constexpr const char* kNames[] = {"auto", "walk", "levels", "counters"};
  return kNames[static_cast<int>(mode)];
}

namespace detail {

// What the modes cost beside the nodes, in ns, on a machine of today.
inline constexpr double kJoinNs = 1000;       // until a second thread takes part
inline constexpr double kHandshakeNs = 600;   // sharing one level
inline constexpr double kCounterNs = 25;      // a node's counters and queue
inline constexpr double kWorthFactor = 0.85;  // of the walk's time, or the walk stays

struct ReplayEstimate {
  double walk_ns, levels_ns, counters_ns;
};

// Width of a level from which sharing it pays.
inline int WidthToShare(double ns_per_node) {
  const double width = 2 * kHandshakeNs / (ns_per_node > 0.5 ? ns_per_node : 0.5);
  return width < 2 ? 2 : static_cast<int>(width) + 1;
}

template <class Schedule>
ReplayEstimate EstimateReplay(const Schedule& schedule, double ns_per_node, int threads) {
  const double n = schedule.size();
  ReplayEstimate estimate{n * ns_per_node, kJoinNs, kJoinNs};
  const int wide = WidthToShare(ns_per_node);
  double critical_ns = 0;  // of levels, were each run at full width
  for (int i = 0; i < Schedule::kWidthClasses; ++i) {
    const double levels = schedule.levels_of_width(i);
    if (levels == 0) continue;
    const double nodes = schedule.nodes_of_width(i);
    const double width = nodes / levels;
    const double parallel = width < threads ? width : threads;
    const bool shared = width >= wide;
    estimate.levels_ns +=
        nodes * ns_per_node / (shared ? parallel : 1) + (shared ? levels * kHandshakeNs : 0);
    critical_ns += nodes / parallel;
  }
  estimate.counters_ns += critical_ns * (ns_per_node + kCounterNs);
  return estimate;
}

}  // namespace detail

// The mode expected to be fastest: kWalk unless another takes at most 0.85 of its time. With
// `may_pend` always kCounters.
template <class S = Schedule>
ReplayMode ChooseMode(const std::type_identity_t<S>& schedule, double ns_per_node, int threads,
                      bool may_pend = false) {
  if (may_pend) return ReplayMode::kCounters;
  if (threads < 2 || schedule.in_order() || schedule.max_width() < 2) return ReplayMode::kWalk;
  const auto [walk, levels, counters] = detail::EstimateReplay(schedule, ns_per_node, threads);
  if ((levels < counters ? levels : counters) > detail::kWorthFactor * walk) {
    return ReplayMode::kWalk;
  }
  return levels <= counters ? ReplayMode::kLevels : ReplayMode::kCounters;
}

// One sentence for Describe(): the choice of ChooseMode and why.
template <class S = Schedule>
OPKIT_COLD std::string ExplainMode(const std::type_identity_t<S>& schedule, double ns_per_node,
                                   int threads, bool may_pend = false) {
  if (may_pend) return "counters: nodes may complete asynchronously";
  if (threads < 2) return "walk: one thread";
  if (schedule.in_order()) return "walk: the stored order is asked for";
  if (schedule.max_width() < 2) return "walk: the graph is a chain";
  const auto [walk, levels, counters] = detail::EstimateReplay(schedule, ns_per_node, threads);
  const auto us = [](double ns) { return static_cast<double>(static_cast<int64_t>(ns)) / 1000; };
  return StrCat(ToString(ChooseMode(schedule, ns_per_node, threads)), ": with ", ns_per_node,
                StrCat(" ns a node, ", threads, " threads and levels ", schedule.max_width()),
                StrCat(" wide at most, the estimates are ", us(walk), " us for walk, "), us(levels),
                " for levels, ", us(counters), " for counters");
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_REPLAY_MODE_HPP_

// ---- opkit/engine/replay_core.hpp
// ReplayCore: what a Replay does that does not depend on its body: the life of a run, the threads
// that take part in it, and the work they hand to each other. None of it is on the path of a node.
#ifndef OPKIT_ENGINE_REPLAY_CORE_HPP_
#define OPKIT_ENGINE_REPLAY_CORE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Ready nodes, linked through their counters, which nobody counts any more.
struct ReadyChain {
  int head = -1;
  int size = 0;
};

// One thread's part in a run.
struct ReplayWorker {
  ReadyChain ready;
  int root = 0, root_end = 0;  // its share of the roots, by position in level order
  int64_t completed = 0;       // nodes, not yet subtracted from what remains
  int64_t next_wake = 0;       // value of `completed` from which it may wake another thread
  Invocation invocation;       // the run's
  bool active = false;         // counts in active_
  bool searching = false;      // counts in searching_
  bool caller = false;         // of Run; the others are helpers
};

// A run is over when all nodes have completed or it has been given up, and no thread is inside.
// All that says so is guarded by one mutex, which a thread takes when it runs out of work or hands
// some over, never for a node. The pool's tasks (helpers) outlive the run they were queued for: one
// that comes too late serves the next run or finds nothing to do. Each keeps the core alive.
template <class Schedule>
class ReplayCore final : public RefCounted {
 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;
  // Runs nodes by counters until `worker` has none left.
  using NodesFunction = void (*)(ReplayCore& core, ReplayWorker& worker);
  // Runs the nodes at [begin, end) of the stored order or, with `by_level`, of the level order.
  using RangeFunction = void (*)(ReplayCore& core, int begin, int end, bool by_level);

  ReplayCore(const Schedule& schedule, ThreadPool& pool, bool may_pend, void* body,
             NodesFunction run_nodes, RangeFunction run_range)
      : schedule(schedule),
        body(body),
        pool_(pool),
        may_pend_(may_pend),
        run_nodes_(run_nodes),
        run_range_(run_range),
        threads_(pool.threads()),
        search_ticks_(threads_ <= AvailableCpus() ? 12'000 : 0),
        helpers_(static_cast<size_t>(threads_)) {
    for (Helper& helper : helpers_) helper.next_free = std::exchange(free_helpers_, &helper);
  }

  int threads() const { return threads_; }
  bool may_pend() const { return may_pend_; }
  void AllocateCounters() { counters_.resize(static_cast<size_t>(schedule.size())); }

  // Relaxed: it publishes nothing but itself. Who gives a run up and then needs to know that no
  // body runs takes the mutex, as every thread does before its first node.
  bool stopped() {
    const Watch watch = watch_.load(std::memory_order_relaxed);
    return watch != Watch::kNothing && MustStop(watch);
  }

  // Whether others could run ready nodes of this thread's. Relaxed: a hint, looked into under the
  // mutex.
  bool WorkIsWanted() const { return wanted_.load(std::memory_order_relaxed) != kNobody; }

  // Both throw when a run is in progress. Run takes part, waits, and throws the run's error.
  void Run(ReplayMode mode, double ns_per_node, Timeout timeout);
  void RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done);
  void GiveUp(ErrorCode code);
  void Complete(int node, std::exception_ptr error);
  void Fail(std::exception_ptr error) {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning) return;
    if (!error_) error_ = std::move(error);
    watch_.store(Watch::kStop, std::memory_order_relaxed);
  }

  // True when this was the target's last edge. Release: what the node wrote is seen by whoever
  // releases the target last, which acquires; an only edge needs neither, its target runs on this
  // thread or is handed over under the mutex.
  bool Release(int entry) {
    if (Schedule::IsOnly(entry)) return true;
    std::atomic_ref<int> counter(counters_[static_cast<size_t>(Schedule::TargetOf(entry))]);
    return counter.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  int& Next(int node) { return counters_[static_cast<size_t>(node)]; }
  void Push(ReadyChain& chain, int node) {
    Next(node) = std::exchange(chain.head, node);
    ++chain.size;
  }
  int Pop(ReadyChain& chain) {
    --chain.size;
    return std::exchange(chain.head, Next(chain.head));
  }

  void CountPending() { pending_.fetch_add(1, std::memory_order_relaxed); }
  int pending() const { return pending_.load(std::memory_order_relaxed); }

  // Gives the older half of the worker's ready nodes to others, or of long ones all, but never its
  // only node.
  void HandOver(ReplayWorker& worker, bool has_next);

  // Until no thread is inside and nothing is queued: with the caller's promise that no Complete
  // comes any more, nothing refers to the schedule and the body from then on.
  void WaitUntilQuiet();

  const Schedule& schedule;
  void* const body;

 private:
  enum class Phase {
    kIdle,
    kRunning,
    kOver,       // Run has still to fetch the error
    kAbandoned,  // given up, nodes pending
  };
  enum class Work { kNone, kLead, kNodes };
  enum class Watch : char {  // what there is to look at before a node
    kNothing,
    kDeadline,
    kStop,  // no body is called any more
  };

  struct Helper : PoolTask {
    Helper() : PoolTask(&Main) {}
    static void Main(PoolTask* task) noexcept {
      Helper* helper = static_cast<Helper*>(task);
      const IntrusivePtr<ReplayCore> core = std::move(helper->core);
      core->Help(*helper);
    }
    IntrusivePtr<ReplayCore> core;
    Helper* next_free = nullptr;
  };

  // What a thread has to do once it has let the mutex go. The core may be gone by then.
  struct Duty {
    explicit Duty(ThreadPool& pool) : pool(pool) {}
    void Do() {
      if (helper != nullptr) {
        try {
          pool.Schedule(helper);
        } catch (...) {
          DoWithout(*helper);
        }
      }
      if (over != nullptr) over->CountDown();
      if (quiet != nullptr) quiet->CountDown();
      if (done) done(std::move(error));
    }
    ThreadPool& pool;
    Helper* helper = nullptr;
    Latch* over = nullptr;
    Latch* quiet = nullptr;
    DoneFunction done;
    std::exception_ptr error;
  };

  // The system refused the pool its first thread: those who are there do it all, this thread where
  // there is nobody else.
  OPKIT_COLD static void DoWithout(Helper& helper) {
    const IntrusivePtr<ReplayCore> core = std::move(helper.core);
    {
      MutexLock lock(core->mutex_);
      --core->queued_;
      helper.next_free = std::exchange(core->free_helpers_, &helper);
      core->UpdateHints();
      if (core->active_ + core->searching_ + core->queued_ > 0) return;
    }
    ReplayWorker worker;
    core->Participate(worker);
  }

  static uint64_t LevelWord(int level, int pieces) {
    return static_cast<uint64_t>(level) << 32 | static_cast<uint64_t>(pieces) << 16;
  }
  static bool HasPiece(uint64_t word) { return (word & 0xffff) < (word >> 16 & 0xffff); }

  OPKIT_COLD bool MustStop(Watch watch) {
    if (watch == Watch::kStop) return true;
    if (MonotonicNs() < deadline_ns_) return false;
    GiveUp(ErrorCode::kDeadlineExceeded);
    return true;
  }

  void Begin(ReplayMode mode, double ns_per_node);
  void Help(Helper& helper);
  void Participate(ReplayWorker& worker);
  Work Take(ReplayWorker& worker, bool may_search);
  bool Search(const ReplayWorker& worker);
  void Lead();
  void RunLevels();
  void ShareLevel(int level);
  int RunPieces();

  // With the mutex held.
  int offers() const { return chains_ + (next_root_ < roots_ ? 1 : 0) + (lead_offered_ ? 1 : 0); }
  bool quiet() const { return active_ == 0 && offers() == 0; }
  Helper* TakeHelper();
  void Offer(ReadyChain chain, int tail);
  void UpdateHints();
  void EndIfOver(Duty& duty);

  ThreadPool& pool_;
  const bool may_pend_;
  const NodesFunction run_nodes_;
  const RangeFunction run_range_;
  const int threads_;
  const uint64_t search_ticks_;  // how long a thread looks for work of this graph before it leaves
  std::vector<int> counters_;

  // Set before a run's first thread enters.
  ReplayMode mode_ = ReplayMode::kWalk;
  int64_t deadline_ns_ = -1;
  Invocation invocation_;
  bool long_nodes_ = false;  // worth the mutex: no ready node waits behind one that runs
  int wake_interval_ = 1;    // nodes to run between two wake-ups, so that these cost little
  int shared_width_ = 2;
  int piece_nodes_ = 1;  // least nodes of a level's piece

  // Read by every thread after every node, written rarely.
  alignas(kCacheLine) std::atomic<Watch> watch_{Watch::kNothing};
  enum : int { kNobody, kSearching, kAsleep, kAnybody };
  std::atomic<int> wanted_{kNobody};  // who could run more
  std::atomic<int> offers_{0};
  std::atomic<int> pending_{0};

  // The level being shared, its number of pieces, and the next piece: one word, so that a claim is
  // a claim of just that level.
  alignas(kCacheLine) std::atomic<uint64_t> level_{0};
  Latch level_left_;

  alignas(kCacheLine) Mutex mutex_;
  Phase phase_ = Phase::kIdle;
  bool given_up_ = false;
  bool lead_offered_ = false;  // an asynchronous run that no thread has begun
  bool sharing_ = false;       // levels: threads are welcome though nothing is on offer
  int active_ = 0;
  int searching_ = 0;
  int queued_ = 0;
  int next_root_ = 0, roots_ = 0;
  int64_t remaining_ = 0;
  std::exception_ptr error_;
  static constexpr int kMaxChains = 32;
  static constexpr int kMaxRootShare = 256;
  int chains_ = 0;
  ReadyChain shared_[kMaxChains];
  Helper* free_helpers_ = nullptr;
  std::vector<Helper> helpers_;
  Latch* quiet_waiter_ = nullptr;
  bool async_ = false;
  DoneFunction done_;
  Latch over_;
};

// --- the life of a run

// Of a run: all that is set before its first thread enters. Throws when one is in progress.
template <class Schedule>
inline void ReplayCore<Schedule>::Begin(ReplayMode mode, double ns_per_node) {
  if (phase_ == Phase::kAbandoned) {
    Throw(ErrorCode::kFailedPrecondition, "expected all nodes of the previous run, which was ",
          "given up, to have completed; ", pending(), " are still pending: complete them first");
  }
  if (phase_ != Phase::kIdle) {
    Throw(ErrorCode::kFailedPrecondition,
          "expected a replay that is not running; use one Replay for each run at a time");
  }
  OPKIT_ASSERT(quiet());
  phase_ = Phase::kRunning;
  mode_ = mode;
  deadline_ns_ = -1;
  invocation_ = CurrentInvocation();
  given_up_ = false;
  watch_.store(Watch::kNothing, std::memory_order_relaxed);
  const double ns = ns_per_node > 0.5 ? ns_per_node : 0.5;
  const auto nodes_in = [ns](double span) { return span < ns ? 1 : static_cast<int>(span / ns); };
  long_nodes_ = ns >= 5'000 && threads_ > 1;
  wake_interval_ = nodes_in(20'000);
  piece_nodes_ = nodes_in(500);
  shared_width_ = WidthToShare(ns);
  sharing_ = mode == ReplayMode::kLevels;
  if (mode != ReplayMode::kCounters) return;
  next_root_ = 0;
  roots_ = schedule.roots();
  remaining_ = schedule.size();
  if (remaining_ > 0) {
    std::memcpy(counters_.data(), schedule.in_degrees().data(), counters_.size() * sizeof(int));
  }
}

template <class Schedule>
inline void ReplayCore<Schedule>::RunAsync(ReplayMode mode, double ns_per_node, DoneFunction done) {
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    Begin(mode, ns_per_node);
    done_ = std::move(done);
    async_ = true;
    lead_offered_ = mode != ReplayMode::kCounters || remaining_ == 0;
    duty.helper = TakeHelper();
    UpdateHints();
  }
  duty.Do();
}

template <class Schedule>
inline void ReplayCore<Schedule>::Run(ReplayMode mode, double ns_per_node, Timeout timeout) {
  ReplayWorker worker;
  {
    MutexLock lock(mutex_);
    Begin(mode, ns_per_node);
    deadline_ns_ = timeout.DeadlineNs();
    if (deadline_ns_ >= 0) watch_.store(Watch::kDeadline, std::memory_order_relaxed);
    async_ = false;
    over_.Add(1);
    active_ = 1;
    worker.active = worker.caller = true;
    UpdateHints();
  }
  PoolScope scope(pool_);
  if (mode != ReplayMode::kCounters) Lead();
  Participate(worker);
  if (!over_.done()) {
    if (deadline_ns_ < 0 || !may_pend_) {
      pool_.Wait(over_);  // who runs nodes looks at the deadline
    } else {
      const int64_t left_ns = deadline_ns_ - MonotonicNs();
      if (!pool_.Wait(over_, left_ns > 0 ? left_ns : 0)) {
        GiveUp(ErrorCode::kDeadlineExceeded);
        pool_.Wait(over_);  // for the bodies that are running
      }
    }
  }
  std::exception_ptr error;
  {
    MutexLock lock(mutex_);
    phase_ = remaining_ == 0 ? Phase::kIdle : Phase::kAbandoned;
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(std::move(error));
}

template <class Schedule>
OPKIT_COLD inline void ReplayCore<Schedule>::GiveUp(ErrorCode code) {
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning || given_up_) return;
    if (!error_) {
      const int pending = this->pending();
      error_ = std::make_exception_ptr(Error(
          code, code == ErrorCode::kCancelled
                    ? StrCat("the run of a graph of ", schedule.size(), " nodes was cancelled",
                             StrCat(" with ", pending, " nodes pending"))
                    : StrCat("expected the run of a graph of ", schedule.size(),
                             " nodes to end before its deadline, found it running with ",
                             StrCat(pending, " nodes pending; allow it more time"))));
    }
    given_up_ = true;
    watch_.store(Watch::kStop, std::memory_order_relaxed);
    EndIfOver(duty);
  }
  duty.Do();
}

template <class Schedule>
inline void ReplayCore<Schedule>::EndIfOver(Duty& duty) {
  if (!quiet()) return;
  if (phase_ == Phase::kRunning && (remaining_ == 0 || given_up_)) {
    sharing_ = false;
    if (async_) {
      phase_ = Phase::kAbandoned;
      duty.done = std::move(done_);
      duty.error = std::exchange(error_, nullptr);
    } else {
      phase_ = Phase::kOver;
      duty.over = &over_;
    }
    UpdateHints();
  }
  if (phase_ == Phase::kAbandoned && remaining_ == 0) phase_ = Phase::kIdle;
  if (phase_ != Phase::kRunning) duty.quiet = std::exchange(quiet_waiter_, nullptr);
}

template <class Schedule>
inline void ReplayCore<Schedule>::WaitUntilQuiet() {
  Latch latch(1);
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kRunning && quiet()) return;
    quiet_waiter_ = &latch;
  }
  pool_.Wait(latch);
}

// A node that was completed elsewhere. Its early successors are released by the thread that ran its
// body, so neither has to wait for the other.
template <class Schedule>
inline void ReplayCore<Schedule>::Complete(int node, std::exception_ptr error) {
  OPKIT_ASSERT(node >= 0 && node < schedule.size());
  if (error) Fail(std::move(error));
  ReadyChain chain;
  int tail = -1;
  const int* entry = schedule.entries().data() + schedule.entry_begin()[static_cast<size_t>(node)];
  const int* const end =
      schedule.entries().data() + schedule.entry_begin()[static_cast<size_t>(node) + 1];
  for (; entry != end; ++entry) {
    if (Schedule::IsEarly(*entry) || !Release(*entry)) continue;
    if (chain.size == 0) tail = Schedule::TargetOf(*entry);
    Push(chain, Schedule::TargetOf(*entry));
  }
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    --remaining_;
    pending_.fetch_sub(1, std::memory_order_relaxed);
    if (chain.size > 0) Offer(chain, tail);
    if (searching_ < offers()) duty.helper = TakeHelper();
    UpdateHints();
    EndIfOver(duty);
  }
  duty.Do();
}

// --- threads

template <class Schedule>
inline typename ReplayCore<Schedule>::Helper* ReplayCore<Schedule>::TakeHelper() {
  if (free_helpers_ == nullptr || active_ + searching_ + queued_ >= threads_) return nullptr;
  Helper* helper = std::exchange(free_helpers_, free_helpers_->next_free);
  ++queued_;
  helper->core = IntrusivePtr<ReplayCore>(this);
  return helper;
}

template <class Schedule>
inline void ReplayCore<Schedule>::UpdateHints() {
  const int offers = this->offers();
  offers_.store(offers, std::memory_order_relaxed);
  int wanted = kNobody;
  if (long_nodes_) {
    wanted = kAnybody;
  } else if (phase_ == Phase::kRunning && offers == 0) {
    wanted = searching_ > 0 ? kSearching : active_ + queued_ < threads_ ? kAsleep : kNobody;
  }
  wanted_.store(wanted, std::memory_order_relaxed);
}

template <class Schedule>
inline void ReplayCore<Schedule>::Help(Helper& helper) {
  {
    MutexLock lock(mutex_);
    --queued_;
    helper.next_free = std::exchange(free_helpers_, &helper);
  }
  ReplayWorker worker;
  Participate(worker);
}

template <class Schedule>
inline void ReplayCore<Schedule>::Participate(ReplayWorker& worker) {
  for (bool may_search = true;;) {
    switch (Take(worker, may_search)) {
      case Work::kLead: {
        auto scope = InvocationScope::Adopt(worker.invocation);
        Lead();
        break;
      }
      case Work::kNodes: {
        auto scope = InvocationScope::Adopt(worker.invocation);
        run_nodes_(*this, worker);
        break;
      }
      case Work::kNone:
        if (worker.searching) {
          may_search = Search(worker);
        } else if (worker.caller || RunPieces() == 0) {
          return;
        }
        continue;
    }
    may_search = true;
  }
}

// Hands in what the worker has done and finds more for it.
template <class Schedule>
inline typename ReplayCore<Schedule>::Work ReplayCore<Schedule>::Take(ReplayWorker& worker,
                                                                      bool may_search) {
  Duty duty(pool_);
  Work work = Work::kNone;
  {
    MutexLock lock(mutex_);
    remaining_ -= worker.completed;
    worker.next_wake -= std::exchange(worker.completed, 0);
    if (std::exchange(worker.active, false)) --active_;
    if (std::exchange(worker.searching, false)) --searching_;
    if (lead_offered_) {
      lead_offered_ = false;
      work = Work::kLead;
    } else if (chains_ > 0) {
      ReadyChain& chain = shared_[chains_ - 1];
      if (long_nodes_ && chain.size > 1) {
        Push(worker.ready, Pop(chain));
      } else {
        worker.ready = chain;
        --chains_;
      }
      work = Work::kNodes;
    } else if (next_root_ < roots_) {
      // Ever smaller shares, so that the threads end together.
      const int share = long_nodes_ ? 1 : (roots_ - next_root_) / (4 * threads_);
      worker.root = next_root_;
      next_root_ += share < 1 ? 1 : share > kMaxRootShare ? kMaxRootShare : share;
      worker.root_end = next_root_;
      work = Work::kNodes;
    }
    if (work != Work::kNone) {
      worker.active = true;
      ++active_;
      worker.invocation = invocation_;
      if (searching_ < offers()) duty.helper = TakeHelper();
    } else {
      EndIfOver(duty);
      // One that is about to tell of the end finds nothing meanwhile: nobody is to count on it.
      if (may_search && search_ticks_ > 0 && !duty.done &&
          (!worker.caller || phase_ == Phase::kRunning)) {
        worker.searching = true;
        ++searching_;
      }
      if (sharing_) duty.helper = TakeHelper();
    }
    UpdateHints();
  }
  duty.Do();
  return work;
}

// False when there was nothing for too long.
template <class Schedule>
inline bool ReplayCore<Schedule>::Search(const ReplayWorker& worker) {
  uint64_t start = Ticks();
  do {
    if (offers_.load(std::memory_order_relaxed) > 0) return true;
    if (worker.caller) {
      if (over_.done()) return false;
    } else if (RunPieces() > 0) {
      start = Ticks();
    }
    CpuRelax();
  } while (Ticks() - start < search_ticks_);
  return false;
}

template <class Schedule>
inline void ReplayCore<Schedule>::HandOver(ReplayWorker& worker, bool has_next) {
  const int size = worker.ready.size;
  const int wanted = wanted_.load(std::memory_order_relaxed);
  const int keep = wanted == kAnybody ? (has_next ? 0 : 1) : has_next ? size / 2 : size - size / 2;
  if (keep >= size) return;
  if (wanted == kAsleep) {
    if (worker.completed < worker.next_wake) return;
    worker.next_wake = worker.completed + wake_interval_;
  }
  ReadyChain given{worker.ready.head, size - keep};
  int last_kept = -1;
  for (int i = 0; i < keep; ++i) {
    last_kept = given.head;
    given.head = Next(given.head);
  }
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    if (chains_ == kMaxChains && !long_nodes_) return;
    if (keep == 0) {
      worker.ready = {};
    } else {
      worker.ready.size = keep;
      Next(last_kept) = -1;
    }
    int tail = given.head;
    if (chains_ == kMaxChains) {
      for (int i = 1; i < given.size; ++i) tail = Next(tail);
    }
    Offer(given, tail);
    if (searching_ < offers()) duty.helper = TakeHelper();
    UpdateHints();
  }
  duty.Do();
}

// Adds a chain whose last node is `tail`, which is used where there is no room for one more.
template <class Schedule>
inline void ReplayCore<Schedule>::Offer(ReadyChain chain, int tail) {
  if (chains_ == kMaxChains) {
    Next(tail) = shared_[0].head;
    chain.size += shared_[0].size;
    shared_[0] = chain;
  } else {
    shared_[chains_++] = chain;
  }
}

// --- modes without counters

template <class Schedule>
inline void ReplayCore<Schedule>::Lead() {
  if (mode_ == ReplayMode::kLevels) {
    RunLevels();
  } else if (mode_ == ReplayMode::kWalk) {
    run_range_(*this, 0, schedule.size(), /*by_level=*/false);
  }
}

// Runs of narrow levels are walked, wide ones are shared.
template <class Schedule>
inline void ReplayCore<Schedule>::RunLevels() {
  int walked = 0;
  for (int level = 0; level < schedule.levels(); ++level) {
    const int begin = schedule.level_begin()[static_cast<size_t>(level)];
    const int end = schedule.level_begin()[static_cast<size_t>(level) + 1];
    if (end - begin < shared_width_) continue;
    if (walked < begin) run_range_(*this, walked, begin, /*by_level=*/true);
    if (stopped()) return;
    ShareLevel(level);
    walked = end;
  }
  if (walked < schedule.size()) run_range_(*this, walked, schedule.size(), /*by_level=*/true);
}

template <class Schedule>
inline void ReplayCore<Schedule>::ShareLevel(int level) {
  const int begin = schedule.level_begin()[static_cast<size_t>(level)];
  const int width = schedule.level_begin()[static_cast<size_t>(level) + 1] - begin;
  int pieces = width / piece_nodes_;
  const int most = (long_nodes_ ? 32 : 4) * threads_;  // fits the word's 16 bits
  if (pieces > most) pieces = most;
  if (pieces < threads_) pieces = threads_;
  if (pieces > width) pieces = width;
  level_left_.Add(pieces);
  // Release: a claim sees what the levels before have written.
  level_.store(LevelWord(level, pieces), std::memory_order_release);
  Duty duty(pool_);
  {
    MutexLock lock(mutex_);
    duty.helper = TakeHelper();
  }
  duty.Do();
  RunPieces();
  const uint64_t start = Ticks();
  while (!level_left_.done()) {
    if (Ticks() - start < search_ticks_) {
      CpuRelax();
    } else {
      pool_.Wait(level_left_);
    }
  }
}

// Runs pieces of the level being shared, if there is one; returns how many.
template <class Schedule>
inline int ReplayCore<Schedule>::RunPieces() {
  for (int ran = 0;; ++ran) {
    // Relaxed: a look that the claim below makes good.
    if (!HasPiece(level_.load(std::memory_order_relaxed))) return ran;
    // Acquire: see ShareLevel. Other claims in between continue its release sequence.
    const uint64_t word = level_.fetch_add(1, std::memory_order_acquire);
    if (!HasPiece(word)) return ran;
    const size_t level = word >> 32;
    const int64_t pieces = word >> 16 & 0xffff, piece = word & 0xffff;
    const int64_t begin = schedule.level_begin()[level];
    const int64_t width = schedule.level_begin()[level + 1] - begin;
    {
      auto scope = InvocationScope::Adopt(invocation_);
      run_range_(*this, static_cast<int>(begin + width * piece / pieces),
                 static_cast<int>(begin + width * (piece + 1) / pieces), /*by_level=*/true);
    }
    level_left_.CountDown();
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_REPLAY_CORE_HPP_

// ---- opkit/engine/replay_tuner.hpp
// ReplayTuner: settles on the mode of a Replay by its first runs. It walks a few times, tries the
// modes that the estimate then favours, and keeps the fastest: parallel running has to prove
// itself.
#ifndef OPKIT_ENGINE_REPLAY_TUNER_HPP_
#define OPKIT_ENGINE_REPLAY_TUNER_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Schedule>
class ReplayTuner {
 public:
  // `ns_per_node` of 0 means unknown.
  ReplayTuner(const Schedule& schedule, ReplayMode mode, double ns_per_node, int threads,
              bool may_pend)
      : schedule_(schedule),
        asked_(mode),
        mode_(mode),
        threads_(threads),
        may_pend_(may_pend),
        known_ns_(ns_per_node) {
    if (may_pend && mode != ReplayMode::kAuto && mode != ReplayMode::kCounters) {
      Throw(ErrorCode::kInvalidArgument, "expected mode counters (or auto) for nodes that may ",
            "complete asynchronously, found ", ToString(mode),
            "; choose it or set may_pend to false");
    }
    if (schedule.in_order() && mode == ReplayMode::kLevels) {
      Throw(ErrorCode::kInvalidArgument,
            "expected mode walk, counters or auto for a schedule made ",
            "in_order, found levels; choose another or make the schedule without it");
    }
    if (mode != ReplayMode::kAuto) return;
    if (ns_per_node > 0 || may_pend || Choose(1e9) == ReplayMode::kWalk) {
      mode_ = Choose(ns_per_node);
      return;
    }
    settled_ = false;
    mode_ = ReplayMode::kWalk;
  }

  ReplayMode mode() const { return mode_; }
  bool settled() const { return settled_; }
  bool may_use_counters() const { return !settled_ || mode_ == ReplayMode::kCounters; }
  double ns_per_node() const {
    constexpr double kUsualNs = 100, kUsualPendingNs = 10'000;  // a launch on a device
    return known_ns_ > 0 ? known_ns_ : may_pend_ ? kUsualPendingNs : kUsualNs;
  }

  // What a run in mode() took. The best of each mode counts: the first runs warm the caches, and
  // whatever disturbs a run makes it longer.
  void Record(int64_t ns) {
    constexpr int kFewRuns = 4, kManyRuns = 100;
    constexpr int64_t kLongNs = 2'000'000;    // one run of that length says enough
    constexpr int64_t kEnoughNs = 1'000'000;  // threads have started by then
    int64_t& best = best_ns_[static_cast<int>(mode_)];
    if (best == 0 || ns < best) best = ns;
    tried_ns_ += ns;
    ++runs_;
    if ((runs_ < kFewRuns || tried_ns_ < kEnoughNs) && runs_ < kManyRuns && ns < kLongNs) return;
    runs_ = 0;
    tried_ns_ = 0;
    const int64_t walk_ns = best_ns_[static_cast<int>(ReplayMode::kWalk)];
    if (mode_ == ReplayMode::kWalk) {
      known_ns_ = static_cast<double>(walk_ns) / schedule_.size();
      const ReplayEstimate estimate = EstimateReplay(schedule_, known_ns_, threads_);
      const double limit = kWorthFactor * static_cast<double>(walk_ns);
      tries_levels_ = estimate.levels_ns <= limit;
      tries_counters_ = estimate.counters_ns <= limit;
    }
    if (tries_levels_) {
      tries_levels_ = false;
      mode_ = ReplayMode::kLevels;
    } else if (tries_counters_) {
      tries_counters_ = false;
      mode_ = ReplayMode::kCounters;
    } else {
      Settle(walk_ns);
    }
  }

  OPKIT_COLD std::string Explain() const {
    if (asked_ != ReplayMode::kAuto) return StrCat(ToString(mode_), ": asked for");
    if (!settled_) {
      return StrCat(ToString(mode_), ": the first runs measure how long the nodes take");
    }
    if (best_ns_[static_cast<int>(ReplayMode::kWalk)] == 0) {
      return ExplainMode(schedule_, ns_per_node(), threads_, may_pend_);
    }
    std::string tried;
    for (const ReplayMode mode : {ReplayMode::kWalk, ReplayMode::kLevels, ReplayMode::kCounters}) {
      const int64_t ns = best_ns_[static_cast<int>(mode)];
      if (ns == 0) continue;
      tried += StrCat(tried.empty() ? "" : ", ", static_cast<double>(ns / 10) / 100, " us by ",
                      ToString(mode));
    }
    return StrCat(ToString(mode_), ": measured ", tried, " for a run");
  }

 private:
  ReplayMode Choose(double ns) const { return ChooseMode(schedule_, ns, threads_, may_pend_); }

  void Settle(int64_t walk_ns) {
    // A parallel mode has to be clearly faster: it takes other threads' time.
    double limit = 0.95 * static_cast<double>(walk_ns);
    mode_ = ReplayMode::kWalk;
    for (const ReplayMode mode : {ReplayMode::kLevels, ReplayMode::kCounters}) {
      const auto ns = static_cast<double>(best_ns_[static_cast<int>(mode)]);
      if (ns == 0 || ns > limit) continue;
      limit = ns;
      mode_ = mode;
    }
    settled_ = true;
  }

  const Schedule& schedule_;
  const ReplayMode asked_;
  ReplayMode mode_;
  const int threads_;
  const bool may_pend_;
  bool settled_ = true;
  bool tries_levels_ = false, tries_counters_ = false;
  int runs_ = 0;
  int64_t tried_ns_ = 0;
  double known_ns_ = 0;  // 0: not known yet
  int64_t best_ns_[4] = {};
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_REPLAY_TUNER_HPP_

// ---- opkit/engine/replay.hpp
// Replay: runs a Schedule, many times, on a thread pool: `body(node)` for each node after those
// that it depends on. The body is a template argument, so a node costs what its body costs and a
// few ns; a run allocates nothing. The frozen task graph and the executor are made of it.
#ifndef OPKIT_ENGINE_REPLAY_HPP_
#define OPKIT_ENGINE_REPLAY_HPP_

namespace opkit::inline OPKIT_ABI {

enum class NodeState {
  kDone,
  kPending,  // completes later: somebody will call Replay::Complete(node)
};

struct ReplayOptions {
  ReplayMode mode = ReplayMode::kAuto;
  // How long a body takes, for the choice of the mode; measured in the first runs when 0.
  double ns_per_node = 0;
  // Of a body that returns NodeState: whether it may return kPending for this schedule.
  bool may_pend = true;
};

template <class Body>
concept ReplayBody = std::is_invocable_v<Body&, int> &&
                     (std::is_void_v<std::invoke_result_t<Body&, int>> ||
                      std::is_same_v<std::invoke_result_t<Body&, int>, NodeState>);

//   Schedule schedule(3, {{0, 1}, {0, 2}});
//   Replay replay(schedule, [&](int node) { work[schedule.original_of(node)](); });
//   replay.Run();  // as often as you like
//
// The body is called with the node's number in the schedule, once for each node, on the calling
// thread and on workers of the pool, under the caller's invocation. What a node has written is seen
// by the nodes that depend on it. Schedule and pool must outlive the replay.
//
// One run at a time; any number of Replays of one schedule may run at once. Complete and Cancel may
// be called from any thread during a run, from the body too. A forked child makes its own replays.
//
// Errors. The first exception that happens, of a body or given to Complete, is kept; no body is
// called from then on, what is pending is waited for, and Run rethrows it (RunAsync hands it on). A
// run that is cancelled or passes its deadline is given up: no body is called from then on, and it
// ends, with kCancelled or kDeadlineExceeded, as soon as no body is running. Bodies are never
// killed. Nodes still pending then must still be completed before the next run (else that throws
// kFailedPrecondition) and before the destruction, or never: the replay may be destroyed when no
// Complete is to come.
template <class Body, class Schedule = ::opkit::Schedule>
class Replay {
  static_assert(ReplayBody<Body>,
                "Replay: the body must be callable as body(int node) and return void or NodeState");

 public:
  using Core = detail::ReplayCore<Schedule>;
  using DoneFunction = typename Core::DoneFunction;
  static constexpr bool kMayPend = std::is_same_v<std::invoke_result_t<Body&, int>, NodeState>;

  // Throws kInvalidArgument when nodes may pend, or the schedule is in_order, in a mode that cannot
  // have that: pending needs kCounters; in_order needs that or kWalk.
  Replay(const Schedule& schedule, Body body, ReplayOptions options = {},
         ThreadPool& pool = ThreadPool::Current())
      : body_(std::move(body)),
        tuner_(schedule, options.mode, options.ns_per_node, pool.threads(),
               kMayPend && options.may_pend),
        core_(detail::MakeIntrusive<Core>(schedule, pool, kMayPend && options.may_pend, &body_,
                                          &RunNodes, &RunRange)) {
    if (tuner_.may_use_counters()) core_->AllocateCounters();
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  // Waits for an asynchronous run; Cancel it first if its pending nodes may never complete.
  ~Replay() { core_->WaitUntilQuiet(); }

  // Runs all nodes; this thread takes part. The deadline is looked at before each node, which costs
  // 20 to 30 ns. Where nodes may pend and a deadline is set, a thread from outside the pool that
  // runs out of nodes sleeps for the rest of the run instead of helping.
  void Run(Timeout timeout = {}) {
    const int64_t start = tuner_.settled() ? 0 : detail::MonotonicNs();
    core_->Run(tuner_.mode(), tuner_.ns_per_node(), timeout);
    if (!tuner_.settled()) tuner_.Record(detail::MonotonicNs() - start);
  }

  // Starts a run and returns at once; `done` is called with its error (null for none) by the thread
  // that ended it, after which the replay may be run again or destroyed, by `done` too. `done` must
  // not throw; if it captures at most 48 bytes nothing is allocated. There is no deadline: nobody
  // would watch it; use Cancel.
  void RunAsync(DoneFunction done) {
    core_->RunAsync(tuner_.mode(), tuner_.ns_per_node(), std::move(done));
  }

  // Once for each node whose body has returned, or will return, kPending. Does not run other
  // bodies, which run on the pool's threads or in Run; unless the system refused the pool all of
  // them.
  void Complete(int node, std::exception_ptr error = nullptr) {
    static_assert(kMayPend, "Replay::Complete: the body must return NodeState");
    core_->Complete(node, std::move(error));
  }

  // Fails the run in progress as a body that throws does.
  void Fail(std::exception_ptr error) { core_->Fail(std::move(error)); }

  // Gives up the run in progress, if there is one.
  void Cancel() { core_->GiveUp(ErrorCode::kCancelled); }

  // After a run that was given up, once what was pending has been completed: returns when the rest
  // of the graph has been passed over, so that the next run may begin.
  void Drain() { core_->WaitUntilQuiet(); }

  // Nodes pending now.
  int pending() const { return core_->pending(); }
  int threads() const { return core_->threads(); }
  const Schedule& schedule() const { return core_->schedule; }
  Body& body() { return body_; }

  // The mode of the next run, and whether that is final.
  ReplayMode mode() const { return tuner_.mode(); }
  bool settled() const { return tuner_.settled(); }
  // A sentence: the mode, and why. Not during a run.
  std::string ExplainMode() const { return tuner_.Explain(); }

 private:
  // A body that can be copied is, to the stack: what it holds stays in registers, since the
  // compiler knows that nodes do not change it.
  static constexpr bool kCopies =
      std::is_trivially_copyable_v<Body> && std::is_invocable_v<const Body&, int>;
  using LocalBody = std::conditional_t<kCopies, const Body, Body&>;

  using BodyReference = std::remove_reference_t<LocalBody>&;

  // Where nodes may not pend.
  static void CallDone(BodyReference body, int node) {
    if constexpr (kMayPend) {
      [[maybe_unused]] const NodeState state = body(node);
      OPKIT_ASSERT(state == NodeState::kDone);
    } else {
      body(node);
    }
  }

  static void RunRange(Core& core, int begin, int end, bool by_level) {
    LocalBody body = *static_cast<Body*>(core.body);
    const std::vector<int>& order = core.schedule.level_order();
    try {
      if (by_level && !order.empty()) {
        const int* const nodes = order.data();
        for (int i = begin; i < end && !core.stopped(); ++i) CallDone(body, nodes[i]);
      } else {
        for (int i = begin; i < end && !core.stopped(); ++i) CallDone(body, i);
      }
    } catch (...) {
      core.Fail(std::current_exception());
    }
  }

  // True when the node is pending.
  static bool RunNode(Core& core, BodyReference body, int node) {
    if (core.stopped()) return false;
    try {
      if constexpr (kMayPend) {
        if (body(node) == NodeState::kDone) return false;
        OPKIT_ASSERT(core.may_pend());
        core.CountPending();
        return true;
      } else {
        body(node);
      }
    } catch (...) {
      core.Fail(std::current_exception());
    }
    return false;
  }

  static void RunNodes(Core& core, detail::ReplayWorker& worker) {
    LocalBody body = *static_cast<Body*>(core.body);
    const int* const entry_begin = core.schedule.entry_begin().data();
    const int* const entries = core.schedule.entries().data();
    for (;;) {
      int node;
      if (worker.ready.size > 0) {
        node = core.Pop(worker.ready);
      } else if (worker.root < worker.root_end) {
        node = core.schedule.level_node(worker.root++);
      } else {
        return;
      }
      while (node >= 0) {
        const bool pending = RunNode(core, body, node);
        int next = -1;
        const int* const end = entries + entry_begin[node + 1];
        for (const int* entry = entries + entry_begin[node]; entry != end; ++entry) {
          if constexpr (kMayPend) {
            if (pending && !Schedule::IsEarly(*entry)) break;
          }
          if (!core.Release(*entry)) continue;
          if (next < 0) {
            next = Schedule::TargetOf(*entry);
          } else {
            core.Push(worker.ready, Schedule::TargetOf(*entry));
          }
        }
        if (!pending) ++worker.completed;
        if (core.WorkIsWanted() && worker.ready.size > 0) core.HandOver(worker, next >= 0);
        node = next;
      }
    }
  }

  Body body_;
  detail::ReplayTuner<Schedule> tuner_;
  const detail::IntrusivePtr<Core> core_;
};

}  // namespace opkit

#endif  // OPKIT_ENGINE_REPLAY_HPP_

// ---- opkit/engine/task_store.hpp
// TaskStore: where the functions of a task graph lie. Small trivially copyable ones are kept by
// value, a call pointer before their bytes; the others in blocks that live as long as a graph needs
// them.
#ifndef OPKIT_ENGINE_TASK_STORE_HPP_
#define OPKIT_ENGINE_TASK_STORE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct TaskRecord {
  static constexpr size_t kBytes = 24;

  void (*call)(void* bytes) = nullptr;
  alignas(8) unsigned char bytes[kBytes] = {};
};

// Owns what records point to. Filled by one thread.
template <class TaskRecord>
class TaskStore final : public RefCounted {
 public:
  TaskStore() = default;
  ~TaskStore() override {
    for (size_t i = owned_.size(); i-- > 0;) owned_[i].destroy(owned_[i].object);
    for (const Block& block : blocks_) {
      ::operator delete(block.bytes, std::align_val_t{block.alignment});
    }
  }

  // The record of `f`, and how many of its bytes are used.
  template <class F>
  TaskRecord Store(F&& f, int* bytes) {
    using Callable = std::decay_t<F>;
    TaskRecord record;
    if constexpr (std::is_trivially_copyable_v<Callable> &&
                  sizeof(Callable) <= TaskRecord::kBytes && alignof(Callable) <= 8) {
      ::new (static_cast<void*>(record.bytes)) Callable(std::forward<F>(f));
      record.call = [](void* at) { (*std::launder(static_cast<Callable*>(at)))(); };
      *bytes = std::is_empty_v<Callable> ? 0 : static_cast<int>(sizeof(Callable));
    } else {
      if (owned_.size() == owned_.capacity()) owned_.reserve(2 * owned_.size() + 8);
      Callable* object =
          ::new (Allocate(sizeof(Callable), alignof(Callable))) Callable(std::forward<F>(f));
      owned_.push_back({object, [](void* dead) { static_cast<Callable*>(dead)->~Callable(); }});
      std::memcpy(record.bytes, &object, sizeof object);
      record.call = [](void* at) {
        Callable* callable;
        std::memcpy(&callable, at, sizeof callable);
        (*callable)();
      };
      *bytes = sizeof object;
    }
    return record;
  }

 private:
  struct Owned {
    void* object;
    void (*destroy)(void*);
  };
  struct Block {
    void* bytes;
    size_t alignment;
  };

  void* Allocate(size_t size, size_t alignment) {
    constexpr size_t kBlock = size_t{1} << 16;
    if (size > kBlock / 8 || alignment > alignof(std::max_align_t)) {
      return NewBlock(size, alignment);
    }
    used_ = (used_ + alignment - 1) & ~(alignment - 1);
    if (current_ == nullptr || used_ + size > kBlock) {
      current_ = static_cast<unsigned char*>(NewBlock(kBlock, alignof(std::max_align_t)));
      used_ = 0;
    }
    return current_ + std::exchange(used_, used_ + size);
  }
  void* NewBlock(size_t size, size_t alignment) {
    blocks_.push_back({nullptr, alignment});
    return blocks_.back().bytes = ::operator new(size, std::align_val_t{alignment});
  }

  std::vector<Owned> owned_;
  std::vector<Block> blocks_;
  unsigned char* current_ = nullptr;
  size_t used_ = 0;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_TASK_STORE_HPP_

// ---- opkit/engine/task_graph.hpp
// TaskGraph: plain functions with dependencies, built once, frozen, and run many times for a few ns
// a task. FrozenTaskGraph is what runs: tasks lie in execution order, beside a Schedule and its
// Replay.
#ifndef OPKIT_ENGINE_TASK_GRAPH_HPP_
#define OPKIT_ENGINE_TASK_GRAPH_HPP_

namespace opkit::inline OPKIT_ABI {

// A task of the graph that returned it.
struct TaskId {
  int index = -1;
  friend bool operator==(TaskId, TaskId) = default;
};

struct FreezeOptions {
  // 0: the threads of `pool`, or of the current one. Without a pool, a number makes a pool of that
  // many threads for this graph alone; then the callback of RunAsync must not destroy the graph.
  int threads = 0;
  ThreadPool* pool = nullptr;
  ReplayMode mode = ReplayMode::kAuto;
  double ns_per_task = 0;  // for the choice of the mode; measured in the first runs when 0
  // Tasks run one after the other, in the order in which they were added as far as the edges allow.
  bool in_order = false;
};

template <class Record, class Edge>
class BasicTaskGraph;

// Runs the tasks of a TaskGraph, which need not exist any more. What Replay says of runs, errors,
// deadlines and Cancel holds here. One run at a time; freeze a graph twice for two at a time. After
// a move only destruction and assignment are allowed.
//
// Both graphs are templates, so that programs without them do not compile them.
template <class Record, class Edge>
class BasicFrozenTaskGraph {
  using TaskGraph = BasicTaskGraph<Record, Edge>;
  using Schedule = BasicSchedule<Edge>;

 public:
  using DoneFunction = UniqueFunction<void(std::exception_ptr)>;

  BasicFrozenTaskGraph(BasicFrozenTaskGraph&&) noexcept = default;
  BasicFrozenTaskGraph& operator=(BasicFrozenTaskGraph&&) noexcept = default;
  BasicFrozenTaskGraph(const BasicFrozenTaskGraph&) = delete;
  BasicFrozenTaskGraph& operator=(const BasicFrozenTaskGraph&) = delete;

  void Run(Timeout timeout = {}) { state_->replay.Run(timeout); }
  void RunAsync(DoneFunction done) { state_->replay.RunAsync(std::move(done)); }
  void Cancel() { state_->replay.Cancel(); }

  int size() const { return state_->schedule.size(); }
  ReplayMode mode() const { return state_->replay.mode(); }
  bool settled() const { return state_->replay.settled(); }
  const Schedule& schedule() const { return state_->schedule; }
  // A few lines: what was frozen, how it runs and why. Not during a run.
  std::string Describe() const;

 private:
  friend TaskGraph;

  struct OwnPool final : detail::RefCounted {
    explicit OwnPool(int threads) : pool(threads) {}
    ThreadPool pool;
  };

  // Calls task `node`: its record lies at `records + node * stride`.
  struct Body {
    void operator()(int node) const {
      unsigned char* record = records + static_cast<size_t>(node) * stride;
      void (*call)(void*);
      std::memcpy(&call, record, sizeof call);
      call(record + sizeof call);
    }
    unsigned char* records;
    size_t stride;
  };

  struct State final : detail::RefCounted {
    State(const TaskGraph& graph, size_t stride, const FreezeOptions& options);

    detail::IntrusivePtr<OwnPool> own_pool;
    detail::IntrusivePtr<detail::TaskStore<Record>> store;
    Schedule schedule;
    std::vector<uint64_t> records;
    Replay<Body, Schedule> replay;
  };

  explicit BasicFrozenTaskGraph(detail::IntrusivePtr<State> state) : state_(std::move(state)) {}

  detail::IntrusivePtr<State> state_;
};
using FrozenTaskGraph = BasicFrozenTaskGraph<detail::TaskRecord, ScheduleEdge>;

//   TaskGraph graph;
//   TaskId load = graph.Add([&] { Load(image); });
//   TaskId blur = graph.Add([&] { Blur(image); });
//   graph.Precede(load, blur);
//   FrozenTaskGraph frozen = graph.Freeze({.threads = 2});
//   for (;;) frozen.Run();
//
// Not thread-safe. Adding a task takes about 10 ns and 32 bytes, and one allocation in a while; a
// function that captures more than 24 bytes or is not trivially copyable is moved to a block of the
// graph's own, and is one object for all frozen graphs.
template <class Record, class Edge>
class BasicTaskGraph {
  using FrozenTaskGraph = BasicFrozenTaskGraph<Record, Edge>;

 public:
  BasicTaskGraph() = default;
  BasicTaskGraph(BasicTaskGraph&&) noexcept = default;
  BasicTaskGraph& operator=(BasicTaskGraph&&) noexcept = default;
  BasicTaskGraph(const BasicTaskGraph&) = delete;
  BasicTaskGraph& operator=(const BasicTaskGraph&) = delete;

  template <class F>
  TaskId Add(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "TaskGraph::Add: a task must be callable without arguments");
    int bytes = 0;
    const Record record = store_->Store(std::forward<F>(f), &bytes);
    if (bytes > max_bytes_) max_bytes_ = bytes;
    if (static_cast<size_t>(size_) == kBlock * blocks_.size()) {
      blocks_.emplace_back();
      blocks_.back().reserve(kBlock);
    }
    blocks_.back().push_back(record);
    return {size_++};
  }

  // `after` starts when `before` has ended. Cycles are found by Freeze.
  void Precede(TaskId before, TaskId after) {
    const auto size = static_cast<unsigned>(size_);
    if (static_cast<unsigned>(before.index) >= size || static_cast<unsigned>(after.index) >= size)
        [[unlikely]] {
      Throw(ErrorCode::kOutOfRange, "expected two tasks of this graph, which has ", size,
            ", found tasks ", before.index, " and ", after.index, "; use what Add returned");
    }
    edges_.push_back({before.index, after.index});
  }

  int size() const { return size_; }

  // Throws kInvalidArgument with the path for a cycle. The graph stays as it is and may be added to
  // and frozen again.
  FrozenTaskGraph Freeze(const FreezeOptions& options = {}) const {
    const size_t stride = sizeof(void*) + (static_cast<size_t>(max_bytes_) + 7) / 8 * 8;
    return FrozenTaskGraph(
        detail::MakeIntrusive<typename FrozenTaskGraph::State>(*this, stride, options));
  }

 private:
  friend FrozenTaskGraph;

  // In blocks, so that a large graph is not copied while it grows.
  static constexpr size_t kBlock = 2048;
  const Record& task(int index) const {
    return blocks_[static_cast<size_t>(index) / kBlock][static_cast<size_t>(index) % kBlock];
  }

  int size_ = 0;
  std::vector<std::vector<Record>> blocks_;
  std::vector<Edge> edges_;
  int max_bytes_ = 0;
  detail::IntrusivePtr<detail::TaskStore<Record>> store_ =
      detail::MakeIntrusive<detail::TaskStore<Record>>();
};
using TaskGraph = BasicTaskGraph<detail::TaskRecord, ScheduleEdge>;

template <class Record, class Edge>
inline BasicFrozenTaskGraph<Record, Edge>::State::State(const TaskGraph& graph, size_t stride,
                                                        const FreezeOptions& options)
    : own_pool(options.pool == nullptr && options.threads != 0
                   ? detail::MakeIntrusive<OwnPool>(options.threads)
                   : detail::IntrusivePtr<OwnPool>()),
      store(graph.store_),
      schedule(graph.size_, graph.edges_,
               {.order = ScheduleOrder::kLevelsIfWide, .in_order = options.in_order}),
      records(static_cast<size_t>(graph.size_) * stride / sizeof(uint64_t)),
      replay(schedule, Body{reinterpret_cast<unsigned char*>(records.data()), stride},
             {.mode = options.mode, .ns_per_node = options.ns_per_task},
             options.pool != nullptr ? *options.pool
             : own_pool              ? own_pool->pool
                                     : ThreadPool::Current()) {
  auto* record = reinterpret_cast<unsigned char*>(records.data());
  for (int node = 0; node < graph.size_; ++node, record += stride) {
    std::memcpy(record, &graph.task(schedule.original_of(node)), stride);
  }
}

template <class Record, class Edge>
OPKIT_COLD inline std::string BasicFrozenTaskGraph<Record, Edge>::Describe() const {
  const Schedule& schedule = state_->schedule;
  const int64_t removed = schedule.edges_given() - schedule.edges_kept();
  return StrCat(
      StrCat(schedule.size(), " tasks, ", schedule.edges_kept(), " edges"),
      removed > 0 ? StrCat(" (", removed, " more implied by these)") : "",
      StrCat(", ", schedule.levels(), " levels of at most ", schedule.max_width(), " tasks\n"),
      StrCat("on ", state_->replay.threads(),
             state_->replay.threads() == 1 ? " thread by " : " threads by ",
             state_->replay.ExplainMode()));
}

}  // namespace opkit

#endif  // OPKIT_ENGINE_TASK_GRAPH_HPP_

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
  size_t LowerBound(std::string_view name) const {
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
  NamedRow* Find(std::string_view name) const {
    const size_t at = LowerBound(name);
    return at < rows.size() && At(at)->name == name ? At(at) : nullptr;
  }
  void Add(NamedRow* row) {
    const size_t at = LowerBound(row->name);
    rows.push_back(IntrusivePtr<RefCounted>(row));
    for (size_t i = rows.size() - 1; i > at; --i) std::swap(rows[i], rows[i - 1]);
  }
  bool Erase(std::string_view name) {
    if (!Find(name)) return false;
    for (size_t i = LowerBound(name) + 1; i < rows.size(); ++i) std::swap(rows[i], rows[i - 1]);
    rows.pop_back();
    return true;
  }

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

// ---- opkit/op/operator_def.hpp
// OperatorDef: one node, as plain data: the op's type, the names of what it reads and writes, its
// attributes, the device and the backend asked for. Everything else is derived from it.
#ifndef OPKIT_OP_OPERATOR_DEF_HPP_
#define OPKIT_OP_OPERATOR_DEF_HPP_

namespace opkit::inline OPKIT_ABI {

// A graph that an operator carries (the branches of If, the body of Loop). Immutable once shared.
// What it holds is the graph folder's; here it is only carried and compared.
class SubgraphBase : public detail::RefCounted {
 public:
  virtual bool Equals(const SubgraphBase& other) const = 0;
  virtual std::string Describe() const = 0;
};

// One named subgraph of a node. Copies share the graph.
struct NamedSubgraph {
  std::string name;
  detail::IntrusivePtr<const SubgraphBase> graph;
  friend bool operator==(const NamedSubgraph& a, const NamedSubgraph& b) {
    return a.name == b.name && (a.graph == b.graph || a.graph->Equals(*b.graph));
  }
};

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
    for (const std::string& name : names) inputs_.push_back(name);
    return *this;
  }
  OperatorDef& Outputs(const std::vector<std::string>& names) {
    for (const std::string& name : names) outputs_.push_back(name);
    return *this;
  }
  // Nodes that must run before this one though nothing of theirs is read.
  OperatorDef& ControlInput(std::string name) {
    return control_inputs_.push_back(std::move(name)), *this;
  }
  OperatorDef& Arg(std::string name, Attribute value) {
    return args_.Set(std::move(name), std::move(value)), *this;
  }
  // Adds, or replaces the subgraph of that name (MakeSubgraph of graph/subgraph.hpp makes one).
  // Error (kInvalidArgument) for null.
  template <class Graph = const SubgraphBase>
  OperatorDef& Subgraph(std::string name, detail::IntrusivePtr<std::type_identity_t<Graph>> graph) {
    if (!graph) Throw(ErrorCode::kInvalidArgument, "subgraph '", name, "' of ", type_, " is null");
    for (NamedSubgraph& known : subgraphs_)
      if (known.name == name) return known.graph = std::move(graph), *this;
    return subgraphs_.push_back({std::move(name), std::move(graph)}), *this;
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
  const std::vector<NamedSubgraph>& subgraphs() const { return subgraphs_; }
  // Null when there is none of that name.
  const SubgraphBase* FindSubgraph(std::string_view name) const {
    for (const NamedSubgraph& known : subgraphs_)
      if (known.name == name) return known.graph.get();
    return nullptr;
  }
  ::opkit::Device device() const { return device_; }
  const std::string& engine() const { return engine_; }
  bool is_gradient_op() const { return is_gradient_op_; }
  std::vector<std::string>& mutable_inputs() { return inputs_; }
  std::vector<std::string>& mutable_outputs() { return outputs_; }

  // "Scale 'name' (X) -> (Y)": how messages name a node.
  OPKIT_COLD friend std::string ToString(const OperatorDef& def) {
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
  std::vector<NamedSubgraph> subgraphs_;
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
  // Says the elements of a value as well, where shapes and attributes alone decide them (Shape):
  // what reads them can then be inferred too.
  template <class Data = Tensor>
  void SetOutputData(int i, const std::type_identity_t<Data>& data) {
    SetOutput(i, data.dtype(), data.shape());
    if (output_data_.size() < outputs_.size()) output_data_.resize(outputs_.size());
    output_data_[static_cast<size_t>(i)] =
        detail::IntrusivePtr<detail::RefCounted>(new detail::Shared<Data>(data));
  }
  // Null where nothing was said.
  template <class Data = Tensor>
  const Data* output_data(int i) const {
    if (static_cast<size_t>(i) >= output_data_.size()) return nullptr;
    auto* said = static_cast<detail::Shared<Data>*>(output_data_[static_cast<size_t>(i)].get());
    return said ? &said->value : nullptr;
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
  OPKIT_COLD void Refine(TensorInfo& info, const char* what, int i, DType dtype,
                         const SymbolicShape& shape) {
    // The new shape first: of two symbols its own stays, so that whoever compares sees both.
    auto merged = SymbolicShape::Merge(shape, info.shape);
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
  detail::RefCountedList output_data_;  // of Shared<Tensor>; by output, or empty
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
  std::vector<Layout> input_layouts;  // empty: all standard; otherwise one for each value
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;  // {input, output} that may share memory
  int64_t scratch_bytes = 0;                 // for a run; see OperatorBase::Scratch
  double cost_ns = -1;                       // an estimate; negative: none
};

// Makes an operator for a node; a function (const OperatorDef&, Workspace*), which may take the
// configuration that was chosen as a third argument: const KernelConfig*, null where none was.
class OperatorCreator {
 public:
  using Pointer = std::unique_ptr<OperatorBase>;

  OperatorCreator() = default;
  template <class F>
    requires(!std::is_same_v<F, OperatorCreator> &&
             (detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*> ||
              detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*, const KernelConfig*>))
  OperatorCreator(F create) {
    if constexpr (detail::CallableAs<F, Pointer, const OperatorDef&, Workspace*,
                                     const KernelConfig*>) {
      create_ = std::move(create);
    } else {
      create_ = [create = std::move(create)](const OperatorDef& def, Workspace* ws,
                                             const KernelConfig*) mutable -> Pointer {
        return create(def, ws);
      };
    }
  }
  // A template: OperatorBase is known where it is called, not yet here.
  template <class Result = Pointer>
  Result operator()(const OperatorDef& def, Workspace* ws,
                    const KernelConfig* config = nullptr) const {
    return create_(def, ws, config);
  }
  explicit operator bool() const { return static_cast<bool>(create_); }

 private:
  mutable UniqueFunction<Pointer(const OperatorDef&, Workspace*, const KernelConfig*)> create_;
};
// The configurations for a node, best first. None, or an UnsupportedOperatorFeature that says why,
// where the kernel cannot run it.
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
  // None: one configuration, standard layouts, in place as the schema says.
  mutable KernelProposer propose;

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

  // Setters and checks that only some programs call are templates whose argument is always the
  // default, so that others do not compile them.

  // Arity: exactly n, between two numbers, one of a set, or a predicate.
  OpSchema& NumInputs(int n) { return NumInputs(n, n); }
  OpSchema& NumInputs(int min, int max) { return min_inputs_ = min, max_inputs_ = max, *this; }
  template <class Count = int>
  OpSchema& NumInputs(std::initializer_list<int> allowed) {
    return SetArity<Count>(allowed, true);
  }
  OpSchema& NumInputs(UniqueFunction<bool(int)> allowed) {
    return inputs_allowed_ = std::move(allowed), *this;
  }
  OpSchema& NumOutputs(int n) { return NumOutputs(n, n); }
  OpSchema& NumOutputs(int min, int max) { return min_outputs_ = min, max_outputs_ = max, *this; }
  template <class Count = int>
  OpSchema& NumOutputs(std::initializer_list<int> allowed) {
    return SetArity<Count>(allowed, false);
  }
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
  template <class Args = Arguments>
  OpSchema& MutatesInputs(std::initializer_list<int> inputs) {
    return MutatesInputs([list = std::vector<int>(inputs)](const Args&) { return list; });
  }

  // Two runs on the same inputs may differ (random numbers), or a run has an effect beside its
  // outputs: such a node is never folded, merged with an equal one, or dropped.
  OpSchema& Stateful() { return stateful_ = true, *this; }

  // Pairs {input, output} that may, or must, be the same blob.
  using InplacePredicate = UniqueFunction<bool(int, int)>;
  OpSchema& AllowInplace(InplacePredicate may) { return inplace_allowed_ = std::move(may), *this; }
  template <class Index = int>
  OpSchema& AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return AllowInplace(AnyOf<Index>(pairs));
  }
  OpSchema& AllowOneToOneInplace() {
    return AllowInplace([](int in, int out) { return in == out; });
  }
  OpSchema& EnforceInplace(InplacePredicate must) {
    return inplace_enforced_ = std::move(must), *this;
  }
  template <class Index = int>
  OpSchema& EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return EnforceInplace(AnyOf<Index>(pairs));
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
  OPKIT_COLD OpSchema& Arg(AttributeSchema attribute) {
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
  template <class Value = ValueSchema>
  OpSchema& SetElementTypes(const std::vector<DType>& dtypes) {
    for (std::vector<Value>* values : {&inputs_, &outputs_})
      for (Value& value : *values)
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
  bool is_stateful() const { return stateful_; }
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
  // False for one that a node must not give.
  bool TakesArgument(std::string_view name) const {
    return attributes_.empty() || unknown_args_allowed_ || FindAttribute(name);
  }
  bool unknown_args_allowed() const { return unknown_args_allowed_; }
  // "; did you mean 'alpha'?" or the like, for a name that is not declared.
  std::string SuggestArgument(std::string_view name) const {
    std::vector<std::string> known;
    for (const AttributeSchema& attribute : attributes_) known.push_back(attribute.name);
    return SuggestName(name, known);
  }
  // The attributes decide the number of outputs, where they say it.
  bool has_arity_function() const { return static_cast<bool>(arity_); }
  // Empty where the schema makes no test data.
  std::vector<Tensor> MakeTestInputs(DType dtype, uint64_t seed) const {
    return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
  }

  // Why `def` is not a right node of this operator; empty when it is.
  template <class Def = OperatorDef>
  OPKIT_COLD std::string Verify(const Def& def) const {
    if (!problem_.empty()) return problem_;
    const int ins = static_cast<int>(def.inputs().size());
    const int outs = static_cast<int>(def.outputs().size());
    if (std::string why = VerifyArity(ins, outs, def.args()); !why.empty()) return why;
    if (std::string why = VerifyInplace(def); !why.empty()) return why;
    return VerifyArgs(def.args());
  }

  // Types and shapes of the outputs from what is known of the inputs; unknown where the operator
  // declares no inference. Errors of the operator's own function get the node as context.
  template <class Context>
  OPKIT_COLD void Infer(Context& context) const {
    if (!infer_) return;
    if (needs_all_shapes_)
      for (int i = 0; i < context.num_inputs(); ++i)
        if (context.HasInput(i) && !context.input(i).shape.is_known()) return;
    try {
      infer_(context);
    } catch (Error& error) {
      std::string inputs;
      for (const auto& input : context.inputs()) inputs += " " + ToString(input);
      error.AddContext("in shape inference of " + ToString(context.def()) + " with inputs" +
                       inputs);
      throw;
    }
  }
  template <class Context = InferenceContext>
  std::vector<TensorInfo> InferOutputs(const OperatorDef& def,
                                       std::vector<TensorInfo> inputs) const {
    Context context(def, std::move(inputs));
    Infer(context);
    return std::move(context.outputs());
  }
  // Without a cost function: the bytes of inputs and outputs, and no flops.
  template <class Def = OperatorDef>
  OpCost Cost(const Def& def, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs) const {
    return cost_ ? cost_(def, inputs, outputs) : Traffic(inputs, outputs);
  }
  template <class Placement = DevicePlacement>
  Placement InferDevices(const OperatorDef& def) const {
    if (devices_) return devices_(def);
    return {std::vector<Device>(def.inputs().size(), def.device()),
            std::vector<Device>(def.outputs().size(), def.device())};
  }

  // Elements and bytes of a value whose shape is known; 0 otherwise. Bytes are at most what an
  // int64 counts, so that sums of a few do not wrap.
  static uint64_t Elements(const TensorInfo& info) {
    return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
  }
  static uint64_t Bytes(const TensorInfo& info) {
    constexpr uint64_t kMost = ~uint64_t{0} >> 1;
    uint64_t bytes = 0;
    const auto item = static_cast<uint64_t>(ItemSize(info.dtype));
    return __builtin_mul_overflow(Elements(info), item, &bytes) || bytes > kMost ? kMost : bytes;
  }

 private:
  template <class Index>
  static InplacePredicate AnyOf(std::initializer_list<std::pair<int, int>> pairs) {
    return [list = std::vector<std::pair<int, int>>(pairs)](Index in, Index out) {
      for (const auto& pair : list)
        if (pair.first == in && pair.second == out) return true;
      return false;
    };
  }
  static void Same(InferenceContext& c, int input, int output) {
    c.SetOutput(output, c.input_dtype(input), c.input_shape(input));
    c.SetInput(input, c.output(output).dtype, c.output(output).shape);
  }
  template <class Infos>
  static OpCost Traffic(const Infos& inputs, const Infos& outputs) {
    OpCost cost;
    for (const auto& input : inputs) cost.bytes_read += Bytes(input);
    for (const auto& output : outputs) cost.bytes_written += Bytes(output);
    return cost;
  }
  template <class Count>
  OpSchema& SetArity(std::initializer_list<int> allowed, bool inputs) {
    auto in = [list = std::vector<int>(allowed)](Count n) {
      for (int one : list)
        if (one == n) return true;
      return false;
    };
    (inputs ? inputs_allowed_ : outputs_allowed_) = std::move(in);
    (inputs ? input_counts_ : output_counts_) = std::vector<int>(allowed);
    return *this;
  }
  OPKIT_COLD OpSchema& Value(std::vector<ValueSchema>& values, int i, std::string name,
                             std::string doc, std::vector<DType> dtypes) {
    if (values.size() <= static_cast<size_t>(i)) values.resize(static_cast<size_t>(i) + 1);
    values[static_cast<size_t>(i)] = {std::move(name), std::move(doc), std::move(dtypes)};
    return *this;
  }

  OPKIT_COLD static std::string Counts(int min, int max, const std::vector<int>& set,
                                       bool predicate) {
    if (!set.empty()) return StrCat("one of ", set);
    if (predicate) return "a number that its schema's function allows";
    if (min == max) return std::to_string(min);
    if (max == kAny) return min == 0 ? "any number" : StrCat("at least ", min);
    return StrCat(min, " to ", max);
  }
  template <class Args>
  OPKIT_COLD std::string VerifyArity(int ins, int outs, const Args& args) const {
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
  template <class Def>
  OPKIT_COLD std::string VerifyInplace(const Def& def) const {
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
  template <class Args>
  OPKIT_COLD std::string VerifyArgs(const Args& args) const {
    for (const AttributeSchema& attribute : attributes_) {
      const Attribute* given = args.Find(attribute.name);
      if (!given && attribute.required)
        return StrCat(name_, " needs the argument '", attribute.name, "'",
                      attribute.doc.empty() ? "" : " (" + attribute.doc + ")");
      const bool empty_list = given && given->is_list() && given->size() == 0;
      if (given && attribute.type && given->type() != *attribute.type && !empty_list)
        return StrCat("argument '", attribute.name, "' of ", name_, " is ", given->type(), " (",
                      ToString(*given), "), expected ", *attribute.type,
                      HowToWrite(*given, *attribute.type));
    }
    for (const auto& arg : args)
      if (!TakesArgument(arg.name))
        return StrCat(name_, " has no argument '", arg.name, "'", SuggestArgument(arg.name));
    return {};
  }
  static std::string HowToWrite(const Attribute& given, AttributeType wanted) {
    if (given.type() == AttributeType::kInt && wanted == AttributeType::kFloat)
      return StrCat("; write ", ToString(given), ".0");
    if (given.type() == AttributeType::kInts && wanted == AttributeType::kFloats)
      return "; write its numbers as 1.0 and not as 1";
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
  bool unknown_args_allowed_ = false, stateful_ = false;
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
  OPKIT_COLD OpSchema& AddSchema(const char* name, const char* file, int line,
                                 std::string signature = {}) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(name);
    const bool same_signature =
        entry.schema && !signature.empty() && signature == entry.schema->signature();
    auto* added = new detail::Shared<OpSchema>(OpSchema(name, file, line, std::move(signature)));
    const detail::IntrusivePtr<detail::RefCounted> owner(added);
    if (!entry.schema) {
      entry.schema_owner = owner;
      return *(entry.schema = &added->value);
    }
    if (!same_signature && !SamePlace(entry.schema->file(), entry.schema->line(), file, line))
      entry.Add(StrCat("two schemas of operator ", name, ": at ", entry.schema->file(), ":",
                       entry.schema->line(), " and at ", file, ":", line, "; remove one of them"));
    kept_.push_back(owner);
    return added->value;
  }

  // The same kernel from the same place is the same kernel.
  OPKIT_COLD void AddKernel(Kernel kernel) {
    detail::MutexLock lock(mutex_);
    Entry& entry = ops_.FindOrAdd(kernel.op);
    size_t at = 0;
    for (; at < entry.kernels.size(); ++at) {
      const Kernel& known = entry.kernel(at);
      if (known.device != kernel.device || known.backend != kernel.backend) continue;
      if (SamePlace(known.file, known.line, kernel.file, kernel.line)) return;
      if (known.priority == kernel.priority)
        entry.Add(StrCat("two kernels of operator ", kernel.op, " for ", ToString(kernel.device),
                         ", backend ", kernel.backend, ": at ", known.Place(), " and at ",
                         kernel.Place(),
                         "; remove one, or register it with another priority or backend"));
      if (known.priority >= kernel.priority) return;
      kept_.push_back(entry.kernels[at]);
      break;
    }
    if (at == entry.kernels.size()) entry.kernels.emplace_back();
    entry.kernels[at] =
        detail::IntrusivePtr<detail::RefCounted>(new detail::Shared<Kernel>(std::move(kernel)));
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
    return entry ? entry->schema : nullptr;
  }
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for one that
  // was registered twice.
  OPKIT_COLD const OpSchema& GetSchema(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    const Entry& entry = Get(op);
    if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
    if (!entry.schema) Throw(ErrorCode::kNotFound, WithoutSchema(op, entry));
    return *entry.schema;
  }
  // All kernels of an operator, or those for a device type, in the order of registration.
  OPKIT_COLD std::vector<const Kernel*> KernelsOf(std::string_view op) const {
    detail::MutexLock lock(mutex_);
    std::vector<const Kernel*> out;
    if (const Entry* entry = ops_.Find(op))
      for (size_t i = 0; i < entry->kernels.size(); ++i) out.push_back(&entry->kernel(i));
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
  OPKIT_COLD std::vector<std::string> Problems() const {
    detail::MutexLock lock(mutex_);
    std::vector<std::string> out;
    for (const auto* row : ops_) {
      const Entry& entry = row->value;
      for (const std::string& problem : entry.problems) out.push_back(problem);
      for (const std::string& problem : entry.listed) out.push_back(problem);
      if (entry.schema && !entry.schema->problem().empty()) out.push_back(entry.schema->problem());
      if (!entry.schema && !entry.kernels.empty()) out.push_back(WithoutSchema(row->name, entry));
      if (entry.schema && entry.kernels.empty())
        out.push_back(StrCat("operator ", row->name, " has a schema (at ", entry.schema->file(),
                             ":", entry.schema->line(),
                             ") but no kernel; add REGISTER_CPU_OPERATOR(", row->name,
                             ", …), or link the file that registers it"));
    }
    return out;
  }
  // For tests and libraries: forgets an operator whole.
  void Remove(std::string_view op) {
    detail::MutexLock lock(mutex_);
    ops_.Erase(op);
  }

  // Error (kNotFound), naming the nearest, for a backend that no kernel of the program has.
  OPKIT_COLD void CheckBackend(const std::string& backend) const {
    detail::MutexLock lock(mutex_);
    NameTable<Entry> backends;  // only for its names, sorted: another kind of table costs more
    for (const auto* row : ops_)
      for (size_t i = 0; i < row->value.kernels.size(); ++i) {
        const std::string& known = row->value.kernel(i).backend;
        if (known == backend) return;
        backends.FindOrAdd(known);
      }
    Throw(ErrorCode::kNotFound, "no backend '", backend, "' has a kernel in this program",
          SuggestName(backend, backends.Names()));
  }

  // How selection orders the backends that nobody asks for: higher first. "reference" has rank 0,
  // one that was never ranked comes last. Ranked twice, the higher counts.
  void SetBackendRank(std::string_view backend, int rank) {
    detail::MutexLock lock(mutex_);
    int* known = ranks_.Find(backend);
    if (!known) {
      ranks_.FindOrAdd(std::string(backend)) = rank;
    } else if (*known < rank) {
      *known = rank;
    }
  }
  int BackendRank(std::string_view backend) const {
    if (backend == kReferenceBackend) return 0;
    detail::MutexLock lock(mutex_);
    const int* rank = ranks_.Find(backend);
    return rank ? *rank : kUnranked;
  }
  static constexpr int kUnranked = -1;

  // Backends tried for every operator of a device, or for one operator before those; ones that have
  // no kernel are passed over, an empty list clears. Errors: kNotFound for an operator nobody
  // registered, or a device without kernels. The Check functions only say what the others would.
  void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
    CheckGlobalEnginePref(device, engines);
    detail::MutexLock lock(mutex_);
    SetPref({}, device, std::move(engines));
  }
  void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
    CheckOpEnginePref(op, device);
    detail::MutexLock lock(mutex_);
    SetPref(op, device, std::move(engines));
  }
  void CheckGlobalEnginePref(DeviceType device, const EnginePref& engines) const {
    detail::MutexLock lock(mutex_);
    bool known = engines.empty();
    for (const auto* row : ops_) known |= HasKernel(row->value, device);
    if (!known)
      Throw(ErrorCode::kNotFound, "engine preference for ", ToString(device),
            ", for which no operator of this program has a kernel");
  }
  void CheckOpEnginePref(const std::string& op, DeviceType device) const {
    detail::MutexLock lock(mutex_);
    if (!HasKernel(Get(op), device))
      Throw(ErrorCode::kNotFound, "engine preference for operator ", op, " on ", ToString(device),
            ", where it has no kernel");
  }
  // Preferred backends of an operator, its own first.
  OPKIT_COLD EnginePref EnginePrefs(std::string_view op, DeviceType device) const {
    detail::MutexLock lock(mutex_);
    EnginePref out;
    if (prefs_.empty()) return out;  // as nearly always: creating an operator asks every time
    for (const std::string& key : {PrefKey(op, device), PrefKey({}, device)})
      if (const EnginePref* pref = prefs_.Find(key))
        for (const std::string& engine : *pref) out.push_back(engine);
    return out;
  }

 private:
  struct Entry {
    OpSchema* schema = nullptr;
    detail::IntrusivePtr<detail::RefCounted> schema_owner;
    detail::RefCountedList kernels;     // of detail::Shared<Kernel>
    std::vector<std::string> problems;  // thrown at lookup, and listed
    std::vector<std::string> listed;

    const Kernel& kernel(size_t i) const {
      return static_cast<detail::Shared<Kernel>&>(*kernels[i]).value;
    }
    bool Exists() const { return schema || !kernels.empty() || !problems.empty(); }
    void Add(std::string problem) {  // once, however many translation units see it
      for (const std::string& known : problems)
        if (known == problem) return;
      problems.push_back(std::move(problem));
    }
  };

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto* row : ops_)
      if (row->value.Exists()) names.push_back(row->name);
    return names;
  }
  const Entry& Get(std::string_view op) const {
    const Entry* entry = ops_.Find(op);
    if (!entry || !entry->Exists()) ThrowUnknown(op);
    return *entry;
  }
  static bool HasKernel(const Entry& entry, DeviceType device) {
    for (size_t i = 0; i < entry.kernels.size(); ++i)
      if (entry.kernel(i).device == device) return true;
    return false;
  }
  static std::string PrefKey(std::string_view op, DeviceType device) {
    return StrCat(op, " on ", static_cast<int>(device));
  }
  void SetPref(std::string_view op, DeviceType device, EnginePref engines) {
    prefs_.FindOrAdd(PrefKey(op, device)) = std::move(engines);
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view op) const {
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, Names()),
          ops_.empty() ? "; nothing is: was the file that registers it linked?" : "");
  }
  OPKIT_COLD static std::string WithoutSchema(std::string_view op, const Entry& entry) {
    return StrCat("operator ", op, " has a kernel",
                  entry.kernels.empty() ? "" : " (at " + entry.kernel(0).Place() + ")",
                  " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }
  mutable detail::Mutex mutex_;
  NameTable<Entry> ops_;
  detail::RefCountedList kept_;  // second schemas and replaced kernels, which somebody may hold
  NameTable<EnginePref> prefs_;  // by operator (none: every one) and device
  NameTable<int> ranks_;         // by backend
};

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema, schemas without a kernel), one sentence each; empty when nothing is. A good
// first line of a test.
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
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().CheckGlobalEnginePref(device, engines);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetGlobalEnginePref(device, engines);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const auto& entry : pref) OpRegistry::Global().CheckOpEnginePref(op, entry.first);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetOpEnginePref(op, device, engines);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const auto& [device, ops] : pref)
    for (const auto& entry : ops) OpRegistry::Global().CheckOpEnginePref(entry.first, device);
  for (const auto& [device, ops] : pref)
    for (const auto& [op, engines] : ops) OpRegistry::Global().SetOpEnginePref(op, device, engines);
}

}  // namespace opkit

#endif  // OPKIT_OP_OP_REGISTRY_HPP_

// ---- opkit/op/inference_cache.hpp
// InferenceCache: shape inference of a node that is run again and again. It is repeated only when
// an input's dtype or shape has changed, or when the result came from an input's data.
#ifndef OPKIT_OP_INFERENCE_CACHE_HPP_
#define OPKIT_OP_INFERENCE_CACHE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A node's inputs, null where it leaves one out: a view of a vector of Tensor* or const Tensor*. A
// std::span made of either costs every program ten times as much to compile.
class InputPointers {
 public:
  template <class Vector>
  InputPointers(const Vector& inputs) : begin_(inputs.data()), size_(inputs.size()) {}
  size_t size() const { return size_; }
  const Tensor* operator[](size_t i) const { return begin_[i]; }

 private:
  const Tensor* const* begin_;
  size_t size_;
};

// One for each operator, whoever infers: the operator itself, an eager call, or a plan.
class InferenceCache {
 public:
  struct Output {
    DType dtype = DType::kUndefined;
    bool known = false;
    Shape shape;  // where known
  };

  // What is said of the outputs holds for these inputs.
  bool IsFresh(InputPointers inputs) const {
    if (!fresh_) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] &&
          (inputs[i]->dtype() != seen_[i].dtype || inputs[i]->shape() != seen_[i].shape))
        return false;
    return true;
  }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Another whenever the outputs were said anew; 0 before.
  uint64_t version() const { return version_; }

  // `before_data` is called before the first read of an input's elements, which may still be on
  // their way. Nothing is fresh until Keep is called.
  template <class Def>
  OPKIT_COLD void Infer(const Def& def, InputPointers inputs,
                        FunctionRef<void(InferenceContext&)> infer,
                        FunctionRef<void()> before_data) {
    fresh_ = false;
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < def.inputs().size(); ++i) {
      const Tensor* input = i < inputs.size() ? inputs[i] : nullptr;
      infos.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    }
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
    infer(context);
    See(inputs.size(), [&](size_t i) {
      return inputs[i] ? Output{inputs[i]->dtype(), true, inputs[i]->shape()} : Output();
    });
    Say(context.outputs());
  }
  // The result is good: it holds until an input changes, unless it came from an input's data.
  void Keep() { fresh_ = !data_read_; }

  // What somebody else has inferred. Nothing changes where a dtype or shape is not known.
  template <class Infos>
  OPKIT_COLD void Set(const OperatorDef& def, const Infos& inputs, const Infos& outputs) {
    if (inputs.size() != def.inputs().size() || outputs.size() != def.outputs().size())
      Throw(ErrorCode::kInvalidArgument, "SetInferredOutputs of operator ", ToString(def), " for ",
            inputs.size(), " inputs and ", outputs.size(), " outputs");
    auto known = [](const Infos& infos, const std::vector<std::string>& names) {
      for (size_t i = 0; i < infos.size(); ++i)
        if (!names[i].empty() &&
            (infos[i].dtype == DType::kUndefined || !infos[i].shape.is_known()))
          return false;
      return true;
    };
    if (!known(inputs, def.inputs()) || !known(outputs, def.outputs())) return;
    See(inputs.size(), [&](size_t i) { return Of(inputs[i]); });
    Say(outputs);
    fresh_ = true;
  }

 private:
  template <class Info>
  static Output Of(const Info& info) {
    const bool known = info.shape.is_known();
    return {info.dtype, known, known ? info.shape.ToShape() : Shape()};
  }
  template <class F>
  void See(size_t inputs, F input) {
    seen_.clear();
    for (size_t i = 0; i < inputs; ++i) seen_.push_back(input(i));
  }
  template <class Infos>
  void Say(const Infos& outputs) {
    outputs_.clear();
    for (const auto& output : outputs) outputs_.push_back(Of(output));
    ++version_;
  }

  std::vector<Output> seen_, outputs_;  // seen: the inputs
  uint64_t version_ = 0;
  bool data_read_ = false;
  bool fresh_ = false;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_INFERENCE_CACHE_HPP_

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
    if (!observers_) observers_ = detail::IntrusivePtr<detail::RefCounted>(new List);
    list().items.push_back(std::move(observer));
    return list().items.back().get();
  }
  // Gives it back; null when it is not attached.
  std::unique_ptr<ObserverBase<T>> DetachObserver(const ObserverBase<T>* observer) {
    if (!observers_) return nullptr;
    auto& items = list().items;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].get() != observer) continue;
      std::unique_ptr<ObserverBase<T>> detached = std::move(items[i]);
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
      return detached;
    }
    return nullptr;
  }
  size_t NumObservers() const { return observers_ ? list().items.size() : 0; }
  // What an observer threw last; empty when none did.
  std::string last_observer_error() const { return observers_ ? list().error : ""; }

  void StartAllObservers() {
    if (observers_) [[unlikely]]
      ForEach([](ObserverBase<T>& observer) { observer.Start(); });
  }
  void StopAllObservers(bool succeeded) {
    if (observers_) [[unlikely]]
      ForEach([&](ObserverBase<T>& observer) { observer.Stop(succeeded); });
  }

 private:
  struct List : detail::RefCounted {
    std::vector<std::unique_ptr<ObserverBase<T>>> items;
    std::string error;
  };
  template <class F>
  OPKIT_COLD void ForEach(F call) {
    for (size_t i = 0; i < list().items.size(); ++i) {
      try {
        call(*list().items[i]);
      } catch (const std::exception& error) {
        list().error = error.what();
      } catch (...) {
        list().error = "an exception that is not derived from std::exception";
      }
    }
  }
  List& list() const { return static_cast<List&>(*observers_); }

  // A List where there ever was an observer. By its base, so that a program which attaches none
  // does not compile it.
  detail::IntrusivePtr<detail::RefCounted> observers_;
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
    return type_ == &typeid(T) || HasName(typeid(T));
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
  // Of one that another shared object made: kept out of line, off the path of every Input().
  OPKIT_COLD bool HasName(const std::type_info& type) const { return type_ && *type_ == type; }
  [[noreturn]] OPKIT_COLD void WrongType(const char* wanted) const {
    if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
    Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
          ", but is read as ", wanted, " (names as the compiler mangles them)");
  }

  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
  std::string name_;
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
  OPKIT_COLD std::string Describe() const override {
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

// Where set, the names of the arguments that constructors on this thread read: for CheckOperator.
inline constinit thread_local std::vector<std::string>* t_arguments_read = nullptr;

}  // namespace detail

// Not synchronised: one run at a time. Operators of one workspace may run at the same time when
// they do not write what another reads or writes.
class OperatorBase : public Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which are made; the configuration chosen for the
  // node, if any, is copied. Error: kNotFound, kInvalidArgument.
  template <class Config = KernelConfig>
  OPKIT_COLD OperatorBase(const OperatorDef& def, Workspace* ws,
                          const std::type_identity_t<Config>* config = nullptr)
      : device_(def.device()), memory_device_(MemoryDevice(def.device())), workspace_(ws) {
    if (config) SetConfig(*config);
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
    NoteArgument(name);
    return def().args().Get<T>(name, fallback);
  }
  template <class T>
  std::vector<T> GetRepeatedArgument(std::string_view name,
                                     const std::vector<T>& fallback = {}) const {
    NoteArgument(name);
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
  template <class Shapes = std::vector<Shape>>
  Shapes InputTensorShapes() const {
    Shapes shapes;
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

  // The configuration of its kernel that was chosen for this node: layouts, in-place pairs,
  // scratch. Null where none was: everything is as the schema says and in the standard layout.
  const KernelConfig* config() const { return config_; }
  // For operators whose constructor does not take it.
  template <class Config>
  void SetConfig(const Config& config) {
    auto* copy = new detail::Shared<Config>(config);
    config_owner_ = detail::IntrusivePtr<detail::RefCounted>(copy);
    config_ = &copy->value;
  }

  // `size` bytes of the device's memory for the runs from now on, instead of the operator's own. It
  // stays the caller's, must be aligned to 64 and outlive the work that is issued; other work may
  // write to it between runs. Null takes it away.
  void SetScratch(void* bytes, int64_t size) {
    if (size < 0 || (!bytes && size > 0) || reinterpret_cast<uintptr_t>(bytes) % 64 != 0)
      Throw(ErrorCode::kInvalidArgument, "SetScratch of operator ", ToString(def()), " with ", size,
            " bytes at ", reinterpret_cast<uintptr_t>(bytes),
            "; give it memory aligned to 64 bytes, or null and 0");
    planned_scratch_ = bytes;
    planned_scratch_bytes_ = size;
  }
  // At least `size` bytes of the device's memory, undefined at the start of every run: what was
  // planned when that is large enough, else memory of the operator's own that is kept for the next
  // run. Ask once a run: a larger request may end the memory of the one before. Null for 0.
  void* Scratch(int64_t size) {
    if (size > 0 && size <= planned_scratch_bytes_) [[likely]]
      return planned_scratch_;
    return OwnScratch(size);
  }

  // A run infers its outputs' types and shapes by itself, where the inputs are not those of before.
  virtual bool InfersOutputs() const { return false; }
  // What inference says for inputs of these dtypes and shapes, as a plan knows it: runs with such
  // inputs then do not infer. Not for outputs that depend on an input's data. Nothing changes where
  // something is not known. Error: kInvalidArgument for a wrong count.
  template <class Infos = std::span<const TensorInfo>>
  void SetInferredOutputs(const std::type_identity_t<Infos>& inputs,
                          const std::type_identity_t<Infos>& outputs) {
    inference_.Set(def(), inputs, outputs);
  }
  detail::InferenceCache& inference() { return inference_; }

  // For the registry: where the kernel was registered.
  OPKIT_COLD void SetRegistration(const char* file, int line) {
    auto identity = detail::MakeIntrusive<detail::OperatorIdentity>(def());
    identity->file = file;
    identity->line = line;
    identity_ = identity;
  }
  // For the registry: which outputs may share an input's memory (bit i of masks[o]; inputs past 63
  // may not). Without it every output may.
  void SetInplaceMasks(std::vector<uint64_t> masks) { inplace_masks_ = std::move(masks); }
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
      // the context. A class derived from Error would be cut by copying; then it stays as it is.
      if (typeid(error) != typeid(Error)) {
        if (!error.is_shared()) AddContext(error);
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
    Throw(ErrorCode::kOperatorFailed,
          "RunOnDevice returned false; to say why, throw an opkit::Error or use OPKIT_ENFORCE");
  }

  // Outputs whose tensor was replaced during the run take their place.
  void PublishOutputs() {
    if (pending_.empty()) [[likely]]
      return;
    for (size_t i = 0; i < pending_.size(); ++i)
      *pending(i).blob->GetMutable<Tensor>() = pending(i).tensor;
    pending_.clear();
  }
  // `out` becomes all memory that this run may touch.
  void TouchedStorages(detail::RefCountedList& out) const {
    out.clear();
    for (const auto* blobs : {&inputs_, &outputs_})
      for (const Blob* blob : *blobs)
        if (blob && blob->IsType<Tensor>() && blob->Get<Tensor>().storage())
          out.push_back(blob->Get<Tensor>().storage());
    for (size_t i = 0; i < pending_.size(); ++i) out.push_back(pending(i).tensor.storage());
    if (scratch_) out.push_back(scratch_);
  }
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const { return identity_; }

 private:
  struct Pending : detail::RefCounted {
    int output = 0;
    Blob* blob = nullptr;
    Tensor tensor;
  };
  Pending& pending(size_t i) const { return static_cast<Pending&>(*pending_[i]); }

  template <class Blobs>
  Blob* Bound(const Blobs& blobs, int i, const char* what) const {
    if (i < 0 || static_cast<size_t>(i) >= blobs.size() || !blobs[static_cast<size_t>(i)])
        [[unlikely]]
      Throw(ErrorCode::kOutOfRange, what, " ", i, " was asked for, but the node has ", blobs.size(),
            " ", what, "s",
            static_cast<size_t>(i) >= blobs.size() ? ""
            : &blobs == &inputs_
                ? " and leaves that one out (by an empty name, or by an Invoke with a tensor that "
                  "has no dtype yet)"
                : " and leaves that one out");
    return blobs[static_cast<size_t>(i)];
  }
  static void NoteArgument(std::string_view name) {
    if (detail::t_arguments_read) [[unlikely]]
      detail::t_arguments_read->emplace_back(name);
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
    if (inplace_masks_.empty()) return true;  // built without a schema
    if (!config_ && inputs_[i] == outputs_[static_cast<size_t>(o)])
      return true;  // verified with the node
    return i < 64 && (inplace_masks_[static_cast<size_t>(o)] >> i & 1);
  }
  Tensor* FindPending(int o) const {
    for (size_t i = 0; i < pending_.size(); ++i)
      if (pending(i).output == o) return &pending(i).tensor;
    return nullptr;
  }
  // The output becomes `next`: at once, or at the end of the run where an input would change.
  OPKIT_COLD Tensor* Replace(int o, Tensor next) {
    if (Tensor* replaced = FindPending(o)) return &(*replaced = std::move(next));
    Blob* blob = OutputBlob(o);
    Tensor* out = blob->GetMutable<Tensor>();
    bool is_input = false;
    for (const Blob* input : inputs_) is_input |= input == blob;
    if (!is_input || !out->initialized()) return &(*out = std::move(next));
    auto* replacement = new Pending;
    pending_.push_back(detail::IntrusivePtr<detail::RefCounted>(replacement));
    replacement->output = o;
    replacement->blob = blob;
    replacement->tensor = std::move(next);
    return &replacement->tensor;
  }
  OPKIT_COLD Tensor* ResizeOutput(int o, const Tensor& out, const Shape& shape, DType dtype) {
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
  void* OwnScratch(int64_t size) {
    if (size < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", ToString(def()), " asks for ", size,
            " bytes of scratch");
    if (size == 0) return nullptr;
    if (!scratch_ || scratch_->nbytes() < size) scratch_ = AllocateStorage(memory_device_, size);
    return scratch_->data();
  }
  OPKIT_COLD std::string Describe() const { return identity_->Describe(); }
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

  // What every run reads comes first, in one cache line with the observers.
  InvocationKind invocation_kind_ = InvocationKind::kOperator;
  bool event_disabled_ = false;
  int net_position_ = -1;
  detail::RefCountedList pending_;  // of Pending
  Device device_;
  Device memory_device_;
  Workspace* workspace_;
  std::vector<Blob*> inputs_, outputs_;  // null where the node leaves one out
  std::vector<uint64_t> inplace_masks_;
  const KernelConfig* config_ = nullptr;
  detail::IntrusivePtr<detail::RefCounted> config_owner_;
  detail::InferenceCache inference_;
  void* planned_scratch_ = nullptr;
  int64_t planned_scratch_bytes_ = 0;
  Storage scratch_;  // of its own
  detail::IntrusivePtr<const detail::OperatorIdentity> identity_;
  std::optional<Event> event_;
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

// Def is OperatorDef everywhere in this header: templates are compiled where operators are made,
// and not in units that only define some.

// Backend names in the order they are tried: the node's, the operator's preference, the global one,
// the plain operator.
template <class Def>
OPKIT_COLD EnginePref EngineOrder(const Def& def) {
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

// Kernels for the node, best first: those of the backends that were asked for, the plain one, and
// the rest, so that an operator that has only such kernels still runs. Where the node's types are
// known, `by_rank`, the rest goes by the ranks of the backends and may come before the plain one.
template <class Def>
OPKIT_COLD std::vector<const Kernel*> KernelOrder(const Def& def, bool by_rank = false) {
  const OpRegistry& registry = OpRegistry::Global();
  auto kernels = registry.FindKernels(def.type(), def.device().type);
  std::vector<const Kernel*> order;
  auto take = [&](auto matches) {
    for (const Kernel*& kernel : kernels)
      if (kernel && matches(*kernel)) order.push_back(std::exchange(kernel, nullptr));
  };
  EnginePref engines = EngineOrder(def);
  if (by_rank) engines.pop_back();  // the plain operator's place is its rank
  for (const std::string& engine : engines)
    take([&](const Kernel& kernel) { return kernel.backend == engine; });
  if (by_rank) {
    for (;;) {
      int best = OpRegistry::kUnranked;
      for (const Kernel* kernel : kernels)
        if (kernel) best = (std::max)(best, registry.BackendRank(kernel->backend));
      if (best == OpRegistry::kUnranked) break;
      take([&](const Kernel& kernel) { return registry.BackendRank(kernel.backend) == best; });
    }
  }
  take([](const Kernel&) { return true; });
  return order;
}

template <class Def>
[[noreturn]] OPKIT_COLD void ThrowNoKernel(const Def& def, const std::string& refused) {
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

template <class Def>
OPKIT_COLD std::string InConstructor(const Def& def, const Kernel& kernel) {
  return StrCat("in the constructor of operator ", ToString(def), ", registered at ",
                kernel.Place());
}

// Which inputs an output may share memory with: by the configuration where one was chosen, and by
// what the schema allows otherwise.
template <class Def>
OPKIT_COLD std::vector<uint64_t> InplaceMasks(const OpSchema& schema, const Def& def,
                                              const KernelConfig* config = nullptr) {
  std::vector<uint64_t> masks(def.outputs().size(), 0);
  for (size_t o = 0; o < masks.size(); ++o)
    for (size_t i = 0; i < def.inputs().size() && i < 64; ++i) {
      const int in = static_cast<int>(i), out = static_cast<int>(o);
      if (config ? schema.MustInplace(in, out) : schema.CanInplace(in, out))
        masks[o] |= uint64_t{1} << i;
    }
  if (config)
    for (const auto& [in, out] : config->inplace)
      if (in < 64) masks[static_cast<size_t>(out)] |= uint64_t{1} << in;
  return masks;
}

// Error (kInvalidArgument) for a configuration that does not fit the node.
template <class Def>
OPKIT_COLD void CheckConfig(const Kernel& kernel, const Def& def, const KernelConfig& config) {
  auto wrong = [&](const std::string& what) {
    Throw(ErrorCode::kInvalidArgument, "the configuration that the kernel of ", kernel.op, " at ",
          kernel.Place(), " proposes for ", ToString(def), " ", what);
  };
  const size_t inputs = def.inputs().size(), outputs = def.outputs().size();
  auto check_layouts = [&](size_t found, size_t expected, const char* values) {
    if (found != 0 && found != expected)
      wrong(StrCat("has layouts for ", found, " ", values, ", expected none or ", expected));
  };
  check_layouts(config.input_layouts.size(), inputs, "inputs");
  check_layouts(config.output_layouts.size(), outputs, "outputs");
  for (const auto& [in, out] : config.inplace)
    if (in < 0 || out < 0 || static_cast<size_t>(in) >= inputs ||
        static_cast<size_t>(out) >= outputs)
      wrong(StrCat("pairs input ", in, " with output ", out, " in place, but the node has ", inputs,
                   " inputs and ", outputs, " outputs"));
  if (config.scratch_bytes < 0) wrong(StrCat("needs ", config.scratch_bytes, " bytes of scratch"));
}

// An operator made by `kernel`, with what the registry knows of it. Errors get the node and the
// kernel as context; null where the creator returned it.
template <class Def>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateWith(const Kernel& kernel, const OpSchema& schema,
                                                    const Def& def, Workspace* ws,
                                                    const KernelConfig* config) {
  try {
    std::unique_ptr<OperatorBase> op = kernel.create(def, ws, config);
    if (!op) return op;
    if (config && !op->config()) op->SetConfig(*config);
    op->SetRegistration(kernel.file, kernel.line);
    op->SetInplaceMasks(InplaceMasks(schema, def, config));
    return op;
  } catch (Error& error) {
    error.AddContext(InConstructor(def, kernel));
    throw;
  } catch (const std::exception& thrown) {
    Error error(ErrorCode::kOperatorFailed, thrown.what());
    error.SetCause(std::current_exception());
    throw error.AddContext(InConstructor(def, kernel));
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
    if (!kept_)
      for (const std::string& name : created_) ws_->RemoveBlob(name);
  }
  void Keep() { kept_ = true; }

 private:
  Workspace* ws_;
  std::vector<std::string> created_;
  bool kept_ = false;
};

// The operator of the kernel that was chosen for it.
template <class Def>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateChosen(const OpSchema& schema, const Def& def,
                                                      Workspace* ws, const Kernel& kernel,
                                                      const KernelConfig* config) {
  if (kernel.op != def.type() || kernel.device != def.device().type)
    Throw(ErrorCode::kInvalidArgument, "the kernel given, of ", kernel.op, " for ",
          ToString(kernel.device), " at ", kernel.Place(), ", cannot run ", ToString(def), " on ",
          ToString(def.device()));
  if (config) CheckConfig(kernel, def, *config);
  auto op = CreateWith(kernel, schema, def, ws, config);
  if (!op)
    throw UnsupportedOperatorFeature(
        StrCat("the creator of ", kernel.op, " at ", kernel.Place(), " returned null"));
  return op;
}
// The operator of the first kernel that takes it.
template <class Def>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateFirst(const OpSchema& schema, const Def& def,
                                                     Workspace* ws) {
  std::string refused;
  for (const Kernel* kernel : KernelOrder(def)) {
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

// What was decided for a node before its operator is made.
struct CreateOptions {
  const Kernel* kernel = nullptr;        // null: the first one that takes the node
  const KernelConfig* config = nullptr;  // one that the kernel proposed; copied
  int net_position = -1;
};

// Errors: kNotFound (unknown operator or engine, no kernel for the device, missing input blob),
// with the nearest name; kInvalidArgument (the node breaks the schema, or the kernel or
// configuration given is not for it); kUnsupported (every kernel refused it, with each reason);
// kAlreadyExists (registered twice). UnsupportedOperatorFeature where a kernel was given and
// refuses the node: the next one may take it. The workspace is then as it was.
template <class Def = OperatorDef>
OPKIT_COLD std::unique_ptr<OperatorBase> CreateOperator(const Def& def, Workspace* ws,
                                                        const CreateOptions& options) {
  try {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (!ws) Throw(ErrorCode::kInvalidArgument, "CreateOperator needs a workspace");
    if (options.config && !options.kernel)
      Throw(ErrorCode::kInvalidArgument, "CreateOperator of ", ToString(def),
            " was given a configuration without the kernel that proposed it");
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
    detail::OutputBlobGuard guard(def, ws);
    auto op = options.kernel
                  ? detail::CreateChosen(schema, def, ws, *options.kernel, options.config)
                  : detail::CreateFirst(schema, def, ws);
    op->set_net_position(options.net_position);
    guard.Keep();
    return op;
  } catch (...) {
    if (ws && options.net_position != -1) ws->last_failed_op_net_position = options.net_position;
    throw;
  }
}
template <class Def = OperatorDef>
std::unique_ptr<OperatorBase> CreateOperator(const Def& def, Workspace* ws, int net_position = -1) {
  return CreateOperator(def, ws, {.net_position = net_position});
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
template <class AnyAttribute>
std::string AttributeText(const AnyAttribute& attribute) {
  switch (attribute.type()) {
    case AttributeType::kString:
      return attribute.template Get<std::string>();
    case AttributeType::kFloat:
      return FloatText(attribute.template Get<double>());
    case AttributeType::kFloats: {
      std::string out;
      for (double value : attribute.template Get<std::vector<double>>())
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
  template <std::same_as<Arguments> List>
  explicit AttrMap(const List& arguments) {
    for (const auto& item : arguments)
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
  template <std::same_as<std::string> Text = std::string>
  Text get(std::string_view name, const char* fallback) const {
    return get<Text>(name, Text(fallback));
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

// ---- opkit/op/kernel_candidates.hpp
// KernelCandidates: what can be chosen for a node: the kernels in the order of preference with the
// configurations that they propose, and why others propose none. Selection picks one, memory is
// planned with it, and CreateOperator makes it.
#ifndef OPKIT_OP_KERNEL_CANDIDATES_HPP_
#define OPKIT_OP_KERNEL_CANDIDATES_HPP_

namespace opkit::inline OPKIT_ABI {

// A configuration that a kernel proposes for a node, or why it has none.
struct KernelCandidate {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  std::string dropped;  // empty: it can be chosen
};

// What can be chosen for a node, best first: the kernels of the backends that the node, the
// operator's or the program's preference ask for, then by the rank of their backends, each with
// every configuration that it proposes. A kernel without any is listed once, with the reason. Its
// constructor may still refuse the node, by UnsupportedOperatorFeature: then the next is to be
// taken. Errors: kNotFound as CreateOperator; what a proposer throws, or proposes wrongly.
//
//   for (const KernelCandidate& candidate : KernelCandidates(def, inputs, outputs))
//     if (candidate.dropped.empty())
//       return CreateOperator(def, &ws, {.kernel = candidate.kernel, .config = &candidate.config});
//
// A template, so that programs that select nothing do not compile it.
template <class Candidate = KernelCandidate>
std::vector<Candidate> KernelCandidates(const OperatorDef& def, std::span<const TensorInfo> inputs,
                                        std::span<const TensorInfo> outputs) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  std::vector<Candidate> out;
  for (const Kernel* kernel : detail::KernelOrder(def, /*by_rank=*/true)) {
    if (!kernel->propose) {
      Candidate& plain = out.emplace_back();
      plain.kernel = kernel;
      for (int o = 0; o < static_cast<int>(def.outputs().size()); ++o)
        for (int i = 0; i < static_cast<int>(def.inputs().size()); ++i)
          if (schema.CanInplace(i, o)) plain.config.inplace.emplace_back(i, o);
      continue;
    }
    std::string dropped = "it proposes no configuration for this node";
    try {
      for (KernelConfig& config : kernel->propose({def, inputs, outputs})) {
        detail::CheckConfig(*kernel, def, config);
        out.push_back({kernel, std::move(config), {}});
        dropped.clear();
      }
    } catch (const UnsupportedOperatorFeature& error) {
      dropped = error.message();
    } catch (Error& error) {
      error.AddContext(StrCat("in the proposal for operator ", ToString(def),
                              " of the kernel registered at ", kernel->Place()));
      throw;
    }
    if (!dropped.empty()) out.push_back({kernel, {}, std::move(dropped)});
  }
  if (out.empty()) detail::ThrowNoKernel(def, {});
  return out;
}

// The operator of the first candidate that takes the node, which is stored in `chosen` where that
// is given. Errors: as KernelCandidates and CreateOperator; kUnsupported with each candidate's
// reason where none takes it.
template <class Candidate = KernelCandidate>
std::unique_ptr<OperatorBase> CreateSelected(const OperatorDef& def, Workspace* ws,
                                             std::span<const TensorInfo> inputs,
                                             std::span<const TensorInfo> outputs,
                                             int net_position = -1, Candidate* chosen = nullptr) {
  std::string refused;
  for (Candidate& candidate : KernelCandidates<Candidate>(def, inputs, outputs)) {
    if (candidate.dropped.empty()) {
      try {
        auto op = CreateOperator(def, ws,
                                 {.kernel = candidate.kernel,
                                  .config = &candidate.config,
                                  .net_position = net_position});
        if (chosen) *chosen = std::move(candidate);
        return op;
      } catch (const UnsupportedOperatorFeature& error) {
        candidate.dropped = error.message();
      }
    }
    refused += StrCat("\n  backend ", candidate.kernel->backend, ": ", candidate.dropped);
  }
  detail::ThrowNoKernel(def, refused);
}

}  // namespace opkit

#endif  // OPKIT_OP_KERNEL_CANDIDATES_HPP_

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
// while the inputs' dtypes and shapes stay the same, so is inference. Where the operator has a
// kernel of a ranked backend, new dtypes or shapes also select anew, which makes another operator.
// Nothing of the caller's is held between calls. A call returns when the work is done. Not
// synchronised: one thread at a time.
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
            " outputs; say how many with InvokeOptions::num_outputs",
            schema_->has_arity_function()
                ? ", or once for all in its parseAttrs (REGISTER_OP(…).setParseAttrs(f))"
                : "");
    for (int i = 0; i < num_outputs; ++i) def_.Output(StrCat("output ", i));
    SetOperator(CreateOperator(def_, workspace_.get()));
    for (const Kernel* kernel : OpRegistry::Global().FindKernels(op, def_.device().type))
      selects_ |= OpRegistry::Global().BackendRank(kernel->backend) > 0;
    if (selects_) selected_for_.resize(inputs_.size());
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
    if (selects_ && !IsSelected()) [[unlikely]]
      Select();
    if (checks_shapes_ && !op_->inference().IsFresh(inputs_)) [[unlikely]] {
      op_->inference().Infer(
          def_, inputs_, [this](InferenceContext& context) { schema_->Infer(context); }, [] {});
      op_->inference().Keep();
    }
    for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o]->GetMutable<Tensor>() = outputs[o];
    op_->Run();
    for (const Blob* output : outputs_)
      if (!output->IsType<Tensor>()) [[unlikely]]
        Throw(ErrorCode::kTypeMismatch, "'", output->name(), "' of operator ", def_.type(),
              " is not a tensor; run it in a workspace to get it");
    for (const Blob* output : outputs_)
      if (!output->Get<Tensor>().initialized()) [[unlikely]]
        Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
              output->name(), "'; get it with Output(i, shape, dtype) and write to it");
    for (size_t o = 0; o < outputs.size(); ++o)
      outputs[o] = std::move(*outputs_[o]->GetMutable<Tensor>());
  }

  // The one in use. Where kernels are selected, a call with new dtypes or shapes replaces it, and
  // with it its observers.
  OperatorBase& op() { return *op_; }

 private:
  static std::vector<bool> AllPresent(const std::string& op, int num_inputs) {
    if (num_inputs < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " cannot have ", num_inputs, " inputs");
    return std::vector<bool>(static_cast<size_t>(num_inputs), true);
  }
  void SetOperator(std::unique_ptr<Base> op) {
    op_ = std::move(op);
    checks_shapes_ = schema_->has_inference() && !op_->InfersOutputs();
  }
  // What the operator was selected for, by input.
  struct Selected {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  bool IsSelected() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && (inputs_[i]->dtype() != selected_for_[i].dtype ||
                         inputs_[i]->shape() != selected_for_[i].shape))
        return false;
    return true;
  }
  // The first candidate that takes the inputs as they are now.
  OPKIT_COLD void Select() {
    std::vector<TensorInfo> infos;
    for (const Tensor* input : inputs_)
      infos.push_back(input && input->initialized() ? TensorInfo::Of(*input) : TensorInfo());
    const std::vector<TensorInfo> outputs = schema_->InferOutputs(def_, infos);
    SetOperator(CreateSelected(def_, workspace_.get(), infos, outputs));
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i]) selected_for_[i] = {inputs_[i]->dtype(), inputs_[i]->shape()};
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
  bool checks_shapes_ = false;  // before the run, for an operator that does not
  bool selects_ = false;        // some kernel's place depends on the inputs
  std::vector<Selected> selected_for_;
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
  // Views memory that outlives it; `shape` and `strides` (in elements) too.
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : OpTensor(data, dtype, shape.data(), strides.data(), static_cast<int>(shape.size()), device,
                 req) {}
  OpTensor(void* data, DType dtype, const int64_t* shape, const int64_t* strides, int rank,
           Device device = {}, OpReq req = OpReq::kWrite)
      : data_(data),
        dims_(shape),
        strides_(strides),
        rank_(rank),
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

  // Templates, so that the first std::span, a dear one, is made by who asks for it.
  template <class Extents = std::span<const int64_t>>
  Extents shape() const {
    return Extents(dims_, static_cast<size_t>(rank_));
  }
  // In elements.
  template <class Extents = std::span<const int64_t>>
  Extents strides() const {
    return Extents(strides_, static_cast<size_t>(rank_));
  }
  int64_t stride(int axis) const { return strides_[axis < 0 ? axis + rank_ : axis]; }
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
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
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
    last += view.dim(i) > 0 ? (view.dim(i) - 1) * view.stride(i) : 0;
  return Tensor(AdoptStorage(MemoryDevice(view.device()), view.raw_data(),
                             (last + 1) * ItemSize(view.dtype())),
                0, Shape(view.shape()), view.dtype(), Dims(view.strides()));
}

// Runs into `wanted`'s memory: an operator that could not use it has its result copied there.
template <class Resolved>
void RunInto(Resolved& resolved, std::string_view op, const std::vector<Tensor>& inputs,
             const std::vector<Tensor>& wanted) {
  std::vector<Tensor> results(wanted);
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
  void* scratch() const { return state_->scratch; }
  int64_t scratch_bytes() const { return state_->scratch_bytes; }

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
  Operator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : OperatorBase(def, ws, config), context_(def.device()) {}

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
    if constexpr (Context::kAsynchronous) TouchedStorages(event().state()->retained);
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
      if constexpr (HostContext<Context>)
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
      } else if constexpr (HostContext<Context>) {
        RefCountedList kept;  // until the stream has come past this run
        TouchedStorages(kept);
        context_.Launch([kept = std::move(kept)] {});
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
    detail::EventState* state = event().state().get();  // it holds the callback
    TouchedStorages(state->retained);
    event().SetCallback([state] {
      bool cancelled = false;
      try {
        if (state->status() == EventStatus::kFailed) std::rethrow_exception(state->exception());
      } catch (const Error& error) {
        cancelled = error.code() == ErrorCode::kCancelled;
      } catch (...) {
      }
      if (!cancelled) state->retained.clear();
    });
  }
  // In a catch block.
  [[noreturn]] OPKIT_COLD void Fail(bool complete_event) {
    if constexpr (Context::kAsynchronous) RetainUntilDrained();
    try {
      RethrowWithContext();
    } catch (...) {
      if (complete_event) {
        const auto state = event().state();  // a callback may Reset the event
        state->Complete(std::current_exception());
      }
      throw;
    }
  }
  // After a failure some work may be in flight: its memory stays until the stream has come past it.
  void RetainUntilDrained() noexcept {
    try {
      Event drained(device());
      TouchedStorages(drained.state()->retained);
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
  using ::opkit::OperatorBase::Scratch;                                                            \
  using ::opkit::OperatorBase::SetOutputTensor;                                                    \
  using ::opkit::OperatorBase::XOutput;                                                            \
  using ::opkit::OperatorBase::config;                                                             \
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
        pointers_(inputs_.size()),
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
    BindInputs();
    if (!op_.inference().IsFresh(pointers_)) [[unlikely]]
      Infer();
    if (inferred_ != op_.inference().version()) [[unlikely]]
      MeasureScratch();
    resource_.scratch = op_.Scratch(resource_.scratch_bytes);
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

  void BindInputs() {
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
      pointers_[i] = &tensor;
      inputs_[i].Bind(*readable, OpReq::kWrite);
      input_views_[i] = inputs_[i].view;
    }
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

  OPKIT_COLD void Infer() {
    auto infer = [this](InferenceContext& context) {
      InferFunction(*record_, attrs_, pass_, context);
      if (!record_->infer_shape && pass_ == FunctionPass::kForward) return;
      for (int o = 0; o < context.num_outputs(); ++o)
        if (const SymbolicShape& shape = context.output(o).shape;
            !shape.is_known() && op_.HasOutput(o))
          Throw(ErrorCode::kInvalidArgument, "inferShape of operator ", record_->name,
                " leaves output ", o, " unknown: ", ToString(shape));
    };
    op_.inference().Infer(op_.def(), pointers_, infer, [] {});
    op_.inference().Keep();
  }
  OPKIT_COLD void MeasureScratch() {
    std::vector<TensorInfo> inputs;
    for (const Tensor* input : pointers_)
      inputs.push_back(input ? TensorInfo::Of(*input) : TensorInfo());
    if (pass_ == FunctionPass::kForward)
      resource_.scratch_bytes = FunctionScratch(*record_, attrs_, inputs);
    inferred_ = op_.inference().version();
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
    const auto& info = op_.inference().outputs()[static_cast<size_t>(output)];
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
    if (!functions_.create_state) {
      auto call = [&](auto& f) { return f(attrs_, input_views_, output_views_, resource); };
      return call(pass_ == FunctionPass::kForward ? functions_.forward : functions_.backward);
    }
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

  OperatorBase& op_;
  IntrusivePtr<Record> record_;
  FunctionPass pass_;
  FunctionDevice& functions_;
  AttrMap attrs_;
  std::vector<TensorSlot> inputs_, outputs_;
  std::vector<Tensor> dense_;            // copies of strided inputs
  std::vector<const Tensor*> pointers_;  // the inputs of the run in progress; null where left out
  std::vector<Tensor> sums_;             // results that are to be added to an output
  std::vector<std::pair<size_t, Tensor>> targets_;
  std::vector<OpReq> reqs_;
  std::vector<bool> mutated_;
  std::vector<OpTensor> input_views_, output_views_;
  ResourceState resource_;
  FunctionStatePtr state_;
  uint64_t random_epoch_ = 0;
  uint64_t inferred_ = 0;  // the version of inference that scratch was measured for
  bool owns_state_ = false;
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
    taken_.emplace(name, 1);
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
    const auto known = taken_.find(name);
    while (taken_.count(name)) name = StrCat(value, suffix, "_", known->second++);
    taken_.emplace(name, 1);
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
  std::map<Text, int> taken_;  // the number to try next, so that many uses of a value stay cheap
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
  if constexpr (kTakesConfig<Op>) {
    return std::make_unique<Op>(def, ws, config);
  } else {
    return std::make_unique<Op>(def, ws);
  }
}

// Static initialisers must not throw: a failure to register (no memory) shows as a missing kernel.
inline bool RegisterKernel(const char* op, DeviceType device, const char* backend,
                           RegistrationPriority priority, const char* file, int line,
                           OperatorCreator create, KernelProposer propose = {}) noexcept {
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
    kernel.propose = std::move(propose);
    OpRegistry::Global().AddKernel(std::move(kernel));
    return true;
  } catch (...) {
    return false;
  }
}

inline bool RegisterBackendRank(const char* backend, int rank) noexcept {
  try {
    OpRegistry::Global().SetBackendRank(backend, rank);
    return true;
  } catch (...) {
    return false;
  }
}

template <class Op>
bool RegisterClass(const char* op, DeviceType device, const char* backend,
                   RegistrationPriority priority, const char* file, int line) noexcept {
  KernelProposer propose;
  if constexpr (requires { KernelProposer(&Op::Propose); }) propose = &Op::Propose;
  return RegisterKernel(op, device, backend, priority, file, line, &CreateClass<Op>,
                        std::move(propose));
}

template <template <class...> class Op>
bool RegisterClass(const char*, DeviceType, const char*, RegistrationPriority, const char*, int) {
  static_assert(std::is_void_v<Op<CPUContext>>,
                "REGISTER_*_OPERATOR(name, Class): Class is a class template; write its context as "
                "well, such as Class<CPUContext>");
  return false;
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
// A class that can run a node in several ways says so in a static function, and takes the one that
// was chosen as a third argument of its constructor, or reads config():
//   static std::vector<KernelConfig> Propose(const KernelQuery& query);
//   ConvOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
//       : Operator<Context>(def, ws, config) {}           // null where nobody chose
#define OPKIT_REGISTER_OPERATOR(device, name, backend, priority, ...)                \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)(); \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                   \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                  \
       ::opkit::detail::RegisterClass<__VA_ARGS__>(                                  \
           #name, device, backend, ::opkit::RegistrationPriority::priority, __FILE__, __LINE__))
// By string, for names that are not identifiers and for kernels of another binary's operator: a
// missing schema is then found at the first lookup.
#define OPKIT_REGISTER_OPERATOR_STR(device, string, backend, ...)  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) = \
      ::opkit::detail::RegisterClass<__VA_ARGS__>(                 \
          string, device, backend, ::opkit::RegistrationPriority::kDefault, __FILE__, __LINE__)
// How selection orders the kernels of a backend that nobody asks for by name: higher ranks first,
// "reference" has 0. OPKIT_REGISTER_BACKEND_RANK("eigen", 100);
#define OPKIT_REGISTER_BACKEND_RANK(backend, rank)               \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_rank_) = \
      ::opkit::detail::RegisterBackendRank(backend, rank)
// By a function (const OperatorDef&, Workspace*) -> std::unique_ptr<OperatorBase>, which may take a
// const KernelConfig* as well.
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
    if constexpr (NativeStreamContext<Context>) {
      link.stream = this->context_.native_stream();
    } else if constexpr (StreamContext<Context>) {
      link.stream = &this->context_.stream();
    }
    if constexpr (HostContext<Context>) {
      link.launch = [](void* context, UniqueFunction<void()> work) {
        static_cast<Context*>(context)->Launch(std::move(work));
      };
    }
    body_.Run(link);
    return true;
  }
  bool InfersOutputs() const override { return true; }
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
  if constexpr (kHasVersion<Function, CPUContext, float, float, float>) {
    // No template: a compiler that goes on after saying so takes any arguments.
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
  const InferenceCache::Output* outputs;
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
        Tensor* out = op.Output(kRow.place, run.outputs[kRow.place].shape, kDTypeOf<T>);
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
              "', which is not optional",
              IsInput(row.kind) ? "; an Invoke leaves out a tensor that has no dtype yet" : "");
    }
  }

  bool InfersOutputs() const final { return true; }

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
    if (!this->inference().IsFresh(inputs_)) [[unlikely]]
      InferShapes();
    if (strided) [[unlikely]]
      return RunOnDenseCopies(call);
    return call(Bound());
  }
  DType input_dtype(int i) const { return inputs_[static_cast<size_t>(i)]->dtype(); }
  [[noreturn]] OPKIT_COLD void NoVersionFor(int i, std::initializer_list<DType> versions) const {
    std::vector<std::string> names;
    for (DType dtype : versions) names.push_back(ToString(dtype));
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("input ", i, " '", schema_->inputs()[static_cast<size_t>(i)].name, "' of ",
                       this->type(), " is ", input_dtype(i), ", but its kernel for ",
                       this->device(), " is compiled for ", names, "; add it to .Kernel<>"),
                inputs_[static_cast<size_t>(i)]);
  }

 private:
  TypedRun Bound() {
    const InferenceCache& inferred = this->inference();
    return {inputs_.data(), inferred.outputs().data(), inferred.version()};
  }

  OPKIT_COLD void InferShapes() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && !inputs_[i]->initialized())
        throw Error(ErrorCode::kUninitialized,
                    StrCat("input ", i, " of ", ToString(this->def()),
                           " is read before anything was written to it"),
                    inputs_[i]);
    auto infer = [this](InferenceContext& context) {
      schema_->Infer(context);
      for (size_t o = 0; o < context.outputs().size(); ++o)
        if (const SymbolicShape& shape = context.outputs()[o].shape; !shape.is_known())
          Throw(ErrorCode::kInvalidArgument, "the shape of output ", o, " '",
                schema_->outputs()[o].name, "' of ", ToString(this->def()),
                " does not follow from its inputs: its shape rule says ", ToString(shape));
    };
    this->inference().Infer(this->def(), inputs_, infer, [this] { this->WaitForInputs(); });
    this->inference().Keep();
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
    } else if constexpr (HostContext<Context> || NativeStreamContext<Context>) {
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
        constexpr int kInput = ElementInput<Function>();
        const DType dtype = this->input_dtype(kInput);
        if (!((dtype == kDTypeOf<Types>) || ...)) [[unlikely]]
          this->NoVersionFor(kInput, {kDTypeOf<Types>...});
        return DispatchDType<Types...>(dtype, [&]<class T>() {
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

// Shared by the builder and the schema's functions. A template over OpSchema, so that programs
// without typed operators do not compile it.
template <class Schema>
class BasicTypedSchema final : public RefCounted {
 public:
  OPKIT_COLD static IntrusivePtr<BasicTypedSchema> Make(const char* name, const char* file,
                                                        int line,
                                                        std::span<const TypedParameter> rows) {
    auto typed = MakeIntrusive<BasicTypedSchema>(
        OpRegistry::Global().AddSchema(name, file, line, Signature(rows)), rows);
    typed->schema.AllowInplace([typed](int in, int out) { return typed->CanInplace(in, out); })
        .TensorInferenceFunction([typed](InferenceContext& context) { typed->Infer(context); });
    return typed;
  }
  OPKIT_COLD BasicTypedSchema(Schema& filled, std::span<const TypedParameter> rows)
      : schema(filled) {
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

  Schema& schema;
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

using TypedSchema = BasicTypedSchema<OpSchema>;
using TypedSchemaPtr = IntrusivePtr<TypedSchema>;

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

// ---- opkit/base/name_index.hpp
// NameIndex: numbers for names, in the order they were added. Graphs name their values and nodes;
// everything that walks a graph works on these numbers.
#ifndef OPKIT_BASE_NAME_INDEX_HPP_
#define OPKIT_BASE_NAME_INDEX_HPP_

namespace opkit::inline OPKIT_ABI {

// An open-addressing hash table (linear probing, at most half full). Adding and finding is O(1);
// names are never removed. Not synchronised.
class NameIndex {
 public:
  // -1 when the name was never added.
  int Find(std::string_view name) const {
    if (slots_.empty()) return -1;
    return slots_[Slot(name)];
  }
  // The number of the name, a new one when it has none.
  int Add(std::string_view name) {
    if (names_.size() * 2 >= slots_.size()) Grow();
    int& number = slots_[Slot(name)];
    if (number < 0) {
      number = size();
      names_.emplace_back(name);
    }
    return number;
  }
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& operator[](int number) const { return names_[static_cast<size_t>(number)]; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  // Where the name is, or the empty slot where it would go.
  size_t Slot(std::string_view name) const {
    const size_t mask = slots_.size() - 1;
    size_t at = std::hash<std::string_view>()(name) & mask;
    while (slots_[at] >= 0 && names_[static_cast<size_t>(slots_[at])] != name) at = (at + 1) & mask;
    return at;
  }
  void Grow() {
    slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, -1);
    for (int i = 0; i < size(); ++i) slots_[Slot(names_[static_cast<size_t>(i)])] = i;
  }

  std::vector<std::string> names_;
  std::vector<int> slots_;  // numbers, -1 where empty; a power of two of them
};

}  // namespace opkit

#endif  // OPKIT_BASE_NAME_INDEX_HPP_

// ---- opkit/graph/graph.hpp
// Graph: operator definitions over named values, with inputs, constants and outputs. Plain data
// that is built, loaded and rewritten by passes; Compile makes a plan of it, which runs.
#ifndef OPKIT_GRAPH_GRAPH_HPP_
#define OPKIT_GRAPH_GRAPH_HPP_

namespace opkit::inline OPKIT_ABI {

struct GraphInput {
  std::string name;
  TensorInfo info;  // dtype, shape (symbols and unknown extents allowed) and device
};

struct GraphConstant {
  std::string name;
  Tensor value;
};

// Where a value comes from.
enum class ValueSource : uint8_t { kInput, kConstant, kNode };

// A regular value. Every name is made once: by an input, a constant or a node; a node that writes
// one of its own inputs by the same name rewrites it, and then the order in which nodes were added
// says who reads it before and after. Otherwise nodes may be added in any order. A member that
// throws leaves the graph as it was.
//
//   Graph g;
//   g.AddInput("X", DType::kFloat32, {Sym("N"), 3});
//   g.AddConstant("W", weights);
//   g.AddNode(OperatorDef("MatMul").Input("X").Input("W").Output("Y"));
//   g.AddOutput("Y");
//
// A template over its own parts, as nearly everything in this folder is a template: a program
// compiles what it uses. Types that depend on a parameter cost a program nothing that has no use
// for them; that is why `const auto&` stands where the type is known.
template <class InputType, class ConstantType, class DefType>
class BasicGraph {
 public:
  using Input = InputType;
  using Constant = ConstantType;
  using Def = DefType;

  // Error (kAlreadyExists) for a name that is made already, kInvalidArgument for an empty one.
  BasicGraph& AddInput(std::string name, DType dtype, SymbolicShape shape, Device device = {}) {
    Declare(name, ValueSource::kInput, inputs_.size());
    Input input{std::move(name), TensorInfo(dtype, std::move(shape))};
    input.info.device = device;
    inputs_.push_back(std::move(input));
    return *this;
  }
  BasicGraph& AddConstant(std::string name, Tensor value) {
    if (!value.initialized())
      Throw(ErrorCode::kInvalidArgument, "constant '", name, "' has no data; fill it first");
    Declare(name, ValueSource::kConstant, constants_.size());
    constants_.push_back({std::move(name), std::move(value)});
    return *this;
  }
  // Returns the node's index. What it reads and what its operator says of it is checked when the
  // graph is whole: Check(graph), or Compile.
  int AddNode(Def def) { return InsertNode(num_nodes(), std::move(def)); }
  // A value that a run returns; it may be made later. Error (kAlreadyExists) when it is one
  // already.
  BasicGraph& AddOutput(std::string name) {
    if (name.empty()) Throw(ErrorCode::kInvalidArgument, "an output of a graph needs a name");
    if (IsOutput(name))
      Throw(ErrorCode::kAlreadyExists, "'", name, "' is an output of the graph already");
    outputs_.push_back(std::move(name));
    return *this;
  }

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<Def>& nodes() const { return nodes_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Error (kOutOfRange) for an index that the graph does not have.
  const Def& node(int i) const { return nodes_[CheckIndex(i)]; }
  bool IsOutput(std::string_view name) const {
    for (const std::string& output : outputs_)
      if (output == name) return true;
    return false;
  }
  // Made by an input, a constant or a node.
  bool HasValue(std::string_view name) const { return Find(name) != nullptr; }
  bool IsInput(std::string_view name) const { return Is(name, ValueSource::kInput); }
  bool IsConstant(std::string_view name) const { return Is(name, ValueSource::kConstant); }
  // The node that makes the value; -1 for inputs, constants and unknown names.
  int Producer(std::string_view name) const {
    const Declaration* found = Find(name);
    return found && found->source == ValueSource::kNode ? found->index : -1;
  }
  // Null when there is none of that name.
  const Tensor* FindConstant(std::string_view name) const {
    return IsConstant(name) ? &constants_[static_cast<size_t>(Find(name)->index)].value : nullptr;
  }
  const Input* FindInput(std::string_view name) const {
    return IsInput(name) ? &inputs_[static_cast<size_t>(Find(name)->index)] : nullptr;
  }
  // A name that no value has: `hint` itself, or with a number behind it.
  std::string FreshName(const std::string& hint) const {
    std::string name = hint;
    for (int n = 1; HasValue(name) || IsOutput(name); ++n) name = StrCat(hint, "_", n);
    return name;
  }

  // Rewriting. Indices of nodes at and behind the place shift. Each call is O(nodes), but for
  // adding at the end; RemoveNodes takes many at once.
  int InsertNode(int before, Def def) {
    if (before < 0 || before > num_nodes())
      Throw(ErrorCode::kOutOfRange, "cannot insert a node before ", before, " of ", num_nodes());
    if (def.type().empty()) Throw(ErrorCode::kInvalidArgument, "a node needs an operator");
    CheckOutputs(def, -1);
    nodes_.insert(nodes_.begin() + before, std::move(def));
    if (before + 1 == num_nodes()) {
      DeclareOutputs(before);
    } else {
      Index();
    }
    return before;
  }
  void ReplaceNode(int i, Def def) {
    CheckIndex(i);
    CheckOutputs(def, i);
    nodes_[static_cast<size_t>(i)] = std::move(def);
    Index();
  }
  void RemoveNode(int i) {
    std::vector<char> removed(nodes_.size(), 0);
    removed[CheckIndex(i)] = 1;
    RemoveNodes(removed);
  }
  // Removes node i where removed[i] is not 0.
  void RemoveNodes(const std::vector<char>& removed) {
    if (removed.size() != nodes_.size())
      Throw(ErrorCode::kInvalidArgument, "RemoveNodes needs a flag for each of ", num_nodes(),
            " nodes, found ", removed.size());
    std::vector<Def> kept;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!removed[i]) kept.push_back(std::move(nodes_[i]));
    nodes_ = std::move(kept);
    Index();
  }
  // Every node that read `from` now reads `to`. Outputs of the graph keep their names.
  void ReplaceUses(const std::string& from, const std::string& to) {
    for (Def& def : nodes_)
      for (std::string& input : def.mutable_inputs())
        if (input == from) input = to;
  }
  // False when there is none of that name.
  bool RemoveConstant(std::string_view name) {
    if (!IsConstant(name)) return false;
    constants_.erase(constants_.begin() + Find(name)->index);
    Index();
    return true;
  }
  bool RemoveOutput(std::string_view name) {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i] == name) {
        outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      }
    return false;
  }

 private:
  struct Declaration {
    ValueSource source = ValueSource::kInput;
    int index = -1;  // among the inputs, constants or nodes; -1: the name is not made now
  };

  size_t CheckIndex(int i) const {
    if (i < 0 || i >= num_nodes())
      Throw(ErrorCode::kOutOfRange, "node ", i, " of a graph that has ", num_nodes());
    return static_cast<size_t>(i);
  }
  const Declaration* Find(std::string_view name) const {
    const int number = names_.Find(name);
    if (number < 0 || declared_[static_cast<size_t>(number)].index < 0) return nullptr;
    return &declared_[static_cast<size_t>(number)];
  }
  bool Is(std::string_view name, ValueSource source) const {
    const Declaration* found = Find(name);
    return found && found->source == source;
  }
  void Declare(const std::string& name, ValueSource source, size_t index) {
    if (name.empty())
      Throw(ErrorCode::kInvalidArgument, source == ValueSource::kInput ? "an input" : "a constant",
            " of a graph needs a name");
    if (const Declaration* found = Find(name)) ThrowMadeTwice(name, *found, "");
    Set(name, {source, static_cast<int>(index)});
  }
  void Set(const std::string& name, Declaration declaration) {
    const auto number = static_cast<size_t>(names_.Add(name));
    if (number >= declared_.size()) declared_.resize(number + 1);
    declared_[number] = declaration;
  }
  // Of a node that is about to take the place of node `replaced` (-1: none).
  void CheckOutputs(const Def& def, int replaced) const {
    for (size_t o = 0; o < def.outputs().size(); ++o) {
      const std::string& name = def.outputs()[o];
      if (name.empty()) continue;
      for (size_t other = 0; other < o; ++other)
        if (def.outputs()[other] == name)
          Throw(ErrorCode::kAlreadyExists, "node ", ToString(def), " makes '", name, "' twice");
      const Declaration* found = Find(name);
      if (!found || Rewrites(def, name)) continue;
      if (found->source == ValueSource::kNode && found->index == replaced) continue;
      ThrowMadeTwice(name, *found, ToString(def));
    }
  }
  static bool Rewrites(const Def& def, const std::string& name) {
    for (const std::string& input : def.inputs())
      if (input == name) return true;
    return false;
  }
  [[noreturn]] OPKIT_COLD void ThrowMadeTwice(const std::string& name, const Declaration& first,
                                              const std::string& second) const {
    Throw(ErrorCode::kAlreadyExists, "value '", name, "' is made ",
          first.source == ValueSource::kInput ? "by an input of the graph"
          : first.source == ValueSource::kConstant
              ? "by a constant"
              : "by node " + ToString(nodes_[static_cast<size_t>(first.index)]),
          " already", second.empty() ? "" : " and again by node " + second,
          "; give one of them another name");
  }
  void DeclareOutputs(int node) {
    const Def& def = nodes_[static_cast<size_t>(node)];
    for (const std::string& name : def.outputs())
      if (!name.empty() && !Rewrites(def, name)) Set(name, {ValueSource::kNode, node});
  }
  void Index() {
    names_ = NameIndex();
    declared_.clear();
    for (size_t i = 0; i < inputs_.size(); ++i)
      Set(inputs_[i].name, {ValueSource::kInput, static_cast<int>(i)});
    for (size_t i = 0; i < constants_.size(); ++i)
      Set(constants_[i].name, {ValueSource::kConstant, static_cast<int>(i)});
    for (int i = 0; i < num_nodes(); ++i) DeclareOutputs(i);
  }

  std::vector<Input> inputs_;
  std::vector<Constant> constants_;
  std::vector<Def> nodes_;
  std::vector<std::string> outputs_;
  NameIndex names_;
  std::vector<Declaration> declared_;  // by the number in `names_`
};
using Graph = BasicGraph<GraphInput, GraphConstant, OperatorDef>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_HPP_

// ---- opkit/graph/graph_view.hpp
// GraphView: who makes and who reads each value, which node waits for which, and in what order they
// can run: a snapshot of a graph as numbers, which inference, passes and plans walk.
#ifndef OPKIT_GRAPH_GRAPH_VIEW_HPP_
#define OPKIT_GRAPH_GRAPH_VIEW_HPP_

namespace opkit::inline OPKIT_ABI {

// Values and nodes are numbers; nodes have the graph's indices. The graph must outlive the view and
// not change meanwhile.
template <class G>
class BasicGraphView {
 public:
  struct Edge {
    int from;  // runs before
    int to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  // A node writes a value that is made elsewhere.
  struct Rewrite {
    int value;
    int node;
  };

  // Checks the structure. Errors: kNotFound for a value that is read and never made, or a control
  // input that is no node; kInvalidArgument for a cycle, shown as a path.
  explicit BasicGraphView(const G& graph) : graph_(&graph) {
    for (const auto& input : graph.inputs()) names_.Add(input.name);
    for (const auto& constant : graph.constants()) names_.Add(constant.name);
    for (const auto& def : graph.nodes())
      for (const std::string& name : def.outputs())
        if (!name.empty()) names_.Add(name);
    producers_.assign(static_cast<size_t>(num_values()), -1);
    is_output_.assign(producers_.size(), 0);
    for (int i = 0; i < graph.num_nodes(); ++i) AddNode(i);
    offsets_.push_back(static_cast<int>(values_.size()));
    for (const auto& rewrite : rewrites_)
      if (!IsInput(rewrite.value) && !IsConstant(rewrite.value) && producer(rewrite.value) < 0)
        Throw(ErrorCode::kNotFound, "node ", ToString(graph.node(rewrite.node)), " rewrites '",
              name(rewrite.value), "', which no input, constant or other node makes");
    for (const std::string& name : graph.outputs()) {
      if (FindValue(name) < 0)
        Throw(ErrorCode::kNotFound, "output '", name,
              "' of the graph is made by no input, constant or node",
              SuggestName(name, names_.names()));
      outputs_.push_back(FindValue(name));
      is_output_[static_cast<size_t>(outputs_.back())] = 1;
    }
    IndexConsumers();
    CollectEdges();
    Sort();
  }

  const G& graph() const { return *graph_; }
  int num_nodes() const { return graph_->num_nodes(); }
  // Inputs of the graph come first, then constants, then what nodes make.
  int num_values() const { return names_.size(); }
  const std::string& name(int value) const { return names_[value]; }
  // -1 when there is none.
  int FindValue(std::string_view name) const { return names_.Find(name); }
  bool IsInput(int value) const { return value < num_inputs(); }
  bool IsConstant(int value) const {
    return value >= num_inputs() && value < num_inputs() + num_constants();
  }
  const Tensor* constant(int value) const {
    if (!IsConstant(value)) return nullptr;
    return &graph_->constants()[static_cast<size_t>(value - num_inputs())].value;
  }
  bool IsOutput(int value) const { return is_output_[static_cast<size_t>(value)] != 0; }
  const std::vector<int>& outputs() const { return outputs_; }

  // Values of a node, -1 where it leaves one out.
  std::span<const int> inputs(int node) const {
    return {values_.data() + offsets_[static_cast<size_t>(node)],
            graph_->node(node).inputs().size()};
  }
  std::span<const int> outputs(int node) const {
    return {
        values_.data() + offsets_[static_cast<size_t>(node)] + graph_->node(node).inputs().size(),
        graph_->node(node).outputs().size()};
  }
  // The node that makes a value; -1 for inputs and constants.
  int producer(int value) const { return producers_[static_cast<size_t>(value)]; }
  // Nodes that read it, each once, by index.
  std::span<const int> consumers(int value) const {
    const auto at = static_cast<size_t>(value);
    return {consumers_.data() + first_consumer_[at],
            static_cast<size_t>(first_consumer_[at + 1] - first_consumer_[at])};
  }
  // True when some node writes a value that is made elsewhere.
  bool IsRewritten(int value) const {
    for (const Rewrite& rewrite : rewrites_)
      if (rewrite.value == value) return true;
    return false;
  }
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }

  // From every node to those that must wait for it: it makes what they read, or reads what they
  // rewrite, or they name it as control input. Sorted, each once.
  const std::vector<Edge>& edges() const { return edges_; }  // by the node they lead to
  // Those that lead to a node, at edges()[first] and behind.
  size_t FirstEdgeTo(int node) const {
    size_t first = 0;
    for (size_t count = edges_.size(); count > 0;) {
      const size_t half = count / 2;
      const bool before = edges_[first + half].to < node;
      first += before ? half + 1 : 0;
      count = before ? count - half - 1 : half;
    }
    return first;
  }
  // Nodes so that each comes after those it waits for; as they were added where that allows it.
  const std::vector<int>& order() const { return order_; }

 private:
  int num_inputs() const { return static_cast<int>(graph_->inputs().size()); }
  int num_constants() const { return static_cast<int>(graph_->constants().size()); }

  void AddNode(int node) {
    const auto& def = graph_->node(node);
    offsets_.push_back(static_cast<int>(values_.size()));
    for (const std::string& name : def.inputs()) {
      const int value = name.empty() ? -1 : FindValue(name);
      if (!name.empty() && value < 0)
        Throw(ErrorCode::kNotFound, "node ", ToString(def), " reads '", name,
              "', which no input, constant or node makes", SuggestName(name, names_.names()));
      values_.push_back(value);
    }
    for (const std::string& name : def.outputs()) {
      const int value = name.empty() ? -1 : FindValue(name);
      values_.push_back(value);
      if (value < 0) continue;
      if (graph_->Producer(name) == node) {
        producers_[static_cast<size_t>(value)] = node;
      } else {
        rewrites_.push_back({value, node});
      }
    }
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    if (!schema) return;
    for (int i : schema->MutatedInputs(def.args()))
      if (i >= 0 && static_cast<size_t>(i) < def.inputs().size() &&
          !def.inputs()[static_cast<size_t>(i)].empty())
        rewrites_.push_back({FindValue(def.inputs()[static_cast<size_t>(i)]), node});
  }

  // Counting sort of (value, node) pairs by value.
  void IndexConsumers() {
    first_consumer_.assign(static_cast<size_t>(num_values()) + 1, 0);
    ForEachUse([&](int value, int) { ++first_consumer_[static_cast<size_t>(value) + 1]; });
    for (size_t v = 1; v < first_consumer_.size(); ++v)
      first_consumer_[v] += first_consumer_[v - 1];
    consumers_.resize(static_cast<size_t>(first_consumer_.back()));
    std::vector<int> next(first_consumer_);
    ForEachUse([&](int value, int node) {
      consumers_[static_cast<size_t>(next[static_cast<size_t>(value)]++)] = node;
    });
  }
  template <class F>
  void ForEachUse(F&& f) const {
    for (int node = 0; node < num_nodes(); ++node) {
      const auto ins = inputs(node);
      for (size_t i = 0; i < ins.size(); ++i) {
        bool seen = ins[i] < 0;
        for (size_t k = 0; k < i && !seen; ++k) seen = ins[k] == ins[i];
        if (!seen) f(ins[i], node);
      }
    }
  }

  template <class Lists = std::vector<std::vector<int>>>
  void CollectEdges() {
    Lists before(static_cast<size_t>(num_nodes()));  // by node
    auto add = [&](int from, int to) {
      if (from >= 0 && from != to) before[static_cast<size_t>(to)].push_back(from);
    };
    NodeNames names;
    for (int node = 0; node < num_nodes(); ++node) {
      for (int value : inputs(node))
        if (value >= 0) add(producer(value), node);
      for (const std::string& name : graph_->node(node).control_inputs()) {
        const int from = FindNode(names, name);
        if (from < 0)
          Throw(ErrorCode::kNotFound, "node ", ToString(graph_->node(node)),
                " has the control input '", name, "', but no node has that name");
        if (from == node) ThrowCycle({node});
        add(from, node);
      }
    }
    // Of a value that is rewritten, every access waits for the last writer before it, and every
    // writer for the readers since then.
    for (const Rewrite& rewrite : rewrites_) {
      if (IsConstant(rewrite.value))
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(graph_->node(rewrite.node)),
              " writes to '", name(rewrite.value),
              "', which is a constant; make it an input of the graph");
      int writer = producer(rewrite.value);
      if (writer > rewrite.node)
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(graph_->node(rewrite.node)),
              " rewrites '", name(rewrite.value), "' and was added before the node that makes it");
      for (const Rewrite& other : rewrites_)
        if (other.value == rewrite.value && other.node < rewrite.node && other.node > writer)
          writer = other.node;
      add(writer, rewrite.node);
      for (int reader : consumers(rewrite.value)) {
        if (reader > rewrite.node) add(rewrite.node, reader);
        const bool reads_this = reader > writer || writer == producer(rewrite.value);
        if (reader < rewrite.node && reads_this) add(reader, rewrite.node);
      }
    }
    for (int node = 0; node < num_nodes(); ++node) {
      auto& list = before[static_cast<size_t>(node)];
      for (size_t i = 1; i < list.size(); ++i)  // insertion sort: the lists are short
        for (size_t k = i; k > 0 && list[k] < list[k - 1]; --k) std::swap(list[k], list[k - 1]);
      for (size_t i = 0; i < list.size(); ++i)
        if (i == 0 || list[i] != list[i - 1]) edges_.push_back({list[i], node});
    }
  }
  // The names of nodes, filled when the first is looked for.
  struct NodeNames {
    NameIndex index;
    std::vector<int> first, second;  // nodes of that name, the second -1 where there is one
  };
  int FindNode(NodeNames& names, const std::string& name) const {
    const bool filled = names.index.size() > 0;
    for (int node = 0; !filled && node < num_nodes(); ++node) {
      const auto number = static_cast<size_t>(names.index.Add(graph_->node(node).name()));
      if (number == names.first.size()) {
        names.first.push_back(node);
        names.second.push_back(-1);
      } else if (names.second[number] < 0) {
        names.second[number] = node;
      }
    }
    const int number = names.index.Find(name);
    if (number < 0) return -1;
    const int found = names.first[static_cast<size_t>(number)];
    const int other = names.second[static_cast<size_t>(number)];
    if (other >= 0)
      Throw(ErrorCode::kInvalidArgument, "a node has the control input '", name,
            "', and two nodes have that name: ", ToString(graph_->node(found)), " and ",
            ToString(graph_->node(other)), "; rename one");
    return found;
  }

  // Kahn's algorithm, always taking the ready node that was added first (a binary heap).
  template <class Lists = std::vector<std::vector<int>>>
  void Sort() {
    bool sorted = true;
    for (const Edge& edge : edges_) sorted &= edge.from < edge.to;
    if (sorted) {
      for (int node = 0; node < num_nodes(); ++node) order_.push_back(node);
      return;
    }
    Lists after(static_cast<size_t>(num_nodes()));
    std::vector<int> waits(static_cast<size_t>(num_nodes()), 0), heap;
    for (const Edge& edge : edges_) {
      after[static_cast<size_t>(edge.from)].push_back(edge.to);
      ++waits[static_cast<size_t>(edge.to)];
    }
    auto push = [&](int node) {
      heap.push_back(node);
      for (size_t at = heap.size() - 1; at > 0 && heap[at] < heap[(at - 1) / 2]; at = (at - 1) / 2)
        std::swap(heap[at], heap[(at - 1) / 2]);
    };
    auto pop = [&] {
      const int top = heap.front();
      heap.front() = heap.back();
      heap.pop_back();
      for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap.size(); ++child)
          if (heap[child] < heap[least]) least = child;
        if (least == at) return top;
        std::swap(heap[at], heap[least]);
        at = least;
      }
    };
    for (int node = 0; node < num_nodes(); ++node)
      if (waits[static_cast<size_t>(node)] == 0) push(node);
    while (!heap.empty()) {
      const int node = pop();
      order_.push_back(node);
      for (int next : after[static_cast<size_t>(node)])
        if (--waits[static_cast<size_t>(next)] == 0) push(next);
    }
    if (static_cast<int>(order_.size()) < num_nodes()) ThrowCycle(FindCycle(waits));
  }
  // Every node that still waits has a predecessor that still waits, so going back meets itself.
  std::vector<int> FindCycle(const std::vector<int>& waits) const {
    std::vector<int> before(waits.size(), -1), step(waits.size(), -1), path;
    int node = -1;
    for (const Edge& edge : edges_)
      if (waits[static_cast<size_t>(edge.from)] > 0 && waits[static_cast<size_t>(edge.to)] > 0)
        before[static_cast<size_t>(node = edge.to)] = edge.from;
    while (step[static_cast<size_t>(node)] < 0) {
      step[static_cast<size_t>(node)] = static_cast<int>(path.size());
      path.push_back(node);
      node = before[static_cast<size_t>(node)];
    }
    std::vector<int> cycle;  // in the order the nodes would have to run
    for (size_t i = path.size(); i-- > static_cast<size_t>(step[static_cast<size_t>(node)]);)
      cycle.push_back(path[i]);
    return cycle;
  }
  [[noreturn]] OPKIT_COLD void ThrowCycle(const std::vector<int>& cycle) const {
    std::string path;
    for (int node : cycle) path += ToString(graph_->node(node)) + "  ->  ";
    Throw(ErrorCode::kInvalidArgument, "the graph has a cycle: ", path,
          ToString(graph_->node(cycle.front())));
  }

  const G* graph_;
  NameIndex names_;
  std::vector<int> producers_;         // by value
  std::vector<int> values_, offsets_;  // of nodes, inputs then outputs
  std::vector<int> consumers_, first_consumer_;
  std::vector<int> outputs_;
  std::vector<char> is_output_;  // by value
  std::vector<Rewrite> rewrites_;
  std::vector<Edge> edges_;
  std::vector<int> order_;
};
using GraphView = BasicGraphView<Graph>;

// Every error that can be found without types and shapes: the view's, and what schemas say of the
// nodes (unknown operator with the nearest name, arity, in-place, attributes), with the node.
template <class G = Graph>
void Check(const std::type_identity_t<G>& graph) {
  for (const auto& def : graph.nodes()) {
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in node ", ToString(def));
  }
  const BasicGraphView<G> view(graph);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_VIEW_HPP_

// ---- opkit/graph/subgraph.hpp
// Graphs inside nodes (the branches of If, the body of Loop), and equality of graphs to the bit,
// which is how nodes that carry graphs are compared.
#ifndef OPKIT_GRAPH_SUBGRAPH_HPP_
#define OPKIT_GRAPH_SUBGRAPH_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Unlike ==, tells 0.0 from -0.0 and finds a NaN equal to itself.
template <class Value>
bool SameBits(const Value& a, const Value& b) {
  if (a.type() != AttributeType::kFloat && a.type() != AttributeType::kFloats) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  const auto bits = [](const Value& attribute) {
    if (attribute.is_list()) return attribute.template Get<std::vector<double>>();
    return std::vector<double>{attribute.template Get<double>()};
  };
  const std::vector<double> x = bits(a), y = bits(b);
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

// In whatever order they were set.
template <class Args>
bool SameArguments(const Args& a, const Args& b) {
  if (a.size() != b.size()) return false;
  for (const auto& item : a) {
    const auto* other = b.Find(item.name);
    if (!other || !SameBits(item.value, *other)) return false;
  }
  return true;
}

// What two nodes do, whatever they are called, read and write.
template <class Def>
bool SameOperation(const Def& a, const Def& b) {
  if (a.type() != b.type() || a.device() != b.device() || a.engine() != b.engine() ||
      a.is_gradient_op() != b.is_gradient_op() || a.control_inputs() != b.control_inputs() ||
      a.subgraphs().size() != b.subgraphs().size() || !SameArguments(a.args(), b.args()))
    return false;
  for (const auto& item : a.subgraphs()) {
    const auto* other = b.FindSubgraph(item.name);
    if (!other || !item.graph->Equals(*other)) return false;
  }
  return true;
}

}  // namespace detail

// The same inputs, constants, nodes and outputs, by the same names in the same order, attributes
// and tensors to the bit.
template <class G = Graph>
bool SameGraph(const G& a, const G& b) {
  if (a.inputs().size() != b.inputs().size() || a.constants().size() != b.constants().size() ||
      a.num_nodes() != b.num_nodes() || a.outputs() != b.outputs())
    return false;
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    const auto &x = a.inputs()[i], &y = b.inputs()[i];
    if (x.name != y.name || x.info.dtype != y.info.dtype || x.info.shape != y.info.shape ||
        x.info.device != y.info.device)
      return false;
  }
  for (size_t i = 0; i < a.constants().size(); ++i)
    if (a.constants()[i].name != b.constants()[i].name ||
        Attribute(a.constants()[i].value) != Attribute(b.constants()[i].value))
      return false;
  for (int i = 0; i < a.num_nodes(); ++i) {
    const auto &x = a.node(i), &y = b.node(i);
    if (x.name() != y.name() || x.inputs() != y.inputs() || x.outputs() != y.outputs() ||
        !detail::SameOperation(x, y))
      return false;
  }
  return true;
}

namespace detail {

// A template, so that programs without subgraphs do not compile it.
template <class G>
class OPKIT_EXPORT GraphInNode final : public SubgraphBase {
 public:
  explicit GraphInNode(G contents) : graph(std::move(contents)) {}
  bool Equals(const SubgraphBase& other) const override {
    const auto* box = dynamic_cast<const GraphInNode*>(&other);
    return box && SameGraph(graph, box->graph);
  }
  std::string Describe() const override {
    std::vector<std::string> inputs;
    for (const auto& input : graph.inputs()) inputs.push_back(input.name);
    return StrCat("graph ", inputs, " -> ", graph.outputs(), " of ", graph.num_nodes(), " nodes");
  }
  const G graph;
};

}  // namespace detail

// A subgraph sees nothing of the graph around it: what it needs, its node reads and hands in as the
// subgraph's inputs, in the way that the operator says.
//
//   OperatorDef("If").Input("condition").Input("X").Output("Y")
//       .Subgraph("then_branch", MakeSubgraph(then_branch))
//       .Subgraph("else_branch", MakeSubgraph(else_branch))
template <class G = Graph>
detail::IntrusivePtr<const SubgraphBase> MakeSubgraph(G graph) {
  return detail::MakeIntrusive<detail::GraphInNode<G>>(std::move(graph));
}

// The graph inside a carried subgraph; null when it is something else than a Graph.
template <class G = Graph>
const G* GraphOf(const SubgraphBase& subgraph) {
  const auto* box = dynamic_cast<const detail::GraphInNode<G>*>(&subgraph);
  return box ? &box->graph : nullptr;
}
// Null when the node has no subgraph of that name.
template <class G = Graph>
const G* SubgraphOf(const OperatorDef& def, std::string_view name) {
  const SubgraphBase* found = def.FindSubgraph(name);
  return found ? GraphOf<G>(*found) : nullptr;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_SUBGRAPH_HPP_

// ---- opkit/graph/pass_rules.hpp
// What every pass must know of a node before it drops, runs or merges it, and the copy of a graph
// with another choice of constants and nodes that passes end with.
#ifndef OPKIT_GRAPH_PASS_RULES_HPP_
#define OPKIT_GRAPH_PASS_RULES_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Calls f(name) for every value that the node writes though it is made elsewhere.
template <class Def, class F>
void ForEachRewritten(const Def& def, F&& f) {
  for (const std::string& output : def.outputs())
    for (const std::string& input : def.inputs())
      if (!output.empty() && output == input) {
        f(output);
        break;
      }
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema) return;
  for (const int i : schema->MutatedInputs(def.args()))
    if (i >= 0 && static_cast<size_t>(i) < def.inputs().size() &&
        !def.inputs()[static_cast<size_t>(i)].empty())
      f(def.inputs()[static_cast<size_t>(i)]);
}
template <class Def>
bool RewritesInputs(const Def& def) {
  bool found = false;
  ForEachRewritten(def, [&](const std::string&) { found = true; });
  return found;
}

// A run of it, how often and when, can be told from more than its outputs: the operator is stateful
// or not known, the node has no outputs, or that is so inside a subgraph.
template <class Def>
bool HasEffect(const Def& def) {
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema || schema->is_stateful()) return true;
  bool any_output = false;
  for (const std::string& output : def.outputs()) any_output |= !output.empty();
  if (!any_output) return true;
  for (const auto& item : def.subgraphs()) {
    const auto* graph = GraphOf(*item.graph);
    if (!graph) return true;
    for (const auto& inner : graph->nodes()) {
      bool writes_outside = false;
      ForEachRewritten(inner,
                       [&](const std::string& name) { writes_outside |= graph->IsInput(name); });
      if (writes_outside || HasEffect(inner)) return true;
    }
  }
  return false;
}

// By value: whether some node writes it though it is made elsewhere (GraphView::IsRewritten, which
// looks through all that is rewritten every time).
template <class View>
std::vector<char> RewrittenValues(const View& view) {
  std::vector<char> flags(static_cast<size_t>(view.num_values()), 0);
  for (const auto& rewrite : view.rewrites()) flags[static_cast<size_t>(rewrite.value)] = 1;
  return flags;
}

// Node names that others wait for by name.
template <class G>
NameIndex ControlNames(const G& graph) {
  NameIndex names;
  for (const auto& def : graph.nodes())
    for (const std::string& name : def.control_inputs()) names.Add(name);
  return names;
}

// The graph's inputs and outputs around other constants and nodes.
template <class G, class Constants, class Nodes>
G WithContents(const G& graph, Constants constants, Nodes nodes) {
  G out;
  for (const auto& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
  for (auto& constant : constants)
    out.AddConstant(std::move(constant.name), std::move(constant.value));
  for (auto& def : nodes) out.AddNode(std::move(def));
  for (const std::string& output : graph.outputs()) out.AddOutput(output);
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PASS_RULES_HPP_

// ---- opkit/graph/evaluate_node.hpp
// EvaluateNode: runs a node whose inputs are known before the graph runs. Constant folding puts the
// results into the graph; inference reads shapes from them.
#ifndef OPKIT_GRAPH_EVALUATE_NODE_HPP_
#define OPKIT_GRAPH_EVALUATE_NODE_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A run more or less of the node, on this thread, cannot be told from outside.
template <class Def>
bool MayEvaluate(const Def& def) {
  return IsHostAccessible(def.device().type) && !RewritesInputs(def) && !HasEffect(def);
}

// The outputs, uninitialized where the node leaves one out; `inputs` null where it does. By the
// kernel that a plan would select. Errors: as CreateSelected and Run.
template <class Def, class Value = Tensor>
std::vector<Value> EvaluateNode(const Def& def, const std::vector<const Value*>& inputs) {
  Workspace ws;
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    infos.push_back(inputs[i] ? TensorInfo::Of(*inputs[i], true) : TensorInfo());
    if (inputs[i]) *ws.CreateTensor(def.inputs()[i]) = *inputs[i];
  }
  const auto& schema = OpRegistry::Global().GetSchema(def.type());
  CreateSelected(def, &ws, infos, schema.InferOutputs(def, infos))->Run();
  std::vector<Value> outputs;
  for (const std::string& name : def.outputs()) {
    outputs.emplace_back();
    if (!name.empty()) outputs.back() = *ws.GetTensor(name);
  }
  return outputs;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_EVALUATE_NODE_HPP_

// ---- opkit/graph/graph_inference.hpp
// InferGraph: dtypes and shapes of every value of a graph, from what is known of its inputs and
// constants and of what nodes say of their outputs. Symbols that meet a number, or each other,
// become one extent everywhere. What small nodes make of known data (the arithmetic on shapes that
// exporters leave in models) is evaluated on the way, so that shapes made of it are known too.
#ifndef OPKIT_GRAPH_GRAPH_INFERENCE_HPP_
#define OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

namespace opkit::inline OPKIT_ABI {

// What is known of the values of a graph, by the numbers of its view. Where data decides a shape,
// extents or even the rank stay unknown.
template <class View>
class BasicGraphTypes {
 public:
  explicit BasicGraphTypes(const View& view)
      : view_(&view), infos_(static_cast<size_t>(view.num_values())) {}

  const TensorInfo& operator[](int value) const { return infos_[static_cast<size_t>(value)]; }
  TensorInfo& operator[](int value) { return infos_[static_cast<size_t>(value)]; }
  // Data of a value that is no constant of the graph, but known before it runs.
  void SetData(int value, const Tensor& data) {
    auto* owned = new detail::Shared<Tensor>(data);
    data_.push_back(detail::IntrusivePtr<detail::RefCounted>(owned));
    (*this)[value].constant = &owned->value;
  }
  // Of a node's values, a plain TensorInfo where it leaves one out.
  std::vector<TensorInfo> Of(std::span<const int> values) const {
    std::vector<TensorInfo> infos;
    for (int value : values) infos.push_back(value < 0 ? TensorInfo() : (*this)[value]);
    return infos;
  }
  // Error (kNotFound) that names the nearest value.
  const TensorInfo& at(std::string_view name) const {
    const int value = view_->FindValue(name);
    if (value < 0) {
      std::vector<std::string> known;
      for (int v = 0; v < view_->num_values(); ++v) known.push_back(view_->name(v));
      Throw(ErrorCode::kNotFound, "the graph has no value '", name, "'", SuggestName(name, known));
    }
    return (*this)[value];
  }

 private:
  const View* view_;
  std::vector<TensorInfo> infos_;
  detail::RefCountedList data_;  // of Shared<Tensor>: what SetData was given
};
using GraphTypes = BasicGraphTypes<GraphView>;

namespace detail {

// The extents that symbols stand for.
template <class Dim>
class SymbolTable {
 public:
  // The number, the symbol that stands for all those equal to it, or unknown.
  Dim Resolve(Dim dim) const {
    while (dim.is_symbol()) {
      const int number = names_.Find(dim.symbol());
      if (number < 0 || bound_[static_cast<size_t>(number)].dim.is_unknown()) break;
      dim = bound_[static_cast<size_t>(number)].dim;
    }
    return dim;
  }
  SymbolicShape Resolve(const SymbolicShape& shape) const {
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims;
    for (const Dim& dim : shape.dims()) dims.push_back(Resolve(dim));
    return SymbolicShape(std::move(dims));
  }
  // What both say together; empty `why` unless they contradict each other.
  Dim Unify(Dim a, Dim b, const std::string& where, std::string& why) {
    const Dim first = a, second = b;
    a = Resolve(std::move(a));
    b = Resolve(std::move(b));
    if (a == b || b.is_unknown()) return a;
    if (a.is_unknown()) return b;
    if (a.is_known() && b.is_known()) {
      why = StrCat("extent ", a, Origin(first), " against ", b, Origin(second));
      return a;
    }
    if (a.is_known()) std::swap(a, b);
    const auto number = static_cast<size_t>(names_.Add(a.symbol()));
    if (number >= bound_.size()) bound_.resize(number + 1);
    bound_[number] = {b, where};
    return b;
  }

 private:
  struct Binding {
    Dim dim;
    std::string where;
  };
  // Why a symbol is a number.
  std::string Origin(const Dim& dim) const {
    if (!dim.is_symbol()) return "";
    const int number = names_.Find(dim.symbol());
    return StrCat(" (", dim.symbol(), ", ", bound_[static_cast<size_t>(number)].where, ")");
  }

  NameIndex names_;
  std::vector<Binding> bound_;
};

template <class View, class Symbols = SymbolTable<Dim>>
class GraphInference {
 public:
  explicit GraphInference(const View& view)
      : view_(view),
        types_(view),
        rewritten_(RewrittenValues(view)),
        evaluated_(static_cast<size_t>(view.num_nodes()), 0) {}

  void Know(int value, const TensorInfo& info, const std::string& where) {
    Merge(value, info, where);
    if (info.constant) types_[value].constant = info.constant;
    types_[value].device = info.device;
  }
  BasicGraphTypes<View> Run() && {
    constexpr int kMaxRounds = 16;  // each carries what was learned of inputs one node further back
    for (int round = 0; round < kMaxRounds; ++round) {
      changed_ = false;
      for (int node : view_.order()) Infer(node);
      if (!changed_) break;
    }
    for (int value = 0; value < view_.num_values(); ++value)
      types_[value].shape = symbols_.Resolve(types_[value].shape);
    return std::move(types_);
  }

 private:
  static constexpr auto kIsKnown = [](const TensorInfo& info) {
    return info.dtype != DType::kUndefined && info.shape.is_known();
  };

  void Infer(int node) {
    const auto& def = view_.graph().node(node);
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    const auto ins = view_.inputs(node), outs = view_.outputs(node);
    const std::string where = "node " + ToString(def);
    bool inputs_known = true;
    for (int value : ins) inputs_known &= value < 0 || kIsKnown(types_[value]);
    // Forward alone first, so that the symbols of both sides meet here; then with what is known of
    // the outputs, for operators that learn their inputs from them.
    Apply(schema, def, ins, outs, {}, where);
    if (!inputs_known) Apply(schema, def, ins, outs, Resolved(outs), where);
    CheckSizes(outs, where);
    const auto devices = schema.InferDevices(def).second;
    for (size_t o = 0; o < outs.size() && o < devices.size(); ++o)
      if (outs[o] >= 0) types_[outs[o]].device = devices[o];
    Evaluate(node, def, ins, outs);
  }
  // No count overflows for what comes after: the nodes that read them, kernels, the planner.
  void CheckSizes(std::span<const int> outs, const std::string& where) const {
    for (const int value : outs) {
      if (value < 0 || !types_[value].shape.is_known()) continue;
      try {
        static_cast<void>(Tensor::CheckedBytes(types_[value].shape.ToShape(), types_[value].dtype));
      } catch (Error& error) {
        error.AddContext(
            StrCat("in the type of '", view_.name(value), "', which ", where, " makes"));
        throw;
      }
    }
  }
  // Runs the node, once, if all that it reads is known.
  template <class Def>
  void Evaluate(int node, const Def& def, std::span<const int> ins, std::span<const int> outs) {
    constexpr int64_t kMaxElements = 1024;  // shapes, axes and the like
    char& evaluated = evaluated_[static_cast<size_t>(node)];
    if (evaluated || ins.empty()) return;
    std::vector<const Tensor*> inputs;
    for (const int value : ins) {
      inputs.push_back(value < 0 ? nullptr : types_[value].constant);
      if (value >= 0 && (!inputs.back() || inputs.back()->numel() > kMaxElements)) return;
    }
    for (const int value : outs) {
      if (value < 0) continue;
      const SymbolicShape& shape = types_[value].shape;
      const bool is_small = !shape.is_known() || shape.ToShape().numel() <= kMaxElements;
      if (!is_small || rewritten_[static_cast<size_t>(value)] || types_[value].constant) return;
    }
    evaluated = 1;
    if (!MayEvaluate(def)) return;
    std::vector<Tensor> results(outs.size());
    try {
      results = EvaluateNode(def, inputs);
    } catch (...) {  // whatever is wrong with the node is reported where it runs
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0 && results[o].initialized())
        Learn(outs[o], results[o], "node " + ToString(def));
  }
  void Learn(int value, const Tensor& data, const std::string& where) {
    if (types_[value].constant || rewritten_[static_cast<size_t>(value)]) return;
    Merge(value, TensorInfo::Of(data), where);
    types_.SetData(value, data);
    changed_ = true;
  }
  template <class Def>
  void Apply(const OpSchema& schema, const Def& def, std::span<const int> ins,
             std::span<const int> outs, std::vector<TensorInfo> known_outputs,
             const std::string& where) {
    InferenceContext context(def, Resolved(ins), std::move(known_outputs));
    schema.Infer(context);
    for (size_t i = 0; i < ins.size(); ++i)
      if (ins[i] >= 0) Merge(ins[i], context.inputs()[i], where);
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) Merge(outs[o], context.outputs()[o], where);
    for (size_t o = 0; o < outs.size(); ++o)
      if (const Tensor* data = context.output_data(static_cast<int>(o)); data && outs[o] >= 0)
        Learn(outs[o], *data, where);
  }
  std::vector<TensorInfo> Resolved(std::span<const int> values) const {
    std::vector<TensorInfo> infos = types_.Of(values);
    for (TensorInfo& info : infos) info.shape = symbols_.Resolve(info.shape);
    return infos;
  }
  void Merge(int value, const TensorInfo& found, const std::string& where) {
    TensorInfo& known = types_[value];
    if (found.dtype != DType::kUndefined && known.dtype != found.dtype) {
      if (known.dtype != DType::kUndefined) Contradiction(value, found, where, "");
      known.dtype = found.dtype;
      changed_ = true;
    }
    if (!found.shape.has_rank()) return;
    if (!known.shape.has_rank()) {
      known.shape = symbols_.Resolve(found.shape);
      changed_ = true;
      return;
    }
    if (known.shape.rank() != found.shape.rank())
      Contradiction(value, found, where,
                    StrCat("rank ", known.shape.rank(), " against ", found.shape.rank()));
    for (int axis = 0; axis < known.shape.rank(); ++axis) {
      std::string why;
      Dim dim = symbols_.Unify(known.shape[axis], found.shape[axis], where, why);
      if (!why.empty()) Contradiction(value, found, where, why);
      if (dim == known.shape[axis]) continue;
      known.shape[axis] = std::move(dim);
      changed_ = true;
    }
  }
  [[noreturn]] OPKIT_COLD void Contradiction(int value, const TensorInfo& found,
                                             const std::string& where,
                                             const std::string& why) const {
    Throw(ErrorCode::kInvalidArgument, "value '", view_.name(value), "' is ",
          ToString(types_[value]), ", but ", where, " finds ", ToString(found),
          why.empty() ? "" : ": " + why);
  }

  const View& view_;
  BasicGraphTypes<View> types_;
  Symbols symbols_;
  const std::vector<char> rewritten_;  // by value: its data is not known
  std::vector<char> evaluated_;        // by node
  bool changed_ = false;
};

}  // namespace detail

// `known` adds to what the graph says of its inputs (the shapes of a run). Errors, showing both
// sides: kInvalidArgument where two sources contradict each other, kNotFound for a name in `known`
// that is no input, kOutOfRange where a node makes more bytes than an int64 counts, and what the
// operators' own functions throw.
template <class View = GraphView, class Input = GraphInput>
BasicGraphTypes<View> InferGraph(const std::type_identity_t<View>& view,
                                 const std::vector<Input>& known = {}) {
  detail::GraphInference<View> inference(view);
  for (const auto& input : view.graph().inputs())
    inference.Know(view.FindValue(input.name), input.info, "input '" + input.name + "'");
  for (const auto& constant : view.graph().constants())
    inference.Know(view.FindValue(constant.name), TensorInfo::Of(constant.value, true),
                   "constant '" + constant.name + "'");
  for (const Input& input : known) {
    const auto* declared = view.graph().FindInput(input.name);
    if (!declared) {
      std::vector<std::string> names;
      for (const auto& one : view.graph().inputs()) names.push_back(one.name);
      Throw(ErrorCode::kNotFound, "the graph has no input '", input.name, "'",
            SuggestName(input.name, names));
    }
    inference.Know(view.FindValue(input.name), input.info,
                   "what is given for input '" + input.name + "'");
  }
  return std::move(inference).Run();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_INFERENCE_HPP_

// ---- opkit/graph/dot.hpp
// ToDot: a graph as Graphviz draws it: `dot -Tsvg graph.dot -o graph.svg`.
#ifndef OPKIT_GRAPH_DOT_HPP_
#define OPKIT_GRAPH_DOT_HPP_

namespace opkit::inline OPKIT_ABI {

struct DotOptions {
  // A box for each constant. Without, they are lines in the boxes of the nodes that read them: real
  // models have more constants than nodes, and Graphviz takes minutes to place them all.
  bool constants = true;
};

namespace detail {

// A template, so that programs that draw no graph do not compile it.
template <class G>
class DotWriter {
 public:
  static std::string Write(const G& graph, const GraphTypes* types, const DotOptions& options) {
    DotWriter writer;
    writer.options_ = options;
    writer.out_ =
        "digraph opkit {\n"
        "  compound=true;\n"
        "  fontname=\"Helvetica\";\n"
        "  node [fontname=\"Helvetica\", fontsize=10, style=filled];\n"
        "  edge [fontname=\"Helvetica\", fontsize=8];\n";
    writer.Graph(graph, types, "", "  ");
    return writer.out_ + "}\n";
  }

 private:
  // Quoted; a newline is one in the label too, and an entity is not one.
  static std::string Quote(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n') {
        out += "\\n";
      } else if (c == '&') {
        out += "&amp;";
      } else if (c != '\r' && c != '\0') {
        out += c;
      }
    }
    return out + "\"";
  }
  void Node(const std::string& indent, const std::string& id, const std::string& label,
            const char* look) {
    out_ += StrCat(indent, id, " [label=", Quote(label), ", ", look) + "];\n";
  }
  void Edge(const std::string& indent, const std::string& from, const std::string& to,
            const std::string& attributes) {
    out_ +=
        StrCat(indent, from, " -> ", to, attributes.empty() ? "" : " [" + attributes + "]") + ";\n";
  }
  template <class Def>
  static std::string Label(const Def& def) {
    std::string out = def.type();
    if (!def.name().empty()) out += " '" + def.name() + "'";
    for (const auto& arg : def.args()) out += "\n" + arg.name + "=" + ToString(arg.value);
    if (def.device() != Device{}) out += "\non " + ToString(def.device());
    if (!def.engine().empty()) out += "\nengine " + def.engine();
    return out;
  }

  // `prefix` keeps the names of subgraphs' boxes apart.
  void Graph(const G& graph, const GraphTypes* types, const std::string& prefix,
             const std::string& indent) {
    NameIndex values;
    std::vector<std::string> makers;  // by value: the box that made or wrote it last
    const auto made = [&](const std::string& name, std::string box) {
      const auto number = static_cast<size_t>(values.Add(name));
      if (number == makers.size()) makers.emplace_back();
      makers[number] = std::move(box);
    };
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const auto& input = graph.inputs()[i];
      Node(indent, StrCat(prefix, "i", i), input.name + "\n" + ToString(input.info),
           "shape=ellipse, fillcolor=\"#cfe8cf\"");
      made(input.name, StrCat(prefix, "i", i));
    }
    for (size_t i = 0; i < graph.constants().size(); ++i) {
      const auto& constant = graph.constants()[i];
      if (!options_.constants && !graph.IsOutput(constant.name)) continue;
      Node(indent, StrCat(prefix, "c", i),
           constant.name + "\n" + ToString(TensorInfo::Of(constant.value)),
           "shape=note, fillcolor=\"#eeeeee\"");
      made(constant.name, StrCat(prefix, "c", i));
    }
    for (int n = 0; n < graph.num_nodes(); ++n)
      for (const std::string& output : graph.node(n).outputs())
        if (graph.Producer(output) == n) made(output, StrCat(prefix, "n", n));
    for (int n = 0; n < graph.num_nodes(); ++n) {
      const auto& def = graph.node(n);
      const std::string box = StrCat(prefix, "n", n);
      const auto is_line = [&](const std::string& input) {  // and no edge
        return !options_.constants && graph.IsConstant(input) && values.Find(input) < 0;
      };
      std::string label = Label(def);
      for (const std::string& input : def.inputs())
        if (is_line(input))
          label += StrCat("\n", input, " ", TensorInfo::Of(*graph.FindConstant(input)));
      Node(indent, box, label, "shape=box, fillcolor=\"#cfdff3\"");
      for (const std::string& input : def.inputs()) {
        if (input.empty() || is_line(input)) continue;
        if (values.Find(input) < 0) MadeByNobody(input, prefix, indent, made);
        Edge(indent, makers[static_cast<size_t>(values.Find(input))], box,
             "label=" + Quote(Describe(input, types)));
      }
      ForEachRewritten(def, [&](const std::string& name) { made(name, box); });
      for (const std::string& name : def.control_inputs())
        for (int from = 0; from < graph.num_nodes(); ++from)
          if (graph.node(from).name() == name) {
            Edge(indent, StrCat(prefix, "n", from), box, "style=dashed");
            break;
          }
      for (const auto& item : def.subgraphs()) Subgraph(item, box, indent);
    }
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const std::string& output = graph.outputs()[o];
      const std::string box = StrCat(prefix, "o", o);
      if (values.Find(output) < 0) MadeByNobody(output, prefix, indent, made);
      Node(indent, box, output, "shape=ellipse, peripheries=2, fillcolor=\"#f6d9c9\"");
      Edge(indent, makers[static_cast<size_t>(values.Find(output))], box,
           types ? "label=" + Quote(ToString(types->at(output))) : "");
    }
  }
  // A graph that is not right yet can be drawn too.
  template <class Made>
  void MadeByNobody(const std::string& name, const std::string& prefix, const std::string& indent,
                    Made&& made) {
    const std::string box = StrCat(prefix, "m", missing_++);
    Node(indent, box, name + "\nmissing", "shape=ellipse, color=red, fillcolor=white");
    made(name, box);
  }
  static std::string Describe(const std::string& value, const GraphTypes* types) {
    return types ? value + "\n" + ToString(types->at(value)) : value;
  }
  template <class Item>
  void Subgraph(const Item& item, const std::string& box, const std::string& indent) {
    const std::string prefix = StrCat("s", subgraphs_++, "_");
    out_ += StrCat(indent, "subgraph cluster_", prefix, " {\n");
    out_ += StrCat(indent, "  label=", Quote(item.name)) + ";\n";
    Node(indent + "  ", prefix + "head", "", "shape=point, style=invis");
    if (const G* inner = GraphOf(*item.graph)) {
      Graph(*inner, nullptr, prefix, indent + "  ");
    } else {
      Node(indent + "  ", prefix + "text", item.graph->Describe(), "shape=plaintext, style=\"\"");
    }
    out_ += indent + "}\n";
    Edge(indent, box, prefix + "head", "style=dotted, arrowhead=none, lhead=cluster_" + prefix);
  }

  DotOptions options_;
  std::string out_;
  int subgraphs_ = 0, missing_ = 0;
};

}  // namespace detail

// Inputs are green, constants grey, nodes blue, outputs double. Edges go from who made a value, or
// rewrote it last, to who reads it, and carry its name, with dtype and shape where types are given;
// control inputs are dashed, subgraphs framed. A graph need not be right to be drawn without types.
//
//   const GraphView view(graph);
//   std::string picture = ToDot(graph, InferGraph(view));
template <class G = Graph>
std::string ToDot(const G& graph, const DotOptions& options = {}) {
  return detail::DotWriter<G>::Write(graph, nullptr, options);
}
template <class G = Graph>
std::string ToDot(const G& graph, const GraphTypes& types, const DotOptions& options = {}) {
  return detail::DotWriter<G>::Write(graph, &types, options);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_DOT_HPP_

// ---- opkit/graph/memory_types.hpp
// What the memory planner takes and gives: buffers with lifetimes in, offsets in one arena out.
// Plain numbers: it knows no graph, and lifetimes.hpp makes these of one.
#ifndef OPKIT_GRAPH_MEMORY_TYPES_HPP_
#define OPKIT_GRAPH_MEMORY_TYPES_HPP_

namespace opkit::inline OPKIT_ABI {

// A buffer that is live in the half-open span [lower, upper) of any clock: step numbers of a fixed
// order, say. `size` is in bytes and may be 0; `alignment` of the offset is a power of two.
struct MemoryInterval {
  int64_t lower = 0;
  int64_t upper = 1;
  int64_t size = 0;
  int64_t alignment = 1;
};

// For each buffer those that it must not overlap, each pair listed on both sides: the partners of
// buffer i are others[starts[i]] up to others[starts[i + 1]]. Both empty: spans of time decide.
struct MemoryConflicts {
  std::vector<int64_t> starts;
  std::vector<int> others;
  bool empty() const { return starts.empty(); }
};

struct MemoryPlanOptions {
  // Both bound the search that follows the greedy portfolio; it also ends as soon as the arena is
  // as small as the lower bound. Zero for either: the portfolio alone.
  Timeout time_budget = {};
  // Steps of the search, each about 5 ns. A plan made within steps alone is the same on every
  // machine. The default is kDefaultSteps without a time budget, and no limit with one.
  int64_t max_steps = -1;
  static constexpr int64_t kDefaultSteps = 10'000'000;
  uint64_t seed = 0;
  // An arena that is small enough: the search stops there.
  int64_t enough_bytes = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one for each buffer, in the order given
  int64_t arena_bytes = 0;       // a multiple of the smallest alignment among the buffers
  // No arena can be smaller: the largest set of buffers that are live together, each rounded up to
  // the smallest alignment.
  int64_t lower_bound_bytes = 0;
  int64_t naive_bytes = 0;      // every buffer in a place of its own
  double seconds = 0;           // what planning took
  const char* method = "none";  // which order or search found it
  // 1 is perfect.
  double ratio() const {
    return lower_bound_bytes == 0
               ? 1
               : static_cast<double>(arena_bytes) / static_cast<double>(lower_bound_bytes);
  }
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_TYPES_HPP_

// ---- opkit/graph/memory_svg.hpp
// A memory plan as a picture: time from left to right, addresses from bottom to top, a rectangle
// for each buffer, coloured by how long it lives, and a line at the lower bound.
#ifndef OPKIT_GRAPH_MEMORY_SVG_HPP_
#define OPKIT_GRAPH_MEMORY_SVG_HPP_

namespace opkit::inline OPKIT_ABI {

struct MemorySvgOptions {
  std::string title = "Memory plan";
  std::string time_label = "step";
  std::vector<std::string> names;  // of the buffers; empty: their indices
  int width = 1200;
  int height = 700;
};

namespace detail {

// "1.5 MiB"
inline std::string FormatBytes(int64_t bytes) {
  const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general,
                                 value >= 1000 ? 4 : 3);
  return std::string(digits, end.ptr) + " " + kUnits[unit];
}

inline std::string EscapeXml(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 32)
      out += ' ';  // control characters are not XML
    else
      out += c;
  }
  return out;
}

// The largest of 1, 2, 5, 10, … (powers of two for bytes) of which about six fit.
inline double NiceStep(double span, bool bytes) {
  double step = 1;
  if (bytes) {
    while (step * 6 < span) step *= 2;
    return step;
  }
  for (int i = 0; step * 8 < span; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

template <class Interval>
class MemorySvg {
 public:
  MemorySvg(const std::vector<Interval>& buffers, const MemoryPlan& plan,
            const MemorySvgOptions& options)
      : buffers_(buffers), plan_(plan), options_(options) {
    if (plan.offsets.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected an offset for each of ", buffers.size(),
            " buffers, found ", plan.offsets.size());
    if (!options.names.empty() && options.names.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected a name for each of ", buffers.size(),
            " buffers, or none; found ", options.names.size());
    for (const Interval& buffer : buffers) {
      if (begin_ == end_) {
        begin_ = static_cast<double>(buffer.lower);
        shortest_ = Length(buffer);
      }
      begin_ = (std::min)(begin_, static_cast<double>(buffer.lower));
      end_ = (std::max)(end_, static_cast<double>(buffer.upper));
      longest_ = (std::max)(longest_, Length(buffer));
      shortest_ = (std::min)(shortest_, Length(buffer));
    }
    if (begin_ >= end_) end_ = begin_ + 1;
    top_ = plan.arena_bytes > 0 ? static_cast<double>(plan.arena_bytes) : 1;
  }

  std::string Draw() {
    const int width = options_.width, height = options_.height;
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height);
    Add("\" viewBox=\"0 0 ", width, " ", height);
    Add("\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"#fff\"/>\n");
    Add("<text x=\"", kLeft, "\" y=\"24\" font-size=\"17\" font-weight=\"bold\">");
    Add(EscapeXml(options_.title), "</text>\n");
    Add("<text x=\"", kLeft, "\" y=\"44\" fill=\"#444\">");
    Add(FormatBytes(plan_.arena_bytes), " arena, lower bound ",
        FormatBytes(plan_.lower_bound_bytes));
    Add(", ratio ", Rounded(plan_.ratio(), 4), "; ", FormatBytes(plan_.naive_bytes));
    Add(" without sharing; ", buffers_.size(), " buffers, ", EscapeXml(plan_.method));
    Add("</text>\n");
    DrawAxes();
    for (size_t i = 0; i < buffers_.size(); ++i) DrawBuffer(i);
    DrawBound();
    DrawLegend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static constexpr int kLeft = 86, kRight = 24, kTop = 62, kBottom = 52;

  void Add(const Text& a, const Text& b = {}, const Text& c = {}, const Text& d = {}) {
    out_ += StrCat(a, b, c, d);
  }
  static std::string Rounded(double value, int digits = 2) {
    char text[64];
    const auto end =
        std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
    return std::string(text, end.ptr);
  }
  static double Length(const Interval& buffer) {
    return static_cast<double>(buffer.upper) - static_cast<double>(buffer.lower);
  }
  double X(double time) const {
    return kLeft + (time - begin_) / (end_ - begin_) * (options_.width - kLeft - kRight);
  }
  double Y(double address) const {
    const int bottom = options_.height - kBottom;
    return bottom - address / top_ * (bottom - kTop);
  }
  void Line(double x1, double y1, double x2, double y2, const char* style) {
    Add("<line x1=\"", Rounded(x1), "\" y1=\"", Rounded(y1));
    Add("\" x2=\"", Rounded(x2), "\" y2=\"", Rounded(y2));
    Add("\" ", style, "/>\n");
  }
  void Label(double x, double y, const char* style, std::string_view text) {
    Add("<text x=\"", Rounded(x), "\" y=\"", Rounded(y));
    Add("\" ", style, ">", EscapeXml(text));
    Add("</text>\n");
  }

  void DrawAxes() {
    constexpr const char* kGrid = "stroke=\"#ddd\"";
    const double step = NiceStep(end_ - begin_, false);
    for (double time = step * static_cast<double>(static_cast<int64_t>(begin_ / step));
         time <= end_; time += step) {
      if (time < begin_) continue;
      Line(X(time), kTop, X(time), Y(0), kGrid);
      Label(X(time), Y(0) + 17, "text-anchor=\"middle\"", StrCat(static_cast<int64_t>(time)));
    }
    const double bytes = NiceStep(top_, true);
    for (double address = 0; address <= top_; address += bytes) {
      Line(kLeft, Y(address), X(end_), Y(address), kGrid);
      Label(kLeft - 8, Y(address) + 4, "text-anchor=\"end\"",
            FormatBytes(static_cast<int64_t>(address)));
    }
    Label((kLeft + X(end_)) / 2, options_.height - 14, "text-anchor=\"middle\"",
          options_.time_label);
    Add("<text transform=\"translate(18 ", Rounded((kTop + Y(0)) / 2), ") rotate(-90)\" ",
        "text-anchor=\"middle\">address</text>\n");
  }

  // The shortest lives are blue, the longest red, on a logarithmic scale.
  std::string Colour(double length) const {
    const double share = longest_ > shortest_ ? __builtin_log(length / shortest_) /
                                                    __builtin_log(longest_ / shortest_)
                                              : 0;
    return StrCat("hsl(", static_cast<int>(215 - 205 * share), ",65%,68%)");
  }

  void DrawBuffer(size_t i) {
    const Interval& buffer = buffers_[i];
    if (buffer.size == 0) return;
    const auto lower = static_cast<double>(buffer.lower);
    const auto offset = static_cast<double>(plan_.offsets[i]);
    const double x = X(lower), width = X(static_cast<double>(buffer.upper)) - x;
    const double y = Y(offset + static_cast<double>(buffer.size)), height = Y(offset) - y;
    const std::string name = options_.names.empty() ? std::to_string(i) : options_.names[i];
    Add("<rect x=\"", Rounded(x), "\" y=\"", Rounded(y));
    Add("\" width=\"", Rounded(width), "\" height=\"", Rounded(height));
    Add("\" fill=\"", Colour(Length(buffer)), "\" stroke=\"#333\" stroke-width=\"0.5\"><title>");
    Add(EscapeXml(name), ": ", FormatBytes(buffer.size), " at ");
    Add(plan_.offsets[i], ", live from ", buffer.lower, " to ");
    Add(buffer.upper, "</title></rect>\n");
    // A label where there is room for it; 7 is a character's width.
    if (height >= 13 && width >= 7 * static_cast<double>(name.size()) + 6)
      Label(x + width / 2, y + height / 2 + 4, "text-anchor=\"middle\" pointer-events=\"none\"",
            name);
  }

  void DrawBound() {
    if (plan_.lower_bound_bytes <= 0) return;
    const double y = Y(static_cast<double>(plan_.lower_bound_bytes));
    Line(kLeft, y, X(end_), y, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
    Label(X(end_) - 4, y + 14, "text-anchor=\"end\" fill=\"#c00\"", "lower bound");
  }

  void DrawLegend() {
    const double y = options_.height - 24;
    constexpr int kSteps = 8, kWidth = 16;
    const double left = options_.width - kRight - kSteps * kWidth - 60;
    Label(left - 6, y + 10, "text-anchor=\"end\"", "lives short");
    for (int i = 0; i < kSteps; ++i) {
      const double share = static_cast<double>(i) / (kSteps - 1);
      Add("<rect x=\"", Rounded(left + i * kWidth), "\" y=\"", Rounded(y));
      Add("\" width=\"", kWidth, "\" height=\"12\" fill=\"hsl(",
          static_cast<int>(215 - 205 * share));
      out_ += ",65%,68%)\"/>\n";
    }
    Label(left + kSteps * kWidth + 6, y + 10, "", "long");
  }

  const std::vector<Interval>& buffers_;
  const MemoryPlan& plan_;
  const MemorySvgOptions& options_;
  double begin_ = 0, end_ = 0, shortest_ = 1, longest_ = 1, top_ = 1;
  std::string out_;
};

}  // namespace detail

// An SVG document of the plan: axes with units, a label on every buffer that has room for one, what
// a buffer is when pointed at, and bytes, bound and ratio in the title.
template <class Interval = MemoryInterval>
std::string DrawMemoryPlan(const std::vector<Interval>& buffers, const MemoryPlan& plan,
                           const MemorySvgOptions& options = {}) {
  return detail::MemorySvg(buffers, plan, options).Draw();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SVG_HPP_

// ---- opkit/graph/common_subexpressions.hpp
// MergeCommonSubexpressions: of nodes that compute the same of the same values, one is enough.
#ifndef OPKIT_GRAPH_COMMON_SUBEXPRESSIONS_HPP_
#define OPKIT_GRAPH_COMMON_SUBEXPRESSIONS_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Numbers that were added under a hash, newest first.
template <class Int>
class HashChains {
 public:
  explicit HashChains(size_t most) : next_(most, -1) {
    size_t size = 16;
    while (size < most) size *= 2;
    first_.assign(size, -1);
  }
  void Add(size_t hash, Int number) {
    Int& first = first_[hash & (first_.size() - 1)];
    next_[static_cast<size_t>(number)] = std::exchange(first, number);
  }
  // The first for which match(number) holds; -1 when none does.
  template <class F>
  Int Find(size_t hash, F&& match) const {
    Int at = first_[hash & (first_.size() - 1)];
    while (at >= 0 && !match(at)) at = next_[static_cast<size_t>(at)];
    return at;
  }

 private:
  std::vector<Int> first_, next_;
};

// Walks the nodes in the order they run, so that what a node reads has been merged before it is
// compared itself.
template <class G>
class SubexpressionMerger {
 public:
  explicit SubexpressionMerger(const G& graph)
      : graph_(graph),
        view_(graph),
        rewritten_(RewrittenValues(view_)),
        control_(ControlNames(graph)),
        removed_(static_cast<size_t>(graph.num_nodes()), 0) {
    for (int value = 0; value < view_.num_values(); ++value) {
      same_.push_back(value);
      called_.push_back(value);
    }
    MergeConstants();
    HashChains<int> known(static_cast<size_t>(graph.num_nodes()));
    for (const int node : view_.order()) {
      if (!IsPure(node)) continue;
      const size_t hash = Hash(node);
      const int first = known.Find(hash, [&](int other) { return IsSame(other, node); });
      if (first >= 0) {
        Merge(first, node);
      } else {
        known.Add(hash, node);
      }
    }
  }

  G Result() const {
    std::vector<typename G::Def> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (removed_[static_cast<size_t>(node)]) continue;
      auto& def = nodes.emplace_back(graph_.node(node));
      const auto ins = view_.inputs(node), outs = view_.outputs(node);
      for (size_t i = 0; i < ins.size(); ++i)
        if (ins[i] >= 0) def.mutable_inputs()[i] = Name(Same(ins[i]));
      for (size_t o = 0; o < outs.size(); ++o)
        if (outs[o] >= 0) def.mutable_outputs()[o] = Name(outs[o]);
    }
    std::vector<typename G::Constant> constants;
    for (const auto& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (Same(value) == value || view_.IsOutput(value)) constants.push_back(constant);
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  int Same(int value) const { return same_[static_cast<size_t>(value)]; }
  const std::string& Name(int value) const {
    return view_.name(called_[static_cast<size_t>(value)]);
  }

  void MergeConstants() {
    HashChains<int> known(static_cast<size_t>(view_.num_values()));
    for (int value = 0; value < view_.num_values(); ++value) {
      const Tensor* tensor = view_.constant(value);
      if (!tensor) continue;
      const size_t hash = std::hash<std::string_view>()(FirstBytes(*tensor));
      const int first = known.Find(
          hash, [&](int other) { return Attribute(*view_.constant(other)) == Attribute(*tensor); });
      if (first >= 0) {
        same_[static_cast<size_t>(value)] = first;
      } else {
        known.Add(hash, value);
      }
    }
  }
  static std::string FirstBytes(const Tensor& tensor) {
    std::string out = tensor.Describe();
    const bool plain = tensor.is_dense() && tensor.layout().is_standard() && tensor.raw_data();
    if (!plain || !IsHostAccessible(tensor.device().type)) return out;
    const int64_t bytes = tensor.nbytes() < 256 ? tensor.nbytes() : 256;
    return out.append(static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(bytes));
  }

  // A value that is rewritten is another one before and after.
  bool IsPure(int node) const {
    const auto& def = graph_.node(node);
    const bool waited_for = !def.name().empty() && control_.Find(def.name()) >= 0;
    if (waited_for || HasEffect(def) || RewritesInputs(def)) return false;
    for (const auto values : {view_.inputs(node), view_.outputs(node)})
      for (const int value : values)
        if (value >= 0 && rewritten_[static_cast<size_t>(value)]) return false;
    return true;
  }
  size_t Hash(int node) const {
    const auto& def = graph_.node(node);
    size_t hash = std::hash<std::string_view>()(def.type()) + def.args().size();
    for (const int value : view_.inputs(node))
      hash = hash * 1000003 + static_cast<size_t>(value < 0 ? -1 : Same(value));
    for (size_t i = 0; i < def.args().size(); ++i)  // in any order
      hash += std::hash<std::string_view>()((def.args().begin() + static_cast<int>(i))->name);
    return hash ^ (hash >> 29);
  }
  bool IsSame(int a, int b) const {
    const auto ins_a = view_.inputs(a), ins_b = view_.inputs(b);
    const auto outs_a = view_.outputs(a), outs_b = view_.outputs(b);
    if (ins_a.size() != ins_b.size() || outs_a.size() != outs_b.size()) return false;
    for (size_t i = 0; i < ins_a.size(); ++i)
      if ((ins_a[i] < 0) != (ins_b[i] < 0) || (ins_a[i] >= 0 && Same(ins_a[i]) != Same(ins_b[i])))
        return false;
    for (size_t o = 0; o < outs_a.size(); ++o)
      if ((outs_a[o] < 0) != (outs_b[o] < 0)) return false;
    return SameOperation(graph_.node(a), graph_.node(b));
  }
  // Outputs of the graph keep their names: the first node takes that of its double, unless it has
  // such a name itself; then both stay, and only the first one is read.
  void Merge(int first, int node) {
    const auto kept = view_.outputs(first), gone = view_.outputs(node);
    bool names_clash = false;
    for (size_t o = 0; o < gone.size(); ++o)
      names_clash |= gone[o] >= 0 && view_.IsOutput(gone[o]) &&
                     view_.IsOutput(called_[static_cast<size_t>(kept[o])]);
    removed_[static_cast<size_t>(node)] = !names_clash;
    for (size_t o = 0; o < gone.size(); ++o) {
      if (gone[o] < 0) continue;
      same_[static_cast<size_t>(gone[o])] = kept[o];
      if (!names_clash && view_.IsOutput(gone[o])) called_[static_cast<size_t>(kept[o])] = gone[o];
    }
  }

  const G& graph_;
  const BasicGraphView<G> view_;
  const std::vector<char> rewritten_;  // by value
  const NameIndex control_;
  std::vector<char> removed_;
  std::vector<int> same_;    // by value: the one that is read in its place
  std::vector<int> called_;  // by value: the one whose name it gets
};

}  // namespace detail

// Nodes are the same by operator, inputs, attributes to the bit, subgraphs, device, engine and
// control inputs; constants by dtype, shape, device and bytes. What stays double: nodes with an
// effect (stateful operators, no outputs), those that read, write or make a value that is
// rewritten, and those that others wait for by name.
template <class G = Graph>
G MergeCommonSubexpressions(const G& graph) {
  return detail::SubexpressionMerger<G>(graph).Result();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_COMMON_SUBEXPRESSIONS_HPP_

// ---- opkit/graph/constant_folding.hpp
// FoldConstants: runs the nodes that have nothing but constants to read, and puts constants in
// their place.
#ifndef OPKIT_GRAPH_CONSTANT_FOLDING_HPP_
#define OPKIT_GRAPH_CONSTANT_FOLDING_HPP_

namespace opkit::inline OPKIT_ABI {

struct FoldOptions {
  // Of all outputs of a node together; a node that makes more stays. Where the schema tells the
  // size, such a node is not run.
  int64_t max_bytes = int64_t{512} << 20;
};

namespace detail {

template <class G>
class ConstantFolder {
 public:
  ConstantFolder(const G& graph, const FoldOptions& options)
      : graph_(graph),
        options_(options),
        view_(graph),
        rewritten_(RewrittenValues(view_)),
        control_(ControlNames(graph)),
        known_(static_cast<size_t>(view_.num_values())),
        folded_(static_cast<size_t>(graph.num_nodes()), 0) {
    for (int value = 0; value < view_.num_values(); ++value)
      if (view_.IsConstant(value)) known_[static_cast<size_t>(value)] = *view_.constant(value);
    for (const int node : view_.order()) folded_[static_cast<size_t>(node)] = Folds(node);
  }

  G Result() const {
    std::vector<typename G::Constant> constants;
    for (const auto& constant : graph_.constants()) {
      const int value = view_.FindValue(constant.name);
      if (view_.consumers(value).empty() || IsNeeded(value)) constants.push_back(constant);
    }
    std::vector<typename G::Def> nodes;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!folded_[static_cast<size_t>(node)]) {
        nodes.push_back(graph_.node(node));
        continue;
      }
      for (const int value : view_.outputs(node))
        if (value >= 0 && IsNeeded(value))
          constants.push_back({view_.name(value), known_[static_cast<size_t>(value)]});
    }
    return WithContents(graph_, std::move(constants), std::move(nodes));
  }

 private:
  bool IsNeeded(int value) const {
    bool needed = view_.IsOutput(value);
    for (const int node : view_.consumers(value)) needed |= !folded_[static_cast<size_t>(node)];
    return needed;
  }
  bool Folds(int node) {
    const auto& def = graph_.node(node);
    for (const int value : view_.inputs(node))
      if (value >= 0 && !known_[static_cast<size_t>(value)].initialized()) return false;
    for (const int value : view_.outputs(node))  // a constant may not be written to
      if (value >= 0 && rewritten_[static_cast<size_t>(value)]) return false;
    const bool waited_for = !def.name().empty() && control_.Find(def.name()) >= 0;
    if (waited_for || !def.control_inputs().empty() || !MayEvaluate(def)) return false;
    try {
      return !IsTooLarge(def, node) && Run(def, node);
    } catch (...) {
      return false;  // whatever is wrong with the node is reported where it runs
    }
  }
  // As far as the schema tells.
  bool IsTooLarge(const typename G::Def& def, int node) const {
    std::vector<TensorInfo> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? TensorInfo()
                                 : TensorInfo::Of(known_[static_cast<size_t>(value)], true));
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    double bytes = 0;
    for (const TensorInfo& output : schema.InferOutputs(def, std::move(inputs)))
      bytes += static_cast<double>(OpSchema::Bytes(output));
    return bytes > static_cast<double>(options_.max_bytes);
  }
  bool Run(const typename G::Def& def, int node) {
    std::vector<const Tensor*> inputs;
    for (const int value : view_.inputs(node))
      inputs.push_back(value < 0 ? nullptr : &known_[static_cast<size_t>(value)]);
    std::vector<Tensor> results = EvaluateNode(def, inputs);
    const auto outs = view_.outputs(node);
    int64_t bytes = 0;
    for (size_t o = 0; o < outs.size(); ++o) {
      if (outs[o] < 0) continue;
      bytes += results[o].nbytes();
      if (!results[o].initialized() || bytes > options_.max_bytes) return false;
    }
    for (size_t o = 0; o < outs.size(); ++o)
      if (outs[o] >= 0) known_[static_cast<size_t>(outs[o])] = std::move(results[o]);
    return true;
  }

  const G& graph_;
  const FoldOptions options_;
  const BasicGraphView<G> view_;
  const std::vector<char> rewritten_;  // by value
  const NameIndex control_;
  std::vector<Tensor> known_;  // by value; uninitialized where it is no constant
  std::vector<char> folded_;
};

}  // namespace detail

// Constants that only such nodes read go with them. What stays: nodes with an effect (stateful
// operators, no outputs), those that rewrite an input or whose output is rewritten, those that wait
// for others or are waited for by name, and those that do not run: an error shows where the graph
// runs. Operators run on the device of their node, if the host can reach its memory.
template <class G = Graph>
G FoldConstants(const G& graph, const FoldOptions& options = {}) {
  return detail::ConstantFolder<G>(graph, options).Result();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_CONSTANT_FOLDING_HPP_

// ---- opkit/graph/dead_nodes.hpp
// RemoveDeadNodes: drops the nodes and constants from which nothing that a run leaves behind can be
// reached.
#ifndef OPKIT_GRAPH_DEAD_NODES_HPP_
#define OPKIT_GRAPH_DEAD_NODES_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class G>
class LiveNodes {
 public:
  explicit LiveNodes(const BasicGraphView<G>& view)
      : graph_(view.graph()),
        view_(view),
        rewritten_(RewrittenValues(view)),
        live_(static_cast<size_t>(view.num_nodes()), 0) {
    for (int node = 0; node < view.num_nodes(); ++node) {
      const auto& def = graph_.node(node);
      if (!def.name().empty() && names_.Find(def.name()) < 0) {
        names_.Add(def.name());
        named_.push_back(node);
      }
    }
    for (int node = 0; node < view.num_nodes(); ++node)
      if (HasEffect(graph_.node(node))) Mark(node);
    for (const auto& rewrite : view.rewrites())  // an input's memory is the caller's
      if (view.IsInput(rewrite.value)) Mark(rewrite.node);
    for (const int output : view.outputs()) Need(output, view.num_nodes());
    while (!todo_.empty()) {
      const int node = todo_.back();
      todo_.pop_back();
      for (const int value : view.inputs(node))
        if (value >= 0) Need(value, node);
      for (const std::string& name : graph_.node(node).control_inputs())
        Mark(named_[static_cast<size_t>(names_.Find(name))]);
    }
  }

  bool operator[](int node) const { return live_[static_cast<size_t>(node)] != 0; }

 private:
  void Mark(int node) {
    if (!std::exchange(live_[static_cast<size_t>(node)], 1)) todo_.push_back(node);
  }
  // The value as it is when the node `reader` reads it: what rewrites it later does not matter.
  void Need(int value, int reader) {
    if (view_.producer(value) >= 0) Mark(view_.producer(value));
    if (!rewritten_[static_cast<size_t>(value)]) return;
    for (const auto& rewrite : view_.rewrites())
      if (rewrite.value == value && rewrite.node < reader) Mark(rewrite.node);
  }

  const G& graph_;
  const BasicGraphView<G>& view_;
  const std::vector<char> rewritten_;  // by value
  NameIndex names_;
  std::vector<int> named_;  // by the number in `names_`
  std::vector<char> live_;
  std::vector<int> todo_;
};

}  // namespace detail

// What stays: nodes that an output of the graph needs; those with an effect (no outputs, stateful
// operators) and those that rewrite an input of the graph; what these need, control inputs
// included. Constants that nothing reads go. Inputs and outputs of the graph stay as they are.
template <class G = Graph>
G RemoveDeadNodes(const G& graph) {
  const BasicGraphView<G> view(graph);
  const detail::LiveNodes<G> live(view);
  std::vector<typename G::Def> nodes;
  for (int node = 0; node < graph.num_nodes(); ++node)
    if (live[node]) nodes.push_back(graph.node(node));
  std::vector<typename G::Constant> constants;
  for (const auto& constant : graph.constants()) {
    const int value = view.FindValue(constant.name);
    bool used = view.IsOutput(value);
    for (const int node : view.consumers(value)) used |= live[node];
    if (used) constants.push_back(constant);
  }
  return detail::WithContents(graph, std::move(constants), std::move(nodes));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_DEAD_NODES_HPP_

// ---- opkit/graph/passes.hpp
// PassList: a named, ordered list of functions from graph to graph that a program extends, and the
// list that the toolkit begins with. What is computed in place is no pass's choice: the plan
// decides it for the kernels that were selected (Specialization::AllowInPlace).
#ifndef OPKIT_GRAPH_PASSES_HPP_
#define OPKIT_GRAPH_PASSES_HPP_

namespace opkit::inline OPKIT_ABI {

// A regular value; copies share the passes themselves. A pass returns a graph that computes the
// same outputs and leaves the same in the caller's inputs. Running is const: a list whose passes
// keep no state may run on several threads.
//
//   PassList passes = DefaultPasses();
//   passes.InsertAfter("fold_constants", "my_pass", [](Graph g) { …; return g; });
//   Graph better = passes.Run(graph);
//
// A template, so that programs that run no pass do not compile it.
template <class G>
class BasicPassList {
 public:
  using Pass = UniqueFunction<G(G)>;

  // At the end. Errors of all three: kAlreadyExists for a name that the list has, kInvalidArgument
  // for an empty name or pass, kNotFound, with the nearest name, for a place that it does not have.
  BasicPassList& Add(std::string name, Pass pass) {
    return Insert(passes_.size(), std::move(name), std::move(pass));
  }
  BasicPassList& InsertBefore(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place), std::move(name), std::move(pass));
  }
  BasicPassList& InsertAfter(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place) + 1, std::move(name), std::move(pass));
  }
  // Error (kNotFound), with the nearest name.
  BasicPassList& Remove(std::string_view name) {
    passes_.erase(passes_.begin() + static_cast<std::ptrdiff_t>(Find(name)));
    return *this;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& known : passes_) names.push_back(known->name);
    return names;
  }

  // The graph is checked before the first pass and after every one; an error of a pass, and of what
  // it made, names the pass.
  G Run(G graph) const { return Walk(std::move(graph), nullptr); }
  // As above; calls watch(name, before, after) after every pass:
  //   passes.Run(g, [](auto& name, auto& a, auto& b) { Log(name + "\n" + PrintGraph(a, b)); });
  G Run(G graph, FunctionRef<void(const std::string&, const G&, const G&)> watch) const {
    return Walk(std::move(graph), &watch);
  }

 private:
  using Watch = FunctionRef<void(const std::string&, const G&, const G&)>;
  struct Entry : detail::RefCounted {
    std::string name;
    Pass run;
  };

  size_t Find(std::string_view name) const {
    for (size_t i = 0; i < passes_.size(); ++i)
      if (passes_[i]->name == name) return i;
    Throw(ErrorCode::kNotFound, "the list has no pass '", name, "'", SuggestName(name, names()));
  }
  BasicPassList& Insert(size_t at, std::string name, Pass pass) {
    if (name.empty() || !pass)
      Throw(ErrorCode::kInvalidArgument, "pass '", name, "' needs a name and a function");
    for (const auto& known : passes_)
      if (known->name == name)
        Throw(ErrorCode::kAlreadyExists, "the list has a pass '", name,
              "' already; give this one another name");
    auto entry = detail::MakeIntrusive<Entry>();
    entry->name = std::move(name);
    entry->run = std::move(pass);
    passes_.insert(passes_.begin() + static_cast<std::ptrdiff_t>(at), std::move(entry));
    return *this;
  }
  G Walk(G graph, const Watch* watch) const {
    Check(graph);
    for (const auto& pass : passes_) {
      G before;
      if (watch) before = graph;
      const std::vector<std::string> outputs = graph.outputs();
      try {
        graph = pass->run(std::move(graph));
        Check(graph);
        for (const std::string& output : outputs)
          if (!graph.IsOutput(output))
            Throw(ErrorCode::kInvalidArgument, "the pass removed output '", output,
                  "' of the graph; a pass keeps what a run returns");
      } catch (Error& error) {
        error.AddContext("in pass '" + pass->name + "'");
        throw;
      } catch (const std::exception& thrown) {
        Error error(ErrorCode::kOperatorFailed, thrown.what());
        error.SetCause(std::current_exception());
        throw error.AddContext("in pass '" + pass->name + "'");
      }
      if (watch) (*watch)(pass->name, before, graph);
    }
    return graph;
  }

  std::vector<detail::IntrusivePtr<Entry>> passes_;
};
using PassList = BasicPassList<Graph>;

// remove_dead_nodes, fold_constants, merge_common_subexpressions: one run leaves nothing for a
// second one.
template <class G = Graph>
BasicPassList<G> DefaultPasses(FoldOptions options = {}) {
  BasicPassList<G> passes;
  passes.Add("remove_dead_nodes", [](const G& graph) { return RemoveDeadNodes(graph); });
  passes.Add("fold_constants", [options](const G& graph) { return FoldConstants(graph, options); });
  passes.Add("merge_common_subexpressions",
             [](const G& graph) { return MergeCommonSubexpressions(graph); });
  return passes;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_HPP_

// ---- opkit/graph/lifetime_types.hpp
// What is known of a run before its memory is planned: which steps order which, and which values
// they write and read. Plain numbers; what the planner and the verifier are both given.
#ifndef OPKIT_GRAPH_LIFETIME_TYPES_HPP_
#define OPKIT_GRAPH_LIFETIME_TYPES_HPP_

namespace opkit::inline OPKIT_ABI {

// The steps of a run, 0 to nodes - 1 in the order they are stored, and what the executor honours of
// their order.
struct RunOrder {
  int nodes = 0;
  // Pairs (before[i], after[i]): `after[i]` starts when `before[i]` has completed, asynchronous
  // part included. before[i] < after[i].
  std::vector<int> before;
  std::vector<int> after;
  // Empty: nothing but the edges orders steps, in any number of threads. Else the executor also
  // walks in stages: no step starts before all of a lower stage have returned. Ascending; 0, 1, 2,
  // … is one thread that walks the stored order.
  std::vector<int> stages;
  // Steps that return before they have completed; empty: none. Only with stages does it matter.
  std::vector<uint8_t> asynchronous;
};

// A value's bytes are live from the start of its producer until all users have completed.
struct RunValue {
  int64_t bytes = 0;
  int64_t alignment = 64;
  int producer = -1;       // -1: there when the run starts
  std::vector<int> users;  // steps that read it; scratch of a step has none
  bool kept = false;       // read after the run has ended
  bool external = false;   // memory of somebody else: not planned
  int view_of = -1;  // another value whose bytes it shares, from `view_offset` on; its producer
  int64_t view_offset = 0;  // is the step that makes the view
};

// `node`'s kernel may write value `output` over value `input`, which it reads.
struct InPlaceOption {
  int node = 0;
  int input = 0;
  int output = 0;
};

}  // namespace opkit

#endif  // OPKIT_GRAPH_LIFETIME_TYPES_HPP_

// ---- opkit/graph/lifetimes.hpp
// FindLifetimes: from the order that an executor keeps to the buffers that memory is planned for,
// and which of them can be live together in some legal run. Between selection, which says what
// steps read, write and may overwrite, and PlanMemory.
#ifndef OPKIT_GRAPH_LIFETIMES_HPP_
#define OPKIT_GRAPH_LIFETIMES_HPP_

namespace opkit::inline OPKIT_ABI {

// `buffers` and `conflicts` are what PlanMemory takes. A value's place in the arena is the offset
// of its buffer plus its offset in it.
struct MemoryLifetimes {
  std::vector<MemoryInterval> buffers;
  MemoryConflicts conflicts;              // empty: the buffers' spans decide
  std::vector<int> buffer_of;             // of each value; -1 for external ones
  std::vector<int64_t> offset_in_buffer;  // of each value
  std::vector<uint8_t> granted;           // of each in-place option, 1 where the values share bytes
  // Two buffers conflict only where a legal run has both live. False for a large graph without
  // stages, and for stages of several steps: some that conflict then could share.
  bool exact = true;
};

struct LifetimeOptions {
  // Up to so many steps without stages, conflicts are exact: steps squared bits, and 8 bytes for a
  // conflict. Above it, or past 8 million conflicts, lifetimes are read off the longest path: a
  // value is live between the last step on it before all its uses and the first one after them.
  int exact_nodes = 4096;
};

namespace detail {

inline constexpr int64_t kMostExactConflicts = 8'000'000;

// Step u has completed before step v starts, as far as it is known: always true where it says so.
template <class Run>
class StepOrder {
 public:
  StepOrder(const Run& run, bool exact) : run_(run) {
    const auto n = static_cast<size_t>(run.nodes);
    ListPredecessors();
    if (!run.stages.empty()) {
      ClockByStages();
    } else if (exact) {
      words_ = (n + 63) / 64;
      before_.assign(n * words_, 0);
      for (size_t v = 0; v < n; ++v) {
        start_.push_back(static_cast<int64_t>(v));
        done_.push_back(static_cast<int64_t>(v) + 1);
        for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
          const auto u = static_cast<size_t>(predecessors_[static_cast<size_t>(at)]);
          for (size_t w = 0; w < words_; ++w) before_[v * words_ + w] |= before_[u * words_ + w];
          before_[v * words_ + u / 64] |= uint64_t{1} << (u % 64);
        }
      }
      end_ = run.nodes;
    } else {
      ClockByLongestPath();
    }
  }

  bool Precedes(int u, int v) const {
    if (words_ > 0) return Bit(static_cast<size_t>(v), u);
    return done_[static_cast<size_t>(u)] <= start_[static_cast<size_t>(v)] || HasPath(u, v);
  }
  bool has_matrix() const { return words_ > 0; }
  size_t words() const { return words_; }
  // With a matrix: who precedes v, as bits.
  const uint64_t* Before(int v) const { return &before_[static_cast<size_t>(v) * words_]; }

  // Without a matrix done(u) <= start(v) only where u precedes v; with it they are the stored
  // order.
  int64_t start(int v) const { return start_[static_cast<size_t>(v)]; }
  int64_t done(int v) const { return done_[static_cast<size_t>(v)]; }
  // Before every step, and after.
  int64_t begin() const { return -1; }
  int64_t end() const { return end_; }

 private:
  bool Bit(size_t v, int u) const {
    return (before_[v * words_ + static_cast<size_t>(u) / 64] >> (u % 64)) & 1;
  }

  void ListPredecessors() {
    starts_.assign(static_cast<size_t>(run_.nodes) + 1, 0);
    predecessors_.resize(run_.after.size());
    for (int after : run_.after) ++starts_[static_cast<size_t>(after)];
    int64_t sum = 0;
    for (int64_t& start : starts_) start = sum += start;
    for (size_t e = run_.after.size(); e-- > 0;)
      predecessors_[static_cast<size_t>(--starts_[static_cast<size_t>(run_.after[e])])] =
          run_.before[e];
  }

  // A synchronous step is done when its stage is; an asynchronous one when a successor has started.
  // What order there is inside a stage is left to HasPath.
  void ClockByStages() {
    const auto n = static_cast<size_t>(run_.nodes);
    end_ = n == 0 ? 0 : int64_t{run_.stages[n - 1]} + 1;
    for (size_t v = 0; v < n; ++v) {
      start_.push_back(run_.stages[v]);
      const bool asynchronous = !run_.asynchronous.empty() && run_.asynchronous[v] != 0;
      done_.push_back(asynchronous ? end_ : int64_t{run_.stages[v]} + 1);
    }
    const auto alone = [&](size_t v) {
      return (v == 0 || run_.stages[v - 1] != run_.stages[v]) &&
             (v + 1 == n || run_.stages[v + 1] != run_.stages[v]);
    };
    for (size_t e = 0; e < run_.before.size(); ++e) {
      const auto after = static_cast<size_t>(run_.after[e]);
      const int64_t done = start_[after] + (alone(after) ? 0 : 1);
      int64_t& known = done_[static_cast<size_t>(run_.before[e])];
      if (done < known && done > start_[static_cast<size_t>(run_.before[e])]) known = done;
    }
  }

  // Steps on the longest path are the ticks. A step off it starts after the last tick that precedes
  // it and is done before the first tick that it precedes.
  void ClockByLongestPath() {
    const auto n = static_cast<size_t>(run_.nodes);
    std::vector<int> depth(n, 0), via(n, -1), tick(n, -1);
    int last = 0;
    for (size_t v = 0; v < n; ++v) {
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        const int u = predecessors_[static_cast<size_t>(at)];
        if (depth[static_cast<size_t>(u)] < depth[v]) continue;
        depth[v] = depth[static_cast<size_t>(u)] + 1;
        via[v] = u;
      }
      if (depth[v] > depth[static_cast<size_t>(last)]) last = static_cast<int>(v);
    }
    if (n == 0) return;
    const int ticks = depth[static_cast<size_t>(last)] + 1;
    for (int v = last; v >= 0; v = via[static_cast<size_t>(v)])
      tick[static_cast<size_t>(v)] = depth[static_cast<size_t>(v)];
    end_ = 2 * int64_t{ticks};
    start_.assign(n, -1);
    done_.assign(n, end_);
    for (size_t v = 0; v < n; ++v) {
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        const auto u = static_cast<size_t>(predecessors_[static_cast<size_t>(at)]);
        const int64_t after = tick[u] >= 0 ? 2 * int64_t{tick[u]} + 1 : start_[u];
        start_[v] = after > start_[v] ? after : start_[v];
      }
      if (tick[v] >= 0) start_[v] = 2 * int64_t{tick[v]};
    }
    for (size_t v = n; v-- > 0;) {
      if (tick[v] >= 0) done_[v] = 2 * int64_t{tick[v]} + 1;
      const int64_t before = tick[v] >= 0 ? 2 * int64_t{tick[v]} : done_[v];
      for (int64_t at = starts_[v]; at < starts_[v + 1]; ++at) {
        int64_t& done = done_[static_cast<size_t>(predecessors_[static_cast<size_t>(at)])];
        done = before < done ? before : done;
      }
    }
  }

  // Backwards along edges, for a while: an unknown order counts as none.
  bool HasPath(int u, int v) const {
    constexpr size_t kMostVisits = 256;
    if (u >= v) return false;
    std::vector<int> visits(1, v);
    for (size_t i = 0; i < visits.size(); ++i)
      for (int64_t at = starts_[static_cast<size_t>(visits[i])];
           at < starts_[static_cast<size_t>(visits[i]) + 1]; ++at) {
        const int before = predecessors_[static_cast<size_t>(at)];
        if (before == u) return true;
        if (before > u && visits.size() < kMostVisits) visits.push_back(before);
      }
    return false;
  }

  const Run& run_;
  std::vector<int64_t> starts_;  // of the predecessors of each step
  std::vector<int> predecessors_;
  std::vector<int64_t> start_, done_;
  int64_t end_ = 0;
  size_t words_ = 0;
  std::vector<uint64_t> before_;
};

template <class Run>
void CheckRunOrder(const Run& run) {
  if (run.nodes < 0)
    Throw(ErrorCode::kInvalidArgument, "expected 0 or more steps, found ", run.nodes);
  const auto n = static_cast<size_t>(run.nodes);
  if (run.before.size() != run.after.size())
    Throw(ErrorCode::kInvalidArgument, "expected both ends of every edge, found ",
          run.before.size(), " in `before` and ", run.after.size(), " in `after`");
  for (size_t e = 0; e < run.before.size(); ++e)
    if (run.before[e] < 0 || run.before[e] >= run.after[e] || run.after[e] >= run.nodes)
      Throw(ErrorCode::kInvalidArgument, "edge ", e, " goes from step ", run.before[e], " to step ",
            run.after[e], ": expected 0 <= before < after < ", run.nodes);
  if (!run.stages.empty() && run.stages.size() != n)
    Throw(ErrorCode::kInvalidArgument, "expected a stage for each of ", n,
          " steps, or none; found ", run.stages.size());
  for (size_t v = 1; v < run.stages.size(); ++v)
    if (run.stages[v] < run.stages[v - 1])
      Throw(ErrorCode::kInvalidArgument, "step ", v, " has stage ", run.stages[v],
            ", less than the step before it: expected ascending stages");
  if (!run.stages.empty() && run.stages[0] < 0)
    Throw(ErrorCode::kInvalidArgument, "step 0 has stage ", run.stages[0], ": expected 0 or more");
  if (!run.asynchronous.empty() && run.asynchronous.size() != n)
    Throw(ErrorCode::kInvalidArgument, "expected `asynchronous` for each of ", n,
          " steps, or none; found ", run.asynchronous.size());
}

template <class Run, class Value>
void CheckRunValue(const Run& run, const std::vector<Value>& values, size_t i) {
  const Value& value = values[i];
  if (value.bytes < 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has ", value.bytes,
          " bytes: expected 0 or more");
  if (value.alignment <= 0 || (value.alignment & (value.alignment - 1)) != 0)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " has alignment ", value.alignment,
          ": expected a power of two");
  if (value.producer < -1 || value.producer >= run.nodes)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is made by step ", value.producer,
          ": expected one of the ", run.nodes, " steps, or -1 for what is there before");
  for (int user : value.users)
    if (user < 0 || user >= run.nodes)
      Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
            ": expected one of the ", run.nodes, " steps");
  if (value.view_of < 0) return;
  if (static_cast<size_t>(value.view_of) >= values.size())
    Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of value ", value.view_of,
          ": expected one of the ", values.size(), " values");
  const int64_t viewed = values[static_cast<size_t>(value.view_of)].bytes;
  if (value.view_offset < 0 || value.view_offset > viewed ||
      value.bytes > viewed - value.view_offset)
    Throw(ErrorCode::kInvalidArgument, "value ", i, " views ", value.bytes, " bytes from byte ",
          value.view_offset, " of value ", value.view_of, ", which has ", viewed, " bytes");
}

// A value that is no view, with its views and whatever was granted its bytes.
template <class Run, class Value, class Lists = std::vector<std::vector<int>>>
class ValueMerger {
 public:
  ValueMerger(const Run& run, const std::vector<Value>& values, const StepOrder<Run>& order)
      : values_(values), order_(order), root_(values.size()), offset_(values.size()) {
    const size_t n = values.size();
    members_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      CheckRunValue(run, values, i);
      CheckUsers(i);
      size_t at = i, hops = 0;
      for (; values[at].view_of >= 0; at = static_cast<size_t>(values[at].view_of)) {
        if (static_cast<size_t>(values[at].view_of) >= n || ++hops > n)
          Throw(ErrorCode::kInvalidArgument, "value ", i, " is a view of itself");
        offset_[i] += values[at].view_offset;
      }
      root_[i] = static_cast<int>(at);
      members_[at].push_back(static_cast<int>(i));
    }
  }

  template <class Option>
  bool Grant(const Option& option, size_t index) {
    CheckOption(option, index);
    const auto input = static_cast<size_t>(option.input);
    const auto output = static_cast<size_t>(option.output);
    const auto kept = static_cast<size_t>(root_[input]);
    const auto merged = static_cast<size_t>(root_[output]);
    if (kept == merged || merged != output || values_[kept].external || values_[merged].external)
      return false;
    if (values_[output].bytes > values_[input].bytes ||
        offset_[input] % values_[output].alignment != 0)
      return false;
    int reads = 0;
    for (int i : members_[kept]) {
      const Value& value = values_[static_cast<size_t>(i)];
      if (value.kept || value.external) return false;
      for (int user : value.users) {
        if (user == option.node)
          ++reads;
        else if (!order_.Precedes(user, option.node))
          return false;
      }
      if (value.producer >= 0 && !order_.Precedes(value.producer, option.node)) return false;
    }
    if (reads != 1) return false;
    for (int i : members_[merged]) {
      const Value& value = values_[static_cast<size_t>(i)];
      if (value.producer != option.node &&
          (value.producer < 0 || !order_.Precedes(option.node, value.producer)))
        return false;
      for (int user : value.users)
        if (user != option.node && !order_.Precedes(option.node, user)) return false;
    }
    for (int i : members_[merged]) {
      root_[static_cast<size_t>(i)] = static_cast<int>(kept);
      offset_[static_cast<size_t>(i)] += offset_[input];
      members_[kept].push_back(i);
    }
    members_[merged].clear();
    return true;
  }

  const std::vector<int>& members(size_t root) const { return members_[root]; }
  int root(size_t value) const { return root_[value]; }
  int64_t offset(size_t value) const { return offset_[value]; }

 private:
  void CheckUsers(size_t i) const {
    const Value& value = values_[i];
    if (value.producer < 0) return;
    for (int user : value.users)
      if (user < value.producer ||
          (order_.has_matrix() && user != value.producer && !order_.Precedes(value.producer, user)))
        Throw(ErrorCode::kInvalidArgument, "value ", i, " is read by step ", user,
              ", which no edge orders after step ", value.producer, ", which makes it");
  }
  template <class Option>
  void CheckOption(const Option& option, size_t index) const {
    const auto count = static_cast<int>(values_.size());
    if (option.input < 0 || option.input >= count || option.output < 0 || option.output >= count)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, " is of values ", option.input,
            " and ", option.output, ": expected two of the ", count, " values");
    bool reads = false;
    for (int user : values_[static_cast<size_t>(option.input)].users) reads |= user == option.node;
    if (!reads || values_[static_cast<size_t>(option.output)].producer != option.node)
      Throw(ErrorCode::kInvalidArgument, "in-place option ", index, ": expected step ", option.node,
            " to read value ", option.input, " and to make value ", option.output);
  }

  const std::vector<Value>& values_;
  const StepOrder<Run>& order_;
  std::vector<int> root_;
  std::vector<int64_t> offset_;
  Lists members_;
};

// The steps that touch each buffer, in lists one after the other; the run's begin and end apart.
template <class Flags>
struct BufferUses {
  std::vector<int64_t> starts;
  std::vector<int> steps;
  Flags from_begin, to_end;
};

// A buffer precedes another when all steps that touch it have completed before any that touches
// the other starts. False when there are too many conflicts to list.
template <class Order, class Uses, class Conflicts>
bool ListExactConflicts(const Order& order, const Uses& uses, Conflicts* conflicts) {
  const size_t n = uses.from_begin.size(), words = order.words(), columns = (n + 63) / 64;
  std::vector<uint64_t> precedes(n * columns, 0);  // [b] holds those that precede buffer b
  std::vector<uint64_t> common(words);             // steps that precede every touch of b
  for (size_t b = 0; b < n; ++b) {
    if (uses.from_begin[b]) continue;
    common.assign(words, ~uint64_t{0});
    for (int64_t at = uses.starts[b]; at < uses.starts[b + 1]; ++at) {
      const uint64_t* before = order.Before(uses.steps[static_cast<size_t>(at)]);
      for (size_t w = 0; w < words; ++w) common[w] &= before[w];
    }
    for (size_t a = 0; a < n; ++a) {
      if (uses.to_end[a] || a == b) continue;
      bool all = true;
      for (int64_t at = uses.starts[a]; all && at < uses.starts[a + 1]; ++at) {
        const auto step = static_cast<size_t>(uses.steps[static_cast<size_t>(at)]);
        all = (common[step / 64] >> (step % 64)) & 1;
      }
      if (all) precedes[b * columns + a / 64] |= uint64_t{1} << (a % 64);
    }
  }
  for (size_t b = 0; b < n; ++b)
    for (size_t a = 0; a < n; ++a)
      if ((precedes[b * columns + a / 64] >> (a % 64)) & 1)
        precedes[a * columns + b / 64] |= uint64_t{1} << (b % 64);
  int64_t apart = 0;
  for (uint64_t word : precedes) apart += __builtin_popcountll(word);
  const auto all = static_cast<int64_t>(n) * (static_cast<int64_t>(n) - 1);
  if (all - apart > 2 * kMostExactConflicts) return false;
  conflicts->others.reserve(static_cast<size_t>(all - apart));
  for (size_t b = 0; b < n; ++b) {
    conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
    for (size_t a = 0; a < n; ++a)
      if (a != b && !((precedes[b * columns + a / 64] >> (a % 64)) & 1))
        conflicts->others.push_back(static_cast<int>(a));
  }
  conflicts->starts.push_back(static_cast<int64_t>(conflicts->others.size()));
  return true;
}

template <class Lifetimes, class Run, class Value, class Option>
Lifetimes FindLifetimes(const Run& run, const std::vector<Value>& values,
                        const std::vector<Option>& in_place, bool exact) {
  const StepOrder<Run> order(run, exact);
  ValueMerger<Run, Value> merger(run, values, order);
  Lifetimes out;
  for (size_t i = 0; i < in_place.size(); ++i)
    out.granted.push_back(merger.Grant(in_place[i], i) ? 1 : 0);
  out.exact = exact || !run.stages.empty();
  for (size_t v = 1; v < run.stages.size(); ++v)
    if (run.stages[v] == run.stages[v - 1]) out.exact = false;
  out.buffer_of.assign(values.size(), -1);
  out.offset_in_buffer.assign(values.size(), 0);
  BufferUses<decltype(out.granted)> uses;
  for (size_t root = 0; root < values.size(); ++root) {
    if (merger.members(root).empty() || values[root].external) continue;
    typename decltype(out.buffers)::value_type buffer{order.end(), order.begin(),
                                                      values[root].bytes, 1};
    uses.starts.push_back(static_cast<int64_t>(uses.steps.size()));
    bool from_begin = false, to_end = false;
    for (int member : merger.members(root)) {
      const auto m = static_cast<size_t>(member);
      const Value& value = values[m];
      out.buffer_of[m] = static_cast<int>(out.buffers.size());
      out.offset_in_buffer[m] = merger.offset(m);
      if (value.view_of < 0 && value.alignment > buffer.alignment)
        buffer.alignment = value.alignment;
      from_begin |= value.producer < 0;
      to_end |= value.kept;
      if (value.producer >= 0) uses.steps.push_back(value.producer);
      uses.steps.insert(uses.steps.end(), value.users.begin(), value.users.end());
    }
    for (auto at = static_cast<size_t>(uses.starts.back()); at < uses.steps.size(); ++at) {
      const int step = uses.steps[at];
      if (order.start(step) < buffer.lower) buffer.lower = order.start(step);
      if (order.done(step) > buffer.upper) buffer.upper = order.done(step);
    }
    if (from_begin) buffer.lower = order.begin();
    if (to_end) buffer.upper = order.end();
    if (buffer.upper <= buffer.lower) buffer.upper = buffer.lower + 1;
    uses.from_begin.push_back(from_begin);
    uses.to_end.push_back(to_end);
    out.buffers.push_back(buffer);
  }
  uses.starts.push_back(static_cast<int64_t>(uses.steps.size()));
  if (order.has_matrix() && !ListExactConflicts(order, uses, &out.conflicts))
    return FindLifetimes<Lifetimes>(run, values, in_place, false);
  return out;
}

}  // namespace detail

// Errors (kInvalidArgument) name the edge, value or option: an index out of range, an edge against
// the stored order, a view outside what it views, a user that is not ordered after the producer, an
// in-place option whose step does not read the input and make the output.
//
// An in-place option is granted, in the order given, when every other touch of the input's buffer
// completes before the step starts in every legal run, nobody reads the buffer after the run, it is
// planned memory, the output fits, and the step reads the buffer once.
template <class Lifetimes = MemoryLifetimes, class Run = RunOrder, class Value = RunValue,
          class Option = InPlaceOption>
Lifetimes FindLifetimes(const Run& run, const std::vector<Value>& values,
                        const std::vector<Option>& in_place = {},
                        const LifetimeOptions& options = {}) {
  detail::CheckRunOrder(run);
  const bool exact = run.stages.empty() && run.nodes > 0 && run.nodes <= options.exact_nodes;
  return detail::FindLifetimes<Lifetimes>(run, values, in_place, exact);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_LIFETIMES_HPP_

// ---- opkit/graph/plan_parts.hpp
// PlanParts: the types that a plan is made of. What is between Compile and the executor is a
// template over them, so that programs which run no graph do not compile it.
#ifndef OPKIT_GRAPH_PLAN_PARTS_HPP_
#define OPKIT_GRAPH_PLAN_PARTS_HPP_

namespace opkit::inline OPKIT_ABI {

// What was selected for a node.
struct NodeChoice {
  const Kernel* kernel = nullptr;
  KernelConfig config;
};

namespace detail {

// A class below takes from here, by the same name, what it would otherwise compile where it stands.
struct PlanParts {
  using Graph = opkit::Graph;
  using GraphInput = opkit::GraphInput;
  using GraphView = opkit::GraphView;
  using GraphTypes = opkit::GraphTypes;
  using OperatorBase = opkit::OperatorBase;
  using Event = opkit::Event;
  using ThreadPool = opkit::ThreadPool;
  using NodeChoice = opkit::NodeChoice;
  using ScheduleEdge = opkit::ScheduleEdge;
  using Schedule = opkit::Schedule;
  using RunOrder = opkit::RunOrder;
  using RunValue = opkit::RunValue;
  using InPlaceOption = opkit::InPlaceOption;
  using MemoryLifetimes = opkit::MemoryLifetimes;
  using MemoryPlan = opkit::MemoryPlan;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_PARTS_HPP_

// ---- opkit/graph/bound_nodes.hpp
// BoundNodes: the operators of a graph's nodes, made for known types in a workspace of their own.
// Between selection, which fixes a kernel and a configuration for each node, and the executor.
#ifndef OPKIT_GRAPH_BOUND_NODES_HPP_
#define OPKIT_GRAPH_BOUND_NODES_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Parts>
class BoundNodes {
  using GraphView = typename Parts::GraphView;
  using GraphTypes = typename Parts::GraphTypes;
  using NodeChoice = typename Parts::NodeChoice;
  using OperatorBase = typename Parts::OperatorBase;

 public:
  // Makes every operator, in the order of the view. Where `choices` is empty it selects, trying a
  // node's candidates until one takes it, and fills it in. Errors as CreateOperator's.
  BoundNodes(const GraphView& view, const GraphTypes& types, std::vector<NodeChoice>& choices) {
    const bool select = choices.empty();
    choices.resize(static_cast<size_t>(view.num_nodes()));
    operators_.resize(static_cast<size_t>(view.num_nodes()));
    for (int value = 0; value < view.num_values(); ++value) {
      Blob* blob = workspace_.CreateBlob(view.name(value));
      if (const Tensor* constant = view.constant(value)) *blob->GetMutable<Tensor>() = *constant;
      if (view.IsInput(value)) blob->GetMutable<Tensor>();
      blobs_.push_back(blob);
    }
    for (int node : view.order()) {
      NodeChoice& choice = choices[static_cast<size_t>(node)];
      CheckDevices(view, types, node);
      auto& op = operators_[static_cast<size_t>(node)];
      op = select ? Select(view, types, node, choice)
                  : CreateOperator(
                        view.graph().node(node), &workspace_,
                        {.kernel = choice.kernel, .config = &choice.config, .net_position = node});
      // What is known here need not be found again in every run.
      op->SetInferredOutputs(types.Of(view.inputs(node)), types.Of(view.outputs(node)));
    }
  }

  Workspace& workspace() { return workspace_; }
  OperatorBase& op(int node) const { return *operators_[static_cast<size_t>(node)]; }
  // Of a value. Inputs and constants hold a tensor; what nodes make is empty until it is written.
  Blob& blob(int value) const { return *blobs_[static_cast<size_t>(value)]; }

 private:
  std::unique_ptr<OperatorBase> Select(const GraphView& view, const GraphTypes& types, int node,
                                       NodeChoice& choice) {
    const auto& def = view.graph().node(node);
    KernelCandidate chosen;
    auto op = CreateSelected(def, &workspace_, types.Of(view.inputs(node)),
                             types.Of(view.outputs(node)), node, &chosen);
    choice = {chosen.kernel, std::move(chosen.config)};
    return op;
  }
  static void CheckDevices(const GraphView& view, const GraphTypes& types, int node) {
    const auto& def = view.graph().node(node);
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    if (schema.inputs_can_cross_devices()) return;
    const auto expected = schema.InferDevices(def).first;
    const auto ins = view.inputs(node);
    for (size_t i = 0; i < ins.size() && i < expected.size(); ++i) {
      if (ins[i] < 0) continue;
      const Device found = types[ins[i]].device;
      if (MemoryDevice(found) != MemoryDevice(expected[i]))
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(def), " reads '", view.name(ins[i]),
              "' on ", ToString(expected[i]), ", but it is on ", ToString(found),
              "; copy it there with a node that crosses devices, or place the nodes together");
    }
  }

  Workspace workspace_;
  std::vector<Blob*> blobs_;                              // by value
  std::vector<std::unique_ptr<OperatorBase>> operators_;  // by node; gone before the workspace
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_BOUND_NODES_HPP_

// ---- opkit/graph/memory_problem.hpp
// The memory planner's own form of its input: checked, empty buffers left out, sizes and alignments
// in the largest unit that divides them all, time cut into as few sections as tell lifetimes apart.
#ifndef OPKIT_GRAPH_MEMORY_PROBLEM_HPP_
#define OPKIT_GRAPH_MEMORY_PROBLEM_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The planner's functions are templates over this and what it is made from, so that programs which
// plan no memory do not compile them.
struct MemoryProblem {
  int count = 0;               // buffers that have a size
  std::vector<int> buffer;     // of each, its index in the input
  std::vector<int> size;       // in units
  std::vector<int> alignment;  // in units, a power of two
  std::vector<int> lower;      // sections [lower, upper) in which it is live
  std::vector<int> upper;
  int sections = 0;
  std::vector<int> total;       // of each section, units live in it
  std::vector<int64_t> starts;  // conflicts, as in MemoryConflicts; empty where there are too many
  std::vector<int> others;
  bool spans_decide = true;  // conflicts are those of the spans, no others
  int64_t pairs = 0;         // how many conflicts there are
  int64_t unit = 1;          // bytes
  int64_t rounding = 1;      // bytes that every size was rounded up to
  int bound = 0;             // units: no arena is smaller
  int64_t bound_bytes = 0;
  int64_t naive_bytes = 0;
};

// Stable; the keys stay where they are.
template <class Key>
void SortIndices(std::vector<int>& indices, const std::vector<Key>& keys) {
  std::vector<int> merged(indices.size());
  const size_t n = indices.size();
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t i = begin, middle = begin + width < n ? begin + width : n, j = middle;
      const size_t left = middle, end = middle + width < n ? middle + width : n;
      for (size_t k = begin; k < end; ++k) {
        const bool right = i == left || (j < end && keys[static_cast<size_t>(indices[j])] <
                                                        keys[static_cast<size_t>(indices[i])]);
        merged[k] = indices[right ? j++ : i++];
      }
    }
    indices.swap(merged);
  }
}

inline int64_t GreatestCommonDivisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Throws for a buffer that cannot be planned; the buffers' smallest alignment otherwise.
template <class Interval>
int64_t CheckMemoryIntervals(const std::vector<Interval>& intervals) {
  if (intervals.size() > 1'000'000'000)
    Throw(ErrorCode::kOutOfRange, "expected at most 1000000000 buffers, found ", intervals.size());
  int64_t smallest = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& buffer = intervals[i];
    if (buffer.lower >= buffer.upper)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " is live in [", buffer.lower, ", ",
            buffer.upper, "): expected lower < upper");
    if (buffer.size < 0)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " has ", buffer.size,
            " bytes: expected 0 or more");
    if (buffer.alignment <= 0 || (buffer.alignment & (buffer.alignment - 1)) != 0)
      Throw(ErrorCode::kInvalidArgument, "buffer ", i, " has alignment ", buffer.alignment,
            ": expected a power of two");
    if (buffer.size > 0 && (smallest == 0 || buffer.alignment < smallest))
      smallest = buffer.alignment;
  }
  return smallest == 0 ? 1 : smallest;
}

// Sizes, alignments and their unit.
template <class Interval, class Problem>
void MeasureBuffers(const std::vector<Interval>& intervals, Problem* problem) {
  const int64_t rounding = problem->rounding = CheckMemoryIntervals(intervals);
  int64_t unit = 0, worst = 0;  // worst: with the padding before each
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& buffer = intervals[i];
    if (buffer.size == 0) continue;
    problem->buffer.push_back(static_cast<int>(i));
    int64_t padded = 0;
    if (__builtin_add_overflow(buffer.size, rounding - 1, &padded) ||
        __builtin_add_overflow(worst, buffer.alignment - rounding, &worst) ||
        __builtin_add_overflow(worst, padded &= -rounding, &worst))
      Throw(ErrorCode::kOutOfRange, "the buffers' sizes add up to more than an int64 holds at ",
            "buffer ", i, " of ", buffer.size, " bytes");
    problem->naive_bytes += padded;
    unit = GreatestCommonDivisor(padded, unit);
  }
  problem->count = static_cast<int>(problem->buffer.size());
  if (problem->count == 0) return;
  for (int i : problem->buffer) {
    const int64_t alignment = intervals[static_cast<size_t>(i)].alignment;
    if (unit % alignment != 0) unit = GreatestCommonDivisor(unit, alignment);
  }
  // Offsets are int: where the exact unit is too small for that, sizes are rounded up to a larger
  // one, by less than 2^-28 of them all.
  while (worst / unit + problem->count >= int64_t{1} << 29) unit *= 2;
  problem->unit = unit;
  for (int i : problem->buffer) {
    const Interval& buffer = intervals[static_cast<size_t>(i)];
    const int64_t alignment = buffer.alignment / unit;
    problem->size.push_back(static_cast<int>((buffer.size - 1) / unit + 1));
    problem->alignment.push_back(static_cast<int>(alignment > 1 ? alignment : 1));
  }
}

// Sections end where a buffer ends after another began: every other moment's live set is part of
// one of theirs.
template <class Interval, class Problem>
void CutSections(const std::vector<Interval>& intervals, Problem* problem) {
  const size_t n = problem->buffer.size();
  std::vector<int64_t> lower, upper;
  std::vector<int> begins, ends;
  for (size_t i = 0; i < n; ++i) {
    const Interval& buffer = intervals[static_cast<size_t>(problem->buffer[i])];
    lower.push_back(buffer.lower);
    upper.push_back(buffer.upper);
    begins.push_back(static_cast<int>(i));
  }
  ends = begins;
  SortIndices(begins, lower);
  SortIndices(ends, upper);
  problem->lower.resize(n);
  problem->upper.resize(n);
  int live = 0;
  bool began = false;
  int64_t live_bytes = 0;
  for (size_t b = 0, e = 0; e < n;) {
    const auto end = static_cast<size_t>(ends[e]);
    if (b < n && lower[static_cast<size_t>(begins[b])] < upper[end]) {
      const auto begin = static_cast<size_t>(begins[b++]);
      problem->lower[begin] = problem->sections;
      problem->pairs += live++;
      live_bytes +=
          (intervals[static_cast<size_t>(problem->buffer[begin])].size + problem->rounding - 1) &
          -problem->rounding;
      problem->bound_bytes = live_bytes > problem->bound_bytes ? live_bytes : problem->bound_bytes;
      began = true;
    } else {
      if (began) ++problem->sections;
      began = false;
      problem->upper[end] = problem->sections;
      --live;
      live_bytes -=
          (intervals[static_cast<size_t>(problem->buffer[end])].size + problem->rounding - 1) &
          -problem->rounding;
      ++e;
    }
  }
  problem->total.assign(static_cast<size_t>(problem->sections) + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    problem->total[static_cast<size_t>(problem->lower[i])] += problem->size[i];
    problem->total[static_cast<size_t>(problem->upper[i])] -= problem->size[i];
  }
  for (size_t s = 0; s < problem->total.size(); ++s) {
    if (s > 0) problem->total[s] += problem->total[s - 1];
    problem->bound = problem->total[s] > problem->bound ? problem->total[s] : problem->bound;
  }
}

// The conflicts of overlapping spans as lists. Costs time and space by their number.
template <class Problem>
void ListConflicts(Problem* problem) {
  const size_t n = problem->buffer.size();
  std::vector<int> order, live;
  for (size_t i = 0; i < n; ++i) order.push_back(static_cast<int>(i));
  SortIndices(order, problem->lower);
  problem->starts.assign(n + 1, 0);
  // Twice the same sweep: first it counts, then it fills.
  for (const bool fill : {false, true}) {
    live.clear();
    for (int i : order) {
      size_t kept = 0;
      for (int other : live) {
        if (problem->upper[static_cast<size_t>(other)] <= problem->lower[static_cast<size_t>(i)])
          continue;
        live[kept++] = other;
        int64_t& at = problem->starts[static_cast<size_t>(i)];
        int64_t& at_other = problem->starts[static_cast<size_t>(other)];
        if (fill) {
          problem->others[static_cast<size_t>(--at)] = other;
          problem->others[static_cast<size_t>(--at_other)] = i;
        } else {
          ++at;
          ++at_other;
        }
      }
      live.resize(kept);
      live.push_back(i);
    }
    if (fill) break;
    int64_t sum = 0;  // then starts[i] is the end of i's list, and filling walks down to its start
    for (int64_t& start : problem->starts) start = sum += start;
    problem->others.resize(static_cast<size_t>(sum));
  }
}

// Each list's reverse: who lists i. The lists come out in ascending order.
template <class Conflicts>
Conflicts TransposeConflicts(const Conflicts& conflicts) {
  Conflicts out;
  const size_t n = conflicts.starts.size() - 1;
  out.starts.assign(n + 1, 0);
  out.others.resize(conflicts.others.size());
  for (int other : conflicts.others) ++out.starts[static_cast<size_t>(other)];
  int64_t sum = 0;
  for (int64_t& start : out.starts) start = sum += start;
  for (size_t i = n; i-- > 0;)
    for (int64_t at = conflicts.starts[i + 1]; at-- > conflicts.starts[i];) {
      const auto other = static_cast<size_t>(conflicts.others[static_cast<size_t>(at)]);
      out.others[static_cast<size_t>(--out.starts[other])] = static_cast<int>(i);
    }
  return out;
}

template <class Conflicts>
void CheckConflicts(size_t n, const Conflicts& conflicts) {
  if (conflicts.starts.size() != n + 1 || conflicts.starts[0] != 0 ||
      conflicts.starts[n] != static_cast<int64_t>(conflicts.others.size()))
    Throw(ErrorCode::kInvalidArgument, "expected the starts of ", n, " conflict lists and their ",
          "end, from 0 to ", conflicts.others.size(), "; found ", conflicts.starts.size(),
          " numbers");
  for (size_t i = 0; i < n; ++i)
    if (conflicts.starts[i] > conflicts.starts[i + 1])
      Throw(ErrorCode::kInvalidArgument, "the conflict list of buffer ", i, " ends at ",
            conflicts.starts[i + 1], ", before its start at ", conflicts.starts[i]);
  for (size_t i = 0; i < n; ++i)
    for (int64_t at = conflicts.starts[i]; at < conflicts.starts[i + 1]; ++at) {
      const int other = conflicts.others[static_cast<size_t>(at)];
      if (other < 0 || static_cast<size_t>(other) >= n || static_cast<size_t>(other) == i)
        Throw(ErrorCode::kInvalidArgument, "buffer ", i, " lists a conflict with buffer ", other,
              ": expected another of the ", n, " buffers");
    }
}

// A set of buffers that are all in conflict with each other can be larger than any live set of the
// given spans: grows the largest of these by whoever conflicts with all of it.
template <class Problem>
void RaiseBound(Problem* problem) {
  const size_t n = problem->buffer.size();
  int peak = 0;
  for (int s = 1; s < problem->sections; ++s)
    if (problem->total[static_cast<size_t>(s)] > problem->total[static_cast<size_t>(peak)])
      peak = s;
  std::vector<int> met(n, 0);  // members in conflict with it; -1 for a member
  int members = 0;
  const auto join = [&](size_t i) {
    met[i] = -1;
    ++members;
    for (int64_t at = problem->starts[i]; at < problem->starts[i + 1]; ++at) {
      int& count = met[static_cast<size_t>(problem->others[static_cast<size_t>(at)])];
      if (count >= 0) ++count;
    }
  };
  for (size_t i = 0; i < n; ++i)
    if (problem->lower[i] <= peak && peak < problem->upper[i]) join(i);
  for (;;) {
    size_t best = n;
    for (size_t i = 0; i < n; ++i)
      if (met[i] == members && (best == n || problem->size[i] > problem->size[best])) best = i;
    if (best == n) return;
    join(best);
    problem->bound += problem->size[best];
  }
}

// Checked conflicts, renumbered without the empty buffers.
template <class Conflicts, class Problem>
void TakeConflicts(const Conflicts& conflicts, size_t n, Problem* problem) {
  CheckConflicts(n, conflicts);
  const Conflicts reverse = TransposeConflicts(conflicts);
  const Conflicts sorted = TransposeConflicts(reverse);
  std::vector<int> number(n, -1);
  for (size_t i = 0; i < problem->buffer.size(); ++i)
    number[static_cast<size_t>(problem->buffer[i])] = static_cast<int>(i);
  int64_t overlapping = 0;
  problem->starts.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    int last = -1;
    for (int64_t at = sorted.starts[i]; at < sorted.starts[i + 1]; ++at) {
      const int other = sorted.others[static_cast<size_t>(at)];
      if (sorted.starts[i + 1] != reverse.starts[i + 1] ||
          reverse.others[static_cast<size_t>(at)] != other)
        Throw(ErrorCode::kInvalidArgument, "expected every conflict on the lists of both buffers; ",
              "the lists of buffer ", i, " and its partners do not agree");
      if (number[i] < 0 || number[static_cast<size_t>(other)] < 0 || other == last) continue;
      last = other;
      const auto a = static_cast<size_t>(number[i]);
      const auto b = static_cast<size_t>(number[static_cast<size_t>(other)]);
      problem->others.push_back(number[static_cast<size_t>(other)]);
      if (problem->lower[a] < problem->upper[b] && problem->lower[b] < problem->upper[a])
        ++overlapping;
    }
    if (number[i] >= 0) problem->starts.push_back(static_cast<int64_t>(problem->others.size()));
  }
  if (overlapping != 2 * problem->pairs)
    Throw(ErrorCode::kInvalidArgument, "the spans of ", problem->pairs, " pairs of buffers ",
          "overlap, but only ", overlapping / 2, " of these pairs are listed as conflicts");
  const auto listed = static_cast<int64_t>(problem->others.size()) / 2;
  problem->spans_decide = listed == problem->pairs;
  problem->pairs = listed;
  if (!problem->spans_decide) RaiseBound(problem);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_PROBLEM_HPP_

// ---- opkit/graph/memory_fit.hpp
// Ways to place buffers one after the other, each as low as it goes: between what conflicts with
// it, on top of it, or as an allocator at run time would.
#ifndef OPKIT_GRAPH_MEMORY_FIT_HPP_
#define OPKIT_GRAPH_MEMORY_FIT_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline int AlignUnits(int offset, int alignment) { return (offset + alignment - 1) & -alignment; }

// The best placing found so far.
struct Placing {
  std::vector<int> offsets;
  int height = 0;
  const char* method = nullptr;  // null: none yet
};

struct SearchBudget {
  int64_t deadline_ns = -1;  // none
  int64_t steps = 0;         // left
  uint64_t seed = 0;
  int enough = 0;
};

inline void KeepIfLower(const std::vector<int>& offsets, int height, const char* method,
                        Placing* best) {
  if (best->method && height >= best->height) return;
  best->offsets = offsets;
  best->height = height;
  best->method = method;
}

// Places buffers one by one at the lowest offset where they fit between those of their conflict
// list that were placed before: O(conflicts), with gaps below the top filled.
template <class Problem>
class LowestFit {
 public:
  explicit LowestFit(const Problem& problem) : problem_(problem) {}

  // Returns the height; `offsets` is written whole.
  int Place(const std::vector<int>& order, std::vector<int>* offsets) {
    offsets->assign(order.size(), -1);
    int height = 0;
    for (int buffer : order) {
      const auto b = static_cast<size_t>(buffer);
      taken_.clear();
      for (int64_t at = problem_.starts[b]; at < problem_.starts[b + 1]; ++at) {
        const auto other = static_cast<size_t>(problem_.others[static_cast<size_t>(at)]);
        const int offset = (*offsets)[other];
        // Offset and end in one number, so that sorting by offset moves both.
        if (offset >= 0) taken_.push_back(int64_t{offset} << 32 | (offset + problem_.size[other]));
      }
      SortTaken();
      int free = 0;
      for (int64_t span : taken_) {
        if (static_cast<int>(span >> 32) - free >= problem_.size[b]) break;
        const int end = static_cast<int>(span & 0xffffffff);
        if (end > free) free = AlignUnits(end, problem_.alignment[b]);
      }
      (*offsets)[b] = free;
      height = free + problem_.size[b] > height ? free + problem_.size[b] : height;
    }
    return height;
  }

 private:
  // Shell sort: the lists are short, tens of spans.
  void SortTaken() {
    for (size_t gap : {701u, 301u, 132u, 57u, 23u, 10u, 4u, 1u})
      for (size_t i = gap; i < taken_.size(); ++i) {
        const int64_t span = taken_[i];
        size_t j = i;
        for (; j >= gap && taken_[j - gap] > span; j -= gap) taken_[j] = taken_[j - gap];
        taken_[j] = span;
      }
  }

  const Problem& problem_;
  std::vector<int64_t> taken_;
};

inline constexpr int kMostInMatrix = 8192;  // 8 MiB of bits

// Places the tail of an order anew on what its head placed. Conflicts are a bit matrix and what is
// placed is kept by offset, so that a scan for a gap has no branch to mispredict.
template <class Problem>
class MatrixFit {
 public:
  explicit MatrixFit(const Problem& problem, bool used = true)
      : problem_(problem), count_(static_cast<size_t>(problem.count)), words_((count_ + 63) / 64) {
    if (!used) return;
    conflict_.assign(count_ * words_, 0);
    for (size_t i = 0; i < count_; ++i)
      for (int64_t at = problem.starts[i]; at < problem.starts[i + 1]; ++at) {
        const auto other = static_cast<size_t>(problem.others[static_cast<size_t>(at)]);
        conflict_[i * words_ + other / 64] |= uint64_t{1} << (other % 64);
      }
  }

  // Places order[first] and what follows; those before it lie at `offsets`. Gives up with -1 as
  // soon as the height is above `limit`; the height otherwise.
  int Place(const std::vector<int>& order, size_t first, int limit, std::vector<int>* offsets) {
    placed_.clear();
    int height = 0;
    sorted_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first));
    SortIndices(sorted_, *offsets);
    for (int buffer : sorted_) {
      const auto b = static_cast<size_t>(buffer);
      const int end = (*offsets)[b] + problem_.size[b];
      placed_.push_back({(*offsets)[b], end, buffer});
      height = end > height ? end : height;
    }
    for (size_t at = first; at < count_; ++at) {
      const auto b = static_cast<size_t>(order[at]);
      const uint64_t* conflict = &conflict_[b * words_];
      const int size = problem_.size[b], alignment = problem_.alignment[b];
      int offset = 0, top = 0;
      for (const Span& span : placed_) {
        const auto other = static_cast<unsigned>(span.buffer);
        const int in_conflict = static_cast<int>((conflict[other / 64] >> (other % 64)) & 1);
        if (in_conflict & static_cast<int>(span.offset - offset >= size)) break;
        const int end = span.end & -in_conflict;
        top = end > top ? end : top;
        offset = AlignUnits(top, alignment);
      }
      const int end = offset + size;
      height = end > height ? end : height;
      if (height > limit) return -1;
      (*offsets)[b] = offset;
      Insert({offset, end, order[at]});
    }
    return height;
  }

 private:
  struct Span {
    int offset, end, buffer;
  };
  // Keeps the order by offset.
  void Insert(Span span) {
    placed_.push_back(span);
    size_t i = placed_.size() - 1;
    for (; i > 0 && placed_[i - 1].offset > span.offset; --i) placed_[i] = placed_[i - 1];
    placed_[i] = span;
  }

  const Problem& problem_;
  const size_t count_, words_;
  std::vector<uint64_t> conflict_;
  std::vector<Span> placed_;
  std::vector<int> sorted_;
};

// The top of what is placed, over time: raising a span and asking for its highest point cost
// O(log sections), whatever is placed. For more conflicts than can be listed.
class Skyline {
 public:
  explicit Skyline(int sections) {
    while (leaves_ < static_cast<size_t>(sections)) leaves_ *= 2;
    highest_.assign(2 * leaves_, 0);
    floor_.assign(2 * leaves_, 0);
  }
  int Highest(int lower, int upper) const { return Highest(1, 0, leaves_, Span(lower, upper)); }
  // To a height that is not below Highest(lower, upper).
  void Raise(int lower, int upper, int height) { Raise(1, 0, leaves_, Span(lower, upper), height); }

 private:
  struct Span {
    Span(int l, int u) : lower(static_cast<size_t>(l)), upper(static_cast<size_t>(u)) {}
    size_t lower, upper;
  };
  // highest_ of a node: over its span, from within it; floor_: what its whole span was raised to.
  int Highest(size_t node, size_t begin, size_t end, Span span) const {
    if (span.upper <= begin || end <= span.lower) return 0;
    if (span.lower <= begin && end <= span.upper) return highest_[node];
    const size_t middle = (begin + end) / 2;
    const int left = Highest(2 * node, begin, middle, span);
    const int right = Highest(2 * node + 1, middle, end, span);
    const int inside = left > right ? left : right;
    return inside > floor_[node] ? inside : floor_[node];
  }
  void Raise(size_t node, size_t begin, size_t end, Span span, int height) {
    if (span.upper <= begin || end <= span.lower) return;
    if (height > highest_[node]) highest_[node] = height;
    if (span.lower <= begin && end <= span.upper) {
      floor_[node] = height;
      return;
    }
    const size_t middle = (begin + end) / 2;
    Raise(2 * node, begin, middle, span, height);
    Raise(2 * node + 1, middle, end, span, height);
  }

  size_t leaves_ = 1;
  std::vector<int> highest_, floor_;
};

template <class Problem>
int PlaceOnSkyline(const Problem& problem, const std::vector<int>& order,
                   std::vector<int>* offsets) {
  Skyline skyline(problem.sections);
  offsets->assign(order.size(), 0);
  int height = 0;
  for (int buffer : order) {
    const auto b = static_cast<size_t>(buffer);
    const int offset =
        AlignUnits(skyline.Highest(problem.lower[b], problem.upper[b]), problem.alignment[b]);
    skyline.Raise(problem.lower[b], problem.upper[b], offset + problem.size[b]);
    (*offsets)[b] = offset;
    height = offset + problem.size[b] > height ? offset + problem.size[b] : height;
  }
  return height;
}

// As an allocator at run time would: in the order of begin, into the smallest gap that fits, below
// what is live. O(live buffers) for each.
template <class Problem>
int PlaceInTime(const Problem& problem, const std::vector<int>& by_lower,
                std::vector<int>* offsets) {
  offsets->assign(by_lower.size(), 0);
  std::vector<int> live;  // in the order of offset
  int height = 0;
  for (int buffer : by_lower) {
    const auto b = static_cast<size_t>(buffer);
    const int size = problem.size[b];
    int best = -1, best_gap = 0, free = 0;
    size_t kept = 0, place = 0;
    for (int other : live) {
      const auto o = static_cast<size_t>(other);
      if (problem.upper[o] <= problem.lower[b]) continue;
      const int start = AlignUnits(free, problem.alignment[b]);
      const int gap = (*offsets)[o] - start;
      if (gap >= size && (best < 0 || gap < best_gap)) {
        best = start;
        best_gap = gap;
        place = kept;
      }
      free = (*offsets)[o] + problem.size[o];
      live[kept++] = other;
    }
    if (best < 0) {
      best = AlignUnits(free, problem.alignment[b]);
      place = kept;
    }
    live.resize(kept);
    live.insert(live.begin() + static_cast<std::ptrdiff_t>(place), buffer);
    (*offsets)[b] = best;
    height = best + size > height ? best + size : height;
  }
  return height;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_FIT_HPP_

// ---- opkit/graph/memory_greedy.hpp
// The greedy portfolio of the memory planner. No one order of placing wins everywhere, so several
// are tried.
#ifndef OPKIT_GRAPH_MEMORY_GREEDY_HPP_
#define OPKIT_GRAPH_MEMORY_GREEDY_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// By descending key; equal ones by descending size.
template <class Problem>
std::vector<int> OrderBy(const Problem& problem, const std::vector<int64_t>& keys) {
  std::vector<int> order;
  std::vector<int64_t> descending;
  for (int i = 0; i < problem.count; ++i) {
    order.push_back(i);
    descending.push_back(-int64_t{problem.size[static_cast<size_t>(i)]});
  }
  SortIndices(order, descending);
  for (size_t i = 0; i < keys.size(); ++i) descending[i] = -keys[i];
  SortIndices(order, descending);
  return order;
}

// Work that the portfolio may do, in conflicts looked at; about 20 ns each.
inline constexpr int64_t kPortfolioWork = 15'000'000;

// Several orders, the best kept; stops at the lower bound.
template <class Problem>
void TryPortfolio(const Problem& problem, int enough, Placing* best) {
  const auto n = static_cast<size_t>(problem.count);
  std::vector<int64_t> length(n), area(n), size(n), start(n), peak(n), crowd(n);
  for (size_t i = 0; i < n; ++i) {
    size[i] = problem.size[i];
    length[i] = problem.upper[i] - problem.lower[i];
    area[i] = size[i] * length[i];
    start[i] = -problem.lower[i];
  }
  std::vector<int> offsets;
  int64_t work = 0;
  const auto done = [&] { return best->method && best->height <= enough; };
  if (problem.spans_decide && problem.pairs <= 25 * kPortfolioWork) {
    const int height = PlaceInTime(problem, OrderBy(problem, start), &offsets);
    KeepIfLower(offsets, height, "greedy in time", best);
    work += problem.pairs / 2;
  }
  const bool listed = !problem.starts.empty();
  if (listed) {
    for (size_t i = 0; i < n; ++i)
      for (int64_t at = problem.starts[i]; at < problem.starts[i + 1]; ++at)
        crowd[i] += problem.size[static_cast<size_t>(problem.others[static_cast<size_t>(at)])];
  }
  if (problem.spans_decide && problem.pairs <= 2 * kPortfolioWork) {
    for (size_t i = 0; i < n; ++i)
      for (int s = problem.lower[i]; s < problem.upper[i]; ++s) {
        const int64_t total = problem.total[static_cast<size_t>(s)];
        peak[i] = total > peak[i] ? total : peak[i];
      }
  }
  // A matrix of all pairs beats lists that name a sixteenth of them.
  const int64_t all_pairs = int64_t{problem.count} * problem.count / 2;
  const bool dense = listed && problem.count <= kMostInMatrix && problem.pairs > all_pairs / 16;
  LowestFit fit(problem);
  MatrixFit matrix_fit(problem, dense);
  const auto attempt = [&](const char* name, const std::vector<int64_t>& keys) {
    if (done() || work > kPortfolioWork) return;
    const std::vector<int> order = OrderBy(problem, keys);
    int height = 0;
    if (dense) {
      offsets.assign(n, 0);
      height = matrix_fit.Place(order, 0, (std::numeric_limits<int>::max)(), &offsets);
      work += all_pairs / 16;
    } else if (listed) {
      height = fit.Place(order, &offsets);
      work += 2 * problem.pairs + 10 * problem.count;
    } else {
      height = PlaceOnSkyline(problem, order, &offsets);
      work += 20 * problem.count;
    }
    KeepIfLower(offsets, height, name, best);
  };
  attempt("greedy by size", size);
  attempt("greedy by lifetime", length);
  attempt("greedy by area", area);
  attempt("greedy by crowd", crowd);
  attempt("greedy by peak", peak);
  attempt("greedy by start", start);
  // Padding is least where the coarsest alignments lie lowest.
  std::vector<int64_t> alignment(problem.alignment.begin(), problem.alignment.end());
  attempt("greedy by alignment", alignment);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_GREEDY_HPP_

// ---- opkit/graph/memory_anneal.hpp
// The search where conflicts are more than spans of time say: annealing over the order in which
// buffers are placed, each at the lowest offset that is free.
#ifndef OPKIT_GRAPH_MEMORY_ANNEAL_HPP_
#define OPKIT_GRAPH_MEMORY_ANNEAL_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A move takes a buffer that makes the height, or one below it that conflicts with it, and places
// it earlier. Of the neighbourhoods tried (insert anywhere, swap, move a block, several inserts,
// the topmost buffers alone) it came lowest in equal time. A few buffers whose bound cannot be
// reached have soon been in every order: it gives up when many moves have found nothing lower.
template <class Problem>
void AnnealOrder(const Problem& problem, SearchBudget budget, Placing* best) {
  if (problem.count > kMostInMatrix) return;
  const auto n = static_cast<size_t>(problem.count);
  constexpr double kHeat = 0.003;  // of the bound, falling to 0 with the budget
  const int64_t patience = int64_t{2000} * problem.count;  // moves
  RandomGenerator random(budget.seed);
  const auto below = [&](size_t m) { return static_cast<size_t>(random() % m); };
  MatrixFit placer(problem);
  std::vector<int> order(n), place(n), candidate, earlier, offsets = best->offsets, trial;
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
  SortIndices(order, offsets);
  int height = placer.Place(order, 0, 1 << 30, &offsets);
  KeepIfLower(offsets, height, "annealing", best);
  const int64_t began_ns = MonotonicNs(), all_steps = budget.steps;
  for (int64_t idle = 0; best->height > budget.enough && budget.steps > 0 && idle < patience;
       ++idle) {
    budget.steps -= int64_t{problem.count} * (problem.count / 8 + 1);
    double left = static_cast<double>(budget.steps) / static_cast<double>(all_steps);
    if (budget.deadline_ns >= 0) {
      const int64_t now_ns = MonotonicNs();
      if (now_ns >= budget.deadline_ns) return;
      const double time_left = static_cast<double>(budget.deadline_ns - now_ns) /
                               static_cast<double>(budget.deadline_ns - began_ns);
      left = time_left < left ? time_left : left;
    }
    earlier.clear();
    for (size_t i = 0; i < n; ++i) {
      place[static_cast<size_t>(order[i])] = static_cast<int>(i);
      if (offsets[i] + problem.size[i] == height) earlier.push_back(static_cast<int>(i));
    }
    auto moved = static_cast<size_t>(earlier[below(earlier.size())]);
    if (below(2) == 0) {
      earlier.clear();
      for (int64_t at = problem.starts[moved]; at < problem.starts[moved + 1]; ++at) {
        const int other = problem.others[static_cast<size_t>(at)];
        if (place[static_cast<size_t>(other)] < place[moved]) earlier.push_back(other);
      }
      if (!earlier.empty()) moved = static_cast<size_t>(earlier[below(earlier.size())]);
    }
    const auto from = static_cast<size_t>(place[moved]);
    if (from == 0) continue;
    const size_t to = below(from);
    candidate = order;
    for (size_t i = from; i > to; --i) candidate[i] = candidate[i - 1];
    candidate[to] = static_cast<int>(moved);
    const double heat = kHeat * left * problem.bound;
    const int limit = height + static_cast<int>(-heat * __builtin_log(1 - random.uniform()));
    trial = offsets;
    const int reached = placer.Place(candidate, to, limit, &trial);
    if (reached < 0) continue;
    height = reached;
    order.swap(candidate);
    offsets.swap(trial);
    if (height < best->height) idle = 0;
    KeepIfLower(offsets, height, "annealing", best);
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_ANNEAL_HPP_

// ---- opkit/graph/memory_valley.hpp
// The search for a placing under a given ceiling, where spans of time alone decide conflicts.
// Buffers are stacked on a skyline (address over time). Each step takes a valley of it, a run of
// sections lower than both neighbours, and decides what lies on its floor at one of its two edges:
// one of the few buffers that reach the edge and fit between the walls, or nothing, and that much
// is lost.
//
// A section whose floor and unplaced sizes together pass the ceiling ends a branch (section floors
// as in MiniMalloc: Moffitt, ASPLOS 2023). The edge with the fewest choices for its record of
// failures is decided first (dom/wdeg: Boussemart et al., ECAI 2004), and a search that has failed
// too often starts again with other preferences, but remembers where it failed.
#ifndef OPKIT_GRAPH_MEMORY_VALLEY_HPP_
#define OPKIT_GRAPH_MEMORY_VALLEY_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

enum class SearchEnd { kFound, kImpossible, kGaveUp };

template <class Problem>
class ValleySearch {
 public:
  explicit ValleySearch(const Problem& problem)
      : problem_(problem),
        count_(static_cast<size_t>(problem.count)),
        sections_(static_cast<size_t>(problem.sections)),
        weight_(sections_, 1.0),
        dirty_mark_(sections_, 0) {
    cover_start_.assign(sections_ + 1, 0);
    for (size_t i = 0; i < count_; ++i)
      for (size_t s = Lower(i); s < Upper(i); ++s) ++cover_start_[s];
    int64_t sum = 0;
    for (int64_t& start : cover_start_) start = sum += start;
    cover_.resize(static_cast<size_t>(sum));
    for (size_t i = count_; i-- > 0;)
      for (size_t s = Lower(i); s < Upper(i); ++s)
        cover_[static_cast<size_t>(--cover_start_[s])] = static_cast<int>(i);
  }

  // Looks for a placing of at most `ceiling` units, preferring buffers of low rank, for so many
  // nodes and no later than the deadline (negative: none). kImpossible: there is none.
  SearchEnd Run(int ceiling, const std::vector<int>& rank, int64_t max_nodes, int64_t deadline_ns) {
    ceiling_ = ceiling;
    rank_ = &rank;
    nodes_ = 0;
    Reset();
    if (!Consistent()) return SearchEnd::kImpossible;
    OpenFrame();
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      Undo(frame);
      if (!Advance(&frame)) {
        choices_.resize(frame.first);
        frames_.pop_back();
        continue;
      }
      if (!Consistent()) continue;
      if (unplaced_ == 0) return SearchEnd::kFound;
      if (++nodes_ >= max_nodes ||
          (deadline_ns >= 0 && nodes_ % 64 == 0 && MonotonicNs() >= deadline_ns))
        return SearchEnd::kGaveUp;
      OpenFrame();
    }
    return SearchEnd::kImpossible;
  }

  // After kFound.
  const std::vector<int>& offsets() const { return offsets_; }
  int height() const {
    int height = 0;
    for (size_t i = 0; i < count_; ++i)
      height = offsets_[i] + problem_.size[i] > height ? offsets_[i] + problem_.size[i] : height;
    return height;
  }
  int64_t nodes() const { return nodes_; }

  // Old failures count for less than those of the restart to come.
  void Forget() {
    for (double& weight : weight_) weight = 1 + (weight - 1) * 0.9;
  }

 private:
  static constexpr int kNone = 1 << 30;  // lowest offset of what is placed; floor where all is

  struct Frame {
    size_t section = 0;  // the edge that is decided
    int floor = 0;
    size_t first = 0, next = 0, end = 0;  // in choices_
    size_t trail = 0;
    int placed = -1;
    bool passed = false;  // the last choice, nothing, has been made
  };

  size_t Lower(size_t i) const { return static_cast<size_t>(problem_.lower[i]); }
  size_t Upper(size_t i) const { return static_cast<size_t>(problem_.upper[i]); }

  void Reset() {
    lowest_.assign(count_, 0);
    offsets_.assign(count_, 0);
    floor_.assign(sections_, 0);
    unplaced_in_.assign(problem_.total.begin(),
                        problem_.total.begin() + static_cast<std::ptrdiff_t>(sections_));
    unplaced_ = count_;
    frames_.clear();
    choices_.clear();
    trail_.clear();
    dirty_.clear();
    for (size_t s = 0; s < sections_; ++s) {
      dirty_mark_[s] = 1;
      dirty_.push_back(static_cast<int>(s));
    }
  }

  // Raises what buffer j's offset is at least; sections that had their floor from it are dirty.
  void Lift(size_t j, int offset) {
    const int old = lowest_[j];
    Record(static_cast<int>(j), old);
    lowest_[j] = offset;
    for (size_t s = Lower(j); s < Upper(j); ++s)
      if (floor_[s] == old && !dirty_mark_[s]) {
        dirty_mark_[s] = 1;
        dirty_.push_back(static_cast<int>(s));
      }
  }
  void Record(int what, int old) { trail_.push_back({what, old}); }

  // Brings the floors up to date; false when some section cannot hold what it must.
  bool Consistent() {
    bool consistent = true;
    for (int section : dirty_) {
      const auto s = static_cast<size_t>(section);
      dirty_mark_[s] = 0;
      if (!consistent) continue;
      int floor = kNone;
      for (int64_t at = cover_start_[s]; at < cover_start_[s + 1]; ++at) {
        const int lowest = lowest_[static_cast<size_t>(cover_[static_cast<size_t>(at)])];
        floor = lowest < floor ? lowest : floor;
      }
      if (floor != floor_[s]) {
        Record(~section, floor_[s]);
        floor_[s] = floor;
      }
      if (floor != kNone && floor + unplaced_in_[s] > ceiling_) {
        weight_[s] += 1;
        consistent = false;
      }
    }
    dirty_.clear();
    return consistent;
  }

  void Undo(const Frame& frame) {
    for (; trail_.size() > frame.trail; trail_.pop_back()) {
      const auto [what, old] = trail_.back();
      if (what >= 0)
        lowest_[static_cast<size_t>(what)] = old;
      else
        floor_[static_cast<size_t>(~what)] = old;
    }
    if (frame.placed < 0) return;
    const auto i = static_cast<size_t>(frame.placed);
    for (size_t s = Lower(i); s < Upper(i); ++s) unplaced_in_[s] += problem_.size[i];
    ++unplaced_;
  }

  // Takes the frame's next choice; false when there is none left.
  bool Advance(Frame* frame) {
    frame->placed = -1;
    while (frame->next < frame->end) {
      const auto i = static_cast<size_t>(choices_[frame->next++]);
      if (frame->floor + problem_.size[i] > ceiling_ || IsTwin(*frame, i)) continue;
      Place(i, frame->floor);
      frame->placed = static_cast<int>(i);
      return true;
    }
    if (frame->passed) return false;
    frame->passed = true;
    return Pass(*frame);
  }

  // An equal buffer has been tried in this frame before.
  bool IsTwin(const Frame& frame, size_t i) const {
    for (size_t at = frame.first; at + 1 < frame.next; ++at) {
      const auto j = static_cast<size_t>(choices_[at]);
      if (problem_.lower[i] == problem_.lower[j] && problem_.upper[i] == problem_.upper[j] &&
          problem_.size[i] == problem_.size[j] && problem_.alignment[i] == problem_.alignment[j])
        return true;
    }
    return false;
  }

  void Place(size_t i, int offset) {
    const int top = offset + problem_.size[i];
    offsets_[i] = offset;
    --unplaced_;
    for (size_t s = Lower(i); s < Upper(i); ++s) unplaced_in_[s] -= problem_.size[i];
    Lift(i, kNone);
    for (int64_t at = problem_.starts[i]; at < problem_.starts[i + 1]; ++at) {
      const auto j = static_cast<size_t>(problem_.others[static_cast<size_t>(at)]);
      if (lowest_[j] < top) Lift(j, AlignUnits(top, problem_.alignment[j]));
    }
  }

  // Nothing lies on the floor at the edge: what does at the next height where something may.
  bool Pass(const Frame& frame) {
    const size_t s = frame.section;
    int next = kNone;
    for (int64_t at = cover_start_[s]; at < cover_start_[s + 1]; ++at) {
      const auto i = static_cast<size_t>(cover_[static_cast<size_t>(at)]);
      if (lowest_[i] > frame.floor)
        next = lowest_[i] < next ? lowest_[i] : next;
      else  // it rests on a buffer of the valley that does not reach the edge
        for (int64_t below = problem_.starts[i]; below < problem_.starts[i + 1]; ++below) {
          const auto j = static_cast<size_t>(problem_.others[static_cast<size_t>(below)]);
          const int top = lowest_[j] + problem_.size[j];
          if (top < next && !(Lower(j) <= s && s < Upper(j))) next = top;
        }
    }
    if (next >= kNone || next + unplaced_in_[s] > ceiling_) {
      weight_[s] += 1;
      return false;
    }
    for (int64_t at = cover_start_[s]; at < cover_start_[s + 1]; ++at) {
      const auto i = static_cast<size_t>(cover_[static_cast<size_t>(at)]);
      if (lowest_[i] < next) Lift(i, AlignUnits(next, problem_.alignment[i]));
    }
    return true;
  }

  int Choices(size_t s) const {
    int choices = 0;
    for (int64_t at = cover_start_[s]; at < cover_start_[s + 1]; ++at)
      choices += lowest_[static_cast<size_t>(cover_[static_cast<size_t>(at)])] == floor_[s];
    return choices;
  }

  // Picks the edge to decide next and lists what may lie there.
  void OpenFrame() {
    double best = 0;
    size_t edge = sections_;
    const auto consider = [&](size_t s) {
      const bool may_pass = floor_[s] + unplaced_in_[s] < ceiling_;
      // Among equals the lowest; the floor's share stays below any other difference.
      const double score =
          (Choices(s) + (may_pass ? 1 : 0)) / weight_[s] + 1e-9 * floor_[s] / (1 + ceiling_);
      if (edge < sections_ && score >= best) return;
      best = score;
      edge = s;
    };
    for (size_t left = 0; left < sections_;) {
      size_t right = left + 1;
      while (right < sections_ && floor_[right] == floor_[left]) ++right;
      if (floor_[left] != kNone && (left == 0 || floor_[left - 1] > floor_[left]) &&
          (right == sections_ || floor_[right] > floor_[left])) {
        consider(left);
        if (right - left > 1) consider(right - 1);
      }
      left = right;
    }
    Frame frame;
    frame.section = edge;
    frame.floor = floor_[edge];
    frame.first = frame.next = choices_.size();
    frame.trail = trail_.size();
    for (int64_t at = cover_start_[edge]; at < cover_start_[edge + 1]; ++at) {
      const int i = cover_[static_cast<size_t>(at)];
      if (lowest_[static_cast<size_t>(i)] != frame.floor) continue;
      choices_.push_back(i);
      for (size_t j = choices_.size() - 1; j > frame.first; --j) {
        int& above = choices_[j - 1];
        if ((*rank_)[static_cast<size_t>(above)] < (*rank_)[static_cast<size_t>(i)]) break;
        choices_[j] = above;
        above = i;
      }
    }
    frame.end = choices_.size();
    frames_.push_back(frame);
  }

  const Problem& problem_;
  const size_t count_, sections_;
  std::vector<int64_t> cover_start_;  // of each section: the buffers that are live in it
  std::vector<int> cover_;
  std::vector<double> weight_;  // of each section: 1 and its failures
  std::vector<uint8_t> dirty_mark_;
  std::vector<int> dirty_;

  int ceiling_ = 0;
  const std::vector<int>* rank_ = nullptr;
  int64_t nodes_ = 0;
  size_t unplaced_ = 0;
  std::vector<int> lowest_;  // of each buffer: where it would lie on what is placed
  std::vector<int> offsets_;
  std::vector<int> floor_;        // of each section: the lowest of `lowest_` in it
  std::vector<int> unplaced_in_;  // of each section: units not yet placed
  struct Change {
    int what, old;  // buffer i as i, section s as ~s
  };
  std::vector<Change> trail_;
  std::vector<int> choices_;
  std::vector<Frame> frames_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_VALLEY_HPP_

// ---- opkit/graph/memory_search.hpp
// The search that follows the greedy portfolio, until time or steps run out: by restarts under
// ceilings between the lower bound and the best arena known, or by annealing.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Which buffers a restart prefers: long, large or crowded ones, in proportions drawn at random.
template <class Problem>
std::vector<int> DrawRanks(const Problem& problem, const std::vector<int64_t>& length,
                           const std::vector<int64_t>& peak, RandomGenerator& random) {
  const auto n = static_cast<size_t>(problem.count);
  const auto log = [](int64_t x) { return __builtin_log(static_cast<double>(x)); };
  const double by_length = 2 * random.uniform() - 0.2, by_size = 2 * random.uniform() - 0.2;
  const double by_peak = random.uniform() < 0.5 ? 20 * random.uniform() : 0;
  const double noise = random.uniform() < 0.5 ? 0.5 * random.uniform() : 0;
  std::vector<int64_t> keys(n);
  std::vector<int> order(n), rank(n);
  for (size_t i = 0; i < n; ++i) {
    order[i] = static_cast<int>(i);
    keys[i] = static_cast<int64_t>(-1e6 * (by_length * log(length[i]) +
                                           by_size * log(problem.size[i]) + by_peak * log(peak[i]) +
                                           (noise > 0 ? noise * random.normal() : 0)));
  }
  SortIndices(order, keys);
  for (size_t i = 0; i < n; ++i) rank[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return rank;
}

// Luby, Sinclair, Zuckerman 1993: 1 1 2 1 1 2 4 …, from 1.
inline int64_t Luby(int64_t i) {
  for (;;) {
    int64_t size = 1;
    while (size < i) size = 2 * size + 1;
    if (size == i) return (size + 1) / 2;
    i -= size / 2;
  }
}

// Every other restart tries the lowest ceiling that is not known to be impossible; the others halve
// the way to it, and back up towards the best height after a failure.
template <class Problem>
void SearchValleys(const Problem& problem, SearchBudget budget, Placing* best) {
  const auto n = static_cast<size_t>(problem.count);
  constexpr int64_t kNodes = 250;
  RandomGenerator random(budget.seed);
  std::vector<int64_t> length(n), peak(n, 1);
  for (size_t i = 0; i < n; ++i) {
    length[i] = problem.upper[i] - problem.lower[i];
    for (int s = problem.lower[i]; s < problem.upper[i]; ++s) {
      const int64_t total = problem.total[static_cast<size_t>(s)];
      peak[i] = total > peak[i] ? total : peak[i];
    }
  }
  ValleySearch search(problem);
  int lowest = problem.bound, middle = 0;
  for (int64_t round = 0; best->height > budget.enough && best->height > lowest; ++round) {
    if (budget.steps <= 0 || (budget.deadline_ns >= 0 && MonotonicNs() >= budget.deadline_ns))
      return;
    const bool boldly = round % 2 == 0;
    if (middle < lowest || middle >= best->height) middle = lowest + (best->height - lowest) / 2;
    const int goal = budget.enough > lowest ? budget.enough : lowest;
    const int ceiling = boldly || middle < goal ? goal : middle;
    const std::vector<int> rank = DrawRanks(problem, length, peak, random);
    const int64_t nodes = n + kNodes * Luby(round / 2 + 1);
    const int64_t affordable = budget.steps / problem.count + 1;
    const SearchEnd end =
        search.Run(ceiling, rank, nodes < affordable ? nodes : affordable, budget.deadline_ns);
    budget.steps -= (search.nodes() + 1) * problem.count;
    search.Forget();
    if (end == SearchEnd::kFound) {
      KeepIfLower(search.offsets(), search.height(), "search", best);
      middle = lowest + (best->height - lowest) / 2;
    } else if (end == SearchEnd::kImpossible) {
      lowest = ceiling + 1;
    } else if (!boldly) {
      middle = ceiling + (best->height - ceiling + 1) / 2;
    }
  }
}

template <class Problem>
void SearchPlacing(const Problem& problem, const SearchBudget& budget, Placing* best) {
  if (problem.starts.empty() || best->height <= budget.enough) return;
  if (problem.spans_decide)
    SearchValleys(problem, budget, best);
  else
    AnnealOrder(problem, budget, best);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_HPP_

// ---- opkit/graph/memory_plan.hpp
// PlanMemory: buffers with lifetimes in, offsets in one arena out, so that no two that are live
// together overlap. A portfolio of greedy orders first, then a search within a budget.
#ifndef OPKIT_GRAPH_MEMORY_PLAN_HPP_
#define OPKIT_GRAPH_MEMORY_PLAN_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Below this, conflicts are listed and placing fills gaps.
inline constexpr int64_t kMostListedPairs = 8'000'000;

template <class Problem>
MemoryPlan FinishPlan(const Problem& problem, size_t buffers, const Placing& best,
                      int64_t began_ns) {
  MemoryPlan plan;
  plan.offsets.assign(buffers, 0);
  plan.lower_bound_bytes =
      problem.spans_decide || problem.bound * problem.unit < problem.bound_bytes
          ? problem.bound_bytes
          : problem.bound * problem.unit;
  plan.naive_bytes = problem.naive_bytes;
  for (size_t i = 0; i < best.offsets.size(); ++i)
    plan.offsets[static_cast<size_t>(problem.buffer[i])] = best.offsets[i] * problem.unit;
  plan.arena_bytes = int64_t{best.height} * problem.unit;
  if (best.method) plan.method = best.method;
  plan.seconds = static_cast<double>(MonotonicNs() - began_ns) * 1e-9;
  return plan;
}

template <class Interval, class Conflicts, class Problem = MemoryProblem>
MemoryPlan PlanMemory(const std::vector<Interval>& buffers, const Conflicts& conflicts,
                      const MemoryPlanOptions& options) {
  const int64_t began_ns = MonotonicNs();
  Problem problem;
  MeasureBuffers(buffers, &problem);
  CutSections(buffers, &problem);
  if (!conflicts.empty())
    TakeConflicts(conflicts, buffers.size(), &problem);
  else if (problem.pairs <= kMostListedPairs)
    ListConflicts(&problem);
  const int64_t enough_units = options.enough_bytes / problem.unit;
  const int enough = enough_units > problem.bound ? static_cast<int>(enough_units) : problem.bound;
  Placing best;
  if (problem.count > 0) {
    TryPortfolio(problem, enough, &best);
    SearchBudget budget;
    budget.deadline_ns = options.time_budget.DeadlineNs();
    budget.steps = options.max_steps >= 0             ? options.max_steps
                   : options.time_budget.is_forever() ? MemoryPlanOptions::kDefaultSteps
                                                      : (std::numeric_limits<int64_t>::max)();
    budget.seed = options.seed;
    budget.enough = enough;
    SearchPlacing(problem, budget, &best);
  }
  return FinishPlan(problem, buffers.size(), best, began_ns);
}

}  // namespace detail

// Offsets for buffers that conflict where their spans of time overlap.
//
//   MemoryPlan plan = PlanMemory({{0, 2, 1024}, {1, 3, 512}, {2, 4, 1024}});
//   plan.arena_bytes;  // 1536
//
// Errors (kInvalidArgument, kOutOfRange) name the buffer: lower not below upper, a negative size,
// an alignment that is no power of two, sizes that add up to more than an int64 holds. 100,000
// buffers take less than a second by the portfolio alone.
template <class Interval = MemoryInterval, class Conflicts = MemoryConflicts>
MemoryPlan PlanMemory(const std::vector<Interval>& intervals,
                      const MemoryPlanOptions& options = {}) {
  return detail::PlanMemory(intervals, Conflicts(), options);
}

// Offsets for buffers that conflict as `conflicts` says, for those whose order in time is partial.
// The spans are those of one legal order: where two overlap, the conflict must be listed too.
template <class Interval = MemoryInterval, class Conflicts = MemoryConflicts>
MemoryPlan PlanMemory(const std::vector<Interval>& buffers,
                      const std::type_identity_t<Conflicts>& conflicts,
                      const MemoryPlanOptions& options = {}) {
  return detail::PlanMemory(buffers, conflicts, options);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_PLAN_HPP_

// ---- opkit/graph/memory_verify.hpp
// VerifyMemoryPlan: proves a memory plan from the run's edges and the addresses alone, or says what
// is wrong. It shares no code with lifetimes.hpp and the planner, so that a mistake there is not
// repeated here.
#ifndef OPKIT_GRAPH_MEMORY_VERIFY_HPP_
#define OPKIT_GRAPH_MEMORY_VERIFY_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// "value 3 'x' (bytes 64 to 128)"
inline std::string DescribePlaced(const char* what, size_t i, const std::vector<std::string>& names,
                                  int64_t address, int64_t bytes) {
  return StrCat(what, " ", i, i < names.size() && !names[i].empty() ? " '" + names[i] + "'" : "",
                " (bytes ", address, " to ", address + bytes, ")");
}

inline std::string FindPlacingFault(const char* what, size_t i,
                                    const std::vector<std::string>& names, int64_t address,
                                    int64_t bytes, int64_t alignment, int64_t arena_bytes) {
  if (address < 0 || address > arena_bytes || bytes > arena_bytes - address)
    return StrCat(what, " ", i, i < names.size() ? " '" + names[i] + "'" : "", " of ", bytes,
                  " bytes at ", address, " is not inside the arena of ", arena_bytes, " bytes");
  if (address % alignment != 0)
    return StrCat(DescribePlaced(what, i, names, address, bytes), " is not aligned to ", alignment,
                  " bytes");
  return "";
}

inline bool ShareBytes(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// Looks at every pair of values that share bytes. A value and the views of it are one family: its
// bytes are needed from the first touch of any of them to the last.
template <class Run, class Value, class Option, class Lists = std::vector<std::vector<int>>>
class RunVerifier {
 public:
  RunVerifier(const Run& run, const std::vector<Value>& values, const std::vector<Option>& in_place,
              const std::vector<int64_t>& addresses, const std::vector<std::string>& names)
      : run_(run), values_(values), in_place_(in_place), addresses_(addresses), names_(names) {}

  std::string FindFault(int64_t arena_bytes) {
    const size_t n = values_.size();
    if (addresses_.size() != n)
      return StrCat("expected an address for each of ", n, " values, found ", addresses_.size());
    for (size_t i = 0; i < n; ++i) family_.push_back(Family(i));
    for (size_t i = 0; i < n; ++i) {
      const Value& value = values_[i];
      if (!Planned(i)) continue;
      const std::string fault =
          FindPlacingFault("value", i, names_, addresses_[i], value.bytes,
                           value.view_of < 0 ? value.alignment : 1, arena_bytes);
      if (!fault.empty()) return fault;
      if (value.view_of >= 0 &&
          addresses_[i] != addresses_[static_cast<size_t>(value.view_of)] + value.view_offset)
        return StrCat(Describe(i), " is not where it views ",
                      Describe(static_cast<size_t>(value.view_of)), ", at byte ", value.view_offset,
                      " of it");
    }
    CollectPairs();
    CheckOrder();
    for (const Pair& pair : pairs_)
      if (!pair.first_precedes && !pair.second_precedes) return Explain(pair);
    return "";
  }

 private:
  // Two values, neither a view, that share bytes. Each flag holds until an order disproves it.
  struct Pair {
    size_t first, second;
    bool first_precedes, second_precedes;
    int early, late;  // steps that disprove the order in which the two are stored
  };

  // The value that i is a view of, through any number of views.
  size_t Family(size_t i) const {
    while (values_[i].view_of >= 0) i = static_cast<size_t>(values_[i].view_of);
    return i;
  }
  bool Planned(size_t i) const { return !values_[family_[i]].external; }
  std::string Describe(size_t i) const {
    return DescribePlaced("value", i, names_, addresses_[i], values_[i].bytes);
  }

  void CollectPairs() {
    const size_t n = values_.size();
    kept_.assign(n, 0);
    there_.assign(n, 0);
    touches_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t family = family_[i];
      if (values_[i].kept) kept_[family] = 1;
      if (values_[i].producer < 0) there_[family] = 1;
      if (values_[i].producer >= 0) touches_[family].push_back({values_[i].producer, i});
      for (int user : values_[i].users) touches_[family].push_back({user, i});
    }
    for (size_t b = 0; b < n; ++b)
      for (size_t a = 0; Planned(b) && family_[b] == b && a < b; ++a)
        if (Planned(a) && family_[a] == a &&
            ShareBytes(addresses_[a], values_[a].bytes, addresses_[b], values_[b].bytes))
          pairs_.push_back({a, b, !kept_[a] && !there_[b], !kept_[b] && !there_[a], -1, -1});
  }

  // `step` makes value b, or a view of it, over what it reads of family a: it touches that family
  // only by reading this one value, b lies where that value does, and the kernel permits it.
  bool MayOverwrite(int step, size_t a, size_t b) const {
    size_t read = 0;
    int touches = 0;
    for (const Touch& touch : touches_[a]) {
      if (touch.step != step) continue;
      read = touch.value;
      ++touches;
    }
    if (touches != 1 || values_[b].producer != step || addresses_[read] != addresses_[b] ||
        values_[b].bytes > values_[read].bytes)
      return false;
    for (const Option& option : in_place_)
      if (option.node == step && static_cast<size_t>(option.input) == read &&
          static_cast<size_t>(option.output) == b)
        return true;
    return false;
  }

  // For 64 steps at a time: which steps start only after them. Follows what the executor does, step
  // by step: a step starts after the steps on its edges have completed and those of lower stages
  // have returned.
  void CheckOrder() {
    const auto n = static_cast<size_t>(run_.nodes);
    Lists before(n);
    for (size_t e = 0; e < run_.before.size(); ++e)
      before[static_cast<size_t>(run_.after[e])].push_back(run_.before[e]);
    std::vector<uint8_t> touched(values_.size());
    for (size_t first = 0; first < n; first += 64) {
      std::vector<uint64_t> started(n, 0), completed(n, 0);  // bit k: step first + k has completed
      uint64_t lower_stages = 0, this_stage = 0;
      for (size_t v = first; v < n; ++v) {
        if (!run_.stages.empty() && v > first && run_.stages[v] != run_.stages[v - 1]) {
          lower_stages |= this_stage;
          this_stage = 0;
        }
        started[v] = lower_stages;
        for (int u : before[v]) started[v] |= completed[static_cast<size_t>(u)];
        completed[v] = started[v] | (v < first + 64 ? uint64_t{1} << (v - first) : 0);
        const bool returns_early = !run_.asynchronous.empty() && run_.asynchronous[v] != 0;
        if (!run_.stages.empty()) this_stage |= returns_early ? started[v] : completed[v];
      }
      for (size_t i = 0; i < values_.size(); ++i) {
        touched[i] = 0;
        for (const Touch& touch : touches_[i]) {
          const auto v = static_cast<size_t>(touch.step);
          if (first <= v && v < first + 64) touched[i] = 1;
        }
      }
      for (Pair& pair : pairs_) {
        if (!touched[pair.first] && !touched[pair.second]) continue;
        Disprove(first, started, pair.first, pair.second, &pair.first_precedes, &pair);
        Disprove(first, started, pair.second, pair.first, &pair.second_precedes, nullptr);
      }
    }
  }

  // Clears `precedes` when one of the 64 steps touches a and need not have completed when some step
  // that touches b starts.
  void Disprove(size_t first, const std::vector<uint64_t>& started, size_t a, size_t b,
                bool* precedes, Pair* witness) {
    if (!*precedes) return;
    for (const Touch& early : touches_[a]) {
      const auto bit = static_cast<size_t>(early.step);
      if (bit < first || bit >= first + 64) continue;
      for (const Touch& late : touches_[b]) {
        if ((started[static_cast<size_t>(late.step)] >> (bit - first)) & 1) continue;
        if (late.step == early.step && MayOverwrite(late.step, a, b)) continue;
        *precedes = false;
        if (!witness) return;
        witness->early = early.step;
        witness->late = late.step;
      }
    }
  }

  std::string Explain(const Pair& pair) const {
    std::string text = StrCat(Describe(pair.first), " and ", Describe(pair.second),
                              " share bytes and can be live together: ");
    if (pair.early >= 0)
      return text + StrCat("step ", pair.early,
                           ", which touches the first, need not have completed ", "when step ",
                           pair.late, ", which touches the second, starts");
    return text + (kept_[pair.first] ? "the first is kept to the end of the run"
                                     : "the second is there from the start of the run");
  }

  const Run& run_;
  const std::vector<Value>& values_;
  const std::vector<Option>& in_place_;
  const std::vector<int64_t>& addresses_;
  const std::vector<std::string>& names_;
  std::vector<size_t> family_;
  // Of each family, under the value that is no view.
  struct Touch {
    int step;
    size_t value;
  };
  std::vector<std::vector<Touch>> touches_;
  std::vector<uint8_t> kept_, there_;
  std::vector<Pair> pairs_;
};

inline void ThrowFault(const std::string& fault) {
  if (!fault.empty()) Throw(ErrorCode::kFailedPrecondition, "the memory plan is wrong: ", fault);
}

}  // namespace detail

// Throws (kFailedPrecondition) for a plan under which a legal run could overwrite bytes that are
// still needed, or leaves the arena, or misaligns a value. `addresses` has a value's first byte in
// the arena; that of external values, and views of them, is not looked at. `names` may be empty.
// What FindLifetimes refuses must not be given here.
//
// Costs time by the square of the values, and by steps times edges / 64.
template <class Run = RunOrder, class Value = RunValue, class Option = InPlaceOption>
void VerifyMemoryPlan(const Run& run, const std::vector<Value>& values,
                      const std::vector<Option>& in_place, const std::vector<int64_t>& addresses,
                      int64_t arena_bytes, const std::vector<std::string>& names = {}) {
  detail::RunVerifier<Run, Value, Option> verifier(run, values, in_place, addresses, names);
  detail::ThrowFault(verifier.FindFault(arena_bytes));
}

// The same for buffers that conflict where their spans overlap, and where `conflicts` lists them.
template <class Interval = MemoryInterval, class Conflicts = MemoryConflicts>
void VerifyMemoryPlan(const std::vector<Interval>& buffers,
                      const std::type_identity_t<Conflicts>& conflicts, const MemoryPlan& plan) {
  if (plan.offsets.size() != buffers.size())
    detail::ThrowFault(StrCat("expected an offset for each of ", buffers.size(), " buffers, found ",
                              plan.offsets.size()));
  const auto refuse = [&](size_t a, size_t b, const char* why) {
    if (detail::ShareBytes(plan.offsets[a], buffers[a].size, plan.offsets[b], buffers[b].size))
      detail::ThrowFault(
          StrCat(detail::DescribePlaced("buffer", a, {}, plan.offsets[a], buffers[a].size), " and ",
                 detail::DescribePlaced("buffer", b, {}, plan.offsets[b], buffers[b].size),
                 " share bytes and can be live together: ", why));
  };
  for (size_t b = 0; b < buffers.size(); ++b) {
    detail::ThrowFault(detail::FindPlacingFault("buffer", b, {}, plan.offsets[b], buffers[b].size,
                                                buffers[b].alignment, plan.arena_bytes));
    for (size_t a = 0; a < b; ++a)
      if (buffers[a].lower < buffers[b].upper && buffers[b].lower < buffers[a].upper)
        refuse(a, b, "their spans overlap");
    if (conflicts.empty()) continue;
    for (int64_t at = conflicts.starts[b]; at < conflicts.starts[b + 1]; ++at)
      refuse(b, static_cast<size_t>(conflicts.others[static_cast<size_t>(at)]),
             "they are listed as a conflict");
  }
}
template <class Interval = MemoryInterval>
void VerifyMemoryPlan(const std::vector<Interval>& intervals, const MemoryPlan& plan) {
  VerifyMemoryPlan(intervals, {}, plan);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_VERIFY_HPP_

// ---- opkit/graph/specialization.hpp
// Specialization: everything about a graph that its inputs' types and shapes decide: the kernels,
// the schedule, where in memory each value lies. Made once for each set of shapes, shared by the
// executors of a plan.
#ifndef OPKIT_GRAPH_SPECIALIZATION_HPP_
#define OPKIT_GRAPH_SPECIALIZATION_HPP_

namespace opkit::inline OPKIT_ABI {

// What planning the memory of a run came to, summed over the devices that it uses. Graph inputs,
// constants and outputs lie outside, and so do values whose shape the data decides.
struct MemorySummary {
  int64_t arena_bytes = 0;
  int64_t lower_bound_bytes = 0;  // the largest set of values that can be live together
  int64_t naive_bytes = 0;        // every value in a place of its own
  int planned_values = 0;
  int inplace_values = 0;  // that take over the bytes of an input
  double seconds = 0;
  double ratio() const {
    return lower_bound_bytes == 0
               ? 1
               : static_cast<double>(arena_bytes) / static_cast<double>(lower_bound_bytes);
  }
};

namespace detail {

// What one device's memory was planned from and to, as the planner and the verifier see it: steps
// are numbers of the schedule, values are those of the view and then the scratch of each step.
template <class Parts>
struct ArenaPlan {
  Device device;
  std::vector<typename Parts::RunValue> values;
  std::vector<typename Parts::InPlaceOption> inplace;
  typename Parts::MemoryLifetimes lifetimes;
  typename Parts::MemoryPlan plan;

  // -1 where the value is not in this arena.
  int64_t OffsetOf(size_t value) const {
    const int buffer = lifetimes.buffer_of[value];
    if (buffer < 0) return -1;
    return plan.offsets[static_cast<size_t>(buffer)] + lifetimes.offset_in_buffer[value];
  }
};

template <class Parts>
class Specialization final : public RefCounted {
  using GraphView = typename Parts::GraphView;
  using GraphTypes = typename Parts::GraphTypes;
  using NodeChoice = typename Parts::NodeChoice;
  using ScheduleEdge = typename Parts::ScheduleEdge;
  using Schedule = typename Parts::Schedule;
  using RunOrder = typename Parts::RunOrder;
  using RunValue = typename Parts::RunValue;
  using BoundNodes = detail::BoundNodes<Parts>;
  using ArenaPlan = detail::ArenaPlan<Parts>;

 public:
  struct Options {
    bool walked = false;  // steps run one after the other, in their order
    bool in_order = false;
    MemoryPlanOptions memory;
    bool verify_memory = false;
  };

  Specialization(const GraphView& view, std::vector<TensorInfo> input_infos, const Options& options)
      : view_(view), inputs_(std::move(input_infos)), types_(Infer(view, inputs_)) {
    spare_ = std::make_unique<BoundNodes>(view, types_, choices_);
    SetSchedule(options.in_order);
    AssignStreams();
    PlanArenas(options);
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const GraphTypes& types() const { return types_; }
  const std::vector<NodeChoice>& choices() const { return choices_; }
  const Schedule& schedule() const { return *schedule_; }
  const RunOrder& run_order() const { return run_order_; }
  // An entry of the schedule that fixes the order in which steps are called and waits for no work:
  // the graph has no such edge.
  bool IsOrderAlone(int step, int entry) const {
    return !follows_.empty() && Schedule::TargetOf(entry) == step + 1 &&
           follows_[static_cast<size_t>(step) + 1] == 0;
  }
  const std::vector<ArenaPlan>& arenas() const { return arenas_; }
  const MemorySummary& memory() const { return memory_; }
  // How nodes are run, and why, as the executor that measured last has said. Thread-safe.
  std::string mode() const {
    MutexLock lock(mode_mutex_);
    return mode_;
  }
  void SetMode(std::string mode) {
    MutexLock lock(mode_mutex_);
    mode_ = std::move(mode);
  }
  // Some operator completes after it has returned.
  bool may_pend() const { return may_pend_; }
  bool IsAsynchronous(int node) const { return asynchronous_[static_cast<size_t>(node)] != 0; }
  int stream(int node) const { return streams_[static_cast<size_t>(node)]; }
  // For an error about an arena as a whole: what takes most of it.
  OPKIT_COLD std::string LargestIn(const ArenaPlan& arena) const {
    size_t largest = 0;
    const auto bytes = [&](size_t value) {
      return arena.values[value].external ? -1 : arena.values[value].bytes;
    };
    for (size_t value = 1; value < arena.values.size(); ++value)
      if (bytes(value) > bytes(largest)) largest = value;
    const std::string begin = "in the memory of " + ToString(arena.device) + " between nodes, ";
    const auto num_values = static_cast<size_t>(view_.num_values());
    if (largest >= num_values)
      return StrCat(begin, "most of it the ", bytes(largest), " bytes of scratch of node ",
                    NameOfStep(static_cast<int>(largest - num_values)));
    const int value = static_cast<int>(largest);
    return StrCat(begin, "most of it '", view_.name(value), "', which is ", ToString(types_[value]),
                  " and made by node ", ToString(view_.graph().node(view_.producer(value))));
  }

  // Operators for one executor. Those that selection made go to whoever asks first; not
  // synchronised.
  std::unique_ptr<BoundNodes> TakeNodes() {
    if (spare_) return std::move(spare_);
    return std::make_unique<BoundNodes>(view_, types_, choices_);
  }

 private:
  static GraphTypes Infer(const GraphView& view, const std::vector<TensorInfo>& inputs) {
    std::vector<typename Parts::GraphInput> known;
    for (size_t i = 0; i < inputs.size(); ++i)
      known.push_back({view.graph().inputs()[i].name, inputs[i]});
    return InferGraph(view, known);
  }

  // An edge between two operators of one device type that both take work before what they depend on
  // is done lets the second be issued behind the first.
  void SetSchedule(bool in_order) {
    auto supports = [&](int node) {
      return asynchronous_[static_cast<size_t>(node)] != 0 &&
             spare_->op(node).SupportsAsyncScheduling();
    };
    for (int node = 0; node < view_.num_nodes(); ++node) {
      asynchronous_.push_back(spare_->op(node).HasAsyncPart());
      may_pend_ |= spare_->op(node).HasAsyncPart();
    }
    std::vector<ScheduleEdge> edges;
    for (const auto& edge : view_.edges())
      edges.push_back({edge.from, edge.to,
                       supports(edge.from) && supports(edge.to) &&
                           spare_->op(edge.from).device() == spare_->op(edge.to).device()});
    const auto name = [&](int node) { return ToString(view_.graph().node(node)); };
    const FunctionRef<std::string(int)> name_ref = name;
    ScheduleOptions options;
    options.in_order = in_order;
    options.name = &name_ref;
    schedule_.emplace(view_.num_nodes(), edges, options);
    if (in_order) {
      follows_.assign(static_cast<size_t>(schedule_->size()), 0);
      for (const auto& edge : view_.edges()) {
        const int to = schedule_->node_of(edge.to);
        if (schedule_->node_of(edge.from) + 1 == to) follows_[static_cast<size_t>(to)] = 1;
      }
    }
    run_order_.nodes = schedule_->size();
    for (int step = 0; step < schedule_->size(); ++step)
      for (int at = schedule_->entry_begin()[static_cast<size_t>(step)];
           at < schedule_->entry_begin()[static_cast<size_t>(step) + 1]; ++at) {
        const int entry = schedule_->entries()[static_cast<size_t>(at)];
        if (IsOrderAlone(step, entry)) continue;
        run_order_.before.push_back(step);
        run_order_.after.push_back(Schedule::TargetOf(entry));
      }
  }

  // A chain of operators of one device runs on one stream; a branch takes the next one.
  void AssignStreams() {
    constexpr int kStreams = 4;
    streams_.assign(static_cast<size_t>(view_.num_nodes()), 0);
    std::vector<char> continued(streams_.size(), 0);
    int next = 0;
    for (int step = 0; step < schedule_->size(); ++step) {
      const int node = schedule_->original_of(step);
      if (!IsAsynchronous(node)) continue;
      int stream = -1;
      const auto& edges = view_.edges();
      for (size_t e = view_.FirstEdgeTo(node); e < edges.size() && edges[e].to == node; ++e) {
        const auto& edge = edges[e];
        if (!IsAsynchronous(edge.from)) continue;
        if (continued[static_cast<size_t>(edge.from)] ||
            spare_->op(edge.from).device() != spare_->op(node).device())
          continue;
        continued[static_cast<size_t>(edge.from)] = 1;
        stream = streams_[static_cast<size_t>(edge.from)];
        break;
      }
      streams_[static_cast<size_t>(node)] = stream >= 0 ? stream : next++ % kStreams;
    }
  }

  std::string NameOfStep(int step) const {
    return ToString(view_.graph().node(schedule_->original_of(step)));
  }
  void PlanArenas(const Options& options) {
    if (options.walked && !may_pend_)
      for (int step = 0; step < schedule_->size(); ++step) run_order_.stages.push_back(step);
    for (int value = 0; value < view_.num_values(); ++value)
      if (IsPlanned(value)) AddArena(MemoryDevice(types_[value].device));
    for (int node = 0; node < view_.num_nodes(); ++node)
      if (Scratch(node) > 0) AddArena(MemoryDevice(view_.graph().node(node).device()));
    for (ArenaPlan& arena : arenas_) {
      Describe(arena);
      arena.lifetimes = FindLifetimes(run_order_, arena.values, arena.inplace);
      try {
        arena.plan =
            ::opkit::PlanMemory(arena.lifetimes.buffers, arena.lifetimes.conflicts, options.memory);
      } catch (Error& error) {
        error.AddContext(LargestIn(arena));
        throw;
      }
      [[maybe_unused]] constexpr size_t kCheaplyVerified =
          4096;  // values; it takes time by their square
      if (options.verify_memory) Verify(arena);
      OPKIT_ASSERT(options.verify_memory || arena.values.size() > kCheaplyVerified ||
                   Verify(arena));
      memory_.arena_bytes += arena.plan.arena_bytes;
      memory_.lower_bound_bytes += arena.plan.lower_bound_bytes;
      memory_.seconds += arena.plan.seconds;
      for (const RunValue& value : arena.values)
        if (!value.external) AddNaive(value);
      for (uint8_t granted : arena.lifetimes.granted) memory_.inplace_values += granted;
    }
  }
  // Saturates: values that share a place may be more than the planner has to count.
  void AddNaive(const RunValue& value) {
    const int64_t rest = (value.alignment - value.bytes % value.alignment) % value.alignment;
    int64_t& sum = memory_.naive_bytes;
    if (__builtin_add_overflow(sum, value.bytes, &sum) || __builtin_add_overflow(sum, rest, &sum))
      sum = (std::numeric_limits<int64_t>::max)();
  }
  bool Verify(const ArenaPlan& arena) const {
    std::vector<int64_t> addresses;
    std::vector<std::string> names;
    for (size_t value = 0; value < arena.values.size(); ++value)
      addresses.push_back(arena.OffsetOf(value));
    for (int value = 0; value < view_.num_values(); ++value) names.push_back(view_.name(value));
    VerifyMemoryPlan(run_order_, arena.values, arena.inplace, addresses, arena.plan.arena_bytes,
                     names);
    return true;
  }
  void AddArena(Device device) {
    for (const ArenaPlan& arena : arenas_)
      if (arena.device == device) return;
    arenas_.emplace_back().device = device;
  }
  int64_t Scratch(int node) const {
    return choices_[static_cast<size_t>(node)].config.scratch_bytes;
  }
  // Made by a node, of a known size in the standard layout, and not handed out.
  bool IsPlanned(int value) const {
    const TensorInfo& info = types_[value];
    return view_.producer(value) >= 0 && !view_.IsOutput(value) && info.shape.is_known() &&
           info.dtype != DType::kUndefined && info.layout.is_standard();
  }
  void Describe(ArenaPlan& arena) {
    for (int value = 0; value < view_.num_values(); ++value) {
      RunValue& planned = arena.values.emplace_back();
      planned.external = !IsPlanned(value) || MemoryDevice(types_[value].device) != arena.device;
      if (planned.external) continue;
      ++memory_.planned_values;
      planned.bytes = Tensor::CheckedBytes(types_[value].shape.ToShape(), types_[value].dtype);
      planned.producer = schedule_->node_of(view_.producer(value));
      for (int node : view_.consumers(value)) planned.users.push_back(schedule_->node_of(node));
    }
    for (int step = 0; step < schedule_->size(); ++step) {
      const int node = schedule_->original_of(step);
      RunValue& scratch = arena.values.emplace_back();
      scratch.bytes = Scratch(node);
      scratch.producer = step;
      scratch.external =
          scratch.bytes == 0 || MemoryDevice(view_.graph().node(node).device()) != arena.device;
    }
    for (int node = 0; node < view_.num_nodes(); ++node)
      for (const auto& [input, output] : choices_[static_cast<size_t>(node)].config.inplace)
        AllowInPlace(arena, node, input, output);
  }
  void AllowInPlace(ArenaPlan& arena, int node, int input, int output) {
    const int from = view_.inputs(node)[static_cast<size_t>(input)];
    const int to = view_.outputs(node)[static_cast<size_t>(output)];
    if (from < 0 || to < 0 || from == to || view_.producer(to) != node) return;
    if (arena.values[static_cast<size_t>(from)].external ||
        arena.values[static_cast<size_t>(to)].external)
      return;
    for (size_t i = 0; i < view_.inputs(node).size(); ++i)  // read a second time, not in place
      if (view_.inputs(node)[i] == from && !MayShare(node, static_cast<int>(i), output)) return;
    arena.inplace.push_back({schedule_->node_of(node), from, to});
  }

  bool MayShare(int node, int input, int output) const {
    for (const auto& pair : choices_[static_cast<size_t>(node)].config.inplace)
      if (pair == std::pair(input, output)) return true;
    return false;
  }

  const GraphView& view_;
  std::vector<TensorInfo> inputs_;
  GraphTypes types_;
  std::vector<NodeChoice> choices_;
  std::optional<Schedule> schedule_;
  std::vector<char> asynchronous_;  // by node
  std::vector<int> streams_;        // by node
  std::vector<char> follows_;       // by step, in order: the graph has an edge from the one before
  bool may_pend_ = false;
  RunOrder run_order_;
  std::vector<ArenaPlan> arenas_;
  MemorySummary memory_;
  mutable Mutex mode_mutex_;
  std::string mode_ = "no executor has been made yet";
  std::unique_ptr<BoundNodes> spare_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_SPECIALIZATION_HPP_

// ---- opkit/graph/plan.hpp
// Plan: a frozen graph, made once by Compile: checked, rewritten by passes, kernels selected, nodes
// scheduled, memory planned. Executors run it, as often and as many at once as one likes.
#ifndef OPKIT_GRAPH_PLAN_HPP_
#define OPKIT_GRAPH_PLAN_HPP_

namespace opkit::inline OPKIT_ABI {

struct PlanOptions {
  // Threads that run it, the caller's included; 0: those of ThreadPool::Default(). Another number
  // than that makes a pool of the plan's own.
  int threads = 0;
  // Nodes are called in one fixed order, whatever the number of threads.
  bool deterministic = false;
  ReplayMode mode = ReplayMode::kAuto;
  // Applied in order before anything is selected; null: DefaultPasses().
  const PassList* passes = nullptr;
  MemoryPlanOptions memory = {};
  // Has every memory plan proved by VerifyMemoryPlan; without NDEBUG all but large ones are.
  bool verify_memory = false;
  // Sets of input shapes that the plan, and each executor, keeps; the least recently used goes.
  int max_shapes = 8;
};

namespace detail {

template <class Parts>
class PlanState final : public RefCounted {
 public:
  using Graph = typename Parts::Graph;
  using GraphView = typename Parts::GraphView;
  using Pool = typename Parts::ThreadPool;
  using Specialization = detail::Specialization<Parts>;
  using BoundNodes = detail::BoundNodes<Parts>;

  PlanState(Graph graph, const PlanOptions& options)
      : options_(options), graph_(std::move(graph)), view_(graph_) {
    if (options.threads < 0 || options.max_shapes < 1)
      Throw(ErrorCode::kInvalidArgument, "a plan needs threads >= 0 and max_shapes >= 1, found ",
            options.threads, " and ", options.max_shapes);
    options_.passes = nullptr;  // the caller's
    if (options.threads != 0 && options.threads != ThreadPool::Default().threads())
      own_pool_ = std::make_unique<Pool>(options.threads, "opkit-plan");
  }

  const PlanOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  const GraphView& view() const { return view_; }
  Pool& pool() const { return own_pool_ ? *own_pool_ : Pool::Default(); }

  // What these inputs decide, with operators for one executor. Thread-safe.
  IntrusivePtr<Specialization> Specialize(const std::vector<TensorInfo>& inputs,
                                          std::unique_ptr<BoundNodes>* nodes);
  // The one used last; null while the shapes of the inputs are not known.
  IntrusivePtr<Specialization> Latest() const {
    MutexLock lock(mutex_);
    return known_.empty() ? IntrusivePtr<Specialization>() : known_.front();
  }

 private:
  IntrusivePtr<Specialization> Find(const std::vector<TensorInfo>& inputs) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (!SameTypes(known_[i]->inputs(), inputs)) continue;
      IntrusivePtr<Specialization> found = known_[i];
      known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(i));
      known_.insert(known_.begin(), found);
      return found;
    }
    return {};
  }
  // Steps run one after the other in their order.
  bool IsWalked() const {
    const bool walk = options_.mode == ReplayMode::kWalk ||
                      (options_.mode == ReplayMode::kAuto && pool().threads() == 1);
    return walk || options_.deterministic;
  }
  static bool SameTypes(const std::vector<TensorInfo>& a, const std::vector<TensorInfo>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i].dtype != b[i].dtype || !(a[i].shape == b[i].shape)) return false;
    return true;
  }

  PlanOptions options_;
  const Graph graph_;
  const GraphView view_;
  std::unique_ptr<Pool> own_pool_;
  mutable Mutex mutex_;
  std::vector<IntrusivePtr<Specialization>> known_;  // the most recently used first
};

template <class Parts>
IntrusivePtr<Specialization<Parts>> PlanState<Parts>::Specialize(
    const std::vector<TensorInfo>& inputs, std::unique_ptr<BoundNodes>* nodes) {
  MutexLock lock(mutex_);
  IntrusivePtr<Specialization> found = Find(inputs);
  if (!found) {
    found = MakeIntrusive<Specialization>(
        view_, inputs,
        typename Specialization::Options{IsWalked(), options_.deterministic, options_.memory,
                                         options_.verify_memory});
    known_.insert(known_.begin(), found);
    if (known_.size() > static_cast<size_t>(options_.max_shapes)) known_.pop_back();
  }
  if (nodes) *nodes = found->TakeNodes();
  return found;
}

}  // namespace detail

// A handle; copies are the same plan. Thread-safe.
template <class PlanParts>
class BasicPlan {
 public:
  using Parts = PlanParts;
  using State = detail::PlanState<Parts>;
  using Graph = typename State::Graph;
  using NodeChoice = typename Parts::NodeChoice;

  // The graph as it runs, after the passes.
  const Graph& graph() const { return state_->graph(); }
  int threads() const { return state_->pool().threads(); }

  // Of the input shapes used last. Error (kFailedPrecondition) while none are known: the graph
  // leaves some open and nothing has run yet.
  MemorySummary memory() const { return Latest()->memory(); }
  // What is known of a value then. Errors: as memory(), kNotFound.
  TensorInfo type(std::string_view value) const { return Latest()->types().at(value); }
  // The kernel selected for a node of graph().
  NodeChoice choice(int node) const {
    graph().node(node);
    return Latest()->choices()[static_cast<size_t>(node)];
  }

  // For people: the schedule, the memory plan, what was selected for each node.
  std::string Describe() const {
    std::string out = StrCat("plan of ", graph().num_nodes(), " nodes on ", threads(),
                             threads() == 1 ? " thread\n" : " threads\n");
    const auto found = state_->Latest();
    if (!found) return out + "  the shapes of its inputs are not known yet\n";
    const auto& schedule = found->schedule();
    out += StrCat("  schedule: ", schedule.edges_kept(), " of ", schedule.edges_given(),
                  " edges kept, ", schedule.levels(), " levels, at most ",
                  StrCat(schedule.max_width(), " wide\n"));
    out += StrCat("  mode: ", found->mode(), "\n");
    const auto& memory = found->memory();
    out += StrCat("  memory: ", memory.arena_bytes, " bytes for ", memory.planned_values,
                  " values (at least ", memory.lower_bound_bytes, ", one by one ",
                  memory.naive_bytes, StrCat("), ", memory.inplace_values, " in place\n"));
    for (int step = 0; step < schedule.size(); ++step) {
      const int node = schedule.original_of(step);
      const NodeChoice& choice = found->choices()[static_cast<size_t>(node)];
      out += StrCat("  ", step, " ", ToString(graph().node(node)), ": ", choice.kernel->backend,
                    ", ", choice.kernel->Place());
      for (int value : state_->view().outputs(node))
        if (value >= 0) out += " " + ToString(found->types()[value]);
      out += "\n";
    }
    return out;
  }

  // For executors.
  const detail::IntrusivePtr<State>& state() const { return state_; }

 private:
  template <class P>
  friend P Compile(const typename P::Graph&, const PlanOptions&);
  explicit BasicPlan(detail::IntrusivePtr<State> state) : state_(std::move(state)) {}

  auto Latest() const {
    auto latest = state_->Latest();
    if (!latest)
      Throw(ErrorCode::kFailedPrecondition,
            "the plan leaves shapes of its inputs open, and nothing has run yet: run it, or give "
            "every input a shape");
    return latest;
  }
  detail::IntrusivePtr<State> state_;
};
using Plan = BasicPlan<detail::PlanParts>;

// Makes a plan of a graph, which is copied. When all inputs have shapes, kernels are selected and
// memory is planned at once; otherwise for each set of shapes at its first run. Errors: what is
// wrong with the graph (Check, InferGraph), a pass or its result, an operator's constructor.
//
//   Plan plan = Compile(g, {.threads = 2});
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
template <class P = Plan>
P Compile(const typename P::Graph& graph, const PlanOptions& options = {}) {
  const BasicPassList<typename P::Graph>* passes = options.passes;
  P plan(detail::MakeIntrusive<typename P::State>(
      passes ? passes->Run(graph) : DefaultPasses<typename P::Graph>().Run(graph), options));
  if (graph.num_nodes() > 0 && graph.outputs().empty() && plan.graph().num_nodes() == 0)
    Throw(ErrorCode::kInvalidArgument,
          "the graph has no outputs, and none of its nodes has an effect: AddOutput what a run is "
          "to return");
  std::vector<TensorInfo> inputs;
  bool known = true;
  for (const auto& input : plan.graph().inputs()) {
    inputs.push_back(input.info);
    known &= input.info.dtype != DType::kUndefined && input.info.shape.is_known();
  }
  if (known) {
    plan.state_->Specialize(inputs, nullptr);
  } else {
    InferGraph(plan.state_->view());  // what is wrong whatever the shapes are
  }
  return plan;
}
#ifdef OPKIT_EXTERN_GRAPH  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
extern template Plan Compile<Plan>(const Graph&, const PlanOptions&);
extern template detail::IntrusivePtr<detail::Specialization<detail::PlanParts>>
detail::PlanState<detail::PlanParts>::Specialize(const std::vector<TensorInfo>&,
                                                 std::unique_ptr<BoundNodes>*);
#endif

}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_HPP_

// ---- opkit/graph/draw_plan.hpp
// DrawMemory: the memory plan of a graph as a picture: time across, addresses up, a box for each
// value.
#ifndef OPKIT_GRAPH_DRAW_PLAN_HPP_
#define OPKIT_GRAPH_DRAW_PLAN_HPP_

namespace opkit::inline OPKIT_ABI {

// An SVG document for the input shapes used last. The steps across are those of the stored order;
// where nodes run in another, boxes that could meet then do not overlap either. Values that share
// bytes in place are one box with both names. Errors: as Plan::memory(); kNotFound for a device
// that the plan has no arena on.
template <class P = Plan>
std::string DrawMemory(const P& plan, Device device = {}) {
  const auto found = plan.state()->Latest();
  static_cast<void>(plan.memory());
  for (const auto& arena : found->arenas()) {
    if (!(arena.device == MemoryDevice(device))) continue;
    const auto& view = plan.state()->view();
    MemorySvgOptions options;
    options.title = StrCat("Memory of ", view.num_nodes(), " nodes on ", ToString(arena.device));
    options.names.resize(arena.lifetimes.buffers.size());
    for (size_t value = 0; value < arena.values.size(); ++value) {
      const int buffer = arena.lifetimes.buffer_of[value];
      if (buffer < 0) continue;
      std::string& name = options.names[static_cast<size_t>(buffer)];
      const int number = static_cast<int>(value) - view.num_values();
      name += StrCat(name.empty() ? "" : " = ", number < 0 ? view.name(static_cast<int>(value))
                                                           : StrCat("scratch of step ", number));
    }
    return DrawMemoryPlan(arena.lifetimes.buffers, arena.plan, options);
  }
  Throw(ErrorCode::kNotFound, "the plan has no memory on ", ToString(device));
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_DRAW_PLAN_HPP_

// ---- opkit/graph/bound_plan.hpp
// BoundPlan: a specialization with operators, tensors and arenas of its own, which a Replay runs
// step by step. What an executor keeps for each set of input shapes.
#ifndef OPKIT_GRAPH_BOUND_PLAN_HPP_
#define OPKIT_GRAPH_BOUND_PLAN_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Operators that share a stream are issued to it one at a time: what fails between an operator's
// work and its event would otherwise be taken for another's.
inline Mutex& IssueMutex(Device device, int stream) {
  static Mutex mutexes[64];
  return mutexes[(static_cast<unsigned>(device.type) * 31 +
                  static_cast<unsigned>(device.index) * 7 + static_cast<unsigned>(stream)) %
                 64];
}

template <class Parts>
class BoundPlan final : public RefCounted {
  using GraphView = typename Parts::GraphView;
  using Schedule = typename Parts::Schedule;
  using OperatorBase = typename Parts::OperatorBase;
  using Specialization = detail::Specialization<Parts>;
  using BoundNodes = detail::BoundNodes<Parts>;

 public:
  BoundPlan(const GraphView& view, IntrusivePtr<Specialization> specialization,
            std::unique_ptr<BoundNodes> nodes, ThreadPool& pool, ReplayOptions options)
      : view_(view),
        specialization_(std::move(specialization)),
        nodes_(std::move(nodes)),
        replay_(specialization_->schedule(), Body{this}, options, pool) {
    MakeSteps();
    AllocateArenas();
    TellMode();
  }
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  const Specialization& specialization() const { return *specialization_; }
  Blob& blob(int value) const { return nodes_->blob(value); }
  OperatorBase& op(int node) const { return nodes_->op(node); }

  void Run(Timeout timeout) {
    Begin();
    try {
      replay_.Run(timeout);
      if (!settled_) [[unlikely]]
        TellMode();
    } catch (...) {
      Clean();
      throw;
    }
  }
  // `done` is called once, by the thread that ends the run; what failed is to be cleaned after it.
  void RunAsync(UniqueFunction<void(std::exception_ptr)> done) {
    Begin();
    replay_.RunAsync(std::move(done));
  }
  // From any thread: steps that have not begun are skipped, asynchronous ones in flight fail.
  void Cancel() {
    const int run = runs_;
    replay_.Cancel();
    if (runs_ == run) CancelPending();  // what was told of the end may have begun the next run
  }
  // After a run that failed. What was given up may still be written by a device: it keeps that
  // memory, and the next run gets other.
  void Clean() {
    if (!specialization_->may_pend()) return;
    CancelPending();
    while (replay_.pending() > 0) sched_yield();  // completions that are on their way
    replay_.Drain();
    AllocateArenas();
    for (size_t at = 0; at + 1 < places_.size(); ++at) {
      Blob& blob = *places_[at].blob;
      if (!places_[at].storage && view_.producer(places_[at].value) >= 0 && blob.IsType<Tensor>())
        *blob.GetMutable<Tensor>() = Tensor(blob.Get<Tensor>().device());
    }
  }

  std::string ExplainMode() const { return replay_.ExplainMode(); }

 private:
  struct Body {
    BoundPlan* self;
    NodeState operator()(int step) const { return self->RunStep(step); }
  };
  // Where an operator must leave a value: memory that was planned for it, or anywhere but in an
  // arena when `storage` is null.
  struct Place {
    Blob* blob;
    const void* tensor;  // what the blob held when it was planned; to be looked at by address only
    const StorageBlock* storage;
    int64_t offset;
    int value;
    bool apart;  // it, or what it may be a view of, is rewritten: it must share no input's memory
  };
  struct Step {
    OperatorBase* op;
    int first_place, end_place;
    int first_wait, end_wait;
    int stream;
    bool asynchronous;
  };

  void Begin() {
    ++runs_;
    cancelled_ = false;
  }
  // Until it is settled, the mode changes with what the runs take.
  OPKIT_COLD void TellMode() {
    settled_ = replay_.settled();
    specialization_->SetMode(replay_.ExplainMode());
  }

  NodeState RunStep(int i) {
    Step& step = steps_[static_cast<size_t>(i)];
    Prefetch(i + kAhead);
    try {
      if (step.asynchronous) [[unlikely]]
        return Issue(i, step);
      step.op->Run();
      CheckPlaces(step);
      return NodeState::kDone;
    } catch (...) {
      if (specialization_->may_pend()) FailPending(std::current_exception());
      throw;
    }
  }
  // Operators and tensors of a large graph lie where they were allocated; the order of the steps is
  // known, so that they can be on their way when their turn comes.
  static constexpr int kAhead = 6;
  void Prefetch(int i) const {
    if (static_cast<size_t>(i) >= steps_.size()) return;
    const Step& step = steps_[static_cast<size_t>(i)];
    __builtin_prefetch(step.op);
    const Place& place = places_[static_cast<size_t>(step.first_place)];
    __builtin_prefetch(place.blob);
    __builtin_prefetch(place.tensor);
  }
  // What still runs elsewhere may never finish: it must not hold up a run that has failed.
  OPKIT_COLD void FailPending(std::exception_ptr failure) {
    replay_.Fail(std::move(failure));
    CancelPending();
  }
  void IssueTo(const Step& step) {
    for (int wait = step.first_wait; wait < step.end_wait; ++wait)
      step.op->WaitEvent(waits_[static_cast<size_t>(wait)]->event(), step.stream);
    step.op->RunAsync(step.stream);
  }
  NodeState Issue(int i, Step& step) {
    if (step.op->device().type == DeviceType::kCPU) {  // no stream; the body may run a graph itself
      IssueTo(step);
    } else {
      MutexLock lock(IssueMutex(step.op->device(), step.stream));
      IssueTo(step);
    }
    CheckPlaces(step);
    const Event& event = step.op->event();
    if (event.IsFinished()) {
      event.RethrowIfFailed();
      return NodeState::kDone;
    }
    SetFlight(i, event);
    event.SetCallback([this, i] { Land(i); });
    if (cancelled_) CancelPending();  // which may have looked before this was in flight
    return NodeState::kPending;
  }
  void Land(int i) {
    const std::exception_ptr failure = steps_[static_cast<size_t>(i)].op->event().exception();
    SetFlight(i, {});
    if (failure) FailPending(failure);
    replay_.Complete(i, failure);
  }
  // Cancel may come at any time, and an operator's own handle is not to be read while it is issued
  // again: what is in flight has a second one.
  void SetFlight(int i, std::optional<Event> event) {
    MutexLock lock(flight_mutex_);
    flights_[static_cast<size_t>(i)] = std::move(event);
  }
  void CancelPending() {
    cancelled_ = true;
    std::vector<typename Parts::Event> events;
    {
      MutexLock lock(flight_mutex_);
      for (const std::optional<Event>& flight : flights_)
        if (flight) events.push_back(*flight);
    }
    for (auto& event : events) event.Cancel();
  }

  // One look at each output on the hot path: it is a tensor, and in its place.
  void CheckPlaces(const Step& step) {
    const Place* const end = places_.data() + step.end_place;
    for (const Place* place = places_.data() + step.first_place; place != end; ++place)
      if (!IsInPlace(*place)) [[unlikely]]
        MoveOut(step, *place);
  }
  bool IsInPlace(const Place& place) const {
    const Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) [[unlikely]]
      return false;
    const Tensor& tensor = blob.Get<Tensor>();
    const StorageBlock* found = tensor.storage().get();
    if (place.storage) return found == place.storage && tensor.byte_offset() == place.offset;
    return found != only_arena_ && !several_arenas_ && !place.apart;
  }
  bool IsArena(const StorageBlock* storage) const {
    for (const Storage& arena : arenas_)
      if (arena.get() == storage) return true;
    return false;
  }
  // The operator left its output elsewhere: as a view of an input, or because it could not write
  // where it should. Where there is room for it, the value goes to its place, so that it outlives
  // the input and the next run writes to no memory but ours.
  OPKIT_COLD void MoveOut(const Step& step, const Place& place) {
    Blob& blob = *place.blob;
    if (!blob.IsType<Tensor>()) return;
    Tensor& tensor = *blob.GetMutable<Tensor>();
    const bool in_arena = IsArena(tensor.storage().get());
    if (!tensor.initialized()) return;
    const bool shared = place.apart && SharesInput(step, place);
    if (!in_arena && !place.storage && !shared) return;
    if (step.asynchronous || !IsHostAccessible(tensor.device().type)) {
      if (!in_arena && !shared) return;
      Throw(ErrorCode::kUnsupported, "operator ", ToString(step.op->def()), " made '", blob.name(),
            "' a view of an input while its device still works; declare the pair in place, or "
            "copy");
    }
    Tensor moved;
    if (place.storage && tensor.nbytes() <= PlannedBytes(place.value))
      moved = Tensor(ArenaOf(place.storage), place.offset, tensor.shape(), tensor.dtype());
    else if (!in_arena && !shared)
      return;
    moved.CopyFrom(tensor);
    tensor = std::move(moved);
  }
  bool SharesInput(const Step& step, const Place& place) const {
    const Blob& made = *place.blob;
    for (int i = 0; i < step.op->InputSize(); ++i) {
      if (!step.op->HasInput(i)) continue;
      const Blob& input = step.op->InputBlob(i);
      if (&input != &made && input.IsType<Tensor>() &&
          input.Get<Tensor>().SharesMemoryWith(made.Get<Tensor>()))
        return true;
    }
    return false;
  }
  Storage ArenaOf(const StorageBlock* storage) const {
    for (const Storage& arena : arenas_)
      if (arena.get() == storage) return arena;
    return {};
  }
  int64_t PlannedBytes(int value) const {
    const TensorInfo& info = specialization_->types()[value];
    return Tensor::CheckedBytes(info.shape.ToShape(), info.dtype);
  }

  void MakeSteps() {
    const Schedule& schedule = specialization_->schedule();
    std::vector<char> rewritten(static_cast<size_t>(view_.num_values()), 0);
    for (const auto& rewrite : view_.rewrites()) rewritten[static_cast<size_t>(rewrite.value)] = 1;
    for (int i = 0; i < schedule.size(); ++i) {
      const int node = schedule.original_of(i);
      bool reads_rewritten = false;
      for (int value : view_.inputs(node))
        reads_rewritten |= value >= 0 && rewritten[static_cast<size_t>(value)] != 0;
      Step& step = steps_.emplace_back();
      step.op = &nodes_->op(node);
      step.stream = specialization_->stream(node);
      step.asynchronous = specialization_->IsAsynchronous(node);
      step.first_place = static_cast<int>(places_.size());
      for (int value : view_.outputs(node))
        if (value >= 0)
          places_.push_back({&nodes_->blob(value), nullptr, nullptr, 0, value,
                             reads_rewritten || rewritten[static_cast<size_t>(value)] != 0});
      step.end_place = static_cast<int>(places_.size());
    }
    places_.push_back({});  // what a step without outputs looks ahead at
    MakeWaits();
    if (specialization_->may_pend()) flights_.resize(steps_.size());
  }
  // The early edges between streams: their target waits for the event on the device.
  void MakeWaits() {
    const Schedule& schedule = specialization_->schedule();
    // A list for each target, with the first source in front.
    std::vector<int> from, next, head(steps_.size(), -1);
    for (int i = schedule.size() - 1; i >= 0; --i)
      for (int at = schedule.entry_begin()[static_cast<size_t>(i)];
           at < schedule.entry_begin()[static_cast<size_t>(i) + 1]; ++at) {
        const int entry = schedule.entries()[static_cast<size_t>(at)];
        if (!Schedule::IsEarly(entry) || specialization_->IsOrderAlone(i, entry)) continue;
        next.push_back(std::exchange(head[static_cast<size_t>(Schedule::TargetOf(entry))],
                                     static_cast<int>(from.size())));
        from.push_back(i);
      }
    for (int i = 0; i < schedule.size(); ++i) {
      Step& step = steps_[static_cast<size_t>(i)];
      step.first_wait = static_cast<int>(waits_.size());
      if (step.asynchronous)
        for (auto e = head[static_cast<size_t>(i)]; e >= 0; e = next[static_cast<size_t>(e)])
          waits_.push_back(steps_[static_cast<size_t>(from[static_cast<size_t>(e)])].op);
      step.end_wait = static_cast<int>(waits_.size());
    }
  }
  // New arenas, and every planned value and scratch in its place.
  void AllocateArenas() {
    arenas_.clear();
    for (const auto& arena : specialization_->arenas()) arenas_.push_back(NewArena(arena));
    several_arenas_ = arenas_.size() > 1;
    only_arena_ = arenas_.size() == 1 ? arenas_[0].get() : nullptr;
    for (size_t a = 0; a < arenas_.size(); ++a)
      if (arenas_[a]) FillArena(specialization_->arenas()[a], arenas_[a]);
  }
  Storage NewArena(const ArenaPlan<Parts>& arena) const {
    try {
      if (arena.plan.arena_bytes == 0) return {};
      return AllocateStorage(arena.device, arena.plan.arena_bytes);
    } catch (Error& error) {
      error.AddContext(specialization_->LargestIn(arena));
      throw;
    }
  }
  void FillArena(const ArenaPlan<Parts>& arena, const Storage& storage) {
    for (size_t at = 0; at + 1 < places_.size(); ++at) {
      Place& place = places_[at];
      const auto value = static_cast<size_t>(place.value);
      const int64_t offset = arena.OffsetOf(value);
      if (offset < 0 || arena.values[value].bytes == 0) continue;
      if (view_.producer(place.value) < 0) continue;
      const TensorInfo& info = specialization_->types()[place.value];
      Blob& blob = *place.blob;
      *blob.GetMutable<Tensor>() = Tensor(storage, offset, info.shape.ToShape(), info.dtype);
      place.tensor = blob.GetMutable<Tensor>();
      place.storage = storage.get();
      place.offset = offset;
    }
    for (size_t step = 0; step < steps_.size(); ++step) {
      const size_t value = static_cast<size_t>(view_.num_values()) + step;
      const int64_t offset = arena.OffsetOf(value);
      if (offset >= 0 && arena.values[value].bytes > 0)
        steps_[step].op->SetScratch(static_cast<char*>(storage->data()) + offset,
                                    arena.values[value].bytes);
    }
  }

  const GraphView& view_;
  IntrusivePtr<Specialization> specialization_;
  std::unique_ptr<BoundNodes> nodes_;
  std::vector<Step> steps_;
  std::vector<Place> places_;         // of the steps' outputs
  std::vector<OperatorBase*> waits_;  // of the steps
  std::vector<Storage> arenas_;
  const StorageBlock* only_arena_ = nullptr;
  bool several_arenas_ = false;
  bool settled_ = false;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> runs_{0};
  Mutex flight_mutex_;
  std::vector<std::optional<Event>> flights_;  // by step; empty unless it is pending
  Replay<Body> replay_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_BOUND_PLAN_HPP_

// ---- opkit/graph/executor.hpp
// Executor: runs a plan. It owns what a run writes to: operators, tensors, an arena; so that many
// executors of one plan run at once.
#ifndef OPKIT_GRAPH_EXECUTOR_HPP_
#define OPKIT_GRAPH_EXECUTOR_HPP_

namespace opkit::inline OPKIT_ABI {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Tensors by name, in the order of the graph's outputs.
template <class NamedTensor>
class BasicNamedTensors {
 public:
  // Error (kNotFound) that names the nearest.
  const Tensor& at(std::string_view name) const {
    std::vector<std::string> names;
    for (const NamedTensor& item : items_) {
      if (item.name == name) return item.tensor;
      names.push_back(item.name);
    }
    Throw(ErrorCode::kNotFound, "there is no output '", name, "'", SuggestName(name, names));
  }
  void Add(const std::string& name, const Tensor& tensor) { items_.push_back({name, tensor}); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }

 private:
  std::vector<NamedTensor> items_;
};
using NamedTensors = BasicNamedTensors<NamedTensor>;

// One run at a time; different executors of one plan may run at once. What Run returns is the
// caller's: later runs write to other memory while somebody holds it. A dense input is read where
// it is, one with strides is copied first; a bound output is written where it is.
//
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
//
//   exec.Bind("X", x);                   // for hot loops: nothing is allocated
//   exec.Bind("Y", y);
//   for (…) exec.Run();
//
// Shapes other than those of the last run are planned once and kept (PlanOptions::max_shapes).
template <class Plan, class NamedTensor>
class BasicExecutor : public Observable<BasicExecutor<Plan, NamedTensor>> {
  using NamedTensors = BasicNamedTensors<NamedTensor>;

 public:
  explicit BasicExecutor(Plan plan);
  BasicExecutor(const BasicExecutor&) = delete;
  BasicExecutor& operator=(const BasicExecutor&) = delete;
  // Cancels a run in flight, and returns when no operator is running.
  ~BasicExecutor();

  const Plan& plan() const { return plan_; }

  // Runs with these inputs, besides those that are bound. Errors: kNotFound for a name that is no
  // input; kInvalidArgument, kTypeMismatch for a tensor that is not what the graph says, or an
  // input that nothing was given for; kDeadlineExceeded after `timeout` and kCancelled, when
  // operators that run have returned and no other is called; what the operator that failed first
  // threw.
  NamedTensors Run(const std::vector<NamedTensor>& inputs, Timeout timeout = {});
  NamedTensors Run(std::initializer_list<NamedTensor> inputs, Timeout timeout = {}) {
    return Run(std::vector<NamedTensor>(inputs), timeout);
  }
  // Runs with what is bound.
  void Run(Timeout timeout = {});
  // Starts a run with what is bound and returns. The event completes with it; outputs() are there
  // then. Errors: as Run for what is wrong before anything has run. There is no deadline, which
  // nobody would watch: the event can be waited for with one, and Cancel ends the run. Where the
  // plan has a pool of its own, a callback of the event must not end the last executor of the plan.
  Event RunAsync();
  // From any thread. A run in progress ends with kCancelled: what has not begun is skipped, what a
  // device does still goes on in memory of its own.
  void Cancel();

  // The tensor that runs read input `name` from, or write output `name` to, from now on; a
  // default-constructed one unbinds. Errors: kNotFound; kInvalidArgument, kTypeMismatch as for Run.
  void Bind(std::string_view name, Tensor tensor);
  // Of the last run. Error (kFailedPrecondition) before one, during one, and after one that failed.
  NamedTensors outputs() const;
  // One of them. Errors: kNotFound, and as outputs().
  const Tensor& output(std::string_view name) const;

  // The operator of a node of plan().graph(), for observers. It is another one after a run with
  // other input shapes.
  OperatorBase& op(int node);
  // How nodes are run, and why.
  std::string ExplainMode() const;

 private:
  using BoundPlan = detail::BoundPlan<typename Plan::Parts>;
  struct Input {
    int value;
    Tensor tensor;
    Tensor dense;  // a copy, where the tensor has strides
    bool bound;
    bool rewritten;
  };
  struct Output {
    int value;
    Tensor bound;
    bool lent;  // the operators write to what is bound; else it is copied there
  };
  enum class State : char { kIdle, kRunning, kRunningAsync };

  // The executor, for one run.
  class Claim {
   public:
    explicit Claim(BasicExecutor& self) : self_(&self) {
      State idle = State::kIdle;
      if (!self.state_.compare_exchange_strong(idle, State::kRunning)) [[unlikely]]
        ThrowRunning();
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
      if (self_) self_->state_ = State::kIdle;
    }
    void Keep() { self_ = nullptr; }

   private:
    BasicExecutor* self_;
  };

  // Inputs for one run.
  class Given {
   public:
    Given(BasicExecutor& self, const std::vector<NamedTensor>& inputs) : self_(self) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        const NamedTensor& given = inputs[i];
        Input* input = self.FindInput(given.name);
        if (!input) self.ThrowUnknown(given.name);
        self.CheckInput(*input, given.tensor);
        for (size_t k = 0; k < i; ++k)
          if (inputs[k].name == given.name)
            Throw(ErrorCode::kInvalidArgument, "input '", given.name, "' is given twice");
      }
      for (const Input& input : self.inputs_) before_.push_back(input.tensor);
      for (const NamedTensor& given : inputs) self.FindInput(given.name)->tensor = given.tensor;
      self.changed_ = true;
    }
    ~Given() {
      for (size_t i = 0; i < before_.size(); ++i) {
        Input& input = self_.inputs_[i];
        input.tensor = std::move(before_[i]);
        if (self_.current_) self_.TensorOf(input.value) = input.tensor;
      }
      self_.changed_ = true;
    }

   private:
    BasicExecutor& self_;
    std::vector<Tensor> before_;
  };

  const auto& view() const { return plan_.state()->view(); }
  ::opkit::Blob& Blob(int value) const { return current_->blob(value); }
  Tensor& TensorOf(int value) const {
    ::opkit::Blob& blob = Blob(value);
    return *blob.GetMutable<Tensor>();
  }
  Input* FindInput(std::string_view name) {
    for (Input& input : inputs_)
      if (view().name(input.value) == name) return &input;
    return nullptr;
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(std::string_view name) const {
    std::vector<std::string> names;
    for (const Input& input : inputs_) names.push_back(view().name(input.value));
    for (const Output& output : outputs_) names.push_back(view().name(output.value));
    Throw(ErrorCode::kNotFound, "the graph has no input or output '", name, "'",
          SuggestName(name, names));
  }
  void CheckIdle() const {
    if (state_ != State::kIdle) ThrowRunning();
  }
  [[noreturn]] OPKIT_COLD static void ThrowRunning() {
    Throw(ErrorCode::kFailedPrecondition,
          "the executor is running: finish the event of RunAsync first (one that was cancelled "
          "by its own handle is finished before the run is), or use another executor of the "
          "plan");
  }
  void CheckInput(const Input& input, const Tensor& tensor) const {
    const std::string& name = view().name(input.value);
    const TensorInfo& info = view().graph().FindInput(name)->info;
    if (!tensor.initialized())
      Throw(ErrorCode::kUninitialized, "the tensor given for input '", name, "' has no data");
    const bool dtype_differs = info.dtype != DType::kUndefined && info.dtype != tensor.dtype();
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "input '", name,
            "' of the graph is ", ToString(info), ", but the tensor given is ", tensor);
    if (MemoryDevice(tensor.device()) != MemoryDevice(info.device))
      Throw(ErrorCode::kInvalidArgument, "input '", name, "' of the graph is on ",
            ToString(info.device), ", but the tensor given is ", tensor, "; copy it there first");
    if (!tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name,
            "' must have the standard layout, but is ", tensor);
    if (!tensor.is_dense() &&
        (view().IsRewritten(input.value) || !IsHostAccessible(tensor.device().type)))
      Throw(ErrorCode::kInvalidArgument, "the tensor given for input '", name, "' must be dense: ",
            view().IsRewritten(input.value) ? "the graph writes to it" : "it is not on the host");
  }
  void CheckOutput(const Output& output, const Tensor& tensor) const {
    const std::string& name = view().name(output.value);
    if (!tensor.initialized() || !tensor.is_dense() || !tensor.layout().is_standard())
      Throw(ErrorCode::kInvalidArgument, "the tensor bound to output '", name,
            "' must have memory and be dense, but is ", tensor);
    if (view().producer(output.value) < 0)
      Throw(ErrorCode::kInvalidArgument, "output '", name,
            "' of the graph is an input or a constant itself, and cannot be bound");
    if (known_) CheckBound(output, tensor);
  }
  void CheckBound(const Output& output, const Tensor& tensor) const {
    const TensorInfo& info = current_->specialization().types()[output.value];
    const bool dtype_differs = info.dtype != DType::kUndefined && info.dtype != tensor.dtype();
    if (dtype_differs || !SymbolicShape::Merge(info.shape, tensor.shape()) ||
        MemoryDevice(info.device) != MemoryDevice(tensor.device()))
      Throw(dtype_differs ? ErrorCode::kTypeMismatch : ErrorCode::kInvalidArgument, "output '",
            view().name(output.value), "' of the graph is ", ToString(info), " on ",
            ToString(info.device), ", but the tensor bound to it is ", tensor);
  }

  void RunClaimed(Timeout timeout) {
    Prepare();
    ObserverScope<BasicExecutor> observers(*this);
    try {
      current_->Run(timeout);
    } catch (...) {
      changed_ = true;  // it may have let go of what was bound
      throw;
    }
    Collect();
    has_outputs_ = true;
    observers.Succeeded();
  }
  void Prepare() {
    has_outputs_ = false;
    if (changed_) [[unlikely]]
      Rebind();
    for (const Input& input : inputs_)
      if (!input.tensor.is_dense()) [[unlikely]]
        Densify(input);
    for (Output& output : outputs_) {
      ::opkit::Blob& blob = Blob(output.value);
      if (view().producer(output.value) < 0 || !blob.IsType<Tensor>()) continue;
      Tensor& tensor = *blob.GetMutable<Tensor>();
      // Somebody holds the last result.
      if (!output.lent && tensor.storage().use_count() > 1) tensor = Tensor(tensor.device());
    }
  }
  // Operators for the inputs' shapes, and their tensors in the blobs.
  OPKIT_COLD void Rebind() {
    std::vector<TensorInfo> infos;
    for (const Input& input : inputs_) {
      if (input.tensor.dtype() == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument, "nothing was given for input '",
              view().name(input.value), "' of the graph; Run({{\"", view().name(input.value),
              "\", tensor}}), or Bind it");
      infos.push_back(TensorInfo::Of(input.tensor));
      infos.back().layout = Layout();
    }
    CheckOverlaps();
    Select(infos);
    for (const Output& output : outputs_)
      if (output.bound.dtype() != DType::kUndefined) CheckBound(output, output.bound);
    for (Input& input : inputs_)
      if (input.tensor.is_dense()) {
        TensorOf(input.value) = input.tensor;
        input.dense = Tensor();
      }
    for (Output& output : outputs_) {
      if (view().producer(output.value) < 0) continue;
      // An input is read until the run ends, so what overlaps one is written after it.
      const bool lend = output.bound.dtype() != DType::kUndefined && !IsInputMemory(output.bound);
      if (lend) {
        TensorOf(output.value) = output.bound;
      } else if (output.lent) {
        TakeBack(output);
      }
      output.lent = lend;
    }
    changed_ = false;
  }
  void TakeBack(Output& output) {
    Tensor& tensor = TensorOf(output.value);
    tensor = Tensor(tensor.device());
    output.lent = false;
  }
  bool IsInputMemory(const Tensor& tensor) const {
    for (const Input& input : inputs_)
      if (input.tensor.SharesMemoryWith(tensor)) return true;
    return false;
  }
  // Memory that would be written while something else is read or written there.
  void CheckOverlaps() const {
    const auto share = [&](const Tensor& a, const Tensor& b, const char* what, int first,
                           int second) {
      if (a.SharesMemoryWith(b))
        Throw(ErrorCode::kInvalidArgument, what, " '", view().name(first), "' and '",
              view().name(second), "' share memory, and the graph writes to it; give each its own");
    };
    for (size_t i = 0; i < outputs_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        share(outputs_[i].bound, outputs_[j].bound, "the tensors bound to the outputs",
              outputs_[j].value, outputs_[i].value);
    for (const Input& input : inputs_)
      for (const Input& other : inputs_)
        if (input.rewritten && &input != &other)
          share(input.tensor, other.tensor, "the tensors given for the inputs", input.value,
                other.value);
  }
  OPKIT_COLD void Densify(const Input& input) {
    Tensor& dense = const_cast<Input&>(input).dense;
    dense.CopyFrom(input.tensor);
    TensorOf(input.value) = dense;
  }
  void Select(const std::vector<TensorInfo>& infos) {
    if (current_ && Matches(*current_, infos)) return;
    detail::MutexLock lock(current_mutex_);
    for (size_t i = 0; i < bound_.size(); ++i)
      if (Matches(*bound_[i], infos)) {
        auto found = std::move(bound_[i]);
        bound_.erase(bound_.begin() + static_cast<std::ptrdiff_t>(i));
        Leave();
        bound_.insert(bound_.begin(), std::move(found));
        current_ = bound_.front().get();
        return;
      }
    const PlanOptions& options = plan_.state()->options();
    std::unique_ptr<typename Plan::State::BoundNodes> nodes;
    auto specialization = plan_.state()->Specialize(infos, &nodes);
    ReplayOptions replay;
    replay.mode = options.mode;
    replay.may_pend = specialization->may_pend();
    // Memory was planned for steps one after the other, and the pool has more threads since.
    if (replay.mode == ReplayMode::kAuto && !specialization->run_order().stages.empty() &&
        plan_.state()->pool().threads() > 1)
      replay.mode = ReplayMode::kWalk;
    auto bound = detail::MakeIntrusive<BoundPlan>(view(), std::move(specialization),
                                                  std::move(nodes), plan_.state()->pool(), replay);
    Leave();
    bound_.insert(bound_.begin(), std::move(bound));
    current_ = bound_.front().get();
    if (bound_.size() > static_cast<size_t>(options.max_shapes)) bound_.pop_back();
  }
  // The operators in use keep no memory of the caller's.
  void Leave() {
    if (!current_) return;
    for (const Input& input : inputs_) TensorOf(input.value) = Tensor();
    for (Output& output : outputs_)
      if (output.lent) TakeBack(output);
  }
  static bool Matches(const BoundPlan& bound, const std::vector<TensorInfo>& infos) {
    const std::vector<TensorInfo>& known = bound.specialization().inputs();
    for (size_t i = 0; i < infos.size(); ++i)
      if (known[i].dtype != infos[i].dtype || !(known[i].shape == infos[i].shape)) return false;
    return true;
  }

  // Outputs that an operator left elsewhere than where they belong.
  void Collect() {
    for (const Input& input : inputs_)
      if (input.rewritten) PutBack(input);
    for (const Output& output : outputs_) {
      ::opkit::Blob& blob = Blob(output.value);
      if (view().producer(output.value) < 0 || !blob.IsType<Tensor>()) continue;
      Tensor& tensor = *blob.GetMutable<Tensor>();
      if (output.bound.dtype() != DType::kUndefined) {
        if (tensor.raw_data() != output.bound.raw_data() ||
            tensor.dtype() != output.bound.dtype() || tensor.shape() != output.bound.shape())
            [[unlikely]]
          CopyToBound(output, tensor);
      } else if (tensor.storage().use_count() > 1) [[unlikely]] {
        tensor = Detached(tensor);  // a view of an input, a constant or another output
      }
    }
  }
  OPKIT_COLD void CopyToBound(const Output& output, Tensor& tensor) const {
    if (tensor.dtype() != output.bound.dtype() || tensor.shape() != output.bound.shape())
      Throw(ErrorCode::kInvalidArgument, "output '", view().name(output.value), "' came out as ",
            tensor, ", but the tensor bound to it is ", output.bound);
    Tensor target = output.bound;
    Copy(tensor, &target);
    if (output.lent) tensor = output.bound;
  }
  // What a node that rewrites an input of the graph left elsewhere.
  void PutBack(const Input& input) {
    Tensor& tensor = TensorOf(input.value);
    if (tensor.raw_data() == input.tensor.raw_data()) return;
    if (tensor.dtype() != input.tensor.dtype() || tensor.shape() != input.tensor.shape())
      Throw(ErrorCode::kInvalidArgument, "input '", view().name(input.value),
            "' of the graph was rewritten as ", tensor, ", but the tensor given is ", input.tensor);
    Tensor target = input.tensor;
    Copy(tensor, &target);
    tensor = input.tensor;
  }
  OPKIT_COLD static Tensor Detached(const Tensor& tensor) {
    Tensor own(tensor.device());
    Copy(tensor, &own);
    return own;
  }
  void Finish(std::exception_ptr error) {
    try {
      if (error) {
        changed_ = true;
        current_->Clean();
      } else {
        Collect();
        has_outputs_ = true;
      }
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    this->StopAllObservers(!error);
    const Event event = event_;
    state_ = State::kIdle;
    event.state()->Complete(std::move(error));
  }
  NamedTensors Values() const {
    NamedTensors out;
    for (const Output& output : outputs_) out.Add(view().name(output.value), Value(output));
    return out;
  }
  const Tensor& Value(const Output& output) const {
    if (!has_outputs_)
      Throw(ErrorCode::kFailedPrecondition, "output '", view().name(output.value),
            "' has no value: ",
            current_ ? "no run has ended well since the executor was made or one failed"
                     : "it is asked for before the first run",
            "; run first");
    const ::opkit::Blob& blob = Blob(output.value);
    return blob.Get<Tensor>();
  }

  Plan plan_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  bool known_ = false;                                  // the graph says all shapes of its inputs
  bool has_outputs_ = false;                            // of a run that succeeded
  bool changed_ = true;                                 // since the blobs were set
  std::vector<detail::IntrusivePtr<BoundPlan>> bound_;  // the most recently used first
  BoundPlan* current_ = nullptr;
  detail::Mutex current_mutex_;  // of `current_`, for Cancel
  Event event_;
  std::atomic<State> state_{State::kIdle};
};

template <class Plan, class NamedTensor>
BasicExecutor<Plan, NamedTensor>::BasicExecutor(Plan plan) : plan_(std::move(plan)) {
  const auto& view = this->view();
  for (const auto& input : view.graph().inputs())
    inputs_.push_back({view.FindValue(input.name), {}, {}, false, false});
  for (const auto& rewrite : view.rewrites())  // inputs are the first values
    if (view.IsInput(rewrite.value)) inputs_[static_cast<size_t>(rewrite.value)].rewritten = true;
  for (int value : view.outputs()) outputs_.push_back({value, {}, false});
  known_ = true;
  for (const auto& input : view.graph().inputs())
    known_ &= input.info.dtype != DType::kUndefined && input.info.shape.is_known();
  if (known_) {
    std::vector<TensorInfo> infos;
    for (const auto& input : view.graph().inputs()) infos.push_back(input.info);
    Select(infos);
  }
}

template <class Plan, class NamedTensor>
BasicExecutor<Plan, NamedTensor>::~BasicExecutor() {
  if (state_ != State::kRunningAsync) return;
  Cancel();
  // The run, not its event: whoever holds that may have cancelled it long before.
  while (state_ == State::kRunningAsync) sched_yield();
}

template <class Plan, class NamedTensor>
BasicNamedTensors<NamedTensor> BasicExecutor<Plan, NamedTensor>::Run(
    const std::vector<NamedTensor>& inputs, Timeout timeout) {
  const Claim claim(*this);
  const Given given(*this, inputs);
  RunClaimed(timeout);
  return Values();
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Run(Timeout timeout) {
  const Claim claim(*this);
  RunClaimed(timeout);
}

template <class Plan, class NamedTensor>
Event BasicExecutor<Plan, NamedTensor>::RunAsync() {
  Claim claim(*this);
  Prepare();
  if (event_.IsFinished()) event_.Reset();
  event_.SetScheduled();
  claim.Keep();
  state_ = State::kRunningAsync;
  this->StartAllObservers();
  current_->RunAsync([this](std::exception_ptr error) { Finish(std::move(error)); });
  return event_;
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Cancel() {
  const Plan plan = plan_;  // who is told of the end may end the executor, and call it too
  detail::IntrusivePtr<BoundPlan> current;
  {
    detail::MutexLock lock(current_mutex_);
    if (!bound_.empty()) current = bound_.front();
  }
  if (current) current->Cancel();
}

template <class Plan, class NamedTensor>
void BasicExecutor<Plan, NamedTensor>::Bind(std::string_view name, Tensor tensor) {
  CheckIdle();
  const bool unbind = tensor.dtype() == DType::kUndefined;
  if (Input* input = FindInput(name)) {
    if (!unbind) CheckInput(*input, tensor);
    input->bound = !unbind;
    input->tensor = std::move(tensor);
    changed_ = true;
    return;
  }
  for (Output& output : outputs_) {
    if (view().name(output.value) != name) continue;
    if (!unbind) CheckOutput(output, tensor);
    output.bound = std::move(tensor);
    changed_ = true;
    return;
  }
  ThrowUnknown(name);
}

template <class Plan, class NamedTensor>
BasicNamedTensors<NamedTensor> BasicExecutor<Plan, NamedTensor>::outputs() const {
  CheckIdle();
  return Values();
}

template <class Plan, class NamedTensor>
const Tensor& BasicExecutor<Plan, NamedTensor>::output(std::string_view name) const {
  CheckIdle();
  for (const Output& output : outputs_)
    if (view().name(output.value) == name) return Value(output);
  ThrowUnknown(name);
}

template <class Plan, class NamedTensor>
OperatorBase& BasicExecutor<Plan, NamedTensor>::op(int node) {
  plan_.graph().node(node);
  if (!current_)
    Throw(ErrorCode::kFailedPrecondition, "the executor has no operators before its first run");
  return current_->op(node);
}

template <class Plan, class NamedTensor>
std::string BasicExecutor<Plan, NamedTensor>::ExplainMode() const {
  return current_ ? current_->ExplainMode() : "not known before the first run";
}

using Executor = BasicExecutor<Plan, NamedTensor>;
#ifdef OPKIT_EXTERN_GRAPH  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
extern template class BasicExecutor<Plan, NamedTensor>;
#endif

}  // namespace opkit

#endif  // OPKIT_GRAPH_EXECUTOR_HPP_

// ---- opkit/graph/gradient_nodes.hpp
// What AddGradients makes of a graph: the graph with gradient nodes behind its own, named, summed
// up and thinned out to what is needed.
#ifndef OPKIT_GRAPH_GRADIENT_NODES_HPP_
#define OPKIT_GRAPH_GRADIENT_NODES_HPP_

namespace opkit::inline OPKIT_ABI {

// By the name of the value.
using GradientMap = std::map<std::string, GradientValue>;

namespace detail {

template <class Names, class Graph, class GradientValue>
class GradientNodes {
  using OperatorDef = typename Graph::Def;

 public:
  explicit GradientNodes(const Graph& graph) : graph_(graph), num_before_(graph.num_nodes()) {
    for (const auto& input : graph.inputs()) names_.Reserve(input.name);
    for (const auto& constant : graph.constants()) names_.Reserve(constant.name);
    for (const OperatorDef& def : graph.nodes())
      for (const std::string& name : def.outputs())
        if (!name.empty()) names_.Reserve(name);
  }

  Names& names() { return names_; }
  const Graph& graph() const { return graph_; }
  Graph TakeGraph() { return std::move(graph_); }
  // For each node added: the node whose gradient it computes; num_before() for sums.
  const std::vector<int>& origins() const { return origins_; }
  int num_before() const { return num_before_; }

  // A constant of ones, as the gradient of the value `name`.
  GradientValue AddOnes(const std::string& name, Shape shape, DType dtype) {
    Tensor ones(std::move(shape), dtype);
    DispatchDType<float16, bfloat16, float, double>(dtype, [&]<class T>() {
      T* data = ones.mutable_data<T>();
      for (int64_t i = 0; i < ones.numel(); ++i) data[i] = static_cast<T>(1.f);
    });
    ones_ = names_.Of(name);
    graph_.AddConstant(ones_, std::move(ones));
    return ones_;
  }

  // Makers call the gradient of a value the same wherever it is used, so what was made before gets
  // another name here. That also takes gradients out of place that a maker computes in place:
  // others may share them.
  void Add(int node, GradientOpsMeta& meta) {
    std::vector<std::string> made, from, to;
    auto renamed = [&](std::string& name) {
      for (size_t i = 0; i < from.size(); ++i)
        if (from[i] == name) return void(name = to[i]);
    };
    auto is_made = [&](const std::string& name) {
      for (const std::string& known : made)
        if (known == name) return true;
      return false;
    };
    for (OperatorDef& op : meta.ops) {
      for (std::string& input : op.mutable_inputs()) renamed(input);
      for (std::string& output : op.mutable_outputs()) {
        if (output.empty()) continue;
        renamed(output);
        if (is_made(output)) continue;
        if (graph_.HasValue(output)) {
          const std::string* value = names_.ValueOf(output);
          from.push_back(output);
          to.push_back(names_.Fresh(value ? std::string(*value) : output));
          output = to.back();
        }
        made.push_back(output);
      }
      const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
      if (std::string why = schema.Verify(op); !why.empty())
        Throw(ErrorCode::kInvalidArgument, why, "; in gradient node ", ToString(op));
      ForEachRewritten(op, [&](const std::string& input) {
        if (!is_made(input))
          Throw(ErrorCode::kUnsupported, "gradient node ", ToString(op), " writes to '", input,
                "', which others may read");
      });
      AddNode(std::move(op), node);
    }
    for (GradientValue& value : meta.g_input)
      for (std::string* part : {&value.dense, &value.indices, &value.values}) renamed(*part);
  }

  // Adds up the gradients of the value `name`: all at once, or pair by pair.
  GradientValue Sum(const std::string& name, const std::vector<GradientValue>& list,
                    const std::string& type) {
    OperatorDef sum(type);
    for (const GradientValue& gradient : list) {
      if (gradient.IsSparse())
        Throw(ErrorCode::kUnsupported, "value '", name, "' has ", list.size(),
              " gradients, of which ", ToString(gradient),
              " is sparse: only dense ones can be added up; let one node alone read the value, or "
              "make that gradient dense");
      sum.Input(gradient.dense);
    }
    const OpSchema* schema = OpRegistry::Global().FindSchema(sum.type());
    if (!schema)
      Throw(ErrorCode::kNotFound, "value '", name, "' is used ", list.size(),
            " times, and its gradients are added up by operator '", sum.type(),
            "', which is not registered; register it, or name another in "
            "GradientOptions::sum_operator");
    const int first = graph_.Producer(list.front().dense);
    if (first >= 0) sum.Device(graph_.node(first).device());
    sum.IsGradientOp(true);
    const bool takes_all = schema->Verify(OperatorDef(sum).Output("all")).empty();
    const std::vector<std::string> parts = sum.inputs();
    std::string total = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      if (!takes_all) sum.mutable_inputs() = {total, parts[i]};
      total = names_.Fresh(name, "_grad_sum");
      sum.mutable_outputs() = {total};
      if (std::string why = schema->Verify(sum); !why.empty())
        Throw(ErrorCode::kInvalidArgument, "operator '", sum.type(),
              "' cannot add up the gradients of '", name, "': ", why);
      AddNode(sum, num_before_);
      if (takes_all) break;
    }
    return total;
  }

  // Nodes whose results nothing needs: gradients of values that nobody asked for.
  void Prune(const GradientMap& found) {
    NameIndex needed;
    for (const auto& [name, value] : found)
      for (const std::string* part : {&value.dense, &value.indices, &value.values})
        needed.Add(*part);
    std::vector<char> removed(static_cast<size_t>(graph_.num_nodes()), 0);
    for (int i = graph_.num_nodes(); i-- > num_before_;) {
      bool keep = HasEffect(graph_.node(i));
      for (const std::string& output : graph_.node(i).outputs())
        keep |= !output.empty() && needed.Find(output) >= 0;
      ForEachRewritten(graph_.node(i),
                       [&](const std::string& input) { keep |= needed.Find(input) >= 0; });
      removed[static_cast<size_t>(i)] = !keep;
      if (keep)
        for (const std::string& input : graph_.node(i).inputs()) needed.Add(input);
    }
    std::vector<int> origins;
    for (size_t i = 0; i < origins_.size(); ++i)
      if (!removed[i + static_cast<size_t>(num_before_)]) origins.push_back(origins_[i]);
    origins_ = std::move(origins);
    graph_.RemoveNodes(removed);
    if (!ones_.empty() && needed.Find(ones_) < 0) graph_.RemoveConstant(ones_);
  }

 private:
  void AddNode(OperatorDef def, int node) {
    graph_.AddNode(std::move(def));
    origins_.push_back(node);
  }

  Graph graph_;
  const int num_before_;
  Names names_;
  std::string ones_;
  std::vector<int> origins_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_GRADIENT_NODES_HPP_

// ---- opkit/graph/gradients.hpp
// AddGradients: the backward graph of a loss, from the registered gradient makers: nodes in reverse
// order, a sum where a value is used more than once, and only what the wanted gradients need.
#ifndef OPKIT_GRAPH_GRADIENTS_HPP_
#define OPKIT_GRAPH_GRADIENTS_HPP_

namespace opkit::inline OPKIT_ABI {

struct GradientOptions {
  std::string seed = {};  // the value that holds the gradient of the loss; "": a constant of ones
  // Adds up the gradients of a value that is used more than once: of all of them at once where its
  // schema takes so many inputs, else of two at a time.
  std::string sum_operator = "Sum";
  // A value that no gradient flows to gets an empty GradientValue; otherwise it is an Error.
  bool allow_none = false;
};

namespace detail {

template <class Names, class Graph, class GradientValue = ::opkit::GradientValue>
class GradientBuilder {
  using GraphView = BasicGraphView<Graph>;
  using OperatorDef = typename Graph::Def;

 public:
  GradientBuilder(const Graph& graph, const std::string& loss, const std::vector<std::string>& wrt,
                  const GradientOptions& options)
      : graph_(graph),
        view_(graph),
        options_(options),
        types_(InferGraph(view_)),
        nodes_(graph),
        loss_(Find(loss, "the loss")),
        first_rewrite_(static_cast<size_t>(view_.num_nodes()) + 1, 0),
        carries_(static_cast<size_t>(view_.num_nodes()), 0),
        reached_(static_cast<size_t>(view_.num_values()), 0),
        giver_(static_cast<size_t>(view_.num_values()), -1),
        gradients_(static_cast<size_t>(view_.num_values())) {
    if (wrt.empty())
      Throw(ErrorCode::kInvalidArgument, "AddGradients of '", loss,
            "' needs the name of at least one value to differentiate by");
    for (const std::string& name : wrt) {
      wrt_.push_back(Find(name, "to differentiate by"));
      if (!Differentiable(wrt_.back()))
        Throw(ErrorCode::kTypeMismatch, "cannot differentiate by '", name, "', which is ",
              ToString(types_[wrt_.back()]), "; expected a floating-point value");
    }
    for (const auto& rewrite : view_.rewrites())
      ++first_rewrite_[static_cast<size_t>(rewrite.node) + 1];
    for (size_t node = 1; node < first_rewrite_.size(); ++node)
      first_rewrite_[node] += first_rewrite_[node - 1];
  }

  GradientMap Build() {
    AddSeed();
    MarkReached();
    for (size_t i = view_.order().size(); i-- > 0;) Differentiate(view_.order()[i]);
    GradientMap found;
    for (int value : wrt_) {
      found[view_.name(value)] = Total(value);
      if (found[view_.name(value)].IsEmpty() && !options_.allow_none) ThrowUnreached(value);
    }
    nodes_.Prune(found);
    CheckRewritten();
    GraphView checked(nodes_.graph());
    return found;
  }
  Graph TakeGraph() { return nodes_.TakeGraph(); }

 private:
  // The value of that name. Error (kNotFound) that names the nearest.
  int Find(const std::string& name, const char* what) const {
    const int value = view_.FindValue(name);
    if (value >= 0) return value;
    std::vector<std::string> known;
    for (int v = 0; v < view_.num_values(); ++v) known.push_back(view_.name(v));
    Throw(ErrorCode::kNotFound, "the graph has no value '", name, "' (", what, ")",
          SuggestName(name, known));
  }
  const GradientValue* First(int value) const {
    const auto& list = gradients_[static_cast<size_t>(value)];
    return list.empty() ? nullptr : &list.front();
  }
  bool Differentiable(int value) const {
    const DType dtype = types_[value].dtype;
    return dtype != DType::kBool && !IsInteger(dtype);
  }
  static GradientKind KindOf(const OperatorDef& def) {
    const auto* registration = GradientRegistry::Global().Find(def.type());
    return registration ? registration->kind : GradientKind::kMaker;
  }

  void AddSeed() {
    const TensorInfo& loss = types_[loss_];
    const std::string& name = view_.name(loss_);
    if (loss.dtype != DType::kUndefined && !IsFloatingPoint(loss.dtype))
      Throw(ErrorCode::kTypeMismatch, "the loss '", name, "' is ", ToString(loss),
            "; expected a floating-point value");
    auto& seeds = gradients_[static_cast<size_t>(loss_)];
    if (options_.seed.empty()) {
      if (loss.dtype == DType::kUndefined || !loss.shape.is_known())
        Throw(ErrorCode::kFailedPrecondition, "the loss '", name, "' is ", ToString(loss),
              ", so the ones that its gradient starts from have no ",
              loss.dtype == DType::kUndefined ? "dtype" : "shape",
              " yet; name a value that holds them in GradientOptions::seed");
      seeds.push_back(nodes_.AddOnes(name, loss.shape.ToShape(), loss.dtype));
      return;
    }
    const int given = Find(options_.seed, "GradientOptions::seed");
    const TensorInfo& seed = types_[given];
    if (view_.IsRewritten(given))
      Throw(ErrorCode::kUnsupported, "the seed '", options_.seed,
            "' is rewritten by a node of the graph; name a value that stays as it is");
    const bool dtypes_differ = seed.dtype != DType::kUndefined && loss.dtype != DType::kUndefined &&
                               seed.dtype != loss.dtype;
    if (dtypes_differ || !SymbolicShape::Merge(seed.shape, loss.shape))
      Throw(ErrorCode::kInvalidArgument, "the seed '", options_.seed, "' is ", ToString(seed),
            ", but the loss '", name, "' is ", ToString(loss), "; they must be alike");
    seeds.push_back(options_.seed);
  }

  // What depends on the wanted values, by nodes that carry gradients.
  void MarkReached() {
    for (int value : wrt_) reached_[static_cast<size_t>(value)] = 1;
    for (int node : view_.order()) {
      bool reached = false;
      for (int value : view_.inputs(node))
        reached |= value >= 0 && reached_[static_cast<size_t>(value)];
      if (!reached || KindOf(graph_.node(node)) == GradientKind::kNone) continue;
      carries_[static_cast<size_t>(node)] = 1;
      ForEachWritten(node, [&](int value) {
        if (Differentiable(value)) reached_[static_cast<size_t>(value)] = 1;
      });
    }
  }
  template <class F>
  void ForEachWritten(int node, F&& f) const {
    for (int value : view_.outputs(node))
      if (value >= 0) f(value);
    for (const auto& rewrite : RewritesOf(node)) f(rewrite.value);
  }
  // The view lists them node by node.
  std::span<const typename GraphView::Rewrite> RewritesOf(int node) const {
    const int first = first_rewrite_[static_cast<size_t>(node)];
    const int end = first_rewrite_[static_cast<size_t>(node) + 1];
    return {view_.rewrites().data() + first, static_cast<size_t>(end - first)};
  }

  void Differentiate(int node) {
    const OperatorDef& def = graph_.node(node);
    for (const auto& rewrite : RewritesOf(node))
      if (First(rewrite.value))
        Throw(ErrorCode::kUnsupported, "node ", ToString(def), " rewrites '",
              view_.name(rewrite.value), "', through which the gradient of '", view_.name(loss_),
              "' flows, and a gradient is that of one value; let the node write another one");
    if (!carries_[static_cast<size_t>(node)]) return;
    std::vector<GradientValue> g_output;
    bool flows = false;
    try {
      for (int value : view_.outputs(node)) {
        g_output.push_back(value < 0 ? GradientValue() : Total(value));
        flows |= !g_output.back().IsEmpty();
      }
      if (!flows) return;
      GradientOpsMeta meta = GetGradientForOp(def, g_output, nodes_.names());
      nodes_.Add(node, meta);
      const auto inputs = view_.inputs(node);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] >= 0 && reached_[static_cast<size_t>(inputs[i])])
          AddGradient(inputs[i], node, meta.g_input[i]);
    } catch (Error& error) {
      error.AddContext(
          StrCat("in the gradient of node ", ToString(def), ", on the path ", PathThrough(node)));
      throw;
    }
  }
  void AddGradient(int value, int node, const GradientValue& gradient) {
    if (gradient.IsEmpty()) return;
    for (const std::string* part : {&gradient.dense, &gradient.indices, &gradient.values}) {
      if (part->empty()) continue;
      if (!nodes_.graph().HasValue(*part))
        Throw(ErrorCode::kInvalidArgument, "its gradient maker names '", *part,
              "' as the gradient of '", view_.name(value), "', but makes no such value");
      if (const int shared = view_.FindValue(*part); shared >= 0 && view_.IsRewritten(shared))
        Throw(ErrorCode::kUnsupported, "the gradient of '", view_.name(value), "' is '", *part,
              "' itself, which a node of the graph rewrites; let that node write another value");
    }
    auto& list = gradients_[static_cast<size_t>(value)];
    if (list.empty()) giver_[static_cast<size_t>(value)] = node;
    list.push_back(gradient);
  }

  // The one gradient of a value, summed up when it has several.
  GradientValue Total(int value) {
    auto& list = gradients_[static_cast<size_t>(value)];
    if (list.empty()) return {};
    if (list.size() > 1) list.assign(1, nodes_.Sum(view_.name(value), list, options_.sum_operator));
    return list.front();
  }
  // Gradient nodes run behind all others, and so must not read what has changed since their node
  // ran.
  void CheckRewritten() const {
    std::vector<int> last(gradients_.size(), -1);  // node that rewrites the value, by value
    for (const auto& rewrite : view_.rewrites())
      last[static_cast<size_t>(rewrite.value)] = rewrite.node;
    for (size_t i = 0; i < nodes_.origins().size(); ++i) {
      const int origin = nodes_.origins()[i];
      const OperatorDef& op = nodes_.graph().node(nodes_.num_before() + static_cast<int>(i));
      for (const std::string& input : op.inputs()) {
        const int value = view_.FindValue(input);
        const int node = value < 0 ? -1 : last[static_cast<size_t>(value)];
        if (node > origin)
          Throw(ErrorCode::kUnsupported, "gradient node ", ToString(op), " needs '", input,
                "' as node ", ToString(graph_.node(origin)), " saw it, but node ",
                ToString(graph_.node(node)), " rewrites it later; let that node write another ",
                "value");
      }
    }
  }

  // "'x' -> 'a' -> 'loss'": values from a wanted one to the loss.
  OPKIT_COLD std::string PathThrough(int node) const {
    std::vector<int> path;
    for (int at = node; at >= 0;) {
      int next = -1;
      for (int value : view_.inputs(at))
        if (next < 0 && value >= 0 && reached_[static_cast<size_t>(value)]) next = value;
      if (next < 0) break;
      path.insert(path.begin(), next);
      bool wanted = false;
      for (int value : wrt_) wanted |= value == next;
      at = wanted ? -1 : view_.producer(next);
    }
    for (int at = node; at >= 0;) {
      int next = -1;
      for (int value : view_.outputs(at))
        if (next < 0 && value >= 0 && First(value)) next = value;
      if (next < 0) break;
      path.push_back(next);
      at = next == loss_ ? -1 : giver_[static_cast<size_t>(next)];
    }
    constexpr size_t kShown = 5;  // at either end
    std::string text;
    for (size_t i = 0; i < path.size(); ++i) {
      if (path.size() > 2 * kShown && i == kShown) {
        text += " -> ...";
        i = path.size() - kShown;
      }
      text += StrCat(i ? " -> '" : "'", view_.name(path[i]), "'");
    }
    return text;
  }

  [[noreturn]] OPKIT_COLD void ThrowUnreached(int value) const {
    std::vector<char> after(reached_.size(), 0), before(reached_.size(), 0);
    after[static_cast<size_t>(value)] = before[static_cast<size_t>(loss_)] = 1;
    auto any = [](const std::vector<char>& marks, std::span<const int> values) {
      bool found = false;
      for (int v : values) found |= v >= 0 && marks[static_cast<size_t>(v)];
      return found;
    };
    auto mark = [](std::vector<char>& marks, std::span<const int> values) {
      for (int v : values)
        if (v >= 0) marks[static_cast<size_t>(v)] = 1;
    };
    for (int node : view_.order())
      if (any(after, view_.inputs(node))) mark(after, view_.outputs(node));
    for (size_t i = view_.order().size(); i-- > 0;)
      if (const int node = view_.order()[i]; any(before, view_.outputs(node)))
        mark(before, view_.inputs(node));
    std::string why = after[static_cast<size_t>(loss_)]
                          ? "the operators on the way give it none"
                          : "no path of nodes leads from it to the loss";
    for (int node : view_.order()) {
      if (!any(after, view_.inputs(node)) || !any(before, view_.outputs(node))) continue;
      const OperatorDef& def = graph_.node(node);
      if (KindOf(def) != GradientKind::kNone) continue;
      why = StrCat("NO_GRADIENT(", def.type(), ") stops it at node ", ToString(def));
      break;
    }
    Throw(ErrorCode::kInvalidArgument, "no gradient of '", view_.name(loss_), "' flows to '",
          view_.name(value), "': ", why,
          "; leave it out, or set GradientOptions::allow_none to get an empty gradient");
  }

  const Graph& graph_;
  const GraphView view_;
  const GradientOptions& options_;
  const BasicGraphTypes<GraphView> types_;
  GradientNodes<Names, Graph, GradientValue> nodes_;
  const int loss_;
  std::vector<int> wrt_;
  std::vector<int> first_rewrite_;                     // by node
  std::vector<char> carries_;                          // by node
  std::vector<char> reached_;                          // by value
  std::vector<int> giver_;                             // by value: where its first gradient is from
  std::vector<std::vector<GradientValue>> gradients_;  // by value, not summed up yet
};

}  // namespace detail

// Adds the nodes that compute the gradients of `loss` by the values `wrt` (inputs, constants or
// what nodes make) and returns what these gradients are called. Gradients do not become outputs of
// the graph by themselves; two values may share one gradient (those of an addition do), so ask
// IsOutput before AddOutput. Where the operators that were added have gradients themselves, a
// second call differentiates again.
//
//   GradientMap d = AddGradients(g, "loss", {"W", "b"});
//   g.AddOutput(d.at("W").dense);
//
// Errors leave the graph as it was: kNotFound for a name that the graph has not, or an operator
// that nothing is said about; kTypeMismatch for a loss or a value that is no floating-point number;
// kFailedPrecondition where the loss has no shape yet and no seed is given; kUnsupported for
// operators that must not or cannot be differentiated, for values that are rewritten on the way,
// and for sparse gradients that would have to be added up; kInvalidArgument when no gradient flows
// to a value; and those of gradient makers, with the node and a path from a value to the loss.
template <class Names = GradientNames, class G = Graph>
GradientMap AddGradients(G& graph, const std::string& loss, const std::vector<std::string>& wrt,
                         const GradientOptions& options = {}) {
  detail::GradientBuilder<Names, G> builder(graph, loss, wrt, options);
  GradientMap found = builder.Build();
  graph = builder.TakeGraph();
  return found;
}
#ifdef OPKIT_EXTERN_GRAPH  // compiled elsewhere, see cmake/OpkitStandardOperators.cmake
extern template GradientMap AddGradients<GradientNames, Graph>(Graph&, const std::string&,
                                                               const std::vector<std::string>&,
                                                               const GradientOptions&);
#endif

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRADIENTS_HPP_

// ---- opkit/graph/memory_csv.hpp
// Memory plans as text: rows `id,lower,upper,size` in, the same with `,offset` out. The form of the
// public benchmark instances, so that other planners' input and output can be exchanged.
#ifndef OPKIT_GRAPH_MEMORY_CSV_HPP_
#define OPKIT_GRAPH_MEMORY_CSV_HPP_

namespace opkit::inline OPKIT_ABI {

struct MemoryTable {
  std::vector<std::string> ids;
  std::vector<MemoryInterval> buffers;
  std::vector<int64_t> offsets;  // empty when the table has no such column
};

namespace detail {

template <class Table, class Interval>
class MemoryCsvReader {
 public:
  explicit MemoryCsvReader(std::string_view text) : rest_(text) {}

  Table Read() {
    Table table;
    int columns[kColumns];
    ReadHeader(columns);
    const bool with_offset = columns[kOffset] >= 0;
    while (NextLine()) {
      if (line_.empty()) continue;
      std::string_view cells[kColumns];
      const int count = Split(cells);
      if (count != header_cells_)
        Fail(StrCat("expected ", header_cells_, " cells as in the header, found ", count));
      const std::string_view id = cells[columns[kId]];
      if (ids_.Find(id) >= 0) Fail(StrCat("id '", id, "' stands in an earlier line as well"));
      ids_.Add(id);
      table.ids.emplace_back(id);
      Interval buffer;
      buffer.lower = Number(cells, columns, kLower);
      buffer.upper = Number(cells, columns, kUpper);
      buffer.size = Number(cells, columns, kSize);
      if (buffer.lower >= buffer.upper)
        Fail(StrCat("lower is ", buffer.lower, " and upper ", buffer.upper,
                    ": expected lower < upper"));
      if (buffer.size < 0) Fail(StrCat("size is ", buffer.size, ": expected 0 or more"));
      table.buffers.push_back(buffer);
      if (!with_offset) continue;
      table.offsets.push_back(Number(cells, columns, kOffset));
      if (table.offsets.back() < 0)
        Fail(StrCat("offset is ", table.offsets.back(), ": expected 0 or more"));
    }
    return table;
  }

 private:
  enum Column { kId, kLower, kUpper, kSize, kOffset, kColumns };
  static constexpr const char* kNames[kColumns] = {"id", "lower", "upper", "size", "offset"};

  bool NextLine() {
    if (rest_.empty()) return false;
    ++number_;
    const size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    return true;
  }
  // Into the first kColumns cells; how many there are.
  int Split(std::string_view* cells) const {
    int count = 0;
    for (std::string_view rest = line_;;) {
      const size_t end = rest.find(',');
      if (count < kColumns) cells[count] = rest.substr(0, end);
      ++count;
      if (end == std::string_view::npos) return count;
      rest = rest.substr(end + 1);
    }
  }
  void ReadHeader(int* columns) {
    if (!NextLine()) number_ = 1;
    std::string_view cells[kColumns];
    header_cells_ = Split(cells);
    bool known = header_cells_ <= kColumns;
    for (int column = 0; column < kColumns; ++column) {
      columns[column] = -1;
      for (int i = 0; known && i < header_cells_; ++i)
        if (cells[i] == kNames[column]) columns[column] = i;
    }
    for (int column = 0; column < kColumns; ++column)
      known = known && (columns[column] >= 0 || column == kOffset);
    if (!known || header_cells_ != (columns[kOffset] >= 0 ? 5 : 4))
      Fail(StrCat("expected the columns id,lower,upper,size and perhaps offset, found '", line_,
                  "'"));
  }
  int64_t Number(const std::string_view* cells, const int* columns, Column column) const {
    const std::string_view cell = cells[columns[column]];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size())
      Fail(StrCat("expected a 64-bit integer as ", kNames[column], ", found '", cell, "'"));
    return value;
  }
  [[noreturn]] void Fail(const std::string& why) const {
    Throw(ErrorCode::kInvalidArgument, "line ", number_, ": ", why);
  }

  std::string_view rest_, line_;
  NameIndex ids_;
  int number_ = 0;
  int header_cells_ = 0;
};

}  // namespace detail

// The text of a file, its columns in any order, with or without `offset`; ids are any text without
// a comma. Errors (kInvalidArgument) begin with the line's number.
template <class Table = MemoryTable, class Interval = MemoryInterval>
Table ReadMemoryCsv(std::string_view text) {
  return detail::MemoryCsvReader<Table, Interval>(text).Read();
}

// `ids` may be empty: then buffers are numbered from 0. Without offsets the column is left out.
template <class Interval = MemoryInterval>
std::string WriteMemoryCsv(const std::vector<Interval>& buffers,
                           const std::vector<int64_t>& offsets = {},
                           const std::vector<std::string>& ids = {}) {
  if ((!offsets.empty() && offsets.size() != buffers.size()) ||
      (!ids.empty() && ids.size() != buffers.size()))
    Throw(ErrorCode::kInvalidArgument, "expected an offset and an id for each of ", buffers.size(),
          " buffers, or none; found ", offsets.size(), " offsets and ", ids.size(), " ids");
  std::string text = offsets.empty() ? "id,lower,upper,size\n" : "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!ids.empty() && ids[i].find_first_of(",\n\r") != std::string::npos)
      Throw(ErrorCode::kInvalidArgument, "id '", ids[i], "' of buffer ", i,
            " has a comma or a line end, which a cell cannot hold");
    text += StrCat(ids.empty() ? std::to_string(i) : ids[i], ",", buffers[i].lower, ",",
                   buffers[i].upper, ",", buffers[i].size);
    if (!offsets.empty()) text += StrCat(",", offsets[i]);
    text += '\n';
  }
  return text;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_CSV_HPP_

// ---- opkit/graph/print.hpp
// PrintGraph: a graph as text, one line for each input, constant, node and output, and two graphs
// as the difference between these lines: what did a pass do?
#ifndef OPKIT_GRAPH_PRINT_HPP_
#define OPKIT_GRAPH_PRINT_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A template, so that programs that print no graph do not compile it.
template <class G>
class GraphPrinter {
 public:
  // Subgraphs are indented below their node.
  static void Print(const G& graph, const std::string& indent, std::vector<std::string>& lines) {
    const auto add = [&](const std::string& line) {
      lines.emplace_back(indent);
      for (const char c : line) lines.back() += c == '\n' ? "\\n" : std::string(1, c);
    };
    const auto on = [](Device device) {
      return device == Device{} ? std::string() : " on " + ToString(device);
    };
    for (const auto& input : graph.inputs())
      add(StrCat("input ", input.name, " ", ToString(input.info), on(input.info.device)));
    for (const auto& constant : graph.constants())
      add(StrCat("constant ", constant.name, " ", constant.value.dtype(),
                 ToString(constant.value.shape()), on(constant.value.device())));
    for (const auto& def : graph.nodes()) {
      add(Node(def) + on(def.device()));
      for (const auto& item : def.subgraphs()) {
        const G* inner = GraphOf(*item.graph);
        add(StrCat("  ", item.name, ":", inner ? "" : " " + item.graph->Describe()));
        if (inner) Print(*inner, indent + "    ", lines);
      }
    }
    for (const std::string& output : graph.outputs()) add("output " + output);
  }

  static std::string Join(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += line + "\n";
    return out;
  }

 private:
  template <class Def>
  static std::string Node(const Def& def) {
    std::string out = ToString(def), args;
    for (const auto& arg : def.args())
      args += StrCat(args.empty() ? "" : ", ", arg.name, "=", ToString(arg.value));
    if (!args.empty()) out += " {" + args + "}";
    if (!def.engine().empty()) out += " engine " + def.engine();
    if (def.is_gradient_op()) out += " gradient";
    for (size_t i = 0; i < def.control_inputs().size(); ++i)
      out += (i ? ", " : " after ") + def.control_inputs()[i];
    return out;
  }
};

// The longest common subsequence of two lists of lines, in memory linear in their length
// (Hirschberg 1975). Common beginnings and ends cost nothing more.
template <class Strings>
class LineDiff {
 public:
  LineDiff(const Strings& before, const Strings& after) : before_(before), after_(after) {
    for (const std::string& line : before) a_.push_back(numbers_.Add(line));
    for (const std::string& line : after) b_.push_back(numbers_.Add(line));
    Split(0, a_.size(), 0, b_.size());
  }
  const Strings& lines() const { return lines_; }

 private:
  void Removed(size_t i) { lines_.push_back("- " + before_[i]); }
  void Added(size_t i) { lines_.push_back("+ " + after_[i]); }
  void Kept(size_t i) { lines_.push_back("  " + before_[i]); }

  void Split(size_t a0, size_t a1, size_t b0, size_t b1) {
    while (a0 < a1 && b0 < b1 && a_[a0] == b_[b0]) Kept(a0++), ++b0;
    size_t tail = 0;
    while (a0 < a1 && b0 < b1 && a_[a1 - 1] == b_[b1 - 1]) --a1, --b1, ++tail;
    if (a1 - a0 <= 1 || b0 == b1) {
      Small(a0, a1, b0, b1);
    } else {
      const size_t middle = a0 + (a1 - a0) / 2;
      const std::vector<int> head = Lengths(a0, middle, b0, b1, false);
      const std::vector<int> rest = Lengths(middle, a1, b0, b1, true);
      size_t best = 0;
      const size_t width = b1 - b0;
      for (size_t j = 1; j <= width; ++j)
        if (head[j] + rest[width - j] > head[best] + rest[width - best]) best = j;
      Split(a0, middle, b0, b0 + best);
      Split(middle, a1, b0 + best, b1);
    }
    for (size_t i = 0; i < tail; ++i) Kept(a1 + i);
  }
  // At most one line before, or none after.
  void Small(size_t a0, size_t a1, size_t b0, size_t b1) {
    size_t match = b1;
    for (size_t j = b0; j < b1 && a0 < a1; ++j)
      if (a_[a0] == b_[j]) match = j;
    if (match == b1)
      for (size_t i = a0; i < a1; ++i) Removed(i);
    for (size_t j = b0; j < b1; ++j) j == match ? Kept(a0) : Added(j);
  }
  // Element j: how long the subsequence is with the first j lines after (the last j, backwards).
  std::vector<int> Lengths(size_t a0, size_t a1, size_t b0, size_t b1, bool backwards) const {
    const size_t height = a1 - a0, width = b1 - b0;
    std::vector<int> row(width + 1, 0);
    for (size_t i = 0; i < height; ++i) {
      const int line = a_[backwards ? a1 - 1 - i : a0 + i];
      int diagonal = 0;
      for (size_t j = 1; j <= width; ++j) {
        const int above = row[j];
        if (b_[backwards ? b1 - j : b0 + j - 1] == line)
          row[j] = diagonal + 1;
        else if (row[j - 1] > row[j])
          row[j] = row[j - 1];
        diagonal = above;
      }
    }
    return row;
  }

  const Strings &before_, &after_;
  NameIndex numbers_;
  std::vector<int> a_, b_;
  Strings lines_;
};

}  // namespace detail

// "input X float32[N, 3]", "constant W float32[3, 4]", "MatMul (X, W) -> (Y)", "output Y": names,
// attributes, device, engine and control inputs where they are not the plain ones. Does not need
// the graph to be right.
template <class G = Graph>
std::string PrintGraph(const G& graph) {
  std::vector<std::string> lines;
  detail::GraphPrinter<G>::Print(graph, "", lines);
  return detail::GraphPrinter<G>::Join(lines);
}

// Both listings as one: "- " before lines that only `before` has, "+ " before those that only
// `after` has, two spaces before the rest. Time is the product of the numbers of lines that differ.
template <class G = Graph>
std::string PrintGraph(const G& before, const G& after) {
  std::vector<std::string> a, b;
  detail::GraphPrinter<G>::Print(before, "", a);
  detail::GraphPrinter<G>::Print(after, "", b);
  return detail::GraphPrinter<G>::Join(detail::LineDiff<std::vector<std::string>>(a, b).lines());
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_HPP_

// ---- opkit/graph/net_benchmark.hpp
// NetBenchmark: how long each node of a net takes and at what rates it computes and moves bytes, as
// rows and as a table to read (what Caffe2's TEST_Benchmark logs).
#ifndef OPKIT_GRAPH_NET_BENCHMARK_HPP_
#define OPKIT_GRAPH_NET_BENCHMARK_HPP_

namespace opkit::inline OPKIT_ABI {

struct NetBenchmarkOptions {
  int warmup = 1;
  int runs = 10;
};

// A node, or all nodes of one operator.
struct NetBenchmarkRow {
  std::string op;               // its type
  std::string name;             // of the node
  int node = -1;                // its index in the graph; -1 for all nodes of a type
  int count = 1;                // nodes in this row
  double ms = 0;                // of one run: the median; sums of medians for a type
  double share = 0;             // of the sum over all nodes, from 0 to 1
  double flops = 0, bytes = 0;  // of one run, by the schema's cost

  double gflops() const { return ms > 0 ? flops / ms * 1e-6 : 0; }     // per second
  double gigabytes() const { return ms > 0 ? bytes / ms * 1e-6 : 0; }  // per second
};

// A template, so that programs that measure no net do not compile it.
template <class Row>
struct BasicNetBenchmark {
  std::vector<Row> nodes;  // in the order they ran
  std::vector<Row> types;  // the longest first
  double net_ms = 0;       // a run of the whole net: the median
  int runs = 0;

  // Fills in the shares and `types` from the times of `nodes`.
  void SumUp() {
    double total = 0;
    for (const Row& row : nodes) total += row.ms;
    types.clear();
    for (Row& row : nodes) {
      row.share = total > 0 ? row.ms / total : 0;
      Row* sum = nullptr;
      for (Row& type : types)
        if (type.op == row.op) sum = &type;
      if (!sum) {
        sum = &types.emplace_back();
        sum->op = row.op;
        sum->count = 0;
      }
      ++sum->count;
      sum->ms += row.ms;
      sum->share += row.share;
      sum->flops += row.flops;
      sum->bytes += row.bytes;
    }
    for (size_t i = 1; i < types.size(); ++i)
      for (size_t k = i; k > 0 && types[k].ms > types[k - 1].ms; --k)
        std::swap(types[k], types[k - 1]);
  }

  // A header, a line for each node, the sums by operator, and the time of the whole net. A rate
  // that the schema does not tell is "-".
  friend std::string ToString(const BasicNetBenchmark& benchmark) { return Table(benchmark); }

 private:
  template <class Lines = std::vector<std::vector<std::string>>>
  static std::string Table(const BasicNetBenchmark& benchmark) {
    Lines table{{"node", "op", "ms", "share", "GFLOP/s", "GB/s"}};
    for (const Row& row : benchmark.nodes)
      table.push_back(
          Cells(row, std::to_string(row.node), row.name.empty() ? "" : " '" + row.name + "'"));
    table.push_back({});
    for (const Row& row : benchmark.types) table.push_back(Cells(row, "", StrCat(" x", row.count)));
    std::vector<size_t> widths(table[0].size(), 0);
    for (const auto& line : table)
      for (size_t c = 0; c < line.size(); ++c)
        if (line[c].size() > widths[c]) widths[c] = line[c].size();
    std::string out;
    for (const auto& line : table) {
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string fill(widths[c] - line[c].size(), ' ');
        out += (c ? "  " : "") + (c == 1 ? line[c] + fill : fill + line[c]);
      }
      out += "\n";
    }
    return StrCat(out, "\nnet: ", Fixed(benchmark.net_ms, 4), " ms, the median of ",
                  benchmark.runs) +
           " runs\n";
  }
  static std::vector<std::string> Cells(const Row& row, std::string node, const std::string& more) {
    return {std::move(node),
            row.op + more,
            Fixed(row.ms, 4),
            Fixed(row.share * 100, 1) + "%",
            row.flops > 0 ? Fixed(row.gflops(), 2) : "-",
            row.bytes > 0 ? Fixed(row.gigabytes(), 2) : "-"};
  }
  static std::string Fixed(double value, int digits) {
    char buffer[64];  // whatever the program's locale says
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits);
    return end.ec == std::errc() ? std::string(buffer, end.ptr) : StrCat(value);
  }
};
using NetBenchmark = BasicNetBenchmark<NetBenchmarkRow>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_NET_BENCHMARK_HPP_

// ---- opkit/graph/simple_net.hpp
// SimpleNet: a graph run node after node in a workspace, where every value can be looked at: for
// debugging, and to know what each node costs. What Compile and Executor run is compared with it.
#ifndef OPKIT_GRAPH_SIMPLE_NET_HPP_
#define OPKIT_GRAPH_SIMPLE_NET_HPP_

namespace opkit::inline OPKIT_ABI {

// Inputs of the graph are tensors in the workspace, outputs and everything between stay there.
// Constants are put there and share the graph's memory. The net copies the graph and not the
// workspace, which must outlive it; several nets may work in one. Not synchronised.
//
//   Workspace ws;
//   *ws.CreateTensor("X") = x;
//   SimpleNet net(graph, &ws);
//   net.Run();
//   const Tensor& y = *ws.GetTensor("Y");
//   std::puts(ToString(net.Benchmark({.runs = 20})).c_str());
//
// A template, so that programs without nets do not compile it.
template <class Base, class Graph>
class BasicSimpleNet : public Observable<BasicSimpleNet<Base, Graph>> {
 public:
  // Errors: as Check(graph), which finds outputs that nothing makes; kNotFound, with the nearest
  // name, for an input that is not in the workspace; kAlreadyExists where another tensor has the
  // name of a constant; as CreateOperator. What was put into the workspace is then gone again.
  BasicSimpleNet(Graph graph, Workspace* ws) : graph_(std::move(graph)), workspace_(ws) {
    if (!ws) Throw(ErrorCode::kInvalidArgument, "a net needs a workspace");
    Check(graph_);
    for (const auto& input : graph_.inputs())
      if (!ws->HasBlob(input.name))
        Throw(ErrorCode::kNotFound, "input '", input.name,
              "' of the graph is not in the workspace; create it before the net",
              SuggestName(input.name, ws->Blobs()));
    std::vector<std::string> made;
    try {
      for (const auto& constant : graph_.constants()) {
        if (!ws->HasBlob(constant.name)) made.push_back(constant.name);
        PutConstant(constant.name, constant.value);
      }
      const BasicGraphView<Graph> view(graph_);
      for (const int node : view.order()) {
        const auto& def = graph_.node(node);
        for (const std::string& output : def.outputs())
          if (!output.empty() && !ws->HasBlob(output)) made.push_back(output);
        ops_.push_back(CreateOperator(def, ws, node));
      }
    } catch (...) {
      ops_.clear();
      for (const std::string& name : made) ws->RemoveBlob(name);
      throw;
    }
  }

  // Runs every node to completion, in the graph's order. True, or the Error of the first that
  // fails: later ones do not run, and its index is the workspace's last_failed_op_net_position.
  // Error (kTypeMismatch, kInvalidArgument) before anything runs for an input whose dtype or shape
  // is not what the graph declares.
  bool Run() {
    ObserverScope<BasicSimpleNet> observers(*this);
    CheckInputs();
    for (const auto& op : ops_) op->Run();
    observers.Succeeded();
    return true;
  }

  // Times every node alone and the net as a whole, observers included. Error (kInvalidArgument)
  // without runs; what a run throws.
  template <class Result = NetBenchmark>
  Result Benchmark(const NetBenchmarkOptions& options = {}) {
    if (options.runs < 1 || options.warmup < 0)
      Throw(ErrorCode::kInvalidArgument, "a benchmark of ", options.runs, " runs after ",
            options.warmup, " for warming up; expected at least one run");
    for (int i = 0; i < options.warmup; ++i) Run();
    Result result;
    result.runs = options.runs;
    std::vector<int64_t> whole;
    for (int i = 0; i < options.runs; ++i) AddSorted(whole, TimeNs([&] { Run(); }));
    result.net_ms = MedianMs(whole);
    std::vector<std::vector<int64_t>> times(ops_.size());
    for (int i = 0; i < options.runs; ++i)
      for (size_t at = 0; at < ops_.size(); ++at)
        AddSorted(times[at], TimeNs([&] { ops_[at]->Run(); }));
    for (size_t at = 0; at < ops_.size(); ++at)
      result.nodes.push_back(Row(at, MedianMs(times[at])));
    result.SumUp();
    return result;
  }

  const Graph& graph() const { return graph_; }
  Workspace* workspace() const { return workspace_; }
  int num_ops() const { return static_cast<int>(ops_.size()); }
  // The operators in the order they run; each one's net_position() is its node's index.
  Base& op(int i) {
    if (i < 0 || i >= num_ops())
      Throw(ErrorCode::kOutOfRange, "operator ", i, " of a net that has ", num_ops());
    return *ops_[static_cast<size_t>(i)];
  }

 private:
  void PutConstant(const std::string& name, const Tensor& value) {
    Blob* blob = workspace_->CreateBlob(name);
    if (blob->empty()) *blob->GetMutable<Tensor>() = value;
    if (!blob->IsType<Tensor>() || Attribute(blob->Get<Tensor>()) != Attribute(value))
      Throw(ErrorCode::kAlreadyExists, "blob '", name,
            "' of the workspace holds something else than the graph's constant of that name; "
            "rename one of them");
  }
  void CheckInputs() const {
    NameIndex symbols;
    std::vector<int64_t> extents;
    for (const auto& input : graph_.inputs()) {
      const Tensor& found = *workspace_->GetTensor(input.name);
      const DType dtype = input.info.dtype;
      if (dtype != DType::kUndefined && found.dtype() != dtype)
        Throw(found.initialized() ? ErrorCode::kTypeMismatch : ErrorCode::kUninitialized, "input '",
              input.name, "' of the graph is ", found.Describe(), ", expected ",
              ToString(input.info));
      const SymbolicShape& declared = input.info.shape;
      if (!declared.has_rank()) continue;
      bool fits = declared.rank() == found.rank();
      for (int axis = 0; fits && axis < declared.rank(); ++axis) {
        const Dim& dim = declared[axis];
        if (dim.is_symbol()) {
          const auto number = static_cast<size_t>(symbols.Add(dim.symbol()));
          if (number == extents.size()) extents.push_back(found.shape()[axis]);
          if (extents[number] != found.shape()[axis])
            Throw(ErrorCode::kInvalidArgument, "input '", input.name, "' of the graph is ",
                  found.Describe(), ", expected ", ToString(input.info), " where ", dim.symbol(),
                  " is ", extents[number], " in an input before");
        }
        fits = !dim.is_known() || dim.value() == found.shape()[axis];
      }
      if (!fits)
        Throw(ErrorCode::kInvalidArgument, "input '", input.name, "' of the graph is ",
              found.Describe(), ", expected ", ToString(input.info));
    }
  }

  template <class F>
  static int64_t TimeNs(F&& run) {
    const int64_t start_ns = detail::MonotonicNs();
    run();
    return detail::MonotonicNs() - start_ns;
  }
  template <class Times>
  static void AddSorted(Times& times, int64_t time) {
    auto at = times.end();
    while (at != times.begin() && *(at - 1) > time) --at;
    times.insert(at, time);
  }
  static double MedianMs(const std::vector<int64_t>& sorted) {
    const size_t n = sorted.size();
    return static_cast<double>(sorted[(n - 1) / 2] + sorted[n / 2]) * 0.5e-6;
  }
  NetBenchmarkRow Row(size_t at, double ms) const {
    const OperatorDef& def = ops_[at]->def();
    const OpCost cost = OpRegistry::Global()
                            .GetSchema(def.type())
                            .Cost(def, Infos(def.inputs()), Infos(def.outputs()));
    NetBenchmarkRow row;
    row.op = def.type();
    row.name = def.name();
    row.node = ops_[at]->net_position();
    row.ms = ms;
    row.flops = static_cast<double>(cost.flops);
    row.bytes = static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    return row;
  }
  std::vector<TensorInfo> Infos(const std::vector<std::string>& names) const {
    std::vector<TensorInfo> infos;
    for (const std::string& name : names) {
      const bool is_tensor = !name.empty() && workspace_->HasTensor(name);
      infos.push_back(is_tensor ? TensorInfo::Of(*workspace_->GetTensor(name)) : TensorInfo());
    }
    return infos;
  }

  const Graph graph_;
  Workspace* workspace_;
  std::vector<std::unique_ptr<Base>> ops_;
};
using SimpleNet = BasicSimpleNet<OperatorBase, Graph>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_SIMPLE_NET_HPP_

// ---- opkit/opkit.hpp
// The whole toolkit that needs a compiler and nothing else. Standard operators (opkit/ops/…),
// third-party backends (opkit/backends/…) and bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#endif  // OPKIT_OPKIT_HPP_

#endif  // OPKIT_SINGLE_INCLUDE_HPP_

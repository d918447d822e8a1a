// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds opkit/opkit.hpp and all that it includes; a header of the same
// checkout may be included beside it, in any order.
#ifndef OPKIT_SINGLE_INCLUDE_HPP_
#define OPKIT_SINGLE_INCLUDE_HPP_

#include <atomic>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <initializer_list>
#include <linux/futex.h>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <thread>
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

#if defined(OPERATOR_SCHEMA) || defined(REGISTER_CPU_OPERATOR) || defined(REGISTER_CUDA_OPERATOR) || \
    defined(REGISTER_OP) || defined(REGISTER_GRADIENT) || defined(NO_GRADIENT) ||                    \
    defined(USE_OPERATOR_FUNCTIONS) || defined(INPUT_TAGS) || defined(OUTPUT_TAGS)
#error "another library has already defined one of opkit's short macros (OPERATOR_SCHEMA, REGISTER_CPU_OPERATOR, REGISTER_OP, …): compile with -DOPKIT_NO_SHORT_MACROS and use the OPKIT_ names"
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
// goes through it, so numbers look the same everywhere.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline void AppendTo(std::string& out, std::string_view text) { out += text; }
inline void AppendTo(std::string& out, const char* text) { out += text ? text : "(null)"; }
inline void AppendTo(std::string& out, const std::string& text) { out += text; }
inline void AppendTo(std::string& out, char c) { out += c; }
inline void AppendTo(std::string& out, bool b) { out += b ? "true" : "false"; }

inline void AppendTo(std::string& out, double value) {
  char buffer[32];
  out.append(buffer, static_cast<size_t>(std::snprintf(buffer, sizeof buffer, "%.9g", value)));
}

template <class T>
  requires std::is_integral_v<T>
void AppendTo(std::string& out, T value) {
  out += std::to_string(value);
}

// Anything with a `ToString(value)` found by argument-dependent lookup.
template <class T>
  requires requires(const T& value) { std::string_view(ToString(value)); }
void AppendTo(std::string& out, const T& value) {
  out += ToString(value);
}

template <class T>
void AppendTo(std::string& out, const std::vector<T>& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out += ", ";
    AppendTo(out, static_cast<const T&>(values[i]));
  }
  out += ']';
}

}  // namespace detail

// Concatenates strings, characters, bools, integers, floating-point numbers (9 significant digits),
// vectors of these (`[1, 2]`) and types with a ToString.
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (detail::AppendTo(out, parts), ...);
  return out;
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
  size_t best_distance = name.size() / 3 + 2;
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
  if (candidates.size() > kShown) {
    detail::AppendTo(out, " and ");
    detail::AppendTo(out, candidates.size() - kShown);
    detail::AppendTo(out, " more");
  }
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
  kInvalidArgument,   // a value, shape or count that the callee does not accept
  kTypeMismatch,      // a value of another type or dtype than asked for
  kNotFound,          // no such operator, blob, backend, argument, file
  kAlreadyExists,     // registered or created twice
  kOutOfRange,        // an index or a number outside what can be represented
  kUninitialized,     // a tensor or blob read before anything was written
  kOutOfMemory,       //
  kUnsupported,       // understood, but not possible on this device, dtype or build
  kFailedPrecondition,  // called in a state that does not allow it
  kCancelled,         //
  kDeadlineExceeded,  //
  kOperatorFailed,    // RunOnDevice returned false, or threw something that is not an Error
};

inline const char* ToString(ErrorCode code) {
  constexpr const char* kNames[] = {
      "invalid argument", "type mismatch",       "not found",         "already exists",
      "out of range",     "uninitialized",       "out of memory",     "unsupported",
      "failed precondition", "cancelled",        "deadline exceeded", "operator failed"};
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

template <class... Parts>
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Parts&... parts) {
  throw Error(code, StrCat(parts...));
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
#define OPKIT_ENFORCE(condition, ...)                                                        \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument,                                   \
                     "expected " #condition " " __VA_OPT__(, ) __VA_ARGS__);                 \
  } while (0)

// An invariant of the toolkit itself; compiled out with NDEBUG.
#ifdef NDEBUG
#define OPKIT_ASSERT(condition) static_cast<void>(0)
#else
#define OPKIT_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::opkit::detail::AssertFailed(#condition, __FILE__, __LINE__))
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
  constexpr const char* kNames[kNumDTypes] = {
      "undefined", "bool",   "int8",    "int16",    "int32",   "int64",   "uint8",     "uint16",
      "uint32",    "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
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
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  else if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  else if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  else if constexpr (std::is_same_v<T, float16>) return DType::kFloat16;
  else if constexpr (std::is_same_v<T, bfloat16>) return DType::kBFloat16;
  else if constexpr (ComplexOf<T, float>) return DType::kComplex64;
  else if constexpr (ComplexOf<T, double>) return DType::kComplex128;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && !std::is_same_v<T, wchar_t>)
    return sizeof(T) == 1 ? DType::kInt8 : sizeof(T) == 2 ? DType::kInt16
         : sizeof(T) == 4 ? DType::kInt32 : DType::kInt64;
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, char16_t> &&
                     !std::is_same_v<T, char32_t> && !std::is_same_v<T, wchar_t>)
    return sizeof(T) == 1 ? DType::kUInt8 : sizeof(T) == 2 ? DType::kUInt16
         : sizeof(T) == 4 ? DType::kUInt32 : DType::kUInt64;
  else return DType::kUndefined;
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
  using Result = std::common_type_t<std::type_identity<
      decltype(detail::CallWithType<Ts>(f))>...>::type;  // the same for every T
  Result (*call)(std::remove_reference_t<F>&) = nullptr;
  ((dtype == kDTypeOf<Ts> ? void(call = &detail::CallWithTypeAs<Result, Ts, std::remove_reference_t<F>>)
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

// A vector of int64 that allocates only beyond six entries.
class Dims {
 public:
  static constexpr int kInline = 6;

  Dims() = default;
  explicit Dims(std::span<const int64_t> values) { Assign(values.data(), values.size()); }
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
      std::memcpy(inline_, other.inline_, sizeof inline_);
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
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  Shape(const std::vector<int64_t>& dims) : Shape(std::span(dims)) {}
  // Errors: kInvalidArgument for a negative extent, kOutOfRange when the element count exceeds int64.
  explicit Shape(std::span<const int64_t> dims) : dims_(dims), numel_(CountElements(dims)) {}

  int rank() const { return dims_.size(); }
  int64_t numel() const { return numel_; }
  // Negative axes count from the end. Error (kOutOfRange) for an axis that is not there.
  int64_t dim(int axis) const { return dims_[Axis(axis)]; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int size() const { return dims_.size(); }
  const int64_t* begin() const { return dims_.begin(); }
  const int64_t* end() const { return dims_.end(); }
  std::span<const int64_t> span() const { return {begin(), end()}; }
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

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend std::string ToString(const Shape& shape) {
    std::string out = "[";
    for (int i = 0; i < shape.rank(); ++i) {
      if (i) out += ", ";
      out += std::to_string(shape[i]);
    }
    return out + "]";
  }

 private:
  static std::string Describe(std::span<const int64_t> dims) {
    return StrCat(std::vector<int64_t>(dims.begin(), dims.end()));
  }
  // Extents other than zero must multiply within int64 even beside a zero: strides need them.
  static int64_t CountElements(std::span<const int64_t> dims) {
    int64_t count = 1;
    bool empty = false;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0)
        Throw(ErrorCode::kInvalidArgument, "shape ", Describe(dims), " has the negative extent ",
              dims[i], " at axis ", i);
      empty |= dims[i] == 0;
      if (dims[i] > 0 && __builtin_mul_overflow(count, dims[i], &count))
        Throw(ErrorCode::kOutOfRange, "shape ", Describe(dims),
              " has more elements than a 64-bit count can hold");
    }
    return empty ? 0 : count;
  }

  Dims dims_;
  int64_t numel_ = 1;
};

}  // namespace opkit

#endif  // OPKIT_CORE_SHAPE_HPP_

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
  std::string name;                           // "cpu", "cuda", …; unique, used in text and defs
  DeviceType memory = DeviceType::kExtDev;    // whose allocator and copies it uses
  bool host_accessible = false;               // a host pointer may be dereferenced
};

namespace detail {

struct DeviceTypeRegistry {
  struct Entry {
    DeviceType type;
    DeviceTypeInfo info;
  };
  std::mutex mutex;
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
  std::lock_guard lock(registry.mutex);
  for (const auto& entry : registry.entries)
    if (entry.type == type) return entry.info;
  return {StrCat("device_type_", static_cast<int32_t>(type)), type, false};
}

// Names a device type of the user's own, numbered from kFirstUserDevice. Repeating the same
// registration is harmless; another name or number for a known one is an Error (kAlreadyExists).
inline DeviceType RegisterDeviceType(DeviceType type, DeviceTypeInfo info) {
  auto& registry = detail::DeviceTypes();
  std::lock_guard lock(registry.mutex);
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
  return device.index == 0 ? ToString(device.type) : StrCat(ToString(device.type), ":", device.index);
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
  // asked for and how much lives. 0 bytes is a null pointer.
  void* Allocate(int64_t bytes) {
    if (bytes <= 0) return nullptr;
    void* data = DoAllocate(bytes);
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

// Replaces the allocator for new memory and returns the one before (null if none). `allocator` must
// live until the process ends or every storage made from it is gone.
inline Allocator* SetAllocator(DeviceType type, Allocator* allocator) {
  return detail::Allocators()[type].exchange(allocator, std::memory_order_acq_rel);
}

}  // namespace opkit

#endif  // OPKIT_CORE_ALLOCATOR_HPP_

// ---- opkit/core/storage.hpp
// Storage: reference-counted bytes of one device. Tensors view it; the last handle frees it, through
// the allocator it came from or the deleter that foreign memory was adopted with.
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
    data_ = allocator_->Allocate(nbytes);
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
  // Views `nbytes` of `storage` from `byte_offset` on; `strides` in elements, empty for dense.
  Tensor(Storage storage, int64_t byte_offset, Shape shape, DType dtype, Dims strides = {})
      : storage_(std::move(storage)),
        byte_offset_(byte_offset),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        device_(storage_->device()),
        dtype_(dtype) {
    const int64_t needed = ViewBytes();
    if (byte_offset < 0 || needed < 0 || byte_offset > storage_->nbytes() - needed)
      Throw(ErrorCode::kOutOfRange, "a view ", Describe(), " at byte ", byte_offset,
            " does not fit in its storage of ", storage_->nbytes(), " bytes");
    capacity_ = needed;
  }

  // A copy of `values` on the CPU, row-major. Error (kInvalidArgument) when the counts differ.
  template <Element T>
  static Tensor From(Shape shape, std::span<const T> values) {
    if (static_cast<int64_t>(values.size()) != shape.numel())
      Throw(ErrorCode::kInvalidArgument, "shape ", ToString(shape), " holds ", shape.numel(),
            " elements, but ", values.size(), " values were given");
    Tensor out(std::move(shape), kDTypeOf<T>);
    if (!values.empty()) std::memcpy(out.raw_mutable_data(), values.data(), values.size_bytes());
    return out;
  }
  template <Element T>
  static Tensor From(Shape shape, std::initializer_list<T> values) {
    return From(std::move(shape), std::span<const T>(values.begin(), values.size()));
  }
  template <Element T>
    requires(!std::is_same_v<T, bool>)
  static Tensor From(Shape shape, const std::vector<T>& values) {
    return From(std::move(shape), std::span<const T>(values));
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
  // Bytes that Resize can use without new memory.
  int64_t capacity() const { return capacity_; }
  // In elements.
  Dims strides() const { return strides_.empty() ? shape_.DenseStrides() : strides_; }
  bool is_dense() const { return strides_.empty() || strides_ == shape_.DenseStrides(); }
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
    const Tensor dense = is_dense() ? *this : Contiguous();
    const T* values = dense.data<T>();
    CheckHost();
    return {values, values + numel()};
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
    const int64_t nbytes = CheckedBytes(shape, dtype);
    if (nbytes > capacity_ || (!storage_ && nbytes > 0)) {
      storage_ = AllocateStorage(MemoryDevice(device_), nbytes);
      byte_offset_ = 0;
      capacity_ = nbytes;
    }
    shape_ = std::move(shape);
    dtype_ = dtype;
    strides_ = Dims();
    layout_ = Layout();
  }
  // Memory for `outer` rows of the present inner shape; contents, shape and dtype stay.
  void ReserveSpace(int64_t outer) {
    if (rank() == 0 || dtype_ == DType::kUndefined)
      Fail(ErrorCode::kFailedPrecondition, "ReserveSpace needs a dtype and an outer dimension");
    std::vector<int64_t> dims = shape_.vec();
    if (outer <= dims[0]) return;
    dims[0] = outer;
    const int64_t nbytes = CheckedBytes(Shape(dims), dtype_);
    if (nbytes <= capacity_) return;
    CheckHost();
    Storage bigger = AllocateStorage(MemoryDevice(device_), nbytes);
    if (storage_) {
      const Tensor dense = is_dense() ? *this : Contiguous();
      std::memcpy(bigger->data(), dense.raw_data(), static_cast<size_t>(dense.nbytes()));
    }
    storage_ = std::move(bigger);
    strides_ = Dims();
    byte_offset_ = 0;
    capacity_ = nbytes;
  }
  // Drops memory and dtype; the shape becomes [0].
  void Reset() { *this = Tensor(device_); }

  // Takes the memory and dtype of `source` and keeps its own shape. Error (kInvalidArgument) unless
  // the element counts agree.
  void ShareData(const Tensor& source) {
    source.CheckInitialized();
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
    if (!source.layout_.is_standard())
      source.Fail(ErrorCode::kUnsupported, "CopyFrom needs the standard layout, found ",
                  ToString(source.layout_));
    CheckHost();
    Tensor target = SharesMemoryWith(source) ? Tensor(device_) : *this;
    target.Resize(source.shape_, source.dtype_);
    source.CopyElementsTo(static_cast<char*>(target.raw_mutable_data()));
    *this = std::move(target);
  }
  // A dense tensor with memory of its own.
  Tensor Contiguous() const {
    Tensor out(device_);
    out.CopyFrom(*this);
    return out;
  }

  // The same memory under another shape of equal element count. One extent may be -1.
  Tensor View(std::span<const int64_t> dims) const {
    CheckInitialized();
    if (!is_dense() || !layout_.is_standard())
      Fail(ErrorCode::kInvalidArgument, "View needs a dense tensor; call Contiguous() first");
    std::vector<int64_t> resolved(dims.begin(), dims.end());
    int64_t known = 1, unknown = -1;
    for (size_t i = 0; i < resolved.size(); ++i) {
      if (resolved[i] == -1 && unknown < 0) {
        unknown = static_cast<int64_t>(i);
      } else if (__builtin_mul_overflow(known, resolved[i], &known)) {
        known = -1;
      }
    }
    if (unknown >= 0 && known > 0) resolved[static_cast<size_t>(unknown)] = numel() / known;
    Shape shape = unknown >= 0 && known == 0 ? Shape{0} : Shape(resolved);
    if (shape.numel() != numel() || (unknown >= 0 && known == 0))
      Fail(ErrorCode::kInvalidArgument, "cannot be viewed as shape ",
           std::vector<int64_t>(dims.begin(), dims.end()));
    Tensor out = *this;
    out.shape_ = std::move(shape);
    out.strides_ = Dims();
    return out;
  }
  Tensor View(std::initializer_list<int64_t> dims) const {
    return View(std::span(dims.begin(), dims.size()));
  }
  // Elements [begin, end) of `axis`, sharing memory. Resizing a slice never reaches beyond it.
  Tensor Slice(int axis, int64_t begin, int64_t end) const {
    CheckInitialized();
    axis = shape_.Axis(axis);
    if (begin < 0 || end < begin || end > shape_[axis])
      Fail(ErrorCode::kOutOfRange, "slice [", begin, ", ", end, ") is outside axis ", axis);
    Tensor out = *this;
    std::vector<int64_t> dims = shape_.vec();
    dims[static_cast<size_t>(axis)] = end - begin;
    out.shape_ = Shape(dims);
    out.byte_offset_ += begin * strides()[axis] * ItemSize(dtype_);
    out.strides_ = strides();
    if (out.strides_ == out.shape_.DenseStrides()) out.strides_ = Dims();
    out.capacity_ = out.SpanBytes();
    return out;
  }
  // The same memory with its axes in another order: axis i of the result is axis order[i] of this.
  Tensor Permute(std::span<const int> order) const {
    CheckInitialized();
    const Dims old_strides = strides();
    std::vector<int64_t> dims, steps;
    std::vector<bool> seen(static_cast<size_t>(rank()));
    for (int axis : order) {
      axis = shape_.Axis(axis);
      if (seen[static_cast<size_t>(axis)])
        Fail(ErrorCode::kInvalidArgument, "Permute names axis ", axis, " twice");
      seen[static_cast<size_t>(axis)] = true;
      dims.push_back(shape_[axis]);
      steps.push_back(old_strides[axis]);
    }
    if (dims.size() != seen.size())
      Fail(ErrorCode::kInvalidArgument, "Permute needs ", rank(), " axes, found ", dims.size());
    Tensor out = *this;
    out.shape_ = Shape(dims);
    out.strides_ = Dims(steps);
    return out;
  }

  // Any byte in common with `other`.
  bool SharesMemoryWith(const Tensor& other) const {
    if (!storage_ || !other.storage_) return false;
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
    if (!is_dense()) out += " with strides" + StrCat(std::vector<int64_t>(strides_.begin(), strides_.end()));
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
  template <class... Parts>
  [[noreturn]] OPKIT_COLD void Fail(ErrorCode code, const Parts&... parts) const {
    throw Error(code, StrCat("tensor ", Describe(), ": ", parts...), this);
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
         "; call Resize(shape, dtype) to change what it holds");
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
    if (strides_.empty() || numel() == 0) return CheckedBytes(shape_, dtype_);
    if (strides_.size() != rank()) return -1;
    int64_t last = 0, step = 0;
    for (int i = 0; i < rank(); ++i)
      if (strides_[i] < 0 || __builtin_mul_overflow(shape_[i] - 1, strides_[i], &step) ||
          __builtin_add_overflow(last, step, &last))
        return -1;
    return __builtin_mul_overflow(last + 1, ItemSize(dtype_), &last) ? -1 : last;
  }
  void CopyElementsTo(char* out) const {
    const auto item = static_cast<size_t>(ItemSize(dtype_));
    const char* base = static_cast<const char*>(raw_data());
    if (numel() == 0) return;
    if (is_dense()) {
      std::memcpy(out, base, static_cast<size_t>(nbytes()));
      return;
    }
    std::vector<int64_t> index(static_cast<size_t>(rank()), 0);
    for (int64_t n = numel(); n > 0; --n, out += item) {
      int64_t offset = 0;
      for (int i = 0; i < rank(); ++i) offset += index[static_cast<size_t>(i)] * strides_[i];
      std::memcpy(out, base + offset * static_cast<int64_t>(item), item);
      for (int i = rank() - 1; i >= 0 && ++index[static_cast<size_t>(i)] == shape_[i]; --i)
        index[static_cast<size_t>(i)] = 0;
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
    std::is_same_v<StoredAttribute<T>, int64_t>    ? AttributeType::kInt
    : std::is_same_v<StoredAttribute<T>, double>   ? AttributeType::kFloat
    : std::is_same_v<StoredAttribute<T>, bool>     ? AttributeType::kBool
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
  size_t size() const {
    return ints_.size() + floats_.size() + strings_.size() + tensors_.size();
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
      static_assert(AttributeElement<Item>, "an attribute is an integer, bool, floating-point "
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
    if constexpr (std::is_same_v<Stored, double>) return floats_;
    else if constexpr (std::is_same_v<Stored, std::string>) return strings_;
    else if constexpr (std::is_same_v<Stored, Tensor>) return tensors_;
    else return ints_;
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
      if (static_cast<Stored>(static_cast<T>(stored)) != stored || (stored < 0) != (static_cast<T>(stored) < T{}))
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
    auto separate = [&] { if (!out.empty()) out += ", "; };
    for (int64_t value : ints_) {
      separate();
      if (type_ == AttributeType::kBool || type_ == AttributeType::kBools) out += value ? "true" : "false";
      else out += std::to_string(value);
    }
    for (double value : floats_) separate(), detail::AppendTo(out, value);
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
    if (!found)
      Throw(ErrorCode::kNotFound, "no argument '", name, "'", SuggestName(name, Names()));
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
// of DLPack's C ABI (github.com/dmlc/dlpack, version 1.1); a test compares them with the real header.
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
    {DType::kBool, 6, 8},      {DType::kInt8, 0, 8},       {DType::kInt16, 0, 16},
    {DType::kInt32, 0, 32},    {DType::kInt64, 0, 64},     {DType::kUInt8, 1, 8},
    {DType::kUInt16, 1, 16},   {DType::kUInt32, 1, 32},    {DType::kUInt64, 1, 64},
    {DType::kFloat16, 2, 16},  {DType::kBFloat16, 4, 16},  {DType::kFloat32, 2, 32},
    {DType::kFloat64, 2, 64},  {DType::kComplex64, 5, 64}, {DType::kComplex128, 5, 128}};

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
    Throw(ErrorCode::kUnsupported, "DLPack knows no ", ToString(tensor.layout()), "; convert first");
  const Dims strides = tensor.strides();
  auto* out = new DLPackExport<Managed>{
      tensor, tensor.shape().vec(), {strides.begin(), strides.end()}, Managed{}};
  Device device = tensor.device();
  if (static_cast<int>(device.type) >= static_cast<int>(DeviceType::kCPUStream))
    device = MemoryDevice(device);
  dlpack::DLDataType dtype{0, 0, 1};
  for (const auto& row : kDLPackTypes)
    if (row.dtype == tensor.dtype()) dtype = {row.code, row.bits, 1};
  out->managed.dl_tensor = {tensor.raw_mutable_data(),
                            {static_cast<int32_t>(device.type), device.index},
                            tensor.rank(),
                            dtype,
                            out->shape.data(),
                            out->strides.data(),
                            0};
  out->managed.manager_ctx = out;
  out->managed.deleter = [](Managed* self) {
    delete static_cast<DLPackExport<Managed>*>(self->manager_ctx);
  };
  return &out->managed;
}

template <class Managed>
Tensor ImportDLPack(Managed* managed) {
  const dlpack::DLTensor& in = managed->dl_tensor;
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
  Shape shape{std::span<const int64_t>(in.shape, rank)};
  Dims strides;
  if (in.strides && rank) strides = Dims(std::span<const int64_t>(in.strides, rank));
  if (strides == shape.DenseStrides() || shape.numel() == 0) strides = Dims();
  int64_t last = 0;
  for (int i = 0; i < strides.size(); ++i) {
    int64_t step = 0;
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
      device, static_cast<char*>(in.data) + in.byte_offset, nbytes,
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

// Exports without a copy; the caller owns the result and calls its deleter once. Errors:
// kUninitialized, kUnsupported for a blocked layout.
inline dlpack::DLManagedTensor* ToDLPack(const Tensor& tensor) {
  return detail::ExportDLPack<dlpack::DLManagedTensor>(tensor);
}
inline dlpack::DLManagedTensorVersioned* ToDLPackVersioned(const Tensor& tensor) {
  auto* managed = detail::ExportDLPack<dlpack::DLManagedTensorVersioned>(tensor);
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
    auto* versioned = reinterpret_cast<dlpack::DLManagedTensorVersioned*>(managed);
    if (versioned->version.major != dlpack::kMajorVersion)
      Throw(ErrorCode::kUnsupported, "DLPack major version ", versioned->version.major,
            " is not the supported ", dlpack::kMajorVersion);
    if ((versioned->flags & dlpack::kFlagReadOnly) && !accept_read_only)
      Throw(ErrorCode::kInvalidArgument, "the DLPack tensor is read-only: copy it, or pass "
            "accept_read_only = true and do not write to it");
    return detail::ImportDLPack(versioned);
  } else {
    return detail::ImportDLPack(reinterpret_cast<dlpack::DLManagedTensor*>(managed));
  }
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
  const Dim& operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  Dim& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
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
  std::vector<Dim> dims_;
  bool has_rank_ = false;
};

}  // namespace opkit

#endif  // OPKIT_CORE_SYMBOLIC_SHAPE_HPP_

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
      sizeof(F) <= kInlineBytes &&
      alignof(F) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<F>;

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
      std::memcpy(storage_, other.storage_, kInlineBytes);
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
  bool Schedule(const void* stream) {
    std::lock_guard lock(mutex_);
    const EventStatus now = status_.load(std::memory_order_relaxed);  // the mutex orders it
    if (IsTerminal(now)) return false;
    if (now == EventStatus::kScheduled)
      Throw(ErrorCode::kFailedPrecondition, "the event is recorded while it is still SCHEDULED; "
            "Finish or Reset it first");
    stream_ = stream;
    status_.store(EventStatus::kScheduled, std::memory_order_release);
    return true;
  }
  // Terminal, once: false when it was terminal already. Wakes waiters, then runs the callbacks
  // outside the lock.
  bool Complete(std::exception_ptr exception) {
    if (exception && context_) exception = WithContext(std::move(exception));
    std::vector<UniqueFunction<void()>> callbacks;
    {
      std::lock_guard lock(mutex_);
      if (IsTerminal(status_.load(std::memory_order_relaxed))) return false;
      exception_ = std::move(exception);
      status_.store(exception_ ? EventStatus::kFailed : EventStatus::kSuccess,
                    std::memory_order_release);
      callbacks.swap(callbacks_);
      done_.notify_all();
    }
    for (auto& callback : callbacks) callback();
    return true;
  }
  // Runs at once when terminal.
  void AddCallback(UniqueFunction<void()> callback) {
    RequestNotification();
    {
      std::lock_guard lock(mutex_);
      if (!IsTerminal(status_.load(std::memory_order_relaxed))) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }
  // Blocks until terminal; false when `timeout` (negative: none) ran out first.
  bool Wait(std::chrono::nanoseconds timeout) {
    if (IsTerminal(status())) return true;
    RequestNotification();
    std::unique_lock lock(mutex_);
    auto terminal = [&] { return IsTerminal(status_.load(std::memory_order_relaxed)); };
    if (timeout.count() >= 0) return done_.wait_for(lock, timeout, terminal);
    done_.wait(lock, terminal);
    return true;
  }

  // A device that completes silently is asked here to call Complete when it is done.
  virtual void RequestNotification() {}
  // Asks such a device whether it is done, without waiting.
  virtual void Poll() {}

  // The stream the event was recorded on; null where there is none.
  const void* stream() const { return stream_; }
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
      Error copy = error;
      return std::make_exception_ptr(copy.AddContext(context_->Describe()));
    } catch (...) {
      return exception;
    }
  }

  std::atomic<EventStatus> status_{EventStatus::kInitialized};
  const void* stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable done_;
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
  // Contexts call it when they issue work; `stream` identifies where.
  bool SetScheduled(const void* stream = nullptr) { return state_->Schedule(stream); }

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
    return state_->Complete(std::make_exception_ptr(Error(ErrorCode::kCancelled, "cancelled")));
  }

  // Blocks the host until terminal and rethrows what failed. Errors: kDeadlineExceeded when
  // `timeout` ran out (the event goes on); kFailedPrecondition for an event that was never recorded,
  // unless a timeout is given to wait for that.
  void Finish(std::chrono::nanoseconds timeout = std::chrono::nanoseconds(-1)) const {
    if (timeout.count() < 0 && state_->status() == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition, "waiting for an event that was never recorded: run the "
            "operator first, or wait with a timeout");
    if (!state_->Wait(timeout))
      Throw(ErrorCode::kDeadlineExceeded, "the event on ", ToString(device_), " is still ",
            ToString(state_->status()), " after ", timeout.count() / 1000, " us");
    RethrowIfFailed();
  }
  void RethrowIfFailed() const {
    if (Query() == EventStatus::kFailed) std::rethrow_exception(state_->exception());
  }
  // Runs once terminal, on the completing thread, outside every lock; at once when already terminal.
  // It must not throw.
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
    if (!state_->Complete(std::move(exception)) && state_->status() == EventStatus::kSuccess)
      Throw(ErrorCode::kFailedPrecondition, "SetFinished on an event that is SUCCESS already; "
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
  context.SwitchToDevice(stream_id);          // the stream that further work is issued on
  context.Record(event);                      // SCHEDULED; done when the work issued so far is
  context.WaitEvent(std::as_const(event));    // work issued from now on waits for the event
  context.FinishDeviceComputation();          // blocks until this stream has drained, rethrows
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
  // Work is done when it is issued: an operator with an asynchronous part finishes the event itself.
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
  CPUStream(Device device, int id) : device_(device), id_(id) {
    std::thread([this] { Serve(); }).detach();
  }
  CPUStream(const CPUStream&) = delete;
  CPUStream& operator=(const CPUStream&) = delete;

  // The process's stream `id` of `device`, started at first use.
  static CPUStream& Get(Device device, int id) {
    if (id < 0) Throw(ErrorCode::kInvalidArgument, "stream id ", id, " is negative");
    struct Registry {
      std::mutex mutex;
      std::map<std::pair<int, int>, CPUStream*> streams;
    };
    static auto* registry = new Registry;  // the threads use their streams until the process ends
    std::lock_guard lock(registry->mutex);
    CPUStream*& stream = registry->streams[{device.index, id}];
    if (!stream) stream = new CPUStream(device, id);
    return *stream;
  }

  Device device() const { return device_; }
  int id() const { return id_; }

  // Runs `work` after everything issued before, under the invocation current now.
  void Launch(UniqueFunction<void()> work) {
    Push({std::move(work), {}, {}, CurrentInvocation()});
  }
  // The event is SCHEDULED now and completes when the work issued so far is done.
  void Record(Event& event) {
    if (!event.SetScheduled(this)) return;
    Push({{}, event.state(), {}, {}});
  }
  // Work issued from now on runs after the event, and fails with it. Nothing blocks for an event of
  // this stream, which is in order anyway: only its failure is passed on. Error
  // (kFailedPrecondition) for an event that was never recorded.
  void WaitEvent(const Event& event) {
    const EventStatus status = event.Query();
    if (status == EventStatus::kSuccess) return;
    if (status == EventStatus::kInitialized)
      Throw(ErrorCode::kFailedPrecondition, "a stream cannot wait for an event that was never "
            "recorded: run the operator first");
    event.state()->RequestNotification();
    Push({{}, {}, event.state(), {}});
  }
  // True when nothing is queued or running.
  bool IsFree() const {
    std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }
  // Times that the stream's thread had to wait for another stream's event.
  int64_t blocking_waits() const { return blocking_waits_.load(std::memory_order_relaxed); }

 private:
  // One of: work; an event to complete; an event to wait for.
  struct Item {
    UniqueFunction<void()> work;
    detail::IntrusivePtr<detail::EventState> record;
    detail::IntrusivePtr<detail::EventState> wait;
    Invocation invocation;
  };

  void Push(Item item) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    ready_.notify_one();
  }
  void Serve() {
    std::exception_ptr failure;
    std::unique_lock lock(mutex_);
    for (;;) {
      busy_ = false;
      ready_.wait(lock, [&] { return !queue_.empty(); });
      busy_ = true;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      Execute(item, failure);
      item = {};  // what the closure held is gone before the stream counts as free
      lock.lock();
    }
  }
  void Execute(Item& item, std::exception_ptr& failure) {
    if (item.record) {
      // Still wanted when cancelled: only now is the memory no longer in use.
      std::vector<Storage> retained = std::move(item.record->retained);
      item.record->retained.clear();
      item.record->Complete(std::exchange(failure, nullptr));
    } else if (failure) {
      return;
    } else if (item.wait) {
      if (!IsTerminal(item.wait->status())) {
        // Relaxed: a statistic.
        blocking_waits_.fetch_add(1, std::memory_order_relaxed);
        item.wait->Wait(std::chrono::nanoseconds(-1));
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
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Item> queue_;
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
    return CPUStream::Get(device, stream_id).IsFree();
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

class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() { pthread_mutex_lock(&mutex_); }
  void Unlock() { pthread_mutex_unlock(&mutex_); }
  // In a forked child, where the thread that held it may not exist.
  void ResetAfterFork() { mutex_ = PTHREAD_MUTEX_INITIALIZER; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
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
           std::is_invocable_r_v<R, F&, Args...>) FunctionRef(F&& f)
  noexcept {  // NOLINT: implicit, as a reference is
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
      target_.object = const_cast<void*>(static_cast<const void*>(std::addressof(f)));
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
  PoolTask* TakeInjected();
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
// The first worker never leaves, so that there is always one to see a task that was just submitted.
inline bool ThreadPool::Retire(detail::PoolWorker& self) {
  while (PoolTask* task = self.deque.Pop()) Inject(task);
  NotifyWork();
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
    // Now and then the shared queue comes first, so that a worker whose tasks keep submitting tasks
    // does not starve it.
    if (++self->turn % 64 == 0) {
      if (PoolTask* task = TakeInjected()) return {task};
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

inline PoolTask* ThreadPool::TakeInjected() {
  // Relaxed: who misses a task here looks again, by HasWork, before it sleeps.
  if (injected_size_.load(std::memory_order_relaxed) == 0) return nullptr;
  detail::MutexLock lock(injected_mutex_);
  PoolTask* task = injected_first_;
  if (task == nullptr) return nullptr;
  injected_first_ = task->next;
  if (injected_first_ == nullptr) injected_last_ = nullptr;
  injected_size_.fetch_sub(1, std::memory_order_seq_cst);
  return task;
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
// measures, which costs some 10 ns a call, and fits unless the first indices are much cheaper than
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
// thread pool, issued through the context; the CUDA backend adds the overload that launches a kernel.
#ifndef OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_
#define OPKIT_ENGINE_CONTEXT_PARALLEL_FOR_HPP_

namespace opkit::inline OPKIT_ABI {

// Contexts whose work is host code: CPUContext, CPUStreamContext, and a user's own.
template <class C>
concept HostContext = requires(C& context, void (*work)()) { context.Launch(work); };

// Issues f(i) for every i in [0, n). Asynchronous on an asynchronous context: `f` is copied and must
// capture by value. Errors of `f` reach the caller, or the operator's event.
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
// What shape and type inference sees of a node: everything known about its inputs and outputs, where
// known may mean a symbol or nothing yet, and the data of constant inputs.
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
    return i < num_inputs() && !def_.inputs()[static_cast<size_t>(i)].empty();
  }
  // Error (kOutOfRange) for an index the node does not have.
  const TensorInfo& input(int i) const { return inputs_[Check(i, inputs_.size(), "input")]; }
  DType input_dtype(int i) const { return input(i).dtype; }
  const SymbolicShape& input_shape(int i) const { return input(i).shape; }
  // The data of a constant input; null where it is not known yet.
  const Tensor* input_constant(int i) const { return input(i).constant; }
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
  std::vector<Layout> input_layouts;            // empty: all standard
  std::vector<Layout> output_layouts;
  std::vector<std::pair<int, int>> inplace;     // {input, output} that may share memory
  int64_t scratch_bytes = 0;
  double cost_ns = -1;                          // an estimate; negative: none
};

using OperatorCreator =
    UniqueFunction<std::unique_ptr<OperatorBase>(const OperatorDef&, Workspace*)>;
using KernelProposer = UniqueFunction<std::vector<KernelConfig>(const KernelQuery&)>;

// Who wins when one (operator, device, backend) is registered twice: the higher; two equal ones from
// two places are an error at first lookup.
enum class RegistrationPriority : uint8_t { kFallback = 1, kDefault = 2, kPreferred = 3 };

inline constexpr const char* kReferenceBackend = "reference";  // the plain operator

struct Kernel {
  std::string op;
  DeviceType device = DeviceType::kCPU;
  std::string backend = kReferenceBackend;
  RegistrationPriority priority = RegistrationPriority::kDefault;
  const char* file = "";
  int line = 0;
  std::string origin;        // the library it came from; empty for the program itself
  OperatorCreator create;    // may throw UnsupportedOperatorFeature: the next kernel is tried
  KernelProposer propose;    // none: one configuration, standard layouts, in place as the schema says

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
// derived from a typed signature), then asked: is this node right, what comes out, what does it cost.
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
  std::optional<AttributeType> type;           // unset: any
  std::optional<Attribute> default_value;
};

// One input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;                   // empty: any
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
    return AddArg({std::move(name), std::move(doc), required, {}, {}});
  }
  template <class T>
  OpSchema& Arg(std::string name, std::string doc, std::optional<T> default_value = {},
                bool required = false) {
    AttributeSchema attribute{std::move(name), std::move(doc), required, kAttributeTypeOf<T>, {}};
    if (default_value) attribute.default_value = Attribute(*default_value);
    return AddArg(std::move(attribute));
  }
  template <class T>
  OpSchema& RequiredArg(std::string name, std::string doc) {
    return Arg<T>(std::move(name), std::move(doc), {}, true);
  }
  // Makes a declared attribute optional. Error (kNotFound) for one that is not declared.
  OpSchema& SetDefault(std::string_view name, Attribute value) {
    for (AttributeSchema& attribute : attributes_) {
      if (attribute.name != name) continue;
      attribute.required = false;
      attribute.default_value = std::move(value);
      return *this;
    }
    Throw(ErrorCode::kNotFound, "schema of ", name_, " has no argument '", name, "'");
  }
  OpSchema& ArgIsTest(std::string doc) {
    return Arg("is_test", std::move(doc));
  }
  OpSchema& AllowUnknownArgs() { return unknown_args_allowed_ = true, *this; }

  // Types and shapes of the outputs.
  OpSchema& TensorInferenceFunction(UniqueFunction<void(InferenceContext&)> infer) {
    return infer_ = std::move(infer), *this;
  }
  // Inference is only called when every input shape is known.
  OpSchema& NeedsAllInputShapes(bool needs = true) { return needs_all_shapes_ = needs, *this; }
  OpSchema& IdenticalTypeAndShape() {
    return TensorInferenceFunction([](InferenceContext& c) {
      for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) Same(c, i, i);
    });
  }
  OpSchema& IdenticalTypeAndShapeOfInput(int input) {
    return TensorInferenceFunction([input](InferenceContext& c) {
      for (int i = 0; i < c.num_outputs(); ++i) Same(c, input, i);
    });
  }
  // Output i is like input inputs[i].
  OpSchema& IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
    return TensorInferenceFunction([inputs = std::move(inputs)](InferenceContext& c) {
      for (size_t i = 0; i < inputs.size(); ++i) Same(c, inputs[i], static_cast<int>(i));
    });
  }
  // Rank 1, as long as the input is along `dim`; the input's type.
  OpSchema& IdenticalTypeAndShapeOfInputDim(int input, int dim) {
    return TensorInferenceFunction([=](InferenceContext& c) {
      const SymbolicShape& in = c.input_shape(input);
      if (in.has_rank() && dim >= in.rank())
        Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", ToString(in),
              ", which has no axis ", dim);
      c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[dim] : Dim()});
    });
  }
  OpSchema& ScalarType(DType dtype) {
    return TensorInferenceFunction([dtype](InferenceContext& c) {
      for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
    });
  }

  using CostFunction = UniqueFunction<OpCost(const OperatorDef&, const std::vector<TensorInfo>&,
                                             const std::vector<TensorInfo>&)>;
  OpSchema& CostInferenceFunction(CostFunction cost) { return cost_ = std::move(cost), *this; }
  // Reads every input and writes every output once; `flops` for each element of output 0.
  OpSchema& PointwiseCost(uint64_t flops) {
    return CostInferenceFunction([flops](const OperatorDef&, const auto& inputs,
                                         const auto& outputs) {
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
        if (value.dtypes.empty()) value.dtypes = dtypes;
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
  bool is_private() const { return private_; }
  bool inputs_can_cross_devices() const { return inputs_cross_devices_; }
  bool has_inference() const { return static_cast<bool>(infer_); }
  bool has_cost() const { return static_cast<bool>(cost_); }
  int min_inputs() const { return min_inputs_; }
  int max_inputs() const { return max_inputs_; }
  int min_outputs() const { return min_outputs_; }
  int max_outputs() const { return max_outputs_; }
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
    const int ins = static_cast<int>(def.inputs().size());
    const int outs = static_cast<int>(def.outputs().size());
    if (std::string why = VerifyArity(ins, outs); !why.empty()) return why;
    if (std::string why = VerifyInplace(def); !why.empty()) return why;
    return VerifyArgs(def.args());
  }

  // Types and shapes of the outputs from what is known of the inputs; unknown where the operator
  // declares no inference. Errors of the operator's own function get the node as context.
  void Infer(InferenceContext& context) const {
    if (!infer_) return;
    if (needs_all_shapes_)
      for (const TensorInfo& input : context.inputs())
        if (!input.shape.is_known()) return;
    try {
      infer_(context);
    } catch (Error& error) {
      std::string inputs;
      for (const TensorInfo& input : context.inputs()) inputs += " " + ToString(input);
      error.AddContext("in shape inference of " + ToString(context.def()) + " with inputs" + inputs);
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
    return *this;
  }
  OpSchema& AddArg(AttributeSchema attribute) {
    return attributes_.push_back(std::move(attribute)), *this;
  }
  OpSchema& Value(std::vector<ValueSchema>& values, int i, std::string name, std::string doc,
                  std::vector<DType> dtypes) {
    if (values.size() <= static_cast<size_t>(i)) values.resize(static_cast<size_t>(i) + 1);
    values[static_cast<size_t>(i)] = {std::move(name), std::move(doc), std::move(dtypes)};
    return *this;
  }

  static std::string Range(int min, int max) {
    if (min == max) return std::to_string(min);
    return max == kAny ? StrCat("at least ", min) : StrCat(min, " to ", max);
  }
  std::string VerifyArity(int ins, int outs) const {
    auto wrong = [&](const char* what, int found, const std::string& expected) {
      return StrCat(name_, " has ", found, " ", what, ", expected ", expected);
    };
    if (ins < min_inputs_ || ins > max_inputs_)
      return wrong("inputs", ins, Range(min_inputs_, max_inputs_));
    if (inputs_allowed_ && !inputs_allowed_(ins))
      return wrong("inputs", ins, "another number (see its schema)");
    if (outs < min_outputs_ || outs > max_outputs_)
      return wrong("outputs", outs, Range(min_outputs_, max_outputs_));
    if (outputs_allowed_ && !outputs_allowed_(outs))
      return wrong("outputs", outs, "another number (see its schema)");
    if (arity_allowed_ && !arity_allowed_(ins, outs))
      return StrCat(name_, " does not take ", ins, " inputs together with ", outs, " outputs");
    if (calculate_outputs_ && calculate_outputs_(ins) != outs)
      return wrong("outputs", outs, StrCat(calculate_outputs_(ins), " for ", ins, " inputs"));
    return {};
  }
  std::string VerifyInplace(const OperatorDef& def) const {
    for (size_t i = 0; i < def.inputs().size(); ++i)
      for (size_t o = 0; o < def.outputs().size(); ++o) {
        const bool same = !def.inputs()[i].empty() && def.inputs()[i] == def.outputs()[o];
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (same && !CanInplace(in, out))
          return StrCat(name_, " may not run in place: input ", i, " and output ", o,
                        " are both '", def.outputs()[o], "'");
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
  std::vector<AttributeSchema> attributes_;
  std::vector<ValueSchema> inputs_, outputs_;
  int min_inputs_ = 0, max_inputs_ = kAny, min_outputs_ = 0, max_outputs_ = kAny;
  bool needs_all_shapes_ = false, private_ = false, inputs_cross_devices_ = false;
  bool unknown_args_allowed_ = false;
  // Called from const members: the functions themselves are stateless to the schema.
  mutable UniqueFunction<bool(int)> inputs_allowed_, outputs_allowed_;
  mutable UniqueFunction<bool(int, int)> arity_allowed_;
  mutable UniqueFunction<int(int)> calculate_outputs_;
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
using GlobalEnginePref = std::map<DeviceType, EnginePref>;
using PerOpEnginePref = std::map<DeviceType, std::map<std::string, EnginePref>>;

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
    std::lock_guard lock(mutex_);
    Entry& entry = ops_[name];
    auto schema = std::make_unique<OpSchema>(name, file, line, std::move(signature));
    if (!entry.schema) return *(entry.schema = std::move(schema));
    const bool same_signature =
        !schema->signature().empty() && schema->signature() == entry.schema->signature();
    if (!same_signature && !SamePlace(entry.schema->file(), entry.schema->line(), file, line))
      entry.problems.push_back(StrCat("two schemas of operator ", name, ": at ",
                                      entry.schema->file(), ":", entry.schema->line(), " and at ",
                                      file, ":", line, "; remove one of them"));
    return *shadows_.emplace_back(std::move(schema));
  }

  // The same kernel from the same place is the same kernel.
  void AddKernel(Kernel kernel) {
    std::lock_guard lock(mutex_);
    Entry& entry = ops_[kernel.op];
    for (auto& known : entry.kernels) {
      if (known->device != kernel.device || known->backend != kernel.backend) continue;
      if (SamePlace(known->file, known->line, kernel.file, kernel.line)) return;
      if (known->priority < kernel.priority) {
        replaced_.push_back(std::exchange(known, std::make_unique<Kernel>(std::move(kernel))));
      } else if (known->priority == kernel.priority) {
        entry.problems.push_back(StrCat(
            "two kernels of operator ", kernel.op, " for ", ToString(kernel.device), ", backend ",
            kernel.backend, ": at ", known->Place(), " and at ", kernel.Place(),
            "; remove one, or register it with another priority or backend"));
      }
      return;
    }
    entry.kernels.push_back(std::make_unique<Kernel>(std::move(kernel)));
  }

  // Null when there is none.
  const OpSchema* FindSchema(const std::string& op) const {
    std::lock_guard lock(mutex_);
    const auto it = ops_.find(op);
    return it == ops_.end() ? nullptr : it->second.schema.get();
  }
  // Errors: kNotFound for an operator without one, naming the nearest; kAlreadyExists for one that
  // was registered twice.
  const OpSchema& GetSchema(const std::string& op) const {
    std::lock_guard lock(mutex_);
    const auto it = ops_.find(op);
    if (it == ops_.end()) ThrowUnknown(op);
    const Entry& entry = it->second;
    if (!entry.problems.empty()) Throw(ErrorCode::kAlreadyExists, entry.problems.front());
    if (!entry.schema) Throw(ErrorCode::kNotFound, WithoutSchema(op, entry));
    return *entry.schema;
  }
  // Kernels of an operator for a device type, in the order of registration.
  std::vector<const Kernel*> FindKernels(const std::string& op, DeviceType device) const {
    std::lock_guard lock(mutex_);
    std::vector<const Kernel*> out;
    if (const auto it = ops_.find(op); it != ops_.end())
      for (const auto& kernel : it->second.kernels)
        if (kernel->device == device) out.push_back(kernel.get());
    return out;
  }
  std::vector<const Kernel*> KernelsOf(const std::string& op) const {
    std::lock_guard lock(mutex_);
    std::vector<const Kernel*> out;
    if (const auto it = ops_.find(op); it != ops_.end())
      for (const auto& kernel : it->second.kernels) out.push_back(kernel.get());
    return out;
  }
  // Sorted names of all operators that have a schema or a kernel.
  std::vector<std::string> Operators() const {
    std::lock_guard lock(mutex_);
    return Names();
  }
  // Everything wrong with the registrations of this program; empty when nothing is.
  std::vector<std::string> Problems() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [op, entry] : ops_) {
      out.insert(out.end(), entry.problems.begin(), entry.problems.end());
      if (!entry.schema) out.push_back(WithoutSchema(op, entry));
    }
    return out;
  }
  // For tests and libraries: forgets an operator whole.
  void Remove(const std::string& op) {
    std::lock_guard lock(mutex_);
    ops_.erase(op);
  }

  // Backends tried for every operator of a device, and for one operator. Errors: kNotFound for an
  // operator nobody registered.
  void SetGlobalEnginePref(GlobalEnginePref pref) {
    std::lock_guard lock(mutex_);
    global_pref_ = std::move(pref);
  }
  void SetPerOpEnginePref(PerOpEnginePref pref) {
    std::lock_guard lock(mutex_);
    for (const auto& [device, ops] : pref)
      for (const auto& [op, engines] : ops) CheckPref(op, device);
    per_op_pref_ = std::move(pref);
  }
  void SetOpEnginePref(const std::string& op, const GlobalEnginePref& pref) {
    std::lock_guard lock(mutex_);
    for (const auto& [device, engines] : pref) CheckPref(op, device);
    for (const auto& [device, engines] : pref) per_op_pref_[device][op] = engines;
  }
  // Preferred backends of an operator, its own first.
  EnginePref EnginePrefs(const std::string& op, DeviceType device) const {
    std::lock_guard lock(mutex_);
    EnginePref out;
    if (const auto ops = per_op_pref_.find(device); ops != per_op_pref_.end())
      if (const auto own = ops->second.find(op); own != ops->second.end()) out = own->second;
    if (const auto global = global_pref_.find(device); global != global_pref_.end())
      out.insert(out.end(), global->second.begin(), global->second.end());
    return out;
  }

 private:
  struct Entry {
    std::unique_ptr<OpSchema> schema;
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<std::string> problems;
  };

  static bool SamePlace(std::string_view file_a, int line_a, std::string_view file_b, int line_b) {
    auto strip = [](std::string_view path) {
      while (path.substr(0, 2) == "./") path.remove_prefix(2);
      return path;
    };
    return line_a == line_b && strip(file_a) == strip(file_b);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [op, entry] : ops_) names.push_back(op);
    return names;
  }
  [[noreturn]] OPKIT_COLD void ThrowUnknown(const std::string& op) const {
    Throw(ErrorCode::kNotFound, "no operator '", op, "' is registered", SuggestName(op, Names()),
          ops_.empty() ? "; nothing is: was the file that registers it linked?" : "");
  }
  static std::string WithoutSchema(const std::string& op, const Entry& entry) {
    return StrCat("operator ", op, " has a kernel",
                  entry.kernels.empty() ? "" : " (at " + entry.kernels[0]->Place() + ")",
                  " but no schema; add OPERATOR_SCHEMA(", op, ") to this program");
  }
  void CheckPref(const std::string& op, DeviceType device) const {
    const auto it = ops_.find(op);
    if (it == ops_.end()) ThrowUnknown(op);
    for (const auto& kernel : it->second.kernels)
      if (kernel->device == device) return;
    Throw(ErrorCode::kNotFound, "engine preference for operator ", op, " on ", ToString(device),
          ", where it has no kernel");
  }

  mutable std::mutex mutex_;
  std::map<std::string, Entry> ops_;
  std::vector<std::unique_ptr<OpSchema>> shadows_;
  std::vector<std::unique_ptr<Kernel>> replaced_;
  GlobalEnginePref global_pref_;
  PerOpEnginePref per_op_pref_;
};

// Everything wrong with the registrations of this program (duplicates with both places, kernels
// without a schema), one sentence each; empty when nothing is. A good first line of a test.
inline std::vector<std::string> CheckRegistrations() { return OpRegistry::Global().Problems(); }
inline std::vector<std::string> RegisteredOperators() { return OpRegistry::Global().Operators(); }
inline void SetGlobalEnginePref(GlobalEnginePref pref) {
  OpRegistry::Global().SetGlobalEnginePref(std::move(pref));
}
inline void SetPerOpEnginePref(PerOpEnginePref pref) {
  OpRegistry::Global().SetPerOpEnginePref(std::move(pref));
}
inline void SetOpEnginePref(const std::string& op, const GlobalEnginePref& pref) {
  OpRegistry::Global().SetOpEnginePref(op, pref);
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
  Blob* CreateBlob(const std::string& name) {
    std::unique_ptr<Blob>& blob = blobs_[name];
    if (!blob) blob = std::make_unique<Blob>(name);
    return blob.get();
  }
  bool HasBlob(const std::string& name) const { return blobs_.count(name) != 0; }
  // Null when there is none.
  Blob* FindBlob(const std::string& name) const {
    const auto it = blobs_.find(name);
    return it == blobs_.end() ? nullptr : it->second.get();
  }
  // Error (kNotFound) that names the nearest blob when there is none.
  Blob* GetBlob(const std::string& name) const {
    Blob* blob = FindBlob(name);
    if (!blob)
      Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace",
            SuggestName(name, Blobs()));
    return blob;
  }
  // Operators bound to the blob must be gone.
  bool RemoveBlob(const std::string& name) { return blobs_.erase(name) != 0; }
  std::vector<std::string> Blobs() const {
    std::vector<std::string> names;
    for (const auto& [name, blob] : blobs_) names.push_back(name);
    return names;
  }

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
  int last_failed_op_net_position = -1;

 private:
  std::map<std::string, std::unique_ptr<Blob>> blobs_;
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

// Not synchronised: one run at a time. Operators of one workspace may run at the same time when they
// do not write what another reads or writes.
class OperatorBase : public Observable<OperatorBase> {
 public:
  // Binds inputs, which must exist, and outputs, which are made. Error: kNotFound, kInvalidArgument.
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
  // Issues the work and returns; event() completes with it. What fails while issuing fails the event
  // and is thrown as well. Error (kFailedPrecondition) while the last run is still SCHEDULED.
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
  bool HasInput(int i) const { return i < InputSize() && inputs_[static_cast<size_t>(i)]; }
  bool HasOutput(int i) const { return i < OutputSize() && outputs_[static_cast<size_t>(i)]; }

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

  // The output as the last run left it, for operators that resize it themselves.
  Tensor* Output(int i) { return OutputBlob(i)->GetMutable<Tensor>(); }
  // The output with this shape and dtype, dense, on this operator's device; memory of the last run
  // is reused. No input is freed or resized by it: where the output is also an input and changes, a
  // new tensor takes its place when the run has ended.
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    Tensor* out = Output(i);
    if (out->dtype() == dtype && out->shape() == shape && out->initialized() &&
        out->device() == memory_device_ && out->is_dense() && !Clobbers(i, *out)) [[likely]]
      return out;
    return ResizeOutput(i, out, shape, dtype);
  }
  template <class T>
  T* Output(int i) {
    return OutputBlob(i)->GetMutable<T>();
  }
  // Caffe2's spelling: another name for Output(i, shape, dtype).
  Tensor* XOutput(int i, const Shape& shape, DType dtype) { return Output(i, shape, dtype); }
  // A tensor to write to, or null for an output that the node leaves out.
  Tensor* OutputTensorOrUndefined(int i) { return HasOutput(i) ? Output(i) : nullptr; }
  // The output becomes `source` itself, sharing its memory.
  Tensor* OutputTensorAlias(int i, const Tensor& source) {
    Tensor* out = Output(i);
    *out = source;
    return out;
  }
  void SetOutputTensor(int i, Tensor tensor) { *Output(i) = std::move(tensor); }
  template <class T>
  bool OutputIsType(int i) const {
    return Bound(outputs_, i, "output")->template IsType<T>();
  }
  Blob* OutputBlob(int i) const { return Bound(outputs_, i, "output"); }
  // Judged by memory, not by name.
  bool IsInputOutputAlias(int i, int o) const {
    if (inputs_[static_cast<size_t>(i)] == outputs_[static_cast<size_t>(o)]) return true;
    return InputIsType<Tensor>(i) && OutputIsType<Tensor>(o) &&
           Input<Tensor>(i).SharesMemoryWith(OutputBlob(o)->Get<Tensor>());
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
  void Finish(std::chrono::nanoseconds timeout = std::chrono::nanoseconds(-1)) {
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
      AddContext(error);
      throw;
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
  detail::IntrusivePtr<const detail::FailureContext> failure_context() const {
    return identity_;
  }

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
            " ", what, "s", static_cast<size_t>(i) < blobs.size() ? " and leaves that one out" : "");
    return blobs[static_cast<size_t>(i)];
  }
  OPKIT_COLD void CheckDevice(int i, const Tensor& tensor) const {
    if (!tensor.initialized() || MemoryDevice(tensor.device()) == memory_device_) return;
    Throw(ErrorCode::kInvalidArgument, "input ", i, " '", def().inputs()[static_cast<size_t>(i)],
          "' is on ", ToString(tensor.device()), ", but the operator runs on ", ToString(device_),
          "; copy it there first");
  }
  // Writing to `out` would overwrite an input that the schema does not let it share memory with.
  bool Clobbers(int o, const Tensor& out) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Blob* blob = inputs_[i];
      if (!blob || !blob->IsType<Tensor>()) continue;
      const Tensor& in = blob->Get<Tensor>();
      if (in.storage() != out.storage() || !in.SharesMemoryWith(out) || MayShare(i, o)) continue;
      return true;
    }
    return false;
  }
  bool MayShare(size_t i, int o) const {
    if (inputs_[i] == outputs_[static_cast<size_t>(o)]) return true;  // verified with the node
    if (inplace_masks_.empty()) return true;                          // built without a schema
    return i < 64 && (inplace_masks_[static_cast<size_t>(o)] >> i & 1);
  }
  Tensor* ResizeOutput(int o, Tensor* out, const Shape& shape, DType dtype) {
    for (Pending& pending : pending_)
      if (pending.output == o) {
        pending.tensor->Resize(shape, dtype);
        return pending.tensor.get();
      }
    Tensor next = *out;
    if (MemoryDevice(next.device()) != memory_device_ || !next.is_dense() ||
        (next.initialized() && Clobbers(o, next)))
      next = Tensor(memory_device_);
    next.SetDevice(memory_device_);
    next.Resize(shape, dtype);
    bool is_input = false;
    for (const Blob* blob : inputs_) is_input |= blob == outputs_[static_cast<size_t>(o)];
    if (is_input && out->initialized()) {
      pending_.push_back({o, OutputBlob(o), std::make_unique<Tensor>(std::move(next))});
      return pending_.back().tensor.get();
    }
    *out = std::move(next);
    return out;
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
    error.AddContext(Describe());
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && inputs_[i]->IsType<Tensor>())
        error.AddContext(StrCat("  input ", i, " '", inputs_[i]->name(), "': ",
                                inputs_[i]->Get<Tensor>()));
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

[[noreturn]] OPKIT_COLD inline void ThrowNoKernel(const OperatorDef& def, const std::string& refused) {
  if (!refused.empty())
    Throw(ErrorCode::kUnsupported, "no kernel of operator ", ToString(def), " on ",
          ToString(def.device()), " accepts this node:", refused);
  std::string others;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    others += StrCat(others.empty() ? "" : ", ", ToString(kernel->device), " (", kernel->backend,
                     ", ", kernel->Place(), ")");
  Throw(ErrorCode::kNotFound, "operator ", ToString(def), " has no kernel for ",
        ToString(def.device()), "; it has ", others.empty() ? "none at all" : "kernels for " + others);
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
      if (!name.empty() && !ws->HasBlob(name)) created_.push_back(&name);
  }
  ~OutputBlobGuard() {
    if (!kept_)
      for (const std::string* name : created_) ws_->RemoveBlob(*name);
  }
  void Keep() { kept_ = true; }

 private:
  Workspace* ws_;
  std::vector<const std::string*> created_;
  bool kept_ = false;
};

}  // namespace detail

// Errors: kNotFound (unknown operator, no kernel for the device, missing input blob), with the
// nearest name; kInvalidArgument (the node breaks the schema); kUnsupported (every kernel refused it,
// with each reason); kAlreadyExists (registered twice). The workspace is then as it was.
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
        error.AddContext(StrCat("in the constructor of operator ", ToString(def), ", registered at ",
                                kernel->Place()));
        throw;
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

// ---- opkit/op/invoke.hpp
// Invoke: calls an operator by name on tensors, without a workspace or a graph. ResolvedOperator is
// the same call with everything but the run done once.
#ifndef OPKIT_OP_INVOKE_HPP_
#define OPKIT_OP_INVOKE_HPP_

namespace opkit::inline OPKIT_ABI {

struct InvokeOptions {
  std::optional<Device> device = {};  // default: that of the first input
  std::string engine = {};            // backends to try; default: the registry's order
  int num_outputs = -1;          // needed only where the schema leaves it open
};

// An operator ready to be called again and again: schema, kernel and attributes are settled. Not
// synchronised: one thread at a time. Moving it keeps it valid.
//
//   ResolvedOperator axpy("Axpy", 2, {{"alpha", 2.f}});
//   std::vector<Tensor> out = axpy({x, y});       // new outputs
//   axpy.Run({x, y}, outputs);                    // into tensors of the caller's: no allocation
class ResolvedOperator {
 public:
  // Errors: as CreateOperator; kInvalidArgument when the number of outputs is open.
  ResolvedOperator(const std::string& op, int num_inputs, Arguments args = {},
                   const InvokeOptions& options = {})
      : ResolvedOperator(op, std::vector<bool>(static_cast<size_t>(num_inputs), true),
                         std::move(args), options) {}
  // `present[i]` false leaves optional input i out.
  ResolvedOperator(const std::string& op, const std::vector<bool>& present, Arguments args,
                   const InvokeOptions& options)
      : schema_(&OpRegistry::Global().GetSchema(op)), workspace_(std::make_unique<Workspace>()) {
    def_ = OperatorDef(op, {}, {}, std::move(args));
    def_.Device(options.device.value_or(Device{})).Engine(options.engine);
    for (size_t i = 0; i < present.size(); ++i) {
      const std::string name = present[i] ? StrCat("input ", i) : std::string();
      def_.Input(name);
      inputs_.push_back(present[i] ? workspace_->CreateTensor(name) : nullptr);
    }
    int num_outputs = options.num_outputs;
    if (num_outputs < 0) num_outputs = schema_->CalculateOutput(static_cast<int>(present.size()));
    if (num_outputs < 0) num_outputs = schema_->min_outputs();
    if (num_outputs == 0 && schema_->max_outputs() > 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", op, " may have different numbers of outputs; "
            "set InvokeOptions::num_outputs");
    for (int i = 0; i < num_outputs; ++i) def_.Output(StrCat("output ", i));
    op_ = CreateOperator(def_, workspace_.get());
    for (const std::string& name : def_.outputs())
      outputs_.push_back(workspace_->CreateTensor(name));
    seen_.resize(inputs_.size());
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
    if (schema_->has_inference() && !Seen()) Infer();
    for (size_t o = 0; o < outputs.size(); ++o) *outputs_[o] = outputs[o];
    op_->Run();
    for (size_t o = 0; o < outputs.size(); ++o) outputs[o] = std::move(*outputs_[o]);
  }

  OperatorBase& op() { return *op_; }

 private:
  struct Signature {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  // Nothing of the caller's is held between calls.
  struct Release {
    ResolvedOperator& self;
    ~Release() {
      for (Tensor* tensor : self.inputs_)
        if (tensor) *tensor = Tensor();
      for (Tensor* tensor : self.outputs_) *tensor = Tensor();
    }
  };

  // The same dtypes and shapes as the last time, which inference has found right.
  bool Seen() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] && (inputs_[i]->dtype() != seen_[i].dtype || inputs_[i]->dtype() == DType::kUndefined ||
                         inputs_[i]->shape() != seen_[i].shape))
        return false;
    return !inputs_.empty();
  }
  void Infer() {
    std::vector<TensorInfo> infos;
    for (const Tensor* tensor : inputs_)
      infos.push_back(tensor ? TensorInfo::Of(*tensor, true) : TensorInfo());
    schema_->InferOutputs(def_, std::move(infos));
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i]) seen_[i] = {inputs_[i]->dtype(), inputs_[i]->shape()};
  }

  const OpSchema* schema_;
  std::unique_ptr<Workspace> workspace_;
  OperatorDef def_;
  std::unique_ptr<OperatorBase> op_;
  std::vector<Tensor*> inputs_, outputs_;  // in the workspace; null where left out
  std::vector<Signature> seen_;
};

// Calls operator `op` once, with the default order of kernels on the device of the first input. A
// default-constructed Tensor leaves an optional input out. Errors: as CreateOperator and Run.
//
//   std::vector<Tensor> out = Invoke("Axpy", {x, y}, {{"alpha", 2.f}});
inline std::vector<Tensor> Invoke(const std::string& op, const std::vector<Tensor>& inputs,
                                  Arguments args = {}, InvokeOptions options = {}) {
  std::vector<bool> present;
  for (const Tensor& input : inputs) {
    present.push_back(input.dtype() != DType::kUndefined);
    if (!options.device && present.back()) options.device = input.device();
  }
  return ResolvedOperator(op, present, std::move(args), options)(inputs);
}

}  // namespace opkit

#endif  // OPKIT_OP_INVOKE_HPP_

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
    ObserverScope<OperatorBase> observers(*this);
    InvocationScope invocation(NextInvocationKind());
    try {
      context_.SwitchToDevice(stream_id);
      if constexpr (Context::kAsynchronous) {
        RunOnDeviceOrFail();
        Drain();
      } else if (HasAsyncPart()) [[unlikely]] {
        Issue();
        event().Finish();
      } else {
        RunOnDeviceOrFail();
      }
      PublishOutputs();
    } catch (...) {
      if constexpr (Context::kAsynchronous) RetainUntilDrained();
      RethrowWithContext();
    }
    observers.Succeeded();
    return true;
  }

  bool RunAsync(int stream_id = 0) final {
    ObserverScope<OperatorBase> observers(*this);
    InvocationScope invocation(NextInvocationKind());
    if (!IsEventDisabled()) PrepareEvent();
    try {
      context_.SwitchToDevice(stream_id);
      Issue();
      PublishOutputs();
    } catch (...) {
      if constexpr (Context::kAsynchronous) RetainUntilDrained();
      try {
        RethrowWithContext();
      } catch (...) {
        if (!IsEventDisabled()) event().state()->Complete(std::current_exception());
        throw;
      }
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
  void SyncDeviceBarrierForObservers() override { context_.FinishDeviceComputation(); }
  bool IsStreamFree(int stream_id) const override {
    return Context::IsStreamFree(device(), stream_id);
  }

  Context& context() { return context_; }

 private:
  void RunOnDeviceOrFail() {
    if (!RunOnDevice()) [[unlikely]]
      ReturnedFalse();
  }
  // Runs with the event, if any, in the state that the device's kind of completion asks for.
  void Issue() {
    if (IsEventDisabled()) {
      RunOnDeviceOrFail();
    } else if (Context::kAsynchronous) {
      RunOnDeviceOrFail();
      RecordEvent();
    } else if (HasAsyncPart()) {
      RecordEvent();  // before the body: the operator may finish the event from another thread
      RunOnDeviceOrFail();
    } else {
      RunOnDeviceOrFail();
      event().SetFinished();
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
// and without `template`.
#define OPKIT_USE_OPERATOR_BASE_FUNCTIONS                                                      \
  using ::opkit::OperatorBase::HasArgument;                                                    \
  using ::opkit::OperatorBase::HasInput;                                                       \
  using ::opkit::OperatorBase::HasOutput;                                                      \
  using ::opkit::OperatorBase::InputBlob;                                                      \
  using ::opkit::OperatorBase::InputSize;                                                      \
  using ::opkit::OperatorBase::OutputBlob;                                                     \
  using ::opkit::OperatorBase::OutputSize;                                                     \
  using ::opkit::OperatorBase::OutputTensorAlias;                                              \
  using ::opkit::OperatorBase::SetOutputTensor;                                                \
  using ::opkit::OperatorBase::def;                                                            \
  using ::opkit::OperatorBase::device;                                                         \
  using ::opkit::OperatorBase::event;                                                          \
  const ::opkit::Tensor& Input(int i) const {                                                   \
    return static_cast<const ::opkit::OperatorBase&>(*this).Input(i);                           \
  }                                                                                             \
  template <class OpkitT>                                                                       \
  const OpkitT& Input(int i) const {                                                            \
    return static_cast<const ::opkit::OperatorBase&>(*this).Input<OpkitT>(i);                   \
  }                                                                                             \
  ::opkit::Tensor* Output(int i) { return static_cast<::opkit::OperatorBase&>(*this).Output(i); }\
  ::opkit::Tensor* Output(int i, const ::opkit::Shape& shape, ::opkit::DType dtype) {           \
    return static_cast<::opkit::OperatorBase&>(*this).Output(i, shape, dtype);                  \
  }                                                                                             \
  template <class OpkitT>                                                                       \
  OpkitT* Output(int i) {                                                                       \
    return static_cast<::opkit::OperatorBase&>(*this).Output<OpkitT>(i);                        \
  }                                                                                             \
  template <class OpkitT>                                                                       \
  OpkitT GetSingleArgument(std::string_view name, const OpkitT& fallback) const {               \
    return static_cast<const ::opkit::OperatorBase&>(*this).GetSingleArgument<OpkitT>(name,     \
                                                                                      fallback);\
  }                                                                                             \
  template <class OpkitT>                                                                       \
  std::vector<OpkitT> GetRepeatedArgument(std::string_view name,                                \
                                          const std::vector<OpkitT>& fallback = {}) const {     \
    return static_cast<const ::opkit::OperatorBase&>(*this).GetRepeatedArgument<OpkitT>(name,   \
                                                                                        fallback);\
  }                                                                                             \
  static_assert(true)
#define OPKIT_USE_OPERATOR_FUNCTIONS(Context) \
  OPKIT_USE_OPERATOR_BASE_FUNCTIONS;          \
  using ::opkit::Operator<Context>::context_

// Names for the indices of inputs and outputs: INPUT_TAGS(X, SCALE); … Input(SCALE).
#define OPKIT_INPUT_TAGS(first, ...) enum InputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }
#define OPKIT_OUTPUT_TAGS(first, ...) enum OutputTag { first = 0 __VA_OPT__(, ) __VA_ARGS__ }

#endif  // OPKIT_OP_OPERATOR_HPP_

// ---- opkit/op/registration.hpp
// The registration macros: OPERATOR_SCHEMA and REGISTER_<DEVICE>_OPERATOR. Each is a static
// initialiser at namespace scope, in a source file or a header.
#ifndef OPKIT_OP_REGISTRATION_HPP_
#define OPKIT_OP_REGISTRATION_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

template <class Op>
std::unique_ptr<OperatorBase> CreateClass(const OperatorDef& def, Workspace* ws) {
  static_assert(std::is_base_of_v<OperatorBase, Op>,
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
#define OPKIT_OPERATOR_SCHEMA(name)                                                              \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}     \
  [[maybe_unused]] static ::opkit::OpSchema& OPKIT_UNIQUE(opkit_schema_) =                       \
      ::opkit::OpRegistry::Global().AddSchema(#name, __FILE__, __LINE__)

// The general form. `device` is a DeviceType, `backend` a string; the class comes last, so that it
// may contain commas. A device of your own needs one line:
//   #define REGISTER_NPU_OPERATOR(...) OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, __VA_ARGS__)
#define OPKIT_REGISTER_OPERATOR(device, name, backend, priority, ...)                            \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)();             \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                               \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                              \
       ::opkit::detail::RegisterKernel(#name, device, backend,                                   \
                                       ::opkit::RegistrationPriority::priority, __FILE__,        \
                                       __LINE__, &::opkit::detail::CreateClass<__VA_ARGS__>))
// By string, for names that are not identifiers and for kernels of another binary's operator: a
// missing schema is then found at the first lookup.
#define OPKIT_REGISTER_OPERATOR_STR(device, string, backend, ...)                                \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                               \
      ::opkit::detail::RegisterKernel(string, device, backend,                                   \
                                      ::opkit::RegistrationPriority::kDefault, __FILE__,         \
                                      __LINE__, &::opkit::detail::CreateClass<__VA_ARGS__>)
// By a function (const OperatorDef&, Workspace*) -> std::unique_ptr<OperatorBase>.
#define OPKIT_REGISTER_OPERATOR_CREATOR(device, name, ...)                                       \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                               \
      ::opkit::detail::RegisterKernel(#name, device, "DEFAULT",                                  \
                                      ::opkit::RegistrationPriority::kDefault, __FILE__,         \
                                      __LINE__, __VA_ARGS__)

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
#define OPKIT_USE_REGISTRATIONS(group)                                     \
  extern "C" void opkit_use_registrations_of_##group();                    \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_registrations_) =  \
      (opkit_use_registrations_of_##group(), true)

#endif  // OPKIT_OP_REGISTRATION_HPP_

// ---- opkit/base/fixed_name.hpp
// FixedName: a string literal as a template argument, so that names are checked at compile time.
#ifndef OPKIT_BASE_FIXED_NAME_HPP_
#define OPKIT_BASE_FIXED_NAME_HPP_

namespace opkit::inline OPKIT_ABI {

// Up to 31 characters, packed into integers: nvcc rejects extended lambdas inside functions whose
// template arguments hold a char array.
struct FixedName {
  uint64_t words[4] = {};

  template <size_t N>
  consteval FixedName(const char (&text)[N]) {
    static_assert(N >= 2 && N <= 32, "a name has 1 to 31 characters");
    for (size_t i = 0; i + 1 < N; ++i)
      words[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (i % 8 * 8);
  }
  friend constexpr bool operator==(const FixedName&, const FixedName&) = default;

  std::string str() const {
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
// type; each is trivially copied into a kernel's lambda, on any device.
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
  TypedView(T* data, const Shape& shape)
      : data_(data), size_(shape.numel()), rank_(shape.rank()) {
    if (rank_ > kMaxRank)
      Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
            ", found ", ToString(shape));
    for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
  }

  OPKIT_HOST_DEVICE T* data() const { return data_; }
  OPKIT_HOST_DEVICE int64_t size() const { return size_; }
  OPKIT_HOST_DEVICE int rank() const { return rank_; }
  OPKIT_HOST_DEVICE int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // Element i in row-major order, unchecked.
  OPKIT_HOST_DEVICE T& operator[](int64_t i) const { return data_[i]; }
  OPKIT_HOST_DEVICE T* begin() const { return data_; }
  OPKIT_HOST_DEVICE T* end() const { return data_ + size_; }
  Shape shape() const { return Shape(std::span<const int64_t>(dims_, static_cast<size_t>(rank_))); }

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
  static constexpr FixedName kName = Name;
  using value_type = T;
  using detail::TypedView<const T>::TypedView;
};

// An input that a node may leave out.
template <FixedName Name, Element T>
class OptionalIn : public In<Name, T> {
 public:
  using In<Name, T>::In;
  OPKIT_HOST_DEVICE explicit operator bool() const { return present_; }
  void set_present() { present_ = true; }

 private:
  bool present_ = false;
};

// An output tensor, allocated before the function is called, by the operator's shape rule.
template <FixedName Name, Element T>
class Out : public detail::TypedView<T> {
 public:
  static constexpr FixedName kName = Name;
  using value_type = T;
  using detail::TypedView<T>::TypedView;
};

// An attribute: an integer, floating-point number, bool, std::string, or a std::vector of one of
// these. Converts to T. Required unless the operator gives it a default.
template <FixedName Name, class T>
class Attr {
 public:
  static constexpr FixedName kName = Name;
  using value_type = T;
  Attr() = default;
  explicit Attr(T value) : value_(std::move(value)) {}
  OPKIT_HOST_DEVICE const T& value() const { return value_; }
  OPKIT_HOST_DEVICE operator const T&() const { return value_; }

 private:
  T value_{};
};

namespace detail {

enum class ParameterKind { kIn, kOptionalIn, kOut, kAttr, kUnknown };

template <class P>
struct ParameterTraits {
  static constexpr ParameterKind kKind = ParameterKind::kUnknown;
};
template <FixedName Name, class T>
struct ParameterTraits<In<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kIn;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<OptionalIn<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kOptionalIn;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<Out<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kOut;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<Attr<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kAttr;
  static constexpr FixedName kName = Name;
  using Value = T;
};

constexpr bool IsInput(ParameterKind kind) {
  return kind == ParameterKind::kIn || kind == ParameterKind::kOptionalIn;
}

// What a function's type says: void or bool (Context&, parameters…).
template <class F>
struct TypedSignature {
  static constexpr bool kValid = false;
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...)> {
  static constexpr bool kValid = true;
  using Return = R;
  using Context = C;
  static constexpr size_t kCount = sizeof...(P);
  template <size_t I>
  using Parameter = std::remove_cvref_t<std::tuple_element_t<I, std::tuple<P...>>>;
  template <template <class> class Wrap>
  using Values = std::tuple<Wrap<std::remove_cvref_t<P>>...>;

  static constexpr bool kParametersKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kUnknown) && ...);

  // Place of parameter I among those of its own kind (inputs, outputs or attributes).
  template <size_t I>
  static constexpr int Place() {
    const bool inputs = IsInput(ParameterTraits<Parameter<I>>::kKind);
    int place = 0;
    [&]<size_t... J>(std::index_sequence<J...>) {
      ((place += inputs ? IsInput(ParameterTraits<Parameter<J>>::kKind)
                        : ParameterTraits<Parameter<J>>::kKind ==
                              ParameterTraits<Parameter<I>>::kKind),
       ...);
    }(std::make_index_sequence<I>{});
    return place;
  }
  // Place of the input (output, attribute) of that name, or -1.
  template <FixedName Name>
  static constexpr int Find(bool (*of_kind)(ParameterKind)) {
    int found = -1;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((of_kind(ParameterTraits<Parameter<I>>::kKind) && ParameterTraits<Parameter<I>>::kName == Name
            ? void(found = Place<I>())
            : void()),
       ...);
    }(std::make_index_sequence<kCount>{});
    return found;
  }
  static constexpr bool NamesDiffer() {
    bool differ = true;
    [&]<size_t... I>(std::index_sequence<I...>) {
      const FixedName names[] = {FixedName("-"), ParameterTraits<Parameter<I>>::kName...};
      const bool outs[] = {false, ParameterTraits<Parameter<I>>::kKind == ParameterKind::kOut...};
      for (size_t a = 0; a <= kCount; ++a)
        for (size_t b = 0; b < a; ++b) differ &= !(names[a] == names[b] && outs[a] == outs[b]);
    }(std::make_index_sequence<kCount>{});
    return differ;
  }
};

constexpr bool KindIsInput(ParameterKind kind) { return IsInput(kind); }
constexpr bool KindIsOut(ParameterKind kind) { return kind == ParameterKind::kOut; }
constexpr bool KindIsAttr(ParameterKind kind) { return kind == ParameterKind::kAttr; }

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_VALUES_HPP_

// ---- opkit/op/typed_operator.hpp
// Typed operators: one function template, and everything else (arity, dtypes, attribute names and
// types, output allocation, checks, docs) derived from its signature at compile time. One source for
// CPU, CPU streams and CUDA.
#ifndef OPKIT_OP_TYPED_OPERATOR_HPP_
#define OPKIT_OP_TYPED_OPERATOR_HPP_

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The signature of the function behind the macro's lambda for a context and element types.
template <class Function, class... Types>
using SignatureOf = TypedSignature<decltype(Function{}(std::type_identity<Types>{}...))>;

// A function template over <Context> alone, or over <Context, T>.
template <class Function>
inline constexpr bool kTakesElementType =
    !std::is_invocable_v<Function, std::type_identity<CPUContext>>;
template <class Function, bool = kTakesElementType<Function>>
struct CanonicalSignatureOf {
  using type = SignatureOf<Function, CPUContext>;
};
template <class Function>
struct CanonicalSignatureOf<Function, true> {
  static_assert(std::is_invocable_v<Function, std::type_identity<CPUContext>,
                                    std::type_identity<float>>,
                "OPKIT_OP: the function must be a template over <class Context>, or over <class "
                "Context, class T> with an element type T");
  using type = SignatureOf<Function, CPUContext, float>;
};
template <class Function>
using CanonicalSignature = typename CanonicalSignatureOf<Function>::type;

// Whether parameter I is declared with the function's own element type T.
template <class Function, size_t I>
constexpr bool DependsOnElementType() {
  if constexpr (kTakesElementType<Function>) {
    return !std::is_same_v<
        typename SignatureOf<Function, CPUContext, float>::template Parameter<I>,
        typename SignatureOf<Function, CPUContext, double>::template Parameter<I>>;
  } else {
    return false;
  }
}
// Place of the first input declared with T, or -1.
template <class Function>
constexpr int ElementTypeInput() {
  using S = CanonicalSignature<Function>;
  int found = -1;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((found < 0 && IsInput(ParameterTraits<typename S::template Parameter<I>>::kKind) &&
              DependsOnElementType<Function, I>()
          ? void(found = S::template Place<I>())
          : void()),
     ...);
  }(std::make_index_sequence<S::kCount>{});
  return found;
}

// The part of a typed operator that does not depend on the function: output shapes by the schema's
// inference, run again only when an input's dtype or shape has changed.
class OutputShapes {
 public:
  void Update(const OperatorBase& op) {
    if (Known(op)) return;
    const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
    std::vector<TensorInfo> infos;
    seen_.clear();
    for (int i = 0; i < op.InputSize(); ++i) {
      if (!op.HasInput(i)) {
        infos.emplace_back();
        continue;
      }
      const Tensor& input = op.Input(i);
      infos.push_back(TensorInfo::Of(input, IsHostAccessible(input.device().type)));
    }
    shapes_.clear();
    for (const TensorInfo& output : schema.InferOutputs(op.def(), std::move(infos)))
      shapes_.push_back(output.shape.ToShape());
    for (int i = 0; i < op.InputSize(); ++i)
      seen_.push_back(op.HasInput(i) ? Seen{op.Input(i).dtype(), op.Input(i).shape()} : Seen{});
  }
  const Shape& operator[](int o) const { return shapes_[static_cast<size_t>(o)]; }

 private:
  struct Seen {
    DType dtype = DType::kUndefined;
    Shape shape;
  };
  bool Known(const OperatorBase& op) const {
    if (seen_.empty() || seen_.size() != static_cast<size_t>(op.InputSize())) return false;
    for (int i = 0; i < op.InputSize(); ++i)
      if (op.HasInput(i) && (op.Input(i).dtype() != seen_[static_cast<size_t>(i)].dtype ||
                             op.Input(i).shape() != seen_[static_cast<size_t>(i)].shape))
        return false;
    return true;
  }
  std::vector<Seen> seen_;
  std::vector<Shape> shapes_;
};

// The attributes of one instantiation, and the call.
template <class Function, class Context, class... Types>
class TypedCall {
  using S = SignatureOf<Function, Context, Types...>;

 public:
  explicit TypedCall(const OperatorBase& op) { ReadAll(op, std::make_index_sequence<S::kCount>{}); }

  bool operator()(Operator<Context>& op, const OutputShapes& shapes, std::vector<Tensor>& dense) {
    return Call(op, shapes, dense, std::make_index_sequence<S::kCount>{});
  }

 private:
  template <size_t... I>
  void ReadAll(const OperatorBase& op, std::index_sequence<I...>) {
    (Read<I>(op), ...);
  }
  template <size_t I>
  void Read(const OperatorBase& op) {
    using P = typename S::template Parameter<I>;
    if constexpr (ParameterTraits<P>::kKind == ParameterKind::kAttr) {
      using Value = typename P::value_type;
      const std::string name = P::kName.str();
      const Attribute* given = op.def().args().Find(name);
      if (!given) {
        const OpSchema& schema = OpRegistry::Global().GetSchema(op.type());
        const AttributeSchema* declared = schema.FindAttribute(name);
        if (declared && declared->default_value) given = &*declared->default_value;
      }
      if (!given)
        Throw(ErrorCode::kInvalidArgument, "operator ", op.type(), " needs the argument '", name,
              "'");
      // An attribute of the function's element type is kept as a float whatever T is.
      if constexpr (DependsOnElementType<Function, I>()) {
        std::get<I>(values_) = P(static_cast<Value>(given->Get<double>()));
      } else {
        std::get<I>(values_) = P(given->Get<Value>());
      }
    }
  }
  template <size_t... I>
  bool Call(Operator<Context>& op, const OutputShapes& shapes, std::vector<Tensor>& dense,
            std::index_sequence<I...>) {
    (Bind<I>(op, shapes, dense), ...);
    constexpr auto function = Function{}(std::type_identity<Context>{}, std::type_identity<Types>{}...);
    if constexpr (std::is_void_v<typename S::Return>) {
      function(op.context(), std::get<I>(values_)...);
      return true;
    } else {
      return function(op.context(), std::get<I>(values_)...);
    }
  }
  template <size_t I>
  void Bind(OperatorBase& op, const OutputShapes& shapes, std::vector<Tensor>& dense) {
    using P = typename S::template Parameter<I>;
    constexpr ParameterKind kKind = ParameterTraits<P>::kKind;
    constexpr int kPlace = S::template Place<I>();
    if constexpr (kKind == ParameterKind::kOut) {
      Tensor* out = op.Output(kPlace, shapes[kPlace], kDTypeOf<typename P::value_type>);
      std::get<I>(values_) =
          P(out->template mutable_data<typename P::value_type>(), out->shape());
    } else if constexpr (IsInput(kKind)) {
      if (kKind == ParameterKind::kOptionalIn && !op.HasInput(kPlace)) {
        std::get<I>(values_) = P();
        return;
      }
      const Tensor& in = op.Input(kPlace);
      const Tensor* readable = &in;
      if (!in.is_dense()) [[unlikely]]
        readable = &dense.emplace_back(in.Contiguous());
      std::get<I>(values_) =
          P(readable->template data<typename P::value_type>(), readable->shape());
      if constexpr (kKind == ParameterKind::kOptionalIn) std::get<I>(values_).set_present();
    }
  }

  template <class P>
  using Stored = P;
  typename S::template Values<Stored> values_;
};

template <class Function, class Context, class... Types>
struct TypedCalls {
  using type = std::tuple<TypedCall<Function, Context, Types>...>;
};
template <class Function, class Context>
struct TypedCalls<Function, Context> {
  using type = std::tuple<TypedCall<Function, Context>>;
};

template <class Function, class Context, class... Types>
class TypedOperator final : public Operator<Context> {
  using Calls = typename TypedCalls<Function, Context, Types...>::type;

 public:
  TypedOperator(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws),
        calls_(MakeCalls(*this, std::make_index_sequence<std::tuple_size_v<Calls>>{})) {}

  bool RunOnDevice() override {
    shapes_.Update(*this);
    dense_.clear();
    dense_.reserve(static_cast<size_t>(this->InputSize()));
    Operator<Context>& self = *this;
    if constexpr (sizeof...(Types) == 0) {
      return std::get<0>(calls_)(self, shapes_, dense_);
    } else {
      const DType dtype = this->Input(ElementTypeInput<Function>()).dtype();
      return DispatchDType<Types...>(dtype, [&]<class T>() {
        return std::get<TypedCall<Function, Context, T>>(calls_)(self, shapes_, dense_);
      });
    }
  }

 private:
  template <size_t... I>
  static Calls MakeCalls(const OperatorBase& op, std::index_sequence<I...>) {
    return Calls(std::tuple_element_t<I, Calls>(op)...);
  }
  Calls calls_;
  OutputShapes shapes_;
  std::vector<Tensor> dense_;  // dense copies of strided inputs, for the run that uses them
};

// What the builder collects: the shape rules, run in order as the schema's inference, and what the
// signature says of dtypes. Owned by the schema.
struct TypedRules {
  OpSchema* schema = nullptr;
  const char* file = "";
  int line = 0;
  std::vector<std::pair<int, int>> inplace;
  std::vector<UniqueFunction<void(InferenceContext&)>> rules;
  std::vector<DType> input_dtypes, output_dtypes;  // kUndefined where the element type T decides
  int element_input = -1;

  void Infer(InferenceContext& context) {
    for (size_t i = 0; i < input_dtypes.size(); ++i) {
      const int input = static_cast<int>(i);
      if (context.HasInput(input)) context.SetInput(input, TypeOf(context, input_dtypes[i]), {});
    }
    for (size_t o = 0; o < output_dtypes.size(); ++o)
      context.SetOutput(static_cast<int>(o), TypeOf(context, output_dtypes[o]), {});
    for (auto& rule : rules) rule(context);
  }

 private:
  DType TypeOf(const InferenceContext& context, DType declared) const {
    return declared == DType::kUndefined && element_input >= 0 ? context.input_dtype(element_input)
                                                               : declared;
  }
};

// What SameShape means: one shape for all of these inputs and outputs.
inline void InferSameShape(InferenceContext& context, const std::vector<int>& inputs,
                           const std::vector<int>& outputs) {
  SymbolicShape shape;
  for (int i : inputs) {
    if (!context.HasInput(i)) continue;
    auto merged = SymbolicShape::Merge(shape, context.input_shape(i));
    if (!merged)
      Throw(ErrorCode::kInvalidArgument, "input ", i, " of ", ToString(context.def()),
            " has shape ", ToString(context.input_shape(i)), ", but must have the same shape as "
            "input ", inputs[0], ", ", ToString(shape));
    shape = *std::move(merged);
  }
  for (int o : outputs) context.SetOutput(o, DType::kUndefined, shape);
}

}  // namespace detail

// The builder behind OPKIT_OP. `kRuled` has bit o set once output o has a shape rule.
template <class Function, uint64_t kRuled = 0>
class TypedOp {
  using S = detail::CanonicalSignature<Function>;
  static_assert(S::kValid,
                "OPKIT_OP: the function must be void or bool (Context&, In<\"name\", T>…, "
                "Out<\"name\", T>…, Attr<\"name\", T>…)");
  static_assert(S::kParametersKnown,
                "OPKIT_OP: every parameter after the context must be In<\"name\", T>, "
                "OptionalIn<\"name\", T>, Out<\"name\", T> or Attr<\"name\", T>");
  static_assert(std::is_same_v<typename S::Return, void> || std::is_same_v<typename S::Return, bool>,
                "OPKIT_OP: the function must return void or bool");
  static_assert(S::NamesDiffer(), "OPKIT_OP: two parameters of the function have the same name");

 public:
  explicit TypedOp(detail::TypedRules* rules) : rules_(rules) {}

  TypedOp Doc(std::string doc) { return schema().SetDoc(std::move(doc)), *this; }

  // These inputs must have one shape, which these outputs get.
  template <FixedName... Names>
  auto SameShape() {
    static_assert(((InputIndex<Names>() >= 0 || OutputIndex<Names>() >= 0) && ...),
                  "OPKIT_OP(…).SameShape<names…>: a name is neither an input nor an output of the "
                  "function");
    std::vector<int> inputs, outputs;
    (Collect<Names>(inputs, outputs), ...);
    rules_->rules.emplace_back([inputs, outputs](InferenceContext& context) {
      detail::InferSameShape(context, inputs, outputs);
    });
    constexpr uint64_t kNew = ((OutputIndex<Names>() >= 0 ? uint64_t{1} << OutputIndex<Names>() : 0) | ... | 0);
    return TypedOp<Function, kRuled | kNew>(rules_);
  }
  // The shape of an output from a function (const InferenceContext&) -> SymbolicShape, which may
  // read the inputs' shapes, the attributes and the data of constant inputs.
  template <FixedName Name, class F>
  auto OutShape(F shape) {
    static_assert(OutputIndex<Name>() >= 0,
                  "OPKIT_OP(…).OutShape<\"name\">: the name is not an output of the function");
    static_assert(std::is_invocable_r_v<SymbolicShape, F&, const InferenceContext&>,
                  "OPKIT_OP(…).OutShape<\"name\">(f): f must be callable as "
                  "SymbolicShape(const InferenceContext&)");
    rules_->rules.emplace_back([shape = std::move(shape)](InferenceContext& context) mutable {
      context.SetOutput(OutputIndex<Name>(), DType::kUndefined, shape(std::as_const(context)));
    });
    return TypedOp<Function, kRuled | uint64_t{1} << OutputIndex<Name>()>(rules_);
  }
  // The output may be written over the input.
  template <FixedName Input, FixedName Output>
  TypedOp Inplace() {
    static_assert(InputIndex<Input>() >= 0,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the first name is not an input of the "
                  "function");
    static_assert(OutputIndex<Output>() >= 0,
                  "OPKIT_OP(…).Inplace<\"input\", \"output\">: the second name is not an output of "
                  "the function");
    rules_->inplace.push_back({InputIndex<Input>(), OutputIndex<Output>()});
    return *this;
  }
  // The attribute may be left out.
  template <FixedName Name, class T>
  TypedOp Default(const T& value) {
    static_assert(S::template Find<Name>(detail::KindIsAttr) >= 0,
                  "OPKIT_OP(…).Default<\"name\">: the name is not an attribute of the function");
    if constexpr (S::template Find<Name>(detail::KindIsAttr) >= 0) {
      using Value = AttributeValue<Name>;
      static_assert(std::is_convertible_v<T, Value> &&
                        !(std::is_floating_point_v<T> && std::is_integral_v<Value>) &&
                        std::is_same_v<T, bool> == std::is_same_v<Value, bool>,
                    "OPKIT_OP(…).Default<\"name\">(value): the value is not of the attribute's type");
      schema().SetDefault(Name.str(), Attribute(static_cast<Value>(value)));
    }
    return *this;
  }
  // Floating-point operations for each element of output 0.
  TypedOp Flops(uint64_t per_element) { return schema().PointwiseCost(per_element), *this; }
  // Everything else that a schema can say.
  template <class F>
  TypedOp Schema(F fill) {
    return fill(schema()), *this;
  }

  // Registers the function for a device; for a function over <Context, T> with the element types it
  // is compiled for.
  template <class Context, Element... Types>
  TypedOp Kernel() {
    static_assert(DeviceContext<Context>,
                  "OPKIT_OP(…).Kernel<Context>: Context must meet opkit::DeviceContext");
    constexpr uint64_t kAll = (uint64_t{1} << kOutputs) - 1;
    static_assert((kRuled & kAll) == kAll,
                  "OPKIT_OP: an output has no shape rule; add .SameShape<\"input\", \"output\">() or "
                  ".OutShape<\"output\">(f) before .Kernel");
    static_assert(detail::kTakesElementType<Function> == (sizeof...(Types) > 0),
                  "OPKIT_OP(…).Kernel<Context, T…>: a function over <Context, T> needs its element "
                  "types here, one over <Context> takes none");
    static_assert(!detail::kTakesElementType<Function> || detail::ElementTypeInput<Function>() >= 0,
                  "OPKIT_OP: a function over <Context, T> needs an input In<\"name\", T> that says "
                  "which T to run");
#ifdef __CUDACC__
    static_assert(Context::kDeviceType == DeviceType::kCUDA,
                  "OPKIT_OP(…).Kernel<CPUContext>() under nvcc would compute nothing: compile CPU "
                  "kernels in a .cc file, CUDA kernels in a .cu file");
#endif
    if (sizeof...(Types) > 0) schema().SetElementTypes({kDTypeOf<Types>...});
    detail::RegisterKernel(schema().name().c_str(), Context::kDeviceType, "DEFAULT",
                           RegistrationPriority::kDefault, rules_->file, rules_->line,
                           &detail::CreateClass<detail::TypedOperator<Function, Context, Types...>>);
    return *this;
  }

 private:
  template <FixedName Name>
  static constexpr int InputIndex() {
    return S::template Find<Name>(detail::KindIsInput);
  }
  template <FixedName Name>
  static constexpr int OutputIndex() {
    return S::template Find<Name>(detail::KindIsOut);
  }
  template <FixedName Name>
  static void Collect(std::vector<int>& inputs, std::vector<int>& outputs) {
    if (InputIndex<Name>() >= 0) inputs.push_back(InputIndex<Name>());
    if (OutputIndex<Name>() >= 0) outputs.push_back(OutputIndex<Name>());
  }
  template <FixedName Name>
  static auto AttributeValueOf() {
    return []<size_t... I>(std::index_sequence<I...>) {
      std::tuple<typename detail::ParameterTraits<typename S::template Parameter<I>>::Value...>* values = nullptr;
      constexpr size_t kFound =
          ((detail::ParameterTraits<typename S::template Parameter<I>>::kKind ==
                        detail::ParameterKind::kAttr &&
                    detail::ParameterTraits<typename S::template Parameter<I>>::kName == Name
                ? I
                : 0) +
           ...);
      return std::type_identity<
          std::remove_cvref_t<decltype(std::get<kFound>(*values))>>{};
    }(std::make_index_sequence<S::kCount>{});
  }
  template <FixedName Name>
  using AttributeValue = typename decltype(AttributeValueOf<Name>())::type;

  static constexpr int CountOutputs() {
    int count = 0;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((count += detail::KindIsOut(detail::ParameterTraits<typename S::template Parameter<I>>::kKind)), ...);
    }(std::make_index_sequence<S::kCount>{});
    return count;
  }
  static constexpr int kOutputs = CountOutputs();

  OpSchema& schema() { return *rules_->schema; }

  detail::TypedRules* rules_;
};

namespace detail {

// Fills in what the signature says.
template <class Function, size_t I>
void DescribeParameter(OpSchema& schema, TypedRules& rules, int& required_inputs) {
  using S = CanonicalSignature<Function>;
  using P = typename S::template Parameter<I>;
  constexpr bool kByElement = DependsOnElementType<Function, I>();
  const std::string name = P::kName.str();
  if constexpr (ParameterTraits<P>::kKind == ParameterKind::kAttr) {
    using Value = typename P::value_type;
    static_assert(kByElement || requires { kAttributeTypeOf<Value>; },
                  "OPKIT_OP: Attr<\"name\", T>: T must be an integer, bool, floating-point number, "
                  "std::string, or a std::vector of one of these");
    schema.RequiredArg<std::conditional_t<kByElement, double, Value>>(name, "");
  } else {
    const DType dtype = kByElement ? DType::kUndefined : kDTypeOf<typename P::value_type>;
    std::vector<DType> dtypes;
    if (!kByElement) dtypes.push_back(dtype);
    constexpr int kPlace = S::template Place<I>();
    if constexpr (IsInput(ParameterTraits<P>::kKind)) {
      schema.Input(kPlace, name, {}, std::move(dtypes));
      rules.input_dtypes.push_back(dtype);
      if (ParameterTraits<P>::kKind == ParameterKind::kIn) required_inputs = kPlace + 1;
    } else {
      schema.Output(kPlace, name, {}, std::move(dtypes));
      rules.output_dtypes.push_back(dtype);
    }
  }
}

template <class Function>
TypedOp<Function> MakeTypedOp(const char* name, const char* file, int line, Function) {
  using S = CanonicalSignature<Function>;
  auto owned = std::make_unique<TypedRules>();
  TypedRules* rules = owned.get();
  if constexpr (S::kValid && S::kParametersKnown) {
    // The same signature in a .cc and a .cu file is the same operator.
    OpSchema& schema = OpRegistry::Global().AddSchema(
        name, file, line, typeid(S).name());
    rules->schema = &schema;
    rules->file = file;
    rules->line = line;
    int required_inputs = 0;
    [&]<size_t... I>(std::index_sequence<I...>) {
      (DescribeParameter<Function, I>(schema, *rules, required_inputs), ...);
    }(std::make_index_sequence<S::kCount>{});
    rules->element_input = ElementTypeInput<Function>();
    schema.NumInputs(required_inputs, static_cast<int>(rules->input_dtypes.size()))
        .NumOutputs(static_cast<int>(rules->output_dtypes.size()))
        .AllowInplace([rules](int in, int out) {
          for (const auto& pair : rules->inplace)
            if (pair.first == in && pair.second == out) return true;
          return false;
        })
        .TensorInferenceFunction(
            [owned = std::move(owned)](InferenceContext& context) { owned->Infer(context); });
  } else {
    owned.release();  // never reached: TypedOp's static_assert says what is wrong
  }
  return TypedOp<Function>(rules);
}

}  // namespace detail
}  // namespace opkit

// OPKIT_OP(Axpy).Doc("z = alpha * x + y").SameShape<"x", "y", "z">().Inplace<"y", "z">()
//     .Default<"alpha">(1.f).Kernel<CPUContext>();
//
// At namespace scope, after the function template `Axpy`; a static initialiser.
#define OPKIT_OP(name)                                                                            \
  extern "C" __attribute__((weak, visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)() {}      \
  [[maybe_unused]] static const auto OPKIT_UNIQUE(opkit_typed_op_) = ::opkit::detail::MakeTypedOp( \
      #name, __FILE__, __LINE__,                                                                  \
      []<class... OpkitTypes>(std::type_identity<OpkitTypes>...) constexpr                        \
          ->decltype(&name<OpkitTypes...>) { return &name<OpkitTypes...>; })

#endif  // OPKIT_OP_TYPED_OPERATOR_HPP_

// ---- opkit/opkit.hpp
// The whole toolkit that needs a compiler and nothing else. Standard operators (opkit/ops/…),
// third-party backends (opkit/backends/…) and bridges (opkit/interop/…) are included by name.
#ifndef OPKIT_OPKIT_HPP_
#define OPKIT_OPKIT_HPP_

#endif  // OPKIT_OPKIT_HPP_

#endif  // OPKIT_SINGLE_INCLUDE_HPP_

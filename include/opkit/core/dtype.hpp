// Element types: the enumeration, the C++ type of each one of whole bytes, and float16 and bfloat16
// with their conversions. complex64 is a pair of float32, complex128 a pair of float64. They are
// the dtypes of std::complex, and of any other class with the same members and layout; this header
// does not include <complex>.
#ifndef OPKIT_CORE_DTYPE_HPP_
#define OPKIT_CORE_DTYPE_HPP_

#include <bit>
#include <cstdint>
#include <string>

#include "opkit/base/error.hpp"

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

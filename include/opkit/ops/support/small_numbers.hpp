// Conversion of elements of the small dtypes: of float8, and of the packed int2, uint2, int4, uint4
// and float4. Cast, QuantizeLinear and DequantizeLinear convert them in blocks, by way of float or
// int8, so that these dtypes need no loop for each pair of types.
#ifndef OPKIT_OPS_SUPPORT_SMALL_NUMBERS_HPP_
#define OPKIT_OPS_SUPPORT_SMALL_NUMBERS_HPP_

#include "opkit/core/packed.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The types of one byte that numbers are quantised to; float8_e8m0fnu is a type of scales.
using Float8Types = ElementTypes<float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz>;

// Returns a list of dtypes with the small ones behind it.
inline std::vector<DType> WithSmallDTypes(std::vector<DType> dtypes) {
  for (int i = static_cast<int>(DType::kInt2); i <= static_cast<int>(DType::kFloat8E8M0); ++i)
    dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

namespace detail {

// Blocks of elements begin at a multiple of this number, and so at a whole byte.
inline constexpr int64_t kSmallBlock = 256;

// True for int2, uint2, int4 and uint4.
inline bool IsPackedInteger(DType dtype) { return IsPacked(dtype) && dtype != DType::kFloat4E2M1; }
inline bool IsSmall(DType dtype) { return IsPacked(dtype) || IsFloat8(dtype); }

// The rules for a number that is no number of the new type.
struct SmallRounding {
  Overflow overflow = Overflow::kSaturates;
  PowerRounding power = PowerRounding::kUp;
};

// Returns elements [at, at + n) of a small dtype as numbers of type To. Exact if To is float; if To
// is an integer, the dtype must be one too.
template <class To>
void LoadSmall(DType dtype, const void* bytes, int64_t at, int64_t n, To* out) {
  if (IsPacked(dtype)) {
    To numbers[16];
    for (int code = 0; code < 16; ++code)
      numbers[code] = static_cast<To>(NumberOfCode(dtype, static_cast<uint8_t>(code)));
    const int bits = BitSize(dtype);
    for (int64_t i = 0; i < n; ++i) out[i] = numbers[PackedCode(bytes, bits, at + i)];
    return;
  }
  using Types =
      ElementTypes<float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu>;
  Types::Visit(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(bytes) + at;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(static_cast<float>(x[i]));
  });
}

// Returns the limits of a packed integer type.
struct PackedLimits {
  int low, high;
  explicit PackedLimits(DType dtype) {
    const bool is_signed = dtype == DType::kInt2 || dtype == DType::kInt4;
    const int bits = BitSize(dtype);
    low = is_signed ? -(1 << (bits - 1)) : 0;
    high = (1 << (is_signed ? bits - 1 : bits)) - 1;
  }
};

// Writes the code of a number in a float8 or in float4.
inline uint8_t SmallFloatCode(DType dtype, float number, const SmallRounding& rounding) {
  switch (dtype) {
    case DType::kFloat4E2M1:
      return Float4E2M1Format::Encode(number, rounding.overflow);
    case DType::kFloat8E4M3FN:
      return float8_e4m3fn::Encode(number, rounding.overflow);
    case DType::kFloat8E4M3FNUZ:
      return float8_e4m3fnuz::Encode(number, rounding.overflow);
    case DType::kFloat8E5M2:
      return float8_e5m2::Encode(number, rounding.overflow);
    case DType::kFloat8E5M2FNUZ:
      return float8_e5m2fnuz::Encode(number, rounding.overflow);
    default:
      return float8_e8m0fnu::Encode(number, rounding.overflow, rounding.power);
  }
}

// Writes the codes of `n` numbers in a small dtype, one in a byte. A packed integer gets the low
// bits of the part before the point.
inline void CodesOfNumbers(DType dtype, const float* numbers, int64_t n, uint8_t* codes,
                           const SmallRounding& rounding) {
  for (int64_t i = 0; i < n; ++i)
    codes[i] = IsPackedInteger(dtype) ? static_cast<uint8_t>(ConvertElement<int32_t>(numbers[i]))
                                      : SmallFloatCode(dtype, numbers[i], rounding);
}
// Stores codes as elements from `at` on.
inline void StoreCodes(DType dtype, const uint8_t* codes, int64_t at, int64_t n, void* out) {
  if (IsPacked(dtype))
    Pack(codes, BitSize(dtype), at, n, out);
  else
    std::memcpy(static_cast<uint8_t*>(out) + at, codes, static_cast<size_t>(n));
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_SMALL_NUMBERS_HPP_

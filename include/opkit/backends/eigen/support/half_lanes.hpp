// The conversions between float32 and the half types float16 and bfloat16, kLanes numbers at a
// time. Cast and HalfOperator of the "eigen" backend use them.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_LANES_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_LANES_HPP_

#include <bit>
#include <type_traits>

#include "opkit/backends/eigen/support/lanes.hpp"
#include "opkit/core/dtype.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

typedef int32_t Int32Lanes __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef uint32_t UInt32Lanes __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef uint16_t HalfLanes __attribute__((vector_size(kLanes * sizeof(uint16_t))));

// Convert numbers as float16 and bfloat16 do (core/dtype.hpp), to the bit. By integers, so that the
// results are the same on every CPU and do not depend on its treatment of subnormals. By signed
// ones, because AVX2 compares no others.
template <class Half>
void WidenLanes(const HalfLanes& half, Lanes& out) {
  const UInt32Lanes shifted = __builtin_convertvector(half, UInt32Lanes) << 16;
  Int32Lanes bits = std::bit_cast<Int32Lanes>(shifted);
  if constexpr (std::is_same_v<Half, float16>) {
    const Int32Lanes magnitude = (bits >> 16) & 0x7fff;
    Int32Lanes wide = (magnitude << 13) + 0x38000000;
    wide += (magnitude >= 0x7c00) & 0x38000000;  // infinity and NaN
    // A subnormal number is the fraction of 2^-14 without its leading 1.
    const Int32Lanes normal = (magnitude << 13) | 0x38800000;
    const Lanes number = std::bit_cast<Lanes>(normal) - 0x1p-14f;
    const Int32Lanes is_small = magnitude < 0x400;
    bits = (std::bit_cast<Int32Lanes>(number) & is_small) | (wide & ~is_small) | (bits & INT32_MIN);
  }
  out = std::bit_cast<Lanes>(bits);
}
template <class Half>
void NarrowLanes(const Lanes& wide, HalfLanes& out) {
  const Int32Lanes bits = std::bit_cast<Int32Lanes>(wide), magnitude = bits & 0x7fffffff;
  const Int32Lanes is_nan = magnitude > 0x7f800000;
  Int32Lanes result;
  if constexpr (std::is_same_v<Half, bfloat16>) {
    const UInt32Lanes number = std::bit_cast<UInt32Lanes>(wide);
    const UInt32Lanes nearest = number + 0x7fff + ((number >> 16) & 1);
    const Int32Lanes rounded = std::bit_cast<Int32Lanes>(nearest);
    result = (((bits | 0x400000) & is_nan) | (rounded & ~is_nan)) >> 16;
  } else {
    const Int32Lanes rounded = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // For a number below the smallest normal one, the addition rounds the fraction.
    const Lanes aligned = std::bit_cast<Lanes>(magnitude) + 0.5f;
    const Int32Lanes small = std::bit_cast<Int32Lanes>(aligned) - 0x3f000000;
    const Int32Lanes is_small = magnitude < 0x38800000, is_large = magnitude >= 0x477ff000;
    result = (small & is_small) | (rounded & ~(is_small | is_large)) | (is_large & 0x7c00) |
             (is_nan & 0x200) | ((bits >> 16) & 0x8000);
  }
  out = __builtin_convertvector(result, HalfLanes);
}
// Converts `count` elements: calls f(vector, result) for each kLanes of them.
template <class From, class To, class F>
void ConvertLanes(const void* from, void* to, int64_t count, const F& f) {
  constexpr int64_t kFrom = sizeof(From) / kLanes, kTo = sizeof(To) / kLanes;  // of an element
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  From x{};
  To y;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::memcpy(&x, source + i * kFrom, sizeof x);
    f(x, y);
    std::memcpy(target + i * kTo, &y, sizeof y);
  }
  if (i == count) return;
  std::memcpy(&x, source + i * kFrom, static_cast<size_t>((count - i) * kFrom));
  f(x, y);
  std::memcpy(target + i * kTo, &y, static_cast<size_t>((count - i) * kTo));
}
template <class Half>
void WidenElements(const void* from, void* to, int64_t count) {
  ConvertLanes<HalfLanes, Lanes>(from, to, count, WidenLanes<Half>);
}
template <class Half>
void NarrowElements(const void* from, void* to, int64_t count) {
  ConvertLanes<Lanes, HalfLanes>(from, to, count, NarrowLanes<Half>);
}

// Converts `count` elements; the target may not overlap the source.
using HalfConversion = void (*)(const void* from, void* to, int64_t count);

// Returns the conversion between float32 and a half type; null for other types.
inline HalfConversion FindHalfConversion(DType from, DType to) {
  if (to == DType::kFloat32) {
    if (from == DType::kFloat16) return &WidenElements<float16>;
    if (from == DType::kBFloat16) return &WidenElements<bfloat16>;
  }
  if (from == DType::kFloat32) {
    if (to == DType::kFloat16) return &NarrowElements<float16>;
    if (to == DType::kBFloat16) return &NarrowElements<bfloat16>;
  }
  return nullptr;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_LANES_HPP_

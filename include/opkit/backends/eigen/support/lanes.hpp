// Lanes: as many floats as a register of the target CPU holds, by the vector extensions of the
// compilers. Used by the convolutions and pools of the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_LANES_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_LANES_HPP_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include "opkit/backends/eigen/support/eigen.hpp"  // the intrinsics, without warnings
#endif
#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
// Registers for a block of sums; the other registers hold operands.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kSumRegisters = 24;
#else
inline constexpr int kSumRegisters = 12;
#endif

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef float LanesInMemory
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

inline int64_t RoundUpToLanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// Load and Store pass vectors by reference: registers of this width have no common calling
// convention.
__attribute__((always_inline)) inline void Load(const float* from, Lanes& to) {
  to = *reinterpret_cast<const LanesInMemory*>(from);
}
__attribute__((always_inline)) inline void Store(const Lanes& from, float* to) {
  *reinterpret_cast<LanesInMemory*>(to) = from;
}
// Loads `count` elements, at most kLanes. Sets the other elements to 0 and does not read their
// memory.
__attribute__((always_inline)) inline void LoadPart(const float* from, int64_t count, Lanes& to) {
#if defined(__AVX512F__)
  to = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#else
  to = Lanes{};
  std::memcpy(&to, from, static_cast<size_t>(count) * sizeof(float));
#endif
}
// Stores the first `count` elements, at most kLanes.
__attribute__((always_inline)) inline void StorePart(const Lanes& from, int64_t count, float* to) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), from);
#else
  std::memcpy(to, &from, static_cast<size_t>(count) * sizeof(float));
#endif
}

// Sets `result` to the larger element of each pair, but leaves it if either element is a NaN.
__attribute__((always_inline)) inline void TakeLarger(const Lanes& value, Lanes& result) {
#if defined(__AVX512F__)
  result = _mm512_max_ps(value, result);
#elif defined(__AVX__)
  result = _mm256_max_ps(value, result);
#elif defined(__SSE2__)
  result = _mm_max_ps(value, result);
#else
  result = value > result ? value : result;
#endif
}

// Copies to[i] = from[i * stride] for i in [0, count). May read the source elements between these,
// but none behind the last. May write up to kLanes - 1 elements behind the last target.
inline void CopyStrided(const float* from, int64_t stride, int64_t count, float* to) {
  int64_t i = 0;
  Lanes low, high;
  if (stride == 1) {
    for (; i + kLanes <= count; i += kLanes) {
      Load(from + i, low);
      Store(low, to + i);
    }
    if (i == count) return;
    LoadPart(from + i, count - i, low);
    Store(low, to + i);
    return;
  }
  if (stride == 2) {
    auto take_even = [&]<size_t... kEven>(std::index_sequence<kEven...>) {
      low = __builtin_shufflevector(low, high, static_cast<int>(2 * kEven)...);
    };
    for (; i + kLanes < count; i += kLanes) {  // does not read behind the last element
      Load(from + 2 * i, low);
      Load(from + 2 * i + kLanes, high);
      take_even(std::make_index_sequence<kLanes>());
      Store(low, to + i);
    }
#if defined(__AVX512F__)
    const int64_t left = 2 * (count - i) - 1;
    LoadPart(from + 2 * i, (std::min)(left, int64_t{kLanes}), low);
    LoadPart(from + 2 * i + kLanes, (std::max)(left - kLanes, int64_t{0}), high);
    take_even(std::make_index_sequence<kLanes>());
    Store(low, to + i);
    return;
#endif
  }
  for (; i < count; ++i) to[i] = from[i * stride];
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_LANES_HPP_

// BlockedProduct: a product of float32 rows with a matrix of 2-bit, 4-bit or 8-bit integers that
// are scaled block by block. Some rows of the matrix at a time become float32 numbers in the cache,
// and all rows of the other factor are multiplied with them, so that the matrix stays as small in
// memory as it is stored. com.microsoft.MatMulNBits uses it.
#ifndef OPKIT_OPS_QUANTIZED_BLOCKED_PRODUCT_HPP_
#define OPKIT_OPS_QUANTIZED_BLOCKED_PRODUCT_HPP_

#include <algorithm>
#include <cstring>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// How the integers of a matrix [n, k] lie in memory. Each row is divided into blocks of `block`
// numbers, a multiple of 16, of `bits` bits each. A block begins at a byte; the lowest bits of a
// byte come first.
struct BlockedLayout {
  int64_t n, k, bits, block, blocks;

  int64_t BlockBytes() const { return block * bits / 8; }
  int32_t At(const uint8_t* bytes, int64_t i) const {
    const int64_t bit = i * bits;
    return (bytes[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  }
};

// The innermost loops, which exist for several kinds of machine.
struct BlockedLoops {
  // Writes (number - zero) * scale for `count` numbers, a multiple of 16, from a byte on.
  void (*unpack)(const uint8_t* from, int64_t count, int64_t bits, float zero, float scale,
                 float* to);
  // Adds to sums[r * 4 + c] the dot product of row r of `a`, `a_step` elements apart, and row c of
  // `b`, `b_step` elements apart, both of `count` elements. There are 1 to 4 rows of `a`, and 4 of
  // `b`.
  void (*multiply)(const float* a, int64_t a_step, int64_t rows, const float* b, int64_t b_step,
                   int64_t count, float* sums);
};

inline void UnpackPlain(const uint8_t* from, int64_t count, int64_t bits, float zero, float scale,
                        float* to) {
  const BlockedLayout layout{0, 0, bits, 0, 0};
  for (int64_t i = 0; i < count; ++i)
    to[i] = (static_cast<float>(layout.At(from, i)) - zero) * scale;
}
inline void MultiplyPlain(const float* a, int64_t a_step, int64_t rows, const float* b,
                          int64_t b_step, int64_t count, float* sums) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < 4; ++column) {
      const float *x = a + row * a_step, *y = b + column * b_step;
      constexpr int64_t kLanes = 16;  // which a compiler can keep in registers
      float lanes[kLanes] = {};
      int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * y[i + lane];
      float sum = 0;
      for (; i < count; ++i) sum += x[i] * y[i];
      for (const float lane : lanes) sum += lane;
      sums[row * 4 + column] += sum;
    }
}

#if defined(__x86_64__)
// The compilers' own vector types, because <immintrin.h> would leave thousands of macros.
typedef float BlockedFloats16 __attribute__((vector_size(64)));
typedef float BlockedFloats8 __attribute__((vector_size(32)));
typedef float BlockedFloats4 __attribute__((vector_size(16)));
typedef int32_t BlockedInts16 __attribute__((vector_size(64)));
typedef uint32_t BlockedNumbers16 __attribute__((vector_size(64)));
#define OPKIT_BLOCKED_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

OPKIT_BLOCKED_TARGET
inline void UnpackAvx512(const uint8_t* from, int64_t count, int64_t bits, float zero, float scale,
                         float* to) {
  constexpr BlockedNumbers16 kFours = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
  constexpr BlockedNumbers16 kEights = {0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24};
  constexpr BlockedInts16 kIsEven = {-1, -1, -1, -1, 0, 0, 0, 0, -1, -1, -1, -1};
  // Lanes whose bits lie in the first half of the bytes, and those in an even group of four bytes.
  constexpr BlockedInts16 kIsLow = {-1, -1, -1, -1, -1, -1, -1, -1};
  constexpr BlockedNumbers16 kTwos = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
  for (int64_t i = 0; i < count; i += 16, from += bits * 2) {
    BlockedNumbers16 numbers;
    if (bits == 4) {
      uint32_t low, high;
      std::memcpy(&low, from, sizeof(low));
      std::memcpy(&high, from + 4, sizeof(high));
      numbers = (BlockedNumbers16{} + low) >> kFours;
      numbers = (kIsLow ? numbers : (BlockedNumbers16{} + high) >> kFours) & 15;
    } else if (bits == 2) {
      uint32_t all;
      std::memcpy(&all, from, sizeof(all));
      numbers = (BlockedNumbers16{} + all) >> kTwos & 3;
    } else {
      uint32_t fours[4];
      std::memcpy(fours, from, sizeof(fours));
      const BlockedNumbers16 low =
          kIsEven ? BlockedNumbers16{} + fours[0] : BlockedNumbers16{} + fours[1];
      const BlockedNumbers16 high =
          kIsEven ? BlockedNumbers16{} + fours[2] : BlockedNumbers16{} + fours[3];
      numbers = (kIsLow ? low : high) >> kEights & 255;
    }
    const BlockedFloats16 floats =
        (__builtin_convertvector((BlockedInts16)numbers, BlockedFloats16) - zero) * scale;
    std::memcpy(to + i, &floats, sizeof(floats));
  }
}

// The loop over rows must be unrolled, or the sums lie in memory.
template <int64_t kRows>
OPKIT_BLOCKED_TARGET void MultiplyRowsAvx512(const float* a, int64_t a_step, const float* b,
                                             int64_t b_step, int64_t count, float* to) {
  BlockedFloats16 sums[kRows][4] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    BlockedFloats16 b0, b1, b2, b3;
    std::memcpy(&b0, b + i, sizeof(b0));
    std::memcpy(&b1, b + b_step + i, sizeof(b1));
    std::memcpy(&b2, b + 2 * b_step + i, sizeof(b2));
    std::memcpy(&b3, b + 3 * b_step + i, sizeof(b3));
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      BlockedFloats16 row;
      std::memcpy(&row, a + r * a_step + i, sizeof(row));
      sums[r][0] += row * b0;
      sums[r][1] += row * b1;
      sums[r][2] += row * b2;
      sums[r][3] += row * b3;
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r) {
    BlockedFloats4 fours[4];  // a column each
#pragma GCC unroll 4
    for (int64_t c = 0; c < 4; ++c) {
      const BlockedFloats16 all = sums[r][c];
      const BlockedFloats8 half = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
                                  __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
      fours[c] = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                 __builtin_shufflevector(half, half, 4, 5, 6, 7);
    }
    // Two columns in a vector, and then four.
    const BlockedFloats4 first = __builtin_shufflevector(fours[0], fours[1], 0, 1, 4, 5) +
                                 __builtin_shufflevector(fours[0], fours[1], 2, 3, 6, 7);
    const BlockedFloats4 second = __builtin_shufflevector(fours[2], fours[3], 0, 1, 4, 5) +
                                  __builtin_shufflevector(fours[2], fours[3], 2, 3, 6, 7);
    BlockedFloats4 sum = __builtin_shufflevector(first, second, 0, 2, 4, 6) +
                         __builtin_shufflevector(first, second, 1, 3, 5, 7);
    for (int64_t rest = i; rest < count; ++rest) {
      const BlockedFloats4 column = {b[rest], b[b_step + rest], b[2 * b_step + rest],
                                     b[3 * b_step + rest]};
      sum += column * a[r * a_step + rest];
    }
    BlockedFloats4 old;
    std::memcpy(&old, to + r * 4, sizeof(old));
    sum += old;
    std::memcpy(to + r * 4, &sum, sizeof(sum));
  }
}
inline void MultiplyAvx512(const float* a, int64_t a_step, int64_t rows, const float* b,
                           int64_t b_step, int64_t count, float* sums) {
  constexpr void (*kLoops[])(const float*, int64_t, const float*, int64_t, int64_t, float*) = {
      &MultiplyRowsAvx512<1>, &MultiplyRowsAvx512<2>, &MultiplyRowsAvx512<3>,
      &MultiplyRowsAvx512<4>};
  kLoops[rows - 1](a, a_step, b, b_step, count, sums);
}
#undef OPKIT_BLOCKED_TARGET
#endif

// The loops that this machine can run, best first.
inline std::vector<BlockedLoops> AllBlockedLoops() {
  std::vector<BlockedLoops> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    loops.push_back({&UnpackAvx512, &MultiplyAvx512});
#endif
  loops.push_back({&UnpackPlain, &MultiplyPlain});
  return loops;
}

// Calls store(row, column, sum) with each element of the product A B', on several threads. A is
// dense, [rows, layout.k]. factors(column, block, zero, scale) sets the zero point and the scale of
// a block of a row of B.
template <class Factors, class Store>
void BlockedProduct(const BlockedLayout& layout, const float* a, int64_t rows, const uint8_t* bytes,
                    Factors&& factors, Store&& store, const BlockedLoops& loops) {
  // The columns of a panel, which are rows of B, and those that are multiplied at once.
  constexpr int64_t kColumns = 16, kFour = 4;
  constexpr int64_t kPart = 512;  // numbers of a row at a time: a panel takes 32 KiB
  const int64_t n = layout.n, k = layout.k, row_bytes = layout.blocks * layout.BlockBytes();
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = kWork / (k * (rows + 4) * kColumns) + 1;
  ParallelForRange((n + kColumns - 1) / kColumns, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> panel(Index(kColumns * kPart)), sums(Index(rows * kColumns));
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kColumns, columns = (std::min)(kColumns, n - first);
      std::fill(sums.begin(), sums.end(), 0.f);
      for (int64_t from = 0; from < k; from += kPart) {
        const int64_t last = (std::min)(from + kPart, layout.blocks * layout.block);
        for (int64_t c = 0; c < columns; ++c) {
          const uint8_t* row = bytes + (first + c) * row_bytes;
          int64_t block = from / layout.block;
          for (int64_t i = from; i < last; ++block) {
            const int64_t count = (std::min)((block + 1) * layout.block, last) - i;
            float zero = 0, scale = 0;
            factors(first + c, block, zero, scale);
            loops.unpack(row + i * layout.bits / 8, count, layout.bits, zero, scale,
                         panel.data() + c * kPart + i - from);
            i += count;
          }
        }
        const int64_t count = (std::min)(k - from, kPart);
        for (int64_t row = 0; row < rows; row += kFour)
          for (int64_t c = 0; c < columns; c += kFour)
            loops.multiply(a + row * k + from, k, (std::min)(kFour, rows - row),
                           panel.data() + c * kPart, kPart, count,
                           sums.data() + c * rows + row * kFour);
      }
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t c = 0; c < columns; ++c)
          store(row, first + c, sums[Index(c / kFour * kFour * rows + row * kFour + c % kFour)]);
    }
  });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BLOCKED_PRODUCT_HPP_

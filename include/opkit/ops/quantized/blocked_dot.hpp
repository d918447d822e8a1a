// BlockedDot: products of float32 rows with a matrix of 2-bit, 4-bit or 8-bit integers that are
// scaled block by block, on CPUs with AVX-512. The integers are unpacked in registers and not
// stored, so a few rows take little more time than reading the matrix. The rows stay float32, or,
// with AVX512-VNNI, become 8-bit integers with a scale for each block. com.microsoft.MatMulNBits
// uses it.
#ifndef OPKIT_OPS_QUANTIZED_BLOCKED_DOT_HPP_
#define OPKIT_OPS_QUANTIZED_BLOCKED_DOT_HPP_

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/quantized/blocked_product.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The row of B that makes a column of the result.
struct BlockedColumn {
  static constexpr int64_t kPadding = 16;

  const uint8_t* bytes;
  const uint8_t* last;  // the last 64 bytes, which are elsewhere if the row ends before their end
  // The numbers of its blocks. Further kPadding numbers are readable, too.
  const float* scales;
  const float* zeros;  // null: each is 2^(bits - 1)

  // Returns the 64 bytes of chunk c of `chunks`.
  const uint8_t* Chunk(int64_t c, int64_t chunks) const {
    return c + 1 < chunks ? bytes + c * 64 : last;
  }
};

// Numbers from an address that is a multiple of 64 on, so that no vector lies in two cache lines.
template <class T>
class AlignedNumbers {
 public:
  void resize(int64_t count) {
    lines_.resize((Index(count) * sizeof(T) + sizeof(Line) - 1) / sizeof(Line));
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  std::vector<Line> lines_;
};

// Rows of A in the order in which the loops read them. A chunk is the numbers of 64 bytes of a row
// of B, of which each of 16 lanes has four bytes. A lane lies in one block.
struct BlockedRows {
  static constexpr int64_t kLanes = 16;

  int64_t chunks = 0;
  int block_shift = 0;                 // number i of a row lies in block i >> block_shift
  int32_t block_of_lane[kLanes] = {};  // counted from the first block of a chunk
  // Either `floats` or `bytes` has the numbers.
  AlignedNumbers<float> floats;
  AlignedNumbers<int8_t> bytes;
  // The sum of the numbers of each lane, and the scale of its bytes.
  AlignedNumbers<float> sums, scales;

  // The numbers of a lane, and of a chunk.
  static constexpr int64_t OfLane(int64_t bits) { return 32 / bits; }
  static constexpr int64_t OfChunk(int64_t bits) { return kLanes * OfLane(bits); }
};

// Stores the dot products of rows [row, row + count) and four columns: that of row r and column c
// at sums[r * 4 + c]. The count is at most kMostDotRows.
using BlockedDotLoop = void (*)(const BlockedRows& a, int64_t row, int64_t count,
                                const BlockedColumn* columns, float* sums);
inline constexpr int64_t kMostDotRows = 4, kDotColumns = 4;

// Writes the numbers of a chunk of A in the order of the lanes.
struct BlockedReorder {
  void (*floats)(const float* from, float* to, float* sums) = nullptr;
  // Rounds numbers / scale. `scales` has one for each lane, `run` neighbouring numbers share one.
  void (*bytes)(const float* from, int64_t run, const float* scales, int8_t* to,
                float* sums) = nullptr;
  // Returns the largest |x|, NaN if there is one.
  float (*largest)(const float* x, int64_t n) = nullptr;
};

#if defined(__x86_64__)
// The compilers' own vector types, because <immintrin.h> would leave thousands of macros.
typedef float BlockedFloats16 __attribute__((vector_size(64)));
typedef float BlockedFloats8 __attribute__((vector_size(32)));
typedef float BlockedFloats4 __attribute__((vector_size(16)));
typedef int32_t BlockedInts16 __attribute__((vector_size(64)));
typedef uint32_t BlockedNumbers16 __attribute__((vector_size(64)));
#define OPKIT_BLOCKED_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define OPKIT_BLOCKED_VNNI_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,avx512vnni")))
#if defined(__clang__)
#define OPKIT_BLOCKED_VNNI __builtin_ia32_vpdpbusd512
#define OPKIT_BLOCKED_LOOKUP __builtin_ia32_permvarsf512
#else
#define OPKIT_BLOCKED_VNNI __builtin_ia32_vpdpbusd_v16si
#define OPKIT_BLOCKED_LOOKUP __builtin_shuffle
#endif

template <int kBits>
OPKIT_BLOCKED_TARGET void ReorderFloats(const float* from, float* to, float* sums) {
  constexpr int64_t kLanes = BlockedRows::kLanes, kOfLane = BlockedRows::OfLane(kBits);
  BlockedFloats16 sum = {};
  for (int64_t j = 0; j < kOfLane; ++j, to += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) to[lane] = from[lane * kOfLane + j];
    BlockedFloats16 numbers;
    std::memcpy(&numbers, to, sizeof(numbers));
    sum += numbers;
  }
  std::memcpy(sums, &sum, sizeof(sum));
}
template <int kBits>
OPKIT_BLOCKED_VNNI_TARGET void ReorderBytes(const float* from, int64_t run, const float* scales,
                                            int8_t* to, float* sums) {
  constexpr int64_t kOfLane = BlockedRows::OfLane(kBits), kChunk = BlockedRows::OfChunk(kBits);
  constexpr int64_t kParts = 8 / kBits, kStep = 16;
  int8_t bytes[kChunk];
  for (int64_t first = 0; first < kChunk; first += run) {
    const float scale = scales[first / kOfLane], factor = scale > 0 ? 1 / scale : 0;
    for (int64_t at = first; at < first + run; at += kStep)
      for (int64_t i = at; i < at + kStep; ++i)  // this addition rounds as in Quantize
        bytes[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(from[i] * factor + 0x1.8p23f));
  }
  BlockedInts16 sum = {};
  for (int64_t part = 0; part < kParts; ++part, to += 64) {
    for (int64_t i = 0; i < 64; ++i) to[i] = bytes[i * kParts + part];
    BlockedInts16 numbers;
    std::memcpy(&numbers, to, sizeof(numbers));
    sum = (BlockedInts16)OPKIT_BLOCKED_VNNI(sum, BlockedInts16{} + 0x01010101, numbers);
  }
  const BlockedFloats16 lanes = __builtin_convertvector(sum, BlockedFloats16);
  std::memcpy(sums, &lanes, sizeof(lanes));
}
OPKIT_BLOCKED_TARGET
inline float LargestOf(const float* x, int64_t n) {
  // Without their sign, the bits of floats are in the order of the numbers, and NaN is above them.
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i)
    most = (std::max)(most, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(most);
}

// Returns the sum of the lanes of each of four vectors.
OPKIT_BLOCKED_TARGET
inline BlockedFloats4 SumsOfLanes(const BlockedFloats16 (&all)[4]) {
  BlockedFloats4 fours[4];
#pragma GCC unroll 4
  for (int64_t c = 0; c < 4; ++c) {
    const BlockedFloats8 eight =
        __builtin_shufflevector(all[c], all[c], 0, 1, 2, 3, 4, 5, 6, 7) +
        __builtin_shufflevector(all[c], all[c], 8, 9, 10, 11, 12, 13, 14, 15);
    fours[c] = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
               __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  }
  // Two columns in a vector, and then four.
  const BlockedFloats4 first = __builtin_shufflevector(fours[0], fours[1], 0, 1, 4, 5) +
                               __builtin_shufflevector(fours[0], fours[1], 2, 3, 6, 7);
  const BlockedFloats4 second = __builtin_shufflevector(fours[2], fours[3], 0, 1, 4, 5) +
                                __builtin_shufflevector(fours[2], fours[3], 2, 3, 6, 7);
  return __builtin_shufflevector(first, second, 0, 2, 4, 6) +
         __builtin_shufflevector(first, second, 1, 3, 5, 7);
}

// Both loops keep kRows * kColumns sums of 16 lanes in registers, and as many of a chunk. They give
// the lanes of the sums to SumsOfLanes.
template <int kBits, int64_t kRows, int64_t kColumns>
OPKIT_BLOCKED_TARGET void DotFloats(const BlockedRows& a, int64_t row, const BlockedColumn* columns,
                                    BlockedFloats16 (*to)[4]) {
  constexpr int64_t kOfLane = BlockedRows::OfLane(kBits), kChunk = BlockedRows::OfChunk(kBits);
  const int64_t chunks = a.chunks, width = chunks * kChunk, lanes = chunks * BlockedRows::kLanes;
  const float *rows = a.floats.data() + row * width, *lane_sums = a.sums.data() + row * lanes;
  const int shift = a.block_shift;
  BlockedInts16 block_of_lane;
  std::memcpy(&block_of_lane, a.block_of_lane, sizeof(block_of_lane));
  const bool has_zeros = columns->zeros;
  const float middle = has_zeros ? 0 : 1 << (kBits - 1);
  BlockedFloats16 table;  // of what the lowest bits of a lane mean
  for (int i = 0; i < 16; ++i) table[i] = static_cast<float>(i & ((1 << kBits) - 1)) - middle;
  BlockedFloats16 sums[kRows][kColumns] = {};
  for (int64_t c = 0; c < chunks; ++c, rows += kChunk, lane_sums += BlockedRows::kLanes) {
    const int64_t block = c * kChunk >> shift;
    BlockedNumbers16 four_bytes[kColumns];
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column)
      std::memcpy(&four_bytes[column], columns[column].Chunk(c, chunks), 64);
    BlockedFloats16 chunk[kRows][kColumns] = {};
#pragma GCC unroll 16
    for (int64_t j = 0; j < kOfLane; ++j)
#pragma GCC unroll 4
      for (int64_t column = 0; column < kColumns; ++column) {
        const auto lowest = (BlockedInts16)(four_bytes[column] >> static_cast<uint32_t>(kBits * j));
        BlockedFloats16 numbers;
        if constexpr (kBits == 8)
          numbers = __builtin_convertvector(lowest & 255, BlockedFloats16) - middle;
        else
          numbers = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(table, lowest);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          BlockedFloats16 x;
          std::memcpy(&x, rows + r * width + j * BlockedRows::kLanes, sizeof(x));
          chunk[r][column] += numbers * x;
        }
      }
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column) {
      BlockedFloats16 scales;
      std::memcpy(&scales, columns[column].scales + block, sizeof(scales));
      scales = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(scales, block_of_lane);
      if (has_zeros) {
        BlockedFloats16 zeros;
        std::memcpy(&zeros, columns[column].zeros + block, sizeof(zeros));
        zeros = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(zeros, block_of_lane);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          BlockedFloats16 x;
          std::memcpy(&x, lane_sums + r * lanes, sizeof(x));
          chunk[r][column] -= zeros * x;
        }
      }
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) sums[r][column] += chunk[r][column] * scales;
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column) to[r][column] = sums[r][column];
}

template <int kBits, int64_t kRows, int64_t kColumns>
OPKIT_BLOCKED_VNNI_TARGET void DotBytes(const BlockedRows& a, int64_t row,
                                        const BlockedColumn* columns, BlockedFloats16 (*to)[4]) {
  constexpr int64_t kParts = 8 / kBits, kChunk = BlockedRows::OfChunk(kBits);
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  const int64_t chunks = a.chunks, width = chunks * kChunk, lanes = chunks * BlockedRows::kLanes;
  const int8_t* rows = a.bytes.data() + row * width;
  const float *lane_sums = a.sums.data() + row * lanes, *row_scales = a.scales.data() + row * lanes;
  const int shift = a.block_shift;
  BlockedInts16 block_of_lane;
  std::memcpy(&block_of_lane, a.block_of_lane, sizeof(block_of_lane));
  const bool has_zeros = columns->zeros;
  BlockedFloats16 sums[kRows][kColumns] = {};
  for (int64_t c = 0; c < chunks;
       ++c, rows += kChunk, lane_sums += BlockedRows::kLanes, row_scales += BlockedRows::kLanes) {
    const int64_t block = c * kChunk >> shift;
    BlockedNumbers16 four_bytes[kColumns];
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column)
      std::memcpy(&four_bytes[column], columns[column].Chunk(c, chunks), 64);
    BlockedInts16 chunk[kRows][kColumns] = {};
#pragma GCC unroll 4
    for (int64_t part = 0; part < kParts; ++part)
#pragma GCC unroll 4
      for (int64_t column = 0; column < kColumns; ++column) {
        const auto numbers =
            (BlockedInts16)(four_bytes[column] >> static_cast<uint32_t>(kBits * part) & kMask);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          BlockedInts16 x;
          std::memcpy(&x, rows + r * width + part * 64, sizeof(x));
          chunk[r][column] = (BlockedInts16)OPKIT_BLOCKED_VNNI(chunk[r][column], numbers, x);
        }
      }
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column) {
      BlockedFloats16 scales, zeros = BlockedFloats16{} + static_cast<float>(1 << (kBits - 1));
      std::memcpy(&scales, columns[column].scales + block, sizeof(scales));
      scales = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(scales, block_of_lane);
      if (has_zeros) {
        std::memcpy(&zeros, columns[column].zeros + block, sizeof(zeros));
        zeros = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(zeros, block_of_lane);
      }
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        BlockedFloats16 x, by;
        std::memcpy(&x, lane_sums + r * lanes, sizeof(x));
        std::memcpy(&by, row_scales + r * lanes, sizeof(by));
        sums[r][column] +=
            (__builtin_convertvector(chunk[r][column], BlockedFloats16) - zeros * x) *
            (scales * by);
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t column = 0; column < kColumns; ++column) to[r][column] = sums[r][column];
}

// Calls a loop for four columns: all at once if that keeps the sums in registers.
template <int kBits, bool kAsBytes, int64_t kRows>
OPKIT_BLOCKED_TARGET void DotRows(const BlockedRows& a, int64_t row, const BlockedColumn* columns,
                                  float* to) {
  constexpr int64_t kColumns = kRows == 1 ? 4 : 2;
  BlockedFloats16 lanes[kRows][4];
  for (int64_t column = 0; column < 4; column += kColumns) {
    auto* const part = reinterpret_cast<BlockedFloats16(*)[4]>(&lanes[0][column]);
    if constexpr (kAsBytes)
      DotBytes<kBits, kRows, kColumns>(a, row, columns + column, part);
    else
      DotFloats<kBits, kRows, kColumns>(a, row, columns + column, part);
  }
  for (int64_t r = 0; r < kRows; ++r) {
    const BlockedFloats4 sums = SumsOfLanes(lanes[r]);
    std::memcpy(to + r * 4, &sums, sizeof(sums));
  }
}
template <int kBits, bool kAsBytes>
void DotAnyRows(const BlockedRows& a, int64_t row, int64_t count, const BlockedColumn* columns,
                float* sums) {
  constexpr void (*kLoops[])(const BlockedRows&, int64_t, const BlockedColumn*, float*) = {
      &DotRows<kBits, kAsBytes, 1>, &DotRows<kBits, kAsBytes, 2>, &DotRows<kBits, kAsBytes, 3>,
      &DotRows<kBits, kAsBytes, 4>};
  kLoops[count - 1](a, row, columns, sums);
}
// Writes numbers [from, from + count) of 16 rows of B as floats to panel[i * 32 + row].
template <int kBits>
OPKIT_BLOCKED_TARGET void UnpackColumns(const BlockedColumn* columns, int block_shift, int64_t from,
                                        int64_t count, float* panel) {
  constexpr int64_t kOfLane = BlockedRows::OfLane(kBits);
  BlockedFloats16 table, scales = {};
  for (int i = 0; i < 16; ++i) table[i] = static_cast<float>(i & ((1 << kBits) - 1));
  BlockedFloats16 zeros = BlockedFloats16{} + static_cast<float>(1 << (kBits - 1));
  int64_t last_block = -1;
  for (int64_t at = from; at < from + count; at += kOfLane) {
    const int64_t block = at >> block_shift;
    if (block != last_block) {
      float numbers[16];
      for (int64_t c = 0; c < 16; ++c) numbers[c] = columns[c].scales[block];
      std::memcpy(&scales, numbers, sizeof(scales));
      if (columns->zeros) {
        for (int64_t c = 0; c < 16; ++c) numbers[c] = columns[c].zeros[block];
        std::memcpy(&zeros, numbers, sizeof(zeros));
      }
      last_block = block;
    }
    uint32_t words[16];
    for (int64_t c = 0; c < 16; ++c)
      std::memcpy(&words[c], columns[c].bytes + at / kOfLane * 4, sizeof(uint32_t));
    BlockedNumbers16 four_bytes;
    std::memcpy(&four_bytes, words, sizeof(four_bytes));
#pragma GCC unroll 16
    for (int64_t j = 0; j < kOfLane; ++j, panel += 32) {
      const auto lowest = (BlockedInts16)(four_bytes >> static_cast<uint32_t>(kBits * j));
      BlockedFloats16 numbers;
      if constexpr (kBits == 8)
        numbers = __builtin_convertvector(lowest & 255, BlockedFloats16);
      else
        numbers = (BlockedFloats16)OPKIT_BLOCKED_LOOKUP(table, lowest);
      numbers = (numbers - zeros) * scales;
      std::memcpy(panel, &numbers, sizeof(numbers));
    }
  }
}
// Adds the products of rows of A, `step` elements apart, with a panel [count, 32] to sums
// [kRows, 32].
template <int64_t kRows>
OPKIT_BLOCKED_TARGET void MultiplyPanelRows(const float* a, int64_t step, const float* panel,
                                            int64_t count, float* to) {
  BlockedFloats16 sums[kRows][2];
  std::memcpy(sums, to, sizeof(sums));
  for (int64_t i = 0; i < count; ++i, panel += 32) {
    BlockedFloats16 low, high;
    std::memcpy(&low, panel, sizeof(low));
    std::memcpy(&high, panel + 16, sizeof(high));
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const BlockedFloats16 x = BlockedFloats16{} + a[r * step + i];
      sums[r][0] += x * low;
      sums[r][1] += x * high;
    }
  }
  std::memcpy(to, sums, sizeof(sums));
}
inline void MultiplyPanels(const float* a, int64_t step, int64_t rows, const float* panel,
                           int64_t count, float* sums) {
  constexpr void (*kLoops[])(const float*, int64_t, const float*, int64_t, float*) = {
      &MultiplyPanelRows<1>, &MultiplyPanelRows<2>, &MultiplyPanelRows<3>, &MultiplyPanelRows<4>,
      &MultiplyPanelRows<5>, &MultiplyPanelRows<6>, &MultiplyPanelRows<7>, &MultiplyPanelRows<8>};
  kLoops[rows - 1](a, step, panel, count, sums);
}
#undef OPKIT_BLOCKED_TARGET
#undef OPKIT_BLOCKED_VNNI_TARGET
#undef OPKIT_BLOCKED_VNNI
#undef OPKIT_BLOCKED_LOOKUP
#endif

// The loops for integers of `bits` bits. A loop is null if this machine cannot run it.
struct BlockedDotLoops {
  BlockedDotLoop floats = nullptr, bytes = nullptr;
  BlockedReorder reorder = {};
  // For many rows of float32, see BlockedPanels. `multiply` takes at most 8 rows.
  void (*unpack)(const BlockedColumn* columns, int block_shift, int64_t from, int64_t count,
                 float* panel) = nullptr;
  void (*multiply)(const float* a, int64_t step, int64_t rows, const float* panel, int64_t count,
                   float* sums) = nullptr;

  explicit BlockedDotLoops([[maybe_unused]] int64_t bits) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      bits == 2 ? Fill<2>() : bits == 4 ? Fill<4>() : Fill<8>();
  }

 private:
  template <int kBits>
  void Fill() {
    reorder.floats = &ReorderFloats<kBits>;
    floats = &DotAnyRows<kBits, false>;
    unpack = &UnpackColumns<kBits>;
    multiply = &MultiplyPanels;
    if (!__builtin_cpu_supports("avx512vnni")) return;
    reorder.largest = &LargestOf;
    reorder.bytes = &ReorderBytes<kBits>;
    bytes = &DotAnyRows<kBits, true>;
#endif
  }
};

// Puts dense rows [rows, layout.k] in the order of the loops, into memory that `out` may have from
// a call before. With `as_bytes`, each block of a row is rounded to 255 steps, of which the outer
// ones are its largest |x|.
inline void ReorderRows(const BlockedLayout& layout, const float* a, int64_t rows, bool as_bytes,
                        const BlockedReorder& reorder, BlockedRows& out) {
  const int64_t bits = layout.bits, k = layout.k, of_lane = BlockedRows::OfLane(bits);
  const int64_t chunk = BlockedRows::OfChunk(bits), block = layout.block;
  out.chunks = (k + chunk - 1) / chunk;
  out.block_shift = std::countr_zero(static_cast<uint64_t>(block));
  for (int64_t lane = 0; lane < BlockedRows::kLanes; ++lane)
    out.block_of_lane[lane] = static_cast<int32_t>(lane * of_lane >> out.block_shift);
  const int64_t width = out.chunks * chunk, lanes = out.chunks * BlockedRows::kLanes;
  out.sums.resize(rows * lanes);
  if (as_bytes) {
    out.scales.resize(rows * lanes);
    out.bytes.resize(rows * width);
  } else {
    out.floats.resize(rows * width);
  }
  constexpr int64_t kWork = 1 << 14;  // numbers that are worth a thread
  ParallelForRange(rows, kWork / width + 1, [&](int64_t begin, int64_t end) {
    std::vector<float> padded(Index(width));
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(a + row * k, k, padded.data());
      float* sums = out.sums.data() + row * lanes;
      float* scales = as_bytes ? out.scales.data() + row * lanes : nullptr;
      for (int64_t first = 0; as_bytes && first < width; first += block) {
        const int64_t last = (std::min)(first + block, width);
        std::fill(scales + first / of_lane, scales + last / of_lane,
                  reorder.largest(padded.data() + first, last - first) / 127);
      }
      for (int64_t c = 0; c < out.chunks; ++c) {
        const float* from = padded.data() + c * chunk;
        const int64_t at = row * width + c * chunk, lane = c * BlockedRows::kLanes;
        if (as_bytes)
          reorder.bytes(from, (std::min)(block, chunk), scales + lane, out.bytes.data() + at,
                        sums + lane);
        else
          reorder.floats(from, out.floats.data() + at, sums + lane);
      }
    }
  });
}

// Calls store(row, column, sum) with each element of the product A B', on several threads. `scales`
// has one number for each block of B. fill_zeros(column, zeros) writes the zero points of a row of
// B; without `has_zeros` they are 2^(bits - 1).
template <class FillZeros, class Store>
void BlockedDot(const BlockedLayout& layout, const BlockedRows& a, int64_t rows,
                const uint8_t* bytes, const float* scales, bool has_zeros, FillZeros&& fill_zeros,
                Store&& store, BlockedDotLoop loop) {
  constexpr int64_t kColumns = 16;  // whose bytes stay in the cache for all rows
  constexpr int64_t kPadding = BlockedColumn::kPadding;
  const int64_t n = layout.n, blocks = layout.blocks, row_bytes = blocks * layout.BlockBytes();
  const int64_t whole = (a.chunks - 1) * 64, rest = (std::min)(row_bytes - whole, int64_t{64});
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = kWork / (layout.k * (rows + 1) * kColumns) + 1;
  ParallelForRange((n + kColumns - 1) / kColumns, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> padded_scales(Index(kColumns * (blocks + kPadding)));
    std::vector<float> zeros(has_zeros ? padded_scales.size() : 0);
    std::vector<uint8_t> last(Index(kColumns * 64));
    BlockedColumn columns[kColumns];
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kColumns, count = (std::min)(kColumns, n - first);
      for (int64_t c = 0; c < count; ++c) {
        const int64_t column = first + c, padded_at = c * (blocks + kPadding);
        BlockedColumn& to = columns[c];
        to = {bytes + column * row_bytes, bytes + column * row_bytes + whole,
              scales + column * blocks, nullptr};
        if (rest < 64) to.last = std::copy_n(to.last, rest, last.data() + c * 64) - rest;
        if (rest < 64 || (column + 1) * blocks + kPadding > n * blocks)
          to.scales = std::copy_n(to.scales, blocks, padded_scales.data() + padded_at) - blocks;
        if (!has_zeros) continue;
        fill_zeros(column, zeros.data() + padded_at);
        to.zeros = zeros.data() + padded_at;
      }
      // The loops multiply four columns, so the last one may take several places.
      std::fill(columns + count, columns + kColumns, columns[count - 1]);
      float sums[kMostDotRows * kDotColumns];
      for (int64_t row = 0; row < rows; row += kMostDotRows)
        for (int64_t c = 0; c < count; c += kDotColumns) {
          const int64_t at_once = (std::min)(kMostDotRows, rows - row);
          loop(a, row, at_once, columns + c, sums);
          for (int64_t r = 0; r < at_once; ++r)
            for (int64_t i = c; i < (std::min)(c + kDotColumns, count); ++i)
              store(row + r, first + i, sums[r * kDotColumns + i - c]);
        }
    }
  });
}

// Does the same for dense float32 rows [rows, layout.k]: unpacks 32 columns of B at a time, for
// many rows of A.
template <class FillZeros, class Store>
void BlockedPanels(const BlockedLayout& layout, const float* a, int64_t rows, const uint8_t* bytes,
                   const float* scales, bool has_zeros, FillZeros&& fill_zeros, Store&& store,
                   const BlockedDotLoops& loops) {
  constexpr int64_t kColumns = 32, kPart = 128, kRows = 128, kAtOnce = 8;
  const int64_t n = layout.n, k = layout.k, blocks = layout.blocks;
  const int block_shift = std::countr_zero(static_cast<uint64_t>(layout.block));
  constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
  const int64_t grain = kWork / (k * (rows + 4) * kColumns) + 1;
  ParallelForRange((n + kColumns - 1) / kColumns, grain, [&](int64_t begin, int64_t end) {
    AlignedNumbers<float> panel, sums;
    panel.resize(kPart * kColumns);
    sums.resize(kRows * kColumns);
    std::vector<float> zeros(has_zeros ? Index(kColumns * blocks) : 0);
    BlockedColumn columns[kColumns];
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kColumns, count = (std::min)(kColumns, n - first);
      for (int64_t c = 0; c < kColumns; ++c) {
        const int64_t column = first + (std::min)(c, count - 1);
        float* const of_column = has_zeros ? zeros.data() + c * blocks : nullptr;
        if (has_zeros) fill_zeros(column, of_column);
        columns[c] = {bytes + column * blocks * layout.BlockBytes(), nullptr,
                      scales + column * blocks, of_column};
      }
      for (int64_t row = 0; row < rows; row += kRows) {
        const int64_t some = (std::min)(kRows, rows - row);
        std::fill_n(sums.data(), some * kColumns, 0.f);
        for (int64_t from = 0; from < k; from += kPart) {
          const int64_t part = (std::min)(kPart, blocks * layout.block - from);
          for (int64_t half = 0; half < kColumns; half += 16)
            loops.unpack(columns + half, block_shift, from, part, panel.data() + half);
          for (int64_t r = 0; r < some; r += kAtOnce)
            loops.multiply(a + (row + r) * k + from, k, (std::min)(kAtOnce, some - r), panel.data(),
                           (std::min)(kPart, k - from), sums.data() + r * kColumns);
        }
        for (int64_t r = 0; r < some; ++r)
          for (int64_t c = 0; c < count; ++c)
            store(row + r, first + c, sums.data()[r * kColumns + c]);
      }
    }
  });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BLOCKED_DOT_HPP_

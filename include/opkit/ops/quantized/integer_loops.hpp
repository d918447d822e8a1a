// IntegerLoops: the innermost loops of products and convolutions of 8-bit integers, for several
// kinds of machine. All kinds give the same bits. IntegerProduct and ByteConvolution use them.
#ifndef OPKIT_OPS_QUANTIZED_INTEGER_LOOPS_HPP_
#define OPKIT_OPS_QUANTIZED_INTEGER_LOOPS_HPP_

#include <vector>

#include "opkit/ops/quantized/quantization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The columns of a panel. A panel holds, for each group of four rows, the four bytes of each
// column one after the other.
inline constexpr int64_t kPanelColumns = 64;

// Four rows of 64 bytes that become one number for each column, the first row in the lowest byte.
// The bits `flip` of each number change.
struct RowsOfPanel {
  const uint8_t* rows[4];
  uint32_t flip;
  uint32_t* to;
};

// At most six rows of A, `width` bytes apart, and panels of at most 64 columns of B, 16 in each of
// `vectors` vectors. Four rows of B, group number g, lie from b + offsets[g] + from[4 * panel + v]
// on for vector v, both in bytes. sums[(panel * rows + row) * 64 + column] becomes the dot product
// + of_row[row] * zeros[column] - za[row] * of_b[panel * 64 + column]. Without `zeros` these are 1,
// without `of_b` 0.
struct DotTile {
  const int8_t* a;
  int64_t width, groups;
  const uint8_t* b;
  const int64_t *offsets, *from;
  int64_t vectors, panels;
  uint32_t* sums;
  const uint32_t *of_row, *zeros, *za, *of_b;
};
inline constexpr int64_t kDotRows = 6;

// Rows of 64 sums for each panel, of which at least `vectors` times 16 become bytes:
// saturate(round(sum * factor) + zero_point), as Quantize does.
struct SumsToBytes {
  const int32_t* sums;
  int64_t rows, panels, vectors;
  const float* factors;
  int64_t row_step, column_step;  // from factor to factor; column_step is 0 or 1
  float zero_point, lowest, highest;
  uint8_t* to;  // 64 bytes for each row
};

// The loops of a kind of machine. `name` is the main extension of the instruction set.
struct IntegerLoops {
  const char* name;
  void (*dot)(const DotTile& tile, int64_t rows);
  void (*interleave)(const RowsOfPanel& part);
  void (*quantize)(const SumsToBytes& all);
};

// The plain loops, from which a compiler can make vector code for several kinds of machine.
__attribute__((always_inline)) inline void Interleave(const RowsOfPanel& part) {
  uint32_t fours[kPanelColumns];  // which cannot be the bytes of a row
  for (int64_t j = 0; j < kPanelColumns; ++j)
    fours[j] = (uint32_t{part.rows[0][j]} | uint32_t{part.rows[1][j]} << 8 |
                uint32_t{part.rows[2][j]} << 16 | uint32_t{part.rows[3][j]} << 24) ^
               part.flip;
  std::memcpy(part.to, fours, sizeof(fours));
}
template <int64_t kLanes>
__attribute__((always_inline)) inline void QuantizeColumns(const SumsToBytes& all, int64_t at,
                                                           const float* factors) {
  const float low = all.lowest - all.zero_point, high = all.highest - all.zero_point;
  const auto zero_point = static_cast<uint32_t>(static_cast<int32_t>(all.zero_point));
  // The sum with 1.5 * 2^23 has no bits for a fraction, so the addition rounds as RoundToEven does.
  // The lowest byte of its bits is that of the rounded number.
  const auto quantized = [=](int32_t sum, float factor) {
    const float scaled = static_cast<float>(sum) * factor;
    const float above = scaled > low ? scaled : low;
    const float rounded = (above < high ? above : high) + 0x1.8p23f;
    uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    return static_cast<uint8_t>(bits + zero_point);
  };
  const int32_t* sums = all.sums + at;
  uint8_t bytes[kLanes];  // which cannot be those of the factors
  if (all.column_step == 0) {
    const float factor = *factors;
    for (int64_t j = 0; j < kLanes; ++j) bytes[j] = quantized(sums[j], factor);
  } else {
    for (int64_t j = 0; j < kLanes; ++j) bytes[j] = quantized(sums[j], factors[j]);
  }
  std::memcpy(all.to + at, bytes, sizeof(bytes));
}
// Loops of 16 columns would be unrolled by GCC, which makes no vector code of them then.
__attribute__((always_inline)) inline void QuantizeRows(const SumsToBytes& given) {
  const SumsToBytes all = given;  // which cannot be the bytes that are written
  int64_t at = 0;
  for (int64_t panel = 0; panel < all.panels; ++panel)
    for (int64_t row = 0; row < all.rows; ++row, at += kPanelColumns)
      if (all.vectors > 2)
        QuantizeColumns<64>(all, at, all.factors + row * all.row_step);
      else
        QuantizeColumns<32>(all, at, all.factors + row * all.row_step);
}
inline void InterleavePlain(const RowsOfPanel& part) { Interleave(part); }
inline void QuantizePlain(const SumsToBytes& all) { QuantizeRows(all); }

inline void DotPlain(const DotTile& tile, int64_t rows) {
  constexpr int64_t kLanes = 16;
  for (int64_t i = 0; i < tile.panels * rows; ++i) {
    const int64_t row = i % rows, panel = i / rows;
    int32_t sums[kPanelColumns] = {};
    for (int64_t group = 0; group < tile.groups; ++group) {
      const int8_t* a = tile.a + row * tile.width + group * 4;
      const int32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
      for (int64_t v = 0; v < tile.vectors; ++v) {
        const uint8_t* b = tile.b + tile.offsets[group] + tile.from[panel * 4 + v];
        int32_t* of_vector = sums + v * kLanes;
#pragma GCC unroll 1  // or GCC makes no vector code
        for (int64_t j = 0; j < kLanes; ++j) {
          const uint8_t* four = b + j * 4;
          of_vector[j] += a0 * four[0] + a1 * four[1] + a2 * four[2] + a3 * four[3];
        }
      }
    }
    for (int64_t column = 0; column < tile.vectors * kLanes; ++column) {
      uint32_t sum = static_cast<uint32_t>(sums[column]) +
                     tile.of_row[row] * (tile.zeros ? tile.zeros[column] : 1);
      if (tile.of_b) sum -= tile.za[row] * tile.of_b[panel * kPanelColumns + column];
      tile.sums[i * kPanelColumns + column] = sum;
    }
  }
}

#if defined(__x86_64__)
// The compilers' own vector types and built-in functions, because <immintrin.h> would leave
// thousands of macros. Elements are copied by memcpy, since panels have any address.
typedef int32_t DotInts16 __attribute__((vector_size(64)));
typedef uint32_t DotNumbers16 __attribute__((vector_size(64)));
typedef uint8_t DotBytes64 __attribute__((vector_size(64)));
typedef uint16_t DotWords32 __attribute__((vector_size(64)));
typedef uint32_t DotNumbers8 __attribute__((vector_size(32)));
typedef int32_t DotInts8 __attribute__((vector_size(32)));
typedef int16_t DotShorts16 __attribute__((vector_size(32)));
typedef uint16_t DotUnsigned16 __attribute__((vector_size(32)));
#define OPKIT_DOT_TARGET(name) __attribute__((target(name)))
#if defined(__clang__)
#define OPKIT_DOT_VNNI __builtin_ia32_vpdpbusd512
#else
#define OPKIT_DOT_VNNI __builtin_ia32_vpdpbusd_v16si
#endif

// Returns four bytes of A as one number.
inline int32_t FourBytes(const int8_t* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return four;
}

// Multiplies at most six rows by 64 columns: 24 registers of sums, four of B, one of A. The
// loops over rows and vectors must be unrolled, or the sums lie in memory.
template <int64_t kRows, int64_t kVectors>
OPKIT_DOT_TARGET("avx512f,avx512bw,avx512vnni")
void DotRowsVnni(const DotTile& given) {
  const DotTile tile = given;  // which cannot be the sums that are written
  uint32_t* to = tile.sums;
  for (int64_t panel = 0; panel < tile.panels; ++panel, to += kRows * 64) {
    DotInts16 sums[kRows][kVectors] = {};
    const int8_t* a = tile.a;
    const uint8_t* b[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) b[v] = tile.b + tile.from[panel * 4 + v];
    for (int64_t group = 0; group < tile.groups; ++group, a += 4) {
      const int64_t offset = tile.offsets[group];
      DotInts16 of_b[kVectors];
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) std::memcpy(&of_b[v], b[v] + offset, sizeof(of_b[v]));
#pragma GCC unroll 6
      for (int64_t r = 0; r < kRows; ++r) {
        const DotInts16 row = DotInts16{} + FourBytes(a + r * tile.width);
#pragma GCC unroll 4
        for (int64_t v = 0; v < kVectors; ++v)
          sums[r][v] = (DotInts16)OPKIT_DOT_VNNI(sums[r][v], of_b[v], row);
      }
    }
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      DotNumbers16 zeros = DotNumbers16{} + 1, of_b = {};
      if (tile.zeros) std::memcpy(&zeros, tile.zeros + v * 16, sizeof(zeros));
      if (tile.of_b) std::memcpy(&of_b, tile.of_b + panel * 64 + v * 16, sizeof(of_b));
#pragma GCC unroll 6
      for (int64_t r = 0; r < kRows; ++r) {
        DotNumbers16 sum = (DotNumbers16)sums[r][v];
        sum += tile.zeros ? zeros * tile.of_row[r] : DotNumbers16{} + tile.of_row[r];
        if (tile.of_b) sum -= of_b * tile.za[r];
        std::memcpy(to + r * 64 + v * 16, &sum, sizeof(sum));
      }
    }
  }
}

// Without VNNI: bytes are widened to 16 bits, even and odd ones apart, because VPMADDUBSW would
// saturate. At most two rows and one panel, 16 columns at a time.
template <int64_t kRows>
OPKIT_DOT_TARGET("avx2")
void DotRowsAvx2(const DotTile& tile) {
  for (int64_t vector = 0; vector < tile.vectors; ++vector) {
    DotInts8 sums[kRows][2] = {};
    const int8_t* a = tile.a;
    for (int64_t group = 0; group < tile.groups; ++group, a += 4) {
      const uint8_t* b = tile.b + tile.offsets[group] + tile.from[vector];
      DotUnsigned16 b0, b1;
      std::memcpy(&b0, b, sizeof(b0));
      std::memcpy(&b1, b + 32, sizeof(b1));
      const auto even0 = (DotShorts16)(b0 & 0xff), odd0 = (DotShorts16)(b0 >> 8);
      const auto even1 = (DotShorts16)(b1 & 0xff), odd1 = (DotShorts16)(b1 >> 8);
#pragma GCC unroll 2
      for (int64_t r = 0; r < kRows; ++r) {
        const DotInts8 row = DotInts8{} + FourBytes(a + r * tile.width);
        const DotShorts16 even = (DotShorts16)((DotUnsigned16)row << 8) >> 8;
        const DotShorts16 odd = (DotShorts16)row >> 8;
        sums[r][0] += (DotInts8)__builtin_ia32_pmaddwd256(even0, even) +
                      (DotInts8)__builtin_ia32_pmaddwd256(odd0, odd);
        sums[r][1] += (DotInts8)__builtin_ia32_pmaddwd256(even1, even) +
                      (DotInts8)__builtin_ia32_pmaddwd256(odd1, odd);
      }
    }
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t column = vector * 16 + half * 8;
      DotNumbers8 zeros = DotNumbers8{} + 1, of_b = {};
      if (tile.zeros) std::memcpy(&zeros, tile.zeros + column, sizeof(zeros));
      if (tile.of_b) std::memcpy(&of_b, tile.of_b + column, sizeof(of_b));
      for (int64_t r = 0; r < kRows; ++r) {
        DotNumbers8 sum = (DotNumbers8)sums[r][half] + zeros * tile.of_row[r];
        if (tile.of_b) sum -= of_b * tile.za[r];
        std::memcpy(tile.sums + r * 64 + column, &sum, sizeof(sum));
      }
    }
  }
}

inline void DotVnni(const DotTile& tile, int64_t rows) {
  using Loop = void (*)(const DotTile&);
  constexpr Loop kLoops[4][kDotRows] = {
      {&DotRowsVnni<1, 1>, &DotRowsVnni<2, 1>, &DotRowsVnni<3, 1>, &DotRowsVnni<4, 1>,
       &DotRowsVnni<5, 1>, &DotRowsVnni<6, 1>},
      {&DotRowsVnni<1, 2>, &DotRowsVnni<2, 2>, &DotRowsVnni<3, 2>, &DotRowsVnni<4, 2>,
       &DotRowsVnni<5, 2>, &DotRowsVnni<6, 2>},
      {&DotRowsVnni<1, 3>, &DotRowsVnni<2, 3>, &DotRowsVnni<3, 3>, &DotRowsVnni<4, 3>,
       &DotRowsVnni<5, 3>, &DotRowsVnni<6, 3>},
      {&DotRowsVnni<1, 4>, &DotRowsVnni<2, 4>, &DotRowsVnni<3, 4>, &DotRowsVnni<4, 4>,
       &DotRowsVnni<5, 4>, &DotRowsVnni<6, 4>}};
  kLoops[tile.vectors - 1][rows - 1](tile);
}

// Interleaves bytes in each quarter of the registers. So that the columns end in their order, four
// columns of each quarter of the result are brought into this quarter first.
OPKIT_DOT_TARGET("avx512f,avx512bw,avx512vnni")
inline void InterleaveVnni(const RowsOfPanel& part) {
#define OPKIT_QUARTER(i) i, 64 + i, i + 1, 65 + i, i + 2, 66 + i, i + 3, 67 + i
#define OPKIT_HALF(i) OPKIT_QUARTER(i), OPKIT_QUARTER(i + 4)
#define OPKIT_PAIRS(i) i, 32 + i, i + 1, 33 + i, i + 2, 34 + i, i + 3, 35 + i
  const uint32_t flip = part.flip;
  uint32_t* to = part.to;
  DotBytes64 rows[4];
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) {
    DotInts16 row;
    std::memcpy(&row, part.rows[i], sizeof(row));
    rows[i] = (DotBytes64)__builtin_shufflevector(row, row, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14,
                                                  3, 7, 11, 15);
  }
  DotWords32 pairs[4];
#pragma GCC unroll 2
  for (int64_t i = 0; i < 2; ++i) {
    pairs[i] = (DotWords32)__builtin_shufflevector(rows[2 * i], rows[2 * i + 1], OPKIT_HALF(0),
                                                   OPKIT_HALF(16), OPKIT_HALF(32), OPKIT_HALF(48));
    pairs[2 + i] =
        (DotWords32)__builtin_shufflevector(rows[2 * i], rows[2 * i + 1], OPKIT_HALF(8),
                                            OPKIT_HALF(24), OPKIT_HALF(40), OPKIT_HALF(56));
  }
  DotNumbers16 fours[4];
#pragma GCC unroll 2
  for (int64_t i = 0; i < 2; ++i) {
    fours[2 * i] =
        (DotNumbers16)__builtin_shufflevector(pairs[2 * i], pairs[2 * i + 1], OPKIT_PAIRS(0),
                                              OPKIT_PAIRS(8), OPKIT_PAIRS(16), OPKIT_PAIRS(24));
    fours[2 * i + 1] =
        (DotNumbers16)__builtin_shufflevector(pairs[2 * i], pairs[2 * i + 1], OPKIT_PAIRS(4),
                                              OPKIT_PAIRS(12), OPKIT_PAIRS(20), OPKIT_PAIRS(28));
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) {
    fours[i] ^= flip;
    std::memcpy(to + i * 16, &fours[i], sizeof(fours[i]));
  }
}
#undef OPKIT_PAIRS
#undef OPKIT_HALF
#undef OPKIT_QUARTER
OPKIT_DOT_TARGET("avx512f,avx512bw,avx512vnni")
inline void QuantizeVnni(const SumsToBytes& all) { QuantizeRows(all); }

inline void DotAvx2(const DotTile& tile, int64_t rows) {
  DotTile part = tile;
  for (int64_t panel = 0; panel < tile.panels; ++panel, part.from += 4) {
    if (tile.of_b) part.of_b = tile.of_b + panel * kPanelColumns;
    for (int64_t row = 0; row < rows; row += 2) {
      part.a = tile.a + row * tile.width;
      part.sums = tile.sums + (panel * rows + row) * kPanelColumns;
      part.of_row = tile.of_row + row;
      part.za = tile.za + row;
      row + 1 < rows ? DotRowsAvx2<2>(part) : DotRowsAvx2<1>(part);
    }
  }
}
OPKIT_DOT_TARGET("avx2")
inline void InterleaveAvx2(const RowsOfPanel& part) { Interleave(part); }
OPKIT_DOT_TARGET("avx2")
inline void QuantizeAvx2(const SumsToBytes& all) { QuantizeRows(all); }
#undef OPKIT_DOT_VNNI
#undef OPKIT_DOT_TARGET
#endif

// The loops that this machine can run, best first.
inline std::vector<IntegerLoops> AllIntegerLoops() {
  std::vector<IntegerLoops> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
    loops.push_back({"vnni", &DotVnni, &InterleaveVnni, &QuantizeVnni});
  if (__builtin_cpu_supports("avx2"))
    loops.push_back({"avx2", &DotAvx2, &InterleaveAvx2, &QuantizeAvx2});
#endif
  loops.push_back({"plain", &DotPlain, &InterleavePlain, &QuantizePlain});
  return loops;
}

// Returns a kernel's configuration, named after the loops of this machine and `constant`, which
// says that the kernel may keep what it makes of a constant: "vnni constant W".
inline KernelConfig IntegerConfig(bool is_constant, const char* constant) {
  KernelConfig config;
  config.variant = AllIntegerLoops()[0].name;
  if (is_constant) config.variant = StrCat(config.variant, " ", constant);
  return config;
}

// Stores Quantize(sum * factor, zero_point) for the first `count` of 64 sums. `step` is 1 if each
// sum has a factor, 0 if all have one.
template <class T>
void QuantizeSums(const IntegerLoops& loops, const int32_t* sums, const float* factors,
                  int64_t step, float zero_point, int64_t count, T* out) {
  float copied[kPanelColumns];
  if (step == 1 && count < kPanelColumns) {
    std::memcpy(copied, factors, static_cast<size_t>(count) * sizeof(float));
    std::memset(copied + count, 0, static_cast<size_t>(kPanelColumns - count) * sizeof(float));
    factors = copied;
  }
  uint8_t bytes[kPanelColumns];
  loops.quantize({sums, 1, 1, (count + 15) / 16, factors, 0, step, zero_point,
                  (std::numeric_limits<T>::min)(), (std::numeric_limits<T>::max)(), bytes});
  std::memcpy(out, bytes, static_cast<size_t>(count));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_INTEGER_LOOPS_HPP_

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

// Four rows of 64 bytes that become a part of a panel.
struct RowsOfPanel {
  const uint8_t* rows[4];
  uint32_t flip;   // the bits of each number that change
  uint32_t* to;    // a number for each column, the first row in its lowest byte
  uint32_t* sums;  // null, or one for each column, to which the four bytes are added
};

// At most six rows, `width` bytes apart, and a panel: sums[row * 64 + column] becomes their dot
// product + of_row[row] * zeros[column] - za[row] * of_b[column].
struct DotTile {
  const int8_t* a;
  int64_t width, groups;
  const uint8_t* panel;
  uint32_t* sums;
  const uint32_t *of_row, *za;   // one for each row
  const uint32_t *zeros, *of_b;  // one for each of 64 columns
  int64_t vectors;               // of 16 columns each, whose sums are needed: 1 to 4
};
inline constexpr int64_t kDotRows = 6;

// 64 sums that become bytes: saturate(round((sum + bias) * factor) + zero_point), as Quantize does.
struct SumsToBytes {
  const int32_t* sums;
  uint32_t bias;
  const float* factors;
  int64_t step;  // 1 if there are 64 factors, 0 for one
  float zero_point, lowest, highest;
  uint8_t* to;
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
  if (!part.sums) return;
  for (int64_t j = 0; j < kPanelColumns; ++j) {
    const uint32_t pairs = (fours[j] & 0x00ff00ff) + (fours[j] >> 8 & 0x00ff00ff);
    part.sums[j] += (pairs & 0xffff) + (pairs >> 16);
  }
}
__attribute__((always_inline)) inline void QuantizeEach(const SumsToBytes& all) {
  uint8_t bytes[kPanelColumns];  // which cannot be those of the factors
  const float zero_point = all.zero_point, lowest = all.lowest, highest = all.highest;
  const auto quantized = [=](int32_t sum, float factor) {
    const auto biased = static_cast<int32_t>(static_cast<uint32_t>(sum) + all.bias);
    return static_cast<uint8_t>(
        Quantize<int32_t>(static_cast<float>(biased) * factor, zero_point, lowest, highest));
  };
  if (all.step == 0) {
    const float factor = *all.factors;
    for (int64_t j = 0; j < kPanelColumns; ++j) bytes[j] = quantized(all.sums[j], factor);
  } else {
    for (int64_t j = 0; j < kPanelColumns; ++j) bytes[j] = quantized(all.sums[j], all.factors[j]);
  }
  std::memcpy(all.to, bytes, sizeof(bytes));
}
inline void InterleavePlain(const RowsOfPanel& part) { Interleave(part); }
inline void QuantizePlain(const SumsToBytes& all) { QuantizeEach(all); }

inline void DotPlain(const DotTile& tile, int64_t rows) {
  constexpr int64_t kColumns = kPanelColumns;
  for (int64_t row = 0; row < rows; ++row) {
    int32_t sums[kColumns] = {};
    for (int64_t group = 0; group < tile.groups; ++group) {
      const int8_t* a = tile.a + row * tile.width + group * 4;
      const uint8_t* b = tile.panel + group * 4 * kColumns;
      const int32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
      for (int64_t column = 0; column < tile.vectors * 16; ++column) {
        const uint8_t* four = b + column * 4;
        sums[column] += a0 * four[0] + a1 * four[1] + a2 * four[2] + a3 * four[3];
      }
    }
    for (int64_t column = 0; column < tile.vectors * 16; ++column)
      tile.sums[row * kColumns + column] = static_cast<uint32_t>(sums[column]) +
                                           tile.of_row[row] * tile.zeros[column] -
                                           tile.za[row] * tile.of_b[column];
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
void DotRowsVnni(const DotTile& tile) {
  DotInts16 sums[kRows][kVectors] = {};
  const int8_t* a = tile.a;
  const uint8_t* b = tile.panel;
  for (int64_t group = 0; group < tile.groups; ++group, a += 4, b += 256) {
    DotInts16 of_b[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) std::memcpy(&of_b[v], b + v * 64, sizeof(of_b[v]));
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
    DotNumbers16 zeros, of_b;
    std::memcpy(&zeros, tile.zeros + v * 16, sizeof(zeros));
    std::memcpy(&of_b, tile.of_b + v * 16, sizeof(of_b));
#pragma GCC unroll 6
    for (int64_t r = 0; r < kRows; ++r) {
      const DotNumbers16 sum =
          (DotNumbers16)sums[r][v] + zeros * tile.of_row[r] - of_b * tile.za[r];
      std::memcpy(tile.sums + r * 64 + v * 16, &sum, sizeof(sum));
    }
  }
}

// Without VNNI: bytes are widened to 16 bits, even and odd ones apart, because VPMADDUBSW would
// saturate. At most two rows, 16 columns at a time.
template <int64_t kRows>
OPKIT_DOT_TARGET("avx2")
void DotRowsAvx2(const DotTile& tile) {
  for (int64_t column = 0; column < tile.vectors * 16; column += 16) {
    DotInts8 sums[kRows][2] = {};
    const int8_t* a = tile.a;
    const uint8_t* b = tile.panel + column * 4;
    for (int64_t group = 0; group < tile.groups; ++group, a += 4, b += 256) {
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
    for (int64_t v = 0; v < 2; ++v) {
      DotNumbers8 zeros, of_b;
      std::memcpy(&zeros, tile.zeros + column + v * 8, sizeof(zeros));
      std::memcpy(&of_b, tile.of_b + column + v * 8, sizeof(of_b));
      for (int64_t r = 0; r < kRows; ++r) {
        const DotNumbers8 sum =
            (DotNumbers8)sums[r][v] + zeros * tile.of_row[r] - of_b * tile.za[r];
        std::memcpy(tile.sums + r * 64 + column + v * 8, &sum, sizeof(sum));
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
  uint32_t *to = part.to, *sums = part.sums;
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
  if (!sums) return;
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) {
    DotInts16 sum;
    std::memcpy(&sum, sums + i * 16, sizeof(sum));
    sum = (DotInts16)OPKIT_DOT_VNNI(sum, (DotInts16)fours[i], DotInts16{} + 0x01010101);
    std::memcpy(sums + i * 16, &sum, sizeof(sum));
  }
#undef OPKIT_PAIRS
#undef OPKIT_HALF
#undef OPKIT_QUARTER
}
OPKIT_DOT_TARGET("avx512f,avx512bw,avx512vnni")
inline void QuantizeVnni(const SumsToBytes& all) { QuantizeEach(all); }

inline void DotAvx2(const DotTile& tile, int64_t rows) {
  for (DotTile part = tile; rows > 0; rows -= 2) {
    rows > 1 ? DotRowsAvx2<2>(part) : DotRowsAvx2<1>(part);
    part.a += 2 * tile.width;
    part.sums += 2 * kPanelColumns;
    part.of_row += 2;
    part.za += 2;
  }
}
OPKIT_DOT_TARGET("avx2")
inline void InterleaveAvx2(const RowsOfPanel& part) { Interleave(part); }
OPKIT_DOT_TARGET("avx2")
inline void QuantizeAvx2(const SumsToBytes& all) { QuantizeEach(all); }
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

// Stores Quantize(sum * factor, zero_point) for the first `count` of 64 sums, to which `bias` is
// added first. `step` is 1 if each sum has a factor, 0 if all have one.
template <class T>
void QuantizeSums(const IntegerLoops& loops, const int32_t* sums, int32_t bias,
                  const float* factors, int64_t step, float zero_point, int64_t count, T* out) {
  float copied[kPanelColumns] = {};
  if (step == 1 && count < kPanelColumns) {
    std::memcpy(copied, factors, static_cast<size_t>(count) * sizeof(float));
    factors = copied;
  }
  uint8_t bytes[kPanelColumns];
  loops.quantize({sums, static_cast<uint32_t>(bias), factors, step, zero_point,
                  (std::numeric_limits<T>::min)(), (std::numeric_limits<T>::max)(), bytes});
  std::memcpy(out, bytes, static_cast<size_t>(count));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_INTEGER_LOOPS_HPP_

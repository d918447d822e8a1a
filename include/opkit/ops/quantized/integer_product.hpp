// IntegerProduct: products of matrices of 8-bit integers, with sums in int32. All operators on
// quantised matrices use it. Bytes of A become signed and bytes of B unsigned first, as the
// instruction VPDPBUSD of AVX512-VNNI multiplies them; zero points are subtracted from the sums.
#ifndef OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_
#define OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_

#include <cstring>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Bytes of a dense matrix [rows, columns]. A signed byte minus 128 in two's complement is an
// unsigned byte with its highest bit changed, and the reverse.
struct ByteMatrix {
  const uint8_t* bytes;
  int64_t rows, columns;
  bool is_signed;
};

// The rows of A: as many groups of four bytes as k needs, the rest 0, with the sum of each row.
class PackedRows {
 public:
  static int64_t Groups(int64_t k) { return (k + 3) / 4; }

  void Resize(int64_t rows, int64_t k) {
    width_ = Groups(k) * 4;
    bytes_.resize(Index(rows * width_));
    sums_.resize(Index(rows));
  }
  // Copies row `row`, of k bytes.
  void Set(int64_t row, const uint8_t* from, int64_t k, bool is_signed) {
    int8_t* to = bytes_.data() + row * width_;
    // Eight bytes at a time, as one number; their sum is that of unsigned bytes.
    constexpr uint64_t kHighest = 0x8080808080808080, kEven = 0x00ff00ff00ff00ff;
    int64_t sum = -128 * k, i = 0;
    for (; i + 8 <= k; i += 8) {
      uint64_t eight;
      std::memcpy(&eight, from + i, sizeof(eight));
      const uint64_t flipped = eight ^ kHighest;
      const uint64_t plain = is_signed ? flipped : eight, copied = is_signed ? eight : flipped;
      const uint64_t pairs = (plain & kEven) + (plain >> 8 & kEven);
      sum += static_cast<int64_t>(pairs * 0x0001000100010001 >> 48);
      std::memcpy(to + i, &copied, sizeof(copied));
    }
    for (; i < k; ++i) {
      to[i] = static_cast<int8_t>(from[i] ^ (is_signed ? 0 : 0x80));
      sum += to[i] + 128;
    }
    if (width_ > k) std::memset(to + k, 0, static_cast<size_t>(width_ - k));
    sums_[Index(row)] = static_cast<int32_t>(sum);
  }
  const int8_t* row(int64_t row) const { return bytes_.data() + row * width_; }
  int64_t width() const { return width_; }
  int32_t sum(int64_t row) const { return sums_[Index(row)]; }

 private:
  int64_t width_ = 0;
  std::vector<int8_t> bytes_;
  std::vector<int32_t> sums_;
};

// Makes of four rows of 64 bytes one number for each column, the first row in the lowest byte.
// Changes the bits `flip` of each number, and adds the four bytes of a column to its sum.
inline void InterleaveFour(const uint8_t (&rows)[4][64], uint32_t flip, uint32_t* to,
                           uint32_t* sums) {
  for (int64_t j = 0; j < 64; ++j) {
    const uint32_t four = (uint32_t{rows[0][j]} | uint32_t{rows[1][j]} << 8 |
                           uint32_t{rows[2][j]} << 16 | uint32_t{rows[3][j]} << 24) ^
                          flip;
    to[j] = four;
    const uint32_t pairs = (four & 0x00ff00ff) + (four >> 8 & 0x00ff00ff);
    sums[j] += (pairs & 0xffff) + (pairs >> 16);
  }
}

// B in panels of 64 columns. A panel holds, for each group of four rows, the four bytes of each
// column one after the other. Missing rows and columns are 0.
class PackedColumns {
 public:
  static constexpr int64_t kColumns = 64;

  int64_t k() const { return k_; }
  int64_t columns() const { return n_; }
  int64_t panels() const { return (n_ + kColumns - 1) / kColumns; }
  const uint8_t* panel(int64_t panel) const {
    return reinterpret_cast<const uint8_t*>(bytes_.data() +
                                            panel * PackedRows::Groups(k_) * kColumns);
  }
  const int32_t* sums() const { return sums_.data(); }

  // Packs matrix [k, n].
  void Pack(const ByteMatrix& b) {
    const int64_t k = b.rows, n = b.columns, groups = PackedRows::Groups(k);
    k_ = k;
    n_ = n;
    bytes_.resize(Index(panels() * groups * kColumns));
    sums_.assign(Index(panels() * kColumns), 0);
    const uint32_t flip = b.is_signed ? 0x80808080 : 0;
    ParallelFor(panels(), [&](int64_t panel) {
      const int64_t first = panel * kColumns, count = (std::min)(kColumns, n - first);
      uint32_t* to = bytes_.data() + panel * groups * kColumns;
      uint32_t sums[kColumns] = {};
      for (int64_t row = 0; row < k; row += 4, to += kColumns) {
        const int64_t present = (std::min)(int64_t{4}, k - row);
        uint8_t rows[4][kColumns] = {};
        for (int64_t i = 0; i < present; ++i)
          std::memcpy(rows[i], b.bytes + (row + i) * n + first, static_cast<size_t>(count));
        InterleaveFour(rows, present == 4 ? flip : flip & ((1u << (8 * present)) - 1), to, sums);
      }
      for (int64_t j = 0; j < count; ++j) sums_[Index(first + j)] = static_cast<int32_t>(sums[j]);
    });
  }

 private:
  int64_t k_ = 0, n_ = 0;
  std::vector<uint32_t> bytes_;  // four rows of a column in one number
  std::vector<int32_t> sums_;
};

// Multiplies `rows` rows, `width` bytes apart, by a panel: sums[row * 64 + column] is their dot
// product + of_row[row] * zeros[column] - za[row] * of_b[column].
struct DotTile {
  const int8_t* a;
  int64_t width, groups;
  const uint8_t* panel;
  uint32_t* sums;
  const uint32_t *of_row, *za;   // one for each row
  const uint32_t *zeros, *of_b;  // one for each of 64 columns
};
using DotLoop = void (*)(const DotTile& tile, int64_t rows);

inline void DotPlain(const DotTile& tile, int64_t rows) {
  constexpr int64_t kColumns = PackedColumns::kColumns;
  for (int64_t row = 0; row < rows; ++row) {
    int32_t sums[kColumns] = {};
    for (int64_t group = 0; group < tile.groups; ++group) {
      const int8_t* a = tile.a + row * tile.width + group * 4;
      const uint8_t* b = tile.panel + group * 4 * kColumns;
      const int32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
      for (int64_t column = 0; column < kColumns; ++column) {
        const uint8_t* four = b + column * 4;
        sums[column] += a0 * four[0] + a1 * four[1] + a2 * four[2] + a3 * four[3];
      }
    }
    for (int64_t column = 0; column < kColumns; ++column)
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
// loop over rows must be unrolled, or the sums lie in memory.
template <int64_t kRows>
OPKIT_DOT_TARGET("avx512f,avx512bw,avx512vnni")
void DotRowsVnni(const DotTile& tile) {
  DotInts16 sums[kRows][4] = {};
  const int8_t* a = tile.a;
  const uint8_t* b = tile.panel;
  for (int64_t group = 0; group < tile.groups; ++group, a += 4, b += 256) {
    DotInts16 b0, b1, b2, b3;
    std::memcpy(&b0, b, sizeof(b0));
    std::memcpy(&b1, b + 64, sizeof(b1));
    std::memcpy(&b2, b + 128, sizeof(b2));
    std::memcpy(&b3, b + 192, sizeof(b3));
#pragma GCC unroll 6
    for (int64_t r = 0; r < kRows; ++r) {
      const DotInts16 row = DotInts16{} + FourBytes(a + r * tile.width);
      sums[r][0] = (DotInts16)OPKIT_DOT_VNNI(sums[r][0], b0, row);
      sums[r][1] = (DotInts16)OPKIT_DOT_VNNI(sums[r][1], b1, row);
      sums[r][2] = (DotInts16)OPKIT_DOT_VNNI(sums[r][2], b2, row);
      sums[r][3] = (DotInts16)OPKIT_DOT_VNNI(sums[r][3], b3, row);
    }
  }
  for (int64_t v = 0; v < 4; ++v) {
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
  for (int64_t column = 0; column < 64; column += 16) {
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
  constexpr void (*kLoops[])(const DotTile&) = {&DotRowsVnni<1>, &DotRowsVnni<2>, &DotRowsVnni<3>,
                                                &DotRowsVnni<4>, &DotRowsVnni<5>, &DotRowsVnni<6>};
  kLoops[rows - 1](tile);
}
inline void DotAvx2(const DotTile& tile, int64_t rows) {
  for (DotTile part = tile; rows > 0; rows -= 2) {
    rows > 1 ? DotRowsAvx2<2>(part) : DotRowsAvx2<1>(part);
    part.a += 2 * tile.width;
    part.sums += 2 * PackedColumns::kColumns;
    part.of_row += 2;
    part.za += 2;
  }
}
#undef OPKIT_DOT_VNNI
#undef OPKIT_DOT_TARGET
#endif

// The loops that this machine can run, best first.
inline std::vector<DotLoop> DotLoops() {
  std::vector<DotLoop> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
    loops.push_back(&DotVnni);
  if (__builtin_cpu_supports("avx2")) loops.push_back(&DotAvx2);
#endif
  loops.push_back(&DotPlain);
  return loops;
}

// Zero points of the rows of A or the columns of B, as the node gives them: none (all 0), one for
// all, or one for each.
struct ZeroPointList {
  const int32_t* values = nullptr;
  int64_t step = 0;
  int32_t At(int64_t i) const { return values ? values[i * step] : 0; }
};

// The product of packed matrices. Zero points are numbers of the types that A and B had before they
// were packed: int8 if `a_signed` or `b_signed`, else uint8.
struct IntegerProduct {
  const PackedRows& a;
  const PackedColumns& b;
  int64_t rows;
  ZeroPointList a_zero, b_zero;
  bool a_signed, b_signed;

  static constexpr int64_t kRows = 6;

  // Calls store(row, column, count, sums) for pieces of at most 64 columns of a row, on several
  // threads. Sums wrap around like int32, so intermediate ones may.
  template <class F>
  void Run(F&& store, DotLoop loop) const {
    const int64_t panels = b.panels(), strips = (rows + kRows - 1) / kRows;
    // A task keeps its panel of B in the cache for several strips of A.
    constexpr int64_t kStrips = 8;
    const int64_t blocks = (strips + kStrips - 1) / kStrips;
    const int64_t work = (std::min)(rows, kRows * kStrips) * PackedColumns::kColumns * (b.k() + 1);
    constexpr int64_t kWork = 1 << 19;  // multiplications that are worth a thread
    ParallelForRange(panels * blocks, kWork / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task / panels * kStrips * kRows;
        const int64_t last = (std::min)(rows, first + kStrips * kRows);
        for (int64_t row = first; row < last; row += kRows)
          RunTile(row, (std::min)(kRows, last - row), task % panels, store, loop);
      }
    });
  }

 private:
  template <class F>
  void RunTile(int64_t row, int64_t count, int64_t panel, F& store, DotLoop loop) const {
    constexpr int64_t kColumns = PackedColumns::kColumns;
    const int64_t first = panel * kColumns, columns = (std::min)(kColumns, b.columns() - first);
    const uint32_t a_offset = a_signed ? 0 : 128, b_offset = b_signed ? 128 : 0;
    alignas(64) uint32_t sums[kRows * kColumns], of_b[kColumns], zeros[kColumns];
    std::memcpy(of_b, b.sums() + first, sizeof(of_b));
    for (int64_t j = 0; j < kColumns; ++j)
      zeros[j] = static_cast<uint32_t>(b_zero.At(j < columns ? first + j : 0)) + b_offset;
    // sum((a - za) (b - zb)) = sum(a b) - za sum(b) + zb (k za - sum(a))
    uint32_t za[kRows] = {}, of_row[kRows] = {};
    for (int64_t r = 0; r < count; ++r) {
      za[r] = static_cast<uint32_t>(a_zero.At(row + r)) - a_offset;
      of_row[r] = static_cast<uint32_t>(b.k()) * za[r] - static_cast<uint32_t>(a.sum(row + r));
    }
    loop({a.row(row), a.width(), PackedRows::Groups(b.k()), b.panel(panel), sums, of_row, za, zeros,
          of_b},
         count);
    for (int64_t r = 0; r < count; ++r)
      store(row + r, first, columns, reinterpret_cast<const int32_t*>(sums + r * kColumns));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_

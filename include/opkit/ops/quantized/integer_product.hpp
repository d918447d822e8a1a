// IntegerProduct: products of matrices of 8-bit integers, with sums in int32. All operators on
// quantised matrices use it. Bytes of A become signed and bytes of B unsigned first, as the
// instruction VPDPBUSD of AVX512-VNNI multiplies them; zero points are subtracted from the sums.
#ifndef OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_
#define OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_

#include <cstring>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/quantized/integer_loops.hpp"

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

// B in panels, which IntegerLoops describes. Missing rows and columns are 0.
class PackedColumns {
 public:
  static constexpr int64_t kColumns = kPanelColumns;

  int64_t k() const { return k_; }
  int64_t columns() const { return n_; }
  int64_t panels() const { return (n_ + kColumns - 1) / kColumns; }
  const uint8_t* panel(int64_t panel) const {
    return reinterpret_cast<const uint8_t*>(bytes_.data() +
                                            panel * PackedRows::Groups(k_) * kColumns);
  }
  const int32_t* sums() const { return sums_.data(); }
  // Where each group of four rows begins in a panel, in bytes.
  const int64_t* offsets() const { return offsets_.data(); }

  // Packs matrix [k, n].
  void Pack(const ByteMatrix& b) {
    const int64_t k = b.rows, n = b.columns, groups = PackedRows::Groups(k);
    k_ = k;
    n_ = n;
    bytes_.resize(Index(panels() * groups * kColumns));
    offsets_.clear();
    for (int64_t group = 0; group < groups; ++group) offsets_.push_back(group * kColumns * 4);
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
        InterleavePlain({{rows[0], rows[1], rows[2], rows[3]},
                         present == 4 ? flip : flip & ((1u << (8 * present)) - 1),
                         to});
        for (int64_t j = 0; j < kColumns; ++j) {
          const uint32_t pairs = (to[j] & 0x00ff00ff) + (to[j] >> 8 & 0x00ff00ff);
          sums[j] += (pairs & 0xffff) + (pairs >> 16);
        }
      }
      for (int64_t j = 0; j < count; ++j) sums_[Index(first + j)] = static_cast<int32_t>(sums[j]);
    });
  }

 private:
  int64_t k_ = 0, n_ = 0;
  std::vector<uint32_t> bytes_;  // four rows of a column in one number
  std::vector<int32_t> sums_;
  std::vector<int64_t> offsets_;
};

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

  static constexpr int64_t kRows = kDotRows;

  // Calls store(row, column, count, sums) for pieces of at most 64 columns of a row, on several
  // threads. Sums wrap around like int32, so intermediate ones may.
  template <class F>
  void Run(F&& store, const IntegerLoops& loops) const {
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
          RunTile(row, (std::min)(kRows, last - row), task % panels, store, loops);
      }
    });
  }

 private:
  template <class F>
  void RunTile(int64_t row, int64_t count, int64_t panel, F& store,
               const IntegerLoops& loops) const {
    constexpr int64_t kColumns = PackedColumns::kColumns;
    const int64_t first = panel * kColumns, columns = (std::min)(kColumns, b.columns() - first);
    const uint32_t a_offset = a_signed ? 0 : 128, b_offset = b_signed ? 128 : 0;
    alignas(64) uint32_t sums[kRows * kColumns] = {}, of_b[kColumns], zeros[kColumns];
    std::memcpy(of_b, b.sums() + first, sizeof(of_b));
    for (int64_t j = 0; j < kColumns; ++j)
      zeros[j] = static_cast<uint32_t>(b_zero.At(j < columns ? first + j : 0)) + b_offset;
    // sum((a - za) (b - zb)) = sum(a b) - za sum(b) + zb (k za - sum(a))
    uint32_t za[kRows] = {}, of_row[kRows] = {};
    for (int64_t r = 0; r < count; ++r) {
      za[r] = static_cast<uint32_t>(a_zero.At(row + r)) - a_offset;
      of_row[r] = static_cast<uint32_t>(b.k()) * za[r] - static_cast<uint32_t>(a.sum(row + r));
    }
    constexpr int64_t kFrom[] = {0, 64, 128, 192};
    loops.dot({a.row(row), a.width(), PackedRows::Groups(b.k()), b.panel(panel), b.offsets(), kFrom,
               (columns + 15) / 16, 1, sums, of_row, zeros, za, of_b},
              count);
    for (int64_t r = 0; r < count; ++r)
      store(row + r, first, columns, reinterpret_cast<const int32_t*>(sums + r * kColumns));
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_INTEGER_PRODUCT_HPP_

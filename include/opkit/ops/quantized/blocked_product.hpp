// BlockedProduct: a product of float32 rows with a matrix of 2-bit, 4-bit or 8-bit integers that
// are scaled block by block. Some rows of the matrix at a time become float32 numbers in the cache,
// and all rows of the other factor are multiplied with them, so that the matrix stays as small in
// memory as it is stored. com.microsoft.MatMulNBits uses it where BlockedDot cannot run.
#ifndef OPKIT_OPS_QUANTIZED_BLOCKED_PRODUCT_HPP_
#define OPKIT_OPS_QUANTIZED_BLOCKED_PRODUCT_HPP_

#include <algorithm>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/quantized/blocked_layout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Writes (number - zero) * scale for `count` numbers from a byte on.
inline void UnpackBlock(const uint8_t* from, int64_t count, int64_t bits, float zero, float scale,
                        float* to) {
  const BlockedLayout layout{0, 0, bits, 0, 0};
  for (int64_t i = 0; i < count; ++i)
    to[i] = (static_cast<float>(layout.At(from, i)) - zero) * scale;
}
// Adds to sums[r * 4 + c] the dot product of row r of `a`, `a_step` elements apart, and row c of
// `b`, `b_step` elements apart, both of `count` elements. There are 1 to 4 rows of `a`, and 4 of
// `b`.
inline void MultiplyPanel(const float* a, int64_t a_step, int64_t rows, const float* b,
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

// Calls store(row, column, sum) with each element of the product A B', on several threads. A is
// dense, [rows, layout.k]. factors(column, block, zero, scale) sets the zero point and the scale of
// a block of a row of B.
template <class Factors, class Store>
void BlockedProduct(const BlockedLayout& layout, const float* a, int64_t rows, const uint8_t* bytes,
                    Factors&& factors, Store&& store) {
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
            UnpackBlock(row + i * layout.bits / 8, count, layout.bits, zero, scale,
                        panel.data() + c * kPart + i - from);
            i += count;
          }
        }
        const int64_t count = (std::min)(k - from, kPart);
        for (int64_t row = 0; row < rows; row += kFour)
          for (int64_t c = 0; c < columns; c += kFour)
            MultiplyPanel(a + row * k + from, k, (std::min)(kFour, rows - row),
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

// Gemm: the product of two matrices on the current thread pool, computed in tiles by
// single-threaded Eigen. Used by MatMul, Gemm, the recurrent layers and the convolutions of the
// "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_GEMM_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_GEMM_HPP_

#include <algorithm>

#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/engine/parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A factor of Gemm: a row-major matrix with rows `stride` elements apart. With `transposed` the
// factor is the transpose of this matrix.
template <class T>
struct GemmMatrix {
  const T* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;

  // Returns the factor without its first rows and columns.
  GemmMatrix From(int64_t row, int64_t column) const {
    return {data + (transposed ? row + column * stride : row * stride + column), stride,
            transposed};
  }
};
// The result C of Gemm, row-major with rows `stride` elements apart: `beta` times its old value
// plus the product. If beta is 0, C need not be initialized.
template <class T>
struct GemmResult {
  T* data = nullptr;
  int64_t stride = 0;
  T beta = 0;
};
// C is m by n; the sums of the product have k summands.
struct GemmSize {
  int64_t m, n, k;
};

namespace detail {

template <class T>
using EigenVector = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>, Eigen::Unaligned,
                               Eigen::InnerStride<Eigen::Dynamic>>;
template <class T>
using ConstEigenVector = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>, Eigen::Unaligned,
                                    Eigen::InnerStride<Eigen::Dynamic>>;
template <class T, int kOrder>
using ConstEigenMatrix = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>,
                                    Eigen::Unaligned, Eigen::OuterStride<Eigen::Dynamic>>;
template <class T>
using EigenMatrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                               Eigen::Unaligned, Eigen::OuterStride<Eigen::Dynamic>>;

// Eigen's register block: kColumns columns by kRows rows of a row-major result. If tiles are
// multiples of this block, results are bitwise the same for every cut into tiles.
template <class T>
struct GemmBlock {
  using Traits = Eigen::internal::gebp_traits<T, T>;
  static constexpr int64_t kColumns = Traits::mr;
  static constexpr int64_t kRows = Traits::nr;
};

// The first of several vectors, which begin `stride` elements apart. In a vector the elements are
// `step` elements apart.
template <class T>
struct StridedVector {
  T* data;
  int64_t step, stride;

  // Returns vector `r` from element `i` on.
  StridedVector At(int64_t r, int64_t i) const {
    return {data + r * stride + i * step, step, stride};
  }
};

// Computes y[rows] += alpha * M[rows, depth] x[depth].
template <class T>
void Gemv(int64_t rows, int64_t depth, T alpha, const GemmMatrix<T>& matrix,
          const StridedVector<const T>& x, const StridedVector<T>& y) {
  const ConstEigenVector<T> in(x.data, depth, Eigen::InnerStride<Eigen::Dynamic>(x.step));
  EigenVector<T> out(y.data, rows, Eigen::InnerStride<Eigen::Dynamic>(y.step));
  const Eigen::OuterStride<Eigen::Dynamic> outer(matrix.stride);
  if (matrix.transposed) {
    const ConstEigenMatrix<T, Eigen::ColMajor> m(matrix.data, rows, depth, outer);
    out.noalias() += alpha * m * in;
  } else {
    const ConstEigenMatrix<T, Eigen::RowMajor> m(matrix.data, rows, depth, outer);
    out.noalias() += alpha * m * in;
  }
}

// Computes y_r[m] += alpha * M[m, k] x_r[k] for r in [0, n): a thin product, for which packing M
// would take most of the time. Each block of M is loaded into the cache once for all r.
template <class T>
void Gemvs(const GemmSize& size, T alpha, const GemmMatrix<T>& matrix,
           const StridedVector<const T>& x, const StridedVector<T>& y) {
  constexpr int64_t kBlock = int64_t{256} * 1024 / sizeof(T);  // elements; fits in any L2 cache
  const auto [rows, count, depth] = size;
  int64_t block_rows = rows, block_depth = depth;
  if (count > 1 && matrix.transposed) {
    block_rows = 512;
    block_depth = kBlock / block_rows;
  } else if (count > 1) {
    block_rows = (std::max)(kBlock / depth / 8 * 8, int64_t{8});
  }
  for (int64_t row = 0, end = 0; row < rows; row = end) {
    // A block of a single row would be a dot product, which is rounded differently. Such a row
    // joins the block before, so that sums do not depend on where blocks begin.
    end = row + block_rows + 1 < rows ? row + block_rows : rows;
    for (int64_t at = 0; at < depth; at += block_depth) {
      const GemmMatrix<T> block = matrix.From(row, at);
      for (int64_t r = 0; r < count; ++r)
        Gemv<T>(end - row, (std::min)(block_depth, depth - at), alpha, block, x.At(r, at),
                y.At(r, row));
    }
  }
}

// Computes C += alpha A B, as C^T += alpha B^T A^T in Eigen's memory order. Calls the function
// behind Eigen's expressions directly, because an expression would instantiate every case three
// times.
template <class T, int kOrderA, int kOrderB>
void EigenGemm(const GemmSize& size, T alpha, const GemmMatrix<T>& a, const GemmMatrix<T>& b,
               const GemmResult<T>& c) {
  using Eigen::ColMajor;
  using Eigen::Dynamic;
  constexpr int kLeft = kOrderB == ColMajor ? Eigen::RowMajor : ColMajor;
  constexpr int kRight = kOrderA == ColMajor ? Eigen::RowMajor : ColMajor;
  using Product = Eigen::internal::general_matrix_matrix_product<Eigen::Index, T, kLeft, false, T,
                                                                 kRight, false, ColMajor, 1>;
  const auto [m, n, k] = size;
  Eigen::internal::gemm_blocking_space<ColMajor, T, T, Dynamic, Dynamic, Dynamic> blocking(n, m, k,
                                                                                           1, true);
  Product::run(n, m, k, b.data, b.stride, a.data, a.stride, c.data, 1, c.stride, alpha, blocking);
}

// Multiplies C by beta; beta 0 sets it to 0, even if C holds NaN.
template <class T>
void ScaleMatrix(const GemmSize& size, const GemmResult<T>& c) {
  EigenMatrix<T> matrix(c.data, size.m, size.n, Eigen::OuterStride<Eigen::Dynamic>(c.stride));
  if (c.beta == T(0))
    matrix.setZero();
  else if (c.beta != T(1))
    matrix *= c.beta;
}

// The algorithm of a product. Chosen by the size of the whole product, not of a tile.
enum class GemmKind : uint8_t { kRows, kColumns, kBlocks };

// Computes C = alpha A B + beta C with the given algorithm, on the calling thread.
template <class T>
void RunProduct(GemmKind kind, const GemmSize& size, T alpha, const GemmMatrix<T>& a,
                const GemmMatrix<T>& b, const GemmResult<T>& c) {
  using Eigen::ColMajor;
  using Eigen::RowMajor;
  ScaleMatrix<T>(size, c);
  if (size.k <= 0 || alpha == T(0)) return;
  const auto [m, n, k] = size;
  const StridedVector<const T> a_rows{a.data, a.transposed ? a.stride : 1,
                                      a.transposed ? 1 : a.stride};
  const StridedVector<const T> b_columns{b.data, b.transposed ? 1 : b.stride,
                                         b.transposed ? b.stride : 1};
  if (kind == GemmKind::kRows) {
    const GemmMatrix<T> matrix{b.data, b.stride, !b.transposed};
    Gemvs<T>({n, m, k}, alpha, matrix, a_rows, {c.data, 1, c.stride});
  } else if (kind == GemmKind::kColumns) {
    Gemvs<T>(size, alpha, a, b_columns, {c.data, c.stride, 1});
  } else if (a.transposed) {
    b.transposed ? EigenGemm<T, ColMajor, ColMajor>(size, alpha, a, b, c)
                 : EigenGemm<T, ColMajor, RowMajor>(size, alpha, a, b, c);
  } else {
    b.transposed ? EigenGemm<T, RowMajor, ColMajor>(size, alpha, a, b, c)
                 : EigenGemm<T, RowMajor, RowMajor>(size, alpha, a, b, c);
  }
}

// An extent cut into tiles. Tiles are multiples of `unit`, except the last tile. The last tile is
// at least `unit`, unless the whole extent is smaller.
struct GemmCut {
  int64_t size, unit, tile;

  GemmCut(int64_t all, int64_t multiple) : size(all), unit(multiple), tile(Up(all)) {}
  int64_t Up(int64_t extent) const { return (extent + unit - 1) / unit * unit; }
  int64_t Half() const { return Up((tile + 1) / 2); }
  bool CanHalve() const { return Half() < tile; }
  int64_t Count() const {
    const int64_t whole = size / tile + (size % tile >= unit);
    return whole > 0 ? whole : 1;
  }
  int64_t Begin(int64_t i) const { return i * tile; }
  int64_t Size(int64_t i) const { return i + 1 == Count() ? size - i * tile : tile; }
  GemmCut Halved() const {
    GemmCut cut = *this;
    cut.tile = Half();
    return cut;
  }
};

// Returns the work of the largest tile for each step of the depth: computing the tile's elements,
// and packing its two sides.
inline double GemmTileCost(const GemmCut& rows, const GemmCut& columns) {
  constexpr double kPacking = 8;
  const auto height = static_cast<double>(rows.Size(0));
  const auto width = static_cast<double>(columns.Size(0));
  return height * width + kPacking * (height + width);
}

}  // namespace detail

// Computes C[m, n] = alpha * A[m, k] B[k, n] + beta * C. C must not overlap A or B. The result does
// not depend on the number of threads; with `threads` 1 only the calling thread works. Eigen packs
// the factors into memory from the stack (128 KiB) or the heap.
//
//   Gemm<float>({m, n, k}, 1, {a, k}, {b, k, /*transposed=*/true}, {c, n});   // c = a b^T
template <class T>
void Gemm(const GemmSize& size, T alpha, const GemmMatrix<T>& a, const GemmMatrix<T>& b,
          const GemmResult<T>& c, int threads = ThreadPool::Current().threads()) {
  constexpr int64_t kThin = 4;
  // kLeastFlops: the operations that justify one more thread, about 2 us of work. kTileFlops: the
  // operations of a tile that justify packing its factors again, if threads get several tiles so
  // that none waits for long.
  constexpr double kLeastFlops = 2.5e5, kTileFlops = 1.7e7;
  const auto [m, n, k] = size;
  if (m <= 0 || n <= 0) return;
  const auto kind = m <= kThin && m <= n ? detail::GemmKind::kRows
                    : n <= kThin         ? detail::GemmKind::kColumns
                                         : detail::GemmKind::kBlocks;
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (threads == 1 || alpha == T(0) || flops < 2 * kLeastFlops)
    return detail::RunProduct<T>(kind, size, alpha, a, b, c);
  // Tiles end where Eigen's blocks end, so that each element is computed as without tiles. The loop
  // halves the tiles until there are enough of them, each time along the side for which the largest
  // tile then costs less. A side of only a few of Eigen's blocks is cut unevenly (64 columns into
  // 48 and 16).
  using Block = detail::GemmBlock<T>;
  constexpr int64_t kVectors = 128;  // a multiple of Eigen's block for products with a vector
  detail::GemmCut rows(m, kind == detail::GemmKind::kBlocks ? 2 * Block::kRows : kVectors);
  detail::GemmCut columns(n, kind == detail::GemmKind::kBlocks ? Block::kColumns : kVectors);
  const double most =
      (std::min)(flops / kLeastFlops, std::clamp(flops / kTileFlops, 1.0 * threads, 3.0 * threads));
  while (2 * static_cast<double>(rows.Count() * columns.Count()) <= most)
    if (rows.CanHalve() &&
        (!columns.CanHalve() || detail::GemmTileCost(rows.Halved(), columns) <=
                                    detail::GemmTileCost(rows, columns.Halved())))
      rows = rows.Halved();
    else if (columns.CanHalve())
      columns = columns.Halved();
    else
      break;
  const int64_t across = columns.Count(), depth = k;
  ParallelForRange(rows.Count() * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t i = rows.Begin(tile / across), j = columns.Begin(tile % across);
      const GemmSize part{rows.Size(tile / across), columns.Size(tile % across), depth};
      detail::RunProduct<T>(kind, part, alpha, a.From(i, 0), b.From(0, j),
                            {c.data + i * c.stride + j, c.stride, c.beta});
    }
  });
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_GEMM_HPP_

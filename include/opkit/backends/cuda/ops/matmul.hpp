// MatMul and Gemm of the backend "cuda": a thread sums each element of the product. They compute
// where cuBLAS is not linked, and the types that it does not have.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MATMUL_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MATMUL_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/ops/math/matmul.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Y = A B for a batch of matrices.
template <class T>
struct CUDAMatMulLoop {
  const T *a, *b;
  T* y;
  int64_t m, n, k;
  BroadcastIndex batch;  // of the matrices of A and B
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t product = i / (m * n), row = i / n % m, column = i % n;
    int64_t from[2];
    batch.Find<2>(product, from);
    y[i] = ElementOfSum<T>(DotProduct<T, CUDASumType<T>>(k, {a, (from[0] * m + row) * k, 1},
                                                         {b, from[1] * k * n + column, n}));
  }
};

// dA = dY B^T or dB = A^T dY, summed over the products with the same factor.
template <class T>
struct CUDAMatMulGradientLoop {
  const T *dy, *other;  // the other factor
  T* dx;
  int64_t m, n, k;
  bool of_b;
  // The matrices of dY and of the other factor, along the factor's own batch and along the axes
  // over which the factor is broadcast.
  BroadcastIndex own, repeats;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t rows = of_b ? k : m, columns = of_b ? n : k;
    const int64_t row = i / columns % rows, column = i % columns;
    int64_t first[2];
    own.Find<2>(i / (rows * columns), first);
    CUDASumType<T> sum = 0;
    for (int64_t repeat = 0; repeat < repeats.size; ++repeat) {
      int64_t from[2];
      repeats.Find<2>(repeat, from);
      const int64_t slope = (first[0] + from[0]) * m * n;
      const int64_t factor = (first[1] + from[1]) * k * (of_b ? m : n);
      sum +=
          of_b ? DotProduct<T, CUDASumType<T>>(m, {other, factor + row, k}, {dy, slope + column, n})
               : DotProduct<T, CUDASumType<T>>(n, {dy, slope + row * n, 1},
                                               {other, factor + column * n, 1});
    }
    dx[i] = ElementOfSum<T>(sum);
  }
};

// Y = alpha A' B' + beta C. `c` is null without C.
template <class T>
struct CUDAGemmLoop {
  MatrixLine<T> a, b;       // row 0 of A', column 0 of B'
  int64_t a_row, b_column;  // steps to the next
  const T* c;
  int64_t c_row, c_column;
  T* y;
  int64_t n, k;
  float alpha, beta;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n, column = i % n;
    const auto sum = DotProduct<T, CUDASumType<T>>(k, {a.data, row * a_row, a.step},
                                                   {b.data, column * b_column, b.step});
    y[i] = GemmElement<T>(sum, alpha, beta, c ? c + row * c_row + column * c_column : nullptr);
  }
};

}  // namespace detail

class CUDAMatMulOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<MatrixTypes>;

  bool RunOnDevice() override {
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const MatMulExtents extents(a.shape(), b.shape());
    const MatMulBatch batch(a.shape(), b.shape());
    return Visit<MatrixTypes>([&]<class T>() {
      ParallelFor(
          context_, y->numel(),
          detail::CUDAMatMulLoop<T>{
              a.data<T>(), b.data<T>(), y->mutable_data<T>(), extents.m, extents.n, extents.k,
              detail::BroadcastIndex::Of(batch.y, {batch.step_a, batch.step_b})});
    });
  }
};

class CUDAMatMulGradientOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

  bool RunOnDevice() override {
    const Tensor &dy = DenseInput(0), &a = DenseInput(1), &b = DenseInput(2);
    Tensor* dx = InferredOutput(0);
    const MatMulExtents extents(a.shape(), b.shape());
    const MatMulBatch batch(a.shape(), b.shape());
    const Dims all = BroadcastStrides(batch.y, batch.y);
    const Dims &of_own = of_b_ ? batch.step_b : batch.step_a,
               &of_other = of_b_ ? batch.step_a : batch.step_b;
    // The axes along which the factor is broadcast have the step 0.
    Dims own = all, repeats = all;
    for (int axis = 0; axis < batch.y.rank(); ++axis) {
      const bool repeated = of_own[axis] == 0;
      own[axis] = repeated ? 1 : batch.y[axis];
      repeats[axis] = repeated ? batch.y[axis] : 1;
    }
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(
          context_, dx->numel(),
          detail::CUDAMatMulGradientLoop<T>{
              dy.data<T>(), (of_b_ ? a : b).data<T>(), dx->mutable_data<T>(), extents.m, extents.n,
              extents.k, of_b_, detail::BroadcastIndex::Of(Shape(own), {all, of_other}),
              detail::BroadcastIndex::Of(Shape(repeats), {all, of_other})});
    });
  }

 private:
  const bool of_b_ = GetSingleArgument<int64_t>("of") != 0;
};

class CUDAGemmOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<MatrixTypes>;

  bool RunOnDevice() override {
    const Tensor &a = DenseInput(0), &b = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const auto& [given_alpha, beta, trans_a, trans_b] = gemm_;
    const int64_t m = y->dim(0), n = y->dim(1), k = a.dim(trans_a ? 0 : 1);
    const float alpha = gemm_.AlphaFor(k);
    const Tensor* c = HasInput(2) && beta != 0 ? &DenseInput(2) : nullptr;
    const Dims step = c ? BroadcastStrides(c->shape(), y->shape()) : Dims{0, 0};
    return Visit<MatrixTypes>([&]<class T>() {
      detail::CUDAGemmLoop<T> loop;
      loop.a = {a.data<T>(), 0, trans_a ? m : 1};
      loop.b = {b.data<T>(), 0, trans_b ? 1 : n};
      loop.a_row = trans_a ? 1 : k;
      loop.b_column = trans_b ? k : 1;
      loop.c = c ? c->data<T>() : nullptr;
      loop.c_row = step[0];
      loop.c_column = step[1];
      loop.y = y->mutable_data<T>();
      loop.n = n;
      loop.k = alpha == 0 ? 0 : k;  // A and B are not read
      loop.alpha = alpha;
      loop.beta = beta;
      ParallelFor(context_, y->numel(), loop);
    });
  }

 private:
  const detail::GemmAttributes gemm_{def()};
};

OPKIT_CUDA_OPERATOR(MatMul, CUDAMatMulOp);
OPKIT_CUDA_OPERATOR(MatMulGradient, CUDAMatMulGradientOp);
OPKIT_CUDA_OPERATOR(Gemm, CUDAGemmOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MATMUL_HPP_

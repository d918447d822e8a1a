// MatMul, its gradient and Gemm of float32 and float64 for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_MATMUL_HPP_
#define OPKIT_BACKENDS_EIGEN_MATMUL_HPP_

#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/math/matmul.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Proposes a kernel for float32 and float64. Throws UnsupportedOperatorFeature for other types.
inline std::vector<KernelConfig> ProposeForFloats(const KernelQuery& query) {
  RequireDTypes(query, 0, {DType::kFloat32, DType::kFloat64});
  return {KernelConfig()};
}
// Calls f.operator()<T>() with the type of input 0. Throws UnsupportedOperatorFeature for types
// other than float32 and float64, because an operator may be made before the type is known.
template <class F>
bool VisitFloats(const OperatorBase& op, F&& f) {
  RequireDTypes(op, kEigenBackend, {DType::kFloat32, DType::kFloat64});
  return ElementTypes<float, double>::Visit(op.Input(0).dtype(), f);
}

}  // namespace detail

// Computes a batch with a single matrix on the right as one product with many rows. Distributes the
// products of other batches over the threads, several small products at a time.
class MatMulEigenOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static constexpr auto& Propose = detail::ProposeForFloats;
  bool RunOnDevice() override {
    return detail::VisitFloats(*this, [&]<class T>() {
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const Tensor &a = DenseInput(0), &b = DenseInput(1);
      if (planned_for_ != inference().version()) [[unlikely]] {
        sizes_ = MatMulSizes(a.shape(), b.shape());
        planned_for_ = inference().version();
      }
      const int64_t m = sizes_.m, n = sizes_.n, k = sizes_.k;
      const auto count = static_cast<int64_t>(sizes_.products.size());
      const T *left = a.data<T>(), *right = b.data<T>();
      T* out = y->mutable_data<T>();
      if (count == 1 || (b.numel() == k * n && !sizes_.a_repeats))
        return Gemm<T>({m * count, n, k}, 1, {left, k}, {right, n}, {out, n});
      constexpr double kChunkFlops = 1e6;
      const double flops =
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
      const int threads = ThreadPool::Current().threads();
      // If there are fewer products than threads, all threads compute each product together.
      const int inner = count < threads ? threads : 1;
      const int64_t grain =
          flops >= kChunkFlops ? 1 : static_cast<int64_t>(kChunkFlops / (flops + 1));
      auto multiply = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto [in_a, in_b] = sizes_.products[detail::Index(i)];
          Gemm<T>({m, n, k}, 1, {left + in_a * m * k, k}, {right + in_b * k * n, n},
                  {out + i * m * n, n}, inner);
        }
      };
      inner > 1 ? multiply(0, count) : ParallelForRange(count, grain, multiply);
    });
  }

 private:
  uint64_t planned_for_ = 0;
  MatMulSizes sizes_;
};

class MatMulGradientEigenOp final : public MatMulGradientOpBase {
 public:
  using MatMulGradientOpBase::MatMulGradientOpBase;

  static constexpr auto& Propose = detail::ProposeForFloats;
  bool RunOnDevice() override {
    return detail::VisitFloats(*this, [&]<class T>() {
      Tensor* dx = InferredOutput(0);
      if (dx->numel() == 0) return;
      const T* dy = DenseInput(0).data<T>();
      const Tensor &a = DenseInput(1), &b = DenseInput(2);
      const MatMulSizes sizes(a.shape(), b.shape());
      const T *left = a.data<T>(), *right = b.data<T>();
      T* out = dx->mutable_data<T>();
      const auto add = [&](int64_t m, int64_t in_a, int64_t in_b, int64_t at, T beta) {
        const int64_t n = sizes.n, k = sizes.k;
        const GemmMatrix<T> dz{dy + at * m * n, n};
        if (of_b_)
          Gemm<T>({k, n, m}, 1, {left + in_a * m * k, k, true}, dz, {out + in_b * k * n, n, beta});
        else
          Gemm<T>({m, k, n}, 1, dz, {right + in_b * k * n, n, true}, {out + in_a * m * k, k, beta});
      };
      const auto count = static_cast<int64_t>(sizes.products.size());
      if (count > 0 && b.numel() == sizes.k * sizes.n && !sizes.a_repeats)
        return add(sizes.m * count, 0, 0, 0, 0);  // the batch is one product with many rows
      std::fill_n(out, dx->numel(), T(0));
      for (int64_t i = 0; i < count; ++i) {
        const auto [in_a, in_b] = sizes.products[detail::Index(i)];
        add(sizes.m, in_a, in_b, i, 1);
      }
    });
  }
};

class GemmEigenOp final : public GemmOpBase {
 public:
  using GemmOpBase::GemmOpBase;

  static constexpr auto& Propose = detail::ProposeForFloats;
  bool RunOnDevice() override {
    return detail::VisitFloats(*this, [&]<class T>() {
      Tensor* y = InferredOutput(0);
      const Tensor &a = DenseInput(0), &b = DenseInput(1);
      const int64_t m = y->dim(0), n = y->dim(1), k = a.dim(gemm_.trans_a ? 0 : 1);
      T* out = y->mutable_data<T>();
      const bool adds = HasInput(2) && gemm_.beta != 0;
      if (adds) FillWithC(m, n, DenseInput(2), out);
      Gemm<T>({m, n, k}, static_cast<T>(gemm_.alpha),
              {a.data<T>(), gemm_.trans_a ? m : k, gemm_.trans_a},
              {b.data<T>(), gemm_.trans_b ? k : n, gemm_.trans_b},
              {out, n, static_cast<T>(adds ? 1 : 0)});
    });
  }

 private:
  // Sets out[m, n] to beta * C, broadcast.
  template <class T>
  void FillWithC(int64_t m, int64_t n, const Tensor& c, T* out) const {
    const Dims step = BroadcastStrides(c.shape(), Shape{m, n});
    using Row = Eigen::Array<T, 1, Eigen::Dynamic>;
    for (int64_t i = 0; i < m; ++i) {
      Eigen::Map<Row> row(out + i * n, n);
      const T* from = c.data<T>() + i * step[0];
      if (step[1] == 0 && n > 0)
        row.setConstant(static_cast<T>(gemm_.beta) * *from);
      else
        row = static_cast<T>(gemm_.beta) * Eigen::Map<const Row>(from, n);
    }
  }
};

OPKIT_EIGEN_OPERATOR(MatMul, MatMulEigenOp);
OPKIT_EIGEN_OPERATOR(MatMulGradient, MatMulGradientEigenOp);
OPKIT_EIGEN_OPERATOR(Gemm, GemmEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_MATMUL_HPP_

// MatMulInteger, QLinearMatMul and com.microsoft.MatMulNBits on CUDA, by plain loops.
#ifndef OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_INTEGER_PRODUCTS_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_INTEGER_PRODUCTS_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/quantized/quantize_linear.hpp"
#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/quantized/blocked_layout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Where the zero points or scales of a factor's rows or columns lie: one for all, one for each
// line, or one for each line of each matrix.
struct CUDALines {
  int64_t count = 0, lines = 0;
  OPKIT_DEVICE int64_t At(int64_t matrix, int64_t line) const {
    if (count <= 1) return 0;
    return count > lines ? matrix * lines + line : line;
  }
};
// Sums of products of 8-bit integers without their zero points.
struct CUDAIntegerSums {
  CUDASmallIntegers a, b, a_zero, b_zero;  // zero points without data: 0
  CUDALines a_lines, b_lines;              // of the zero points
  int64_t m, n, k;
  BroadcastIndex batch;  // of the matrices of A and B

  // An element of the product: its line and its matrix in A and in B.
  struct Place {
    int64_t row, column, matrices[2];
  };
  OPKIT_DEVICE Place PlaceOf(int64_t i) const {
    Place at{i / n % m, i % n, {}};
    batch.Find<2>(i / (m * n), at.matrices);
    return at;
  }
  OPKIT_DEVICE int32_t Sum(const Place& at) const {
    const int32_t zero_a = a_zero.data ? a_zero.At(a_lines.At(at.matrices[0], at.row)) : 0;
    const int32_t zero_b = b_zero.data ? b_zero.At(b_lines.At(at.matrices[1], at.column)) : 0;
    const int64_t of_a = (at.matrices[0] * m + at.row) * k;
    const int64_t of_b = at.matrices[1] * k * n + at.column;
    uint32_t sum = 0;  // wraps around
    for (int64_t i = 0; i < k; ++i)
      sum += static_cast<uint32_t>((a.At(of_a + i) - zero_a) * (b.At(of_b + i * n) - zero_b));
    return static_cast<int32_t>(sum);
  }
};

struct CUDAMatMulIntegerLoop {
  CUDAIntegerSums sums;
  int32_t* y;
  OPKIT_DEVICE void operator()(int64_t i) const { y[i] = sums.Sum(sums.PlaceOf(i)); }
};
template <class T>
struct CUDAQLinearMatMulLoop {
  CUDAIntegerSums sums;
  CUDAReals a_scale, b_scale, y_scale;
  CUDALines a_lines, b_lines;  // of the scales
  const T* y_zero_point;
  T* y;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const auto at = sums.PlaceOf(i);
    const float factor = a_scale.At(a_lines.At(at.matrices[0], at.row)) *
                         b_scale.At(b_lines.At(at.matrices[1], at.column)) / y_scale.At(0);
    y[i] = Quantize<T>(static_cast<float>(sums.Sum(at)) * factor, *y_zero_point);
  }
};

// An element of the product is a row: its team reads a row of A and a row of B.
template <class T>
struct CUDAMatMulNBitsLoop {
  const T *a, *scales;
  const uint8_t *b, *packed_zeros;
  const T *zeros, *bias;
  T* y;
  NBitsLayout layout;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t i, const Team& team) const {
    const int64_t row = i / layout.n, column = i % layout.n, first = column * layout.blocks;
    const uint8_t* const bytes = b + first * layout.BlockBytes();
    float sum = 0;
    team.Each(layout.k, [&](int64_t k) {
      const int64_t block = k / layout.block;
      float zero = static_cast<float>(1 << (layout.bits - 1));
      if (packed_zeros)
        zero = static_cast<float>(
            layout.At(packed_zeros + column * layout.RowBytes(layout.blocks), block));
      else if (zeros)
        zero = static_cast<float>(zeros[first + block]);
      sum += static_cast<float>(a[row * layout.k + k]) *
             ((static_cast<float>(layout.At(bytes, k)) - zero) *
              static_cast<float>(scales[first + block]));
    });
    sum = team.Sum(sum);
    if (!team.is_first()) return;
    y[i] = static_cast<T>(bias ? sum + static_cast<float>(bias[column]) : sum);
  }
};

}  // namespace detail

// The base of both products of 8-bit integers.
class CUDAIntegerMatMulOp : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;

 protected:
  // `b` and the others are numbers of inputs. Zero points may be left out.
  detail::CUDAIntegerSums Sums(int b, int a_zero, int b_zero) {
    const Tensor &left = DenseInput(0), &right = DenseInput(b);
    const MatMulExtents extents(left.shape(), right.shape());
    const MatMulBatch batch(left.shape(), right.shape());
    detail::CUDAIntegerSums sums;
    sums.a = detail::CUDASmallIntegers(left), sums.b = detail::CUDASmallIntegers(right);
    sums.m = extents.m, sums.n = extents.n, sums.k = extents.k;
    sums.batch = detail::BroadcastIndex::Of(batch.y, {batch.step_a, batch.step_b});
    if (HasInput(a_zero)) {
      sums.a_zero = detail::CUDASmallIntegers(DenseInput(a_zero));
      sums.a_lines = {Input(a_zero).numel(), extents.m};
    }
    if (HasInput(b_zero)) {
      sums.b_zero = detail::CUDASmallIntegers(DenseInput(b_zero));
      sums.b_lines = {Input(b_zero).numel(), extents.n};
    }
    return sums;
  }
};

class CUDAMatMulIntegerOp final : public CUDAIntegerMatMulOp {
 public:
  using CUDAIntegerMatMulOp::CUDAIntegerMatMulOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {KernelConfig()}; }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    ParallelFor(context_, y->numel(),
                detail::CUDAMatMulIntegerLoop{Sums(1, 2, 3), y->mutable_data<int32_t>()});
    return true;
  }
};

class CUDAQLinearMatMulOp final : public CUDAIntegerMatMulOp {
 public:
  using CUDAIntegerMatMulOp::CUDAIntegerMatMulOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {KernelConfig()}; }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    for (const int i : {6, 7})
      if (Input(i).numel() != 1)
        Throw(ErrorCode::kInvalidArgument, "QLinearMatMul: ", i == 6 ? "y_scale" : "y_zero_point",
              " is ", Input(i), ", expected one element");
    const detail::CUDAIntegerSums sums = Sums(3, 2, 5);
    const auto scale = [this](int i) { return detail::CUDAReals(DenseInput(i)); };
    ByteTypes::Visit(y->dtype(), [&]<class T>() {
      ParallelFor(context_, y->numel(),
                  detail::CUDAQLinearMatMulLoop<T>{sums,
                                                   scale(1),
                                                   scale(4),
                                                   scale(6),
                                                   {Input(1).numel(), sums.m},
                                                   {Input(4).numel(), sums.n},
                                                   DenseInput(7).data<T>(),
                                                   y->mutable_data<T>()});
    });
    return true;
  }
};

class CUDAMatMulNBitsOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static constexpr auto& Propose = ProposeTypes<ScaleTypes>;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const bool packs_zeros = HasInput(3) && Input(3).dtype() == DType::kUInt8;
    return Visit<ScaleTypes>([&]<class T>() {
      const auto given = [this](int i) { return HasInput(i) ? DenseInput(i).data<T>() : nullptr; };
      ParallelForTeams(
          context_, y->numel(), layout_.k,
          detail::CUDAMatMulNBitsLoop<T>{given(0), given(2), DenseInput(1).data<uint8_t>(),
                                         packs_zeros ? DenseInput(3).data<uint8_t>() : nullptr,
                                         packs_zeros ? nullptr : given(3), given(5),
                                         y->mutable_data<T>(), layout_});
    });
  }

 private:
  const detail::NBitsLayout layout_{def()};
};

OPKIT_CUDA_OPERATOR(MatMulInteger, CUDAMatMulIntegerOp);
OPKIT_CUDA_OPERATOR(QLinearMatMul, CUDAQLinearMatMulOp);
OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCUDA, "com.microsoft.MatMulNBits", kCUDABackend,
                            CUDAMatMulNBitsOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_INTEGER_PRODUCTS_HPP_

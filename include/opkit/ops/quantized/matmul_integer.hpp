// MatMulInteger and QLinearMatMul: products of matrices of 8-bit integers. Sources:
// https://onnx.ai/onnx/operators/onnx__MatMulInteger.html (opset 10) and
// https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html (opset 21).
#ifndef OPKIT_OPS_QUANTIZED_MATMUL_INTEGER_HPP_
#define OPKIT_OPS_QUANTIZED_MATMUL_INTEGER_HPP_

#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/quantized/integer_product.hpp"
#include "opkit/ops/quantized/quantization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Checks the types of a product's factor and of its zero point, and that zero point or scale
// `input` has one element, one for each row of A (axis -2) or column of B (axis -1), or one for
// each of them in every matrix of the batch.
inline void CheckFactor(InferenceContext& c, int factor, int zero_point) {
  ExpectDType(c, factor, ByteTypes::DTypes());
  if (c.HasInput(zero_point)) c.SetInput(zero_point, c.input_dtype(factor), {});
}
inline void CheckLines(const InferenceContext& c, int factor, int axis, int input) {
  const SymbolicShape& matrix = c.input_shape(factor);
  if (!c.HasInput(input) || !c.input_shape(input).is_known() || !matrix.is_known()) return;
  const Shape all = matrix.ToShape();
  const int64_t lines = all.rank() >= -axis && all.rank() > 1 ? all.dim(axis) : 1;
  int64_t batch = 1;
  for (int i = 0; i < all.rank() - 2; ++i) batch *= all[i];
  const int64_t found = c.input_shape(input).ToShape().numel();
  if (found != 1 && found != lines && found != batch * lines)
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", input, " is ",
          ToString(c.input(input)), ", expected one element or one for each of the ", lines,
          axis == -2 ? " rows of A" : " columns of B");
}

// The matrix product's shape. Inputs `a` and `b` are the factors.
inline SymbolicShape ProductShape(InferenceContext& c, int a_input, int b_input) {
  const SymbolicShape &a = c.input_shape(a_input), &b = c.input_shape(b_input);
  for (const SymbolicShape* shape : {&a, &b})
    if (shape->has_rank() && shape->rank() == 0)
      Throw(ErrorCode::kInvalidArgument, c.def().type(),
            ": a factor is a scalar, expected a vector, a matrix or a batch of matrices");
  if (!a.has_rank() || !b.has_rank()) return {};
  const Dim inner_a = a[-1], inner_b = b.rank() == 1 ? b[0] : b[-2];
  if (!Dim::Compatible(inner_a, inner_b)) CannotMultiply(c, a, b, inner_a, inner_b);
  std::vector<Dim> out = BroadcastShape(BatchOf(a), BatchOf(b)).dims();
  if (a.rank() > 1) out.push_back(a[-2]);
  if (b.rank() > 1) out.push_back(b[-1]);
  return SymbolicShape(std::move(out));
}

}  // namespace detail

// The base of operators that multiply matrices of 8-bit integers. Keeps the packed B of a plan's
// constant from the first run on, and packs another B in each run.
class IntegerMatMulOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // The configuration's name if B is a constant.
  static constexpr const char* kConstantB = "constant B";
  static std::vector<KernelConfig> ProposeFor(const KernelQuery& query, size_t b) {
    return {detail::IntegerConfig(query.inputs[b].constant, kConstantB)};
  }

  // Multiplies and calls store(row, column, count, sums) for pieces of at most 64 columns of a row.
  // Rows are counted over all matrices of the product. Zero points may be null.
  template <class F>
  void Multiply(const Tensor& a, const Tensor& b, const Tensor* a_zero, const Tensor* b_zero,
                F&& store) {
    MatMulSizes sizes(a.shape(), b.shape());
    std::vector<int32_t> a_zeros, b_zeros;
    if (a_zero) a_zeros = detail::ZeroPoints(*a_zero);
    if (b_zero) b_zeros = detail::ZeroPoints(*b_zero);
    if (sizes.n > 0 && b.numel() == sizes.k * sizes.n && a_zeros.size() <= 1 && !sizes.a_repeats) {
      sizes.m *= static_cast<int64_t>(sizes.products.size());
      sizes.products.assign(1, {0, 0});
    }
    const bool a_signed = a.dtype() == DType::kInt8, b_signed = b.dtype() == DType::kInt8;
    const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
    const auto* left = static_cast<const uint8_t*>(a.raw_data());
    const auto* right = static_cast<const uint8_t*>(b.raw_data());
    const bool keeps = config() && config()->variant.ends_with(kConstantB);
    if (!keeps || packed_.empty()) {
      packed_.resize(detail::Index(n == 0 || k == 0 ? 1 : b.numel() / (n * k)));
      for (size_t i = 0; i < packed_.size(); ++i)
        packed_[i].Pack({right + static_cast<int64_t>(i) * k * n, k, n, b_signed});
    }
    for (size_t p = 0; p < sizes.products.size(); ++p) {
      const auto [in_a, in_b] = sizes.products[p];
      rows_.Resize(m, k);
      ParallelForRange(m, (1 << 16) / (k + 1) + 1, [&, in_a = in_a](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          rows_.Set(row, left + (in_a * m + row) * k, k, a_signed);
      });
      const detail::IntegerProduct product{rows_,
                                           packed_[k == 0 ? 0 : detail::Index(in_b)],
                                           m,
                                           Lines(a_zeros, in_a, m),
                                           Lines(b_zeros, in_b, n),
                                           a_signed,
                                           b_signed};
      const int64_t first = static_cast<int64_t>(p) * m;
      product.Run([&](int64_t row, int64_t column, int64_t count,
                      const int32_t* sums) { store(first + row, column, count, sums); },
                  loops_);
    }
  }
  // Returns elements of a list for the lines of matrix number `matrix`: one for all, one for each
  // line, or one for each line of each matrix.
  static detail::ZeroPointList Lines(const std::vector<int32_t>& values, int64_t matrix,
                                     int64_t lines) {
    if (values.empty()) return {};
    return {values.data() + LineOffset(values.size(), matrix, lines), values.size() > 1};
  }
  static int64_t LineOffset(size_t values, int64_t matrix, int64_t lines) {
    return static_cast<int64_t>(values) > lines && values > 1 ? matrix * lines : 0;
  }

  const detail::IntegerLoops loops_ = detail::AllIntegerLoops()[0];

 private:
  std::vector<detail::PackedColumns> packed_;  // one for each matrix of B
  detail::PackedRows rows_;
};

class MatMulIntegerOp final : public IntegerMatMulOpBase {
 public:
  using IntegerMatMulOpBase::IntegerMatMulOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeFor(query, 1);
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    auto* out = y->mutable_data<int32_t>();
    const int64_t n = Input(1).rank() > 1 ? Input(1).dim(-1) : 1;
    Multiply(DenseInput(0), DenseInput(1), HasInput(2) ? &DenseInput(2) : nullptr,
             HasInput(3) ? &DenseInput(3) : nullptr,
             [=](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
               std::memcpy(out + row * n + column, sums,
                           static_cast<size_t>(count) * sizeof(int32_t));
             });
    return true;
  }
};

// y = saturate(round(sum * a_scale * b_scale / y_scale) + y_zero_point).
class QLinearMatMulOp final : public IntegerMatMulOpBase {
 public:
  using IntegerMatMulOpBase::IntegerMatMulOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeFor(query, 3);
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &a = DenseInput(0), &b = DenseInput(3);
    const float y_scale = detail::ScalarScale(Input(6), "QLinearMatMul: y_scale");
    const std::vector<float> a_scale = detail::NumbersOf<float>(Input(1));
    std::vector<float> b_scale = detail::NumbersOf<float>(Input(4));
    const std::vector<int32_t> zeros = detail::ZeroPoints(Input(7));
    if (zeros.size() != 1)
      Throw(ErrorCode::kInvalidArgument, "QLinearMatMul: y_zero_point is ", Input(7),
            ", expected one element");
    if (y->numel() == 0) return true;
    const MatMulSizes sizes(a.shape(), b.shape());
    const int64_t m = sizes.m, n = sizes.n;
    const bool by_column = b_scale.size() > 1, by_row = a_scale.size() > 1;
    const float zero = static_cast<float>(zeros[0]);
    if (!by_row)
      for (float& factor : b_scale) factor = a_scale[0] * factor / y_scale;
    ByteTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->template mutable_data<T>();
      Multiply(
          a, b, &DenseInput(2), &DenseInput(5),
          [&](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
            const auto [in_a, in_b] = sizes.products[detail::Index(row / m)];
            const float* factors =
                b_scale.data() + (by_column ? LineOffset(b_scale.size(), in_b, n) + column : 0);
            float of_columns[detail::PackedColumns::kColumns];
            if (by_row) {
              const int64_t at = LineOffset(a_scale.size(), in_a, m) + row % m;
              for (int64_t j = 0; j < count; ++j)
                of_columns[j] = a_scale[detail::Index(at)] * factors[by_column ? j : 0] / y_scale;
              factors = of_columns;
            }
            detail::QuantizeSums<T>(loops_, sums, factors, by_column || by_row, zero, count,
                                    out + row * n + column);
          });
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(MatMulInteger, kNone, MatMulIntegerOp)
    .Doc(
        "The matrix product (A - a_zero_point) (B - b_zero_point) of 8-bit integers, with the "
        "shapes of MatMul. Sums are int32 and wrap around. It has no gradient: its inputs are "
        "integers.")
    .NumInputs(2, 4)
    .Input(0, "A", "[..., M, K], or [K]", ByteTypes::DTypes())
    .Input(1, "B", "[..., K, N], or [K]", ByteTypes::DTypes())
    .Input(2, "a_zero_point", "one, or one for each row: [M] or [..., M, 1]; 0 by default",
           ByteTypes::DTypes())
    .Input(3, "b_zero_point", "one, or one for each column: [N] or [..., 1, N]; 0 by default",
           ByteTypes::DTypes())
    .Output(0, "Y", "[..., M, N]", {DType::kInt32})
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer([](InferenceContext& c) {
      detail::CheckFactor(c, 0, 2);
      detail::CheckFactor(c, 1, 3);
      detail::CheckLines(c, 0, -2, 2);
      detail::CheckLines(c, 1, -1, 3);
      c.SetOutput(0, DType::kInt32, detail::ProductShape(c, 0, 1));
    });

OPKIT_STANDARD_OPERATOR(QLinearMatMul, kNone, QLinearMatMulOp)
    .Doc(StrCat("The quantised product of quantised matrices: y = saturate(round((a - "
                "a_zero_point) (b - b_zero_point) * a_scale * b_scale / y_scale) + y_zero_point), "
                "with sums in int32 and the shapes of MatMul. The factor is computed in float32.",
                detail::kNoGradientOfRounding))
    .NumInputs(8)
    .Input(0, "a", "[..., M, K], or [K]", ByteTypes::DTypes())
    .Input(1, "a_scale", "one, or one for each row: [M] or [..., M, 1]", ScaleTypes::DTypes())
    .Input(2, "a_zero_point", "as a_scale, of the type of a", ByteTypes::DTypes())
    .Input(3, "b", "[..., K, N], or [K]", ByteTypes::DTypes())
    .Input(4, "b_scale", "one, or one for each column: [N] or [..., 1, N]", ScaleTypes::DTypes())
    .Input(5, "b_zero_point", "as b_scale, of the type of b", ByteTypes::DTypes())
    .Input(6, "y_scale", "one number", ScaleTypes::DTypes())
    .Input(7, "y_zero_point", "one number", ByteTypes::DTypes())
    .Output(0, "y", "[..., M, N], of the type of y_zero_point", ByteTypes::DTypes())
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer([](InferenceContext& c) {
      detail::CheckFactor(c, 0, 2);
      detail::CheckFactor(c, 3, 5);
      for (const int i : {1, 2}) detail::CheckLines(c, 0, -2, i);
      for (const int i : {4, 5}) detail::CheckLines(c, 3, -1, i);
      c.SetOutput(0, c.input_dtype(7), detail::ProductShape(c, 0, 3));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_MATMUL_INTEGER_HPP_

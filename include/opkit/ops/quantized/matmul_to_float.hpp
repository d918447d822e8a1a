// com.microsoft.MatMulIntegerToFloat and com.microsoft.DynamicQuantizeMatMul, which ONNX Runtime's
// tools put into quantised models: a product of 8-bit integers, scaled to float32. Source:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_OPS_QUANTIZED_MATMUL_TO_FLOAT_HPP_
#define OPKIT_OPS_QUANTIZED_MATMUL_TO_FLOAT_HPP_

#include "opkit/ops/quantized/dynamic_quantize_linear.hpp"
#include "opkit/ops/quantized/matmul_integer.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws kInvalidArgument if the shape of an input is known and has neither one element nor one for
// each column of B, input 1. `may_be_one` is false for a bias.
inline void CheckColumns(const InferenceContext& c, int input, bool may_be_one) {
  const SymbolicShape& b = c.input_shape(1);
  if (!c.HasInput(input) || !c.input_shape(input).is_known() || !b.has_rank()) return;
  const Dim columns = b.rank() > 1 ? b[-1] : Dim(1);
  const int64_t found = c.input_shape(input).ToShape().numel();
  if (!Dim::Compatible(columns, found) && !(may_be_one && found == 1))
    Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", input, " is ",
          ToString(c.input(input)), ", expected ", may_be_one ? "one element or " : "",
          "one for each of the ", ToString(columns), " columns of B");
}

}  // namespace detail

// The base of both operators.
class MatMulToFloatOpBase : public IntegerMatMulOpBase {
 public:
  using IntegerMatMulOpBase::IntegerMatMulOpBase;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeFor(query, 1);
  }

 protected:
  // Computes y = (a - a_zero)(b - b_zero) * a_scale * b_scale + bias. The scale of B has one
  // element or one for each column; zero points and bias may be null.
  void Scaled(const Tensor& a, const Tensor& b, float a_scale, const Tensor& b_scale,
              const Tensor* a_zero, const Tensor* b_zero, const Tensor* bias, Tensor& y) {
    if (y.numel() == 0) return;
    const int64_t n = b.rank() > 1 ? b.dim(-1) : 1;
    std::vector<float> factors = b_scale.ToVector<float>();
    factors.resize(detail::Index(n), factors[0]);
    for (float& factor : factors) factor *= a_scale;
    const float *by = factors.data(), *added = bias ? bias->data<float>() : nullptr;
    auto* out = y.mutable_data<float>();
    Multiply(a, b, a_zero, b_zero,
             [=](int64_t row, int64_t column, int64_t count, const int32_t* sums) {
               float* to = out + row * n + column;
               for (int64_t j = 0; j < count; ++j)
                 to[j] = static_cast<float>(sums[j]) * by[column + j];
               if (added)
                 for (int64_t j = 0; j < count; ++j) to[j] += added[column + j];
             });
  }
};

class MatMulIntegerToFloatOp final : public MatMulToFloatOpBase {
 public:
  using MatMulToFloatOpBase::MatMulToFloatOpBase;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const auto optional = [&](int i) { return HasInput(i) ? &DenseInput(i) : nullptr; };
    Scaled(DenseInput(0), DenseInput(1), detail::ScalarScale(Input(2), "a_scale"), DenseInput(3),
           optional(4), optional(5), optional(6), *y);
    return true;
  }
};

// Quantises A as DynamicQuantizeLinear does, and multiplies.
class DynamicQuantizeMatMulOp final : public MatMulToFloatOpBase {
 public:
  using MatMulToFloatOpBase::MatMulToFloatOpBase;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& a = DenseInput(0);
    const auto* from = a.data<float>();
    const auto found = detail::DynamicScale::Of(from, a.numel());
    if (quantized_.shape() != a.shape() || quantized_.dtype() != DType::kUInt8)
      quantized_ = Tensor(a.shape(), DType::kUInt8);
    found.Quantize8(from, a.numel(), quantized_.mutable_data<uint8_t>());
    const Tensor zero_point = Tensor::Scalar(found.zero_point);
    const auto optional = [&](int i) { return HasInput(i) ? &DenseInput(i) : nullptr; };
    Scaled(quantized_, DenseInput(1), found.scale, DenseInput(2), &zero_point, optional(3),
           optional(4), *y);
    return true;
  }

 private:
  Tensor quantized_;
};

OPKIT_DOMAIN_OPERATOR("com.microsoft", MatMulIntegerToFloat, kNone, MatMulIntegerToFloatOp)
    .Doc(
        "Y = (A - a_zero_point) (B - b_zero_point) * a_scale * b_scale + bias, with the shapes of "
        "MatMul and sums in int32. It has no gradient: A and B are integers.")
    .NumInputs(4, 7)
    .Input(0, "A", "[..., M, K], or [K]", ByteTypes::DTypes())
    .Input(1, "B", "[..., K, N], or [K]", ByteTypes::DTypes())
    .Input(2, "a_scale", "one number", {DType::kFloat32})
    .Input(3, "b_scale", "one number, or one for each column [N]", {DType::kFloat32})
    .Input(4, "a_zero_point", "one number, of the type of A; 0 by default", ByteTypes::DTypes())
    .Input(5, "b_zero_point", "one number, or one for each column [N]; 0 by default",
           ByteTypes::DTypes())
    .Input(6, "bias", "optional: [N]", {DType::kFloat32})
    .Output(0, "Y", "[..., M, N]", {DType::kFloat32})
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer([](InferenceContext& c) {
      detail::CheckFactor(c, 0, 4);
      detail::CheckFactor(c, 1, 5);
      for (const int i : {2, 3}) ExpectDType(c, i, {DType::kFloat32});
      for (const int i : {3, 5}) detail::CheckColumns(c, i, true);
      detail::CheckColumns(c, 6, false);
      c.SetOutput(0, DType::kFloat32, detail::ProductShape(c, 0, 1));
    });

OPKIT_DOMAIN_OPERATOR("com.microsoft", DynamicQuantizeMatMul, kNone, DynamicQuantizeMatMulOp)
    .Doc(StrCat("Quantises A to uint8 as DynamicQuantizeLinear does and multiplies: Y = (A' - "
                "zero_point) (B - b_zero_point) * scale * b_scale + bias, with the shapes of "
                "MatMul and sums in int32.",
                detail::kNoGradientOfRounding))
    .NumInputs(3, 5)
    .Input(0, "A", "[..., M, K], or [K]", {DType::kFloat32})
    .Input(1, "B", "[..., K, N], or [K]", ByteTypes::DTypes())
    .Input(2, "b_scale", "one number, or one for each column [N]", {DType::kFloat32})
    .Input(3, "b_zero_point", "one number, or one for each column [N]; 0 by default",
           ByteTypes::DTypes())
    .Input(4, "bias", "optional: [N]", {DType::kFloat32})
    .Output(0, "Y", "[..., M, N]", {DType::kFloat32})
    .Flops([](auto& c) { return detail::ProductFlops(c.output(0), c.input(0), -1); })
    .Infer([](InferenceContext& c) {
      ExpectDType(c, 0, {DType::kFloat32});
      detail::CheckFactor(c, 1, 3);
      ExpectDType(c, 2, {DType::kFloat32});
      for (const int i : {2, 3}) detail::CheckColumns(c, i, true);
      detail::CheckColumns(c, 4, false);
      c.SetOutput(0, DType::kFloat32, detail::ProductShape(c, 0, 1));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_MATMUL_TO_FLOAT_HPP_

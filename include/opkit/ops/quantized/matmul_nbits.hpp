// com.microsoft.MatMulNBits: a product with a matrix of 2-bit, 4-bit or 8-bit integers that are
// scaled block by block, as language models store their weights. Source:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_
#define OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_

#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/quantized/blocked_dot.hpp"
#include "opkit/ops/quantized/blocked_product.hpp"
#include "opkit/ops/quantized/quantization.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferMatMulNBits(InferenceContext& c) {
  const NBitsLayout sizes(c.def());
  const std::string& op = c.def().type();
  ExpectDType(c, 0, ScaleTypes::DTypes());
  const DType dtype = c.input_dtype(0);
  c.SetInput(1, DType::kUInt8, {sizes.n, sizes.blocks, sizes.BlockBytes()});
  c.SetInput(2, dtype, {});
  const auto expect_elements = [&](int input, int64_t count) {
    const SymbolicShape& shape = c.input_shape(input);
    if (shape.is_known() && shape.ToShape().numel() != count)
      Throw(ErrorCode::kInvalidArgument, op, ": input ", input, " is ", ToString(c.input(input)),
            ", expected ", count, " elements");
  };
  expect_elements(2, sizes.n * sizes.blocks);
  if (c.HasInput(3) && c.input_dtype(3) != DType::kUndefined) {
    if (c.input_dtype(3) != DType::kUInt8) c.SetInput(3, dtype, {});
    expect_elements(3, sizes.n * (c.input_dtype(3) == DType::kUInt8 ? sizes.RowBytes(sizes.blocks)
                                                                    : sizes.blocks));
  }
  if (c.HasInput(4))
    Throw(ErrorCode::kUnsupported, op, ": opkit does not read the order of groups, g_idx");
  if (c.HasInput(5)) c.SetInput(5, dtype, {sizes.n});
  SymbolicShape y = c.input_shape(0);
  if (y.has_rank()) {
    if (y.rank() < 1 || !Dim::Compatible(y[-1], sizes.k))
      Throw(ErrorCode::kInvalidArgument, op, ": A is ", ToString(c.input(0)), ", expected ",
            sizes.k, " elements along its last axis");
    y[y.rank() - 1] = sizes.n;
  }
  c.SetOutput(0, dtype, y);
}

}  // namespace detail

class MatMulNBitsOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    std::vector<float> buffers[6];
    // Returns an input as float32.
    const auto floats = [&](int input) {
      const Tensor& tensor = DenseInput(input);
      if (tensor.dtype() == DType::kFloat32) return tensor.data<float>();
      std::vector<float>& buffer = buffers[input];
      buffer = detail::NumbersOf<float>(tensor);
      return static_cast<const float*>(buffer.data());
    };
    const float *left = floats(0), *scales = floats(2), *zeros = nullptr, *bias = nullptr;
    const uint8_t* packed_zeros = nullptr;
    if (HasInput(3) && Input(3).dtype() == DType::kUInt8)
      packed_zeros = DenseInput(3).data<uint8_t>();
    else if (HasInput(3))
      zeros = floats(3);
    if (HasInput(5)) bias = floats(5);
    const int64_t n = layout_.n, blocks = layout_.blocks;
    const auto middle = static_cast<float>(1 << (layout_.bits - 1));
    const auto factors = [&](int64_t column, int64_t block, float& zero, float& scale) {
      const int64_t at = column * blocks + block;
      scale = scales[at];
      zero = packed_zeros ? static_cast<float>(
                                layout_.At(packed_zeros + column * layout_.RowBytes(blocks), block))
             : zeros ? zeros[at]
                     : middle;
    };
    const auto fill_zeros = [&](int64_t column, float* to) {
      float scale = 0;
      for (int64_t block = 0; block < blocks; ++block) factors(column, block, to[block], scale);
    };
    const int64_t rows = DenseInput(0).numel() / layout_.k;
    const auto* bytes = DenseInput(1).data<uint8_t>();
    const bool as_bytes = may_round_ && dot_.bytes && rows <= kByteRows;
    ScaleTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->template mutable_data<T>();
      const auto store = [&](int64_t row, int64_t column, float sum) {
        out[row * n + column] = static_cast<T>(bias ? sum + bias[column] : sum);
      };
      if (!as_bytes && dot_.unpack && rows > detail::kMostDotRows) {
        detail::BlockedPanels(layout_, left, rows, bytes, scales, HasInput(3), fill_zeros, store,
                              dot_);
      } else if (as_bytes || dot_.floats) {
        detail::ReorderRows(layout_, left, rows, as_bytes, dot_.reorder, rows_);
        detail::BlockedDot(layout_, rows_, rows, bytes, scales, HasInput(3), fill_zeros, store,
                           as_bytes ? dot_.bytes : dot_.floats);
      } else {
        detail::BlockedProduct(layout_, left, rows, bytes, factors, store);
      }
    });
    return true;
  }

 private:
  const detail::NBitsLayout layout_{def()};
  // More rows take less time as float32 numbers, which BlockedPanels multiplies.
  static constexpr int64_t kByteRows = 16;

  const bool may_round_ = GetSingleArgument<int64_t>("accuracy_level") == 4;
  const detail::BlockedDotLoops dot_{layout_.bits};
  detail::BlockedRows rows_;  // whose memory the next run uses again
};

OPKIT_DOMAIN_OPERATOR("com.microsoft", MatMulNBits, kNone, MatMulNBitsOp)
    .Doc(
        "Y = A B' + bias, where row n of B has the numbers (B[n, k] - zero_point) * scale, with a "
        "zero point and a scale for each block of a row. It has no gradient: "
        "B is made of integers.")
    .NumInputs(3, 6)
    .Input(0, "A", "[..., K]", ScaleTypes::DTypes())
    .Input(1, "B",
           "[N, blocks of a row, block_size * bits / 8]: small integers, the lowest bits "
           "of a byte first",
           {DType::kUInt8})
    .Input(2, "scales", "one for each block, N * blocks elements, of the type of A",
           ScaleTypes::DTypes())
    .Input(3, "zero_points",
           "one for each block, of the type of A or as integers of `bits` bits, of which each row "
           "begins at a byte; optional: 2^(bits - 1)",
           {DType::kUInt8, DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    .Input(4, "g_idx", "must be left out", {DType::kInt32})
    .Input(5, "bias", "optional: [N], of the type of A", ScaleTypes::DTypes())
    .Output(0, "Y", "[..., N], of the type of A", ScaleTypes::DTypes())
    .Arg<int64_t>("K", "columns of a row of B")
    .Arg<int64_t>("N", "rows of B")
    .Arg<int64_t>("bits", "of a number of B: 2, 4 or 8", 4)
    .Arg<int64_t>("block_size", "numbers of a block, a power of two from 16 on")
    .Arg<int64_t>("accuracy_level",
                  "4: A may be rounded, each block to multiples of 1/127 of its largest |x|, where "
                  "that is faster (few rows, on CPUs with AVX512-VNNI); otherwise sums are in "
                  "float32",
                  0)
    .Flops([](auto& c) {
      return 2 * OpSchema::Elements(c.output(0)) *
             static_cast<uint64_t>(c.def().args().template Get<int64_t>("K", 0));
    })
    .Infer(&detail::InferMatMulNBits);

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_

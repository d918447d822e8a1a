// com.microsoft.MatMulNBits: a product with a matrix of 2-bit, 4-bit or 8-bit integers that are
// scaled block by block, as language models store their weights. Source:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, version 1.
#ifndef OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_
#define OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_

#include "opkit/ops/math/matmul.hpp"
#include "opkit/ops/quantized/quantization.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The extents of a matrix [n, k] of small integers, and where they lie. A row is divided into
// blocks, which begin at a byte; the lowest bits of a byte come first.
struct BlockedMatrix {
  int64_t n, k, bits, block, blocks;

  // Throws kInvalidArgument for attributes without a meaning.
  explicit BlockedMatrix(const OperatorDef& def)
      : n(def.args().Get<int64_t>("N", 0)),
        k(def.args().Get<int64_t>("K", 0)),
        bits(def.args().Get<int64_t>("bits", 4)),
        block(def.args().Get<int64_t>("block_size", 0)) {
    constexpr int64_t kMost = int64_t{1} << 31;  // so that products fit in an int64
    if (n < 1 || k < 1 || n > kMost || k > kMost || block < 16 || block > kMost ||
        (block & (block - 1)) != 0 || (bits != 2 && bits != 4 && bits != 8))
      Throw(ErrorCode::kInvalidArgument, def.type(), ": N is ", n, ", K ", k, ", block_size ",
            block, ", bits ", bits,
            ", expected N and K from 1 on, a power of two from 16 on, and 2, 4 or 8 bits");
    blocks = (k + block - 1) / block;
  }
  int64_t BlockBytes() const { return block * bits / 8; }
  // The bytes of a row of `count` numbers without blocks, as zero points have them.
  int64_t RowBytes(int64_t count) const { return (count * bits + 7) / 8; }
  int32_t At(const uint8_t* bytes, int64_t i) const {
    const int64_t bit = i * bits;
    return (bytes[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
  }
};

inline void InferMatMulNBits(InferenceContext& c) {
  const BlockedMatrix sizes(c.def());
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

// Converts one row of B at a time to float32, so that B stays as small as it is stored.
class MatMulNBitsOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const std::vector<float> scales = detail::NumbersOf<float>(DenseInput(2));
    const auto* bytes = DenseInput(1).data<uint8_t>();
    const Tensor* zeros = HasInput(3) ? &DenseInput(3) : nullptr;
    const bool packs_zeros = zeros && zeros->dtype() == DType::kUInt8;
    std::vector<float> zero_points, bias;
    if (zeros && !packs_zeros) zero_points = detail::NumbersOf<float>(*zeros);
    if (HasInput(5)) bias = detail::NumbersOf<float>(DenseInput(5));
    const int64_t n = sizes_.n, k = sizes_.k, blocks = sizes_.blocks;
    const Tensor& a = DenseInput(0);
    std::vector<float> converted;
    if (a.dtype() != DType::kFloat32) converted = detail::NumbersOf<float>(a);
    const float* left = a.dtype() == DType::kFloat32 ? a.data<float>() : converted.data();
    const int64_t rows = a.numel() / k;
    ScaleTypes::Visit(y->dtype(), [&]<class T>() {
      T* out = y->template mutable_data<T>();
      ParallelForRange(n, (1 << 16) / (k * (rows + 1)) + 1, [&](int64_t begin, int64_t end) {
        std::vector<float> row(detail::Index(k));
        for (int64_t column = begin; column < end; ++column) {
          for (int64_t block = 0; block < blocks; ++block) {
            const int64_t at = column * blocks + block;
            float zero = static_cast<float>(1 << (sizes_.bits - 1));
            if (packs_zeros)
              zero = static_cast<float>(
                  sizes_.At(zeros->data<uint8_t>() + column * sizes_.RowBytes(blocks), block));
            else if (zeros)
              zero = zero_points[detail::Index(at)];
            const float scale = scales[detail::Index(at)];
            const uint8_t* from = bytes + at * sizes_.BlockBytes();
            const int64_t first = block * sizes_.block;
            for (int64_t i = 0; i < sizes_.block && first + i < k; ++i)
              row[detail::Index(first + i)] =
                  (static_cast<float>(sizes_.At(from, i)) - zero) * scale;
          }
          for (int64_t m = 0; m < rows; ++m) {
            float sum = Dot(left + m * k, row.data(), k);
            if (!bias.empty()) sum += bias[detail::Index(column)];
            out[m * n + column] = static_cast<T>(sum);
          }
        }
      });
    });
    return true;
  }

 private:
  // Sums in several lanes, which a compiler can keep in one register.
  static float Dot(const float* x, const float* y, int64_t count) {
    constexpr int64_t kLanes = 16;
    float sums[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * y[i + lane];
    float sum = 0;
    for (; i < count; ++i) sum += x[i] * y[i];
    for (const float lane : sums) sum += lane;
    return sum;
  }

  const detail::BlockedMatrix sizes_{def()};
};

OPKIT_DOMAIN_OPERATOR("com.microsoft", MatMulNBits, kNone, MatMulNBitsOp)
    .Doc(
        "Y = A B' + bias, where row n of B has the numbers (B[n, k] - zero_point) * scale, with a "
        "zero point and a scale for each block of a row. Sums are in float32. It has no gradient: "
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
    .Arg<int64_t>("accuracy_level", "the least accuracy; opkit always computes in float32", 0)
    .Flops([](auto& c) {
      return 2 * OpSchema::Elements(c.output(0)) *
             static_cast<uint64_t>(c.def().args().template Get<int64_t>("K", 0));
    })
    .Infer(&detail::InferMatMulNBits);

}}  // namespace opkit

#endif  // OPKIT_OPS_QUANTIZED_MATMUL_NBITS_HPP_

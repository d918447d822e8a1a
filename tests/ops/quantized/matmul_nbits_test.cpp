// com.microsoft.MatMulNBits.
#include "opkit/ops/quantized/matmul_nbits.hpp"

#include "ops/data_movement.hpp"

namespace matmul_nbits_test {
using namespace opkit_tests;

namespace {

constexpr const char* kOp = "com.microsoft.MatMulNBits";

// Packs the rows of a matrix of small integers; each row fills its last block with zeros.
Tensor Packed(const std::vector<std::vector<int>>& rows, int bits, int64_t block) {
  const int64_t blocks = (static_cast<int64_t>(rows[0].size()) + block - 1) / block;
  Tensor out({static_cast<int64_t>(rows.size()), blocks, block * bits / 8}, DType::kUInt8);
  std::fill_n(out.mutable_data<uint8_t>(), out.numel(), uint8_t{0});
  const int64_t row_bytes = blocks * block * bits / 8;
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 0; i < rows[row].size(); ++i) {
      const int64_t bit = static_cast<int64_t>(i) * bits;
      auto& byte = out.mutable_data<uint8_t>()[static_cast<int64_t>(row) * row_bytes + bit / 8];
      byte = static_cast<uint8_t>(byte | rows[row][i] << (bit % 8));
    }
  return out;
}
Arguments Sizes(int64_t n, int64_t k, int64_t bits, int64_t block = 16) {
  return {{"N", n}, {"K", k}, {"bits", bits}, {"block_size", block}};
}
std::vector<int> Ramp(int count, int from) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back((from + i) % 4);
  return out;
}

TEST_CASE("each row of B has its blocks, scales and zero points") {
  // 18 columns: a block of 16 and one of 2. A row of ones gives the sum of a row of B.
  const Tensor ones = Filled({1, 18}, 1);
  for (const int bits : {2, 4, 8}) {
    CAPTURE(bits);
    const Tensor b = Packed({Ramp(18, 0), Ramp(18, 1)}, bits, 16);
    const Tensor scales = Vector({1, 10, 2, 100});
    // Blocks sum to 24 and 1, then 24 and 3.
    const auto middle = static_cast<float>(1 << (bits - 1));
    CHECK(FloatsOf(Invoke(kOp, {ones, b, scales}, Sizes(2, 18, bits))[0]) ==
          Floats{24 - 16 * middle + 10 * (1 - 2 * middle),
                 2 * (24 - 16 * middle) + 100 * (3 - 2 * middle)});
    const Tensor zeros = Vector({0, 1, 0.5f, 0});
    CHECK(FloatsOf(Invoke(kOp, {ones, b, scales, zeros}, Sizes(2, 18, bits))[0]) ==
          Floats{24 - 10, 32 + 300});
    // Zero points 1, 2 and 3, 1 as integers: a row of them begins at a byte.
    const Tensor packed = bits == 8 ? Vector<uint8_t>({1, 2, 3, 1})
                                    : Vector<uint8_t>({static_cast<uint8_t>(1 | 2 << bits),
                                                       static_cast<uint8_t>(3 | 1 << bits)});
    CHECK(FloatsOf(Invoke(kOp, {ones, b, scales, packed}, Sizes(2, 18, bits))[0]) ==
          Floats{8 - 30, -48 + 100});
  }
}

TEST_CASE("rows of A are multiplied, and a bias is added") {
  const Tensor b = Packed({Ramp(16, 0), Ramp(16, 2)}, 4, 16);
  Tensor a = Filled({2, 1, 16}, 0);
  a.mutable_data<float>()[1] = 1;        // takes column 1
  a.mutable_data<float>()[16 + 3] = -2;  // takes -2 times column 3
  const std::vector<Tensor> inputs{
      a, b, Vector({1, 1}), Vector({0, 0}), Tensor(), Vector({10, 20})};
  const Tensor y = Invoke(kOp, inputs, Sizes(2, 16, 4))[0];
  CHECK(y.shape() == Shape{2, 1, 2});
  CHECK(FloatsOf(y) == Floats{11, 23, 4, 18});
}

TEST_CASE("shapes, types and attributes that do not fit are refused") {
  const Known b(DType::kUInt8, {3, 2, 8});
  CHECK(Inferred(kOp, {{Sym("M"), 20}, b, {6}}, Sizes(3, 20, 4)) == "float32[M, 3]");
  CHECK(Contains(Refused(kOp, {{2, 21}, b, {6}}, Sizes(3, 20, 4)), "expected 20 elements along"));
  CHECK(Contains(Refused(kOp, {{2, 20}, b, {5}}, Sizes(3, 20, 4)), "expected 6 elements"));
  CHECK(Contains(Refused(kOp, {{2, 20}, b, {6}}, Sizes(3, 20, 3)), "2, 4 or 8 bits"));
  CHECK(Contains(
      Refused(kOp, {{2, 20}, b, {6}, kLeftOut, Known(DType::kInt32, {20})}, Sizes(3, 20, 4)),
      "g_idx"));
  CHECK(!Refused(kOp, {{2, 20}, Known(DType::kUInt8, {3, 2, 9}), {6}}, Sizes(3, 20, 4)).empty());
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef(kOp, {"a", "b", "s"}, {"y"}, Sizes(3, 20, 4)),
            {Random({2, 20}, 3), Counting({3, 2, 8}, DType::kUInt8), Random({6}, 4)});
}

}  // namespace
}  // namespace matmul_nbits_test

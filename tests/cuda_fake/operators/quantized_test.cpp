// The operators on CUDA that convert and multiply quantised numbers, against the reference kernels
// of the CPU.
#include <doctest/doctest.h>

#include "on_cuda.hpp"
#include "opkit/backends/cuda/ops/quantized/integer_products.hpp"
#include "opkit/backends/cuda/ops/quantized/quantize_linear.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace quantized_test {
using namespace opkit;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns a tensor whose elements are numbers of `dtype` between -100 and 100, without the sign for
// types without one.
Tensor Numbers(const Shape& shape, DType dtype, uint64_t seed = 1) {
  Tensor out(shape, dtype);
  int64_t i = 0;
  for (const float number : Random(shape, seed).ToVector<float>()) {
    const bool is_signed = dtype != DType::kUInt8 && dtype != DType::kUInt16;
    detail::SetNumber(out, i++, std::round(is_signed ? 100 * number : 50 + 50 * number));
  }
  return out;
}
// Returns a tensor of positive numbers.
Tensor Scales(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype);
  for (int64_t i = 0; i < out.numel(); ++i)
    detail::SetNumber(out, i, 0.25 + 0.5 * static_cast<double>(i % 5));
  return out;
}
// Runs on both devices. All outputs must be equal up to `tolerance`.
void Compare(const std::string& op, const std::vector<Tensor>& inputs, const Arguments& args = {},
             int outputs = 1, double tolerance = 0) {
  CheckOnCuda(kCUDABackend, op, inputs, args, outputs, tolerance);
}

}  // namespace

TEST_CASE("numbers are quantised by one scale, by those of an axis and by those of blocks") {
  const Tensor x = Numbers({3, 10, 4}, DType::kFloat32);
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16}) {
    Compare("QuantizeLinear", {x, Scales({}), Numbers({}, dtype)});
    Compare("QuantizeLinear", {x, Scales({10}), Numbers({10}, dtype)});
    Compare("QuantizeLinear", {x, Scales({4}), Numbers({4}, dtype)}, {{"axis", -1}});
    for (const int64_t block : {3, 5}) {
      const Shape blocks{3, (10 + block - 1) / block, 4};
      Compare("QuantizeLinear", {x, Scales(blocks), Numbers(blocks, dtype)},
              {{"block_size", block}});
    }
    Compare("QuantizeLinear", {x, Scales({3, 10, 2}), Numbers({3, 10, 2}, dtype)},
            {{"block_size", 3}, {"axis", 2}});
  }
  for (const DType dtype : {DType::kInt4, DType::kUInt4, DType::kInt2, DType::kUInt2}) {
    Tensor zero({7}, dtype);
    for (int64_t i = 0; i < 7; ++i)
      SetPackedCode(zero.raw_mutable_data(), BitSize(dtype), i, static_cast<uint8_t>(i % 4));
    Compare("QuantizeLinear", {Numbers({3, 7}, DType::kFloat32), Filled({7}, 20), zero});
    Compare("QuantizeLinear", {Numbers({5}, DType::kFloat32), Filled({}, 20)},
            {{"output_dtype", OnnxNumberOf(dtype)}});
  }
  Compare("QuantizeLinear", {x, Scales({})});
  Compare("QuantizeLinear", {Vector({kNan, 1e30f, -1e30f, 0.5f, 1.5f, -2.5f}), Filled({}, 1)});
  Compare("QuantizeLinear", {Numbers({20}, DType::kFloat16), Scales({}, DType::kFloat16)});
  Compare("QuantizeLinear", {Numbers({20}, DType::kBFloat16), Scales({}, DType::kFloat32)});
  Compare("QuantizeLinear", {Numbers({20}, DType::kInt32), Scales({})});
  Compare("QuantizeLinear", {Tensor({0, 3}, DType::kFloat32), Scales({})});
}

TEST_CASE("integers of all sizes become numbers") {
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16}) {
    const Tensor x = Numbers({3, 10, 4}, dtype);
    Compare("DequantizeLinear", {x, Scales({})});
    Compare("DequantizeLinear", {x, Scales({10}), Numbers({10}, dtype, 2)});
    Compare("DequantizeLinear", {x, Scales({3, 4, 4}), Numbers({3, 4, 4}, dtype, 2)},
            {{"block_size", 3}});
  }
  Compare("DequantizeLinear", {Vector<int32_t>({INT32_MAX, INT32_MIN, 5}), Scales({})});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16})
    Compare("DequantizeLinear", {Numbers({30}, DType::kInt8), Scales({}, dtype)});
  for (const DType dtype : {DType::kInt4, DType::kUInt4, DType::kInt2, DType::kUInt2}) {
    Tensor x({3, 7}, dtype), zero({7}, dtype);
    for (Tensor* one : {&x, &zero})
      for (int64_t i = 0; i < one->numel(); ++i)
        SetPackedCode(one->raw_mutable_data(), BitSize(dtype), i,
                      static_cast<uint8_t>(i * 7 % (1 << BitSize(dtype))));
    Compare("DequantizeLinear", {x, Scales({7}), zero});
  }
}

TEST_CASE("a tensor is quantised by a scale of its own numbers") {
  Compare("DynamicQuantizeLinear", {Numbers({3, 70}, DType::kFloat32)}, {}, 3);
  Compare("DynamicQuantizeLinear", {Random({20000}, 3)}, {}, 3);
  Compare("DynamicQuantizeLinear", {Vector({3, kNan, 9})}, {}, 3);
  Compare("DynamicQuantizeLinear", {Filled({5}, 0)}, {}, 3);
  Compare("DynamicQuantizeLinear", {Tensor({0}, DType::kFloat32)}, {}, 3);
}

TEST_CASE("products of integers have zero points and scales for all lines") {
  for (const auto& [left, right] :
       {std::pair{DType::kUInt8, DType::kInt8}, {DType::kInt8, DType::kUInt8}}) {
    const Tensor a = Numbers({2, 3, 5}, left), b = Numbers({2, 5, 4}, right, 2);
    Compare("MatMulInteger", {a, b});
    Compare("MatMulInteger", {a, b, Numbers({}, left), Numbers({}, right)});
    Compare("MatMulInteger", {a, b, Numbers({3}, left), Numbers({4}, right)});
    Compare("MatMulInteger", {a, b, Numbers({2, 3, 1}, left), Numbers({2, 1, 4}, right)});
    Compare("MatMulInteger", {Numbers({2, 1, 3, 5}, left), Numbers({4, 5, 2}, right)});
    Compare("MatMulInteger", {Numbers({5}, left), Numbers({5}, right)});
    Compare("MatMulInteger", {Tensor({3, 0}, left), Tensor({0, 2}, right)});
    for (const DType out : {DType::kInt8, DType::kUInt8}) {
      Compare("QLinearMatMul", {a, Scales({3}), Numbers({3}, left), b, Scales({4}),
                                Numbers({4}, right), Filled({}, 900), Numbers({}, out)});
      Compare("QLinearMatMul", {a, Scales({2, 3, 1}), Numbers({2, 3, 1}, left), b, Scales({}),
                                Numbers({}, right), Filled({}, 900), Numbers({}, out)});
    }
  }
  CHECK(Contains(ErrorOf([] {
                   const Tensor a = Numbers({3, 5}, DType::kInt8);
                   const Tensor zero = Numbers({}, DType::kInt8);
                   Compare("QLinearMatMul", {a, Scales({}), zero, Numbers({5, 2}, DType::kInt8),
                                             Scales({}), zero, Scales({2}), zero});
                 }).what(),
                 "y_scale"));
}

TEST_CASE("products with matrices of integers in blocks") {
  for (const int64_t bits : {2, 4, 8})
    for (const int64_t k : {32, 40}) {
      const int64_t n = 5, blocks = (k + 15) / 16;
      const Arguments args{{"N", n}, {"K", k}, {"bits", bits}, {"block_size", 16}};
      Tensor b({n, blocks, 2 * bits}, DType::kUInt8);
      for (int64_t i = 0; i < b.numel(); ++i)
        b.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
      const Tensor a = Random({2, 3, k}, 1), scales = Random({n * blocks}, 2);
      const int64_t zero_bytes = n * ((blocks * bits + 7) / 8);
      const std::string op = "com.microsoft.MatMulNBits";
      Compare(op, {a, b, scales}, args, 1, 1e-3);
      Compare(op, {a, b, scales, Numbers({zero_bytes}, DType::kUInt8), Tensor(), Random({n}, 3)},
              args, 1, 1e-3);
      Compare(op, {a, b, scales, Random({n * blocks}, 4)}, args, 1, 1e-3);
    }
}

TEST_CASE("types that the kernels of quantised numbers decline") {
  const auto why = [](auto propose, const char* op, std::vector<TensorInfo> inputs, DType to) {
    const OperatorDef def(op, {"x", "scale"}, {"y"});
    const std::vector<TensorInfo> outputs = {{to, Shape{4}}};
    return std::string(ErrorOf([&] { propose({def, inputs, outputs}); }).what());
  };
  const TensorInfo scale{DType::kFloat32, Shape{}};
  CHECK(Contains(why(CUDAQuantizeLinearOp::Propose, "QuantizeLinear",
                     {{DType::kFloat32, Shape{4}}, scale}, DType::kFloat8E5M2),
                 "the output is float8"));
  CHECK(Contains(why(CUDADequantizeLinearOp::Propose, "DequantizeLinear",
                     {{DType::kFloat8E5M2, Shape{4}}, scale}, DType::kFloat32),
                 "input 0 is float8"));
}

}  // namespace quantized_test

#include "opkit/ops/math/matmul.hpp"

#include <limits>

#include "on_cuda.hpp"

namespace cuda_matmul_test {
using namespace opkit;

namespace {

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

struct Factors {
  Shape a, b;
};
const Factors kFactors[] = {{{2, 3}, {3, 4}},
                            {{3}, {3, 4}},
                            {{2, 3}, {3}},
                            {{3}, {3}},
                            {{2, 5, 3, 4}, {4, 6}},        // one tall product
                            {{5, 2, 3}, {5, 3, 4}},        // a batch
                            {{2, 3}, {5, 3, 4}},           // A is used by all
                            {{2, 1, 3, 4}, {3, 4, 5}},     // both are broadcast
                            {{2, 3, 1, 4}, {1, 3, 4, 2}},  // B is broadcast along the outer axis
                            {{70, 33}, {33, 65}}};

}  // namespace

TEST_CASE("MatMul on CUDA has the results of the CPU") {
  for (const std::string& backend : CudaBackendsOf("MatMul")) {
    for (const auto& [a, b] : kFactors)
      for (const DType dtype : kFloats)
        CheckOnCuda(backend, "MatMul", {SmallIntegers(a, dtype), SmallIntegers(b, dtype, 3)});
    CheckOnCuda(backend, "MatMul",
                {SmallIntegers({2, 0}, DType::kFloat32), SmallIntegers({0, 3}, DType::kFloat32)});
    CheckOnCuda(backend, "MatMul",
                {SmallIntegers({0, 2}, DType::kFloat32), SmallIntegers({2, 3}, DType::kFloat32)});
    CheckOnCuda(
        backend, "MatMul",
        {SmallIntegers({0, 2, 2}, DType::kFloat32), SmallIntegers({2, 3}, DType::kFloat32)});
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64})
    CheckOnCuda("cuda", "MatMul", {SmallIntegers({5, 2, 3}, dtype), SmallIntegers({3, 4}, dtype)});
}

TEST_CASE("the gradients of MatMul on CUDA have the results of the CPU") {
  for (const auto& [a, b] : kFactors) {
    const Tensor left = SmallIntegers(a, DType::kFloat32),
                 right = SmallIntegers(b, DType::kFloat32);
    const Tensor product = Invoke("MatMul", {left, right})[0];
    const Tensor slopes = SmallIntegers(product.shape(), DType::kFloat32, 2);
    for (const std::string& backend : CudaBackendsOf("MatMulGradient"))
      for (const int of : {0, 1}) {
        const int64_t products = product.numel() / (MatMulExtents(a, b).m * MatMulExtents(a, b).n);
        const Shape& factor = of ? b : a;
        const int64_t matrices = MatMulBatch(factor, factor).y.numel();
        const bool is_sum = matrices != products && !(of && matrices == 1 && a.rank() > 2);
        if (backend == "cublas" && is_sum)
          CHECK_THROWS_WITH_AS(
              RunOnCuda(backend, "MatMulGradient", {slopes, left, right}, {{"of", of}}),
              doctest::Contains("does not add the gradients of a factor that is broadcast"), Error);
        else
          CheckOnCuda(backend, "MatMulGradient", {slopes, left, right}, {{"of", of}});
      }
  }
}

TEST_CASE("Gemm on CUDA has the results of the CPU") {
  const Shape biases[] = {{4}, {1, 4}, {3, 1}, {}, {1}, {1, 1}, {3, 4}};
  for (const std::string& backend : CudaBackendsOf("Gemm")) {
    for (const DType dtype : kFloats)
      for (const int transposed : {0, 1, 2, 3}) {
        const int64_t trans_a = transposed & 1, trans_b = transposed >> 1;
        const Tensor a = SmallIntegers(trans_a ? Shape{5, 3} : Shape{3, 5}, dtype);
        const Tensor b = SmallIntegers(trans_b ? Shape{4, 5} : Shape{5, 4}, dtype, 1);
        const Arguments args{{"transA", trans_a}, {"transB", trans_b}};
        CheckOnCuda(backend, "Gemm", {a, b}, args);
        for (const Shape& c : biases) {
          CheckOnCuda(backend, "Gemm", {a, b, SmallIntegers(c, dtype, 2)}, args);
          Arguments scaled = args;
          scaled.Set("alpha", 2.f);
          scaled.Set("beta", 0.5f);
          CheckOnCuda(backend, "Gemm", {a, b, SmallIntegers(c, dtype, 2)}, scaled);
        }
      }
    CheckOnCuda(backend, "Gemm",
                {SmallIntegers({3, 0}, DType::kFloat64), SmallIntegers({0, 4}, DType::kFloat64),
                 SmallIntegers({4}, DType::kFloat64)},
                {{"beta", 3.f}});
    CheckOnCuda(backend, "Gemm",
                {SmallIntegers({3, 0}, DType::kFloat32), SmallIntegers({0, 4}, DType::kFloat32)},
                {{"alpha", std::numeric_limits<float>::infinity()}});
    // An operand with the factor 0 is not read.
    Tensor nan = SmallIntegers({2, 2}, DType::kFloat32);
    nan.mutable_data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
    const Tensor plain = SmallIntegers({2, 2}, DType::kFloat32, 1);
    CheckOnCuda(backend, "Gemm", {nan, plain, plain}, {{"alpha", 0.f}});
    CheckOnCuda(backend, "Gemm", {plain, plain, nan}, {{"beta", 0.f}});
  }
  const auto integers = [](const Shape& shape) { return SmallIntegers(shape, DType::kInt32); };
  CheckOnCuda("cuda", "Gemm", {integers({2, 3}), integers({3, 2}), integers({2})});
  CheckOnCuda("cuda", "Gemm", {integers({2, 3}), integers({3, 2}), integers({2})},
              {{"alpha", 0.5f}});
}

}  // namespace cuda_matmul_test

#include "opkit/backends/cuda/libraries/cublas_matmul.hpp"

#include "fake_libraries.hpp"
#include "on_cuda.hpp"
#include "opkit/graph/executor.hpp"

namespace cublas_matmul_test {
using namespace opkit;
using Calls = std::vector<fake::CublasCall>;

namespace {

Tensor Integers(const Shape& shape) { return SmallIntegers(shape, DType::kFloat32); }
// Returns the calls of cublasLtMatmul for a node.
Calls CallsOf(const std::string& op, const std::vector<Tensor>& inputs,
              const Arguments& args = {}) {
  fake::TakeCublasCalls();
  RunOnCuda("cublas", op, inputs, args);
  return fake::TakeCublasCalls();
}

}  // namespace

TEST_CASE("matrices at equal distances are multiplied in one call") {
  CHECK(CallsOf("MatMul", {Integers({7, 2, 3}), Integers({3, 4})}) == Calls{{14, 4, 3, 1, false}});
  CHECK(CallsOf("MatMul", {Integers({7, 2, 3}), Integers({7, 3, 4})}) ==
        Calls{{2, 4, 3, 7, false}});
  CHECK(CallsOf("MatMul", {Integers({2, 3}), Integers({7, 3, 4})}) == Calls{{2, 4, 3, 7, false}});
  CHECK(CallsOf("MatMul", {Integers({2, 1, 2, 3}), Integers({7, 3, 4})}) ==
        Calls(2, {2, 4, 3, 7, false}));
  // The gradient of a matrix that all products share is one sum.
  CHECK(CallsOf("MatMulGradient", {Integers({7, 2, 4}), Integers({7, 2, 3}), Integers({3, 4})},
                {{"of", 1}}) == Calls{{3, 4, 14, 1, false}});
}

TEST_CASE("a row C is added in the epilogue of Gemm, except for float64 and other factors") {
  const Tensor a = Integers({2, 3}), b = Integers({3, 4});
  CHECK(CallsOf("Gemm", {a, b, Integers({4})}) == Calls{{2, 4, 3, 1, true}});
  CHECK(CallsOf("Gemm", {a, b, Integers({1, 4})}) == Calls{{2, 4, 3, 1, true}});
  CHECK(CallsOf("Gemm", {a, b, Integers({2, 4})}) == Calls{{2, 4, 3, 1, false}});
  CHECK(CallsOf("Gemm", {a, b, Integers({4})}, {{"beta", 2.f}}) == Calls{{2, 4, 3, 1, false}});
  const auto doubles = [](const Shape& shape) { return SmallIntegers(shape, DType::kFloat64); };
  CHECK(CallsOf("Gemm", {doubles({2, 3}), doubles({3, 4}), doubles({4})}) ==
        Calls{{2, 4, 3, 1, false}});
}

TEST_CASE("a plan adds a row in the epilogue of the product before it") {
  const PreferredBackend preferred({DeviceType::kCUDA, "cublas"});
  const auto run = [&](const Tensor& a, const Tensor& c, const Shape& of_b) {
    const Tensor b = Integers(of_b);
    Graph graph;
    for (const auto& [name, input] : {std::pair{"a", &a}, {"b", &b}, {"c", &c}})
      graph.AddInput(name, input->dtype(), input->shape());
    graph.AddNode(OperatorDef("MatMul", {"a", "b"}, {"product"}));
    graph.AddNode(OperatorDef("Add", {"c", "product"}, {"y"}));
    graph.AddOutput("y");
    Executor executor(Compile(graph, preferred.options()));
    fake::TakeCublasCalls();
    const NamedTensors found = executor.Run({{"a", a}, {"b", b}, {"c", c}});
    const Tensor expected = Invoke("Add", {c, Invoke("MatMul", {a, b})[0]})[0];
    CHECK(Difference(OnHost(found.Get("y")), expected, {}) == "");
    return fake::TakeCublasCalls();
  };
  CHECK(run(Integers({2, 3}), Integers({4}), {3, 4}) == Calls{{2, 4, 3, 1, true}});
  CHECK(run(Integers({5, 2, 3}), Integers({1, 4}), {3, 4}) == Calls{{10, 4, 3, 1, true}});
  CHECK(run(Integers({2, 3}), Integers({2, 1}), {3, 4}) == Calls{{2, 4, 3, 1, false}});
  CHECK(run(Integers({2, 3}), Integers({5, 1, 4}), {3, 4}) == Calls{{2, 4, 3, 1, false}});
  CHECK(run(Integers({2, 3}), Integers({1, 1, 4}), {3, 4}) == Calls{{2, 4, 3, 1, false}});
  CHECK(run(Integers({5, 2, 3}), Integers({4}), {5, 3, 4}) == Calls{{2, 4, 3, 5, false}});
}

TEST_CASE("the preparation of a product follows the shapes and addresses of its operands") {
  const Tensor rows = OnCuda(Integers({9, 8})), b = OnCuda(Integers({8, 3}));
  KeptOperator product("cublas", "MatMul");
  // The address of row 0 is divisible by 256, that of row 1 by 32 only.
  for (const auto& [begin, end] : {std::pair{0, 2}, {0, 5}, {1, 6}, {0, 5}})
    product.Check({rows.Slice(0, begin, end), b});
  KeptOperator gemm("cublas", "Gemm");
  for (const Tensor& bias : {OnCuda(Integers({3})), OnCuda(SmallIntegers({3}, DType::kFloat32, 1))})
    gemm.Check({rows, b, bias});
}

TEST_CASE("failures of cuBLASLt are errors with the name of the status") {
  const Tensor a = Integers({2, 2});
  fake::FailCublas(CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_WITH_AS(RunOnCuda("cublas", "MatMul", {a, a}),
                       doctest::Contains("cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED"),
                       Error);
  fake::FailCublas(CUBLAS_STATUS_SUCCESS);
  fake::OfferCublasAlgorithms(false);
  try {
    RunOnCuda("cublas", "MatMul", {a, a});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(error.message().find("no algorithm for a product of 2 x 2 and 2 x 2 matrices of "
                               "float32") != std::string::npos);
  }
  fake::OfferCublasAlgorithms(true);
  CheckOnCuda("cublas", "MatMul", {a, a});
}

TEST_CASE("integers are left to the backend \"cuda\"") {
  const Tensor a = OnCuda(SmallIntegers({2, 2}, DType::kInt32));
  CHECK_THROWS_WITH_AS(RunOnCuda("cublas", "MatMul", {a, a}), doctest::Contains("input 0 is int32"),
                       Error);
  CHECK(OnHost(Invoke("MatMul", {a, a}, {}, {.device = kCuda0})[0]).dtype() == DType::kInt32);
}

}  // namespace cublas_matmul_test

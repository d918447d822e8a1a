#include "opkit/backends/cuda/libraries/cublas_matmul.hpp"

#include <map>

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
  CHECK(CallsOf("MatMul", {Integers({7, 2, 3}), Integers({3, 4})}) == Calls{{14, 4, 3, 1}});
  CHECK(CallsOf("MatMul", {Integers({7, 2, 3}), Integers({7, 3, 4})}) == Calls{{2, 4, 3, 7}});
  CHECK(CallsOf("MatMul", {Integers({2, 3}), Integers({7, 3, 4})}) == Calls{{2, 4, 3, 7}});
  CHECK(CallsOf("MatMul", {Integers({2, 1, 2, 3}), Integers({7, 3, 4})}) == Calls(2, {2, 4, 3, 7}));
  // The gradient of a matrix that all products share is one sum.
  CHECK(CallsOf("MatMulGradient", {Integers({7, 2, 4}), Integers({7, 2, 3}), Integers({3, 4})},
                {{"of", 1}}) == Calls{{3, 4, 14, 1}});
}

TEST_CASE("a row C is added in the epilogue of Gemm, except for float64 and other factors") {
  const Tensor a = Integers({2, 3}), b = Integers({3, 4});
  CHECK(CallsOf("Gemm", {a, b, Integers({4})}) == Calls{{2, 4, 3, 1, CUBLASLT_EPILOGUE_BIAS}});
  CHECK(CallsOf("Gemm", {a, b, Integers({1, 4})}) == Calls{{2, 4, 3, 1, CUBLASLT_EPILOGUE_BIAS}});
  CHECK(CallsOf("Gemm", {a, b, Integers({2, 4})}) == Calls{{2, 4, 3, 1}});
  CHECK(CallsOf("Gemm", {a, b, Integers({4})}, {{"beta", 2.f}}) == Calls{{2, 4, 3, 1}});
  const auto doubles = [](const Shape& shape) { return SmallIntegers(shape, DType::kFloat64); };
  CHECK(CallsOf("Gemm", {doubles({2, 3}), doubles({3, 4}), doubles({4})}) == Calls{{2, 4, 3, 1}});
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
  CHECK(run(Integers({2, 3}), Integers({4}), {3, 4}) ==
        Calls{{2, 4, 3, 1, CUBLASLT_EPILOGUE_BIAS}});
  CHECK(run(Integers({5, 2, 3}), Integers({1, 4}), {3, 4}) ==
        Calls{{10, 4, 3, 1, CUBLASLT_EPILOGUE_BIAS}});
  CHECK(run(Integers({2, 3}), Integers({2, 1}), {3, 4}) == Calls{{2, 4, 3, 1}});
  CHECK(run(Integers({2, 3}), Integers({5, 1, 4}), {3, 4}) == Calls{{2, 4, 3, 1}});
  CHECK(run(Integers({2, 3}), Integers({1, 1, 4}), {3, 4}) == Calls{{2, 4, 3, 1}});
  CHECK(run(Integers({5, 2, 3}), Integers({4}), {5, 3, 4}) == Calls{{2, 4, 3, 5}});
}

TEST_CASE("a plan computes an activation in the epilogue of the product before it") {
  const PreferredBackend preferred({DeviceType::kCUDA, "cublas"});
  // Runs the nodes, each of which reads the output of the one before it.
  const auto run = [&](const std::vector<OperatorDef>& nodes, DType dtype = DType::kFloat32) {
    Graph graph;
    std::map<std::string, Tensor> inputs;
    for (const auto& [name, shape] : {std::pair<const char*, Shape>{"a", {2, 3}},
                                      {"b", {3, 4}},
                                      {"c", {4}},
                                      {"whole", {2, 4}}}) {
      graph.AddInput(name, dtype, shape);
      inputs[name] = SmallIntegers(shape, dtype);
    }
    for (const OperatorDef& node : nodes) graph.AddNode(node);
    graph.AddOutput("y");
    fake::TakeCublasCalls();
    const NamedTensors found = Executor(Compile(graph, preferred.options())).Run(inputs);
    const Calls calls = fake::TakeCublasCalls();
    const NamedTensors expected = Executor(Compile(graph)).Run(inputs);
    CHECK(Difference(OnHost(found.Get("y")), expected.Get("y"), {.rtol = 1e-5, .atol = 1e-5}) ==
          "");
    CHECK(calls.size() == 1);
    return static_cast<cublasLtEpilogue_t>(calls.at(0).epilogue);
  };
  const OperatorDef matmul("MatMul", {"a", "b"}, {"p"}), add("Add", {"p", "c"}, {"s"}),
      gemm("Gemm", {"a", "b"}, {"p"}), gemm_row("Gemm", {"a", "b", "c"}, {"p"}),
      gemm_whole("Gemm", {"a", "b", "whole"}, {"p"}, {{"beta", -0.5f}, {"alpha", 2.f}}),
      relu("Relu", {"p"}, {"y"}), relu_of_sum("Relu", {"s"}, {"y"}),
      gelu("Gelu", {"p"}, {"y"}, {{"approximate", "tanh"}}),
      gelu_of_sum("Gelu", {"s"}, {"y"}, {{"approximate", "tanh"}}),
      exact_gelu("Gelu", {"p"}, {"y"});
  CHECK(run({matmul, relu}) == CUBLASLT_EPILOGUE_RELU);
  CHECK(run({matmul, gelu}) == CUBLASLT_EPILOGUE_GELU);
  CHECK(run({matmul, add, relu_of_sum}) == CUBLASLT_EPILOGUE_RELU_BIAS);
  CHECK(run({matmul, add, gelu_of_sum}) == CUBLASLT_EPILOGUE_GELU_BIAS);
  CHECK(run({gemm, relu}) == CUBLASLT_EPILOGUE_RELU);
  CHECK(run({gemm, gelu}) == CUBLASLT_EPILOGUE_GELU);
  CHECK(run({gemm_row, relu}) == CUBLASLT_EPILOGUE_RELU_BIAS);
  CHECK(run({gemm_row, gelu}) == CUBLASLT_EPILOGUE_GELU_BIAS);
  CHECK(run({gemm_whole, relu}) == CUBLASLT_EPILOGUE_RELU);
  // An activation is the last node of an epilogue, which has no Gelu by erf and nothing of float64.
  CHECK(run({matmul, exact_gelu}) == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(run({gemm_row, exact_gelu}) == CUBLASLT_EPILOGUE_BIAS);
  CHECK(run({matmul, relu}, DType::kFloat64) == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(run({gemm_row, relu}, DType::kFloat64) == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(run({matmul, OperatorDef("Relu", {"p"}, {"r"}), OperatorDef("Add", {"r", "c"}, {"y"})}) ==
        CUBLASLT_EPILOGUE_RELU);
  CHECK(run({matmul, OperatorDef("Relu", {"p"}, {"r"}),
             OperatorDef("Gelu", {"r"}, {"y"}, {{"approximate", "tanh"}})}) ==
        CUBLASLT_EPILOGUE_RELU);
}

TEST_CASE("a product without terms gets its activation from its own node") {
  const PreferredBackend preferred({DeviceType::kCUDA, "cublas"});
  const Tensor a(Shape{2, 0}, DType::kFloat32), b(Shape{0, 4}, DType::kFloat32), c = Integers({4});
  for (const char* const op : {"MatMul", "Gemm"}) {
    Graph graph;
    for (const auto& [name, input] : {std::pair{"a", &a}, {"b", &b}, {"c", &c}})
      graph.AddInput(name, input->dtype(), input->shape());
    graph.AddNode(OperatorDef(op, {"a", "b"}, {"p"}));
    graph.AddNode(OperatorDef("Add", {"p", "c"}, {"s"}));
    graph.AddNode(OperatorDef("Relu", {"s"}, {"y"}));
    graph.AddOutput("y");
    const NamedTensors found =
        Executor(Compile(graph, preferred.options())).Run({{"a", a}, {"b", b}, {"c", c}});
    Tensor expected(Shape{2, 4}, DType::kFloat32);
    for (int64_t i = 0; i < 8; ++i)
      expected.mutable_data<float>()[i] = (std::max)(c.data<float>()[i % 4], 0.f);
    CHECK(Difference(OnHost(found.Get("y")), expected, {}) == "");
  }
}

TEST_CASE("a variant takes the algorithm of its number, or the last one") {
  const PreferredBackend preferred({DeviceType::kCUDA, "cublas"});
  const Tensor a = Integers({2, 3}), b = Integers({3, 4});
  Graph graph;
  graph.AddInput("a", a.dtype(), a.shape());
  graph.AddInput("b", b.dtype(), b.shape());
  graph.AddNode(OperatorDef("MatMul", {"a", "b"}, {"p"}));
  graph.AddNode(OperatorDef("Relu", {"p"}, {"y"}));
  graph.AddOutput("y");
  const auto algorithm_of = [&](const std::string& variant) {
    PlanOptions options = preferred.options();
    options.selection.forced.nodes = {
        {.node = "p", .backend = "cublas", .device = ToString(kCuda0), .variant = variant}};
    fake::TakeCublasCalls();
    Executor(Compile(graph, options)).Run({{"a", a}, {"b", b}});
    const Calls calls = fake::TakeCublasCalls();
    CHECK(calls.size() == 1);
    CHECK(calls.at(0).epilogue == CUBLASLT_EPILOGUE_RELU);  // the fused node has the variant
    return calls.at(0).algorithm;
  };
  CHECK(CallsOf("MatMul", {a, b}).at(0).algorithm == 1);
  CHECK(algorithm_of("") == 1);
  CHECK(algorithm_of("2") == 2);
  CHECK(algorithm_of("3") == 3);
  fake::OfferCublasAlgorithms(2);
  CHECK(algorithm_of("2") == 2);
  CHECK(algorithm_of("3") == 2);
  fake::OfferCublasAlgorithms(8);
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
  fake::OfferCublasAlgorithms(0);
  try {
    RunOnCuda("cublas", "MatMul", {a, a});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(error.message().find("no algorithm for a product of 2 x 2 and 2 x 2 matrices of "
                               "float32") != std::string::npos);
  }
  fake::OfferCublasAlgorithms(8);
  CheckOnCuda("cublas", "MatMul", {a, a});
}

TEST_CASE("integers are left to the backend \"cuda\"") {
  const Tensor a = OnCuda(SmallIntegers({2, 2}, DType::kInt32));
  CHECK_THROWS_WITH_AS(RunOnCuda("cublas", "MatMul", {a, a}), doctest::Contains("input 0 is int32"),
                       Error);
  CHECK(OnHost(Invoke("MatMul", {a, a}, {}, {.device = kCuda0})[0]).dtype() == DType::kInt32);
}

}  // namespace cublas_matmul_test

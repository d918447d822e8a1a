// com.microsoft.MatMulIntegerToFloat and com.microsoft.DynamicQuantizeMatMul.
#include "opkit/ops/quantized/matmul_to_float.hpp"

#include "ops/data_movement.hpp"

namespace matmul_to_float_test {
using namespace opkit_tests;

namespace {

constexpr const char* kToFloat = "com.microsoft.MatMulIntegerToFloat";
constexpr const char* kDynamic = "com.microsoft.DynamicQuantizeMatMul";

TEST_CASE("MatMulIntegerToFloat scales the product and adds a bias") {
  const Tensor a = Tensor::From<uint8_t>({2, 2}, {3, 1, 0, 2});
  const Tensor b = Tensor::From<int8_t>({2, 2}, {1, -2, 5, 4});
  const Tensor half = Tensor::Scalar(0.5f);
  CHECK(FloatsOf(Invoke(kToFloat, {a, b, half, half})[0]) == Floats{2, -0.5f, 2.5f, 2});
  // (a - 1) (b - {1, 2}) is {{0, -8}, {4, 6}}.
  const std::vector<Tensor> all{a,
                                b,
                                half,
                                Vector({2, 10}),
                                Tensor::Scalar<uint8_t>(1),
                                Vector<int8_t>({1, 2}),
                                Vector({100, -1})};
  CHECK(FloatsOf(Invoke(kToFloat, all)[0]) == Floats{100, -41, 104, 29});
}

TEST_CASE("DynamicQuantizeMatMul quantises A by its own numbers") {
  // The numbers of A are quantised without an error: the scale is 1, the zero point 55.
  const Tensor a = Tensor::From<float>({2, 2}, {200, -55, 1, 0});
  const Tensor b = Tensor::From<uint8_t>({2, 2}, {2, 1, 1, 3});
  CHECK(FloatsOf(Invoke(kDynamic, {a, b, Tensor::Scalar(2.f)})[0]) == Floats{690, 70, 4, 2});
  CHECK(FloatsOf(Invoke(kDynamic, {a, b, Vector({2, 1}), Tensor::Scalar<uint8_t>(1),
                                   Vector({0.5f, 1})})[0]) == Floats{400.5f, -109, 2.5f, 1});
  CHECK(Invoke(kDynamic, {Tensor({0, 2}, DType::kFloat32), b, Tensor::Scalar(2.f)})[0].shape() ==
        Shape{0, 2});
}

TEST_CASE("shapes and types that do not fit are refused") {
  const Known b(DType::kInt8, {3, 4});
  CHECK(Inferred(kDynamic, {{Sym("N"), 2, 3}, b, {4}}) == "float32[N, 2, 4]");
  CHECK(Contains(Refused(kDynamic, {{2, 3}, b, {3}}), "one for each of the 4 columns of B"));
  CHECK(Contains(Refused(kDynamic, {{2, 3}, b, {}, kLeftOut, {1}}),
                 "expected one for each of the 4 columns of B"));
  CHECK(Contains(Refused(kDynamic, {{2, 4}, b, {}}), "cannot multiply"));
  CHECK(Contains(Refused(kToFloat, {{2, 3}, b, {}, {}}), "float32"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor b = Counting({5, 4}, DType::kInt8);
  CheckNode(OperatorDef(kDynamic, {"a", "b", "s", "", "bias"}, {"y"}),
            {Random({2, 3, 5}, 3), b, Vector({1, 2, 3, 4}), Tensor(), Vector({1, 2, 3, 4})});
  CheckNode(OperatorDef(kToFloat, {"a", "b", "s", "t"}, {"y"}),
            {Counting({2, 3, 5}, DType::kUInt8), b, Tensor::Scalar(2.f), Tensor::Scalar(3.f)});
}

}  // namespace
}  // namespace matmul_to_float_test

// MatMulInteger and QLinearMatMul: zero points, batches, constants, rounding.
#include "opkit/ops/quantized/matmul_integer.hpp"

#include "opkit/graph.hpp"
#include "ops/data_movement.hpp"

namespace matmul_integer_test {
using namespace opkit_tests;

namespace {

using List32 = std::vector<int32_t>;
List32 Product(const std::vector<Tensor>& inputs) {
  return Invoke("MatMulInteger", inputs)[0].ToVector<int32_t>();
}

TEST_CASE("zero points are subtracted, for all, by row and by column") {
  const Tensor a = Tensor::From<uint8_t>({2, 3}, {11, 7, 3, 10, 6, 2});
  const Tensor b = Tensor::From<uint8_t>({3, 2}, {1, 4, 2, 5, 3, 6});
  CHECK(Product({a, b}) == List32{34, 97, 28, 82});
  CHECK(Product({a, b, Tensor::Scalar<uint8_t>(12), Tensor::Scalar<uint8_t>(0)}) ==
        List32{-38, -83, -44, -98});
  CHECK(Product({a, b, Vector<uint8_t>({12, 0}), Vector<uint8_t>({1, 2})}) ==
        List32{-23, -53, 10, 46});
  const Tensor least = Tensor::From<int8_t>({1, 2}, {-128, -128});
  const Tensor most = Tensor::From<uint8_t>({2, 1}, {255, 255});
  CHECK(Product({least, most}) == List32{-65280});
  CHECK(Product({least, most, Tensor::Scalar<int8_t>(127), Tensor::Scalar<uint8_t>(0)}) ==
        List32{-130050});
}

TEST_CASE("batches are broadcast, and zero points may differ in each matrix") {
  const Tensor a = Tensor::From<int8_t>({2, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::From<int8_t>({2, 2}, {1, 0, 0, 1});
  CHECK(Product({a, b}) == List32{1, 2, 3, 4});
  CHECK(Product({a, b, Tensor::From<int8_t>({2, 1, 1}, {1, 3}), Tensor::Scalar<int8_t>(0)}) ==
        List32{0, 1, 0, 1});
  const Tensor both = Tensor::From<int8_t>({2, 2, 1}, {1, 0, 0, 1});
  CHECK(Product({b, both}) == List32{1, 0, 0, 1});
  CHECK(Product({b, both, Tensor::Scalar<int8_t>(0), Tensor::From<int8_t>({2, 1, 1}, {1, 2})}) ==
        List32{0, -1, -2, -1});
  CHECK(Product({Vector<int8_t>({3, 4}), b}) == List32{3, 4});
  CHECK(Product({b, Vector<int8_t>({3, 4})}) == List32{3, 4});
  CHECK(Product({Tensor({2, 0}, DType::kInt8), Tensor({0, 3}, DType::kInt8)}) == List32(6, 0));
}

TEST_CASE("a plan with a constant B gives the same in every run") {
  Graph graph;
  graph.AddInput("a", DType::kUInt8, Shape{2, 2});
  graph.AddConstant("b", Tensor::From<int8_t>({2, 2}, {1, 2, 3, 4}));
  graph.AddNode(OperatorDef("MatMulInteger", {"a", "b"}, {"y"}));
  graph.AddOutput("y");
  Executor executor(Compile(graph));
  for (const uint8_t i : {1, 2}) {
    const Tensor a = Tensor::From<uint8_t>({2, 2}, {i, 0, 0, i});
    CHECK(executor.Run({{"a", a}})[0].ToVector<int32_t>() == List32{i, 2 * i, 3 * i, 4 * i});
  }
}

Tensor Half(float value) { return Tensor::Scalar(float16(value)); }

TEST_CASE("QLinearMatMul rounds to even and saturates") {
  const Tensor a = Tensor::From<uint8_t>({1, 2}, {3, 1}), one = Tensor::Scalar(1.f);
  const Tensor b = Tensor::From<int8_t>({2, 4}, {1, 2, 100, -100, 0, -1, 100, -100});
  const Tensor zero_a = Tensor::Scalar<uint8_t>(0), zero_b = Tensor::Scalar<int8_t>(0);
  // Sums are 3, 5, 400, -400.
  const auto run = [&](const Tensor& sa, const Tensor& sb, const Tensor& sy, const Tensor& zy) {
    return Invoke("QLinearMatMul", {a, sa, zero_a, b, sb, zero_b, sy, zy})[0];
  };
  const Tensor halves = run(one, one, Tensor::Scalar(2.f), Tensor::Scalar<int8_t>(10));
  CHECK(halves.ToVector<int8_t>() == std::vector<int8_t>{12, 12, 127, -128});
  const Tensor u8 = run(Half(1), Half(1), Half(2), Tensor::Scalar<uint8_t>(10));
  CHECK(u8.ToVector<uint8_t>() == std::vector<uint8_t>{12, 12, 210, 0});
  const Tensor zeros = Vector<int8_t>({0, 0, 100, 0});
  const Tensor lines =
      Invoke("QLinearMatMul", {a, Vector({2}), Vector<uint8_t>({1}), b, Vector({1, 2, 3, 0.01f}),
                               zeros, one, Tensor::Scalar<int8_t>(0)})[0];
  CHECK(lines.ToVector<int8_t>() == std::vector<int8_t>{4, 16, 0, -4});
}

TEST_CASE("shapes and types that do not fit are refused") {
  const Known a(DType::kUInt8, {2, 3}), b(DType::kInt8, {3, 4});
  CHECK(Inferred("MatMulInteger", {a, b}) == "int32[2, 4]");
  CHECK(Inferred("MatMulInteger", {{DType::kUInt8, {Sym("N"), 2, 3}}, b}) == "int32[N, 2, 4]");
  CHECK(Contains(Refused("MatMulInteger", {a, a}), "cannot multiply"));
  CHECK(Contains(Refused("MatMulInteger", {a, b, {DType::kInt8, {}}}), "int8"));
  CHECK(Contains(Refused("MatMulInteger", {a, b, {DType::kUInt8, {3}}}),
                 "expected one element or one for each of the 2 rows of A"));
  CHECK(
      Contains(Refused("MatMulInteger", {a, b, kLeftOut, {DType::kInt8, {2}}}), "4 columns of B"));
  CHECK(Contains(Refused("MatMulInteger", {a, {3, 4}}), "float32"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor a = Counting({2, 3, 5}, DType::kUInt8), b = Counting({5, 4}, DType::kInt8);
  CheckNode(OperatorDef("MatMulInteger", {"a", "b", "za"}, {"y"}),
            {a, b, Tensor::Scalar<uint8_t>(3)});
  CheckNode(OperatorDef("QLinearMatMul", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"y"}),
            {a, Tensor::Scalar(0.5f), Tensor::Scalar<uint8_t>(3), b, Vector({1, 2, 0.5f, 0.25f}),
             Vector<int8_t>({1, 2, 3, 4}), Tensor::Scalar(8.f), Tensor::Scalar<int8_t>(1)});
}

}  // namespace
}  // namespace matmul_integer_test

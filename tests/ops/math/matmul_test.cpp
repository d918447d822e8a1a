// MatMul and Gemm: values, broadcasting, shapes, errors.
#include "opkit/ops/math/matmul.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace matmul_test {
using namespace opkit_tests;

namespace {

std::vector<float> Product(const Tensor& a, const Tensor& b) {
  return Invoke("MatMul", {a, b})[0].ToVector<float>();
}

TEST_CASE("A product sums over the inner axis") {
  const Tensor a = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::From<float>({3, 2}, {1, 0, 0, 1, 10, 100});
  CHECK(Product(a, b) == Floats{31, 302, 64, 605});
}

TEST_CASE("A vector is a row on the left and a column on the right") {
  const Tensor v = Tensor::From<float>({2}, {1, 10});
  const Tensor m = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  const Tensor left = Invoke("MatMul", {v, m})[0], right = Invoke("MatMul", {m, v})[0];
  CHECK(left.shape() == Shape{2});
  CHECK(left.ToVector<float>() == Floats{31, 42});
  CHECK(right.shape() == Shape{2});
  CHECK(right.ToVector<float>() == Floats{21, 43});
  const Tensor inner = Invoke("MatMul", {v, v})[0];
  CHECK(inner.shape() == Shape{});
  CHECK(inner.ToVector<float>() == Floats{101});
  const Tensor batch = Invoke("MatMul", {m.View({2, 1, 2}), v})[0];
  CHECK(batch.shape() == Shape{2, 1});
}

TEST_CASE("Batches are broadcast against each other") {
  // [2, 1, 1, 2] x [3, 2, 1]: each of two rows with each of three columns.
  const Tensor a = Tensor::From<float>({2, 1, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::From<float>({3, 2, 1}, {1, 0, 0, 1, 1, 1});
  const Tensor c = Invoke("MatMul", {a, b})[0];
  CHECK(c.shape() == Shape{2, 3, 1, 1});
  CHECK(c.ToVector<float>() == Floats{1, 2, 3, 3, 4, 7});
}

TEST_CASE("Nothing to add gives zeros, no rows give nothing") {
  const Tensor none({2, 0}, DType::kFloat32), turned({0, 3}, DType::kFloat32);
  CHECK(Product(none, turned) == Floats(6, 0.f));
  CHECK(Invoke("MatMul", {turned, Tensor({3, 2}, DType::kFloat32)})[0].shape() == Shape{0, 2});
  CHECK(Invoke("MatMul", {Tensor({0, 2, 3}, DType::kFloat32), Tensor({3, 2}, DType::kFloat32)})[0]
            .shape() == Shape{0, 2, 2});
}

TEST_CASE("Integers wrap around, half floats are rounded once") {
  const Tensor large = Tensor::From<int32_t>({1, 2}, {std::numeric_limits<int32_t>::max(), 1});
  const Tensor ones = Tensor::From<int32_t>({2, 1}, {1, 1});
  CHECK(Invoke("MatMul", {large, ones})[0].ToVector<int32_t>()[0] ==
        std::numeric_limits<int32_t>::min());
  const Tensor wide = Tensor::From<uint64_t>({1}, {~uint64_t{0}});
  CHECK(Invoke("MatMul", {wide, wide})[0].ToVector<uint64_t>()[0] == 1);
  // 2048 + 1 + 1 is 2050, which float16 has; 2048 + 1 alone would stay 2048.
  const Tensor half = Tensor::From<float16>({3}, {2048.f, 1.f, 1.f});
  const Tensor one = Tensor::From<float16>({3}, {1.f, 1.f, 1.f});
  CHECK(static_cast<float>(Invoke("MatMul", {half, one})[0].data<float16>()[0]) == 2050);
}

TEST_CASE("The shape of a MatMul carries symbols over") {
  CHECK(Inferred("MatMul", {F({Sym("N"), 3, 4}), F({4, Sym("M")})}) == "float32[N, 3, M]");
  CHECK(Inferred("MatMul", {F({Sym("B"), 1, Sym("S"), 8}), F({12, 8, Sym("S")})}) ==
        "float32[B, 12, S, S]");
  CHECK(Inferred("MatMul", {F({4}), F({Sym("N"), 4, 5})}) == "float32[N, 5]");
  CHECK(Inferred("MatMul", {F({Dim(), 4}), F(SymbolicShape())}) == "float32[rank unknown]");
  CHECK(Inferred("MatMul", {TensorInfo(DType::kUndefined, SymbolicShape{2, 3}), F({3, 5})}) ==
        "float32[2, 5]");
}

TEST_CASE("Shapes that cannot be multiplied are refused, both named") {
  CHECK(Refused("MatMul", {F({2, 3}), F({4, 5})}) ==
        "MatMul cannot multiply [2, 3] by [4, 5]: the inner extents are 3 and 4");
  CHECK(Contains(Refused("MatMul", {F(Shape{}), F({4, 5})}), "input 0 is a scalar"));
  CHECK(Contains(Refused("MatMul", {F({2, 2, 3}), F({5, 3, 2})}), "cannot be broadcast together"));
  CHECK(Contains(Refused("MatMul", {F({2, 3}), {DType::kFloat64, Shape{3, 2}}}), "float64"));
  CHECK(
      Contains(Refused("MatMul", {{DType::kBool, Shape{2, 3}}, F({3, 2})}), "input 0 'A' is bool"));
}

TEST_CASE("Gemm scales, transposes and adds") {
  const Tensor a = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::From<float>({3, 2}, {1, 0, 0, 1, 10, 100});
  const Tensor row = Tensor::From<float>({2}, {1, 2}), column = Tensor::From<float>({2, 1}, {1, 2});
  CHECK(Invoke("Gemm", {a, b})[0].ToVector<float>() == Floats{31, 302, 64, 605});
  CHECK(Invoke("Gemm", {a, b, row}, {{"alpha", 2.f}, {"beta", 10.f}})[0].ToVector<float>() ==
        Floats{72, 624, 138, 1230});
  CHECK(Invoke("Gemm", {a, b, column})[0].ToVector<float>() == Floats{32, 303, 66, 607});
  CHECK(Invoke("Gemm", {a, b, Tensor::Scalar(1.f)})[0].ToVector<float>() ==
        Floats{32, 303, 65, 606});
  const Tensor at = Tensor::From<float>({3, 2}, {1, 4, 2, 5, 3, 6});
  const Tensor bt = Tensor::From<float>({2, 3}, {1, 0, 10, 0, 1, 100});
  CHECK(Invoke("Gemm", {at, bt}, {{"transA", 1}, {"transB", 1}})[0].ToVector<float>() ==
        Floats{31, 302, 64, 605});
}

TEST_CASE("Gemm does not read a matrix with the factor 0") {
  const Tensor one = Tensor::From<float>({1, 1}, {2}), nan = Tensor::From<float>({1, 1}, {NAN});
  CHECK(Invoke("Gemm", {one, one, nan}, {{"beta", 0.f}})[0].ToVector<float>() == Floats{4});
  CHECK(Invoke("Gemm", {nan, one, one}, {{"alpha", 0.f}})[0].ToVector<float>() == Floats{2});
  CHECK(std::isnan(Invoke("Gemm", {one, one, nan})[0].ToVector<float>()[0]));
}

TEST_CASE("Gemm does not scale a product without terms") {
  const Tensor a({1, 0}, DType::kFloat32), b({0, 2}, DType::kFloat32);
  const Tensor c = Tensor::From<float>({2}, {3, 4});
  for (const float alpha : {INFINITY, NAN}) {
    CHECK(Invoke("Gemm", {a, b}, {{"alpha", alpha}})[0].ToVector<float>() == Floats{0, 0});
    CHECK(Invoke("Gemm", {a, b, c}, {{"alpha", alpha}})[0].ToVector<float>() == Floats{3, 4});
  }
}

TEST_CASE("Gemm of integers is exact, and saturates where it scales") {
  const Tensor a = Tensor::From<int64_t>({1, 1}, {(int64_t{1} << 62) + 1});
  const Tensor one = Tensor::From<int64_t>({1, 1}, {1});
  CHECK(Invoke("Gemm", {a, one, one})[0].ToVector<int64_t>()[0] == (int64_t{1} << 62) + 2);
  CHECK(Invoke("Gemm", {a, one}, {{"alpha", 4.f}})[0].ToVector<int64_t>()[0] ==
        std::numeric_limits<int64_t>::max());
  const Tensor small = Tensor::From<uint32_t>({1, 1}, {3});
  CHECK(Invoke("Gemm", {small, small}, {{"alpha", 0.5f}})[0].ToVector<uint32_t>()[0] == 4);
  CHECK(Invoke("Gemm", {small, small}, {{"alpha", -1.f}})[0].ToVector<uint32_t>()[0] == 0);
}

TEST_CASE("The shape of a Gemm, and shapes that it refuses") {
  CHECK(Inferred("Gemm", {F({Sym("N"), 4}), F({4, 5})}) == "float32[N, 5]");
  CHECK(Inferred("Gemm", {F({4, Sym("N")}), F({Sym("M"), 4})}, {{"transA", 1}, {"transB", 1}}) ==
        "float32[N, M]");
  CHECK(Inferred("Gemm", {F(SymbolicShape()), F({4, 5})}) == "float32[?, 5]");
  CHECK(Refused("Gemm", {F({2, 3}), F({3, 4})}, {{"transB", 1}}) ==
        "Gemm cannot multiply [2, 3] by [3, 4]: the inner extents are 3 and 4");
  CHECK(Contains(Refused("Gemm", {F({1, 2, 3}), F({3, 4})}), "expected a matrix; use MatMul"));
  CHECK(Contains(Refused("Gemm", {F({2, 3}), F({3, 4}), F({3})}),
                 "C is float32[3], which cannot be broadcast to the product's shape [2, 4]"));
  CHECK(Contains(Refused("Gemm", {F({2, 3}), F({3, 4}), F({1, 2, 4})}), "cannot be broadcast"));
}

TEST_CASE("A product's cost is two operations for each of its terms") {
  const auto& schema = OpRegistry::Global().GetSchema("MatMul");
  const OperatorDef def("MatMul", {"a", "b"}, {"c"});
  const std::vector<TensorInfo> in = {F({5, 2, 3}), F({3, 4})}, out = {F({5, 2, 4})};
  const OpCost cost = schema.Cost(def, in, out);
  CHECK(cost.flops == 2 * 5 * 2 * 3 * 4);
  CHECK(cost.bytes_read == 4 * (30 + 12));
  CHECK(cost.bytes_written == 4 * 40);
  // Shapes that inference refuses have no operations to count.
  CHECK(schema.Cost(def, {F({}), F({3, 4})}, {F({4})}).flops == 0);
  const OperatorDef gemm("Gemm", {"a", "b"}, {"c"});
  CHECK(OpRegistry::Global().GetSchema("Gemm").Cost(gemm, {F({4}), F({4, 5})}, {F({5})}).flops ==
        0);
}

TEST_CASE("MatMul and Gemm keep the promises of their schemas") {
  const Tensor a = Random({2, 3, 5}, 1), b = Random({5, 4}, 2);
  CheckNode(OperatorDef("MatMul", {"a", "b"}, {"c"}), {a, b});
  const Tensor m = Random({5, 3}, 3), bias = Random({4}, 4);
  CheckNode(OperatorDef("Gemm", {"a", "b", "bias"}, {"c"}, {{"transA", 1}}), {m, b, bias});
}

// Against central differences, in double.
std::string GradientFault(const OperatorDef& def, const std::vector<Shape>& shapes) {
  GradientCheckOptions options;
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) {
    options.inputs.push_back(static_cast<int>(inputs.size()));
    inputs.push_back(Random(shape, 5 + inputs.size(), DType::kFloat64));
  }
  const auto result = CheckGradient(def, inputs, options);
  return result.ok() && result.elements_checked > 0 ? "" : ToString(result);
}

TEST_CASE("Matrices of nothing take no time, however many there are") {
  const Tensor a({int64_t{1} << 40, 0, 4}, DType::kFloat32), b({4, 3}, DType::kFloat32);
  CHECK(Invoke("MatMul", {a, b})[0].shape() == Shape{int64_t{1} << 40, 0, 3});
}

TEST_CASE("Gradients of MatMul, through vectors, batches and broadcasting") {
  const Shape pairs[][2] = {{{3, 4}, {4, 5}},       {{4}, {4, 5}},
                            {{3, 4}, {4}},          {{4}, {4}},
                            {{2, 3, 4}, {4, 5}},    {{3, 4}, {2, 4, 5}},
                            {{2, 3, 4}, {2, 4, 5}}, {{4}, {2, 4, 3}},
                            {{2, 3, 4}, {4}},       {{2, 1, 3, 4}, {5, 4, 2}}};
  for (const auto& [a, b] : pairs) {
    CAPTURE(a);
    CAPTURE(b);
    CHECK(GradientFault(OperatorDef("MatMul", {"a", "b"}, {"c"}), {a, b}) == "");
  }
  const Tensor none = Invoke("MatMulGradient",
                             {Tensor::From<float>({2, 3}, Floats(6, 1)),
                              Tensor({2, 0}, DType::kFloat32), Tensor({0, 3}, DType::kFloat32)},
                             {{"of", 1}})[0];
  CHECK(none.shape() == Shape{0, 3});
}

TEST_CASE("The gradients of Gemm are the numeric ones, in every form of C") {
  const std::vector<Shape> forms = {{3, 5}, {5}, {1, 5}, {3, 1}, {1}, {}};
  for (int transposed = 0; transposed < 4; ++transposed) {
    const int ta = transposed & 1, tb = transposed >> 1;
    const Shape a = ta ? Shape{4, 3} : Shape{3, 4}, b = tb ? Shape{5, 4} : Shape{4, 5};
    const Arguments args = {{"transA", ta}, {"transB", tb}, {"alpha", 0.5f}, {"beta", 0.25f}};
    CAPTURE(transposed);
    CHECK(GradientFault(OperatorDef("Gemm", {"a", "b"}, {"y"}, args), {a, b}) == "");
    for (const Shape& form : forms) {
      CAPTURE(form);
      CHECK(GradientFault(OperatorDef("Gemm", {"a", "b", "c"}, {"y"}, args), {a, b, form}) == "");
    }
  }
}

TEST_CASE("MatMulGradient keeps the promises of its schema") {
  for (const int of : {0, 1}) {
    CheckNode(OperatorDef("MatMulGradient", {"dy", "a", "b"}, {"dx"}, {{"of", of}}),
              {Random({2, 3, 2}, 1), Random({2, 3, 4}, 2), Random({4, 2}, 3)});
  }
}

}  // namespace
}  // namespace matmul_test

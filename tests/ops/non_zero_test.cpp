// NonZero.
#include "opkit/ops/non_zero.hpp"

#include "data_movement.hpp"

namespace non_zero_test {
using namespace opkit_tests;

namespace {

TEST_CASE("one column for each element that is not zero") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, 0, -0.f, NAN});
  const Tensor y = Invoke("NonZero", {x})[0];
  CHECK(y.shape() == Shape{2, 2});
  CHECK(y.ToVector<int64_t>() == Ints{0, 1, 0, 1});
  CHECK(Invoke("NonZero", {Tensor::From<bool>({3}, {true, false, true})})[0].ToVector<int64_t>() ==
        Ints{0, 2});
  CHECK(Invoke("NonZero", {Counting({0, 3})})[0].shape() == Shape{2, 0});
  CHECK(Invoke("NonZero", {Tensor::Scalar(0.f)})[0].shape() == Shape{1, 0});
  CHECK(Invoke("NonZero", {Tensor::Scalar(2.f)})[0].ToVector<int64_t>() == Ints{0});
}

TEST_CASE("the operator infers its output and keeps the promises of its schema") {
  CHECK(Inferred("NonZero", {{Sym("N"), 3}}) == "int64[2, ?]");
  CHECK(Inferred("NonZero", {kNoRank}) == "int64[?, ?]");
  CHECK(Inferred("NonZero", {{2, 3}}) == "int64[2, <=6]");
  CHECK(Inferred("NonZero", {{2, Dim::AtMost(3)}}) == "int64[2, <=6]");
  CHECK(Inferred("NonZero", {SymbolicShape(Shape{})}) == "int64[1, <=1]");
  CheckNode(OperatorDef("NonZero", {"x"}, {"y"}), {Counting({2, 3})});
}

TEST_CASE("NonZero's cost: at most an index of every axis for every element") {
  const OpSchema& schema = OpRegistry::Global().GetSchema("NonZero");
  const OperatorDef def("NonZero", {"x"}, {"y"});
  const auto cost = [&](const TensorInfo& x) {
    return schema.Cost(def, {x}, schema.InferOutputs(def, {x}));
  };
  const OpCost matrix = cost(TensorInfo(DType::kFloat32, {3, 5}));
  CHECK(matrix.flops == 15);
  CHECK(matrix.bytes_read == 60);
  CHECK(matrix.bytes_written == 2 * 15 * 8);
  CHECK(cost(TensorInfo(DType::kBool, SymbolicShape(std::vector<Dim>{}))).bytes_written == 8);
  CHECK(cost(TensorInfo(DType::kFloat32, {0, 5})).bytes_written == 0);
  CHECK(cost(TensorInfo(DType::kFloat32, {Sym("N"), 5})).bytes_written == 0);  // nobody knows
  // The cost of a run counts the bytes that it wrote.
  CHECK(schema.Cost(def, {TensorInfo(DType::kFloat32, {3, 5})}, {TensorInfo(DType::kInt64, {2, 4})})
            .bytes_written == 2 * 4 * 8);
}

}  // namespace
}  // namespace non_zero_test

// Gather and GatherElements.
#include "opkit/ops/gather.hpp"

#include "data_movement.hpp"
#include "opkit/ops/scatter.hpp"

namespace gather_test {
using namespace opkit_tests;

namespace {

TEST_CASE("Gather puts the indices in the place of the axis") {
  const Tensor x = Counting({3, 2, 2});
  const Tensor indices = Tensor::From<int64_t>({1, 2}, {2, -3});
  const Tensor y = Invoke("Gather", {x, indices})[0];
  CHECK(y.shape() == Shape{1, 2, 2, 2});
  CHECK(FloatsOf(y) == Floats{8, 9, 10, 11, 0, 1, 2, 3});
  CHECK(FloatsOf(Invoke("Gather", {x, List({1, 1})}, {{"axis", -1}})[0]) ==
        Floats{1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11});
  CHECK(FloatsOf(Invoke("Gather", {Counting({3}), Tensor::Scalar<int32_t>(1)})[0]) == Floats{1});
  CHECK(Invoke("Gather", {x, List({})}, {{"axis", 1}})[0].shape() == Shape{3, 0, 2});
  CHECK(Invoke("Gather", {Counting({0, 3}), List({2})}, {{"axis", 1}})[0].shape() == Shape{0, 1});
  CHECK(FloatsOf(Invoke("Gather", {Counting({2, 3}).Permute({1, 0}), List({2})})[0]) ==
        Floats{2, 5});
}

TEST_CASE("GatherElements takes an element for each index") {
  const Tensor x = Counting({3, 3});
  const Tensor indices = Tensor::From<int32_t>({2, 3}, {1, 2, 0, -1, 0, 0});
  CHECK(FloatsOf(Invoke("GatherElements", {x, indices})[0]) == Floats{3, 7, 2, 6, 1, 2});
  CHECK(FloatsOf(Invoke("GatherElements", {x, indices}, {{"axis", 1}})[0]) ==
        Floats{1, 2, 0, 5, 3, 3});
  const Tensor pair = Tensor::From<int64_t>({1, 2, 1}, {1, 0});
  CHECK(FloatsOf(Invoke("GatherElements", {Counting({2, 2, 2}), pair}, {{"axis", -1}})[0]) ==
        Floats{1, 2});
  CHECK(Invoke("GatherElements", {x, Tensor(Shape{0, 3}, DType::kInt64)})[0].shape() ==
        Shape{0, 3});
}

TEST_CASE("symbols of the data and of the indices pass into the output's shape") {
  CHECK(Inferred("Gather", {{Sym("N"), 3, 4}, {DType::kInt64, {Sym("K"), 2}}}, {{"axis", 1}}) ==
        "float32[N, K, 2, 4]");
  CHECK(Inferred("Gather", {{Sym("N"), 3}, {DType::kInt64, SymbolicShape(Shape{})}}) ==
        "float32[3]");
  CHECK(Inferred("Gather", {{3, 4}, {DType::kInt64, kNoRank}}) == "float32[rank unknown]");
  CHECK(Inferred("GatherElements", {{Sym("N"), 3}, {DType::kInt32, {Sym("N"), 1}}},
                 {{"axis", 1}}) == "float32[N, 1]");
}

TEST_CASE("indices outside, and of other types, are refused") {
  const auto error = ErrorOf([] { Invoke("Gather", {Counting({3}), List({0, 3})}); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() == "Gather: index 3 is outside an axis of extent 3");
  CHECK(ErrorOf([] {
          Invoke("GatherElements", {Counting({3}), List({-4})});
        }).message() == "GatherElements: index -4 is outside an axis of extent 3");
  CHECK(ErrorOf([] {
          Invoke("Gather", {Counting({0, 2}), List({0})});
        }).message() == "Gather: index 0 is outside an axis of extent 0");
  CHECK(Refused("Gather", {{3}, {DType::kFloat32, {1}}}) ==
        "input 1 'indices' is float32[1], expected one of [int64, int32]");
  CHECK(Contains(Refused("Gather", {SymbolicShape(Shape{}), {DType::kInt64, {1}}}),
                 "axis 0 is outside a tensor of rank 0"));
  CHECK(Contains(Refused("GatherElements", {{3}, {DType::kInt64, {1, 1}}}),
                 "expected the same rank"));
  CHECK(Contains(Refused("GatherElements", {{3, 2}, {DType::kInt64, {1, 3}}}),
                 "expected no larger extents, except along `axis`"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("Gather", {"x", "i"}, {"y"}, {{"axis", 1}}),
            {Counting({2, 3, 2}), List({2, 0, -1})});
  CheckNode(OperatorDef("GatherElements", {"x", "i"}, {"y"}),
            {Counting({2, 3}), Tensor::From<int64_t>({1, 3}, {1, 0, 1})});
}

TEST_CASE("gradients add up where an index occurs twice") {
  const Tensor x = RandomTensor({2, 3, 2}, DType::kFloat32);
  CheckNode(OperatorDef("Gather", {"x", "i"}, {"y"}, {{"axis", -2}}),
            {x, Tensor::From<int32_t>({2, 2}, {2, 0, -1, 2})});
  CheckNode(OperatorDef("GatherElements", {"x", "i"}, {"y"}, {{"axis", 1}}),
            {x, Tensor::From<int64_t>({2, 2, 2}, {2, 2, -1, 0, 1, 1, 1, 1})});
  CHECK(HasGradient("Gather"));
  CHECK(HasGradient("GatherElements"));
}

}  // namespace
}  // namespace gather_test

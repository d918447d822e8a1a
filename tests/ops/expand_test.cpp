// Expand and Tile.
#include "opkit/ops/expand.hpp"

#include "data_movement.hpp"

namespace expand_test {
using namespace opkit_tests;

namespace {

TEST_CASE("Expand broadcasts both ways") {
  const Tensor x = Counting({3, 1});
  CHECK(FloatsOf(Invoke("Expand", {x, List({2})})[0]) == Floats{0, 0, 1, 1, 2, 2});
  const Tensor y = Invoke("Expand", {x, List({2, 1, 1})})[0];
  CHECK(y.shape() == Shape{2, 3, 1});
  CHECK(FloatsOf(y) == Floats{0, 1, 2, 0, 1, 2});
  CHECK(FloatsOf(Invoke("Expand", {Tensor::Scalar(4.f), List({3})})[0]) == Floats{4, 4, 4});
  CHECK(Invoke("Expand", {Counting({1}), List({0})})[0].shape() == Shape{0});
  CHECK(FloatsOf(Invoke("Expand", {Counting({1, 2}).Permute({1, 0}), List({2})})[0]) ==
        Floats{0, 0, 1, 1});
}

TEST_CASE("Tile lays copies side by side") {
  const Tensor x = Counting({2, 2});
  CHECK(FloatsOf(Invoke("Tile", {x, List({1, 2})})[0]) == Floats{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(FloatsOf(Invoke("Tile", {x, List({2, 1})})[0]) == Floats{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(Invoke("Tile", {x, List({0, 2})})[0].shape() == Shape{0, 4});
  CHECK(Invoke("Tile", {Counting({0, 2}), List({3, 2})})[0].shape() == Shape{0, 4});
  CHECK(FloatsOf(Invoke("Tile", {x.Permute({1, 0}), List({1, 2})})[0]) ==
        Floats{0, 2, 0, 2, 1, 3, 1, 3});
  CHECK(FloatsOf(Invoke("Tile", {Tensor::Scalar(4.f), List({})})[0]) == Floats{4});
}

TEST_CASE("shapes follow from constant extents, and extents that do not fit are refused") {
  CHECK(Inferred("Expand", {{Sym("N"), 1}, List({1, 1, 5})}) == "float32[1, N, 5]");
  CHECK(Inferred("Expand", {{Sym("N"), 3}, {DType::kInt64, {3}}}) == "float32[?, ?, 3]");
  CHECK(Inferred("Expand", {{Sym("N"), 3}, {DType::kInt64, {Dim()}}}) == "float32[rank unknown]");
  CHECK(Contains(Refused("Expand", {{2, 3}, List({4})}), "cannot be broadcast together"));
  CHECK(Contains(Refused("Expand", {{2, 3}, List({-1})}), "negative extent"));
  CHECK(Inferred("Tile", {{Sym("N"), 3, Sym("M")}, List({1, 4, 2})}) == "float32[N, 12, ?]");
  CHECK(Inferred("Tile", {{Sym("N"), 3}, {DType::kInt64, {2}}}) == "float32[?, ?]");
  CHECK(Inferred("Tile", {{Dim::AtMost(5), 3}, List({2, 1})}) == "float32[<=10, 3]");
  CHECK(Refused("Tile", {{2, 3}, List({2})}) ==
        "Tile: 'repeats' has 1 elements, expected one for each axis of [2, 3]");
  CHECK(Refused("Tile", {{2}, List({-2})}) ==
        "Tile: 'repeats' is [-2], expected numbers of at least 0");
  CHECK(Contains(Refused("Tile", {{4}, List({INT64_MAX})}), "64-bit count"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("Expand", {"x", "shape"}, {"y"}), {Counting({3, 1}), List({2, 1, 4})});
  CHECK(HasGradient("Expand"));
  for (const auto& [shape, repeats] : {std::pair{Shape{2, 3}, std::vector<int64_t>{2, 1}},
                                       {Shape{2, 1, 3}, {1, 4, 3}},
                                       {Shape{}, {}}}) {
    const auto result =
        CheckGradient(OperatorDef("Tile", {"x", "n"}, {"y"}),
                      {RandomTensor(shape, DType::kFloat64), List(repeats)}, {.inputs = {0}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
  CheckNode(OperatorDef("Tile", {"x", "repeats"}, {"y"}), {Counting({2, 3}), List({2, 2})});
}

}  // namespace
}  // namespace expand_test

// ArgMax and ArgMin: values, ties, shapes, errors.
#include "opkit/ops/math/arg.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "opkit/op/invoke.hpp"
#include "ops/infer.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace arg_test {
using namespace opkit_tests;

namespace {

Ints Found(const char* op, const Tensor& x, Arguments args) {
  return Invoke(op, {x}, std::move(args))[0].ToVector<int64_t>();
}

TEST_CASE("Where the largest and the smallest element is") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 5, 2, 9, -1, 0});
  CHECK(Found("ArgMax", x, {{"axis", 1}}) == Ints{1, 0});
  CHECK(Found("ArgMin", x, {{"axis", -1}}) == Ints{0, 1});
  CHECK(Found("ArgMax", x, {}) == Ints{1, 0, 0});
  CHECK(Invoke("ArgMax", {x}, {{"axis", 1}})[0].shape() == Shape{2, 1});
  CHECK(Invoke("ArgMax", {x}, {{"axis", 1}, {"keepdims", 0}})[0].shape() == Shape{2});
}

TEST_CASE("Among equal elements the first is found, or the last") {
  const Tensor x = Tensor::From<int32_t>({5}, {2, 7, 7, 2, 7});
  CHECK(Found("ArgMax", x, {}) == Ints{1});
  CHECK(Found("ArgMax", x, {{"select_last_index", 1}}) == Ints{4});
  CHECK(Found("ArgMin", x, {}) == Ints{0});
  CHECK(Found("ArgMin", x, {{"select_last_index", 1}}) == Ints{3});
}

TEST_CASE("A NaN is found, the first or the last of several") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::From<float>({4}, {5, nan, nan, 9});
  for (const char* op : {"ArgMax", "ArgMin"}) {
    CHECK(Found(op, x, {}) == Ints{1});
    CHECK(Found(op, x, {{"select_last_index", 1}}) == Ints{2});
  }
}

TEST_CASE("The axis becomes 1 or goes, and an empty axis is refused") {
  CHECK(Inferred("ArgMax", {F({Sym("N"), 3})}, {{"axis", -1}}) == "int64[N, 1]");
  CHECK(Inferred("ArgMax", {F({Sym("N"), 3})}, {{"axis", 1}, {"keepdims", 0}}) == "int64[N]");
  CHECK(Inferred("ArgMax", {F(SymbolicShape())}) == "int64[rank unknown]");
  CHECK(Contains(Refused("ArgMax", {F({2, 0})}, {{"axis", 1}}), "no elements to choose from"));
  CHECK(Contains(Refused("ArgMin", {F({2})}, {{"axis", 1}}), "axis 1 is outside"));
  CHECK(Invoke("ArgMax", {Tensor({0, 2}, DType::kFloat32)}, {{"axis", 1}})[0].shape() ==
        Shape{0, 1});
}

TEST_CASE("ArgMax keeps the promises of its schema") {
  CheckNode(OperatorDef("ArgMax", {"x"}, {"y"}, {{"axis", 1}}), {Random({3, 4, 5}, 1)});
}

}  // namespace
}  // namespace arg_test

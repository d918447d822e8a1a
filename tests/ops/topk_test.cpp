// TopK: order, ties, axes, shapes, errors.
#include "opkit/ops/topk.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "infer.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/ops/scatter.hpp"
#include "support/check_node.hpp"
#include "support/tensors.hpp"

namespace topk_test {
using namespace opkit_tests;

namespace {

Tensor K(int64_t k) { return Tensor::From<int64_t>({1}, {k}); }

TEST_CASE("The largest and the smallest, best first") {
  const Tensor x = Tensor::From<float>({2, 4}, {1, 4, 3, 2, -1, -4, -3, -2});
  auto out = Invoke("TopK", {x, K(2)});
  CHECK(out[0].shape() == Shape{2, 2});
  CHECK(out[0].ToVector<float>() == Floats{4, 3, -1, -2});
  CHECK(out[1].ToVector<int64_t>() == Ints{1, 2, 0, 3});
  out = Invoke("TopK", {x, K(3)}, {{"largest", 0}});
  CHECK(out[0].ToVector<float>() == Floats{1, 2, 3, -4, -3, -2});
  CHECK(out[1].ToVector<int64_t>() == Ints{0, 3, 2, 1, 2, 3});
}

TEST_CASE("Along an axis in the middle, of all and of none") {
  const Tensor x = Tensor::From<int32_t>({1, 3, 2}, {1, 20, 3, 10, 2, 30});
  auto out = Invoke("TopK", {x, K(2)}, {{"axis", 1}});
  CHECK(out[0].ToVector<int32_t>() == std::vector<int32_t>{3, 30, 2, 20});
  CHECK(out[1].ToVector<int64_t>() == Ints{1, 2, 2, 0});
  CHECK(Invoke("TopK", {x, K(3)}, {{"axis", -2}})[0].shape() == Shape{1, 3, 2});
  CHECK(Invoke("TopK", {x, K(0)}, {{"axis", 1}})[1].shape() == Shape{1, 0, 2});
}

TEST_CASE("Among equal elements the lower index comes first; NaN is the largest") {
  const Tensor same = Tensor::From<uint64_t>({4}, {5, 5, 1, 5});
  CHECK(Invoke("TopK", {same, K(3)})[1].ToVector<int64_t>() == Ints{0, 1, 3});
  CHECK(Invoke("TopK", {same, K(3)}, {{"largest", 0}})[1].ToVector<int64_t>() == Ints{2, 0, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::From<float>({4}, {1, nan, 7, nan});
  CHECK(Invoke("TopK", {x, K(3)})[1].ToVector<int64_t>() == Ints{1, 3, 2});
  CHECK(Invoke("TopK", {x, K(3)}, {{"largest", 0}})[1].ToVector<int64_t>() == Ints{0, 2, 1});
}

TEST_CASE("K decides the shape, and is known or not") {
  CHECK(Inferred("TopK", {F({Sym("N"), 5}), K(3)}, {}, 2) == "float32[N, 3] int64[N, 3]");
  CHECK(Inferred("TopK", {F({Sym("N"), 5}), {DType::kInt64, {1}}}, {}, 2) ==
        "float32[N, <=5] int64[N, <=5]");
  CHECK(Inferred("TopK", {F(SymbolicShape()), K(3)}, {}, 2) ==
        "float32[rank unknown] int64[rank unknown]");
  CHECK(Refused("TopK", {F({2, 5}), K(9)}, {}, 2) ==
        "TopK: K is 9, but axis 1 of shape [2, 5] has only 5 elements");
  CHECK(Contains(Refused("TopK", {F({2, 5}), K(-1)}, {}, 2), "K is [-1], expected one"));
}

TEST_CASE("TopK keeps the promises of its schema") {
  CheckNode(OperatorDef("TopK", {"x", "k"}, {"v", "i"}, {{"axis", 1}}),
            {Random({3, 7, 2}, 1), K(4)});
}

}  // namespace
}  // namespace topk_test

// GroupNormalization.
#include "opkit/ops/nn/group_normalization.hpp"

#include "../data_movement.hpp"

namespace group_normalization_test {
using namespace opkit_tests;

namespace {

TEST_CASE("each group of channels has the mean 0 and the variance 1, before scale and bias") {
  const Tensor x = Tensor::From<float>({1, 4, 1}, {1, 3, 10, 30});
  const std::vector<Tensor> inputs{x, Vector({1, 2, 3, 4}), Vector({0, 0, 5, 0})};
  CHECK(FloatsOf(Invoke("GroupNormalization", inputs, {{"num_groups", 2}, {"epsilon", 0.f}})[0]) ==
        Floats{-1, 2, 2, 4});
  // The variance of the first group is 1, so that the root is 2.
  CHECK(FloatsOf(Invoke("GroupNormalization", inputs,
                        {{"num_groups", 2}, {"epsilon", 3.f}})[0])[0] == -0.5f);
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  const Known c{4};
  CHECK(Inferred("GroupNormalization", {{Sym("N"), 4, Sym("H")}, c, c}, {{"num_groups", 2}}) ==
        "float32[N, 4, H]");
  CHECK(Contains(Refused("GroupNormalization", {{1, 4, 2}, c, c}, {{"num_groups", 3}}),
                 "share evenly"));
  CHECK(Contains(Refused("GroupNormalization", {{1, 4, 2}, c, c}, {{"num_groups", 0}}),
                 "one group or more"));
  CHECK(!Refused("GroupNormalization", {{1, 4, 2}, {3}, c}, {{"num_groups", 2}}).empty());
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("GroupNormalization", {"x", "s", "b"}, {"y"}, {{"num_groups", 2}}),
            {Counting({2, 4, 3}), Vector({1, 2, 3, 4}), Vector({4, 3, 2, 1})});
}

TEST_CASE("gradients of the groups, scales and biases") {
  for (const Shape& shape : {Shape{2, 4, 3}, Shape{2, 4, 2, 1}}) {
    const auto random = [](Shape of, uint64_t seed) {
      return RandomTensor(of, DType::kFloat64, seed);
    };
    const auto result = CheckGradient(
        OperatorDef("GroupNormalization", {"x", "s", "b"}, {"y"}, {{"num_groups", 2}}),
        {random(shape, 1), random({4}, 2), random({4}, 3)}, {.inputs = {0, 1, 2}});
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
}

}  // namespace
}  // namespace group_normalization_test

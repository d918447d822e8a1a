// LayerNormalization of the "eigen" backend: the same as the plain operator.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace layer_normalization_test {
using namespace opkit;

namespace {

void Compare(const Shape& x, const Shape& scale, const Shape& bias, int axis) {
  for (int outputs = 1; outputs <= 3; ++outputs)
    CheckSameOn("eigen", "LayerNormalization", {Random(x, 1), Random(scale, 2), Random(bias, 3)},
                {{"axis", axis}, {"epsilon", 1e-3f}}, outputs);
  CheckSameOn("eigen", "LayerNormalization", {Random(x, 1), Random(scale, 2)}, {{"axis", axis}});
}

TEST_CASE("Rows of every length, one and several axes") {
  Compare({40, 120}, {120}, {120}, -1);
  Compare({3, 7, 5}, {7, 5}, {7, 5}, 1);
  Compare({2, 3, 10'000}, {10'000}, {10'000}, 2);
  Compare({300, 1}, {1}, {1}, 1);
  Compare({5, 3}, {5, 3}, {5, 3}, 0);
  Compare({0, 4}, {4}, {4}, 1);
  Compare({1, 1, 33}, {1, 33}, {33}, 2);
}

TEST_CASE("Factors that are broadcast, also from row to row") {
  Compare({4, 7, 5}, {5}, {7, 5}, 1);
  Compare({4, 7, 5}, {7, 1}, {1}, 1);
  Compare({4, 5, 5}, {5, 1}, {1, 5}, 2);  // as many elements as a row, but along another axis
  Compare({4, 7, 5}, {4, 1, 1}, {}, 2);
}

TEST_CASE("Numbers whose sums and squares float does not hold") {
  const Tensor large = Tensor::From<float>(
      {3, 4}, {1e20f, 2e20f, -1e20f, 0, 3e38f, 3e38f, 3e38f, 3e38f, 1, 2, 3, 4});
  CheckSameOn("eigen", "LayerNormalization", {large, Filled({4}, 1)});
}

TEST_CASE("A mean far from 0 costs no more digits than in the plain operator") {
  Tensor x = Random({6, 50}, 1);
  for (int64_t i = 0; i < x.numel(); ++i) x.mutable_data<float>()[i] += 1000;
  const Tensor one = Filled({50}, 1);
  const auto eigen =
      Invoke("LayerNormalization", {x, one}, {}, {.backends = "eigen", .num_outputs = 1});
  const auto plain =
      Invoke("LayerNormalization", {x, one}, {}, {.backends = "reference", .num_outputs = 1});
  for (int64_t i = 0; i < x.numel(); ++i)
    CHECK(eigen[0].data<float>()[i] == doctest::Approx(plain[0].data<float>()[i]).epsilon(1e-3));
}

TEST_CASE("LayerNormalization keeps the promises of its schema on every backend") {
  const OperatorDef def("LayerNormalization", {"x", "s", "b"}, {"y", "m", "v"}, {{"axis", 1}});
  CheckNode(def, {Random({4, 3, 5}, 1), Random({3, 5}, 2), Random({5}, 3)});
}

}  // namespace
}  // namespace layer_normalization_test

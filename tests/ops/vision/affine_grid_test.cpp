// AffineGrid.
#include "opkit/ops/vision/affine_grid.hpp"

#include "../data_movement.hpp"

namespace affine_grid_test {
using namespace opkit_tests;

namespace {

Floats Run(const Tensor& theta, const Ints& size, Arguments args = {}) {
  return FloatsOf(Invoke("AffineGrid", {theta, List(size)}, std::move(args))[0]);
}

TEST_CASE("positions are those of the elements, the last axis first") {
  const Tensor same = Tensor::From<float>({1, 2, 3}, {1, 0, 0, 0, 1, 0});
  CHECK(Run(same, {1, 7, 1, 2}) == Floats{-0.5f, 0, 0.5f, 0});
  CHECK(Run(same, {1, 7, 3, 2}, {{"align_corners", 1}}) ==
        Floats{-1, -1, 1, -1, -1, 0, 1, 0, -1, 1, 1, 1});
}

TEST_CASE("each matrix moves them") {
  const Tensor theta = Tensor::From<float>({2, 2, 3}, {0, 1, 3, 2, 0, 0, 0, 0, 5, 0, 0, 6});
  CHECK(Run(theta, {2, 1, 1, 2}) == Floats{3, -1, 3, 1, 5, 6, 5, 6});
  const Tensor volume = Tensor::From<float>({1, 3, 4}, {0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 9});
  CHECK(Run(volume, {1, 1, 1, 1, 2}) == Floats{0, 0, 8.5f, 0, 0, 9.5f});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("AffineGrid", {{Sym("N"), 2, 3}, List({2, 3, 4, 5})}) == "float32[2, 4, 5, 2]");
  CHECK(Inferred("AffineGrid", {{1, 3, 4}, {DType::kInt64, {5}}}) == "float32[?, ?, ?, ?, 3]");
  CHECK(Contains(Refused("AffineGrid", {{1, 2, 3}, List({1, 1, 2, 2, 2})}), "[N, 3, 4] and"));
  CHECK(Contains(Refused("AffineGrid", {{1, 2, 3}, List({1, 2, 2})}), "expected [N, 2, 3]"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("AffineGrid", {"t", "s"}, {"y"}),
            {Counting({2, 2, 3}), List({2, 1, 3, 2})});
  CheckNode(OperatorDef("AffineGrid", {"t", "s"}, {"y"}, {{"align_corners", 1}}),
            {Counting({1, 3, 4}), List({1, 1, 2, 3, 2})});
  CHECK(HasGradient("AffineGrid"));
}

}  // namespace
}  // namespace affine_grid_test

// TensorScatter.
#include "opkit/ops/indexing/tensor_scatter.hpp"

#include "../data_movement.hpp"

namespace tensor_scatter_test {
using namespace opkit_tests;

namespace {

const Tensor kCache = Tensor::From<float>({2, 3, 1}, {1, 2, 3, 4, 5, 6});
const Tensor kUpdate = Tensor::From<float>({2, 2, 1}, {10, 20, 30, 40});

Floats Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("TensorScatter", inputs, std::move(args))[0]);
}

TEST_CASE("new steps are written where the indices say, and may wrap around") {
  CHECK(Run({kCache, kUpdate}) == Floats{10, 20, 3, 30, 40, 6});
  CHECK(Run({kCache, kUpdate, List({1, 0})}) == Floats{1, 10, 20, 30, 40, 6});
  CHECK(Run({kCache, kUpdate, List({2, 4})}, {{"mode", "circular"}}) ==
        Floats{20, 2, 10, 4, 30, 40});
  const Tensor wide = Tensor::From<float>({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(Run({wide, Tensor::From<float>({1, 2, 1}, {10, 20}), List({2})}, {{"axis", -1}}) ==
        Floats{1, 2, 10, 4, 5, 20});
}

TEST_CASE("wrong shapes and indices are refused") {
  CHECK(Inferred("TensorScatter", {{Sym("N"), 3, 1}, {Sym("N"), 2, 1}}) == "float32[N, 3, 1]");
  CHECK(Contains(Refused("TensorScatter", {{2, 3, 1}, {2, 4, 1}}), "no more new steps"));
  CHECK(Contains(Refused("TensorScatter", {{2, 3, 1}, {2, 2, 2}}), "equal extents"));
  CHECK(Contains(Refused("TensorScatter", {{2, 3, 1}, {2, 2, 1}}, {{"axis", 0}}), "another axis"));
  CHECK(Contains(ErrorOf([] {
                   Run({kCache, kUpdate, List({0, 2})});
                 }).message(),
                 "write index 2 and 2 steps do not fit a cache of 3 steps"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("TensorScatter", {"c", "u", "w"}, {"y"}), {kCache, kUpdate, List({1, 0})});
}

}  // namespace
}  // namespace tensor_scatter_test

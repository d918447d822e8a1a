// MaxUnpool.
#include "opkit/ops/vision/max_unpool.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/nn/pool.hpp"
#include "opkit/ops/reshape.hpp"

namespace max_unpool_test {
using namespace opkit_tests;

namespace {

const Arguments kWindow = {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}};

TEST_CASE("it puts the elements of a MaxPool back to their places") {
  const Tensor x = Tensor::From<float>({1, 1, 2, 4}, {1, 5, 2, 3, 4, 0, 6, 0});
  const auto pooled = Invoke("MaxPool", {x}, kWindow, {.num_outputs = 2});
  const Tensor y = Invoke("MaxUnpool", {pooled[0], pooled[1]}, kWindow)[0];
  CHECK(y.shape() == x.shape());
  CHECK(FloatsOf(y) == Floats{0, 5, 0, 0, 0, 0, 6, 0});
}

TEST_CASE("an output shape adds zeros at the end of each axis") {
  const Tensor x = Tensor::From<float>({1, 1, 1, 2}, {5, 6});
  const Tensor y =
      Invoke("MaxUnpool", {x, Tensor::From<int64_t>({1, 1, 1, 2}, {1, 6}), List({1, 1, 3, 5})},
             kWindow)[0];
  CHECK(FloatsOf(y) == Floats{0, 5, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("indices and shapes outside the pooled image are refused") {
  const Tensor x = Counting({1, 1, 1, 2});
  for (const int64_t index : {-1, 8})
    CHECK(Contains(
        ErrorOf([&] {
          Invoke("MaxUnpool", {x, Tensor::From<int64_t>({1, 1, 1, 2}, {0, index})}, kWindow);
        }).message(),
        StrCat("MaxUnpool: index ", index, " is outside the 8 elements")));
  const Known index(DType::kInt64, {1, 1, 1, 2});
  CHECK(Contains(Refused("MaxUnpool", {{1, 1, 1, 2}, index, List({1, 1, 2, 3})}, kWindow),
                 "no smaller extents than those of the pooled image, [1, 1, 2, 4]"));
  CHECK(Contains(Refused("MaxUnpool", {{1, 1, 1, 2}, index, List({2, 1, 2, 4})}, kWindow),
                 "no smaller extents"));
  CHECK(Contains(Refused("MaxUnpool", {{1, 1}, {DType::kInt64, {1, 1}}}, {{"kernel_shape", {2}}}),
                 "at least one spatial axis"));
  CHECK(Contains(Refused("MaxUnpool", {{1, 1, 1}, {DType::kInt64, {1, 1, 1}}},
                         {{"kernel_shape", {1}}, {"pads", {1, 1}}}),
                 "which leave nothing"));
}

TEST_CASE("shapes are inferred") {
  const Known index(DType::kInt64, {Sym("N"), 1, 3, Sym("W")});
  CHECK(Inferred("MaxUnpool", {{Sym("N"), 1, 3, Sym("W")}, index}, kWindow) ==
        "float32[N, 1, 6, ?]");
  CHECK(Inferred("MaxUnpool", {{Sym("N"), 1, 3, Sym("W")}, index, {DType::kInt64, {4}}}, kWindow) ==
        "float32[?, ?, ?, ?]");
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("MaxUnpool", {"x", "i"}, {"y"}, kWindow),
            {Counting({1, 2, 1, 2}), Tensor::From<int64_t>({1, 2, 1, 2}, {1, 2, 9, 15})});
  CHECK(HasGradient("MaxUnpool"));
  CHECK(Contains(ErrorOf([] {
                   GetGradientForOp(OperatorDef("MaxUnpool", {"x", "i", "s"}, {"y"}, kWindow),
                                    {GradientValue("g")});
                 }).message(),
                 "only without output_shape"));
}

}  // namespace
}  // namespace max_unpool_test

// GridSample.
#include "opkit/ops/vision/grid_sample.hpp"

#include "../data_movement.hpp"

namespace grid_sample_test {
using namespace opkit_tests;

namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();

// Samples the row 1, 2, 4, 8 at positions of its elements' numbers.
Floats Row(const Floats& positions, Arguments args = {}) {
  const auto count = static_cast<int64_t>(positions.size());
  Floats grid;
  const bool aligned = args.Get<int64_t>("align_corners", 0) != 0;
  for (const float at : positions) grid.push_back(aligned ? at / 1.5f - 1 : (at + 0.5f) / 2 - 1);
  return FloatsOf(Invoke(
      "GridSample",
      {Tensor::From<float>({1, 1, 4}, {1, 2, 4, 8}), Tensor::From<float>({1, count, 1}, grid)},
      std::move(args))[0]);
}

TEST_CASE("positions between elements are interpolated") {
  CHECK(Row({0, 0.5f, 2.25f, 3}) == Floats{1, 1.5f, 5, 8});
  CHECK(Row({0.25f, 0.5f, 1.5f}, {{"mode", "nearest"}}) == Floats{1, 1, 4});
  // Keys' weights halfway: -3/32, 19/32, 19/32, -3/32.
  CHECK(Row({1.5f}, {{"mode", "cubic"}})[0] ==
        doctest::Approx((-3 * 1 + 19 * 2 + 19 * 4 - 3 * 8) / 32.));
  CHECK(Row({1.5f, 3}, {{"align_corners", 1}})[0] == doctest::Approx(3));
}

TEST_CASE("the padding mode decides what is outside") {
  CHECK(Row({-0.5f, 4, kNaN}) == Floats{0.5f, 0, 0});
  CHECK(Row({-0.5f, 9}, {{"padding_mode", "border"}}) == Floats{1, 8});
  // Without align_corners the mirror is the edge of the outermost element, with it the center.
  CHECK(Row({-1.5f, 4, 9}, {{"padding_mode", "reflection"}}) == Floats{1.5f, 8, 2});
  const Floats aligned = Row({-1, 4}, {{"padding_mode", "reflection"}, {"align_corners", 1}});
  CHECK(aligned[0] == doctest::Approx(2));
  CHECK(aligned[1] == doctest::Approx(4));
}

TEST_CASE("images and volumes have a channel at a time, and integers are converted") {
  const Tensor image = Tensor::From<int32_t>({1, 2, 2, 2}, {0, 1, 2, 3, 10, 11, 12, 13});
  // The last axis comes first: right above, and the middle.
  const Tensor grid = Tensor::From<float>({1, 1, 2, 2}, {0.5f, -0.5f, 0, 0});
  CHECK(Invoke("GridSample", {image, grid})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{1, 1, 11, 11});
  const Tensor middle = Tensor::From<float>({1, 1, 1, 1, 3}, {0, 0, 0});
  CHECK(FloatsOf(Invoke("GridSample", {Counting({1, 1, 2, 2, 2}), middle})[0]) == Floats{3.5f});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("GridSample", {{Sym("N"), 3, 9, 8}, {Sym("N"), 5, Sym("W"), 2}}) ==
        "float32[N, 3, 5, W]");
  CHECK(Contains(Refused("GridSample", {{1, 3, 9, 8}, {1, 5, 5, 3}}), "of one rank"));
  CHECK(Contains(Refused("GridSample", {{1, 3}, {1, 2}}), "of one rank"));
  CHECK(Contains(ErrorOf([] {
                   Invoke("GridSample", {Counting({1, 1, 0}), Counting({1, 1, 1})},
                          {{"padding_mode", "border"}});
                 }).message(),
                 "no elements at its border"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("GridSample", {"x", "g"}, {"y"}),
            {Counting({1, 2, 3, 2}), Tensor::From<float>({1, 2, 1, 2}, {0.1f, -0.2f, 0.8f, 2})});
}

TEST_CASE("gradients of the image and of positions inside and outside of it") {
  const Tensor x = RandomTensor({2, 2, 3, 4}, DType::kFloat64);
  // No position is at a kink: a whole or a half element, or an end.
  const Tensor grid =
      Tensor::From<double>({2, 2, 1, 2}, {-0.61, 0.13, 0.83, -0.29, -1.37, 0.41, 0.07, 1.73});
  for (const char* mode : {"linear", "nearest", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const int align : {0, 1}) {
        CAPTURE(mode);
        CAPTURE(padding);
        CAPTURE(align);
        const auto result = CheckGradient(
            OperatorDef("GridSample", {"x", "g"}, {"y"},
                        {{"mode", mode}, {"padding_mode", padding}, {"align_corners", align}}),
            {x, grid}, {.inputs = {0, 1}});
        CHECK_MESSAGE(result.ok(), ToString(result));
      }
  const auto volume =
      CheckGradient(OperatorDef("GridSample", {"x", "g"}, {"y"}),
                    {RandomTensor({1, 1, 2, 3, 2}, DType::kFloat64),
                     Tensor::From<double>({1, 1, 1, 2, 3}, {-0.61, 0.13, 0.83, -0.29, 0.37, 0.41})},
                    {.inputs = {0, 1}});
  CHECK_MESSAGE(volume.ok(), ToString(volume));
}

}  // namespace
}  // namespace grid_sample_test

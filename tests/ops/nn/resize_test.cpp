// Resize: whole tensors, inference, messages. Coordinates and weights: resize_axis_test.cpp.
#include "opkit/ops/nn/resize.hpp"

#include "ops/data_movement.hpp"

namespace resize_test {
using namespace opkit_tests;

namespace {

const Tensor kNone;

Tensor ByScales(const Tensor& x, const Floats& scales, Arguments args = {}) {
  const Tensor list = Tensor::From<float>({static_cast<int64_t>(scales.size())}, scales);
  return Invoke("Resize", {x, kNone, list}, std::move(args))[0];
}
Tensor BySizes(const Tensor& x, const Ints& sizes, Arguments args = {}) {
  return Invoke("Resize", {x, kNone, kNone, List(sizes)}, std::move(args))[0];
}

TEST_CASE("the nearest element of any type is taken") {
  CHECK(FloatsOf(ByScales(Counting({2, 2}), {1, 2})) == Floats{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(FloatsOf(ByScales(Counting({2, 2}), {2, 1})) == Floats{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(FloatsOf(BySizes(Counting({6}), {3},
                         {{"nearest_mode", "floor"},
                          {"coordinate_transformation_mode", "asymmetric"}})) == Floats{0, 2, 4});
  CHECK(FloatsOf(BySizes(Counting({3}), {3})) == Floats{0, 1, 2});
  const Tensor bools = Tensor::From<bool>({2}, {true, false});
  CHECK(ByScales(bools, {2}).ToVector<bool>() == std::vector<bool>{true, true, false, false});
  const Tensor bytes = Tensor::From<uint8_t>({2}, {7, 8});
  CHECK(ByScales(bytes, {2}).ToVector<uint8_t>() == std::vector<uint8_t>{7, 7, 8, 8});
}

TEST_CASE("nearest as TensorFlow has it, half a pixel further on") {
  const auto resized = [](const Tensor& x, const Floats& scales, const char* nearest) {
    return FloatsOf(ByScales(
        x, scales,
        {{"coordinate_transformation_mode", "tf_half_pixel_for_nn"}, {"nearest_mode", nearest}}));
  };
  // At 0.25, 0.75, 1.25, 1.75 of the one axis, at 1 and 3 of the other.
  CHECK(resized(Counting({2, 4}), {2, 0.5f}, "floor") == Floats{1, 3, 1, 3, 5, 7, 5, 7});
  CHECK(resized(Counting({3}), {2}, "ceil") == Floats{1, 1, 2, 2, 2, 2});
  CHECK(resized(Counting({4}), {0.75f}, "floor") == Floats{0, 2, 3});  // at 2/3, 2, 10/3
  // An axis that is not resized keeps its place, whatever becomes of halves.
  for (const char* nearest : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"})
    CHECK(resized(Counting({2, 2}), {1, 1}, nearest) == Floats{0, 1, 2, 3});
}

TEST_CASE("nearest as ONNX Runtime has it before opset 11: each axis by its own scale") {
  ResolvedOperator resize(
      "Resize", 3, {{"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "simple"}});
  const auto resized = [&](const Tensor& x, const Floats& scales) {
    const auto count = static_cast<int64_t>(scales.size());
    return FloatsOf(resize({x, kNone, Tensor::From<float>({count}, scales)})[0]);
  };
  // Along the axis that shrinks at 0, 4/3, 8/3; along the one that grows at 0, 2/3, 4/3.
  CHECK(resized(Counting({4, 2}), {0.75f, 1.5f}) == Floats{0, 0, 1, 4, 4, 5, 6, 6, 7});
  // The scales of a run decide, not those of the one before.
  CHECK(resized(Counting({2, 4}), {1.5f, 0.75f}) == Floats{0, 2, 3, 0, 2, 3, 4, 6, 7});
  CHECK(resized(Counting({4}), {0.75f}) == Floats{0, 2, 3});
  CHECK(resized(Counting({4}), {1}) == Floats{0, 1, 2, 3});
  CHECK(resized(Counting({4}), {1.25f}) == Floats{0, 0, 1, 2, 3});
}

TEST_CASE("linear weighs the neighbours along one axis and two") {
  const Arguments linear = {{"mode", "linear"}};
  CHECK(FloatsOf(ByScales(Counting({2}), {2}, linear)) == Floats{0, 0.25f, 0.75f, 1});
  CHECK(FloatsOf(
            BySizes(Counting({2, 2}), {3, 3},
                    {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}})) ==
        Floats{0, 0.5f, 1, 1, 1.5f, 2, 2, 2.5f, 3});
  CHECK(FloatsOf(ByScales(Counting({4}), {0.5f}, linear)) == Floats{0.5f, 2.5f});
  const Tensor image = Counting({1, 2, 2, 2});
  CHECK(ByScales(image, {1, 1, 2, 2}, linear).shape() == Shape{1, 2, 4, 4});
  CHECK(FloatsOf(ByScales(image, {1, 1, 1, 1}, linear)) == FloatsOf(image));
  CHECK(FloatsOf(ByScales(Counting({2, 2}).Permute({1, 0}), {1, 1}, linear)) == Floats{0, 2, 1, 3});
}

TEST_CASE("a plane stays a plane") {
  // Linear and cubic both reproduce it away from the sides.
  Tensor plane(Shape{8, 9}, DType::kFloat32);
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t k = 0; k < 9; ++k)
      plane.mutable_data<float>()[i * 9 + k] = static_cast<float>(3 * i - 2 * k);
  for (const char* mode : {"linear", "cubic"}) {
    const Tensor y = BySizes(plane, {15, 17},
                             {{"mode", mode}, {"coordinate_transformation_mode", "align_corners"}});
    for (int64_t i = 4; i < 11; ++i)
      for (int64_t k = 4; k < 13; ++k)
        CHECK(y.data<float>()[i * 17 + k] ==
              doctest::Approx(1.5 * static_cast<double>(i) - static_cast<double>(k)));
  }
}

TEST_CASE("integers are rounded, and stay in their range") {
  const Tensor bytes = Tensor::From<uint8_t>({2}, {0, 255});
  CHECK(ByScales(bytes, {2}, {{"mode", "linear"}}).ToVector<uint8_t>() ==
        std::vector<uint8_t>{0, 64, 191, 255});
  const Tensor steps = Tensor::From<uint8_t>({4}, {0, 0, 255, 255});
  const auto cubic = ByScales(steps, {4}, {{"mode", "cubic"}}).ToVector<uint8_t>();
  CHECK(cubic[5] == 0);  // overshoots on both sides
  CHECK(cubic[10] == 255);
  const int64_t large = (int64_t{1} << 52) + 2;
  CHECK(ByScales(List({large, large}), {2}, {{"mode", "linear"}}).ToVector<int64_t>() ==
        Ints{large, large, large, large});
  const Tensor same = Tensor::From<uint8_t>({3}, {255, 255, 255});
  CHECK(BySizes(same, {7}, {{"mode", "cubic"}}).ToVector<uint8_t>() ==
        std::vector<uint8_t>(7, 255));
}

TEST_CASE("halves and doubles are interpolated in their own precision") {
  const Tensor halves = Tensor::From<float16>({2}, {float16(0.f), float16(1.f)});
  const auto found = ByScales(halves, {2}, {{"mode", "linear"}}).ToVector<float16>();
  CHECK(static_cast<float>(found[1]) == 0.25f);
  const Tensor doubles = Tensor::From<double>({2}, {0, 1e-30});
  CHECK(ByScales(doubles, {2}, {{"mode", "linear"}}).ToVector<double>()[1] ==
        doctest::Approx(0.25e-30));
}

TEST_CASE("tf_crop_and_resize fills the elements outside") {
  const Tensor roi = Tensor::From<float>({4}, {0, 0.5f, 1, 1.5f});
  for (const char* mode : {"linear", "nearest"}) {
    const Tensor y = Invoke("Resize", {Counting({2, 3}), roi, kNone, List({2, 3})},
                            {{"mode", mode},
                             {"coordinate_transformation_mode", "tf_crop_and_resize"},
                             {"extrapolation_value", -7.f}})[0];
    CHECK(FloatsOf(y) == Floats{1, 2, -7, 4, 5, -7});
  }
  CHECK(Contains(
      ErrorOf([] {
        BySizes(Counting({2}), {2}, {{"coordinate_transformation_mode", "tf_crop_and_resize"}});
      }).message(),
      "'roi' has 0 elements, expected 2"));
}

TEST_CASE("sizes go to the axes that are named, and may keep the aspect ratio") {
  const Tensor x = Counting({1, 4, 8});
  CHECK(BySizes(x, {6, 2}, {{"axes", {2, 1}}}).shape() == Shape{1, 2, 6});
  CHECK(
      BySizes(x, {8, 8}, {{"axes", {1, 2}}, {"keep_aspect_ratio_policy", "not_larger"}}).shape() ==
      Shape{1, 4, 8});
  CHECK(
      BySizes(x, {8, 8}, {{"axes", {1, 2}}, {"keep_aspect_ratio_policy", "not_smaller"}}).shape() ==
      Shape{1, 8, 16});
}

TEST_CASE("empty tensors, and inputs left out by an empty tensor") {
  CHECK(ByScales(Counting({0, 2}), {2, 2}).shape() == Shape{0, 4});
  CHECK(BySizes(Counting({2, 2}), {0, 3}, {{"mode", "cubic"}}).shape() == Shape{0, 3});
  const Tensor empty(Shape{0}, DType::kFloat32);
  CHECK(Invoke("Resize", {Counting({2}), empty, empty, List({3})})[0].shape() == Shape{3});
}

TEST_CASE("shapes follow from constant scales or sizes, of which one is given") {
  const Tensor scales = Tensor::From<float>({3}, {1, 2, 0.5f});
  const SymbolicShape n45 = {Sym("N"), 4, 5};
  CHECK(Inferred("Resize", {n45, kLeftOut, scales}) == "float32[N, 8, 2]");
  CHECK(Inferred("Resize", {n45, kLeftOut, kLeftOut, List({7, 8, 9})}) == "float32[7, 8, 9]");
  CHECK(Inferred("Resize", {n45, kLeftOut, kLeftOut, List({8, 10})},
                 {{"axes", {1, 2}}, {"keep_aspect_ratio_policy", "not_larger"}}) ==
        "float32[N, 8, 10]");
  CHECK(Inferred("Resize", {n45, kLeftOut, {DType::kFloat32, {3}}}) == "float32[?, ?, ?]");
  CHECK(Inferred("Resize", {n45, kLeftOut, {DType::kFloat32, {1}}}, {{"axes", {-1}}}) ==
        "float32[N, 4, ?]");
  CHECK(Inferred("Resize", {kNoRank, kLeftOut, scales}) == "float32[rank unknown]");
  CHECK(Contains(Refused("Resize", {{4}}), "needs either 'scales' or 'sizes', found none"));
  CHECK(Contains(Refused("Resize", {{4, 4, 4}, kLeftOut, scales, List({4, 4, 4})}), "found both"));
  CHECK(Refused("Resize", {{4, 4}, kLeftOut, scales}) ==
        "Resize: 'scales' has 3 elements, expected 2");
  CHECK(Contains(Refused("Resize", {{4, 4}, kLeftOut, kLeftOut, List({2})}, {{"axes", {2}}}),
                 "axis 2 is outside"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Resize", {"x", "", "scales"}, {"y"}, {{"mode", "linear"}}),
            {Counting({2, 3, 4}), kNone, Tensor::From<float>({3}, {1, 2, 1.5f})});
  CheckNode(OperatorDef("Resize", {"x", "", "", "sizes"}, {"y"}),
            {Counting({3, 4}), kNone, kNone, List({5, 2})});
}

TEST_CASE("gradients of larger and smaller images in each mode") {
  const Tensor x = Random({1, 2, 3, 4}, 1, DType::kFloat64);
  const Tensor roi = Tensor::From<float>({8}, {0, 0, -0.25f, 0.1f, 1, 1, 1.5f, 0.9f});
  const Tensor sizes = Tensor::From<int64_t>({4}, {1, 2, 7, 3});
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const auto& [coordinates, more] :
         {std::pair<const char*, Arguments>{"half_pixel", {}},
          {"align_corners", {{"exclude_outside", 1}}},
          {"half_pixel", {{"antialias", 1}}},
          {"tf_crop_and_resize", {{"extrapolation_value", 3.f}}}}) {
      if (mode == std::string("nearest") && more.Has("antialias")) continue;
      CAPTURE(mode);
      CAPTURE(coordinates);
      OperatorDef def("Resize", {"x", "roi", "", "sizes"}, {"y"}, more);
      def.Arg("mode", mode).Arg("coordinate_transformation_mode", coordinates);
      const auto result = CheckGradient(def, {x, roi, Tensor(), sizes}, {.inputs = {0}});
      CHECK_MESSAGE(result.ok(), ToString(result));
    }
  const OperatorDef scaled("Resize", {"x", "", "scales"}, {"y"},
                           {{"mode", "linear"}, {"axes", Ints{2}}});
  const auto result =
      CheckGradient(scaled, {x, Tensor(), Tensor::From<float>({1}, {0.7f})}, {.inputs = {0}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

}  // namespace
}  // namespace resize_test

// RoiAlign and MaxRoiPool.
#include "opkit/ops/vision/roi.hpp"

#include "../data_movement.hpp"

namespace roi_test {
using namespace opkit_tests;

namespace {

// One image of 4 * 4: 0, 1, … 15.
const Tensor kImage = Counting({1, 1, 4, 4});

Floats Align(const Floats& roi, Arguments args = {}) {
  return FloatsOf(Invoke("RoiAlign", {kImage, Tensor::From<float>({1, 4}, roi), List({0})},
                         std::move(args))[0]);
}
Floats Pool(const Floats& roi, Arguments args) {
  return FloatsOf(
      Invoke("MaxRoiPool", {kImage, Tensor::From<float>({1, 5}, roi)}, std::move(args))[0]);
}

TEST_CASE("RoiAlign takes the mean of samples between the pixels") {
  // With half_pixel the region [1, 3] * [1, 3] has its samples on the pixels 1 and 2.
  CHECK(Align({1, 1, 3, 3}) == Floats{(5 + 6 + 9 + 10) / 4.f});
  CHECK(Align({1, 1, 3, 3}, {{"output_height", 2}, {"output_width", 2}}) == Floats{5, 6, 9, 10});
  CHECK(Align({1, 1, 3, 3}, {{"coordinate_transformation_mode", "output_half_pixel"}}) ==
        Floats{(5 + 6 + 9 + 10) / 4.f + 2.5f});
  CHECK(Align({2, 2, 6, 6}, {{"spatial_scale", 0.5f}}) == Align({1, 1, 3, 3}));
  CHECK(Align({1, 1, 3, 3}, {{"sampling_ratio", 1}}) == Floats{7.5f});
}

TEST_CASE("RoiAlign of small regions, and outside the image") {
  // Without half_pixel a region has at least one pixel.
  CHECK(Align({1, 1, 1, 1}, {{"coordinate_transformation_mode", "output_half_pixel"}}) ==
        Floats{7.5f});
  CHECK(Align({1, 1, 1, 1}) == Floats{0});  // no sample
  CHECK(Align({20, 20, 22, 22}) == Floats{0});
  // Up to one pixel outside, the outermost pixels go on.
  CHECK(Align({-0.4f, -0.4f, 0.6f, 0.6f}) == Floats{0});
  CHECK(Align({3.4f, 3.4f, 4.4f, 4.4f}) == Floats{15});
}

TEST_CASE("RoiAlign with mode=max takes the largest product of an element and its factor") {
  CHECK(Align({1.5f, 1, 2.5f, 2}, {{"mode", "max"}}) == Floats{3});  // 0.5 * 5 and 0.5 * 6
}

TEST_CASE("MaxRoiPool takes the largest element of each part") {
  CHECK(Pool({0, 0, 0, 3, 3}, {{"pooled_shape", {2, 2}}}) == Floats{5, 7, 13, 15});
  CHECK(Pool({0, 1, 1, 2, 2}, {{"pooled_shape", {1, 1}}}) == Floats{10});
  CHECK(Pool({0, 2, 2, 4, 4}, {{"pooled_shape", {1, 1}}, {"spatial_scale", 0.5f}}) == Floats{10});
  // Parts of three pixels: the first has 0, 1 and the second 1, 2.
  CHECK(Pool({0, 0, 0, 2, 0}, {{"pooled_shape", {1, 2}}}) == Floats{1, 2});
  CHECK(Pool({0, 9, 9, 12, 12}, {{"pooled_shape", {1, 1}}}) == Floats{0});
  const Tensor nan = Tensor::From<float>({1, 1, 1, 3}, {1, NAN, 2});
  CHECK(
      std::isnan(FloatsOf(Invoke("MaxRoiPool", {nan, Tensor::From<float>({1, 5}, {0, 0, 0, 2, 0})},
                                 {{"pooled_shape", {1, 1}}})[0])[0]));
}

TEST_CASE("a region names its image, and a wrong one is refused") {
  const Tensor images = Counting({2, 1, 1, 1});
  const Tensor rois = Tensor::From<float>({2, 4}, {0, 0, 1, 1, 0, 0, 1, 1});
  CHECK(FloatsOf(Invoke("RoiAlign", {images, rois, List({1, 0})})[0]) == Floats{1, 0});
  CHECK(Contains(ErrorOf([&] {
                   Invoke("RoiAlign", {images, rois, List({1, 2})});
                 }).message(),
                 "RoiAlign: a region is in image 2, of a batch of 2"));
  CHECK(ErrorOf([] {
          Pool({-1, 0, 0, 1, 1}, {{"pooled_shape", {1, 1}}});
        }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] {
          Pool({NAN, 0, 0, 1, 1}, {{"pooled_shape", {1, 1}}});
        }).code() == ErrorCode::kOutOfRange);
  CHECK(Contains(ErrorOf([] { Align({0, 0, 1e20f, 1}); }).message(), "is too large"));
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  const Known indices(DType::kInt64, {Sym("R")});
  CHECK(Inferred("RoiAlign", {{2, 3, 9, 9}, {Sym("R"), 4}, indices},
                 {{"output_height", 2}, {"output_width", 3}}) == "float32[R, 3, 2, 3]");
  CHECK(Inferred("MaxRoiPool", {{2, 3, 9, 9}, {5, 5}}, {{"pooled_shape", {2, 3}}}) ==
        "float32[5, 3, 2, 3]");
  CHECK(
      Contains(Refused("RoiAlign", {{2, 3, 9, 9}, {4, 5}, {DType::kInt64, {4}}}), "[regions, 4]"));
  CHECK(Contains(Refused("RoiAlign", {{2, 3, 9, 9}, {4, 4}, {DType::kInt64, {3}}}),
                 "one index for each"));
  CHECK(Contains(Refused("RoiAlign", {{2, 3, 9}, {4, 4}, {DType::kInt64, {4}}}), "[N, C, H, W]"));
  CHECK(Contains(Refused("MaxRoiPool", {{2, 3, 9, 9}, {5, 5}}, {{"pooled_shape", {2}}}),
                 "expected two extents"));
  CHECK(Contains(Refused("MaxRoiPool", {{2, 3, 9, 9}, {5, 5}}, {{"pooled_shape", {2, 0}}}),
                 "expected 1 or more"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor x = Counting({2, 2, 4, 5});
  CheckNode(OperatorDef("RoiAlign", {"x", "r", "b"}, {"y"}, {{"output_height", 2}}),
            {x, Tensor::From<float>({2, 4}, {0, 0, 3, 2, 1, 1, 3, 4}), List({1, 0})});
  CheckNode(OperatorDef("MaxRoiPool", {"x", "r"}, {"y"}, {{"pooled_shape", {2, 1}}}),
            {x, Tensor::From<float>({2, 5}, {1, 0, 0, 3, 2, 0, 1, 1, 3, 4})});
}

TEST_CASE("gradients of the images, of regions that overlap") {
  const Tensor x = RandomTensor({2, 2, 4, 5}, DType::kFloat64);
  const Tensor rois =
      Tensor::From<double>({3, 4}, {0.3, 0.2, 3.1, 2.7, 1.4, 0.6, 4.3, 3.2, -2.5, -2.5, 1.7, 1.2});
  for (const char* mode : {"avg", "max"})
    for (const int ratio : {0, 2}) {
      CAPTURE(mode);
      CAPTURE(ratio);
      const OperatorDef def(
          "RoiAlign", {"x", "r", "i"}, {"y"},
          {{"mode", mode}, {"sampling_ratio", ratio}, {"output_height", 2}, {"output_width", 2}});
      const auto result = CheckGradient(def, {x, rois, List({0, 1, 0})}, {.inputs = {0}});
      CHECK_MESSAGE(result.ok(), ToString(result));
    }
  const Tensor boxes = Tensor::From<double>({2, 5}, {0, 0, 0, 3, 2, 1, 1, 1, 9, 3});
  const OperatorDef pool("MaxRoiPool", {"x", "r"}, {"y"}, {{"pooled_shape", Ints{2, 3}}});
  const auto result = CheckGradient(pool, {x, boxes}, {.inputs = {0}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

}  // namespace
}  // namespace roi_test

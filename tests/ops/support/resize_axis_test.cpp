// ResizeAxis and ResizeWeights: coordinates and weights worked out by hand from ONNX's formulas.
#include "opkit/ops/support/resize_axis.hpp"

#include <doctest/doctest.h>

#include "opkit/ops/nn/resize.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace resize_axis_test {
using namespace opkit;

namespace {

std::vector<float> Coordinates(const ResizeAxis& axis, ResizeCoordinates mode) {
  std::vector<float> out;
  for (int64_t o = 0; o < axis.output; ++o) out.push_back(axis.Coordinate(mode, o));
  return out;
}
bool Near(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) < 1e-6)) return false;
  return true;
}

TEST_CASE("extents by scale are rounded down, by a common scale to the nearest") {
  CHECK(ResizeAxis::OfScale(5, 0.5f).output == 2);
  CHECK(ResizeAxis::OfScale(10, 0.7f).output == 7);  // 0.7f is less than 0.7
  CHECK(ResizeAxis::OfScale(3, 2).output == 6);
  CHECK(ResizeAxis::OfCommonScale(5, 0.5f).output == 3);
  CHECK(ResizeAxis::OfSize(4, 8).scale == 2);
  CHECK(ResizeAxis::OfSize(0, 0).output == 0);
}

TEST_CASE("scales and sizes that mean nothing are refused") {
  for (const float scale : {0.f, -1.f, static_cast<float>(NAN), static_cast<float>(INFINITY)}) {
    const auto error = ErrorOf([&] { ResizeAxis::OfScale(4, scale); });
    CHECK(Contains(error.message(), "of an axis of extent 4, expected a positive number"));
  }
  CHECK(ErrorOf([] { ResizeAxis::OfSize(0, 2); }).message() ==
        "Resize: an axis of extent 0 cannot get the extent 2");
  CHECK(ErrorOf([] { ResizeAxis::OfSize(2, -1); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("each coordinate mode maps outputs to inputs by its own formula") {
  using enum ResizeCoordinates;
  const ResizeAxis twice = ResizeAxis::OfScale(2, 2), third = ResizeAxis::OfSize(3, 1);
  CHECK(Coordinates(twice, kHalfPixel) == Floats{-0.25f, 0.25f, 0.75f, 1.25f});
  CHECK(Coordinates(twice, kPytorchHalfPixel) == Floats{-0.25f, 0.25f, 0.75f, 1.25f});
  CHECK(Coordinates(twice, kHalfPixelSymmetric) == Floats{-0.25f, 0.25f, 0.75f, 1.25f});
  CHECK(Coordinates(twice, kAsymmetric) == Floats{0, 0.5f, 1, 1.5f});
  CHECK(Coordinates(twice, kTfHalfPixelForNn) == Floats{0.25f, 0.75f, 1.25f, 1.75f});
  CHECK(Coordinates(ResizeAxis::OfScale(4, 0.5f), kTfHalfPixelForNn) == Floats{1, 3});
  CHECK(Coordinates(ResizeAxis::OfSize(2, 2), kTfHalfPixelForNn) == Floats{0, 1});
  CHECK(Coordinates(ResizeAxis::OfSize(3, 5), kAlignCorners) == Floats{0, 0.5f, 1, 1.5f, 2});
  CHECK(Coordinates(third, kAlignCorners) == Floats{0});
  CHECK(Coordinates(third, kPytorchHalfPixel) == Floats{0});
  CHECK(Coordinates(ResizeAxis::OfScale(4, 0.4f), kPytorchHalfPixel) == Floats{0});
  CHECK(Coordinates(third, kHalfPixel)[0] == doctest::Approx(1));
  // 0.6 of 4 is 2.4: two elements, as far from one end as from the other.
  const auto symmetric = Coordinates(ResizeAxis::OfScale(4, 0.6f), kHalfPixelSymmetric);
  CHECK(symmetric[0] == doctest::Approx(3 - symmetric[1]));
  ResizeAxis part = ResizeAxis::OfSize(5, 3);
  part.roi_begin = 0.25f;
  part.roi_end = 0.75f;
  CHECK(Coordinates(part, kTfCropAndResize) == Floats{1, 2, 3});
  part.roi_end = 1.25f;
  CHECK_FALSE(part.IsOutside(kTfCropAndResize, 4));
  CHECK(part.IsOutside(kTfCropAndResize, 4.5f));
  CHECK(part.IsOutside(kTfCropAndResize, NAN));
  CHECK_FALSE(part.IsOutside(kHalfPixel, 4.5f));
}

TEST_CASE("each nearest mode rounds its own way, within the axis") {
  using enum NearestMode;
  const ResizeAxis axis = ResizeAxis::OfSize(4, 4);
  CHECK(axis.Nearest(kRoundPreferFloor, 1.5f) == 1);
  CHECK(axis.Nearest(kRoundPreferCeil, 1.5f) == 2);
  CHECK(axis.Nearest(kRoundPreferFloor, 1.6f) == 2);
  CHECK(axis.Nearest(kFloor, 1.9f) == 1);
  CHECK(axis.Nearest(kCeil, 1.1f) == 2);
  CHECK(axis.Nearest(kFloor, -0.5f) == 0);
  CHECK(axis.Nearest(kCeil, 3.2f) == 3);
  CHECK(axis.Nearest(kSimple, 1.9f) == 1);
  CHECK(ResizeAxis::OfScale(4, 1.5f).Nearest(kSimple, 1.9f) == 1);
  CHECK(ResizeAxis::OfScale(4, 0.75f).Nearest(kSimple, 1.1f) == 2);
  CHECK(ResizeAxis::OfScale(4, 0.75f).Nearest(kSimple, 3.2f) == 3);
}

ResizeWeights Weights(const Arguments& args, const ResizeAxis& axis) {
  return ResizeWeights(ResizeRules(args), axis);
}

TEST_CASE("linear takes two taps and cubic four, and equal sizes are the identity") {
  const ResizeAxis twice = ResizeAxis::OfScale(2, 2);
  const ResizeWeights linear = Weights({{"mode", "linear"}}, twice);
  CHECK(linear.taps == 2);
  CHECK(Near(linear.weight, {0.25, 0.75, 0.75, 0.25, 0.25, 0.75, 0.75, 0.25}));
  CHECK(linear.index == std::vector<int64_t>{0, 0, 0, 1, 0, 1, 1, 1});
  CHECK_FALSE(linear.IsIdentity(twice));

  const ResizeAxis same = ResizeAxis::OfSize(3, 3);
  CHECK(Weights({{"mode", "linear"}}, same).IsIdentity(same));
  CHECK(Weights({{"mode", "cubic"}, {"coordinate_transformation_mode", "align_corners"}}, same)
            .IsIdentity(same));

  // At distance 0.5 between the two, with a = -0.75.
  const ResizeWeights cubic =
      Weights({{"mode", "cubic"}, {"coordinate_transformation_mode", "asymmetric"}},
              ResizeAxis::OfScale(3, 2));
  CHECK(cubic.taps == 4);
  CHECK(Near({cubic.weight.begin() + 4, cubic.weight.begin() + 8},
             {-0.09375, 0.59375, 0.59375, -0.09375}));
  const ResizeWeights excluded = Weights(
      {{"mode", "cubic"}, {"coordinate_transformation_mode", "asymmetric"}, {"exclude_outside", 1}},
      ResizeAxis::OfScale(3, 2));
  CHECK(Near({excluded.weight.begin() + 4, excluded.weight.begin() + 8},
             {0, 0.59375 / 1.09375, 0.59375 / 1.09375, -0.09375 / 1.09375}));
}

TEST_CASE("antialias averages over the dropped elements") {
  const ResizeWeights half =
      Weights({{"mode", "linear"}, {"antialias", 1}}, ResizeAxis::OfScale(4, 0.5f));
  CHECK(half.taps == 4);  // at 0.5 and 2.5, weights fall to 0 two elements away
  CHECK(Near({half.weight.begin(), half.weight.begin() + 4}, {0.125, 0.375, 0.375, 0.125}));
  const ResizeAxis larger = ResizeAxis::OfScale(4, 2);
  CHECK(Weights({{"mode", "linear"}, {"antialias", 1}}, larger).weight ==
        Weights({{"mode", "linear"}}, larger).weight);
}

TEST_CASE("names that ONNX does not know are refused") {
  CHECK(ErrorOf([] {
          ResizeRules({{"mode", "bilinear"}});
        }).message() ==
        "argument 'mode' of Resize is 'bilinear', which is none of its values (did you mean "
        "'linear'? known: 'nearest', "
        "'linear', 'cubic')");
  for (const char* name :
       {"coordinate_transformation_mode", "nearest_mode", "keep_aspect_ratio_policy"}) {
    const auto error = ErrorOf([&] { ResizeRules({{name, "x"}}); });
    CHECK(Contains(error.message(),
                   StrCat("argument '", name, "' of Resize is 'x', which is none of")));
  }
}

}  // namespace
}  // namespace resize_axis_test

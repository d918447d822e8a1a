// ResizeAxis: how Resize maps one axis of its output to its input: extents, coordinates, and the
// weights of the input elements for each output element. ONNX defines Resize for one axis; axes are
// independent. Used by inference and the kernels of Resize.
#ifndef OPKIT_OPS_SUPPORT_RESIZE_AXIS_HPP_
#define OPKIT_OPS_SUPPORT_RESIZE_AXIS_HPP_

#include <algorithm>
#include <cmath>

#include "opkit/base/index.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
enum class ResizeCoordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize,
};
enum class NearestMode : uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil, kSimple };
enum class AspectRatioPolicy : uint8_t { kStretch, kNotLarger, kNotSmaller };

// The attributes of a Resize node.
struct ResizeRules {
  ResizeMode mode;
  ResizeCoordinates coordinates;
  NearestMode nearest;
  AspectRatioPolicy policy;
  bool antialias, exclude_outside;
  float cubic_a, extrapolation;
  std::vector<int64_t> axes;  // axes to which scales, sizes and roi apply; unused with `all_axes`
  bool all_axes;

  // Throws kInvalidArgument for a string that the schema does not list.
  explicit ResizeRules(const Arguments& args)
      : mode(EnumeratorOf<ResizeMode>("Resize", args, "mode")),
        coordinates(
            EnumeratorOf<ResizeCoordinates>("Resize", args, "coordinate_transformation_mode")),
        nearest(EnumeratorOf<NearestMode>("Resize", args, "nearest_mode")),
        policy(EnumeratorOf<AspectRatioPolicy>("Resize", args, "keep_aspect_ratio_policy")),
        antialias(args.Get<int64_t>("antialias", 0) != 0),
        exclude_outside(args.Get<int64_t>("exclude_outside", 0) != 0),
        cubic_a(args.Get<float>("cubic_coeff_a", -0.75f)),
        extrapolation(args.Get<float>("extrapolation_value", 0.f)),
        axes(args.Get<std::vector<int64_t>>("axes", {})),
        all_axes(!args.Has("axes")) {}
};

// The mapping of one axis of a Resize.
struct ResizeAxis {
  int64_t input = 1, output = 1;
  float scale = 1;                   // output / input, given or computed from `sizes`
  float resized = 1;                 // the output's extent before it was rounded
  float roi_begin = 0, roi_end = 1;  // fractions of the input's extent; for tf_crop_and_resize

  friend bool operator==(const ResizeAxis&, const ResizeAxis&) = default;

  // Maps an axis by a scale; the output's extent is rounded down. Throws kInvalidArgument for a
  // scale that is not a positive number.
  static ResizeAxis OfScale(int64_t input, float scale) {
    if (!(scale > 0) || !(scale * static_cast<float>(input) < 0x1p62f))
      Throw(ErrorCode::kInvalidArgument, "Resize: scale ", scale, " of an axis of extent ", input,
            ", expected a positive number");
    ResizeAxis axis;
    axis.input = input;
    axis.scale = scale;
    axis.resized = scale * static_cast<float>(input);
    axis.output = static_cast<int64_t>(axis.resized);
    return axis;
  }
  // Maps an axis to a given extent. Throws kInvalidArgument if `size` is negative, or if an axis of
  // extent 0 should grow.
  static ResizeAxis OfSize(int64_t input, int64_t size) {
    if (size < 0 || (input == 0 && size > 0))
      Throw(ErrorCode::kInvalidArgument, "Resize: an axis of extent ", input,
            " cannot get the extent ", size);
    ResizeAxis axis;
    axis.input = input;
    axis.output = size;
    axis.scale = input == 0 ? 1 : static_cast<float>(size) / static_cast<float>(input);
    axis.resized = static_cast<float>(size);
    return axis;
  }
  // Maps an axis by a scale that several axes share to keep the aspect ratio. The output's extent
  // is rounded to the nearest integer.
  static ResizeAxis OfCommonScale(int64_t input, float scale) {
    ResizeAxis axis = OfScale(input, scale);
    axis.output = static_cast<int64_t>(std::floor(axis.resized + 0.5f));
    return axis;
  }

  // Returns the coordinate in the input of output element `o`.
  float Coordinate(ResizeCoordinates mode, int64_t o) const {
    const auto at = static_cast<float>(o);
    const float last = static_cast<float>(input - 1);
    switch (mode) {
      case ResizeCoordinates::kHalfPixel:
        return (at + 0.5f) / scale - 0.5f;
      case ResizeCoordinates::kHalfPixelSymmetric: {
        const float adjustment = static_cast<float>(output) / resized;
        const float offset = static_cast<float>(input) / 2 * (1 - adjustment);
        return offset + (at + 0.5f) / scale - 0.5f;
      }
      case ResizeCoordinates::kPytorchHalfPixel:
        return output == 1 ? 0 : (at + 0.5f) / scale - 0.5f;
      case ResizeCoordinates::kAlignCorners:
        return resized == 1 ? 0 : at * last / (resized - 1);
      case ResizeCoordinates::kAsymmetric:
        return at / scale;
      // The coordinate is half an element more than with kHalfPixel. As in ONNX Runtime, an axis of
      // scale 1 does not change: the formula would shift the axes of batch and channels, too.
      case ResizeCoordinates::kTfHalfPixelForNn:
        return scale == 1 ? at : (at + 0.5f) / scale;
      default:
        return resized == 1 ? (roi_begin + roi_end) * last / 2
                            : roi_begin * last + at * (roi_end - roi_begin) * last / (resized - 1);
    }
  }
  // True if the coordinate is outside the input, so that the output element is the extrapolation
  // value.
  bool IsOutside(ResizeCoordinates mode, float at) const {
    return mode == ResizeCoordinates::kTfCropAndResize &&
           !(at >= 0 && at <= static_cast<float>(input - 1));
  }
  // Returns the index of the input element nearest to the coordinate.
  int64_t Nearest(NearestMode mode, float at) const {
    if (mode == NearestMode::kSimple) mode = scale < 1 ? NearestMode::kCeil : NearestMode::kFloor;
    const float chosen = mode == NearestMode::kFloor              ? std::floor(at)
                         : mode == NearestMode::kCeil             ? std::ceil(at)
                         : mode == NearestMode::kRoundPreferFloor ? std::ceil(at - 0.5f)
                                                                  : std::floor(at + 0.5f);
    return Clamp(chosen);
  }
  // Returns the index of the input element that is copied to output element `o`; -1 if it is
  // outside the input.
  int64_t NearestOrOutside(const ResizeRules& rules, int64_t o) const {
    const float at = Coordinate(rules.coordinates, o);
    return IsOutside(rules.coordinates, at) ? -1 : Nearest(rules.nearest, at);
  }
  // Returns the coordinate, rounded towards zero and clamped to the input, as an index.
  int64_t Clamp(double at) const {
    return at <= 0                                ? 0
           : at >= static_cast<double>(input - 1) ? input - 1
                                                  : static_cast<int64_t>(at);
  }
};

// The weighted input elements for each output element of an axis: `taps` indices and weights for
// each.
struct ResizeWeights {
  int64_t taps = 0;
  std::vector<int64_t> index;  // [output, taps]
  std::vector<double> weight;
  std::vector<char> outside;  // [output]

  ResizeWeights(const ResizeRules& rules, const ResizeAxis& axis)
      : outside(static_cast<size_t>(axis.output), 0) {
    const bool cubic = rules.mode == ResizeMode::kCubic;
    // With antialias the filter is wider by the factor by which the axis shrinks.
    const double narrow = rules.antialias && axis.scale < 1 ? static_cast<double>(axis.scale) : 1.0;
    const double reach = (cubic ? 2 : 1) / narrow;
    taps = 2 * static_cast<int64_t>(std::ceil(reach));
    index.resize(static_cast<size_t>(axis.output * taps));
    weight.resize(index.size());
    for (int64_t o = 0; o < axis.output; ++o) {
      float coordinate = axis.Coordinate(rules.coordinates, o);
      if (axis.IsOutside(rules.coordinates, coordinate)) {
        outside[detail::Index(o)] = 1;
        coordinate = 0;
      }
      const double at = static_cast<double>(coordinate);
      const double first = std::floor(at) - static_cast<double>(taps / 2 - 1);
      double sum = 0;
      for (int64_t k = 0; k < taps; ++k) {
        const double place = first + static_cast<double>(k);
        const double distance = std::fabs(place - at) * narrow;
        double w = cubic ? Cubic(distance, static_cast<double>(rules.cubic_a)) : Linear(distance);
        const bool inside = place >= 0 && place <= static_cast<double>(axis.input - 1);
        if (rules.exclude_outside && !inside) w = 0;
        index[detail::Index(o * taps + k)] = axis.Clamp(place);
        weight[detail::Index(o * taps + k)] = w;
        sum += w;
      }
      if ((rules.exclude_outside || narrow < 1) && sum != 0)
        for (int64_t k = 0; k < taps; ++k) weight[detail::Index(o * taps + k)] /= sum;
    }
  }
  // True if every output element equals the input element at the same index.
  bool IsIdentity(const ResizeAxis& axis) const {
    if (axis.input != axis.output) return false;
    for (int64_t i = 0; i < axis.output * taps; ++i) {
      const bool own = index[detail::Index(i)] == i / taps;
      const double w = weight[detail::Index(i)];
      if (own ? w != 1 && w != 0 : w != 0) return false;
    }
    for (const char one : outside)
      if (one) return false;
    return true;
  }

 private:
  static double Linear(double distance) { return distance < 1 ? 1 - distance : 0; }
  // Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981).
  static double Cubic(double x, double a) {
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  }
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_RESIZE_AXIS_HPP_

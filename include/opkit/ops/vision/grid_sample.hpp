// GridSample: reads an image or volume at positions that a grid gives, by interpolation. Source:
// https://onnx.ai/onnx/operators/onnx__GridSample.html, opset 22.
#ifndef OPKIT_OPS_VISION_GRID_SAMPLE_HPP_
#define OPKIT_OPS_VISION_GRID_SAMPLE_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferGridSample(InferenceContext& c) {
  const SymbolicShape &x = c.input_shape(0), &grid = c.input_shape(1);
  auto fail = [&] {
    Throw(ErrorCode::kInvalidArgument, "GridSample: X ", ToString(x), ", grid ", ToString(grid),
          ": expected [N, C, …] and [N, …, axes], of one rank of 3 or more");
  };
  if (x.has_rank() && x.rank() < 3) fail();
  SymbolicShape y;
  if (x.has_rank() && grid.has_rank()) {
    if (x.rank() != grid.rank() || !Dim::Compatible(x[0], grid[0]) ||
        !Dim::Compatible(grid[-1], x.rank() - 2))
      fail();
    y = x;
    for (int axis = 2; axis < x.rank(); ++axis) y[axis] = grid[axis - 1];
  }
  c.SetOutput(0, c.input_dtype(0), y);
}

}  // namespace detail

// Computes in double. Axes are independent: a position has elements and weights along each axis,
// and a result is the sum over all combinations of them.
class GridSampleOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &grid = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int axes = x.rank() - 2;
    const int64_t channels = x.dim(1), plane = x.shape().NumelBetween(2, x.rank());
    const int64_t points = y->numel() / (x.dim(0) * channels);
    if (plane == 0 && padding_ != Padding::kZeros)
      Throw(ErrorCode::kInvalidArgument, "GridSample: X is ", x,
            ", which has no elements at its border; expected padding_mode=zeros");
    const std::vector<double> places = detail::NumbersOf<double>(grid);
    return Visit<PlainTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelForRange(x.dim(0) * points, kAutoGrain, [&](int64_t begin, int64_t end) {
        std::vector<Tap> taps, crossed;
        for (int64_t at = begin; at < end; ++at) {
          taps.assign(1, {0, 1});
          for (int axis = 0; axis < axes; ++axis) {
            // The last axis comes first in the grid.
            const double place = places[detail::Index(at * axes + axes - 1 - axis)];
            Cross(taps, place, x.dim(axis + 2), crossed);
            taps.swap(crossed);
          }
          for (int64_t channel = 0; channel < channels; ++channel) {
            const int64_t row = at / points * channels + channel;
            double sum = 0;
            for (const Tap& tap : taps)
              sum += tap.weight * static_cast<double>(from[row * plane + tap.index]);
            to[row * points + at % points] = ConvertElement<T>(sum);
          }
        }
      });
    });
  }

 private:
  enum class Mode : uint8_t { kLinear, kNearest, kCubic };
  enum class Padding : uint8_t { kZeros, kBorder, kReflection };
  struct Tap {
    int64_t index;
    double weight;
  };

  // Combines `taps` with the elements at `place` of an axis of this extent.
  void Cross(const std::vector<Tap>& taps, double place, int64_t extent,
             std::vector<Tap>& crossed) const {
    crossed.clear();
    const auto size = static_cast<double>(extent);
    const double low = align_corners_ ? 0 : -0.5, high = align_corners_ ? size - 1 : size - 0.5;
    double at = low + (place + 1) / 2 * (high - low);
    if (mode_ != Mode::kCubic) at = Moved(at, low, high, size);
    auto add = [&](double element, double weight) {
      element = Moved(element, low, high, size);
      // The comparison is false for a NaN, too.
      if (!(element >= 0 && element <= size - 1)) return;
      for (const Tap& tap : taps)
        crossed.push_back(
            {tap.index * extent + static_cast<int64_t>(element), tap.weight * weight});
    };
    if (mode_ == Mode::kNearest) {
      add(std::nearbyint(at), 1);
      return;
    }
    const double first = std::floor(at), part = at - first;
    if (mode_ == Mode::kLinear) {
      add(first, 1 - part);
      add(first + 1, part);
    } else {
      for (int i = -1; i <= 2; ++i) add(first + i, Cubic(std::fabs(part - i)));
    }
  }
  // Returns a position inside the image, as the padding mode moves it.
  double Moved(double at, double low, double high, double size) const {
    if (padding_ == Padding::kZeros || at != at) return at;
    if (padding_ == Padding::kReflection) {
      const double range = high - low;
      if (range <= 0) return 0;
      const double distance = std::fmod(std::fabs(at - low), 2 * range);
      at = low + (distance > range ? 2 * range - distance : distance);
    }
    return at < 0 ? 0 : at > size - 1 ? size - 1 : at;
  }
  // Returns the weight of an element at this distance: Keys, "Cubic convolution interpolation",
  // 1981, with a = -0.75.
  static double Cubic(double x) {
    constexpr double a = -0.75;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  }

  const bool align_corners_ = GetSingleArgument<int64_t>("align_corners") != 0;
  const Mode mode_ = EnumeratorOf<Mode>(type(), def().args(), "mode");
  const Padding padding_ = EnumeratorOf<Padding>(type(), def().args(), "padding_mode");
};

OPKIT_STANDARD_OPERATOR(GridSample, kNotImplemented, GridSampleOp)
    .NumInputs(2)
    .Input(0, "X", "[N, C, D1, …, Dr]", PlainTypes::DTypes())
    .Input(1, "grid",
           "[N, O1, …, Or, r]: positions, the last axis first; -1 and 1 are the ends of an axis",
           FloatTypes::DTypes())
    .Output(0, "Y", "[N, C, O1, …, Or]", PlainTypes::DTypes())
    .Arg<int64_t>("align_corners",
                  "1: -1 and 1 are the centers of the outermost elements; 0: their outer edges", 0)
    .Arg("mode", "how elements are interpolated", {"linear", "nearest", "cubic"})
    .Arg("padding_mode",
         "elements outside X: zeros, the nearest one of X, or those of X mirrored at its ends",
         {"zeros", "border", "reflection"})
    .PointwiseCost(10)
    .Infer(detail::InferGridSample)
    .Doc("Elements of an image or a volume at given positions, by interpolation.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_GRID_SAMPLE_HPP_

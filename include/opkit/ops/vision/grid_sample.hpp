// GridSample: reads an image or volume at positions that a grid gives, by interpolation. Source:
// https://onnx.ai/onnx/operators/onnx__GridSample.html, opset 22.
#ifndef OPKIT_OPS_VISION_GRID_SAMPLE_HPP_
#define OPKIT_OPS_VISION_GRID_SAMPLE_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the shape of the output as far as it is known.
inline SymbolicShape GridSampleOutputShape(InferenceContext& c) {
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
  return y;
}
inline void InferGridSample(InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), GridSampleOutputShape(c));
}

OPKIT_NODE_GRADIENT(GridSample) {
  for (int i = 0; i < 2; ++i) {
    Arguments args = Def().args();
    args.Set("of", i == 0 ? "X" : "grid");
    Give(i, "GridSampleGradient", {I(0), I(1), GO(0)}, std::move(args));
  }
}

inline void FillGridSampleAttributes(OpSchema& schema) {
  schema
      .Arg<int64_t>("align_corners",
                    "1: -1 and 1 are the centers of the outermost elements; 0: their outer edges",
                    0)
      .Arg("mode", "how elements are interpolated", {"linear", "nearest", "cubic"})
      .Arg("padding_mode",
           "elements outside X: zeros, the nearest one of X, or those of X mirrored at its ends",
           {"zeros", "border", "reflection"});
}

}  // namespace detail

// The base of GridSample and of its gradient. Computes in double. Axes are independent: a position
// has elements and weights along each axis, and a result is the sum over all combinations of them.
class GridSampleOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  struct Tap {
    int64_t index;
    double weight;
  };

  // Sets `taps` to the elements of X for a position, which the grid gives from the last axis to the
  // first. Along the axis `slope_of` the weights are derivatives with respect to the position; -1:
  // along no axis.
  void Find(const double* position, const Shape& x, std::vector<Tap>& taps,
            std::vector<Tap>& crossed, int slope_of = -1) const {
    const int axes = x.rank() - 2;
    taps.assign(1, {0, 1});
    for (int axis = 0; axis < axes; ++axis) {
      Cross(taps, position[axes - 1 - axis], x[axis + 2], axis == slope_of, crossed);
      taps.swap(crossed);
    }
  }
  void CheckBorder() const {
    if (Input(0).shape().NumelBetween(2, Input(0).rank()) == 0 && padding_ != Padding::kZeros)
      Throw(ErrorCode::kInvalidArgument, "GridSample: X is ", Input(0),
            ", which has no elements at its border; expected padding_mode=zeros");
  }

 private:
  enum class Mode : uint8_t { kLinear, kNearest, kCubic };
  enum class Padding : uint8_t { kZeros, kBorder, kReflection };
  // A position along an axis, and its derivative with respect to the position before it was moved.
  struct Place {
    double at, slope;
  };

  // Combines `taps` with the elements at `place` of an axis of this extent.
  void Cross(const std::vector<Tap>& taps, double place, int64_t extent, bool slope,
             std::vector<Tap>& crossed) const {
    crossed.clear();
    const auto size = static_cast<double>(extent);
    const double low = align_corners_ ? 0 : -0.5, high = align_corners_ ? size - 1 : size - 0.5;
    Place moved{low + (place + 1) / 2 * (high - low), 1};
    if (mode_ != Mode::kCubic) moved = Moved(moved.at, low, high, size);
    const double at = moved.at, rate = moved.slope * (high - low) / 2;
    auto add = [&](double element, double weight) {
      element = Moved(element, low, high, size).at;
      // The comparison is false for a NaN, too.
      if (!(element >= 0 && element <= size - 1)) return;
      for (const Tap& tap : taps)
        crossed.push_back(
            {tap.index * extent + static_cast<int64_t>(element), tap.weight * weight});
    };
    if (mode_ == Mode::kNearest) {
      if (!slope) add(std::nearbyint(at), 1);
      return;
    }
    const double first = std::floor(at), part = at - first;
    if (mode_ == Mode::kLinear) {
      add(first, slope ? -rate : 1 - part);
      add(first + 1, slope ? rate : part);
    } else {
      for (int i = -1; i <= 2; ++i)
        add(first + i, slope ? (part < i ? -rate : rate) * CubicSlope(std::fabs(part - i))
                             : Cubic(std::fabs(part - i)));
    }
  }
  // Returns a position inside the image, as the padding mode moves it.
  Place Moved(double at, double low, double high, double size) const {
    if (padding_ == Padding::kZeros || at != at) return {at, 1};
    double slope = 1;
    if (padding_ == Padding::kReflection) {
      const double range = high - low;
      if (range <= 0) return {0, 0};
      const double distance = std::fmod(std::fabs(at - low), 2 * range);
      slope = (at < low) != (distance > range) ? -1 : 1;
      at = low + (distance > range ? 2 * range - distance : distance);
    }
    return at < 0 ? Place{0, 0} : at > size - 1 ? Place{size - 1, 0} : Place{at, slope};
  }
  // Returns the weight of an element at this distance: Keys, "Cubic convolution interpolation",
  // 1981, with a = -0.75.
  static double Cubic(double x) {
    constexpr double a = -0.75;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  }
  static double CubicSlope(double x) {
    constexpr double a = -0.75;
    if (x <= 1) return (3 * (a + 2) * x - 2 * (a + 3)) * x;
    return x < 2 ? (3 * a * x - 10 * a) * x + 8 * a : 0;
  }

  const bool align_corners_ = GetSingleArgument<int64_t>("align_corners") != 0;
  const Mode mode_ = EnumeratorOf<Mode>(type(), def().args(), "mode");
  const Padding padding_ = EnumeratorOf<Padding>(type(), def().args(), "padding_mode");
};

class GridSampleOp final : public GridSampleOpBase {
 public:
  using GridSampleOpBase::GridSampleOpBase;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &grid = DenseInput(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int axes = x.rank() - 2;
    const int64_t channels = x.dim(1), plane = x.shape().NumelBetween(2, x.rank());
    const int64_t points = y->numel() / (x.dim(0) * channels);
    CheckBorder();
    const std::vector<double> places = detail::NumbersOf<double>(grid);
    return Visit<PlainTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelForRange(x.dim(0) * points, kAutoGrain, [&](int64_t begin, int64_t end) {
        std::vector<Tap> taps, crossed;
        for (int64_t at = begin; at < end; ++at) {
          Find(places.data() + at * axes, x.shape(), taps, crossed);
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
};

// Computes the gradient of X or of the grid.
class GridSampleGradientOp final : public GridSampleOpBase {
 public:
  using GridSampleOpBase::GridSampleOpBase;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(2);
    const std::vector<double> places = detail::NumbersOf<double>(DenseInput(1));
    Tensor* gradient = InferredOutput(0);
    if (gradient->numel() == 0) return true;
    CheckBorder();
    return Visit<FloatTypes>([&]<class T>() {
      if (of_x_)
        ToX(places, x.shape(), dy, gradient->mutable_data<T>());
      else
        FloatTypes::Visit(gradient->dtype(), [&]<class G>() {
          ToGrid(places, x, dy.data<T>(), gradient->mutable_data<G>());
        });
    });
  }

 private:
  template <class T>
  void ToX(const std::vector<double>& places, const Shape& x, const Tensor& dy, T* out) const {
    const int axes = x.rank() - 2;
    const int64_t channels = x[1], plane = x.NumelBetween(2, x.rank());
    const int64_t points = dy.shape().NumelBetween(2, dy.rank());
    const T* slopes = dy.data<T>();
    ParallelFor(x[0], [&](int64_t n) {
      std::vector<double> sums(static_cast<size_t>(channels * plane));
      std::vector<Tap> taps, crossed;
      for (int64_t point = 0; point < points; ++point) {
        Find(places.data() + (n * points + point) * axes, x, taps, crossed);
        for (int64_t c = 0; c < channels; ++c) {
          const auto slope = static_cast<double>(slopes[(n * channels + c) * points + point]);
          for (const Tap& tap : taps)
            sums[detail::Index(c * plane + tap.index)] += tap.weight * slope;
        }
      }
      for (int64_t i = 0; i < channels * plane; ++i)
        out[n * channels * plane + i] = ConvertElement<T>(sums[detail::Index(i)]);
    });
  }
  template <class T, class G>
  void ToGrid(const std::vector<double>& places, const Tensor& x, const T* slopes, G* out) const {
    const int axes = x.rank() - 2;
    const int64_t channels = x.dim(1), plane = x.shape().NumelBetween(2, x.rank());
    const int64_t all = static_cast<int64_t>(places.size()) / axes, points = all / x.dim(0);
    const T* in = x.data<T>();
    ParallelForRange(all, kAutoGrain, [&](int64_t begin, int64_t end) {
      std::vector<Tap> taps, crossed;
      for (int64_t at = begin; at < end; ++at)
        for (int axis = 0; axis < axes; ++axis) {
          Find(places.data() + at * axes, x.shape(), taps, crossed, axis);
          double sum = 0;
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t row = at / points * channels + c;
            const auto slope = static_cast<double>(slopes[row * points + at % points]);
            for (const Tap& tap : taps)
              sum += tap.weight * slope * static_cast<double>(in[row * plane + tap.index]);
          }
          out[at * axes + axes - 1 - axis] = ConvertElement<G>(sum);
        }
    });
  }

  const bool of_x_ = GetSingleArgument<std::string>("of") == "X";
};

OPKIT_STANDARD_OPERATOR(GridSample, kMaker, GridSampleOp)
    .NumInputs(2)
    .Input(0, "X", "[N, C, D1, …, Dr]", PlainTypes::DTypes())
    .Input(1, "grid",
           "[N, O1, …, Or, r]: positions, the last axis first; -1 and 1 are the ends of an axis",
           FloatTypes::DTypes())
    .Output(0, "Y", "[N, C, O1, …, Or]", PlainTypes::DTypes())
    .FillUsing(detail::FillGridSampleAttributes)
    .PointwiseCost(10)
    .Infer(detail::InferGridSample)
    .Doc("Elements of an image or a volume at given positions, by interpolation.");

OPKIT_STANDARD_OPERATOR(GridSampleGradient, kNotImplemented, GridSampleGradientOp)
    .Private()
    .NumInputs(3)
    .Input(0, "X", "of GridSample", FloatTypes::DTypes())
    .Input(1, "grid", "of GridSample", FloatTypes::DTypes())
    .Input(2, "dY", "of the type of X, of the shape of GridSample's output")
    .Output(0, "gradient", "as the input that `of` names")
    .FillUsing(detail::FillGridSampleAttributes)
    .Arg("of", "the input whose gradient it computes", {"X", "grid"})
    .PointwiseCost(20)
    .Infer([](InferenceContext& c) {
      c.SetInput(2, c.input_dtype(0), detail::GridSampleOutputShape(c));
      const int of = c.Arg<std::string>("of") == "X" ? 0 : 1;
      c.SetOutput(0, c.input_dtype(of), c.input_shape(of));
    })
    .Doc("The gradient of the image or of the grid of GridSample, from that of the result.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_GRID_SAMPLE_HPP_

// RoiAlign and MaxRoiPool: bring regions of images to one extent. Sources: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opset 22; He et al., "Mask R-CNN", 2017
// (https://arxiv.org/abs/1703.06870); Girshick, "Fast R-CNN", 2015
// (https://arxiv.org/abs/1504.08083).
#ifndef OPKIT_OPS_VISION_ROI_HPP_
#define OPKIT_OPS_VISION_ROI_HPP_

#include <cmath>
#include <limits>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Infers [regions, C, height, width]. `columns` is the number of columns of the regions.
inline void InferRegions(InferenceContext& c, int64_t columns, int64_t height, int64_t width) {
  const SymbolicShape &x = c.input_shape(0), &rois = c.input_shape(1);
  const std::string op = c.def().type();
  if (height < 1 || width < 1)
    Throw(ErrorCode::kInvalidArgument, op, ": the output has the extents ", height, " and ", width,
          ", expected 1 or more");
  if ((x.has_rank() && x.rank() != 4) ||
      (rois.has_rank() && (rois.rank() != 2 || !Dim::Compatible(rois[1], columns))))
    Throw(ErrorCode::kInvalidArgument, op, ": X ", ToString(x), ", rois ", ToString(rois),
          ": expected [N, C, H, W] and [regions, ", columns, "]");
  c.SetInput(1, c.input_dtype(0), {});
  c.SetOutput(0, c.input_dtype(0),
              {rois.has_rank() ? rois[0] : Dim(), x.has_rank() ? x[1] : Dim(), height, width});
}
inline void InferRoiAlign(InferenceContext& c) {
  InferRegions(c, 4, c.Arg<int64_t>("output_height"), c.Arg<int64_t>("output_width"));
  const SymbolicShape &rois = c.input_shape(1), &batch = c.input_shape(2);
  if (batch.has_rank() &&
      (batch.rank() != 1 || (rois.has_rank() && !Dim::Compatible(rois[0], batch[0]))))
    Throw(ErrorCode::kInvalidArgument, "RoiAlign: batch_indices has shape ", ToString(batch),
          ", expected one index for each of the regions, ", ToString(rois));
}
inline void InferMaxRoiPool(InferenceContext& c) {
  const auto pooled = c.args().Get<std::vector<int64_t>>("pooled_shape");
  if (pooled.size() != 2)
    Throw(ErrorCode::kInvalidArgument, "MaxRoiPool: pooled_shape is ", pooled,
          ", expected two extents");
  InferRegions(c, 5, pooled[0], pooled[1]);
}

}  // namespace detail

// The base of both operators. Computes in double.
class RoiOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Throws kOutOfRange unless the batch has an image of this number.
  void CheckImage(double image, int64_t batch) const {
    if (!(image >= 0 && image < static_cast<double>(batch)))
      Throw(ErrorCode::kOutOfRange, type(), ": a region is in image ", image, ", of a batch of ",
            batch);
  }

  const double scale_ = static_cast<double>(GetSingleArgument<float>("spatial_scale"));
};

// Each output is the mean or the maximum of samples at even distances in its part of the region.
class RoiAlignOp final : public RoiOperator {
 public:
  using RoiOperator::RoiOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const std::vector<double> rois = detail::NumbersOf<double>(DenseInput(1));
    const std::vector<int64_t> images = IntegersOf(DenseInput(2));
    Tensor* y = InferredOutput(0);
    for (const int64_t image : images) CheckImage(static_cast<double>(image), x.dim(0));
    const int64_t channels = x.dim(1), plane = x.dim(2) * x.dim(3);
    const int64_t height = y->dim(2), width = y->dim(3);
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(y->dim(0) * height * width, [&](int64_t at) {
        const int64_t region = at / (height * width), pixel = at % (height * width);
        const Region area(rois.data() + region * 4, scale_, half_pixel_);
        const std::vector<Corner> corners =
            SampleCorners(area, pixel / width, pixel % width, {height, width}, x);
        for (int64_t channel = 0; channel < channels; ++channel) {
          const T* in = x.data<T>() + (images[detail::Index(region)] * channels + channel) * plane;
          const int64_t to = (region * channels + channel) * height * width + pixel;
          y->mutable_data<T>()[to] = ConvertElement<T>(Combined(in, corners));
        }
      });
    });
  }

 private:
  enum class Transformation : uint8_t { kHalfPixel, kOutputHalfPixel };
  enum class Mode : uint8_t { kAvg, kMax };
  // A region in pixels of X.
  struct Region {
    double left, top, width, height;

    Region(const double* roi, double scale, bool half_pixel) {
      const double shift = half_pixel ? 0.5 : 0;
      left = roi[0] * scale - shift;
      top = roi[1] * scale - shift;
      width = roi[2] * scale - shift - left;
      height = roi[3] * scale - shift - top;
      if (!half_pixel) {
        width = width < 1 ? 1 : width;
        height = height < 1 ? 1 : height;
      }
    }
  };
  // An element of X and its factor in a sample.
  struct Corner {
    int64_t index;
    double weight;
  };
  // The two elements beside a position along an axis, and the factor of the second one.
  struct Pair {
    int64_t first = 0, second = 0;
    double part = 0;
    bool inside = false;

    Pair(double at, int64_t extent) {
      if (!(at >= -1 && at <= static_cast<double>(extent)) || extent == 0) return;
      inside = true;
      at = at < 0 ? 0 : at;
      first = static_cast<int64_t>(at);
      second = first + 1;
      if (second >= extent)
        first = second = extent - 1;
      else
        part = at - static_cast<double>(first);
    }
  };

  int64_t SamplesAlong(double size, int64_t parts) const {
    if (sampling_ratio_ > 0) return sampling_ratio_;
    const double count = std::ceil(size / static_cast<double>(parts));
    constexpr double kMost = 1 << 20;
    if (!(count <= kMost))
      Throw(ErrorCode::kOutOfRange, "RoiAlign: a region of ", size, " pixels is too large");
    return count < 0 ? 0 : static_cast<int64_t>(count);
  }
  // Returns the four corners of every sample of output (row, column).
  std::vector<Corner> SampleCorners(const Region& area, int64_t row, int64_t column,
                                    std::array<int64_t, 2> parts, const Tensor& x) const {
    const int64_t rows = SamplesAlong(area.height, parts[0]);
    const int64_t columns = SamplesAlong(area.width, parts[1]);
    auto place = [](double begin, double size, int64_t part, int64_t of, int64_t i, int64_t n) {
      const double step = size / static_cast<double>(of);
      return begin + step * (static_cast<double>(part) +
                             (static_cast<double>(i) + 0.5) / static_cast<double>(n));
    };
    std::vector<Corner> corners;
    for (int64_t i = 0; i < rows; ++i) {
      const Pair v(place(area.top, area.height, row, parts[0], i, rows), x.dim(2));
      for (int64_t k = 0; k < columns; ++k) {
        const Pair h(place(area.left, area.width, column, parts[1], k, columns), x.dim(3));
        const double sign = v.inside && h.inside ? 1 : 0;
        const int64_t first = v.first * x.dim(3), second = v.second * x.dim(3);
        corners.push_back({first + h.first, sign * (1 - v.part) * (1 - h.part)});
        corners.push_back({first + h.second, sign * (1 - v.part) * h.part});
        corners.push_back({second + h.first, sign * v.part * (1 - h.part)});
        corners.push_back({second + h.second, sign * v.part * h.part});
      }
    }
    return corners;
  }
  // Returns the mean of the samples, or the largest product of a corner and its weight, as ONNX's
  // test data has it.
  template <class T>
  double Combined(const T* in, const std::vector<Corner>& corners) const {
    if (corners.empty()) return 0;
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    for (const Corner& corner : corners) {
      const double value =
          corner.weight == 0 ? 0 : corner.weight * static_cast<double>(in[corner.index]);
      sum += value;
      if (!(value <= largest)) largest = value;
    }
    return mode_ == Mode::kMax ? largest : sum / static_cast<double>(corners.size() / 4);
  }

  const bool half_pixel_ =
      EnumeratorOf<Transformation>(type(), def().args(), "coordinate_transformation_mode") ==
      Transformation::kHalfPixel;
  const Mode mode_ = EnumeratorOf<Mode>(type(), def().args(), "mode");
  const int64_t sampling_ratio_ = GetSingleArgument<int64_t>("sampling_ratio");
};

// Each output is the largest element of its part of the region, whose borders are whole pixels.
class MaxRoiPoolOp final : public RoiOperator {
 public:
  using RoiOperator::RoiOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const std::vector<double> rois = detail::NumbersOf<double>(DenseInput(1));
    Tensor* y = InferredOutput(0);
    for (int64_t region = 0; region < y->dim(0); ++region)
      CheckImage(rois[detail::Index(region * 5)], x.dim(0));
    const int64_t channels = x.dim(1), height = y->dim(2), width = y->dim(3);
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(y->dim(0) * channels, [&](int64_t at) {
        const double* roi = rois.data() + at / channels * 5;
        const int64_t image = static_cast<int64_t>(roi[0]) * channels + at % channels;
        const T* in = x.data<T>() + image * x.dim(2) * x.dim(3);
        T* out = y->mutable_data<T>() + at * height * width;
        for (int64_t row = 0; row < height; ++row) {
          const Range rows = Part(roi[2], roi[4], row, height, x.dim(2));
          for (int64_t column = 0; column < width; ++column)
            *out++ = Largest(in, rows, Part(roi[1], roi[3], column, width, x.dim(3)), x.dim(3));
        }
      });
    });
  }

 private:
  struct Range {
    int64_t begin, end;
  };

  // Returns the elements of part `i` of `count` of a region from `first` to `last`, both included.
  Range Part(double first, double last, int64_t i, int64_t count, int64_t extent) const {
    const double begin = std::round(first * scale_), end = std::round(last * scale_) + 1;
    const double size = (end - begin < 1 ? 1 : end - begin) / static_cast<double>(count);
    auto clipped = [&](double at) {
      if (!(at > 0)) return int64_t{0};
      return at < static_cast<double>(extent) ? static_cast<int64_t>(at) : extent;
    };
    return {clipped(begin + std::floor(static_cast<double>(i) * size)),
            clipped(begin + std::ceil(static_cast<double>(i + 1) * size))};
  }
  // Returns the largest element; 0 of nothing. A NaN counts as the largest.
  template <class T>
  static T Largest(const T* in, Range rows, Range columns, int64_t width) {
    if (rows.begin >= rows.end || columns.begin >= columns.end) return T(0.f);
    T largest = in[rows.begin * width + columns.begin];
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const T value = in[row * width + column];
        if (value > largest || value != value) largest = value;
      }
    return largest;
  }
};

OPKIT_STANDARD_OPERATOR(RoiAlign, kNotImplemented, RoiAlignOp)
    .NumInputs(3)
    .Input(0, "X", "[N, C, H, W]", FloatTypes::DTypes())
    .Input(1, "rois", "[regions, 4]: x and y of the begin, x and y of the end",
           FloatTypes::DTypes())
    .Input(2, "batch_indices", "[regions]: the image of each region", {DType::kInt64})
    .Output(0, "Y", "[regions, C, output_height, output_width]", FloatTypes::DTypes())
    .Arg("coordinate_transformation_mode",
         "half_pixel: half a pixel is subtracted from the coordinates; output_half_pixel: not, and "
         "a region has 1 pixel or more",
         {"half_pixel", "output_half_pixel"})
    .Arg("mode",
         "avg: the mean of the samples; max: the largest product of an element and its factor in a "
         "sample",
         {"avg", "max"})
    .Arg<int64_t>("output_height", "the height of Y", 1)
    .Arg<int64_t>("output_width", "the width of Y", 1)
    .Arg<int64_t>("sampling_ratio",
                  "samples of an output along each axis; 0: one for each pixel of the region", 0)
    .Arg<float>("spatial_scale", "pixels of X for each unit of the coordinates", 1.f)
    .PointwiseCost(40)
    .Infer(detail::InferRoiAlign)
    .Doc("Regions of images, sampled by linear interpolation.");

OPKIT_STANDARD_OPERATOR(MaxRoiPool, kNotImplemented, MaxRoiPoolOp)
    .NumInputs(2)
    .Input(0, "X", "[N, C, H, W]", FloatTypes::DTypes())
    .Input(1, "rois", "[regions, 5]: the image, x and y of the first pixel, x and y of the last",
           FloatTypes::DTypes())
    .Output(0, "Y", "[regions, C, height, width]", FloatTypes::DTypes())
    .RequiredArg<std::vector<int64_t>>("pooled_shape", "the height and width of Y")
    .Arg<float>("spatial_scale", "pixels of X for each unit of the coordinates", 1.f)
    .PointwiseCost(20)
    .Infer(detail::InferMaxRoiPool)
    .Doc("The largest element of each part of regions of images.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_ROI_HPP_

// RoiAlign and MaxRoiPool: bring regions of images to one extent. The images have a gradient, the
// regions have none. Sources: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opset 22; He et al., "Mask R-CNN", 2017
// (https://arxiv.org/abs/1703.06870); Girshick, "Fast R-CNN", 2015
// (https://arxiv.org/abs/1504.08083).
#ifndef OPKIT_OPS_VISION_ROI_HPP_
#define OPKIT_OPS_VISION_ROI_HPP_

#include <cmath>
#include <limits>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns [regions, C, height, width]. `columns` is the number of columns of the regions.
inline SymbolicShape RegionsShape(InferenceContext& c, int64_t columns, int64_t height,
                                  int64_t width) {
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
  return {rois.has_rank() ? rois[0] : Dim(), x.has_rank() ? x[1] : Dim(), height, width};
}
inline SymbolicShape RoiAlignShape(InferenceContext& c) {
  const SymbolicShape &rois = c.input_shape(1), &batch = c.input_shape(2);
  if (batch.has_rank() &&
      (batch.rank() != 1 || (rois.has_rank() && !Dim::Compatible(rois[0], batch[0]))))
    Throw(ErrorCode::kInvalidArgument, "RoiAlign: batch_indices has shape ", ToString(batch),
          ", expected one index for each of the regions, ", ToString(rois));
  return RegionsShape(c, 4, c.Arg<int64_t>("output_height"), c.Arg<int64_t>("output_width"));
}
inline SymbolicShape MaxRoiPoolShape(InferenceContext& c) {
  const auto pooled = c.args().Get<std::vector<int64_t>>("pooled_shape");
  if (pooled.size() != 2)
    Throw(ErrorCode::kInvalidArgument, "MaxRoiPool: pooled_shape is ", pooled,
          ", expected two extents");
  return RegionsShape(c, 5, pooled[0], pooled[1]);
}

// The gradient of RoiAlign and MaxRoiPool.
class RoiGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    std::vector<std::string> inputs = Def().inputs();
    inputs.push_back(GO(0));
    Give(0, Def().type() + "Gradient", inputs, Def().args());
  }
};
OPKIT_REGISTER_GRADIENT(RoiAlign, RoiGradient);
OPKIT_REGISTER_GRADIENT(MaxRoiPool, RoiGradient);

inline void FillRoiAlignAttributes(OpSchema& schema) {
  schema
      .Arg("coordinate_transformation_mode",
           "half_pixel: half a pixel is subtracted from the coordinates; output_half_pixel: not, "
           "and a region has 1 pixel or more",
           {"half_pixel", "output_half_pixel"})
      .Arg("mode",
           "avg: the mean of the samples; max: the largest product of an element and its factor in "
           "a sample",
           {"avg", "max"})
      .Arg<int64_t>("output_height", "the height of Y", 1)
      .Arg<int64_t>("output_width", "the width of Y", 1)
      .Arg<int64_t>("sampling_ratio",
                    "samples of an output along each axis; 0: one for each pixel of the region", 0)
      .Arg<float>("spatial_scale", "pixels of X for each unit of the coordinates", 1.f);
}
inline void FillMaxRoiPoolAttributes(OpSchema& schema) {
  schema.RequiredArg<std::vector<int64_t>>("pooled_shape", "the height and width of Y")
      .Arg<float>("spatial_scale", "pixels of X for each unit of the coordinates", 1.f);
}

}  // namespace detail

// The base of the operators and of their gradients. Computes in double.
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

  // Returns a sum of 0 for each element of x.
  static std::vector<double> ZerosOf(const Tensor& x) {
    return std::vector<double>(static_cast<size_t>(x.numel()), 0);
  }
  template <class T>
  static void Write(const std::vector<double>& from, Tensor& to) {
    T* out = to.mutable_data<T>();
    for (const double value : from) *out++ = ConvertElement<T>(value);
  }

  const double scale_ = static_cast<double>(GetSingleArgument<float>("spatial_scale"));
};

// The base of RoiAlign and of its gradient. Each output is the mean or the maximum of samples at
// even distances in its part of the region.
class RoiAlignOpBase : public RoiOperator {
 public:
  using RoiOperator::RoiOperator;

 protected:
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
  // test data has it. Sets `chosen` to the corner of the largest product.
  template <class T>
  double Combined(const T* in, const std::vector<Corner>& corners, size_t* chosen = nullptr) const {
    if (corners.empty()) return 0;
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    for (const Corner& corner : corners) {
      const double value =
          corner.weight == 0 ? 0 : corner.weight * static_cast<double>(in[corner.index]);
      sum += value;
      if (value <= largest) continue;
      largest = value;
      if (chosen) *chosen = static_cast<size_t>(&corner - corners.data());
    }
    return mode_ == Mode::kMax ? largest : sum / static_cast<double>(corners.size() / 4);
  }

  const bool half_pixel_ =
      EnumeratorOf<Transformation>(type(), def().args(), "coordinate_transformation_mode") ==
      Transformation::kHalfPixel;
  const Mode mode_ = EnumeratorOf<Mode>(type(), def().args(), "mode");
  const int64_t sampling_ratio_ = GetSingleArgument<int64_t>("sampling_ratio");
};

class RoiAlignOp final : public RoiAlignOpBase {
 public:
  using RoiAlignOpBase::RoiAlignOpBase;
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
};

// Adds the gradient of each output to those of the elements that it is made of, on one thread,
// because regions overlap.
class RoiAlignGradientOp final : public RoiAlignOpBase {
 public:
  using RoiAlignOpBase::RoiAlignOpBase;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(3);
    const std::vector<double> rois = detail::NumbersOf<double>(DenseInput(1));
    const std::vector<int64_t> images = IntegersOf(DenseInput(2));
    for (const int64_t image : images) CheckImage(static_cast<double>(image), x.dim(0));
    Tensor* dx = InferredOutput(0);
    const int64_t channels = x.dim(1), plane = x.dim(2) * x.dim(3);
    const int64_t height = dy.dim(2), width = dy.dim(3), pixels = height * width;
    return Visit<FloatTypes>([&]<class T>() {
      std::vector<double> sums = ZerosOf(x);
      for (int64_t at = 0; at < dy.dim(0) * pixels; ++at) {
        const int64_t region = at / pixels, pixel = at % pixels;
        const Region area(rois.data() + region * 4, scale_, half_pixel_);
        const std::vector<Corner> corners =
            SampleCorners(area, pixel / width, pixel % width, {height, width}, x);
        for (int64_t channel = 0; channel < channels && !corners.empty(); ++channel) {
          const int64_t image = (images[detail::Index(region)] * channels + channel) * plane;
          double* to = sums.data() + image;
          const auto slope =
              static_cast<double>(dy.data<T>()[(region * channels + channel) * pixels + pixel]);
          if (mode_ == Mode::kMax) {
            size_t chosen = 0;
            Combined(x.data<T>() + image, corners, &chosen);
            to[corners[chosen].index] += slope * corners[chosen].weight;
            continue;
          }
          const double each = slope / static_cast<double>(corners.size() / 4);
          for (const Corner& corner : corners)
            if (corner.weight != 0) to[corner.index] += each * corner.weight;
        }
      }
      Write<T>(sums, *dx);
    });
  }
};

// The base of MaxRoiPool and of its gradient. Each output is the largest element of its part of the
// region, whose borders are whole pixels.
class MaxRoiPoolOpBase : public RoiOperator {
 public:
  using RoiOperator::RoiOperator;

 protected:
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
  // Returns the index of the largest element; -1 of nothing. A NaN counts as the largest.
  template <class T>
  static int64_t Largest(const T* in, Range rows, Range columns, int64_t width) {
    if (rows.begin >= rows.end || columns.begin >= columns.end) return -1;
    int64_t largest = rows.begin * width + columns.begin;
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t at = row * width + columns.begin; at < row * width + columns.end; ++at)
        if (in[at] > in[largest] || in[at] != in[at]) largest = at;
    return largest;
  }
};

class MaxRoiPoolOp final : public MaxRoiPoolOpBase {
 public:
  using MaxRoiPoolOpBase::MaxRoiPoolOpBase;
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
          for (int64_t column = 0; column < width; ++column) {
            const Range columns = Part(roi[1], roi[3], column, width, x.dim(3));
            const int64_t largest = Largest(in, rows, columns, x.dim(3));
            *out++ = largest < 0 ? T(0.f) : in[largest];
          }
        }
      });
    });
  }
};

// Gives the gradient of each output to its largest element. Each thread computes whole channels,
// because regions overlap.
class MaxRoiPoolGradientOp final : public MaxRoiPoolOpBase {
 public:
  using MaxRoiPoolOpBase::MaxRoiPoolOpBase;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &dy = DenseInput(2);
    const std::vector<double> rois = detail::NumbersOf<double>(DenseInput(1));
    for (int64_t region = 0; region < dy.dim(0); ++region)
      CheckImage(rois[detail::Index(region * 5)], x.dim(0));
    Tensor* dx = InferredOutput(0);
    const int64_t channels = x.dim(1), height = dy.dim(2), width = dy.dim(3);
    return Visit<FloatTypes>([&]<class T>() {
      std::vector<double> sums = ZerosOf(x);
      ParallelFor(channels, [&](int64_t channel) {
        for (int64_t region = 0; region < dy.dim(0); ++region) {
          const double* roi = rois.data() + region * 5;
          const int64_t image =
              (static_cast<int64_t>(roi[0]) * channels + channel) * x.dim(2) * x.dim(3);
          const T* slopes = dy.data<T>() + (region * channels + channel) * height * width;
          for (int64_t row = 0; row < height; ++row) {
            const Range rows = Part(roi[2], roi[4], row, height, x.dim(2));
            for (int64_t column = 0; column < width; ++column) {
              const Range columns = Part(roi[1], roi[3], column, width, x.dim(3));
              const int64_t at = Largest(x.data<T>() + image, rows, columns, x.dim(3));
              if (at >= 0)
                sums[detail::Index(image + at)] +=
                    static_cast<double>(slopes[row * width + column]);
            }
          }
        }
      });
      Write<T>(sums, *dx);
    });
  }
};

OPKIT_STANDARD_OPERATOR(RoiAlign, kMaker, RoiAlignOp)
    .NumInputs(3)
    .Input(0, "X", "[N, C, H, W]", FloatTypes::DTypes())
    .Input(1, "rois", "[regions, 4]: x and y of the begin, x and y of the end",
           FloatTypes::DTypes())
    .Input(2, "batch_indices", "[regions]: the image of each region", {DType::kInt64})
    .Output(0, "Y", "[regions, C, output_height, output_width]", FloatTypes::DTypes())
    .FillUsing(detail::FillRoiAlignAttributes)
    .PointwiseCost(40)
    .Infer([](InferenceContext& c) { c.SetOutput(0, c.input_dtype(0), detail::RoiAlignShape(c)); })
    .Doc("Regions of images, sampled by linear interpolation.");

OPKIT_STANDARD_OPERATOR(MaxRoiPool, kMaker, MaxRoiPoolOp)
    .NumInputs(2)
    .Input(0, "X", "[N, C, H, W]", FloatTypes::DTypes())
    .Input(1, "rois", "[regions, 5]: the image, x and y of the first pixel, x and y of the last",
           FloatTypes::DTypes())
    .Output(0, "Y", "[regions, C, height, width]", FloatTypes::DTypes())
    .FillUsing(detail::FillMaxRoiPoolAttributes)
    .PointwiseCost(20)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), detail::MaxRoiPoolShape(c));
    })
    .Doc("The largest element of each part of regions of images.");

OPKIT_STANDARD_OPERATOR(RoiAlignGradient, kNotImplemented, RoiAlignGradientOp)
    .Private()
    .NumInputs(4)
    .Input(0, "X", "of RoiAlign", FloatTypes::DTypes())
    .Input(1, "rois", "of RoiAlign", FloatTypes::DTypes())
    .Input(2, "batch_indices", "of RoiAlign", {DType::kInt64})
    .Input(3, "dY", "of the type of X, of the shape of RoiAlign's output")
    .Output(0, "dX", "as X")
    .FillUsing(detail::FillRoiAlignAttributes)
    .PointwiseCost(40)
    .Infer([](InferenceContext& c) {
      c.SetInput(3, c.input_dtype(0), detail::RoiAlignShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Doc("The gradient of the images of RoiAlign, from that of the result.");

OPKIT_STANDARD_OPERATOR(MaxRoiPoolGradient, kNotImplemented, MaxRoiPoolGradientOp)
    .Private()
    .NumInputs(3)
    .Input(0, "X", "of MaxRoiPool", FloatTypes::DTypes())
    .Input(1, "rois", "of MaxRoiPool", FloatTypes::DTypes())
    .Input(2, "dY", "of the type of X, of the shape of MaxRoiPool's output")
    .Output(0, "dX", "as X")
    .FillUsing(detail::FillMaxRoiPoolAttributes)
    .PointwiseCost(20)
    .Infer([](InferenceContext& c) {
      c.SetInput(2, c.input_dtype(0), detail::MaxRoiPoolShape(c));
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
    })
    .Doc("The gradient of the images of MaxRoiPool, from that of the result.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_ROI_HPP_

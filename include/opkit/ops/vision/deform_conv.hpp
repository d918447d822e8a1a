// DeformConv: a convolution whose windows read an image at positions that an input moves, by linear
// interpolation. Sources: https://onnx.ai/onnx/operators/onnx__DeformConv.html, opset 22; Zhu et
// al., "Deformable ConvNets v2", 2018 (https://arxiv.org/abs/1811.11168).
#ifndef OPKIT_OPS_VISION_DEFORM_CONV_HPP_
#define OPKIT_OPS_VISION_DEFORM_CONV_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the shape of the output as far as it is known.
inline SymbolicShape DeformConvShape(InferenceContext& c) {
  const WindowAttributes attributes(c.def());
  const SymbolicShape &x = c.input_shape(0), &w = c.input_shape(1), &offset = c.input_shape(2);
  const auto group = c.Arg<int64_t>("group"), offset_group = c.Arg<int64_t>("offset_group");
  auto fail = [&](const std::string& expected) {
    Throw(ErrorCode::kInvalidArgument, "DeformConv: X ", ToString(x), ", W ", ToString(w),
          ", offset ", ToString(offset), ", group ", group, ", offset_group ", offset_group,
          ": expected ", expected);
  };
  ExpectSameDType(c);
  if (group < 1 || offset_group < 1) fail("groups from 1 on");
  if (!x.has_rank() || !w.has_rank()) return {};
  const int spatial = x.rank() - 2;
  if (spatial < 1 || w.rank() != x.rank()) fail("[N, C, …] and [M, C / group, …], of one rank");
  attributes.CheckRank(spatial);
  SymbolicShape y = x;
  y[1] = w[0];
  Dim elements = 1;
  for (int axis = 0; axis < spatial; ++axis) {
    Dim kernel = w[axis + 2];
    if (!attributes.kernel_shape.empty()) {
      const int64_t extent = attributes.kernel_shape[Index(axis)];
      if (!Dim::Compatible(kernel, extent)) fail("the extents of kernel_shape in W");
      kernel = extent;
    }
    y[axis + 2] = attributes.OutputDim(axis, x[axis + 2], kernel);
    elements =
        elements.is_known() && kernel.is_known() ? Dim(elements.value() * kernel.value()) : Dim();
  }
  if (x[1].is_known() && (x[1].value() % group != 0 || x[1].value() % offset_group != 0))
    fail("channels that the groups share evenly");
  if (w[0].is_known() && w[0].value() % group != 0) fail("a multiple of group for M");
  if (x[1].is_known() && w[1].is_known() && x[1].value() != w[1].value() * group)
    fail("C / group channels in W");
  SymbolicShape offsets = y, masks = y;
  offsets[1] = elements.is_known() ? Dim(elements.value() * offset_group * spatial) : Dim();
  masks[1] = elements.is_known() ? Dim(elements.value() * offset_group) : Dim();
  c.SetInput(2, c.input_dtype(0), offsets);
  if (c.HasInput(3)) c.SetInput(3, c.input_dtype(0), {w[0]});
  if (c.HasInput(4)) c.SetInput(4, c.input_dtype(0), masks);
  return y;
}

// The operator DeformConvGradient computes the gradients of all inputs together.
OPKIT_NODE_GRADIENT(DeformConv) {
  GiveTogether("DeformConvGradient", 5, {0, 1, 2, 3, 4}, Def().args());
}

inline void FillDeformConvAttributes(OpSchema& schema) {
  schema
      .Arg<std::vector<int64_t>>(
          "dilations",
          "distance of a kernel's elements along each spatial axis; 1 where it is left out")
      .Arg<std::vector<int64_t>>("pads", kPadsDoc)
      .Arg<std::vector<int64_t>>(
          "strides", "distance of windows along each spatial axis; 1 where it is left out")
      .Arg<int64_t>("group", "input and output channels are split into this number of groups", 1)
      .Arg<std::vector<int64_t>>("kernel_shape", "the extents of a window; those of W by default")
      .Arg<int64_t>("offset_group",
                    "input channels are split into this number of groups of offsets", 1);
}

}  // namespace detail

// The base of DeformConv and of its gradient.
class DeformConvOpBase : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  struct Tap {
    int64_t index;
    double weight;
  };

  std::vector<double> Numbers(int i) {
    return HasInput(i) ? detail::NumbersOf<double>(Input(i)) : std::vector<double>();
  }
  WindowAxes AxesNow() const {
    const WindowAttributes attributes(def());
    WindowAxes axes;
    for (int axis = 0; axis < Input(0).rank() - 2; ++axis)
      axes.push_back(attributes.At(axis, Input(0).dim(axis + 2), Input(1).dim(axis + 2)));
    return axes;
  }
  // Returns the elements of X around the moved position of one element of the window of `pixel`.
  // `offset` points to the offset along the first axis; those along the others are `step` apart.
  // Along the axis `slope_of` the weights are derivatives with respect to the offset; -1: along no
  // axis.
  static std::vector<Tap> TapsAt(const WindowAxes& axes, int64_t element, int64_t pixel,
                                 const double* offset, int64_t step, int slope_of = -1) {
    std::vector<double> places(axes.size());
    for (size_t i = axes.size(); i-- > 0;) {
      const WindowAxis& axis = axes[i];
      const int64_t at = axis.Start(pixel % axis.output) + element % axis.kernel * axis.dilation;
      places[i] = static_cast<double>(at) + offset[static_cast<int64_t>(i) * step];
      pixel /= axis.output;
      element /= axis.kernel;
    }
    std::vector<Tap> taps{{0, 1}}, crossed;
    for (size_t i = 0; i < axes.size(); ++i) {
      const double first = std::floor(places[i]), part = places[i] - first;
      crossed.clear();
      for (const double place : {first, first + 1}) {
        // The comparison is false for a NaN, too.
        if (!(place >= 0 && place < static_cast<double>(axes[i].input))) continue;
        const bool slope = static_cast<int>(i) == slope_of;
        const double weight = place == first ? (slope ? -1 : 1 - part) : (slope ? 1 : part);
        for (const Tap& tap : taps)
          crossed.push_back(
              {tap.index * axes[i].input + static_cast<int64_t>(place), tap.weight * weight});
      }
      taps.swap(crossed);
    }
    return taps;
  }

  const int64_t group_ = GetSingleArgument<int64_t>("group");
  const int64_t offset_group_ = GetSingleArgument<int64_t>("offset_group");
};

// Computes in double: for each output pixel it reads X once for each element of a window and each
// channel, and multiplies these samples by the weights of all output channels.
class DeformConvOp final : public DeformConvOpBase {
 public:
  using DeformConvOpBase::DeformConvOpBase;
  bool RunOnDevice() override {
    Infer();
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    const std::vector<double> weights = Numbers(1), offsets = Numbers(2), bias = Numbers(3),
                              mask = Numbers(4);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const WindowAxes axes = AxesNow();
    const int64_t elements = w.shape().NumelBetween(2, w.rank());
    const int64_t channels = x.dim(1), outputs = y->dim(1), per_group = w.dim(1);
    const int64_t plane = x.shape().NumelBetween(2, x.rank());
    const int64_t pixels = y->shape().NumelBetween(2, y->rank());
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      ParallelFor(y->dim(0) * pixels, [&](int64_t at) {
        const int64_t image = at / pixels, pixel = at % pixels;
        std::vector<double> samples(static_cast<size_t>(channels * elements), 0);
        for (int64_t group = 0; group < offset_group_; ++group)
          for (int64_t element = 0; element < elements; ++element) {
            const int64_t row = (image * offset_group_ + group) * elements + element;
            const double factor = mask.empty() ? 1 : mask[detail::Index(row * pixels + pixel)];
            const auto spatial = static_cast<int64_t>(axes.size());
            const std::vector<Tap> taps = TapsAt(
                axes, element, pixel, offsets.data() + row * spatial * pixels + pixel, pixels);
            const int64_t shared = channels / offset_group_;
            for (int64_t c = group * shared; c < (group + 1) * shared; ++c) {
              double sum = 0;
              for (const Tap& tap : taps)
                sum += tap.weight *
                       static_cast<double>(from[(image * channels + c) * plane + tap.index]);
              samples[detail::Index(c * elements + element)] = sum * factor;
            }
          }
        for (int64_t o = 0; o < outputs; ++o) {
          double sum = bias.empty() ? 0 : bias[detail::Index(o)];
          const int64_t first = o / (outputs / group_) * per_group * elements;
          const double* weight = weights.data() + o * per_group * elements;
          for (int64_t i = 0; i < per_group * elements; ++i)
            sum += weight[i] * samples[detail::Index(first + i)];
          to[(image * outputs + o) * pixels + pixel] = ConvertElement<T>(sum);
        }
      });
    });
  }
};

// Computes in double, on one thread, because positions of X and the weights are shared.
class DeformConvGradientOp final : public DeformConvOpBase {
 public:
  using DeformConvOpBase::DeformConvOpBase;
  bool RunOnDevice() override {
    Infer();
    const std::vector<double> x = Numbers(0), weights = Numbers(1), offsets = Numbers(2),
                              mask = Numbers(4), dy = Numbers(5);
    const Shape &image_shape = Input(0).shape(), &y = Input(5).shape();
    std::vector<double> slopes[5];
    for (int i = 0; i < 5; ++i)
      if (HasInput(i)) slopes[i].assign(static_cast<size_t>(Input(i).numel()), 0);
    const WindowAxes axes = AxesNow();
    const auto spatial = static_cast<int64_t>(axes.size());
    const int64_t elements = Input(1).shape().NumelBetween(2, Input(1).rank());
    const int64_t channels = image_shape[1], outputs = y[1], per_group = Input(1).dim(1);
    const int64_t plane = image_shape.NumelBetween(2, image_shape.rank());
    const int64_t pixels = y.NumelBetween(2, y.rank()), shared = channels / offset_group_;
    std::vector<double> to_samples(static_cast<size_t>(channels * elements));
    std::vector<double> samples(to_samples.size());
    for (int64_t at = 0; at < y[0] * pixels; ++at) {
      const int64_t image = at / pixels, pixel = at % pixels;
      // The gradients of the samples, each of which is one element of the window of one channel.
      to_samples.assign(to_samples.size(), 0);
      const auto first_of = [&](int64_t o) {
        return o / (outputs / group_) * per_group * elements;
      };
      const auto slope_of = [&](int64_t o) {
        return dy[detail::Index((image * outputs + o) * pixels + pixel)];
      };
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t i = 0; i < per_group * elements; ++i)
          to_samples[detail::Index(first_of(o) + i)] +=
              slope_of(o) * weights[detail::Index(o * per_group * elements + i)];
      for (int64_t group = 0; group < offset_group_; ++group)
        for (int64_t element = 0; element < elements; ++element) {
          const int64_t row = (image * offset_group_ + group) * elements + element;
          const double* offset = offsets.data() + row * spatial * pixels + pixel;
          const double factor = mask.empty() ? 1 : mask[detail::Index(row * pixels + pixel)];
          const std::vector<Tap> taps = TapsAt(axes, element, pixel, offset, pixels);
          for (int64_t c = group * shared; c < (group + 1) * shared; ++c) {
            const double slope = to_samples[detail::Index(c * elements + element)];
            const int64_t first = (image * channels + c) * plane;
            double sum = 0;
            for (const Tap& tap : taps) {
              sum += tap.weight * x[detail::Index(first + tap.index)];
              slopes[0][detail::Index(first + tap.index)] += slope * factor * tap.weight;
            }
            samples[detail::Index(c * elements + element)] = sum * factor;
            if (!mask.empty()) slopes[4][detail::Index(row * pixels + pixel)] += slope * sum;
          }
          for (int axis = 0; axis < static_cast<int>(spatial); ++axis)
            for (const Tap& tap : TapsAt(axes, element, pixel, offset, pixels, axis))
              for (int64_t c = group * shared; c < (group + 1) * shared; ++c)
                slopes[2][detail::Index((row * spatial + axis) * pixels + pixel)] +=
                    to_samples[detail::Index(c * elements + element)] * factor * tap.weight *
                    x[detail::Index((image * channels + c) * plane + tap.index)];
        }
      for (int64_t o = 0; o < outputs; ++o) {
        if (HasInput(3)) slopes[3][detail::Index(o)] += slope_of(o);
        for (int64_t i = 0; i < per_group * elements; ++i)
          slopes[1][detail::Index(o * per_group * elements + i)] +=
              slope_of(o) * samples[detail::Index(first_of(o) + i)];
      }
    }
    return Visit<FloatTypes>([&]<class T>() {
      for (int o = 0; o < OutputSize(); ++o) {
        if (!HasOutput(o)) continue;
        T* out = InferredOutput(o)->mutable_data<T>();
        for (const double slope : slopes[o]) *out++ = ConvertElement<T>(slope);
      }
    });
  }
};

OPKIT_STANDARD_OPERATOR(DeformConv, kMaker, DeformConvOp)
    .NumInputs(3, 5)
    .FillUsing(detail::FillDeformConvAttributes)
    .Input(0, "X", "[N, C, D1, ..., Dn]", FloatTypes::DTypes())
    .Input(1, "W", "[M, C / group, kernel]", FloatTypes::DTypes())
    .Input(2, "offset",
           "[N, offset_group * elements of the kernel * n, O1, ..., On]: by how many pixels each "
           "element of a window is moved along each axis",
           FloatTypes::DTypes())
    .Input(3, "B", "[M]: added to each output channel; 0 where it is left out",
           FloatTypes::DTypes())
    .Input(4, "mask",
           "[N, offset_group * elements of the kernel, O1, ..., On]: a factor of each element of a "
           "window; 1 where it is left out",
           FloatTypes::DTypes())
    .Output(0, "Y", "[N, M, O1, ..., On]", FloatTypes::DTypes())
    .PointwiseCost(50)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input_dtype(0), detail::DeformConvShape(c));
    })
    .Doc("A convolution whose windows read X at positions that offsets move.");

OPKIT_STANDARD_OPERATOR(DeformConvGradient, kNotImplemented, DeformConvGradientOp)
    .Private()
    .NumInputs(6)
    .NumOutputs(1, 5)
    .FillUsing(detail::FillDeformConvAttributes)
    .Input(0, "X", "of DeformConv", FloatTypes::DTypes())
    .Input(1, "W", "of DeformConv", FloatTypes::DTypes())
    .Input(2, "offset", "of DeformConv", FloatTypes::DTypes())
    .Input(3, "B", "of DeformConv", FloatTypes::DTypes())
    .Input(4, "mask", "of DeformConv", FloatTypes::DTypes())
    .Input(5, "dY", "of the shape of DeformConv's output", FloatTypes::DTypes())
    .Output(0, "dX", "as X")
    .Output(1, "dW", "as W")
    .Output(2, "doffset", "as the offset")
    .Output(3, "dB", "as B, optional")
    .Output(4, "dmask", "as the mask, optional")
    .PointwiseCost(100)
    .Infer([](InferenceContext& c) {
      c.SetInput(5, c.input_dtype(0), detail::DeformConvShape(c));
      for (int o = 0; o < c.num_outputs(); ++o) c.SetOutput(o, c.input_dtype(0), c.input_shape(o));
    })
    .Doc("The gradients of a DeformConv, from that of its output.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_DEFORM_CONV_HPP_

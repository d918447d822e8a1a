// DeformConv: a convolution whose windows read an image at positions that an input moves, by linear
// interpolation. Sources: https://onnx.ai/onnx/operators/onnx__DeformConv.html, opset 22; Zhu et
// al., "Deformable ConvNets v2", 2018 (https://arxiv.org/abs/1811.11168).
#ifndef OPKIT_OPS_VISION_DEFORM_CONV_HPP_
#define OPKIT_OPS_VISION_DEFORM_CONV_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferDeformConv(InferenceContext& c) {
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
  if (!x.has_rank() || !w.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
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
  c.SetOutput(0, c.input_dtype(0), y);
}

}  // namespace detail

// Computes in double: for each output pixel it reads X once for each element of a window and each
// channel, and multiplies these samples by the weights of all output channels.
class DeformConvOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor &x = DenseInput(0), &w = DenseInput(1);
    const std::vector<double> weights = detail::NumbersOf<double>(w);
    const std::vector<double> offsets = detail::NumbersOf<double>(DenseInput(2));
    std::vector<double> bias, mask;
    if (HasInput(3)) bias = detail::NumbersOf<double>(DenseInput(3));
    if (HasInput(4)) mask = detail::NumbersOf<double>(DenseInput(4));
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const WindowAttributes attributes(def());
    WindowAxes axes;
    for (int axis = 0; axis < x.rank() - 2; ++axis)
      axes.push_back(attributes.At(axis, x.dim(axis + 2), w.dim(axis + 2)));
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

 private:
  struct Tap {
    int64_t index;
    double weight;
  };

  // Returns the elements of X around the moved position of one element of the window of `pixel`.
  // `offset` points to the offset along the first axis; those along the others are `step` apart.
  static std::vector<Tap> TapsAt(const WindowAxes& axes, int64_t element, int64_t pixel,
                                 const double* offset, int64_t step) {
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
        const double weight = place == first ? 1 - part : part;
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

OPKIT_STANDARD_OPERATOR(DeformConv, kNotImplemented, DeformConvOp)
    .NumInputs(3, 5)
    .FillUsing([](OpSchema& schema) {
      schema
          .Arg<std::vector<int64_t>>(
              "dilations",
              "distance of a kernel's elements along each spatial axis; 1 where it is left out")
          .Arg<std::vector<int64_t>>("pads", kPadsDoc)
          .Arg<std::vector<int64_t>>(
              "strides", "distance of windows along each spatial axis; 1 where it is left out");
    })
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
    .Arg<int64_t>("group", "input and output channels are split into this number of groups", 1)
    .Arg<std::vector<int64_t>>("kernel_shape", "the extents of a window; those of W by default")
    .Arg<int64_t>("offset_group", "input channels are split into this number of groups of offsets",
                  1)
    .PointwiseCost(50)
    .Infer(detail::InferDeformConv)
    .Doc("A convolution whose windows read X at positions that offsets move.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_DEFORM_CONV_HPP_

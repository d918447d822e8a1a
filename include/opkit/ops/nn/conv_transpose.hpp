// ConvTranspose: the gradient of Conv with respect to its input. Every input pixel, times the
// kernel, is added to a window of the output. Source:
// https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
#ifndef OPKIT_OPS_NN_CONV_TRANSPOSE_HPP_
#define OPKIT_OPS_NN_CONV_TRANSPOSE_HPP_

#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The attributes of ConvTranspose. The windows are windows of the output, one for each input pixel.
// Hence WindowAxis::input is the extent of the output, and WindowAxis::output the extent of the
// input.
struct ConvTransposeAttributes : WindowAttributes {
  std::vector<int64_t> output_shape, output_padding;

  explicit ConvTransposeAttributes(const OperatorDef& def)
      : WindowAttributes(def),
        output_shape(List(def, "output_shape", 1)),
        output_padding(List(def, "output_padding", 0)) {}

  // Throws kInvalidArgument unless the lists fit `spatial` axes and output_padding is less than the
  // stride or the dilation.
  void CheckTransposedRank(int spatial) const {
    CheckRank(spatial);
    CheckLength("output_shape", output_shape, spatial, 1);
    CheckLength("output_padding", output_padding, spatial, 1);
    for (int axis = 0; axis < spatial && !output_padding.empty(); ++axis) {
      const WindowAxis steps = Steps(axis, 1);
      const int64_t found = output_padding[detail::Index(axis)];
      if (found >= steps.stride && found >= steps.dilation)
        Throw(ErrorCode::kInvalidArgument, op, ": output_padding is ", output_padding,
              ", expected less than the stride or the dilation, which are ", steps.stride, " and ",
              steps.dilation, " along spatial axis ", axis);
    }
  }
  // Returns the windows along a spatial axis whose input extent is `pixels`; compare
  // WindowAttributes::At. Throws kInvalidArgument if the output would have no elements or is too
  // large.
  WindowAxis At(int axis, int64_t pixels, int64_t kernel) const {
    WindowAxis out = Steps(axis, kernel);
    const auto i = static_cast<size_t>(axis);
    int64_t full = 0;  // the output's extent before pads are cut off
    if (pixels < 1 || kernel < 1 || kernel > INT32_MAX ||
        __builtin_mul_overflow(pixels - 1, out.stride, &full) || full > INT64_MAX / 4)
      Throw(ErrorCode::kInvalidArgument, op, ": an extent of ", pixels, " with stride ", out.stride,
            " and a kernel of ", kernel, " along spatial axis ", axis, " has no output");
    full += out.extent() + (output_padding.empty() ? 0 : output_padding[i]);
    out.output = pixels;
    if (!output_shape.empty() || is_same()) {
      out.input = output_shape.empty() ? pixels * out.stride : output_shape[i];
      SplitPads(out, full - out.input, auto_pad == AutoPad::kSameUpper);
    } else {
      out.input = full - out.pad_begin - out.pad_end;
    }
    if (out.input < 1)
      Throw(ErrorCode::kInvalidArgument, op, ": pads ", out.pad_begin, " and ", out.pad_end,
            " leave nothing of the output's extent ", full, " along spatial axis ", axis);
    return out;
  }
  // Returns the output's extent as far as it is known. Returns the input's symbol if both extents
  // are equal.
  Dim TransposedDim(int axis, const Dim& pixels, const Dim& kernel) const {
    if (!output_shape.empty()) return output_shape[detail::Index(axis)];
    if (pixels.is_known() && kernel.is_known())
      return At(axis, pixels.value(), kernel.value()).input;
    if (is_same() && pixels.is_known()) return At(axis, pixels.value(), 1).input;
    if (!is_same() && !kernel.is_known()) return {};
    const WindowAxis steps = Steps(axis, kernel.is_known() ? kernel.value() : 1);
    const int64_t padding = output_padding.empty() ? 0 : output_padding[detail::Index(axis)];
    const bool kept = is_same() || steps.extent() + padding == steps.pad_begin + steps.pad_end + 1;
    return steps.stride == 1 && kept ? pixels : Dim();
  }
};

namespace detail {

// Returns the shape of the output, which has no rank if neither X nor W has.
inline SymbolicShape ConvTransposeOutputShape(InferenceContext& c) {
  const ConvTransposeAttributes attributes(c.def());
  const int64_t groups = ConvGroups(c.def());
  const int rank = ConvRank(c);
  if (rank < 0) return {};
  attributes.CheckTransposedRank(rank - 2);
  const SymbolicShape x = c.input_shape(0), w = c.input_shape(1);
  SymbolicShape y = SymbolicShape::OfRank(rank);
  if (x.has_rank()) y[0] = x[0];
  if (w.has_rank() && w[1].is_known()) {
    int64_t channels = 0;
    if (__builtin_mul_overflow(w[1].value(), groups, &channels))
      Throw(ErrorCode::kInvalidArgument, "ConvTranspose: W is ", ToString(w), " in ", groups,
            " groups, which gives too many output channels");
    y[1] = channels;
  } else if (w.has_rank() && groups == 1) {
    y[1] = w[1];
  }
  if (w.has_rank() && x.has_rank() && !Dim::Compatible(w[0], x[1]))
    Throw(ErrorCode::kInvalidArgument, "ConvTranspose: X is ", ToString(x), " and W is ",
          ToString(w), ", expected W's first extent to be X's channels");
  if (w.has_rank() && w[0].is_known() && w[0].value() % groups != 0)
    Throw(ErrorCode::kInvalidArgument, "ConvTranspose: W is ", ToString(w), ", whose ",
          ToString(w[0]), " input channels cannot be divided among ", groups, " groups");
  for (int axis = 0; axis < rank - 2; ++axis)
    y[axis + 2] = attributes.TransposedDim(axis, x.has_rank() ? x[axis + 2] : Dim(),
                                           ConvKernelDim(attributes, w, axis));
  return y;
}
inline void InferConvTranspose(InferenceContext& c) {
  const SymbolicShape y = ConvTransposeOutputShape(c);
  if (y.has_rank()) CheckConvOperands(c, y[1]);
  c.SetOutput(0, c.input_dtype(0), y);
}

}  // namespace detail

// Returns the sizes of a ConvTranspose. They are the sizes of a Conv from the output of the
// ConvTranspose to its input, with two swaps: `channels` with `outputs`, and `input_pixels` with
// `output_pixels`. `axes` remain those of the Conv (see ConvTransposeAttributes). The shapes must
// have passed inference.
inline ConvSizes ConvTransposeSizes(const ConvTransposeAttributes& attributes, int64_t groups,
                                    const Shape& x, const Shape& w) {
  ConvSizes sizes = ConvSizes::Of(attributes, groups, x, w);
  std::swap(sizes.channels, sizes.outputs);
  std::swap(sizes.input_pixels, sizes.output_pixels);
  return sizes;
}

using ConvTransposeOpBase = BasicConvOpBase<ConvTransposeAttributes>;

// The reference kernel: computes one plane of the output after another, with sums in double.
class ConvTransposeOp final : public ConvTransposeOpBase {
 public:
  using ConvTransposeOpBase::ConvTransposeOpBase;

  bool RunOnDevice() override {
    return Visit<FloatTypes>([&]<class T>() {
      Tensor* y = InferredOutput(0);
      if (y->numel() == 0) return;
      const ConvSizes sizes =
          ConvTransposeSizes(attributes_, groups_, Input(0).shape(), Input(1).shape());
      const ConvData<T> data = this->DataOf<T>(*y);
      const int64_t all_outputs = groups_ * sizes.outputs;
      ParallelForRange(sizes.batch * all_outputs, kAutoGrain, [&](int64_t begin, int64_t end) {
        WindowTaps taps(sizes.axes);
        std::vector<double> sums(static_cast<size_t>(sizes.output_pixels));
        for (int64_t plane = begin; plane < end; ++plane) {
          const int64_t n = plane / all_outputs, m = plane % all_outputs;
          const int64_t group = m / sizes.outputs;
          sums.assign(sums.size(), data.bias ? static_cast<double>(data.bias[m]) : 0);
          for (int64_t pixel = 0; pixel < sizes.input_pixels; ++pixel) {
            const std::vector<WindowTap>& covered = taps.At(pixel);
            for (int64_t c = group * sizes.channels; c < (group + 1) * sizes.channels; ++c) {
              const auto value = static_cast<double>(
                  data.x[(n * groups_ * sizes.channels + c) * sizes.input_pixels + pixel]);
              const T* kernel = data.w + (c * sizes.outputs + m % sizes.outputs) * sizes.kernel;
              for (const WindowTap& tap : covered)
                sums[detail::Index(tap.input)] += value * static_cast<double>(kernel[tap.kernel]);
            }
          }
          for (int64_t pixel = 0; pixel < sizes.output_pixels; ++pixel)
            data.y[plane * sizes.output_pixels + pixel] =
                static_cast<T>(sums[detail::Index(pixel)]);
        }
      });
    });
  }
};

using ConvTransposeGradientOp = BasicConvGradientOp<ConvTransposeAttributes, true>;

namespace detail {
OPKIT_REGISTER_GRADIENT(ConvTranspose, ConvolutionGradient);
OPKIT_REGISTER_GRADIENT(ConvTransposeGradient, ConvolutionSecondGradient);
}  // namespace detail

OPKIT_STANDARD_OPERATOR(ConvTranspose, kMaker, ConvTransposeOp)
    .Doc(
        "Transposed convolution: each input pixel adds its multiple of a kernel to a window of the "
        "output, over the channels of a group; plus a bias.")
    .FillUsing([](OpSchema& schema) {
      detail::FillConvSchema(schema, "kernels [C, M / group, k1, ..., kn]");
      FillWindowSchema(schema,
                       "NOTSET: pads are given; SAME_UPPER, SAME_LOWER: so many that the output's "
                       "extents are the input's times the strides; VALID: none. Other than NOTSET "
                       "it goes before `pads`",
                       "elements cut off the beginning of each spatial axis, then off the end of "
                       "each; 0 where it is left out");
    })
    .Output(0, "Y",
            "[N, M, ...] with extents stride * (D - 1) + output_padding + dilation * (k - 1) + 1 "
            "- pads")
    .Arg<std::vector<int64_t>>("output_padding",
                               "elements added at the end of each of the output's spatial axes")
    .Arg<std::vector<int64_t>>("output_shape",
                               "the output's spatial extents, instead of `pads`, which then follow "
                               "from them: an odd one at the end for SAME_UPPER, else at the "
                               "beginning")
    .Infer(&detail::InferConvTranspose)
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], inputs[0]), inputs, outputs, 1);
    });

OPKIT_STANDARD_OPERATOR(ConvTransposeGradient, kMaker, ConvTransposeGradientOp)
    .Doc("The gradient of the input or of the kernels of a ConvTranspose, from that of its output.")
    .FillUsing(detail::ConvGradientSchema(&detail::ConvTransposeOutputShape))
    .Arg<std::vector<int64_t>>("output_padding", "of the ConvTranspose")
    .Arg<std::vector<int64_t>>("output_shape", "of the ConvTranspose")
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return WindowCost(detail::ConvFlops(inputs[1], inputs[0]), inputs, outputs, 1);
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_CONV_TRANSPOSE_HPP_

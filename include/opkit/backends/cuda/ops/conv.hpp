// Conv, ConvTranspose and their gradients of the backend "cuda": a thread sums each element. They
// compute where cuDNN is not linked, and the convolutions that it does not have.
#ifndef OPKIT_BACKENDS_CUDA_OPS_CONV_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_CONV_HPP_

#include "opkit/backends/cuda/ops/conv_operator.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class T>
struct ConvPixelsLoop {
  ConvExtents sizes;
  const T *image, *kernels, *bias;
  T* pixels;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const WindowAxis *outer = sizes.axes, *middle = outer + 1, *inner = outer + 2;
    const SpatialIndex o(i % sizes.output_pixels, middle->output, inner->output);
    const int64_t outputs = sizes.groups * sizes.outputs, plane = i / sizes.output_pixels;
    const int64_t n = plane / outputs, m = plane % outputs;
    const T* channel =
        image + (n * sizes.groups + m / sizes.outputs) * sizes.channels * sizes.input_pixels;
    const T* kernel = kernels + m * sizes.channels * sizes.kernel;
    CUDASumType<T> sum = bias ? static_cast<CUDASumType<T>>(bias[m]) : CUDASumType<T>(0);
    for (int64_t c = 0; c < sizes.channels; ++c) {
      for (int64_t k0 = outer->KernelBegin(o.at[0]); k0 < outer->KernelEnd(o.at[0]); ++k0)
        for (int64_t k1 = middle->KernelBegin(o.at[1]); k1 < middle->KernelEnd(o.at[1]); ++k1)
          for (int64_t k2 = inner->KernelBegin(o.at[2]); k2 < inner->KernelEnd(o.at[2]); ++k2) {
            const int64_t row = (outer->Start(o.at[0]) + k0 * outer->dilation) * middle->input +
                                middle->Start(o.at[1]) + k1 * middle->dilation;
            const int64_t x = row * inner->input + inner->Start(o.at[2]) + k2 * inner->dilation;
            const int64_t k = (k0 * middle->kernel + k1) * inner->kernel + k2;
            sum += static_cast<CUDASumType<T>>(channel[x]) * static_cast<CUDASumType<T>>(kernel[k]);
          }
      channel += sizes.input_pixels;
      kernel += sizes.kernel;
    }
    pixels[i] = ElementOfSum<T>(sum);
  }
};

// An element of the image belongs to the windows whose kernels have an element there.
template <class T>
struct ConvImageLoop {
  ConvExtents sizes;
  const T *pixels, *kernels, *bias;
  T* image;
  // Returns the window whose element k is element x; -1 if there is none.
  OPKIT_DEVICE static int64_t WindowOf(const WindowAxis& axis, int64_t x, int64_t k) {
    const int64_t start = x + axis.pad_begin - k * axis.dilation;
    if (start < 0 || start % axis.stride != 0) return -1;
    return start / axis.stride < axis.output ? start / axis.stride : -1;
  }
  OPKIT_DEVICE void operator()(int64_t i) const {
    const WindowAxis *outer = sizes.axes, *middle = outer + 1, *inner = outer + 2;
    const SpatialIndex x(i % sizes.input_pixels, middle->input, inner->input);
    const int64_t channels = sizes.groups * sizes.channels, plane = i / sizes.input_pixels;
    const int64_t n = plane / channels, channel = plane % channels;
    const int64_t group = channel / sizes.channels;
    const T* slopes = pixels + (n * sizes.groups + group) * sizes.outputs * sizes.output_pixels;
    const T* weights =
        kernels +
        (group * sizes.outputs * sizes.channels + channel % sizes.channels) * sizes.kernel;
    CUDASumType<T> sum = bias ? static_cast<CUDASumType<T>>(bias[channel]) : CUDASumType<T>(0);
    for (int64_t k0 = 0; k0 < outer->kernel; ++k0) {
      const int64_t o0 = WindowOf(*outer, x.at[0], k0);
      if (o0 < 0) continue;
      for (int64_t k1 = 0; k1 < middle->kernel; ++k1) {
        const int64_t o1 = WindowOf(*middle, x.at[1], k1);
        if (o1 < 0) continue;
        for (int64_t k2 = 0; k2 < inner->kernel; ++k2) {
          const int64_t o2 = WindowOf(*inner, x.at[2], k2);
          if (o2 < 0) continue;
          const int64_t o = (o0 * middle->output + o1) * inner->output + o2;
          const int64_t k = (k0 * middle->kernel + k1) * inner->kernel + k2;
          for (int64_t m = 0; m < sizes.outputs; ++m)
            sum += static_cast<CUDASumType<T>>(slopes[m * sizes.output_pixels + o]) *
                   static_cast<CUDASumType<T>>(weights[m * sizes.channels * sizes.kernel + k]);
        }
      }
    }
    image[i] = ElementOfSum<T>(sum);
  }
};

// A team sums the products of an element of a kernel over all pixels.
template <class T>
struct ConvKernelsLoop {
  ConvExtents sizes;
  const T *image, *pixels;
  T* kernels;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t i, const Team& team) const {
    const WindowAxis *outer = sizes.axes, *middle = outer + 1, *inner = outer + 2;
    const SpatialIndex k(i % sizes.kernel, middle->kernel, inner->kernel);
    const int64_t plane = i / sizes.kernel, m = plane / sizes.channels;
    const int64_t channel = m / sizes.outputs * sizes.channels + plane % sizes.channels;
    CUDASumType<T> sum = 0;
    team.Each(sizes.batch * sizes.output_pixels, [&](int64_t j) {
      const int64_t n = j / sizes.output_pixels, pixel = j % sizes.output_pixels;
      const SpatialIndex o(pixel, middle->output, inner->output);
      int64_t x = n * sizes.groups * sizes.channels + channel;
      for (int axis = 0; axis < ConvExtents::kAxes; ++axis) {
        const WindowAxis& along = sizes.axes[axis];
        const int64_t at = along.Start(o.at[axis]) + k.at[axis] * along.dilation;
        if (at < 0 || at >= along.input) return;
        x = x * along.input + at;
      }
      const int64_t y = (n * sizes.groups * sizes.outputs + m) * sizes.output_pixels + pixel;
      sum += static_cast<CUDASumType<T>>(image[x]) * static_cast<CUDASumType<T>>(pixels[y]);
    });
    sum = team.Sum(sum);
    if (team.is_first()) kernels[i] = ElementOfSum<T>(sum);
  }
};

}  // namespace detail

template <class Attributes, bool kTransposed, bool kGradient>
class CUDAConvLoopOp final : public CUDAConvOperator<Attributes, kTransposed, kGradient> {
  using Base = CUDAConvOperator<Attributes, kTransposed, kGradient>;

 public:
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.inputs[0].shape.has_rank())
      detail::ConvExtents::RequireAxes(query.inputs[0].shape.rank() - 2);
    return ProposeTypes<FloatTypes>(query);
  }

  bool RunOnDevice() override {
    return this->template Visit<FloatTypes>([&]<class T>() {
      Tensor* result = this->InferredOutput(0);
      if (result->numel() == 0) return;
      const detail::ConvExtents sizes(this->Sizes(), this->node_.groups);
      const ConvOperands operands = this->OperandsOf(*result);
      const auto of = [](const void* data) { return static_cast<const T*>(data); };
      const T *image = of(operands.image), *kernels = of(operands.kernels),
              *pixels = of(operands.pixels), *bias = of(operands.bias);
      auto* out = static_cast<T*>(operands.result);
      switch (this->node_.result) {
        case ConvTensor::kPixels:
          return ParallelFor(this->context_, result->numel(),
                             detail::ConvPixelsLoop<T>{sizes, image, kernels, bias, out});
        case ConvTensor::kImage:
          return ParallelFor(this->context_, result->numel(),
                             detail::ConvImageLoop<T>{sizes, pixels, kernels, bias, out});
        case ConvTensor::kKernels:
          return ParallelForTeams(this->context_, result->numel(),
                                  sizes.batch * sizes.output_pixels,
                                  detail::ConvKernelsLoop<T>{sizes, image, pixels, out});
      }
    });
  }
};

OPKIT_CUDA_OPERATOR(Conv, CUDAConvLoopOp<WindowAttributes, false, false>);
OPKIT_CUDA_OPERATOR(ConvGradient, CUDAConvLoopOp<WindowAttributes, false, true>);
OPKIT_CUDA_OPERATOR(ConvTranspose, CUDAConvLoopOp<ConvTransposeAttributes, true, false>);
OPKIT_CUDA_OPERATOR(ConvTransposeGradient, CUDAConvLoopOp<ConvTransposeAttributes, true, true>);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_CONV_HPP_

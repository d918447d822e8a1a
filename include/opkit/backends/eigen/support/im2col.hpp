// Im2col: computes convolutions with few output pixels in each image as matrix products. The
// elements under each window become a row of a matrix, for many images at a time. The product with
// the kernels has vectors along the depth and the output channels, because lines of pixels are too
// short for vectors. Used by Conv of the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_IM2COL_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_IM2COL_HPP_

#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The sizes of a convolution, and the function that runs it as matrix products.
struct Im2col {
  ConvSizes sizes;
  int64_t groups = 1;
  int64_t depth = 0;  // elements under a window in one group
  bool whole = true;  // each window covers its whole image, so that the image itself is the row
  int64_t block_images = 1;  // number of images whose rows and products fit in the L2 cache
  int64_t columns = 0, products = 0;  // floats of the rows and of the products

  Im2col(ConvSizes all, int64_t group_count)
      : sizes(std::move(all)), groups(group_count), depth(sizes.channels * sizes.kernel) {
    constexpr int64_t kBlockFloats = 128 * 1024;
    for (const WindowAxis& axis : sizes.axes)
      whole &= axis.output == 1 && axis.kernel == axis.input && axis.pad_begin == 0 &&
               axis.dilation == 1;
    const int64_t pixels = sizes.output_pixels;
    const int64_t image = (whole ? 0 : pixels * depth) + (pixels == 1 ? 0 : pixels * sizes.outputs);
    block_images = image == 0
                       ? sizes.batch
                       : (std::min)(sizes.batch, (std::max)(kBlockFloats / image, int64_t{1}));
    if (!whole) columns = block_images * pixels * depth;
    if (pixels > 1) products = block_images * pixels * sizes.outputs;
  }
  // True if this algorithm is faster than ConvPlan's.
  static bool IsFaster(const ConvSizes& sizes) {
    const bool thin = sizes.output_pixels <= 4 || (sizes.output_pixels <= 8 && sizes.batch >= 4);
    return thin && sizes.channels * sizes.kernel >= 16 && sizes.channels > 1;
  }
  int64_t ScratchBytes() const { return (columns + products) * int64_t{sizeof(float)}; }

  // Runs the convolution. `scratch` must have ScratchBytes() bytes.
  void Run(const ConvData<float>& data, float* scratch) const {
    for (int64_t first = 0; first < sizes.batch; first += block_images)
      for (int64_t group = 0; group < groups; ++group)
        RunBlock(data, scratch, first, (std::min)(block_images, sizes.batch - first), group);
  }

 private:
  // Computes one group of images [first, first + count).
  void RunBlock(const ConvData<float>& data, float* scratch, int64_t first, int64_t count,
                int64_t group) const {
    const int64_t pixels = sizes.output_pixels, outputs = sizes.outputs;
    const int64_t image = groups * sizes.channels * sizes.input_pixels;
    const float* x = data.x + first * image + group * sizes.channels * sizes.input_pixels;
    const float* w = data.w + group * outputs * depth;
    const float* bias = data.bias ? data.bias + group * outputs : nullptr;
    GemmMatrix<float> rows{x, image};
    if (!whole) {
      Gather(x, image, count, scratch);
      rows = {scratch, depth};
    }
    float* y = data.y + (first * groups + group) * outputs * pixels;
    const int64_t y_image = groups * outputs * pixels;
    if (pixels == 1) {
      for (int64_t n = 0; n < count; ++n)
        for (int64_t m = 0; m < outputs; ++m) y[n * y_image + m] = bias ? bias[m] : 0.f;
      Gemm<float>({count, outputs, depth}, 1, rows, {w, depth, true}, {y, y_image, 1});
      return;
    }
    float* product = scratch + columns;
    Gemm<float>({count * pixels, outputs, depth}, 1, rows, {w, depth, true}, {product, outputs});
    for (int64_t n = 0; n < count; ++n)
      for (int64_t m = 0; m < outputs; ++m)
        for (int64_t pixel = 0; pixel < pixels; ++pixel)
          y[n * y_image + m * pixels + pixel] =
              product[(n * pixels + pixel) * outputs + m] + (bias ? bias[m] : 0.f);
  }
  // Copies the elements under each window to rows[image, pixel, depth]; pads are 0.
  void Gather(const float* x, int64_t image, int64_t count, float* rows) const {
    constexpr int64_t kChunk = 16 * 1024;  // elements; about 10 us
    const int64_t pixels = sizes.output_pixels;
    ParallelForRange(count, kChunk / (pixels * depth + 1) + 1, [&](int64_t begin, int64_t end) {
      WindowTaps taps(sizes.axes);
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        const std::vector<WindowTap>& covered = taps.At(pixel);
        const bool part = static_cast<int64_t>(covered.size()) < sizes.kernel;
        for (int64_t n = begin; n < end; ++n) {
          const float* from = x + n * image;
          float* to = rows + (n * pixels + pixel) * depth;
          if (part) std::fill_n(to, depth, 0.f);
          for (int64_t c = 0; c < sizes.channels; ++c) {
            for (const WindowTap& tap : covered) to[tap.kernel] = from[tap.input];
            from += sizes.input_pixels;
            to += sizes.kernel;
          }
        }
      }
    });
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_IM2COL_HPP_

// WindowRuns and ByteConvolution: all loops and both ways to sum, against sums one by one.
#include "opkit/ops/quantized/byte_convolution.hpp"

#include <doctest/doctest.h>

#include <random>

namespace byte_convolution_test {
using namespace opkit;

namespace {

struct Case {
  int64_t batch, groups, channels, outputs;  // channels and outputs of a group
  int64_t height, width, kernel, stride, dilation, pad;
};

ConvSizes SizesOf(const Case& c) {
  ConvSizes sizes;
  sizes.batch = c.batch;
  sizes.channels = c.channels;
  sizes.outputs = c.outputs;
  for (const int64_t extent : {c.height, c.width}) {
    WindowAxis axis;
    axis.input = extent;
    axis.kernel = c.kernel;
    axis.stride = c.stride;
    axis.dilation = c.dilation;
    axis.pad_begin = axis.pad_end = c.pad;
    axis.output = (extent + 2 * c.pad - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
    sizes.axes.push_back(axis);
    sizes.input_pixels *= axis.input;
    sizes.output_pixels *= axis.output;
    sizes.kernel *= axis.kernel;
  }
  return sizes;
}
int32_t Value(uint8_t byte, bool is_signed) {
  return is_signed ? static_cast<int8_t>(byte) : int32_t{byte};
}

void CheckConvolution(const Case& c, bool x_signed, bool w_signed) {
  INFO(c.groups, " groups of ", c.channels, " channels and ", c.outputs, " outputs, ", c.height,
       "x", c.width, ", kernel ", c.kernel, ", stride ", c.stride, ", pad ", c.pad, ", signed ",
       x_signed, w_signed);
  const ConvSizes sizes = SizesOf(c);
  const int64_t all = c.groups * c.outputs, depth = c.channels * sizes.kernel;
  std::mt19937 engine(5);
  std::vector<uint8_t> x(static_cast<size_t>(c.batch * c.groups * c.channels * sizes.input_pixels)),
      w(static_cast<size_t>(all * depth));
  for (uint8_t& byte : x) byte = static_cast<uint8_t>(engine());
  for (uint8_t& byte : w) byte = static_cast<uint8_t>(engine());
  const int32_t x_zero = x_signed ? -3 : 130;
  std::vector<int32_t> w_zeros;
  for (int64_t i = 0; i < all; ++i) w_zeros.push_back(static_cast<int32_t>(i % 5 + 1));
  std::vector<int32_t> bias, want;
  for (int64_t i = 0; i < all; ++i) bias.push_back(static_cast<int32_t>(i * 1000 - 300));
  for (int64_t plane = 0; plane < c.batch * all; ++plane)
    for (int64_t oy = 0; oy < sizes.axes[0].output; ++oy)
      for (int64_t ox = 0; ox < sizes.axes[1].output; ++ox) {
        int32_t sum = bias[static_cast<size_t>(plane % all)];
        for (int64_t channel = 0; channel < c.channels; ++channel)
          for (int64_t ky = 0; ky < c.kernel; ++ky)
            for (int64_t kx = 0; kx < c.kernel; ++kx) {
              const int64_t y = oy * c.stride + ky * c.dilation - c.pad;
              const int64_t at = ox * c.stride + kx * c.dilation - c.pad;
              if (y < 0 || y >= c.height || at < 0 || at >= c.width) continue;
              const int64_t image = plane / c.outputs * c.channels + channel;
              const int64_t tap = (channel * c.kernel + ky) * c.kernel + kx;
              sum +=
                  (Value(x[static_cast<size_t>((image * c.height + y) * c.width + at)], x_signed) -
                   x_zero) *
                  (Value(w[static_cast<size_t>(plane % all * depth + tap)], w_signed) -
                   w_zeros[static_cast<size_t>(plane % all)]);
            }
        want.push_back(sum);
      }
  detail::ConvWindows windows;
  windows.Set(sizes);
  detail::PackedRows packed;
  detail::ByteConvolution::Pack(sizes, windows, w.data(), all, w_signed, packed);
  std::vector<uint32_t> numbers;
  const detail::ByteConvolution convolution{
      sizes,    windows,  packed,      x.data(), c.groups, x_zero, {w_zeros.data(), 1},
      x_signed, w_signed, bias.data(), numbers};
  for (const detail::IntegerLoops& loops : detail::AllIntegerLoops()) {
    std::vector<int32_t> found(want.size(), -1);
    convolution.Run(
        [&](const detail::ConvSums& part) {
          part.ForRuns([&](int64_t plane, const detail::PixelRun& run, int64_t at) {
            for (int64_t j = 0; j < run.count; ++j)
              found[static_cast<size_t>(plane * sizes.output_pixels + run.pixel + j)] =
                  part.sums[at + j];
          });
        },
        loops);
    CHECK(found == want);
  }
}

TEST_CASE("sums of all shapes, for all signs") {
  constexpr Case kCases[] = {
      {1, 1, 3, 7, 9, 11, 3, 1, 1, 1},    // more than one panel, rows of several runs
      {2, 1, 5, 3, 8, 8, 1, 1, 1, 0},     // one run for a panel
      {1, 2, 2, 4, 12, 13, 3, 2, 1, 1},   // every second pixel
      {1, 1, 1, 13, 7, 7, 3, 1, 2, 2},    // dilation
      {2, 6, 1, 1, 9, 10, 5, 1, 1, 2},    // depthwise
      {1, 3, 2, 2, 9, 10, 3, 2, 1, 0},    // two outputs in each group
      {1, 1, 4, 5, 1, 5, 1, 1, 1, 0},     // one row
      {1, 1, 2, 3, 70, 1, 1, 1, 1, 0},    // one column
      {1, 1, 1, 3, 2, 2, 5, 1, 1, 3},     // windows in the pads alone
      {1, 20, 1, 1, 40, 45, 3, 1, 1, 1},  // many panels of each channel
      {1, 2, 1, 1, 3, 53, 5, 2, 1, 3},    // rows that are split in two
      {1, 1, 4, 2, 5, 37, 1, 2, 1, 0},    // every second pixel alone
      {1, 1, 5, 1, 4, 18, 3, 2, 1, 1},    // the same for several channels
      {1, 1, 1, 2, 5, 5, 2, 1, 9, 9},     // a dilation above the image's extent
      {1, 1, 3, 2, 11, 6, 1, 3, 1, 0},    // every third pixel
      {2, 17, 1, 1, 8, 8, 3, 2, 1, 1},    // more groups than threads
      {1, 16, 5, 2, 6, 7, 3, 1, 1, 1},    // groups of several channels
      {1, 1, 8, 100, 5, 6, 3, 1, 1, 0},   // more kernels than a task has
  };
  for (const Case& c : kCases)
    for (const bool x_signed : {false, true})
      for (const bool w_signed : {false, true}) CheckConvolution(c, x_signed, w_signed);
}

}  // namespace
}  // namespace byte_convolution_test

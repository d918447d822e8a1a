// WindowRuns and ByteConvolution: convolutions of bytes, with sums in int32, for ConvInteger and
// QLinearConv. The pixels under the kernels are gathered for 64 output pixels at a time, in the
// order of PackedColumns' panels, and multiplied by all kernels while they lie in the cache.
#ifndef OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_
#define OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

#include <span>

#include "opkit/ops/nn/conv.hpp"
#include "opkit/ops/quantized/integer_product.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Neighbouring output pixels, the first one `to` of a panel, whose windows read input pixels of
// equal distance at one element of the kernel.
struct PixelRun {
  int64_t to, count, from, step;
};

// The runs of each panel of 64 output pixels, for each element of the kernel. Pads are left out.
class WindowRuns {
 public:
  static constexpr int64_t kPixels = PackedColumns::kColumns;

  void Set(const ConvSizes& sizes) {
    kernel_ = sizes.kernel;
    runs_.clear();
    first_.assign(1, 0);
    WindowTaps taps(sizes.axes);
    std::vector<std::vector<PixelRun>> of_panel(Index(kernel_));
    for (int64_t begin = 0; begin < sizes.output_pixels; begin += kPixels) {
      for (auto& runs : of_panel) runs.clear();
      const int64_t count = (std::min)(kPixels, sizes.output_pixels - begin);
      for (int64_t pixel = 0; pixel < count; ++pixel)
        for (const WindowTap& tap : taps.At(begin + pixel))
          Add(of_panel[Index(tap.kernel)], pixel, tap.input);
      for (const auto& runs : of_panel) {
        runs_.insert(runs_.end(), runs.begin(), runs.end());
        first_.push_back(runs_.size());
      }
    }
  }
  std::span<const PixelRun> At(int64_t panel, int64_t tap) const {
    const size_t at = Index(panel * kernel_ + tap);
    return {runs_.data() + first_[at], first_[at + 1] - first_[at]};
  }

 private:
  static void Add(std::vector<PixelRun>& runs, int64_t to, int64_t from) {
    if (!runs.empty() && runs.back().to + runs.back().count == to) {
      PixelRun& last = runs.back();
      if (last.count == 1) last.step = from - last.from;
      if (last.from + last.count * last.step == from) {
        ++last.count;
        return;
      }
    }
    runs.push_back({to, 1, from, 1});
  }

  int64_t kernel_ = 1;
  std::vector<PixelRun> runs_;
  std::vector<size_t> first_;  // by panel, then by element of the kernel
};

// A convolution of bytes. Images are [batch, groups * channels, pixels], kernels [groups * outputs,
// channels, kernel], as `sizes` says. Zero points are numbers of the types of both.
struct ByteConvolution {
  const ConvSizes& sizes;
  const WindowRuns& runs;
  const PackedRows& packed;  // the kernels, a row for each output channel
  const uint8_t *images, *kernels;
  int64_t groups;
  int32_t x_zero;
  ZeroPointList w_zeros;  // by output channel
  bool x_signed, w_signed;

  static constexpr int64_t kPixels = WindowRuns::kPixels;
  // Groups with fewer outputs, such as those of depthwise convolutions, are not worth a panel.
  static constexpr int64_t kOutputsOfPanel = 3;

  // Calls store(plane, pixel, count, sums) for pieces of at most 64 output pixels of a plane, on
  // several threads. Planes are counted over all images. Sums wrap around like int32.
  template <class F>
  void Run(F&& store, DotLoop loop) const {
    const int64_t panels = (sizes.output_pixels + kPixels - 1) / kPixels;
    const int64_t depth = sizes.channels * sizes.kernel;
    const int64_t work = sizes.outputs * depth * kPixels + 1;
    constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
    ParallelForRange(
        sizes.batch * groups * panels, kWork / work + 1, [&](int64_t begin, int64_t end) {
          std::vector<uint32_t> bytes(
              sizes.outputs < kOutputsOfPanel ? 0 : Index(PackedRows::Groups(depth) * kPixels));
          for (int64_t task = begin; task < end; ++task) {
            const int64_t part = task / panels, panel = task % panels;
            if (sizes.outputs >= kOutputsOfPanel)
              MultiplyPanel(part, panel, bytes.data(), store, loop);
            else if (x_signed)
              SumDirectly<int8_t>(part, panel, store);
            else
              SumDirectly<uint8_t>(part, panel, store);
          }
        });
  }

 private:
  // `part` counts the groups of all images.
  const uint8_t* Image(int64_t part) const {
    return images + part * sizes.channels * sizes.input_pixels;
  }
  int64_t PixelsOf(int64_t panel) const {
    return (std::min)(kPixels, sizes.output_pixels - panel * kPixels);
  }

  template <class F>
  void MultiplyPanel(int64_t part, int64_t panel, uint32_t* bytes, F& store, DotLoop loop) const {
    constexpr int64_t kRows = IntegerProduct::kRows;
    alignas(64) uint32_t sums[kRows * kPixels], of_columns[kPixels] = {}, zeros[kPixels];
    Gather(Image(part), panel, bytes, of_columns);
    // As in IntegerProduct: bytes of the kernels become signed, bytes of the images unsigned.
    const uint32_t w_offset = w_signed ? 0 : 128;
    std::fill_n(zeros, kPixels, static_cast<uint32_t>(x_zero) + (x_signed ? 128 : 0));
    const auto depth = static_cast<uint32_t>(sizes.channels * sizes.kernel);
    const int64_t first = part % groups * sizes.outputs, pixels = PixelsOf(panel);
    for (int64_t row = 0; row < sizes.outputs; row += kRows) {
      const int64_t count = (std::min)(kRows, sizes.outputs - row);
      uint32_t zw[kRows] = {}, of_row[kRows] = {};
      for (int64_t r = 0; r < count; ++r) {
        zw[r] = static_cast<uint32_t>(w_zeros.At(first + row + r)) - w_offset;
        of_row[r] = depth * zw[r] - static_cast<uint32_t>(packed.sum(first + row + r));
      }
      loop({packed.row(first + row), packed.width(), packed.width() / 4,
            reinterpret_cast<const uint8_t*>(bytes), sums, of_row, zw, zeros, of_columns},
           count);
      for (int64_t r = 0; r < count; ++r)
        store(part * sizes.outputs + row + r, panel * kPixels, pixels,
              reinterpret_cast<const int32_t*>(sums + r * kPixels));
    }
  }
  // Writes the bytes of a panel, four rows in one number for each pixel, and their sums.
  void Gather(const uint8_t* image, int64_t panel, uint32_t* to, uint32_t* of_columns) const {
    const int64_t depth = sizes.channels * sizes.kernel;
    const uint32_t flip = x_signed ? 0x80808080 : 0;
    int64_t channel = 0, tap = 0;
    for (int64_t k = 0; k < depth; k += 4, to += kPixels) {
      uint8_t rows[4][kPixels] = {};
      const int64_t present = (std::min)(int64_t{4}, depth - k);
      for (int64_t i = 0; i < present; ++i) {
        CopyRow(image + channel * sizes.input_pixels, runs.At(panel, tap), rows[i]);
        if (++tap == sizes.kernel) tap = 0, ++channel;
      }
      const uint32_t flipped = present == 4 ? flip : flip & ((1u << (8 * present)) - 1);
      InterleaveFour(rows, flipped, to, of_columns);
    }
  }
  void CopyRow(const uint8_t* from, std::span<const PixelRun> found, uint8_t* row) const {
    if (found.size() == 1 && found[0].count == kPixels && found[0].step == 1) {
      std::memcpy(row, from + found[0].from, kPixels);
      return;
    }
    // Pads are the zero point, so they add nothing to the sums.
    std::memset(row, static_cast<uint8_t>(x_zero), kPixels);
    for (const PixelRun& run : found) {
      if (run.step == 1) {
        std::memcpy(row + run.to, from + run.from, static_cast<size_t>(run.count));
        continue;
      }
      for (int64_t i = 0; i < run.count; ++i) row[run.to + i] = from[run.from + i * run.step];
    }
  }

  template <class X, class F>
  void SumDirectly(int64_t part, int64_t panel, F& store) const {
    const int64_t depth = sizes.channels * sizes.kernel;
    for (int64_t output = 0; output < sizes.outputs; ++output) {
      const int64_t channel = part % groups * sizes.outputs + output;
      const uint8_t* kernel = kernels + channel * depth;
      uint32_t sums[kPixels] = {};
      for (int64_t k = 0; k < depth; ++k) {
        const int32_t number = w_signed ? static_cast<int8_t>(kernel[k]) : int32_t{kernel[k]};
        const int32_t weight = number - w_zeros.At(channel), zero = x_zero;
        const auto* from =
            reinterpret_cast<const X*>(Image(part)) + k / sizes.kernel * sizes.input_pixels;
        for (const PixelRun& run : runs.At(panel, k % sizes.kernel)) {
          const X* x = from + run.from;
          uint32_t* sum = sums + run.to;
          if (run.step == 1)
            for (int64_t i = 0; i < run.count; ++i)
              sum[i] += static_cast<uint32_t>(weight * (x[i] - zero));
          else
            for (int64_t i = 0; i < run.count; ++i)
              sum[i] += static_cast<uint32_t>(weight * (x[i * run.step] - zero));
        }
      }
      store(part * sizes.outputs + output, panel * kPixels, PixelsOf(panel),
            reinterpret_cast<const int32_t*>(sums));
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

// PaddedImages and ByteConvolution: convolutions of bytes, with sums in int32, for ConvInteger and
// QLinearConv. The images are copied with their pads around them, so that the input pixels of
// neighbouring windows are neighbours for each element of the kernel. The pixels under the kernels
// are gathered for 64 output pixels at a time, in the order of IntegerLoops' panels, and multiplied
// by all kernels while they lie in the cache.
#ifndef OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_
#define OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

#include <span>

#include "opkit/ops/nn/conv.hpp"
#include "opkit/ops/quantized/integer_product.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Neighbouring output pixels, the first one `to` of a panel, whose windows read neighbouring bytes.
struct PixelRun {
  int64_t to, from;
};

// The channels of images with their pads. Along each axis a channel is divided into `parts` of
// every stride-th pixel, so that strides are 1 in each part. Element k of the kernel reads from
// Tap(k) on.
class PaddedImages {
 public:
  static constexpr int64_t kPixels = kPanelColumns;

  void Set(const ConvSizes& sizes) {
    axes_.clear();
    size_ = 1;
    is_direct_ = true;
    for (const WindowAxis& axis : sizes.axes) {
      axes_.push_back(Axis(axis));
      size_ *= axes_.back().parts * axes_.back().extent;
      is_direct_ = is_direct_ && axes_.back().is_same();
    }
    int64_t input = 1, pixels = 1;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->input_step = input;
      axis->step = pixels;
      input *= axis->window.input;
      pixels *= axis->extent;
    }
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->part_step = pixels;
      pixels *= axis->parts;
    }
    taps_.assign(1, 0);
    for (const Axis& axis : axes_) {
      std::vector<int64_t> taps;
      for (const int64_t outer : taps_)
        for (int64_t k = 0; k < axis.window.kernel; ++k) taps.push_back(outer + axis.Tap(k));
      taps_ = std::move(taps);
    }
    SetRuns(sizes.output_pixels);
    bytes_.clear();
  }
  // Copies the channels of all images, unless they have neither pads nor strides.
  void Fill(const uint8_t* images, int64_t channels, uint8_t zero) {
    const int64_t input = axes_.front().input_step * axes_.front().window.input;
    if (is_direct_) {
      begin_ = images;
      end_ = images + channels * input;
      return;
    }
    // Pads stay as they are.
    if (bytes_.empty() || zero != zero_) bytes_.assign(Index(channels * size_), zero);
    zero_ = zero;
    begin_ = bytes_.data();
    end_ = begin_ + bytes_.size();
    constexpr int64_t kWork = 1 << 16;  // bytes that are worth a thread
    ParallelForRange(channels, kWork / size_ + 1, [&](int64_t begin, int64_t end) {
      for (int64_t channel = begin; channel < end; ++channel)
        Copy(0, images + channel * input, bytes_.data() + channel * size_);
    });
  }
  const uint8_t* channel(int64_t channel) const { return begin_ + channel * size_; }
  const uint8_t* end() const { return end_; }
  int64_t size() const { return size_; }
  int64_t tap(int64_t k) const { return taps_[Index(k)]; }
  std::span<const PixelRun> runs(int64_t panel) const {
    return {runs_.data() + first_[Index(panel)], first_[Index(panel + 1)] - first_[Index(panel)]};
  }

 private:
  struct Axis {
    explicit Axis(const WindowAxis& axis) : window(axis) {
      // A part for each remainder of the stride, or one for each element of the kernel if this is
      // less.
      const int64_t reach = (axis.kernel - 1) * axis.dilation / axis.stride;
      by_tap = axis.kernel * axis.output <= axis.stride * (axis.output + reach);
      parts = by_tap ? axis.kernel : axis.stride;
      extent = by_tap ? axis.output : axis.output + reach;
    }
    int64_t Tap(int64_t k) const {
      const int64_t at = k * window.dilation;
      return by_tap ? k * part_step : at % window.stride * part_step + at / window.stride * step;
    }
    // Returns the input element that element 0 of a part is. It may be in a pad.
    int64_t Start(int64_t part) const {
      return part * (by_tap ? window.dilation : 1) - window.pad_begin;
    }
    // True if the only part is the input.
    bool is_same() const {
      return parts == 1 && extent == window.input && window.pad_begin == 0 &&
             (window.stride == 1 || extent == 1);
    }

    WindowAxis window;
    bool by_tap;
    int64_t parts, extent;  // of a part
    int64_t input_step = 1, step = 1, part_step = 1;
  };

  void SetRuns(int64_t pixels) {
    runs_.clear();
    first_.assign(1, 0);
    std::vector<int64_t> at(axes_.size(), 0);
    for (int64_t pixel = 0, from = 0; pixel < pixels; ++pixel) {
      const int64_t to = pixel % kPixels;
      if (to == 0 && pixel > 0) first_.push_back(runs_.size());
      if (to == 0 || runs_.back().from - runs_.back().to != from - to) runs_.push_back({to, from});
      for (size_t a = axes_.size(); a-- > 0;) {
        from += axes_[a].step;
        if (++at[a] < axes_[a].window.output) break;
        from -= at[a] * axes_[a].step;
        at[a] = 0;
      }
    }
    first_.push_back(runs_.size());
  }
  void Copy(size_t a, const uint8_t* from, uint8_t* to) const {
    const Axis& axis = axes_[a];
    const int64_t stride = axis.window.stride;
    for (int64_t part = 0; part < axis.parts; ++part, to += axis.part_step) {
      const int64_t start = axis.Start(part);
      const int64_t first = start < 0 ? (-start + stride - 1) / stride : 0;
      const int64_t room = axis.window.input - start;
      const int64_t last = room <= 0 ? 0 : (std::min)(axis.extent, (room - 1) / stride + 1);
      if (first >= last) continue;
      if (a + 1 == axes_.size()) {
        CopyRow(from + start + first * stride, last - first, stride, to + first);
        continue;
      }
      for (int64_t i = first; i < last; ++i)
        Copy(a + 1, from + (start + i * stride) * axis.input_step, to + i * axis.step);
    }
  }
  static void CopyRow(const uint8_t* from, int64_t count, int64_t stride, uint8_t* to) {
    if (stride == 1)
      std::memcpy(to, from, static_cast<size_t>(count));
    else if (stride == 2)
      for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
    else
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }

  std::vector<Axis> axes_;
  int64_t size_ = 1;  // of a channel
  bool is_direct_ = false;
  std::vector<int64_t> taps_;   // by element of the kernel
  std::vector<PixelRun> runs_;  // of all panels
  std::vector<size_t> first_;   // by panel
  std::vector<uint8_t> bytes_;
  uint8_t zero_ = 0;
  const uint8_t *begin_ = nullptr, *end_ = nullptr;
};

// A convolution of bytes. Images are [batch, groups * channels, pixels], kernels [groups * outputs,
// channels, kernel], as `sizes` says. Zero points are numbers of the types of both.
struct ByteConvolution {
  const ConvSizes& sizes;
  PaddedImages& padded;      // set for `sizes`
  const PackedRows& packed;  // the kernels, a row for each output channel
  const uint8_t* images;
  int64_t groups;
  int32_t x_zero;
  ZeroPointList w_zeros;  // by output channel
  bool x_signed, w_signed;

  static constexpr int64_t kPixels = kPanelColumns;

  // Calls store(plane, pixel, count, sums) for pieces of at most 64 output pixels of a plane, on
  // several threads. Planes are counted over all images. `sums` has 64 elements, which wrap around
  // like int32.
  template <class F>
  void Run(F&& store, const IntegerLoops& loops) const {
    padded.Fill(images, sizes.batch * groups * sizes.channels, static_cast<uint8_t>(x_zero));
    const int64_t panels = (sizes.output_pixels + kPixels - 1) / kPixels;
    const int64_t depth = sizes.channels * sizes.kernel;
    const int64_t work = (sizes.outputs + 3) * depth * kPixels + 1;
    constexpr int64_t kWork = 1 << 18;  // multiplications that are worth a thread
    ParallelForRange(sizes.batch * groups * panels, kWork / work + 1,
                     [&](int64_t begin, int64_t end) {
                       Panel panel(*this);
                       for (int64_t task = begin; task < end; ++task)
                         panel.Multiply(task / panels, task % panels, store, loops);
                     });
  }

 private:
  // The numbers that a thread needs for a panel.
  struct Panel {
    explicit Panel(const ByteConvolution& all)
        : conv(all),
          bytes(Index(PackedRows::Groups(all.sizes.channels * all.sizes.kernel) * kPixels)) {
      // As in IntegerProduct: bytes of the kernels become signed, bytes of the images unsigned.
      std::fill_n(zeros, kPixels, static_cast<uint32_t>(all.x_zero) + (all.x_signed ? 128 : 0));
      std::memset(absent, all.x_signed ? 0x80 : 0, sizeof(absent));
    }

    // `part` counts the groups of all images.
    template <class F>
    void Multiply(int64_t part, int64_t panel, F& store, const IntegerLoops& loops) {
      const ConvSizes& sizes = conv.sizes;
      const int64_t pixels = (std::min)(kPixels, sizes.output_pixels - panel * kPixels);
      const uint32_t w_offset = conv.w_signed ? 0 : 128;
      const auto depth = static_cast<uint32_t>(sizes.channels * sizes.kernel);
      const int64_t first = part % conv.groups * sizes.outputs;
      Gather(conv.padded.channel(part * sizes.channels), conv.padded.runs(panel), loops);
      for (int64_t row = 0; row < sizes.outputs; row += kDotRows) {
        const int64_t count = (std::min)(kDotRows, sizes.outputs - row);
        uint32_t zw[kDotRows], of_row[kDotRows];
        for (int64_t r = 0; r < count; ++r) {
          zw[r] = static_cast<uint32_t>(conv.w_zeros.At(first + row + r)) - w_offset;
          of_row[r] = depth * zw[r] - static_cast<uint32_t>(conv.packed.sum(first + row + r));
        }
        loops.dot({conv.packed.row(first + row), conv.packed.width(), conv.packed.width() / 4,
                   reinterpret_cast<const uint8_t*>(bytes.data()), sums, of_row, zw, zeros,
                   of_columns, (pixels + 15) / 16},
                  count);
        for (int64_t r = 0; r < count; ++r)
          store(part * sizes.outputs + row + r, panel * kPixels, pixels,
                reinterpret_cast<const int32_t*>(sums + r * kPixels));
      }
    }
    // Writes the bytes of a panel, four rows in one number for each pixel, and their sums.
    void Gather(const uint8_t* image, std::span<const PixelRun> runs, const IntegerLoops& loops) {
      const PaddedImages& padded = conv.padded;
      const int64_t kernel = conv.sizes.kernel, depth = conv.sizes.channels * kernel;
      const uint8_t* const end = padded.end();
      std::memset(of_columns, 0, sizeof(of_columns));
      RowsOfPanel rows{{}, conv.x_signed ? 0x80808080 : 0, bytes.data(), of_columns};
      int64_t tap = 0;
      for (int64_t k = 0; k < depth; k += 4, rows.to += kPixels) {
        for (int64_t i = 0; i < 4; ++i) {
          if (k + i >= depth) {
            rows.rows[i] = absent;
            continue;
          }
          const uint8_t* from = image + padded.tap(tap);
          if (runs.size() == 1 && end - from >= runs[0].from + kPixels) {
            rows.rows[i] = from + runs[0].from;
          } else {
            CopyRuns(from, end, runs, copied[i]);
            rows.rows[i] = copied[i];
          }
          if (++tap == kernel) tap = 0, image += padded.size();
        }
        loops.interleave(rows);
      }
    }
    // Copies 64 bytes of each run; the next run overwrites those behind it.
    static void CopyRuns(const uint8_t* from, const uint8_t* end, std::span<const PixelRun> runs,
                         uint8_t* row) {
      for (const PixelRun& run : runs) {
        const int64_t room = end - from - run.from;
        if (room >= kPixels)
          std::memcpy(row + run.to, from + run.from, kPixels);
        else
          std::memcpy(row + run.to, from + run.from, static_cast<size_t>(room));
      }
    }

    const ByteConvolution& conv;
    std::vector<uint32_t> bytes;
    alignas(64) uint32_t sums[kDotRows * kPixels] = {};
    alignas(64) uint32_t of_columns[kPixels], zeros[kPixels];
    uint8_t absent[kPixels], copied[4][2 * kPixels] = {};
  };
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

// ConvWindows: where the windows of a convolution of bytes lie in an image. Four channels of an
// image, or four neighbouring pixels of a channel, become one number for each pixel. The numbers
// that neighbouring windows read are neighbours for each element of the kernel, so that the loops
// of ByteConvolution multiply them where they lie.
#ifndef OPKIT_OPS_QUANTIZED_CONV_WINDOWS_HPP_
#define OPKIT_OPS_QUANTIZED_CONV_WINDOWS_HPP_

#include <span>

#include "opkit/ops/nn/conv.hpp"
#include "opkit/ops/quantized/integer_loops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Copies bytes, a few without a call.
inline void CopyBytes(const uint8_t* from, int64_t count, uint8_t* to) {
  if (count > 128) {
    std::memcpy(to, from, static_cast<size_t>(count));
    return;
  }
  const auto copy = [&]<int64_t kBytes>(std::integral_constant<int64_t, kBytes>) {
    // The last bytes may be copied twice.
    int64_t i = 0;
    for (; i + kBytes <= count; i += kBytes) std::memcpy(to + i, from + i, kBytes);
    if (i < count) std::memcpy(to + count - kBytes, from + count - kBytes, kBytes);
  };
  if (count >= 16)
    copy(std::integral_constant<int64_t, 16>());
  else if (count >= 8)
    copy(std::integral_constant<int64_t, 8>());
  else if (count >= 4)
    copy(std::integral_constant<int64_t, 4>());
  else
    copy(std::integral_constant<int64_t, 1>());
}

// Output pixels [pixel, pixel + count), whose sums begin with number `lane` of a panel's 64 sums.
struct PixelRun {
  int64_t lane, pixel, count;
};

// At most four vectors of 16 windows each. The windows between two rows of output pixels have no
// pixel.
struct PixelPanel {
  int64_t vectors;
  size_t first_run, last_run;
};

// Where the windows of a convolution lie in an image whose channels have their pads around them.
// Along each axis a channel is divided into parts of every stride-th pixel, so that strides are 1
// in each part.
class ConvWindows {
 public:
  void Set(const ConvSizes& sizes) {
    axes_.clear();
    channels_ = sizes.channels;
    // Four channels or four pixels make a number, whichever makes fewer products.
    const int64_t inner = sizes.axes.back().kernel, outer = sizes.kernel / inner;
    by_channel_ = (channels_ + 3) / 4 * sizes.kernel <= channels_ * ((inner + 3) / 4) * outer;
    for (const WindowAxis& axis : sizes.axes)
      axes_.emplace_back(axis, by_channel_ || axes_.size() + 1 < sizes.axes.size());
    bool is_whole = true;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->has_whole_rows = is_whole && axis->window.stride == 1;
      is_whole = is_whole && axis->is_same();
    }
    is_direct_ = by_channel_ && is_whole;
    input_size_ = size_ = 1;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->input_step = input_size_;
      axis->step = size_;
      input_size_ *= axis->window.input;
      size_ *= axis->extent;
    }
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      axis->part_step = size_;
      size_ *= static_cast<int64_t>(axis->parts.size());
    }
    SetKernel(sizes.kernel);
    SetOutside();
    SetPairs();
    SetPanels(sizes.output_pixels);
  }

  // Writes the bytes of a kernel in the order of the numbers, `absent` where they have none.
  void Reorder(const uint8_t* kernel, uint8_t absent, uint8_t* to) const {
    for (size_t i = 0; i < order_.size(); ++i) to[i] = order_[i] < 0 ? absent : kernel[order_[i]];
  }
  int64_t width() const { return static_cast<int64_t>(order_.size()); }
  const int64_t* offsets() const { return offsets_.data(); }
  std::span<const PixelPanel> panels() const { return panels_; }
  const PixelRun* runs() const { return runs_.data(); }
  // Where window 0 of each vector of a panel begins, in bytes.
  const int64_t* from(int64_t panel) const { return from_.data() + panel * 4; }

  // The bytes and numbers that Fill needs: `padded` for each thread, full of the zero point, and
  // `numbers` for the channels of a group.
  size_t padded_size() const {
    return Index(by_channel_ ? 4 * Stride() : Before() + Stride() + size_ + kPanelColumns);
  }
  size_t numbers_size() const { return Index(units() * Streams() * Stride() + kPanelColumns); }
  // The channels of a group are divided into units, which several threads can fill.
  int64_t units() const { return by_channel_ ? (channels_ + 3) / 4 : channels_; }
  int64_t unit_size() const { return 4 * size_; }

  // Writes the numbers of a unit. The bits `flip` of each number change.
  void Fill(const uint8_t* images, int64_t unit, uint32_t flip, const IntegerLoops& loops,
            uint8_t* padded, uint32_t* numbers) const {
    numbers += unit * Streams() * Stride();
    if (!by_channel_) return FillByTap(images, unit, flip, loops, padded, numbers);
    RowsOfPanel rows{{}, flip, numbers};
    images += 4 * unit * input_size_;
    for (int64_t i = 0; i < 4; ++i) {
      const bool present = 4 * unit + i < channels_;  // the kernels have zeros for other channels
      if (present && !is_direct_) Copy(0, images + i * input_size_, padded + i * Stride());
      const int64_t channel = present ? i : 0;
      rows.rows[i] = is_direct_ ? images + channel * size_ : padded + channel * Stride();
    }
    uint8_t tails[4][kPanelColumns];
    for (int64_t p = 0; p < size_; p += kPanelColumns) {
      if (is_direct_ && size_ - p < kPanelColumns)
        for (int64_t i = 0; i < 4; ++i) {
          std::memset(tails[i], 0, kPanelColumns);
          std::memcpy(tails[i], rows.rows[i], static_cast<size_t>(size_ - p));
          rows.rows[i] = tails[i];
        }
      loops.interleave(rows);
      for (const uint8_t*& row : rows.rows) row += kPanelColumns;
      rows.to += kPanelColumns;
    }
  }

 private:
  // The pixels of the input in a part of an axis: element i of the part, for i in [first, last), is
  // input element start + i * stride. Other elements are pads.
  struct Part {
    int64_t start, first, last;
  };
  struct Axis {
    // Without pads there is a part for each remainder of the stride, which may be read past its
    // ends. With pads there is one for each element of the kernel if these have fewer pixels.
    Axis(const WindowAxis& axis, bool with_pads) : window(axis), has_pads(with_pads) {
      const int64_t stride = axis.stride, reach = (axis.kernel - 1) * axis.dilation / stride;
      by_tap = has_pads && axis.kernel * axis.output <= stride * (axis.output + reach);
      extent = by_tap     ? axis.output
               : has_pads ? axis.output + reach
                          : (std::max)(axis.output, (axis.input - 1) / stride + 1);
      for (int64_t part = 0; part < (by_tap ? axis.kernel : stride); ++part) {
        const int64_t start = part * (by_tap ? axis.dilation : 1) - (has_pads ? axis.pad_begin : 0);
        const int64_t first = start < 0 ? (-start + stride - 1) / stride : 0;
        const int64_t room = axis.input - start;
        const int64_t last = room <= 0 ? 0 : (std::min)(extent, (room - 1) / stride + 1);
        parts.push_back({start, first, (std::max)(first, last)});
      }
    }
    // Returns the part that element k of the windows reads, and its element in window 0.
    std::pair<int64_t, int64_t> ElementOf(int64_t k) const {
      if (by_tap) return {k, 0};
      const int64_t stride = window.stride,
                    at = k * window.dilation - (has_pads ? 0 : window.pad_begin);
      const int64_t element = at >= 0 ? at / stride : -((-at + stride - 1) / stride);
      return {at - element * stride, element};
    }
    // Returns where element k of window 0 lies; 0 if no window of the axis has it in the axis.
    int64_t Tap(int64_t k) const {
      const auto [part, element] = ElementOf(k);
      if (element <= -extent || element >= extent) return 0;
      return part * part_step + element * step;
    }
    // True if the only part is the input.
    bool is_same() const {
      return parts.size() == 1 && extent == window.input && parts[0].start == 0 &&
             (window.stride == 1 || extent == 1);
    }

    WindowAxis window;
    bool has_pads, by_tap;
    int64_t extent;  // of a part
    std::vector<Part> parts;
    int64_t input_step = 1, step = 1, part_step = 1;
    bool has_whole_rows = false;  // elements that are copied lie next to each other
  };
  // Four pixels of a channel make a number. Rows have no pads in `padded`, so that a channel can be
  // copied as a whole; the bytes of pads are set in the numbers.
  void FillByTap(const uint8_t* images, int64_t unit, uint32_t flip, const IntegerLoops& loops,
                 uint8_t* padded, uint32_t* numbers) const {
    const Axis& last = axes_.back();
    const auto pad = static_cast<uint8_t>(*padded ^ (flip & 0xff));
    padded += Before();
    Copy(0, images + unit * input_size_, padded);
    // Windows begin in the first part of the last axis.
    const int64_t part = last.part_step, all = part * static_cast<int64_t>(last.parts.size());
    for (int64_t group = 0; group < Streams(); ++group, numbers += Stride()) {
      const uint8_t* rows[4];
      for (int64_t i = 0; i < 4; ++i)
        rows[i] = padded + last.Tap((std::min)(group * 4 + i, last.window.kernel - 1));
      for (int64_t begin = 0; begin < size_; begin += all) {
        for (int64_t p = begin; p < begin + part; p += kPanelColumns)
          loops.interleave(
              {{rows[0] + p, rows[1] + p, rows[2] + p, rows[3] + p}, flip, numbers + p});
        auto* bytes = reinterpret_cast<uint8_t*>(numbers + begin);
        for (const uint8_t* end = bytes + part * 4; bytes != end; bytes += last.extent * 4)
          for (size_t i = outside_of_[Index(group)]; i < outside_of_[Index(group + 1)]; ++i)
            bytes[outside_[i]] = pad;
      }
    }
  }

  // Numbers between those of two units, or of two groups of four pixels. The loops write 64 at a
  // time, from any number of `size_` on.
  int64_t Stride() const { return (size_ / kPanelColumns + 2) * kPanelColumns; }
  int64_t Streams() const { return by_channel_ ? 1 : (axes_.back().window.kernel + 3) / 4; }

  // Pairs of pixels of the last axis, and where their first and second ones are copied to; -1 if
  // the second ones are not copied.
  struct Pairs {
    int64_t from = 0, count = 0, even = 0, odd = 0;
  };
  // Bytes before a channel, which loops read for windows that begin in a pad.
  int64_t Before() const { return axes_.back().extent; }

  // Finds the bytes of a row of numbers that lie in pads of the last axis, by group of four pixels.
  void SetOutside() {
    const Axis& last = axes_.back();
    outside_.clear();
    outside_of_.assign(1, 0);
    if (by_channel_) return;
    for (int64_t k = 0; k < last.window.kernel; ++k) {
      const auto [part, element] = last.ElementOf(k);
      for (int64_t window = 0; window < last.window.output; ++window)
        if (window + element < 0 || window + element >= last.parts[Index(part)].last)
          outside_.push_back(window * 4 + k % 4);
      if (k % 4 == 3 || k + 1 == last.window.kernel) outside_of_.push_back(outside_.size());
    }
  }
  void SetKernel(int64_t kernel) {
    const int64_t inner = axes_.back().window.kernel;
    std::vector<int64_t> taps(1, 0);
    for (size_t a = 0; a < axes_.size() - (by_channel_ ? 0 : 1); ++a) {
      std::vector<int64_t> all;
      for (const int64_t before : taps)
        for (int64_t k = 0; k < axes_[a].window.kernel; ++k)
          all.push_back(before + axes_[a].Tap(k));
      taps = std::move(all);
    }
    offsets_.clear();
    order_.clear();
    for (int64_t stream = 0; stream < units() * Streams(); ++stream)
      for (size_t t = 0; t < taps.size(); ++t) {
        const auto tap = static_cast<int64_t>(t);
        offsets_.push_back((stream * Stride() + taps[t]) * 4);
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t pixel = stream % Streams() * 4 + i, channel = stream * 4 + i;
          if (by_channel_)
            order_.push_back(channel < channels_ ? channel * kernel + tap : -1);
          else
            order_.push_back(pixel < inner ? stream / Streams() * kernel + tap * inner + pixel
                                           : -1);
        }
      }
  }
  void SetPanels(int64_t pixels) {
    runs_.clear();
    panels_.clear();
    from_.clear();
    std::vector<int64_t> at(axes_.size(), 0);
    int64_t first = 0;  // window of the last vector
    for (int64_t pixel = 0, window = 0; pixel < pixels; ++pixel) {
      if (pixel == 0 || window - first >= 16) {
        first = window;
        if (pixel == 0 || panels_.back().vectors == 4) panels_.push_back({0, runs_.size(), 0});
        ++panels_.back().vectors;
        from_.push_back(window * 4);
      }
      PixelPanel& panel = panels_.back();
      const int64_t lane = (panel.vectors - 1) * 16 + window - first;
      if (panel.first_run == runs_.size() || runs_.back().lane + runs_.back().count != lane)
        runs_.push_back({lane, pixel, 0});
      ++runs_.back().count;
      panel.last_run = runs_.size();
      for (size_t a = axes_.size(); a-- > 0;) {
        window += axes_[a].step;
        if (++at[a] < axes_[a].window.output) break;
        window -= at[a] * axes_[a].step;
        at[a] = 0;
      }
    }
  }
  // Finds the pairs of pixels of the last axis whose first one belongs to a part and the second to
  // another part or to none.
  void SetPairs() {
    const Axis& last = axes_.back();
    pairs_ = {};
    if (last.window.stride != 2 || last.parts.size() > 2) return;
    const auto from = [&](size_t i) { return last.parts[i].start + 2 * last.parts[i].first; };
    const auto count = [&](size_t i) { return last.parts[i].last - last.parts[i].first; };
    const auto to = [&](size_t i) {
      return static_cast<int64_t>(i) * last.part_step + last.parts[i].first;
    };
    if (last.parts.size() == 1) {
      pairs_ = {from(0), (std::min)(count(0), (last.window.input - from(0)) / 2), to(0), -1};
      return;
    }
    const size_t even = from(0) < from(1) ? 0 : 1, odd = 1 - even;
    if (from(odd) == from(even) + 1)
      pairs_ = {from(even), (std::min)(count(0), count(1)), to(even), to(odd)};
  }
  // Copies axes a and later ones of a channel, without pads.
  void Copy(size_t a, const uint8_t* from, uint8_t* to) const {
    const Axis& axis = axes_[a];
    const int64_t stride = axis.window.stride;
    if (a + 1 == axes_.size() && pairs_.count > 0) return CopyPairs(from, to);
    for (const Part& part : axis.parts) {
      const int64_t first = part.start + part.first * stride, count = part.last - part.first;
      if (axis.has_whole_rows)
        CopyBytes(from + first * axis.step, count * axis.step, to + part.first * axis.step);
      else if (a + 1 == axes_.size())
        for (int64_t i = 0; i < count; ++i) to[part.first + i] = from[first + i * stride];
      else
        for (int64_t i = 0; i < count; ++i)
          Copy(a + 1, from + (first + i * stride) * axis.input_step,
               to + (part.first + i) * axis.step);
      to += axis.part_step;
    }
  }
  // Copies the last axis to its two parts.
  void CopyPairs(const uint8_t* from, uint8_t* to) const {
    SplitPairs(from + pairs_.from, pairs_.count, to + pairs_.even,
               pairs_.odd < 0 ? nullptr : to + pairs_.odd);
    for (const Part& part : axes_.back().parts) {
      for (int64_t i = part.first + pairs_.count; i < part.last; ++i)
        to[i] = from[part.start + 2 * i];
      to += axes_.back().part_step;
    }
  }
  static void SplitPairs(const uint8_t* from, int64_t count, uint8_t* even, uint8_t* odd) {
    int64_t i = 0;
    const auto split = [&]<int64_t kPairs>(std::integral_constant<int64_t, kPairs>) {
      typedef uint8_t Bytes16 __attribute__((vector_size(16)));
      Bytes16 low, high = {};
      std::memcpy(&low, from + 2 * i, sizeof(low));
      if (kPairs == 16) std::memcpy(&high, from + 2 * i + 16, sizeof(high));
      const Bytes16 first = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                                    20, 22, 24, 26, 28, 30);
      const Bytes16 second = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                                                     21, 23, 25, 27, 29, 31);
      std::memcpy(even + i, &first, kPairs);
      if (odd) std::memcpy(odd + i, &second, kPairs);
      i += kPairs;
    };
    while (i + 16 <= count) split(std::integral_constant<int64_t, 16>());
    if (i + 8 <= count) split(std::integral_constant<int64_t, 8>());
    if (i < count && count >= 8) {
      i = count - 8;  // some pairs are copied twice
      split(std::integral_constant<int64_t, 8>());
    }
    for (; i < count; ++i) {
      even[i] = from[2 * i];
      if (odd) odd[i] = from[2 * i + 1];
    }
  }

  std::vector<Axis> axes_;
  int64_t channels_ = 0;               // of a group
  int64_t input_size_ = 1, size_ = 1;  // of a channel, without and with pads
  bool is_direct_ = false;             // a channel with pads is the channel itself
  bool by_channel_ = true;             // a number has four channels, not four pixels
  std::vector<int64_t> offsets_;       // of numbers, in bytes, by group of four bytes of a kernel
  std::vector<int64_t> order_;  // the element of a kernel, or -1, by byte of the packed kernel
  Pairs pairs_;
  std::vector<int64_t> outside_;    // bytes of a row of numbers
  std::vector<size_t> outside_of_;  // by group of four pixels
  std::vector<PixelPanel> panels_;  // all but the last have four vectors
  std::vector<int64_t> from_;       // by vector
  std::vector<PixelRun> runs_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_CONV_WINDOWS_HPP_

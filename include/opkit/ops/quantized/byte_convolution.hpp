// ByteConvolution: convolutions of bytes, with sums in int32, for ConvInteger and QLinearConv.
#ifndef OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_
#define OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

#include <span>

#include "opkit/ops/quantized/conv_windows.hpp"
#include "opkit/ops/quantized/integer_product.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The sums of some panels, 64 for each of `rows` planes from `plane` on. Planes are counted over
// all images; `channel` is the output channel of the first one.
struct ConvSums {
  int64_t plane, channel, rows;
  std::span<const PixelPanel> panels;
  const PixelRun* runs;
  const int32_t* sums;

  // The most rows of 64 sums, over all panels.
  static constexpr int64_t kMost = kDotRows;

  // Calls f(plane, run, at) for all runs; `at` is the number of the first sum.
  template <class F>
  void ForRuns(F&& f) const {
    int64_t first = 0;
    for (const PixelPanel& panel : panels)
      for (int64_t row = 0; row < rows; ++row, first += kPanelColumns)
        for (size_t i = panel.first_run; i < panel.last_run; ++i)
          f(plane + row, runs[i], first + runs[i].lane);
  }
};

// A convolution of bytes. Images are [batch, groups * channels, pixels], kernels [groups * outputs,
// channels, kernel], as `sizes` says. Zero points are numbers of the types of both.
struct ByteConvolution {
  const ConvSizes& sizes;
  const ConvWindows& windows;  // set for `sizes`
  const PackedRows& packed;    // by Pack
  const uint8_t* images;
  int64_t groups;
  int32_t x_zero;
  ZeroPointList w_zeros;  // by output channel
  bool x_signed, w_signed;
  const int32_t* bias;             // null, or added to the sums of each output channel
  std::vector<uint32_t>& numbers;  // memory that is kept from run to run

  // Packs kernels, a row for each output channel, and behind them a row that adds bytes of images.
  static void Pack(const ConvSizes& sizes, const ConvWindows& windows, const uint8_t* kernels,
                   int64_t outputs, bool w_signed, PackedRows& packed) {
    const int64_t depth = sizes.channels * sizes.kernel, width = windows.width();
    const uint8_t zero = w_signed ? 0 : 128;
    const std::vector<uint8_t> ones(Index(depth), static_cast<uint8_t>(zero + 1));
    std::vector<uint8_t> row(Index(width));
    packed.Resize(outputs + 1, width);
    for (int64_t output = 0; output <= outputs; ++output) {
      windows.Reorder(output < outputs ? kernels + output * depth : ones.data(), zero, row.data());
      packed.Set(output, row.data(), width, w_signed);
    }
  }

  // Calls store(const ConvSums&) for all panels and planes, on several threads. Sums wrap around
  // like int32.
  template <class F>
  void Run(F&& store, const IntegerLoops& loops) const {
    const std::vector<uint32_t> added = Added();
    const auto panels = static_cast<int64_t>(windows.panels().size());
    const auto pad = static_cast<uint8_t>(x_zero);
    const int64_t work = (windows.width() + 64) * kPanelColumns;  // for a panel of a plane
    constexpr int64_t kWork = 1 << 22;   // multiplications that are worth a thread
    constexpr int64_t kFill = 1 << 16;   // bytes of numbers that are worth a thread
    constexpr int64_t kManyGroups = 16;  // a task for each
    if (groups >= kManyGroups) {
      ParallelForRange(sizes.batch * groups, kWork / (work * panels * sizes.outputs + 1) + 1,
                       [&](int64_t begin, int64_t end) {
                         std::vector<uint8_t> padded(windows.padded_size(), pad);
                         std::vector<uint32_t> of_group(windows.numbers_size());
                         Sums sums;
                         for (int64_t part = begin; part < end; ++part) {
                           for (int64_t unit = 0; unit < windows.units(); ++unit)
                             Fill(part, unit, loops, padded, of_group);
                           for (int64_t panel = 0; panel < panels; panel += kMostPanels)
                             Multiply(part, panel, (std::min)(panels, panel + kMostPanels), 0,
                                      sizes.outputs, of_group, added, sums, store, loops);
                         }
                       });
      return;
    }
    // A task multiplies some panels, whose numbers stay in the cache, by some kernels.
    constexpr int64_t kRows = 8 * kDotRows;
    const int64_t at_once = PanelsAtOnce(), columns = (panels + at_once - 1) / at_once;
    const int64_t blocks = (sizes.outputs + kRows - 1) / kRows;
    const int64_t of_task = work * at_once * (std::min)(kRows, sizes.outputs);
    numbers.resize(windows.numbers_size());
    for (int64_t part = 0; part < sizes.batch * groups; ++part) {
      ParallelForRange(windows.units(), kFill / windows.unit_size() + 1,
                       [&](int64_t begin, int64_t end) {
                         std::vector<uint8_t> padded(windows.padded_size(), pad);
                         for (int64_t unit = begin; unit < end; ++unit)
                           Fill(part, unit, loops, padded, numbers);
                       });
      ParallelForRange(blocks * columns, kWork / of_task + 1, [&](int64_t begin, int64_t end) {
        Sums sums;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t row = task / columns * kRows, panel = task % columns * at_once;
          Multiply(part, panel, (std::min)(panels, panel + at_once), row,
                   (std::min)(sizes.outputs, row + kRows), numbers, added, sums, store, loops);
        }
      });
    }
  }

 private:
  // As in IntegerProduct: bytes of the kernels become signed, bytes of the images unsigned.
  uint32_t WZero(int64_t channel) const {
    return static_cast<uint32_t>(w_zeros.At(channel)) - (w_signed ? 0 : 128);
  }
  // Returns what is added to each sum of an output channel: sum((x - zx) (w - zw)) = sum(x w) - zw
  // sum(x) + zx (depth zw - sum(w)).
  std::vector<uint32_t> Added() const {
    const auto depth = static_cast<uint32_t>(sizes.channels * sizes.kernel);
    const uint32_t zero = static_cast<uint32_t>(x_zero) + (x_signed ? 128 : 0);
    std::vector<uint32_t> added(Index(groups * sizes.outputs));
    for (int64_t channel = 0; channel < groups * sizes.outputs; ++channel)
      added[Index(channel)] =
          zero * (depth * WZero(channel) - static_cast<uint32_t>(packed.sum(channel))) +
          (bias ? static_cast<uint32_t>(bias[channel]) : 0);
    return added;
  }
  // `part` counts the groups of all images.
  void Fill(int64_t part, int64_t unit, const IntegerLoops& loops, std::vector<uint8_t>& padded,
            std::vector<uint32_t>& to) const {
    windows.Fill(images + part * sizes.channels * sizes.input_pixels, unit,
                 x_signed ? 0x80808080 : 0, loops, padded.data(), to.data());
  }
  static constexpr int64_t kMostPanels = 16;
  // The results of the loops, and the sums of the bytes of each window.
  struct Sums {
    alignas(64) uint32_t of_rows[ConvSums::kMost * kPanelColumns] = {};
    alignas(64) uint32_t of_windows[kMostPanels * kPanelColumns];
  };
  int64_t PanelsAtOnce() const {
    constexpr int64_t kUnits = 128;  // of all panels together, 256 bytes for each
    return (std::max)(int64_t{1}, (std::min)(kMostPanels, kUnits / (windows.units() + 1)));
  }
  // Multiplies kernels [row, last_row) of a group by panels [panel, last_panel).
  template <class F>
  void Multiply(int64_t part, int64_t panel, int64_t last_panel, int64_t row, int64_t last_row,
                const std::vector<uint32_t>& from, const std::vector<uint32_t>& added, Sums& sums,
                F& store, const IntegerLoops& loops) const {
    const int64_t width = packed.width(), channel = part % groups * sizes.outputs;
    const uint32_t none[1] = {};
    const auto dot = [&](int64_t p, int64_t count, const int8_t* a, int64_t rows,
                         const uint32_t* of_row, const uint32_t* za, const uint32_t* of_b,
                         uint32_t* to) {
      loops.dot({a, width, width / 4, reinterpret_cast<const uint8_t*>(from.data()),
                 windows.offsets(), windows.from(p), windows.panels()[Index(p)].vectors, count, to,
                 of_row, nullptr, za, of_b},
                rows);
    };
    bool has_windows = false;
    for (; row < last_row; row += kDotRows) {
      const int64_t rows = (std::min)(kDotRows, last_row - row);
      uint32_t zw[kDotRows], any = 0;
      for (int64_t r = 0; r < rows; ++r) any |= zw[r] = WZero(channel + row + r);
      if (any != 0 && !has_windows) {
        for (int64_t p = panel; p < last_panel; ++p)
          dot(p, 1, packed.row(groups * sizes.outputs), 1, none, none, nullptr,
              sums.of_windows + (p - panel) * kPanelColumns);
        has_windows = true;
      }
      for (int64_t p = panel, count; p < last_panel; p += count) {
        count = (std::min)(ConvSums::kMost / rows, last_panel - p);
        const auto panels = windows.panels().subspan(Index(p), Index(count));
        if (count > 1 && panels.back().vectors != panels.front().vectors) --count;
        dot(p, count, packed.row(channel + row), rows, added.data() + channel + row, zw,
            any != 0 ? sums.of_windows + (p - panel) * kPanelColumns : nullptr, sums.of_rows);
        store(ConvSums{part * sizes.outputs + row, channel + row, rows, panels.first(Index(count)),
                       windows.runs(), reinterpret_cast<const int32_t*>(sums.of_rows)});
      }
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_QUANTIZED_BYTE_CONVOLUTION_HPP_

// Strip: a padded copy of the part of an image that a block of windows covers. In a strip the
// columns of one phase of the stride are neighbours. So the loops over windows see stride 1 and no
// border: neighbouring windows read neighbouring elements, and kernels may read whole vectors.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_STRIP_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_STRIP_HPP_

#include <numeric>

#include "opkit/backends/eigen/support/lanes.hpp"
#include "opkit/op/kernel.hpp"
#include "opkit/ops/support/window.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A block of windows: rows [row, row + rows) by columns [column, column + columns).
struct WindowBlock {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// Throws UnsupportedOperatorFeature for strips of more than 2^28 elements.
inline void RequireModestCopy(double elements) {
  constexpr double kMost = 1 << 28;
  if (elements > kMost)
    throw UnsupportedOperatorFeature(
        "its copy of the elements of a block of windows would be too large");
}

// The layout of strips for blocks of at most a given size.
class Strip {
 public:
  Strip() = default;
  Strip(const WindowAxis& rows, const WindowAxis& columns, int64_t most_rows, int64_t most_columns)
      : rows_(rows), columns_(columns) {
    // The phase of a kernel's element k is k * dilation modulo the stride. Elements k and k +
    // stride / gcd(stride, dilation) have the same phase. A strip stores only the phases that
    // occur, in the order of the elements.
    phases_ =
        (std::min)(columns.kernel, columns.stride / std::gcd(columns.stride, columns.dilation));
    reach_ = (columns.extent() - 1) / columns.stride;
    phase_size_ = RoundUpToLanes(most_columns) + reach_;
    // Computed in double, which does not overflow.
    RequireModestCopy(static_cast<double>(phases_) * static_cast<double>(phase_size_) *
                      static_cast<double>(StripRows(most_rows)));
    row_size_ = phases_ * phase_size_;
    size_ = StripRows(most_rows) * row_size_;
  }

  int64_t size() const { return size_; }  // number of floats of one plane
  // Floats from one row of windows to the next.
  int64_t line() const { return LineStep() * row_size_; }
  // Returns the offset of element (row, column) of the kernel from the first element of its window.
  int64_t Offset(int64_t row, int64_t column) const {
    const int64_t along = column * columns_.dilation;
    return (rows_.kernel == 1 ? 0 : row * rows_.dilation) * row_size_ +
           column % phases_ * phase_size_ + along / columns_.stride;
  }
  // Appends the offsets of all elements of the kernel in row-major order.
  void AppendOffsets(int64_t base, std::vector<int64_t>& offsets) const {
    for (int64_t row = 0; row < rows_.kernel; ++row)
      for (int64_t column = 0; column < columns_.kernel; ++column)
        offsets.push_back(base + Offset(row, column));
  }

  // Fills the strip of a block of windows with elements of `plane`, and with `pad` outside the
  // plane. If `plane` is null, fills it with `pad` only. Fill strips in ascending order of their
  // addresses; kLanes more floats must follow the last strip.
  void Fill(const float* plane, float pad, const WindowBlock& block, float* strip) const {
    const int64_t step = rows_.kernel == 1 ? rows_.stride : 1;
    const int64_t first = rows_.Start(block.row), count = StripRows(block.rows);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = first + i * step;
      const bool outside = !plane || row < 0 || row >= rows_.input;
      FillRow(outside ? nullptr : plane + row * columns_.input, pad, block, strip + i * row_size_);
    }
  }

 private:
  // If the kernel has one row, the strip contains only the rows at multiples of the stride.
  int64_t LineStep() const { return rows_.kernel == 1 ? 1 : rows_.stride; }
  int64_t StripRows(int64_t windows) const {
    return rows_.kernel == 1 ? windows : (windows - 1) * rows_.stride + rows_.extent();
  }
  // Fills a row of the strip. Writes whole vectors in ascending order: the next phase, row or plane
  // overwrites the surplus behind the end of a phase.
  void FillRow(const float* row, float pad, const WindowBlock& block, float* strip) const {
    const int64_t count = block.columns + reach_, stride = columns_.stride;
    for (int64_t i = 0; i < phases_; ++i) {
      float* out = strip + i * phase_size_;
      const int64_t start = columns_.Start(block.column) + i * columns_.dilation % stride;
      // Elements [begin, end) of the phase lie in the row; the others are pads.
      int64_t begin = 0, end = 0;
      if (row && start < columns_.input) {
        end = stride == 1 ? columns_.input - start : (columns_.input - 1 - start) / stride + 1;
        end = (std::min)(end, count);
        if (start < 0) begin = stride == 1 ? -start : (stride - 1 - start) / stride;
        begin = (std::min)(begin, end);
      }
      const Lanes pads = Lanes{} + pad;
      for (int64_t at = 0; at < begin; at += kLanes) Store(pads, out + at);
      if (begin < end) CopyStrided(row + start + begin * stride, stride, end - begin, out + begin);
      for (int64_t at = end; at < count; at += kLanes) Store(pads, out + at);
    }
  }

  WindowAxis rows_, columns_;
  int64_t phases_ = 1, reach_ = 0, phase_size_ = 0, row_size_ = 0, size_ = 0;
};

// Returns `axes` without the axes of one element and one window; keeps at least one axis. An axis
// with a pad before its element stays, because its window may be in the pad.
inline WindowAxes WithoutTrivialAxes(const WindowAxes& axes) {
  WindowAxes out;
  for (const WindowAxis& axis : axes)
    if (axis.input != 1 || axis.output != 1 || axis.kernel != 1 || axis.pad_begin != 0)
      out.push_back(axis);
  if (out.empty()) out.push_back(axes.back());
  return out;
}

// The last two axes of a window operator, as rows and columns. An image with one axis is one row.
struct WindowPlane {
  WindowAxis rows{.input = 1, .output = 1}, columns;

  explicit WindowPlane(const WindowAxes& axes) : columns(axes.back()) {
    if (axes.size() > 1) rows = axes[axes.size() - 2];
  }
  // The products of the outputs, and of the kernels, along the axes before the last two.
  static int64_t OuterOutputs(const WindowAxes& axes) {
    int64_t count = 1;
    for (size_t axis = 0; axis + 2 < axes.size(); ++axis) count *= axes[axis].output;
    return count;
  }
  static int64_t OuterKernel(const WindowAxes& axes) {
    int64_t count = 1;
    for (size_t axis = 0; axis + 2 < axes.size(); ++axis) count *= axes[axis].kernel;
    return count;
  }
  int64_t input() const { return rows.input * columns.input; }
  int64_t output() const { return rows.output * columns.output; }
  int64_t taps() const { return rows.kernel * columns.kernel; }
};

// Returns the plane of an image in which element `kernel` of window `output` lies; -1 for a pad.
// All three are row-major indices along the axes before the last two.
inline int64_t OuterPlane(const WindowAxes& axes, int64_t output, int64_t kernel) {
  int64_t plane = 0, step = 1;
  for (size_t axis = axes.size() < 2 ? 0 : axes.size() - 2; axis-- > 0;) {
    const WindowAxis& along = axes[axis];
    const int64_t place =
        along.Start(output % along.output) + kernel % along.kernel * along.dilation;
    if (place < 0 || place >= along.input) return -1;
    plane += place * step;
    step *= along.input;
    output /= along.output;
    kernel /= along.kernel;
  }
  return plane;
}
// Throws UnsupportedOperatorFeature for windows for which a count of elements could overflow, or
// with too many elements for a table.
inline void RequireModestWindows(const WindowAxes& axes) {
  constexpr int64_t kMost = 1 << 24;
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) {
    taps *= axis.kernel;  // no overflow: the factors have at most 24 and 32 bits
    if ((std::max)({axis.extent(), axis.pad_begin, axis.pad_end, taps}) > kMost)
      throw UnsupportedOperatorFeature("its table of the elements of a window would be too large");
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_STRIP_HPP_

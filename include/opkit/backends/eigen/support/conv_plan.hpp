// ConvPlan: how a convolution is cut into tasks, and the offsets of the elements under the windows.
// Used by Conv of the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_PLAN_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_PLAN_HPP_

#include "opkit/backends/eigen/support/strip.hpp"
#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/backends/eigen/support/tile.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The tasks of a convolution of known sizes. A plane is the last two axes of an image. The depth of
// the sums consists of planes: one for each channel and each element of the kernel along the axes
// before those two.
struct ConvPlan : TaskPlan {
  enum class Source : uint8_t {
    kImage,   // the image itself, as one long line, for kernels of one pixel
    kStrip,   // a strip, line by line
    kPacked,  // a copy of the strip that joins the lines of a block into one line
  };

  ConvSizes sizes;
  int64_t groups = 1;
  WindowPlane plane;
  Source source = Source::kStrip;
  int64_t outer_outputs = 1;                // pixels along the axes before the last two
  int64_t planes = 0, taps = 0, depth = 0;  // sizes of one group; depth = planes * taps

  // A task computes a block of rows and columns of one image and group, for a block of output
  // channels.
  int64_t block_rows = 1, block_columns = 1, block_outputs = 1;
  int64_t row_blocks = 1, column_blocks = 1, output_blocks = 1;
  int64_t block_planes = 1;  // planes that are summed in one pass, to fit in the cache
  Strip strip;
  // Offset of each element of a block's depth; set by MakeTables.
  std::vector<int64_t> offsets, packed_offsets;
  int64_t packed_line = 0;  // floats of a packed line
  int64_t strip_floats = 0;

  ConvPlan(ConvSizes all, int64_t group_count, int threads)
      : sizes(WithTrivialAxesDropped(std::move(all))), groups(group_count), plane(sizes.axes) {
    RequireModestWindows(sizes.axes);
    outer_outputs = WindowPlane::OuterOutputs(sizes.axes);
    taps = plane.taps();
    planes = sizes.channels * WindowPlane::OuterKernel(sizes.axes);
    depth = planes * taps;
    if (IsPointwise()) {
      source = Source::kImage;
      outer_outputs = 1;
      plane.columns.input = plane.columns.output = sizes.output_pixels;
      plane.rows.input = plane.rows.output = 1;
    }
    Cut(threads);
    SetScratch();
  }
  // Must be called before the plan runs. A proposal needs no tables.
  void MakeTables() {
    for (int64_t k = 0; k < block_planes; ++k)
      if (source == Source::kImage)
        offsets.push_back(k * plane.input());
      else
        strip.AppendOffsets(k * strip.size(), offsets);
    for (size_t k = 0; k < offsets.size() && packed_line > 0; ++k)
      packed_offsets.push_back(static_cast<int64_t>(k) * packed_line);
  }

  bool IsDepthwise() const { return sizes.outputs == 1; }
  double Flops() const {
    return 2.0 * static_cast<double>(sizes.batch * groups * sizes.outputs) *
           static_cast<double>(sizes.output_pixels) * static_cast<double>(depth);
  }

 private:
  // Returns the cost in operations of a convolution that loads each input once for many outputs. A
  // depthwise convolution cannot share loads, so each of its operations counts as four.
  double Cost() const { return Flops() * (IsDepthwise() ? 4 : 1); }

  static ConvSizes WithTrivialAxesDropped(ConvSizes sizes) {
    sizes.axes = WithoutTrivialAxes(sizes.axes);
    return sizes;
  }
  // Returns the time for a line of pixels, in units of a vector in the largest tile. In smaller
  // tiles a vector costs more, because fewer pixels share the loads of weights.
  static double LineCost(int64_t pixels) {
    if (pixels <= kLanes) return 1.5;
    const int64_t vectors = DivideUp(pixels, kLanes), tiles = DivideUp(vectors, kTileVectors);
    const auto smaller = static_cast<double>(tiles * kTileVectors - vectors);  // tiles of 2 vectors
    return 3 * (static_cast<double>(tiles) - smaller) + 2.2 * smaller;
  }
  // True if a block is computed faster after its lines are packed into one line. To pack a vector
  // takes as long as to compute it for six output channels.
  bool IsPackingFaster() const {
    const auto vectors = static_cast<double>(plane.columns.output) / kLanes;
    return !IsDepthwise() && LineCost(plane.columns.output) >
                                 vectors * (1.03 + 6.0 / static_cast<double>(sizes.outputs));
  }
  static int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
  // Returns a block size of about `wanted` that cuts `all` evenly. Blocks are multiples of `unit`,
  // except the last one.
  static int64_t EvenBlock(int64_t all, int64_t wanted, int64_t unit) {
    if (all <= 0) return 1;
    wanted = (std::max)(wanted / unit * unit, unit);
    return (std::min)(all, DivideUp(DivideUp(all, DivideUp(all, wanted)), unit) * unit);
  }

  bool IsPointwise() const {
    for (const WindowAxis& axis : sizes.axes)
      if (axis.kernel != 1 || axis.stride != 1 || axis.pad_begin != 0 || axis.pad_end != 0)
        return false;
    return true;
  }
  // Chooses the blocks and the number of tasks.
  void Cut(int threads) {
    constexpr int64_t kBlockDepth = 512;         // a tile's weights fit in the L1 cache
    constexpr int64_t kBlockFloats = 48 * 1024;  // a task's inputs fit in the L2 cache
    // number of pixels whose packed copy fits in the L2 cache
    constexpr int64_t kPackedPixels = 256;
    constexpr double kTaskFlops = 1e6;  // about 10 us
    constexpr double kTaskCost = 2e4;   // the fixed cost of a task, in flops
    constexpr int64_t kPanel = kTileVectors * kLanes;
    const int64_t lines = plane.rows.output, pixels = plane.columns.output;
    block_planes = EvenBlock(planes, kBlockDepth / taps, 1);
    // Enough tasks to keep all threads busy to the end, but none that is too small.
    const double wanted = threads == 1 ? 1 : (std::min)(Cost() / kTaskFlops, 4.0 * threads);
    const auto images = static_cast<double>(sizes.batch * groups * outer_outputs);
    const auto wanted_pixels = static_cast<int64_t>(static_cast<double>(plane.output()) /
                                                    (std::max)(wanted / images, 1.0)) +
                               1;
    if (lines > 1) {
      if (IsPackingFaster()) source = Source::kPacked;
      block_columns = pixels;
      // Floats of a strip: for the first line of windows, and for each further line of windows.
      const int64_t first = block_planes * Strip(plane.rows, plane.columns, 1, pixels).size();
      const int64_t more =
          block_planes * Strip(plane.rows, plane.columns, 2, pixels).size() - first;
      int64_t fitting = (kBlockFloats - first) / more + 1;
      if (source == Source::kPacked)
        fitting = (std::min)(fitting, (std::max)(kPackedPixels / pixels, int64_t{2}));
      block_rows = EvenBlock(lines, (std::min)(fitting, DivideUp(wanted_pixels, pixels)), 1);
    } else {
      block_columns = EvenBlock(
          pixels, (std::min)(2 * kBlockFloats / (block_planes * taps), wanted_pixels), kPanel);
    }
    row_blocks = DivideUp(lines, block_rows);
    column_blocks = DivideUp(pixels, block_columns);
    // Images with few pixels and many channels are cut by output channels.
    const double blocks = images * static_cast<double>(row_blocks * column_blocks);
    block_outputs = EvenBlock(
        sizes.outputs,
        static_cast<int64_t>(static_cast<double>(sizes.outputs) / (std::max)(wanted / blocks, 1.0)),
        kTileRows);
    output_blocks = DivideUp(sizes.outputs, block_outputs);
    tasks = sizes.batch * groups * outer_outputs * row_blocks * column_blocks * output_blocks;
    const double task_cost = Cost() / static_cast<double>(tasks) + kTaskCost;
    grain = task_cost * 2 > kTaskFlops ? 1 : static_cast<int64_t>(kTaskFlops / task_cost);
  }
  // Sets the sizes of the strip, the packed copy and the scratch memory of a thread.
  void SetScratch() {
    if (source == Source::kImage) {
      packed_line = kLanes;  // for the pixels behind the last whole vector
    } else {
      strip = Strip(plane.rows, plane.columns, block_rows, block_columns);
      RequireModestCopy(static_cast<double>(block_planes * strip.size()));
      strip_floats = RoundUpToLanes(block_planes * strip.size() + kLanes);
      if (source == Source::kPacked)
        packed_line = RoundUpToLanes((block_rows - 1) * plane.columns.output +
                                     RoundUpToLanes(plane.columns.output));
    }
    const int64_t packed = block_planes * taps * packed_line;
    slot_bytes = ScratchSlots::RoundUp((strip_floats + packed) * int64_t{sizeof(float)});
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_PLAN_HPP_

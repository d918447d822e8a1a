// Conv of float32 for the "eigen" backend, by implicit matrix products. Blocks of output pixels are
// summed in registers. Their inputs come directly from the image (for kernels of one pixel) or from
// a strip of it. If lines are too short for vectors, they come from a packed copy of a strip. A
// depthwise convolution, with one output channel for each group, computes one channel at a time.
#ifndef OPKIT_BACKENDS_EIGEN_CONV_HPP_
#define OPKIT_BACKENDS_EIGEN_CONV_HPP_

#include "opkit/backends/eigen/support/conv_kernel.hpp"
#include "opkit/backends/eigen/support/conv_plan.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/backends/eigen/support/im2col.hpp"
#include "opkit/backends/eigen/support/winograd.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Runs tasks of a ConvPlan, one after another, with the scratch memory of one thread.
class ConvTasks {
 public:
  ConvTasks(const ConvPlan& plan, const ConvData<float>& data, float* scratch)
      : plan_(plan), data_(data), scratch_(scratch) {}

  void Run(int64_t task) {
    auto take = [&](int64_t count) {
      const int64_t index = task % count;
      task /= count;
      return index;
    };
    const WindowPlane& plane = plan_.plane;
    output_ = take(plan_.output_blocks) * plan_.block_outputs;
    outputs_ = (std::min)(plan_.block_outputs, plan_.sizes.outputs - output_);
    block_.column = take(plan_.column_blocks) * plan_.block_columns;
    block_.columns = (std::min)(plan_.block_columns, plane.columns.output - block_.column);
    block_.row = take(plan_.row_blocks) * plan_.block_rows;
    block_.rows = (std::min)(plan_.block_rows, plane.rows.output - block_.row);
    outer_ = take(plan_.outer_outputs);
    group_ = take(plan_.groups);
    image_ = task;
    for (int64_t first = 0; first < plan_.planes || first == 0; first += plan_.block_planes)
      RunPlanes(first, (std::min)(plan_.block_planes, plan_.planes - first));
  }

 private:
  // Lines of neighbouring output pixels. `offsets` give the positions of their inputs.
  struct Lines {
    const float* input;
    const int64_t* offsets;
    int64_t input_line, count, pixels, output;  // `output`: the first pixel's index in a plane of y
  };

  // Adds the products of `count` planes of the depth, from plane `first` on, to the task's output.
  void RunPlanes(int64_t first, int64_t count) {
    const WindowPlane& plane = plan_.plane;
    const int64_t at = block_.row * plane.columns.output + block_.column;
    if (plan_.source == ConvPlan::Source::kImage) {
      const float* image =
          data_.x + ((image_ * plan_.groups + group_) * plan_.planes + first) * plane.input();
      // Pack the last pixels: a whole vector there could read outside the tensor.
      const int64_t tail = block_.columns % kLanes, whole = block_.columns - tail;
      if (whole > 0) RunLines({image + at, plan_.offsets.data(), 0, 1, whole, at}, first, count);
      if (tail > 0) {
        PackTail(image + at + whole, tail, count);
        RunLines({scratch_, plan_.packed_offsets.data(), 0, 1, tail, at + whole}, first, count);
      }
      return;
    }
    for (int64_t k = 0; k < count; ++k)
      plan_.strip.Fill(FindPlane(first + k), 0, block_, scratch_ + k * plan_.strip.size());
    if (plan_.source == ConvPlan::Source::kStrip) {
      RunLines(
          {scratch_, plan_.offsets.data(), plan_.strip.line(), block_.rows, block_.columns, at},
          first, count);
    } else {
      float* packed = scratch_ + plan_.strip_floats;
      PackLines(packed, count * plan_.taps);
      RunLines({packed, plan_.packed_offsets.data(), 0, 1, block_.rows * block_.columns, at}, first,
               count);
    }
  }
  // Returns plane `index` of the task's image and group; null if it is in a pad of the outer axes.
  const float* FindPlane(int64_t index) const {
    const int64_t kernel = plan_.planes / plan_.sizes.channels;
    const int64_t plane = OuterPlane(plan_.sizes.axes, outer_, index % kernel);
    if (plane < 0) return nullptr;
    return data_.x +
           ((image_ * plan_.groups + group_) * plan_.sizes.channels + index / kernel) *
               plan_.sizes.input_pixels +
           plane * plan_.plane.input();
  }
  // Copies the pixels behind the last whole vector, padded to a vector, for `count` planes.
  void PackTail(const float* image, int64_t pixels, int64_t count) {
    Lanes lanes;
    for (int64_t k = 0; k < count; ++k) {
      LoadPart(image + plan_.offsets[Index(k)], pixels, lanes);
      Store(lanes, scratch_ + k * kLanes);
    }
  }
  // Copies the lines of a strip behind each other, for each element of the depth. Copies whole
  // vectors in ascending order, so that each line overwrites the surplus of the line before.
  void PackLines(float* packed, int64_t depth) {
    const int64_t columns = block_.columns, line = plan_.strip.line();
    Lanes lanes;
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = scratch_ + plan_.offsets[Index(k)];
      float* to = packed + k * plan_.packed_line;
      for (int64_t row = 0; row < block_.rows; ++row)
        for (int64_t i = 0; i < columns; i += kLanes) {
          Load(from + row * line + i, lanes);
          Store(lanes, to + row * columns + i);
        }
    }
  }

  // Computes lines of the output in tiles.
  void RunLines(const Lines& lines, int64_t first, int64_t count) {
    Tile tile;
    tile.depth = count * plan_.taps;
    tile.offsets = lines.offsets;
    tile.weight_row = plan_.depth;
    tile.input_line = lines.input_line;
    tile.output_row = plan_.sizes.output_pixels;
    tile.output_line = plan_.plane.columns.output;
    tile.add = first > 0;
    const int64_t channel = group_ * plan_.sizes.outputs + output_;
    const float* weights = data_.w + channel * plan_.depth + first * plan_.taps;
    float* output =
        data_.y +
        ((image_ * plan_.groups * plan_.sizes.outputs + channel) * plan_.outer_outputs + outer_) *
            plan_.plane.output() +
        lines.output;
    auto run = [&](int64_t row, int64_t line, int64_t pixel, int64_t last, TileFunction function) {
      tile.weights = weights + row * plan_.depth;
      tile.bias = data_.bias ? data_.bias + channel + row : nullptr;
      tile.input = lines.input + line * lines.input_line + pixel;
      tile.output = output + row * tile.output_row + line * tile.output_line + pixel;
      tile.last = last;
      function(tile);
    };
    if (plan_.IsDepthwise()) {
      ForEachTile(lines.pixels, kLineVectors, [&](int64_t pixel, int vectors, int64_t last) {
        for (int64_t line = 0; line < lines.count;) {
          const int now = NextTileLines(lines.count - line, vectors);
          run(0, line, pixel, last, FindLineTile(now, vectors));
          line += now;
        }
      });
      return;
    }
    for (int64_t row = 0; row < outputs_;) {
      const int rows = NextTileRows(outputs_ - row);
      for (int64_t line = 0; line < lines.count; ++line)
        ForEachTile(lines.pixels, kTileVectors, [&](int64_t pixel, int vectors, int64_t last) {
          run(row, line, pixel, last, FindTile(rows, vectors));
        });
      row += rows;
    }
  }

  const ConvPlan& plan_;
  const ConvData<float> data_;
  float* scratch_;
  // The position of the task.
  int64_t output_ = 0, outputs_ = 0, outer_ = 0, group_ = 0, image_ = 0;
  WindowBlock block_;
};

// A convolution of known sizes, computed by the algorithm that is usually fastest for them, or by
// the variant of that name.
class ConvAlgorithm {
 public:
  // `weights` is the layout of W.
  ConvAlgorithm(const ConvSizes& sizes, int64_t groups, int threads, std::string_view variant,
                const Layout& weights) {
    const bool has_points = !weights.is_standard();
    if (has_points || (variant == kWinograd && Winograd::IsPromising(sizes, groups, false)))
      winograd_.emplace(sizes, has_points);
    else if (Im2col::IsFaster(sizes))
      im2col_.emplace(sizes, groups);
    else
      plan_.emplace(sizes, groups, threads);
  }
  // Returns the names of the variants for a convolution of these sizes.
  static std::vector<std::string_view> Variants(const ConvSizes& sizes, int64_t groups, int threads,
                                                bool has_constant_weights) {
    std::vector<std::string_view> names;
    if (Winograd::IsPromising(sizes, groups, has_constant_weights)) names.push_back(kWinograd);
    if (threads > 1 && MayPayOnOneThread(sizes, groups)) names.push_back(kOneThread);
    return names;
  }
  // Returns the layout of W for a variant.
  static Layout Weights(std::string_view variant, bool are_constant) {
    return variant == kWinograd && are_constant ? Layout{WinogradWeights::Id(), {}} : Layout();
  }
  int64_t ScratchBytes(int threads) const {
    if (winograd_) return winograd_->ScratchBytes(threads);
    return im2col_ ? im2col_->ScratchBytes() : plan_->ScratchBytes(threads);
  }
  // Must be called before the first Run. A proposal needs no tables.
  void MakeTables() {
    if (winograd_) winograd_->MakeTables();
    if (plan_) plan_->MakeTables();
  }
  void Run(const ConvData<float>& data, void* scratch, int threads) const {
    if (winograd_) return winograd_->Run(data, scratch, threads);
    if (im2col_) return im2col_->Run(data, static_cast<float*>(scratch));
    plan_->Run(scratch, threads, [&](int64_t begin, int64_t end, float* memory) {
      ConvTasks tasks(*plan_, data, memory);
      for (int64_t task = begin; task < end; ++task) tasks.Run(task);
    });
  }

 private:
  static constexpr std::string_view kWinograd = "winograd";
  // True for a convolution of about 4 to 200 us. A smaller one is not divided in the usual way; a
  // larger one gains by more threads.
  static bool MayPayOnOneThread(const ConvSizes& sizes, int64_t groups) {
    constexpr double kLeastFlops = 5e5, kMostFlops = 3e7;
    const double flops = 2.0 * static_cast<double>(sizes.batch * groups * sizes.outputs) *
                         static_cast<double>(sizes.output_pixels) *
                         static_cast<double>(sizes.channels * sizes.kernel);
    return flops >= kLeastFlops && flops <= kMostFlops;
  }

  // Exactly one of them is set.
  std::optional<Winograd> winograd_;
  std::optional<Im2col> im2col_;
  std::optional<ConvPlan> plan_;
};

}  // namespace detail

using ConvEigenOp =
    detail::ConvKernel<WindowAttributes, detail::ConvAlgorithm, &ConvSizes::Of<WindowAttributes>>;

OPKIT_EIGEN_OPERATOR(Conv, ConvEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_CONV_HPP_

// ConvTranspose of float32 for the "eigen" backend. A matrix product computes, for each input
// pixel, the summands of all elements of its window. Then the windows are added to the output, line
// by line.
#ifndef OPKIT_BACKENDS_EIGEN_CONV_TRANSPOSE_HPP_
#define OPKIT_BACKENDS_EIGEN_CONV_TRANSPOSE_HPP_

#include "opkit/backends/eigen/support/conv_kernel.hpp"
#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/backends/eigen/support/strip.hpp"
#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/ops/nn/conv_transpose.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The tasks of a transposed convolution of known sizes. A task computes a block of output channels
// of one group of one image. It processes the input lines in blocks that fit in the cache.
struct ConvTransposePlan : TaskPlan {
  ConvSizes sizes;
  int64_t groups = 1;
  // The last axis; its `output` is the extent of the input, see ConvTransposeAttributes.
  WindowAxis line;
  WindowAxes outer;  // the axes before it
  int64_t lines = 1, outer_kernel = 1;
  int64_t block_outputs = 1, output_blocks = 1, block_lines = 1;

  // The plan does not depend on the number of threads, and has no variants.
  ConvTransposePlan(ConvSizes all, int64_t group_count, int /*threads*/,
                    std::string_view /*variant*/, const Layout& /*weights*/)
      : sizes(std::move(all)), groups(group_count), line(sizes.axes.back()), outer(sizes.axes) {
    constexpr int64_t kBlockFloats = 64 * 1024;  // number of products that fit in the L2 cache
    constexpr double kTaskFlops = 1e6;           // about 10 us
    RequireModestWindows(sizes.axes);
    outer.pop_back();
    for (const WindowAxis& axis : outer) {
      lines *= axis.output;
      outer_kernel *= axis.kernel;
    }
    const double flops = 2.0 * static_cast<double>(sizes.batch * groups * sizes.outputs) *
                         static_cast<double>(sizes.channels * sizes.kernel) *
                         static_cast<double>(sizes.input_pixels);
    const double images = static_cast<double>(sizes.batch * groups);
    // A constant, not the number of threads, because the rounding of a product depends on the size
    // of its block.
    constexpr double kTasks = 8;
    const double parts = (std::max)(1.0, (std::min)(flops / kTaskFlops, kTasks) / images);
    const int64_t line_floats = sizes.kernel * line.output;
    const int64_t fitting = kBlockFloats / line_floats;  // lines * output channels
    const int64_t wanted = static_cast<int64_t>(static_cast<double>(sizes.outputs) / parts + 0.999);
    block_outputs = Clamp((std::min)(wanted, fitting), sizes.outputs);
    block_lines = Clamp(fitting / block_outputs, lines);
    output_blocks = (sizes.outputs - 1) / block_outputs + 1;
    tasks = sizes.batch * groups * output_blocks;
    grain = 1 + static_cast<int64_t>(kTaskFlops / (1 + 2 * flops / static_cast<double>(tasks)));
    slot_bytes =
        ScratchSlots::RoundUp(block_outputs * block_lines * line_floats * int64_t{sizeof(float)});
  }
  static std::vector<std::string_view> Variants(const ConvSizes&, int64_t, int, bool) { return {}; }
  static Layout Weights(std::string_view, bool) { return {}; }
  void MakeTables() {}  // has none
  // Runs all tasks. `scratch` must have ScratchBytes(threads) bytes.
  void Run(const ConvData<float>& data, void* scratch, int threads) const;

 private:
  static int64_t Clamp(int64_t value, int64_t most) {
    return (std::max)(int64_t{1}, (std::min)(value, most));
  }
};

// Adds products[kernel element, pixel] of input lines [first_line, first_line + lines) to one plane
// of y.
inline void AddWindows(const ConvTransposePlan& plan, const float* products, int64_t product_row,
                       int64_t first_line, int64_t lines, float* y) {
  const WindowAxis& along = plan.line;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t k = 0; k < plan.outer_kernel; ++k) {
      int64_t window = first_line + line, element = k, place = 0, step = 1;
      bool inside = true;
      for (size_t axis = plan.outer.size(); axis-- > 0;) {
        const WindowAxis& outer = plan.outer[axis];
        const int64_t at =
            outer.Start(window % outer.output) + element % outer.kernel * outer.dilation;
        inside &= at >= 0 && at < outer.input;
        place += at * step;
        step *= outer.input;
        window /= outer.output;
        element /= outer.kernel;
      }
      if (!inside) continue;
      for (int64_t tap = 0; tap < along.kernel; ++tap) {
        const float* from = products + (k * along.kernel + tap) * product_row + line * along.output;
        // For pixels [begin, end) this element of the window lies inside the line.
        const int64_t start = tap * along.dilation - along.pad_begin, stride = along.stride;
        const int64_t begin =
            (std::min)(start >= 0 ? 0 : (stride - 1 - start) / stride, along.output);
        const int64_t end = start >= along.input
                                ? begin
                                : (std::min)((along.input - 1 - start) / stride + 1, along.output);
        float* to = y + place * along.input + start;
        if (stride == 1)
          for (int64_t i = begin; i < end; ++i) to[i] += from[i];
        else
          for (int64_t i = begin; i < end; ++i) to[i * stride] += from[i];
      }
    }
}

// Runs one task. `products` is its scratch memory.
inline void RunConvTransposeTask(const ConvTransposePlan& plan, const ConvData<float>& data,
                                 float* products, int64_t task) {
  const ConvSizes& sizes = plan.sizes;
  const int64_t first = task % plan.output_blocks * plan.block_outputs;
  const int64_t outputs = (std::min)(plan.block_outputs, sizes.outputs - first);
  const int64_t image = task / plan.output_blocks;  // counts images of groups
  const int64_t group = image % plan.groups, channel = group * sizes.outputs + first;
  const float* x = data.x + image * sizes.channels * sizes.input_pixels;
  float* y = data.y + (image * sizes.outputs + first) * sizes.output_pixels;
  const int64_t weight_row = sizes.outputs * sizes.kernel;
  const float* w = data.w + group * sizes.channels * weight_row + first * sizes.kernel;
  for (int64_t m = 0; m < outputs; ++m)
    std::fill_n(y + m * sizes.output_pixels, sizes.output_pixels,
                data.bias ? data.bias[channel + m] : 0.f);
  for (int64_t line = 0; line < plan.lines; line += plan.block_lines) {
    const int64_t lines = (std::min)(plan.block_lines, plan.lines - line);
    const int64_t pixels = lines * plan.line.output;
    Gemm<float>({outputs * sizes.kernel, pixels, sizes.channels}, 1, {w, weight_row, true},
                {x + line * plan.line.output, sizes.input_pixels}, {products, pixels}, 1);
    for (int64_t m = 0; m < outputs; ++m)
      AddWindows(plan, products + m * sizes.kernel * pixels, pixels, line, lines,
                 y + m * sizes.output_pixels);
  }
}
inline void ConvTransposePlan::Run(const ConvData<float>& data, void* scratch, int threads) const {
  TaskPlan::Run(scratch, threads, [&](int64_t begin, int64_t end, float* products) {
    for (int64_t task = begin; task < end; ++task)
      RunConvTransposeTask(*this, data, products, task);
  });
}

}  // namespace detail

using ConvTransposeEigenOp =
    detail::ConvKernel<ConvTransposeAttributes, detail::ConvTransposePlan, &ConvTransposeSizes>;

OPKIT_EIGEN_OPERATOR(ConvTranspose, ConvTransposeEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_CONV_TRANSPOSE_HPP_

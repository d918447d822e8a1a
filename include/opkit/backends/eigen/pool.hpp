// The pools of float32 for the "eigen" backend. Windows slide over padded strips, one vector of
// windows at a time. Global pools are Eigen's reductions.
#ifndef OPKIT_BACKENDS_EIGEN_POOL_HPP_
#define OPKIT_BACKENDS_EIGEN_POOL_HPP_

#include "opkit/backends/eigen/backend.hpp"
#include "opkit/backends/eigen/support/block_sum.hpp"
#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/backends/eigen/support/strip.hpp"
#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/backends/eigen/support/tile.hpp"
#include "opkit/ops/nn/pool.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The factors that turn sums of windows into means, along one axis: 1 / (number of a window's
// elements). A window that lies in pads has the sum 0 and the factor 1. All windows that touch no
// pad have the same factor.
class WindowScales {
 public:
  WindowScales(const WindowAxis& axis, bool count_include_pad)
      : axis_(axis),
        count_include_pad_(count_include_pad),
        whole_begin_(axis.InteriorBegin()),
        whole_end_(axis.InteriorEnd()),
        whole_(Of(axis.kernel)) {}

  float At(int64_t o) const {
    if (o >= whole_begin_ && o < whole_end_) return whole_;
    return Of(count_include_pad_ ? axis_.CountWithPads(o)
                                 : axis_.KernelEnd(o) - axis_.KernelBegin(o));
  }

 private:
  static float Of(int64_t count) { return 1.f / static_cast<float>((std::max)(count, int64_t{1})); }

  WindowAxis axis_;
  bool count_include_pad_;
  int64_t whole_begin_, whole_end_;
  float whole_;
};

// The reductions of a window's elements, a vector of windows at a time. `kPad` is the neutral
// element; with kScales results are multiplied by scales.
struct PoolMax {
  static constexpr float kPad = -std::numeric_limits<float>::infinity();
  static constexpr bool kScales = false;

  Lanes largest = Lanes{} + kPad;
  decltype(Lanes{} != Lanes{}) is_nan = {};

  __attribute__((always_inline)) void Take(const Lanes& value) {
    is_nan |= value != value;
    TakeLarger(value, largest);
  }
  __attribute__((always_inline)) void Finish(const float*, float, Lanes& result) const {
    result = is_nan ? Lanes{} + std::numeric_limits<float>::quiet_NaN() : largest;
  }
};
struct PoolMean {
  static constexpr float kPad = 0;
  static constexpr bool kScales = true;

  Lanes sum = {};

  __attribute__((always_inline)) void Take(const Lanes& value) { sum += value; }
  __attribute__((always_inline)) void Finish(const float* scales, float scale,
                                             Lanes& result) const {
    Load(scales, result);
    result *= sum * scale;
  }
};

// A block of windows: `lines` lines of kVectors vectors (of RunPoolTile) each.
struct PoolTile {
  const float* input = nullptr;
  int64_t input_line = 0;
  const int64_t* offsets = nullptr;
  int64_t count = 0;  // elements of a window
  int64_t lines = 0;
  // Factor of each window of a line; all lines have the same factors.
  const float* column_scales = nullptr;
  const WindowScales* row_scales = nullptr;
  int64_t row = 0;  // row of the first line
  float scale = 1;
  float* output = nullptr;
  int64_t output_line = 0;
  int64_t last = kLanes;  // windows in the last vector of a line
};

// Computes the windows of a tile.
template <class Reduce, int kVectors>
void RunPoolTile(const PoolTile& tile) {
  for (int64_t line = 0; line < tile.lines; ++line) {
    Reduce windows[kVectors];
    const float* input = tile.input + line * tile.input_line;
    for (int64_t k = 0; k < tile.count; ++k) {
      const float* at = input + tile.offsets[k];
      for (int i = 0; i < kVectors; ++i) {
        Lanes value;
        Load(at + i * kLanes, value);
        windows[i].Take(value);
      }
    }
    const float scale = Reduce::kScales ? tile.scale * tile.row_scales->At(tile.row + line) : 1;
    float* output = tile.output + line * tile.output_line;
    for (int i = 0; i < kVectors; ++i) {
      Lanes result;
      windows[i].Finish(tile.column_scales + i * kLanes, scale, result);
      const bool is_part = i + 1 == kVectors && tile.last < kLanes;
      is_part ? StorePart(result, tile.last, output + i * kLanes)
              : Store(result, output + i * kLanes);
    }
  }
}

// The tasks of a pool of known sizes. A task computes a block of rows of one plane of the output.
struct PoolPlan : TaskPlan {
  WindowAxes axes;
  WindowPlane plane;
  int64_t outer_outputs = 1, outer_kernel = 1, input_pixels = 1;
  int64_t block_rows = 1, row_blocks = 1;
  Strip strip;
  std::vector<int64_t> offsets;      // offset of each element of a window; set by MakeTables
  std::vector<WindowScales> scales;  // by axis

  // `channels` is the number of channels of all images together.
  PoolPlan(const WindowAxes& all, int64_t channels, bool count_include_pad)
      : axes(WithoutTrivialAxes(all)), plane(axes) {
    // number of floats of strips that fit in the L2 cache
    constexpr int64_t kBlockFloats = 16 * 1024;
    constexpr int64_t kChunkElements = 200'000;  // window elements that take about 10 us
    // The number of elements whose work takes as long as the fixed cost of a task.
    constexpr int64_t kTaskElements = 4'000;
    RequireModestWindows(axes);
    outer_outputs = WindowPlane::OuterOutputs(axes);
    outer_kernel = WindowPlane::OuterKernel(axes);
    for (const WindowAxis& axis : axes) input_pixels *= axis.input;
    const int64_t width = plane.columns.output;
    const int64_t first = outer_kernel * Strip(plane.rows, plane.columns, 1, width).size();
    RequireModestCopy(static_cast<double>(first));
    if (first < kBlockFloats && plane.rows.output > 1) {
      const int64_t more = outer_kernel * Strip(plane.rows, plane.columns, 2, width).size() - first;
      block_rows = (std::min)(plane.rows.output, (kBlockFloats - first) / more + 1);
    }
    row_blocks = (plane.rows.output - 1) / block_rows + 1;
    tasks = channels * outer_outputs * row_blocks;
    strip = Strip(plane.rows, plane.columns, block_rows, width);
    slot_bytes =
        ScratchSlots::RoundUp((outer_kernel * strip.size() + kLanes) * int64_t{sizeof(float)});
    grain = kChunkElements / (block_rows * width * outer_kernel * plane.taps() + kTaskElements) + 1;
    for (size_t axis = 0; axis + 2 < axes.size(); ++axis)
      scales.emplace_back(axes[axis], count_include_pad);
    scales.emplace_back(plane.rows, count_include_pad);
    scales.emplace_back(plane.columns, count_include_pad);
  }
  // Must be called before the plan runs. A proposal needs no table.
  void MakeTables() {
    for (int64_t k = 0; k < outer_kernel; ++k) strip.AppendOffsets(k * strip.size(), offsets);
  }
  const WindowScales& row_scales() const { return scales[scales.size() - 2]; }
  const WindowScales& column_scales() const { return scales.back(); }
  // Returns the product of the scales of window `outer` along the axes before the last two.
  float OuterScale(int64_t outer) const {
    float scale = 1;
    for (size_t axis = scales.size() - 2; axis-- > 0;) {
      scale *= scales[axis].At(outer % axes[axis].output);
      outer /= axes[axis].output;
    }
    return scale;
  }
};

// Runs one task: fills its strips and computes its windows.
template <class Reduce>
void RunPoolTask(const PoolPlan& plan, const float* x, float* y, float* scratch, int64_t task) {
  using Function = void (*)(const PoolTile&);
  static constexpr int kMost = 4;
  static constexpr Function kFunctions[kMost] = {&RunPoolTile<Reduce, 1>, &RunPoolTile<Reduce, 2>,
                                                 &RunPoolTile<Reduce, 3>, &RunPoolTile<Reduce, 4>};
  const int64_t row = task % plan.row_blocks * plan.block_rows;
  const int64_t outer = task / plan.row_blocks % plan.outer_outputs;
  const int64_t channel = task / plan.row_blocks / plan.outer_outputs;
  const int64_t width = plan.plane.columns.output;
  const WindowBlock block{row, (std::min)(plan.block_rows, plan.plane.rows.output - row), 0, width};
  for (int64_t k = 0; k < plan.outer_kernel; ++k) {
    const int64_t plane = OuterPlane(plan.axes, outer, k);
    plan.strip.Fill(
        plane < 0 ? nullptr : x + channel * plan.input_pixels + plane * plan.plane.input(),
        Reduce::kPad, block, scratch + k * plan.strip.size());
  }
  PoolTile tile;
  tile.input_line = plan.strip.line();
  tile.offsets = plan.offsets.data();
  tile.count = static_cast<int64_t>(plan.offsets.size());
  tile.lines = block.rows;
  tile.row_scales = &plan.row_scales();
  tile.row = row;
  if (Reduce::kScales) tile.scale = plan.OuterScale(outer);
  tile.output_line = width;
  y += (channel * plan.outer_outputs + outer) * plan.plane.output() + row * width;
  float column_scales[kMost * kLanes] = {};
  tile.column_scales = column_scales;
  ForEachTile(width, kMost, [&](int64_t column, int vectors, int64_t last) {
    tile.input = scratch + column;
    if (Reduce::kScales)
      for (int64_t o = 0; o < vectors * kLanes; ++o)
        column_scales[o] = plan.column_scales().At((std::min)(column + o, width - 1));
    tile.output = y + column;
    tile.last = last;
    kFunctions[vectors - 1](tile);
  });
}

// The kernel of a pool. Base is AveragePoolOpBase or MaxPoolOpBase.
template <class Base, class Reduce>
class PoolEigenOp : public Base {
 public:
  using Base::Base;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireFloat32(query);
    if (query.def.outputs().size() > 1 && !query.def.outputs()[1].empty())
      throw UnsupportedOperatorFeature("it does not find indices");
    KernelConfig config;
    if (query.inputs[0].shape.is_known() && query.outputs[0].shape.is_known()) {
      const Shape x = query.inputs[0].shape.ToShape();
      if (query.outputs[0].shape.ToShape().numel() > 0)
        config.scratch_bytes =
            PoolPlan(Base::AxesOf(WindowAttributes(query.def), x), x[0] * x[1], false)
                .ScratchBytes(ThreadPool::Current().threads());
    }
    return {config};
  }

 protected:
  bool RunPool(bool count_include_pad) {
    RequireFloat32(*this);
    if (this->HasOutput(1))
      throw UnsupportedOperatorFeature("the kernel of MaxPool for \"eigen\" does not find indices");
    const Tensor& x = this->DenseInput(0);
    Tensor* y = this->InferredOutput(0);
    if (y->numel() == 0) return true;
    if (!plan_ || !(x.shape() == shape_)) {
      plan_ = std::make_unique<PoolPlan>(Base::AxesOf(this->attributes_, x.shape()),
                                         x.dim(0) * x.dim(1), count_include_pad);
      plan_->MakeTables();
      shape_ = x.shape();
    }
    const PoolPlan& plan = *plan_;
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    const int threads = ThreadPool::Current().threads();
    plan.Run(this->Scratch(plan.ScratchBytes(threads)), threads,
             [&](int64_t begin, int64_t end, float* scratch) {
               for (int64_t task = begin; task < end; ++task)
                 RunPoolTask<Reduce>(plan, in, out, scratch, task);
             });
    return true;
  }

 private:
  std::unique_ptr<PoolPlan> plan_;  // the plan for inputs of shape_
  Shape shape_;
};

}  // namespace detail

class AveragePoolEigenOp final : public detail::PoolEigenOp<AveragePoolOpBase, detail::PoolMean> {
 public:
  using PoolEigenOp::PoolEigenOp;
  bool RunOnDevice() override { return RunPool(count_include_pad_); }
};
class MaxPoolEigenOp final : public detail::PoolEigenOp<MaxPoolOpBase, detail::PoolMax> {
 public:
  using PoolEigenOp::PoolEigenOp;
  bool RunOnDevice() override { return RunPool(false); }
};

// The base of the global pools: each output is f(a channel as an Eigen array).
class GlobalPoolEigenOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  static constexpr auto& Propose = ProposeFloat32;

 protected:
  template <class F>
  bool Reduce(F f) {
    constexpr int64_t kChunk = 32 * 1024;  // elements; about 5 us
    RequireFloat32(*this);
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const int64_t pixels = x.numel() / y->numel();
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    ParallelForRange(y->numel(), kChunk / pixels + 1, [=](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane)
        out[plane] = f(detail::ConstFloatArray(in + plane * pixels, pixels));
    });
    return true;
  }
};
class GlobalAveragePoolEigenOp final : public GlobalPoolEigenOp {
 public:
  using GlobalPoolEigenOp::GlobalPoolEigenOp;
  bool RunOnDevice() override {
    return Reduce([](const auto& channel) {
      return static_cast<float>(detail::SumInBlocks(channel.data(), channel.size()) /
                                static_cast<double>(channel.size()));
    });
  }
};
class GlobalMaxPoolEigenOp final : public GlobalPoolEigenOp {
 public:
  using GlobalPoolEigenOp::GlobalPoolEigenOp;
  bool RunOnDevice() override {
    return Reduce(
        [](const auto& channel) { return channel.template maxCoeff<Eigen::PropagateNaN>(); });
  }
};

OPKIT_EIGEN_OPERATOR(AveragePool, AveragePoolEigenOp);
OPKIT_EIGEN_OPERATOR(MaxPool, MaxPoolEigenOp);
OPKIT_EIGEN_OPERATOR(GlobalAveragePool, GlobalAveragePoolEigenOp);
OPKIT_EIGEN_OPERATOR(GlobalMaxPool, GlobalMaxPoolEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_POOL_HPP_
